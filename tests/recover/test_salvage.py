"""What a salvage keeps: laws over damages of directories that brokers wrote and of made ones, and what becomes of
transactions that lose their markers."""

from __future__ import annotations

import random
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.naming import Kind, TopicPartition
from kdump.log.offset_order import in_order
from kdump.log.ranges import UNKNOWN_END, OffsetRange
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.recover.plan import SALVAGE, Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import plan_recovery
from kdump.recover.recover import recover_logs
from kdump.recover.salvage.plan import conflict_sentence, undecided_sentence
from kdump.recover.salvage.result import SalvageResult
from kdump.storage.discovery import discover
from kdump.storage.partition import LogFile, Segment
from kdump.storage.pieces import Piece
from support import build, damage, damage_partition, directories, oracle, oracle_partition
from support.damage import NotApplicable
from support.directories import Writer
from support.laws import examples, sampled
from support.salvage_oracle import (
    Own,
    batches_in,
    certain,
    contradict,
    files,
    inside,
    most_in_order,
    predicted,
    results,
    salvaged,
    valid,
    written,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SMALL = 60_000
HARMFUL = frozenset({"control/structure", "txn/state", "txn/open", "legacy/wrapper"})
"""Why a batch in its place may have to go."""


def broker_built() -> list[Path]:
    """Small topic-partition directories that brokers wrote."""
    found = {path.parent for path in FIXTURES.rglob("*.log")}
    return sorted(place for place in found if sum(path.stat().st_size for path in place.glob("*.log")) < SMALL)


def sentences_of(found: SalvageResult) -> list[str]:
    return [undecided_sentence(one, TopicPartition("topic", 7)) for one in found.undecided]


# --------------------------------------------------------------------------------------------------------------------
# laws


def broken_laws(directory: Path, room: Path) -> Iterator[str]:
    """What is not as it should be about the salvage of a directory."""
    logs = files(directory)
    found = salvaged(directory)
    after = results(directory, found)
    kept = list(valid(after))
    if b"".join(own.data for own in kept) != b"".join(after.values()):
        yield "something was kept that is not a batch"
    yield from _tiles(logs, found)
    yield from (f"{left.first} before {right.first}" for left, right in pairwise(kept) if contradict(left, right))
    had, have = Counter(own.data for own in valid(logs)), Counter(own.data for own in kept)
    if have - had:
        yield "a batch was made, or doubled"
    harmful = sum(batches_in(logs, piece) for piece, code in found.dropped.items() if code in HARMFUL)
    lost = [own for own in certain(logs) if own.data not in have]
    if len(lost) > harmful:
        yield (
            f"{len(lost)} batches lost, of which {harmful} are harmful: "
            f"{[(own.file, own.batch.position) for own in lost[:3]]}"
        )
    by_epoch = any(clash.by == "epoch" for clash in found.conflicts)
    if len(kept) + harmful < most_in_order([own for own in valid(logs) if inside(own, logs)]) and not by_epoch:
        yield f"{len(kept)} batches kept, more would do"
    yield from _loads(after)
    if after:
        again = salvaged(written(room / directory.name, after, dict(found.transaction_indexes)))
        if again.dropped or results(room / directory.name, again) != after:
            yield f"a second salvage changes {again.dropped} {[segment.base_offset for segment in again.segments]}"


def _tiles(logs: dict[str, bytes], found: SalvageResult) -> Iterator[str]:
    for name, data in logs.items():
        kept = [(piece.start, piece.stop) for log in found.segments for piece in log.pieces if piece.name == name]
        at = 0
        for start, stop in sorted([*kept, *((one.start, one.stop) for one in found.dropped if one.name == name)]):
            if start != at:
                yield f"{name}: nothing is said of {at} to {start}"
            at = stop
        if at != len(data):
            yield f"{name}: nothing is said of {at} to {len(data)}"


def _loads(after: dict[str, bytes]) -> Iterator[str]:
    if not after:
        return
    outcome = predicted(after)
    changes = (outcome.truncations, outcome.emptied_logs, outcome.split_segments, outcome.deleted_files)
    if outcome.refusals or any(changes):
        yield f"a broker makes something else of it: {outcome.refusals} {changes}"
    end = max([*(own.last + 1 for own in valid(after)), *(int(name[:20]) for name in after)])
    if outcome.log_end_offset != end:
        yield f"the log ends at {outcome.log_end_offset}, its batches at {end}"


CUTTING = frozenset(
    {
        *(
            "truncate",
            "truncate-in-header",
            "zeroed-end",
            "zeroed-page",
            "empty-log",
            "removed-batch",
            "rotated-batches",
        ),
        *("missing-segment", "missing-log", "overflow-tail"),
    }
)
"""Damages that leave less than all but one batch."""


@pytest.mark.laws
def test_one_damage_costs_one_batch(tmp_path: Path) -> None:
    """What a damage left of the batches that a broker wrote is kept, but for one that it moved or contradicts."""
    names = [
        name for name in sorted(damage_partition.DAMAGES) if name not in CUTTING and name[:3] not in ("odd", "lef")
    ]
    places, wrong = broker_built(), []
    for number in range(examples(800)):
        rng = random.Random(number)
        place, name = rng.choice(places), rng.choice(names)
        directory = tmp_path / place.name
        shutil.copytree(place, directory)
        before = [own.data for own in valid(files(directory))]
        try:
            damage_partition.apply(name, directory, rng)
        except NotApplicable:
            shutil.rmtree(directory)
            continue
        left = b"\xff\0".join(files(directory).values())
        after = {own.data for own in valid(results(directory, salvaged(directory)))}
        lost = [data for data in before if data in left and data not in after]
        if len(lost) > 1:
            wrong.append(f"{number} {place.relative_to(FIXTURES)} {name}: {len(lost)} of {len(before)}")
        shutil.rmtree(directory)
    assert not wrong, "\n".join(wrong)


def assert_agreed(wrong: dict[str, list[str]], runs: int, at_least: int) -> None:
    assert not wrong, "\n".join(f"{name}: {problem}" for name, problems in wrong.items() for problem in problems[:3])
    assert runs >= at_least


@pytest.mark.laws
@pytest.mark.daily(2)
@pytest.mark.parametrize("times", [1, 3])
def test_damaged_directories_of_brokers(tmp_path: Path, times: int) -> None:
    wrong, runs = {}, 0
    places = broker_built()
    for number in range(examples(400) // times):
        rng = random.Random(f"{number} {times}")
        place, names = rng.choice(places), []
        directory = tmp_path / place.name
        shutil.copytree(place, directory)
        for _ in range(times):
            names.append(rng.choice(sorted(damage_partition.DAMAGES)))
            try:
                damage_partition.apply(names[-1], directory, rng)
            except NotApplicable:
                names.pop()
        if names and files(directory):
            runs += 1
            if problems := list(broken_laws(directory, tmp_path / "again")):
                wrong[f"{number} {place.relative_to(FIXTURES)} {names}"] = problems
        shutil.rmtree(directory)
    assert_agreed(wrong, runs, examples(300) // times)


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", sorted(damage.DAMAGES))
def test_every_damage_of_a_segment(tmp_path: Path, name: str) -> None:
    wrong: dict[str, list[str]] = {}
    for number in range(3):
        rng = random.Random(f"{name} {number}")
        segments = build.partition(rng, batches=14, odd=rng.choice((0, 0.2)), removed=rng.choice((0, 0.3)))
        logs = {segment.base_offset: segment.data for segment in segments}
        base = rng.choice(sorted(logs))
        logs[base] = damage.damage(logs[base], rng, names=(name,))
        directory = written(tmp_path / "p-0", {f"{base:020d}.log": data for base, data in logs.items()})
        if problems := list(broken_laws(directory, tmp_path / "again")):
            wrong[f"{name} {number}"] = problems
    assert_agreed(wrong, 0, 0)


@pytest.mark.laws
def test_any_bytes(tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    for number in range(examples(300)):
        rng = random.Random(number)
        segments = build.partition(rng, batches=25, removed=rng.choice((0, 0, 0.3)))
        logs = {}
        for segment in segments:
            data = bytearray(segment.data)
            for _ in range(rng.choice((0, 1, 4)) if data else 0):
                at = rng.randrange(len(data))
                match rng.randrange(4):
                    case 0:
                        data[at] ^= 1 << rng.randrange(8)
                    case 1:
                        data[at : at + rng.randrange(100)] = rng.randbytes(rng.randrange(100))
                    case 2:
                        data[at : at + 60] = bytes(60)
                    case _:
                        del data[at : at + rng.randrange(1, 200)]
                if not data:
                    break
            logs[f"{segment.base_offset:020d}.log"] = bytes(data)
        directory = written(tmp_path / "p-0", logs)
        if problems := list(broken_laws(directory, tmp_path / "again")):
            wrong[str(number)] = problems
    assert_agreed(wrong, 0, 0)


def test_a_sound_partition_stays_as_it_is() -> None:
    runs = 0
    for place in broker_built():
        if place.name == "preallocated-0":
            continue
        logs = files(place)
        if not logs:
            continue
        found = salvaged(place)
        assert results(place, found) == logs, place
        whole = [
            PlannedSegment(int(name[:20]), (Piece(name, 0, len(data)),) if data else (), True, False)
            for name, data in logs.items()
        ]
        assert found._replace(names=(), right_indexes=(), valid_segments={}) == SalvageResult(tuple(whole)), place
        runs += 1
    assert runs > 100


# -------------------------------------------------------------------------------------------------------------------
# places


def run(first: int, count: int, *, epoch: int = 0, value: bytes = b"v", **how: object) -> bytes:
    """Batches of one record each."""
    return b"".join(
        build.batch([build.record(b"k", value)], base_offset=first + number, epoch=epoch, **how)  # type: ignore[arg-type]
        for number in range(count)
    )


def offsets(logs: dict[str, bytes]) -> list[list[int]]:
    found: dict[str, list[int]] = {name: [] for name in logs}
    for own in valid(logs):
        found[own.file].append(own.first)
    return list(found.values())


def kept(directory: Path, *segments: tuple[int, bytes]) -> tuple[SalvageResult, dict[str, bytes]]:
    written(directory, {f"{base:020d}.log": data for base, data in segments})
    found = salvaged(directory)
    return found, results(directory, found)


ONE = len(run(0, 1))


def test_a_damaged_batch_alone_goes(tmp_path: Path) -> None:
    data = bytearray(run(0, 10))
    data[4 * ONE + 64] ^= 1
    found, after = kept(tmp_path / "p-0", (0, bytes(data)), (10, run(10, 3)))
    assert offsets(after) == [[0, 1, 2, 3, 5, 6, 7, 8, 9], [10, 11, 12]]
    assert found.segments[0].pieces == (
        Piece("00000000000000000000.log", 0, 4 * ONE),
        Piece("00000000000000000000.log", 5 * ONE, 10 * ONE),
    )
    assert found.dropped == {Piece("00000000000000000000.log", 4 * ONE, 5 * ONE): "batch/crc"}
    assert [log.rebuilds_companions for log in found.segments] == [True, False]


@pytest.mark.parametrize("offset", [0, 2, 7, 500])
def test_an_offset_that_lies_costs_one_batch(tmp_path: Path, offset: int) -> None:
    data = run(0, 5) + build.batch([build.record(b"k", b"v")], base_offset=offset) + run(6, 20)
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(5), *range(6, 26)]]
    (clash,) = found.conflicts
    assert clash.dropped.batches == 1
    assert (clash.dropped.first, clash.dropped.start) == (offset, 5 * ONE)
    assert [piece.stop - piece.start for piece in found.dropped] == [ONE]


@pytest.mark.parametrize("epoch", [1, 900_000, -5])
def test_a_leader_epoch_that_lies_costs_no_batch(tmp_path: Path, epoch: int) -> None:
    """No checksum covers it. A broker loads such a log, and a truncation leaves all of it."""
    data = run(0, 5, epoch=3) + run(5, 1, epoch=epoch) + run(6, 20, epoch=3)
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(26)]]
    assert not found.dropped
    assert not found.conflicts


