"""What README.md and the READMEs of kdump/ and tests/ show is what happens, and what they name is there."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kdump.cli import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
READMES = {
    name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "kdump/README.md", "tests/README.md")
}
LINES = 152
TRANSCRIPTS = [
    re.findall(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE)
    for text in READMES.values()
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
]
"""The commands of each block and what they print; those of a block run in one directory."""
PROGRAMS = [program for text in READMES.values() for program in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


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
    if command.endswith("; echo $?"):
        return f"{done.stdout}{done.returncode}\n"
    assert done.returncode == 0 or program == "kdump", done.stderr
    return done.stdout


def pattern(shown: str) -> str:
    """What fits the lines that are shown: … in a line stands for the rest or a part of it, alone for any lines."""
    lines = []
    for line in shown.splitlines():
        end = ".*\n" if line.endswith(" …") else "\n"
        words = re.escape(line.removesuffix(" …")).replace("…", ".*?")
        lines.append("(?:.*\n)*?" if line == "…" else words + end)
    return "".join(lines)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=[transcript[0][0] for transcript in TRANSCRIPTS])
def test_transcripts(transcript: list[tuple[str, str]], tmp_path: Path) -> None:
    directory = tmp_path
    (directory / "fixtures").symlink_to(ROOT / "fixtures")
    shutil.copytree(ROOT / "fixtures/transactions/transactions-0", directory / "transactions-0")
    log = directory / "transactions-0/00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[2000] ^= 1
    log.write_bytes(bytes(data))
    for command, expected in transcript:
        if "import duckdb" in command:
            pytest.importorskip("duckdb")
        printed = ran(command, directory).rstrip("\n") + "\n"
        assert re.fullmatch(pattern(expected), printed), printed


def test_a_pattern_fits_what_is_shown_alone() -> None:
    assert re.fullmatch(pattern("a …\n…\nd\n"), "a b\nc\nd\n")
    assert not re.fullmatch(pattern("a …\n…\nd\n"), "a b\nc\nd\ne\n")
    assert not re.fullmatch(pattern("a …\nd\n"), "a b\nc\nd\n")


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


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert README.count("\n") <= LINES


def test_both_commands_set_everything_up() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert "kdump verify --deep fixtures/" in commands[0]
    assert commands[1].endswith("pytest -q")
    assert all("pip install '.[" in command for command in commands)  # with progress, which -q leaves out
    for command in commands[:1]:  # what the transcripts import
        assert {name for line in TRANSCRIPTS for one, _ in line for name in re.findall(r"import (\w+)", one)} == set(
            re.findall(r"\.\[(\w+)\]", command)
        )


@pytest.mark.parametrize("name", READMES)
def test_what_a_readme_names_is_there(name: str) -> None:
    text = READMES[name]
    for path in re.findall(r"`((?:kdump|tests|fixtures|man|\.ci)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    if name == "kdump/README.md":
        for room, words in re.findall(r"^- \*\*`([\w./]+)`\*\*: ((?:.*\n)(?:  .*\n)*)", text, re.MULTILINE):
            places = [place for place in (ROOT / "kdump" / room, ROOT / "kdump", ROOT / room, ROOT) if place.exists()]
            for path in re.findall(r"`([\w/]*[\w.]+/?)`", words):
                assert path == "kdump.Log" or any((place / path).exists() for place in places), (room, path)
        for path in re.findall(r"`([a-z_]+/[\w/]*[\w.]*)`", text.partition("Each room")[2]):
            assert (ROOT / "kdump" / path).exists() or (ROOT / path).exists(), path
    for word in re.findall(r"`(?:kdump|python3? -m kdump) ([a-z]+)\b", text):
        assert word in (*COMMANDS, "help", "version", "completion"), word


def test_commands_of_the_tests_readme_name_tests_that_exist() -> None:
    found = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", READMES["tests/README.md"])
    assert found
    for path, function in found:
        assert (ROOT / path).is_file(), path
        if function:
            assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")


def test_rooms_of_the_readme_are_those_of_the_package() -> None:
    listed = re.findall(r"^- \*\*`(\w+)/`\*\*: ", READMES["kdump/README.md"], re.MULTILINE)
    listed = [room for room in listed if room not in ("tests", "fixtures")]
    folders = [path.name for path in (ROOT / "kdump").iterdir() if (path / "__init__.py").exists()]
    assert sorted(listed) == sorted(folders)
    assert all(importlib.import_module(f"kdump.{room}") for room in listed if room != "spark")
