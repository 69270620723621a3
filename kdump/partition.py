"""From paths to files: a file as named, a directory and what is below it, a glob."""

import glob
import os
import re
import stat
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from kdump.errors import NotALog, SourceError
from kdump.format import naming
from kdump.format.naming import Kind, TopicPartition
from kdump.source import FileSource


class LogFile(NamedTuple):
    """A file to be read: a log file or a companion. `base_offset` is None where the name does not say it; `newest` when no later segment lies beside it."""

    path: str
    kind: Kind
    base_offset: int | None
    newest: bool
    size: int
    read_from: str | None = None
    """Where the bytes lie, when not at `path`."""

    @property
    def preallocated(self) -> bool:
        """Whether zeros at its end can be room that a broker took in advance: in the newest segment, but never in 0.7."""
        return self.newest and self.kind is not Kind.KAFKA07

    def open(self) -> FileSource:
        """The bytes. Raises SourceError."""
        return FileSource(self.read_from or self.path)


class Segment(NamedTuple):
    """A log file with its indexes. A broker looks for them under the 20-digit name only, and so do we."""

    log: LogFile
    index: LogFile | None = None  # type: ignore[assignment]  # hides a method of tuples that nobody calls on this
    timeindex: LogFile | None = None
    txnindex: LogFile | None = None


class Stray(NamedTuple):
    """What does not belong where it lies; `what` is a key of kdump.checks.files.STRAYS."""

    path: str
    size: int
    what: str


class LogDirectory(NamedTuple):
    """A directory of topic-partitions with the files at its root.

    `whole`: it was named, so that `strays` are wanted. `locked`: another process holds .lock, as a running broker does.
    `partitions` are those whose directories a broker loads: neither on their way out nor set aside.
    """

    path: str
    whole: bool
    checkpoints: Mapping[str, LogFile]
    meta: LogFile | None
    clean_shutdown: LogFile | None
    has_lock_file: bool
    locked: bool
    partitions: tuple[TopicPartition, ...]
    strays: tuple[Stray, ...]


class Partition(NamedTuple):
    """A topic-partition directory; or one log file that was named alone, or standard input, and then `path` is that file.

    `whole`: the directory was named, or its log directory was, and it is a broker's; every file in it is known, and `strays` are wanted.
    `segments` by base offset, `checkpoints` are the KRaft snapshots, `snapshots` those of the producers. `state` is delete, future, stray or nothing.
    """

    path: str
    topic_partition: TopicPartition | None
    whole: bool
    segments: tuple[Segment, ...]
    checkpoints: tuple[LogFile, ...] = ()
    snapshots: tuple[LogFile, ...] = ()
    epochs: LogFile | None = None
    metadata: LogFile | None = None
    quorum_state: LogFile | None = None
    strays: tuple[Stray, ...] = ()
    state: str = ""
    log_directory: LogDirectory | None = None


def without_companions(partition: Partition) -> Partition:
    """The log files of a partition alone."""
    return Partition(
        path=partition.path,
        topic_partition=partition.topic_partition,
        whole=False,
        segments=tuple(Segment(segment.log) for segment in partition.segments),
        checkpoints=partition.checkpoints,
        state=partition.state,
    )


def log_files(partition: Partition) -> list[LogFile]:
    """The log files of a partition in natural order of their names."""
    files = [*(segment.log for segment in partition.segments), *partition.checkpoints]
    return sorted(files, key=lambda file: natural(os.path.basename(file.path)))


def discover(
    paths: Iterable[str],
    kind: Kind | None = None,
    seen: set[tuple[int, int]] | None = None,
    *,
    companions: bool = False,
) -> Iterator[LogFile | SourceError]:
    """The log files that the paths name, in natural order, each once; what cannot be read comes as an error in its place.

    A file named directly is read whatever its name; `kind` says what it is when the name does not. Below directories only known suffixes count.
    Symbolic links are followed, each directory is entered once. `seen` holds device and inode of what earlier calls gave. A companion that is
    named directly comes only where `companions` are asked for; else it is an error.
    """
    seen = set() if seen is None else seen
    highest = _Highest()
    for path in paths:
        for found in _expand(path):
            try:
                status = os.stat(found)
            except (OSError, ValueError) as error:
                yield SourceError(
                    f"{found}: {error.strerror.lower() if isinstance(error, OSError) and error.strerror else error}"
                )
                continue
            if os.path.isdir(found):
                if not (yield from _below(found, seen, highest)):
                    yield SourceError(f"{found}: no log files here")
            elif kind is None and not companions and (companion := naming.companion_of(found)) is not None:
                yield NotALog(f"{found}: {companion}, not a log file (--type log reads it as one)")
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                known = kind or naming.companion_kind_of(found) or naming.kind_of(found) or Kind.LOG
                yield _file(found, known, status.st_size, highest)


def _expand(path: str) -> list[str]:
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path, recursive=True), key=natural) or [path]
    return [path]


def _below(
    directory: str, seen: set[tuple[int, int]], highest: "_Highest"
) -> Generator[LogFile | SourceError, None, bool]:
    """What lies below, without what was `seen` before; whether there was anything to be read or to complain of."""
    some = False
    left = [directory]
    while left:
        path = left.pop()
        kind = naming.kind_of(path)
        try:
            status = os.stat(path)
            inode = (status.st_dev, status.st_ino)
            if stat.S_ISDIR(status.st_mode):
                if inode not in seen:
                    seen.add(inode)
                    left += [os.path.join(path, name) for name in sorted(os.listdir(path), key=natural, reverse=True)]
                elif path == directory:
                    return True
                continue
        except OSError as error:
            # A link that leads nowhere is somebody else's, unless it is named as a log file.
            if kind is not None or not os.path.islink(path):
                some = True
                yield SourceError(f"{path}: {(error.strerror or str(error)).lower()}")
            continue
        if kind is not None and naming.plain_name(os.path.basename(path)) == os.path.basename(path):
            some = True
            if inode not in seen:
                seen.add(inode)
                yield _file(path, kind, status.st_size, highest)
    return some


class _Highest(dict[tuple[str, Kind], int]):
    """The highest base offset of a kind of file in a directory; each directory is listed once."""

    def __missing__(self, place: tuple[str, Kind]) -> int:
        directory, kind = place
        try:
            names = os.listdir(directory or ".")
        except OSError:
            names = []
        suffix = naming.suffix_of(kind)
        self[place] = max((naming.base_offset_of(name) or 0 for name in names if name.endswith(suffix)), default=0)
        return self[place]


def _file(path: str, kind: Kind, size: int, highest: _Highest) -> LogFile:
    # The offsets of a snapshot count from 0, whatever its name says.
    if kind is Kind.CHECKPOINT:
        return LogFile(path, kind, 0, True, size)
    base = naming.base_offset_of(path)
    log = kind if kind in naming.LOG_KINDS else Kind.LOG
    return LogFile(path, kind, base, base is None or base >= highest[os.path.dirname(path), log], size)


_NUMBERS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts topic-2 before topic-10."""
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(name)]
