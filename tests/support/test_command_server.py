"""A run from the server is a run of the program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_server import CommandServer

PROGRAM = str(Path(sys.executable).with_name("kdump"))
LOG = next((Path(__file__).resolve().parents[2] / "fixtures/codecs/none-0").glob("*.log"))
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "KDUMP_TEST": "1"}


@pytest.fixture
def server() -> Iterator[CommandServer]:
    server = CommandServer(PROGRAM, ENVIRONMENT)
    yield server
    server.close()


def test_a_run_is_that_of_the_program(server: CommandServer, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(b"x" * 100)
    for arguments, stdin in (
        (["verify", "."], b""),
        (["dump", "--format", "text", "-"], LOG.read_bytes()),
        (["dump", "--no-such-option"], b""),
    ):
        wanted = subprocess.run(
            [PROGRAM, *arguments], cwd=tmp_path, env=ENVIRONMENT, input=stdin, capture_output=True, check=False
        )
        ran = server.capture(arguments, tmp_path, ENVIRONMENT, stdin, 60)
        assert ran == (wanted.returncode, wanted.stdout, wanted.stderr)


def test_a_run_that_takes_too_long_is_ended(server: CommandServer, tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(LOG.read_bytes())
    with pytest.raises(subprocess.TimeoutExpired):
        server.capture(["dump", "--follow", log.name], tmp_path, ENVIRONMENT, b"", 0.3)
    assert server.capture(["verify", "-q", log.name], tmp_path, ENVIRONMENT, b"", 60)[0] == 0


@pytest.mark.parametrize(("name", "taken"), [("COLUMNS", True), ("LC_ALL", False), ("PYTHONUNBUFFERED", False)])
def test_what_an_interpreter_reads_at_its_start_needs_one(server: CommandServer, name: str, taken: bool) -> None:
    assert server.takes(ENVIRONMENT | {name: "80"}) is taken
