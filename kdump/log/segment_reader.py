"""One segment of a log, to be read by offset: what readers see of a log, and where in a file the batch is that holds an offset.

The offset index is a hint. Of its entries only those are used that a walk comes to: it begins at an entry at least WINDOW_BYTES before (or at the beginning of the file), goes
over nothing but sound batches whose offsets rise, and finds every entry on the way at the beginning of a batch and above all offsets before. So neither entries into the middle of a batch, nor entries
onto batches that lie in a value, nor offsets that are another segment's lead a reader astray. It is done once for each window of the file that is read from.

Where an index is missing, not in order, older than the log, or does not stand this test, the segment is walked once as kdump.storage.walk.Walk does, and from then on an index of our own is used.
"""

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kdump.errors import SourceError, reason
from kdump.format.batch import NULL
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndexEntry, measure
from kdump.format.naming import Kind
from kdump.kernel.results import Carry
from kdump.kernel.scan import SUSPECTS, Scanner, ordered
from kdump.kernel.seek import (
    SEEK_DAMAGED,
    SEEK_ENDED,
    SEEK_FOUND,
    SEEK_LARGE,
    SEEK_UNPROVED,
    TAKE_BYTES,
    WINDOW_BYTES,
    Seeker,
    follow,
    positions,
)
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource, Source, reader
from kdump.storage.walk import (
    MAX_BATCH_BYTES,
    BatchChunk,
    ForeignBatch,
    Gap,
    Item,
    SearchLimit,
    ShrunkFile,
    Tail,
    Walk,
)
from kdump.storage.walk07 import walk_of

OWN_INTERVAL_BYTES: Final = 16 << 10
"""How far apart the entries of an index of our own stand."""
STALE_BYTES: Final = 2 << 20
"""An index whose last entry lies further before the end is older than the log."""
MAX_INDEX_BYTES: Final = 64 << 20
_OPEN_SEGMENTS: Final = 64
_STRIDE_BYTES: Final = 256 << 10
_MOST_WINDOWS: Final = 16
_SMALL_BYTES: Final = 64 << 10  # so much is walked through without an index
_GROWN_BYTES: Final = 128 << 10
_GOES_BACK: Final = 1 << SUSPECTS.index("offset/backwards") | 1 << SUSPECTS.index("offset/range")
_DAMAGES: Final = ("batch/crc", "batch/magic", "batch/limit")


class SegmentDescription(NamedTuple):
    """A segment at a moment.

    `next_offset` follows its last batch, and is the base offset without one. `largest_timestamp_ms` is that of its last time index entry, -1 without one;
    `modified_ms` is when its log file was written to last. `active`: the one that is appended to.
    """

    base_offset: int
    path: str
    size_bytes: int
    next_offset: int
    largest_timestamp_ms: int
    modified_ms: int
    active: bool


class LogSnapshot(NamedTuple):
    """What readers see of a log at a moment; it never changes, and whoever writes puts another one in its place.

    `closed` are the segments before the active one, oldest first; as long as none comes or goes it stays the same tuple. Of the active segment, the bytes up to its
    `size_bytes` are there. None is active in a log without a segment. Offsets from `start_offset` on up to before `end_offset` can be read.
    """

    closed: tuple[SegmentDescription, ...]
    active: SegmentDescription | None
    start_offset: int
    end_offset: int

    @property
    def segments(self) -> tuple[SegmentDescription, ...]:
        return self.closed if self.active is None else (*self.closed, self.active)


class DamagedRange(NamedTuple):
    """Bytes of a log file that a read passed over; `what` is the code of the finding: batch/crc, batch/magic, batch/limit, gap/bytes, gap/unsearched, tail/torn …"""

    path: str
    position: int
    length: int
    what: str


