# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Formats rows of Arrow's columns as lines of JSON or CSV; see row_lines.pyi.

The lines go into a buffer of the caller. Inner functions reserve room before they write. Where there is none for a
line, it is left for the next call. The sizes of the buffers of columns and all offsets in them are checked before the
first line.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kdump.kernel.text cimport escaped, in_base64
from kdump.kernel.lines cimport (
    DONE, JSON, MALFORMED, SLACK, STRETCH, Near, Out, acts, decoded, kd_odd, kd_quoted, put, put_near_number,
    put_number, put_point, reserve,
)

STYLES = ("json", "csv")
KINDS = ("bytes", "text", "json", "int8", "int16", "int32", "int64", "microseconds", "bool", "dictionary", "headers")
ARRAYS = (1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 3)
SMALLEST_BUFFER = 4 * SLACK
cdef enum:
    K_BYTES = 0
    K_TEXT
    K_JSON
    K_INT8
    K_INT16
    K_INT32
    K_INT64
    K_MICROSECONDS
    K_BOOL
    K_DICTIONARY
    K_HEADERS

    S_JSON = 0
    S_CSV

    MOST_ARRAYS = 3     # of a column
    MOST_BUFFERS = 3    # of an array
    LABEL = 256         # the most bytes of a label
    FIXED = 32          # bytes of a label that are copied at once
    CSV_QUOTE = 34
cdef int64_t MOST = <int64_t> 1 << 40   # rows of an array, so that no size overflows
cdef uint8_t NOTHING[1]                 # where a buffer has no bytes


# An array: its row i is at `offset` + i of the buffers.
cdef struct Cells:
    const uint8_t *valid     # a bit a row; NULL: no row is null
    const int32_t *offsets
    const uint8_t *data
    int64_t size             # bytes of data
    int64_t offset
    int64_t rows

cdef struct Column:
    int kind
    size_t label_size
    uint8_t label[LABEL]     # stands before the value
    Near near                # the last number
    Cells cells
    Cells keys               # the keys of headers, or what a dictionary holds
    Cells values             # the values of headers


cdef inline bint is_null(const Cells *c, int64_t i) noexcept nogil:
    i += c.offset
    return c.valid != NULL and not c.valid[i >> 3] >> (i & 7) & 1


# ---- fields. Each function writes at q, which has SLACK after it, and returns the address after the bytes that it
# wrote, with SLACK after that; NULL without room.

