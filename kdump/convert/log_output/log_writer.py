"""Writes the batches of a topic-partition into a new log, in record batch v2.

A batch that nothing has to change in is copied byte for byte; the kernel finds runs of them (CopyRun). Others are made
anew with the fields of their header:

- Of a batch that lies in part outside the range, the other records go. Its base offset moves up to the range, the base
  sequence with it, and its last offset down: so each record keeps its sequence, and no batch covers the offsets of
  another one. A batch whose records the log cleaner removed keeps its offsets (MemoryRecords.filterTo).
- Messages of magic 0 and 1 become records, as Kafka's cleaner and LogValidator make them: a compressed one a batch,
  consecutive uncompressed ones of one kind a batch. Those of magic 0 get CreateTime and -1.
- Messages of Kafka 0.7 have no offsets. They get new ones from 0 on.
"""

from typing import TYPE_CHECKING, Final

from kdump.convert.log_output.log_batches import (
    BatchCounts,
    BatchEpoch,
    BatchRewrite,
    HeaderFields,
    MessageBatch,
    by_timestamp_type,
    offset_at,
)
from kdump.convert.log_output.time_choice import TimeChoice
from kdump.convert.records.holes import HoleTracker
from kdump.convert.records.unread_headers import check_item
from kdump.format import codec as codecs
from kdump.format.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    Batch,
    first_known_offset,
    next_sequence,
    wrapped,
)
from kdump.format.java import MAX_INT, MAX_LONG
from kdump.format.naming import Kind
from kdump.kernel.append import RUN_FULL, CopyRun, Encoder, offset_is_ahead, skip_below
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from kdump.kernel.transactions import ABORTED, COMMITTED, Transactions
from kdump.log.damage import MISPLACED, DamagedRange, damaged_ranges
from kdump.log.header_pass import SliceHeaders, headers_of_walk
from kdump.log.log_slice import EVERYTHING, LogSlice, walk_of_slice
from kdump.log.ranges import OffsetRange, united, without
from kdump.named_tuple import NamedTuple
from kdump.storage.read_policy import open_file
from kdump.storage.records import DecodedBatch, chosen_rows, open_batch, open_in_pieces, payload_of
from kdump.storage.walk import BatchChunk
from kdump.verify.findings import Severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdump.convert.records.outcomes_ahead import OutcomesAhead
    from kdump.writer.segments import SegmentsWriter

_CHUNK_BATCHES: Final = 1024
_WIDTH: Final = len(BATCH_COLUMNS)
_POSITION, _SIZE, _BASE_OFFSET, _LAST_OFFSET, _SUSPECT = (
    BATCH_COLUMNS.index(name) for name in ("position", "size", "base_offset", "last_offset", "suspect")
)
_NO_BATCH: Final = {1 << SUSPECTS.index(code): code for code in ("batch/crc", "batch/magic", "batch/limit")}
_OUTSIDE: Final = ""
_ANY_CODEC: Final = -1
_NO_CODEC: Final = len(codecs.CODECS)
"""No batch has it: with a level, each one is compressed again."""


