"""What the next unclean start of Kafka 4.3 does with a topic-partition directory as it is.

`foresee` follows Kafka's LogLoader step by step, on values: leftovers, segments and their companions, recovery of each segment, deletion of what lies behind a
cut, leader epochs, producer snapshots. Segments that verify proved are not read again; the others are walked batch by batch as LogSegment.recover does, which
stops at the first bad batch and goes by fields that verify looks at for themselves (the index interval decides whether offsets that go back empty a segment).

A broker that refuses a log does not start. Here the first refusal is noted and the rest goes on as if what caused it were not there, so that everything that
would stop the broker is known at once, and also what the start does to the rest.

Sources: LogLoader, LogSegment, LocalLog.splitOverflowedSegment, ProducerStateManager, ProducerAppendInfo, LeaderEpochFileCache, UnifiedLog of Kafka 4.3.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.findings import Finding, Severity
from kdump.format import checkpoint, control, index, snapshot
from kdump.format.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    TRANSACTIONAL,
    UP_TO_MAGIC,
    Batch,
)
from kdump.format.checkpoint import CheckpointError
from kdump.format.control import ControlType
from kdump.format.snapshot import SnapshotError
from kdump.kernel import crc
from kdump.kernel.records import RECORD_COLUMNS
from kdump.records import Opened, open_batch
from kdump.segment import MAX_BATCH_BYTES
from kdump.source import FileSource, Source

INDEX_INTERVAL_BYTES: Final = 4096
_OPEN_FILES: Final = 8
_LARGEST_FILE: Final = (1 << 31) - 1
_SPAN: Final = (1 << 31) - 1

EPOCHS: Final = "leader-epoch-checkpoint"
METADATA: Final = "partition.metadata"


# ---- what goes in


class Proved(NamedTuple):
    """A segment in which a recovery finds nothing to do (see `sound`). `next_offset` follows its last batch, or is its base offset.

    `epochs` are the changes of the leader epoch with their first offsets, `transactions` the producers with a transaction that is open behind the segment
    and its first offset, None where that is not known. `wrappers`: it holds compressed messages of magic 0 or 1.
    """

    next_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    transactions: Mapping[int, int] | None = None
    wrappers: bool = False


class Start(NamedTuple):
    """A topic-partition directory before the start: name and size of every regular file in it, and how to read one.

    `proved` are segments by the name of their .log; recovery point and log start offset are those of the log directory's checkpoints, 0 without one.
    `deleting`: the directory is named …-delete, and is loaded without recovery.
    """

    files: Mapping[str, int]
    open: Callable[[str], Source]
    proved: Mapping[str, Proved] = {}
    recovery_point: int = 0
    log_start_offset: int = 0
    deleting: bool = False
    index_interval_bytes: int = INDEX_INTERVAL_BYTES


def start_at(
    directory: str, proved: Mapping[str, Proved] | None = None, *, recovery_point: int = 0, log_start_offset: int = 0
) -> Start:
    """The directory as it stands on disk. Raises SourceError."""
    files = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_file():
                    files[entry.name] = entry.stat().st_size
    except OSError as error:
        raise SourceError(f"{directory}: {(error.strerror or str(error)).lower()}") from None
    return Start(
        files,
        lambda name: FileSource(os.path.join(directory, name)),
        proved or {},
        recovery_point,
        log_start_offset,
        directory.rstrip("/").endswith("-delete"),
    )


_NOTICED = frozenset(
    {
        *("batch/crc", "batch/length", "batch/magic", "batch/limit", "batch/count"),
        *("gap/bytes", "gap/unsearched", "tail/torn", "tail/zeros", "tail/garbage"),
        *("offset/range", "offset/backwards", "control/structure", "txn/state", "file/shrunk", "file/grown"),
        *("legacy/wrapper", "batch/codec"),
    }
)


def sound(codes: Iterable[str]) -> bool:
    """Whether a recovery passes over a log with findings of these codes, so that it can be given as `Proved`."""
    return _NOTICED.isdisjoint(codes)


# ---- what comes out


class Refusal(NamedTuple):
    """Why the start fails: Kafka's exception, the file and where in it, and a short word.

    Words: name, epochs, metadata, txnindex, split, transaction, marker, control, backwards, walk, wrapper, size.
    """

    exception: str
    name: str
    position: int | None
    word: str


class Left(NamedTuple):
    """A segment as it is left."""

    base_offset: int
    size: int


class Outcome(NamedTuple):
    """What the start leaves. Names are those of files before the start.

    `refusals`: empty when the log loads, else the first is what the broker dies of, and everything else is what would come if it did not. `cuts`: from which
    position on the bytes of a file go. `wiped`: emptied because indexed offsets go back. `deleted`: files that go, though others of the name may be written.
    `files`: every name afterwards. `promoted`: a .swap file and the name that it takes. `split`: the base offsets of the segments that one is split into. `recovered`: logs that
    are read through and whose indexes are made anew. `snapshots`: offsets of the snapshots that are written. `epochs`: the leader epochs afterwards.
    """

    refusals: tuple[Refusal, ...]
    log_start_offset: int
    log_end_offset: int
    segments: tuple[Left, ...]
    cuts: Mapping[str, int]
    wiped: frozenset[str]
    deleted: frozenset[str]
    files: frozenset[str]
    promoted: Mapping[str, str]
    split: Mapping[str, tuple[int, ...]]
    recovered: frozenset[str]
    snapshots: frozenset[int]
    epochs: tuple[tuple[int, int], ...]

    @property
    def refuses(self) -> bool:
        return bool(self.refusals)


class Recovered(NamedTuple):
    """What a recovery makes of one segment: how many bytes stay, the offset behind them, whether indexed offsets go back (then nothing stays), refusals.

    `overflow` is the position of a batch whose last offset the segment cannot hold, where the recovery breaks off to split it.
    """

    valid_bytes: int
    next_offset: int
    wiped: bool
    overflow: int | None
    refusals: tuple[Refusal, ...]


def foresee(start: Start) -> Outcome:
    """What the start would leave. Reads companions, and the logs that are not proved. Raises SourceError."""
    loader = _Loader(start)
    try:
        return loader.run()
    finally:
        loader.close()


def replay(source: Source, base_offset: int, interval: int = INDEX_INTERVAL_BYTES) -> Recovered:
    """One segment alone, with nothing before it. The source stays open."""
    name = _name(base_offset, ".log")
    loader = _Loader(Start({name: source.size}, lambda _: source, index_interval_bytes=interval))
    segment = loader.segment(name, base_offset)
    try:
        loader.replay(segment, _Producers(loader))
    except _Overflow as overflow:
        return Recovered(segment.size, base_offset, False, overflow.position, tuple(loader.refusals))
    except _Backwards:
        return Recovered(0, base_offset, True, None, tuple(loader.refusals))
    return Recovered(segment.size, loader.end_of(segment), False, None, tuple(loader.refusals))


# ---- the bytes of a log as Kafka's readers take them

_HEAD: Final = struct.Struct(">qiIb")
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_TIMESTAMP: Final = struct.Struct(">q")
_WINDOW_BYTES: Final = 256 << 10
_KEY: Final = RECORD_COLUMNS.index("key_at")
_KEY_SIZE: Final = RECORD_COLUMNS.index("key_size")
_VALUE: Final = RECORD_COLUMNS.index("value_at")
_VALUE_SIZE: Final = RECORD_COLUMNS.index("value_size")


class _Corrupt(Exception):
    """Kafka's walker meets a size below the smallest message (CorruptRecordException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class _Refused(Exception):
    """A reader fails in a way that nobody catches."""

    def __init__(self, exception: str, position: int | None, word: str) -> None:
        self.exception, self.position, self.word = exception, position, word


