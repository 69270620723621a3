from typing_extensions import Buffer

from kdump.kernel.results import BadEntry, BuiltEntries, RecoveredIndexes, ScanState

ENTRY_PROBLEMS: tuple[str, ...]
"""The values of `BadEntry.problem`."""
ENTRIES_KEPT: int
"""The largest number of entries that are kept for one problem. The counts stay exact."""

class IndexTracker:
    """Checks or builds the offset index and the time index of a segment during its scan (`Scanner(indexes=...)`).

    `check` compares entries with the batches. `build` builds the entries that a broker's recovery builds
    (LogSegment.recover). Call one or both before the scan. The results can be read at any time.
    """

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        """Start without entries. `interval` is the topic's index.interval.bytes.

        Raises ValueError for a base offset below zero.
        """

    def check(self, offset_slots: Buffer, time_slots: Buffer) -> None:
        """Check these entries, given as the bytes of the files. Both indexes have to be in order (`ordered`)."""

    def resume(self, before: IndexTracker, time_offset: int) -> None:
        """Go on with the recovery where the walk of another tracker ended.

        `time_offset` is the offset of the largest timestamp so far.
        """

    def build(self, index_bytes: int = ...) -> None:
        """Build entries, at most `index_bytes` bytes of each index.

        After `check`: only those after the entries that the index has before the walk (`built_range`).
        """

    def built(self, state: ScanState) -> tuple[bytes, bytes] | None:
        """Return the offset index and the time index of a segment whose scan ended in this state.

        Only after `build` without `check`. None where an index refuses an entry (InvalidOffsetException).
        """

    def built_range(self) -> BuiltEntries | None:
        """Return the entries that a broker's recovery appends in this walk. Only after `check` and `build`.

        None where the offset index has other entries, where the walk found damage, or where an index refuses an entry.
        """

    def recovery(self) -> RecoveredIndexes | None:
        """What a recovery does to both indexes, of a walk from the first byte that checks them and met no damage."""

    def bad_entries(self) -> list[BadEntry]:
        """Return the entries that fail a check, in the order of the scan, at most ENTRIES_KEPT per problem."""

    def bad_entry_counts(self) -> dict[str, int]:
        """Return the number of entries by problem, without problems that did not occur."""

def ordered(slots: Buffer, entry_size: int) -> int:
    """Return how many leading entries of an index are in order.

    `entry_size`: 8 for an offset index, 12 for a time index.
    Raises ValueError for another `entry_size`.
    """
