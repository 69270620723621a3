"""Several copies of a topic-partition as one log: what survives in any of them, in order, once, and no other."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kdump
from kdump.convert import tables
from kdump.convert.records import reader
from kdump.convert.records.ordered_log import ordered_log
from kdump.log.isolation import read_transactions
from kdump.log.transactions import last_stable_offset
from kdump.replicas.findings import replica_findings
from kdump.replicas.merge import MergedPartition, MergeOptions, ReplicasRefused, ReplicaUse, merge_replicas
from kdump.storage.partition import Partition
from support import build, finding_rules, oracle
from support.damage import NotApplicable, batches, damage
from support.directories import OTHER_TOPIC_ID, TOPIC_ID, metadata
from support.laws import examples
from support.plain_cleaner import Written, cleaned
from support.replica_cluster import Cluster, Entry, written

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TRIPLES = 500 if os.environ.get("KDUMP_LAWS") == "all" else examples(60)
COLUMNS = ["offset", "timestamp_ms", "key", "value", "headers"]
PHYSICAL = [
    "flip-bit", "flip-under-crc", "flip-crc", "flip-length", "flip-magic", "flip-offset", "flip-epoch", "zero-body",
    "zero-range", "zero-page", "zero-end", "cut", "cut-at-border", "garbage-tail", "zero-tail", "short-tail",
    "insert-garbage", "insert-zeros", "repeat-batch", "swap-batches", "remove-batch",
]  # fmt: skip
LOGS = [
    "segments/segments-0", "leader/transfers-0", "follower-2.8.2/transfers-1", "leader-1.1.1/transfers-0",
    "idempotent/turns-0", "transactions/transactions-0", "restarted/transfers-0",
]  # fmt: skip


class Read(NamedTuple):
    """A record, as the reference decoder and the columns give it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def partitions_of(*directories: Path) -> list[Partition]:
    return [each for each in kdump.discover(list(map(str, directories))) if isinstance(each, Partition)]


def merged(*directories: Path, **how: object) -> MergedPartition:
    (found,) = merge_replicas(partitions_of(*directories), options=MergeOptions(**how))
    return found


def read(found: MergedPartition, isolation: str = "all") -> list[Read]:
    """The records of a merged log."""
    stream = reader.RecordStream(tables.record_schema(COLUMNS), isolation=isolation, on_damage=lambda _: None)
    rows = [row for batch in stream.batches([found.partition]) for row in batch.to_pylist()]
    return [
        Read(row["offset"], row["timestamp_ms"], row["key"], row["value"], tuple(
            (header["key"], header["value"]) for header in row["headers"] or ()
        ))
        for row in rows
    ]  # fmt: skip


def batches_of(directory: Path) -> Iterator[tuple[bytes, oracle.Batch]]:
    """The valid batches of a directory, in the order of the files."""
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        for item in oracle.walk(data, base_offset=int(log.stem)):
            if isinstance(item, oracle.Batch):
                yield data[item.position : item.position + item.size], item


def records_of(body: bytes) -> list[Read]:
    return [
        Read(each.offset, each.timestamp, each.key, each.value, tuple(
            (key.decode("utf-8", "replace"), value) for key, value in each.headers
        ))
        for each in oracle.records(body)
    ]  # fmt: skip


def without_epoch(body: bytes) -> bytes:
    """A batch without its leader epoch, which no checksum covers."""
    return body[:12] + body[16:] if body[16] == 2 else body


def damaged_copy(source: Path, target: Path, rng: random.Random, names: Sequence[str] = PHYSICAL) -> Path:
    shutil.copytree(source, target)
    for _ in range(rng.randrange(1, 5)):
        log = rng.choice(sorted(target.glob("*.log")))
        if rng.random() < 0.04:
            log.unlink()
            break
        data = log.read_bytes()
        if len(batches(data)) < 3:
            continue  # a damage would add batches of its own
        try:
            log.write_bytes(damage(data, rng, 1, names))
        except NotApplicable:
            continue
    return target


