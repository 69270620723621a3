"""Which transactional batches of a partition are committed, by the next marker of their producer in all of its log."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final, Literal, Protocol

from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.kernel.producer_results import ProducerEvent
from kdump.kernel.producers import ABORT, COMMIT, Runs
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.transactions import Transactions
from kdump.log.compaction import is_compacted
from kdump.log.header_pass import SliceHeaders, headers_of_walk, is_in_order, joined_headers, read_headers
from kdump.log.log_slice import LOWEST, HeaderPass, LogSlice, SlicedPartition, walk_of_slice
from kdump.log.transactions import Transaction, open_transactions, take_ended
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import is_url
from kdump.storage.walk import BatchChunk, ForeignBatch, Tail, TailContent, Walk

_WIDTH: Final = len(BATCH_COLUMNS)
_POSITION, _FIRST, _LAST = (BATCH_COLUMNS.index(name) for name in ("position", "base_offset", "last_offset"))

Isolation = Literal["read-committed", "read-uncommitted", "all"]
"""`read-committed`: no record of a transaction that was aborted, or of which that is not known. `read-uncommitted`:
every record but control records. `all`: control records, too.
"""


def decide(partition: SlicedPartition, max_batch_bytes: int, *, ordered: bool = True) -> Transactions | None:
    """What became of the transactions of a log; None where no batch is transactional. Raises SourceError.

    Takes all slices of the log, also where only some offsets are converted: a marker can come later. Reads the headers
    alone first, where that was not done; where these show a transaction, all checksums, as a marker with a wrong one
    decides nothing. `begin` of the result takes the number of a slice. `ordered` as in `replay_log`.
    """
    transactions = Transactions(anchored=True, decided=True)
    for _ in replay_log(partition, transactions, max_batch_bytes, ordered=ordered):
        pass
    if partition.part is not None:
        transactions.begin(len(partition.slices))
        for kind, producers in ((COMMIT, partition.part.committed), (ABORT, partition.part.aborted)):
            transactions.add(b"".join(ProducerEvent(producer, kind=kind).packed() for producer in producers))
    return transactions if transactions.seal() else None


def decide_first(partition: SlicedPartition, max_batch_bytes: int) -> Transactions | None:
    """What became of the transactions of the first slice; None where it has none. Raises SourceError.

    Reads that slice, and of the ones after it as much as its last transactions need.
    """
    first = partition._replace(slices=partition.slices[:1])
    at_once = _decide_first_at_once(partition, max_batch_bytes)
    if at_once is not None:
        return at_once.transactions
    headers = read_headers(first.slices)
    if not headers.transactional:
        return None
    # The headers of the slices after it are not read: offsets may be missing there, and may go back.
    is_continuous = missing_is_compaction(first, headers, max_batch_bytes)
    headers = headers._replace(is_ordered=False, is_continuous=is_continuous, compacted=False)
    transactions = _FirstSlice(anchored=True, decided=True)
    with closing(
        replay_log(partition._replace(headers=headers), transactions, max_batch_bytes, ordered=False)
    ) as steps:
        for _ in steps:
            if transactions.is_decided:
                break
    return transactions if transactions.seal() else None


def _decide_first_at_once(partition: SlicedPartition, max_batch_bytes: int) -> "DecidedLog | None":
    """As decide_first, with one read of the first slice, as decide_at_once."""
    first, *others = partition.slices
    if first.log.kind is not Kind.LOG or not is_url(first.log.path):
        return None
    transactions = _FirstSlice(anchored=True, decided=True)
    transactions.begin(0)
    found = replay_in_order(first, transactions.add, max_batch_bytes)
    if found is None:
        return None
    headers = joined_headers([(first, found)])
    if not headers.transactional or not headers.is_continuous or not headers.is_ordered:
        return None if headers.transactional else DecidedLog(headers, None)
    holes = not is_compacted(partition.copy, shown=found.state.compacted)
    offsets = OffsetGaps(holes=holes, returns=True, end=headers.next_offset)
    for number, each in enumerate(others, 1):
        transactions.begin(number)
        if transactions.is_decided:
            break
        for _ in _read(each, transactions, max_batch_bytes, offsets):
            if transactions.is_decided:
                break
    return DecidedLog(headers, transactions if transactions.seal() else None)


class DecidedLog(NamedTuple):
    """What the headers of a log say, and what became of its transactions; None where no batch is transactional."""

    headers: HeaderPass
    transactions: Transactions | None


def decide_at_once(partition: SlicedPartition, max_batch_bytes: int) -> DecidedLog | None:
    """What `read_headers` and `decide` say of a log of an object store, from one read of it; else None.

    Headers cost there what all bytes cost. None where bytes are not a valid batch, where batches are not in order, and
    where a marker may be missing. Raises SourceError.
    """
    transactions = Transactions(anchored=True, decided=True)
    headers = replay_at_once(partition, transactions, max_batch_bytes)
    return None if headers is None else DecidedLog(headers, transactions if transactions.seal() else None)


def replay_at_once(
    partition: SlicedPartition, replay: "LogReplay", max_batch_bytes: int, *, compacted: bool = False
) -> HeaderPass | None:
    """Replay a log of an object store, and return what its headers say, from one read of it; else None.

    None as decide_at_once: then what was replayed is of no use. `compacted`: offsets that are missing hold no marker.
    Raises SourceError.
    """
    found: list[SliceHeaders] = []
    for number, each in enumerate(partition.slices):
        if each.log.kind is not Kind.LOG or not is_url(each.log.path):
            return None
        replay.begin(number)
        headers = replay_in_order(each, replay.add, max_batch_bytes)
        if headers is None:
            return None
        found.append(headers)
    joined = joined_headers(zip(partition.slices, found, strict=True))
    shown = any(each.state.compacted for each in found)
    is_whole = compacted or joined.is_continuous or is_compacted(partition.copy, shown=shown)
    return None if not joined.is_ordered or (joined.transactional and not is_whole) else joined


def read_transactions(
    partition: SlicedPartition, max_batch_bytes: int, begun: Mapping[int, int] | None = None
) -> Transactions:
    """The fold of the transactions of a log, decided as `decide` does. Raises SourceError.

    `begun`: those that are open before the first slice, the first offset by producer.
    """
    transactions = Transactions(anchored=True)
    transactions.resume(begun or {})
    for _ in replay_log(partition, transactions, max_batch_bytes):
        pass
    transactions.seal()
    return transactions


def transactions_of(partition: SlicedPartition, max_batch_bytes: int) -> Iterator[Transaction]:
    """The transactions of a log, decided as `decide` does, in the order in which they end. Raises SourceError."""
    transactions = Transactions(anchored=True, listed=True)
    for _ in replay_log(partition, transactions, max_batch_bytes):
        yield from take_ended(transactions)
    transactions.seal()
    yield from take_ended(transactions)
    yield from open_transactions(transactions)


class SliceReplay(NamedTuple):
    """What the replay of a whole log needs of one slice, read alone.

    `lost` are the positions where a batch may be missing whatever the log is, `holes` those where offsets are.
    `first` is the position and the first offset of the first valid batch, None where there is none or it does not say
    its offset; `end` follows the last one. `compacted`: a valid batch shows that the log cleaner went over it. `error`
    is what ended the read. `is_exact` as LogSlice has it.
    """

    events: bytes = b""
    lost: tuple[int, ...] = ()
    holes: tuple[int, ...] = ()
    first: tuple[int, int] | None = None
    end: int | None = None
    compacted: bool = False
    error: SourceError | None = None
    is_exact: bool = True


def replay_slice(each: LogSlice, max_batch_bytes: int) -> SliceReplay:
    """The replay of one slice."""
    events, offsets, error = _Events(), _NotedGaps(), None
    if each.log.kind is Kind.LOG:
        try:
            for _ in _read(each, events, max_batch_bytes, offsets):
                pass
        except SourceError as failure:
            error = failure
    found, lost, holes = b"".join(events.found), tuple(events.lost), tuple(offsets.holes)
    is_exact = each.is_exact(offsets.first_position, offsets.reached)
    return SliceReplay(found, lost, holes, offsets.first, offsets.end, offsets.compacted, error, is_exact)


def transactions_of_slices(
    partition: SlicedPartition, headers: HeaderPass, replays: Iterable[SliceReplay]
) -> Iterator[Transaction]:
    """As `transactions_of`, from the replays of the slices of a log that is in order. Raises SourceError."""
    holes = not headers.is_continuous and not is_compacted(partition.copy, shown=False)
    if holes and headers.compacted:  # all must be there to show it
        replays = list(replays)
        holes = not any(each.compacted for each in replays)
    transactions = Transactions(anchored=True, listed=True)
    for _ in replay_slices(partition.slices, replays, transactions, holes=holes):
        yield from take_ended(transactions)
    transactions.seal()
    yield from take_ended(transactions)
    yield from open_transactions(transactions)


def replay_slices(
    slices: Iterable[LogSlice], replays: Iterable[SliceReplay], transactions: Transactions, *, holes: bool
) -> Iterator[None]:
    """Replay a log from those of its slices, slice by slice. `holes`: a marker may be among the missing offsets.

    Raises SourceError.
    """
    end: int | None = None
    for number, (each, replay) in enumerate(zip(slices, replays, strict=True)):
        if each.log.kind is not Kind.LOG:
            continue
        transactions.begin(number)
        lost = set(replay.lost)
        if holes:
            if end is not None and replay.first is not None and replay.first[1] > end:
                lost.add(replay.first[0] - 1)
            lost.update(replay.holes)
        for position in sorted(lost):
            transactions.lose(position)
        transactions.add(replay.events)
        end = end if replay.end is None else replay.end
        yield
        if replay.error is not None:
            raise replay.error


def replay_in_order(each: LogSlice, add: Callable[[bytes], None], max_batch_bytes: int) -> SliceHeaders | None:
    """Give the events of a slice to `add`, and return what its headers say: one read for both. Raises SourceError.

    None where bytes are not a valid batch, or batches are not in order: then its events are not those of the log.
    """
    how = {"max_batch_bytes": max_batch_bytes, "runs": Runs(), "on_events": add}
    with each.log.open() as source:
        source.read_until(source.size if each.stop is None else each.stop)
        walk = walk_of_slice(each._replace(lowest=LOWEST), source, **how)
        for item in walk:
            if not is_in_order(item):
                return None
        return headers_of_walk(walk.scanner.state())


class _Events:
    """Keeps what it is given of a slice."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.lost: list[int] = []

    def begin(self, number: int) -> None:
        """There is one slice."""

    def add(self, events: bytes) -> None:
        self.found.append(events)

    def lose(self, position: int) -> None:
        self.lost.append(position)


