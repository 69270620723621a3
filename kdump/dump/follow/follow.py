"""Shows logs that a broker writes, on and on: what is there, and each whole batch as it comes.

What is idle costs little: a look is the status of two paths a partition, and the pause after it is at least a hundred
times its cost. Where the system reports which directories change, these are looked at at once, and partitions that
changed a moment ago are looked at more often.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from typing import Final

from kdump.dump.dump import DumpOptions, RecordLimit
from kdump.dump.events import DumpFailure, Event, FileBegin, FollowNote, OutputFlush
from kdump.dump.follow.log_cursor import LogCursor
from kdump.errors import SourceError, only
from kdump.format import naming
from kdump.format.naming import Kind
from kdump.named_tuple import NamedTuple
from kdump.storage.change_events import ChangeEvents, Changes
from kdump.storage.directory_watch import DirectoryWatch, PartitionPath
from kdump.storage.discovery import Paths
from kdump.storage.file_store import parent_of
from kdump.storage.live import LookPace
from kdump.storage.offset_checkpoints import CheckpointContext, CheckpointOffsets, read_offset_checkpoints
from kdump.storage.partition import Partition
from kdump.storage.path_watch import PathWatch

LOOK_SECONDS: Final = 0.05
"""The shortest pause between two looks."""
_QUIET: Final = 120
"""The pause after a look at everything, as a multiple of its cost."""
_TOLD_SECONDS: Final = 1.0
"""The pause after a look at everything that found something, where the system reports what changes."""
_RECENT: Final = 32
_RECENT_SECONDS: Final = 10
"""So many partitions that had something new in this time are looked at after the shortest pause."""

_NO_MARK: Final = "replication-offset-checkpoint has no line for this partition; its records are shown when it has one"
_NOT_READ: Final = (
    "its high watermark is not known; its records are shown when replication-offset-checkpoint can be read"
)
_NO_LOGS: Final = "no log files here yet"


def wait_for(seconds: float, descriptor: int | None) -> None:
    """Let time pass until the descriptor can be read."""
    if descriptor is None:
        time.sleep(seconds)
    else:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.poll(seconds * 1000)


class FollowOptions(NamedTuple):
    """How to follow.

    `wait(seconds, descriptor)` lets so many seconds pass, or fewer where the descriptor, if it is not None, can be read
    before. `clock` gives seconds. With `committed` only records below the high watermark are shown. `kind` says what
    named files hold, where their names do not.
    """

    wait: Callable[[float, int | None], None] = wait_for
    clock: Callable[[], float] = time.monotonic
    committed: bool = False
    kind: Kind | None = None


def follow_logs(
    paths: Paths, options: DumpOptions | None = None, *, follow_options: FollowOptions | None = None
) -> Iterator[Event]:
    """The content of the logs at the paths and what comes to them, until the limit is reached or no log is left.

    `options.offsets` is where logs begin, and has no end. What cannot be read becomes a DumpFailure, once; the others
    go on.
    """
    options, follow = options or DumpOptions(), follow_options or FollowOptions()
    shown = None
    changes = ChangeEvents()
    try:
        for event in _Follow(paths, options, follow, changes).events():
            if isinstance(event, FileBegin):
                event = event._replace(again=event.file.path == shown)
                shown = event.file.path
            yield event
    finally:
        changes.close()


class _Follow:
    def __init__(self, paths: Paths, options: DumpOptions, follow: FollowOptions, changes: ChangeEvents) -> None:
        self._options, self._follow, self._changes = options, follow, changes
        self._watch = DirectoryWatch(paths, follow.kind)
        self._limit = RecordLimit(options.limit)
        self._marks = HighWatermarks()
        self._cursors: dict[str, LogCursor] = {}
        self._recent: dict[str, float] = {}  # when each had something new
        self._in_directory: dict[str, set[str]] = {}  # the paths of the cursors in each directory that is watched
        self._failures: dict[str, str] = {}
        self._unmarked: set[str] = set()
        self._unread: set[str] = set()  # the sentences about checkpoints that could not be read
        self._is_told = True  # what changes in each directory
        self._pace = LookPace(_QUIET, LOOK_SECONDS, now=follow.clock)

    def events(self) -> Iterator[Event]:
        if self._limit.reached:
            return
        for found in self._watch.first_look():
            yield from self._add(found)
            if self._limit.reached:
                return
        if not self._cursors and self._watch.has_directories:
            yield from (FollowNote(path, _NO_LOGS) for path in self._watch.directories)
        while self._cursors or self._watch.has_directories:
            changes = self._changes.take()
            found_some = False
            for event in self._due_look(changes):
                found_some = True
                yield event
            if self._limit.reached:
                return
            if found_some:
                self._pace.hurry(_TOLD_SECONDS if self._is_told else LOOK_SECONDS)
            self._forget_quiet()
            if changes.directories:  # what changes all the time is looked at after the shortest pause
                self._follow.wait(LOOK_SECONDS, None)
            else:
                least = LOOK_SECONDS if self._recent else self._pace.seconds_left
                self._follow.wait(max(0.0, min(self._pace.seconds_left, least)), self._changes.descriptor)

    def _due_look(self, changes: Changes) -> Iterator[Event]:
        """Look at everything after its pause, before that at what has changed, and at what did a moment ago."""
        for directory in changes.directories:
            for path in self._in_directory.get(directory, ()):
                self._note(path)
        if self._pace.is_due or not changes.is_complete:
            with self._pace.look():
                yield from self._look()
        elif changes.directories.isdisjoint(self._watch.directories):
            yield from self._look_at(list(self._recent))
        else:
            yield from self._look_for_partitions()
            yield from self._look_at(list(self._cursors if self._follow.committed else self._recent))

    def _note(self, path: str) -> None:
        """Note that a partition had something new."""
        self._recent.pop(path, None)
        self._recent[path] = self._follow.clock()

    def _forget_quiet(self) -> None:
        """Leave out of the recent partitions those that were quiet for a while, and the oldest of too many."""
        since = self._follow.clock() - _RECENT_SECONDS
        for path in [path for path, at in self._recent.items() if at < since]:
            del self._recent[path]
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _look(self) -> Iterator[Event]:
        """Look at everything."""
        yield from self._look_for_partitions()
        yield from self._look_at(list(self._cursors))

    def _look_for_partitions(self) -> Iterator[Event]:
        """Look for new partitions and other high watermarks."""
        for found in self._watch.look():
            yield from self._add(found)
        for directory in self._watch.directories:
            self._is_told &= self._changes.watch(directory)
        self._marks.refresh()

    def _look_at(self, paths: list[str]) -> Iterator[Event]:
        for path in paths:
            cursor = self._cursors.get(path)
            if cursor is None:
                continue
            mark = self._marks.of(cursor.where) if self._follow.committed else None
            if cursor.has_changed(mark):
                yield from self._advance(path, cursor, mark)
                if self._limit.reached:
                    return

    def _add(self, found: PartitionPath | SourceError) -> Iterator[Event]:
        """Begin with a partition."""
        if isinstance(found, SourceError):
            yield DumpFailure(found)
            return
        if not self._options.includes_log(found.topic_partition):
            return
        before = self._cursors.pop(found.path, None)
        if before is not None:
            yield from before.end()
        cursor = LogCursor(found, self._options, self._limit, self._follow.clock)
        self._cursors[found.path] = cursor
        self._is_told &= self._changes.watch(found.directory)
        self._in_directory.setdefault(found.directory, set()).add(found.path)
        mark = self._marks.of(found) if self._follow.committed else None
        yield from self._advance(found.path, cursor, mark)

    def _advance(self, path: str, cursor: LogCursor, mark: int | None) -> Iterator[Event]:
        """What is new in a log."""
        committed, some = self._follow.committed, False
        if committed and mark is None and path not in self._unmarked:
            self._unmarked.add(path)
            problem = self._marks.problem(cursor.where)
            if problem is not None and problem not in self._unread:
                self._unread.add(problem)
                yield DumpFailure(SourceError(problem))
            yield FollowNote(path, _NO_MARK if problem is None else _NOT_READ)
        try:
            with only(path):
                for event in cursor.advance(limited=committed, mark=mark):
                    some = True
                    yield event
            self._failures.pop(path, None)
        except SourceError as error:
            yield from self._failure(path, error)
        if cursor.has_ended:
            del self._cursors[path]
            self._recent.pop(path, None)
            self._watch.forget(path)
            self._forget_directory(cursor.where)
        elif some:
            self._note(path)
        if some:
            yield OutputFlush()

    def _forget_directory(self, where: PartitionPath) -> None:
        """Watch the directory of a log no more, unless other logs in it are followed."""
        others = self._in_directory.get(where.directory, set())
        others.discard(where.path)
        if not others:
            self._in_directory.pop(where.directory, None)
            self._changes.forget(where.directory)

    def _failure(self, path: str, error: SourceError) -> Iterator[Event]:
        """Something cannot be read. Where a broker renamed or deleted it a moment ago, the next look finds that."""
        text = str(error)
        if self._failures.get(path) == text or not os.path.exists(text.partition(": ")[0]):
            return
        self._failures[path] = text
        yield DumpFailure(error)


class HighWatermarks:
    """The high watermarks of partitions, as they were at the last `refresh`."""

    def __init__(self) -> None:
        self._files: dict[str, PathWatch] = {}
        self._offsets: dict[str, CheckpointOffsets] = {}

    def refresh(self) -> None:
        """Read again what has changed."""
        for directory, file in self._files.items():
            # What could not be read can be made readable without another modification time.
            if file.has_changed() or self._offsets[directory].problem_of(naming.HIGH_WATERMARKS) is not None:
                file.note()
                self._offsets[directory] = read_offset_checkpoints(directory)

    def of(self, where: PartitionPath) -> int | None:
        """The high watermark of a partition; None where the checkpoint has no line for it, or cannot be read."""
        return self._context(where).high_watermark

    def problem(self, where: PartitionPath) -> str | None:
        """Why the high watermark of a partition is not known."""
        return self._context(where).problem_of(naming.HIGH_WATERMARKS)

    def _context(self, where: PartitionPath) -> CheckpointContext:
        directory = parent_of(where.directory)
        if directory not in self._files:
            self._files[directory] = PathWatch(os.path.join(directory, naming.HIGH_WATERMARKS))
            self._files[directory].note()
            self._offsets[directory] = read_offset_checkpoints(directory)
        name = where.topic_partition
        if name is None or naming.state_of(where.directory):
            return CheckpointContext()
        partition = Partition(path=where.directory, topic_partition=name, whole=False, segments=())
        return self._offsets[directory].context(partition)
