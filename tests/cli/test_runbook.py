"""The steps of the runbook of kdump-recover(1), on damaged copies of a log directory that a broker wrote."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump.format.naming import TopicPartition
from kdump.verify.checks.checkpoints import PartitionOffsets, check_offset_checkpoints

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OLDER, NEWEST = "00000000000000000000", "00000000000000000064"


def zeroed(killed: Path) -> None:
    """A page in the middle of a segment below the recovery point."""
    log = killed / f"transfers-0/{OLDER}.log"
    data = bytearray(log.read_bytes())
    data[1024:5120] = bytes(4096)
    log.write_bytes(data)


def state(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_page_that_is_gone_is_salvaged_and_taken_back(changing: Any, killed: Path) -> None:
    zeroed(killed)
    before = state(killed)
    preview = changing.inside("recover", "killed")
    assert preview.status == 1
    assert preview.text.endswith("; if none has: kdump recover --salvage killed\n")
    assert changing.inside("recover", "--salvage", "killed/transfers-0").status == 4
    assert changing.inside("verify", "killed/transfers-0").status == 0
    assert changing.inside("recover", "--undo", "killed/transfers-0").status == 0
    assert state(killed) == before


def test_a_truncation_that_has_nothing_to_do_names_the_salvage(changing: Any, killed: Path) -> None:
    zeroed(killed)
    ran = changing.inside("recover", "--truncate", "killed")
    assert ran.status == 1
    assert ran.text.endswith("; if none has: kdump recover killed\n")
    # Which compares both strategies.
    assert changing.inside("recover", "killed").text.endswith("; if none has: kdump recover --salvage killed\n")


def test_a_segment_that_is_gone_leads_to_another_replica(changing: Any, killed: Path) -> None:
    for path in (killed / "retained-0").glob("00000000000000000028.*"):
        path.unlink()
    for given in ([], ["--truncate"], ["--salvage", "--dry-run"]):
        ran = changing.inside("recover", *given, "killed")
        assert ran.status == 1
        *_, totals, last = ran.text.splitlines()
        assert "COMMITTED offsets are missing" in totals
        assert last.startswith("next: if another replica has the missing committed offsets, move killed/retained-0 ")
        assert "kdump recover" not in last


def test_the_broker_is_not_to_be_started_beside_a_hole(changing: Any, killed: Path) -> None:
    """Where one partition is repaired, and another one lacks committed records."""
    for path in (killed / "retained-0").glob("00000000000000000028.*"):
        path.unlink()
    (killed / f"transfers-0/{OLDER}.index").unlink()
    ran = changing.inside("recover", "--reindex", "killed")
    assert ran.status == 1
    assert ran.text.count("next: ") == 1
    last = ran.text.splitlines()[-1]
    assert last.startswith("next: if another replica has the missing committed offsets, move killed/retained-0 aside")
    assert last.endswith("; if none has: start the broker")


def test_the_paths_of_a_result_are_those_that_were_given(changing: Any, killed: Path) -> None:
    (killed / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    (killed / "orders").mkdir()
    ran = changing.inside("recover", "--truncate", "killed")
    assert ran.status == 1
    assert str(killed) not in ran.text
    assert "killed/recovery-point-offset-checkpoint: delete checkpoint/format: " in ran.text
    assert "a broker does not start yet: see file/name of killed/orders" in ran.text


@pytest.mark.parametrize("strategy", ["--truncate", "--salvage", "--reindex"])
def test_indexes_that_are_all_gone_are_all_rebuilt(changing: Any, killed: Path, strategy: str) -> None:
    before = state(killed)
    for path in [*killed.glob("transfers-0/*.index"), *killed.glob("transfers-0/*.timeindex")]:
        path.unlink()
    ran = changing.inside("recover", strategy, "killed")
    assert ran.status == 0
    assert "timeindex/missing" not in changing.inside("verify", "killed/transfers-0").text
    after = state(killed)
    assert {name for name in before if f"transfers-0/{OLDER}" in name} <= after.keys()


def test_a_partition_that_cannot_be_read_is_not_called_missing() -> None:
    """What cannot be read is an error of its own; the checkpoint names it all the same."""
    here, read = TopicPartition("t", 0), TopicPartition("t", 1)
    contents = {"recovery-point-offset-checkpoint": b"0\n3\nt 0 5\nt 1 5\nt 2 5\n"}
    found = check_offset_checkpoints("d", contents, {read: PartitionOffsets(0, 9)}, listed=(here, read))
    assert [(finding.code, finding.data["partition"]) for finding in found] == [("checkpoint/unknown", 2)]


def swapped(killed: Path) -> Path:
    """The segments of a partition have one another's names."""
    first, second = (killed / f"trimmed-0/{base:020}.log" for base in (0, 26))
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    return killed / "trimmed-0"


def test_segments_that_get_their_names_back_lose_nothing(changing: Any, killed: Path) -> None:
    swapped(killed)
    ran = changing.inside("recover", "--salvage", "killed/trimmed-0")
    assert "COMMITTED" not in ran.text
    assert (ran.status, changing.inside("verify", "killed/trimmed-0").status) == (0, 0)


