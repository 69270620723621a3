"""The tables of the terminal: their columns, and the cells of a row."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from kdump.broker.defaults import LATER_RELEASE
from kdump.kernel.results import NO_VALUE
from kdump.render.escaping import path_text, shortened
from kdump.render.sentences import WITH_COMPANIONS, iso_time, offsets_text
from kdump.render.terminal.columns import ColumnRule, fit

if TYPE_CHECKING:
    from kdump.format.batch import Batch
    from kdump.recover.plan import Action
    from kdump.verify.summary import WorstPartition

# Red and magenta can be read on a light and on a dark background. Yellow, green and cyan cannot on a light one, blue
# cannot on a dark one.
BAD: Final = "bold red"
DOUBTFUL: Final = "magenta"

BATCH: Final = (
    ColumnRule("position"),
    ColumnRule("size", 2),
    ColumnRule("offsets"),
    ColumnRule("count", 1),
    ColumnRule("magic", 4),
    ColumnRule("codec", 2, left=True),
    ColumnRule("crc", 0, left=True),
    ColumnRule("epoch", 5),
    ColumnRule("max timestamp", 3, left=True),
    ColumnRule("producer", 6),
    ColumnRule("sequences", 7),
    ColumnRule("", 0, left=True, shortens=True),
)
ACTION: Final = (
    ColumnRule("action", left=True),
    ColumnRule("file", left=True, shortens=True),
    ColumnRule("positions", 2),
    ColumnRule("because", 1, left=True),
    ColumnRule("bytes", 4),
    ColumnRule("batches", 6),
    ColumnRule("records", 5),
    ColumnRule("offsets", 3),
)
FILE: Final = (
    ColumnRule("file", left=True, shortens=True),
    ColumnRule("batches", 2),
    ColumnRule("records", 1),
    ColumnRule("bytes", 3),
    ColumnRule("valid bytes", 4),
    ColumnRule("findings", 0),
)
WORST: Final = (
    ColumnRule("partition", left=True, shortens=True),
    ColumnRule("errors", 0),
    ColumnRule("warnings", 0),
    ColumnRule("offsets", 2),
    ColumnRule("next start", 1, left=True),
    ColumnRule("codes", 3, left=True, wide=True),
)
_TEXT: Final = frozenset(("reason", "error", "key", "value", "topic", "what", "timestamp"))


def entry_rules(names: Sequence[str]) -> tuple[ColumnRule, ...]:
    """The columns of entries of a companion: the last ones go first; a key, or else a value, is shortened."""
    ranks = {name: number for number, name in enumerate(names)}
    # What identifies a producer or a transaction is said first; when, and where it stands, matters more than the rest.
    ranks.update({name: 1 for name in ("timestamp", "last offset", "current txn first offset") if name in ranks})
    cut = next((name for name in ("value", "topic", "key") if name in ranks), None)
    return tuple(ColumnRule(name, ranks[name], name in _TEXT, name == cut) for name in names)


def table(rules: Sequence[ColumnRule], rows: Sequence[Sequence[Text]], width: int) -> Table:
    """The rows as a table that fits `width`."""
    shown = fit(rules, [[cell.plain for cell in row] for row in rows], width)
    grid = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for index, size in shown:
        rule = rules[index]
        grid.add_column(Text(rule.name), justify="left" if rule.left else "right", width=size)
    for row in rows:
        grid.add_row(*(_cut(row[index], size) for index, size in shown))
    return grid


def _cut(cell: Text, width: int) -> Text:
    """The cell, shortened to a width. Of a name the end says more than the beginning."""
    if len(cell.plain) <= width:
        cell.no_wrap = True
        return cell
    return Text(shortened(cell.plain, width), cell.style, no_wrap=True)


def without_zeros(name: str) -> str:
    """The name or path of a file of a segment without the zeros before its number: `…449.log`."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + re.sub(r"(?<!\d)0{6,}(?=\d)", "…", file)


