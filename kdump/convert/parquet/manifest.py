"""The manifest of a folder of Parquet files: what was converted, from which files, and where the next run goes on.

`_manifest.jsonl` is JSON Lines. The `type` of a line says what it holds:

- `settings`, the first line: the version of the format, the id of the folder (`run`), and what decides the content of
  the files.
- `partition`: `next_offset`, where the next run goes on, and the last batch before it.
- `file`, after its partition: a Parquet file with rows, bytes, offsets, the range of each column, and the log files
  that its rows come from.
- `finding`, after its partition: bytes that are not a valid batch.
- `left_out`, after its partition: records that are in no file, and why.
- `removed`: what an earlier line says of a partition counts no more.
- `end`, after a commit: the CRC-32C of all bytes before it.

A run that ends leaves one commit. While a run works, each partition is a commit of its own at the end of the file; what
it says takes the place of what an earlier one says of the same partition. Bytes after the last `end` are of a commit
that was not completed, and do not count.

Fields are those of the values here. A binary field is a string when it is valid UTF-8, else `{"base64": "…"}`; so are
paths and topics. Timestamps are milliseconds since the epoch.
"""

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.format.naming import TopicPartition
from kdump.format.text_files import compact_json
from kdump.kernel.crc import crc32c
from kdump.log.damage import DamagedRange
from kdump.log.log_slice import EVERYTHING, Bounds
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

MANIFEST: Final = "_manifest.jsonl"
VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 1 << 30
KEPT_FINDINGS: Final = 1000
"""The most findings of one code and file that a manifest keeps."""

ColumnValue = int | str | bytes | bool | None


class ConversionSettings(NamedTuple):
    """What decides which rows a folder has, and how its files are laid out. All runs into a folder have the same.

    `row_group_rows` and `row_group_bytes`: a row group ends when it has as many. `file_bytes`: a file ends before a row
    group as large as its largest one would make it larger; None for no bound. `level` is that of the codec, None for
    its default. `others` are further settings of a run, by name.
    """

    columns: tuple[str, ...]
    isolation: str = "read-committed"
    time: Bounds = EVERYTHING
    codec: str = "zstd"
    level: int | None = None
    row_group_rows: int = 1 << 18
    row_group_bytes: int = 64 << 20
    file_bytes: int | None = None
    partition_folders: bool = False
    others: tuple[tuple[str, str], ...] = ()


class SourceFile(NamedTuple):
    """A log file that rows come from. `last_offset` and `crc` are those of its last batch then."""

    path: str
    base_offset: int | None
    size: int
    last_offset: int
    crc: int


class ColumnRange(NamedTuple):
    """What a Parquet file says of a column: its nulls, the smallest and the largest value; None where it does not."""

    name: str
    smallest: ColumnValue
    largest: ColumnValue
    nulls: int | None


class ConvertedFile(NamedTuple):
    """A Parquet file. `name` is relative to the folder. `provisional`: the next run replaces it.

    `is_sorted`: its rows are in the order of their offsets, as the file says itself.
    """

    name: str
    rows: int
    bytes: int
    first_offset: int
    last_offset: int
    provisional: bool = False
    is_sorted: bool = True
    columns: tuple[ColumnRange, ...] = ()
    sources: tuple[SourceFile, ...] = ()


class LeftOut(NamedTuple):
    """Records that are in no file.

    `why`: aborted (their transaction was), undecided (it is not known what became of it), damaged, superseded and so
    on. They lie in the offsets `first_offset` to `last_offset`, where that is known; `records` of them, None where that
    is not known.
    """

    why: str
    records: int | None
    first_offset: int | None = None
    last_offset: int | None = None


class BatchIdentity(NamedTuple):
    """What a batch is found again by. `base_offset` is None for a wrapper message."""

    base_offset: int | None
    last_offset: int
    crc: int


class PartitionKey(NamedTuple):
    """What a folder knows a partition by; `replica` is None where all of its copies are one."""

    topic_partition: TopicPartition | None
    replica: str | None = None


