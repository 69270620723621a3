from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kdump.kernel.lines cimport Clock, Near, Out

# Bytes of MessageFormatter.constants.
cdef struct Constant:
    int32_t at
    int32_t size

# kdump.kernel.message_program has what these are.
cdef struct Field:
    int kind
    int sub
    int tag
    int versions
    bint nullable
    bint compact
    Constant label
    Constant constant

cdef struct Struct:
    int first
    int count
    int level           # of structs inside of each other
    uint8_t opening     # 0: no brackets
    uint8_t closing
    bint flexible

cdef struct Message:
    int structure       # -1: no such message
    Constant head
    Constant tail

cdef enum:
    TAGS = 32           # tags are below

# The tagged fields of a struct that are written, by tag.
cdef struct Tagged:
    const uint8_t *at[TAGS]     # NULL: not there, or its default
    int64_t size[TAGS]
    uint32_t seen

cdef class MessageFormatter:
    cdef int style, mode, types, versions
    cdef bint guarded           # the guard of the value had its text
    cdef bint unknown           # a tag was skipped
    cdef bytes constant_bytes
    cdef const uint8_t *constants
    cdef Field *fields
    cdef Near *near             # the last number of each field, to which the next one is mostly near
    cdef Struct *structs
    cdef Message *keys          # by type; none: values are in frames
    cdef Message *values        # by type and version
    cdef Constant no_key, deleted
    cdef const uint8_t *limit   # bytes up to it can be read; NULL: those of a field alone
    cdef Clock clock

    # Writes key and value, which are null where their size is negative; NULL where the decoder has to do it.
    cdef uint8_t *write(self, Out *o, uint8_t *q, const uint8_t *key, int64_t key_size, const uint8_t *value,
                        int64_t value_size, const uint8_t *limit) except? NULL
    cdef uint8_t *_message(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end,
                           const Message *message) except? NULL
    cdef uint8_t *_struct(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Struct *s,
                          int64_t start) except? NULL
    cdef uint8_t *_fields(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Struct *s,
                          const Tagged *tagged, int64_t start) except? NULL
    cdef const uint8_t *_tagged(self, const uint8_t *p, const uint8_t *end, const Struct *s, Tagged *tagged) noexcept
    cdef uint8_t *_field(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f,
                         int64_t start) except? NULL
    cdef uint8_t *_value(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f) except? NULL
    cdef uint8_t *_array(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f) except? NULL
    cdef uint8_t *_embedded(self, Out *o, uint8_t *q, const uint8_t **p, const uint8_t *end, const Field *f,
                            int64_t start) except? NULL
    cdef uint8_t *_string(self, Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end, bint is_word) except? NULL
    cdef uint8_t *_bytes(self, Out *o, uint8_t *q, const uint8_t *p, const uint8_t *end) except? NULL
    cdef uint8_t *_label(self, Out *o, uint8_t *q, const Field *f, int64_t start) except NULL
    cdef uint8_t *_constant(self, Out *o, uint8_t *q, const Constant *text) except NULL
