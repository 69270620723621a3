"""What the README shows is what happens."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interop import lake_recipes
from kdump.cli import COMMANDS
from support.spark_session import need_spark

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TRANSCRIPTS = [
    re.findall(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE)
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
]
"""The commands of each block and what they print; those of a block run in one directory."""
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def ran(command: str, directory: Path) -> str:
    program, *arguments = shlex.split(command.removesuffix("; echo $?"))
    done = subprocess.run(
        [sys.executable, *(["-m", "kdump"] if program == "kdump" else []), *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=180,
        check=False,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    return f"{done.stdout}{done.returncode}\n"


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=[transcript[0][0] for transcript in TRANSCRIPTS])
def test_transcripts(transcript: list[tuple[str, str]], tmp_path: Path) -> None:
    directory, first = tmp_path, transcript[0][0]
    if "fixtures/" in first:
        (directory / "fixtures").symlink_to(ROOT / "fixtures")
    elif "transactions-0" in first:
        shutil.copytree(ROOT / "fixtures/transactions/transactions-0", directory / "transactions-0")
        log = directory / "transactions-0/00000000000000000000.log"
        data = bytearray(log.read_bytes())
        data[2000] ^= 1
        log.write_bytes(bytes(data))
    else:
        data = bytearray((ROOT / "fixtures/transactions/transactions-0/00000000000000000000.log").read_bytes())
        data[200] ^= 1
        (directory / "00000000000000000000.log").write_bytes(bytes(data) + bytes(20))
    for command, expected in transcript:
        if "import duckdb" in command:
            pytest.importorskip("duckdb")
        if "--master" in command:
            need_spark()
        lines = ran(command, directory).splitlines()
        for shown, line in zip(expected.splitlines(), lines, strict=False):
            assert line.startswith(shown.removesuffix(" …")) if shown.endswith(" …") else line == shown


def test_there_are_transcripts_of_every_command() -> None:
    commands = [command.split() for transcript in TRANSCRIPTS for command, _ in transcript]
    assert {words[1] for words in commands if words[0] == "kdump"} == {*COMMANDS}
    assert {words[0] for words in commands} == {"kdump", "python3"}


@pytest.mark.parametrize("program", [one for one in PROGRAMS if "fixtures/" in one])
def test_programs(program: str, tmp_path: Path) -> None:
    for name in re.findall(r"^import (\w+)$", program, re.MULTILINE):
        pytest.importorskip(name)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONUTF8": "1"},
    )
    assert done.stdout.count("\n") > 20


@pytest.mark.parametrize("recipe", [lake_recipes.adopt_in_delta, lake_recipes.adopt_in_iceberg])
def test_recipes_are_those_that_are_tested(recipe: Callable[..., None]) -> None:
    assert lake_recipes.recipe_text(recipe) in PROGRAMS


def test_both_commands_set_everything_up() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert "kdump verify --deep fixtures/" in commands[0]
    assert commands[1].endswith("pytest -q")
