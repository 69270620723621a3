# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Checks the records of one batch (`validate_*`), or decodes them to rows of integers (`decode_*`).

kdump.format.record (magic 2) and kdump.format.legacy (magic 0 and 1) describe the layouts. The length prefix of a
record gives the start of the next one, and the fields have to end exactly there. So the CPU can work on several
records at once. Inner functions work on (pointer, end), compare a length with the bytes that remain, and never raise.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kdump.kernel.crc cimport crc32_of
from kdump.kernel.cursor cimport Fields, Header, next_header, next_message, next_record
from kdump.kernel.layout cimport (
    BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, CODEC_MASK, HEADER, HEADER_WIDTH, KEY_LENGTH_AT, LENGTH_AT, LOG_APPEND_TIME,
    LOG_OVERHEAD, MAGIC_AT, MAX_TIMESTAMP_AT, MESSAGE_ATTRIBUTES_AT, MESSAGE_CRC_AT, MINIMUM_LENGTH_0, NO_VALUE, R_AT,
    R_ATTRIBUTES, R_COMPUTED_CRC, R_CRC, R_HEADER_AT, R_HEADER_COUNT, R_KEY_AT, R_KEY_SIZE, R_MAGIC, R_OFFSET, R_SIZE,
    R_TIMESTAMP, R_VALUE_AT, R_VALUE_SIZE, RECORD_WIDTH, RECORDS_COUNT_AT, SEQUENCE_MASK, attributes_of, be16, be32,
    be64, total_of,
)

# A status is an index into this tuple.
STATUSES = (
    "", "record-length", "varint", "key-length", "value-length", "header-count", "header-key", "header-value",
    "body-end", "missing", "leftover", "control-key", "control-value", "message-fields", "wrapper-size",
    "wrapper-magic", "wrapper-nested", "wrapper-empty", "wrapper-offset", "control-type",
)
# A decoded record. Positions count from the start of the payload. The size of null is -1.
RECORD_COLUMNS = (
    "at", "size", "offset", "timestamp", "key_at", "key_size", "value_at", "value_size", "header_at", "header_count",
    "magic", "crc", "computed_crc", "attributes",
)
HEADER_COLUMNS = ("key_at", "key_size", "value_at", "value_size")
assert len(RECORD_COLUMNS) == RECORD_WIDTH and len(HEADER_COLUMNS) == HEADER_WIDTH \
    and STATUSES.index("control-type") == CONTROL_TYPE


# What kdump.kernel.cursor does not read inline.
cdef const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int32_t *value, bint *odd) noexcept nogil:
    cdef uint32_t result = 0, byte
    cdef int shift = 0
    while True:
        if p >= end or shift > 28:
            return NULL
        byte = p[0]
        p += 1
        result |= (byte & 0x7f) << shift
        if byte < 0x80:
            break
        shift += 7
    if (byte == 0 and shift > 0) or (shift == 28 and byte > 0x0f):
        odd[0] = True
    value[0] = <int32_t> (result >> 1) ^ -<int32_t> (result & 1)
    return p


