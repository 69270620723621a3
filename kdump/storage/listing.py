"""Reading one directory as a topic-partition or as a log directory. One scandir per directory, one stat per file."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.naming import Kind, TopicPartition
from kdump.storage.file_store import entries_of, names_in, real
from kdump.storage.lock import is_locked
from kdump.storage.misplaced import MisplacedFile, PathAndSize, at_root, misnamed, orphans
from kdump.storage.partition import Listing, LogDirectory, LogFile, Partition, Segment, natural
from kdump.storage.stamps import DirectoryFiles, Stamp
from kdump.storage.store import DirectoryEntry


def list_directory(path: str) -> Listing:
    """The entries of a directory. Raises SourceError."""
    found = Listing(path, [], [], [])
    try:
        with entries_of(path) as entries:
            for entry in entries:
                if naming.is_undo(entry.name):
                    found.undo.append(entry)
                else:
                    (found.directories if is_directory_entry(entry) else found.files).append(entry)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    return found


def is_directory_entry(entry: DirectoryEntry) -> bool:
    """Whether an entry is a directory; not where that cannot be found out."""
    try:
        return entry.is_dir()
    except OSError:  # a loop of links, or no permission: the stat of the file reports it
        return False


def unreadable(path: str, error: OSError | ValueError) -> SourceError:
    """The error for a path whose status cannot be read."""
    if isinstance(error, ValueError):
        return SourceError(f"{path}: embedded null byte")  # Python's own words differ between its versions
    return SourceError(f"{path}: {error.strerror.lower() if error.strerror else error}")


def _report_unreadable_entry(
    entry: DirectoryEntry, error: OSError, is_kafkas: bool, errors: list[SourceError], misplaced: list[MisplacedFile]
) -> None:
    """Report a file whose status cannot be read. A dangling link is misplaced, unless its name is one of Kafka's."""
    if isinstance(error, FileNotFoundError) and not entry.is_symlink():
        return  # a broker deleted it a moment ago
    if is_kafkas or not entry.is_symlink():
        errors.append(unreadable(entry.path, error))
    else:
        misplaced.append(MisplacedFile(entry.path, 0, "loop" if error.errno == errno.ELOOP else "unknown"))


def is_link_to_ancestor(entry: DirectoryEntry, path: str) -> bool:
    """Whether an entry of the directory `path` is a link to it, or to a directory above it."""
    if not entry.is_symlink():
        return False
    target, here = real(entry.path), real(path)
    return os.path.commonpath((target, here)) == target


def _unfinished(found: Listing) -> list[MisplacedFile]:
    """The entries that show a run of recover that did not finish."""
    misplaced = []
    for entry in found.undo:
        from kdump.storage.undo_folders import is_unfinished, lacks_an_end

        names: list[list[str]] = []
        if entry.is_dir(follow_symlinks=False):
            with suppress(OSError):
                names += [names_in(os.path.join(entry.path, run)) for run in names_in(entry.path)]
        if is_unfinished(entry.name) or any(map(lacks_an_end, names)):
            misplaced.append(MisplacedFile(entry.path, 0, "unfinished"))
    return misplaced


# --- a topic-partition ------------------------------------------------------------------------------------------------

_numbered = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)").fullmatch
_INDEXES = (("index", Kind.INDEX), ("timeindex", Kind.TIMEINDEX), ("txnindex", Kind.TXNINDEX))


