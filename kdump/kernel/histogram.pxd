# Log-linear histograms: 128 buckets of equal width for each power of two. kdump.stat.histogram describes the layout.
# A relative error of at most 1/128; count, sum, minimum and maximum are exact.

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from *:
    """
    #define kdump_highest_bit(v) (63 - __builtin_clzll(v))
    """
    int highest_bit "kdump_highest_bit"(uint64_t v) noexcept nogil

cdef enum:
    SUB_BUCKETS = 128
    SUB_BITS = 7
    BUCKETS = 7296          # of the values 0 to 2^63 - 1

# The sum has 128 bits: `high` times 2^64, and `low`.
cdef struct Histogram:
    int64_t *counts         # BUCKETS of them
    int64_t count
    uint64_t low
    int64_t high
    int64_t minimum
    int64_t maximum


cdef inline bint histogram_begin(Histogram *h) noexcept nogil:
    """Make an empty histogram; False without memory."""
    h.counts = <int64_t *> calloc(BUCKETS, sizeof(int64_t))
    h.count = h.high = 0
    h.low = 0
    h.minimum = h.maximum = -1
    return h.counts != NULL


cdef inline void histogram_end(Histogram *h) noexcept nogil:
    free(h.counts)
    h.counts = NULL


cdef inline int64_t bucket_of(int64_t value) noexcept nogil:
    """Return the bucket of a value that is not negative."""
    cdef int shift
    if value < SUB_BUCKETS:
        return value
    shift = highest_bit(<uint64_t> value) - SUB_BITS
    return SUB_BUCKETS * <int64_t> shift + (value >> shift)


cdef inline void histogram_add(Histogram *h, int64_t value) noexcept nogil:
    """Count a value. A negative one counts as 0."""
    if value < 0:
        value = 0
    h.counts[bucket_of(value)] += 1
    h.low += <uint64_t> value
    h.high += h.low < <uint64_t> value
    if value > h.maximum:
        h.maximum = value
    if h.count == 0 or value < h.minimum:
        h.minimum = value
    h.count += 1


cdef inline void histogram_add_times(Histogram *h, int64_t value, int64_t times) noexcept nogil:
    """Count a value several times, as long as their sum is below 2^63."""
    if times == 0:
        return
    histogram_add(h, value)
    h.counts[bucket_of(value)] += times - 1
    h.count += times - 1
    h.low += <uint64_t> (value * (times - 1))
    h.high += h.low < <uint64_t> (value * (times - 1))


cdef inline tuple histogram_fields(const Histogram *h):
    """Return what kdump.stat.histogram.Histogram is built of: (count, sum, minimum, maximum, {bucket: count})."""
    cdef dict buckets = {}
    cdef int64_t i
    if h.count:
        for i in range(bucket_of(h.minimum), bucket_of(h.maximum) + 1):
            if h.counts[i]:
                buckets[i] = h.counts[i]
    return h.count, (<object> h.high << 64) + h.low, h.minimum, h.maximum, buckets
