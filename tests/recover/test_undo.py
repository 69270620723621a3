"""A run is taken back to the last byte, or not at all; what was written since is never lost; one that was stopped is
found by everybody."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kdump.errors import KdumpError
from kdump.recover import undo as undo_runs
from kdump.recover.apply import apply
from kdump.recover.journal import to_bytes
from kdump.recover.plan import FileContent, Plan
from kdump.recover.steps import RunExecutor, load
from kdump.recover.undo import RunResult, UndoFailure, resume, runs
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.undo_folders import UndoFolder
from kdump.verify.findings import Severity
from kdump.verify.verify import verify_logs
from support import directories, recovery_plans
from support.directories import changed, stem
from support.recovery_plans import CASES, END, PARTITION, REBUILT, A, B, C, Tree, contents, make, plan_of, stamps, tree

KEPT = [case for case in CASES if CASES[case].keep]


def undo(path: str, run: str | None = None, force: bool = False) -> list[RunResult]:
    """Undo the last run. One that is an undo itself has to be named, as a repair comes back with it."""
    last = next(reversed(runs(path)), None)
    if run is None and not force and last is not None and last.finished and last.undoes is not None:
        run = last.run
    return undo_runs.undo(path, run, force)


def applied(case: str, place: Path) -> tuple[Path, Tree]:
    """A directory after a run, and what it was before."""
    directory = recovery_plans.write(CASES[case], place)
    before = tree(directory)
    apply(plan_of(directory, CASES[case].after(stamps(directory))), "1", make=make)
    return directory, before


def stopped(directory: Path, plan: Plan, at: int) -> None:
    """A run that ends before its step of that number."""

    class Stop(BaseException):
        pass

    count = 0

    def stop(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise Stop

    rename = DirectoryHandle.rename

    def renamed(*names: Any) -> None:
        stop()
        rename(*names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryHandle, "rename", renamed)
        with pytest.raises(Stop):
            apply(plan, "1", make=make)


def unfinished(place: Path, at: int = 5) -> tuple[Path, Tree]:
    directory = directories.write(place / "t-0", PARTITION)
    before = tree(directory)
    stopped(directory, plan_of(directory, recovery_plans.truncated(stamps(directory))), at)
    assert [run.state for run in runs(str(directory))] == ["applying"]
    return directory, before


def clean(directory: Path) -> bool:
    return not any(".kdump-undo" in str(path) for path in directory.rglob("*"))


# ---- back


@pytest.mark.parametrize("case", KEPT)
def test_every_byte_name_and_time_comes_back(case: str, tmp_path: Path) -> None:
    directory, before = applied(case, tmp_path)
    assert tree(directory) != before
    (done,) = undo(str(directory))
    assert done.run.run == "1"
    assert tree(directory) == before
    assert clean(directory)


@pytest.mark.parametrize("case", KEPT)
def test_it_comes_back_in_a_copy_too(case: str, tmp_path: Path) -> None:
    """There no file is the same file any more."""
    directory, before = applied(case, tmp_path / "x")
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    undo(str(copy))
    assert tree(copy) == before


def test_runs_are_taken_back_one_after_the_other(tmp_path: Path) -> None:
    directory, before = applied("truncate", tmp_path)
    between = tree(directory)
    apply(plan_of(directory, {f"{A}.index": REBUILT}), "2", make=make)
    assert [(run.run, run.state) for run in runs(str(directory))] == [("1", "applied"), ("2", "applied")]
    with pytest.raises(KdumpError, match="run 2 came later"):
        undo(str(directory), "1")
    undo(str(directory))
    assert tree(directory) == between
    undo(str(directory))
    assert tree(directory) == before
    with pytest.raises(KdumpError, match="no run of kdump recover has left anything here"):
        undo(str(directory))


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    directory, _ = applied("truncate", tmp_path)
    with pytest.raises(KdumpError, match=r"no run 7 here; there are 1"):
        undo(str(directory), "7")
    with pytest.raises(KdumpError, match="no run of kdump recover is unfinished"):
        resume(str(directory))


def test_the_same_id_twice(tmp_path: Path) -> None:
    directory, _ = applied("truncate", tmp_path)
    with pytest.raises(KdumpError, match=r"there already is a run 1; nothing was changed"):
        apply(plan_of(directory, {f"{A}.index": REBUILT}), "1", make=make)


def test_a_log_directory(tmp_path: Path) -> None:
    """One id covers its partitions and its root; the root, whose recovery points go up, comes back last."""
    directory = directories.write(
        tmp_path / "d", changed(directories.clean(), {f"u-1/{name}": data for name, data in PARTITION.items()})
    )
    before = tree(directory)
    for name in ("t-0", "u-1"):
        inside = directory / name
        apply(plan_of(inside, recovery_plans.truncated(stamps(inside)), recovery_point=15), "1", make=make)
    apply(plan_of(directory, recovery_plans.at_root(stamps(directory))), "1")
    found = runs(str(directory))
    assert [(run.directory, run.recovery_point) for run in found] == [
        (str(directory / "t-0"), 15),
        (str(directory / "u-1"), 15),
        (str(directory), None),
    ]
    # A broker takes every directory here for a topic-partition.
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == ["t-0", "u-1"]
    assert [done.run.directory for done in undo(str(directory))] == [
        str(directory / "u-1"),
        str(directory / "t-0"),
        str(directory),
    ]
    assert tree(directory) == before
    assert clean(directory)


def test_where_one_cannot_come_back_nothing_changes(tmp_path: Path) -> None:
    """And the command for the rest works."""
    directory = tmp_path
    before = {}
    for name in ("t-0", "t-1", "t-2"):
        before[name], inside = tree(directories.write(directory / name, PARTITION)), directory / name
        apply(plan_of(inside, recovery_plans.truncated(stamps(inside))), "1", make=make)
    with (directory / "t-1" / f"{A}.log").open("ab") as log:
        log.write(b"more")
    now = tree(directory, undo=True)
    with pytest.raises(UndoFailure, match=r"t-1.*nothing was changed; to undo the rest: kdump") as caught:
        undo(str(directory))
    assert [(os.path.basename(done.run.directory), done.error is None) for done in caught.value.done] == [
        ("t-1", False)
    ]
    assert tree(directory, undo=True) == now
    *command, _, second, first = shlex.split(caught.value.then.rpartition(": ")[2])
    assert command == ["kdump", "recover", "--undo", "--run", "1"]
    undo(second, "1")
    undo(first, "1")
    assert tree(directory / "t-0") == before["t-0"]
    assert tree(directory / "t-2") == before["t-2"]


# ---- another process wrote since


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def empty(path: Path) -> None:
    os.truncate(path, 0)


def rewrite(path: Path) -> None:
    """As many other bytes."""
    data = path.read_bytes()
    path.write_bytes(bytes(255 - byte for byte in data))


def add(path: Path) -> None:
    path.with_name(f"{stem(99)}.log").write_bytes(b"new")


def roll(path: Path) -> None:
    """A new segment without a record."""
    path.with_name(f"{stem(99)}.log").touch()
    path.with_name(f"{stem(99)}.index").write_bytes(bytes(4096))


OF_THE_LOG = [
    (f"{B}.log", append),
    (f"{B}.log", empty),
    (f"{B}.log", Path.unlink),
    (f"{A}.log", append),
    (f"{B}.log", add),
]
OF_A_START = [
    (f"{A}.index", Path.unlink),
    (f"{B}.index", rewrite),
    (f"{B}.timeindex", Path.unlink),
    (f"{B}.snapshot", rewrite),
    (f"{stem(15)}.snapshot", Path.unlink),
    ("leader-epoch-checkpoint", append),
    (f"{B}.log", roll),
]
CHANGES = OF_THE_LOG + OF_A_START


@pytest.mark.parametrize(("name", "change"), OF_THE_LOG)
def test_what_was_written_since_is_not_overwritten(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    directory, _ = applied("truncate", tmp_path)
    change(directory / name)
    before = tree(directory, undo=True)
    with pytest.raises(KdumpError, match=r"a broker has written since.*--force") as caught:
        undo(str(directory))
    assert (stem(99) if change is add else name) in str(caught.value)
    assert tree(directory, undo=True) == before


@pytest.mark.daily(4)
@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize(("name", "change"), OF_A_START)
def test_what_a_start_rewrites_does_not_block(
    tmp_path: Path, case: str, name: str, change: Callable[[Path], None]
) -> None:
    """It is kept, and the undo can be undone."""
    directory, before = applied(case, tmp_path)
    if not (directory / name).exists():
        pytest.skip("the case has no such file")
    changed_by_run = contents(tree(directory)).get(name) != contents(before).get(name)
    change(directory / name)
    now = tree(directory)
    undo(str(directory))
    untouched = set() if changed_by_run or change is roll else {name}
    assert without(tree(directory), untouched) == without(before, untouched)
    undo(str(directory))
    assert tree(directory) == now
    assert clean(directory)


def without(of: Tree, names: set[str]) -> Tree:
    return {name: content for name, content in of.items() if name not in names}


@pytest.mark.parametrize("case", [case for case in KEPT if not CASES[case].root])
def test_a_forced_undo_is_taken_back_byte_for_byte(case: str, tmp_path: Path) -> None:
    """A broker appended, rolled and rewrote what belongs to the log."""
    directory, before = applied(case, tmp_path)
    logs = sorted(directory.glob("*.log"))
    for log in logs[-1:]:
        append(log)
    (directory / f"{stem(99)}.log").write_bytes(b"written since")
    for path in (*directory.glob("*.snapshot"), *directory.glob("*.index")):
        rewrite(path)
    now = tree(directory)
    undo(str(directory), force=True)
    undone = tree(directory)
    assert undone != now
    for name in before.keys() | undone.keys():  # what the run did not touch, and a broker wrote since, stays as it is
        if name not in now or undone.get(name) != now[name]:
            assert undone.get(name) == before.get(name), name
    undo(str(directory))
    assert tree(directory) == now
    assert clean(directory)


def test_an_undo_that_was_taken_back_too_often(tmp_path: Path) -> None:
    """The undo of an undo, after a start: all of them come back, one after the other."""
    directory, _ = applied("truncate", tmp_path)
    states = [tree(directory)]
    for _ in range(3):
        append(directory / "leader-epoch-checkpoint")
        states.append(tree(directory))
        undo(str(directory))
    assert len(runs(str(directory))) == 1
    undo(str(directory))
    assert tree(directory) == states[-1]


def test_the_same_bytes_written_again_are_no_change(tmp_path: Path) -> None:
    """As a broker leaves indexes that it opened and closed."""
    directory, before = applied("truncate", tmp_path)
    for name in (f"{B}.index", f"{B}.timeindex", "leader-epoch-checkpoint"):
        (directory / name).write_bytes((directory / name).read_bytes())
    undo(str(directory))
    assert tree(directory) == before


@pytest.mark.daily(3)
@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_with_force_the_present_state_is_kept(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    directory, before = applied("truncate", tmp_path)
    change(directory / name)
    now = tree(directory)
    if (name, change) in ((f"{B}.log", empty), (f"{B}.log", Path.unlink)):
        # What was before the cut is nowhere any more.
        kept = tree(directory, undo=True)
        with pytest.raises(KdumpError, match="are gone"):
            undo(str(directory), force=True)
        assert tree(directory, undo=True) == kept
        return
    undo(str(directory), force=True)
    untouched = {f"{A}.log", f"{A}.index"}
    assert {name: content for name, content in tree(directory).items() if name not in untouched} == {
        name: content for name, content in before.items() if name not in untouched
    }
    saved = [run for run in runs(str(directory)) if run.run == "1-forced1"]
    assert [(run.state, run.strategy) for run in saved] == [("applied", "undo")]
    # And back again.
    undo(str(directory))
    assert tree(directory) == now


def test_a_broker_goes_on_and_the_undo_is_forced(tmp_path: Path) -> None:
    """It appended, rolled, wrote checkpoints and snapshots."""
    directory, before = applied("truncate", tmp_path)
    append(directory / f"{B}.log")
    for name in (f"{stem(17)}.log", f"{stem(17)}.index", f"{stem(17)}.snapshot"):
        (directory / name).write_bytes(b"written since")
    (directory / f"{B}.index").write_bytes(bytes(4096))
    (directory / f"{stem(15)}.snapshot").unlink()
    now = contents(tree(directory))
    undo(str(directory), force=True)
    assert tree(directory) == before
    kept = {path.read_bytes() for path in (directory / ".kdump-undo" / "1-forced1").rglob("*") if path.is_file()}
    assert {b"written since", bytes(4096), now[f"{B}.log"]} <= kept
    assert now[f"{B}.log"].endswith(b"more")


def test_a_promoted_log_that_grew_is_cut_back(tmp_path: Path) -> None:
    directory, before = applied("promote", tmp_path)
    append(directory / f"{A}.log")
    with pytest.raises(KdumpError, match="a broker has written since"):
        undo(str(directory))
    undo(str(directory), force=True)
    assert tree(directory) == before


@pytest.mark.daily(3)
@pytest.mark.parametrize("kept", [f"old/{C}.log", f"old/{B}.index", f"cut/{B}.log", "old/leader-epoch-checkpoint"])
@pytest.mark.parametrize("change", [Path.unlink, append, rewrite])
def test_what_was_kept_is_gone(tmp_path: Path, kept: str, change: Callable[[Path], None]) -> None:
    """Nothing is taken back, and with force all the rest is."""
    directory, before = applied("truncate", tmp_path)
    change(directory / ".kdump-undo" / "1" / kept)
    after = tree(directory, undo=True)
    with pytest.raises(KdumpError, match=r"cannot be undone; --force"):
        undo(str(directory))
    assert tree(directory, undo=True) == after
    name = os.path.basename(kept)
    with pytest.raises(KdumpError, match=f"{name}: could not be restored"):
        undo(str(directory), force=True)
    now = tree(directory)
    stays = {name} if kept.endswith(("index", "checkpoint")) else {one for one in before if one.startswith(name[:20])}
    assert {one: now[one] for one in now if one not in stays} == {
        one: before[one] for one in before if one not in stays
    }
    # No old index beside a log that did not come back.
    index = now.get(f"{name[:20]}.index")
    assert index != before[f"{B}.index"] or name == "leader-epoch-checkpoint" or f"{B}.log" not in stays
    left = directory / ".kdump-undo" / "1" / kept
    assert left.exists() == (change is not Path.unlink) == (directory / ".kdump-undo" / "1").exists()


def test_a_backup_of_what_was_cut_keeps_its_bytes(tmp_path: Path) -> None:
    """Linked after the run, or in the middle of one."""
    directory, before = applied("truncate", tmp_path)
    recovery_plans.linked(directory)
    backup = contents(tree(tmp_path / "backup"))
    undo(str(directory))
    assert tree(directory) == before
    assert contents(tree(tmp_path / "backup")) == backup
    stopped(directory, plan_of(directory, recovery_plans.truncated(stamps(directory))), 7)
    shutil.rmtree(tmp_path / "backup")
    recovery_plans.linked(directory)
    with pytest.raises(KdumpError, match="second name"):
        resume(str(directory))
    assert tree(directory) == before


# ---- journals


def journal(directory: Path) -> Path:
    (path,) = (directory / ".kdump-undo" / "1").glob("*.jsonl")
    return path


def test_a_journal_says_all_that_is_needed(tmp_path: Path) -> None:
    directory, before = applied("truncate", tmp_path)
    head, *steps, end = [json.loads(line) for line in journal(directory).read_text().splitlines()]
    assert (head["type"], head["version"], head["run"], head["strategy"]) == ("run", 2, "1", "truncate")
    assert end["type"] == "end"
    (cut,) = (step for step in steps if step["do"] == "cut")
    log = before[f"{B}.log"][0]
    assert (cut["name"], cut["position"], cut["length"], cut["because"]) == (
        f"{B}.log",
        len(log) // 2,
        len(log) - len(log) // 2,
        "batch/crc",
    )
    assert cut["crc32c"] == crc32c(log[len(log) // 2 :])
    for step in steps:
        if step["do"] in ("take", "replace"):
            data = before[step["name"]][0]
            assert (step["length"], step["crc32c"]) == (len(data), crc32c(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"take"', b'"sync"', 1),
        lambda data: b"[]\n" * 3,
        lambda data: b"\xff\xfe\n" + data,
        lambda data: data.replace(b'"version": 2', b'"version": 3'),
    ],
)
def test_a_damaged_journal_changes_nothing(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    directory, _ = applied("truncate", tmp_path)
    path = journal(directory)
    path.write_bytes(damage(path.read_bytes()))
    before = tree(directory, undo=True)
    with pytest.raises(KdumpError, match="journal"):
        undo(str(directory))
    assert tree(directory, undo=True) == before


@pytest.mark.parametrize("name", ["../elsewhere", "..", "a/b", ".kdump-undo"])
@pytest.mark.parametrize("field", ["name", "to"])
def test_a_journal_reaches_no_other_directory(tmp_path: Path, name: str, field: str) -> None:
    """Though its checksum is right: whoever owns the partition can write one, and root may undo it."""
    directory, _ = applied("rename", tmp_path)
    with DirectoryHandle(str(directory)) as place:
        loaded = load(place, UndoFolder("1"))
    assert loaded is not None
    steps = [
        step if step.do != "rename" else step._replace(name=name) if field == "name" else step._replace(to=name)
        for step in loaded[1].steps
    ]
    journal(directory).write_bytes(to_bytes(loaded[1]._replace(steps=tuple(steps))))
    before = tree(tmp_path, undo=True)
    with pytest.raises(KdumpError, match="is not the name of a file of a log"):
        undo(str(directory))
    assert tree(tmp_path, undo=True) == before


def test_files_without_a_journal_are_not_thrown_away(tmp_path: Path) -> None:
    directory, _ = applied("truncate", tmp_path)
    journal(directory).unlink()
    before = tree(directory, undo=True)
    assert [run.state for run in runs(str(directory))] == ["lost"]
    for act in (
        lambda: apply(plan_of(directory, {f"{A}.index": REBUILT}), "2", make=make),
        lambda: undo(str(directory)),
        lambda: resume(str(directory)),
    ):
        with pytest.raises(KdumpError, match="journal"):
            act()
    assert tree(directory, undo=True) == before
    assert codes(directory) >= {"undo/unfinished"}


def test_leftovers_of_a_run_that_changed_nothing_are_cleared_away(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    (directory / ".kdump-undo" / "0" / "new").mkdir(parents=True)
    (directory / ".kdump-undo" / "0" / "new" / f"{A}.log").write_bytes(b"half")
    assert runs(str(directory)) == []
    assert "undo/unfinished" not in codes(directory)
    apply(plan_of(directory, {f"{A}.index": REBUILT}), "1", make=make)
    assert os.listdir(directory / ".kdump-undo") == ["1"]


# ---- a run that is not finished


def codes(directory: Path) -> set[str]:
    return {finding.code for report in verify_logs(discover([str(directory)])) for finding in report.findings}


@pytest.mark.parametrize("at", [2, 5, 9, 14])
@pytest.mark.parametrize("how", [resume, undo])
def test_it_is_found_and_brought_to_an_end(tmp_path: Path, at: int, how: Callable[[str], Any]) -> None:
    directory, before = unfinished(tmp_path, at)
    assert "undo/unfinished" in codes(directory)
    assert "undo/unfinished" in codes(tmp_path)
    with pytest.raises(KdumpError, match=r"run 1 is not finished: .*--resume.*--undo"):
        apply(plan_of(directory, {f"{A}.index": REBUILT}), "2", make=make)
    how(str(directory))
    assert "undo/unfinished" not in codes(directory)
    if how is resume:
        undo(str(directory))
    assert tree(directory) == before


def test_its_finding(tmp_path: Path) -> None:
    directory, _ = unfinished(tmp_path)
    (report,) = verify_logs(discover([str(directory)]))
    (finding,) = (finding for finding in report.findings if finding.code == "undo/unfinished")
    assert finding.severity is Severity.ERROR
    assert finding.path == str(directory / ".kdump-undo")
    assert finding.topic_partition == ("t", 0)
    assert finding.broker == "ignores"


def test_at_the_root(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "d", directories.clean())
    before = tree(directory)
    stopped(directory, plan_of(directory, recovery_plans.at_root(stamps(directory))), 3)
    assert "undo/unfinished" in codes(directory)
    (run,) = runs(str(directory))
    assert (run.state, run.directory) == ("applying", str(directory))
    resume(str(directory))
    undo(str(directory))
    assert tree(directory) == before
    assert clean(directory)


@pytest.mark.parametrize("how", [resume, undo])
def test_a_broker_that_ran_in_between_stops_it(tmp_path: Path, how: Callable[[str], Any]) -> None:
    directory, _ = unfinished(tmp_path)
    append(directory / f"{A}.log")
    before = tree(directory, undo=True)
    with pytest.raises(KdumpError, match=r"a broker has written since.*--force"):
        how(str(directory))
    assert tree(directory, undo=True) == before


def test_steps_can_be_repeated(tmp_path: Path) -> None:
    """All of them, in both directions, any number of times."""
    for case in KEPT:
        directory, before = applied(case, tmp_path / case.replace(",", ""))
        after = tree(directory)
        with DirectoryHandle(str(directory)) as place:
            area = UndoFolder("1", flat=CASES[case].root)
            loaded = load(place, area)
            assert loaded is not None
            work = RunExecutor(place, area, loaded[1])
            work.forward()
            assert tree(directory) == after
            work.backward()
            work.backward()
            assert tree(directory) == before


# ---- what is kept is not part of a log


def test_no_one_looks_into_what_is_kept(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "d", directories.clean())
    inside = directory / "t-0"
    log = f"{C}.log"
    apply(
        plan_of(
            inside,
            {log: None, f"{C}.index": None, f"{C}.timeindex": None, f"{C}.txnindex": None, f"{END}.snapshot": None},
        ),
        "1",
    )
    apply(plan_of(directory, {".kafka_cleanshutdown": None}), "1")
    found = [item for item in discover([str(tmp_path)]) if isinstance(item, Partition)]
    assert [(partition.path, [segment.log.base_offset for segment in partition.segments]) for partition in found] == [
        (str(inside), [0, 10])
    ]
    for path in (directory, inside, tmp_path):
        assert not codes(path) & {"file/unknown", "file/directory", "file/name", "undo/unfinished"}


def test_times_of_old_files_stay_where_they_are_kept(tmp_path: Path) -> None:
    directory, before = applied("truncate", tmp_path)
    for path in (directory / ".kdump-undo" / "1" / "old").iterdir():
        status = path.stat()
        assert (path.read_bytes(), status.st_mtime_ns, stat.S_IMODE(status.st_mode)) == before[path.name]


def test_a_plan_may_empty_a_log(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    before = tree(directory)
    apply(plan_of(directory, {f"{C}.log": FileContent(data=b""), f"{B}.log": recovery_plans.up_to(f"{B}.log", 0)}), "1")
    assert (directory / f"{C}.log").stat().st_size == (directory / f"{B}.log").stat().st_size == 0
    undo(str(directory))
    assert tree(directory) == before
