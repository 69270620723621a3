"""Append to a log on disk: batches go after the last one, with the index entries and other files that a broker's append
leaves.

The data of one call is validated before a byte of it is written, and goes into one segment. Readers see one value, the
snapshot. It is replaced when an append, a roll or a deletion is complete.

Sources: UnifiedLog.append, UnifiedLog.roll, UnifiedLog.close, LocalLog.roll, LocalLog.removeAndDeleteSegments of Kafka
4.3.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import RLock
from typing import Any, Final, Self, Unpack

from kdump.broker.append_producer_state import NO_CHANGES, ProducerAppendInfo
from kdump.errors import KdumpError, MessageTooLarge, reason
from kdump.format.batch import SEQUENCES, Batch
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.java import MAX_LONG
from kdump.format.naming import COMPANION_SUFFIXES, segment_file_name
from kdump.log.log_snapshot import LogSnapshot, SegmentDescription
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle, rewrite_file
from kdump.storage.undo_folders import refuse_unfinished
from kdump.writer import active_segment, startup
from kdump.writer.builder import BatchSettings, Builder, Builder07, NewRecord, group_records
from kdump.writer.directory_lease import DirectoryLease
from kdump.writer.flusher import Flusher
from kdump.writer.options import KAFKA07, LogOptions, check, check_bound
from kdump.writer.retention import Policy, deletable
from kdump.writer.startup import now_ms, write_epochs
from kdump.writer.validator import Data, LogValidator

_BATCH_BYTES: Final = 1 << 20
"""Records go into batches of at most about this size, the default of a broker's max.message.bytes."""


class LogAppendInfo(NamedTuple):
    """The result of an append: its first offset, its last offset (inclusive), and the number of batches (messages of
    magic 0 and 1).
    """

    first_offset: int
    last_offset: int
    batches: int


class _DeletedFile(NamedTuple):
    """A renamed file of a deleted segment, and when it is removed."""

    due_ms: int
    name: str


