# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Sums of hashed records, tables that give what two copies have not in common, last records; see sketches.pyi."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from kdump.kernel.key_table cimport (
    KeyTable, add_row, clear, first_slot, index_rows, prefetch_slot, release, set_up,
)
from kdump.kernel.transactions cimport D_COMMITTED, D_UNDECIDED

from kdump.kernel import record_hashes

cdef enum:
    # record_hashes.HASH_COLUMNS
    H_OFFSET = 0
    H_KEY_HIGH
    H_KEY_LOW
    H_HIGH
    H_LOW
    H_FLAGS
    HASH_WIDTH = 7
    TOMBSTONE_BIT = 1
    NO_KEY_BIT = 2
    CONTROL_BIT = 4
    OUTCOME_SHIFT = 4
    TABLES = 3
    MOST_BITS = 16
    MOST_CUTS = 1 << 16
    MOST_BLOCKS = 64
    # A row of a key
    L_HIGH = 0
    L_LOW
    L_VALUE        # 2 * offset + tombstone, -1: none
    L_HASH_HIGH
    L_HASH_LOW
    LAST_WIDTH
    MOST_PREFIX = 48
    AHEAD = 8             # so many rows earlier the slot of a key is fetched
assert record_hashes.HASH_COLUMNS[:6] == ("offset", "key_high", "key_low", "high", "low", "flags")
assert len(record_hashes.HASH_COLUMNS) == HASH_WIDTH and record_hashes.OUTCOME == OUTCOME_SHIFT
NO_KEY_ID, KEY_ID, CONTROL_ID = 0, 1, 2
CUT_BYTES, CELL_BYTES, HASH_TABLES = 32, 32, TABLES
# Added to the hash of a record, by what became of its transaction: committed, aborted, undecided, open.
OUTCOME_HASHES = (0, 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7)
cdef uint64_t[4] OUTCOME_MARKS
for _number, _mark in enumerate(OUTCOME_HASHES):
    OUTCOME_MARKS[_number] = _mark

cdef struct Cut:
    int64_t offset
    int64_t count      # of records below it, and the sum of their hashes
    uint64_t low
    uint64_t high

cdef struct Cell:
    uint64_t offset    # sums
    uint64_t hashes
    uint64_t keys
    int32_t count
    uint32_t check


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9U
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EBU
    return x ^ (x >> 31)


cdef inline uint64_t spread_of(uint64_t offset, uint64_t hashed) noexcept nogil:
    return mixed(hashed ^ mixed(offset + <uint64_t> 0x9E3779B97F4A7C15U))


cdef inline uint32_t check_of(uint64_t spread, uint64_t key) noexcept nogil:
    return <uint32_t> (mixed(spread + mixed(key + <uint64_t> 0xD1B54A32D192ED03U)) >> 32)


cdef inline uint64_t index_in(uint64_t spread, int table, int bits) noexcept nogil:
    """Return the cell of an entry in one of the tables, which have 1 << bits cells each.

    It is the lowest bits of a part of the hash, so that the two halves of a table can be added.
    """
    return (spread >> (21 * table)) & ((<uint64_t> 1 << bits) - 1)


cdef inline void count_entry(Cell *tables, int bits, uint64_t offset, uint64_t hashed, uint64_t key,
                             int sign) noexcept nogil:
    cdef uint64_t spread = spread_of(offset, hashed)
    cdef uint32_t check = check_of(spread, key)
    cdef int table
    cdef Cell *cell
    for table in range(TABLES):
        cell = tables + (<uint64_t> table << bits) + index_in(spread, table, bits)
        cell.count = <int32_t> (<uint32_t> cell.count + <uint32_t> sign)
        if sign > 0:
            cell.offset += offset
            cell.hashes += hashed
            cell.keys += key
            cell.check += check
        else:
            cell.offset -= offset
            cell.hashes -= hashed
            cell.keys -= key
            cell.check -= check


