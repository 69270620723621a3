"""The file of a manifest grows by what changed, is always right, and is one commit at the end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kdump.convert.parquet.manifest import (
    MANIFEST,
    ConversionSettings,
    ConvertedFile,
    ConvertedPartition,
    Manifest,
    manifest_bytes,
)
from kdump.convert.parquet.manifest_file import ManifestFile, read_manifest_file
from kdump.format.naming import TopicPartition
from kdump.storage.directory_handle import DirectoryHandle

EMPTY = Manifest("c0ffee", ConversionSettings(("key", "value")))


def entry(partition: int, *names: str, next_offset: int = 0) -> ConvertedPartition:
    files = tuple(ConvertedFile(f"{name}.parquet", 1, 10, 0, 0) for name in names)
    return ConvertedPartition(TopicPartition("t", partition), "t", None, next_offset, files=files)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DirectoryHandle]:
    with DirectoryHandle(str(tmp_path)) as handle:
        yield handle


def said(directory: DirectoryHandle) -> dict[int, ConvertedPartition]:
    found = read_manifest_file(directory).manifest.partitions.values()
    return {each.topic_partition.partition: each for each in found if each.topic_partition is not None}


def test_a_commit_appends_what_changed(directory: DirectoryHandle, tmp_path: Path) -> None:
    path, file = tmp_path / MANIFEST, ManifestFile(directory, EMPTY, is_whole=False)
    inode, sizes = path.stat().st_ino, [path.stat().st_size]
    for number in (3, 1, 2):
        file.replace(entry(number, f"f{number}"))
        sizes.append(path.stat().st_size)
        assert list(said(directory).values()) == [*file.manifest.partitions.values()]
    assert path.stat().st_ino == inode
    added = [after - before for before, after in pairwise(sizes)]
    assert max(added) - min(added) < 10  # the digits of checksums
    file.remove(entry(1).key)
    file.replace(entry(3, "f3", "g3"))
    assert said(directory) == {2: entry(2, "f2"), 3: entry(3, "f3", "g3")}
    assert not read_manifest_file(directory).is_whole
    file.close()
    assert read_manifest_file(directory).is_whole
    assert path.read_bytes() == manifest_bytes(file.manifest.in_order())
    before = path.stat()
    file.close()
    assert path.stat() == before


def test_a_run_goes_on_after_one_that_was_killed(directory: DirectoryHandle, tmp_path: Path) -> None:
    path, file = tmp_path / MANIFEST, ManifestFile(directory, EMPTY, is_whole=False)
    for number in range(3):
        file.replace(entry(number, f"f{number}"))
    path.write_bytes(path.read_bytes()[:-20])
    found = read_manifest_file(directory)
    assert not found.is_whole
    again = ManifestFile(directory, found.manifest, is_whole=found.is_whole)
    assert path.read_bytes() == manifest_bytes(again.manifest)
    again.replace(entry(2, "f2"))
    again.close()
    assert said(directory) == {number: entry(number, f"f{number}") for number in range(3)}


@pytest.mark.parametrize("cannot_truncate", [False, True])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_commit_that_fails(
    directory: DirectoryHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, *, cannot_truncate: bool
) -> None:
    path, file = tmp_path / MANIFEST, ManifestFile(directory, EMPTY, is_whole=False)
    file.replace(entry(1, "f1"))
    before, inode = path.read_bytes(), path.stat().st_ino
    real_write = os.write

    def fails(descriptor: int, *_: object) -> int:
        if call == "write" and _ and path.stat().st_size == len(before):
            real_write(descriptor, b"{half")
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        if cannot_truncate:
            patched.setattr(os, "ftruncate", fails)
        elif call == "fsync":
            calls = iter((fails, lambda _: None))
            patched.setattr(os, "fsync", lambda of: next(calls)(of))  # noqa: PLW0108  # another one each time
        with pytest.raises(OSError, match="no"):
            file.replace(entry(2, "f2"))
        assert list(file.manifest.partitions) == [entry(1).key]
        assert file.is_certain == (not cannot_truncate)
    assert (path.read_bytes() == before) == (not cannot_truncate)
    file.replace(entry(3, "f3"))
    assert said(directory) == {1: entry(1, "f1"), 3: entry(3, "f3")}
    assert (path.stat().st_ino == inode) == (not cannot_truncate)
    file.close()
    assert path.read_bytes() == manifest_bytes(file.manifest)


def test_a_file_that_another_process_changed_is_written_anew(directory: DirectoryHandle, tmp_path: Path) -> None:
    path, file = tmp_path / MANIFEST, ManifestFile(directory, EMPTY, is_whole=False)
    path.write_bytes(b"of another process")
    file.replace(entry(1, "f1"))
    assert path.read_bytes() == manifest_bytes(file.manifest)
