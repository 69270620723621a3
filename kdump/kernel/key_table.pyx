# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Tables of keys with a bound on their size; see key_table.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, UINT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove, memset

from kdump.kernel.crc cimport crc32_of

SAMPLE_COLUMNS = ("hash", "records", "bytes", "last_offset", "last_size", "tombstone", "partitioners")
CENSUS_COLUMNS = ("hash", "count", "value_bytes", "size")
SKETCH_COLUMNS = ("hash", "weight", "offset", "size")
NAME_BYTES = PREFIX_BYTES
ROW_CELLS = (SAMPLE_WIDTH, NAMED_WIDTH, NAMED_WIDTH)
ROWS_SAMPLE, ROWS_CENSUS, ROWS_SKETCH = SAMPLE, CENSUS, SKETCH
assert len(SAMPLE_COLUMNS) == SAMPLE_WIDTH and (NAMED_WIDTH - K_PREFIX) * 8 == PREFIX_BYTES
cdef enum:
    FIRST_CAPACITY = 64
# Python's hash of text has a random key in each process.
cdef uint64_t SPREAD = <uint64_t> <int64_t> hash("kdump.kernel.key_table") | 1


# ---- one table

cdef void set_up(KeyTable *table, int64_t width, int64_t most) noexcept nogil:
    memset(table, 0, sizeof(KeyTable))
    table.width = width
    table.most = most
    table.limit = UINT64_MAX
    table.spread = SPREAD
    grow(table)


cdef void release(KeyTable *table) noexcept nogil:
    free(table.rows)
    free(table.slots)
    table.rows = NULL
    table.slots = NULL


cdef void clear(KeyTable *table) noexcept nogil:
    """Remove all rows."""
    table.count = 0
    table.limit = UINT64_MAX
    table.error = table.bytes_error = 0
    table.dropped = False
    memset(table.slots, 0, (table.mask + 1) * sizeof(int32_t))


cdef void grow(KeyTable *table) noexcept nogil:
    """Make room for twice as many rows, up to `most`."""
    cdef int64_t capacity = min(table.most, max(<int64_t> FIRST_CAPACITY, 2 * table.capacity))
    cdef int64_t slots = 2
    cdef int shift = 63
    cdef void *rows = realloc(table.rows, capacity * table.width * 8)
    cdef void *found
    if rows != NULL:
        table.rows = <int64_t *> rows
    while slots < 2 * capacity:
        slots *= 2
        shift -= 1
    found = calloc(slots, sizeof(int32_t))
    if rows == NULL or found == NULL:
        free(found)
        table.failed = True
        return
    free(table.slots)
    table.slots = <int32_t *> found
    table.mask = slots - 1
    table.shift = shift
    table.capacity = capacity
    index_rows(table)


cdef void index_rows(KeyTable *table) noexcept nogil:
    """Write the slots of all rows; all slots are free."""
    cdef int64_t i
    cdef uint64_t slot
    for i in range(table.count):
        slot = first_slot(table, <uint64_t> table.rows[i * table.width])
        while table.slots[slot]:
            slot = (slot + 1) & <uint64_t> table.mask
        table.slots[slot] = <int32_t> (i + 1)


cdef int64_t *add_row(KeyTable *table, uint64_t hash) noexcept nogil:
    """Add a row of zeros for a hash that has none; NULL where there is no room or no memory."""
    cdef uint64_t slot
    cdef int64_t *row
    if table.count == table.capacity:
        if table.capacity < table.most:
            grow(table)
        if table.count == table.capacity:
            return NULL
    slot = first_slot(table, hash)
    while table.slots[slot]:
        slot = (slot + 1) & <uint64_t> table.mask
    row = table.rows + table.count * table.width
    table.count += 1
    table.slots[slot] = <int32_t> table.count
    memset(row, 0, table.width * 8)
    row[K_HASH] = <int64_t> hash
    return row


