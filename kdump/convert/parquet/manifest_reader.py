"""Reads a manifest: nothing in it is believed before its type and its bounds are checked."""

import os
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from kdump.convert.parquet.manifest import (
    VERSION,
    BatchIdentity,
    ColumnRange,
    ColumnValue,
    ConversionSettings,
    ConvertedFile,
    ConvertedPartition,
    LeftOut,
    Manifest,
    PartitionKey,
    SourceFile,
)
from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.format.text_files import CheckpointError, json_number, json_object, quoted_json
from kdump.kernel.crc import crc32c
from kdump.log.damage import DamagedRange
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Severity

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

_BINARY_COLUMNS: Final = ("key", "value")
_MAX_RUN: Final = 64
_END: Final = re.compile(rb'^\{"type": ?"end"[^\n]*\n?', re.MULTILINE)
"""The last line of a commit. JSON has no line breaks inside of strings."""
_PARTITION: Final = re.compile(rb'^\{"type": ?"(?:partition|removed)"', re.MULTILINE)
_T = TypeVar("_T")


class CommittedManifest(NamedTuple):
    """A manifest, and whether its file is as a run leaves it that ends: one commit, and nothing after it."""

    manifest: Manifest
    is_whole: bool


def read_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in these bytes. Raises KdumpError where it is damaged, or of a later version."""
    return read_commits(data, path).manifest


def read_commits(data: bytes, path: str) -> CommittedManifest:
    """The manifest after the last commit in these bytes. Raises as read_manifest.

    A commit that a run was killed in does not count. Damage to what was committed is no such commit.
    """
    number = size = commits = 0
    try:
        head = _LineFields(json_object(_ascii(data.partition(b"\n")[0])))
        if (version := head.number("version")) != VERSION:
            raise CheckpointError(f"it is of version {version}, this kdump reads {VERSION}")
        reading = _Reading(head)
        for start, stop, size in _commits(data):  # noqa: B007  # the last one
            lines = data[start:stop].splitlines()
            for line in lines if commits else lines[1:]:
                number += 1
                reading.add(_LineFields(json_object(_ascii(line))))
            number += 1
            commits += 1
            reading.commit()
        if not commits or (size < len(data) and not _is_unfinished(data[size:])):
            number = 0
            raise CheckpointError(
                "its checksum is wrong" if _END.search(data, size) else "it ends before its last line"
            )
        return CommittedManifest(reading.manifest(), commits == 1 and size == len(data) and data.endswith(b"\n"))
    except CheckpointError as error:
        where = f"line {number + 1}: " if number else ""
        raise KdumpError(f"{path}: the manifest cannot be read: {where}{error}") from None


def _commits(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The commits up to the first with a wrong checksum: where each begins, where its last line begins and ends."""
    start = crc = 0
    for end in _END.finditer(data):
        crc = crc32c(data[start : end.start()], crc)
        try:
            if _LineFields(json_object(_ascii(end[0]))).number("crc32c") != crc:
                return
        except CheckpointError:
            return
        yield start, end.start(), end.end()
        crc = crc32c(end[0], crc)
        start = end.end()


def _is_unfinished(tail: bytes) -> bool:
    """Whether bytes after the last commit are what a run left that was killed while it wrote the next one.

    That one is of one partition. Of what a run writes at once, parts can be missing, which are zeros then.
    """
    ends = _END.search(tail)
    is_complete = ends is not None and ends[0].endswith(b"}\n") and b"\0" not in tail
    return not is_complete and len(_PARTITION.findall(tail)) <= 1


def _ascii(line: bytes) -> str:
    try:
        return line.decode("ascii")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"byte {error.start} of a line is not ASCII") from None


