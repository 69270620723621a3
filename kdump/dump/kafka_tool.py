"""An offset or time index beside its log, compared as Kafka's dump tool does (`org.apache.kafka.tools.DumpLogSegments` of 4.3.1).

For an entry of an offset index the tool looks at the batch at the position; the last offset of that has to be the entry's. For an entry of a
time index it looks the offset up in the offset index, and goes from there through the log to the first batch whose last offset reaches it: the offset
has to be the last one of that batch, and the timestamp the largest one of its records. It stops where padding begins: at an entry of the base
offset that is not the first one. Batches are what stands there by their lengths (kdump.broker.kafka_reader); nothing is checksummed.

Brokers themselves write entries that the tool reports: before Kafka 2.0 that of the first record of a batch, since then that of the last one of all
batches that were appended together; and of messages of magic 0, or of a batch that compaction has emptied, the tool knows no timestamp. So a report has a severity of its own.

The tool goes through the log once for each entry of a time index. Here all entries go through it together.
"""

import os
import sys
from array import array
from collections.abc import Callable, Iterator
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Final, NamedTuple

from kdump.broker.file_records import checksum, frame_size, header_batch
from kdump.dump.companion_files import CompanionDamage
from kdump.errors import SourceError
from kdump.format.batch import CODEC_MASK, HEADER_SIZE, NULL, Batch, wrapped
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, blocks, measure
from kdump.format.naming import Kind
from kdump.kernel.records import RECORD_COLUMNS
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch
from kdump.storage.source import FileSource, Source, reader, whole
from kdump.verify.findings import Severity

ENTRIES: Final = {Kind.INDEX: OFFSET_ENTRY, Kind.TIMEINDEX: TIME_ENTRY}
"""The files that are compared, and what their entries are."""

MAX_INDEX_BYTES: Final = 64 << 20
"""The largest offset index in which offsets are looked up; brokers make them of 10 MiB."""

_WINDOW_BYTES = 64 << 10
_TOGETHER = 1 << 17  # entries of a time index that go through the log together
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size  # AbstractIndex.warmEntries

_WIDTH = len(RECORD_COLUMNS)
_TIMESTAMP = RECORD_COLUMNS.index("timestamp")
_NO_TIMESTAMP = -1


class ReportKind(Enum):
    """What the numbers of a report are: what the index says, and what was found."""

    OFFSET = auto()  # offset of the entry, last offset of the batch at its position
    TIMESTAMP = auto()  # timestamp of the entry, largest one in the batch with its offset
    ORDER = auto()  # timestamp of the entry, that of the entry before
    NOT_FOUND = auto()  # offset of the entry, last offset of the batch around it, -1 without one


class IndexReport(NamedTuple):
    """What the tool reports of an index: in the order of the entries, with the worst severity of all of them."""

    path: str
    what: ReportKind
    pairs: list[tuple[int, int]]
    severity: Severity


class SanityCheckPassed(NamedTuple):
    """The sanity check of an index passed."""

    path: str


# --- the index alone --------------------------------------------------------------------------------------------------


def check(file: LogFile, source: Source) -> SanityCheckPassed | CompanionDamage | None:
    """The check that OffsetIndex and TimeIndex have for themselves (`sanityCheck`); None for an offset index without entries, which the tool does not check.

    Zeros that a broker took for entries to come make a time index fail; they are as bad as they are elsewhere.
    """
    entry = ENTRIES[file.kind]
    if file.kind is Kind.INDEX and source.size < entry.size:
        return None
    read = reader(source)
    reason = _refused(read, source.size, file.kind)
    if reason is None:
        return SanityCheckPassed(file.path)
    extent = measure(read, source.size, entry.size)
    severity = Severity.ERROR
    if extent.padding and not extent.remainder and _refused(read, extent.entries, file.kind) is None:
        severity = Severity.INFO if file.newest else Severity.WARNING
        reason += f"; the last {extent.padding} bytes are zeros, room for entries to come"
    return CompanionDamage(file.path, severity, f"fails the sanity check: {reason}")


def _refused(read: Callable[[int, int], bytes], size: int, kind: Kind) -> str | None:
    entry = ENTRIES[kind]
    slots = size // entry.size
    if slots:
        first, last = (entry.unpack(read(slot * entry.size, entry.size)) for slot in (0, slots - 1))
        if kind is Kind.TIMEINDEX and last[0] < first[0]:
            return f"the last timestamp {last[0]} is below the first one {first[0]}"
        if last[-1 if kind is Kind.TIMEINDEX else 0] < 0:
            return "the last offset is below the base offset"
    return f"{size} bytes are no multiple of {entry.size}" if size % entry.size else None


