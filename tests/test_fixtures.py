"""The tables in `fixtures/README.md` say what is there, and every file of a broker was dumped by Kafka's own tool."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
CASES = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))
RUNS = sorted(FIXTURES.glob("runs-*"))
ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \| `([0-9a-f]{64})` \|$", re.MULTILINE)
LIMIT_BYTES = 12 << 20
RUNS_LIMIT_BYTES = 300 << 10
DUMPED = {".log": "shallow", ".checkpoint": "shallow"} | dict.fromkeys(
    (".index", ".timeindex", ".txnindex", ".snapshot"), "entries"
)


def data_files(case: Path) -> list[Path]:
    """What a broker wrote: every file of a case but the dump tool's outputs and the case's own description."""
    files = sorted(path for path in case.rglob("*") if path.is_file())
    return [path for path in files if path.relative_to(case).parts[0] not in ("expected", "case.toml")]


def test_the_table_lists_every_log_and_archive_with_its_checksum() -> None:
    rows = ROW.findall((FIXTURES / "README.md").read_text(encoding="utf-8"))
    listed = {name: (int(size), checksum) for name, size, checksum in rows}
    assert len(listed) == len(rows)
    present = {}
    for case in CASES:
        for path in data_files(case):
            if path.suffix in (".log", ".checkpoint", ".kafka"):
                content = path.read_bytes()
                checksum = hashlib.sha256(content).hexdigest()
                present[path.relative_to(FIXTURES).as_posix()] = (len(content), checksum)
    for path in (path for folder in RUNS for path in folder.iterdir()):
        content = path.read_bytes()
        present[path.relative_to(FIXTURES).as_posix()] = (len(content), hashlib.sha256(content).hexdigest())
    assert present == listed
    assert len(present) > 50


def test_the_table_describes_every_case() -> None:
    text = (FIXTURES / "README.md").read_text(encoding="utf-8")
    folders = sorted(path for path in FIXTURES.iterdir() if path.is_dir() and path.name != "make")
    assert folders == sorted([*CASES, *RUNS])
    for case in CASES:
        reported = tomllib.loads((case / "case.toml").read_text(encoding="utf-8"))
        assert f"| `{case.name}` | {reported['broker']} | {reported['made']} |" in text


def test_the_fixtures_stay_small() -> None:
    total = sum(path.stat().st_size for case in CASES for path in case.rglob("*") if path.is_file())
    assert total < LIMIT_BYTES
    assert sum(path.stat().st_size for folder in RUNS for path in folder.iterdir()) < RUNS_LIMIT_BYTES


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_every_file_was_dumped(case: Path) -> None:
    expected = case / "expected"
    dumped = {path: DUMPED[path.suffix] for path in data_files(case) if path.suffix in DUMPED}
    assert dumped
    for path, variant in dumped.items():
        output = expected / f"{path.relative_to(case)}.{variant}.txt"
        assert output.read_bytes().startswith(b"Dumping " + path.name.encode() + b"\n")
    # no output without its file, no failure without its output
    for output in expected.rglob("*.txt"):
        name = re.sub(r"\.[a-z]+(\.err)?\.txt$", "", str(output.relative_to(expected)))
        assert (case / name).is_file()
    status = expected / "status.json"
    for name, failure in json.loads(status.read_bytes()).items() if status.exists() else ():
        assert (expected / name).is_file()
        assert failure["status"] != 0
        assert failure["stderr"]
