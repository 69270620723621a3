"""A run over a whole log directory is undone and resumed as a whole, also after a broker ran."""

from __future__ import annotations

import errno
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump.errors import KdumpError
from kdump.format.naming import CLEAN_SHUTDOWN, RECOVERY_POINTS
from kdump.recover import apply, recover, run_group, run_plan, steps, undo_plan
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.rebuild_cache import RebuildCache
from kdump.recover.runs import runs
from kdump.recover.steps import RunExecutor
from kdump.recover.undo import UndoFailure
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.undo_folders import UndoFolder
from support import build, damage_partition, directories, recovery_plans
from support.damage import NotApplicable
from support.expected_files import NOW_MS, planned
from support.group_trial import PARTITIONS, GroupTrial, lines
from support.laws import sampled
from support.recovery_plans import contents, tree

FIXTURES = Path(__file__).parents[2] / "fixtures"
HIGH_WATERMARKS = "replication-offset-checkpoint"


@pytest.fixture
def trial(tmp_path: Path) -> GroupTrial:
    return GroupTrial(tmp_path / "x", keep=True)


def stopped(trial: GroupTrial, partition: str) -> None:
    """A run that ends where it would begin with a partition."""

    class Stop(BaseException):
        pass

    in_place = apply.in_place

    def until(handle: DirectoryHandle, *given: object, **how: object) -> object:
        if handle.path.endswith(partition):
            raise Stop
        return in_place(handle, *given, **how)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "in_place", until)
        with pytest.raises(Stop):
            trial.apply()


def test_the_lines_go_down_first(trial: GroupTrial) -> None:
    stopped(trial, "t-0")
    assert lines(trial.directory / RECOVERY_POINTS)["t-0"] < 30
    assert not (trial.directory / CLEAN_SHUTDOWN).exists()
    assert contents(tree(trial.directory / "t-0")) == recovery_plans.DAMAGED


def test_a_resume_finishes_a_root_of_which_only_the_journal_is_left(trial: GroupTrial) -> None:
    """A run that was killed after its last change at the root, before its journal says that all is done."""

    class Stop(BaseException):
        pass

    def never(executor: RunExecutor, state: str) -> None:
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunExecutor, "enter", never)
        with pytest.raises(Stop):
            trial.apply()
    assert not (trial.directory / CLEAN_SHUTDOWN).exists()
    trial.resume()
    assert not trial.is_unfinished()
    trial.undo()
    assert tree(trial.directory) == trial.old


def test_a_resume_says_where_a_file_at_the_root_became_shorter(trial: GroupTrial) -> None:
    stopped(trial, "t-0")

    def shorter(*_: object) -> None:
        raise EOFError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_group, "load", shorter)
        with pytest.raises(UndoFailure, match="became shorter while it was read"):
            trial.resume()
    trial.resume()
    trial.undo()
    assert tree(trial.directory) == trial.old


def test_a_resume_finishes_what_was_never_begun(trial: GroupTrial, tmp_path: Path) -> None:
    whole = GroupTrial(tmp_path / "y", keep=True)
    whole.apply()
    stopped(trial, "t-1")
    trial.refuses()
    done = trial.resume()
    assert contents(tree(trial.directory)) == contents(tree(whole.directory))
    assert {os.path.basename(one.run.directory) for one in done} >= {*PARTITIONS}
    assert sum(one.recovery.plan.lost.given_up.batches or 0 for one in done if one.recovery is not None) > 0
    trial.undo()
    assert tree(trial.directory) == trial.old


def test_a_partition_that_changed_since_is_refused_and_the_rest_is_finished(trial: GroupTrial, tmp_path: Path) -> None:
    whole = GroupTrial(tmp_path / "y", keep=True)
    whole.apply()
    stopped(trial, "t-1")
    log = trial.directory / "u-0" / f"{directories.stem(20)}.log"
    with log.open("ab") as file:
        file.write(b"since")
    now = tree(trial.directory / "u-0")
    with pytest.raises(UndoFailure, match=r"u-0.*has changed since"):
        trial.resume()
    assert tree(trial.directory / "u-0") == now
    assert contents(tree(trial.directory / "t-1")) == contents(tree(whole.directory / "t-1"))
    assert not trial.is_unfinished()