def triple(rng: random.Random, tmp_path: Path, logs: Sequence[str] = LOGS) -> tuple[Path, list[Path]]:
    source = FIXTURES / rng.choice(logs)
    return source, [damaged_copy(source, tmp_path / broker / "t-0", rng) for broker in ("a", "b", "c")]


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize("number", range(TRIPLES))
def test_damaged_triples(number: int, tmp_path: Path) -> None:
    """Each record that survives in a copy is there, once and in order."""
    rng = random.Random(number)
    source, copies = triple(rng, tmp_path)
    found = check_triple(source, copies)
    if number % 5 == 0 and not found.differing:
        assert read(merged(*rng.sample(copies, 3))) == read(found)


def check_triple(source: Path, copies: Sequence[Path]) -> MergedPartition:
    original = {without_epoch(body): records_of(body) for body, _ in batches_of(source)}
    found = [dict.fromkeys(without_epoch(body) for body, _ in batches_of(copy)) for copy in copies]
    kept = [body for body in original if any(body in one for one in found)]
    surviving = sorted(each for body in kept for each in original[body])
    offsets = {each.offset for each in surviving}
    result = merged(*copies)
    got = read(result)
    assert [each.offset for each in got] == sorted({each.offset for each in got})
    # Where the offset of a batch is damaged, and no copy has it where it belongs, it can be where it says.
    wrong = {body[8:] for one in found for body in one if body not in original} & {body[8:] for body in original}
    assert [each for each in got if each.offset in offsets] == surviving
    more = [each for each in got if each.offset not in offsets]
    assert not more or wrong, more
    return result


# ---- histories


def entries_as_read(log: Sequence[Entry]) -> list[Read]:
    return [each for entry in log for each in records_of(entry.body)]


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(24)))
def test_unclean_elections(number: int, tmp_path: Path) -> None:
    """The result is the log of the copy that the others would follow; what they would truncate is reported."""
    rng = random.Random(number)
    cluster = Cluster(rng)
    cluster.run(60)
    copies = [
        written(tmp_path / str(broker) / "t-0", log, epochs)
        for broker, (log, epochs) in enumerate(zip(cluster.logs, cluster.epochs, strict=True))
    ]
    shuffled = rng.sample(copies, len(copies))
    found = merged(*shuffled)
    leader = cluster.logs[int(Path(found.replicas[0]).parent.name)]
    assert {entry.epoch for entry in leader} <= {epoch for epochs in cluster.epochs for epoch, _ in epochs}
    assert read(found) == entries_as_read(leader)
    assert not found.differing
    assert not found.missing
    diverged = {}
    for broker, log in enumerate(cluster.logs):
        lost = [entry for entry in log if entry not in leader]
        if lost:
            records = sum(entry.last - entry.first + 1 for entry in lost)
            diverged[str(copies[broker])] = (lost[0].first, lost[-1].last, records, len(lost))
    assert {each.replica: each[1:] for each in found.diverged} == diverged
    codes = [finding.code for finding in replica_findings(found)]
    assert codes == ["replica/diverged"] * len(diverged)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(24)))
def test_unclean_elections_and_damage(number: int, tmp_path: Path) -> None:
    """What survives of the log of the reference is there; what diverged is not."""
    rng = random.Random(number)
    cluster = Cluster(rng)
    cluster.run(60)
    copies = []
    for broker, (log, epochs) in enumerate(zip(cluster.logs, cluster.epochs, strict=True)):
        whole = written(tmp_path / "whole" / str(broker) / "t-0", log, epochs)
        copies.append(damaged_copy(whole, tmp_path / str(broker) / "t-0", rng, ["flip-under-crc", "zero-body"]))
    found = merged(*copies)
    leader = cluster.logs[int(Path(found.replicas[0]).parent.name)]
    surviving = {body for copy in copies for body, _ in batches_of(copy)}
    assert read(found) == entries_as_read([entry for entry in leader if entry.body in surviving])


# ---- topic ids, offsets of the checkpoints, how copies are used


def log_of(*parts: bytes, at: int = 0) -> dict[str, bytes]:
    return {f"{at:020d}.log": b"".join(parts)}


def batch(first: int, *values: bytes, epoch: int = 0, **fields: Any) -> bytes:
    items = [build.record(b"k%d" % number, value, timestamp=1000 + first) for number, value in enumerate(values)]
    return build.batch(items, base_offset=first, epoch=epoch, **fields)


