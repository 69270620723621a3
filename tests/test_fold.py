"""No cutting of a segment into ranges changes what is known of it in the end: a cut is a hint (kdump.fold)."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build
from build import PartSegment
from kdump.fold import RANGE_BYTES, Options, Range, Summary, fold, ranges, scan
from kdump.format.naming import Kind
from kdump.kernel.producers import Producers
from kdump.partition import LogFile, Segment
from test_producers_oracle import RANDOMS, broken, changed_indexes, step, true_indexes

LAW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


OF_THE_FIRST_RANGE = ("first_time_entry", "first_index_offset")  # for joining only


def written(directory: Path, segment: PartSegment, offsets: bytes, times: bytes) -> Segment:
    """The segment and its indexes as files."""
    stem = f"{segment.base_offset:020d}"
    files = []
    for suffix, kind, data in (
        (".log", Kind.LOG, segment.data),
        (".index", Kind.INDEX, offsets),
        (".timeindex", Kind.TIMEINDEX, times),
    ):
        path = directory / f"{stem}{suffix}"
        path.write_bytes(data)
        files.append(LogFile(str(path), kind, segment.base_offset, True, len(data)))
    return Segment(*files)


def cut(segment: Segment, cuts: list[int]) -> Summary:
    """The fold over the pieces of a segment."""
    borders = [0, *sorted({each for each in cuts if 0 < each < segment.log.size})]
    tasks = [Range(segment, start, stop, Options()) for start, stop in zip(borders, [*borders[1:], None], strict=True)]
    return fold([(task, scan(task)) for task in tasks])


def told(summary: Summary) -> dict[str, Any]:
    """What a summary says; runs of a producer may be cut into several events, which replay to the same."""
    producers = Producers(True, True)
    for events in summary.events:
        producers.replay(events)
    return {
        "findings": sorted(summary.findings, key=lambda finding: (finding.position, finding.code)),
        "counts": summary.counts,
        "entries": sorted(summary.entries),
        "entry counts": summary.entry_counts,
        "seen": {name: value for name, value in summary.seen.items() if name not in OF_THE_FIRST_RANGE},
        "producers": (producers.take(), producers.aborted(), producers.open(), producers.entries()),
        "damages": (summary.damages, summary.damaged_at, summary.tail, summary.end, summary.start),
    }


@LAW
@given(RANDOMS, st.integers(0, 2), st.data())
def test_no_cutting_changes_what_is_known(tmp_path: Path, rng: random.Random, times: int, draw: st.DataObject) -> None:
    made = build.partition(rng, batches=30, odd=rng.choice((0, 0.3)), removed=rng.choice((0, 0, 0.2)))
    at = rng.randrange(len(made))
    data = broken([made[at]], rng, times)[0]
    own = true_indexes(made[at], draw.draw(st.sampled_from((100, 300, 4096))))
    segment = written(tmp_path, data, *(changed_indexes(data, *own, rng) if rng.random() < 0.7 else own))
    cuts = draw.draw(st.lists(st.integers(0, len(data.data)), max_size=5))
    assert told(cut(segment, cuts)) == told(cut(segment, []))


@pytest.mark.parametrize(
    ("size", "slots", "count"),
    [(0, 2, 1), (1.9, 1, 1), (0.9, 2, 1), (1, 2, 2), (1, 64, 2), (3.5, 2, 4), (16, 2, 16), (16, 3, 18), (16, 6, 18)],
)
def test_the_pieces_are_of_one_size_and_as_many_for_each_worker(size: float, slots: int, count: int) -> None:
    size_bytes = int(size * RANGE_BYTES)
    segment = Segment(LogFile("0.log", Kind.LOG, 0, True, size_bytes))
    made = list(ranges(segment, Options(), slots))
    assert len(made) == count
    assert made[0].start == 0
    assert made[-1].stop is None
    assert all(left.stop == right.start for left, right in pairwise(made))
    sizes = [(size_bytes if task.stop is None else task.stop) - task.start for task in made]
    assert max(sizes) - min(sizes) < count
    if count > 1:
        assert RANGE_BYTES // 2 <= max(sizes) <= 2 * RANGE_BYTES


def test_a_time_entry_for_an_earlier_batch(tmp_path: Path) -> None:
    """An entry may stand for a batch before its own, which the walk over the right range alone does not know."""
    left, right = step(0, 0, timestamp=100), step(1, 1, timestamp=50)
    segment = written(tmp_path, PartSegment(0, left + right), b"", build.time_index((100, 1)))
    assert cut(segment, [len(left)]).entries == cut(segment, []).entries == []


def test_a_step_back_in_time_between_two_ranges(tmp_path: Path) -> None:
    """Also where the right range is scanned again, here because of its leader epoch."""
    batches = (
        build.batch([build.record(b"k", timestamp=9 * build.DAY_MS)], epoch=5),
        build.batch([build.record(b"k", timestamp=build.DAY_MS)], base_offset=1, epoch=4),
    )
    segment = written(tmp_path, PartSegment(0, b"".join(batches)), b"", b"")
    whole = told(cut(segment, []))
    assert told(cut(segment, [len(batches[0])])) == whole
    assert whole["seen"]["backs"] == 1
