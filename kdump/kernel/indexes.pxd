cimport cython
from libc.stdint cimport int64_t, uint8_t

from kdump.kernel.state cimport State

cdef enum:
    INDEX_POSITION, INDEX_OFFSET, TIME_MISSES, TIME_WRONG, TIME_OFFSET
    ENTRY_PROBLEM_COUNT

# The scan calls the tracker for a batch that begins after `interval`, ends after `position`, or whose last offset is at
# least `offset`.
cdef struct Due:
    int64_t interval
    int64_t position
    int64_t offset

# The entries of one index that recovery writes.
cdef struct Entries:
    uint8_t *data
    int64_t size
    int64_t capacity
    int64_t limit            # bytes

cdef struct EntryProblem:
    int64_t problem
    int64_t entry
    int64_t stored[2]
    int64_t position
    int64_t first
    int64_t last
    int64_t found

@cython.final
cdef class IndexTracker:
    cdef Due due
    cdef int64_t carried_cursor   # next entry of the time index, -1: search it

    cdef int64_t base
    cdef int64_t interval
    cdef bint begun               # the walk started
    cdef bint from_zero           # ... at the first byte of the file
    cdef bint checking
    cdef bint building            # while checking: the offset index is right so far, and no damage
    cdef bint fresh               # no valid batch yet since the start, or since damage
    cdef bytes offset_slots
    cdef bytes time_slots
    cdef const uint8_t *index
    cdef const uint8_t *time
    cdef int64_t last_entry       # position of the last entry, for entries that continue the checked ones
    cdef int64_t last_built       # ... for entries that continue the built ones
    cdef int64_t built_after      # ... before the first built entry, -1 without a batch
    cdef int64_t first_due        # largest timestamp at the first built entry, NO_VALUE: none
    cdef int64_t index_count
    cdef int64_t index_begin
    cdef int64_t index_cursor
    cdef int64_t first_index_offset
    cdef int64_t time_count
    cdef int64_t time_begin
    cdef int64_t time_cursor
    cdef int64_t first_time_entry
    cdef bint differs
    cdef int64_t difference[5]
    cdef Entries built_index
    cdef Entries built_time
    cdef int64_t built_offset     # of the last entry of the offset index
    cdef int64_t built_timestamp  # of the last entry of the time index
    # What LogSegment.recover does to both indexes, as far as an entry can fail.
    cdef bint recovering          # it goes on
    cdef bint recovers_only       # nothing else is due at a distance
    cdef bint resumed             # it goes on where another tracker ended
    cdef int64_t carried_time_offset   # of the largest timestamp before the walk
    cdef bint recovery_known      # the walk began at the first byte, and passed no damage
    cdef int64_t recovered_first  # position of the first entry, -1 without one
    cdef int64_t recovered        # ... of the last entry, 0 without one
    cdef int64_t recovered_offset
    cdef int64_t recovered_time   # timestamp of the last entry of the time index, -1 without one
    cdef int64_t recovered_time_offset
    cdef int64_t refused          # position of the batch whose entry is refused, -1 without one
    cdef EntryProblem *problems
    cdef Py_ssize_t problem_count
    cdef Py_ssize_t problem_capacity
    cdef int64_t counts[ENTRY_PROBLEM_COUNT]
    cdef bint failed              # out of memory

    cdef void batch(self, const State *s, int magic, int64_t first, int64_t last, int64_t position, int64_t total,
                    bint spans, int64_t timestamp) noexcept nogil
    cdef void pass_damage(self) noexcept nogil
    cdef void begin(self, int64_t position) noexcept
    cdef bytes closed_times(self, int64_t timestamp, int64_t offset)
    cdef int64_t index_offset(self, int64_t entry) noexcept nogil
    cdef int64_t index_position(self, int64_t entry) noexcept nogil
    cdef int64_t time_offset(self, int64_t entry) noexcept nogil
    cdef void find_entries(self, const State *s, int64_t first, int64_t position) noexcept nogil
    cdef void build_entries(self, const State *s, int64_t last, int64_t position, int64_t timestamp) noexcept nogil
    cdef void build_time_entry(self, int64_t timestamp, int64_t offset, int64_t limit) noexcept nogil
    cdef void recover_entries(self, const State *s, int64_t last, int64_t position, int64_t timestamp) noexcept nogil
    cdef bint fits(self, Entries *built, int64_t size) noexcept nogil
    cdef void compare(self, int64_t last, int64_t position) noexcept nogil
    cdef void check_time_entry(self, const State *s, int magic, int64_t first, int64_t last, int64_t position,
                               bint spans, int64_t running) noexcept nogil
    cdef void bad_index_entry(self, int problem, int64_t first, int64_t last, int64_t position,
                              int64_t found) noexcept nogil
    cdef void bad_entry(self, int problem, int64_t entry, int64_t one, int64_t other, int64_t first, int64_t last,
                        int64_t position, int64_t found) noexcept nogil
