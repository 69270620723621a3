"""Planning and applying over directories: what is chosen, what a log directory's checkpoints say afterwards, what is
done about runs that were killed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.errors import KdumpError, SourceError
from kdump.format.checkpoint import offset_entries
from kdump.format.naming import Kind
from kdump.recover import apply, copies, planner, recover
from kdump.recover.log_outline import read_outline
from kdump.recover.plan import REINDEX, SALVAGE, TRUNCATE, Plan, RecoverOptions, RecoveryResult
from kdump.storage.discovery import discover
from kdump.storage.partition import LogFile
from kdump.storage.pieces import Piece
from kdump.verify.report import Report
from support import build, directories, oracle
from support.command_runs import locked_by_another
from support.directories import Writer

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The log directory of a broker that was killed, with a flipped bit in the newest segment of transfers-0, and a
    recovery point after it."""
    target = tmp_path / "logs"
    shutil.copytree(FIXTURES / "killed", target, ignore=shutil.ignore_patterns("expected", "case.toml"))
    log = target / "transfers-0" / f"{64:020d}.log"
    data = bytearray(log.read_bytes())
    data[400] ^= 1
    log.write_bytes(data)
    points = target / RECOVERY_POINTS
    points.write_text(points.read_text().replace("transfers 0 64", "transfers 0 70"))
    return target


def points(directory: Path) -> dict[tuple[str, int], int]:
    found = offset_entries((directory / RECOVERY_POINTS).read_bytes())
    return {(entry.topic, entry.partition): entry.offset for entry in found}


def planned(*paths: Path, options: RecoverOptions | None = None) -> list[Plan]:
    found = list(planner.plan_recovery(discover([str(path) for path in paths]), options or RecoverOptions()))
    assert not [item for item in found if isinstance(item, Report)]
    return [item for item in found if isinstance(item, Plan)]


def test_the_recovery_point_of_a_log_that_is_cut_is_lowered_at_the_end(directory: Path) -> None:
    before = points(directory)
    plans = [plan for plan in planned(directory) if not plan.is_empty]
    assert [Path(plan.path).name for plan in plans] == ["transfers-0", "logs"]
    results = list(recover.recover_logs(discover([str(directory)]), apply_options=recover.ApplyOptions("one")))
    assert not [result for result in results if isinstance(result, Report) or result.error is not None]
    cut = plans[0].log_end_offset
    assert cut is not None
    assert cut < 70
    assert points(directory) == {**before, ("transfers", 0): cut}
    assert not [plan for plan in planned(directory) if not plan.is_empty]


def test_without_options_it_truncates_and_keeps_what_it_removes(directory: Path) -> None:
    log = directory / "transfers-0" / f"{64:020d}.log"
    before, path = log.read_bytes(), str(directory / "transfers-0")
    (plan,) = (
        each for each in kdump.plan_recovery(kdump.discover(path)) if isinstance(each, Plan) and not each.is_root
    )
    assert log.read_bytes() == before
    results = [each for each in kdump.recover_logs(kdump.discover(path)) if isinstance(each, RecoveryResult)]
    (applied,) = (each for each in results if not each.plan.is_root)
    assert (applied.plan.options.strategy, applied.plan.lost, applied.error) == (TRUNCATE, plan.lost, None)
    assert len(log.read_bytes()) < len(before)
    assert {each.run.run for each in kdump.undo_recovery(directory / "transfers-0")} == {applied.run}
    assert log.read_bytes() == before


def test_two_runs_in_one_second_have_two_names() -> None:
    names = [recover.new_run() for _ in range(12)]
    assert len(set(names)) == len(names)
    assert names == sorted(names)


def test_a_partition_named_alone_lowers_its_line_too(directory: Path) -> None:
    list(recover.recover_logs(discover([str(directory / "transfers-0")]), apply_options=recover.ApplyOptions("one")))
    assert points(directory)["transfers", 0] == 66


def test_what_nothing_is_wrong_with_stays(directory: Path) -> None:
    (directory / "transfers-0" / f"{64:020d}.log").write_bytes(
        (FIXTURES / "killed" / "transfers-0" / f"{64:020d}.log").read_bytes()
    )
    assert not [plan for plan in planned(directory) if not plan.is_empty]


