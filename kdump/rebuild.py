"""The companions of a log, made anew from it: byte for byte what Kafka 4.3 leaves after a start that recovers the segments and a clean stop.

The flow is that of kdump.loader (LogLoader.recoverSegment, UnifiedLog.rebuildProducerState), here with all that a broker remembers of producers. A segment that
is known to be sound is walked by the kernel, at the speed of a verify; any other, and one of which the kernel cannot tell all, batch by batch as the broker's own reader takes it.

Sources: LogSegment.recover, OffsetIndex, TimeIndex, TransactionIndex, ProducerStateManager, ProducerAppendInfo, ProducerStateEntry of Kafka 4.3.
"""

import os
import struct
import time
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.format import index, snapshot
from kdump.format.batch import CONTROL, next_sequence, wrapped
from kdump.format.index import AbortedTransaction
from kdump.format.naming import number_of
from kdump.format.snapshot import ENTRY_SIZE, HEADER_SIZE, ProducerEntry
from kdump.frames import Frames, Seen
from kdump.kernel import producers as kernel
from kdump.kernel.scan import BATCH_COLUMNS, SCAN_DAMAGED, SCAN_NEED, SUSPECTS, Scanner
from kdump.load_state import Backwards, ByOffset, Overflow, Producers, Segment, name_of
from kdump.loader import Loader
from kdump.outcome import Held, Start
from kdump.plan import Log, Piece, Plan
from kdump.source import BytesSource, FileSource, PiecesSource, Source

Companion = tuple[str, bytes | None]
_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == ENTRY_SIZE
_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_LARGEST_SNAPSHOT: Final = 256 << 20  # as kdump.loader has it
_BUFFER_BYTES: Final = 256 << 10
_KEPT_BYTES: Final = 16 << 20  # of snapshots that were made, to begin from
_WIDTH: Final = len(BATCH_COLUMNS)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_STUMBLES: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/range", "offset/backwards", "control/structure"))
_UNKNOWN: Final = ProducerEntry(-1, -1, -1, -1, 0, -1, -1, -1)


def make(plan: Plan, on_bytes: Callable[[int], None] | None = None) -> Iterator[Companion]:
    """Name and bytes of every file that the plan has rebuilt, in log order; None for one that is not to be there.

    That is a transaction index without aborted transactions that was not there before; one that was becomes empty, as a broker leaves it. `on_bytes` is told the
    bytes of logs that were read. Raises SourceError.
    """
    wanted = {name for name, content in plan.after.items() if content is not None and content.rebuilt}
    if wanted:
        rebuilder = _Rebuilder(plan, on_bytes or _nobody)
        try:
            yield from rebuilder.make(wanted)
        finally:
            rebuilder.close()


def view(plan: Plan, name: str) -> Source:
    """The bytes that a file will have, of a log above all; not those of one that is rebuilt. Raises SourceError."""
    for log in plan.segments:
        if name == name_of(log.base_offset, ".log"):
            return _pieces(plan, log.pieces, name)
    if name not in plan.after:
        return FileSource(os.path.join(plan.path, name))
    content = plan.after[name]
    if content is None or content.rebuilt:
        raise SourceError(f"{os.path.join(plan.path, name)}: no such file")
    return _pieces(plan, content.pieces, name) if content.data is None else BytesSource(content.data, name)


def _pieces(plan: Plan, pieces: tuple[Piece, ...], name: str) -> Source:
    path = plan.path
    return PiecesSource(
        [(os.path.join(path, piece.name), piece.start, piece.stop) for piece in pieces], os.path.join(path, name)
    )


def _nobody(count: int) -> None:
    """Is told of bytes."""


# ---- one segment, by the kernel


class Limits(NamedTuple):
    """What the options say about the indexes of a segment."""

    index_interval_bytes: int
    segment_index_bytes: int


class Scanned(NamedTuple):
    """What a scan makes of a segment. `state_end` follows its last batch of magic 2, `next_offset` its last batch, or they are its base offset."""

    offset_index: bytes
    time_index: bytes
    state_end: int
    next_offset: int


def scan_segment(
    source: PiecesSource, base_offset: int, limits: Limits, drain: Callable[[bytes], None]
) -> Scanned | None:
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
                reason = scanner.headers(descriptor, origin, buffer, position, end)
            except OSError as error:
                raise SourceError(
                    f"{source.name}: reading at byte {position}: {(error.strerror or '').lower()}"
                ) from None
            position = scanner.reached
            if reason == SCAN_NEED:
                raise SourceError(f"{source.name}: ends at byte {source.size_now()}, not at {source.size}")
            if reason == SCAN_DAMAGED or _stumbles(scanner):
                return None
            if runs.count:
                drain(runs.take())
    made = scanner.recorded()
    if runs.odd or made is None:
        return None
    seen = scanner.state()
    return Scanned(*made, scanner.state_end, seen["known_last"] + 1 if seen["has_last"] else base_offset)


