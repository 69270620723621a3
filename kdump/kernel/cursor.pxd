# One cursor over the batches of a log (kdump.format.batch), one over the records of a batch of magic 2
# (kdump.format.record), one over the headers of a record, and one over messages of magic 0 and 1 (kdump.format.legacy):
# what walks them in the kernel is a loop over these.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kdump.kernel.layout cimport (
    BAD_CRC, BAD_MAGIC, CODEC_MASK, LENGTH, LIMIT, LOG_OVERHEAD, MAGIC_AT, MESSAGE_ATTRIBUTES_AT, MINIMUM_LENGTH_0,
    NO_VALUE, OVERRUN, UP_TO_MAGIC, VALID, be64, checksum, last_offset_of, minimum, stored_crc, total_of,
)
from kdump.kernel.records cimport (
    BODY_END, HEADER_COUNT, HEADER_KEY, HEADER_VALUE, KEY_LENGTH, MISSING, RECORD_LENGTH, VALUE_LENGTH, VARINT,
    Message, long_varint, long_varlong, parse_message,
)

# A batch of magic 2, or a message of magic 0 or 1, which lies in the log like one. UP_TO_MAGIC bytes of it are there.


cdef inline int batch_length(const uint8_t *p, int64_t left, int64_t largest, int64_t *total) noexcept nogil:
    """Return VALID where a batch of the length that the header says can lie here: LENGTH, OVERRUN or LIMIT if not.

    `left`: the bytes up to the end of the file. Sets `total`, the size that the batch claims.
    """
    total[0] = total_of(p)
    if total[0] - LOG_OVERHEAD < minimum(p[MAGIC_AT]):
        return LENGTH
    if total[0] > left:
        return OVERRUN
    return LIMIT if total[0] > largest else VALID


cdef inline int batch_check(const uint8_t *p, int64_t total, uint32_t *computed) noexcept nogil:
    """Return VALID for a batch with the right checksum and a known magic, else BAD_CRC or BAD_MAGIC."""
    computed[0] = checksum(p, total)
    if computed[0] != stored_crc(p):
        return BAD_CRC
    return BAD_MAGIC if p[MAGIC_AT] > 2 else VALID


cdef inline int64_t whole_batch(const uint8_t *p, int64_t left, int64_t largest) noexcept nogil:
    """Return the size of the batch at p by its header, 0 where none can lie here."""
    cdef int64_t total
    return total if batch_length(p, left, largest, &total) == VALID and p[MAGIC_AT] <= 2 else 0


cdef inline bint has_right_crc(const uint8_t *p, int64_t total) noexcept nogil:
    return checksum(p, total) == stored_crc(p)


cdef struct Batch:
    int64_t size
    int64_t first     # NO_VALUE for a wrapper message, which does not store it
    int64_t last


cdef inline bint read_batch(const uint8_t *p, int64_t total, Batch *b) noexcept nogil:
    """Read the batch of that size at p; False where its checksum is wrong, or no log can have its offsets."""
    if not has_right_crc(p, total):
        return False
    b.size = total
    b.first = b.last = be64(p)
    if p[MAGIC_AT] == 2:
        b.last = last_offset_of(p)
        return b.first >= 0 and b.last >= b.first
    if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
        b.first = NO_VALUE
    return b.last >= 0


cdef inline bint follows(const Batch *b, int64_t last) noexcept nogil:
    """Whether the offsets of a batch rise above those before it."""
    return b.last > last and (b.first == NO_VALUE or b.first > last)


cdef inline bint next_batch(const uint8_t **p, const uint8_t *end, int64_t last, Batch *b) noexcept nogil:
    """Read the valid batch at p whose offsets rise above `last`, and move p after it. False where none lies there."""
    cdef int64_t left = end - p[0], total
    if left < UP_TO_MAGIC:
        return False
    total = whole_batch(p[0], left, left)
    if total == 0 or not read_batch(p[0], total, b) or not follows(b, last):
        return False
    p[0] += total
    return True


# Readers of varints. They return the address after the varint, or NULL for one that is too long or does not end before
# `end`. They set `odd` for an encoding that is not the shortest. Inline code reads varints of one and two bytes, which
# are nearly all.


