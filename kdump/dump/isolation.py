"""What a consumer with an isolation level gets of a log: which batches, up to which offset, and what it does not get.

A consumer gets no control records. With read-committed it gets no record of an aborted transaction either, and nothing
from the last stable offset on: the first offset of the first transaction that is open, or whose outcome is not known.
A batch belongs to one transaction, so that whole batches are left out. Source: KIP-98.
"""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from kdump.dump import log_end
from kdump.dump.events import IsolationNote
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.batch import CONTROL, TRANSACTIONAL
from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.transactions import ABORTED, UNDECIDED, Transactions
from kdump.log.header_pass import read_headers
from kdump.log.isolation import decide, decide_at_once, decide_first
from kdump.log.log_slice import SlicedPartition, whole_log
from kdump.log.transactions import OPEN, first_unstable
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import keep_more, parent_of
from kdump.storage.listing import list_directory, partition_of_listing
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.walk import BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_ATTRIBUTES: Final = BATCH_COLUMNS.index("attributes")
_LAST_OFFSET: Final = BATCH_COLUMNS.index("last_offset")
_RECORD_BATCH: Final = 2


class ChunkRange(NamedTuple):
    """The batches [start, stop) of a chunk, by their numbers; `aborted`: of transactions that were aborted."""

    start: int
    stop: int
    aborted: bool = False


class IsolationHeader(NamedTuple):
    """What a header says about who gets the batch; the fields are BATCH_COLUMNS."""

    position: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    producer_id: int
    count: int  # type: ignore[assignment]  # hides a method of tuples that is not used here

    @property
    def first_offset(self) -> int:
        """The last one of a wrapper message, whose header does not say the first."""
        is_unknown = self.magic < _RECORD_BATCH and self.base_offset == NO_VALUE
        return self.last_offset if is_unknown else self.base_offset

    def has(self, bit: int) -> bool:
        """Whether a bit of the attributes is set, which messages of magic 0 and 1 do not have."""
        return self.magic >= _RECORD_BATCH and bool(self.attributes & bit)


_COLUMNS: Final = tuple(BATCH_COLUMNS.index(name) for name in IsolationHeader._fields)


class UncommittedRead:
    """A read-uncommitted read: everything but control batches."""

    end: float = math.inf
    """The last stable offset, where it is below the log end."""

    def begin_file(self, file: LogFile, start: int = 0) -> None:
        """Begin with the batches of a file, whose positions count from `start`."""

    def ranges(self, chunk: BatchChunk) -> Iterator[ChunkRange]:
        """The batches of a chunk of valid batches that the consumer gets."""
        cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
        attributes, lasts = cells[_ATTRIBUTES::_WIDTH].tolist(), cells[_LAST_OFFSET::_WIDTH].tolist()
        if max(lasts) < self.end and not any(each & (CONTROL | TRANSACTIONAL) for each in attributes):
            yield ChunkRange(0, chunk.batches)
            return
        columns = [cells[column::_WIDTH].tolist() for column in _COLUMNS]
        start = 0
        for index, header in enumerate(map(IsolationHeader._make, zip(*columns, strict=True))):
            if not self.includes(header):
                if start < index:
                    yield ChunkRange(start, index)
                start = index + 1
        if start < chunk.batches:
            yield ChunkRange(start, chunk.batches)

    def includes(self, header: IsolationHeader) -> bool:
        """Whether the consumer gets a batch; one that it does not get may be counted."""
        return not header.has(CONTROL)

    def notes(self, *, complete: bool, filtered: bool) -> Iterator[IsolationNote]:
        """What is to be said after the log; `complete`: the read went through all that was to be shown."""
        yield from ()


