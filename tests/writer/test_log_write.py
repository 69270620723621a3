"""A log that is appended to: what it leaves beside the batches is what a recovery of them makes, and what it refuses
leaves nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.broker import rebuild
from kdump.broker.predict import directory_state, predict_start
from kdump.broker.rebuild_request import PlannedSegment
from kdump.errors import KdumpError, MessageTooLarge
from kdump.format import producer_snapshot
from kdump.format.checkpoint import EpochEntry, epoch_entries
from kdump.format.naming import segment_file_name
from kdump.recover import run_plan
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.recover import remaining_findings
from kdump.recover.run_plan import RunPlan
from kdump.storage import directory_handle as disk
from kdump.storage.pieces import Piece
from kdump.storage.stamps import read_stamps
from kdump.storage.undo_folders import UndoFolder, discard
from kdump.writer import active_segment, appender
from kdump.writer.appender import Appender, LogAppendInfo
from kdump.writer.builder import NewRecord
from kdump.writer.options import KAFKA07, LogOptions
from support import build, oracle
from support.laws import examples
from support.waits import thread_waits, until

T = 1_600_000_000_000
NOW = T + 3_600_000
LOADED_STEPS = tuple(step for step in build.ODD_STEPS if step not in ("malformed", "plain-inside"))
INDEXES = (".index", ".timeindex", ".txnindex")


def options(**changes: Any) -> LogOptions:
    return LogOptions(segment_bytes=3000, index_interval_bytes=200, clock=lambda: NOW)._replace(**changes)


def read(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def logs(directory: Path) -> dict[int, bytes]:
    return {int(name[:20]): data for name, data in sorted(read(directory).items()) if name.endswith((".log", ".kafka"))}


def batch(value: bytes = b"v" * 60, *, count: int = 1, timestamp: int = T, **how: Any) -> bytes:
    return build.batch([build.record(b"k", value, timestamp=timestamp)] * count, **how)


def cut(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = build.total_size(data, at)
        yield data[at : at + size]
        at += size


def rebuilt(directory: Path, built: LogOptions) -> dict[str, bytes | None]:
    """Every companion of a log as a recovery of all its segments makes it."""
    there = logs(directory)
    bases = sorted(there)
    end = oracle_end(bases[-1], there[bases[-1]])
    names = [segment_file_name(base, suffix) for base in bases for suffix in INDEXES]
    names += [segment_file_name(offset, ".snapshot") for offset in sorted({*bases[1:], end} - {bases[0]})]
    plan = Plan(
        str(directory),
        None,
        RecoverOptions(
            index_interval_bytes=built.index_interval_bytes, segment_index_bytes=built.segment_index_bytes, now_ms=0
        ),
        after=dict.fromkeys(names, FileContent()),
        files=read_stamps(str(directory)),
        segments=tuple(
            PlannedSegment(
                base, (Piece(segment_file_name(base, ".log"), 0, len(there[base])),) if there[base] else (), True, True
            )
            for base in bases
        ),
        log_start_offset=bases[0],
        log_end_offset=end,
    )
    return dict(rebuild.rebuild_companions(plan.rebuild_request()))


def oracle_end(base: int, data: bytes) -> int:
    return max((item.last_offset for item in oracle.walk(data) if isinstance(item, oracle.Batch)), default=base - 1) + 1


def check_companions(directory: Path, built: LogOptions) -> None:
    now = read(directory)
    for name, data in rebuilt(directory, built).items():
        assert now.get(name) == data, name
    expected = {name for name in now if name.endswith(".snapshot")}
    assert expected <= rebuilt(directory, built).keys()


# -------------------------------------------------------------------------------------------------------------------
# laws


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(80)))
def test_companions_are_those_of_a_recovery(number: int, tmp_path: Path) -> None:
    rng = random.Random(f"write:{number}")
    parts = build.partition(
        rng,
        batches=rng.choice((5, 60, 150)),
        odd=rng.choice((0, 0.1, 0.4)),
        odd_steps=LOADED_STEPS,
        removed=rng.choice((0, 0, 0.3)),
    )
    batches = list(cut(b"".join(part.data for part in parts)))
    data = b""
    built = options(
        segment_bytes=rng.choice((1000, 3000, 1 << 30)),
        index_interval_bytes=rng.choice((0, 100, 400, 4096)),
        segment_index_bytes=rng.choice((10 << 20, 60)),
        base_offset=parts[0].base_offset,
    )
    directory = tmp_path / "t-0"
    with Appender(str(directory), built) as log:
        for one in batches:
            # Where a marker was removed, what follows may be no part of the transaction.
            with suppress(ValueError):
                log.append_batches(one, assign=False)
                data += one
        view = log.snapshot
    assert b"".join(logs(directory).values()) == data
    assert [segment.base_offset for segment in view.segments] == sorted(logs(directory))
    assert view.end_offset == oracle_end(parts[0].base_offset, data)
    check_companions(directory, built)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(40)))
def test_several_lives_and_chunks(number: int, tmp_path: Path) -> None:
    """What is in the indexes depends on where a life ended; all else does not."""
    rng = random.Random(f"lives:{number}")
    parts = build.partition(rng, batches=120, odd=rng.choice((0, 0.2)), odd_steps=LOADED_STEPS)
    data = list(cut(b"".join(part.data for part in parts)))
    built = options(segment_bytes=rng.choice((2000, 5000)), base_offset=parts[0].base_offset)
    directory = tmp_path / "t-0"
    while data:
        with Appender(str(directory), built) as log:
            for _ in range(rng.randrange(12)):
                count = rng.randint(1, 4)
                some, data = data[:count], data[count:]
                log.append_batches(b"".join(some), assign=False)
        beside = ("index/", "timeindex/", "txnindex/", "snapshot/", "epoch/checkpoint", "file/", "segment/", "tail/")
        assert not [finding for finding in remaining_findings(str(directory)) if finding.code.startswith(beside)]
    whole = b"".join(part.data for part in parts)
    assert b"".join(logs(directory).values()) == whole
    now = read(directory)
    for name, expected in rebuilt(directory, built).items():
        if name.endswith(".snapshot") and name in now:
            assert snapshot_of(now[name]) == snapshot_of(expected), name
    outcome = predict_start(directory_state(str(directory)))
    assert not outcome.refusals
    assert not outcome.truncations


def snapshot_of(data: bytes | None) -> list[Any]:
    assert data is not None
    return sorted(producer_snapshot.parse_entries(data))


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_anything_is_taken_or_refused(shared: Appender, chance: st.DataObject) -> None:
    """Whatever comes, the log is as it was, or has what came."""
    pieces = st.one_of(
        build.batches(),
        st.binary(max_size=200),
        st.builds(
            lambda data, at, byte: data[:at] + bytes([byte]) + data[at + 1 :],
            build.batches(),
            st.integers(0, 90),
            st.integers(0, 255),
        ),
    )
    data = chance.draw(st.one_of(pieces, st.lists(pieces, max_size=3).map(b"".join)))
    view = shared.snapshot
    assert view.active is not None
    try:
        done = shared.append_batches(data, assign=chance.draw(st.booleans()))
    except (ValueError, MessageTooLarge):
        assert shared.snapshot is view
        assert os.path.getsize(view.active.path) == view.active.size_bytes
    else:
        assert done.last_offset + 1 == shared.snapshot.end_offset
        walked = oracle.walk(Path(shared.snapshot.active.path).read_bytes()) if shared.snapshot.active else []
        assert all(isinstance(item, oracle.Batch) for item in walked)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appender]:
    directory = tmp_path_factory.mktemp("shared") / "t-0"
    with Appender(str(directory), options()) as log:
        yield log
    found = [
        finding
        for finding in remaining_findings(str(directory))
        if finding.code.startswith(("batch/", "gap/", "tail/", "offset/backwards"))
    ]
    assert not found


# ------------------------------------------------------------------------------------------------------------ by a
# leader


def test_offsets_and_epochs_are_given(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Appender(str(directory), options(base_offset=7, leader_epoch=3)) as log:
        assert log.append_batches(batch(count=2)) == LogAppendInfo(7, 8, 1)
        assert log.append_batches(batch(base_offset=100) + batch(count=3, epoch=9)) == LogAppendInfo(9, 12, 2)
        assert log.append_batches(batch(), leader_epoch=5) == LogAppendInfo(13, 13, 1)
        assert log.append_batches(batch()) == LogAppendInfo(14, 14, 1)
        assert log.append_batches(b"") == LogAppendInfo(15, 14, 0)
        assert log.snapshot.start_offset == 7
        assert log.snapshot.end_offset == 15
    items = [item for item in oracle.walk(logs(directory)[7]) if isinstance(item, oracle.Batch)]
    assert [(item.base_offset, item.last_offset, item.partition_leader_epoch) for item in items] == [
        (7, 8, 3),
        (9, 9, 3),
        (10, 12, 3),
        (13, 13, 5),
        (14, 14, 5),
    ]
    assert list(epoch_entries(read(directory)["leader-epoch-checkpoint"])) == [EpochEntry(3, 7), EpochEntry(5, 13)]
    with Appender(str(directory), options(leader_epoch=1)) as log:
        assert log.leader_epoch == 5  # a log does not go back


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_and_left_as_it_is(kind: Callable[[bytes], Any], tmp_path: Path) -> None:
    data = kind(batch(base_offset=4))
    with Appender(str(tmp_path / "t-0"), options()) as log:
        log.append_batches(data)
    assert bytes(data) == batch(base_offset=4)


@pytest.mark.parametrize("assign", [True, False])
@pytest.mark.parametrize("form", ["b", "c", "H", "q"])
def test_a_memoryview_of_any_items(form: Any, assign: bool, tmp_path: Path) -> None:
    data = batch(b"v" * 73)
    with Appender(str(tmp_path / "t-0"), options(max_message_bytes=len(data))) as log:
        assert log.append_batches(memoryview(data).cast(form), assign=assign) == LogAppendInfo(0, 0, 1)
        with pytest.raises(MessageTooLarge):
            log.append_batches(memoryview(batch(b"v" * 81)).cast(form), assign=assign)
        with pytest.raises(TypeError, match="contiguous"):
            log.append_batches(memoryview(data * 2)[::2], assign=assign)
    assert logs(tmp_path / "t-0")[0] == data


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_get_offsets(magic: int, codec: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    records = [build.record(b"k%d" % n, b"v%d" % n, timestamp=T + n, offset=n) for n in range(4)]
    if codec == "none":
        sent = b"".join(
            build.message(magic, one.key, one.value, offset=0, timestamp=one.timestamp or 0) for one in records
        )
    else:
        sent = build.wrapper(records, codec=codec, magic=magic)
    with Appender(str(directory), options(magic=magic)) as log:
        for _ in range(3):
            log.append_batches(sent)
        assert log.snapshot.end_offset == 12
    data = logs(directory)[0]
    found, at = [], 0
    for one in cut(data):
        found += oracle.records(data, at)
        at += len(one)
    assert [record.offset for record in found] == list(range(12))
    assert [record.value for record in found] == [b"v0", b"v1", b"v2", b"v3"] * 3
    if magic == 1:
        assert [record.timestamp for record in found] == [T, T + 1, T + 2, T + 3] * 3
    check_companions(directory, options())


def test_a_message_set_with_holes_is_rebuilt(tmp_path: Path) -> None:
    records = [build.record(b"k", b"v%d" % n, timestamp=T, offset=3 * n) for n in range(4)]
    with Appender(str(tmp_path / "t-0"), options(magic=1)) as log:
        assert log.append_batches(batch()) == LogAppendInfo(0, 0, 1)
        log.append_batches(build.wrapper(records, codec="gzip", magic=1) + batch())
        assert log.snapshot.end_offset == 6
    data = logs(tmp_path / "t-0")[0]
    at = len(batch())
    assert [record.offset for record in oracle.records(data, at)] == [1, 2, 3, 4]


def test_records(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    built = options(codec="gzip")
    new = [NewRecord(b"k", os.urandom(200), ((b"h", None),), T + number) for number in range(100)]
    with Appender(str(directory), built) as log:
        done = log.append_records(new)
        assert done[:2] == (0, 99)
        assert done.batches > 5  # no batch is larger than a segment
        log.append_records(new, producer_id=7, producer_epoch=1, base_sequence=5)
        log.append_records([NewRecord(b"k", None, (), T, 205), NewRecord(b"k", None, (), T, 210)])
        assert log.append_records([]) == LogAppendInfo(211, 210, 0)
        with pytest.raises(ValueError, match="offset"):
            log.append_records([NewRecord(b"k", None, (), T, 3)])
        assert log.snapshot.end_offset == 211
    found = [record for data in logs(directory).values() for record in all_records(data)]
    assert [record.offset for record in found] == [*range(200), 205, 210]
    assert [record.value for record in found[:100]] == [one.value for one in new]
    assert [record.sequence for record in found[100:200]] == list(range(5, 105))
    assert not remaining_findings(str(directory))


def all_records(data: bytes) -> Iterator[oracle.Record]:
    at = 0
    for one in cut(data):
        yield from oracle.records(data, at)
        at += len(one)


# ----------------------------------------------------------------------------------------------------------------
# refused


def producer(sequence: int, *, epoch: int = 0, transactional: bool = False, count: int = 1, **how: Any) -> bytes:
    return batch(
        producer_id=9, producer_epoch=epoch, base_sequence=sequence, transactional=transactional, count=count, **how
    )


def marker(kind: str = "COMMIT", *, epoch: int = 0, coordinator: int = 5, **how: Any) -> bytes:
    return build.marker(kind, producer_id=9, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp=T, **how)


REFUSED: dict[str, tuple[Sequence[bytes], bytes, str]] = {
    "sequence gap": ([producer(0)], producer(2), "sequence 2, expected 1"),
    "sequence back": ([producer(0, count=3), producer(3)], producer(1), "out of order"),
    "duplicate": ([producer(0), producer(1, count=2), producer(3)], producer(1, count=2), "they are at offset 1"),
    "fenced": ([producer(0, epoch=3)], producer(1, epoch=2), "fenced"),
    "new epoch": ([producer(0)], producer(1, epoch=1), "expected 0"),
    "no sequence": ([], producer(-1), "no sequence"),
    "inside a transaction": ([producer(0, transactional=True)], producer(1), "open since offset 0"),
    "fenced marker": ([producer(0, epoch=3)], marker(epoch=2), "fenced"),
    "old coordinator": ([marker(coordinator=8)], marker(coordinator=7), "coordinator epoch 7"),
    "kraft with a producer": (
        [],
        build.batch([build.kraft_version(1)], control=True, producer_id=4, producer_epoch=0),
        "control",
    ),
    "malformed marker": (
        [],
        build.batch([build.record(b"\0\0\0\1", b"\0\0\0")], control=True, producer_id=4, producer_epoch=0),
        "control batch",
    ),
    "checksum": ([batch()], batch()[:-1] + b"x", "checksum"),
    "torn": ([batch()], batch()[:-1], "an incomplete batch"),
    "beginning": ([batch()], batch() + b"\0" * 5, "beginning of a batch at byte 130"),
    "garbage": ([batch()], b"\0" * 100, "no batch at byte 0"),
    "second one": ([batch()], batch() + batch()[:-3] + b"abc", "at byte 130"),
    "unknown codec": ([], build.reseal(batch()[:22] + b"\7" + batch()[23:]), "codec"),
    "count": ([], build.reseal(batch()[:57] + struct.pack(">i", 7) + batch()[61:]), "number of records"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, tmp_path: Path) -> None:
    before, data, why = REFUSED[what]
    directory = tmp_path / "t-0"
    with Appender(str(directory), options()) as log:
        for one in before:
            log.append_batches(one)
        there, view = read(directory), log.snapshot
        for _ in range(2):
            with pytest.raises(ValueError, match=why):
                log.append_batches(data)
            assert log.snapshot is view
            assert read(directory) == there
        log.append_batches(batch())
        assert log.snapshot.end_offset == view.end_offset + 1
    assert not [one for one in remaining_findings(str(directory)) if one.code != "txn/hanging"]


def test_what_a_producer_may_do(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options()) as log:
        for data in (
            producer(41),  # nothing is known of it
            producer(42, count=2),
            producer(44, transactional=True),
            producer(45, transactional=True),
            marker("ABORT", epoch=1),
            producer(0, epoch=1),
            marker(epoch=1, coordinator=6),
            producer(1, epoch=1),
            producer(0, epoch=2, count=3),
        ):
            log.append_batches(data)
    with Appender(str(tmp_path / "t-0"), options()) as log:
        with pytest.raises(ValueError, match="before: they are at offset 9"):
            log.append_batches(producer(0, epoch=2, count=3))
        log.append_batches(producer(3, epoch=2))
    entries = read(tmp_path / "t-0")["00000000000000000000.txnindex"]
    assert entries == build.transaction_index((9, 3, 5, 6))


def test_coordinators_topics_have_no_sequences(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "__consumer_offsets-3"), options()) as log:
        for count in (1, 2, 3):
            log.append_batches(producer(0, count=count))
        with pytest.raises(ValueError, match="before: they are at offset 3"):
            log.append_batches(producer(0, count=3))


def test_sequences_go_on_after_the_largest(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options()) as log:
        log.append_batches(producer(2**31 - 2, count=3))
        with pytest.raises(ValueError, match="expected 1"):
            log.append_batches(producer(0))
        log.append_batches(producer(1))


def test_a_follower_takes_sequences_as_they_are(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options()) as log:
        for offset, data in enumerate((5, 2, 2, 0)):
            log.append_batches(producer(data, base_offset=offset), assign=False)
        with pytest.raises(ValueError, match="above that of the previous batch"):
            log.append_batches(batch(base_offset=3), assign=False)
        with pytest.raises(ValueError, match="above that of the previous batch"):
            log.append_batches(batch(base_offset=9) + batch(base_offset=9), assign=False)
        assert log.append_batches(batch(base_offset=9) + batch(base_offset=19), assign=False) == LogAppendInfo(9, 19, 2)


def test_too_large(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options(max_message_bytes=2000)) as log:
        with pytest.raises(MessageTooLarge):
            log.append_batches(batch(bytes(2000)))
        with pytest.raises(MessageTooLarge):
            log.append_batches(batch(bytes(1000)) * 3)
        assert log.append_batches(batch(bytes(1000)) * 2) == LogAppendInfo(0, 1, 2)


def test_records_go_into_batches_that_are_not_too_large(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options(max_message_bytes=500)) as log:
        done = log.append_records([NewRecord(b"k", os.urandom(100), (), T)] * 20)
        assert done[:2] == (0, 19)
        assert done.batches > 4


# -------------------------------------------------------------------------------------------------------------------
# roll


def test_offsets_far_apart_roll(tmp_path: Path) -> None:
    far = (0, 5, 2**31 - 2, 2**31 + 3, 2**33, 2**40)
    with Appender(str(tmp_path / "t-0"), options()) as log:
        log.append_batches(b"".join(batch(base_offset=offset) for offset in far[:3]), assign=False)
        with pytest.raises(ValueError, match="one segment"):
            log.append_batches(batch(base_offset=far[3]) + batch(base_offset=far[4]), assign=False)
        for offset in far[3:]:
            log.append_batches(batch(base_offset=offset), assign=False)
    assert list(logs(tmp_path / "t-0")) == [0, *far[3:]]
    assert not [
        one for one in remaining_findings(str(tmp_path / "t-0")) if one.code not in ("segment/missing", "offset/gap")
    ]


def test_no_segment_has_more_bytes_than_an_index_can_tell(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options(segment_bytes=1 << 40)) as log:
        log.append_batches(batch())
    with disk.DirectoryHandle(str(tmp_path / "t-0")) as place:
        segment = active_segment.ActiveSegment(place, 0, options(segment_bytes=1 << 40))
        assert segment.is_full(2**31 - 130, 1)
        assert not segment.is_full(2**31 - 131, 1)
        segment.close()


def test_full_indexes_roll(tmp_path: Path) -> None:
    built = options(segment_bytes=1 << 20, segment_index_bytes=36, index_interval_bytes=0)
    with Appender(str(tmp_path / "t-0"), built) as log:
        for number in range(12):
            log.append_batches(batch(timestamp=T + number))
        assert len(log.snapshot.segments) > 2
    check_companions(tmp_path / "t-0", built)


def test_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    for _ in range(2):
        with Appender(str(directory), options(base_offset=12)) as log:
            assert log.snapshot.segments == (log.snapshot.active,)
            assert (log.snapshot.start_offset, log.snapshot.end_offset) == (12, 12)
        stem = "00000000000000000012"
        assert read(directory) == dict.fromkeys(
            (f"{stem}.log", f"{stem}.index", f"{stem}.timeindex", "leader-epoch-checkpoint"), b""
        )


def test_the_last_offsets(tmp_path: Path) -> None:
    last = 2**63 - 1
    with Appender(str(tmp_path / "t-0"), options(base_offset=last - 2)) as log:
        assert log.append_batches(batch()) == LogAppendInfo(last - 2, last - 2, 1)
        for data in (batch(count=3), batch() * 4):
            with pytest.raises(ValueError, match="offset"):
                log.append_batches(data)
        assert log.append_batches(batch()) == LogAppendInfo(last - 1, last - 1, 1)
        for data, assign in ((batch(), True), (batch(base_offset=last), False)):
            with pytest.raises(ValueError, match="no offset after 9223372036854775807"):
                log.append_batches(data, assign=assign)
    with Appender(str(tmp_path / "t-0"), options()) as log:
        assert log.snapshot.end_offset == last


def test_a_life_without_appends_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    whole = built_log(directory)
    for _ in range(2):
        with Appender(str(directory), options()) as log:
            assert read(directory) == whole
            log.flush()
        assert read(directory) == whole


def test_index_entries_wait_in_memory_only_for_a_while(tmp_path: Path) -> None:
    """And come with a flush."""
    index = tmp_path / "t-0" / "00000000000000000000.index"
    with Appender(str(tmp_path / "t-0"), options(segment_bytes=1 << 20, index_interval_bytes=0)) as log:
        for number in range(200):
            log.append_batches(batch(timestamp=T + number))
            assert number - 64 <= index.stat().st_size // 8 <= number
        log.flush()
        assert index.stat().st_size == 8 * 199


# -------------------------------------------------------------------------------------------------------------- Kafka
# 0.7


def test_kafka_07(tmp_path: Path) -> None:
    directory = tmp_path / "t_0"
    built = options(magic=KAFKA07, segment_bytes=100)
    one = build.message07(b"value", magic=1)
    with Appender(str(directory), built) as log:
        assert log.append_batches(one) == LogAppendInfo(0, 14, 1)
        assert log.append_batches(one * 2)[0] == 15
        log.append_records([NewRecord(None, b"x" * 40), NewRecord(None, b"y")])
        log.append_records([NewRecord(None, b"z" * 30)], codec="gzip")
        with pytest.raises(ValueError, match=r"no batch|incomplete batch|beginning"):
            log.append_batches(one[:-1])
        end = log.snapshot.end_offset
        view = log.snapshot
    there = logs(directory)
    assert sorted(read(directory)) == [f"{base:020d}.kafka" for base in there]
    assert list(there)[1:] == [base + len(data) for base, data in there.items()][:-1]
    assert end == sum(map(len, there.values()))
    assert [segment.next_offset for segment in view.segments] == [base + len(data) for base, data in there.items()]
    with Appender(str(directory), built) as log:
        assert log.snapshot.end_offset == end
        log.append_batches(one)
    assert not remaining_findings(str(directory))
    with pytest.raises(KdumpError, match="another format"):
        Appender(str(directory), options())


# ------------------------------------------------------------------------------------------------------------------
# flush


class Syncs:
    """Counts the syncs of a log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}") if sys.platform == "linux" else ".log"
        if path.endswith((".log", ".kafka")) and os.fstat(descriptor).st_size:
            self.sizes.append(os.fstat(descriptor).st_size)
        self._fsync(descriptor)


