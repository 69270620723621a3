"""The undo of one partition brings its lines in the checkpoints back, also after other runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdump.format.naming import RECOVERY_POINTS
from kdump.recover import recover
from kdump.recover.plan import RecoverOptions
from kdump.storage.discovery import discover
from support import directories
from support.group_trial import PARTITIONS, GroupTrial, lines

HIGH_WATERMARKS = "replication-offset-checkpoint"


@pytest.fixture
def trial(tmp_path: Path) -> GroupTrial:
    return GroupTrial(tmp_path / "x", keep=True)


def tear(trial: GroupTrial) -> None:
    """Let the logs end below their recovery points, too."""
    for name in PARTITIONS:
        log = max((trial.directory / name).glob("*.log"))
        log.write_bytes(log.read_bytes()[:-30])


@pytest.mark.parametrize("order", [("t-0", "t-1"), ("t-1", "t-0")])
def test_the_lines_of_a_partition_come_back_after_a_run_over_another(trial: GroupTrial, order: tuple[str, str]) -> None:
    """No broker ran: each run over one partition wrote the checkpoint, and the undo of one of them does."""
    tear(trial)
    before = lines(trial.directory / RECOVERY_POINTS)
    options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
    for number, name in enumerate(("t-0", "t-1")):
        how = recover.ApplyOptions(f"run{number}")
        list(recover.recover_logs(discover([str(trial.directory / name)]), options, apply_options=how))
        assert lines(trial.directory / RECOVERY_POINTS)[name] < before[name]
    first, second = order
    recover.undo_recovery(str(trial.directory / first))
    assert lines(trial.directory / RECOVERY_POINTS)[first] == before[first]
    recover.undo_recovery(str(trial.directory / second))
    after = lines(trial.directory / RECOVERY_POINTS)
    assert after[first] == before[first]
    if order == ("t-1", "t-0"):  # as the manual says: the last run first
        assert after[second] == before[second]
    assert after[second] <= before[second]


def test_the_lines_of_a_partition_come_back_in_a_log_directory_that_was_copied(trial: GroupTrial) -> None:
    """A copy with its times has other inodes, as one that a snapshot brought back."""
    tear(trial)
    before = lines(trial.directory / RECOVERY_POINTS), lines(trial.directory / HIGH_WATERMARKS)
    trial.apply()
    copied = trial.directory.parent / "copy"
    shutil.copytree(trial.directory, copied)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert (copied / name).stat().st_mtime_ns == (trial.directory / name).stat().st_mtime_ns
    recover.undo_recovery(str(copied / "t-0"))
    assert lines(copied / RECOVERY_POINTS)["t-0"] == before[0]["t-0"]
    assert lines(copied / HIGH_WATERMARKS) == before[1]


def test_the_lines_of_a_partition_stay_in_a_checkpoint_that_has_another_time_alone(trial: GroupTrial) -> None:
    """As a copy without times has it; the run left this checkpoint alone."""
    tear(trial)
    trial.apply()
    path = trial.directory / HIGH_WATERMARKS
    before = path.read_bytes()
    path.touch()
    recover.undo_recovery(str(trial.directory / "t-0"))
    assert path.read_bytes() == before


def test_the_lines_of_a_partition_go_down_where_a_broker_wrote_between_two_runs(trial: GroupTrial) -> None:
    tear(trial)
    options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
    points = trial.directory / RECOVERY_POINTS
    for number, name in enumerate(("t-0", "t-1")):
        how = recover.ApplyOptions(f"run{number}")
        list(recover.recover_logs(discover([str(trial.directory / name)]), options, apply_options=how))
        if not number:
            points.write_bytes(points.read_bytes().replace(b"u 0 30", b"u 0 29"))
    recover.undo_recovery(str(trial.directory / "t-0"))
    assert lines(points)["t-0"] < 30
