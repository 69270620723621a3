# cython: language_level=3, boundscheck=False, wraparound=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Checksums: CRC-32C for magic 2, CRC-32 for magic 0 and 1 and for the log of Kafka 0.7; see crc.h."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc.h":
    const char *KD_HARDWARE_NAME
    void kd_crc_setup() noexcept nogil
    int kd_hardware_here() noexcept nogil
    int kd_wide_here() noexcept nogil
    uint32_t kd_crc32c_table(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    uint32_t kd_crc32c_hardware(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    uint32_t kd_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    uint32_t kd_crc32_table(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil

ctypedef uint32_t (*Update)(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil

kd_crc_setup()
cdef bint _hardware = kd_hardware_here()
cdef bint _wide = _hardware and kd_wide_here()
cdef Update _crc32c = kd_crc32c_wide if _wide else kd_crc32c_hardware if _hardware else kd_crc32c_table

CRC_IMPLS = ("table", *((KD_HARDWARE_NAME.decode(),) if _hardware else ()), *(("avx512",) if _wide else ()))
CRC_IMPL = CRC_IMPLS[-1]


cdef uint32_t crc32c_of(const uint8_t *p, size_t n) noexcept nogil:
    return _crc32c(0, p, n)


cdef uint32_t crc32_of(const uint8_t *p, size_t n) noexcept nogil:
    return kd_crc32_table(0, p, n)


cdef uint32_t _over(Update update, object data, uint32_t crc) except? 0:
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = update(crc, <const uint8_t *> view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def crc32c(data, uint32_t crc=0, str implementation=CRC_IMPL):
    if implementation not in CRC_IMPLS:
        raise ValueError(f"no CRC-32C implementation {implementation!r} here, only {', '.join(CRC_IMPLS)}")
    return _over(
        kd_crc32c_table if implementation == "table"
        else kd_crc32c_wide if implementation == "avx512"
        else kd_crc32c_hardware,
        data,
        crc,
    )


def crc32(data, uint32_t crc=0):
    return _over(kd_crc32_table, data, crc)


# ---- one byte at a time: where a checksum is right

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
