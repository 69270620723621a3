from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

# The result of a pass over the records of one batch. An index is -1 where the pass found nothing.
cdef struct RecordsDiagnosis:
    int64_t status          # 0, or one of STATUSES
    int64_t status_at       # byte of the payload with the defect
    int64_t status_record   # index of that record
    int64_t records         # valid records
    int64_t headers         # headers of the valid records
    int64_t max_timestamp   # largest record timestamp, NO_VALUE without records
    int64_t varint_record   # first record with a varint that is not canonical
    int64_t delta_record    # first record whose offset breaks the order or the range
    int64_t delta_offset    # ... and that offset (delta)
    int32_t marker          # type of a valid first control record, -1: none
    int32_t coordinator_epoch  # ... when it ends a transaction
    int64_t inner_crc       # legacy: first inner message with a wrong CRC
    int64_t inner_magic     # legacy: inner messages whose magic is not the wrapper's
    bint holes              # legacy: offsets are missing between inner messages
    int64_t partial         # legacy: bytes of a partial last inner message
    int64_t trailing        # legacy: first message with bytes after its value
    int64_t first_offset    # wrapper: offset in the log of its first message, where its offsets are in order

cdef struct Message:
    int64_t magic
    int64_t attributes
    int64_t timestamp
    int64_t key_at
    int64_t key_size
    int64_t value_at
    int64_t value_size
    int64_t trailing

# The kind of batch that the records have to match.
# For a broker, the first control record of a producer ends a transaction.
cdef enum:
    PLAIN, CONTROL, CONTROL_OF_PRODUCER

cdef void validate_batch(const uint8_t *start, const uint8_t *end, int64_t count, int64_t last_offset_delta,
                         int64_t base_timestamp, int control, RecordsDiagnosis *diagnosis) noexcept nogil
cdef bint parse_message(const uint8_t *entry, int64_t total, Message *message) noexcept nogil
cdef void validate_message(const uint8_t *entry, int64_t total, RecordsDiagnosis *diagnosis) noexcept nogil
cdef void validate_wrapped(const uint8_t *start, const uint8_t *end, int64_t wrapper_magic, int64_t wrapper_offset,
                           RecordsDiagnosis *diagnosis) noexcept nogil

cdef struct MessageScan:
    int64_t count   # messages that can be decoded
    int64_t shift   # what their offsets count from
    int64_t status  # 0, or one of STATUSES
    int64_t at      # byte of the payload with the defect

cdef void scan_messages(const uint8_t *start, const uint8_t *end, int64_t wrapper_magic, int64_t wrapper_offset,
                        MessageScan *scan) noexcept nogil

# What can be wrong with the bytes of records; kdump.kernel.records.STATUSES has the names.
cdef enum:
    RECORD_LENGTH = 1
    VARINT
    KEY_LENGTH
    VALUE_LENGTH
    HEADER_COUNT
    HEADER_KEY
    HEADER_VALUE
    BODY_END
    MISSING
    LEFTOVER
    CONTROL_KEY
    CONTROL_VALUE
    MESSAGE_FIELDS
    WRAPPER_SIZE
    WRAPPER_MAGIC
    WRAPPER_NESTED
    WRAPPER_EMPTY
    WRAPPER_OFFSET
    CONTROL_TYPE


# The walk over the records of a batch of magic 2, once for all modules of the kernel.

# Readers of varints. They return the address after the varint, or NULL for one that is too long or does not end before
# `end`. They set `odd` for an encoding that is not the shortest. Inline code reads varints of one and two bytes, which
# are nearly all.
cdef const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int32_t *value, bint *odd) noexcept nogil
cdef const uint8_t *long_varlong(const uint8_t *p, const uint8_t *end, int64_t *value, bint *odd) noexcept nogil


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


# Checks one record between its length prefix and `end`. Returns 0 or a status, with `at` at the field with the defect.
cdef struct Fields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size
    int32_t value_size
    int32_t header_count
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers
    const uint8_t *at


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
