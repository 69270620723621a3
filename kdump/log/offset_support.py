"""What the companions of a log and the names of its segments say of the offsets of a batch."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from kdump.errors import SourceError
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, index_extent, offset_entries, time_entries
from kdump.format.producer_snapshot import SnapshotError, parse_entries
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole


class _Entries(NamedTuple):
    """What the indexes of a segment say: the offset of the batch at a position, and the one of a timestamp."""

    offsets: Mapping[int, int]
    times: Mapping[int, int]


class OffsetSupport:
    """Counts what agrees with the offsets of a batch, less what does not; reads each companion when it is needed.

    A companion that cannot be read says nothing.
    """

    def __init__(self, partition: Partition, files: Sequence[SegmentBatches]) -> None:
        self._partition, self._files = partition, files
        self._entries: dict[int, _Entries] = {}
        self._bases = frozenset(one.base for one in files)

    def __call__(self, batch: BatchSpan) -> int:
        entries = self._entries.get(batch.file)
        if entries is None:
            entries = self._entries[batch.file] = _entries_of(self._files[batch.file])
        found = (
            (batch.position == 0 and batch.first in self._bases)
            + (batch.last + 1 in self._bases)
            + (batch.last + 1 in self._snapshots)
        )
        found += (batch.producer_id, batch.last) in self._producers
        timed = entries.times.get(batch.timestamp)
        found += timed is not None and batch.first <= timed <= batch.last
        indexed = entries.offsets.get(batch.position)
        if indexed is not None:
            # The entry may be the last offset of several batches that were appended at once.
            found += indexed in (batch.first, batch.last)
            found -= indexed < batch.first
        return found

    @cached_property
    def _snapshots(self) -> frozenset[int]:
        return frozenset(one.base_offset for one in self._partition.producer_snapshots if one.base_offset is not None)

    @cached_property
    def _producers(self) -> frozenset[tuple[int, int]]:
        """The producers of the snapshots, each with the offset of its last batch."""
        return frozenset(pair for one in self._partition.producer_snapshots for pair in _last_offsets(one))


def _last_offsets(snapshot: LogFile) -> Iterator[tuple[int, int]]:
    try:
        entries = parse_entries(_read(snapshot))
    except (SourceError, SnapshotError):
        return
    for entry in entries:
        if entry.last_offset >= 0:
            yield entry.producer_id, entry.last_offset


def _entries_of(one: SegmentBatches) -> _Entries:
    index, timeindex = one.segment.index, one.segment.timeindex
    offsets, times = {}, {}
    if index is not None:
        slots = _slots(index, OFFSET_ENTRY.size)
        offsets = {position: offset for offset, position in offset_entries(slots, one.base)}
    if timeindex is not None:
        slots = _slots(timeindex, TIME_ENTRY.size)
        times = dict(time_entries(slots, one.base))
    return _Entries(offsets, times)


def _slots(index: LogFile, entry_size: int) -> bytes:
    """The entries of an index, without what was preallocated."""
    try:
        data = _read(index)
    except SourceError:
        return b""
    extent = index_extent(lambda position, size: data[position : position + size], len(data), entry_size)
    return data[: extent.entries]


def _read(file: LogFile) -> bytes:
    with file.open() as source:
        return read_whole(source, MAX_COMPANION_BYTES)