cdef const uint8_t *long_varlong(const uint8_t *p, const uint8_t *end, int64_t *value, bint *odd) noexcept nogil:
    cdef uint64_t result = 0, byte
    cdef int shift = 0
    while True:
        if p >= end or shift > 63:
            return NULL
        byte = p[0]
        p += 1
        result |= (byte & 0x7f) << shift
        if byte < 0x80:
            break
        shift += 7
    if (byte == 0 and shift > 0) or (shift == 63 and byte > 1):
        odd[0] = True
    value[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
    return p


cdef inline int control_status(Fields *f) noexcept nogil:
    cdef int32_t kind
    if f.key_size < 4 or be16(f.key) < 0:
        return CONTROL_KEY
    kind = be16(f.key + 2)
    if (kind == 0 or kind == 1) and (f.value_size < 6 or be16(f.value) < 0):
        return CONTROL_VALUE
    return 0


cdef inline void clear(RecordsDiagnosis *v) noexcept nogil:
    v.status = v.status_at = v.records = v.headers = v.inner_magic = v.partial = v.delta_offset = 0
    v.status_record = v.varint_record = v.delta_record = v.inner_crc = v.trailing = -1
    v.max_timestamp = NO_VALUE
    v.holes = False
    v.marker = v.coordinator_epoch = -1


cdef void validate_batch(const uint8_t *start, const uint8_t *end, int64_t count, int64_t last_offset_delta,
                         int64_t base_timestamp, int control, RecordsDiagnosis *v) noexcept nogil:
    cdef const uint8_t *p = start
    cdef Fields f
    cdef int status = 0, control_problem = 0
    cdef int64_t i, previous = -1, timestamp, highest = NO_VALUE, headers = 0
    cdef int64_t varint_record = -1, delta_record = -1, valid = 0
    cdef bint odd = False
    clear(v)
    for i in range(count):
        if next_record(&p, end, &f, &status, &odd) == NULL:
            break
        timestamp = <int64_t> (<uint64_t> base_timestamp + <uint64_t> f.timestamp_delta)
        if timestamp > highest:
            highest = timestamp
        if (f.offset_delta <= previous or f.offset_delta > last_offset_delta) and delta_record < 0:
            delta_record = i
            v.delta_offset = f.offset_delta
        previous = f.offset_delta
        headers += f.header_count
        valid = i + 1
        if odd:
            odd = False
            if varint_record < 0:
                varint_record = i
        if control and control_problem == 0:
            control_problem = control_status(&f)
            if i == 0 and control_problem == 0:
                v.marker = be16(f.key + 2)
                if v.marker == 0 or v.marker == 1:
                    v.coordinator_epoch = be32(f.value + 2)
                elif control == CONTROL_OF_PRODUCER:
                    control_problem = CONTROL_TYPE
            if control_problem:
                v.status_record = i
                v.status_at = f.key - start
    if count > 0 and status == 0 and p != end:
        status = LEFTOVER
        f.at = p
    v.records = valid
    if status:
        v.status_record = valid
        v.status_at = f.at - start
        control_problem = 0
        if count == 1:
            v.marker = -1  # Kafka's reader checks for bytes after the last record
    v.status = status if status else control_problem
    v.headers = headers
    v.max_timestamp = highest
    v.varint_record = varint_record
    v.delta_record = delta_record


cdef bint parse_message(const uint8_t *entry, int64_t total, Message *m) noexcept nogil:
    """Read the fields of a message; False where their lengths do not match its size."""
    cdef const uint8_t *p = entry + KEY_LENGTH_AT
    cdef const uint8_t *end = entry + total
    cdef int64_t size
    m.magic = <int8_t> entry[MAGIC_AT]
    m.attributes = entry[MESSAGE_ATTRIBUTES_AT]
    m.timestamp = -1
    m.key_size = m.value_size = -1
    m.key_at = m.value_at = total
    m.trailing = 0
    if m.magic == 1:
        if end - p < 8:
            return False
        m.timestamp = be64(p)
        p += 8
    if end - p < 4:
        return False
    size = be32(p)
    p += 4
    m.key_at = p - entry
    if size >= 0:
        if size > end - p:
            return False
        m.key_size = size
        p += size
    if end - p < 4:
        return False
    size = be32(p)
    p += 4
    m.value_at = p - entry
    if size >= 0:
        if size > end - p:
            return False
        m.value_size = size
        p += size
    m.trailing = end - p
    return True


cdef void validate_message(const uint8_t *entry, int64_t total, RecordsDiagnosis *v) noexcept nogil:
    cdef Message m
    clear(v)
    if not parse_message(entry, total, &m):
        v.status = MESSAGE_FIELDS
        v.status_at = KEY_LENGTH_AT
        v.status_record = 0
        return
    v.records = 1
    v.max_timestamp = m.timestamp
    if m.trailing:
        v.trailing = 0


cdef void validate_wrapped(const uint8_t *start, const uint8_t *end, int64_t wrapper_magic, int64_t wrapper_offset,
                           RecordsDiagnosis *v) noexcept nogil:
    cdef const uint8_t *p = start
    cdef int64_t total, offset = 0, previous = -1, size, i = 0
    cdef Message m
    clear(v)
    while end - p >= LOG_OVERHEAD:
        size = be32(p + LENGTH_AT)
        if size < MINIMUM_LENGTH_0:
            v.status = WRAPPER_SIZE
            break
        total = size + LOG_OVERHEAD
        if total > end - p:
            break
        offset = be64(p)
        m.magic = <int8_t> p[MAGIC_AT]
        if m.magic != 0 and m.magic != 1:
            v.status = WRAPPER_MAGIC
            break
        if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            v.status = WRAPPER_NESTED
            break
        if <uint32_t> be32(p + MESSAGE_CRC_AT) != crc32_of(p + MAGIC_AT, total - MAGIC_AT) and v.inner_crc < 0:
            v.inner_crc = i
        if not parse_message(p, total, &m):
            v.status = MESSAGE_FIELDS
            break
        if m.trailing and v.trailing < 0:
            v.trailing = i
        if m.magic != wrapper_magic:
            v.inner_magic += 1
        if m.magic == 1 and m.timestamp > v.max_timestamp:
            v.max_timestamp = m.timestamp
        if offset <= previous and v.delta_record < 0:
            v.delta_record = i
            v.delta_offset = offset
        elif i > 0 and offset > previous + 1:
            v.holes = True
        previous = offset
        i += 1
        v.records = i
        p += total
    if v.status:
        v.status_at = p - start
        v.status_record = i
        return
    v.partial = end - p
    v.first_offset = be64(start) if i else 0
    if wrapper_magic == 1 and wrapper_offset != 0:
        v.first_offset = <int64_t> (<uint64_t> v.first_offset + <uint64_t> wrapper_offset - <uint64_t> offset)
    if i == 0:
        v.status = WRAPPER_EMPTY
        v.status_record = 0
    elif wrapper_magic == 1 and wrapper_offset != 0 and wrapper_offset < offset:
        v.status = WRAPPER_OFFSET
        v.status_record = i - 1
    elif wrapper_magic == 0 and offset != wrapper_offset and v.delta_record < 0:
        v.delta_record = i - 1
        v.delta_offset = offset


cdef object _rows(Py_ssize_t count, Py_ssize_t width):
    return PyBytes_FromStringAndSize(NULL, count * width * 8)


cdef const uint8_t *fill(const uint8_t *start, const uint8_t *p, const uint8_t *end, int64_t count,
                         int64_t base_offset, int64_t base_timestamp, const int64_t *append_ms, int64_t *row,
                         int64_t *cell) noexcept nogil:
    """Write the rows of valid records from `p` on; returns the end of the last one."""
    cdef Fields f
    cdef Header field
    cdef const uint8_t *stop
    cdef const uint8_t *h
    cdef int64_t i, j, at, header = 0
    cdef int status = 0
    cdef bint odd = False
    for i in range(count):
        at = p - start
        stop = next_record(&p, end, &f, &status, &odd)
        row[R_ATTRIBUTES] = f.body[0]
        row[R_AT] = at
        row[R_SIZE] = p - start - at
        row[R_OFFSET] = <int64_t> (<uint64_t> base_offset + <uint64_t> <int64_t> f.offset_delta)
        row[R_TIMESTAMP] = append_ms[0] if append_ms != NULL \
            else <int64_t> (<uint64_t> base_timestamp + <uint64_t> f.timestamp_delta)
        row[R_KEY_AT] = f.key - start
        row[R_KEY_SIZE] = f.key_size if f.key_size >= 0 else -1
        row[R_VALUE_AT] = f.value - start
        row[R_VALUE_SIZE] = f.value_size if f.value_size >= 0 else -1
        row[R_HEADER_AT] = header
        row[R_HEADER_COUNT] = f.header_count
        row[R_MAGIC] = 2
        row[R_CRC] = row[R_COMPUTED_CRC] = NO_VALUE
        row += RECORD_WIDTH
        h = f.headers
        for j in range(f.header_count):
            h = next_header(h, stop, &field)
            cell[0] = field.key - start
            cell[1] = field.key_size
            cell[2] = field.value - start
            cell[3] = field.value_size if field.value_size >= 0 else -1
            cell += HEADER_WIDTH
        header += f.header_count
    return p


def decode(payload, int64_t count, int64_t base_offset, int64_t base_timestamp, log_append_ms=None):
    cdef Py_buffer view
    cdef RecordsDiagnosis v
    cdef const uint8_t *start
    cdef int64_t append_ms = 0
    if log_append_ms is not None:
        append_ms = log_append_ms
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        validate_batch(start, start + view.len, count, 2147483647, base_timestamp, PLAIN, &v)
        rows = _rows(v.records, RECORD_WIDTH)
        headers = _rows(v.headers, HEADER_WIDTH)
        fill(start, start, start + view.len, v.records, base_offset, base_timestamp,
             NULL if log_append_ms is None else &append_ms, <int64_t *> PyBytes_AsString(rows),
             <int64_t *> PyBytes_AsString(headers))
    finally:
        PyBuffer_Release(&view)
    return rows, headers, v.status, v.status_at


def count_records(payload, int64_t count):
    cdef Py_buffer view
    cdef RecordsDiagnosis v
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        validate_batch(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, count, 2147483647, 0, PLAIN,
                       &v)
    finally:
        PyBuffer_Release(&view)
    return v.records, v.status


def decode_piece(payload, int64_t at, int64_t count, int64_t most_headers, int64_t base_offset, int64_t base_timestamp,
                 log_append_ms=None):
    cdef Py_buffer view
    cdef Fields f
    cdef const uint8_t *start
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t records = 0, header_count = 0, append_ms = 0
    cdef int status = 0
    cdef bint odd = False
    if log_append_ms is not None:
        append_ms = log_append_ms
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or at > view.len:
            raise ValueError("at")
        start = <const uint8_t *> view.buf
        p = start + at
        end = start + view.len
        while records < count:
            if next_record(&p, end, &f, &status, &odd) == NULL:
                break
            if records > 0 and f.header_count > most_headers - header_count:
                break
            header_count += f.header_count
            records += 1
        rows = _rows(records, RECORD_WIDTH)
        headers = _rows(header_count, HEADER_WIDTH)
        p = fill(start, start + at, end, records, base_offset, base_timestamp,
                 NULL if log_append_ms is None else &append_ms, <int64_t *> PyBytes_AsString(rows),
                 <int64_t *> PyBytes_AsString(headers))
        at = p - start
    finally:
        PyBuffer_Release(&view)
    return rows, headers, at


def first_record(batch, int64_t least):
    cdef Py_buffer view
    cdef Fields f
    cdef const uint8_t *head
    cdef const uint8_t *start
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef const uint8_t *h
    cdef int64_t i, at, offset, sequence, timestamp
    cdef Header field
    cdef int status = 0
    cdef bint odd = False
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        head = <const uint8_t *> view.buf
        if view.len < HEADER or head[MAGIC_AT] != 2 or attributes_of(head) & CODEC_MASK:
            return None
        start = p = head + HEADER
        for i in range(be32(head + RECORDS_COUNT_AT)):
            at = p - start
            stop = next_record(&p, head + view.len, &f, &status, &odd)
            if stop == NULL:
                return None
            offset = <int64_t> (<uint64_t> be64(head) + <uint64_t> <int64_t> f.offset_delta)
            if offset >= least:
                break
        else:
            return None
        sequence = be32(head + BASE_SEQUENCE_AT)
        if sequence >= 0 and f.offset_delta < 0:
            return None
        headers = []
        h = f.headers
        for i in range(f.header_count):
            h = next_header(h, stop, &field)
            name = PyBytes_FromStringAndSize(<const char *> field.key, field.key_size)
            headers.append((name, None if field.value_size < 0
                            else PyBytes_FromStringAndSize(<const char *> field.value, field.value_size)))
        timestamp = be64(head + MAX_TIMESTAMP_AT) if attributes_of(head) & LOG_APPEND_TIME \
            else <int64_t> (<uint64_t> be64(head + BASE_TIMESTAMP_AT) + <uint64_t> f.timestamp_delta)
        return (
            offset, timestamp, None if f.key_size < 0 else PyBytes_FromStringAndSize(<const char *> f.key, f.key_size),
            None if f.value_size < 0 else PyBytes_FromStringAndSize(<const char *> f.value, f.value_size),
            tuple(headers),
            (sequence + f.offset_delta) & SEQUENCE_MASK if sequence >= 0 else -1, 2, at, stop - start - at, None, None,
        )
    finally:
        PyBuffer_Release(&view)


cdef void scan_messages(const uint8_t *start, const uint8_t *end, int64_t wrapper_magic, int64_t wrapper_offset,
                        MessageScan *s) noexcept nogil:
    """Count messages, and read the last inner offset, from which relative offsets count back."""
    cdef Message m
    cdef const uint8_t *p = start
    cdef int64_t total, last = 0
    cdef bint wrapped = wrapper_magic >= 0
    s.count = s.shift = s.status = s.at = 0
    while end - p >= LOG_OVERHEAD:
        total = total_of(p)
        if total > end - p and total >= LOG_OVERHEAD + MINIMUM_LENGTH_0:
            break
        if total < LOG_OVERHEAD + MINIMUM_LENGTH_0:
            if s.status == 0:
                s.status = WRAPPER_SIZE
                s.at = p - start
            if wrapper_magic == 1 and wrapper_offset != 0:
                s.count = 0  # the last offset is not known
            break
        last = be64(p)
        if s.status == 0:
            s.at = p - start
            if p[MAGIC_AT] > 1:
                s.status = WRAPPER_MAGIC
            elif wrapped and p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
                s.status = WRAPPER_NESTED
            elif not parse_message(p, total, &m):
                s.status = MESSAGE_FIELDS
            else:
                s.count += 1
        p += total
    if s.status == 0:
        s.at = p - start
    if wrapped and s.count == 0 and s.status == 0:
        s.status = WRAPPER_EMPTY
    if wrapper_magic == 1 and wrapper_offset != 0:
        if wrapper_offset < last and s.status == 0:
            s.status = WRAPPER_OFFSET
        s.shift = <int64_t> (<uint64_t> wrapper_offset - <uint64_t> last)


cdef object fill_messages(const uint8_t *start, int64_t at, int64_t count, int64_t shift, log_append_ms):
    cdef Message m
    cdef const uint8_t *p = start + at
    cdef int64_t *row
    cdef int64_t total, i, append_ms = 0
    cdef bint appended = log_append_ms is not None
    if appended:
        append_ms = log_append_ms
    rows = _rows(count, RECORD_WIDTH)
    row = <int64_t *> PyBytes_AsString(rows)
    for i in range(count):
        total = total_of(p)
        parse_message(p, total, &m)
        row[R_AT] = p - start
        row[R_SIZE] = total
        row[R_OFFSET] = <int64_t> (<uint64_t> be64(p) + <uint64_t> shift)
        row[R_TIMESTAMP] = append_ms if appended and m.magic == 1 else m.timestamp
        row[R_KEY_AT] = row[R_AT] + m.key_at
        row[R_KEY_SIZE] = m.key_size
        row[R_VALUE_AT] = row[R_AT] + m.value_at
        row[R_VALUE_SIZE] = m.value_size
        row[R_HEADER_AT] = row[R_HEADER_COUNT] = 0
        row[R_MAGIC] = m.magic
        row[R_CRC] = <uint32_t> be32(p + MESSAGE_CRC_AT)
        row[R_COMPUTED_CRC] = crc32_of(p + MAGIC_AT, total - MAGIC_AT)
        row[R_ATTRIBUTES] = m.attributes
        row += RECORD_WIDTH
        p += total
    return rows


def decode_messages(payload, int64_t wrapper_magic=-1, int64_t wrapper_offset=0, log_append_ms=None):
    cdef Py_buffer view
    cdef MessageScan s
    cdef const uint8_t *start
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        scan_messages(start, start + view.len, wrapper_magic, wrapper_offset, &s)
        rows = fill_messages(start, 0, s.count, s.shift, log_append_ms)
    finally:
        PyBuffer_Release(&view)
    return rows, b"", s.status, s.at


def count_messages(payload, int64_t wrapper_magic, int64_t wrapper_offset):
    cdef Py_buffer view
    cdef MessageScan s
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        scan_messages(<const uint8_t *> view.buf, <const uint8_t *> view.buf + view.len, wrapper_magic, wrapper_offset,
                      &s)
    finally:
        PyBuffer_Release(&view)
    return s.count, s.shift, s.status


def decode_message_piece(payload, int64_t at, int64_t count, int64_t shift, log_append_ms=None):
    cdef Py_buffer view
    cdef Message m
    cdef const uint8_t *start
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t found = 0
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if at < 0 or at > view.len:
            raise ValueError("at")
        start = <const uint8_t *> view.buf
        p = start + at
        end = start + view.len
        while found < count and next_message(&p, end, &m):
            found += 1
        rows = fill_messages(start, at, found, shift, log_append_ms)
        at = p - start
    finally:
        PyBuffer_Release(&view)
    return rows, at
