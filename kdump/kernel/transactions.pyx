# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""The transactions of a log as one additive value; see transactions.pyi.

Of each producer it keeps what is open: the batches after its last end. A range that may begin inside the log also keeps
the batches before the first end, `head`, which belong to what is open at the end of the range before. An end is a
marker, or a gap where one may be missing; a gap ends what all producers have open.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memset

from kdump.kernel.layout cimport (
    ATTRIBUTES, BASE_OFFSET, BATCH_WIDTH, CONTROL_FLAG, COUNT, MAGIC, POSITION, PRODUCER_ID, TRANSACTIONAL_FLAG,
)
from kdump.kernel.histogram cimport histogram_add, histogram_begin, histogram_end, histogram_fields
from kdump.kernel.producers cimport (
    FLAG_TRANSACTIONAL, KIND_ABORT, KIND_COMMIT, KIND_DATA, KIND_EMPTY, KIND_GAP, KIND_ODD, Event, table_add,
    table_begin, table_clear, table_end, table_index, table_row, table_slot,
)

cdef enum:
    FILE_BITS = 20  # of a place; the others are the position in the file
    IS_OPEN = 3     # after D_UNDECIDED

COMMITTED, ABORTED, UNDECIDED = D_COMMITTED, D_ABORTED, D_UNDECIDED
OPEN = IS_OPEN


cdef int compare_markers(const void *left, const void *right) noexcept nogil:
    cdef const Marker *a = <const Marker *> left
    cdef const Marker *b = <const Marker *> right
    if a.producer_id != b.producer_id:
        return -1 if a.producer_id < b.producer_id else 1
    return 0 if a.place == b.place else (-1 if a.place < b.place else 1)


cdef int compare_places(const void *left, const void *right) noexcept nogil:
    cdef int64_t a = (<const int64_t *> left)[0], b = (<const int64_t *> right)[0]
    return -1 if a < b else (1 if a > b else 0)


cdef int compare_ended(const void *left, const void *right) noexcept nogil:
    """Order by end, and what a gap ends by the begin."""
    cdef const EndedTransaction *a = <const EndedTransaction *> left
    cdef const EndedTransaction *b = <const EndedTransaction *> right
    if a.end.place != b.end.place:
        return -1 if a.end.place < b.end.place else 1
    return 0 if a.part.place == b.part.place else (-1 if a.part.place < b.part.place else 1)


cdef inline void join_parts(TransactionPart *left, const TransactionPart *right) noexcept nogil:
    if not right.is_open:
        return
    if not left.is_open:
        left[0] = right[0]
        return
    left.batches += right.batches
    left.records += right.records
    left.bytes += right.bytes
    left.last_offset = right.last_offset
    left.last_timestamp = right.last_timestamp
    left.epoch = right.epoch


cdef inline int64_t outcome_of(const TransactionEnd *end) noexcept nogil:
    return D_COMMITTED if end.kind == COMMIT_END else D_ABORTED if end.kind == ABORT_END else D_UNDECIDED


cdef inline bint is_data(const int64_t *row) noexcept nogil:
    """Whether a row of a scan is of a batch that a transaction decides about."""
    return row[MAGIC] >= 2 and row[ATTRIBUTES] & (TRANSACTIONAL_FLAG | CONTROL_FLAG) == TRANSACTIONAL_FLAG


cdef bint append_marker(DecisionTable *t, int64_t producer_id, int64_t place, int64_t outcome) noexcept nogil:
    """Add a marker after all others; False without memory."""
    cdef int64_t capacity
    cdef Marker *markers
    if t.count == t.capacity:
        capacity = max(256, t.capacity * 2)
        markers = <Marker *> realloc(t.markers, capacity * sizeof(Marker))
        if markers == NULL:
            return False
        t.markers = markers
        t.capacity = capacity
    t.markers[t.count].producer_id = producer_id
    t.markers[t.count].place = place
    t.markers[t.count].outcome = outcome
    t.count += 1
    return True


cdef inline tuple fields_of(int64_t producer_id, const TransactionPart *part, const TransactionEnd *end):
    """What kdump.log.transactions.Transaction is built of; `end` is NULL for an open transaction."""
    cdef int64_t outcome = IS_OPEN if end == NULL else outcome_of(end)
    cdef tuple batches = (0, None, None, None, None)
    cdef bint marked = end != NULL and end.kind != LOST_END
    if part.is_open:
        batches = part.batches, part.first_offset, part.last_offset, part.first_timestamp, part.last_timestamp
    return (
        producer_id, part.epoch if part.is_open else end.epoch, outcome, *batches,
        end.offset if marked else None, end.timestamp if marked else None,
    )


