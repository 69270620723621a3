"""Plans are carried out: every file holds what the plan says, looks like the log beside it, and what was there is
kept."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from kdump.recover import planner
from kdump.recover.apply import apply
from kdump.recover.copies import output
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.step_order import steps
from kdump.recover.undo import UndoFailure, runs, undo
from kdump.storage import directory_handle as disk
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from support import directories, recovery_plans
from support.directories import NOW_MS, stem
from support.laws import QUICK, of_the_day
from support.recovery_plans import (
    CASES,
    PARTITION,
    REBUILT,
    A,
    B,
    C,
    contents,
    make,
    plan_of,
    stamps,
    tree,
    up_to,
    wanted,
)

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def prepared(case: str, place: Path) -> tuple[Path, Plan]:
    directory = recovery_plans.write(CASES[case], place)
    return directory, plan_of(directory, CASES[case].after(stamps(directory)))


def refuses(plan: Plan, *words: str) -> None:
    """The plan is not carried out, and nothing is left of the attempt."""
    directory = Path(plan.path)
    before = tree(directory, undo=True)
    with pytest.raises(KdumpError) as caught:
        apply(plan, "1", make=make)
    for word in (*words, "nothing was changed"):
        assert word in str(caught.value)
    assert tree(directory, undo=True) == before
    assert not (directory / ".kdump-undo").exists()


# ---- what comes out


@pytest.mark.parametrize("case", CASES)
def test_files_hold_what_the_plan_says(case: str, tmp_path: Path) -> None:
    directory, plan = prepared(case, tmp_path)
    before = tree(directory)
    applied = apply(plan, "1", keep=CASES[case].keep, make=make)
    assert contents(tree(directory)) == wanted(before, plan.after, dict(make(plan)))
    assert (
        (applied.undo is not None)
        == CASES[case].keep
        == any(".kdump-undo" in name for name in tree(directory, undo=True))
    )
    for name, (_, mtime_ns, mode) in tree(directory).items():
        if name in before and name.endswith(".log"):
            assert (mtime_ns, mode) == before[name][1:]


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case].root])
def test_a_copy_is_the_same_and_the_partition_stays(case: str, tmp_path: Path) -> None:
    directory, plan = prepared(case, tmp_path)
    before = tree(tmp_path)
    copy = output(plan, str(tmp_path / "out"), make=make)
    assert copy == str(tmp_path / "out" / "t-0")
    assert contents(tree(Path(copy))) == wanted(tree(directory), plan.after, dict(make(plan)))
    now = tree(tmp_path)
    assert {name: now[name] for name in before} == before
    for path in Path(copy).iterdir():
        assert path.stat().st_nlink == 1
        assert path.stat().st_mtime_ns == NOW_MS * 1_000_000
    assert sorted(os.listdir(tmp_path / "out")) == ["t-0"]


def test_a_copy_does_not_go_where_something_is(tmp_path: Path) -> None:
    _, plan = prepared("truncate", tmp_path)
    (tmp_path / "out" / "t-0").mkdir(parents=True)
    with pytest.raises(KdumpError, match="already exists"):
        output(plan, str(tmp_path / "out"), make=make)


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, plan = prepared("truncate", tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write_all", full)
    with pytest.raises(KdumpError, match="no space left on device"):
        output(plan, str(tmp_path / "out"), make=make)
    assert os.listdir(tmp_path / "out") == []


def test_a_plan_without_anything_does_nothing(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    before = tree(directory, undo=True)
    same = {f"{A}.log": up_to(f"{A}.log", len(PARTITION[f"{A}.log"] or b"")), "gone": None}
    for after in ({}, same):
        assert apply(plan_of(directory, after), "1").run is None
    assert tree(directory, undo=True) == before


def test_a_log_that_is_cut_stays_the_same_file(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)
    inode = (directory / f"{B}.log").stat().st_ino
    apply(plan, "1", make=make)
    assert (directory / f"{B}.log").stat().st_ino == inode


def test_a_linked_backup_keeps_its_bytes(tmp_path: Path) -> None:
    directory, plan = prepared("truncate, linked", tmp_path)
    backup = contents(tree(tmp_path / "backup"))
    apply(plan, "1", make=make)
    assert contents(tree(tmp_path / "backup")) == backup
    assert len((directory / f"{B}.log").read_bytes()) < len(backup[f"{B}.log"])


def test_progress_counts_every_byte_that_is_written(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)
    reported: list[int] = []
    apply(plan, "1", make=make, on_bytes=reported.append)
    undo = directory / ".kdump-undo" / "1"
    cut = (undo / "cut" / f"{B}.log").stat().st_size
    built = sum(len(data) for _, data in make(plan) if data is not None)
    assert sum(reported) == cut + built + len(b"0\n1\n0 0\n")


def test_a_piece_without_end_is_no_plan(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    refuses(
        plan_of(directory, {f"{A}.log": FileContent((Piece(f"{A}.log", 0, 1 << 40), Piece(f"{A}.log", 0, 1)))}),
        "shorter",
    )


def test_what_no_one_makes_is_an_error(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    plan = plan_of(directory, {f"{A}.index": REBUILT})
    with pytest.raises(KdumpError, match="nothing writes this file"):
        apply(plan, "1", make=lambda _: ())
    assert contents(tree(directory)) == PARTITION


# ---- how new files look


@root_only
def test_new_files_look_like_their_log(tmp_path: Path) -> None:
    directory, plan = prepared("salvage", tmp_path)
    log = directory / f"{B}.log"
    for path in (directory, *directory.iterdir()):
        os.chown(path, 1234, 4321)
    log.chmod(0o640)
    try:
        os.setxattr(log, "user.kept", b"yes")
    except OSError:
        pytest.skip("no extended attributes here")
    apply(plan_of(directory, plan.after), "1", make=make)
    for name in (f"{B}.log", f"{B}.index", f"{B}.timeindex"):
        status = (directory / name).stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 4321, 0o640)
        assert os.getxattr(directory / name, "user.kept") == b"yes"
        assert status.st_mtime_ns == NOW_MS * 1_000_000
    # Whoever may delete the topic may delete what is kept.
    for path in (directory / ".kdump-undo").rglob("*"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321), path


@root_only
def test_who_cannot_give_files_away_changes_nothing(tmp_path: Path) -> None:
    """A user who may write in the directory, but whose new files would be their own."""
    directory, plan = prepared("truncate", tmp_path)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and len(path.parts) > 2:
            path.chmod(path.stat().st_mode | 0o005)
    directory.chmod(0o777)
    for path in directory.iterdir():
        path.chmod(0o666)
    plan = plan_of(directory, plan.after)
    before = tree(directory, undo=True)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgid(1234)
            os.setuid(1234)
            apply(plan, "1", make=make)
        except KdumpError as error:
            status = 0 if "not permitted" in str(error) and "nothing was changed" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tree(directory, undo=True) == before


# ---- the directory is not what the plan saw


def shrink(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def exchange(path: Path) -> None:
    """Another file of the same bytes."""
    data, status = path.read_bytes(), path.stat()
    other = path.with_name("other")
    other.write_bytes(data)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


@pytest.mark.parametrize("name", [f"{A}.log", f"{B}.log", f"{C}.index", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("change", [shrink, touch, exchange, Path.unlink])
def test_a_file_that_changed_since(tmp_path: Path, name: str, change: Callable[[Path], None]) -> None:
    directory, plan = prepared("truncate", tmp_path)
    change(directory / name)
    refuses(plan, name, "is gone" if change is Path.unlink else "has changed")


def test_a_file_that_came_since(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)
    (directory / f"{stem(40)}.log").write_bytes(b"")
    refuses(plan, "was not there")


@pytest.mark.parametrize("name", [f"{A}.log", f"{B}.log", f"{B}.index", f"{stem(15)}.snapshot"])
@pytest.mark.parametrize("where", ["file", "nowhere", "directory"])
def test_a_symbolic_link_in_place_of_a_file(tmp_path: Path, name: str, where: str) -> None:
    """Before the plan and after it."""
    directory, plan = prepared("truncate", tmp_path)
    target = {"file": tmp_path / "elsewhere", "nowhere": tmp_path / "nothing", "directory": tmp_path}[where]
    (tmp_path / "elsewhere").write_bytes(PARTITION.get(name) or b"x")  # type: ignore[arg-type]
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(target)
    before = tree(tmp_path)
    refuses(plan, name, "a symbolic link")
    refuses(plan_of(directory, dict.fromkeys(plan.after)), "a symbolic link")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", [".kdump-undo", ".kdump-undo/1", ".kdump-undo/1/new"])
def test_a_symbolic_link_in_place_of_what_is_kept(tmp_path: Path, name: str) -> None:
    directory, plan = prepared("truncate", tmp_path)
    # As the run's own directory would look from inside.
    for path in (tmp_path / "trap", tmp_path / "trap" / "new", tmp_path / "trap" / "1" / "new"):
        path.mkdir(parents=True)
        (path / f"{B}.index").write_bytes(b"mine")
    trapped = tree(tmp_path / "trap")
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).symlink_to(tmp_path / "trap")
    with pytest.raises(KdumpError):
        apply(plan, "1", make=make)
    assert contents(tree(directory)) == PARTITION
    assert tree(tmp_path / "trap") == trapped


@pytest.mark.parametrize("name", [f"{B}.log", f"{B}.index", f"{stem(15)}.snapshot"])
def test_a_device_or_a_directory_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    directory, plan = prepared("truncate", tmp_path)
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    refuses(plan, name)
    (directory / name).unlink()
    (directory / name).mkdir()
    refuses(plan, name)


@pytest.mark.parametrize("name", ["../other-0/x.log", "", ".", "..", "a/b", ".kdump-undo", ".kdump-undo-1-old-x"])
def test_names_that_no_plan_has(tmp_path: Path, name: str) -> None:
    directory = directories.write(tmp_path / "t-0", PARTITION)
    refuses(plan_of(directory, {name: None}), "not the name of a file")


def test_names_with_control_characters_and_broken_utf8(tmp_path: Path) -> None:
    names = ["a\nb.log", "\x1b[31m.log", "\udcff\udc80.log", '"\\.log', "ü\u2028.log", "x" * 250 + ".log"]
    directory = directories.write(
        tmp_path / "t-0", {**PARTITION, **{name: name.encode("utf-8", "surrogateescape") for name in names}}
    )
    before = tree(directory)
    apply(plan_of(directory, dict.fromkeys(names)), "1")
    assert contents(tree(directory)) == PARTITION
    undo(str(directory))
    assert tree(directory) == before


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KdumpError, match="no such file"):
        apply(Plan(str(tmp_path / "t-0"), None, RecoverOptions(), after={"x": None}), "1")


@pytest.mark.parametrize("run", ["", "a/b", "..", "-x", "a\nb", "x" * 101, "a-old-b"])
def test_ids_that_are_none(tmp_path: Path, run: str) -> None:
    directory, plan = prepared("truncate", tmp_path)
    with pytest.raises(KdumpError, match="not the id of a run"):
        apply(plan, run, make=make)
    assert contents(tree(directory)) == PARTITION


def test_without_room_nothing_begins(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)
    refuses(plan_of(directory, plan.after, bytes_needed=1 << 60), str(1 << 60), "bytes are needed")


def test_two_at_once(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)
    with DirectoryHandle(str(directory)), pytest.raises(KdumpError, match="another kdump process is working here"):
        apply(plan, "1", make=make)


def test_a_file_that_changes_while_the_new_ones_are_written(tmp_path: Path) -> None:
    directory, plan = prepared("truncate", tmp_path)

    def slowly(plan: Plan):  # type: ignore[no-untyped-def]
        yield from make(plan)
        with (directory / f"{C}.log").open("ab") as log:
            log.write(b"more")

    with pytest.raises(KdumpError, match=r"has changed.*nothing was changed"):
        apply(plan, "1", make=slowly)
    assert not (directory / ".kdump-undo").exists()
    assert contents(tree(directory))[f"{B}.log"] == PARTITION[f"{B}.log"]


@pytest.mark.laws
@pytest.mark.parametrize(
    ("case", "vanishes"),
    of_the_day(
        product(
            ["truncate", "salvage"],
            [f"{A}.log", f"{B}.log", f"{B}.index", f"{C}.log", f"{C}.snapshot", "leader-epoch-checkpoint"],
        ),
        3,
        whole=not QUICK,
    ),
)
def test_a_file_that_vanishes_in_the_middle(tmp_path: Path, case: str, vanishes: str) -> None:
    """Before each step. All others are still there: in their place, kept, or as the two parts of one."""
    for at in range(1, 30):
        directory, plan = prepared(case, tmp_path / str(at))
        seen = 0

        def vanish(rename: Callable[..., None], *names: str, at: int = at, directory: Path = directory) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                (directory / vanishes).unlink(missing_ok=True)
            rename(*names)

        rename = DirectoryHandle.rename
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                DirectoryHandle, "rename", lambda *names, rename=rename, vanish=vanish: vanish(rename, *names)
            )
            try:
                apply(plan, "1", make=make)
            except KdumpError as error:
                said = str(error)
                assert (
                    "taken back" in said or "nothing was changed" in said or ("--resume" in said and "--undo" in said)
                )
        there = contents(tree(directory, undo=True))
        for name, data in PARTITION.items():
            halves = there.get(name, b"") + there.get(f".kdump-undo/1/cut/{name}", b"")
            assert name == vanishes or data in (*there.values(), halves), (at, name)
        if any(not run.finished for run in runs(str(directory))):
            with pytest.raises(UndoFailure, match=r"could not be restored; the rest was"):
                undo(str(directory), force=True)
            now, lost = contents(tree(directory)), vanishes[:20]
            assert {name: data for name, data in now.items() if name[:20] != lost} == {
                name: data for name, data in PARTITION.items() if name[:20] != lost
            }
        if seen < at:
            break
    else:
        pytest.fail("more renames than were thought of")


# ---- the order


def order(case: str, files: directories.Files | None = None) -> list[str]:
    sizes = {
        name: Stamp(len(data), 0, number)
        for number, (name, data) in enumerate((files or CASES[case].files).items())
        if isinstance(data, bytes)
    }
    after = CASES[case].after(sizes)
    return [f"{step.do} {step.to or step.name}".strip() for step in steps(after, sizes, dict.fromkeys(sizes, 1), {})]


@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case].root])
def test_an_index_goes_before_its_log_changes_and_comes_back_last(case: str) -> None:
    done = order(case)
    changes = [
        number
        for number, step in enumerate(done)
        if step.split()[0] in ("cut", "replace", "rename") and step.endswith(".log")
    ]
    for number in changes:
        index = done[number].split()[1].replace(".log", ".index")
        if f"take {index}" in done:
            assert done.index(f"take {index}") < number
            assert "sync" in done[done.index(f"take {index}") : number]
    puts = [number for number, step in enumerate(done) if step.startswith("put") and step.endswith(".index")]
    if puts:
        rest = [step for step in done[puts[0] :] if not step.endswith(".index")]
        assert rest == ["sync"]


def test_segments_go_from_the_last_to_the_first() -> None:
    logs = [step for step in order("empty") if step.endswith(".log")]
    assert logs == [f"take {C}.log", f"take {B}.log", f"take {A}.log", f"put {stem(50)}.log"]


def test_the_part_that_is_split_off_is_there_before_the_rest_is_cut() -> None:
    done = order("split")
    assert done.index(f"put {stem(25)}.log") < done.index(f"cut {C}.log")


def test_what_comes_in_does_so_log_last_and_what_keeps_it_out_goes_later() -> None:
    done = order("promote")
    assert done.index(f"take {A}.index.swap") < done.index(f"rename {A}.log") < done.index(f"take {C}.log.cleaned")


def test_only_whole_names_are_given() -> None:
    """A log of which a part goes elsewhere, and two that want the same file, are written again."""
    sizes = {"1.log": Stamp(10, 0, 1), "2.log": Stamp(10, 0, 2)}
    whole = FileContent((Piece("1.log", 0, 10),))
    both = steps({"1.log": None, "3.log": whole, "4.log": whole}, sizes, {}, {})
    assert sorted((step.do, step.name) for step in both if step.do != "sync") == [("put", "4.log"), ("rename", "1.log")]
    turned = steps({"1.log": FileContent((Piece("2.log", 0, 10),)), "2.log": whole}, sizes, {}, {})
    assert [step.do for step in turned if step.do != "sync"] == ["replace", "replace"]


def test_the_commit_is_on_the_disk(tmp_path: Path) -> None:
    """Everything that the journal speaks of has been synced when it gets its name."""
    if subprocess.run(["which", "strace"], capture_output=True, check=False).returncode:
        pytest.skip("no strace")
    directory, _ = prepared("truncate", tmp_path)
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); from support import recovery_plans; from pathlib import Path; "
        "from kdump.recover.apply import apply; d = Path(sys.argv[1]);"
        "apply(recovery_plans.plan_of(d, recovery_plans.truncated(recovery_plans.stamps(d))), '1', "
        "make=recovery_plans.make)"
    )
    log = tmp_path / "log"
    subprocess.run(
        [
            "strace",
            "-o",
            log,
            "-e",
            "trace=openat,fsync,renameat,renameat2,close,linkat,ftruncate",
            sys.executable,
            "-P",
            "-c",
            program,
            directory,
            Path(__file__).resolve().parents[1],
        ],
        check=True,
    )
    opened: dict[str, str] = {}
    written: set[str] = set()
    synced: set[str] = set()
    for line in log.read_text().splitlines():
        call, _, rest = line.partition("(")
        if call == "openat" and not line.rstrip().endswith(")"):
            # Each directory on the way is opened below the one before.
            name = os.path.join(opened.get(rest.split(",")[0], ""), rest.split('"')[1])
            opened[line.rsplit("= ", 1)[1]] = name
            if "O_CREAT" in rest and ".kdump-undo" in name:
                written.add(name)
        if call == "fsync":
            synced.add(opened.get(rest.split(")")[0], "?"))
        if call == "renameat" and "applying.jsonl" in rest and "journal.tmp" in rest:
            break
    else:
        pytest.fail("no commit was seen")
    assert len(written) > 5
    assert written <= synced
    kept = (".kdump-undo", ".kdump-undo/1", ".kdump-undo/1/new", ".kdump-undo/1/cut")
    assert {os.path.join(directory, name) for name in kept} <= synced


@pytest.mark.parametrize("sparse", [True, False])
def test_zeros_that_are_cut_are_kept_as_a_hole(tmp_path: Path, sparse: bool) -> None:
    """A preallocated tail does not need its size once more, and comes back as a hole."""
    directory = directories.write(tmp_path / "t-0", recovery_plans.PARTITION)
    log, size = directory / f"{C}.log", 48 << 20
    with log.open("ab") as file:
        file.write(b"torn")
        file.truncate(size) if sparse else file.write(bytes(size - file.tell()))
    before = tree(directory)
    (plan,) = planner.plan_recovery(discover([str(directory)]), RecoverOptions(walk="all"))
    assert isinstance(plan, Plan)
    assert plan.bytes_needed < 1 << 20
    apply(plan, "1")
    kept = (directory / ".kdump-undo" / "1" / "cut" / log.name).stat()
    assert kept.st_size > size - (1 << 20)
    assert kept.st_blocks * 512 < 1 << 20
    undo(str(directory))
    assert tree(directory) == before
    assert log.stat().st_blocks * 512 < 1 << 20
