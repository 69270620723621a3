"""What became of the transactions of a log that is read once: markers are looked for shortly ahead of the records.

kdump.log.isolation decides after a pass over the whole log, which costs an object store all of its bytes once more.
Most transactions end soon: what is read for their markers is kept until the records are read (ObjectStore.keep). Of a
transaction that is longer than what is kept, the begin is fetched twice.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kdump.convert.records.unread_headers import HeadersNeeded
from kdump.kernel.producers import Runs
from kdump.kernel.transactions import UNDECIDED, Transactions
from kdump.log.header_pass import SliceHeaders, headers_of_walk, is_in_order
from kdump.log.log_slice import LogSlice, PartOfLog, SlicedPartition, walk_of_slice
from kdump.storage.file_store import keep_more
from kdump.storage.source import InputFile
from kdump.storage.walk import BatchChunk, Walk

_STEP_BYTES: Final = 4 << 20


class OutcomesAhead:
    """Decides the transactions of a log as kdump.log.isolation.decide does, as far as the records that are read need.

    The log is taken for one that is in order and lacks nothing.
    """

    def __init__(self, partition: SlicedPartition, max_batch_bytes: int) -> None:
        part = PartOfLog() if partition.part is None else partition.part
        self.transactions = Transactions(anchored=True, decided=True)
        self.stable: int | None = None
        """The last stable offset, of a log that is read up to that, as soon as a chunk that has it was taken."""
        self._until_stable = partition.until_stable
        self._slices: Sequence[LogSlice] = (*partition.slices, *part.following)
        self._max_batch_bytes, self._is_whole = max_batch_bytes, part.ends_log
        self._own = len(partition.slices)
        self._headers: dict[int, SliceHeaders] = {}
        self._steps: Iterator[None] | None = None
        self._now = 0
        self._reached = 0, 0

    def begin(self, number: int) -> None:
        """Go on with the records of the slice of this number."""
        self._now = number
        self.transactions.begin(number)

    def take(self, chunk: BatchChunk) -> None:
        """Decide about the batches of a chunk. Raises HeadersNeeded where the log is another one, and SourceError."""
        self._decide(chunk)
        if self._until_stable and self.stable is None:
            outcomes = self.transactions.of_rows(chunk.walk.scanner.rows, chunk.batches)
            index = -1 if outcomes is None else outcomes.find(UNDECIDED)
            self.stable = None if index < 0 else chunk.row(index).base_offset

    def is_past(self, each: LogSlice) -> bool:
        """Whether a slice begins at the last stable offset or after it."""
        return self.stable is not None and each.log.base_offset is not None and each.log.base_offset >= self.stable

    def headers_from(self, number: int) -> list[SliceHeaders]:
        """What the headers of the slices from one on say, which were read for their markers alone."""
        return [self._headers[each] for each in range(number, self._own) if each in self._headers]

    def _decide(self, chunk: BatchChunk) -> None:
        start, stop = chunk.row(0).position, (self._now, chunk.walk.position)
        if self._steps is None:
            if not chunk.walk.scanner.state().transactional:
                return
            keep_more(self._slices[self._now].log.path)
            self._steps = self._replay(self._now, start)
        if self._knows(stop):
            return
        for _ in self._steps:
            if self._knows(stop):
                break
        self.transactions.begin(self._now)
        self.transactions.forget(start)
        self.transactions.seal()

    def close(self) -> None:
        """Read no further."""
        self._steps = None

    def _knows(self, stop: tuple[int, int]) -> bool:
        """Whether it is decided what became of all batches before a place."""
        if self._reached >= (len(self._slices), 0):
            return True
        return self._reached >= stop and not self.transactions.is_open_before(*stop)

    def _replay(self, number: int, position: int) -> Iterator[None]:
        """Replay the batches from a place on, step by step."""
        for each in self._slices[number:]:
            begin = position
            with each.log.open() as source:
                stop = source.size if each.stop is None else min(each.stop, source.size)
                source.read_until(stop)
                walk: Walk | None = None
                runs = Runs()
                while position < stop or walk is None:
                    part = each._replace(start=position, stop=min(position + _STEP_BYTES, stop))
                    self.transactions.begin(number)
                    walk = self._step(part, source, runs, walk)
                    position = walk.position
                    self._reached = number, position
                    yield
            if begin == each.start and number < self._own:
                self._headers[number] = headers_of_walk(walk.scanner.state())
            number, position = number + 1, 0
            position = self._slices[number].start if number < len(self._slices) else 0
            self._reached = number, position
        if not self._is_whole and self.transactions.open_count:
            raise HeadersNeeded

    def _step(self, part: LogSlice, source: InputFile, runs: Runs, before: Walk | None) -> Walk:
        """Replay the batches that begin in a part of a slice. Raises HeadersNeeded for what is no valid batch."""
        how = {"max_batch_bytes": self._max_batch_bytes, "runs": runs, "on_events": self.transactions.add}
        if before is not None:
            how |= {"after": before, "scanner": before.scanner}
        walk = walk_of_slice(part, source, **how)
        if not all(map(is_in_order, walk)):
            raise HeadersNeeded
        return walk
