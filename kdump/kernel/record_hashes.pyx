# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Hashes the records of batches, and compares those of two copies in step; see record_hashes.pyi.

SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012) and the sums that it
goes over are here and come from no library: hashlib has no call for many short texts, and a call for each record takes
longer than the hash of it. The tests have the vectors that the authors of SipHash published.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from kdump.kernel.cursor cimport Fields, next_key_and_value, whole_batch
from kdump.kernel.key_table cimport KeyTable, add_row, first_slot, index_rows, release, set_up
from kdump.kernel.layout cimport (
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CODEC_MASK, CONTROL_FLAG, DELETE_HORIZON_FLAG, HEADER,
    LEADER_EPOCH_AT, LOG_APPEND_TIME, MAGIC_AT, MAX_TIMESTAMP_AT, MESSAGE_ATTRIBUTES_AT, NO_VALUE, PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT, RECORDS_COUNT_AT, RECORD_WIDTH, R_AT, R_KEY_AT, R_KEY_SIZE, R_OFFSET, R_SIZE, R_TIMESTAMP,
    R_VALUE_SIZE, TRANSACTIONAL_FLAG, UP_TO_MAGIC, attributes_of, be16, be32, be64, last_offset_of,
)
from kdump.kernel.records cimport MESSAGE_FIELDS, Message, parse_message
from kdump.kernel.scan cimport BatchTaker
from kdump.kernel.sketches cimport (
    CONTROL_BIT, H_EPOCH, H_FLAGS, H_HIGH, H_KEY_HIGH, H_KEY_LOW, H_LOW, H_OFFSET, HASH_WIDTH, NO_KEY_BIT,
    OUTCOME_SHIFT, TOMBSTONE_BIT, RecordSketch,
)
from kdump.kernel.transactions cimport D_ABORTED, D_COMMITTED, D_UNDECIDED, UncommittedBatches

HASH_COLUMNS = ("offset", "key_high", "key_low", "high", "low", "flags", "leader_epoch")
cdef enum:
    SMALLEST_RECORD = 7   # seven fields of a byte each
    MOST_JOBS = 256       # rows that wait for their hashes
    MOST_RUNS = 256       # of leader epochs
    KEPT_ATTRIBUTES = LOG_APPEND_TIME | TRANSACTIONAL_FLAG | CONTROL_FLAG
    # A row of a key: the last record of each copy as 2 * offset + tombstone, -1: none.
    S_HIGH = 0
    S_LOW
    S_LEFT
    S_RIGHT
    S_FLAGS
    STATE_WIDTH
    UNKNOWN_LEFT = 1
    UNKNOWN_RIGHT = 2
    BEYOND_LEFT = 4
    BEYOND_RIGHT = 8
TOMBSTONE, NO_KEY, CONTROL, OUTCOME = TOMBSTONE_BIT, NO_KEY_BIT, CONTROL_BIT, OUTCOME_SHIFT
assert len(HASH_COLUMNS) == HASH_WIDTH


# ---- SipHash-2-4

cdef extern from "siphash.h":
    enum:
        KD_SIP_JOBS
    ctypedef struct KdSip:
        uint64_t v0
    ctypedef struct KdSipJob:
        uint64_t last
    ctypedef void (*KdSipHash)(const KdSip *begin, const KdSipJob *jobs, int64_t count) noexcept nogil
    ctypedef void (*KdSipPairs)(const KdSip *begin, const uint64_t *pairs, int64_t count, int64_t *out,
                               int64_t stride) noexcept nogil
    void kd_sip_begin(KdSip *s, uint64_t low, uint64_t high) noexcept nogil
    void kd_sip_set(KdSipJob *job, const uint8_t *text, int64_t size, int64_t *out) noexcept nogil
    const char *kd_sip_names[]
    int kd_sip_ways() noexcept nogil
    KdSipHash kd_sip_way(int number) noexcept nogil
    KdSipPairs kd_sip_pairs_way(int number) noexcept nogil

cdef extern from "nh.h":
    enum:
        KD_NH_KEY
    ctypedef struct KdNhBatch:
        uint64_t numbers[4]
    ctypedef struct KdNhJob:
        const KdNhBatch *batch
        uint64_t numbers[4]
        const uint8_t *text
    ctypedef void (*KdNhMany)(KdNhBatch *batches, int64_t batch_count, const KdNhJob *jobs, int64_t count,
                              const uint8_t *after, const uint8_t *key, const KdSip *begin,
                              uint64_t *pairs) noexcept nogil
    KdNhMany kd_nh_way(int number) noexcept nogil

assert MOST_JOBS == KD_SIP_JOBS
SIPHASH_IMPLS = tuple([(<bytes> kd_sip_names[_number]).decode() for _number in range(kd_sip_ways())])


