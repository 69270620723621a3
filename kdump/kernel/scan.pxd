# What takes valid batches from a scan in place of their rows, and the suspect bits of records. See scan.pyi.

from libc.stdint cimport int64_t, uint8_t

from kdump.kernel.layout cimport (
    NO_VALUE, S_CONTROL, S_DELTA, S_INNER_CRC, S_PARTIAL, S_STRUCTURE, S_TIME, S_TRAILING, S_VARINT, S_WRAPPER,
)
from kdump.kernel.records cimport CONTROL_KEY, WRAPPER_SIZE, RecordsDiagnosis

cdef class BatchTaker:
    cdef void begin(self) noexcept nogil
    cdef bint take(self, const uint8_t *p, int64_t total, int64_t position, const uint8_t *after) noexcept nogil
    cdef void end(self, const uint8_t *after) noexcept nogil


cdef inline int64_t batch_bits(RecordsDiagnosis *v, int64_t count, int64_t max_timestamp,
                               bint create_time) noexcept nogil:
    """Return the suspect bits for the records of a batch of magic 2."""
    if v.status and v.status < CONTROL_KEY:
        return S_STRUCTURE
    if count <= 0:
        return 0
    return ((S_CONTROL if v.status else 0) | (S_VARINT if v.varint_record >= 0 else 0)
            | (S_DELTA if v.delta_record >= 0 else 0)
            | (S_TIME if create_time and v.max_timestamp != max_timestamp else 0))


cdef inline int64_t message_bits(RecordsDiagnosis *v, int64_t timestamp, bint timed) noexcept nogil:
    """Return the suspect bits of a message, or of the messages inside a wrapper message."""
    cdef int64_t bits = 0
    if v.status:
        return S_WRAPPER if v.status >= WRAPPER_SIZE else S_STRUCTURE
    if v.inner_crc >= 0:
        bits |= S_INNER_CRC
    if v.trailing >= 0:
        bits |= S_TRAILING
    if v.partial:
        bits |= S_PARTIAL
    if v.delta_record >= 0:
        bits |= S_DELTA
    if timed and v.max_timestamp != NO_VALUE and v.max_timestamp != timestamp:
        bits |= S_TIME
    return bits
