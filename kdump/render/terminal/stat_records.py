"""What opening the records showed, at a terminal: sizes, compression, keys, the heaviest keys, the largest records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from kdump.render.escaping import bytes_text, path_text
from kdump.render.measures import count_text, percent_text, short_size, size_text
from kdump.render.sentences import counted
from kdump.render.terminal.columns import ColumnRule
from kdump.render.terminal.tables import BAD, DOUBTFUL, table
from kdump.stat.distribution import distribution
from kdump.stat.records import RECORD_CODECS
from kdump.stat.rows import PartitionRow, TopicRow

if TYPE_CHECKING:
    from kdump.broker.cleaner.dirty_keys import CompactionSavings
    from kdump.kernel.estimate import Estimate
    from kdump.stat.histogram import Histogram
    from kdump.stat.key_summary import KeySummary
    from kdump.stat.keys import HeavyKey
    from kdump.stat.records import RecordStatistics
    from kdump.stat.row_sections import RowSection

_MOST: Final = 20
_KEY_COLUMNS: Final = 16
_KEYS: Final = (
    ColumnRule("partition", left=True, shortens=True),
    ColumnRule("keys"),
    ColumnRule("compaction drops"),
    ColumnRule("tombstones", 1),
    ColumnRule("heaviest key", 1, left=True),
    ColumnRule("its records", 1),
    ColumnRule("key with most bytes", 2, left=True),
    ColumnRule("its bytes", 2),
    ColumnRule("largest record", 3),
    ColumnRule("at offset", 3),
    ColumnRule("older than before", 4),
)
_PARTITIONERS: Final = (
    ColumnRule("topic", left=True, shortens=True),
    ColumnRule("keys", 1),
    ColumnRule("murmur2 (Java)"),
    ColumnRule("crc32 (librdkafka)"),
    ColumnRule("elsewhere", 1),
)


def record_lines(of: RecordStatistics) -> Iterator[tuple[str, Text]]:
    """Labels and texts for the summary."""
    if of.unread:
        yield "unread", Text(f"{counted(of.unread, 'batch', 'batches')} whose records cannot be read", style=BAD)
    keys = f"{_sizes(of.key_sizes)}; {count_text(of.null_keys)} null, {count_text(of.empty_keys)} empty"
    yield "keys", Text(f"{keys}; {count_text(of.tombstones)} tombstones")
    yield "values", Text(f"{_sizes(of.value_sizes)}{_shapes(of)}")
    ratios = [
        f"{name} {volume.ratio:.1f}×" for name, volume in zip(RECORD_CODECS, of.by_codec, strict=True) if volume.ratio
    ]
    yield "uncompressed", Text(f"{size_text(of.uncompressed_bytes)}: {', '.join(ratios)}")
    if of.headers:
        names = ", ".join(f"{bytes_text(one.name)} {count_text(one.occurrences)}" for one in of.header_keys.names()[:4])
        yield "headers", Text(f"{count_text(of.headers)} in {count_text(of.records_with_headers)} records: {names}")
    schemas = of.schemas.names()
    if schemas:
        names = ", ".join(f"{int.from_bytes(one.name, 'big')} ({count_text(one.occurrences)})" for one in schemas[:6])
        yield "schema ids", Text(names)


def _sizes(of: Histogram) -> str:
    found = distribution(of)
    if not found.count:
        return "none"
    middle, highest, most = (short_size(value or 0) for value in (found.p50, found.p99, found.maximum))
    about = "≈ " if found.estimate else ""
    return f"half up to {about}{middle}, 99 % up to {about}{highest}, at most {most}"


def _shapes(of: RecordStatistics) -> str:
    shapes = of.shapes._asdict()
    whole = sum(shape.records for shape in shapes.values())
    found = [f"{name} {percent_text(shape.records / whole)}" for name, shape in shapes.items() if shape.records]
    return f"; {', '.join(found)}" if found else ""


def record_pieces(sections: Sequence[RowSection], width: int, *, inside: bool) -> Iterator[Text | Table]:
    """The tables about keys: of the partitions and topics that are shown, with their names `inside` or their paths."""
    rows = [row for section in sections for row in section.rows]
    keyed = [row for row in rows if isinstance(row, PartitionRow) and row.source.keys is not None]
    cells = [
        [Text(path_text(row.inside if inside else row.path or "")), *_key_cells(row, row.source.keys)]
        for row in keyed[:_MOST]
        if row.source.keys is not None
    ]
    if cells:
        yield Text()
        yield Text("keys", style="bold")
        yield table(_KEYS, cells, width)
    topics = (row for row in rows if isinstance(row, TopicRow))
    fits = [_fit_cells(row) for row in topics if row.fit is not None and row.fit.keys and row.fit.partitions > 1]
    if fits:
        yield Text()
        yield Text("keys that are where the partitioner puts them", style="bold")
        yield table(_PARTITIONERS, fits[:_MOST], width)


def _key_cells(row: PartitionRow, keys: KeySummary) -> list[Text]:
    records = row.sums.records
    largest = records.largest[0] if records is not None and records.largest else None
    return [
        Text(_estimate(keys.distinct)),
        Text(_drops(keys.savings)),
        Text(_tombstones(keys)),
        *_heaviest(keys.by_records, count_text),
        *_heaviest(keys.by_bytes, short_size),
        Text("" if largest is None else short_size(largest.size)),
        Text("" if largest is None else str(largest.offset)),
        Text("" if records is None else count_text(records.timestamps.steps_back or None)),
    ]


def _drops(savings: CompactionSavings) -> str:
    """The records that a compaction of all segments drops, and their bytes."""
    records, size = savings.dropped_records, savings.dropped_bytes
    return f"{_estimate(records)}, {short_size(size.value)}" if records.value else _estimate(records)


def _tombstones(keys: KeySummary) -> str:
    live = keys.savings.live_tombstones
    return f"{count_text(keys.tombstones)}, {_estimate(live)} live" if keys.tombstones else "0"


def _heaviest(keys: Sequence[HeavyKey], text_of: Callable[[int], str]) -> tuple[Text, Text]:
    """The heaviest key, and its weight or at least so much of it."""
    if not keys:
        return Text(), Text()
    name, at_least = bytes_text(keys[0].key), "≥ " if keys[0].error else ""
    return (
        Text(name if len(name) <= _KEY_COLUMNS else f"{name[: _KEY_COLUMNS - 1]}…"),
        Text(f"{at_least}{text_of(keys[0].weight)}"),
    )


def _fit_cells(row: TopicRow) -> list[Text]:
    fit = row.fit
    assert fit is not None
    about = "≈ " if fit.estimate else ""
    return [
        Text(path_text(row.topic or "")),
        Text(f"{about}{count_text(fit.keys)}"),
        Text(about + percent_text(fit.murmur2 / fit.keys), "bold" if fit.partitioner == "murmur2" else ""),
        Text(about + percent_text(fit.crc32 / fit.keys), "bold" if fit.partitioner == "crc32" else ""),
        Text(str(len(fit.misplaced) or ""), DOUBTFUL),
    ]


def _estimate(of: Estimate) -> str:
    return f"{'≈ ' if of.estimate else ''}{count_text(of.value)}"
