"""The batches of a copy below an offset, one after another, as bytes and as hashes of their records."""

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import CODEC_MASK, CONTROL, HEADER_SIZE, TRANSACTIONAL, Batch
from kdump.kernel.producers import Producers
from kdump.kernel.record_hashes import RecordHasher
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.transactions import COMMITTED, OPEN, UNDECIDED, Transactions
from kdump.log.header_pass import read_headers
from kdump.log.isolation import replay_at_once, replay_log
from kdump.log.log_slice import LogSlice, SlicedPartition, walk_of_slice
from kdump.named_tuple import NamedTuple
from kdump.replicas.log_survey import LogSurvey, firsts_and_lasts
from kdump.storage.records import open_in_pieces, payload_of, records
from kdump.storage.walk import BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_RECORD_WIDTH: Final = len(RECORD_COLUMNS)
_POSITION, _SIZE, _ATTRIBUTES, _PRODUCER = (
    BATCH_COLUMNS.index(name) for name in ("position", "size", "attributes", "producer_id")
)
_MAGIC, _FIRST = BATCH_COLUMNS.index("magic"), BATCH_COLUMNS.index("base_offset")
_RUN_BYTES: Final = 56 << 10
"""The most bytes of batches that are hashed in one call: their records have room in a hasher."""

_LOST_MARKERS: Final = frozenset({"txn/epochs", "txn/marker-empty"})

NO_HASH_KEY: Final = bytes(16)
"""The key of the hashes where none is given."""


class UnreadableRecordsError(SourceError):
    """The records of a batch with a right checksum cannot be read."""


class FoundRecord(NamedTuple):
    """The key and the timestamp of the record at an offset."""

    offset: int
    key: bytes | None
    timestamp_ms: int


class Replay(NamedTuple):
    """Hands on what a log has to both, which say what became of its transactions."""

    transactions: Transactions
    producers: Producers

    def begin(self, number: int) -> None:
        self.transactions.begin(number)

    def add(self, events: bytes) -> None:
        self.transactions.add(events)
        self.producers.replay(events)

    def lose(self, position: int) -> None:
        self.transactions.lose(position)
        self.producers.forget()


def new_replay() -> Replay:
    """One of a log that nothing comes before."""
    return Replay(Transactions(anchored=True, decided=True), Producers(sequences=False))


def read_outcomes(
    survey: LogSurvey, slices: Sequence[LogSlice], max_batch_bytes: int, *, compacted: bool = False
) -> "Outcomes":
    """What became of the transactions of a copy, by the markers in slices of it. Raises SourceError.

    `compacted`: a log cleaner goes over this log, or over that of a broker from which it may have been fetched, so that
    offsets that are missing hold no marker.
    """
    partition, replay = survey.partition, new_replay()
    log = SlicedPartition(partition.path, partition.topic_partition, tuple(slices), copy=partition)
    headers = replay_at_once(log, replay, max_batch_bytes, compacted=compacted)
    if headers is not None:
        return Outcomes(replay if headers.transactional else new_replay())
    replay = new_replay()
    if compacted:
        log = log._replace(headers=read_headers(slices)._replace(is_continuous=True))
    for _ in replay_log(log, replay, max_batch_bytes):
        pass
    return Outcomes(replay)


