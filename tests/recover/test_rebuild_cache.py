"""What a plan rebuilt is not rebuilt again, and the checksums of what is rebuilt are checked by another package."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.broker import rebuild
from kdump.errors import KdumpError
from kdump.recover import planner
from kdump.recover.apply import apply
from kdump.recover.copies import output
from kdump.recover.plan import Plan, RecoverOptions
from kdump.recover.rebuild_cache import RebuildBudget, RebuildCache, RebuildRecorder
from kdump.storage.discovery import discover
from support import directories, recovery_plans
from support.expected_files import left_by

NOW_MS = directories.NOW_MS
LOG = "00000000000000000010.log"
INDEX = "00000000000000000010.index"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A flipped byte in a log whose index is wrong as well: reindex rebuilds the index to compare it."""
    directory = directories.write(tmp_path / "t-0", recovery_plans.DAMAGED)
    (directory / INDEX).write_bytes(b"\1" * 16)
    return directory


def planned(directory: Path, strategy: str = "reindex", **how: Any) -> Plan:
    (plan,) = planner.plan_recovery(discover([str(directory)]), RecoverOptions(strategy, now_ms=NOW_MS, **how))
    assert isinstance(plan, Plan)
    return plan


class Counted:
    """Counts how often the library rebuilds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._make = rebuild.rebuild_companions
        monkeypatch.setattr(rebuild, "rebuild_companions", self.make)

    def make(self, *request: Any) -> Iterator[tuple[str, bytes | None]]:
        self.calls += 1
        yield from self._make(*request)


def test_it_is_rebuilt_once(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = left_by(planned(damaged))
    counted = Counted(monkeypatch)
    plan = planned(damaged)
    assert plan.after[INDEX] is not None
    assert counted.calls == 1
    apply(plan, "1")
    assert counted.calls == 1
    assert {path.name: path.read_bytes() for path in damaged.iterdir() if path.is_file()} == wanted


def test_it_is_rebuilt_again_where_the_plan_was_changed(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(damaged)
    counted = Counted(monkeypatch)
    apply(plan._replace(options=plan.options._replace(index_interval_bytes=1)), "1")
    assert counted.calls == 1


def test_plans_that_keep_other_bytes_are_equal(damaged: Path) -> None:
    plan = planned(damaged)
    assert plan == plan._replace(rebuild_cache=RebuildCache())
    assert hash(plan.rebuild_cache) == hash(RebuildCache())
    assert plan.rebuild_cache != 0
    assert INDEX in repr(plan.rebuild_cache)
    copied = pickle.loads(pickle.dumps(plan))
    assert dict(copied.rebuild_cache.rebuild(plan.rebuild_request())) == dict(
        plan.rebuild_cache.rebuild(plan.rebuild_request())
    )


def test_no_more_than_the_budget_is_kept(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = planned(damaged).rebuild_request()
    sizes = [len(data or b"") for _, data in rebuild.rebuild_companions(request)]
    for most, kept in ((sum(sizes), True), (sum(sizes) - 1, False)):
        recorder = RebuildRecorder(RebuildBudget(most))
        found = dict(recorder.rebuild(request))
        counted = Counted(monkeypatch)
        assert dict(recorder.cache_for(request).rebuild(request)) == found
        assert counted.calls == (not kept)


def test_what_is_not_kept_is_given_back(damaged: Path) -> None:
    request = planned(damaged).rebuild_request()
    size = sum(len(data or b"") for _, data in rebuild.rebuild_companions(request))
    budget = RebuildBudget(size)
    for _ in range(2):
        recorder = RebuildRecorder(budget)
        dict(recorder.rebuild(request))
        recorder.cache_for(request._replace(now_ms=1))
    assert budget.take(size)


def test_a_wrong_checksum_changes_nothing(damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(damaged, "truncate", walk="all", rebuild_all=True)
    make = rebuild.rebuild_companions

    def broken(*request: Any) -> Iterator[tuple[str, bytes | None]]:
        for name, data in make(*request):
            yield name, data[:-1] + b"x" if data and name.endswith(".snapshot") else data

    monkeypatch.setattr(rebuild, "rebuild_companions", broken)
    before = recovery_plans.tree(damaged, undo=True)
    why = r"\.snapshot: the producer snapshot that kdump rebuilt has a wrong checksum; this is a bug in kdump"
    with pytest.raises(KdumpError, match=why + "; nothing was changed"):
        apply(plan, "1")
    assert recovery_plans.tree(damaged, undo=True) == before
    with pytest.raises(KdumpError, match=why):
        output(plan, str(tmp_path / "copy"))
    assert not list((tmp_path / "copy").iterdir())