def with_markers(
    partition: SlicedPartition, following: Iterable[LogSlice], max_batch_bytes: int, *, compacted: bool
) -> SlicedPartition:
    """A part of a log with as many of the slices that follow it as decide its transactions. Raises SourceError.

    Its `offset` ends before them, so that `decide` takes them and nobody else. `compacted`: the log cleaner goes over
    the log, so that offsets that are missing hold no marker.
    """
    headers = read_headers(partition.slices) if partition.headers is None else partition.headers
    if not headers.transactional:
        return partition._replace(headers=headers)
    headers = headers._replace(is_continuous=compacted or headers.compacted, compacted=False)
    partition = partition._replace(headers=headers)
    transactions = Transactions(anchored=True)
    for _ in replay_log(partition, transactions, max_batch_bytes):
        pass
    slices, own = list(partition.slices), len(partition.slices)
    offsets = None if headers.is_continuous else OffsetGaps()
    for each in following:
        transactions.begin(len(slices))
        if not transactions.is_open_before(own):  # others begin all the time
            break
        slices.append(each)
        for _ in _read(each, transactions, max_batch_bytes, offsets):
            pass
    return partition._replace(slices=tuple(slices))


class _FirstSlice(Transactions):
    """Knows when each transaction of the first slice has ended, or lost its marker."""

    _is_read = False

    @property
    def is_decided(self) -> bool:
        return self._is_read and not self.is_open_before(1)

    def begin(self, number: int) -> None:
        super().begin(number)
        self._is_read = number >= 1


