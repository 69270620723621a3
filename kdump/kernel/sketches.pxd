# What is kept of hashed records. See sketches.pyi.

cimport cython
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    # The columns of a row of kdump.kernel.record_hashes.
    H_OFFSET = 0
    H_KEY_HIGH
    H_KEY_LOW
    H_HIGH
    H_LOW
    H_FLAGS
    H_EPOCH
    HASH_WIDTH
    TOMBSTONE_BIT = 1
    NO_KEY_BIT = 2
    CONTROL_BIT = 4
    OUTCOME_SHIFT = 4
    NEWEST = 384          # batch ends that become cuts
    GRID = 512            # intervals of cuts

cdef struct Sum:
    int64_t count
    uint64_t low
    uint64_t high

@cython.final
cdef class RecordSketch:
    cdef Sum _total
    cdef Sum _grid[GRID]               # of the offsets that have one number after the shift
    cdef Sum *_at_borders              # of all records below
    cdef int64_t *_borders
    cdef Sum _at_ends[NEWEST]
    cdef int64_t _ends[NEWEST]
    cdef uint64_t *_cells
    cdef int64_t _border_count, _border_at, _end_count, _start, _shift, _limit, _block_shift, _blocks
    cdef int64_t _end_at               # where the next end goes
    cdef int _bits, _words
    cdef readonly int64_t keyed, unkeyed, undecided

    cdef void _set_limit(self) noexcept nogil
    cdef void _widen(self, int64_t stop) noexcept nogil
    cdef int64_t _reach(self, int64_t offset) noexcept nogil
    cdef void _keep(self, int64_t offset, const Sum *some) noexcept nogil
    cdef uint64_t *_tables(self, int64_t offset) noexcept nogil
    cdef int64_t _add(self, const int64_t *row, int64_t count, const int64_t *end, int64_t ended) noexcept nogil
    cdef void _keep_rows(self, int64_t offset, Sum *some, const int64_t *first, const int64_t *stop) noexcept nogil
    cdef void _count(self, uint64_t key, int64_t outcome, int64_t count) noexcept nogil
    cdef void _end(self, int64_t offset, const Sum *some) noexcept nogil
