# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The common case of an append: one record batch of no producer, which is proved, copied and given its offset in one call."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kdump.kernel.crc cimport crc32c_of

cdef enum:
    HEADER = 61
    CONTROL = 0x20
    KEPT = 1 << 20


cdef inline int32_t be32(const uint8_t *p) noexcept nogil:
    return <int32_t> (<uint32_t> p[0] << 24 | <uint32_t> p[1] << 16 | <uint32_t> p[2] << 8 | <uint32_t> p[3])


cdef inline int64_t be64(const uint8_t *p) noexcept nogil:
    return <int64_t> (<uint64_t> <uint32_t> be32(p) << 32 | <uint64_t> <uint32_t> be32(p + 4))


cdef inline void put(uint8_t *p, int64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        p[i] = <uint8_t> (<uint64_t> value >> 8 * (size - 1 - i))


@cython.final
cdef class Admission:
    """See admit.pyi."""

    cdef int64_t _max_bytes
    cdef bytearray _buffer

    def __init__(self, int64_t max_bytes):
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def admit(self, data, int64_t offset, int32_t epoch):
        cdef Py_buffer source
        cdef const uint8_t *p
        cdef uint8_t *made
        cdef int64_t size, delta, timestamp
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *> source.buf
            size = source.len
            if size < HEADER or size > self._max_bytes or <int64_t> be32(p + 8) + 12 != size or p[16] != 2:
                return None
            delta = be32(p + 23)
            if p[22] & CONTROL or p[22] & 7 > 4 or p[43] < 128 or delta < 0 or be32(p + 57) != delta + 1 or offset >= INT64_MAX - delta:
                return None
            if crc32c_of(p + 21, size - 21) != <uint32_t> be32(p + 17):
                return None
            timestamp = be64(p + 35)
            if len(self._buffer) < size or len(self._buffer) > KEPT > size:
                self._buffer = bytearray(size)
            made = <uint8_t *> PyByteArray_AsString(self._buffer)
            memcpy(made, p, size)
        finally:
            PyBuffer_Release(&source)
        put(made, offset, 8)
        put(made + 12, epoch, 4)
        return self._buffer if len(self._buffer) == size else memoryview(self._buffer)[:size], offset + delta, timestamp, size