cdef inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int32_t *value, bint *odd) noexcept nogil:
    cdef uint32_t result
    if end - p >= 2:
        result = p[0]
        if result < 0x80:
            value[0] = <int32_t> (result >> 1) ^ -<int32_t> (result & 1)
            return p + 1
        if <uint8_t> (p[1] - 1) < 0x7f:  # the last byte, and not zero
            result = (result & 0x7f) | <uint32_t> p[1] << 7
            value[0] = <int32_t> (result >> 1) ^ -<int32_t> (result & 1)
            return p + 2
    return long_varint(p, end, value, odd)


cdef inline const uint8_t *varlong(const uint8_t *p, const uint8_t *end, int64_t *value, bint *odd) noexcept nogil:
    cdef uint64_t result
    if end - p >= 2:
        result = p[0]
        if result < 0x80:
            value[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
            return p + 1
        if <uint8_t> (p[1] - 1) < 0x7f:
            result = (result & 0x7f) | <uint64_t> p[1] << 7
            value[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
            return p + 2
    return long_varlong(p, end, value, odd)


# A record.
cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    const uint8_t *body     # after the length prefix: the attributes
    const uint8_t *at       # the field with a defect


# Checks one record between its length prefix and `end`. Returns 0 or a status, with `at` at the field with the defect.
cdef inline int walk_record(const uint8_t *p, const uint8_t *end, Fields *f, bint *odd) noexcept nogil:
    cdef int32_t size, left
    f.at = p
    if p >= end:
        return BODY_END
    p += 1  # attributes: unused, any value
    f.at = p
    p = varlong(p, end, &f.timestamp_delta, odd)
    if p == NULL:
        return VARINT
    f.at = p
    p = varint(p, end, &f.offset_delta, odd)
    if p == NULL:
        return VARINT
    f.at = p
    p = varint(p, end, &size, odd)
    if p == NULL:
        return VARINT
    f.key = p
    f.key_size = size
    if size > 0:
        if size > end - p:
            return KEY_LENGTH
        p += size
    f.at = p
    p = varint(p, end, &size, odd)
    if p == NULL:
        return VARINT
    f.value = p
    f.value_size = size
    if size > 0:
        if size > end - p:
            return VALUE_LENGTH
        p += size
    f.at = p
    p = varint(p, end, &left, odd)
    if p == NULL:
        return VARINT
    if left < 0 or left > end - p:
        return HEADER_COUNT
    f.header_count = left
    f.headers = p
    while left > 0:
        f.at = p
        p = varint(p, end, &size, odd)
        if p == NULL:
            return VARINT
        if size < 0 or size > end - p:
            return HEADER_KEY
        p += size
        f.at = p
        p = varint(p, end, &size, odd)
        if p == NULL:
            return VARINT
        if size > 0:
            if size > end - p:
                return HEADER_VALUE
            p += size
        left -= 1
    f.at = p
    return 0 if p == end else BODY_END


# The same check where at least SLACK readable bytes are after the record. It reads varints without a comparison with
# `end`. The other comparisons and the last one find a field that goes past the end. Consecutive varints without a
# length between them take a dozen bytes. False: not valid, or not certain.
# A walk of its own: as one function, compiled for two bounds, verify --deep took 1.04 times as long.
cdef enum:
    SLACK = 32


cdef inline const uint8_t *near_varint(const uint8_t *p, const uint8_t *end, int32_t *value, bint *odd) noexcept nogil:
    cdef uint32_t result = p[0]
    if result < 0x80:
        value[0] = <int32_t> (result >> 1) ^ -<int32_t> (result & 1)
        return p + 1
    if <uint8_t> (p[1] - 1) < 0x7f:
        result = (result & 0x7f) | <uint32_t> p[1] << 7
        value[0] = <int32_t> (result >> 1) ^ -<int32_t> (result & 1)
        return p + 2
    return long_varint(p, end, value, odd)


cdef inline const uint8_t *near_varlong(const uint8_t *p, const uint8_t *end, int64_t *value, bint *odd) noexcept nogil:
    cdef uint64_t result = p[0]
    if result < 0x80:
        value[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
        return p + 1
    if <uint8_t> (p[1] - 1) < 0x7f:
        result = (result & 0x7f) | <uint64_t> p[1] << 7
        value[0] = <int64_t> (result >> 1) ^ -<int64_t> (result & 1)
        return p + 2
    return long_varlong(p, end, value, odd)


cdef inline bint is_valid(const uint8_t *p, const uint8_t *end, Fields *f, bint *odd) noexcept nogil:
    cdef int32_t size = 0, left = 0
    p = near_varlong(p + 1, end, &f.timestamp_delta, odd)
    if p == NULL:
        return False
    p = near_varint(p, end, &f.offset_delta, odd)
    if p == NULL:
        return False
    p = near_varint(p, end, &size, odd)
    if p == NULL:
        return False
    f.key = p
    f.key_size = size
    if size > 0:
        if size > end - p:
            return False
        p += size
    p = near_varint(p, end, &size, odd)
    if p == NULL:
        return False
    f.value = p
    f.value_size = size
    if size > 0:
        if size > end - p:
            return False
        p += size
    p = near_varint(p, end, &left, odd)
    if p == NULL or left < 0 or left > end - p:
        return False
    f.header_count = left
    f.headers = p
    while left > 0:
        if end - p < 2:
            return False
        p = near_varint(p, end, &size, odd)
        if p == NULL or size < 0 or size > end - p:
            return False
        p = near_varint(p + size, end, &size, odd)
        if p == NULL:
            return False
        if size > 0:
            if size > end - p:
                return False
            p += size
        left -= 1
    return p == end


# Moves p to the body of the record at p. Returns the end of the record, or NULL with a status.
cdef inline const uint8_t *record_end(const uint8_t **p, const uint8_t *end, int *status, bint *odd) noexcept nogil:
    cdef int32_t size = 0
    cdef const uint8_t *body
    if p[0] >= end:
        status[0] = MISSING
        return NULL
    body = varint(p[0], end, &size, odd)
    if body == NULL:
        status[0] = VARINT
        return NULL
    if size < 0 or size > end - body:
        status[0] = RECORD_LENGTH
        return NULL
    p[0] = body
    return body + size


cdef inline const uint8_t *next_record(const uint8_t **p, const uint8_t *end, Fields *f, int *status,
                                       bint *odd) noexcept nogil:
    """Read the record at p, and move p after it. Returns its end; NULL where it is not valid, with a status."""
    cdef bint long_length
    cdef const uint8_t *stop = record_end(p, end, status, odd)
    f.body = p[0]
    if stop == NULL:
        f.at = p[0]
        return NULL
    long_length = odd[0]
    if end - stop < SLACK or not is_valid(p[0], stop, f, odd):
        odd[0] = long_length
        status[0] = walk_record(p[0], stop, f, odd)
        if status[0]:
            return NULL
    p[0] = stop
    return stop


# As near_varint and near_varlong, of a varint whose encoding does not matter. No address of `value` goes to a function:
# the compiler keeps it in a register.


cdef inline int32_t zigzag(uint32_t two) noexcept nogil:
    return <int32_t> (two >> 1) ^ -<int32_t> (two & 1)


cdef inline const uint8_t *any_varint(const uint8_t *p, const uint8_t *end, int32_t *value) noexcept nogil:
    cdef uint32_t two = p[0] | <uint32_t> p[1] << 8
    cdef int32_t other
    cdef bint odd
    if not two & 0x80:
        value[0] = zigzag(two & 0x7f)
        return p + 1
    if not two & 0x8000:
        value[0] = zigzag((two & 0x7f) | two >> 1 & 0x3f80)
        return p + 2
    other = 0
    odd = False
    p = long_varint(p, end, &other, &odd)
    value[0] = other
    return p


cdef inline const uint8_t *any_varlong(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    cdef uint32_t two = p[0] | <uint32_t> p[1] << 8
    cdef int64_t other
    cdef bint odd
    if not two & 0x80:
        value[0] = zigzag(two & 0x7f)
        return p + 1
    if not two & 0x8000:
        value[0] = zigzag((two & 0x7f) | two >> 1 & 0x3f80)
        return p + 2
    other = 0
    odd = False
    p = long_varlong(p, end, &other, &odd)
    value[0] = other
    return p


cdef inline const uint8_t *near_key_and_value(const uint8_t *p, const uint8_t *after, Fields *f) noexcept nogil:
    """As next_key_and_value, where SLACK readable bytes are after the record; NULL: not valid, or not certain."""
    cdef int32_t size = 0
    cdef const uint8_t *stop
    if after - p < SLACK:
        return NULL
    p = any_varint(p, after, &size)
    if p == NULL or size <= 0 or size > after - p - SLACK:
        return NULL
    stop = p + size
    p = any_varlong(p + 1, after, &f.timestamp_delta)
    if p == NULL:
        return NULL
    p = any_varint(p, after, &f.offset_delta)
    if p == NULL:
        return NULL
    p = any_varint(p, after, &f.key_size)
    if p == NULL:
        return NULL
    f.key = p
    if f.key_size > 0:
        if f.key_size > stop - p:
            return NULL
        p += f.key_size
    p = any_varint(p, after, &f.value_size)
    if p == NULL or p > stop or f.value_size > stop - p:
        return NULL
    return stop


cdef inline const uint8_t *far_key_and_value(const uint8_t *p, const uint8_t *end, Fields *f,
                                             int *status) noexcept nogil:
    """As next_key_and_value, where nothing needs to be readable after `end`."""
    cdef bint odd = False
    cdef const uint8_t *stop = record_end(&p, end, status, &odd)
    if stop == NULL:
        return NULL
    if stop == p:
        status[0] = BODY_END
        return NULL
    status[0] = VARINT
    p = varlong(p + 1, stop, &f.timestamp_delta, &odd)
    if p != NULL:
        p = varint(p, stop, &f.offset_delta, &odd)
    if p != NULL:
        p = varint(p, stop, &f.key_size, &odd)
    if p == NULL:
        return NULL
    f.key = p
    if f.key_size > 0:
        if f.key_size > stop - p:
            status[0] = KEY_LENGTH
            return NULL
        p += f.key_size
    p = varint(p, stop, &f.value_size, &odd)
    if p == NULL:
        return NULL
    if f.value_size > stop - p:
        status[0] = VALUE_LENGTH
        return NULL
    status[0] = 0
    return stop


cdef inline const uint8_t *next_key_and_value(const uint8_t *p, const uint8_t *end, const uint8_t *after, Fields *f,
                                              int *status) noexcept nogil:
    """Read the record at p up to its value; what its headers are is not looked at.

    `after`: where the readable bytes end. Sets the sizes, the deltas and `key` alone. Returns the end of the record;
    NULL, with a status, where a field goes past it.
    """
    cdef Fields far
    cdef const uint8_t *stop = near_key_and_value(p, after, f)
    if stop == NULL or stop > end:
        stop = far_key_and_value(p, end, &far, status)
        f[0] = far
    return stop


cdef struct Header:
    const uint8_t *key
    const uint8_t *value
    int32_t key_size
    int32_t value_size  # negative: null


cdef inline const uint8_t *next_header(const uint8_t *p, const uint8_t *stop, Header *h) noexcept nogil:
    """Read the header at p of a valid record that ends at `stop`; returns the address after it."""
    cdef bint odd = False
    h.key = varint(p, stop, &h.key_size, &odd)
    h.value = varint(h.key + h.key_size, stop, &h.value_size, &odd)
    return h.value + h.value_size if h.value_size > 0 else h.value


cdef inline int64_t whole_message(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return the size of the message at p, 0 where none lies whole before `end`."""
    cdef int64_t total
    if end - p < LOG_OVERHEAD + MINIMUM_LENGTH_0:
        return 0
    total = total_of(p)
    return total if LOG_OVERHEAD + MINIMUM_LENGTH_0 <= total <= end - p else 0


cdef inline int64_t next_message(const uint8_t **p, const uint8_t *end, Message *m) noexcept nogil:
    """Read the message at p, and move p after it. Returns its size, 0 where none is that can be read."""
    cdef int64_t total = whole_message(p[0], end)
    if total == 0 or not parse_message(p[0], total, m):
        return 0
    p[0] += total
    return total
