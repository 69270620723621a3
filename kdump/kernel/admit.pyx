# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""The common case of an append, in one call: check a record batch without a producer, copy it, assign its offsets."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kdump.kernel.layout cimport (
    CODEC_MASK, CONTROL_FLAG, HEADER, LAST_OFFSET_DELTA_AT, LEADER_EPOCH_AT, MAGIC_AT, MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT, RECORDS_COUNT_AT, attributes_of, be32, be64, checksum, put32, put64, stored_crc, total_of,
)

cdef enum:
    KEPT = 1 << 20


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
        cdef uint8_t *copy
        cdef int64_t size, delta, timestamp
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            p = <const uint8_t *> source.buf
            size = source.len
            if size < HEADER or size > self._max_bytes or total_of(p) != size or p[MAGIC_AT] != 2:
                return None
            delta = be32(p + LAST_OFFSET_DELTA_AT)
            if attributes_of(p) & CONTROL_FLAG or attributes_of(p) & CODEC_MASK > 4 or p[PRODUCER_ID_AT] < 128:
                return None
            if (delta < 0 or be32(p + RECORDS_COUNT_AT) != delta + 1 or offset >= INT64_MAX - delta
                    or checksum(p, size) != stored_crc(p)):
                return None
            timestamp = be64(p + MAX_TIMESTAMP_AT)
            if len(self._buffer) < size or len(self._buffer) > KEPT > size:
                self._buffer = bytearray(size)
            copy = <uint8_t *> PyByteArray_AsString(self._buffer)
            memcpy(copy, p, size)
        finally:
            PyBuffer_Release(&source)
        put64(copy, offset)
        put32(copy + LEADER_EPOCH_AT, epoch)
        return (
            self._buffer if len(self._buffer) == size else memoryview(self._buffer)[:size],
            offset + delta, timestamp, size,
        )
