"""The checks `index/*` and `timeindex/*`: the order of the entries, and the entries against the batches.

Different brokers write different entries (see kdump.format.index), so a difference from a rebuilt index is only info.
The position of an entry has to be the beginning of a batch. All offsets before that position have to be lower than the
offset of the entry. A timestamp has to be the largest one up to its batch. The kernel compares while it scans; here the
bad entries become findings.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kdump.errors import SourceError
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, index_extent
from kdump.format.naming import Kind
from kdump.kernel.indexes import ordered
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.source import MAX_COMPANION_BYTES, Source, reader_of
from kdump.verify.findings import Finding, FindingValue, Severity, make_finding

if TYPE_CHECKING:
    from kdump.kernel.results import BadEntry, IndexDifference

_NAMES = {Kind.INDEX: "index", Kind.TIMEINDEX: "timeindex"}
_STRUCTS = {Kind.INDEX: OFFSET_ENTRY, Kind.TIMEINDEX: TIME_ENTRY}
_FIELDS = {Kind.INDEX: ("offset", "target"), Kind.TIMEINDEX: ("timestamp", "offset")}


class IndexFile(NamedTuple):
    """An index without padding and remainder: these are the `bytes_after` bytes after its entries.

    The first `ordered` entries are in order.
    """

    path: str
    kind: Kind
    base_offset: int
    slots: bytes
    ordered: int
    bytes_after: int = 0

    @property
    def entry_bytes(self) -> int:
        return _STRUCTS[self.kind].size

    @property
    def entries(self) -> int:
        return len(self.slots) // self.entry_bytes

    @property
    def contradicted(self) -> int | None:
        """The number of the last entry in order, None where all are. The finding about the next entry includes it."""
        return self.ordered - 1 if self.ordered < self.entries else None

    @property
    def prefix(self) -> bytes:
        """The entries that are in order, for `Scanner.expect`."""
        return self.slots[: self.ordered * self.entry_bytes]

    def entry(self, number: int) -> tuple[int, int]:
        """Offset and position, or timestamp and offset. The offset is absolute."""
        first, second = _STRUCTS[self.kind].unpack_from(self.slots, number * self.entry_bytes)
        if self.kind is Kind.INDEX:
            return first + self.base_offset, second
        return first, second + self.base_offset

    def finding(self, what: str, number: int, *, severity: Severity | None = None, **data: FindingValue) -> Finding:
        """A finding about an entry, with the values of the entry."""
        stored = dict(zip(_FIELDS[self.kind], self.entry(number), strict=True))
        code, position = f"{_NAMES[self.kind]}/{what}", number * self.entry_bytes
        return make_finding(
            code,
            self.path,
            position,
            self.entry_bytes,
            offset=stored.pop("offset"),
            severity=severity,
            entry=number,
            **stored,
            **data,
        )


class IndexScan(NamedTuple):
    """What the scan of a whole segment found.

    `end` is the position after the last batch, valid or damaged: a tail begins there. `end_offset` is the offset after
    the last one, None where damage at the end hides it. `max_timestamp` is the largest one of the valid batches, -1
    without one; `magics` counts these by magic. `broken`: some bytes before `end` are not a valid batch. `bad` are
    the entries that failed a check of the scan.
    `differs` and `compacted` are those of kdump.kernel.results.ScanState.
    """

    end: int
    end_offset: int | None
    max_timestamp: int
    magics: Sequence[int]
    broken: bool
    active: bool
    bad: "Sequence[BadEntry]" = ()
    differs: "IndexDifference | None" = None
    compacted: bool = False


# ---- before the scan


def check_structure(file: LogFile, source: Source, active: bool) -> tuple[IndexFile, list[Finding]]:
    """Read an index. Returns its entries, and the findings about its own structure.

    `active`: the index belongs to the active segment, which has padding while a broker runs. Raises SourceError where
    it cannot be read or has more than MAX_COMPANION_BYTES of entries.
    """
    name, entry_bytes = _NAMES[file.kind], _STRUCTS[file.kind].size

    read = reader_of(source)
    extent = index_extent(read, source.size, entry_bytes)
    if extent.entries > MAX_COMPANION_BYTES:
        raise SourceError(f"{file.path}: {extent.entries} bytes of entries, at most {MAX_COMPANION_BYTES} are read")
    slots = read(0, extent.entries)
    slots = slots[: len(slots) - len(slots) % entry_bytes]
    index = IndexFile(
        file.path, file.kind, file.base_offset or 0, slots, ordered(slots, entry_bytes), source.size - extent.entries
    )
    findings = list(_order(index))
    if extent.padding:
        severity = Severity.INFO if active else Severity.WARNING
        findings.append(make_finding(f"{name}/padding", file.path, extent.entries, extent.padding, severity=severity))
    if extent.remainder:
        at = source.size - extent.remainder
        findings.append(make_finding(f"{name}/torn", file.path, at, extent.remainder, entry_bytes=entry_bytes))
    return index, findings


def _order(index: IndexFile) -> Iterator[Finding]:
    if index.ordered == index.entries:
        return
    # The first entry of all is out of order when it is below zero.
    before: tuple[int | None, int | None] = index.entry(index.ordered - 1) if index.ordered else (None, None)
    previous = {f"previous_{name}": value for name, value in zip(_FIELDS[index.kind], before, strict=True)}
    yield index.finding("order", index.ordered, severity=None, **previous)


# ---- after the scan


def check_offset_index(log_path: str, index: IndexFile | None, scanned: IndexScan) -> Iterator[Finding]:
    """Check the offset index of a segment against its scan. `index` is None where there is no file."""
    if index is None:
        yield make_finding("index/missing", log_path, 0, 0, severity=_lazy(scanned))
        return
    wrong = False
    for entry in scanned.bad:
        wrong = wrong or entry.problem.startswith("index/")
        if entry.number == index.contradicted:
            continue
        if entry.problem == "index/position":
            yield index.finding("position", entry.number)
        elif entry.problem == "index/offset":
            yield index.finding("offset", entry.number, last=entry.found)
    # A torn batch keeps the entry that was written for it.
    first = scanned.end if scanned.end_offset is not None else scanned.end + 1
    stale = bisect_left(range(index.ordered), True, key=lambda number: index.entry(number)[1] >= first)
    if scanned.end_offset is not None:
        stale = min(stale, _at_or_above(index, scanned.end_offset))
    if stale < index.ordered and stale != index.contradicted:
        yield index.finding("stale", stale, end_offset=scanned.end_offset, end=scanned.end, count=index.ordered - stale)
    elif index.ordered == index.entries and scanned.differs is not None and not (scanned.broken or wrong):
        yield _differs(index, scanned.differs)


def _lazy(scanned: IndexScan) -> Severity | None:
    """Info for a small active segment: a broker creates an index when it is first used (LazyIndex)."""
    from kdump.broker.defaults import INDEX_INTERVAL_BYTES

    return Severity.INFO if scanned.active and scanned.end <= INDEX_INTERVAL_BYTES else None


def _at_or_above(index: IndexFile, offset: int) -> int:
    """The number of the first entry in order with this offset or a higher one; their count where there is none."""
    which = 0 if index.kind is Kind.INDEX else 1
    return bisect_left(range(index.ordered), offset, key=lambda number: index.entry(number)[which])


def _differs(index: IndexFile, differs: "IndexDifference") -> Finding:
    stored, expected = differs.position != -1, differs.expected_position != -1
    return make_finding(
        "index/differs",
        index.path,
        differs.entry * index.entry_bytes,
        index.entry_bytes if stored else 0,
        offset=differs.offset if stored else None,
        entry=differs.entry,
        target=differs.position if stored else None,
        expected_offset=differs.expected_offset if expected else None,
        expected_target=differs.expected_position if expected else None,
    )


def check_time_index(log_path: str, index: IndexFile | None, scanned: IndexScan, others: bool) -> Iterator[Finding]:
    """Check the time index of a segment against its scan. `index` is None where there is no file.

    `others`: a segment of the partition has a time index.
    """
    messages = sum(scanned.magics[:2])
    if index is None:
        # Brokers up to 0.10.0 wrote none. A later one creates one for every segment when it loads the log.
        if others or sum(scanned.magics) > messages:
            yield make_finding("timeindex/missing", log_path, 0, 0, severity=_lazy(scanned))
        return
    bad = [entry for entry in scanned.bad if entry.problem.startswith("timeindex/")]
    # 0.10.1 began an empty time index for a segment of 0.10.0. It has only the later batches.
    late = messages > 0 and (
        not index.entries or any(entry.problem == "timeindex/misses" and entry.number == 0 for entry in bad)
    )
    # The log cleaner of 0.11 to 1.1 left out the batches that it emptied, although they keep their timestamps.
    lacking = late or scanned.compacted
    # A wrapper message does not have its first offset. The entry of an unreadable one before it looks like its own.
    low = lacking or (messages > 0 and scanned.broken)
    # A timestamp can belong to an unreadable batch, or to a message that 0.10.1 or 0.10.2 converted to magic 0.
    high = scanned.broken or scanned.magics[0] > 0
    for entry in bad:
        if entry.number == index.contradicted:
            continue
        if entry.problem == "timeindex/offset":
            yield index.finding("offset", entry.number)
        elif entry.problem == "timeindex/misses":
            if not lacking:
                yield index.finding("timestamp", entry.number, severity=Severity.ERROR, found=entry.found, misses=True)
        elif not (low if index.entry(entry.number)[0] < entry.found else high):
            yield index.finding("timestamp", entry.number, severity=Severity.WARNING, found=entry.found, misses=False)
    if scanned.end_offset is not None:
        stale = _at_or_above(index, scanned.end_offset)
        if stale < index.ordered and stale != index.contradicted:
            yield index.finding("stale", stale, end_offset=scanned.end_offset, count=index.ordered - stale)
    # Zeros or half an entry after the entries are reported already.
    if not (scanned.active or low) and index.ordered == index.entries and not index.bytes_after:
        yield from _last(index, scanned.max_timestamp, {entry.number for entry in bad})


def _last(index: IndexFile, largest: int, bad: set[int]) -> Iterator[Finding]:
    """Yield timeindex/last: a roll adds the largest timestamp to the time index, and retention uses it."""
    number = index.entries - 1
    if number < 0:
        if largest >= 0:
            yield make_finding("timeindex/last", index.path, 0, 0, timestamp=None, found=largest)
    elif index.entry(number)[0] < largest and number not in bad:
        timestamp, _ = index.entry(number)
        yield make_finding(
            "timeindex/last",
            index.path,
            number * index.entry_bytes,
            index.entry_bytes,
            timestamp=timestamp,
            found=largest,
        )
