"""Reads a manifest: nothing in it is believed before its type and its bounds are checked."""

import os
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
from kdump.log.batch_location import DamagedRange

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

_BINARY_COLUMNS: Final = ("key", "value")
_MAX_RUN: Final = 64
_T = TypeVar("_T")


def read_manifest(data: bytes, path: str) -> Manifest:
    """The manifest in these bytes. Raises KdumpError where it is damaged, or of a later version."""
    number = 0
    try:
        body, _, end = data.removesuffix(b"\n").rpartition(b"\n")
        lines = [*body.split(b"\n"), end]
        if len(lines) < 2:
            raise CheckpointError("it ends before its last line")
        if (version := _LineFields(json_object(_ascii(lines[0]))).number("version")) != VERSION:
            raise CheckpointError(f"it is of version {version}, this kdump reads {VERSION}")
        last = _LineFields(json_object(_ascii(end)))
        if last.text("type") != "end" or last.number("crc32c") != crc32c(body + b"\n"):
            raise CheckpointError("its checksum is wrong")
        reading = _Reading(_LineFields(json_object(_ascii(lines[0]))))
        for number, line in enumerate(lines[1:-1], 2):  # noqa: B007  # for the message
            reading.add(_LineFields(json_object(_ascii(line))))
        return reading.manifest()
    except CheckpointError as error:
        where = f"line {number}: " if number else ""
        raise KdumpError(f"{path}: the manifest cannot be read: {where}{error}") from None


def _ascii(line: bytes) -> str:
    try:
        return line.decode("ascii")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"byte {error.start} of a line is no ASCII") from None


class _LineFields:
    """The fields of a JSON object, with their types. Methods raise CheckpointError."""

    def __init__(self, fields: "JsonObject") -> None:
        self._fields = fields

    def get(self, name: str) -> "JsonValue":
        try:
            return self._fields[name]
        except KeyError:
            raise CheckpointError(f"it has no field {name}") from None

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
            raise CheckpointError(f"{name} is no text: {quoted_json(value)}")
        return value

    def name(self, name: str) -> str:
        """A text that may be no valid UTF-8, as a path."""
        value = self.get(name)
        return os.fsdecode(_from_base64(name, value)) if isinstance(value, dict) else self.text(name)

    def optional(self, name: str, read: Callable[[str], _T]) -> _T | None:
        return None if self.get(name) is None else read(name)

    def fields(self, name: str) -> "_LineFields":
        if not isinstance(value := self.get(name), dict):
            raise CheckpointError(f"{name} is no object: {quoted_json(value)}")
        return _LineFields(value)

    def items(self) -> "Iterator[tuple[str, _LineFields]]":
        for name in self._fields:
            yield name, self.fields(name)

    def texts(self) -> Iterator[tuple[str, str]]:
        for name in self._fields:
            yield name, self.text(name)

    def values(self, name: str) -> "list[JsonValue]":
        if not isinstance(value := self.get(name), list):
            raise CheckpointError(f"{name} is no list: {quoted_json(value)}")
        return value

    def objects(self, name: str) -> "Iterator[_LineFields]":
        for value in self.values(name):
            if not isinstance(value, dict):
                raise CheckpointError(f"{name} has an entry that is no object: {quoted_json(value)}")
            yield _LineFields(value)


def _from_base64(name: str, value: "JsonValue") -> bytes:
    if isinstance(value, dict) and isinstance(text := value.get("base64"), str):
        try:
            return b64decode(text, validate=True)
        except ValueError:
            pass
    raise CheckpointError(f"{name} is no text and no base64: {quoted_json(value)}")


class _Reading:
    """Builds a manifest from its lines."""

    def __init__(self, head: _LineFields) -> None:
        if head.text("type") != "settings":
            raise CheckpointError("the first line has no settings")
        self._run = check_folder_id(head.text("run"))
        self._settings = _settings(head.fields("settings"))
        self._partitions: dict[PartitionKey, ConvertedPartition] = {}
        self._names: set[str] = set()
        self._files: list[ConvertedFile] = []
        self._findings: list[DamagedRange] = []
        self._left_out: list[LeftOut] = []
        self._last: ConvertedPartition | None = None

    def add(self, line: _LineFields) -> None:
        what = line.text("type")
        if what != "partition" and self._last is None:
            raise CheckpointError(f"a line {what} comes before the first partition")
        match what:
            case "partition":
                self._end_partition()
                self._last = _partition(line)
            case "file":
                self._files.append(self._file(line))
            case "finding":
                place = line.count("position"), line.count("length")
                self._findings.append(DamagedRange(line.name("path"), *place, line.text("code")))
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
        if last.key in self._partitions:
            raise CheckpointError("a topic-partition comes twice")
        self._partitions[last.key] = last._replace(
            files=tuple(self._files), findings=tuple(self._findings), left_out=tuple(self._left_out)
        )
        self._files, self._findings, self._left_out = [], [], []

    def manifest(self) -> Manifest:
        self._end_partition()
        return Manifest(self._run, self._settings, self._partitions)


def check_folder_id(run: str) -> str:
    """The id of a folder. Raises CheckpointError where it cannot be one."""
    if not (run.isascii() and run.isalnum() and len(run) <= _MAX_RUN):
        raise CheckpointError(f"{quoted_json(run)} is no id of a folder")
    return run


def check_file_name(name: str) -> str:
    """The name of a Parquet file in a folder, or in its partition folders. Raises CheckpointError for another one.

    A manifest that another process wrote must not make a run change files elsewhere.
    """
    *folders, base = name.split("/")
    is_ours = [folder.partition("=")[0] for folder in folders] in ([], ["topic", "partition"])
    if not is_ours or not base.endswith(".parquet") or base.startswith((".", "_")) or "\0" in name:
        raise CheckpointError(f"{quoted_json(os.fsencode(name).decode(errors='replace'))} is no name of a file")
    return name


def _settings(fields: _LineFields) -> ConversionSettings:
    columns = fields.values("columns")
    bounds = fields.values("time")
    if len(bounds) != 2:
        raise CheckpointError("time is no range")
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


def _partition(line: _LineFields) -> ConvertedPartition:
    topic = line.optional("topic", line.name)
    of = None if topic is None else TopicPartition(topic, line.count("partition"))
    batch = line.optional("last_batch", line.fields)
    identity = None
    if batch is not None:
        base = batch.optional("base_offset", batch.number)
        identity = BatchIdentity(base, batch.number("last_offset"), batch.number("crc"))
    return ConvertedPartition(
        of,
        line.name("path"),
        line.optional("first_offset", line.number),
        line.number("next_offset"),
        identity,
        line.optional("replica", line.name),
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
