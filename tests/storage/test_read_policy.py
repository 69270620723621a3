"""Reading beside a broker: the rate is kept, and the page cache stays as it was."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.naming import Kind
from kdump.storage.page_cache import CHUNK_BYTES, resident_pages
from kdump.storage.partition import LogFile
from kdump.storage.read_policy import BURST_SECONDS, LEAST_BYTES, PolicySource, ReadLimit, ReadPolicy, open_file
from kdump.storage.source import FileSource
from support import disk

PAGE = mmap.PAGESIZE


class Clock:
    """A clock that only sleeping and working advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@given(st.integers(1, 1 << 32), st.lists(st.tuples(st.integers(0, 1 << 24), st.floats(0, 2)), max_size=30))
def test_the_rate_is_never_exceeded(rate: int, reads: list[tuple[int, float]]) -> None:
    clock = Clock()
    limit = ReadLimit(rate, clock, clock.sleep)
    taken = 0
    for count, pause in reads:
        limit.take(count)
        taken += count
        assert taken <= rate * (clock.now + BURST_SECONDS) * (1 + 1e-9) + 1
        clock.now += pause


def test_a_reader_that_never_pauses_gets_the_rate() -> None:
    clock = Clock()
    limit = ReadLimit(1 << 20, clock, clock.sleep)
    for _ in range(100):
        limit.take(limit.piece_bytes)
    assert clock.now == pytest.approx(100 * limit.piece_bytes / (1 << 20), abs=BURST_SECONDS)
    assert limit.piece_bytes == max(LEAST_BYTES, int((1 << 20) * BURST_SECONDS))


def test_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(os.urandom(300_001))
    clock = Clock()
    monkeypatch.setattr("kdump.storage.read_policy._limit", lambda rate: ReadLimit(rate, clock, clock.sleep))
    with PolicySource(str(path), ReadPolicy(1_000_000, keep_cache=False)) as source:
        for position, size in ((0, 300_001), (0, 400_000), (299_000, 5000), (300_001, 10), (17, 0)):
            buffer = memoryview(bytearray(size))
            count = source.readinto(position, buffer)
            assert bytes(buffer[:count]) == path.read_bytes()[position : position + size]
    assert clock.now == pytest.approx(0.601, abs=BURST_SECONDS + 0.001)


def test_without_a_policy_a_file_is_a_plain_one(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"x")
    file = LogFile(str(tmp_path / "0.log"), Kind.LOG, 0, True, 1)
    with open_file(file) as source:
        assert type(source) is FileSource
    with open_file(file, ReadPolicy(1)) as source:
        assert type(source) is PolicySource


def pages_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return resident_pages(file.fileno(), path.stat().st_size) or b""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops pages")
def test_the_page_cache_stays_as_it_was(disk_path: Path) -> None:
    path = disk_path / "0.log"
    size = 5 * CHUNK_BYTES + 5 * PAGE + 100
    with path.open("wb") as file:
        file.write(bytes(size))
        file.flush()
        disk.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
    if any(pages_of(path)):
        pytest.skip("this file system does not drop pages")
    warm = (3, 4, 700, 4098)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in warm:
            os.pread(file.fileno(), PAGE, page * PAGE)
    before = pages_of(path)
    assert all(before[page] for page in warm)
    assert sum(before) < 100
    most = 0
    with PolicySource(str(path), ReadPolicy(keep_cache=False)) as source:
        buffer = memoryview(bytearray(512 << 10))
        for position in range(0, size, len(buffer)):
            source.readinto(position, buffer)
            most = max(most, sum(pages_of(path)))
    assert pages_of(path) == before
    assert 100 < most < 4 * CHUNK_BYTES // PAGE  # a chunk, and what the kernel reads ahead
    for _ in range(10):  # where memory is short, the kernel itself takes a page now and then
        with FileSource(str(path)) as plain:
            plain.readinto(0, memoryview(bytearray(size)))
        if all(kept := pages_of(path)):
            break
    assert all(kept)
