"""What every output format is: the class `Renderer`, one interface for each command, and the options of rendering.

A renderer formats. It gets values (batches, records, gaps, entries of companions, findings, summaries) and writes them
to its `Output`. It reads no file, and counts, sorts and decides nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from kdump.named_tuple import NamedTuple
from kdump.render.escaping import Path
from kdump.render.output import Output

if TYPE_CHECKING:
    from kdump.convert.results import ConvertFindings, ConvertSummary, OutputFile, PartitionConversion
    from kdump.format.json_types import Fields
    from kdump.format.naming import TopicPartition
    from kdump.recover.plan import Action, Plan, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.replicas.compare import ComparisonSummary, PartitionComparison
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary
    from kdump.stat.row_sections import StatResult
    from kdump.stat.rows import Row
    from kdump.verify.display import FindingDisplay, FoldedFindings
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import LogMap
    from kdump.verify.summary import FileSummary, PartitionSummary, VerifySummary, WorstPartition

HELD_BYTES = 1 << 20
"""So many bytes of details are kept until the verdict is known, which comes before them; above that they are written as
they come, and the verdict comes after them.
"""
_NOTHING: Mapping[tuple[str, str], int] = {}


class PageOptions(NamedTuple):
    """What a page says of its run: the `paths` that were named, and the time `now_ms`.

    `reproducible`: it has neither times nor absolute paths, so that the same input gives the same page. `show_keys`: it
    shows keys of records, and not only their length and hash.
    """

    paths: tuple[str, ...] = ()
    now_ms: int = 0
    reproducible: bool = False
    show_keys: bool = False


class RenderOptions(NamedTuple):
    """How values are shown. Every format takes the options that it knows.

    `bytes_mode` is one of `kdump.render.escaping.BYTES_MODES`. `color` and `width` belong to the terminal; None leaves
    the choice to it. `records_only` leaves out the lines of valid batches. `deep_iteration`, `print_data_log` and
    `skip_record_metadata` are options of Kafka's dump tool and belong to the format `kafka` alone. `ascii_lines`: so
    are the lines and bars of the terminal. `display` says which findings are shown; without it all are. `totals`: stat
    shows the total too. `every_line`: the format hex shows all lines of a batch. `page` belongs to the format html.

    The others belong to the formats of records (kdump.render.record_renderer). `template` is that of the format
    template. `null` stands for a null key or value. `separator` comes after each value. `decoded`: records have the
    messages of internal topics too.
    """

    bytes_mode: str = "auto"
    color: bool | None = None
    width: int | None = None
    records_only: bool = False
    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    ascii_lines: bool = False
    display: "FindingDisplay | None" = None
    totals: bool = True
    every_line: bool = False
    template: str = ""
    null: bytes = b""
    separator: bytes = b"\n"
    decoded: bool = False
    page: PageOptions = PageOptions()

    def hides_batch(self, damage: str | None) -> bool:
        """Whether the line of a batch is left out. A damaged batch is always shown, since its records are missing."""
        return self.records_only and damage is None


class Renderer(ABC):
    """Writes values in one format. The calls come in the order of the bytes in the files.

    Each command has an interface of its own, which a format implements: VerifyRenderer, RecoveryRenderer, StatRenderer,
    ConversionRenderer, and DumpRenderer in a module of its own. Here is what they share.
    """

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        self.options = options
        self.out = Output(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a closed pipe must not be written to again
        if not isinstance(error, BrokenPipeError):
            self.close()

    @abstractmethod
    def entry(self, path: Path, kind: str, fields: "Fields") -> None:
        """An entry of a companion, or another line that is a name and values: `index_entry`, `producer`, `action` …"""

    def findings(
        self,
        findings: "Iterable[Finding]",
        not_kept: Mapping[tuple[str, str], int] = _NOTHING,
        show: "Callable[[Finding], None] | None" = None,
    ) -> None:
        """Findings in the order of path and position, shown by `finding` or by `show`.

        `not_kept` are the numbers of those that a verify counted and did not keep, by path and code.
        """
        from kdump.verify.display import FindingDisplay, FoldedFindings  # verify and recover have loaded it

        show = show or self.finding
        for item in (self.options.display or FindingDisplay()).shown(findings, not_kept):
            self.folded(item) if isinstance(item, FoldedFindings) else show(item)

    def folded(self, folded: "FoldedFindings") -> None:  # noqa: B027
        """The number of the findings of a code and file that are not shown."""

    @abstractmethod
    def finding(self, finding: "Finding") -> None:
        """A finding, with the sentence of the catalogue."""

    def hold(self) -> None:  # noqa: B027  # a format for programs has no verdict before its lines
        """What comes until the summary is kept, up to a bound, so that the verdict can come before it."""

    def exit_summary(self, command: str, exit_status: int, seconds: float) -> None:  # noqa: B027
        """The end of a run without totals: a dump, a stat, or a recovery that went on with earlier runs."""

    def flush(self) -> None:
        """Write everything that is buffered: the next value can come much later."""
        self.out.flush()

    def close(self) -> None:
        """Write everything that is still buffered."""
        with self.out.release():
            pass


class VerifyRenderer(Renderer):
    """The results of a verify."""

    def file(self, path: Path, summary: "FileSummary") -> None:
        """A verified file, with its totals."""
        self.entry(path, "file", summary.fields())

    def partition(self, path: Path, summary: "PartitionSummary") -> None:
        """A verified partition, with its totals and what a broker's next start would leave."""
        self.entry(path, "partition", summary.fields())

    def comparison(self, compared: "PartitionComparison") -> None:
        """The pairs of the copies of a topic-partition."""
        name = compared.topic_partition
        of: Fields = {"topic": name.topic, "partition": name.partition, "topic_id": compared.topic_id}
        evidence, steps = list(compared.evidence), compared.repair_steps()
        also: Fields = {"stale": compared.stale, "evidence": evidence}
        also = {**also, "unclean_elections": list(compared.unclean_elections), "steps": steps}
        for pair in compared.pairs:
            self.entry(pair.left, "comparison", {**of, **pair.fields(), **also})

    def comparison_summary(self, summary: "ComparisonSummary", exit_status: int, seconds: float) -> None:
        """The totals of a comparison of copies."""

    def fingerprint_summary(self, summary: "FingerprintSummary", exit_status: int, seconds: float) -> None:
        """What was written of a fingerprint."""

    def worst(self, partitions: "Sequence[WorstPartition]", hidden: int) -> None:
        """The partitions with errors or warnings, the worst first; so many more are hidden."""

    def verify_summary(self, summary: "VerifySummary", exit_status: int) -> None:
        """The totals of a verify."""