class BatchLocation(NamedTuple):
    """The first batch whose last offset is the sought one or above: its place, its offsets (`first` is NULL for a wrapper), its bytes unless it is large.

    The walk began at `begin`, where an entry of the segment's offset index with the offset `entry` led; -1 where there was none. `passed` lay before the batch, and
    behind all batches below. `preceded`: there was one below.
    """

    position: int
    size: int
    first: int
    last: int
    body: bytes | None
    entry: int
    begin: int
    passed: tuple[DamagedRange, ...]
    preceded: bool


class NoBatch(NamedTuple):
    """A segment has no such batch; `passed` and `preceded` are those of Located."""

    passed: tuple[DamagedRange, ...]
    preceded: bool


class _IndexView(NamedTuple):
    """The entries of an offset index. `proved` has a byte for each window, not 0 where its entries are to be believed; None where all are."""

    slots: bytes
    entries: int
    proved: bytearray | None
    size: int

    def at(self, base_offset: int, entry: int) -> OffsetIndexEntry:
        relative, position = OFFSET_ENTRY.unpack_from(self.slots, entry * OFFSET_ENTRY.size)
        return OffsetIndexEntry(base_offset + relative, position)


_NO_INDEX: Final = _IndexView(b"", 0, None, 1 << 62)


class _Own(NamedTuple):
    """What a walk over the whole segment, of `size` bytes then, has left: the entries of both indexes, the largest timestamp, the last offset (None: no batch).

    `regular`: its offsets rise; where they do not, there are no entries. `scanner` can go on at `size`; None where the last bytes were no batch.
    """

    entries: _IndexView
    times: bytes
    largest_timestamp: int
    last_offset: int | None
    regular: bool
    scanner: Scanner | None
    size: int


class _Handle(FileSource):
    """A file that is closed when nobody reads from it any more."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.descriptor = self.fileno()

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close()


class _Upto:
    """The beginning of a source."""

    def __init__(self, source: Source, size: int) -> None:
        self.name = source.name
        self.size = size
        self._source = source

    def readinto(self, position: int, buffer: memoryview) -> int:
        return self._source.readinto(position, buffer[: max(0, self.size - position)])

    def size_now(self) -> int:
        return min(self.size, self._source.size_now())

    def close(self) -> None:
        """The source is somebody else's."""


class SegmentCache:
    """The segments of a log whose files are open and whose indexes are in memory: those that were read from last."""

    def __init__(self) -> None:
        self.seeker = Seeker()
        self._order: OrderedDict[SegmentReader, None] = OrderedDict()
        self.last: SegmentReader | None = None

    def touch(self, segment: "SegmentReader") -> None:
        self.last = segment
        # Each step is one that other threads can come between.
        self._order.pop(segment, None)
        self._order[segment] = None
        while len(self._order) > _OPEN_SEGMENTS:
            oldest, _ = self._order.popitem(last=False)
            oldest.let_go()

    def drop(self, segments: Iterable["SegmentReader"]) -> None:
        """They are of the log no longer; whoever still reads them has them."""
        for segment in segments:
            self._order.pop(segment, None)
        self.last = None

    def clear(self) -> None:
        self.last = None
        while self._order:
            self._order.popitem()[0].let_go()


