"""What a search in one segment returns: where the batch with an offset is, and which damage was skipped on the way."""

from kdump.log.damage import DamagedRange
from kdump.named_tuple import NamedTuple


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
