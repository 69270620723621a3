"""Where copies of one history have different records at the same offset, and which of them are right."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.naming import Kind
from kdump.format.record import Record
from kdump.kernel.valid_batches import row
from kdump.log.log_batches import IndexRange, LogBatches
from kdump.log.ranges import OffsetRange, united
from kdump.named_tuple import NamedTuple
from kdump.replicas.replica_copy import ReplicaCopy, Stretch, is_same, is_same_block, part_of
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch, records
from kdump.storage.source import BytesSource, InputFile, reader_of
from kdump.storage.walk import BatchChunk

COPIES: Final = "copies"
ORDER: Final = "order"


class Difference(NamedTuple):
    """Offsets [start, stop) at which copies have different records: the numbers of those that agree, and of the others.

    `by`: COPIES where most copies agree, ORDER where the first copy in the order decides.
    """

    start: int
    stop: int
    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    by: str


class Coverage:
    """The stretches of a copy, in the order of the offsets."""

    def __init__(self, copy: ReplicaCopy, stretches: Sequence[Stretch]) -> None:
        self.copy, self.stretches = copy, stretches
        self._starts = [each.start for each in stretches]

    def at(self, offset: int) -> Stretch | None:
        """The stretch with this offset."""
        number = bisect_right(self._starts, offset) - 1
        return self.stretches[number] if number >= 0 and offset < self.stretches[number].stop else None

    def borders(self) -> Iterator[int]:
        """Where the stretches begin and end."""
        for each in self.stretches:
            yield each.start
            yield each.stop


def differences(coverages: Sequence[Coverage], max_bytes: int) -> list[Difference]:
    """Where the copies differ; `coverages` are in the order by which the first is right. Raises SourceError."""
    pairs: dict[tuple[int, int], list[OffsetRange]] = {}
    for left, right in combinations(range(len(coverages)), 2):
        different = united(_different(coverages[left], coverages[right], max_bytes))
        if different:
            pairs[left, right] = different
    disputed = united(each for several in pairs.values() for each in several)
    borders = {border for several in pairs.values() for each in several for border in each}
    borders.update(border for coverage in coverages for border in coverage.borders())
    found: list[Difference] = []
    ordered = sorted(borders) if disputed else []
    at = 0
    for start, stop in pairwise(ordered):
        while at < len(disputed) and disputed[at].stop <= start:
            at += 1
        if at == len(disputed):
            break
        if disputed[at].start <= start:
            _add(found, _decide(coverages, pairs, OffsetRange(start, stop)))
    return found


def _add(found: list[Difference], each: Difference | None) -> None:
    if each is None:
        return
    if found and found[-1].stop == each.start and found[-1][2:] == each[2:]:
        found[-1] = each._replace(start=found[-1].start)
    else:
        found.append(each)


def _decide(
    coverages: Sequence[Coverage], pairs: dict[tuple[int, int], list[OffsetRange]], part: OffsetRange
) -> Difference | None:
    """What is right of offsets over which the copies do not change."""
    having = [
        (stretch.doubtful, number)
        for number, coverage in enumerate(coverages)
        if (stretch := coverage.at(part.start)) is not None
    ]
    readings: list[list[int]] = []
    for _, number in sorted(having):
        for reading in readings:
            if not any(_differs(pairs, number, other, part.start) for other in reading):
                reading.append(number)
                break
        else:
            readings.append([number])
    if len(readings) < 2:
        return None
    kept = max(readings, key=len)
    left_out = sorted(number for reading in readings if reading is not kept for number in reading)
    by = ORDER if sum(len(reading) == len(kept) for reading in readings) > 1 else COPIES
    return Difference(part.start, part.stop, tuple(sorted(kept)), tuple(left_out), by)


def _differs(pairs: dict[tuple[int, int], list[OffsetRange]], one: int, two: int, offset: int) -> bool:
    ranges = pairs.get((min(one, two), max(one, two)), ())
    at = bisect_right(ranges, offset, key=lambda each: each.start) - 1
    return at >= 0 and offset < ranges[at].stop


# ---- two copies


def _different(left: Coverage, right: Coverage, max_bytes: int) -> Iterator[OffsetRange]:
    """The offsets at which two copies have different records."""
    comparison = _Comparison(left.copy.batches, right.copy.batches, max_bytes)
    try:
        i = k = 0
        while i < len(left.stretches) and k < len(right.stretches):
            one, two = left.stretches[i], right.stretches[k]
            start, stop = max(one.start, two.start), min(one.stop, two.stop)
            if start < stop:
                parts = part_of(one, start, stop), part_of(two, start, stop)
                yield from comparison.of(*parts, OffsetRange(start, stop))
            if one.stop < two.stop:
                i += 1
            else:
                k += 1
    finally:
        comparison.close()


class _Comparison:
    """Compares the records of two copies where their batches have not the same bytes."""

    def __init__(self, left: LogBatches, right: LogBatches, max_bytes: int) -> None:
        self._left, self._right = RecordsOfCopy(left, max_bytes), RecordsOfCopy(right, max_bytes)

    def close(self) -> None:
        """Close the files."""
        self._left.close()
        self._right.close()

    def of(self, one: IndexRange, two: IndexRange, within: OffsetRange) -> Iterator[OffsetRange]:
        """The offsets whose records differ."""
        for mine, theirs in _groups(self._left.batches, one, self._right.batches, two):
            left, right = self._left.of(mine, within), self._right.of(theirs, within)
            a, b = next(left, None), next(right, None)
            while a is not None and b is not None:
                if a.offset == b.offset and content(a) != content(b):
                    yield OffsetRange(a.offset, a.offset + 1)
                offset = min(a.offset, b.offset)
                a = next(left, None) if a.offset == offset else a
                b = next(right, None) if b.offset == offset else b


def content(record: Record) -> tuple[object, ...]:
    """What makes two records with one offset the same."""
    return record.timestamp, record.key, record.value, record.headers


def _groups(a: LogBatches, one: IndexRange, b: LogBatches, two: IndexRange) -> Iterator[tuple[IndexRange, IndexRange]]:
    """Batches of both copies that have the same offsets but not the same bytes."""
    i, k = one.start, two.start
    while i < one.stop and k < two.stop:
        if is_same_block(a, i, b, k, min(one.stop - i, two.stop - k)):
            return
        block = min(one.stop - i, two.stop - k, 512)
        if is_same_block(a, i, b, k, block):
            i, k = i + block, k + block
        elif a.first[i] == b.first[k] and is_same(a, i, b, k):
            i, k = i + 1, k + 1
        elif a.last[i] < b.first[k]:
            i += 1
        elif b.last[k] < a.first[i]:
            k += 1
        else:
            begin, from_ = i, k
            while a.last[i] != b.last[k]:
                if a.last[i] < b.last[k] and i + 1 < one.stop and a.first[i + 1] <= b.last[k]:
                    i += 1
                elif b.last[k] < a.last[i] and k + 1 < two.stop and b.first[k + 1] <= a.last[i]:
                    k += 1
                else:
                    break
            i, k = i + 1, k + 1
            yield IndexRange(begin, i), IndexRange(from_, k)


def header_of(log: LogFile, position: int, body: bytes) -> Batch:
    """The header of a valid batch of a log file, from its bytes; that of 0.7 is another one."""
    if log.kind is not Kind.KAFKA07:
        return Batch._make(row(body, position))
    offset = (log.base_offset or 0) + position
    for item in walk_of(log.kind, BytesSource(body), base_offset=offset, everything=True, rows=1):
        if isinstance(item, BatchChunk) and not item.damaged:
            return item.row(0)._replace(position=position)
    raise SourceError(f"{log.path}: changed at byte {position} while it was read")


class RecordsOfCopy:
    """Reads the records of batches of a copy; holds one file open."""

    def __init__(self, batches: LogBatches, max_bytes: int) -> None:
        self.batches, self._max_bytes = batches, max_bytes
        self._file, self._source = -1, None

    def close(self) -> None:
        """Close the file."""
        if self._source is not None:
            self._source.close()

    _source: InputFile | None

    def body(self, number: int) -> bytes:
        """The bytes of a batch; fewer where the file has become shorter. Raises SourceError."""
        found = self.batches
        if found.file[number] != self._file or self._source is None:
            self.close()
            self._file = found.file[number]
            self._source = found.logs[self._file].open()
        return bytes(reader_of(self._source)(found.position[number], found.size[number]))

    def of(self, part: IndexRange, within: OffsetRange) -> Iterator[Record]:
        """The records of these offsets, in order. Raises SourceError."""
        found = self.batches
        for number in range(*part):
            body = self.body(number)
            if len(body) < found.size[number]:
                continue  # the file has become shorter; reading it later says so
            batch = header_of(found.logs[found.file[number]], found.position[number], body)
            for record in records(batch, open_batch(batch, body, self._max_bytes)):
                if within.start <= record.offset < within.stop:
                    yield record