class StoredRead(UncommittedRead):
    """A read of everything that is stored, which says what is known to be of aborted transactions.

    The markers are read when the first transactional batch of a file comes: those of the file, and of as many segments
    after it as its last transactions need. Where one of them cannot be read, or may be missing, nothing is known.
    """

    def __init__(self, max_batch_bytes: int) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._file: LogFile | None = None
        self._start = 0
        self._decisions: Transactions | None = None

    def begin_file(self, file: LogFile, start: int = 0) -> None:
        """Begin with the batches of a file, whose positions count from `start`."""
        self._file, self._start, self._decisions = file, start, None

    def ranges(self, chunk: BatchChunk) -> Iterator[ChunkRange]:
        """All batches of a chunk of valid batches."""
        cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
        if max(cells[_ATTRIBUTES::_WIDTH].tolist()) < TRANSACTIONAL:  # the bits above it are rare, too
            yield ChunkRange(0, chunk.batches)
            return
        columns = [cells[column::_WIDTH].tolist() for column in _COLUMNS]
        headers = map(IsolationHeader._make, zip(*columns, strict=True))
        stop = 0
        for is_aborted, several in groupby(headers, self._is_aborted):
            start, stop = stop, stop + sum(1 for _ in several)
            yield ChunkRange(start, stop, is_aborted)

    def _is_aborted(self, header: IsolationHeader) -> bool:
        if not header.has(TRANSACTIONAL) or header.has(CONTROL):
            return False
        if self._file is not None:
            keep_more(self._file.path)
            self._decisions, self._file = _decisions_about(self._file, self._max_batch_bytes), None
        position = self._start + header.position
        return self._decisions is not None and self._decisions.of(header.producer_id, position) == ABORTED


def _decisions_about(file: LogFile, max_batch_bytes: int) -> Transactions | None:
    """What became of the transactions of one file of a log; None where its markers cannot be read."""
    try:
        (log,) = known_logs([file])
        slices, name = log.partition.slices, os.path.basename(file.path)
        number = next(number for number, each in enumerate(slices) if os.path.basename(each.log.path) == name)
        decisions = decide_first(log.partition._replace(slices=slices[number:]), max_batch_bytes)
    except SourceError:  # what lies in the way of reading it is said where it is shown
        return None
    if decisions is not None:
        decisions.begin(0)
    return decisions


class FilesOfLog(NamedTuple):
    """Log files to show, and the log that they are of. `whole`: no segment of it lies elsewhere.

    `path` names it in messages: the directory as it was given, or the file.
    """

    path: str
    files: Sequence[LogFile]
    partition: SlicedPartition
    whole: bool


def known_logs(files: Sequence[LogFile]) -> list[FilesOfLog]:
    """The logs of log files of one kind and directory. Raises SourceError.

    A log has all segments of its directory, also where only some are to be shown: a marker can be in any of them. A
    file that is no segment of its directory is a log of its own.
    """
    kind, path = files[0].kind, files[0].path
    topic_partition = naming.topic_partition_of_file(path)
    if kind is not Kind.LOG:  # a format without transactions
        partition = Partition(path, topic_partition, False, tuple(map(Segment, files)))
        return [FilesOfLog(path, files, whole_log(partition), True)]
    logs, names = list[FilesOfLog](), set[str]()
    if files[0].read_from is None:
        partition, errors = partition_of_listing(list_directory(parent_of(path)), topic_partition, whole=False)
        for error in errors:
            raise error
        names = {os.path.basename(segment.log.path) for segment in partition.segments}
        segments = [each for each in files if os.path.basename(each.path) in names]
        directory = os.path.dirname(path) or "."
        if segments:
            logs.append(FilesOfLog(directory, segments, whole_log(partition), topic_partition is not None))
    for each in files:
        if os.path.basename(each.path) not in names:
            partition = Partition(each.path, None, False, (Segment(each),))
            logs.append(FilesOfLog(each.path, [each], whole_log(partition), False))
    return logs