def test_a_leader_epoch_that_lies_beside_an_offset_that_lies_costs_one_batch(tmp_path: Path) -> None:
    """What follows is no rest of an older write."""
    data = run(0, 5, epoch=3) + run(5, 1, epoch=900) + run(5, 1, epoch=3, value=b"w") + run(7, 20, epoch=3)
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(6), *range(7, 27)]]
    assert [clash.dropped.batches for clash in found.conflicts] == [1]


def test_of_two_runs_the_one_of_the_higher_leader_epoch_stays(tmp_path: Path) -> None:
    data = run(0, 20, epoch=1) + run(12, 3, epoch=2, value=b"w")
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(15)]]
    assert [own.epoch for own in valid(after)] == [1] * 12 + [2] * 3
    (clash,) = found.conflicts
    assert (clash.by, clash.kept.first_epoch, clash.dropped.first_epoch) == ("epoch", 2, 1)
    assert (clash.dropped.first, clash.dropped.last, clash.dropped.batches) == (12, 19, 8)


def test_an_old_copy_after_the_log_goes(tmp_path: Path) -> None:
    data = run(0, 5, epoch=5) + run(2, 40, epoch=3, value=b"w")
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(5)]]
    assert [clash.by for clash in found.conflicts] == ["epoch"]


def test_of_two_equal_runs_the_earlier_stays(tmp_path: Path) -> None:
    data = run(0, 5) + run(3, 2, value=b"w") + run(5, 3)
    found, after = kept(tmp_path / "p-0", (0, data))
    assert offsets(after) == [[*range(8)]]
    assert results(tmp_path / "p-0", found)["00000000000000000000.log"] == run(0, 8)
    assert [clash.by for clash in found.conflicts] == ["position"]