def copy_of(directory: Path, files: dict[str, bytes], topic_id: str | None = TOPIC_ID, **checkpoints: int) -> Path:
    """A copy in a log directory of its own, with lines of these checkpoints."""
    partition = directory / "t-0"
    partition.mkdir(parents=True)
    for name, data in files.items():
        (partition / name).write_bytes(data)
    if topic_id is not None:
        (partition / "partition.metadata").write_bytes(metadata(topic_id))
    (directory / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=x\n")
    for name, offset in checkpoints.items():
        file = directory / f"{name.replace('_', '-')}-checkpoint"
        file.write_bytes(build.checkpoint(f"t 0 {offset}"))
    return partition


A, B, C = batch(0, b"a", b"b"), batch(2, b"c"), batch(3, b"d", b"e")


def values(found: MergedPartition) -> list[bytes | None]:
    return [each.value for each in read(found)]


def codes(found: MergedPartition) -> list[str]:
    findings = list(replica_findings(found))
    for finding in findings:
        finding_rules.check(finding)
    return [finding.code for finding in findings]


def test_two_topics_under_one_name(tmp_path: Path) -> None:
    one = copy_of(tmp_path / "a", log_of(A))
    two = copy_of(tmp_path / "b", log_of(batch(0, b"x")), OTHER_TOPIC_ID)
    found = merge_replicas(partitions_of(one, two))
    assert [(each.topic_id, values(each)) for each in found] == [(TOPIC_ID, [b"a", b"b"]), (OTHER_TOPIC_ID, [b"x"])]
    assert [codes(each) for each in found] == [["replica/topic-id"]] * 2


def test_copies_without_a_topic_id(tmp_path: Path) -> None:
    """One that has none is of the topic that the others are of, and it is said."""
    one, two = copy_of(tmp_path / "a", log_of(A)), copy_of(tmp_path / "b", log_of(A, B), None)
    found = merged(one, two)
    assert (found.topic_id, found.by_name, values(found)) == (TOPIC_ID, True, [b"a", b"b", b"c"])
    assert not merged(one, copy_of(tmp_path / "c", log_of(A, B))).by_name
    assert codes(found) == []


def test_uses(tmp_path: Path) -> None:
    copies = copy_of(tmp_path / "a", log_of(A)), copy_of(tmp_path / "b", log_of(A, B))
    partitions = partitions_of(*copies)
    several = merge_replicas(partitions, options=MergeOptions(ReplicaUse.ALL))
    assert [each.partition.replica for each in several] == [str(copy) for copy in copies]
    assert [values(each) for each in several] == [[b"a", b"b"], [b"a", b"b", b"c"]]
    with pytest.raises(ReplicasRefused, match="other copies"):
        merge_replicas(partitions, options=MergeOptions(ReplicaUse.REFUSE))
    (alone,) = merge_replicas(partitions[:1], options=MergeOptions(ReplicaUse.REFUSE))
    assert (alone.partition.replica, values(alone)) == (None, [b"a", b"b"])


def test_deleted_records(tmp_path: Path) -> None:
    """The highest log start offset of any copy counts, also inside a batch."""
    one = copy_of(tmp_path / "a", log_of(A, B, C), log_start_offset=1)
    two = copy_of(tmp_path / "b", log_of(A, B, C), log_start_offset=4)
    found = merged(one, two)
    assert (values(found), found.deleted, found.log_start_offset) == ([b"e"], 4, 4)
    kept = merged(one, two, deleted=True)
    assert (values(kept), kept.deleted) == ([b"a", b"b", b"c", b"d", b"e"], 0)
    assert values(merged(one)) == [b"b", b"c", b"d", b"e"]


def test_the_high_watermark(tmp_path: Path) -> None:
    """Records above it stay, and are counted; offsets below it that no copy has are committed ones."""
    one = copy_of(tmp_path / "a", log_of(A, B, C), replication_offset=2)
    two = copy_of(tmp_path / "b", log_of(A, B, C), replication_offset=4)
    found = merged(one, two)
    assert (values(found), found.above_high_watermark) == ([b"a", b"b", b"c", b"d", b"e"], 1)
    assert merged(one, copy_of(tmp_path / "c", log_of(A))).high_watermark == 2
    unknown = copy_of(tmp_path / "d", log_of(A)), copy_of(tmp_path / "e", log_of(A))
    assert merged(*unknown).above_high_watermark is None
    lost = merged(copy_of(tmp_path / "f", log_of(A, C), replication_offset=9), copy_of(tmp_path / "g", log_of(A)))
    assert [each[:2] for each in lost.missing] == [(2, 2), (5, 8)]
    assert codes(lost) == ["replica/missing"] * 2
    assert "below the high watermark" in next(replica_findings(lost)).message


def test_the_high_watermark_of_another_history(tmp_path: Path) -> None:
    """A copy that is cut had committed records above: they are diverged, and not missing."""
    old = copy_of(tmp_path / "a", log_of(A, B, C), replication_offset=5)
    new = copy_of(tmp_path / "b", log_of(A, batch(2, b"x", epoch=1)), replication_offset=3)
    found = merged(old, new)
    assert (values(found), found.high_watermark, found.missing) == ([b"a", b"b", b"x"], 3, ())
    assert codes(found) == ["replica/diverged"]


def test_missing_records(tmp_path: Path) -> None:
    found = merged(copy_of(tmp_path / "a", log_of(A, C)), copy_of(tmp_path / "b", log_of(A)))
    assert (values(found), codes(found)) == ([b"a", b"b", b"d", b"e"], ["replica/missing"])
    assert found.missing == ((2, 2, True, None),)
    assert found.partition.slices[-1].after_gap
    whole = merged(copy_of(tmp_path / "c", log_of(A, B, C)), copy_of(tmp_path / "d", log_of(A)))
    assert codes(whole) == []


def test_a_copy_that_cannot_be_read(tmp_path: Path) -> None:
    """Its other files and the other copies are merged, and it is said."""
    one = copy_of(tmp_path / "a", log_of(A) | log_of(B, C, at=2))
    two = copy_of(tmp_path / "b", log_of(A, B))
    found = list(kdump.discover([str(one), str(two)]))
    partitions = [each for each in found if isinstance(each, Partition)]
    (one / f"{0:020d}.log").unlink()
    (result,) = merge_replicas(partitions)
    assert [str(one) in str(error) for error in result.errors] == [True]
    assert values(result) == [b"a", b"b", b"c", b"d", b"e"]
    assert codes(result) == []
    got = list(kdump.convert_logs(found, tmp_path / "out"))
    assert [type(each) for each in got] == [kdump.SourceError, kdump.convert.OutputFile, kdump.PartitionConversion]
    assert got[1].rows == 5
    assert any("could not be read, and may have had other records" in note for note in got[2].notes)
    strict = list(kdump.convert_logs(found, tmp_path / "strict", kdump.ConvertOptions(strict=True)))
    assert [type(each) for each in strict] == [kdump.SourceError, kdump.convert.DamagedLog]
    (two / f"{0:020d}.log").unlink()
    (one / f"{2:020d}.log").unlink()
    with pytest.raises(kdump.SourceError):
        merge_replicas(partitions)


def test_a_file_that_no_copy_can_give_is_missing(tmp_path: Path) -> None:
    copies = [copy_of(tmp_path / name, log_of(A) | log_of(B, at=2) | log_of(C, at=3)) for name in "ab"]
    partitions = partitions_of(*copies)
    for copy in copies:
        (copy / f"{2:020d}.log").unlink()
    (result,) = merge_replicas(partitions)
    assert (len(result.errors), values(result), codes(result)) == (2, [b"a", b"b", b"d", b"e"], ["replica/missing"])
    for copy in copies:
        (copy / f"{3:020d}.log").unlink()
    (result,) = merge_replicas(partitions)
    assert [each[:2] for each in result.missing] == [(2, None)]


def test_differing_records(tmp_path: Path) -> None:
    """The reading of most copies is right, else that of the first."""
    other = batch(2, b"X")
    a, b = copy_of(tmp_path / "a", log_of(A, other, C)), copy_of(tmp_path / "b", log_of(A, B, C))
    c = copy_of(tmp_path / "c", log_of(A, B))
    two, three = merged(a, b), merged(a, b, c)
    assert values(two) == [b"a", b"b", b"X", b"d", b"e"]
    assert two.differing == ((2, 2, (str(a),), (str(b),), False),)
    assert values(three) == [b"a", b"b", b"c", b"d", b"e"]
    assert three.differing == ((2, 2, (str(b), str(c)), (str(a),), True),)
    assert codes(two) == codes(three) == ["replica/differs"]
    # The same records in other batches do not differ.
    whole = build.batch([record for first, several in ((0, (b"a", b"b")), (2, (b"c",)), (3, (b"d", b"e")))
                         for record in (build.record(b"k%d" % number, value, timestamp=1000 + first)
                                        for number, value in enumerate(several))])  # fmt: skip
    assert codes(merged(b, copy_of(tmp_path / "d", log_of(whole)))) == []


def test_other_batch_borders(tmp_path: Path) -> None:
    """Records that the reference lacks come one by one from batches with other borders."""
    items = [build.record(b"k", b"%d" % number, timestamp=number) for number in range(12)]

    def batches_at(*firsts: int) -> list[bytes]:
        return [build.batch(items[a:b], base_offset=a, codec="gzip") for a, b in pairwise((*firsts, 12))]

    torn = batches_at(0, 4, 8)
    torn[1] = torn[1][:-1] + bytes([torn[1][-1] ^ 1])
    one = copy_of(tmp_path / "a", log_of(*torn))
    two = copy_of(tmp_path / "b", log_of(*batches_at(0, 3, 6, 10)[:3]))
    found = merged(one, two)
    assert values(found) == [b"%d" % number for number in range(12)]
    assert [(each.lowest, each.highest) for each in found.partition.slices] == [(0, 3), (4, 7), (8, 11)]
    assert codes(found) == []


@pytest.mark.parametrize("case", ["v0-gzip-0.8.2.2", "v1-gzip-0.10.2.2", "v0-none-0.8.2.2", "mixed-through-2.8.2"])
def test_messages(case: str, tmp_path: Path) -> None:
    """Copies of magic 0 and 1 have no leader epochs."""
    source = min(path.parent for path in (FIXTURES / case).rglob("*.log"))
    for number in range(examples(4)):
        rng, names = random.Random(number), [name for name in PHYSICAL if name != "flip-epoch"]
        copies = [damaged_copy(source, tmp_path / f"{number}{broker}" / "t-0", rng, names) for broker in "abc"]
        check_triple(source, copies)


# ---- compacted partitions


class Cleaned(NamedTuple):
    """A log before it was cleaned, and a copy: up to where it was cleaned."""

    log: list[Written]
    copies: list[Path]
    stops: list[int]


def cleaned_copies(rng: random.Random, tmp_path: Path, *, harm: int) -> Cleaned:
    log, end = [], 0
    for _ in range(rng.randrange(10, 40)):
        items = tuple(
            build.record(b"k%d" % rng.randrange(8), rng.choice((None, *[b"v%d" % (end + number)] * 6)), timestamp=end)
            for number in range(rng.randrange(1, 5))
        )
        log.append(Written(end, items))
        end += len(items)
    copies, stops, known = [], [], rng.random() < 0.8
    for broker in "abc":
        stops.append(rng.randrange(end // 2, end - 1))
        parts = cleaned(log, stops[-1], without_tombstones=rng.random() < 0.5)
        data = b"".join(parts)
        for _ in range(harm):
            data = damage(data, rng, 1, ["flip-under-crc", "zero-body", "flip-length", "insert-garbage"])
        checkpoints = {"cleaner_offset": stops[-1]} if known else {}
        copies.append(copy_of(tmp_path / broker, log_of(data), **checkpoints))
    return Cleaned(log, copies, stops)


def end_of(log: Sequence[Written]) -> int:
    return log[-1].last + 1


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(24)))
def test_compacted_triples(number: int, tmp_path: Path) -> None:
    """The last record of each key is there, or its offset is in a range that is reported."""
    rng = random.Random(number)
    made = cleaned_copies(rng, tmp_path, harm=rng.randrange(1, 3))
    found = merged(*made.copies)
    assert found.compacted
    got = read(found)
    assert [each.offset for each in got] == sorted({each.offset for each in got})
    whole = {batch.first + number: record for batch in made.log for number, record in enumerate(batch.records)}
    assert all((whole[each.offset].key, whole[each.offset].value) == (each.key, each.value) for each in got)
    last = {record.key: offset for offset, record in whole.items()}
    reported = [(each.first_offset, each.last_offset or end_of(made.log)) for each in found.missing]
    reported += [(each.first_offset, each.last_offset) for each in found.superseded]
    for key, offset in last.items():
        offsets = [each.offset for each in got if each.key == key]
        removed = whole[offset].value is None and not offsets
        if not removed and offset != max(offsets, default=None):
            of_key = [each for each, record in whole.items() if record.key == key]
            assert any(first <= each <= end for first, end in reported for each in of_key), (key, offset, offsets)
    assert not found.differing


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(10)))
def test_the_copy_that_was_cleaned_furthest(number: int, tmp_path: Path) -> None:
    """Without damage its records are the result, whatever the others still have."""
    made = cleaned_copies(random.Random(number), tmp_path, harm=0)
    found = merged(*made.copies)
    furthest = made.copies[made.stops.index(max(made.stops))]
    expected = [each for body, _ in batches_of(furthest) for each in records_of(body)]
    if found.partition.slices[0].log.path.startswith(str(furthest)):
        assert read(found) == expected
    else:  # by the fewest records, where no checkpoint says how far
        assert "cleaner-offset-checkpoint" not in os.listdir(furthest.parent)
    assert not found.superseded
    assert not found.missing
    assert codes(found) == []


