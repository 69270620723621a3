"""Where a follow stands in one log: what it shows next, and what became of what it has shown.

A batch is shown from bytes that were read at once, after a second look at the batch before it. A broker truncates a log
in place: then the batch before is another one, or gone. Where its file is gone, or another one, the leader epochs and
the end of the log tell what happened: retention, the cleaner, or a truncation to an earlier segment. That is decided
only when it looks the same a moment later, since a broker renames several files one after another.
"""

import os
import time
from collections.abc import Callable, Generator, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kdump.broker.history import replaced_from
from kdump.dump.dump import DumpOptions, RecordLimit, decoder_for, dump_messages, value_decoder_for
from kdump.dump.events import Event, FileBegin, FileEnd, FollowNote, LogChange, OutputFlush
from kdump.dump.follow.batch_sequence import (
    BatchPlace,
    BatchSequence,
    NextValid,
    SegmentPlace,
    batch_sequence,
    next_valid,
    place_of,
    read_sequence,
)
from kdump.dump.follow.doubt import Doubt, doubt_about
from kdump.dump.follow.partition_listing import PartitionListing, SegmentPath
from kdump.dump.follow.recent_batches import BatchState, RecentBatches, SegmentInode, shown, state_in
from kdump.dump.message_range import MessageRange
from kdump.format.checkpoint import EpochEntry
from kdump.format.naming import Kind
from kdump.storage.directory_watch import PartitionPath
from kdump.storage.live import LIVE_PAUSE_SECONDS
from kdump.storage.partition import LogFile
from kdump.storage.path_watch import PathWatch
from kdump.storage.source import BytesSource, FileSource, SourceRange, reader_of
from kdump.storage.walk import Walk

if TYPE_CHECKING:
    from kdump.dump.follow.committed_follow import CommittedFollow
    from kdump.format.value_schemas.value_decoder import ValueDecoder

_REPLACING_SECONDS: Final = 5
"""So long a broker may take to rename the segments that the cleaner made. One that died leaves them as they are."""


class _Stop(Enum):
    """Why no more whole batches are shown."""

    END = auto()  # the end of the file, or of what is asked for
    LIMITED = auto()  # the high watermark
    NO_BATCH = auto()
    TRUNCATED = auto()


def _reader_ahead(
    files: PartitionListing, where: PartitionPath, options: DumpOptions, clock: Callable[[], float]
) -> "CommittedFollow | None":
    if options.isolation != "read-committed":
        return None
    from kdump.dump.follow.committed_follow import CommittedFollow  # most do without

    return CommittedFollow(files, where, options.max_batch_bytes, clock)


