"""What the README shows is what happens."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TRANSCRIPTS = [
    (command, expected)
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for command, expected in re.findall(r"^\$ kdump (.*?)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE)
]


def ran(command: str, directory: Path) -> str:
    command = command.removesuffix("; echo $?")
    done = subprocess.run(
        [sys.executable, "-m", "kdump", *command.split()],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return f"{done.stdout}{done.returncode}\n"


@pytest.mark.parametrize(("command", "expected"), TRANSCRIPTS, ids=[command for command, _ in TRANSCRIPTS])
def test_transcripts(command: str, expected: str, tmp_path: Path) -> None:
    directory = tmp_path
    if "fixtures/" in command:
        (directory / "fixtures").symlink_to(ROOT / "fixtures")
    elif "transactions-0" in command:
        shutil.copytree(ROOT / "fixtures/transactions/transactions-0", directory / "transactions-0")
        log = directory / "transactions-0/00000000000000000000.log"
        data = bytearray(log.read_bytes())
        data[2000] ^= 1
        log.write_bytes(bytes(data))
    else:
        data = bytearray((ROOT / "fixtures/transactions/transactions-0/00000000000000000000.log").read_bytes())
        data[200] ^= 1
        (directory / "00000000000000000000.log").write_bytes(bytes(data) + bytes(20))
    lines = ran(command, directory).splitlines()
    for shown, line in zip(expected.splitlines(), lines, strict=False):
        assert line.startswith(shown.removesuffix(" …")) if shown.endswith(" …") else line == shown


def test_there_are_transcripts_of_every_command() -> None:
    assert {command.split()[0] for command, _ in TRANSCRIPTS} == {"dump", "verify", "recover", "stat"}


def test_the_library_in_a_few_lines(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.count("\n") > 100


def test_both_commands_set_everything_up() -> None:
    commands = re.findall(r"^    (python3 -m venv .*)$", README, re.MULTILINE)
    assert len(commands) == 2
    assert "kdump verify --deep fixtures/" in commands[0]
    assert commands[1].endswith("pytest -q")
