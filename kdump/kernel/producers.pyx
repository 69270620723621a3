# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Producer state: a scan records the batches of producers (`Runs`), a replay applies them like a broker (`Producers`).

The packed entries of a snapshot lose expired producers here, and get the order in which Kafka writes them.

A scan of a log in ranges, in any order or in parallel, gives the same events as a scan of the whole log, but starts a
new event at the start of a range. The replay, in log order, has the same result.
An event, in the byte order of the machine:

    ===== ==== ==== ================  ==================================================================================
    at    size type field             note
    ===== ==== ==== ================  ==================================================================================
    0     8    i64  producer_id
    8     8    i64  position          of the first batch; of a GAP, where batches are missing
    16    8    i64  first_offset      of the first batch
    24    8    i64  last_offset       of the last batch; of a marker, its first offset
    32    8    i64  timestamp         max timestamp of the last batch
    40    8    i64  first_timestamp   max timestamp of the first batch
    48    4    i32  size              of the first batch, in bytes
    52    4    i32  first_sequence    of the first batch, -1: none; of a marker, the coordinator epoch
    56    4    i32  last_sequence     of the last batch, -1: none
    60    4    i32  offset_delta      last offset - first offset of the last batch
    64    2    i16  epoch
    66    1    u8   kind              0 data, 1 abort marker, 2 commit marker, 3 other or unreadable control batch,
                                      4 gap, 5 control batch without records
    67    1    u8   flags             bit 0: transactional
    68    4    i32  batches
    ===== ==== ==== ================  ==================================================================================

Consecutive data batches of a producer are one event while they cannot fail a check: they are in sequence, have the
same epoch, are all or none transactional, have rising offsets, and are less than a day apart. A GAP notes that damage
may have removed batches. Only its kind and position are set.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kdump.kernel.layout cimport (
    SEQUENCE_MASK, SNAPSHOT_COORDINATOR_EPOCH_AT, SNAPSHOT_ENTRY, SNAPSHOT_EPOCH_AT, SNAPSHOT_LAST_OFFSET_AT,
    SNAPSHOT_LAST_SEQUENCE_AT, SNAPSHOT_OFFSET_DELTA_AT, SNAPSHOT_PRODUCER_ID_AT, SNAPSHOT_TIMESTAMP_AT,
    SNAPSHOT_TXN_FIRST_OFFSET_AT, be16, be32, be64, put16, put32, put64,
)

import os

EVENT = "=qqqqqqiiiihBBi"
EVENT_BYTES = sizeof(Event)
assert EVENT_BYTES == 72
DATA, ABORT, COMMIT, ODD, GAP, EMPTIED = KIND_DATA, KIND_ABORT, KIND_COMMIT, KIND_ODD, KIND_GAP, KIND_EMPTY
TRANSACTIONAL = FLAG_TRANSACTIONAL

PROBLEMS = ("producer/sequence", "producer/epoch", "txn/state", "txn/marker-epoch", "txn/epochs",
            "txn/marker-empty")
cdef enum:
    SEQUENCE, EPOCH, STATE, MARKER_EPOCH, EPOCHS, MARKER_EMPTY, PROBLEM_COUNT
TALLIES = ("gap", "empty", "coordinator")
cdef enum:
    SKIPPED, EMPTY, COORDINATOR, TALLY_COUNT
assert len(PROBLEMS) == PROBLEM_COUNT and len(TALLIES) == TALLY_COUNT
cdef enum:
    MOST_ENTRIES = 1 << 29  # of a snapshot
    ROWS_KEPT = 1000
    FIRST_SLOTS = 128
KEPT, RUNS_FULL = ROWS_KEPT, FULL_RUNS
FIELDS = ("producer_epoch", "last_sequence", "last_offset", "offset_delta", "timestamp", "coordinator_epoch",
          "current_txn_first_offset")
cdef enum:
    F_EPOCH, F_SEQUENCE, F_OFFSET, F_DELTA, F_TIMESTAMP, F_COORDINATOR, F_TXN, FIELD_COUNT
assert len(FIELDS) == FIELD_COUNT

cdef uint64_t _salt = int.from_bytes(os.urandom(8))  # no file can be crafted whose producers all share a slot
cdef uint32_t HALF = 1 << 30  # a sequence that is less than this ahead is ahead, else it goes back


# ---- the hash table of producers

cdef bint table_begin(ProducerTable *t) noexcept nogil:
    """Make a table without rows; False without memory."""
    memset(t, 0, sizeof(ProducerTable))
    t.salt = _salt
    t.mask = FIRST_SLOTS - 1
    t.slots = <int32_t *> calloc(FIRST_SLOTS, sizeof(int32_t))
    return t.slots != NULL


