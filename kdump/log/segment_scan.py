"""One scan over a whole segment, and what a reader keeps of it: index entries of its own, the largest timestamp, the
last offset.

A reader scans a segment where the offset index cannot be used, and when it looks for a timestamp. A later scan of the
same segment continues where the earlier one ended.
"""

from typing import Final, NamedTuple

from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.scan import SUSPECTS, Scanner
from kdump.log.damage import shrunk
from kdump.log.search_index import SearchIndex
from kdump.log.segment_file import SegmentFile
from kdump.storage.walk import BatchChunk, ShrunkFile, Tail, Walk

SCAN_INTERVAL_BYTES: Final = 16 << 10
"""The distance between the index entries that a scan builds."""
_GOES_BACK: Final = 1 << SUSPECTS.index("offset/backwards") | 1 << SUSPECTS.index("offset/range")


class SegmentScan(NamedTuple):
    """What a scan of the first `size` bytes of a segment found: entries of both indexes, the largest timestamp, the
    last offset (None without a batch).

    `regular` is false where offsets do not rise; there are no entries then. `scanner` can continue at `size`; None
    where the last bytes are not a batch.
    """

    search_index: SearchIndex
    times: bytes
    largest_timestamp_ms: int
    last_offset: int | None
    regular: bool
    scanner: Scanner | None
    indexes: IndexTracker
    size: int

    def first_time_entry(self, timestamp_ms: int) -> int | None:
        """The relative offset of the first time index entry at or after a timestamp, None without one."""
        low, high = 0, len(self.times) // TIME_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if TIME_ENTRY.unpack_from(self.times, middle * TIME_ENTRY.size)[0] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        if low * TIME_ENTRY.size == len(self.times):
            return None
        return int(TIME_ENTRY.unpack_from(self.times, low * TIME_ENTRY.size)[1])


def scan_segment(segment: SegmentFile, size: int, before: SegmentScan | None) -> SegmentScan:
    """Scan the first `size` bytes, from where the scan `before` ended if it can continue. Raises SourceError."""
    if before is None or before.scanner is None or before.size > size:
        indexes = IndexTracker(segment.base_offset, SCAN_INTERVAL_BYTES)
        indexes.build()
        scanner, start, regular = Scanner(segment.base_offset, indexes=indexes), 0, True
    else:
        scanner, indexes, start, regular = before.scanner, before.indexes, before.size, before.regular
    walk = Walk(segment.source(size), base_offset=segment.base_offset, start=start, scanner=scanner)
    whole = True
    for item in walk:
        if isinstance(item, BatchChunk):
            regular = regular and not any(suspect & _GOES_BACK for suspect in item.suspects())
        elif isinstance(item, Tail):
            whole = False
        elif isinstance(item, ShrunkFile):
            raise shrunk(segment.path, item.position, size)
    regular = regular and not walk.goes_back
    seen = scanner.state()
    built = indexes.built(seen) if regular else None
    slots, times = built or (b"", b"")
    return SegmentScan(
        SearchIndex(slots, len(slots) // OFFSET_ENTRY.size, None, size),
        times,
        seen.max_timestamp,
        seen.known_last if seen.has_last else None,
        built is not None,
        scanner if whole else None,
        indexes,
        size,
    )