def test_a_run_that_was_killed_before_the_checkpoint_is_finished_with_it(directory: Path) -> None:
    (plan,) = [plan for plan in planned(directory / "transfers-0") if not plan.is_root]
    apply.apply(plan, "one")
    journal = directory / "transfers-0" / ".kdump-undo" / "one" / "applied.jsonl"
    journal.rename(journal.with_name("applying.jsonl"))
    found = list(planner.plan_recovery(discover([str(directory)]), RecoverOptions()))
    (refused,) = [item for item in found if isinstance(item, Report)]
    assert "--resume" in str(refused.errors[0])
    assert "--undo" in str(refused.errors[0])
    assert points(directory)["transfers", 0] == 70
    recover.resume_recovery(str(directory))
    assert points(directory)["transfers", 0] == plan.log_end_offset


def test_the_checkpoint_is_lowered_once_for_all_that_is_finished(directory: Path) -> None:
    """Also where a run of that name has been at the root already, without these partitions."""
    points_file = directory / RECOVERY_POINTS
    points_file.write_text(points_file.read_text().replace("retained 0 56", "retained 0 64"))
    log = directory / "retained-0" / f"{56:020d}.log"
    log.write_bytes(log.read_bytes()[:-5])
    list(recover.recover_logs(discover([str(directory)]), apply_options=recover.ApplyOptions("one")))
    after = points(directory)
    points_file.write_text(points_file.read_text().replace("transfers 0 66", "transfers 0 70"))
    points_file.write_text(points_file.read_text().replace(f"retained 0 {after['retained', 0]}", "retained 0 64"))
    for name in ("transfers-0", "retained-0"):
        journal = directory / name / ".kdump-undo" / "one" / "applied.jsonl"
        journal.rename(journal.with_name("applying.jsonl"))
    recover.resume_recovery(str(directory))
    assert points(directory) == after


def test_a_segment_named_alone(directory: Path) -> None:
    newest, older = (directory / "transfers-0" / f"{base:020d}.log" for base in (64, 0))
    (plan,) = (plan for plan in planned(newest) if not plan.is_root)
    assert (plan.path, plan.options.walk, plan.alone) == (str(newest.parent), "newest", False)
    older.write_bytes(older.read_bytes()[:-5])
    (plan,) = planned(older)
    assert plan.alone
    assert {Path(action.path).name.partition(".")[0] for action in plan.actions} <= {
        older.stem,
        f"{plan.log_end_offset:020d}",
    }
    (result,) = recover.apply_all([plan], RecoverOptions(), recover.ApplyOptions("one"))
    assert isinstance(result, RecoveryResult)
    assert "leave a hole" in str(result.error)
    # All of them are the directory.
    assert [Path(plan.path).name for plan in planned(older, newest) if not plan.is_root] == ["transfers-0"]


def test_the_metadata_log_only_when_it_is_named(directory: Path) -> None:
    metadata = directory / "__cluster_metadata-0"
    shutil.copytree(FIXTURES / "log-directory" / "__cluster_metadata-0", metadata)
    assert str(metadata) not in [plan.path for plan in planned(directory)]
    assert str(metadata) in [plan.path for plan in planned(metadata)]


def test_what_lies_below_a_directory_that_is_none_of_kafkas(directory: Path) -> None:
    names = sorted(Path(plan.path).name for plan in planned(directory.parent) if not plan.is_root)
    assert names == sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_metadata_that_cannot_be_read_is_written_as_in_another_partition(directory: Path) -> None:
    metadata = directory / "transfers-1" / "partition.metadata"
    before = metadata.read_bytes()
    metadata.write_bytes(b"version: 0\ntopic")
    list(recover.recover_logs(discover([str(metadata.parent)]), apply_options=recover.ApplyOptions("one")))
    assert metadata.read_bytes() == (directory / "transfers-0" / "partition.metadata").read_bytes() == before


@pytest.mark.parametrize("name", [1, 63, 1000])
def test_a_segment_whose_name_lies_above_its_first_batch_goes_where_it_belongs(tmp_path: Path, name: int) -> None:
    partition = shutil.copytree(FIXTURES / "killed" / "transfers-0", tmp_path / "transfers-0")
    for path in partition.glob(f"{0:020d}.*"):
        path.rename(path.with_name(f"{name:020d}{path.suffix}"))
    (plan,) = planned(partition, options=RecoverOptions(walk="all"))
    if plan.refusals:
        assert [action.action for action in plan.actions if action.path.endswith(f"{name:020d}.log")] == ["rename"]
        assert (plan.log_start_offset, plan.log_end_offset, plan.lost.given_up.batches) == (0, 81, 0)
    else:
        assert name == 1  # the first batch reaches beyond the name, so that a broker loads it


