from libc.stdint cimport int64_t

from kdump.kernel.layout cimport BASE_OFFSET, BATCH_WIDTH, LAST_OFFSET, MAGIC


cdef inline int64_t first_field(const int64_t *row) noexcept nogil:
    """The offset with which a batch begins on disk: of a message of magic 0 or 1 the last one."""
    return row[BASE_OFFSET] if row[MAGIC] >= 2 else row[LAST_OFFSET]


# No checksum covers the base offset. One that is wrong would leave no place for the batches after it.
cdef inline bint is_ahead(const int64_t *row, bint is_last, int64_t after, int64_t lowest) noexcept nogil:
    """Whether the next batch fits where this one does not: at or above `lowest`, and below this one.

    `after`: the offset of the batch that follows the last row, -1 where it is not known.
    """
    cdef int64_t following = after if is_last else first_field(row + BATCH_WIDTH)
    return lowest <= following < first_field(row)
