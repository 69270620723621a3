"""The findings of a suspect batch.

The kernel screens every batch and marks the suspect ones with a bit for each code. `explain` turns the diagnosis of a
batch into findings: each family has a table EXPLAIN, code → function of (path, batch, its diagnosis, base offset of the
segment or None).
"""

from collections.abc import Callable, Iterator

from kdump.format.batch import Batch
from kdump.kernel.results import BatchDiagnosis
from kdump.kernel.scan import SUSPECTS
from kdump.verify.checks import epochs, framing, offsets, records, timestamps
from kdump.verify.findings import Finding

Explain = Callable[[str, Batch, BatchDiagnosis, int | None], Finding]

EXPLAIN: dict[str, Explain] = {
    **framing.EXPLAIN,
    **offsets.EXPLAIN,
    **epochs.EXPLAIN,
    **timestamps.EXPLAIN,
    **records.EXPLAIN,
}

_BITS = tuple((1 << bit, EXPLAIN[code]) for bit, code in enumerate(SUSPECTS))


def explain(path: str, batch: Batch, diagnosis: BatchDiagnosis, base_offset: int | None) -> Iterator[Finding]:
    """The findings of a suspect batch, in the order of the bits of the kernel."""
    for bit, function in _BITS:
        if diagnosis.suspect & bit:
            yield function(path, batch, diagnosis, base_offset)
