# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Counts the batches of a segment: from their headers alone, or as another walk found them.

A batch counts when the fields of its header are in order, and when the bytes after it are a header that is in order
and continues it. Its checksum has to be right, too, where the file ends after the batch, and where offsets are missing
after a complete batch: a wrong length can lead over whole batches. Elsewhere the walk over headers stops;
kdump.stat.scan goes on with a walk that checks checksums.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memset

from kdump.kernel.cursor cimport has_right_crc, whole_batch
from kdump.kernel.histogram cimport (
    Histogram, bucket_of, histogram_add, histogram_add_times, histogram_begin, histogram_end, histogram_fields,
)
from kdump.kernel.layout cimport *
from kdump.kernel.producers cimport (
    ProducerTable, table_add, table_begin, table_end, table_index, table_slot,
)
from kdump.kernel.reading cimport FileBytes, file_bytes, fill, taken_error
from kdump.kernel.records cimport CONTROL_OF_PRODUCER, RecordsDiagnosis, validate_batch
from kdump.kernel.transactions cimport ABORT_END, COMMIT_END, TransactionEnd, TransactionPart, Transactions

import os

# Why a walk over headers returned.
HEADERS_STOPPED, HEADERS_BROKEN, HEADERS_SHRUNK = STOPPED, DAMAGED, NEED
cdef enum:
    PAGE = 4096
    MARKER_BYTES = 128       # an uncompressed batch with a marker is smaller
    LEAST_RECORD = 7         # bytes of a record
    LENGTH_BYTES = 5         # of the length of a record, at most
    MOST_EPOCHS = 65536
    MOST_BUCKETS = 65536
    FIRST_BUCKETS = 64
    # A class of batches: magic, codec, timestamp type, and flags.
    CLASSES = 3 * 8 * 3 * 8
    WRAPPER_CLASSES = 2 * 8 * 3 * 8  # those of magic 0 and 1
    IDEMPOTENT_BATCH = 1
    TRANSACTIONAL_BATCH = 2
    CONTROL_BATCH = 4

cdef struct VolumeCells:
    int64_t batches
    int64_t records          # -1 does not count here: those of wrapper messages are not known
    int64_t bytes
    int64_t unopened

cdef struct TimeBucket:
    int64_t number
    VolumeCells volume

cdef struct LeaderEpoch:
    int64_t epoch
    int64_t first_offset

# What a producer wrote (kdump.stat.producers).
cdef struct ProducerCells:
    int64_t producer_id
    int64_t epoch
    int64_t codecs
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t batches
    int64_t records
    int64_t bytes

# What the walk knows of the batch before.
cdef struct WalkState:
    int64_t known_last
    int32_t known_epoch
    bint has_last
    bint linked              # it lies directly before


cdef inline int32_t marker_of(const uint8_t *p, int64_t total) noexcept nogil:
    """Return the marker of an uncompressed control batch of a producer: 0 abort, 1 commit, -1 none."""
    cdef RecordsDiagnosis v
    validate_batch(p + HEADER, p + total, be32(p + RECORDS_COUNT_AT), be32(p + LAST_OFFSET_DELTA_AT),
                   be64(p + BASE_TIMESTAMP_AT), CONTROL_OF_PRODUCER, &v)
    return v.marker if v.marker == 0 or v.marker == 1 else -1


cdef inline bint has_marker(const BatchHeader *h) noexcept nogil:
    return (h.magic == 2 and h.attributes & (CONTROL_FLAG | CODEC_MASK) == CONTROL_FLAG and h.producer_id >= 0
            and h.count > 0)


cdef inline int64_t delta_of(const BatchHeader *h) noexcept nogil:
    return <int64_t> (<uint64_t> h.last - <uint64_t> h.first)


cdef inline bint is_complete(const BatchHeader *h) noexcept nogil:
    """Return whether the batch does not show that the log cleaner removed records."""
    return h.magic < 2 or (h.count == delta_of(h) + 1 and h.attributes & DELETE_HORIZON_FLAG == 0)


