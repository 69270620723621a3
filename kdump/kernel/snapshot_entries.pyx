# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""The packed entries of a producer snapshot: without expired producers, and in the order in which Kafka writes them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kdump.kernel.layout cimport (
    SNAPSHOT_ENTRY, SNAPSHOT_PRODUCER_ID_AT, SNAPSHOT_TIMESTAMP_AT, SNAPSHOT_TXN_FIRST_OFFSET_AT, be64,
)


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
        if count > MOST_PRODUCERS:
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
