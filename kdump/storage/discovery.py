"""Finding partitions at paths: files, directories and everything below them, globs, standard input."""

import glob
import os
import stat
from collections.abc import Generator, Iterable, Iterator

from kdump.errors import NotALog, SourceError
from kdump.format import naming
from kdump.format.naming import Kind
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import (
    absolute,
    exists,
    is_url,
    names_in,
    open_source,
    parent_of,
    status_of,
    store_of,
)
from kdump.storage.listing import (
    is_link_to_ancestor,
    list_directory,
    log_directory_of_listing,
    partition_of_listing,
    topic_partition_in,
    unreadable,
)
from kdump.storage.partition import (
    Listing,
    LogDirectory,
    LogFile,
    Partition,
    Segment,
    index_files,
    logs_of_partition,
    natural,
)
from kdump.storage.source import reader_of

Found = Partition | LogDirectory | SourceError
_Inode = tuple[int, int]
_INDEXES = (Kind.INDEX, Kind.TIMEINDEX, Kind.TXNINDEX)


Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several."""


def discover(
    paths: Paths, *, kind: Kind | None = None, standard_input: LogFile | SourceError | None = None
) -> Iterator[Found]:
    """The partitions at the paths in natural order, a log directory before its partitions.

    What cannot be read comes as a SourceError in its place.

    A file that is named directly is a partition of its own, whatever its name; `kind` says what it holds when the name
    does not. Below directories only known names count. Symbolic links are followed, and each directory is entered once.
    A file comes once, and not again with a directory that is named too. `standard_input` stands for the path -.
    """
    named = list(named_paths(paths, standard_input))
    directories = {_inode(item.status) for item in named if isinstance(item, NamedPath) and item.is_directory}
    single = any(isinstance(item, NamedPath) and not item.is_directory for item in named)
    of_logs = {
        _parent(item.path) for item in named if isinstance(item, NamedPath) and naming.kind_of(item.path) is not None
    }
    walk, highest, seen = _DirectoryWalk(directories), _HighestBaseOffsets(), set[_Inode | None]()
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
                    seen.update(_inode_of(file.path) for file in logs_of_partition(found))
                if found is not None:
                    yield found
            if not some:
                yield _nothing(item.path)
        elif kind is None and naming.companion_of(item.path) is not None:
            if _inode_of(_parent(item.path)) not in directories:
                yield _companion(item, beside_logs=_parent(item.path) in of_logs)
        elif (inode := _inode(item.status)) not in seen and _inode_of(_parent(item.path)) not in directories:
            seen.add(inode)
            yield _alone(item.file(kind, highest))


def discover_whole(partition: Partition) -> Iterator[Found]:
    """What `discover` finds at the path of a topic-partition directory that it found below another directory.

    Does not list the directory again.
    """
    some = False
    for found in _DirectoryWalk(set(), partition.listing).below(partition.path):
        some = True
        if found is not None:
            yield found
    if not some:
        yield _nothing(partition.path)


def log_files(
    paths: Paths,
    *,
    kind: Kind | None = None,
    standard_input: LogFile | SourceError | None = None,
    indexes: bool = False,
) -> Iterator[LogFile | SourceError]:
    """The log files that `discover` finds, or with `indexes` their offset and time indexes, each file once.

    Files that are named come too, whatever they are. What cannot be read comes as a SourceError in its place.
    """
    walk, highest, seen = _DirectoryWalk(set()), _HighestBaseOffsets(), set[_Inode | None]()
    for item in named_paths(paths, standard_input):
        if isinstance(item, LogFile | SourceError):
            yield item
        elif not item.is_directory:
            inode: _Inode | None = _inode(item.status)
            if inode not in seen:
                seen.add(inode)
                yield item.file(kind, highest)
        else:
            some = False
            for found in walk.below(item.path):
                some = some or not isinstance(found, Partition | LogDirectory if indexes else Partition)
                if isinstance(found, SourceError):
                    yield found
                wanted = index_files if indexes else logs_of_partition
                for file in wanted(found) if isinstance(found, Partition) else ():
                    some = True
                    inode = _inode_of(file.path)
                    if inode is None or inode not in seen:
                        seen.add(inode)
                        yield file
            if not some:
                yield _nothing(item.path, "indexes" if indexes else "log files")


def _nothing(path: str, wanted: str = "log files") -> SourceError:
    return SourceError(f"{path}: no {wanted} here")


# --- named paths ------------------------------------------------------------------------------------------------------


class NamedPath(NamedTuple):
    """A path that the user named, and its status."""

    path: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    def file(self, kind: Kind | None, highest: "_HighestBaseOffsets") -> LogFile:
        """The file that was named."""
        kind = kind or naming.companion_kind_of(self.path) or naming.kind_of(self.path) or Kind.LOG
        size = self.status.st_size
        # The offsets in a KRaft snapshot count from 0, whatever its name says.
        if kind is Kind.CHECKPOINT:
            return LogFile(self.path, kind, 0, True, size)
        base = naming.base_offset_of(self.path)
        log = kind if kind in naming.LOG_KINDS else Kind.LOG
        return LogFile(self.path, kind, base, base is None or base >= highest[os.path.dirname(self.path), log], size)


def named_paths(
    paths: Paths, standard_input: LogFile | SourceError | None = None
) -> Iterator[NamedPath | LogFile | SourceError]:
    """Each path that is named, once; globs are expanded. `standard_input` stands for the path -."""
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    for path in dict.fromkeys(os.fspath(path) for path in given):
        if path == "-" and standard_input is not None:
            yield standard_input
            continue
        try:
            several = _expand(path)
        except (OSError, ValueError) as error:
            several = []
            yield unreadable(path, error)
        for expanded in several:
            try:
                store_of(expanded).refresh(expanded)
                yield _named(expanded)
            except (OSError, ValueError) as error:
                yield unreadable(expanded, error)


def is_fingerprint(path: str) -> bool:
    """Whether a path is a file that begins as a fingerprint of copies."""
    return _beginning_of(path) == naming.FINGERPRINT_MAGIC


def _beginning_of(path: str) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        return _first_bytes(path)
    except SourceError:
        return b""


def _first_bytes(path: str) -> bytes:
    """The same. Raises SourceError where it cannot be opened or read."""
    try:
        # Opening what is no object takes an object store several requests.
        if is_url(path) and (naming.kind_of(path) is not None or not stat.S_ISREG(status_of(path).st_mode)):
            return b""
    except (OSError, ValueError):
        return b""
    with open_source(path) as source:
        source.read_until(len(naming.FINGERPRINT_MAGIC))
        return reader_of(source)(0, len(naming.FINGERPRINT_MAGIC))


def _may_be_fingerprint(path: str) -> bool:
    """Whether it is one, or an object that has not the name of a log and cannot be read: who reads it says why."""
    try:
        return _first_bytes(path) == naming.FINGERPRINT_MAGIC
    except SourceError:
        return is_url(path)


class NamedFingerprints(NamedTuple):
    """Fingerprints of copies, and the other paths that were named with them."""

    files: tuple[str, ...]
    others: tuple[str, ...]


def named_fingerprints(paths: Iterable[str]) -> NamedFingerprints:
    """The fingerprints among paths. A glob that stands for some is expanded, and else left as it is."""
    files, others = dict[str, None](), dict[str, None]()
    for path in paths:
        try:
            expanded = _expand(path)
        except (OSError, ValueError):
            expanded = [path]  # who discovers what is there says why not
        found = dict.fromkeys(each for each in expanded if _may_be_fingerprint(each))
        files |= found
        others |= dict.fromkeys((each for each in expanded if each not in found) if found else [path])
    return NamedFingerprints(tuple(files), tuple(others))


def _named(path: str) -> NamedPath | SourceError:
    item = NamedPath(path, status_of(path))
    is_log = naming.kind_of(path) is not None or naming.companion_of(path) is not None
    if is_log or not stat.S_ISREG(item.status.st_mode):
        return item
    beginning = _beginning_of(path)
    if beginning == naming.FINGERPRINT_MAGIC:
        return NotALog(f"{path}: a fingerprint of copies, and no log; kdump verify --compare compares it with others")
    if beginning == naming.SHARES_MAGIC:
        return NotALog(f"{path}: what segments add to a fingerprint, and no log; kdump verify --fingerprint uses it")
    return item


def _expand(path: str) -> list[str]:
    if glob.has_magic(path) and not exists(path):
        return sorted(store_of(path).matches(path), key=natural) or [path]
    return [path]


def _parent(path: str) -> str:
    return os.path.dirname(path) or "."


def _inode(status: os.stat_result) -> _Inode:
    return status.st_dev, status.st_ino


def _inode_of(path: str) -> _Inode | None:
    try:
        return _inode(status_of(path))
    except OSError:  # gone; opening it will report that
        return None


class _HighestBaseOffsets(dict[tuple[str, Kind], int]):
    """The highest base offset of the files of a kind in a directory. Each directory is listed once.

    This listing is one of its own: it reads names only, for files that were named without their directory.
    """

    def __missing__(self, key: tuple[str, Kind]) -> int:
        directory, kind = key
        try:
            names = names_in(directory or ".")
        except OSError:
            names = []
        suffix = naming.suffix_of(kind)
        self[key] = max((naming.base_offset_of(name) or 0 for name in names if name.endswith(suffix)), default=0)
        return self[key]


def _alone(file: LogFile) -> Partition:
    """A log file as a partition of its own."""
    standard_input = file.read_from is not None
    directory = parent_of(file.path)
    return Partition(
        path=file.path,
        topic_partition=None if standard_input else naming.topic_partition_of_file(file.path),
        whole=False,
        segments=() if file.kind is Kind.CHECKPOINT else (Segment(file, *_beside(file)),),
        kraft_snapshots=(file,) if file.kind is Kind.CHECKPOINT else (),
        state="" if standard_input else naming.state_of(directory),
    )


def _companion(item: NamedPath, *, beside_logs: bool) -> Partition | NotALog:
    """A companion that was named, with the log that it is compared with.

    `beside_logs`: logs of its directory were named too, and it comes with these.
    """
    kind, path = naming.companion_kind_of(item.path), item.path
    error = NotALog(f"{path}: {naming.companion_of(path)}, not a log file (--type log reads it as one)")
    if beside_logs or naming.plain_name(os.path.basename(path)) != os.path.basename(path):
        return error
    if kind in _INDEXES:
        log = os.path.join(os.path.dirname(path), naming.segment_file_name(naming.base_offset_of(path) or 0, ".log"))
        try:
            alone = _alone(NamedPath(log, status_of(log)).file(Kind.LOG, _HighestBaseOffsets()))
        except OSError:
            return error
        beside = {each.kind: each for each in alone.segments[0][1:] if isinstance(each, LogFile) and each.kind is kind}
        found = Segment(alone.segments[0].log, *(beside.get(each) for each in _INDEXES))
        return alone._replace(path=path, segments=(found,), only=path) if beside else error
    try:
        content = list_directory(_parent(path))
        partition, _ = partition_of_listing(content, _topic_partition(content), whole=False)
    except SourceError:
        return error
    own = (*partition.producer_snapshots, partition.epochs, partition.metadata, partition.quorum_state)
    same = next(
        (file for file in own if file is not None and os.path.basename(file.path) == os.path.basename(path)), None
    )
    if same is None or not partition.segments:
        return error
    # Findings name the path as it was given.
    return _renamed(partition, same, same._replace(path=path))._replace(only=path)


def _renamed(partition: Partition, old: LogFile, new: LogFile) -> Partition:
    def named(file: LogFile | None) -> LogFile | None:
        return new if file is old else file

    return partition._replace(
        producer_snapshots=tuple(new if file is old else file for file in partition.producer_snapshots),
        epochs=named(partition.epochs),
        metadata=named(partition.metadata),
        quorum_state=named(partition.quorum_state),
    )


def _beside(file: LogFile) -> Iterator[LogFile | None]:
    """The indexes of a log file; None for a missing one."""
    stem = naming.segment_file_name(file.base_offset or 0, "")
    exact = file.kind is Kind.LOG and os.path.basename(file.path) == f"{stem}.log" and file.read_from is None
    for kind in _INDEXES if exact else ():
        path = os.path.join(os.path.dirname(file.path), f"{stem}.{kind.value}")
        try:
            yield LogFile(path, kind, file.base_offset, file.active, status_of(path).st_size)
        except OSError:
            yield None


# --- below directories ------------------------------------------------------------------------------------------------


class _DirectoryWalk:
    """Walks directories, each once. `named` are the directories that the user named.

    The directory of `listing` is not listed again.
    """

    def __init__(self, named: set[_Inode], listing: Listing | None = None) -> None:
        self._named = named
        self._listing = listing
        self._entered: dict[_Inode, int] = {}
        self._walks = 0

    def below(self, path: str) -> Iterator[Found | None]:
        """The partitions in a named directory and below it.

        None stands for what gives nothing here: an empty directory with the name of a topic-partition, and a directory
        that was entered below a path that was named before.
        """
        self._walks += 1
        left: list[str | Partition] = [path]
        while left:
            here = left.pop()
            if isinstance(here, Partition):
                yield here
                continue
            found = yield from self._enter(here)
            if found is None:
                continue
            whole = here == path or _inode_of(here) in self._named
            if found.is_log_directory:
                odd = yield from self._log_directory(found, whole)
                odd.sort(key=natural, reverse=True)
                left += odd
                continue
            name = _topic_partition(found)
            partition, errors = partition_of_listing(found, name, whole=whole)
            yield from errors
            if not _is_one(partition) and name is not None and not (found.files or found.directories):
                yield None
            left += reversed(_in_order(_inside(found), partition if _is_one(partition) else None))

    def _enter(self, path: str) -> Generator[Found | None, None, Listing | None]:
        """The entries of a directory. Yields an error, or None for one that was entered below another path."""
        inode = _inode_of(path)
        if inode in self._entered:
            if self._entered[inode] < self._walks:
                yield None
            return None
        if inode is not None:
            self._entered[inode] = self._walks
        if self._listing is not None and path == self._listing.path:
            return self._listing
        try:
            return list_directory(path)
        except SourceError as error:
            # A broker renames and deletes directories while they are listed.
            yield error if exists(path) else None
            return None

    def _log_directory(self, found: Listing, whole: bool) -> Generator[Found | None, None, list[str]]:
        """A log directory, directly followed by its partitions. Returns the other directories in it."""
        directory, errors = log_directory_of_listing(found, whole=whole)
        # The only log file that a broker reads here is the snapshot that KRaft starts from.
        loose, more = partition_of_listing(found, None, whole=False, log_directory=directory)
        loose = loose._replace(misplaced_files=())  # they are in those of the log directory
        yield from {str(error): error for error in (*errors, *more)}.values()
        yield directory
        own = {entry.path: name for entry in found.directories if (name := topic_partition_in(entry)) is not None}
        inside = _inside(found)
        odd = [path for path in inside if path not in own]
        for here in _in_order([path for path in inside if path in own], loose if logs_of_partition(loose) else None):
            if isinstance(here, Partition):
                yield here
                continue
            content = yield from self._enter(here)
            if content is not None:
                named = whole or _inode_of(here) in self._named
                partition, errors = partition_of_listing(content, own[here], whole=named, log_directory=directory)
                yield from errors
                yield partition
                odd += _inside(content)
        return odd


def _inside(found: Listing) -> list[str]:
    """The directories in a directory that are walked."""
    return [
        entry.path
        for entry in found.directories
        if not is_link_to_ancestor(entry, found.path)
        and not (found.is_log_directory and entry.name == naming.REMOTE_INDEX_CACHE)
    ]


def _in_order(inside: list[str], partition: Partition | None) -> list[str | Partition]:
    """Directories in natural order, with the partition where its first log file sorts."""
    order: list[tuple[str, str | Partition]] = [(os.path.basename(path), path) for path in inside]
    if partition is not None:
        first = (
            logs_of_partition(partition)[0].path if inside and (partition.segments or partition.kraft_snapshots) else ""
        )
        order.append((os.path.basename(first), partition))
    return [item for _, item in sorted(order, key=lambda item: natural(item[0]))]


def _is_one(partition: Partition) -> bool:
    """Whether the directory has log files, or companions and misplaced files of a partition that was named."""
    rest = (*partition.producer_snapshots, partition.epochs, partition.metadata, partition.quorum_state)
    odd = {file.what for file in partition.misplaced_files} - {"unknown", "directory", "loop"}
    return bool(partition.segments or partition.kraft_snapshots or (partition.whole and (odd or any(rest))))


def _topic_partition(found: Listing) -> naming.TopicPartition | None:
    path = absolute(found.path)
    return naming.topic_partition_of(path) or naming.topic_partition_of(
        path, kafka07=any(naming.kind_of(entry.name) is Kind.KAFKA07 for entry in found.files)
    )
