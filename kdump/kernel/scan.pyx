# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""The walk over the batches of a segment: checks framing, checksum and header in one pass.

A batch that fails a check, or whose records have to be decompressed first, becomes a row of integers (BATCH_COLUMNS)
with `suspect` bits. A valid batch only changes counts. The walk stops at bytes that are no batch and returns what it
found; kdump.storage.walk decides how to continue. kdump.format.batch and kdump.format.legacy describe the layouts.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp

from kdump.kernel.cursor cimport batch_check, batch_length, whole_batch
from kdump.kernel.indexes cimport Due, IndexTracker
from kdump.kernel.layout cimport *
from kdump.kernel.producers cimport (
    FLAG_EMPTIED, FLAG_TRANSACTIONAL, FULL_RUNS, KIND_ABORT, KIND_COMMIT, KIND_DATA, KIND_EMPTY, KIND_ODD, Event,
    Recorder, extend, find_slot, record, record_gap, recorder_of,
)
from kdump.kernel.reading cimport FileBytes, file_bytes, fill, taken_error
from kdump.kernel.records cimport (
    CONTROL, CONTROL_KEY, CONTROL_OF_PRODUCER, MESSAGE_FIELDS, PLAIN, WRAPPER_EMPTY, WRAPPER_SIZE, Message,
    RecordsDiagnosis, copy_diagnosis, parse_message, validate_batch, validate_message, validate_wrapped,
)
from kdump.kernel.state cimport State
from kdump.kernel.results import BatchDiagnosis, FrameHeader, ScanState

import os

BATCH_COLUMNS = (
    "position", "size", "magic", "base_offset", "last_offset", "count", "partition_leader_epoch", "crc", "attributes",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
    *BatchDiagnosis._fields,
)
assert len(BATCH_COLUMNS) == BATCH_WIDTH

# Bit n of `suspect` is the code SUSPECTS[n].
SUSPECTS = (
    "batch/attributes", "batch/codec", "batch/count", "offset/range", "offset/backwards", "epoch/backwards",
    "control/structure", "record/structure", "record/varint", "record/delta", "time/max", "legacy/wrapper",
    "legacy/inner-crc", "legacy/partial", "legacy/trailing", "batch/crc", "batch/magic", "batch/limit",
)
OPEN = S_OPEN

# What is at a position. The first is a valid batch. For the last three, the bytes up to their length are there.
FRAMES = ("valid", "end", "short", "length", "overrun", "limit", "crc", "magic")
# Why a scan returned.
SCAN_NEED, SCAN_FULL, SCAN_STOPPED, SCAN_DAMAGED = NEED, FULL, STOPPED, DAMAGED
SCAN_BREAK = SCAN_DAMAGED + 1

HEADER_BYTES = HEADER
CELL_COLUMNS = (
    "batches", "bytes", "damaged_bytes", "offsets", "first_offset", "last_offset", "transactional", "control",
    "max_timestamp",
)
cdef enum:
    CELL_WIDTH = 9
assert len(CELL_COLUMNS) == CELL_WIDTH
cdef enum:
    PAGE = 4096
    MARKER_BYTES = 128   # an uncompressed batch with a marker is smaller
    FOREIGN_LIMIT = 1 << 20
    ZEROS = 4096
    MOST_EPOCHS = 65536
cdef int64_t WEEK = 604_800_000
_NO_INDEXES = {
    "index_begin": -1, "index_cursor": -1, "time_begin": -1, "time_cursor": -1, "first_index_offset": NO_VALUE,
    "first_time_entry": NO_VALUE, "index_differs": None,
}


cdef inline bint all_zero(const uint8_t *p, int64_t n) noexcept nogil:
    # A region is zero when its first byte is and every byte equals the one before it.
    return n <= 0 or (p[0] == 0 and memcmp(p, p + 1, n - 1) == 0)


cdef inline int control_of(int64_t attributes, int64_t producer_id) noexcept nogil:
    return PLAIN if attributes & CONTROL_FLAG == 0 else CONTROL_OF_PRODUCER if producer_id >= 0 else CONTROL


cdef struct EpochStart:
    int64_t epoch
    int64_t first_offset
    int64_t position


cdef class BatchTaker:
    """See scan.pyi. A subclass has these methods."""

    cdef void begin(self) noexcept nogil:
        """A call of the scan begins."""

    cdef bint take(self, const uint8_t *p, int64_t total, int64_t position, const uint8_t *after) noexcept nogil:
        """Take the batch at p; False: its row is wanted. Its bytes are there until `end`, those readable to `after`."""
        return False

    cdef void end(self, const uint8_t *after) noexcept nogil:
        """The call ends."""


