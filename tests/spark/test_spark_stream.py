"""`readStream.format("kdump")`: what comes of a directory that grows, and what is refused or lost.

The reader is called here as Spark calls it; tests/interop/test_spark_pipelines.py has it in Spark.
"""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdump.errors import KdumpError
from kdump.format.control import ControlType
from kdump.log.records import DamageWarning
from kdump.storage.object_store import object_store
from kdump.writer.builder import marker
from support import build
from support.growing_partition import GrowingPartition
from support.object_stores import Unsteady, copy
from support.pauses import pause_with
from support.spark_stream import StreamQuery, as_json

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("pyspark")

from kdump.spark.loss_table import LossTable
from kdump.spark.source_options import parse_batch_options
from kdump.spark.stream_logs import LogFollower
from kdump.spark.stream_options import parse_stream_options

Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pause between two looks at the directory."""
    monkeypatch.setattr("kdump.spark.stream_logs._QUIET", 0)


def rows(partition: GrowingPartition, start: int = 0, stop: int | None = None) -> list[Row]:
    stop = partition.mark if stop is None else stop
    return [
        (partition.topic, partition.number, offset, value)
        for offset, value in sorted(partition.values.items())
        if start <= offset < stop
    ]


def test_a_stream_ends_at_the_high_watermark_and_goes_on(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b")
    log.append(b"c")
    log.commit(2)
    query = StreamQuery(tmp_path, startingOffsets="earliest")
    assert query.checkpoint == {"t": {"0": 0}}
    assert query.rest() == [("t", 0, 0, b"a"), ("t", 0, 1, b"b")]
    assert query.checkpoint == {"t": {"0": 2}}
    log.truncate(2)
    log.append(b"C", b"D")
    log.append_bytes(b"\0" * 7)  # of an append that is not complete
    log.commit(9)  # the checkpoint of a disk that was copied in the middle
    assert query.rest() == [("t", 0, 2, b"C"), ("t", 0, 3, b"D")]
    assert query.batch() is None
    # The default is what comes from now on. A log that is new begins at its start.
    second = StreamQuery(tmp_path)
    assert second.batch() is None
    other = GrowingPartition(tmp_path, "t", 1, marked=False)
    other.append(b"x")
    assert second.batch() is None
    other.commit()
    assert second.rest() == [("t", 1, 0, b"x")]
    assert second.checkpoint == {"t": {"0": 4, "1": 1}}


def test_without_a_high_watermark(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0, marked=False)
    log.append(b"a")
    words = r't-0: replication-offset-checkpoint has no line for t-0, .* option\("endAt", "log-end"\) reads'
    with pytest.raises(KdumpError, match=words):
        StreamQuery(tmp_path)
    query = StreamQuery(tmp_path, endAt="log-end", startingOffsets="earliest")
    assert query.rest() == [("t", 0, 0, b"a")]


def test_available_now_is_exact(tmp_path: Path) -> None:
    log, other = GrowingPartition(tmp_path, "t", 0), GrowingPartition(tmp_path, "u", 3)
    for number in range(10):
        log.append(*(b"%d" % number for _ in range(10)))
        other.append(b"o")
    log.commit()
    other.commit()
    before = [*rows(log), *rows(other)]
    options = {"available_now": True, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    query = StreamQuery(tmp_path, **options)
    log.append(b"late")
    log.commit()
    GrowingPartition(tmp_path, "u", 4).append(b"new")
    found, batches = [], 0
    while (some := query.batch()) is not None:
        assert 0 < len(some) <= 30 + 1
        found += some
        batches += 1
    assert sorted(found) == before
    assert batches == 4
    # The next one begins where the last one ended.
    after = StreamQuery(tmp_path, checkpoint=query.checkpoint, **options)
    assert after.rest() == [("t", 0, 100, b"late")]
    assert StreamQuery(tmp_path, checkpoint=after.checkpoint, **options).batch() is None


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

    log, small = GrowingPartition(tmp_path, "t", 0), GrowingPartition(tmp_path, "s", 0)
    log.append(*(b"v" for _ in range(1000)))
    small.append(b"s")
    log.commit()
    small.commit()
    query = StreamQuery(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert query.limit == ReadMaxRows(100)
    first = query.batch()
    assert first is not None
    assert [row[:3] for row in first] == [("s", 0, 0), *(("t", 0, offset) for offset in range(99))]
    query.limit = ReadAllAvailable()  # as for Trigger.Once
    assert len(query.batch() or ()) == 901
    least = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1m"}
    assert StreamQuery(tmp_path, **least).limit == ReadMinRows(10)
    assert StreamQuery(tmp_path).limit == ReadAllAvailable()
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    query = StreamQuery(tmp_path, startingOffsets="earliest", **least)
    query.reader._delay._clock = lambda: now[0]
    assert len(query.rest()) == 1001
    log.append(b"w")
    log.commit()
    now[0] += 59
    assert query.batch() is None
    now[0] += 1
    assert len(query.batch() or ()) == 1
    log.append(*(b"w" for _ in range(10)))
    log.commit()
    assert len(query.batch() or ()) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        ({"endAt": "now"}, "endAt is high-watermark or log-end"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time such as 15m"),
        ({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"}, "is higher than the maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
        ({"table": "findings"}, "table = findings is read with spark.read"),
        ({"endat": "log-end", "endsAt": "x"}, "did you mean endAt"),
        ({"startingOffsets": '{"t":{"1":0}}'}, "don't match what are assigned"),
        ({"startingOffsets": '{"t":{"0":5}}'}, "The resolved start offset 5 is greater than the resolved end offset 1"),
        ({"subscribe": "u"}, "no topic u under the paths"),
    ],
)
def test_refusals(options: dict[str, str], words: str, tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.commit()
    with pytest.raises(KdumpError, match=words):
        StreamQuery(tmp_path, **options)


def test_starting_offsets(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b", b"c")
    log.commit()
    for offset, begins in {1: 1, -1: 3, -2: 0}.items():
        query = StreamQuery(tmp_path, startingOffsets=f'{{"t":{{"0":{offset}}}}}')
        assert query.rest() == rows(log, begins)
    again = StreamQuery(tmp_path, startingOffsets="earliest")
    assert again.reader.reportLatestOffset() == {"t": {"0": 3}}


def test_two_replicas_are_refused(tmp_path: Path) -> None:
    for broker in ("1", "2"):
        GrowingPartition(tmp_path / broker, "t", 0)
    with pytest.raises(KdumpError, match=r"t-0 is in .*1/t-0 and in .*2/t-0: a stream reads one replica"):
        StreamQuery(tmp_path)


def test_read_committed_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)

    def transaction(producer: int, sequence: int = 0) -> dict[str, Any]:
        return {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}

    def end(producer: int, kind: ControlType) -> None:
        fields = {"producer_epoch": 0, "coordinator_epoch": 0, "timestamp_ms": 1, "partition_leader_epoch": 0}
        log.append_bytes(marker(kind, producer_id=producer, offset=log.end, **fields))
        log.end += 1

    log.append(b"plain")
    log.append(b"aborted", **transaction(1))
    log.append(b"committed", **transaction(2))
    log.append(b"after")
    end(1, ControlType.ABORT)
    log.commit()
    options = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    query = StreamQuery(tmp_path, **options)
    assert [row[3] for row in query.rest()] == [b"plain"]
    assert query.checkpoint == {"t": {"0": 2}}
    end(2, ControlType.COMMIT)
    log.commit(4)  # the marker is above it
    assert [row[3] for row in query.rest()] == [b"committed", b"after"]
    log.commit()
    log.append(b"more")
    log.commit()
    again = StreamQuery(tmp_path, checkpoint=query.checkpoint, **options)
    assert [row[3] for row in again.rest()] == [b"more"]


def lost(query: StreamQuery, words: str) -> list[Row]:
    """The records of a query without failOnDataLoss, which warns."""
    with pytest.warns(DamageWarning, match=words):
        return query.rest()


def test_what_is_lost(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b")
    log.append(b"c", b"d")
    log.commit()
    strict = StreamQuery(tmp_path, startingOffsets="earliest")
    loose = StreamQuery(tmp_path, startingOffsets="earliest", failOnDataLoss="false")
    assert strict.rest() == loose.rest() == rows(log)

    # A leader without the last records: the log is cut back below what was read.
    log.truncate(2)
    log.commit()
    words = "Partition t-0 offset was changed from 4 to 2: the log was truncated"
    with pytest.raises(KdumpError, match=f"{words}.*failOnDataLoss"):
        strict.batch()
    assert lost(loose, words) == []
    log.append(b"C")
    log.commit()
    assert loose.rest() == [("t", 0, 2, b"C")]

    # The same, but with as many other records in their place: only the leader epochs show it.
    strict = StreamQuery(tmp_path, checkpoint=loose.checkpoint)
    assert strict.batch() is None
    log.truncate(2)
    log.append(b"X", b"Y")
    log.commit()
    words = "Partition t-0 offset was changed from 3 to 2: leader-epoch-checkpoint says"
    with pytest.raises(KdumpError, match=words):
        strict.batch()
    assert lost(loose, words) == [("t", 0, 2, b"X"), ("t", 0, 3, b"Y")]

    # Retention before the records were read.
    strict = StreamQuery(tmp_path, checkpoint=loose.checkpoint)
    log.append(b"e")
    log.roll()
    log.append(b"f")
    log.delete_oldest()
    log.commit()
    words = "Partition t-0 offset was changed from 4 to 5: the records between them were deleted"
    with pytest.raises(KdumpError, match=words):
        strict.batch()
    assert lost(loose, words) == [("t", 0, 5, b"f")]

    # A partition that is gone, and a new one whose first records are.
    strict = StreamQuery(tmp_path, checkpoint=loose.checkpoint)
    log.path.rename(tmp_path / f"t-0.{'0' * 32}-delete")
    new = GrowingPartition(tmp_path, "t", 1, start=7)
    new.append(b"g")
    new.commit()
    with pytest.raises(KdumpError, match=r"Partitions \[t-0\] have been deleted"):
        strict.batch()
    assert lost(loose, "deleted|Added partition t-1 starts from 7 instead of 0") == [("t", 1, 7, b"g")]
    assert loose.checkpoint == {"t": {"1": 8}}


@pytest.mark.parametrize("is_url", [False, True])
def test_what_is_lost_is_a_table_beside_the_checkpoint(tmp_path: Path, is_url: bool) -> None:
    location = f"memory://losses/{tmp_path.name}" if is_url else str(tmp_path / "losses")
    logs = tmp_path / "logs"
    log = GrowingPartition(logs, "t", 0)
    for value in (b"a", b"b", b"c"):
        log.append(value)
    log.commit()
    (file,) = log.path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[len(data) // 3 * 2 - 1] ^= 1
    file.write_bytes(data)
    options = {"failOnDataLoss": "false", "lossesLocation": location}
    query = StreamQuery(logs, startingOffsets="earliest", **options)
    with pytest.warns(DamageWarning) as warned:
        assert [row[3] for row in query.rest()] == [b"a", b"c"]
    said = f"this batch left out 1 ranges of offsets with 1 records: {location}"
    assert [str(each.message) for each in warned][-1] == said
    lost(StreamQuery(logs, checkpoint={"t": {"0": 0}}, **options), "batch/crc")  # the same range writes the same file
    log.truncate(2)
    log.commit()
    assert lost(query, "the log was truncated") == []

    table = LossTable(location)
    found = [json.loads(line) for name in sorted(table._names()) for line in table._lines(name)]
    names = ("topic", "partition", "first_offset", "last_offset", "records", "code")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("t", 0, 1, 1, 1, "batch/crc"),
        ("t", 0, 1, 2, None, "truncated"),
    ]
    assert all(row["time"].endswith("+00:00") and row["host"] for row in found)
    with pytest.raises(KdumpError, match="has no option 'losseslocation'"):
        parse_batch_options({"path": str(logs), "lossesLocation": location})


def test_a_segment_that_is_being_replaced_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker takes the old segments away, and then the suffix .swap; between two looks both names can be missing."""
    partition = GrowingPartition(tmp_path, "t", 0)
    for value in (b"a", b"b", b"c"):
        partition.append(value)
        partition.roll()
    partition.commit()
    query = StreamQuery(tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    assert [row[2] for row in query.batch() or ()] == [0]
    first = partition.path / f"{0:020}.log"
    second = partition.path / f"{1:020}.log"
    swap = Path(f"{first}.swap")
    swap.write_bytes(first.read_bytes() + second.read_bytes())
    for path in (first, second):
        path.rename(f"{path}.deleted")
    assert [row[2] for row in query.batch() or ()] == [1]

    hidden = tmp_path / "hidden"
    swap.rename(hidden)
    query = StreamQuery(tmp_path, checkpoint={"t": {"0": 1}}, maxOffsetsPerTrigger="1")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if hidden.exists():
            hidden.rename(first)

    pause_with(monkeypatch, pause)
    assert [row[2] for row in query.rest()] == [1, 2]
    assert len(pauses) == 1


def test_a_high_watermark_that_goes_back_is_waited_for(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b")
    log.commit()
    query = StreamQuery(tmp_path, startingOffsets="earliest")
    assert query.rest() == rows(log)
    log.commit(1)
    assert query.batch() is None
    log.append(b"c")
    log.commit()
    assert query.rest() == [("t", 0, 2, b"c")]


def test_what_retention_deletes_between_planning_and_reading(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.roll()
    log.append(b"b")
    log.commit()
    query = StreamQuery(tmp_path, startingOffsets="earliest")
    words = "Partition t-0 offset was changed from 0 to 1: the records between them were deleted.*failOnDataLoss"
    with pytest.raises(KdumpError, match=words):
        query.batch(before=log.delete_oldest)
    log.append(b"c")
    log.roll()
    log.append(b"d")
    log.commit()
    loose = StreamQuery(tmp_path, checkpoint={"t": {"0": 1}}, failOnDataLoss="false")
    with pytest.warns(DamageWarning, match="Partition t-0 offset was changed from 1 to 3") as warned:
        assert loose.batch(before=log.delete_oldest) == [("t", 0, 3, b"d")]
    assert len(warned) == 1


def test_what_is_cut_back_between_planning_and_reading(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b")
    log.commit()
    words = "Partition t-0 offset was changed from 2 to 1: the log was truncated"
    strict = StreamQuery(tmp_path, startingOffsets="earliest")
    loose = StreamQuery(tmp_path, startingOffsets="earliest", failOnDataLoss="false")
    ranges = [list(query.reader.partitions({"t": {"0": 0}}, {"t": {"0": 2}})) for query in (strict, loose)]
    log.truncate(1)
    with pytest.raises(KdumpError, match=words):
        list(strict.read(ranges[0][0]))
    with pytest.warns(DamageWarning, match=words):
        assert list(loose.read(ranges[1][0])) == [("t", 0, 0, b"a")]


def test_a_partition_that_is_deleted_between_planning_and_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.spark.stream_logs._PAUSE_SECONDS", 0)

    def query(name: str, **options: str) -> tuple[StreamQuery, Callable[[], object]]:
        log = GrowingPartition(tmp_path / name, "t", 0)
        log.append(b"a")
        log.commit()
        gone = tmp_path / name / f"t-0.{'0' * 32}-delete"
        return StreamQuery(tmp_path / name, startingOffsets="earliest", **options), lambda: log.path.rename(gone)

    words = r"Partitions \[t-0\] have been deleted"
    strict, delete = query("strict")
    with pytest.raises(KdumpError, match=f"{words}.*failOnDataLoss"):
        strict.batch(before=delete)
    loose, delete = query("loose", failOnDataLoss="false")
    with pytest.warns(DamageWarning, match=words):
        assert loose.batch(before=delete) == []


@pytest.mark.parametrize("option", ["true", "false"])
def test_a_segment_that_is_replaced_between_planning_and_reading_is_not_lost(
    tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a broker puts a cleaned segment in the place of others, a look at the directory can find neither."""
    partition = GrowingPartition(tmp_path, "t", 0)
    for value in (b"a", b"b", b"c"):
        partition.append(value)
        partition.roll()
    partition.commit()
    first, second, *_ = sorted(partition.path.glob("*.log"))
    hidden = tmp_path / "hidden"
    hidden.write_bytes(first.read_bytes() + second.read_bytes())

    def hide() -> None:
        for path in (first, second):
            path.rename(f"{path}.deleted")

    pause_with(monkeypatch, lambda _: hidden.exists() and hidden.rename(first))
    query = StreamQuery(tmp_path, startingOffsets="earliest", failOnDataLoss=option)
    assert [row[3] for row in query.batch(before=hide) or ()] == [b"a", b"b", b"c"]


@pytest.mark.daily(3)
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_missing_and_nothing_comes_twice(seed: int, tmp_path: Path) -> None:
    """Appends, rolls, truncation above the high watermark, retention of what was read, and restarts."""
    rng = random.Random(seed)
    logs = [GrowingPartition(tmp_path, "t", 0)]
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rng.choice((3, 10, 1000)))}
    query, found = StreamQuery(tmp_path, **options), list[Row]()
    wanted: dict[tuple[int, int], bytes] = {}
    for step in range(60):
        log = rng.choice(logs)
        match rng.choice(["append"] * 4 + ["commit"] * 3 + ["roll", "truncate", "delete", "new", "restart", "torn"]):
            case "append":
                log.append(*(b"%d %d %d" % (seed, step, each) for each in range(rng.randint(1, 4))))
            case "commit":
                log.commit(rng.choice(log.borders))
            case "roll":
                log.roll()
            case "truncate":
                log.truncate(rng.choice(log.borders))
            case "torn":
                log.append_bytes(b"\0\0\0")
                log.truncate(log.end, epoch=False) if rng.random() < 0.5 else found.extend(query.batch() or ())
                log.truncate(log.end, epoch=False)
            case "delete" if query.checkpoint["t"].get(str(log.number), 0) == log.end:
                log.roll()
                log.delete_oldest()
            case "new" if len(logs) < 3:
                logs.append(GrowingPartition(tmp_path, "t", len(logs)))
            case "restart":
                query = StreamQuery(tmp_path, checkpoint=as_json(query.checkpoint), **options)
        for each in logs:
            wanted |= {(each.number, offset): value for offset, value in each.values.items() if offset < each.mark}
        found += query.batch() or () if rng.random() < 0.5 else ()
    found += query.rest()
    assert len(found) == len(wanted)
    assert {(row[1], row[2]): row[3] for row in found} == wanted
    for each in logs:
        offsets = [row[2] for row in found if row[1] == each.number]
        assert offsets == sorted(offsets)


def test_the_columns_of_a_stream_and_of_a_batch(tmp_path: Path) -> None:
    from kdump.spark import KdumpSource

    options = {"path": str(tmp_path), "endAt": "log-end", "maxOffsetsPerTrigger": "5", "startingOffsets": "latest"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KdumpSource(options).schema().names[-1] == "timestampType"
        assert KdumpSource({**options, "includeHeaders": "true"}).schema().names[-1] == "headers"
    with pytest.raises(KdumpError, match="has no option 'endat'"):
        KdumpSource(options).reader(KdumpSource(options).schema())
    with pytest.raises(KdumpError, match="endAt is high-watermark or log-end"):
        KdumpSource({**options, "endAt": "x"}).schema()
    with pytest.raises(KdumpError, match="has no option 'endatt'"):
        KdumpSource({"path": str(tmp_path), "endAtt": "x"}).schema()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_look_opens_only_what_may_have_changed(tmp_path: Path, isolation: str) -> None:
    """In an object store: what is listed anew and has not changed takes no request, whatever is asked of it."""
    logs = [GrowingPartition(tmp_path, "t", number, marked=False) for number in range(8)]
    for log in logs:
        log.append(b"a", b"b")
        (log.path / "leader-epoch-checkpoint").write_bytes(build.checkpoint("0 0"))
    Unsteady.reset()
    object_store.cache_clear()
    try:
        copy(Unsteady(), tmp_path, "/bucket")
        given = {"path": "unsteady://bucket", "endAt": "log-end", "kafka.isolation.level": isolation}
        now = [0]
        follower = LogFollower(parse_stream_options(given), now_ns=lambda: now[0])

        def look() -> tuple[list[int], int]:
            Unsteady.calls.clear()
            ends = [each.end for _, each in sorted(follower.look(now=True).items())]
            return ends, Unsteady.calls["open"]

        ends, opened = look()
        assert ends == [2] * 8
        assert look() == (ends, opened)  # just written: another write could leave the same time
        now[0] = 1 << 62
        look()
        assert look() == (ends, 0)
        logs[3].append(b"c")
        copy(Unsteady(), logs[3].path, "/bucket/t-3")
        ends, opened_again = look()
        assert ends == [2, 2, 2, 3, 2, 2, 2, 2]
        assert 0 < opened_again <= opened / 8
    finally:
        Unsteady.reset()
        object_store.cache_clear()
