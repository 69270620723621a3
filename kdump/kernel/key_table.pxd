# A table of rows of int64 cells, found by the 64-bit hash of a key. Its size is bounded in one of two ways: it keeps
# the rows with the smallest hashes, or it lowers every weight until few enough rows are left. See key_table.pyi.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    # Of every row.
    K_HASH = 0

    # A sampled key (kdump.kernel.key_table.SAMPLE_COLUMNS).
    K_RECORDS = 1
    K_BYTES
    K_LAST_OFFSET
    K_LAST_SIZE
    K_TOMBSTONE
    K_PARTITIONERS  # Java's murmur2 in the upper half, CRC-32 in the lower one
    SAMPLE_WIDTH

    # A counted name (CENSUS_COLUMNS), and a heavy key (SKETCH_COLUMNS).
    K_COUNT = 1
    K_VALUE_BYTES
    K_WEIGHT = 1
    K_OFFSET
    K_SIZE
    K_PREFIX
    PREFIX_BYTES = 96
    NAMED_WIDTH = 16  # K_PREFIX, and 12 cells

    # A key with both of its weights, while they are counted.
    W_RECORDS = 1
    W_BYTES
    W_OFFSET
    W_SIZE
    W_PREFIX
    WEIGHED_WIDTH = 17

    # How two rows of one key become one.
    SAMPLE = 0
    CENSUS
    SKETCH

cdef struct KeyTable:
    int64_t *rows
    int32_t *slots      # one more than an index of rows, 0: free
    int64_t count
    int64_t capacity    # rows that there is memory for
    int64_t most        # rows at which the table has to lose some
    int64_t width
    int64_t mask        # slots - 1
    int shift           # 64 less the bits of an index of slots
    uint64_t spread     # a random odd number
    uint64_t limit      # no larger hash is kept
    int64_t error       # what was taken off every number of records
    int64_t bytes_error  # ... and off every number of bytes
    bint dropped        # a key was dropped
    bint failed         # out of memory

cdef void set_up(KeyTable *table, int64_t width, int64_t most) noexcept nogil
cdef void clear(KeyTable *table) noexcept nogil
cdef void release(KeyTable *table) noexcept nogil
cdef void index_rows(KeyTable *table) noexcept nogil
cdef int64_t *add_row(KeyTable *table, uint64_t hash) noexcept nogil
cdef int64_t *add_sampled(KeyTable *table, uint64_t hash) noexcept nogil
cdef int64_t *add_weighed(KeyTable *table, uint64_t hash) noexcept nogil
cdef object smallest_rows(KeyTable *table, int64_t count)
cdef object heaviest_rows(const KeyTable *table, int64_t cell, int64_t error, int64_t count)
cdef int64_t partitioner_hashes(const uint8_t *key, int64_t size) noexcept nogil


cdef inline uint64_t key_hash(const uint8_t *p, int64_t n) noexcept nogil:
    """Return MurmurHash64A of a key (Austin Appleby, public domain), the same on every machine and in every run."""
    cdef uint64_t m = <uint64_t> 0xC6A4A7935BD1E995U
    cdef uint64_t h = <uint64_t> 0x9747B28C ^ (<uint64_t> n * m)
    cdef uint64_t k
    cdef int64_t i
    while n >= 8:
        memcpy(&k, p, 8)
        k *= m
        k ^= k >> 47
        k *= m
        h ^= k
        h *= m
        p += 8
        n -= 8
    if n:
        k = 0
        for i in range(n):
            k |= <uint64_t> p[i] << (8 * i)
        h ^= k
        h *= m
    h ^= h >> 47
    h *= m
    h ^= h >> 47
    return h


cdef extern from *:
    """
    #define kdump_prefetch(p) __builtin_prefetch(p)
    """
    void prefetch "kdump_prefetch"(const void *p) noexcept nogil


cdef inline uint64_t first_slot(const KeyTable *table, uint64_t hash) noexcept nogil:
    """Return where the search for a row begins.

    The factor differs from run to run, so that no file can hold keys which all begin at one slot (Dietzfelbinger et
    al., A reliable randomized algorithm for the closest-pair problem, 1997). What a table keeps does not depend on it.
    """
    return hash * table.spread >> table.shift


cdef inline void prefetch_slot(const KeyTable *table, uint64_t hash) noexcept nogil:
    prefetch(table.slots + first_slot(table, hash))


cdef inline void prefetch_row(const KeyTable *table, uint64_t hash) noexcept nogil:
    """Fetch the row that `find_row` reads first."""
    cdef int64_t index = table.slots[first_slot(table, hash)]
    if index:
        prefetch(table.rows + (index - 1) * table.width)


cdef inline int64_t *find_row(const KeyTable *table, uint64_t hash) noexcept nogil:
    """Return the row of a hash, NULL where the table has none."""
    cdef uint64_t slot = first_slot(table, hash)
    cdef int64_t *row
    while table.slots[slot]:
        row = table.rows + <int64_t> (table.slots[slot] - 1) * table.width
        if <uint64_t> row[K_HASH] == hash:
            return row
        slot = (slot + 1) & <uint64_t> table.mask
    return NULL


cdef inline void write_name(int64_t *cell, const uint8_t *key, int64_t size) noexcept nogil:
    """Write the size of a key and its first bytes to cells that are 0."""
    cell[0] = size
    memcpy(cell + 1, key, size if size < PREFIX_BYTES else PREFIX_BYTES)
