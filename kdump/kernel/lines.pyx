# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Formats the records of one batch as lines, one method a format. kdump.render documents the formats.

Inner functions work on (pointer, end), reserve room before they write, and never raise. They call Python
only for malformed UTF-8 in the modes that write text, for control records, and once for each 256 code points to learn
which of them are printable.
"""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from kdump.kernel.text cimport in_base64, in_hex, is_utf8, put_escaped
from kdump.kernel.cursor cimport Fields, Header, next_header, next_record
from kdump.kernel.layout cimport (
    ATTRIBUTES, BASE_OFFSET, BASE_SEQUENCE, BASE_TIMESTAMP, BATCH_WIDTH, CODEC_MASK, CONTROL_FLAG, COUNT, CRC,
    DELETE_HORIZON_FLAG, EPOCH, HEADER, HEADER_WIDTH, LAST_OFFSET, LOG_APPEND_TIME, MAGIC, MAX_TIMESTAMP, POSITION,
    PRODUCER_EPOCH, PRODUCER_ID, R_COMPUTED_CRC, R_CRC, R_HEADER_AT, R_HEADER_COUNT, R_KEY_AT, R_KEY_SIZE, R_MAGIC,
    R_OFFSET, R_TIMESTAMP, R_VALUE_AT, R_VALUE_SIZE, RECORD_WIDTH, SIZE, SUSPECT, TRANSACTIONAL_FLAG,
)
from kdump.kernel.internal_topic_text cimport MessageFormatter

cdef enum:
    PIECE = 1 << 20
    RUN = 512 << 10     # bytes of the lines of several batches
    RUN_BATCH = 256 << 10  # the largest batch among these, as it lies there
    RUN_LINES = 4 << 20  # the most bytes of its lines
    KEPT = 8 << 20      # the largest buffer to keep for the next batch
    LENT = 32 << 10     # from so many bytes on, lines are not copied
    LONG = 3 << 16      # the largest field that is written at once
    STEP = 32           # bytes of a part that are copied at once
    PADDED = 8 * STEP
PIECE_BYTES = PIECE
LONG_BYTES = LONG

cdef (const char *)[5] CODECS
CODECS[:] = ["none", "gzip", "snappy", "lz4", "zstd"]
STYLES = ("text", "json", "printable", "raw")
MODES = ("auto", "base64", "hex", "utf8")


# ---- lines

# The input: rows of records and of headers over a payload.
cdef struct Source:
    const uint8_t *start
    const uint8_t *end
    const int64_t *rows
    const int64_t *cells
    int64_t records
    int64_t headers


# A part that is the same in many lines.
cdef struct Fixed:
    const char *data
    size_t size
    char padded[PADDED]     # where `data` is, unless it is long: a copy in steps is faster, and goes beyond the end


cdef int fixed_of(bytes text, Fixed *fixed) except -1:
    fixed.data = PyBytes_AsString(text)
    fixed.size = PyBytes_Size(text)
    if fixed.size <= PADDED:
        memcpy(fixed.padded, fixed.data, fixed.size)
        fixed.data = fixed.padded
    return 0


@cython.final
cdef class LentLines:
    """Lines in the buffer that they were written to."""
    cdef Out o
    cdef Py_ssize_t size
    cdef int exports

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.o.data == NULL:
            raise BufferError("other lines are there now")
        PyBuffer_FillInfo(view, self, self.o.data, self.size, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.exports -= 1

    def __dealloc__(self):
        free(self.o.data)


@cython.final
cdef class Lines:
    cdef Out o
    cdef LentLines lent
    cdef int style, mode
    cdef bint busy, running
    cdef bint passed         # a part of a line went to `write`
    cdef object repair, write
    cdef Clock clock
    cdef Near offset, timestamp, sequence

    def __cinit__(self, str style, str mode="auto", repair=None, write=None):
        self.style = STYLES.index(style)
        self.mode = MODES.index(mode)
        self.repair = repair
        self.write = write
        if repair is None and (self.style in (PRINTABLE, RAW) or self.mode == UTF8):
            raise ValueError("bytes that are no UTF-8 need a repair in this style and mode")
        self.clock.second = KD_STOP_SECOND

    def __dealloc__(self):
        free(self.o.data)

    def text(self, payload, rows, headers, int64_t first, int64_t base_offset, int64_t base_sequence, control,
             MessageFormatter messages=None, bint aborted=False):
        cdef Py_buffer views[3]
        cdef Source s
        cdef const int64_t *row
        cdef const int64_t *cell
        cdef uint8_t *q
        cdef int64_t i = first, left
        if self.style != TEXT:
            raise ValueError("not of this style")
        q = self._open(payload, rows, headers, first, views, &s)
        try:
            while i < s.records and q - self.o.data < PIECE and not self.passed:
                row = s.rows + i * RECORD_WIDTH
                q = put_number(put(q, "  record offset="), row[R_OFFSET])
                q = put_time(put(q, " time="), &self.clock, row[R_TIMESTAMP])
                q = put_number(put(q, " timestamp="), row[R_TIMESTAMP])
                if messages is not None:
                    q = self._decoded(put(q, " "), &s, row, messages, control)
                    q = self._room(put(put(q, " aborted"), "\n") if aborted else put(q, "\n"), 0)
                    i += 1
                    continue
                q = self._field(put(q, " key="), &s, row + R_KEY_AT)
                q = self._field(put(q, " value="), &s, row + R_VALUE_AT)
                if row[R_HEADER_COUNT]:
                    q = put(q, " headers=[")
                    cell = headers_of(&s, row)
                    for left in range(row[R_HEADER_COUNT]):
                        q = self._field(q, &s, cell)
                        q = self._field(put(q, "="), &s, cell + 2)
                        q = put(q, ",")
                        cell += HEADER_WIDTH
                    (q - 1)[0] = 93  # ] in place of the last comma
                if base_sequence >= 0:
                    q = put_number(put(q, " sequence="), sequence_of(row, base_offset, base_sequence))
                if control is not None:
                    q = self._control(q, &s, row, control)
                elif aborted:
                    q = put(q, " aborted")
                if row[R_MAGIC] < 2 and row[R_CRC] != row[R_COMPUTED_CRC]:
                    q = put(q, " crc=WRONG")
                q = self._room(put(q, "\n"), 0)
                i += 1
            return self._take(q), i
        finally:
            self._close(views)

    def json(self, payload, rows, headers, int64_t first, int64_t base_offset, int64_t base_sequence, control,
             tuple fixed, bint timeless, bint legacy, MessageFormatter messages=None):
        cdef Py_buffer views[3]
        cdef Source s
        cdef const int64_t *row
        cdef const int64_t *cell
        cdef uint8_t *q
        cdef int64_t i = first, left
        cdef Fixed constants[5]
        if self.style != JSON or len(fixed) != 5:
            raise ValueError("not of this style")
        for left in range(5):
            fixed_of(fixed[left], &constants[left])
        q = self._open(payload, rows, headers, first, views, &s)
        try:
            while i < s.records and q - self.o.data < PIECE and not self.passed:
                row = s.rows + i * RECORD_WIDTH
                q = put(put_near_number(self._fixed(q, &constants[0]), &self.offset, row[R_OFFSET]), ",\"timestamp\":")
                if timeless or row[R_MAGIC] == 0:
                    q = self._fixed(q, &constants[2])
                else:
                    q = self._fixed(put_near_number(q, &self.timestamp, row[R_TIMESTAMP]), &constants[1])
                q = self._field(q, &s, row + R_KEY_AT)
                q = self._field(put(q, ",\"value\":"), &s, row + R_VALUE_AT)
                q = put(q, ",\"headers\":[")
                if row[R_HEADER_COUNT]:
                    cell = headers_of(&s, row)
                    for left in range(row[R_HEADER_COUNT]):
                        q = self._field(put(q, "{\"key\":"), &s, cell)
                        q = self._field(put(q, ",\"value\":"), &s, cell + 2)
                        q = put(q, "},")
                        cell += HEADER_WIDTH
                    q -= 1  # the last comma
                q = self._fixed(put(q, "]"), &constants[3])
                q = put(q, "\"sequence\":")
                q = put(q, "null") if legacy else put_number(q, sequence_of(row, base_offset, base_sequence))
                q = self._fixed(q, &constants[4])
                if messages is not None:
                    q = self._decoded(q, &s, row, messages, control)
                elif control is not None:
                    q = self._control(q, &s, row, control)
                q = self._room(put(q, "}\n"), 0)
                i += 1
            return self._take(q), i
        finally:
            self._close(views)

    def batches(self, batches, Py_ssize_t start, Py_ssize_t count, window, int64_t origin, int64_t filled, bytes head,
                bytes batch_head, payload_of, MessageFormatter messages=None):
        """See lines.pyi."""
        cdef Py_buffer views[2]
        cdef const int64_t *row
        cdef uint8_t *q
        cdef Fixed parts[2]
        cdef Py_ssize_t i = start
        cdef size_t mark
        cdef bint whole = True
        if self.style != JSON and self.style != TEXT:
            raise ValueError("not of this style")
        fixed_of(head, &parts[0])
        fixed_of(batch_head or b"", &parts[1])
        q = self._open_buffers((batches, window), views)
        try:
            self.running = True
            if start < 0 or count > views[0].len // (BATCH_WIDTH * 8) or filled > views[1].len:
                raise ValueError("the rows lie outside the buffer")
            while i < count and q - self.o.data < RUN:
                row = <const int64_t *> views[0].buf + i * BATCH_WIDTH
                if not is_plain(row, origin, filled):
                    break
                mark = q - self.o.data
                if batch_head is not None:
                    q = self._room(self._batch_line(self._fixed(q, &parts[1]), row), 0)
                q = self._batch(q, row, i, &views[1], origin, &parts[0], payload_of, messages, &whole)
                if not whole:
                    q = self.o.data + mark
                    break
                i += 1
            return self._take(q), i
        finally:
            self.running = False
            self._close(views, 2)

    cdef uint8_t *_batch(self, uint8_t *q, const int64_t *row, Py_ssize_t index, const Py_buffer *window,
                         int64_t origin, const Fixed *head, payload_of, MessageFormatter messages,
                         bint *whole) except NULL:
        """Write the records of a batch in the window."""
        cdef Py_buffer view
        cdef const uint8_t *at = <const uint8_t *> window.buf + (row[POSITION] - origin)
        if not row[ATTRIBUTES] & CODEC_MASK:
            return self._records(q, row, at + HEADER, at + row[SIZE], <const uint8_t *> window.buf + window.len, head,
                                 messages, whole)
        payload = payload_of(index)
        if payload is None:
            whole[0] = False
            return q
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            at = <const uint8_t *> view.buf
            return self._records(q, row, at, at + view.len, at + view.len, head, messages, whole)
        finally:
            PyBuffer_Release(&view)

    cdef uint8_t *_records(self, uint8_t *q, const int64_t *row, const uint8_t *p, const uint8_t *end,
                           const uint8_t *limit, const Fixed *head, MessageFormatter messages,
                           bint *whole) except NULL:
        """Write the records of a batch of magic 2.

        Clears `whole` where one is not valid or cannot be decoded, or the lines are too long.
        """
        cdef Fields f
        cdef Fixed position, last
        cdef const uint8_t *stop
        cdef int64_t i, offset, timestamp
        cdef size_t begin = q - self.o.data
        cdef bint appended = row[ATTRIBUTES] & LOG_APPEND_TIME != 0, odd = False, text = self.style == TEXT
        cdef int status = 0
        parts_of(row, &position, &last)
        for i in range(row[COUNT]):
            stop = next_record(&p, end, &f, &status, &odd)
            if stop == NULL or q - self.o.data > begin + RUN_LINES:
                whole[0] = False
                return q
            offset = <int64_t> (<uint64_t> row[BASE_OFFSET] + <uint64_t> <int64_t> f.offset_delta)
            timestamp = row[MAX_TIMESTAMP] if appended \
                else <int64_t> (<uint64_t> row[BASE_TIMESTAMP] + <uint64_t> f.timestamp_delta)
            if text:
                q = self._text_record(q, row, &f, offset, timestamp, stop, limit, messages)
                if q == NULL:
                    whole[0] = False
                    return self.o.data + begin
                continue
            q = put_near_number(self._fixed(q, head), &self.offset, offset)
            q = put_near_number(put(q, ",\"timestamp\":"), &self.timestamp, timestamp)
            q = put(q, ",\"timestamp_type\":\"LogAppendTime\",\"key\":") if appended \
                else put(q, ",\"timestamp_type\":\"CreateTime\",\"key\":")
            q = self._value(q, f.key, f.key_size, limit)
            q = self._value(put(q, ",\"value\":"), f.value, f.value_size, limit)
            q = put(q, ",\"headers\":[")
            if f.header_count:
                q = self._headers(q, f.headers, stop, f.header_count, limit)
            q = put(self._fixed(put(q, "]"), &position), "\"sequence\":")
            q = put_near_number(q, &self.sequence, next_sequence(row[BASE_SEQUENCE], <uint32_t> f.offset_delta))
            q = self._room(self._fixed(q, &last), 0)
            if messages is not None:
                q = self._message(q, &f, messages, limit)
                if q == NULL:
                    whole[0] = False
                    return self.o.data + begin
            q = self._room(put(q, "}\n"), 0)
        whole[0] = p == end
        return q

    cdef inline uint8_t *_text_record(self, uint8_t *q, const int64_t *row, const Fields *f, int64_t offset,
                                      int64_t timestamp, const uint8_t *stop, const uint8_t *limit,
                                      MessageFormatter messages) except? NULL:
        """Write the line of a valid record; NULL for one that cannot be decoded."""
        q = put_near_number(put(q, "  record offset="), &self.offset, offset)
        q = put_time(put(q, " time="), &self.clock, timestamp)
        q = put_near_number(put(q, " timestamp="), &self.timestamp, timestamp)
        if messages is not None:
            q = self._message(put(q, " "), f, messages, limit)
            return NULL if q == NULL else self._room(put(q, "\n"), 0)
        q = self._value(put(q, " key="), f.key, f.key_size, limit)
        q = self._value(put(q, " value="), f.value, f.value_size, limit)
        if f.header_count:
            q = self._headers(put(q, " headers=["), f.headers, stop, f.header_count, limit)
            q = put(q, "]")
        if row[BASE_SEQUENCE] >= 0:
            q = put_near_number(put(q, " sequence="), &self.sequence,
                                next_sequence(row[BASE_SEQUENCE], <uint32_t> f.offset_delta))
        q[0] = 10
        return self._room(q + 1, 0)

    cdef uint8_t *_batch_line(self, uint8_t *q, const int64_t *row) noexcept:
        """Write the line of a plain batch, after its head, as `batch_line` of kdump.render.text or json does."""
        cdef int64_t flags = row[ATTRIBUTES], base_sequence = row[BASE_SEQUENCE]
        cdef uint32_t last_delta = <uint32_t> row[LAST_OFFSET] - <uint32_t> row[BASE_OFFSET]
        cdef int64_t last_sequence = next_sequence(base_sequence, last_delta)
        cdef const char *codec = CODECS[flags & CODEC_MASK]
        cdef const char *type = "LogAppendTime" if flags & LOG_APPEND_TIME else "CreateTime"
        if self.style == JSON:
            q = put_number(put(q, "\"position\":"), row[POSITION])
            q = put_number(put(q, ",\"size\":"), row[SIZE])
            q = put_number(put(q, ",\"magic\":2,\"base_offset\":"), row[BASE_OFFSET])
            q = put_number(put(q, ",\"last_offset\":"), row[LAST_OFFSET])
            q = put_number(put(q, ",\"count\":"), row[COUNT])
            q = put_number(put(q, ",\"partition_leader_epoch\":"), row[EPOCH])
            q = put_number(put(q, ",\"crc\":"), row[CRC])
            q = put(put(q, ",\"crc_ok\":true,\"codec\":\""), codec)
            q = put(put(q, "\",\"timestamp_type\":\""), type)
            q = put_number(put(q, "\",\"base_timestamp\":"), row[BASE_TIMESTAMP])
            q = put_number(put(q, ",\"max_timestamp\":"), row[MAX_TIMESTAMP])
            q = put(q, ",\"delete_horizon_ms\":")
            q = put_number(q, row[BASE_TIMESTAMP]) if flags & DELETE_HORIZON_FLAG else put(q, "null")
            q = put_number(put(q, ",\"producer_id\":"), row[PRODUCER_ID])
            q = put_number(put(q, ",\"producer_epoch\":"), row[PRODUCER_EPOCH])
            q = put_number(put(q, ",\"base_sequence\":"), base_sequence)
            q = put_number(put(q, ",\"last_sequence\":"), last_sequence)
            q = put(q, ",\"transactional\":true") if flags & TRANSACTIONAL_FLAG else put(q, ",\"transactional\":false")
            return put(q, ",\"control\":false}\n")
        q = put_number(put(q, "batch position="), row[POSITION])
        q = put_number(put(q, " size="), row[SIZE])
        q = put_number(put(q, " offsets="), row[BASE_OFFSET])
        q = put_number(put(q, ".."), row[LAST_OFFSET])
        q = put_number(put(q, " count="), row[COUNT])
        q = put_number(put(put(put(q, " magic=2 codec="), codec), " crc="), row[CRC])
        q = put_number(put(q, " ok epoch="), row[EPOCH])
        q = put_time(put(put(put(q, " "), type), "="), &self.clock, row[MAX_TIMESTAMP])
        q = put_number(put(q, " max_timestamp="), row[MAX_TIMESTAMP])
        if row[PRODUCER_ID] != -1 or row[PRODUCER_EPOCH] != -1:
            q = put_number(put(q, " producer="), row[PRODUCER_ID])
            q = put_number(put(q, "/"), row[PRODUCER_EPOCH])
        if base_sequence != -1:
            q = put_number(put(put_number(put(q, " sequences="), base_sequence), ".."), last_sequence)
        if flags & TRANSACTIONAL_FLAG:
            q = put(q, " transactional")
        if flags & DELETE_HORIZON_FLAG:
            q = put_time(put(q, " delete_horizon="), &self.clock, row[BASE_TIMESTAMP])
            q = put_number(put(q, " delete_horizon_ms="), row[BASE_TIMESTAMP])
        return put(q, "\n")

    cdef uint8_t *_headers(self, uint8_t *q, const uint8_t *p, const uint8_t *stop, int64_t count,
                           const uint8_t *limit) except NULL:
        """Write the headers of a valid record, without the brackets around them."""
        cdef Header h
        cdef int64_t i
        cdef bint json = self.style == JSON
        for i in range(count):
            p = next_header(p, stop, &h)
            q = self._value(put(q, "{\"key\":") if json else q, h.key, h.key_size, limit)
            q = self._value(put(q, ",\"value\":") if json else put(q, "="), h.value, h.value_size, limit)
            q = put(q, "},") if json else put(q, ",")
        return q - 1  # the last comma

    def kafka(self, payload, rows, headers, int64_t first, int64_t base_offset, int64_t base_sequence, control,
              bytes label, bint metadata, bint contents, bint legacy):
        cdef Py_buffer views[3]
        cdef Source s
        cdef const int64_t *row
        cdef const int64_t *cell
        cdef uint8_t *q
        cdef int64_t i = first, left
        cdef Fixed constant
        if self.style != RAW and self.style != PRINTABLE:
            raise ValueError("not of this style")
        fixed_of(label, &constant)
        q = self._open(payload, rows, headers, first, views, &s)
        try:
            while i < s.records and q - self.o.data < PIECE and not self.passed:
                row = s.rows + i * RECORD_WIDTH
                if metadata:
                    q = self._fixed(put(put_number(put(q, "| offset: "), row[R_OFFSET]), " "), &constant)
                    q = put_number(put(q, ": "), row[R_TIMESTAMP])
                    q = put_number(put(q, " keySize: "), row[R_KEY_SIZE])
                    q = put_number(put(q, " valueSize: "), row[R_VALUE_SIZE])
                    if legacy:
                        q = put(q, " isValid: true crc: ") if row[R_CRC] == row[R_COMPUTED_CRC] \
                            else put(q, " isValid: false crc: ")
                        q = put_number(q, row[R_CRC])
                    else:
                        q = put_number(put(q, " sequence: "), sequence_of(row, base_offset, base_sequence))
                        q = put(q, " headerKeys: [")
                        if row[R_HEADER_COUNT]:
                            cell = headers_of(&s, row)
                            for left in range(row[R_HEADER_COUNT]):
                                q = put(self._field(q, &s, cell), ",")
                                cell += HEADER_WIDTH
                            q -= 1  # the last comma
                        q = put(q, "]")
                    if control is not None:
                        q = self._control(q, &s, row, control)
                if contents and (row[R_KEY_SIZE] >= 0 or row[R_VALUE_SIZE] >= 0):
                    q = put(q, " ") if metadata else put(q, "| ")
                    if row[R_KEY_SIZE] >= 0:
                        q = self._field(put(q, "key: "), &s, row + R_KEY_AT)
                    if row[R_VALUE_SIZE] >= 0:
                        q = put(q, "payload: ") if row[R_KEY_SIZE] < 0 else put(q, " payload: ")
                        q = self._field(q, &s, row + R_VALUE_AT)
                q = self._room(put(q, "\n"), 0)
                i += 1
            return self._take(q), i
        finally:
            self._close(views)

    # ---- parts of a line
    # Each function writes at q, which has SLACK after it, and returns the address after the bytes that it wrote.

    cdef uint8_t *_open(self, payload, rows, headers, int64_t first, Py_buffer *views, Source *s) except NULL:
        cdef uint8_t *q
        if first < 0:
            raise ValueError("there is no record before the first one")
        q = self._open_buffers((payload, rows, headers), views)
        if views[1].len % (RECORD_WIDTH * 8) or views[2].len % (HEADER_WIDTH * 8):
            self._close(views)
            raise ValueError("rows are not whole")
        s.start = <const uint8_t *> views[0].buf
        s.end = s.start + views[0].len
        s.rows = <const int64_t *> views[1].buf
        s.records = views[1].len // (RECORD_WIDTH * 8)
        s.cells = <const int64_t *> views[2].buf
        s.headers = views[2].len // (HEADER_WIDTH * 8)
        return q

    cdef uint8_t *_open_buffers(self, tuple several, Py_buffer *views) except NULL:
        cdef int opened = 0
        cdef uint8_t *q
        if self.busy:
            raise RuntimeError("lines are being written")
        self._regain()
        self.passed = False
        q = self._room(self.o.data, 0)
        try:
            for data in several:
                PyObject_GetBuffer(data, &views[opened], PyBUF_SIMPLE)
                opened += 1
        except BaseException:
            while opened:
                opened -= 1
                PyBuffer_Release(&views[opened])
            raise
        self.busy = True
        return q

    cdef void _close(self, Py_buffer *views, int count=3) noexcept:
        cdef int i
        for i in range(count):
            PyBuffer_Release(&views[i])
        self.busy = False
        if self.o.end - self.o.data > KEPT:
            free(self.o.data)
            self.o.data = self.o.end = NULL

    cdef object _take(self, const uint8_t *q):
        """The lines; many of them are not copied, but keep the buffer until they are dropped."""
        cdef Py_ssize_t size = q - self.o.data
        if size < LENT:
            return PyBytes_FromStringAndSize(<const char *> self.o.data, size)
        self.lent = LentLines()
        self.lent.o = self.o
        self.lent.size = size
        self.o.data = self.o.end = NULL
        return memoryview(self.lent)

    cdef void _regain(self) noexcept:
        """Take the buffer back that was lent, where nobody has it any more."""
        if self.lent is not None and not self.lent.exports:
            free(self.o.data)
            self.o = self.lent.o
            self.lent.o.data = NULL
            if self.o.end - self.o.data > KEPT:
                free(self.o.data)
                self.o.data = self.o.end = NULL
        self.lent = None

    cdef inline uint8_t *_room(self, uint8_t *q, size_t more) except NULL:
        q = reserve(&self.o, q, more)
        if q == NULL:
            raise MemoryError
        return q

    cdef inline uint8_t *_fixed(self, uint8_t *q, const Fixed *text) except NULL:
        cdef size_t i = 0
        q = self._room(q, text.size)
        if text.size > PADDED:
            memcpy(q, text.data, text.size)
        else:
            while i < text.size:
                memcpy(q + i, text.padded + i, STEP)
                i += STEP
        return q + text.size

    cdef inline uint8_t *_field(self, uint8_t *q, const Source *s, const int64_t *place) except NULL:
        """Write a field. `place` is its position, followed by its size."""
        if place[1] >= 0 and not inside(s, place):
            raise ValueError("a field lies outside the payload")
        return self._value(q, s.start + place[0], place[1], s.end)

    cdef inline uint8_t *_value(self, uint8_t *q, const uint8_t *p, int64_t size, const uint8_t *limit) except NULL:
        """Write a field of so many bytes, which is null where they are less than none. `limit` ends what is read."""
        if size < 0:
            return self._room(put(q, "null"), 0)
        if (size <= 16 and limit - p >= 16 and self.style < PRINTABLE and self.mode != BASE64 and self.mode != HEX
                and not kd_odd(p) & ((1 << size) - 1)):
            q[0] = 34  # short and without escapes, like most keys
            memcpy(q + 1, p, 16)
            q[1 + size] = 34
            return self._room(q + size + 2, 0)
        return self._any_field(q, p, p + size, limit)

    cdef uint8_t *_any_field(self, uint8_t *q, const uint8_t *start, const uint8_t *end,
                             const uint8_t *limit) except NULL:
        cdef size_t mark = q - self.o.data
        cdef bint well
        if end - start > LONG and self.write is not None and not self.running:
            return self._long_field(q, start, end)
        if self.mode == BASE64 or self.mode == HEX:
            q = put(self._room(q, 2 * (end - start)), "\"")
            return put(in_base64(q, start, end) if self.mode == BASE64 else in_hex(q, start, end), "\"")
        q = self._string(q, start, end, limit, &well)
        return q if well else self._malformed(self.o.data + mark, start, end)

    cdef uint8_t *_long_field(self, uint8_t *q, const uint8_t *p, const uint8_t *end) except NULL:
        """Write a field piece by piece. What is written before each goes to `write`."""
        cdef const uint8_t *stop
        cdef int form = self.mode
        cdef bint well, quotes = self.style == TEXT or self.style == JSON, valid = True
        cdef bytes better
        if form != BASE64 and form != HEX:
            valid = is_utf8(p, end)
            form = UTF8 if valid or self.repair is not None else BASE64 if self.style == JSON else HEX
        if form == UTF8:
            q = put(q, "\"") if quotes else q
        elif self.mode == form:
            q = put(q, "\"")
        else:
            q = put(q, "{\"base64\":\"") if form == BASE64 else put(q, "0x")
        while p < end:
            stop = piece_end(p, end) if form == UTF8 else p + LONG if end - p > LONG else end
            self.passed = True
            self.write(self._take(q))
            self._regain()
            q = self._room(self.o.data, 2 * LONG)
            if form != UTF8:
                q = in_base64(q, p, stop) if form == BASE64 else in_hex(q, p, stop)
            elif valid:
                q = self._characters(q, p, stop, stop, &well)
            else:
                better = self.repair(PyBytes_FromStringAndSize(<const char *> p, stop - p))
                p = <const uint8_t *> PyBytes_AsString(better)
                q = self._characters(q, p, p + PyBytes_Size(better), p + PyBytes_Size(better), &well)
            p = stop
        if form == UTF8:
            return put(q, "\"") if quotes else q
        if self.mode == form:
            return put(q, "\"")
        return put(q, "\"}") if form == BASE64 else q

    cdef uint8_t *_string(self, uint8_t *q, const uint8_t *p, const uint8_t *end, const uint8_t *limit,
                          bint *well) except NULL:
        """Write a field as a string. Clears `well` for malformed UTF-8; the caller then drops the bytes written."""
        if self.style == PRINTABLE or self.style == RAW:
            return self._characters(q, p, end, limit, well)
        return put(self._characters(put(q, "\""), p, end, limit, well), "\"")

    cdef uint8_t *_characters(self, uint8_t *q, const uint8_t *p, const uint8_t *end, const uint8_t *limit,
                              bint *well) except NULL:
        """Write text without quotes around it."""
        if self.style == RAW:
            well[0] = is_utf8(p, end)
            q = self._room(q, end - p)
            memcpy(q, p, end - p)
            return q + (end - p)
        return put_escaped(&self.o, q, p, end, limit, self.style, well)

    cdef uint8_t *_malformed(self, uint8_t *q, const uint8_t *p, const uint8_t *end) except NULL:
        """Write a field that is not valid UTF-8."""
        cdef size_t mark = q - self.o.data
        cdef bint well
        cdef bytes better
        if self.repair is not None:
            better = self.repair(PyBytes_FromStringAndSize(<const char *> p, end - p))
            p = <const uint8_t *> PyBytes_AsString(better)
            end = p + PyBytes_Size(better)
            q = self._string(self.o.data + mark, p, end, end, &well)
            if not well:
                raise ValueError("what was repaired is no UTF-8")
            return q
        q = self._room(q, 2 * (end - p))
        if self.style == JSON:
            return put(in_base64(put(q, "{\"base64\":\""), p, end), "\"}")
        return in_hex(put(q, "0x"), p, end)

    cdef inline uint8_t *_message(self, uint8_t *q, const Fields *f, MessageFormatter messages,
                                  const uint8_t *limit) except? NULL:
        """Write what a valid record says; NULL where it cannot be decoded."""
        return messages.write(&self.o, q, f.key, f.key_size, f.value, f.value_size, limit)

    cdef uint8_t *_decoded(self, uint8_t *q, const Source *s, const int64_t *row, MessageFormatter messages,
                           control) except NULL:
        """Write what a record says, by `control` where it cannot be decoded here."""
        cdef size_t mark = q - self.o.data
        if row[R_KEY_SIZE] >= 0 and not inside(s, row + R_KEY_AT) or (
                row[R_VALUE_SIZE] >= 0 and not inside(s, row + R_VALUE_AT)):
            raise ValueError("a field lies outside the payload")
        q = messages.write(&self.o, q, s.start + row[R_KEY_AT], row[R_KEY_SIZE], s.start + row[R_VALUE_AT],
                           row[R_VALUE_SIZE], s.end)
        return q if q != NULL else self._control(self.o.data + mark, s, row, control)

    cdef uint8_t *_control(self, uint8_t *q, const Source *s, const int64_t *row, control) except NULL:
        cdef Fixed text
        word = control(value_of(s, row + R_KEY_AT), value_of(s, row + R_VALUE_AT))
        fixed_of(word, &text)
        return self._fixed(q, &text)


cdef inline const uint8_t *piece_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Return the end of a piece of a long field: for no decoder of UTF-8 the bytes after it change those before it."""
    cdef int i
    if end - p <= LONG:
        return end
    p += LONG
    for i in range(4):
        if (p - i)[0] & 0xc0 != 0x80:  # it begins a character
            return p - i
    return p  # no character has so many bytes after its first one: the byte at p stands for itself