class SegmentReader:
    """Reads one segment by offset. `size` is how many of its bytes count; callers that know of more, or see less, say so with every call.

    `identity` is (device, inode) of the file that is meant, None for whatever is there. Raises SourceError for a file that is gone, is another one, or has become shorter.
    """

    def __init__(
        self,
        shelf: SegmentCache,
        base_offset: int,
        path: str,
        kind: Kind,
        size: int,
        identity: tuple[int, int] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.path = path
        self.kind = kind
        self.size = size
        self._identity = identity
        self._shelf = shelf
        self._handle: _Handle | None = None
        self._pinned = False
        self._index: _IndexView | None = None
        self._own: _Own | None = None
        self._largest = -1, -1  # of so many bytes, the largest timestamp
        self._walking = threading.Lock()
        self._places: list[tuple[int, Carry]] = []  # of Kafka 0.7: where a walk came by, and its state there

    # ---- the file

    @property
    def handle(self) -> _Handle:
        shelf = self._shelf
        if shelf.last is not self and not self._pinned:
            shelf.touch(self)
        return self._handle or self._opened()

    def _opened(self) -> _Handle:
        handle = _Handle(self.path)
        status = os.fstat(handle.descriptor)
        if self._identity is None:
            self._identity = status.st_dev, status.st_ino
        elif (status.st_dev, status.st_ino) != self._identity:
            raise SourceError(f"{self.path}: another file has taken its place since the log was opened")
        self._handle = handle
        return handle

    def pin(self) -> None:
        """Keep the file open, because its name is going away."""
        with suppress(SourceError):
            self._handle = self.handle
            self._pinned = True
        self._shelf.drop([self])

    def let_go(self) -> None:
        """Forget what can be had again."""
        if not self._pinned:
            self._handle = None
        self._index = self._own = None
        self._places = []

    def source(self, size: int) -> Source:
        return _Upto(self.handle, size)

    def modified_ms(self) -> int:
        """When the file was written to last."""
        handle = self.handle
        return os.fstat(handle.descriptor).st_mtime_ns // 1_000_000

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the file. Raises SourceError where they are not all there."""
        handle = self.handle  # nobody closes it meanwhile
        parts, at = [], position
        while at < position + length:
            try:
                part = os.pread(handle.descriptor, position + length - at, at)
            except OSError as error:
                raise SourceError(f"{self.path}: reading at byte {at}: {reason(error)}") from None
            if not part:
                raise self._shrunk(at, position + length)
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def take(self, position: int, size: int, limit: int, last: int) -> tuple[bytes, int]:
        """The batch of `size` bytes at `position` and the sound ones behind it, in at most `limit` bytes, with their last offset; that of the first one is `last`. Raises SourceError."""
        if limit > TAKE_BYTES:
            data = self.read(position, limit)
            end, last = follow(data, size, limit, last)
            return data[:end], last
        handle = self.handle
        try:
            taken = self._shelf.seeker.take(handle.descriptor, position, size, limit, last)
        except OSError as error:
            raise SourceError(f"{self.path}: reading at byte {position}: {reason(error)}") from None
        if taken is None:
            raise self._shrunk(handle.size_now(), position + limit)
        return taken

    def _shrunk(self, at: int, expected: int) -> SourceError:
        return SourceError(f"{self.path}: the file ended at byte {at} of {expected} while it was read")

    # ---- by offset

    def find(self, target: int, size: int) -> BatchLocation | NoBatch:
        """The first batch whose last offset is `target` or above, in the first `size` bytes; Absent without one."""
        if self.kind is Kind.KAFKA07:
            return self._find_07(target, size)
        handle = self.handle
        changed = False
        while True:
            index = self._entries(size)
            slots, entries, proved, _ = index
            try:
                status, offset, begin, position, length, first, last, body = self._shelf.seeker.seek(
                    handle.descriptor, slots, entries, proved, self.base_offset, target, size
                )
            except OSError as error:
                raise SourceError(f"{self.path}: {reason(error)}") from None
            if proved is None:
                offset = -1
            if status == SEEK_FOUND:
                return BatchLocation(position, length, first, last, body, offset, begin, (), position > begin)
            if status == SEEK_UNPROVED:
                self._prove(index, begin, size)
            elif status == SEEK_ENDED:
                return NoBatch((), size > begin)
            elif status == SEEK_DAMAGED and position == begin > 0 and not changed:
                # There was a batch: these are other bytes than those that were proved.
                self._index = self._own = None
                changed = True
            elif status in (SEEK_DAMAGED, SEEK_LARGE):
                return self._walk_to(target, begin, size, offset)
            else:
                raise self._shrunk(handle.size_now(), size)

    def _walk_to(self, target: int, begin: int, size: int, entry: int) -> BatchLocation | NoBatch:
        """As `find`, batch by batch from `begin` on, over whatever stands in the way."""
        passed: list[DamagedRange] = []
        preceded = False
        for item in self._items(begin, size):
            if not isinstance(item, BatchChunk) or item.damaged:
                passed += self._passed(item)
                continue
            for batch in item.rows():
                first, last = batch.base_offset, batch.last_offset
                if last >= target:
                    # Nothing is missed where the batch itself has the offset.
                    before = () if NULL < first <= target else tuple(passed)
                    return BatchLocation(batch.position, batch.size, first, last, None, entry, begin, before, preceded)
                passed.clear()
                preceded = True
        return NoBatch(tuple(passed), preceded)

    def _items(self, begin: int, size: int) -> Iterator[Item]:
        yield from walk_of(
            self.kind, self.source(size), base_offset=self.base_offset, start=begin, everything=True, rows=64
        )

    def _passed(self, item: Item) -> Iterator[DamagedRange]:
        match item:
            case BatchChunk():
                for batch in item.rows():
                    what = next(code for code in _DAMAGES if batch.suspect >> SUSPECTS.index(code) & 1)
                    yield DamagedRange(self.path, batch.position, batch.size, what)
            case Gap():
                yield DamagedRange(self.path, item.position, item.length, "gap/bytes")
            case SearchLimit():
                yield DamagedRange(self.path, item.position, item.length, "gap/unsearched")
            case Tail():
                yield DamagedRange(self.path, item.position, item.length, f"tail/{item.reason}")
            case ShrunkFile():
                raise self._shrunk(item.position, item.position + item.length)
            case ForeignBatch():
                return

    # ---- what is known of the indexes

    def _entries(self, size: int) -> _IndexView:
        """The entries to begin from, for a segment of so many bytes."""
        index = self._index
        if index is not None and index.size == size and index.proved is not None:
            return index
        own = self._own
        if own is not None and own.size > size - _GROWN_BYTES:
            return own.entries
        if index is None or index.size < size - _GROWN_BYTES:
            index = self._index = self._read_index(size, index)
        return self._walked(size).entries if index is _NO_INDEX else index

    def _read_index(self, size: int, before: _IndexView | None) -> _IndexView:
        """The offset index beside the log, as far as it goes; _NO_INDEX for one that cannot be one."""
        path = f"{self.path.removesuffix('.log')}.index"
        slots = b""
        if self.path.endswith(f"{self.base_offset:020}.log"):
            with suppress(SourceError), FileSource(path) as source:
                if source.size <= MAX_INDEX_BYTES:
                    read = reader(source)
                    slots = read(0, measure(read, source.size, OFFSET_ENTRY.size).entries)
        entries = len(slots) // OFFSET_ENTRY.size
        if ordered(slots, OFFSET_ENTRY.size) < entries:
            return _NO_INDEX
        inside = positions(slots, entries, size)
        last = OFFSET_ENTRY.unpack_from(slots, (inside - 1) * OFFSET_ENTRY.size)[1] if inside else 0
        if last < size - (STALE_BYTES if inside else _SMALL_BYTES):
            return _NO_INDEX
        proved = bytearray(size // WINDOW_BYTES + 1)
        if before is not None and before.proved is not None and before.entries:
            # What came by is still there; entries may have come to the last window.
            whole = before.at(0, before.entries - 1).position // WINDOW_BYTES
            if slots.startswith(before.slots[: before.entries * OFFSET_ENTRY.size]):
                proved[:whole] = before.proved[:whole]
        return _IndexView(slots, inside, proved, size)

    def _prove(self, index: _IndexView, position: int, size: int) -> None:
        """See whether the entries of the window of that position are to be believed; where they are not, the index is none."""
        slots, entries, proved, _ = index
        assert proved is not None
        window = position // WINDOW_BYTES
        # Whoever reads all over the segment is spared the way to each window.
        last = min(window + proved.count(1), window + _MOST_WINDOWS - 1, len(proved) - 1)
        first = positions(slots, entries, window * WINDOW_BYTES)
        stop = positions(slots, entries, (last + 1) * WINDOW_BYTES)
        anchor = first - 1
        if anchor >= 0 and not proved[index.at(0, anchor).position // WINDOW_BYTES]:
            anchor = positions(slots, entries, (window - 1) * WINDOW_BYTES + 1) - 1
        start = index.at(0, anchor).position if anchor >= 0 else 0
        handle = self.handle
        try:
            borne_out = self._shelf.seeker.prove(
                handle.descriptor, slots, max(anchor, 0), stop, self.base_offset, start, size
            )
        except OSError as error:
            raise SourceError(f"{self.path}: {reason(error)}") from None
        if borne_out:
            proved[window : last + 1] = b"\1" * (last + 1 - window)
        else:
            self._index = _NO_INDEX

    def _walked(self, size: int) -> _Own:
        """What a walk over the segment says; it goes on where it ended before."""
        # Two threads may not walk on with one scanner.
        with self._walking:
            own = self._own
            if own is None or own.size != size:
                # Where the walk fails, its scanner is in the middle of nowhere.
                self._own = None
                own = self._own = self._walked_on(own, size)
                self._largest = size, own.largest_timestamp
            return own

    def _walked_on(self, own: _Own | None, size: int) -> _Own:
        if own is None or own.scanner is None or own.size > size:
            walk = Walk(self.source(size), base_offset=self.base_offset)
            assert isinstance(walk.scanner, Scanner)
            scanner, regular = walk.scanner, True
            scanner.record(OWN_INTERVAL_BYTES)
        else:
            walk = Walk(self.source(size), base_offset=self.base_offset, start=own.size)
            walk.scanner = scanner = own.scanner
            regular = own.regular
        whole = True
        for item in walk:
            if isinstance(item, BatchChunk):
                regular = regular and not any(row.suspect & _GOES_BACK for row in item.rows())
            elif isinstance(item, Tail):
                whole = False
            elif isinstance(item, ShrunkFile):
                raise self._shrunk(item.position, size)
        made = scanner.recorded() if regular else None
        slots, times = made or (b"", b"")
        seen = scanner.state()
        return _Own(
            _IndexView(slots, len(slots) // OFFSET_ENTRY.size, None, size),
            times,
            seen.max_timestamp,
            seen.known_last if seen.has_last else None,
            made is not None,
            scanner if whole else None,
            size,
        )

    # ---- the end

    def next_offset(self, size: int) -> int:
        """What follows the last batch in the first `size` bytes; the base offset without one."""
        if self.kind is Kind.KAFKA07:
            return self.base_offset + self._end_07(size)
        index = self._entries(size)
        own = self._own
        if own is not None and own.size == size:
            return self.base_offset if own.last_offset is None else max(own.last_offset + 1, self.base_offset)
        begin = 0
        if entries := positions(index.slots, index.entries, size):
            begin = index.at(self.base_offset, entries - 1).position
            if index.proved is not None and not index.proved[begin // WINDOW_BYTES]:
                self._prove(index, begin, size)
                return self.next_offset(size)
        walk = Walk(self.source(size), base_offset=self.base_offset, start=begin)
        for item in walk:
            if isinstance(item, ShrunkFile):
                raise self._shrunk(item.position, size)
        seen = walk.scanner.state()
        return max(seen.next_offset(self.base_offset), self.base_offset)

    # ---- by time

    def at_time(self, timestamp_ms: int, start_offset: int, size: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record, from `start_offset` on, whose timestamp is not below this one. By what the batches say, whatever the time index does."""
        if self.kind is Kind.KAFKA07:
            return None
        if self._largest[0] == size and self._largest[1] < timestamp_ms:
            return None
        own = self._walked(size)
        if own.largest_timestamp < timestamp_ms:
            return None
        low, high = 0, len(own.times) // TIME_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if TIME_ENTRY.unpack_from(own.times, middle * TIME_ENTRY.size)[0] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        begin = 0
        if timestamp_ms >= 0 and low * TIME_ENTRY.size < len(own.times):  # no record is below -1
            # The first batch that is late enough comes behind the last entry of the offset index before this one, where the largest timestamp was still below.
            relative = TIME_ENTRY.unpack_from(own.times, low * TIME_ENTRY.size)[1]
            begin = self._position_below(own.entries, relative)
        for item in self._items(begin, size):
            if not isinstance(item, BatchChunk) or item.damaged:
                continue
            for batch in item.rows():
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    for record in records(batch, open_batch(batch, item.body(batch), MAX_BATCH_BYTES)):
                        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                            return record.offset, record.timestamp
        return None

    @staticmethod
    def _position_below(index: _IndexView, relative: int) -> int:
        """The position of the last entry whose offset is below that one, 0 without one."""
        low, high = 0, index.entries
        while low < high:
            middle = (low + high) // 2
            if index.at(0, middle).offset < relative:
                low = middle + 1
            else:
                high = middle
        return index.at(0, low - 1).position if low else 0

    def last_time_entry(self) -> int:
        """The timestamp of the last entry of the time index beside the log, -1 without one; it is not held against the log."""
        path = f"{self.path.removesuffix('.log')}.timeindex"
        if self.path.endswith(f"{self.base_offset:020}.log"):
            with suppress(SourceError), FileSource(path) as source:
                read = reader(source)
                stop = measure(read, source.size, TIME_ENTRY.size).entries
                if stop:
                    return int(TIME_ENTRY.unpack(read(stop - TIME_ENTRY.size, TIME_ENTRY.size))[0])
        return -1

    # ---- Kafka 0.7: an offset is a position

    def _find_07(self, target: int, size: int) -> BatchLocation | NoBatch:
        sought = max(0, target - self.base_offset)
        position, carry, passed = self._reach_07(sought, size)
        begin = position
        for item in walk_of(
            self.kind,
            self.source(size),
            base_offset=self.base_offset,
            start=position,
            carry=carry,
            everything=True,
            rows=1,
        ):
            if isinstance(item, BatchChunk) and not item.damaged:
                batch = item.row(0)
                offset = batch.base_offset
                return BatchLocation(
                    batch.position, batch.size, offset, offset, None, -1, begin, tuple(passed), position > 0
                )
            passed += self._passed(item)
        return NoBatch(tuple(passed), position > 0)

    def _reach_07(self, sought: int, size: int) -> tuple[int, Carry | None, list[DamagedRange]]:
        """Where the first batch at or behind a position is, the state of a walk there, and what of the bytes from the position on is none."""
        number = bisect_right(self._places, sought, key=lambda place: place[0]) - 1
        position, carry = self._places[number] if number >= 0 else (0, None)
        passed: list[DamagedRange] = []
        while position < sought:
            walk = walk_of(
                self.kind,
                self.source(size),
                base_offset=self.base_offset,
                start=position,
                stop=min(sought, position + _STRIDE_BYTES),
                carry=carry,
            )
            for item in walk:
                if not isinstance(item, BatchChunk) or item.damaged:
                    passed += self._passed(item)
            position, carry = walk.position, walk.scanner.state().carry
            if not self._places or position > self._places[-1][0] + _STRIDE_BYTES // 2:
                # Another thread may have come by, too; they have to stay in order.
                self._places = sorted([*self._places, (position, carry)])
        return position, carry, [each for each in passed if each.position + each.length > sought]

    def _end_07(self, size: int) -> int:
        """Where the last entry ends."""
        end = 0
        position, carry, _ = self._reach_07(max(0, size - _STRIDE_BYTES), size)
        for item in walk_of(
            self.kind, self.source(size), base_offset=self.base_offset, start=position, carry=carry, everything=True
        ):
            if isinstance(item, BatchChunk) and not item.damaged:
                last = item.row(item.batches - 1)
                end = last.position + last.size
        return end or position