cdef int64_t *add_sampled(KeyTable *table, uint64_t hash) noexcept nogil:
    """Add a row to a table that keeps the smallest hashes; NULL for a hash that is too large."""
    if table.count == table.most:
        keep_smallest(table, table.most // 5 * 4)
        if hash > table.limit:
            return NULL
    return add_row(table, hash)


cdef int64_t *add_weighed(KeyTable *table, uint64_t hash) noexcept nogil:
    """Add a row to a table with two weights, which loses at least half of its rows when it is full."""
    if table.count == table.most:
        take_off(table, table.most >> 2)
    return add_row(table, hash)


cdef uint64_t ranked(uint64_t *values, int64_t count, int64_t rank) noexcept nogil:
    """Return the value with this rank, 0 for the smallest. Changes the order of the values."""
    cdef int64_t low = 0, high = count - 1, i, j
    cdef uint64_t pivot, swapped
    while low < high:
        pivot = values[(low + high) >> 1]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                swapped = values[i]
                values[i] = values[j]
                values[j] = swapped
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return values[rank]


cdef uint64_t column_rank(KeyTable *table, int64_t column, int64_t rank) noexcept nogil:
    """Return the value with this rank in a column; sets `failed` without memory."""
    cdef uint64_t *values = <uint64_t *> malloc(table.count * sizeof(uint64_t))
    cdef uint64_t found
    cdef int64_t i
    if values == NULL:
        table.failed = True
        return 0
    for i in range(table.count):
        values[i] = <uint64_t> table.rows[i * table.width + column]
    found = ranked(values, table.count, rank)
    free(values)
    return found


cdef void keep_smallest(KeyTable *table, int64_t count) noexcept nogil:
    """Keep the `count` rows with the smallest hashes."""
    cdef int64_t i, kept = 0
    if table.count <= count:
        return
    table.limit = column_rank(table, K_HASH, count - 1)
    table.dropped = True
    for i in range(table.count):
        if <uint64_t> table.rows[i * table.width] <= table.limit:
            memmove(table.rows + kept * table.width, table.rows + i * table.width, table.width * 8)
            kept += 1
    renumber(table, kept)


cdef void take_off(KeyTable *table, int64_t count) noexcept nogil:
    """Take off both weights, so that only `count` rows have some left of each; keep the rows that do.

    That is the step of Misra and Gries (1982), for two weights: what a row loses is its error.
    """
    cdef int64_t i, kept = 0, records, size
    cdef int64_t *row
    if table.count <= count:
        return
    records = <int64_t> column_rank(table, W_RECORDS, table.count - 1 - count)
    size = <int64_t> column_rank(table, W_BYTES, table.count - 1 - count)
    table.error += records
    table.bytes_error += size
    for i in range(table.count):
        row = table.rows + i * table.width
        row[W_RECORDS] = max(row[W_RECORDS] - records, 0)
        row[W_BYTES] = max(row[W_BYTES] - size, 0)
        if row[W_RECORDS] or row[W_BYTES]:
            memmove(table.rows + kept * table.width, row, table.width * 8)
            kept += 1
    renumber(table, kept)


cdef int64_t keep_heaviest(KeyTable *table, int64_t count) noexcept nogil:
    """Keep at most `count` rows of a sketch; returns what was taken off their weights. The slots are not kept."""
    cdef int64_t i, kept = 0, taken
    if table.count <= count:
        return 0
    taken = <int64_t> column_rank(table, K_WEIGHT, table.count - 1 - count)
    for i in range(table.count):
        if table.rows[i * table.width + K_WEIGHT] > taken:
            memmove(table.rows + kept * table.width, table.rows + i * table.width, table.width * 8)
            table.rows[kept * table.width + K_WEIGHT] -= taken
            kept += 1
    table.count = kept
    return taken


cdef void renumber(KeyTable *table, int64_t count) noexcept nogil:
    table.count = count
    memset(table.slots, 0, (table.mask + 1) * sizeof(int32_t))
    index_rows(table)


cdef int compare_hashes(const void *a, const void *b) noexcept nogil:
    cdef uint64_t left = (<const uint64_t *> a)[0], right = (<const uint64_t *> b)[0]
    return -1 if left < right else 1 if left > right else 0


cdef object smallest_rows(KeyTable *table, int64_t count):
    """Return (the rows with the smallest hashes, in their order, whether a key is missing)."""
    keep_smallest(table, count)
    return sorted_rows(table), bool(table.dropped)


cdef object heaviest_rows(const KeyTable *table, int64_t cell, int64_t error, int64_t count):
    """Return (rows of a sketch with the heaviest keys in the order of their hashes, what a weight can be too small by).

    `cell`: W_RECORDS or W_BYTES. `error`: what was taken off that weight before.
    """
    cdef KeyTable found
    cdef const int64_t *row
    cdef int64_t *out
    cdef int64_t i
    memset(&found, 0, sizeof(KeyTable))
    found.width = NAMED_WIDTH
    found.rows = <int64_t *> malloc(table.count * NAMED_WIDTH * 8 + 1)
    if found.rows == NULL:
        raise MemoryError
    for i in range(table.count):
        row = table.rows + i * table.width
        if row[cell] > 0:
            out = found.rows + found.count * NAMED_WIDTH
            out[K_HASH] = row[K_HASH]
            out[K_WEIGHT] = row[cell]
            memcpy(out + K_OFFSET, row + W_OFFSET, (NAMED_WIDTH - K_OFFSET) * 8)
            found.count += 1
    try:
        error += keep_heaviest(&found, count)
        return sorted_rows(&found), error
    finally:
        release(&found)


cdef struct Place:
    uint64_t hash
    int64_t index


cdef object sorted_rows(const KeyTable *table):
    """Return the rows in the order of their hashes."""
    cdef Place *places
    cdef char *out
    cdef int64_t i, size = table.width * 8
    if table.failed:
        raise MemoryError
    places = <Place *> malloc(table.count * sizeof(Place) + 1)
    if places == NULL:
        raise MemoryError
    try:
        for i in range(table.count):
            places[i] = Place(<uint64_t> table.rows[i * table.width], i)
        qsort(places, table.count, sizeof(Place), compare_hashes)
        rows = PyBytes_FromStringAndSize(NULL, table.count * size)
        out = PyBytes_AsString(rows)
        for i in range(table.count):
            memcpy(out + i * size, table.rows + places[i].index * table.width, size)
    finally:
        free(places)
    return rows


# ---- rows in the order of their hashes

cdef inline void join_rows(int kind, int64_t *row, const int64_t *other) noexcept nogil:
    """Add the row of the same key from another table."""
    row[1] += other[1]
    if kind == SKETCH:
        if other[K_OFFSET] < row[K_OFFSET]:
            row[K_OFFSET] = other[K_OFFSET]
        return
    row[2] += other[2]
    if kind == SAMPLE and other[K_LAST_OFFSET] >= row[K_LAST_OFFSET]:
        row[K_LAST_OFFSET] = other[K_LAST_OFFSET]
        row[K_LAST_SIZE] = other[K_LAST_SIZE]
        row[K_TOMBSTONE] = other[K_TOMBSTONE]


cdef int64_t join_all(int kind, int64_t width, int64_t *out, const int64_t *a, const int64_t *a_end, const int64_t *b,
                      const int64_t *b_end) noexcept nogil:
    cdef int64_t *begin = out
    while a < a_end or b < b_end:
        if b == b_end or (a < a_end and <uint64_t> a[K_HASH] <= <uint64_t> b[K_HASH]):
            memcpy(out, a, width * 8)
            if b < b_end and a[K_HASH] == b[K_HASH]:
                join_rows(kind, out, b)
                b += width
            a += width
        else:
            memcpy(out, b, width * 8)
            b += width
        out += width
    return (out - begin) // width


def merge(int kind, left, right, int64_t most):
    cdef Py_buffer a, b
    cdef int64_t width, count, i
    cdef const int64_t *p
    cdef const int64_t *q
    cdef KeyTable table
    if kind < 0 or kind > SKETCH or most < 1:
        raise ValueError("kind")
    width = SAMPLE_WIDTH if kind == SAMPLE else NAMED_WIDTH
    PyObject_GetBuffer(left, &a, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(right, &b, PyBUF_SIMPLE)
        try:
            if a.len % (width * 8) or b.len % (width * 8):
                raise ValueError("not whole rows")
            memset(&table, 0, sizeof(KeyTable))
            table.width = width
            table.rows = <int64_t *> malloc(a.len + b.len + 1)
            table.slots = <int32_t *> calloc(2, sizeof(int32_t))
            if table.rows == NULL or table.slots == NULL:
                release(&table)
                raise MemoryError
            p = <const int64_t *> a.buf
            q = <const int64_t *> b.buf
            table.count = join_all(kind, width, table.rows, p, p + a.len // 8, q, q + b.len // 8)
            try:
                return merged(&table, kind, most)
            finally:
                release(&table)
        finally:
            PyBuffer_Release(&b)
    finally:
        PyBuffer_Release(&a)


cdef object merged(KeyTable *table, int kind, int64_t most):
    cdef int64_t taken = 0, dropped = table.count > most
    if kind == SKETCH:
        taken = keep_heaviest(table, most)
        if table.failed:
            raise MemoryError
    elif dropped:
        table.count = most
    rows = PyBytes_FromStringAndSize(<const char *> table.rows, table.count * table.width * 8)
    return rows, taken if kind == SKETCH else dropped


cdef inline int32_t java_murmur2(const uint8_t *p, int64_t n) noexcept nogil:
    """org.apache.kafka.common.utils.Utils.murmur2."""
    cdef uint32_t m = 0x5bd1e995, h = <uint32_t> 0x9747b28c ^ <uint32_t> n, k
    while n >= 4:
        k = <uint32_t> p[0] | <uint32_t> p[1] << 8 | <uint32_t> p[2] << 16 | <uint32_t> p[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        p += 4
        n -= 4
    if n == 3:
        h ^= <uint32_t> p[2] << 16
    if n >= 2:
        h ^= <uint32_t> p[1] << 8
    if n >= 1:
        h ^= p[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return <int32_t> h


cdef int64_t partitioner_hashes(const uint8_t *key, int64_t size) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> java_murmur2(key, size) << 32 | crc32_of(key, size))


def hash_of(key):
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return key_hash(<const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def murmur2(key):
    cdef Py_buffer view
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return java_murmur2(<const uint8_t *> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def sums(sample, int64_t count):
    cdef Py_buffer view
    cdef const int64_t *row
    cdef int64_t i, tombstones = 0, size = 0, tombstone_size = 0
    cdef double squares = 0, tombstone_squares = 0, x
    PyObject_GetBuffer(sample, &view, PyBUF_SIMPLE)
    try:
        row = <const int64_t *> view.buf
        for i in range(min(count, view.len // (SAMPLE_WIDTH * 8))):
            x = <double> row[K_LAST_SIZE]
            size += row[K_LAST_SIZE]
            squares += x * x
            if row[K_TOMBSTONE]:
                tombstones += 1
                tombstone_size += row[K_LAST_SIZE]
                tombstone_squares += x * x
            row += SAMPLE_WIDTH
    finally:
        PyBuffer_Release(&view)
    return size, squares, tombstones, tombstone_size, tombstone_squares


def fits(sample, int64_t partition, int64_t partitions, int64_t most):
    cdef Py_buffer view
    cdef const int64_t *row
    cdef int64_t i, count = 0, java = 0, crc = 0
    cdef bint by_java, by_crc
    cdef uint64_t spread = key_hash(b"", 0)
    cdef list java_misfits = [], crc_misfits = []
    if partitions < 1:
        raise ValueError("partitions")
    PyObject_GetBuffer(sample, &view, PyBUF_SIMPLE)
    try:
        row = <const int64_t *> view.buf
        for i in range(view.len // (SAMPLE_WIDTH * 8)):
            if <uint64_t> row[K_HASH] == spread:  # librdkafka spreads records with an empty key
                row += SAMPLE_WIDTH
                continue
            by_java = (row[K_PARTITIONERS] >> 32 & 0x7fffffff) % partitions == partition
            by_crc = (row[K_PARTITIONERS] & 0xffffffff) % partitions == partition
            count += 1
            java += by_java
            crc += by_crc
            if not by_java and len(java_misfits) < most:
                java_misfits.append((row[K_LAST_OFFSET], row[K_RECORDS]))
            if not by_crc and len(crc_misfits) < most:
                crc_misfits.append((row[K_LAST_OFFSET], row[K_RECORDS]))
            row += SAMPLE_WIDTH
    finally:
        PyBuffer_Release(&view)
    return count, java, crc, java_misfits, crc_misfits


def cells(rows, int64_t width, int64_t used):
    cdef Py_buffer view
    cdef const int64_t *row
    cdef int64_t i, j, size
    cdef list found = []
    if width < 1 or used > width:
        raise ValueError("width")
    PyObject_GetBuffer(rows, &view, PyBUF_SIMPLE)
    try:
        row = <const int64_t *> view.buf
        for i in range(view.len // (width * 8)):
            values = [row[j] for j in range(used)]
            size = min(max(row[K_SIZE], 0), PREFIX_BYTES) if width == NAMED_WIDTH else 0
            found.append((values, PyBytes_FromStringAndSize(<const char *> (row + K_PREFIX), size) if size else b""))
            row += width
    finally:
        PyBuffer_Release(&view)
    return found
