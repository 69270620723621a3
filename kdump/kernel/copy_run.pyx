# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False, auto_pickle=False, emit_code_comments=False
"""Finds runs of adjacent batches that a new log takes byte for byte; see copy_run.pyi."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from kdump.kernel.layout cimport *

cdef enum:
    STOP_END = 0
    STOP_OTHER
    STOP_FULL

RUN_END, RUN_OTHER, RUN_FULL = STOP_END, STOP_OTHER, STOP_FULL


def skip_below(rows, Py_ssize_t start, Py_ssize_t count, int64_t lowest):
    """See copy_run.pyi."""
    cdef Py_buffer cells
    cdef const int64_t *row
    cdef Py_ssize_t i = start
    PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
    try:
        if start < 0 or count > cells.len // (BATCH_WIDTH * 8):
            raise ValueError("no such rows")
        while i < count:
            row = <const int64_t *> cells.buf + i * BATCH_WIDTH
            if row[SUSPECT] & (S_CRC | S_MAGIC | S_LIMIT) or not 0 <= row[LAST_OFFSET] < lowest:
                break
            i += 1
    finally:
        PyBuffer_Release(&cells)
    return i


def offset_is_ahead(rows, Py_ssize_t index, Py_ssize_t count, int64_t lowest, int64_t after):
    """See copy_run.pyi."""
    cdef Py_buffer cells
    PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
    try:
        if not 0 <= index < count <= cells.len // (BATCH_WIDTH * 8):
            raise ValueError("no such rows")
        return is_ahead(<const int64_t *> cells.buf + index * BATCH_WIDTH, index + 1 == count, after, lowest)
    finally:
        PyBuffer_Release(&cells)


cdef class CopyRun:
    """See copy_run.pyi."""

    cdef readonly int64_t size, batches, records, first_offset, last_offset
    cdef readonly int stopped
    cdef readonly list epochs
    cdef int64_t _codec, _epoch, _end
    cdef bint _plain

    def __cinit__(self, *, int64_t codec=-1, bint plain=False):
        self._codec = codec
        self._plain = plain
        self._epoch = -1
        self._end = 0
        self.epochs = []

    cdef inline bint is_wanted(self, const int64_t *row, int64_t lowest, int64_t highest) noexcept nogil:
        if row[SUSPECT] & (S_CRC | S_MAGIC | S_LIMIT) or row[MAGIC] != 2 or row[COUNT] < 0:
            return False
        if row[BASE_OFFSET] < lowest or row[LAST_OFFSET] > highest or row[LAST_OFFSET] < row[BASE_OFFSET]:
            return False
        if self._plain and (row[PRODUCER_ID] != -1 or row[ATTRIBUTES] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)):
            return False
        # Markers are never compressed (MemoryRecords.withEndTransactionMarker).
        return self._codec < 0 or row[ATTRIBUTES] & CODEC_MASK == self._codec or row[ATTRIBUTES] & CONTROL_FLAG != 0

    def take(self, rows, Py_ssize_t start, Py_ssize_t count, int64_t lowest, int64_t highest, int64_t room,
             int64_t top, bint empty, int64_t after=-1):
        """See copy_run.pyi."""
        cdef Py_buffer cells
        cdef const int64_t *row
        cdef Py_ssize_t i = start
        self.size = self.batches = self.records = 0
        self.stopped = STOP_END
        PyObject_GetBuffer(rows, &cells, PyBUF_SIMPLE)
        try:
            if start < 0 or count > cells.len // (BATCH_WIDTH * 8):
                raise ValueError("no such rows")
            while i < count:
                row = <const int64_t *> cells.buf + i * BATCH_WIDTH
                if not self.is_wanted(row, lowest, highest) or is_ahead(row, i + 1 == count, after, lowest) \
                        or (i > start and row[POSITION] != row[POSITION - BATCH_WIDTH] + row[SIZE - BATCH_WIDTH]):
                    self.stopped = STOP_OTHER
                    break
                if row[LAST_OFFSET] > top or (row[SIZE] > room - self.size and (self.size or not empty)):
                    self.stopped = STOP_FULL
                    break
                if not self.size:
                    self.first_offset = row[BASE_OFFSET]
                self.note_epoch(row[EPOCH], row[BASE_OFFSET], row[LAST_OFFSET])
                self.size += row[SIZE]
                self.batches += 1
                self.records += row[COUNT]
                self.last_offset = row[LAST_OFFSET]
                lowest = row[LAST_OFFSET] + 1
                i += 1
        finally:
            PyBuffer_Release(&cells)
        return i

    cdef inline int note_epoch(self, int64_t epoch, int64_t offset, int64_t last) except -1:
        if epoch != self._epoch and epoch >= 0:
            self._epoch = epoch
            self.epochs.append((epoch, offset, self._end))
        self._end = last + 1
        return 0

    def note(self, int64_t epoch, int64_t offset, int64_t last):
        """See copy_run.pyi."""
        self.note_epoch(epoch, offset, last)
