# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Fills the buffers of columns, as Arrow lays them out, with the records of batches; see columns.pyi.

kdump.kernel.records has the walk over records that this module shares. A batch goes in whole or not at all: whether
there is room for it is decided before the first byte is written. First by a bound from the size of the payload; where
that does not fit, by what the records take. A batch that is larger than the buffers goes in by parts, and the same is
decided for each part.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kdump.kernel.cursor cimport Fields, Header, next_header, next_record
from kdump.kernel.layout cimport *
from kdump.kernel.records cimport (
    LEFTOVER, Message, MessageScan, parse_message, scan_messages,
)
from kdump.kernel.transactions cimport D_ABORTED, D_COMMITTED, DecisionTable, Transactions, decision

from kdump.kernel.scan import BATCH_COLUMNS

COLUMNS = (
    "key", "value", "headers", "offset", "timestamp", "timestamp_type", "timestamp_ms", "position", "batch_offset",
    "sequence", "producer_id", "producer_epoch", "partition_leader_epoch", "magic", "codec", "transactional", "control",
    "size",
)
BUFFERS = (3, 3, 7, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1)
SPARE_BYTES = SPARE
ADDED, NO_ROOM, COMPRESSED, BROKEN = range(4)
cdef enum:
    C_KEY = 0
    C_VALUE
    C_HEADERS
    C_OFFSET
    C_TIMESTAMP
    C_TIMESTAMP_TYPE
    C_TIMESTAMP_MS
    C_POSITION
    C_BATCH_OFFSET
    C_SEQUENCE
    C_PRODUCER_ID
    C_PRODUCER_EPOCH
    C_LEADER_EPOCH
    C_MAGIC
    C_CODEC
    C_TRANSACTIONAL
    C_CONTROL
    C_SIZE
    C_COUNT

    D_ADDED = 0
    D_NO_ROOM
    D_COMPRESSED
    D_BROKEN

    SPARE = 64            # bytes after the data of a column that a copy may write
    STEP = 64             # a copy of a short field writes so many bytes at a time
    SHORT_FIELD = 128
    SMALLEST_RECORD = 7   # a length, attributes, two deltas, two sizes, a number of headers
    VIEWS = 32
    REPLACEMENT = 3       # the bytes of U+FFFD
cdef int64_t LARGEST_MS = INT64_MAX // 1000
# No field of such a batch can be trusted.
cdef int64_t NOT_A_BATCH = S_CRC | S_MAGIC | S_LIMIT
assert len(COLUMNS) == len(BUFFERS) == C_COUNT and sum(BUFFERS) <= VIEWS and len(BATCH_COLUMNS) == BATCH_WIDTH \
    and COLUMNS.index("size") == C_SIZE


# A column of bytes: `valid` has a bit a row, row n is data[offsets[n]:offsets[n + 1]].
cdef struct Bytes:
    uint8_t *valid
    int32_t *offsets   # NULL: the column is not wanted
    uint8_t *data
    int64_t at
    int64_t room
    int64_t nulls


# What a batch takes at most.
cdef struct Needs:
    int64_t rows
    int64_t key_bytes
    int64_t value_bytes
    int64_t headers
    int64_t header_key_bytes
    int64_t header_value_bytes


cdef inline void copy_field(uint8_t *q, const uint8_t *p, int64_t size, const uint8_t *readable) noexcept nogil:
    """Copy `size` bytes. A short field is copied in steps, up to STEP - 1 bytes further than it goes."""
    cdef int64_t i = 0
    if size <= SHORT_FIELD and readable - p >= size + STEP:
        while i < size:
            memcpy(q + i, p + i, STEP)
            i += STEP
    else:
        memcpy(q, p, size)


cdef inline void clear_bit(uint8_t *bits, int64_t i) noexcept nogil:
    bits[i >> 3] &= ~(1 << (i & 7))


cdef inline void append(Bytes *c, int64_t row, const uint8_t *p, int64_t size, const uint8_t *readable) noexcept nogil:
    """Append a field; a negative size is null."""
    if size > 0:
        copy_field(c.data + c.at, p, size, readable)
        c.at += size
    elif size < 0:
        clear_bit(c.valid, row)
        c.nulls += 1
    c.offsets[row + 1] = <int32_t> c.at


