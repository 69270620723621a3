"""Shows logs that a broker writes, on and on: what is there, and each whole batch as it comes.

What is idle costs little: a look is the status of two paths a partition, and the pause after it is at least a hundred
times its cost. Partitions that had something new a moment ago are looked at more often.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kdump.dump.dump import DumpOptions, OnDamage, RecordLimit
from kdump.dump.events import DumpFailure, Event, FileBegin, FollowNote, OutputFlush
from kdump.dump.follow.high_watermarks import HighWatermarks
from kdump.dump.follow.log_cursor import LogCursor
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.storage.directory_watch import DirectoryWatch, PartitionPath
from kdump.storage.discovery import Paths
from kdump.storage.live import LookPace

LOOK_SECONDS: Final = 0.05
"""The shortest pause between two looks."""
_QUIET: Final = 120
"""The pause after a look at everything, as a multiple of its cost."""
_RECENT: Final = 32
_RECENT_SECONDS: Final = 10
"""So many partitions that had something new in this time are looked at after the shortest pause."""

_NO_MARK: Final = "replication-offset-checkpoint has no line for this partition; its records are shown when it has one"
_NO_LOGS: Final = "no log files here yet"


class FollowOptions(NamedTuple):
    """How to follow.

    `wait` lets so many seconds pass. `clock` gives seconds. With `committed` only records below the high watermark are
    shown. `kind` says what named files hold, where their names do not.
    """

    wait: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    committed: bool = False
    kind: Kind | None = None


def follow_logs(paths: Paths, options: DumpOptions, on_damage: OnDamage, follow: FollowOptions) -> Iterator[Event]:
    """The content of the logs at the paths and what comes to them, until the limit is reached or no log is left.

    `options.offsets` is where logs begin, and has no end. What cannot be read becomes a DumpFailure, once; the others
    go on.
    """
    shown = None
    for event in _Follow(paths, options, on_damage, follow).events():
        if isinstance(event, FileBegin):
            event = event._replace(again=event.file.path == shown)
            shown = event.file.path
        yield event


class _Follow:
    def __init__(self, paths: Paths, options: DumpOptions, on_damage: OnDamage, follow: FollowOptions) -> None:
        self._options, self._on_damage, self._follow = options, on_damage, follow
        self._watch = DirectoryWatch(paths, follow.kind)
        self._limit = RecordLimit(options.limit)
        self._marks = HighWatermarks()
        self._cursors: dict[str, LogCursor] = {}
        self._recent: dict[str, float] = {}  # when each had something new
        self._failures: dict[str, str] = {}
        self._unmarked: set[str] = set()
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
            found_some = False
            if self._pace.is_due:
                with self._pace.look():
                    for event in self._look():
                        found_some = True
                        yield event
            else:
                for event in self._look_at(list(self._recent)):
                    found_some = True
                    yield event
            if self._limit.reached:
                return
            if found_some:
                self._pace.hurry()
            self._forget_quiet()
            least = LOOK_SECONDS if self._recent else self._pace.seconds_left
            self._follow.wait(max(0.0, min(self._pace.seconds_left, least)))

    def _forget_quiet(self) -> None:
        """Leave out of the recent partitions those that were quiet for a while, and the oldest of too many."""
        since = self._follow.clock() - _RECENT_SECONDS
        for path in [path for path, at in self._recent.items() if at < since]:
            del self._recent[path]
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _look(self) -> Iterator[Event]:
        """Look at everything."""
        for found in self._watch.look():
            yield from self._add(found)
        self._marks.refresh()
        yield from self._look_at(list(self._cursors))

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
        cursor = LogCursor(found, self._options, self._on_damage, self._limit, self._follow.clock)
        self._cursors[found.path] = cursor
        mark = self._marks.of(found) if self._follow.committed else None
        yield from self._advance(found.path, cursor, mark)

    def _advance(self, path: str, cursor: LogCursor, mark: int | None) -> Iterator[Event]:
        """What is new in a log."""
        committed, some = self._follow.committed, False
        if committed and mark is None and path not in self._unmarked:
            self._unmarked.add(path)
            yield FollowNote(path, _NO_MARK)
        try:
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
        elif some:
            self._recent.pop(path, None)
            self._recent[path] = self._follow.clock()
        if some:
            yield OutputFlush()

    def _failure(self, path: str, error: SourceError) -> Iterator[Event]:
        """Something cannot be read. Where a broker renamed or deleted it a moment ago, the next look finds that."""
        text = str(error)
        if self._failures.get(path) == text or not os.path.exists(text.partition(": ")[0]):
            return
        self._failures[path] = text
        yield DumpFailure(error)
