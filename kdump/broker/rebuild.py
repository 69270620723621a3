"""The companions of a log, made anew from it: byte for byte what Kafka 4.3 leaves after a start that recovers the segments and a clean stop.

The flow is that of kdump.broker.log_loader (LogLoader.recoverSegment, UnifiedLog.rebuildProducerState), here with all that a broker remembers of producers. A segment that
is known to be sound is walked by the kernel, at the speed of a verify; any other, and one of which the kernel cannot tell all, batch by batch as the broker's own reader takes it.
One beside which verify found what would be made is not walked at all.

Sources: LogSegment.recover, OffsetIndex, TimeIndex, TransactionIndex, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry of Kafka 4.3.
"""

import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from typing import Final, NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.file_records import FileChannelRecordBatch, FileRecords
from kdump.broker.load_state import InvalidOffset, LogSegment, LogSegmentOffsetOverflow, ProducerStateManager
from kdump.broker.log_loader import LogLoader
from kdump.broker.rebuild_request import PlannedSegment, Rebuild
from kdump.broker.result import DirectoryState, FileRange
from kdump.errors import SourceError, reason
from kdump.format import index, snapshot
from kdump.format.batch import CONTROL, TRANSACTIONAL, next_sequence, wrapped
from kdump.format.index import AbortedTransaction
from kdump.format.naming import INDEX_SUFFIXES, MAX_COMPANION_BYTES, file_name, number_of
from kdump.format.snapshot import ENTRY, HEADER_SIZE, ProducerEntry
from kdump.kernel import producers as kernel
from kdump.kernel.crc import crc32c
from kdump.kernel.scan import BATCH_COLUMNS, SCAN_DAMAGED, SCAN_NEED, SUSPECTS, Scanner
from kdump.storage.pieces import opened
from kdump.storage.source import FileSource, PiecesSource, Source, reader

Companion = tuple[str, bytes | None]
_EVENT: Final = struct.Struct(kernel.EVENT)
_BUFFER_BYTES: Final = 256 << 10
_KEPT_BYTES: Final = 16 << 20  # of snapshots that were made, to begin from
_WIDTH: Final = len(BATCH_COLUMNS)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_STUMBLES: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/range", "offset/backwards", "control/structure"))


def make(request: Rebuild, on_bytes: Callable[[int], None] | None = None) -> Iterator[Companion]:
    """Name and bytes of every file that is wanted, in log order; None for one that is not to be there.

    That is a transaction index without aborted transactions that was not there before; one that was becomes empty, as a broker leaves it. `on_bytes` is told the
    bytes of logs that were read. Raises SourceError.
    """
    if request.names:
        rebuilder = _Rebuilder(request, on_bytes or _nobody)
        try:
            yield from rebuilder.make(request.names)
        finally:
            rebuilder.close()


def _nobody(count: int) -> None:
    """Is told of bytes."""


# ---- one segment, by the kernel


class IndexLimits(NamedTuple):
    """What the options say about the indexes of a segment."""

    index_interval_bytes: int
    segment_index_bytes: int


class SegmentIndexes(NamedTuple):
    """What a scan makes of a segment. `state_end` follows its last batch of magic 2, `next_offset` its last batch, or they are its base offset."""

    offset_index: bytes
    time_index: bytes
    state_end: int
    next_offset: int


def scan_segment(
    source: PiecesSource, base_offset: int, limits: IndexLimits, drain: Callable[[bytes], None]
) -> SegmentIndexes | None:
    """Walk over a segment that was proved with the kernel, by the headers; `drain` is given the events of producers (kdump.kernel.producers).

    None where the kernel does not see all that a broker does, or something is no batch; the events are then good for nothing. Raises SourceError.
    """
    if base_offset < 0:
        return None
    runs = kernel.Runs(exact=True)
    scanner = Scanner(base_offset, runs=runs)
    scanner.record(limits.index_interval_bytes, limits.segment_index_bytes)
    buffer = bytearray(_BUFFER_BYTES)
    position = 0
    for descriptor, origin, end in source.extents():
        while position < end:
            try:
                stopped = scanner.headers(descriptor, origin, buffer, position, end)
            except OSError as error:
                raise SourceError(f"{source.name}: reading at byte {position}: {reason(error)}") from None
            position = scanner.reached
            if stopped == SCAN_NEED:
                raise SourceError(f"{source.name}: ends at byte {source.size_now()}, not at {source.size}")
            if stopped == SCAN_DAMAGED or _stumbles(scanner):
                return None
            if runs.count:
                drain(runs.take())
    made = scanner.recorded()
    if runs.odd or made is None:
        return None
    seen = scanner.state()
    return SegmentIndexes(*made, scanner.state_end, seen.next_offset(base_offset))


