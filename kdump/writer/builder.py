"""Build record batches and message sets from records, byte for byte as Kafka's MemoryRecordsBuilder does.

Each record is encoded when it is appended (kdump.kernel.append). The header is written when the builder is closed. The
formats are those of kdump.format.batch, kdump.format.legacy and kdump.format.kafka07. Compressed data has the framing
of Kafka's writers (kdump.format.codec); another version of a codec's library can give other bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypedDict

from kdump.format import codec as codecs
from kdump.format import control as controls
from kdump.format import kafka07, legacy
from kdump.format.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from kdump.format.control import ControlType
from kdump.format.java import MAX_INT, MAX_LONG
from kdump.kernel.append import MAX_BYTES, Encoder
from kdump.kernel.crc import crc32
from kdump.named_tuple import NamedTuple

# The size of a message with a null key, without its value: two lengths follow the fixed fields.
_WRAPPER_OVERHEAD: Final = {magic: at + 8 for magic, at in legacy.KEY_LENGTH_AT.items()}
_BATCH_OVERHEAD: Final = 200  # the header, and what a codec can add to the size
_RECORD_BYTES: Final = 80  # what a record can need besides its key, value and headers
_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)
_MAX_SHORT: Final = (1 << 15) - 1

Headers = Sequence[tuple[str | bytes, bytes | None]]


class NewRecord(NamedTuple):
    """A record to append.

    `headers` are pairs of a name and a value: a name is a string, or its bytes in UTF-8. `timestamp_ms` is in
    milliseconds since the epoch, -1 for none. `offset` is None for the next offset.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    offset: int | None = None


class BatchSettings(TypedDict, total=False):
    """The arguments of a Builder that an append of records takes; those that are left out are as the options of the log
    say.
    """

    codec: int | str
    level: int | None
    log_append_ms: int | None
    partition_leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon_ms: int | None