cdef inline tuple begin_of(int64_t producer_id, const TransactionPart *part, const TransactionEnd *end):
    """(place, producer id, first offset) of a transaction; one without batches begins with its marker."""
    if part.is_open:
        return part.place, producer_id, part.first_offset
    return end.place, producer_id, end.offset


cdef class Transactions:
    """See transactions.pyi."""

    def __cinit__(self, *, bint anchored=False, bint measured=False, bint decided=False, bint listed=False,
                  bint gaps=True, bint idempotent=False):
        self.anchored = anchored
        self.measured = measured
        self.decided = decided
        self.listed = listed
        self.passes_gaps = not gaps
        self.idempotent = idempotent
        self.lost.kind = NO_END
        if not table_begin(&self.producers):
            raise MemoryError
        # Not one `and`: each makes what __dealloc__ frees.
        if measured and (not histogram_begin(&self.durations) or not histogram_begin(&self.sizes)
                         or not histogram_begin(&self.records)):
            raise MemoryError

    def __dealloc__(self):
        free(self.table.markers)
        free(self.table.gaps)
        table_end(&self.producers)
        free(self.gaps)
        free(self.ended)
        if self.measured:
            histogram_end(&self.durations)
            histogram_end(&self.sizes)
            histogram_end(&self.records)

    def __len__(self):
        return self.producers.count + self.ended_count

    # ---- rows

    cdef TransactionCells *find(self, int64_t producer_id) noexcept nogil:
        """Return the row of a producer, NULL if it has none."""
        return <TransactionCells *> table_row(&self.producers, sizeof(TransactionCells), producer_id)

    cdef TransactionCells *add_row(self, int64_t producer_id) noexcept nogil:
        """Return the row of a producer, a new one if it has none; NULL without memory."""
        cdef TransactionCells *row = self.find(producer_id)
        cdef int64_t slot
        if row != NULL:
            return row
        if self.anchored and self.producers.count == self.producers.capacity \
                and 2 * self.opened < self.producers.count:
            self.drop_ended()
        slot = table_slot(&self.producers, sizeof(TransactionCells), producer_id)
        row = <TransactionCells *> table_add(&self.producers, sizeof(TransactionCells), producer_id, slot)
        if row == NULL:
            self.failed = True
            return NULL
        row.end = self.lost
        if self.anchored:
            row.end.kind = COMMIT_END  # nothing comes before the beginning of the log
        return row

    cdef void drop_ended(self) noexcept nogil:
        """Keep the rows of open transactions."""
        cdef int64_t i, kept = 0
        for i in range(self.producers.count):
            if self.row(i).tail.is_open:
                self.row(kept)[0] = self.row(i)[0]
                kept += 1
        self.producers.count = kept
        table_index(&self.producers, sizeof(TransactionCells))

    # ---- what comes in log order

    cdef void data(self, int64_t producer_id, const TransactionPart *part) noexcept nogil:
        """Add data batches."""
        cdef TransactionCells *row = self.add_row(producer_id)
        if row != NULL:
            self.opened += not row.tail.is_open
            join_parts(&row.tail, part)

    cdef void marker(self, int64_t producer_id, const TransactionEnd *end) noexcept nogil:
        """Add what ends the transaction of a producer."""
        cdef TransactionPart nothing
        cdef TransactionCells *row = self.find(producer_id)
        self.markers[end.kind] += 1
        if row == NULL:
            if self.anchored or self.lost.kind != NO_END:
                memset(&nothing, 0, sizeof(TransactionPart))
                self.finish(producer_id, &nothing, end)
                return
            row = self.add_row(producer_id)
            if row == NULL:
                return
        if end.kind == ABORT_END:
            self.aborted_records += row.tail.records
        if row.end.kind == NO_END:
            row.head = row.tail
            row.end = end[0]
        else:
            self.finish(producer_id, &row.tail, end)
        self.opened -= row.tail.is_open
        memset(&row.tail, 0, sizeof(TransactionPart))

    cdef void gap(self, int64_t place) noexcept nogil:
        """End all that is open: a marker may be missing here."""
        cdef int64_t i, start = self.ended_count
        cdef TransactionEnd end
        cdef TransactionCells *row
        memset(&end, 0, sizeof(TransactionEnd))
        end.place = place
        end.kind = LOST_END
        for i in range(self.producers.count if self.opened else 0):
            row = self.row(i)
            if not row.tail.is_open:
                continue
            if row.end.kind == NO_END:
                row.head = row.tail
                row.end = end
            else:
                self.finish(row.producer_id, &row.tail, &end)
            memset(&row.tail, 0, sizeof(TransactionPart))
        self.opened = 0
        if self.ended_count > start + 1:
            qsort(self.ended + start, self.ended_count - start, sizeof(EndedTransaction), compare_ended)
        if self.lost.kind == NO_END:
            self.lost = end
        if self.anchored:
            table_clear(&self.producers, sizeof(TransactionCells))

    cdef void pass_gaps(self, int64_t stop) noexcept nogil:
        """Apply the gaps before a place that were given before their events."""
        cdef int64_t passed = 0, i
        while passed < self.gap_count and self.gaps[passed] < stop:
            self.gap(self.gaps[passed])
            passed += 1
        if passed:
            self.gap_count -= passed
            for i in range(self.gap_count):
                self.gaps[i] = self.gaps[passed + i]

    cdef void finish(self, int64_t producer_id, const TransactionPart *part, const TransactionEnd *end) noexcept nogil:
        """Take a transaction that ended, or a marker that ended nothing."""
        cdef EndedTransaction found
        cdef EndedTransaction *ended
        cdef int64_t capacity
        if self.measured and end.kind != LOST_END:
            self.complete(part, end)
        if not self.listed and (end.kind != LOST_END or not part.is_open):
            return
        found.producer_id = producer_id
        found.part = part[0]
        found.end = end[0]
        if end.kind == LOST_END and part.is_open:
            self.take_undecided(&found)
        if not self.listed:
            return
        if self.ended_count == self.ended_capacity:
            capacity = max(2 * self.ended_capacity, 64)
            ended = <EndedTransaction *> realloc(self.ended, capacity * sizeof(EndedTransaction))
            if ended == NULL:
                self.failed = True
                return
            self.ended = ended
            self.ended_capacity = capacity
        self.ended[self.ended_count] = found
        self.ended_count += 1

    cdef void take_undecided(self, const EndedTransaction *found) noexcept nogil:
        """Keep the one with the lowest first offset, of several the one that ended first."""
        cdef EndedTransaction *own = &self.undecided
        if own.part.is_open and (own.part.first_offset < found.part.first_offset
                                 or (own.part.first_offset == found.part.first_offset
                                     and compare_ended(own, found) <= 0)):
            return
        own[0] = found[0]

    cdef void complete(self, const TransactionPart *part, const TransactionEnd *end) noexcept nogil:
        """Measure a transaction that a marker ended."""
        if not part.batches:
            return
        if end.timestamp >= 0 and part.first_timestamp >= 0:
            histogram_add(&self.durations, end.timestamp - part.first_timestamp)
        histogram_add(&self.sizes, part.bytes)
        histogram_add(&self.records, part.records)

    # ---- events

    cdef void take_event(self, const Event *event) noexcept nogil:
        cdef TransactionPart part
        cdef TransactionEnd end
        cdef int64_t place = self.table.first + event.position
        if self.gap_count:
            self.pass_gaps(place)
        if event.kind == KIND_GAP:
            if not self.passes_gaps:
                self.add_gap(place)
                self.gap(place)
        elif event.kind == KIND_DATA:
            if self.idempotent:
                self.add_row(event.producer_id)
            if event.flags & FLAG_TRANSACTIONAL:
                self.table.transactional = True
                part.place = place
                part.batches = event.batches
                part.records = part.bytes = 0
                part.first_offset = event.first_offset
                part.last_offset = event.last_offset
                part.first_timestamp = event.first_timestamp
                part.last_timestamp = event.timestamp
                part.epoch = event.epoch
                part.is_open = True
                self.data(event.producer_id, &part)
        elif event.kind != KIND_EMPTY:
            end.place = place
            end.offset = event.last_offset
            end.timestamp = event.timestamp
            end.epoch = event.epoch
            end.kind = COMMIT_END if event.kind == KIND_COMMIT else ABORT_END if event.kind == KIND_ABORT else LOST_END
            self.add_marker(event.producer_id, place, outcome_of(&end))
            self.marker(event.producer_id, &end)

    def add(self, events):
        cdef Py_buffer view
        cdef int64_t i
        PyObject_GetBuffer(events, &view, PyBUF_SIMPLE)
        try:
            if view.len % <Py_ssize_t> sizeof(Event):
                raise ValueError("the events are cut")
            with nogil:
                for i in range(view.len // <Py_ssize_t> sizeof(Event)):
                    self.take_event(<const Event *> view.buf + i)
        finally:
            PyBuffer_Release(&view)
        if self.failed:
            raise MemoryError

    def begin(self, int64_t number):
        if not 0 <= number < 1 << FILE_BITS:
            raise ValueError("too many files")
        self.pass_gaps(INT64_MAX)
        self.table.first = number << (63 - FILE_BITS)

    def lose(self, int64_t position):
        cdef int64_t capacity
        cdef int64_t *gaps
        if self.passes_gaps:
            return
        if self.gap_count == self.gap_capacity:
            capacity = max(64, self.gap_capacity * 2)
            gaps = <int64_t *> realloc(self.gaps, capacity * sizeof(int64_t))
            if gaps == NULL:
                raise MemoryError
            self.gaps = gaps
            self.gap_capacity = capacity
        self.gaps[self.gap_count] = self.table.first + position
        self.gap_count += 1
        self.add_gap(self.table.first + position)
        if self.failed:
            raise MemoryError

    def resume(self, first_offsets):
        cdef TransactionPart part
        cdef int64_t number = 0
        memset(&part, 0, sizeof(TransactionPart))
        part.first_timestamp = part.last_timestamp = part.last_offset = part.epoch = -1
        part.is_open = True
        for producer_id, offset in first_offsets.items():
            part.place = INT64_MIN + number
            part.first_offset = offset
            number += 1
            self.data(producer_id, &part)
        if self.failed:
            raise MemoryError

    # ---- what became of a batch

    cdef void add_marker(self, int64_t producer_id, int64_t place, int64_t outcome) noexcept nogil:
        if self.decided and producer_id >= 0 and not append_marker(&self.table, producer_id, place, outcome):
            self.failed = True

    cdef void add_gap(self, int64_t place) noexcept nogil:
        cdef DecisionTable *t = &self.table
        cdef int64_t *gaps
        if not self.decided:
            return
        if t.gap_count == t.gap_capacity:
            t.gap_capacity = max(64, t.gap_capacity * 2)
            gaps = <int64_t *> realloc(t.gaps, t.gap_capacity * sizeof(int64_t))
            if gaps == NULL:
                self.failed = True
                return
            t.gaps = gaps
        t.gaps[t.gap_count] = place
        t.gap_count += 1

    def seal(self):
        self.pass_gaps(INT64_MAX)
        # Without a marker, or a gap, there is no memory, and a null pointer is none of an array.
        if self.table.count:
            qsort(self.table.markers, self.table.count, sizeof(Marker), compare_markers)
        if self.table.gap_count:
            qsort(self.table.gaps, self.table.gap_count, sizeof(int64_t), compare_places)
        return self.table.transactional

    def forget(self, int64_t position):
        cdef DecisionTable *t = &self.table
        cdef int64_t i, place = t.first + position, kept = 0
        for i in range(t.count):
            if t.markers[i].place >= place:
                t.markers[kept] = t.markers[i]
                kept += 1
        t.count = kept
        kept = 0
        for i in range(t.gap_count):
            if t.gaps[i] >= place:
                t.gaps[kept] = t.gaps[i]
                kept += 1
        t.gap_count = kept

    def of(self, int64_t producer_id, int64_t position):
        return decision(&self.table, producer_id, position)

    def of_rows(self, rows, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *row
        cdef bytearray found = None
        cdef int64_t i
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= count <= view.len // (BATCH_WIDTH * 8):
                raise ValueError("count")
            for i in range(count):
                row = <const int64_t *> view.buf + i * BATCH_WIDTH
                if is_data(row):
                    if found is None:
                        found = bytearray(count)
                    found[i] = decision(&self.table, row[PRODUCER_ID], row[POSITION])
        finally:
            PyBuffer_Release(&view)
        return None if found is None else bytes(found)

    # ---- adding

    cdef void end_unseen(self, const TransactionCells *rows, int64_t count, const TransactionEnd *lost) noexcept nogil:
        """End what is open here of the producers that the right side does not have, at its first gap."""
        cdef int64_t i
        cdef TransactionCells *row
        for i in range(count):
            row = self.find(rows[i].producer_id)
            if row != NULL:
                row.visited = True
        for i in range(self.producers.count):
            row = self.row(i)
            if row.tail.is_open and not row.visited:
                if row.end.kind == NO_END:
                    row.head = row.tail
                    row.end = lost[0]
                else:
                    self.finish(row.producer_id, &row.tail, lost)
                self.opened -= 1
                memset(&row.tail, 0, sizeof(TransactionPart))
            row.visited = False

    cdef int64_t join_rows(self, const TransactionCells *rows, int64_t count,
                           const TransactionEnd *lost) noexcept nogil:
        """Add the rows of what follows; returns the records that were open here and that it aborts."""
        cdef int64_t i, aborted = 0
        cdef const TransactionCells *right
        cdef TransactionCells *left
        if lost.kind != NO_END:
            self.end_unseen(rows, count, lost)
        for i in range(count):
            right = rows + i
            left = self.add_row(right.producer_id)
            if left == NULL:
                return aborted
            self.opened -= left.tail.is_open
            if right.end.kind == NO_END:
                join_parts(&left.tail, &right.tail)
                self.opened += left.tail.is_open
                continue
            if right.end.kind == ABORT_END:
                aborted += left.tail.records
            join_parts(&left.tail, &right.head)
            if left.end.kind == NO_END:
                left.head = left.tail
                left.end = right.end
            else:
                self.finish(left.producer_id, &left.tail, &right.end)
            left.tail = right.tail
            self.opened += left.tail.is_open
        if self.lost.kind == NO_END:
            self.lost = lost[0]
        if self.anchored:
            self.drop_ended()
        return aborted

    cdef void join_ended(self, int64_t start, const EndedTransaction *ended, int64_t count) noexcept nogil:
        """Add what ended in what follows, after its rows. `start`: how many had ended before them."""
        cdef int64_t i
        for i in range(count):
            self.finish(ended[i].producer_id, &ended[i].part, &ended[i].end)
        if self.ended_count > start + 1:
            qsort(self.ended + start, self.ended_count - start, sizeof(EndedTransaction), compare_ended)

    def join(self, cells, ended=b""):
        cdef Py_buffer view
        cdef int64_t aborted, start = self.ended_count
        cdef TransactionEnd lost
        memset(&lost, 0, sizeof(TransactionEnd))
        lost.kind = NO_END
        PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
        try:
            aborted = self.join_rows(
                <const TransactionCells *> view.buf, view.len // <Py_ssize_t> sizeof(TransactionCells), &lost
            )
        finally:
            PyBuffer_Release(&view)
        PyObject_GetBuffer(ended, &view, PyBUF_SIMPLE)
        try:
            self.join_ended(
                start, <const EndedTransaction *> view.buf, view.len // <Py_ssize_t> sizeof(EndedTransaction)
            )
        finally:
            PyBuffer_Release(&view)
        if self.failed:
            raise MemoryError
        return aborted

    def extend(self, Transactions other not None):
        cdef int64_t i, start = self.ended_count
        self.pass_gaps(INT64_MAX)
        other.pass_gaps(INT64_MAX)
        self.join_rows(other.row(0), other.producers.count, &other.lost)
        self.join_ended(start, other.ended, other.ended_count)
        if other.undecided.part.is_open:
            self.take_undecided(&other.undecided)
        self.table.first = other.table.first
        self.table.transactional |= other.table.transactional
        for i in range(other.table.count):
            self.add_marker(
                other.table.markers[i].producer_id, other.table.markers[i].place, other.table.markers[i].outcome
            )
        for i in range(other.table.gap_count):
            self.add_gap(other.table.gaps[i])
        if self.failed:
            raise MemoryError

    # ---- results

    def take(self):
        cdef int64_t i
        if self.failed:
            raise MemoryError
        found = [fields_of(self.ended[i].producer_id, &self.ended[i].part, &self.ended[i].end)
                 for i in range(self.ended_count)
                 if self.ended[i].part.is_open or self.ended[i].end.kind != LOST_END]
        self.ended_count = 0
        return found

    @property
    def open_count(self):
        return self.opened

    def open(self):
        cdef int64_t i
        if self.failed:
            raise MemoryError
        found = [(self.row(i).tail.place, fields_of(self.row(i).producer_id, &self.row(i).tail, NULL))
                 for i in range(self.producers.count if self.opened else 0) if self.row(i).tail.is_open]
        found.sort()
        return [fields for _, fields in found]

    def is_open(self, int64_t producer_id):
        cdef const TransactionCells *row = self.find(producer_id)
        return row != NULL and row.tail.is_open != 0

    def is_open_before(self, int64_t number, int64_t position=0):
        cdef int64_t i, at, place = (number << (63 - FILE_BITS)) + position
        for i in range(self.producers.count if self.opened else 0):
            at = (self.waiting + i) % self.producers.count
            if self.row(at).tail.is_open and self.row(at).tail.place < place:
                self.waiting = at  # the next call begins here, so that it need not look at all of them
                return True
        return False

    def first_open(self):
        cdef int64_t i
        cdef TransactionCells *row
        cdef TransactionCells *first = NULL
        for i in range(self.producers.count if self.opened else 0):
            row = self.row(i)
            if row.tail.is_open and (first == NULL or row.tail.first_offset < first.tail.first_offset
                                     or (row.tail.first_offset == first.tail.first_offset
                                         and row.tail.place < first.tail.place)):
                first = row
        return None if first == NULL else fields_of(first.producer_id, &first.tail, NULL)

    def first_undecided(self):
        cdef EndedTransaction *found = &self.undecided
        return fields_of(found.producer_id, &found.part, &found.end) if found.part.is_open else None

    def packed(self):
        if self.failed:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *> self.producers.rows, self.producers.count * sizeof(TransactionCells))

    def packed_ended(self):
        if self.failed:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char *> self.ended, self.ended_count * sizeof(EndedTransaction))

    @property
    def control_batches(self):
        return self.markers[ABORT_END] + self.markers[COMMIT_END] + self.markers[LOST_END]

    def producer_ids(self):
        cdef int64_t i
        return [self.row(i).producer_id for i in range(self.producers.count)]

    def begins(self):
        cdef int64_t i
        cdef list found = []
        for i in range(self.ended_count):
            found.append(begin_of(self.ended[i].producer_id, &self.ended[i].part, &self.ended[i].end))
        for i in range(self.producers.count):
            if self.row(i).end.kind != NO_END:
                found.append(begin_of(self.row(i).producer_id, &self.row(i).head, &self.row(i).end))
            if self.row(i).tail.is_open:
                found.append(begin_of(self.row(i).producer_id, &self.row(i).tail, &self.row(i).end))
        found.sort()
        return [(producer_id, first) for _, producer_id, first in found]

    def measures(self):
        if self.failed:
            raise MemoryError
        return (
            self.markers[1], self.markers[0], self.aborted_records, histogram_fields(&self.durations),
            histogram_fields(&self.sizes), histogram_fields(&self.records),
        )