def partition_of_listing(
    found: Listing,
    topic_partition: TopicPartition | None,
    *,
    whole: bool,
    log_directory: LogDirectory | None = None,
) -> tuple[Partition, list[SourceError]]:
    """The files of a directory as a topic-partition, and the errors of what could not be read.

    The partition is `whole` only where at least one name is one that a broker gives. A folder of saved files follows no
    rules.
    """
    files = _Files()
    misplaced: list[MisplacedFile] = []
    errors: list[SourceError] = []
    for entry in found.files:
        try:
            files.add(entry, whole)
        except OSError as error:
            _report_unreadable_entry(entry, error, _kind_of(entry.name) is not None, errors, misplaced)
    state = naming.state_of(found.path)
    metadata_log = topic_partition is not None and topic_partition.topic == naming.METADATA_TOPIC
    if whole := whole and (topic_partition is not None or files.are_a_brokers):
        misplaced += orphans(files.indexes, files.numbered["log"])
        misplaced += misnamed(files.others, files.numbered["log"], state, metadata_log=metadata_log)
        for entry in found.directories:
            misplaced.append(
                MisplacedFile(entry.path, 0, "loop" if is_link_to_ancestor(entry, found.path) else "directory")
            )
    partition = Partition(
        path=found.path,
        topic_partition=topic_partition,
        whole=whole,
        segments=tuple(files.segments()),
        kraft_snapshots=tuple(
            LogFile(path, Kind.CHECKPOINT, 0, True, size)
            for path, size in sorted(files.kraft_snapshots, key=lambda file: natural(file[0]))
        ),
        producer_snapshots=tuple(
            LogFile(path, Kind.SNAPSHOT, offset, offset >= files.highest[Kind.LOG], size)
            for offset, (path, size) in sorted(files.producer_snapshots)
            if offset >= 0
        ),
        epochs=files.singles.get(Kind.EPOCHS),
        metadata=files.singles.get(Kind.PARTITION_METADATA),
        quorum_state=files.singles.get(Kind.QUORUM_STATE),
        misplaced_files=_in_order((misplaced if whole else []) + _unfinished(found)),
        state=state,
        log_directory=log_directory,
        directory_files=_directory_files(found) if whole else None,
        listing=None if whole else found,
    )
    return partition, sorted(errors, key=lambda error: natural(str(error)))


