"""The scan knows the base offset of the batch before each one that is out of order, and of the last one.

A scan for a recovery divides the log where offsets can be wrong.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import SUSPECTS
from kdump.log.segment_view import OFFSETS_OUT_OF_ORDER, Stretch
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.ranges import SegmentRange
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk
from kdump.verify.scan import ScanOptions, ScanTask, scan
from support import build, damage, wrong_headers
from support.laws import examples


def test_the_base_offsets_at_breaks_are_those_of_the_headers() -> None:
    seen = 0
    for number in range(examples(200)):
        rng = random.Random(number)
        (base, data), *_ = wrong_headers.log_of(rng).items()
        log = wrong_headers.flipped(wrong_headers.flipped(data, rng), rng)
        bases = {0: NO_VALUE}
        for batch in damage.batches(log):
            bases[batch.position + batch.size] = batch.base_offset
        walk = walk_of(Kind.LOG, BytesSource(log), base_offset=base, everything=rng.random() < 0.5)
        for item in walk:
            if not isinstance(item, BatchChunk) or item.damaged:
                continue
            for index, suspect in enumerate(item.suspects()):
                wanted = NO_VALUE
                if suspect & OFFSETS_OUT_OF_ORDER:
                    wanted, seen = bases[item.row(index).position], seen + 1
                assert item.diagnosis(index).previous_base_offset == wanted, (number, SUSPECTS)
        state = walk.scanner.state()
        assert state.last_base_offset == bases[state.last_position + _size_at(log, state.last_position)], number
    assert seen > examples(200) // 2


def _size_at(log: bytes, position: int) -> int:
    return next(batch.size for batch in damage.batches(log) if batch.position == position)


def stretches(path: Path, offsets: list[int]) -> list[int]:
    """The numbers of the batches with which the stretches begin that a scan for a recovery finds."""
    batches = [build.batch([build.record(value=bytes(100))], base_offset=offset) for offset in offsets]
    path.write_bytes(b"".join(batches))
    log = LogFile(str(path), Kind.LOG, 0, True, path.stat().st_size)
    found = scan(ScanTask(SegmentRange(Segment(log)), ScanOptions(valid_segments=True)))
    assert found.view is not None
    return [item.start // len(batches[0]) for item in found.view if isinstance(item, Stretch)]


def test_the_gaps_of_a_compacted_log_divide_no_stretches(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    assert stretches(path, list(range(0, 300, 3))) == [0]
    assert stretches(path, [*range(10), *range(20, 30)]) == [0]


@pytest.mark.parametrize(
    ("step", "wrong", "starts"),
    [
        (1, 20 + (1 << 20), [0, 20, 21]),
        (1, 5, [0, 20, 21]),
        (3, 20 + (1 << 20), [0, 20, 21]),
        (3, 5, [0, 19, 20]),  # between gaps the batch before it may as well be the wrong one
    ],
    ids=["dense up", "dense down", "compacted up", "compacted down"],
)
def test_a_wrong_offset_begins_a_stretch(tmp_path: Path, step: int, wrong: int, starts: list[int]) -> None:
    offsets = list(range(0, 100 * step, step))
    offsets[20] = wrong
    assert stretches(tmp_path / f"{0:020d}.log", offsets) == starts


def test_offsets_that_are_wrong_together_are_a_stretch(tmp_path: Path) -> None:
    offsets = [*range(20), *range(5, 10), *range(25, 40)]
    assert stretches(tmp_path / f"{0:020d}.log", offsets) == [0, 20, 25]
