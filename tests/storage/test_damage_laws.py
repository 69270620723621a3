"""Laws of the search after damage: every batch without a changed byte is found, and none inside a value is taken.

KDUMP_LAWS=all tries every damage; by default a fixed share of them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kdump.format.naming import Kind
from kdump.storage import frames, next_batch
from kdump.storage.partition import LogFile, Segment
from kdump.storage.ranges import SegmentRange
from kdump.storage.source import BytesSource, FileSource
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail, Walk
from kdump.verify.scan import ScanOptions, ScanTask, fold, scan
from support import build, nested_logs, scan_laws
from support.laws import QUICK
from support.scan_laws import SECTOR, Damage, Share, SmallLog, flips, found_batches, removed, small_logs, zeroed

ALL = os.environ.get("KDUMP_LAWS") == "all"
TIMES = 2 if QUICK else 1

DAMAGES: dict[str, tuple[Callable[[SmallLog, Share], Iterator[Damage]], int]] = {
    "a bit of a length": (partial(flips, fields=scan_laws.LENGTH), 97),
    "a bit of an offset": (partial(flips, fields=scan_laws.OFFSET), 397),
    "a bit of a magic": (partial(flips, fields=scan_laws.MAGIC), 47),
    "a page of zeros": (partial(zeroed, block=scan_laws.PAGE), 2),
    "a sector of zeros": (partial(zeroed, block=SECTOR), 5),
    "a sector less": (removed, 5),
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", DAMAGES)
def test_every_batch_without_a_changed_byte_is_found(name: str) -> None:
    make, step = DAMAGES[name]
    share = Share(1 if ALL else step * TIMES)
    tried = 0
    for log in small_logs():
        for damage in make(log, share):
            tried += 1
            assert not damage.missed(), damage.name
    assert tried > 400 // TIMES


def test_every_batch_but_two_with_a_wrong_length_or_magic_is_found() -> None:
    rng, tried, missed = random.Random("pairs"), 0, []
    for log in small_logs():
        for damage in scan_laws.neighbours(log, rng, 2000 if ALL else 15 // TIMES):
            tried += 1
            if damage.missed():
                missed.append(damage.name)
    assert not missed, "\n".join([f"{len(missed)} of {tried}", *missed[:20]])
    assert tried > 2000 // TIMES


def test_the_small_logs_have_every_magic_and_codec() -> None:
    seen = set()
    for log in small_logs():
        for position, _ in log.batches:
            magic = log.data[position + 16]
            seen.add((magic, log.data[position + (17 if magic < 2 else 22)] & 7))
    assert {(magic, codec) for magic in (0, 1) for codec in range(3)} | {(2, codec) for codec in range(5)} <= seen


def test_nothing_inside_a_value_is_taken() -> None:
    """Also no other batch is lost; what is inside is at most foreign."""
    tried, rng = 0, random.Random("values")
    for log in nested_logs.nested_logs():
        if not ALL and rng.random() > 0.05:
            continue
        outside = {batch for batch in found_batches(log.data, 0) if batch[0] != log.start}
        for built in nested_logs.damaged(log):
            if not ALL and rng.random() > 0.1:
                continue
            tried += 1
            found = found_batches(built.data, 0)
            assert not [each for each in found if log.start < each[0] < log.stop], built.name
            assert outside <= found, built.name
    assert tried > 3000


def test_two_neighbours_with_wrong_lengths_are_distinguished() -> None:
    """The checksum shows the end of each, though the batches are in values, too."""
    inner = build.batch([build.record(b"k", b"v")], base_offset=7)
    parts = [build.batch([build.record(b"k", inner + bytes(number))], base_offset=number) for number in range(5)]
    data = bytearray(b"".join(parts))
    begins = [sum(map(len, parts[:number])) for number in range(5)]
    for number in (1, 2):
        data[begins[number] + 10] ^= 4
    items = list(Walk(BytesSource(bytes(data)), base_offset=0, everything=True))
    gaps = [(item.position, item.length, item.headed) for item in items if isinstance(item, Gap)]
    assert gaps == [(begins[number], len(parts[number]), True) for number in (1, 2)]
    assert len([item for item in items if isinstance(item, ForeignBatch)]) == 2


def test_a_whole_batch_with_a_wrong_length_at_the_end_is_no_torn_one() -> None:
    parts = [build.batch([build.record(b"k", b"value")], base_offset=number) for number in range(2)]
    data = bytearray(b"".join(parts))
    data[len(parts[0]) + 9] ^= 1
    for zeros in (b"", bytes(5000)):
        items = [item for item in Walk(BytesSource(bytes(data) + zeros), base_offset=0) if isinstance(item, Gap | Tail)]
        assert (items[0].position, items[0].length) == (len(parts[0]), len(parts[1]))
        assert isinstance(items[0], Gap)
        assert [type(item) for item in items[1:]] == ([Tail] if zeros else [])


class Counted:
    """The bytes that files were read for, and that checksums went over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read = self.summed = 0
        readinto, checksum = FileSource.readinto, frames.FrameWindow._checksum

        def counting(source: FileSource, position: int, buffer: memoryview) -> int:
            count = readinto(source, position, buffer)
            self.read += count
            return count

        def summing(walk: Any, position: int, begin: int, total: int, legacy: bool) -> int:
            self.summed += total
            return checksum(walk, position, begin, total, legacy)

        monkeypatch.setattr(FileSource, "readinto", counting)
        monkeypatch.setattr(frames.FrameWindow, "_checksum", summing)


