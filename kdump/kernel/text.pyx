# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Bytes as text, with escapes, as hexadecimal digits and in base64; which bytes are UTF-8, or JSON text; see text.pyi.

Text is copied in runs of bytes that need no escape. The escapes of ASCII are looked up, other characters are decoded.
JSON is read without recursion and without memory of its own: a bit for each level says whether it is an object.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from kdump.kernel.lines cimport (
    DONE, JSON, KD_HEX, MALFORMED, NO_MEMORY, Out, PAGE, PRINTABLE, STRETCH, acts, decoded, kd_lowest, kd_odd, kd_word,
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


# ---- JSON text

cdef enum:
    LEVELS = 1 << 16
    LEVEL_BYTES = 1 << 13  # a bit a level
MOST_LEVELS = LEVELS


cdef inline const uint8_t *after_blanks(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and (p[0] == 32 or p[0] == 10 or p[0] == 13 or p[0] == 9):
        p += 1
    return p


cdef inline bint is_digit(const uint8_t *p, const uint8_t *end) noexcept nogil:
    return p < end and 48 <= p[0] <= 57


cdef inline bint is_hex(uint8_t byte) noexcept nogil:
    return 48 <= byte <= 57 or 97 <= byte | 0x20 <= 102


# Each of these returns the address after what begins at p, or NULL where that is not JSON.

cdef const uint8_t *after_string(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """`p` is after the first quote."""
    cdef uint32_t odd, point = 0
    cdef Py_ssize_t n
    cdef int i
    while p < end:
        if end - p >= 16:
            odd = kd_odd(p)
            if odd == 0:
                p += 16
                continue
            p += kd_lowest(odd)
        if p[0] == 34:
            return p + 1
        elif p[0] == 92:
            if end - p < 2:
                return NULL
            if p[1] == 117:  # u
                if end - p < 6:
                    return NULL
                for i in range(2, 6):
                    if not is_hex(p[i]):
                        return NULL
                p += 6
            elif p[1] in (34, 92, 47, 98, 102, 110, 114, 116):  # " \ / b f n r t
                p += 2
            else:
                return NULL
        elif p[0] < 0x20:
            return NULL
        elif p[0] < 0x80:
            p += 1
        else:
            n = decoded(p, end, &point)
            if n == 0:
                return NULL
            p += n
    return NULL


cdef const uint8_t *after_number(const uint8_t *p, const uint8_t *end) noexcept nogil:
    if p < end and p[0] == 45:
        p += 1
    if not is_digit(p, end):
        return NULL
    if p[0] == 48:
        p += 1
    else:
        while is_digit(p, end):
            p += 1
    if p < end and p[0] == 46:
        p += 1
        if not is_digit(p, end):
            return NULL
        while is_digit(p, end):
            p += 1
    if p < end and p[0] | 0x20 == 101:
        p += 1
        if p < end and (p[0] == 43 or p[0] == 45):
            p += 1
        if not is_digit(p, end):
            return NULL
        while is_digit(p, end):
            p += 1
    return p


cdef const uint8_t *after_scalar(const uint8_t *p, const uint8_t *end) noexcept nogil:
    if p[0] == 34:
        return after_string(p + 1, end)
    if p[0] == 116:
        return p + 4 if end - p >= 4 and memcmp(p, b"true", 4) == 0 else NULL
    if p[0] == 102:
        return p + 5 if end - p >= 5 and memcmp(p, b"false", 5) == 0 else NULL
    if p[0] == 110:
        return p + 4 if end - p >= 4 and memcmp(p, b"null", 4) == 0 else NULL
    return after_number(p, end)


cdef const uint8_t *after_key(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The value begins at the address returned."""
    if p == end or p[0] != 34:
        return NULL
    p = after_string(p + 1, end)
    if p == NULL:
        return NULL
    p = after_blanks(p, end)
    return after_blanks(p + 1, end) if p < end and p[0] == 58 else NULL


cdef bint is_json(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """RFC 8259, with at most LEVELS of arrays and objects inside of each other."""
    cdef uint8_t objects[LEVEL_BYTES]
    cdef int64_t level = 0
    cdef bint is_object
    p = after_blanks(p, end)
    while True:
        if p == end:
            return False
        if p[0] == 123 or p[0] == 91:
            if level == LEVELS:
                return False
            is_object = p[0] == 123
            if is_object:
                objects[level >> 3] |= 1 << (level & 7)
            else:
                objects[level >> 3] &= ~(1 << (level & 7))
            level += 1
            p = after_blanks(p + 1, end)
            if p == end or p[0] != (125 if is_object else 93):
                if is_object:
                    p = after_key(p, end)
                    if p == NULL:
                        return False
                continue
        else:
            p = after_scalar(p, end)
            if p == NULL:
                return False
        # After a value, or at the end of what has none: as many ends as there are, then a comma.
        while True:
            p = after_blanks(p, end)
            if level == 0 or p == end:
                return level == 0 and p == end
            is_object = objects[(level - 1) >> 3] >> ((level - 1) & 7) & 1
            if p[0] != (125 if is_object else 93):
                break
            p += 1
            level -= 1
        if p[0] != 44:
            return False
        p = after_blanks(p + 1, end)
        if is_object:
            p = after_key(p, end)
            if p == NULL:
                return False


cdef int64_t mark(const uint8_t *data, const int32_t *offsets, int64_t first, int64_t stop, bint json,
                  uint8_t *bits) noexcept nogil:
    """Clear the bit of each row that is not what it should be; returns their number."""
    cdef int64_t i, count = 0
    for i in range(first, stop):
        if not bits[i >> 3] >> (i & 7) & 1:
            continue
        if is_json(data + offsets[i], data + offsets[i + 1]) if json \
                else is_utf8(data + offsets[i], data + offsets[i + 1]):
            continue
        bits[i >> 3] &= ~(1 << (i & 7))
        count += 1
    return count


def mark_rows(str what, offsets, data, Py_ssize_t first, Py_ssize_t rows, bits):
    """See text.pyi."""
    cdef Py_buffer views[3]
    cdef const int32_t *numbers
    cdef const uint8_t *bytes_
    cdef int opened = 0
    cdef Py_ssize_t i
    cdef int64_t count
    cdef bint json = ("utf8", "json").index(what) == 1
    try:
        PyObject_GetBuffer(bits, &views[0], PyBUF_WRITABLE)
        opened += 1
        for buffer in (offsets, data):
            PyObject_GetBuffer(buffer, &views[opened], PyBUF_SIMPLE)
            opened += 1
        if first < 0 or rows < 0 or views[1].len // 4 <= first or views[1].len // 4 - 1 - first < rows \
                or views[0].len <= (first + rows - 1) >> 3 and rows:
            raise ValueError("a buffer is too short for the rows")
        numbers = <const int32_t *> views[1].buf
        bytes_ = <const uint8_t *> views[2].buf
        for i in range(first, first + rows):
            if numbers[i] > numbers[i + 1]:
                raise ValueError("offsets lie outside of the data")
        if numbers[first] < 0 or numbers[first + rows] > views[2].len:
            raise ValueError("offsets lie outside of the data")
        with nogil:
            count = mark(bytes_, numbers, first, first + rows, json, <uint8_t *> views[0].buf)
        return count
    finally:
        while opened:
            opened -= 1
            PyBuffer_Release(&views[opened])
