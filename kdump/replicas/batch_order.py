"""Puts the batches of one copy of a topic-partition in the order of their offsets, so that none comes twice.

Segments can overlap, a batch can be there twice, and no checksum covers the offset of a batch. What is left out are the
batches that kdump recover --salvage leaves out, for the same reasons (kdump.recover.salvage.offset_order).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdump.kernel.results import NO_VALUE
from kdump.recover.salvage.batch_span import BatchSpan
from kdump.recover.salvage.file_batches import BatchFile, sorted_files
from kdump.recover.salvage.offset_order import LogName, in_order
from kdump.recover.salvage.offset_support import OffsetSupport
from kdump.recover.salvage.rising_chain import uncontradicted
from kdump.replicas.copy_batches import CopyBatches, IndexRange
from kdump.replicas.offset_ranges import OffsetRange, united, without
from kdump.storage.partition import Partition
from kdump.verify.findings import CATALOGUE, Finding, FindingData, Severity

_RECORD_BATCH: Final = 2


class LeftOutBatch(NamedTuple):
    """A valid batch that contradicts others about its offsets, and the code of the finding about it."""

    path: str
    position: int
    length: int
    first_offset: int
    last_offset: int
    records: int
    code: str


@dataclass(frozen=True, slots=True)
class UnorderedBatch(Finding):
    """A valid batch that is not in the output; an error where no other batch has its offsets."""

    @property
    def message(self) -> str:
        title, last = CATALOGUE[self.code].title, self.data["last"]
        where = "others have its offsets" if self.severity is Severity.WARNING else "no other batch has its offsets"
        named = f"the batch with the offsets {self.offset} to {last} is left out: {title[:1].lower()}{title[1:]}"
        return f"{named}; {where}"


class OrderedBatches(NamedTuple):
    """The batches of a copy that are in order, and the others; `spare` are those others in the order of `left_out`."""

    batches: CopyBatches
    left_out: tuple[LeftOutBatch, ...]
    spare: CopyBatches


def ordered(partition: Partition, found: CopyBatches) -> OrderedBatches:
    """The batches of the segments of a partition in the order of their offsets."""
    if found.is_ordered:
        return OrderedBatches(found, (), found.select(()))
    spans = _Spans(found)
    files = [
        BatchFile(number, segment, batches=spans.of_file(number)) for number, segment in enumerate(partition.segments)
    ]
    files = sorted_files(files)
    names = [LogName(one.actual_base_offset, one.log.size) for one in files]
    order = in_order(names, [one.batches for one in files], OffsetSupport(partition, files))
    numbers = {segment.log.path: number for number, segment in enumerate(partition.segments)}

    def range_of(span: BatchSpan) -> IndexRange:
        return spans.ranges[numbers[files[span.file].log.path], span.position]

    single = [(number, code) for span, code in order.dropped for number in range(*range_of(span))]
    single.sort(key=lambda each: found.first[each[0]])
    parts = [IndexRange(number, number + 1) for number, _ in single]
    left_out = tuple(_left_out(found, number, code) for number, code in single)
    return OrderedBatches(found.select(map(range_of, order.kept)), left_out, found.select(parts))


def unordered_findings(order: OrderedBatches) -> Iterator[Finding]:
    """A finding for each batch that is left out. It is no loss where batches in order have its offsets."""
    if not order.left_out:
        return
    found = order.batches
    runs = found.intact(continuous=True)
    covered = list(united(OffsetRange(found.first[start], found.last[stop - 1] + 1) for start, stop in runs))
    for each in order.left_out:
        offsets = OffsetRange(each.first_offset, each.last_offset + 1)
        lost = offsets.start >= offsets.stop or any(True for _ in without([offsets], covered))
        severity = Severity.ERROR if lost else Severity.WARNING
        data: FindingData = {"last": each.last_offset, "records": each.records}
        yield UnorderedBatch(each.code, severity, each.path, each.position, each.length, each.first_offset, data=data)


def _left_out(found: CopyBatches, number: int, code: str) -> LeftOutBatch:
    log, first, last = found.logs[found.file[number]], found.first[number], found.last[number]
    return LeftOutBatch(log.path, found.position[number], found.size[number], first, last, found.count[number], code)


class _Spans:
    """The batches of a copy as spans: neighbours that contradict no other batch are one."""

    def __init__(self, found: CopyBatches) -> None:
        self._found = found
        self.ranges: dict[tuple[int, int], IndexRange] = {}
        runs = list(self._runs())
        alone = uncontradicted([self._span(run) for run in runs])
        parts: list[IndexRange] = []
        for run, certain in zip(runs, alone, strict=True):
            if certain:
                parts.append(run)
            else:
                parts += [IndexRange(number, number + 1) for number in range(*run)]

        self._of_files: dict[int, list[BatchSpan]] = {}
        for part in parts:
            span = self._span(part)
            self.ranges[span.file, span.position] = part
            self._of_files.setdefault(span.file, []).append(span)

    def of_file(self, file: int) -> list[BatchSpan]:
        """The spans of a file; `ranges` has the batches of each by the file and the position."""
        return self._of_files.get(file, [])

    def _runs(self) -> Iterator[IndexRange]:
        found, start = self._found, 0
        for number in range(1, len(found) + 1):
            if number < len(found) and self._joins(number):
                continue
            yield IndexRange(start, number)
            start = number

    def _joins(self, number: int) -> bool:
        """Whether a batch is of the same write of the log as the one before it."""
        found, before = self._found, number - 1
        return (
            found.file[before] == found.file[number]
            and found.epoch[before] == found.epoch[number]
            and found.continues(number)
            and found.first[before] <= found.last[before]
            and found.first[number] <= found.last[number]
            and not found.is_break(number)
        )

    def _span(self, part: IndexRange) -> BatchSpan:
        found, (start, stop) = self._found, part
        position, end = found.position[start], found.position[stop - 1] + found.size[stop - 1]
        legacy = found.epoch[start] == NO_VALUE
        wrapper = legacy and any(found.first[number] < found.last[number] for number in range(start, stop))
        return BatchSpan(
            found.file[start],
            position,
            end - position,
            0 if legacy else _RECORD_BATCH,
            found.first[start],
            found.last[stop - 1],
            -1 if legacy else found.epoch[start],
            int(wrapper),
            -1,
            -1,
            -1,
            0,
            -1,
            stop - start,
        )
