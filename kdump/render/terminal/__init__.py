"""Tables and trees for a person at a terminal, with rich (imported only here, when this format is asked for).

Batches and the entries of companions are tables, a batch with its records is a tree. A value is cut at the width of
the terminal; the format `text` shows all of it. Findings come as partitions finish, below the path of their file, and
at the end a table of the worst partitions. A recovery has a table of actions for each partition, with sentences below
it. Every text from a file or a file name passes through `printable` and is never read as markup.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, Final, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from kdump.render.base import (
    HELD_BYTES,
    ConversionRenderer,
    RecoveryRenderer,
    RenderOptions,
    StatRenderer,
    VerifyRenderer,
)
from kdump.render.dump_renderer import DumpRenderer
from kdump.render.escaping import Path, bytes_text, path_text, printable, quoted, shortened
from kdump.render.output import Output
from kdump.render.sentences import (
    comparison_sentences,
    comparison_summary,
    copies_sentence,
    counted,
    finding_sentence,
    fingerprint_summary,
    folded_sentence,
    gap_reason,
    iso_time,
    match_sentence,
    partition_summary,
    read_summary,
    verify_summary,
    verify_verdict,
)
from kdump.render.terminal import tables
from kdump.render.terminal.columns import WIDE, ColumnRule
from kdump.render.terminal.tables import BAD, DOUBTFUL, entry_rules, time_text, without_zeros
from kdump.render.text import control_word
from kdump.render.words import words
from kdump.storage.records import records as values
from kdump.verify.findings import Severity

if TYPE_CHECKING:
    from kdump.convert.results import ConvertSummary, PartitionConversion
    from kdump.dump.events import LogChange, MatchCount
    from kdump.format.batch import Batch
    from kdump.format.json_types import Fields
    from kdump.format.record import Record
    from kdump.recover.plan import RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.render.image_tree import ImageTree
    from kdump.replicas.compare import ComparisonSummary, PartitionComparison
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary
    from kdump.stat.row_sections import StatResult
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.display import FoldedFindings
    from kdump.verify.findings import Finding
    from kdump.verify.summary import FileSummary, PartitionSummary, VerifySummary, WorstPartition

# a table or tree is laid out as a whole, so a long one comes in pieces
_ROWS = 500

_STYLES = {Severity.ERROR: BAD, Severity.WARNING: DOUBTFUL, Severity.INFO: "dim"}
_LABELS = {
    "broker": "bold",
    "lost": "bold",
    "do": "bold",
    "failed": BAD,
    "refused": BAD,
    "given up": f"bold {DOUBTFUL}",
    "damaged": f"bold {DOUBTFUL}",
    "committed": BAD,
    "clean": f"bold {DOUBTFUL}",
    "running": f"bold {DOUBTFUL}",
    "truncate": "bold",
    "salvage": "bold",
    "contradicting batches": DOUBTFUL,
    "undecided": DOUBTFUL,
    "before the start": f"bold {DOUBTFUL}",
    "copy only": f"bold {DOUBTFUL}",
}


_GUIDE = 4
"""The columns before a record in the tree of its batch."""
_COMMAND = "kdump "
"""So begin the sentences that are commands."""


_ASCII: Final = str.maketrans(
    {"≥": ">=", "≤": "<=", "→": "->"} | dict(zip("…≈×▏▎▍▌▋▊▉█▁▂▃▄▅▆▇", "~~x---=====_.:-=+*", strict=True))
)
"""What stands for the letters of bars and of shortened names in a locale that has ASCII alone."""


class _Sink(io.TextIOBase):
    """A text stream for rich in front of the buffered output that all renderers share.

    Of `encoding` rich makes the lines of tables and trees.
    """

    def __init__(self, out: Output, *, is_ascii: bool) -> None:
        self._out, self._is_ascii = out, is_ascii

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "ascii" if self._is_ascii else "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._out.terminal

    def write(self, text: str) -> int:
        self._out.write(text.translate(_ASCII) if self._is_ascii else text)
        return len(text)


class TerminalRenderer(DumpRenderer, VerifyRenderer, RecoveryRenderer, StatRenderer, ConversionRenderer):
    """Shows values as rich tables and trees."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._console = Console(
            file=cast(IO[str], _Sink(self.out, is_ascii=options.ascii_lines)),
            width=options.width,
            force_terminal=options.color,
            # Also where TERM says nothing of colours, as in a container.
            color_system="standard" if options.color else "auto",
            no_color=None if options.color is None else not options.color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
        self._rules: tuple[ColumnRule, ...] = ()
        self._rows: list[tuple[Text, ...]] = []
        self._kind = ""
        self._batch: tuple[Path, int] | None = None
        self._findings_of: Path | None = None
        self._is_cut = False  # whether a record did not fit in its line
        self._tree: ImageTree | None = None

    def begin(self, path: Path) -> None:
        self._flush_table()
        self._rules, self._kind = (), ""
        self._print_path(path)

    def end(self, path: Path) -> None:
        self._flush_table()

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        if self.options.hides_batch(damage):
            return
        self._batch = (path, batch.position)
        self._row(tables.BATCH, tables.batch_cells(batch, damage, crc_ok, aborted=self.aborted, wide=self._is_wide))

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        # the batch's row becomes the root of the tree
        root: Text | None = None
        if self._batch == (path, batch.position) and self._rows:
            cells = self._rows.pop()
            root = Text(" ").join(
                _labelled(rule.name, cell) for rule, cell in zip(tables.BATCH, cells, strict=True) if cell.plain
            )
        self._flush_table()
        self._batch = None
        left = values(batch, records)
        piece = list(islice(left, _ROWS))
        while piece or root is not None:
            tree = Tree(root if root is not None else Text(), hide_root=root is None, guide_style="dim")
            for record in piece:
                tree.add(self._record(batch, record))
            self._print(tree)
            root = None
            piece = list(islice(left, _ROWS))

    def _record(self, batch: Batch, record: Record) -> Text:
        mode = self.options.bytes_mode
        width = self._console.width
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{record.offset} ", style="bold")
        line.append(f"{iso_time(record.timestamp)} ", style="dim")
        if record.crc_ok is False:
            line.append("wrong crc ", style=BAD)
        if self.aborted:
            line.append("aborted ", style=DOUBTFUL)
        if batch.control:
            line.append(control_word(record.key, record.value), style=DOUBTFUL)
            return line
        if self.decoder is not None or self.value_decoder is not None:
            from kdump.render.decoded import decoded_words  # only what is decoded needs it

            line.append(decoded_words(self.decoder, self.value_decoder, record, mode))
            self._is_cut |= line.cell_len > width
            return line
        self._append_field(line, record.key, "bold")
        line.append(" ")
        self._append_field(line, record.value)
        for key, value in record.headers:
            if line.cell_len > width:
                break
            line.append(f" {_clipped(key, mode, width)}={_clipped(value, mode, width)}", style="dim")
        return line

    def _append_field(self, line: Text, data: bytes | None, style: str = "") -> None:
        """Add a key or value; its size first where it does not fit in the line."""
        shown = Text(_clipped(data, self.options.bytes_mode, self._console.width), style=style)
        if data is not None and line.cell_len + shown.cell_len > self._console.width - _GUIDE:
            self._is_cut = True
            line.append(f"{len(data):,} bytes ", style="dim")
        line.append_text(shown)

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        self._extent("gap", gap.position, gap.length, gap_reason(gap))

    def tail(self, path: Path, tail: Tail) -> None:
        self._extent("tail", tail.position, tail.length, tail.reason)

    def _extent(self, what: str, position: int, length: int, reason: str) -> None:
        self._flush_table()
        self._print(Text(f"{what} at position {position}: {length} bytes, {reason}", style=BAD))

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        if kind == "read":
            from kdump.dump.events import ReadEntry

            self._flush_table()
            entry = ReadEntry._make(fields[name] for name in ReadEntry._fields)
            self._print(Text(printable(read_summary(entry)), style="dim"))
            return
        pairs = [word.partition("=") for word in words(self._with_times(kind, fields), mode=self.options.bytes_mode)]
        rules = entry_rules([printable(name.replace("_", " ")) for name, _, _ in pairs])
        if rules != self._rules or kind != self._kind:
            self._flush_table()
            self._kind = kind
            self._rules = rules
            self._print(Text(printable(kind.replace("_", " ")), style="dim"))
        self._row(rules, [Text(value) for _, _, value in pairs])

    def image_line(self, path: Path, kind: str, fields: Fields) -> None:
        from kdump.render.image_tree import ImageTree

        if self._tree is None:
            self._tree = ImageTree(self.options.bytes_mode)
        for line in self._tree.lines(path, kind, fields):
            self._print(Text(line, style="bold" if not line.startswith((" ", "+", "-", "~")) else ""))

    def match_count(self, count: MatchCount) -> None:
        self._flush_table()
        self._print(Text(match_sentence(count), style="bold"))

    def change(self, change: LogChange) -> None:
        self._flush_table()
        self._print(Text(printable(change.message), style=BAD if change.kind == "truncated" else DOUBTFUL))

    def _with_times(self, kind: str, fields: Fields) -> Fields:
        """The fields of an entry with times for people in the place of milliseconds."""
        timestamp = fields.get("timestamp")
        if kind not in ("producer", "time_index_entry") or not isinstance(timestamp, int):
            return fields
        return {**fields, "timestamp": time_text(timestamp, wide=self._is_wide)}

    @property
    def _is_wide(self) -> bool:
        return self._console.width >= WIDE

    def file(self, path: Path, summary: FileSummary) -> None:
        values = ["" if value is None else str(value) for value in summary.fields().values()]
        self._row(tables.FILE, [Text(without_zeros(path_text(path))), *map(Text, values)])

    def partition(self, path: Path, summary: PartitionSummary) -> None:
        worst = max((severity for (_, severity), count in summary.counts.items() if count), default=None)
        style = "bold" if worst is None else _STYLES[worst]
        self._print(Text.assemble((path_text(path), style), f"  {printable(partition_summary(summary))}"))

    def finding(self, finding: Finding) -> None:
        self._show_finding(finding, finding_sentence(finding))

    def _show_finding(self, finding: Finding, sentence: str) -> None:
        self._flush_table()
        if finding.path != self._findings_of:
            self._print_path(finding.path)
            self._findings_of = finding.path
        head = Text(f"{finding.position:>10} ")
        head.append(finding.severity.word, style=_STYLES[finding.severity])
        head.append(f" {finding.code}", style="bold")
        if self._is_wide:
            line = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
            line.add_column(width=42, no_wrap=True)
            line.add_column(overflow="fold", ratio=1)
            line.add_row(head, Text(printable(sentence)))
            self._print(line)
        else:
            self._print(head)
            self._print(Padding(Text(printable(sentence)), (0, 0, 0, 11)))

    def folded(self, folded: FoldedFindings) -> None:
        if folded.first is not None:
            self.finding(folded.first)
        self._print(Padding(Text(printable(folded_sentence(folded)), style="dim"), (0, 0, 0, 11)))

    def worst(self, partitions: Sequence[WorstPartition], hidden: int) -> None:
        self._flush_table()
        self._findings_of = None
        if not partitions:
            return
        self._print(Text())
        for one in partitions:
            self._row(tables.WORST, tables.worst_cells(one))
        self._flush_table()
        if hidden:
            self._print(Text(f"{counted(hidden, 'more partition')} with errors or warnings", style="dim"))
        self._print(Text())

    def recovery(self, result: RecoveryResult) -> None:
        from kdump.render import recovery

        plan = result.plan
        said = list(recovery.sentences(result))
        if not (said or plan.actions or plan.not_covered):
            return
        self._print_path(plan.path)
        first, then = recovery.split(said)
        self._say(first)
        for action in recovery.listed_actions(plan.actions):
            self._row(tables.ACTION, tables.action_cells(action, plan.path))
        self._flush_table()
        self._say(then)
        if plan.not_covered and not result.applied:  # else they are among those that are left
            self._print(Text(" not covered, and left as it is:"))
            self._show_recovery_findings(plan.not_covered)
        if result.left:
            self._print(Text(" left after applying:"))
            self._show_recovery_findings(result.left)
        self._print(Text())

    def _say(self, said: Sequence[tuple[str, str]]) -> None:
        """Show labels with their sentences, and the commands among these unfolded after them."""
        from kdump.render import recovery

        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
        table.add_column()
        table.add_column(overflow="fold", ratio=1)
        for label, sentence in said:
            if sentence.startswith(_COMMAND):
                continue
            style = "dim" if recovery.is_reassuring(sentence) else _LABELS.get(label, "dim")
            table.add_row(Text(label, style=style), Text(printable(sentence)))
        if table.row_count:
            self._print(table)
        for label, sentence in said:
            if sentence.startswith(_COMMAND):
                self._print_command(f" {label}: ", sentence)

    def _show_recovery_findings(self, findings: Iterable[Finding]) -> None:
        from kdump.render import recovery

        self._findings_of = None
        self.findings(findings, show=lambda finding: self._show_finding(finding, recovery.not_covered_words(finding)))

    def run(self, result: RunResult) -> None:
        from kdump.render import recovery

        style = "bold" if result.error is None else BAD
        words = printable(recovery.run_words(result))
        self._print(Text.assemble((path_text(result.run.directory), style), f"  {words}"))

    def statistics(self, result: StatResult) -> None:
        from kdump.render.terminal.statistics import StatisticsView  # only stat needs it

        for piece in StatisticsView(result, self._console.width).pieces(self.options.totals):
            if isinstance(piece, Text) and piece.overflow == "ignore":  # a command to be copied
                self._console.print(piece, soft_wrap=True)
            else:
                self._print(piece)
        self.findings(*result.group_findings)

    def conversion(self, value: PartitionConversion) -> None:
        from kdump.render import conversions  # only a conversion needs it

        self._flush_table()
        self._print_path(value.path)
        self._findings_of = value.path
        for line in (conversions.partition_words(value), *(f"note: {printable(note)}" for note in value.notes)):
            self._print(Padding(Text(line), (0, 0, 0, 2)))

    def convert_summary(self, summary: ConvertSummary, exit_status: int, seconds: float) -> None:
        from kdump.render import conversions

        self._last_line(conversions.convert_summary(summary), clean=not exit_status)

    def hold(self) -> None:
        self.out.hold(HELD_BYTES)

    def _verdict(self, lines: Sequence[tuple[str, str]]) -> None:
        """Print the verdict before the details, where these are not printed."""
        self._flush_table()
        with self.out.release() as is_first:
            self._say(lines)
            if lines and is_first:
                self._print(Text())

    def comparison(self, compared: PartitionComparison) -> None:
        self._flush_table()
        name = compared.topic_partition
        for sentence in comparison_sentences(compared):
            self._print(Text(printable(f"{name.topic}-{name.partition}: {sentence}")))

    def fingerprint_summary(self, summary: FingerprintSummary, exit_status: int, seconds: float) -> None:
        self._last_line(printable(fingerprint_summary(summary)), clean=not summary.not_comparable)

    def comparison_summary(self, summary: ComparisonSummary, exit_status: int, seconds: float) -> None:
        self._last_line(comparison_summary(summary), clean=not summary.diverged)

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:
        self._verdict(verify_verdict(summary))
        self._last_line(verify_summary(summary), clean=summary.worst != Severity.ERROR)
        if (copies := copies_sentence(summary)) is not None:
            self._print(Text(copies))
        if summary.next is not None:
            self._print_next(summary.next)

    def undo_summary(self, start: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        self._verdict(recovery.verdict_lines(start))
        self._flush_table()
        if start.next is not None:
            self._print_next(start.next)

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        self._verdict(recovery.verdict_lines(summary))
        self._last_line(recovery.verdict(summary), clean=not exit_status)
        if summary.next is not None:
            self._print_next(summary.next)

    def _last_line(self, sentence: str, *, clean: bool) -> None:
        self._flush_table()
        self._print(Text(sentence, style="bold" if clean else BAD))

    def flush(self) -> None:
        self._flush_table()
        super().flush()

    def close(self) -> None:
        self._flush_table()
        if self._is_cut:
            hint = "lines that end in … are cut off; --format text in a pipe or a file shows all of them"
            self._print(Text(hint, style="dim"))
        super().close()

    # --- tables -------------------------------------------------------------------------------------------------------

    def _row(self, rules: tuple[ColumnRule, ...], cells: Sequence[Text]) -> None:
        if rules != self._rules or len(self._rows) >= _ROWS:
            self._flush_table()
            self._rules = rules
        self._rows.append(tuple(cells))

    def _flush_table(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._print(tables.table(self._rules, rows, self._console.width))

    def _print_path(self, path: Path) -> None:
        self._print(Text(shortened(path_text(path), self._console.width), style="bold", no_wrap=True))

    def _print_next(self, step: str) -> None:
        """Print what to do now, the last line."""
        if step.startswith(_COMMAND):
            self._print_command("next: ", step)
        else:
            self._print(Text(f"next: {printable(step)}", style="bold"))

    def _print_command(self, label: str, command: str) -> None:
        """Print a command to be copied: not folded, not even where it is wider than the terminal."""
        self._console.print(Text(f"{label}{printable(command)}", style="bold"), soft_wrap=True)

    def _print(self, value: Text | Table | Tree | Padding) -> None:
        self._console.print(value)


def _labelled(name: str, cell: Text) -> Text:
    line = Text(f"{name} " if name else "", style="dim")
    return Text.assemble(line, cell)


def _clipped(data: bytes | None, mode: str, width: int) -> str:
    """The beginning of a binary field, enough of it to fill a line."""
    if data is None or len(data) <= 4 * width or mode != "auto":
        return bytes_text(None if data is None else data[: 4 * width], mode)
    try:
        # the cut may fall inside a character, which the incremental decoder leaves out
        return quoted(codecs.getincrementaldecoder("utf-8")().decode(data[: 4 * width]))
    except UnicodeDecodeError:
        return bytes_text(data[: 4 * width], mode)