class RecoveryRenderer(Renderer):
    """What a recovery would do, or has done."""

    shows_maps = False
    """Whether it shows the maps of partitions: they are made only then."""

    def plan_map(self, plan: "Plan", of: "LogMap") -> None:
        """What lies where in a partition with errors or warnings, and what the plan removes of it."""

    def plan(self, fields: "Fields") -> None:  # only a saved plan has to begin with it
        """The options and paths of a recovery."""

    def recovery(self, result: "RecoveryResult") -> None:
        """A partition, with what a recovery would do or has done."""
        for action in result.plan.actions:
            self.action(action, result.plan.topic_partition)
        self.all_not_covered(result.plan.not_covered)
        self.findings(result.left)
        self.recovered(result)

    def action(self, action: "Action", topic_partition: "TopicPartition | None") -> None:
        """One action of a recovery."""

    def all_not_covered(self, findings: "Iterable[Finding]") -> None:
        """The findings that a recovery leaves as they are."""
        self.findings(findings, show=self.not_covered)

    def not_covered(self, finding: "Finding") -> None:
        """A finding that a recovery leaves as it is."""
        self.finding(finding)

    def recovered(self, result: "RecoveryResult") -> None:
        """A partition as a whole, after its actions."""

    def run(self, result: "RunResult") -> None:
        """What became, in one directory, of a run that was undone or resumed."""

    def recovery_summary(self, summary: "RecoverySummary", exit_status: int, seconds: float) -> None:
        """The totals of a recovery."""

    def undo_summary(self, start: "RecoverySummary", exit_status: int, seconds: float) -> None:
        """The end of an undo: what a start does with the files, which are as they were before the run."""
        self.exit_summary("recover", exit_status, seconds)


class StatRenderer(Renderer):
    """The rows of a stat."""

    def statistics(self, result: "StatResult") -> None:
        """The rows of a stat, and at last the total."""
        for section in result.sections:
            for row in section.rows:
                self.row(row)
        self.findings(*result.group_findings)
        if self.options.totals:
            self.row(result.total)

    def row(self, row: "Row") -> None:
        """One row."""
        self.entry(row.path or "", row.kind, row.fields())


class ConversionRenderer(Renderer):
    """What was converted."""

    def converted(self, value: "PartitionConversion | OutputFile | ConvertFindings") -> None:
        """What was converted of a partition, a file of the output, or what is wrong with the logs."""
        from kdump.convert.results import ConvertFindings, OutputFile

        match value:
            case ConvertFindings():
                self.findings(value.findings, value.not_kept)
            case OutputFile():
                self.output_file(value)
            case _:
                self.conversion(value)

    def output_file(self, file: "OutputFile") -> None:  # the line of its partition says enough
        """A file of the output."""

    def conversion(self, value: "PartitionConversion") -> None:
        """What was converted of a partition."""
        self.entry(value.path, "partition", value.fields())

    def convert_summary(self, summary: "ConvertSummary", exit_status: int, seconds: float) -> None:
        """The totals of a conversion."""
