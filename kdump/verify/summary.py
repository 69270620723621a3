"""The totals of a verify as values: of a log file, of a partition, and of the whole run.

`fields()` of each value gives the fields of its JSON line, in their order.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kdump.format.naming import TopicPartition
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import natural
from kdump.verify.next_step import NextStep
from kdump.verify.report import Counts, FileReport, Report
from kdump.verify.start_verdict import StartVerdict

if TYPE_CHECKING:
    from kdump.broker.result import LoadResult
    from kdump.format.json_types import Fields
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import LogMap
WORST: Final = 20
"""How many of the worst partitions are kept."""


def names_code(pattern: str, code: str) -> bool:
    """Whether `pattern` is the code, or a family or beginning of it that ends before a slash."""
    return code == pattern or code.startswith(pattern.rstrip("/") + "/")


class FindingFilter(NamedTuple):
    """The findings that a run reports. `select` and `ignore` are codes or families; an empty `select` takes all."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def selects(self, code: str) -> bool:
        """Whether findings of this code are reported."""
        selected = not self.select or any(names_code(pattern, code) for pattern in self.select)
        return selected and not any(names_code(pattern, code) for pattern in self.ignore)

    def counts(self, counts: Counts) -> Counts:
        """The counts of the codes that are reported."""
        return Counter({key: count for key, count in counts.items() if self.selects(key[0])})


def counts_by(counts: Mapping[tuple[str, Severity], int]) -> dict[str, dict[str, int]]:
    """The counts as the fields `by_severity`, the worst first, and `by_code`."""
    by_code: dict[str, int] = {}
    by_severity: dict[str, int] = dict.fromkeys(("error", "warning", "info"), 0)
    for (code, severity), count in sorted(counts.items()):
        by_severity[severity.word] += count
        if count:
            by_code[code] = by_code.get(code, 0) + count
    return {"by_severity": by_severity, "by_code": by_code}


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """The sum, None where a part of it is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


class FileSummary(NamedTuple):
    """The totals of one log file. `records` is None where it is not known without opening batches."""

    batches: int
    records: int | None
    bytes: int
    valid_bytes: int
    findings: int

    def fields(self) -> "Fields":
        return self._asdict()


def summarize_file(report: FileReport, findings: int) -> FileSummary:
    """The totals of one log file with so many findings."""
    return FileSummary(report.batches, report.records, report.bytes, report.valid_bytes, findings)


class NamedSummary(NamedTuple):
    """The totals of the log file at `path`."""

    path: str
    summary: FileSummary


def findings_by_file(
    report: Report, findings: "Iterable[Finding]", wanted: FindingFilter
) -> "Iterator[tuple[list[Finding], NamedSummary | None]]":
    """The findings in their order, cut after those of each log file; with each file its totals.

    The last ones come with None.
    """
    counts = report.counts_by_path(wanted.selects)
    left = deque(findings)
    for file in report.files:
        if file.error is not None:
            continue
        path = file.file.path
        group: list[Finding] = []
        while left and natural(left[0].path) <= natural(path):
            group.append(left.popleft())
        yield group, NamedSummary(path, summarize_file(file, counts[path]))
    yield list(left), None


class PartitionSummary(NamedTuple):
    """The totals of a partition. `outcome` is what a broker's next start would leave of it, None where not known."""

    topic_partition: TopicPartition | None
    segments: int
    batches: int
    records: int | None
    bytes: int
    valid_bytes: int
    log_start_offset: int | None
    log_end_offset: int | None
    counts: Counts
    outcome: "LoadResult | None"
    map: "LogMap | None" = None

    def fields(self) -> "Fields":
        name = self.topic_partition
        return {
            "topic": None if name is None else name.topic,
            "partition": None if name is None else name.partition,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "valid_bytes": self.valid_bytes,
            "log_start_offset": self.log_start_offset,
            "log_end_offset": self.log_end_offset,
            "findings": counts_by(self.counts),
            "broker": None if self.outcome is None else _outcome_fields(self.outcome),
        }


def summarize_partition(report: Report, wanted: FindingFilter) -> PartitionSummary | None:
    """The totals of a partition, or of the own files of a log directory; None where these have no finding."""
    counts = wanted.counts(report.counts)
    if not report.path or (not report.files and not counts):
        return None
    return PartitionSummary(
        report.topic_partition,
        len(report.files),
        sum(file.batches for file in report.files),
        _sum_known(file.records for file in report.files),
        sum(file.bytes for file in report.files),
        sum(file.valid_bytes for file in report.files),
        report.log_start_offset,
        report.log_end_offset,
        counts,
        report.outcome,
        report.map,
    )


def _outcome_fields(outcome: "LoadResult") -> "Fields":
    """What a broker's next start would leave of a partition."""
    return {
        "refuses": [refusal.exception for refusal in outcome.refusals],
        "later_refuses": [refusal.exception for refusal in outcome.later_refusals],
        "log_start_offset": outcome.log_start_offset,
        "log_end_offset": outcome.log_end_offset,
        "segments": len(outcome.segments),
        "cuts": dict(outcome.truncations),
        "deletes": list(outcome.deleted_files),
    }


class LogPosition(NamedTuple):
    """How far a run came: the first `position` bytes of the log at `path` were read, which has `size` bytes."""

    path: str
    position: int
    size: int