class LogWriter:
    """Writes the slices of a partition, one after another, then `end`.

    `in_order`: the valid batches of the slices are known to be. `on_damage` gets each range that is left out.
    `is_assumed`: the headers of the log were not read (kdump.convert.records.unread_headers), `ahead` decides its
    transactions. Raises OSError, SourceError, CodecMissing, and HeadersNeeded.
    """

    def __init__(
        self,
        segments: "SegmentsWriter",
        how: BatchRewrite,
        on_damage: "Callable[[DamagedRange], object]",
        on_bytes: "Callable[[int], object]",
        transactions: Transactions | None = None,
        *,
        gaps: bool = False,
        in_order: bool = False,
        is_assumed: bool = False,
        ahead: "OutcomesAhead | None" = None,
    ) -> None:
        self._segments, self._how = segments, how
        self._in_order, self._is_assumed, self._ahead = in_order, is_assumed, ahead
        self._on_damage, self._on_bytes = on_damage, on_bytes
        self._transactions = transactions if ahead is None else ahead.transactions
        codec = _ANY_CODEC if how.codec is None else _NO_CODEC if how.level is not None and how.codec else how.codec
        self._run = CopyRun(codec=codec, plain=how.plain)
        self._messages: MessageBatch | None = None
        self._next = 0  # the lowest offset that the next record can have
        self._lowest = self._highest = 0
        self._after = -1  # the offset of the batch after the chunk
        self._past = 0  # batches after the end of the range; one alone can have a wrong offset
        self._is_inside = False  # whether the slice had a batch in the range, after which offsets do not go back
        self._leader_epoch = -1  # of the batches that are not copied
        self._reports_above = False
        self._path = ""
        self._time = None if how.time == EVERYTHING else TimeChoice(how.time, how.max_batch_bytes)
        self._whole = 0  # batches of the chunk before this one have to be opened no more for their timestamps
        self.counts = BatchCounts()
        self.first_offset: int | None = None
        self.holes = HoleTracker(gaps=gaps)
        """Takes the offsets that the log has lost."""
        self.slice_headers: list[SliceHeaders] = []
        """What the headers of each slice say, where they were not read before."""
        self.end_offset: int | None = None
        """The offset after the last valid batch, also where it is left out."""

    @property
    def leader_epochs(self) -> list[BatchEpoch]:
        """The leader epochs of the batches that were written, in the order of the log."""
        return [BatchEpoch._make(each) for each in self._run.epochs]

    def write(self, number: int, each: LogSlice, lowest: int, highest: int, end: int) -> None:
        """Write the batches of a slice with offsets from `lowest` to `highest`.

        The offsets from `end` on belong to the next file: batches that lie there are reported. So is one with the
        largest offset of all: a log cannot end after it.
        """
        end = min(end, MAX_LONG)
        self._lowest, self._highest, self._path = lowest, min(highest, end - 1), each.log.path
        self._reports_above = end <= highest
        self._is_inside, self._past = False, 0
        if self._ahead is not None:
            self._ahead.begin(number)
        elif self._transactions is not None:
            self._transactions.begin(number)
        self.holes.begin_slice(each)
        with open_file(each.log, self._how.read_policy, each) as source:
            at = each.start
            limit = self._how.max_batch_bytes
            walk = walk_of_slice(each, source, everything=True, max_batch_bytes=limit, rows=_CHUNK_BATCHES)
            for item in walk:
                if self._is_assumed:
                    check_item(item)
                if self._past > 1:
                    pass  # the headers of the rest are wanted
                elif isinstance(item, BatchChunk) and not item.damaged:
                    if self._ahead is not None:
                        self._ahead.take(item)
                        if self._ahead.is_past(each):
                            return
                        if self._ahead.stable is not None:
                            self._highest = min(self._highest, self._ahead.stable - 1)
                            self._reports_above = end <= self._highest
                    self.holes.chunk(item)
                    self._chunk(item, each.log.kind is Kind.KAFKA07)
                else:
                    for damaged in damaged_ranges(each.log.path, item, active=each.log.preallocated):
                        self.holes.damage(each, is_padding=damaged.is_padding)
                        self._report(damaged)
                self._on_bytes(walk.position - at)
                at = walk.position
                if self._past > 1 and not self._is_assumed:
                    return
            if self._is_assumed:
                self.slice_headers.append(headers_of_walk(walk.scanner.state()))

    def end(self) -> None:
        """Write the last batch, and where batches after it are left out, an empty one.

        As one of the log cleaner (DefaultRecordBatch.writeEmptyHeader) it has their offsets: consumers that read up to
        the log end offset come there, and a broker does not give the offsets again.
        """
        self._flush()
        segments = self._segments
        epoch = max(self._leader_epoch, *(each.epoch for each in self.leader_epochs[-1:]), -1)
        while segments.batches and self.end_offset is not None and self._next < self.end_offset:
            last = min(self.end_offset, self._next + MAX_INT) - 1
            self._seal(HeaderFields(self._next, last, epoch, 0, -1, -1, -1, -1, -1, 0), Encoder(2, 0), b"")

    # ---- the batches of a chunk

    def _chunk(self, chunk: BatchChunk, is_kafka07: bool) -> None:
        index = 0
        if not self._is_inside and not is_kafka07:
            index = skip_below(chunk.walk.scanner.rows, 0, chunk.batches, self._lowest)
        # In order, no batch is ahead of the one after it, and what follows a chunk can be left out, or damaged.
        self._after = -1 if is_kafka07 or self._in_order else offset_at(chunk.walk, chunk.walk.position)
        self._whole = 0 if self._time is not None else chunk.batches
        while index < chunk.batches:
            if not is_kafka07:
                index = self._copy(chunk, index)
            if index < chunk.batches:
                index = self._other(chunk, index)

    def _whole_until(self, chunk: BatchChunk, index: int) -> int:
        """The first row from one on whose batch may have records outside the range of time."""
        if self._time is not None and self._whole <= index:
            self._whole = self._time.whole_until(chunk, index)
        return self._whole

    def _offset_after(self, chunk: BatchChunk, stop: int) -> int:
        """The offset of the batch of row `stop`, or of the one after the chunk."""
        if stop == chunk.batches:
            return self._after
        batch = chunk.row(stop)
        return batch.last_offset if batch.is_legacy else batch.base_offset

    def _copy(self, chunk: BatchChunk, index: int) -> int:
        """Write the batches from a row on that nothing has to change in; the index of the row after them."""
        run, segments, rows = self._run, self._segments, chunk.walk.scanner.rows
        stop = self._whole_until(chunk, index)
        after = self._offset_after(chunk, stop)
        room, top = 0, -1  # until a segment is open for the first of them
        while True:
            begin = index
            lowest = max(self._lowest, self._next)
            index = run.take(rows, begin, stop, lowest, self._highest, room, top, segments.is_empty, after)
            if run.size:
                segments.write(
                    chunk.walk.bytes_at(rows[begin * _WIDTH + _POSITION], run.size), run.last_offset, run.batches
                )
                self._wrote(run.first_offset, run.last_offset, run.records)
                self.counts.unread += run.batches
            if run.stopped != RUN_FULL:
                return index
            self._flush()
            cell = index * _WIDTH
            top = segments.begin(rows[cell + _SIZE], rows[cell + _BASE_OFFSET], rows[cell + _LAST_OFFSET])
            room = segments.room

    def _wrote(self, first: int, last: int, records: int) -> None:
        if self.first_offset is None and records:
            self.first_offset = first
        self.counts.records += records
        self._next = max(self._next, last + 1)
        self._ends(last)

    def _ends(self, last: int) -> None:
        """Note the last offset of a batch that lies inside the range."""
        self._is_inside, self._past = True, 0
        self.end_offset = max(self.end_offset or 0, min(last, self._highest) + 1)

    def _other(self, chunk: BatchChunk, index: int) -> int:
        """Write, or leave out, the batch of a row that is not copied; the index of the next row that is left."""
        batch, counts = chunk.row(index), self.counts
        defect = self._defect(batch, chunk, index)
        if defect is not None:
            if defect in ("offset/backwards", "offset/range"):
                self._report(DamagedRange(self._path, batch.position, batch.size, defect))
                self.holes.unread(OffsetRange(self._next, self._offset_after(chunk, index + 1)), exact=False)
            elif defect != _OUTSIDE:
                self._report_batch(batch, defect)
        elif batch.is_kafka07:
            self._renumber(batch, chunk)
        elif batch.is_legacy and not batch.is_wrapper and index >= self._whole:
            self._ends(batch.last_offset)
        elif batch.is_legacy and not batch.is_wrapper:
            return self._join(chunk, index, batch)
        elif batch.is_wrapper:
            self._flush()
            self._convert(batch, chunk)
        else:
            self._ends(batch.last_offset)
            self._leader_epoch = max(self._leader_epoch, batch.partition_leader_epoch)
            left_out = self._how.plain and batch.control
            counts.control += left_out
            if batch.control and not left_out and self._time is not None:
                left_out = not self._time.keeps_control(batch, chunk)
            if not left_out and self._is_committed(batch):
                self._flush()
                self._change(batch, chunk, is_whole=batch.control or index < self._whole)
        return index + 1

    def _defect(self, batch: Batch, chunk: BatchChunk, index: int) -> str | None:
        """Why a batch is left out: the code of a finding, or that it is outside the range; None for one that is not."""
        rows = chunk.walk.scanner.rows
        suspect = rows[index * _WIDTH + _SUSPECT]
        broken = next((code for bit, code in _NO_BATCH.items() if suspect & bit), None)
        if broken is None and batch.magic >= 2 and (batch.count < 0 or batch.last_offset < batch.base_offset):
            broken = "batch/count"
        if broken is not None or batch.is_kafka07:
            return broken
        lowest = max(self._lowest, self._next)
        if offset_is_ahead(rows, index, chunk.batches, lowest, self._after):
            return "offset/backwards"
        if batch.base_offset > self._highest:  # it is not known of a wrapper
            self._past += not self._reports_above
            return "offset/range" if self._reports_above else _OUTSIDE
        if batch.last_offset < lowest:
            is_before = 0 <= batch.last_offset < self._lowest and not self._is_inside
            return _OUTSIDE if is_before else "offset/backwards"
        return None

    def _is_committed(self, batch: Batch) -> bool:
        if self._transactions is None or not batch.transactional:
            return True
        found = self._transactions.of(batch.producer_id, batch.position)
        if found == ABORTED:
            self.counts.aborted += batch.count
        elif found != COMMITTED:
            self.counts.undecided += batch.count
        return found == COMMITTED

    # ---- messages of magic 0 and 1

    def _join(self, chunk: BatchChunk, index: int, batch: Batch) -> int:
        """Add uncompressed messages to the batch that is being made; the index of the row after them."""
        messages = self._messages
        if messages is None or (messages.magic, messages.append_ms) != (batch.magic, batch.log_append_ms):
            self._flush()
            messages = self._messages = MessageBatch(batch.magic, batch.log_append_ms, batch.last_offset)
        encoder, window = messages.encoder, chunk.walk.window
        before, limit = encoder.count, max(1, self._how.batch_bytes - HEADER_SIZE)
        rows, stop = chunk.walk.scanner.rows, self._whole_until(chunk, index)
        bounds = self._lowest, self._highest, limit, self._offset_after(chunk, stop)
        after = encoder.add_messages(messages.magic, rows, index, stop, *window, *bounds)
        self.counts.converted += encoder.count - before
        if encoder.count:
            self._next = encoder.last_offset + 1
            self._ends(encoder.last_offset)
        if after == index and encoder.count:  # the limit is reached, or the offset is too far above the base offset
            self._flush()
            return index
        if after == index:
            self._messages = None
            self._report_batch(batch, "record/structure")
            return index + 1
        return after

    def _flush(self) -> None:
        """Write the messages that were joined."""
        messages, self._messages = self._messages, None
        if messages is not None and messages.encoder.count:
            self._write_converted(messages.encoder, messages.base_offset, messages.append_ms, 0)

    def _convert(self, batch: Batch, chunk: BatchChunk) -> None:
        """Write the messages of a wrapper as a batch."""
        opened = self._open(batch, chunk)
        if opened.problem is not None:
            self._report_batch(batch, opened.problem, opened.last_offset)
        bounds = self._lowest, self._highest, self._next
        inside, damaged, hole = messages_in_place(self._path, batch, opened, *bounds)
        if damaged is not None:
            self._report(damaged)
        if hole is not None:
            self.holes.unread(hole, exact=False)
        if self._time is not None and inside.records:
            inside = self._time.inside(inside)
            self._ends(batch.last_offset)
            if not inside.records:
                return
        if not inside.records:
            if self._reports_above and opened.first_offset > self._highest:
                self._report_batch(batch, "offset/range")
            return
        self.counts.cut += inside.records < opened.records
        self.counts.converted += 1
        for append_ms, alike in by_timestamp_type(inside, batch.log_append_ms):
            encoder = Encoder(2, alike.first_offset)
            self._add(encoder, batch, alike)
            self._write_converted(encoder, alike.first_offset, append_ms, batch.codec)

    def _renumber(self, batch: Batch, chunk: BatchChunk) -> None:
        """Write a message of Kafka 0.7, with the next offsets."""
        opened = self._open(batch, chunk)
        if opened.problem is not None:
            self._report_batch(batch, opened.problem)
        if opened.records and (self._time is None or self._time.has(-1)):
            messages = self._messages
            if batch.codec or messages is None or messages.encoder.size + batch.size > self._how.batch_bytes:
                self._flush()
                messages = MessageBatch(batch.magic, None, self._next)
            encoder, first = messages.encoder, self._next
            encoder.add_rows(opened.rows, opened.payload, first)
            self.counts.converted += 1
            self._next = encoder.last_offset + 1
            self._ends(encoder.last_offset)
            if batch.codec:
                self._write_converted(encoder, messages.base_offset, None, batch.codec)
            else:
                self._messages = messages

    def _open(self, batch: Batch, chunk: BatchChunk) -> DecodedBatch:
        return open_batch(batch, chunk.body(batch), self._how.max_batch_bytes)

    def _add(self, encoder: Encoder, batch: Batch, records: DecodedBatch) -> bool:
        """Add decoded records; false, and reported, where their offsets do not rise."""
        if encoder.add_rows(records.rows, records.payload) < records.records:
            self._report_batch(batch, "offset/backwards", encoder.last_offset if encoder.count else NO_VALUE)
            return False
        return True

    def _write_converted(self, encoder: Encoder, base_offset: int, append_ms: int | None, codec: int) -> None:
        attributes = 0 if append_ms is None else LOG_APPEND_TIME
        header = HeaderFields(
            base_offset,
            encoder.last_offset,
            -1,
            attributes,
            encoder.base_timestamp,
            encoder.max_timestamp if append_ms is None else append_ms,
            -1,
            -1,
            -1,
            encoder.count,
        )
        self._write(header, encoder, None, codec)
        encoder.close()

    # ---- batches of magic 2

    def _change(self, batch: Batch, chunk: BatchChunk, *, is_whole: bool) -> None:
        """Write a batch of which something changes. `is_whole`: all of its records are in the range of time."""
        how, counts = self._how, self.counts
        lowest = max(self._lowest, self._next, batch.base_offset)
        last = min(self._highest, batch.last_offset)
        if lowest > last:  # another batch has these offsets
            return
        fields = HeaderFields.of(batch, lowest, last)
        if how.plain and (batch.producer_id != -1 or batch.transactional):
            counts.without_producer += batch.count > 0
            attributes = batch.attributes & ~(TRANSACTIONAL | CONTROL)
            fields = fields._replace(attributes=attributes, producer_id=-1, producer_epoch=-1, base_sequence=-1)
        elif batch.base_sequence >= 0:
            sequence = next_sequence(batch.base_sequence, lowest - batch.base_offset)
            fields = fields._replace(base_sequence=sequence)
        if lowest > batch.base_offset or last < batch.last_offset or not is_whole:
            self._cut(batch, chunk, fields)
            return
        counts.unread += 1
        if not self._recompresses(batch):
            if batch.count or not how.plain:
                self._seal(fields, Encoder(2, 0), chunk.body(batch)[HEADER_SIZE:])
            return
        payload, problem = payload_of(batch, chunk.body(batch), how.max_batch_bytes)
        if problem is not None:
            self._report_batch(batch, problem)
        else:
            counts.recompressed += 1
            self._write(fields, Encoder(2, 0), payload, batch.codec)

    def _recompresses(self, batch: Batch) -> bool:
        how = self._how
        changes = how.codec is not None and (how.codec != batch.codec or (how.level is not None and how.codec > 0))
        return changes and not batch.control and batch.count > 0

    def _cut(self, batch: Batch, chunk: BatchChunk, fields: HeaderFields) -> None:
        """Write the records of a batch that lie inside its new bounds."""
        opened = open_in_pieces(batch, chunk.body(batch), self._how.max_batch_bytes)
        if opened.problem is not None:
            last = max((piece.last_offset for piece in opened.pieces()), default=NO_VALUE)
            self._report_batch(batch, opened.problem, last)
        time = None if batch.control else self._time
        encoder = Encoder(2, fields.base_offset, base_timestamp=batch.base_timestamp)
        for piece in opened.pieces():
            inside = piece.select(fields.base_offset, fields.last_offset + 1, None)
            if not self._add(encoder, batch, inside if time is None else time.inside(inside)):
                break
        del opened, piece, inside  # the records are here twice else
        if time is not None and not encoder.count:
            return
        if time is not None:
            time.note(batch)
        self.counts.cut += 1
        if not encoder.count and fields.producer_id < 0:
            return
        if not batch.attributes & LOG_APPEND_TIME:
            fields = fields._replace(max_timestamp=encoder.max_timestamp)
        fields = fields._replace(count=encoder.count)
        self.counts.recompressed += self._recompresses(batch)
        self._write(fields, encoder, None, batch.codec)

    # ---- writing

    def _write(self, fields: HeaderFields, encoder: Encoder, payload: codecs.Data | None, codec: int) -> None:
        """Write a batch of uncompressed records, by default those of the encoder, compressed with the codec that was
        asked for, or with this one.
        """
        how = self._how
        level = None
        if how.codec is not None and not fields.attributes & CONTROL:
            codec, level = how.codec, how.level if how.codec else None
        if codec and fields.count:
            if payload is None:
                payload = encoder.payload()
                encoder.close()  # the batch can be large
                encoder = Encoder(2, 0)
            payload = codecs.compress(codec, payload, 2, level)
        else:
            codec = 0
        attributes = fields.attributes & ~CODEC_MASK | codec
        self._seal(fields._replace(attributes=attributes), encoder, payload)

    def _seal(self, fields: HeaderFields, encoder: Encoder, payload: codecs.Data | None) -> None:
        """Write a batch with this header and these bytes after it, by default the records of the encoder."""
        header = HEADER.pack(
            fields.base_offset,
            HEADER_SIZE - LOG_OVERHEAD + (encoder.size if payload is None else len(payload)),
            fields.partition_leader_epoch,
            2,
            0,
            wrapped(fields.attributes, 16),
            fields.last_offset - fields.base_offset,
            *fields[4:],
        )
        data = encoder.seal(header, payload)
        self._segments.begin(len(data), fields.base_offset, fields.last_offset)
        self._segments.write(data, fields.last_offset)
        self._run.note(fields.partition_leader_epoch, fields.base_offset, fields.last_offset)
        self._wrote(fields.base_offset, fields.last_offset, fields.count)

    # ---- damage

    def _report_batch(self, batch: Batch, code: str, last: int = NO_VALUE) -> None:
        """Report a batch of which no record after the offset `last` can be read; by default none."""
        self._report(DamagedRange(self._path, batch.position, batch.size, code))
        first = first_known_offset(batch) if last == NO_VALUE else last + 1
        self.holes.unread(OffsetRange(first, NO_VALUE if batch.is_kafka07 else batch.last_offset + 1))

    def _report(self, damaged: DamagedRange) -> None:
        self.counts.damaged_ranges += damaged.length > 0  # else its records are written
        self.counts.damaged_bytes += damaged.length
        self._on_damage(damaged)


