# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Sums up the records of batches: sizes, keys, header keys, values, timestamps; see record_statistics.pyi.

kdump.kernel.records has checked the records before. This walk does not judge them, but it never reads past their end.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset

from kdump.kernel.cursor cimport Fields, Header, next_header, next_message, next_record, whole_message
from kdump.kernel.histogram cimport Histogram, histogram_add, histogram_begin, histogram_end, histogram_fields
from kdump.kernel.key_table cimport (
    K_BYTES, K_COUNT, K_LAST_OFFSET, K_LAST_SIZE, K_PARTITIONERS, K_RECORDS, K_SIZE, K_TOMBSTONE, K_VALUE_BYTES,
    NAMED_WIDTH, SAMPLE_WIDTH, W_BYTES, W_OFFSET, W_RECORDS, W_SIZE, WEIGHED_WIDTH, KeyTable, add_sampled, add_weighed,
    clear, find_row, heaviest_rows, key_hash, partitioner_hashes, prefetch_row, prefetch_slot, release, set_up,
    smallest_rows, write_name,
)
from kdump.kernel.layout cimport *
from kdump.kernel.records cimport Message

from kdump.kernel.scan import BATCH_COLUMNS

SHAPES = ("null", "empty", "json", "schema", "text", "binary")
PIECE_BYTES = PIECE
SHAPE_BYTES = LOOKED_AT
LARGEST_RECORDS = LARGEST
assert len(BATCH_COLUMNS) == BATCH_WIDTH
cdef enum:
    PIECE_BITS = 28
    PIECE = 1 << PIECE_BITS
    LOOKED_AT = 1024
    LARGEST = 20
    SCHEMA_HEADER = 5   # of a value in Confluent's wire format: 0, and the id of its schema, 4 bytes
    SHAPE_NULL = 0
    SHAPE_EMPTY
    SHAPE_JSON
    SHAPE_SCHEMA
    SHAPE_TEXT
    SHAPE_BINARY
    SHAPE_COUNT
    CODECS = 5
    PENDING = 32
# A reader stops at a batch with one of these bits, or with a negative number of records.
cdef int64_t UNREADABLE = S_CODEC | S_STRUCTURE | S_WRAPPER | S_CRC | S_MAGIC | S_LIMIT
NOT_READABLE = UNREADABLE


cdef struct Tally:
    int64_t batches
    int64_t unread
    int64_t records
    int64_t bytes
    int64_t keyed_records
    int64_t keyed_bytes
    uint64_t squares_low     # the sum of the squares of the sizes of records with a key: 128 bits
    uint64_t squares_high
    int64_t null_keys
    int64_t empty_keys
    int64_t tombstones
    int64_t tombstone_bytes
    int64_t keyed_tombstones
    int64_t keyed_tombstone_bytes
    int64_t headers
    int64_t header_records
    # Of the records with a timestamp.
    int64_t timed
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t smallest_timestamp
    int64_t largest_timestamp
    int64_t steps_back
    int64_t largest_step_back


cdef struct CodecTotal:
    int64_t batches
    int64_t records
    int64_t stored_bytes
    int64_t uncompressed_bytes


cdef struct ShapeTotal:
    int64_t records
    int64_t bytes


cdef struct Large:
    int64_t size
    int64_t offset
    int64_t position
    int64_t timestamp
    int64_t key_size
    int64_t value_size


cdef struct Found:
    int64_t size
    int64_t offset
    int64_t position
    int64_t timestamp
    int64_t key_size     # -1: null
    int64_t value_size   # -1: null
    const uint8_t *key
    const uint8_t *value


cdef struct PendingKey:
    uint64_t hash
    const uint8_t *key
    int64_t key_size
    int64_t size
    int64_t offset
    bint tombstone


cdef inline bint is_space(uint8_t byte) noexcept nogil:
    return byte == 0x20 or byte == 0x0a or byte == 0x0d or byte == 0x09