cdef inline bint record_fits(const BatchHeader *h, const uint8_t *p) noexcept nogil:
    """Return false where the only record of an uncompressed batch does not end where the batch ends."""
    cdef int64_t length = 0
    cdef int i
    if h.count != 1 or h.codec or h.magic < 2:
        return True
    for i in range(LENGTH_BYTES):
        length |= <int64_t> (p[HEADER + i] & 0x7f) << 7 * i
        if p[HEADER + i] < 128:
            # A length below zero is odd here, and never fits.
            return length == 2 * (h.total - HEADER - i - 1)
    return False


cdef int by_number(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const TimeBucket *> a).number, other = (<const TimeBucket *> b).number
    return (one > other) - (one < other)


cdef inline void add_volume(VolumeCells *cells, const VolumeCells *other) noexcept nogil:
    cells.batches += other.batches
    cells.records += other.records
    cells.bytes += other.bytes
    cells.unopened += other.unopened


# ---- producers

MOST_PRODUCERS = 1_000_000
assert sizeof(ProducerCells) == 8 * 8


cdef inline uint64_t hash_of(int64_t producer_id) noexcept nogil:
    """Return the hash of a producer id by which samples are drawn (the finalizer of SplitMix64)."""
    cdef uint64_t z = <uint64_t> producer_id + <uint64_t> 0x9E3779B97F4A7C15U
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9U
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBU
    return z ^ (z >> 31)


cdef int by_hash(const void *a, const void *b) noexcept nogil:
    cdef uint64_t one = hash_of((<const ProducerCells *> a).producer_id)
    cdef uint64_t other = hash_of((<const ProducerCells *> b).producer_id)
    return (one > other) - (one < other)


cdef int by_id(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const int64_t *> a)[0], other = (<const int64_t *> b)[0]
    return (one > other) - (one < other)