class VerifySummary(NamedTuple):
    """The totals of a run of verify.

    `records` is None where it is not known without opening batches. `counts` are exact and by code and severity;
    `findings_dropped` of these have no finding of their own. `next` is the command to run now, None where there is
    nothing to do. `interrupted_at` is None where the run came to its end. `seconds` is the time since it began.
    `verdict` is what a broker's next start does. `several_copies` is the number of topic-partitions of which several
    copies were read.
    """

    files: int
    segments: int
    batches: int
    records: int | None
    bytes: int
    valid_bytes: int
    counts: Counts
    findings_dropped: int
    interrupted: bool
    interrupted_at: LogPosition | None
    next: str | None
    seconds: float
    verdict: StartVerdict = StartVerdict()
    several_copies: int = 0

    @property
    def has_verdict(self) -> bool:
        """Whether there is anything to be said but that all is healthy."""
        is_healthy = self.worst in (None, Severity.INFO) and self.next is None
        return self.verdict.has_directory and not is_healthy

    @property
    def worst(self) -> Severity | None:
        """The highest severity of the findings, None without findings. The exit status depends on it."""
        return max((severity for (_, severity), count in self.counts.items() if count), default=None)

    def fields(self) -> "Fields":
        """The fields of the JSON line, without the command, its exit status and the seconds."""
        return {
            "files": self.files,
            "segments": self.segments,
            "batches": self.batches,
            "records": self.records,
            "bytes": self.bytes,
            "valid_bytes": self.valid_bytes,
            "findings": counts_by(self.counts),
            "findings_dropped": self.findings_dropped,
            "interrupted": self.interrupted,
            "interrupted_at": self.interrupted_at,
            "starts": self.verdict.starts,
            "several_copies": self.several_copies,
            "next": self.next,
        }


class WorstPartition(NamedTuple):
    """A partition with errors or warnings, or the own files of a log directory."""

    path: str
    errors: int
    warnings: int
    summary: PartitionSummary


class VerifyTotals:
    """Adds up the reports of a run over `paths`; `summary` can be taken at any time.

    `interrupted` and `interrupted_at` are for the caller to set.
    """

    def __init__(self, wanted: FindingFilter | None = None, paths: Sequence[str] = ()) -> None:
        self.interrupted = False
        self.interrupted_at: LogPosition | None = None
        self._paths = tuple(paths)
        self._next = NextStep()
        self._verdict = StartVerdict()
        self._worst: list[WorstPartition] = []
        self._bad = self._partitions = 0
        self.has_path = False
        self._wanted = FindingFilter() if wanted is None else wanted
        self._started = time.monotonic()
        self._counts: Counts = Counter()
        self._kept = 0
        self._records: int | None = 0
        self._sums: Counter[str] = Counter()
        self._copies: Counter[tuple[TopicPartition, str | None]] = Counter()

    def add(self, report: Report) -> "list[Finding]":
        """Count a report. Returns those of its findings that are wanted."""
        for file in report.files:
            if file.error is not None and not file.batches and not file.counts:
                continue
            self._sums.update(files=1, batches=file.batches, bytes=file.bytes, valid_bytes=file.valid_bytes)
            self._records = _sum_known((self._records, file.records))
        self.has_path = self.has_path or bool(report.path)
        self._counts.update(self._wanted.counts(report.counts))
        kept = [finding for finding in report.findings if self._wanted.selects(finding.code)]
        self._kept += len(kept)
        self._next.add(report, kept)
        self._verdict = self._verdict.with_report(report)
        self._partitions += bool(report.path)
        if report.whole and report.topic_partition is not None and not report.state:
            self._copies[report.topic_partition, report.topic_id] += 1
        self._add_partition(report)
        return kept

    def _add_partition(self, report: Report) -> None:
        if report.counts and (summary := summarize_partition(report, self._wanted)) is not None:
            by_severity = counts_by(summary.counts)["by_severity"]
            numbers = by_severity["error"], by_severity["warning"]
            if any(numbers):
                self._bad += 1
                self._worst.append(WorstPartition(report.path, *numbers, summary))
        if len(self._worst) > 8 * WORST:
            self._worst = self.worst_partitions()

    def worst_partitions(self) -> "list[WorstPartition]":
        """The partitions with errors or warnings, the worst first, at most WORST."""
        ordered = sorted(self._worst, key=lambda one: (-one.errors, -one.warnings))
        return ordered[:WORST]

    @property
    def hides_partitions(self) -> int:
        """How many partitions with errors or warnings are not among the worst."""
        return self._bad - min(self._bad, WORST)

    @property
    def has_several(self) -> bool:
        """Whether more than one partition was added."""
        return self._partitions > 1

    def summary(self) -> VerifySummary:
        """The totals so far."""
        return VerifySummary(
            self._sums["files"],
            self._sums["files"],
            self._sums["batches"],
            self._records,
            self._sums["bytes"],
            self._sums["valid_bytes"],
            Counter(self._counts),
            sum(self._counts.values()) - self._kept,
            self.interrupted,
            self.interrupted_at if self.interrupted else None,
            None if self.interrupted else self._next.command(self._paths),
            round(time.monotonic() - self._started, 3),
            self._verdict.but_unknown("the run was interrupted" if self.interrupted else None),
            sum(number > 1 for number in self._copies.values()),
        )
