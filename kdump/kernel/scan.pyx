# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The walk over batches: framing, checksum and the rules of a header and its neighbours, in one pass over bytes that are hot.

A batch that breaks a rule, or whose records have to be decompressed first, becomes a row of integers (BATCH_COLUMNS) with its `suspect` bits;
a healthy one leaves nothing behind but counts. The layouts stand in kdump.format.batch and kdump.format.legacy. What to do about bytes that are no
batch is decided in kdump.storage.walk: the walk stops there and says what it saw.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.errno cimport EINTR, errno
from libc.stdlib cimport free, realloc
from posix.unistd cimport pread

from kdump.kernel.crc cimport crc32_of, crc32c_of
from kdump.kernel.producers cimport (
    FLAG_TRANSACTIONAL, FULL_RUNS, KIND_ABORT, KIND_COMMIT, KIND_DATA, KIND_EMPTY, KIND_ODD, Event, Recorder, extend, find_slot, record, record_gap,
    recorder_of,
)
from kdump.kernel.records cimport (
    CONTROL, CONTROL_OF_PRODUCER, PLAIN, Message, Verdict, parse_message, validate_batch, validate_message, validate_wrapped,
)
from kdump.kernel.records import STATUSES
from kdump.kernel.results import BadEntry, IndexDifference, ScanState

import os

BATCH_COLUMNS = (
    "position", "size", "magic", "base_offset", "last_offset", "count", "partition_leader_epoch", "crc", "computed_crc", "attributes",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "suspect", "previous_offset", "previous_epoch",
    "status", "status_at", "status_record", "payload_at", "payload_size", "varint_record", "delta_record", "delta_offset", "found_timestamp",
    "inner_crc_record", "partial_bytes", "trailing_record",
)
cdef enum:
    POSITION, SIZE, MAGIC, BASE_OFFSET, LAST_OFFSET, COUNT, EPOCH, CRC, COMPUTED_CRC, ATTRIBUTES, BASE_TIMESTAMP, MAX_TIMESTAMP
    PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, SUSPECT, PREVIOUS_OFFSET, PREVIOUS_EPOCH, STATUS, STATUS_AT, STATUS_RECORD
    PAYLOAD_AT, PAYLOAD_SIZE, VARINT_RECORD, DELTA_RECORD, DELTA_OFFSET, FOUND_TIMESTAMP, INNER_CRC, PARTIAL, TRAILING
    WIDTH
assert len(BATCH_COLUMNS) == WIDTH

# Bit n of `suspect` is the code at place n.
SUSPECTS = (
    "batch/attributes", "batch/codec", "batch/count", "offset/range", "offset/backwards", "epoch/backwards", "control/structure",
    "record/structure", "record/varint", "record/delta", "time/max", "legacy/wrapper", "legacy/inner-crc", "legacy/partial", "legacy/trailing",
    "batch/crc", "batch/magic", "batch/limit",
)
cdef enum:
    S_ATTRIBUTES = 1 << 0
    S_CODEC = 1 << 1
    S_COUNT = 1 << 2
    S_RANGE = 1 << 3
    S_BACKWARDS = 1 << 4
    S_EPOCH = 1 << 5
    S_CONTROL = 1 << 6
    S_STRUCTURE = 1 << 7
    S_VARINT = 1 << 8
    S_DELTA = 1 << 9
    S_TIME = 1 << 10
    S_WRAPPER = 1 << 11
    S_INNER_CRC = 1 << 12
    S_PARTIAL = 1 << 13
    S_TRAILING = 1 << 14
    S_CRC = 1 << 15
    S_MAGIC = 1 << 16
    S_LIMIT = 1 << 17
    S_OPEN = 1 << 30  # no defect: the records are compressed and have to be opened by the caller
OPEN = S_OPEN

# What stands at a position; the first is a batch, the last three fill the bytes that their length claims.
FRAMES = ("valid", "end", "short", "length", "overrun", "limit", "crc", "magic")
cdef enum:
    VALID, END, SHORT, LENGTH, OVERRUN, LIMIT, BAD_CRC, BAD_MAGIC

# Why a scan came back.
cdef enum:
    NEED, FULL, STOPPED, DAMAGED
SCAN_NEED, SCAN_FULL, SCAN_STOPPED, SCAN_DAMAGED = NEED, FULL, STOPPED, DAMAGED

# What an entry of an index can have against it.
ENTRY_PROBLEMS = ("index/position", "index/offset", "timeindex/misses", "timeindex/wrong", "timeindex/offset")
cdef enum:
    INDEX_POSITION, INDEX_OFFSET, TIME_MISSES, TIME_WRONG, TIME_OFFSET
    ENTRY_PROBLEM_COUNT
assert len(ENTRY_PROBLEMS) == ENTRY_PROBLEM_COUNT
ENTRIES_KEPT = 1000

HEADER_BYTES = 61
cdef enum:
    HEADER = 61
    UP_TO_MAGIC = 17
    PAGE = 4096
    A_MARKER = 128    # bytes in which a marker has room
    FOREIGN_LIMIT = 1 << 20
    INDEX_ENTRY = 8   # relative offset i32, position i32 (kdump.format.index)
    TIME_ENTRY = 12   # timestamp i64, relative offset i32
    MOST_ENTRIES_KEPT = 1000
    MOST_EPOCHS = 65536
cdef int64_t WEEK = 604_800_000
cdef int64_t OFFSET_SPAN = 2147483647  # offsets of a segment are at most this far above its base
cdef int CONTROL_STATUS = STATUSES.index("control-key")
cdef int WRAPPER_STATUS = STATUSES.index("wrapper-size")
cdef int EMPTY_STATUS = STATUSES.index("wrapper-empty")


cdef inline int32_t be32(const uint8_t *p) noexcept nogil:
    return <int32_t> (<uint32_t> p[0] << 24 | <uint32_t> p[1] << 16 | <uint32_t> p[2] << 8 | <uint32_t> p[3])


cdef inline int64_t be64(const uint8_t *p) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> be32(p) << 32 | <uint64_t> <uint32_t> be32(p + 4))


cdef inline void put32(uint8_t *p, int64_t value) noexcept nogil:
    cdef int i
    for i in range(4):
        p[i] = <uint8_t> (<uint64_t> value >> 8 * (3 - i))


