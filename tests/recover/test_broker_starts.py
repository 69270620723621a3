"""A broker that starts between the plan of a run and its end: it is kept out, or the run refuses. Never both write.

tests/interop has a real broker; here a process takes the lock as one does.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from kdump.recover import planner, recover, run_group, saved_plans, undo
from kdump.recover.plan import Plan, RecoverOptions
from kdump.recover.steps import RunExecutor
from kdump.storage.discovery import discover
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from support.directories import NOW_MS, changed, clean, stem, write
from support.recovery_plans import contents, tree

# As FileLock of Kafka: it makes the file, and asks without waiting.
START = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("refused")
    print("started", flush=True)
    sys.stdin.read()
"""
OPTIONS = RecoverOptions(walk="all", now_ms=NOW_MS)
Start = Callable[[Path], bool]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory without .lock, as a copy may be, with a torn batch at the end of a partition."""
    files = clean()
    last = files[f"t-0/{stem(20)}.log"]
    assert isinstance(last, bytes)
    write(tmp_path / "d", changed(files, {f"t-0/{stem(20)}.log": last[:-30]}))
    assert not (tmp_path / "d" / ".lock").exists()
    return tmp_path / "d"


def starts(directory: Path) -> bool:
    """Whether a broker can start there now."""
    words = [sys.executable, "-c", START, directory / ".lock"]
    done = subprocess.run(words, input="", capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) in (("started\n", ""), ("", "refused\n"))
    return not done.returncode


def truncated(directory: Path) -> list[recover.RecoveryResult]:
    found = list(recover.recover_logs(discover([str(directory)]), OPTIONS, apply_options=recover.ApplyOptions("one")))
    return [one for one in found if isinstance(one, recover.RecoveryResult) and one.applied]


def test_a_run_keeps_it_out_of_a_log_directory_without_a_lock_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(directory, undo=True)
    tried: list[bool] = []
    for module, name in ((run_group, "begin_groups"), (run_group, "finish_groups"), (undo, "undo")):
        real = getattr(module, name)

        def wrapped(*given: object, real: Callable[..., object] = real, **named: object) -> object:
            tried.append(starts(directory))
            return real(*given, **named)

        monkeypatch.setattr(module, name, wrapped)
    assert truncated(directory)
    assert tried == [False, False]
    assert not (directory / ".lock").exists()
    recover.undo_recovery(str(directory))
    assert tried == [False, False, False]
    assert tree(directory, undo=True) == before


def test_a_log_that_is_written_keeps_it_out(directory: Path) -> None:
    with Log(directory / "t-1", write=True) as log:
        log.append([NewRecord(b"key", b"value")])
        assert not starts(directory)
    assert not (directory / ".lock").exists()


def test_what_changes_nothing_makes_no_lock_file(directory: Path) -> None:
    truncated(directory)
    before = directory.stat().st_mtime_ns
    assert not truncated(directory)
    list(planner.plan_recovery(discover([str(directory)]), OPTIONS))
    with Log(directory / "t-0") as log:
        assert list(log.records())
    assert directory.stat().st_mtime_ns == before


def test_a_broker_that_started_while_the_plan_was_made(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(directory)
    real = recover.apply_all
    words = [sys.executable, "-c", START, directory / ".lock"]

    def late(planned, *given, **named):  # type: ignore[no-untyped-def]
        made = list(planned)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
            assert broker.stdout is not None
            assert broker.stdout.readline() == b"started\n"
            yield from real(made, *given, **named)

    monkeypatch.setattr(recover, "apply_all", late)
    with pytest.raises(KdumpError, match="another process holds the lock"):
        truncated(directory)
    after = tree(directory)
    assert (directory / ".lock").exists()  # the broker's
    del after[".lock"]
    assert after == before


def test_files_that_change_once_the_journal_is_written(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is broker and controller loads __cluster_metadata before it asks for the lock."""
    real = RunExecutor.begin

    def begin(self: RunExecutor, *given: str) -> None:
        real(self, *given)
        (directory / "t-0" / f"{stem(20)}.index").write_bytes(b"another")

    monkeypatch.setattr(RunExecutor, "begin", begin)
    before = contents(tree(directory))
    results = list(recover.recover_logs(discover([str(directory)]), OPTIONS, apply_options=recover.ApplyOptions("one")))
    errors = [str(one.error) for one in results if isinstance(one, recover.RecoveryResult) and one.error]
    assert [error.partition(": ")[2] for error in errors] == [
        "the file has changed since the plan was made; nothing was changed"
    ]
    assert contents(tree(directory)) == {**before, f"t-0/{stem(20)}.index": b"another"}
    assert not (directory / "t-0" / ".kdump-undo").exists()


@pytest.fixture
def saved(directory: Path) -> saved_plans.SavedPlan:
    found = [one for one in planner.plan_recovery(discover([str(directory)]), OPTIONS) if isinstance(one, Plan)]
    lines = saved_plans.to_lines(OPTIONS, [str(directory)], found)
    return saved_plans.read(io.BytesIO("".join(f"{json.dumps(line)}\n" for line in lines).encode()))


def test_a_saved_plan_is_not_applied_while_a_broker_runs_and_says_so(
    directory: Path, saved: saved_plans.SavedPlan
) -> None:
    words = [sys.executable, "-c", START, directory / ".lock"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        held = r"another process holds the lock.*nothing in .* was applied"
        with ExitStack() as locks, pytest.raises(KdumpError, match=held):
            saved.check(planner.plan_recovery(discover([str(directory)]), saved.options, locks=locks))


def test_a_saved_plan_is_not_applied_after_a_broker_repaired_the_log(
    directory: Path, saved: saved_plans.SavedPlan
) -> None:
    """Then nothing is to be done there any more, and the files are still there."""
    truncated(directory)
    with pytest.raises(KdumpError, match=rf"{stem(20)}\.\w+ has changed since"):
        saved.check(planner.plan_recovery(discover([str(directory)]), saved.options))
