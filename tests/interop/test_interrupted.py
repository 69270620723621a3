"""A broker that starts in the middle of a recovery, after a clean stop or without one, and over what recover keeps: it
loads, and trusts no index of another log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kdump.recover.apply import apply
from kdump.recover.plan import REINDEX, SALVAGE, TRUNCATE
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.verify.verify import VerifyOptions, verify_logs
from support import oracle, recovery_plans
from support.directories import NOW_MS, Files, stem
from support.recovery_plans import B, C


def misnamed() -> Files:
    """The last segment has a name that lies above its first batch."""
    files = {name: data for name, data in recovery_plans.PARTITION.items() if not name.startswith(C)}
    return {**files, f"{stem(23)}.log": recovery_plans.PARTITION[f"{C}.log"], f"{stem(23)}.index": b""}


STOPS = ("clean", "unclean")
LOADER = Path(__file__).with_name("Loader.java")
FLIPPED = bytearray(recovery_plans.PARTITION[f"{B}.log"])  # type: ignore[arg-type]
FLIPPED[len(FLIPPED) // 2] ^= 1
DAMAGED: Files = {**recovery_plans.PARTITION, f"{B}.log": bytes(FLIPPED)}
CASES = {
    "truncate": recovery_plans.Case(DAMAGED, recovery_plans.untouched, strategy=TRUNCATE),
    "salvage": recovery_plans.Case(DAMAGED, recovery_plans.untouched, strategy=SALVAGE),
    "reindex": recovery_plans.Case(recovery_plans.PARTITION, recovery_plans.untouched, strategy=REINDEX),
    "promote": recovery_plans.Case(recovery_plans.SWAPPED, recovery_plans.untouched, strategy=TRUNCATE),
    "rename": recovery_plans.Case(misnamed(), recovery_plans.untouched, strategy=TRUNCATE),
}


def states(directory: Path, place: Path, case: recovery_plans.Case) -> list[Path]:
    """What stands there before every change of a name, and at the end."""
    found: list[Path] = []

    def keep() -> None:
        copy = place / str(len(found)) / directory.name
        shutil.copytree(directory, copy)
        found.append(copy)

    rename, link = DirectoryHandle.rename, DirectoryHandle.link

    def renamed(self: DirectoryHandle, name: str, to: str) -> None:
        keep()
        rename(self, name, to)

    def linked(self: DirectoryHandle, name: str, to: str) -> None:
        keep()
        link(self, name, to)

    plan, make = recovery_plans.planned(case, directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryHandle, "rename", renamed)
        patch.setattr(DirectoryHandle, "link", linked)
        apply(plan, "1", make=make)
    keep()
    return found


class Interrupted(NamedTuple):
    """A recovery that ends before every change of a name: the directories that it leaves, the last one complete, and a
    copy of the first one for a start of its own."""

    before: set[bytes]
    left: list[Path]
    first: Path


def interrupted(case: str, room: Path) -> Interrupted:
    directory = recovery_plans.write(CASES[case], room)
    before = batches(directory)
    left = states(directory, room / "states", CASES[case])
    return Interrupted(before, left, Path(shutil.copytree(left[0], room / "first" / directory.name)))


Answers = dict[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def recoveries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Interrupted]:
    return {
        (stop, case): interrupted(case, tmp_path_factory.mktemp(f"{stop}-{case}")) for stop in STOPS for case in CASES
    }


@pytest.fixture(scope="module")
def answers(kafka: ModuleType, recoveries: dict[tuple[str, str], Interrupted]) -> Answers:
    """What a broker's log loader makes of every directory, all in one run of it."""
    starts = {}
    for (stop, _), recovery in recoveries.items():
        starts[recovery.first] = ()
        starts |= dict.fromkeys(recovery.left, ("clean",) if stop == "clean" else ())
    lines = "".join(
        "\t".join((str(place), "0", "0", str(NOW_MS), "4096", *more)) + "\n" for place, more in starts.items()
    )
    quiet = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    done = kafka.run_source(kafka.NEWEST, LOADER, stdin=lines.encode(), flags=quiet)
    return dict(zip(starts, map(json.loads, done.stdout.decode().splitlines()), strict=True))


def batches(directory: Path) -> set[bytes]:
    found = set()
    for log in directory.glob("*.log"):
        data = log.read_bytes()
        found |= {
            data[item.position : item.position + item.size]
            for item in oracle.walk(data)
            if isinstance(item, oracle.Batch)
        }
    return found


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stop", STOPS)
def test_a_broker_starts_in_the_middle(
    recoveries: dict[tuple[str, str], Interrupted], answers: Answers, case: str, stop: str
) -> None:
    before, found, copy = recoveries[stop, case]
    first = answers[copy]
    assert len(found) > 9
    for number, place in enumerate(found):
        answer = answers[place]
        # What a broker refuses when it looks, it may refuse until the recovery has come to it.
        assert answer["loaded"] or answer["exception"] == first.get("exception"), (number, answer)
        assert batches(place) <= before
        wrong = {
            finding.code
            for report in verify_logs(discover([str(place)]), VerifyOptions(now_ms=NOW_MS))
            for finding in report.findings
            if finding.code.startswith(("index/", "timeindex/")) and finding.severity > 0
        }
        # A broker that rebuild indexes leaves the room that it took for them, and one that refuses leaves all as it
        # is.
        if answer["loaded"] and "index/padding" not in wrong:
            assert not wrong, (number, wrong)
    assert answers[found[-1]]["loaded"]