def test_a_salvage_keeps_what_a_truncation_gives_up(directory: Path) -> None:
    (cut,) = (plan for plan in planned(directory / "transfers-0") if not plan.is_root)
    (kept,) = (
        plan
        for plan in planned(directory / "transfers-0", options=RecoverOptions(strategy=SALVAGE))
        if not plan.is_root
    )
    assert cut.lost.given_up.batches > 0 == kept.lost.given_up.batches
    assert cut.lost.committed
    assert kept.log_end_offset == 81


# ---- what a plan says, and what holds


def test_a_log_that_ends_below_its_log_start_is_emptied_as_a_broker_does(tmp_path: Path) -> None:
    target = shutil.copytree(FIXTURES / "killed" / "transfers-0", tmp_path / "logs" / "transfers-0")
    (tmp_path / "logs" / "log-start-offset-checkpoint").write_text("0\n1\ntransfers 0 90\n")
    (plan,) = (plan for plan in planned(target) if not plan.is_root)
    assert (plan.log_start_offset, plan.log_end_offset, plan.lost.given_up.offsets[0][0]) == (90, 90, 0)
    assert plan.lost.given_up.offsets[-1][1] == 80
    assert {action.because for action in plan.actions} == {"checkpoint/log-start"}
    (reindexed,) = (plan for plan in planned(target, options=RecoverOptions(strategy=REINDEX)) if not plan.is_root)
    assert reindexed.is_empty


def test_a_batch_whose_offset_lies_is_lost_all_the_same(tmp_path: Path) -> None:
    """Its checksum is right, so that there are records in it."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    batches = [build.batch([build.record(b"k", b"v")] * 2, base_offset=offset) for offset in (0, 2, 1 << 40)]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches))
    (plan,) = planned(partition, options=RecoverOptions(strategy=SALVAGE))
    assert (plan.lost.given_up.batches, plan.lost.given_up.records, plan.lost.given_up.bytes) == (1, 2, len(batches[2]))
    assert plan.lost.given_up.offsets == ((1 << 40, (1 << 40) + 1),)
    (reported,) = (action for action in plan.actions if action.action == "truncate")
    assert (reported.batches, reported.start, reported.stop) == (1, len(batches[0]) * 2, len(batches[0]) * 3)


def test_lost_offsets_that_go_back_are_reported_from_the_lowest_to_the_highest(tmp_path: Path) -> None:
    offsets = (3, 1, 2)
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"".join(build.batch([build.record(b"k", b"v")], base_offset=offset) for offset in offsets))
    size = log.stat().st_size
    file = LogFile(str(log), Kind.LOG, 0, True, size)
    (outlined,) = read_outline(file, [Piece(log.name, 0, size)], 1 << 30, compacted=False).removed.values()
    assert (outlined.batches, outlined.first_offset, outlined.last_offset) == (3, 1, 3)


@pytest.mark.parametrize("name", ["5.log", f"{5:020d}.log"])
def test_a_salvage_does_not_believe_one_file_that_was_slipped_in(tmp_path: Path, name: str) -> None:
    partition = shutil.copytree(FIXTURES / "killed" / "transfers-1", tmp_path / "transfers-1")
    (partition / name).write_bytes(build.batch([build.record(b"k", b"v")], base_offset=5))
    (plan,) = planned(partition, options=RecoverOptions(strategy=SALVAGE))
    assert (plan.lost.given_up.batches, plan.lost.given_up.offsets) == (1, ((5, 5),))
    (gone,) = (action for action in plan.actions if action.batches)
    assert (gone.action, gone.because, Path(gone.path).name) == ("delete", "offset/backwards", name)
    (clash,) = plan.conflicts
    assert "31 batches" in clash


def test_a_salvage_keeps_what_a_file_without_a_batch_seems_to_end(tmp_path: Path) -> None:
    partition = shutil.copytree(FIXTURES / "killed" / "transfers-1", tmp_path / "transfers-1")
    (partition / f"{5:020d}.log").write_bytes(b"no batch" * 9)
    (plan,) = planned(partition, options=RecoverOptions(strategy=SALVAGE))
    assert (plan.lost.given_up.batches, plan.lost.damaged.bytes) == (0, 72)


def test_a_salvage_keeps_what_the_transaction_index_alone_knows(tmp_path: Path) -> None:
    """The marker of an aborted transaction is lost; its entry stays, also when other recoveries follow."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    writer = Writer()
    for number in range(3):
        writer.data(7, number, transactional=True)
        writer.end("ABORT", 7)
    writer.roll().data()
    files = {name: data for name, data in directories.partition(writer.logs).items() if isinstance(data, bytes)}
    marker = [one for one in oracle.walk(writer.logs[0]) if isinstance(one, oracle.Batch) and one.control][-1]
    files[f"{0:020d}.log"] = writer.logs[0][: marker.position + 70]
    for name, data in files.items():
        (partition / name).write_bytes(data)
    index = partition / f"{0:020d}.txnindex"
    before = index.read_bytes()
    for number, strategy in enumerate((SALVAGE, SALVAGE, TRUNCATE, REINDEX)):
        options = RecoverOptions(strategy=strategy, walk="all")
        list(
            recover.recover_logs(
                discover([str(partition)]), options, apply_options=recover.ApplyOptions(f"run{number}")
            )
        )
        assert index.read_bytes() == before


