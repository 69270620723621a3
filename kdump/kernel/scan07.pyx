# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""The walk over the log of Kafka 0.7: checks framing and checksums, decodes compressed messages.

kdump.format.kafka07 describes the layout. The interface, rows and bits are those of kdump.kernel.scan, so that
kdump.storage.walk handles both formats in the same way.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kdump.kernel.crc cimport crc32_of
from kdump.kernel.layout cimport (
    ATTRIBUTES, ATTRIBUTES_AT_07, BAD_CRC, BAD_MAGIC, BASE_OFFSET, BASE_TIMESTAMP, BATCH_WIDTH, CODEC_MASK_07,
    COMPUTED_CRC, COUNT, CRC, DAMAGED, EPOCH, FULL, HEADER_07, INNER_CRC, LAST_OFFSET, LENGTH, LENGTH_07, LIMIT, MAGIC,
    MAGIC_AT_07, MAX_TIMESTAMP, NEED, NO_VALUE, OVERRUN, PARTIAL, PAYLOAD_AT, PAYLOAD_SIZE, POSITION, PREVIOUS_OFFSET,
    PRODUCER_EPOCH, PRODUCER_ID, R_AT, R_ATTRIBUTES, R_COMPUTED_CRC, R_CRC, R_HEADER_AT, R_HEADER_COUNT, R_KEY_AT,
    R_KEY_SIZE, R_MAGIC, R_OFFSET, R_SIZE, R_TIMESTAMP, R_VALUE_AT, R_VALUE_SIZE, RECORD_WIDTH, S_ATTRIBUTES, S_CODEC,
    S_CRC, S_INNER_CRC, S_LIMIT, S_MAGIC, S_OPEN, S_PARTIAL, S_OFFSET_RANGE, S_WRAPPER, SHORT, SIZE, STATUS, STATUS_AT,
    STATUS_RECORD, STOPPED, SUSPECT, UP_TO_MAGIC_07, BASE_SEQUENCE, be32, clear_diagnosis,
)

from kdump.kernel import scan as _scan
from kdump.kernel.records import STATUSES
from kdump.kernel.results import FrameHeader

cdef int WRAPPER_SIZE = STATUSES.index("wrapper-size")
cdef int WRAPPER_MAGIC = STATUSES.index("wrapper-magic")

HEADER_BYTES = HEADER_07

cdef enum:
    SPANS = 31
cdef uint32_t _crc_table[256]
cdef uint32_t _shift[SPANS][4][256]  # the effect of 2^n zero bytes on a CRC-32 register, by its four bytes


cdef inline uint32_t shift_once(int span, uint32_t crc) noexcept nogil:
    return _shift[span][0][crc & 0xff] ^ _shift[span][1][crc >> 8 & 0xff] \
        ^ _shift[span][2][crc >> 16 & 0xff] ^ _shift[span][3][crc >> 24]


cdef inline uint32_t shift(uint32_t crc, uint64_t zeros) noexcept nogil:
    """Return the register after so many zero bytes, fewer than 2^31."""
    cdef int span = 0
    while zeros:
        if zeros & 1:
            crc = shift_once(span, crc)
        zeros >>= 1
        span += 1
    return crc


cdef void fill_tables() noexcept nogil:
    cdef uint32_t value, c
    cdef int bit, byte, span
    for value in range(256):
        c = value
        for bit in range(8):
            c = (c >> 1) ^ (<uint32_t> 0xEDB88320U if c & 1 else 0)
        _crc_table[value] = c
    for span in range(SPANS):
        for byte in range(4):
            for value in range(256):
                c = value << 8 * byte
                _shift[span][byte][value] = shift_once(span - 1, shift_once(span - 1, c)) if span \
                    else _crc_table[c & 0xff] ^ (c >> 8)


fill_tables()

_NOTHING = _scan.Scanner(-1, capacity=1).state()


cdef inline int64_t minimum(uint8_t magic) noexcept nogil:
    return 6 if magic == 1 else 5


cdef inline Py_ssize_t payload_at(uint8_t magic) noexcept nogil:
    return HEADER_07 - 1 if magic == 0 else HEADER_07


