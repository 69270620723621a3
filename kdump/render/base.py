"""What every output format is: the class `Renderer`, one method for each kind of value, and the options of rendering.

A renderer formats. It gets values (batches, records, gaps, entries of companions, findings, summaries) and writes them
to its `Output`. It reads no file, and counts, sorts and decides nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from kdump.errors import if_unexpected
from kdump.render.escaping import Path
from kdump.render.output import Output

if TYPE_CHECKING:
    from kdump.convert.results import ConvertFindings, ConvertSummary, OutputFile, PartitionConversion
    from kdump.dump.events import (
        BatchRun,
        Event,
        IndexReport,
        IsolationNote,
        LogChange,
        MatchCount,
        NonConsecutiveOffsets,
        StderrEvent,
        StoredBytes,
    )
    from kdump.format.batch import Batch
    from kdump.format.internal_topics.decoded import DecodedRecord, RecordDecoder
    from kdump.format.json_types import Fields
    from kdump.format.naming import TopicPartition
    from kdump.format.value_schemas.value_decoder import ValueDecoder
    from kdump.kernel.internal_topic_text import MessageFormatter
    from kdump.kernel.lines import Lines
    from kdump.recover.plan import Action, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.render.undecoded import CountingDecoder
    from kdump.stat.row_sections import StatResult
    from kdump.stat.rows import Row
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.display import FindingDisplay, FoldedFindings
    from kdump.verify.findings import Finding
    from kdump.verify.summary import FileSummary, PartitionSummary, VerifySummary, WorstPartition

    DumpMessage: TypeAlias = "StderrEvent | StderrLine | Finding"
    """What the rendering of a dump gives back: what belongs on standard error, and findings, which it has rendered."""

HELD_BYTES = 1 << 20
"""So many bytes of details are kept until the verdict is known, which comes before them; above that they are written as
they come, and the verdict comes after them.
"""
_NOTHING: Mapping[tuple[str, str], int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How values are shown. Every format takes the options that it knows.

    `bytes_mode` is one of `kdump.render.escaping.BYTES_MODES`. `color` and `width` belong to the terminal; None leaves
    the choice to it. `records_only` leaves out the lines of valid batches. `deep_iteration`, `print_data_log` and
    `skip_record_metadata` are options of Kafka's dump tool and belong to the format `kafka` alone. `ascii_lines`: so
    are the lines and bars of the terminal. `display` says which findings are shown; without it all are. `totals`: stat
    shows the total too. `every_line`: the format hex shows all lines of a batch.

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
    display: FindingDisplay | None = None
    totals: bool = True
    every_line: bool = False
    template: str = ""
    null: bytes = b""
    separator: bytes = b"\n"
    decoded: bool = False

    def hides_batch(self, damage: str | None) -> bool:
        """Whether the line of a batch is left out. A damaged batch is always shown, since its records are missing."""
        return self.records_only and damage is None


class StderrLine(NamedTuple):
    """A line for standard error as it is; `failed` when it says that something could not be shown."""

    text: str
    failed: bool = False


class Renderer(ABC):
    """Writes values in one format. The calls come in the order of the bytes in the files."""

    decodes_again: ClassVar[bool] = False
    """Whether it may decode a record more than once, one record after the other."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        self.options = options
        self.out = Output(stream)
        self.decoder: RecordDecoder | None = None
        """That of the records of the last batch, where they are to be shown as messages."""
        self.counting_decoder: CountingDecoder | None = None
        """That of the records of the file."""
        self._formatters: dict[str, MessageFormatter] = {}
        self.aborted = False
        """Whether the transaction of the last batch is known to be aborted."""
        self.value_decoder: ValueDecoder | None = None
        """That of the records of the last batch, where they are to be shown as decoded values."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a closed pipe must not be written to again
        if not isinstance(error, BrokenPipeError):
            self.close()

    # ---- files

    def begin(self, path: Path) -> None:  # noqa: B027  # not every format shows it
        """A file begins: what follows up to `end` is in it."""

    def end(self, path: Path) -> None:  # noqa: B027
        """The file ends."""

    @abstractmethod
    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        """A record batch, or a message of magic 0 or 1.

        `damage` is the code of what is wrong with all of it. `crc_ok` says whether its CRC is right; it is None where
        the CRC was not computed.
        """

    @abstractmethod
    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        """Records of the last batch. May be called several times for one batch."""

    def batches(self, path: Path, topic: str | None, partition: int | None, run: BatchRun) -> int:
        """Adjacent batches with their records, as many as can be written at once; returns how many these are."""
        return 0

    def write_run(
        self, lines: Lines, run: BatchRun, head: bytes, batch_head: bytes | None, messages: MessageFormatter | None
    ) -> int:
        """Write the lines of a run (Lines.batches); returns how many batches these are."""
        walk, first = run.chunk.walk, run.first
        rows, window, after = walk.scanner.rows, walk.window, first
        while after < run.stop:
            begin = after
            text, after = lines.batches(rows, begin, run.stop, *window, head, batch_head, run.payload, messages)
            if after == begin:
                break
            self.out.write(text)
            del text  # so that its buffer is used again
        return after - first

    def messages(self, style: str) -> MessageFormatter | None:
        """What writes the records of the file as messages in the style `text` or `json`; None where they are none."""
        decoder = self.counting_decoder
        if decoder is None:
            return None
        found = self._formatters.get(decoder.topic)
        if found is None:
            from kdump.render.message_programs import message_formatter  # only internal topics need it

            found = message_formatter(decoder.tables, style, self.options.bytes_mode)
            self._formatters[decoder.topic] = found
        return found

    @abstractmethod
    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """Bytes between batches that are not a batch of this log."""

    @abstractmethod
    def tail(self, path: Path, tail: Tail) -> None:
        """Bytes after the last batch."""

    def stored(self, path: Path, stored: StoredBytes) -> None:  # noqa: B027  # only hex shows it
        """The bytes of the last batch, gap or tail."""

    @abstractmethod
    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        """An entry of a companion, or another line that is a name and values: `index_entry`, `producer`, `action` …"""

    def image_line(self, path: Path, kind: str, fields: Fields) -> None:
        """Something of a metadata image, in the order of a tree."""
        self.entry(path, kind, fields)

    def isolation_note(self, note: IsolationNote) -> Iterable[IsolationNote]:
        """Where a committed read ended; returned where it belongs on standard error."""
        return (note,)

    def change(self, change: LogChange) -> None:
        """What became of a log that is followed."""
        self.entry(change.path, change.kind, change.fields)

    # ---- what only Kafka's dump tool shows

    def trailing_bytes(self, path: Path, size_bytes: int) -> None:  # noqa: B027
        """Bytes at the end of a log file in which Kafka's readers find no batch."""

    def empty_index(self, path: Path) -> None:  # noqa: B027
        """An offset index has no entries."""

    def sanity_check_passed(self, path: Path) -> None:  # noqa: B027
        """An index passed its sanity check."""

    def report(self, report: IndexReport | NonConsecutiveOffsets) -> Iterable[StderrLine]:
        """The lines for standard error about differences between an index and its log, and about missing offsets."""
        return ()

    # ---- results of verify and recover

    def hold(self) -> None:  # noqa: B027  # a format for programs has no verdict before its lines
        """What comes until the summary is kept, up to a bound, so that the verdict can come before it."""

    def file(self, path: Path, summary: FileSummary) -> None:
        """A verified file, with its totals."""
        self.entry(path, "file", summary.fields())

    def partition(self, path: Path, summary: PartitionSummary) -> None:
        """A verified partition, with its totals and what a broker's next start would leave."""
        self.entry(path, "partition", summary.fields())

    def findings(
        self,
        findings: Iterable[Finding],
        not_kept: Mapping[tuple[str, str], int] = _NOTHING,
        show: Callable[[Finding], None] | None = None,
    ) -> None:
        """Findings in the order of path and position, shown by `finding` or by `show`.

        `not_kept` are the numbers of those that a verify counted and did not keep, by path and code.
        """
        from kdump.verify.display import FindingDisplay, FoldedFindings  # verify and recover have loaded it

        show = show or self.finding
        for item in (self.options.display or FindingDisplay()).shown(findings, not_kept):
            self.folded(item) if isinstance(item, FoldedFindings) else show(item)

    def folded(self, folded: FoldedFindings) -> None:  # noqa: B027
        """The number of the findings of a code and file that are not shown."""

    def worst(self, partitions: Sequence[WorstPartition], hidden: int) -> None:  # noqa: B027
        """The partitions with errors or warnings, the worst first; so many more are hidden."""

    @abstractmethod
    def finding(self, finding: Finding) -> None:
        """A finding, with the sentence of the catalogue."""

    def plan(self, fields: Fields) -> None:  # noqa: B027  # only a saved plan has to begin with it
        """The options and paths of a recovery."""

    def recovery(self, result: RecoveryResult) -> None:
        """A partition, with what a recovery would do or has done."""
        for action in result.plan.actions:
            self.action(action, result.plan.topic_partition)
        self.all_not_covered(result.plan.not_covered)
        self.findings(result.left)
        self.recovered(result)

    def action(self, action: Action, topic_partition: TopicPartition | None) -> None:  # noqa: B027
        """One action of a recovery."""

    def all_not_covered(self, findings: Iterable[Finding]) -> None:
        """The findings that a recovery leaves as they are."""
        self.findings(findings, show=self.not_covered)

    def not_covered(self, finding: Finding) -> None:
        """A finding that a recovery leaves as it is."""
        self.finding(finding)

    def recovered(self, result: RecoveryResult) -> None:  # noqa: B027
        """A partition as a whole, after its actions."""

    def run(self, result: RunResult) -> None:  # noqa: B027
        """What became, in one directory, of a run that was undone or resumed."""

    # ---- results of stat

    def statistics(self, result: StatResult) -> None:
        """The rows of a stat, and at last the total."""
        for section in result.sections:
            for row in section.rows:
                self.row(row)
        self.findings(*result.group_findings)
        if self.options.totals:
            self.row(result.total)

    def row(self, row: Row) -> None:
        """One row."""
        self.entry(row.path or "", row.kind, row.fields())

    # ---- conversions

    def converted(self, value: PartitionConversion | OutputFile | ConvertFindings) -> None:
        """What was converted of a partition, a file of the output, or what is wrong with the logs."""
        from kdump.convert.results import ConvertFindings, OutputFile

        match value:
            case ConvertFindings():
                self.findings(value.findings, value.not_kept)
            case OutputFile():
                self.output_file(value)
            case _:
                self.conversion(value)

    def output_file(self, file: OutputFile) -> None:  # noqa: B027  # the line of its partition says enough
        """A file of the output."""

    def conversion(self, value: PartitionConversion) -> None:
        """What was converted of a partition."""
        self.entry(value.path, "partition", value.fields())

    # The last value of a run is one of these four.

    def convert_summary(self, summary: ConvertSummary, exit_status: int, seconds: float) -> None:  # noqa: B027
        """The totals of a conversion."""

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:  # noqa: B027
        """The totals of a verify."""

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:  # noqa: B027
        """The totals of a recovery."""

    def undo_summary(self, start: RecoverySummary, exit_status: int, seconds: float) -> None:
        """The end of an undo: what a start does with the files, which are as they were before the run."""
        self.exit_summary("recover", exit_status, seconds)

    def exit_summary(self, command: str, exit_status: int, seconds: float) -> None:  # noqa: B027
        """The end of a run without totals: a dump, a stat, or a recovery that went on with earlier runs."""

    # ---- dumps

    def shows_raw(self, found: DecodedRecord, key: bytes | None) -> bool:
        """Whether a record is shown as it is because its decoder cannot decode it."""
        return found.problem is not None

    def show(self, events: Iterable[Event]) -> Iterator[DumpMessage]:
        """Render the events of a dump as they come. Yields what belongs on standard error, and findings."""
        # verify renders too, and does not load what only a dump needs
        from kdump.dump import events as dump_events
        from kdump.dump.events import (
            BatchEvent,
            BatchRun,
            CompanionDamage,
            CompanionEntry,
            DumpFailure,
            FileBegin,
            FileEnd,
            FollowNote,
        )
        from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail

        path, topic, partition, value_decoder = "", None, None, None
        counting: dict[str, CountingDecoder | None] = {}  # of the files that have not ended
        for event in events:
            try:
                match event:
                    case BatchEvent(batch, damage):
                        self.aborted = event.aborted
                        if not event.again:
                            self.batch(path, batch, damage, event.crc_ok)
                        self._choose_decoder(batch, batch.control or damage is not None, value_decoder)
                        for piece in event.records.pieces() if event.records is not None else ():
                            self.records(path, topic, partition, batch, piece)
                    case BatchRun():
                        event.taken = self.batches(path, topic, partition, event)
                    case FileBegin(file, topic_partition):
                        path, value_decoder = file.path, event.value_decoder
                        if event.decoder is not None and path not in counting:
                            counting[path] = self._counting(event.decoder)
                        self.counting_decoder = counting.get(path)
                        topic, partition = (None, None) if topic_partition is None else topic_partition
                        if not event.again:
                            self.begin(path)
                    case Gap() | ForeignBatch() | SearchLimit():
                        self.gap(path, event)
                    case Tail():
                        self.tail(path, event)
                    case dump_events.StoredBytes():
                        self.stored(path, event)
                    case FileEnd():
                        counting.pop(path, None)
                        yield from self._undecoded(path)
                        self.end(path)
                    case CompanionEntry(kind, fields):
                        self.entry(path, kind, fields)
                    case DumpFailure() | dump_events.NothingAtOffset() | CompanionDamage() | FollowNote():
                        yield event
                    case dump_events.IsolationNote():
                        yield from self.isolation_note(event)
                    case dump_events.IndexReport() | dump_events.NonConsecutiveOffsets():
                        yield from self.report(event)
                    case _:
                        self._show_line(event)
            except Exception as error:  # noqa: BLE001  # the next event may be of another file
                yield DumpFailure(if_unexpected(path, error))

    def _show_line(self, event: Event) -> None:
        """Render an event of which a dump has few, or none."""
        from kdump.dump import events as dump_events
        from kdump.verify.findings import Finding

        match event:
            case dump_events.ImageLine(path, kind, fields):
                self.image_line(path, kind, fields)
            case Finding():
                self.finding(event)
            case dump_events.RecordCount(count):
                self.record_count(count)
            case dump_events.MatchCount():
                self.match_count(event)
            case dump_events.LogChange():
                self.change(event)
            case dump_events.OutputFlush():
                self.flush()
            case dump_events.TrailingBytes():
                self.trailing_bytes(event.path, event.size_bytes)
            case dump_events.EmptyIndex():
                self.empty_index(event.path)
            case dump_events.SanityCheckPassed():
                self.sanity_check_passed(event.path)

    def record_count(self, records: int) -> None:
        """The number of records that a dump has found, in place of the records."""
        self.out.write(f"{records}\n")

    def match_count(self, count: MatchCount) -> None:  # noqa: B027  # records for other programs end with the last one
        """How many of the records that a dump compared are shown."""

    def flush(self) -> None:
        """Write everything that is buffered: the next value can come much later."""
        self.out.flush()

    def _choose_decoder(self, batch: Batch, is_raw: bool, value_decoder: ValueDecoder | None) -> None:
        """What decodes the records of a batch; nothing where they are `is_raw`."""
        if self.counting_decoder is not None:
            self.counting_decoder.batch = batch
        self.decoder, self.value_decoder = (None, None) if is_raw else (self.counting_decoder, value_decoder)

    def _undecoded(self, path: str) -> Iterator[Finding]:
        """Render and yield what is to be said of the records of a file that could not be decoded."""
        if self.counting_decoder is not None and (found := self.counting_decoder.finding(path)) is not None:
            self.finding(found)
            yield found

    def _counting(self, decoder: RecordDecoder | None) -> CountingDecoder | None:
        if decoder is None:
            return None
        from kdump.render.undecoded import CountingDecoder  # only internal topics need it

        return CountingDecoder(decoder, self.shows_raw, remembers=self.decodes_again)

    def close(self) -> None:
        """Write everything that is still buffered."""
        with self.out.release():
            pass
