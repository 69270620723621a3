"""The last stable offset of a log, from the newest producer snapshot on, as a broker finds it when it starts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from kdump.broker.open_transaction_map import open_transactions_in
from kdump.convert.ranges.known_log import KnownLog
from kdump.convert.ranges.range_log import range_log, slices_of_copy
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.kernel.transactions import Transactions
from kdump.log.header_pass import SliceHeaders, joined_headers
from kdump.log.isolation import SliceReplay, read_transactions, replay_in_order, replay_slice, replay_slices
from kdump.log.log_slice import HeaderPass, LogSlice
from kdump.log.ranges import OffsetRange
from kdump.log.slice_tasks import LogOfSlices, SliceTask, answers_of_slices, headers_of
from kdump.log.transactions import last_stable_offset
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import is_url
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.storage.walk import MAX_BATCH_BYTES


def stable_offset(log: KnownLog, max_batch_bytes: int = MAX_BATCH_BYTES) -> int:
    """The offset at which a committed read stops: the first one of an open transaction, else the log end offset.

    Replays what follows the newest producer snapshot that is valid, all of the log without one. A transaction whose
    marker damage may hold counts as open there. Raises SourceError.
    """
    state = next(_states(log), _ProducerState(log.start, {}))
    if state.offset == log.end:
        transactions = Transactions(anchored=True)
        transactions.resume(state.begun)
    else:
        once = _read_once(log, state, max_batch_bytes)
        transactions = _read(log, state, max_batch_bytes) if once is None else once
    found = last_stable_offset(transactions, "stop")
    return log.end if found is None else min(found, log.end)


def _read_once(log: KnownLog, state: "_ProducerState", max_batch_bytes: int) -> Transactions | None:
    """The transactions of a log of an object store from a state on, from one read; None where headers are needed first.

    Raises SourceError.
    """
    asked = OffsetRange(state.offset, log.end)
    if not _is_read_once(log) or log.common is not None or not log.is_cut:
        return None
    transactions, found = Transactions(anchored=True), list[SliceHeaders]()
    transactions.resume(state.begun)
    slices = slices_of_copy(log, asked)
    for number, each in enumerate(slices):
        transactions.begin(number)
        headers = replay_in_order(each, transactions.add, max_batch_bytes)
        if headers is None:
            return None
        found.append(headers)
    if not slices or not _is_in_order(log, asked, joined_headers(zip(slices, found, strict=True))):
        return None
    transactions.seal()
    return transactions


def _read(log: KnownLog, state: "_ProducerState", max_batch_bytes: int) -> Transactions:
    """The same after a read of the headers. Raises SourceError."""
    tail = range_log(log, OffsetRange(state.offset, log.end), max_batch_bytes).partition
    headers = tail.headers
    if headers is not None and log.compacted:
        tail = tail._replace(headers=headers._replace(is_continuous=True))
    return read_transactions(tail, max_batch_bytes, state.begun)


def _is_read_once(log: KnownLog) -> bool:
    """Whether headers cost what all bytes cost."""
    return is_url(log.reference.partition.path)


def _is_in_order(log: KnownLog, offsets: OffsetRange, headers: HeaderPass) -> bool:
    """Whether no marker is missing between these offsets."""
    return headers.is_ordered and (log.compacted or (headers.has_all(*offsets) and not headers.compacted))


def large_logs(logs: Sequence[KnownLog], least_bytes: int) -> list[KnownLog]:
    """Those of which `stable_offset` reads so many bytes or more, as no valid producer snapshot is there."""
    sizes = (sum(one.log.size for copy in log.copies for one in copy.partition.segments) for log in logs)
    pairs = zip(logs, sizes, strict=True)
    return [log for log, size in pairs if size >= least_bytes and next(_states(log), None) is None]


def stable_offsets(logs: Sequence[KnownLog], engine: Engine) -> Iterator[tuple[KnownLog, int]]:
    """The logs, in order, with the `stable_offset` of each, found by the tasks of an engine. Raises SourceError.

    Each segment of a log that has one copy, no valid producer snapshot, and its batches in order is read by a task of
    its own.
    """
    slices = {number: found for number, log in enumerate(logs) if (found := _slices_of(log))}
    looked = dict(_looked(engine, logs, slices))

    def tasks() -> Iterator[SliceTask | _StableOffsetTask]:
        for number, log in enumerate(logs):
            if number not in looked:
                yield _StableOffsetTask(number, log)
            elif looked[number].is_open:
                yield from (SliceTask(number, part) for part in slices[number])

    run = _answer
    results = groupby(engine.map(run, tasks()), key=lambda pair: pair[0].number)
    for number, log in enumerate(logs):
        known = looked.get(number)
        if known is not None and not known.headers.transactional:
            yield log, log.end
            continue
        answers: Iterator[Any] = (
            (answer for _, answer in next(results)[1]) if known is None or known.is_open else iter(())
        )
        if known is None:
            yield log, _raised(next(answers))
            continue
        transactions = known.transactions
        if transactions is None:
            transactions = Transactions(anchored=True)
            for _ in replay_slices(slices[number], answers, transactions, holes=False):
                pass
        transactions.seal()
        stable = last_stable_offset(transactions, "stop")
        yield log, log.end if stable is None else min(stable, log.end)


class _StableOffsetTask(NamedTuple):
    """A log that one task reads."""

    number: int
    log: KnownLog

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        return sum(one.log.size for copy in self.log.copies for one in copy.partition.segments)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the task reads."""
        return tuple(copy.partition.path for copy in self.log.copies)