cdef class Scanner07:
    """One walk over one file; see scan07.pyi."""

    cdef int64_t _base
    cdef bint _deep
    cdef bint _everything
    cdef int64_t _max_bytes
    cdef int64_t _known_last
    cdef bint _has_last
    cdef bint _linked
    cdef int64_t _broken
    cdef int64_t _batches
    cdef int64_t _records
    cdef int64_t _unopened
    cdef int64_t _valid_bytes
    cdef int64_t _first_position
    cdef int64_t _last_position
    cdef int64_t _codecs[4]
    cdef int64_t _magics[2]
    cdef bytearray _storage
    cdef int64_t *_row
    cdef Py_ssize_t _capacity
    cdef readonly object rows
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t stop
    cdef readonly int64_t need
    cdef readonly int frame

    def __init__(self, int64_t base_offset=-1, *, bint deep=False, bint everything=False,
                 int64_t max_batch_bytes=1 << 30, Py_ssize_t capacity=256, runs=None, indexes=None):
        self._capacity = capacity
        self._storage = bytearray(capacity * BATCH_WIDTH * 8)
        self._row = <int64_t *> PyByteArray_AsString(self._storage)
        self.rows = memoryview(self._storage).cast("q")
        # A file without a number in its name counts as the first of a log.
        self._base = max(base_offset, 0)
        self._deep = deep
        self._everything = everything
        self._max_bytes = max_batch_bytes
        self._known_last = self._first_position = self._last_position = -1

    # ---- the walk

    def scan(self, buffer, Py_ssize_t start, Py_ssize_t end, int64_t position, int64_t stop, int64_t file_end):
        cdef Py_buffer view
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len or start > end:
                raise ValueError("the range lies outside the buffer")
            self.count = 0
            with nogil:
                reason = self.walk(<const uint8_t *> view.buf, start, end, position, stop, file_end)
        finally:
            PyBuffer_Release(&view)
        return reason

    cdef int walk(self, const uint8_t *base, Py_ssize_t at, Py_ssize_t end, int64_t position, int64_t stop,
                  int64_t file_end) noexcept nogil:
        cdef const uint8_t *p
        cdef int64_t left, size, total
        cdef Py_ssize_t head
        cdef uint32_t computed
        self.need = 0
        while True:
            self.stop = at
            if position >= stop:
                return STOPPED
            if self.count >= self._capacity:
                return FULL
            left = file_end - position
            if left < UP_TO_MAGIC_07:
                self.frame = SHORT
                return DAMAGED
            if end - at < UP_TO_MAGIC_07:
                self.need = HEADER_07 if left > HEADER_07 else left
                return NEED
            p = base + at
            size = be32(p)
            total = size + LENGTH_07
            if size < minimum(p[MAGIC_AT_07]):
                self.frame = LENGTH
                return DAMAGED
            if total > left:
                self.frame = OVERRUN
                return DAMAGED
            if total > self._max_bytes:
                self.frame = LIMIT
                return DAMAGED
            if total > end - at:
                self.need = total
                return NEED
            head = payload_at(p[MAGIC_AT_07])
            if p[MAGIC_AT_07] > 1:  # the caller finds out which of the two layouts it has
                self.frame = BAD_MAGIC
                return DAMAGED
            computed = crc32_of(p + head, total - head)
            if computed != <uint32_t> be32(p + head - 4):
                self.frame = BAD_CRC
                return DAMAGED
            self.message(p, total, position, computed, True)
            at += total
            position += total

    cdef void message(self, const uint8_t *p, int64_t total, int64_t position, uint32_t computed,
                      bint body) noexcept nogil:
        cdef int attributes = p[ATTRIBUTES_AT_07] if p[MAGIC_AT_07] == 1 else 0
        cdef int codec = attributes & CODEC_MASK_07
        cdef int64_t bits = 0
        cdef int64_t *row
        if attributes & ~CODEC_MASK_07:
            bits |= S_ATTRIBUTES
        if position + total > INT64_MAX - self._base:
            bits |= S_OFFSET_RANGE
        self._codecs[codec] += 1
        self._magics[p[MAGIC_AT_07]] += 1
        if codec == 0:
            self._records += 1
        else:
            self._unopened += 1
            if codec == CODEC_MASK_07:
                bits |= S_CODEC
            elif self._deep and body:
                bits |= S_OPEN
        if bits or self._everything:
            row = self._row + self.count * BATCH_WIDTH
            self.fill(row, p, total, position, computed, payload_at(p[MAGIC_AT_07]))
            row[SUSPECT] = bits
            self.count += 1
        if self._first_position < 0:
            self._first_position = position
        self._last_position = position
        self._known_last = <int64_t> (<uint64_t> self._base + <uint64_t> position)
        self._has_last = self._linked = True
        self._batches += 1
        self._valid_bytes += total

    cdef void fill(self, int64_t *row, const uint8_t *p, int64_t total, int64_t position, uint32_t computed,
                   Py_ssize_t head) noexcept nogil:
        cdef int64_t attributes = p[ATTRIBUTES_AT_07] if head == HEADER_07 else 0
        row[POSITION] = position
        row[SIZE] = total
        row[MAGIC] = p[MAGIC_AT_07]
        row[BASE_OFFSET] = row[LAST_OFFSET] = <int64_t> (<uint64_t> self._base + <uint64_t> position)
        row[COUNT] = NO_VALUE if attributes & CODEC_MASK_07 else 1
        row[EPOCH] = NO_VALUE
        row[CRC] = <uint32_t> be32(p + head - 4)
        row[COMPUTED_CRC] = computed
        row[ATTRIBUTES] = attributes
        row[BASE_TIMESTAMP] = row[MAX_TIMESTAMP] = -1
        row[PRODUCER_ID] = row[PRODUCER_EPOCH] = row[BASE_SEQUENCE] = -1
        clear_diagnosis(row)
        if self._linked:
            row[PREVIOUS_OFFSET] = self._known_last
        row[PAYLOAD_AT] = head
        row[PAYLOAD_SIZE] = total - head

    def skip_body(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed):
        cdef Py_buffer view
        cdef const uint8_t *p
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < HEADER_07:
                raise ValueError("the header lies outside the buffer")
            self.count = 0
            p = <const uint8_t *> view.buf + at
            if p[MAGIC_AT_07] > 1:
                raise ValueError("no such magic")
            self.message(p, <int64_t> be32(p) + LENGTH_07, position, computed, False)
        finally:
            PyBuffer_Release(&view)

    def damaged(self, buffer, Py_ssize_t at, int64_t position, uint32_t computed, int frame):
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int64_t *row = self._row
        cdef int64_t total
        cdef Py_ssize_t head
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < HEADER_07:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            total = <int64_t> be32(p) + LENGTH_07
            head = payload_at(p[MAGIC_AT_07])
            if total < HEADER_07 or (frame == BAD_MAGIC and computed != <uint32_t> be32(p + HEADER_07 - 4)):
                head = HEADER_07 - 1
            self.fill(row, p, total, position, computed, head)
            row[SUSPECT] = S_LIMIT if frame == LIMIT else S_MAGIC if frame == BAD_MAGIC else S_CRC
            if frame == LIMIT:
                row[STATUS_AT] = self._max_bytes
            self.count = 1
            self.unlink()
        finally:
            PyBuffer_Release(&view)

    def carry(self, int64_t known_last, bint has_last, int64_t known_epoch, bint linked, int64_t max_timestamp=-1,
              int64_t time_cursor=-1):
        self._known_last = known_last
        self._has_last = has_last
        self._linked = linked

    def unlink(self):
        self._linked = False
        self._broken += 1

    def opened(self, Py_ssize_t index, int64_t records, int status, int64_t status_at, int64_t inner_crc,
               int64_t partial):
        cdef int64_t *row
        cdef int64_t bits
        if index < 0 or index >= self.count:
            raise IndexError("no such row")
        row = self._row + index * BATCH_WIDTH
        bits = row[SUSPECT] & ~S_OPEN
        if status:
            bits |= S_WRAPPER
            row[STATUS] = status
            row[STATUS_AT] = status_at
            row[STATUS_RECORD] = records
        else:
            if inner_crc >= 0:
                bits |= S_INNER_CRC
            if partial:
                bits |= S_PARTIAL
        row[INNER_CRC] = inner_crc
        row[PARTIAL] = partial
        row[SUSPECT] = bits
        self._records += records
        self._unopened -= 1
        return bits

    @property
    def known_last(self):
        return self._known_last

    @property
    def has_last(self):
        return self._has_last

    @property
    def known_epoch(self):
        return -1

    def offset_bounds(self):
        return 0, INT64_MAX

    def state(self):
        cdef int i
        first = self._base + self._first_position if self._first_position >= 0 else -1
        return _NOTHING._replace(
            known_last=self._known_last, has_last=self._has_last, linked=self._linked, broken=self._broken,
            batches=self._batches, records=self._records, unopened=self._unopened, valid_bytes=self._valid_bytes,
            first_position=self._first_position, first_offset=first, first_spans=True,
            last_position=self._last_position, last_offset=self._known_last if self._has_last else -1,
            last_base_offset=self._known_last if self._has_last else -1,
            codecs=tuple([self._codecs[i] for i in range(4)]) + (0,) * 4, magics=(self._magics[0], self._magics[1], 0),
        )

    # ---- bytes that are no message

    def look(self, buffer, Py_ssize_t at, int64_t left):
        cdef Py_buffer view
        cdef const uint8_t *p
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if at < 0 or view.len - at < UP_TO_MAGIC_07:
                raise ValueError("the header lies outside the buffer")
            p = <const uint8_t *> view.buf + at
            # Zeros are no header, although they look like magic 0.
            return FrameHeader(
                <int64_t> be32(p) + LENGTH_07, p[MAGIC_AT_07] <= 1 and be32(p) != 0, 0, 0,
                be32(p) >= minimum(p[MAGIC_AT_07]),
            )
        finally:
            PyBuffer_Release(&view)