def batch_cells(batch: Batch, damage: str | None, crc_ok: bool | None, *, aborted: bool, wide: bool) -> list[Text]:
    """The cells of a batch; a time is shown to the second where the terminal is not `wide`."""
    flags = Text()
    for word, style, there in (
        (damage or "", BAD, damage is not None),
        ("transactional", "", batch.transactional),
        ("aborted", DOUBTFUL, aborted),
        ("control", DOUBTFUL, batch.control),
        (f"delete horizon {iso_time(batch.delete_horizon_ms)}", "", batch.delete_horizon_ms is not None),
    ):
        if there:
            flags.append(word if not flags.plain else f" {word}", style=style)
    is_unknown = batch.magic < 2 and batch.base_offset == NO_VALUE
    offsets = f"{batch.last_offset}" if is_unknown else f"{batch.base_offset}..{batch.last_offset}"
    crc = Text("unverified", DOUBTFUL) if crc_ok is None else Text("ok") if crc_ok else Text("wrong", BAD)
    no_producer = batch.producer_id == -1 and batch.producer_epoch == -1
    return [
        Text(str(batch.position)),
        Text(str(batch.size)),
        Text(offsets),
        Text("" if batch.count == NO_VALUE else str(batch.count)),
        Text(str(batch.magic)),
        Text(str(batch.codec_name)),
        crc,
        Text("" if batch.partition_leader_epoch == NO_VALUE else str(batch.partition_leader_epoch)),
        Text(time_text(batch.max_timestamp, wide=wide)),
        Text("" if no_producer else f"{batch.producer_id}/{batch.producer_epoch}"),
        Text("" if batch.base_sequence == -1 else f"{batch.base_sequence}..{batch.last_sequence}"),
        flags,
    ]


def time_text(timestamp_ms: int | None, *, wide: bool) -> str:
    """A time in UTC, with milliseconds where there is room."""
    text = iso_time(timestamp_ms)
    return text if wide or text == "-" else f"{text[:19]}Z"


def action_cells(action: Action, directory: str) -> list[Text]:
    """The cells of an action of a recovery in a directory."""
    inside = os.path.dirname(action.path) == directory
    name = without_zeros(path_text(os.path.basename(action.path) if inside else action.path))
    name = name.replace(WITH_COMPANIONS, " + companions")  # or a narrow table cuts off the number
    if action.target not in (None, action.path):
        name += f" → {without_zeros(path_text(os.path.basename(action.target or '')))}"
    whole = action.start is None and action.stop is None
    positions = "" if whole else f"{action.start or 0}-{'' if action.stop is None else action.stop}"
    offsets = "" if action.first_offset is None else f"{action.first_offset}..{action.last_offset}"
    return [
        Text(action.action, style="bold"),
        Text(name),
        Text(positions),
        Text(action.because or ""),
        *(Text(str(number or "")) for number in (action.bytes, action.batches, action.records)),
        Text(offsets),
    ]


def worst_cells(one: WorstPartition) -> list[Text]:
    """The cells of a partition with errors or warnings."""
    summary, outcome = one.summary, one.summary.outcome
    start = ""
    if outcome is not None:
        left = offsets_text(outcome.log_start_offset, outcome.log_end_offset)
        changes = outcome.log_end_offset != summary.log_end_offset
        start = "refuses" if outcome.refuses else f"leaves {left}" if changes else "keeps all offsets"
        if outcome.later_refusals and not outcome.refuses:
            start += f"; {LATER_RELEASE} refuses"
    codes = sorted({code for (code, severity), count in summary.counts.items() if count and severity})
    return [
        Text(path_text(one.path)),
        Text(str(one.errors), BAD if one.errors else ""),
        Text(str(one.warnings), DOUBTFUL if one.warnings else ""),
        Text(offsets_text(summary.log_start_offset, summary.log_end_offset)),
        Text(start),
        Text(" ".join(codes)),
    ]