cdef inline bint inside(const Source *s, const int64_t *place) noexcept nogil:
    return place[0] >= 0 and place[1] <= s.end - s.start and place[0] <= s.end - s.start - place[1]


cdef const int64_t *headers_of(const Source *s, const int64_t *row) except NULL:
    cdef int64_t first = row[R_HEADER_AT], count = row[R_HEADER_COUNT]
    if first < 0 or count < 0 or count > s.headers or first > s.headers - count:
        raise ValueError("there are not so many headers")
    return s.cells + first * HEADER_WIDTH


cdef object value_of(const Source *s, const int64_t *place):
    if place[1] < 0:
        return None
    if not inside(s, place):
        raise ValueError("a field lies outside the payload")
    return PyBytes_FromStringAndSize(<const char *> s.start + place[0], place[1])


cdef inline bint is_plain(const int64_t *row, int64_t origin, int64_t filled) noexcept nogil:
    """Whether a batch in the window has no defect, and its line and those of its records are as most are."""
    cdef int64_t at = row[POSITION] - origin
    return (row[SUSPECT] == 0 and row[MAGIC] == 2 and not row[ATTRIBUTES] & CONTROL_FLAG
            and row[ATTRIBUTES] & CODEC_MASK < 5 and row[BASE_OFFSET] >= 0 and row[BASE_SEQUENCE] >= -1
            and row[COUNT] > 0 and HEADER <= row[SIZE] <= RUN_BATCH and 0 <= at <= filled - row[SIZE])