def test_a_resume_of_one_partition_names_the_log_directory(trial: GroupTrial) -> None:
    stopped(trial, "t-0")
    with pytest.raises(KdumpError, match=f"belongs to {trial.directory}; .*--resume {trial.directory}"):
        recover.resume_recovery(str(trial.directory / "u-0"))


def test_a_resume_of_a_partition_that_was_begun_does_too(trial: GroupTrial) -> None:
    """Else it would end with the status of a run that gave up nothing."""
    step = RunExecutor.truncate_file

    class Stop(BaseException):
        pass

    def stop(*_: object) -> None:
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(steps._STEPS, "cut", (stop, step))  # type: ignore[arg-type]
        with pytest.raises(Stop):
            trial.apply()
    (begun,) = [run for run in runs(str(trial.directory)) if not run.flat and not run.finished]
    now = tree(trial.directory, undo=True)
    with pytest.raises(KdumpError, match=f"belongs to {trial.directory}; .*--resume {trial.directory}"):
        recover.resume_recovery(begun.directory)
    assert tree(trial.directory, undo=True) == now


def test_a_resume_repeats_what_stays_as_it_is(trial: GroupTrial) -> None:
    """The results are those of the run that was not killed, also of partitions that it did not change."""
    for path in (trial.directory / "whole-0").glob(f"{directories.stem(10)}.*"):
        path.unlink()
    (trial.directory / "orders").mkdir()
    before = trial.directory.parent / "y"
    shutil.copytree(trial.directory, before / "d")
    stopped(trial, "t-1")
    done = [one.recovery for one in trial.resume() if one.recovery is not None]
    trial.directory = before / "d"
    whole = trial.apply()

    def said(results: list[RecoveryResult]) -> dict[str, tuple[object, ...]]:
        return {
            os.path.basename(one.plan.path): (
                one.plan.lost,
                sorted(finding.code for finding in one.left or one.plan.not_covered),
                "" if one.plan.is_root or one.next is None else one.next.words,
            )
            for one in results
            if one.applied or one.plan.not_covered
        }

    assert said(done) == {
        name: (lost, left, then.replace(f"{before}", f"{trial.directory.parent.parent / 'x'}"))
        for name, (lost, left, then) in said(whole).items()
    }
    codes = {finding.code for one in done for finding in one.plan.not_covered}
    assert {"segment/missing", "file/name"} <= codes


def test_a_resume_moves_recovery_points_that_cannot_be_read(trial: GroupTrial) -> None:
    """Also where the run was killed before it came to them; where they have changed since, they stay."""
    points = trial.directory / RECOVERY_POINTS
    points.write_bytes(b"nonsense")
    before = tree(trial.directory)
    stopped(trial, trial.directory.name)
    assert points.read_bytes() == b"nonsense"
    trial.resume()
    assert not points.exists()
    assert not trial.is_unfinished()
    trial.undo()
    assert tree(trial.directory) == before
    stopped(trial, trial.directory.name)
    points.write_bytes(b"others")
    trial.resume()
    assert points.read_bytes() == b"others"


def test_an_interrupted_run_is_undone(trial: GroupTrial) -> None:
    stopped(trial, "t-1")
    trial.undo()
    assert tree(trial.directory) == trial.old
    assert not list(trial.directory.rglob(".kdump-undo*"))


