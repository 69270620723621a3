"""The parts of a page about numbers: what takes the space, when it was written, and the rows as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from kdump.render.sentences import counted
from kdump.stat.rows import PartitionRow, RowKind, TopicRow, TotalRow

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue
    from kdump.render.html.names import PathNames
    from kdump.stat.row_sections import RowSection, StatResult
    from kdump.stat.rows import LogDirectoryRow, Row

_MOST_ROWS: Final = 5_000
"""So many rows of a kind are in its table."""
_MOST_TILES: Final = 8_000
_MOST_KEYS: Final = 20
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


def stat_sections(result: StatResult, names: PathNames, *, show_keys: bool) -> Iterator[Fields]:
    """The sections of a page about the numbers of a run."""
    asked = [section for section in result.sections if section.kind in _GROUPS and section.rows]
    yield from (_table(section, names) for section in asked)
    yield _overview(result, names)
    if result.log_directories:
        disks = [_disk(row, names) for row in result.log_directories]
        yield {"id": "disks", "title": "Disks", "text": "", "data": disks}
    keys = list(_heavy_keys(result, names, show_keys=show_keys))
    if keys:
        text = "Keys are shown as they are." if show_keys else "A key is shown as its length and hash: --show-keys."
        yield {"id": "keys", "title": "Heaviest keys", "text": text, "data": keys}
    for section in result.sections:
        is_shown = result.is_overview and section.kind in (RowKind.CODEC, RowKind.MAGIC)  # as bars
        if section.rows and section not in asked and not is_shown:
            yield _table(section, names)


def stat_tiles(total: TotalRow) -> Iterator[tuple[str, int | None, str]]:
    """The numbers at the head of the page: label, value, unit."""
    sums = total.sums
    yield "On disk", sums.allocated_bytes, "bytes"
    yield "Topics", total.topics, "count"
    yield "Partitions", total.partitions, "count"
    yield "Segments", sums.segments, "count"
    yield "Records", sums.totals.records, "count"
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


def _overview(result: StatResult, names: PathNames) -> Fields:
    fields = result.total.fields()
    return {
        "id": "space",
        "title": "What takes the space",
        "text": added_by(result),
        "data": {
            "tiles": _tiles(result, names),
            "rate": fields["write_rate"],
            "codecs": _volumes(fields["codecs"]),
            "magic": _volumes(fields["magic"]),
            "timestamp_types": _volumes(fields["timestamp_types"]),
            "batch_sizes": fields["batch_sizes"],
            "records_per_batch": fields["records_per_batch"],
        },
    }


def _volumes(volumes: FieldValue) -> list[FieldValue]:
    """The volumes that are not empty, as (name, bytes, records)."""
    assert isinstance(volumes, Mapping)
    named = ((name, each) for name, one in volumes.items() if isinstance(each := _object(one), Mapping))
    return [[name, each["bytes"], each["records_at_least"]] for name, each in named if each["batches"]]


def _tiles(result: StatResult, names: PathNames) -> Fields:
    """The partitions by topic, the largest first; the topics where there are no rows of partitions."""
    rows = [row for section in result.sections for row in section.rows if isinstance(row, PartitionRow)]
    if not rows:
        rows_of = [row for section in result.sections for row in section.rows if isinstance(row, TopicRow)]
        several: list[FieldValue] = [[row.name, row.name, row.disk_bytes] for row in rows_of[:_MOST_TILES]]
        return {"tiles": several, "rest": sum(row.disk_bytes for row in rows_of[_MOST_TILES:])}
    rows.sort(key=lambda row: -row.disk_bytes)
    tiles: list[FieldValue] = [
        [row.topic or "no topic", names.text(row.path or row.name), row.disk_bytes] for row in rows[:_MOST_TILES]
    ]
    return {"tiles": tiles, "rest": sum(row.disk_bytes for row in rows[_MOST_TILES:])}


def _disk(row: LogDirectoryRow, names: PathNames) -> Fields:
    system = row.file_system
    return {
        "name": names.text(row.path or ""),
        "own": row.sums.allocated_bytes,
        "foreign": row.foreign_bytes,
        "used": None if system is None else system.used_bytes,
        "free": None if system is None else system.free_bytes,
        "full": row.is_nearly_full,
    }


def _heavy_keys(result: StatResult, names: PathNames, *, show_keys: bool) -> Iterator[FieldValue]:
    """The heaviest keys of each partition whose keys were counted: partition, by what, key, number, share."""
    found: list[tuple[int, FieldValue]] = []
    for section in result.sections:
        for row in section.rows:
            if not isinstance(row, PartitionRow):
                continue
            by_bytes = _at(row.fields(), "keys.by_bytes")
            for each in _mappings(by_bytes)[:_MOST_KEYS]:
                number = each["bytes"]
                assert isinstance(number, int)
                shown = key_text(each["key"], each["key_size"], show_keys=show_keys)
                is_estimate = bool(each["estimate"])
                found.append((number, [names.text(row.path or ""), shown, number, each["offset"], is_estimate]))
    yield from (value for _, value in sorted(found, key=lambda one: -one[0])[:_MOST_ROWS])


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


def _table(section: RowSection, names: PathNames) -> Fields:
    kind = RowKind(section.kind)
    columns = _COLUMNS[kind]
    rows = [_values(row, columns, names) for row in section.rows[:_MOST_ROWS]]
    hidden = section.hidden + max(0, len(section.rows) - _MOST_ROWS)
    kept = [number for number in range(len(columns)) if any(row[number] is not None for row in rows)]
    return {
        "id": f"rows-{kind.value}",
        "title": _TITLES[kind],
        "text": f"{hidden} more rows are not on this page: --top, --format json" if hidden else "",
        "data": {
            "columns": [list(columns[number]) for number in kept],
            "values": [[row[number] for row in rows] for number in kept],
        },
    }


def _values(row: Row, columns: _Columns, names: PathNames) -> list[FieldValue]:
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