def test_flush_by_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with Appender(str(tmp_path / "t-0"), options(flush_messages=5, segment_bytes=1 << 20)) as log:
        unsynced = 0
        for number in range(40):
            count = number % 3 + 1
            before = len(syncs.sizes)
            log.append_batches(batch(count=count))
            unsynced = 0 if len(syncs.sizes) > before else unsynced + count
            assert unsynced < 5
            if unsynced == 0:
                assert syncs.sizes[-1] == log.snapshot.active.size_bytes  # type: ignore[union-attr]
    assert len(syncs.sizes) > 10


def test_flush_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with Appender(str(tmp_path / "t-0"), options(flush_ms=40)) as log:
        for _ in range(3):
            count = len(syncs.sizes)
            log.append_batches(batch())
            assert len(syncs.sizes) == count
            until(lambda count=count: len(syncs.sizes) > count)  # type: ignore[misc]
            assert syncs.sizes[-1] == log.snapshot.active.size_bytes  # type: ignore[union-attr]
        until(lambda: thread_waits("kdump flush"))
        assert len(syncs.sizes) == 3  # nothing waits
        assert [one.name for one in threading.enumerate()].count("kdump flush") == 1
    until(lambda: "kdump flush" not in [one.name for one in threading.enumerate()])


def test_flush_after_longer_than_a_system_can_wait(tmp_path: Path) -> None:
    """The setting that a broker has when no one sets it."""
    with Appender(str(tmp_path / "t-0"), options(flush_ms=(1 << 63) - 1, flush_messages=(1 << 63) - 1)) as log:
        for _ in range(2):
            log.append_batches(batch())
            until(lambda: thread_waits("kdump flush"))