class _Backwards(Exception):
    """An index refuses an entry (InvalidOffsetException)."""


class _Overflow(Exception):
    """The last offset of a batch is no offset of the segment (LogSegmentOffsetOverflowException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class _Seen(NamedTuple):
    """A batch that the walker steps on. The last offset is only known once it is asked for."""

    position: int
    total: int
    offset: int
    magic: int


class _Window:
    """The one buffer of a load, and of which bytes it holds a part."""

    def __init__(self) -> None:
        # Headers are unpacked without a look at what is left, so that zeros stand behind the end.
        self.buffer = bytearray(_WINDOW_BYTES + HEADER_SIZE)
        self.view = memoryview(self.buffer)
        self.holder: _Bytes | None = None
        self.at = 0
        self.filled = 0


class _Bytes:
    """A part of a file; positions count from its start."""

    def __init__(self, window: _Window, open_: Callable[[], Source], origin: int, size: int) -> None:
        self.window, self.open, self.origin, self.size = window, open_, origin, size

    def part(self, start: int, size: int) -> "_Bytes":
        return _Bytes(self.window, self.open, self.origin + start, size)

    def load(self, position: int, need: int) -> int:
        """Where `position` is in the window; `need` bytes follow it there, and zeros where the file ends before."""
        window = self.window
        at = position - window.at
        there = at + need <= window.filled or (at <= window.filled and window.at + window.filled >= self.size)
        if there and at >= 0 and window.holder is self:
            return at
        n = max(0, min(_WINDOW_BYTES, self.size - position))
        window.holder, window.at = self, position
        window.filled = self.open().readinto(self.origin + position, window.view[:n])
        window.buffer[window.filled :] = bytes(len(window.buffer) - window.filled)
        return 0

    def read(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size - position)))
        return bytes(buffer[: self.open().readinto(self.origin + position, memoryview(buffer))])

    def checksum(self, position: int, begin: int, total: int, update: Callable[[memoryview, int], int]) -> int:
        value, position, end = 0, position + begin, position + total
        while position < end:
            at = self.load(position, min(end - position, _WINDOW_BYTES))
            piece = self.window.view[at : min(self.window.filled, at + end - position)]
            if not piece:
                break
            value = update(piece, value)
            position += len(piece)
        return value

    def batches(self, start: int, end: int) -> Iterator[_Seen]:
        """As FileLogInputStream: nothing is proved, up to 17 bytes at the end are nothing, a size beyond the end is the end."""
        position = start
        while position < end - UP_TO_MAGIC:
            offset, size, _, magic = _HEAD.unpack_from(self.window.buffer, self.load(position, UP_TO_MAGIC))
            if size < MINIMUM_SIZE[0]:
                raise _Corrupt(position)
            if position > end - LOG_OVERHEAD - size:
                return
            yield _Seen(position, LOG_OVERHEAD + size, offset, magic)
            position += LOG_OVERHEAD + size

    def header(self, batch: _Seen) -> tuple[int, ...]:
        """The header of a batch of magic 2. That of a shorter one goes on in what follows; there may be nothing."""
        if batch.position + HEADER_SIZE > self.size:
            raise _Refused("KafkaException", batch.position, "walk")
        return _HEADER.unpack_from(self.window.buffer, self.load(batch.position, HEADER_SIZE))

    def last_offset(self, batch: _Seen) -> int:
        return batch.offset if batch.magic < 2 else _int64(batch.offset + self.header(batch)[6])

    def first_offset(self, batch: _Seen) -> int:
        """Of a compressed message of magic 0 or 1 only the messages inside know it."""
        if batch.magic >= 2:
            return batch.offset
        attributes = self.window.buffer[self.load(batch.position, UP_TO_MAGIC + 1) + UP_TO_MAGIC]
        if not attributes & CODEC_MASK:
            return batch.offset
        opened = self.opened(batch, attributes, 0, 0)
        if opened.problem not in (None, "record/structure") or (opened.problem is None and not opened.records):
            raise _Refused("KafkaException", batch.position, "wrapper")
        return opened.first_offset if opened.records else batch.offset

    def timestamp(self, batch: _Seen) -> int:
        """The largest of the batch, as its header says."""
        if batch.magic >= 2:
            return self.header(batch)[8]
        at = self.load(batch.position, HEADER_SIZE)
        return -1 if batch.magic == 0 else int(_TIMESTAMP.unpack_from(self.window.buffer, at + 18)[0])

    def opened(self, batch: _Seen, attributes: int, count: int, base_timestamp: int) -> Opened:
        """The records of a batch; of its row the reader of records looks at little."""
        header = HEADER_SIZE if batch.magic >= 2 else 0
        row = _NO_ROW._replace(
            size=batch.total,
            magic=min(batch.magic, 2),
            base_offset=batch.offset,
            last_offset=batch.offset,
            count=count,
            attributes=attributes,
            base_timestamp=base_timestamp,
            payload_at=header,
            payload_size=batch.total - header,
        )
        return open_batch(row, self.read(batch.position, batch.total), MAX_BATCH_BYTES)

    def aborts(self, batch: _Seen, header: tuple[int, ...]) -> bool | None:
        """Whether the marker in a control batch aborts, None for a batch that is empty. Raises _Refused.

        Of an uncompressed batch only the first record is read (ControlRecordType.parse, EndTransactionMarker.deserialize).
        """
        attributes, base_timestamp, count = header[5] & 0xFF, header[7], header[12]
        if count == 0:
            return None
        opened = self.opened(batch, attributes, count, base_timestamp)
        compressed = attributes & CODEC_MASK != 0
        if opened.problem is not None and (compressed or count == 1 or not opened.records):
            known = opened.problem in ("record/structure", "batch/count")
            raise _Refused("InvalidRecordException" if known else "KafkaException", batch.position, "control")
        rows, payload = opened.rows, memoryview(opened.payload)
        key, value = (
            None if rows[size] < 0 else bytes(payload[rows[at] : rows[at] + rows[size]])
            for at, size in ((_KEY, _KEY_SIZE), (_VALUE, _VALUE_SIZE))
        )
        if key is None:
            raise _Refused("NullPointerException", batch.position, "control")
        try:
            kind = control.decode_key(key).type
        except ValueError:
            raise _Refused("InvalidRecordException", batch.position, "control") from None
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise _Refused("IllegalArgumentException", batch.position, "control")
        if value is None:
            raise _Refused("NullPointerException", batch.position, "control")
        try:
            control.decode_marker(value)
        except ValueError:
            versioned = len(value) >= 2 and value[0] & 0x80
            exception = "InvalidRecordException" if versioned else "BufferUnderflowException"
            raise _Refused(exception, batch.position, "control") from None
        return kind == ControlType.ABORT


_NO_ROW: Final = Batch._make([0] * len(Batch._fields))


def _int64(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _fits(offset: int, base_offset: int) -> bool:
    """Whether an offset can be one of the segment (AbstractIndex.toRelative, in Java's arithmetic)."""
    return 0 <= _int64(offset - base_offset) <= _SPAN


def _name(base_offset: int, suffix: str) -> str:
    """The name as Kafka makes it: at least 20 digits, and a sign before them."""
    return f"{'-' if base_offset < 0 else ''}{abs(base_offset):020d}{suffix}"


def _number(name: str) -> int | None:
    """What Kafka takes for the offset in a name (LogFileUtils.offsetFromFileName); None where it finds none."""
    stem, dot, _ = name.partition(".")
    digits = stem[1:] if stem[:1] in ("-", "+") else stem
    if not dot or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(stem)  # a name has 255 bytes at most
    return number if -(1 << 63) <= number < 1 << 63 else None


# ---- the state that a load builds


class _Held(NamedTuple):
    """What a file name stands for: bytes of a file from before the start, or, with an empty `origin`, something new."""

    origin: str
    start: int
    size: int


_NEW: Final = _Held("", 0, 0)


class _Split(Exception):
    """A segment has to be split before the load goes on."""

    def __init__(self, segment: "_Segment") -> None:
        self.segment = segment


@dataclass(slots=True)
class _Segment:
    """A segment while it is loaded, with its offset index; `indexed` once that is known."""

    base: int
    name: str
    held: _Held
    file: _Bytes
    proved: Proved | None = None
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    indexed: bool = False

    @property
    def size(self) -> int:
        return self.file.size

    def clear_index(self) -> None:
        self.offsets, self.positions, self.indexed = array("q"), array("q"), True

    def lookup(self, offset: int) -> int:
        """The position of the last index entry that is not above the offset."""
        at = bisect_right(self.offsets, offset)
        return self.positions[at - 1] if at else 0


class _State(NamedTuple):
    """Producers with an open transaction, and its first offset; `behind` are segments whose batches are still to be added."""

    open: Mapping[int, int]
    behind: tuple[_Segment, ...] = ()


class _Producers:
    """ProducerStateManager, as far as it can fail: which transactions are open."""

    def __init__(self, loader: "_Loader") -> None:
        self._loader = loader
        self.snapshots = loader.list_snapshots()
        self.open: dict[int, int] = {}
        self.begun: dict[int, int] = {}  # producer by first offset of its transaction
        self.behind: list[_Segment] = []
        self.map_end = 0
        self.snapshot_end = 0

    def truncate_and_reload(self, log_start: int, log_end: int) -> None:
        for offset in [offset for offset in self.snapshots if offset > log_end or offset <= log_start]:
            self._delete(offset)
        if log_end != self.map_end:
            self._set({})
            self._load(log_start)
        else:
            self.map_end = max(self.map_end, log_start)
            self.snapshot_end = max(self.snapshots, default=log_start)

    def _load(self, log_start: int) -> None:
        while self.snapshots:
            offset = max(self.snapshots)
            state = self._loader.snapshot(self.snapshots[offset])
            if state is not None:
                self._set(state.open)
                self.behind = list(state.behind)
                self.map_end = self.snapshot_end = offset
                return
            self._delete(offset)
        self.map_end = self.snapshot_end = log_start

    def _set(self, open_: Mapping[int, int]) -> None:
        self.open = dict(open_)
        self.begun = {first: producer for producer, first in open_.items()}
        self.behind = []

    def _delete(self, offset: int) -> None:
        self._loader.delete(self.snapshots.pop(offset))

    def take_snapshot(self) -> None:
        if self.map_end > self.snapshot_end:
            state = _State(dict(self.open), tuple(self.behind))
            self.snapshots[self.map_end] = self._loader.write_snapshot(self.map_end, state)
            self.snapshot_end = self.map_end

    def skip(self, segment: _Segment, proved: Proved) -> None:
        """Pass over a proved segment."""
        if proved.transactions is None:
            self.behind.append(segment)
        else:
            self._set(proved.transactions)
        self.map_end = proved.next_offset

    def catch_up(self) -> None:
        """Read the segments that were passed over."""
        behind, self.behind = self.behind, []
        for segment in behind:
            self._loader.add(self, segment, 0, segment.size)

    def apply(
        self, file: _Bytes, batch: _Seen, header: tuple[int, ...], begun: dict[int, int]
    ) -> tuple[int, bool] | None:
        """ProducerAppendInfo.append: first offset of the transaction that the batch ends, and whether it aborts it. Raises _Refused."""
        attributes, producer = header[5], header[9]
        if attributes & CONTROL:
            aborts = file.aborts(batch, header)
            first = None if aborts is None else self.open.pop(producer, None)
            return None if first is None or aborts is None else (first, aborts)
        if producer in self.open:
            if not attributes & TRANSACTIONAL:
                raise _Refused("InvalidTxnStateException", batch.position, "transaction")
        elif attributes & TRANSACTIONAL:
            self.open[producer] = batch.offset
            begun[batch.offset] = producer
        return None

    def complete(self, first: int, position: int) -> None:
        if self.begun.pop(first, None) is None:
            raise _Refused("IllegalArgumentException", position, "marker")


class _Epochs:
    """LeaderEpochFileCache."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []
        self.written = False  # the file is, with other entries than it had

    def assign(self, epoch: int, start: int) -> None:
        """Raises _Refused for an entry below zero."""
        if epoch < 0 or start < 0:
            raise _Refused("IllegalArgumentException", None, "epochs")
        entries = self.entries
        if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))

    def seen(self, epoch: int, start: int) -> None:
        """A batch during recovery."""
        if epoch >= 0 and (not self.entries or epoch > self.entries[-1][0]):
            self.assign(epoch, start)
            self.written = True

    def truncate(self, log_start: int, log_end: int) -> None:
        entries = self.entries
        while entries and entries[-1][1] >= log_end:
            entries.pop()
            self.written = True
        dropped = 0
        while dropped < len(entries) and entries[dropped][1] <= log_start:
            dropped += 1
        if dropped:
            self.written = True
            entries[:dropped] = [(entries[dropped - 1][0], log_start)]


class _TimeIndex:
    """TimeIndex.maybeAppend, as far as it can fail."""

    def __init__(self, base: int) -> None:
        self._entries, self._timestamp, self._offset = 0, -1, base

    def append(self, timestamp: int, offset: int) -> None:
        if self._entries and offset < self._offset:
            raise _Backwards
        if timestamp > self._timestamp:
            self._entries, self._timestamp, self._offset = self._entries + 1, timestamp, offset


class _Loader:
    """One start: the steps of LogLoader, on names and bytes from before it."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.refusals: list[Refusal] = []
        self.files = {name: _Held(name, 0, size) for name, size in start.files.items()}
        self.segments: dict[int, _Segment] = {}
        self.states: dict[str, _State] = {}  # of the snapshots that were written
        self.written: set[int] = set()
        self.deleted: set[str] = set()
        self.promoted: dict[str, str] = {}
        self.split: dict[str, tuple[int, ...]] = {}
        self.stuck: set[int] = set()
        self.wiped: set[str] = set()
        self.recovered: set[str] = set()
        self.cuts: dict[str, int] = {}
        self.epochs = _Epochs()
        self._window = _Window()
        self._opened: dict[str, Source] = {}

    # ---- files

    def _source(self, name: str) -> Source:
        """The last few that were read stay open."""
        source = self._opened.pop(name, None) or self.start.open(name)
        self._opened[name] = source
        if len(self._opened) > _OPEN_FILES:
            self._opened.pop(next(iter(self._opened))).close()
        return source

    def _bytes(self, held: _Held) -> _Bytes:
        return _Bytes(self._window, lambda: self._source(held.origin), held.start, held.size)

    def _content(self, name: str) -> bytes:
        held = self.files.get(name, _NEW)
        return self._bytes(held).read(0, held.size) if held.size else b""

    def delete(self, name: str) -> None:
        held = self.files.pop(name, _NEW)
        self.states.pop(name, None)
        if held.origin in self.split:
            self._cut(held, 0)
        elif held.origin:
            self.deleted.add(held.origin)

    def _cut(self, held: _Held, size: int) -> None:
        position = held.start + size
        self.cuts[held.origin] = min(position, self.cuts.get(held.origin, position))

    def _resize(self, segment: _Segment, size: int) -> None:
        """Cut a segment off behind `size` bytes."""
        if size < segment.size:
            self._cut(segment.held, size)
            segment.file = segment.file.part(0, size)
            segment.held = segment.held._replace(size=size)
            self.files[segment.name] = segment.held

    def _create(self, name: str) -> None:
        self.files.setdefault(name, _NEW)

    def _refuse(self, exception: str, name: str, position: int | None, word: str) -> None:
        refusal = Refusal(exception, name, position, word)
        if refusal not in self.refusals:  # what is read twice fails twice
            self.refusals.append(refusal)

    def _failed(self, problem: "_Corrupt | _Refused", segment: _Segment) -> None:
        """A reader failed where nobody catches it."""
        if isinstance(problem, _Corrupt):
            problem = _Refused("CorruptRecordException", problem.position, "walk")
        position = None if problem.position is None else problem.position + segment.held.start
        self._refuse(problem.exception, segment.held.origin or segment.name, position, problem.word)

    # ---- producer snapshots

    def list_snapshots(self) -> dict[int, str]:
        """Those whose names have a number; the others are refused once, in the beginning."""
        found = {}
        for name in sorted(self.files):
            if name.endswith(".snapshot") and (offset := _number(name)) is not None:
                found[offset] = name
        return found

    def snapshot(self, name: str) -> _State | None:
        """What a snapshot says; None when Kafka's reader refuses it."""
        if name in self.states:
            return self.states[name]
        try:
            entries = snapshot.parse(self._content(name))
        except SnapshotError:
            return None
        return _State({entry.producer_id: entry.current_txn_first_offset for entry in entries if entry.has_transaction})

    def write_snapshot(self, offset: int, state: _State) -> str:
        name = _name(offset, ".snapshot")
        self._create(name)
        self.states[name] = state
        self.written.add(offset)
        return name

    def _remove_stray_snapshots(self) -> None:
        """Of the snapshots at no segment's base only the highest stays, and that only above all bases."""
        stray = [
            (offset, name) for offset, name in sorted(self.list_snapshots().items()) if offset not in self.segments
        ]
        for number, (offset, name) in enumerate(stray):
            if number < len(stray) - 1 or offset < max(self.segments):
                self.delete(name)

    # ---- LogLoader.load

    def close(self) -> None:
        for source in self._opened.values():
            source.close()

    def run(self) -> Outcome:
        self._load_epochs()
        for name in sorted(self.files):
            if name.endswith(".snapshot") and _number(name) is None:
                self._refuse("NumberFormatException", name, None, "name")
        self._swap(self._leftovers())
        self._retry(self._load_segments)
        if self.start.deleting:
            log_end = 0
            if not self.segments:
                self._make(0)
        else:
            log_end = self._retry(self._recover_log)
            self._create_indexes(max(self.segments))
        log_start = max(self.start.log_start_offset, min(self.segments))
        self.epochs.truncate(self.start.log_start_offset, log_end)
        if self.epochs.written:
            self.delete(f"{EPOCHS}.tmp")
        self._remove_stray_snapshots()
        self._rebuild(_Producers(self), log_start, log_end)
        self._check_metadata()
        return Outcome(
            tuple(self.refusals),
            log_start,
            log_end,
            tuple(Left(base, segment.size) for base, segment in sorted(self.segments.items())),
            self.cuts,
            frozenset(self.wiped),
            frozenset(self.deleted),
            frozenset(self.files),
            self.promoted,
            self.split,
            frozenset(self.recovered),
            frozenset(self.written),
            tuple(self.epochs.entries),
        )

    def _load_epochs(self) -> None:
        if EPOCHS not in self.files:
            self._create(EPOCHS)
            return
        try:
            entries = list(checkpoint.epoch_entries(self._content(EPOCHS)))
        except CheckpointError:
            self._refuse("KafkaStorageException", EPOCHS, None, "epochs")
            return
        for entry in entries:
            try:
                self.epochs.assign(entry.epoch, entry.start_offset)
            except _Refused as refused:
                self._refuse(refused.exception, EPOCHS, None, refused.word)

    def _check_metadata(self) -> None:
        if METADATA in self.files:
            data = self._content(METADATA)
            try:
                checkpoint.parse_partition_metadata(data)
            except CheckpointError:
                self._refuse("KafkaStorageException" if data else "NullPointerException", METADATA, None, "metadata")

    def _leftovers(self) -> list[str]:
        """Delete what an interrupted run left, and give the .swap files that are whole."""
        numbers = {}
        for name in sorted(self.files):
            if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
                self.delete(name)
            elif name.endswith((".cleaned", ".swap")):
                number = _number(name)
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
            number = _number(name)
            if name.endswith(".log.swap") and number is not None:
                segment = self.segment(_name(number, ".log.swap"), number)
                self._load_index(segment, _name(number, ".index.swap"))
                self._create(_name(number, ".index.swap"))
                lowest, highest = min(lowest, number), max(highest, self.end_of(segment))
        for name in sorted(self.files):
            number = _number(name)
            if number is not None and lowest <= number < highest and not name.endswith(".swap"):
                self.delete(name)
        for name in sorted(self.files):
            if name.endswith(".swap") and _number(name) is not None:
                to = name.removesuffix(".swap")
                self.delete(to)
                self.files[to] = held = self.files.pop(name)
                if held.origin:
                    self.promoted[held.origin] = to

    def _load_index(self, segment: _Segment, name: str) -> None:
        """An index as it stands: every slot of it is an entry."""
        segment.clear_index()
        data = self._content(name)
        size = index.OFFSET_ENTRY.size
        for relative, position in index.OFFSET_ENTRY.iter_unpack(data[: len(data) - len(data) % size]):
            segment.offsets.append(segment.base + relative)
            segment.positions.append(position)

    def segment(self, name: str, base: int) -> _Segment:
        """The segment of this name; an empty one where there is none, as Kafka makes it."""
        self._create(name)
        held = self.files[name]
        if held.size > _LARGEST_FILE:
            self._refuse("KafkaException", held.origin, None, "size")
        whole = held == _Held(name, 0, self.start.files.get(name, 0))
        return _Segment(base, name, held, self._bytes(held), self.start.proved.get(name) if whole else None)

    def _make(self, base: int) -> None:
        self.segments[base] = self.segment(_name(base, ".log"), base)

    def _retry(self, step: Callable[[], int]) -> int:
        """Do a step again and again, while there is a segment to be split (KAFKA-6264)."""
        while True:
            try:
                return step()
            except _Split as split:
                self._split(split.segment)

    def _load_segments(self) -> int:
        self.segments.clear()
        for name in sorted(self.files):
            is_index = name.endswith((".index", ".timeindex", ".txnindex"))
            if name not in self.files or not (is_index or name.endswith(".log")):
                continue
            number = _number(name)
            if number is None:
                self._refuse("NumberFormatException", name, None, "name")
            elif is_index:
                if _name(number, ".log") not in self.files:
                    self.delete(name)
            else:
                segment = self.segment(_name(number, ".log"), number)
                if not self._is_sane(segment):
                    # What is cut off here is not reported: later segments stay.
                    try:
                        self._recover(segment)
                    except _Backwards:
                        self._failed(_Refused("InvalidOffsetException", None, "backwards"), segment)
                self.segments[number] = segment
        return 0

    def _is_sane(self, segment: _Segment) -> bool:
        """LogSegment.sanityCheck: False when the segment has to be recovered at once, because of its offset or transaction index."""
        if _name(segment.base, ".index") not in self.files:
            return False
        self._create(_name(segment.base, ".timeindex"))
        name = _name(segment.base, ".txnindex")
        data = self._content(name)
        size = index.TRANSACTION_ENTRY.size
        for number, entry in enumerate(index.aborted_transactions(data[: len(data) - len(data) % size])):
            if entry.refused:
                self._refuse("KafkaException", self.files[name].origin, number * size, "txnindex")
                return True
            if entry.last_offset < segment.base:
                return False
        return True

    def _recover_log(self) -> int:
        """The log end offset."""
        bases = sorted(self.segments)
        unflushed = bases[max(0, bisect_right(bases, self.start.recovery_point) - 1) :]
        for number, base in enumerate(unflushed):
            segment = self.segments[base]
            try:
                truncated = self._recover(segment)
            except _Backwards:
                truncated = self._wipe(segment)
            if truncated > 0:
                for later in unflushed[number + 1 :]:
                    self._delete_segment(later)
                break
        if self.segments:
            log_end = self.end_of(self.segments[max(self.segments)])
            if log_end >= self.start.log_start_offset:
                return log_end
            for base in bases:
                self._delete_segment(base)
            self.epochs.entries.clear()
            self.epochs.written = True
            for name in self.list_snapshots().values():
                self.delete(name)
        self._make(self.start.log_start_offset)
        return self.start.log_start_offset

    def _delete_segment(self, base: int) -> None:
        if self.segments.pop(base, None) is not None:
            for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
                self.delete(_name(base, suffix))

    def _create_indexes(self, base: int) -> None:
        for suffix in (".index", ".timeindex"):
            self._create(_name(base, suffix))

    # ---- one segment

    def _recover(self, segment: _Segment) -> int:
        """LogLoader.recoverSegment: how many bytes are cut off."""
        if segment.held.origin:
            self.recovered.add(segment.held.origin)
        self._create_indexes(segment.base)
        if _name(segment.base, ".txnindex") in self.files:
            self.files[_name(segment.base, ".txnindex")] = _NEW
        before = segment.size
        producers = _Producers(self)
        self._rebuild(producers, self.start.log_start_offset, segment.base)
        if segment.proved is not None:
            for epoch, first in segment.proved.epochs:
                self.epochs.seen(epoch, first)
            producers.skip(segment, segment.proved)
        else:
            producers.catch_up()
            try:
                self.replay(segment, producers)
            except _Overflow:
                raise _Split(segment) from None
        producers.take_snapshot()
        return before - segment.size

    def replay(self, segment: _Segment, producers: _Producers) -> None:
        """LogSegment.recover: walk to the first bad batch, make the indexes, cut the rest off. Raises _Overflow, _Backwards."""
        segment.clear_index()
        file, base, interval = segment.file, segment.base, self.start.index_interval_bytes
        end, buffer, unpack = file.size, file.window.buffer, _HEADER.unpack_from
        times = _TimeIndex(base)
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
                last = _int64(offset + delta)
            else:
                if file.checksum(position, 16, total, crc.crc32) != epoch & 0xFFFFFFFF:
                    break
                last = offset
                at = file.load(position, HEADER_SIZE)
                timestamp = -1 if magic == 0 else _TIMESTAMP.unpack_from(buffer, at + 18)[0]
            if not _fits(last, base) and base not in self.stuck:
                raise _Overflow(position)
            if timestamp > largest:
                largest, largest_offset = timestamp, last
            if position - indexed > interval:
                if segment.offsets and last <= segment.offsets[-1]:
                    raise _Backwards
                segment.offsets.append(last)
                segment.positions.append(position)
                times.append(largest, largest_offset)
                indexed = position
            batch = _Seen(position, total, offset, magic)
            position += total
            if magic < 2:
                continue
            try:
                self.epochs.seen(epoch, offset)
                done = producers.apply(file, batch, header, producers.begun) if producer >= 0 else None
                if done is not None:
                    first, aborts = done
                    if aborts and 0 <= offset <= last_abort:
                        raise _Refused("IllegalArgumentException", batch.position, "marker")
                    if aborts:
                        last_abort = offset
                        self._create(_name(base, ".txnindex"))
                    producers.complete(first, batch.position)
            except _Refused as refused:
                self._failed(_Refused(refused.exception, batch.position, refused.word), segment)
                if refused.exception == "InvalidRecordException":
                    break  # caught here, so that what follows is cut off; not when the batch is read again
            producers.map_end = last + 1
        self._resize(segment, position)
        times.append(largest, largest_offset)

    def add(self, producers: _Producers, segment: _Segment, start: int, end: int) -> None:
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
                except _Refused as refused:
                    self._failed(refused, segment)
                else:
                    if done is not None:
                        completed.append((done[0], batch.position))
        except (_Corrupt, _Refused) as problem:
            self._failed(problem, segment)
        producers.begun.update(begun)
        for first, position in completed:
            try:
                producers.complete(first, position)
            except _Refused as refused:
                self._failed(refused, segment)

    def _rebuild(self, producers: _Producers, log_start: int, log_end: int) -> None:
        """UnifiedLog.rebuildProducerState: the newest snapshot, and the batches from there to `log_end`."""
        bases = sorted(self.segments)
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
                except (_Corrupt, _Refused) as problem:
                    self._failed(problem, segment)
        producers.map_end = log_end
        producers.take_snapshot()

    def _add_from(self, producers: _Producers, segment: _Segment, start: int, log_end: int | None) -> None:
        proved = segment.proved
        if proved is not None and (start in (segment.base, proved.next_offset) or proved.transactions is not None):
            if start == segment.base and proved.wrappers:
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
                raise _Refused("IllegalArgumentException", position, "backwards")
            self.add(producers, segment, position, stop)

    def _translate(self, segment: _Segment, offset: int) -> int | None:
        """LogSegment.translateOffset: the position of the first batch that holds the offset or is above it."""
        if not segment.indexed and segment.proved is None:
            self._load_index(segment, _name(segment.base, ".index"))
        file = segment.file
        previous: _Seen | None = None
        for batch in file.batches(segment.lookup(offset), segment.size):
            first = file.first_offset(batch)
            if first >= offset:
                if first > offset and previous is not None and file.last_offset(previous) >= offset:
                    return previous.position
                return batch.position
            previous = batch
        return previous.position if previous is not None and file.last_offset(previous) >= offset else None

    def end_of(self, segment: _Segment) -> int:
        try:
            return self.next_offset(segment)
        except (_Corrupt, _Refused) as problem:
            self._failed(problem, segment)
            return segment.base

    def next_offset(self, segment: _Segment) -> int:
        """LogSegment.readNextOffset: behind the last batch of those from the last index entry on. Raises _Corrupt, _Refused."""
        if segment.proved is not None:
            return segment.proved.next_offset
        position = self._translate(segment, segment.offsets[-1] if segment.offsets else segment.base)
        if position is None:
            return segment.base
        last = deque(segment.file.batches(position, segment.size), maxlen=1)
        return _int64(segment.file.last_offset(last[0]) + 1) if last else segment.base

    def _wipe(self, segment: _Segment) -> int:
        """LogSegment.truncateTo the base offset, after an index refused an entry: how many bytes go, as a rule all."""
        if segment.held.origin:
            self.wiped.add(segment.held.origin)
        try:
            position = self._translate(segment, segment.base)
        except (_Corrupt, _Refused) as problem:
            self._failed(problem, segment)
            position = 0
        segment.clear_index()
        size = segment.size
        if position is not None:
            self._resize(segment, position)
        return size - segment.size

    # ---- overflow

    def _split(self, segment: _Segment) -> None:
        """LocalLog.splitOverflowedSegment; where that fails the segment is taken as it is."""
        try:
            following = self.next_offset(segment)
            if following <= segment.base or _fits(following - 1, segment.base):
                raise _Refused("IllegalArgumentException", None, "split")
            parts = self._parts(segment)
        except (_Corrupt, _Refused) as problem:
            self._failed(problem, segment)
            self.stuck.add(segment.base)
            return
        bases = [base for base, _, _ in parts]
        held = segment.held
        if held.origin:
            self.split[held.origin] = tuple(
                sorted({*self.split.get(held.origin, ()), *bases} - {segment.base} | {*bases})
            )
        if segment.base in self.segments:
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                self.files.pop(_name(segment.base, suffix), None)
            if segment.base not in bases:
                self.delete(_name(segment.base, ".snapshot"))
            del self.segments[segment.base]
        for base, start, size in sorted(parts):
            name = _name(base, ".log")
            self.files[name] = _Held(held.origin, held.start + start, size)
            self.files[_name(base, ".index")] = self.files[_name(base, ".timeindex")] = _NEW
            self.segments[base] = self.segment(name, base)
        if segment.base != min(bases):
            self.segments.pop(segment.base, None)

    def _parts(self, segment: _Segment) -> list[tuple[int, int, int]]:
        """Base offset, position and size of the new segments. Raises _Corrupt, _Refused."""
        file, parts, position = segment.file, list[tuple[int, int, int]](), 0
        while position < segment.size:
            first = next(file.batches(position, segment.size), None)
            if first is None:
                raise _Refused("NoSuchElementException", position, "split")
            base = file.first_offset(first)
            if any(base == other for other, _, _ in parts):
                raise _Refused("NoSuchFileException", position, "split")
            size = self._copied(file, base, position)
            if size == 0:
                raise _Refused("IllegalStateException", position, "split")
            parts.append((base, position, size))
            position += size
        return parts

    def _copied(self, file: _Bytes, base: int, start: int) -> int:
        """LogSegment.appendFromFile: the bytes of the batches from `start` on that a segment with this base can hold."""
        since, largest, largest_offset, last_indexed = 0, -1, base, None
        times, position = _TimeIndex(base), start
        try:
            for batch in file.batches(start, file.size):
                last = file.last_offset(batch)
                if not _fits(last, base):
                    break
                if not 0 <= batch.magic <= 2:
                    raise _Corrupt(batch.position)
                timestamp = file.timestamp(batch)
                if timestamp > largest:
                    largest, largest_offset = timestamp, last
                if since > self.start.index_interval_bytes:
                    if last_indexed is not None and last <= last_indexed:
                        raise _Backwards
                    times.append(largest, largest_offset)
                    last_indexed, since = last, 0
                since += batch.total
                position += batch.total
            times.append(largest, largest_offset)
        except _Backwards:
            raise _Refused("InvalidOffsetException", position, "split") from None
        return position - start


# ---- what it does about a finding

_REFUSED: Final[Mapping[str, frozenset[str]]] = {
    "name": frozenset({"file/name", "file/leftover", "file/orphan", "snapshot/name"}),
    "epochs": frozenset({"epoch/format", "epoch/order"}),
    "metadata": frozenset({"metadata/format"}),
    "txnindex": frozenset({"txnindex/version"}),
    "split": frozenset({"offset/range"}),
    "transaction": frozenset({"txn/state"}),
    "marker": frozenset({"offset/backwards", "offset/range", "segment/overlap"}),
    "control": frozenset({"control/structure", "record/structure", "batch/codec", "batch/count"}),
    "backwards": frozenset({"offset/backwards", "segment/overlap"}),
    "walk": frozenset({"batch/length", "gap/bytes", "gap/unsearched", "tail/torn", "tail/zeros", "tail/garbage"}),
    "wrapper": frozenset({"legacy/wrapper", "batch/codec", "batch/limit"}),
}
"""The codes of what a refusal is about, by its word."""

_DIRECTORY: Final[Mapping[str, str]] = {
    "properties/format": "refuses",
    # The checkpoints of a log directory are written anew from the logs that were loaded.
    "checkpoint/unknown": "deletes",
    "checkpoint/beyond": "rebuilds",
    "checkpoint/below": "rebuilds",
    "checkpoint/duplicate": "rebuilds",
    "checkpoint/log-start": "deletes",
}
_HIGH_WATERMARKS: Final = "replication-offset-checkpoint"


def judge(findings: Iterable[Finding], outcome: Outcome | None) -> Iterator[Finding]:
    """The findings of one partition with their `broker`, in the same order; of a log directory itself with no outcome."""
    for finding in findings:
        yield replace(finding, broker=word(finding, outcome))


def word(finding: Finding, outcome: Outcome | None) -> str:
    """What the start does about it, in one word.

    `refuses`: because of this the broker does not start. `truncates`: these bytes are cut off, or all of a file is. `deletes`: the file goes, or the entry does.
    `rebuilds`: the file is made anew from the log, a segment is split, a .swap file put into its place, a checkpoint written as it should be. `ignores`: nothing,
    also where the start stops before, or does not look because the recovery point lies above.
    """
    name, code = os.path.basename(finding.path), finding.code
    if outcome is None:
        if code == "checkpoint/format":
            return "refuses" if name == _HIGH_WATERMARKS else "ignores"
        return _DIRECTORY.get(code, "ignores")
    if any(_is_about(refusal, finding, name) for refusal in outcome.refusals):
        return "refuses"
    if code in _DIRECTORY:
        return _DIRECTORY[code]
    if name in outcome.promoted:
        return "truncates" if name in outcome.cuts else "rebuilds"
    if name.endswith(".snapshot"):
        number = _number(name)
        return "rebuilds" if number in outcome.snapshots else "deletes" if name in outcome.deleted else "ignores"
    if name in outcome.deleted:
        return "deletes"
    if name.endswith((".index", ".timeindex", ".txnindex")):
        return "rebuilds" if name.rpartition(".")[0] + ".log" in outcome.recovered else "ignores"
    if name == EPOCHS:
        return _epoch_word(finding, outcome)
    if name.endswith(".checkpoint"):
        return "refuses" if finding.severity is Severity.ERROR else "ignores"
    if finding.code.startswith(("segment/", "file/")):
        return "ignores"
    if name in outcome.split and code == "offset/range":
        return "rebuilds"
    cut = outcome.cuts.get(name)
    return "truncates" if cut is not None and finding.position + max(1, finding.length) > cut else "ignores"


def _is_about(refusal: Refusal, finding: Finding, name: str) -> bool:
    if refusal.name != name or finding.code not in _REFUSED.get(refusal.word, ()):
        return False
    if refusal.position is None:
        return True
    return finding.position <= refusal.position < finding.position + max(1, finding.length)


def _epoch_word(finding: Finding, outcome: Outcome) -> str:
    epoch = finding.data.get("epoch")
    left = dict(outcome.epochs)
    if finding.code == "epoch/missing":
        return "rebuilds" if epoch in left else "ignores"
    if epoch not in left:
        return "deletes"
    return "ignores" if left[epoch] == finding.data.get("start_offset", left[epoch]) else "rebuilds"
