"""Runs that an earlier version of kdump left on a disk can be finished and taken back, and its saved plans be applied.

`fixtures/make/runs.py` made the archives in `fixtures/runs-<version>/`. After an upgrade of kdump the files are still
those whose times and inodes the journals and plans have. Inodes cannot be restored, so the tests write those of the
unpacked files into the journals and plans. The tests take runs back in a plain copy too, where recover knows files by
their bytes. A plan is refused there.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from support.command_runs import run_inside

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
VERSION = "0.1.0"
RUNS = FIXTURES / f"runs-{VERSION}"
STRATEGIES = ("truncate", "salvage", "reindex")
KILLED = tuple(f"{state}-{number}" for state in ("applying", "undoing") for number in (1, 2))
NAMES = [
    *(f"{kind}-{state}" for kind in (*STRATEGIES, "root") for state in ("applied", *KILLED)),
    *(f"inside-applying-{number}" for number in (1, 2)),
]

Tree = dict[str, tuple[bytes, int]]


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RUNS / "runs.json").read_text(encoding="utf-8"))
    return found


def unpack(name: str, place: Path, *, copied: bool = False) -> Path:
    """The directory in an archive, with journals that know its files unless it is `copied`."""
    with tarfile.open(RUNS / f"{name}.tar.gz") as archive:
        archive.extractall(place, filter="data")
        members = archive.getmembers()
    inodes = {
        int(member.pax_headers["KDUMP.inode"]): (place / member.name).stat().st_ino
        for member in members
        if member.isfile()
    }
    journals = [place / member.name for member in members if member.name.endswith(".jsonl")]
    for journal in journals if not copied else ():
        journal.write_bytes(with_inodes(journal.read_bytes(), inodes))
    (target,) = {Path(member.name).parts[0] for member in members}
    return place / target


def with_inodes(journal: bytes, inodes: dict[int, int]) -> bytes:
    """A journal whose stamps (size, time, inode) have other inodes, and a checksum that fits."""
    *lines, _ = map(json.loads, journal.splitlines())
    for fields in lines:
        stamps = [*fields.get("files", {}).values(), fields.get("before"), fields.get("after")]
        for stamp in stamps:
            if stamp is not None:
                # A file that is no more has an inode that no other one has.
                stamp[2] = inodes.get(stamp[2], -stamp[2])
    data = "".join(f"{json.dumps(fields)}\n" for fields in lines).encode("ascii")
    return data + json.dumps({"type": "end", "crc32c": crc32c(data)}).encode("ascii") + b"\n"


def tree(directory: Path, *, own: bool = False) -> Tree:
    """Content and time of every file, with `own` those that recover keeps too."""
    found = {}
    for path in directory.rglob("*"):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and (own or ".kdump-undo" not in name):
            found[name] = path.read_bytes(), path.stat().st_mtime_ns
    return found


def contents(of: Tree) -> dict[str, bytes]:
    return {name: content for name, (content, _) in of.items()}


def original_of(name: str, place: Path) -> Tree:
    """What a run began with."""
    return tree(unpack(f"original-{manifest()[name]['target']}", place / "original"))


def resumed(name: str, original: Tree) -> dict[str, str]:
    """The checksums that the version that began it made of it."""
    then = {file: hashlib.sha256(content).hexdigest() for file, (content, _) in original.items()}
    then |= manifest()[name]["resumed"]
    return {file: checksum for file, checksum in then.items() if checksum is not None}


def checksums(of: Tree) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, (content, _) in of.items()}


def states(directory: Path) -> list[str]:
    return sorted(path.name.removesuffix(".jsonl").rpartition("-")[2] for path in directory.rglob("*.jsonl"))


def unfinished(directory: Path) -> bool:
    """Whether verify reports a run that is neither finished nor taken back."""
    ran = run_inside(directory.parent, "verify", "--format", "json", directory.name)
    lines = [json.loads(line) for line in ran.text.splitlines()]
    return any(line.get("code") == "undo/unfinished" for line in lines)


def take_back(directory: Path) -> None:
    ran = run_inside(directory.parent, "recover", "--undo", directory.name)
    assert ran.status == 0, ran.problems
    assert not list(directory.rglob(".kdump-undo*"))


def test_every_state_is_there() -> None:
    """Of each kind of run: finished, killed twice on the way there, and twice on the way back."""
    archives = {path.name.removesuffix(".tar.gz") for path in RUNS.glob("*.tar.gz")}
    assert archives == {*NAMES, "original-transfers-0", "original-d"}
    assert {path.stem for path in RUNS.glob("*.plan")} == {*STRATEGIES}
    assert [*manifest()] == NAMES
    for name, run in manifest().items():
        assert run["state"] == name.split("-")[1]


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_taken_back(name: str, tmp_path: Path) -> None:
    original = original_of(name, tmp_path)
    directory = unpack(name, tmp_path / "run")
    state = manifest()[name]["state"]
    assert state in states(directory)
    assert tree(directory) != original
    assert unfinished(directory) == (state != "applied")
    take_back(directory)
    assert tree(directory, own=True) == original


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_taken_back_in_a_copy(name: str, tmp_path: Path) -> None:
    original = original_of(name, tmp_path)
    directory = unpack(name, tmp_path / "run", copied=True)
    take_back(directory)
    now = tree(directory, own=True)
    assert contents(now) == contents(original)
    # Where a run wrote the bytes that were there before, an undo cannot tell the two files apart.
    assert {file for file in now if now[file] != original[file]} <= {*manifest()[name]["times"]}


@pytest.mark.daily(4)
@pytest.mark.parametrize("copied", [False, True], ids=["in place", "copied"])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("applied")])
def test_a_run_is_resumed(name: str, copied: bool, tmp_path: Path) -> None:
    original = original_of(name, tmp_path)
    directory = unpack(name, tmp_path / "run", copied=copied)
    ran = run_inside(directory.parent, "recover", "--resume", directory.name)
    assert ran.status in (0, 1), ran.problems  # 1: a verify afterwards finds what a recovery leaves
    assert checksums(tree(directory)) == resumed(name, original)
    assert {*states(directory)} <= {"applied"}
    if states(directory) and not copied:
        take_back(directory)
        assert tree(directory, own=True) == original


@pytest.mark.parametrize("kind", [*STRATEGIES, "root"])
def test_there_is_nothing_to_resume_of_an_applied_run(kind: str, tmp_path: Path) -> None:
    directory = unpack(f"{kind}-applied", tmp_path)
    before = tree(directory, own=True)
    ran = run_inside(tmp_path, "recover", "--resume", directory.name)
    assert ran.status == 3
    assert tree(directory, own=True) == before
    assert checksums(tree(directory)) == resumed(f"{kind}-applied", original_of(f"{kind}-applied", tmp_path))


def plan_for(strategy: str, directory: Path) -> str:
    """A saved plan with the inodes of the files in a directory."""
    lines = []
    for line in (RUNS / f"{strategy}.plan").read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        for file in fields.get("files", ()):
            file["inode"] = (directory / file["name"]).stat().st_ino
        lines.append(json.dumps(fields))
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_saved_plan_is_applied(strategy: str, tmp_path: Path) -> None:
    """Or refused with a sentence that names the version that saved it."""
    directory = unpack("original-transfers-0", tmp_path)
    original = tree(directory, own=True)
    (tmp_path / "plan").write_text(plan_for(strategy, directory), encoding="utf-8")
    ran = run_inside(tmp_path, "recover", "--plan", "plan", "--format", "json")
    if ran.status == 3:
        assert VERSION in ran.problems
        assert tree(directory, own=True) == original
        return
    assert ran.status in (0, 1, 4), ran.problems
    assert checksums(tree(directory)) == resumed(f"{strategy}-applied", original)
    take_back(directory)
    assert tree(directory, own=True) == original


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_saved_plan_is_not_for_a_copy(strategy: str, tmp_path: Path) -> None:
    """There no file is the one that the plan was made for."""
    directory = unpack("original-transfers-0", tmp_path)
    original = tree(directory, own=True)
    ran = run_inside(tmp_path, "recover", "--plan", str(RUNS / f"{strategy}.plan"))
    assert ran.status == 3
    assert "Traceback" not in ran.problems
    assert tree(directory, own=True) == original