# --- the index and its log --------------------------------------------------------------------------------------------


def compare(file: LogFile, source: Source, max_batch_bytes: int) -> Iterator[IndexReport | CompanionDamage]:
    """What the tool reports of an index, and where the tool would end with an exception. Raises SourceError when the log beside it cannot be read."""
    entries = _entries(file, source)
    if next(entries, None) is None:
        return
    if file.base_offset is None:
        raise SourceError(f"{file.path}: not compared with a log: no base offset in its name")
    directory, name = os.path.split(file.path)
    stem = os.path.join(directory, name.partition(".")[0])
    try:
        with FileSource(f"{stem}.log") as log:
            if file.kind is Kind.INDEX:
                yield from _offsets(file, source, _Log(log, max_batch_bytes))
                return
            if os.path.exists(f"{stem}.index"):
                with FileSource(f"{stem}.index") as beside:
                    index = _IndexFile(beside)
            else:
                index = _IndexFile(None)
                yield CompanionDamage(
                    file.path,
                    Severity.WARNING,
                    f"{name.partition('.')[0]}.index is not there; offsets are searched from the beginning of the log",
                )
            yield from _times(file, source, _Log(log, max_batch_bytes), index)
    except SourceError as error:
        raise SourceError(f"{file.path}: not compared with its log: {error}") from None


def _entries(file: LogFile, source: Source) -> Iterator[tuple[int, int]]:
    """The entries that the tool comes to: relative offset and position, or timestamp and relative offset."""
    entry = ENTRIES[file.kind]
    relative = 0 if file.kind is Kind.INDEX else 1
    first = True
    for slots in blocks(reader(source), source.size - source.size % entry.size, entry.size):
        for pair in entry.iter_unpack(slots):
            if pair[relative] == 0 and not first:
                return
            yield pair
            first = False


def _offsets(file: LogFile, source: Source, log: "_Log") -> Iterator[IndexReport | CompanionDamage]:
    base = file.base_offset or 0
    wrong = _Wrong(file.path, ReportKind.OFFSET)
    beyond = _Astray(file, f"lead behind the end of the log, which has {log.size} bytes")
    nowhere = _Astray(file, "lead to bytes that are no batch")
    ahead: list[tuple[int, int]] = []
    for relative, position in _entries(file, source):
        offset = base + relative
        try:
            frame = log.frame(position) if position >= 0 else None
        except ValueError:
            frame = None
        if frame is None:
            (beyond if position >= log.size else nowhere).add(offset, position)
        elif frame.last_offset != offset:
            wrong.add(offset, frame.last_offset, log.judge(frame, offset, Severity.ERROR))
            if offset > frame.last_offset:
                ahead.append((position, offset))
    if not all(log.end_batches(some) for some in _chunks(iter(ahead))):
        wrong.worse(Severity.WARNING)
    yield from wrong.report()
    yield from beyond.damage()
    yield from nowhere.damage()


def _times(file: LogFile, source: Source, log: "_Log", index: "_IndexFile") -> Iterator[IndexReport | CompanionDamage]:
    base = file.base_offset or 0
    mismatch, order, lost = (
        _Wrong(file.path, what) for what in (ReportKind.TIMESTAMP, ReportKind.ORDER, ReportKind.NOT_FOUND)
    )
    stray = _Astray(file, "are sent out of the log by the offset index")
    cut = _Astray(file, "are not found before bytes of the log that are no batch")
    closed = _Astray(file, "are of a batch that cannot be opened")
    previous = _NO_TIMESTAMP
    padded = source.size > TIME_ENTRY.size
    for entries in _chunks(_entries(file, source)):
        places = [index.position(relative) for _, relative in entries]
        wanted = [
            (place, base + entries[number][1], number) for number, place in enumerate(places) if 0 <= place <= log.size
        ]
        found: dict[int, _Frame] = {}
        broken: set[int] = set()
        for reached, numbers in log.search(wanted):
            if reached is _BROKEN:
                broken.update(numbers)
            else:
                found.update(dict.fromkeys(numbers, reached))
        for number, (timestamp, relative) in enumerate(entries):
            offset = base + relative
            frame = found.get(number)
            if number in broken:
                cut.add(timestamp, offset)
            elif not 0 <= places[number] <= log.size:
                stray.add(timestamp, offset)
            elif frame is None:
                lost.add(offset, -1, Severity.WARNING)
            elif frame.last_offset != offset:
                lost.add(offset, frame.last_offset, log.judge(frame, offset, Severity.WARNING))
            elif (largest := log.largest_timestamp(frame)) is None:
                closed.add(timestamp, offset)
            else:
                if largest != timestamp:
                    # the tool takes the first slot of nothing but padding for an entry
                    padding = timestamp == relative == 0 and padded
                    unknown = frame.magic == 0 or frame.batch.max_timestamp == timestamp
                    mismatch.add(timestamp, largest, Severity.INFO if padding or unknown else Severity.WARNING)
                if previous >= timestamp:
                    order.add(timestamp, previous, Severity.ERROR)
            previous = timestamp
    for told in (mismatch, order, lost):
        yield from told.report()
    for astray in (stray, cut, closed):
        yield from astray.damage()


