"""The records of log files as a stream of Arrow's record batches."""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa

from kdump.convert.records.holes import Hole, HoleTracker, PartHoles
from kdump.convert.records.ordered_log import ordered_log
from kdump.convert.records.outcome_ranges import OutcomeRange, OutcomeRanges
from kdump.convert.records.outcomes_ahead import OutcomesAhead
from kdump.convert.records.unread_headers import check_item
from kdump.convert.tables import LARGEST_DATA, USUAL_ROOM, FreeMemory, RecordBuffers, Room
from kdump.format.batch import Batch, first_known_offset
from kdump.kernel.columns import BROKEN, COMPRESSED, NO_ROOM, BatchParts, Columns
from kdump.kernel.records import STATUSES
from kdump.kernel.scan import SUSPECTS
from kdump.kernel.transactions import ABORTED, COMMITTED, Transactions
from kdump.log.damage import MISPLACED, DamagedRange, damaged_ranges
from kdump.log.header_pass import SliceHeaders, headers_of_walk
from kdump.log.isolation import Isolation, decide
from kdump.log.log_slice import (
    EVERYTHING,
    HIGHEST,
    LOWEST,
    Bounds,
    HeaderPass,
    LogSlice,
    SlicedPartition,
    walk_of_slice,
)
from kdump.log.ranges import UNKNOWN_END, OffsetRange, united, without
from kdump.log.records import DamageWarning
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch
from kdump.storage.partition import LogFile
from kdump.storage.read_policy import ReadPolicy, open_file
from kdump.storage.records import open_batch, payload_of
from kdump.storage.source import Source
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk
from kdump.verify.findings import Severity


class ReadSlice(NamedTuple):
    """A log file that was read, its size then, and its first and last batch."""

    log: LogFile
    size: int
    first: Batch
    last: Batch


OnDamage = Callable[[DamagedRange], object]

_CHUNK_BATCHES: Final = 1024
_STEP: Final = 16 << 20
"""The bytes between two reports of progress."""
_COUNT: Final = 1 << SUSPECTS.index("batch/count")
_MOST_PENDING: Final = 1000
"""The most damaged ranges between two batches that get the offsets between these."""


def _are_right(batch: Batch, offsets: Sequence[int]) -> bool:
    """Whether the offsets of the records of a batch rise, and lie in it; the last is that of a wrapper message."""
    if batch.is_wrapper:
        lies_there = offsets[0] >= 0 and offsets[-1] == batch.last_offset
    else:
        lies_there = offsets[0] >= batch.base_offset and offsets[-1] <= batch.last_offset
    return lies_there and all(one < two for one, two in pairwise(offsets))


def _inclusive(bounds: Bounds) -> tuple[int, int]:
    """The smallest and the largest number of a half-open range, within 64 bits."""
    first, stop = bounds
    lowest = LOWEST if first is None else min(max(first, LOWEST), HIGHEST)
    highest = HIGHEST if stop is None else max(min(stop - 1, HIGHEST), LOWEST)
    if (first is not None and first > HIGHEST) or (stop is not None and stop <= LOWEST):
        return 0, -1
    return lowest, highest


