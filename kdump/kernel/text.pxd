from libc.stdint cimport uint8_t, uint32_t

from kdump.kernel.lines cimport Out

# Escapes the text between *at and `end`. Reads bytes up to `limit`. Leaves `at` and `to` where it ended.
cdef int escaped(Out *o, uint8_t **to, const uint8_t **at, const uint8_t *end, const uint8_t *limit, int style,
                 uint32_t *point) noexcept nogil
# Writes text with escapes, without quotes around it. Clears `well` for malformed UTF-8, whose bytes the caller drops.
cdef uint8_t *put_escaped(Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end, const uint8_t *limit, int style,
                          bint *well) except NULL
cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil
# The caller reserved room for the result.
cdef uint8_t *in_hex(uint8_t *q, const uint8_t *p, const uint8_t *end) noexcept nogil
cdef uint8_t *in_base64(uint8_t *q, const uint8_t *p, const uint8_t *end) noexcept nogil