cdef void table_end(ProducerTable *t) noexcept nogil:
    free(t.rows)
    free(t.slots)


cdef inline int64_t row_id(const ProducerTable *t, int64_t size, int64_t number) noexcept nogil:
    return (<const int64_t *> (t.rows + number * size))[0]


cdef bint table_fit(ProducerTable *t, int64_t size) noexcept nogil:
    """Reserve room for one more row and one more slot; False without memory."""
    cdef int64_t capacity, i, mask = t.mask
    cdef uint8_t *rows
    cdef int32_t *slots
    if t.failed:
        return False
    if t.count == t.capacity:
        capacity = max(2 * t.capacity, 64)
        rows = <uint8_t *> realloc(t.rows, capacity * size) if capacity < INT32_MAX else NULL
        if rows == NULL:
            t.failed = True
            return False
        t.rows = rows
        t.capacity = capacity
    if 2 * t.used > mask:
        slots = t.slots
        t.slots = <int32_t *> calloc(2 * (mask + 1), sizeof(int32_t))
        if t.slots == NULL:
            t.slots = slots
            t.failed = True
            return False
        t.mask = 2 * mask + 1
        for i in range(mask + 1):
            if slots[i]:
                t.slots[table_slot(t, size, row_id(t, size, slots[i] - 1))] = slots[i]
        free(slots)
    return True


cdef void *table_add(ProducerTable *t, int64_t size, int64_t producer_id, int64_t slot) noexcept nogil:
    """Add a row, zeros but for the producer id; NULL without memory. `slot`: what table_slot returns for it."""
    cdef uint8_t *row
    cdef int64_t mask = t.mask
    if not table_fit(t, size):
        return NULL
    if t.mask != mask:
        slot = table_slot(t, size, producer_id)
    row = t.rows + t.count * size
    memset(row, 0, size)
    (<int64_t *> row)[0] = producer_id
    t.count += 1
    t.used += t.slots[slot] == 0
    t.slots[slot] = <int32_t> t.count
    return row


cdef void table_index(ProducerTable *t, int64_t size) noexcept nogil:
    """Write the slots anew after the rows were moved, or removed."""
    cdef int64_t i
    memset(t.slots, 0, (t.mask + 1) * sizeof(int32_t))
    for i in range(t.count):
        t.slots[table_slot(t, size, row_id(t, size, i))] = <int32_t> (i + 1)
    t.used = t.count


cdef void table_clear(ProducerTable *t, int64_t size) noexcept nogil:
    """Remove all rows. Takes as long as there are rows, however many slots there are."""
    cdef int64_t i, slot
    if t.count > t.mask >> 3:
        memset(t.slots, 0, (t.mask + 1) * sizeof(int32_t))
    else:
        for i in range(t.count):
            slot = first_slot(t, row_id(t, size, i))
            while t.slots[slot]:
                t.slots[slot] = 0
                slot = (slot + 1) & t.mask
    t.count = t.used = 0


# ---- recording

cdef Recorder *recorder_of(object runs) except NULL:
    cdef Runs checked = <Runs?> runs
    return &checked.recorder


cdef void record(Recorder *r, const Event *event, int64_t slot) noexcept nogil:
    """Add an event. `slot`: the result of find_slot for its producer."""
    cdef void *row = table_add(&r.events, sizeof(Event), event.producer_id, slot)
    if row != NULL:
        (<Event *> row)[0] = event[0]


cdef void record_gap(Recorder *r, int64_t position) noexcept nogil:
    cdef Event *row
    if (r.events.count and r.gap == r.events.count) or not table_fit(&r.events, sizeof(Event)):
        return
    row = <Event *> r.events.rows + r.events.count  # in no slot: it is of all producers
    memset(row, 0, sizeof(Event))
    row.position = position
    row.kind = KIND_GAP
    r.events.count += 1
    r.gap = r.events.count


cdef class Runs:
    """Records the batches of producers during a scan; see producers.pyi."""

    cdef Recorder recorder

    def __cinit__(self, bint exact=False):
        self.recorder.exact = exact
        if not table_begin(&self.recorder.events):
            raise MemoryError

    def __dealloc__(self):
        table_end(&self.recorder.events)

    @property
    def count(self):
        return self.recorder.events.count

    @property
    def odd(self):
        return bool(self.recorder.odd)

    def take(self):
        cdef ProducerTable *t = &self.recorder.events
        if t.failed:
            raise MemoryError
        events = PyBytes_FromStringAndSize(<char *> t.rows, t.count * sizeof(Event))
        table_clear(t, sizeof(Event))
        self.recorder.gap = 0
        return events


