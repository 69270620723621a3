"""Writes the records of a topic-partition as Parquet files.

What is the same in all rows, and header keys, have a dictionary; keys and values have none, as a dictionary of them is
built and then thrown away. A row group is written from a table: ParquetWriter.write_batch would make one of every
record batch.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any, Final, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kdump.convert.constant_arrays import repeat_int64
from kdump.convert.field_formats import FieldFormat, FieldFormats
from kdump.convert.output_file import OutputRefused
from kdump.convert.parquet.manifest import ColumnRange, ColumnValue, ConversionSettings, ConvertedFile, settings_fields
from kdump.convert.tables import LARGEST_DATA, output_schema
from kdump.convert.value_texts import ValueTexts
from kdump.errors import KdumpError, reason
from kdump.format.naming import TopicPartition, as_utf8
from kdump.format.text_files import compact_json
from kdump.kernel.crc import crc32c
from kdump.log.isolation import Isolation
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle, write_all

RUN_KEY: Final = b"kdump.run"
"""The key of the id of the folder in the metadata of a Parquet file."""
SETTINGS_KEY: Final = b"kdump.settings"
OF_A_PARTITION: Final = ("topic", "partition")
PROVISIONAL: Final = ".provisional"
SUFFIX: Final = ".parquet"

PARQUET_CODECS: Final = ("none", "snappy", "gzip", "lz4", "zstd", "brotli")
_DICTIONARIES: Final = (
    *OF_A_PARTITION,
    *("timestampType", "magic", "codec", "transactional", "control"),
    *("partition_leader_epoch", "producer_id", "producer_epoch"),
)
_HEADER_KEYS: Final = "headers.list.element.key"
_DELTAS: Final = ("offset", "timestamp", "timestamp_ms", "position", "batch_offset", "sequence")
_BY_OFFSET: Final = ("offset", "ascending")
_PAGE_ROWS: Final = 1024
_PAGE_BYTES: Final = 1 << 20
_BUFFER_BYTES: Final = 1 << 20
_OF_ANY_SIZE: Final = ("key", "value", "headers", "value_json")
_LARGE_VALUE_BYTES: Final = 4 << 20
"""A row group with a larger one has no statistics of these columns: for them Arrow makes six copies of it. It would not
write them: in statistics a value has at most 4096 bytes.
"""
_LARGEST_BASE: Final = 180
"""The most bytes that topic and partition have in the name of a file, whose offsets and suffixes follow."""
# What Spark escapes in the names of partition folders (ExternalCatalogUtils).
_ESCAPED: Final = frozenset([*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\{[]^\x7f"])
_NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"


class WrittenFile(NamedTuple):
    """A Parquet file that has its name only after a rename; `file` is what the manifest will say of it."""

    temporary: str
    file: ConvertedFile


# ---- names


def folder_of_partition(of: TopicPartition | None) -> str:
    """The partition folder of a topic-partition, as Spark names it."""
    topic, partition = (_NULL_FOLDER, _NULL_FOLDER) if of is None else (_escaped(as_utf8(of.topic)), str(of.partition))
    return f"topic={topic}/partition={partition}"


def _escaped(name: str) -> str:
    return "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in name) or _NULL_FOLDER


def parquet_name(
    of: TopicPartition | None,
    first: int,
    last: int,
    *,
    provisional: bool,
    again: int = 0,
    replica: str | None = None,
) -> str:
    """The name of a Parquet file: topic, partition, first and last offset.

    A long topic is cut, with its CRC-32C after it. Readers of folders pass over names that begin with a dot or an
    underscore, as internal topics do: these get a tilde, which no topic has; so has the CRC-32C of `replica`. `again`
    counts the files before with the same name.
    """
    base = "log" if of is None else as_utf8(f"{of.topic}-{of.partition}")
    if len(data := base.encode()) > _LARGEST_BASE:
        cut = data[:_LARGEST_BASE].decode("utf-8", "ignore")
        base = f"{cut}~{crc32c(data):08x}"
    if replica is not None:
        base = f"{base}~{crc32c(os.fsencode(replica)):08x}"
    if base.startswith((".", "_")):
        base = f"~{base}"
    number = f"-{again}" if again else ""
    return f"{base}-{first:020d}-{last:020d}{number}{PROVISIONAL if provisional else ''}{SUFFIX}"


def temporary_prefix(run: str) -> str:
    """How the names begin of what a run makes for itself in the folder with this id."""
    return f"_kdump-{run}-"


# ---- schemas


def stream_columns(settings: ConversionSettings) -> tuple[str, ...]:
    """The columns that a writer takes: those of the files, and `offset`."""
    return settings.columns if "offset" in settings.columns else (*settings.columns, "offset")


def file_schema(settings: ConversionSettings) -> pa.Schema:
    """The schema of the files, without metadata. Raises ValueError where no column would be in them."""
    absent = OF_A_PARTITION if settings.partition_folders else ()
    if absent and not set(absent) <= set(settings.columns):
        raise ValueError("partition folders need the columns topic and partition")
    # A dictionary type would come back as one in pyarrow alone.
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in (formats_of(settings).schema.field(name) for name in settings.columns)
        if field.name not in absent
    ]
    if not fields:
        raise ValueError("partition folders need a column beside topic and partition")
    return pa.schema(fields)


def formats_of(settings: ConversionSettings, texts: ValueTexts | None = None) -> FieldFormats:
    """The formats of keys and values; `texts` make the column value_json."""
    others = dict(settings.others)
    keys, values = (FieldFormat(others.get(name, FieldFormat.BINARY)) for name in ("keys", "values"))
    return FieldFormats(output_schema(stream_columns(settings)), keys, values, texts)


def check_settings(settings: ConversionSettings) -> None:
    """Raises ValueError for settings that do not fit."""
    file_schema(settings)
    if settings.isolation not in get_args(Isolation):
        raise ValueError(f"isolation {settings.isolation!r} is not one of {', '.join(get_args(Isolation))}")
    if min(settings.row_group_rows, settings.row_group_bytes, settings.file_bytes or 1) < 1:
        raise ValueError("row groups and files need a size of at least 1")
    if settings.codec not in PARQUET_CODECS:
        raise ValueError(f"codec {settings.codec!r} is not one of {', '.join(PARQUET_CODECS)}")
    try:
        pa.Codec(settings.codec, compression_level=settings.level) if settings.codec != "none" else None
    except (ValueError, NotImplementedError, pa.ArrowException) as error:
        raise ValueError(f"codec {settings.codec!r}: {error}") from None


# ---- one file


class _FileSink:
    """What Arrow writes to. After `abandon` nothing is written: Arrow writes a footer even where a writer is dropped,
    and the descriptor may be that of another file then.
    """

    closed = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self.written = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._descriptor is not None:
            write_all(self._descriptor, view)
            self.written += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.written

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        self._descriptor = None


class _OpenFile:
    """A Parquet file that is being written under a temporary name."""

    def __init__(
        self,
        directory: DirectoryHandle,
        temporary: str,
        schema: pa.Schema,
        settings: ConversionSettings,
        *,
        is_sorted: bool,
        row_bytes: int,
        has_large: bool,
    ) -> None:
        self.temporary, self.has_large = temporary, has_large
        self.rows = self.first = self.last = 0
        self._largest_group = 0
        self._metadata: list[Any] = []
        with ExitStack() as stack:
            self._sink = _FileSink(stack.enter_context(directory.create(temporary)))
            stack.callback(self._sink.abandon)
            # Without a buffer each page, 30 KiB with a codec, would be a call of Python and of the system.
            self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
            self._writer = pq.ParquetWriter(
                self._buffer,
                schema,
                compression=settings.codec.upper(),
                compression_level=settings.level,
                use_dictionary=[*(name for name in schema.names if name in _DICTIONARIES), _HEADER_KEYS],
                column_encoding={name: "DELTA_BINARY_PACKED" for name in schema.names if name in _DELTAS},
                sorting_columns=pq.SortingColumn.from_ordering(schema, [_BY_OFFSET]) if is_sorted else None,
                write_statistics=_without_large(schema) if has_large else True,
                # The size of a page is looked at once in so many rows: large values would make it that of a row group.
                write_batch_size=min(_PAGE_ROWS, max(1, _PAGE_BYTES // max(row_bytes, 1))),
                metadata_collector=self._metadata,
            )
            self._stack = stack.pop_all()

    @property
    def bytes(self) -> int:
        position: int = self._buffer.tell()
        return position

    def is_full(self, limit: int | None) -> bool:
        """Whether another row group, as large as the largest one, would make the file larger than the limit."""
        return limit is not None and self.bytes + self._largest_group > limit

    def write(self, table: pa.Table, gathered: "_Gathered", group_bytes: int) -> None:
        """Write a row group, or several of about `group_bytes` where there is more than twice as much."""
        group_rows = table.num_rows
        if gathered.bytes > 2 * group_bytes:
            group_rows = max(1, table.num_rows * group_bytes // gathered.bytes)
        before = self.bytes
        self._writer.write_table(table, row_group_size=group_rows)
        self._largest_group = max(self._largest_group, self.bytes - before)
        self.first = min(self.first, gathered.first) if self.rows else gathered.first
        self.last = max(self.last, gathered.last) if self.rows else gathered.last
        self.rows += table.num_rows

    def close(self) -> pq.FileMetaData:
        """Write the footer, and sync the file."""
        self._writer.close()
        self._buffer.flush()
        self._stack.close()
        return self._metadata[0]

    def abandon(self) -> None:
        """Close the file as it is."""
        self._sink.abandon()
        self._writer.is_open = False
        with suppress(OSError):
            self._stack.close()


# ---- the files of a topic-partition


class _Gathered:
    """Record batches that become a row group, and their offsets."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0
        self.first = self.last = 0
        self.has_large = False

    def add(self, batch: pa.RecordBatch, size: int, first: int, last: int) -> None:
        self.first = min(first, self.first) if self.batches else first
        self.last = max(last, self.last) if self.batches else last
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += size
        self.has_large = self.has_large or (size > _LARGE_VALUE_BYTES and _has_large(batch))


