"""Reading beside a broker: --io-limit and --drop-cache."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from kdump.cli import run
from kdump.storage.page_cache import resident_pages
from kdump.storage.read_policy import PolicySource, ReadLimit, ReadPolicy
from kdump.storage.source import FileSource
from support import build, disk
from support.command_runs import unwatched


@pytest.fixture
def log_directory(disk_path: Path) -> Path:
    """A log directory with one segment of 1 MiB, of which nothing is in the page cache."""
    directory = disk_path / "data" / "topic-0"
    directory.mkdir(parents=True)
    (disk_path / "data" / "meta.properties").write_text("version=1\n")
    (disk_path / "data" / ".lock").touch()
    value = os.urandom(16 << 10)
    batches = [build.batch([build.record(b"k", value)], base_offset=offset) for offset in range(64)]
    path = directory / "00000000000000000000.log"
    with path.open("wb") as file:
        file.write(build.segment(*batches))
        file.flush()
        disk.fsync(file.fileno())
        if sys.platform == "linux":
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return disk_path / "data"


def cached_pages(directory: Path) -> int:
    path = directory / "topic-0" / "00000000000000000000.log"
    with path.open("rb") as file:
        return sum(resident_pages(file.fileno(), path.stat().st_size) or b"")


@pytest.mark.parametrize("command", ["verify", "stat"])
def test_a_rate_changes_the_time_and_nothing_else(kdump: Any, log_directory: Path, command: str) -> None:
    more = ("--by", "partition") if command == "stat" else ()  # a row of a log directory says how full the disk is
    plain = kdump.inside(command, *more, "--jobs", "1", str(log_directory))
    began = time.monotonic()
    slow = kdump.inside(command, *more, "--jobs", "1", "--io-limit", "4m", str(log_directory))
    assert (slow.status, slow.out) == (plain.status, plain.out)
    assert time.monotonic() - began >= (1 << 20) / (4 << 20) - 0.1
    assert kdump.inside(command, "--io-limit", "fast", str(log_directory)).status == 2


@pytest.mark.parametrize("options", [("verify",), ("verify", "--deep"), ("stat",), ("stat", "--deep")])
def test_each_byte_counts_once_against_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Else the rate would be lower than was asked for."""
    batch = build.batch([build.record(b"k", os.urandom(8 << 10))])
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(struct.pack(">q", at) + batch[8:] for at in range(500)))
    taken: list[int] = []
    monkeypatch.setattr(ReadLimit, "take", lambda self, count: taken.append(count))
    assert run([*options, "--jobs", "1", "--io-limit", "1m", "--no-progress", str(path)]) < 2
    assert 1 <= sum(taken) / path.stat().st_size < 1.1
    assert max(taken) <= (1 << 20) + len(batch)


@pytest.mark.parametrize("to", ["parquet", "csv", "log"])
def test_a_conversion_reads_nothing_beside_the_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    """Nor what decides the order of the logs, their transactions and their copies."""
    log = [
        build.batch([build.record(b"k", b"v" * 500)] * 10, base_offset=10 * at, producer_id=1, producer_epoch=0,
                    base_sequence=10 * at, transactional=True)
        for at in range(9)
    ]  # fmt: skip
    log.append(build.marker("COMMIT", base_offset=90, producer_id=1))
    damaged = bytearray(b"".join(log))
    damaged[7000] ^= 1
    for name, data in (("a", bytes(damaged)), ("b", b"".join(log)), ("c", b"".join(reversed(log)))):
        path = tmp_path / "logs" / name / ("other-0" if name == "c" else "t-0") / f"{0:020}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    opened: list[str] = []
    limited: list[str] = []
    begin, begin_limited = FileSource.__init__, PolicySource.__init__

    def watched(self: FileSource, path: str) -> None:
        if path.endswith(".log") and str(tmp_path / "logs") in path:
            opened.append(path)
        begin(self, path)

    def watched_limited(self: PolicySource, path: str, policy: ReadPolicy) -> None:
        assert policy.bytes_per_second == 100 << 20
        limited.append(path)
        begin_limited(self, path, policy)

    monkeypatch.setattr(FileSource, "__init__", watched)
    monkeypatch.setattr(PolicySource, "__init__", watched_limited)
    place = tempfile.mkdtemp(dir=tmp_path)
    how = "--to", to, "-o", f"{place}/out", "--jobs", "1", "--io-limit", "100m", "--no-progress"
    assert run(["convert", *how, str(tmp_path / "logs")]) < 2
    assert opened
    assert opened == limited


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops pages")
@pytest.mark.parametrize("command", ["verify", "stat"])
def test_the_page_cache_beside_a_broker(
    kdump: Any, log_directory: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(type(kdump), "watched", unwatched)  # which reads the files too
    if cached_pages(log_directory):
        pytest.skip("this file system does not drop pages")
    with (log_directory / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)  # as a broker does; a lock of the same process would not be seen
        assert kdump(command, "--jobs", "1", str(log_directory)).status < 2
        assert cached_pages(log_directory) == 0
        assert kdump(command, "--jobs", "1", "--keep-cache", str(log_directory)).status in (
            0,
            1,
        )  # verify misses an index
        assert cached_pages(log_directory) > 200


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops pages")
@pytest.mark.parametrize("command", ["verify", "stat"])
def test_the_page_cache_without_a_broker(
    kdump: Any, log_directory: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(type(kdump), "watched", unwatched)  # which reads the files too
    if cached_pages(log_directory):
        pytest.skip("this file system does not drop pages")
    assert kdump.inside(command, "--drop-cache", str(log_directory)).status < 2
    assert cached_pages(log_directory) == 0
    assert kdump.inside(command, str(log_directory)).status < 2
    assert cached_pages(log_directory) > 200