def test_flush_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with Appender(str(tmp_path / "t-0"), options(segment_bytes=500)) as log:
        for _ in range(3):
            log.append_batches(batch())
        assert not syncs.sizes
        log.flush()
        assert syncs.sizes == [3 * 130]
        log.append_batches(batch())  # rolls: only the newest segment can be torn
        assert syncs.sizes[1:] == [3 * 130]
    assert syncs.sizes[2:] == [130]


def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "t-0"
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"{}")
    log = Appender(str(directory), options(flush_messages=2))
    log.append_batches(batch())

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(KdumpError, match="could not be synced to the disk"):
        log.append_batches(batch())
    with pytest.raises(KdumpError, match="could not be synced to the disk"):
        log.append_batches(batch())
    with pytest.raises(KdumpError, match="could not be synced to the disk"):
        log.flush()
    log.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    monkeypatch.undo()
    with Appender(str(directory), options()) as log:
        assert log.snapshot.end_offset == 2
        log.append_batches(batch())
    assert not remaining_findings(str(directory))


def test_a_disk_that_fails_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def broken(_: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "I/O error")

    log = Appender(str(tmp_path / "t-0"), options(flush_ms=300))
    log.append_batches(batch())
    monkeypatch.setattr(os, "fsync", broken)
    assert failed.wait(5)
    with pytest.raises(KdumpError, match="could not be synced to the disk"):
        log.append_batches(batch())
    log.close()


