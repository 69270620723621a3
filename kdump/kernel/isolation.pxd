from libc.stdint cimport int64_t

cdef enum:
    D_COMMITTED = 0
    D_ABORTED
    D_UNDECIDED

# The end of a transaction of a producer. `outcome` is one of the above. A place is that of a batch in all of the log:
# offsets are not covered by the checksum.
cdef struct Marker:
    int64_t producer_id
    int64_t place
    int64_t outcome

# The markers by producer and place, and the places of gaps. Sorted. `first`: the place of the byte 0 of the file.
cdef struct DecisionTable:
    Marker *markers
    int64_t count
    int64_t capacity
    int64_t *gaps
    int64_t gap_count
    int64_t gap_capacity
    int64_t first
    bint transactional


cdef class Decisions:
    cdef DecisionTable table


cdef inline int64_t decision(const DecisionTable *t, int64_t producer_id, int64_t position) noexcept nogil:
    """What becomes of a batch of a producer at a position of the file."""
    cdef int64_t place = t.first + position, low = 0, high = t.count, middle, stop
    while low < high:
        middle = (low + high) // 2
        if t.markers[middle].producer_id < producer_id \
                or (t.markers[middle].producer_id == producer_id and t.markers[middle].place <= place):
            low = middle + 1
        else:
            high = middle
    if low == t.count or t.markers[low].producer_id != producer_id:
        return D_UNDECIDED
    stop = low
    low, high = 0, t.gap_count
    while low < high:
        middle = (low + high) // 2
        if t.gaps[middle] < place:
            low = middle + 1
        else:
            high = middle
    if low < t.gap_count and t.gaps[low] < t.markers[stop].place:
        return D_UNDECIDED
    return t.markers[stop].outcome
