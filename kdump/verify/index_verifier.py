"""Read the files beside the segments of a partition, and check the indexes of each segment against its scan."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.log.severity import Severity
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.verify.log_state import LogState
from kdump.verify.range_summary import RangeSummary
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions, was_deleted_by_broker

if TYPE_CHECKING:
    from kdump.kernel.producer_results import AbortedTxn
    from kdump.verify.findings import Finding

_WRONG_OFFSETS: Final = frozenset(("offset/backwards", "offset/range"))
_ENTRY_FINDINGS: Final[Mapping[str, tuple[str, Severity]]] = {
    "index/position": ("index/position", Severity.ERROR),
    "index/offset": ("index/offset", Severity.ERROR),
    "timeindex/misses": ("timeindex/timestamp", Severity.ERROR),
    "timeindex/wrong": ("timeindex/timestamp", Severity.WARNING),
    "timeindex/offset": ("timeindex/offset", Severity.WARNING),
}
"""The code and the severity of the findings for each problem of an index entry that the kernel counts."""


class CompanionReader:
    """Reads companions as a whole. Errors go into the report."""

    def __init__(self, report: Report, options: ScanOptions) -> None:
        self._report = report
        self._options = options

    def read(self, file: LogFile) -> bytes | None:
        """The bytes of a file, None where it cannot be read."""
        try:
            with file.open() as source:
                return read_whole(source, MAX_COMPANION_BYTES)
        except SourceError as error:
            if not was_deleted_by_broker(file, self._options):
                self._report.errors.append(error)
            return None


class IndexVerifier:
    """Checks the offset index, the time index and the transaction index of each segment of a partition."""

    def __init__(self, partition: Partition, report: Report, reader: CompanionReader) -> None:
        self._whole = partition.whole
        self._report = report
        self._reader = reader
        self._bases = sorted(one.log.base_offset for one in partition.segments if one.log.base_offset is not None)
        self._timed = any(one.timeindex is not None for one in partition.segments)

    def check_indexes(self, segment: Segment, summary: RangeSummary, end_offset: int | None) -> None:
        """Check both indexes. `end_offset` is the offset after the segment, None where damage hides it."""
        from kdump.verify.checks import indexes

        log, scanned = segment.log, summary.scanned
        end = summary.end if summary.tail is None else summary.tail
        entries, last = summary.entries, end_offset
        counts: Mapping[str, int] = summary.entry_counts
        wrong_offsets = not _WRONG_OFFSETS.isdisjoint(finding.code for finding in summary.findings)
        if wrong_offsets:
            # Entries with the right offsets would all look wrong.
            entries, last = [entry for entry in entries if entry.problem == "index/position"], None
            counts = {"index/position": counts["index/position"]}
        segment_scan = indexes.IndexScan(
            end,
            last,
            scanned.max_timestamp,
            scanned.magics,
            summary.damages > 0 or wrong_offsets,
            log.active,
            entries,
            scanned.index_differs,
            bool(scanned.compacted),
        )
        index, times = summary.indexes.get(Kind.INDEX), summary.indexes.get(Kind.TIMEINDEX)
        # A file that is there and could not be read is not missing.
        found: list[Finding] = []
        if index is not None or (self._whole and segment.index is None):
            found += indexes.check_offset_index(log.path, index, segment_scan)
        if times is not None or (self._whole and segment.timeindex is None):
            found += indexes.check_time_index(log.path, times, segment_scan, self._timed)
        self._report.add(found)
        kinds = Counter((finding.code, finding.severity) for finding in found)
        for problem, count in counts.items():
            # The kernel keeps KEPT entries of a problem. The others count only where the kept ones are findings, all
            # or all but one: of one entry the order is reported instead.
            from kdump.verify.findings import KEPT

            code, severity = _ENTRY_FINDINGS[problem]
            if count > KEPT and kinds[code, severity] >= KEPT - 1:
                place = next(finding.path for finding in found if finding.code == code)
                self._report.count_not_kept(place, code, severity, count - KEPT)

    def check_transaction_index(
        self,
        segment: Segment,
        end_offset: int | None,
        aborted: "Sequence[AbortedTxn]",
        state: LogState,
        log_start: int,
        *,
        compacted: bool,
    ) -> None:
        """Check the transaction index. `compacted`: the log cleaner went over the segment."""
        base_offset = segment.log.base_offset
        if base_offset is None or not (self._whole or segment.txnindex is not None):
            return
        data = b"" if segment.txnindex is None else self._reader.read(segment.txnindex)
        if data is None or not (data or aborted):
            return  # it cannot be read, or has and needs no entry
        following = bisect_right(self._bases, base_offset)
        limit = end_offset
        if end_offset is not None and following < len(self._bases):
            limit = max(end_offset, self._bases[following])
        from kdump.verify.checks.transaction_indexes import check_index

        self._report.add(
            check_index(
                segment.log.path,
                segment.txnindex,
                data,
                aborted,
                base_offset=base_offset,
                end_offset=limit,
                log_start=log_start,
                # A missing batch can be a marker. Then only the index has its transaction, as after a salvage.
                compacted=compacted or state.gapped or limit != end_offset,
                broken=state.broken,
            )
        )