class Outcomes:
    """What became of the transactions of a copy, by all that was replayed.

    `open`: the first offset of each open transaction, by producer. `two_epochs`: the offsets of batches that show that
    a marker is missing: a transaction goes on there with another producer epoch, or its control batch has no marker.
    """

    def __init__(self, replay: Replay) -> None:
        self._transactions = replay.transactions
        self._transactions.seal()
        problems, _, _ = replay.producers.take()
        self.two_epochs = frozenset(each.offset for each in problems if each.problem in _LOST_MARKERS)
        self.open = {
            producer_id: first if first is not None else 0
            for producer_id, _, _, _, first, *_ in self._transactions.open()
        }

    def begin(self, number: int) -> None:
        """The next batches are of the slice of this number."""
        self._transactions.begin(number)

    def of(self, producer_id: int, position: int, offset: int) -> int:
        """What became of a transactional batch."""
        found = self._transactions.of(producer_id, position)
        is_open = found == UNDECIDED and offset >= self.open.get(producer_id, offset + 1)
        return OPEN if is_open else found

    def of_all(self, chunk: BatchChunk) -> bytes | None:
        """What became of each batch, a byte for each; None where none is data of a transaction."""
        rows = chunk.walk.scanner.rows
        found = self._transactions.of_rows(rows, chunk.batches)
        if found is None or UNDECIDED not in found or not self.open:
            return found
        known = bytearray(found)
        for index, each in enumerate(found):
            if each == UNDECIDED:
                at = index * _WIDTH
                known[index] = self.of(rows[at + _PRODUCER], rows[at + _POSITION], rows[at + _FIRST])
        return bytes(known)


class _Block(NamedTuple):
    chunk: BatchChunk
    firsts: list[int]
    lasts: list[int]
    positions: list[int]
    end: int
    attributes: list[int]
    producers: list[int]
    alone: list[bool]
    """Whether a batch is hashed by itself: a transaction decides about it, it is compressed, or of magic 0 or 1."""


class HashedOffsets(NamedTuple):
    """The offsets [start, stop) of which records are hashed, how large batches are opened, and the key."""

    start: int
    stop: int
    max_batch_bytes: int
    key: bytes


def unreadable(path: str, offset: int | None) -> UnreadableRecordsError:
    """That the records of a batch cannot be read."""
    return UnreadableRecordsError(f"{path}: the records of the batch with offset {offset} cannot be read")


def hashes_of(
    chunk: BatchChunk, batch: Batch, outcome: int, hasher: RecordHasher, what: HashedOffsets
) -> Iterator[None]:
    """Hash the records of one batch, piece by piece. Raises UnreadableRecordsError."""
    body = chunk.body(batch)
    if batch.is_legacy:
        yield from _hash_messages(chunk, batch, body, hasher, what)
        return
    payload, problem = payload_of(batch, body, what.max_batch_bytes)
    if problem is not None:
        raise unreadable(chunk.walk.source.name, batch.base_offset)
    at, left = 0, batch.count
    while left:
        at, left, status = hasher.hash_records(body[:HEADER_SIZE], payload, at, left, outcome)
        if status:
            raise unreadable(chunk.walk.source.name, batch.base_offset)
        yield


def _hash_messages(
    chunk: BatchChunk, batch: Batch, body: memoryview, hasher: RecordHasher, what: HashedOffsets
) -> Iterator[None]:
    """Hash messages of magic 0 and 1."""
    opened = open_in_pieces(batch, body, what.max_batch_bytes)
    for piece in opened.pieces():
        if piece.problem is not None:
            raise unreadable(chunk.walk.source.name, batch.base_offset)
        at, count = 0, len(piece.rows) // _RECORD_WIDTH
        while at < count:
            at = hasher.hash_messages(piece.rows, piece.payload, at)
            yield