# ---- replaying

cdef enum:
    # of a producer
    HAS_SEQUENCE = 1  # its last sequence is known, or it is known to have none
    CERTAIN = 2       # its whole state follows from the log
    TXN_CERTAIN = 4   # the first offset of its open transaction is certain
    FILLED = 8        # its last batch has records: a cleaner can keep an empty one without the marker after it

cdef struct Producer:
    int64_t producer_id
    int64_t last_offset
    int64_t timestamp
    int64_t txn_first        # -1: no transaction is open
    int64_t marker_offset    # of the last marker, if no data follows it; else -1
    int32_t last_sequence
    int32_t offset_delta
    int32_t coordinator_epoch
    int32_t generation       # the state is known if this is the current generation
    int32_t node             # of its open transaction
    int16_t epoch
    uint8_t flags

# An open transaction, in a list in the order of their start. A free node has the next free one in `next`.
cdef struct Node:
    int32_t producer
    int32_t previous
    int32_t next

cdef struct Aborted:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset
    bint certain_first
    bint certain_lso


cdef inline Py_ssize_t whole_entries(const Py_buffer *view) except -1:
    """Return the number of entries of a snapshot. Raises ValueError."""
    if view.len % SNAPSHOT_ENTRY:
        raise ValueError("no whole number of entries")
    return view.len // SNAPSHOT_ENTRY


cdef void parse_entry(const uint8_t *p, int64_t *fields) noexcept nogil:
    """Read the fields of a snapshot entry after the producer id: one value for each missing field."""
    fields[F_EPOCH] = be16(p + SNAPSHOT_EPOCH_AT)
    fields[F_SEQUENCE] = be32(p + SNAPSHOT_LAST_SEQUENCE_AT)
    fields[F_OFFSET] = be64(p + SNAPSHOT_LAST_OFFSET_AT)
    fields[F_DELTA] = be32(p + SNAPSHOT_OFFSET_DELTA_AT)
    fields[F_TIMESTAMP] = be64(p + SNAPSHOT_TIMESTAMP_AT)
    fields[F_COORDINATOR] = be32(p + SNAPSHOT_COORDINATOR_EPOCH_AT)
    fields[F_TXN] = be64(p + SNAPSHOT_TXN_FIRST_OFFSET_AT)
    normalise(fields)


cdef inline void normalise(int64_t *fields) noexcept nogil:
    if fields[F_OFFSET] < 0:
        fields[F_SEQUENCE] = fields[F_OFFSET] = -1
        fields[F_DELTA] = 0
    if fields[F_TXN] < 0:
        fields[F_TXN] = -1


cdef inline void fields_of(const Producer *e, int64_t *fields) noexcept nogil:
    fields[F_EPOCH] = e.epoch
    fields[F_SEQUENCE] = e.last_sequence
    fields[F_OFFSET] = e.last_offset
    fields[F_DELTA] = e.offset_delta
    fields[F_TIMESTAMP] = e.timestamp
    fields[F_COORDINATOR] = e.coordinator_epoch
    fields[F_TXN] = e.txn_first


