"""Scan a range of a segment: walk over its batches, check each against its neighbours, and sum up what was found.

The batches of producers become events in log order (kdump.kernel.producers). kdump.verify.partition replays them over
the whole partition.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kdump.errors import SourceError, only
from kdump.format.batch import HEADER, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, MAGIC_AT, Batch
from kdump.format.codec import CodecError, LimitExceeded
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import Kind
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import NO_VALUE, Carry, ScanState
from kdump.kernel.scan import BATCH_COLUMNS, OPEN, SUSPECTS, Scanner
from kdump.log.segment_view import MOST_BREAKS, MOST_CUTS, OFFSETS_OUT_OF_ORDER, Stretch
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import exists
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.ranges import SegmentRange, fold_ranges
from kdump.storage.read_policy import ReadPolicy, open_file
from kdump.storage.source import ProgressSource, Source, reader_of
from kdump.storage.walk import (
    MAX_BATCH_BYTES,
    BatchChunk,
    ForeignBatch,
    Gap,
    SearchLimit,
    ShrunkFile,
    Tail,
    TailContent,
    Walk,
)
from kdump.verify.merge import add, linked, linked_times
from kdump.verify.range_summary import IndexEntries, OffsetBreak, PassedFrame, RangeSummary, ValidPrefix

if TYPE_CHECKING:
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import RangeCells

_SUSPECT = BATCH_COLUMNS.index("suspect")
_WIDTH: Final = len(BATCH_COLUMNS)
_NO_OFFSET: Final = (1 << 63) - 1
_BAD_MAGIC: Final = 1 << SUSPECTS.index("batch/magic")
_UNKNOWN_MAGICS: Final = range(3, 128)
"""A broker reads a batch with one of these as one of magic 2."""


class OnCut(Protocol):
    """Is called at each damage, or break where stretches end there, after the events before it."""

    def __call__(self, frame: Batch | None, *, at_break: bool = False) -> None:
        """`frame` is the batch that a frame with an unknown magic may be."""


class VerifyOptions(NamedTuple):
    """What to verify, and how.

    `deep` opens every batch. `compacted` says whether the log cleaner went over the log; None where each segment shows
    it. `max_batch_bytes` bounds a batch and its decompressed records. `live`: a broker is writing. `now_ms` is the time
    of the clock, for timestamps in the future; None for that of the machine. `io_limit` bounds the bytes of logs and
    indexes that are read a second. `keep_cache`: leave what was read in the page cache; None: unless a broker is
    writing. `maps`: the report of a partition with errors or warnings has its map. `metadata` is the path of a metadata
    log of the cluster, None for the one beside a partition.
    """

    deep: bool = False
    compacted: bool | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES
    live: bool = False
    now_ms: int | None = None
    io_limit: int | None = None
    keep_cache: bool | None = None
    maps: bool = False
    metadata: str | None = None


class ScanOptions(NamedTuple):
    """VerifyOptions, with one more that only a recovery sets, and one for the scans of a partition.

    `valid_segments`: report the segments that a broker's recovery leaves as they are. `cell_bytes` are those of a cell
    of its map, 0 where it gets none.
    """

    deep: bool = False
    compacted: bool | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES
    live: bool = False
    now_ms: int | None = None
    io_limit: int | None = None
    keep_cache: bool | None = None
    maps: bool = False
    metadata: str | None = None
    valid_segments: bool = False
    cell_bytes: int = 0

    @property
    def read_policy(self) -> ReadPolicy:
        """How this process reads logs and indexes."""
        return ReadPolicy(self.io_limit, not self.live if self.keep_cache is None else self.keep_cache)


class ScanTask(NamedTuple):
    """A range of a segment to verify, and how."""

    range: SegmentRange
    options: ScanOptions


class IndexCache:
    """The index entries of the segment that a worker scanned last; its next range is mostly one of the same segment.

    Each worker has its own. Entries are valid while the stamp of the index file stays the same.
    """

    def __init__(self) -> None:
        self._entries: dict[Kind, tuple[tuple[int, ...], bytes]] = {}

    def get(self, kind: Kind, stamp: tuple[int, ...]) -> bytes | None:
        """The entries of the index with this stamp, None where they are not here."""
        known = self._entries.get(kind)
        return known[1] if known is not None and known[0] == stamp else None

    def set(self, kind: Kind, stamp: tuple[int, ...], entries: bytes) -> None:
        """Keep the entries of an index, in place of the last one of its kind."""
        self._entries[kind] = stamp, entries


def scan(
    task: ScanTask,
    carry: Carry | None = None,
    on_events: Callable[[bytes], None] | None = None,
    on_bytes: Callable[[int], object] | None = None,
    cache: IndexCache | None = None,
    on_damage: OnCut | None = None,
) -> RangeSummary:
    """Scan one range.

    Without `carry`, the start of a range inside the file is a hint: the scan begins at the first batch from there on.
    `on_events` takes the events as they come; without it they are in the summary. `on_bytes` takes the number of bytes
    read since the last call. `on_damage`: see OnCut.
    """
    file = task.range.segment.log
    try:
        with only(file.path), open_file(file, task.options.read_policy, task.range) as source:
            counted = source if on_bytes is None else ProgressSource(source, on_bytes)
            return scan_source(counted, task, carry, on_events, cache, on_damage)
    except SourceError as error:
        return RangeSummary(
            None, task.range.start, None, error=None if was_deleted_by_broker(file, task.options) else error
        )


def scan_source(
    source: Source,
    task: ScanTask,
    carry: Carry | None = None,
    on_events: Callable[[bytes], None] | None = None,
    cache: IndexCache | None = None,
    on_damage: OnCut | None = None,
) -> RangeSummary:
    """Scan one range of a source that is open. See `scan`."""
    if not task.options.valid_segments or task.range.segment.log.kind is not Kind.LOG:
        return _scan_part(source, task, carry, on_events, cache, on_damage)[0]
    cache = IndexCache() if cache is None else cache
    breaks = MOST_BREAKS
    whole, walk = _scan_part(source, task, carry, on_events, cache, on_damage, cuts=True, breaks=True)
    last, cuts = whole, 0
    while last.is_cut and cuts <= MOST_CUTS:
        before = whole.scanned
        rest = task._replace(range=task.range._replace(start=whole.end))
        cuts, breaks = cuts + (not walk.is_at_break), breaks - walk.is_at_break
        if walk.is_at_break and whole.prefix is None:
            codes = frozenset(code for code, _ in whole.counts)
            whole.breaks.append(ValidPrefix(whole.end, before, codes, len(whole.events)))
        at_break = walk.is_at_break
        last, walk = _scan_part(
            source,
            rest,
            before.carry,
            on_events,
            cache,
            on_damage,
            cuts=cuts <= MOST_CUTS,
            breaks=breaks > 0,
            after=walk,
            time_offset=before.max_timestamp_offset,
        )
        # A carry does not have the timestamp of the batch before.
        if last.state and before.linked and last.scanned.first_position == whole.end:
            before = linked_times(before, last.scanned)
        add(whole, before, last, task.range.segment.log.base_offset or 0, at_break=at_break)
    whole.is_cut = False
    return whole


def _scan_part(
    source: Source,
    task: ScanTask,
    carry: Carry | None,
    on_events: Callable[[bytes], None] | None,
    cache: IndexCache | None,
    on_damage: OnCut | None,
    *,
    cuts: bool = False,
    breaks: bool = False,
    after: Walk | None = None,
    time_offset: int = -1,
) -> tuple[RangeSummary, Walk]:
    """Scan one range; with `cuts` up to the end of its first damage, so that all before it has a state of its own.

    With `breaks` it ends at the first break as well (Walk). `after` is the walk that ended at the start of the range;
    `time_offset` is the offset of the largest timestamp before.
    """
    (segment, start, stop), options = task
    file, summary = segment.log, RangeSummary(None, start, None)
    tracker = _index_tracker(task, summary, IndexCache() if cache is None else cache)
    _resume(tracker, after, time_offset)

    def end_prefix(walk: Walk) -> None:
        if summary.prefix is None:
            codes = frozenset(code for code, _ in summary.counts)
            summary.prefix = ValidPrefix(walk.position, walk.scanner.state(), codes, len(summary.events))
        if on_damage is not None:
            on_damage(_unknown_batch(walk))

    walk = walk_of(
        file.kind,
        source,
        base_offset=file.base_offset,
        start=start,
        stop=stop,
        carry=carry,
        deep=options.deep,
        max_batch_bytes=options.max_batch_bytes,
        runs=Runs() if file.kind is Kind.LOG else None,
        on_events=summary.events.append if on_events is None else on_events,
        indexes=tracker,
        on_damage=end_prefix,
        stops_at_damage=cuts,
        **_cuts_of(after, breaks=cuts and breaks),
    )
    summary.view = [] if cuts else None
    summary.cells = _cells_of(walk, options, start, source.size if stop is None else stop)
    try:
        if carry is not None or walk.sync():
            _walk_range(walk, task, summary)
    except SourceError as error:
        summary.error = error  # what was found before the disk failed is still worth reporting
    summary.end = walk.position
    summary.state = walk.scanner.state()
    summary.is_cut = cuts and summary.error is None and walk.has_stopped
    _end_part(source, task, summary, tracker)
    if walk.is_at_break and on_damage is not None:
        on_damage(None, at_break=True)
    return summary, walk


def _end_part(source: Source, task: ScanTask, summary: RangeSummary, tracker: IndexTracker | None) -> None:
    if tracker is not None:
        _add_index_entries(tracker, summary)
    if summary.view is not None:
        _add_stretch(summary)
    if summary.error is None and not summary.is_cut:
        _check_end(source, task, summary)


def _cuts_of(after: Walk | None, *, breaks: bool) -> dict[str, Any]:
    """What only a walk over a log takes."""
    how: dict[str, Any] = {"stops_at_break": True} if breaks else {}
    return how if after is None else how | {"after": after}


def _unknown_batch(walk: Walk) -> Batch | None:
    """The batch by its header at the position of a walk where a magic is there that verify does not know."""
    header = _header_at(walk, walk.position)
    if len(header) < HEADER_SIZE or header[MAGIC_AT] not in _UNKNOWN_MAGICS:
        return None
    from kdump.broker.file_records import batch_from_header

    return batch_from_header(header, walk.position, LOG_OVERHEAD + int.from_bytes(header[LENGTH_AT:LOG_OVERHEAD]))


def _header_at(walk: Walk, position: int) -> bytes:
    """The header at a position, shorter at the end of the file."""
    return bytes(walk.bytes_at(position, max(0, min(HEADER_SIZE, walk.source.size - position))))


def _cells_of(walk: Walk, options: ScanOptions, start: int, stop: int) -> "RangeCells | None":
    """The cells of a range, which the scanner fills, where a map is asked for."""
    if not options.cell_bytes or not isinstance(walk.scanner, Scanner):
        return None
    from kdump.verify.log_map import RangeCells  # only a map needs it

    cells = RangeCells(options.cell_bytes, start, stop)
    walk.scanner.sum_cells(cells.rows, cells.cell_bytes, cells.first * cells.cell_bytes)
    return cells


def _index_tracker(task: ScanTask, summary: RangeSummary, cache: IndexCache) -> IndexTracker | None:
    """What checks the index entries of a range, and builds those of a recovery where they are asked for.

    Without an index, too, what a recovery would write says where it breaks off.
    """
    prefixes, base = _read_indexes(task, summary, cache), task.range.segment.log.base_offset
    if base is None or (not prefixes and task.range.segment.log.kind is not Kind.LOG):
        return None
    tracker = IndexTracker(base)
    tracker.check(prefixes.get(Kind.INDEX, b""), prefixes.get(Kind.TIMEINDEX, b""))
    if task.options.valid_segments:
        tracker.build()
    return tracker


def _resume(tracker: IndexTracker | None, after: Walk | None, time_offset: int) -> None:
    """Go on with what a recovery does to the indexes where the walk before ended at a break."""
    if tracker is not None and after is not None and after.is_at_break and after.indexes is not None:
        tracker.resume(after.indexes, time_offset)


def _add_index_entries(tracker: IndexTracker, summary: RangeSummary) -> None:
    summary.entries = tracker.bad_entries()
    summary.entry_counts.update(tracker.bad_entry_counts())
    summary.recovery = tracker.recovery()
    built = tracker.built_range()
    summary.rebuilt = None if built is None else IndexEntries(*built)


def _add_stretch(summary: RangeSummary) -> None:
    """Put the valid batches before the damage of a range that was cut into its view."""
    assert summary.view is not None
    if summary.start is None or summary.error is not None:
        summary.view = None
        return
    prefix = summary.prefix
    stop, state, events = summary.end, summary.scanned, len(summary.events)
    if prefix is not None:
        stop, state, events = prefix.stop, prefix.state, prefix.events
    stretch = Stretch(summary.start, stop, state, summary.suspect, events, is_rising=summary.is_rising)
    summary.view.insert(0, stretch)


def _read_indexes(task: ScanTask, summary: RangeSummary, cache: IndexCache) -> dict[Kind, bytes]:
    """The entries of both indexes that are in order. The range at the start of the file checks their structure."""
    (segment, start, stop), options = task
    prefixes: dict[Kind, bytes] = {}
    for companion in (segment.index, segment.timeindex) if segment.log.base_offset is not None else ():
        if companion is None:
            continue
        from kdump.verify.checks.indexes import check_structure

        try:
            with open_file(companion, options.read_policy) as entries:
                stamp = entries.stamp
                known = cache.get(companion.kind, stamp) if start else None
                if known is not None:
                    prefixes[companion.kind] = known
                    continue
                index, found = check_structure(companion, entries, segment.log.active)
        except SourceError as error:
            if start == 0 and not was_deleted_by_broker(companion, options):
                summary.errors.append(error)
            continue
        prefixes[companion.kind] = index.prefix
        if start or stop is not None:
            cache.set(companion.kind, stamp, index.prefix)
        if start == 0:
            summary.indexes[companion.kind] = index
            for finding in found:
                summary.add(finding)
    return prefixes


def _walk_range(walk: Walk, task: ScanTask, summary: RangeSummary) -> None:
    """Walk to the end of the range, and add what is found."""
    segment, options = task.range.segment, task.options
    file = segment.log
    summary.start = walk.position
    for item in walk:
        if isinstance(item, BatchChunk):
            for finding in _check_chunk(walk, item, segment, options, summary):
                summary.add(finding)
            if summary.view is not None:
                _view_chunk(summary, item)
            if item.damaged:
                summary.damages += 1
                last = item.row(item.batches - 1)
                summary.damaged_at = last.position
                is_alone = item.batches == 1 and item.suspects() == [_BAD_MAGIC] and last.magic in _UNKNOWN_MAGICS
                if is_alone and _is_passed(walk, last, file.base_offset or 0):
                    summary.add_passed([PassedFrame(last, len(summary.events))])
                if summary.cells is not None:
                    summary.cells.add_damage(last.position, last.size)
        else:
            from kdump.verify.checks import framing

            summary.add(framing.not_a_batch(file.path, item, file.preallocated))
            _add_damage(summary, item)
            if summary.view is None:
                continue
            if isinstance(item, Gap | Tail):
                from kdump.log.damage import damaged_bytes

                read = reader_of(walk.source)
                summary.view.append(damaged_bytes(item, read, preallocated=file.preallocated))
            elif isinstance(item, ForeignBatch) and len(summary.view) < MOST_CUTS:
                summary.view += [item] if item.undecided else []
            else:
                summary.view = None


def _is_passed(walk: Walk, frame: Batch, base_offset: int) -> bool:
    """Whether the offsets of a frame whose CRC is right are in order, and a batch follows it."""
    seen, end = walk.scanner, frame.position + frame.size
    if not base_offset <= frame.base_offset <= frame.last_offset <= base_offset + HIGHEST_RELATIVE_OFFSET:
        return False
    if frame.base_offset <= seen.known_last if seen.has_last else frame.position > 0:
        return False
    header = _header_at(walk, end)
    return len(header) == HEADER_SIZE and header[MAGIC_AT] == 2 and HEADER.unpack(header)[0] > frame.last_offset


def _view_chunk(summary: RangeSummary, chunk: BatchChunk) -> None:
    """Note in the view what is wrong with the batches of a chunk."""
    if chunk.damaged and summary.view is not None:
        from kdump.log.damage import damages_in

        summary.view += damages_in(chunk)
        return
    for index, suspect in enumerate(chunk.suspects()):
        summary.suspect |= suspect
        if suspect & OFFSETS_OUT_OF_ORDER:
            row = chunk.row(index)
            rises = NO_VALUE < row.base_offset <= row.last_offset < _NO_OFFSET
            summary.is_rising &= row.position == summary.start and rises


def _check_end(source: Source, task: ScanTask, summary: RangeSummary) -> None:
    """Check what can be checked after the walk: a KRaft snapshot, and whether the file grew."""
    file, options = task.range.segment.log, task.options
    if file.kind is Kind.CHECKPOINT:
        from kdump.verify.checks import kraft  # imports the record decoder, which a plain verify does not need

        for finding in kraft.check_snapshot(file.path, source, summary.scanned, options.max_batch_bytes):
            summary.add(finding)
    if task.range.stop is None and (grown := source.size_now() - source.size) > 0:
        from kdump.verify.checks import framing

        summary.add(framing.grown(file.path, source.size, grown))


def was_deleted_by_broker(file: LogFile, options: ScanOptions) -> bool:
    """Whether a running broker deleted the file."""
    return options.live and not exists(file.path)


def _add_damage(summary: RangeSummary, item: Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile) -> None:
    """Note damage in the summary. Preallocated zeros are no damage."""
    if isinstance(item, Tail):
        summary.tail = item.position
    if isinstance(item, Gap | ShrunkFile) or (isinstance(item, Tail) and item.reason is not TailContent.ZEROS):
        summary.damages += 1
        summary.damaged_at = item.position
        if summary.cells is not None:
            summary.cells.add_damage(item.position, item.length)


def _check_chunk(
    walk: Walk, chunk: BatchChunk, segment: Segment, options: ScanOptions, summary: RangeSummary
) -> "Iterator[Finding]":
    """The findings of the batches of a chunk. Opens those that have to be opened, and notes those out of order."""
    rows, file, limit = walk.scanner.rows, segment.log, options.max_batch_bytes
    for index in range(chunk.batches):
        bits = rows[index * _WIDTH + _SUSPECT]
        if bits & OPEN:
            try:
                bits, note = walk.open(index, limit)
            except LimitExceeded:
                from kdump.verify.checks import framing

                yield framing.limit(file.path, chunk.row(index), limit, decompressed=True)
            except CodecError as error:
                from kdump.verify.checks import framing

                yield framing.codec("batch/codec", file.path, chunk.row(index), error.reason)
            else:
                if note is not None:
                    from kdump.verify.checks import framing

                    yield framing.codec("batch/codec-odd", file.path, chunk.row(index), note)
        if bits & OFFSETS_OUT_OF_ORDER and not chunk.damaged:
            found = chunk.diagnosis(index)
            known = found.previous_base_offset != NO_VALUE
            before = found.previous_base_offset if known else found.previous_offset
            summary.add_disorder([OffsetBreak(chunk.row(index), before)])
        if bits & ~OPEN:
            from kdump.verify.checks.suspect_batches import explain

            yield from explain(file.path, chunk.row(index), chunk.diagnosis(index), file.base_offset)


# ---- the ranges of a segment
#
# A cut between two ranges is only a hint. Two neighbours join where the right one began where the left one ended, and
# its checks would have found the same with the state of the left one. Otherwise the right range is scanned again with
# that state. So every cutting of a segment gives the same result.


def fold(parts: list[tuple[ScanTask, RangeSummary]]) -> RangeSummary:
    """Join the summaries of all ranges of a segment, in log order."""
    return fold_ranges(parts, partial(join, cache=IndexCache()))


def join(left: RangeSummary, task: ScanTask, right: RangeSummary, cache: IndexCache | None = None) -> RangeSummary:
    """Add to `left` the summary of the range after it, `task`. Returns `left`.

    Scans the range again where it began at another position, or where its checks would have found something else with
    the state of `left`.
    """
    if left.error:
        return left
    before = left.scanned
    if right.error or right.start != left.end or not _agrees(before, right.scanned) or _is_late(before, right):
        right = scan(task._replace(range=task.range._replace(start=left.end)), carry=before.carry, cache=cache)
        # A carry does not have the timestamp of the batch before.
        if right.state and before.linked and right.scanned.first_position == left.end:
            before = linked_times(before, right.scanned)
    else:
        before = linked_times(linked(before, right.scanned), right.scanned)
    add(left, before, right, task.range.segment.log.base_offset or 0)
    return left


def _agrees(left: ScanState, right: ScanState) -> bool:
    """Whether the right walk, which began without the state of the left one, found all that it had to find."""
    if not left.batches or not right.batches or not left.linked:
        return False
    if left.known_epoch != -1 and not 0 <= left.known_epoch <= right.first_epoch:
        return False
    if (left.index_cursor, left.time_cursor) != (right.index_begin, right.time_begin):
        return False
    if right.time_cursor > right.time_begin and left.max_timestamp > right.first_time_entry:
        return False
    # An index entry at the first batch of the right walk, which did not know the batch before.
    if NO_VALUE < right.first_index_offset <= left.known_last:
        return False
    return bool(right.first_offset > left.known_last)


def _is_late(left: ScanState, right: RangeSummary) -> bool:
    """Whether the left range has a larger timestamp than one that the right walk reports as the largest so far."""
    return any(
        entry.problem in ("timeindex/misses", "timeindex/wrong") and entry.found < left.max_timestamp
        for entry in right.entries
    )