cdef inline int64_t minimum(uint8_t magic) noexcept nogil:
    return 14 if magic == 0 else 22 if magic == 1 else 49


cdef inline uint32_t checksum(const uint8_t *p, int64_t total) noexcept nogil:
    if p[16] < 2:
        return crc32_of(p + 16, total - 16)
    return crc32c_of(p + 21, total - 21)


cdef inline uint32_t stored_crc(const uint8_t *p) noexcept nogil:
    return <uint32_t> be32(p + 12 if p[16] < 2 else p + 17)


cdef inline bint all_zero(const uint8_t *p, int64_t n) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if p[i]:
            return False
    return True


cdef inline int control_of(int64_t attributes, int64_t producer_id) noexcept nogil:
    return PLAIN if attributes & 0x20 == 0 else CONTROL_OF_PRODUCER if producer_id >= 0 else CONTROL


cdef struct State:
    int64_t segment_base     # -1: not known
    int64_t known_last       # last offset of the last valid batch
    int64_t known_epoch
    int64_t broken           # times that bytes were no valid batch
    bint has_last
    bint linked              # the batch before was valid, so offsets and epochs can be compared
    bint deep
    bint everything          # a row for every batch
    int64_t max_batch_bytes
    # what was seen
    int64_t batches
    int64_t records
    int64_t unopened         # batches whose number of records needs opening
    int64_t valid_bytes
    int64_t first_position   # of the first valid batch, -1: none
    int64_t first_offset
    int64_t first_epoch      # INT64_MIN: a message of magic 0 or 1
    bint first_spans         # its first offset is known, that is: no wrapper
    int64_t last_position
    int64_t last_offset
    int64_t max_timestamp
    int64_t max_timestamp_offset    # last offset of the first batch that has it; as in LogSegment.recover, the base without one
    int64_t max_timestamp_position
    int64_t first_timestamp  # max timestamp of the first valid batch, -1: none
    int64_t last_timestamp
    int64_t backs            # batches whose max timestamp is more than a week below that of the batch before
    int64_t back_position
    int64_t back_offset
    int64_t back_largest
    bint compacted
    int64_t gaps
    int64_t gap_position
    int64_t gap_first
    int64_t gap_previous
    int64_t gap_largest
    int64_t gap_offsets
    int64_t inner_magic
    int64_t inner_magic_position
    int64_t control
    int64_t transactional
    int64_t produced         # batches of a producer
    int64_t codecs[8]
    int64_t magics[3]


# The entries of the indexes, and the next of each that a batch may have to answer for.
cdef struct Expected:
    bint begun               # the walk began
    bint from_zero           # ... at the first byte of the file
    bint expecting
    bint recording           # the entries are not held against batches, but made from them
    bint making              # entries are made; while expecting, as long as the offset index is right and nothing is damaged
    bint fresh               # no valid batch since the beginning, or since damage
    const uint8_t *index
    const uint8_t *time
    int64_t interval
    int64_t position         # a batch that ends behind it has to look at the offset index
    int64_t offset           # a batch that ends there or behind it has to look at the time index
    int64_t last_entry       # where a rebuild that goes on from the entries that are there would have counted bytes from
    int64_t last_made        # where one does that goes on from the entries that were made
    int64_t made_since       # ... before the first of them, -1 without a batch
    int64_t first_due        # the largest timestamp where the first of them was made, INT64_MIN without one
    int64_t index_count
    int64_t index_begin
    int64_t index_cursor
    int64_t first_index_offset
    int64_t time_count
    int64_t time_begin
    int64_t time_cursor
    int64_t carried_cursor   # where a time index goes on, -1: to be looked for
    int64_t first_time_entry
    bint differs
    int64_t difference[5]

# The entries that a rebuild writes.
cdef struct Made:
    uint8_t *entries
    int64_t size
    int64_t capacity
    int64_t limit            # bytes

cdef struct EntryProblem:
    int64_t problem
    int64_t entry
    int64_t stored[2]
    int64_t position
    int64_t first
    int64_t last
    int64_t found

cdef struct EpochStart:
    int64_t epoch
    int64_t first_offset
    int64_t position


cdef inline void give(int64_t *row, Verdict *v) noexcept nogil:
    row[STATUS] = v.status
    row[STATUS_AT] = v.status_at
    row[STATUS_RECORD] = v.status_record
    row[VARINT_RECORD] = v.varint_record
    row[DELTA_RECORD] = v.delta_record
    row[DELTA_OFFSET] = v.delta_offset
    row[FOUND_TIMESTAMP] = v.max_timestamp
    row[INNER_CRC] = v.inner_crc
    row[PARTIAL] = v.partial
    row[TRAILING] = v.trailing


cdef inline int64_t judge_batch(Verdict *v, int64_t count, int64_t max_timestamp, bint create_time) noexcept nogil:
    """The suspect bits that the records of a batch of magic 2 earn."""
    if v.status and v.status < CONTROL_STATUS:
        return S_STRUCTURE
    if count <= 0:
        return 0
    return ((S_CONTROL if v.status else 0) | (S_VARINT if v.varint_record >= 0 else 0) | (S_DELTA if v.delta_record >= 0 else 0)
            | (S_TIME if create_time and v.max_timestamp != max_timestamp else 0))


cdef inline int64_t judge_messages(Verdict *v, int64_t timestamp, bint timed) noexcept nogil:
    """The suspect bits of a message, or of the messages inside a wrapper."""
    cdef int64_t bits = 0
    if v.status:
        return S_WRAPPER if v.status >= WRAPPER_STATUS else S_STRUCTURE
    if v.inner_crc >= 0:
        bits |= S_INNER_CRC
    if v.trailing >= 0:
        bits |= S_TRAILING
    if v.partial:
        bits |= S_PARTIAL
    if v.delta_record >= 0:
        bits |= S_DELTA
    if timed and v.max_timestamp != INT64_MIN and v.max_timestamp != timestamp:
        bits |= S_TIME
    return bits


cdef int64_t fill(int fd, int64_t position, uint8_t *buffer, int64_t need, int64_t most) noexcept nogil:
    """How many bytes of a file were read, `need` to `most` unless it ends before; an errno below zero where it cannot be read."""
    cdef int64_t filled = 0
    cdef ssize_t n
    while filled < need:
        n = pread(fd, buffer + filled, most - filled, position + filled)
        if n == 0:
            break
        if n > 0:
            filled += n
        elif errno != EINTR:
            return -errno
    return filled


