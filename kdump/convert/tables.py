"""The tables of kdump as Arrow has them: their schemas, and record batches over the buffers that the kernel fills."""

import mmap
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kdump.convert.constant_arrays import repeat_int32, string_array
from kdump.format.batch import CODECS, TIMESTAMP_TYPES
from kdump.format.naming import TopicPartition, as_utf8
from kdump.kernel.columns import SPARE_BYTES, Columns
from kdump.named_tuple import NamedTuple

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_CODEC: Final = pa.dictionary(pa.int8(), pa.string())
_CODEC_NAMES: Final = string_array(CODECS)

RECORDS: Final = pa.schema(
    [
        # The columns, types and order of Spark's source of Kafka, `headers` with includeHeaders. `headers` is null
        # where a record has none; malformed UTF-8 in a header key is U+FFFD, as for Kafka's consumer. A timestamp that
        # does not fit microseconds in 64 bits is null; timestampType is -1 none, 0 CreateTime, 1 LogAppendTime.
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        # What else a record and its batch carry, by the names of the JSON lines of kdump dump; a stored -1 stays.
        # `position` and `batch_offset` are those of the batch, `size` the bytes of the record without compression.
        ("timestamp_ms", pa.int64()),
        ("position", pa.int64()),
        ("batch_offset", pa.int64()),
        ("size", pa.int32()),
        ("magic", pa.int8()),
        ("codec", _CODEC),
        ("partition_leader_epoch", pa.int32()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("sequence", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
        # The path of the copy that a record comes from, where each copy is converted on its own; else null.
        ("replica", pa.string()),
    ]
)
VALUE_JSON: Final = pa.field("value_json", pa.string())
"""The value as JSON text, null where it has none: a column of outputs with schemas, which is made of the others."""
DEFAULT_COLUMNS: Final = tuple(RECORDS.names[:8])

# The other tables (kdump.convert.log_tables.schemas has all). Their columns have the names and values of the lines of
# JSON about the same thing: a batch and a producer of kdump dump, a producer of kdump stat, a finding of kdump verify.
# `path` is the file, or the directory of a producer and of a transaction, so that copies of a topic-partition can be
# told apart. Times are in milliseconds.
OF_A_PARTITION: Final = (("path", pa.string()), ("topic", pa.string()), ("partition", pa.int32()))
BATCH_CODEC_NAMES: Final = string_array([*CODECS, "5", "6", "7"])
"""The codec of a batch by number; those without a name are damage."""
TIMESTAMP_TYPE_NAMES: Final = string_array([*TIMESTAMP_TYPES, "NoTimestampType"])
BATCHES: Final = pa.schema(
    [
        *OF_A_PARTITION,
        ("segment", pa.int64()),  # the base offset in the name of the file
        ("position", pa.int64()),
        ("size", pa.int64()),
        ("magic", pa.int16()),  # of a damaged batch any byte, which dump shows without a sign
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("count", pa.int32()),
        ("partition_leader_epoch", pa.int32()),
        ("crc", pa.uint32()),
        ("crc_ok", pa.bool_()),
        ("codec", _CODEC),
        ("timestamp_type", _CODEC),
        ("base_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("delete_horizon_ms", pa.int64()),
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("base_sequence", pa.int32()),
        ("last_sequence", pa.int32()),
        ("transactional", pa.bool_()),
        ("control", pa.bool_()),
    ]
)
PRODUCERS: Final = pa.schema(
    [
        *OF_A_PARTITION,
        # The state at the log end, as a producer snapshot holds it.
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("last_sequence", pa.int32()),
        ("last_offset", pa.int64()),
        ("offset_delta", pa.int32()),
        ("timestamp", pa.int64()),
        ("coordinator_epoch", pa.int32()),
        ("current_txn_first_offset", pa.int64()),
        # What it wrote into the log; null for those of a million producers that are not counted.
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("first_timestamp", pa.int64()),
        ("last_timestamp", pa.int64()),
    ]
)
TRANSACTIONS: Final = pa.schema(
    [
        *OF_A_PARTITION,
        ("producer_id", pa.int64()),
        ("producer_epoch", pa.int16()),
        ("outcome", pa.string()),  # committed, aborted, open (no marker yet), undecided (damage may hold the marker)
        ("first_offset", pa.int64()),  # this and the next four are null where a marker is all that is left
        ("last_offset", pa.int64()),
        ("batches", pa.int64()),
        ("first_timestamp", pa.int64()),
        ("last_timestamp", pa.int64()),
        ("marker_offset", pa.int64()),  # null without a marker
        ("marker_timestamp", pa.int64()),
    ]
)
FINDINGS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("code", pa.string()),
        ("severity", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
        ("length", pa.int64()),
        ("offset", pa.int64()),
        ("broker", pa.string()),
        ("later_broker", pa.string()),
        ("message", pa.string()),
        ("data", pa.string()),  # a JSON object
        ("identity", pa.string()),  # the same for the same finding in every run
    ]
)
COMPARISONS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("left", pa.string()),  # the two copies; of a fingerprint host and directory
        ("right", pa.string()),
        ("verdict", pa.string()),  # agree, diverged, undecided
        ("end_offset", pa.int64()),
        ("left_reach", pa.int64()),
        ("right_reach", pa.int64()),
        ("batches", pa.int64()),
        ("records", pa.int64()),
        ("keys", pa.int64()),
        ("undecided_keys", pa.int64()),
        ("because", pa.string()),  # reasons for what is undecided, with commas between them
        ("differs", pa.string()),  # a JSON object, that of kdump verify --compare
        ("stale", pa.string()),  # the copy that evidence names
        ("evidence", pa.string()),  # a JSON array of that evidence
    ]
)
GROUPS: Final = pa.schema(
    [
        ("path", pa.string()),  # the directory of the log of the coordinator
        ("group", pa.string()),
        ("group_type", pa.string()),
        ("state", pa.string()),
        ("epoch", pa.int32()),
        ("members", pa.int32()),
        # One row for each topic-partition; null for a group without any.
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed_offset", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("metadata", pa.string()),
        ("commit_timestamp_ms", pa.int64()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("end_source", pa.string()),
        ("lag", pa.int64()),
        ("expires_ms", pa.int64()),
        ("expired", pa.bool_()),
        ("pending", pa.int32()),  # commits in open transactions
        ("member_id", pa.string()),
        # What the records of the whole group take in the internal topics.
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("tombstones", pa.int64()),
    ]
)
ROWS: Final = 1 << 15
"""The most records of a record batch."""
DATA_BYTES: Final = 4 << 20
"""The most bytes of a column of a record batch, unless one record has more."""
_KEPT_REGIONS: Final = 16  # a row group of Parquet is made of as many record batches
_SPARE_REGION_BYTES: Final = 1 << 20
_ALIGNMENT: Final = 64
LARGEST_DATA: Final = (1 << 31) - 1 - SPARE_BYTES
"""The most bytes that a column can have: its offsets have 32 bits."""

_KERNEL_NAMES: Final = {"timestampType": "timestamp_type"}
_OF_ALL_ROWS: Final = ("topic", "partition", "replica")
_BITS: Final = ("transactional", "control")
_BYTES: Final = ("key", "value")
_NULLABLE: Final = ("timestamp", "partition_leader_epoch")


class Room(NamedTuple):
    """What the buffers of a record batch have room for: rows, headers, and bytes of data in each column."""

    rows: int
    headers: int
    data_bytes: int


USUAL_ROOM: Final = Room(ROWS, 4 * ROWS, DATA_BYTES)


def record_schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of RECORDS with these columns in their order. Raises ValueError for a name that it does not have."""
    return schema_of(RECORDS, columns)


def output_schema(columns: Sequence[str]) -> pa.Schema:
    """The same, with `value_json` among the columns that there are."""
    return schema_of(RECORDS.append(VALUE_JSON), columns)


def schema_of(table: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The schema with these columns in their order. Raises ValueError for a name that it does not have."""
    for name in columns:
        if name not in table.names:
            raise ValueError(f"no column {name!r}: the columns are {', '.join(table.names)}")
    if not columns or len(set(columns)) < len(columns):
        raise ValueError("name each column once, and at least one")
    return pa.schema([table.field(name) for name in columns])


class _Region:
    """Memory for the buffers of a record batch. `touched`: the most bytes of data that each column had so far."""

    __slots__ = ("memory", "touched")

    def __init__(self, size: int) -> None:
        self.memory = _memory_of(size)
        self.touched: list[int] = []

    def is_worth_keeping(self, sizes: list[int]) -> bool:
        """Whether most of it is used, after data of these sizes.

        Pages that were written once stay: a log whose large data changes from column to column would fill all of them.
        """
        self.touched = list(map(max, sizes, self.touched or sizes))
        return sum(self.touched) <= 2 * sum(sizes) + _SPARE_REGION_BYTES


class _Lease:
    """Memory that arrays refer to. When the last of them is gone, it can hold another record batch.

    Fresh memory costs more than to decode the records into it.
    """

    __slots__ = ("_free", "_region")

    def __init__(self, region: _Region, free: "FreeMemory | None") -> None:
        self._region, self._free = region, free

    def __del__(self) -> None:
        if self._free is not None:
            self._free.give(self._region)


class FreeMemory:
    """Memory of record batches that are gone, for later ones: of one partition, or of several with the same columns."""

    def __init__(self) -> None:
        self._regions: list[_Region] = []

    def take(self, size: int) -> _Region:
        """Memory of this size."""
        while self._regions:
            region = self._regions.pop()
            if len(region.memory) == size:
                return region
        return _Region(size)

    def give(self, region: _Region) -> None:
        """Memory that nothing refers to any more."""
        if len(self._regions) < _KEPT_REGIONS:
            self._regions.append(region)


class RecordBuffers:
    """The buffers of one record batch after another, filled by `columns`.

    A record batch refers to the memory that the kernel filled, without a copy.
    """

    def __init__(
        self, schema: pa.Schema, columns: Columns, room: Room = USUAL_ROOM, memory: FreeMemory | None = None
    ) -> None:
        self._schema = schema
        self._names = [name for name in schema.names if name not in _OF_ALL_ROWS]
        self._columns = columns
        self._of: tuple[TopicPartition | None, str | None] = None, None
        self._repeated: dict[str, pa.Array] = {}
        self._usual = room
        self._free = FreeMemory() if memory is None else memory
        self._region: _Region | None = None
        self._places: list[list[int]] = []
        self._is_usual = True

    @staticmethod
    def kernel_columns(schema: pa.Schema) -> list[str]:
        """The columns that the kernel fills, by its names."""
        return [_KERNEL_NAMES.get(name, name) for name in schema.names if name not in _OF_ALL_ROWS]

    def begin(self, of: TopicPartition | None, room: Room | None = None, *, replica: str | None = None) -> None:
        """Begin a record batch of a topic-partition, or of one copy of it. `room` is what it needs at least."""
        if (of, replica) != self._of:
            self._of = of, replica
            self._repeated.clear()
        self._is_usual = room is None
        room = self._usual if room is None else Room(*map(max, room, self._usual))
        sizes = [list(_sizes(name, room)) for name in self._names]
        self._places, end = [], 0
        for several in sizes:
            self._places.append([])
            for size in several:
                self._places[-1].append(end)
                end += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._region = self._free.take(end) if self._is_usual else _Region(end)
        view = memoryview(self._region.memory)
        self._columns.begin(
            [
                [view[at : at + size] for at, size in zip(places, several, strict=True)]
                for places, several in zip(self._places, sizes, strict=True)
            ]
        )

    def finish(self) -> pa.RecordBatch:
        """The record batch that was filled."""
        columns, rows, headers = self._columns, self._columns.rows, self._columns.headers
        header_values = columns.header_value_nulls, columns.header_value_bytes
        assert self._region is not None
        ended = columns.end()
        is_kept = self._is_usual and self._region.is_worth_keeping([header_values[1], *(size for _, size in ended)])
        base = _Lease(self._region, self._free if is_kept else None)
        address = pa.py_buffer(self._region.memory).address
        arrays: dict[str, pa.Array] = {}
        for name, places, (nulls, size) in zip(self._names, self._places, ended, strict=True):
            buffers = [_Place(address + at, base) for at in places]
            if name == "headers":
                arrays[name] = _header_array(buffers, rows, nulls, headers, size, *header_values)
            elif name in _BYTES:
                arrays[name] = _bytes_array(pa.binary(), buffers, rows, nulls, size)
            else:
                arrays[name] = _number_array(name, buffers, rows, nulls)
        self._region = None
        for name in _OF_ALL_ROWS:
            if name in self._schema.names:
                arrays[name] = self._repeat(name, rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _repeat(self, name: str, rows: int) -> pa.Array:
        """What is the same for all records, as an array that the record batches of a partition share."""
        if name not in self._repeated or len(self._repeated[name]) < rows:
            of, replica = self._of
            many = max(rows, ROWS)
            if name == "partition":
                repeated = None if of is None else repeat_int32(of.partition, many)
            else:
                text = of and of.topic if name == "topic" else replica
                repeated = None if text is None else string_array([as_utf8(text)] * many)
            self._repeated[name] = pa.nulls(many, self._schema.field(name).type) if repeated is None else repeated
        return self._repeated[name].slice(0, rows)


def _sizes(name: str, room: Room) -> Iterator[int]:
    """The sizes of the buffers of a column, in the order of kdump.kernel.columns.BUFFERS."""
    rows, headers, data_bytes = room.rows, room.headers, room.data_bytes + SPARE_BYTES
    bits = (rows + 7) // 8
    if name in _BYTES:
        yield from (bits, 4 * (rows + 1), data_bytes)
    elif name == "headers":
        yield from (bits, 4 * (rows + 1), 4 * (headers + 1), data_bytes)
        yield from ((headers + 7) // 8, 4 * (headers + 1), data_bytes)
    elif name in _BITS:
        yield bits
    else:
        if name in _NULLABLE:
            yield bits
        yield rows * _number_type(name).bit_width // 8


def _number_type(name: str) -> pa.DataType:
    kind = RECORDS.field(name).type
    return kind.index_type if pa.types.is_dictionary(kind) else kind


def _memory_of(size: int) -> mmap.mmap:
    """Memory whose pages the system gives when they are written first: room that is not used costs nothing."""
    return mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class _Place(NamedTuple):
    """The address of a buffer, and what keeps its memory."""

    address: int
    base: _Lease

    def first(self, size: int) -> pa.Buffer:
        """The first `size` bytes."""
        return pa.foreign_buffer(self.address, size, self.base)


def _validity(place: _Place, rows: int, nulls: int) -> pa.Buffer | None:
    return place.first((rows + 7) // 8) if nulls else None


def _bytes_array(kind: pa.DataType, places: list[_Place], rows: int, nulls: int, size: int) -> pa.Array:
    valid, offsets, data = places
    parts = [_validity(valid, rows, nulls), offsets.first(4 * (rows + 1)), data.first(size)]
    return pa.Array.from_buffers(kind, rows, parts, nulls)


def _header_array(
    places: list[_Place], rows: int, nulls: int, headers: int, key_bytes: int, value_nulls: int, value_bytes: int
) -> pa.Array:
    valid, offsets, *of_headers = places
    keys = _bytes_array(pa.string(), [valid, *of_headers[:2]], headers, 0, key_bytes)
    values = _bytes_array(pa.binary(), of_headers[2:], headers, value_nulls, value_bytes)
    both = pa.Array.from_buffers(_HEADER, headers, [None], 0, children=[keys, values])
    kind = RECORDS.field("headers").type
    parts = [_validity(valid, rows, nulls), offsets.first(4 * (rows + 1))]
    return pa.Array.from_buffers(kind, rows, parts, nulls, children=[both])


def _number_array(name: str, places: list[_Place], rows: int, nulls: int) -> pa.Array:
    kind = _number_type(name)
    size = (rows * kind.bit_width + 7) // 8
    valid = _validity(places[0], rows, nulls) if name in _NULLABLE else None
    numbers = pa.Array.from_buffers(kind, rows, [valid, places[-1].first(size)], nulls)
    return numbers if name != "codec" else pa.DictionaryArray.from_arrays(numbers, _CODEC_NAMES)