class PartitionWriter:
    """Writes the record batches of one topic-partition into files, which get temporary names in `directory`.

    The record batches have `stream_columns(settings)`. They should come in the order of offsets: where an offset goes
    back, a file ends, and no later one of the partition says that it is sorted. `write` and `close` raise KdumpError.
    """

    def __init__(
        self,
        directory: DirectoryHandle,
        run: str,
        of: TopicPartition | None,
        settings: ConversionSettings,
        replica: str | None = None,
    ) -> None:
        """`run` is the id of the folder; `replica` says which copy it is, where there are several.

        Raises ValueError for settings that do not fit.
        """
        self._directory, self._run, self._of, self._settings = directory, run, of, settings
        self._replica = replica
        self._unique = secrets.token_hex(8)  # a task can run twice at the same time, on any machines
        text = compact_json(settings_fields(settings)).encode("ascii")
        self._schema = file_schema(settings).with_metadata({RUN_KEY: run.encode("ascii"), SETTINGS_KEY: text})
        self._folder = f"{folder_of_partition(of)}/" if settings.partition_folders else ""
        self._gathered = _Gathered()
        self._file: _OpenFile | None = None
        self._last: int | None = None
        self._is_sorted = True
        self._provisional = False
        self._temporaries: list[str] = []
        self._written: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch, provisional_from: int | None = None) -> None:
        """Add records. Those with offsets at or above `provisional_from` come into provisional files."""
        with self._errors():
            for part, provisional in _parts(batch, provisional_from):
                if provisional != self._provisional:
                    self._end_file()
                    self._provisional = provisional
                self._add(part)

    def _add(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if self._is_sorted and not ((self._last is None or first > self._last) and _is_ascending(offsets)):
            self._end_file()
            self._is_sorted = False
        self._last = last
        if not self._is_sorted:
            found = pc.min_max(offsets).as_py()
            first, last = found["min"], found["max"]
        size = batch.get_total_buffer_size()
        if self._gathered.bytes + size > LARGEST_DATA:
            self._flush()
        self._gathered.add(batch, size, first, last)
        settings = self._settings
        if self._gathered.rows >= settings.row_group_rows or self._gathered.bytes >= settings.row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        """Write what was gathered as a row group, or as several where one batch of the log is larger."""
        gathered, self._gathered = self._gathered, _Gathered()
        if not gathered.batches:
            return
        if self._file is not None and (
            self._file.is_full(self._settings.file_bytes) or gathered.has_large > self._file.has_large
        ):
            self._close_file()
        if self._file is None:
            self._file = self._open(gathered)
        self._file.write(self._table(gathered.batches), gathered, self._settings.row_group_bytes)

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(batches)
        columns = []
        for field in self._schema:
            column = table.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _open(self, gathered: _Gathered) -> _OpenFile:
        temporary = f"{self._unique}-{len(self._temporaries)}.tmp"
        self._temporaries.append(temporary)
        return _OpenFile(
            self._directory,
            temporary,
            self._schema,
            self._settings,
            is_sorted=self._is_sorted and "offset" in self._schema.names,
            row_bytes=gathered.bytes // gathered.rows,
            has_large=gathered.has_large,
        )

    def _end_file(self) -> None:
        self._flush()
        if self._file is not None:
            self._close_file()

    def _close_file(self) -> None:
        file = self._file
        assert file is not None
        metadata = file.close()
        self._file = None
        names, again = {each.file.name for each in self._written}, 0
        while (name := self._name(file, again)) in names:
            again += 1
        converted = ConvertedFile(
            name=name,
            rows=file.rows,
            bytes=file.bytes,
            first_offset=file.first,
            last_offset=file.last,
            provisional=self._provisional,
            is_sorted=self._is_sorted,
            columns=tuple(_column_ranges(metadata, self._schema)),
        )
        self._written.append(WrittenFile(file.temporary, converted))

    def _name(self, file: _OpenFile, again: int) -> str:
        base = parquet_name(
            self._of, file.first, file.last, provisional=self._provisional, again=again, replica=self._replica
        )
        return self._folder + base

    def close(self) -> tuple[WrittenFile, ...]:
        """End the last file. Returns the files in the order in which they were written."""
        with self._errors():
            self._end_file()
        return tuple(self._written)

    def discard(self) -> None:
        """Remove everything that was written."""
        if self._file is not None:
            self._file.abandon()
        for temporary in self._temporaries:
            with suppress(OSError):
                self._directory.remove(temporary)
        self._file, self._written, self._temporaries, self._gathered = None, [], [], _Gathered()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputRefused(f"{self._directory.path}: {reason(error)}") from None
        except pa.ArrowException as error:
            raise KdumpError(f"{self._directory.path}: Parquet cannot hold these records: {error}") from None


def _is_ascending(offsets: pa.Array) -> bool:
    return len(offsets) < 2 or bool(pc.all(pc.less(offsets.slice(0, len(offsets) - 1), offsets.slice(1))).as_py())


def _parts(batch: pa.RecordBatch, provisional_from: int | None) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """The records below an offset, and those at or above it, with whether they are provisional."""
    if not batch.num_rows:
        return
    if provisional_from is None:
        yield batch, False
        return
    later = pc.greater_equal(batch.column("offset"), repeat_int64(provisional_from, batch.num_rows))
    for provisional, mask in ((False, pc.invert(later)), (True, later)):
        count = pc.sum(mask).as_py()
        if count:
            yield batch if count == batch.num_rows else batch.filter(mask), provisional


# ---- statistics


def _without_large(schema: pa.Schema) -> list[str]:
    """The columns that have no large value."""
    return [name for name in schema.names if name not in _OF_ANY_SIZE]


def _has_large(batch: pa.RecordBatch) -> bool:
    """Whether a key, a value, or part of a header is large."""
    columns = [batch.column(name) for name in batch.schema.names if name in _OF_ANY_SIZE]
    parts = [each.values.flatten() if pa.types.is_list(each.type) else [each] for each in columns]
    return any((pc.max(pc.binary_length(part)).as_py() or 0) > _LARGE_VALUE_BYTES for part in chain(*parts))


def _column_ranges(metadata: pq.FileMetaData, schema: pa.Schema) -> Iterator[ColumnRange]:
    """The range of each column that is not nested, as the row groups say it."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        if name in schema.names:
            is_time = pa.types.is_timestamp(schema.field(name).type)
            yield _column_range(name, [group.column(index) for group in groups], is_time)


def _column_range(name: str, chunks: Sequence[pq.ColumnChunkMetaData], is_time: bool) -> ColumnRange:
    nulls: int | None = 0
    low: Any = None
    high: Any = None
    is_known = True
    for chunk in chunks:
        found = chunk.statistics if chunk.is_stats_set else None
        chunk_nulls = found.null_count if found is not None and found.has_null_count else None
        nulls = None if nulls is None or chunk_nulls is None else nulls + chunk_nulls
        if found is None or not found.has_min_max:
            is_known = is_known and chunk_nulls == chunk.num_values
            continue
        # The numbers of timestamps: Python has no time that is as late as they can be.
        smallest, largest = (found.min_raw // 1000, found.max_raw // 1000) if is_time else (found.min, found.max)
        low = smallest if low is None else min(low, smallest)
        high = largest if high is None else max(high, largest)
    values: tuple[ColumnValue, ColumnValue] = (low, high) if is_known else (None, None)
    return ColumnRange(name, *values, nulls)