class _Wrong:
    """The pairs of one report as they come up."""

    def __init__(self, path: str, what: ReportKind) -> None:
        self._report = IndexReport(path, what, [], Severity.INFO)

    def add(self, indexed: int, found: int, severity: Severity) -> None:
        self._report.pairs.append((indexed, found))
        self.worse(severity)

    def worse(self, severity: Severity) -> None:
        if severity > self._report.severity:
            self._report = self._report._replace(severity=severity)

    def report(self) -> Iterator[IndexReport]:
        if self._report.pairs:
            yield self._report


class _Astray:
    """Entries that cannot be compared, at which the tool ends with an exception: they are counted, and the first one is named."""

    def __init__(self, file: LogFile, what: str) -> None:
        self._path = file.path
        self._what = what
        self._entry = "offset {} at position {}" if file.kind is Kind.INDEX else "timestamp {} offset {}"
        self._count = 0
        self._first: tuple[int, int] = (0, 0)

    def add(self, first: int, second: int) -> None:
        if not self._count:
            self._first = first, second
        self._count += 1

    def damage(self) -> Iterator[CompanionDamage]:
        if self._count:
            first = self._entry.format(*self._first)
            reason = f"entries that {self._what}: {self._count}, the first one has {first}"
            yield CompanionDamage(self._path, Severity.ERROR, reason)


class _Frame(NamedTuple):
    """What Kafka's readers take for a batch."""

    position: int
    size: int
    header: bytes
    last_offset: int

    @property
    def magic(self) -> int:
        return wrapped(self.header[16], 8)

    @property
    def batch(self) -> Batch:
        return header_batch(self.header.ljust(HEADER_SIZE, b"\0"), self.position, self.size, NULL)


_BROKEN: Final = _Frame(NULL, 0, b"", NULL)
"""In place of a batch: the readers end with an exception."""


