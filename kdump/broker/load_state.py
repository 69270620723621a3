"""What a load keeps in hand: segments and their offset indexes, producers, leader epochs, time indexes, as far as they can fail.

Sources: LogSegment, OffsetIndex, TimeIndex, ProducerStateManager, ProducerAppendInfo, LeaderEpochFileCache of Kafka 4.3.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords, UncaughtReadError
from kdump.broker.result import FileRange, ValidSegment
from kdump.format.batch import CONTROL, TRANSACTIONAL

if TYPE_CHECKING:
    from kdump.broker.log_loader import LogLoader


class InvalidOffset(Exception):
    """An index refuses an entry (InvalidOffsetException)."""


class LogSegmentOffsetOverflow(Exception):
    """The last offset of a batch is no offset of the segment (LogSegmentOffsetOverflowException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class SegmentSplit(Exception):
    """A segment has to be split before the load goes on."""

    def __init__(self, segment: "LogSegment") -> None:
        self.segment = segment


@dataclass(slots=True)
class LogSegment:
    """A segment while it is loaded, with its offset index; `indexed` once that is known."""

    base: int
    name: str
    held: FileRange
    file: FileRecords
    proved: ValidSegment | None = None
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    indexed: bool = False

    @property
    def size(self) -> int:
        return self.file.size

    def clear_index(self) -> None:
        self.offsets, self.positions, self.indexed = array("q"), array("q"), True

    def lookup(self, offset: int) -> int:
        """The position of the last index entry that is not above the offset."""
        at = bisect_right(self.offsets, offset)
        return max(0, self.positions[at - 1]) if at else 0


_Value = TypeVar("_Value")


class OffsetMap(dict[int, _Value]):
    """A map with its offsets in order, too."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []

    def __setitem__(self, offset: int, value: _Value) -> None:
        if offset not in self:
            insort(self.order, offset)
        super().__setitem__(offset, value)

    def __delitem__(self, offset: int) -> None:
        super().__delitem__(offset)
        del self.order[bisect_left(self.order, offset)]

    def clear(self) -> None:
        super().clear()
        self.order.clear()


class PassedSegments(NamedTuple):
    """Segments that were passed over: the last one, and those before it."""

    segment: LogSegment
    before: "PassedSegments | None"


class OpenTransactions(NamedTuple):
    """Producers with an open transaction, and its first offset; the batches of `passed` are still to be added."""

    open: Mapping[int, int]
    passed: PassedSegments | None = None


class ProducerStateManager:
    """ProducerStateManager, as far as it can fail: which transactions are open."""

    def __init__(self, loader: "LogLoader") -> None:
        self._loader = loader
        self._snapshots = loader.snapshots
        self.open: dict[int, int] = {}
        self.begun: dict[int, int] = {}  # producer by first offset of its transaction
        self.passed: PassedSegments | None = None
        self.map_end = 0
        self.snapshot_end = 0

    def truncate_and_reload(self, log_start: int, log_end: int) -> None:
        order = self._snapshots.order
        for offset in order[bisect_right(order, log_end) :] + order[: bisect_right(order, min(log_start, log_end))]:
            self._loader.delete(self._snapshots[offset])
        if log_end != self.map_end:
            self._set({})
            self._load(log_start)
        else:
            self.map_end = max(self.map_end, log_start)
            self.snapshot_end = order[-1] if order else log_start

    def _load(self, log_start: int) -> None:
        while self._snapshots:
            offset = self._snapshots.order[-1]
            state = self._loader.snapshot(self._snapshots[offset])
            if state is not None:
                self._set(state.open)
                self.passed = state.passed
                self.map_end = self.snapshot_end = offset
                return
            self._loader.delete(self._snapshots[offset])
        self.map_end = self.snapshot_end = log_start

    def _set(self, open_: Mapping[int, int]) -> None:
        self.open = dict(open_)
        self.begun = {first: producer for producer, first in open_.items()}
        self.passed = None

    def take_snapshot(self) -> None:
        if self.map_end > self.snapshot_end:
            self._loader.write_snapshot(self.map_end, OpenTransactions(dict(self.open), self.passed))
            self.snapshot_end = self.map_end

    def skip(self, segment: LogSegment, proved: ValidSegment) -> None:
        """Pass over a proved segment."""
        if proved.transactions is None:
            self.passed = PassedSegments(segment, self.passed)
        else:
            self._set(proved.transactions)
        self.map_end = proved.next_offset if proved.state_end is None else proved.state_end

    @property
    def twofold(self) -> bool:
        """Whether transactions began at the same offset. Kafka knows them by that, so that no later segment is as it seems."""
        return len(self.begun) != len(self.open)

    def catch_up(self) -> None:
        """Read the segments that were passed over."""
        segments = []
        while self.passed is not None:
            segments.append(self.passed.segment)
            self.passed = self.passed.before
        for segment in reversed(segments):
            self._loader.add(self, segment, 0, segment.size)

    def apply(
        self, file: FileRecords, batch: FileChannelRecordBatch, header: tuple[int, ...], begun: dict[int, int]
    ) -> tuple[int, bool] | None:
        """ProducerAppendInfo.append: first offset of the transaction that the batch ends, and whether it aborts it. Raises Refused."""
        attributes, producer = header[5], header[9]
        if attributes & CONTROL:
            marker = file.marker(batch, header)
            first = None if marker is None else self.open.pop(producer, None)
            return None if first is None or marker is None else (first, marker.aborts)
        if producer in self.open:
            if not attributes & TRANSACTIONAL:
                first = self.open.pop(producer)  # one cause, one refusal
                self.begun.pop(first, None)
                begun.pop(first, None)
                raise UncaughtReadError("InvalidTxnStateException", batch.position, "transaction")
        elif attributes & TRANSACTIONAL:
            self.open[producer] = batch.offset
            begun[batch.offset] = producer
        return None

    def complete(self, first: int, position: int) -> None:
        if self.begun.pop(first, None) is None:
            raise UncaughtReadError("IllegalArgumentException", position, "marker")


class LeaderEpochFileCache:
    """LeaderEpochFileCache."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []
        self.written = False  # the file is, with other entries than it had

    def assign(self, epoch: int, start: int) -> None:
        """Raises Refused for an entry below zero."""
        if epoch < 0 or start < 0:
            raise UncaughtReadError("IllegalArgumentException", None, "epochs")
        entries = self.entries
        if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))

    def seen(self, epoch: int, start: int) -> None:
        """A batch during recovery."""
        if epoch >= 0 and (not self.entries or epoch > self.entries[-1][0]):
            self.assign(epoch, start)
            self.written = True

    def truncate(self, log_start: int, log_end: int) -> None:
        entries = self.entries
        while entries and entries[-1][1] >= log_end:
            entries.pop()
            self.written = True
        dropped = 0
        while dropped < len(entries) and entries[dropped][1] <= log_start:
            dropped += 1
        if dropped:
            self.written = True
            entries[:dropped] = [(entries[dropped - 1][0], log_start)]


class TimeIndex:
    """TimeIndex.maybeAppend."""

    def __init__(self) -> None:
        self.timestamps, self.offsets = array("q"), array("q")

    def append(self, timestamp: int, offset: int) -> None:
        if self.offsets and offset < self.offsets[-1]:
            raise InvalidOffset
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset)
