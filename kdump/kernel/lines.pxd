"""What writes text into a buffer: for lines.pyx, internal_topic_text.pyx, text.pyx and row_lines.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, strlen

cdef extern from "lines.h" nogil:
    uint32_t kd_odd(const uint8_t *p)
    uint32_t kd_quoted(const uint8_t *p)
    int kd_lowest(uint32_t mask)
    int kd_digits(uint64_t number)
    uint64_t kd_word(const uint8_t *p)
    const uint8_t *KD_PAIRS
    const uint8_t *KD_HEX
    int64_t KD_FIRST_SECOND, KD_STOP_SECOND

cdef enum:
    STRETCH = 1 << 16   # bytes of a field to reserve room for at once
    SLACK = 512         # room after each reserved part, for names, numbers, times

    # The styles of text.
    TEXT = 0
    JSON
    PRINTABLE
    RAW

    # How binary fields are written.
    AUTO = 0
    BASE64
    HEX
    UTF8

    # The results of writing a field.
    DONE = 0
    MALFORMED
    PAGE        # PAGES does not have the page of the code point yet
    NO_MEMORY


# ---- characters

# Decodes the character at p. Returns its number of bytes, 0 where they are malformed.
# RFC 3629: no surrogates, shortest form.
cdef inline Py_ssize_t decoded(const uint8_t *p, const uint8_t *end, uint32_t *point) noexcept nogil:
    cdef uint32_t first = p[0]
    if first < 0xe0:
        if first < 0xc2 or end - p < 2 or p[1] & 0xc0 != 0x80:
            return 0
        point[0] = (first & 0x1f) << 6 | (p[1] & 0x3f)
        return 2
    if first < 0xf0:
        if end - p < 3 or p[1] & 0xc0 != 0x80 or p[2] & 0xc0 != 0x80:
            return 0
        point[0] = (first & 0x0f) << 12 | <uint32_t> (p[1] & 0x3f) << 6 | (p[2] & 0x3f)
        return 0 if point[0] < 0x800 or point[0] >> 11 == 0x1b else 3
    if first > 0xf4 or end - p < 4 or p[1] & 0xc0 != 0x80 or p[2] & 0xc0 != 0x80 or p[3] & 0xc0 != 0x80:
        return 0
    point[0] = (first & 0x07) << 18 | <uint32_t> (p[1] & 0x3f) << 12 | <uint32_t> (p[2] & 0x3f) << 6 | (p[3] & 0x3f)
    return 4 if 0x10000 <= point[0] <= 0x10ffff else 0


# What JSON lines escape beside ASCII: C1 controls, line separators, controls of the text direction.
cdef inline bint acts(uint32_t point) noexcept nogil:
    if point < 0xa0:
        return True
    if point < 0x2000:
        return point == 0x61c
    return point <= 0x2069 and (point >= 0x2066 or 0x2028 <= point <= 0x202e or point == 0x200e or point == 0x200f)


cdef inline uint8_t *put_point(uint8_t *q, uint32_t point, int style) noexcept nogil:
    cdef int shift = 12
    q[0] = 92
    if point > 0xffff:
        q[1] = 85
        shift = 28
    elif point > 0xff or style == JSON:
        q[1] = 117
    else:
        q[1] = 120
        shift = 4
    q += 2
    while shift >= 0:
        q[0] = KD_HEX[point >> shift & 15]
        q += 1
        shift -= 4
    return q


# ---- the buffer of lines

cdef struct Out:
    uint8_t *data
    uint8_t *end
    bint fixed      # the memory is the caller's, and does not grow


cdef inline uint8_t *grow(Out *o, uint8_t *q, size_t more) noexcept nogil:
    cdef size_t size = q - o.data, room = 2 * (o.end - o.data)
    cdef uint8_t *data
    if o.fixed:
        return NULL
    if room < size + more + SLACK:
        room = size + more + SLACK
    if room < 2 * STRETCH:
        room = 2 * STRETCH
    data = <uint8_t *> realloc(o.data, room)
    if data == NULL:
        return NULL
    o.data = data
    o.end = data + room
    return data + size


# Reserves so many bytes at q, and SLACK after them. Returns q, which may move, or NULL without room.
cdef inline uint8_t *reserve(Out *o, uint8_t *q, size_t more) noexcept nogil:
    if <size_t> (o.end - q) >= more + SLACK:
        return q
    return grow(o, q, more)


cdef inline uint8_t *put(uint8_t *q, const char *text) noexcept nogil:
    cdef size_t n = strlen(text)  # of a literal: a constant for the compiler
    memcpy(q, text, n)
    return q + n


cdef inline uint8_t *put_number(uint8_t *q, int64_t number) noexcept nogil:
    cdef uint64_t left = <uint64_t> number
    cdef uint8_t *end
    cdef uint8_t *at
    if number < 0:
        q[0] = 45
        q += 1
        left = 0 - left
    at = end = q + kd_digits(left)
    while left >= 100:
        at -= 2
        memcpy(at, KD_PAIRS + 2 * (left % 100), 2)
        left //= 100
    if left >= 10:
        memcpy(q, KD_PAIRS + 2 * left, 2)
    else:
        q[0] = 48 + <uint8_t> left
    return end


# A number, without its last four digits: those after it mostly differ in these alone.
cdef struct Near:
    int64_t high
    uint8_t digits[32]
    int count


cdef inline uint8_t *put_near_number(uint8_t *q, Near *near, int64_t number) noexcept nogil:
    """Write a number that is mostly near the one before it."""
    cdef int64_t high = number // 10000
    cdef uint32_t low
    if number < 10000:
        if 0 <= number < 10:
            q[0] = 48 + <uint8_t> number
            return q + 1
        return put_number(q, number)
    if high != near.high:  # which is 0 at the beginning
        near.high = high
        near.count = <int> (put_number(near.digits, high) - near.digits)
    memcpy(q, near.digits, 16)
    q += near.count
    low = <uint32_t> (number - 10000 * high)
    memcpy(q, KD_PAIRS + 2 * (low // 100), 2)
    memcpy(q + 2, KD_PAIRS + 2 * (low % 100), 2)
    return q + 4


# ---- times

cdef inline uint8_t *put_pair(uint8_t *q, uint64_t number) noexcept nogil:
    memcpy(q, KD_PAIRS + 2 * number, 2)
    return q + 2


# Writes a second between the years 1 and 9999 as YYYY-MM-DDTHH:MM:SS.
# A year begins in March. An era has 400 years; the first one begins on 0000-03-01.
cdef inline uint8_t *put_second(uint8_t *q, int64_t second) noexcept nogil:
    cdef uint64_t since = <uint64_t> (second - KD_FIRST_SECOND), left = since % 86400, day = since // 86400 + 306
    cdef uint64_t era, of_era, year, of_year, month
    era = day // 146097
    of_era = day % 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    year += era * 400
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    if month <= 2:
        year += 1
    q = put_pair(put_pair(q, year // 100), year % 100)
    q[0] = 45
    q = put_pair(q + 1, month)
    q[0] = 45
    q = put_pair(q + 1, day)
    q[0] = 84
    q = put_pair(q + 1, left // 3600)
    q[0] = 58
    q = put_pair(q + 1, left // 60 % 60)
    q[0] = 58
    return put_pair(q + 1, left % 60)


# The second that was written last: consecutive times mostly share it.
cdef struct Clock:
    int64_t second      # KD_STOP_SECOND: none
    uint8_t written[19]


cdef inline uint8_t *put_time(uint8_t *q, Clock *clock, int64_t timestamp) noexcept nogil:
    """Write a time as kdump.render.sentences.iso_time does: ISO 8601 in UTC."""
    cdef int64_t second = timestamp // 1000, ms = timestamp - 1000 * second
    if ms < 0:
        ms += 1000
        second -= 1
    if timestamp == -1 or not KD_FIRST_SECOND <= second < KD_STOP_SECOND:
        return put(q, "-")
    if second != clock.second:
        put_second(clock.written, second)
        clock.second = second
    memcpy(q, clock.written, 19)
    q[19] = 46
    q[20] = 48 + <uint8_t> (ms // 100)
    q = put_pair(q + 21, ms % 100)
    q[0] = 90
    return q + 1
