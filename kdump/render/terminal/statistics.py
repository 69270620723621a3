"""What stat shows at a terminal: a summary, then for each kind of rows a table with bars, the biggest first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from kdump.render.escaping import path_text, printable, shortened
from kdump.render.measures import bar, count_text, percent_text, short_size, size_text, span_text, sparkline
from kdump.render.sentences import counted, iso_time
from kdump.render.terminal.columns import SHORTEST, WIDE, ColumnRule, packed
from kdump.render.terminal.stat_groups import group_pieces
from kdump.render.terminal.stat_records import record_lines, record_pieces
from kdump.render.terminal.stat_reports import report_pieces
from kdump.render.terminal.tables import BAD, table, time_text, without_zeros
from kdump.stat.group_rows import GROUP_KINDS
from kdump.stat.rows import (
    DiskRow,
    LogDirectoryRow,
    PartitionRow,
    Row,
    RowKind,
    SegmentRow,
    TopicRow,
    TotalRow,
    VolumeRow,
)

if TYPE_CHECKING:
    from kdump.stat.row_sections import RowSection, StatResult
    from kdump.stat.sums import Sums
    from kdump.stat.values import Damage, Volume

_LABEL_COLUMNS: Final = 14
_DAY_MS: Final = 86_400_000
_LAST_BUCKETS: Final = 24
"""The buckets of the write rate that the summary shows."""
_SPARSE: Final = 0.02
"""Files whose blocks are fewer by this share than their bytes are worth a word."""
_STRETCHES: Final = {
    "gap": "bytes between batches",
    "zeros": "zeros that no broker wrote",
    "torn": "an incomplete batch",
    "garbage": "bytes after the last batch",
    "crc": "a batch with a wrong checksum",
    "magic": "a batch with a wrong magic",
    "limit": "a batch larger than --max-batch-bytes",
    "codec": "a batch whose records cannot be decompressed",
    "records": "a batch whose records end early",
    "unsearched": "bytes that were not searched for batches",
    "shrunk": "bytes that are gone: the file became shorter",
}
"""What a terminal says of the reasons of kdump.stat.values.DamagedStretch."""
_SHOWN_STRETCHES: Final = 3


def _damage_lines(damage: Damage) -> Iterator[tuple[str, Text]]:
    """Labels and texts for the summary: how much is damaged, and where the first stretches are."""
    text = f"{counted(damage.count, 'stretch', 'stretches')}, {size_text(damage.bytes)} in no valid batch"
    yield "damage", Text(f"{text}; kdump verify --deep says more", style=BAD)
    for path, position, _, reason in damage.stretches[:_SHOWN_STRETCHES]:
        yield "", Text(f"{path_text(path)} at position {position}: {_STRETCHES[reason]}")


class StatisticsView:
    """Lays out the rows of a stat for a width in columns."""

    def __init__(self, result: StatResult, width: int) -> None:
        self._result, self._width, self._wide = result, width, width >= WIDE
        self._now_ms = result.total.now_ms
        self._directories = result.log_directories

    def pieces(self, totals: bool) -> Iterator[Text | Table]:
        """What is printed, in order; with `totals` the summary too."""
        result = self._result
        if totals:
            yield from self._summary(result.total)
        sections = result.tables(wide=self._wide)
        if totals and result.is_overview and len(self._directories) == 1:  # the summary has said it
            sections = tuple(section for section in sections if section.kind is not RowKind.LOG_DIRECTORY)
        for section in sections:
            yield from self._section(section)
        yield from record_pieces(sections, self._width, inside=result.only_directory is not None)
        yield from report_pieces(result, self._width)
        if totals:
            yield from self._last_words(result.total)

    # ---- the summary

    def _summary(self, total: TotalRow) -> Iterator[Text | Table]:
        sums = total.sums
        yield Text(
            f"{'interrupted, so far ' if total.interrupted else ''}{size_text(total.disk_bytes)} on disk: "
            + ", ".join(
                counted(number, word, many)
                for number, word, many in (
                    (total.log_directories, "log directory", "log directories"),
                    (total.topics, "topic", None),
                    (total.partitions, "partition", None),
                    (sums.segments, "segment", None),
                )
                if number
            ),
            style="bold",
        )
        lines = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        lines.add_column(style="dim", no_wrap=True)
        lines.add_column(overflow="fold", ratio=1)
        shown = list(self._summary_lines(total))
        room = self._width - max(len(label) for label, _ in shown) - 2
        for label, text in shown:
            lines.add_row(label, Text(packed(text.plain, room), style=text.style))
        yield lines

    def _summary_lines(self, total: TotalRow) -> Iterator[tuple[str, Text]]:
        sums, totals = total.sums, total.sums.totals
        if len(self._directories) == 1:
            yield "disk", self._disk(self._directories[0])
        yield "files", Text(", ".join(file_sizes(sums)))
        yield "records", Text(self._records(total))
        if totals.largest_timestamp is not None and totals.largest_timestamp >= 0:
            yield "written", self._times(total)
        if sums.transactions.count:
            found = sums.transactions
            words = [f"{found.committed} committed", f"{found.aborted} aborted", f"{found.open} open"]
            yield "transactions", Text(f"{found.count}: {', '.join(words)}")
        if sums.records is not None:
            yield from record_lines(sums.records)
        if sums.damage.count:
            yield from _damage_lines(sums.damage)

    def _disk(self, row: LogDirectoryRow) -> Text:
        """The one log directory, and how full the file system is."""
        words = _file_system(row) or "file system of unknown size"
        if row.foreign_bytes:
            words += f", {size_text(row.foreign_bytes)} of other files on it"
        path = shortened(path_text(row.path or ""), max(self._width - _LABEL_COLUMNS - len(words) - 2, SHORTEST))
        return Text(f"{path}: {words}", style=BAD if row.is_nearly_full else "")

    def _records(self, total: TotalRow) -> str:
        sums, totals = total.sums, total.sums.totals
        words = f"{count_text(totals.records, totals.records_at_least)} in {count_text(totals.batches)} batches"
        if totals.aborted_records:
            words += f"; {count_text(totals.aborted_records)} of them aborted"
        if totals.control_records:
            words += f"; {count_text(totals.control_records)} control records"
        if total.absent:
            words += f"; {count_text(total.absent)} of {count_text(sums.offset_span)} offsets have no record"
        if self._result.is_overview and not self._wide:
            return words  # the screen is for what takes the space
        mixes = self._mix(totals.by_codec, CODEC_NAMES), self._mix(totals.by_magic, MAGIC_NAMES)
        words += "".join(f"; {', '.join(mix)}" for mix in mixes if mix)
        return words

    def _times(self, total: TotalRow) -> Text:
        totals = total.sums.totals
        oldest, newest = totals.smallest_timestamp, totals.largest_timestamp or 0
        known = oldest is not None and oldest >= 0
        short = not self._wide and known and newest - (oldest or 0) > _DAY_MS
        bound = " or before (a header has the time of the first record)" if totals.smallest_is_bound else ""
        since, until = (_minute(time)[: 10 if short else None] for time in (oldest, newest))
        text = f"{since}{bound} to {until}" if known else until
        shown = total.rate.bytes[-_LAST_BUCKETS:]
        if any(shown):
            span = span_text(total.rate.bucket_ms * len(shown))
            line = f"{sparkline(shown, len(shown)).lstrip()} " if self._wide else ""
            text += f", {line}{size_text(sum(shown))} in the last {'day' if span == '1 d' else span}"
            if newest > total.now_ms:  # of what the future holds nothing was written
                text += f" up to {_minute(total.rate.end_ms)}"
        if newest > total.now_ms:
            text += "; the newest timestamp is in the future"
        return Text(text)

    def _mix(self, volumes: Sequence[Volume], names: Sequence[str]) -> list[str]:
        whole = sum(volume.bytes for volume in volumes)
        found = sorted(zip(volumes, names, strict=True), key=lambda pair: -pair[0].bytes)
        words = [f"{name} {percent_text(volume.bytes / whole)}" for volume, name in found if volume.bytes]
        return words if self._wide else words[:3]

    def _last_words(self, total: TotalRow) -> Iterator[Text]:
        if total.free is None and any(row.is_nearly_full for row in self._directories):
            yield Text("--free SIZE says which settings free space, and how much time of the data that costs", "bold")
        if total.is_damaged:
            return
        if total.deep and not total.interrupted:
            yield Text("every checksum and every record was checked: no damage")
        elif not total.deep and total.sums.totals.batches:
            yield Text("checksums were not checked; --deep checks them", style="dim")

    # ---- the tables

    def _section(self, section: RowSection) -> Iterator[Text | Table]:
        if not section.rows:
            return
        if section.kind in GROUP_KINDS:
            alone = RowKind.GROUP_PARTITION not in self._result.options.by
            yield from group_pieces(section, self._width, self._time, with_partitions=alone)
            return
        rules, largest = _RULES[section.kind], max(row.share for row in section.rows)
        yield Text()
        cells = [[self._cell(rule.name, row, largest) for rule in rules] for row in section.rows]
        yield table(rules, cells, self._width)
        if section.hidden:
            words = f"{counted(section.hidden, *_MORE[section.kind])} with {size_text(section.hidden_bytes)}"
            words += f"; --by {section.kind} --top N shows more"
            yield Text(words, style="dim")

    def _cell(self, column: str, row: Row, largest: float) -> Text:
        """A cell. The longest bar of a table is that of the row with the `largest` share."""
        if column == "share":
            share = row.share / largest if largest else 0.0
            return Text(f"{bar(share, 12 if self._wide else 8)} {percent_text(row.share):>6}")
        if isinstance(row, VolumeRow):
            return Text(self._volume_cell(column, row))
        assert isinstance(row, DiskRow)
        if column == "damage" and row.sums.damage.count:
            return Text(size_text(row.sums.damage.bytes), style=BAD)
        if column == "writes":
            return Text(sparkline(row.rate.bytes, 24))
        return Text(self._disk_cell(column, row))

    def _disk_cell(self, column: str, row: DiskRow) -> str:
        sums, totals = row.sums, row.sums.totals
        match column:
            case "disk":
                return short_size(row.disk_bytes)
            case "topic":
                return printable(row.topic or "")
            case "partition" | "segment" | "directory":
                return self._name(row)
            case "partitions":
                return _partitions(row)
            case "copies":
                return str(sums.copies) if isinstance(row, TopicRow) and row.source.copies > 1 else ""
            case "segments":
                return str(sums.segments or "")
            case "others":
                return short_size(sums.other_bytes) if sums.other_bytes > row.disk_bytes * _SPARSE else ""
            case "records":
                return count_text(totals.records, totals.records_at_least) if totals.batches else ""
            case "absent":
                return count_text(row.absent or None)
            case "offsets":
                return "" if row.first_offset is None else f"{row.first_offset}..{row.last_offset}"
            case "newest":
                return self._time(totals.largest_timestamp)
            case "oldest":
                return self._time(totals.smallest_timestamp)
            case "daily":
                return short_size(round(row.growth.bytes_per_day)) if row.growth and row.growth.bytes else ""
            case "codecs":
                return " ".join(self._mix(totals.by_codec, CODEC_NAMES)[:2])
            case "mean batch":
                return short_size(round(totals.batch_sizes.mean or 0)) if totals.batches else ""
            case "file system":
                return _file_system(row)
        return ""

    def _name(self, row: DiskRow) -> str:
        """The name of a file or directory: inside of the log directory where there is only one."""
        path = row.path or ""
        state = row.source.state if isinstance(row, PartitionRow) else None
        if isinstance(row, PartitionRow | SegmentRow) and self._result.only_directory is not None:
            path = row.inside
        elif isinstance(row, PartitionRow) and state:
            path = os.path.join(os.path.dirname(path), row.inside)
        name = path_text(without_zeros(path) if isinstance(row, SegmentRow) else path)
        return name + (f" ({_STATES[state]})" if state else "")

    def _volume_cell(self, column: str, row: VolumeRow) -> str:
        volume = row.volume
        match column:
            case "bytes":
                return short_size(volume.bytes)
            case "batches":
                return count_text(volume.batches)
            case "records":
                return count_text(volume.records, volume.records_at_least)
            case "mean batch":
                return short_size(round(volume.bytes / volume.batches)) if volume.batches else ""
            case "codec" | "magic" | "producer":
                return row.label
            case "from":
                return _bucket_text(int(row.label), row.own["bucket_ms"])
            case "epoch":
                return str(row.own["producer_epoch"])
            case "codecs":
                found = row.own["codecs"]
                return " ".join(map(str, found)) if isinstance(found, list) else ""
            case "first" | "last":
                time_ms = row.own[f"{column}_timestamp"]
                return self._time(time_ms if isinstance(time_ms, int) else None)
        return ""

    def _time(self, timestamp_ms: int | None) -> str:
        """A time; how long ago it was where the terminal is not wide."""
        if timestamp_ms is None or timestamp_ms < 0:
            return ""
        if self._wide:
            return _minute(timestamp_ms)
        ago = self._now_ms - timestamp_ms
        return f"{span_text(ago)} ago" if ago >= 0 else f"in {span_text(-ago)}"


_STATES: Final = {"delete": "being deleted", "stray": "stray", "future": "future"}
_MORE: Final[dict[RowKind, tuple[str, ...]]] = {
    RowKind.LOG_DIRECTORY: ("more log directory", "more log directories"),
    **{kind: (f"more {kind}",) for kind in RowKind if kind is not RowKind.LOG_DIRECTORY},
}
CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd", "other codecs")
MAGIC_NAMES: Final = ("magic 0", "magic 1", "magic 2")

_DISK: Final = (ColumnRule("disk"), ColumnRule("share", left=True))
_ENDS: Final = (
    ColumnRule("newest", 3),
    ColumnRule("oldest", 6),
    ColumnRule("damage"),
    ColumnRule("codecs", 7, left=True, wide=True),
    ColumnRule("writes", 8, left=True, wide=True),
)
_VOLUME: Final = (
    ColumnRule("bytes"),
    ColumnRule("share", left=True),
    ColumnRule("batches", 1),
    ColumnRule("records", 1),
    ColumnRule("mean batch", 2),
)
_RULES: Final = {
    RowKind.LOG_DIRECTORY: (
        ColumnRule("directory", left=True, shortens=True),
        *_DISK,
        ColumnRule("file system", 0, left=True),
        ColumnRule("daily", 1),
        ColumnRule("others", 1),
        ColumnRule("partitions", 3),
        ColumnRule("segments", 4),
        *_ENDS,
    ),
    RowKind.TOPIC: (
        ColumnRule("topic", left=True, shortens=True),
        *_DISK,
        ColumnRule("daily", 1),
        ColumnRule("others", 1),
        ColumnRule("partitions", 2),
        ColumnRule("copies", 3),
        ColumnRule("records", 2),
        ColumnRule("absent", 5),
        ColumnRule("segments", 4),
        ColumnRule("mean batch", 9, wide=True),
        *_ENDS,
    ),
    RowKind.PARTITION: (
        ColumnRule("partition", left=True, shortens=True),
        *_DISK,
        ColumnRule("daily", 1),
        ColumnRule("others", 1),
        ColumnRule("segments", 4),
        ColumnRule("records", 2),
        ColumnRule("absent", 5),
        ColumnRule("offsets", 9, wide=True),
        ColumnRule("mean batch", 10, wide=True),
        *_ENDS,
    ),
    RowKind.SEGMENT: (
        ColumnRule("segment", left=True, shortens=True),
        *_DISK,
        ColumnRule("records", 2),
        ColumnRule("offsets", 5),
        ColumnRule("mean batch", 9, wide=True),
        *_ENDS,
    ),
    RowKind.PRODUCER: (
        ColumnRule("producer"),
        ColumnRule("epoch", 6),
        *_VOLUME,
        ColumnRule("codecs", 3, left=True),
        ColumnRule("first", 5),
        ColumnRule("last", 4),
    ),
    RowKind.CODEC: (ColumnRule("codec", left=True), *_VOLUME),
    RowKind.MAGIC: (ColumnRule("magic"), *_VOLUME),
    RowKind.HOUR: (ColumnRule("from", left=True), *_VOLUME),
}


def _minute(timestamp_ms: int | None) -> str:
    """A time to the minute: `2026-11-21 18:03Z`."""
    text = iso_time(timestamp_ms)
    if text == "-":
        return "after 9999" if timestamp_ms is not None and timestamp_ms > 0 else text
    return f"{text[:10]} {text[11:16]}Z"


def _bucket_text(start_ms: int, bucket_ms: object) -> str:
    """Where a bucket begins; beyond the calendar its number of milliseconds, which tells it from others."""
    below_a_second = isinstance(bucket_ms, int) and bucket_ms % 1000 != 0
    text = time_text(start_ms, wide=below_a_second)
    return f"{start_ms} ms" if text == "-" else text


def _partitions(row: DiskRow) -> str:
    if isinstance(row, TopicRow):
        return str(len(row.source.partitions))
    return str(row.partitions) if isinstance(row, LogDirectoryRow) else ""


def _file_system(row: DiskRow) -> str:
    if not isinstance(row, LogDirectoryRow) or row.file_system is None:
        return ""
    found = row.file_system
    return f"{percent_text(found.used_share)} full, {short_size(found.free_bytes)} free"


def file_sizes(sums: Sums) -> Iterator[str]:
    """What kinds of files take how many bytes: the parts of the whole, and at last what of it takes no space."""
    zeros = f" ({size_text(sums.tail_zero_bytes)} of them preallocated)" if sums.tail_zero_bytes else ""
    yield f"logs {size_text(sums.log_bytes)}{zeros}"
    for name, size in (
        ("indexes", sums.companions_bytes),
        ("being deleted", sums.deleted_bytes),
        ("stray", sums.stray_bytes),
        ("future", sums.future_bytes),
        ("undo folders", sums.undo_bytes),
        ("beside the partitions", sums.root_bytes),
        ("others", sums.plain_bytes),
    ):
        if size:
            yield f"{name} {size_text(size)}"
    if sums.sparse_bytes > sums.size_bytes * _SPARSE:
        yield f"{size_text(sums.sparse_bytes)} of all is sparse and takes no space"