def _answer(task: SliceTask | _StableOffsetTask) -> SliceReplay | int | SourceError:
    if isinstance(task, SliceTask):
        return replay_slice(task.slice, MAX_BATCH_BYTES)
    try:
        return stable_offset(task.log)
    except SourceError as error:
        return error


def _raised(answer: int | SourceError) -> int:
    if isinstance(answer, SourceError):
        raise answer
    return answer


def _slices_of(log: KnownLog) -> tuple[LogSlice, ...]:
    """The slices of a log that tasks of their own can read; none of another log."""
    if log.common is not None or not log.is_cut or len(log.copies[0].partition.segments) < 2:
        return ()
    return () if next(_states(log), None) is not None else slices_of_copy(log, OffsetRange(log.start, log.end))


class _Looked(NamedTuple):
    """What the headers of a log say; and its transactions, where its headers cost what all bytes cost."""

    headers: HeaderPass
    transactions: Transactions | None

    @property
    def is_open(self) -> bool:
        """Whether the transactions have to be read yet."""
        return self.headers.transactional and self.transactions is None


def _looked(
    engine: Engine, logs: Sequence[KnownLog], slices: Mapping[int, tuple[LogSlice, ...]]
) -> Iterator[tuple[int, _Looked]]:
    """Those of each log whose slices are in order, so that no marker is missing between them."""
    several = (LogOfSlices(number, parts) for number, parts in slices.items())
    for number, answers in answers_of_slices(engine, _look, several):
        log, parts, found = logs[number], slices[number], list[SliceHeaders | None]()
        transactions = Transactions(anchored=True) if _is_read_once(log) else None
        for place, (headers, events) in enumerate(answers):
            if isinstance(headers, SourceError):
                continue
            found.append(headers)
            if transactions is not None:
                transactions.begin(place)
                transactions.add(events)
        if len(found) < len(parts):
            continue
        joined = joined_headers(zip(parts, found, strict=True))
        if _is_in_order(log, OffsetRange(log.start, log.end), joined):
            yield number, _Looked(joined, transactions)


def _look(task: SliceTask) -> tuple[SliceHeaders | SourceError | None, bytes]:
    """What the headers of a slice say, and of one of an object store its events."""
    if not is_url(task.slice.log.path):
        return headers_of(task), b""
    events = list[bytes]()
    try:
        headers = replay_in_order(task.slice, events.append, MAX_BATCH_BYTES)
    except SourceError as error:
        return error, b""
    return headers, b"".join(events) if headers is not None else b""


class _ProducerState(NamedTuple):
    """The open transactions at an offset: the first offset by producer."""

    offset: int
    begun: Mapping[int, int]


def _states(log: KnownLog) -> Iterator[_ProducerState]:
    """The valid producer snapshots, the newest first."""
    if not log.is_cut:
        return
    cuts = [log.end] * len(log.copies) if log.common is None else log.common.history.cuts
    files = [
        (file.base_offset, file)
        for copy, cut in zip(log.copies, cuts, strict=True)
        for file in copy.partition.producer_snapshots
        if file.base_offset is not None and log.start <= file.base_offset <= min(cut, log.end)
    ]
    for offset, file in sorted(files, key=lambda each: each[0], reverse=True):
        with suppress(SourceError), file.open() as source:
            found = open_transactions_in(read_whole(source, MAX_COMPANION_BYTES))
            if found is not None:
                yield _ProducerState(offset, found.first_offsets)
