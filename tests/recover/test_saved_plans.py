"""Plans as plain values: what a program saves is what the command prints, and both are read again."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.errors import KdumpError
from kdump.recover import planner, saved_plans
from kdump.recover.plan import Plan, RecoverOptions, RecoveryResult
from kdump.recover.plan_lines import RESULT_FIELDS, plain, plan_lines
from kdump.recover.saved_plans import from_lines, to_lines
from kdump.render import RenderOptions, renderer
from kdump.storage.discovery import discover
from support import directories, recovery_plans
from support.recovery_results import nothing, plan

HOSTILE = "/data/\x1b\n\udcff-0"
OPTIONS = RecoverOptions(walk="all", now_ms=1_700_000_000_000)
CASES = [
    plan(),
    nothing(),
    plan(path=HOSTILE, undecided=("\udcff",), refusals=(("KafkaException", "\udcfe.log"),), topic_partition=None),
]


def printed(one: Plan) -> list[dict[str, Any]]:
    stream = io.BytesIO()
    with renderer("json", stream, RenderOptions()) as out:
        out.recovery(RecoveryResult(one))
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("one", CASES)
def test_the_values_are_the_lines_that_are_printed(one: Plan) -> None:
    lines = printed(one)
    assert list(plan_lines(one)) == [{k: v for k, v in line.items() if k not in RESULT_FIELDS} for line in lines]
    assert list(list(plan_lines(one))[-1]) == [name for name in lines[-1] if name not in RESULT_FIELDS]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), None),
        (1.5, 1.5),
        (True, True),
        (b"\xff", {"base64": "/w=="}),
        (b"x", "x"),
        (Path("/a"), "/a"),
        ({1: (2, None)}, {"1": [2, None]}),
        ({"é"}, ["é"]),
    ],
)
def test_plain_values(value: object, wanted: object) -> None:
    assert plain(value) == wanted


def test_no_plain_value() -> None:
    with pytest.raises(TypeError, match="no plain value for object"):
        plain(object())


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return recovery_plans.write(recovery_plans.REAL["recover --truncate"], tmp_path)


def plans(directory: Path) -> list[Plan]:
    found = list(planner.plan_recovery(discover([str(directory)]), OPTIONS))
    assert all(isinstance(one, Plan) for one in found)
    return [one for one in found if isinstance(one, Plan)]


def test_a_program_saves_and_loads_a_plan(damaged: Path) -> None:
    built = plans(damaged)
    text = "".join(f"{json.dumps(line)}\n" for line in to_lines(OPTIONS, [str(damaged)], built))
    saved = saved_plans.read(io.BytesIO(text.encode()))
    assert (saved.options, saved.paths) == (OPTIONS, (str(damaged),))
    assert saved.check(plans(damaged)) == built
    assert saved == from_lines(to_lines(OPTIONS, [str(damaged)], built), saved.name)


def test_the_wording_of_another_version_does_not_matter(damaged: Path) -> None:
    built = [one._replace(not_covered=plan().not_covered) for one in plans(damaged)]
    lines = to_lines(OPTIONS, [str(damaged)], built)
    for line in lines:
        if "message" in line:
            line["message"] = "another sentence"
    assert from_lines(lines).check(built) == built


def test_a_file_that_changed(damaged: Path) -> None:
    saved = from_lines(to_lines(OPTIONS, [str(damaged)], plans(damaged)), "p")
    (damaged / "00000000000000000020.index").write_bytes(b"")
    with pytest.raises(KdumpError, match=r"00000000000000000020\.index has changed since p was made"):
        saved.check(plans(damaged))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "not a whole plan"),
        ([{"type": "plan"}], "not a whole plan"),
        ([{"type": "plan"}, {"type": "summary", "applied": True}], "already applied"),
        ([{"type": "plan"}, {"type": "summary", "interrupted": True}], "was interrupted"),
        ([{"type": "plan"}, {"type": "summary"}], "does not name its paths"),
        ([{"type": "plan", "paths": ["x"]}, {"type": "summary"}], "has no valid strategy"),
        ([{**OPTIONS._asdict(), "type": "plan", "paths": [{"base64": "?"}]}, {"type": "summary"}], "is not valid"),
        ([{**OPTIONS._asdict(), "type": "plan", "paths": [{}]}, {"type": "summary"}], "is not valid"),
        ([{**OPTIONS._asdict(), "type": "plan", "paths": ["\ud800"]}, {"type": "summary"}], "is not valid"),
        ([{**OPTIONS._asdict(), "type": "plan", "paths": ["a\0b"]}, {"type": "summary"}], "is not valid"),
        ([{**OPTIONS._asdict(), "type": "plan", "paths": ["x"], "walk": "no"}, {"type": "summary"}], "no valid walk"),
        *(
            (
                [{**OPTIONS._asdict(), "type": "plan", "paths": ["x"]}, {"type": kind}, {"type": "summary"}],
                "a path that",
            )
            for kind in ("partition", "action", "not_covered")
        ),
    ],
)
def test_what_is_no_plan(lines: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(KdumpError, match=why):
        from_lines(lines)


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, 1.5, float("nan")),
    *("", "x", [], [[]], {}, {"base64": "?"}, "\ud800", "a\0b"),
)


def mutated(line: dict[str, Any], rng: random.Random) -> Iterator[dict[str, Any]]:
    """The line with each of its fields left out, and with other values."""
    for name in line:
        yield {other: value for other, value in line.items() if other != name}
        for value in rng.sample(VALUES, 3):
            yield {**line, name: value}


def test_each_field_that_differs_is_refused_or_changes_nothing(damaged: Path) -> None:
    """A plan is read by a program that trusts no field of it, and by any option that a field could stand for."""
    built = plans(damaged)
    lines = to_lines(OPTIONS, [str(damaged)], built)
    rng, refused = random.Random(5), 0
    for number, line in enumerate(lines):
        for other in mutated(line, rng):
            text = "".join(f"{json.dumps(each)}\n" for each in [*lines[:number], other, *lines[number + 1 :]])
            try:
                saved = saved_plans.read(io.BytesIO(text.encode()))
                asked = (saved.options, saved.paths)
                found: list[Any] = list(built)
                if asked != (OPTIONS, (str(damaged),)):
                    found = list(planner.plan_recovery(discover(saved.paths), saved.options))
                assert saved.check(found) == found
                assert [one.after for one in found if isinstance(one, Plan)] == [one.after for one in built]
            except KdumpError:
                refused += 1
    assert refused > 100


@pytest.mark.parametrize("schema", [99, 0, -1, 2**70, "2", None, True, 1.0])
def test_a_plan_of_another_schema_is_refused(damaged: Path, schema: object) -> None:
    lines = to_lines(OPTIONS, [str(damaged)], plans(damaged))
    lines[-1]["schema"] = schema  # type: ignore[assignment]
    with pytest.raises(KdumpError, match=rf"a plan of schema .*, this kdump reads 1 to {saved_plans.SCHEMA}:"):
        from_lines(lines)


@pytest.mark.parametrize("now_ms", [2**70, 2**63, -1])
def test_a_clock_that_no_long_holds_is_refused(damaged: Path, now_ms: int) -> None:
    lines = to_lines(OPTIONS._replace(now_ms=now_ms), [str(damaged)], plans(damaged))
    with pytest.raises(KdumpError, match="no valid now_ms"):
        from_lines(lines)


def test_an_empty_plan_lists_the_segments(tmp_path: Path) -> None:
    directory = directories.write(tmp_path / "t-0", dict(recovery_plans.PARTITION))
    (one,) = plans(directory)
    assert one.is_empty
    (line,) = [line for line in plan_lines(one) if line["type"] == "partition"]
    logs = sorted(directory.glob("*.log"))
    assert line["segments"] == [{"base_offset": int(log.stem), "size": log.stat().st_size} for log in logs]
    lines = to_lines(OPTIONS, [str(directory)], [one])
    for each in lines:
        if each["type"] == "partition":
            each["segments"] = []  # as kdump 0.2 wrote them
    assert from_lines(lines).check(plans(directory)) == [one]