cdef class Search07:
    """Searches bytes for entries; see scan07.pyi."""

    cdef bytearray _buffer
    cdef bytearray _prefixes
    cdef const uint8_t *_bytes
    cdef uint32_t *_prefix  # the CRC-32 register over the first n bytes, initially 0
    cdef Py_ssize_t _filled
    cdef readonly object buffer

    def __init__(self, Py_ssize_t capacity):
        self._buffer = bytearray(capacity)
        self._prefixes = bytearray(4 * (capacity + 1))
        self._bytes = <const uint8_t *> PyByteArray_AsString(self._buffer)
        self._prefix = <uint32_t *> PyByteArray_AsString(self._prefixes)
        self.buffer = memoryview(self._buffer)

    def fill(self, Py_ssize_t filled):
        cdef Py_ssize_t i
        cdef uint32_t crc = 0
        if filled < 0 or filled > len(self._buffer):
            raise ValueError("more than the buffer holds")
        self._filled = filled
        with nogil:
            for i in range(filled):
                crc = _crc_table[(crc ^ self._bytes[i]) & 0xff] ^ (crc >> 8)
                self._prefix[i + 1] = crc

    def find(self, Py_ssize_t start, Py_ssize_t stop, int64_t left, int64_t largest, int64_t checked_bytes):
        cdef const uint8_t *p
        cdef Py_ssize_t at, head, found = -1
        cdef int64_t total
        cdef uint32_t crc
        if start < 0:
            raise ValueError("the range lies outside the buffer")
        with nogil:
            for at in range(start, min(stop, self._filled - UP_TO_MAGIC_07 + 1)):
                p = self._bytes + at
                if p[MAGIC_AT_07] > 1 or p[0] > 127:
                    continue
                total = <int64_t> be32(p) + LENGTH_07
                if total - LENGTH_07 < minimum(p[MAGIC_AT_07]) or total > left - (at - start) or total > largest:
                    continue
                if total <= checked_bytes:
                    if total > self._filled - at:
                        continue
                    head = payload_at(p[MAGIC_AT_07])
                    crc = ~(self._prefix[at + total] ^ shift(~self._prefix[at + head], total - head))
                    if crc != <uint32_t> be32(p + head - 4):
                        continue
                found = at
                break
        return found


