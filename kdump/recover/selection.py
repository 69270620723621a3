"""Selects the topic-partition directories that can be recovered, and locks them where anything is written."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack

from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.naming import SEGMENT_SUFFIXES, number_of
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import discover, discover_whole
from kdump.storage.file_store import is_directory, parent_of
from kdump.storage.lock import Lock, is_locked, possible_log_directories
from kdump.storage.partition import LogDirectory, Partition
from kdump.storage.stamps import DirectoryFiles, Stamp, read_stamps
from kdump.storage.undo_folders import resume_hint

Found = Partition | LogDirectory | SourceError
_FilesBySegment = dict[int | None, dict[str, Stamp]]


class PlanItem(NamedTuple):
    """A partition to plan, and where to begin; None where the options say it.

    `is_running`: another process, probably a broker, holds the lock of its log directory.
    """

    partition: Partition
    walk: str | None = None
    is_running: bool = False


class RecoverySelection:
    """Selects partitions, and locks their log directories against brokers until `locks` is closed.

    Without `locks` it takes no lock, and a broker that runs is no error: then nothing is written. `only_reads` is for a
    copy, which needs no lock where .lock cannot be written; `on_notice` is called with a sentence where none was taken.
    """

    def __init__(
        self,
        locks: ExitStack | None,
        *,
        only_reads: bool = False,
        on_notice: Callable[[str], object] | None = None,
    ) -> None:
        self._locks = locks
        self._only_reads = only_reads
        self._on_notice = on_notice
        self._free: dict[str, bool] = {}
        self._running: set[str] = set()
        self._directories: set[str] = set()
        self._older: list[Partition] = []

    def items(self, found: Iterable[Found]) -> Iterator[PlanItem | LogDirectory | SourceError]:
        """What has to be verified."""
        for item in found:
            if isinstance(item, SourceError):
                yield item
                continue
            if isinstance(item, LogDirectory):
                self._directories.add(item.path)
            places = [item.path] if isinstance(item, LogDirectory) else _above(item)
            for place in places:
                if place not in self._free:
                    try:
                        self._lock(place)
                        _refuse_unfinished(place)
                        self._free[place] = True
                    except SourceError as error:
                        self._free[place] = False
                        yield error
            if not all(self._free[place] for place in places):
                continue
            if isinstance(item, LogDirectory):
                yield item
                continue
            is_running = not self._running.isdisjoint(places)
            for one in self._of(item):
                yield one._replace(is_running=is_running) if isinstance(one, PlanItem) else one
        yield from self._alone()

    def _lock(self, directory: str) -> None:
        """Lock a log directory, or say that it is not locked. Raises SourceError."""
        notice = ""
        if self._locks is None:
            if is_locked(os.path.join(directory, naming.LOCK_FILE)):
                self._running.add(directory)
        else:
            try:
                notice = self._locks.enter_context(Lock(directory, only_reads=self._only_reads)).warning
            except KdumpError as error:
                raise SourceError(str(error)) from None
        if notice and self._on_notice is not None:
            self._on_notice(notice)

    def _of(self, partition: Partition) -> Iterator[PlanItem | SourceError]:
        path = partition.path
        if partition.segments and path == partition.segments[0].log.path:
            yield from self._of_segment(partition)
            return
        yield from self._alone()
        name = partition.topic_partition
        if partition.whole:
            if partition.log_directory is None or name is None or name.topic != naming.METADATA_TOPIC:
                yield PlanItem(partition)
        elif path in self._directories:
            return  # a loose file of a log directory, such as the snapshot that KRaft starts from
        elif is_directory(path):
            # Discovery reports no names below a directory that was given. The partition is planned all the same.
            yield from _whole(path, discover_whole(partition), partition.log_directory)
        elif os.path.dirname(path) not in self._directories:
            yield SourceError(f"{path}: not a segment of a log; nothing else can be recovered")

    def _of_segment(self, partition: Partition) -> Iterator[PlanItem | SourceError]:
        """A segment that was given alone: the active one stands for its directory, any other is a log of its own."""
        log = partition.segments[0].log
        if number_of(os.path.basename(log.path)) is None:
            yield SourceError(f"{log.path}: not a name that a broker gives a segment, which is 20 digits and .log")
        elif not log.active:
            self._older.append(partition)
        else:
            directory = os.path.dirname(log.path) or "."
            self._older = [one for one in self._older if (os.path.dirname(one.path) or ".") != directory]
            yield from self._alone()
            yield from _whole(directory, discover([directory]), None, "newest")

    def _alone(self) -> Iterator[PlanItem]:
        """The segments of directories whose active segment was not given."""
        listed: dict[str, _FilesBySegment] = {}
        for partition in self._older:
            directory, name = os.path.split(partition.path)
            if directory not in listed:
                listed[directory] = _list_segments(directory or ".")
            stamps = listed[directory].get(number_of(name))
            files = None if stamps is None else DirectoryFiles(stamps)
            yield PlanItem(partition._replace(directory_files=files), "all")
        self._older.clear()


def _refuse_unfinished(directory: str) -> None:
    """Raises SourceError where a run is not finished in a log directory: all of it waits for the end of the run."""
    from kdump.recover import runs  # only a directory with undo folders needs it

    if runs.is_log_directory(directory) and (run := runs.unfinished_below(directory)) is not None:
        raise SourceError(f"{directory}: {resume_hint(directory, run.run)}")


def _above(partition: Partition) -> list[str]:
    """The directories that may be the log directory of a partition."""
    path = partition.path if is_directory(partition.path) else parent_of(partition.path)
    places = possible_log_directories(path)
    if partition.log_directory is not None:
        places[0] = partition.log_directory.path
    return places


def files_by_segment(files: Mapping[str, Stamp]) -> _FilesBySegment:
    """The files of a directory that belong to a segment, by its base offset."""
    found: _FilesBySegment = {}
    for name, stamp in files.items():
        if name.endswith(SEGMENT_SUFFIXES):
            found.setdefault(number_of(name), {})[name] = stamp
    return found


def _list_segments(directory: str) -> _FilesBySegment:
    """The stamps of segments that were given by their paths: discovery read the names beside them only."""
    try:
        return files_by_segment(read_stamps(directory))
    except SourceError:
        return {}  # making the plan reports it


def _whole(
    directory: str, found: Iterable[Found], place: LogDirectory | None, walk: str | None = None
) -> Iterator[PlanItem | SourceError]:
    """A directory as if its path had been given. `found` is what discovery then finds there."""
    for item in found:
        if isinstance(item, SourceError):
            yield item
        elif isinstance(item, Partition):
            if item.whole:
                yield PlanItem(item._replace(log_directory=place), walk)
            else:
                yield SourceError(
                    f"{directory}: not a topic-partition directory: its files do not have names that a broker gives"
                )