def _stumbles(scanner: Scanner) -> bool:
    rows = scanner.rows
    return any(rows[cell] & _STUMBLES for cell in range(_SUSPECT, scanner.count * _WIDTH, _WIDTH))


# ---- what a broker remembers of producers


class _State(Producers):
    """ProducerStateManager with all that a snapshot holds: `body` are its entries, packed, in the order in which the producers became known."""

    def __init__(self, rebuilder: "_Rebuilder") -> None:
        super().__init__(rebuilder)
        self._rebuilder = rebuilder
        self.body = b""
        self.aborted: list[AbortedTransaction] = []
        self._machine: kernel.Producers | None = None
        # Of a walk batch by batch:
        self._known: dict[int, ProducerEntry] = {}
        self._before: dict[int, ProducerEntry] | None = None  # the state behind which batches are added at once
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

    # ---- by the kernel

    def replay(self, events: bytes) -> None:
        if self._machine is None:
            self._machine = kernel.Producers(False, True)
            self._machine.load(self.body)
        self._machine.replay(events)

    def replayed(self, *, alone: bool) -> bool:
        """Take over what came of the events. False where they were to be added at once, which differs from one after the other when epochs go back."""
        machine, self._machine = self._machine, None
        if machine is None:
            return True
        _, counts, _ = machine.take()
        if not alone and "producer/epoch" in counts:
            return False
        body = machine.entries()
        self.body = body if alone else _met_at_once(body, len(self.body))
        if alone:
            self.aborted = [AbortedTransaction(0, *fields[:4]) for fields in machine.aborted()]
        return True

    def forget(self) -> None:
        """The events were good for nothing."""
        self._machine = None

    # ---- batch by batch

    def begin(self, *, alone: bool) -> None:
        """Before batches are given to `apply`: each alone, as in LogSegment.recover, or at once, as in UnifiedLog.loadProducersFromRecords."""
        entries = map(ProducerEntry._make, _ENTRY.iter_unpack(self.body))
        self._known = {entry.producer_id: entry for entry in entries}
        self._set(
            {
                entry.producer_id: entry.current_txn_first_offset
                for entry in self._known.values()
                if entry.has_transaction
            }
        )
        self._before = None
        if not alone:
            self._before, self._known = self._known, {}

    def end(self) -> None:
        known = self._known
        if self._before is not None:
            known = self._before
            for producer, entry in self._known.items():
                there = known.get(producer)
                if (
                    there is not None
                    and there.has_batch
                    and not entry.has_batch
                    and there.producer_epoch == entry.producer_epoch
                ):
                    entry = _with_batch(entry, there.last_sequence, there.last_offset, there.offset_delta)
                known[producer] = entry
        body = b"".join(_ENTRY.pack(*entry) for entry in known.values())
        self.body = body if self._before is None else _met_at_once(body, len(self.body))
        self._known, self._before = {}, None

    def _entry(self, producer: int) -> ProducerEntry:
        entry = self._known.get(producer)
        if entry is None and self._before is not None and (before := self._before.get(producer)) is not None:
            entry = _with_batch(before, -1, -1, 0)
        return entry or _UNKNOWN._replace(producer_id=producer)

    def apply(
        self, file: Frames, batch: Seen, header: tuple[int, ...], begun: dict[int, int]
    ) -> tuple[int, bool] | None:
        attributes, delta, timestamp, producer, epoch, sequence = *header[5:7], *header[8:12]
        entry = self._entry(producer)
        if not attributes & CONTROL:
            done = super().apply(file, batch, header, begun)
            last_sequence = sequence if sequence == -1 else next_sequence(sequence, delta)
            entry = _with_batch(entry, last_sequence, wrapped(batch.offset + delta, 64), delta)
            first = self.open.get(producer, -1)
            self._known[producer] = entry._replace(
                producer_epoch=epoch, timestamp=timestamp, current_txn_first_offset=first
            )
            return done
        marker = file.marker(batch, header)
        if marker is None:
            self._known.setdefault(producer, entry)
            return None
        if entry.producer_epoch != epoch:
            entry = _with_batch(entry, -1, -1, 0)._replace(producer_epoch=epoch)
        self._known[producer] = entry._replace(
            timestamp=marker.timestamp, coordinator_epoch=marker.coordinator_epoch, current_txn_first_offset=-1
        )
        opened = self.open.pop(producer, None)
        if opened is None:
            return None
        self._aborting = (producer, batch.offset) if marker.aborts else None
        return opened, marker.aborts

    def complete(self, first: int, position: int) -> None:
        if self._before is None and self._aborting is not None:
            producer, last = self._aborting
            stable = min((offset for offset, other in self.begun.items() if other != producer), default=last + 1)
            self.aborted.append(AbortedTransaction(0, producer, first, last, stable))
        super().complete(first, position)


