"""From paths to partitions: a file as named, a directory and what is below it, a glob, standard input."""

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kdump.directory import (
    Listing,
    leads_back,
    listing,
    log_directory_in,
    partition_in,
    topic_partition_in,
    unreadable,
)
from kdump.errors import NotALog, SourceError
from kdump.format import naming
from kdump.format.naming import Kind
from kdump.partition import LogDirectory, LogFile, Partition, Segment, log_files, natural

Found = Partition | LogDirectory | SourceError
_Inode = tuple[int, int]
_INDEXES = (Kind.INDEX, Kind.TIMEINDEX, Kind.TXNINDEX)


def discover(
    paths: Iterable[str], kind: Kind | None = None, standard_input: LogFile | SourceError | None = None
) -> Iterator[Found]:
    """The partitions that the paths name, in natural order; a log directory comes before its own. What cannot be read comes as an error in its place.

    A file named directly is a partition of its own and is read whatever its name; `kind` says what it is when the name does not. Below directories only
    known names count. Symbolic links are followed, each directory is entered once. A file that was named comes once, and not beside the directory it lies in.
    `standard_input` is what the path - stands for.
    """
    named = list(_named(paths, standard_input))
    directories = {_inode(item.status) for item in named if isinstance(item, _Named) and item.is_directory}
    single = any(isinstance(item, _Named) and not item.is_directory for item in named)
    walk, highest, seen = _Walk(directories), _Highest(), set[_Inode | None]()
    for item in named:
        if isinstance(item, LogFile):
            yield _alone(item)
        elif isinstance(item, SourceError):
            yield item
        elif item.is_directory:
            some = False
            for found in walk.below(item.path):
                some = True
                if isinstance(found, Partition) and single:
                    seen.update(_inode_of(file.path) for file in log_files(found))
                if found is not None:
                    yield found
            if not some:
                yield _nothing(item.path)
        elif kind is None and (companion := naming.companion_of(item.path)) is not None:
            yield NotALog(f"{item.path}: {companion}, not a log file (--type log reads it as one)")
        elif (inode := _inode(item.status)) not in seen and _inode_of(_parent(item.path)) not in directories:
            seen.add(inode)
            yield _alone(item.file(kind, highest))


def files(
    paths: Iterable[str], kind: Kind | None = None, standard_input: LogFile | SourceError | None = None
) -> Iterator[LogFile | SourceError]:
    """The log files of what `discover` finds, each file once, and the companions that are named themselves."""
    walk, highest, seen = _Walk(set()), _Highest(), set[_Inode | None]()
    for item in _named(paths, standard_input):
        if isinstance(item, LogFile | SourceError):
            yield item
        elif not item.is_directory:
            place: _Inode | None = _inode(item.status)
            if place not in seen:
                seen.add(place)
                yield item.file(kind, highest)
        else:
            some = False
            for found in walk.below(item.path):
                some = some or not isinstance(found, LogDirectory | Partition)
                if isinstance(found, SourceError):
                    yield found
                for file in log_files(found) if isinstance(found, Partition) else ():
                    some = True
                    place = _inode_of(file.path)
                    if place is None or place not in seen:
                        seen.add(place)
                        yield file
            if not some:
                yield _nothing(item.path)


def _nothing(path: str) -> SourceError:
    return SourceError(f"{path}: no log files here")


# --- what was named ---------------------------------------------------------------------------------------------------


class _Named(NamedTuple):
    path: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    def file(self, kind: Kind | None, highest: "_Highest") -> LogFile:
        """The file that was named, as what it is."""
        kind = kind or naming.companion_kind_of(self.path) or naming.kind_of(self.path) or Kind.LOG
        size = self.status.st_size
        # The offsets of a snapshot count from 0, whatever its name says.
        if kind is Kind.CHECKPOINT:
            return LogFile(self.path, kind, 0, True, size)
        base = naming.base_offset_of(self.path)
        log = kind if kind in naming.LOG_KINDS else Kind.LOG
        return LogFile(self.path, kind, base, base is None or base >= highest[os.path.dirname(self.path), log], size)


def _named(
    paths: Iterable[str], standard_input: LogFile | SourceError | None
) -> Iterator[_Named | LogFile | SourceError]:
    for path in dict.fromkeys(paths):
        if path == "-" and standard_input is not None:
            yield standard_input
            continue
        for expanded in _expand(path):
            try:
                yield _Named(expanded, os.stat(expanded))
            except (OSError, ValueError) as error:
                yield unreadable(expanded, error)


def _expand(path: str) -> list[str]:
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path, recursive=True), key=natural) or [path]
    return [path]


def _parent(path: str) -> str:
    return os.path.dirname(path) or "."


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