cdef inline int sequence_of(int64_t base_sequence, int32_t delta) noexcept nogil:
    """Return the sequence `delta` records later in Java's 32 bits (DefaultRecordBatch.incrementSequence)."""
    cdef uint32_t sequence = <uint32_t> base_sequence
    if <int32_t> sequence < 0:
        return -1
    if <int32_t> sequence > <int32_t> (<uint32_t> INT32_MAX - <uint32_t> delta):
        return <int32_t> (sequence + <uint32_t> delta - <uint32_t> 0x80000000U)
    return <int32_t> (sequence + <uint32_t> delta)


cdef int64_t write_text(uint8_t *q, const uint8_t *p, int64_t size) noexcept nogil:
    """Copy UTF-8, with U+FFFD for each longest malformed part, as Java's decoder; returns the bytes written.

    Writes up to three times `size` bytes.
    """
    cdef int64_t i = 0, at = 0
    cdef int more, k
    cdef uint8_t byte, low, high
    while i < size:
        byte = p[i]
        if byte < 0x80:
            q[at] = byte
            at += 1
            i += 1
            continue
        low, high = 0x80, 0xbf
        more = 0
        if 0xc2 <= byte <= 0xdf:
            more = 1
        elif 0xe0 <= byte <= 0xef:
            more = 2
            if byte == 0xe0:
                low = 0xa0
        elif 0xf0 <= byte <= 0xf4:
            more = 3
            if byte == 0xf0:
                low = 0x90
            elif byte == 0xf4:
                high = 0x8f
        k = 1
        while k <= more and i + k < size and low <= p[i + k] <= high:
            k += 1
            low, high = 0x80, 0xbf
        # Java's decoder takes the three bytes of a surrogate, or the first two, for one malformed part.
        if more and k > more and not (byte == 0xed and p[i + 1] >= 0xa0):
            memcpy(q + at, p + i, k)
            at += k
        else:
            q[at], q[at + 1], q[at + 2] = 0xef, 0xbf, 0xbd
            at += REPLACEMENT
        i += k
    return at


cdef inline bint is_ascii(const uint8_t *p, int64_t size) noexcept nogil:
    cdef int64_t i = 0
    cdef uint64_t word, bits = 0
    while i + 8 <= size:
        memcpy(&word, p + i, 8)
        bits |= word
        i += 8
    while i < size:
        bits |= p[i]
        i += 1
    return bits & <uint64_t> 0x8080808080808080U == 0