def test_what_a_split_leaves_out_is_reported(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    batches = [build.batch([build.record(b"k", b"v")], base_offset=offset) for offset in (0, 1 << 31, (1 << 31) + 1)]
    (partition / f"{0:020d}.log").write_bytes(b"".join(batches) + bytes(50))
    (plan,) = planned(partition, options=RecoverOptions(walk="all"))
    assert [action.action for action in plan.actions if action.action in ("split", "truncate")] == [
        "split",
        "split",
        "truncate",
    ]
    removed = sum(action.bytes for action in plan.actions if action.action == "truncate")
    assert (plan.lost.given_up.bytes, removed) == (0, 50)


def test_a_snapshot_that_goes_is_no_reason_to_write_the_epochs_again(directory: Path) -> None:
    partition = shutil.copytree(FIXTURES / "restarted" / "transfers-0", directory.parent / "transfers-0")
    snapshot = min(partition.glob("*.snapshot"))
    snapshot.write_bytes(b"")
    (plan,) = planned(partition)
    assert {Path(action.path).name for action in plan.actions} == {snapshot.name}


def test_a_second_name_of_a_log_needs_its_space(directory: Path) -> None:
    log = directory / "transfers-0" / f"{64:020d}.log"
    (plan, _) = planned(directory / "transfers-0")
    (directory.parent / "backup").hardlink_to(log)
    (linked, _) = planned(directory / "transfers-0")
    (cut,) = (action for action in plan.actions if action.action == "truncate")
    assert linked.bytes_needed - plan.bytes_needed == (cut.start or 0) - cut.bytes


def test_a_run_that_is_interrupted_lowers_the_recovery_points_of_what_it_did(directory: Path) -> None:
    results = recover.recover_logs(discover([str(directory)]), apply_options=recover.ApplyOptions("one"))
    for result in results:
        if isinstance(result, RecoveryResult) and result.applied:
            break
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert points(directory)["transfers", 0] == 66


def test_a_copy_of_what_another_user_owns(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    changed = directory / "transfers-0" / f"{64:020d}.log"
    changed.chmod(0o640)
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fstat", lambda descriptor, of=os.fstat: Other(of(descriptor)))
    (plan, _) = planned(directory / "transfers-0")
    copied = Path(copies.output(plan, str(directory.parent / "copy")))
    assert (copied / changed.name).stat().st_mode & 0o777 == 0o640
    before = sorted(path.name for path in (directory / "transfers-0").iterdir())
    for _ in range(2):
        with pytest.raises(KdumpError, match=r"not permitted; nothing was changed"):
            apply.apply(plan, "one")
        # What another user cannot delete would be in the way of the owner.
        assert sorted(path.name for path in (directory / "transfers-0").iterdir()) == before


class Other:
    """A file that belongs to another process, once it is not new."""

    def __init__(self, status: os.stat_result) -> None:
        self._status = status

    def __getattr__(self, name: str) -> object:
        value = getattr(self._status, name)
        return value + self._status.st_ino if name == "st_uid" else value


def test_new_files_of_a_copy_without_a_log_can_be_read_like_those_beside_them(tmp_path: Path) -> None:
    partition = shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "segments-0")
    for log in partition.glob("*.log"):
        log.unlink()
    partition.chmod(0o755)
    (plan,) = planned(partition, options=RecoverOptions(walk="all"))
    copied = Path(copies.output(plan, str(tmp_path / "copy")))
    assert (copied / f"{plan.log_start_offset:020d}.log").stat().st_mode & 0o777 == 0o644


def test_a_copy_that_failed_is_not_in_the_way_of_the_next(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = recover.ApplyOptions(output=str(directory.parent / "copy"))

    def copied() -> list[KdumpError | None]:
        found = recover.recover_logs(discover([str(directory / "transfers-0")]), apply_options=how)
        return [one.error for one in found if isinstance(one, RecoveryResult)]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(copies, "_copy", full)
        (error,) = copied()
    assert "no space left on device" in str(error)
    assert copied() == [None]


def test_no_copy_in_a_log_directory(directory: Path) -> None:
    how = recover.ApplyOptions(output=str(directory / "copy"))
    with pytest.raises(KdumpError, match="keep the broker from starting"):
        list(recover.recover_logs(discover([str(directory)]), apply_options=how))
    assert not (directory / "copy").exists()


def test_room_that_no_one_will_cut_off_goes(directory: Path) -> None:
    """After an orderly stop a time index that ends with zeros makes retention delete its segment (KAFKA-10207)."""
    index = directory / "retained-0" / f"{56:020d}.timeindex"
    assert str(index) not in {action.path for plan in planned(directory) for action in plan.actions}
    (directory / ".kafka_cleanshutdown").write_bytes(b'{"version": 0, "brokerEpoch": 7}')
    assert index.read_bytes().endswith(bytes(24))
    assert str(index) in {action.path for plan in planned(directory) for action in plan.actions}


@pytest.mark.parametrize("kraft", [True, False])
def test_metadata_that_is_missing_is_written_where_a_broker_would_set_the_partition_aside(
    directory: Path, kraft: bool
) -> None:
    metadata = directory / "transfers-1" / "partition.metadata"
    before = metadata.read_bytes()
    metadata.unlink()
    if not kraft:
        (directory / "meta.properties").write_text("version=0\nbroker.id=1\n")
    list(recover.recover_logs(discover([str(metadata.parent)]), apply_options=recover.ApplyOptions("one")))
    assert metadata.exists() == kraft
    assert not kraft or metadata.read_bytes() == before


def test_what_cannot_be_read_afterwards_is_not_called_clean(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was applied, which the result has to say, and the other partitions are still done."""
    (directory / "transfers-1" / "leader-epoch-checkpoint").write_text("garbage")
    verify = recover.verify_logs

    def failing(found: Any, *rest: Any) -> Any:
        for report in verify(found, *rest):
            if not rest and report.path.endswith("transfers-0"):
                report.errors.append(SourceError("the disk is gone"))
            yield report

    monkeypatch.setattr(recover, "verify_logs", failing)
    results = [
        one
        for one in recover.recover_logs(discover([str(directory)]), apply_options=recover.ApplyOptions("one"))
        if isinstance(one, RecoveryResult)
    ]
    errors = {Path(one.plan.path).name: str(one.error) for one in results if one.error is not None}
    assert errors.keys() == {"transfers-0"}
    assert "the disk is gone" in errors["transfers-0"]
    assert all(one.applied and one.run == "one" for one in results if not one.plan.is_empty)
    assert points(directory)["transfers", 0] == 66


@pytest.mark.parametrize("how", ["undo_recovery", "resume_recovery"])
def test_nothing_is_taken_back_or_finished_under_a_broker(directory: Path, how: str) -> None:
    """From Python as from the command line."""
    (directory / ".lock").touch()
    list(recover.recover_logs(discover([str(directory / "transfers-0")]), apply_options=recover.ApplyOptions("one")))
    if how == "resume_recovery":
        journal = directory / "transfers-0" / ".kdump-undo" / "one" / "applied.jsonl"
        journal.rename(journal.with_name("applying.jsonl"))
    with locked_by_another(directory / ".lock"), pytest.raises(KdumpError, match="holds the lock"):
        getattr(recover, how)(str(directory / "transfers-0"))
    getattr(recover, how)(str(directory / "transfers-0"))
