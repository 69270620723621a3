# The layouts that all of the kernel uses: big-endian numbers, byte positions of the fields of a batch, columns of
# a row.
# kdump.format.batch, kdump.format.legacy, kdump.format.index, kdump.format.producer_snapshot and kdump.format.kafka07
# have the byte tables.
# A test compares them with these positions.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kdump.kernel.crc cimport crc32_of, crc32c_of

cdef extern from "<stdint.h>":
    # The value of a field that the format does not have, or that does not apply (kdump.kernel.results).
    const int64_t NO_VALUE "INT64_MIN"

cdef enum:
    # Common to magic 0, 1 and 2.
    BASE_OFFSET_AT = 0
    LENGTH_AT = 8
    LOG_OVERHEAD = 12          # the bytes before those that the length counts
    MAGIC_AT = 16
    UP_TO_MAGIC = 17

    # Magic 2 (kdump.format.batch).
    LEADER_EPOCH_AT = 12
    CRC_AT = 17
    ATTRIBUTES_AT = 21         # the CRC covers the bytes from here on
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORDS_COUNT_AT = 57
    HEADER = 61
    MINIMUM_LENGTH = 49

    # Magic 0 and 1 (kdump.format.legacy).
    MESSAGE_CRC_AT = 12        # the CRC covers the bytes from the magic on
    MESSAGE_ATTRIBUTES_AT = 17
    MESSAGE_TIMESTAMP_AT = 18  # magic 1
    KEY_LENGTH_AT = 18         # magic 0; 8 bytes later in magic 1
    LARGEST_MESSAGE_HEADER = 26
    MINIMUM_LENGTH_0 = 14
    MINIMUM_LENGTH_1 = 22

    # Kafka 0.7 (kdump.format.kafka07).
    LENGTH_07 = 4              # bytes of the length, which does not count itself
    MAGIC_AT_07 = 4
    UP_TO_MAGIC_07 = 5
    ATTRIBUTES_AT_07 = 5       # magic 1
    HEADER_07 = 10             # the CRC, 4 bytes, ends the header; without attributes it has 9 bytes
    CODEC_MASK_07 = 3

    # Attributes.
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL_FLAG = 0x10
    CONTROL_FLAG = 0x20
    DELETE_HORIZON_FLAG = 0x40

    # An entry of an offset index: relative offset i32, position i32.
    # An entry of a time index: timestamp i64, relative offset i32.
    INDEX_ENTRY = 8
    INDEX_POSITION_AT = 4
    TIME_ENTRY = 12
    TIME_OFFSET_AT = 8
    OFFSET_SPAN = 0x7FFFFFFF   # an offset of a segment is at most this far above its base offset

    # An entry of a producer snapshot (kdump.format.producer_snapshot).
    SNAPSHOT_PRODUCER_ID_AT = 0
    SNAPSHOT_EPOCH_AT = 8
    SNAPSHOT_LAST_SEQUENCE_AT = 10
    SNAPSHOT_LAST_OFFSET_AT = 14
    SNAPSHOT_OFFSET_DELTA_AT = 22
    SNAPSHOT_TIMESTAMP_AT = 26
    SNAPSHOT_COORDINATOR_EPOCH_AT = 34
    SNAPSHOT_TXN_FIRST_OFFSET_AT = 38
    SNAPSHOT_ENTRY = 46

    SEQUENCE_MASK = 0x7FFFFFFF  # after sequence 2147483647 comes 0

    # A row of a batch; kdump.kernel.scan.BATCH_COLUMNS names the columns in this order.
    # First the header and where the batch is (kdump.format.batch.Batch).
    POSITION = 0
    SIZE
    MAGIC
    BASE_OFFSET
    LAST_OFFSET
    COUNT
    EPOCH
    CRC
    ATTRIBUTES
    BASE_TIMESTAMP
    MAX_TIMESTAMP
    PRODUCER_ID
    PRODUCER_EPOCH
    BASE_SEQUENCE
    # Then what the scan found (kdump.kernel.results.BatchDiagnosis).
    COMPUTED_CRC
    SUSPECT
    PREVIOUS_OFFSET
    PREVIOUS_BASE_OFFSET
    PREVIOUS_EPOCH
    STATUS
    STATUS_AT
    STATUS_RECORD
    PAYLOAD_AT
    PAYLOAD_SIZE
    VARINT_RECORD
    DELTA_RECORD
    DELTA_OFFSET
    FOUND_TIMESTAMP
    INNER_CRC
    PARTIAL
    TRAILING
    BATCH_WIDTH
    BATCH_HEADER_WIDTH = COMPUTED_CRC

    # A row of a record; kdump.kernel.records.RECORD_COLUMNS names the columns in this order.
    R_AT = 0
    R_SIZE
    R_OFFSET
    R_TIMESTAMP
    R_KEY_AT
    R_KEY_SIZE
    R_VALUE_AT
    R_VALUE_SIZE
    R_HEADER_AT
    R_HEADER_COUNT
    R_MAGIC
    R_CRC
    R_COMPUTED_CRC
    R_ATTRIBUTES
    RECORD_WIDTH
    HEADER_WIDTH = 4  # of the row of a record header (kdump.kernel.records.HEADER_COLUMNS)

    # The bits of SUSPECT. Bit n is the code kdump.kernel.scan.SUSPECTS[n].
    S_ATTRIBUTES = 1 << 0
    S_CODEC = 1 << 1
    S_COUNT = 1 << 2
    S_OFFSET_RANGE = 1 << 3
    S_OFFSET_BACKWARDS = 1 << 4
    S_EPOCH_BACKWARDS = 1 << 5
    S_CONTROL = 1 << 6
    S_STRUCTURE = 1 << 7
    S_VARINT = 1 << 8
    S_DELTA = 1 << 9
    S_TIME = 1 << 10
    S_WRAPPER = 1 << 11
    S_INNER_CRC = 1 << 12
    S_PARTIAL = 1 << 13
    S_TRAILING = 1 << 14
    S_CRC = 1 << 15
    S_MAGIC = 1 << 16
    S_LIMIT = 1 << 17
    S_OPEN = 1 << 30  # no defect: the caller has to decompress the records

    # What is at a position (kdump.kernel.scan.FRAMES). The first is a valid batch.
    # For the last three, the bytes up to the length of the header are there.
    VALID = 0
    END
    SHORT
    LENGTH
    OVERRUN
    LIMIT
    BAD_CRC
    BAD_MAGIC

    # Why a scan returned (kdump.kernel.scan.SCAN_NEED and so on).
    NEED = 0
    FULL
    STOPPED
    DAMAGED