class BatchCursor:
    """Stands before a batch of the slices; `first` and `last` are its offsets, both None after the last one.

    Only batches and records with offsets in [start, stop). `outcomes` is None where no batch is transactional. `key` is
    that of the hashes. Raises SourceError.
    """

    def __init__(
        self,
        slices: Sequence[LogSlice],
        start: int,
        stop: int,
        outcomes: Outcomes | None,
        max_batch_bytes: int,
        key: bytes = NO_HASH_KEY,
    ) -> None:
        self._slices, self._start, self._stop = slices, start, stop
        self._outcomes, self._limit, self._key = outcomes, max_batch_bytes, key
        self._blocks = self._all_blocks()
        self._block: _Block | None = None
        self._index = 0
        self._next_block()
        while self.last is not None and self.last < start:
            self.skip()

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
                            attributes = cells[_ATTRIBUTES::_WIDTH].tolist()
                            alone = [
                                bool(each & CODEC_MASK)
                                or (magic >= 2 and each & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL)
                                for magic, each in zip(cells[_MAGIC::_WIDTH].tolist(), attributes, strict=True)
                            ]
                            yield _Block(
                                item,
                                firsts[:count],
                                lasts[:count],
                                positions[:count],
                                positions[count - 1] + sizes[count - 1],
                                attributes,
                                cells[_PRODUCER::_WIDTH].tolist(),
                                alone,
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

    def offset_after(self, batches: int) -> int:
        """The offset after so many batches, of those that were read."""
        assert self._block is not None
        return self._block.lasts[self._index + batches - 1] + 1

    def batches_below(self, offset: int) -> int:
        """How many of the batches that were read are below an offset."""
        assert self._block is not None
        return bisect_left(self._block.firsts, offset, self._index) - self._index

    def skip(self, batches: int = 1) -> None:
        """Go on after so many batches."""
        assert self._block is not None
        self._index += batches
        if self._index >= len(self._block.firsts):
            self._next_block()

    def hasher(self, *, contents: bool = True) -> RecordHasher:
        """What `hash_next` fills."""
        return RecordHasher(self._key, self._start, self._stop, contents=contents)

    def all_hashes(self, hasher: RecordHasher) -> Iterator[None]:
        """Hash all records that come, piece by piece. Raises UnreadableRecordsError."""
        while self.first is not None:
            yield from self.hash_next(hasher)

    def hash_next(self, hasher: RecordHasher, most: int | None = None) -> Iterator[None]:
        """Hash the records of the next batches, piece by piece, and go on after them. Raises UnreadableRecordsError.

        `most`: of at most so many batches.
        """
        run = self._run() if most is None else min(self._run(), most)
        if run:
            position = self._block.positions[self._index] if self._block is not None else 0
            size = self._position_after(run) - position
            assert self._block is not None
            data = self._block.chunk.walk.bytes_at(position, size)
            done, status = hasher.hash_batches(data, 0, COMMITTED)
            if status:
                raise self._unreadable()
            if done == size:
                self.skip(run)
                yield
                return
        yield from self._hash_one(hasher)
        self.skip()

    def _run(self) -> int:
        """How many of the next batches can be hashed in one call."""
        block = self._block
        assert block is not None
        end, most = self._index, block.positions[self._index] + _RUN_BYTES
        count = len(block.firsts)
        while end < count and not block.alone[end] and block.positions[end] < most:
            end += 1
        if end > self._index and self._position_after(end - self._index) > most:
            end -= 1
        return end - self._index

    def _position_after(self, batches: int) -> int:
        block = self._block
        assert block is not None
        after = self._index + batches
        return block.positions[after] if after < len(block.positions) else block.end

    def _hash_one(self, hasher: RecordHasher) -> Iterator[None]:
        block, index = self._block, self._index
        assert block is not None
        batch = block.chunk.row(index)
        outcome = COMMITTED
        if batch.transactional and not batch.control and self._outcomes is not None:
            outcome = self._outcomes.of(batch.producer_id, batch.position, batch.base_offset)
        what = HashedOffsets(self._start, self._stop, self._limit, self._key)
        yield from hashes_of(block.chunk, batch, outcome, hasher, what)

    def find(self, offsets: Sequence[int]) -> Iterator[FoundRecord]:
        """The records with these offsets, which rise."""
        for offset in offsets:
            while self.last is not None and self.last < offset:
                self.skip()
            block, index = self._block, self._index
            if block is not None and block.firsts[index] <= offset:
                batch = block.chunk.row(index)
                opened = open_in_pieces(batch, block.chunk.body(batch), self._limit).select(offset, offset + 1, 1)
                for record in records(batch, opened):
                    yield FoundRecord(offset, record.key, record.timestamp)

    def _unreadable(self) -> UnreadableRecordsError:
        block = self._block
        return unreadable("" if block is None else block.chunk.walk.source.name, self.first)
