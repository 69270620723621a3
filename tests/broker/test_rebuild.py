"""Companions rebuilt: the kernel and the batch by batch walk say the same, and both what a broker's rules say."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker import rebuild
from kdump.broker.rebuild_request import PlannedSegment
from kdump.errors import SourceError
from kdump.format import producer_snapshot
from kdump.format.naming import segment_file_name
from kdump.format.producer_snapshot import ProducerEntry
from kdump.kernel import producers as kernel
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.scan import Scanner
from kdump.recover.plan import FileContent, Plan, RecoverOptions, view
from kdump.storage.pieces import Piece, PiecesSource
from kdump.storage.source import BytesSource
from kdump.storage.stamps import Stamp
from kdump.storage.walk import Walk
from support import build, oracle_partition
from support.build import PartSegment

REBUILT = FileContent()
INDEXES = (".index", ".timeindex", ".txnindex")
DAY_MS = 86_400_000
T = 1_600_000_000_000
OF_EMPTY_CONTROL_BATCHES = (-1, -1, -1, 0, -1, -1, -1)
LOADED_STEPS = tuple(step for step in build.ODD_STEPS if step not in ("malformed", "plain-inside"))


def put(directory: Path, files: Mapping[str, bytes]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


def logs_of(segments: Sequence[PartSegment]) -> dict[str, bytes]:
    return {segment_file_name(segment.base_offset, ".log"): segment.data for segment in segments}


def end_of(segments: Sequence[PartSegment]) -> int:
    last = segments[-1]
    walk = Walk(BytesSource(last.data), base_offset=last.base_offset)
    for _ in walk:
        pass
    return walk.scanner.state().next_offset(last.base_offset)


def plan_of(
    directory: Path,
    segments: Sequence[PartSegment],
    *,
    verified: bool = True,
    walked: Sequence[bool] | None = None,
    rebuilt: Sequence[str] | None = None,
    log_start_offset: int | None = None,
    **options: int,
) -> Plan:
    """A plan that makes the companions of the segments again, all of them unless `rebuilt` has names."""
    bases = [segment.base_offset for segment in segments]
    end = end_of(segments)
    if rebuilt is None:
        rebuilt = [segment_file_name(base, suffix) for base in bases for suffix in INDEXES]
        rebuilt += [segment_file_name(offset, ".snapshot") for offset in sorted({*bases[1:], end} - {bases[0]})]
    logs = [
        PlannedSegment(
            segment.base_offset,
            (Piece(segment_file_name(segment.base_offset, ".log"), 0, len(segment.data)),) if segment.data else (),
            verified,
            walked is None or walked[number],
        )
        for number, segment in enumerate(segments)
    ]
    return Plan(
        str(directory),
        None,
        RecoverOptions(**{"now_ms": 0, **options}),  # type: ignore[arg-type]
        after=dict.fromkeys(rebuilt, REBUILT),
        files={path.name: Stamp(path.stat().st_size, 0, 0) for path in directory.iterdir()},
        segments=tuple(logs),
        log_start_offset=bases[0] if log_start_offset is None else log_start_offset,
        log_end_offset=end,
    )


def result(plan: Plan) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, data in rebuild.rebuild_companions(plan.rebuild_request()):
        assert name not in found
        found[name] = data
    assert found.keys() == {name for name, content in plan.after.items() if content == REBUILT}
    return found


def slowly(plan: Plan) -> Plan:
    return plan._replace(segments=tuple(log._replace(valid=False) for log in plan.segments))


def entries(data: bytes | None) -> list[tuple[int, ...]]:
    """Those of a snapshot, by producer."""
    assert data is not None
    return sorted(tuple(entry) for entry in producer_snapshot.parse_entries(data))


def partition(number: int) -> tuple[random.Random, list[PartSegment]]:
    rng = random.Random(f"rebuild:{number}")
    segments = build.partition(
        rng,
        batches=rng.choice((5, 30, 80)),
        odd=rng.choice((0, 0.1, 0.4)),
        odd_steps=LOADED_STEPS,
        removed=rng.choice((0, 0, 0.3)),
    )
    return rng, segments


# -------------------------------------------------------------------------------------------------------------------
# laws


@pytest.mark.daily(4)
@pytest.mark.parametrize("number", range(60))
def test_both_walks_say_the_same(number: int, tmp_path: Path) -> None:
    rng, segments = partition(number)
    directory = put(tmp_path, logs_of(segments))
    start = rng.choice((0, 0, rng.choice(segments).base_offset + rng.choice((0, 1))))
    walked_from = rng.choice((0, 0, rng.choice(segments).base_offset))
    plan = plan_of(
        directory,
        segments,
        walked=[segment.base_offset >= walked_from for segment in segments],
        log_start_offset=max(start, segments[0].base_offset),
        index_interval_bytes=rng.choice((0, 100, 4096)),
        segment_index_bytes=rng.choice((1 << 20, 40)),
        now_ms=rng.choice((0, T + 2 * DAY_MS, 2 * T)),
    )
    assert result(plan) == result(slowly(plan))


@pytest.mark.daily(4)
@pytest.mark.parametrize("number", range(40))
def test_what_stays_is_begun_from(number: int, tmp_path: Path) -> None:
    """Where everything was made before, any part of it comes out the same again."""
    rng, segments = partition(number)
    directory = put(tmp_path, logs_of(segments))
    whole = plan_of(directory, segments)
    files = {name: data for name, data in result(whole).items() if data is not None}
    put(directory, files)
    wanted = [name for name in whole.after if rng.random() < 0.3]
    part = plan_of(directory, segments, rebuilt=wanted, walked=[rng.random() < 0.7 for _ in segments])
    for plan in (part, slowly(part)):
        again = result(plan)
        for name in wanted:
            if name.endswith(".snapshot"):
                assert entries(again[name]) == entries(files[name])
            else:
                assert (again[name] or b"") == files.get(name, b"")


@pytest.mark.daily(4)
@pytest.mark.parametrize("number", range(40))
def test_indexes_are_those_of_the_rules(number: int, tmp_path: Path) -> None:
    rng, segments = partition(number)
    interval = rng.choice((0, 100, 300, 4096))
    found = result(plan_of(put(tmp_path, logs_of(segments)), segments, index_interval_bytes=interval))
    for base, data in segments:
        offsets = oracle_partition.rebuilt_offsets(data, base, interval)
        times = oracle_partition.rebuilt_times(data, base, interval)
        assert found[segment_file_name(base, ".index")] == build.offset_index(*offsets)
        assert found[segment_file_name(base, ".timeindex")] == build.time_index(*times)


@pytest.mark.parametrize("number", range(12))
def test_batches_of_all_sizes(number: int, tmp_path: Path) -> None:
    """Some larger than what is read at once, headers alone and many together; and the log in pieces, cut anywhere."""
    rng = random.Random(f"sizes:{number}")
    data = b""
    for offset in range(60):
        size = rng.choice((1, 1, 100, 3000, 5000, 20_000, 120_000, 300_000)) if rng.random() < 0.7 else -1
        if size < 0 and rng.random() < 0.6:
            data += build.marker(rng.choice(("COMMIT", "ABORT")), base_offset=offset, timestamp=T + offset)
        else:
            value = build.record(None, bytes(max(0, size)), timestamp=T + rng.randrange(99))
            data += build.batch(
                [value], base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=offset, transactional=True
            )
    segments = [PartSegment(0, data)]
    plan = plan_of(put(tmp_path, logs_of(segments)), segments)
    found = result(plan)
    assert found[segment_file_name(0, ".index")] == build.offset_index(*oracle_partition.rebuilt_offsets(data, 0))
    assert found[segment_file_name(0, ".timeindex")] == build.time_index(*oracle_partition.rebuilt_times(data, 0))
    assert found == result(slowly(plan))
    borders = [0, *sorted(rng.sample(range(len(data)), 3)), len(data)]
    pieces = tuple(Piece(segment_file_name(0, ".log"), *ends) for ends in itertools.pairwise(borders))
    assert found == result(plan._replace(segments=(PlannedSegment(0, pieces, True, True),)))


@pytest.mark.daily(4)
@pytest.mark.parametrize("number", range(40))
def test_snapshots_hold_what_a_replay_says(number: int, tmp_path: Path) -> None:
    """But for the producers of empty control batches, of which a replay knows nothing."""
    _, segments = partition(number)
    found = result(plan_of(put(tmp_path, logs_of(segments)), segments))
    for name, data in found.items():
        if name.endswith(".snapshot"):
            plain = oracle_partition.Producers(complete=True)
            for segment in segments:
                if segment.base_offset < int(name[:20]):
                    plain.segment(segment.data, segment.base_offset)
            known = [entry for entry in entries(data) if entry[1:] != OF_EMPTY_CONTROL_BATCHES]
            assert known == sorted(struct.iter_unpack(">qhiqiqiq", plain.entries()))


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 200), st.integers(0, 200), st.randoms())
def test_pieces(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], position: int, size: int, rng: random.Random
) -> None:
    directory = tmp_path_factory.mktemp("pieces")
    files = {"a": b"", "b": b""}
    pieces = []
    for part in parts:
        name = rng.choice(("a", "b"))
        files[name] += rng.randbytes(rng.randrange(5))
        pieces.append((str(directory / name), len(files[name]), len(files[name]) + len(part)))
        files[name] += part
    put(directory, files)
    whole = b"".join(parts)
    with PiecesSource(pieces, "x") as source:
        buffer = bytearray(size)
        read = source.readinto(position, memoryview(buffer))
        assert (source.size, source.size_now(), buffer[:read]) == (
            len(whole),
            len(whole),
            whole[position : position + size],
        )


# ------------------------------------------------------------------------------------------------------------------
# cases


def alone(tmp_path: Path, *batches: bytes, **options: int) -> dict[str, bytes | None]:
    """What is made beside a log of one segment, by both walks."""
    segments = [PartSegment(0, b"".join(batches))]
    plan = plan_of(put(tmp_path, logs_of(segments)), segments, **options)
    found = result(plan)
    assert found == result(slowly(plan))
    return found


def data_batch(offset: int, count: int = 1, *, timestamp: int = T, **fields: int) -> bytes:
    known: dict[str, int] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": offset, **fields}
    return build.batch([build.record(b"k", b"v", timestamp=timestamp)] * count, base_offset=offset, **known)  # type: ignore[arg-type]


def test_nothing_is_asked_for(tmp_path: Path) -> None:
    plan = plan_of(put(tmp_path, logs_of([PartSegment(0, b"")])), [PartSegment(0, b"")], rebuilt=[])
    assert list(rebuild.rebuild_companions(plan.rebuild_request())) == []


def test_an_empty_log(tmp_path: Path) -> None:
    name = segment_file_name(0, ".txnindex")
    assert alone(tmp_path) == {segment_file_name(0, ".index"): b"", segment_file_name(0, ".timeindex"): b"", name: None}
    put(tmp_path, {name: b"x" * 34})
    assert alone(tmp_path)[name] == b""


def test_a_transaction_index_of_a_log_that_is_not_there_is_not_emptied(tmp_path: Path) -> None:
    """A broker takes it away before it makes the log."""
    segments = [PartSegment(0, b"")]
    plan = plan_of(put(tmp_path, {segment_file_name(0, ".txnindex"): b"x"}), segments)
    assert result(plan)[segment_file_name(0, ".txnindex")] is None


def test_an_aborted_transaction(tmp_path: Path) -> None:
    found = alone(
        tmp_path,
        data_batch(0, transactional=True),
        data_batch(1, producer_id=8, base_sequence=0, transactional=True),
        build.marker("ABORT", base_offset=2, producer_id=7, coordinator_epoch=4, timestamp=T + 5),
        build.marker("ABORT", base_offset=3, producer_id=8, coordinator_epoch=2, timestamp=T + 6),
    )
    assert found[segment_file_name(0, ".txnindex")] == build.transaction_index((7, 0, 2, 1), (8, 1, 3, 4))
    assert entries(found[segment_file_name(4, ".snapshot")]) == [
        (7, 0, 0, 0, 0, T + 5, 4, -1),
        (8, 0, 0, 1, 0, T + 6, 2, -1),
    ]


def test_what_the_kernel_leaves_to_the_other_walk(tmp_path: Path) -> None:
    """A marker with another time than its batch, a compressed one, sequences below -1, and an emptied control batch."""
    record = build.control_record("COMMIT", struct.pack(">hi", 0, 9), timestamp=T + 1)
    control = {"control": True, "transactional": True, "producer_epoch": 0}
    found = alone(
        tmp_path,
        build.batch([record], base_offset=0, producer_id=1, max_timestamp=T + 50, **control),  # type: ignore[arg-type]
        build.batch([record], base_offset=1, producer_id=2, codec="gzip", **control),  # type: ignore[arg-type]
        build.batch(
            [record], base_offset=2, producer_id=3, max_timestamp=T + 60, timestamp_type="LogAppendTime", **control
        ),  # type: ignore[arg-type]
        build.batch([record, record], base_offset=3, producer_id=4, **control),  # type: ignore[arg-type]
        data_batch(5, 3, producer_id=5, base_sequence=-7),
        build.empty_batch(8, 8, control=True, producer_id=6),
    )
    assert entries(found[segment_file_name(9, ".snapshot")]) == [
        (1, 0, -1, -1, 0, T + 1, 9, -1),
        (2, 0, -1, -1, 0, T + 1, 9, -1),
        (3, 0, -1, -1, 0, T + 60, 9, -1),
        (4, 0, -1, -1, 0, T + 1, 9, -1),
        (5, 0, -5, 7, 2, T, -1, -1),
        (6, -1, -1, -1, 0, -1, -1, -1),
    ]


@pytest.mark.parametrize(("later", "left"), [(DAY_MS - 1, [7, 8, 9]), (DAY_MS, [8, 9]), (DAY_MS + 2, [8])])
def test_producers_expire_between_segments(tmp_path: Path, later: int, left: list[int]) -> None:
    """Those with an open transaction do not, and those of a segment itself do not before the next one."""
    first = data_batch(0) + data_batch(1, producer_id=8, base_sequence=0, transactional=True)
    first += data_batch(2, producer_id=9, base_sequence=0, timestamp=T + 2)
    segments = [PartSegment(0, first), PartSegment(3, b"")]
    directory = put(tmp_path, logs_of(segments))
    plan = plan_of(directory, segments, now_ms=T + later)
    assert [entry[0] for entry in entries(result(plan)[segment_file_name(3, ".snapshot")])] == [7, 8, 9]
    more = [segments[0], PartSegment(3, data_batch(3, producer_id=10, base_sequence=0, timestamp=T))]
    plan = plan_of(put(directory, logs_of(more)), more, now_ms=T + later)
    for each in (plan, slowly(plan)):
        assert [entry[0] for entry in entries(result(each)[segment_file_name(4, ".snapshot")])] == [*left, 10]


def test_a_snapshot_that_stays_is_believed_and_one_that_is_refused_is_not(tmp_path: Path) -> None:
    segments = [PartSegment(0, data_batch(0)), PartSegment(1, data_batch(1))]
    older = producer_snapshot.build([ProducerEntry(77, 0, 5, 0, 0, T, 3, -1)])
    directory = put(tmp_path, logs_of(segments) | {segment_file_name(1, ".snapshot"): older})
    wanted = [segment_file_name(2, ".snapshot")]
    for walked in ([False, True], [False, False]):
        found = result(plan_of(directory, segments, rebuilt=wanted, walked=walked))
        assert [entry[0] for entry in entries(found[wanted[0]])] == [7, 77]
    put(directory, {segment_file_name(1, ".snapshot"): older[:-1] + b"\1"})
    found = result(plan_of(directory, segments, rebuilt=wanted))
    assert [entry[0] for entry in entries(found[wanted[0]])] == [7]


@pytest.mark.parametrize("index_bytes", [0, 7, 8, 12, 24, 25, 36, 40])
def test_indexes_have_a_largest_size(tmp_path: Path, index_bytes: int) -> None:
    batches = [data_batch(offset, timestamp=T + offset) for offset in range(9)]
    found = alone(tmp_path, *batches, index_interval_bytes=0, segment_index_bytes=index_bytes)
    offsets, times = found[segment_file_name(0, ".index")], found[segment_file_name(0, ".timeindex")]
    assert offsets is not None
    assert times is not None
    assert (len(offsets), len(times)) == (index_bytes // 8 * 8, index_bytes // 12 * 12)
    assert not times or times.endswith(struct.pack(">qi", T + 8, 8))


def test_as_far_as_a_broker_would_read(tmp_path: Path) -> None:
    """Companions of a log that is not touched, though it is damaged."""
    first = build.marker("ABORT", base_offset=1, timestamp=T + 1)
    batches = [data_batch(0, transactional=True), first, data_batch(2, timestamp=T + 2), data_batch(3)]
    segments = [PartSegment(0, b"".join(batches[:3]) + batches[3][:-1] + b"?")]
    directory = put(tmp_path, logs_of(segments))
    wanted = [segment_file_name(0, suffix) for suffix in INDEXES]
    found = result(plan_of(directory, segments, rebuilt=wanted, index_interval_bytes=0, verified=False))
    assert found == dict(
        zip(
            wanted,
            (
                build.offset_index((1, len(batches[0])), (2, len(batches[0]) + len(first))),
                build.time_index((T + 1, 1), (T + 2, 2)),
                build.transaction_index((7, 0, 1, 2)),
            ),
            strict=True,
        )
    )
    plan = plan_of(directory, segments, rebuilt=wanted[:2], index_interval_bytes=0, verified=False)
    assert result(plan) == {name: found[name] for name in wanted[:2]}


def test_a_log_made_of_pieces(tmp_path: Path) -> None:
    batches = [data_batch(offset) for offset in range(4)]
    size = len(batches[0])
    directory = put(tmp_path, {"x.log": b"".join(batches), "y": b"?" + batches[1]})
    pieces = (Piece("x.log", 0, size), Piece("y", 1, 1 + size), Piece("x.log", 2 * size, 4 * size))
    plan = Plan(
        str(directory),
        None,
        RecoverOptions(index_interval_bytes=0),
        after={
            segment_file_name(0, ".index"): REBUILT,
            segment_file_name(0, ".log"): FileContent(pieces),
            "z": FileContent(data=b"z"),
            "gone": None,
        },
        segments=(PlannedSegment(0, pieces, True, True),),
    )
    found = result(plan)
    assert found == {segment_file_name(0, ".index"): build.offset_index((1, size), (2, 2 * size), (3, 3 * size))}
    for name, data in ((segment_file_name(0, ".log"), b"".join(batches)), ("z", b"z"), ("y", b"?" + batches[1])):
        source = view(plan, name)
        buffer = bytearray(source.size)
        source.readinto(0, memoryview(buffer))
        source.close()
        assert buffer == data
    for name in ("gone", segment_file_name(0, ".index"), "never"):
        with pytest.raises(SourceError):
            view(plan, name)


def test_bytes_that_are_gone(tmp_path: Path) -> None:
    segments = [PartSegment(0, data_batch(0) + data_batch(1))]
    plan = plan_of(put(tmp_path, logs_of(segments)), segments)
    put(tmp_path, logs_of([PartSegment(0, data_batch(0))]))
    with pytest.raises(SourceError, match="ends at byte"):
        result(plan)


def test_it_tells_how_far_it_is(tmp_path: Path) -> None:
    _, segments = partition(1)
    reported: list[int] = []
    plan = plan_of(put(tmp_path, logs_of(segments)), segments)
    assert list(rebuild.rebuild_companions(plan.rebuild_request(), reported.append))
    assert sum(reported) == sum(len(segment.data) for segment in segments)


def test_entries_need_a_base_offset() -> None:
    with pytest.raises(ValueError, match="base offset"):
        IndexTracker(-1)
    assert IndexTracker(0).built(Scanner(0).state()) is None


# ------------------------------------------------------------------------------------------------------- packed entries

packed = struct.Struct(">qhiqiqiq")
producer_ids = st.one_of(
    st.integers(0, 40).map(lambda number: number * 16), st.integers(0, 5000), st.integers(0, 2**63 - 1)
)


@given(st.lists(producer_ids, unique=True, max_size=200))
def test_entries_in_the_order_of_a_hash_map(producers: list[int]) -> None:
    known = [ProducerEntry(producer, 0, 1, 2, 0, T, -1, -1) for producer in producers]
    body = b"".join(packed.pack(*entry) for entry in known)
    assert producer_snapshot.enclose(kernel.hash_ordered(body)) == producer_snapshot.build(known)


@given(st.integers(0, 9), st.integers(0, 9))
def test_entries_backwards(count: int, start: int) -> None:
    rows = [bytes([number]) * 46 for number in range(count)]
    if start > count:
        with pytest.raises(ValueError, match="entry"):
            kernel.backwards(b"".join(rows), 46 * start)
    else:
        assert kernel.backwards(b"".join(rows), 46 * start) == b"".join(rows[:start] + rows[start:][::-1])


def test_entries_that_have_expired() -> None:
    """As in Java's arithmetic, which a time far from now overflows."""
    ages = {0: True, 99: True, 100: False, 1 << 62: False, -5: True}
    known = [ProducerEntry(number, 0, 1, 2, 0, 7 - age, -1, -1) for number, age in enumerate(ages)]
    known += [entry._replace(producer_id=50, current_txn_first_offset=0) for entry in known[2:3]]
    known.append(known[0]._replace(producer_id=60, timestamp=-(1 << 63)))
    left = kernel.unexpired(b"".join(packed.pack(*entry) for entry in known), 7, 100)
    assert [entry[0] for entry in packed.iter_unpack(left)] == [0, 1, 4, 50, 60]


