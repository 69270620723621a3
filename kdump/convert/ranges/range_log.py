"""The log of a range of offsets, proved and filled from all copies, without the rest of the log."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.broker.cleaner.cleanup import is_compacted_topic
from kdump.convert.ranges.known_log import KnownCopy, KnownLog
from kdump.convert.ranges.segment_search import Extent, ExtentOptions, SegmentSearch, numbers_of_segments
from kdump.convert.records.ordered_log import judged, ordered_log, slices_in_order
from kdump.log.compaction import is_compacted_log
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import read_headers
from kdump.log.log_batches import LogBatches
from kdump.log.log_files import base_offset_of
from kdump.log.log_slice import HeaderPass, LogSlice, SlicedPartition
from kdump.log.ranges import OffsetRange, common, united, without
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch, holes_of, ordered
from kdump.replicas.merge import MergedPartition, MergeOptions, merge_range, merge_replicas
from kdump.replicas.replica_copy import CopyRange
from kdump.storage.file_store import is_directory
from kdump.storage.listing import list_directory, partition_of_listing
from kdump.storage.partition import Partition, Segment
from kdump.storage.walk import MAX_BATCH_BYTES

_FIRST_STEP: Final = 32
"""The part of a range that is looked at first of what follows it."""


class RangeLog(NamedTuple):
    """The log of a range, ready to be read, and what is lost of it. Reading it finds damage inside of batches.

    `lost` are offsets that no copy proves, or that are in doubt, and where they would lie: after the batch before them.
    `damage` are bytes from the offset after the last batch before them on. `left_out` are valid batches that lie there
    and contradict others about their offsets.
    """

    partition: SlicedPartition
    lost: tuple[DamagedRange, ...] = ()
    damage: tuple[DamagedRange, ...] = ()
    left_out: tuple[LeftOutBatch, ...] = ()


def range_log(log: KnownLog, offsets: OffsetRange, max_batch_bytes: int = MAX_BATCH_BYTES) -> RangeLog:
    """The log of the offsets. Raises SourceError.

    A single copy whose headers are in order is read once more, later. Where they are not, or offsets are missing that
    the log cleaner did not remove, all batches of the segments with the offsets, and of their neighbours, are put in
    order as for a conversion of the whole log. Of several copies the batches with the offsets are merged.
    """
    if not log.is_cut:
        return _whole(log, offsets, max_batch_bytes)
    search = SegmentSearch()
    try:
        how = ExtentOptions(offsets.stop >= log.end, log.grows, is_sparse=log.compacted or log.common is not None)
        parts = [list(search.extents(copy.partition, *offsets, how)) for copy in log.copies]
        if log.common is not None:
            return _merged(log, parts, offsets, max_batch_bytes)
        return _of_copy(log, parts[0], offsets, search, max_batch_bytes)
    finally:
        search.close()


def slices_of_copy(log: KnownLog, offsets: OffsetRange) -> tuple[LogSlice, ...]:
    """The slices of the only copy of a log with the offsets; none where its segments are not in order.

    Raises SourceError.
    """
    search = SegmentSearch()
    try:
        how = ExtentOptions(offsets.stop >= log.end, log.grows, is_sparse=log.compacted)
        parts = list(search.extents(log.copies[0].partition, *offsets, how))
    finally:
        search.close()
    slices = tuple(each.slice for each in parts if not each.slice.is_empty)
    begins = bool(slices) and (slices[0].start > 0 or base_offset_of(slices[0].log) <= offsets.start)
    return slices if begins and all(each.in_order for each in parts) else ()


def following_slices(log: KnownLog, offsets: OffsetRange, max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[LogSlice]:
    """The slices after a range, in steps that become larger: most transactions end soon. Raises SourceError.

    The files of the copies are listed again: the log of a range has no others.
    """
    if not log.is_cut:
        return
    log = listed_again(log)
    start, step = offsets.stop, max((offsets.stop - offsets.start) // _FIRST_STEP, 1)
    while start < log.end:
        stop = min(start + step, log.end)
        yield from range_log(log, OffsetRange(start, stop), max_batch_bytes).partition.slices
        start, step = stop, 2 * step


def listed_again(log: KnownLog) -> KnownLog:
    """The log with the segments that its copies have now. Raises SourceError."""
    return log._replace(copies=tuple(copy._replace(partition=_listed(copy.partition)) for copy in log.copies))


def _listed(copy: Partition) -> Partition:
    if not is_directory(copy.path):
        return copy
    found, _ = partition_of_listing(list_directory(copy.path), copy.topic_partition, whole=False)
    return copy._replace(segments=found.segments)


def _whole(log: KnownLog, offsets: OffsetRange, max_batch_bytes: int) -> RangeLog:
    """Log files whose names do not say their offsets: all of them are read."""
    copies = [copy.partition for copy in log.copies]
    merged, *_ = merge_replicas(copies, (offsets.start, offsets.stop), MergeOptions(max_batch_bytes=max_batch_bytes))
    found = ordered_log(merged.partition, max_batch_bytes)
    damage = tuple(each._replace(first_offset=offsets.start) for each in found.damage)
    lost = (*_lost_of_copies(merged, offsets), *_lost_of_holes(found.holes, offsets))
    return RangeLog(found.partition, lost, damage, found.left_out)


def _lost_of_holes(holes: Sequence[DamagedRange], offsets: OffsetRange) -> Iterator[DamagedRange]:
    for each in holes:
        start = each.offsets.start
        known = each.offsets if each.last_offset is not None else OffsetRange(start, start + 1)
        yield from (_lost_range(part, each.code, each.path, each.position) for part in common([known], [offsets]))


def _lost_range(offsets: OffsetRange, code: str, path: str, position: int) -> DamagedRange:
    return DamagedRange(path, position, 0, code, Severity.ERROR, offsets.start, offsets.stop - 1)


# ---- one copy


def _of_copy(
    log: KnownLog, parts: Sequence[Extent], offsets: OffsetRange, search: SegmentSearch, max_batch_bytes: int
) -> RangeLog:
    copy = log.copies[0]
    slices = [each.slice for each in parts if not each.slice.is_empty]
    partition = SlicedPartition(copy.partition.path, log.topic_partition, tuple(slices), (offsets.start, offsets.stop))
    headers = read_headers(slices)
    if slices and headers.first_offset is None and headers.next_offset is not None:  # of a wrapper message
        first = search.reader(slices[0].log).first_record_offset(slices[0].start, slices[0].log.size)
        headers = headers._replace(first_offset=first)
    begins = not slices or slices[0].start > 0 or base_offset_of(slices[0].log) <= offsets.start  # else none is before
    is_whole = begins and headers.has_all(*offsets) and not headers.compacted  # a batch may claim offsets of the next
    in_order = headers.is_ordered and all(each.in_order for each in parts)
    next_base = parts[-1].next_base if parts else None
    if next_base is not None and headers.next_offset is not None and headers.next_offset > next_base:
        in_order = False
    if in_order and (log.compacted or is_whole):
        return RangeLog(partition._replace(headers=headers))
    return _in_order(log, offsets, partition, max_batch_bytes)


def _in_order(log: KnownLog, offsets: OffsetRange, partition: SlicedPartition, max_batch_bytes: int) -> RangeLog:
    """The batches of the segments with the offsets in order, each proved by its checksum."""
    copy = log.copies[0]
    numbers = _near(copy.partition.segments, offsets)
    near = copy.partition._replace(segments=copy.partition.segments[numbers.start : numbers.stop])
    found = LogBatches([LogSlice(segment.log) for segment in near.segments])
    for error in found.read(max_batch_bytes):
        raise error
    order = ordered(near, found)
    compacted = is_compacted_log(log.topic_partition, shown=log.compacted or found.compacted)
    compacted = compacted or bool(is_compacted_topic(copy.partition))
    slices = [
        each._replace(lowest=max(each.lowest, offsets.start), highest=min(each.highest, offsets.stop - 1))
        for each in slices_in_order(order.batches, compacted=compacted)
        if each.lowest < offsets.stop and each.highest >= offsets.start
    ]
    known = HeaderPass(found.transactional, is_ordered=True, is_continuous=True, compacted=compacted)
    left_out = judged(order, max_batch_bytes)
    holes = [each.offsets for each in holes_of(order.batches, left_out) if each.last_offset is not None]
    lost = (
        *_lost(order.batches, offsets, united(holes), compacted=compacted),
        *_after_end(order.batches, left_out, log, offsets),
    )
    damage = tuple(_damage_in(found, offsets, ends=offsets.stop >= log.end))
    here = tuple(each for each in left_out if _lies_in(each, order.batches, log, offsets))
    return RangeLog(partition._replace(slices=tuple(slices), headers=known), lost, damage, here)


def _lies_in(batch: LeftOutBatch, found: LogBatches, log: KnownLog, offsets: OffsetRange) -> bool:
    """Whether a batch lies after one with an offset of the range, in the same file; after the beginning of a file.

    So one range has it, and reads the headers there.
    """
    number = next(number for number, each in enumerate(found.logs) if each.path == batch.path)
    place = number, batch.position
    before = max(
        (each for each in zip(found.file, found.position, found.last, strict=True) if each[:2] < place), default=None
    )
    offset = before[2] if before is not None and before[0] == number else found.logs[number].base_offset or 0
    return offsets.start <= max(min(offset, log.end - 1), log.start) < offsets.stop


def _after_end(
    found: LogBatches, left_out: Iterable[LeftOutBatch], log: KnownLog, offsets: OffsetRange
) -> Iterator[DamagedRange]:
    """The offsets after the log end of batches that lie before its last one, in the files that end with the range."""
    active = len(found.logs) - 1
    kept = zip(found.file, found.position, found.last, strict=True)
    below = [position for file, position, last in kept if file == active and last < log.end]
    below += [each.position for each in left_out if each.path == found.logs[active].path and each.last_offset < log.end]
    ends = [max(below, default=0) if number == active else None for number in range(len(found.logs))]
    for number, (each, end) in enumerate(zip(found.logs, ends, strict=True)):
        next_base = log.end if number == active else found.logs[number + 1].base_offset or 0
        if not offsets.start < max(min(next_base, log.end), log.start + 1) <= offsets.stop:
            continue
        here = (
            OffsetRange(max(found.first[at], log.end), found.last[at] + 1)
            for at in range(len(found))
            if found.file[at] == number and (end is None or found.position[at] < end) and found.last[at] >= log.end
        )
        yield from (_lost_range(part, "segment/overlap", each.path, 0) for part in united(here))


def _near(segments: Sequence[Segment], offsets: OffsetRange) -> range:
    """The numbers of the segments that can have the offsets by their names, and of one on each side."""
    numbers = numbers_of_segments(segments, *offsets)
    return range(max(numbers.start - 1, 0), numbers.stop + 1)


def _damage_in(found: LogBatches, offsets: OffsetRange, *, ends: bool) -> Iterator[DamagedRange]:
    """The damage at offsets of a range; `ends`: the log ends with it, and bytes after its last batch belong to it."""
    numbers = {log.path: number for number, log in enumerate(found.logs)}
    places = list(zip(found.file, found.position, strict=True))
    for each in found.damage:
        after = bisect_left(places, (numbers[each.path], each.position))
        start = found.last[after - 1] + 1 if after else 0
        stop = found.first[after] if after < len(found) else None
        if (start < offsets.stop or (ends and start == offsets.stop)) and (stop is None or stop > offsets.start):
            yield each._replace(first_offset=start, last_offset=None if stop is None else stop - 1)


def _lost(
    found: LogBatches, offsets: OffsetRange, holes: Sequence[OffsetRange], *, compacted: bool
) -> Iterator[DamagedRange]:
    """The offsets that no batch has; of a compacted log those of `holes`, which are there for left out batches."""
    runs = list(found.intact(continuous=True))
    covered = united(OffsetRange(found.first[start], found.last[stop - 1] + 1) for start, stop in runs)
    gone = [] if compacted else without([offsets], covered)
    for each in united([*gone, *common(holes, [offsets])]):
        before = next((number for number in range(len(found) - 1, -1, -1) if found.last[number] < each.start), None)
        after = None if before is None or before + 1 == len(found) else before + 1
        if before is None:
            yield _lost_range(each, "segment/missing", found.logs[0].path, 0)
            continue
        log, position = found.logs[found.file[before]], found.position[before] + found.size[before]
        between = after is not None and found.file[after] != found.file[before]
        yield _lost_range(each, "segment/missing" if between else "offset/gap", log.path, position)


# ---- several copies


def _merged(log: KnownLog, parts: Sequence[Sequence[Extent]], offsets: OffsetRange, max_batch_bytes: int) -> RangeLog:
    assert log.common is not None
    options = MergeOptions(max_batch_bytes=max_batch_bytes)
    copies = [
        _copy_range(copy, _numbers_of(extents), offsets, [each.slice for each in extents])
        for copy, extents in zip(log.copies, parts, strict=True)
    ]
    merged = merge_range(copies, log.common, offsets, options)
    extents = [each for several in parts for each in several]
    is_doubtful = merged.missing or merged.damage or merged.left_out
    if is_doubtful or not all(_is_in_order(each, dict(merged.next_offsets)) for each in extents):
        # A batch with a wrong offset can hide where the others lie, and damage what the cleaner has removed.
        copies = [_copy_range(copy, _near(copy.partition.segments, offsets), offsets) for copy in log.copies]
        merged = merge_range(copies, log.common, offsets, options)
    lost = *_lost_of_copies(merged, offsets), *_after_end_of_copies(extents, dict(merged.next_offsets), log.end)
    is_last = offsets.stop >= log.end and all(each.last_offset is not None for each in lost)  # else that says it
    after = (each for each in merged.left_out if is_last and each.unkept and each.last_offset >= log.end)
    return RangeLog(merged.partition, lost, tuple(_padding(merged, log, offsets)), tuple(after))


def _padding(merged: MergedPartition, log: KnownLog, offsets: OffsetRange) -> Iterator[DamagedRange]:
    """Zeros at the end of all copies that have the last batch of the log: a power loss leaves them, too."""
    if offsets.stop < log.end or log.grows:
        return
    ends = {
        copy.partition.segments[-1].log.path
        for copy in log.copies
        if copy.history.end_offset >= log.end and copy.partition.segments
    }
    zeros = {each.path: each for each in merged.damage if each.is_padding and each.path in ends}
    if zeros.keys() == ends:
        yield next(iter(zeros.values()))._replace(first_offset=log.end, last_offset=None)


def _numbers_of(extents: Sequence[Extent]) -> range:
    """The numbers of the segments, which follow each other."""
    return range(extents[0].number, extents[-1].number + 1) if extents else range(0)


def _is_in_order(each: Extent, next_offsets: Mapping[str, int]) -> bool:
    """Whether no batch at the end of an extent contradicts those after it."""
    return each.in_order and (each.next_base is None or next_offsets.get(each.slice.log.path, 0) <= each.next_base)


def _after_end_of_copies(
    extents: Iterable[Extent], next_offsets: Mapping[str, int], end: int
) -> Iterator[DamagedRange]:
    """The offsets after the log end of batches that lie before its last one, in the files that end with the range."""
    for each in extents:
        stop = next_offsets.get(each.slice.log.path, 0)
        if stop > end and (each.next_base is not None or not each.in_order):
            yield _lost_range(OffsetRange(end, stop), "segment/overlap", each.slice.log.path, 0)


def _lost_of_copies(merged: MergedPartition, offsets: OffsetRange) -> Iterator[DamagedRange]:
    for hole in merged.missing:
        stop = (hole.first_offset if hole.last_offset is None else hole.last_offset) + 1
        for each in common([OffsetRange(hole.first_offset, stop)], [offsets]):
            yield _lost_range(each, "replica/missing", merged.replicas[0], 0)
        if hole.last_offset is None and hole.first_offset == offsets.stop:
            first = hole.first_offset
            yield DamagedRange(merged.replicas[0], 0, 0, "replica/missing", Severity.ERROR, first, None)
    for two in merged.differing:
        for each in common([OffsetRange(two.first_offset, two.last_offset + 1)], [offsets]):
            yield _lost_range(each, "replica/differs", two.left_out[0], 0)


def _copy_range(
    copy: KnownCopy, numbers: range, offsets: OffsetRange, slices: Sequence[LogSlice] | None = None
) -> CopyRange:
    """The segments of these numbers of a copy, or slices of each of them."""
    segments = copy.partition.segments[numbers.start : numbers.stop]
    slices = [LogSlice(segment.log) for segment in segments] if slices is None else slices
    partition = copy.partition._replace(segments=segments)
    return CopyRange(partition, tuple(slices), copy.context, copy.history, offsets)