class ConvertedPartition(NamedTuple):
    """What a folder has of a topic-partition, which came from `path`.

    `topic_partition` is None for log files without one. `first_offset` is the offset from which on it was asked for,
    None for the first one. `next_offset`: records below it are in files that stay. `last_batch` is the last batch with
    records below it. `replica`: SlicedPartition.replica. `findings_dropped` is the number of those that are not kept.
    """

    topic_partition: TopicPartition | None
    path: str
    first_offset: int | None
    next_offset: int
    last_batch: BatchIdentity | None = None
    replica: str | None = None
    unfit_timestamps: int = 0
    findings_dropped: int = 0
    files: tuple[ConvertedFile, ...] = ()
    findings: tuple[DamagedRange, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def key(self) -> "PartitionKey":
        return PartitionKey(self.topic_partition, self.replica)


class Manifest(NamedTuple):
    """The manifest of a folder. `run` is the id of the folder, which its Parquet files have in their metadata."""

    run: str
    settings: ConversionSettings
    partitions: Mapping[PartitionKey, ConvertedPartition] = {}

    def in_order(self) -> "Manifest":
        """The same, in the same order whichever partition came first, or failed first."""
        return self._replace(partitions={of: self.partitions[of] for of in sorted(self.partitions, key=_order)})

    def file_names(self) -> set[str]:
        return {file.name for each in self.partitions.values() for file in each.files}


def _order(of: PartitionKey) -> tuple[str, int, str]:
    topic, partition = ("", -1) if of.topic_partition is None else of.topic_partition
    return topic, partition, of.replica or ""


# ---- writing


def manifest_bytes(manifest: Manifest) -> bytes:
    """The manifest as JSON Lines, in one commit."""
    return commit_bytes(_lines(manifest))


def commit_bytes(lines: "Iterable[JsonObject]", crc: int = 0) -> bytes:
    """The lines of a commit and its end, after bytes with this CRC-32C."""
    data = "".join(f"{compact_json(line)}\n" for line in lines).encode("ascii")
    return data + compact_json({"type": "end", "crc32c": crc32c(data, crc)}).encode("ascii") + b"\n"


def settings_fields(settings: ConversionSettings) -> "JsonObject":
    """The settings as a JSON object."""
    fields: JsonObject = {
        **settings._asdict(),
        "columns": list(settings.columns),
        "time": list(settings.time),
        "others": dict(settings.others),
    }
    return fields


def _lines(manifest: Manifest) -> "Iterator[JsonObject]":
    settings = settings_fields(manifest.settings)
    yield {"type": "settings", "version": VERSION, "run": manifest.run, "settings": settings}
    for each in manifest.partitions.values():
        yield from partition_lines(each)


def partition_lines(each: ConvertedPartition) -> "Iterator[JsonObject]":
    """The lines of a partition."""
    yield {
        "type": "partition",
        **_key_fields(each.key),
        "path": _text(each.path),
        "first_offset": each.first_offset,
        "next_offset": each.next_offset,
        "last_batch": None if each.last_batch is None else dict(each.last_batch._asdict()),
        "unfit_timestamps": each.unfit_timestamps,
        "findings_dropped": each.findings_dropped,
    }
    for file in each.files:
        yield {
            "type": "file",
            **file._asdict(),
            "name": _text(file.name),
            "columns": {
                name: {"smallest": _value(low), "largest": _value(high), "nulls": nulls}
                for name, low, high, nulls in file.columns
            },
            "sources": [{**source._asdict(), "path": _text(source.path)} for source in file.sources],
        }
    for finding in each.findings:
        of = {"path": _text(finding.path), "position": finding.position, "length": finding.length}
        yield {"type": "finding", **of, "code": finding.code, "severity": finding.severity.word}
    for left_out in each.left_out:
        yield {"type": "left_out", **left_out._asdict()}


def removal_lines(of: PartitionKey) -> "Iterator[JsonObject]":
    """The line that takes a partition away."""
    yield {"type": "removed", **_key_fields(of)}


def _key_fields(key: PartitionKey) -> "JsonObject":
    of = key.topic_partition
    return {
        "topic": None if of is None else _text(of.topic),
        "partition": None if of is None else of.partition,
        "replica": None if key.replica is None else _text(key.replica),
    }


def _binary(data: bytes) -> "JsonValue":
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _text(name: str) -> "JsonValue":
    return _binary(os.fsencode(name))


def _value(value: ColumnValue) -> "JsonValue":
    return _binary(value) if isinstance(value, bytes) else value


# ---- findings


def merged_findings(
    old: ConvertedPartition | None,
    found: Iterable[DamagedRange],
    read: Iterable[str],
    dropped: int = 0,
    is_before: Callable[[str, int], bool] = lambda *_: False,
) -> tuple[tuple[DamagedRange, ...], int]:
    """The findings of a partition after another run, and the number of those that are not kept.

    `found` are those of this run, beside `dropped` others; `read` are the paths of the files that it has read: what an
    earlier run found in these was found again, or is gone. What lies before the place where this run went on
    (`is_before`) stays: the folder has no record of it, whatever the file has now.
    """
    seen, paths, counts = set[DamagedRange](), set(read), dict[tuple[str, str], int]()
    kept = []
    before = (
        ()
        if old is None
        else (one for one in old.findings if one.path not in paths or is_before(one.path, one.position))
    )
    for one in (*before, *found):
        if one not in seen:
            seen.add(one)
            of = one.path, one.code
            counts[of] = counts.get(of, 0) + 1
            if counts[of] <= KEPT_FINDINGS:
                kept.append(one)
            else:
                dropped += 1
    return tuple(kept), dropped
