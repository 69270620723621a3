"""The manual as an operator has it: installed with the package, with commands that can be copied out of a page."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kdump.cli import COMMANDS as NAMES
from support import manual, manual_text

ROOT = manual.PAGES.parent
STUB = """#!{python} -IS
import json, os, sys
if not sys.stdin.isatty():
    sys.stdin.read()
with open({calls!r}, "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
fields = {{"type": "record", "value": "v", "path": "p", "lost": {{"committed": True}}, "findings": {{"by_code": {{}}}}}}
print(json.dumps(fields))
"""
COMMANDS = [
    *((page, command) for page in ("kdump", *NAMES) for command in manual_text.examples(page)),
    *(("recover", command) for command in manual_text.runbook()),
]


def shown(page: str, how: str) -> str:
    """A page as a reader sees it."""
    name = manual.PAGES / ("kdump.1" if page == "kdump" else f"kdump-{page}.1")
    done = subprocess.run(
        ["mandoc", how, "-Owidth=78", name], capture_output=True, text=True, encoding="utf-8", timeout=60, check=True
    )
    return re.sub(r".\x08", "", done.stdout)


def blocks(text: str) -> list[str]:
    """What stands apart on a page, with its line breaks: commands are indented further than prose."""
    return [re.sub(r"(?m)^ +", "", block) for block in re.findall(r"\n\n((?: {7,}.*\n)+)", text)]


def words_of_kdump(command: str) -> list[list[str]]:
    """The arguments of each call of kdump in a command."""
    parts = [shlex.split(part, comments=False) for part in re.split(r" \| (?=kdump|jq|tee|tail)|; ", command)]
    return [part[1 : part.index(">") if ">" in part else None] for part in parts if part[0] == "kdump"]


def copies_of(commands: Sequence[str], copied: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Each command with each text that a rendering of the page shows for it."""
    for command in commands:
        texts = [next((one for one in seen if f"{command} " in f"{' '.join(one.split())} "), None) for seen in copied]
        assert None not in texts, command
        yield from ((command, text) for text in dict.fromkeys(texts) if text is not None)


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
@pytest.mark.parametrize("page", sorted({page for page, _ in COMMANDS}))
def test_every_example_runs_as_it_is_copied(tmp_path: Path, page: str) -> None:
    """Out of the page in ASCII and in UTF-8; what is the same in both runs once."""
    calls = tmp_path / "calls"
    stubs = tmp_path / "bin"
    stubs.mkdir()
    for name in ("kdump", "zcat", *(() if shutil.which("jq") else ("jq",))):
        (stubs / name).write_text(
            STUB.format(python=sys.executable, calls=str(calls if name == "kdump" else stubs / "x"))
        )
        (stubs / name).chmod(0o755)
    copied = [blocks(shown(page, how)) for how in ("-Tascii", "-Tutf8")]
    commands = [command for of, command in COMMANDS if of == page and not command.startswith("rm ")]
    for command, found in copies_of(commands, copied):
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            ["sh", "-ec", found],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{stubs}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), found
        called = [json.loads(line) for line in calls.read_text().splitlines()]
        assert all(words in called for words in words_of_kdump(command)), found


def test_the_pages_are_installed_with_the_package(tmp_path: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        files = tomllib.load(file)["tool"]["setuptools"]["data-files"]
    assert {
        folder: sorted(path.name for one in globs for path in ROOT.glob(one)) for folder, globs in files.items()
    } == {
        f"share/man/man{section}": sorted(name for name in manual.pages() if name.endswith(section))
        for section in "137"
    }
