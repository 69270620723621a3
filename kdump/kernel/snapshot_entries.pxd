from kdump.kernel.layout cimport SNAPSHOT_ENTRY

cdef enum:
    MOST_PRODUCERS = 1 << 29


cdef inline Py_ssize_t whole_entries(const Py_buffer *view) except -1:
    """Return the number of entries. Raises ValueError."""
    if view.len % SNAPSHOT_ENTRY:
        raise ValueError("no whole number of entries")
    return view.len // SNAPSHOT_ENTRY
