"""A preview compares the strategies, and the next step is the one that loses less."""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.recover import planner
from kdump.recover.plan import SALVAGE, TRUNCATE, Plan, RecoverOptions
from kdump.storage.discovery import discover
from support import damage_partition
from support.damage import NotApplicable
from support.losses import CASES, LossCase, write_damaged, write_points

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """A partition of seven segments."""
    shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "segments-0")
    return tmp_path / "segments-0"


def partition_line(ran: Any) -> dict[str, Any]:
    (found,) = (line for line in map(json.loads, ran.text.splitlines()) if line["type"] == "partition")
    return dict(found)


def test_a_bit_in_the_first_segment(changing: Any, segments: Path) -> None:
    flip(segments / f"{0:020}.log", 300)
    ran = changing.inside("recover", "segments-0")
    (truncate,) = (line for line in ran.text.splitlines() if line.startswith("segments-0: truncate: "))
    (salvage,) = (line for line in ran.text.splitlines() if line.startswith("segments-0: salvage: "))
    assert truncate.partition(": truncate: ")[2].startswith(
        "gives up 127 batches, 499 records, 102539 bytes; from 2026-"
    )
    assert salvage.partition(": salvage: ")[2] == "gives up nothing valid; the log ends before offset 509"
    assert ran.text.endswith("\nnext: kdump recover --salvage segments-0\n")
    line = partition_line(changing.inside("recover", "--format", "json", "segments-0"))
    assert line["salvage"]["lost"]["given_up"]["batches"] == 0
    assert (line["salvage"]["empty"], line["salvage"]["log_end_offset"]) == (False, 509)
    shown = changing.inside("recover", "--format", "terminal", "segments-0").text
    assert "salvage gives up nothing valid; the log ends before offset 509" in " ".join(shown.split())
    assert changing.inside("recover", "--salvage", "segments-0").status == 0


def test_equal_loss_is_a_truncation(changing: Any, segments: Path) -> None:
    with (segments / f"{449:020}.log").open("ab") as log:
        log.write(b"torn")
    ran = changing.inside("recover", "segments-0")
    assert ran.text.endswith("\nnext: kdump recover --truncate segments-0\n")
    assert "segments-0: salvage: " not in ran.text


def test_only_a_log_with_damage_is_planned_twice(
    changing: Any, segments: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def noted(report: Any, partition: Any, options: RecoverOptions, *more: Any, **how: Any) -> Plan:
        asked.append((partition.path, options.strategy))
        return before(report, partition, options, *more, **how)

    before = planner.plan_partition
    monkeypatch.setattr(planner, "plan_partition", noted)
    shutil.copytree(segments, segments.parent / "segments-1")
    shutil.copytree(segments, segments.parent / "segments-2")
    flip(segments / f"{0:020}.log", 300)
    (segments.parent / "segments-2" / f"{0:020}.index").unlink()
    names = [f"segments-{number}" for number in range(3)]
    changing.inside("recover", *names)
    truncations = [(name, TRUNCATE) for name in names]
    assert sorted(asked) == sorted([*truncations, ("segments-0", SALVAGE)])
    asked.clear()
    for given in (["--truncate", "--dry-run"], ["--salvage", "--dry-run"], ["--reindex", "--dry-run"]):
        changing.inside("recover", *given, *names)
    assert len(asked) == 9


def test_the_command_says_where_a_truncation_begins(changing: Any, segments: Path) -> None:
    """Where it would ask, so that the step is not refused."""
    flip(segments / f"{0:020}.log", 300)
    ran = changing.inside("recover", "--truncate", "--dry-run", "segments-0")
    assert ran.text.endswith("\nnext: kdump recover --truncate --from all segments-0\n")
    assert changing.inside("recover", "--truncate", "--from", "all", "segments-0").status == 4


# ---- the matrix


def cases() -> Iterator[LossCase]:
    """One of each damage."""
    yield from {case.damage: case for case in CASES if case.strategy == TRUNCATE}.values()


def plan_of(directory: Path, strategy: str) -> Plan:
    options = RecoverOptions(strategy, now_ms=0)
    return next(
        plan
        for plan in planner.plan_recovery(discover([str(directory)]), options)
        if isinstance(plan, Plan) and not plan.is_root
    )


@pytest.mark.daily(4)
@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.damage)
def test_the_next_step_never_loses_more(changing: Any, tmp_path: Path, case: LossCase) -> None:
    try:
        write_points(tmp_path / "d", {"t-0": write_damaged(case, tmp_path / "d" / "t-0")})
    except NotApplicable:
        pytest.skip("this log has no place for the damage")
    plans = {strategy: plan_of(tmp_path / "d", strategy) for strategy in (TRUNCATE, SALVAGE)}
    ran = changing.inside("recover", "--format", "json", "d")
    words = json.loads(ran.text.splitlines()[-1])["next"] or ""
    command = shlex.split(words.rpartition("; if none has: ")[2])
    chosen = [name for name in (TRUNCATE, SALVAGE) if f"--{name}" in command]
    for name in chosen:
        assert plans[name].lost.order == min(plan.lost.order for plan in plans.values())
        if plans[TRUNCATE].lost.order == plans[SALVAGE].lost.order and name == SALVAGE:
            assert plans[TRUNCATE].not_covered