def scanned(path: Path, cuts: int) -> Any:
    size = path.stat().st_size
    segment = Segment(LogFile(str(path), Kind.LOG, 0, True, size))
    borders = [size * number // cuts for number in range(cuts)]
    tasks = [
        ScanTask(SegmentRange(segment, start, stop), ScanOptions())
        for start, stop in zip(borders, [*borders[1:], None], strict=True)
    ]
    return fold([(task, scan(task)) for task in tasks])


WHOLE = b"".join(build.batch([build.record(b"k", bytes(700))], base_offset=number) for number in range(400))


@pytest.mark.parametrize("cuts", [1, 40])
def test_a_hole_at_the_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: int) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(WHOLE)
    os.truncate(path, 20 << 30)
    with path.open("rb") as file:
        if os.lseek(file.fileno(), 1 << 30, os.SEEK_HOLE) != 1 << 30:
            pytest.skip("this file system has no holes")
    counted = Counted(monkeypatch)
    summary = scanned(path, cuts)
    assert (summary.state.batches, summary.tail, summary.end) == (400, len(WHOLE), 20 << 30)
    assert counted.read < (cuts + 2) * (1 << 20)


@pytest.mark.parametrize("cuts", [1, 40])
def test_written_zeros_are_read_a_few_times_however_a_file_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: int
) -> None:
    path = tmp_path / "0.log"
    size = len(WHOLE) + (64 << 20)
    path.write_bytes(WHOLE + bytes(64 << 20))
    counted = Counted(monkeypatch)
    summary = scanned(path, cuts)
    assert (summary.state.batches, summary.tail, summary.end) == (400, len(WHOLE), size)
    assert counted.read < 3 * size


@pytest.mark.parametrize("at", [8, 30])
def test_many_damaged_batches_cost_no_more_than_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A wrong length or a wrong byte in every twentieth batch."""
    data, batches = bytearray(WHOLE), 400
    size = len(WHOLE) // batches
    begins: list[int] = []
    position = number = 0
    while position < len(data):
        total = build.total_size(WHOLE, position)
        if number % 20 == 10:
            begins.append(position)
        position, number = position + total, number + 1
    for begin in begins:
        data[begin + at] ^= 0x10
    path = tmp_path / "0.log"
    path.write_bytes(data)
    counted = Counted(monkeypatch)
    summary = scanned(path, 1)
    assert summary.state.batches == batches - len(begins)
    assert counted.summed < len(begins) * (next_batch.SEARCH_ALLOWANCE + next_batch.FOREIGN_FACTOR * size)


def test_a_value_full_of_headers_stays_within_the_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each header claims much of the file and could be the next one."""
    lie = (900).to_bytes(8, "big") + (1 << 18).to_bytes(4, "big") + b"\0\0\0\0\2"
    outer = build.batch([build.record(None, lie * 40_000)], base_offset=400)
    data = bytearray(WHOLE + outer + bytes(30))
    data[len(WHOLE) + 30] ^= 1
    path = tmp_path / "0.log"
    path.write_bytes(data)
    monkeypatch.setattr(next_batch, "SEARCH_ALLOWANCE", 1 << 16)
    counted, began = Counted(monkeypatch), time.monotonic()
    summary = scanned(path, 1)
    assert summary.state.batches == 400
    assert counted.summed < next_batch.SEARCH_FACTOR * (len(outer) + (1 << 16)) + (1 << 22)
    assert time.monotonic() - began < 60
    items = list(Walk(BytesSource(bytes(data)), base_offset=0))
    assert [type(item) for item in items if isinstance(item, SearchLimit)] in ([], [SearchLimit])


def test_a_header_in_a_value_that_claims_what_follows_is_not_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the damaged batch is known: a frame in one of its values ends before it."""
    lie = (450).to_bytes(8, "big") + (8 << 20).to_bytes(4, "big") + b"\0\0\0\0\2"
    outer = build.batch([build.record(None, bytes(100) + lie + bytes(100))], base_offset=400)
    after = [build.batch([build.record(None, bytes(1 << 20))], base_offset=number) for number in range(401, 411)]
    data = bytearray(b"".join([WHOLE, outer, *after]))
    data[len(WHOLE) + len(outer) - 1] ^= 1
    path = tmp_path / "0.log"
    path.write_bytes(data)
    counted = Counted(monkeypatch)
    summary = scanned(path, 1)
    assert summary.state.batches == 410
    assert counted.summed < 20 << 20  # once each of those that are larger than the window
