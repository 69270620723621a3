"""Whether copies of a topic-partition mean the same: healthy ones agree, whatever their bytes, and others are found."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kdump
from kdump.broker.metadata_image.metadata_log import find_metadata_log
from kdump.broker.metadata_image.replica_history import read_histories
from kdump.engine.protocol import Result, Serial, Task
from kdump.format.index import AbortedTransaction, build_transaction_index
from kdump.kernel.records import RECORD_COLUMNS, decode
from kdump.replicas.compare import CompareOptions, PartitionComparison, compare_logs
from kdump.replicas.comparison import ReplicaComparison, Verdict
from kdump.replicas.findings import comparison_findings
from support import build, finding_rules
from support.command_runs import run_inside
from support.directories import OTHER_TOPIC_ID, TOPIC_ID, metadata
from support.laws import QUICK, SEED, examples
from support.metadata_logs import Change, change, snapshot, snapshot_name, value_of
from support.plain_cleaner import Written, cleaned
from support.replica_cluster import Cluster, written
from support.siphash import siphash

AGREE, DIVERGED, UNDECIDED = Verdict.AGREE, Verdict.DIVERGED, Verdict.UNDECIDED


def directory(
    broker: Path, batches: Sequence[bytes], roll: int = 4, *, checkpoints: Mapping[str, int] | None = None
) -> Path:
    """A copy of t-0 in a log directory; a segment has `roll` batches."""
    place = broker / "t-0"
    place.mkdir(parents=True)
    for number in range(0, len(batches), roll):
        part = batches[number : number + roll]
        is_first = not number and "cleaner-offset-checkpoint" in (checkpoints or {})
        base = 0 if is_first else int.from_bytes(part[0][:8])
        (place / f"{base:020}.log").write_bytes(b"".join(part))
    (place / "partition.metadata").write_bytes(metadata())
    (broker / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=c\n")
    for name, offset in (checkpoints or {}).items():
        (broker / name).write_bytes(build.checkpoint(f"t 0 {offset}"))
    return broker


def compared(*brokers: Path, **how: Any) -> list[PartitionComparison]:
    results = list(compare_logs(kdump.discover(list(map(str, brokers))), CompareOptions(**how)))
    assert all(isinstance(each, PartitionComparison) for each in results)
    return [each for each in results if isinstance(each, PartitionComparison)]


def pair(one: Path, other: Path, **how: int) -> ReplicaComparison:
    (found,) = compared(one, other, **how)
    (both,) = found.pairs
    return both


def data(
    offset: int, key: bytes | None, value: bytes | None, *, pid: int = -1, epoch: int = 0, producer_epoch: int = 0
) -> bytes:
    producer = {"producer_id": pid, "producer_epoch": producer_epoch, "base_sequence": 0}
    how = {"transactional": True, **producer} if pid >= 0 else {}
    return build.batch([build.record(key, value, timestamp=1000 + offset)], base_offset=offset, epoch=epoch, **how)


def marker(offset: int, how: str, pid: int = 7, **fields: int) -> bytes:
    return build.marker(how, base_offset=offset, producer_id=pid, **fields)


def plain(count: int = 12) -> list[bytes]:
    return [data(number, b"k%d" % (number % 4), b"v%d" % number) for number in range(count)]


CLEANED = {"cleaner-offset-checkpoint": 10}
SLOW = {"cleaner-offset-checkpoint": 1}
K, V = b"k", b"v"


class Case(NamedTuple):
    left: list[bytes]
    right: list[bytes]
    left_reach: Mapping[str, int] = CLEANED
    right_reach: Mapping[str, int] = CLEANED


PUT, GONE, END = data(0, K, V), data(1, K, None), [data(number, b"e%d" % number, b"") for number in range(8, 12)]
WRITTEN = data(2, K, V, pid=7)
OPEN = [data(0, K, V), data(1, K, V, pid=7), data(2, b"m", V, pid=7), data(3, b"e", V)]
FETCHED = [PUT, data(1, b"t", V, pid=7), data(5, b"u", V, pid=7)]
"""What a broker got from one that had cleaned its log, over whose missing offsets a transaction goes on."""

HEALTHY = {
    "the same": Case(plain(), plain(), {}, {}),
    "cleaned, and not yet": Case(plain()[6:10] + plain()[10:], plain(), CLEANED, SLOW),
    "an expired tombstone": Case([*END], [PUT, GONE, *END], CLEANED, SLOW),
    "a tombstone that is still there": Case([GONE, *END], [*END]),
    "an aborted record that is gone": Case(
        [marker(3, "ABORT"), *END], [WRITTEN, marker(3, "ABORT"), *END], CLEANED, SLOW,
    ),
    "a later record explains it": Case(
        [*END, data(12, K, b"new")], [PUT, *END], {"cleaner-offset-checkpoint": 13}, SLOW,
    ),
    "one that lags": Case(plain(), plain(7), {}, {}),
    "another log start": Case(plain(), plain()[4:], {}, {}),
    "another delete horizon": Case(
        [build.batch([build.record(K, None, timestamp=5000)], base_offset=1, delete_horizon_ms=7000), *END],
        [build.batch([build.record(K, None, timestamp=5000)], base_offset=1, delete_horizon_ms=9000), *END],
    ),
    "another codec": Case(
        [build.batch([build.record(K, V)], base_offset=1, codec="gzip"), *END],
        [build.batch([build.record(K, V)], base_offset=1), *END],
    ),
    "open in both": Case([WRITTEN, *END], [WRITTEN, *END]),
    "open in both, and the log of one begins after its first record": Case(OPEN, OPEN[2:], {}, {}),
    "fetched from a cleaned one, a transaction committed": Case(
        [*FETCHED, marker(6, "COMMIT"), *END], [*FETCHED, marker(6, "COMMIT"), *END], CLEANED, {},
    ),
    "fetched from a cleaned one, a transaction aborted": Case(
        [*FETCHED, marker(6, "ABORT"), *END], [*FETCHED, marker(6, "ABORT"), *END], CLEANED, {},
    ),
}  # fmt: skip
DIVERGENT = {
    "the tombstone was lost": (Case([*END], [PUT, *END]), "keys"),
    "an older value": (Case([data(1, K, b"new"), *END], [PUT, *END]), "keys"),
    "the abort was lost, a later commit": (Case([*END], [WRITTEN, marker(5, "COMMIT"), *END]), "keys"),
    "committed here, aborted there": (
        Case([WRITTEN, marker(3, "COMMIT"), *END], [WRITTEN, marker(5, "ABORT"), *END]), "outcomes keys",
    ),
    "the marker was lost": (Case([WRITTEN, marker(3, "COMMIT"), *END], [WRITTEN, *END]), "open_right keys"),
    "fetched from a cleaned one, without the marker": (
        Case([PUT, *END], [*FETCHED[:2], *END], CLEANED, {}), "open_right",
    ),
    "another record": (Case(plain(), [*plain(5), data(5, b"k1", b"x5"), *plain()[6:]], {}, {}), "records"),
    "a hole in a log that no cleaner went over": (
        Case([data(n, None, b"v") for n in range(8)], [data(n, None, b"v") for n in range(8) if n != 3], {}, {}),
        "missing_right",
    ),
}  # fmt: skip


def copies(tmp_path: Path, case: Case, roll: int = 4) -> tuple[Path, Path]:
    one = directory(tmp_path / "1", case.left, roll, checkpoints=case.left_reach)
    return one, directory(tmp_path / "2", case.right, 3, checkpoints=case.right_reach)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_copies_agree(name: str, tmp_path: Path) -> None:
    one, other = copies(tmp_path, HEALTHY[name])
    found = pair(one, other)
    assert pair(other, one) == found
    assert (found.verdict, found.because) == (AGREE, ())


@pytest.mark.parametrize("name", DIVERGENT)
@pytest.mark.parametrize("most_keys", [1, 1000])
def test_what_diverged_is_found(name: str, most_keys: int, tmp_path: Path) -> None:
    case, what = DIVERGENT[name]
    found = pair(*copies(tmp_path, case), most_keys=most_keys)
    assert found.verdict is DIVERGED
    shown = {
        "keys": found.differs.keys.keys, "outcomes": found.differs.outcomes.count,
        "records": found.differs.records.count, "missing_right": found.differs.missing_right.count,
        "open_right": len(found.differs.open_right), "open_left": len(found.differs.open_left),
        "missing_left": found.differs.missing_left.count, "epochs": found.differs.epochs.count,
    }  # fmt: skip
    assert {name: count for name, count in shown.items() if count} == dict.fromkeys(what.split(), 1)


def test_what_a_key_would_be(tmp_path: Path) -> None:
    found = pair(*copies(tmp_path, DIVERGENT["an older value"][0])).differs.keys
    assert (found.older_right, found.offsets[0][1:3]) == (1, (1, 0))
    found = pair(*copies(tmp_path / "x", DIVERGENT["the tombstone was lost"][0])).differs.keys
    assert (found.only_right, found.offsets[0][1:3]) == (1, (-1, 0))


def test_a_copy_that_lags_is_not_comparable_before_it_has_caught_up(tmp_path: Path) -> None:
    ahead = [*END, data(12, b"z", None), data(13, b"y", V)]
    one, other = copies(tmp_path, Case(ahead, [PUT, *END], {"cleaner-offset-checkpoint": 14}, SLOW))
    found = pair(one, other)
    assert (found.verdict, found.undecided_keys, found.because) == (UNDECIDED, 1, ("reach",))


def test_a_damaged_batch_is_damage_and_no_divergence(tmp_path: Path) -> None:
    one, other = directory(tmp_path / "1", plain()), directory(tmp_path / "2", plain())
    log = other / "t-0" / f"{4:020}.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    found = pair(one, other)
    assert (found.verdict, found.because) == (UNDECIDED, ("damage",))


def test_the_tail_of_a_copy_that_was_taken_while_a_broker_wrote(tmp_path: Path) -> None:
    one, other = directory(tmp_path / "1", plain()), directory(tmp_path / "2", plain(9))
    log = other / "t-0" / f"{8:020}.log"
    log.write_bytes(log.read_bytes() + plain()[9][:40])
    found = pair(one, other)
    assert (found.verdict, found.end_offset) == (AGREE, 9)


def test_holes_that_a_cleaner_may_have_made_are_undecided(tmp_path: Path) -> None:
    one, other = directory(tmp_path / "1", plain()), directory(tmp_path / "2", [*plain(2), *plain()[5:]])
    found = pair(one, other)
    assert (found.verdict, found.because) == (UNDECIDED, ("cleaned",))


@pytest.mark.parametrize(
    ("mark", "verdict", "because"), [(9, DIVERGED, ()), (5, AGREE, ()), (None, UNDECIDED, ("no-high-watermark",))]
)
def test_a_fork(mark: int | None, verdict: Verdict, because: tuple[str, ...], tmp_path: Path) -> None:
    marks = {} if mark is None else {"replication-offset-checkpoint": mark}
    tails = [[data(number, b"f", b"%d" % epoch, epoch=epoch) for number in range(6, 9)] for epoch in (1, 2)]
    one, other = (
        directory(tmp_path / str(number), [*plain(6), *tail], checkpoints=marks) for number, tail in enumerate(tails)
    )
    found = pair(one, other)
    assert (found.verdict, found.because, found.end_offset, found.differs.fork) == (verdict, because, 6, 6)


def test_another_topic_of_the_name_is_not_compared(tmp_path: Path) -> None:
    one, other = directory(tmp_path / "1", plain()), directory(tmp_path / "2", plain(3))
    (other / "t-0" / "partition.metadata").write_bytes(metadata(OTHER_TOPIC_ID))
    assert [each.pairs for each in compared(one, other)] == [(), ()]


def test_the_majority_says_which_copy_is_stale(tmp_path: Path) -> None:
    wrong = [*plain(5), data(5, b"k1", b"x"), *plain()[6:]]
    three = [directory(tmp_path / str(number), log) for number, log in enumerate([plain(), wrong, plain()])]
    (found,) = compared(*three)
    assert found.stale == str(three[1] / "t-0")
    assert compared(*three[:2])[0].stale is None


@pytest.mark.laws
def test_any_record_that_was_changed_under_a_right_checksum_is_located(tmp_path: Path) -> None:
    for trial in range(examples(500)):
        choose = random.Random(100_000 * SEED + trial)
        count = choose.randrange(2, 12)
        batches, at = list[list[build.Record]](), 0
        for _ in range(count):
            size = choose.randrange(1, 4)
            records = [build.record(b"k%d" % choose.randrange(4), b"v%d" % (at + n)) for n in range(size)]
            batches.append(records)
            at += size
        changed, number = choose.randrange(count), 0
        first = sum(map(len, batches[:changed]))
        inside = choose.randrange(len(batches[changed]))
        others = [list(each) for each in batches]
        others[changed][inside] = others[changed][inside]._replace(value=b"changed")
        logs = []
        for records_of in (batches, others):
            offset, log = 0, list[bytes]()
            for records in records_of:
                log.append(build.batch(records, base_offset=offset))
                offset += len(records)
            logs.append(log)
        number = first + inside
        place = tmp_path / str(trial)
        choose.shuffle(logs)
        one = directory(place / "1", logs[0], choose.randrange(1, 5))
        found = pair(one, directory(place / "2", logs[1], choose.randrange(1, 5)))
        assert (found.differs.records.count, found.differs.records.first) == (1, number), trial


class CleanedLog(NamedTuple):
    """What producers wrote, and what a log cleaner left of it in each of two copies."""

    whole: dict[int, build.Record]
    cleaned: tuple[list[bytes], list[bytes]]
    reach: tuple[int, int]


def cleaned_log(choose: random.Random) -> CleanedLog:
    log, end = list[Written](), 0
    for _ in range(choose.randrange(5, 25)):
        records = tuple(
            build.record(b"k%d" % choose.randrange(9), choose.choice([None, b"v%d" % (end + number)]), timestamp=9)
            for number in range(choose.randrange(1, 5))
        )
        log.append(Written(end, records))
        end += len(records)
    whole = {each.first + number: record for each in log for number, record in enumerate(each.records)}
    reach = choose.randrange(end), choose.randrange(end)
    copies = [cleaned(log, stop, without_tombstones=choose.random() < 0.5) for stop in reach]
    last = build.batch([build.record(b"end", b"")], base_offset=end)
    return CleanedLog(whole, ([*copies[0], last], [*copies[1], last]), reach)


def written_copies(place: Path, log: CleanedLog, choose: random.Random) -> tuple[Path, Path]:
    one, other = (
        directory(
            place / str(number),
            batches,
            choose.randrange(1, 9),
            checkpoints={"cleaner-offset-checkpoint": max(reach, 1)},
        )
        for number, (batches, reach) in enumerate(zip(log.cleaned, log.reach, strict=True))
    )
    return one, other


@pytest.mark.laws
def test_cleaned_copies_agree_whatever_their_segments_the_order_of_paths_and_the_memory(tmp_path: Path) -> None:
    for trial in range(examples(100)):
        choose = random.Random(100_000 * SEED + trial)
        one, other = written_copies(tmp_path / str(trial), cleaned_log(choose), choose)
        found = pair(one, other)
        assert (found.verdict, found.because) == (AGREE, ()), trial
        assert pair(other, one) == found
        few = pair(one, other, most_keys=choose.randrange(1, 5))
        assert few._replace(keys=0) == found._replace(keys=0)


@pytest.mark.laws
def test_the_last_record_of_a_key_that_a_cleaned_copy_lost_is_located(tmp_path: Path) -> None:
    for trial in range(examples(100)):
        choose = random.Random(100_000 * SEED + trial)
        log = cleaned_log(choose)
        last = {record.key: offset for offset, record in log.whole.items()}
        live = [offset for offset in last.values() if log.whole[offset].value is not None]
        if not live:
            continue
        lost, side = choose.choice(live), choose.randrange(2)
        records = {**log.whole, max(log.whole) + 1: build.record(b"end", b"")}
        batches = [each for each in log.cleaned[side] if offsets_of(each) != [lost]]
        for number, each in enumerate(batches):
            if lost in offsets_of(each):
                first, span = int.from_bytes(each[:8]), int.from_bytes(each[23:27])
                kept = [records[offset]._replace(offset=offset) for offset in offsets_of(each) if offset != lost]
                batches[number] = build.batch(kept, base_offset=first, last_offset_delta=span)
        copies_of = [*log.cleaned]
        copies_of[side] = batches
        log = log._replace(cleaned=(copies_of[0], copies_of[1]), reach=(max(records), max(records)))
        one, other = written_copies(tmp_path / str(trial), log, choose)
        for most_keys in (2, 1000):
            found = pair(one, other, most_keys=most_keys)
            assert (found.verdict, found.differs.keys.keys) == (DIVERGED, 1), trial
            (key,) = found.differs.keys.offsets
            assert (key.right, key.left)[side] == lost > (key.left, key.right)[side]
            assert key.key_hash == siphash(log.whole[lost].key or b"", bytes(16)).hex()
        assert not any(found.differs[number].count for number in (2, 3, 4))


@pytest.mark.laws
def test_the_answer_depends_on_the_records_alone(tmp_path: Path) -> None:
    """Whatever the segments and the memory, also where transactions and records differ."""
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        log = list[bytes]()
        for offset in range(choose.randrange(8, 40)):
            pid = choose.choice([-1, -1, 7, 8])
            how = choose.choice(["COMMIT", "ABORT"])
            value = choose.choice([None, V, b"other"])
            is_marker = pid >= 0 and choose.random() < 0.4
            key = b"k%d" % choose.randrange(5)
            log.append(marker(offset, how, pid) if is_marker else data(offset, key, value, pid=pid))
        log.append(data(len(log), b"end", V))
        sides = [[each for each in log[:-1] if choose.random() < 0.85] + log[-1:] for _ in range(2)]
        reach = [choose.randrange(1, len(log)) for _ in sides]
        answers = []
        for roll, most_keys in (1, 1), (3, 2), (99, 1000):
            place = tmp_path / str(trial) / str(roll)
            brokers = [
                directory(place / str(side), batches, roll, checkpoints={"cleaner-offset-checkpoint": reach[side]})
                for side, batches in enumerate(sides)
            ]
            found = pair(*brokers, most_keys=most_keys)
            answers.append(found._replace(left="", right="", batches=0, records=0, keys=0))
        assert answers[0] == answers[1] == answers[2], trial


def offsets_of(batch: bytes) -> list[int]:
    """The offsets of the records of an uncompressed batch."""
    rows = memoryview(decode(batch[61:], int.from_bytes(batch[57:61]), int.from_bytes(batch[:8]), 0)[0]).cast("q")
    return rows[RECORD_COLUMNS.index("offset") :: len(RECORD_COLUMNS)].tolist()


class Slots(Serial):
    """Says that several tasks run at once, and counts the ranges that it is given, and those that were the same."""

    slots = 3

    def __init__(self) -> None:
        self.ranges: list[int | None] = []

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        for task, result in super().map(function, tasks):
            if result is None or isinstance(result, int):
                self.ranges.append(result)
            yield task, result


@pytest.mark.laws
def test_ranges_of_large_copies_give_the_same_answer(tmp_path: Path) -> None:
    """Whatever the segments, log starts and ends, and what differs."""
    cut = same = 0
    for trial in range(examples(100)):
        choose = random.Random(100_000 * SEED + trial)
        logs, offset = ([], []), 0
        differs = choose.random() < 0.5
        for _ in range(choose.randrange(4, 30)):
            size, pid = choose.randrange(1, 4), 7 if choose.random() < 0.01 else -1
            for number, log in enumerate(logs):
                value = b"other" if differs and number and choose.random() < 0.05 else b"v"
                records = [build.record(b"k%d" % choose.randrange(4) if differs else b"k", value)] * size
                log.append(build.batch(records, base_offset=offset, epoch=offset // 30, producer_id=pid))
            offset += size
        one, other = logs
        if choose.random() < 0.4:
            one = one[choose.randrange(len(one) - 1) :]
        if choose.random() < 0.4:
            other = other[: choose.randrange(1, len(other))]
        if choose.random() < 0.1:
            del other[choose.randrange(len(other))]
        place, engine = tmp_path / str(trial), Slots()
        brokers = [
            directory(place / name, log, choose.randrange(1, 6)) for name, log in (("1", one), ("2", other)) if log
        ]
        found, how = kdump.discover(list(map(str, brokers))), CompareOptions(range_bytes=choose.choice([1, 200, 500]))
        assert list(compare_logs(found, how, engine=engine)) == compared(*brokers), trial
        cut += len(engine.ranges) > 1
        same += len(engine.ranges) > 1 and None not in engine.ranges
    assert same > 0
    assert cut > same or QUICK


def test_two_processes_give_the_same_answer(tmp_path: Path) -> None:
    for number, name in enumerate(HEALTHY | DIVERGENT):
        case = HEALTHY.get(name) or DIVERGENT[name][0]
        for side, batches in enumerate((case.left, case.right)):
            place = directory(tmp_path / str(side) / str(number), batches)
            (place / "t-0").rename(tmp_path / str(side) / f"t-{number}")
    one, two = (
        run_inside(tmp_path, "verify", "--compare", "--format", "json", "--jobs", jobs, "0", "1").lines[:-1]
        for jobs in "12"
    )
    assert (one, len(one) > 20) == (two, True)


def test_records_that_cannot_be_read_are_no_divergence(tmp_path: Path) -> None:
    torn = build.batch([build.record(b"k1", b"v")], base_offset=5, payload=b"\xff" * 30, count=1)
    one, other = copies(tmp_path, Case(plain(), [*plain(5), torn, *plain()[6:]]))
    found = pair(one, other)
    assert (found.verdict, found.because) == (UNDECIDED, ("records",))


def test_copies_of_a_cluster_with_clean_elections_agree(tmp_path: Path) -> None:
    """Followers lag, fetch and become leaders with all that was written; they never diverge."""
    for seed in range(examples(12)):
        choose = random.Random(seed)
        cluster = Cluster(choose)
        cluster.elect(0)
        for _ in range(25):
            broker = choose.randrange(3)
            if choose.random() < 0.5:
                cluster.append()
            elif broker != cluster.leader:
                cluster.fetch(broker, choose.randrange(1, 6))
                if choose.random() < 0.2 and cluster.end(broker) == cluster.end(cluster.leader):
                    cluster.elect(broker)
        place = tmp_path / str(seed)
        for broker in range(3):
            written(place / str(broker) / "t-0", cluster.logs[broker], cluster.epochs[broker], choose.randrange(1, 7))
        found = compared(place)
        assert {pair.verdict for each in found for pair in each.pairs} <= {AGREE}, seed


FINDINGS = {
    "keys": "replica/state", "outcomes": "replica/transaction", "open_right": "replica/stuck",
    "records": "replica/record", "missing_right": "replica/hole",
}  # fmt: skip


def verify(*brokers: Path) -> tuple[int, list[dict[str, Any]]]:
    ran = run_inside(Path.cwd(), "verify", "--compare", "--format", "json", *map(str, brokers))
    assert ran.err == b""
    return ran.status, [json.loads(line) for line in ran.lines]


@pytest.mark.parametrize("name", DIVERGENT)
def test_each_divergence_is_a_finding_of_the_command(name: str, tmp_path: Path) -> None:
    case, what = DIVERGENT[name]
    one, other = copies(tmp_path, case)
    status, lines = verify(one, other)
    names = what.split()
    assert (status, [line["type"] for line in lines]) == (1, ["comparison", *["finding"] * len(names), "summary"])
    assert lines[0]["verdict"] == "diverged"
    assert lines[0]["pair"] == [str(one / "t-0"), str(other / "t-0")]
    assert {line["code"] for line in lines[1:-1]} == {FINDINGS[name] for name in names}
    for each in comparison_findings(compared(one, other)[0]):
        finding_rules.check(each)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_copies_have_no_finding(name: str, tmp_path: Path) -> None:
    status, lines = verify(*copies(tmp_path, HEALTHY[name]))
    assert (status, [line["type"] for line in lines]) == (0, ["comparison", "summary"])


@pytest.mark.parametrize(("mark", "severity", "expected"), [(9, "error", 1), (5, "info", 0)])
def test_a_fork_is_an_error_below_a_high_watermark_alone(
    mark: int, severity: str, expected: int, tmp_path: Path
) -> None:
    tails = [[data(number, b"f", b"%d" % epoch, epoch=epoch) for number in range(6, 9)] for epoch in (1, 2)]
    marks = {"replication-offset-checkpoint": mark}
    brokers = [directory(tmp_path / str(n), [*plain(6), *tail], checkpoints=marks) for n, tail in enumerate(tails)]
    status, lines = verify(*brokers)
    found = [(line["code"], line["severity"]) for line in lines if line["type"] == "finding"]
    assert (status, found) == (expected, [("replica/epoch", severity)])


def test_the_text_and_one_copy_alone(tmp_path: Path) -> None:
    one, other = copies(tmp_path, DIVERGENT["the tombstone was lost"][0])
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", str(one), str(other))
    assert ran.status == 1
    assert ran.text.startswith(f"t-0: diverged: {one}/t-0 and {other}/t-0, up to offset 12: ")
    assert (
        f"{one}/t-0:0: error replica/state: keys that end otherwise here than in {other}/t-0 as of offset 12: 1;"
        in ran.text
    )
    assert ran.text.endswith("\n1 topic-partition, 1 pair of copies: 0 agree, 1 diverged, 0 undecided\n")
    assert ("by its name alone" in ran.text) == (compared(one, other)[0].topic_id is None)
    ran = run_inside(tmp_path, "verify", "--compare", str(one))
    assert (ran.status, "no topic-partition has two copies" in ran.problems) == (3, True)


@pytest.mark.parametrize("how", ["ABORT", "COMMIT"])
def test_a_marker_that_only_one_copy_has_is_no_hole(how: str, tmp_path: Path) -> None:
    """Nothing shows a cleaner where it removed whole batches, and markers go with their transactions."""
    first = data(0, b"first", b"")
    case = Case([first, *END], [first, WRITTEN, marker(3, how), data(4, K, V), *END[:-1], data(11, K, V)], {}, {})
    case = case._replace(left=[first, *END[:-1], data(11, K, V)])
    found = pair(*copies(tmp_path, case))
    assert (found.verdict, found.because) == (UNDECIDED, ("cleaned",))
    assert not list(comparison_findings(compared(tmp_path / "1", tmp_path / "2")[0]))


def test_what_is_undecided_is_said_and_no_failure(tmp_path: Path) -> None:
    damaged = [*plain(6), bytes([*plain(7)[6][:-1], 0xFF]), *plain()[7:]]
    one, other = directory(tmp_path / "one", damaged), directory(tmp_path / "other", plain())
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", str(one), str(other))
    assert (ran.status, ran.text.split(": ")[1]) == (0, "undecided")
    assert "a copy is damaged where the other has records" in ran.text
    assert ran.text.endswith(": 0 agree, 0 diverged, 1 undecided\n")
    summary = verify(one, other)[1][-1]
    assert [summary[name] for name in ("partitions", "agree", "diverged", "undecided")] == [1, 0, 0, 1]


def test_keys_are_shown_where_they_are_asked_for(tmp_path: Path) -> None:
    case = Case([*END], [data(0, b"\x1bkey", V), *END])
    one, other = copies(tmp_path, case)
    key_hash = siphash(b"\x1bkey", bytes(16)).hex()
    for given, shown in ([], key_hash), (["--show-keys"], '"\\x1bkey"'):
        ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", *given, str(one), str(other))
        assert f"t-0: key {shown}: none in {one}/t-0, offset 0 in {other}/t-0\n" in ran.text
        ran = run_inside(tmp_path, "verify", "--compare", "--format", "json", *given, str(one), str(other))
        (first,) = json.loads(ran.lines[0])["differs"]["keys"]["first"]
        expected = {"key_hash": key_hash, "left": -1, "right": 0, "timestamp": 1000}
        assert first == ({**expected, "key": "\x1bkey"} if given else expected)


def test_what_is_undecided_fails_where_it_is_asked_for(tmp_path: Path) -> None:
    damaged = [*plain(6), bytes([*plain(7)[6][:-1], 0xFF]), *plain()[7:]]
    one, other = directory(tmp_path / "one", damaged), directory(tmp_path / "other", plain())
    for fail_on, status in ("error", 0), ("undecided", 1), ("never", 0):
        ran = run_inside(tmp_path, "verify", "--compare", "--fail-on", fail_on, str(one), str(other))
        assert (fail_on, ran.status) == (fail_on, status)
    same = directory(tmp_path / "same", plain())
    assert run_inside(tmp_path, "verify", "--compare", "--fail-on", "undecided", str(same), str(other)).status == 0


@pytest.mark.parametrize("given", [["--fail-on", "undecided"], ["--show-keys"]])
def test_an_option_of_a_comparison_needs_one(given: list[str], tmp_path: Path) -> None:
    one = directory(tmp_path / "one", plain())
    ran = run_inside(tmp_path, "verify", *given, str(one))
    assert (ran.status, "give --compare, too" in ran.problems) == (2, True)


def test_verify_says_that_it_can_compare_the_copies_that_it_read(tmp_path: Path) -> None:
    copies_of = [str(directory(tmp_path / str(number), plain())) for number in range(3)]
    said = "1 topic-partition has several copies here: kdump verify --compare says whether they mean the same\n"
    for paths, number in (copies_of, 1), (copies_of[:1], 0):
        ran = run_inside(tmp_path, "verify", "--format", "text", *paths)
        assert (said in ran.text) == bool(number)
        ran = run_inside(tmp_path, "verify", "--format", "json", *paths)
        assert json.loads(ran.lines[-1])["several_copies"] == number
    ran = run_inside(tmp_path, "verify", "--format", "terminal", *copies_of)
    assert said.split(":", maxsplit=1)[0] in ran.text


def with_index(broker: Path, first: int, last: int, pid: int = 7) -> Path:
    """A copy with an entry in its first transaction index."""
    log = min((broker / "t-0").glob("*.log"))
    entry = AbortedTransaction(0, pid, first, last, last + 1)
    log.with_suffix(".txnindex").write_bytes(build_transaction_index([entry]))
    return broker


def test_an_aborted_transaction_that_begins_earlier_in_one_copy(tmp_path: Path) -> None:
    """That copy lost the marker of a commit, also where the log cleaner removed what shows it."""
    brokers = [directory(tmp_path / str(number), [*END], checkpoints=CLEANED) for number in range(3)]
    for broker, first in zip(brokers, (3, 1, 3), strict=True):
        with_index(broker, first, 5)
    status, lines = verify(*brokers)
    found = [(line["code"], line["path"], line["offset"]) for line in lines if line["type"] == "finding"]
    assert (status, found) == (1, [("replica/aborted", str(brokers[1] / "t-0"), 5)] * 2)
    assert {line["stale"] for line in lines if line["type"] == "comparison"} == {str(brokers[1] / "t-0")}
    (result,) = compared(*brokers)
    assert [each.reason for each in result.evidence] == ["rules", "rules", "majority"]
    assert [each.differs.earlier_left.count for each in result.pairs] == [0, 0, 1]
    with_index(brokers[1], 3, 5)
    assert verify(*brokers)[0] == 0
    with_index(brokers[1], 1, 5, pid=8)
    with_index(brokers[2], 3, 14)
    with_index(brokers[0], 1, 14)  # above the common end
    assert verify(*brokers)[0] == 0


# ---- what the metadata log says


HOUR = 3_600_000


def isr(at_ms: int, *members: int, **fields: Any) -> tuple[int, Change]:
    return at_ms, change("PartitionChangeRecord", topicId=TOPIC_ID, partitionId=0, isr=members, **fields)


def metadata_log(place: Path, *changes: tuple[int, Change], retention_ms: int | None = HOUR) -> Path:
    """The log of a controller. Topic t has two replicas, and a record a batch."""
    made = [
        (1, change("TopicRecord", name="t", topicId=TOPIC_ID)),
        (1, change("PartitionRecord", topicId=TOPIC_ID, partitionId=0, replicas=[1, 2], isr=[1, 2], leader=1)),
    ]
    if retention_ms is not None:
        how = {"name": "delete.retention.ms", "value": str(retention_ms)}
        made.append((1, change("ConfigRecord", resourceType=2, resourceName="t", **how)))
    place.mkdir(parents=True)
    batches = [
        build.batch([build.record(None, value_of(each), timestamp=at)], base_offset=number, epoch=1)
        for number, (at, each) in enumerate([*made, *changes])
    ]
    (place / f"{0:020}.log").write_bytes(b"".join(batches))
    return place


def of_broker(broker: Path, node: int) -> Path:
    (broker / "meta.properties").write_bytes(b"version=1\nnode.id=%d\ncluster.id=c\n" % node)
    return broker


AWAY = (isr(5000, 1), isr(5000 + 2 * HOUR, 1, 2))
LOST = "the tombstone was lost"


@pytest.mark.parametrize(
    ("name", "changes", "retention_ms", "stale"),
    [
        (LOST, AWAY, HOUR, 2),
        (LOST, (isr(5000, 2), isr(5000 + 2 * HOUR, 1, 2)), HOUR, 1),
        (LOST, AWAY, None, None),  # a day by default
        (LOST, AWAY, 3 * HOUR, None),
        (LOST, (*AWAY, isr(2 + 9 * HOUR, 2), isr(2 + 19 * HOUR, 1, 2)), HOUR, None),  # both were away
        (LOST, (isr(10, 1), isr(900, 1, 2)), 0, None),  # what differs was written later
        (LOST, (isr(5000, 1),), HOUR, None),  # it is not back
        (LOST, (), HOUR, None),
        ("another record", AWAY, HOUR, None),  # nothing that it can have missed
        ("the marker was lost", AWAY, HOUR, 2),
        ("committed here, aborted there", AWAY, HOUR, 2),
    ],
)
def test_the_metadata_log_says_who_was_away(
    name: str,
    changes: tuple[tuple[int, Change], ...],
    retention_ms: int | None,
    stale: int | None,
    tmp_path: Path,
) -> None:
    brokers = [of_broker(broker, node) for node, broker in enumerate(copies(tmp_path, DIVERGENT[name][0]), 1)]
    log = metadata_log(tmp_path / "c" / "__cluster_metadata-0", *changes, retention_ms=retention_ms)
    assert compared(*brokers)[0].evidence == ()
    (result,) = compared(*brokers, metadata=str(log))
    expected = () if stale is None else (("metadata", str(brokers[stale - 1] / "t-0"), None, stale),)
    assert tuple(each[:4] for each in result.evidence) == expected
    assert result.stale == (expected[0][1] if expected else None)


def test_a_metadata_log_beside_a_copy_is_found_and_what_it_says_is_printed(tmp_path: Path) -> None:
    one, other = (of_broker(each, node) for node, each in enumerate(copies(tmp_path, DIVERGENT[LOST][0]), 1))
    unclean = isr(9 * HOUR, 2, leader=2, leaderRecoveryState=1)
    metadata_log(other / "__cluster_metadata-0", *AWAY, unclean, isr(9 * HOUR + 1, 2, leaderRecoveryState=0))
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", str(one), str(other))
    assert (
        f"t-0: stale: {other}/t-0: broker 2 was not in the ISR from 1970-01-01T00:00:05.000Z to"
        " 1970-01-01T02:00:05.000Z, 7200000 ms; delete.retention.ms is 3600000, producer.id.expiration.ms 86400000;"
        " what differs was written before\n"
    ) in ran.text
    said = "t-0: broker 2 was elected leader uncleanly at 1970-01-01T09:00:00.000Z: committed records can be lost\n"
    assert ran.text.count(said) == 1
    line = verify(one, other)[1][0]
    assert line["unclean_elections"] == [{"broker": 2, "timestamp_ms": 9 * HOUR}]
    assert (line["evidence"][0]["left_ms"], line["evidence"][0]["back_ms"]) == (5000, 5000 + 2 * HOUR)
    assert [step["step"] for step in line["steps"]] == ["describe", "leadership", "delete", "wrong"]


def test_metadata_that_cannot_be_read(tmp_path: Path) -> None:
    one, other = copies(tmp_path, DIVERGENT[LOST][0])
    ran = run_inside(tmp_path, "verify", "--compare", "--metadata", "missing", str(one), str(other))
    assert (ran.status, "missing" in ran.problems) == (3, True)
    log = metadata_log(tmp_path / "c" / "__cluster_metadata-0", *AWAY)
    for node, each in enumerate((one, other), 1):
        of_broker(each, node)
    file = log / f"{0:020}.log"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1  # the return to the ISR
    file.write_bytes(content)
    assert compared(one, other, metadata=str(log))[0].stale is None
    assert not compared(one, other, metadata=str(log))[0].evidence


def test_a_history_begins_with_the_oldest_snapshot_that_the_log_continues(tmp_path: Path) -> None:
    place = tmp_path / "__cluster_metadata-0"
    place.mkdir()
    states = [
        change("TopicRecord", name="t", topicId=TOPIC_ID),
        change("PartitionRecord", topicId=TOPIC_ID, partitionId=0, replicas=[1, 2], isr=[1], leader=1),
    ]
    (place / snapshot_name(10)).write_bytes(snapshot(states))
    (place / snapshot_name(12)).write_bytes(snapshot(states[:1]))
    changes = [isr(5000, 1, 2), isr(6000, 2), isr(7500, 1, 2)]
    batches = [
        build.batch([build.record(None, value_of(each), timestamp=at)], base_offset=10 + number, epoch=1)
        for number, (at, each) in enumerate(changes)
    ]
    (place / f"{10:020}.log").write_bytes(b"".join(batches))
    found = read_histories(find_metadata_log(str(place)), [(TOPIC_ID, 0), (TOPIC_ID, 1)])
    assert found[TOPIC_ID, 0].absences == {1: [(6000, 7500)], 2: [(None, 5000)]}
    assert (found[TOPIC_ID, 1].absences, found[TOPIC_ID, 0].is_complete) == ({}, True)
    (place / snapshot_name(10)).unlink()
    (place / snapshot_name(12)).unlink()
    assert not read_histories(find_metadata_log(str(place)), [(TOPIC_ID, 0)])[TOPIC_ID, 0].is_complete


def test_a_transaction_with_two_epochs_names_the_copy_that_lost_a_marker(tmp_path: Path) -> None:
    """The abort was lost, and a later commit of the producer decides both: aborted data is served."""
    later = data(6, b"later", V, pid=7, producer_epoch=1)
    lost = [WRITTEN, later, marker(7, "COMMIT", producer_epoch=1), *END]
    one, other = copies(tmp_path, Case([later, marker(7, "COMMIT", producer_epoch=1), *END], lost))
    status, (line, finding, _) = verify(one, other)
    assert (status, line["verdict"], finding["code"], finding["path"]) == (
        1,
        "diverged",
        "replica/state",
        str(other / "t-0"),
    )
    assert (line["stale"], [each["reason"] for each in line["evidence"]]) == (str(other / "t-0"), ["rules"])
    assert line["differs"]["lost_markers_right"] == {"count": 1, "first": 6, "last": 6}


def test_a_marker_without_records_names_the_copy_that_lost_it(tmp_path: Path) -> None:
    """Committed readers of this copy stop before the transaction: the marker was gone when it was fetched."""
    emptied = build.empty_batch(5, 5, control=True, producer_id=7)
    one, other = copies(tmp_path, Case([emptied, *END], [WRITTEN, emptied, *END]))
    status, (line, *found, _) = verify(one, other)
    assert (status, line["verdict"]) == (1, "diverged")
    assert [(each["code"], each["offset"]) for each in found] == [("replica/stuck", 2)]
    assert (line["stale"], [each["reason"] for each in line["evidence"]]) == (str(other / "t-0"), ["rules"])
    assert line["differs"]["lost_markers_right"] == {"count": 1, "first": 5, "last": 5}


def test_what_to_do_names_no_copy_without_evidence(tmp_path: Path) -> None:
    case, _ = DIVERGENT["the marker was lost"]
    one, other = copies(tmp_path, case)
    steps = verify(one, other)[1][0]["steps"]
    abort = "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic t --partition 0 --start-offset 2"
    assert [step["step"] for step in steps] == ["describe", "unknown", "abort"]
    assert (steps[2]["path"], steps[2]["command"]) == (str(other / "t-0"), abort)
    assert verify(*copies(tmp_path / "healthy", HEALTHY["the same"]))[1][0]["steps"] == []


def test_what_to_do_about_a_stale_copy_comes_in_an_order_that_spreads_nothing(tmp_path: Path) -> None:
    wrong = [*plain(5), data(5, b"k1", b"x"), *plain()[6:]]
    three = [directory(tmp_path / f"a {number}", log) for number, log in enumerate([plain(), wrong, plain()])]
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", *map(str, three))
    stale = f"{three[1]}/t-0"
    said = [line for line in ran.text.splitlines() if line.startswith(("t-0: to do", "t-0: stale"))]
    assert [line.split(": ")[-1] for line in said] == [
        "all other copies agree; compare again before you delete anything",
        "kafka-topics.sh --bootstrap-server HOST:PORT --describe --topic t",
        "kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type preferred --topic t --partition 0",
        f"rm -r '{stale}'",
        "that spreads what it has",
    ]
    assert f"never delete another copy, or this one, while {stale} leads" in said[-1]


@pytest.mark.parametrize("given", [["--deep"], ["--live"], ["--compacted", "yes"], ["--summary"], ["--no-companions"]])
def test_an_option_of_the_checks_is_refused(given: list[str], tmp_path: Path) -> None:
    one, other = copies(tmp_path, HEALTHY["the same"])
    ran = run_inside(tmp_path, "verify", "--compare", *given, str(one), str(other))
    assert (ran.status, ran.text) == (2, "")
    assert f"leave out {given[0]}" in ran.problems


def flip_in_last_batch(broker: Path, base: int) -> None:
    log = broker / "t-0" / f"{base:020}.log"
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)


@pytest.mark.parametrize("name", ["damaged", "a segment short"])
def test_what_to_do_names_the_command_that_gives_a_copy_the_batches_of_another(name: str, tmp_path: Path) -> None:
    log = [data(number, None, b"v%d" % number) for number in range(12)]  # what has no keys, no cleaner goes over
    one, other = (directory(tmp_path / f"a {number}", log) for number in range(2))
    if name == "damaged":
        flip_in_last_batch(other, 4)
    else:
        (other / "t-0" / f"{4:020}.log").unlink()
    (step,) = [each for each in verify(one, other)[1][0]["steps"] if each["step"] == "fill"]
    assert step["path"] == str(other / "t-0")
    words = shlex.split(step["command"])
    assert words == ["kdump", "recover", "--fill-from", str(one / "t-0"), "--", str(other / "t-0")]
    ran = run_inside(tmp_path, *words[1:])
    assert ran.status == 0, ran.text
    assert [line["verdict"] for line in verify(one, other)[1] if line["type"] == "comparison"] == ["agree"]
    assert verify(one, other)[1][0]["steps"] == []
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "text", str(one), str(other))
    assert "to do" not in ran.text


@pytest.mark.parametrize("name", ["cleaned", "with another record", "both damaged there", "lagging", "alone stale"])
def test_no_fill_is_named_where_it_would_not_be_allowed_or_gives_nothing(name: str, tmp_path: Path) -> None:
    how = {"checkpoints": CLEANED} if name == "cleaned" else {}
    one = directory(tmp_path / "a", plain(), **how)
    wrong = [*plain()[:9], data(9, b"k1", b"x"), *plain()[10:]]
    log = wrong if name == "with another record" else plain()[:6] if name == "lagging" else plain()
    other = directory(tmp_path / "b", log, **how)
    several = [one, other]
    if name == "alone stale":  # the third copy says which of the two is wrong: it is deleted, not filled
        several.append(directory(tmp_path / "c", plain()))
        (other / "t-0" / f"{8:020}.log").write_bytes(b"".join(wrong[8:]))
    if name != "lagging":
        flip_in_last_batch(other, 4)
    if name == "both damaged there":
        flip_in_last_batch(one, 4)
    steps = verify(*several)[1][0]["steps"]
    assert "fill" not in [each["step"] for each in steps]