class LogReplay(Protocol):
    """Takes the events of the slices in log order, and the positions where batches may be missing."""

    def begin(self, number: int) -> None: ...
    def add(self, events: bytes) -> None: ...
    def lose(self, position: int) -> None: ...


def replay_log(
    partition: SlicedPartition, replay: LogReplay, max_batch_bytes: int, *, ordered: bool = True
) -> Generator[None]:
    """Replay all slices, step by step; none where the headers show that no batch is transactional.

    `ordered`: the slices were put in order. Then they may repeat batches, and offsets that go back mean nothing.
    """
    headers = read_headers(partition.slices) if partition.headers is None else partition.headers
    if not headers.transactional:
        return
    holes = not headers.is_continuous and not missing_is_compaction(partition, headers, max_batch_bytes)
    returns = not ordered and not headers.is_ordered
    offsets = OffsetGaps(holes=holes, returns=returns) if holes or returns else None
    for number, each in enumerate(partition.slices):
        if each.log.kind is Kind.LOG:
            replay.begin(number)
            yield from _read(each, replay, max_batch_bytes, offsets)
            yield  # a walk passes on its last events at its end


def missing_is_compaction(partition: SlicedPartition, headers: HeaderPass, max_batch_bytes: int) -> bool:
    """Whether offsets that are missing hold no marker, as the log cleaner went over the log.

    A header whose checksum was not computed does not show it.
    """
    if is_compacted(partition.copy, shown=False):
        return True
    return headers.compacted and any(_shows_compaction(each, max_batch_bytes) for each in partition.slices)