@cython.final
cdef class Scanner:
    """One walk over one segment; see scan.pyi."""

    cdef State s
    cdef bytearray _storage
    cdef int64_t *_row
    cdef Py_ssize_t _capacity
    cdef readonly object rows
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t stop
    cdef readonly int64_t need
    cdef readonly int frame
    cdef object _runs
    cdef Recorder *_recorder  # that of _runs, NULL without runs
    cdef int64_t _end         # position after the last valid batch
    cdef IndexTracker _indexes
    cdef Due *_due            # that of _indexes; _never without indexes
    cdef Due _never
    cdef BatchTaker _taker    # of batches whose rows are not wanted
    cdef bint _taken          # the batch
    cdef int32_t _listed_epoch
    cdef EpochStart *_epochs
    cdef Py_ssize_t _epoch_count
    cdef Py_ssize_t _epoch_capacity
    cdef readonly int64_t state_end
    cdef readonly int64_t reached
    cdef bint _stops_at_break
    cdef bint _began_back     # the walk began where offsets went back
    cdef readonly bint went_back, jumped
    cdef object _read_into    # the buffer of the last walk over headers, which has bytes of the file
    cdef int64_t _read_from
    cdef int64_t _read_bytes
    cdef list _listed         # _epochs as tuples, up to the last call of state()
    cdef bint _failed         # out of memory
    cdef int64_t *_cells      # rows of CELL_COLUMNS, NULL where none are asked for
    cdef Py_ssize_t _cell_count
    cdef int64_t _cell_bytes
    cdef int64_t _cell_start  # the position where the first one begins
    cdef bytearray _cell_rows

    def __init__(self, int64_t base_offset=-1, *, bint deep=False, bint everything=False,
                 int64_t max_batch_bytes=1 << 30, Py_ssize_t capacity=256, runs=None, IndexTracker indexes=None,
                 BatchTaker taker=None):
        self._capacity = capacity
        self._storage = bytearray(capacity * BATCH_WIDTH * 8)
        self._row = <int64_t *> PyByteArray_AsString(self._storage)
        self.rows = memoryview(self._storage).cast("q")
        self.s.segment_base = base_offset
        self.s.known_epoch = -1
        self.s.deep = deep
        self.s.everything = everything
        self.s.max_batch_bytes = max_batch_bytes
        self.s.first_position = self.s.last_position = self.s.first_offset = self.s.last_base_offset = \
            self.s.max_timestamp = -1
        self.s.gap_position = self.s.inner_magic_position = -1
        self.s.first_timestamp = self.s.last_timestamp = self.s.max_timestamp_position = \
            self.s.back_position = self.s.back_offset = -1
        self.s.max_timestamp_offset = base_offset
        self._runs = runs
        if runs is not None:
            self._recorder = recorder_of(runs)
        self._never.position = self._never.interval = self._never.offset = INT64_MAX
        self._indexes = indexes
        self._taker = taker
        self._due = &self._never if indexes is None else &indexes.due
        self.state_end = base_offset
        self._listed_epoch = -1
        self._listed = []

    def __dealloc__(self):
        free(self._epochs)

    def sum_cells(self, bytearray rows, int64_t cell_bytes, int64_t start):
        self._cell_rows = rows
        self._cells = <int64_t *> PyByteArray_AsString(rows)
        self._cell_count = len(rows) // (CELL_WIDTH * 8)
        self._cell_bytes, self._cell_start = cell_bytes, start

    cdef void add_to_cell(self, int64_t position, int64_t total, int64_t first, int64_t last, int64_t timestamp,
                          int attributes) noexcept nogil:
        """Add a batch to the cell in which it begins."""
        cdef int64_t index = (position - self._cell_start) // self._cell_bytes
        cdef int64_t *cell
        if index < 0 or index >= self._cell_count:
            return
        cell = self._cells + index * CELL_WIDTH
        if cell[0] == 0 or first < cell[4]:
            cell[4] = first
        if cell[0] == 0 or last > cell[5]:
            cell[5] = last
        if cell[0] == 0 or timestamp > cell[8]:
            cell[8] = timestamp
        cell[0] += 1
        cell[1] += total
        if last >= first and last - first < INT64_MAX - cell[3]:
            cell[3] += last - first + 1
        if attributes & TRANSACTIONAL_FLAG:
            cell[6] += 1
        if attributes & CONTROL_FLAG:
            cell[7] += 1

    # ---- the walk

    def scan(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t position, int64_t stop, int64_t file_end):
        cdef Py_buffer view
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise ValueError("the range lies outside the buffer")
            self.count = 0
            if self._indexes is not None:
                self._indexes.begin(position)
            with nogil:
                if self._taker is not None:
                    self._taker.begin()
                reason = self.walk(<const uint8_t *> view.buf, start, end, position, stop, file_end)
                self._taken = False
                if self._taker is not None:
                    self._taker.end(<const uint8_t *> view.buf + end)
        finally:
            PyBuffer_Release(&view)
        return reason

    cdef int walk(self, const uint8_t *base, Py_ssize_t at, Py_ssize_t end, int64_t position, int64_t stop,
                  int64_t file_end) noexcept nogil:
        cdef const uint8_t *p
        cdef int64_t left, total
        cdef int found
        cdef uint32_t computed
        # After a batch that is not taken, rows say what follows, so that all are in order.
        cdef bint takes = self._taker is not None
        self.need = 0
        while True:
            self.stop = at
            if position >= stop:
                return STOPPED
            if self.count >= self._capacity or (self._recorder != NULL and self._recorder.events.count >= FULL_RUNS):
                return FULL
            left = file_end - position
            if left < UP_TO_MAGIC:
                self.frame = SHORT
                return DAMAGED
            if end - at < UP_TO_MAGIC:
                self.need = HEADER if left > HEADER else left
                return NEED
            p = base + at
            found = batch_length(p, left, self.s.max_batch_bytes, &total)
            if found == VALID:
                if total > end - at:
                    self.need = total
                    return NEED
                found = batch_check(p, total, &computed)
            if found != VALID:
                self.frame = found
                return DAMAGED
            if self._stops_at_break and self.breaks(p, total, end - at):
                return DAMAGED + 1
            if takes:
                takes = self._taken = self._taker.take(p, total, position, base + end)
            if p[MAGIC_AT] == 2:
                self.batch(p, total, position, computed, True)
            else:
                self.message(p, total, position, computed, True)
            at += total
            position += total

    cdef inline bint breaks(self, const uint8_t *p, int64_t total, int64_t left) noexcept nogil:
        """Return whether a batch does not continue the offsets and the leader epoch of the one before it.

        `left` bytes of the file from this batch on are in the buffer. A gap is none where the batch after it is there
        and goes on above it: a log has gaps where batches were removed.
        """
        cdef State *s = &self.s
        if s.batches == 0 or not s.linked:
            return False
        if be64(p) <= s.known_last:
            self.went_back = True
            return True
        if p[MAGIC_AT] < 2:
            return be64(p) != s.known_last + 1 and p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK == 0 \
                and self.is_doubtful(p, be64(p), total, left)
        return be32(p + LEADER_EPOCH_AT) != s.known_epoch or (
            be64(p) != s.known_last + 1 and self.is_doubtful(p, last_offset_of(p), total, left))

    cdef bint is_doubtful(self, const uint8_t *p, int64_t last, int64_t total, int64_t left) noexcept nogil:
        """Return whether the offsets of a batch after a gap, or those of the batch before it, can be wrong."""
        cdef State *s = &self.s
        if self._began_back and s.gaps == 0:
            self.jumped = True  # it can be the first one after those that went back
        elif left - total >= UP_TO_MAGIC:
            self.jumped = be64(p + total) <= last
        else:
            self.jumped = s.gaps == 0 and not s.compacted
        return self.jumped

    def stop_at_break(self, bint began_back=False):
        self._stops_at_break = True
        self._began_back = began_back

    def headers(self, source, int64_t origin, buffer, int64_t position, int64_t stop, int64_t end=-1):
        cdef Py_buffer view
        cdef FileBytes file = file_bytes(source)
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if view.len < PAGE or position < 0 or origin + position < 0:
                raise ValueError("the buffer is too small, or the position lies outside the file")
            self.count = 0
            if buffer is not self._read_into or position != self.reached:
                self._read_from, self._read_bytes = position, 0
            self._read_into = buffer
            with nogil:
                reason = self.walk_headers(&file, origin, <uint8_t *> view.buf, view.len, position, stop,
                                           stop if end < stop else end)
            if reason != FULL:
                self._read_into = None
        finally:
            PyBuffer_Release(&view)
        if file.error != NULL:
            raise taken_error(&file)
        if reason < 0:
            raise OSError(-reason, os.strerror(-reason))
        return reason

    cdef int walk_headers(self, FileBytes *file, int64_t origin, uint8_t *buffer, int64_t room, int64_t position,
                          int64_t stop, int64_t end) noexcept nogil:
        """Return why the walk stopped, or a negated errno. A batch may reach over `stop`, up to `end`.

        Of large batches, it reads only the headers. It reads many small batches at once.
        """
        cdef const uint8_t *p
        cdef int64_t begin = self._read_from, filled = self._read_bytes, usual = 0, total, left
        cdef bint control
        while True:
            self.reached = position
            if position >= stop:
                return STOPPED
            left = end - position
            if self.count >= self._capacity or (self._recorder != NULL and self._recorder.events.count >= FULL_RUNS):
                self._read_from, self._read_bytes = begin, filled
                return FULL
            if left < UP_TO_MAGIC:
                self.frame = SHORT
                return DAMAGED
            if position + min(left, HEADER) > begin + filled:
                begin = position
                filled = fill(file, origin + position, buffer, min(left, HEADER),
                              min(left, MARKER_BYTES if usual >= PAGE else room))
                if filled < min(left, HEADER):
                    return <int> filled if filled < 0 else NEED
            p = buffer + (position - begin)
            total = whole_batch(p, left, left)
            if total == 0:
                self.frame = LENGTH
                return DAMAGED
            # The producer state needs the marker of an uncompressed control batch.
            control = p[MAGIC_AT] == 2 and p[ATTRIBUTES_AT + 1] & (CONTROL_FLAG | CODEC_MASK) == CONTROL_FLAG
            if control and position + total > begin + filled:
                if total > room:
                    self.frame = LIMIT
                    return DAMAGED
                begin = position
                filled = fill(file, origin + position, buffer, total, total)
                if filled < total:
                    return <int> filled if filled < 0 else NEED
                p = buffer
            if p[MAGIC_AT] == 2:
                self.batch(p, total, position, 0, control)
            else:
                self.message(p, total, position, 0, False)
            position += total
            usual += (total - usual) >> 2

    def skip_body(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed):
        """Walk over one batch that is larger than the buffer. The caller has verified its checksum."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t total
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < HEADER:
                raise ValueError("the header lies outside the buffer")
            self.count = 0
            p = <const uint8_t *> view.buf + at
            total = total_of(p)
            if p[MAGIC_AT] == 2:
                self.batch(p, total, position, computed, False)
            else:
                self.message(p, total, position, computed, False)
        finally:
            PyBuffer_Release(&view)

    def damaged(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed, int frame):
        """Make a row for a batch of the right length that is not valid. No check uses its fields."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t *row = self._row
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < LARGEST_MESSAGE_HEADER:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            if p[MAGIC_AT] >= 2 and view.len - at < HEADER:
                raise ValueError("the header lies outside the buffer")
            self.fill_row(row, p, total_of(p), position, computed)
            row[SUSPECT] = S_LIMIT if frame == LIMIT else S_MAGIC if frame == BAD_MAGIC else S_CRC
            if frame == LIMIT:
                row[STATUS_AT] = self.s.max_batch_bytes
            self.count = 1
            self.pass_damage(position)
        finally:
            PyBuffer_Release(&view)

    def carry(self, int64_t known_last, bint has_last, int64_t known_epoch, bint linked, int64_t max_timestamp=-1,
              int64_t time_cursor=-1):
        """Continue where another scanner ended."""
        self.s.known_last = known_last
        self.s.has_last = has_last
        self.s.known_epoch = known_epoch
        self.s.linked = linked
        self.s.max_timestamp = max_timestamp
        if self._indexes is not None:
            self._indexes.carried_cursor = time_cursor

    def unlink(self):
        """Note that the walk skips bytes that are no batch. The next batch is not compared with the one before."""
        self.pass_damage(self._end)

    cdef void pass_damage(self, int64_t position) noexcept nogil:
        """Note bytes that are no valid batch, also for producers and indexes."""
        self.s.linked = False
        self.s.broken += 1
        if self._recorder != NULL:
            record_gap(self._recorder, position)
        if self._due != &self._never:
            self._indexes.pass_damage()

    cdef void fill_row(self, int64_t *row, const uint8_t *p, int64_t total, int64_t position,
                       uint32_t computed) noexcept nogil:
        """Fill the row of a batch or message. The columns about the batch before come from the current state."""
        header_row(row, p, total, position, computed)
        if self.s.linked:
            row[PREVIOUS_OFFSET] = self.s.known_last
        row[PREVIOUS_EPOCH] = self.s.known_epoch

    cdef inline int64_t check_offsets(self, int magic, int64_t first, int64_t last, int64_t position, int64_t total,
                                      bint spans, int64_t epoch, int64_t timestamp) noexcept nogil:
        """Check an offset range, and compare it with the batch before.

        `spans`: false for a wrapper message, whose first offset is not known.
        """
        cdef int64_t bits = 0
        cdef uint64_t missing
        cdef State *s = &self.s
        # The last offset of all is never below that of an entry, not even without a tracker.
        if (position > self._due.interval or position + total > self._due.position or last >= self._due.offset) \
                and self._due != &self._never:
            self._indexes.batch(s, magic, first, last, position, total, spans, timestamp)
        if timestamp > s.max_timestamp:
            s.max_timestamp = timestamp
            s.max_timestamp_offset = last
            s.max_timestamp_position = position
        if s.last_timestamp > timestamp and s.linked and timestamp >= 0 and s.last_timestamp - timestamp > WEEK:
            if s.backs == 0:
                s.back_position = position
                s.back_offset = first
            s.backs += 1
            s.back_largest = max(s.back_largest, s.last_timestamp - timestamp)
        s.last_timestamp = timestamp
        # No offset comes after the highest one, so that no log can end after it.
        if (first < 0 or last < first or last == INT64_MAX or first < s.segment_base
                or (s.segment_base >= 0 and last - s.segment_base > OFFSET_SPAN)):
            bits |= S_OFFSET_RANGE
            s.before_break = s.last_base_offset if s.batches else NO_VALUE
        if s.linked:
            if first <= s.known_last:
                bits |= S_OFFSET_BACKWARDS
                s.before_break = s.last_base_offset if s.batches else NO_VALUE
            elif spans and first > s.known_last + 1:
                if s.gaps == 0:
                    s.gap_position = position
                    s.gap_first = first
                    s.gap_previous = s.known_last
                missing = <uint64_t> first - <uint64_t> s.known_last - 1
                if missing > <uint64_t> INT64_MAX:  # after an offset far below zero
                    missing = INT64_MAX
                s.gaps += 1
                s.gap_offsets = s.gap_offsets + <int64_t> missing \
                    if s.gap_offsets <= INT64_MAX - <int64_t> missing else INT64_MAX
                if <int64_t> missing > s.gap_largest:
                    s.gap_largest = missing
        elif spans and s.batches == 0 and position == 0 and s.segment_base >= 0 and first > s.segment_base:
            s.compacted = True
        if s.first_position < 0:
            s.first_position = position
            s.first_offset = first
            s.first_spans = spans
            s.first_epoch = epoch
            s.first_timestamp = timestamp
        s.last_position = position
        s.known_last = last if last >= first else first
        s.has_last = True
        s.linked = True
        s.last_base_offset = first
        self._end = position + total
        return bits

    cdef void batch(self, const uint8_t *p, int64_t total, int64_t position, uint32_t computed,
                    bint body) noexcept nogil:
        cdef State *s = &self.s
        cdef int64_t first = be64(p)
        cdef int64_t delta = be32(p + LAST_OFFSET_DELTA_AT)
        cdef int64_t last = <int64_t> (<uint64_t> first + <uint64_t> delta)
        cdef int64_t count = be32(p + RECORDS_COUNT_AT)
        cdef int64_t max_timestamp = be64(p + MAX_TIMESTAMP_AT)
        cdef int32_t epoch = be32(p + LEADER_EPOCH_AT)
        cdef int attributes = attributes_of(p)
        cdef int codec = attributes & CODEC_MASK
        cdef int64_t bits = 0
        cdef RecordsDiagnosis v
        cdef int64_t *row = self._row + self.count * BATCH_WIDTH
        cdef bint checked = False
        if s.everything and not self._taken:
            self.fill_row(row, p, total, position, computed)
        cdef int64_t previous_offset = s.known_last if s.linked else NO_VALUE
        cdef int64_t previous_epoch = s.known_epoch
        if attributes & 0xff80:
            bits |= S_ATTRIBUTES
        if epoch != -1:
            if epoch < -1 or (s.linked and epoch < s.known_epoch):
                bits |= S_EPOCH_BACKWARDS
            if epoch >= 0:
                s.known_epoch = epoch
                if epoch != self._listed_epoch:
                    self.list_epoch(epoch, first, position)
        bits |= self.check_offsets(2, first, last, position, total, True, epoch, max_timestamp)
        if count > delta + 1:
            bits |= S_COUNT
        elif count < delta + 1:
            s.compacted = True
        if count <= 0 and (count < 0 or total > HEADER):
            bits |= S_COUNT
        if attributes & DELETE_HORIZON_FLAG:
            s.compacted = True
        if attributes & TRANSACTIONAL_FLAG:
            s.transactional += 1
        if attributes & CONTROL_FLAG:
            s.control += 1
        s.codecs[codec] += 1
        s.magics[2] += 1
        self.state_end = <int64_t> (<uint64_t> last + 1)  # wraps, as in Java
        if count > 0:
            s.records += count
        if codec > 4:
            bits |= S_CODEC
        elif codec:
            # A consumer creates a decompressor even for no bytes.
            if (s.deep or attributes & CONTROL_FLAG) and body and (count > 0 or (count == 0 and total == HEADER)):
                bits |= S_OPEN
        elif (s.deep or attributes & CONTROL_FLAG) and count >= 0 and body:
            validate_batch(p + HEADER, p + total, count, delta, be64(p + BASE_TIMESTAMP_AT),
                           control_of(attributes, be64(p + PRODUCER_ID_AT)), &v)
            bits |= batch_bits(&v, count, max_timestamp, attributes & LOG_APPEND_TIME == 0)
            checked = True
        if p[PRODUCER_ID_AT] < 128:
            s.produced += 1
            if self._recorder != NULL:
                self.record_producer(p, total, position, last, &v if checked else NULL)
        if (bits or s.everything) and not self._taken:
            if not s.everything:
                self.fill_row(row, p, total, position, computed)
            row[PREVIOUS_OFFSET] = previous_offset
            row[PREVIOUS_BASE_OFFSET] = s.before_break if bits & (S_OFFSET_RANGE | S_OFFSET_BACKWARDS) else NO_VALUE
            row[PREVIOUS_EPOCH] = previous_epoch
            if checked:
                copy_diagnosis(row, &v)
            row[SUSPECT] = bits
            self.count += 1
        s.batches += 1
        s.valid_bytes += total
        if self._cells != NULL:
            self.add_to_cell(position, total, first, last, max_timestamp, attributes)

    cdef void message(self, const uint8_t *p, int64_t total, int64_t position, uint32_t computed,
                      bint body) noexcept nogil:
        cdef State *s = &self.s
        cdef int64_t offset = be64(p)
        cdef int codec = p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK
        cdef int64_t bits = 0
        cdef int64_t timestamp = be64(p + MESSAGE_TIMESTAMP_AT) if p[MAGIC_AT] == 1 else -1
        cdef RecordsDiagnosis v
        cdef Message m
        cdef bint fits = True, checked = False
        cdef int64_t *row = self._row + self.count * BATCH_WIDTH
        cdef int64_t previous_offset = s.known_last if s.linked else NO_VALUE
        if p[MESSAGE_ATTRIBUTES_AT] & (0xf8 if p[MAGIC_AT] == 0 else 0xf0):
            bits |= S_ATTRIBUTES
        bits |= self.check_offsets(p[MAGIC_AT], offset, offset, position, total, codec == 0, NO_VALUE, timestamp)
        s.codecs[codec] += 1
        s.magics[p[MAGIC_AT]] += 1
        if codec == 0:
            s.records += 1
            if s.deep and body:
                validate_message(p, total, &v)
                bits |= message_bits(&v, timestamp, False)
                checked = True
        elif codec > 3:
            bits |= S_CODEC
            s.unopened += 1
        else:
            s.unopened += 1
            if body and (s.deep or s.everything):
                fits = parse_message(p, total, &m)
                if s.deep:
                    bits |= S_STRUCTURE if not fits else S_WRAPPER if m.value_size <= 0 else S_OPEN
                    if fits and m.trailing:
                        bits |= S_TRAILING
        if (bits or s.everything) and not self._taken:
            self.fill_row(row, p, total, position, computed)
            row[PREVIOUS_OFFSET] = previous_offset
            row[PREVIOUS_BASE_OFFSET] = s.before_break if bits & (S_OFFSET_RANGE | S_OFFSET_BACKWARDS) else NO_VALUE
            if checked:
                copy_diagnosis(row, &v)
            elif codec and body and (s.deep or s.everything):
                if fits:
                    row[PAYLOAD_AT] = m.value_at
                    row[PAYLOAD_SIZE] = m.value_size
                    if m.trailing:
                        row[TRAILING] = 0
                    if m.value_size <= 0:
                        row[STATUS] = WRAPPER_EMPTY
                        row[STATUS_RECORD] = 0
                else:
                    row[STATUS] = MESSAGE_FIELDS
                    row[STATUS_AT] = KEY_LENGTH_AT
                    row[STATUS_RECORD] = 0
            row[SUSPECT] = bits
            self.count += 1
        s.batches += 1
        s.valid_bytes += total
        if self._cells != NULL:
            self.add_to_cell(position, total, offset, offset, timestamp, 0)

    def open(self, Py_ssize_t index, payload):
        """Check the decompressed records of the batch in row `index`; return the suspect bits of the row."""
        cdef Py_buffer view
        cdef RecordsDiagnosis v
        cdef int64_t *row
        cdef int64_t bits
        if index < 0 or index >= self.count:
            raise IndexError("no such row")
        row = self._row + index * BATCH_WIDTH
        bits = row[SUSPECT] & ~<int64_t> S_OPEN
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if row[MAGIC] == 2:
                validate_batch(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, row[COUNT],
                               <int64_t> (<uint64_t> row[LAST_OFFSET] - <uint64_t> row[BASE_OFFSET]),
                               row[BASE_TIMESTAMP], control_of(row[ATTRIBUTES], row[PRODUCER_ID]), &v)
                bits |= batch_bits(&v, row[COUNT], row[MAX_TIMESTAMP], row[ATTRIBUTES] & LOG_APPEND_TIME == 0)
                copy_diagnosis(row, &v)
            else:
                validate_wrapped(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, row[MAGIC],
                                 row[LAST_OFFSET], &v)
                if v.trailing < 0:
                    v.trailing = row[TRAILING]  # that of the wrapper message itself
                bits |= message_bits(&v, row[MAX_TIMESTAMP], row[MAGIC] == 1 and row[ATTRIBUTES] & LOG_APPEND_TIME == 0)
                copy_diagnosis(row, &v)
                if not v.status and v.delta_record < 0 and v.first_offset < row[LAST_OFFSET]:
                    if 0 < row[POSITION] == self.s.first_position:
                        self.s.first_offset = v.first_offset  # for a walk that did not know the message before
                    if row[PREVIOUS_OFFSET] != NO_VALUE and v.first_offset <= row[PREVIOUS_OFFSET] < row[LAST_OFFSET]:
                        bits |= S_OFFSET_BACKWARDS
                        row[BASE_OFFSET] = v.first_offset
                self.s.records += v.records
                self.s.unopened -= 1
                if v.holes and not v.status:
                    self.s.compacted = True
                if v.inner_magic and not v.status:
                    if self.s.inner_magic == 0:
                        self.s.inner_magic_position = row[POSITION]
                    self.s.inner_magic += v.inner_magic
        finally:
            PyBuffer_Release(&view)
        row[SUSPECT] = bits
        return bits

    @property
    def known_last(self):
        return self.s.known_last

    @property
    def has_last(self):
        return self.s.has_last

    @property
    def known_epoch(self):
        return self.s.known_epoch

    def state(self):
        cdef dict fields = self.s
        cdef EpochStart *start
        if self._failed:
            raise MemoryError
        while len(self._listed) < self._epoch_count:
            start = self._epochs + len(self._listed)
            self._listed.append((start.epoch, start.first_offset, start.position))
        for name in ("segment_base", "deep", "everything", "max_batch_bytes", "before_break"):  # of the walk
            del fields[name]
        fields["last_offset"] = self.s.known_last if self.s.batches else -1
        fields["codecs"] = tuple(fields["codecs"])
        fields["magics"] = tuple(fields["magics"])
        return ScanState(
            epochs=tuple(self._listed), **fields,
            **(_NO_INDEXES if self._indexes is None else self._indexes.state_fields()),
        )

    cdef void list_epoch(self, int32_t epoch, int64_t first, int64_t position) noexcept nogil:
        cdef EpochStart *starts
        self._listed_epoch = epoch
        if self._epoch_count >= MOST_EPOCHS:
            return
        if self._epoch_count == self._epoch_capacity:
            starts = <EpochStart *> realloc(self._epochs, (2 * self._epoch_capacity + 8) * sizeof(EpochStart))
            if starts == NULL:
                self._failed = True
                return
            self._epochs = starts
            self._epoch_capacity = 2 * self._epoch_capacity + 8
        self._epochs[self._epoch_count].epoch = epoch
        self._epochs[self._epoch_count].first_offset = first
        self._epochs[self._epoch_count].position = position
        self._epoch_count += 1

    cdef void record_producer(self, const uint8_t *p, int64_t total, int64_t position, int64_t last,
                              const RecordsDiagnosis *v) noexcept nogil:
        """Record a batch of a producer in the runs. `v`: the result of the check of its records, NULL without one."""
        cdef Event event
        cdef int64_t producer_id = be64(p + PRODUCER_ID_AT)
        cdef int64_t slot = find_slot(self._recorder, producer_id)
        cdef int64_t first = be64(p), timestamp = be64(p + MAX_TIMESTAMP_AT)
        cdef int32_t delta = be32(p + LAST_OFFSET_DELTA_AT)
        cdef int32_t first_sequence = be32(p + BASE_SEQUENCE_AT), last_sequence = -1
        cdef int epoch = be16(p + PRODUCER_EPOCH_AT)
        cdef int flags = FLAG_TRANSACTIONAL if p[ATTRIBUTES_AT + 1] & TRANSACTIONAL_FLAG else 0
        cdef bint control = p[ATTRIBUTES_AT + 1] & CONTROL_FLAG != 0
        if control:
            event.kind = KIND_ODD
            first_sequence = -1
            if be32(p + RECORDS_COUNT_AT) == 0:
                event.kind = KIND_EMPTY  # the cleaner removed the marker
            elif v != NULL and (v.marker == 0 or v.marker == 1):
                event.kind = KIND_COMMIT if v.marker else KIND_ABORT
                first_sequence = v.coordinator_epoch
                if self._recorder.exact and p[ATTRIBUTES_AT + 1] & LOG_APPEND_TIME == 0:
                    timestamp = v.max_timestamp
            if event.kind == KIND_ODD or be32(p + RECORDS_COUNT_AT) > 1:
                self._recorder.odd = True
        else:
            if be32(p + RECORDS_COUNT_AT) == 0:
                flags |= FLAG_EMPTIED
            if first_sequence < -1 or delta < 0:
                self._recorder.odd = True
            if first_sequence != -1:
                last_sequence = <int32_t> ((<uint32_t> first_sequence + <uint32_t> delta) & SEQUENCE_MASK)
            if extend(self._recorder, slot, epoch, flags, first, last, timestamp, first_sequence, last_sequence, delta):
                return
            event.kind = KIND_DATA
        event.producer_id = producer_id
        event.position = position
        event.first_offset = first
        event.last_offset = first if control else last
        event.timestamp = event.first_timestamp = timestamp
        event.size = <int32_t> total if total < INT32_MAX else INT32_MAX
        event.first_sequence = first_sequence
        event.last_sequence = last_sequence
        event.offset_delta = 0 if control else delta
        event.epoch = <int16_t> epoch
        event.flags = <uint8_t> flags
        event.batches = 1
        record(self._recorder, &event, slot)

    # ---- bytes that are no batch

    cdef inline void find_bounds(self, int64_t *lowest, int64_t *highest) noexcept nogil:
        """Set the range of offsets that the next batch of this segment can have."""
        cdef State *s = &self.s
        cdef int64_t start = s.segment_base if s.segment_base >= 0 else s.known_last
        lowest[0] = max(0, s.segment_base)
        highest[0] = INT64_MAX
        if s.segment_base >= 0 or s.has_last:
            highest[0] = start + OFFSET_SPAN if start <= INT64_MAX - OFFSET_SPAN else INT64_MAX
        # An offset that the segment cannot have says nothing about the next one.
        if s.has_last and (
            s.segment_base < 0 or (s.segment_base <= s.known_last and s.known_last - s.segment_base <= OFFSET_SPAN)
        ):
            if s.known_last == INT64_MAX:
                highest[0] = -1
            else:
                lowest[0] = max(lowest[0], s.known_last + 1)

    def offset_bounds(self):
        cdef int64_t lowest, highest
        self.find_bounds(&lowest, &highest)
        return lowest, highest

    cdef inline bint plausible(self, const uint8_t *p) noexcept nogil:
        """Return whether the next batch of this segment can have this magic and offset. Does not check the length."""
        cdef int64_t lowest, highest
        self.find_bounds(&lowest, &highest)
        return p[MAGIC_AT] <= 2 and lowest <= be64(p) <= highest

    def look(self, buffer, Py_ssize_t at, int64_t left):
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t total
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < UP_TO_MAGIC:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            has_length = batch_length(p, INT64_MAX, INT64_MAX, &total) == VALID
            return FrameHeader(total, self.plausible(p), be64(p), be32(p + LEADER_EPOCH_AT), has_length)
        finally:
            PyBuffer_Release(&view)


