# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""What the search for the next batch after damage needs at the speed of memory; see search.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kdump.kernel.layout cimport *

cdef uint32_t _castagnoli[256]
cdef uint32_t _ieee[256]


cdef void set_up(uint32_t *table, uint32_t polynomial) noexcept nogil:
    cdef uint32_t byte, value
    cdef int bit
    for byte in range(256):
        value = byte
        for bit in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table[byte] = value


set_up(&_castagnoli[0], 0x82F63B78)
set_up(&_ieee[0], 0xEDB88320)


def until(buffer, Py_ssize_t start, Py_ssize_t end, uint32_t crc, uint32_t wanted, bint legacy):
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef const uint32_t *table = &_castagnoli[0]
    cdef Py_ssize_t at = start
    if legacy:
        table = &_ieee[0]
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len or start > end:
            raise ValueError("the range lies outside the buffer")
        p = <const uint8_t *> view.buf
        crc = ~crc
        wanted = ~wanted
        with nogil:
            while at < end:
                crc = table[(crc ^ p[at]) & 0xff] ^ (crc >> 8)
                at += 1
                if crc == wanted:
                    break
    finally:
        PyBuffer_Release(&view)
    return at, <uint32_t> ~crc


def follow(buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t stop, int64_t largest, int64_t last, int64_t highest,
           int64_t epoch):
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef Py_ssize_t at = start
    cdef int64_t size, first, delta
    cdef int32_t found
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or end > view.len or start > end:
            raise ValueError("the range lies outside the buffer")
        with nogil:
            while at < stop and end - at >= UP_TO_MAGIC:
                p = <const uint8_t *> view.buf + at
                size = be32(p + LENGTH_AT)
                if (p[MAGIC_AT] > 2 or size < minimum(p[MAGIC_AT]) or size + LOG_OVERHEAD > end - at
                        or size + LOG_OVERHEAD > largest):
                    break
                first = be64(p)
                delta = be32(p + LAST_OFFSET_DELTA_AT) if p[MAGIC_AT] == 2 else 0
                if delta < 0:
                    delta = 0
                if first <= last or first > highest or delta > highest - first:
                    break
                found = be32(p + LEADER_EPOCH_AT)
                if p[MAGIC_AT] == 2 and found < epoch:
                    break
                if checksum(p, size + LOG_OVERHEAD) != stored_crc(p):
                    break
                if p[MAGIC_AT] == 2:
                    epoch = found
                last = first + delta
                at += size + LOG_OVERHEAD
    finally:
        PyBuffer_Release(&view)
    return at, last, epoch
