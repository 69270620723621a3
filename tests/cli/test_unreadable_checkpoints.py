"""What each command says where a checkpoint of the log directory cannot be read: never that it is empty."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kdump as library
from kdump.dump.events import DumpFailure, FollowNote
from kdump.groups.coordinators import CoordinatorStatistics
from kdump.recover.plan import Plan
from kdump.stat.upgrade import report_upgrade
from kdump.stat.values import PartitionStatistics, StatOptions
from kdump.storage.discovery import discover
from support import build
from support.followed_logs import Seen
from support.group_logs import commits
from support.growing_partition import GrowingPartition

OFFSETS = {
    "log-start-offset-checkpoint": 3,
    "replication-offset-checkpoint": 9,
    "cleaner-offset-checkpoint": 5,
    "recovery-point-offset-checkpoint": 8,
}
OF_RECORDS = [name for name in OFFSETS if not name.startswith("recovery")]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    for number in range(2):
        partition = directory / f"t-{number}"
        partition.mkdir(parents=True)
        batches = [build.batch([build.record(b"k%d" % at, b"v")], base_offset=at) for at in range(10)]
        (partition / f"{0:020}.log").write_bytes(b"".join(batches))
    for name, offset in OFFSETS.items():
        (directory / name).write_bytes(build.checkpoint(f"t 0 {offset}", f"t 1 {offset}"))
    return directory


def hide(path: Path) -> Path:
    """Nobody can read a symbolic link to itself, not even the superuser."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    return path


def flip(partition: Path) -> None:
    log = partition / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2 + 40] ^= 0xFF
    log.write_bytes(data)


@pytest.mark.parametrize("name", OFFSETS)
def test_verify_of_a_partition_says_which_file(kdump: Any, logs: Path, name: str) -> None:
    assert kdump.inside("verify", str(logs / "t-0")).status == 0
    path = hide(logs / name)
    ran = kdump.inside("verify", str(logs / "t-0"), str(logs / "t-1"))
    assert (ran.status, ran.problems.count(str(path))) == (3, 1)
    flip(logs / "t-0")
    ran = kdump.inside("verify", str(logs / "t-0"))
    assert (ran.status, "broker: starts" in ran.text) == (3, False)
    assert "broker: whether it starts is not known" in ran.text
    # What needs no log directory goes on.
    assert kdump.inside("verify", str(logs / "t-1" / f"{0:020}.log")).status == 0


def test_what_a_cleaner_removed_is_not_known(logs: Path) -> None:
    partition = logs / "t-0"
    (partition / f"{20:020}.log").write_bytes(build.batch([build.record(b"k", b"v")], base_offset=20))
    (partition / "leader-epoch-checkpoint").write_bytes(build.checkpoint("0 0", "1 14"))
    (logs / "cleaner-offset-checkpoint").write_bytes(build.checkpoint("u 0 5"))

    def said() -> Any:
        (report,) = library.verify_logs(discover([str(partition)]))
        return next(each for each in report.findings if each.code == "segment/missing")

    assert not said().data.get("unproven", False)
    hide(logs / "cleaner-offset-checkpoint")
    assert said().data["unproven"]


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("whole", [False, True])
def test_recover_plans_nothing(kdump: Any, logs: Path, name: str, whole: bool) -> None:
    """What is committed, where the log starts, where a broker begins to read: a plan depends on all of it."""
    flip(logs / "t-0")
    place = logs if whole else logs / "t-0"
    assert any(isinstance(each, Plan) and each.actions for each in library.plan_recovery(discover([str(place)])))
    path = hide(logs / name)
    assert not [each for each in library.plan_recovery(discover([str(place)])) if isinstance(each, Plan)]
    for options in ((), ("--truncate",), ("--truncate", "--from", "all"), ("--salvage",)):
        before = (logs / "t-0" / f"{0:020}.log").read_bytes()
        ran = kdump.inside("recover", *options, str(place))
        assert (ran.status, str(path) in ran.problems, "truncate" in ran.text) == (3, True, False)
        assert (logs / "t-0" / f"{0:020}.log").read_bytes() == before