def order(directory: Path, *batches: tuple[int, int] | tuple[int, int, int]) -> tuple[list[tuple[int, int]], list[str]]:
    """First offset and count of the batches that stay of these (and their leader epochs), and what decided."""
    data = b"".join(
        build.batch([build.record(b"k", b"%d" % number)] * count, base_offset=first, epoch=next(iter(epoch), 0))
        for number, (first, count, *epoch) in enumerate(batches)
    )
    found, after = kept(directory, (0, data))
    return [(own.first, own.last - own.first + 1) for own in valid(after)], [clash.by for clash in found.conflicts]


def test_the_fewest_batches_go(tmp_path: Path) -> None:
    """Of runs through one another, too: what is kept is the longest chain of all."""
    lies = (0, 1), (1, 1), (20, 1), (3, 1), (30, 1), (5, 1), (40, 1), (7, 1), (8, 1)
    assert order(tmp_path / "p-0", *lies)[0] == [(0, 1), (1, 1), (3, 1), (5, 1), (7, 1), (8, 1)]
    rows = (0, 1), (9, 1), (10, 1), (11, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (12, 1)
    assert order(tmp_path / "p-0", *rows)[0] == [(0, 1), *((offset, 1) for offset in range(4, 10)), (12, 1)]


def test_of_as_many_those_go_that_count_the_offsets_of_their_hole(tmp_path: Path) -> None:
    assert order(tmp_path / "p-0", (500, 1), (1, 1)) == ([(1, 1)], ["hole"])
    assert order(tmp_path / "p-0", (0, 2), (9, 3), (5, 4)) == ([(0, 2), (5, 4)], ["hole"])
    assert order(tmp_path / "p-0", (0, 2), (7, 4), (6, 3)) == ([(0, 2), (6, 3)], ["hole"])


def test_of_as_many_the_one_that_a_flipped_bit_explains_goes(tmp_path: Path) -> None:
    """A bit makes 33 of 41, but of 38 nothing between 41 and 45."""
    assert order(tmp_path / "p-0", (20, 1), (41, 1), (38, 1), (45, 1)) == ([(20, 1), (38, 1), (45, 1)], ["bits"])
    assert order(tmp_path / "p-0", (5, 1), (10, 1), (7, 1), (26, 1)) == ([(5, 1), (10, 1), (26, 1)], ["bits"])


def test_of_as_many_those_stay_that_the_companions_agree_with(tmp_path: Path) -> None:
    """Else the earlier ones; the report names both."""
    data = run(0, 1) + run(200, 1) + run(150, 1)
    log, index, timeindex = (f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))
    companions = {
        "nothing": {},
        "an offset index": {index: build.offset_index((150, 2 * ONE))},
        "an offset index of before 2.0": {index: build.offset_index((100, ONE))},
        "a snapshot": {f"{151:020d}.snapshot": build.producer_snapshot()},
        "the next segment": {f"{151:020d}.log": b""},
        "damaged ones": {index: b"\xff" * 20, timeindex: b"\1" * 13, f"{7:020d}.snapshot": b"\0\1"},
    }
    for what, files_beside in companions.items():
        directory = written(tmp_path / "p-0", {log: data}, files_beside)
        found = salvaged(directory)
        (clash,) = found.conflicts
        stays = 200 if what in ("nothing", "damaged ones") else 150
        assert offsets(results(directory, found))[0] == [0, stays], what
        assert clash.by == ("position" if stays == 200 else "support"), what
        assert {clash.kept.first, clash.dropped.first} == {150, 200}
        assert "offsets 150-150" in conflict_sentence(clash, found.names)
        assert "offsets 200-200" in conflict_sentence(clash, found.names)


