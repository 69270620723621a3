"""The values that a verify yields: the report of a log file, of a partition, of a log directory."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kdump.errors import SourceError
from kdump.format.naming import TopicPartition
from kdump.log.severity import Severity
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import LogFile, natural
from kdump.storage.stamps import DirectoryFiles

if TYPE_CHECKING:
    from kdump.broker.result import LoadResult
    from kdump.broker.valid_segment import ValidSegment
    from kdump.log.segment_view import SegmentView
    from kdump.verify.checks.hanging import OpenTransaction
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import LogMap

Counts = Counter[tuple[str, Severity]]
NotKept = Counter[tuple[str, str]]
"""Numbers of findings by path and code."""


@dataclass
class FileReport:
    """What verify says about one log file.

    `records` is None where wrapper messages were not opened. `bytes` is the size of the file.
    """

    file: LogFile
    counts: Counts = field(default_factory=Counter)
    batches: int = 0
    records: int | None = 0
    bytes: int = 0
    valid_bytes: int = 0
    error: SourceError | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """As flat values: other processes send thousands of these for a log directory, most of them without counts."""
        rest = self.batches, self.records, self.bytes, self.valid_bytes, self.error
        return _file_report, (tuple(self.file), dict(self.counts) or None, *rest)


def _file_report(file: tuple[Any, ...], counts: dict[tuple[str, Severity], int] | None, *rest: Any) -> FileReport:
    return FileReport(LogFile._make(file), Counter() if counts is None else Counter(counts), *rest)


@dataclass(slots=True)
class Report:
    """What verify says about a partition, or about the own files of a log directory.

    `findings` are in the order of path and position, at most KEPT of one code and file. `counts` are exact. `not_kept`
    has the numbers of those that are not in `findings`.
    `log_end_offset` is the offset after the last batch, None where damaged batches hide it. `end_is_known` is False
    where a tail may have held more offsets.
    `compacted`: a segment, the name of the topic, a checkpoint, the metadata of the cluster or the options show that
    the log cleaner is at work. `missing_is_known` is False where it is not known whether one removed what is missing.
    `outcome` is what a broker's next start would leave of the partition, None without findings or a directory.
    `context` is what the checkpoints of the log directory say about the partition. `valid_segments` are the segments,
    by file name, that a broker's recovery leaves as they are, where VerifyOptions asks for them. Then `views` are what
    the scans showed of the segments of a log with errors or warnings, as far as they say all, `valid_prefixes` what is
    left of a segment of which the first `valid_bytes` stay, where that is known, and
    `directory_files` are those of the directory, listed before any of them was read, None where they are not known.
    `map` is that of a partition with errors or warnings, where VerifyOptions asks for it.
    """

    path: str
    topic_partition: TopicPartition | None = None
    state: str = ""
    whole: bool = False
    files: list[FileReport] = field(default_factory=list)
    findings: "list[Finding]" = field(default_factory=list)
    counts: Counts = field(default_factory=Counter)
    not_kept: NotKept = field(default_factory=Counter)
    errors: list[SourceError] = field(default_factory=list)
    first_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    end_is_known: bool = False
    max_timestamp: int = -1
    topic_id: str | None = None
    has_metadata: bool = False
    compacted: bool = False
    missing_is_known: bool = True
    open: "list[OpenTransaction]" = field(default_factory=list)
    outcome: "LoadResult | None" = None
    context: CheckpointContext = field(default_factory=CheckpointContext)
    valid_segments: "Mapping[str, ValidSegment]" = field(default_factory=dict)
    directory_files: DirectoryFiles | None = None
    map: "LogMap | None" = None
    views: "Mapping[str, SegmentView]" = field(default_factory=dict)
    valid_prefixes: "Mapping[str, tuple[ValidSegment, ...]]" = field(default_factory=dict)

    def add(self, findings: "Iterable[Finding]") -> None:
        """Add findings and count them."""
        for finding in findings:
            self.counts[finding.code, finding.severity] += 1
            self.findings.append(finding)

    def count_not_kept(self, path: str, code: str, severity: Severity, count: int) -> None:
        """Count findings of a file that were not kept."""
        self.counts[code, severity] += count
        if count:
            self.not_kept[path, code] += count

    def counts_by_path(self, wanted: Callable[[str], bool]) -> Counter[str]:
        """How many findings each file has, of the codes that are `wanted`. They are exact."""
        counts = Counter(finding.path for finding in self.findings if wanted(finding.code))
        for (path, code), count in self.not_kept.items():
            counts[path] += count if wanted(code) else 0
        return counts

    def filter(self, wanted: "Callable[[Finding], bool]") -> None:
        """Drop the findings that are not wanted, and the counts of findings that were not kept."""
        self.findings = [finding for finding in self.findings if wanted(finding)]
        self.counts = Counter((finding.code, finding.severity) for finding in self.findings)
        self.not_kept.clear()

    def sort(self) -> "Report":
        """Sort the findings, and drop those above KEPT of one code and file. Returns the report itself.

        Errors that say the same are one: each file of a directory that is gone has its own.
        """
        self.errors = list({str(error): error for error in self.errors}.values())
        kept: Counter[tuple[str, str]] = Counter()
        ordered = sorted(self.findings, key=lambda finding: (natural(finding.path), finding.position))
        self.findings = []
        for finding in ordered:
            from kdump.verify.findings import KEPT

            kept[finding.path, finding.code] += 1
            if kept[finding.path, finding.code] <= KEPT:
                self.findings.append(finding)
            else:
                self.not_kept[finding.path, finding.code] += 1
        return self


class VerifyInterrupted(KeyboardInterrupt):
    """Ctrl-C inside a partition. `report` has what was found in it so far."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report
