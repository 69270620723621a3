from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

# What a pass over the records of one batch found. Indexes are -1 where nothing was found.
cdef struct Verdict:
    int64_t status          # 0, or one of STATUSES
    int64_t status_at       # byte in the payload that status speaks of
    int64_t status_record   # index of that record
    int64_t records         # records that parsed
    int64_t headers         # headers of the records that parsed
    int64_t max_timestamp   # largest record timestamp, INT64_MIN without records
    int64_t varint_record   # first record with a varint that is not canonical
    int64_t delta_record    # first record whose offset breaks the order or the range
    int64_t delta_offset    # ... and that offset (delta)
    int32_t marker          # type of a sound first control record, -1: none
    int32_t coordinator_epoch  # ... when it ends a transaction
    int64_t inner_crc       # legacy: first inner message with a wrong CRC
    int64_t inner_magic     # legacy: inner messages whose magic is not the wrapper's
    bint holes              # legacy: offsets are missing between inner messages
    int64_t partial         # legacy: bytes of a partial last inner message
    int64_t trailing        # legacy: first message with bytes after its value

cdef struct Message:
    int64_t magic
    int64_t attributes
    int64_t timestamp
    int64_t key_at
    int64_t key_size
    int64_t value_at
    int64_t value_size
    int64_t trailing

# What the records of a batch have to be. A broker takes the first control record of a producer for the end of a transaction.
cdef enum:
    PLAIN, CONTROL, CONTROL_OF_PRODUCER

cdef void validate_batch(const uint8_t *start, const uint8_t *end, int64_t count, int64_t last_offset_delta,
                         int64_t base_timestamp, int control, Verdict *verdict) noexcept nogil
cdef bint parse_message(const uint8_t *entry, int64_t total, Message *message) noexcept nogil
cdef void validate_message(const uint8_t *entry, int64_t total, Verdict *verdict) noexcept nogil
cdef void validate_wrapped(const uint8_t *start, const uint8_t *end, int64_t wrapper_magic, int64_t wrapper_offset,
                           Verdict *verdict) noexcept nogil