def test_one_batch_of_a_higher_leader_epoch_at_the_end_does_not_replace_many(tmp_path: Path) -> None:
    """A log is truncated at a change of leaders; but one offset can be wrong."""
    rows = [(offset, 1, 1) for offset in range(12)]
    assert order(tmp_path / "p-0", *rows, (4, 1, 2)) == ([(offset, 1) for offset in range(12)], ["batches"])
    assert order(tmp_path / "p-0", *rows, (11, 1, 2)) == ([(offset, 1) for offset in range(12)], ["epoch"])
    found, why = order(tmp_path / "p-0", *rows, (4, 1, 2), (5, 1, 2))
    assert (found, why) == ([(offset, 1) for offset in range(6)], ["epoch"])


@pytest.mark.parametrize("lies", [1, 40, 5000])
def test_many_batches_and_lies_take_no_long_time(lies: int) -> None:
    spans = [BatchSpan(0, 100 * at, 100, 2, at, at, 0, 0, -1, -1, 0, -1) for at in range(20_000)]
    for number in range(lies):
        at = 19_000 // lies * number + 1
        spans[at] = spans[at]._replace(first=30_000 - number, last=30_000 - number)
    began = time.process_time()
    segment = Segment(LogFile("", Kind.LOG, 0, False, 2_000_000))
    found = in_order([SegmentBatches(0, segment, spans, actual_base_offset=0)], lambda _: 0)
    assert [batch.position for batch, _ in found.dropped] == [
        span.position for span in spans if span.first != span.position // 100
    ]
    assert time.process_time() - began < 10  # the square would be minutes


def test_what_belongs_to_the_next_segment_goes(tmp_path: Path) -> None:
    found, after = kept(tmp_path / "p-0", (0, run(0, 14, value=b"w")), (10, run(10, 5)))
    assert offsets(after) == [[*range(10)], [*range(10, 15)]]
    assert [*found.dropped.values()] == ["segment/overlap"]


@pytest.mark.parametrize("name", [5, 11, 12, 2000])
def test_a_segment_with_a_wrong_name_gets_the_offset_of_its_first_batch(tmp_path: Path, name: int) -> None:
    found, after = kept(tmp_path / "p-0", (0, run(0, 10)), (name, run(10, 5)))
    assert list(after) == ["00000000000000000000.log", "00000000000000000010.log"]
    assert offsets(after) == [[*range(10)], [*range(10, 15)]]
    assert not found.dropped


def test_a_segment_whose_name_lies_after_others_is_put_in_order(tmp_path: Path) -> None:
    found, after = kept(tmp_path / "p-0", (0, run(0, 10)), (1010, run(10, 5)), (15, run(15, 5)))
    assert offsets(after) == [[*range(10)], [*range(10, 15)], [*range(15, 20)]]
    assert list(after) == [f"{base:020d}.log" for base in (0, 10, 15)]
    found, after = kept(tmp_path / "p-0", (0, run(0, 10)), (10, run(3, 1) + run(11, 4)), (15, run(7, 1)))
    assert offsets(after) == [[*range(10)], [*range(11, 15)], []]
    assert [*found.dropped.values()] == ["offset/range"] * 2


def test_segments_that_have_one_anothers_names_get_their_own_back(tmp_path: Path) -> None:
    """Compacted ones, too, which do not begin at their names; and a lie in one of them costs one batch."""
    names = [f"{base:020d}.log" for base in (0, 5, 10)]
    found, after = kept(tmp_path / "p-0", (0, run(5, 5)), (5, run(0, 5)), (10, run(10, 3)))
    assert list(after) == names
    assert offsets(after) == [[*range(5)], [*range(5, 10)], [10, 11, 12]]
    assert not found.dropped
    found, after = kept(tmp_path / "p-0", (0, run(7, 3)), (5, run(2, 2)), (10, run(10, 3)))
    assert (list(after), offsets(after)) == (names, [[2, 3], [7, 8, 9], [10, 11, 12]])
    found, after = kept(tmp_path / "p-0", (0, run(0, 5)), (5, run(10, 5)), (10, run(5, 2) + run(3, 1) + run(8, 2)))
    assert (list(after), offsets(after)) == (names, [[*range(5)], [5, 6, 8, 9], [*range(10, 15)]])
    assert [piece.stop - piece.start for piece in found.dropped] == [ONE]


def test_a_segment_of_which_nothing_is_left_stays_as_a_name(tmp_path: Path) -> None:
    _, after = kept(tmp_path / "p-0", (0, run(0, 5)), (5, b"\1" * 500), (8, run(8, 3)), (11, b"\2" * 300))
    assert [len(data) for data in after.values()] == [5 * ONE, 0, 3 * ONE, 0]
    assert predicted(after).log_end_offset == 11


