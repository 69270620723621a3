from typing_extensions import Buffer

from kdump.kernel.results import BadEntry, BuiltEntries, ScanState

ENTRY_PROBLEMS: tuple[str, ...]
"""What can be wrong with an entry (`BadEntry.problem`)."""
ENTRIES_KEPT: int
"""How many entries with the same problem are kept; the counts stay exact."""

class IndexTracker:
    """The entries of the offset index and the time index of one segment while a scan reads its batches (`Scanner(indexes=…)`).

    They are checked against the batches (`check`), built as a broker's recovery builds them (LogSegment.recover; `build`), or both.
    Call these before the scan; the results hold at any time.
    """

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        """`interval` is the topic's index.interval.bytes. Raises ValueError for a base offset below zero."""

    def check(self, offset_slots: Buffer, time_slots: Buffer) -> None:
        """Check these entries, as they are in the files. Both have to be in order (`ordered`)."""

    def build(self, index_bytes: int = ...) -> None:
        """Build entries, at most `index_bytes` of each index. After `check`: those after the entry that is there before the walk (`built_range`)."""

    def built(self, state: ScanState) -> tuple[bytes, bytes] | None:
        """After `build` alone: both indexes of a segment that ends in this state of its scan; None where an index refuses an entry (InvalidOffsetException)."""

    def built_range(self) -> BuiltEntries | None:
        """After `check` and `build`: what a broker's recovery appends in this walk.

        None where the offset index holds something else, bytes were no valid batch, or an index refuses an entry.
        """

    def bad_entries(self) -> list[BadEntry]:
        """The entries that break a rule, in the order in which they were found."""

    def bad_entry_counts(self) -> dict[str, int]:
        """How many entries have each problem; what did not occur has no key."""

def ordered(slots: Buffer, entry_size: int) -> int:
    """How many entries at the beginning of an offset index (8 bytes an entry) or a time index (12) are in order."""
