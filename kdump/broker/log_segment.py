"""A segment while a broker loads it: its recovery, its indexes, and how offsets are found in it.

Sources: LogSegment, LogSegments, OffsetIndex, TimeIndex and TransactionIndex of Kafka 4.3.
"""

from array import array
from bisect import bisect_right
from collections import deque

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.file_records import (
    CorruptRecord,
    FileChannelRecordBatch,
    UncaughtReadError,
    fits,
)
from kdump.broker.index_interval import recovery_entry_is_due
from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.broker.offset_map import OffsetMap
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.producer_state_manager import ProducerStateManager, State
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.transactions import CompletedTxn
from kdump.broker.valid_segment import ValidSegment
from kdump.format import index
from kdump.format.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MINIMUM_SIZE,
    UP_TO_MAGIC,
    BatchHeader,
    header_at,
    wrapped,
)
from kdump.format.index import MAX_SEGMENT_BYTES
from kdump.format.naming import MAPPED_INDEX_SUFFIXES, segment_file_name
from kdump.kernel import crc


class InvalidOffset(Exception):
    """An index refuses an entry whose offset goes back (Kafka's InvalidOffsetException)."""


class LogSegmentOffsetOverflow(Exception):
    """The batch at `position` has a last offset that is none of the segment (LogSegmentOffsetOverflowException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class OffsetIndex:
    """The entries of an offset index: absolute offsets and positions. `loaded`: they are known."""

    __slots__ = ("loaded", "offsets", "positions")

    def __init__(self) -> None:
        self.offsets, self.positions, self.loaded = array("q"), array("q"), False

    def reset(self) -> None:
        """Begin without entries, as what the index holds now."""
        self.offsets, self.positions, self.loaded = array("q"), array("q"), True

    def append(self, offset: int, position: int) -> None:
        """Raises InvalidOffset (OffsetIndex.append)."""
        if self.offsets and offset <= self.offsets[-1]:
            raise InvalidOffset
        self.offsets.append(offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """The position of the last entry that is not above the offset (OffsetIndex.lookup)."""
        at = bisect_right(self.offsets, offset)
        return max(0, self.positions[at - 1]) if at else 0


class TimeIndex:
    """The entries of a time index: timestamps and absolute offsets."""

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps, self.offsets = array("q"), array("q")

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is above the last one. Raises InvalidOffset (TimeIndex.maybeAppend)."""
        if self.offsets and offset < self.offsets[-1]:
            raise InvalidOffset
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset)


class TransactionIndex:
    """The transaction index of a segment, as far as an append can fail. The first append creates the file."""

    def __init__(self, files: PartitionFiles, base_offset: int) -> None:
        self._files = files
        self._name = segment_file_name(base_offset, ".txnindex")
        self._last_offset = -1

    def append(self, last_offset: int, position: int) -> None:
        """Add the transaction that the marker at `position` aborts (TransactionIndex.append).

        Raises UncaughtReadError.
        """
        if 0 <= last_offset <= self._last_offset:
            raise UncaughtReadError("IllegalArgumentException", position, RefusalReason.TRANSACTION_MARKER)
        self._last_offset = last_offset
        self._files.create(self._name)


