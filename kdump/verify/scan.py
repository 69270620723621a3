"""The fold behind a verify: a log file is cut into ranges, `scan` turns each into a Summary, `join` puts neighbours together in log order.

A cut is only a hint: two neighbours join when the right one began where the left one ended and its rules would have said the same with the left one's state;
where not, the right range is scanned again from there. So every cutting gives the same result as none. What producers did is only recorded here, as events
in log order (kdump.kernel.producers); the rules about it are applied to a whole partition by kdump.verify.
"""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from operator import add
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.format import codec
from kdump.format.batch import CODEC_MASK
from kdump.format.index import HIGHEST_RELATIVE_OFFSET, OFFSET_ENTRY, TIME_ENTRY
from kdump.format.naming import Kind
from kdump.kernel.producers import Runs
from kdump.kernel.results import NO_VALUE, BadEntry, Carry, ScanState
from kdump.kernel.scan import BATCH_COLUMNS, OPEN, Scanner
from kdump.kernel.scan07 import Scanner07
from kdump.storage.partition import LogFile, Segment
from kdump.storage.ranges import SegmentRange
from kdump.storage.source import ProgressSource, Source
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
from kdump.storage.walk07 import walk_of
from kdump.verify import checks
from kdump.verify.checks import framing
from kdump.verify.checks.indexes import IndexFile, structure
from kdump.verify.findings import KEPT, Finding, Severity

_MOST: Final = (1 << 63) - 1  # where the kernel stops counting
BACK_MS: Final = 7 * 86_400_000
_SUSPECT, _MAGIC, _ATTRIBUTES, _PAYLOAD_AT, _PAYLOAD_SIZE = (
    BATCH_COLUMNS.index(name) for name in ("suspect", "magic", "attributes", "payload_at", "payload_size")
)
assert BATCH_COLUMNS[0] == "position"
_WIDTH = len(BATCH_COLUMNS)

_held: dict[Kind, tuple[tuple[int, ...], bytes]] = {}
"""The index entries that the last range of a segment was held against, by the stamp of their file: the next range is mostly one of the same segment."""


class VerifyOptions(NamedTuple):
    """What to prove. `compacted` is None where each segment shows by itself whether a cleaner went over it.

    `now_ms` is the time against which timestamps lie in the future; `live` says that a broker is writing, `proofs` that the segments that a recovery passes over are wanted.
    """

    deep: bool = False
    compacted: bool | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES
    live: bool = False
    now_ms: int | None = None
    proofs: bool = False


class ScanTask(NamedTuple):
    """A range of a segment to verify, and how."""

    range: SegmentRange
    options: VerifyOptions


