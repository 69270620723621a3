# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Checks the offset index and the time index of a segment during its scan, and builds them like a broker.

The scan calls the tracker only for a batch that an entry points to, or for which an entry is due (`Due`). It skips most
batches.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AsString
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from kdump.kernel.results import BadEntry, BuiltEntries, IndexDifference, RecoveredIndexes

from kdump.kernel.layout cimport (
    INDEX_ENTRY, INDEX_POSITION_AT, NO_VALUE, OFFSET_SPAN, TIME_ENTRY, TIME_OFFSET_AT, be32, be64, put32, put64,
)
from kdump.kernel.state cimport State

ENTRY_PROBLEMS = ("index/position", "index/offset", "timeindex/misses", "timeindex/wrong", "timeindex/offset")
assert len(ENTRY_PROBLEMS) == ENTRY_PROBLEM_COUNT
cdef enum:
    MOST_ENTRIES_KEPT = 1000
ENTRIES_KEPT = MOST_ENTRIES_KEPT


cdef inline bint recovery_is_due(int64_t position, int64_t indexed, int64_t interval) noexcept nogil:
    """Return whether LogSegment.recover adds an entry for the batch at `position`.

    `indexed` is the position of the last entry, 0 without one. kdump.broker.index_interval has this rule for Python.
    """
    return position - indexed > interval