cdef uint8_t *put_object(Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """Write bytes that are no UTF-8 as a JSON object with their base64."""
    q = reserve(o, q, 2 * (end - p))
    if q == NULL:
        return NULL
    return reserve(o, put(in_base64(put(q, "{\"base64\":\""), p, end), "\"}"), 0)


cdef inline uint8_t *put_string(Out *o, uint8_t *q, const Cells *c, int64_t i) noexcept nogil:
    """Write row `i` as a JSON string, or what is no UTF-8 as an object."""
    cdef const uint8_t *p = c.data + c.offsets[c.offset + i]
    cdef int64_t size = c.offsets[c.offset + i + 1] - c.offsets[c.offset + i]
    if size <= 16 and c.data + c.size - p >= 16 and not kd_odd(p) & ((1 << size) - 1):
        q[0] = 34  # short and without escapes, like most keys
        memcpy(q + 1, p, 16)
        q[1 + size] = 34
        return reserve(o, q + size + 2, 0)
    return put_long_string(o, q, p, p + size, c.data + c.size)


cdef uint8_t *put_long_string(Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end,
                              const uint8_t *limit) noexcept nogil:
    cdef const uint8_t *start = p
    cdef size_t mark = q - o.data
    cdef uint32_t point = 0
    cdef int status
    q[0] = 34
    q += 1
    status = escaped(o, &q, &p, end, limit, JSON, &point)
    if status == DONE:
        q[0] = 34
        return reserve(o, q + 1, 0)
    return put_object(o, o.data + mark, start, end) if status == MALFORMED else NULL


cdef uint8_t *put_json(Out *o, uint8_t *q, const Cells *c, int64_t i) noexcept nogil:
    """Write JSON text on one line, with what a terminal would obey escaped: it can only stand inside of strings."""
    cdef const uint8_t *p = c.data + c.offsets[c.offset + i]
    cdef const uint8_t *start = p
    cdef const uint8_t *end = c.data + c.offsets[c.offset + i + 1]
    cdef const uint8_t *stop
    cdef size_t mark = q - o.data
    cdef uint32_t point = 0
    cdef Py_ssize_t n
    while p < end:
        stop = end if end - p <= STRETCH else p + STRETCH
        q = reserve(o, q, 6 * (stop - p))
        if q == NULL:
            return NULL
        while p < stop:
            if p[0] < 0x7f:
                q[0] = 32 if p[0] < 0x20 else p[0]  # a blank between tokens
                q += 1
                p += 1
                continue
            n = 1
            point = 0x7f
            if p[0] >= 0x80:
                n = decoded(p, end, &point)
            if n == 0:
                return put_object(o, o.data + mark, start, end)
            if acts(point):
                q = put_point(q, point, JSON)
            else:
                memcpy(q, p, n)
                q += n
            p += n
    return q


cdef uint8_t *put_headers(Out *o, uint8_t *q, const Column *c, int64_t i) noexcept nogil:
    """Write the headers of a row as a JSON array of objects."""
    cdef int64_t at = c.cells.offsets[c.cells.offset + i], end = c.cells.offsets[c.cells.offset + i + 1]
    q[0] = 91
    q += 1
    while at < end:
        q = put_text(o, put(q, "{\"key\":"), &c.keys, at)
        if q == NULL:
            return NULL
        q = put_text(o, put(q, ",\"value\":"), &c.values, at)
        if q == NULL:
            return NULL
        at += 1
        q = reserve(o, put(q, "},") if at < end else put(q, "}"), 0)
        if q == NULL:
            return NULL
    q[0] = 93
    return q + 1


cdef inline uint8_t *put_text(Out *o, uint8_t *q, const Cells *c, int64_t i) noexcept nogil:
    return put(q, "null") if is_null(c, i) else put_string(o, q, c, i)


cdef inline bint needs_quotes(const uint8_t *p, const uint8_t *end, const uint8_t *limit) noexcept nogil:
    cdef uint32_t found
    while p < end:
        if limit - p >= 16:
            found = kd_quoted(p)
            if end - p < 16:
                found &= (1 << (end - p)) - 1
            if found:
                return True
            p += 16
        else:
            if p[0] == CSV_QUOTE or p[0] == 44 or p[0] == 10 or p[0] == 13:
                return True
            p += 1
    return False


cdef uint8_t *put_csv(Out *o, uint8_t *q, const Cells *c, int64_t i) noexcept nogil:
    """Write row `i` as a field of CSV. An empty one is quoted: without quotes it would be null."""
    cdef const uint8_t *p = c.data + c.offsets[c.offset + i]
    cdef const uint8_t *end = c.data + c.offsets[c.offset + i + 1]
    cdef const uint8_t *stop
    if p < end and not needs_quotes(p, end, c.data + c.size):
        q = reserve(o, q, end - p)
        if q == NULL:
            return NULL
        memcpy(q, p, end - p)
        return reserve(o, q + (end - p), 0)
    q[0] = CSV_QUOTE
    q += 1
    while p < end:
        stop = end if end - p <= STRETCH else p + STRETCH
        q = reserve(o, q, 2 * (stop - p))
        if q == NULL:
            return NULL
        while p < stop:
            if p[0] == CSV_QUOTE:
                q[0] = CSV_QUOTE
                q += 1
            q[0] = p[0]
            q += 1
            p += 1
    q[0] = CSV_QUOTE
    return reserve(o, q + 1, 0)


cdef uint8_t *put_csv_headers(Out *o, uint8_t *q, const Column *c, int64_t i) noexcept nogil:
    """Write the headers of a row as a field of CSV."""
    cdef size_t mark = q + 1 - o.data
    cdef const uint8_t *p
    cdef uint8_t *end
    cdef int64_t quotes = 0
    q[0] = CSV_QUOTE
    q = put_headers(o, q + 1, c, i)
    if q == NULL:
        return NULL
    p = o.data + mark
    while p < q:
        quotes += p[0] == CSV_QUOTE
        p += 1
    q = reserve(o, q, quotes)
    if q == NULL:
        return NULL
    p = q - 1
    end = q + quotes
    q = end - 1
    while q > p:  # from the end on, until no quote is left to double
        q[0] = p[0]
        if p[0] == CSV_QUOTE:
            q -= 1
            q[0] = CSV_QUOTE
        q -= 1
        p -= 1
    end[0] = CSV_QUOTE
    return reserve(o, end + 1, 0)


cdef uint8_t *put_csv_bytes(Out *o, uint8_t *q, const Cells *c, int64_t i) noexcept nogil:
    """Write row `i` in base64."""
    cdef const uint8_t *p = c.data + c.offsets[c.offset + i]
    cdef const uint8_t *end = c.data + c.offsets[c.offset + i + 1]
    if p == end:
        return put(q, "\"\"")
    q = reserve(o, q, 2 * (end - p))
    return NULL if q == NULL else reserve(o, in_base64(q, p, end), 0)


cdef inline int64_t floored(int64_t micros) noexcept nogil:
    return micros // 1000 - (micros % 1000 < 0)


cdef inline uint8_t *put_value(Out *o, uint8_t *q, Column *c, int64_t i, bint csv) noexcept nogil:
    """Write a value that is not null."""
    cdef const Cells *cells = &c.cells
    cdef int64_t at = cells.offset + i
    if c.kind == K_BYTES:
        return put_csv_bytes(o, q, cells, i) if csv else put_string(o, q, cells, i)
    if c.kind == K_INT64:
        return put_near_number(q, &c.near, (<const int64_t *> cells.data)[at])
    if c.kind == K_MICROSECONDS:
        return put_near_number(q, &c.near, floored((<const int64_t *> cells.data)[at]))
    if c.kind == K_INT32:
        return put_near_number(q, &c.near, (<const int32_t *> cells.data)[at])
    if c.kind == K_TEXT:
        return put_csv(o, q, cells, i) if csv else put_string(o, q, cells, i)
    if c.kind == K_HEADERS:
        return put_csv_headers(o, q, c, i) if csv else put_headers(o, q, c, i)
    if c.kind == K_JSON:
        return put_csv(o, q, cells, i) if csv else put_json(o, q, cells, i)
    if c.kind == K_INT16:
        return put_number(q, (<const int16_t *> cells.data)[at])
    if c.kind == K_INT8:
        return put_number(q, (<const int8_t *> cells.data)[at])
    if c.kind == K_BOOL:
        return put(q, "true") if cells.data[at >> 3] >> (at & 7) & 1 else put(q, "false")
    at = (<const int8_t *> cells.data)[at]  # K_DICTIONARY
    if is_null(&c.keys, at):
        return q if csv else put(q, "null")
    return put_csv(o, q, &c.keys, at) if csv else put_string(o, q, &c.keys, at)


cdef uint8_t *put_line(Out *o, uint8_t *q, Column *columns, int count, int64_t i, bint csv, const char *end,
                       size_t end_size) noexcept nogil:
    cdef Column *c
    cdef int n
    for n in range(count):
        c = columns + n
        q = reserve(o, q, LABEL)
        if q == NULL:
            return NULL
        memcpy(q, c.label, FIXED)
        if c.label_size > FIXED:
            memcpy(q + FIXED, c.label + FIXED, LABEL - FIXED)
        q += c.label_size
        if not is_null(&c.cells, i):
            q = put_value(o, q, c, i, csv)
            if q == NULL:
                return NULL
        elif not csv:
            q = put(q, "null")
    if end_size == 2:
        memcpy(q, end, 2)
    else:
        q = reserve(o, q, end_size)
        if q == NULL:
            return NULL
        memcpy(q, end, end_size)
    return q + end_size


cdef class RowLines:
    """See row_lines.pyi."""

    cdef readonly int64_t rows, row
    cdef Column *_columns
    cdef int _count
    cdef bint _csv, _busy
    cdef Py_buffer *_views
    cdef int _view_count
    cdef bytes _end

    def __cinit__(self, str style, kinds, labels, bytes end):
        cdef int n
        self._csv = STYLES.index(style) == S_CSV
        self._end = end
        numbers = [KINDS.index(kind) for kind in kinds]
        if len(labels) != len(numbers):
            raise ValueError("a label for each column")
        self._columns = <Column *> calloc(len(numbers) or 1, sizeof(Column))
        self._views = <Py_buffer *> calloc(MOST_ARRAYS * MOST_BUFFERS * (len(numbers) or 1), sizeof(Py_buffer))
        if self._columns == NULL or self._views == NULL:
            raise MemoryError
        for n in range(len(numbers)):
            self._columns[n].kind = numbers[n]
            if PyBytes_Size(labels[n]) > LABEL:
                raise ValueError(f"a label of more than {LABEL} bytes")
            self._columns[n].label_size = PyBytes_Size(labels[n])
            memcpy(self._columns[n].label, PyBytes_AsString(labels[n]), self._columns[n].label_size)
        self._count = len(numbers)

    def __dealloc__(self):
        if self._views != NULL:
            self.release()
        free(self._views)
        free(self._columns)

    cdef void release(self) noexcept:
        while self._view_count:
            self._view_count -= 1
            PyBuffer_Release(&self._views[self._view_count])
        self.rows = self.row = 0

    def begin(self, int64_t rows, columns):
        """See row_lines.pyi."""
        cdef int n
        if self._busy:
            raise RuntimeError("lines are being written")
        self.release()
        if len(columns) != self._count or not 0 <= rows <= MOST:
            raise ValueError("the arrays of each column")
        try:
            for n in range(self._count):
                self.set_column(&self._columns[n], rows, columns[n])
        except BaseException:
            self.release()
            raise
        self.rows = rows

    def end(self):
        """See row_lines.pyi."""
        if self._busy:
            raise RuntimeError("lines are being written")
        self.release()

    cdef int set_column(self, Column *c, int64_t rows, arrays) except -1:
        if len(arrays) != ARRAYS[c.kind]:
            raise ValueError(f"{ARRAYS[c.kind]} arrays for {KINDS[c.kind]}")
        if c.kind == K_BYTES or c.kind == K_TEXT or c.kind == K_JSON:
            self.set_bytes(&c.cells, rows, arrays[0])
        elif c.kind == K_HEADERS:
            self.set_bytes(&c.keys, arrays[1].rows, arrays[1])
            self.set_bytes(&c.values, arrays[2].rows, arrays[2])
            self.set_list(&c.cells, rows, arrays[0], min(c.keys.rows, c.values.rows))
        elif c.kind == K_DICTIONARY:
            self.set_bytes(&c.keys, arrays[1].rows, arrays[1])
            self.set_numbers(&c.cells, rows, arrays[0], 8)
            check_indices(&c.cells, rows, c.keys.rows)
        elif c.kind == K_BOOL:
            self.set_numbers(&c.cells, rows, arrays[0], 1)
        elif c.kind == K_INT8 or c.kind == K_INT16:
            self.set_numbers(&c.cells, rows, arrays[0], 8 if c.kind == K_INT8 else 16)
        else:
            self.set_numbers(&c.cells, rows, arrays[0], 32 if c.kind == K_INT32 else 64)
        return 0

    cdef int set_array(self, Cells *c, int64_t rows, array, int buffers) except -1:
        """Set offset and validity; `array` has at least so many rows."""
        cdef const Py_buffer *view
        c.offset, c.rows = array.offset, array.rows
        c.valid = NULL
        c.offsets = NULL
        c.data = NOTHING
        c.size = 0
        if not 0 <= c.offset <= MOST or not rows <= c.rows <= MOST or len(array.buffers) != buffers:
            raise ValueError("an array that has not as many rows, or other buffers")
        view = self.open(array.buffers[0])
        if view != NULL:
            if view.len < (c.offset + c.rows + 7) // 8:
                raise ValueError("a validity bitmap is too short")
            c.valid = <const uint8_t *> view.buf
        return 0

    cdef const Py_buffer *open(self, buffer) except? NULL:
        cdef Py_buffer *view = &self._views[self._view_count]
        if buffer is None:
            return NULL
        PyObject_GetBuffer(buffer, view, PyBUF_SIMPLE)
        self._view_count += 1
        return view

    cdef int set_numbers(self, Cells *c, int64_t rows, array, int bits) except -1:
        cdef const Py_buffer *view
        self.set_array(c, rows, array, 2)
        view = self.open(array.buffers[1])
        if (0 if view == NULL else view.len) < (bits * (c.offset + c.rows) + 7) // 8:
            raise ValueError("a buffer of numbers is too short")
        if view != NULL:
            c.data = <const uint8_t *> view.buf
        return 0

    cdef int set_offsets(self, Cells *c, array, int64_t most) except -1:
        cdef const Py_buffer *view = self.open(array.buffers[1])
        if c.rows == 0:
            return 0
        if view == NULL or view.len < 4 * (c.offset + c.rows + 1):
            raise ValueError("a buffer of offsets is too short")
        c.offsets = <const int32_t *> view.buf
        if not in_order(c.offsets + c.offset, c.rows, most):
            raise ValueError("offsets lie outside of the data")
        return 0

    cdef int set_bytes(self, Cells *c, int64_t rows, array) except -1:
        cdef const Py_buffer *view
        self.set_array(c, rows, array, 3)
        view = self.open(array.buffers[2])
        if view != NULL and view.len:
            c.data = <const uint8_t *> view.buf
            c.size = view.len
        return self.set_offsets(c, array, c.size)

    cdef int set_list(self, Cells *c, int64_t rows, array, int64_t most) except -1:
        self.set_array(c, rows, array, 2)
        return self.set_offsets(c, array, most)

    def fill(self, out):
        """See row_lines.pyi."""
        cdef Py_buffer view
        cdef Out o
        cdef uint8_t *q
        cdef uint8_t *line
        cdef int64_t row, rows = self.rows
        cdef const char *end = PyBytes_AsString(self._end)
        cdef size_t end_size = PyBytes_Size(self._end)
        if self._busy:
            raise RuntimeError("lines are being written")
        PyObject_GetBuffer(out, &view, PyBUF_WRITABLE)
        if view.len < SLACK:
            PyBuffer_Release(&view)
            return 0
        self._busy = True
        o.data = q = line = <uint8_t *> view.buf
        o.end = o.data + view.len
        o.fixed = True
        row = self.row
        with nogil:
            while row < rows:
                q = put_line(&o, line, self._columns, self._count, row, self._csv, end, end_size)
                if q == NULL:
                    break
                line = q
                row += 1
        self.row = row
        self._busy = False
        PyBuffer_Release(&view)
        return line - o.data


cdef bint in_order(const int32_t *offsets, int64_t rows, int64_t most) noexcept nogil:
    """Whether no offset is below the one before it, or outside of [0, most]."""
    cdef int64_t i
    cdef uint32_t back = 0
    for i in range(rows):
        back |= offsets[i + 1] < offsets[i]
    return not back and 0 <= offsets[0] and offsets[rows] <= most


cdef int check_indices(const Cells *c, int64_t rows, int64_t most) except -1:
    cdef int64_t i
    cdef const int8_t *indices = <const int8_t *> c.data + c.offset
    for i in range(rows):
        if not is_null(c, i) and not 0 <= indices[i] < most:
            raise ValueError("an index lies outside of the dictionary")
    return 0
