"""What a search in one segment returns: where the batch with an offset is, and which damage was skipped on the way."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.kernel.scan import SUSPECTS
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, Item, SearchLimit, ShrunkFile, Tail
from kdump.verify.checks.framing import not_a_batch
from kdump.verify.findings import Severity

_DAMAGES: Final = ("batch/crc", "batch/magic", "batch/limit")
MISPLACED: Final = "record/delta"
"""The code of a batch of which all records are read, at offsets that cannot be right."""


class DamagedRange(NamedTuple):
    """Bytes of a log file that a read skipped.

    `code` is a finding code: batch/crc, batch/magic, batch/limit, gap/bytes, gap/unsearched, tail/torn …, and
    `severity` that of verify. `first_offset` to `last_offset` are the offsets that the bytes may have had, from the
    batch before them to the one after them: None where that is not known, the last one also where no batch follows. Of
    MISPLACED, which has no bytes, they are those that no record has.
    """

    path: str
    position: int
    length: int
    code: str
    severity: Severity = Severity.ERROR
    first_offset: int | None = None
    last_offset: int | None = None

    @property
    def is_padding(self) -> bool:
        """Whether these are zeros that a broker may have preallocated."""
        return self.code == "tail/zeros" and self.severity < Severity.ERROR


class BatchLocation(NamedTuple):
    """The first batch whose last offset is at or above the target offset.

    `first_offset` is NO_VALUE for a wrapper message. `body` is None for a large batch. The search began at
    `search_position`, where the offset index entry for `entry_offset` points; -1 means that it began without an entry.
    `damage` lies before the batch and after all batches below the target; `follows_batch` says whether there was such a
    batch.
    """

    position: int
    size: int
    first_offset: int
    last_offset: int
    body: bytes | None
    entry_offset: int
    search_position: int
    damage: tuple[DamagedRange, ...]
    follows_batch: bool


class NoBatch(NamedTuple):
    """The segment has no batch at or above the target offset; `damage` and `follows_batch` as in BatchLocation."""

    damage: tuple[DamagedRange, ...]
    follows_batch: bool


class OffsetAndTimestamp(NamedTuple):
    """A record found by time: its offset, and its timestamp in milliseconds."""

    offset: int
    timestamp_ms: int


def damaged_ranges(path: str, item: Item, *, active: bool = False) -> Iterator[DamagedRange]:
    """The damage in an item of a walk over a file. Raises SourceError where the file has become shorter.

    `active`: a broker may have preallocated the zeros at its end.
    """
    match item:
        case BatchChunk():
            for batch, suspect in zip(item.rows(), item.suspects(), strict=True):
                what = next(code for code in _DAMAGES if suspect >> SUSPECTS.index(code) & 1)
                yield DamagedRange(path, batch.position, batch.size, what)
        case Gap():
            yield DamagedRange(path, item.position, item.length, "gap/bytes")
        case SearchLimit() | Tail():
            found = not_a_batch(path, item, active)
            yield DamagedRange(path, item.position, item.length, found.code, found.severity)
        case ShrunkFile():
            raise shrunk(path, item.position, item.position + item.length)
        case ForeignBatch():
            return


def shrunk(path: str, at: int, expected: int) -> SourceError:
    """The error for a file that has become shorter."""
    return SourceError(f"{path}: the file ended at byte {at} of {expected} while it was read")
