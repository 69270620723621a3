"""The folder that Parquet files are written into: who may write there, what it has, and what becomes of it.

A run of kdump convert locks the folder, and makes a staging folder in it. There the files of a topic-partition have
temporary names until all of them are written, by this process or by any that sees the folder, also where a task runs
twice at the same time. Then one file of each gets its name, and the manifest names all of them from one moment to the
next (kdump.convert.parquet.manifest_file). The run removes the staging folder when it ends, with what it has then; a
worker that still works finds none.

What a run that was killed left has the id of the folder (in the name of its staging folder, or in its Parquet metadata)
and is not in the manifest: the next run removes it. Nothing else in the folder is ever changed.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from kdump.convert.output_file import OutputRefused, check_outside
from kdump.convert.parquet.manifest import (
    MANIFEST,
    ConversionSettings,
    ConvertedPartition,
    Manifest,
    PartitionKey,
    SourceFile,
)
from kdump.convert.parquet.manifest_file import ManifestFile, read_manifest_file
from kdump.convert.parquet.manifest_reader import CommittedManifest
from kdump.convert.parquet.writer import RUN_KEY, SUFFIX, WrittenFile, check_settings, temporary_prefix
from kdump.errors import KdumpError, SourceError, host_clause, reason
from kdump.log.log_slice import SlicedPartition
from kdump.named_tuple import NamedTuple
from kdump.recover.runs import is_among_partitions
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.file_store import absolute

LOCK: Final = "_manifest.lock"
_LEFT_BY_A_START: Final = (LOCK, f"{MANIFEST}.tmp")
"""What a first run can leave that is killed before there is a manifest."""
_REMOVALS: Final = 4
"""So many times a staging folder is emptied: a worker may still make files."""


class WrittenPartition(NamedTuple):
    """The files of a topic-partition that have temporary names, and what the manifest will say of it."""

    entry: ConvertedPartition
    files: tuple[WrittenFile, ...]


def nameless_twice(path: str, first: str) -> KdumpError:
    """The error for a second log without a name: its rows would not be told apart from those of the first."""
    return KdumpError(f"{path}: a log without a topic and a partition; so is {first}")


class StagingFolder(NamedTuple):
    """Where the files of a run are written: `name` in the folder `path`, which all workers have to see.

    `directory` is its absolute path. `run` is the id of the folder.
    """

    path: str
    name: str
    run: str
    directory: str

    @contextmanager
    def open(self) -> Iterator[DirectoryHandle]:
        """The folder, in any process. Raises KdumpError where this process does not see it."""
        try:
            with DirectoryHandle(os.path.dirname(self.directory), read_only=True) as folder:
                directory = DirectoryHandle(self.name, read_only=True, below=folder)
        except SourceError:
            where = host_clause()
            shared = "; all hosts need the file system of the output" if where else ""
            raise KdumpError(f"{self.path}: no such file or directory{where}{shared}") from None
        directory.path = self.path  # what messages name
        with directory:
            directory.inherit_attributes(directory)
            yield directory

    def complete(self, file: WrittenFile, sources: Iterable[SourceFile]) -> WrittenFile:
        """A file of the staging folder with its name in the folder, and the log files that it comes from."""
        return WrittenFile(f"{self.name}/{file.temporary}", file.file._replace(sources=tuple(sources)))


class OutputDirectory:
    """A folder of Parquet files, open for one run.

    Other processes may write files for this run (kdump.convert.parquet.run.write_part): they need `staging` and
    `settings`.
    """

    def __init__(
        self, path: str, settings: ConversionSettings, inputs: Iterable[str] = (), *, run: str | None = None
    ) -> None:
        """Open a folder, or make it. `inputs` are the paths that are read. `run` is the id of a new folder.

        Raises KdumpError, and has changed nothing then, where another run has the folder, where it is not empty and has
        no manifest, where the manifest cannot be read or has other settings, and where the folder lies inside what is
        read or in a log directory. Raises ValueError for settings that do not fit.
        """
        check_settings(settings)
        self.path = path
        self.settings = settings
        _refuse_inside(path, inputs)
        with ExitStack() as stack, self._errors():
            if not os.path.lexists(path):
                os.makedirs(path)
            self.handle = stack.enter_context(DirectoryHandle(path))
            self.handle.inherit_attributes(self.handle)  # what this process may set
            self._read()
            stack.callback(self._unlock, self._lock())
            found = self._read()  # a run that has ended since can have changed it
            if found is None:
                found = CommittedManifest(Manifest(secrets.token_hex(8) if run is None else run, settings), False)
            self._manifest_file = ManifestFile(self.handle, found.manifest, is_whole=found.is_whole)
            self._remove_leftovers()
            name = f"{temporary_prefix(self.run)}{secrets.token_hex(4)}"
            self.staging = StagingFolder(path, name, self.run, os.path.join(os.path.abspath(path), name))
            stack.callback(self._remove_staging, name)
            self.handle.make_directory(name)
            self._stack = stack.pop_all()

    @property
    def manifest(self) -> Manifest:
        """What the folder has now."""
        return self._manifest_file.manifest

    @property
    def run(self) -> str:
        """The id of the folder."""
        return self.manifest.run

    def close(self) -> None:
        """Write the manifest in one piece, and unlock the folder.

        Raises KdumpError where that fails; the manifest is right then, too.
        """
        with self._stack, self._errors():
            self._manifest_file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        with suppress(KdumpError) if error is not None else nullcontext():
            self.close()

    # ---- opening

    def _read(self) -> CommittedManifest | None:
        """The manifest; None for an empty folder. Raises KdumpError for any other folder."""
        self.handle.refuse_links(MANIFEST, *_LEFT_BY_A_START)
        names = self.handle.names()
        if MANIFEST not in names:
            others = [name for name in names if name not in _LEFT_BY_A_START]
            if others:
                raise KdumpError(f"{self.path}: it is not empty and has no {MANIFEST}, but has {others[0]}")
            return None
        found = read_manifest_file(self.handle)
        if (settings := found.manifest.settings) != self.settings:
            path = self.handle.path_of(MANIFEST)
            raise KdumpError(f"{path}: made with other settings: {_difference(settings, self.settings)}")
        return found

    def _lock(self) -> int:
        """Lock the lock file: on network file systems directories have no locks."""
        while True:
            descriptor = self.handle.open_descriptor(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                raise KdumpError(f"{self.path}: another kdump process is working here") from None
            except OSError:
                pass  # a file system without locks
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # of a run that has ended since

    def _unlock(self, descriptor: int) -> None:
        with suppress(OSError):
            self.handle.remove(LOCK)
        os.close(descriptor)

    def _remove_leftovers(self) -> None:
        """Remove the files of the folder that a run left which was killed."""
        named, removed = self.manifest.file_names(), False
        for name in self.handle.names():
            if name.startswith(temporary_prefix(self.run)):
                removed = True
                if self._is_folder(name):
                    self._remove_staging(name)
                elif self._is_file(name):
                    self.handle.remove(name)
        for name in self._parquet_files():
            if name not in named and self._run_of(name) == self.run:
                self.handle.remove(name)
                removed = True
        if removed:
            self.handle.sync()

    def _remove_staging(self, name: str) -> None:
        """Remove a staging folder. Where that fails, the next run does it."""
        with suppress(OSError, KdumpError):
            for _ in range(_REMOVALS):
                for each in self.handle.names(name):
                    self.handle.remove(f"{name}/{each}")
                if self.handle.remove_directory(name):
                    return

    def _parquet_files(self) -> Iterator[str]:
        """The names that Parquet files of this folder can have."""
        for name in self.handle.names():
            if name.endswith(SUFFIX):
                yield name
            elif self.settings.partition_folders and name.startswith("topic=") and self._is_folder(name):
                for below in self.handle.names(name):
                    folder = f"{name}/{below}"
                    if below.startswith("partition=") and self._is_folder(folder):
                        yield from (f"{folder}/{each}" for each in self.handle.names(folder) if each.endswith(SUFFIX))

    def _is_folder(self, name: str) -> bool:
        status = self.handle.stat(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _is_file(self, name: str) -> bool:
        status = self.handle.stat(name)
        return status is not None and stat.S_ISREG(status.st_mode)

    def _run_of(self, name: str) -> str | None:
        """The id of the folder that a Parquet file was written for; None for any other file."""
        if not self._is_file(name):
            return None
        try:
            with self.handle.open(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
                metadata = pq.read_metadata(file).metadata or {}
        except (OSError, pa.ArrowException):
            return None
        run = metadata.get(RUN_KEY)
        return None if run is None else run.decode("ascii", "replace")

    # ---- topic-partitions

    def entry_of(self, partition: SlicedPartition, *, rewrite: bool = False) -> ConvertedPartition | None:
        """What the folder has of a topic-partition; None for nothing, and where `rewrite` converts it anew.

        Raises KdumpError where the folder cannot have it.
        """
        of = partition.topic_partition
        entry = self.manifest.partitions.get(PartitionKey(of, partition.replica))
        _refuse_inside(self.path, [partition.path])
        if of is None and entry is not None and entry.path != absolute(partition.path):
            raise nameless_twice(partition.path, entry.path)
        unnamed = None if partition.replica is None else self.manifest.partitions.get(PartitionKey(of))
        if entry is None and unnamed is not None and unnamed.path == absolute(partition.path):
            raise KdumpError(
                f"{partition.path}: {self.path} has its rows without the path of the copy; write into a new folder"
            )
        return None if rewrite else entry

    def remove(self, temporary: Iterable[str]) -> None:
        """Remove files of this run that have temporary names."""
        for name in temporary:
            with suppress(OSError):
                self.handle.remove(name)

    def commit(self, written: WrittenPartition) -> ConvertedPartition:
        """Give the files of a topic-partition their names, and name them in the manifest; those before go.

        Raises KdumpError, and then the folder has what it had before, or will have it when the next run has begun.
        """
        entry = written.entry
        old = self.manifest.partitions.get(entry.key)
        if entry == old and not written.files:
            return entry
        before = set[str]() if old is None else {file.name for file in old.files}
        given: list[str] = []
        try:
            with self._errors(OutputRefused):
                self._give_names(written, old, before, given)
                self._manifest_file.replace(entry)
                gone = before - {file.name for file in entry.files}
                for name in gone:
                    self.handle.remove(name)
                self._sync(gone)
        except BaseException:
            self._take_back(written, given)
            raise
        return entry

    def _give_names(
        self, written: WrittenPartition, old: ConvertedPartition | None, before: set[str], given: list[str]
    ) -> None:
        """Rename the files; `given` gets the names that were given so far."""
        names = [each.file.name for each in written.files]
        for name in names:
            folder, _, _ = name.rpartition("/")
            for part in [folder.partition("/")[0], folder] if folder else []:
                self.handle.make_directory(part)
            if name not in before and self.handle.stat(name) is not None:
                raise KdumpError(f"{self.handle.path_of(name)}: another process made this file; it is kept")
        if old is not None and (replaced := before.intersection(names)):
            # Until the names have their new content, no manifest has them: what it says of a file is always right.
            kept = tuple(file for file in old.files if not file.provisional)
            if replaced.isdisjoint(file.name for file in kept):
                self._manifest_file.replace(old._replace(files=kept))
            else:
                self._manifest_file.remove(old.key)
        for each in written.files:
            self.handle.rename(each.temporary, each.file.name)
            given.append(each.file.name)
        self._sync(names)

    def _take_back(self, written: WrittenPartition, given: list[str]) -> None:
        """Remove the files of a commit that failed, as far as no manifest names them. The next run removes the rest."""
        with suppress(OSError):
            for each in written.files:
                self.handle.remove(each.temporary)
        with suppress(OSError, KdumpError):
            self._manifest_file.restore()
            # An error can come after the manifest has named them.
            if self.manifest.partitions.get(written.entry.key) is not written.entry:
                for name in given:
                    self.handle.remove(name)

    def _sync(self, names: Iterable[str]) -> None:
        """Sync the folder, and the folders of these files."""
        folders = {name.rpartition("/")[0] for name in names} - {""}
        for folder in sorted(folders | {folder.partition("/")[0] for folder in folders}):
            self.handle.sync(folder)
        self.handle.sync()

    @contextmanager
    def _errors(self, kind: type[KdumpError] = KdumpError) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise kind(f"{self.path}: {reason(error)}") from None


def _difference(old: ConversionSettings, new: ConversionSettings) -> str:
    for name, before, now in zip(old._fields, old, new, strict=True):
        if before != now:
            return f"{name} is {_shown(before)} there and {_shown(now)} here"
    raise AssertionError


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) or "empty" if isinstance(value, tuple) else str(value)


def _refuse_inside(path: str, inputs: Iterable[str]) -> None:
    """Raises KdumpError for a folder inside what is read, and for one among the topic-partitions of a broker."""
    check_outside(path, inputs)
    parent = os.path.dirname(os.path.realpath(path))
    if is_among_partitions(parent):
        raise KdumpError(
            f"{path}: {parent} is a log directory, and a broker takes everything in it for topic-partitions"
        )