def test_records_that_later_ones_may_have_replaced(tmp_path: Path) -> None:
    """Only those after which an offset is covered and has no record: else each later record is there."""
    batches = [batch(number, b"v") for number in range(5)]

    def superseded(name: str, *parts: bytes) -> list[tuple[int, ...]]:
        furthest = copy_of(tmp_path / name / "a", log_of(*parts), cleaner_offset=5)
        other = copy_of(tmp_path / name / "b", log_of(*batches), cleaner_offset=1)
        return [(each.first_offset, each.last_offset, each.records) for each in merged(furthest, other).superseded]

    def torn(number: int) -> bytes:
        return batches[number][:-1] + b"!"

    assert superseded("after", torn(0), batches[2], batches[4]) == [(0, 1, 2)]
    assert superseded("whole", torn(0), *batches[1:]) == []
    assert superseded("before", batches[0], batches[2], torn(3), batches[4]) == []
    assert superseded("between", torn(0), batches[1], batches[3], torn(4)) == [(0, 0, 1)]
    emptied = build.batch([], base_offset=3, last_offset_delta=0)
    assert superseded("inside", torn(0), *batches[1:3], emptied, batches[4]) == [(0, 0, 1)]


def test_a_copy_without_a_batch_says_no_end(tmp_path: Path) -> None:
    torn = copy_of(tmp_path / "a", log_of(A, B[:-1]))
    assert codes(merged(torn, copy_of(tmp_path / "b", log_of()))) == ["replica/missing"]
    assert codes(merged(torn, copy_of(tmp_path / "c", log_of(A)))) == []


