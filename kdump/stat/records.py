"""What opening the records of a log shows: sizes, header keys, shapes of values, order in time, the largest records."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import add
from typing import TYPE_CHECKING, Final

from kdump.format.codec import CodecError, LimitExceeded
from kdump.kernel.record_statistics import LARGEST_RECORDS, NOT_READABLE
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from kdump.named_tuple import NamedTuple
from kdump.stat.histogram import Histogram
from kdump.stat.keys import NameCensus

if TYPE_CHECKING:
    from kdump.kernel.record_statistics import RecordCollector
    from kdump.storage.walk import BatchChunk

RECORD_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""What `RecordStatistics.by_codec` holds, by index."""
_WIDTH: Final = len(BATCH_COLUMNS)
_MAGIC: Final = BATCH_COLUMNS.index("magic")
_CODEC_BIT, _COUNT_BIT = (1 << SUSPECTS.index(code) for code in ("batch/codec", "batch/count"))


class CodecVolume(NamedTuple):
    """The opened batches of a codec. Bytes are those of their records, as stored and uncompressed."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    uncompressed_bytes: int = 0

    def join(self, other: "CodecVolume") -> "CodecVolume":
        """The sum of two."""
        return CodecVolume(*map(add, self, other))

    @property
    def ratio(self) -> float | None:
        """Uncompressed bytes to stored bytes, None without bytes."""
        return self.uncompressed_bytes / self.stored_bytes if self.stored_bytes else None


class ShapeVolume(NamedTuple):
    """The values of one shape."""

    records: int = 0
    bytes: int = 0

    def join(self, other: "ShapeVolume") -> "ShapeVolume":
        """The sum of two."""
        return ShapeVolume(*map(add, self, other))


class ValueShapes(NamedTuple):
    """What values look like. The first of these that holds counts.

    `json`: text that begins with a brace or bracket and ends with its partner, white space aside. `schema`: at least
    five bytes, the first one 0: the wire format of Confluent's serializers, or binary data that begins so. In the
    internal topics of Kafka, that is `binary`. `text`: UTF-8 without the characters below the space, but for tab and
    line ends. Only the first 1,024 bytes decide whether it is text.
    """

    null: ShapeVolume = ShapeVolume()
    empty: ShapeVolume = ShapeVolume()
    json: ShapeVolume = ShapeVolume()
    schema: ShapeVolume = ShapeVolume()
    text: ShapeVolume = ShapeVolume()
    binary: ShapeVolume = ShapeVolume()


class LargeRecord(NamedTuple):
    """A record of `size` bytes before compression, in the batch at `position` of its segment.

    The size of null is -1, as is the timestamp of a record without one.
    """

    size: int
    offset: int
    position: int
    timestamp: int
    key_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class TimestampOrder:
    """The timestamps of records in log order, in ms; None without a record that has one.

    `steps_back`: records whose timestamp is below that of the record before. `largest_step_back`: the most by which a
    timestamp is below the largest one before it.
    """

    records: int = 0
    first: int | None = None
    last: int | None = None
    smallest: int | None = None
    largest: int | None = None
    steps_back: int = 0
    largest_step_back: int = 0

    def __add__(self, other: "TimestampOrder") -> "TimestampOrder":
        if other.first is None or other.smallest is None or other.largest is None:
            return self
        if self.last is None or self.smallest is None or self.largest is None:
            return other
        return TimestampOrder(
            self.records + other.records,
            self.first,
            other.last,
            min(self.smallest, other.smallest),
            max(self.largest, other.largest),
            self.steps_back + other.steps_back + (other.first < self.last),
            max(self.largest_step_back, other.largest_step_back, self.largest - other.smallest),
        )


@dataclass(frozen=True, slots=True)
class RecordStatistics:
    """The data records of opened batches. Add in log order.

    `unread`: valid batches whose records cannot be read. `bytes`: the records before compression, each
    with its length. `key_sizes`, `value_sizes`: without null. `tombstones`: a null value, with or without a key.
    `largest`: the LARGEST_RECORDS largest records, the largest first, of one size those with the lower offsets.
    """

    batches: int = 0
    unread: int = 0
    records: int = 0
    bytes: int = 0
    null_keys: int = 0
    empty_keys: int = 0
    tombstones: int = 0
    tombstone_bytes: int = 0
    headers: int = 0
    records_with_headers: int = 0
    key_sizes: Histogram = field(default_factory=Histogram)
    value_sizes: Histogram = field(default_factory=Histogram)
    by_codec: tuple[CodecVolume, ...] = (CodecVolume(),) * len(RECORD_CODECS)
    shapes: ValueShapes = field(default_factory=ValueShapes)
    timestamps: TimestampOrder = TimestampOrder()
    header_keys: NameCensus = field(default_factory=NameCensus)
    schemas: NameCensus = field(default_factory=NameCensus)
    largest: tuple[LargeRecord, ...] = ()

    @classmethod
    def of(cls, collector: "RecordCollector") -> "RecordStatistics":
        """What a collector saw. It was made with a census of the default size."""
        tally = collector.tally()
        times = TimestampOrder(
            tally["timed"],
            tally["first_timestamp"],
            tally["last_timestamp"],
            tally["smallest_timestamp"],
            tally["largest_timestamp"],
            tally["steps_back"],
            tally["largest_step_back"],
        )
        return cls(
            batches=tally["batches"],
            unread=tally["unread"],
            records=tally["records"],
            bytes=tally["bytes"],
            null_keys=tally["null_keys"],
            empty_keys=tally["empty_keys"],
            tombstones=tally["tombstones"],
            tombstone_bytes=tally["tombstone_bytes"],
            headers=tally["headers"],
            records_with_headers=tally["header_records"],
            key_sizes=Histogram(*collector.key_sizes()),
            value_sizes=Histogram(*collector.value_sizes()),
            by_codec=tuple(CodecVolume(*each) for each in collector.codecs()),
            shapes=ValueShapes(*(ShapeVolume(*each) for each in collector.shapes())),
            timestamps=times if times.records else TimestampOrder(),
            header_keys=NameCensus(*collector.header_keys()),
            schemas=NameCensus(*collector.schemas()),
            largest=tuple(LargeRecord(*each) for each in collector.largest()),
        )

    def __add__(self, other: "RecordStatistics") -> "RecordStatistics":
        return RecordStatistics(
            self.batches + other.batches,
            self.unread + other.unread,
            self.records + other.records,
            self.bytes + other.bytes,
            self.null_keys + other.null_keys,
            self.empty_keys + other.empty_keys,
            self.tombstones + other.tombstones,
            self.tombstone_bytes + other.tombstone_bytes,
            self.headers + other.headers,
            self.records_with_headers + other.records_with_headers,
            self.key_sizes + other.key_sizes,
            self.value_sizes + other.value_sizes,
            tuple(map(CodecVolume.join, self.by_codec, other.by_codec)),
            ValueShapes(*map(ShapeVolume.join, self.shapes, other.shapes)),
            self.timestamps + other.timestamps,
            self.header_keys + other.header_keys,
            self.schemas + other.schemas,
            tuple(sorted(self.largest + other.largest, key=_by_size)[:LARGEST_RECORDS]),
        )

    def first(self, count: int) -> "RecordStatistics":
        """The same with so many of the largest records."""
        return replace(self, largest=self.largest[:count])

    @property
    def uncompressed_bytes(self) -> int:
        """The bytes of the records of all batches before compression."""
        return sum(each.uncompressed_bytes for each in self.by_codec)


def _by_size(record: LargeRecord) -> tuple[int, int]:
    return -record.size, record.offset


class UnreadBatch(NamedTuple):
    """A valid batch whose records cannot be read: the row of its chunk, and the reason.

    `reason` is "codec" (they cannot be decompressed), "limit" (they are too large) or "records" (no record, or no inner
    message, begins where one has to).
    """

    row: int
    reason: str


def unread_reason(error: CodecError) -> str:
    """The reason of a batch that could not be decompressed."""
    return "limit" if isinstance(error, LimitExceeded) else "codec"


def unread_of(chunk: "BatchChunk") -> list[UnreadBatch]:
    """The batches of a chunk that the scanner found unreadable."""
    return [
        UnreadBatch(index, "codec" if bits & _CODEC_BIT else "records")
        for index, bits in enumerate(chunk.suspects())
        if bits & NOT_READABLE or (bits & _COUNT_BIT and (chunk.row(index).count or 0) < 0)
    ]


def collect_chunk(
    chunk: "BatchChunk",
    collector: "RecordCollector",
    max_bytes: int,
    on_opened: Callable[[int, int], None] | None = None,
) -> list[UnreadBatch]:
    """Add the batches of a chunk of a deep walk with a row for every batch (`deep=True, everything=True`).

    Opens those that are compressed, also for the scanner: after this, the suspect bits of the chunk are complete. A
    batch that cannot be opened, holds more than `max_bytes`, or whose records break off counts as unread; returns these
    in order. `on_opened` takes the index of each wrapper message that was opened, and its number of records.
    """
    walk, rows, unread = chunk.walk, chunk.walk.scanner.rows, list[UnreadBatch]()
    before = collector.unread
    index = 0
    while True:
        index = collector.add_rows(rows, index, chunk.batches, *walk.window)
        if index == chunk.batches:
            break
        wrapper = on_opened is not None and rows[index * _WIDTH + _MAGIC] < 2
        known = walk.scanner.state().records if wrapper else 0
        try:
            data = walk.records_of(index, max_bytes)
        except CodecError as error:
            collector.add_unread()
            unread.append(UnreadBatch(index, unread_reason(error)))
        else:
            collector.add_opened(rows, index, data)
            if wrapper and on_opened is not None:
                on_opened(index, walk.scanner.state().records - known)
        index += 1
    return sorted(unread + unread_of(chunk)) if collector.unread > before + len(unread) else unread