def decode_entries(payload, Py_ssize_t start, int64_t offset, int64_t origin, Py_ssize_t capacity):
    cdef Py_buffer view
    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef int64_t *row
    cdef Py_ssize_t at, count = 0, wrappers = 0, i, head
    cdef int64_t size
    cdef int status = 0
    cdef bint more = False
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if start < 0 or start > view.len:
            raise ValueError("the start lies outside the payload")
        base = <const uint8_t *> view.buf
        at = start
        while view.len - at >= 4:
            if count >= capacity:
                more = True
                break
            p = base + at
            size = be32(p)
            if size < 0 or (size > view.len - at - 4 and at == 0):
                status = WRAPPER_SIZE
                break
            if size > view.len - at - 4:
                break
            if size < 5 or (p[MAGIC_AT_07] == 1 and size < 6):
                status = WRAPPER_SIZE
                break
            if p[MAGIC_AT_07] > 1:
                status = WRAPPER_MAGIC
                break
            if p[MAGIC_AT_07] == 1 and p[ATTRIBUTES_AT_07] & CODEC_MASK_07:
                wrappers += 1
            count += 1
            at += size + LENGTH_07
        rows = PyBytes_FromStringAndSize(NULL, count * RECORD_WIDTH * 8)
        row = <int64_t *> PyBytes_AsString(rows)
        p = base + start
        with nogil:
            for i in range(count):
                size = be32(p)
                head = payload_at(p[MAGIC_AT_07])
                row[R_AT] = origin + (p - base)
                row[R_SIZE] = size + LENGTH_07
                row[R_OFFSET] = offset
                row[R_TIMESTAMP] = row[R_KEY_SIZE] = -1
                row[R_KEY_AT] = row[R_HEADER_AT] = row[R_HEADER_COUNT] = 0
                row[R_VALUE_AT] = row[R_AT] + head
                row[R_VALUE_SIZE] = size + LENGTH_07 - head
                row[R_MAGIC] = p[MAGIC_AT_07]
                row[R_CRC] = <uint32_t> be32(p + head - 4)
                row[R_COMPUTED_CRC] = crc32_of(p + head, size + LENGTH_07 - head)
                row[R_ATTRIBUTES] = p[ATTRIBUTES_AT_07] if head == HEADER_07 else 0
                row += RECORD_WIDTH
                p += size + LENGTH_07
        left = 0 if more or status else view.len - at
    finally:
        PyBuffer_Release(&view)
    return rows, wrappers, at, more, status, left
