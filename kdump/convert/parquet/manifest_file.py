"""The manifest of a folder as a file: each partition is appended when it is done, and one file replaces it at the end.

A run over many partitions would write tens of gigabytes if it wrote all of them again for each one. So a commit appends
the lines of one partition, with a checksum, and syncs them; kdump.convert.parquet.manifest has the rules for readers. A
run that ends replaces the file by one commit, with a rename. A run that begins does so where the one before was killed.
The file is never longer than what was there before and two commits of each partition.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kdump.convert.parquet.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    ConvertedPartition,
    Manifest,
    PartitionKey,
    commit_bytes,
    manifest_bytes,
    partition_lines,
    removal_lines,
)
from kdump.convert.parquet.manifest_reader import CommittedManifest, read_commits
from kdump.errors import KdumpError
from kdump.kernel.crc import crc32c
from kdump.storage.directory_handle import DirectoryHandle, replace_file, write_all

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject


def read_manifest_file(directory: DirectoryHandle) -> CommittedManifest:
    """The manifest of a folder that has one. Raises KdumpError, OSError."""
    path = directory.path_of(MANIFEST)
    with directory.open(MANIFEST) as descriptor:
        if os.fstat(descriptor).st_size > MAX_MANIFEST_BYTES:
            raise KdumpError(f"{path}: the manifest is larger than {MAX_MANIFEST_BYTES} bytes")
    return read_commits(directory.read(MANIFEST), path)


class ManifestFile:
    """The manifest of a folder that this process has locked. Methods raise OSError, KdumpError.

    Where a method fails, `manifest` is what it was before. `is_certain`: the file says the same. Else a call failed in
    the middle, and the next commit writes the whole file.
    """

    def __init__(self, directory: DirectoryHandle, manifest: Manifest, *, is_whole: bool) -> None:
        """`is_whole`: the file has this manifest in one commit; else it is written."""
        self._directory = directory
        self._partitions = dict(manifest.partitions)
        self.manifest = manifest._replace(partitions=self._partitions)
        self.is_certain = True
        self._size = self._crc = 0
        self._is_one_commit = True
        self._was_cut = False
        if is_whole:
            self._set_end(directory.read(MANIFEST))
        else:
            self._write()

    def replace(self, entry: ConvertedPartition) -> None:
        """Commit what the folder has of a partition now."""
        self._commit(entry.key, entry, partition_lines(entry))

    def remove(self, of: PartitionKey) -> None:
        """Commit that the folder has nothing of a partition."""
        self._commit(of, None, removal_lines(of))

    def restore(self) -> None:
        """Make the file say what `manifest` says."""
        if not self.is_certain:
            self._write()
            self.is_certain = True

    def close(self) -> None:
        """Leave one commit."""
        if not (self.is_certain and self._is_one_commit):
            self.is_certain = False
            self.restore()

    def _commit(self, key: PartitionKey, entry: ConvertedPartition | None, lines: "Iterable[JsonObject]") -> None:
        before, may_append = self._partitions.get(key), self.is_certain
        self.is_certain = self._was_cut = False
        try:
            self._set(key, entry)
            if not (may_append and self._append(commit_bytes(lines, self._crc))):
                self._write()
        except BaseException:
            self._set(key, before)
            self.is_certain = self._was_cut
            raise
        self.is_certain = True

    def _set(self, key: PartitionKey, entry: ConvertedPartition | None) -> None:
        if entry is None:
            self._partitions.pop(key, None)
        else:
            self._partitions[key] = entry

    def _append(self, data: bytes) -> bool:
        """Append the bytes of a commit; False where another process changed the file."""
        with self._directory.open(MANIFEST, os.O_WRONLY | os.O_APPEND) as descriptor:
            if os.fstat(descriptor).st_size != self._size:
                return False
            self._is_one_commit = False
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, self._size)
                os.fsync(descriptor)
                self._was_cut = True
                raise
        self._size += len(data)
        self._crc = crc32c(data, self._crc)
        return True

    def _write(self) -> None:
        """Replace the file by one commit of all partitions."""
        data = manifest_bytes(self.manifest.in_order())
        replace_file(self._directory, MANIFEST, data)
        self._set_end(data)
        self._is_one_commit = True

    def _set_end(self, data: bytes) -> None:
        self._size, self._crc = len(data), crc32c(data)