cdef inline int32_t be16(const uint8_t *p) noexcept nogil:
    return <int32_t> <int8_t> p[0] * 256 + p[1]


cdef inline int32_t be32(const uint8_t *p) noexcept nogil:
    return <int32_t> (<uint32_t> p[0] << 24 | <uint32_t> p[1] << 16 | <uint32_t> p[2] << 8 | <uint32_t> p[3])


cdef extern from *:
    """
    /* One load and one swap. From two numbers of 32 bits it is two of each, which shows in the walk over headers. */
    static inline int64_t kdump_be64(const uint8_t *p) {
        return (int64_t) ((uint64_t) p[0] << 56 | (uint64_t) p[1] << 48 | (uint64_t) p[2] << 40 | (uint64_t) p[3] << 32
                          | (uint64_t) p[4] << 24 | (uint64_t) p[5] << 16 | (uint64_t) p[6] << 8 | (uint64_t) p[7]);
    }
    """
    int64_t be64 "kdump_be64"(const uint8_t *p) noexcept nogil


# Writers return the address after the bytes that they wrote.
cdef inline uint8_t *put16(uint8_t *q, uint16_t number) noexcept nogil:
    q[0] = number >> 8
    q[1] = number & 0xff
    return q + 2


cdef inline uint8_t *put32(uint8_t *q, uint32_t number) noexcept nogil:
    q[0] = number >> 24
    q[1] = number >> 16 & 0xff
    q[2] = number >> 8 & 0xff
    q[3] = number & 0xff
    return q + 4


cdef inline uint8_t *put64(uint8_t *q, uint64_t number) noexcept nogil:
    return put32(put32(q, <uint32_t> (number >> 32)), <uint32_t> number)


cdef inline int attributes_of(const uint8_t *p) noexcept nogil:
    """Return the attributes of a batch of magic 2."""
    return p[ATTRIBUTES_AT] << 8 | p[ATTRIBUTES_AT + 1]


cdef inline int64_t total_of(const uint8_t *p) noexcept nogil:
    """Return the size in bytes that a batch or message claims, with the offset and length fields."""
    return <int64_t> be32(p + LENGTH_AT) + LOG_OVERHEAD


cdef inline int64_t last_offset_of(const uint8_t *p) noexcept nogil:
    """Return the last offset of a batch of magic 2."""
    return <int64_t> (<uint64_t> be64(p) + <uint64_t> <int64_t> be32(p + LAST_OFFSET_DELTA_AT))


cdef inline int64_t minimum(uint8_t magic) noexcept nogil:
    """Return the smallest value of the length field of a batch or message."""
    return MINIMUM_LENGTH_0 if magic == 0 else MINIMUM_LENGTH_1 if magic == 1 else MINIMUM_LENGTH