@cython.final
cdef class IndexTracker:
    """See indexes.pyi."""

    def __cinit__(self, int64_t base_offset, int64_t interval=4096):
        if base_offset < 0:
            raise ValueError("the entries of an index are relative to a base offset")
        self.base = base_offset
        self.interval = max(0, min(interval, INT32_MAX))
        self.due.interval = self.due.position = self.due.offset = INT64_MAX
        self.index_begin = self.time_begin = self.index_cursor = self.time_cursor = self.carried_cursor = -1
        self.built_after = self.built_offset = self.built_timestamp = -1
        self.first_index_offset = self.first_time_entry = self.first_due = NO_VALUE
        self.recovered_first = self.recovered_time = self.refused = -1
        self.carried_time_offset = base_offset

    def __dealloc__(self):
        free(self.problems)
        free(self.built_index.data)
        free(self.built_time.data)

    def check(self, offset_slots, time_slots):
        self.offset_slots = bytes(offset_slots)
        self.time_slots = bytes(time_slots)
        self.index = <const uint8_t *> PyBytes_AsString(self.offset_slots)
        self.time = <const uint8_t *> PyBytes_AsString(self.time_slots)
        self.index_count = len(self.offset_slots) // INDEX_ENTRY
        self.time_count = len(self.time_slots) // TIME_ENTRY
        self.checking = self.fresh = self.recovering = True
        self.due.position = INT64_MIN

    def build(self, int64_t index_bytes=INT32_MAX):
        index_bytes = max(0, min(index_bytes, INT32_MAX))
        self.built_index.limit = index_bytes - index_bytes % INDEX_ENTRY
        self.built_time.limit = index_bytes - index_bytes % TIME_ENTRY
        self.building = True
        if not self.checking:
            self.due.interval = self.interval

    def built(self, state):
        if self.failed:
            raise MemoryError
        if self.checking or not self.building:
            return None
        index = (<char *> self.built_index.data)[:self.built_index.size] if self.built_index.size else b""
        return index, self.closed_times(state.max_timestamp, state.max_timestamp_offset)

    cdef bytes closed_times(self, int64_t timestamp, int64_t offset):
        """Return the time index with the entry at its end.

        The tracker does not keep that entry: the segment may go on.
        """
        cdef int64_t size = self.built_time.size, last = self.built_timestamp
        if timestamp > last:
            self.build_time_entry(timestamp, offset, self.built_time.limit)
        if self.failed:
            raise MemoryError
        times = (<char *> self.built_time.data)[:self.built_time.size] if self.built_time.size else b""
        self.built_time.size = size
        self.built_timestamp = last
        return times

    def built_range(self):
        if self.failed:
            raise MemoryError
        if not (self.checking and self.building):
            return None
        return BuiltEntries(
            self.built_after, self.first_due,
            PyByteArray_FromStringAndSize(<char *> self.built_index.data, self.built_index.size),
            PyByteArray_FromStringAndSize(<char *> self.built_time.data, self.built_time.size),
        )

    def bad_entries(self):
        cdef Py_ssize_t i
        cdef EntryProblem *bad
        cdef list found = []
        if self.failed:
            raise MemoryError
        for i in range(self.problem_count):
            bad = self.problems + i
            found.append(BadEntry(
                ENTRY_PROBLEMS[bad.problem], bad.entry, bad.stored[0], bad.stored[1], bad.position, bad.first, bad.last,
                bad.found,
            ))
        return found

    def bad_entry_counts(self):
        cdef int problem
        cdef dict counts = {}
        for problem in range(ENTRY_PROBLEM_COUNT):
            if self.counts[problem]:
                counts[ENTRY_PROBLEMS[problem]] = self.counts[problem]
        return counts

    def state_fields(self):
        if self.failed:
            raise MemoryError
        differs = None
        if self.differs:
            differs = IndexDifference(*self.difference)
        return {
            "index_begin": self.index_begin, "index_cursor": self.index_cursor, "time_begin": self.time_begin,
            "time_cursor": self.time_cursor, "first_index_offset": self.first_index_offset,
            "first_time_entry": self.first_time_entry,
            "index_differs": differs,
        }

    def recovery(self):
        if not self.recovery_known:
            return None
        return RecoveredIndexes(
            self.recovered_first, self.recovered, self.recovered_time_offset if self.recovered_time >= 0 else NO_VALUE,
            self.refused,
        )

    # ---- called by the scan

    cdef void begin(self, int64_t position) noexcept:
        """Note where in the file the walk starts. Later calls have no effect."""
        if not self.begun:
            self.begun = True
            self.from_zero = position == 0
            if not self.resumed:
                self.recovering = self.recovery_known = self.checking and self.from_zero

    def resume(self, IndexTracker before, int64_t time_offset):
        self.resumed = True
        self.recovering = before.recovering
        self.recovery_known = before.recovery_known
        self.recovered_first = before.recovered_first
        self.recovered = before.recovered
        self.recovered_offset = before.recovered_offset
        self.recovered_time = before.recovered_time
        self.recovered_time_offset = before.recovered_time_offset
        self.refused = before.refused
        self.carried_time_offset = time_offset

    cdef void pass_damage(self) noexcept nogil:
        """Note that the walk found damage."""
        self.recovering = self.recovery_known = self.recovers_only = False
        if self.checking:
            self.fresh = True
            self.due.position = INT64_MIN
            self.building = False

    cdef int64_t index_offset(self, int64_t entry) noexcept nogil:
        return <int64_t> (<uint64_t> self.base + <uint64_t> <int64_t> be32(self.index + INDEX_ENTRY * entry))

    cdef int64_t index_position(self, int64_t entry) noexcept nogil:
        return be32(self.index + INDEX_ENTRY * entry + INDEX_POSITION_AT)

    cdef int64_t time_offset(self, int64_t entry) noexcept nogil:
        return <int64_t> (
            <uint64_t> self.base + <uint64_t> <int64_t> be32(self.time + TIME_ENTRY * entry + TIME_OFFSET_AT)
        )

    cdef void batch(self, const State *s, int magic, int64_t first, int64_t last, int64_t position, int64_t total,
                    bint spans, int64_t timestamp) noexcept nogil:
        """Check the entries that point to a valid batch, and build those that are due.

        `s`: the state before the batch.
        """
        cdef int64_t target, running
        if self.recovers_only and position + total <= self.due.position and last < self.due.offset:
            self.recover_entries(s, last, position, timestamp)
            self.due.interval = self.recovered + self.interval if self.recovering else INT64_MAX
            return
        if self.fresh:
            self.find_entries(s, first, position)
        if self.building and recovery_is_due(position, self.last_built, self.interval):
            self.build_entries(s, last, position, timestamp)
        if not self.checking:
            self.due.interval = self.last_built + self.interval if self.building else INT64_MAX
            return
        if self.recovering and recovery_is_due(position, self.recovered, self.interval):
            self.recover_entries(s, last, position, timestamp)
        if not self.differs:
            self.compare(last, position)
        while self.index_cursor < self.index_count:
            target = self.index_position(self.index_cursor)
            if target >= position + total:
                break
            if target > position:
                self.bad_index_entry(INDEX_POSITION, first, last, position, position)
            elif target == position and s.has_last and self.index_offset(self.index_cursor) <= s.known_last:
                self.bad_index_entry(INDEX_OFFSET, first, last, position, s.known_last)
            self.last_entry = target
            self.index_cursor += 1
        running = max(s.max_timestamp, timestamp)
        while self.time_cursor < self.time_count and self.time_offset(self.time_cursor) <= last:
            self.check_time_entry(s, magic, first, last, position, spans, running)
            self.time_cursor += 1
        self.due.position = \
            self.index_position(self.index_cursor) if self.index_cursor < self.index_count else INT64_MAX
        self.due.interval = INT64_MAX if self.differs else self.last_entry + self.interval
        if self.building:
            self.due.interval = min(self.due.interval, self.last_built + self.interval)
        if self.recovering:
            self.due.interval = min(self.due.interval, self.recovered + self.interval)
        self.recovers_only = self.recovering and self.differs and not self.building
        self.due.offset = self.time_offset(self.time_cursor) if self.time_cursor < self.time_count else INT64_MAX

    cdef void find_entries(self, const State *s, int64_t first, int64_t position) noexcept nogil:
        """Skip the entries before the first batch of a walk, or before the first one after damage."""
        cdef bint begins = self.index_begin < 0
        cdef int64_t low = max(self.index_cursor, 0), high = self.index_count, middle
        self.fresh = False
        while low < high:
            middle = low + (high - low) // 2
            if self.index_position(middle) < position:
                low = middle + 1
            else:
                high = middle
        self.index_cursor = low
        self.last_entry = self.index_position(low - 1) if low > 0 else 0
        if not begins:
            return
        self.index_begin = low
        self.built_after = self.last_built = self.last_entry
        if low < self.index_count and not s.has_last and self.index_position(low) == position:
            self.first_index_offset = self.index_offset(low)
        low, high = 0, self.time_count
        if self.carried_cursor >= 0:
            low = high = min(self.carried_cursor, high)
        elif self.from_zero and not s.has_last:
            high = 0
        while low < high:
            middle = low + (high - low) // 2
            if self.time_offset(middle) < first if not s.has_last else self.time_offset(middle) <= s.known_last:
                low = middle + 1
            else:
                high = middle
        self.time_begin = self.time_cursor = low

    cdef void build_entries(self, const State *s, int64_t last, int64_t position, int64_t timestamp) noexcept nogil:
        """Build the entries that LogSegment.recover writes at this batch."""
        cdef uint8_t *p
        cdef int64_t relative = last - self.base
        cdef bint later = timestamp > s.max_timestamp
        if relative < 0 or relative > OFFSET_SPAN or (self.built_index.size and last <= self.built_offset):
            self.building = False
            return
        self.built_offset = last
        self.last_built = position
        if self.built_index.size < self.built_index.limit and self.fits(&self.built_index, INDEX_ENTRY):
            p = self.built_index.data + self.built_index.size
            put32(put32(p, relative), position)
            self.built_index.size += INDEX_ENTRY
        if self.first_due == NO_VALUE:
            self.first_due = timestamp if later else s.max_timestamp
        if (timestamp if later else s.max_timestamp) > self.built_timestamp:
            # The last slot is reserved for the entry at the end.
            self.build_time_entry(timestamp if later else s.max_timestamp, last if later else s.max_timestamp_offset,
                                  self.built_time.limit - TIME_ENTRY)

    cdef void recover_entries(self, const State *s, int64_t last, int64_t position, int64_t timestamp) noexcept nogil:
        """Do what LogSegment.recover does at a batch for which an entry is due. An index refuses one that goes back."""
        cdef bint later = timestamp > s.max_timestamp
        cdef int64_t largest = timestamp if later else s.max_timestamp
        cdef int64_t offset = last
        if not later:
            offset = s.max_timestamp_offset if s.max_timestamp_position >= 0 else self.carried_time_offset
        if (self.recovered_first >= 0 and last <= self.recovered_offset) \
                or (self.recovered_time >= 0 and offset < self.recovered_time_offset):
            self.refused = position
            self.recovering = False
            return
        if self.recovered_first < 0:
            self.recovered_first = position
        self.recovered = position
        self.recovered_offset = last
        if largest > self.recovered_time:
            self.recovered_time = largest
            self.recovered_time_offset = offset

    cdef void build_time_entry(self, int64_t timestamp, int64_t offset, int64_t limit) noexcept nogil:
        cdef uint8_t *p
        if self.built_time.size >= limit or not self.fits(&self.built_time, TIME_ENTRY):
            return
        p = self.built_time.data + self.built_time.size
        put32(put64(p, timestamp), offset - self.base)
        self.built_time.size += TIME_ENTRY
        self.built_timestamp = timestamp

    cdef bint fits(self, Entries *built, int64_t size) noexcept nogil:
        """Reserve so many bytes; False without memory."""
        cdef uint8_t *entries
        if built.size + size > built.capacity:
            entries = <uint8_t *> realloc(built.data, 2 * built.capacity + 4096)
            if entries == NULL:
                self.failed = True
                return False
            built.data = entries
            built.capacity = 2 * built.capacity + 4096
        return True

    cdef void compare(self, int64_t last, int64_t position) noexcept nogil:
        """Compare the entry that LogSegment.recover would write at this batch with the one in the index."""
        cdef bint left = self.index_cursor < self.index_count
        cdef bint stands = left and self.index_position(self.index_cursor) == position
        cdef bint due = recovery_is_due(position, self.last_entry, self.interval)
        if due != stands or (due and self.index_offset(self.index_cursor) != last):
            self.differs = True
            self.building = False
            self.difference[0] = self.index_cursor
            self.difference[1] = self.index_offset(self.index_cursor) if left else -1
            self.difference[2] = self.index_position(self.index_cursor) if left else -1
            self.difference[3] = last if due else -1
            self.difference[4] = position if due else -1

    cdef void check_time_entry(self, const State *s, int magic, int64_t first, int64_t last, int64_t position,
                               bint spans, int64_t running) noexcept nogil:
        """Check the next time index entry against the first batch that reaches its offset."""
        cdef bint outside
        cdef int64_t offset = self.time_offset(self.time_cursor)
        cdef int64_t timestamp = be64(self.time + TIME_ENTRY * self.time_cursor)
        outside = spans and offset < first
        if self.first_time_entry == NO_VALUE:
            self.first_time_entry = timestamp
        if s.max_timestamp > timestamp:
            self.bad_entry(TIME_MISSES, self.time_cursor, timestamp, offset, first, last, position, s.max_timestamp)
        elif timestamp != running and magic > 0 and (s.linked or not outside):
            # A broker may know the timestamps of a magic that stores none.
            # After damage, the entry can point to a batch that is lost.
            self.bad_entry(TIME_WRONG, self.time_cursor, timestamp, offset, first, last, position, running)
        if outside and s.linked:
            self.bad_entry(TIME_OFFSET, self.time_cursor, timestamp, offset, first, last, position, first)

    cdef void bad_index_entry(self, int problem, int64_t first, int64_t last, int64_t position,
                              int64_t found) noexcept nogil:
        cdef int64_t entry = self.index_cursor
        self.bad_entry(
            problem, entry, self.index_offset(entry), self.index_position(entry), first, last, position, found
        )

    cdef void bad_entry(self, int problem, int64_t entry, int64_t one, int64_t other, int64_t first, int64_t last,
                        int64_t position, int64_t found) noexcept nogil:
        cdef EntryProblem *bad
        self.counts[problem] += 1
        if self.counts[problem] > MOST_ENTRIES_KEPT:
            return
        if self.problem_count == self.problem_capacity:
            bad = <EntryProblem *> realloc(self.problems, (2 * self.problem_capacity + 8) * sizeof(EntryProblem))
            if bad == NULL:
                self.failed = True
                return
            self.problems = bad
            self.problem_capacity = 2 * self.problem_capacity + 8
        bad = self.problems + self.problem_count
        self.problem_count += 1
        bad.problem = problem
        bad.entry = entry
        bad.stored[0] = one
        bad.stored[1] = other
        bad.position = position
        bad.first = first
        bad.last = last
        bad.found = found


def ordered(slots, int entry_size):
    """See indexes.pyi."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t count, i = 0, timestamp = 0
    cdef int32_t offset = -1, target = -1
    if entry_size != INDEX_ENTRY and entry_size != TIME_ENTRY:
        raise ValueError("no index has entries of that size")
    PyObject_GetBuffer(slots, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *> view.buf
        count = view.len // entry_size
        with nogil:
            if entry_size == INDEX_ENTRY:
                while i < count and be32(p) > offset and be32(p + INDEX_POSITION_AT) > target:
                    offset = be32(p)
                    target = be32(p + INDEX_POSITION_AT)
                    i += 1
                    p += INDEX_ENTRY
            else:
                while i < count and be32(p + TIME_OFFSET_AT) >= max(offset, 0) and (i == 0 or be64(p) > timestamp):
                    timestamp = be64(p)
                    offset = be32(p + TIME_OFFSET_AT)
                    i += 1
                    p += TIME_ENTRY
    finally:
        PyBuffer_Release(&view)
    return i