cdef bint is_text(const uint8_t *p, const uint8_t *end, bint whole) noexcept nogil:
    """Return whether the bytes are UTF-8 without control characters. Not `whole`: a character can end after `end`."""
    cdef uint64_t word, high = <uint64_t> 0x8080808080808080U, space = <uint64_t> 0x2020202020202020U
    cdef uint8_t byte, low
    cdef int more
    while p < end:
        if end - p >= 8:
            memcpy(&word, p, 8)
            # Eight characters of ASCII, none below the space.
            if not (word & high) and not ((word - space) & ~word & high):
                p += 8
                continue
        byte = p[0]
        p += 1
        if byte < 0x80:
            if byte < 0x20 and not is_space(byte):
                return False
            continue
        low = 0x80
        if byte < 0xc2 or byte > 0xf4:
            return False
        more = 1 if byte < 0xe0 else 2 if byte < 0xf0 else 3
        if p >= end:
            return not whole
        # No overlong form, no surrogate, nothing above U+10FFFF.
        if ((byte == 0xe0 and p[0] < 0xa0) or (byte == 0xed and p[0] > 0x9f) or (byte == 0xf0 and p[0] < 0x90)
                or (byte == 0xf4 and p[0] > 0x8f)):
            return False
        while more:
            if p >= end:
                return not whole
            if p[0] & 0xc0 != low:
                return False
            p += 1
            more -= 1
    return True


cdef int shape_of(const uint8_t *value, int64_t size, bint schemas) noexcept nogil:
    cdef const uint8_t *end = value + size
    cdef const uint8_t *p = value
    if size <= 0:
        return SHAPE_NULL if size < 0 else SHAPE_EMPTY
    if p[0] == 0:
        return SHAPE_SCHEMA if schemas and size >= SCHEMA_HEADER else SHAPE_BINARY
    if not is_text(p, p + min(size, LOOKED_AT), size <= LOOKED_AT):
        return SHAPE_BINARY
    while p < end and is_space(p[0]):
        p += 1
    while end > p and is_space((end - 1)[0]):
        end -= 1
    if end - p >= 2 and ((p[0] == c'{' and (end - 1)[0] == c'}') or (p[0] == c'[' and (end - 1)[0] == c']')):
        return SHAPE_JSON
    return SHAPE_TEXT