def test_an_empty_segment_inside_another_goes(tmp_path: Path) -> None:
    _, after = kept(tmp_path / "p-0", (0, run(0, 10)), (5, b""), (10, b""))
    assert list(after) == ["00000000000000000000.log", "00000000000000000010.log"]


def test_a_segment_that_no_index_can_hold_is_split(tmp_path: Path) -> None:
    far = 2**31 + 10
    found, after = kept(tmp_path / "p-0", (0, run(0, 5) + run(far, 3)))
    assert offsets(after) == [[*range(5)], [*range(far, far + 3)]]
    assert [log.base_offset for log in found.segments] == [0, far]


def test_one_batch_alone_does_not_move_the_end_of_a_log_that_far(tmp_path: Path) -> None:
    found, after = kept(tmp_path / "p-0", (0, run(0, 5) + run(2**40, 1)))
    assert offsets(after) == [[*range(5)]]
    assert [*found.dropped.values()] == ["offset/range"]


def test_a_batch_inside_a_value_is_never_taken(tmp_path: Path) -> None:
    outer = bytearray(build.batch([build.record(b"k", run(7, 3))], base_offset=5))
    outer[100] ^= 1  # in the first of the inner batches
    found, after = kept(tmp_path / "p-0", (0, run(0, 5) + bytes(outer) + run(6, 2)))
    assert offsets(after) == [[0, 1, 2, 3, 4, 6, 7]]
    outer[8] = 0x7F
    found, after = kept(tmp_path / "p-0", (0, run(0, 5) + bytes(outer) + run(6, 2)))
    assert 6 in offsets(after)[0] or found.dropped


# ------------------------------------------------------------------------------------------------------------
# transactions


class Spoilt(NamedTuple):
    """A partition whose producers wrote transactions, and some of its bytes are spoilt."""

    directory: Path
    aborted: frozenset[bytes]
    committed: frozenset[bytes]


def histories(rng: random.Random) -> Writer:
    """Transactions of three producers, one through the other, of single batches, in segments."""
    writer = Writer()
    busy: dict[int, int] = {}
    sequences: Counter[int] = Counter()
    for _ in range(rng.randrange(20, 60)):
        producer = rng.randrange(1, 4)
        if producer in busy and rng.random() < 0.4:
            writer.end(rng.choice(("ABORT", "COMMIT")), producer)
            del busy[producer]
        elif rng.random() < 0.05 and writer.logs[writer.base]:
            writer.roll()
        else:
            busy[producer] = 1
            writer.add(
                build.batch(
                    [build.record(b"%d" % producer, b"%d" % writer.offset)],
                    base_offset=writer.offset,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences[producer],
                    transactional=True,
                    epoch=writer.epoch,
                )
            )
            sequences[producer] += 1
    return writer


def spoil(directory: Path, writer: Writer, picks: Callable[[Own], bool], *, index: bool = True) -> Spoilt:
    """The directory of the history with the batches that `picks` chooses spoilt; without its transaction indexes where
    they are not wanted."""
    built = directories.partition(writer.logs)
    logs = {name: data for name, data in built.items() if name.endswith(".log") and isinstance(data, bytes)}
    fates: dict[int, list[bytes]] = {}
    aborted, committed = set[bytes](), set[bytes]()
    for own in valid(logs):
        marker = oracle_partition.marker_of(logs[own.file], own.batch)
        if marker is None:
            fates.setdefault(own.batch.producer_id, []).append(own.data)
        else:
            (aborted if own.data[61 + 8 :].find(b"\0\0\0\0") == 0 or _aborts(own) else committed).update(
                fates.pop(own.batch.producer_id, [])
            )
    for own in list(valid(logs)):
        if picks(own):
            data = bytearray(logs[own.file])
            data[own.batch.position + 61] ^= 0xFF
            data[own.batch.position + 17] ^= 0xFF
            logs[own.file] = bytes(data)
    indexes = {
        name: data for name, data in built.items() if index and name.endswith(".txnindex") and isinstance(data, bytes)
    }
    return Spoilt(written(directory, logs, indexes), frozenset(aborted), frozenset(committed))


def _aborts(own: Own) -> bool:
    (record,) = oracle.records(own.data)
    return record.key is not None and record.key[2:4] == b"\0\0"


def entries_of(indexes: Sequence[bytes]) -> list[tuple[int, int, int, int]]:
    """Producer, first offset, marker, last stable offset of each entry."""
    found = []
    for data in indexes:
        for at in range(0, len(data), 34):
            one = [int.from_bytes(data[at + start : at + start + 8], "big", signed=True) for start in (2, 10, 18, 26)]
            found.append((one[0], one[1], one[2], one[3]))
    return found


def replayed(after: dict[str, bytes]) -> tuple[list[tuple[int, int, int, int]], int]:
    """The transaction index that a broker makes of the logs, and the last stable offset."""
    open_: dict[int, int] = {}
    entries, end = [], 0
    for own in valid(after):
        end = own.last + 1
        producer = own.batch.producer_id
        if own.batch.control:
            first = open_.pop(producer, None)
            if first is not None and _aborts(own):
                entries.append((producer, first, own.first, min(open_.values(), default=end)))
        elif own.batch.attributes & 0x10:
            open_.setdefault(producer, own.first)
    return entries, min(open_.values(), default=end)


