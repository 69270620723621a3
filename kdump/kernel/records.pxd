from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kdump.kernel.layout cimport (
    DELTA_OFFSET, DELTA_RECORD, FOUND_TIMESTAMP, INNER_CRC, PARTIAL, STATUS, STATUS_AT, STATUS_RECORD, TRAILING,
    VARINT_RECORD,
)

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

cdef inline void copy_diagnosis(int64_t *row, RecordsDiagnosis *v) noexcept nogil:
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


# What kdump.kernel.cursor does not read inline.
cdef const uint8_t *long_varint(const uint8_t *p, const uint8_t *end, int32_t *value, bint *odd) noexcept nogil
cdef const uint8_t *long_varlong(const uint8_t *p, const uint8_t *end, int64_t *value, bint *odd) noexcept nogil