class LogCursor:
    """Reads one log on and on. `advance` gives the events of what is new in it."""

    def __init__(
        self,
        where: PartitionPath,
        options: DumpOptions,
        limit: RecordLimit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.where = where
        self._first_offset = options.offsets[0]
        self._decoder = decoder_for(where.topic_partition, options)
        self._value_decoder: ValueDecoder | None = None
        self._options = options._replace(offsets=(None, None))
        self._limit, self._clock = limit, clock
        self._files = PartitionListing(where)
        self._ahead = _reader_ahead(self._files, where, options, clock)
        self._options = self._options._replace(committed_read=self._ahead)
        self._recent = RecentBatches()
        self._epochs: tuple[EpochEntry, ...] = ()
        self._compared_offset = 0  # below it, the leader epochs were those of `_epochs` when it was shown
        self._segment: SegmentPath | None = None
        self._inode: int | None = None
        self._file: PathWatch | None = None
        self._place = BatchPlace(0, 0, None)
        self._doubt: Doubt | None = None
        self._high_watermark: int | None = None
        self._mark: int | None = None
        self._is_limited = False
        self.has_ended = False
        self.is_complete = False
        """Whether everything up to the end of the log was shown at the last `advance`."""

    @property
    def next_offset(self) -> int:
        """The offset after the last one that was shown."""
        return self._place.next_offset

    def has_changed(self, mark: int | None) -> bool:
        """Whether `advance` may find something. `mark` is the high watermark, where there is one."""
        return (
            self._doubt is not None
            or self._files.has_changed()
            or (self._file is not None and self._file.has_changed())
            or (self._ahead is not None and self._ahead.has_changed)
            or (self._is_limited and mark != self._high_watermark)
        )

    def advance(self, *, limited: bool = False, mark: int | None = None) -> Iterator[Event]:
        """What is new. With `limited` only what is below the high watermark `mark`, nothing without one.

        With read-committed only what is below the last stable offset, too. Raises SourceError.
        """
        doubt, self._doubt = self._doubt, None
        self._is_limited, self._mark, self._high_watermark = limited, mark, mark
        if not self._files.refresh():
            self.has_ended = True
            yield self._change("partition_end", offset=self.next_offset)
            return
        yield from self._follow_changes(doubt)
        if self._doubt is not None or (limited and mark is None):
            return
        if self._ahead is not None:
            yield from self._read_ahead(self._ahead)
        yield from self._read_on(doubt)

    def end(self) -> Iterator[Event]:
        """The directory of the partition is another one now."""
        self.has_ended = True
        yield self._change("partition_end", offset=self.next_offset)

    def _change(self, kind: str, **offsets: int) -> LogChange:
        topic, partition = self.where.topic_partition or (None, None)
        return LogChange(self.where.path, kind, {"topic": topic, "partition": partition, **offsets})

    def _is_confirmed(self, what: object, before: Doubt | None, *, seconds: float = LIVE_PAUSE_SECONDS) -> bool:
        """Whether something odd looked the same a while ago. Otherwise it is looked at again."""
        doubt = doubt_about(what, before, self._clock())
        if self._clock() - doubt.since >= seconds:
            return True
        self._doubt = doubt
        return False

    def _read_ahead(self, ahead: "CommittedFollow") -> Iterator[Event]:
        """Find the last stable offset, and say what holds it."""
        place = None
        if self._segment is not None and self._recent.newest is not None:
            place = SegmentPlace(self._segment, self._place, self._inode)
        offset = ahead.look(place, self._high_watermark)
        if offset is not None:
            yield from self._go_back(offset)
            ahead.look(None, self._high_watermark)
        self._is_limited = True
        end = int(ahead.end)
        self._mark = end if self._mark is None else min(self._mark, end)
        said = ahead.held()
        if said is not None:
            yield FollowNote(self.where.path, said)

    # ---- what became of what was shown

    def _follow_changes(self, doubt: Doubt | None) -> Iterator[Event]:
        """Go back where the log was truncated; go on where retention or the cleaner took the file away."""
        if self._segment is not None:
            state = self._state()
            if state is BatchState.REPLACED:
                yield from self._go_back(min(self._common_offset(), self.next_offset))
            elif state is BatchState.LOST:
                yield from self._find_again(doubt)
                if self._doubt is not None:
                    return
        self._epochs, self._compared_offset = self._files.epochs, self.next_offset

    def _state(self) -> BatchState:
        """What became of the file and of the last batch that was shown."""
        assert self._segment is not None
        try:
            status = os.stat(self._segment.path)
        except OSError:
            return BatchState.LOST
        if self._inode not in (None, status.st_ino) or self._segment not in self._files.segments:
            return BatchState.LOST
        if self._recent.newest_state() is BatchState.REPLACED or status.st_size < self._place.position:
            return BatchState.REPLACED
        return BatchState.THERE

    def _replaced_from(self) -> int | None:
        """Where the leader epochs say that other records came."""
        return replaced_from(self._epochs, self._files.epochs, self._compared_offset)

    def _common_offset(self) -> int:
        """The offset up to which a log that was truncated in place is the one that was shown."""
        common = self._recent.last_common()
        if common is not None:
            return common.next_offset
        replaced = self._replaced_from()
        if replaced is not None:
            return replaced
        oldest = self._recent.oldest
        known = next((each for each in self._files.segments if oldest and each.path == oldest.of.path), self._segment)
        assert known is not None
        return min(known.first_offset, self._log_end())

    def _find_again(self, doubt: Doubt | None) -> Iterator[Event]:
        """Go on where the file that was read is not there, or is another one, as soon as that is certain."""
        files = self._files
        seconds = _REPLACING_SECONDS if files.is_replacing else LIVE_PAUSE_SECONDS
        if not self._is_confirmed((files.segments, files.epochs), doubt, seconds=seconds) or not files.segments:
            self._doubt = self._doubt or doubt or Doubt(files.segments, self._clock())
            return
        replaced, end = self._replaced_from(), self._log_end()
        common = self._recent.last_common()
        offset = self.next_offset
        if replaced is not None:
            offset = min(offset, replaced)
        elif end < offset:
            offset = end if common is None else common.next_offset
        yield from self._go_back(offset)

    def _go_back(self, offset: int) -> Iterator[Event]:
        """Go on at an offset, and say what became of the records after it or before the log start."""
        if self._ahead is not None:
            offset = self._ahead.truncate(offset)
        if offset < self.next_offset:
            yield self._change("truncated", offset=offset)
        first = self._files.segments[0].first_offset if self._files.segments else offset
        if first > offset:
            yield self._change("deleted", offset=offset, log_start_offset=first)
        self._seek(max(first, offset))

    def _log_end(self) -> int:
        """The offset after the last valid batch of the log."""
        last = self._files.segments[-1]
        if last.first_offset >= self.next_offset:
            return last.first_offset
        with FileSource(last.path) as source:
            walk = Walk(source, base_offset=last.base_offset, max_batch_bytes=self._options.max_batch_bytes)
            for _ in walk:
                pass
            return walk.scanner.state().next_offset(last.first_offset)

    def _seek(self, offset: int) -> None:
        """Go on at an offset."""
        self._recent.truncate(offset)
        newest = self._recent.newest
        known = next((each for each in self._files.segments if newest and each.path == newest.of.path), None)
        is_next = newest is not None and newest.next_offset == offset
        if newest and known and is_next and self._recent.newest_state() is BatchState.THERE:
            self._open(known, BatchPlace(newest.end, offset, newest.carry), newest.of.inode)
            return
        segment = self._files.holding(offset)
        if segment is None:
            self._segment = None
            self._place = BatchPlace(0, offset, None)
            return
        with FileSource(segment.path) as source:
            place = place_of(source, segment, offset, self._options.max_batch_bytes)
            self._open(segment, place._replace(next_offset=max(place.next_offset, offset)), source.stamp[1])

    def _open(self, segment: SegmentPath, place: BatchPlace, inode: int | None = None) -> None:
        self._segment, self._place, self._inode = segment, place, inode
        self._file = PathWatch(segment.path)

    # ---- what comes after it

    def _read_on(self, doubt: Doubt | None) -> Iterator[Event]:
        """Show the whole batches after the last one, segment by segment."""
        self.is_complete = False
        if self._segment is None:
            if not self._begin():
                return
            yield from self._choose_decoder()
        while self._segment is not None:
            following = self._files.after(self._segment)
            is_read = yield from self._read_segment(self._segment, following, doubt)
            if not is_read or self._limit.reached:
                return
            if following is None:
                self.is_complete = True
                return
            before = self._segment
            if following.first_offset < self.next_offset:
                self._seek(self.next_offset)
                if self._segment not in (before, following):
                    return
            if self._segment == before:  # no checksum covers the offset of its last batch
                self._open(following, BatchPlace(0, following.first_offset, None))

    def _choose_decoder(self) -> Iterator[Event]:
        """Choose the decoder of the values, for which schemas may have to be read."""
        assert self._segment is not None
        found = yield from value_decoder_for(self._segment.path, self.where.topic_partition, self._options)
        self._value_decoder = found
        if found is not None:
            self._options = self._options._replace(runs=False)

    def _begin(self) -> bool:
        """Go to the first offset that is asked for. Returns whether there is a segment."""
        if not self._files.segments:
            return False
        if self._first_offset is None:
            first = self._files.segments[0]
            self._open(first, BatchPlace(0, first.first_offset, None))
            return True
        segment = self._files.holding(self._first_offset)
        assert segment is not None
        with FileSource(segment.path) as source:
            self._open(segment, place_of(source, segment, self._first_offset, self._options.max_batch_bytes))
        return True

    def _read_segment(
        self, segment: SegmentPath, following: SegmentPath | None, doubt: Doubt | None
    ) -> Generator[Event, None, bool]:
        """Show what is new in a segment. Returns whether nothing of it is left."""
        if self._file is not None:
            self._file.note()
        with FileSource(segment.path) as source:
            if self._inode not in (None, source.stamp[1]):
                self._forget_file()
                return False
            self._inode = source.stamp[1]
            file = LogFile(segment.path, Kind.LOG, segment.base_offset, following is None, source.size)
            if self._place.position >= source.size:
                return True
            read = reader_of(source)
            begin = FileBegin(file, self.where.topic_partition, read, self._decoder, self._value_decoder)
            stop = yield from self._read_pieces(source, begin)
            if stop is _Stop.NO_BATCH:
                yield from self._read_damage(source, begin, following, doubt)
            return self._place.position >= source.size

    def _read_pieces(self, source: FileSource, begin: FileBegin) -> Generator[Event, None, _Stop]:
        """Show whole batches up to the first bytes that are none."""
        base_offset, max_bytes = begin.file.base_offset, self._options.max_batch_bytes
        below = self._mark if self._is_limited else None
        while self._place.position < source.size and not self._limit.reached:
            position, carry = self._place.position, self._place.carry
            data, run = read_sequence(source, base_offset, self._place, max_bytes, below)
            if not self._is_intact(source):
                self._forget_file()
                return _Stop.TRUNCATED
            if run.size:
                yield begin
                messages = MessageRange(position, Kind.LOG, base_offset, BytesSource(data[: run.size]), carry)
                options = self._shown_options()
                yield from dump_messages(messages, begin.file, options, self._limit)
                yield FileEnd(begin.file, source.size, False)
                yield OutputFlush()
                self._take(source, position, data, run)
            if run.limited:
                return _Stop.LIMITED
            if not run.size:
                return _Stop.NO_BATCH
        return _Stop.END

    def _read_damage(
        self,
        source: FileSource,
        begin: FileBegin,
        following: SegmentPath | None,
        doubt: Doubt | None,
    ) -> Iterator[Event]:
        """Show bytes that are not a valid batch, up to the next one. At the end of a log they are waited for."""
        segment, place, max_bytes = self._segment, self._place, self._options.max_batch_bytes
        assert segment is not None
        found = next_valid(source, segment, place.position, place.carry, max_bytes)
        if found is None and following is None:
            return
        if self._is_limited and not self._is_committed(found, following):
            return
        is_damage = found is None or found.position > place.position
        if is_damage and not self._is_old() and not self._is_confirmed((segment, place.position, found), doubt):
            return
        size = source.size
        yield begin
        options = self._shown_options()._replace(max_bytes=None if found is None else found.end)
        rest = SourceRange(source, place.position, size)
        messages = MessageRange(place.position, Kind.LOG, begin.file.base_offset, rest, place.carry)
        yield from dump_messages(messages, begin.file, options, self._limit)
        yield FileEnd(begin.file, size, False)
        yield OutputFlush()
        if found is None:
            self._place = BatchPlace(size, place.next_offset, place.carry)
            return
        header = memoryview(reader_of(source)(found.position, found.end - found.position))
        self._take(
            source, found.position, header, batch_sequence(header, segment.base_offset, place.carry, max_bytes, None)
        )
        # the rest of the file comes at the next look
        self._forget_file()

    def _is_committed(self, found: NextValid | None, following: SegmentPath | None) -> bool:
        """Whether what is damaged lies below the high watermark."""
        if self._mark is None:
            return False
        if found is not None:
            return found.last_offset < self._mark
        return following is not None and following.first_offset <= self._mark

    def _is_old(self) -> bool:
        """Whether nothing has been written to the file for a while, so that what is odd in it stays."""
        return self._file is not None and self._file.is_old and not self._file.has_changed()

    def _shown_options(self) -> DumpOptions:
        first = self._first_offset
        if first is None or first <= self.next_offset:
            return self._options
        return self._options._replace(offsets=(first, None))

    def _is_intact(self, source: FileSource) -> bool:
        """Whether the last batch that was shown is still there, after bytes that follow it were read."""
        newest = self._recent.newest
        if newest is None:
            return True
        if newest.of == SegmentInode(source.name, source.stamp[1]):
            return state_in(source.fileno(), newest) is BatchState.THERE
        return self._state() is BatchState.THERE

    def _take(self, source: FileSource, start: int, data: memoryview, run: BatchSequence) -> None:
        """Note that a run of batches, whose bytes `data` begin at `start`, was shown."""
        of = SegmentInode(source.name, source.stamp[1])
        self._recent.extend(shown(of, start, data, run.last))
        newest = self._recent.newest
        assert newest is not None
        self._place = BatchPlace(newest.end, newest.next_offset, newest.carry)
        if self._epochs and newest.epoch <= self._epochs[-1].epoch:
            self._compared_offset = self.next_offset

    def _forget_file(self) -> None:
        if self._file is not None:
            self._file.forget()
