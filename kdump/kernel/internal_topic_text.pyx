# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Writes the messages of internal topics as text or JSON, by a program made from their schemas.

See internal_topic_text.pyi.

Every function compares lengths and counts with the bytes that are left. One that cannot read what Kafka would write
returns NULL, and whoever called `write` drops what was written. kdump.format.schema_fields has the bytes of each type.
"""

cimport cython
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from kdump.kernel.text cimport in_base64, in_hex, put_escaped
from kdump.kernel.layout cimport be16, be32, be64
from kdump.kernel.lines cimport (
    BASE64, HEX, JSON, KD_STOP_SECOND, PRINTABLE, TEXT, UTF8, Out, kd_odd, put, put_near_number, put_number, put_time,
    reserve,
)

KINDS = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "time", "uuid", "string", "word", "guard",
         "bytes", "array", "struct", "embedded", "refused")
cdef enum:
    BOOL = 0
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    TIME
    UUID
    STRING
    WORD
    GUARD
    BYTES
    ARRAY
    STRUCT
    EMBEDDED
    REFUSED

    LEVELS = 8
    MOST_STRING = 0x7fff    # bytes, as in kdump.format.schema_fields
    MOST_TYPES = 256
    MOST_VERSIONS = 64
    FRAME_VERSION = 1
    NO_START = -1
    STEP = 32               # bytes of a constant that are copied at once
MOST_LEVELS = LEVELS

cdef int64_t[17] WIDTHS     # bytes of a value, of those that all have the same
WIDTHS[:] = [1, 1, 2, 2, 4, 4, 8, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0]


cdef const uint8_t *uvarint(const uint8_t *p, const uint8_t *end, uint32_t *number) noexcept nogil:
    """Read an unsigned varint of at most four bytes, the shortest for its number. NULL for any other, and at NULL."""
    cdef int shift = 0
    number[0] = 0
    while p != NULL and p < end and shift < 28:
        number[0] |= <uint32_t> (p[0] & 0x7f) << shift
        if p[0] < 0x80:
            return p + 1 if p[0] or not shift else NULL
        p += 1
        shift += 7
    return NULL


cdef const uint8_t *length_of(const uint8_t *p, const uint8_t *end, const Field *f, int64_t *length) noexcept nogil:
    """Read the length of a string, bytes or an array; -1 for null. NULL where there is none, or bytes are missing."""
    cdef uint32_t number = 0
    if f.compact:
        p = uvarint(p, end, &number)
        length[0] = <int64_t> number - 1
    elif f.kind == STRING or f.kind == WORD or f.kind == GUARD:
        length[0] = be16(p) if end - p >= 2 else 0
        p = p + 2 if end - p >= 2 else NULL
    else:
        length[0] = be32(p) if end - p >= 4 else 0
        p = p + 4 if end - p >= 4 else NULL
    if p == NULL or length[0] > end - p:  # an element of an array has at least one byte
        return NULL
    if length[0] < 0:
        length[0] = -1
    return p


cdef inline uint8_t *room(Out *o, uint8_t *q, size_t more) except NULL:
    q = reserve(o, q, more)
    if q == NULL:
        raise MemoryError
    return q


cdef inline uint8_t *copied(uint8_t *q, const uint8_t *p, int32_t size) noexcept nogil:
    """Copy a constant in steps, which is faster and goes beyond its end."""
    cdef int32_t i = 0
    while i < size:
        memcpy(q + i, p + i, STEP)
        i += STEP
    return q + size


@cython.final
cdef class MessageFormatter:
    def __cinit__(self, str style, str mode, program):
        cdef int number
        self.style = ("text", "json").index(style)
        self.mode = ("auto", "base64", "hex", "utf8").index(mode)
        self.clock.second = KD_STOP_SECOND
        types, versions = set(program.keys) | {kind for kind, _ in program.values}, {each for _, each in program.values}
        self.types, self.versions = 1 + max(types, default=-1), 1 + max(versions, default=-1)
        if self.types < 1 or self.versions < 1 or self.types > MOST_TYPES or self.versions > MOST_VERSIONS:
            raise ValueError("no types or versions, or too many")
        constants = bytearray()
        self.fields = <Field *> calloc(len(program.fields) + 1, sizeof(Field))
        self.near = <Near *> calloc(len(program.fields) + 1, sizeof(Near))
        self.structs = <Struct *> calloc(len(program.structs) + 1, sizeof(Struct))
        self.values = <Message *> calloc(self.types * self.versions, sizeof(Message))
        if program.keys:
            self.keys = <Message *> calloc(self.types, sizeof(Message))
        if not self.fields or not self.near or not self.structs or not self.values or program.keys and not self.keys:
            raise MemoryError
        for number, field in enumerate(program.fields):
            set_up_field(self.fields + number, field, constants)
        for number, given in enumerate(program.structs):
            set_up_struct(self, number, given, program)
        for number in range(self.types * self.versions):
            of = number // self.versions, number % self.versions
            set_up_message(self.values + number, program.values.get(of), program, constants)
        for number in range(self.types if program.keys else 0):
            set_up_message(self.keys + number, program.keys.get(number), program, constants)
        self.no_key = constant_of(program.no_key, constants)
        self.deleted = constant_of(program.deleted, constants)
        self.constant_bytes = bytes(constants) + bytes(STEP)
        self.constants = <const uint8_t *> PyBytes_AsString(self.constant_bytes)

    def __dealloc__(self):
        free(self.fields)
        free(self.near)
        free(self.structs)
        free(self.keys)
        free(self.values)

    def texts(self, records):
        cdef Out o
        cdef uint8_t *q
        cdef const uint8_t *starts[2]
        cdef int64_t sizes[2]
        cdef int i
        o.data = o.end = NULL
        o.fixed = False
        found = []
        try:
            for record in records:
                for i in range(2):
                    sizes[i] = -1 if record[i] is None else PyBytes_Size(record[i])
                    starts[i] = NULL
                    if record[i] is not None:
                        starts[i] = <const uint8_t *> PyBytes_AsString(record[i])
                q = room(&o, o.data, 0)
                q = self.write(&o, q, starts[0], sizes[0], starts[1], sizes[1], NULL)
                found.append(None if q == NULL else PyBytes_FromStringAndSize(<char *> o.data, q - o.data))
            return found
        finally:
            free(o.data)

    cdef uint8_t *write(self, Out *o, uint8_t *q, const uint8_t *key, int64_t key_size, const uint8_t *value,
                        int64_t value_size, const uint8_t *limit) except? NULL:
        cdef const uint8_t *end
        cdef uint32_t number = 0, version = 0
        cdef int64_t i
        self.limit = limit
        self.guarded = self.unknown = False
        if self.keys == NULL:
            if value_size < 0:
                return NULL
            end = value + value_size
            value = uvarint(value, end, &number)
            if value == NULL or number != FRAME_VERSION:
                return NULL
            value = uvarint(uvarint(value, end, &number), end, &version)
            if value == NULL or number >= <uint32_t> self.types or version >= <uint32_t> self.versions:
                return NULL
            q = self._constant(o, q, &self.no_key)
            q = self._message(o, q, &value, end, self.values + number * self.versions + version)
            return q if value == end else NULL
        i = be16(key) if key_size >= 2 else -1
        if i < 0 or i >= self.types:
            return NULL
        end = key + key_size
        key += 2
        q = self._message(o, q, &key, end, self.keys + i)
        if q == NULL:
            return NULL
        if value_size < 0:
            return self._constant(o, q, &self.deleted)
        version = <uint16_t> be16(value) if value_size >= 2 else MOST_VERSIONS
        if version >= <uint32_t> self.versions:
            return NULL
        end = value + value_size
        value += 2
        return self._message(o, q, &value, end, self.values + i * self.versions + version)

    cdef uint8_t *_message(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end,
                           const Message *message) except? NULL:
        if message.structure < 0:
            return NULL
        q = self._constant(o, q, &message.head)
        q = self._struct(o, q, p, end, self.structs + message.structure, NO_START)
        return NULL if q == NULL else self._constant(o, q, &message.tail)

    cdef uint8_t *_struct(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Struct *s,
                          int64_t start) except? NULL:
        """Write a struct. A field at position `start` of the buffer is the first one, with no separator before it."""
        cdef Tagged tagged
        cdef const uint8_t *begin = p[0]
        cdef const uint8_t *after
        cdef int64_t mark
        if s.opening:
            q[0] = s.opening
            q += 1
            start = q - o.data
        mark = q - o.data
        q = self._fields(o, q, p, end, s, NULL, start)
        if q != NULL and s.flexible:
            after = self._tagged(p[0], end, s, &tagged)
            if after == NULL:
                return NULL
            if tagged.seen:  # their places are among the others, which are written again
                p[0] = begin
                q = self._fields(o, o.data + mark, p, end, s, &tagged, start)
            p[0] = after
        if q != NULL and s.opening:
            q = room(o, q, 0)
            q[0] = s.closing
            q += 1
        return q

    cdef uint8_t *_fields(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Struct *s,
                          const Tagged *tagged, int64_t start) except? NULL:
        cdef const Field *f
        cdef const uint8_t *at
        cdef int i
        for i in range(s.first, s.first + s.count):
            f = self.fields + i
            if f.tag < 0:
                q = self._field(o, q, p, end, f, start)
                if q == NULL:
                    return NULL
            elif tagged != NULL and tagged.at[f.tag] != NULL:
                at = tagged.at[f.tag]
                self.unknown = False
                q = self._field(o, q, &at, at + tagged.size[f.tag], f, start)
                # with unknown tags inside it can be the default, whatever its bytes are
                if q == NULL or at != tagged.at[f.tag] + tagged.size[f.tag] or self.unknown and f.kind == STRUCT:
                    return NULL
        return q

    cdef const uint8_t *_tagged(self, const uint8_t *p, const uint8_t *end, const Struct *s,
                                Tagged *tagged) noexcept:
        """Find the tagged fields that begin at p; return the address after them, or NULL."""
        cdef const Field *f
        cdef uint32_t left = 0, tag = 0, size = 0
        cdef int i, tag_number
        tagged.seen = 0
        p = uvarint(p, end, &left)
        while p != NULL and left:
            p = uvarint(uvarint(p, end, &tag), end, &size)
            if p == NULL or size > end - p:
                return NULL
            for i in range(s.first, s.first + s.count):
                f = self.fields + i
                if f.tag < 0 or <uint32_t> f.tag != tag:
                    continue
                if not tagged.seen:
                    for tag_number in range(TAGS):
                        tagged.at[tag_number] = NULL
                if f.kind == REFUSED or tagged.seen >> tag & 1:
                    return NULL
                tagged.seen |= <uint32_t> 1 << tag
                if size != <uint32_t> f.constant.size or memcmp(p, self.constants + f.constant.at, size):
                    tagged.at[tag] = p
                    tagged.size[tag] = size
                break
            else:
                self.unknown = True
            p += size
            left -= 1
        return p

    cdef uint8_t *_field(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f,
                         int64_t start) except? NULL:
        cdef const Struct *s
        cdef uint32_t number = 0
        cdef bint is_null
        if f.kind != STRUCT:
            if f.kind == EMBEDDED:
                return self._embedded(o, q, p, end, f, start)
            q = self._label(o, q, f, start)
            return self._array(o, q, p, end, f) if f.kind == ARRAY else self._value(o, q, p, end, f)
        if f.nullable:
            if p[0] == end:
                return NULL
            is_null = <int8_t> p[0][0] < 0
            if f.tag >= 0:
                p[0] = uvarint(p[0], end, &number)
                if p[0] == NULL:
                    return NULL
                is_null = number == 0
            else:
                p[0] += 1
            if is_null:
                return put(self._label(o, q, f, start), "null")
        s = self.structs + f.sub
        return self._struct(o, self._label(o, q, f, start) if s.opening else q, p, end, s, start)

    cdef uint8_t *_array(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f) except? NULL:
        cdef const Field *element = self.fields + f.sub
        cdef int64_t count = 0, i
        p[0] = length_of(p[0], end, f, &count)
        if p[0] == NULL or count < 0 and not f.nullable:
            return NULL
        if count < 0:
            return put(q, "null")
        q = put(q, "[")
        for i in range(count):
            if i:
                q = put(room(o, q, 0), ",")
            q = self._struct(o, q, p, end, self.structs + element.sub, NO_START) if element.kind == STRUCT \
                else self._value(o, q, p, end, element)
            if q == NULL:
                return NULL
        return put(room(o, q, 0), "]")

    cdef uint8_t *_value(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f) except? NULL:
        """Write a value that has no others inside."""
        cdef const uint8_t *at = p[0]
        cdef int64_t size = WIDTHS[f.kind]
        cdef uint8_t *letter
        if size:
            if end - at < size:
                return NULL
            p[0] = at + size
            if f.kind == INT64:
                return put_near_number(q, self.near + (f - self.fields), be64(at))
            elif f.kind == INT32:
                return put_number(q, be32(at))
            elif f.kind == UINT32:
                return put_number(q, <uint32_t> be32(at))
            elif f.kind == INT16:
                return put_number(q, be16(at))
            elif f.kind == UINT16:
                return put_number(q, <uint16_t> be16(at))
            elif f.kind == INT8:
                return put_number(q, <int8_t> at[0])
            elif f.kind == TIME:
                return put_time(q, &self.clock, be64(at)) if be64(at) >= 0 else put_number(q, be64(at))
            elif f.kind == BOOL:
                if self.style == JSON:
                    return put(q, "true") if at[0] else put(q, "false")
                return put(q, "yes") if at[0] else put(q, "no")
            return put_uuid(q, at, self.style == JSON)
        at = length_of(at, end, f, &size)
        if at == NULL or size < 0 and not f.nullable or f.kind == REFUSED:
            return NULL
        if size < 0:
            p[0] = at
            return put(q, "null")
        p[0] = at + size
        if f.kind == BYTES or f.kind == EMBEDDED:
            return self._bytes(o, q, at, at + size)
        if size > MOST_STRING:
            return NULL
        if f.kind == GUARD:
            self.guarded = size == f.constant.size and not memcmp(at, self.constants + f.constant.at, size)
        return self._string(o, q, at, at + size, f.kind == WORD)

    cdef uint8_t *_embedded(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f,
                            int64_t start) except? NULL:
        """Write bytes with a message in them. Bytes after the message mean nothing."""
        cdef const Struct *s
        cdef const uint8_t *at
        cdef int64_t size = 0
        at = length_of(p[0], end, f, &size)
        if at == NULL:
            return NULL
        if not self.guarded or size < 2:  # no version
            return self._value(o, self._label(o, q, f, start), p, end, f)
        p[0] = at + size
        if be16(at) < 0 or be16(at) >= f.versions:
            return NULL
        s = self.structs + f.sub + be16(at)
        at += 2
        return self._struct(o, self._label(o, q, f, start) if s.opening else q, &at, p[0], s, start)

    cdef uint8_t *_string(self, Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end, bint is_word) except? NULL:
        """Write a string; in text, quotes are around an empty one, and one with spaces or quotes."""
        cdef size_t size = end - p
        cdef bint well = True, quotes = self.style == JSON
        if not quotes and not is_word:
            quotes = size == 0 or memchr(p, 32, size) != NULL or memchr(p, 34, size) != NULL
        if quotes:
            q = put(q, "\"")
        if size <= 16 and self.limit != NULL and self.limit - p >= 16 and not kd_odd(p) & ((1 << size) - 1):
            memcpy(q, p, 16)  # short and without escapes, like most names
            q += size
        else:
            q = put_escaped(o, q, p, end, end if self.limit == NULL else self.limit,
                            JSON if self.style == JSON else TEXT if quotes else PRINTABLE, &well)
        return (put(q, "\"") if quotes else q) if well else NULL

    cdef uint8_t *_bytes(self, Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end) except? NULL:
        """Write bytes as kdump.kernel.lines.Lines does."""
        cdef int64_t mark = q - o.data
        cdef bint well = True
        if self.mode != BASE64 and self.mode != HEX:
            q = put(put_escaped(o, put(q, "\""), p, end, end, self.style, &well), "\"")
            if well:
                return q
            if self.mode == UTF8:
                return NULL
            q = o.data + mark
        q = room(o, q, 2 * (end - p))
        if self.mode == BASE64:
            return put(in_base64(put(q, "\""), p, end), "\"")
        if self.mode == HEX:
            return put(in_hex(put(q, "\""), p, end), "\"")
        if self.style == JSON:
            return put(in_base64(put(q, "{\"base64\":\""), p, end), "\"}")
        return in_hex(put(q, "0x"), p, end)

    cdef uint8_t *_label(self, Out *o, uint8_t *q, const Field *f, int64_t start) except NULL:
        """Write what stands before a value, which has room for numbers and brackets after it."""
        cdef int32_t skipped = 1 if q - o.data == start and f.label.size else 0
        return copied(room(o, q, f.label.size), self.constants + f.label.at + skipped, f.label.size - skipped)

    cdef uint8_t *_constant(self, Out *o, uint8_t *q, const Constant *text) except NULL:
        return copied(room(o, q, text.size), self.constants + text.at, text.size)


cdef uint8_t *put_uuid(uint8_t *q, const uint8_t *p, bint quotes) noexcept nogil:
    """Write a UUID as Kafka does: base64url without padding."""
    cdef uint8_t *letter
    if quotes:
        q = put(q, "\"")
    letter = q
    q = in_base64(q, p, p + 16) - 2
    while letter < q:
        if letter[0] == 43:
            letter[0] = 45
        elif letter[0] == 47:
            letter[0] = 95
        letter += 1
    return put(q, "\"") if quotes else q


# ---- the program

cdef Constant constant_of(bytes text, constants):
    cdef Constant found
    found.at = len(constants)
    found.size = len(text)
    constants += text
    return found


cdef int set_up_field(Field *field, given, constants) except -1:
    field.kind = KINDS.index(given.kind)
    field.label = constant_of(given.label, constants)
    field.constant = constant_of(given.constant, constants)
    field.sub, field.tag, field.versions = given.sub, given.tag, given.versions
    field.nullable, field.compact = given.nullable, given.compact
    if given.tag >= TAGS:
        raise ValueError("a tag is too large")
    return 0


cdef int set_up_struct(MessageFormatter of, int number, given, program) except -1:
    """Set up a struct, which may refer only to those before it."""
    cdef Struct *s = of.structs + number
    cdef const Field *field
    cdef int i, sub, versions
    if given.first < 0 or given.fields < 0 or given.first + given.fields > len(program.fields):
        raise ValueError("a struct has fields that are not there")
    s.first, s.count, s.flexible = given.first, given.fields, given.flexible
    if given.brackets:
        s.opening, s.closing = given.brackets
    s.level = 1
    for i in range(given.first, given.first + given.fields):
        field = of.fields + i
        if field.kind == ARRAY:
            if not 0 <= field.sub < len(program.fields) or of.fields[field.sub].kind in (ARRAY, EMBEDDED):
                raise ValueError("an array has no elements")
            field = of.fields + field.sub
            if field.kind == STRUCT and 0 <= field.sub < number and not of.structs[field.sub].opening:
                raise ValueError("a struct of an array has no brackets")
        if field.kind == STRUCT or field.kind == EMBEDDED:
            versions = 1 if field.kind == STRUCT else field.versions
            if not 0 <= field.sub <= number - versions or versions < 1:
                raise ValueError("a struct refers to one after it")
            for sub in range(field.sub, field.sub + versions):
                s.level = max(s.level, 1 + of.structs[sub].level)
    if s.level > LEVELS:
        raise ValueError("too many structs inside of each other")
    return 0


cdef int set_up_message(Message *message, given, program, constants) except -1:
    message.structure = -1
    if given is None:
        return 0
    if not 0 <= given.struct < len(program.structs):
        raise ValueError("a message has no struct")
    message.head = constant_of(given.head, constants)
    message.tail = constant_of(given.tail, constants)
    message.structure = given.struct
    return 0