class Builder:
    """Builds one record batch (magic 2), or a message set (magic 0 and 1): its messages one after the other, or with a
    codec inside one wrapper message.

    `codec` is a name or number of kdump.format.batch.CODECS, `level` one of kdump.format.codec.LEVELS. With
    `log_append_ms` all records have that timestamp (LogAppendTime). `delete_horizon_ms` is what the log cleaner sets.
    Offsets start at `base_offset`; given offsets have to rise, and may have gaps. Messages of magic 0 have no
    timestamps; those of the records are dropped.

    Raises ValueError for everything that the format does not have or that Kafka's own builder refuses, and for control
    records that a broker cannot read. A refused record leaves the builder as it was. A builder is for one thread.

    Source: MemoryRecordsBuilder of Kafka 4.3.
    """

    def __init__(
        self,
        magic: int = 2,
        *,
        base_offset: int = 0,
        codec: int | str = "none",
        level: int | None = None,
        log_append_ms: int | None = None,
        partition_leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if magic not in (0, 1, 2):
            raise ValueError(f"records have magic 0, 1 or 2, not {magic!r}")
        self._magic = magic
        self._codec = _codec_number(codec, level)
        self._level = level
        self._base_offset = _within("base offset", base_offset, 0, MAX_LONG)
        self._append_ms = None if log_append_ms is None else _within("log append time", log_append_ms, -1, MAX_LONG)
        self._horizon = None if delete_horizon_ms is None else _within("delete horizon", delete_horizon_ms, 0, MAX_LONG)
        self._leader_epoch = _within("partition leader epoch", partition_leader_epoch, -1, MAX_INT)
        self._producer_id = _within("producer id", producer_id, -1, MAX_LONG)
        self._producer_epoch = _within("producer epoch", producer_epoch, -1, _MAX_SHORT)
        self._base_sequence = _within("base sequence", base_sequence, -1, MAX_INT)
        self._transactional = transactional
        self._control = control
        self._closed = False
        self._check()
        attributes = LOG_APPEND_TIME if log_append_ms is not None else 0
        self._attributes = attributes | self._codec
        if magic == 2:
            self._attributes |= TRANSACTIONAL if transactional else 0
            self._attributes |= CONTROL if control else 0
            self._attributes |= DELETE_HORIZON if delete_horizon_ms is not None else 0
        relative = magic == 1 and self._codec != 0
        self._encoder = Encoder(magic, base_offset, attributes, delete_horizon_ms, log_append_ms, relative)

    def _check(self) -> None:
        """Raise ValueError for arguments that cannot be combined, in the order of Kafka's checks."""
        if self._magic < 2:
            has = {
                "transactional batches": self._transactional,
                "control batches": self._control,
                "zstd": codecs.CODECS[self._codec] == "zstd",
                "delete horizon": self._horizon is not None,
                "partition leader epoch": self._leader_epoch != -1,
                "producers": self._producer_id != -1 or self._producer_epoch != -1 or self._base_sequence != -1,
            }
            for what, given in has.items():
                if given:
                    raise ValueError(f"magic {self._magic} has no {what}")
        if self._magic == 0 and self._append_ms is not None:
            raise ValueError("magic 0 has no timestamps, and so no log append time")
        if self._transactional and self._producer_id == -1:
            raise ValueError("a transactional batch needs a producer id")
        if self._producer_id != -1:
            if self._producer_epoch == -1:
                raise ValueError(f"producer id {self._producer_id} needs a producer epoch")
            if self._base_sequence == -1 and not self._control:
                raise ValueError(f"producer id {self._producer_id} needs a base sequence, except in a control batch")

    @property
    def count(self) -> int:
        """The number of records."""
        return self._encoder.count

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        return self._encoder.last_offset + 1

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp in milliseconds, with LogAppendTime that of the append; -1 without records."""
        if self._append_ms is not None and self.count:
            return self._append_ms
        return self._encoder.max_timestamp

    @property
    def size_bytes(self) -> int:
        """The size so far; with a codec, the size before compression."""
        return self._overhead + self._encoder.size

    @property
    def _overhead(self) -> int:
        return HEADER_SIZE if self._magic == 2 else _WRAPPER_OVERHEAD[self._magic] if self._codec else 0

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = -1,
        offset: int | None = None,
    ) -> int:
        """Append one record. Returns its offset. Raises ValueError, TypeError."""
        if self._control:
            _check_control(key, value)
        return self._encoder.append(key, value, headers, timestamp_ms, offset)

    def extend(self, records: Iterable[NewRecord]) -> None:
        """Append many records, which is faster than one by one. Where one is refused, those before it stay."""
        if not self._control:
            self._encoder.extend(records)
            return
        for key, value, headers, timestamp_ms, offset in records:
            self.append(key, value, headers=headers, timestamp_ms=timestamp_ms, offset=offset)

    def close(self) -> bytes:
        """Finish the batch, once.

        Returns its bytes, b"" without records. Raises kdump.errors.CodecMissing without the library of the codec.
        """
        if self._closed:
            raise ValueError("the builder is closed")
        encoder, packed = self._encoder, None
        if not encoder.count:
            batch = b""
        else:
            if self._codec:
                packed = codecs.compress(self._codec, encoder.payload(), self._magic, self._level)
            batch = self._batch(packed) if self._magic == 2 else self._messages(packed)
        self._closed = True
        encoder.close()
        return batch

    def _batch(self, packed: bytes | None) -> bytes:
        encoder = self._encoder
        header = HEADER.pack(
            self._base_offset,
            HEADER_SIZE - LOG_OVERHEAD + (encoder.size if packed is None else len(packed)),
            self._leader_epoch,
            2,
            0,
            self._attributes,
            encoder.last_offset - self._base_offset,
            encoder.base_timestamp,
            self.max_timestamp_ms,
            self._producer_id,
            self._producer_epoch,
            self._base_sequence,
            encoder.count,
        )
        return encoder.seal(header, packed)

    def _messages(self, packed: bytes | None) -> bytes:
        inner = self._encoder
        if packed is None:
            return inner.payload()
        wrapper = Encoder(self._magic, inner.last_offset, self._attributes, None, self._append_ms)
        wrapper.append(None, packed, (), inner.max_timestamp)
        return wrapper.payload()


class Builder07:
    """Builds entries of a log of Kafka 0.7, or with a codec one entry that holds them; the interface is that of
    Builder.

    Offsets are bytes there: that of an entry is its position in the result of close(), added to the position of that
    result in the log. Entries inside a compressed one have its offset. Only values are kept. A record with a key,
    headers or an offset raises ValueError; timestamps are dropped.
    """

    def __init__(self, magic: int = 1, *, codec: int | str = "none", level: int | None = None) -> None:
        if magic not in (0, 1):
            raise ValueError(f"entries have magic 0 or 1, not {magic!r}")
        self._codec = _codec_number(codec, level)
        if self._codec >= len(kafka07.EXISTING_CODECS):
            raise ValueError(f"Kafka 0.7 has no {codecs.CODECS[self._codec]}")
        if self._codec and magic == 0:
            raise ValueError("magic 0 of Kafka 0.7 has no codecs")
        self._magic = magic
        self._level = level
        self._entries = bytearray()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """The number of messages."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """The size so far; with a codec, the size before compression."""
        return len(self._entries) + (kafka07.HEADER[1].size if self._codec else 0)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        timestamp_ms: int = -1,
        offset: int | None = None,
    ) -> int:
        """Append one message. Returns the position of its entry, or of the compressed one, in the result of close()."""
        if self._closed:
            raise ValueError("the builder is closed")
        if key is not None or headers or offset is not None:
            raise ValueError("messages of Kafka 0.7 have no key, no headers and no offset of their own")
        if value is None:
            raise ValueError("messages of Kafka 0.7 cannot be null")
        value = value if isinstance(value, bytes) else bytes(memoryview(value))
        at, size = len(self._entries), kafka07.HEADER[self._magic].size + len(value)
        if at + size > MAX_BYTES - kafka07.HEADER[1].size:
            raise ValueError(f"a message of {size} bytes does not fit after {at} bytes, the limit is {MAX_BYTES}")
        self._entries += _entry07(self._magic, 0, value)
        self._count += 1
        return 0 if self._codec else at

    def extend(self, records: Iterable[NewRecord]) -> None:
        """Append many messages. Where one is refused, those before it stay."""
        for key, value, headers, timestamp_ms, offset in records:
            self.append(key, value, headers=headers, timestamp_ms=timestamp_ms, offset=offset)

    def close(self) -> bytes:
        """Finish the entries, once. Returns their bytes, b"" without messages."""
        if self._closed:
            raise ValueError("the builder is closed")
        entries = bytes(self._entries)
        if self._codec and self._count:
            entries = _entry07(1, self._codec, codecs.compress(self._codec, entries, 0, self._level))
        self._closed = True
        self._entries = bytearray()
        return entries


def group_records(new: Iterable[NewRecord], size_bytes: int) -> Iterator[list[NewRecord]]:
    """Cut records into groups, each for one batch of about `size_bytes`.

    Raises TypeError for what is not a NewRecord.
    """
    some: list[NewRecord] = []
    left = size_bytes - _BATCH_OVERHEAD
    for record in new:
        if not isinstance(record, NewRecord):
            raise TypeError(f"a record is a NewRecord, not {type(record).__name__}")
        size = _size_of(record)
        if some and size > left:
            yield some
            some, left = [], size_bytes - _BATCH_OVERHEAD
        some.append(record)
        left -= size
    if some:
        yield some


def _size_of(record: NewRecord) -> int:
    """About how many bytes a record has."""
    size = _RECORD_BYTES
    try:
        size += len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            # The size in UTF-8, so that batches are cut alike for strings and bytes.
            name_size = len(name.encode(errors="surrogatepass")) if isinstance(name, str) else len(name)
            size += name_size + len(value or b"") + 20
    except (TypeError, ValueError):
        pass  # the builder refuses the record, and says why
    return size


def marker(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    offset: int,
    timestamp_ms: int,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Build the control batch that ends a transaction with COMMIT or ABORT. Returns its bytes. Raises ValueError.

    Source: MemoryRecords.withEndTransactionMarker of Kafka 4.3.
    """
    if kind not in _MARKERS:
        raise ValueError(f"a transaction ends with COMMIT or ABORT, not with {controls.type_name(kind)}")
    builder = Builder(
        base_offset=offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    epoch = _within("coordinator epoch", coordinator_epoch, -MAX_INT - 1, MAX_INT)
    builder.append(controls.encode_key(kind), controls.encode_marker(epoch), timestamp_ms=timestamp_ms)
    return builder.close()


def _codec_number(codec: int | str, level: int | None) -> int:
    number: Any = codecs.CODECS.index(codec) if codec in codecs.CODECS else codec
    if not isinstance(number, int) or not 0 <= number < len(codecs.CODECS):
        raise ValueError(f"there is no codec {codec!r}; the codecs are {', '.join(codecs.CODECS)}")
    if level is not None:
        codecs.check_level(number, level)
    return number


def _within(what: str, number: int, low: int, high: int) -> int:
    if not low <= number <= high:
        raise ValueError(f"{what} {number} is not between {low} and {high}")
    return number


def _check_control(key: bytes | None, value: bytes | None) -> None:
    """Raise ValueError for a control record that a broker cannot read."""
    kind = controls.decode_key(key).type
    if kind not in controls.TYPES:
        raise ValueError(f"there is no control record of type {kind}")
    if kind in _MARKERS:
        controls.decode_marker(value)


def _entry07(magic: int, codec: int, payload: bytes) -> bytes:
    layout = kafka07.HEADER[magic]
    fields = (magic, codec) if magic else (magic,)
    return layout.pack(layout.size - kafka07.LENGTH_SIZE + len(payload), *fields, crc32(payload)) + payload