cdef class Producers:
    """The producer state of a partition; see producers.pyi."""

    cdef readonly bint complete
    cdef bint _sequences, _exact, _failed
    cdef int32_t _generation, _damaged  # the second one: after damage, not after offsets that are missing
    cdef ProducerTable _table    # of Producer
    cdef Node *_nodes
    cdef int32_t _node_capacity, _free_node
    cdef int32_t _first_node, _last_node
    cdef int64_t _uncertain      # open transactions whose first offset is not certain
    cdef ProblemRow *_rows
    cdef int64_t _row_count, _row_capacity
    cdef int64_t _problems[PROBLEM_COUNT]
    cdef Count _tallies[TALLY_COUNT]
    cdef Aborted *_aborted
    cdef int64_t _aborted_count, _aborted_capacity

    def __cinit__(self):
        self._free_node = self._first_node = self._last_node = -1
        if not table_begin(&self._table):
            raise MemoryError

    def __init__(self, bint sequences=True, bint complete=False, bint exact=False):
        self._sequences, self._exact = sequences, exact
        self.complete = complete

    def __dealloc__(self):
        table_end(&self._table)
        free(self._nodes)
        free(self._rows)
        free(self._aborted)

    def __len__(self):
        return self._table.count

    # ---- the table

    cdef inline Producer *producer(self, int64_t number) noexcept nogil:
        return <Producer *> self._table.rows + number

    cdef inline Producer *find(self, int64_t producer_id) noexcept nogil:
        """Return a producer, NULL for one that is not known."""
        return <Producer *> table_row(&self._table, sizeof(Producer), producer_id)

    cdef Producer *add(self, int64_t producer_id) noexcept nogil:
        """Add a producer with unknown state; NULL without memory."""
        cdef int64_t slot = table_slot(&self._table, sizeof(Producer), producer_id)
        cdef Producer *e = <Producer *> table_add(&self._table, sizeof(Producer), producer_id, slot)
        if e == NULL:
            self._failed = True
            return NULL
        e.last_offset = e.timestamp = e.txn_first = e.marker_offset = -1
        e.last_sequence = e.coordinator_epoch = e.node = -1
        e.epoch = -1
        e.generation = self._generation
        return e

    # ---- the open transactions

    cdef void begin(self, Producer *e, int64_t first, bint certain) noexcept nogil:
        cdef int32_t node = self._free_node
        cdef int32_t capacity, i
        cdef Node *nodes
        if node < 0:
            capacity = max(2 * self._node_capacity, 64)  # at most one for each producer
            nodes = <Node *> realloc(self._nodes, capacity * sizeof(Node))
            if nodes == NULL:
                self._failed = True
                return
            for i in range(self._node_capacity, capacity):
                nodes[i].next = i + 1 if i + 1 < capacity else -1
            node = self._node_capacity
            self._nodes = nodes
            self._node_capacity = capacity
        self._free_node = self._nodes[node].next
        self._nodes[node].producer = <int32_t> (e - self.producer(0))
        self._nodes[node].previous = self._last_node
        self._nodes[node].next = -1
        if self._last_node >= 0:
            self._nodes[self._last_node].next = node
        else:
            self._first_node = node
        self._last_node = node
        e.node = node
        e.txn_first = first
        e.flags &= ~TXN_CERTAIN
        if certain:
            e.flags |= TXN_CERTAIN
        else:
            self._uncertain += 1

    cdef void finish(self, Producer *e) noexcept nogil:
        cdef Node *node
        if e.node < 0:
            return
        node = self._nodes + e.node
        if node.previous >= 0:
            self._nodes[node.previous].next = node.next
        else:
            self._first_node = node.next
        if node.next >= 0:
            self._nodes[node.next].previous = node.previous
        else:
            self._last_node = node.previous
        node.next = self._free_node
        self._free_node = e.node
        if not e.flags & TXN_CERTAIN:
            self._uncertain -= 1
        e.node = -1
        e.txn_first = -1
        e.flags &= ~TXN_CERTAIN

    # ---- problems

    cdef void add_problem(self, int problem, const Event *event, const Producer *e) noexcept nogil:
        cdef ProblemRow *row
        cdef int64_t capacity
        self._problems[problem] += 1
        if self._problems[problem] > ROWS_KEPT:
            return
        if self._row_count == self._row_capacity:
            capacity = max(2 * self._row_capacity, 64)
            row = <ProblemRow *> realloc(self._rows, capacity * sizeof(ProblemRow))
            if row == NULL:
                self._failed = True
                return
            self._rows = row
            self._row_capacity = capacity
        row = self._rows + self._row_count
        self._row_count += 1
        row.problem = problem
        row.position = event.position
        row.size = event.size
        row.offset = event.first_offset
        row.producer_id = event.producer_id
        row.epoch = event.epoch
        row.marker = event.kind != KIND_DATA
        row.sequence = -1 if row.marker else event.first_sequence
        row.previous_sequence = e.last_sequence
        row.previous_epoch = e.epoch
        row.txn_first = e.txn_first

    cdef void tally(self, int what, const Event *event, int64_t value, int64_t previous) noexcept nogil:
        cdef Count *t = self._tallies + what
        if t.count == 0:
            t.position = event.position
            t.size = event.size
            t.offset = event.first_offset
            t.producer_id = event.producer_id
            t.epoch = event.epoch
            t.value = value
            t.previous = previous
        t.count += 1

    # ---- the checks

    cdef inline void check_sequence(self, const Event *event, const Producer *e) noexcept nogil:
        cdef int64_t previous = -1 if event.epoch > e.epoch or e.last_sequence < 0 else e.last_sequence
        cdef uint32_t expected = <uint32_t> (previous + 1) & SEQUENCE_MASK
        cdef uint32_t distance = <uint32_t> event.first_sequence - expected & SEQUENCE_MASK
        if distance >= HALF:
            self.add_problem(SEQUENCE, event, e)
        elif distance:
            self.tally(SKIPPED, event, event.first_sequence, previous)

    cdef inline Producer *find_or_add(self, int64_t producer_id, bint *known, bint *sure) noexcept nogil:
        """Return a producer, added if new. Sets `known`, or `sure` if it is certainly new. NULL without memory."""
        cdef Producer *e = self.find(producer_id)
        if e != NULL:
            known[0] = e.generation == self._generation
            return e
        sure[0] = self.complete
        return self.add(producer_id)

    cdef void data(self, const Event *event) noexcept nogil:
        cdef bint known = False, sure = False
        cdef Producer *e = self.find_or_add(event.producer_id, &known, &sure)
        if e == NULL:
            return
        if known:
            if event.epoch < e.epoch:
                self.add_problem(EPOCH, event, e)
            elif (self._sequences and event.first_sequence >= 0 and e.flags & HAS_SEQUENCE and e.epoch >= 0
                    and (event.first_timestamp < 0 or e.timestamp < 0
                         or within(event.first_timestamp, e.timestamp, IDLE))):
                self.check_sequence(event, e)
            if e.node >= 0 and not event.flags & FLAG_TRANSACTIONAL:
                self.add_problem(STATE, event, e)
                self.finish(e)
            elif e.node >= 0 and event.epoch > e.epoch and e.flags & FILLED and not event.flags & FLAG_EMPTIED:
                self.add_problem(EPOCHS, event, e)
        elif e.node >= 0:
            if not event.flags & FLAG_TRANSACTIONAL:
                self.finish(e)
            elif e.flags & TXN_CERTAIN:
                e.flags &= ~TXN_CERTAIN
                self._uncertain += 1
        if event.flags & FLAG_TRANSACTIONAL and e.node < 0:
            self.begin(e, event.first_offset, known or sure)
        self.mark_known(e, known, sure)
        e.epoch = event.epoch
        e.last_sequence = event.last_sequence
        e.flags = e.flags & ~(HAS_SEQUENCE | FILLED) | (HAS_SEQUENCE if event.first_sequence >= 0 else 0)
        if not event.flags & FLAG_EMPTIED:
            e.flags |= FILLED
        e.last_offset = event.last_offset
        e.offset_delta = event.offset_delta
        e.timestamp = event.timestamp
        e.marker_offset = -1

    cdef inline void mark_known(self, Producer *e, bint known, bint sure) noexcept nogil:
        if sure:
            e.flags |= CERTAIN
        elif not known:
            e.flags &= ~CERTAIN
        e.generation = self._generation

    cdef void marker(self, const Event *event) noexcept nogil:
        cdef bint known = False, sure = False
        cdef Producer *e = self.find_or_add(event.producer_id, &known, &sure)
        if e == NULL:
            return
        if known:
            if event.epoch < e.epoch:
                self.add_problem(EPOCH, event, e)
            elif e.node >= 0 and event.epoch > e.epoch + 1:
                self.add_problem(MARKER_EPOCH, event, e)
            if 0 <= event.first_sequence < e.coordinator_epoch:
                self.tally(COORDINATOR, event, event.first_sequence, e.coordinator_epoch)
        if e.node >= 0:
            if event.kind == KIND_ABORT:
                self.abort(event, e, known)
            self.finish(e)
        elif known or sure:
            self.tally(EMPTY, event, -1, -1)
        if not known or event.epoch != e.epoch:
            e.epoch = event.epoch
            e.last_sequence = -1
            e.last_offset = -1
            e.offset_delta = 0
            if known or sure:
                e.flags |= HAS_SEQUENCE
            else:
                e.flags &= ~HAS_SEQUENCE
        self.mark_known(e, known, sure)
        e.timestamp = event.timestamp
        e.coordinator_epoch = event.first_sequence
        e.marker_offset = event.first_offset

    cdef void abort(self, const Event *event, const Producer *e, bint known) noexcept nogil:
        """Add the open transaction of the producer to the aborted ones."""
        cdef Aborted *a
        cdef int64_t capacity
        cdef int32_t other = self._first_node if self._first_node != e.node else self._nodes[e.node].next
        if self._aborted_count == self._aborted_capacity:
            capacity = max(2 * self._aborted_capacity, 64)
            a = <Aborted *> realloc(self._aborted, capacity * sizeof(Aborted))
            if a == NULL:
                self._failed = True
                return
            self._aborted = a
            self._aborted_capacity = capacity
        a = self._aborted + self._aborted_count
        self._aborted_count += 1
        a.producer_id = event.producer_id
        a.first_offset = e.txn_first
        a.last_offset = event.first_offset
        if other >= 0:
            a.last_stable_offset = self.producer(self._nodes[other].producer).txn_first
        else:
            a.last_stable_offset = <int64_t> (<uint64_t> event.first_offset + 1)
        a.certain_first = known and e.flags & TXN_CERTAIN != 0
        a.certain_lso = self.complete and self._uncertain == 0

    cdef void unreadable_marker(self, const Event *event) noexcept nogil:
        """Apply a control batch whose marker cannot be read: it may have ended a transaction."""
        cdef Producer *e = self.find(event.producer_id)
        if e != NULL:
            self.finish(e)
            e.generation = self._generation - 1

    cdef inline void empty_control_batch(self, const Event *event) noexcept nogil:
        """Apply a control batch that the cleaner emptied: a broker does nothing, and remembers the producer's id."""
        cdef Producer *e = self.find(event.producer_id)
        if e != NULL:
            if e.node >= 0 and e.generation >= self._damaged and e.flags & FILLED:
                self.add_problem(MARKER_EMPTY, event, e)
        elif self._exact:
            e = self.add(event.producer_id)
            if e != NULL:
                e.generation = self._generation - 1

    cdef inline void gap(self, bint missing) noexcept nogil:
        self._generation += 1
        self._damaged = self._damaged if missing else self._generation
        self.complete = False

    cdef void apply(self, const uint8_t *events, int64_t count) noexcept nogil:
        cdef int64_t i
        cdef Event event
        for i in range(count):
            memcpy(&event, events + i * <int64_t> sizeof(Event), sizeof(Event))
            if event.kind == KIND_DATA:
                self.data(&event)
            elif event.kind == KIND_ABORT or event.kind == KIND_COMMIT:
                self.marker(&event)
            elif event.kind == KIND_GAP:
                self.gap(False)
            elif event.kind == KIND_EMPTY:
                self.empty_control_batch(&event)
            else:
                self.unreadable_marker(&event)

    def replay(self, events):
        cdef Py_buffer view
        PyObject_GetBuffer(events, &view, PyBUF_SIMPLE)
        try:
            if view.len % <Py_ssize_t> sizeof(Event):
                raise ValueError("no whole number of events")
            with nogil:
                self.apply(<const uint8_t *> view.buf, view.len // <Py_ssize_t> sizeof(Event))
        finally:
            PyBuffer_Release(&view)
        if self._failed:
            raise MemoryError

    def forget(self, bint missing=False):
        self.gap(missing)

    def load(self, entries):
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t fields[FIELD_COUNT]
        cdef int64_t i, count, producer_id
        cdef Producer *e
        cdef list opened = []
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        try:
            count = whole_entries(&view)
            while self._first_node >= 0:
                self.finish(self.producer(self._nodes[self._first_node].producer))
            table_clear(&self._table, sizeof(Producer))
            self.complete = True
            for i in range(count):
                p = <const uint8_t *> view.buf + i * SNAPSHOT_ENTRY
                parse_entry(p, fields)
                producer_id = be64(p + SNAPSHOT_PRODUCER_ID_AT)
                e = self.find(producer_id)
                if e == NULL:
                    e = self.add(producer_id)
                if e == NULL:
                    raise MemoryError
                e.epoch = <int16_t> fields[F_EPOCH]
                e.last_sequence = <int32_t> fields[F_SEQUENCE]
                e.last_offset = fields[F_OFFSET]
                e.offset_delta = <int32_t> fields[F_DELTA]
                e.timestamp = fields[F_TIMESTAMP]
                e.coordinator_epoch = <int32_t> fields[F_COORDINATOR]
                e.txn_first = fields[F_TXN]
                e.flags = CERTAIN if e.last_offset >= 0 and e.last_sequence < 0 else CERTAIN | HAS_SEQUENCE
            for i in range(self._table.count):
                if self.producer(i).txn_first >= 0:
                    opened.append((self.producer(i).txn_first, i))
            opened.sort()
            for first, i in opened:
                self.begin(self.producer(i), first, True)
        finally:
            PyBuffer_Release(&view)
        if self._failed:
            raise MemoryError

    # ---- results

    def take(self):
        cdef int64_t i
        cdef ProblemRow *row
        cdef Count *t
        cdef list rows = []
        cdef dict counts = {}, tallies = {}
        if self._row_count:
            from kdump.kernel.producer_results import ProducerProblem
        for i in range(self._row_count):
            row = self._rows + i
            rows.append(ProducerProblem(
                PROBLEMS[row.problem], row.position, row.size, row.offset, row.producer_id, row.epoch, row.sequence,
                row.previous_sequence, row.previous_epoch, row.txn_first, row.marker,
            ))
        for i in range(PROBLEM_COUNT):
            if self._problems[i]:
                counts[PROBLEMS[i]] = self._problems[i]
        for i in range(TALLY_COUNT):
            t = self._tallies + i
            if t.count:
                from kdump.kernel.producer_results import ProducerTally
                tallies[TALLIES[i]] = ProducerTally(t.count, t.position, t.size, t.offset, t.producer_id, t.epoch,
                                                    t.value, t.previous)
        self._row_count = 0
        memset(self._problems, 0, sizeof(self._problems))
        memset(self._tallies, 0, sizeof(self._tallies))
        return rows, counts, tallies

    def aborted(self):
        cdef int64_t i
        cdef Aborted *a
        cdef list found = []
        if self._aborted_count:
            from kdump.kernel.producer_results import AbortedTxn
        for i in range(self._aborted_count):
            a = self._aborted + i
            found.append(AbortedTxn(a.producer_id, a.first_offset, a.last_offset, a.last_stable_offset, a.certain_first,
                                    a.certain_lso))
        self._aborted_count = 0
        return found

    def entries(self):
        cdef bytes data = PyBytes_FromStringAndSize(NULL, self._table.count * SNAPSHOT_ENTRY)
        cdef uint8_t *p = <uint8_t *> PyBytes_AsString(data)
        cdef int64_t i
        cdef Producer *e
        for i in range(self._table.count):
            e = self.producer(i)
            p = put64(p, <uint64_t> e.producer_id)
            p = put16(p, <uint16_t> e.epoch)
            p = put32(p, <uint32_t> e.last_sequence)
            p = put64(p, <uint64_t> e.last_offset)
            p = put32(p, <uint32_t> e.offset_delta)
            p = put64(p, <uint64_t> e.timestamp)
            p = put32(p, <uint32_t> e.coordinator_epoch)
            p = put64(p, <uint64_t> e.txn_first)
        return data

    def open(self):
        cdef int32_t node = self._first_node
        cdef Producer *e
        cdef list found = []
        if node >= 0:
            from kdump.kernel.producer_results import TxnMetadata
        while node >= 0:
            e = self.producer(self._nodes[node].producer)
            found.append(TxnMetadata(e.producer_id, e.epoch, e.txn_first, e.timestamp,
                                     e.flags & TXN_CERTAIN != 0 and e.generation == self._generation))
            node = self._nodes[node].next
        return found

    def compare(self, entries):
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t stored[FIELD_COUNT]
        cdef int64_t state[FIELD_COUNT]
        cdef int64_t i, producer_id
        cdef int field
        cdef Producer *e
        cdef list differences = []
        cdef bytearray listed = bytearray(self._table.count)
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        try:
            for i in range(whole_entries(&view)):
                if len(differences) >= ROWS_KEPT:
                    break
                p = <const uint8_t *> view.buf + i * SNAPSHOT_ENTRY
                parse_entry(p, stored)
                producer_id = be64(p + SNAPSHOT_PRODUCER_ID_AT)
                e = self.find(producer_id)
                if e == NULL:
                    # An entry without an epoch is from a control batch whose marker the cleaner removed.
                    if self.complete and stored[F_EPOCH] >= 0:
                        differences.append(("surplus", producer_id, FIELDS[F_TIMESTAMP], stored[F_TIMESTAMP], None))
                    continue
                listed[e - self.producer(0)] = 1
                if e.generation != self._generation or not e.flags & CERTAIN:
                    continue
                fields_of(e, state)
                normalise(state)
                # Kafka 0.11 stored the offset of a marker as the last offset of the data.
                # Kafka 1.1 kept the timestamp of the data after a marker.
                if e.marker_offset >= 0 and stored[F_OFFSET] == e.marker_offset:
                    stored[F_OFFSET] = state[F_OFFSET]
                    stored[F_DELTA] = state[F_DELTA]
                if e.marker_offset >= 0 and stored[F_TIMESTAMP] < state[F_TIMESTAMP]:
                    stored[F_TIMESTAMP] = state[F_TIMESTAMP]
                for field in range(FIELD_COUNT):
                    if stored[field] != state[field]:
                        differences.append(("differs", e.producer_id, FIELDS[field], stored[field], state[field]))
                        break
        finally:
            PyBuffer_Release(&view)
        for i in range(self._table.count):
            if len(differences) >= ROWS_KEPT:
                break
            e = self.producer(i)
            if not listed[i] and e.generation == self._generation and e.flags & CERTAIN:
                differences.append(("missing", e.producer_id, FIELDS[F_TIMESTAMP], None, e.timestamp))
        from kdump.kernel.producer_results import SnapshotDifference
        return list(map(SnapshotDifference._make, differences))


# ---- the entries of a snapshot

def unexpired(entries, int64_t now_ms, int64_t longest_ms):
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef uint8_t *out
    cdef int64_t i, idle_ms, kept = 0
    cdef bytes data
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        data = PyBytes_FromStringAndSize(NULL, whole_entries(&view) * SNAPSHOT_ENTRY)
        out = <uint8_t *> PyBytes_AsString(data)
        for i in range(view.len // SNAPSHOT_ENTRY):
            p = <const uint8_t *> view.buf + i * SNAPSHOT_ENTRY
            idle_ms = <int64_t> (<uint64_t> now_ms - <uint64_t> be64(p + SNAPSHOT_TIMESTAMP_AT))
            if p[SNAPSHOT_TXN_FIRST_OFFSET_AT] < 128 or idle_ms < longest_ms:
                memcpy(out + kept * SNAPSHOT_ENTRY, p, SNAPSHOT_ENTRY)
                kept += 1
    finally:
        PyBuffer_Release(&view)
    return data[:kept * SNAPSHOT_ENTRY]


def backwards(entries, int64_t start):
    cdef Py_buffer view
    cdef uint8_t *out
    cdef int64_t at
    cdef bytes data
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        whole_entries(&view)
        if start < 0 or start > view.len or start % SNAPSHOT_ENTRY:
            raise ValueError("no entry begins there")
        data = PyBytes_FromStringAndSize(<char *> view.buf, view.len)
        out = <uint8_t *> PyBytes_AsString(data)
        for at in range(start, view.len, SNAPSHOT_ENTRY):
            memcpy(out + start + view.len - SNAPSHOT_ENTRY - at, <const uint8_t *> view.buf + at, SNAPSHOT_ENTRY)
    finally:
        PyBuffer_Release(&view)
    return data


cdef inline uint32_t java_hash(const uint8_t *entry) noexcept nogil:
    """Return what java.util.HashMap.hash returns for a Long."""
    cdef uint64_t producer_id = <uint64_t> be64(entry + SNAPSHOT_PRODUCER_ID_AT)
    cdef uint32_t folded = <uint32_t> (producer_id ^ producer_id >> 32)
    return folded ^ folded >> 16


cdef int64_t table_size(const uint8_t *entries, int64_t count) noexcept nogil:
    """Return the table size of a java.util.HashMap after these producers were added one by one."""
    cdef int64_t size = 16, added, other, chain
    for added in range(min(count, 64)):
        if size >= 64:
            break
        chain = 0
        for other in range(added):
            if ((java_hash(entries + added * SNAPSHOT_ENTRY) ^ java_hash(entries + other * SNAPSHOT_ENTRY))
                    & <uint32_t> (size - 1) == 0):
                chain += 1
        if chain >= 8:
            size *= 2
        if added + 1 > size * 3 // 4:
            size *= 2
    while count > size * 3 // 4:
        size *= 2
    return size


def hash_ordered(entries):
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef uint8_t *out
    cdef int32_t *places
    cdef int64_t count, size, i
    cdef uint32_t mask
    cdef bytes data
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        count = whole_entries(&view)
        if count > MOST_ENTRIES:
            raise MemoryError
        data = PyBytes_FromStringAndSize(NULL, view.len)
        out = <uint8_t *> PyBytes_AsString(data)
        p = <const uint8_t *> view.buf
        size = table_size(p, count)
        places = <int32_t *> calloc(size + 1, sizeof(int32_t))
        if places == NULL:
            raise MemoryError
        with nogil:
            mask = <uint32_t> (size - 1)
            for i in range(count):
                places[(java_hash(p + i * SNAPSHOT_ENTRY) & mask) + 1] += 1
            for i in range(size):
                places[i + 1] += places[i]
            for i in range(count):
                memcpy(out + <int64_t> places[java_hash(p + i * SNAPSHOT_ENTRY) & mask] * SNAPSHOT_ENTRY,
                       p + i * SNAPSHOT_ENTRY, SNAPSHOT_ENTRY)
                places[java_hash(p + i * SNAPSHOT_ENTRY) & mask] += 1
            free(places)
    finally:
        PyBuffer_Release(&view)
    return data