class _LineFields:
    """The fields of a JSON object, with their types. Methods raise CheckpointError."""

    def __init__(self, fields: "JsonObject") -> None:
        self._fields = fields

    def get(self, name: str) -> "JsonValue":
        try:
            return self._fields[name]
        except KeyError:
            raise CheckpointError(f"it has no field {name}") from None

    def has(self, name: str) -> bool:
        return name in self._fields

    def number(self, name: str) -> int:
        return json_number(name, self.get(name), 64)

    def count(self, name: str) -> int:
        if (number := self.number(name)) < 0:
            raise CheckpointError(f"{name} is less than 0: {number}")
        return number

    def flag(self, name: str) -> bool:
        if not isinstance(value := self.get(name), bool):
            raise CheckpointError(f"{name} is neither true nor false: {quoted_json(value)}")
        return value

    def text(self, name: str) -> str:
        if not isinstance(value := self.get(name), str):
            raise CheckpointError(f"{name} is not a string: {quoted_json(value)}")
        return value

    def name(self, name: str) -> str:
        """A text that may be no valid UTF-8, as a path."""
        value = self.get(name)
        return os.fsdecode(_from_base64(name, value)) if isinstance(value, dict) else self.text(name)

    def optional(self, name: str, read: Callable[[str], _T]) -> _T | None:
        return None if self.get(name) is None else read(name)

    def fields(self, name: str) -> "_LineFields":
        if not isinstance(value := self.get(name), dict):
            raise CheckpointError(f"{name} is not an object: {quoted_json(value)}")
        return _LineFields(value)

    def items(self) -> "Iterator[tuple[str, _LineFields]]":
        for name in self._fields:
            yield name, self.fields(name)

    def texts(self) -> Iterator[tuple[str, str]]:
        for name in self._fields:
            yield name, self.text(name)

    def values(self, name: str) -> "list[JsonValue]":
        if not isinstance(value := self.get(name), list):
            raise CheckpointError(f"{name} is not a list: {quoted_json(value)}")
        return value

    def objects(self, name: str) -> "Iterator[_LineFields]":
        for value in self.values(name):
            if not isinstance(value, dict):
                raise CheckpointError(f"{name} has an entry that is not an object: {quoted_json(value)}")
            yield _LineFields(value)


def _from_base64(name: str, value: "JsonValue") -> bytes:
    if isinstance(value, dict) and isinstance(text := value.get("base64"), str):
        try:
            return b64decode(text, validate=True)
        except ValueError:
            pass
    raise CheckpointError(f"{name} is neither a string nor base64: {quoted_json(value)}")


class _Reading:
    """Builds a manifest from its lines."""

    def __init__(self, head: _LineFields) -> None:
        if head.text("type") != "settings":
            raise CheckpointError("the first line has no settings")
        self._run = check_folder_id(head.text("run"))
        self._settings = _settings(head.fields("settings"))
        self._partitions: dict[PartitionKey, ConvertedPartition] = {}
        self._names: set[str] = set()
        self._in_commit: set[PartitionKey] = set()
        self._files: list[ConvertedFile] = []
        self._findings: list[DamagedRange] = []
        self._left_out: list[LeftOut] = []
        self._last: ConvertedPartition | None = None

    def add(self, line: _LineFields) -> None:
        what = line.text("type")
        if what not in ("partition", "removed") and self._last is None:
            raise CheckpointError(f"a line {what} comes before the first partition")
        match what:
            case "partition":
                self._end_partition()
                self._last = _partition(line)
                self._replace(self._last.key)
            case "removed":
                self._end_partition()
                self._replace(_key(line))
            case "file":
                self._files.append(self._file(line))
            case "finding":
                place = line.count("position"), line.count("length")
                code, severity = line.text("code"), Severity.ERROR
                if line.has("severity"):  # versions before this one did not write it
                    severity = _severity(line.text("severity"))
                self._findings.append(DamagedRange(line.name("path"), *place, code, severity))
            case "left_out":
                offsets = (line.optional(name, line.number) for name in ("records", "first_offset", "last_offset"))
                self._left_out.append(LeftOut(line.text("why"), *offsets))
            case _:
                raise CheckpointError(f"a line of the unknown type {quoted_json(what)}")

    def _file(self, line: _LineFields) -> ConvertedFile:
        name = check_file_name(line.name("name"))
        if name in self._names:
            raise CheckpointError(f"the file {quoted_json(name)} comes twice")
        self._names.add(name)
        return ConvertedFile(
            name,
            line.count("rows"),
            line.count("bytes"),
            line.number("first_offset"),
            line.number("last_offset"),
            line.flag("provisional"),
            line.flag("is_sorted"),
            tuple(_column_range(column, fields) for column, fields in line.fields("columns").items()),
            tuple(_source(fields) for fields in line.objects("sources")),
        )

    def _end_partition(self) -> None:
        if (last := self._last) is None:
            return
        self._partitions[last.key] = last._replace(
            files=tuple(self._files), findings=tuple(self._findings), left_out=tuple(self._left_out)
        )
        self._files, self._findings, self._left_out = [], [], []
        self._last = None

    def _replace(self, key: PartitionKey) -> None:
        """What an earlier commit says of a partition counts no more."""
        if key in self._in_commit:
            raise CheckpointError("a topic-partition comes twice")
        self._in_commit.add(key)
        if (before := self._partitions.pop(key, None)) is not None:
            self._names.difference_update(file.name for file in before.files)

    def commit(self) -> None:
        """The lines so far are those of whole commits."""
        self._end_partition()
        self._in_commit.clear()

    def manifest(self) -> Manifest:
        return Manifest(self._run, self._settings, self._partitions)