def open_of(cells):
    """See transactions.pyi."""
    cdef Py_buffer view
    cdef int64_t i
    cdef const TransactionCells *rows
    PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
    try:
        rows = <const TransactionCells *> view.buf
        return [(rows[i].producer_id, rows[i].tail.records)
                for i in range(view.len // <Py_ssize_t> sizeof(TransactionCells)) if rows[i].tail.is_open]
    finally:
        PyBuffer_Release(&view)


def first_markers(cells, producer_ids):
    """See transactions.pyi."""
    cdef Py_buffer view
    cdef int64_t i
    cdef const TransactionCells *rows
    cdef dict found = {}
    PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
    try:
        rows = <const TransactionCells *> view.buf
        for i in range(view.len // <Py_ssize_t> sizeof(TransactionCells) if producer_ids else 0):
            if rows[i].end.kind != NO_END and rows[i].producer_id in producer_ids:
                found[rows[i].producer_id] = rows[i].end.kind == COMMIT_END
    finally:
        PyBuffer_Release(&view)
    return found


# ---- batches that were taken for committed

cdef class UncommittedBatches:
    """See transactions.pyi."""

    def __cinit__(self, int64_t most):
        if most < 1:
            raise ValueError("most")
        self.most = most

    def __dealloc__(self):
        free(self.table.markers)
        free(self.batches)

    def begin(self, int64_t number):
        self.table.first = number << (63 - FILE_BITS)

    def note(self, rows, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *row
        cdef int64_t i
        cdef int added = 1
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= count <= view.len // (BATCH_WIDTH * 8):
                raise ValueError("count")
            for i in range(count):
                row = <const int64_t *> view.buf + i * BATCH_WIDTH
                if is_data(row):
                    added = self.append(row[PRODUCER_ID], row[POSITION], row[BASE_OFFSET], row[COUNT])
                    if added <= 0:
                        break
        finally:
            PyBuffer_Release(&view)
        if added < 0:
            raise MemoryError
        return added == 1

    cdef int append(self, int64_t producer_id, int64_t position, int64_t first_offset, int64_t records) noexcept nogil:
        """Add a data batch; 0 where there is no room, -1 without memory."""
        cdef DataBatch *batches
        cdef DataBatch *batch
        cdef int64_t capacity
        if self.count == self.most:
            self.settle()
            if 2 * self.count > self.most:
                return 0
        if self.count == self.capacity:
            capacity = min(self.most, max(256, 2 * self.capacity))
            batches = <DataBatch *> realloc(self.batches, capacity * sizeof(DataBatch))
            if batches == NULL:
                return -1
            self.batches = batches
            self.capacity = capacity
        batch = self.batches + self.count
        batch.producer_id = producer_id
        batch.place = self.table.first + position
        batch.first_offset = first_offset
        batch.records = <int32_t> records
        batch.is_decided = False
        self.count += 1
        return 1

    def add(self, events):
        cdef Py_buffer view
        cdef const Event *event
        cdef int64_t i, outcome
        PyObject_GetBuffer(events, &view, PyBUF_SIMPLE)
        try:
            if view.len % <Py_ssize_t> sizeof(Event):
                raise ValueError("the events are cut")
            for i in range(view.len // <Py_ssize_t> sizeof(Event)):
                event = <const Event *> view.buf + i
                if event.kind != KIND_COMMIT and event.kind != KIND_ABORT and event.kind != KIND_ODD:
                    continue
                outcome = D_COMMITTED if event.kind == KIND_COMMIT else D_ABORTED
                if not append_marker(&self.table, event.producer_id, self.table.first + event.position, outcome):
                    raise MemoryError
        finally:
            PyBuffer_Release(&view)
        if self.table.count >= self.most:
            self.settle()

    cdef void settle(self) noexcept nogil:
        """Drop the batches that a marker committed, and the markers."""
        cdef int64_t i, outcome, kept = 0, first = self.table.first
        cdef DataBatch *batch
        if not self.table.count:
            return
        qsort(self.table.markers, self.table.count, sizeof(Marker), compare_markers)
        self.table.first = 0
        for i in range(self.count):
            batch = self.batches + i
            if not batch.is_decided:
                outcome = decision(&self.table, batch.producer_id, batch.place)
                if outcome == D_COMMITTED:
                    continue
                batch.is_decided = outcome == D_ABORTED
            self.batches[kept] = batch[0]
            kept += 1
        self.count = kept
        self.table.count = 0
        self.table.first = first

    def packed(self):
        self.settle()
        return PyBytes_FromStringAndSize(<const char *> self.batches, self.count * sizeof(DataBatch))

    def extend(self, packed):
        cdef Py_buffer view
        cdef const DataBatch *batch
        cdef int64_t i
        cdef int added = 1
        PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
        try:
            if view.len % <Py_ssize_t> sizeof(DataBatch):
                raise ValueError("the batches are cut")
            for i in range(view.len // <Py_ssize_t> sizeof(DataBatch)):
                batch = <const DataBatch *> view.buf + i
                added = self.append(batch.producer_id, batch.place, batch.first_offset, batch.records)
                if added <= 0:
                    break
                self.batches[self.count - 1].is_decided = batch.is_decided
        finally:
            PyBuffer_Release(&view)
        if added < 0:
            raise MemoryError
        return added == 1

    def take(self):
        cdef int64_t i, mask = (<int64_t> 1 << (63 - FILE_BITS)) - 1
        cdef DataBatch *batch
        self.settle()
        for i in range(self.count):
            batch = self.batches + i
            yield (batch.place >> (63 - FILE_BITS), batch.place & mask, batch.producer_id, batch.first_offset,
                   batch.records)
        self.count = 0
