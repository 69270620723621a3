# The transactions of a log as one additive value, and what became of each batch. See transactions.pyi.

from libc.stdint cimport int32_t, int64_t

from kdump.kernel.histogram cimport Histogram
from kdump.kernel.producers cimport Event, ProducerTable

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

# A data batch of a transaction.
cdef struct DataBatch:
    int64_t producer_id
    int64_t place
    int64_t first_offset
    int32_t records
    bint is_decided          # by a marker that does not commit

# The data batches of one transaction, or of a part of it. Without batches it is open if it began before.
cdef struct TransactionPart:
    int64_t place            # of the first batch
    int64_t batches
    int64_t records
    int64_t bytes
    int64_t first_offset
    int64_t last_offset
    int64_t first_timestamp
    int64_t last_timestamp
    int32_t epoch
    int32_t is_open

# What ends a transaction: a marker, or a place where one may be missing.
cdef struct TransactionEnd:
    int64_t place
    int64_t offset
    int64_t timestamp
    int32_t epoch
    int32_t kind             # NO_END, ABORT_END, COMMIT_END, LOST_END

# The transactions of one producer in a range. `head` is what came before the first end, `tail` what came after the last
# one. Without an end all is `tail`.
cdef struct TransactionCells:
    int64_t producer_id
    int64_t visited
    TransactionEnd end       # the first one
    TransactionPart head
    TransactionPart tail

cdef struct EndedTransaction:
    int64_t producer_id
    TransactionEnd end
    TransactionPart part

cdef enum:
    NO_END = -1
    ABORT_END = 0
    COMMIT_END = 1
    LOST_END = 2

cdef class Transactions:
    cdef DecisionTable table
    cdef ProducerTable producers  # of TransactionCells
    cdef int64_t opened        # rows whose tail is open
    cdef int64_t waiting       # the row at which is_open_before looks first
    cdef bint anchored         # it begins where the log begins
    cdef bint measured
    cdef bint decided
    cdef bint listed
    cdef bint passes_gaps
    cdef bint idempotent       # there is a row of each producer
    cdef bint failed
    cdef TransactionEnd lost   # the first gap
    cdef int64_t *gaps         # those whose events come later
    cdef int64_t gap_count
    cdef int64_t gap_capacity
    cdef EndedTransaction *ended
    cdef int64_t ended_count
    cdef int64_t ended_capacity
    cdef EndedTransaction undecided   # that with the lowest first offset
    cdef int64_t markers[3]    # by the kinds of ends
    cdef int64_t aborted_records
    cdef Histogram durations
    cdef Histogram sizes
    cdef Histogram records
    cdef inline TransactionCells *row(self, int64_t number) noexcept nogil:
        return <TransactionCells *> self.producers.rows + number
    cdef TransactionCells *find(self, int64_t producer_id) noexcept nogil
    cdef TransactionCells *add_row(self, int64_t producer_id) noexcept nogil
    cdef void data(self, int64_t producer_id, const TransactionPart *part) noexcept nogil
    cdef void marker(self, int64_t producer_id, const TransactionEnd *end) noexcept nogil
    cdef void gap(self, int64_t place) noexcept nogil
    cdef void pass_gaps(self, int64_t stop) noexcept nogil
    cdef void finish(self, int64_t producer_id, const TransactionPart *part, const TransactionEnd *end) noexcept nogil
    cdef void complete(self, const TransactionPart *part, const TransactionEnd *end) noexcept nogil
    cdef void take_undecided(self, const EndedTransaction *found) noexcept nogil
    cdef void take_event(self, const Event *event) noexcept nogil
    cdef void add_marker(self, int64_t producer_id, int64_t place, int64_t outcome) noexcept nogil
    cdef void add_gap(self, int64_t place) noexcept nogil
    cdef void end_unseen(self, const TransactionCells *rows, int64_t count, const TransactionEnd *lost) noexcept nogil
    cdef int64_t join_rows(self, const TransactionCells *rows, int64_t count, const TransactionEnd *lost) noexcept nogil
    cdef void join_ended(self, int64_t start, const EndedTransaction *ended, int64_t count) noexcept nogil
    cdef void drop_ended(self) noexcept nogil


cdef class UncommittedBatches:
    cdef DecisionTable table   # the markers since the last call of settle
    cdef DataBatch *batches
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t most
    cdef int append(self, int64_t producer_id, int64_t position, int64_t first_offset, int64_t records) noexcept nogil
    cdef void settle(self) noexcept nogil


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
