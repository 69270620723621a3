# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Writes bytes as text with escapes, as hexadecimal digits and in base64, for the lines of records and rows.

Text is copied in runs of bytes that need no escape. The escapes of ASCII are looked up, other characters are decoded.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from kdump.kernel.lines cimport (
    DONE, JSON, MALFORMED, NO_MEMORY, Out, PAGE, PRINTABLE, STRETCH, KD_HEX, acts, decoded, kd_lowest, kd_odd, kd_word,
    put_point, reserve,
)

cdef struct Escape:
    uint8_t text[7]
    uint8_t size

cdef Escape ESCAPES[3][128]     # by style; a byte without an escape has size 1
cdef uint8_t PRINTABLES[0x1100][32]  # one bit a code point: str.isprintable
cdef bint PAGES[0x1100]         # whether PRINTABLES has these 256 code points
cdef uint8_t SEXTETS[4096][2]   # the two letters of twelve bits in base64

cdef extern from "lines.h" nogil:
    int kd_begin_escapes()
    const uint8_t *kd_shuffle(const uint8_t *p, const uint8_t *stop, const uint8_t *limit, uint8_t **to)
    const uint8_t *kd_compress(const uint8_t *p, const uint8_t *stop, uint8_t **to)

cdef int escapes = kd_begin_escapes()
ESCAPE_IMPLS = ("runs", "shuffle", "compress")[:escapes + 1]


def choose_escapes(str implementation):
    global escapes
    escapes = ESCAPE_IMPLS.index(implementation)


def _escape_of(int style, str char):
    if style != PRINTABLE and char in '"\\':
        return "\\" + char
    if char.isprintable() and char != "\x7f":
        return char
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if style == JSON:
        return {"\b": "\\b", "\f": "\\f"}.get(char) or f"\\u{ord(char):04x}"
    return f"\\x{ord(char):02x}"


def _fill():
    cdef int style, point, i
    cdef bytes text
    for style in range(3):
        for point in range(128):
            text = _escape_of(style, chr(point)).encode()
            ESCAPES[style][point].size = len(text)
            for i in range(len(text)):
                ESCAPES[style][point].text[i] = text[i]
    text = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for i in range(4096):
        SEXTETS[i][0] = text[i >> 6]
        SEXTETS[i][1] = text[i & 63]


_fill()


cdef int learn(uint32_t page) except -1:
    """Find out which of 256 code points can be printed: what PAGE asks for."""
    cdef uint32_t i
    for i in range(256):
        if chr(page << 8 | i).isprintable():
            PRINTABLES[page][i >> 3] |= 1 << (i & 7)
    PAGES[page] = True
    return 0


cdef int escaped(Out *o, uint8_t **to, const uint8_t **at, const uint8_t *end, const uint8_t *limit, int style,
                 uint32_t *point) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef const uint8_t *stop
    cdef const uint8_t *run
    cdef const Escape *escape
    cdef const Escape *of_style = ESCAPES[style]
    cdef uint8_t *q = to[0]
    cdef uint32_t odd
    cdef Py_ssize_t n
    cdef int status = DONE
    while status == DONE:
        stop = end if end - p <= STRETCH else p + STRETCH
        # SLACK has room for a character that begins before `stop`, and for copies of 16 bytes.
        q = reserve(o, q, 6 * (stop - p))
        if q == NULL:
            return NO_MEMORY
        while p < stop:
            if escapes and style != PRINTABLE:
                p = kd_compress(p, stop, &q) if escapes == 2 else kd_shuffle(p, stop, limit, &q)
                if p == stop:
                    break
            if limit - p >= 32:
                odd = kd_odd(p)
                n = stop - p
                if n < 16:
                    odd &= (1 << n) - 1
                else:
                    n = 16
                memcpy(q, p, 16)
                if odd == 0:
                    q += n
                    p += n
                    continue
                run = p
                while odd:  # the run before each escape; a copy writes up to 15 bytes too many
                    memcpy(q, run, 16)
                    q += p + kd_lowest(odd) - run
                    run = p + kd_lowest(odd)
                    odd &= odd - 1
                    if run[0] >= 0x80:
                        break
                    escape = of_style + run[0]
                    memcpy(q, escape, 8)
                    q += escape.size
                    run += 1
                else:
                    memcpy(q, run, 16)
                    p += n
                    q += p - run
                    continue
                p = run
            if p[0] < 0x80:
                escape = of_style + p[0]
                memcpy(q, escape, 8)
                q += escape.size
                p += 1
                continue
            while p < stop and p[0] >= 0x80:  # they come in runs
                n = decoded(p, end, point)
                if n == 0:
                    status = MALFORMED
                    break
                if style != JSON and not PAGES[point[0] >> 8]:
                    status = PAGE
                    break
                if (acts(point[0]) if style == JSON
                        else not PRINTABLES[point[0] >> 8][(point[0] & 255) >> 3] >> (point[0] & 7) & 1):
                    q = put_point(q, point[0], style)
                else:
                    q[0] = p[0]
                    q[1] = p[1]
                    if n > 2:
                        q[2] = p[2]
                    if n > 3:
                        q[3] = p[3]
                    q += n
                p += n
            if status:
                break
        if p >= end:
            break
    at[0] = p
    to[0] = q
    return status


cdef uint8_t *put_escaped(Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end, const uint8_t *limit, int style,
                          bint *well) except NULL:
    cdef uint32_t point = 0
    cdef int status = PAGE
    while status == PAGE:
        status = escaped(o, &q, &p, end, limit, style, &point)
        if status == PAGE:
            learn(point >> 8)
    if status == DONE or status == MALFORMED:
        well[0] = status == DONE
        q = reserve(o, q, 0)
        if q != NULL:
            return q
    raise MemoryError


cdef bint is_utf8(const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef uint32_t point
    cdef Py_ssize_t n
    while p < end:
        if end - p >= 8 and kd_word(p) & 0x8080808080808080ULL == 0:
            p += 8
        elif p[0] < 0x80:
            p += 1
        else:
            n = decoded(p, end, &point)
            if n == 0:
                return False
            p += n
    return True


cdef uint8_t *in_hex(uint8_t *q, const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end:
        q[0] = KD_HEX[p[0] >> 4]
        q[1] = KD_HEX[p[0] & 15]
        q += 2
        p += 1
    return q


cdef uint8_t *in_base64(uint8_t *q, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef uint32_t group
    while end - p >= 3:
        group = <uint32_t> p[0] << 16 | <uint32_t> p[1] << 8 | p[2]
        memcpy(q, SEXTETS[group >> 12], 2)
        memcpy(q + 2, SEXTETS[group & 4095], 2)
        q += 4
        p += 3
    if p < end:
        group = <uint32_t> p[0] << 16
        if end - p == 2:
            group |= <uint32_t> p[1] << 8
        memcpy(q, SEXTETS[group >> 12], 2)
        memcpy(q + 2, SEXTETS[group & 4095], 2)
        q[3] = 61
        if end - p == 1:
            q[2] = 61
        q += 4
    return q
