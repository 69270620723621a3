# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""What a log takes: new records encoded as batches, a given batch with its offsets, runs of batches that are copied.

See append.pyi. kdump.format.record and kdump.format.legacy describe the layouts. The encoder computes the size of a
record, reserves room for all of it, then writes it: a record that raises leaves no bytes in the buffer.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.tuple cimport PyTuple_GetItem, PyTuple_Size
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from kdump.kernel.crc cimport crc32_of, crc32c_of
from kdump.kernel.cursor cimport has_right_crc, varint, varlong, whole_batch
from kdump.kernel.layout cimport *
from kdump.kernel.records cimport Message, parse_message

from operator import index

MAX_BYTES = INT32_MAX
"""The largest batch in bytes, compressed or decompressed: sizes have 32 bits."""

cdef enum:
    ROOM = 1 << 12    # bytes of the first allocation
    KEPT = 1 << 20    # the largest buffer to keep for the next batch

    STOP_END = 0
    STOP_OTHER
    STOP_FULL

RUN_END, RUN_OTHER, RUN_FULL = STOP_END, STOP_OTHER, STOP_FULL


cdef inline int64_t first_field(const int64_t *row) noexcept nogil:
    """The offset with which a batch begins on disk: of a message of magic 0 or 1 the last one."""
    return row[BASE_OFFSET] if row[MAGIC] >= 2 else row[LAST_OFFSET]


# No checksum covers the base offset. One that is wrong would leave no place for the batches after it.
cdef inline bint is_ahead(const int64_t *row, bint is_last, int64_t after, int64_t lowest) noexcept nogil:
    """Whether the next batch fits where this one does not: at or above `lowest`, and below this one.

    `after`: the offset of the batch that follows the last row, -1 where it is not known.
    """
    cdef int64_t following = after if is_last else first_field(row + BATCH_WIDTH)
    return lowest <= following < first_field(row)


cdef inline int varint_size(uint64_t number) noexcept nogil:
    cdef int size = 1
    while number > 0x7f:
        number >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *q, uint64_t number) noexcept nogil:
    while number > 0x7f:
        q[0] = <uint8_t> (number | 0x80)
        number >>= 7
        q += 1
    q[0] = <uint8_t> number
    return q + 1


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return <uint64_t> number << 1 ^ <uint64_t> (number >> 63)


# A field: its address and size; size -1 for null.
cdef struct Field:
    const uint8_t *at
    int64_t size


cdef inline uint8_t *put_field(uint8_t *q, Field *f) noexcept nogil:
    """Write the length as a varint, then the bytes."""
    q = put_varint(q, zigzag(f.size))
    if f.size > 0:
        memcpy(q, f.at, f.size)
        q += f.size
    return q


cdef inline uint8_t *put_wide_field(uint8_t *q, Field *f) noexcept nogil:
    """Write the length in 32 bits, then the bytes."""
    q = put32(q, <uint32_t> f.size)
    if f.size > 0:
        memcpy(q, f.at, f.size)
        q += f.size
    return q


cdef inline int64_t field_size(Field *f) noexcept nogil:
    return varint_size(zigzag(f.size)) + (f.size if f.size > 0 else 0)


cdef inline bint within(int64_t at, int64_t size, int64_t limit) noexcept nogil:
    """Whether a field lies inside `limit` bytes; a negative size is null."""
    return size < 0 or (at >= 0 and size <= limit and at <= limit - size)


cdef inline object item(object pair, Py_ssize_t index):
    """Return an element of a tuple that has it.

    With the limited API, unpacking goes through an iterator, and records take a quarter longer.
    """
    return <object> PyTuple_GetItem(pair, index)


cdef bytes as_bytes(object data, str what, str expected="bytes"):
    """Return the bytes of a buffer, as an object that cannot change; None for None."""
    if data is None or type(data) is bytes:
        return <bytes> data
    try:
        return bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{what} is of type {type(data).__name__}, expected {expected}") from None


cdef inline int set_field(bytes data, Field *f) except -1:
    if data is None:
        f.at = NULL
        f.size = -1
    else:
        f.at = <const uint8_t *> PyBytes_AsString(data)
        f.size = PyBytes_Size(data)
    return 0


