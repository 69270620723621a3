"""Rebuilds the companions of a log from it: byte for byte what Kafka 4.3 leaves after a recovery and a clean stop.

The flow is that of LogLoader.recoverSegment and UnifiedLog.rebuildProducerState, here with all that a producer snapshot
holds. The kernel walks valid segments, at the speed of a verify. A segment that is not valid, or of which the kernel
cannot tell all, is walked batch by batch as the broker's own reader does. A segment whose indexes on disk already hold
what a rebuild would write is not walked.

Sources: LogSegment.recover, OffsetIndex, TimeIndex, TransactionIndex and ProducerStateManager of Kafka 4.3.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Final

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.broker.log_segment import InvalidOffset, LogSegment, LogSegmentOffsetOverflow, LogSegments, TimeIndex
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.producer_entry_map import ProducerEntryMap, entries_in, snapshot_of
from kdump.broker.producer_state_manager import ProducerSnapshots, ProducerStateManager
from kdump.broker.rebuild_request import PlannedSegment, RebuildRequest
from kdump.broker.result import DirectoryState, FileRange
from kdump.broker.unified_log import load_producers_from_segment, rebuild_producer_state
from kdump.errors import SourceError, reason
from kdump.format import index
from kdump.format.batch import wrapped
from kdump.format.naming import INDEX_SUFFIXES, number_of, segment_file_name
from kdump.kernel import producers as kernel
from kdump.kernel.crc import crc32c
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import unexpired
from kdump.kernel.scan import BATCH_COLUMNS, SCAN_DAMAGED, SCAN_FULL, SCAN_NEED, SUSPECTS, Scanner
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.pieces import PiecesSource, open_pieces
from kdump.storage.source import Source, reader_of

Companion = tuple[str, bytes | None]
_BUFFER_BYTES: Final = 256 << 10
_KEPT_SNAPSHOT_BYTES: Final = 16 << 20
"""So many bytes of rebuilt snapshots stay in memory, to begin with them."""
_KEPT_EVENT_BYTES: Final = 16 << 20
"""So many bytes of what producers wrote stay in memory while a segment is copied."""
_WIDTH: Final = len(BATCH_COLUMNS)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_SUSPECT_BITS: Final = sum(
    1 << SUSPECTS.index(code) for code in ("offset/range", "offset/backwards", "control/structure")
)


def rebuild_companions(
    request: RebuildRequest,
    on_bytes: Callable[[int], object] | None = None,
    scans: "Mapping[str, SegmentScan] | None" = None,
) -> Iterator[Companion]:
    """Name and bytes of every file that is wanted, in log order; None for a file that must not be there.

    That is a transaction index without aborted transactions, unless there was one before: then it becomes empty, as a
    broker leaves it. `on_bytes` is called with the number of bytes of logs that were read. `scans` are those of valid
    segments of the request, by the name of the log; these are not read. Raises SourceError.
    """
    if request.names:
        rebuilder = _CompanionBuilder(request, on_bytes or _ignore_bytes, scans or {})
        try:
            yield from rebuilder.companions(request.names)
        finally:
            rebuilder.close()


def _ignore_bytes(count: int) -> None:
    """Nothing shows the progress."""


# ---- one segment, by the kernel


class IndexLimits(NamedTuple):
    """The settings of the indexes of a segment."""

    index_interval_bytes: int
    segment_index_bytes: int


class SegmentIndexes(NamedTuple):
    """The indexes of a segment from a scan.

    `state_end` follows the last batch of magic 2, `next_offset` the last batch. Without one they are the base offset.
    """

    offset_index: bytes
    time_index: bytes
    state_end: int
    next_offset: int


def scan_segment(
    source: PiecesSource, base_offset: int, limits: IndexLimits, on_events: Callable[[bytes], None]
) -> SegmentIndexes | None:
    """Walk over the headers of a valid segment with the kernel; `on_events` is called with the events of its producers.

    None where the kernel does not see all that a broker does, or something is not a batch. Then the events must be
    discarded (kdump.kernel.producers). Raises SourceError.
    """
    if base_offset < 0:
        return None
    runs = kernel.Runs(exact=True)
    indexes = IndexTracker(base_offset, limits.index_interval_bytes)
    indexes.build(limits.segment_index_bytes)
    scanner = Scanner(base_offset, runs=runs, indexes=indexes)
    buffer = bytearray(_BUFFER_BYTES)
    position = 0
    for reader, origin, end in source.extents():
        while position < end:
            try:
                stopped = scanner.headers(reader, origin, buffer, position, end)
            except OSError as error:
                raise SourceError(f"{source.name}: reading at byte {position}: {reason(error)}") from None
            position = scanner.reached
            if stopped == SCAN_NEED:
                raise SourceError(f"{source.name}: ends at byte {source.size_now()}, not at {source.size}")
            if stopped == SCAN_DAMAGED or _has_suspect_batches(scanner):
                return None
            if runs.count:
                on_events(runs.take())
    seen = scanner.state()
    built = indexes.built(seen)
    if runs.odd or built is None:
        return None
    return SegmentIndexes(*built, scanner.state_end, seen.next_offset(base_offset))


class SegmentScan:
    """Walks over a valid segment as its bytes come, for what `scan_segment` finds in a file. It has `size` bytes."""

    def __init__(self, base_offset: int, size: int, limits: IndexLimits) -> None:
        self.events: list[bytes] = []
        self._base, self._size, self._position, self._rest = base_offset, size, 0, b""
        self._runs = kernel.Runs(exact=True)
        self._indexes = IndexTracker(base_offset, limits.index_interval_bytes)
        self._indexes.build(limits.segment_index_bytes)
        self._scanner = Scanner(base_offset, runs=self._runs, indexes=self._indexes)
        self._fails, self._event_bytes = False, 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        if self._fails:
            return
        buffer, at, scanner = self._rest + data, 0, self._scanner
        stopped = SCAN_FULL
        while stopped == SCAN_FULL:
            stopped = scanner.scan(buffer, at, len(buffer), self._position, self._size, self._size)
            self._position += scanner.stop - at
            at = scanner.stop
            if self._runs.count:
                self.events.append(self._runs.take())
                self._event_bytes += len(self.events[-1])
            self._fails |= stopped == SCAN_DAMAGED or _has_suspect_batches(scanner)
        self._rest = buffer[at:]
        if self._fails or self._event_bytes > _KEPT_EVENT_BYTES:
            self._fails, self._rest = True, b""
            self.events.clear()

    def result(self) -> SegmentIndexes | None:
        """What was built; None where the kernel does not see all that a broker does, or bytes are missing.

        The events of the producers are those since the beginning.
        """
        if self._fails or self._position != self._size:
            return None
        seen = self._scanner.state()
        built = self._indexes.built(seen)
        if self._runs.odd or built is None:
            return None
        return SegmentIndexes(*built, self._scanner.state_end, seen.next_offset(self._base))


def _entries(path: str, entry_size: int, size: int, checksum: int) -> bytes | None:
    """The entries of an index on disk; None where they do not have this size in bytes and this CRC-32C."""
    try:
        with open_source(path) as source:
            read = reader_of(source)
            if index.index_extent(read, source.size, entry_size).entries != size:
                return None
            data = read(0, size)
    except SourceError:
        return None
    return data if len(data) == size and crc32c(data) == checksum else None


def _has_suspect_batches(scanner: Scanner) -> bool:
    rows = scanner.rows
    return any(rows[cell] & _SUSPECT_BITS for cell in range(_SUSPECT, scanner.count * _WIDTH, _WIDTH))


# ---- all companions of a log


class _CompanionBuilder:
    """A load of the segments as they will be, with the companions that it writes."""

    def __init__(
        self, request: RebuildRequest, on_bytes: Callable[[int], object], scans: Mapping[str, SegmentScan]
    ) -> None:
        self._request, self._scans = request, scans
        self._on_bytes = on_bytes
        self._limits = IndexLimits(request.index_interval_bytes, request.segment_index_bytes)
        self._now_ms = int(time.time() * 1000) if request.now_ms is None else request.now_ms
        self._logs = {segment_file_name(log.base_offset, ".log"): log for log in request.segments}
        origins = Counter(origin for log in request.segments for origin in {piece.name for piece in log.pieces})
        self._split_origins = {origin for origin, count in origins.items() if count > 1}
        self._state = self._directory_state()
        self._files = PartitionFiles(self._state)
        self._segments = LogSegments(self._files)
        self._epochs = LeaderEpochFileCache()
        self._last_indexed: LogSegment | None = None
        self._state_ends: dict[int, int] = {}  # of segments that were scanned
        self._snapshots = ProducerSnapshots(self._files, entries_in)
        self._snapshots.load_names()
        self._unchanged_snapshots = {
            name: offset for offset, name in self._snapshots.names.items() if name not in request.after
        }
        for log in request.segments:
            self._segments.add(log.base_offset)

    def close(self) -> None:
        self._files.close()

    def _directory_state(self) -> DirectoryState:
        request = self._request
        sizes = {name: log.size for name, log in self._logs.items()}
        sizes.update((name, request.files[name].size) for name in self._usable_snapshots())
        first = min((log.base_offset for log in request.segments), default=0)
        # The checkpoint has the log start offset of a partition only where it is above its first base offset
        # (LogManager.checkpointLogStartOffsets).
        log_start = request.log_start_offset or 0
        return DirectoryState(
            sizes,
            self._open,
            log_start_offset=log_start if log_start > first else 0,
            index_interval_bytes=request.index_interval_bytes,
        )

    def _open(self, name: str) -> Source:
        log, path = self._logs.get(name), self._request.path
        return open_source(os.path.join(path, name)) if log is None else open_pieces(path, log.pieces, name)

    def _usable_snapshots(self) -> Iterator[str]:
        """The snapshots that a broker may begin with: those that stay, and those below all that is walked."""
        request = self._request
        walked = min((log.base_offset for log in request.segments if log.rebuilds_companions), default=1 << 63)
        for name in request.files:
            offset = number_of(name) if name.endswith(".snapshot") else None
            if offset is not None and (name not in request.after or (not request.after[name] and offset <= walked)):
                yield name

    # ---- the flow

    def companions(self, wanted: Set[str]) -> Iterator[Companion]:
        """See `rebuild_companions`."""
        missing = {
            number: name for name in wanted if name.endswith(".snapshot") and (number := number_of(name)) is not None
        }
        logs = self._request.segments
        for number, log in enumerate(logs):
            base, end = log.base_offset, logs[number + 1].base_offset if number + 1 < len(logs) else 1 << 63
            names = [segment_file_name(base, suffix) for suffix in INDEX_SUFFIXES]
            if names[-1] in wanted or (log.rebuilds_companions and any(base <= offset <= end for offset in missing)):
                yield from self._finished_snapshots(base, missing)
                indexes = self._recover_segment(self._segments[base])
            elif not wanted.isdisjoint(names):
                indexes = self._build_indexes(self._segments[base])
            else:
                continue
            for name, data in zip(names, indexes, strict=True):
                if name in wanted:
                    yield name, data if data or name != names[-1] or self._is_on_disk(name, log) else None
        yield from self._remaining_snapshots(missing)

    def _is_on_disk(self, name: str, log: PlannedSegment) -> bool:
        """Whether a broker finds this transaction index beside the log, and so empties it.

        It does not find it without the log, nor where it splits or replaces the log.
        """
        files, log_name = self._request.files, segment_file_name(log.base_offset, ".log")
        origin = log.pieces[0].name if log.pieces else log_name
        if origin == f"{log_name}.swap":
            return f"{name}.swap" in files
        if name not in files or log_name not in files or origin != log_name or origin in self._split_origins:
            return False
        # A log that ends before its log start offset is deleted, and an empty segment takes its place.
        deleted = files.keys() - self._logs.keys() if not log.pieces else ()
        return all((number_of(other) or 0) >= log.base_offset for other in deleted if other.endswith(".log"))

    def _finished_snapshots(self, base: int, missing: dict[int, str]) -> Iterator[Companion]:
        """The rebuilt snapshots up to this offset, which are not written again. Early ones leave the memory."""
        snapshots = self._snapshots
        finished = [
            name
            for offset in snapshots.names.order
            if offset <= base and (name := snapshots.names[offset]) in snapshots.states
        ]
        for offset in [offset for offset, name in missing.items() if name in finished]:
            yield missing[offset], snapshot_of(snapshots.states[missing.pop(offset)])
        surplus = sum(len(snapshots.states[name]) for name in finished) - _KEPT_SNAPSHOT_BYTES
        for name in finished[:-1]:
            if surplus <= 0:
                break
            surplus -= len(snapshots.states[name])
            snapshots.delete(name)

    def _remaining_snapshots(self, missing: dict[int, str]) -> Iterator[Companion]:
        """The snapshots that a broker writes when all segments are loaded, and those that it would not write."""
        snapshots, log_end = self._snapshots, self._request.log_end_offset
        start = max([self._state.log_start_offset, *self._segments.order[:1]])
        if log_end is not None and not snapshots.states.keys() >= set(missing.values()):
            snapshots.remove_stray(self._segments.order)
            self._rebuild_producer_state(start, log_end)
        for offset, name in sorted(missing.items()):
            if segment_file_name(offset, ".snapshot") not in snapshots.states:
                producers = self._rebuild_producer_state(min(start, offset - 1), offset).producers
                snapshots.write(offset, producers.snapshot())
            yield name, snapshot_of(snapshots.states[segment_file_name(offset, ".snapshot")])

    # ---- producers

    def _rebuild_producer_state(self, log_start: int, log_end: int) -> "_RebuildStateManager":
        """UnifiedLog.rebuildProducerState with a new ProducerStateManager."""
        # An earlier truncateAndReload may have deleted snapshots that stay in the directory. They are valid.
        for name, offset in self._unchanged_snapshots.items():
            if name not in self._files.ranges:
                self._files.ranges[name] = FileRange(name, 0, self._state.files[name])
                self._snapshots.names[offset] = name
        manager = _RebuildStateManager(self._snapshots, ProducerEntryMap(self._unexpired))
        rebuild_producer_state(manager, self._segments, log_start, log_end, self._load_producers)
        return manager

    def _unexpired(self, entries: bytes) -> bytes:
        """Without the producers that were idle for too long (ProducerStateManager.isProducerExpired)."""
        return unexpired(entries, self._now_ms, self._request.producer_id_expiration_ms)

    def _load_producers(
        self, manager: "_RebuildStateManager", segment: LogSegment, start: int, log_end: int | None
    ) -> None:
        """Add the batches of a segment from an offset on. Raises CorruptRecord, UncaughtReadError."""
        producers = manager.producers
        if start >= self._state_ends.get(segment.base_offset, 1 << 63):
            return
        if start <= segment.base_offset:
            scanned = self._scan(segment, producers.replay)
            if scanned is not None and (log_end is None or scanned.next_offset <= log_end):
                self._state_ends[segment.base_offset] = scanned.state_end
                producers.finish_load()
                return
            producers.discard_events()
        producers.begin_batches()
        load_producers_from_segment(producers, segment, start, log_end)
        producers.finish_load()

    # ---- one segment

    def _recover_segment(self, segment: LogSegment) -> tuple[bytes, bytes, bytes]:
        """The indexes of a segment (LogLoader.recoverSegment)."""
        manager = self._rebuild_producer_state(self._state.log_start_offset, segment.base_offset)
        producers = manager.producers
        scanned = self._scan(segment, producers.replay)
        if scanned is not None:
            producers.take_aborted()
            manager.map_end_offset = self._state_ends[segment.base_offset] = scanned.state_end
            indexes = scanned[:2]
        else:
            producers.discard_events()
            producers.begin_batches()
            indexes = self._recover_batches(segment, manager)
        producers.finish_recovery()
        self._on_bytes(segment.size)
        manager.take_snapshot()
        return *indexes, index.build_transaction_index(producers.aborted)

    def _build_indexes(self, segment: LogSegment) -> tuple[bytes, bytes, bytes]:
        """The offset index and the time index, which do not depend on producers."""
        scanned = self._scan(segment, _ignore_events)
        if scanned is None:
            manager = _RebuildStateManager(self._snapshots, ProducerEntryMap(self._unexpired))
            indexes = self._recover_batches(segment, manager)
        else:
            indexes = scanned[:2]
        self._on_bytes(segment.size)
        return *indexes, b""

    def _scan(self, segment: LogSegment, on_events: Callable[[bytes], None]) -> SegmentIndexes | None:
        source = self._files.source(segment.name)
        if not self._logs[segment.name].valid or not isinstance(source, PiecesSource):
            return None
        scan = self._scans.get(segment.name)
        if scan is not None and (found := scan.result()) is not None:
            for events in scan.events:
                on_events(events)
            return found
        on_disk = self._indexes_on_disk(segment, source)
        return on_disk or scan_segment(source, segment.base_offset, self._limits, on_events)

    def _indexes_on_disk(self, segment: LogSegment, source: Source) -> SegmentIndexes | None:
        """The indexes on disk, where verify found in them what a scan would build.

        Verify says so only of a segment without producers, so there are no events to replay.
        """
        log, limits = self._logs[segment.name], self._limits
        known = log.index_checksums
        if known is None or not known.size == log.size == source.size_now():
            return None
        largest = max(known.offset_index[0], known.time_index[0])
        if limits.index_interval_bytes != INDEX_INTERVAL_BYTES or largest > limits.segment_index_bytes:
            return None
        stem = os.path.join(self._request.path, segment.name.removesuffix(".log"))
        offsets = _entries(f"{stem}.index", index.OFFSET_ENTRY.size, *known.offset_index)
        times = _entries(f"{stem}.timeindex", index.TIME_ENTRY.size, *known.time_index)
        if offsets is None or times is None:
            return None
        return SegmentIndexes(offsets, times, known.state_end, known.next_offset)

    def _recover_batches(self, segment: LogSegment, manager: "_RebuildStateManager") -> tuple[bytes, bytes]:
        """Both indexes of a segment, batch by batch; where the broker would not keep the segment, up to there."""
        time_index = TimeIndex()
        if self._logs[segment.name].is_verified:
            segment.records = segment.records.verified()
        with suppress(InvalidOffset, LogSegmentOffsetOverflow):
            segment.recover(manager, self._epochs, time_index)
        limit, base = self._limits.segment_index_bytes, segment.base_offset
        offsets, positions = segment.offset_index.offsets, segment.offset_index.positions
        count = min(len(offsets), limit // index.OFFSET_ENTRY.size)
        entries = zip(offsets[:count], positions[:count], strict=True)
        offset_index = b"".join(
            index.OFFSET_ENTRY.pack(wrapped(offset - base), position) for offset, position in entries
        )
        times = list(zip(time_index.timestamps, time_index.offsets, strict=True))
        count = limit // index.TIME_ENTRY.size
        if len(times) > count:
            times = [*times[: count - 1], times[-1]] if count else []
        # Where offsets go back, the producers of the next segment depend on the index of this one. Older ones can go.
        if self._last_indexed is not None and self._last_indexed is not segment:
            self._last_indexed.offset_index.reset()
        self._last_indexed = segment
        return offset_index, b"".join(
            index.TIME_ENTRY.pack(timestamp, wrapped(offset - base)) for timestamp, offset in times
        )


class _RebuildStateManager(ProducerStateManager[bytes]):
    """The ProducerStateManager of a rebuild."""

    producers: ProducerEntryMap


def _ignore_events(events: bytes) -> None:
    """The producers are not needed."""