class CommittedRead(UncommittedRead):
    """A read-committed read of a log: where it ends, and how many records it has left out so far."""

    def __init__(self, log: FilesOfLog, max_batch_bytes: int) -> None:
        """Read the whole log for its markers. Raises SourceError."""
        self._log, partition = log, log.partition
        keep_more(partition.path)
        at_once = decide_at_once(partition, max_batch_bytes)
        if at_once is not None:
            headers, self._decisions = at_once
        else:
            headers = read_headers(partition.slices)
            if not headers.is_ordered:
                headers = headers._replace(compacted=True)  # it may be; decide looks at what the checksums prove
            self._decisions = decide(partition._replace(headers=headers), max_batch_bytes, ordered=False)
        self._unstable = None if self._decisions is None else first_unstable(self._decisions, "stop")
        if self._unstable is not None and self._unstable.first_offset is not None:
            self.end = self._unstable.first_offset
        files = [each.log for each in partition.slices]
        self._log_end_offset = headers.next_offset if headers.is_ordered else None
        if self._log_end_offset is None:
            ends = (log_end.log_end_offset([each], max_batch_bytes) for each in files)
            self._log_end_offset = max((end for end in ends if end is not None), default=None)
        self._numbers = {os.path.basename(each.path): number for number, each in enumerate(files)}
        self._start = 0
        self.begin((None, None))

    def begin(self, offsets: log_end.Range) -> None:
        """Begin to count the records of these offsets that are left out."""
        self._offsets = offsets
        self._aborted_records, self._unstable_records = _LeftOutRecords(), _LeftOutRecords()

    def begin_file(self, file: LogFile, start: int = 0) -> None:
        """Begin with the batches of a file, whose positions count from `start`."""
        self._start = start
        if self._decisions is not None:
            self._decisions.begin(self._numbers[os.path.basename(file.path)])

    def includes(self, header: IsolationHeader) -> bool:
        """Whether the consumer gets a batch; one that it does not get is counted."""
        first, is_control, outcome = header.first_offset, header.has(CONTROL), None
        if not is_control and header.has(TRANSACTIONAL):
            position, decisions = self._start + header.position, self._decisions
            outcome = UNDECIDED if decisions is None else decisions.of(header.producer_id, position)
        if outcome == UNDECIDED:
            self.end = min(self.end, first)  # it is below only where it was written after the log was read
        if first >= self.end:
            if not is_control:
                self._unstable_records.add(header, self._offsets)
            return False
        if outcome == ABORTED:
            self._aborted_records.add(header, self._offsets)
        return outcome != ABORTED and not is_control

    def notes(self, *, complete: bool, filtered: bool) -> Iterator[IsolationNote]:
        """Where the read ends, and what it has left out."""
        log, unstable = self._log, self._unstable
        topic, partition = log.partition.topic_partition or (None, None)
        outcome = None if self.end == math.inf else OPEN if unstable is None else unstable.outcome
        yield IsolationNote(
            log.path,
            topic,
            partition,
            "read-committed",
            self._log_end_offset if outcome is None else int(self.end),
            self._log_end_offset,
            outcome,
            None if unstable is None else unstable.producer_id,
            None if unstable is None else unstable.producer_epoch,
            log.whole,
            self._aborted_records.total if complete else None,
            self._unstable_records.total if complete else None,
            self._aborted_records.exact and self._unstable_records.exact,
            filtered,
        )


class _LeftOutRecords:
    """How many records are left out, by the headers of their batches: None where one does not say it.

    Not `exact`: some may not have the offsets that are asked for.
    """

    def __init__(self) -> None:
        self.total: int | None = 0
        self.exact = True

    def add(self, header: IsolationHeader, offsets: log_end.Range) -> None:
        """Count the records of a batch that have these offsets."""
        first, stop = offsets
        low, high = header.first_offset, header.last_offset
        span = high - low + 1
        low, high = max(low, low if first is None else first), min(high, high if stop is None else stop - 1)
        if low > high or self.total is None:
            return
        if header.count == NO_VALUE:
            self.total = None
            return
        self.total += max(0, min(header.count, high - low + 1))
        self.exact = self.exact and (header.count == span or high - low + 1 == span)
