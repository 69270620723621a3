# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Finds the records that have given keys, values, headers, offsets and timestamps; see record_filter.pyi."""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from kdump.kernel.cursor cimport Fields, Header, next_header, next_record
from kdump.kernel.layout cimport (
    ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, BATCH_WIDTH, CODEC_MASK, CONTROL_FLAG, COUNT, HEADER, HEADER_WIDTH,
    LAST_OFFSET, LOG_APPEND_TIME, MAGIC, MAX_TIMESTAMP, NO_VALUE, POSITION, PRODUCER_EPOCH, PRODUCER_ID,
    R_HEADER_AT, R_HEADER_COUNT, R_KEY_AT, R_KEY_SIZE, R_OFFSET, R_TIMESTAMP, R_VALUE_AT, R_VALUE_SIZE, RECORD_WIDTH,
    SIZE, SUSPECT,
)

cdef enum:
    P_EXACT, P_PREFIX, P_NULL, P_ANY, P_SEARCH  # of kdump.kernel.record_filter.EXACT and so on
    ANY_EPOCH = -1
    F_KEYS = 0  # of kdump.kernel.record_filter.KEYS and so on
    F_VALUES
    F_HEADERS
    SPAN_WIDTH = 4  # group, position, size, number of the pattern to search for, -1: matches without
    MOST_SPANS = 4096
EXACT, PREFIX, NULL_BYTES, ANY, SEARCH = P_EXACT, P_PREFIX, P_NULL, P_ANY, P_SEARCH
KEYS, VALUES, HEADERS = F_KEYS, F_VALUES, F_HEADERS

# What is compared with a key or a value; of a header, `name` comes before it.
cdef struct Pattern:
    const uint8_t *name
    int64_t name_size
    const uint8_t *data
    int64_t size
    int kind

# Alternatives: one of them has to match. Without any, everything does.
cdef struct Patterns:
    Pattern *all
    int64_t count

cdef struct Producer:
    int64_t producer_id
    int64_t epoch

cdef struct Query:
    Patterns keys
    Patterns values
    Patterns headers
    Producer *producers
    int64_t producer_count
    int64_t first_offset
    int64_t last_offset
    int64_t first_timestamp  # NO_VALUE: any
    int64_t last_timestamp
    bint timed
    bint tombstones
    int control


cdef inline bint fits(const Pattern *pattern, const uint8_t *data, int64_t size) noexcept nogil:
    if pattern.kind == P_ANY:
        return True
    if size < 0:
        return pattern.kind == P_NULL
    if pattern.kind == P_SEARCH:
        return True
    if pattern.kind == P_EXACT:
        return size == pattern.size and memcmp(data, pattern.data, <size_t> size) == 0
    return pattern.kind == P_PREFIX and size >= pattern.size and memcmp(data, pattern.data, <size_t> pattern.size) == 0


