"""What the compiled kernel says of producers, leader epochs, time and index entries against the plain rules of
oracle_partition.py."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.format.naming import base_offset_of
from kdump.kernel.indexes import IndexTracker, ordered
from kdump.kernel.producers import EVENT, EVENT_BYTES, KEPT, RUNS_FULL, Producers, Runs
from kdump.kernel.scan import Scanner
from support import build, damage, oracle, oracle_partition
from support.build import PartSegment
from support.laws import examples
from support.partition_cases import RANDOMS, broken, changed_indexes, step, true_indexes
from support.segment_scans import Scanned, scanned

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LAW = settings(max_examples=examples(150), deadline=None)

# ---------------------------------------------------------------------------------------------------------------
# partitions


def agree(segments: Sequence[PartSegment], *, sequences: bool, complete: bool, before: bytes | None = None) -> int:
    """Both say the same of a partition after each of its segments; how much they said."""
    kernel = Producers(sequences, complete)
    plain = oracle_partition.Producers(sequences, complete)
    if before is not None:
        kernel.load(before)
        plain.load(before)
    said = 0
    for segment in segments:
        found = scanned(segment)
        assert len(found.events) % EVENT_BYTES == 0
        kernel.replay(found.events)
        plain.segment(segment.data, segment.base_offset)
        said += same(kernel, plain)
        if found.tail or segment.base_offset % 3 == 1:  # some segments are not there
            kernel.forget(missing=not found.tail)
            plain.forget(missing=not found.tail)
    return said


def same(kernel: Producers, plain: oracle_partition.Producers) -> int:
    troubles, tallies, aborted = plain.take()
    rows, counts, counted = kernel.take()
    assert sorted(rows) == sorted(map(tuple, troubles))
    assert counts == Counter(trouble.problem for trouble in troubles)
    assert counted == tallies
    assert kernel.aborted() == aborted
    assert kernel.open() == plain.open()
    assert kernel.entries() == plain.entries()
    assert len(kernel) == len(plain.table)
    assert kernel.complete == plain.complete
    return len(rows) + len(counted) + len(aborted)


@LAW
@given(RANDOMS, st.booleans(), st.booleans(), st.integers(0, 3))
def test_partitions(rng: random.Random, sequences: bool, complete: bool, times: int) -> None:
    built = build.partition(
        rng, batches=rng.choice((5, 20, 60)), odd=rng.choice((0, 0.1, 0.5)), removed=rng.choice((0, 0, 0.2))
    )
    agree(broken(built, rng, times), sequences=sequences, complete=complete)


def test_a_gap_that_ends_a_segment_is_reported() -> None:
    """A whole frame with no batch and no tail after it may have been a batch of any producer."""
    frame = struct.pack(">qiiBb", 1, 24, 0, 3, 0).ljust(36, b"\0")
    for data in (frame, step(0, 0) + frame):
        assert isinstance(oracle.walk(data, base_offset=0)[-1], oracle.Gap)
        agree([PartSegment(0, data), PartSegment(2, step(2, 2))], sequences=True, complete=True)


def test_everything_is_said() -> None:
    """The partitions above have everything in them that there is to say."""
    problems: Counter[str] = Counter()
    for seed in range(60):
        plain = oracle_partition.Producers(complete=True)
        for segment in build.partition(random.Random(seed), batches=60, odd=0.3):
            plain.segment(segment.data, segment.base_offset)
        troubles, tallies, aborted = plain.take()
        problems.update(trouble.problem for trouble in troubles)
        problems.update(list(tallies))
        problems.update(f"aborted {entry.certain_first} {entry.certain_stable}" for entry in aborted)
    expected = {
        "aborted True True",
        "aborted True False",
        "aborted False False",
        "producer/sequence",
        "producer/epoch",
        "txn/state",
        "txn/marker-epoch",
        "txn/epochs",
        "txn/marker-empty",
        "gap",
        "empty",
        "coordinator",
    }
    assert set(problems) == expected


@pytest.mark.daily(4)
@pytest.mark.parametrize("seed", range(12))
def test_large_partitions(seed: int) -> None:
    """Tables that grow, long runs, and many producers side by side."""
    rng = random.Random(f"large:{seed}")
    built = build.partition(
        rng, batches=2500, producers=rng.choice((2, 40, 900)), odd=rng.choice((0, 0.02)), removed=rng.choice((0, 0.05))
    )
    assert agree(broken(built, rng, seed % 3), sequences=True, complete=True) > 10


def test_undisturbed_producers_are_one_event_a_run() -> None:
    parts = []
    for number in range(1000):
        parts += [
            build.batch(
                [build.record(b"k")] * 2,
                base_offset=4 * number + 2 * producer,
                base_sequence=2 * number,
                producer_id=producer,
                producer_epoch=0,
            )
            for producer in (0, 1)
        ]
    segment = PartSegment(0, b"".join(parts))
    events = list(struct.iter_unpack(EVENT, scanned(segment).events))
    assert [event[0] for event in events] == [0, 1]
    assert [event[-1] for event in events] == [1000, 1000]
    agree([segment], sequences=True, complete=True)


def test_a_scan_comes_back_when_there_are_many_events() -> None:
    count = RUNS_FULL + 100
    data = b"".join(build.marker(base_offset=offset, producer_id=offset % 7) for offset in range(count))
    runs = Runs()
    scanner = Scanner(0, runs=runs)
    at, events = 0, b""
    while at < len(data):
        scanner.scan(data, at, len(data), at, len(data), len(data))
        assert scanner.stop > at
        assert runs.count <= RUNS_FULL
        at = scanner.stop
        events += runs.take()
    assert len(events) == count * EVENT_BYTES
    kernel, plain = Producers(True, True), oracle_partition.Producers(True, True)
    kernel.replay(events)
    plain.segment(data, 0)
    same(kernel, plain)


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", sorted(path.parent.name for path in FIXTURES.glob("*/case.toml")))
def test_broker_made(name: str) -> None:
    for directory in sorted({path.parent for path in (FIXTURES / name).rglob("*.log")}):
        sequences = not directory.name.startswith("__")
        agree(list(broker_built(directory)), sequences=sequences, complete=True)


def broker_built(directory: Path) -> Iterator[PartSegment]:
    for path in sorted(directory.glob("*.log")):
        base_offset = base_offset_of(str(path))
        assert base_offset is not None
        yield PartSegment(base_offset, path.read_bytes())


# ----------------------------------------------------------------------------------------------------------------
# snapshots


@LAW
@given(RANDOMS, st.booleans(), st.integers(0, 2))
def test_snapshots(rng: random.Random, complete: bool, times: int) -> None:
    """A snapshot that was taken here, with entries changed, dropped and added, against the state; and a start from
    one."""
    segments = broken(build.partition(rng, batches=40, odd=rng.choice((0, 0.3))), rng, times)
    kernel, plain = Producers(True, complete), oracle_partition.Producers(True, complete)
    for segment in segments:
        kernel.replay(scanned(segment).events)
        plain.segment(segment.data, segment.base_offset)
        entries = [plain.entries()[at : at + 46] for at in range(0, len(plain.entries()), 46)]
        assert kernel.compare(plain.entries()) == plain.compare(plain.entries()) == []
        rng.shuffle(entries)
        snapshot = b"".join(_changed(entries, rng))
        assert kernel.compare(snapshot) == plain.compare(snapshot)
    following = build.partition(rng, batches=20)
    agree(following, sequences=True, complete=False, before=snapshot)


def _changed(entries: Iterable[bytes], rng: random.Random) -> Iterator[bytes]:
    for entry in entries:
        what = rng.choice(("keep", "keep", "drop", "change"))
        if what == "drop":
            continue
        values = list(struct.unpack(">qhiqiqiq", entry))
        if what == "change":
            at = rng.randrange(1, len(values))
            values[at] = max(-1, values[at] - rng.choice((-1, 1))) if values[at] < 2**31 - 1 else 5
        yield struct.pack(">qhiqiqiq", *values)
    for producer_id in rng.choice(((), (77_777,), (-5, 2**62))):
        yield build.producer(producer_id, epoch=rng.choice((-1, 0)), timestamp=rng.choice((-1, 5)))


# ------------------------------------------------------------------------------------------------------- epochs, time,
# indexes

_NOT_ALONE = ("max_timestamp", "first_timestamp", "last_timestamp")
FACTS = ("backs", "back_position", "back_offset", "back_largest", "max_timestamp_offset")


def same_facts(segment: PartSegment) -> None:
    state, plain = scanned(segment).state, oracle_partition.facts(segment.data, segment.base_offset)
    for name in (*FACTS, *_NOT_ALONE, "max_timestamp_position"):
        assert getattr(state, name) == getattr(plain, name), name
    assert state.epochs == tuple(plain.epochs)


def same_entries(segment: PartSegment, offsets: bytes, times: bytes, interval: int) -> Scanned:
    """What is said of the entries of two indexes, which are cut to what is in order first."""
    data, base_offset = segment.data, segment.base_offset
    assert ordered(offsets, 8) == oracle_partition.ordered_offsets(offsets)
    assert ordered(times, 12) == oracle_partition.ordered_times(times)
    offsets = offsets[: 8 * ordered(offsets, 8)]
    times = times[: 12 * ordered(times, 12)]
    found = scanned(segment, slots=(offsets, times), interval=interval)
    expected = [
        *oracle_partition.bad_offsets(data, base_offset, offsets),
        *oracle_partition.bad_times(data, base_offset, times),
    ]
    ours = sorted(
        (problem, entry, (a, b), position, what) for problem, entry, a, b, position, _, _, what in found.entries
    )
    assert ours == sorted(map(tuple, expected))
    assert found.state.index_differs == oracle_partition.difference(data, base_offset, offsets, interval)
    return found


@LAW
@given(RANDOMS, st.integers(0, 2), st.sampled_from((0, 100, 300, 4096)))
def test_indexes_of_producers(rng: random.Random, times: int, interval: int) -> None:
    built = build.partition(rng, batches=40, odd=0.3, removed=rng.choice((0, 0.2)))
    for before, segment in zip(built, broken(built, rng, times), strict=True):
        same_facts(segment)
        any_indexes(before, segment, rng, interval)


@LAW
@given(RANDOMS, st.data(), st.integers(0, 2), st.sampled_from((0, 100, 300, 4096)))
def test_indexes_of_any_batches(rng: random.Random, draw: st.DataObject, times: int, interval: int) -> None:
    base_offset = draw.draw(st.sampled_from((0, 1000)))
    built = build.segments(
        max_batches=12, base_offset=base_offset, gaps=draw.draw(st.booleans()), compacted=draw.draw(st.booleans())
    )
    before = PartSegment(base_offset, draw.draw(built))
    segment = broken([before], rng, times)[0]
    same_facts(segment)
    any_indexes(before, segment, rng, interval)


def any_indexes(before: PartSegment, segment: PartSegment, rng: random.Random, interval: int) -> None:
    """Nothing is wrong with the indexes of a sound segment; of those on the damaged one, and of others there, both say
    the same."""
    own = true_indexes(before, interval)
    found = same_entries(before, *own, interval)
    assert found.entries == []
    assert found.state.index_differs is None
    same_entries(segment, *own, interval)
    same_entries(segment, *true_indexes(segment, interval), interval)
    same_entries(segment, *changed_indexes(segment, *own, rng), interval)


# --------------------------------------------------------------------------------------------------------------------
# ranges


@LAW
@given(RANDOMS, st.booleans(), st.integers(0, 3), st.data())
def test_no_cutting_into_ranges_changes_what_producers_did(
    rng: random.Random, carried: bool, times: int, draw: st.DataObject
) -> None:
    """Walks that begin where another ended, knowing of it or (in a sound log) not, record other events, which replay to
    the same."""
    segments = broken(build.partition(rng, batches=40, odd=rng.choice((0, 0.3))), rng, times if carried else 0)
    whole, pieces = Producers(True, True), Producers(True, True)
    for segment in segments:
        whole.replay(scanned(segment).events)
        ends = draw.draw(st.lists(st.integers(0, len(segment.data)), max_size=5).map(sorted))
        before: Scanned | None = None
        for stop in [*ends, None]:
            before = scanned(
                segment,
                start=0 if before is None else before.end,
                stop=stop,
                carry=before.carry if carried and before is not None else None,
            )
            pieces.replay(before.events)
        assert pieces.take() == whole.take()
        assert pieces.aborted() == whole.aborted()
        assert pieces.open() == whole.open()
        assert pieces.entries() == whole.entries()


@LAW
@given(RANDOMS, st.integers(0, 2), st.data())
def test_no_cutting_into_ranges_changes_what_is_said_of_indexes(
    rng: random.Random, times: int, draw: st.DataObject
) -> None:
    built = build.partition(rng, batches=40, odd=0.2)
    segment = rng.choice(broken(built, rng, times))
    interval = draw.draw(st.sampled_from((100, 300)))
    slots = changed_indexes(segment, *true_indexes(segment, interval), rng)
    slots = slots[0][: 8 * ordered(slots[0], 8)], slots[1][: 12 * ordered(slots[1], 12)]
    whole = scanned(segment, slots=slots, interval=interval)
    ends = draw.draw(st.lists(st.integers(0, len(segment.data)), max_size=4).map(sorted))
    found, differs = [], None
    before: Scanned | None = None
    for stop in [*ends, None]:
        before = scanned(
            segment,
            start=0 if before is None else before.end,
            stop=stop,
            carry=None if before is None else before.carry,
            slots=slots,
            interval=interval,
        )
        found += before.entries
        differs = differs or before.state.index_differs
    assert sorted(found) == sorted(whole.entries)
    assert differs == whole.state.index_differs


@LAW
@given(RANDOMS, st.data())
def test_events_replay_the_same_in_any_portions(rng: random.Random, draw: st.DataObject) -> None:
    events = b"".join(scanned(segment).events for segment in build.partition(rng, batches=60, odd=0.3))
    whole, pieces = Producers(True, True), Producers(True, True)
    whole.replay(events)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(events) // EVENT_BYTES), max_size=5)))
    for start, end in pairwise([0, *cuts, len(events) // EVENT_BYTES]):
        pieces.replay(events[start * EVENT_BYTES : end * EVENT_BYTES])
    assert pieces.take() == whole.take()
    assert pieces.aborted() == whole.aborted()
    assert pieces.entries() == whole.entries()


# ------------------------------------------------------------------------------------------------------------------ bad
# input


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(ValueError):
        Producers().replay(b"\0" * (EVENT_BYTES - 1))
    with pytest.raises(ValueError):
        Producers().load(b"\0" * 45)
    with pytest.raises(ValueError):
        IndexTracker(-1)


def test_counts_stay_exact_where_rows_are_dropped() -> None:
    count = KEPT + 50
    data = b"".join(step(offset, 0) for offset in range(count + 1))
    kernel, plain = Producers(True, True), oracle_partition.Producers(True, True)
    kernel.replay(scanned(PartSegment(0, data)).events)
    plain.segment(data, 0)
    rows, counts, _ = kernel.take()
    assert rows == list(map(tuple, plain.troubles[:KEPT]))
    assert counts == {"producer/sequence": count}


def test_of_two_entries_of_one_producer_the_later_counts() -> None:
    snapshot = (
        build.producer(5, epoch=1, first_offset=3) + build.producer(6) + build.producer(5, epoch=2, last_offset=9)
    )
    kernel, plain = Producers(), oracle_partition.Producers()
    kernel.load(snapshot)
    plain.load(snapshot)
    assert kernel.open() == plain.open() == []
    assert kernel.entries() == plain.entries()
    assert len(kernel) == 2


def test_the_marker_is_the_first_record() -> None:
    """A control batch of a producer that holds no marker says nothing of its transaction."""
    begin = build.batch([build.record(b"k")], transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    sound = build.marker("ABORT", base_offset=1)
    assert oracle_partition.marker_of(sound, damage.batches(sound)[0]) == (False, 0)
    for key, value in build.MALFORMED_MARKERS:
        bad = build.batch(
            [build.control_record(0, value, key=key)],
            base_offset=1,
            control=True,
            producer_id=7,
            producer_epoch=0,
        )
        item = oracle.walk(bad)[0]
        assert isinstance(item, oracle.Batch)
        assert oracle_partition.marker_of(bad, item) is None
        agree([PartSegment(0, begin + bad)], sequences=True, complete=True)


# --------------------------------------------------------------------------------------------------------------- known
# answers


def emptied(offset: int, sequence: int, epoch: int = 0) -> bytes:
    """A batch of a transaction of producer 7 from which the log cleaner removed the records."""
    how = {"base_sequence": sequence, "producer_id": 7, "producer_epoch": epoch, "transactional": True}
    return build.batch([], base_offset=offset, last_offset_delta=0, **how)


def test_an_emptied_marker_after_offsets_that_are_missing() -> None:
    """It shows that a log cleaner goes over the log: the offsets held no marker."""
    for missing, problems in (True, ["txn/marker-empty"]), (False, []):
        producers = Producers(True, True)
        producers.replay(scanned(PartSegment(0, step(0, 0, transactional=True))).events)
        producers.forget(missing=missing)
        producers.replay(scanned(PartSegment(5, without_marker(5))).events)
        assert [row[0] for row in producers.take()[0]] == problems


def without_marker(offset: int) -> bytes:
    """A control batch of producer 7 from which the log cleaner removed the marker."""
    return build.empty_batch(offset, offset, control=True, producer_id=7)


KNOWN: dict[str, tuple[bytes, list[str], dict[str, int]]] = {
    "in sequence": (step(0, 0, 3) + step(3, 3), [], {}),
    "a new epoch begins at 0": (step(0, 5) + step(1, 0, epoch=1), [], {}),
    "sequences wrap": (step(0, 2**31 - 2, 3) + step(3, 1), [], {}),
    "a gap": (step(0, 0) + step(1, 2) + step(2, 4), [], {"gap": 2}),
    "a new epoch that does not begin at 0": (step(0, 0) + step(1, 1, epoch=1), [], {"gap": 1}),
    "a gap of half of all sequences": (step(0, 0) + step(1, 2**30 + 1), ["producer/sequence"], {}),
    "written twice": (step(0, 0, 2) + step(2, 0, 2), ["producer/sequence"], {}),
    "forgotten after a day": (step(0, 0) + step(1, 5, timestamp=1000 + oracle_partition.DAY_MS), [], {}),
    "almost a day": (step(0, 0) + step(1, 5, timestamp=999 + oracle_partition.DAY_MS), [], {"gap": 1}),
    "without a timestamp": (step(0, 0) + step(1, 5, timestamp=-1), [], {"gap": 1}),
    "an older epoch": (step(0, 0, epoch=2) + step(1, 1, epoch=1), ["producer/epoch"], {}),
    "committed": (step(0, 0, transactional=True) + build.marker("COMMIT", base_offset=1), [], {}),
    "a marker without a transaction": (step(0, 0) + build.marker("ABORT", base_offset=1), [], {"empty": 1}),
    "left open": (step(0, 0, transactional=True) + step(1, 1), ["txn/state"], {}),
    "fenced": (step(0, 0, transactional=True) + build.marker("ABORT", base_offset=1, producer_epoch=1), [], {}),
    "fenced twice": (
        step(0, 0, transactional=True) + build.marker("ABORT", base_offset=1, producer_epoch=2),
        ["txn/marker-epoch"],
        {},
    ),
    "two epochs": (step(0, 0, transactional=True) + step(1, 0, epoch=1, transactional=True), ["txn/epochs"], {}),
    "two epochs with a marker": (
        step(0, 0, transactional=True)
        + build.marker("COMMIT", base_offset=1)
        + step(2, 0, epoch=1, transactional=True),
        [],
        {},
    ),
    "two epochs around damage": (
        step(0, 0, transactional=True) + step(1, 1)[:-1] + b"x" + step(2, 0, epoch=1, transactional=True),
        [],
        {},
    ),
    "two epochs without records of one": (
        emptied(0, 0) + step(2, 0, epoch=1, transactional=True) + emptied(3, 0, epoch=2),
        [],
        {},
    ),
    "an emptied marker": (
        step(0, 0, transactional=True) + without_marker(1) + build.marker("COMMIT", base_offset=2),
        ["txn/marker-empty"],
        {},
    ),
    "an emptied marker of a transaction without records": (emptied(0, 0) + without_marker(1), [], {}),
    "an emptied marker of a transaction that is gone": (
        step(0, 0, transactional=True) + build.marker("COMMIT", base_offset=1) + without_marker(2) + without_marker(3),
        [],
        {},
    ),
    "an emptied marker after damage": (
        step(0, 0, transactional=True) + step(1, 1)[:-1] + b"x" + without_marker(2),
        [],
        {},
    ),
    "an older marker": (
        step(0, 0, epoch=3, transactional=True) + build.marker("ABORT", base_offset=1, producer_epoch=2),
        ["producer/epoch"],
        {},
    ),
    "a coordinator of old": (
        build.marker(base_offset=0, coordinator_epoch=4) + build.marker(base_offset=1, coordinator_epoch=3),
        [],
        {"empty": 2, "coordinator": 1},
    ),
    "after a hole": (step(0, 0) + step(1, 1)[:-1] + b"x" + step(2, 7) + step(3, 9), [], {"gap": 1}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_answers(name: str) -> None:
    data, problems, counted = KNOWN[name]
    kernel = Producers(True, True)
    kernel.replay(scanned(PartSegment(0, data)).events)
    rows, _, tallies = kernel.take()
    assert [row[0] for row in rows] == problems
    assert {what: tally[0] for what, tally in tallies.items()} == counted
    agree([PartSegment(0, data)], sequences=True, complete=True)


def test_an_aborted_transaction_ends_before_the_one_that_is_still_open() -> None:
    parts = (
        step(0, 0, 2, transactional=True),
        build.batch(
            [build.record(b"k")], base_offset=2, base_sequence=0, producer_id=8, producer_epoch=0, transactional=True
        ),
        build.marker("ABORT", base_offset=3, producer_id=8),
        build.marker("ABORT", base_offset=4, producer_id=7),
    )
    kernel = Producers(True, True)
    kernel.replay(scanned(PartSegment(0, b"".join(parts[:3]))).events)
    assert kernel.open() == [(7, 0, 0, build.DEFAULT_TIMESTAMP, True)]
    kernel.replay(scanned(PartSegment(0, parts[3])).events)
    assert kernel.aborted() == [(8, 2, 3, 0, True, True), (7, 0, 4, 5, True, True)]
    assert kernel.open() == []


def test_what_a_time_index_says_of_earlier_batches() -> None:
    """An entry with too early a time hides batches from lookups, any other wrong one does not."""
    data = step(0, 0, timestamp=50) + step(1, 1, timestamp=90) + step(2, 2, timestamp=70)
    segment = PartSegment(0, data)
    for entry, problems in (
        ((50, 0), []),
        ((90, 1), []),
        ((80, 1), ["timeindex/wrong"]),
        ((95, 1), ["timeindex/wrong"]),
        ((70, 2), ["timeindex/misses"]),
        ((90, 2), []),
        ((90, 3), []),
    ):
        found = scanned(segment, slots=(b"", build.time_index(entry)))
        assert [row[0] for row in found.entries] == problems
        same_entries(segment, b"", build.time_index(entry), 4096)
