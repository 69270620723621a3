# The producers of some batches. See kdump.stat.producers.

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef struct ProducerCells:
    int64_t producer_id
    int64_t epoch
    int64_t codecs
    int64_t first_timestamp
    int64_t last_timestamp
    int64_t batches
    int64_t records
    int64_t bytes

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
