# The producers of some batches, and their transactions. See kdump.stat.producers and kdump.stat.transactions.

from libc.stdint cimport int32_t, int64_t, uint64_t

from kdump.kernel.histogram cimport Histogram

cdef struct ProducerCells:
    int64_t producer_id
    int64_t epoch
    int64_t codecs
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t batches
    int64_t records
    int64_t bytes

# The data batches of one transaction, or of a part of it.
cdef struct TransactionPart:
    int64_t batches
    int64_t records
    int64_t bytes
    int64_t first_offset
    int64_t first_timestamp

# The transactions of one producer in a range. `head` is what came before the first marker, `tail` what came after the
# last one. Without a marker all is `tail`.
cdef struct TransactionCells:
    int64_t producer_id
    int64_t marker           # of the first marker: NO_MARKER, ABORT_MARKER, COMMIT_MARKER
    int64_t marker_timestamp
    TransactionPart head
    TransactionPart tail

cdef enum:
    NO_MARKER = -1
    ABORT_MARKER = 0
    COMMIT_MARKER = 1

cdef class ProducerRows:
    cdef ProducerCells *rows
    cdef int32_t *slots        # one more than an index of rows, 0: free
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t mask
    cdef int64_t most
    cdef uint64_t highest_hash # ids with a larger hash are left out
    cdef bint failed           # out of memory
    cdef ProducerCells *row_of(self, int64_t producer_id) noexcept nogil
    cdef ProducerCells *add_row(self, int64_t producer_id) noexcept nogil
    cdef bint rehash(self) noexcept nogil
    cdef bint prune(self, int64_t most) noexcept nogil
    cdef bint merge_row(self, const ProducerCells *other) noexcept nogil
    cdef bint lower(self, uint64_t highest_hash) noexcept nogil

cdef class Transactions:
    cdef TransactionCells *rows
    cdef int32_t *slots
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t mask
    cdef bint anchored         # it begins where the log begins
    cdef bint failed
    cdef int64_t markers[2]    # aborted, committed
    cdef int64_t aborted_records
    cdef Histogram durations
    cdef Histogram sizes
    cdef Histogram records
    cdef TransactionCells *row_of(self, int64_t producer_id) noexcept nogil
    cdef TransactionCells *add_row(self, int64_t producer_id) noexcept nogil
    cdef bint rehash(self) noexcept nogil
    cdef void data(self, int64_t producer_id, int64_t first_offset, int64_t timestamp, int64_t records,
                   int64_t size) noexcept nogil
    cdef void marker(self, int64_t producer_id, bint commit, int64_t timestamp) noexcept nogil
    cdef void complete(self, const TransactionPart *part, int64_t timestamp) noexcept nogil
    cdef void drop_ended(self) noexcept nogil
