"""Puts the batches of one copy of a topic-partition in the order of their offsets, so that none comes twice.

Segments can overlap, a batch can be there twice, and no checksum covers the offset of a batch. What is left out are the
batches that kdump recover --salvage leaves out, for the same reasons (kdump.log.offset_order).
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kdump.log.damage import DamagedRange
from kdump.log.log_batches import IndexRange, LogBatches
from kdump.log.offset_order import rows_in_order
from kdump.log.ranges import OffsetRange, common
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import Partition
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding, FindingData, Severity

_SAME: Final = "the same records with these offsets are kept"


class LeftOutBatch(NamedTuple):
    """A valid batch that contradicts others about its offsets, and the code of the finding about it.

    `unkept`: how many of its records are not kept, with the same content at the same offset. At the offsets `absent`
    of these no record is kept. `is_made_good`: another copy has what belongs in its
    place.
    """

    path: str
    position: int
    length: int
    first_offset: int
    last_offset: int
    records: int
    code: str
    unkept: int = 0
    absent: tuple[OffsetRange, ...] = ()
    is_made_good: bool = False

    @property
    def severity(self) -> Severity:
        return Severity.ERROR if self.unkept and not self.is_made_good else Severity.WARNING

    @property
    def damaged(self) -> DamagedRange:
        """Its bytes, which a read skips."""
        return DamagedRange(self.path, self.position, self.length, self.code, self.severity)


def subject_of(unkept: int, records: int) -> str:
    """The words "its record is", "1 of its 5 records is", "its 5 records are" for those of a batch."""
    if records == 1:
        return "its record is"
    some = f"its {records} records" if unkept == records else f"{unkept} of its {records} records"
    return f"{some} {'is' if unkept == 1 else 'are'}"


@dataclass(frozen=True, slots=True)
class UnorderedBatch(Finding):
    """A valid batch that is not in the output; an error unless the same records with its offsets are."""

    @property
    def message(self) -> str:
        title, last, unkept, records = CATALOGUE[self.code].title, *map(self.data.get, ("last", "unkept", "records"))
        if self.severity is Severity.WARNING:
            where = "another copy has the records of its place" if unkept else _SAME
        else:
            assert isinstance(unkept, int)
            assert isinstance(records, int)
            where = f"{subject_of(unkept, records)} in no other batch"
        named = f"the batch with the offsets {self.offset} to {last} is left out: {title[:1].lower()}{title[1:]}"
        return f"{named}; {where}"


@dataclass(frozen=True, slots=True)
class OffsetHole(Finding):
    """Offsets that no batch in order has, where a batch that is left out lies, or had claimed them."""

    @property
    def message(self) -> str:
        last = self.data["last"]
        offsets = f"offset {last}" if last == self.offset else f"the offsets {self.offset} to {last}"
        offsets = f"offsets from {self.offset} on" if last is None else offsets
        return f"no batch that is kept has {offsets}: a batch with other offsets lies there, or is left out"


class OrderedBatches(NamedTuple):
    """The batches of a copy that are in order, and the others; `spare` are those others in the order of `left_out`."""

    batches: LogBatches
    left_out: tuple[LeftOutBatch, ...]
    spare: LogBatches


def ordered(partition: Partition, found: LogBatches) -> OrderedBatches:
    """The batches of the segments of a partition in the order of their offsets."""
    if found.is_ordered:
        return OrderedBatches(found, (), found.select(()))
    order = rows_in_order(partition, found)
    parts = [IndexRange(number, number + 1) for number, _ in order.dropped]
    left_out = tuple(_left_out(found, number, code) for number, code in order.dropped)
    return OrderedBatches(found.select(order.kept), left_out, found.select(parts))


def unordered_findings(left_out: Iterable[LeftOutBatch]) -> Iterator[Finding]:
    """A finding for each batch that is left out."""
    for each in left_out:
        data: FindingData = {"last": each.last_offset, "records": each.records, "unkept": each.unkept}
        where = each.path, each.position, each.length, each.first_offset
        yield UnorderedBatch(each.code, each.severity, *where, data=data)


def missing_offsets(path: str, position: int, first: int, last: int | None) -> DamagedRange:
    """Offsets that no batch in order has, and where they would lie; `last` is None where no batch follows."""
    return DamagedRange(path, position, 0, "offset/gap", Severity.ERROR, first, last)


def holes_of(found: LogBatches, left_out: Iterable[LeftOutBatch]) -> Iterator[DamagedRange]:
    """The offsets that are missing because of batches that are left out: where these lie, and what others claim."""
    numbers, several = {log.path: number for number, log in enumerate(found.logs)}, list(left_out)
    gone = sorted((numbers[each.path], each.position) for each in several)
    places: list[tuple[int, int]] = []
    for start, _ in found.intact(continuous=True):
        if start and not found.is_break(start):
            continue
        log, position = found.logs[found.file[start]], found.position[start]
        at = bisect_left(gone, (found.file[start - 1], found.position[start - 1])) if start else 0
        first, last = found.last[start - 1] + 1 if start else log.base_offset, found.first[start] - 1
        if at < len(gone) and gone[at] < (found.file[start], position) and first is not None and first <= last:
            yield missing_offsets(log.path, position, first, last)
            places += gone[at : bisect_left(gone, (found.file[start], position))]
    end = (found.file[-1], found.position[-1]) if len(found) else (-1, -1)
    absent = [(each, list(absent_inside(each, found))) for each in several]
    after = [
        each
        for each, ranges in absent
        if not ranges
        and (place := (numbers[each.path], each.position)) not in places
        and (each.absent or (each.unkept and place > end))
    ]
    if after:
        first = found.last[-1] + 1 if len(found) else found.logs[0].base_offset or 0
        yield missing_offsets(after[0].path, after[0].position, first, None)
    for each, ranges in absent:
        for start, stop in ranges:
            yield missing_offsets(each.path, each.position, start, stop - 1)
        if each.unkept or not each.records:
            yield from _around(found, (numbers[each.path], each.position), each)


def _around(found: LogBatches, place: tuple[int, int], batch: LeftOutBatch) -> Iterator[DamagedRange]:
    """The offsets that are missing around a neighbour that claims the same offsets: it may be the one that is wrong."""
    at = bisect_left(range(len(found)), place, key=lambda number: (found.file[number], found.position[number]))
    for number in (at - 1, at):
        if not 0 <= number < len(found):
            continue
        first, last = found.first[number], found.last[number]
        same = (first, last) == (batch.first_offset, batch.last_offset) and not batch.unkept
        if first <= batch.last_offset and batch.first_offset <= last and not same:
            for before in (number - 1, number):
                if 0 <= before < len(found) - 1 and found.last[before] + 1 < found.first[before + 1]:
                    first, last = found.last[before] + 1, found.first[before + 1] - 1
                    yield missing_offsets(batch.path, batch.position, first, last)


def absent_inside(batch: LeftOutBatch, found: LogBatches) -> Iterator[OffsetRange]:
    """The absent offsets of a batch that lie in the log of the others: beyond it, its offsets are not believed."""
    low = min((log.base_offset or 0 for log in found.logs), default=0)
    end = found.last[-1] + 1 if len(found) else low
    return iter(common(batch.absent, [OffsetRange(low, end)]))


def missing_findings(holes: Iterable[DamagedRange]) -> Iterator[Finding]:
    """A finding for each range of offsets that is missing because of batches that are left out."""
    for each in holes:
        data: FindingData = {"last": each.last_offset}
        yield OffsetHole(each.code, each.severity, each.path, each.position, each.length, each.first_offset, data=data)


def _left_out(found: LogBatches, number: int, code: str) -> LeftOutBatch:
    log, first, last = found.logs[found.file[number]], found.first[number], found.last[number]
    return LeftOutBatch(log.path, found.position[number], found.size[number], first, last, found.count[number], code)