def test_the_last_bytes_of_a_growing_copy(tmp_path: Path) -> None:
    """They can be half a batch; damage before other batches is damage."""
    copies = [copy_of(tmp_path / name, log_of(A, B[:-1])) for name in "ab"]
    assert codes(merged(*copies)) == ["replica/missing"]
    growing = merged(*copies, growing=frozenset(map(str, copies)))
    assert (codes(growing), growing.damage) == ([], ())
    copies = [copy_of(tmp_path / name, log_of(A, B[:-1] + b"!", C)) for name in "cd"]
    assert codes(merged(*copies, growing=frozenset(map(str, copies)))) == ["replica/missing"]


# ---- transactions


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(20)))
def test_transactions_of_merged_copies(number: int, tmp_path: Path) -> None:
    """They are decided on the merged log: a marker that one copy lacks comes from another."""
    rng = random.Random(number)
    source = FIXTURES / rng.choice(["transactions/transactions-0", "segments/segments-0", "leader/transfers-0"])
    copies = []
    harmed: set[tuple[str, int]] = set()
    for broker in "abc":
        copy = Path(shutil.copytree(source, tmp_path / broker / "t-0"))
        for _ in range(4):
            log = rng.choice(sorted(copy.glob("*.log")))
            data = bytearray(log.read_bytes())
            found = rng.choice(batches(bytes(data)))
            if (log.name, found.position) not in harmed:
                harmed.add((log.name, found.position))
                data[found.position + found.size - 1] ^= 1
                log.write_bytes(data)
        copies.append(copy)
    result = merged(*copies)
    whole = merged(source)
    assert read(result) == read(whole)
    assert read(result, "read-committed") == read(whole, "read-committed")
    folds = [read_transactions(ordered_log(each.partition, 1 << 30).partition, 1 << 30) for each in (result, whole)]
    stable = [last_stable_offset(each, "stop") for each in folds]
    assert stable[0] == stable[1]
