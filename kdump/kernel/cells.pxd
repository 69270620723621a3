# The cells of invertible Bloom lookup tables of records and of last records; see cell_differences.pyi.

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    TABLES = 3
    MOST_BITS = 16
    # A cell is so many sums of 64 bits
    RECORD_WORDS = 2
    KEY_WORDS = 3
    CELL_SHIFT = 4        # a cell of records has 16 bytes
    CHECK_BITS = 24       # of the hash of a last record, in place of its lowest bits

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define kd_trailing_zeros(x) __builtin_ctzll(x)
    #else
    static inline int kd_trailing_zeros(uint64_t x) {
        int n = 0;
        while (!(x & 1)) { x >>= 1; n++; }
        return n;
    }
    #endif
    /* Of a transaction that is committed, aborted, undecided, open. */
    static const uint64_t kd_outcome_marks[4] = {
        0, 0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u, 0x8CB92BA72F3D8DD7u,
    };
    /* Both sums of a cell are added at once. An entry goes from registers to its cells: in memory, eight bytes at a
       time, it would have to be there before the CPU could load sixteen of them. */
    #if defined(__GNUC__) || defined(__clang__)
    typedef uint64_t KdTwo __attribute__((vector_size(16), aligned(8), may_alias));
    static inline void kd_add_entry(char *one, char *two, char *three, uint64_t hashes, uint64_t places) {
        const KdTwo entry = {hashes, places};
        *(KdTwo *)one += entry, *(KdTwo *)two += entry, *(KdTwo *)three += entry;
    }
    #else
    static inline void kd_add_cell(char *cell, uint64_t hashes, uint64_t places) {
        ((uint64_t *)cell)[0] += hashes, ((uint64_t *)cell)[1] += places;
    }
    static inline void kd_add_entry(char *one, char *two, char *three, uint64_t hashes, uint64_t places) {
        kd_add_cell(one, hashes, places), kd_add_cell(two, hashes, places), kd_add_cell(three, hashes, places);
    }
    #endif
    """
    const uint64_t *outcome_marks "kd_outcome_marks"
    int trailing_zeros "kd_trailing_zeros"(uint64_t x) noexcept nogil
    void add_entry "kd_add_entry"(char *one, char *two, char *three, uint64_t hashes, uint64_t places) noexcept nogil


cdef inline uint64_t mixed(uint64_t x) noexcept nogil:
    """Return the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    x = (x ^ (x >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9U
    x = (x ^ (x >> 27)) * <uint64_t> 0x94D049BB133111EBU
    return x ^ (x >> 31)


cdef inline uint64_t spread_of(uint64_t offset) noexcept nogil:
    """Where the record at an offset belongs, whatever it is: 21 bits for each table."""
    return mixed(offset * <uint64_t> 0x9E3779B97F4A7C15U)


cdef inline uint64_t spread_of_key(uint64_t place, uint64_t content, uint64_t key) noexcept nogil:
    """Where a last record belongs; its lowest bits are a checksum."""
    return mixed((place + content) * <uint64_t> 0x9E3779B97F4A7C15U + key)


cdef inline uint64_t index_in(uint64_t spread, int table, int bits) noexcept nogil:
    """Return the cell of an entry in one of the tables, which have 1 << bits cells each.

    It is the lowest bits of a part of the hash, so that the two halves of a table can be added.
    """
    return (spread >> (21 * table)) & ((<uint64_t> 1 << bits) - 1)


cdef inline uint64_t outcome_mark(uint64_t spread, int64_t outcome) noexcept nogil:
    """What is added to the hash of a record, by what became of its transaction; another one at each offset.

    Committed: nothing; else an odd number, so that the difference gives the offset.
    """
    return outcome_marks[outcome & 3] * (spread | 1)


cdef inline void count_record(uint64_t *tables, int bits, uint64_t offset, uint64_t spread, uint64_t hashed,
                              uint64_t key) noexcept nogil:
    """Add a record to its cell in each table."""
    add_to_cells(tables, bits, spread, hashed, (hashed * offset << 8) + (key << 4 | 1))


cdef inline void add_mark(uint64_t *tables, int bits, uint64_t offset, uint64_t spread, uint64_t mark) noexcept nogil:
    """Add this to the hash of a record that is in the tables: whatever the record is, its cells change by as much."""
    add_to_cells(tables, bits, spread, mark, mark * offset << 8)


cdef inline void add_to_cells(uint64_t *tables, int bits, uint64_t spread, uint64_t hashes,
                              uint64_t places) noexcept nogil:
    """Add to the cell of each table, by index_in in bytes."""
    cdef uint64_t size = <uint64_t> RECORD_WORDS << bits
    cdef uint64_t kept = (((<uint64_t> 1 << bits) - 1) << CELL_SHIFT)
    add_entry(<char *> tables + (spread << CELL_SHIFT & kept),
              <char *> (tables + size) + (spread >> (21 - CELL_SHIFT) & kept),
              <char *> (tables + 2 * size) + (spread >> (42 - CELL_SHIFT) & kept), hashes, places)


cdef inline void count_key(uint64_t *tables, int bits, uint64_t offset, uint64_t hashed, uint64_t key) noexcept nogil:
    """Add the last record of a key to its cell in each table."""
    cdef uint64_t place = offset << 16 | 1, content = hashed >> CHECK_BITS << CHECK_BITS
    cdef uint64_t spread = spread_of_key(place, content, key)
    cdef uint64_t *cell
    cdef int table
    content |= mixed(spread) >> (64 - CHECK_BITS)
    for table in range(TABLES):
        cell = tables + KEY_WORDS * ((<uint64_t> table << bits) + index_in(spread, table, bits))
        cell[0] += place
        cell[1] += content
        cell[2] += key