@pytest.mark.parametrize("name", OFFSETS)
def test_recover_plans_nothing_where_one_is_refused(
    kdump: Any, logs: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(logs / "t-0")
    opened = os.open

    def refuse(path: Any, *how: Any, **more: Any) -> int:
        if os.fspath(path).endswith(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refuse)
    ran = kdump.inside("recover", str(logs))
    assert (ran.status, ran.problems.splitlines()) == (3, [f"kdump: {logs / name}: permission denied"])
    assert "truncate" not in ran.text


@pytest.mark.parametrize("name", OF_RECORDS)
@pytest.mark.parametrize("whole", [False, True])
def test_stat_has_no_offset_of_it(kdump: Any, logs: Path, name: str, whole: bool) -> None:
    place = logs if whole else logs / "t-0"

    def row() -> dict[str, Any]:
        ran = kdump.inside("stat", "--format", "json", "--by", "partition", str(place))
        found = [json.loads(line) for line in ran.text.splitlines()]
        found_row: dict[str, Any] = next(each for each in found if each.get("type") == "partition")
        return found_row | {"status": ran.status, "problems": ran.problems}

    before = row()
    assert (before["status"], before["log_start_offset"], before["high_watermark"]) == (0, 3, 9)
    path = hide(logs / name)
    after = row()
    assert (after["status"], after["problems"].count(f"kdump: {path}: a loop")) == (3, 1)
    assert after["log_start_offset"] == (None if name.startswith("log-start") else 3)
    assert after["high_watermark"] == (None if name.startswith("replication") else 9)
    assert after["records"] == before["records"]


def test_a_recovery_point_is_no_number_of_stat(kdump: Any, logs: Path) -> None:
    hide(logs / "recovery-point-offset-checkpoint")
    assert kdump.inside("stat", str(logs / "t-0")).status == 0


def test_what_stat_reports_rests_on_no_unread_log_start(logs: Path) -> None:
    def measured() -> PartitionStatistics:
        (found,) = library.stat_logs(discover([str(logs / "t-0")]))
        assert isinstance(found, PartitionStatistics)
        return found

    assert report_upgrade(measured()).is_ready
    path = hide(logs / "log-start-offset-checkpoint")
    found = measured()
    assert not found.log_start_is_known
    assert str(path) in str(report_upgrade(found).error)


def test_groups_of_a_coordinator_whose_log_start_is_not_known(logs: Path) -> None:
    """Records below the log start offset were deleted: the groups in them are none."""
    coordinator = logs / "__consumer_offsets-0"
    coordinator.mkdir()
    (coordinator / f"{0:020}.log").write_bytes(commits(("g", "t", 0, 4)))

    def loaded() -> CoordinatorStatistics:
        found = library.stat_logs(discover([str(logs)]), StatOptions(groups=True))
        return next(each for each in found if isinstance(each, CoordinatorStatistics))

    assert loaded().is_sound
    path = hide(logs / "log-start-offset-checkpoint")
    load = loaded()
    assert (load.is_sound, [str(path) in str(error) for error in load.errors]) == (False, [True])


def test_groups_do_not_need_the_others(logs: Path) -> None:
    coordinator = logs / "__consumer_offsets-0"
    coordinator.mkdir()
    (coordinator / f"{0:020}.log").write_bytes(commits(("g", "t", 0, 4)))
    hide(logs / "cleaner-offset-checkpoint")
    found = library.stat_logs(discover([str(coordinator)]), StatOptions(groups=True))
    assert next(each for each in found if isinstance(each, CoordinatorStatistics)).is_sound


def test_a_follow_says_that_it_does_not_know_the_high_watermark(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    path = hide(tmp_path / "replication-offset-checkpoint")

    def mend() -> None:
        path.unlink()
        log.commit()

    found = Seen([*[lambda: None] * 5, mend, *[lambda: None] * 5], tmp_path, committed=True).run()
    failures = [str(each.error) for each in found.others if isinstance(each, DumpFailure)]
    notes = [each.message for each in found.others if isinstance(each, FollowNote)]
    assert [str(path) in each for each in failures] == [True]
    assert ["has no line" in each for each in notes] == [False]
    assert found.values["t", 0] == {0: b"a"}


@pytest.mark.parametrize("name", OF_RECORDS)
def test_convert_of_deleted_records_needs_no_log_start(
    kdump: Any, logs: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    path = hide(logs / name)
    out = str(tmp_path_factory.mktemp("elsewhere") / "out")
    ran = kdump.inside("convert", str(logs / "t-0"), "-o", out, "--include", "deleted")
    expected = 0 if name.startswith("log-start") else 3
    assert (ran.status, str(path) in ran.problems) == (expected, bool(expected))