@cython.final
cdef class RecordSketch:
    cdef Cut *_cuts            # sums of the records between a cut and the one before
    cdef Cell *_cells
    cdef int64_t _count, _at, _first_block, _blocks, _start, _stop
    cdef int _bits, _block_bits
    cdef readonly int64_t keyed, unkeyed, records

    def __cinit__(self, cuts, int block_bits, int bits):
        cdef Py_buffer view
        cdef int64_t i
        PyObject_GetBuffer(cuts, &view, PyBUF_SIMPLE)
        try:
            self._count = view.len // 8
            if not (2 <= self._count <= MOST_CUTS and 0 <= block_bits < 63 and 0 <= bits <= MOST_BITS):
                raise ValueError("cuts")
            self._cuts = <Cut *> calloc(self._count, sizeof(Cut))
            if self._cuts == NULL:
                raise MemoryError
            for i in range(self._count):
                memcpy(&self._cuts[i].offset, <const char *> view.buf + 8 * i, 8)
                if self._cuts[i].offset < 0 or (i and self._cuts[i].offset <= self._cuts[i - 1].offset):
                    raise ValueError("cuts have to rise")
        finally:
            PyBuffer_Release(&view)
        self._start = self._cuts[0].offset
        self._stop = self._cuts[self._count - 1].offset
        self._first_block = self._start >> block_bits
        self._blocks = ((self._stop - 1) >> block_bits) - self._first_block + 1
        if self._blocks > MOST_BLOCKS:
            raise ValueError("block_bits")
        self._bits = bits
        self._block_bits = block_bits
        self._cells = <Cell *> calloc((self._blocks * TABLES) << bits, sizeof(Cell))
        if self._cells == NULL:
            raise MemoryError
        self._at = 1

    def __dealloc__(self):
        free(self._cuts)
        free(self._cells)

    cdef void _add(self, int64_t offset, uint64_t high, uint64_t low, uint64_t key, int64_t outcome) noexcept nogil:
        cdef int64_t a, b, block, middle
        cdef Cut *cut
        if offset < self._start or offset >= self._stop:
            return
        if offset >= self._cuts[self._at].offset or offset < self._cuts[self._at - 1].offset:
            a = 1
            b = self._count - 1
            if offset >= self._cuts[self._at].offset and offset < self._cuts[min(self._at + 1, b)].offset:
                a = b = self._at + 1
            while a < b:
                middle = (a + b) >> 1
                if offset < self._cuts[middle].offset:
                    b = middle
                else:
                    a = middle + 1
            self._at = a
        cut = self._cuts + self._at
        cut.count += 1
        cut.low += low
        cut.high += high + (cut.low < low)
        self.records += 1
        block = (offset >> self._block_bits) - self._first_block
        count_entry(self._cells + (block * TABLES << self._bits), self._bits, <uint64_t> offset,
                    high + OUTCOME_MARKS[outcome & 3], key, 1)

    def add(self, rows, int64_t at, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *row
        cdef int64_t i
        cdef uint64_t key
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or count > view.len // (HASH_WIDTH * 8):
                raise ValueError("count")
            row = <const int64_t *> view.buf + at * HASH_WIDTH
            for i in range(at, count):
                if row[H_FLAGS] & CONTROL_BIT:
                    key = 2
                elif row[H_FLAGS] & NO_KEY_BIT:
                    key = 0
                    self.unkeyed += 1
                else:
                    key = 1
                    self.keyed += 1
                self._add(row[H_OFFSET], <uint64_t> row[H_HIGH], <uint64_t> row[H_LOW], key,
                          row[H_FLAGS] >> OUTCOME_SHIFT)
                row += HASH_WIDTH
        finally:
            PyBuffer_Release(&view)

    def cuts(self):
        cdef int64_t i
        cdef bytes found = bytes(self._count * sizeof(Cut))
        cdef Cut *out = <Cut *> <char *> found
        cdef Cut total
        memset(&total, 0, sizeof(Cut))
        for i in range(self._count):
            total.offset = self._cuts[i].offset
            total.count += self._cuts[i].count
            total.low += self._cuts[i].low
            total.high += self._cuts[i].high + (total.low < self._cuts[i].low)
            out[i] = total
        return found

    def cells(self):
        return (<char *> self._cells)[:((self._blocks * TABLES) << self._bits) * sizeof(Cell)]


def added(one, other):
    cdef Py_buffer a, b
    cdef int64_t i
    cdef Cell *out
    cdef const Cell *cell
    cdef bytes found
    PyObject_GetBuffer(one, &a, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(other, &b, PyBUF_SIMPLE)
        try:
            if a.len != b.len or a.len % sizeof(Cell):
                raise ValueError("tables of one size")
            found = (<const char *> a.buf)[:a.len]
            out = <Cell *> <char *> found
            cell = <const Cell *> b.buf
            for i in range(a.len // <int64_t> sizeof(Cell)):
                add_cell(out + i, cell + i)
        finally:
            PyBuffer_Release(&b)
    finally:
        PyBuffer_Release(&a)
    return found


cdef inline void add_cell(Cell *out, const Cell *cell) noexcept nogil:
    out.offset += cell.offset
    out.hashes += cell.hashes
    out.keys += cell.keys
    out.count = <int32_t> (<uint32_t> out.count + <uint32_t> cell.count)
    out.check += cell.check


def halved(cells):
    cdef Py_buffer view
    cdef int64_t i, count, table
    cdef const Cell *cell
    cdef Cell *out
    cdef bytes found
    PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
    try:
        count = view.len // <int64_t> sizeof(Cell) // TABLES
        if count < 2 or count & (count - 1) or count * TABLES * <int64_t> sizeof(Cell) != view.len:
            raise ValueError("cells")
        found = bytes(view.len // 2)
        out = <Cell *> <char *> found
        cell = <const Cell *> view.buf
        for table in range(TABLES):
            for i in range(count // 2):
                out[table * (count // 2) + i] = cell[table * count + i]
                add_cell(out + table * (count // 2) + i, cell + table * count + count // 2 + i)
    finally:
        PyBuffer_Release(&view)
    return found


cdef inline bint is_zero(const Cell *cell) noexcept nogil:
    return cell.count == 0 and cell.check == 0 and cell.offset == 0 and cell.hashes == 0 and cell.keys == 0


cdef inline bint is_single(const Cell *tables, int64_t index, int bits, int64_t low, int64_t high,
                           uint64_t *entry) noexcept nogil:
    """Whether a cell has one entry of one copy alone: its checksum, its place and its offset are right."""
    cdef const Cell *cell = tables + index
    cdef uint64_t offset, hashed, key, spread
    if cell.count != 1 and cell.count != -1:
        return False
    if cell.count == 1:
        offset = cell.offset
        hashed = cell.hashes
        key = cell.keys
    else:
        offset = 0 - cell.offset
        hashed = 0 - cell.hashes
        key = 0 - cell.keys
    if offset < <uint64_t> low or offset >= <uint64_t> high:
        return False
    spread = spread_of(offset, hashed)
    if check_of(spread, key) != (cell.check if cell.count == 1 else <uint32_t> (0 - cell.check)):
        return False
    if <int64_t> index_in(spread, <int> (index >> bits), bits) != index & ((<int64_t> 1 << bits) - 1):
        return False
    entry[0] = offset
    entry[1] = hashed
    entry[2] = key
    return True


def decode(one, other, int64_t low, int64_t high):
    cdef Py_buffer a, b
    cdef int64_t count, i, index, waiting = 0, steps = 0
    cdef int64_t *queue = NULL
    cdef int bits = 0, table, side
    cdef Cell *tables = NULL
    cdef const Cell *theirs
    cdef uint64_t entry[3]
    cdef uint64_t spread
    cdef list found = []
    if low < 0 or high < low:
        raise ValueError("low")
    PyObject_GetBuffer(one, &a, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(other, &b, PyBUF_SIMPLE)
        try:
            count = a.len // <int64_t> sizeof(Cell) // TABLES
            while (<int64_t> 1 << bits) < count:
                bits += 1
            if a.len != b.len or (<int64_t> 1 << bits) * TABLES * <int64_t> sizeof(Cell) != a.len:
                raise ValueError("tables of one size")
            count *= TABLES
            tables = <Cell *> malloc(a.len)
            queue = <int64_t *> malloc(4 * (count + 1) * sizeof(int64_t))
            if tables == NULL or queue == NULL:
                raise MemoryError
            memcpy(tables, a.buf, a.len)
            theirs = <const Cell *> b.buf
            for i in range(count):
                tables[i].offset -= theirs[i].offset
                tables[i].hashes -= theirs[i].hashes
                tables[i].keys -= theirs[i].keys
                tables[i].count = <int32_t> (<uint32_t> tables[i].count - <uint32_t> theirs[i].count)
                tables[i].check -= theirs[i].check
        finally:
            PyBuffer_Release(&b)
        for i in range(count):
            queue[waiting] = i
            waiting += 1
        while waiting:
            waiting -= 1
            index = queue[waiting]
            if not is_single(tables, index, bits, low, high, entry):
                continue
            steps += 1
            if steps > count:
                return None
            side = 0 if tables[index].count == 1 else 1
            found.append((<int64_t> entry[0], side, entry[1], entry[2]))
            spread = spread_of(entry[0], entry[1])
            count_entry(tables, bits, entry[0], entry[1], entry[2], 1 if side else -1)
            for table in range(TABLES):
                if waiting < 4 * count:
                    queue[waiting] = (<int64_t> table << bits) + <int64_t> index_in(spread, table, bits)
                    waiting += 1
        for i in range(count):
            if not is_zero(tables + i):
                return None
    finally:
        free(tables)
        free(queue)
        PyBuffer_Release(&a)
    found.sort()
    return found


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

@cython.final
cdef class LastRecords:
    cdef KeyTable _table
    cdef readonly int64_t bits, undecided
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

    cdef bint _is_mine(self, uint64_t high) noexcept nogil:
        return self.bits == 0 or high >> (64 - self.bits) == self.prefix

    cdef int64_t *_find(self, int64_t high, int64_t low) noexcept nogil:
        cdef uint64_t slot
        cdef int64_t *row
        if self._table.count == 0:
            return NULL
        slot = first_slot(&self._table, <uint64_t> high)
        while self._table.slots[slot]:
            row = self._table.rows + <int64_t> (self._table.slots[slot] - 1) * LAST_WIDTH
            if row[L_HIGH] == high and row[L_LOW] == low:
                return row
            slot = (slot + 1) & <uint64_t> self._table.mask
        return NULL

    def fill(self, rows, int64_t at, int64_t count):
        cdef Py_buffer view
        cdef const int64_t *hashed
        cdef int64_t *row
        cdef int64_t outcome
        PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or count > view.len // (HASH_WIDTH * 8):
                raise ValueError("count")
            while at < count:
                hashed = <const int64_t *> view.buf + at * HASH_WIDTH
                if at + AHEAD < count:
                    prefetch_slot(&self._table, <uint64_t> hashed[AHEAD * HASH_WIDTH + H_KEY_HIGH])
                outcome = hashed[H_FLAGS] >> OUTCOME_SHIFT
                if hashed[H_FLAGS] & (NO_KEY_BIT | CONTROL_BIT) == 0 and self._is_mine(<uint64_t> hashed[H_KEY_HIGH]):
                    if outcome == D_UNDECIDED:
                        self.undecided += 1
                    elif outcome == D_COMMITTED:
                        row = self._find(hashed[H_KEY_HIGH], hashed[H_KEY_LOW])
                        if row == NULL:
                            if self._table.count == self._table.most:
                                break
                            row = add_row(&self._table, <uint64_t> hashed[H_KEY_HIGH])
                            if row == NULL:
                                raise MemoryError
                            row[L_LOW] = hashed[H_KEY_LOW]
                        row[L_VALUE] = 2 * hashed[H_OFFSET] + (hashed[H_FLAGS] & TOMBSTONE_BIT)
                        row[L_HASH_HIGH] = hashed[H_HIGH]
                        row[L_HASH_LOW] = hashed[H_LOW]
                at += 1
        finally:
            PyBuffer_Release(&view)
        return at

    def split(self):
        cdef int64_t i, kept = 0
        cdef int64_t *row
        if self.bits == MOST_PREFIX:
            raise MemoryError
        self.bits += 1
        self.prefix *= 2
        for i in range(self._table.count):
            row = self._table.rows + i * LAST_WIDTH
            if self._is_mine(<uint64_t> row[L_HIGH]):
                memmove(self._table.rows + kept * LAST_WIDTH, row, LAST_WIDTH * 8)
                kept += 1
        self._table.count = kept
        memset(self._table.slots, 0, (self._table.mask + 1) * sizeof(int32_t))
        index_rows(&self._table)
        return self.bits, self.prefix + 1

    def restart(self, int64_t bits, uint64_t prefix):
        if not 0 <= bits <= MOST_PREFIX:
            raise ValueError("bits")
        clear(&self._table)
        self.bits = bits
        self.prefix = prefix
        self.undecided = 0

    def sum_into(self, RecordSketch sketch):
        cdef int64_t i
        cdef const int64_t *row
        for i in range(self._table.count):
            row = self._table.rows + i * LAST_WIDTH
            if row[L_VALUE] & 1 == 0:
                sketch._add(row[L_VALUE] >> 1, <uint64_t> row[L_HASH_HIGH], <uint64_t> row[L_HASH_LOW],
                            <uint64_t> row[L_HIGH] | 1, D_COMMITTED)

    def with_tombstones(self, LastRecords later):
        cdef int64_t i
        cdef const int64_t *row
        cdef const int64_t *own
        cdef list found = []
        for i in range(later._table.count):
            row = later._table.rows + i * LAST_WIDTH
            if self._is_mine(<uint64_t> row[L_HIGH]):
                own = self._find(row[L_HIGH], row[L_LOW])
                found.append((<uint64_t> row[L_HIGH] | 1) - (0 if own != NULL and own[L_VALUE] & 1 else 1))
        return found
