"""Batches that a sketch takes from a scan are in it as if they had come row by row."""

from __future__ import annotations

import random
import struct
from array import array

import pytest

from kdump.kernel.record_hashes import SIPHASH_IMPLS, BatchSketcher, RecordHasher
from kdump.kernel.scan import SCAN_STOPPED, Scanner
from kdump.kernel.sketches import RecordSketch, facts_of
from kdump.kernel.transactions import COMMITTED, UncommittedBatches
from support import build
from support.laws import SEED, examples

KEY = bytes(range(16))
STOP = 1 << 62
MOST_JOBS, MOST_RUNS = 256, 256  # those of the kernel


def sketch_of(start: int) -> RecordSketch:
    return RecordSketch(start, array("q", [start + 300]), blocks=4, bits=5)


def hasher_of(start: int, implementation: str = SIPHASH_IMPLS[-1], capacity: int = 2048) -> RecordHasher:
    return RecordHasher(KEY, start, STOP, keys=False, capacity=capacity, implementation=implementation)


def scanned(log: bytes, taker: BatchSketcher | None, position: int = 0) -> Scanner:
    scanner = Scanner(everything=True, capacity=1 << 14, taker=taker)
    stop = position + len(log)
    assert scanner.scan(memoryview(log), 0, len(log), position, stop, stop) == SCAN_STOPPED
    return scanner


def taken(log: bytes, start: int = 0, uncommitted: UncommittedBatches | None = None) -> tuple[BatchSketcher, int]:
    """What takes the batches of a log, and how many it left."""
    taker = BatchSketcher(hasher_of(start), sketch_of(start), uncommitted, start)
    return taker, scanned(log, taker).count


def described(sketch: RecordSketch, stop: int) -> tuple[object, ...]:
    return sketch.cuts(stop), sketch.cells(stop), sketch.newest_ends(), sketch.keyed, sketch.unkeyed


def random_batch(choose: random.Random, offset: int, epoch: int, most: int) -> tuple[bytes, int]:
    key = choose.choice([None, b"key", b"a longer key of twenty bytes"])
    if most == 1:
        return build.message(choose.randrange(2), key, choose.randbytes(choose.randrange(90)), offset=offset), 1
    if choose.random() < 0.1:
        return build.marker("COMMIT", base_offset=offset, producer_id=7, epoch=epoch), 1
    count = choose.randrange(1, most)
    values = [choose.choice([None, b"", choose.randbytes(choose.randrange(1, 200))]) for _ in range(count)]
    if choose.random() < 0.05:
        values[0] = choose.randbytes(choose.randrange(1000, 5000))
    records = [build.record(key, value) for value in values]
    kind = choose.choice(["CreateTime", "LogAppendTime"])
    return build.batch(records, base_offset=offset, epoch=epoch, timestamp_type=kind), count


@pytest.mark.parametrize("implementation", SIPHASH_IMPLS)
@pytest.mark.parametrize(("batches", "most"), [(5000, 2), (300, 20), (12, 1200)])
def test_a_taken_batch_is_added_as_its_rows_are(implementation: str, batches: int, most: int) -> None:
    for trial in range(examples(4)):
        choose = random.Random(1000 * SEED + trial)
        offset = begin = choose.randrange(1000)
        parts, epoch, legacy = list[bytes](), 0, choose.randrange(batches)
        for _ in range(choose.randrange(1, batches)):
            epoch += choose.random() < 0.02
            data, count = random_batch(choose, offset, epoch, most if len(parts) > legacy else 1)
            parts.append(data)
            offset += count + (choose.random() < 0.1)
        log, start = b"".join(parts), begin + choose.choice([0, 0, 2])
        rows = scanned(log, None)
        expected, hasher, at = sketch_of(start), RecordHasher(KEY, start, STOP, keys=False, capacity=1 << 16), 0
        while at < len(log):
            at, status = hasher.hash_batches(log, at, COMMITTED)
            assert status == 0
            expected.add(hasher.rows, hasher.count, hasher.ends, hasher.ended)
        found = sketch_of(start)
        taker = BatchSketcher(hasher_of(start, implementation, choose.choice([2, 255, 2048])), found)
        position = 0
        while position < len(log):  # in several scans
            count = choose.randrange(1, len(parts) + 1)
            piece = b"".join(parts[:count])
            del parts[:count]
            assert scanned(piece, taker, position).count == 0
            position += len(piece)
        assert not taker.failed
        assert described(found, offset + 9) == described(expected, offset + 9)
        first, stop, ordered, reach, *others = facts_of(rows.rows, rows.count, 0)
        assert (ordered, reach, taker.facts()) == (True, -1, (first, stop, *others))
        assert taker.facts() is None