def consumed(
    after: dict[str, bytes], entries: Sequence[tuple[int, int, int, int]], stable: int, *, at_once: int
) -> set[bytes]:
    """The batches that a consumer of committed records is given, `at_once` batches a fetch
    (CompletedFetch.nextFetchedRecord)."""
    batches = [own for own in valid(after) if own.first < stable]
    given = set()
    for start in range(0, len(batches), at_once):
        fetched = batches[start : start + at_once]
        reported = sorted(
            (first, producer)
            for producer, first, last, _ in entries
            if last >= fetched[0].first and first <= fetched[-1].last
        )
        gone: set[int] = set()
        for own in fetched:
            gone |= {producer for first, producer in reported if first <= own.last}
            reported = [one for one in reported if one[0] > own.last]
            producer = own.batch.producer_id
            if own.batch.control:
                if _aborts(own):
                    gone.discard(producer)
            elif producer not in gone or not own.batch.attributes & 0x10:
                given.add(own.data)
    return given


def indexed(directory: Path, found: SalvageResult, after: dict[str, bytes]) -> list[tuple[int, int, int, int]]:
    """The entries of the transaction indexes afterwards: those that are reported, those that stay, those made from the
    log."""
    built, _ = replayed(after)
    bases = [log.base_offset for log in found.segments]
    entries = []
    for number, log in enumerate(found.segments):
        name = f"{log.base_offset:020d}.txnindex"
        if name in found.transaction_indexes:
            entries += entries_of([found.transaction_indexes[name]])
        elif not log.rebuilds_companions:
            entries += entries_of([(directory / name).read_bytes()] if (directory / name).exists() else [])
        else:
            end = bases[number + 1] if number + 1 < len(bases) else 2**63
            entries += [entry for entry in built if log.base_offset <= entry[2] < end]
    return entries


def packed(found: SalvageResult, entries: Sequence[tuple[int, int, int, int]]) -> dict[str, bytes]:
    """The transaction indexes by name."""
    bases = [log.base_offset for log in found.segments]
    files: dict[str, bytes] = {}
    for base, end in zip(bases, [*bases[1:], 2**63], strict=True):
        own = [entry for entry in entries if base <= entry[2] < end]
        if own:
            files[f"{base:020d}.txnindex"] = build.transaction_index(*own)
    return files


def markers_by(rng: random.Random, chance: float) -> Callable[[Own], bool]:
    return lambda own: own.batch.control and rng.random() < chance


@pytest.mark.laws
@pytest.mark.parametrize("undecided", ["keep", "drop"])
def test_no_aborted_record_is_ever_read(tmp_path: Path, undecided: str) -> None:
    """Whatever markers are lost, by the transaction indexes as they are left and as a broker rebuilds them; and what
    is committed for sure is read."""
    lost = hanging = 0
    seeds = sampled(range(examples(300)), 3)
    for seed in seeds:
        rng = random.Random(seed)
        writer = histories(rng)
        spoilt = spoil(tmp_path / "p-0", writer, markers_by(rng, rng.choice((0.1, 0.3, 0.6))))
        found = salvaged(spoilt.directory, undecided=undecided)
        after = results(spoilt.directory, found)
        assert not predicted(after).refusals
        built, stable = replayed(after)
        left = indexed(spoilt.directory, found, after)
        data = [own.data for own in valid(after)]
        again = salvaged(written(tmp_path / "again-0", after, packed(found, left)), undecided=undecided)
        assert results(tmp_path / "again-0", again) == after, seed
        assert (again.dropped, again.undecided, again.transaction_indexes) == ({}, (), {}), seed
        for entries in (built, left):
            for at_once in (1, 3, 1000):
                given = consumed(after, entries, stable, at_once=at_once)
                assert not given & spoilt.aborted, (seed, at_once)
                if entries is left and undecided == "keep":
                    short = {
                        own.data
                        for own in valid(after)
                        if own.first < stable and own.data in spoilt.committed and own.data not in given
                    }
                    excused = [one for one in found.undecided if one.known == "" and one.ends == "abort"]
                    assert not short or excused, (seed, at_once)
        if undecided == "keep":
            # Nothing that was committed goes.
            assert spoilt.committed <= set(data), seed
        else:
            assert not any(one.ends == "open" and not one.dropped for one in found.undecided)
        lost += bool(found.undecided)
        hanging += any("kafka-transactions.sh" in one for one in sentences_of(found))
    assert lost > len(seeds) * 2 // 3
    assert undecided == "drop" or hanging > len(seeds) // 5


def transactions(*what: tuple[int, str], **how: object) -> Writer:
    """Batches and markers of producers, one after the other: `data`, `ABORT`, `COMMIT`, `plain`."""
    writer = Writer()
    sequences: Counter[int] = Counter()
    for producer, word in what:
        if word in ("ABORT", "COMMIT"):
            writer.end(word, producer)
        else:
            writer.data(producer, sequences[producer], transactional=word == "data")
            sequences[producer] += 1
    return writer


def at(*offsets: int) -> Callable[[Own], bool]:
    return lambda own: own.first in offsets


def left_offsets(spoilt: Spoilt, found: SalvageResult) -> list[int]:
    return [own.first for own in valid(results(spoilt.directory, found))]


ABORTED_THEN = [(1, "data"), (1, "data"), (1, "ABORT"), (2, "data"), (2, "COMMIT")]


def test_an_aborted_transaction_that_hangs(tmp_path: Path) -> None:
    spoilt = spoil(tmp_path / "topic-7", transactions(*ABORTED_THEN), at(2))
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [0, 1, 3, 4]
    assert entries_of(list(found.transaction_indexes.values())) == [(1, 0, 2, 3)]
    (one,) = found.undecided
    assert (one.producer_id, one.first_offset, one.end_offset, one.known, one.ends, one.dropped) == (
        1,
        0,
        2,
        "aborted",
        "open",
        0,
    )
    (said,) = sentences_of(found)
    assert said == (
        "producer 1, epoch 0: the transaction from offset 0 to 1 was aborted, as its transaction index says, and "
        "its marker at offset 2 is lost: "
        "consumers that read committed records only stop before it until "
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic topic --partition 7 --start-offset 0"
    )
    found = salvaged(spoilt.directory, undecided="drop")
    assert left_offsets(spoilt, found) == [3, 4]
    assert found.transaction_indexes == {}
    assert {*found.dropped.values()} == {"batch/crc", "txn/open"}
    assert sentences_of(found)[0].endswith("is lost: 2 batches of it are dropped")


