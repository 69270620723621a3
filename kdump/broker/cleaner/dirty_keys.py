"""The keys of the part of a log that the log cleaner has not compacted yet, and what a pass over it drops.

A pass puts the keys of the dirty part into a map, each with its last offset there. It drops each record, also in the
clean part, of which a later one with the same key is in the map, and each record without a key.

Source: Cleaner.buildOffsetMap and Cleaner.shouldRetainRecord of Kafka 4.3.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from kdump.kernel.estimate import HASHES, Estimate, total
from kdump.kernel.key_table import ROW_CELLS, ROWS_SAMPLE, SAMPLE_COLUMNS
from kdump.named_tuple import NamedTuple

_WIDTH: Final = ROW_CELLS[ROWS_SAMPLE]


class CompactionSavings(NamedTuple):
    """What a compaction of the whole partition keeps and drops, if no record were too new for it.

    Dropped are the records that a later one of the same key replaces (`shadowed`), and records without a key
    (Cleaner.shouldRetainRecord). Live tombstones stay until `delete.retention.ms` is over. Bytes are those of records
    before compression.
    """

    live_records: Estimate
    live_bytes: Estimate
    dropped_records: Estimate
    dropped_bytes: Estimate
    live_tombstones: Estimate
    shadowed_tombstones: Estimate
    live_tombstone_bytes: Estimate


class MeasuredSample(Protocol):
    """The keys with the smallest hashes (kdump.kernel.key_table). `dropped`: there are more keys than these."""

    @property
    def rows(self) -> bytes: ...
    @property
    def dropped(self) -> bool: ...
    @property
    def largest_hash(self) -> int: ...


class MeasuredKeys(Protocol):
    """The keys of a part of a log. `records` and `bytes` are those with a key."""

    @property
    def sample(self) -> MeasuredSample: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def unkeyed_records(self) -> int: ...
    @property
    def unkeyed_bytes(self) -> int: ...

    def distinct(self) -> Estimate:
        """The number of distinct keys."""

    def compaction(self) -> CompactionSavings:
        """What compaction would drop."""


class DirtyKeys(NamedTuple):
    """The keys of the dirty part, which ends with the segment before the active one.

    `first_dirty_offset` is None where all of it is dirty. `distinct` is the number of keys. A pass drops
    `dropped_records` with `dropped_bytes`; `unkeyed_records` are among them, and are lost. Bytes are those of records
    before compression. `live_tombstones` are the last records of their keys: they stay, until delete.retention.ms after
    the first pass that meets them.
    """

    first_dirty_offset: int | None
    distinct: Estimate
    dropped_records: Estimate
    dropped_bytes: Estimate
    unkeyed_records: int
    live_tombstones: Estimate


def dirty_keys(keys: MeasuredKeys, first_dirty_offset: int | None) -> DirtyKeys:
    """The dirty keys among those of the segments before the active one."""
    savings = keys.compaction()
    unkeyed = keys.unkeyed_records
    if first_dirty_offset is None:
        return DirtyKeys(
            None, keys.distinct(), savings.dropped_records, savings.dropped_bytes, unkeyed, savings.live_tombstones
        )
    cells = memoryview(keys.sample.rows).cast("q")
    column = {name: cells[number::_WIDTH].tolist() for number, name in enumerate(SAMPLE_COLUMNS)}
    rows = list(zip(column["last_offset"], column["records"], column["bytes"], column["last_size"], strict=True))
    # The key with the largest hash says how likely the others are in the sample; it does not count itself.
    rows = rows[: len(rows) - keys.sample.dropped]
    dirty = [row for row in rows if row[0] >= first_dirty_offset]
    return DirtyKeys(
        first_dirty_offset,
        _sum(keys, (1 for _ in dirty)),
        _plus(_sum(keys, (records - 1 for _, records, _, _ in dirty)), unkeyed, keys.records),
        _plus(_sum(keys, (size - last_size for _, _, size, last_size in dirty)), keys.unkeyed_bytes, keys.bytes),
        unkeyed,
        savings.live_tombstones,
    )


def _sum(keys: MeasuredKeys, values: Iterable[int]) -> Estimate:
    """The sum of a number over all keys, from those of the sample."""
    listed = list(values)
    if not keys.sample.dropped:
        return Estimate(sum(listed))
    largest = max(keys.sample.largest_hash, 1)
    return total(sum(listed), max(sum(value * value for value in listed), 1) * HASHES / largest, largest)


def _plus(estimate: Estimate, number: int, limit: int) -> Estimate:
    return estimate._replace(value=min(estimate.value, limit) + number)
