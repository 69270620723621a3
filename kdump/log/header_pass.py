"""What the headers of a log say of it, read alone."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.naming import Kind
from kdump.kernel.results import Carry, ScanState
from kdump.kernel.scan import BATCH_COLUMNS, SCAN_FULL, SCAN_STOPPED, SUSPECTS, Scanner
from kdump.log.log_slice import HeaderPass, LogSlice, MissingOffsets
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.read_policy import PolicySource
from kdump.storage.source import InputFile, reason_of
from kdump.storage.walk import BatchChunk, Item

_BUFFER_BYTES: Final = 128 << 10
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_OUT_OF_ORDER: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/backwards", "offset/range"))
"""The bits of a batch that is not in order."""
_UNKNOWN: Final = HeaderPass(transactional=True, is_ordered=False, is_continuous=False)


class SliceHeaders(NamedTuple):
    """What the headers of one slice say: the state of their scan, and whether they are in order."""

    state: ScanState
    is_ordered: bool


def read_headers(slices: Sequence[LogSlice]) -> HeaderPass:
    """What the headers of log files, or of parts of them, say. Raises SourceError."""
    return joined_headers((each, slice_headers(each)) for each in slices if each.log.kind is Kind.LOG)


def slice_headers(each: LogSlice, *, may_reach_over: bool = False) -> SliceHeaders | None:
    """What the headers of a slice say; None where bytes are not a batch. Raises SourceError.

    `may_reach_over`: the slice need not end where a batch ends.
    """
    headers = _Headers(each)
    state = headers.read(may_reach_over=may_reach_over)
    return None if state is None else SliceHeaders(state, headers.is_ordered)


def is_in_order(item: Item) -> bool:
    """Whether a walk has met valid batches that are in order."""
    return isinstance(item, BatchChunk) and not item.damaged and not any(b & _OUT_OF_ORDER for b in item.suspects())


def headers_of_walk(state: ScanState) -> SliceHeaders:
    """What the headers of a slice say, from a walk over all of it that is in order."""
    return SliceHeaders(state._replace(epochs=()), is_ordered=True)


def joined_headers(found: Iterable[tuple[LogSlice, SliceHeaders | None]]) -> HeaderPass:
    """What the headers of a log say, from those of its slices in log order."""
    transactional, is_ordered, is_continuous, compacted, first, end = False, True, True, False, None, -1
    missing: list[MissingOffsets] = []
    for each, headers in found:
        if headers is None:
            return _UNKNOWN
        state = headers.state
        transactional = transactional or state.transactional > 0
        # Only the log cleaner puts an empty segment in the place of others.
        compacted = compacted or state.compacted or (not state.batches and each.log.path.endswith(".log.swap"))
        is_ordered = is_ordered and headers.is_ordered
        base = each.log.base_offset
        if 0 <= end and base is not None and base > end + 1 and each.start == 0:
            missing.append(missing_segment(each.log.path, end, base))
        if state.gaps:
            missing.append(gaps_of(each.log.path, state))
        if state.batches:
            is_ordered = is_ordered and state.first_offset > end
            # The header of a wrapper message has its last offset alone; of a file the name says where it begins.
            can_follow = not state.first_spans and (base is None or each.start > 0 or base <= end + 1)
            begins = end < 0 or state.first_offset == end + 1 or can_follow
            is_continuous = is_continuous and begins and not state.gaps
            first = state.first_offset if end < 0 and state.first_spans else first
            end = state.last_offset
    return HeaderPass(
        transactional, is_ordered, is_continuous, compacted, first, end + 1 if end >= 0 else None, tuple(missing)
    )


class BatchBorder(NamedTuple):
    """The position of a batch, and the state with which a walk from the begin of the file comes to it."""

    position: int
    carry: Carry


def batch_borders(log: LogFile, step_bytes: int) -> list[BatchBorder]:
    """The first batch at or after each multiple of so many bytes; none where the headers of the file are not in order.

    The headers lead from the begin of the file to its end; each of these batches and the one before it are valid, so
    that a walk comes to it also after damage that no header shows. Raises SourceError.
    """
    found: list[BatchBorder] = []
    scanner = Scanner(-1 if log.base_offset is None else log.base_offset)
    with log.open() as source:
        last, before = BatchBorder(0, scanner.state().carry), 0
        for hint in [*range(step_bytes, source.size, step_bytes), source.size]:
            if last.position >= hint:
                continue  # a batch reaches over it
            for _ in walk_headers(scanner, source, last.position, hint, source.size):
                if not _are_ordered(scanner):
                    return []
            if scanner.reached > last.position > 0 and _is_valid(log, source, before, last.position):
                found.append(last)
            if scanner.reached < hint:
                return []
            state = scanner.state()
            last, before = BatchBorder(scanner.reached, state.carry), state.last_position
    return found


def _is_valid(log: LogFile, source: InputFile, before: int, position: int) -> bool:
    """Whether the batches at these positions, which follow each other, are valid."""
    for item in walk_of(log.kind, source, start=before, stop=position + 1, base_offset=None):
        if not isinstance(item, BatchChunk) or item.damaged:
            return False
    return True


class _Headers:
    """The headers of a log file, or of a part of it, and whether they are in order."""

    def __init__(self, part: LogSlice) -> None:
        self._part = part
        self.is_ordered = True

    def read(self, *, may_reach_over: bool) -> ScanState | None:
        """Read them; None where bytes are not a batch."""
        log, start = self._part.log, self._part.start
        scanner = Scanner(-1 if log.base_offset is None or start else log.base_offset)
        with log.open() as source:
            stop = source.size if self._part.stop is None else min(self._part.stop, source.size)
            source.read_until(stop)
            for _ in walk_headers(scanner, source, start, stop, source.size if may_reach_over else stop):
                self.is_ordered = self.is_ordered and _are_ordered(scanner)
        return None if start < stop and scanner.reached < stop else scanner.state()


def _are_ordered(scanner: Scanner) -> bool:
    """Whether the batches of which the last call made a row are in order."""
    suspects = scanner.rows[_SUSPECT : scanner.count * len(BATCH_COLUMNS) : len(BATCH_COLUMNS)]
    return not any(bits & _OUT_OF_ORDER for bits in suspects.tolist())


def walk_headers(scanner: Scanner, source: InputFile, start: int, stop: int, end: int | None = None) -> Iterator[None]:
    """Walk over the headers of the valid batches in [start, stop) of a file; the last one may reach up to `end`.

    Each time the rows and the runs of the scanner have to be taken. Where bytes are not a batch it ends before `stop`,
    as `Scanner.reached` shows. Raises SourceError.
    """
    buffer, position = bytearray(_BUFFER_BYTES), start
    while position < stop:
        try:
            stopped = scanner.headers(source.reader, 0, buffer, position, stop, stop if end is None else end)
        except OSError as error:
            raise SourceError(f"{source.name}: reading at byte {position}: {reason_of(error)}") from None
        if isinstance(source, PolicySource):
            source.passed(position, scanner.reached - position)
        position = scanner.reached
        yield
        if stopped not in (SCAN_FULL, SCAN_STOPPED):
            return


def rows_of(scanner: Scanner) -> Iterator[tuple[Batch, int]]:
    """The batches of which the last call made a row, each with its defects as bits of kdump.kernel.scan.SUSPECTS."""
    cells, width = scanner.rows[: scanner.count * len(BATCH_COLUMNS)].tolist(), len(BATCH_COLUMNS)
    for at in range(0, len(cells), width):
        yield Batch._make(cells[at : at + len(Batch._fields)]), cells[at + _SUSPECT]


def missing_segment(path: str, previous: int, base_offset: int) -> MissingOffsets:
    """The offsets between the last one of a log file and the base offset of the next one, which lies at `path`."""
    count = base_offset - previous - 1
    return MissingOffsets(path, 0, previous, base_offset, 0, count, count)


def gaps_of(path: str, scanned: ScanState) -> MissingOffsets:
    """The offset gaps that a scan of a file has found."""
    return MissingOffsets(
        path,
        scanned.gap_position,
        scanned.gap_previous,
        scanned.gap_first,
        scanned.gaps,
        scanned.gap_offsets,
        scanned.gap_largest,
    )
