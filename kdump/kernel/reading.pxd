# Reads the bytes of a file for a walk over headers: with pread, or through the method readinto of an object, which is
# how an object store is read. The walk is the same.

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from posix.unistd cimport pread

cdef extern from "Python.h":
    object PyMemoryView_FromMemory(char *memory, Py_ssize_t size, int flags)
    int PyBUF_WRITE

# A descriptor, or an object where `object` is not NULL; the caller keeps it alive. `error` is what the object raised,
# with a reference of its own: whoever filled a buffer raises it.
cdef struct FileBytes:
    int descriptor
    PyObject *object
    PyObject *error

cdef inline FileBytes file_bytes(source):
    """The file of a descriptor, or of an object with kdump.storage.source.Source.readinto."""
    cdef FileBytes found
    found.descriptor = -1
    found.object = NULL
    found.error = NULL
    if isinstance(source, int):
        found.descriptor = source
    else:
        found.object = <PyObject *> source
    return found

cdef inline object taken_error(FileBytes *file):
    """What the object raised."""
    error = <object> file.error
    Py_DECREF(error)
    file.error = NULL
    return error

cdef inline int64_t fill_from_object(FileBytes *file, int64_t position, uint8_t *buffer,
                                     int64_t size) noexcept with gil:
    try:
        view = PyMemoryView_FromMemory(<char *> buffer, size, PyBUF_WRITE)
        try:
            return (<object> file.object).readinto(position, view)
        finally:
            view.release()
    except BaseException as error:
        if file.error == NULL:
            Py_INCREF(error)
            file.error = <PyObject *> error
        return -EIO

cdef inline int64_t fill(FileBytes *file, int64_t position, uint8_t *buffer, int64_t need, int64_t most) noexcept nogil:
    """Read `need` to `most` bytes of a file, fewer at its end. Returns how many, or a negated errno."""
    cdef int64_t filled = 0
    cdef ssize_t n
    if file.object != NULL:
        return fill_from_object(file, position, buffer, most)
    while filled < need:
        n = pread(file.descriptor, buffer + filled, most - filled, position + filled)
        if n == 0:
            break
        if n > 0:
            filled += n
        elif errno != EINTR:
            return -errno
    return filled
