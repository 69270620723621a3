"""From a suspect row to findings. The kernel says which rule a batch broke; here each code says it in full.

A module per family holds `EXPLAIN`: code → function of (path, batch, segment base offset or None) → Finding.
"""

from collections.abc import Callable, Iterator

from kdump.format.batch import Batch
from kdump.kernel.scan import SUSPECTS
from kdump.verify.checks import epochs, framing, offsets, records, timestamps
from kdump.verify.findings import Finding

Explain = Callable[[str, Batch, int | None], Finding]

EXPLAIN: dict[str, Explain] = {
    **framing.EXPLAIN,
    **offsets.EXPLAIN,
    **epochs.EXPLAIN,
    **timestamps.EXPLAIN,
    **records.EXPLAIN,
}

_BITS = tuple((1 << bit, EXPLAIN[code]) for bit, code in enumerate(SUSPECTS))


def explain(path: str, batch: Batch, base_offset: int | None) -> Iterator[Finding]:
    """The findings of a batch, in the order of the kernel's bits."""
    for bit, function in _BITS:
        if batch.suspect & bit:
            yield function(path, batch, base_offset)
