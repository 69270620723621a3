"""The parts of a page about numbers: what takes the space, when it was written, and the rows as tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kdump.render.html.script_data import Column, Encoded, joined, script_json
from kdump.render.sentences import counted
from kdump.stat.rows import PartitionRow, RowKind, TopicRow

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue
    from kdump.render.html.budget import Budget
    from kdump.render.html.names import PathNames
    from kdump.stat.row_sections import RowSection, StatResult
    from kdump.stat.rows import DiskRow, LogDirectoryRow, Row, TotalRow

_MOST_KEYS: Final = 20
_MOST_DISKS: Final = 50
_MOST_BARS: Final = 48
_SECTION_BYTES: Final = 8 << 10
"""What the head of a section takes, and in the data of one the numbers that do not depend on how much was measured."""
_Columns = tuple[tuple[str, str, str], ...]
_SIZES: Final = (("bytes", "Bytes", "bytes"), ("allocated_bytes", "On disk", "bytes"), ("share", "Share", "share"))
_LOGS: Final = (
    ("records", "Records", "count"),
    ("batches", "Batches", "count"),
    ("growth.bytes_per_day", "Bytes a day", "bytes"),
    ("largest_timestamp", "Newest record", "time"),
    ("batch_sizes.p50", "Median batch", "bytes"),
    ("batch_sizes.p99", "99 % of batches", "bytes"),
    ("damage.bytes", "Damaged", "bytes"),
)
_OF_RETENTION: Final = (
    ("retention.deletes_bytes", "Deleted now", "bytes"),
    ("retention.next.segment.bytes", "Deleted next", "bytes"),
    ("retention.next.at_ms", "At", "time"),
    ("retention.held_back_bytes", "Held back", "bytes"),
    ("retention.blocker", "By", "text"),
)
_COLUMNS: Final[Mapping[RowKind, _Columns]] = {
    RowKind.LOG_DIRECTORY: (
        ("name", "Log directory", "text"),
        *_SIZES,
        ("partitions", "Partitions", "count"),
        ("volume_bytes", "File system", "bytes"),
        ("volume_used_bytes", "Used", "bytes"),
        ("volume_free_bytes", "Free", "bytes"),
        *_LOGS,
    ),
    RowKind.TOPIC: (("topic", "Topic", "text"), *_SIZES, ("partitions", "Partitions", "count"), *_LOGS),
    RowKind.PARTITION: (
        ("name", "Partition", "text"),
        *_SIZES,
        ("log_start_offset", "Log start", "offset"),
        ("log_end_offset", "Log end", "offset"),
        *_LOGS,
        *_OF_RETENTION,
    ),
    RowKind.SEGMENT: (
        ("name", "Segment", "text"),
        *_SIZES,
        ("first_offset", "First offset", "offset"),
        ("last_offset", "Last offset", "offset"),
        *_LOGS,
    ),
    RowKind.PRODUCER: (
        ("producer_id", "Producer id", "offset"),
        ("producer_epoch", "Epoch", "offset"),
        ("bytes", "Bytes", "bytes"),
        ("share", "Share", "share"),
        ("records", "Records", "count"),
        ("batches", "Batches", "count"),
        ("mean_batch_bytes", "Mean batch", "bytes"),
        ("first_timestamp", "First", "time"),
        ("last_timestamp", "Last", "time"),
    ),
    RowKind.CODEC: (
        ("codec", "Codec", "text"),
        ("bytes", "Bytes", "bytes"),
        ("share", "Share", "share"),
        ("records", "Records", "count"),
        ("batches", "Batches", "count"),
    ),
    RowKind.MAGIC: (
        ("magic", "Magic", "text"),
        ("bytes", "Bytes", "bytes"),
        ("share", "Share", "share"),
        ("records", "Records", "count"),
        ("batches", "Batches", "count"),
    ),
    RowKind.HOUR: (
        ("start_ms", "From", "time"),
        ("bytes", "Bytes", "bytes"),
        ("share", "Share", "share"),
        ("records", "Records", "count"),
        ("batches", "Batches", "count"),
    ),
    RowKind.GROUP: (
        ("group", "Group", "text"),
        ("lag", "Lag", "count"),
        ("lag_unknown", "Without lag", "count"),
        ("state", "State", "text"),
        ("group_type", "Type", "text"),
        ("last_commit_ms", "Last commit", "time"),
        ("expires_ms", "Expires", "time"),
        ("expired", "Expired offsets", "count"),
        ("pending", "Pending", "count"),
        ("ahead", "Ahead of the log", "count"),
        ("bytes", "Bytes", "bytes"),
    ),
    RowKind.GROUP_PARTITION: (
        ("group", "Group", "text"),
        ("topic", "Topic", "text"),
        ("partition", "Partition", "offset"),
        ("lag", "Lag", "count"),
        ("committed_offset", "Committed", "offset"),
        ("end_offset", "End", "offset"),
        ("commit_timestamp_ms", "Committed at", "time"),
        ("expires_ms", "Expires", "time"),
        ("state", "State", "text"),
    ),
}
_OF_NOW: Final = frozenset(("growth.bytes_per_day", "volume_bytes", "volume_used_bytes", "volume_free_bytes"))
"""What the clock, or another program, changes: a page that is to be reproducible has none of it."""
_GROUPS: Final = (RowKind.GROUP, RowKind.GROUP_PARTITION)
_TITLES: Final = {
    RowKind.LOG_DIRECTORY: "Log directories",
    RowKind.TOPIC: "Topics",
    RowKind.PARTITION: "Partitions",
    RowKind.SEGMENT: "Segments",
    RowKind.PRODUCER: "Producers",
    RowKind.CODEC: "Codecs",
    RowKind.MAGIC: "Magic",
    RowKind.HOUR: "Hours",
    RowKind.GROUP: "Consumer groups",
    RowKind.GROUP_PARTITION: "Partitions of the groups",
}


class StatPage:
    """The parts of a page about the numbers of a run; `budget` is that of the page."""

    def __init__(self, result: StatResult, names: PathNames, budget: Budget, *, show_keys: bool) -> None:
        self._result, self._names, self._show_keys = result, names, show_keys
        self._rest = budget

    def sections(self) -> list[Fields]:
        """The sections, in order. Each has an equal part of the bytes that the ones before it left."""
        result = self._result
        asked = [section for section in result.sections if section.kind in _GROUPS and section.rows]
        makers: list[Callable[[Budget], Fields | None]] = [partial(self._table, section) for section in asked]
        makers.append(self._overview)
        if result.log_directories:
            makers.append(self._disks)
        makers.append(self._heavy_keys)
        for section in result.sections:
            is_shown = result.is_overview and section.kind in (RowKind.CODEC, RowKind.MAGIC)  # as bars
            if section.rows and section not in asked and not is_shown:
                makers.append(partial(self._table, section))
        made = []
        for number, maker in enumerate(makers):
            part = self._rest.part(self._rest.left // (len(makers) - number))
            section_of = maker(part) if part.take(_SECTION_BYTES) else None
            made += [] if section_of is None else [section_of]
        return made

    def _overview(self, budget: Budget) -> Fields:
        result = self._result
        fields = result.total.fields()
        rate = script_json(fields["write_rate"])
        shown_rate = rate if budget.take(len(rate)) else None
        bars = [[low, high, count] for low, high, count in result.total.sums.totals.batch_sizes.bars(_MOST_BARS)]
        several: Fields = {
            "tiles": self._tiles(budget),
            "rate": shown_rate,
            "codecs": _volumes(fields["codecs"]),
            "magic": _volumes(fields["magic"]),
            "timestamp_types": _volumes(fields["timestamp_types"]),
            "batch_sizes": fields["batch_sizes"],
            "batch_size_bars": bars,
            "records_per_batch": fields["records_per_batch"],
        }
        text = added_by(result)
        return {
            "id": "space",
            "title": "What takes the space",
            "text": text,
            "data": {"tiles": self._tiles(budget), **several},
        }

    def _tiles(self, budget: Budget) -> Fields:
        """The partitions by topic, the largest first; the topics where there are no rows of partitions."""
        names = self._names
        rows: list[DiskRow] = [row for row in self._rows() if isinstance(row, PartitionRow)]
        rows = rows or [row for row in self._rows() if isinstance(row, TopicRow)]
        rows.sort(key=lambda row: -row.disk_bytes)
        tiles, topics = list[Encoded](), Column()
        for row in rows:
            topic = row.name if isinstance(row, TopicRow) else row.topic or "no topic"
            name = row.name if isinstance(row, TopicRow) else names.text(row.path or row.name)
            size = topics.size(topic)
            tile = script_json([topics.index(topic), name, row.disk_bytes])
            if not budget.take(size + len(tile.encode()) + 1):
                break
            tiles.append(tile)
        rest = rows[len(tiles) :]
        return {
            "topics": topics.texts,
            "tiles": joined(tiles),
            "rest": sum(row.disk_bytes for row in rest),
            "more": len(rest),
        }

    def _rows(self) -> Iterator[Row]:
        return (row for section in self._result.sections for row in section.rows)

    def _disks(self, budget: Budget) -> Fields:
        """The disks, those that are nearly full first."""
        rows = sorted(self._result.log_directories, key=lambda row: not row.is_nearly_full)
        disks = list[Encoded]()
        for row in rows[:_MOST_DISKS]:
            disk = script_json(_disk(row, self._names))
            if not budget.take(len(disk.encode()) + 1):
                break
            disks.append(disk)
        text = _hidden(len(rows) - len(disks), "log directory", "log directories")
        return {"id": "disks", "title": "Disks", "text": text, "data": joined(disks)}

    def _heavy_keys(self, budget: Budget) -> Fields | None:
        """The heaviest keys of the partitions whose keys were counted: partition, key, number, first offset."""
        found: list[tuple[int, str, Mapping[str, FieldValue]]] = []
        for row in self._rows():
            if isinstance(row, PartitionRow) and row.source.keys is not None:
                for each in _mappings(_at(row.fields(), "keys.by_bytes"))[:_MOST_KEYS]:
                    number = each["bytes"]
                    assert isinstance(number, int)
                    found.append((number, row.path or "", each))
        if not found:
            return None
        found.sort(key=lambda one: -one[0])
        keys = list[Encoded]()
        for number, path, each in found:
            shown = key_text(each["key"], each["key_size"], show_keys=self._show_keys)
            values = script_json([self._names.text(path), shown, number, each["offset"], bool(each["estimate"])])
            if not budget.take(len(values.encode()) + 1):
                break
            keys.append(values)
        how = (
            "Keys are shown as they are." if self._show_keys else "A key is shown as its length and hash: --show-keys."
        )
        text = f"{how} {_hidden(len(found) - len(keys), 'key')}".strip()
        return {"id": "keys", "title": "Heaviest keys", "text": text, "data": joined(keys)}

    def _table(self, section: RowSection, budget: Budget) -> Fields:
        kind = RowKind(section.kind)
        columns = [column for column in _COLUMNS[kind] if not self._names.reproducible or column[0] not in _OF_NOW]
        values: list[list[Encoded]] = [[] for _ in columns]
        for row in section.rows:
            several = [script_json(value) for value in _values(row, columns, self._names)]
            if not budget.take(sum(len(value.encode()) + 1 for value in several)):
                break
            for column, value in zip(values, several, strict=True):
                column.append(value)
        kept = [number for number, column in enumerate(values) if any(value != "null" for value in column)]
        hidden = section.hidden + len(section.rows) - len(values[0])
        return {
            "id": f"rows-{kind.value}",
            "title": _TITLES[kind],
            "text": _hidden(hidden, "row"),
            "data": {
                "columns": [list(columns[number]) for number in kept],
                "values": [joined(values[number]) for number in kept],
            },
        }


def _hidden(count: int, one: str, many: str | None = None) -> str:
    """What is said of rows that are not on the page; nothing where all are."""
    return (
        f"Not on this page: {counted(count, f'more {one}', many and f'more {many}')} (--top, --format json)."
        if count
        else ""
    )


def stat_tiles(total: TotalRow, *, reproducible: bool) -> Iterator[tuple[str, int | None, str]]:
    """The numbers at the head of the page: label, value, unit."""
    sums = total.sums
    yield "On disk", sums.allocated_bytes, "bytes"
    yield "Topics", total.topics, "count"
    yield "Partitions", total.partitions, "count"
    yield "Segments", sums.segments, "count"
    yield "Records", sums.totals.records, "count"
    if not reproducible:  # in the days before the run
        growth = total.growth
        yield "Written a day", None if growth is None else int(growth.bytes_per_day), "bytes"


def added_by(result: StatResult) -> str:
    """What other options would add to the page."""
    options = result.options
    added = []
    if not options.deep:
        added.append("--deep: the heaviest keys, sizes of records, tombstones, and whether every record can be read")
    if not options.wants_groups:
        added.append("--by group: consumer groups and their lag")
    if RowKind.PRODUCER not in options.by:
        added.append("--by producer: what each producer wrote")
    if not options.reports.retention:
        added.append("--retention: what a broker deletes next")
    return f"Not on this page: {'; '.join(added)}." if added else ""


def _volumes(volumes: FieldValue) -> list[FieldValue]:
    """The volumes that are not empty, as (name, bytes, records)."""
    assert isinstance(volumes, Mapping)
    named = ((name, each) for name, one in volumes.items() if isinstance(each := _object(one), Mapping))
    return [[name, each["bytes"], each["records_at_least"]] for name, each in named if each["batches"]]


def _disk(row: LogDirectoryRow, names: PathNames) -> Fields:
    system = None if names.reproducible else row.file_system  # others write to it, too
    return {
        "name": names.text(row.path or ""),
        "own": row.sums.allocated_bytes,
        "foreign": None if system is None else row.foreign_bytes,
        "used": None if system is None else system.used_bytes,
        "free": None if system is None else system.free_bytes,
        "full": system is not None and row.is_nearly_full,
    }


def _mappings(values: FieldValue) -> list[Mapping[str, FieldValue]]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return []
    several = map(_object, values)
    return [each for each in several if isinstance(each, Mapping)]


def _object(value: FieldValue) -> FieldValue:
    """The value; a NamedTuple as an object."""
    named: FieldValue = value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value
    return named


def key_text(key: FieldValue, size: FieldValue, *, show_keys: bool) -> str:
    """A key as the page shows it: its length and hash, or itself where it is asked for."""
    if key is None:
        return "null"
    data = key if isinstance(key, bytes) else os.fsencode(key) if isinstance(key, str) else b""
    if not show_keys:
        of = f"{counted(size, 'byte')}" if isinstance(size, int) else "key"
        return f"{of}, SHA-256 {sha256(data).hexdigest()[:16]}"
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        text = f"0x{data.hex()}"
    return text if size == len(data) else f"{text}… ({size!s} bytes)"


def _values(row: Row, columns: Sequence[tuple[str, str, str]], names: PathNames) -> list[FieldValue]:
    fields = row.fields()
    return [names.text(row.name) if name == "name" else _at(fields, name) for name, _, _ in columns]


def _at(fields: FieldValue, name: str) -> FieldValue:
    """A field, or one of a nested object, as `outer.inner`."""
    for part in name.split("."):
        fields = _object(fields)
        if not isinstance(fields, Mapping):
            return None
        fields = fields.get(part)
    return fields