def test_an_aborted_transaction_that_a_commit_would_take_in(tmp_path: Path) -> None:
    spoilt = spoil(tmp_path / "p-0", transactions(*ABORTED_THEN, (1, "data"), (1, "COMMIT")), at(2))
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [3, 4, 5, 6]
    assert found.transaction_indexes == {}
    assert sentences_of(found)[0].endswith(
        "2 batches of it are dropped; else the commit of the next one would take it in"
    )


def test_an_aborted_transaction_that_an_abort_takes_in(tmp_path: Path) -> None:
    spoilt = spoil(tmp_path / "p-0", transactions(*ABORTED_THEN, (1, "data"), (1, "ABORT")), at(2))
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [0, 1, 3, 4, 5, 6]
    assert entries_of(list(found.transaction_indexes.values())) == [(1, 0, 2, 3), (1, 5, 6, 7)]


def test_a_committed_transaction_that_an_abort_would_take_in(tmp_path: Path) -> None:
    what = [(1, "data"), (1, "COMMIT"), (1, "data"), (1, "ABORT")]
    spoilt = spoil(tmp_path / "p-0", transactions(*what), at(1))
    for undecided in ("keep", "drop"):
        found = salvaged(spoilt.directory, undecided=undecided)
        assert left_offsets(spoilt, found) == [0, 2, 3]
        assert entries_of(list(found.transaction_indexes.values())) == [(1, 2, 3, 4)]
        assert [(one.known, one.ends) for one in found.undecided] == [("committed", "abort")]


def test_without_an_index_nothing_is_known(tmp_path: Path) -> None:
    spoilt = spoil(tmp_path / "p-0", transactions(*ABORTED_THEN, (1, "data"), (1, "COMMIT")), at(2), index=False)
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [0, 1, 3, 4, 5, 6]
    assert [(one.known, one.ends, one.first_offset, one.end_offset) for one in found.undecided] == [
        ("", "commit", 0, 2)
    ]
    found = salvaged(spoilt.directory, undecided="drop")
    assert left_offsets(spoilt, found) == [3, 4, 5, 6]


def test_a_lost_batch_of_records_hides_no_marker(tmp_path: Path) -> None:
    writer = Writer().data(1, 0, transactional=True)
    writer.add(
        build.batch(
            [build.record(b"k", b"v")] * 3,
            base_offset=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=1,
            transactional=True,
        ),
        3,
    )
    writer.data(1, 4, transactional=True).end("COMMIT", 1)
    spoilt = spoil(tmp_path / "p-0", writer, at(1))
    found = salvaged(spoilt.directory, undecided="drop")
    assert left_offsets(spoilt, found) == [0, 4, 5]
    assert found.undecided == ()


def test_a_lost_marker_before_a_marker_is_none(tmp_path: Path) -> None:
    """One record is lost between data and marker: if that had been a marker, the next one would have had nothing to
    end."""
    spoilt = spoil(tmp_path / "p-0", transactions((1, "data"), (1, "data"), (1, "ABORT")), at(1))
    found = salvaged(spoilt.directory, undecided="drop")
    assert left_offsets(spoilt, found) == [0, 2]
    assert found.undecided == ()


def test_a_lost_end(tmp_path: Path) -> None:
    """Offsets after the last batch will be given to other records, so that no entry of the index may speak of them."""
    spoilt = spoil(tmp_path / "p-0", transactions((1, "data"), (2, "data"), (2, "COMMIT"), (1, "ABORT")), at(3))
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [0, 1, 2]
    assert found.transaction_indexes == {}
    assert [(one.missing, one.known, one.ends) for one in found.undecided] == [
        (OffsetRange(3, UNKNOWN_END), "aborted", "open")
    ]


def test_an_open_transaction_is_no_lost_one(tmp_path: Path) -> None:
    spoilt = spoil(tmp_path / "p-0", transactions((2, "data"), (2, "COMMIT"), (1, "data")), at(0))
    assert salvaged(spoilt.directory, undecided="drop").undecided == ()


def test_what_a_broker_refuses_goes(tmp_path: Path) -> None:
    """A batch that is not transactional inside a transaction, and a marker that cannot be read."""
    spoilt = spoil(tmp_path / "p-0", transactions((1, "data"), (1, "plain"), (1, "COMMIT"), (1, "plain")), at())
    found = salvaged(spoilt.directory)
    assert left_offsets(spoilt, found) == [0, 2, 3]
    assert [*found.dropped.values()] == ["txn/state"]
    for key, value in build.MALFORMED_MARKERS:
        bad = build.batch(
            [build.control_record(1, value, key=key)], base_offset=1, control=True, transactional=True, producer_id=1, producer_epoch=0  # noqa: E501
        )  # fmt: skip
        found, after = kept(tmp_path / "p-0", (0, run(0, 1) + bad + run(2, 1)))
        assert offsets(after) == [[0, 2]]
        assert [*found.dropped.values()] == ["control/structure"]
        assert not predicted(after).refusals


# ------------------------------------------------------------------------------------------------------- before Kafka
# 0.8