class LogSegment:
    """A segment with its offset index.

    `name` is the name of its file, `content` and `records` are its bytes. `valid` is what a scan found in them, None
    where they have to be read.
    """

    __slots__ = ("_files", "_found", "base_offset", "content", "name", "offset_index", "records", "valid")

    def __init__(self, files: PartitionFiles, name: str, base_offset: int) -> None:
        """The segment of this name; an empty one where there is none (LogSegment.open)."""
        files.create(name)
        self._files = files
        self.base_offset = base_offset
        self.name = name
        self.content = files.ranges[name]
        if self.content.size > MAX_SEGMENT_BYTES:
            files.refuse("KafkaException", self.content.origin, None, RefusalReason.FILE_SIZE)
        self.records = files.records(self.content)
        self._found = files.state.valid_segments.get(name) if files.is_unchanged(name) else None
        is_whole = self._found is not None and not self._found.is_damaged and self._found.disorder is None
        self.valid = self._found if is_whole else None
        self.offset_index = OffsetIndex()

    @property
    def size(self) -> int:
        """The size of the log file in bytes, as far as it is not truncated."""
        return self.records.size

    def refuse(self, problem: CorruptRecord | UncaughtReadError) -> None:
        """Note that its reader throws an exception that no caller catches."""
        self._files.refuse_log(problem, self.name, self.content)

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes."""
        if size < self.size:
            self.records = self.records.slice(0, size)
            self.content = self._files.truncate(self.name, self.content, size)

    # ---- recovery

    @property
    def recovered(self) -> ValidSegment | None:
        """What a scan found in the bytes that a recovery leaves; None where it has to read them."""
        found = self._found
        if found is not None and found.is_damaged and not self._stops_recovery(found.valid_bytes or 0):
            return None
        if found is not None and found.disorder and self._files.state.index_interval_bytes != INDEX_INTERVAL_BYTES:
            return None
        return found

    def break_off(self, found: ValidSegment, epochs: LeaderEpochFileCache, *, check_overflow: bool) -> None:
        """Do what `recover` does where batches are out of order, if it raises something there.

        Raises InvalidOffset and, unless `check_overflow` is False, LogSegmentOffsetOverflow.
        """
        if found.disorder is None:
            return
        overflow, known, refused, aborts = found.disorder
        if aborts:
            self._files.create(segment_file_name(self.base_offset, ".txnindex"))
        if check_overflow and overflow is not None and (refused is None or overflow <= refused):
            for epoch, first in found.epochs[:known]:
                epochs.assign_if_later(epoch, first)
            self.valid = found
            raise LogSegmentOffsetOverflow(overflow)
        if refused is not None:
            for epoch, first in found.epochs:
                epochs.assign_if_later(epoch, first)
            self.offset_index.reset()
            self.valid = None
            raise InvalidOffset

    def _stops_recovery(self, position: int) -> bool:
        """Whether `recover` finds a bad batch at this position, or the end of the log."""
        records, end = self.records, self.size
        if position >= end - UP_TO_MAGIC:
            return True
        fields = header_at(records.buffer.data, records.load(position, HEADER_SIZE))
        size = fields.batch_length
        if size < MINIMUM_SIZE[0] or position > end - LOG_OVERHEAD - size:
            return True
        size += LOG_OVERHEAD
        if fields.magic < 2:
            stored = fields.partition_leader_epoch & 0xFFFFFFFF
            return records.checksum(position, MAGIC_AT, size, crc.crc32) != stored
        return size < HEADER_SIZE or records.checksum(position, ATTRIBUTES_AT, size, crc.crc32c) != fields.crc

    def recover(
        self,
        manager: ProducerStateManager[State],
        epochs: LeaderEpochFileCache,
        time_index: TimeIndex,
        *,
        check_overflow: bool = True,
    ) -> None:
        """Rebuild the indexes up to the first bad batch, and truncate the rest (LogSegment.recover).

        Raises InvalidOffset and, unless `check_overflow` is False, LogSegmentOffsetOverflow.
        """
        offset_index, records, base, unpack = self.offset_index, self.records, self.base_offset, HEADER.unpack_from
        offset_index.reset()
        end, buffer, interval = records.size, records.buffer.data, self._files.state.index_interval_bytes
        transaction_index, latest_epoch = TransactionIndex(self._files, base), epochs.latest_epoch
        append, ongoing = manager.producers.append, manager.producers.transactions.ongoing
        position, last_index_entry, max_timestamp, offset_of_max_timestamp = 0, 0, -1, base
        while position < end - UP_TO_MAGIC:
            fields = unpack(buffer, records.load(position, HEADER_SIZE))
            offset, size, epoch, magic, stored_crc, _, delta, _, timestamp, producer, _, _, _ = fields
            if size < MINIMUM_SIZE[0] or position > end - LOG_OVERHEAD - size:
                break
            size += LOG_OVERHEAD
            if magic >= 2:
                if size < HEADER_SIZE or not records.matches(position, ATTRIBUTES_AT, size, crc.crc32c, stored_crc):
                    break
                last = wrapped(offset + delta, 64)
            else:
                if not records.matches(position, MAGIC_AT, size, crc.crc32, epoch & 0xFFFFFFFF):
                    break
                last = offset
                timestamp = records.message_timestamp_ms(position, magic)
            if check_overflow and not fits(last, base):
                raise LogSegmentOffsetOverflow(position)
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max_timestamp = timestamp, last
            if recovery_entry_is_due(position, last_index_entry, interval):
                offset_index.append(last, position)
                time_index.append(max_timestamp, offset_of_max_timestamp)
                last_index_entry = position
            start, position = position, position + size
            if magic < 2:
                continue
            try:
                if epoch > latest_epoch:
                    epochs.assign_if_later(epoch, offset)
                    latest_epoch = epoch
                if producer >= 0:
                    batch = FileChannelRecordBatch(start, size, offset, magic)
                    completed = append(records, batch, BatchHeader._make(fields), ongoing)
                    if completed is not None:
                        _complete(completed, start, manager, transaction_index)
            except UncaughtReadError as error:
                if error.exception == "InvalidRecordException":
                    break  # LogSegment.recover catches this one. Where the batch is read again, nothing does.
                self.refuse(UncaughtReadError(error.exception, start, error.reason))
            manager.map_end_offset = wrapped(last + 1, 64)
        self.truncate(position)
        time_index.append(max_timestamp, offset_of_max_timestamp)

    # ---- offsets and positions

    def load_offset_index(self, name: str) -> None:
        """Read the offset index as it is on disk: every slot of it is an entry."""
        self.offset_index.reset()
        offsets, positions = self.offset_index.offsets, self.offset_index.positions
        for block in self._files.index_entries(name, index.OFFSET_ENTRY.size):
            for relative, position in index.OFFSET_ENTRY.iter_unpack(block):
                offsets.append(wrapped(self.base_offset + relative, 64))
                positions.append(position)

    def build_offset_index(self) -> None:
        """The offset index of a valid segment as `recover` builds it, unless it is there."""
        if self.offset_index.loaded:
            return
        self.offset_index.reset()
        last_index_entry = 0
        for batch in self.records.batches(0, self.size):
            if recovery_entry_is_due(batch.position, last_index_entry, self._files.state.index_interval_bytes):
                self.offset_index.offsets.append(self.records.last_offset(batch))
                self.offset_index.positions.append(batch.position)
                last_index_entry = batch.position

    def translate_offset(self, offset: int) -> int | None:
        """The position of the first batch that holds the offset or is above it (LogSegment.translateOffset).

        Raises CorruptRecord, UncaughtReadError.
        """
        if not self.offset_index.loaded and self.valid is None:
            self.load_offset_index(segment_file_name(self.base_offset, ".index"))
        records = self.records
        previous: FileChannelRecordBatch | None = None
        for batch in records.batches(self.offset_index.lookup(offset), self.size):
            first = records.first_offset(batch)
            if first >= offset:
                if first > offset and previous is not None and records.last_offset(previous) >= offset:
                    return previous.position
                return batch.position
            previous = batch
        return previous.position if previous is not None and records.last_offset(previous) >= offset else None

    def read_next_offset(self) -> int:
        """The offset after the last batch from the last index entry on (LogSegment.readNextOffset).

        Raises CorruptRecord, UncaughtReadError.
        """
        if self.valid is not None:
            if not self.valid.has_wrapper_messages:
                return self.valid.next_offset
            self.build_offset_index()
        elif not self.offset_index.loaded:
            self.load_offset_index(segment_file_name(self.base_offset, ".index"))
        offsets = self.offset_index.offsets
        position = self.translate_offset(offsets[-1] if offsets else self.base_offset)
        if position is None:
            return self.base_offset
        last = deque(self.records.batches(position, self.size), maxlen=1)
        return wrapped(self.records.last_offset(last[0]) + 1, 64) if last else self.base_offset

    def next_offset(self) -> int:
        """The offset after the last batch; the base offset, and a refusal, where it cannot be read."""
        try:
            return self.read_next_offset()
        except (CorruptRecord, UncaughtReadError) as problem:
            self.refuse(problem)
            return self.base_offset

    def truncate_to_base_offset(self) -> int:
        """LogSegment.truncateTo the base offset; returns the number of bytes that go, usually all."""
        try:
            position = self.translate_offset(self.base_offset)
        except (CorruptRecord, UncaughtReadError) as problem:
            self.refuse(problem)
            position = 0
        self.offset_index.reset()
        size = self.size
        if position is not None:
            self.truncate(position)
        return size - self.size


def _complete(
    transaction: CompletedTxn, position: int, manager: ProducerStateManager[State], transaction_index: TransactionIndex
) -> None:
    """End a transaction with the marker at `position`. Raises UncaughtReadError."""
    if transaction.aborted:
        transaction_index.append(transaction.last_offset, position)
    manager.producers.complete(transaction, position)


class LogSegments(OffsetMap[LogSegment]):
    """The segments of a log by base offset."""

    def __init__(self, files: PartitionFiles) -> None:
        super().__init__()
        self._files = files

    def open(self, base_offset: int) -> LogSegment:
        """The segment with this base offset, which is not added."""
        return LogSegment(self._files, segment_file_name(base_offset, ".log"), base_offset)

    def add(self, base_offset: int) -> None:
        """Open the segment, an empty one where there is none, and add it."""
        self[base_offset] = self.open(base_offset)

    def create_indexes(self, base_offset: int) -> None:
        """Create the offset index and the time index of a segment where they are missing."""
        for suffix in MAPPED_INDEX_SUFFIXES:
            self._files.create(segment_file_name(base_offset, suffix))
