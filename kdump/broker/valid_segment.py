"""What a scan knows of a segment that a broker's start need not read again. verify makes it, a prediction takes it."""

from collections.abc import Mapping

from kdump.named_tuple import NamedTuple


class IndexChecksums(NamedTuple):
    """Says that both indexes on disk hold what a recovery would write, for a segment of `size` bytes without producers.

    `offset_index` and `time_index` are (bytes, CRC-32C) of the entries, with index.interval.bytes at its default.
    `next_offset` follows the last batch, `state_end` the last batch of magic 2. Without one they are the base offset.
    """

    size: int
    next_offset: int
    state_end: int
    offset_index: tuple[int, int]
    time_index: tuple[int, int]


class Disorder(NamedTuple):
    """Where a recovery of a segment of valid batches breaks off, because their offsets are out of order.

    `overflow` is the position of the first batch whose last offset is none of the segment. `refused` is that of the
    batch for which an index refuses an entry, where a recovery does not look at such offsets. None: it breaks off
    nowhere. The first `overflow_epochs` changes of the leader epoch come before the overflow. `aborts`: a marker aborts
    a transaction before it breaks off, so that the segment gets a transaction index.
    """

    overflow: int | None
    overflow_epochs: int
    refused: int | None
    aborts: bool = False


class ValidSegment(NamedTuple):
    """What a scan found in a segment in which a recovery finds nothing to truncate. The load does not read it again.

    `next_offset` follows the last batch, or is the base offset. `epochs` are the changes of the leader epoch, each with
    its first offset. `open_transactions` are the producers with an open transaction at the end of the segment, each
    with the first offset of the transaction; None where they are not known. `has_wrapper_messages`: the segment holds
    wrapper messages. `state_end` follows the last batch of magic 2, or is the base offset; None stands for
    `next_offset`. `valid_bytes`: the batches before this position are valid, and a recovery truncates the tail after
    it; None without a tail. `is_damaged`: after it there are more batches. A recovery truncates these too if it stops
    at `valid_bytes`. Where nothing recovers the segment, all of it counts. `index_checksums`: the indexes on disk hold
    what a recovery would write. `disorder`: a recovery with index.interval.bytes at its default may break off. Then
    `epochs` are those before. A load without a recovery reads the segment.
    """

    next_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    open_transactions: Mapping[int, int] | None = None
    has_wrapper_messages: bool = False
    state_end: int | None = None
    valid_bytes: int | None = None
    index_checksums: IndexChecksums | None = None
    is_damaged: bool = False
    disorder: Disorder | None = None