cdef void parts_of(const int64_t *row, Fixed *position, Fixed *last) noexcept nogil:
    """Write the parts of the lines of a batch between headers and sequence, and after the sequence."""
    cdef uint8_t *q = put_number(put(<uint8_t *> position.padded, ",\"position\":"), row[POSITION])
    q = put(put_number(put(q, ",\"batch_offset\":"), row[BASE_OFFSET]), ",")
    position.data = position.padded
    position.size = q - <uint8_t *> position.padded
    q = put_number(put(<uint8_t *> last.padded, ",\"producer_id\":"), row[PRODUCER_ID])
    q = put(q, ",\"control\":false")
    last.data = last.padded
    last.size = q - <uint8_t *> last.padded


cdef inline int64_t sequence_of(const int64_t *row, int64_t base_offset, int64_t base_sequence) noexcept nogil:
    """Return the sequence of a record."""
    return next_sequence(base_sequence, <uint32_t> row[R_OFFSET] - <uint32_t> base_offset)


cdef inline int64_t next_sequence(int64_t base_sequence, uint32_t increment) noexcept nogil:
    """Return a later sequence, in 31 bits as kdump.format.batch.next_sequence; -1 without a producer."""
    cdef uint32_t sequence = <uint32_t> base_sequence
    if base_sequence < 0:
        return -1
    if <int32_t> sequence > <int32_t> (0x7fffffff - increment):
        return <int32_t> (sequence + increment - <uint32_t> 0x80000000)
    return <int32_t> (sequence + increment)