cdef inline uint32_t checksum(const uint8_t *p, int64_t total) noexcept nogil:
    if p[MAGIC_AT] < 2:
        return crc32_of(p + MAGIC_AT, total - MAGIC_AT)
    return crc32c_of(p + ATTRIBUTES_AT, total - ATTRIBUTES_AT)


cdef inline uint32_t stored_crc(const uint8_t *p) noexcept nogil:
    return <uint32_t> be32(p + MESSAGE_CRC_AT if p[MAGIC_AT] < 2 else p + CRC_AT)


cdef inline void clear_diagnosis(int64_t *row) noexcept nogil:
    """Set the columns of a batch without a defect, and without a batch before it."""
    row[SUSPECT] = 0
    row[PREVIOUS_OFFSET] = row[PREVIOUS_BASE_OFFSET] = NO_VALUE
    row[PREVIOUS_EPOCH] = -1
    row[STATUS] = row[STATUS_AT] = row[DELTA_OFFSET] = row[PARTIAL] = 0
    row[STATUS_RECORD] = row[VARINT_RECORD] = row[DELTA_RECORD] = row[INNER_CRC] = row[TRAILING] = -1
    row[FOUND_TIMESTAMP] = NO_VALUE


# The header of a batch, or of a message of magic 0 or 1.
cdef struct BatchHeader:
    int64_t position
    int64_t total
    int64_t first            # of a wrapper message, `last`: it does not store it
    int64_t last
    int64_t count            # -1: of a wrapper message
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t epoch
    int32_t producer_epoch
    int32_t base_sequence
    int32_t attributes
    int32_t marker           # of a control batch, once it is read: 0 abort, 1 commit, -1 none
    uint8_t magic
    uint8_t codec


cdef inline void parse_header(BatchHeader *h, const uint8_t *p, int64_t total, int64_t position) noexcept nogil:
    """Read all fields of the header at p. A scan reads those that it needs: most batches need few."""
    h.position = position
    h.total = total
    h.magic = p[MAGIC_AT]
    h.marker = -1
    if h.magic >= 2:
        h.first = be64(p)
        h.last = last_offset_of(p)
        h.count = be32(p + RECORDS_COUNT_AT)
        h.epoch = be32(p + LEADER_EPOCH_AT)
        h.attributes = attributes_of(p)
        h.codec = h.attributes & CODEC_MASK
        h.base_timestamp = be64(p + BASE_TIMESTAMP_AT)
        h.max_timestamp = be64(p + MAX_TIMESTAMP_AT)
        h.producer_id = be64(p + PRODUCER_ID_AT)
        h.producer_epoch = be16(p + PRODUCER_EPOCH_AT)
        h.base_sequence = be32(p + BASE_SEQUENCE_AT)
    else:
        h.first = h.last = be64(p)
        h.attributes = p[MESSAGE_ATTRIBUTES_AT]
        h.codec = h.attributes & CODEC_MASK
        h.count = -1 if h.codec else 1
        h.producer_id = h.epoch = h.producer_epoch = h.base_sequence = -1
        h.base_timestamp = h.max_timestamp = be64(p + MESSAGE_TIMESTAMP_AT) if h.magic == 1 else -1


cdef inline void header_row(int64_t *row, const uint8_t *p, int64_t total, int64_t position,
                            uint32_t computed) noexcept nogil:
    """Fill the row of a batch or message from its header."""
    cdef BatchHeader h
    cdef bint legacy, wrapper
    parse_header(&h, p, total, position)
    legacy = h.magic < 2
    wrapper = legacy and h.codec != 0
    row[POSITION] = position
    row[SIZE] = total
    row[MAGIC] = h.magic
    row[CRC] = stored_crc(p)
    row[COMPUTED_CRC] = computed
    clear_diagnosis(row)
    row[BASE_OFFSET] = NO_VALUE if wrapper else h.first
    row[LAST_OFFSET] = h.last
    row[COUNT] = NO_VALUE if wrapper else h.count
    row[EPOCH] = NO_VALUE if legacy else h.epoch
    row[ATTRIBUTES] = h.attributes
    row[BASE_TIMESTAMP] = h.base_timestamp
    row[MAX_TIMESTAMP] = h.max_timestamp
    row[PRODUCER_ID] = h.producer_id
    row[PRODUCER_EPOCH] = h.producer_epoch
    row[BASE_SEQUENCE] = h.base_sequence
    row[PAYLOAD_AT] = NO_VALUE if legacy else HEADER
    row[PAYLOAD_SIZE] = NO_VALUE if legacy else total - HEADER
