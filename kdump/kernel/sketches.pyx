# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Sums of hashed records, tables that give what two copies have not in common, last records; see sketches.pyi."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy, memmove, memset

from kdump.kernel.cells cimport (
    KEY_WORDS, MOST_BITS, RECORD_WORDS, TABLES, add_mark, count_key, count_record, outcome_mark, spread_of,
)
from kdump.kernel.key_table cimport (
    KeyTable, add_row, clear, find_row, index_rows, prefetch_row, prefetch_slot, release, set_up,
)
from kdump.kernel.layout cimport (
    ATTRIBUTES, BASE_OFFSET, BATCH_WIDTH, COUNT, DELETE_HORIZON_FLAG, EPOCH, LAST_OFFSET, MAGIC, NO_VALUE, POSITION,
    SIZE,
)
from kdump.kernel.transactions cimport D_COMMITTED, D_UNDECIDED

cdef enum:
    MOST_BORDERS = 1 << 16
    LARGEST_SHIFT = 62    # of all offsets
    # A row of a key
    L_KEY = 0
    L_VALUE        # 2 * offset + tombstone
    L_HASH_HIGH
    L_HASH_LOW
    LAST_WIDTH
    MOST_PREFIX = 48
    AHEAD = 8             # so many rows earlier the slot of a key is fetched
    PART_BITS = 6
    PARTS = 1 << PART_BITS
    PART_ROWS = 2048
NO_KEY_ID, KEY_ID, CONTROL_ID = 0, 1, 2
CUT_BYTES, KEY_PARTS = 32, PARTS
INTERVALS, NEWEST_ENDS = GRID, NEWEST
cdef struct Cut:
    int64_t offset
    int64_t count      # of records below it, and the sum of their hashes
    uint64_t low
    uint64_t high

cdef inline uint64_t key_id_of(int64_t flags) noexcept nogil:
    return 2 if flags & CONTROL_BIT else 0 if flags & NO_KEY_BIT else 1


cdef int64_t shift_for(int64_t start, int64_t stop, int64_t most, int64_t shift) noexcept nogil:
    """The lowest shift, `shift` or more, that leaves at most `most` numbers of the offsets in [start, stop)."""
    while ((stop - 1) >> shift) - (start >> shift) >= most:
        shift += 1
    return shift


cdef inline void add_sum(Sum *to, const Sum *other) noexcept nogil:
    to.count += other.count
    to.low += other.low
    to.high += other.high + (to.low < other.low)


cdef void set_cut(Cut *cut, int64_t offset, const Sum *total) noexcept nogil:
    cut.offset = offset
    cut.count = total.count
    cut.low = total.low
    cut.high = total.high


cdef int compare_cuts(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const Cut *> a).offset, other = (<const Cut *> b).offset
    return -1 if one < other else 1 if one > other else 0


cdef inline const int64_t *add_rows(const int64_t *row, const int64_t *stop, int64_t *last, int64_t until,
                                    int64_t flags, uint64_t *tables, int bits, uint64_t key, int64_t outcome,
                                    Sum *some) noexcept nogil:
    """Add rows, whose offsets rise from `last` on, below `until`, and that have these flags.

    Sets `last` to the offset of the last one. Returns the row after it.
    """
    cdef uint64_t spread, hashed, low = some.low, high = some.high
    cdef int64_t offset = last[0]
    while row < stop and offset <= row[H_OFFSET] < until and row[H_FLAGS] | TOMBSTONE_BIT == flags:
        offset = row[H_OFFSET]
        hashed = <uint64_t> row[H_HIGH]
        low += <uint64_t> row[H_LOW]
        high += hashed + (low < <uint64_t> row[H_LOW])
        spread = spread_of(<uint64_t> offset)
        if outcome != D_COMMITTED:
            hashed += outcome_mark(spread, outcome)
        count_record(tables, bits, <uint64_t> offset, spread, hashed, key)
        row += HASH_WIDTH
    last[0] = offset
    some.low = low
    some.high = high
    return row


