"""Tables and trees for a person at a terminal, with rich (imported only here, when this format is asked for).

Batches and the entries of companions are tables, a batch with its records is a tree. A value is cut at the width of
the terminal; the format `text` shows all of it. Findings come at the end, the worst first, grouped by code. A recovery
has a table of actions for each partition, with sentences below it. Every text from a file or a file name passes
through `printable` and is never read as markup.
"""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from kdump.format.batch import NULL
from kdump.render.base import Renderer, RenderOptions
from kdump.render.escaping import Path, bytes_text, path_text, printable, quoted
from kdump.render.output import Output
from kdump.render.sentences import gap_reason, iso_time, partition_summary, read_summary, verify_summary
from kdump.render.text import control_word, words
from kdump.storage.records import records as values
from kdump.verify.findings import CATALOGUE, Finding, Severity

if TYPE_CHECKING:
    from kdump.format.batch import Batch
    from kdump.format.json_types import Fields
    from kdump.format.record import Record
    from kdump.recover.plan import RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.summary import FileSummary, PartitionSummary, VerifySummary

# a table or tree is laid out as a whole, so a long one comes in pieces
_ROWS = 500

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_BAD = "bold red"

_BATCH_COLUMNS = (
    "position",
    "size",
    "offsets",
    "count",
    "magic",
    "codec",
    "crc",
    "epoch",
    "max timestamp",
    "producer",
    "sequences",
    "",
)
_ACTION_COLUMNS = ("action", "file", "from", "to", "because", "bytes", "batches", "records", "offsets")
_LABELS = {
    "failed": _BAD,
    "refused": _BAD,
    "given up": "bold yellow",
    "damaged": "bold yellow",
    "committed": _BAD,
    "clean": "bold yellow",
    "clash": "yellow",
    "undecided": "yellow",
    "mind": "bold yellow",
    "next": "bold green",
}
_TEXT_COLUMNS = frozenset(
    (
        "action",
        "because",
        "file",
        "codec",
        "crc",
        "max timestamp",
        "",
        "reason",
        "error",
        "key",
        "value",
        "topic",
        "what",
    )
)


class _Sink(io.TextIOBase):
    """A text stream for rich in front of the buffered output that all renderers share."""

    def __init__(self, out: Output) -> None:
        self._out = out

    encoding = "utf-8"

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._out.terminal

    def write(self, text: str) -> int:
        self._out.write(text)
        return len(text)


