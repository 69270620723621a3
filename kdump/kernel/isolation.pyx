# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Decides which transactional batches of a partition are committed; see isolation.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t
from libc.stdlib cimport free, qsort, realloc

from kdump.kernel.producers cimport (
    FLAG_TRANSACTIONAL, KIND_ABORT, KIND_COMMIT, KIND_DATA, KIND_GAP, Event,
)

cdef enum:
    FILE_BITS = 20  # of a place; the others are the position in the file

COMMITTED, ABORTED, UNDECIDED = D_COMMITTED, D_ABORTED, D_UNDECIDED


cdef int compare(const void *left, const void *right) noexcept nogil:
    cdef const Marker *a = <const Marker *> left
    cdef const Marker *b = <const Marker *> right
    if a.producer_id != b.producer_id:
        return -1 if a.producer_id < b.producer_id else 1
    return 0 if a.place == b.place else (-1 if a.place < b.place else 1)


cdef int compare_places(const void *left, const void *right) noexcept nogil:
    cdef int64_t a = (<const int64_t *> left)[0], b = (<const int64_t *> right)[0]
    return -1 if a < b else (1 if a > b else 0)


cdef class Decisions:
    """See isolation.pyi."""

    def __dealloc__(self):
        free(self.table.markers)
        free(self.table.gaps)

    def add(self, events):
        """See isolation.pyi."""
        cdef DecisionTable *t = &self.table
        cdef const Event *event
        cdef Py_buffer view
        cdef int64_t i
        cdef bint added = True
        PyObject_GetBuffer(events, &view, PyBUF_SIMPLE)
        try:
            if view.len % sizeof(Event):
                raise ValueError("the events are cut")
            with nogil:
                for i in range(<int64_t> (view.len // sizeof(Event))):
                    event = <const Event *> view.buf + i
                    if event.kind == KIND_GAP:
                        added = add_gap(t, event.position)
                    elif event.kind == KIND_DATA:
                        t.transactional |= event.flags & FLAG_TRANSACTIONAL != 0
                    elif event.producer_id >= 0:
                        added = add_marker(t, event)
                    if not added:
                        break
        finally:
            PyBuffer_Release(&view)
        if not added:
            raise MemoryError

    def gap(self, int64_t position):
        """See isolation.pyi."""
        if not add_gap(&self.table, position):
            raise MemoryError

    def begin(self, int64_t number):
        """See isolation.pyi."""
        if not 0 <= number < 1 << FILE_BITS:
            raise ValueError("too many files")
        self.table.first = number << (63 - FILE_BITS)

    def seal(self):
        """See isolation.pyi."""
        # Without a marker, or a gap, there is no memory, and a null pointer is none of an array.
        if self.table.count:
            qsort(self.table.markers, self.table.count, sizeof(Marker), compare)
        if self.table.gap_count:
            qsort(self.table.gaps, self.table.gap_count, sizeof(int64_t), compare_places)
        return self.table.transactional

    def of(self, int64_t producer_id, int64_t position):
        """See isolation.pyi."""
        return decision(&self.table, producer_id, position)


cdef bint add_marker(DecisionTable *t, const Event *event) noexcept nogil:
    cdef Marker *markers
    if t.count == t.capacity:
        t.capacity = max(256, t.capacity * 2)
        markers = <Marker *> realloc(t.markers, t.capacity * sizeof(Marker))
        if markers == NULL:
            return False
        t.markers = markers
    t.markers[t.count].producer_id = event.producer_id
    t.markers[t.count].place = t.first + event.position
    t.markers[t.count].outcome = D_COMMITTED if event.kind == KIND_COMMIT \
        else D_ABORTED if event.kind == KIND_ABORT else D_UNDECIDED
    t.count += 1
    return True


cdef bint add_gap(DecisionTable *t, int64_t position) noexcept nogil:
    cdef int64_t *gaps
    if t.gap_count == t.gap_capacity:
        t.gap_capacity = max(64, t.gap_capacity * 2)
        gaps = <int64_t *> realloc(t.gaps, t.gap_capacity * sizeof(int64_t))
        if gaps == NULL:
            return False
        t.gaps = gaps
    t.gaps[t.gap_count] = t.first + position
    t.gap_count += 1
    return True
