"""`kdump dump --format kafka` prints what Kafka's dump tool printed for every log among the fixtures, byte for byte."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdump.cli import run

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
OPTIONS = {
    "shallow": (),
    "deep": ("--deep-iteration",),
    "data": ("--print-data-log",),
    "bare": ("--print-data-log", "--skip-record-metadata"),
}


def printed(*arguments: str) -> bytes:
    """What the command line writes to standard output."""
    kept = io.BytesIO()
    out = io.TextIOWrapper(kept, encoding="ascii")  # its output is UTF-8 whatever the locale says
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert run(["dump", "--format", "kafka", *arguments]) in (0, 1)
        out.flush()
    return bytes(kept.getvalue())


def expected(case: Path) -> Iterator[tuple[Path, str, bytes, bool]]:
    """File, variant, what the tool printed, and whether it came to its end."""
    told = case / "expected" / "status.json"
    failed = json.loads(told.read_bytes()) if told.exists() else {}
    for output in sorted((case / "expected").rglob("*.txt")):
        name, variant, _ = output.name.rsplit(".", 2)
        if variant in OPTIONS and name.endswith((".log", ".checkpoint")):
            relative = output.relative_to(case / "expected")
            yield case / relative.parent / name, variant, output.read_bytes(), relative.as_posix() not in failed


CASES = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_tool_printed(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for file, variant, output, ended in expected(case):
        monkeypatch.chdir(file.parent)
        found = printed(*OPTIONS[variant], file.name)
        # Where the tool ended with an exception, the output here goes on.
        assert (found if ended else found[: len(output)]) == output, f"{file.relative_to(FIXTURES)} {variant}"
        compared += 1
    assert compared