def _shows_compaction(each: LogSlice, max_batch_bytes: int) -> bool:
    with each.log.open() as source:
        walk = walk_of_slice(each, source, max_batch_bytes=max_batch_bytes)
        for _ in walk:
            pass
        return walk.scanner.state().compacted


def _read(each: LogSlice, replay: LogReplay, max_batch_bytes: int, offsets: "OffsetGaps | None") -> Iterator[None]:
    """Add the batches of a slice that are valid, and where others may be missing."""
    if each.after_gap:
        replay.lose(each.start - 1)
    with each.log.open() as source:
        how = {"max_batch_bytes": max_batch_bytes, "runs": Runs(), "everything": offsets is not None}
        for item in walk_of_slice(each, source, on_events=replay.add, **how):
            if isinstance(item, BatchChunk) and not item.damaged:
                for position in () if offsets is None else offsets.of(item):
                    replay.lose(position)
            elif isinstance(item, BatchChunk):
                replay.lose(item.row(0).position)
            elif isinstance(item, Tail):
                if item.reason is not TailContent.ZEROS or not each.log.preallocated:
                    replay.lose(item.position)
            elif not isinstance(item, ForeignBatch):
                replay.lose(item.position)
            yield


class OffsetGaps:
    """Finds where offsets are missing between valid batches (`holes`), and where they go back (`returns`).

    Those of a log that is compacted hold no marker. Where offsets go back, the log before is not the one that goes on.
    `end`: the offset after the last batch before, None without one.
    """

    def __init__(self, *, holes: bool = True, returns: bool = False, end: int | None = None) -> None:
        self._end = end
        self._holes, self._returns = holes, returns

    def of(self, chunk: BatchChunk) -> Iterator[int]:
        """A position inside the batch before each of them."""
        cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
        columns = (cells[column::_WIDTH].tolist() for column in (_POSITION, _FIRST, _LAST))
        for position, first, last in zip(*columns, strict=True):
            end = first if first == NO_VALUE or self._end is None else self._end
            if (first > end and self._holes) or (first < end and self._returns):
                yield position - 1
            self._end = max(first, last) + 1  # a last offset can have overflowed


class _NotedGaps(OffsetGaps):
    """Notes where offsets are missing, and yields none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.holes: list[int] = []
        self.first: tuple[int, int] | None = None
        self.first_position: int | None = None
        self._walk: Walk | None = None

    @property
    def reached(self) -> int:
        """Where the walk ended; -1 without a valid batch."""
        return -1 if self._walk is None else self._walk.position

    @property
    def compacted(self) -> bool:
        return self._walk is not None and self._walk.scanner.state().compacted

    @property
    def end(self) -> int | None:
        return self._end

    def of(self, chunk: BatchChunk) -> Iterator[int]:
        if self._end is None:
            batch = chunk.row(0)
            self.first_position = batch.position
            self.first = None if batch.base_offset == NO_VALUE else (batch.position, batch.base_offset)
            self._walk = chunk.walk
        self.holes += super().of(chunk)
        return iter(())
