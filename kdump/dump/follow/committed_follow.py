"""Up to where the transactions of a followed log are decided, and which of its batches are of aborted ones.

A read-committed follow reads the log ahead of what it shows. What it may show ends at the last stable offset: the first
offset of the first transaction that is open, or whose outcome is not known. Below it each transaction has its marker in
what was read ahead. Source: KIP-98.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from kdump.dump.follow.batch_sequence import BatchPlace, NextValid, SegmentPlace, next_valid, read_sequence
from kdump.dump.follow.doubt import Doubt, doubt_about
from kdump.dump.follow.partition_listing import PartitionListing, SegmentPath
from kdump.dump.follow.recent_batches import BatchState, SegmentInode, ShownBatch, shown, state_of
from kdump.dump.isolation import IsolationHeader, UncommittedRead
from kdump.format.batch import CONTROL, TRANSACTIONAL
from kdump.kernel.producers import Runs
from kdump.kernel.results import Carry
from kdump.kernel.transactions import Transactions
from kdump.log.compaction import is_compacted
from kdump.log.isolation import OffsetGaps
from kdump.log.transactions import ABORTED, OPEN, Transaction, first_unstable, take_ended
from kdump.storage.directory_watch import PartitionPath
from kdump.storage.live import LIVE_PAUSE_SECONDS
from kdump.storage.partition import Partition
from kdump.storage.path_watch import PathWatch
from kdump.storage.source import BytesSource, FileSource
from kdump.storage.walk import BatchChunk, Walk

HELD_SECONDS: Final = 60
"""So long a producer lets a transaction be open unless it is configured (transaction.timeout.ms)."""


class CommittedFollow(UncommittedRead):
    """Reads one log ahead. `look` goes on to its end; then `ranges` says which batches below `end` are committed."""

    def __init__(
        self,
        files: PartitionListing,
        where: PartitionPath,
        max_batch_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._files, self._max_batch_bytes, self._clock = files, max_batch_bytes, clock
        self._partition = Partition(where.directory, where.topic_partition, False, ())
        self._is_compacted = False
        self._told: int | None = None  # the offset at which the follow was said to be held
        self.restart()

    def restart(self) -> None:
        """Read again from the place of the next look on."""
        self.end = 0
        self._at: SegmentPlace | None = None
        self._newest: ShownBatch | None = None
        self._file: PathWatch | None = None
        self._doubt: Doubt | None = None
        self._transactions = Transactions(anchored=True, listed=True)
        self._holes, self._returns = OffsetGaps(), OffsetGaps(holes=False, returns=True)
        self._end = 0  # after the highest offset that was read
        self._aborted: dict[int, list[Transaction]] = {}
        self._held: tuple[int, float] | None = None

    @property
    def has_changed(self) -> bool:
        """Whether `look` may find something."""
        if self._at is None:
            return bool(self._files.segments)
        return self._doubt is not None or self._is_to_tell or (self._file is not None and self._file.has_changed())

    def look(self, start: SegmentPlace | None, below: int | None = None) -> int | None:
        """Read on to the end of the log; after a restart from `start` on, None for the log start. Raises SourceError.

        With `below` to the high watermark: a broker may truncate the markers above it.
        `start` is the end of what was shown: all of it was decided, so that no transaction from before is open. Where
        it is not any more, as a marker was cut off after `start`, returns the offset that the follow has to go back to.
        """
        if self._newest is not None and state_of(self._newest) is not BatchState.THERE:
            if start is None:
                self.restart()
            elif (offset := self.truncate(start.place.next_offset)) < start.place.next_offset:
                return offset
        elif self._transactions.first_undecided() is not None and not self._is_compacted and self._is_cleaned():
            self.restart()
        if self._at is None:
            if start is None and self._files.segments:
                start = _begin_of(self._files.segments[0])
            if start is None:
                return None
            self._open(start)
        elif start is not None:
            self._forget_shown(start.place.next_offset)
        doubt, self._doubt = self._doubt, None
        self._read_on(doubt, below)
        self._set_end()
        return None

    def truncate(self, offset: int) -> int:
        """Read again from the log start on, as the log was truncated. Returns where the follow goes on.

        That is `offset`, or before it the first offset of a transaction whose marker was cut off. Raises SourceError.
        """
        self.restart()
        if not self._files.segments:
            return offset
        self._open(_begin_of(self._files.segments[0]))
        self._read_on(None, offset, at_once=True)
        unstable = self._first_unstable()
        return offset if unstable is None else min(offset, _first_offset(unstable))

    def held(self) -> str | None:
        """Why nothing is shown from an offset on, once for each offset; None where nothing is to be said."""
        unstable = self._first_unstable()
        if unstable is None or not self._is_to_tell:
            return None
        self._told = unstable.first_offset
        what = (
            "has had a transaction open for a minute"
            if unstable.outcome == OPEN
            else "has a transaction whose marker cannot be read or may be missing"
        )
        whose = f"producer {unstable.producer_id} (epoch {unstable.producer_epoch})"
        return f"read-committed shows nothing from offset {unstable.first_offset} on: {whose} {what}"

    def includes(self, header: IsolationHeader) -> bool:
        """Whether a consumer gets a batch of those that were read up to `end`."""
        offset = header.first_offset
        if header.has(CONTROL) or offset >= self.end:  # it lies before `end`, with an offset that cannot be right
            return False
        several = self._aborted.get(header.producer_id) if header.has(TRANSACTIONAL) else None
        if several is None:
            return True
        number = bisect_right(several, offset, key=_first_offset)
        return number == 0 or offset >= (several[number - 1].marker_offset or 0)

    # ---- reading ahead

    def _open(self, at: SegmentPlace) -> None:
        self._at, self._end = at, max(self._end, at.place.next_offset)
        self._file = PathWatch(at.segment.path)

    def _read_on(self, doubt: Doubt | None, below: int | None, *, at_once: bool = False) -> None:
        """Read segment by segment, with `below` only batches below it; `at_once`: what is odd is damage."""
        while self._at is not None and self._read_segment(self._at, doubt, below, at_once=at_once):
            following = self._files.after(self._at.segment)
            if following is None or (below is not None and following.first_offset >= below):
                break
            self._open(_begin_of(following))

    def _read_segment(self, at: SegmentPlace, doubt: Doubt | None, below: int | None, *, at_once: bool) -> bool:
        """Read a segment to its end. Returns whether nothing of it is left."""
        assert self._file is not None
        self._file.note()
        with FileSource(at.segment.path) as source:
            inode = source.stamp[1]
            if at.inode not in (None, inode) and at.place.position:
                self._file.forget()  # the next look finds that its last batch is gone
                return False
            place = at.place
            while place.position < source.size:
                data, run = read_sequence(source, at.segment.base_offset, place, self._max_batch_bytes, below)
                if run.size:
                    self._take_batches(data[: run.size], at.segment.base_offset, place.carry)
                    of = SegmentInode(at.segment.path, inode)
                    (self._newest,) = shown(of, place.position, data, run.last[-1:])
                    place = BatchPlace(self._newest.end, self._newest.next_offset, self._newest.carry)
                    self._end = max(self._end, *(batch.last_offset + 1 for batch in run.last))
                    continue
                if run.limited:
                    break
                found = next_valid(source, at.segment, place.position, place.carry, self._max_batch_bytes)
                if not self._is_damage((at.segment, place.position, found), doubt, at_once=at_once):
                    break
                self._lose_markers()
                place = place._replace(position=source.size if found is None else found.position)
            self._at = SegmentPlace(at.segment, place, inode)
            return place.position >= source.size

    def _is_damage(
        self, what: tuple[SegmentPath, int, NextValid | None], before: Doubt | None, *, at_once: bool
    ) -> bool:
        """Whether bytes that are not a batch have looked the same for a moment, and are not the end of the log."""
        segment, position, found = what
        if found is None and self._files.after(segment) is None:
            return False
        if found is not None and found.position == position:
            self._doubt = Doubt(what, self._clock())  # it was written a moment ago
            return False
        doubt = doubt_about(what, before, self._clock())
        if at_once or self._clock() - doubt.since >= LIVE_PAUSE_SECONDS:
            return True
        self._doubt = doubt
        return False

    def _take_batches(self, data: memoryview, base_offset: int | None, carry: Carry | None) -> None:
        """Take the transactions of valid batches without a byte between them."""
        walk = Walk(
            BytesSource(data),
            base_offset=base_offset,
            carry=carry,
            everything=True,
            max_batch_bytes=self._max_batch_bytes,
            runs=Runs(),
            on_events=self._transactions.add,
        )
        for chunk in walk:
            assert isinstance(chunk, BatchChunk)
            gaps = list(self._holes.of(chunk))
            if gaps and (self._is_compacted or walk.scanner.state().compacted or self._is_cleaned()):
                gaps = []
            for position in sorted((*gaps, *self._returns.of(chunk))):
                self._transactions.lose(position)
        self._is_compacted |= walk.scanner.state().compacted
        self._take_ended()

    def _is_cleaned(self) -> bool:
        """Whether the log cleaner goes over the log, so that offsets that are missing hold no marker."""
        self._is_compacted = self._is_compacted or is_compacted(self._partition, shown=False)
        return self._is_compacted

    def _lose_markers(self) -> None:
        """What is open is undecided: its marker may be in bytes that are not a batch."""
        self._transactions.lose(0)
        self._take_ended()

    # ---- what was found

    def _take_ended(self) -> None:
        self._transactions.begin(0)  # the gaps before batches without a producer
        for ended in take_ended(self._transactions):
            if ended.outcome == ABORTED and ended.first_offset is not None:
                self._aborted.setdefault(ended.producer_id, []).append(ended)

    def _forget_shown(self, next_offset: int) -> None:
        """Forget the transactions that ended before an offset."""
        for producer, several in list(self._aborted.items()):
            self._aborted[producer] = [each for each in several if (each.marker_offset or 0) >= next_offset]
            if not self._aborted[producer]:
                del self._aborted[producer]

    def _first_unstable(self) -> Transaction | None:
        return first_unstable(self._transactions, "stop")

    def _set_end(self) -> None:
        unstable = self._first_unstable()
        if unstable is None:
            self.end, self._held = self._end, None
            return
        self.end = _first_offset(unstable)
        if self._held is None or self._held[0] != self.end:
            self._held = self.end, self._clock()

    @property
    def _is_to_tell(self) -> bool:
        """Whether the last stable offset has stood still for long, or will stay, and that was not said yet."""
        if self._held is None or self._held[0] == self._told:
            return False
        unstable = self._first_unstable()
        is_certain = unstable is not None and unstable.outcome != OPEN
        return is_certain or self._clock() - self._held[1] >= HELD_SECONDS


def _begin_of(segment: SegmentPath) -> SegmentPlace:
    return SegmentPlace(segment, BatchPlace(0, segment.first_offset, None), None)


def _first_offset(transaction: Transaction) -> int:
    """The first offset; each transaction that is kept has one."""
    return transaction.first_offset or 0
