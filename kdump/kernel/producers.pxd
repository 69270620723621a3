from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

cdef enum:
    KIND_DATA, KIND_ABORT, KIND_COMMIT, KIND_ODD, KIND_GAP
    FLAG_TRANSACTIONAL = 1
    FULL_RUNS = 16384

cdef struct Event:
    int64_t producer_id
    int64_t position
    int64_t first_offset
    int64_t last_offset
    int64_t timestamp
    int64_t first_timestamp
    int32_t size
    int32_t first_sequence
    int32_t last_sequence
    int32_t offset_delta
    int16_t epoch
    uint8_t kind
    uint8_t flags
    int32_t batches

# The events of a Runs, and by producer the number of its last one.
cdef struct Recorder:
    Event *events
    int64_t count
    int64_t capacity
    int32_t *slots      # one more than an index of events, 0: free
    int64_t mask        # slots - 1
    int64_t producers
    int64_t gap         # events up to the last GAP
    bint failed         # out of memory

cdef Recorder *recorder_of(object runs) except NULL
cdef void record(Recorder *recorder, const Event *event) noexcept nogil
cdef void record_gap(Recorder *recorder, int64_t position) noexcept nogil
