"""A log in the order of its offsets, and what is left out where its batches are not in order."""

from collections.abc import Iterator

from kdump.broker.cleaner.cleanup import Cleanup, cleanup_of, is_compacted_topic
from kdump.log.compaction import is_compacted
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import missing_segment, read_headers
from kdump.log.log_batches import IndexRange, LogBatches
from kdump.log.log_slice import HIGHEST, LOWEST, HeaderPass, LogSlice, MissingOffsets, SlicedPartition
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import (
    LeftOutBatch,
    OrderedBatches,
    holes_of,
    missing_findings,
    missing_offsets,
    ordered,
    unordered_findings,
)
from kdump.replicas.left_out import KeptRecords
from kdump.replicas.replica_copy import Stretch
from kdump.storage.partition import Partition
from kdump.verify.checks import offsets, segments
from kdump.verify.findings import Finding


class OrderedLog(NamedTuple):
    """A log whose slices are in order, the valid batches that are left out for that, and damage outside the slices.

    `holes` are the offsets that are missing because of these batches. `findings` are about them, and about missing
    segments.
    """

    partition: SlicedPartition
    left_out: tuple[LeftOutBatch, ...] = ()
    damage: tuple[DamagedRange, ...] = ()
    findings: tuple[Finding, ...] = ()
    holes: tuple[DamagedRange, ...] = ()

    @property
    def skipped(self) -> Iterator[DamagedRange]:
        """What the slices leave out, and the offsets that are missing for that."""
        yield from self.damage
        yield from (each.damaged for each in self.left_out)
        yield from self.holes


def ordered_log(partition: SlicedPartition, max_batch_bytes: int) -> OrderedLog:
    """Put a log in order. Raises SourceError.

    Reads the headers alone; where these are not in order, or damage hides some, all checksums.
    """
    if partition.headers is not None:
        return OrderedLog(partition)
    headers = read_headers(partition.slices)
    copy = partition.copy
    if headers.is_ordered or copy is None or not copy.segments:
        known = partition._replace(headers=with_gaps(headers, copy))
        return OrderedLog(known, findings=tuple(findings_of_missing(known, headers, max_batch_bytes)))
    known = partition._replace(headers=headers)
    found = LogBatches([LogSlice(segment.log) for segment in copy.segments])
    for error in found.read(max_batch_bytes):
        raise error
    if found.is_ordered:
        headers = headers._replace(
            transactional=found.transactional, compacted=found.compacted, missing=tuple(_missing(found))
        )
        known = known._replace(headers=with_gaps(headers, copy))
        return OrderedLog(known, findings=tuple(findings_of_missing(known, headers, max_batch_bytes)))
    order = ordered(copy, found)
    compacted = is_compacted(copy, shown=found.compacted) or bool(is_compacted_topic(copy))
    slices = tuple(slices_in_order(order.batches, compacted=compacted))
    # The slices say themselves where offsets are missing.
    missing = tuple(_missing(order.batches))
    headers = HeaderPass(found.transactional, is_ordered=True, is_continuous=True, compacted=compacted, missing=missing)
    left_out = judged(order, max_batch_bytes)
    first, stop = partition.offset
    holes = tuple(
        each
        for each in holes_of(order.batches, left_out)
        if (stop is None or each.offsets.start < stop) and (first is None or each.offsets.stop > first)
    )
    of_missing = findings_of_missing(known, headers, max_batch_bytes)
    findings = (*unordered_findings(left_out), *missing_findings(holes), *of_missing)
    if order.batches.ends_damaged and len(order.batches):
        last = found.damage[-1]
        holes += (missing_offsets(last.path, last.position, order.batches.last[-1] + 1, None),)
    known = known._replace(slices=slices, headers=headers)
    return OrderedLog(known, left_out, tuple(found.damage), findings, holes)


def with_gaps(headers: HeaderPass, copy: Partition | None) -> HeaderPass:
    """The headers, with whether offsets that are missing were records."""
    gaps = not headers.is_continuous and not is_compacted(copy, shown=headers.compacted)
    return headers._replace(gaps=gaps and (copy is None or not is_compacted_topic(copy)))


def judged(order: OrderedBatches, max_batch_bytes: int) -> tuple[LeftOutBatch, ...]:
    """The batches of a copy that are left out, with what of their records is not kept. Raises SourceError."""
    if not order.left_out:
        return ()
    found, kept = order.batches, list[Stretch]()
    if len(found):
        kept.append(Stretch(found.first[0], found.last[-1] + 1, found, IndexRange(0, len(found))))
    return tuple(KeptRecords(kept, found.logs, max_batch_bytes).judged(order.left_out))


def findings_of_missing(partition: SlicedPartition, headers: HeaderPass, max_batch_bytes: int) -> Iterator[Finding]:
    """What is missing among the offsets to convert; nothing where the log cleaner leaves holes."""
    copy = partition.copy
    if not headers.missing or is_compacted(copy, shown=headers.compacted):
        return
    first, stop = partition.offset
    asked = [
        each
        for each in headers.missing
        if (first is None or each.first > first) and (stop is None or each.previous + 1 < stop)
    ]
    holes = [OffsetRange(each.previous + 1, each.first) for each in asked if not each.gaps]
    known = Cleanup(False) if copy is None or not asked else cleanup_of(copy, holes, max_batch_bytes)
    if known.compacts:
        return
    for each in asked:
        if each.gaps:
            yield offsets.gaps(each, compacted=False)
        else:
            compacted = known.is_compaction(OffsetRange(each.previous + 1, each.first))
            yield segments.missing(each.path, each.first, each.previous + 1, compacted=compacted)


def _missing(found: LogBatches) -> Iterator[MissingOffsets]:
    """What is missing between batches that no damage lies between: segments, and offsets in one."""
    gaps: dict[str, MissingOffsets] = {}
    for start, _ in found.intact(continuous=True):
        if not start or found.is_break(start):
            continue
        before, log = found.logs[found.file[start - 1]], found.logs[found.file[start]]
        previous, first = found.last[start - 1], found.first[start]
        if before is not log:
            if log.base_offset is not None and log.base_offset > previous + 1:
                yield missing_segment(log.path, previous, log.base_offset)
            continue
        count = first - previous - 1
        known = gaps.get(log.path) or MissingOffsets(log.path, found.position[start], previous, first, 0, 0, 0)
        gaps[log.path] = known._replace(
            gaps=known.gaps + 1, missing=known.missing + count, largest=max(known.largest, count)
        )
    yield from gaps.values()


def slices_in_order(found: LogBatches, *, compacted: bool) -> list[LogSlice]:
    """Batches in order as slices. Offsets that are missing are gaps unless the log is `compacted`."""
    slices: list[LogSlice] = []
    for part in found.intact(continuous=not compacted):
        after_gap = part.start > 0
        slices += found.slices(IndexRange(*part), LOWEST, HIGHEST, after_gap=after_gap)
    return slices