class MessagesInPlace(NamedTuple):
    """Messages that a new log can have.

    `damaged` says what is wrong with the others, or with the wrapper; `hole` are offsets that no message has.
    """

    inside: DecodedBatch
    damaged: DamagedRange | None = None
    hole: OffsetRange | None = None


def messages_in_place(
    path: str, batch: Batch, opened: DecodedBatch, lowest: int, highest: int, following: int
) -> MessagesInPlace:
    """The messages from `lowest` to `highest`, and from `following` on, before which other records were written."""
    begin, last = max(lowest, following), min(highest, batch.last_offset)
    is_behind = lowest <= opened.first_offset < following or opened.first_offset > batch.last_offset
    is_right = opened.last_offset == batch.last_offset and not is_behind
    if opened.problem is not None or not opened.records or is_right:
        # What comes after a bad message would show its offsets wrong. Where they do not rise, the encoder says so.
        if opened.first_offset >= begin and batch.last_offset <= highest and opened.problem is None:
            return MessagesInPlace(opened)
        return MessagesInPlace(opened.select(begin, (last if opened.problem is not None else highest) + 1, None))
    found, kept, before = opened.offsets(), list[int](), begin - 1
    for number, offset in enumerate(found):
        if before < offset <= last:
            kept.append(number)
            before = offset
    first = begin if following > lowest else max(lowest, min(found))
    own = united(OffsetRange(found[number], found[number] + 1) for number in kept)
    absent = without([OffsetRange(first, last + 1)], own) if first <= last else []
    hole = OffsetRange(absent[0].start, absent[-1].stop) if absent else None
    damaged = None
    if len(kept) < sum(lowest <= offset <= highest for offset in found):
        damaged = DamagedRange(path, batch.position, batch.size, "offset/backwards")
    elif hole is not None:
        damaged = DamagedRange(path, batch.position, 0, MISPLACED, Severity.ERROR, hole.start, hole.last)
    return MessagesInPlace(opened.choose(lambda of: chosen_rows(of.rows, kept), None), damaged, hole)
