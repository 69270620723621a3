"""A bug that one partition meets: it is reported for that partition, all others are done, and the status is 70."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kdump.broker import predict
from kdump.storage.partition import LogFile
from kdump.storage.source import Source
from kdump.verify.partition import PartitionVerifier
from support import build
from support.command_runs import Ran, lines, run_inside

PARTITIONS = ("first-0", "bad-0", "last-0")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    for name in PARTITIONS:
        (directory / name).mkdir(parents=True)
        value = name.encode()
        whole = build.batch([build.record(None, value)] * 3)
        torn = build.batch([build.record(None, value)], base_offset=3)[:-3]
        (directory / name / f"{0:020d}.log").write_bytes(whole + torn)
    (directory / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return directory


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing expects what the log of bad-0 does when it is opened."""
    right = LogFile.open

    def opened(self: LogFile) -> Source:
        if "bad-0" in self.path:
            raise KeyError("a bug")
        return right(self)

    monkeypatch.setattr(LogFile, "open", opened)


def check(ran: Ran) -> None:
    assert ran.status == 70, ran.problems
    assert "Traceback" in ran.problems
    named = [line for line in ran.problems.splitlines() if "this is a bug in kdump, an unexpected KeyError" in line]
    assert named
    assert all("bad-0" in line for line in named)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("verify", "--format", "json", "-v", "--jobs", jobs) for jobs in "12"),
        *(("stat", "--format", "json", "--by", "partition", "--jobs", jobs) for jobs in "12"),
        ("stat", "--format", "json", "--by", "partition", "--deep", "--jobs", "2"),
        ("dump", "--format", "json", "--records"),
        ("dump", "--format", "json", "--records", "--order", "time"),
        ("dump", "--format", "json", "--records", "--isolation", "read-committed"),
        ("dump", "--format", "json", "--records", "--last", "1"),
        *(("recover", "--format", "json", "--jobs", jobs) for jobs in "12"),
        ("recover", "--format", "json", "--salvage", "--dry-run"),
        *(("convert", "--to", "ndjson", "-o", "-", "--jobs", jobs) for jobs in "12"),
        ("convert", "--dry-run", "-o", "out", "--format", "json"),
        *(("convert", "--to", "log", "-o", "out", "--format", "json", "--jobs", jobs) for jobs in "12"),
        *(("convert", "-o", "out", "--format", "json", "--jobs", jobs) for jobs in "12"),
    ],
    ids=" ".join,
)
def test_the_others_are_done(
    logs: Path, broken: None, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("kdump.cli.execution.SMALL_BYTES", 0)
    ran = run_inside(logs.parent, *arguments, "logs")
    check(ran)
    for name in ("first", "last"):
        assert name in ran.text


@pytest.mark.parametrize("strategy", ["--truncate", "--salvage"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_others_are_repaired(
    logs: Path, broken: None, monkeypatch: pytest.MonkeyPatch, strategy: str, jobs: str
) -> None:
    monkeypatch.setattr("kdump.cli.execution.SMALL_BYTES", 0)
    before = {name: (logs / name / f"{0:020d}.log").stat().st_size for name in PARTITIONS}
    check(run_inside(logs.parent, "recover", strategy, "--jobs", jobs, "logs"))
    cut = [name for name in PARTITIONS if (logs / name / f"{0:020d}.log").stat().st_size < before[name]]
    assert cut == ["first-0", "last-0"]


def test_a_bug_while_a_plan_is_applied_takes_it_back(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdump.recover.steps import RunExecutor

    right = RunExecutor.truncate_file

    def truncated(self: RunExecutor, step: object) -> None:
        if "bad-0" in self.handle.path:
            raise KeyError("a bug")
        right(self, step)  # type: ignore[arg-type]

    monkeypatch.setattr("kdump.recover.steps._STEPS", _with("cut", truncated))
    ran = run_inside(logs.parent, "recover", "--truncate", "logs")
    check(ran)
    assert "what was done was undone" in ran.problems
    assert not (logs / "bad-0" / ".kdump-undo").exists()
    assert run_inside(logs.parent, "verify", "logs/first-0", "logs/last-0").status == 0
    monkeypatch.undo()
    monkeypatch.setattr("kdump.recover.recover.new_run", lambda: "another")
    assert run_inside(logs.parent, "recover", "--truncate", "logs").status == 0


def _with(kind: str, forward: object) -> object:
    from kdump.recover import steps

    return {**steps._STEPS, kind: (forward, steps._STEPS[kind][1])}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_bug_outside_of_the_scan(logs: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    monkeypatch.setattr("kdump.cli.execution.SMALL_BYTES", 0)
    monkeypatch.setattr("kdump.verify.verify.SMALL_BYTES", 0)
    right = PartitionVerifier.conclude

    def concluded(self: PartitionVerifier) -> object:
        if "bad-0" in self.path:
            raise KeyError("a bug")
        return right(self)

    monkeypatch.setattr(PartitionVerifier, "conclude", concluded)
    ran = run_inside(logs.parent, "verify", "--format", "json", "-v", "--jobs", jobs, "logs")
    check(ran)
    assert lines(ran)[-1]["exit_status"] == 70
    torn = [line for line in lines(ran) if line.get("code") == "tail/torn"]
    assert {Path(line["path"]).parent.name for line in torn} == set(PARTITIONS)


def test_a_segment_that_is_a_link_is_refused_alone(logs: Path) -> None:
    log = logs / "bad-0" / f"{0:020d}.log"
    shutil.move(log, logs.parent / "elsewhere.log")
    log.symlink_to(logs.parent / "elsewhere.log")
    kept = (logs.parent / "elsewhere.log").read_bytes()
    for how in (("--salvage",), ("--truncate", "--rebuild", "all"), ()):
        ran = run_inside(logs.parent, "recover", *how, "logs")
        assert ran.status == 3, ran.problems
        assert f"{log.relative_to(logs.parent)}: a symbolic link" in ran.problems
    assert (logs.parent / "elsewhere.log").read_bytes() == kept
    assert os.path.islink(log)
    assert run_inside(logs.parent, "verify", "logs/first-0", "logs/last-0").status == 0


def test_a_missing_prediction_is_of_one_partition(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = predict.predict_start

    def predicted(start: predict.DirectoryState | str) -> predict.LoadResult:
        if not isinstance(start, str):
            start.open(f"{0:020d}.log").close()
        return right(start)

    def opened(path: str) -> Source:
        if "bad-0" in path:
            raise KeyError("a bug")
        return source(path)

    source = predict.open_source
    monkeypatch.setattr(predict, "predict_start", predicted)
    monkeypatch.setattr(predict, "open_source", opened)
    check(run_inside(logs.parent, "verify", "logs"))


@pytest.mark.parametrize(
    "arguments",
    [
        *(("recover", *how) for how in ((), ("--truncate",), ("--salvage",), ("--reindex",))),
        ("convert", "--to", "log", "-o", "new"),
    ],
    ids=" ".join,
)
def test_files_of_two_logs_in_one_directory(logs: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Their offsets have nothing to do with each other: nothing is made out of both, and the others are done."""
    bad = logs / "bad-0"
    (bad / f"{0:020d}.kafka").write_bytes(build.kafka07([b"a", b"b"]) + b"torn")
    before = {path: path.read_bytes() for path in bad.iterdir()}
    ran = run_inside(tmp_path, *arguments, str(logs))
    assert ran.status == 3
    assert f"{0:020d}.kafka: of a log of Kafka 0.7, and " in ran.problems
    assert "move one of the two logs into a directory of its own" in ran.problems
    assert {path: path.read_bytes() for path in bad.iterdir()} == before
    assert "first-0" in ran.text + str(sorted(tmp_path.glob("new/*")))
