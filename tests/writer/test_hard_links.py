"""A copy of a log that is made of hard links, as backups make it, stays as it is when the log is written to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from kdump.storage import directory_handle
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from kdump.writer.options import KAFKA07, LogOptions
from support import build

T = 1_600_000_000_000


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def aborted(first: int) -> bytes:
    fields = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    return build.batch([build.record(b"k", b"v", timestamp=T)], base_offset=first, base_sequence=first, **fields)


def link(directory: Path, to: Path) -> dict[str, bytes]:
    to.mkdir()
    for path in directory.iterdir():
        os.link(path, to / path.name)
    return contents(to)


@pytest.mark.parametrize("magic", [2, 1, 0, KAFKA07])
def test_the_other_names_keep_their_bytes(tmp_path: Path, magic: int) -> None:
    options = LogOptions(magic=magic, segment_bytes=2000, index_interval_bytes=100)
    directory, copy, key = tmp_path / "topic-0", tmp_path / "copy", None if magic == KAFKA07 else b"k"
    with Log(directory, write=True, options=options) as log:
        for number in range(30):
            log.append([NewRecord(key, b"%d" % number * 50)])
    before = link(directory, copy)
    size = max(directory.glob("*.[lk]*[ga]")).stat().st_mtime_ns
    with Log(directory, write=True, options=options) as log:
        assert max(directory.glob("*.[lk]*[ga]")).stat().st_mtime_ns == size
        for number in range(30):
            log.append([NewRecord(key, b"new %d" % number * 50)])
    assert contents(copy) == before
    with Log(directory) as log:
        assert sum(1 for _ in log.records()) == 60
    assert not list(directory.glob("*.tmp"))


def test_a_transaction_index_too(tmp_path: Path) -> None:
    directory, copy = tmp_path / "topic-0", tmp_path / "copy"
    with Log(directory, write=True) as log:
        log.append(aborted(0))
        log.append(build.marker("ABORT", base_offset=1, producer_id=7, producer_epoch=0), assign=False)
    before = link(directory, copy)
    assert len(before[f"{0:020}.txnindex"]) == 34
    with Log(directory, write=True) as log:
        log.append(aborted(2), assign=False)
        log.append(build.marker("ABORT", base_offset=3, producer_id=7, producer_epoch=0), assign=False)
    assert contents(copy) == before
    assert len(contents(directory)[f"{0:020}.txnindex"]) == 68


def test_without_room_for_a_copy_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, copy = tmp_path / "topic-0", tmp_path / "copy"
    with Log(directory, write=True) as log:
        log.append([NewRecord(b"k", b"v")])
    before = link(directory, copy)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(directory_handle, "clone_file", full)
    with pytest.raises(KdumpError, match="no space left"):
        Log(directory, write=True)
    assert contents(copy) == before
    assert not list(directory.glob("*.tmp"))