class RecordStream:
    """Makes record batches of the records of partitions, one partition after another.

    `memory` is what streams of the same schema share that follow each other.
    """

    stable: int | None = None
    """The last stable offset, of a log that was read up to that without reading its headers before."""
    _ahead: OutcomesAhead | None = None

    def __init__(
        self,
        schema: pa.Schema,
        time: Bounds = EVERYTHING,
        on_damage: OnDamage | None = None,
        *,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        isolation: Isolation = "read-committed",
        room: Room = USUAL_ROOM,
        read_policy: ReadPolicy = ReadPolicy(),  # noqa: B008  # it never changes
        on_bytes: Callable[[int], object] | None = None,
        memory: FreeMemory | None = None,
        with_offsets: bool = False,
    ) -> None:
        self._schema = schema
        self._memory = FreeMemory() if memory is None else memory
        self._time = _inclusive(time)
        self._on_damage = on_damage
        self._max_batch_bytes = min(max_batch_bytes, LARGEST_DATA)
        self._isolation = isolation
        self._room = room
        self._read_policy = read_policy
        self._on_bytes = on_bytes
        self._with_offsets = with_offsets
        self._pending: list[DamagedRange] = []
        self._is_assumed = False
        self._slice_now: LogSlice | None = None
        self._chunk_now: BatchChunk | None = None
        self._holes = HoleTracker()
        self.known_holes: Collection[OffsetRange] = ()
        """Holes, first and last offset, that were reported before."""
        self._warned = False
        self._transactions: Transactions | None = None
        self._stop: int | None = None
        self._chosen = LOWEST, HIGHEST
        self._known_undecided: int | None = None
        self.unfit_timestamps = 0
        """Timestamps that are null because they do not fit microseconds in 64 bits."""
        self.aborted = 0
        """Records that were left out because their transaction was aborted."""
        self.undecided = 0
        """Records that were left out because it is not known what became of their transaction."""
        self.slices: list[ReadSlice] = []
        """The files that were read, but those without a valid batch."""
        self.last_batch: Batch | None = None
        """The last batch with records below the end that was asked for, and below the first undecided one."""
        self.is_beyond = False
        """Whether damage hid where a part of a log ends: batches of the part after it were read, too."""
        self.aborted_ranges = OutcomeRanges()
        """The offsets of these records, of the last partition."""
        self.undecided_ranges = OutcomeRanges()
        """Likewise of the undecided ones."""
        self.holes = PartHoles(None, None, None, ())
        """The offsets that the partition that was read last has lost."""
        self.headers: HeaderPass | None = None
        """What the headers say of the partition that was read last."""
        self.slice_headers: list[SliceHeaders] = []
        """What the headers of each slice say, of a log that was read without reading them before."""
        self.left_out: list[LeftOutBatch] = []
        """Valid batches that were left out because others have their offsets."""

    @property
    def first_undecided(self) -> int | None:
        """The base offset of the first undecided batch of the partition that was read last, so far.

        Of a part of a log, that of the whole log.
        """
        if self._known_undecided is not None:
            return self._known_undecided
        return None if self._columns.first_undecided < 0 else self._columns.first_undecided

    @property
    def end(self) -> int | None:
        """The offset after the last batch of the partition that is read, so far."""
        return self._holes.end

    def batches(self, partitions: Sequence[SlicedPartition]) -> Iterator[pa.RecordBatch]:
        """The records of the partitions. Raises SourceError for a file that cannot be read.

        Raises HeadersNeeded for a log that was taken for another one.
        """
        for each in partitions:
            lowest, highest = _inclusive(each.offset)
            self._stop = highest + 1
            self.last_batch = self.stable = None
            self.aborted_ranges, self.undecided_ranges = OutcomeRanges(), OutcomeRanges()
            self._known_undecided = None if each.part is None else each.part.first_undecided
            log = ordered_log(each, self._max_batch_bytes)
            self.headers = log.partition.headers
            gaps = self.headers is not None and self.headers.gaps
            self._is_assumed = self.headers is not None and self.headers.is_assumed
            self._holes = HoleTracker(gaps=gaps, on_hole=self._on_hole if self._with_offsets else None)
            for damaged in log.damage:
                self.report(damaged)
            self.left_out += log.left_out
            self._decide(log.partition)
            self._columns = Columns(
                RecordBuffers.kernel_columns(self._schema),
                earliest=self._time[0],
                latest=self._time[1],
                control=self._isolation == "all",
                transactions=self._transactions,
            )
            self._of, self._replica = each.topic_partition, each.replica
            self._buffers = RecordBuffers(self._schema, self._columns, self._room, self._memory)
            self._buffers.begin(self._of, replica=self._replica)
            for number, part in log.partition.numbered():
                if not self._is_past(part):
                    yield from self._numbered_slice(number, part, lowest, highest)
                if self._is_past(part):
                    assert self._ahead is not None
                    self.slice_headers += self._ahead.headers_from(number)
                    break
            if self._ahead is not None:
                self._ahead.close()
            if self._columns.rows:
                yield self._finish()
            self.holes = self._holes.finish()
            self._release(None if self._holes.end is None else OffsetRange(self._holes.end, UNKNOWN_END))
            self.aborted += self._columns.aborted
            self.undecided += self._columns.undecided

    def _decide(self, partition: SlicedPartition) -> None:
        """Find out what became of the transactions: now, or ahead of the records where the headers were not read."""
        self._transactions = self._ahead = None
        if self._isolation == "read-committed" and self._is_assumed:
            self._ahead = OutcomesAhead(partition, self._max_batch_bytes)
            self._transactions = self._ahead.transactions
        elif self._isolation == "read-committed":
            self._transactions = decide(partition, self._max_batch_bytes)

    def _is_past(self, each: LogSlice) -> bool:
        """Whether a slice begins at the last stable offset or after it: nothing of it is read."""
        return self._ahead is not None and self._ahead.is_past(each)

    def _numbered_slice(self, number: int, part: LogSlice, lowest: int, highest: int) -> Iterator[pa.RecordBatch]:
        if self._ahead is not None:
            self._ahead.begin(number)
        elif self._transactions is not None:
            self._transactions.begin(number)
        highest = highest if self.stable is None else min(highest, self.stable - 1)
        self._chosen = max(lowest, part.lowest), min(highest, part.highest)
        self._columns.choose_offsets(*self._chosen)
        with open_file(part.log, self._read_policy, part) as source:
            yield from self._slice(part, source)

    def _slice(self, each: LogSlice, source: Source) -> Iterator[pa.RecordBatch]:
        walk = walk_of_slice(each, source, everything=True, max_batch_bytes=self._max_batch_bytes, rows=_CHUNK_BATCHES)
        first = last = None
        done = each.start
        self._slice_now = each
        self._holes.begin_slice(each)
        for item in walk:
            if self._on_bytes is not None and walk.position - done >= _STEP:
                self._on_bytes(walk.position - done)
                done = walk.position
            if self._is_assumed:
                check_item(item)
            if isinstance(item, BatchChunk) and not item.damaged:
                first, last = first or item.row(0), item.row(item.batches - 1)
                left_out, misplaced = self._columns.aborted + self._columns.undecided, self._columns.misplaced
                self._chunk_now = item
                if self._ahead is not None:
                    self._ahead.take(item)
                    if self._ahead.stable is not None:
                        self._end_at(self._ahead.stable)
                    if self._is_past(each):
                        return
                self._holes.chunk(item)
                self._report_emptied(each.log.path, item)
                yield from self._chunk(each.log.path, item)
                if self._columns.aborted + self._columns.undecided > left_out:
                    self._note_outcomes(item)
                if self._columns.misplaced > misplaced:
                    self._report_misplaced(each.log.path, item)
                self._note(item, last)
            else:
                for damaged in damaged_ranges(each.log.path, item, active=each.log.preallocated):
                    self._holes.damage(each, is_padding=damaged.is_padding)
                    self._damaged(damaged)
        if self._is_assumed:
            self.slice_headers.append(headers_of_walk(walk.scanner.state()))
        self.is_beyond = self.is_beyond or (each.stop is not None and walk.position > each.stop)
        if self._on_bytes is not None:
            self._on_bytes((source.size if each.stop is None else each.stop) - done)
        if first is not None and last is not None:
            self.slices.append(ReadSlice(each.log, source.size, first, last))

    def _end_at(self, stable: int) -> None:
        """Read no record at or after the last stable offset."""
        if self.stable is None:
            self.stable = stable
            self._chosen = self._chosen[0], min(self._chosen[1], stable - 1)
            self._columns.choose_offsets(*self._chosen)
            self._stop = None if self._stop is None else min(self._stop, stable)

    def _chunk(self, path: str, chunk: BatchChunk) -> Iterator[pa.RecordBatch]:
        columns, walk, index = self._columns, chunk.walk, 0
        while index < chunk.batches:
            index = columns.add_chunk(walk.scanner.rows, index, chunk.batches, *walk.window)
            if columns.stopped == NO_ROOM and columns.rows:
                yield self._turn()
            elif columns.stopped in (COMPRESSED, NO_ROOM):
                yield from self._open(path, chunk, index)
                index += 1
            elif columns.stopped == BROKEN:
                self._report_batch(path, chunk, index - 1, self._problem(chunk, index - 1))

    def _open(self, path: str, chunk: BatchChunk, index: int) -> Iterator[pa.RecordBatch]:
        """Add a batch that has to be decompressed, or that needs more room than there is in a record batch."""
        columns, rows, batch = self._columns, chunk.walk.scanner.rows, chunk.row(index)
        payload, problem = payload_of(batch, chunk.body(batch), self._max_batch_bytes)
        if problem is not None:
            self._report_batch(path, chunk, index, problem)
            return
        if batch.codec:
            chunk.walk.release()
        if columns.add_payload(rows, index, payload) == NO_ROOM and columns.rows:
            yield self._turn()
            columns.add_payload(rows, index, payload)
        if columns.stopped == NO_ROOM:
            parts = BatchParts(columns, rows, index, payload)
            while parts.add() == NO_ROOM:
                if columns.rows:
                    yield self._turn()
                elif columns.need_bytes <= LARGEST_DATA:
                    self._grow()
                else:
                    self._report_batch(path, chunk, index, "batch/limit")
                    return
        if columns.stopped == BROKEN:
            self._report_batch(path, chunk, index, self._problem(chunk, index))

    # ---- what was read

    def _note(self, chunk: BatchChunk, last: Batch) -> None:
        """Note the last batch below the end that was asked for, and below the first undecided one."""
        undecided = self.first_undecided
        if self._stop is None:
            return
        stop = self._stop if undecided is None else min(self._stop, undecided)
        if last.last_offset < stop:
            self.last_batch = last
            return
        for batch in chunk.rows():
            if first_known_offset(batch) >= stop:
                break
            self.last_batch = batch
        if first_known_offset(last) >= stop:
            self._stop = None

    def _note_outcomes(self, chunk: BatchChunk) -> None:
        """Note the batches of a chunk that were left out because of their transactions."""
        assert self._transactions is not None
        lowest, highest = self._chosen
        for batch in chunk.rows():
            is_data = batch.transactional and not batch.control and batch.count > 0
            if is_data and batch.last_offset >= lowest and batch.base_offset <= highest:
                outcome = self._transactions.of(batch.producer_id, batch.position)
                if outcome != COMMITTED:
                    ranges = self.aborted_ranges if outcome == ABORTED else self.undecided_ranges
                    first, last = max(batch.base_offset, lowest), min(batch.last_offset, highest)
                    ranges.add(OutcomeRange(first, last, batch.count), self.first_undecided)

    # ---- record batches

    def _finish(self) -> pa.RecordBatch:
        self.unfit_timestamps += self._columns.unfit_timestamps
        return self._buffers.finish()

    def _turn(self) -> pa.RecordBatch:
        """End a record batch and begin the next one."""
        batch = self._finish()
        self._buffers.begin(self._of, replica=self._replica)
        return batch

    def _grow(self) -> None:
        """Begin a record batch for a record that is larger than the usual buffers."""
        columns = self._columns
        room = Room(columns.need_rows, columns.need_headers, columns.need_bytes)
        self._buffers.begin(self._of, room, replica=self._replica)

    # ---- damage

    def _problem(self, chunk: BatchChunk, index: int) -> str:
        if not self._columns.status:
            return "batch/count"
        batch = chunk.row(index)
        wrapper = batch.is_wrapper and STATUSES[self._columns.status].startswith("wrapper")
        return "legacy/wrapper" if wrapper else "record/structure"

    def _report_batch(self, path: str, chunk: BatchChunk, index: int, code: str) -> None:
        batch = chunk.row(index)
        self._damaged(DamagedRange(path, batch.position, batch.size, code))
        unread = OffsetRange(self._first_unread(chunk, index), batch.last_offset + 1)
        self._holes.unread(unread, exact=not batch.is_wrapper)
        self._release()

    def _report_emptied(self, path: str, chunk: BatchChunk) -> None:
        """Report the batches that have records by their size, and none by their header."""
        for index, bits in enumerate(chunk.suspects()):
            if bits & _COUNT and chunk.row(index).count <= 0:
                self._report_batch(path, chunk, index, "batch/count")

    def _report_misplaced(self, path: str, chunk: BatchChunk) -> None:
        """Report the batches with a record whose offset cannot be right: an error where an offset has no row."""
        for batch in chunk.rows():
            if not self._has_rows(batch):
                continue
            found = open_batch(batch, chunk.body(batch), self._max_batch_bytes).offsets()
            if not found or _are_right(batch, found):
                continue
            first = min(found) if batch.is_wrapper else batch.base_offset
            own = united(OffsetRange(offset, offset + 1) for offset in found)
            absent = without([OffsetRange(first, batch.last_offset + 1)], own)
            place = path, batch.position, 0, MISPLACED
            if not absent:
                self.report(DamagedRange(*place, Severity.WARNING))
                continue
            hole = OffsetRange(absent[0].start, absent[-1].stop)
            self._damaged(DamagedRange(*place, Severity.ERROR, hole.start, hole.last))
            self._holes.unread(hole, exact=False)
            self._release()

    def _has_rows(self, batch: Batch) -> bool:
        """Whether the records of a batch are wanted."""
        lowest, highest = self._chosen
        if batch.last_offset < lowest or first_known_offset(batch) > highest:
            return False
        if batch.control:
            return self._isolation == "all"
        of = self._transactions
        return of is None or not batch.transactional or of.of(batch.producer_id, batch.position) == COMMITTED

    def _first_unread(self, chunk: BatchChunk, index: int) -> int:
        """The first offset of a batch that no record before the bad one has."""
        batch = chunk.row(index)
        opened = open_batch(batch, chunk.body(batch), self._max_batch_bytes)
        if opened.records:
            return max(opened.last_offset + 1, batch.base_offset)
        if not batch.is_wrapper:
            return batch.base_offset
        before = chunk.row(index - 1).last_offset + 1 if index else self._holes.before
        lowest = 0 if self._slice_now is None else max(self._slice_now.lowest, self._slice_now.log.base_offset or 0)
        return min(lowest if before is None else before, batch.last_offset)

    def _damaged(self, damaged: DamagedRange) -> None:
        """Report damage, and with `with_offsets` not before its offsets are known."""
        if not self._with_offsets:
            self.report(damaged)
            return
        if len(self._pending) == _MOST_PENDING:
            self._release()
        self._pending.append(damaged)

    def _on_hole(self, hole: Hole, index: int) -> None:
        """Report the damage of a hole, or that there is one."""
        offsets = hole.offsets
        if self._pending:
            self._release(offsets)
        elif offsets in self.known_holes or offsets.stop <= offsets.start:
            return
        elif self._slice_now is not None and self._chunk_now is not None and index >= 0:
            position = self._chunk_now.row(index).position
            code = "segment/missing" if not position else "offset/gap"
            severity = Severity.ERROR if self._slice_now.after_gap or not position else Severity.WARNING
            where = self._slice_now.log.path, position, 0, code, severity
            self.report(DamagedRange(*where, offsets.start, offsets.last))

    def _release(self, offsets: OffsetRange | None = None) -> None:
        pending, self._pending = self._pending, []
        for each in pending:
            if offsets is not None and offsets.start < offsets.stop:
                each = each._replace(first_offset=offsets.start, last_offset=offsets.last)
            self.report(each)

    def report(self, damaged: DamagedRange) -> None:
        if self._on_damage is not None:
            self._on_damage(damaged)
        elif not self._warned:
            import warnings  # not needed for a valid log

            self._warned = True
            end = damaged.position + damaged.length
            where = (
                f"bytes {damaged.position} to {end} are skipped" if damaged.length else f"at byte {damaged.position}"
            )
            warnings.warn(
                f"{damaged.path}: {where}: {damaged.code}; on_damage gets every range",
                DamageWarning,
                stacklevel=2,
            )