def test_another_copy_among_the_paths_fills_the_hole(changing: Any, tmp_path: Path) -> None:
    """The first advice is then the command that makes one log of both."""
    for name in ("one", "two"):
        shutil.copytree(FIXTURES / "killed", tmp_path / name, ignore=shutil.ignore_patterns("expected", "case.toml"))
    for path in (tmp_path / "one" / "retained-0").glob("00000000000000000028.*"):
        path.unlink()
    ran = changing.inside("recover", "one/retained-0", "two/retained-0")
    assert ran.text.endswith("\nnext: kdump convert --to log -o DIR -- one/retained-0 two/retained-0\n")
    words = ran.text.splitlines()[-1].removeprefix("next: kdump ").replace("DIR", "made").split()
    assert changing.inside(*words).status in (0, 1)
    assert changing.inside("recover", "made").status == 0


# ---- where the last line leads to


def in_log_directory(tmp_path: Path, damage: str, *, known: bool = True) -> Path:
    """A log of seven segments with a damage, whose records are all below the high watermark where that is known."""
    case = LossCase("segments/segments-0", "none", "above", "below", TRUNCATE)
    points = write_damaged(case, tmp_path / "d" / "t-0")._replace(recovery_point=0)
    write_points(tmp_path / "d", {"t-0": points} if known else {})
    if damage != "none":
        damage_partition.apply(damage, tmp_path / "d" / "t-0", random.Random(damage))
    return tmp_path / "d" / "t-0"


def empty_middle(directory: Path, *, zeros: bool) -> None:
    for path in directory.glob(f"{231:020}.*"):
        if not zeros:
            path.unlink()
        elif path.suffix == ".log":
            path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
def test_a_hole_that_nothing_fills_ends_with_the_start(changing: Any, tmp_path: Path, zeros: bool, known: bool) -> None:
    """Another replica comes first, also where it is not known whether the records were committed."""
    empty_middle(in_log_directory(tmp_path, "none", known=known), zeros=zeros)
    last = changing.inside("recover", "d/t-0").lines[-1]
    if zeros:
        assert last.endswith("kdump recover --salvage d/t-0")
        last = changing.inside("recover", "--salvage", "d/t-0").lines[-1]
    assert last.startswith("next: if another replica has the missing committed offsets, move d/t-0 aside before ")
    assert last.endswith("; if none has: start the broker")
    assert changing.inside("recover", "d/t-0").lines[-1] == last


def test_what_a_salvage_repairs_comes_before_what_a_truncation_leaves(changing: Any, tmp_path: Path) -> None:
    """A broker refuses the files as they are, and what a truncation leaves."""
    in_log_directory(tmp_path, "rotated-batches")
    ran = changing.inside("recover", "d/t-0")
    assert ran.lines[0].startswith("broker: does not start: ")
    assert ran.lines[-1].endswith("; if none has: kdump recover --salvage d/t-0")


def test_what_no_strategy_repairs_is_said_at_once(changing: Any, tmp_path: Path) -> None:
    in_log_directory(tmp_path, "resealed-count", known=False)
    last = changing.inside("recover", "d/t-0").lines[-1]
    assert last.startswith("next: no strategy repairs batch/count of d/t-0/0000")
    assert last.endswith(", which a broker serves as it is; kdump verify --explain batch/count says what it means")


def test_a_repair_comes_before_a_topic_id(changing: Any, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "leader", tmp_path / "d", ignore=shutil.ignore_patterns("expected", "case.toml"))
    (tmp_path / "d" / "retained-0" / "partition.metadata").write_text("version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA")
    flip(min((tmp_path / "d" / "retained-0").glob("*.log")), 100)
    ran = changing.inside("recover", "d/retained-0")
    assert "; if none has: kdump recover --" in ran.lines[-1]
