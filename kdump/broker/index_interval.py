"""When Kafka adds an entry to the offset index: the rule of an append, and the other one of a recovery.

The compiled kernel has the recovery's rule for itself (kdump.kernel.indexes): it lies below the broker model and
applies the rule to each batch that it scans.
"""


def append_entry_is_due(bytes_since_last_entry: int, index_interval_bytes: int) -> bool:
    """Whether LogSegment.append adds an entry for a batch; the bytes of the batch itself do not count yet."""
    return bytes_since_last_entry > index_interval_bytes


def recovery_entry_is_due(position: int, last_index_entry: int, index_interval_bytes: int) -> bool:
    """Whether LogSegment.recover adds an entry for the batch at `position`.

    `last_index_entry` is the position of the batch with the last entry, 0 without one.
    """
    return position - last_index_entry > index_interval_bytes
