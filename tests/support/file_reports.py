"""One log file verified through the library, whole or cut into ranges, as values that compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.ranges import SegmentRange
from kdump.verify.catalogue import logs
from kdump.verify.findings import Finding, Severity
from kdump.verify.partition import PartitionVerifier
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions, ScanTask, fold, scan, scan_source

OF_A_LOG = frozenset(entry.code for entry in logs.ENTRIES)


class LogFileReport(NamedTuple):
    """What verify says of one log file; `across` are the findings of rules that look further than a batch and its
    neighbour."""

    findings: list[Finding]
    across: list[Finding]
    counts: Counter[tuple[str, Severity]]
    batches: int
    records: int | None
    bytes: int
    valid_bytes: int
    error: SourceError | None


def of(report: Report) -> LogFileReport:
    """The report on a partition of one file."""
    (file,) = report.files
    return LogFileReport(
        [finding for finding in report.findings if finding.code in OF_A_LOG],
        [finding for finding in report.findings if finding.code not in OF_A_LOG],
        Counter({key: count for key, count in report.counts.items() if key[0] in OF_A_LOG}),
        file.batches,
        file.records,
        file.bytes,
        file.valid_bytes,
        file.error,
    )


def partition_of(file: LogFile) -> Partition:
    """A log file as it is found when it is named alone, without its companions."""
    segments = () if file.kind is Kind.CHECKPOINT else (Segment(file),)
    return Partition(file.path, None, False, segments, (file,) if file.kind is Kind.CHECKPOINT else ())


def verify_file(
    file: LogFile, options: ScanOptions | None = None, *, source: Any = None, cuts: Iterable[int] = ()
) -> LogFileReport:
    """Scan the file, or an open source in its place, whole or cut at `cuts`, and conclude."""
    options = options or ScanOptions()
    segment = Segment(file)
    verifier = PartitionVerifier(partition_of(file), CheckpointContext(), options)
    if source is not None:
        verifier.replay_segment(segment, scan_source(source, ScanTask(SegmentRange(segment), options)))
        return of(verifier.conclude())
    borders = [0, *sorted({cut for cut in cuts if 0 < cut < file.size})]
    tasks = [
        ScanTask(SegmentRange(segment, start, stop), options)
        for start, stop in zip(borders, [*borders[1:], None], strict=True)
    ]
    verifier.replay_segment(segment, fold([(task, scan(task)) for task in tasks]))
    return of(verifier.conclude())