cdef inline bint fits_any(const Patterns *patterns, const uint8_t *data, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(patterns.count):
        if fits(&patterns.all[i], data, size):
            return True
    return patterns.count == 0


cdef inline bint header_fits(const Patterns *patterns, const uint8_t *name, int64_t name_size, const uint8_t *data,
                             int64_t size) noexcept nogil:
    cdef int64_t i
    cdef const Pattern *pattern
    for i in range(patterns.count):
        pattern = &patterns.all[i]
        if name_size == pattern.name_size and memcmp(name, pattern.name, <size_t> name_size) == 0 \
                and fits(pattern, data, size):
            return True
    return False


cdef bint one_header_fits(const Patterns *patterns, const Fields *f, const uint8_t *stop) noexcept nogil:
    """Whether a header of a valid record fits."""
    cdef const uint8_t *p = f.headers
    cdef Header h
    cdef int64_t i
    for i in range(f.header_count):
        p = next_header(p, stop, &h)
        if header_fits(patterns, h.key, h.key_size, h.value, h.value_size):
            return True
    return False


# Bytes to search: of several groups, in order.
cdef struct Spans:
    int64_t *cells
    int64_t count
    int64_t capacity


cdef inline bint has_room(Spans *spans) noexcept nogil:
    cdef int64_t capacity
    cdef int64_t *cells
    if spans.count < spans.capacity:
        return True
    capacity = max(256, spans.capacity * 2)
    cells = <int64_t *> realloc(spans.cells, <size_t> capacity * SPAN_WIDTH * 8)
    if cells == NULL:
        return False
    spans.cells = cells
    spans.capacity = capacity
    return True


cdef inline bint add_span(Spans *spans, const Patterns *patterns, const uint8_t *name, int64_t name_size, int64_t group,
                          const uint8_t *start, const uint8_t *data, int64_t size) noexcept nogil:
    """Add a field for each pattern that may fit it, once where one does; False without memory.

    `name` is NULL but for a header.
    """
    cdef int64_t i, before = spans.count
    cdef int64_t *cell
    cdef const Pattern *pattern
    cdef bint sure = False
    for i in range(patterns.count):
        pattern = &patterns.all[i]
        if name != NULL and (name_size != pattern.name_size or memcmp(name, pattern.name, <size_t> name_size) != 0):
            continue
        if not fits(pattern, data, size):
            continue
        sure = pattern.kind != P_SEARCH
        if sure:
            spans.count = before
        if not has_room(spans):
            return False
        cell = &spans.cells[spans.count * SPAN_WIDTH]
        cell[0] = group
        cell[1] = data - start
        cell[2] = max(size, 0)
        cell[3] = -1 if sure else i
        spans.count += 1
        if sure:
            break
    return True


cdef inline bint in_ranges(const Query *q, int64_t offset, int64_t timestamp) noexcept nogil:
    if offset < q.first_offset or offset > q.last_offset:
        return False
    return not q.timed or (timestamp != -1 and q.first_timestamp <= timestamp <= q.last_timestamp)


cdef inline bint producer_fits(const Query *q, const int64_t *row) noexcept nogil:
    cdef int64_t i
    for i in range(q.producer_count):
        if row[PRODUCER_ID] == q.producers[i].producer_id \
                and (q.producers[i].epoch == ANY_EPOCH or row[PRODUCER_EPOCH] == q.producers[i].epoch):
            return True
    return q.producer_count == 0


cdef inline bint batch_fits(const Query *q, const int64_t *row) noexcept nogil:
    """Whether a batch may hold a record that matches, by the fields of its header."""
    cdef bint control = row[MAGIC] == 2 and row[ATTRIBUTES] & CONTROL_FLAG != 0
    if not producer_fits(q, row) or (q.control == 1 and not control) or (q.control == 0 and control):
        return False
    if row[MAGIC] != 2:  # only its inner messages say what a wrapper holds
        return True
    if row[LAST_OFFSET] < q.first_offset or row[BASE_OFFSET] > q.last_offset:
        return False
    return not q.timed or row[MAX_TIMESTAMP] >= q.first_timestamp


cdef inline int64_t timestamp_of(const int64_t *row, const Fields *f) noexcept nogil:
    return row[MAX_TIMESTAMP] if row[ATTRIBUTES] & LOG_APPEND_TIME \
        else <int64_t> (<uint64_t> row[BASE_TIMESTAMP] + <uint64_t> f.timestamp_delta)


cdef inline bint record_fits(const Query *q, const int64_t *row, const Fields *f, const uint8_t *stop) noexcept nogil:
    cdef int64_t offset = <int64_t> (<uint64_t> row[BASE_OFFSET] + <uint64_t> <int64_t> f.offset_delta)
    if not in_ranges(q, offset, timestamp_of(row, f)) or (q.tombstones and f.value_size >= 0):
        return False
    return fits_any(&q.keys, f.key, f.key_size) and fits_any(&q.values, f.value, f.value_size) \
        and (q.headers.count == 0 or one_header_fits(&q.headers, f, stop))


cdef int64_t matches_in(const Query *q, const int64_t *row, const uint8_t *p, const uint8_t *end,
                        bint every) noexcept nogil:
    """The number of matching records of a batch of magic 2, at most 1 unless `every`; -1 where one is not valid."""
    cdef Fields f
    cdef const uint8_t *stop
    cdef int64_t i, found = 0
    cdef int status = 0
    cdef bint odd = False
    for i in range(row[COUNT]):
        stop = next_record(&p, end, &f, &status, &odd)
        if stop == NULL:
            return -1
        if record_fits(q, row, &f, stop):
            found += 1
            if not every:
                return found
    return found if p == end else -1


cdef bint spans_in(const Query *q, int field, int64_t group, const int64_t *row, const uint8_t *start,
                   const uint8_t *p, const uint8_t *end, Spans *spans) noexcept nogil:
    """Add the fields to search of the records that match but for a search; False where one is not valid, or of many."""
    cdef Fields f
    cdef const uint8_t *stop
    cdef int64_t i, before = spans.count
    cdef int status = 0
    cdef bint odd = False
    for i in range(row[COUNT]):
        stop = next_record(&p, end, &f, &status, &odd)
        if stop == NULL or spans.count > MOST_SPANS \
                or (record_fits(q, row, &f, stop) and not field_spans(q, field, group, &f, start, stop, spans)):
            spans.count = before
            return False
    if p != end:
        spans.count = before
    return p == end


cdef bint field_spans(const Query *q, int field, int64_t group, const Fields *f, const uint8_t *start,
                      const uint8_t *stop, Spans *spans) noexcept nogil:
    cdef const uint8_t *p = f.headers
    cdef Header h
    cdef int64_t i
    if field == F_KEYS:
        return add_span(spans, &q.keys, NULL, 0, group, start, f.key, f.key_size)
    if field == F_VALUES:
        return add_span(spans, &q.values, NULL, 0, group, start, f.value, f.value_size)
    for i in range(f.header_count):
        p = next_header(p, stop, &h)
        if not add_span(spans, &q.headers, h.key, h.key_size, group, start, h.value, h.value_size):
            return False
    return True


cdef bint row_spans(const Query *q, int field, int64_t group, const int64_t *row, const int64_t *cells,
                    const uint8_t *data, Spans *spans) noexcept nogil:
    cdef const int64_t *cell
    cdef int64_t i
    if field == F_KEYS:
        return add_span(spans, &q.keys, NULL, 0, group, data, data + row[R_KEY_AT], row[R_KEY_SIZE])
    if field == F_VALUES:
        return add_span(spans, &q.values, NULL, 0, group, data, data + row[R_VALUE_AT], row[R_VALUE_SIZE])
    for i in range(row[R_HEADER_COUNT]):
        cell = cells + (row[R_HEADER_AT] + i) * HEADER_WIDTH
        if not add_span(spans, &q.headers, data + cell[0], cell[1], group, data, data + cell[2], cell[3]):
            return False
    return True


cdef inline const uint8_t *plain_batch(const int64_t *row, const uint8_t *window, int64_t origin,
                                       int64_t filled) noexcept nogil:
    """The bytes of a batch of magic 2 that lies uncompressed in the window; NULL for any other."""
    cdef int64_t at = row[POSITION] - origin
    if row[MAGIC] != 2 or row[ATTRIBUTES] & CODEC_MASK or row[COUNT] < 0 or row[SIZE] < HEADER \
            or not 0 <= at <= filled - row[SIZE]:
        return NULL
    return window + at


cdef bint row_fits(const Query *q, const int64_t *row, const int64_t *cells, const uint8_t *data) noexcept nogil:
    """Whether a record matches that was decoded to a row."""
    cdef const int64_t *cell
    cdef int64_t i
    if not in_ranges(q, row[R_OFFSET], row[R_TIMESTAMP]) or (q.tombstones and row[R_VALUE_SIZE] >= 0):
        return False
    if not fits_any(&q.keys, data + row[R_KEY_AT], row[R_KEY_SIZE]) \
            or not fits_any(&q.values, data + row[R_VALUE_AT], row[R_VALUE_SIZE]):
        return False
    for i in range(row[R_HEADER_COUNT] if q.headers.count else 0):
        cell = cells + (row[R_HEADER_AT] + i) * HEADER_WIDTH
        if header_fits(&q.headers, data + cell[0], cell[1], data + cell[2], cell[3]):
            return True
    return q.headers.count == 0


cdef bint lies_within(const int64_t *row, const int64_t *cells, int64_t header_rows, int64_t size) noexcept nogil:
    """Whether a row points into the payload and the rows of headers."""
    cdef const int64_t *cell
    cdef int64_t i
    if row[R_KEY_SIZE] > 0 and not 0 <= row[R_KEY_AT] <= size - row[R_KEY_SIZE]:
        return False
    if row[R_VALUE_SIZE] > 0 and not 0 <= row[R_VALUE_AT] <= size - row[R_VALUE_SIZE]:
        return False
    if row[R_HEADER_COUNT] == 0:
        return True
    if row[R_HEADER_COUNT] < 0 or not 0 <= row[R_HEADER_AT] <= header_rows - row[R_HEADER_COUNT]:
        return False
    for i in range(row[R_HEADER_COUNT]):
        cell = cells + (row[R_HEADER_AT] + i) * HEADER_WIDTH
        if (cell[1] > 0 and not 0 <= cell[0] <= size - cell[1]) or (cell[3] > 0 and not 0 <= cell[2] <= size - cell[3]):
            return False
    return True


cdef class RecordFilter:
    """See record_filter.pyi."""

    cdef Query q
    cdef object _kept  # the bytes that the patterns point to

    def __init__(self, keys=(), values=(), headers=(), *, producers=(), offsets=(None, None), time=(None, None),
                 bint tombstones=False, control=None):
        cdef Query *q = &self.q
        cdef int64_t i
        if q.keys.all != NULL:
            raise ValueError("the filter is in use")
        self._kept = (tuple(keys), tuple(values), tuple(headers))
        fill(&q.keys, self._kept[0])
        fill(&q.values, self._kept[1])
        fill(&q.headers, self._kept[2])
        q.producers = <Producer *> calloc(len(producers) + 1, sizeof(Producer))
        if q.producers == NULL:
            raise MemoryError
        for i, (producer_id, epoch) in enumerate(producers):
            q.producers[i].producer_id = producer_id
            q.producers[i].epoch = ANY_EPOCH if epoch is None else epoch
        q.producer_count = len(producers)
        q.first_offset, q.last_offset = range_of(offsets)
        q.first_timestamp, q.last_timestamp = range_of(time)
        q.timed = time[0] is not None or time[1] is not None
        q.tombstones = tombstones
        q.control = -1 if control is None else 1 if control else 0

    def __dealloc__(self):
        free(self.q.keys.all)
        free(self.q.values.all)
        free(self.q.headers.all)
        free(self.q.producers)

    def skip(self, batches, int64_t first, int64_t count, window, int64_t origin, int64_t filled, bint counts=False):
        """See record_filter.pyi."""
        cdef Py_buffer views[2]
        cdef const int64_t *row
        cdef const uint8_t *start
        cdef int64_t i = first, found, total = 0
        buffers(views, (batches, window))
        try:
            check_rows(&views[0], &views[1], first, count, filled)
            while i < count:
                row = <const int64_t *> views[0].buf + i * BATCH_WIDTH
                if row[SUSPECT] != 0:
                    break
                if batch_fits(&self.q, row):
                    start = plain_batch(row, <const uint8_t *> views[1].buf, origin, filled)
                    if start == NULL:
                        break
                    found = matches_in(&self.q, row, start + HEADER, start + row[SIZE], counts)
                    if found < 0 or (found and not counts):
                        break
                    total += found
                i += 1
        finally:
            release(views, 2)
        return i, total

    def spans(self, int field, batches, int64_t first, int64_t count, window, int64_t origin, int64_t filled):
        """See record_filter.pyi."""
        cdef Py_buffer views[2]
        cdef const int64_t *row
        cdef const uint8_t *start
        cdef int64_t i = first
        cdef bint full = False
        cdef Spans spans
        spans.cells = NULL
        spans.count = spans.capacity = 0
        buffers(views, (batches, window))
        try:
            check_rows(&views[0], &views[1], first, count, filled)
            while i < count:
                row = <const int64_t *> views[0].buf + i * BATCH_WIDTH
                if row[SUSPECT] != 0:
                    break
                if batch_fits(&self.q, row):
                    start = plain_batch(row, <const uint8_t *> views[1].buf, origin, filled)
                    if start == NULL:
                        break
                    full = spans.count > 0
                    if not spans_in(&self.q, field, i, row, <const uint8_t *> views[1].buf, start + HEADER,
                                    start + row[SIZE], &spans):
                        break
                    full = False
                i += 1
            found = taken(&spans)
        finally:
            free(spans.cells)
            release(views, 2)
        return i, i < count and not full, found

    def row_spans(self, int field, payload, rows, headers, int64_t first):
        """See record_filter.pyi."""
        cdef Py_buffer views[3]
        cdef const int64_t *row
        cdef int64_t i = first, records
        cdef Spans spans
        spans.cells = NULL
        spans.count = spans.capacity = 0
        buffers(views, (payload, rows, headers))
        try:
            records = check_records(views)
            while 0 <= i < records and spans.count < MOST_SPANS:
                row = <const int64_t *> views[1].buf + i * RECORD_WIDTH
                if not row_spans(&self.q, field, i, row, <const int64_t *> views[2].buf,
                                 <const uint8_t *> views[0].buf, &spans):
                    raise MemoryError
                i += 1
            found = taken(&spans)
        finally:
            free(spans.cells)
            release(views, 3)
        return i, found

    def count(self, batches, int64_t index, payload, bint every=True):
        """See record_filter.pyi."""
        cdef Py_buffer views[2]
        cdef const int64_t *row
        cdef int64_t found = -1
        buffers(views, (batches, payload))
        try:
            check_rows(&views[0], &views[1], index, index + 1, 0)
            row = <const int64_t *> views[0].buf + index * BATCH_WIDTH
            if row[MAGIC] == 2 and row[COUNT] >= 0:
                found = matches_in(&self.q, row, <const uint8_t *> views[1].buf,
                                   <const uint8_t *> views[1].buf + views[1].len, every)
        finally:
            release(views, 2)
        return found

    def rows(self, payload, rows, headers):
        """See record_filter.pyi."""
        cdef Py_buffer views[3]
        cdef const int64_t *row
        cdef int64_t *out
        cdef int64_t i, records, found = 0
        buffers(views, (payload, rows, headers))
        try:
            records = check_records(views)
            kept = PyBytes_FromStringAndSize(NULL, records * RECORD_WIDTH * 8)
            out = <int64_t *> PyBytes_AsString(kept)
            for i in range(records):
                row = <const int64_t *> views[1].buf + i * RECORD_WIDTH
                if row_fits(&self.q, row, <const int64_t *> views[2].buf, <const uint8_t *> views[0].buf):
                    memcpy(out + found * RECORD_WIDTH, row, RECORD_WIDTH * 8)
                    found += 1
        finally:
            release(views, 3)
        return kept if found == records else PyBytes_FromStringAndSize(<const char *> out, found * RECORD_WIDTH * 8)


cdef int buffers(Py_buffer *views, sources) except -1:
    cdef int opened = 0
    try:
        for source in sources:
            PyObject_GetBuffer(source, &views[opened], PyBUF_SIMPLE)
            opened += 1
    except BaseException:
        release(views, opened)
        raise
    return 0


cdef void release(Py_buffer *views, int count) noexcept:
    cdef int i
    for i in range(count):
        PyBuffer_Release(&views[i])


cdef int check_rows(const Py_buffer *batches, const Py_buffer *window, int64_t first, int64_t count,
                    int64_t filled) except -1:
    if first < 0 or count > batches.len // (BATCH_WIDTH * 8) or filled > window.len:
        raise ValueError("the rows lie outside the buffer")
    return 0


cdef int64_t check_records(const Py_buffer *views) except -1:
    """The number of records whose payload, rows and headers these are."""
    cdef int64_t i, records = views[1].len // (RECORD_WIDTH * 8)
    for i in range(records):
        if not lies_within(<const int64_t *> views[1].buf + i * RECORD_WIDTH, <const int64_t *> views[2].buf,
                           views[2].len // (HEADER_WIDTH * 8), views[0].len):
            raise ValueError("a row lies outside the payload")
    return records


cdef object taken(const Spans *spans):
    return PyBytes_FromStringAndSize(<const char *> spans.cells, spans.count * SPAN_WIDTH * 8)


cdef object range_of(bounds):
    """First and last value of a half-open range."""
    first, stop = bounds
    return NO_VALUE if first is None else first, 0x7FFFFFFFFFFFFFFF if stop is None else stop - 1


cdef int fill(Patterns *patterns, items) except -1:
    """Read (kind, bytes), or (name, kind, bytes)."""
    cdef int64_t i
    patterns.all = <Pattern *> calloc(len(items) + 1, sizeof(Pattern))
    if patterns.all == NULL:
        raise MemoryError
    for i, (*name, kind, data) in enumerate(items):
        if name:
            patterns.all[i].name = <const uint8_t *> PyBytes_AsString(name[0])
            patterns.all[i].name_size = len(name[0])
        patterns.all[i].data = <const uint8_t *> PyBytes_AsString(data)
        patterns.all[i].size = len(data)
        patterns.all[i].kind = kind
    patterns.count = len(items)
    return 0