def _severity(word: str) -> Severity:
    found = next((each for each in Severity if each.word == word), None)
    if found is None:
        raise CheckpointError(f"{quoted_json(word)} is not a severity")
    return found


def check_folder_id(run: str) -> str:
    """The id of a folder. Raises CheckpointError where it cannot be one."""
    if not (run.isascii() and run.isalnum() and len(run) <= _MAX_RUN):
        raise CheckpointError(f"{quoted_json(run)} is not the id of a folder")
    return run


def check_file_name(name: str) -> str:
    """The name of a Parquet file in a folder, or in its partition folders. Raises CheckpointError for another one.

    A manifest that another process wrote must not make a run change files elsewhere.
    """
    *folders, base = name.split("/")
    is_ours = [folder.partition("=")[0] for folder in folders] in ([], ["topic", "partition"])
    if not is_ours or not base.endswith(".parquet") or base.startswith((".", "_")) or "\0" in name:
        raise CheckpointError(f"{quoted_json(os.fsencode(name).decode(errors='replace'))} is not the name of a file")
    return name


def _settings(fields: _LineFields) -> ConversionSettings:
    columns = fields.values("columns")
    bounds = fields.values("time")
    if len(bounds) != 2:
        raise CheckpointError("time is not a range")
    first, stop = (None if bound is None else json_number("time", bound, 80) for bound in bounds)
    return ConversionSettings(
        tuple(str(column) for column in columns),
        fields.text("isolation"),
        (first, stop),
        fields.text("codec"),
        fields.optional("level", fields.number),
        fields.number("row_group_rows"),
        fields.number("row_group_bytes"),
        fields.optional("file_bytes", fields.number),
        fields.flag("partition_folders"),
        tuple(fields.fields("others").texts()),
    )


def _key(line: _LineFields) -> PartitionKey:
    topic = line.optional("topic", line.name)
    of = None if topic is None else TopicPartition(topic, line.count("partition"))
    return PartitionKey(of, line.optional("replica", line.name))


def _partition(line: _LineFields) -> ConvertedPartition:
    key = _key(line)
    batch = line.optional("last_batch", line.fields)
    identity = None
    if batch is not None:
        base = batch.optional("base_offset", batch.number)
        identity = BatchIdentity(base, batch.number("last_offset"), batch.number("crc"))
    return ConvertedPartition(
        key.topic_partition,
        line.name("path"),
        line.optional("first_offset", line.number),
        line.number("next_offset"),
        identity,
        key.replica,
        line.count("unfit_timestamps"),
        line.count("findings_dropped"),
    )


def _source(fields: _LineFields) -> SourceFile:
    base = fields.optional("base_offset", fields.number)
    return SourceFile(
        fields.name("path"), base, fields.count("size"), fields.number("last_offset"), fields.number("crc")
    )


def _column_range(name: str, fields: _LineFields) -> ColumnRange:
    def value(which: str) -> ColumnValue:
        found = fields.get(which)
        if name in _BINARY_COLUMNS and found is not None:
            return found.encode() if isinstance(found, str) else _from_base64(which, found)
        if isinstance(found, dict):
            return fields.name(which)
        if found is None or isinstance(found, bool | str):
            return found
        return json_number(which, found, 64)

    return ColumnRange(name, value("smallest"), value("largest"), fields.optional("nulls", fields.count))