cdef void words_of(bytes key, uint64_t *words) except *:
    if len(key) != 16:
        raise ValueError("a key of 16 bytes")
    memcpy(words, <const char *> key, 16)


_expanded = (b"", b"")


cdef bytes expanded(bytes key):
    """The key of the sums, and that of the hash over them."""
    global _expanded
    if _expanded[0] != key:
        from hashlib import blake2b
        blocks = [blake2b(number.to_bytes(8, "little"), key=key, person=b"kdump sums").digest()
                  for number in range((KD_NH_KEY + 16 + 63) // 64)]
        _expanded = key, b"".join(blocks)
    return _expanded[1]


# ---- rows of hashes

@cython.final
@cython.no_gc_clear  # it would forget who exports the buffers, which are not released then
cdef class RecordHasher:
    cdef public object rows
    cdef public object ends
    cdef readonly int64_t count, ended, batches
    cdef readonly bint has_odd_offsets
    cdef public int64_t at
    cdef KdSip _begin, _record_begin
    cdef uint8_t _sum_key[KD_NH_KEY]
    cdef KdSipJob _key_jobs[MOST_JOBS]
    cdef KdNhJob _record_jobs[MOST_JOBS]  # of the rows from `_hashed` on
    cdef KdNhMany _sum_many
    cdef KdNhBatch _batches[MOST_JOBS + 1]  # of the jobs; the first has what messages have in place of a batch
    cdef int64_t _key_count, _batch_count, _hashed
    cdef KdSipHash _hash_many
    cdef KdSipPairs _hash_pairs
    cdef int64_t _first, _stop, _capacity
    cdef bint _keys, _contents
    cdef int64_t *_cells
    cdef int64_t *_end_cells
    cdef Py_buffer _view, _end_view

    def __cinit__(self, bytes key, int64_t first, int64_t stop, *, bint keys=True, bint contents=True,
                  int64_t capacity=8192, str implementation=SIPHASH_IMPLS[-1]):
        cdef uint64_t words[2]
        if not 1 <= capacity <= 1 << 20:
            raise ValueError("capacity")
        if implementation not in SIPHASH_IMPLS:
            raise ValueError(f"no SipHash {implementation!r} here, only {', '.join(SIPHASH_IMPLS)}")
        self._hash_many = kd_sip_way(SIPHASH_IMPLS.index(implementation))
        self._sum_many = kd_nh_way(SIPHASH_IMPLS.index(implementation))
        self._hash_pairs = kd_sip_pairs_way(SIPHASH_IMPLS.index(implementation))
        words_of(key, words)
        kd_sip_begin(&self._begin, words[0], words[1])
        keys_of_sums = expanded(key)
        memcpy(self._sum_key, <const char *> keys_of_sums, KD_NH_KEY)
        self._batches[0].numbers[:] = [NO_VALUE, NO_VALUE, NO_VALUE, NO_VALUE]
        memcpy(words, <const char *> keys_of_sums + KD_NH_KEY, 16)
        kd_sip_begin(&self._record_begin, words[0], words[1])
        self._first = first
        self._stop = stop
        self._keys = keys
        self._contents = contents
        self._capacity = capacity
        buffer = bytearray(capacity * HASH_WIDTH * 8)
        PyObject_GetBuffer(buffer, &self._view, PyBUF_SIMPLE)
        self._cells = <int64_t *> self._view.buf
        self.rows = memoryview(buffer).cast("q")
        buffer = bytearray(capacity * 16)
        PyObject_GetBuffer(buffer, &self._end_view, PyBUF_SIMPLE)
        self._end_cells = <int64_t *> self._end_view.buf
        self.ends = memoryview(buffer).cast("q")
        self.count = self.at = self.ended = self.batches = self._hashed = 0
        self._batch_count = 1

    def __dealloc__(self):
        if self._cells != NULL:
            PyBuffer_Release(&self._view)
        if self._end_cells != NULL:
            PyBuffer_Release(&self._end_view)

    cdef void _begin_call(self) noexcept nogil:
        """Forget the rows, and what a call that raised has left to be hashed: its bytes are gone."""
        self.count = self.at = self.ended = self._hashed = self._key_count = 0
        self._batch_count = 1

    cdef void _end_batch(self, int64_t end) noexcept nogil:
        self._end_cells[2 * self.ended] = self.count
        self._end_cells[2 * self.ended + 1] = end
        self.ended += 1

    cdef void _flush(self, const uint8_t *after) noexcept nogil:
        """Compute the hashes of the rows that were added. `after`: where the readable bytes end."""
        cdef uint64_t pairs[2 * MOST_JOBS]
        cdef int64_t count = self.count - self._hashed
        self._hash_many(&self._begin, self._key_jobs, self._key_count)
        if self._contents:
            self._sum_many(self._batches, self._batch_count, self._record_jobs, count, after, self._sum_key,
                           &self._record_begin, pairs)
            self._hash_pairs(&self._record_begin, pairs, count, self._cells + self._hashed * HASH_WIDTH + H_HIGH,
                             HASH_WIDTH)
        self._key_count = 0
        self._batch_count = 1
        self._hashed = self.count

    cdef inline const KdNhBatch *_add_batch(self, const uint8_t *head, const uint8_t *after) noexcept nogil:
        """What the records of a batch have in common, until the next call of `_flush`."""
        cdef KdNhBatch *batch
        if self._batch_count == MOST_JOBS + 1:  # of as many, no record was wanted
            self._flush(after)
        batch = self._batches + self._batch_count
        self._batch_count += 1
        batch.numbers[0] = <uint64_t> be64(head)
        batch.numbers[1] = <uint64_t> last_offset_of(head)
        batch.numbers[2] = <uint64_t> be64(head + PRODUCER_ID_AT)
        batch.numbers[3] = (<uint64_t> <uint32_t> be32(head + BASE_SEQUENCE_AT) << 32
                            | <uint64_t> (be16(head + PRODUCER_EPOCH_AT) & 0xffff) << 16
                            | <uint64_t> (attributes_of(head) & KEPT_ATTRIBUTES))
        return batch

    cdef const uint8_t *_hash(self, const uint8_t *head, const uint8_t *p, const uint8_t *end, const uint8_t *after,
                              int64_t *left, int64_t room, int outcome, int *status) noexcept nogil:
        """Add the rows of the next records of a batch, at most `room`, which there is; returns where they end.

        The hashes come with `_flush`, while the bytes are still there. `after`: where the readable bytes end.
        """
        # What is of the hasher is here meanwhile: of what a row changes the compiler knows no bounds.
        cdef const KdNhBatch *batch = self._add_batch(head, after)
        cdef int64_t keys = self._key_count, first = self._first, records = left[0]
        cdef int64_t all_records = be32(head + RECORDS_COUNT_AT)
        cdef int32_t odd = 0
        cdef uint64_t span = <uint64_t> max(self._stop - first, <int64_t> 0)
        cdef bint with_keys = self._keys
        cdef KdNhJob *job = self._record_jobs + (self.count - self._hashed)
        cdef KdNhJob *jobs_end = self._record_jobs + MOST_JOBS
        cdef Fields f
        cdef int64_t attributes = attributes_of(head), base = be64(head), offset
        cdef int64_t flags = outcome << OUTCOME_SHIFT, epoch = be32(head + LEADER_EPOCH_AT)
        cdef int64_t *row = self._cells + self.count * HASH_WIDTH
        cdef const uint8_t *stop
        cdef bint appended = attributes & LOG_APPEND_TIME != 0
        cdef uint64_t timestamp = <uint64_t> be64(head + (MAX_TIMESTAMP_AT if appended else BASE_TIMESTAMP_AT))
        cdef uint64_t of_record = 0 if appended else ~<uint64_t> 0  # the bits of its timestamp that are its own
        if attributes & CONTROL_FLAG:
            flags |= CONTROL_BIT
        while records > 0 and room > 0:
            stop = next_key_and_value(p, end, after, &f, status)
            if stop == NULL:
                break
            p = stop
            odd |= f.offset_delta ^ <int32_t> (all_records - records)
            records -= 1
            offset = <int64_t> (<uint64_t> base + <uint64_t> <int64_t> f.offset_delta)
            if <uint64_t> offset - <uint64_t> first >= span:
                continue
            if job == jobs_end:
                self.count, self._key_count = (row - self._cells) // HASH_WIDTH, keys
                self._flush(after)
                job, keys, batch = self._record_jobs, 0, self._add_batch(head, after)
            row[H_OFFSET] = offset
            row[H_FLAGS] = flags | (TOMBSTONE_BIT if f.value_size < 0 else 0) | (NO_KEY_BIT if f.key_size < 0 else 0)
            row[H_EPOCH] = epoch
            if with_keys:
                row[H_KEY_HIGH] = row[H_KEY_LOW] = 0
                if f.key_size >= 0:
                    kd_sip_set(self._key_jobs + keys, f.key, f.key_size, row + H_KEY_HIGH)
                    keys += 1
            job.batch = batch
            job.numbers[0] = <uint64_t> offset
            job.numbers[1] = timestamp + (<uint64_t> f.timestamp_delta & of_record)
            job.numbers[2] = (<uint64_t> <uint32_t> max(f.key_size, -1) << 32 | <uint32_t> max(f.value_size, -1))
            job.numbers[3] = <uint64_t> (stop - f.key)
            job.text = f.key
            job += 1
            row += HASH_WIDTH
            room -= 1
        self.count, self._key_count, left[0] = (row - self._cells) // HASH_WIDTH, keys, records
        self.has_odd_offsets |= odd != 0
        return p

    cdef inline void _add_record(self, const KdNhBatch *batch, int64_t flags, int64_t epoch, int64_t offset,
                                 int64_t timestamp, const uint8_t *key, int64_t key_size, int64_t value_size,
                                 const uint8_t *stop) noexcept nogil:
        """Add the row of a record that ends at `stop`; there is room for it, and for its hash."""
        cdef int64_t *row = self._cells + self.count * HASH_WIDTH
        cdef KdNhJob *job = self._record_jobs + (self.count - self._hashed)
        row[H_OFFSET] = offset
        row[H_FLAGS] = flags | (TOMBSTONE_BIT if value_size < 0 else 0) | (NO_KEY_BIT if key_size < 0 else 0)
        row[H_EPOCH] = epoch
        if self._keys:
            row[H_KEY_HIGH] = row[H_KEY_LOW] = 0
            if key_size >= 0:
                kd_sip_set(self._key_jobs + self._key_count, key, key_size, row + H_KEY_HIGH)
                self._key_count += 1
        job.batch = batch
        job.numbers[0] = <uint64_t> offset
        job.numbers[1] = <uint64_t> timestamp
        job.numbers[2] = <uint64_t> <uint32_t> max(key_size, -1) << 32 | <uint32_t> max(value_size, -1)
        job.numbers[3] = <uint64_t> (stop - key)
        job.text = key
        self.count += 1

    cdef inline void _add_message(self, int64_t offset, int64_t timestamp, const uint8_t *key, int64_t key_size,
                                  int64_t value_size, const uint8_t *stop, const uint8_t *after) noexcept nogil:
        """Add the row of a message of magic 0 or 1, which ends at `stop`; there is room for it."""
        if offset < self._first or offset >= self._stop:
            return
        if self.count - self._hashed == MOST_JOBS:
            self._flush(after)
        self._add_record(self._batches, 0, NO_VALUE, offset, timestamp, key, key_size, value_size, stop)

    cdef bint _hash_single(self, const uint8_t *head, int64_t total, const uint8_t *after) noexcept nogil:
        """Add the row of the record of a batch that has one and is taken for committed; there is room for it.

        As `_hash`, which takes as long to begin. False where its fields do not fit its size.
        """
        cdef Fields f
        cdef int status = 0, attributes = attributes_of(head)
        cdef const uint8_t *stop = next_key_and_value(head + HEADER, head + total, after, &f, &status)
        cdef int64_t offset, timestamp
        if stop == NULL:
            return False
        self.has_odd_offsets |= f.offset_delta != 0
        offset = <int64_t> (<uint64_t> be64(head) + <uint64_t> <int64_t> f.offset_delta)
        if offset < self._first or offset >= self._stop:
            return True
        if attributes & LOG_APPEND_TIME:
            timestamp = be64(head + MAX_TIMESTAMP_AT)
        else:
            timestamp = <int64_t> (<uint64_t> be64(head + BASE_TIMESTAMP_AT) + <uint64_t> f.timestamp_delta)
        if self.count - self._hashed == MOST_JOBS:
            self._flush(after)
        self._add_record(self._add_batch(head, after), CONTROL_BIT if attributes & CONTROL_FLAG else 0,
                         be32(head + LEADER_EPOCH_AT), offset, timestamp, f.key, f.key_size, f.value_size, stop)
        return True

    cdef bint _hash_message(self, const uint8_t *head, int64_t total, const uint8_t *after) noexcept nogil:
        """Add the row of a message that is not compressed. False where its fields do not fit its size."""
        cdef Message m
        if not parse_message(head, total, &m):
            return False
        self._add_message(be64(head), m.timestamp, head + m.key_at, m.key_size, m.value_size, head + total, after)
        return True

    def hash_batches(self, batches, int64_t at, int outcome, bytes outcomes=None, int64_t index=0):
        cdef Py_buffer view
        cdef const uint8_t *decided = NULL
        cdef const uint8_t *after
        cdef const uint8_t *head
        cdef int64_t left, total, size, known = 0
        cdef int status = 0
        self._begin_call()
        self.batches = 0
        PyObject_GetBuffer(batches, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or at > view.len or index < 0:
                raise ValueError("at")
            after = <const uint8_t *> view.buf + view.len
            if outcomes is not None:
                decided = <const uint8_t *> <const char *> outcomes
                known = len(outcomes) - index
            while view.len - at >= UP_TO_MAGIC and self.ended < self._capacity:
                head = <const uint8_t *> view.buf + at
                total = whole_batch(head, view.len - at, view.len)
                if total == 0:
                    break
                if head[MAGIC_AT] != 2:
                    if head[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK or self.count == self._capacity:
                        break
                    if not self._hash_message(head, total, after):
                        status = MESSAGE_FIELDS
                        break
                    at += total
                    self.batches += 1
                    self._end_batch(<int64_t> (<uint64_t> be64(head) + 1))
                    continue
                if attributes_of(head) & CODEC_MASK:
                    break
                if attributes_of(head) & (TRANSACTIONAL_FLAG | CONTROL_FLAG) == TRANSACTIONAL_FLAG:
                    if self.batches >= known:
                        break
                    outcome = decided[index + self.batches]
                elif decided != NULL:
                    outcome = D_COMMITTED
                left = be32(head + RECORDS_COUNT_AT)
                size = total - HEADER
                if left > size // SMALLEST_RECORD or left > self._capacity - self.count:
                    break
                self._hash(head, head + HEADER, head + total, after, &left, left, outcome, &status)
                if status:
                    break
                at += total
                self.batches += 1
                self._end_batch(<int64_t> (<uint64_t> last_offset_of(head) + 1))
            self._flush(after)
        finally:
            PyBuffer_Release(&view)
        return at, status

    def hash_records(self, header, payload, int64_t at, int64_t left, int outcome):
        cdef Py_buffer head, view
        cdef const uint8_t *start
        cdef const uint8_t *after
        cdef const uint8_t *p
        cdef int status = 0
        self._begin_call()
        PyObject_GetBuffer(header, &head, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            try:
                if head.len < HEADER or at < 0 or at > view.len:
                    raise ValueError("at")
                start = <const uint8_t *> view.buf
                after = start + view.len
                p = self._hash(<const uint8_t *> head.buf, start + at, after, after, &left, self._capacity, outcome,
                               &status)
                self._flush(after)
                at = p - start
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&head)
        return at, left, status

    def hash_messages(self, rows, payload, int64_t at):
        cdef Py_buffer view, data
        cdef const int64_t *row
        cdef const uint8_t *start
        cdef int64_t count
        self._begin_call()
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE)
            try:
                start = <const uint8_t *> data.buf
                count = view.len // (RECORD_WIDTH * 8)
                if at < 0:
                    raise ValueError("at")
                while at < count and self.count < self._capacity:
                    row = <const int64_t *> view.buf + at * RECORD_WIDTH
                    if not (0 <= row[R_AT] <= row[R_KEY_AT] and 0 <= row[R_SIZE] <= data.len - row[R_AT]
                            and max(row[R_KEY_SIZE], 0) <= row[R_AT] + row[R_SIZE] - row[R_KEY_AT]):
                        raise ValueError("rows of another payload")
                    self._add_message(row[R_OFFSET], row[R_TIMESTAMP], start + row[R_KEY_AT], row[R_KEY_SIZE],
                                      row[R_VALUE_SIZE], start + row[R_AT] + row[R_SIZE], start + data.len)
                    at += 1
                self._flush(start + data.len)
            finally:
                PyBuffer_Release(&data)
        finally:
            PyBuffer_Release(&view)
        return at


@cython.final
cdef class BatchSketcher(BatchTaker):
    """See record_hashes.pyi."""

    cdef RecordHasher _hasher
    cdef RecordSketch _sketch
    cdef UncommittedBatches _uncommitted
    cdef int64_t _start
    cdef readonly bint failed
    cdef bint _stopped
    # Of the batches since the last call of `facts`.
    cdef int64_t _batches, _first, _next, _position, _last_position, _end_position, _magic, _run_count
    cdef int64_t _runs[MOST_RUNS][4]  # epoch, first and last offset, batches

    def __cinit__(self, RecordHasher hasher not None, RecordSketch sketch not None,
                  UncommittedBatches uncommitted=None, int64_t start=0):
        if hasher._capacity < 2:
            raise ValueError("capacity")
        self._hasher = hasher
        self._sketch = sketch
        self._uncommitted = uncommitted
        self._start = start

    def add_to(self, RecordSketch sketch not None):
        self._sketch = sketch

    def stop(self):
        self._stopped = True

    def facts(self):
        cdef int64_t i
        cdef list runs
        if self._batches == 0:
            return None
        runs = [(self._runs[i][0], self._runs[i][1], self._runs[i][2], self._runs[i][3])
                for i in range(self._run_count)]
        self._batches = self._run_count = 0
        return (self._first, self._next, runs, self._position, self._last_position, self._end_position, self._magic)

    cdef inline int64_t _room(self) noexcept nogil:
        """How many rows may come before they go to the sketch: its tables stay in the first-level cache meanwhile."""
        return 0 if self._hasher.ended + 1 >= self._hasher._capacity else self._hasher._capacity - self._hasher.count

    cdef void begin(self) noexcept nogil:
        self._hasher._begin_call()

    cdef void end(self, const uint8_t *after) noexcept nogil:
        self._hasher._flush(after)
        if self._sketch._add(self._hasher._cells, self._hasher.count, self._hasher._end_cells,
                             self._hasher.ended) < self._hasher.count:
            self.failed = True
        self._hasher._begin_call()

    cdef bint take(self, const uint8_t *p, int64_t total, int64_t position, const uint8_t *after) noexcept nogil:
        cdef int64_t first = be64(p), last = first, epoch = -1, count = 1
        cdef int64_t *run = self._runs[self._run_count - 1] if self._run_count else NULL
        cdef int attributes = 0
        if self._stopped or self.failed or first < 0:
            return False
        if self._batches and (first < self._next or position != self._end_position):
            return False
        if p[MAGIC_AT] == 2:
            last = last_offset_of(p)
            epoch = be32(p + LEADER_EPOCH_AT)
            count = be32(p + RECORDS_COUNT_AT)
            attributes = attributes_of(p)
            # Where records are missing, a log cleaner was there.
            if last < first or last == INT64_MAX or count <= last - first or attributes & DELETE_HORIZON_FLAG:
                return False
            if attributes & CODEC_MASK or count > (total - HEADER) // SMALLEST_RECORD:
                return False
        elif first == INT64_MAX or p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            return False
        if run == NULL or run[0] != epoch:
            if self._run_count == MOST_RUNS:
                return False
            run = self._runs[self._run_count]
            run[0], run[1], run[3] = epoch, first, 0
        if p[MAGIC_AT] == 2:
            if not self._note(p, position, last, attributes) or not self._hash(p, total, count, after):
                return False
        else:
            if self._room() == 0:
                self.end(after)
            if not self._hasher._hash_message(p, total, after):
                return False
        self._hasher._end_batch(last + 1)
        if self._batches == 0:
            self._first, self._position, self._magic = first, position, p[MAGIC_AT]
        self._run_count += run[3] == 0
        run[2] = last
        run[3] += 1
        self._batches += 1
        self._next, self._last_position, self._end_position = last + 1, position, position + total
        return True

    cdef inline bint _note(self, const uint8_t *head, int64_t position, int64_t last, int attributes) noexcept nogil:
        """Note a batch of a transaction that may not be committed. False where that is not possible."""
        cdef int added
        if attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != TRANSACTIONAL_FLAG:
            return True
        if self._uncommitted is None:
            return False
        if last < self._start:
            return True
        added = self._uncommitted.append(be64(head + PRODUCER_ID_AT), position, be64(head),
                                         be32(head + RECORDS_COUNT_AT))
        if added < 0:
            self.failed = True
        return added == 1

    cdef inline bint _hash(self, const uint8_t *head, int64_t total, int64_t left, const uint8_t *after) noexcept nogil:
        """Add the records of a batch. False where they cannot be read: nothing of the sketch is of use then."""
        cdef const uint8_t *p = head + HEADER
        cdef int status = 0
        cdef int64_t room = self._room()
        if left == 1 and room:
            self.failed = not self._hasher._hash_single(head, total, after)
            return not self.failed
        while left > 0:
            room = self._room()
            if room == 0:
                self.end(after)
                room = self._hasher._capacity
            p = self._hasher._hash(head, p, head + total, after, &left, room, D_COMMITTED, &status)
            if status:
                self.failed = True
                return False
        return True

# ---- the last record of each key in two copies

cdef inline bint is_state(int64_t flags) noexcept nogil:
    return flags & (NO_KEY_BIT | CONTROL_BIT) == 0


cdef inline int64_t value_of(const int64_t *row) noexcept nogil:
    return 2 * row[H_OFFSET] + (row[H_FLAGS] & TOMBSTONE_BIT)


cdef inline int64_t served(int64_t value) noexcept nogil:
    """The offset of the record that a key has, -1 for none."""
    return -1 if value < 0 or value & 1 else value >> 1


@cython.final
cdef class KeyStates:
    cdef KeyTable _table
    cdef readonly int64_t bits
    cdef readonly uint64_t prefix

    def __cinit__(self, int64_t most, int64_t bits=0, uint64_t prefix=0):
        if not (1 <= most <= 1 << 30 and 0 <= bits <= 48):
            raise ValueError("most")
        set_up(&self._table, STATE_WIDTH, most)
        self.bits = bits
        self.prefix = prefix

    def __dealloc__(self):
        release(&self._table)

    def __len__(self):
        return self._table.count

    cdef int64_t *_find(self, const int64_t *hashed) noexcept nogil:
        cdef uint64_t slot
        cdef int64_t *row
        if self._table.count == 0:
            return NULL
        slot = first_slot(&self._table, <uint64_t> hashed[H_KEY_HIGH])
        while self._table.slots[slot]:
            row = self._table.rows + <int64_t> (self._table.slots[slot] - 1) * STATE_WIDTH
            if row[S_HIGH] == hashed[H_KEY_HIGH] and row[S_LOW] == hashed[H_KEY_LOW]:
                return row
            slot = (slot + 1) & <uint64_t> self._table.mask
        return NULL

    cdef bint _is_mine(self, uint64_t high) noexcept nogil:
        return self.bits == 0 or high >> (64 - self.bits) == self.prefix

    cdef bint _add(self, const int64_t *hashed, int side) noexcept nogil:
        """Note a record that one copy has alone; False where there is no room."""
        cdef int64_t outcome = hashed[H_FLAGS] >> OUTCOME_SHIFT
        cdef int64_t *row
        if not self._is_mine(<uint64_t> hashed[H_KEY_HIGH]) or outcome == D_ABORTED:
            return True
        row = self._find(hashed)
        if row == NULL:
            row = self._new(hashed)
            if row == NULL:
                return self._table.failed
        if outcome == D_COMMITTED:
            row[S_LEFT + side] = value_of(hashed)
        elif outcome == D_UNDECIDED:
            row[S_FLAGS] |= UNKNOWN_LEFT << side
        return True

    cdef int64_t *_new(self, const int64_t *hashed) noexcept nogil:
        """Add a row; NULL where there is no room or, with `failed`, no memory."""
        cdef int64_t *row
        if self._table.count == self._table.most:
            return NULL
        row = add_row(&self._table, <uint64_t> hashed[H_KEY_HIGH])
        if row == NULL:
            self._table.failed = True
            return NULL
        row[S_LOW] = hashed[H_KEY_LOW]
        row[S_LEFT] = row[S_RIGHT] = -1
        return row

    cdef bint _settle(self, const int64_t *left, const int64_t *right) noexcept nogil:
        """Note a record that both copies have; False where there is no room."""
        cdef int64_t *row = self._find(left)
        cdef const int64_t *hashed
        cdef int side
        cdef int64_t outcome
        if row == NULL:
            if left[H_FLAGS] == right[H_FLAGS] or not self._is_mine(<uint64_t> left[H_KEY_HIGH]):
                return True
            row = self._new(left)  # one is a tombstone, or what became of them is not the same
            if row == NULL:
                return self._table.failed
        for side in range(2):
            hashed = right if side else left
            outcome = hashed[H_FLAGS] >> OUTCOME_SHIFT
            if outcome == D_COMMITTED:
                row[S_LEFT + side] = value_of(hashed)
            elif outcome == D_UNDECIDED:
                row[S_FLAGS] |= UNKNOWN_LEFT << side
        return True

    def merge(self, RecordHasher left, RecordHasher right, *, bint listed, bint states):
        cdef int64_t compared = 0
        cdef const int64_t *a
        cdef const int64_t *b
        cdef list records = [], epochs = [], outcomes = []
        cdef tuple alone = ([], [])
        cdef bint full = False
        while left.at < left.count or right.at < right.count:
            a = left._cells + left.at * HASH_WIDTH if left.at < left.count else NULL
            b = right._cells + right.at * HASH_WIDTH if right.at < right.count else NULL
            if a != NULL and b != NULL and a[H_OFFSET] == b[H_OFFSET]:
                if states and is_state(a[H_FLAGS]) and not self._settle(a, b):
                    full = True
                    break
                compared += 1
                if a[H_HIGH] != b[H_HIGH] or a[H_LOW] != b[H_LOW]:
                    records.append(a[H_OFFSET])
                elif a[H_EPOCH] != b[H_EPOCH]:
                    epochs.append(a[H_OFFSET])
                elif a[H_FLAGS] != b[H_FLAGS]:
                    outcomes.append((a[H_OFFSET], a[H_FLAGS] >> OUTCOME_SHIFT, b[H_FLAGS] >> OUTCOME_SHIFT))
                left.at += 1
                right.at += 1
            elif a != NULL and (b == NULL or a[H_OFFSET] < b[H_OFFSET]):
                if listed or not is_state(a[H_FLAGS]):
                    alone[0].append(left.at)
                elif states and not self._add(a, 0):
                    full = True
                    break
                left.at += 1
            else:
                if listed or not is_state(b[H_FLAGS]):
                    alone[1].append(right.at)
                elif states and not self._add(b, 1):
                    full = True
                    break
                right.at += 1
            if (left.at == left.count and a != NULL) or (right.at == right.count and b != NULL):
                break  # the next records of that copy can come first
        if self._table.failed:
            raise MemoryError
        return compared, records, epochs, outcomes, alone[0], alone[1], full

    def add(self, RecordHasher hasher, int64_t index, int side):
        cdef bint added
        if not 0 <= index < hasher.count or side not in (0, 1):
            raise ValueError("index")
        added = self._add(hasher._cells + index * HASH_WIDTH, side)
        if self._table.failed:
            raise MemoryError
        return added

    def settle(self, RecordHasher hasher):
        cdef const int64_t *row
        while hasher.at < hasher.count:
            row = hasher._cells + hasher.at * HASH_WIDTH
            if is_state(row[H_FLAGS]):
                self._settle(row, row)
            hasher.at += 1

    def purge(self):
        cdef int64_t i, kept = 0
        cdef int64_t *row
        for i in range(self._table.count):
            row = self._table.rows + i * STATE_WIDTH
            if row[S_LEFT] != row[S_RIGHT] or row[S_FLAGS] or row[S_LEFT] < 0:
                memmove(self._table.rows + kept * STATE_WIDTH, row, STATE_WIDTH * 8)
                kept += 1
        self._keep(kept)

    cdef void _keep(self, int64_t count) noexcept nogil:
        self._table.count = count
        memset(self._table.slots, 0, (self._table.mask + 1) * sizeof(int32_t))
        index_rows(&self._table)

    def split(self):
        cdef int64_t i, kept = 0
        cdef int64_t *row
        if self.bits == 48:
            raise MemoryError
        self.bits += 1
        self.prefix *= 2
        for i in range(self._table.count):
            row = self._table.rows + i * STATE_WIDTH
            if self._is_mine(<uint64_t> row[S_HIGH]):
                memmove(self._table.rows + kept * STATE_WIDTH, row, STATE_WIDTH * 8)
                kept += 1
        self._keep(kept)
        return self.bits, self.prefix + 1

    def reset(self):
        cdef int64_t i
        for i in range(self._table.count):
            self._table.rows[i * STATE_WIDTH + S_LEFT] = self._table.rows[i * STATE_WIDTH + S_RIGHT] = -1
            self._table.rows[i * STATE_WIDTH + S_FLAGS] = 0

    def fill(self, RecordHasher hasher, int side):
        cdef const int64_t *hashed
        cdef int64_t *row
        cdef int64_t outcome
        if side not in (0, 1):
            raise ValueError("side")
        while hasher.at < hasher.count:
            hashed = hasher._cells + hasher.at * HASH_WIDTH
            hasher.at += 1
            if not is_state(hashed[H_FLAGS]):
                continue
            row = self._find(hashed)
            if row == NULL:
                continue
            outcome = hashed[H_FLAGS] >> OUTCOME_SHIFT
            if outcome == D_COMMITTED:
                row[S_LEFT + side] = value_of(hashed)
            elif outcome == D_UNDECIDED:
                row[S_FLAGS] |= UNKNOWN_LEFT << side

    def note_beyond(self, RecordHasher hasher, int side):
        cdef int64_t *row
        if side not in (0, 1):
            raise ValueError("side")
        while hasher.at < hasher.count:
            row = self._find(hasher._cells + hasher.at * HASH_WIDTH)
            if row != NULL and is_state((hasher._cells + hasher.at * HASH_WIDTH)[H_FLAGS]):
                row[S_FLAGS] |= BEYOND_LEFT << side
            hasher.at += 1

    def judge(self, bint late_left, bint late_right, int64_t damage_stop, int64_t most):
        cdef int64_t counts[4]
        cdef int64_t i, left, right, low, late = 0, unknown = 0
        cdef int64_t *row
        cdef bint lacks_right
        cdef list samples = []
        memset(counts, 0, sizeof(counts))
        for i in range(self._table.count):
            row = self._table.rows + i * STATE_WIDTH
            left = served(row[S_LEFT])
            right = served(row[S_RIGHT])
            if left == right:
                continue
            lacks_right = row[S_LEFT] > row[S_RIGHT]
            if row[S_FLAGS] & (BEYOND_RIGHT if lacks_right else BEYOND_LEFT):
                continue
            low = row[S_RIGHT] if lacks_right else row[S_LEFT]
            if late_right if lacks_right else late_left:
                late += 1
            elif row[S_FLAGS] & (UNKNOWN_LEFT | UNKNOWN_RIGHT) or damage_stop > (low >> 1):
                unknown += 1
            else:
                counts[0 if right < 0 else 1 if left < 0 else 2 if left < right else 3] += 1
                samples.append((max(left, right), left, right, <uint64_t> row[S_HIGH], <uint64_t> row[S_LOW]))
                if len(samples) >= 2 * most + 1024:
                    samples.sort()
                    del samples[most:]
        samples.sort()
        return (counts[0], counts[1], counts[2], counts[3]), late, unknown, samples[:most]