def test_a_disk_that_failed_in_the_background_is_reported_of_at_the_latest_when_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = threading.Event()

    def broken(_: int) -> None:
        failed.set()
        raise OSError(errno.EIO, "I/O error")

    directory = tmp_path / "t-0"
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"{}")
    log = Appender(str(directory), options(flush_ms=300))
    log.append_batches(batch())
    monkeypatch.setattr(os, "fsync", broken)
    assert failed.wait(5)
    monkeypatch.undo()
    with pytest.raises(KdumpError, match="could not be synced to the disk"):
        log.close()
    log.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "t-0"
    with Appender(str(directory), options()) as log:
        log.append_batches(producer(0, transactional=True))
        there, view = read(directory), log.snapshot
        whole = os.write

        def half(descriptor: int, data: bytes) -> int:
            whole(descriptor, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space left on device")

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(KdumpError, match="no space left on device; nothing was appended"):
            log.append_batches(producer(1, transactional=True))
        assert read(directory) == there
        assert log.snapshot is view

        def not_the_index(descriptor: int, data: bytes) -> int:
            return (half if len(data) == 34 else whole)(descriptor, data)

        monkeypatch.setattr(os, "write", not_the_index)
        with pytest.raises(KdumpError, match="nothing was appended"):
            log.append_batches(marker("ABORT"))
        assert read(directory) == {**there, "00000000000000000000.txnindex": b""}
        assert log.snapshot is view
        monkeypatch.undo()
        log.append_batches(producer(1, transactional=True))
        log.append_batches(marker("ABORT"))
    check_companions(directory, options())


@pytest.mark.parametrize("where", ["write", "commit_batch"])
def test_an_interrupt(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "t-0"
    log = Appender(str(directory), options())
    log.append_batches(batch())
    whole = getattr(active_segment.ActiveSegment, where)

    def interrupted(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(active_segment.ActiveSegment, where, interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.append_batches(batch())
    monkeypatch.undo()
    if where == "write":
        log.append_batches(batch())
    else:
        with pytest.raises(KdumpError, match="interrupted"):
            log.append_batches(batch())
    log.close()
    with Appender(str(directory), options()) as log:
        assert log.snapshot.end_offset == 2
    assert not remaining_findings(str(directory))


# ----------------------------------------------------------------------------------------------------------------
# opening


def built_log(directory: Path, count: int = 30) -> dict[str, bytes]:
    with Appender(str(directory), options()) as log:
        for number in range(count):
            log.append_batches(batch(timestamp=T + number))
    return read(directory)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "there is no batch at byte"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0" * 50), "there is no batch at byte"),
        (lambda path: path.write_bytes(path.read_bytes()[:200] + b"\xff" + path.read_bytes()[201:]), "is damaged"),
        (lambda path: path.with_suffix(".log.swap").write_bytes(b""), "a segment that was replacing others"),
        (lambda path: path.with_suffix(".log.cleaned").write_bytes(b""), "a log cleaner"),
        (lambda path: (path.parent / "x.log").write_bytes(b""), "no number"),
        (lambda path: (path.parent / "leader-epoch-checkpoint").write_bytes(b"0\n7\n"), "leader-epoch-checkpoint"),
    ],
)
def test_a_log_that_has_to_be_recovered(change: Callable[[Path], object], why: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    built_log(directory)
    change(max(directory.glob("*.log")))
    there = read(directory)
    with pytest.raises(KdumpError, match=f"{why}.*; kdump recover --truncate {directory} recovers the log"):
        Appender(str(directory), options())
    assert read(directory) == there


def test_a_newest_segment_that_begins_inside_the_one_before(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    built_log(directory)
    (directory / segment_file_name(29, ".log")).touch()
    there = read(directory)
    with pytest.raises(KdumpError, match=r"offsets go beyond 29, .*; kdump recover --salvage .* recovers the log"):
        Appender(str(directory), options())
    assert read(directory) == there


def test_a_log_that_ends_before_it_starts(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    built_log(directory)
    there = read(directory)
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    checkpoint.write_bytes(build.checkpoint("t 0 31"))
    with pytest.raises(KdumpError, match="ends at offset 30, below its start offset 31; kdump recover --truncate"):
        Appender(str(directory), options())
    assert read(directory) == there
    checkpoint.write_bytes(build.checkpoint("t 0 30"))
    with Appender(str(directory), options()) as log:
        assert log.append_batches(batch()) == LogAppendInfo(30, 30, 1)


def test_an_unfinished_recovery_of_the_log_directory(tmp_path: Path) -> None:
    """Such a run may be about to change any log of the directory."""
    directory = tmp_path / "t-0"
    built_log(directory)
    there, folder = read(directory), UndoFolder("1", flat=True)
    with disk.DirectoryHandle(str(tmp_path)) as root:
        run_plan.write(root, folder, RunPlan("1", 0))
        with pytest.raises(KdumpError, match=f"kdump recover --resume {tmp_path} "):
            Appender(str(directory), options())
        assert read(directory) == there
        discard(root, folder)
    Appender(str(directory), options()).close()


def test_an_unfinished_recovery(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    built_log(directory)
    (directory / ".kdump-undo" / "1" / "new").mkdir(parents=True)
    (directory / ".kdump-undo" / "1" / "old").mkdir()
    (directory / ".kdump-undo" / "1" / "old" / "x.log").write_bytes(b"x")
    with pytest.raises(KdumpError, match="kdump recover"):
        Appender(str(directory), options())


@pytest.mark.parametrize("lost", [*INDEXES[:2], ".snapshot", "short", "stale", "padded"])
def test_companions_that_are_not_right_are_rebuilt(lost: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    whole = built_log(directory)
    newest = max(directory.glob("*.log"))
    index = newest.with_suffix(".index")
    match lost:
        case "short":
            newest.with_suffix(".timeindex").write_bytes(newest.with_suffix(".timeindex").read_bytes()[:-12])
        case "stale":
            index.write_bytes(build.offset_index((1, 77)))
        case "padded":
            index.write_bytes(index.read_bytes() + bytes(800))
        case ".snapshot":
            max(directory.glob("*.snapshot")).unlink()
        case _:
            newest.with_suffix(lost).unlink()
    with Appender(str(directory), options()) as log:
        assert read(directory) == whole
        assert log.snapshot.end_offset == 30


def test_a_transaction_index_of_zeros_is_rebuilt(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Appender(str(directory), options(base_offset=9)) as log:
        log.append_batches(producer(0, transactional=True))
        log.append_batches(marker("ABORT"))
    whole = read(directory)
    path = directory / segment_file_name(9, ".txnindex")
    path.write_bytes(bytes(len(path.read_bytes())))
    Appender(str(directory), options()).close()
    assert read(directory) == whole


def test_what_is_left_over_goes(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    whole = built_log(directory)
    (directory / "00000000000000000000.log.deleted").write_bytes(b"x")
    (directory / "00000000000000000007.index").write_bytes(b"")
    (directory / "00000000000000000003.snapshot").write_bytes(build.producer_snapshot())
    with Appender(str(directory), options()):
        assert read(directory) == whole


def test_the_producers_are_those_of_before(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Appender(str(directory), options(segment_bytes=400)) as log:
        for number in range(7):
            log.append_batches(producer(number, transactional=True))
    for lost in (False, True):
        if lost:
            for path in directory.glob("*.snapshot"):
                path.unlink()
        with (
            Appender(str(directory), options(segment_bytes=400)) as log,
            pytest.raises(ValueError, match="expected 7"),
        ):
            log.append_batches(producer(9, transactional=True))
    with Appender(str(directory), options(segment_bytes=400)) as log:
        log.append_batches(marker("ABORT"))
    found = {name: data for name, data in read(directory).items() if name.endswith(".txnindex")}
    assert list(found.values()) == [build.transaction_index((9, 0, 7, 8))]


# ---------------------------------------------------------------------------------------------------------- beside
# others


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Appender(str(directory), options()), pytest.raises(KdumpError, match="is working here"):
        Appender(str(directory), options())
    with Appender(str(directory), options()):
        pass


def test_a_running_broker(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".kafka_cleanshutdown").touch()
    directory = tmp_path / "t-0"
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
        "input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        with pytest.raises(KdumpError, match="probably a running broker"):
            Appender(str(directory), options())
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        broker.communicate(b"\n")
    with Appender(str(directory), options()):
        locked = subprocess.run(
            [sys.executable, "-c", code.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB"), tmp_path / ".lock"],
            input=b"\n",
            capture_output=True,
            check=False,
        )
        assert b"BlockingIOError" in locked.stderr
    with (tmp_path / ".lock").open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_marker_of_a_clean_shutdown(tmp_path: Path) -> None:
    said = b'{"version":0,"brokerEpoch":12}'
    clean = tmp_path / ".kafka_cleanshutdown"
    clean.write_bytes(said)
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_bytes(build.checkpoint("t 0 0", "t 1 77", "u 5 3"))
    first = Appender(str(tmp_path / "t-0"), options())
    assert not clean.exists()
    second = Appender(str(tmp_path / "u-5"), options())
    for _ in range(5):
        first.append_batches(batch())
    first.close()
    assert not clean.exists()  # the other one is not closed
    assert points.read_bytes() == build.checkpoint("t 0 5", "t 1 77", "u 5 3")
    second.append_batches(batch())
    second.close()
    assert clean.read_bytes() == said
    assert points.read_bytes() == build.checkpoint("t 0 5", "t 1 77", "u 5 1")
    clean.unlink()
    with Appender(str(tmp_path / "t-0"), options()) as first:
        first.append_batches(batch())
    assert not clean.exists()
    assert points.read_bytes() == build.checkpoint("t 0 6", "t 1 77", "u 5 1")


def test_the_recovery_point_stays_where_more_may_have_to_be_recovered(tmp_path: Path) -> None:
    built_log(tmp_path / "t-0")
    points = tmp_path / "recovery-point-offset-checkpoint"
    points.write_bytes(build.checkpoint("t 0 2"))
    with Appender(str(tmp_path / "t-0"), options()) as log:
        log.append_batches(batch())
    assert points.read_bytes() == build.checkpoint("t 0 2")


def test_a_closed_log(tmp_path: Path) -> None:
    log = Appender(str(tmp_path / "t-0"), options())
    log.close()
    log.close()
    for call in (lambda: log.append_batches(batch()), log.flush, lambda: log.delete(lambda _: ())):
        with pytest.raises(KdumpError, match="closed"):
            call()


def test_many_threads(tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options(flush_ms=1)) as log:

        def write() -> None:
            for _ in range(50):
                log.append_batches(batch(count=2))

        writers = [threading.Thread(target=write) for _ in range(4)]
        for one in writers:
            one.start()
        while any(one.is_alive() for one in writers):
            view = log.snapshot
            assert view.active is not None
            assert view.end_offset == view.active.next_offset
            assert os.path.getsize(view.active.path) >= view.active.size_bytes
        assert log.snapshot.end_offset == 400
    check_companions(tmp_path / "t-0", options())


@pytest.mark.parametrize("magic", [3, -1, "0.8", None])
def test_a_magic_that_does_not_exist(magic: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a log has magic"):
        Appender(str(tmp_path / "t-0"), options(magic=magic))


@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("segment_bytes", 0, ValueError),
        ("segment_bytes", "1g", TypeError),
        ("index_interval_bytes", -1, ValueError),
        ("segment_index_bytes", None, TypeError),
        ("flush_messages", 0, ValueError),
        ("flush_ms", -1, ValueError),
        ("flush_ms", 0.5, TypeError),
        ("max_message_bytes", 1 << 63, ValueError),
        ("delete_delay_ms", "x", TypeError),
        ("leader_epoch", 1 << 31, ValueError),
        ("base_offset", -1, ValueError),
        ("base_offset", 1 << 63, ValueError),
    ],
)
def test_settings_that_do_not_exist(name: str, number: Any, kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(kind, match=name):
        Appender(str(tmp_path / "t-0"), options(**{name: number}))
    assert not (tmp_path / "t-0").exists()


@pytest.mark.parametrize("epoch", [-2, 1 << 31])
def test_an_epoch_that_does_not_exist(epoch: int, tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options()) as log:
        with pytest.raises(ValueError, match="leader_epoch"):
            log.append_batches(batch(), leader_epoch=epoch)
        assert log.snapshot.end_offset == 0


@pytest.mark.parametrize("what", ["text", [b"value"], [(b"key", b"value")]])
def test_what_is_no_record(what: Any, tmp_path: Path) -> None:
    with Appender(str(tmp_path / "t-0"), options()) as log, pytest.raises(TypeError, match="a record is a NewRecord"):
        log.append_records(what)


def test_a_log_directory_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(b"version=1\n")
    before = read(tmp_path)
    with pytest.raises(KdumpError, match="a log directory; only a topic-partition directory in it can be written to"):
        Appender(str(tmp_path), options())
    assert read(tmp_path) == before


def test_no_directory_above(tmp_path: Path) -> None:
    with pytest.raises(KdumpError, match="no such file"):
        appender.Appender(str(tmp_path / "nowhere" / "t-0"))