@cython.final
cdef class Scanner:
    """The state of one walk over one segment; see scan.pyi."""

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
    cdef Recorder *_recorder  # of _runs, NULL without
    cdef int64_t _end         # of the last valid batch
    cdef Expected x
    cdef bytes _index
    cdef bytes _time
    cdef EntryProblem *_bad
    cdef Py_ssize_t _bad_count
    cdef Py_ssize_t _bad_capacity
    cdef int64_t _entry_counts[ENTRY_PROBLEM_COUNT]
    cdef int32_t _listed_epoch
    cdef EpochStart *_epochs
    cdef Py_ssize_t _epoch_count
    cdef Py_ssize_t _epoch_capacity
    cdef Made _made_index
    cdef Made _made_time
    cdef int64_t _made_offset     # of the last entry of the offset index
    cdef int64_t _made_timestamp  # of the last entry of the time index
    cdef readonly int64_t state_end
    cdef readonly int64_t reached
    cdef list _listed         # of _epochs, so many as were asked for
    cdef bint _failed         # out of memory

    def __init__(self, int64_t base_offset=-1, *, bint deep=False, bint everything=False, int64_t max_batch_bytes=1 << 30, Py_ssize_t capacity=256,
                 runs=None):
        self._capacity = capacity
        self._storage = bytearray(capacity * WIDTH * 8)
        self._row = <int64_t *> PyByteArray_AsString(self._storage)
        self.rows = memoryview(self._storage).cast("q")
        self.s.segment_base = base_offset
        self.s.known_epoch = -1
        self.s.deep = deep
        self.s.everything = everything
        self.s.max_batch_bytes = max_batch_bytes
        self.s.first_position = self.s.last_position = self.s.first_offset = self.s.last_offset = self.s.max_timestamp = -1
        self.s.gap_position = self.s.inner_magic_position = -1
        self.s.first_timestamp = self.s.last_timestamp = self.s.max_timestamp_position = self.s.back_position = self.s.back_offset = -1
        self.s.max_timestamp_offset = base_offset
        self._runs = runs
        if runs is not None:
            self._recorder = recorder_of(runs)
        self.x.position = self.x.offset = INT64_MAX
        self.x.index_begin = self.x.time_begin = self.x.index_cursor = self.x.time_cursor = self.x.carried_cursor = -1
        self.x.made_since = -1
        self.x.first_index_offset = self.x.first_time_entry = self.x.first_due = INT64_MIN
        self._listed_epoch = -1
        self._listed = []

    def __dealloc__(self):
        free(self._bad)
        free(self._epochs)
        free(self._made_index.entries)
        free(self._made_time.entries)

    def expect(self, offset_slots, time_slots, int64_t interval=4096):
        if self.s.segment_base < 0:
            raise ValueError("the entries of an index are relative to a base offset")
        self._index = bytes(offset_slots)
        self._time = bytes(time_slots)
        self.x.index = <const uint8_t *> PyBytes_AsString(self._index)
        self.x.time = <const uint8_t *> PyBytes_AsString(self._time)
        self.x.index_count = len(self._index) // INDEX_ENTRY
        self.x.time_count = len(self._time) // TIME_ENTRY
        self.x.interval = max(0, min(interval, INT32_MAX))
        self.x.expecting = self.x.fresh = True
        self.x.position = INT64_MIN

    def make(self):
        if not self.x.expecting:
            raise ValueError("no entries are expected")
        self.begin_making(INT32_MAX)

    def record(self, int64_t interval=4096, int64_t index_bytes=INT32_MAX):
        if self.s.segment_base < 0:
            raise ValueError("the entries of an index are relative to a base offset")
        self.state_end = self.s.segment_base
        self.x.interval = max(0, min(interval, INT32_MAX))
        self.x.recording = True
        self.x.position = self.x.interval
        self.begin_making(max(0, min(index_bytes, INT32_MAX)))

    cdef void begin_making(self, int64_t index_bytes) noexcept:
        self._made_index.limit = index_bytes - index_bytes % INDEX_ENTRY
        self._made_time.limit = index_bytes - index_bytes % TIME_ENTRY
        self._made_offset = self._made_timestamp = -1
        self.x.making = True

    def recorded(self):
        cdef int64_t size = self._made_time.size, timestamp = self._made_timestamp
        cdef bytes index
        if self._failed:
            raise MemoryError
        if not (self.x.recording and self.x.making):
            return None
        index = (<char *> self._made_index.entries)[:self._made_index.size] if self._made_index.size else b""
        if self.s.max_timestamp > timestamp:
            self.made_time(self.s.max_timestamp, self.s.max_timestamp_offset, self._made_time.limit)
        if self._failed:
            raise MemoryError
        time = (<char *> self._made_time.entries)[:self._made_time.size] if self._made_time.size else b""
        self._made_time.size = size
        self._made_timestamp = timestamp
        return index, time

    def made(self):
        if self._failed:
            raise MemoryError
        if not (self.x.expecting and self.x.making):
            return None
        return (
            self.x.made_since, self.x.first_due,
            PyByteArray_FromStringAndSize(<char *> self._made_index.entries, self._made_index.size),
            PyByteArray_FromStringAndSize(<char *> self._made_time.entries, self._made_time.size),
        )

    # ---- the walk

    def scan(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t position, int64_t stop, int64_t file_end):
        cdef Py_buffer view
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise ValueError("the range lies outside the buffer")
            self.count = 0
            if not self.x.begun:
                self.x.begun = True
                self.x.from_zero = position == 0
            with nogil:
                reason = self.walk(<const uint8_t *> view.buf, start, end, position, stop, file_end)
        finally:
            PyBuffer_Release(&view)
        return reason

    cdef int walk(self, const uint8_t *base, Py_ssize_t at, Py_ssize_t end, int64_t position, int64_t stop, int64_t file_end) noexcept nogil:
        cdef const uint8_t *p
        cdef int64_t left, size, total
        cdef uint8_t magic
        cdef uint32_t computed
        self.need = 0
        while True:
            self.stop = at
            if position >= stop:
                return STOPPED
            if self.count >= self._capacity or (self._recorder != NULL and self._recorder.count >= FULL_RUNS):
                return FULL
            left = file_end - position
            if left < UP_TO_MAGIC:
                self.frame = SHORT
                return DAMAGED
            if end - at < UP_TO_MAGIC:
                self.need = HEADER if left > HEADER else left
                return NEED
            p = base + at
            size = be32(p + 8)
            magic = p[16]
            if size < minimum(magic):
                self.frame = LENGTH
                return DAMAGED
            total = size + 12
            if total > left:
                self.frame = OVERRUN
                return DAMAGED
            if total > self.s.max_batch_bytes:
                self.frame = LIMIT
                return DAMAGED
            if total > end - at:
                self.need = total
                return NEED
            computed = checksum(p, total)
            if computed != stored_crc(p):
                self.frame = BAD_CRC
                return DAMAGED
            if magic > 2:
                self.frame = BAD_MAGIC
                return DAMAGED
            if magic == 2:
                self.batch(p, total, position, computed, True)
            else:
                self.message(p, total, position, computed, True)
            at += total
            position += total

    def headers(self, int fd, int64_t origin, buffer, int64_t position, int64_t stop):
        cdef Py_buffer view
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if view.len < PAGE or position < 0 or origin + position < 0:
                raise ValueError("the buffer is too small, or the position lies outside the file")
            self.count = 0
            with nogil:
                reason = self.leap(fd, origin, <uint8_t *> view.buf, view.len, position, stop)
        finally:
            PyBuffer_Release(&view)
        if reason < 0:
            raise OSError(-reason, os.strerror(-reason))
        return reason

    cdef int leap(self, int fd, int64_t origin, uint8_t *buffer, int64_t room, int64_t position, int64_t stop) noexcept nogil:
        """Why it came back, or an errno below zero. Of large batches only the headers are read, of small ones many at once."""
        cdef const uint8_t *p
        cdef int64_t begin = position, filled = 0, usual = 0, total, left
        cdef bint control
        while True:
            self.reached = position
            left = stop - position
            if left <= 0:
                return STOPPED
            if self.count >= self._capacity or (self._recorder != NULL and self._recorder.count >= FULL_RUNS):
                return FULL
            if left < UP_TO_MAGIC:
                self.frame = SHORT
                return DAMAGED
            if position + min(left, HEADER) > begin + filled:
                begin = position
                filled = fill(fd, origin + position, buffer, min(left, HEADER), min(left, A_MARKER if usual >= PAGE else room))
                if filled < min(left, HEADER):
                    return <int> filled if filled < 0 else NEED
            p = buffer + (position - begin)
            total = <int64_t> be32(p + 8) + 12
            if total - 12 < minimum(p[16]) or total > left or p[16] > 2:
                self.frame = LENGTH
                return DAMAGED
            # The marker in an uncompressed control batch is looked at.
            control = p[16] == 2 and p[22] & 0x27 == 0x20
            if control and position + total > begin + filled:
                if total > room:
                    self.frame = LIMIT
                    return DAMAGED
                begin = position
                filled = fill(fd, origin + position, buffer, total, total)
                if filled < total:
                    return <int> filled if filled < 0 else NEED
                p = buffer
            if p[16] == 2:
                self.batch(p, total, position, 0, control)
            else:
                self.message(p, total, position, 0, False)
            position += total
            usual += (total - usual) >> 2

    def skip_body(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed):
        """One batch whose checksum was found right by other means, because its body is larger than the buffer."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t total
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < HEADER:
                raise ValueError("the header lies outside the buffer")
            self.count = 0
            p = <const uint8_t *> view.buf + at
            total = <int64_t> be32(p + 8) + 12
            if p[16] == 2:
                self.batch(p, total, position, computed, False)
            else:
                self.message(p, total, position, computed, False)
        finally:
            PyBuffer_Release(&view)

    def damaged(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed, int frame):
        """A row for a batch that fills its bytes but does not prove itself; nothing of it feeds a rule."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t *row = self._row
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < 26:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            if p[16] < 2:
                self.message_row(row, p, <int64_t> be32(p + 8) + 12, position, computed)
            else:
                if view.len - at < HEADER:
                    raise ValueError("the header lies outside the buffer")
                self.batch_row(row, p, <int64_t> be32(p + 8) + 12, position, computed)
            row[SUSPECT] = S_LIMIT if frame == LIMIT else S_MAGIC if frame == BAD_MAGIC else S_CRC
            if frame == LIMIT:
                row[STATUS_AT] = self.s.max_batch_bytes
            self.count = 1
            self.pass_over(position)
        finally:
            PyBuffer_Release(&view)

    def carry(self, int64_t known_last, bint has_last, int64_t known_epoch, bint linked, int64_t max_timestamp=-1, int64_t time_cursor=-1):
        """Go on where another scanner ended."""
        self.s.known_last = known_last
        self.s.has_last = has_last
        self.s.known_epoch = known_epoch
        self.s.linked = linked
        self.s.max_timestamp = max_timestamp
        self.x.carried_cursor = time_cursor

    def unlink(self):
        """After bytes that are no batch: the next one has no neighbour."""
        self.pass_over(self._end)

    cdef void pass_over(self, int64_t position) noexcept nogil:
        """Something that is no valid batch."""
        self.s.linked = False
        self.s.broken += 1
        if self._recorder != NULL:
            record_gap(self._recorder, position)
        if self.x.expecting:
            self.x.fresh = True
            self.x.position = INT64_MIN
            self.x.making = False

    cdef void batch_row(self, int64_t *row, const uint8_t *p, int64_t total, int64_t position, uint32_t computed) noexcept nogil:
        cdef int i
        cdef int64_t base = be64(p)
        cdef int32_t delta = be32(p + 23)
        row[POSITION] = position
        row[SIZE] = total
        row[MAGIC] = p[16]
        row[BASE_OFFSET] = base
        row[LAST_OFFSET] = <int64_t> (<uint64_t> base + <uint64_t> <int64_t> delta)
        row[COUNT] = be32(p + 57)
        row[EPOCH] = be32(p + 12)
        row[CRC] = stored_crc(p)
        row[COMPUTED_CRC] = computed
        row[ATTRIBUTES] = p[21] << 8 | p[22]
        row[BASE_TIMESTAMP] = be64(p + 27)
        row[MAX_TIMESTAMP] = be64(p + 35)
        row[PRODUCER_ID] = be64(p + 43)
        row[PRODUCER_EPOCH] = <int8_t> p[51] * 256 + p[52]
        row[BASE_SEQUENCE] = be32(p + 53)
        self.context(row)
        row[PAYLOAD_AT] = HEADER
        row[PAYLOAD_SIZE] = total - HEADER

    cdef void context(self, int64_t *row) noexcept nogil:
        cdef int i
        row[SUSPECT] = 0
        row[PREVIOUS_OFFSET] = self.s.known_last if self.s.linked else INT64_MIN
        row[PREVIOUS_EPOCH] = self.s.known_epoch
        row[STATUS] = row[STATUS_AT] = row[DELTA_OFFSET] = row[PARTIAL] = 0
        row[STATUS_RECORD] = row[VARINT_RECORD] = row[DELTA_RECORD] = row[INNER_CRC] = row[TRAILING] = -1
        row[FOUND_TIMESTAMP] = INT64_MIN

    cdef void message_row(self, int64_t *row, const uint8_t *p, int64_t total, int64_t position, uint32_t computed) noexcept nogil:
        cdef bint wrapper = p[17] & 7 != 0
        row[POSITION] = position
        row[SIZE] = total
        row[MAGIC] = p[16]
        row[LAST_OFFSET] = be64(p)
        row[BASE_OFFSET] = INT64_MIN if wrapper else row[LAST_OFFSET]
        row[COUNT] = INT64_MIN if wrapper else 1
        row[EPOCH] = INT64_MIN
        row[CRC] = stored_crc(p)
        row[COMPUTED_CRC] = computed
        row[ATTRIBUTES] = p[17]
        row[BASE_TIMESTAMP] = row[MAX_TIMESTAMP] = be64(p + 18) if p[16] == 1 else -1
        row[PRODUCER_ID] = row[PRODUCER_EPOCH] = row[BASE_SEQUENCE] = -1
        self.context(row)
        row[PAYLOAD_AT] = row[PAYLOAD_SIZE] = INT64_MIN

    cdef inline int64_t place(self, int magic, int64_t first, int64_t last, int64_t position, int64_t total, bint spans, int64_t epoch,
                              int64_t timestamp) noexcept nogil:
        """The rules of an offset range and its left neighbour; `spans` is false for a wrapper, whose first offset is not known."""
        cdef int64_t bits = 0
        cdef uint64_t missing
        cdef State *s = &self.s
        if position + total > self.x.position or last >= self.x.offset:
            self.answer(magic, first, last, position, total, spans, timestamp)
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
        if first < 0 or last < first or first < s.segment_base or (s.segment_base >= 0 and last - s.segment_base > OFFSET_SPAN):
            bits |= S_RANGE
        if s.linked:
            if first <= s.known_last:
                bits |= S_BACKWARDS
            elif spans and first > s.known_last + 1:
                if s.gaps == 0:
                    s.gap_position = position
                    s.gap_first = first
                    s.gap_previous = s.known_last
                missing = <uint64_t> first - <uint64_t> s.known_last - 1
                if missing > <uint64_t> INT64_MAX:  # after an offset far below zero
                    missing = INT64_MAX
                s.gaps += 1
                s.gap_offsets = s.gap_offsets + <int64_t> missing if s.gap_offsets <= INT64_MAX - <int64_t> missing else INT64_MAX
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
        s.last_offset = s.known_last
        self._end = position + total
        return bits

    cdef void batch(self, const uint8_t *p, int64_t total, int64_t position, uint32_t computed, bint body) noexcept nogil:
        cdef State *s = &self.s
        cdef int64_t first = be64(p)
        cdef int64_t delta = be32(p + 23)
        cdef int64_t last = <int64_t> (<uint64_t> first + <uint64_t> delta)
        cdef int64_t count = be32(p + 57)
        cdef int64_t max_timestamp = be64(p + 35)
        cdef int32_t epoch = be32(p + 12)
        cdef int attributes = p[21] << 8 | p[22]
        cdef int codec = attributes & 7
        cdef int64_t bits = 0
        cdef Verdict v
        cdef int64_t *row = self._row + self.count * WIDTH
        cdef bint proved = False
        if s.everything:
            self.batch_row(row, p, total, position, computed)
        cdef int64_t previous_offset = s.known_last if s.linked else INT64_MIN
        cdef int64_t previous_epoch = s.known_epoch
        if attributes & 0xff80:
            bits |= S_ATTRIBUTES
        if epoch != -1:
            if epoch < -1 or (s.linked and epoch < s.known_epoch):
                bits |= S_EPOCH
            if epoch >= 0:
                s.known_epoch = epoch
                if epoch != self._listed_epoch:
                    self.list_epoch(epoch, first, position)
        bits |= self.place(2, first, last, position, total, True, epoch, max_timestamp)
        if count > delta + 1:
            bits |= S_COUNT
        elif count < delta + 1:
            s.compacted = True
        if count <= 0 and (count < 0 or total > HEADER):
            bits |= S_COUNT
        if attributes & 0x40:
            s.compacted = True
        if attributes & 0x10:
            s.transactional += 1
        if attributes & 0x20:
            s.control += 1
        s.codecs[codec] += 1
        s.magics[2] += 1
        self.state_end = last + 1
        if count > 0:
            s.records += count
        if codec > 4:
            bits |= S_CODEC
        elif codec:
            # A consumer begins to decompress even where there is nothing.
            if (s.deep or attributes & 0x20) and body and (count > 0 or (count == 0 and total == HEADER)):
                bits |= S_OPEN
        elif (s.deep or attributes & 0x20) and count >= 0 and body:
            validate_batch(p + HEADER, p + total, count, delta, be64(p + 27), control_of(attributes, be64(p + 43)), &v)
            bits |= judge_batch(&v, count, max_timestamp, attributes & 8 == 0)
            proved = True
        if p[43] < 128:
            s.produced += 1
            if self._recorder != NULL:
                self.produced(p, total, position, last, &v if proved else NULL)
        if bits or s.everything:
            if not s.everything:
                self.batch_row(row, p, total, position, computed)
            row[PREVIOUS_OFFSET] = previous_offset
            row[PREVIOUS_EPOCH] = previous_epoch
            if proved:
                give(row, &v)
            row[SUSPECT] = bits
            self.count += 1
        s.batches += 1
        s.valid_bytes += total

    cdef void message(self, const uint8_t *p, int64_t total, int64_t position, uint32_t computed, bint body) noexcept nogil:
        cdef State *s = &self.s
        cdef int64_t offset = be64(p)
        cdef int codec = p[17] & 7
        cdef int64_t bits = 0
        cdef int64_t timestamp = be64(p + 18) if p[16] == 1 else -1
        cdef Verdict v
        cdef Message m
        cdef bint fits = True, proved = False
        cdef int64_t *row = self._row + self.count * WIDTH
        cdef int64_t previous_offset = s.known_last if s.linked else INT64_MIN
        if p[17] & (0xf8 if p[16] == 0 else 0xf0):
            bits |= S_ATTRIBUTES
        bits |= self.place(p[16], offset, offset, position, total, codec == 0, INT64_MIN, timestamp)
        s.codecs[codec] += 1
        s.magics[p[16]] += 1
        if codec == 0:
            s.records += 1
            if s.deep and body:
                validate_message(p, total, &v)
                bits |= judge_messages(&v, timestamp, False)
                proved = True
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
        if bits or s.everything:
            self.message_row(row, p, total, position, computed)
            row[PREVIOUS_OFFSET] = previous_offset
            if proved:
                give(row, &v)
            elif codec and body and (s.deep or s.everything):
                if fits:
                    row[PAYLOAD_AT] = m.value_at
                    row[PAYLOAD_SIZE] = m.value_size
                    if m.trailing:
                        row[TRAILING] = 0
                    if m.value_size <= 0:
                        row[STATUS] = EMPTY_STATUS
                        row[STATUS_RECORD] = 0
                else:
                    row[STATUS] = CONTROL_STATUS + 2
                    row[STATUS_AT] = 18
                    row[STATUS_RECORD] = 0
            row[SUSPECT] = bits
            self.count += 1
        s.batches += 1
        s.valid_bytes += total

    def open(self, Py_ssize_t index, payload):
        """Proves the decompressed records of the batch in row `index`; returns its suspect bits."""
        cdef Py_buffer view
        cdef Verdict v
        cdef int64_t *row
        cdef int64_t bits
        if index < 0 or index >= self.count:
            raise IndexError("no such row")
        row = self._row + index * WIDTH
        bits = row[SUSPECT] & ~<int64_t> S_OPEN
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if row[MAGIC] == 2:
                validate_batch(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, row[COUNT],
                               <int64_t> (<uint64_t> row[LAST_OFFSET] - <uint64_t> row[BASE_OFFSET]), row[BASE_TIMESTAMP],
                               control_of(row[ATTRIBUTES], row[PRODUCER_ID]), &v)
                bits |= judge_batch(&v, row[COUNT], row[MAX_TIMESTAMP], row[ATTRIBUTES] & 8 == 0)
                give(row, &v)
            else:
                validate_wrapped(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, row[MAGIC], row[LAST_OFFSET], &v)
                if v.trailing < 0:
                    v.trailing = row[TRAILING]  # of the wrapper itself
                bits |= judge_messages(&v, row[MAX_TIMESTAMP], row[MAGIC] == 1 and row[ATTRIBUTES] & 8 == 0)
                give(row, &v)
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
        for name in ("segment_base", "deep", "everything", "max_batch_bytes"):  # what the walk was given
            del fields[name]
        fields["codecs"] = tuple(fields["codecs"])
        fields["magics"] = tuple(fields["magics"])
        return ScanState(
            epochs=tuple(self._listed), index_begin=self.x.index_begin, index_cursor=self.x.index_cursor, time_begin=self.x.time_begin,
            time_cursor=self.x.time_cursor, first_index_offset=self.x.first_index_offset, first_time_entry=self.x.first_time_entry,
            index_differs=IndexDifference(*self.x.difference) if self.x.differs else None, **fields,
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

    cdef void produced(self, const uint8_t *p, int64_t total, int64_t position, int64_t last, const Verdict *v) noexcept nogil:
        """Tell the runs of a batch that has a producer; `v` is what was found in its records, when they were looked at."""
        cdef Event event
        cdef int64_t producer_id = be64(p + 43)
        cdef int64_t slot = find_slot(self._recorder, producer_id)
        cdef int64_t first = be64(p), timestamp = be64(p + 35)
        cdef int32_t delta = be32(p + 23), first_sequence = be32(p + 53), last_sequence = -1
        cdef int epoch = <int8_t> p[51] * 256 + p[52], flags = FLAG_TRANSACTIONAL if p[22] & 0x10 else 0
        cdef bint control = p[22] & 0x20 != 0
        if control:
            event.kind = KIND_ODD
            first_sequence = -1
            if be32(p + 57) == 0:
                if not self._recorder.exact:
                    return  # the cleaner took the marker out
                event.kind = KIND_EMPTY
            elif v != NULL and (v.marker == 0 or v.marker == 1):
                event.kind = KIND_COMMIT if v.marker else KIND_ABORT
                first_sequence = v.coordinator_epoch
                if self._recorder.exact and p[22] & 8 == 0:
                    timestamp = v.max_timestamp
            if event.kind == KIND_ODD or be32(p + 57) > 1:
                self._recorder.odd = True
        else:
            if first_sequence < -1 or delta < 0:
                self._recorder.odd = True
            if first_sequence != -1:
                last_sequence = <int32_t> ((<uint32_t> first_sequence + <uint32_t> delta) & <uint32_t> 0x7FFFFFFF)
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

    # ---- the entries of the indexes

    cdef inline int64_t index_offset(self, int64_t entry) noexcept nogil:
        return <int64_t> (<uint64_t> self.s.segment_base + <uint64_t> <int64_t> be32(self.x.index + INDEX_ENTRY * entry))

    cdef inline int64_t index_position(self, int64_t entry) noexcept nogil:
        return be32(self.x.index + INDEX_ENTRY * entry + 4)

    cdef inline int64_t time_offset(self, int64_t entry) noexcept nogil:
        return <int64_t> (<uint64_t> self.s.segment_base + <uint64_t> <int64_t> be32(self.x.time + TIME_ENTRY * entry + 8))

    cdef void answer(self, int magic, int64_t first, int64_t last, int64_t position, int64_t total, bint spans,
                     int64_t timestamp) noexcept nogil:
        """Hold a valid batch against the entries that speak of it. The state is that before the batch."""
        cdef Expected *x = &self.x
        cdef int64_t target, running
        if x.fresh:
            self.seek(first, position)
        if x.making and position - x.last_made > x.interval:
            self.make_entries(last, position, timestamp)
        if not x.expecting:
            x.position = x.last_made + x.interval if x.making else INT64_MAX
            return
        if not x.differs:
            self.rebuild(last, position)
        while x.index_cursor < x.index_count:
            target = self.index_position(x.index_cursor)
            if target >= position + total:
                break
            if target > position:
                self.bad_index_entry(INDEX_POSITION, first, last, position, position)
            elif target == position and self.s.has_last and self.index_offset(x.index_cursor) <= self.s.known_last:
                self.bad_index_entry(INDEX_OFFSET, first, last, position, self.s.known_last)
            x.last_entry = target
            x.index_cursor += 1
        running = max(self.s.max_timestamp, timestamp)
        while x.time_cursor < x.time_count and self.time_offset(x.time_cursor) <= last:
            self.time_entry(magic, first, last, position, spans, running)
            x.time_cursor += 1
        x.position = self.index_position(x.index_cursor) if x.index_cursor < x.index_count else INT64_MAX
        if not x.differs:
            x.position = min(x.position, x.last_entry + x.interval)
        if x.making:
            x.position = min(x.position, x.last_made + x.interval)
        x.offset = self.time_offset(x.time_cursor) if x.time_cursor < x.time_count else INT64_MAX

    cdef void seek(self, int64_t first, int64_t position) noexcept nogil:
        """Pass the entries before the first batch of a walk, or before one behind damage."""
        cdef Expected *x = &self.x
        cdef bint begins = x.index_begin < 0
        cdef int64_t low = max(x.index_cursor, 0), high = x.index_count, middle
        x.fresh = False
        while low < high:
            middle = low + (high - low) // 2
            if self.index_position(middle) < position:
                low = middle + 1
            else:
                high = middle
        x.index_cursor = low
        x.last_entry = self.index_position(low - 1) if low > 0 else 0
        if not begins:
            return
        x.index_begin = low
        x.made_since = x.last_made = x.last_entry
        if low < x.index_count and not self.s.has_last and self.index_position(low) == position:
            x.first_index_offset = self.index_offset(low)
        low, high = 0, x.time_count
        if x.carried_cursor >= 0:
            low = high = min(x.carried_cursor, high)
        elif x.from_zero and not self.s.has_last:
            high = 0
        while low < high:
            middle = low + (high - low) // 2
            if self.time_offset(middle) < first if not self.s.has_last else self.time_offset(middle) <= self.s.known_last:
                low = middle + 1
            else:
                high = middle
        x.time_begin = x.time_cursor = low

    cdef void make_entries(self, int64_t last, int64_t position, int64_t timestamp) noexcept nogil:
        """What LogSegment.recover writes at this batch."""
        cdef uint8_t *p
        cdef int64_t relative = last - self.s.segment_base
        cdef bint later = timestamp > self.s.max_timestamp
        if relative < 0 or relative > OFFSET_SPAN or (self._made_index.size and last <= self._made_offset):
            self.x.making = False
            return
        self._made_offset = last
        self.x.last_made = position
        if self._made_index.size < self._made_index.limit and self.fits(&self._made_index, INDEX_ENTRY):
            p = self._made_index.entries + self._made_index.size
            put32(p, relative)
            put32(p + 4, position)
            self._made_index.size += INDEX_ENTRY
        if self.x.first_due == INT64_MIN:
            self.x.first_due = timestamp if later else self.s.max_timestamp
        if (timestamp if later else self.s.max_timestamp) > self._made_timestamp:
            # The last slot is kept for the entry at the end.
            self.made_time(timestamp if later else self.s.max_timestamp, last if later else self.s.max_timestamp_offset,
                           self._made_time.limit - TIME_ENTRY)

    cdef void made_time(self, int64_t timestamp, int64_t offset, int64_t limit) noexcept nogil:
        cdef uint8_t *p
        if self._made_time.size >= limit or not self.fits(&self._made_time, TIME_ENTRY):
            return
        p = self._made_time.entries + self._made_time.size
        put32(p, timestamp >> 32)
        put32(p + 4, timestamp)
        put32(p + 8, offset - self.s.segment_base)
        self._made_time.size += TIME_ENTRY
        self._made_timestamp = timestamp

    cdef bint fits(self, Made *made, int64_t size) noexcept nogil:
        """Room for so many bytes more."""
        cdef uint8_t *entries
        if made.size + size > made.capacity:
            entries = <uint8_t *> realloc(made.entries, 2 * made.capacity + 4096)
            if entries == NULL:
                self._failed = True
                return False
            made.entries = entries
            made.capacity = 2 * made.capacity + 4096
        return True

    cdef void rebuild(self, int64_t last, int64_t position) noexcept nogil:
        """What LogSegment.recover would write at this batch, against the entry that is there."""
        cdef Expected *x = &self.x
        cdef bint left = x.index_cursor < x.index_count
        cdef bint stands = left and self.index_position(x.index_cursor) == position
        cdef bint due = position - x.last_entry > x.interval
        if due != stands or (due and self.index_offset(x.index_cursor) != last):
            x.differs = True
            x.making = False
            x.difference[0] = x.index_cursor
            x.difference[1] = self.index_offset(x.index_cursor) if left else -1
            x.difference[2] = self.index_position(x.index_cursor) if left else -1
            x.difference[3] = last if due else -1
            x.difference[4] = position if due else -1

    cdef void time_entry(self, int magic, int64_t first, int64_t last, int64_t position, bint spans, int64_t running) noexcept nogil:
        """Hold the next time index entry against the first batch that reaches its offset."""
        cdef bint outside
        cdef int64_t offset = self.time_offset(self.x.time_cursor)
        cdef int64_t timestamp = be64(self.x.time + TIME_ENTRY * self.x.time_cursor)
        outside = spans and offset < first
        if self.x.first_time_entry == INT64_MIN:
            self.x.first_time_entry = timestamp
        if self.s.max_timestamp > timestamp:
            self.bad_entry(TIME_MISSES, self.x.time_cursor, timestamp, offset, first, last, position, self.s.max_timestamp)
        elif timestamp != running and magic > 0 and (self.s.linked or not outside):
            # Of a magic without timestamps a broker may know better. Behind damage, the entry can speak of a batch that is lost.
            self.bad_entry(TIME_WRONG, self.x.time_cursor, timestamp, offset, first, last, position, running)
        if outside and self.s.linked:
            self.bad_entry(TIME_OFFSET, self.x.time_cursor, timestamp, offset, first, last, position, first)

    cdef void bad_index_entry(self, int problem, int64_t first, int64_t last, int64_t position, int64_t found) noexcept nogil:
        cdef int64_t entry = self.x.index_cursor
        self.bad_entry(problem, entry, self.index_offset(entry), self.index_position(entry), first, last, position, found)

    cdef void bad_entry(self, int problem, int64_t entry, int64_t one, int64_t other, int64_t first, int64_t last, int64_t position,
                        int64_t found) noexcept nogil:
        cdef EntryProblem *bad
        self._entry_counts[problem] += 1
        if self._entry_counts[problem] > MOST_ENTRIES_KEPT:
            return
        if self._bad_count == self._bad_capacity:
            bad = <EntryProblem *> realloc(self._bad, (2 * self._bad_capacity + 8) * sizeof(EntryProblem))
            if bad == NULL:
                self._failed = True
                return
            self._bad = bad
            self._bad_capacity = 2 * self._bad_capacity + 8
        bad = self._bad + self._bad_count
        self._bad_count += 1
        bad.problem = problem
        bad.entry = entry
        bad.stored[0] = one
        bad.stored[1] = other
        bad.position = position
        bad.first = first
        bad.last = last
        bad.found = found

    def entries(self):
        """The index entries that have something against them."""
        cdef Py_ssize_t i
        cdef EntryProblem *bad
        cdef list found = []
        if self._failed:
            raise MemoryError
        for i in range(self._bad_count):
            bad = self._bad + i
            found.append(BadEntry(ENTRY_PROBLEMS[bad.problem], bad.entry, bad.stored[0], bad.stored[1], bad.position, bad.first, bad.last, bad.found))
        return found

    def entry_counts(self):
        """How many index entries have each problem."""
        cdef int problem
        cdef dict counts = {}
        for problem in range(ENTRY_PROBLEM_COUNT):
            if self._entry_counts[problem]:
                counts[ENTRY_PROBLEMS[problem]] = self._entry_counts[problem]
        return counts

    # ---- bytes that are no batch

    cdef inline bint plausible(self, const uint8_t *p) noexcept nogil:
        """Magic and offset could be those of this segment's next batch. The length is for the caller."""
        cdef State *s = &self.s
        cdef int64_t offset = be64(p)
        if p[16] > 2 or offset < 0 or (s.has_last and offset <= s.known_last):
            return False
        if s.segment_base >= 0:
            return s.segment_base <= offset and offset - s.segment_base <= OFFSET_SPAN
        return not s.has_last or <uint64_t> offset - <uint64_t> s.known_last <= <uint64_t> OFFSET_SPAN

    def look(self, buffer, Py_ssize_t at, int64_t left):
        """(total, plausible, offset, epoch, length_ok) of the frame at `at`; the buffer holds at least its first 17 bytes."""
        cdef Py_buffer view
        cdef const uint8_t *p
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < UP_TO_MAGIC:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            return <int64_t> be32(p + 8) + 12, self.plausible(p), be64(p), be32(p + 12), be32(p + 8) >= minimum(p[16])
        finally:
            PyBuffer_Release(&view)

    def find(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t left, bint foreign):
        """The first place in [start, end) whose 17 bytes could begin a batch that fits in the `left` bytes after `start`, or -1."""
        cdef Py_buffer view
        cdef const uint8_t *base
        cdef const uint8_t *p
        cdef int64_t at, size, found = -1
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError("the range lies outside the buffer")
            base = <const uint8_t *> view.buf
            with nogil:
                for at in range(start, end - UP_TO_MAGIC + 1):
                    p = base + at
                    if p[16] > 2:
                        continue
                    size = be32(p + 8)
                    if size < minimum(p[16]) or size + 12 > left - (at - start) or size + 12 > self.s.max_batch_bytes or p[0] > 127:
                        continue
                    if (foreign and size + 12 <= FOREIGN_LIMIT) or self.plausible(p):
                        found = at
                        break
        finally:
            PyBuffer_Release(&view)
        return found


def stored(buffer, Py_ssize_t at):
    """The checksum that the batch at `at` carries, and where the bytes it covers begin."""
    cdef Py_buffer view
    cdef const uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or view.len - at < 21:
            raise ValueError("the header lies outside the buffer")
        p = <const uint8_t *> view.buf + at
        return stored_crc(p), 16 if p[16] < 2 else 21
    finally:
        PyBuffer_Release(&view)


def is_zero(buffer, Py_ssize_t start, Py_ssize_t end):
    """Whether every byte of the range is zero."""
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


def ordered(slots, int entry_size):
    """How many leading entries of an index are in order."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t count, i = 0, timestamp = 0
    cdef int32_t offset = -1, target = -1
    if entry_size != INDEX_ENTRY and entry_size != TIME_ENTRY:
        raise ValueError("no index has entries of that size")
    PyObject_GetBuffer(slots, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *> view.buf
        count = view.len // entry_size
        with nogil:
            if entry_size == INDEX_ENTRY:
                while i < count and be32(p) > offset and be32(p + 4) > target:
                    offset = be32(p)
                    target = be32(p + 4)
                    i += 1
                    p += INDEX_ENTRY
            else:
                while i < count and be32(p + 8) >= offset and be32(p + 8) >= 0 and (i == 0 or be64(p) > timestamp):
                    timestamp = be64(p)
                    offset = be32(p + 8)
                    i += 1
                    p += TIME_ENTRY
    finally:
        PyBuffer_Release(&view)
    return i