@cython.final
cdef class RecordSketch:
    def __cinit__(self, int64_t start, borders, *, int64_t blocks, int bits, bint of_keys=False):
        cdef Py_buffer view
        cdef int64_t i
        if not (start >= 0 and 1 <= blocks <= 64 and 0 <= bits <= MOST_BITS):
            raise ValueError("start, blocks or bits")
        self._words = KEY_WORDS if of_keys else RECORD_WORDS
        PyObject_GetBuffer(borders, &view, PyBUF_SIMPLE)
        try:
            self._border_count = view.len // 8
            if self._border_count > MOST_BORDERS:
                raise ValueError("borders")
            self._borders = <int64_t *> malloc(view.len + 8)
            self._at_borders = <Sum *> calloc(self._border_count + 1, sizeof(Sum))
            self._cells = <uint64_t *> calloc((blocks * TABLES) << bits, self._words * sizeof(uint64_t))
            if self._borders == NULL or self._at_borders == NULL or self._cells == NULL:
                raise MemoryError
            memcpy(self._borders, view.buf, view.len)
            for i in range(1, self._border_count):
                if self._borders[i] <= self._borders[i - 1]:
                    raise ValueError("borders have to rise")
        finally:
            PyBuffer_Release(&view)
        self._start = start
        self._blocks = blocks
        self._bits = bits
        self._block_shift = 0 if blocks > 1 else LARGEST_SHIFT
        self._set_limit()

    def __dealloc__(self):
        free(self._borders)
        free(self._at_borders)
        free(self._cells)

    cdef void _set_limit(self) noexcept nogil:
        """Set the offset from which on larger intervals or blocks are needed."""
        cdef int64_t grid = (self._start >> self._shift) + GRID
        cdef int64_t blocks = (self._start >> self._block_shift) + self._blocks
        self._limit = (<int64_t> 1 << 62)
        if grid <= self._limit >> self._shift:
            self._limit = grid << self._shift
        if blocks <= self._limit >> self._block_shift:
            self._limit = blocks << self._block_shift

    cdef void _widen(self, int64_t stop) noexcept nogil:
        """Make intervals and blocks so large that they are few enough up to `stop`."""
        cdef int64_t shift = shift_for(self._start, stop, GRID, self._shift), i, to, first
        cdef int64_t blocks = shift_for(self._start, stop, self._blocks, self._block_shift)
        cdef int64_t size = (TABLES << self._bits) * self._words, j
        cdef uint64_t *out
        cdef uint64_t *cell
        if shift > self._shift:
            first = self._start >> self._shift
            for i in range(GRID):
                to = ((first + i) >> (shift - self._shift)) - (self._start >> shift)
                if to != i:
                    add_sum(self._grid + to, self._grid + i)
                    memset(self._grid + i, 0, sizeof(Sum))
            self._shift = shift
        if blocks > self._block_shift:
            first = self._start >> self._block_shift
            for i in range(self._blocks):
                to = ((first + i) >> (blocks - self._block_shift)) - (self._start >> blocks)
                if to != i:
                    out = self._cells + to * size
                    cell = self._cells + i * size
                    for j in range(size):
                        out[j] += cell[j]
                    memset(cell, 0, size * sizeof(uint64_t))
            self._block_shift = blocks
        self._set_limit()

    cdef int64_t _reach(self, int64_t offset) noexcept nogil:
        """Prepare for a record. Returns the next offset before which that is to be done again."""
        cdef int64_t after
        if offset >= self._limit:
            self._widen(offset + 1)
        while self._border_at < self._border_count and self._borders[self._border_at] <= offset:
            self._at_borders[self._border_at] = self._total
            self._border_at += 1
        after = min(((offset >> self._shift) + 1) << self._shift, self._limit)
        return min(after, self._borders[self._border_at]) if self._border_at < self._border_count else after

    cdef void _keep(self, int64_t offset, const Sum *some) noexcept nogil:
        """Add a sum of records of the interval of an offset."""
        add_sum(&self._total, some)
        add_sum(self._grid + ((offset >> self._shift) - (self._start >> self._shift)), some)

    cdef uint64_t *_tables(self, int64_t offset) noexcept nogil:
        """The tables of the block of an offset."""
        cdef int64_t block = (offset >> self._block_shift) - (self._start >> self._block_shift)
        return self._cells + (block * TABLES << self._bits) * self._words

    def add(self, rows, int64_t count, ends, int64_t ended):
        cdef Py_buffer view, other
        cdef int64_t added
        if self._words != RECORD_WORDS:
            raise ValueError("of keys")
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(ends, &other, PyBUF_SIMPLE)
            try:
                if not (0 <= count <= view.len // (HASH_WIDTH * 8) and 0 <= ended <= other.len // 16):
                    raise ValueError("count")
                added = self._add(<const int64_t *> view.buf, count, <const int64_t *> other.buf, ended)
            finally:
                PyBuffer_Release(&other)
        finally:
            PyBuffer_Release(&view)
        if added < count:
            raise ValueError("offset")

    cdef int64_t _add(self, const int64_t *row, int64_t count, const int64_t *end, int64_t ended) noexcept nogil:
        """The number of rows that were added, up to the first with an offset that cannot be."""
        cdef int64_t offset, last = 0, until = -1, flags, outcome
        cdef const int64_t *begin = row
        cdef const int64_t *after = row + count * HASH_WIDTH
        cdef const int64_t *last_end = end + 2 * ended
        cdef const int64_t *first = row  # `some` has the records from this row on
        cdef const int64_t *stop         # before this row a batch ends
        cdef const int64_t *same
        cdef uint64_t key
        cdef uint64_t *tables = NULL
        cdef Sum some
        memset(&some, 0, sizeof(Sum))
        if ended > NEWEST:
            end += 2 * (ended - NEWEST)
        while row < after:
            offset = row[H_OFFSET]
            some.count = (row - first) // HASH_WIDTH
            while end < last_end and begin + end[0] * HASH_WIDTH <= row:
                self._end(end[1], &some)
                end += 2
            stop = begin + end[0] * HASH_WIDTH if end < last_end else after
            if row == first or offset >= until or offset < last:
                self._keep_rows(last, &some, first, row)
                first = row
                if offset < self._start or offset >= <int64_t> 1 << 62:
                    break
                # An interval is a part of a block: of these there are fewer.
                until = self._reach(offset)
                tables = self._tables(offset)
                last = offset
            same = row
            flags = row[H_FLAGS] | TOMBSTONE_BIT
            key = key_id_of(flags)
            outcome = flags >> OUTCOME_SHIFT
            if outcome == D_COMMITTED:
                row = add_rows(row, stop, &last, until, flags, tables, self._bits, key, D_COMMITTED, &some)
            else:
                row = add_rows(row, stop, &last, until, flags, tables, self._bits, key, outcome, &some)
            self._count(key, outcome, (row - same) // HASH_WIDTH)
        self._keep_rows(last, &some, first, row)
        while end < last_end and row == after:
            self._end(end[1], &some)
            end += 2
        return (row - begin) // HASH_WIDTH

    cdef void _keep_rows(self, int64_t offset, Sum *some, const int64_t *first, const int64_t *stop) noexcept nogil:
        """Add the sum of the rows from `first` to `stop`, and clear it."""
        some.count = (stop - first) // HASH_WIDTH
        if some.count:
            self._keep(offset, some)
        memset(some, 0, sizeof(Sum))

    cdef void _count(self, uint64_t key, int64_t outcome, int64_t count) noexcept nogil:
        """Note so many records whose key and outcome these are."""
        if key == 0:
            self.unkeyed += count
        elif key == 1:
            self.keyed += count
            if outcome == D_UNDECIDED:
                self.undecided += count

    def correct(self, int64_t first, int64_t stop, int64_t outcome):
        cdef int64_t offset
        cdef uint64_t spread
        if self._words != RECORD_WORDS:
            raise ValueError("of keys")
        if stop < first or stop > <int64_t> 1 << 62:
            raise ValueError("offset")
        if stop > self._limit:
            self._widen(stop)
        for offset in range(max(first, self._start), stop):
            spread = spread_of(<uint64_t> offset)
            add_mark(self._tables(offset), self._bits, <uint64_t> offset, spread, outcome_mark(spread, outcome))

    cdef void _end(self, int64_t offset, const Sum *some) noexcept nogil:
        """Note that a batch ends; `some` are records that are not in the total yet."""
        cdef int64_t at = self._end_at
        self._ends[at] = offset
        self._at_ends[at] = self._total
        add_sum(self._at_ends + at, some)
        self._end_at = 0 if at == NEWEST - 1 else at + 1  # a division takes longer than all else here
        self._end_count += 1

    def end(self, int64_t offset):
        cdef Sum nothing
        memset(&nothing, 0, sizeof(Sum))
        self._end(offset, &nothing)

    def newest_ends(self):
        cdef int64_t i, first = max(self._end_count - NEWEST, <int64_t> 0)
        return [self._ends[i % NEWEST] for i in range(first, self._end_count)]

    def cuts(self, int64_t stop):
        cdef int64_t i, shift, count = 0, kept = 0
        cdef Sum total
        cdef Cut *found
        if stop <= self._start or stop > <int64_t> 1 << 62:
            raise ValueError("stop")
        self._widen(stop)
        found = <Cut *> calloc(GRID + 2 + self._border_count + NEWEST, sizeof(Cut))
        if found == NULL:
            raise MemoryError
        try:
            shift = self._shift
            memset(&total, 0, sizeof(Sum))
            set_cut(found, self._start, &total)
            count = 1
            for i in range(GRID):
                add_sum(&total, self._grid + i)
                if ((self._start >> shift) + i + 1) << shift >= stop:
                    break
                set_cut(found + count, ((self._start >> shift) + i + 1) << shift, &total)
                count += 1
            set_cut(found + count, stop, &self._total)
            count += 1
            for i in range(self._border_count):
                if self._start < self._borders[i] < stop:
                    set_cut(found + count, self._borders[i],
                            self._at_borders + i if i < self._border_at else &self._total)
                    count += 1
            for i in range(min(self._end_count, <int64_t> NEWEST)):
                if self._start < self._ends[i] < stop:
                    set_cut(found + count, self._ends[i], self._at_ends + i)
                    count += 1
            qsort(found, count, sizeof(Cut), compare_cuts)
            for i in range(count):
                if kept == 0 or found[i].offset != found[kept - 1].offset:
                    found[kept] = found[i]
                    kept += 1
            return (<const char *> found)[:kept * sizeof(Cut)]
        finally:
            free(found)

    def cells(self, int64_t stop):
        cdef int64_t blocks
        if stop <= self._start or stop > <int64_t> 1 << 62:
            raise ValueError("stop")
        self._widen(stop)
        blocks = ((stop - 1) >> self._block_shift) - (self._start >> self._block_shift) + 1
        blocks = (blocks * TABLES << self._bits) * self._words
        return self._block_shift, (<const char *> self._cells)[:blocks * sizeof(uint64_t)]


def are_cuts(cuts, int64_t start, int64_t stop):
    cdef Py_buffer view
    cdef int64_t i, count
    cdef const Cut *cut
    cdef bint found
    PyObject_GetBuffer(cuts, &view, PyBUF_SIMPLE)
    try:
        cut = <const Cut *> view.buf
        count = view.len // <int64_t> sizeof(Cut)
        found = count >= 2 and count * <int64_t> sizeof(Cut) == view.len
        found = found and cut[0].offset == start and cut[0].count == 0 and cut[count - 1].offset == stop
        for i in range(1, count if found else 1):
            if cut[i].offset <= cut[i - 1].offset or cut[i].count < cut[i - 1].count:
                found = False
                break
    finally:
        PyBuffer_Release(&view)
    return found


def records_between(cuts, int64_t start, int64_t stop):
    cdef Py_buffer view
    cdef int64_t i, first = -1, last = -1
    cdef const Cut *cut
    PyObject_GetBuffer(cuts, &view, PyBUF_SIMPLE)
    try:
        cut = <const Cut *> view.buf
        for i in range(view.len // <int64_t> sizeof(Cut)):
            if start <= cut[i].offset <= stop:
                first = i if first < 0 else first
                last = i
        return 0 if first < 0 else cut[last].count - cut[first].count
    finally:
        PyBuffer_Release(&view)


# ---- the last record of each key of one copy

cdef inline bint is_last(const int64_t *hashed) noexcept nogil:
    """Whether a row is one of a record that can be the last of its key."""
    return hashed[H_FLAGS] & (NO_KEY_BIT | CONTROL_BIT) == 0 and hashed[H_FLAGS] >> OUTCOME_SHIFT == D_COMMITTED


@cython.final
cdef class LastRecords:
    cdef KeyTable _table
    cdef readonly int64_t bits
    cdef readonly uint64_t prefix

    def __cinit__(self, int64_t most, int64_t bits=0, uint64_t prefix=0):
        if not (1 <= most <= 1 << 30 and 0 <= bits <= MOST_PREFIX):
            raise ValueError("most")
        set_up(&self._table, LAST_WIDTH, most)
        self.bits = bits
        self.prefix = prefix

    def __dealloc__(self):
        release(&self._table)

    def __len__(self):
        return self._table.count

    cdef bint _is_mine(self, uint64_t key) noexcept nogil:
        return self.bits == 0 or key >> (64 - self.bits) == self.prefix

    cdef int64_t *_row(self, uint64_t key) except? NULL:
        """The row of a key, a new one where there is none; NULL where there is no room."""
        cdef int64_t *row = find_row(&self._table, key)
        if row == NULL and self._table.count < self._table.most:
            row = add_row(&self._table, key)
            if row == NULL:
                raise MemoryError
        return row

    def fill(self, rows, int64_t at, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *hashed
        cdef int64_t *row
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or count > view.len // (HASH_WIDTH * 8):
                raise ValueError("count")
            while at < count:
                hashed = <const int64_t *> view.buf + at * HASH_WIDTH
                if at + 2 * AHEAD < count:
                    prefetch_slot(&self._table, <uint64_t> hashed[2 * AHEAD * HASH_WIDTH + H_KEY_HIGH])
                    prefetch_row(&self._table, <uint64_t> hashed[AHEAD * HASH_WIDTH + H_KEY_HIGH])
                if is_last(hashed) and self._is_mine(<uint64_t> hashed[H_KEY_HIGH]):
                    row = self._row(<uint64_t> hashed[H_KEY_HIGH])
                    if row == NULL:
                        break
                    row[L_VALUE] = 2 * hashed[H_OFFSET] + (hashed[H_FLAGS] & TOMBSTONE_BIT)
                    row[L_HASH_HIGH] = hashed[H_HIGH]
                    row[L_HASH_LOW] = hashed[H_LOW]
                at += 1
        finally:
            PyBuffer_Release(&view)
        return at

    def fill_part(self, part, int64_t at):
        cdef Py_buffer view
        cdef const int64_t *taken
        cdef int64_t *row
        cdef int64_t count
        PyObject_GetBuffer(part, &view, PyBUF_SIMPLE)
        try:
            count = view.len // (LAST_WIDTH * 8)
            if at < 0 or count * LAST_WIDTH * 8 != view.len:
                raise ValueError("part")
            while at < count:
                taken = <const int64_t *> view.buf + at * LAST_WIDTH
                if at + 2 * AHEAD < count:
                    prefetch_slot(&self._table, <uint64_t> taken[2 * AHEAD * LAST_WIDTH])
                    prefetch_row(&self._table, <uint64_t> taken[AHEAD * LAST_WIDTH])
                if self._is_mine(<uint64_t> taken[L_KEY]):
                    row = self._row(<uint64_t> taken[L_KEY])
                    if row == NULL:
                        break
                    memcpy(row, taken, LAST_WIDTH * 8)
                at += 1
        finally:
            PyBuffer_Release(&view)
        return at

    def packed(self):
        return (<const char *> self._table.rows)[:self._table.count * LAST_WIDTH * 8]

    def split(self):
        cdef int64_t i, kept = 0
        cdef int64_t *row
        if self.bits == MOST_PREFIX:
            raise MemoryError
        self.bits += 1
        self.prefix *= 2
        for i in range(self._table.count):
            row = self._table.rows + i * LAST_WIDTH
            if self._is_mine(<uint64_t> row[L_KEY]):
                memmove(self._table.rows + kept * LAST_WIDTH, row, LAST_WIDTH * 8)
                kept += 1
        self._table.count = kept
        memset(self._table.slots, 0, (self._table.mask + 1) * sizeof(self._table.slots[0]))
        index_rows(&self._table)
        return self.bits, self.prefix + 1

    def restart(self, int64_t bits, uint64_t prefix):
        if not 0 <= bits <= MOST_PREFIX:
            raise ValueError("bits")
        clear(&self._table)
        self.bits = bits
        self.prefix = prefix

    def sum_into(self, RecordSketch sketch):
        cdef int64_t i, offset
        cdef const int64_t *row
        cdef Sum one
        if sketch._words != KEY_WORDS:
            raise ValueError("of records")
        one.count = 1
        for i in range(self._table.count):
            row = self._table.rows + i * LAST_WIDTH
            offset = row[L_VALUE] >> 1
            if row[L_VALUE] & 1 == 0 and sketch._start <= offset < <int64_t> 1 << 62:
                one.low = <uint64_t> row[L_HASH_LOW]
                one.high = <uint64_t> row[L_HASH_HIGH]
                if offset >= sketch._limit:
                    sketch._widen(offset + 1)
                sketch._keep(offset, &one)
                count_key(sketch._tables(offset), sketch._bits, <uint64_t> offset, <uint64_t> row[L_HASH_HIGH],
                          <uint64_t> row[L_KEY] | 1)

    def with_tombstones(self, LastRecords later):
        cdef int64_t i
        cdef const int64_t *row
        cdef const int64_t *own
        cdef list found = []
        for i in range(later._table.count):
            row = later._table.rows + i * LAST_WIDTH
            if self._is_mine(<uint64_t> row[L_KEY]):
                own = find_row(&self._table, <uint64_t> row[L_KEY])
                found.append((<uint64_t> row[L_KEY] | 1) - (0 if own != NULL and own[L_VALUE] & 1 else 1))
        return found


@cython.final
cdef class KeyParts:
    cdef int64_t *_rows
    cdef int64_t _counts[PARTS]

    def __cinit__(self):
        self._rows = <int64_t *> malloc(PARTS * PART_ROWS * LAST_WIDTH * 8)
        if self._rows == NULL:
            raise MemoryError
        memset(self._counts, 0, sizeof(self._counts))

    def __dealloc__(self):
        free(self._rows)

    cdef inline int64_t *_next(self, uint64_t key) noexcept nogil:
        cdef int64_t part = <int64_t> (key >> (64 - PART_BITS))
        cdef int64_t *row = self._rows + (part * PART_ROWS + self._counts[part]) * LAST_WIDTH
        self._counts[part] += 1
        return row

    cdef inline bint _is_full(self, uint64_t key) noexcept nogil:
        return self._counts[key >> (64 - PART_BITS)] == PART_ROWS

    def add(self, rows, int64_t at, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *hashed
        cdef int64_t *row
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or count > view.len // (HASH_WIDTH * 8):
                raise ValueError("count")
            while at < count:
                hashed = <const int64_t *> view.buf + at * HASH_WIDTH
                if is_last(hashed):
                    if self._is_full(<uint64_t> hashed[H_KEY_HIGH]):
                        return at, <int64_t> (<uint64_t> hashed[H_KEY_HIGH] >> (64 - PART_BITS))
                    row = self._next(<uint64_t> hashed[H_KEY_HIGH])
                    row[L_KEY] = hashed[H_KEY_HIGH]
                    row[L_VALUE] = 2 * hashed[H_OFFSET] + (hashed[H_FLAGS] & TOMBSTONE_BIT)
                    row[L_HASH_HIGH] = hashed[H_HIGH]
                    row[L_HASH_LOW] = hashed[H_LOW]
                at += 1
        finally:
            PyBuffer_Release(&view)
        return at, -1

    def add_last(self, LastRecords last, int64_t at):
        cdef const int64_t *row
        while at < last._table.count:
            row = last._table.rows + at * LAST_WIDTH
            if self._is_full(<uint64_t> row[L_KEY]):
                return at, <int64_t> (<uint64_t> row[L_KEY] >> (64 - PART_BITS))
            memcpy(self._next(<uint64_t> row[L_KEY]), row, LAST_WIDTH * 8)
            at += 1
        return at, -1

    def take(self, int64_t part):
        cdef bytes found
        if not 0 <= part < PARTS:
            raise ValueError("part")
        found = (<const char *> (self._rows + part * PART_ROWS * LAST_WIDTH))[:self._counts[part] * LAST_WIDTH * 8]
        self._counts[part] = 0
        return found


# ---- the batches of one copy

cdef inline int64_t offset_after(int64_t offset) noexcept nogil:
    return <int64_t> (<uint64_t> offset + 1)  # wraps, as in Java


def facts_of(rows, int64_t count, int64_t end_offset):
    cdef Py_buffer view
    cdef const int64_t *row
    cdef int64_t i, first, last, span, begin = 0, before = end_offset, reach = -1
    cdef int64_t epoch = 0, next_epoch, run_first = 0, batches = 0, at, magic, last_position, end_position
    cdef bint ordered = True
    cdef list runs = []
    PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
    try:
        if not 1 <= count <= view.len // (BATCH_WIDTH * 8):
            raise ValueError("count")
        at, magic = (<const int64_t *> view.buf)[POSITION], (<const int64_t *> view.buf)[MAGIC]
        for i in range(count):
            row = <const int64_t *> view.buf + i * BATCH_WIDTH
            first = row[BASE_OFFSET]
            last = row[LAST_OFFSET]
            if first == NO_VALUE:
                first = min(before, last)
            if i == 0:
                begin = first
            if first < before or last < first:
                ordered = False
            span = <int64_t> (<uint64_t> last - <uint64_t> first)
            if row[COUNT] != NO_VALUE and (row[ATTRIBUTES] & DELETE_HORIZON_FLAG or row[COUNT] <= span):
                reach = offset_after(last)
            next_epoch = -1 if row[EPOCH] == NO_VALUE else row[EPOCH]  # magic 0 and 1 have none
            if batches == 0 or next_epoch != epoch:
                if batches:
                    runs.append((epoch, run_first, <int64_t> (<uint64_t> before - 1), batches))
                epoch = next_epoch
                run_first = first
                batches = 0
            batches += 1
            before = offset_after(last)
        runs.append((epoch, run_first, <int64_t> (<uint64_t> before - 1), batches))
        last_position, end_position = row[POSITION], row[POSITION] + row[SIZE]
    finally:
        PyBuffer_Release(&view)
    return begin, before, ordered, reach, runs, at, last_position, end_position, magic
