"""The batches of a copy below an offset, one after another, as bytes and as records with what became of them."""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from kdump.format.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.transactions import COMMITTED, OPEN, UNDECIDED, Transactions
from kdump.log.isolation import replay_log
from kdump.log.log_slice import LogSlice, SlicedPartition, walk_of_slice
from kdump.replicas.log_survey import LogSurvey, firsts_and_lasts
from kdump.storage.records import open_in_pieces
from kdump.storage.walk import BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_RECORD_WIDTH: Final = len(RECORD_COLUMNS)
_POSITION, _SIZE, _ATTRIBUTES, _PRODUCER = (
    BATCH_COLUMNS.index(name) for name in ("position", "size", "attributes", "producer_id")
)
_SAME: Final = CONTROL | LOG_APPEND_TIME | TRANSACTIONAL


class BatchFields(NamedTuple):
    """What the log cleaner keeps of the header of a batch of magic 2; without the leader epoch."""

    first: int
    last: int
    producer_id: int
    producer_epoch: int
    attributes: int


class LogRecord(NamedTuple):
    """A record of a copy. `outcome`: what became of it, a number of kdump.kernel.transactions.

    `content` is equal for equal records: the timestamp, key, value, headers, sequence, and the header of the batch.
    """

    offset: int
    key: bytes | None
    is_tombstone: bool
    is_control: bool
    leader_epoch: int
    outcome: int
    content: tuple[object, ...]


class Outcomes:
    """What became of the transactions of a copy, by the markers below an offset. Raises SourceError."""

    def __init__(self, survey: LogSurvey, slices: Sequence[LogSlice], max_batch_bytes: int) -> None:
        self._transactions = Transactions(anchored=True, decided=True)
        self.open: dict[int, int] = {}
        partition = survey.partition
        log = SlicedPartition(partition.path, partition.topic_partition, tuple(slices), copy=partition)
        for _ in replay_log(log, self._transactions, max_batch_bytes):
            pass
        self._transactions.seal()
        for producer_id, _, _, _, first, *_ in self._transactions.open():
            self.open[producer_id] = first if first is not None else 0

    def begin(self, number: int) -> None:
        """The next batches are of the slice of this number."""
        self._transactions.begin(number)

    def of(self, producer_id: int, position: int, offset: int) -> int:
        """What became of a transactional batch."""
        found = self._transactions.of(producer_id, position)
        is_open = found == UNDECIDED and offset >= self.open.get(producer_id, offset + 1)
        return OPEN if is_open else found


class _Block(NamedTuple):
    chunk: BatchChunk
    firsts: list[int]
    lasts: list[int]
    positions: list[int]
    end: int
    attributes: list[int]
    producers: list[int]


class BatchCursor:
    """Stands before a batch of the slices; `first` and `last` are its offsets, both None after the last one.

    `stop`: only batches below this offset. `outcomes` is None where no batch is transactional. Raises SourceError.
    """

    def __init__(self, slices: Sequence[LogSlice], stop: int, outcomes: Outcomes | None, max_batch_bytes: int) -> None:
        self._slices, self._stop, self._outcomes, self._limit = slices, stop, outcomes, max_batch_bytes
        self._blocks = self._all_blocks()
        self._block: _Block | None = None
        self._index = 0
        self._next_block()

    def close(self) -> None:
        """Close the file."""
        self._blocks.close()

    def _all_blocks(self) -> Generator[_Block]:
        end = 0
        for number, each in enumerate(self._slices):
            if self._outcomes is not None:
                self._outcomes.begin(number)
            with each.log.open() as source:
                walk = walk_of_slice(each, source, everything=True, rows=1024, max_batch_bytes=self._limit)
                for item in walk:
                    if isinstance(item, BatchChunk) and not item.damaged:
                        cells = item.walk.scanner.rows[: item.batches * _WIDTH]
                        firsts, lasts = firsts_and_lasts(cells, end)
                        end = lasts[-1] + 1
                        count = bisect_left(firsts, self._stop)
                        positions, sizes = cells[_POSITION::_WIDTH].tolist(), cells[_SIZE::_WIDTH].tolist()
                        if count:
                            yield _Block(
                                item,
                                firsts[:count],
                                lasts[:count],
                                positions[:count],
                                positions[count - 1] + sizes[count - 1],
                                cells[_ATTRIBUTES::_WIDTH].tolist(),
                                cells[_PRODUCER::_WIDTH].tolist(),
                            )

    def _next_block(self) -> None:
        self._block, self._index = next(self._blocks, None), 0

    @property
    def first(self) -> int | None:
        """The first offset of the batch."""
        return None if self._block is None else self._block.firsts[self._index]

    @property
    def last(self) -> int | None:
        """The last offset of the batch."""
        return None if self._block is None else self._block.lasts[self._index]

    @property
    def remaining_bytes(self) -> int:
        """The bytes from the batch to the end of those that were read with it."""
        block = self._block
        return 0 if block is None else block.end - block.positions[self._index]

    @property
    def batch_bytes(self) -> int:
        """The size of the batch."""
        block, after = self._block, self._index + 1
        if block is None:
            return 0
        stop = block.positions[after] if after < len(block.positions) else block.end
        return stop - block.positions[self._index]

    def data(self, size: int) -> bytes:
        """So many bytes from the batch on."""
        assert self._block is not None
        return bytes(self._block.chunk.walk.bytes_at(self._block.positions[self._index], size))

    def batches_in(self, size: int) -> int:
        """How many whole batches so many bytes are."""
        assert self._block is not None
        positions = self._block.positions
        end = positions[self._index] + size
        stop = len(positions) if end >= self._block.end else bisect_left(positions, end + 1) - 1
        return stop - self._index

    def transactional(self, batches: int) -> list[tuple[int, int]]:
        """The first offset and outcome of each of the next batches that are data of a transaction."""
        block = self._block
        if self._outcomes is None or block is None:
            return []
        return [
            (block.firsts[at], self._outcomes.of(block.producers[at], block.positions[at], block.firsts[at]))
            for at in range(self._index, self._index + batches)
            if block.attributes[at] & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
        ]

    def skip(self, batches: int = 1) -> None:
        """Go on after so many batches."""
        assert self._block is not None
        self._index += batches
        if self._index >= len(self._block.firsts):
            self._next_block()

    def records(self) -> Iterator[LogRecord]:
        """The records of the batch. The cursor must not move before the last one was taken."""
        block, index = self._block, self._index
        assert block is not None
        batch = block.chunk.row(index)
        opened = open_in_pieces(batch, block.chunk.body(batch), self._limit)
        outcome = COMMITTED
        if batch.transactional and not batch.control and self._outcomes is not None:
            outcome = self._outcomes.of(batch.producer_id, batch.position, batch.base_offset)
        fields = None
        if not batch.is_legacy:
            attributes = batch.attributes & _SAME
            fields = BatchFields(
                batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch, attributes
            )
        for piece in opened.pieces():
            payload, cells = memoryview(piece.payload), piece.rows.tolist()
            for at in range(0, len(cells), _RECORD_WIDTH):
                start, size, offset, timestamp, key_at, key_size, value_at, value_size = cells[at : at + 8]
                key = None if key_size < 0 else bytes(payload[key_at : key_at + key_size])
                rest = bytes(payload[value_at : start + size])
                yield LogRecord(
                    offset,
                    key,
                    value_size < 0,
                    batch.control,
                    batch.partition_leader_epoch,
                    outcome,
                    (timestamp, key, value_size, rest, batch.base_sequence, fields),
                )
