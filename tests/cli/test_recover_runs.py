"""`kdump recover` on real directories, from the look at a plan to the way back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import snapshot
from support import build, directories
from support.command_runs import lines, locked_by_another
from support.directories import Files, changed, clean, content, stem, write

A, B, C = (stem(offset) for offset in (0, 10, 20))
BATCH_BYTES = 1573


def flipped(name: str, at: int) -> Files:
    return directories.flipped(clean(), name, at)


DAMAGED = {
    "a batch in the last segment": (lambda: flipped(f"t-0/{C}.log", 4000), 4),
    "a torn tail": (lambda: changed(clean(), {f"t-0/{C}.log": content(clean(), f"t-0/{C}.log")[:-30]}), 0),
    "zeros after the end": (
        lambda: changed(clean(), {f"t-0/{C}.log": content(clean(), f"t-0/{C}.log") + bytes(99)}),
        0,
    ),
    "an index": (lambda: changed(clean(), {f"t-0/{C}.index": b"\0\0\1"}), 0),
    "leader epochs that cannot be read": (lambda: changed(clean(), {"t-0/leader-epoch-checkpoint": b"nonsense"}), 0),
    "left-overs": (lambda: changed(clean(), {f"t-0/{C}.log.deleted": b"x", f"t-0/{stem(7)}.index": b""}), 0),
}


def tree(root: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Names, modes, modification times and bytes; directories change their time with every rename."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        found[str(path.relative_to(root))] = (
            status.st_mode,
            0 if path.is_dir() else status.st_mtime_ns,
            None if path.is_dir() else path.read_bytes(),
        )
    return found


@pytest.mark.parametrize("name", DAMAGED)
def test_a_plan_changes_nothing(kdump: Any, tmp_path: Path, name: str) -> None:
    make, _ = DAMAGED[name]
    write(tmp_path / "d", make())
    for given in ([], ["--truncate", "--dry-run"], ["--salvage", "--dry-run"], ["--from", "all", "--rebuild", "all"]):
        ran = kdump.inside("recover", "--format", "json", *given, "d")
        assert ran.err == b""
        assert ran.status == 1
        assert lines(ran)[-1]["actions"]


@pytest.mark.parametrize("name", DAMAGED)
def test_there_and_back(changing: Any, tmp_path: Path, name: str) -> None:
    make, status = DAMAGED[name]
    write(tmp_path / "d", make())
    before = tree(tmp_path / "d")
    planned = lines(changing.inside("recover", "--format", "json", "d"))
    ran = changing.inside("recover", "--truncate", "--format", "json", "d")
    assert (ran.status, ran.err) == (status, b"")
    reported = lines(ran)
    of_files = [line for line in reported if line["type"] == "action"]
    assert of_files == [line for line in planned if line["type"] == "action"]
    assert reported[-1]["left"]["by_severity"]["error"] == 0
    assert changing.inside("verify", "d").status == 0
    again = changing.inside("recover", "--truncate", "d")
    assert (again.status, again.text) == (0, "1 partition: nothing to do\n")
    back = changing.inside("recover", "--undo", "d")
    assert (back.status, back.err) == (0, b"")
    assert tree(tmp_path / "d") == before


def test_clean_is_left_alone(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", clean())
    for strategy in ("--truncate", "--salvage", "--reindex"):
        ran = kdump.inside("recover", strategy, "d")
        assert (ran.status, ran.text, ran.err) == (0, "1 partition: nothing to do\n", b"")


def test_what_is_lost_stands_in_the_report(kdump: Any, tmp_path: Path) -> None:
    files = flipped(f"t-0/{C}.log", 4000)
    high_watermark = build.checkpoint("t 0 28")
    write(tmp_path / "d", changed(files, {"replication-offset-checkpoint": high_watermark}))
    whole = next(
        line for line in lines(kdump.inside("recover", "--format", "json", "d")) if line["type"] == "partition"
    )
    lost = whole["lost"]
    given_up = lost["given_up"]
    assert (given_up["batches"], given_up["records"], given_up["offsets"]) == (7, 7, [[23, 29]])
    assert lost["damaged"]["offsets"] == [[22, 22]]
    assert lost["damaged"]["exact"]
    assert (lost["committed"], whole["high_watermark"], whole["log_end_offset"]) == (True, 28, 22)
    text = kdump.inside("recover", "d").text
    assert (
        "d/t-0: committed: COMMITTED offsets 22..27, next 28, would be missing here (the high watermark is 28)" in text
    )
    assert text.splitlines()[-1].endswith("; if none has: kdump recover --salvage d")


def test_salvage_keeps_what_lies_after(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", flipped(f"t-0/{C}.log", 4000))
    ran = changing.inside("recover", "--salvage", "--format", "json", "d")
    assert (ran.status, ran.err) == (0, b"")
    assert lines(ran)[-1]["lost"]["given_up"]["batches"] == 0
    assert (tmp_path / f"d/t-0/{C}.log").stat().st_size == len(content(clean(), f"t-0/{C}.log")) - BATCH_BYTES
    assert lines(ran)[-1]["log_end_offset"] == 30


def test_damage_in_an_older_segment(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", flipped(f"t-0/{A}.log", 4000))
    ran = changing.inside("recover", "d")
    assert ran.status == 1
    assert any("not covered: error batch/crc" in line for line in ran.lines)
    assert ran.lines[-2:] == [
        "1 partition: nothing to do; not covered: 1 error",
        "next: kdump recover --salvage d",
    ]
    assert changing.inside("recover", "--truncate", "d").status == 1
    whole = changing.inside("recover", "--truncate", "--from", "all", "--format", "json", "d")
    assert whole.status == 4
    assert lines(whole)[-1]["log_end_offset"] == 2


def test_a_copy(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", flipped(f"t-0/{C}.log", 4000))
    before = snapshot([tmp_path / "d"])
    ran = changing.inside("recover", "--truncate", "--output", "copy", "d/t-0")
    assert ran.status == 4
    assert ran.lines[-2].endswith("; the copy is in copy")
    assert ran.lines[-1] == "next: put the copy in place of the original"
    assert snapshot([tmp_path / "d"]) == before
    assert os.listdir(tmp_path / "copy") == ["t-0"]
    assert changing.inside("verify", "copy").status == 0
    again = changing.inside("recover", "--truncate", "--output", "copy", "d/t-0")
    assert again.status == 3
    assert again.problems == "kdump: copy: already exists\n"


def test_a_plan_that_was_saved(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", flipped(f"t-0/{C}.log", 4000))
    (tmp_path / "plan").write_bytes(changing("recover", "--format", "json", "--jobs", "2", "d").out)
    with (tmp_path / f"d/t-0/{A}.index").open("ab"):
        pass  # opened, and not changed
    assert changing.inside("recover", "--plan", "plan", "--dry-run").status == 1
    os.utime(tmp_path / f"d/t-0/{A}.index")
    ran = changing.inside("recover", "--plan", "plan")
    assert ran.status == 3
    assert ran.problems == f"kdump: d/t-0: {A}.index has changed since plan was made: make the plan again\n"
    (tmp_path / "plan").write_bytes(changing("recover", "--format", "json", "d").out)
    assert changing.inside("recover", "--plan", "plan").status == 4
    assert changing.inside("recover", "d").status == 0


def test_a_running_broker_keeps_its_log_directory(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", changed(flipped(f"t-0/{C}.log", 4000), {".lock": b""}))
    before = tree(tmp_path / "d")
    with locked_by_another(tmp_path / "d/.lock"):
        for given in (["--truncate", "d"], ["--truncate", "d/t-0"], ["--salvage", f"d/t-0/{C}.log"]):
            ran = changing.inside("recover", *given)
            assert ran.status == 3
            assert "another process holds the lock" in ran.problems
        for given in (["d"], ["--truncate", "--dry-run", "d/t-0"]):
            ran = changing.inside("recover", *given)
            assert ran.status == 1
            assert "d/t-0: running: another process, probably a broker, holds the lock" in ran.out.decode()
            assert "a broker is probably running" in ran.lines[-2]
    assert tree(tmp_path / "d") == before


@pytest.mark.parametrize("name", ["text", "json", "terminal"])
def test_names_that_make_a_terminal_act(changing: Any, tmp_path: Path, name: str) -> None:
    odd = "od\x1b[31md\n\u202e-0"
    files = {path.replace("t-0/", f"{odd}/"): data for path, data in flipped(f"t-0/{C}.log", 4000).items()}
    write(tmp_path / "d", files)
    (tmp_path / "d" / odd / "x\x1b[0m\n.txt").touch()
    for given in ([], ["--truncate"], ["--undo"]):
        ran = changing.inside("recover", "--format", name, "--color", "never", *given, "d")
        assert ran.out
        assert all(line.isprintable() for line in ran.lines)
        assert all(line.isprintable() for line in ran.problems.splitlines())


def test_many_partitions(changing: Any, tmp_path: Path) -> None:
    sound, odd = clean(), flipped(f"t-0/{C}.log", 4000)
    files = {name: data for name, data in sound.items() if "/" not in name}
    for number in range(20):
        of = odd if number % 2 else sound
        files |= {name.replace("t-0/", f"t-{number}/"): data for name, data in of.items() if name.startswith("t-0/")}
    write(tmp_path / "d", files)
    shutil.copytree(tmp_path / "d", tmp_path / "e")
    one = changing("recover", "--truncate", "--format", "json", "--jobs", "1", "d")
    two = changing("recover", "--truncate", "--format", "json", "--jobs", "2", "e")
    assert one.status == two.status == 4
    assert [line["path"][2:] for line in lines(one) if line["type"] == "action"] == [
        line["path"][2:] for line in lines(two) if line["type"] == "action"
    ]
    totals = lines(one)[-1]
    assert (totals["partitions"], totals["failed"], totals["actions"]["truncate"]) == (20, 0, 10)
    assert totals["lost"]["given_up"]["records"] == 70


def test_a_link_does_not_lead_around_a_running_broker(changing: Any, tmp_path: Path) -> None:
    """Nor does a directory above, for the way back."""
    write(tmp_path / "a" / "d", changed(flipped(f"t-0/{C}.log", 4000), {".lock": b""}))
    (tmp_path / "link-0").symlink_to(tmp_path / "a" / "d" / "t-0")
    assert changing.inside("recover", "--truncate", "a/d").status == 4
    before = tree(tmp_path / "a")
    with locked_by_another(tmp_path / "a/d/.lock"):
        for given in (
            ["--truncate", "link-0"],
            ["--truncate", f"link-0/{C}.log"],
            ["--undo", "link-0"],
            ["--undo", "a"],
            ["--undo", "a/d/t-0"],
        ):
            ran = changing.inside("recover", *given)
            assert ran.status == 3, given
            assert "another process holds the lock" in ran.problems
    assert tree(tmp_path / "a") == before
    assert changing.inside("recover", "--undo", "link-0").status == 0


def test_no_keep_says_that_there_is_no_way_back(changing: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", flipped(f"t-0/{C}.log", 4000))
    ran = changing.inside("recover", "--truncate", "--no-keep", "d")
    assert ran.status == 4
    assert ran.problems == "kdump: --no-keep: nothing that is removed is kept, so there is no way back\n"
    assert "--undo" not in ran.text
    assert not list((tmp_path / "d").rglob(".kdump-undo*"))


@pytest.mark.parametrize(("answer", "given", "status"), [("n", [], 3), ("y", [], 4), (None, ["--yes"], 4)])
def test_no_keep_asks_on_a_terminal(tmp_path: Path, answer: str | None, given: list[str], status: int) -> None:
    write(tmp_path / "d", flipped(f"t-0/{C}.log", 4000))
    before = tree(tmp_path / "d")
    leader, follower = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "kdump", "recover", "--truncate", "--no-keep", *given, "--no-progress", "d"],
        cwd=tmp_path,
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=follower,
    ) as running:
        os.close(follower)
        if answer is not None:
            os.write(leader, f"{answer}\n".encode())
        output, _ = running.communicate(timeout=60)
    said = os.read(leader, 10000).decode()
    os.close(leader)
    assert running.returncode == status
    assert "no way back" in said
    assert ("Go on?" in said) == (answer is not None)
    assert (tree(tmp_path / "d") == before) == (status == 3)
    assert b"--undo" not in output


def test_a_resumed_run_has_its_status(changing: Any, tmp_path: Path) -> None:
    """Killed before it began with any partition. It says what the run would have said."""
    files = flipped(f"t-0/{C}.log", 4000) | {"orders/x": b""}
    write(tmp_path / "d", files)
    whole = changing.inside("recover", "--truncate", "d")
    assert whole.status == 4
    shutil.rmtree(tmp_path / "d")
    write(tmp_path / "d", files)
    script = (
        "import os, sys; from kdump.recover import apply; apply.in_place = lambda *_, **__: os._exit(9);"
        "import runpy; sys.argv = ['kdump', 'recover', '--truncate', 'd'];"
        "runpy.run_module('kdump', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 9, done.stderr
    assert "--resume" in changing.inside("recover", "--truncate", "d").problems
    part = changing.inside("recover", "--resume", "d/t-0")
    assert (part.status, f"--resume {tmp_path / 'd'} " in part.problems) == (3, True)
    ran = changing.inside("recover", "--resume", "d")
    assert ran.status == 4
    assert said(ran.lines) == said(whole.lines)
    assert any("given up: " in line for line in ran.lines)
    assert changing.inside("recover", "--undo", "d").status == 0


def said(lines: list[str]) -> list[str]:
    """Without what names the run, and what a resume adds."""
    return [line for line in lines if ": undo: " not in line and ": finished: run " not in line]


def test_an_undo_that_is_refused_names_the_command_for_the_rest(changing: Any, tmp_path: Path) -> None:
    files = flipped(f"t-0/{C}.log", 4000)
    files |= {name.replace("t-0/", "t-1/"): data for name, data in files.items() if name.startswith("t-0/")}
    write(tmp_path / "d", files)
    assert changing.inside("recover", "--truncate", "d").status == 4
    with (tmp_path / f"d/t-0/{C}.log").open("ab") as log:
        log.write(b"since")
    before = tree(tmp_path / "d")
    ran = changing.inside("recover", "--undo", "d")
    assert ran.status == 3
    *_, last = ran.problems.splitlines()
    assert last.startswith("kdump: nothing was changed; to undo the rest: kdump recover --undo --run ")
    assert last.endswith(" -- d/t-1")
    assert tree(tmp_path / "d") == before
    assert changing.inside(*last.partition("rest: ")[2].split()[1:]).status == 0


@pytest.mark.parametrize("point", [0, 25], ids=["no line changes", "the recovery point goes down"])
@pytest.mark.parametrize("named", ["d/t-0", "d"])
def test_an_undo_of_the_only_partition_ends_the_run(changing: Any, tmp_path: Path, named: str, point: int) -> None:
    """Also at the root of its log directory, where the plan of the whole run lies."""
    files = flipped(f"t-0/{C}.log", 4000) | {"recovery-point-offset-checkpoint": b"0\n1\nt 0 %d\n" % point}
    write(tmp_path / "d", files)
    before = tree(tmp_path / "d")
    assert changing.inside("recover", "--truncate", named).status in (0, 4)
    assert changing.inside("recover", "--undo", "d/t-0").status == 0
    after = tree(tmp_path / "d")
    assert {name: (mode, data) for name, (mode, _, data) in after.items() if "kdump-undo" not in name} == {
        name: (mode, data) for name, (mode, _, data) in before.items()
    }
    again = changing.inside("recover", "--truncate", "d")
    assert "--resume" not in again.problems
    assert again.status in (0, 4)


def test_an_undo_of_the_only_partition_keeps_what_was_moved_at_the_root(changing: Any, tmp_path: Path) -> None:
    files = flipped(f"t-0/{C}.log", 4000) | {"recovery-point-offset-checkpoint": b"nonsense"}
    write(tmp_path / "d", files)
    before = tree(tmp_path / "d")
    assert changing.inside("recover", "--truncate", "d").status in (0, 1, 4)
    assert not (tmp_path / "d/recovery-point-offset-checkpoint").exists()
    assert changing.inside("recover", "--undo", "d/t-0").status == 0
    assert changing.inside("recover", "--undo", "d").status == 0
    assert tree(tmp_path / "d") == before