def test_what_is_not_taken() -> None:
    """Its row says what it is, and so do those of all batches after it in the scan."""
    plain, record = build.batch([build.record(b"a")], base_offset=1), build.record(b"b")
    after = build.batch([record], base_offset=9)
    for each in (
        build.batch([record], base_offset=5, codec="gzip"),
        build.batch([record], base_offset=5, producer_id=1, transactional=True),
        build.batch([record], base_offset=5, last_offset_delta=1),  # a record is missing
        build.batch([record], base_offset=5, count=0),
        build.batch([record], base_offset=5, count=1000, last_offset_delta=999),
        build.batch([record], base_offset=5, attributes=0x40),  # a delete horizon
        build.batch([record], base_offset=-5),
        build.batch([record], base_offset=0),  # below the one before
        build.batch([record], base_offset=(1 << 63) - 1),
        build.wrapper([record], codec="gzip", magic=1),
    ):
        taker, left = taken(plain + each + after)
        assert (left, taker.failed) == (2, False)
        facts = taker.facts()
        assert facts is not None
        assert facts[:3] == (1, 2, [(facts[2][0][0], 1, 1, 1)])
        assert facts[3:] == (0, 0, len(plain), 2)


def test_a_stopped_taker_takes_nothing() -> None:
    log = build.batch([build.record(b"a")])
    taker = BatchSketcher(hasher_of(0), sketch_of(0))
    taker.stop()
    assert scanned(log, taker).count == 1
    assert taker.facts() is None


def test_records_that_cannot_be_read() -> None:
    """The sketch is of no use then: some of them may be in it."""
    whole = build.batch([build.record(b"key", b"\xff" * 100) for _ in range(600)])
    broken = bytearray(whole)
    at = whole.rindex(b"\x06key")
    broken[at] = 0x7E
    for log in (
        build.reseal(bytes(broken)),
        build.reseal(whole[:57] + struct.pack(">i", 600) + bytes(len(whole) - 61)),
    ):
        taker, left = taken(log)
        assert (left, taker.failed, taker.facts()) == (1, True, None)


def test_data_of_transactions_is_noted() -> None:
    data = [build.batch([build.record(b"a")], base_offset=each, producer_id=1, transactional=True) for each in range(5)]
    log = b"".join((*data, build.marker("ABORT", base_offset=5, producer_id=1)))
    uncommitted = UncommittedBatches(10)
    uncommitted.begin(3)
    taker, left = taken(log, 2, uncommitted)
    size = len(data[0])
    assert (left, taker.failed) == (0, False)
    assert [*uncommitted.take()] == [(3, each * size, 1, each, 1) for each in range(2, 5)]
    assert [*uncommitted.take()] == []
    part, whole = UncommittedBatches(10), UncommittedBatches(4)
    taken(log, 2, part)
    whole.begin(3)
    assert whole.extend(part.packed()) is True
    assert whole.extend(part.packed()) is False  # there is no room
    whole = UncommittedBatches(10)
    whole.begin(3)
    assert whole.extend(part.packed()) is True
    assert [*whole.take()] == [(3, each * size, 1, each, 1) for each in range(2, 5)]
    with pytest.raises(ValueError, match="cut"):
        whole.extend(bytes(7))
    full = UncommittedBatches(2)
    taker, left = taken(log, 0, full)
    assert (left, taker.failed) == (4, False)


def test_leader_epochs_are_bounded() -> None:
    several = [build.batch([build.record(b"a")], base_offset=each, epoch=each) for each in range(MOST_RUNS + 5)]
    taker, left = taken(b"".join(several))
    facts = taker.facts()
    assert facts is not None
    assert (left, facts[1], len(facts[2])) == (5, MOST_RUNS, MOST_RUNS)


def test_records_below_the_start_are_left_out() -> None:
    """Also where no record of as many batches as wait for their hashes is wanted."""
    log = b"".join(build.batch([build.record(b"a")], base_offset=each) for each in range(3 * MOST_JOBS))
    taker, left = taken(log, 3 * MOST_JOBS - 1)
    assert (left, taker.failed) == (0, False)


def test_what_is_no_taker() -> None:
    with pytest.raises(ValueError, match="capacity"):
        BatchSketcher(RecordHasher(KEY, 0, STOP, capacity=1), sketch_of(0))


def test_no_offset_is_after_the_highest_one() -> None:
    rows = scanned(build.batch([build.record(b"a")], base_offset=(1 << 63) - 1), None)
    first, stop, ordered, _, runs, *_ = facts_of(rows.rows, rows.count, 0)
    assert (first, stop, ordered, runs) == ((1 << 63) - 1, -(1 << 63), True, [(0, first, first, 1)])