cdef int64_t as_int64(object number, str what) except? -2:
    if not isinstance(number, int):
        number = index(number)  # the limited API would cut off the fraction of a float
    try:
        return number
    except OverflowError:
        raise ValueError(f"{what} {number} has more than 64 bits") from None


cdef bytes header_name(object name):
    """Return the key of a header, a string in Kafka, as UTF-8."""
    if type(name) is bytes:
        return <bytes> name
    if name is None:
        raise ValueError("the name of a header is null")
    if isinstance(name, str):
        try:
            return name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the name of a header cannot be encoded as UTF-8: {name!r}") from None
    return as_bytes(name, "the name of a header", "str or bytes")


cdef list header_fields(object headers):
    """Return the headers as bytes: key, value, key, value, ..."""
    cdef list found = []
    for header in headers:
        if isinstance(header, tuple) and PyTuple_Size(header) == 2:
            name, content = item(header, 0), item(header, 1)
        else:
            name, content = header
        found.append(header_name(name))
        found.append(as_bytes(content, "the value of a header"))
    return found


cdef class Encoder:
    cdef uint8_t *data
    cdef int64_t filled, room
    cdef int64_t base_offset, append_ms
    cdef int magic
    cdef uint8_t attributes
    cdef bint begun, appended, relative, closed
    cdef readonly int64_t count
    cdef readonly int64_t last_offset
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __cinit__(self, int magic, int64_t base_offset, int attributes=0, base_timestamp=None, log_append_ms=None,
                  bint relative=False):
        if not 0 <= magic <= 2:
            raise ValueError(f"no records have magic {magic}")
        self.magic = magic
        self.base_offset = base_offset
        self.attributes = attributes
        self.begun = base_timestamp is not None
        self.base_timestamp = -1 if base_timestamp is None else base_timestamp
        self.appended = log_append_ms is not None
        self.append_ms = -1 if log_append_ms is None else log_append_ms
        self.relative = relative
        self.max_timestamp = -1
        self.last_offset = base_offset - 1

    def __dealloc__(self):
        free(self.data)

    @property
    def size(self):
        return self.filled

    cdef int must_be_open(self) except -1:
        if self.closed:
            raise ValueError("the builder is closed")
        return 0

    cdef uint8_t *reserve(self, int64_t more) except NULL:
        """Reserve so many bytes after the records; return where they start."""
        cdef int64_t room = self.room
        cdef uint8_t *data
        if more > INT32_MAX - HEADER - self.filled:
            raise ValueError(
                f"a record of {more} bytes does not fit after {self.filled} bytes, a batch has at most {INT32_MAX}"
            )
        if more > room - self.filled:
            room = max(ROOM, 2 * room, self.filled + more)
            data = <uint8_t *> realloc(self.data, room)
            if data == NULL:
                raise MemoryError
            self.data = data
            self.room = room
        return self.data + self.filled

    cdef int64_t next_offset(self, bint given, int64_t offset) except -1:
        """Return the offset of the next record: `offset` where it is `given`, else the one after the last."""
        if not given:
            if self.last_offset == INT64_MAX:
                raise ValueError("there is no offset after 9223372036854775807")
            offset = self.last_offset + 1
        elif offset < self.base_offset:
            raise ValueError(f"offset {offset} is below the base offset {self.base_offset}")
        elif offset <= self.last_offset:
            raise ValueError(f"offset {offset} follows offset {self.last_offset}, offsets must increase")
        if offset - self.base_offset > INT32_MAX:
            raise ValueError(f"offset {offset} is more than {INT32_MAX} above the base offset {self.base_offset}")
        return offset

    cdef int64_t add_record(self, object key, object value, object headers, object timestamp_ms,
                            object offset) except -1:
        cdef Field name, content
        cdef bytes key_bytes = as_bytes(key, "the key"), value_bytes = as_bytes(value, "the value")
        cdef list parts = header_fields(headers) if headers else None
        cdef int64_t time = as_int64(timestamp_ms, "timestamp")
        cdef bint given = offset is not None
        cdef int64_t placed = as_int64(offset, "offset") if given else 0
        # From here on, no code of the caller runs.
        self.must_be_open()
        if time < -1:
            raise ValueError(f"timestamp {time} is below -1")
        placed = self.next_offset(given, placed)
        set_field(key_bytes, &name)
        set_field(value_bytes, &content)
        if self.magic == 2:
            self.put_record(&name, &content, parts, time, placed)
            if not self.begun:
                self.begun = True
                self.base_timestamp = time
        else:
            if parts:
                raise ValueError(f"messages of magic {self.magic} have no headers")
            if self.appended:
                time = self.append_ms
            self.put_message(&name, &content, time, placed)
        if self.magic > 0 and time > self.max_timestamp:
            self.max_timestamp = time
        # The limit on the bytes limits the count, too.
        self.count += 1
        self.last_offset = placed
        return placed

    cdef int put_record(self, Field *key, Field *value, list parts, int64_t time, int64_t offset) except -1:
        cdef Field part
        cdef Py_ssize_t i, count = 0 if parts is None else len(parts)
        cdef int64_t size
        cdef uint64_t offset_delta = zigzag(offset - self.base_offset)
        # In 64 bits, as in Java: the addition in a reader wraps in the same way.
        cdef uint64_t time_delta = zigzag(
            <int64_t> (<uint64_t> time - <uint64_t> (self.base_timestamp if self.begun else time))
        )
        cdef uint8_t *q
        size = 1 + varint_size(time_delta) + varint_size(offset_delta) + field_size(key) + field_size(value)
        for i in range(count):
            set_field(<bytes> parts[i], &part)
            size += field_size(&part)
        size += varint_size(zigzag(count >> 1))
        q = self.reserve(size + varint_size(zigzag(size)))
        q = put_varint(q, zigzag(size))
        q[0] = 0
        q = put_varint(q + 1, time_delta)
        q = put_varint(q, offset_delta)
        q = put_field(q, key)
        q = put_field(q, value)
        q = put_varint(q, zigzag(count >> 1))
        for i in range(count):
            set_field(<bytes> parts[i], &part)
            q = put_field(q, &part)
        self.filled = q - self.data
        return 0

    cdef int put_message(self, Field *key, Field *value, int64_t time, int64_t offset) except -1:
        cdef int64_t size = 22 + (8 if self.magic else 0)
        cdef uint8_t *start
        cdef uint8_t *q
        size += 4 + (key.size if key.size > 0 else 0) + (value.size if value.size > 0 else 0)
        start = self.reserve(size)
        q = put64(start, <uint64_t> (offset - self.base_offset if self.relative else offset))
        q = put32(q, <uint32_t> (size - LOG_OVERHEAD)) + 4
        q[0] = self.magic
        q[1] = self.attributes
        q += 2
        if self.magic:
            q = put64(q, <uint64_t> time)
        q = put_wide_field(q, key)
        q = put_wide_field(q, value)
        put32(start + MESSAGE_CRC_AT, crc32_of(start + MAGIC_AT, size - MAGIC_AT))
        self.filled += size
        return 0

    def append(self, key, value, headers=(), timestamp_ms=-1, offset=None):
        return self.add_record(key, value, headers, timestamp_ms, offset)

    def extend(self, records):
        for record in records:
            if isinstance(record, tuple) and PyTuple_Size(record) == 5:
                self.add_record(item(record, 0), item(record, 1), item(record, 2), item(record, 3), item(record, 4))
            else:
                key, value, headers, timestamp_ms, offset = record
                self.add_record(key, value, headers, timestamp_ms, offset)

    def add_messages(self, int kind, rows, Py_ssize_t start, Py_ssize_t count, window, int64_t origin, int64_t filled,
                     int64_t lowest, int64_t highest, int64_t limit, int64_t after=-1):
        """See encode.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        cdef int64_t at, offset
        cdef Py_ssize_t i = start
        self.must_be_open()
        if self.magic != 2:
            raise ValueError("only record batches of magic 2 take messages")
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
            try:
                if start < 0 or count > cells.len // (BATCH_WIDTH * 8) or filled > view.len:
                    raise ValueError("the rows lie outside the buffer")
                while i < count and self.filled < limit:
                    row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                    at, offset = row[POSITION] - origin, row[LAST_OFFSET]
                    if row[SUSPECT] & (S_CRC | S_MAGIC | S_LIMIT) or row[MAGIC] != kind \
                            or row[ATTRIBUTES] & CODEC_MASK or at < 0 \
                            or row[SIZE] < minimum(kind) + LOG_OVERHEAD or row[SIZE] > filled - at \
                            or offset < lowest or offset > highest \
                            or is_ahead(row, i + 1 == count, after, max(lowest, self.last_offset + 1)):
                        break
                    if (kind == 1 and row[ATTRIBUTES] & LOG_APPEND_TIME != 0) != self.appended \
                            or (self.appended and row[MAX_TIMESTAMP] != self.append_ms):
                        break
                    if not self.add_message(<const uint8_t *> view.buf + at, row[SIZE], offset):
                        break
                    i += 1
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        return i

    cdef bint add_message(self, const uint8_t *entry, int64_t total, int64_t offset) except -1:
        """Add a message of magic 0 or 1; False for one that is not valid, or whose offset does not fit."""
        cdef Message m
        cdef Field key, value
        if offset <= self.last_offset or offset - self.base_offset > INT32_MAX or not parse_message(entry, total, &m):
            return False
        key.at, key.size = entry + m.key_at, m.key_size
        value.at, value.size = entry + m.value_at, m.value_size
        self.add_fields(&key, &value, m.timestamp if m.magic == 1 else -1, offset)
        return True

    cdef int add_fields(self, Field *key, Field *value, int64_t time, int64_t offset) except -1:
        """Add a record without headers; any negative size is null."""
        key.size, value.size = max(key.size, <int64_t> -1), max(value.size, <int64_t> -1)
        self.put_record(key, value, None, time, offset)
        if not self.begun:
            self.begun = True
            self.base_timestamp = time
        self.note(time, offset)
        return 0

    cdef inline void note(self, int64_t time, int64_t offset) noexcept:
        if time > self.max_timestamp:
            self.max_timestamp = time
        self.count += 1
        self.last_offset = offset

    def add_rows(self, rows, payload, int64_t first=-1):
        """See encode.pyi."""
        cdef Py_buffer cells, view
        cdef const int64_t *row
        cdef Field key, value
        cdef int64_t i = 0, count, offset
        self.must_be_open()
        if self.magic != 2:
            raise ValueError("only record batches of magic 2 take records of other batches")
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            try:
                count = cells.len // (RECORD_WIDTH * 8)
                while i < count:
                    row = <const int64_t *> cells.buf + i * RECORD_WIDTH
                    offset = row[R_OFFSET] if first < 0 else first + i
                    if offset <= self.last_offset or offset - self.base_offset > INT32_MAX:
                        break
                    if row[R_MAGIC] == 2:
                        self.copy_record(row, <const uint8_t *> view.buf, view.len, offset)
                    else:
                        if not (within(row[R_KEY_AT], row[R_KEY_SIZE], view.len)
                                and within(row[R_VALUE_AT], row[R_VALUE_SIZE], view.len)):
                            raise ValueError("the rows lie outside the payload")
                        # The position of a null can be any number.
                        key.at, key.size = <const uint8_t *> view.buf, row[R_KEY_SIZE]
                        if key.size >= 0:
                            key.at += row[R_KEY_AT]
                        value.at, value.size = <const uint8_t *> view.buf, row[R_VALUE_SIZE]
                        if value.size >= 0:
                            value.at += row[R_VALUE_AT]
                        self.add_fields(&key, &value, -1 if first >= 0 or row[R_MAGIC] == 0 else row[R_TIMESTAMP],
                                        offset)
                    i += 1
            finally:
                PyBuffer_Release(&view)
        finally:
            PyBuffer_Release(&cells)
        return i

    cdef int copy_record(self, const int64_t *row, const uint8_t *payload, int64_t size, int64_t offset) except -1:
        """Add a record of magic 2 with its timestamp delta as it is, and the delta of this offset."""
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef const uint8_t *times
        cdef const uint8_t *rest = NULL
        cdef uint8_t *q
        cdef int32_t number = 0
        cdef int64_t timestamp = 0, length, head
        cdef bint odd = False
        cdef uint64_t delta = zigzag(offset - self.base_offset)
        if not within(row[R_AT], row[R_SIZE], size) or row[R_SIZE] < 0:
            raise ValueError("the rows lie outside the payload")
        p = payload + row[R_AT]
        end = p + row[R_SIZE]
        p = varint(p, end, &number, &odd)
        times = NULL
        if p != NULL and p < end:
            times = varlong(p + 1, end, &timestamp, &odd)
        if times != NULL:
            rest = varint(times, end, &number, &odd)
        if rest == NULL:
            raise ValueError("a row is not that of a record")
        head = times - p  # the attributes and the timestamp delta
        length = head + varint_size(delta) + (end - rest)
        q = self.reserve(length + varint_size(zigzag(length)))
        q = put_varint(q, zigzag(length))
        memcpy(q, p, head)
        q = put_varint(q + head, delta)
        memcpy(q, rest, end - rest)
        self.filled = q + (end - rest) - self.data
        self.note(row[R_TIMESTAMP], offset)
        return 0

    def payload(self):
        self.must_be_open()
        return PyBytes_FromStringAndSize(<const char *> self.data, self.filled)

    def close(self):
        free(self.data)
        self.data = NULL
        self.room = 0
        self.closed = True

    def seal(self, bytes header, payload=None):
        cdef Py_buffer view
        cdef uint8_t *start
        cdef int64_t size = self.filled
        self.must_be_open()
        if len(header) != HEADER:
            raise ValueError(f"the header of a batch has {HEADER} bytes, this one {len(header)}")
        if payload is not None:
            PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
            size = view.len
        try:
            if size > INT32_MAX - HEADER:
                raise ValueError(f"the batch has {size + HEADER} bytes, the most is {INT32_MAX}")
            batch = PyBytes_FromStringAndSize(NULL, HEADER + size)
            start = <uint8_t *> PyBytes_AsString(batch)
            memcpy(start, PyBytes_AsString(header), HEADER)
            if size:
                memcpy(start + HEADER, self.data if payload is None else <const uint8_t *> view.buf, size)
        finally:
            if payload is not None:
                PyBuffer_Release(&view)
        put32(start + CRC_AT, crc32c_of(start + ATTRIBUTES_AT, HEADER - ATTRIBUTES_AT + size))
        return batch


# ---- a given batch

@cython.final
cdef class Admission:
    """See append.pyi."""

    cdef int64_t _max_bytes
    cdef bytearray _buffer

    def __init__(self, int64_t max_bytes):
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def admit(self, data, int64_t offset, int32_t epoch):
        cdef Py_buffer source
        cdef const uint8_t *p
        cdef uint8_t *copy
        cdef int64_t size, delta, timestamp
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *> source.buf
            size = source.len
            if size < HEADER or whole_batch(p, size, self._max_bytes) != size or p[MAGIC_AT] != 2:
                return None
            delta = be32(p + LAST_OFFSET_DELTA_AT)
            if attributes_of(p) & CONTROL_FLAG or attributes_of(p) & CODEC_MASK > 4 or p[PRODUCER_ID_AT] < 128:
                return None
            if (delta < 0 or be32(p + RECORDS_COUNT_AT) != delta + 1 or offset >= INT64_MAX - delta
                    or not has_right_crc(p, size)):
                return None
            timestamp = be64(p + MAX_TIMESTAMP_AT)
            if len(self._buffer) < size or len(self._buffer) > KEPT > size:
                self._buffer = bytearray(size)
            copy = <uint8_t *> PyByteArray_AsString(self._buffer)
            memcpy(copy, p, size)
        finally:
            PyBuffer_Release(&source)
        put64(copy, offset)
        put32(copy + LEADER_EPOCH_AT, epoch)
        return (
            self._buffer if len(self._buffer) == size else memoryview(self._buffer)[:size],
            offset + delta, timestamp, size,
        )


# ---- runs of batches that are copied

def skip_below(rows, Py_ssize_t start, Py_ssize_t count, int64_t lowest):
    """See append.pyi."""
    cdef Py_buffer cells
    cdef const int64_t *row
    cdef Py_ssize_t i = start
    PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
    try:
        if start < 0 or count > cells.len // (BATCH_WIDTH * 8):
            raise ValueError("no such rows")
        while i < count:
            row = <const int64_t *> cells.buf + i * BATCH_WIDTH
            if row[SUSPECT] & (S_CRC | S_MAGIC | S_LIMIT) or not 0 <= row[LAST_OFFSET] < lowest:
                break
            i += 1
    finally:
        PyBuffer_Release(&cells)
    return i


def offset_is_ahead(rows, Py_ssize_t index, Py_ssize_t count, int64_t lowest, int64_t after):
    """See append.pyi."""
    cdef Py_buffer cells
    PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
    try:
        if not 0 <= index < count <= cells.len // (BATCH_WIDTH * 8):
            raise ValueError("no such rows")
        return is_ahead(<const int64_t *> cells.buf + index * BATCH_WIDTH, index + 1 == count, after, lowest)
    finally:
        PyBuffer_Release(&cells)


cdef class CopyRun:
    """See append.pyi."""

    cdef readonly int64_t size, batches, records, first_offset, last_offset
    cdef readonly int stopped
    cdef readonly list epochs
    cdef int64_t _codec, _epoch, _end
    cdef bint _plain

    def __cinit__(self, *, int64_t codec=-1, bint plain=False):
        self._codec = codec
        self._plain = plain
        self._epoch = -1
        self._end = 0
        self.epochs = []

    cdef inline bint is_wanted(self, const int64_t *row, int64_t lowest, int64_t highest) noexcept nogil:
        if row[SUSPECT] & (S_CRC | S_MAGIC | S_LIMIT) or row[MAGIC] != 2 or row[COUNT] < 0:
            return False
        if row[BASE_OFFSET] < lowest or row[LAST_OFFSET] > highest or row[LAST_OFFSET] < row[BASE_OFFSET]:
            return False
        if self._plain and (row[PRODUCER_ID] != -1 or row[ATTRIBUTES] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)):
            return False
        # Markers are never compressed (MemoryRecords.withEndTransactionMarker).
        return self._codec < 0 or row[ATTRIBUTES] & CODEC_MASK == self._codec or row[ATTRIBUTES] & CONTROL_FLAG != 0

    def take(self, rows, Py_ssize_t start, Py_ssize_t count, int64_t lowest, int64_t highest, int64_t room,
             int64_t top, bint empty, int64_t after=-1):
        """See append.pyi."""
        cdef Py_buffer cells
        cdef const int64_t *row
        cdef Py_ssize_t i = start
        self.size = self.batches = self.records = 0
        self.stopped = STOP_END
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            if start < 0 or count > cells.len // (BATCH_WIDTH * 8):
                raise ValueError("no such rows")
            while i < count:
                row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                if not self.is_wanted(row, lowest, highest) or is_ahead(row, i + 1 == count, after, lowest) \
                        or (i > start and row[POSITION] != row[POSITION - BATCH_WIDTH] + row[SIZE - BATCH_WIDTH]):
                    self.stopped = STOP_OTHER
                    break
                if row[LAST_OFFSET] > top or (row[SIZE] > room - self.size and (self.size or not empty)):
                    self.stopped = STOP_FULL
                    break
                if not self.size:
                    self.first_offset = row[BASE_OFFSET]
                self.note_epoch(row[EPOCH], row[BASE_OFFSET], row[LAST_OFFSET])
                self.size += row[SIZE]
                self.batches += 1
                self.records += row[COUNT]
                self.last_offset = row[LAST_OFFSET]
                lowest = row[LAST_OFFSET] + 1
                i += 1
        finally:
            PyBuffer_Release(&cells)
        return i

    cdef inline int note_epoch(self, int64_t epoch, int64_t offset, int64_t last) except -1:
        if epoch != self._epoch and epoch >= 0:
            self._epoch = epoch
            self.epochs.append((epoch, offset, self._end))
        self._end = last + 1
        return 0

    def note(self, int64_t epoch, int64_t offset, int64_t last):
        """See append.pyi."""
        self.note_epoch(epoch, offset, last)
