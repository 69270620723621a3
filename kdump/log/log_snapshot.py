"""What readers see of a log at one moment: its segments and its offsets, as values."""

from kdump.named_tuple import NamedTuple


class SegmentDescription(NamedTuple):
    """One segment at one moment.

    `next_offset` follows the last batch; it is the base offset where there is no batch. `largest_timestamp_ms` is that
    of the last time index entry, -1 without one. `modified_ms` is the modification time of the log file. `active` is
    true for the segment that is appended to.
    """

    base_offset: int
    path: str
    size_bytes: int
    next_offset: int
    largest_timestamp_ms: int
    modified_ms: int
    active: bool


class LogSnapshot(NamedTuple):
    """The segments and offsets of a log at one moment. A snapshot never changes: a writer replaces it with a new one.

    `closed` are the segments before the active one, oldest first. It stays the same tuple until a segment is rolled or
    deleted. Of the active segment only the first `size_bytes` bytes count. `active` is None in a log without segments.
    Readers can read the offsets from `start_offset` up to, but not including, `end_offset`.
    """

    closed: tuple[SegmentDescription, ...]
    active: SegmentDescription | None
    start_offset: int
    end_offset: int

    @property
    def segments(self) -> tuple[SegmentDescription, ...]:
        """All segments, oldest first."""
        return self.closed if self.active is None else (*self.closed, self.active)