def _met_at_once(body: bytes, known: int) -> bytes:
    """The entries behind those that were `known`, in bytes, from the last to the first: HashMap.computeIfAbsent, which collects them, puts each before those of its bucket."""
    new = [body[at : at + ENTRY_SIZE] for at in range(known, len(body), ENTRY_SIZE)]
    return body[:known] + b"".join(reversed(new))


def _with_batch(entry: ProducerEntry, last_sequence: int, last_offset: int, offset_delta: int) -> ProducerEntry:
    return entry._replace(last_sequence=last_sequence, last_offset=last_offset, offset_delta=offset_delta)


# ---- all of them


class _Rebuilder(Loader):
    """A load of the segments of a plan as they will be, with what it writes beside them."""

    def __init__(self, plan: Plan, on_bytes: Callable[[int], None]) -> None:
        self._plan = plan
        self._on_bytes = on_bytes
        options = plan.options
        self._limits = Limits(options.index_interval_bytes, options.segment_index_bytes)
        self._now_ms = int(time.time() * 1000) if options.now_ms is None else options.now_ms
        self._logs = {name_of(log.base_offset, ".log"): log for log in plan.segments}
        sizes = {name: log.size for name, log in self._logs.items()}
        sizes.update((name, plan.files[name].size) for name in self._usable())
        first = min((log.base_offset for log in plan.segments), default=0)
        # A checkpoint has the log start offset of a partition only where it is not its first offset (LogManager.checkpointLogStartOffsets).
        log_start = plan.log_start_offset or 0
        super().__init__(
            Start(
                sizes,
                self._open,
                log_start_offset=log_start if log_start > first else 0,
                index_interval_bytes=options.index_interval_bytes,
            )
        )
        self._unwalked = max((log.base_offset for log in plan.segments if not log.walked), default=-1 << 63)
        self._indexed: Segment | None = None
        self._made: dict[str, bytes] = {}
        self._state_ends: dict[int, int] = {}  # of segments that were scanned
        self._list_snapshots()
        self._staying = {name: offset for offset, name in self.snapshots.items() if name not in plan.after}
        for log in plan.segments:
            self._make(log.base_offset)

    def _open(self, name: str) -> Source:
        log = self._logs.get(name)
        return FileSource(os.path.join(self._plan.path, name)) if log is None else _pieces(self._plan, log.pieces, name)

    def _usable(self) -> Iterator[str]:
        """The snapshots that a broker may begin from: those that stay, and those below all that is walked."""
        plan = self._plan
        walked = min((log.base_offset for log in plan.segments if log.walked), default=1 << 63)
        for name in plan.files:
            offset = number_of(name) if name.endswith(".snapshot") else None
            if offset is not None and (name not in plan.after or (plan.after[name] is None and offset <= walked)):
                yield name

    # ---- snapshots

    def entries(self, name: str) -> bytes | None:
        """The entries of a snapshot; None when Kafka's reader refuses it."""
        made = self._made.get(name)
        data = self._content(name, _LARGEST_SNAPSHOT) if made is None else made
        try:
            found = snapshot.look(data)
        except snapshot.SnapshotError:
            return None
        return None if found.problem is not None else data[HEADER_SIZE : found.end]

    def unexpired(self, body: bytes) -> bytes:
        """Without the producers that were idle for too long (ProducerStateManager.isProducerExpired)."""
        known: dict[int, ProducerEntry] = {}
        longest = self._plan.options.producer_id_expiration_ms
        for entry in map(ProducerEntry._make, _ENTRY.iter_unpack(body)):
            if not entry.has_batch:
                entry = _with_batch(entry, -1, -1, 0)
            if not entry.has_transaction:
                if wrapped(self._now_ms - entry.timestamp, 64) >= longest:
                    continue
                entry = entry._replace(current_txn_first_offset=-1)
            known[entry.producer_id] = entry
        return b"".join(_ENTRY.pack(*entry) for entry in known.values())

    def keep(self, offset: int, body: bytes) -> None:
        """Write a snapshot."""
        name = name_of(offset, ".snapshot")
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
        logs = self._plan.segments
        for number, log in enumerate(logs):
            base, end = log.base_offset, logs[number + 1].base_offset if number + 1 < len(logs) else 1 << 63
            names = [name_of(base, suffix) for suffix in _INDEXES]
            if names[-1] in wanted or (log.walked and any(base < offset <= end for offset in left)):
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

    def _lay_beside(self, name: str, log: Log) -> bool:
        """Whether a broker finds this file beside the log, and so empties it: not without the log, nor one of a log that it splits or puts another in the place of."""
        files, log_name = self._plan.files, name_of(log.base_offset, ".log")
        origin = log.pieces[0].name if log.pieces else log_name
        if origin == f"{log_name}.swap":
            return f"{name}.swap" in files
        others = (piece.name for other in self._plan.segments if other != log for piece in other.pieces)
        return name in files and origin == log_name in files and log_name not in others

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
        log_end = self._plan.log_end_offset
        start = max([self.start.log_start_offset, *self.segments.order[:1]])
        if log_end is not None and not self._made.keys() >= set(left.values()):
            self._remove_stray_snapshots()
            self._rebuild(self._state(), start, log_end)
        for offset, name in sorted(left.items()):
            if name not in self._made:
                state = self._state()
                self._rebuild(state, min(start, offset - 1), offset)
                self.keep(offset, state.body)
            yield name, self._made[name]

    def _state(self) -> _State:
        """A new ProducerStateManager. What the broker's truncateAndReload took away of the snapshots that stay is there again: they are right."""
        for name, offset in self._staying.items():
            if name not in self.files:
                self.files[name] = Held(name, 0, self.start.files[name])
                self.snapshots[offset] = name
        return _State(self)

    def _recovered(self, segment: Segment) -> tuple[bytes, bytes, bytes]:
        """LogLoader.recoverSegment."""
        state, everyone = self._state(), self.segments
        if segment.base < self._unwalked:
            # A segment whose offset index was missing, for example, is recovered before those above it are there.
            self.segments = ByOffset()
            for base in everyone.order[: everyone.order.index(segment.base)]:
                self.segments[base] = everyone[base]
        self._rebuild(state, self.start.log_start_offset, segment.base)
        self.segments = everyone
        scanned = self._scanned(segment, state.replay)
        if scanned is not None:
            state.replayed(alone=True)
            state.map_end = self._state_ends[segment.base] = scanned.state_end
            made = scanned[:2]
        else:
            state.forget()
            state.begin(alone=True)
            made = self._walked(segment, state)
            state.end()
        self._on_bytes(segment.size)
        state.take_snapshot()
        return *made, index.build_transaction_index(state.aborted)

    def _indexes(self, segment: Segment) -> tuple[bytes, bytes, bytes]:
        """Only what no producer has a part in."""
        scanned = self._scanned(segment, _no_events)
        made = self._walked(segment, _State(self)) if scanned is None else scanned[:2]
        self._on_bytes(segment.size)
        return *made, b""

    def _scanned(self, segment: Segment, drain: Callable[[bytes], None]) -> Scanned | None:
        source = self._source(segment.name)
        if not self._logs[segment.name].proved or not isinstance(source, PiecesSource):
            return None
        return scan_segment(source, segment.base, self._limits, drain)

    def _walked(self, segment: Segment, state: _State) -> tuple[bytes, bytes]:
        """Both indexes of a segment whose batches a broker's reader steps on. Where it would not keep the segment, as far as it comes."""
        with suppress(Backwards, Overflow):
            self.replay(segment, state)
        most = self._limits.segment_index_bytes
        offsets, times, base = segment.offsets, segment.times, segment.base
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

    def _add_from(self, producers: Producers, segment: Segment, start: int, log_end: int | None) -> None:
        """The batches of a segment from an offset on, as UnifiedLog.rebuildProducerState adds them."""
        assert isinstance(producers, _State)
        if start >= self._state_ends.get(segment.base, 1 << 63):
            return
        if start <= segment.base:
            scanned = self._scanned(segment, producers.replay)
            if (
                scanned is not None
                and (log_end is None or scanned.next_offset <= log_end)
                and producers.replayed(alone=False)
            ):
                self._state_ends[segment.base] = scanned.state_end
                return
            producers.forget()
        producers.begin(alone=False)
        super()._add_from(producers, segment, start, log_end)
        producers.end()


def _snapshot(body: bytes) -> bytes:
    return snapshot.build(map(ProducerEntry._make, _ENTRY.iter_unpack(body)))


def _no_events(events: bytes) -> None:
    """Producers are not asked for."""