def test_a_partition_on_its_own_has_its_plan_inside(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", recovery_plans.DAMAGED)
    before = tree(directory)
    how = recover.ApplyOptions("1")
    list(recover.recover_logs(discover([str(directory)]), RecoverOptions(walk="all"), apply_options=how))
    with DirectoryHandle(str(directory), read_only=True) as handle:
        plan = run_plan.read(handle, UndoFolder("1"))
    assert plan is not None
    assert [one.path for one in plan.plans] == ["."]
    assert plan.plans[0].files
    recover.undo_recovery(str(directory))
    assert tree(directory, undo=True) == before


def test_nothing_of_a_run_that_keeps_nothing_stays(tmp_path: Path) -> None:
    trial = GroupTrial(tmp_path, keep=False)
    trial.apply()
    assert not list(trial.directory.rglob(".kdump-undo*"))


@pytest.mark.parametrize("change", [b"", b"x"])
def test_a_plan_that_was_written_by_another_hand(trial: GroupTrial, change: bytes) -> None:
    stopped(trial, "t-1")
    (path,) = trial.directory.glob(".kdump-undo-1-plan-applying.jsonl")
    path.write_bytes(path.read_bytes()[:-40] + change)
    now = tree(trial.directory, undo=True)
    with pytest.raises(KdumpError, match="plan is damaged"):
        trial.resume()
    assert tree(trial.directory, undo=True) == now


# ---- after a broker


def broker(trial: GroupTrial) -> None:
    """Its start and stop: it rewrites the checkpoints, and what belongs to the logs."""
    trial.broker()
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        text = [f"{partition.replace('-', ' ')} {18 if partition in PARTITIONS else 31}" for partition in ALL]
        (trial.directory / name).write_bytes(build.checkpoint(*text))


ALL = (*PARTITIONS, "whole-0")


def test_after_a_start_only_the_lines_of_the_run_go_back(trial: GroupTrial) -> None:
    trial.apply()
    broker(trial)
    now = tree(trial.directory)
    trial.undo()
    after = tree(trial.directory)
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        assert lines(trial.directory / name) == {**dict.fromkeys(PARTITIONS, 30), "whole-0": 31}
    assert not (trial.directory / CLEAN_SHUTDOWN).exists()
    inside = {name: content for name, content in trial.old.items() if "/" in name}
    assert {name: content for name, content in after.items() if "/" in name} == inside
    trial.undo("1-undo1")
    assert tree(trial.directory) == now
    assert not list(trial.directory.rglob(".kdump-undo*"))


def test_no_line_goes_above_the_log_end(trial: GroupTrial) -> None:
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        (trial.directory / name).write_bytes(build.checkpoint("t 0 99", "t 1 7", "whole 0 30"))
    trial.apply()
    broker(trial)
    trial.undo()
    assert lines(trial.directory / RECOVERY_POINTS) == {"t-0": 30, "t-1": 7, "whole-0": 31}


def test_one_partition_takes_its_line_back(trial: GroupTrial) -> None:
    trial.apply()
    low = lines(trial.directory / RECOVERY_POINTS)
    recover.undo_recovery(str(trial.directory / "t-1"))
    assert lines(trial.directory / RECOVERY_POINTS) == {**low, "t-1": 30}
    assert [run.run for run in runs(str(trial.directory / "t-1"))] == []
    trial.undo()
    assert tree(trial.directory) == trial.old


def test_a_log_that_grew_keeps_all_of_it_from_being_undone(trial: GroupTrial) -> None:
    trial.apply()
    broker(trial)
    (log, *_) = sorted((trial.directory / "t-1").glob("*.log"), reverse=True)
    with log.open("ab") as file:
        file.write(b"since")
    now = tree(trial.directory, undo=True)
    with pytest.raises(UndoFailure, match=r"t-1/.*a broker has written since.*nothing was changed; to undo the rest"):
        trial.undo()
    assert tree(trial.directory, undo=True) == now
    for name in ("t-0", "u-0"):
        recover.undo_recovery(str(trial.directory / name), run="1")
    for name in ("t-0", "u-0"):
        assert tree(trial.directory / name) == {
            inner.partition("/")[2]: content for inner, content in trial.old.items() if inner.startswith(f"{name}/")
        }


def test_a_forced_undo_of_a_log_directory_is_taken_back(trial: GroupTrial) -> None:
    trial.apply()
    broker(trial)
    (log, *_) = sorted((trial.directory / "t-1").glob("*.log"), reverse=True)
    with log.open("ab") as file:
        file.write(b"since")
    now = tree(trial.directory)
    recover.undo_recovery(str(trial.directory), force=True)
    assert contents(tree(trial.directory / "t-1")) == recovery_plans.DAMAGED
    trial.undo("1-forced1")
    assert tree(trial.directory) == now


def test_a_clock_of_1970(trial: GroupTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last run is the last one, whatever the clock says."""
    trial.apply()
    broker(trial)
    now = tree(trial.directory)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000)
    trial.undo()
    trial.undo("1-undo1")
    assert tree(trial.directory) == now


@pytest.mark.daily(2)
@pytest.mark.parametrize("strategy", ["truncate", "salvage"])
def test_the_plan_of_any_damage_is_read_as_it_was_written(tmp_path: Path, strategy: str) -> None:
    """A value of a finding that could not be read again kept a run from being undone."""
    known = 0
    for number, name in enumerate(damage_partition.DAMAGES):
        directory = tmp_path / str(number) / "transactions-0"
        shutil.copytree(FIXTURES / "transactions/transactions-0", directory)
        try:
            damage_partition.apply(name, directory, random.Random(name))
        except NotApplicable:
            continue
        plan = planned(directory, RecoverOptions(strategy=strategy, walk="all", now_ms=NOW_MS))
        plan = plan._replace(path=".", rebuild_cache=RebuildCache())
        whole = run_plan.RunPlan("1", 0, plans=(plan,))
        assert run_plan.from_bytes(run_plan.to_bytes(whole), name) == whole, name
        known += any("zeros" in finding.data for finding in plan.covered)
    assert known


# ---- again


def failing(trial: GroupTrial, partition: str) -> None:
    """An undo that a full disk ends in one partition."""
    in_place = undo_plan.in_place

    def fails(handle: DirectoryHandle, *given: object, **how: object) -> object:
        if handle.path.endswith(partition):
            raise OSError(errno.ENOSPC, "No space left on device")
        return in_place(handle, *given, **how)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(undo_plan, "in_place", fails)
        with pytest.raises(UndoFailure, match=f"{partition}: no space left") as caught:
            trial.undo()
    assert "--undo" in caught.value.then


def test_an_undo_after_one_that_failed_goes_on_with_it(trial: GroupTrial) -> None:
    """And does not take the failed one back, which would remove the last copy of what was there before."""
    trial.apply()
    broker(trial)
    now = tree(trial.directory)
    failing(trial, "t-1")
    failing(trial, "t-1")
    assert trial.is_unfinished()
    with pytest.raises(KdumpError, match=f"belongs to {trial.directory}"):
        recover.undo_recovery(str(trial.directory / "t-0"))
    trial.undo()
    assert not trial.is_unfinished()
    inside = {name: content for name, content in trial.old.items() if "/" in name}
    assert {name: content for name, content in tree(trial.directory).items() if "/" in name} == inside
    trial.undo("1-undo1")
    assert tree(trial.directory) == now


def test_partitions_on_their_own_of_which_one_failed(tmp_path: Path) -> None:
    for name in ("t-0", "t-1"):
        inside = directories.write(tmp_path / name, recovery_plans.PARTITION)
        apply.apply(
            recovery_plans.plan_of(inside, recovery_plans.truncated(recovery_plans.stamps(inside))),
            "1",
            make=recovery_plans.make,
        )
        with (inside / "leader-epoch-checkpoint").open("ab") as file:
            file.write(b"9 15\n")
    recover.undo_recovery(str(tmp_path / "t-1"))
    now = tree(tmp_path)
    with pytest.raises(KdumpError, match=r"run 1 is not undone here.*--run 1 .*--run 1-undo1"):
        recover.undo_recovery(str(tmp_path))
    assert tree(tmp_path) == now
    recover.undo_recovery(str(tmp_path), run="1")
    assert contents(tree(tmp_path / "t-0")) == recovery_plans.PARTITION


@pytest.mark.daily(4)
@pytest.mark.parametrize("at", [*range(1, 40, 3), *range(40, 61)])
def test_an_undo_that_was_killed_goes_on_in_a_partition_on_its_own(tmp_path: Path, at: int) -> None:
    class Stop(BaseException):
        pass

    directory = directories.write(tmp_path / "t-0", recovery_plans.PARTITION)
    before = tree(directory)
    after = recovery_plans.truncated(recovery_plans.stamps(directory))
    apply.apply(recovery_plans.plan_of(directory, after), "1", make=recovery_plans.make)
    with (directory / "leader-epoch-checkpoint").open("ab") as file:
        file.write(b"9 15\n")
    calls = 0

    def stop(name: str) -> Any:
        real = getattr(DirectoryHandle, name)

        def counted(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Stop
            return real(*given)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in ("rename", "remove", "sync"):
            patch.setattr(DirectoryHandle, name, stop(name))
        try:
            recover.undo_recovery(str(directory))
        except Stop:
            pass
        else:
            pytest.skip("it is over before")
    recover.undo_recovery(str(directory))
    assert tree(directory) == before


@pytest.mark.parametrize("whole", [False, True])
def test_a_checkpoint_that_was_moved_away_is_not_thrown_away(tmp_path: Path, whole: bool) -> None:
    """Where a broker wrote a new one since: it stays kept, or comes back where the root is undone, too."""
    files = {name: data for name, data in directories.clean().items() if "/" not in name}
    files |= {f"t-0/{inner}": data for inner, data in recovery_plans.DAMAGED.items()}
    directory = directories.write(tmp_path / "d", {**files, RECOVERY_POINTS: b"nonsense"})
    before = tree(directory)
    options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
    list(recover.recover_logs(discover([str(directory)]), options, apply_options=recover.ApplyOptions("1")))
    assert not (directory / RECOVERY_POINTS).exists()
    (directory / RECOVERY_POINTS).write_bytes(build.checkpoint("t 0 15"))
    with (directory / "t-0" / "leader-epoch-checkpoint").open("ab") as file:
        file.write(b"9 15\n")
    now = tree(directory)
    recover.undo_recovery(str(directory if whole else directory / "t-0"))
    if whole:
        assert contents(tree(directory)) == contents(before)
    else:
        assert (directory / f".kdump-undo-1-old-{RECOVERY_POINTS}").read_bytes() == b"nonsense"
        assert (directory / RECOVERY_POINTS).read_bytes() != b"nonsense"
    recover.undo_recovery(str(directory), run="1-undo1")
    assert tree(directory) == now


# ---- trouble at any change


class Killed(BaseException):
    pass


class Trouble:
    """Counts what is done to a directory, and fails at the call of this number."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.at, self.error, self.calls = at, error, 0

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("rename", "link", "remove", "remove_directory", "make_directory", "create", "sync"):
            patch.setattr(DirectoryHandle, name, self._counted(getattr(DirectoryHandle, name)))

    def _counted(self, right: Any) -> Any:
        def call(*given: Any, **how: Any) -> Any:
            self.calls += 1
            if self.calls == self.at or (self.calls > self.at and isinstance(self.error, Killed)):
                raise self.error
            return right(*given, **how)

        return call


def troubled(act: Any, at: int, error: BaseException) -> tuple[int, BaseException | None]:
    trouble = Trouble(at, error)
    with pytest.MonkeyPatch.context() as patch:
        trouble.patch(patch)
        try:
            act()
        except (Killed, KdumpError, OSError) as met:
            return trouble.calls, met
    return trouble.calls, None


@pytest.mark.parametrize("error", [Killed(), OSError(errno.ENOSPC, "No space left on device")], ids=["kill", "ENOSPC"])
def test_an_undo_of_a_run_that_kept_nothing_restores_all_or_says_so(tmp_path: Path, error: BaseException) -> None:
    calls, _ = troubled(GroupTrial(tmp_path, keep=False).apply, 0, OSError())
    refused = 0
    for at in sampled(sorted({*range(1, calls + 1, calls // 6), *range(calls - 5, calls + 1)}), 3):
        trial = GroupTrial(tmp_path, keep=False)
        troubled(trial.apply, at, error)
        now = tree(trial.directory)
        if not runs(str(trial.directory)):
            continue
        _, met = troubled(trial.undo, 0, OSError())
        if met is None:
            assert tree(trial.directory) == trial.old, at
            continue
        refused += 1
        assert isinstance(met, UndoFailure)
        assert "kept nothing of what it removed" in str(met)
        assert tree(trial.directory) == now
        if trial.is_unfinished():
            assert f"kdump recover --resume {trial.directory}" in met.then
            trial.resume()
            assert not trial.is_unfinished()
    assert refused


@pytest.mark.parametrize("keep", [True, False])
def test_a_resume_that_met_an_error_can_be_repeated(tmp_path: Path, keep: bool) -> None:
    whole = GroupTrial(tmp_path / "whole", keep=keep)
    total, _ = troubled(whole.apply, 0, OSError())

    def killed() -> GroupTrial:
        trial = GroupTrial(tmp_path / "x", keep=keep)
        troubled(trial.apply, total // 2, Killed())
        return trial

    calls, _ = troubled(killed().resume, 0, OSError())
    repeated = 0
    for at in sampled(sorted({*range(1, calls + 1, calls // 10), calls}), 3):
        trial = killed()
        _, met = troubled(trial.resume, at, OSError(errno.EIO, "Input/output error"))
        if trial.is_unfinished():
            assert met is not None
            repeated += 1
            trial.resume()
        assert contents(tree(trial.directory)) == contents(tree(whole.directory)), at
        assert not trial.is_unfinished(), at
    assert repeated


def test_a_resume_of_one_partition_that_met_an_error_can_be_repeated(tmp_path: Path) -> None:
    def written() -> tuple[Path, Any]:
        shutil.rmtree(tmp_path / "x", ignore_errors=True)
        directory = directories.write(tmp_path / "x" / "t-0", dict(recovery_plans.DAMAGED))
        options = RecoverOptions(walk="all", now_ms=NOW_MS)
        how = recover.ApplyOptions("1")
        return directory, lambda: list(recover.recover_logs(discover([str(directory)]), options, apply_options=how))

    directory, act = written()
    total, _ = troubled(act, 0, OSError())
    new = contents(tree(directory))

    def killed() -> Path:
        directory, act = written()
        troubled(act, total * 2 // 3, Killed())
        return directory

    calls, _ = troubled(lambda: recover.resume_recovery(str(killed())), 0, OSError())
    for at in range(1, calls + 1, 4):
        directory = killed()
        troubled(
            lambda here=directory: recover.resume_recovery(str(here)), at, OSError(errno.EIO, "Input/output error")
        )
        if any(not run.finished for run in runs(str(directory))):
            recover.resume_recovery(str(directory))
        assert contents(tree(directory)) == new, at


def test_a_second_undo_asks(trial: GroupTrial) -> None:
    """To undo an undo brings a repair back: a program names the undo, or forces it, as on the command line."""
    trial.apply()
    repaired = tree(trial.directory)
    broker(trial)
    started = tree(trial.directory)
    trial.undo()
    undone = tree(trial.directory)
    with pytest.raises(KdumpError, match=r"1-undo1, is itself an undo, of run 1: .*repair back"):
        trial.undo()
    assert tree(trial.directory) == undone != repaired
    recover.undo_recovery(str(trial.directory), force=True)
    assert tree(trial.directory) == started
