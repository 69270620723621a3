# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""What two copies have not in common, by their tables; see cell_differences.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kdump.kernel.cells cimport (
    CHECK_BITS, KEY_WORDS, MOST_BITS, RECORD_WORDS, TABLES, index_in, mixed, outcome_mark, spread_of, spread_of_key,
    trailing_zeros,
)

cdef int64_t MOST_SPAN = <int64_t> 1 << 40
CELL_BYTES, KEY_CELL_BYTES, HASH_TABLES = 8 * RECORD_WORDS, 8 * KEY_WORDS, TABLES


def added(one, other):
    cdef Py_buffer a, b
    cdef int64_t i
    cdef uint64_t *out
    cdef const uint64_t *word
    cdef bytes found
    PyObject_GetBuffer(one, &a, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(other, &b, PyBUF_SIMPLE)
        try:
            if a.len != b.len or a.len % 8:
                raise ValueError("tables of one size")
            found = (<const char *> a.buf)[:a.len]
            out = <uint64_t *> <char *> found
            word = <const uint64_t *> b.buf
            for i in range(a.len // 8):
                out[i] += word[i]
        finally:
            PyBuffer_Release(&b)
    finally:
        PyBuffer_Release(&a)
    return found


cdef int bits_of(int64_t size, int words) except -1:
    """Of how many bits the numbers of the cells of a table are. Raises ValueError where bytes are no tables."""
    cdef int bits = 0
    while bits < MOST_BITS and (<int64_t> TABLES * words * 8) << bits < size:
        bits += 1
    if (<int64_t> TABLES * words * 8) << bits != size:
        raise ValueError("no tables")
    return bits


def halved(cells, int64_t cell_bytes):
    cdef Py_buffer view
    cdef int64_t i, half, table
    cdef const uint64_t *word
    cdef uint64_t *out
    cdef bytes found
    if cell_bytes not in (CELL_BYTES, KEY_CELL_BYTES):
        raise ValueError("cell_bytes")
    PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
    try:
        if bits_of(view.len, <int> cell_bytes // 8) == 0:
            raise ValueError("no tables with halves")
        found = bytes(view.len // 2)
        out = <uint64_t *> <char *> found
        word = <const uint64_t *> view.buf
        half = view.len // 8 // TABLES // 2
        for table in range(TABLES):
            for i in range(half):
                out[table * half + i] = word[2 * table * half + i] + word[(2 * table + 1) * half + i]
    finally:
        PyBuffer_Release(&view)
    return found


cdef struct Single:
    int64_t offset
    int64_t side       # 0 or 1: the copy that has it alone; 2: both have a record there, and it is not the same
    uint64_t hashed
    uint64_t key
    uint64_t spread


cdef inline uint64_t inverse_of(uint64_t x) noexcept nogil:
    """The inverse of an odd number modulo 2**64, by the method of Newton: each step doubles the bits that are right."""
    cdef uint64_t found = (3 * x) ^ 2
    cdef int step
    for step in range(4):
        found *= 2 - x * found
    return found


cdef inline bint is_in_place(uint64_t spread, int64_t index, int bits) noexcept nogil:
    return <int64_t> index_in(spread, <int> (index >> bits), bits) == index & ((<int64_t> 1 << bits) - 1)


cdef bint is_single_record(const uint64_t *cell, int64_t index, int bits, int64_t low, int64_t high,
                           Single *found) noexcept nogil:
    """Whether a cell has the difference of one offset alone.

    The offset is a quotient, which for several of them is any number of 56 bits: seldom one in [low, high), and seldom
    one that belongs into this cell. For each bit that the difference of the hashes ends with as zero, the quotient has
    a bit less. Of more than MOST_SPAN offsets it would say too little.
    """
    cdef uint64_t hashed = cell[0], places = cell[1], kind, key, quotient, wrap
    cdef int zeros
    if hashed == 0:
        return False
    found.side = 2
    kind = places & 15
    if kind == 1:
        found.side = 0
    elif kind == 15:
        found.side = 1
        hashed = 0 - hashed
        places = 0 - places
    elif kind != 0:
        return False
    key = places >> 4 & 15
    if key > 2 and (found.side < 2 or key < 14):
        return False
    places = (places >> 8) + (key >> 3)  # the difference of two keys that is negative borrowed one
    zeros = trailing_zeros(hashed)
    if zeros >= 56 or places & ((<uint64_t> 1 << zeros) - 1):
        return False
    wrap = <uint64_t> 1 << (56 - zeros)
    if <uint64_t> (high - low) > wrap or high - low > MOST_SPAN:
        return False
    quotient = (places >> zeros) * inverse_of(hashed >> zeros) - <uint64_t> low & (wrap - 1)
    if quotient >= <uint64_t> (high - low):
        return False
    found.offset = low + <int64_t> quotient
    found.hashed = hashed
    found.key = key
    found.spread = spread_of(<uint64_t> found.offset)
    return is_in_place(found.spread, index, bits)


cdef bint is_single_key(const uint64_t *cell, int64_t index, int bits, int64_t low, int64_t high,
                        Single *found) noexcept nogil:
    """Whether a cell has one last record alone: its checksum, its place and its offset are right."""
    cdef uint64_t place = cell[0], content = cell[1], key = cell[2], hashed, quotient
    found.side = 0
    if place & 0xffff == 0xffff:
        place = 0 - place
        content = 0 - content
        key = 0 - key
        found.side = 1
    if place & 0xffff != 1 or high - low > <int64_t> 1 << 48:
        return False
    quotient = (place >> 16) - <uint64_t> low & ((<uint64_t> 1 << 48) - 1)
    if quotient >= <uint64_t> (high - low):
        return False
    hashed = content >> CHECK_BITS << CHECK_BITS
    found.spread = spread_of_key(place, hashed, key)
    if content - hashed != mixed(found.spread) >> (64 - CHECK_BITS):
        return False
    found.offset = low + <int64_t> quotient
    found.hashed = hashed
    found.key = key
    return is_in_place(found.spread, index, bits)


cdef list peeled(uint64_t *tables, int bits, int words, int64_t low, int64_t high):
    """The entries of the difference of two copies; None where that is not known. Takes them out of it."""
    cdef int64_t count = <int64_t> TABLES << bits, i, index, waiting = 0, steps = 0
    cdef int64_t *queue = <int64_t *> malloc(4 * (count + 1) * sizeof(int64_t))
    cdef uint64_t entry[KEY_WORDS]
    cdef uint64_t *cell
    cdef int table, word
    cdef Single single
    cdef bint is_single
    cdef list found = []
    if queue == NULL:
        raise MemoryError
    try:
        for i in range(count):
            queue[waiting] = i
            waiting += 1
        while waiting:
            waiting -= 1
            index = queue[waiting]
            cell = tables + words * index
            if words == KEY_WORDS:
                is_single = is_single_key(cell, index, bits, low, high, &single)
            else:
                is_single = is_single_record(cell, index, bits, low, high, &single)
            if not is_single:
                continue
            steps += 1
            if steps > count:
                return None
            found.append((single.offset, single.side, single.hashed, single.key))
            memcpy(entry, cell, words * sizeof(uint64_t))
            for table in range(TABLES):
                index = (<int64_t> table << bits) + <int64_t> index_in(single.spread, table, bits)
                for word in range(words):
                    tables[words * index + word] -= entry[word]
                if waiting < 4 * count:
                    queue[waiting] = index
                    waiting += 1
        for i in range(words * count):
            if tables[i]:
                return None
    finally:
        free(queue)
    found.sort()
    return found


cdef list decoded(one, other, int words, int64_t low, int64_t high):
    cdef Py_buffer a, b
    cdef int64_t i
    cdef int bits
    cdef uint64_t *tables = NULL
    cdef const uint64_t *theirs
    if low < 0 or high < low:
        raise ValueError("low")
    PyObject_GetBuffer(one, &a, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(other, &b, PyBUF_SIMPLE)
        try:
            bits = bits_of(a.len, words)
            if a.len != b.len:
                raise ValueError("tables of one size")
            tables = <uint64_t *> malloc(a.len)
            if tables == NULL:
                raise MemoryError
            memcpy(tables, a.buf, a.len)
            theirs = <const uint64_t *> b.buf
            for i in range(a.len // 8):
                tables[i] -= theirs[i]
        finally:
            PyBuffer_Release(&b)
        return peeled(tables, bits, words, low, high)
    finally:
        free(tables)
        PyBuffer_Release(&a)


def decode(one, other, int64_t low, int64_t high):
    return decoded(one, other, RECORD_WORDS, low, high)


def decode_keys(one, other, int64_t low, int64_t high):
    return decoded(one, other, KEY_WORDS, low, high)


def outcomes_of(int64_t offset, difference):
    cdef uint64_t wanted = difference, spread = spread_of(<uint64_t> offset)
    cdef int64_t one, other
    for one in range(4):
        for other in range(4):
            if one != other and outcome_mark(spread, one) - outcome_mark(spread, other) == wanted:
                return one, other
    return None