@cython.final
cdef class RecordCollector:
    """Sums up the records of one range of a log; see record_statistics.pyi."""

    cdef Tally t
    cdef CodecTotal _codecs[CODECS]
    cdef ShapeTotal _shapes[SHAPE_COUNT]
    cdef Large _largest[LARGEST]
    cdef int64_t _large_count
    cdef Histogram _key_sizes
    cdef Histogram _value_sizes
    cdef KeyTable _sample
    cdef KeyTable _header_keys
    cdef KeyTable _schemas
    cdef KeyTable _heavy
    cdef PendingKey _pending[PENDING]
    cdef int64_t _pending_count
    cdef int64_t _sample_most
    cdef int64_t _census_most
    cdef int64_t _heavy_most
    cdef int64_t _piece
    cdef list _pieces
    cdef bint _confluent

    def __cinit__(self, *, int64_t sample=65536, int64_t census=1024, int64_t heavy=1024, bint confluent=True):
        if not (2 <= sample <= 1 << 24 and 1 <= census <= 1 << 24 and 1 <= heavy <= 1 << 24):
            raise ValueError("the size of a table")
        self._confluent = confluent
        self._sample_most = sample
        self._census_most = census
        self._heavy_most = heavy
        # A full table drops a fifth of its rows, so that it is not searched for the smallest hashes at each new key.
        set_up(&self._sample, SAMPLE_WIDTH, (sample + 3) // 4 * 5)
        set_up(&self._header_keys, NAMED_WIDTH, (census + 3) // 4 * 5)
        set_up(&self._schemas, NAMED_WIDTH, (census + 3) // 4 * 5)
        set_up(&self._heavy, WEIGHED_WIDTH, 4 * heavy)
        self._piece = -1
        self._pieces = []
        self.t.first_timestamp = self.t.last_timestamp = self.t.smallest_timestamp = self.t.largest_timestamp = -1
        if not histogram_begin(&self._key_sizes) or not histogram_begin(&self._value_sizes):
            raise MemoryError
        self.check_memory()

    def __dealloc__(self):
        release(&self._sample)
        release(&self._header_keys)
        release(&self._schemas)
        release(&self._heavy)
        histogram_end(&self._key_sizes)
        histogram_end(&self._value_sizes)

    # ---- batches

    def add_rows(self, rows, Py_ssize_t start, Py_ssize_t count, window, int64_t origin, int64_t filled):
        """See record_statistics.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        cdef int64_t at, skip, i = start
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
            try:
                if start < 0 or count > cells.len // (BATCH_WIDTH * 8) or filled > view.len:
                    raise ValueError("the rows lie outside the buffer")
                while i < count:
                    row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                    at = row[POSITION] - origin
                    if is_unreadable(row):
                        self.t.unread += 1
                    elif row[SUSPECT] & S_OPEN:
                        break
                    elif is_data(row):
                        if at < 0 or row[SIZE] < 0 or row[SIZE] > filled - at:
                            break
                        skip = HEADER if row[MAGIC] == 2 else 0
                        if skip > row[SIZE]:
                            break
                        self.turn_to(row[POSITION])
                        self.collect(row, <const uint8_t *> view.buf + at + skip,
                                     <const uint8_t *> view.buf + at + row[SIZE])
                    i += 1
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        self.check_memory()
        return i

    def add_opened(self, rows, Py_ssize_t index, payload):
        """See record_statistics.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            if index < 0 or index >= cells.len // (BATCH_WIDTH * 8):
                raise IndexError("no such row")
            row = <const int64_t *> cells.buf + index * BATCH_WIDTH
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            try:
                if is_unreadable(row):
                    self.t.unread += 1
                elif is_data(row):
                    self.turn_to(row[POSITION])
                    self.collect(row, <const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len)
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        self.check_memory()

    def add_unread(self):
        """See record_statistics.pyi."""
        self.t.unread += 1

    cdef int check_memory(self) except -1:
        if self._sample.failed or self._header_keys.failed or self._schemas.failed or self._heavy.failed:
            raise MemoryError
        return 0

    cdef int turn_to(self, int64_t position) except -1:
        """Begin the sketch of the next piece of the segment where the batch is in it."""
        cdef int64_t piece = position >> PIECE_BITS
        if piece != self._piece:
            self.end_piece()
            self._piece = piece
        return 0

    cdef int end_piece(self) except -1:
        if self._heavy.count:
            self._pieces.append((
                heaviest_rows(&self._heavy, W_RECORDS, self._heavy.error, self._heavy_most),
                heaviest_rows(&self._heavy, W_BYTES, self._heavy.bytes_error, self._heavy_most),
            ))
            clear(&self._heavy)
        return 0

    cdef void collect(self, const int64_t *row, const uint8_t *p, const uint8_t *end) noexcept nogil:
        cdef int64_t codec = row[ATTRIBUTES] & CODEC_MASK
        cdef int64_t records = self.t.records
        cdef CodecTotal *total = &self._codecs[codec if codec < CODECS else 0]
        if row[MAGIC] == 2:
            self.collect_records(row, p, end)
        else:
            self.collect_messages(row, p, end)
        self.take_pending()  # the keys are in the buffer of this batch
        self.t.batches += 1
        total.batches += 1
        total.records += self.t.records - records
        total.uncompressed_bytes += end - p
        total.stored_bytes += row[PAYLOAD_SIZE] if codec else end - p

    cdef void collect_records(self, const int64_t *row, const uint8_t *p, const uint8_t *end) noexcept nogil:
        cdef Found f
        cdef Fields r
        cdef const uint8_t *begin
        cdef const uint8_t *stop
        cdef int64_t i
        cdef int status = 0
        cdef bint append_time = row[ATTRIBUTES] & LOG_APPEND_TIME != 0, odd = False
        f.position = row[POSITION]
        for i in range(row[COUNT]):
            begin = p
            stop = next_record(&p, end, &r, &status, &odd)
            if stop == NULL:
                break
            if r.header_count:
                self.t.header_records += 1
                self.t.headers += r.header_count
                self.collect_headers(r.headers, stop, r.header_count)
            f.size = stop - begin
            f.key, f.key_size = r.key, r.key_size
            f.value, f.value_size = r.value, r.value_size
            f.offset = <int64_t> (<uint64_t> row[BASE_OFFSET] + <uint64_t> <int64_t> r.offset_delta)
            f.timestamp = row[MAX_TIMESTAMP] if append_time \
                else <int64_t> (<uint64_t> row[BASE_TIMESTAMP] + <uint64_t> r.timestamp_delta)
            self.take(&f)

    cdef void collect_headers(self, const uint8_t *p, const uint8_t *end, int64_t count) noexcept nogil:
        cdef Header h
        cdef int64_t i
        for i in range(count):
            p = next_header(p, end, &h)
            self.count_name(&self._header_keys, h.key, h.key_size, max(h.value_size, 0))

    cdef inline void count_name(self, KeyTable *table, const uint8_t *name, int64_t size,
                                int64_t value_bytes) noexcept nogil:
        cdef uint64_t hash = key_hash(name, size)
        cdef int64_t *row
        if hash > table.limit:
            return
        row = find_row(table, hash)
        if row == NULL:
            row = add_sampled(table, hash)
            if row == NULL:
                return
            write_name(row + K_SIZE, name, size)
        row[K_COUNT] += 1
        row[K_VALUE_BYTES] += value_bytes

    cdef void collect_messages(self, const int64_t *row, const uint8_t *p, const uint8_t *end) noexcept nogil:
        """Messages of magic 0 and 1: one of the log, or those inside a wrapper message (kdump.format.legacy)."""
        cdef Message m
        cdef Found f
        cdef const uint8_t *last = p
        cdef const uint8_t *begin
        cdef const uint8_t *q
        cdef int64_t total, shift = 0
        cdef bint wrapped = row[ATTRIBUTES] & CODEC_MASK != 0
        cdef bint append_time = wrapped and row[MAGIC] == 1 and row[ATTRIBUTES] & LOG_APPEND_TIME != 0
        if wrapped and row[MAGIC] == 1 and row[LAST_OFFSET] != 0:
            # The wrapper has the offset of its last message; those inside count from the first one.
            q = p
            total = whole_message(q, end)
            while total:
                last = q
                q += total
                total = whole_message(q, end)
            if end - last >= LOG_OVERHEAD:
                shift = <int64_t> (<uint64_t> row[LAST_OFFSET] - <uint64_t> be64(last))
        f.position = row[POSITION]
        while True:
            begin = p
            f.size = next_message(&p, end, &m)
            if f.size == 0:
                break
            f.offset = <int64_t> (<uint64_t> be64(begin) + <uint64_t> shift)
            f.timestamp = row[MAX_TIMESTAMP] if append_time and m.magic == 1 else m.timestamp
            f.key, f.key_size = begin + m.key_at, m.key_size
            f.value, f.value_size = begin + m.value_at, m.value_size
            self.take(&f)

    # ---- one record

    cdef void take(self, const Found *f) noexcept nogil:
        cdef Tally *t = &self.t
        cdef uint64_t square
        cdef int shape
        t.records += 1
        t.bytes += f.size
        if f.timestamp >= 0:
            self.take_timestamp(f.timestamp)
        if f.value_size >= 0:
            histogram_add(&self._value_sizes, f.value_size)
        else:
            t.tombstones += 1
            t.tombstone_bytes += f.size
        shape = shape_of(f.value, f.value_size, self._confluent)
        self._shapes[shape].records += 1
        if f.value_size > 0:
            self._shapes[shape].bytes += f.value_size
            if shape == SHAPE_SCHEMA:
                self.count_name(&self._schemas, f.value + 1, SCHEMA_HEADER - 1, f.value_size)
        if self._large_count < LARGEST or f.size >= self._largest[LARGEST - 1].size:
            self.take_large(f)
        if f.key_size < 0:
            t.null_keys += 1
            return
        if f.key_size == 0:
            t.empty_keys += 1
        histogram_add(&self._key_sizes, f.key_size)
        t.keyed_records += 1
        t.keyed_bytes += f.size
        square = <uint64_t> f.size * <uint64_t> f.size
        t.squares_low += square
        t.squares_high += t.squares_low < square
        if f.value_size < 0:
            t.keyed_tombstones += 1
            t.keyed_tombstone_bytes += f.size
        self.add_pending(f)

    cdef inline void take_timestamp(self, int64_t timestamp) noexcept nogil:
        cdef Tally *t = &self.t
        if t.timed == 0:
            t.first_timestamp = t.last_timestamp = t.smallest_timestamp = t.largest_timestamp = timestamp
        if timestamp < t.last_timestamp:
            t.steps_back += 1
        if timestamp >= t.largest_timestamp:
            t.largest_timestamp = timestamp
        else:
            if t.largest_timestamp - timestamp > t.largest_step_back:
                t.largest_step_back = t.largest_timestamp - timestamp
            if timestamp < t.smallest_timestamp:
                t.smallest_timestamp = timestamp
        t.last_timestamp = timestamp
        t.timed += 1

    cdef void take_large(self, const Found *f) noexcept nogil:
        """Insert a record into the largest ones. Of records of one size, those with the lower offsets stay."""
        cdef int64_t i = self._large_count
        while i > 0 and (self._largest[i - 1].size < f.size
                         or (self._largest[i - 1].size == f.size and self._largest[i - 1].offset > f.offset)):
            i -= 1
        if i == LARGEST:
            return
        if self._large_count < LARGEST:
            self._large_count += 1
        memmove(&self._largest[i + 1], &self._largest[i], (self._large_count - 1 - i) * sizeof(Large))
        self._largest[i] = Large(f.size, f.offset, f.position, f.timestamp, max(f.key_size, <int64_t> -1),
                                 max(f.value_size, <int64_t> -1))

    # Most keys are not in the cache of the CPU. So the keys of some records wait until their rows are.

    cdef inline void add_pending(self, const Found *f) noexcept nogil:
        cdef PendingKey *k
        if self._pending_count == PENDING:
            self.take_pending()
        k = &self._pending[self._pending_count]
        self._pending_count += 1
        k.hash = key_hash(f.key, f.key_size)
        k.key = f.key
        k.key_size = f.key_size
        k.size = f.size
        k.offset = f.offset
        k.tombstone = f.value_size < 0
        if k.hash <= self._sample.limit:
            prefetch_slot(&self._sample, k.hash)
        prefetch_slot(&self._heavy, k.hash)

    cdef void take_pending(self) noexcept nogil:
        cdef int64_t i
        for i in range(self._pending_count):
            if self._pending[i].hash <= self._sample.limit:
                prefetch_row(&self._sample, self._pending[i].hash)
            prefetch_row(&self._heavy, self._pending[i].hash)
        for i in range(self._pending_count):
            self.take_key(&self._pending[i])
        self._pending_count = 0

    cdef inline void take_key(self, const PendingKey *k) noexcept nogil:
        cdef int64_t *row
        if k.hash <= self._sample.limit:
            row = find_row(&self._sample, k.hash)
            if row == NULL:
                row = add_sampled(&self._sample, k.hash)
                if row != NULL:
                    row[K_LAST_OFFSET] = INT64_MIN
                    row[K_PARTITIONERS] = partitioner_hashes(k.key, k.key_size)
            if row != NULL:
                row[K_RECORDS] += 1
                row[K_BYTES] += k.size
                if k.offset >= row[K_LAST_OFFSET]:
                    row[K_LAST_OFFSET] = k.offset
                    row[K_LAST_SIZE] = k.size
                    row[K_TOMBSTONE] = k.tombstone
        row = find_row(&self._heavy, k.hash)
        if row == NULL:
            row = add_weighed(&self._heavy, k.hash)
            if row == NULL:
                return
            write_name(row + W_SIZE, k.key, k.key_size)
            row[W_OFFSET] = k.offset
        row[W_RECORDS] += 1
        row[W_BYTES] += k.size

    # ---- the results

    @property
    def unread(self):
        """See record_statistics.pyi."""
        return self.t.unread

    def tally(self):
        """See record_statistics.pyi."""
        cdef dict fields = self.t
        fields["keyed_squares"] = (fields.pop("squares_high") << 64) + fields.pop("squares_low")
        return fields

    def codecs(self):
        """See record_statistics.pyi."""
        return tuple([
            (total.batches, total.records, total.stored_bytes, total.uncompressed_bytes)
            for total in self._codecs[:CODECS]
        ])

    def shapes(self):
        """See record_statistics.pyi."""
        return tuple([(total.records, total.bytes) for total in self._shapes[:SHAPE_COUNT]])

    def largest(self):
        """See record_statistics.pyi."""
        return tuple([
            (large.size, large.offset, large.position, large.timestamp, large.key_size, large.value_size)
            for large in self._largest[:self._large_count]
        ])

    def key_sizes(self):
        """See record_statistics.pyi."""
        return histogram_fields(&self._key_sizes)

    def value_sizes(self):
        """See record_statistics.pyi."""
        return histogram_fields(&self._value_sizes)

    def header_keys(self):
        """See record_statistics.pyi."""
        return smallest_rows(&self._header_keys, self._census_most)

    def schemas(self):
        """See record_statistics.pyi."""
        return smallest_rows(&self._schemas, self._census_most)

    def sample(self):
        """See record_statistics.pyi."""
        return smallest_rows(&self._sample, self._sample_most)

    def pieces(self):
        """See record_statistics.pyi."""
        self.end_piece()
        self._piece = -1
        return list(self._pieces)


cdef inline bint is_unreadable(const int64_t *row) noexcept nogil:
    """Return whether Kafka's reader refuses the records of a batch, as it does a number of records below zero."""
    return row[SUSPECT] & UNREADABLE != 0 or (row[MAGIC] == 2 and row[COUNT] < 0)


cdef inline bint is_data(const int64_t *row) noexcept nogil:
    """Return whether a batch holds the records of producers, and not the markers of a broker."""
    return row[MAGIC] < 2 or row[ATTRIBUTES] & CONTROL_FLAG == 0

