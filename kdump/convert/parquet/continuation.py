"""Where the conversion of a topic-partition goes on: after the last batch that was converted, which is found again."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Final

from kdump.convert.parquet.manifest import BatchIdentity, ConvertedPartition, SourceFile
from kdump.convert.records.unread_headers import HeadersNeeded
from kdump.errors import KdumpError, SourceError
from kdump.format.batch import Batch, first_known_offset
from kdump.format.index import MAX_INDEX_BYTES, position_at
from kdump.format.naming import base_offset_of
from kdump.log.log_slice import HIGHEST, LogSlice, SlicedPartition, walk_of_slice
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import absolute
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch
from kdump.storage.source import reader_of
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk
from kdump.verify.findings import Finding, make_finding

_NEAR_BYTES: Final = 4 << 20
"""So far after the entry of an offset index the last batch is looked for."""
_NEAR_BUFFER_BYTES: Final = 64 << 10
_LEAVES_ORDER: Final = ("aborted", "undecided", "deleted")
"""Why records are left out of a log whose batches are valid and in order."""


class Continuation(NamedTuple):
    """`offset` is the first one to convert, None for the first one of the log. `entry` is what was converted before;
    None where the topic-partition is converted anew. `last_path` and `last_position` say where the last batch that was
    converted lies, None where it is not there any more.
    """

    offset: int | None
    entry: ConvertedPartition | None
    last_path: str | None = None
    last_position: int = 0

    def is_before(self, path: str, position: int) -> bool:
        """Whether a place in a log file lies before the last batch that was converted: no run reads that again."""
        if self.last_path is None:
            return False
        base, last = base_offset_of(path), base_offset_of(self.last_path)
        if absolute(path) == absolute(self.last_path):
            return position < self.last_position
        return base is not None and last is not None and base < last

    def is_done(self, partition: SlicedPartition) -> bool:
        """Whether all that was asked for was converted before."""
        stop = partition.offset[1]
        return self.entry is not None and stop is not None and stop <= self.entry.next_offset


def continue_after(
    entry: ConvertedPartition | None,
    partition: SlicedPartition,
    cleaner_offset: int | None = None,
    max_batch_bytes: int | None = None,
    last_end: int | None = None,
) -> Continuation:
    """Where to go on with a topic-partition. Raises KdumpError where the log was cut, or is another one, since then.

    `entry` is what the folder has of it, None for nothing. The last batch need not be there any more where the log
    cleaner has gone past it (`cleaner_offset`): then its offset has to be in the log. Raises HeadersNeeded where the
    headers of the log were not read, and the offset index does not lead to the last batch, or not to the one that ends
    at `last_end`.
    """
    if entry is None:
        return Continuation(partition.offset[0], None)
    if partition.first_asked != entry.first_offset:
        was = "the first offset" if entry.first_offset is None else f"offset {entry.first_offset}"
        raise _refused(partition, f"it was converted from {was} on")
    last, going_on = entry.last_batch, Continuation(max(entry.next_offset, partition.offset[0] or 0), entry)
    if last is None:
        return going_on
    start = _log_start(partition)
    if start is not None and last.last_offset < start:
        raise _refused(
            partition, f"it was converted up to offset {entry.next_offset - 1}, and the log begins at {start} now"
        )
    if partition.is_assumed:
        near = _find_by_index(partition, last, max_batch_bytes or MAX_BATCH_BYTES, last_end)
        return going_on._replace(last_path=near[0], last_position=near[1])
    found, reaches = _find(partition, last, max_batch_bytes or MAX_BATCH_BYTES)
    if found is not None:
        return going_on._replace(last_path=found[0], last_position=found[1])
    if not reaches:
        raise _refused(
            partition,
            f"it was converted up to offset {entry.next_offset - 1}, and the log ends before it: it was truncated",
        )
    if cleaner_offset is not None and last.last_offset < cleaner_offset:
        return going_on
    raise _refused(
        partition,
        f"the batch up to offset {last.last_offset} is not the one that was converted: the log was rewritten",
    )


def _refused(partition: SlicedPartition, why: str) -> KdumpError:
    return KdumpError(f"{partition.path}: {why}; --rewrite {partition.name} converts it again")


def _log_start(partition: SlicedPartition) -> int | None:
    bases = [each.log.base_offset for each in partition.slices]
    return None if not bases or bases[0] is None else bases[0]


def _find(partition: SlicedPartition, last: BatchIdentity, max_batch_bytes: int) -> tuple[tuple[str, int] | None, bool]:
    """The path and the position where the log has a batch, and whether it has the offset of its end, or later ones."""
    # Where the end of the batch was removed, the offset may be in no slice: then in a later one.
    wanted = partition._replace(offset=(last.last_offset, None))
    for _, part in wanted.numbered():
        batch = _batch_at(part, last.last_offset, max_batch_bytes)
        if batch is not None:
            return (part.log.path, batch.position) if identity_of(batch) == last else None, True
    return None, False


def _batch_at(part: LogSlice, offset: int, max_batch_bytes: int) -> Batch | None:
    """The first batch of a slice whose last offset is at or above an offset."""
    with part.log.open() as source:
        for item in walk_of_slice(part, source, everything=True, max_batch_bytes=max_batch_bytes):
            if isinstance(item, BatchChunk) and not item.damaged and item.row(item.batches - 1).last_offset >= offset:
                return next(batch for batch in item.rows() if batch.last_offset >= offset)
    return None


# ---- without reading what was converted before


def is_unchanged(entry: ConvertedPartition, partition: SlicedPartition) -> bool:
    """Whether a listing shows the log files that were converted, up to the one with the last batch.

    Each has its size, and continues the one before. Nothing was wrong with their records.
    """
    last = entry.last_batch
    if last is None or entry.findings or any(each.why not in _LEAVES_ORDER for each in entry.left_out):
        return False
    known = _last_sources(entry)
    for log, after in pairwise(each.log for each in partition.slices):
        if after.base_offset is None or after.base_offset > last.last_offset:
            break
        source = known.get(absolute(log.path))
        if source is None or source.size != log.size or source.last_offset + 1 != after.base_offset:
            return False
    return True


def end_of_last(entry: ConvertedPartition) -> int | None:
    """Where the last batch ended in its log file; None where that is not known: more of the file was read then."""
    last = entry.last_batch
    if last is None or any(each.why == "undecided" for each in entry.left_out):
        return None
    ends = (each.size for each in _last_sources(entry).values() if (each.last_offset, each.crc) == last[1:])
    return next(ends, None)


def _last_sources(entry: ConvertedPartition) -> dict[str, SourceFile]:
    """The log files that rows come from, by path, as they were when they were read last."""
    known = dict[str, SourceFile]()
    for each in (source for file in entry.files for source in file.sources):
        if each.path not in known or known[each.path].size < each.size:
            known[each.path] = each
    return known


def from_last_batch(partition: SlicedPartition, start: Continuation) -> SlicedPartition:
    """The log from the last batch that was converted on: what follows it has to continue it."""
    numbers = (number for number, each in enumerate(partition.slices) if each.log.path == start.last_path)
    number = next(numbers, None)
    if number is None:
        return partition
    # It is read whatever the name of the next file says.
    first = partition.slices[number]._replace(start=start.last_position, highest=HIGHEST - 1)
    return partition._replace(slices=(first, *partition.slices[number + 1 :]))


def _find_by_index(
    partition: SlicedPartition, last: BatchIdentity, max_batch_bytes: int, last_end: int | None
) -> tuple[str, int]:
    """The path and the position where the log has a batch. Raises HeadersNeeded where it is not found."""
    indexes = {} if partition.copy is None else {each.log.path: each.index for each in partition.copy.segments}
    wanted = partition._replace(offset=(last.last_offset, last.last_offset + 1))
    for _, part in wanted.numbered():
        batch = _batch_near(part, indexes.get(part.log.path), last.last_offset, max_batch_bytes)
        if batch is not None and identity_of(batch) == last and last_end in (None, batch.position + batch.size):
            return part.log.path, batch.position
    raise HeadersNeeded


def _batch_near(part: LogSlice, index: LogFile | None, offset: int, max_batch_bytes: int) -> Batch | None:
    """The first batch shortly after the entry of the offset index that is at or above an offset."""
    begin = _position_by_index(index, offset - (part.log.base_offset or 0))
    near = part._replace(start=begin, stop=begin + _NEAR_BYTES)
    how = {"everything": True, "max_batch_bytes": max_batch_bytes, "buffer_bytes": _NEAR_BUFFER_BYTES}
    with part.log.open() as source:
        source.read_until(0)
        for item in walk_of_slice(near, source, **how):
            if not isinstance(item, BatchChunk) or item.damaged:
                return None
            if item.row(item.batches - 1).last_offset >= offset:
                return next(batch for batch in item.rows() if batch.last_offset >= offset)
    return None


def _position_by_index(index: LogFile | None, relative: int) -> int:
    """Where a batch begins that is not after the one with an offset; 0 where the index does not say it."""
    if index is not None and index.size <= MAX_INDEX_BYTES:
        with suppress(SourceError), index.open() as source:
            source.read_until(0)
            return position_at(reader_of(source), source.size, relative)
    return 0


def lacked_findings(
    start: Continuation, entry: ConvertedPartition, partition: SlicedPartition, max_batch_bytes: int
) -> Iterator[Finding]:
    """The findings about records that the folder lacks because earlier runs met damage, in the order of offsets.

    Offsets that are merely missing count where the log has them now: else the findings about the log say it.
    """
    old = () if start.entry is None or start.offset is None else entry.left_out
    lacked = [
        (each.first_offset or 0, each.last_offset, each.why) for each in old if each.why in ("damaged", "missing")
    ]
    ranges = sorted({each for each in lacked if start.offset is not None and each[0] < start.offset})
    readable = _readable([(first, last) for first, last, _ in ranges], partition, max_batch_bytes) if ranges else set()
    for first, last, why in ranges:
        if why == "damaged" or (first, last) in readable:
            end = entry.next_offset - 1 if last is None else last
            found = make_finding(
                "output/incomplete",
                partition.path,
                0,
                0,
                offset=first,
                last=end,
                readable=(first, last) in readable,
                partition=partition.name,
            )
            yield replace(found, of=partition.topic_partition)


def _readable(
    ranges: list[tuple[int, int | None]], partition: SlicedPartition, max_batch_bytes: int
) -> set[tuple[int, int | None]]:
    """The ranges of which a record of a valid batch has an offset; nothing where the log cannot be read."""
    found = set[tuple[int, int | None]]()
    last = None if any(stop is None for _, stop in ranges) else max(stop for _, stop in ranges if stop is not None)
    wanted = partition._replace(offset=(ranges[0][0], None if last is None else last + 1))
    with suppress(SourceError):
        for _, part in wanted.numbered():
            with part.log.open() as source:
                for item in walk_of_slice(part, source, everything=True, max_batch_bytes=max_batch_bytes):
                    if not isinstance(item, BatchChunk) or item.damaged:
                        continue
                    begins, ends = first_known_offset(item.row(0)), item.row(item.batches - 1).last_offset
                    near = [each for each in ranges if each[0] <= ends and (each[1] is None or each[1] >= begins)]
                    for batch in item.rows() if near else ():
                        here = [
                            (first, stop)
                            for first, stop in near
                            if batch.last_offset >= first and (stop is None or first_known_offset(batch) <= stop)
                        ]
                        if here:
                            own = open_batch(batch, item.body(batch), max_batch_bytes).offsets()
                            found.update(each for each in here if _has_any(own, *each))
    return found


def _has_any(offsets: Iterable[int], first: int, last: int | None) -> bool:
    return any(first <= each and (last is None or each <= last) for each in offsets)


def identity_of(batch: Batch) -> BatchIdentity:
    """What a batch is found again by."""
    return BatchIdentity(None if batch.is_wrapper else batch.base_offset, batch.last_offset, batch.crc)