class TerminalRenderer(Renderer):
    """Shows values as rich tables and trees."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._console = Console(
            file=cast(IO[str], _Sink(self.out)),
            width=options.width,
            force_terminal=options.color,
            no_color=None if options.color is None else not options.color,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )
        self._columns: tuple[str, ...] = ()
        self._rows: list[tuple[Text, ...]] = []
        self._batch: tuple[Path, int] | None = None
        self._findings: list[Finding] = []

    def begin(self, path: Path) -> None:
        self._flush_table()
        self._print(Text(path_text(path), style="bold"))

    def end(self, path: Path) -> None:
        self._flush_table()

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        if self.options.hides_batch(damage):
            return
        self._batch = (path, batch.position)
        self._row(_BATCH_COLUMNS, _batch_cells(batch, damage, crc_ok))

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        # the batch's row becomes the root of the tree
        root: Text | None = None
        if self._batch == (path, batch.position) and self._rows:
            cells = self._rows.pop()
            root = Text(" ").join(
                _labelled(name, cell) for name, cell in zip(_BATCH_COLUMNS, cells, strict=True) if cell.plain
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
            line.append("wrong crc ", style=_BAD)
        if batch.control:
            line.append(control_word(record.key, record.value), style="magenta")
            return line
        line.append(_clipped(record.key, mode, width), style="green")
        line.append(" ")
        line.append(_clipped(record.value, mode, width))
        for key, value in record.headers:
            if line.cell_len > width:
                break
            line.append(f" {_clipped(key, mode, width)}={_clipped(value, mode, width)}", style="cyan")
        return line

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        self._extent("gap", gap.position, gap.length, gap_reason(gap))

    def tail(self, path: Path, tail: Tail) -> None:
        self._extent("tail", tail.position, tail.length, tail.reason)

    def _extent(self, what: str, position: int, length: int, reason: str) -> None:
        self._flush_table()
        self._print(Text(f"{what} at position {position}: {length} bytes, {reason}", style=_BAD))

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        if kind == "read":
            from kdump.dump.events import ReadEntry

            self._flush_table()
            entry = ReadEntry._make(fields[name] for name in ReadEntry._fields)
            self._print(Text(printable(read_summary(entry)), style="dim"))
            return
        pairs = [word.partition("=") for word in words(fields, mode=self.options.bytes_mode)]
        names = (kind.replace("_", " "), *(name.replace("_", " ") for name, _, _ in pairs))
        self._row(tuple(printable(name) for name in names), [Text(), *(Text(value) for _, _, value in pairs)])

    def file(self, path: Path, summary: FileSummary) -> None:
        pairs = [word.partition("=") for word in words(summary.fields())]
        names = ("file", *(name.replace("_", " ") for name, _, _ in pairs))
        self._row(names, [Text(path_text(path)), *(Text(value) for _, _, value in pairs)])

    def partition(self, path: Path, summary: PartitionSummary) -> None:
        worst = max((severity for (_, severity), count in summary.counts.items() if count), default=None)
        style = "green" if worst is None else _STYLES[worst]
        self._print(Text.assemble((path_text(path), style), f"  {printable(partition_summary(summary))}"))

    def finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    def recovery(self, result: RecoveryResult) -> None:
        from kdump.render import recovery

        plan = result.plan
        said = list(recovery.sentences(result))
        if not (said or plan.actions or plan.not_covered):
            return
        self._print(Text(path_text(plan.path), style="bold"))
        for action in recovery.listed_actions(plan.actions):
            name = path_text(
                action.path if os.path.dirname(action.path) != plan.path else os.path.basename(action.path)
            )
            target = "" if action.target in (None, action.path) else f" → {path_text(action.target or '')}"
            offsets = "" if action.first_offset is None else f"{action.first_offset}..{action.last_offset}"
            numbers = (action.bytes, action.batches, action.records)
            self._row(
                _ACTION_COLUMNS,
                [
                    Text(action.action, style="bold"),
                    Text(f"{name}{target}"),
                    *(Text("" if at is None else str(at)) for at in (action.start, action.stop)),
                    Text(action.because or ""),
                    *(Text(str(number or "")) for number in numbers),
                    Text(offsets),
                ],
            )
        self._flush_table()
        table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
        table.add_column()
        table.add_column(overflow="fold", ratio=1)
        for label, sentence in said:
            table.add_row(Text(label, style=_LABELS.get(label, "dim")), Text(printable(sentence)))
        self._print(table)
        if plan.not_covered and not result.applied:  # else they are among those that are left
            self._print(Text(" not covered, and left as it is:"))
            self._show_findings(plan.not_covered, recovery.not_covered_words)
        if result.left:
            self._print(Text(" left after applying:"))
            self._show_findings(result.left, recovery.not_covered_words)
        self._print(Text())

    def run(self, result: RunResult) -> None:
        from kdump.render import recovery

        style = "bold" if result.error is None else _BAD
        words = printable(recovery.run_words(result))
        self._print(Text.assemble((path_text(result.run.directory), style), f"  {words}"))

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:
        self._last_line(verify_summary(summary), clean=summary.worst != Severity.ERROR)

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        self._last_line(recovery.verdict(summary), clean=not exit_status)

    def _last_line(self, sentence: str, *, clean: bool) -> None:
        self._flush_table()
        self._show_kept()
        self._print(Text(sentence, style="bold green" if clean else "bold red"))

    def close(self) -> None:
        self._flush_table()
        self._show_kept()
        super().close()

    def _show_kept(self) -> None:
        findings, self._findings = self._findings, []
        self._show_findings(findings)

    def _show_findings(self, findings: Iterable[Finding], say: Callable[[Finding], str] | None = None) -> None:
        """Findings, the worst first, with the sentence that `say` returns.

        Without `say` they have their own sentence, and what a recovery does about them.
        """
        groups: dict[tuple[Severity, str], list[Finding]] = {}
        for finding in findings:
            groups.setdefault((finding.severity, finding.code), []).append(finding)
        # sorted is stable: inside a severity the codes stay in the order of their first finding
        for (severity, code), group in sorted(groups.items(), key=lambda item: -item[0][0]):
            entry = CATALOGUE[code]
            title = Text()
            title.append(f"{severity.word} ", style=_STYLES[severity])
            title.append(code, style="bold")
            title.append(f"  {entry.title}  ")
            title.append(f"({len(group)})", style="dim")
            self._print(title)
            for start in range(0, len(group), _ROWS):
                table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=True)
                table.add_column(style="dim", overflow="fold")
                table.add_column(justify="right")
                table.add_column(overflow="fold", ratio=1)
                for finding in group[start : start + _ROWS]:
                    position = Text(str(finding.position))
                    table.add_row(
                        Text(path_text(finding.path)),
                        position,
                        Text(printable(say(finding) if say else finding.message)),
                    )
                self._print(table)
            if say is None:
                self._print(Text(f"  {entry.recover}", style="dim italic"))

    # --- tables -------------------------------------------------------------------------------------------------------

    def _row(self, columns: tuple[str, ...], cells: Sequence[Text]) -> None:
        if columns != self._columns or len(self._rows) >= _ROWS:
            self._flush_table()
            self._columns = columns
        self._rows.append(tuple(cells))

    def _flush_table(self) -> None:
        if not self._rows:
            return
        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in self._columns:
            table.add_column(Text(name), justify="left" if name in _TEXT_COLUMNS else "right", overflow="fold")
        for row in self._rows:
            table.add_row(*row)
        self._rows = []
        self._print(table)

    def _print(self, value: Text | Table | Tree) -> None:
        self._console.print(value)


def _batch_cells(batch: Batch, damage: str | None, crc_ok: bool | None) -> list[Text]:
    flags = Text()
    for word, style, there in (
        (damage or "", _BAD, damage is not None),
        ("transactional", "", batch.transactional),
        ("control", "magenta", batch.control),
        (f"delete horizon {iso_time(batch.delete_horizon_ms)}", "", batch.delete_horizon_ms is not None),
    ):
        if there:
            flags.append(word if not flags.plain else f" {word}", style=style)
    offsets = f"{batch.last_offset}" if batch.base_offset == NULL else f"{batch.base_offset}..{batch.last_offset}"
    crc = Text("unverified", "yellow") if crc_ok is None else Text("ok", "green") if crc_ok else Text("wrong", _BAD)
    no_producer = batch.producer_id == -1 and batch.producer_epoch == -1
    return [
        Text(str(batch.position)),
        Text(str(batch.size)),
        Text(offsets),
        Text("" if batch.count == NULL else str(batch.count)),
        Text(str(batch.magic)),
        Text(str(batch.codec_name)),
        crc,
        Text("" if batch.partition_leader_epoch == NULL else str(batch.partition_leader_epoch)),
        Text(iso_time(batch.max_timestamp)),
        Text("" if no_producer else f"{batch.producer_id}/{batch.producer_epoch}"),
        Text("" if batch.base_sequence == -1 else f"{batch.base_sequence}..{batch.last_sequence}"),
        flags,
    ]


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