@pytest.mark.parametrize("odd", [b"x", b"x" * 45, b"x" * 47])
def test_no_whole_entries(odd: bytes) -> None:
    for function in (
        kernel.hash_ordered,
        lambda data: kernel.unexpired(data, 0, 0),
        lambda data: kernel.backwards(data, 0),
    ):
        with pytest.raises(ValueError, match="whole number"):
            function(odd)


# ----------------------------------------------------------------------------------------------- while it is copied


def scans_of(plan: Plan, segments: Sequence[PartSegment], rng: random.Random) -> dict[str, rebuild.SegmentScan]:
    """A scan of each segment, whose bytes come in pieces."""
    scans = {}
    for segment in segments:
        limits = rebuild.IndexLimits(plan.options.index_interval_bytes, plan.options.segment_index_bytes)
        scan = rebuild.SegmentScan(segment.base_offset, len(segment.data), limits)
        cuts = sorted(rng.randrange(len(segment.data) + 1) for _ in range(rng.randrange(6)))
        for start, stop in itertools.pairwise([0, *cuts, len(segment.data)]):
            scan.add(segment.data[start:stop])
        scans[segment_file_name(segment.base_offset, ".log")] = scan
    return scans


def test_a_segment_that_is_walked_while_it_is_copied_need_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    scan_segment = rebuild.scan_segment

    def noted(source: PiecesSource, *rest: object) -> rebuild.SegmentIndexes | None:
        read.append(source.name)
        return scan_segment(source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(rebuild, "scan_segment", noted)
    for number in range(60):
        rng = random.Random(number)
        segments = build.partition(rng, odd=rng.choice((0, 0, 0.1)), odd_steps=LOADED_STEPS)
        plan = plan_of(put(tmp_path / str(number), logs_of(segments)), segments, index_interval_bytes=100)
        wanted = result(plan)
        scans = scans_of(plan, segments, rng)
        read.clear()
        assert dict(rebuild.rebuild_companions(plan.rebuild_request(), scans=scans)) == wanted, number
        complete = {name for name, scan in scans.items() if scan.result() is not None}
        assert complete.isdisjoint(read), number
    scan = next(iter(scans.values()))
    scan.add(b"\0")
    assert scan.result() is not None  # what comes after the end is not looked at


def test_a_copy_that_is_not_whole_says_nothing() -> None:
    data = build.batch([build.record()])
    limits = rebuild.IndexLimits(4096, 1 << 20)
    scan = rebuild.SegmentScan(0, len(data), limits)
    scan.add(data[:-1])
    assert scan.result() is None
    scan.add(data[-1:])
    assert scan.result() is not None
    scan = rebuild.SegmentScan(0, len(data), limits)
    scan.add(bytes([*data[:-1], data[-1] ^ 1]))
    assert scan.result() is None