def kept07(directory: Path, *segments: tuple[int, bytes]) -> tuple[SalvageResult, dict[str, bytes]]:
    written(directory, {f"{base:020d}.kafka": data for base, data in segments})
    found = salvaged(directory)
    return found, results(directory, found)


def messages07(logs: dict[str, bytes]) -> dict[int, bytes]:
    """What a 0.7 consumer finds that steps from message to message, at each position where one with a right checksum
    stands, from the first byte of each file on."""
    found = {}
    for name, data in logs.items():
        at = 0
        while len(data) - at >= 10:
            size = int.from_bytes(data[at : at + 4], "big", signed=True)
            if size < 6 or size > len(data) - at - 4:
                break
            payload = data[at + 10 : at + 4 + size]
            if data[at + 4] == 1 and zlib.crc32(payload) == int.from_bytes(data[at + 6 : at + 10]):
                found[int(name.partition(".")[0]) + at] = payload
            at += 4 + size
    return found


PAYLOADS = [b"%03d" % number * (1 + number % 5) for number in range(30)]


def test_07_sound_files_stay(tmp_path: Path) -> None:
    first, second = build.kafka07(PAYLOADS[:10]), build.kafka07(PAYLOADS[10:])
    found, after = kept07(tmp_path / "p-0", (0, first), (len(first), second))
    assert list(after.values()) == [first, second]
    assert not found.dropped


def test_07_offsets_are_positions(tmp_path: Path) -> None:
    """Every sound message stays at its position, the files touch one another, and after each damage a file begins."""
    for seed in sampled(range(200), 5):
        rng = random.Random(seed)
        cut = rng.randrange(1, 29)
        first, second = build.kafka07(PAYLOADS[:cut]), build.kafka07(PAYLOADS[cut:])
        sound = messages07({f"{0:020d}.kafka": first, f"{len(first):020d}.kafka": second})
        data = [bytearray(first), bytearray(second)]
        flips = rng.choice((1, 1, 3))
        for _ in range(flips):
            which = rng.choice(data)
            which[rng.randrange(len(which))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.3:
            del data[1][-rng.randrange(1, len(data[1])) :]
        _, after = kept07(tmp_path / "p-0", (0, bytes(data[0])), (len(first), bytes(data[1])))
        bases = [int(name[:20]) for name in after]
        ends = [base + len(log) for base, log in zip(bases, after.values(), strict=True)]
        assert bases[1:] == ends[:-1], seed
        assert b"".join(after.values()) == (bytes(data[0]) + bytes(data[1]))[: ends[-1]], seed
        have = messages07(after)
        before = messages07({f"{0:020d}.kafka": bytes(data[0]), f"{len(first):020d}.kafka": bytes(data[1])})
        assert before.items() <= have.items(), seed
        lost = sum(1 for at, payload in sound.items() if at < ends[-1] and have.get(at) != payload)
        assert lost <= flips, (seed, lost)
        again, twice = kept07(tmp_path / "p-0", *zip(bases, after.values(), strict=True))
        assert twice == after, seed
        assert not again.dropped


def test_07_damage_in_the_middle_moves_nothing(tmp_path: Path) -> None:
    data = bytearray(build.kafka07(PAYLOADS))
    (place,) = [at for at, payload in messages07({f"{0:020d}.kafka": bytes(data)}).items() if payload == PAYLOADS[7]]
    data[place + 10] ^= 1
    found, after = kept07(tmp_path / "p-0", (0, bytes(data)))
    following = place + 10 + len(PAYLOADS[7])
    assert [(log.base_offset, log.pieces) for log in found.segments] == [
        (0, (Piece("00000000000000000000.kafka", 0, following),)),
        (following, (Piece("00000000000000000000.kafka", following, len(data)),)),
    ]
    assert list(messages07(after).values()) == [payload for payload in PAYLOADS if payload != PAYLOADS[7]]


def test_07_a_torn_end_goes(tmp_path: Path) -> None:
    first, second = build.kafka07(PAYLOADS[:10]), build.kafka07(PAYLOADS[10:])
    found, after = kept07(tmp_path / "p-0", (0, first), (len(first), second[:-3]))
    torn = 10 + len(PAYLOADS[-1])
    assert list(after.values()) == [first, second[:-torn]]
    assert found.dropped == {Piece(f"{len(first):020d}.kafka", len(second) - torn, len(second) - 3): "tail/torn"}


def test_07_a_hole_cannot_be_closed(tmp_path: Path) -> None:
    first, second = build.kafka07(PAYLOADS[:10]), build.kafka07(PAYLOADS[10:])
    _, after = kept07(tmp_path / "p-0", (0, first), (len(first) + 5, second))
    assert list(after.values()) == [first, second]


@pytest.mark.parametrize("seed", [2, 5, 15])
def test_companions_that_hold_what_a_rebuild_would_write_are_left(tmp_path: Path, seed: int) -> None:
    """A segment loses one batch, and its indexes have no entry of it."""
    directory = tmp_path / "compacted-transactions-0"
    shutil.copytree(FIXTURES / "follower-2.8.2" / directory.name, directory)
    damage_partition.DAMAGES["offset-overflow"](directory, random.Random(seed))
    (plan,) = plan_recovery(discover([str(directory)]), RecoverOptions(strategy=SALVAGE))
    assert isinstance(plan, Plan)
    assert any(action.action == "drop" for action in plan.actions)
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    (result,) = recover_logs(discover([str(directory)]), RecoverOptions(strategy=SALVAGE))
    assert isinstance(result, RecoveryResult)
    rebuilt = [Path(action.path).name for action in plan.actions if action.action == "rebuild"]
    assert [name for name in rebuilt if (directory / name).read_bytes() == before[name]] == []
