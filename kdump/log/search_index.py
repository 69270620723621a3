"""The offset index entries that a search in a segment starts from, and which of them are verified.

The offset index is a hint. A search uses only entries that a walk over the log file confirms. The walk begins at an
entry at least WINDOW_BYTES earlier, or at the beginning of the file. It has to meet nothing but valid batches with
rising offsets, and to find every entry on its way at the beginning of a batch and above all earlier offsets. So three
kinds of wrong entries cannot mislead a reader: entries into the middle of a batch, entries to a batch inside a value,
and entries with the offsets of another segment. Each window of the file that is read from is verified once.

A reader scans a segment where the offset index cannot be used, and when it looks for a timestamp. A later scan of the
same segment continues where the earlier one ended.
"""

from contextlib import suppress
from typing import Final

from kdump.errors import SourceError, reason
from kdump.format.index import MAX_INDEX_BYTES, OFFSET_ENTRY, TIME_ENTRY, OffsetIndexEntry, index_extent
from kdump.format.naming import segment_file_name
from kdump.kernel.indexes import IndexTracker, ordered
from kdump.kernel.scan import SUSPECTS, Scanner
from kdump.kernel.valid_batches import WINDOW_BYTES, Seeker, positions
from kdump.log.damage import shrunk
from kdump.log.segment_file import SegmentFile
from kdump.named_tuple import NamedTuple
from kdump.storage.source import FileSource, reader_of
from kdump.storage.walk import BatchChunk, ShrunkFile, Tail, Walk

STALE_BYTES: Final = 2 << 20
"""An index whose last entry lies further before the end is older than the log file."""
_SMALL_BYTES: Final = 64 << 10  # a file of this size needs no index
_MOST_WINDOWS: Final = 16
SCAN_INTERVAL_BYTES: Final = 16 << 10
"""The distance between the index entries that a scan builds."""
_GOES_BACK: Final = 1 << SUSPECTS.index("offset/backwards") | 1 << SUSPECTS.index("offset/range")


class SearchIndex(NamedTuple):
    """The first `entries` entries in `slots`, the bytes of an offset index, for a log file of `size` bytes.

    `verified` has one byte for each window of the file, not 0 where its entries are verified; None where all are.
    """

    slots: bytes
    entries: int
    verified: bytearray | None
    size: int

    def at(self, base_offset: int, entry: int) -> OffsetIndexEntry:
        """The entry with this number."""
        relative, position = OFFSET_ENTRY.unpack_from(self.slots, entry * OFFSET_ENTRY.size)
        return OffsetIndexEntry(base_offset + relative, position)

    def position_below(self, relative_offset: int) -> int:
        """The position of the last entry whose offset is below this one, 0 without such an entry."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.at(0, middle).offset < relative_offset:
                low = middle + 1
            else:
                high = middle
        return self.at(0, low - 1).position if low else 0


NO_INDEX: Final = SearchIndex(b"", 0, None, 1 << 62)


def read_search_index(segment: SegmentFile, size: int, before: SearchIndex | None) -> SearchIndex:
    """Read the offset index beside a log file of `size` bytes; NO_INDEX where it cannot be one.

    Windows that are verified in `before`, an earlier state of the same index, stay verified.
    """
    slots = b""
    if segment.path.endswith(segment_file_name(segment.base_offset, ".log")):
        path = f"{segment.path.removesuffix('.log')}.index"
        with suppress(SourceError), FileSource(path) as source:
            if source.size <= MAX_INDEX_BYTES:
                read = reader_of(source)
                slots = read(0, index_extent(read, source.size, OFFSET_ENTRY.size).entries)
    entries = len(slots) // OFFSET_ENTRY.size
    if ordered(slots, OFFSET_ENTRY.size) < entries:
        return NO_INDEX
    inside = positions(slots, entries, size)
    last = OFFSET_ENTRY.unpack_from(slots, (inside - 1) * OFFSET_ENTRY.size)[1] if inside else 0
    if last < size - (STALE_BYTES if inside else _SMALL_BYTES):
        return NO_INDEX
    verified = bytearray(size // WINDOW_BYTES + 1)
    if before is not None and before.verified is not None and before.entries:
        # The old entries are still there. Only the last window can have got new ones.
        whole = before.at(0, before.entries - 1).position // WINDOW_BYTES
        if slots.startswith(before.slots[: before.entries * OFFSET_ENTRY.size]):
            verified[:whole] = before.verified[:whole]
    return SearchIndex(slots, inside, verified, size)


def verify_window(segment: SegmentFile, seeker: Seeker, index: SearchIndex, position: int, size: int) -> bool:
    """Verify the entries of the window that holds a position, and note the result in the index.

    Returns False where an entry is wrong.
    """
    slots, entries, verified, _ = index
    assert verified is not None
    window = position // WINDOW_BYTES
    # The more windows a reader has used, the more are verified at once: each walk has to begin a window earlier.
    last = min(window + verified.count(1), window + _MOST_WINDOWS - 1, len(verified) - 1)
    first = positions(slots, entries, window * WINDOW_BYTES)
    stop = positions(slots, entries, (last + 1) * WINDOW_BYTES)
    anchor = first - 1
    if anchor >= 0 and not verified[index.at(0, anchor).position // WINDOW_BYTES]:
        anchor = positions(slots, entries, (window - 1) * WINDOW_BYTES + 1) - 1
    start = index.at(0, anchor).position if anchor >= 0 else 0
    file = segment.file
    try:
        valid = seeker.verify(file.descriptor, slots, max(anchor, 0), stop, segment.base_offset, start, size)
    except OSError as error:
        raise SourceError(f"{segment.path}: {reason(error)}") from None
    if valid:
        verified[window : last + 1] = b"\1" * (last + 1 - window)
    return valid


class ScanIndexes(NamedTuple):
    """The indexes that a reader builds with one scan of the first `size` bytes of a segment.

    The largest timestamp and the last offset (None without a batch) are those of these bytes. `regular` is false where
    offsets do not rise; there are no entries then. `scanner` can continue at `size`; None where the last bytes are not
    a batch.
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


def scan_segment(segment: SegmentFile, size: int, before: ScanIndexes | None) -> ScanIndexes:
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
    return ScanIndexes(
        SearchIndex(slots, len(slots) // OFFSET_ENTRY.size, None, size),
        times,
        seen.max_timestamp,
        seen.known_last if seen.has_last else None,
        built is not None,
        scanner if whole else None,
        indexes,
        size,
    )