@cython.final
cdef class ProducerRows:
    """What each producer wrote; see statistics.pyi."""

    cdef ProducerTable table    # of ProducerCells
    cdef int64_t most
    cdef uint64_t highest_hash  # ids with a larger hash are left out

    def __cinit__(self, int64_t most=MOST_PRODUCERS):
        self.most = most
        self.highest_hash = <uint64_t> -1
        if not table_begin(&self.table):
            raise MemoryError

    def __dealloc__(self):
        table_end(&self.table)

    cdef inline ProducerCells *cells(self, int64_t number) noexcept nogil:
        return <ProducerCells *> self.table.rows + number

    cdef ProducerCells *row_of(self, int64_t producer_id) noexcept nogil:
        """Return the row of a producer; NULL where the sample leaves it out, and without memory."""
        cdef int64_t slot = table_slot(&self.table, sizeof(ProducerCells), producer_id)
        cdef ProducerCells *row
        if self.table.slots[slot]:
            return self.cells(self.table.slots[slot] - 1)
        # A quarter more than `most`, so that pruning is rare.
        if self.table.count >= self.most + self.most // 4 and hash_of(producer_id) <= self.highest_hash:
            self.prune()
            slot = table_slot(&self.table, sizeof(ProducerCells), producer_id)
        if hash_of(producer_id) > self.highest_hash:
            return NULL
        row = <ProducerCells *> table_add(&self.table, sizeof(ProducerCells), producer_id, slot)
        if row != NULL:
            row.epoch = row.first_timestamp = row.last_timestamp = -1
        return row

    cdef void prune(self) noexcept nogil:
        """Keep the `most` rows whose ids have the smallest hash."""
        if self.table.count > self.most:
            qsort(self.table.rows, self.table.count, sizeof(ProducerCells), by_hash)
            self.table.count = self.most
            self.highest_hash = hash_of(self.cells(self.most - 1).producer_id)
            table_index(&self.table, sizeof(ProducerCells))

    cdef void lower(self, uint64_t highest_hash) noexcept nogil:
        """Leave out the producers with a larger hash than that of another sample."""
        cdef int64_t i, kept = 0
        self.highest_hash = highest_hash
        for i in range(self.table.count):
            if hash_of(self.cells(i).producer_id) <= highest_hash:
                self.cells(kept)[0] = self.cells(i)[0]
                kept += 1
        self.table.count = kept
        table_index(&self.table, sizeof(ProducerCells))

    cdef void merge_row(self, const ProducerCells *other) noexcept nogil:
        cdef ProducerCells *row = self.row_of(other.producer_id)
        if row == NULL:
            return
        row.epoch = max(row.epoch, other.epoch)
        row.codecs |= other.codecs
        if other.first_timestamp >= 0 and (row.first_timestamp < 0 or other.first_timestamp < row.first_timestamp):
            row.first_timestamp = other.first_timestamp
        row.last_timestamp = max(row.last_timestamp, other.last_timestamp)
        row.batches += other.batches
        row.records += other.records
        row.bytes += other.bytes

    def merge(self, cells, highest_hash=None):
        cdef Py_buffer view
        cdef int64_t i
        if highest_hash is not None and <uint64_t> highest_hash < self.highest_hash:
            self.lower(highest_hash)
        PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                for i in range(view.len // <Py_ssize_t> sizeof(ProducerCells)):
                    self.merge_row(<const ProducerCells *> view.buf + i)
        finally:
            PyBuffer_Release(&view)
        if self.table.failed:
            raise MemoryError

    def packed(self):
        if self.table.failed:
            raise MemoryError
        self.prune()
        if self.table.count:  # without rows there is no memory, and qsort takes no NULL
            qsort(self.table.rows, self.table.count, sizeof(ProducerCells), by_id)
            table_index(&self.table, sizeof(ProducerCells))
        cells = PyBytes_FromStringAndSize(<char *> self.table.rows, self.table.count * sizeof(ProducerCells))
        return cells, None if self.highest_hash == <uint64_t> -1 else self.highest_hash


# ---- batches

@cython.final
cdef class Collector:
    """The numbers of some batches in log order; see statistics.pyi."""

    cdef VolumeCells *_classes
    cdef VolumeCells _run          # batches of _run_class in _bucket that are not counted there yet
    cdef int64_t _run_class
    cdef int64_t _run_kind         # from which the class follows
    cdef int64_t _same_count       # so many batches with so many records are not in _counts yet
    cdef int64_t _same_times
    cdef Histogram _sizes          # without count and sum, which the classes have
    cdef Histogram _counts
    cdef readonly int64_t batches
    cdef int64_t _first_offset
    cdef int64_t _last_offset
    cdef int64_t _largest[3]
    cdef int64_t _smallest
    cdef bint _bound
    cdef bint _compacted
    cdef int64_t _horizons[4]      # of batches with a delete horizon: their number, bytes, the earliest, the latest
    cdef LeaderEpoch *_epochs
    cdef int64_t _epoch_count
    cdef int64_t _epoch_capacity
    cdef int32_t _listed_epoch
    # Time buckets, by number.
    cdef int64_t _bucket_ms
    cdef TimeBucket *_buckets
    cdef int32_t *_slots
    cdef int64_t _bucket_count
    cdef int64_t _bucket_capacity
    cdef int64_t _mask
    cdef int64_t _bucket_from      # timestamps of _bucket
    cdef int64_t _bucket_to
    cdef VolumeCells *_bucket
    cdef VolumeCells _older
    # Producers.
    cdef ProducerRows _rows
    cdef Transactions _transactions
    cdef int64_t _producer_id      # of _row
    cdef ProducerCells *_row
    cdef bint _failed              # out of memory
    # The walk over headers.
    cdef WalkState s
    cdef readonly int64_t reached
    cdef readonly int64_t first_position
    cdef readonly int64_t first_batch_offset
    cdef readonly int64_t first_batch_epoch
    cdef int64_t _base
    cdef int64_t _max_batch_bytes
    cdef bint _stop_at_wrappers

    def __cinit__(self, int64_t base_offset=-1, *, int64_t bucket_ms=3_600_000, int64_t max_batch_bytes=1 << 30,
                  bint stop_at_wrappers=False, ProducerRows producers=None, Transactions transactions=None):
        if bucket_ms <= 0:
            raise ValueError("a bucket has at least a millisecond")
        self._base = base_offset
        self._bucket_ms = bucket_ms
        self._max_batch_bytes = max_batch_bytes
        self._stop_at_wrappers = stop_at_wrappers
        self._rows = producers
        self._transactions = transactions
        self._producer_id = self._run_kind = -1
        self._listed_epoch = -1
        self._first_offset = self._last_offset = self._smallest = self.first_position = -1
        self._largest[0] = self._largest[1] = self._largest[2] = -1
        self.s.known_epoch = -1
        self._mask = 2 * FIRST_BUCKETS - 1
        self._bucket_capacity = FIRST_BUCKETS
        self._classes = <VolumeCells *> calloc(CLASSES, sizeof(VolumeCells))
        self._buckets = <TimeBucket *> calloc(FIRST_BUCKETS, sizeof(TimeBucket))
        self._slots = <int32_t *> calloc(self._mask + 1, sizeof(int32_t))
        if not histogram_begin(&self._sizes) or not histogram_begin(&self._counts) or self._classes == NULL \
                or self._buckets == NULL or self._slots == NULL:
            raise MemoryError
        self._sizes.minimum = INT64_MAX

    def __dealloc__(self):
        histogram_end(&self._sizes)
        histogram_end(&self._counts)
        free(self._classes)
        free(self._buckets)
        free(self._slots)
        free(self._epochs)

    # ---- counting

    cdef void add(self, const BatchHeader *h) noexcept nogil:
        """Count a batch."""
        cdef bint control = h.magic == 2 and h.attributes & CONTROL_FLAG != 0
        cdef bint append_time = h.magic > 0 and h.attributes & LOG_APPEND_TIME != 0
        cdef int64_t kind = <int64_t> h.magic << 40 | <int64_t> (h.producer_id >= 0) << 32 | h.attributes
        if kind != self._run_kind or h.max_timestamp < self._bucket_from or h.max_timestamp >= self._bucket_to:
            self.begin_run(h, kind)
        self._run.batches += 1
        self._run.records += h.count if h.count > 0 else 0
        self._run.bytes += h.total
        self._sizes.counts[bucket_of(h.total)] += 1
        if h.total > self._sizes.maximum:
            self._sizes.maximum = h.total
        if h.total < self._sizes.minimum:
            self._sizes.minimum = h.total
        if not control and h.count >= 0:
            if h.count != self._same_count:
                histogram_add_times(&self._counts, self._same_count, self._same_times)
                self._same_count = h.count
                self._same_times = 0
            self._same_times += 1
        if self.batches == 0:
            self._first_offset = h.first
            self.first_position = h.position
            self.first_batch_offset = h.first
            self.first_batch_epoch = h.epoch
        self.batches += 1
        self._last_offset = h.last
        if h.epoch != self._listed_epoch and h.epoch >= 0:
            self.list_epoch(h.epoch, h.first)
        if h.magic == 2 and (h.count <= delta_of(h) or h.attributes & DELETE_HORIZON_FLAG):
            self._compacted = True
            if h.attributes & DELETE_HORIZON_FLAG:
                self.add_horizon(h)
        if h.max_timestamp > self._largest[h.magic]:
            self._largest[h.magic] = h.max_timestamp
        self.add_first_timestamp(h, append_time)
        if h.producer_id >= 0:
            self.add_producer(h, control)

    cdef void begin_run(self, const BatchHeader *h, int64_t kind) noexcept nogil:
        """Begin a run of batches of one class and one time bucket."""
        cdef int64_t number = (h.magic * 8 + h.codec) * 3
        self.end_run()
        self._run_kind = kind
        number += 2 if h.magic == 0 else 1 if h.attributes & LOG_APPEND_TIME else 0
        number = number * 8 + (h.producer_id >= 0)
        if h.magic == 2:
            number += (TRANSACTIONAL_BATCH if h.attributes & TRANSACTIONAL_FLAG else 0)
            number += (CONTROL_BATCH if h.attributes & CONTROL_FLAG else 0)
        self._run_class = number
        if h.max_timestamp < self._bucket_from or h.max_timestamp >= self._bucket_to:
            self.find_bucket(h.max_timestamp)

    cdef void end_run(self) noexcept nogil:
        """Count the batches of the run."""
        if self._run.batches:
            if self._run_class < WRAPPER_CLASSES and self._run_class // 24 % 8:
                self._run.unopened = self._run.batches
            add_volume(self._classes + self._run_class, &self._run)
            if self._run_class & CONTROL_BATCH:
                self._run.records = 0  # of the class these are control records
            if self._bucket != NULL:
                add_volume(self._bucket, &self._run)
        memset(&self._run, 0, sizeof(VolumeCells))
        histogram_add_times(&self._counts, self._same_count, self._same_times)
        self._same_times = 0

    cdef void add_horizon(self, const BatchHeader *h) noexcept nogil:
        if self._horizons[0] == 0 or h.base_timestamp < self._horizons[2]:
            self._horizons[2] = h.base_timestamp
        if self._horizons[0] == 0 or h.base_timestamp > self._horizons[3]:
            self._horizons[3] = h.base_timestamp
        self._horizons[0] += 1
        self._horizons[1] += h.total

    cdef inline void add_first_timestamp(self, const BatchHeader *h, bint append_time) noexcept nogil:
        cdef int64_t timestamp = h.max_timestamp if append_time else h.base_timestamp
        if h.count == 0:
            return
        if h.magic == 2 and not append_time and h.attributes & DELETE_HORIZON_FLAG:
            self._bound = True
            return
        if timestamp < 0:
            return
        if h.count != 1 and not append_time:
            self._bound = True
        if timestamp < self._smallest or self._smallest < 0:
            self._smallest = timestamp

    cdef void add_producer(self, const BatchHeader *h, bint control) noexcept nogil:
        cdef ProducerCells *row
        cdef TransactionPart part
        cdef TransactionEnd end
        if self._transactions is not None and h.attributes & TRANSACTIONAL_FLAG:
            if not control:
                part.place = part.epoch = 0
                part.batches = part.is_open = 1
                part.records = max(h.count, 0)
                part.bytes = h.total
                part.first_offset = part.last_offset = h.first
                part.first_timestamp = h.max_timestamp \
                    if h.attributes & (LOG_APPEND_TIME | DELETE_HORIZON_FLAG) else h.base_timestamp
                part.last_timestamp = h.max_timestamp
                self._transactions.data(h.producer_id, &part)
            elif h.marker >= 0:
                end.place = end.epoch = 0
                end.offset = h.first
                end.timestamp = h.max_timestamp
                end.kind = COMMIT_END if h.marker == 1 else ABORT_END
                self._transactions.marker(h.producer_id, &end)
        if control or self._rows is None:
            return
        if h.producer_id != self._producer_id:
            self._row = self._rows.row_of(h.producer_id)
            self._producer_id = h.producer_id
        row = self._row
        if row == NULL:
            return
        if h.producer_epoch > row.epoch:
            row.epoch = h.producer_epoch
        row.codecs |= 1 << h.codec
        if h.max_timestamp >= 0:
            if row.first_timestamp < 0 or h.max_timestamp < row.first_timestamp:
                row.first_timestamp = h.max_timestamp
            if h.max_timestamp > row.last_timestamp:
                row.last_timestamp = h.max_timestamp
        row.batches += 1
        row.records += h.count
        row.bytes += h.total

    cdef void list_epoch(self, int32_t epoch, int64_t first) noexcept nogil:
        cdef LeaderEpoch *epochs
        self._listed_epoch = epoch
        if self._epoch_count >= MOST_EPOCHS:
            return
        if self._epoch_count == self._epoch_capacity:
            epochs = <LeaderEpoch *> realloc(self._epochs, (2 * self._epoch_capacity + 8) * sizeof(LeaderEpoch))
            if epochs == NULL:
                self._failed = True
                return
            self._epochs = epochs
            self._epoch_capacity = 2 * self._epoch_capacity + 8
        self._epochs[self._epoch_count].epoch = epoch
        self._epochs[self._epoch_count].first_offset = first
        self._epoch_count += 1

    cdef void find_bucket(self, int64_t timestamp) noexcept nogil:
        """Set the bucket of a timestamp; NULL for a negative one, and without memory."""
        cdef int64_t number = timestamp // self._bucket_ms
        cdef int64_t slot = self.slot_of_bucket(number)
        self._bucket = NULL
        if timestamp < 0:
            self._bucket_from = INT64_MIN
            self._bucket_to = 0
            return
        if self._slots[slot] == 0:
            if self._bucket_count == self._bucket_capacity:
                if not self.widen():
                    self._failed = True
                    return
                slot = self.slot_of_bucket(number)
            memset(self._buckets + self._bucket_count, 0, sizeof(TimeBucket))
            self._buckets[self._bucket_count].number = number
            self._bucket_count += 1
            self._slots[slot] = <int32_t> self._bucket_count
        self._bucket = &self._buckets[self._slots[slot] - 1].volume
        self._bucket_from = number * self._bucket_ms
        self._bucket_to = self._bucket_from + self._bucket_ms \
            if self._bucket_from <= INT64_MAX - self._bucket_ms else INT64_MAX

    cdef inline int64_t slot_of_bucket(self, int64_t number) noexcept nogil:
        cdef int64_t slot = <int64_t> ((<uint64_t> number * <uint64_t> 0x9E3779B97F4A7C15U) >> 20) & self._mask
        while self._slots[slot] and self._buckets[self._slots[slot] - 1].number != number:
            slot = (slot + 1) & self._mask
        return slot

    cdef bint widen(self) noexcept nogil:
        """Make room for more buckets, or sum up the oldest ones; False without memory."""
        cdef TimeBucket *buckets
        cdef int32_t *slots
        cdef int64_t i, capacity = 2 * self._bucket_capacity
        if self._bucket_count >= 2 * MOST_BUCKETS:
            self.sum_up()
        else:
            buckets = <TimeBucket *> realloc(self._buckets, capacity * sizeof(TimeBucket))
            if buckets == NULL:
                return False
            self._buckets = buckets
            slots = <int32_t *> malloc(2 * capacity * sizeof(int32_t))
            if slots == NULL:
                return False
            free(self._slots)
            self._slots = slots
            self._bucket_capacity = capacity
            self._mask = 2 * capacity - 1
        memset(self._slots, 0, (self._mask + 1) * sizeof(int32_t))
        for i in range(self._bucket_count):
            self._slots[self.slot_of_bucket(self._buckets[i].number)] = <int32_t> (i + 1)
        return True

    cdef void sum_up(self) noexcept nogil:
        """Keep the newest buckets, and only the sum of the others."""
        cdef int64_t i, gone = self._bucket_count - MOST_BUCKETS
        if gone <= 0:
            return
        qsort(self._buckets, self._bucket_count, sizeof(TimeBucket), by_number)
        for i in range(self._bucket_count):
            if i < gone:
                self._older.batches += self._buckets[i].volume.batches
                self._older.records += self._buckets[i].volume.records
                self._older.bytes += self._buckets[i].volume.bytes
                self._older.unopened += self._buckets[i].volume.unopened
            else:
                self._buckets[i - gone] = self._buckets[i]
        self._bucket_count = MOST_BUCKETS

    # ---- the walk over headers

    def carry(self, int64_t known_last, bint has_last, int32_t known_epoch, bint linked):
        self.s.known_last = known_last
        self.s.has_last = has_last
        self.s.known_epoch = known_epoch
        self.s.linked = linked

    @property
    def known_last(self):
        return self.s.known_last

    @property
    def has_last(self):
        return bool(self.s.has_last)

    @property
    def known_epoch(self):
        return self.s.known_epoch

    @property
    def linked(self):
        return bool(self.s.linked)

    cdef inline bint in_order(self, const BatchHeader *h, const WalkState *s) noexcept nogil:
        """Return whether the fields of a header are in order, and continue the batch before."""
        cdef int64_t delta = delta_of(h)
        if h.first < 0 or h.last < h.first or h.first < self._base:
            return False
        if self._base >= 0 and h.last - self._base > OFFSET_SPAN:
            return False
        if s.has_last and h.first <= s.known_last:
            return False
        if h.magic < 2:
            if h.attributes & (0xf8 if h.magic == 0 else 0xf0) or h.codec > 3:
                return False
            return not (h.codec and self._stop_at_wrappers)
        if h.attributes & 0xff80 or h.codec > 4 or h.producer_id < -1 or h.count < 0 or h.count > delta + 1:
            return False
        if h.epoch < -1 or (h.epoch >= 0 and s.linked and h.epoch < s.known_epoch):
            return False
        if h.count == 0:
            return h.total == HEADER
        return h.total > HEADER and (h.codec != 0 or h.count * LEAST_RECORD <= h.total - HEADER)

    def headers(self, source, buffer, int64_t position, int64_t stop, int64_t end):
        cdef Py_buffer view
        cdef FileBytes file = file_bytes(source)
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            if view.len < PAGE or position < 0:
                raise ValueError("the buffer is too small, or the position lies outside the file")
            with nogil:
                reason = self.walk_headers(&file, <uint8_t *> view.buf, view.len, position, stop, end)
        finally:
            PyBuffer_Release(&view)
        if file.error != NULL:
            raise taken_error(&file)
        if reason < 0:
            raise OSError(-reason, os.strerror(-reason))
        return reason

    cdef int walk_headers(self, FileBytes *file, uint8_t *buffer, int64_t room, int64_t position, int64_t stop,
                          int64_t end) noexcept nogil:
        """Return why the walk stopped, or a negated errno. `reached` is the first batch that is not counted.

        Of large batches, it reads only the headers. It reads many small batches at once.
        """
        # Two headers and the states after them, in turn: `h` is the next one, `last` the one before. While `pending`,
        # `last` is not counted, and the state that `h` will replace is that before `last`.
        cdef BatchHeader headers[2]
        cdef WalkState states[2]
        cdef BatchHeader *h
        cdef BatchHeader *last
        cdef const uint8_t *p
        cdef int64_t begin = position, filled = 0, usual = 0, total = 0, left, need
        cdef int now = 0, reason = STOPPED
        cdef bint pending = False
        states[1] = self.s
        self.reached = position
        while position < stop or pending:
            h = headers + now
            last = headers + (1 - now)
            left = end - position
            if left == 0:
                if not self.is_proved(file, last, buffer, room):
                    reason = DAMAGED
                    break
                self.add(last)
                pending = False
                self.reached = position
                break
            need = min(left, HEADER + LENGTH_BYTES)
            if position + need > begin + filled:
                begin = position
                filled = fill(file, position, buffer, need, min(left, MARKER_BYTES if usual >= PAGE else room))
                if filled < need:
                    reason = <int> filled if filled < 0 else NEED
                    break
            p = buffer + (position - begin)
            total = 0 if left < LARGEST_MESSAGE_HEADER else whole_batch(p, left, self._max_batch_bytes)
            if total == 0:
                reason = DAMAGED
                break
            parse_header(h, p, total, position)
            if not self.in_order(h, states + (1 - now)) or not record_fits(h, p):
                reason = DAMAGED
                break
            if pending:
                if h.first - 1 > last.last and is_complete(last):
                    filled = 0
                    if not self.is_proved(file, last, buffer, room):
                        reason = DAMAGED
                        break
                self.add(last)
                pending = False
                self.reached = position
            if position >= stop:
                break
            if has_marker(h) and not self.read_marker(h, file, buffer, room, &begin, &filled):
                reason = DAMAGED
                break
            states[now].known_last = h.last
            states[now].has_last = states[now].linked = True
            states[now].known_epoch = h.epoch if h.epoch >= 0 else states[1 - now].known_epoch
            pending = True
            now = 1 - now
            position += total
            usual += (total - usual) >> 2
        self.s = states[now if pending else 1 - now]
        return reason

    cdef bint read_marker(self, BatchHeader *h, FileBytes *file, uint8_t *buffer, int64_t room, int64_t *begin,
                          int64_t *filled) noexcept nogil:
        """Read the marker of a control batch; False where its body holds none."""
        if h.total > room:
            return False
        if h.position + h.total > begin[0] + filled[0]:
            begin[0] = h.position
            filled[0] = fill(file, h.position, buffer, h.total, h.total)
            if filled[0] < h.total:
                filled[0] = 0
                return False
        h.marker = marker_of(buffer + (h.position - begin[0]), h.total)
        return h.marker >= 0

    cdef bint is_proved(self, FileBytes *file, const BatchHeader *h, uint8_t *buffer, int64_t room) noexcept nogil:
        """Return whether the checksum of a batch is right. False for one that is larger than the buffer."""
        return (h.total <= room and fill(file, h.position, buffer, h.total, h.total) == h.total
                and has_right_crc(buffer, h.total))

    # ---- batches that another walk found

    def add_rows(self, rows, Py_ssize_t count, buffer, int64_t origin, Py_ssize_t filled):
        """See statistics.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        cdef const uint8_t *p
        cdef int64_t at
        cdef Py_ssize_t i
        cdef BatchHeader h
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
            try:
                if count < 0 or cells.len < count * BATCH_WIDTH * <Py_ssize_t> sizeof(int64_t) or filled > view.len:
                    raise ValueError("the rows lie outside the buffer")
                for i in range(count):
                    row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                    at = row[POSITION] - origin
                    read_row(&h, row)
                    if has_marker(&h) and 0 <= at and at + h.total <= filled:
                        h.marker = marker_of(<const uint8_t *> view.buf + at, h.total)
                    self.add(&h)
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)

    def opened(self, int64_t magic, int64_t attributes, int64_t timestamp, int64_t records):
        """See statistics.pyi."""
        cdef VolumeCells *cells
        cdef int64_t number = magic * 8 + (attributes & CODEC_MASK)
        if not 0 <= magic <= 1:
            raise ValueError("no wrapper message")
        number = (number * 3 + (2 if magic == 0 else attributes & LOG_APPEND_TIME != 0)) * 8
        self.end_run()
        self._run_kind = -1  # the bucket changes
        cells = self._classes + number
        cells.unopened -= 1
        cells.records += records
        histogram_add(&self._counts, records)
        if magic == 1 and timestamp >= 0:
            self.find_bucket(timestamp)
            if self._bucket != NULL:
                self._bucket.unopened -= 1
                self._bucket.records += records

    # ---- the result

    def classes(self):
        cdef list found = []
        cdef int64_t i
        cdef VolumeCells *cells
        self.check()
        self.end_run()
        for i in range(CLASSES):
            cells = self._classes + i
            if cells.batches:
                found.append((i // 192, i // 24 % 8, i // 8 % 3, i % 8, cells.batches, cells.records, cells.bytes,
                              cells.unopened))
        return found

    def histograms(self):
        cdef int64_t i
        self.end_run()
        self._sizes.count = self.batches
        self._sizes.low = 0
        for i in range(CLASSES):
            self._sizes.low += <uint64_t> self._classes[i].bytes
        return histogram_fields(&self._sizes), histogram_fields(&self._counts)

    def offsets(self):
        return self._first_offset, self._last_offset

    def timestamps(self):
        return self._largest[0], self._largest[1], self._largest[2], self._smallest

    @property
    def smallest_is_bound(self):
        return bool(self._bound)

    @property
    def compacted(self):
        return bool(self._compacted)

    def horizons(self):
        return self._horizons[0], self._horizons[1], self._horizons[2], self._horizons[3]

    def epochs(self):
        cdef int64_t i
        self.check()
        return tuple([(self._epochs[i].epoch, self._epochs[i].first_offset) for i in range(self._epoch_count)])

    def buckets(self):
        cdef int64_t i
        cdef dict found = {}
        cdef VolumeCells *v
        self.check()
        self.end_run()
        self.sum_up()
        self._bucket_from = self._bucket_to = 0  # the buckets moved
        for i in range(self._bucket_count):
            v = &self._buckets[i].volume
            found[self._buckets[i].number] = (v.batches, v.records, v.bytes, v.unopened)
        return found, (self._older.batches, self._older.records, self._older.bytes, self._older.unopened)

    cdef check(self):
        if self._failed:
            raise MemoryError


cdef inline void read_row(BatchHeader *h, const int64_t *row) noexcept nogil:
    """Read the header of a batch from its row (kdump.kernel.scan.BATCH_COLUMNS)."""
    h.position = row[POSITION]
    h.total = row[SIZE]
    h.magic = <uint8_t> row[MAGIC]
    h.last = row[LAST_OFFSET]
    h.first = row[BASE_OFFSET] if h.magic == 2 or row[BASE_OFFSET] != NO_VALUE else h.last
    h.count = row[COUNT] if row[COUNT] != NO_VALUE else -1
    if h.magic == 2 and h.count < 0:
        h.count = 0
    h.epoch = <int32_t> row[EPOCH] if row[EPOCH] != NO_VALUE else -1
    h.attributes = <int32_t> row[ATTRIBUTES]
    h.codec = h.attributes & CODEC_MASK
    h.base_timestamp = row[BASE_TIMESTAMP]
    h.max_timestamp = row[MAX_TIMESTAMP]
    h.producer_id = row[PRODUCER_ID]
    h.producer_epoch = <int32_t> row[PRODUCER_EPOCH]
    h.marker = -1
