"""What the writer of a new log knows of batches: how they change, what became of them, the header of a new one."""

from collections.abc import Iterator
from typing import Final

from kdump.format.batch import LOG_OVERHEAD, UP_TO_MAGIC, Batch, head_at
from kdump.kernel.append import Encoder
from kdump.kernel.records import RECORD_COLUMNS
from kdump.log.log_slice import EVERYTHING, Bounds
from kdump.named_tuple import NamedTuple
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.records import DecodedBatch
from kdump.storage.walk import Walk

_MAGIC: Final = RECORD_COLUMNS.index("magic")
_ROW: Final = len(RECORD_COLUMNS)
_LEAST_SIZE: Final = LOG_OVERHEAD + 14
"""The length of a message of magic 0 without key and value (LegacyRecord.RECORD_OVERHEAD_V0)."""


class BatchRewrite(NamedTuple):
    """How batches are written.

    `codec` is its number, None to keep that of each batch. `plain`: without transactions, producers and control
    batches. `batch_bytes`: messages are joined up to so many bytes. `time`: the range of timestamps in milliseconds.
    """

    codec: int | None
    level: int | None
    plain: bool
    batch_bytes: int
    max_batch_bytes: int
    read_policy: ReadPolicy = ReadPolicy()
    time: Bounds = EVERYTHING


class BatchEpoch(NamedTuple):
    """A leader epoch that a batch shows.

    `start_offset` is the base offset of its first batch; the batch before that one ends before `end_before`.
    """

    epoch: int
    start_offset: int
    end_before: int


class BatchCounts:
    """What became of the batches of a partition. Messages of magic 0 and 1 count as batches of the source."""

    def __init__(self) -> None:
        self.records = 0
        """Records that were written, control records included."""
        self.unread = 0
        """Batches that were written with their records as they are, without reading them."""
        self.converted = 0
        """Messages of magic 0 and 1 that were converted; a wrapper is one."""
        self.recompressed = 0
        self.cut = 0
        """Batches of which records outside the range, or whose offsets another batch has, were removed."""
        self.without_producer = 0
        """Batches that lost their producer id, or their transaction."""
        self.control = 0
        """Control batches that were left out."""
        self.aborted = 0
        """Records that were left out because their transaction was aborted."""
        self.undecided = 0
        """Records that were left out because it is not known what became of their transaction."""
        self.damaged_ranges = 0
        self.damaged_bytes = 0


def offset_at(walk: Walk, position: int) -> int:
    """The offset of the batch at a position, -1 without one."""
    header = walk.bytes_at(position, min(UP_TO_MAGIC, walk.source.size - position))
    if len(header) < UP_TO_MAGIC:
        return -1
    offset, size, magic = head_at(header)
    # Zeros come after the last batch.
    return -1 if magic > 2 or size < _LEAST_SIZE else offset


def by_timestamp_type(records: DecodedBatch, append_ms: int | None) -> Iterator[tuple[int | None, DecodedBatch]]:
    """The messages of a wrapper, in parts that have the same timestamp type, each with its append time.

    A message of magic 0 has no timestamp, even in a wrapper with LogAppendTime (LegacyRecord.timestamp): the cleaner of
    0.10 left such ones.
    """
    magics = b"" if append_ms is None else bytes(magic != 0 for magic in records.rows[_MAGIC::_ROW])
    if 0 not in magics:
        yield append_ms, records
        return
    start = 0
    for at in range(1, len(magics) + 1):
        if at == len(magics) or magics[at] != magics[start]:
            yield append_ms if magics[start] else None, records._replace(rows=records.rows[start * _ROW : at * _ROW])
            start = at


class HeaderFields(NamedTuple):
    """What the header of a new batch says."""

    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's word, also the name of a method of tuple

    @classmethod
    def of(cls, batch: Batch, first: int, last: int) -> "HeaderFields":
        """Those of a batch, with other offsets."""
        return cls(
            first,
            last,
            batch.partition_leader_epoch,
            batch.attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.count,
        )


class MessageBatch:
    """Uncompressed messages of one magic and timestamp type that will be one batch."""

    def __init__(self, magic: int, append_ms: int | None, base_offset: int) -> None:
        self.magic, self.append_ms, self.base_offset = magic, append_ms, base_offset
        self.encoder = Encoder(2, base_offset, log_append_ms=append_ms)
