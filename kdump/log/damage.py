"""Bytes of a log file that hold no valid batch."""

from collections.abc import Callable, Iterator
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import HEADER_SIZE, UP_TO_MAGIC, Batch, first_known_offset, header_at
from kdump.kernel.scan import SUSPECTS
from kdump.log.ranges import ByteRange, OffsetRange, range_to
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, Item, SearchLimit, ShrunkFile, Tail, TailContent

_SKIPPED: Final = "gap/bytes"
MISPLACED: Final = "record/delta"
"""The code of a batch of which all records are read, at offsets that cannot be right."""
_TORN_HEADER: Final = 27
"""The bytes of a header up to the end of lastOffsetDelta."""


class Damage(NamedTuple):
    """Bytes of a file that hold no valid batch, and the code of the finding about them.

    `offsets` are those that their header names, None without one. `padding`: zeros at the end of the
    file, which a broker may have preallocated.
    """

    range: ByteRange
    code: str
    offsets: OffsetRange | None = None
    padding: bool = False

    @property
    def start(self) -> int:
        return self.range.start

    @property
    def stop(self) -> int:
        return self.range.stop


class DamagedRange(NamedTuple):
    """Bytes of a log file that a read skipped, or a place in it where offsets are missing.

    `code` is a finding code: batch/crc, batch/magic, batch/limit, gap/bytes, gap/unsearched, tail/torn …, and
    `severity` that of verify. `first_offset` to `last_offset` are the offsets that the bytes may have had, from the
    batch before them to the one after them: None where that is not known, the last one also where no batch follows.
    Without bytes, as of offset/gap and MISPLACED, they are those that no record has.
    """

    path: str
    position: int
    length: int
    code: str
    severity: Severity = Severity.ERROR
    first_offset: int | None = None
    last_offset: int | None = None

    @property
    def offsets(self) -> OffsetRange:
        """The offsets that the bytes may have had: from 0 on, or up to UNKNOWN_END, where an end is not known."""
        return range_to(self.first_offset or 0, self.last_offset)

    @property
    def is_padding(self) -> bool:
        """Whether these are zeros that a broker may have preallocated."""
        return self.code == "tail/zeros" and self.severity < Severity.ERROR


def damaged_batch(batch: Batch, suspect: int) -> Damage:
    """The bytes of a batch whose header is plausible and whose bytes are damaged."""
    first = first_known_offset(batch)
    offsets = OffsetRange(first, batch.last_offset + 1) if 0 <= first <= batch.last_offset else None
    return Damage(ByteRange(batch.position, batch.position + batch.size), codes_of(suspect)[0], offsets)


def damaged_bytes(item: Gap | Tail, read: Callable[[int, int], bytes], *, preallocated: bool) -> Damage:
    """Bytes that are no batch; `read(position, size)` gives bytes of the file."""
    headed = item.headed if isinstance(item, Gap) else item.reason is TailContent.TORN
    offsets = _offsets_at(read(item.position, min(item.length, HEADER_SIZE))) if headed else None
    padding = isinstance(item, Tail) and item.reason is TailContent.ZEROS and preallocated
    return Damage(ByteRange(item.position, item.position + item.length), _code_of(item), offsets, padding)


def damages_in(chunk: BatchChunk) -> list[Damage]:
    """The damaged batches of a chunk."""
    return [damaged_batch(batch, suspect) for batch, suspect in zip(chunk.rows(), chunk.suspects(), strict=True)]


def _offsets_at(header: bytes) -> OffsetRange | None:
    """The offsets that a header names whose batch is torn; None where the header is torn, too."""
    if len(header) < UP_TO_MAGIC:
        return None
    fields = header_at(header.ljust(HEADER_SIZE, b"\0"))
    base, delta = fields.base_offset, fields.last_offset_delta
    if fields.magic < 2:
        return OffsetRange(base, base + 1)
    return OffsetRange(base, base + delta + 1) if len(header) >= _TORN_HEADER and delta >= 0 else None


def codes_of(suspect: int) -> list[str]:
    """The codes of the defects that a kernel scan found in a batch."""
    return [code for bit, code in enumerate(SUSPECTS) if suspect >> bit & 1]


def _code_of(item: Gap | Tail) -> str:
    if isinstance(item, Tail):
        return f"tail/{item.reason}"
    return "batch/length" if item.headed else _SKIPPED


def damaged_ranges(path: str, item: Item, *, active: bool = False) -> Iterator[DamagedRange]:
    """The damage in an item of a walk over a file. Raises SourceError where the file has become shorter.

    `active`: a broker may have preallocated the zeros at its end.
    """
    match item:
        case BatchChunk():
            for damage in damages_in(item):
                yield DamagedRange(path, damage.start, damage.stop - damage.start, damage.code)
        case Gap():
            # A read that skips bytes does not say whether they begin with the header of a batch.
            yield DamagedRange(path, item.position, item.length, _SKIPPED)
        case SearchLimit():
            yield DamagedRange(path, item.position, item.length, "gap/unsearched", Severity.WARNING)
        case Tail():
            severity = zeros_severity(item, active=active) if item.reason is TailContent.ZEROS else Severity.ERROR
            yield DamagedRange(path, item.position, item.length, _code_of(item), severity)
        case ShrunkFile():
            raise shrunk(path, item.position, item.position + item.length)
        case ForeignBatch():
            return


def zeros_severity(tail: Tail, *, active: bool) -> Severity:
    """The severity of zeros at the end of a file, which a broker may have preallocated in the active segment.

    It truncates a tail that is shorter than a header up to the magic like a torn batch.
    """
    return Severity.WARNING if active and tail.length > UP_TO_MAGIC else Severity.ERROR


def shrunk(path: str, at: int, expected: int) -> SourceError:
    """The error for a file that has become shorter."""
    return SourceError(f"{path}: the file ended at byte {at} of {expected} while it was read")


def is_preallocated(item: Item, log: LogFile) -> bool:
    """Whether bytes that are no batch are the zeros at the end of a preallocated file."""
    return isinstance(item, Tail) and item.reason is TailContent.ZEROS and log.preallocated