class Appender:
    """Appends to the log in a topic-partition directory, which is created if it does not exist.

    No other process can write to the log until it is closed.

    `before_removal` is called with the path of a log file before the file is renamed and deleted. `leader_epoch` is
    stamped on batches that get their offsets here: that of the options, or a later one that is in the log. Raises
    KdumpError where a broker or another kdump uses the log, where a run of recover is unfinished, and where the log has
    to be recovered first.
    """

    def __init__(self, directory: str, options: LogOptions | None = None) -> None:
        options = options or LogOptions()
        check(options)
        self._options = options
        self._mutex = RLock()
        self._resources = ExitStack()
        self._failure: str | None = None
        self._has_changed = self._is_closed = False
        self.before_removal: Callable[[str], object] = _ignore
        self._deleted_files: list[_DeletedFile] = []
        self._cached_snapshot: tuple[object, LogSnapshot] = None, LogSnapshot((), None, 0, 0)
        with ExitStack() as undo:
            try:
                self._open(directory, undo)
            except OSError as error:
                raise KdumpError(f"{directory}: {reason(error)}") from None
            self._resources = undo.pop_all()

    def _open(self, directory: str, undo: ExitStack) -> None:
        if not os.path.isdir(directory):
            above, name = os.path.split(os.path.abspath(directory))
            with DirectoryHandle(above, read_only=True) as parent:
                parent.make_directory(name)
                parent.sync()
        self._lease = DirectoryLease(directory, kafka07=self._options.magic == KAFKA07)
        undo.callback(self._lease.close)
        self._directory = undo.enter_context(DirectoryHandle(directory))
        options, handle = self._options, self._directory
        try:
            refuse_unfinished(handle)
            state = startup.load_log(handle, options, self._before_first_change)
            self._epochs, self._producers = state.epochs, state.producers
            self._snapshot_end = state.snapshot_end
            if state.base_offset is None:
                self._segment = active_segment.create(handle, state.end_offset, options)
            else:
                self._segment = active_segment.ActiveSegment(handle, state.base_offset, options)
        except BaseException:
            if self._has_changed:
                self._lease.mark_unclean()
            raise
        self._first_base_offset = self._segment.base_offset
        self._set_leader_epoch()
        self._validator = LogValidator(options)
        self._closed, self._start, self._end = state.closed, state.start_offset, state.end_offset
        self._publish()
        self._flusher = Flusher(self._sync, options.flush_messages, options.flush_ms, self._mutex)

    def _before_first_change(self) -> None:
        self._has_changed = True
        self._lease.before_first_change()

    @property
    def snapshot(self) -> LogSnapshot:
        """What readers see. It is the same object until something changes."""
        state = self._state
        known, snapshot = self._cached_snapshot
        if known is not state:
            closed, segment, size, largest, start, end = state
            try:
                modified_ms = os.stat(segment.path).st_mtime_ns // 1_000_000
            except OSError:  # another process removed the file
                modified_ms = 0
            active = SegmentDescription(segment.base_offset, segment.path, size, end, largest, modified_ms, True)
            snapshot = LogSnapshot(closed, active, start, end)
            self._cached_snapshot = state, snapshot
        return snapshot

    def _publish(self) -> None:
        """Show the log as it is now to the readers, in one assignment."""
        segment = self._segment
        # A plain tuple: a named one takes several times as long, and each append makes one.
        self._state = self._closed, segment, segment.size, segment.largest_timestamp_ms, self._start, self._end

    def _set_leader_epoch(self) -> None:
        self._latest_epoch = self._epochs.entries[-1][0] if self._epochs.entries else -1
        self.leader_epoch = max(self._options.leader_epoch, self._latest_epoch)

    # ---- appending

    def append_batches(self, data: Data, *, assign: bool = True, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append complete batches, or messages of magic 0 and 1, all of them or none.

        Returns the offsets and the number of batches.

        With `assign` they get the next offsets, batches of magic 2 get the leader epoch, and the epochs and sequences
        of producers are checked, as a leader does. Without it nothing is changed, as a follower does, and offsets have
        to rise. Raises ValueError for what a broker would refuse, MessageTooLarge, and KdumpError where it cannot be
        written. Nothing is appended then, with one exception: where the sync after the write fails, nothing more can be
        appended.

        Source: UnifiedLog.appendAsLeader, UnifiedLog.appendAsFollower of Kafka 4.3.
        """
        if isinstance(data, memoryview):
            data = data.cast("B")  # its length counts its items
        if leader_epoch is not None:
            check_bound("leader_epoch", leader_epoch)
        with self._mutex:
            epoch = self.leader_epoch if leader_epoch is None else leader_epoch
            segment = self._segment
            if assign and epoch == self._latest_epoch and segment.indexed:
                # Nearly every append is of this kind. It does as little as possible besides the write.
                self._check_open()
                first, size = self._end, segment.size
                found = self._validator.assign_plain(data, first, epoch)
                if found is not None and not segment.is_full(found[3], found[1]):
                    batch, last, timestamp, length = found
                    try:
                        segment.write(batch)
                        segment.commit_batch(last, timestamp, length)
                        self._end = last + 1
                        self._publish()
                    except BaseException as error:
                        self._revert(size, error)
                        raise
                    if self._flusher.counts:
                        self._call_sync(self._flusher.count_messages, last + 1 - first)
                    return LogAppendInfo(first, last, 1)
            return self._append(data, assign, assign, epoch)

    def append_records(self, new: Iterable[NewRecord], **settings: Unpack[BatchSettings]) -> LogAppendInfo:
        """Append records, in batches as the options of the log say. Returns their offsets and the number of batches.

        `settings` are arguments of kdump.writer.builder.Builder. Records can have offsets of their own, which have to
        rise and to start at the log end offset or later. Records that do not fit into one batch need several appends,
        each of which is complete or does nothing. Raises as append_batches does.
        """
        with self._mutex:
            first, batches = self._end, 0
            sequence = settings.pop("base_sequence", -1)
            options = self._options
            for some in group_records(new, min(_BATCH_BYTES, options.segment_bytes, options.max_message_bytes)):
                builder = self._builder(sequence, settings)
                builder.extend(some)
                appended = self._append(builder.close(), False, True, -1)
                batches += appended.batches
                sequence = sequence if sequence < 0 else (sequence + len(some)) % SEQUENCES
            return LogAppendInfo(first, self._end - 1, batches)

    def _builder(self, sequence: int, settings: BatchSettings) -> Builder | Builder07:
        options = self._options
        # Arguments that a builder does not know raise TypeError there.
        arguments: Any = {"codec": options.codec, "level": options.level, **settings}
        if options.magic == KAFKA07:
            return Builder07(**arguments)
        if options.magic == 2:
            arguments = {"partition_leader_epoch": self.leader_epoch, "base_sequence": sequence, **arguments}
        assert isinstance(options.magic, int)
        return Builder(options.magic, base_offset=self._end, **arguments)

    def _append(self, data: Data, assign: bool, leader: bool, epoch: int) -> LogAppendInfo:
        with self._mutex:
            self._check_open()
            end = self._end
            if not data:
                return LogAppendInfo(end, end - 1, 0)
            if len(data) > self._segment.max_bytes:
                raise MessageTooLarge(len(data), self._segment.max_bytes)
            if assign and self._options.magic != KAFKA07:
                data, batches = self._validator.assign_offsets(data, end, epoch)
            else:
                batches = self._validator.validate(data, end)
            if batches[-1].last_offset >= MAX_LONG:
                raise ValueError(f"there is no offset after {MAX_LONG}")
            changes = NO_CHANGES
            if any(batch.producer_id >= 0 for batch in batches):
                changes = self._producers.check(batches, self._validator.marker_in(data), leader=leader)
            if self._segment.is_full(len(data), batches[-1].last_offset):
                self._roll_for(batches, leader)
            self._assign_epochs(batches)
            after = batches[-1].last_offset + 1 if self._segment.indexed else end + len(data)
            rows = [(batch.last_offset, batch.max_timestamp, batch.size) for batch in batches]
            self._write(data, rows, after, changes)
            first = batches[0].base_offset
            return LogAppendInfo(first if first >= 0 else end, self._end - 1, len(batches))

    # ---- writing

    def _roll_for(self, batches: list[Batch], leader: bool) -> None:
        """Roll to a new segment that the batches fit into. Raises ValueError, KdumpError."""
        segment, first, last = self._segment, batches[0], batches[-1].last_offset
        # The first offset of a follower's wrapper message is known only after opening it. This is the lowest that it
        # can be.
        start = first.base_offset if first.magic == 2 or leader else last - HIGHEST_RELATIVE_OFFSET
        base = max(self._end, start)
        if segment.indexed and last - base > HIGHEST_RELATIVE_OFFSET:
            raise ValueError(f"offsets from {base} to {last} do not fit into one segment")
        if segment.size or base > segment.base_offset:
            with self._os_errors():
                self._roll(base)

    def _roll(self, base: int) -> None:
        old = self._segment
        self._call_sync(old.finish)
        self._flusher.reset()
        if old.indexed:
            self._write_producer_snapshot(base)
        self._segment = active_segment.create(self._directory, base, self._options)
        modified_ms = old.modified_ms()
        closed = SegmentDescription(
            old.base_offset, old.path, old.size, self._end, old.largest_timestamp_ms, modified_ms, False
        )
        self._closed = (*self._closed, closed)
        self._publish()
        old.close()

    def _write_producer_snapshot(self, end: int) -> None:
        """Write the producer snapshot for this log end offset, if there is none."""
        if end > self._snapshot_end:
            rewrite_file(self._directory, segment_file_name(end, ".snapshot"), self._producers.snapshot())
            self._snapshot_end = end

    def _assign_epochs(self, batches: list[Batch]) -> None:
        """Add the leader epochs of batches to the cache and the checkpoint. Raises KdumpError."""
        if not self._segment.indexed:
            return
        entries = self._epochs.entries
        before = list(entries)
        for batch in batches:
            if batch.magic < 2:
                entries.clear()  # followers of such a log truncate to the high watermark
            elif batch.partition_leader_epoch >= 0:
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        if entries != before:
            try:
                with self._os_errors():
                    write_epochs(self._directory, self._epochs)
            except BaseException:
                entries[:] = before
                raise
            self._set_leader_epoch()

    def _write(
        self, data: Data, rows: Sequence[tuple[int, int, int]], end: int, changes: ProducerAppendInfo = NO_CHANGES
    ) -> None:
        segment = self._segment
        aborted = self._producers.aborted(changes) if changes.completed else None
        before, size = self._end, segment.size
        try:
            segment.write(data)
            if aborted:
                segment.write_aborted(aborted)
            segment.commit(rows)
            if changes is not NO_CHANGES:
                self._producers.commit(changes)
            self._end = end
            self._publish()
        except BaseException as error:
            self._revert(size, error)
            raise
        if self._flusher.counts:
            self._call_sync(self._flusher.count_messages, end - before if segment.indexed else len(rows))

    def _revert(self, size: int, error: BaseException) -> None:
        """Truncate what a failed append wrote, if the segment still counts `size` bytes.

        Raises KdumpError instead of an OSError.
        """
        if self._segment.size != size:
            self._fail("an append was interrupted")
            return
        try:
            self._segment.revert()
        except OSError as second:
            raise self._fail(f"an incomplete append could not be truncated: {reason(second)}") from error
        if isinstance(error, OSError):
            raise KdumpError(f"{self._segment.path}: {reason(error)}; nothing was appended") from None

    def _fail(self, why: str) -> KdumpError:
        """Refuse all later appends. The next start has to recover the log."""
        self._failure = f"{self._segment.path}: {why}"
        self._lease.mark_unclean()
        return KdumpError(self._failure)

    @contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KdumpError(f"{self._directory.path}: {reason(error)}") from None

    # ---- the disk

    def flush(self) -> None:
        """Sync everything that was appended to the disk. Raises KdumpError; nothing can be appended after a failure."""
        with self._mutex:
            self._check_open()
            self._call_sync(self._flusher.flush)

    def _sync(self) -> None:
        self._segment.sync()

    def _call_sync(self, call: Callable[..., object], *arguments: object) -> None:
        """Call a function that syncs.

        After one failure nothing is certain about the disk, even if a second sync succeeds: later appends are refused.
        """
        try:
            call(*arguments)
        except OSError as error:
            raise self._fail(f"the log could not be synced to the disk: {reason(error)}") from None

    def _check_open(self) -> None:
        if self._failure is not None:
            raise KdumpError(self._failure)
        if self._flusher.error is not None:
            self._call_sync(self._flusher.flush)

    def close(self) -> None:
        """Close the log as a broker does in a controlled shutdown.

        Raises KdumpError where that fails; the log is closed nevertheless, and the next start recovers it.
        """
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            self._flusher.close()
            try:
                with self._os_errors():
                    if self._failure is None:
                        self._check_open()  # reports a sync that failed in the background
                        self._finish()
                    else:
                        self._lease.mark_unclean()
            except BaseException:
                self._lease.mark_unclean()
                raise
            finally:
                self._segment.close()
                with self._os_errors():
                    self._resources.close()
                self._failure = f"{self._directory.path}: the log is closed"

    def _finish(self) -> None:
        self._segment.finish()
        if self._segment.indexed:
            self._write_producer_snapshot(self._end)
        self._delete_files(None)
        self._directory.sync()
        if self._segment.indexed:
            self._lease.advance_recovery_point(self._first_base_offset, self._end)

    # ---- deleting

    def delete(self, policy: Policy) -> tuple[SegmentDescription, ...]:
        """Delete the oldest segments that a policy selects (kdump.writer.retention), never the active one.

        Returns the deleted segments. Raises KdumpError.
        """
        with self._mutex:
            self._check_open()
            with self._os_errors():
                self._delete_files(now_ms(self._options))
            deleted = deletable(policy, self.snapshot.segments)
            if not deleted:
                return ()
            self._closed = self._closed[len(deleted) :]
            first = self._closed[0].base_offset if self._closed else self._segment.base_offset
            self._start = max(self._start, first)
            self._publish()
            with self._os_errors():
                for segment in deleted:
                    self.before_removal(segment.path)
                    self._rename_deleted(segment)
                self._directory.sync()
                if self._segment.indexed:
                    before = list(self._epochs.entries)
                    self._epochs.truncate(self._start, self._end + 1)
                    if self._epochs.entries != before:
                        write_epochs(self._directory, self._epochs)
            return deleted

    def _rename_deleted(self, segment: SegmentDescription) -> None:
        """Add `.deleted` to the names of the files of a segment.

        The log file is the first: a broker ignores the others without it.
        """
        base, due = segment.base_offset, now_ms(self._options) + self._options.delete_delay_ms
        names = [os.path.basename(segment.path)]
        if self._segment.indexed:
            names += [segment_file_name(base, suffix) for suffix in COMPANION_SUFFIXES]
        for name in names:
            if self._directory.stamp(name) is not None:
                self._directory.rename(name, f"{name}.deleted")
                self._deleted_files.append(_DeletedFile(due, f"{name}.deleted"))

    def _delete_files(self, now: int | None) -> None:
        """Remove the files of deleted segments whose delay is over, or all of them."""
        while self._deleted_files and (now is None or self._deleted_files[0].due_ms <= now):
            self._directory.remove(self._deleted_files[0].name)
            self._deleted_files.pop(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ignore(path: str) -> None:
    """Stands for `before_removal` where nothing reads the log."""
