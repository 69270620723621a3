"""Kafka's LogLoader on values: the files of a topic-partition directory before a start after an unclean stop, and what it makes of them.

Leftovers, segments and their companions, recovery of each segment, deletion of what lies behind a cut, leader epochs, producer snapshots: the steps and their
order are Kafka's, so that damage upon damage comes out as there. Nothing is written. Segments that are known to be sound (`Proved`) are not read.

Sources: LogLoader, LogSegment, LocalLog.splitOverflowedSegment, ProducerStateManager, ProducerAppendInfo, LeaderEpochFileCache, UnifiedLog of Kafka 4.3.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kdump.broker.file_records import (
    TIMESTAMP,
    CorruptRecord,
    FileChannelRecordBatch,
    FileRecords,
    ReadBuffer,
    UncaughtReadError,
    fits,
)
from kdump.broker.load_state import (
    InvalidOffset,
    LeaderEpochFileCache,
    LogSegment,
    LogSegmentOffsetOverflow,
    OffsetMap,
    OpenTransactions,
    ProducerStateManager,
    SegmentSplit,
    TimeIndex,
)
from kdump.broker.result import NEW, DirectoryState, FileRange, LoadResult, Refusal, ResultSegment
from kdump.format import checkpoint, index, partition_metadata, snapshot, text_files
from kdump.format.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    UP_TO_MAGIC,
    wrapped,
)
from kdump.format.checkpoint import CheckpointError
from kdump.format.index import MAX_SEGMENT_BYTES
from kdump.format.naming import (
    INDEX_SUFFIXES,
    MAPPED_INDEX_SUFFIXES,
    MAX_COMPANION_BYTES,
    SEGMENT_SUFFIXES,
    file_name,
    number_of,
)
from kdump.format.snapshot import SnapshotError
from kdump.kernel import crc
from kdump.storage.source import Source

_OPEN_FILES: Final = 8

EPOCHS: Final = "leader-epoch-checkpoint"
METADATA: Final = "partition.metadata"


class LogLoader:
    """One start: the steps of LogLoader, on names and bytes from before it."""

    def __init__(self, start: DirectoryState) -> None:
        self.start = start
        self.refusals: list[Refusal] = []
        self.files = {name: FileRange(name, 0, size) for name, size in start.files.items()}
        self.segments: OffsetMap[LogSegment] = OffsetMap()
        self.snapshots: OffsetMap[str] = OffsetMap()
        self.states: dict[str, OpenTransactions] = {}  # of the snapshots that were written
        self.written: set[int] = set()
        self.deleted: set[str] = set()
        self.promoted: dict[str, str] = {}
        self.split: dict[str, tuple[int, ...]] = {}
        self.stuck: set[int] = set()
        self.wiped: set[str] = set()
        self.recovered: set[str] = set()
        self.cuts: dict[str, int] = {}
        self.epochs = LeaderEpochFileCache()
        self.times = TimeIndex()  # of the last segment that was replayed
        self._window = ReadBuffer()
        self._opened: dict[str, Source] = {}

    # ---- files

    def _source(self, name: str) -> Source:
        """The last few that were read stay open."""
        source = self._opened.pop(name, None) or self.start.open(name)
        self._opened[name] = source
        if len(self._opened) > _OPEN_FILES:
            self._opened.pop(next(iter(self._opened))).close()
        return source

    def _bytes(self, held: FileRange) -> FileRecords:
        return FileRecords(self._window, lambda: self._source(held.origin), held.start, held.size)

    def _content(self, name: str, limit: int) -> bytes:
        """The bytes of a companion; of one that is larger, one more than the limit, which its reader refuses."""
        held = self.files.get(name, NEW)
        return self._bytes(held).read(0, min(held.size, limit + 1)) if held.size else b""

    def _slots(self, name: str, entry_size: int) -> Iterator[bytes]:
        """The entries of an index, in pieces."""
        held = self.files.get(name, NEW)
        return index.blocks(self._bytes(held).read, held.size - held.size % entry_size, entry_size)

    def delete(self, name: str) -> None:
        held = self.files.pop(name, NEW)
        self.states.pop(name, None)
        number = number_of(name) if name.endswith(".snapshot") else None
        if number is not None and self.snapshots.get(number) == name:
            del self.snapshots[number]
        if held.origin in self.split:
            self._cut(held, 0)
        elif held.origin:
            self.deleted.add(held.origin)

    def _cut(self, held: FileRange, size: int) -> None:
        position = held.start + size
        self.cuts[held.origin] = min(position, self.cuts.get(held.origin, position))

    def _resize(self, segment: LogSegment, size: int) -> None:
        """Cut a segment off behind `size` bytes."""
        if size < segment.size:
            self._cut(segment.held, size)
            segment.file = segment.file.part(0, size)
            segment.held = segment.held._replace(size=size)
            self.files[segment.name] = segment.held

    def _create(self, name: str) -> None:
        self.files.setdefault(name, NEW)

    def _refuse(self, exception: str, name: str, position: int | None, word: str) -> None:
        refusal = Refusal(exception, name, position, word)
        if refusal not in self.refusals:  # what is read twice fails twice
            self.refusals.append(refusal)

    def _failed(self, problem: "CorruptRecord | UncaughtReadError", segment: LogSegment) -> None:
        """A reader failed where nobody catches it."""
        if isinstance(problem, CorruptRecord):
            problem = UncaughtReadError("CorruptRecordException", problem.position, "walk")
        position = None if problem.position is None else problem.position + segment.held.start
        self._refuse(problem.exception, segment.held.origin or segment.name, position, problem.word)

    # ---- producer snapshots

    def _list_snapshots(self) -> None:
        """Those whose names have a number; the others were refused."""
        for name in sorted(self.files):
            if name.endswith(".snapshot") and (offset := number_of(name)) is not None:
                self.snapshots[offset] = name

    def snapshot(self, name: str) -> OpenTransactions | None:
        """What a snapshot says; None when Kafka's reader refuses it."""
        if name in self.states:
            return self.states[name]
        try:
            entries = snapshot.parse(self._content(name, MAX_COMPANION_BYTES))
        except SnapshotError:
            return None
        return OpenTransactions(
            {entry.producer_id: entry.current_txn_first_offset for entry in entries if entry.has_transaction}
        )

    def write_snapshot(self, offset: int, state: OpenTransactions) -> None:
        name = file_name(offset, ".snapshot")
        self._create(name)
        self.states[name] = state
        self.snapshots[offset] = name
        self.written.add(offset)

    def _remove_stray_snapshots(self) -> None:
        """Of the snapshots at no segment's base only the highest stays, and that only above all bases."""
        stray = [offset for offset in self.snapshots.order if offset not in self.segments]
        if stray and stray[-1] > self.segments.order[-1]:
            stray.pop()
        for offset in stray:
            self.delete(self.snapshots[offset])

    # ---- LogLoader.load

    def close(self) -> None:
        for source in self._opened.values():
            source.close()

    def run(self) -> LoadResult:
        self._load_epochs()
        for name in sorted(self.files):
            if name.endswith(".snapshot") and number_of(name) is None:
                self._refuse("NumberFormatException", name, None, "name")
        self._swap(self._leftovers())
        self._list_snapshots()
        self._retry(self._load_segments)
        if self.start.deleting:
            log_end = 0
            if not self.segments:
                self._make(0)
        else:
            log_end = self._retry(self._recover_log)
            self._create_indexes(self.segments.order[-1])
        log_start = max(self.start.log_start_offset, self.segments.order[0])
        self.epochs.truncate(self.start.log_start_offset, log_end)
        if self.epochs.written:
            self.delete(f"{EPOCHS}.tmp")
        self._remove_stray_snapshots()
        self._rebuild(ProducerStateManager(self), log_start, log_end)
        self._check_metadata()
        return LoadResult(
            tuple(self.refusals),
            log_start,
            log_end,
            tuple(ResultSegment(base, self.segments[base].size) for base in self.segments.order),
            self.cuts,
            frozenset(self.wiped),
            frozenset(self.deleted),
            self.files,
            self.promoted,
            self.split,
            frozenset(self.recovered),
            frozenset(self.written),
            tuple(self.epochs.entries),
            self.epochs.written,
        )

    def _load_epochs(self) -> None:
        if EPOCHS not in self.files:
            self._create(EPOCHS)
            return
        try:
            entries = list(checkpoint.epoch_entries(self._content(EPOCHS, checkpoint.MAX_BYTES)))
        except CheckpointError:
            self._refuse("KafkaStorageException", EPOCHS, None, "epochs")
            return
        for entry in entries:
            try:
                self.epochs.assign(entry.epoch, entry.start_offset)
            except UncaughtReadError as refused:
                self._refuse(refused.exception, EPOCHS, None, refused.word)

    def _check_metadata(self) -> None:
        if METADATA in self.files:
            data = self._content(METADATA, text_files.MAX_PROPERTIES_BYTES)
            try:
                partition_metadata.parse_partition_metadata(data)
            except CheckpointError:
                self._refuse("KafkaStorageException" if data else "NullPointerException", METADATA, None, "metadata")

    def _leftovers(self) -> list[str]:
        """Delete what an interrupted run left, and give the .swap files that are whole."""
        numbers = {}
        for name in sorted(self.files):
            if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
                self.delete(name)
            elif name.endswith((".cleaned", ".swap")):
                number = number_of(name)
                if number is None:
                    self._refuse("NumberFormatException", name, None, "name")
                else:
                    numbers[name] = number
        lowest = min((number for name, number in numbers.items() if name.endswith(".cleaned")), default=1 << 63)
        for name, number in numbers.items():
            if name.endswith(".cleaned") or number >= lowest:
                self.delete(name)
        return [name for name in numbers if name in self.files]

    def _swap(self, swaps: list[str]) -> None:
        """Put the .swap files into the places of the segments that they stand for."""
        lowest, highest = 1 << 63, -(1 << 63)
        for name in swaps:
            number = number_of(name)
            if name.endswith(".log.swap") and number is not None:
                segment = self.segment(file_name(number, ".log.swap"), number)
                self._load_index(segment, file_name(number, ".index.swap"))
                self._create(file_name(number, ".index.swap"))
                lowest, highest = min(lowest, number), max(highest, self.end_of(segment))
        for name in sorted(self.files):
            number = number_of(name)
            if number is not None and lowest <= number < highest and not name.endswith(".swap"):
                self.delete(name)
        for name in sorted(self.files):
            if name.endswith(".swap") and number_of(name) is not None:
                to = name.removesuffix(".swap")
                self.delete(to)
                self.files[to] = held = self.files.pop(name)
                if held.origin:
                    self.promoted[held.origin] = to

    def _load_index(self, segment: LogSegment, name: str) -> None:
        """An index as it stands: every slot of it is an entry."""
        segment.clear_index()
        for slots in self._slots(name, index.OFFSET_ENTRY.size):
            for relative, position in index.OFFSET_ENTRY.iter_unpack(slots):
                segment.offsets.append(wrapped(segment.base + relative, 64))
                segment.positions.append(position)

    def segment(self, name: str, base: int) -> LogSegment:
        """The segment of this name; an empty one where there is none, as Kafka makes it."""
        self._create(name)
        held = self.files[name]
        if held.size > MAX_SEGMENT_BYTES:
            self._refuse("KafkaException", held.origin, None, "size")
        whole = held == FileRange(name, 0, self.start.files.get(name, 0))
        return LogSegment(base, name, held, self._bytes(held), self.start.proved.get(name) if whole else None)

    def _make(self, base: int) -> None:
        self.segments[base] = self.segment(file_name(base, ".log"), base)

    def _retry(self, step: Callable[[], int]) -> int:
        """Do a step again and again, while there is a segment to be split (KAFKA-6264)."""
        while True:
            try:
                return step()
            except SegmentSplit as split:
                self._split(split.segment)

    def _load_segments(self) -> int:
        self.segments.clear()
        for name in sorted(self.files):
            is_index = name.endswith(INDEX_SUFFIXES)
            if name not in self.files or not (is_index or name.endswith(".log")):
                continue
            number = number_of(name)
            if number is None:
                self._refuse("NumberFormatException", name, None, "name")
            elif is_index:
                if file_name(number, ".log") not in self.files:
                    self.delete(name)
            else:
                segment = self.segment(file_name(number, ".log"), number)
                if not self._is_sane(segment):
                    # What is cut off here is not reported: later segments stay.
                    try:
                        self._recover(segment)
                    except InvalidOffset:
                        self._failed(UncaughtReadError("InvalidOffsetException", None, "backwards"), segment)
                self.segments[number] = segment
        return 0

    def _is_sane(self, segment: LogSegment) -> bool:
        """LogSegment.sanityCheck: False when the segment has to be recovered at once, because of its offset or transaction index."""
        if file_name(segment.base, ".index") not in self.files:
            return False
        self._create(file_name(segment.base, ".timeindex"))
        name = file_name(segment.base, ".txnindex")
        size, number = index.TRANSACTION_ENTRY.size, 0
        for slots in self._slots(name, size):
            for entry in index.aborted_transactions(slots):
                if entry.refused:
                    self._refuse("KafkaException", self.files[name].origin, number * size, "txnindex")
                    return True
                if entry.last_offset < segment.base:
                    return False
                number += 1
        return True

    def _recover_log(self) -> int:
        """The log end offset."""
        bases = self.segments.order
        unflushed = bases[max(0, bisect_right(bases, self.start.recovery_point) - 1) :]
        for number, base in enumerate(unflushed):
            segment = self.segments[base]
            try:
                truncated = self._recover(segment)
            except InvalidOffset:
                truncated = self._wipe(segment)
            if truncated > 0:
                for later in unflushed[number + 1 :]:
                    self._delete_segment(later)
                break
        if self.segments:
            log_end = self.end_of(self.segments[bases[-1]])
            if log_end >= self.start.log_start_offset:
                return log_end
            for base in list(bases):
                self._delete_segment(base)
            self.epochs.entries.clear()
            self.epochs.written = True
            for name in list(self.snapshots.values()):
                self.delete(name)
        self._make(self.start.log_start_offset)
        return self.start.log_start_offset

    def _delete_segment(self, base: int) -> None:
        del self.segments[base]
        for suffix in SEGMENT_SUFFIXES:
            self.delete(file_name(base, suffix))

    def _create_indexes(self, base: int) -> None:
        for suffix in MAPPED_INDEX_SUFFIXES:
            self._create(file_name(base, suffix))

    # ---- one segment

    def _recover(self, segment: LogSegment) -> int:
        """LogLoader.recoverSegment: how many bytes are cut off."""
        if segment.held.origin:
            self.recovered.add(segment.held.origin)
        self._create_indexes(segment.base)
        if file_name(segment.base, ".txnindex") in self.files:
            self.files[file_name(segment.base, ".txnindex")] = NEW
        before = segment.size
        producers = ProducerStateManager(self)
        self._rebuild(producers, self.start.log_start_offset, segment.base)
        if segment.proved is not None and not producers.twofold:
            if segment.proved.valid_bytes is not None:
                self._resize(segment, segment.proved.valid_bytes)
            for epoch, first in segment.proved.epochs:
                self.epochs.seen(epoch, first)
            producers.skip(segment, segment.proved)
        else:
            producers.catch_up()
            try:
                self.replay(segment, producers)
            except LogSegmentOffsetOverflow:
                raise SegmentSplit(segment) from None
        producers.take_snapshot()
        return before - segment.size

    def replay(self, segment: LogSegment, producers: ProducerStateManager) -> None:
        """LogSegment.recover: walk to the first bad batch, make the indexes, cut the rest off. Raises Overflow, Backwards."""
        segment.clear_index()
        file, base, interval = segment.file, segment.base, self.start.index_interval_bytes
        end, buffer, unpack = file.size, file.window.buffer, HEADER.unpack_from
        times = self.times = TimeIndex()
        position = indexed = 0
        largest, largest_offset, last_abort = -1, base, -1
        while position < end - UP_TO_MAGIC:
            header = unpack(buffer, file.load(position, HEADER_SIZE))
            offset, size, epoch, magic, stored, _, delta, _, timestamp, producer, _, _, _ = header
            if size < MINIMUM_SIZE[0] or position > end - LOG_OVERHEAD - size:
                break
            total = LOG_OVERHEAD + size
            if magic >= 2:
                if total < HEADER_SIZE or file.checksum(position, 21, total, crc.crc32c) != stored:
                    break
                last = wrapped(offset + delta, 64)
            else:
                if file.checksum(position, 16, total, crc.crc32) != epoch & 0xFFFFFFFF:
                    break
                last = offset
                at = file.load(position, HEADER_SIZE)
                timestamp = -1 if magic == 0 else TIMESTAMP.unpack_from(buffer, at + 18)[0]
            if not fits(last, base) and base not in self.stuck:
                raise LogSegmentOffsetOverflow(position)
            if timestamp > largest:
                largest, largest_offset = timestamp, last
            if position - indexed > interval:
                if segment.offsets and last <= segment.offsets[-1]:
                    raise InvalidOffset
                segment.offsets.append(last)
                segment.positions.append(position)
                times.append(largest, largest_offset)
                indexed = position
            batch = FileChannelRecordBatch(position, total, offset, magic)
            position += total
            if magic < 2:
                continue
            try:
                self.epochs.seen(epoch, offset)
                done = producers.apply(file, batch, header, producers.begun) if producer >= 0 else None
                if done is not None:
                    first, aborts = done
                    if aborts and 0 <= offset <= last_abort:
                        raise UncaughtReadError("IllegalArgumentException", batch.position, "marker")
                    if aborts:
                        last_abort = offset
                        self._create(file_name(base, ".txnindex"))
                    producers.complete(first, batch.position)
            except UncaughtReadError as refused:
                if refused.exception == "InvalidRecordException":
                    break  # caught here, so that what follows is cut off; not where the batch is read again
                self._failed(UncaughtReadError(refused.exception, batch.position, refused.word), segment)
            producers.map_end = last + 1
        self._resize(segment, position)
        times.append(largest, largest_offset)

    def add(self, producers: ProducerStateManager, segment: LogSegment, start: int, end: int) -> None:
        """UnifiedLog.loadProducersFromRecords: the batches of a part of a segment, none of them proved."""
        begun: dict[int, int] = {}
        completed: list[tuple[int, int]] = []
        try:
            for batch in segment.file.batches(start, end):
                header = segment.file.header(batch) if batch.magic >= 2 else None
                if header is None or header[9] < 0:
                    continue
                try:
                    done = producers.apply(segment.file, batch, header, begun)
                except UncaughtReadError as refused:
                    self._failed(refused, segment)
                else:
                    if done is not None:
                        completed.append((done[0], batch.position))
        except (CorruptRecord, UncaughtReadError) as problem:
            self._failed(problem, segment)
        producers.begun.update(begun)
        for first, position in completed:
            try:
                producers.complete(first, position)
            except UncaughtReadError as refused:
                self._failed(refused, segment)

    def _rebuild(self, producers: ProducerStateManager, log_start: int, log_end: int) -> None:
        """UnifiedLog.rebuildProducerState: the newest snapshot, and the batches from there to `log_end`."""
        bases = self.segments.order
        to_snapshot = {*bases[-2:], log_end}
        producers.truncate_and_reload(log_start, log_end)
        if log_end > max(producers.map_end, 0):
            floor = bisect_right(bases, log_end) - 1
            for number in range(max(0, bisect_right(bases, producers.map_end) - 1), bisect_left(bases, log_end)):
                segment = self.segments[bases[number]]
                start = max(segment.base, producers.map_end, log_start)
                producers.map_end = start
                if segment.base in to_snapshot:
                    producers.take_snapshot()
                try:
                    self._add_from(producers, segment, start, log_end if number == floor else None)
                except (CorruptRecord, UncaughtReadError) as problem:
                    self._failed(problem, segment)
        producers.map_end = log_end
        producers.take_snapshot()

    def _add_from(self, producers: ProducerStateManager, segment: LogSegment, start: int, log_end: int | None) -> None:
        proved = segment.proved
        if producers.twofold or (proved is not None and proved.valid_bytes not in (None, segment.size)):
            proved = None
        if proved is not None and (start in (segment.base, proved.next_offset) or proved.transactions is not None):
            if proved.wrappers:
                # Of compressed messages only what is inside says where they begin.
                self._index_proved(segment)
                if log_end is not None:
                    self._translate(segment, log_end)
                self._translate(segment, start)
            if start < proved.next_offset:
                producers.skip(segment, proved)
            return
        producers.catch_up()
        stop = None if log_end is None else self._translate(segment, log_end)
        position = self._translate(segment, start)
        if position is not None:
            stop = segment.size if stop is None else stop
            if stop < position:
                raise UncaughtReadError("IllegalArgumentException", position, "backwards")
            self.add(producers, segment, position, stop)

    def _index_proved(self, segment: LogSegment) -> None:
        """The offset index as `replay` makes it, of a segment that needs no proof."""
        if segment.indexed:
            return
        segment.clear_index()
        indexed = 0
        for batch in segment.file.batches(0, segment.size):
            if batch.position - indexed > self.start.index_interval_bytes:
                segment.offsets.append(segment.file.last_offset(batch))
                segment.positions.append(batch.position)
                indexed = batch.position

    def _translate(self, segment: LogSegment, offset: int) -> int | None:
        """LogSegment.translateOffset: the position of the first batch that holds the offset or is above it."""
        if not segment.indexed and segment.proved is None:
            self._load_index(segment, file_name(segment.base, ".index"))
        file = segment.file
        previous: FileChannelRecordBatch | None = None
        for batch in file.batches(segment.lookup(offset), segment.size):
            first = file.first_offset(batch)
            if first >= offset:
                if first > offset and previous is not None and file.last_offset(previous) >= offset:
                    return previous.position
                return batch.position
            previous = batch
        return previous.position if previous is not None and file.last_offset(previous) >= offset else None

    def end_of(self, segment: LogSegment) -> int:
        try:
            return self.next_offset(segment)
        except (CorruptRecord, UncaughtReadError) as problem:
            self._failed(problem, segment)
            return segment.base

    def next_offset(self, segment: LogSegment) -> int:
        """LogSegment.readNextOffset: behind the last batch of those from the last index entry on. Raises Corrupt, Refused."""
        if segment.proved is not None:
            if not segment.proved.wrappers:
                return segment.proved.next_offset
            self._index_proved(segment)
        position = self._translate(segment, segment.offsets[-1] if segment.offsets else segment.base)
        if position is None:
            return segment.base
        last = deque(segment.file.batches(position, segment.size), maxlen=1)
        return wrapped(segment.file.last_offset(last[0]) + 1, 64) if last else segment.base

    def _wipe(self, segment: LogSegment) -> int:
        """LogSegment.truncateTo the base offset, after an index refused an entry: how many bytes go, as a rule all."""
        if segment.held.origin:
            self.wiped.add(segment.held.origin)
        try:
            position = self._translate(segment, segment.base)
        except (CorruptRecord, UncaughtReadError) as problem:
            self._failed(problem, segment)
            position = 0
        segment.clear_index()
        size = segment.size
        if position is not None:
            self._resize(segment, position)
        return size - segment.size

    # ---- overflow

    def _split(self, segment: LogSegment) -> None:
        """LocalLog.splitOverflowedSegment; where that fails the segment is taken as it is."""
        try:
            following = self.next_offset(segment)
            if following <= segment.base or fits(following - 1, segment.base):
                raise UncaughtReadError("IllegalArgumentException", None, "split")
            parts = self._parts(segment)
        except (CorruptRecord, UncaughtReadError) as problem:
            self._failed(problem, segment)
            self.stuck.add(segment.base)
            return
        bases = [base for base, _, _ in parts]
        held = segment.held
        if held.origin:
            earlier = set(self.split.get(held.origin, ()))
            self.split[held.origin] = tuple(sorted(earlier - {segment.base} | set(bases)))
        known = segment.base in self.segments
        if known:
            for suffix in (".log", *INDEX_SUFFIXES):
                self.files.pop(file_name(segment.base, suffix), None)
            if segment.base not in bases:
                self.delete(file_name(segment.base, ".snapshot"))
            del self.segments[segment.base]
        for base, start, size in sorted(parts):
            name = file_name(base, ".log")
            self.files[name] = FileRange(held.origin, held.start + start, size)
            self.files[file_name(base, ".index")] = self.files[file_name(base, ".timeindex")] = NEW
            self.segments[base] = self.segment(name, base)
        if known and segment.base in bases and segment.base != min(bases):
            del self.segments[segment.base]  # the loader forgets the new one with the old

    def _parts(self, segment: LogSegment) -> list[tuple[int, int, int]]:
        """Base offset, position and size of the new segments. Raises Corrupt, Refused."""
        file, parts, position = segment.file, list[tuple[int, int, int]](), 0
        while position < segment.size:
            first = next(file.batches(position, segment.size), None)
            if first is None:
                raise UncaughtReadError("NoSuchElementException", position, "split")
            base = file.first_offset(first)
            if any(base == other for other, _, _ in parts):
                raise UncaughtReadError("NoSuchFileException", position, "split")
            size = self._copied(file, base, position)
            if size == 0:
                raise UncaughtReadError("IllegalStateException", position, "split")
            parts.append((base, position, size))
            position += size
        return parts

    def _copied(self, file: FileRecords, base: int, start: int) -> int:
        """LogSegment.appendFromFile: the bytes of the batches from `start` on that a segment with this base can hold."""
        since, largest, largest_offset, last_indexed = 0, -1, base, None
        times, position = TimeIndex(), start
        try:
            for batch in file.batches(start, file.size):
                last = file.last_offset(batch)
                if not fits(last, base):
                    break
                if not 0 <= batch.magic <= 2:
                    raise CorruptRecord(batch.position)
                timestamp = file.timestamp(batch)
                if timestamp > largest:
                    largest, largest_offset = timestamp, last
                if since > self.start.index_interval_bytes:
                    if last_indexed is not None and last <= last_indexed:
                        raise InvalidOffset
                    times.append(largest, largest_offset)
                    last_indexed, since = last, 0
                since += batch.total
                position += batch.total
            times.append(largest, largest_offset)
        except InvalidOffset:
            raise UncaughtReadError("InvalidOffsetException", position, "split") from None
        return position - start
