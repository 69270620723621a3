"""`kdump dump --format kafka` prints what Kafka's dump tool printed for every log among the fixtures, byte for byte."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdump.cli import run

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OPTIONS = {
    "shallow": (),
    "deep": ("--deep-iteration",),
    "data": ("--print-data-log",),
    "bare": ("--print-data-log", "--skip-record-metadata"),
}
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__share_group_state": "--share-group-state-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__remote_log_metadata": "--remote-log-metadata-decoder",
}


def printed(*arguments: str) -> tuple[bytes, str]:
    """What the command line writes to standard output and to standard error."""
    kept, err = io.BytesIO(), io.StringIO()
    out = io.TextIOWrapper(kept, encoding="ascii")  # its output is UTF-8 whatever the locale says
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        assert run(["dump", "--format", "kafka", *arguments]) in (0, 1)
        out.flush()
    return bytes(kept.getvalue()), err.getvalue()


def expected(case: Path) -> Iterator[tuple[Path, str, bytes, str | None]]:
    """File, variant, what the tool printed, and what to standard error, None where it ended with an exception."""
    reported = case / "expected" / "status.json"
    failed = json.loads(reported.read_bytes()) if reported.exists() else {}
    for output in sorted((case / "expected").rglob("*.txt")):
        name, variant, _ = output.name.rsplit(".", 2)
        if variant in (*OPTIONS, "decoded") and name.endswith((".log", ".checkpoint")):
            relative = output.relative_to(case / "expected")
            reports = output.with_name(f"{name}.{variant}.err.txt")
            said = None if relative.as_posix() in failed else reports.read_text() if reports.exists() else ""
            yield case / relative.parent / name, variant, output.read_bytes(), said


CASES = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))


@pytest.mark.daily(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_the_tool_printed(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for file, variant, output, said in expected(case):
        monkeypatch.chdir(file.parent)
        topic = file.parent.name.rpartition("-")[0] if file.suffix == ".log" else "__cluster_metadata"
        options = OPTIONS[variant] if variant in OPTIONS else (DECODERS[topic],)
        found, problems = printed(*options, file.name)
        where = f"{file.relative_to(FIXTURES)} {variant}"
        # Where the tool ended with an exception, the output here goes on.
        assert (found[: len(output)] if said is None else found) == output, where
        assert said is None or problems.replace(f"{file.parent}/", "") == said, where
        compared += 1
    assert compared