def _inode_of(path: str) -> _Inode | None:
    try:
        return _inode(os.stat(path))
    except OSError:  # gone; whoever opens it will say so
        return None


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


def _alone(file: LogFile) -> Partition:
    """A log file as a partition of its own."""
    standard_input = file.read_from is not None
    place = os.path.dirname(os.path.abspath(file.path))
    return Partition(
        path=file.path,
        topic_partition=None if standard_input else naming.topic_partition_of_file(file.path),
        whole=False,
        segments=() if file.kind is Kind.CHECKPOINT else (Segment(file, *_beside(file)),),
        checkpoints=(file,) if file.kind is Kind.CHECKPOINT else (),
        state="" if standard_input else naming.state_of(place),
    )


def _beside(file: LogFile) -> Iterator[LogFile | None]:
    """The indexes of a log file, None for those that are not there."""
    stem = f"{file.base_offset or 0:020}"
    exact = file.kind is Kind.LOG and os.path.basename(file.path) == f"{stem}.log" and file.read_from is None
    for kind in _INDEXES if exact else ():
        path = os.path.join(os.path.dirname(file.path), f"{stem}.{kind.value}")
        try:
            yield LogFile(path, kind, file.base_offset, file.newest, os.stat(path).st_size)
        except OSError:
            yield None


# --- what lies below --------------------------------------------------------------------------------------------------


class _Below(NamedTuple):
    """A directory that is still to be listed; `owner` is the log directory whose topic-partition it is."""

    path: str
    named: bool = False
    owner: LogDirectory | None = None


class _Walk:
    """Walks directories, each once; `named` are those that are wanted whole."""

    def __init__(self, named: set[_Inode]) -> None:
        self._named = named
        self._entered: set[_Inode] = set()

    def below(self, path: str) -> Iterator[Found | None]:
        """What lies in a directory that was named and below it; None where another path led there before."""
        left: list[_Below | Partition] = [_Below(path, named=True)]
        while left:
            here = left.pop()
            if isinstance(here, Partition):
                yield here
                continue
            inode = _inode_of(here.path)
            if inode in self._entered:
                yield None
                continue
            if inode is not None:
                self._entered.add(inode)
            try:
                found = listing(here.path)
            except SourceError as error:
                yield error
                continue
            named = here.named or inode in self._named
            if here.owner is None and found.is_log_directory:
                yield from self._log_directory(found, named, left)
            else:
                yield from self._partition(found, named, here.owner, left)

    def _log_directory(self, found: Listing, named: bool, left: list[_Below | Partition]) -> Iterator[Found]:
        directory, errors = log_directory_in(found, whole=named)
        # A broker reads no log file here but the snapshot that KRaft starts from.
        loose, more = partition_in(found, None, whole=False)
        yield from {str(error): error for error in (*errors, *more)}.values()
        yield directory
        inside = [
            _Below(entry.path, owner=directory if topic_partition_in(entry) is not None else None)
            for entry in found.directories
            if entry.name != naming.REMOTE_INDEX_CACHE and not leads_back(entry, found.path)
        ]
        _push(left, inside, loose if log_files(loose) else None)

    def _partition(
        self, found: Listing, named: bool, owner: LogDirectory | None, left: list[_Below | Partition]
    ) -> Iterator[Found]:
        partition, errors = partition_in(
            found, _topic_partition(found), whole=named or (owner is not None and owner.whole), log_directory=owner
        )
        yield from errors
        inside = [_Below(entry.path) for entry in found.directories if not leads_back(entry, found.path)]
        _push(left, inside, partition if owner is not None or _is_one(partition) else None)


def _is_one(partition: Partition) -> bool:
    """Whether something in the directory is of a log, or the rest of one where it is wanted whole."""
    rest = (*partition.snapshots, partition.epochs, partition.metadata, partition.quorum_state)
    odd = {stray.what for stray in partition.strays} - {"unknown", "directory", "loop"}
    return bool(log_files(partition) or (partition.whole and (odd or any(rest))))


def _topic_partition(found: Listing) -> naming.TopicPartition | None:
    path = os.path.abspath(found.path)
    return naming.topic_partition_of(path) or naming.topic_partition_of(
        path, kafka07=any(naming.kind_of(entry.name) is Kind.KAFKA07 for entry in found.files)
    )


def _push(left: list[_Below | Partition], inside: list[_Below], partition: Partition | None) -> None:
    """Put what comes next on the stack, in natural order; a partition is where its first log file is."""
    order: list[tuple[str, _Below | Partition]] = [(os.path.basename(below.path), below) for below in inside]
    if partition is not None:
        first = next(iter(log_files(partition)), None)
        order.append(("" if first is None else os.path.basename(first.path), partition))
    order.sort(key=lambda item: natural(item[0]), reverse=True)
    left += (item for _, item in order)