class IndexEntries(NamedTuple):
    """The entries of both indexes that a broker's recovery makes of a range (Scanner.made).

    `since` is the position of the entry before, 0 without one and -1 where the range has no batch. `due` is the largest timestamp where the first entry came
    due, -2^63 where none did.
    """

    since: int
    due: int
    offsets: bytearray
    times: bytearray

    @property
    def last_position(self) -> int:
        """Where the next range goes on from."""
        if self.offsets:
            return int(OFFSET_ENTRY.unpack_from(self.offsets, len(self.offsets) - OFFSET_ENTRY.size)[1])
        return max(self.since, 0)

    @property
    def last_timestamp(self) -> int:
        """That of the last entry of the time index; -1 without one, as in Kafka."""
        if self.times:
            return self._timestamp(len(self.times) // TIME_ENTRY.size - 1)
        return -1

    def later_than(self, timestamp: int) -> bytearray:
        """The entries of the time index from the first one on that has a larger timestamp."""
        first = bisect_right(range(len(self.times) // TIME_ENTRY.size), timestamp, key=self._timestamp)
        return self.times[first * TIME_ENTRY.size :]

    def _timestamp(self, entry: int) -> int:
        return int(TIME_ENTRY.unpack_from(self.times, entry * TIME_ENTRY.size)[0])


@dataclass(slots=True)
class RangeSummary:
    """What a range showed. `start` and `end` are the batch borders it really covered; start is None when no batch was found to begin with.

    `events` are the batches of producers, `entries` the index entries that the batches contradict, with exact counts by problem, `indexes` what the range at
    the beginning of the file read of them and `errors` why not. `made` are the entries that a recovery would make, None where nobody asked for proofs or they
    are not those that are there. `damages` counts what is broken, padding aside, the last of it at `damaged_at`; `tail` is where a tail begins.
    """

    start: int | None
    end: int
    state: ScanState | None
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, Severity]] = field(default_factory=Counter)
    events: list[bytes] = field(default_factory=list)
    entries: list[BadEntry] = field(default_factory=list)
    entry_counts: Counter[str] = field(default_factory=Counter)
    indexes: dict[Kind, IndexFile] = field(default_factory=dict)
    made: IndexEntries | None = None
    damages: int = 0
    damaged_at: int = -1
    tail: int | None = None
    errors: list[SourceError] = field(default_factory=list)
    error: SourceError | None = None

    @property
    def seen(self) -> ScanState:
        """The state of a walk that was begun."""
        assert self.state is not None
        return self.state

    def add(self, finding: Finding) -> None:
        self.counts[finding.code, finding.severity] += 1
        if sum(count for (code, _), count in self.counts.items() if code == finding.code) <= KEPT:
            self.findings.append(finding)


def fold(parts: list[tuple[ScanTask, RangeSummary]]) -> RangeSummary:
    """The summaries of neighbouring ranges as one."""
    whole = parts[0][1]
    for task, part in parts[1:]:
        whole = join(whole, task, part)
    return whole


def join(left: RangeSummary, task: ScanTask, right: RangeSummary) -> RangeSummary:
    """`left` and the range right of it, scanned again where it began at another place or would have said something else."""
    if left.error:
        return left
    before = left.seen
    if right.error or right.start != left.end or not _agrees(before, right.seen) or _behind(before, right):
        right = scan(task._replace(range=task.range._replace(start=left.end)), carry=before.carry)
        # What was carried has no timestamp of the batch before.
        if right.state and before.linked and right.seen.first_position == left.end:
            before = _linked_times(before, right.seen)
    else:
        before = _linked_times(_linked(before, right.seen), right.seen)
    for finding in right.findings:
        if sum(1 for kept in left.findings if kept.code == finding.code) < KEPT:
            left.findings.append(finding)
    left.counts.update(right.counts)
    for entry in right.entries:
        if sum(1 for kept in left.entries if kept.problem == entry.problem) < KEPT:
            left.entries.append(entry)
    left.entry_counts.update(right.entry_counts)
    left.events += right.events
    left.damages += right.damages
    left.damaged_at = max(left.damaged_at, right.damaged_at)
    left.tail = left.tail if right.tail is None else right.tail
    left.made = _made(left, right, task.range.segment.log.base_offset or 0)
    left.state = before if right.state is None else _merged(before, right.state)
    left.end = right.end
    left.error = right.error
    return left


def scan(
    task: ScanTask,
    carry: Carry | None = None,
    drain: Callable[[bytes], None] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> RangeSummary:
    """Walk over one range. Without `carry` a start inside the file is taken for a hint and the first batch behind it is looked for.

    `drain` is given the events as they come; without it they are in the summary.
    """
    segment, start, stop = task.range
    file = segment.log
    try:
        with file.open() as source:
            told = source if on_bytes is None else ProgressSource(source, on_bytes)
            return scan_source(told, segment, task.options, start, stop, carry, drain)
    except SourceError as error:
        return RangeSummary(None, start, None, error=None if gone(file, task.options) else error)


def scan_source(
    source: Source,
    segment: Segment,
    options: VerifyOptions,
    start: int = 0,
    stop: int | None = None,
    carry: Carry | None = None,
    drain: Callable[[bytes], None] | None = None,
) -> RangeSummary:
    """`scan` over an open source."""
    file = segment.log
    summary = RangeSummary(None, start, None)
    prefixes = {}
    for companion in (segment.index, segment.timeindex) if file.base_offset is not None else ():
        if companion is not None:
            try:
                with companion.open() as entries:
                    stamp, held = entries.stamp, _held.get(companion.kind)
                    if start and held is not None and held[0] == stamp:
                        prefixes[companion.kind] = held[1]
                        continue
                    index, found = structure(companion, entries, file.newest)
            except SourceError as error:
                if start == 0 and not gone(companion, options):
                    summary.errors.append(error)
                continue
            prefixes[companion.kind] = index.prefix
            if start or stop is not None:
                _held[companion.kind] = stamp, index.prefix
            if start == 0:
                summary.indexes[companion.kind] = index
                for finding in found:
                    summary.add(finding)
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
        drain=summary.events.append if drain is None else drain,
        expect=(prefixes.get(Kind.INDEX, b""), prefixes.get(Kind.TIMEINDEX, b"")) if prefixes else None,
    )
    if options.proofs and prefixes and isinstance(walk.scanner, Scanner):
        walk.scanner.make()
    try:
        if carry is not None or walk.sync():
            summary.start = walk.position
            for item in walk:
                if isinstance(item, BatchChunk):
                    for finding in _chunk(walk, item, segment, options):
                        summary.add(finding)
                    if item.damaged:
                        summary.damages += 1
                        summary.damaged_at = item.row(item.batches - 1).position
                else:
                    summary.add(framing.other(file.path, item, file.preallocated))
                    _note(summary, item)
    except SourceError as error:
        # What was found before the disk failed is worth having.
        summary.error = error
    summary.end = walk.position
    summary.state = walk.scanner.state()
    if isinstance(walk.scanner, Scanner) and prefixes:
        summary.entries = walk.scanner.entries()
        summary.entry_counts.update(walk.scanner.entry_counts())
        made = walk.scanner.made()
        summary.made = None if made is None else IndexEntries(*made)
    if summary.error is not None:
        return summary
    if file.kind is Kind.CHECKPOINT:
        from kdump.verify.checks import kraft  # brings the record decoder, which plain verify does without

        for finding in kraft.snapshot(file.path, source, summary.seen, options.max_batch_bytes):
            summary.add(finding)
    if stop is None and (grown := source.size_now() - source.size) > 0:
        summary.add(framing.grown(file.path, source.size, grown))
    return summary


def gone(file: LogFile, options: VerifyOptions) -> bool:
    """Whether a running broker has taken the file away."""
    return options.live and not os.path.lexists(file.path)


def _note(summary: RangeSummary, item: Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile) -> None:
    """Remember where the log is broken; the room that a broker takes in advance is no damage."""
    if isinstance(item, Tail):
        summary.tail = item.position
    if isinstance(item, Gap | ShrunkFile) or (isinstance(item, Tail) and item.reason is not TailContent.ZEROS):
        summary.damages += 1
        summary.damaged_at = item.position


def _chunk(walk: Walk, chunk: BatchChunk, segment: Segment, options: VerifyOptions) -> Iterator[Finding]:
    scanner, rows, decompress, file = walk.scanner, walk.scanner.rows, codec.decompress, segment.log
    for index in range(chunk.batches):
        bits = rows[index * _WIDTH + _SUSPECT]
        if bits & OPEN and isinstance(scanner, Scanner07):
            bits = yield from _unwrap(scanner, index, chunk, file.path, options)
        elif bits & OPEN and isinstance(scanner, Scanner):
            # Cells instead of a Batch: at a few microseconds a batch, making one would show.
            cell = index * _WIDTH
            payload = walk.bytes_at(rows[cell] + rows[cell + _PAYLOAD_AT], rows[cell + _PAYLOAD_SIZE])
            try:
                opened, note = decompress(
                    rows[cell + _ATTRIBUTES] & CODEC_MASK, payload, rows[cell + _MAGIC], options.max_batch_bytes
                )
            except codec.LimitExceeded:
                yield framing.limit(file.path, chunk.row(index), options.max_batch_bytes, decompressed=True)
            except codec.CodecError as error:
                yield framing.codec("batch/codec", file.path, chunk.row(index), error.reason)
            else:
                bits = scanner.open(index, opened)
                if note is not None:
                    yield framing.codec("batch/codec-odd", file.path, chunk.row(index), note)
        if bits & ~OPEN:
            yield from checks.explain(file.path, chunk.row(index), file.base_offset)


def _unwrap(
    scanner: Scanner07, index: int, chunk: BatchChunk, path: str, options: VerifyOptions
) -> Generator[Finding, None, int]:
    """Open a compressed message of Kafka 0.7; its suspect bits."""
    from kdump.storage.records07 import unwrap

    batch = chunk.row(index)
    inside = unwrap(batch, chunk.body(batch), options.max_batch_bytes, keep=False)
    if inside.problem == "batch/limit":
        yield framing.limit(path, batch, options.max_batch_bytes, decompressed=True)
    elif inside.problem == "batch/codec":
        yield framing.codec("batch/codec", path, batch, inside.reason)
    else:
        if inside.note is not None:
            yield framing.codec("batch/codec-odd", path, batch, inside.note)
        return scanner.opened(index, inside.messages, inside.status, inside.status_at, inside.inner_crc, inside.partial)
    return batch.suspect


# ---- the state of neighbours

_FIRST = (
    "first_position",
    "first_offset",
    "first_epoch",
    "first_spans",
    "first_timestamp",
    "index_begin",
    "time_begin",
)
_LAST = ("last_position", "last_offset", "known_last", "has_last", "last_timestamp", "index_cursor", "time_cursor")
_SUM = (
    "batches",
    "records",
    "unopened",
    "valid_bytes",
    "gaps",
    "gap_offsets",
    "inner_magic",
    "control",
    "transactional",
    "produced",
    "broken",
    "backs",
)
_FIRST_GAP = ("gap_position", "gap_first", "gap_previous")
_FIRST_BACK = ("back_position", "back_offset")
_LARGEST = ("max_timestamp", "max_timestamp_offset", "max_timestamp_position")


def _agrees(left: ScanState, right: ScanState) -> bool:
    """Whether the right walk, which knew nothing of the left one, said all that it had to say."""
    if not left.batches or not right.batches or not left.linked:
        return False
    if left.known_epoch != -1 and not 0 <= left.known_epoch <= right.first_epoch:
        return False
    if (left.index_cursor, left.time_cursor) != (right.index_begin, right.time_begin):
        return False
    if right.time_cursor > right.time_begin and left.max_timestamp > right.first_time_entry:
        return False
    # An entry of the index at the right walk's first batch, which did not know what lies before.
    if NO_VALUE < right.first_index_offset <= left.known_last:
        return False
    return bool(right.first_offset > left.known_last)


def _behind(left: ScanState, right: RangeSummary) -> bool:
    """Whether a timestamp that the right walk calls the largest so far is not, with the left one before it."""
    return any(
        entry.problem in ("timeindex/misses", "timeindex/wrong") and entry.found < left.max_timestamp
        for entry in right.entries
    )


def _linked(left: ScanState, right: ScanState) -> ScanState:
    """The left state with the gap between the offsets of two walks, which neither could see."""
    missing = right.first_offset - left.known_last - 1
    if not missing or not right.first_spans:
        return left
    if not left.gaps:
        left = left._replace(
            gap_position=right.first_position, gap_first=right.first_offset, gap_previous=left.known_last
        )
    return left._replace(
        gaps=left.gaps + 1,
        gap_offsets=min(left.gap_offsets + missing, _MOST),
        gap_largest=max(left.gap_largest, min(missing, _MOST)),
    )


def _linked_times(left: ScanState, right: ScanState) -> ScanState:
    """The left state with the step back between the timestamps of two walks, which neither could see."""
    back = left.last_timestamp - right.first_timestamp
    if right.first_timestamp < 0 or back <= BACK_MS:
        return left
    if not left.backs:
        left = left._replace(back_position=right.first_position, back_offset=right.first_offset)
    return left._replace(backs=left.backs + 1, back_largest=max(left.back_largest, back))


def _merged(left: ScanState, right: ScanState) -> ScanState:
    names: list[str] = []  # of the fields that are taken from the right
    if right.batches:
        names += _LAST
    if not left.batches:
        names += _FIRST
    if not left.gaps:
        names += _FIRST_GAP
    if not left.backs:
        names += _FIRST_BACK
    if right.max_timestamp > left.max_timestamp:
        names += _LARGEST
    if not left.inner_magic:
        names.append("inner_magic_position")
    return left._replace(
        **{name: getattr(right, name) for name in names},
        **{name: min(getattr(left, name) + getattr(right, name), _MOST) for name in _SUM},
        **{name: max(getattr(left, name), getattr(right, name)) for name in ("gap_largest", "back_largest")},
        linked=right.linked,
        known_epoch=right.known_epoch if right.known_epoch >= 0 else left.known_epoch,
        compacted=left.compacted or right.compacted,
        index_differs=left.index_differs or right.index_differs,
        codecs=tuple(map(add, left.codecs, right.codecs)),
        magics=tuple(map(add, left.magics, right.magics)),
        epochs=_epochs(left.epochs, right.epochs),
    )


def _made(left: RangeSummary, right: RangeSummary, base_offset: int) -> IndexEntries | None:
    """What is made of both: a recovery knows on the right the timestamps on the left. None where it would not have gone on from the entry that the right walk did."""
    whole, more = left.made, right.made
    if whole is None or more is None:
        return None
    if more.since < 0:
        return whole
    if more.since != whole.last_position:
        return None
    largest, offset = left.seen.max_timestamp, left.seen.max_timestamp_offset - base_offset
    if largest >= more.due > NO_VALUE and largest > whole.last_timestamp:
        if not 0 <= offset <= HIGHEST_RELATIVE_OFFSET:
            return None
        whole.times.extend(TIME_ENTRY.pack(largest, offset))
    whole.times.extend(more.later_than(largest))
    whole.offsets.extend(more.offsets)
    return whole


Epochs = tuple[tuple[int, int, int], ...]


def _epochs(left: Epochs, right: Epochs) -> Epochs:
    """The changes of the leader epoch over both; the right walk lists its first batch as one."""
    if left and right and left[-1][0] == right[0][0]:
        right = right[1:]
    return left + right
