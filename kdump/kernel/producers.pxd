from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kdump.kernel.layout cimport SEQUENCE_MASK

# The hash table of producers. All rows have one size, and each begins with its producer id. A slot leads to the row of
# a producer, of several to the last one.
cdef struct ProducerTable:
    uint8_t *rows
    int64_t count
    int64_t capacity
    int32_t *slots      # one more than the number of a row, 0: free
    int64_t mask        # slots - 1
    int64_t used        # slots that are not free
    uint64_t salt
    bint failed         # out of memory

cdef bint table_begin(ProducerTable *table) noexcept nogil
cdef void table_end(ProducerTable *table) noexcept nogil
cdef void *table_add(ProducerTable *table, int64_t size, int64_t producer_id, int64_t slot) noexcept nogil
cdef void table_index(ProducerTable *table, int64_t size) noexcept nogil
cdef void table_clear(ProducerTable *table, int64_t size) noexcept nogil


cdef inline int64_t first_slot(const ProducerTable *table, int64_t producer_id) noexcept nogil:
    """Return the first slot to try for a producer.

    The top bits of a product spread consecutive ids and multiples of 1000.
    """
    cdef uint64_t mixed = <uint64_t> producer_id ^ table.salt
    mixed = (mixed ^ mixed >> 32) * <uint64_t> 0x9E3779B97F4A7C15U
    return <int64_t> ((mixed >> 32) * <uint64_t> (table.mask + 1) >> 32)


cdef inline int64_t table_slot(const ProducerTable *table, int64_t size, int64_t producer_id) noexcept nogil:
    """Return the slot of a producer, or the free slot for it. `size`: of a row."""
    cdef int64_t slot = first_slot(table, producer_id)
    while table.slots[slot] \
            and (<const int64_t *> (table.rows + (table.slots[slot] - 1) * size))[0] != producer_id:
        slot = (slot + 1) & table.mask
    return slot


cdef inline void *table_row(const ProducerTable *table, int64_t size, int64_t producer_id) noexcept nogil:
    """Return the row of a producer, NULL if it has none."""
    cdef int64_t slot = table_slot(table, size, producer_id)
    return table.rows + (table.slots[slot] - 1) * size if table.slots[slot] else NULL


cdef enum:
    KIND_DATA, KIND_ABORT, KIND_COMMIT, KIND_ODD, KIND_GAP, KIND_EMPTY
    FLAG_TRANSACTIONAL = 1
    FLAG_EMPTIED = 2     # the log cleaner removed all of its records
    FULL_RUNS = 16384
    IDLE = 86_400_000  # producer.id.expiration.ms: after it, any sequence is valid

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

# The events of a Runs are the rows of a table: a slot leads to the last event of its producer.
cdef struct Recorder:
    ProducerTable events
    int64_t gap         # events up to the last GAP
    bint exact          # the timestamp of a marker is that of its record
    bint odd            # the events lack something that a broker remembers

# A problem that a replay found, and a count (kdump.kernel.results).
cdef struct ProblemRow:
    int64_t problem
    int64_t position
    int64_t size
    int64_t offset
    int64_t producer_id
    int64_t epoch
    int64_t sequence
    int64_t previous_sequence
    int64_t previous_epoch
    int64_t txn_first
    bint marker

cdef struct Count:
    int64_t count
    int64_t position
    int64_t size
    int64_t offset
    int64_t producer_id
    int64_t epoch
    int64_t value
    int64_t previous

cdef Recorder *recorder_of(object runs) except NULL
cdef void record(Recorder *recorder, const Event *event, int64_t slot) noexcept nogil
cdef void record_gap(Recorder *recorder, int64_t position) noexcept nogil


cdef inline int64_t find_slot(const Recorder *r, int64_t producer_id) noexcept nogil:
    """Return the slot of a producer, or the free slot for it."""
    return table_slot(&r.events, sizeof(Event), producer_id)


cdef inline bint within(int64_t a, int64_t b, uint64_t span) noexcept nogil:
    return (<uint64_t> a - <uint64_t> b if a > b else <uint64_t> b - <uint64_t> a) < span


cdef inline bint extend(Recorder *r, int64_t slot, int epoch, int flags, int64_t first_offset, int64_t last_offset,
                        int64_t timestamp, int32_t first_sequence, int32_t last_sequence,
                        int32_t offset_delta) noexcept nogil:
    """Add a batch of records to the last event of its producer; False where the batch starts a new event."""
    cdef Event *run
    if r.events.slots[slot] <= r.gap:
        return False
    run = <Event *> r.events.rows + (r.events.slots[slot] - 1)
    if (run.kind != KIND_DATA or run.epoch != epoch or run.flags != flags or run.last_sequence < 0 or first_sequence < 0
            or <uint32_t> first_sequence != (<uint32_t> run.last_sequence + 1 & SEQUENCE_MASK)
            or first_offset <= run.last_offset or not within(timestamp, run.timestamp, IDLE)
            or run.batches == INT32_MAX):
        return False
    run.last_offset = last_offset
    run.timestamp = timestamp
    run.last_sequence = last_sequence
    run.offset_delta = offset_delta
    run.batches += 1
    return True