def find(buffer, Py_ssize_t start, Py_ssize_t end, int64_t left, int64_t lowest, int64_t highest, int64_t largest,
         bint foreign):
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef int64_t at, total, found = -1
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError("the range lies outside the buffer")
        base = <const uint8_t *> view.buf
        with nogil:
            at = start - 1
            while at < end - UP_TO_MAGIC:
                at += 1
                p = base + at
                if p[MAGIC_AT] > 2:
                    continue
                if total_of(p) == LOG_OVERHEAD:
                    # Zeros are no length. Tails of them are long.
                    while end - at >= ZEROS + LOG_OVERHEAD and all_zero(base + at + LENGTH_AT, ZEROS):
                        at += ZEROS - LENGTH_AT
                    continue
                total = whole_batch(p, left - (at - start), largest)
                if total == 0 or p[0] > 127:
                    continue
                if (foreign and total <= FOREIGN_LIMIT) or lowest <= be64(p) <= highest:
                    found = at
                    break
    finally:
        PyBuffer_Release(&view)
    return found


def stored(buffer, Py_ssize_t at):
    """See scan.pyi."""
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or view.len - at < CRC_AT + 4:
            raise ValueError("the header lies outside the buffer")
        p = <const uint8_t *> view.buf + at
        return stored_crc(p), MAGIC_AT if p[MAGIC_AT] < 2 else ATTRIBUTES_AT
    finally:
        PyBuffer_Release(&view)


def is_zero(buffer, Py_ssize_t start, Py_ssize_t end):
    """See scan.pyi."""
    cdef Py_buffer view
    cdef bint zero
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len:
            raise ValueError("the range lies outside the buffer")
        with nogil:
            zero = all_zero(<const uint8_t *> view.buf + start, end - start)
    finally:
        PyBuffer_Release(&view)
    return zero