cdef class Columns:
    """See columns.pyi."""

    cdef readonly int64_t rows, status, need_rows, need_headers, need_bytes, unfit_timestamps
    cdef readonly int64_t headers, aborted, undecided, first_undecided, misplaced
    cdef readonly int stopped
    cdef int64_t _before  # the offset (magic 2: its delta) of the record before, in the same batch
    cdef Transactions _transactions
    cdef const DecisionTable *_table
    cdef bint _control, _selects
    cdef int64_t _lowest, _highest, _earliest, _latest
    cdef int64_t _row_room, _header_room, _with_headers
    cdef Bytes _key, _value, _header_key, _header_value
    cdef int32_t *_header_offsets
    cdef uint8_t *_cells[C_COUNT]
    cdef uint8_t *_valid[C_COUNT]
    cdef int64_t _nulls[C_COUNT]
    cdef Py_buffer _views[VIEWS]
    cdef int _view_count
    cdef tuple _columns

    def __cinit__(self, names, *, int64_t lowest=INT64_MIN, int64_t highest=INT64_MAX, int64_t earliest=INT64_MIN,
                  int64_t latest=INT64_MAX, bint control=False, Transactions transactions=None):
        self._columns = tuple([COLUMNS.index(name) for name in names])
        if len(set(self._columns)) < len(self._columns):
            raise ValueError("a column comes twice")
        self._earliest, self._latest = earliest, latest
        self.choose_offsets(lowest, highest)
        self._control = control
        self._transactions = transactions
        self._table = NULL if transactions is None else &transactions.table
        self.first_undecided = -1

    def __dealloc__(self):
        self.release()

    def choose_offsets(self, int64_t lowest, int64_t highest):
        """See columns.pyi."""
        self._lowest, self._highest = lowest, highest
        self._selects = lowest > INT64_MIN or highest < INT64_MAX or self._earliest > INT64_MIN \
            or self._latest < INT64_MAX

    cdef void release(self) noexcept:
        while self._view_count:
            self._view_count -= 1
            PyBuffer_Release(&self._views[self._view_count])
        self._row_room = self._header_room = 0

    # ---- the buffers

    def begin(self, buffers):
        """See columns.pyi."""
        cdef int64_t room = INT32_MAX
        cdef int column, i
        self.release()
        if len(buffers) != len(self._columns):
            raise ValueError("a list of buffers for each column")
        memset(self._cells, 0, sizeof(self._cells))
        memset(self._valid, 0, sizeof(self._valid))
        memset(self._nulls, 0, sizeof(self._nulls))
        memset(&self._key, 0, sizeof(Bytes))
        memset(&self._value, 0, sizeof(Bytes))
        memset(&self._header_key, 0, sizeof(Bytes))
        memset(&self._header_value, 0, sizeof(Bytes))
        self._header_offsets = NULL
        self.rows = self.headers = self._with_headers = self.status = self.unfit_timestamps = 0
        for column, several in zip(self._columns, buffers):
            if len(several) != BUFFERS[column]:
                raise ValueError(f"{BUFFERS[column]} buffers for {COLUMNS[column]}")
            i = self._view_count
            for buffer in several:
                PyObject_GetBuffer(buffer, &self._views[self._view_count], PyBUF_WRITABLE)
                self._view_count += 1
            room = min(room, self.set_column(column, i))
        self._row_room = max(room, <int64_t> 0)
        return self._row_room

    cdef int64_t set_column(self, int column, int i) except? -1:
        """Set the pointers of a column, whose first buffer is view `i`; returns its room in rows."""
        cdef Py_buffer *v = &self._views[i]
        cdef int64_t room
        if column == C_KEY or column == C_VALUE:
            return set_bytes(&self._key if column == C_KEY else &self._value, v, v + 1, v + 2)
        if column == C_HEADERS:
            self._valid[C_HEADERS] = <uint8_t *> v.buf
            memset(v.buf, 0, v.len)  # few records have headers
            self._header_offsets = <int32_t *> v[1].buf
            room = min(8 * <int64_t> v.len, <int64_t> v[1].len // 4 - 1)
            if room >= 0:
                self._header_offsets[0] = 0
            self._header_room = max(<int64_t> 0, min(set_bytes(&self._header_key, NULL, v + 2, v + 3),
                                                     set_bytes(&self._header_value, v + 4, v + 5, v + 6)))
            return room
        if column == C_TIMESTAMP or column == C_LEADER_EPOCH:
            self._valid[column] = begin_bits(v)
            self._cells[column] = <uint8_t *> v[1].buf
            return min(8 * <int64_t> v.len, <int64_t> v[1].len // width_of(column))
        self._cells[column] = <uint8_t *> v.buf
        if column == C_TRANSACTIONAL or column == C_CONTROL:
            memset(v.buf, 0, v.len)
            return 8 * <int64_t> v.len
        return <int64_t> v.len // width_of(column)

    def end(self):
        """See columns.pyi."""
        cdef int column
        self.release()
        found = []
        for column in self._columns:
            if column == C_KEY:
                found.append((self._key.nulls, self._key.at))
            elif column == C_VALUE:
                found.append((self._value.nulls, self._value.at))
            elif column == C_HEADERS:
                found.append((self.rows - self._with_headers, self._header_key.at))
            else:
                found.append((self._nulls[column], 0))
        return found

    @property
    def header_value_nulls(self):
        """See columns.pyi."""
        return self._header_value.nulls

    @property
    def header_value_bytes(self):
        """See columns.pyi."""
        return self._header_value.at

    # ---- batches

    def add_chunk(self, rows, Py_ssize_t start, Py_ssize_t count, window, int64_t origin, int64_t filled):
        """See columns.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        cdef const uint8_t *p
        cdef int64_t at, i = start
        self.stopped = D_ADDED
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
            try:
                if start < 0 or count > cells.len // (BATCH_WIDTH * 8) or filled > view.len:
                    raise ValueError("the rows lie outside the buffer")
                while i < count and self.stopped == D_ADDED:
                    row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                    at = row[POSITION] - origin
                    if not self.is_wanted(row):
                        i += 1
                    elif row[SUSPECT] & NOT_A_BATCH:
                        i += 1
                        self.status = 0
                        self.stopped = D_BROKEN
                    elif row[ATTRIBUTES] & CODEC_MASK or at < 0 or row[SIZE] < smallest_size(row) \
                            or row[SIZE] > filled - at:
                        self.stopped = D_COMPRESSED
                    else:
                        p = <const uint8_t *> view.buf + at
                        self.add(row, p + HEADER if row[MAGIC] == 2 else p, p + row[SIZE],
                                 <const uint8_t *> view.buf + view.len)
                        i += self.stopped != D_NO_ROOM
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        return i

    def add_payload(self, rows, Py_ssize_t index, payload):
        """See columns.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        self.stopped = D_ADDED
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            if index < 0 or index >= cells.len // (BATCH_WIDTH * 8):
                raise IndexError("no such row")
            row = <const int64_t *> cells.buf + index * BATCH_WIDTH
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            try:
                if self.is_wanted(row):
                    self.add(row, <const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len,
                             <const uint8_t *> view.buf + view.len)
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        return self.stopped

    cdef inline bint is_wanted(self, const int64_t *row) noexcept nogil:
        if row[MAGIC] == 2 and row[ATTRIBUTES] & CONTROL_FLAG and not self._control:
            return False
        if row[LAST_OFFSET] < self._lowest or row[BASE_OFFSET] > self._highest:
            return False
        if self._table == NULL or row[MAGIC] < 2 or row[ATTRIBUTES] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) \
                != TRANSACTIONAL_FLAG or row[SUSPECT] & NOT_A_BATCH:
            return True
        return self.is_committed(row)

    cdef bint is_committed(self, const int64_t *row) noexcept nogil:
        cdef int64_t found = decision(self._table, row[PRODUCER_ID], row[POSITION])
        if found == D_COMMITTED:
            return True
        if found == D_ABORTED:
            self.aborted += max(row[COUNT], 0)
        else:
            self.undecided += max(row[COUNT], 0)
            if self.first_undecided < 0:
                self.first_undecided = row[BASE_OFFSET]
        return False

    cdef void add(self, const int64_t *row, const uint8_t *p, const uint8_t *end,
                  const uint8_t *readable) noexcept nogil:
        """Add a batch, or set `stopped`."""
        cdef Needs most
        cdef MessageScan s
        cdef bint wrapped = row[ATTRIBUTES] & CODEC_MASK != 0
        self.status = 0
        self._before = -1
        most.key_bytes = most.value_bytes = most.header_value_bytes = end - p
        most.header_key_bytes = REPLACEMENT * (end - p)
        most.headers = (end - p) // 2
        if row[MAGIC] == 2:
            if row[COUNT] < 0:
                self.stopped = D_BROKEN
                return
            most.rows = min(row[COUNT], (end - p) // SMALLEST_RECORD)
            if not self.fits(&most):
                measure_records(row, p, end, &most)
                if not self.fits(&most):
                    self.refuse(&most)
                    return
            self.status = self.add_records(row, &p, end, row[COUNT], True, readable)
        else:
            scan_messages(p, end, row[MAGIC] if wrapped else -1, row[LAST_OFFSET] if wrapped else 0, &s)
            most.rows = s.count
            most.headers = most.header_key_bytes = most.header_value_bytes = 0
            if not self.fits(&most):
                self.refuse(&most)
                return
            self.add_messages(row, &p, s.count, not s.status, s.shift, first_offset_of(p, &s), readable)
            self.status = s.status
        if self.status:
            self.stopped = D_BROKEN

    cdef bint fits(self, const Needs *need) noexcept nogil:
        if need.rows > self._row_room - self.rows:
            return False
        if self._key.offsets != NULL and need.key_bytes > self._key.room - self._key.at:
            return False
        if self._value.offsets != NULL and need.value_bytes > self._value.room - self._value.at:
            return False
        return self._header_offsets == NULL or (
            need.headers <= self._header_room - self.headers
            and need.header_key_bytes <= self._header_key.room - self._header_key.at
            and need.header_value_bytes <= self._header_value.room - self._header_value.at)

    cdef void refuse(self, const Needs *need) noexcept nogil:
        self.stopped = D_NO_ROOM
        self.need_rows = need.rows
        self.need_headers = need.headers
        self.need_bytes = max(max(need.key_bytes, need.value_bytes),
                              max(need.header_key_bytes, need.header_value_bytes))

    cdef int add_records(self, const int64_t *row, const uint8_t **at, const uint8_t *end, int64_t count, bint is_last,
                         const uint8_t *readable) noexcept nogil:
        """Add `count` records of a batch of magic 2, and move `at` to the end of them.

        Returns 0 or the status of the one that ends them. `is_last`: no record of the batch comes after them.
        """
        cdef Fields f
        cdef Bytes key = self._key, value = self._value
        cdef const uint8_t *p = at[0]
        cdef const uint8_t *begin
        cdef const uint8_t *stop
        cdef int64_t i, offset, timestamp, n = self.rows
        cdef int64_t base_offset = row[BASE_OFFSET], base_timestamp = row[BASE_TIMESTAMP]
        cdef int64_t append_ms = row[MAX_TIMESTAMP], base_sequence = row[BASE_SEQUENCE]
        cdef int64_t before = self._before
        cdef int64_t highest_delta = <int64_t> (<uint64_t> row[LAST_OFFSET] - <uint64_t> base_offset)
        cdef bint appended = row[ATTRIBUTES] & LOG_APPEND_TIME != 0, selects = self._selects
        cdef int32_t *header_offsets = self._header_offsets
        cdef bint sized = self._cells[C_SIZE] != NULL, numbered = self._cells[C_SEQUENCE] != NULL
        cdef int64_t *offsets = <int64_t *> self._cells[C_OFFSET]
        cdef int64_t *micros = <int64_t *> self._cells[C_TIMESTAMP]
        cdef int64_t *millis = <int64_t *> self._cells[C_TIMESTAMP_MS]
        cdef int status = 0
        cdef bint odd = False
        for i in range(count):
            begin = p
            stop = next_record(&p, end, &f, &status, &odd)
            if stop == NULL:
                break
            self.misplaced += f.offset_delta <= before or f.offset_delta > highest_delta
            before = f.offset_delta
            offset = <int64_t> (<uint64_t> base_offset + <uint64_t> <int64_t> f.offset_delta)
            timestamp = append_ms if appended \
                else <int64_t> (<uint64_t> base_timestamp + <uint64_t> f.timestamp_delta)
            if selects and not self.selects_record(offset, timestamp):
                continue
            if key.offsets != NULL:
                append(&key, n, f.key, f.key_size, readable)
            if value.offsets != NULL:
                append(&value, n, f.value, f.value_size, readable)
            if header_offsets != NULL:
                if f.header_count:
                    self.add_headers(f.headers, stop, f.header_count, n, readable)
                header_offsets[n + 1] = <int32_t> self.headers
            if offsets != NULL:
                offsets[n] = offset
            if millis != NULL:
                millis[n] = timestamp
            if micros != NULL:
                if -LARGEST_MS <= timestamp <= LARGEST_MS:
                    micros[n] = timestamp * 1000
                else:
                    self.add_unfit_timestamp(n)
            if sized:
                (<int32_t *> self._cells[C_SIZE])[n] = <int32_t> (stop - begin)
            if numbered:
                (<int32_t *> self._cells[C_SEQUENCE])[n] = sequence_of(base_sequence, f.offset_delta)
            n += 1
        if is_last and row[COUNT] > 0 and status == 0 and p != end:
            status = LEFTOVER
        at[0] = p
        self._before = before
        self._key, self._value = key, value
        self.fill_batch(row, n, base_offset)
        if self._cells[C_MAGIC] != NULL:
            memset(self._cells[C_MAGIC] + self.rows, 2, n - self.rows)
        if self._cells[C_TIMESTAMP_TYPE] != NULL:
            fill32(self._cells[C_TIMESTAMP_TYPE], self.rows, n, appended)
        self.rows = n
        return status

    cdef inline bint selects_record(self, int64_t offset, int64_t timestamp) noexcept nogil:
        return self._lowest <= offset <= self._highest and self._earliest <= timestamp <= self._latest

    cdef void add_unfit_timestamp(self, int64_t n) noexcept nogil:
        (<int64_t *> self._cells[C_TIMESTAMP])[n] = 0
        clear_bit(self._valid[C_TIMESTAMP], n)
        self._nulls[C_TIMESTAMP] += 1
        self.unfit_timestamps += 1

    cdef void add_headers(self, const uint8_t *p, const uint8_t *stop, int64_t count, int64_t n,
                          const uint8_t *readable) noexcept nogil:
        """Add the headers of a record that has some."""
        cdef Bytes *key = &self._header_key
        cdef Header h
        cdef int64_t i
        for i in range(self.headers, self.headers + count):
            p = next_header(p, stop, &h)
            if is_ascii(h.key, h.key_size):
                copy_field(key.data + key.at, h.key, h.key_size, readable)
                key.at += h.key_size
            else:
                key.at += write_text(key.data + key.at, h.key, h.key_size)
            key.offsets[i + 1] = <int32_t> key.at
            append(&self._header_value, i, h.value, h.value_size, readable)
        self.headers += count
        self._valid[C_HEADERS][n >> 3] |= 1 << (n & 7)
        self._with_headers += 1

    cdef void add_messages(self, const int64_t *row, const uint8_t **at, int64_t count, bint is_last, int64_t shift,
                           int64_t first_offset, const uint8_t *readable) noexcept nogil:
        """Add `count` messages of magic 0 and 1 that a scan has counted, and move `at` to the end of them.

        `is_last`: no message of the batch comes after them. The last one has the offset of a wrapper.
        """
        cdef Message m
        cdef const uint8_t *p = at[0]
        cdef int64_t i, total, offset, timestamp, n = self.rows
        cdef bint appended = row[ATTRIBUTES] & LOG_APPEND_TIME != 0 and row[MAGIC] == 1
        for i in range(count):
            total = total_of(p)
            parse_message(p, total, &m)
            offset = <int64_t> (<uint64_t> be64(p) + <uint64_t> shift)
            self.misplaced += offset <= self._before or offset > row[LAST_OFFSET]
            self._before = offset
            timestamp = row[MAX_TIMESTAMP] if appended and m.magic == 1 else m.timestamp
            if not self._selects or self.selects_record(offset, timestamp):
                self.add_message(p, &m, n, offset, timestamp, readable)
                if self._cells[C_TIMESTAMP_TYPE] != NULL:
                    (<int32_t *> self._cells[C_TIMESTAMP_TYPE])[n] = -1 if m.magic == 0 else appended
                if self._cells[C_SIZE] != NULL:
                    (<int32_t *> self._cells[C_SIZE])[n] = <int32_t> total
                n += 1
            p += total
        self.misplaced += is_last and count > 0 and self._before != row[LAST_OFFSET]
        at[0] = p
        self.fill_batch(row, n, first_offset)
        self.rows = n

    cdef void add_message(self, const uint8_t *p, const Message *m, int64_t n, int64_t offset, int64_t timestamp,
                          const uint8_t *readable) noexcept nogil:
        if self._key.offsets != NULL:
            append(&self._key, n, p + m.key_at, m.key_size, readable)
        if self._value.offsets != NULL:
            append(&self._value, n, p + m.value_at, m.value_size, readable)
        if self._header_offsets != NULL:
            self._header_offsets[n + 1] = <int32_t> self.headers
        if self._cells[C_OFFSET] != NULL:
            (<int64_t *> self._cells[C_OFFSET])[n] = offset
        if self._cells[C_TIMESTAMP_MS] != NULL:
            (<int64_t *> self._cells[C_TIMESTAMP_MS])[n] = timestamp
        if self._cells[C_TIMESTAMP] != NULL:
            if -LARGEST_MS <= timestamp <= LARGEST_MS:
                (<int64_t *> self._cells[C_TIMESTAMP])[n] = timestamp * 1000
            else:
                self.add_unfit_timestamp(n)
        if self._cells[C_SEQUENCE] != NULL:
            (<int32_t *> self._cells[C_SEQUENCE])[n] = -1
        if self._cells[C_MAGIC] != NULL:
            self._cells[C_MAGIC][n] = <uint8_t> m.magic

    cdef void fill_batch(self, const int64_t *row, int64_t end, int64_t base_offset) noexcept nogil:
        """Write what is the same for all records of a batch, up to row `end`."""
        cdef int64_t i, begin = self.rows
        if begin == end:
            return
        fill64(self._cells[C_POSITION], begin, end, row[POSITION])
        fill64(self._cells[C_BATCH_OFFSET], begin, end, base_offset)
        fill64(self._cells[C_PRODUCER_ID], begin, end, row[PRODUCER_ID])
        if self._cells[C_PRODUCER_EPOCH] != NULL:
            for i in range(begin, end):
                (<int16_t *> self._cells[C_PRODUCER_EPOCH])[i] = <int16_t> row[PRODUCER_EPOCH]
        if self._cells[C_CODEC] != NULL:
            memset(self._cells[C_CODEC] + begin, row[ATTRIBUTES] & CODEC_MASK, end - begin)
        if self._cells[C_LEADER_EPOCH] != NULL:
            if row[EPOCH] == NO_VALUE:
                for i in range(begin, end):
                    clear_bit(self._valid[C_LEADER_EPOCH], i)
                self._nulls[C_LEADER_EPOCH] += end - begin
                fill32(self._cells[C_LEADER_EPOCH], begin, end, 0)
            else:
                fill32(self._cells[C_LEADER_EPOCH], begin, end, <int32_t> row[EPOCH])
        if row[MAGIC] == 2:
            if row[ATTRIBUTES] & TRANSACTIONAL_FLAG:
                set_bits(self._cells[C_TRANSACTIONAL], begin, end)
            if row[ATTRIBUTES] & CONTROL_FLAG:
                set_bits(self._cells[C_CONTROL], begin, end)


cdef int width_of(int column):
    if column == C_MAGIC or column == C_CODEC:
        return 1
    if column == C_PRODUCER_EPOCH:
        return 2
    if column == C_TIMESTAMP_TYPE or column == C_SEQUENCE or column == C_LEADER_EPOCH or column == C_SIZE:
        return 4
    return 8


cdef uint8_t *begin_bits(Py_buffer *bits):
    """Set all bits of a validity bitmap."""
    memset(bits.buf, 0xff, bits.len)
    return <uint8_t *> bits.buf


cdef int64_t set_bytes(Bytes *c, Py_buffer *valid, Py_buffer *offsets, Py_buffer *data):
    """Set the pointers of a column of bytes; returns its room in rows."""
    cdef int64_t room = <int64_t> offsets.len // 4 - 1
    if valid != NULL:
        c.valid = begin_bits(valid)
        room = min(room, 8 * <int64_t> valid.len)
    c.offsets = <int32_t *> offsets.buf
    c.data = <uint8_t *> data.buf
    c.room = max(<int64_t> 0, min(<int64_t> data.len - SPARE, <int64_t> INT32_MAX))
    if room >= 0:
        c.offsets[0] = 0
    return room


cdef void fill64(uint8_t *cells, int64_t begin, int64_t end, int64_t value) noexcept nogil:
    cdef int64_t i
    if cells != NULL:
        for i in range(begin, end):
            (<int64_t *> cells)[i] = value


cdef void fill32(uint8_t *cells, int64_t begin, int64_t end, int32_t value) noexcept nogil:
    cdef int64_t i
    for i in range(begin, end):
        (<int32_t *> cells)[i] = value


cdef void set_bits(uint8_t *bits, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t i
    if bits != NULL:
        for i in range(begin, end):
            bits[i >> 3] |= 1 << (i & 7)


cdef inline int64_t smallest_size(const int64_t *row) noexcept nogil:
    return HEADER if row[MAGIC] == 2 else LOG_OVERHEAD


cdef inline int64_t first_offset_of(const uint8_t *messages, const MessageScan *s) noexcept nogil:
    return <int64_t> (<uint64_t> be64(messages) + <uint64_t> s.shift) if s.count else 0


cdef void measure_records(const int64_t *row, const uint8_t *p, const uint8_t *end, Needs *need) noexcept nogil:
    """Add up what the records of a batch of magic 2 take, chosen or not."""
    cdef int64_t i
    cdef int status = 0
    memset(need, 0, sizeof(Needs))
    for i in range(row[COUNT]):
        p = measure_record(p, end, need, &status)
        if p == NULL:
            break


cdef const uint8_t *measure_record(const uint8_t *p, const uint8_t *end, Needs *need, int *status) noexcept nogil:
    """Add what the record at `p` takes; returns its end, or NULL with a status where it is not valid."""
    cdef Fields f
    cdef const uint8_t *h
    cdef int64_t i
    cdef Header field
    cdef bint odd = False
    cdef const uint8_t *stop = next_record(&p, end, &f, status, &odd)
    if stop == NULL:
        return NULL
    need.rows += 1
    need.key_bytes += max(f.key_size, 0)
    need.value_bytes += max(f.value_size, 0)
    need.headers += f.header_count
    h = f.headers
    for i in range(f.header_count):
        h = next_header(h, stop, &field)
        need.header_key_bytes += (field.key_size if is_ascii(field.key, field.key_size)
                                  else REPLACEMENT * <int64_t> field.key_size)
        need.header_value_bytes += max(field.value_size, 0)
    return stop


cdef const uint8_t *measure_message(const uint8_t *p, Needs *need) noexcept nogil:
    """Add what the message at `p`, which a scan has counted, takes; returns its end."""
    cdef Message m
    cdef int64_t total = total_of(p)
    parse_message(p, total, &m)
    need.rows += 1
    need.key_bytes += max(m.key_size, 0)
    need.value_bytes += max(m.value_size, 0)
    return p + total


@cython.no_gc_clear  # it would forget who exports the buffer, which is not released then
cdef class BatchParts:
    """See columns.pyi."""

    cdef Columns _columns
    cdef Py_buffer _view
    cdef int64_t _row[BATCH_WIDTH]
    cdef int64_t _at, _left, _shift, _first_offset
    cdef int _status
    cdef bint _legacy

    def __cinit__(self, Columns columns, rows, Py_ssize_t index, payload):
        cdef Py_buffer cells
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            if index < 0 or index >= cells.len // (BATCH_WIDTH * 8):
                raise IndexError("no such row")
            memcpy(self._row, <const int64_t *> cells.buf + index * BATCH_WIDTH, sizeof(self._row))
        finally:
            PyBuffer_Release(&cells)
        PyObject_GetBuffer(payload, &self._view, PyBUF_SIMPLE)
        self._columns = columns
        columns._before = -1
        self._legacy = self._row[MAGIC] != 2
        if not columns.is_wanted(self._row):
            self._at, self._legacy = self._view.len, True
        elif self._legacy:
            self.count_messages()
        else:
            self._left = self._row[COUNT]

    cdef void count_messages(self) noexcept:
        cdef MessageScan s
        cdef const uint8_t *p = <const uint8_t *> self._view.buf
        cdef bint wrapped = self._row[ATTRIBUTES] & CODEC_MASK != 0
        scan_messages(p, p + self._view.len, self._row[MAGIC] if wrapped else -1,
                      self._row[LAST_OFFSET] if wrapped else 0, &s)
        self._left, self._shift, self._status = s.count, s.shift, s.status
        self._first_offset = first_offset_of(p, &s)

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    def add(self):
        """See columns.pyi."""
        cdef Columns columns = self._columns
        cdef int64_t rows = columns.rows
        columns.status = 0
        if self._left < 0:
            columns.stopped = D_BROKEN
            return D_BROKEN
        columns.stopped = D_NO_ROOM
        while columns.stopped == D_NO_ROOM and columns.rows == rows:
            if not self.add_part():
                break
        return columns.stopped

    cdef bint add_part(self) noexcept:
        """Add what there is room for, and set `stopped`. False where the next record does not fit."""
        cdef Columns columns = self._columns
        cdef const uint8_t *begin = <const uint8_t *> self._view.buf
        cdef const uint8_t *p = begin + self._at
        cdef const uint8_t *end = begin + self._view.len
        cdef int64_t count = self.count_fitting(p, end)
        if columns.stopped == D_NO_ROOM and count == 0:
            return False
        self._left -= count
        if self._legacy:
            columns.add_messages(self._row, &p, count, self._left == 0 and not self._status, self._shift,
                                 self._first_offset, end)
            columns.status = 0 if self._left else self._status
        else:
            columns.status = columns.add_records(self._row, &p, end, count, self._left == 0, end)
            if columns.stopped == D_BROKEN:
                columns.status = self._status
        self._at = p - begin
        if columns.status:
            self._left = 0
            columns.stopped = D_BROKEN
        return True

    cdef int64_t count_fitting(self, const uint8_t *p, const uint8_t *end) noexcept:
        """Count the next records that there is room for, and set `stopped`: BROKEN where one follows that is no record.
        """
        cdef Columns columns = self._columns
        cdef Needs need, more
        cdef int64_t count = 0
        memset(&need, 0, sizeof(Needs))
        columns.stopped = D_ADDED
        while count < self._left and columns.stopped == D_ADDED:
            more = need
            p = measure_message(p, &more) if self._legacy else measure_record(p, end, &more, &self._status)
            if p == NULL:
                columns.stopped = D_BROKEN
            elif not columns.fits(&more):
                columns.refuse(&more)
            else:
                need = more
                count += 1
        return count