def test_a_truncation_of_swapped_segments_says_what_is_committed(changing: Any, killed: Path) -> None:
    swapped(killed)
    ran = changing.inside("recover", "--from", "all", "killed/trimmed-0")
    assert "committed: COMMITTED offsets 5..25, next 26, would be missing here" in ran.text


def test_a_partition_is_repaired_beside_a_checkpoint_that_cannot_be_read(changing: Any, killed: Path) -> None:
    """A broker does not start until the path is the log directory."""
    swapped(killed)
    (killed / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    ran = changing.inside("recover", "--salvage", "killed/trimmed-0")
    assert "start the broker" not in ran.text
    assert f"a broker does not start yet: see checkpoint/format of {killed}/recovery-point" in ran.text
    assert "start the broker" in changing.inside("recover", "--truncate", "killed").text


def batches_of(data: bytes) -> list[int]:
    """The positions of the batches, and the end."""
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12]))
    return found


@pytest.mark.parametrize("partition", ["transfers-0", "transfers-1"])
def test_a_marker_that_is_cut_off_is_reported(changing: Any, tmp_path: Path, partition: str) -> None:
    """The coordinator has written it, and does not write it again: consumers of committed records stop for good."""
    leader = tmp_path / "leader"
    shutil.copytree(FIXTURES / "leader", leader, ignore=shutil.ignore_patterns("expected", "case.toml"))
    log = max(path for path in (leader / partition).glob("*.log") if path.stat().st_size)
    data = log.read_bytes()
    log.write_bytes(data[: batches_of(data)[-4] + 20])
    for given in ([], ["--output", "copy"]):
        path = f"copy/{partition}" if given else f"leader/{partition}"
        ran = changing.inside("recover", "--truncate", *given, f"leader/{partition}")
        (hanging,) = re.findall(f"{path}/.*: warning txn/hanging: .*", ran.text)
        assert "the transaction log says that it has ended; to end it: kafka-transactions.sh" in hanging
        assert "left after applying: 1 warning" in ran.text
        if not given:
            assert hanging.partition("; the next start")[0] in changing.inside("verify", "leader").text
            assert changing.inside("recover", "--undo", f"leader/{partition}").status == 0


def test_the_undo_of_one_partition_forgets_no_committed_offset(changing: Any, tmp_path: Path) -> None:
    """No broker ran: the checkpoints' lines above the end of a torn log stay, and so does what the preview says."""
    leader = tmp_path / "leader"
    shutil.copytree(FIXTURES / "leader", leader, ignore=shutil.ignore_patterns("expected", "case.toml"))
    log = max((leader / "transfers-1").glob("*.log"))
    data = log.read_bytes()
    log.write_bytes(data[: batches_of(data)[-4] + 20])
    before, said = state(leader), changing.inside("recover", "leader").text
    assert "transfers-1: committed: COMMITTED offsets 146..151, next 152, are missing here" in said
    assert changing.inside("recover", "--truncate", "leader").status == 4
    assert changing.inside("recover", "--undo", "leader/transfers-1").status == 0
    assert changing.inside("recover", "leader").text == said
    assert state(leader).items() >= before.items()


def test_a_run_has_one_next_step(changing: Any, killed: Path) -> None:
    """For the whole log directory: that of one partition would contradict what another one needs."""
    swapped(killed)
    (killed / "orders").mkdir()
    for look in ("text", "terminal"):
        ran = changing.inside("recover", "--salvage", "--format", look, "--", "killed")
        assert (ran.status, ran.text.count("next: "), ran.text.count("start the broker")) == (1, 1, 0)
        assert "next: a broker does not start yet: see file/name of killed/orders" in ran.text.splitlines()[-1]
        assert changing.inside("recover", "--undo", "killed").status == 0
    ran = changing.inside("recover", "--salvage", "--format", "json", "killed")
    *others, summary = map(json.loads, ran.text.splitlines())
    assert summary["next"] == "a broker does not start yet: see file/name of killed/orders"
    assert not any("next" in line for line in others)
    assert {line["ready"] for line in others if line["type"] == "partition" and line["applied"]} == {False}


def test_a_second_undo_would_bring_the_repair_back(changing: Any, killed: Path) -> None:
    """Where a broker has written since, the undo is a run of its own, and the last one."""
    zeroed(killed)
    log = killed / f"transfers-0/{OLDER}.log"
    damaged = log.read_bytes()
    assert changing.inside("recover", "--salvage", "killed").status == 4
    repaired = log.read_bytes()
    with (killed / f"transfers-0/{NEWEST}.log").open("ab") as newest:
        newest.write(b"written since")
    assert changing.inside("recover", "--undo", "--force", "killed").status == 0
    assert log.read_bytes() == damaged
    again = changing.inside("recover", "--undo", "killed")
    assert (again.status, log.read_bytes() == damaged) == (3, True)
    assert "is itself an undo" in again.problems
    assert "brings the repair back" in again.problems
    (name,) = re.findall(r"--undo --run (\S+) -- killed", again.problems)
    ran = changing.inside("recover", "--undo", "--run", name, "killed")
    assert ran.status == 0
    assert "the repair of run " in ran.text
    assert log.read_bytes() == repaired