class _Log:
    """The log beside an index, as Kafka's readers step through it."""

    def __init__(self, source: Source, max_batch_bytes: int) -> None:
        self.size = source.size
        self._source = source
        self._read = reader(source)
        self._max_batch_bytes = max_batch_bytes
        self._window = memoryview(bytearray(min(_WINDOW_BYTES, source.size)))
        self._origin = self._filled = 0
        self._largest: dict[int, int | None] = {}
        # Batches do not overlap. What only looks like batches can, and must not be read over and over.
        self._left = 8 * source.size + (1 << 20)

    def frame(self, position: int) -> _Frame | None:
        """What the readers see at a position in the file; None where they see the end. Raises ValueError where they end with an exception."""
        at = position - self._origin
        if at < 0 or at + HEADER_SIZE > self._filled:
            self._filled = self._source.readinto(position, self._window[: self.size - position])
            self._origin, at = position, 0
        header = bytes(self._window[at : min(at + HEADER_SIZE, self._filled)])
        size = frame_size(header, position, self.size)
        if size is None:
            return None
        offset = int.from_bytes(header[:8], "big", signed=True)
        if 2 <= header[16] < 128:
            if len(header) < HEADER_SIZE:
                raise ValueError("the file ends in the header")
            offset = wrapped(offset + int.from_bytes(header[23:27], "big", signed=True), 64)
        return _Frame(position, size, header, offset)

    def search(self, wanted: list[tuple[int, int, int]]) -> Iterator[tuple[_Frame, list[int]]]:
        """For position, offset and number: the first batch from there on whose last offset reaches it, with all the numbers that it is for.

        Numbers for which there is none come with _BROKEN when the walk ends with an exception, else not at all. The work grows with
        the log and with what is wanted, wherever the positions are: walks that meet go on as one.
        """
        waiting: dict[int, list[tuple[int, int]]] = {}
        for position, offset, number in wanted:
            waiting.setdefault(position, []).append((offset, number))
        for heap in waiting.values():
            heapify(heap)
        positions = list(waiting)
        heapify(positions)
        while positions:
            position = heappop(positions)
            heap = waiting.pop(position)
            try:
                frame = self.frame(position)
            except ValueError:
                yield _BROKEN, [number for _, number in heap]
                continue
            if frame is None:
                continue
            reached = []
            while heap and heap[0][0] <= frame.last_offset:
                reached.append(heappop(heap)[1])
            if reached:
                yield frame, reached
            if not heap:
                continue
            following = position + frame.size
            if following not in waiting:
                waiting[following] = heap
                heappush(positions, following)
                continue
            other = waiting[following]
            few, many = (heap, other) if len(heap) < len(other) else (other, heap)
            for item in few:
                heappush(many, item)
            waiting[following] = many

    def end_batches(self, ahead: list[tuple[int, int]]) -> bool:
        """Whether each of these offsets is the last one of a batch that comes after the one at the position."""
        wanted = [(position, offset, number) for number, (position, offset) in enumerate(ahead)]
        found = self.search(wanted)
        return len(ahead) == sum(
            frame.last_offset == ahead[number][1] for frame, numbers in found for number in numbers
        )

    def judge(self, frame: _Frame, offset: int, bad: Severity) -> Severity:
        """How bad it is that an entry with this offset leads to the batch, of which it is not the last offset; `bad` where no broker writes such an entry.

        An offset behind the batch is not bad in itself: see `end_batches`.
        """
        if not self._spend(frame.size):
            return bad
        batch = frame.batch
        if checksum(self._read, frame.position, frame.size, frame.header) != batch.crc:
            return bad
        return Severity.INFO if frame.magic < 2 or offset >= batch.base_offset else bad

    def largest_timestamp(self, frame: _Frame) -> int | None:
        """The largest timestamp of the records in a batch, -1 without one; None when its records cannot be read."""
        if frame.position not in self._largest:
            self._largest[frame.position] = self._largest_timestamp(frame)
        return self._largest[frame.position]

    def _largest_timestamp(self, frame: _Frame) -> int | None:
        if frame.magic < 2 and not frame.header[17] & CODEC_MASK:
            # The message itself, of which the tool reads nothing but the timestamp.
            if frame.magic == 0:
                return _NO_TIMESTAMP
            timestamp = int.from_bytes(frame.header[18:26], "big", signed=True)
            return max(_NO_TIMESTAMP, timestamp) if frame.size >= 26 else None
        if frame.magic < 0 or (frame.magic >= 2 and frame.size < HEADER_SIZE):
            return None
        if frame.size > self._max_batch_bytes or not self._spend(frame.size):
            return None
        opened = open_batch(frame.batch, self._read(frame.position, frame.size), self._max_batch_bytes)
        if opened.problem is not None:
            return None
        return max((_NO_TIMESTAMP, *opened.rows[_TIMESTAMP::_WIDTH].tolist()))

    def _spend(self, size: int) -> bool:
        self._left -= size
        return self._left >= 0


class _IndexFile:
    """Lookups in an offset index; without one, as in an empty one."""

    def __init__(self, source: Source | None) -> None:
        numbers: array[int] = array("i")
        if source is not None:
            data = whole(source, MAX_INDEX_BYTES)
            numbers.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY.size])
            if sys.byteorder == "little":
                numbers.byteswap()
        self._offsets = numbers[0::2]
        self._positions = numbers[1::2]

    def position(self, offset: int) -> int:
        """Where to begin to look for a relative offset: the same entry as OffsetIndex.lookup finds, also where entries are out of order."""
        offsets = self._offsets
        if not offsets:
            return 0
        low, high = 0, len(offsets) - 1
        warm = max(0, high - _WARM_ENTRIES)
        if offsets[warm] < offset:
            low = warm
        elif offsets[0] > offset:
            return 0
        else:
            high = warm
        while low < high:
            middle = (low + high + 1) >> 1
            found = offsets[middle]
            if found > offset:
                high = middle - 1
            elif found < offset:
                low = middle
            else:
                return self._positions[middle]
        return self._positions[low]


def _chunks(entries: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(islice(entries, _TOGETHER)):
        yield chunk