def _entries(path: str, entry_size: int, size: int, checksum: int) -> bytes | None:
    """The entries of an index as it is there; None where they are not those of that many bytes with that CRC-32C."""
    try:
        with FileSource(path) as source:
            read = reader(source)
            if index.measure(read, source.size, entry_size).entries != size:
                return None
            data = read(0, size)
    except SourceError:
        return None
    return data if len(data) == size and crc32c(data) == checksum else None


def _stumbles(scanner: Scanner) -> bool:
    rows = scanner.rows
    return any(rows[cell] & _STUMBLES for cell in range(_SUSPECT, scanner.count * _WIDTH, _WIDTH))


# ---- what a broker remembers of producers


class _State(ProducerStateManager):
    """ProducerStateManager with all that a snapshot holds: `body` are its entries, packed, in the order in which the producers became known."""

    def __init__(self, rebuilder: "_Rebuilder") -> None:
        super().__init__(rebuilder)
        self._rebuilder = rebuilder
        self.body = b""
        self.aborted: list[AbortedTransaction] = []
        self._machine: kernel.Producers | None = None
        self._aborting: tuple[int, int] | None = None

    # ---- snapshots

    def _load(self, log_start: int) -> None:
        self.body = b""
        while self._snapshots:
            offset = self._snapshots.order[-1]
            body = self._rebuilder.entries(self._snapshots[offset])
            if body is not None:
                self.body = self._rebuilder.unexpired(body)
                self.map_end = self.snapshot_end = offset
                return
            self._rebuilder.delete(self._snapshots[offset])
        self.map_end = self.snapshot_end = log_start

    def take_snapshot(self) -> None:
        if self.map_end > self.snapshot_end:
            self._rebuilder.keep(self.map_end, self.body)
            self.snapshot_end = self.map_end

    # ---- events

    def replay(self, events: bytes) -> None:
        if self._machine is None:
            self._machine = _machine(self.body)
        self._machine.replay(events)

    def settle(self) -> None:
        """Take over what came of events that a broker applies one by one (LogSegment.recover)."""
        if self._machine is not None:
            self.body = self._machine.entries()
            self._machine = None

    def settle_at_once(self) -> None:
        """The same of events that it collects and then applies (UnifiedLog.loadProducersFromRecords)."""
        if self._machine is None:
            return
        before, machine = self.body, self._machine
        self.settle()
        if "producer/epoch" in machine.take()[1]:
            self.body = _with_older_batches(before, self.body)
        # They are collected by HashMap.computeIfAbsent, which puts what is new before the others of its bucket.
        self.body = kernel.backwards(self.body, len(before))
        self.aborted = []  # no index is told of them

    def take_aborted(self) -> None:
        if self._machine is not None:
            self.aborted = [AbortedTransaction(0, *fields[:4]) for fields in self._machine.aborted()]

    def forget(self) -> None:
        """The events were good for nothing."""
        self._machine = None

    # ---- batch by batch

    def begin(self) -> None:
        """Before batches are given to `apply`."""
        self._machine = _machine(self.body)
        self._set({producer: first for producer, _, first, *_ in self._machine.open()})

    def apply(
        self, file: FileRecords, batch: FileChannelRecordBatch, header: tuple[int, ...], begun: dict[int, int]
    ) -> tuple[int, bool] | None:
        attributes, delta, timestamp, producer, epoch, sequence = *header[5:7], *header[8:12]
        if not attributes & CONTROL:
            last = sequence if sequence == -1 else next_sequence(sequence, delta)
            self._event(
                kernel.DATA, batch, producer, epoch, timestamp, sequence, last, delta, attributes & TRANSACTIONAL
            )
            return super().apply(file, batch, header, begun)
        marker = file.marker(batch, header)
        if marker is None:
            self._event(kernel.EMPTIED, batch, producer, epoch, timestamp, -1)
            return None
        kind = kernel.ABORT if marker.aborts else kernel.COMMIT
        self._event(kind, batch, producer, epoch, marker.timestamp, marker.coordinator_epoch)
        opened = self.open.pop(producer, None)
        if opened is None:
            return None
        self._aborting = (producer, batch.offset) if marker.aborts else None
        return opened, marker.aborts

    def _event(
        self,
        kind: int,
        batch: FileChannelRecordBatch,
        producer: int,
        epoch: int,
        timestamp: int,
        sequence: int,
        last_sequence: int = -1,
        delta: int = 0,
        transactional: int = 0,
    ) -> None:
        last_offset = wrapped(batch.offset + delta, 64)
        flags = kernel.TRANSACTIONAL if transactional else 0
        event = (producer, batch.position, batch.offset, last_offset, timestamp, timestamp, 0, sequence, last_sequence)
        self.replay(_EVENT.pack(*event, delta, epoch, kind, flags, 1))

    def complete(self, first: int, position: int) -> None:
        if self._aborting is not None:
            producer, last = self._aborting
            stable = min((offset for offset, other in self.begun.items() if other != producer), default=last + 1)
            self.aborted.append(AbortedTransaction(0, producer, first, last, stable))
        super().complete(first, position)


