"""Following logs with read-committed: what is shown is what a consumer gets."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kdump import DumpOptions
from kdump.dump.dump import dump_logs
from kdump.dump.events import BatchEvent, FollowNote
from kdump.dump.follow.committed_follow import HELD_SECONDS
from kdump.dump.follow.follow import LOOK_SECONDS
from kdump.format.checkpoint import OffsetEntry, build_offsets
from kdump.format.control import ControlType
from kdump.storage import discovery
from kdump.storage.records import records
from support import oracle
from support.followed_logs import QUIET, Seen, Step, nothing, seen
from support.growing_partition import GrowingPartition
from support.laws import examples
from support.plain_isolation import damaged_partition, decided, partition_without_a_segment


def transaction(producer: int) -> dict[str, Any]:
    return {"producer_id": producer, "producer_epoch": 0, "transactional": True, "base_sequence": 0}


def committed_values(log: GrowingPartition) -> dict[int, bytes]:
    """What a read-committed consumer gets of a log now, by a plain reading."""
    found = decided(log.path)
    shown: dict[int, bytes] = {}
    for path in sorted(log.path.glob("*.log")):
        for item in oracle.walk(path.read_bytes(), base_offset=int(path.stem)):
            if isinstance(item, oracle.Batch) and (item.base_offset, item.position) not in found.left_out:
                offsets = range(item.offset, item.furthest + 1)
                shown |= {each: log.values[each] for each in offsets if each in log.values}
    return {offset: value for offset, value in shown.items() if found.stable is None or offset < found.stable}


def test_a_record_is_shown_when_its_transaction_is_committed(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b", **transaction(1))
    log.append(b"c")
    at: list[list[int]] = []

    def step(do: Step) -> Step:
        def both() -> None:
            at.append(sorted(result.values["t", 0]))
            do()

        return both

    steps: list[Step] = [
        lambda: log.append(b"d", **transaction(2)),
        lambda: log.append_marker(ControlType.COMMIT, 1),
        log.roll,
        lambda: log.append(b"e", **transaction(3)),
        lambda: log.append_marker(ControlType.ABORT, 2),
        lambda: log.append_marker(ControlType.COMMIT, 3),
        nothing,
    ]
    result = Seen([], tmp_path, isolation="read-committed")
    result._steps = iter([step(each) for each in steps])
    result.run()
    assert at == [[0], [0], [0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2, 5]]
    assert result.values["t", 0] == committed_values(log)
    assert not result.others


def test_a_marker_above_the_high_watermark_decides_nothing(tmp_path: Path) -> None:
    """A broker may truncate it: until then the transaction counts as open (ProducerStateManager.unreplicatedTxns)."""
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b", **transaction(1))
    log.append_marker(ControlType.COMMIT, 1)
    log.commit(2)
    quiet = [nothing] * QUIET
    found = Seen(quiet, tmp_path, committed=True, isolation="read-committed").run()
    assert found.values["t", 0] == {0: b"a"}
    found = Seen([*quiet, log.commit, *quiet], tmp_path, committed=True, isolation="read-committed").run()
    assert found.values["t", 0] == {0: b"a", 1: b"b"}
    assert not found.changes


def test_what_holds_the_last_stable_offset_is_said_once(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b", **transaction(7))
    log.append(b"c")
    minute = round(HELD_SECONDS / LOOK_SECONDS)
    found = seen(of=tmp_path, isolation="read-committed", looks=minute // 2)
    assert (found.values["t", 0], found.others) == ({0: b"a"}, [])
    found = seen(of=tmp_path, isolation="read-committed", looks=3 * minute)
    (note,) = found.others
    assert isinstance(note, FollowNote)
    words = "nothing from offset 1 on: producer 7 (epoch 0) has had a transaction open for a minute"
    assert note.message == f"{log.path}: read-committed shows {words}"


def test_a_marker_that_may_be_damaged(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b", **transaction(7))
    path = log.path / f"{0:020}.log"
    position = path.stat().st_size
    log.append_marker(ControlType.ABORT, 7)
    log.append(b"c", **transaction(7))
    log.append_marker(ControlType.COMMIT, 7)
    data = bytearray(path.read_bytes())
    data[position + 63] ^= 1
    path.write_bytes(data)
    found = seen(of=tmp_path, isolation="read-committed")
    assert found.values["t", 0] == committed_values(log) == {0: b"a"}
    (note,) = found.others
    assert isinstance(note, FollowNote)
    assert "from offset 1 on: producer 7 (epoch 0) has a transaction whose marker cannot be read" in note.message
    # Where no transaction is open, damage is shown, and what follows it.
    data = bytearray(path.read_bytes())
    data[position + 63] ^= 1
    data[65] ^= 1
    path.write_bytes(data)
    found = seen(of=tmp_path, isolation="read-committed")
    assert (found.damaged, found.values["t", 0]) == (["batch/crc"], {3: b"c"})


def test_an_offset_that_cannot_be_right(tmp_path: Path) -> None:
    """No checksum covers it. The batch is not taken for one that no transaction has."""
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    path = log.path / f"{0:020}.log"
    position = path.stat().st_size
    log.append(b"b", **transaction(7))
    log.append_marker(ControlType.ABORT, 7)
    log.append(b"c")
    data = bytearray(path.read_bytes())
    data[position + 1] ^= 1
    path.write_bytes(data)
    found = seen(of=tmp_path, isolation="read-committed")
    assert found.values["t", 0] == {0: b"a", 3: b"c"}
    assert [type(each) for each in found.others] == [FollowNote]


def test_a_marker_that_is_truncated(tmp_path: Path) -> None:
    """Its records were shown; the next marker can be another one."""
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b", **transaction(1))
    log.append(b"c")
    log.append_marker(ControlType.COMMIT, 1)

    def cut() -> None:
        log.truncate(3)
        log.append_marker(ControlType.ABORT, 1)

    found = seen(cut, of=tmp_path, isolation="read-committed")
    assert found.changes == [("truncated", ("t", 0), {"offset": 1})]
    assert found.values["t", 0] == committed_values(log) == {0: b"a", 2: b"c"}


def test_a_cleaned_log_misses_no_marker(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", **transaction(1))
    log.append(b"b")
    log.append(b"c")
    log.append_marker(ControlType.COMMIT, 1)
    log.roll()
    log.append(b"d")
    list(log.clean(every=3))
    found = seen(of=tmp_path, isolation="read-committed")
    assert found.values["t", 0] == {}  # a batch is missing, which may have been a marker
    (log.path.parent / "cleaner-offset-checkpoint").write_bytes(build_offsets([OffsetEntry("t", 0, 4)]))
    found = seen(of=tmp_path, isolation="read-committed")
    assert found.values["t", 0] == log.values == {0: b"a", 4: b"d"}


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(12)))
def test_a_committed_follow_shows_what_a_consumer_gets(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    log = GrowingPartition(tmp_path, "t", 0)
    committed = rng.random() < 0.3

    def produce() -> None:
        value = b"%d" % rng.getrandbits(40)
        log.append(*([value] * rng.randint(1, 3)), **(transaction(rng.randrange(3)) if rng.random() < 0.6 else {}))

    def change() -> None:
        for _ in range(rng.randint(1, 5)):
            match rng.choice(["produce"] * 5 + ["marker"] * 4 + ["roll", "truncate", "commit", "torn"]):
                case "produce":
                    produce()
                case "marker":
                    log.append_marker(rng.choice((ControlType.COMMIT, ControlType.ABORT)), rng.randrange(3))
                case "roll":
                    log.roll()
                case "truncate":
                    log.truncate(rng.choice(log.borders))
                case "commit":
                    log.commit(rng.choice(log.borders))
                case "torn":
                    log.append_bytes(bytes(rng.randbytes(20)))
                    log.truncate(log.end, epoch=False)

    found = Seen(
        [change] * 40 + [log.commit] + [nothing] * QUIET, tmp_path, committed=committed, isolation="read-committed"
    )
    found.run()
    assert found.values["t", 0] == committed_values(log)
    assert not found.severities


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("isolation", ["all", "read-committed"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_follow_of_a_damaged_log_shows_what_a_dump_shows(seed: int, isolation: Any, tmp_path: Path) -> None:
    rng, directory = random.Random(seed), tmp_path / "t-0"
    (damaged_partition if seed % 3 else partition_without_a_segment)(directory, rng)
    shown = [
        (record.offset, record.value or b"")
        for event in dump_logs(discovery.log_files([str(directory)]), DumpOptions(isolation=isolation))
        if isinstance(event, BatchEvent) and event.records is not None and event.damage is None
        for piece in event.records.pieces()
        for record in records(event.batch, piece)
    ]
    found = seen(of=directory, isolation=isolation, looks=400, once=False)
    assert found.records == shown
