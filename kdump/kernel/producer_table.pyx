# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""A table of producers, filled batch by batch and merged row by row. kdump.stat.producers has the layout of a row."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memset

from kdump.kernel.producers cimport slot_of

import os

cdef enum:
    FIRST_SLOTS = 128
cdef uint64_t _salt = int.from_bytes(os.urandom(8))  # no file can be crafted whose producers all share a slot
MOST_PRODUCERS = 1_000_000
assert sizeof(ProducerCells) == 8 * 8


cdef inline uint64_t hash_of(int64_t producer_id) noexcept nogil:
    """Return the hash of a producer id by which samples are drawn (the finalizer of SplitMix64)."""
    cdef uint64_t z = <uint64_t> producer_id + <uint64_t> 0x9E3779B97F4A7C15U
    z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9U
    z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBU
    return z ^ (z >> 31)


cdef int by_hash(const void *a, const void *b) noexcept nogil:
    cdef uint64_t one = hash_of((<const ProducerCells *> a).producer_id)
    cdef uint64_t other = hash_of((<const ProducerCells *> b).producer_id)
    return (one > other) - (one < other)


cdef int by_id(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const int64_t *> a)[0], other = (<const int64_t *> b)[0]
    return (one > other) - (one < other)


cdef class ProducerRows:
    """What each producer wrote; see producer_table.pyi."""

    def __cinit__(self, int64_t most=MOST_PRODUCERS):
        self.most = most
        self.highest_hash = <uint64_t> -1
        self.slots = <int32_t *> calloc(FIRST_SLOTS, sizeof(int32_t))
        if self.slots == NULL:
            raise MemoryError
        self.mask = FIRST_SLOTS - 1

    def __dealloc__(self):
        free(self.rows)
        free(self.slots)

    cdef ProducerCells *row_of(self, int64_t producer_id) noexcept nogil:
        """Return the row of a producer; NULL where the sample leaves it out, and without memory."""
        cdef int64_t slot = slot_of(producer_id, _salt, self.mask)
        while self.slots[slot]:
            if self.rows[self.slots[slot] - 1].producer_id == producer_id:
                return self.rows + (self.slots[slot] - 1)
            slot = (slot + 1) & self.mask
        if hash_of(producer_id) > self.highest_hash:
            return NULL
        return self.add_row(producer_id)

    cdef ProducerCells *add_row(self, int64_t producer_id) noexcept nogil:
        cdef int64_t slot, capacity
        cdef ProducerCells *rows
        cdef ProducerCells *row
        # A quarter more than `most`, so that pruning is rare.
        if self.count >= self.most + self.most // 4:
            if not self.prune(self.most):
                return NULL
            if hash_of(producer_id) > self.highest_hash:
                return NULL
        if self.count == self.capacity:
            capacity = max(2 * self.capacity, 64)
            rows = <ProducerCells *> realloc(self.rows, capacity * sizeof(ProducerCells)) \
                if capacity < INT32_MAX else NULL
            if rows == NULL:
                self.failed = True
                return NULL
            self.rows = rows
            self.capacity = capacity
        row = self.rows + self.count
        memset(row, 0, sizeof(ProducerCells))
        row.producer_id = producer_id
        row.epoch = row.first_timestamp = row.last_timestamp = -1
        self.count += 1
        if 2 * self.count > self.mask:
            if not self.rehash():
                return NULL
        else:
            slot = slot_of(producer_id, _salt, self.mask)
            while self.slots[slot]:
                slot = (slot + 1) & self.mask
            self.slots[slot] = <int32_t> self.count
        return row

    cdef bint rehash(self) noexcept nogil:
        """Fill the slots anew; False without memory."""
        cdef int64_t mask = self.mask, i, slot
        cdef int32_t *slots
        while 2 * self.count > mask:
            mask = 2 * mask + 1
        slots = <int32_t *> calloc(mask + 1, sizeof(int32_t))
        if slots == NULL:
            self.failed = True
            return False
        for i in range(self.count):
            slot = slot_of(self.rows[i].producer_id, _salt, mask)
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = <int32_t> (i + 1)
        free(self.slots)
        self.slots = slots
        self.mask = mask
        return True

    cdef bint prune(self, int64_t most) noexcept nogil:
        """Keep the `most` rows whose ids have the smallest hash; False without memory."""
        if self.count <= most:
            return True
        qsort(self.rows, self.count, sizeof(ProducerCells), by_hash)
        self.count = most
        self.highest_hash = hash_of(self.rows[most - 1].producer_id)
        return self.rehash()

    cdef bint merge_row(self, const ProducerCells *other) noexcept nogil:
        cdef ProducerCells *row = self.row_of(other.producer_id)
        if row == NULL:
            return not self.failed
        row.epoch = max(row.epoch, other.epoch)
        row.codecs |= other.codecs
        if other.first_timestamp >= 0 and (row.first_timestamp < 0 or other.first_timestamp < row.first_timestamp):
            row.first_timestamp = other.first_timestamp
        row.last_timestamp = max(row.last_timestamp, other.last_timestamp)
        row.batches += other.batches
        row.records += other.records
        row.bytes += other.bytes
        return True

    def merge(self, cells, highest_hash=None):
        cdef Py_buffer view
        cdef int64_t i
        cdef const ProducerCells *rows
        if highest_hash is not None and <uint64_t> highest_hash < self.highest_hash:
            if not self.lower(highest_hash):
                raise MemoryError
        PyObject_GetBuffer(cells, &view, PyBUF_SIMPLE)
        try:
            rows = <const ProducerCells *> view.buf
            with nogil:
                for i in range(view.len // <Py_ssize_t> sizeof(ProducerCells)):
                    if not self.merge_row(rows + i):
                        break
        finally:
            PyBuffer_Release(&view)
        if self.failed:
            raise MemoryError

    cdef bint lower(self, uint64_t highest_hash) noexcept nogil:
        """Leave out the producers with a larger hash than that of another sample."""
        cdef int64_t i, kept = 0
        self.highest_hash = highest_hash
        for i in range(self.count):
            if hash_of(self.rows[i].producer_id) <= highest_hash:
                self.rows[kept] = self.rows[i]
                kept += 1
        self.count = kept
        return self.rehash()

    def packed(self):
        if self.failed or not self.prune(self.most):
            raise MemoryError
        if self.count:  # without rows there is no memory, and qsort takes no NULL
            qsort(self.rows, self.count, sizeof(ProducerCells), by_id)
        if not self.rehash():
            raise MemoryError
        cells = PyBytes_FromStringAndSize(<char *> self.rows, self.count * sizeof(ProducerCells))
        return cells, None if self.highest_hash == <uint64_t> -1 else self.highest_hash
