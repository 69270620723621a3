"""A log, open for writing: batches go behind its last one, and beside them comes what a broker's own append leaves.

Everything that one call appends is judged before a byte of it is written, and goes to one segment. What readers see is one value, `view`, and another one takes its place when an append,
a roll or a deletion is done.

Sources: UnifiedLog.append, UnifiedLog.roll, UnifiedLog.close, LocalLog.roll, LocalLog.removeAndDeleteSegments of Kafka 4.3.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Any, Final, NamedTuple, Self

from kdump.broker.producer_state import NO_CHANGES, ProducerStateChanges
from kdump.errors import KdumpError, MessageTooLarge, reason
from kdump.format.batch import SEQUENCES, Batch
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import file_name
from kdump.log import active_segment
from kdump.log import startup as reopen
from kdump.log.builder import Builder, Builder07, NewRecord
from kdump.log.directory_lease import DirectoryLease
from kdump.log.flusher import Flusher
from kdump.log.log_snapshot import LogSnapshot, SegmentDescription
from kdump.log.options import KAFKA07, LogOptions, check, check_bound
from kdump.log.retention import Policy, deletable
from kdump.log.startup import now_ms, write_epochs
from kdump.log.validator import Data, LogValidator
from kdump.storage.directory_handle import DirectoryHandle, renew
from kdump.storage.undo_folders import refuse_unfinished

_BATCH_BYTES: Final = 1 << 20
"""Records that are given one by one go into batches of about this size at most, as max.message.bytes of a broker that sets none."""
_BATCH_OVERHEAD: Final = 200  # the header, and what a codec can add
_RECORD_BYTES: Final = 80  # what a record may take besides its key, value and headers
_LAST_OFFSET: Final = (1 << 63) - 1
_COMPANIONS: Final = (".index", ".timeindex", ".txnindex", ".snapshot")


class LogAppendInfo(NamedTuple):
    """What an append wrote: its offsets, `last_offset` inclusive, and how many batches (of magic 0 and 1: messages)."""

    first_offset: int
    last_offset: int
    batches: int


class Appender:
    """Writes to the log in a topic-partition directory, which comes to be if it is not there; nobody else does until it is closed.

    `view` is what readers see; `before_removal` is told the path of a log file that is about to lose its name. `leader_epoch` is what is stamped on batches that get their offsets here: that of the options, or
    a later one that the log has seen. Raises KdumpError where a broker or another kdump has the log, where a run of recover is unfinished, and where the log has to be recovered first.
    """

    def __init__(self, directory: str, options: LogOptions | None = None) -> None:
        options = options or LogOptions()
        check(options)
        self._options = options
        self._mutex = RLock()
        self._closing = ExitStack()
        self._failed: str | None = None
        self._begun = self._is_closed = False
        self.before_removal: Callable[[str], object] = _ignore
        self._gone: list[tuple[int, str]] = []  # when a file goes, and its name
        self._made: tuple[object, LogSnapshot] = None, LogSnapshot((), None, 0, 0)
        with ExitStack() as undo:
            try:
                self._open(directory, undo)
            except OSError as error:
                raise KdumpError(f"{directory}: {reason(error)}") from None
            self._closing = undo.pop_all()

    def _open(self, directory: str, undo: ExitStack) -> None:
        if not os.path.isdir(directory):
            above, name = os.path.split(os.path.abspath(directory))
            with DirectoryHandle(above, look=True) as place:
                place.make_directory(name)
                place.sync()
        self._root = DirectoryLease(directory, kafka07=self._options.magic == KAFKA07)
        undo.callback(self._root.close)
        self._place = undo.enter_context(DirectoryHandle(directory))
        options, place = self._options, self._place
        try:
            refuse_unfinished(place)
            found = reopen.reopen(place, options, self._begin)
            self._epochs, self._producers = found.epochs, found.producers
            self._snapshot_end = found.snapshot_end
            if found.base_offset is None:
                self._segment = active_segment.create(place, found.end_offset, options)
            else:
                self._segment = active_segment.ActiveSegment(place, found.base_offset, options)
        except BaseException:
            if self._begun:
                self._root.spoil()
            raise
        self._first_base = self._segment.base_offset
        self._set_leader_epoch()
        self._validator = LogValidator(options)
        self._closed, self._start, self._end = found.closed, found.start_offset, found.end_offset
        self._publish()
        self._flusher = Flusher(self._sync, options.flush_messages, options.flush_ms, self._mutex)

    def _begin(self) -> None:
        """The first change is about to be made."""
        self._begun = True
        self._root.begin()

    @property
    def snapshot(self) -> LogSnapshot:
        """What readers see; the same value as long as nothing changes."""
        state = self._state
        known, view = self._made
        if known is not state:
            closed, segment, size, largest, start, end = state
            try:
                modified_ms = os.stat(segment.path).st_mtime_ns // 1_000_000
            except OSError:  # somebody took it away
                modified_ms = 0
            active = SegmentDescription(segment.base_offset, segment.path, size, end, largest, modified_ms, True)
            view = LogSnapshot(closed, active, start, end)
            self._made = state, view
        return view

    def _publish(self) -> None:
        """Let readers see the log as it is now, in one assignment."""
        segment = self._segment
        self._state = self._closed, segment, segment.size, segment.largest, self._start, self._end

    def _set_leader_epoch(self) -> None:
        self._latest_epoch = self._epochs.entries[-1][0] if self._epochs.entries else -1
        self.leader_epoch = max(self._options.leader_epoch, self._latest_epoch)

    # ---- appending

    def append_batches(self, data: Data, *, assign: bool = True, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append batches, or messages of the format that they have, all of them or none.

        With `assign` they get the offsets behind the last one, and batches of magic 2 the leader epoch, and producers are held to their epochs and sequences, as by a leader;
        otherwise all stays as it is, as by a follower, and offsets have to rise. Raises ValueError for what is not to be appended, MessageTooLarge,
        and KdumpError where it cannot be written; nothing was written then, unless it was the sync behind the write that failed: then the log is closed for writing.
        """
        if isinstance(data, memoryview):
            data = data.cast("B")  # its length counts its items
        if leader_epoch is not None:
            check_bound("leader_epoch", leader_epoch)
        with self._mutex:
            epoch = self.leader_epoch if leader_epoch is None else leader_epoch
            segment = self._segment
            if assign and epoch == self._latest_epoch and segment.indexed:
                # What nearly every append is: all that counts here is how little is done besides the write.
                self._check_open()
                first, size = self._end, segment.size
                found = self._validator.assign_plain(data, first, epoch)
                if found is not None and not segment.is_full(found[3], found[1]):
                    made, last, timestamp, length = found
                    try:
                        segment.write(made)
                        segment.take_one(last, timestamp, length)
                        self._end = last + 1
                        self._publish()
                    except BaseException as error:
                        self._not_taken(size, error)
                        raise
                    if self._flusher.counts:
                        self._synced(self._flusher.wrote, last + 1 - first)
                    return LogAppendInfo(first, last, 1)
            return self._append(data, assign, assign, epoch)

    def append_records(self, new: Iterable[NewRecord], **how: Any) -> LogAppendInfo:
        """Append records, in batches as the options say; `how` are further arguments of kdump.log.builder.Builder.

        Records may have offsets of their own, which rise, from the log's end on. More than go into one batch come in several appends, each all or nothing.
        Raises as append_batches does.
        """
        with self._mutex:
            first, batches = self._end, 0
            sequence = how.pop("base_sequence", -1)
            options = self._options
            for some in _bundles(new, min(_BATCH_BYTES, options.segment_bytes, options.max_message_bytes)):
                builder = self._builder(sequence, how)
                builder.extend(some)
                done = self._append(builder.close(), False, True, -1)
                batches += done.batches
                sequence = sequence if sequence < 0 else (sequence + len(some)) % SEQUENCES
            return LogAppendInfo(first, self._end - 1, batches)

    def _builder(self, sequence: int, how: dict[str, Any]) -> Builder | Builder07:
        options = self._options
        how = {"codec": options.codec, "level": options.level, **how}
        if options.magic == KAFKA07:
            return Builder07(**how)
        if options.magic == 2:
            how = {"partition_leader_epoch": self.leader_epoch, "base_sequence": sequence, **how}
        assert isinstance(options.magic, int)
        return Builder(options.magic, base_offset=self._end, **how)

    def _append(self, data: Data, assign: bool, leader: bool, epoch: int) -> LogAppendInfo:
        with self._mutex:
            self._check_open()
            end = self._end
            if not data:
                return LogAppendInfo(end, end - 1, 0)
            if len(data) > self._segment.most_bytes:
                raise MessageTooLarge(len(data), self._segment.most_bytes)
            if assign and self._options.magic != KAFKA07:
                data, batches = self._validator.assign_offsets(data, end, epoch)
            else:
                batches = self._validator.validate(data, end)
            if batches[-1].last_offset >= _LAST_OFFSET:
                raise ValueError(f"there is no offset behind {_LAST_OFFSET}, where the log would go on")
            changes = NO_CHANGES
            if any(batch.producer_id >= 0 for batch in batches):
                changes = self._producers.check(batches, self._validator.marker_in(data), leader=leader)
            if self._segment.is_full(len(data), batches[-1].last_offset):
                self._make_room(batches, leader)
            self._note_epochs(batches)
            after = batches[-1].last_offset + 1 if self._segment.indexed else end + len(data)
            rows = [(batch.last_offset, batch.max_timestamp, batch.size) for batch in batches]
            self._write(data, rows, after, changes)
            first = batches[0].base_offset
            return LogAppendInfo(first if first >= 0 else end, self._end - 1, len(batches))

    # ---- writing

    def _make_room(self, batches: list[Batch], leader: bool) -> None:
        """Roll to a segment that the batches fit into. Raises ValueError, KdumpError."""
        segment, first, last = self._segment, batches[0], batches[-1].last_offset
        # Of messages from elsewhere the first offset is not known without opening them.
        start = first.base_offset if first.magic == 2 or leader else last - HIGHEST_RELATIVE_OFFSET
        base = max(self._end, start)
        if segment.indexed and last - base > HIGHEST_RELATIVE_OFFSET:
            raise ValueError(f"offsets from {base} to {last} do not fit into one segment")
        if segment.size or base > segment.base_offset:
            with self._system():
                self._roll(base)

    def _roll(self, base: int) -> None:
        old = self._segment
        self._synced(old.finish)
        self._flusher.done()
        if old.indexed:
            self._snapshot(base)
        self._segment = active_segment.create(self._place, base, self._options)
        modified_ms = old.modified_ms()
        closed = SegmentDescription(old.base_offset, old.path, old.size, self._end, old.largest, modified_ms, False)
        self._closed = (*self._closed, closed)
        self._publish()
        old.close()

    def _snapshot(self, end: int) -> None:
        """Write what is remembered of producers, for a log that ends there."""
        if end > self._snapshot_end:
            renew(self._place, file_name(end, ".snapshot"), self._producers.snapshot())
            self._snapshot_end = end

    def _note_epochs(self, batches: list[Batch]) -> None:
        if not self._segment.indexed:
            return
        entries = self._epochs.entries
        before = list(entries)
        for batch in batches:
            if batch.magic < 2:
                entries.clear()  # whoever follows such a log goes by the high watermark
            elif batch.partition_leader_epoch >= 0:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if entries != before:
            try:
                with self._system():
                    write_epochs(self._place, self._epochs)
            except BaseException:
                entries[:] = before
                raise
            self._set_leader_epoch()

    def _write(
        self, data: Data, rows: Sequence[tuple[int, int, int]], end: int, changes: ProducerStateChanges = NO_CHANGES
    ) -> None:
        segment = self._segment
        aborted = self._producers.aborted(changes) if changes.completed else None
        before, size = self._end, segment.size
        try:
            segment.write(data)
            if aborted:
                segment.write_aborted(aborted)
            segment.take(rows)
            if changes is not NO_CHANGES:
                self._producers.commit(changes)
            self._end = end
            self._publish()
        except BaseException as error:
            self._not_taken(size, error)
            raise
        if self._flusher.counts:
            self._synced(self._flusher.wrote, end - before if segment.indexed else len(rows))

    def _not_taken(self, size: int, error: BaseException) -> None:
        """Cut off what was written where the segment still counts so many bytes, as before. Raises KdumpError in the place of an OSError."""
        if self._segment.size != size:
            self._broken("an append was interrupted")
            return
        try:
            self._segment.cut()
        except OSError as second:
            raise self._broken(f"half of an append could not be taken back: {reason(second)}") from error
        if isinstance(error, OSError):
            raise KdumpError(f"{self._segment.path}: {reason(error)}; nothing was appended") from None

    def _broken(self, why: str) -> KdumpError:
        """Nothing can be appended any more; whoever opens the log next has to look at it."""
        self._failed = f"{self._segment.path}: {why}"
        self._root.spoil()
        return KdumpError(self._failed)

    @contextmanager
    def _system(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KdumpError(f"{self._place.path}: {reason(error)}") from None

    # ---- the disk

    def flush(self) -> None:
        """Put all that was appended on the disk. Raises KdumpError where it cannot be; nothing can be appended then any more."""
        with self._mutex:
            self._check_open()
            self._synced(self._flusher.flush)

    def _sync(self) -> None:
        self._segment.sync()

    def _synced(self, call: Callable[..., object], *arguments: object) -> None:
        """Do what puts the log on the disk. Where that fails once nobody knows what is on it, whatever comes of a second time."""
        try:
            call(*arguments)
        except OSError as error:
            raise self._broken(f"what was appended could not be put on the disk: {reason(error)}") from None

    def _check_open(self) -> None:
        if self._failed is not None:
            raise KdumpError(self._failed)
        if self._flusher.error is not None:
            self._synced(self._flusher.flush)

    def close(self) -> None:
        """Leave the log as a broker does that stops in order. Raises KdumpError where that fails; it is closed all the same, and the next start recovers it."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            self._flusher.close()
            try:
                with self._system():
                    if self._failed is None:
                        self._check_open()  # that what is in the background failed has nobody heard yet
                        self._finish()
                    else:
                        self._root.spoil()
            except BaseException:
                self._root.spoil()
                raise
            finally:
                self._segment.close()
                with self._system():
                    self._closing.close()
                self._failed = f"{self._place.path}: the log is closed"

    def _finish(self) -> None:
        self._segment.finish()
        if self._segment.indexed:
            self._snapshot(self._end)
        self._purge(None)
        self._place.sync()
        if self._segment.indexed:
            self._root.advance(self._first_base, self._end)

    # ---- deleting

    def delete(self, policy: Policy) -> tuple[SegmentDescription, ...]:
        """Delete the oldest segments, as far as a policy goes (kdump.log.retention), and never the active one; those that went. Raises KdumpError."""
        with self._mutex:
            self._check_open()
            with self._system():
                self._purge(now_ms(self._options))
            gone = deletable(policy, self.snapshot.segments)
            if not gone:
                return ()
            self._closed = self._closed[len(gone) :]
            first = self._closed[0].base_offset if self._closed else self._segment.base_offset
            self._start = max(self._start, first)
            self._publish()
            with self._system():
                for segment in gone:
                    self.before_removal(segment.path)
                    self._mark(segment)
                self._place.sync()
                if self._segment.indexed:
                    before = list(self._epochs.entries)
                    self._epochs.truncate(self._start, self._end + 1)
                    if self._epochs.entries != before:
                        write_epochs(self._place, self._epochs)
            return gone

    def _mark(self, segment: SegmentDescription) -> None:
        """Give the files of a segment the names of files that are to go, the log first: without it a broker takes none of the others for anything."""
        base, due = segment.base_offset, now_ms(self._options) + self._options.delete_delay_ms
        names = [os.path.basename(segment.path)]
        if self._segment.indexed:
            names += [file_name(base, suffix) for suffix in _COMPANIONS]
        for name in names:
            if self._place.stamp(name) is not None:
                self._place.rename(name, f"{name}.deleted")
                self._gone.append((due, f"{name}.deleted"))

    def _purge(self, now: int | None) -> None:
        """Remove the files that are to go, all of them or those whose time has come."""
        while self._gone and (now is None or self._gone[0][0] <= now):
            self._place.remove(self._gone[0][1])
            self._gone.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ignore(path: str) -> None:
    """Stands for `before_removal` where nothing reads the log."""


def _bundles(new: Iterable[NewRecord], size_bytes: int) -> Iterator[list[NewRecord]]:
    """Cut records into groups, each for one batch of about `size_bytes`. Raises TypeError for what is not a NewRecord."""
    some: list[NewRecord] = []
    left = size_bytes - _BATCH_OVERHEAD
    for record in new:
        if not isinstance(record, NewRecord):
            raise TypeError(f"a record is a NewRecord, not {type(record).__name__}")
        size = _size_of(record)
        if some and size > left:
            yield some
            some, left = [], size_bytes - _BATCH_OVERHEAD
        some.append(record)
        left -= size
    if some:
        yield some


def _size_of(record: NewRecord) -> int:
    """About how many bytes a record has."""
    size = _RECORD_BYTES
    try:
        size += len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            # The size in UTF-8, so that batches are cut alike for strings and bytes.
            name_size = len(name.encode(errors="surrogatepass")) if isinstance(name, str) else len(name)
            size += name_size + len(value or b"") + 20
    except (TypeError, ValueError):
        pass  # the builder refuses the record, and says why
    return size
