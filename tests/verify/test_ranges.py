"""No cutting of a segment into ranges changes what is known of it in the end: a cut is a hint (kdump.verify.scan)."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdump.engine.protocol import Serial
from kdump.format.naming import Kind
from kdump.kernel import crc
from kdump.kernel.producers import Producers
from kdump.storage.partition import LogFile, Segment
from kdump.storage.ranges import RANGE_SIZES, SegmentRange, cut_into_ranges
from kdump.storage.source import BytesSource
from kdump.storage.walk import Walk
from kdump.verify.checks import indexes
from kdump.verify.range_summary import RangeSummary
from kdump.verify.scan import IndexCache, ScanOptions, ScanTask, fold, scan
from kdump.verify.verify import TaskRunner, VerifyTask
from support import build
from support.build import PartSegment
from support.laws import examples
from support.partition_cases import RANDOMS, broken, changed_indexes, step, true_indexes
from support.segment_files import written

LAW = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


OF_THE_FIRST_RANGE = ("first_time_entry", "first_index_offset")  # for joining only


def cut(segment: Segment, cuts: list[int]) -> RangeSummary:
    """The fold over the pieces of a segment."""
    borders = [0, *sorted({each for each in cuts if 0 < each < segment.log.size})]
    tasks = [
        ScanTask(SegmentRange(segment, start, stop), ScanOptions())
        for start, stop in zip(borders, [*borders[1:], None], strict=True)
    ]
    return fold([(task, scan(task)) for task in tasks])


def reported(summary: RangeSummary) -> dict[str, Any]:
    """What a summary says; runs of a producer may be cut into several events, which replay to the same."""
    producers = Producers(True, True)
    for events in summary.events:
        producers.replay(events)
    return {
        "findings": sorted(summary.findings, key=lambda finding: (finding.position, finding.code)),
        "counts": summary.counts,
        "entries": sorted(summary.entries),
        "entry counts": summary.entry_counts,
        "seen": {name: value for name, value in summary.scanned._asdict().items() if name not in OF_THE_FIRST_RANGE},
        "producers": (producers.take(), producers.aborted(), producers.open(), producers.entries()),
        "damages": (summary.damages, summary.damaged_at, summary.tail, summary.end, summary.start),
    }


@LAW
@given(RANDOMS, st.integers(0, 2), st.data())
def test_no_cutting_changes_what_is_known(tmp_path: Path, rng: random.Random, times: int, draw: st.DataObject) -> None:
    built = build.partition(rng, batches=30, odd=rng.choice((0, 0.3)), removed=rng.choice((0, 0, 0.2)))
    at = rng.randrange(len(built))
    data = broken([built[at]], rng, times)[0]
    own = true_indexes(built[at], draw.draw(st.sampled_from((100, 300, 4096))))
    segment = written(tmp_path, data, *(changed_indexes(data, *own, rng) if rng.random() < 0.7 else own))
    cuts = draw.draw(st.lists(st.integers(0, len(data.data)), max_size=5))
    assert reported(cut(segment, cuts)) == reported(cut(segment, []))


@given(st.integers(0, 5 << 30), st.integers(1, 64), st.integers(0, 5 << 30))
def test_the_less_is_left_the_smaller_the_pieces(size: int, slots: int, after: int) -> None:
    segment = Segment(LogFile("0.log", Kind.LOG, 0, True, size))
    built = list(cut_into_ranges(segment, slots, after))
    assert built[0].start == 0
    assert built[-1].stop is None
    assert all(left.stop == right.start for left, right in pairwise(built))
    sizes, (least, most) = [each.size_bytes for each in built], RANGE_SIZES
    if slots == 1 or size < 2 * least:
        assert sizes == [size]
        return
    assert all(left >= right for left, right in pairwise(sizes[:-1]))
    assert all(least <= each <= most + least for each in sizes)
    left = size + after
    for each in sizes:
        # No one waits for long when the others have nothing to do any more.
        assert each <= 2 * least or each <= left // slots
        left -= each


def test_what_only_looks_like_a_batch_is_not_checksummed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range may begin inside a value in which a header claims most of the file; where no other header follows, it is
    passed over."""
    far = 1410 * 700 + 700 - 12  # from there into the zeros of another value
    lies = ((900).to_bytes(8, "big") + far.to_bytes(4, "big") + b"\0\0\0\0\2") * 20
    data = b"".join(build.batch([build.record(None, lies + bytes(1000))], base_offset=offset) for offset in range(2000))
    summed = []
    crc32c = crc.crc32c
    monkeypatch.setattr(crc, "crc32c", lambda piece, value=0: summed.append(len(piece)) or crc32c(piece, value))
    size = len(data) // 2000
    assert size == 1410
    for start in range(size * 700 + 61, size * 701, 61):
        walk = Walk(BytesSource(data), base_offset=0, start=start)
        assert walk.sync()
        assert walk.position == size * 701
    assert sum(summed) < 3 * size * len(range(size * 700 + 61, size * 701, 61))


def test_ranges_of_one_segment_read_its_indexes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build.partition(random.Random(1), batches=30)[0]
    segment = written(tmp_path, built, *true_indexes(built, 100))
    reads: list[str] = []
    taken_apart = indexes.check_structure

    def structure(file: LogFile, source: Any, newest: bool) -> Any:
        reads.append(Path(file.path).suffix)
        return taken_apart(file, source, newest)

    monkeypatch.setattr(indexes, "check_structure", structure)
    cache = IndexCache()
    for part in ((0, 100), (100, 200), (200, 300), (300, None)):
        scan(ScanTask(SegmentRange(segment, *part), ScanOptions()), cache=cache)
    assert sorted(reads) == [".index", ".timeindex"]
    assert segment.index is not None
    # Another file of the same name is read.
    Path(segment.index.path).unlink()
    Path(segment.index.path).write_bytes(b"")
    scan(ScanTask(SegmentRange(segment, 100), ScanOptions()), cache=cache)
    assert sorted(reads) == [".index", ".index", ".timeindex"]


def test_a_worker_keeps_the_indexes_of_its_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build.partition(random.Random(1), batches=30)[0]
    segment = written(tmp_path, built, *true_indexes(built, 100))
    reads: list[str] = []
    check = indexes.check_structure
    monkeypatch.setattr(indexes, "check_structure", lambda *given: reads.append(given[0].path) or check(*given))
    tasks = [
        VerifyTask(ScanTask(SegmentRange(segment, *part), ScanOptions()))
        for part in ((0, 100), (100, 200), (200, None))
    ]
    assert len(list(Serial().map(TaskRunner(), tasks))) == 3
    assert len(reads) == 2


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
    whole = reported(cut(segment, []))
    assert reported(cut(segment, [len(batches[0])])) == whole
    assert whole["seen"]["backs"] == 1
