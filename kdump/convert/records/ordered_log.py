"""A log in the order of its offsets: what its headers say, and what is left out where they are not in order."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kdump.convert.records.batch_order import LeftOutBatch, ordered, unordered_findings
from kdump.convert.records.copy_batches import CopyBatches, IndexRange
from kdump.convert.records.log_slice import HIGHEST, LOWEST, HeaderPass, LogSlice, SlicedPartition
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.kernel.results import ScanState
from kdump.kernel.scan import BATCH_COLUMNS, SCAN_FULL, SCAN_STOPPED, SUSPECTS, Scanner
from kdump.log.batch_location import DamagedRange
from kdump.storage.file_store import is_directory, parent_of
from kdump.storage.offset_checkpoints import CheckpointContext, read_offset_checkpoints
from kdump.storage.partition import Partition
from kdump.storage.read_policy import PolicySource
from kdump.storage.source import reason_of
from kdump.verify.checks import offsets, segments
from kdump.verify.compaction import is_compacted_log
from kdump.verify.findings import Finding

_BUFFER_BYTES: Final = 128 << 10
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_OUT_OF_ORDER: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/backwards", "offset/range"))
_UNKNOWN: Final = HeaderPass(transactional=True, is_ordered=False, is_continuous=False)


class OrderedLog(NamedTuple):
    """A log whose slices are in order, the valid batches that are left out for that, and damage outside the slices.

    `findings` are about these batches, and about missing segments.
    """

    partition: SlicedPartition
    left_out: tuple[LeftOutBatch, ...] = ()
    damage: tuple[DamagedRange, ...] = ()
    findings: tuple[Finding, ...] = ()


def ordered_log(partition: SlicedPartition, max_batch_bytes: int) -> OrderedLog:
    """Put a log in order. Raises SourceError.

    Reads the headers alone; where these are not in order, or damage hides some, all checksums.
    """
    if partition.headers is not None:
        return OrderedLog(partition)
    headers = read_headers(partition.slices)
    known = partition._replace(headers=headers)
    copy = partition.copy
    if headers.is_ordered or copy is None or not copy.segments:
        return OrderedLog(known, findings=tuple(_asked(known, headers)))
    found = CopyBatches([segment.log for segment in copy.segments])
    for error in found.read(max_batch_bytes):
        raise error
    if found.is_ordered:
        headers = headers._replace(
            transactional=found.transactional, compacted=found.compacted, missing=tuple(_missing(found))
        )
        return OrderedLog(known._replace(headers=headers), findings=tuple(_asked(known, headers)))
    order = ordered(copy, found)
    compacted = is_compacted(copy, shown=found.compacted)
    slices = tuple(slices_in_order(order.batches, compacted=compacted))
    # The slices say themselves where offsets are missing.
    missing = tuple(_missing(order.batches))
    headers = HeaderPass(found.transactional, is_ordered=True, is_continuous=True, compacted=compacted, missing=missing)
    findings = (*unordered_findings(order), *_asked(known, headers))
    return OrderedLog(known._replace(slices=slices, headers=headers), order.left_out, tuple(found.damage), findings)


def _asked(partition: SlicedPartition, headers: HeaderPass) -> Iterator[Finding]:
    """What is missing among the offsets to convert; nothing where the log cleaner leaves holes."""
    if not headers.missing or is_compacted(partition.copy, shown=headers.compacted):
        return
    first, stop = partition.offset
    for each in headers.missing:
        previous = each.data["previous"]
        assert isinstance(previous, int)
        assert each.offset is not None
        if (first is None or each.offset > first) and (stop is None or previous + 1 < stop):
            yield each


def _missing(found: CopyBatches) -> Iterator[Finding]:
    """What is missing between batches that no damage lies between: segments, and offsets in one."""
    gaps: dict[str, offsets.SegmentGaps] = {}
    for start, _ in found.intact(continuous=True):
        if not start or found.is_break(start):
            continue
        before, log = found.logs[found.file[start - 1]], found.logs[found.file[start]]
        previous, first = found.last[start - 1], found.first[start]
        if before is not log:
            if log.base_offset is not None and log.base_offset > previous + 1:
                yield segments.missing(log.path, log.base_offset, previous + 1, compacted=False)
            continue
        count = first - previous - 1
        known = gaps.get(log.path) or offsets.SegmentGaps(found.position[start], previous, first, 0, 0, 0)
        gaps[log.path] = known._replace(
            gaps=known.gaps + 1, missing=known.missing + count, largest=max(known.largest, count)
        )
    for path, each in gaps.items():
        yield offsets.gaps(path, each, compacted=False)


def slices_in_order(found: CopyBatches, *, compacted: bool) -> list[LogSlice]:
    """Batches in order as slices. Offsets that are missing are gaps unless the log is `compacted`."""
    slices: list[LogSlice] = []
    for part in found.intact(continuous=not compacted):
        after_gap = part.start > 0
        slices += found.slices(IndexRange(*part), LOWEST, HIGHEST, after_gap=after_gap)
    return slices


def read_headers(slices: Sequence[LogSlice]) -> HeaderPass:
    """What the headers of log files, or of parts of them, say. Raises SourceError."""
    transactional, is_ordered, is_continuous, compacted, first, end = False, True, True, False, None, -1
    missing: list[Finding] = []
    for each in slices:
        if each.log.kind is not Kind.LOG:
            continue
        headers = _Headers(each)
        state = headers.read()
        if state is None:
            return _UNKNOWN
        transactional = transactional or state.transactional > 0
        compacted = compacted or state.compacted
        is_ordered = is_ordered and headers.is_ordered
        base = each.log.base_offset
        if 0 <= end and base is not None and base > end + 1 and each.start == 0:
            missing.append(segments.missing(each.log.path, base, end + 1, compacted=False))
        if state.gaps:
            missing.append(offsets.gaps(each.log.path, offsets.gaps_of(state), compacted=False))
        if state.batches:
            is_ordered = is_ordered and state.first_offset > end
            begins = end < 0 or state.first_offset == end + 1 or not state.first_spans
            is_continuous = is_continuous and begins and not state.gaps
            first = state.first_offset if end < 0 and state.first_spans else first
            end = state.last_offset
    return HeaderPass(
        transactional, is_ordered, is_continuous, compacted, first, end + 1 if end >= 0 else None, tuple(missing)
    )


class _Headers:
    """The headers of a log file, or of a part of it, and whether they are in order."""

    def __init__(self, part: LogSlice) -> None:
        self._part = part
        self.is_ordered = True

    def read(self) -> ScanState | None:
        """Read them; None where bytes are no batch."""
        log, buffer, position = self._part.log, bytearray(_BUFFER_BYTES), self._part.start
        scanner = Scanner(-1 if log.base_offset is None or position else log.base_offset)
        with log.open() as source:
            stop = source.size if self._part.stop is None else min(self._part.stop, source.size)
            while position < stop:
                try:
                    stopped = scanner.headers(source.reader, 0, buffer, position, stop)
                except OSError as error:
                    raise SourceError(f"{source.name}: reading at byte {position}: {reason_of(error)}") from None
                suspects = scanner.rows[_SUSPECT : scanner.count * len(BATCH_COLUMNS) : len(BATCH_COLUMNS)]
                self.is_ordered = self.is_ordered and not any(bits & _OUT_OF_ORDER for bits in suspects.tolist())
                if stopped not in (SCAN_FULL, SCAN_STOPPED):
                    return None
                if isinstance(source, PolicySource):
                    source.passed(position, scanner.reached - position)
                position = scanner.reached
        return scanner.state()


def is_compacted(copy: Partition | None, *, shown: bool) -> bool:
    """Whether the log cleaner goes over a partition; `shown` says that a segment shows it."""
    if copy is None:
        return shown
    return is_compacted_log(copy.topic_partition, shown=shown or checkpoint_context(copy).cleaned)


def checkpoint_context(copy: Partition) -> CheckpointContext:
    """What the checkpoints of its log directory say of a partition; nothing of a file."""
    if not is_directory(copy.path):
        return CheckpointContext()
    return read_offset_checkpoints(parent_of(copy.path)).context(copy)
