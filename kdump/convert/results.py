"""What a conversion gives: a value for each file and partition, what is wrong with its logs, and the totals of a run.

`fields()` of each value gives the fields of its JSON line, in their order.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdump.errors import KdumpError, SourceError
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.replicas.merge import MissingRecords
from kdump.stat.disk import file_system_of
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding, Severity

if TYPE_CHECKING:
    from kdump.convert.options import ConvertOptions
    from kdump.convert.preparation import PreparedPartition
    from kdump.format.json_types import Fields


class DamagedLog(SourceError):
    """A partition has damage, and is not converted for that reason."""


@dataclass(frozen=True, slots=True)
class SkippedRange(Finding):
    """Bytes of a log file that no output has, because they are not a valid batch."""

    @property
    def message(self) -> str:
        return _skipped(self, "left out")


@dataclass(frozen=True, slots=True)
class CopyDamage(Finding):
    """Bytes of one of several copies that are not a valid batch. What no copy has is `replica/missing`."""

    @property
    def message(self) -> str:
        return _skipped(self, "not used of this copy")


@dataclass(frozen=True, slots=True)
class MisplacedRecords(Finding):
    """A batch with records whose offsets cannot be right: they are rows all the same, with these offsets."""

    @property
    def message(self) -> str:
        title, last = CATALOGUE[self.code].title, self.data["last"]
        rows = f"{title[:1].lower()}{title[1:]}; the rows have them as they are"
        if self.offset is None:
            return rows
        offsets = f"the offset {last}" if last == self.offset else f"the offsets {self.offset} to {last}"
        return f"{rows}, and it is not known which {'record' if last == self.offset else 'records'} had {offsets}"


def _skipped(finding: Finding, what: str) -> str:
    title = CATALOGUE[finding.code].title
    count = "1 byte is" if finding.length == 1 else f"{finding.length} bytes are"
    return f"{count} {what}: {title[:1].lower()}{title[1:]}"


class ConvertFindings(NamedTuple):
    """What is wrong with the logs of a partition, and the numbers of what was not kept, by path and code."""

    findings: tuple[Finding, ...]
    not_kept: Mapping[tuple[str, str], int]


class OutputFile(NamedTuple):
    """A file of the output, or the directory of a topic-partition where the output is a log.

    `name` is relative to the output where that is a folder. Topic-partition and offsets are None for a file with
    several partitions; the offsets, too, where it has no rows. `provisional`: the next run replaces it. `sources` are
    the paths of the log files that it comes from. `path` begins with that of the output.
    """

    name: str
    topic_partition: TopicPartition | None
    rows: int
    bytes: int | None
    first_offset: int | None
    last_offset: int | None
    sources: tuple[str, ...] = ()
    provisional: bool = False
    path: str = ""

    def below(self, output: str, *, is_folder: bool) -> "OutputFile":
        """The same file of the output at this path."""
        return self._replace(path=os.path.join(output, self.name) if is_folder else output)

    def fields(self) -> "Fields":
        of = self.topic_partition
        return {
            "name": self.name,
            "topic": None if of is None else of.topic,
            "partition": None if of is None else of.partition,
            "rows": self.rows,
            "bytes": self.bytes,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "provisional": self.provisional,
            "sources": self.sources,
        }


class LeftOutCounts(NamedTuple):
    """What of a partition is not in the output, and what of its records has changed.

    `aborted`, `undecided`: records of transactions. `damaged_ranges`, `damaged_bytes`: bytes in no valid batch.
    `repeated_batches`: valid batches that contradict others about their offsets. `deleted`: records below the log
    start offset.
    `control`: control batches that a log without transactions does not need. `unfit_timestamps`: timestamps that are
    null because they do not fit the column. `malformed`: keys and values with U+FFFD in place of malformed UTF-8.
    `not_json`: those that are null because they are not JSON text. `undecoded`: values that are null in the column
    value_json because they cannot be decoded.
    """

    aborted: int = 0
    undecided: int = 0
    damaged_ranges: int = 0
    damaged_bytes: int = 0
    repeated_batches: int = 0
    deleted: int = 0
    control: int = 0
    unfit_timestamps: int = 0
    malformed: int = 0
    not_json: int = 0
    undecoded: int = 0

    def plus(self, other: "LeftOutCounts") -> "LeftOutCounts":
        return LeftOutCounts(*map(sum, zip(self, other, strict=True)))

    def fields(self) -> "Fields":
        return self._asdict()


class PartitionConversion(NamedTuple):
    """What was converted of a topic-partition, in this run.

    `rows` of this run; `total_rows` of all runs into the same output, and so are the aborted and undecided records of
    `left_out`. `missing` are the offsets that this run should have had, in order, at most 1000 ranges. `next_offset`:
    where the next run goes on; None where there is no next one. `notes` are sentences about what the reader of the
    output has to know. `bytes`: of the segments of a new log, also of one that a dry run does
    not write; None of other targets.
    """

    topic_partition: TopicPartition | None
    path: str
    rows: int
    total_rows: int
    first_offset: int | None
    last_offset: int | None
    next_offset: int | None
    left_out: LeftOutCounts
    files: tuple[OutputFile, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int | None = None
    missing: tuple[MissingRecords, ...] = ()

    def fields(self) -> "Fields":
        of = self.topic_partition
        return {
            "topic": None if of is None else of.topic,
            "partition": None if of is None else of.partition,
            "rows": self.rows,
            "total_rows": self.total_rows,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "next_offset": self.next_offset,
            "left_out": self.left_out.fields(),
            "files": len(self.files),
            "bytes": self.bytes,
            "missing": [
                {"first_offset": each.first_offset, "last_offset": each.last_offset, "exact": each.exact}
                for each in self.missing
            ],
            "notes": self.notes,
        }


def merge_counts(of: "PreparedPartition", damaged_ranges: int, damaged_bytes: int) -> LeftOutCounts:
    """What is left out of a log that was merged from copies, whatever the output is, beside its damage."""
    return LeftOutCounts(
        damaged_ranges=damaged_ranges,
        damaged_bytes=damaged_bytes,
        repeated_batches=len(of.left_out),
        deleted=of.merged.deleted,
    )


def merge_notes(of: "PreparedPartition") -> Iterator[str]:
    """What the reader of a log that was merged from copies has to know."""
    merged = of.merged
    start = merged.log_start_offset
    if start and not merged.deleted and of.partition.offset[0] == start:
        yield f"the log start offset is {start}: records below it were deleted and are left out"
    if len(merged.replicas) == 1:
        return
    yield f"merged from {len(merged.replicas)} copies; the reference is {merged.replicas[0]}"
    if merged.errors:
        yield (
            f"{_files(len(merged.errors))} of a copy could not be read, and may have had other records, or a later "
            "history: with all copies readable, convert the partition again"
        )
    if merged.by_name:
        yield "copies without a topic id are matched by name only"
    for each in merged.superseded:
        yield (
            f"offsets {each.first_offset}..{each.last_offset} come from {each.replica}, which was cleaned less far:"
            f" {each.records} records that later ones with the same keys may have replaced"
        )
    if merged.high_watermark is None:
        yield "no high watermark is known: the last records may never have been committed"
    elif merged.above_high_watermark:
        above = merged.above_high_watermark
        yield f"{above} records are at or above the highest known high watermark {merged.high_watermark}"


def undecoded_note(undecoded: int, problem: str | None) -> Iterator[str]:
    """Why values are null in the column value_json, if any are."""
    if undecoded:
        values = "1 value" if undecoded == 1 else f"{undecoded} values"
        yield f"value_json: {values} cannot be decoded; the first: {problem}"


def _files(count: int) -> str:
    return "1 log file" if count == 1 else f"{count} log files"


class ConvertTotals:
    """Adds the values of a run up."""

    def __init__(self) -> None:
        self.partitions = self.rows = self.files = self.bytes = 0
        self.left_out = LeftOutCounts()
        self.findings: Counter[tuple[str, Severity]] = Counter()

    def add(self, value: "Converted") -> None:
        match value:
            case PartitionConversion():
                self.partitions += 1
                self.rows += value.rows
                self.left_out = self.left_out.plus(value.left_out)
                self.bytes += 0 if value.files or value.bytes is None else value.bytes
            case OutputFile():
                self.files += 1
                self.bytes += value.bytes or 0
            case ConvertFindings():
                self.findings.update((each.code, each.severity) for each in value.findings)
                severities = {(each.path, each.code): each.severity for each in value.findings}
                for of, count in value.not_kept.items():
                    self.findings[of[1], severities[of]] += count

    def summary(self, options: "ConvertOptions", output: str, *, interrupted: bool = False) -> "ConvertSummary":
        """The totals as a value."""
        return ConvertSummary(
            options.target.value,
            options.effective_isolation,
            output,
            options.dry_run,
            self.partitions,
            self.files,
            self.rows,
            self.bytes,
            free_bytes(output) if options.dry_run else None,
            self.left_out,
            dict(self.findings),
            interrupted,
        )

    @property
    def worst(self) -> Severity | None:
        return max((severity for (_, severity), count in self.findings.items() if count), default=None)


def free_bytes(output: str) -> int | None:
    """The bytes that are free where an output would be; None for standard output."""
    if output == "-":
        return None
    place = os.path.realpath(output)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    found = file_system_of(place)
    return None if found is None else found.free_bytes


class ConvertSummary(NamedTuple):
    """The totals of a run."""

    target: str
    isolation: str
    output: str
    dry_run: bool
    partitions: int
    files: int
    rows: int
    bytes: int
    free_bytes: int | None
    left_out: LeftOutCounts
    findings: Mapping[tuple[str, Severity], int]
    interrupted: bool = False

    def fields(self) -> "Fields":
        from kdump.verify.summary import counts_by

        return {
            "to": self.target,
            "isolation": self.isolation,
            "output": self.output,
            "dry_run": self.dry_run,
            "partitions": self.partitions,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "free_bytes": self.free_bytes,
            "left_out": self.left_out.fields(),
            "findings": counts_by(self.findings),
            "interrupted": self.interrupted,
        }


Converted = PartitionConversion | OutputFile | ConvertFindings | KdumpError
