# The state of one walk over one segment, for the checks of kdump.kernel.scan and kdump.kernel.indexes.
# See kdump.kernel.results.ScanState.

from libc.stdint cimport int64_t

cdef struct State:
    int64_t segment_base     # -1: not known
    int64_t known_last       # last offset of the last valid batch
    int64_t known_epoch
    int64_t broken           # how often bytes were no valid batch
    bint has_last
    bint linked              # the batch before was valid, so offsets and epochs can be compared
    bint deep
    bint everything          # a row for every batch
    int64_t max_batch_bytes
    # what was read
    int64_t batches
    int64_t records
    int64_t unopened         # batches whose number of records is not known before decompression
    int64_t valid_bytes
    int64_t first_position   # of the first valid batch, -1: none
    int64_t first_offset
    int64_t first_epoch      # NO_VALUE: a message of magic 0 or 1
    bint first_spans         # its first offset is known: no wrapper message
    int64_t last_position
    int64_t last_base_offset
    int64_t before_break     # that of the batch before the last one out of order; NO_VALUE: not known
    int64_t max_timestamp
    int64_t max_timestamp_offset    # last offset of the first batch with it; without one the base offset
    int64_t max_timestamp_position
    int64_t first_timestamp  # max timestamp of the first valid batch, -1: none
    int64_t last_timestamp
    int64_t backs            # batches whose max timestamp is more than a week below that of the batch before
    int64_t back_position
    int64_t back_offset
    int64_t back_largest
    bint compacted
    int64_t gaps
    int64_t gap_position
    int64_t gap_first
    int64_t gap_previous
    int64_t gap_largest
    int64_t gap_offsets
    int64_t inner_magic
    int64_t inner_magic_position
    int64_t control
    int64_t transactional
    int64_t produced         # batches of a producer
    int64_t codecs[8]
    int64_t magics[3]
