"""What one scan showed of a segment: valid stretches and damage in the order of the file.

A stretch is folded, so the view of a segment is small however many batches it has. Where a log is cut at its first
damage, or loses damaged bytes, its folded state is known without another look at the file.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kdump.format.batch import HEADER, HEADER_SIZE, UP_TO_MAGIC, Batch
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.kernel.scan import SUSPECTS
from kdump.storage.walk import BatchChunk, Gap, Tail, TailContent

MOST_CUTS: Final = 16
"""A range with more damaged places has no view: each of them makes the scan begin again, with an empty buffer."""
ORDER_CODES: Final = frozenset({"offset/backwards", "offset/range", "epoch/backwards"})
"""Findings about the place of a batch, which is checked again once it is known which batches stay."""
OUT_OF_ORDER: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in ORDER_CODES)
_TORN_HEADER: Final = 27
"""The bytes of a header up to the end of lastOffsetDelta."""

OffsetRange = tuple[int, int]


class Damage(NamedTuple):
    """Bytes [start, stop) of a file that hold no valid batch, and the code of the finding about them.

    `offsets` are those that their header names, first and last, None without one. `padding`: zeros at the end of the
    file, which a broker may have preallocated.
    """

    start: int
    stop: int
    code: str
    offsets: OffsetRange | None = None
    padding: bool = False


class Stretch(NamedTuple):
    """Valid batches [start, stop) of a file, with nothing between them.

    `state` and `suspect` are those of a scan that began here. The first `events` of the summary end with those of its
    producers. `producers` are its producers, None where they were not collected.
    """

    start: int
    stop: int
    state: ScanState
    suspect: int = 0
    events: int = 0
    producers: frozenset[int] | None = None


class SegmentView(NamedTuple):
    """A segment: its stretches and damages in the order of the file, and the state of the whole scan."""

    items: tuple[Stretch | Damage, ...]
    state: ScanState

    @property
    def stretches(self) -> list[Stretch]:
        return [item for item in self.items if isinstance(item, Stretch)]

    @property
    def damages(self) -> list[Damage]:
        return [item for item in self.items if isinstance(item, Damage)]

    @property
    def suspect(self) -> int:
        """The defects of all valid batches, as bits of kdump.kernel.scan.SUSPECTS."""
        suspect = 0
        for stretch in self.stretches:
            suspect |= stretch.suspect
        return suspect

    @property
    def is_plain(self) -> bool:
        """Whether the folded states say all of the batches: they are of magic 2 and in order, without transactions."""
        state = self.state
        return not (state.magics[0] + state.magics[1] + state.control + state.transactional or self.is_out_of_order)

    @property
    def is_out_of_order(self) -> bool:
        return bool(self.suspect & OUT_OF_ORDER)


def damaged_batch(batch: Batch, suspect: int) -> Damage:
    """The bytes of a batch whose header is plausible and whose bytes are damaged."""
    first = batch.last_offset if batch.base_offset == NO_VALUE else batch.base_offset
    offsets = (first, batch.last_offset) if 0 <= first <= batch.last_offset else None
    return Damage(batch.position, batch.position + batch.size, codes_of(suspect)[0], offsets)


def damaged_bytes(item: Gap | Tail, read: Callable[[int, int], bytes], *, preallocated: bool) -> Damage:
    """Bytes that are no batch; `read(position, size)` gives bytes of the file."""
    headed = item.headed if isinstance(item, Gap) else item.reason is TailContent.TORN
    offsets = _offsets_at(read(item.position, min(item.length, HEADER_SIZE))) if headed else None
    padding = isinstance(item, Tail) and item.reason is TailContent.ZEROS and preallocated
    return Damage(item.position, item.position + item.length, _code_of(item), offsets, padding)


def damages_in(chunk: BatchChunk) -> list[Damage]:
    """The damaged batches of a chunk."""
    return [damaged_batch(batch, suspect) for batch, suspect in zip(chunk.rows(), chunk.suspects(), strict=True)]


def _offsets_at(header: bytes) -> OffsetRange | None:
    """The offsets that a header names whose batch is torn; None where the header is torn, too."""
    if len(header) < UP_TO_MAGIC:
        return None
    base, _, _, magic, _, _, delta, *_ = HEADER.unpack(header.ljust(HEADER_SIZE, b"\0"))
    if magic < 2:
        return base, base
    return (base, base + delta) if len(header) >= _TORN_HEADER and delta >= 0 else None


def codes_of(suspect: int) -> list[str]:
    """The codes of the defects that a kernel scan found in a batch."""
    return [code for bit, code in enumerate(SUSPECTS) if suspect >> bit & 1]


def _code_of(item: Gap | Tail) -> str:
    if isinstance(item, Tail):
        return f"tail/{item.reason}"
    return "batch/length" if item.headed else "gap/bytes"