def _directory_files(found: Listing) -> DirectoryFiles | None:
    """All files of a directory, None where the status of one cannot be read.

    Takes the stamps before anything reads the files: a file that changes later has another stamp.
    """
    stamps: dict[str, Stamp] = {}
    link_sizes: dict[str, int] = {}
    for entry in (*found.files, *found.undo):
        try:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                stamps[entry.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
            elif entry.is_symlink():
                with suppress(OSError):  # a broken link is not a file for a broker either
                    if entry.is_file():
                        link_sizes[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            continue  # a broker deleted it a moment ago
        except OSError:
            return None
    return DirectoryFiles(stamps, link_sizes)


def _in_order(misplaced: list[MisplacedFile]) -> tuple[MisplacedFile, ...]:
    return tuple(sorted(misplaced, key=lambda file: natural(file.path)))


def _kind_of(name: str) -> Kind | None:
    """The kind that a file name says; None where a suffix such as .deleted is appended."""
    if naming.plain_name(name) != name:
        return None
    return naming.kind_of(name) or naming.companion_kind_of(name)


class _Files:
    """The files of a topic-partition directory by name. Names of 20 digits have tables of their own (`numbered`)."""

    def __init__(self) -> None:
        self.logs: list[tuple[int | None, Kind, PathAndSize]] = []
        self.highest = {Kind.LOG: 0, Kind.KAFKA07: 0}
        self.kraft_snapshots: list[PathAndSize] = []
        self.producer_snapshots: list[tuple[int, PathAndSize]] = []
        self.singles: dict[Kind, LogFile] = {}
        self.numbered: dict[str, dict[int, PathAndSize]] = {"log": {}, "index": {}, "timeindex": {}, "txnindex": {}}
        self.others: list[tuple[str, PathAndSize]] = []

    @property
    def are_a_brokers(self) -> bool:
        """Whether at least one name is one that a broker gives."""
        return bool(self.singles) or any(self.numbered.values())

    @property
    def indexes(self) -> list[dict[int, PathAndSize]]:
        return [self.numbered[suffix] for suffix, _ in _INDEXES]

    def add(self, entry: DirectoryEntry, everything: bool) -> None:
        """Add a file. Raises OSError. Skips a file that is not one of Kafka's, unless `everything` is set."""
        name = entry.name
        match = _numbered(name)
        if match is not None and (number := int(match[1])) < 1 << 63:
            file = entry.path, entry.stat().st_size
            if match[2] == "snapshot":
                self.producer_snapshots.append((number, file))
                return
            self.numbered[match[2]][number] = file
            if match[2] == "log":
                self._log(number, Kind.LOG, file)
            return
        kind = _kind_of(name)
        if kind is None and not everything:
            return
        file = entry.path, entry.stat().st_size
        self.others.append((name, file))
        match kind:
            case Kind.LOG | Kind.KAFKA07:
                self._log(naming.base_offset_of(name), kind, file)
            case Kind.CHECKPOINT:
                self.kraft_snapshots.append(file)
            case Kind.SNAPSHOT if (offset := naming.number_of(name)) is not None:
                self.producer_snapshots.append((offset, file))
            case Kind.EPOCHS | Kind.PARTITION_METADATA | Kind.QUORUM_STATE:
                self.singles[kind] = LogFile(entry.path, kind, None, True, file[1])

    def _log(self, base: int | None, kind: Kind, file: PathAndSize) -> None:
        self.logs.append((base, kind, file))
        if base is not None and base > self.highest[kind]:
            self.highest[kind] = base

    def segments(self) -> Iterator[Segment]:
        """The segments by base offset, those without one at the end."""
        self.logs.sort(key=lambda log: (log[0] is None, log[0] or 0, log[2][0]))
        numbered = self.numbered["log"]
        tables = list(zip(self.indexes, (kind for _, kind in _INDEXES), strict=True))
        for base, kind, (path, size) in self.logs:
            active = base is None or base >= self.highest[kind]
            log = LogFile(path, kind, base, active, size)
            if base is None or numbered.get(base, ("",))[0] != path:
                yield Segment(log)
                continue
            yield Segment(
                log,
                *(
                    None if (file := table.get(base)) is None else LogFile(file[0], its, base, active, file[1])
                    for table, its in tables
                ),
            )


# --- a log directory --------------------------------------------------------------------------------------------------


def log_directory_of_listing(found: Listing, *, whole: bool) -> tuple[LogDirectory, list[SourceError]]:
    """The files at the root of a log directory, and the errors of what could not be read."""
    errors: list[SourceError] = []
    misplaced: list[MisplacedFile] = []
    files: dict[str, LogFile] = {}
    lock = None
    for entry in found.files:
        kind = naming.companion_kind_of(entry.name) if entry.name in naming.ROOT_FILES else None
        if entry.name == naming.LOCK_FILE:
            lock = entry.path
        elif kind is not None or whole:
            try:
                size = entry.stat().st_size
            except OSError as error:
                _report_unreadable_entry(entry, error, kind is not None, errors, misplaced)
                continue
            if kind is not None:
                files[entry.name] = LogFile(entry.path, kind, None, True, size)
            elif (what := at_root(entry.name)) is not None:
                misplaced.append(MisplacedFile(entry.path, size, what))
    names, odd = _directories(found)
    directory = LogDirectory(
        path=found.path,
        whole=whole,
        offset_checkpoints={name: file for name, file in files.items() if file.kind is Kind.OFFSETS},
        meta=next((file for file in files.values() if file.kind is Kind.META_PROPERTIES), None),
        clean_shutdown=next((file for file in files.values() if file.kind is Kind.CLEAN_SHUTDOWN), None),
        has_lock_file=lock is not None,
        locked=lock is not None and is_locked(lock),
        partitions=names,
        misplaced_files=_in_order((misplaced + odd if whole else []) + _unfinished(found)),
    )
    return directory, sorted(errors, key=lambda error: natural(str(error)))


def topic_partition_in(entry: DirectoryEntry) -> TopicPartition | None:
    """Topic and partition that the name of a directory says. The form of Kafka 0.7 counts where it has files of 0.7."""
    if (topic_partition := naming.topic_partition_of(entry.name)) is not None:
        return topic_partition
    if (topic_partition := naming.topic_partition_of(entry.name, kafka07=True)) is None:
        return None
    try:
        # A listing of its own: the files of 0.7 decide whether the directory is entered.
        with entries_of(entry.path) as entries:
            return topic_partition if any(naming.kind_of(inner.name) is Kind.KAFKA07 for inner in entries) else None
    except OSError:
        return None


def _directories(found: Listing) -> tuple[tuple[TopicPartition, ...], list[MisplacedFile]]:
    """The topic-partitions that a broker loads from here, and the directories with which it does not start."""
    loaded: dict[tuple[TopicPartition, str], None] = {}
    misplaced = []
    for entry in sorted(found.directories, key=lambda entry: natural(entry.name)):
        topic_partition = topic_partition_in(entry)
        state = naming.state_of(entry.name)
        if is_link_to_ancestor(entry, found.path):
            misplaced.append(MisplacedFile(entry.path, 0, "loop"))
        elif entry.name == naming.REMOTE_INDEX_CACHE:
            continue
        elif topic_partition is None:
            misplaced.append(MisplacedFile(entry.path, 0, "partition"))
        elif (topic_partition, state) in loaded:
            misplaced.append(MisplacedFile(entry.path, 0, "duplicate"))
        elif state in ("", "future"):
            loaded[topic_partition, state] = None
    return tuple(dict.fromkeys(topic_partition for topic_partition, _ in loaded)), misplaced