def _machine(body: bytes) -> kernel.Producers:
    machine = kernel.Producers(False, True)
    machine.load(body)
    return machine


def _with_older_batches(before: bytes, body: bytes) -> bytes:
    """Where the epoch of a producer went away and came back at once, without a batch, the one from before is still known."""
    known = {entry.producer_id: entry for entry in map(ProducerEntry._make, ENTRY.iter_unpack(before))}
    entries = []
    for entry in map(ProducerEntry._make, ENTRY.iter_unpack(body)):
        older = known.get(entry.producer_id)
        if older is not None and not entry.has_batch and older.producer_epoch == entry.producer_epoch:
            entry = entry._replace(
                last_sequence=older.last_sequence, last_offset=older.last_offset, offset_delta=older.offset_delta
            )
        entries.append(ENTRY.pack(*entry))
    return b"".join(entries)


# ---- all of them


class _Rebuilder(LogLoader):
    """A load of the segments of a plan as they will be, with what it writes beside them."""

    def __init__(self, request: Rebuild, on_bytes: Callable[[int], None]) -> None:
        self._request = request
        self._on_bytes = on_bytes
        self._limits = IndexLimits(request.index_interval_bytes, request.segment_index_bytes)
        self._now_ms = int(time.time() * 1000) if request.now_ms is None else request.now_ms
        self._logs = {file_name(log.base_offset, ".log"): log for log in request.segments}
        origins = Counter(origin for log in request.segments for origin in {piece.name for piece in log.pieces})
        self._parted = {origin for origin, count in origins.items() if count > 1}
        sizes = {name: log.size for name, log in self._logs.items()}
        sizes.update((name, request.files[name].size) for name in self._usable())
        first = min((log.base_offset for log in request.segments), default=0)
        # A checkpoint has the log start offset of a partition only where it is not its first offset (LogManager.checkpointLogStartOffsets).
        log_start = request.log_start_offset or 0
        super().__init__(
            DirectoryState(
                sizes,
                self._open,
                log_start_offset=log_start if log_start > first else 0,
                index_interval_bytes=request.index_interval_bytes,
            )
        )
        self._indexed: LogSegment | None = None
        self._made: dict[str, bytes] = {}
        self._state_ends: dict[int, int] = {}  # of segments that were scanned
        self._list_snapshots()
        self._staying = {name: offset for offset, name in self.snapshots.items() if name not in request.after}
        for log in request.segments:
            self._make(log.base_offset)

    def _open(self, name: str) -> Source:
        log = self._logs.get(name)
        return (
            FileSource(os.path.join(self._request.path, name))
            if log is None
            else opened(self._request.path, log.pieces, name)
        )

    def _usable(self) -> Iterator[str]:
        """The snapshots that a broker may begin from: those that stay, and those below all that is walked."""
        request = self._request
        walked = min((log.base_offset for log in request.segments if log.walked), default=1 << 63)
        for name in request.files:
            offset = number_of(name) if name.endswith(".snapshot") else None
            if offset is not None and (name not in request.after or (not request.after[name] and offset <= walked)):
                yield name

    # ---- snapshots

    def entries(self, name: str) -> bytes | None:
        """The entries of a snapshot; None when Kafka's reader refuses it."""
        made = self._made.get(name)
        data = self._content(name, MAX_COMPANION_BYTES) if made is None else made
        try:
            found = snapshot.look(data)
        except snapshot.SnapshotError:
            return None
        return None if found.problem is not None else data[HEADER_SIZE : found.end]

    def unexpired(self, body: bytes) -> bytes:
        """Without the producers that were idle for too long (ProducerStateManager.isProducerExpired)."""
        kept = kernel.unexpired(body, self._now_ms, self._request.producer_id_expiration_ms)
        return _machine(kept).entries()  # one of each producer, and one form for what is not known

    def keep(self, offset: int, body: bytes) -> None:
        """Write a snapshot."""
        name = file_name(offset, ".snapshot")
        self._create(name)
        self._made[name] = _snapshot(body)
        self.snapshots[offset] = name

    def delete(self, name: str) -> None:
        self._made.pop(name, None)
        super().delete(name)

    # ---- the flow

    def make(self, wanted: Set[str]) -> Iterator[Companion]:
        left = {
            number: name for name in wanted if name.endswith(".snapshot") and (number := number_of(name)) is not None
        }
        logs = self._request.segments
        for number, log in enumerate(logs):
            base, end = log.base_offset, logs[number + 1].base_offset if number + 1 < len(logs) else 1 << 63
            names = [file_name(base, suffix) for suffix in INDEX_SUFFIXES]
            if names[-1] in wanted or (log.walked and any(base <= offset <= end for offset in left)):
                yield from self._below(base, left)
                made = self._recovered(self.segments[base])
            elif not wanted.isdisjoint(names):
                made = self._indexes(self.segments[base])
            else:
                continue
            for name, data in zip(names, made, strict=True):
                if name in wanted:
                    yield name, data if data or name != names[-1] or self._lay_beside(name, log) else None
        yield from self._rest(left)

    def _lay_beside(self, name: str, log: PlannedSegment) -> bool:
        """Whether a broker finds this file beside the log, and so empties it: not without the log, nor one of a log that it splits or puts another in the place of."""
        files, log_name = self._request.files, file_name(log.base_offset, ".log")
        origin = log.pieces[0].name if log.pieces else log_name
        if origin == f"{log_name}.swap":
            return f"{name}.swap" in files
        if name not in files or log_name not in files or origin != log_name or origin in self._parted:
            return False
        # A log that ends below its start goes away as a whole; an empty one takes its place.
        gone = files.keys() - self._logs.keys() if not log.pieces else ()
        return all((number_of(other) or 0) >= log.base_offset for other in gone if other.endswith(".log"))

    def _below(self, base: int, left: dict[int, str]) -> Iterator[Companion]:
        """The snapshots that were made up to here, which nobody will write again. Those that are not needed any more are forgotten."""
        held = [
            name for offset in self.snapshots.order if offset <= base and (name := self.snapshots[offset]) in self._made
        ]
        for offset in [offset for offset, name in left.items() if name in held]:
            yield left[offset], self._made[left.pop(offset)]
        spare = sum(len(self._made[name]) for name in held) - _KEPT_BYTES
        for name in held[:-1]:
            if spare <= 0:
                break
            spare -= len(self._made[name])
            self.delete(name)

    def _rest(self, left: dict[int, str]) -> Iterator[Companion]:
        """The snapshots that a broker writes when all segments are there, and those that it would not write."""
        log_end = self._request.log_end_offset
        start = max([self.start.log_start_offset, *self.segments.order[:1]])
        if log_end is not None and not self._made.keys() >= set(left.values()):
            self._remove_stray_snapshots()
            self._rebuild(self._state(), start, log_end)
        for offset, name in sorted(left.items()):
            if file_name(offset, ".snapshot") not in self._made:
                state = self._state()
                self._rebuild(state, min(start, offset - 1), offset)
                self.keep(offset, state.body)
            yield name, self._made[file_name(offset, ".snapshot")]

    def _state(self) -> _State:
        """A new ProducerStateManager. What the broker's truncateAndReload took away of the snapshots that stay is there again: they are right."""
        for name, offset in self._staying.items():
            if name not in self.files:
                self.files[name] = FileRange(name, 0, self.start.files[name])
                self.snapshots[offset] = name
        return _State(self)

    def _recovered(self, segment: LogSegment) -> tuple[bytes, bytes, bytes]:
        """LogLoader.recoverSegment."""
        state = self._state()
        self._rebuild(state, self.start.log_start_offset, segment.base)
        scanned = self._scanned(segment, state.replay)
        if scanned is not None:
            state.take_aborted()
            state.map_end = self._state_ends[segment.base] = scanned.state_end
            made = scanned[:2]
        else:
            state.forget()
            state.begin()
            made = self._walked(segment, state)
        state.settle()
        self._on_bytes(segment.size)
        state.take_snapshot()
        return *made, index.build_transaction_index(state.aborted)

    def _indexes(self, segment: LogSegment) -> tuple[bytes, bytes, bytes]:
        """Only what no producer has a part in."""
        scanned = self._scanned(segment, _no_events)
        made = self._walked(segment, _State(self)) if scanned is None else scanned[:2]
        self._on_bytes(segment.size)
        return *made, b""

    def _scanned(self, segment: LogSegment, drain: Callable[[bytes], None]) -> SegmentIndexes | None:
        source = self._source(segment.name)
        if not self._logs[segment.name].proved or not isinstance(source, PiecesSource):
            return None
        return self._indexed_already(segment, source) or scan_segment(source, segment.base, self._limits, drain)

    def _indexed_already(self, segment: LogSegment, source: Source) -> SegmentIndexes | None:
        """What a scan would make of a segment without producers whose indexes hold that: then there is nothing to be replayed either."""
        log, limits = self._logs[segment.name], self._limits
        known = log.indexed
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

    def _walked(self, segment: LogSegment, state: _State) -> tuple[bytes, bytes]:
        """Both indexes of a segment whose batches a broker's reader steps on. Where it would not keep the segment, as far as it comes."""
        with suppress(InvalidOffset, LogSegmentOffsetOverflow):
            self.replay(segment, state)
        most = self._limits.segment_index_bytes
        offsets, times, base = segment.offsets, self.times, segment.base
        kept = min(len(offsets), most // index.OFFSET_ENTRY.size)
        entries = zip(offsets[:kept], segment.positions[:kept], strict=True)
        made = b"".join(index.OFFSET_ENTRY.pack(wrapped(offset - base), position) for offset, position in entries)
        pairs = list(zip(times.timestamps, times.offsets, strict=True))
        kept = most // index.TIME_ENTRY.size
        if len(pairs) > kept:
            pairs = [*pairs[: kept - 1], pairs[-1]] if kept else []
        # Where offsets go back, what the next segment's producers are rebuilt from depends on the index of this one.
        if self._indexed is not None and self._indexed is not segment:
            self._indexed.clear_index()
        self._indexed = segment
        return made, b"".join(index.TIME_ENTRY.pack(timestamp, wrapped(offset - base)) for timestamp, offset in pairs)

    def _add_from(self, producers: ProducerStateManager, segment: LogSegment, start: int, log_end: int | None) -> None:
        """The batches of a segment from an offset on, as UnifiedLog.rebuildProducerState adds them."""
        assert isinstance(producers, _State)
        if start >= self._state_ends.get(segment.base, 1 << 63):
            return
        if start <= segment.base:
            scanned = self._scanned(segment, producers.replay)
            if scanned is not None and (log_end is None or scanned.next_offset <= log_end):
                self._state_ends[segment.base] = scanned.state_end
                producers.settle_at_once()
                return
            producers.forget()
        producers.begin()
        super()._add_from(producers, segment, start, log_end)
        producers.settle_at_once()


def _snapshot(body: bytes) -> bytes:
    return snapshot.enclose(kernel.hash_ordered(body))


def _no_events(events: bytes) -> None:
    """Producers are not asked for."""
