"""`kdump recover`: what is asked of the library for which options, what is printed of the answer, and how it ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import kdump.recover.planner
import kdump.recover.recover
from kdump.cli import recover as command
from kdump.errors import KdumpError, NotALog, SourceError
from kdump.recover.apply import apply
from kdump.recover.next_step import START_BROKER
from kdump.recover.plan import Action, Damaged, FileContent, GivenUp, Lost, Plan, RecoverOptions, RecoveryResult
from kdump.recover.recover import ApplyOptions
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from kdump.verify.report import Report
from support.command_runs import lines, unwatched
from support.recovery_results import GIVEN_UP, NO_LOSS, OLD, REFUSED, nothing, plan

RUN = r"\d{8}T\d{6}Z-\d+(-\d{4})?"  # with a number after the first run of a process
NONE = {"by_severity": {"error": 0, "warning": 0, "info": 0}, "by_code": {}}
SUMMARY = [
    *("type", "schema", "command", "strategy", "applied", "partitions", "failed", "actions", "not_covered", "left"),
    *("log_start_offset", "log_end_offset", "bytes_needed", "lost", "undo", "output", "next", "interrupted", "running"),
    *("starts", "exit_status", "seconds"),
]


class Library:
    """What stands in for kdump.recover: plans that are given, and what was asked."""

    def __init__(self) -> None:
        self.plans: list[Plan | Report] = [plan()]
        self.errors: dict[str, KdumpError] = {}
        self.left: tuple[Any, ...] = ()
        self.asked: list[RecoverOptions] = []
        self.found: list[list[str]] = []
        self.how: list[ApplyOptions] = []
        self.stop = False

    def planned(self, found: Iterable[Any], options: RecoverOptions, *_: Any, **__: Any) -> Iterator[Plan | Report]:
        self.found.append([str(item) if isinstance(item, SourceError) else item.path for item in found])
        self.asked.append(options)
        for item in self.plans:
            yield item if isinstance(item, Report) else item._replace(options=options)
            if self.stop:
                raise KeyboardInterrupt

    def apply_all(
        self, planned: Iterable[Plan | Report], options: RecoverOptions, how: ApplyOptions, *_: Any
    ) -> Iterator[RecoveryResult | Report]:
        for item in planned:
            yield item if isinstance(item, Report) else self.carry_out(item, how)

    def carry_out(self, item: Plan, how: ApplyOptions) -> RecoveryResult:
        self.how.append(how)
        if item.path in self.errors:
            return RecoveryResult(item, error=self.errors[item.path])
        if item.is_empty:
            return RecoveryResult(item)
        return RecoveryResult(
            item, True, how.run if how.keep and how.output is None else None, None, self.left, START_BROKER
        )


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    built = Library()
    monkeypatch.setattr(kdump.recover.planner, "plan_recovery", built.planned)
    monkeypatch.setattr(kdump.recover.recover, "apply_all", built.apply_all)
    return built


@pytest.fixture
def place(logs: Path) -> str:
    return "topic-0"


def summary(ran: Any) -> dict[str, Any]:
    return lines(ran)[-1]


# ---- what is asked for


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], RecoverOptions()),
        (["--truncate", "--dry-run"], RecoverOptions()),
        (["--salvage", "--dry-run"], RecoverOptions("salvage")),
        (["--salvage", "--dry-run", "--undecided", "drop"], RecoverOptions("salvage", undecided="drop")),
        (["--reindex", "--dry-run"], RecoverOptions("reindex")),
        (["--from", "all", "--rebuild", "all"], RecoverOptions(walk="all", rebuild_all=True)),
        (["--from", "newest"], RecoverOptions(walk="newest")),
        (
            ["--index-interval-bytes", "1k", "--segment-index-bytes", "1m"],
            RecoverOptions(index_interval_bytes=1024, segment_index_bytes=1 << 20),
        ),
        (["--max-batch-bytes", "16m"], RecoverOptions(max_batch_bytes=16 << 20)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_of_a_plan(kdump: Any, library: Library, place: str, given: list[str], wanted: RecoverOptions) -> None:
    ran = kdump.inside("recover", "--format", "json", *given, place)
    assert (ran.status, ran.err) == (1, b"")
    (asked,) = library.asked
    assert asked.now_ms is not None
    assert asked._replace(now_ms=None) == wanted
    assert (library.found, library.how) == ([["topic-0"]], [])
    first, totals = lines(ran)[0], summary(ran)
    assert {name: first[name] for name in asked.fields()} == asked.fields()
    assert "fill_from" not in first
    assert first["paths"] == [place]
    assert (totals["strategy"], totals["applied"]) == (wanted.strategy, False)


@pytest.mark.parametrize(
    ("given", "strategy", "how"),
    [
        (["--truncate"], "truncate", ApplyOptions()),
        (["--salvage"], "salvage", ApplyOptions()),
        (["--reindex"], "reindex", ApplyOptions()),
        (["--truncate", "--no-keep"], "truncate", ApplyOptions(keep=False)),
        (["--truncate", "--drop-marker"], "truncate", ApplyOptions(drop_marker=True)),
        (["--salvage", "--output", "copy"], "salvage", ApplyOptions(output="copy")),
        (["--output", "copy"], "truncate", ApplyOptions(output="copy")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_how_it_is_applied(
    kdump: Any, library: Library, place: str, given: list[str], strategy: str, how: ApplyOptions
) -> None:
    ran = kdump.inside("recover", "--format", "json", *given, place)
    (done,) = library.how
    assert re.fullmatch(RUN, done.run)
    assert done._replace(run="") == how
    assert library.asked[0].strategy == strategy
    totals = summary(ran)
    assert (totals["applied"], totals["strategy"], totals["output"]) == (True, strategy, how.output)
    assert totals["undo"] == (done.run if how.keep and how.output is None else None)


USAGE = [
    ([], "Missing argument 'PATH...'"),
    (["--truncate", "--salvage", "x"], "--truncate and --salvage cannot be combined"),
    (["--undo", "--reindex", "x"], "--reindex and --undo cannot be combined"),
    (["--undo", "--resume", "x"], "--undo and --resume cannot be combined"),
    (["--plan", "plan", "--truncate"], "--truncate and --plan cannot be combined"),
    (["--plan", "plan", "x"], "a saved plan has its own paths"),
    (["--plan", "plan", "--from", "all"], "--from: the saved plan has its own"),
    (["--truncate", "-"], "standard input cannot be recovered"),
    (["--run", "r", "x"], "--run: it needs --undo or --resume"),
    (["--truncate", "--run", "r", "x"], "--run: it needs --undo or --resume"),
    (["--undo", "--run", "../x", "x"], "'../x' is not the name of a run"),
    (["--undo", "--run", "", "x"], "'' is not the name of a run"),
    (["--resume", "--force", "x"], "--force: it needs --undo"),
    (["--undecided", "drop", "x"], "--undecided: it needs --salvage"),
    (["--salvage", "--from", "all", "x"], "--from: --salvage reads every segment"),
    (["--reindex", "--from", "newest", "x"], "--from: --reindex reads every segment"),
    (["--no-keep", "x"], "--no-keep: nothing is changed without a strategy"),
    (["--drop-marker", "x"], "--drop-marker: nothing is changed without a strategy"),
    (["--truncate", "--output", "copy", "--no-keep", "x"], "--no-keep: --output changes nothing in PATH"),
    (["--truncate", "--output", "copy", "--drop-marker", "x"], "--drop-marker: --output changes nothing in PATH"),
    (["--output", "copy", "--dry-run", "x"], "--output: --dry-run writes nothing"),
    (["--undo", "--output", "copy", "x"], "--output: --undo undoes or finishes a run, and plans nothing"),
    (["--resume", "--dry-run", "x"], "--dry-run: --resume undoes or finishes a run"),
    (["--undo", "--rebuild", "all", "x"], "--rebuild: --undo undoes or finishes a run"),
    (["--from", "middle", "x"], "'middle' is not one of"),
    (["--format", "kafka", "x"], "'kafka' is not one of"),
    (["--index-interval-bytes", "0", "x"], "'0' is not a size"),
]


@pytest.mark.parametrize(("given", "why"), USAGE, ids=[" ".join(given) for given, _ in USAGE])
def test_usage(kdump: Any, library: Library, logs: Path, given: list[str], why: str) -> None:
    (logs / "plan").write_bytes(b"")
    ran = kdump.inside("recover", *given)
    assert (ran.status, ran.out) == (2, b"")
    assert "Usage: kdump recover" in ran.problems
    assert why in " ".join(ran.problems.split())
    assert (library.asked, library.how) == ([], [])


# ---- how it ends


@pytest.mark.parametrize("given", [[], ["--truncate", "--dry-run"], ["--salvage", "--dry-run"]], ids=" ".join)
def test_status_of_a_plan(kdump: Any, library: Library, place: str, given: list[str]) -> None:
    for plans, status in (
        ([plan()], 1),
        ([plan(lost=NO_LOSS, not_covered=())], 1),
        ([nothing()], 0),
        ([nothing(), plan()], 1),
        ([nothing(not_covered=(OLD,))], 1),
        ([Report("", errors=[SourceError("x: no permission")]), plan()], 3),
        ([], 0),
    ):
        library.plans = [*plans]
        ran = kdump.inside("recover", "--format", "json", *given, place)
        assert ran.status == status
        assert summary(ran)["exit_status"] == status


@pytest.mark.parametrize(
    ("plans", "left", "status"),
    [
        ([plan()], (), 4),
        ([plan(lost=Lost(GIVEN_UP._replace(records=None)))], (), 4),
        ([plan(lost=Lost(GivenUp(None, None, None, None)))], (), 4),
        ([plan(lost=Lost(damaged=Damaged(((5, 9),), 20)), not_covered=())], (), 0),
        ([plan(lost=Lost(damaged=Damaged(((5, 9),), 20)), not_covered=())], (OLD,), 1),
        ([plan(lost=Lost(damaged=Damaged(((5, 9),), 20), removes_committed=True), not_covered=())], (OLD,), 4),
        ([nothing(lost=Lost(damaged=Damaged(((5, 9),)), committed=True))], (), 0),
        ([nothing(not_covered=(REFUSED,))], (), 1),
        ([nothing()], (), 0),
        ([nothing(not_covered=(OLD,))], (), 1),
        ([nothing(), plan(), nothing()], (OLD,), 4),
        ([Report("", errors=[SourceError("x: no permission")]), plan()], (), 3),
    ],
)
def test_status_of_applying(
    kdump: Any, library: Library, place: str, plans: list[Any], left: tuple[Any, ...], status: int
) -> None:
    library.plans, library.left = plans, left
    ran = kdump.inside("recover", "--truncate", "--format", "json", place)
    assert ran.status == status
    assert summary(ran)["exit_status"] == status


def test_one_that_fails_does_not_stop_the_others(kdump: Any, library: Library, place: str) -> None:
    library.plans = [plan(path="/data/a-0"), plan(path="/data/b-0"), plan(path="/data/c-0")]
    library.errors = {"/data/b-0": KdumpError("/data/b-0: no space left on device")}
    ran = kdump.inside("recover", "--truncate", "--format", "json", place)
    assert ran.status == 3
    assert ran.problems == "kdump: /data/b-0: no space left on device\n"
    reported = [line for line in lines(ran) if line["type"] == "partition"]
    assert [(line["path"], line["applied"], line["error"]) for line in reported] == [
        ("/data/a-0", True, None),
        ("/data/b-0", False, "/data/b-0: no space left on device"),
        ("/data/c-0", True, None),
    ]
    totals = summary(ran)
    assert (totals["partitions"], totals["failed"], totals["next"]) == (3, 1, None)
    assert totals["actions"] == {"delete": 4, "rebuild": 2, "truncate": 2, "write": 2}


def test_what_a_shell_names_beside_logs_is_no_failure(kdump: Any, library: Library, place: str) -> None:
    odd = Report("", errors=[NotALog("x.index: an offset index, not a log file")])
    library.plans = [odd, nothing()]
    assert kdump.inside("recover", place) == (0, b"1 partition: nothing to do\n", b"")
    library.plans = [odd]
    assert kdump.inside("recover", place).status == 3


def test_interrupted(kdump: Any, library: Library, place: str) -> None:
    library.stop = True
    ran = kdump.inside("recover", "--format", "json", place)
    assert (ran.status, ran.err) == (130, b"")
    assert (summary(ran)["interrupted"], summary(ran)["exit_status"]) == (True, 130)
    ran = kdump.inside("recover", "--truncate", place)
    assert ran.status == 130
    assert ran.problems.startswith("kdump: interrupted while files were being changed")
    assert ran.lines[-1].startswith("interrupted: 1 partition")


def test_a_bug_says_how_to_take_it_back(
    kdump: Any, library: Library, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(command, "_results", broken)
    ran = kdump.inside("recover", "--truncate", place)
    assert ran.status == 70
    assert "this is a bug in kdump; kdump recover --undo reverts what it had begun to change" in ran.problems
    assert "as they were" not in ran.problems


# ---- the summary


def test_summary(kdump: Any, library: Library, place: str) -> None:
    ran = kdump.inside("recover", "--format", "json", place)
    totals = summary(ran)
    assert list(totals) == SUMMARY
    assert totals["actions"] == {"delete": 2, "rebuild": 1, "truncate": 1, "write": 1}
    assert (totals["partitions"], totals["log_start_offset"], totals["log_end_offset"]) == (1, 0, 15)
    assert (totals["bytes_needed"], totals["lost"]["given_up"]["records"], totals["undo"]) == (18_904, 14, None)
    assert totals["not_covered"]["by_code"] == {"batch/crc": 1}
    assert totals["left"] == NONE
    assert totals["next"].startswith("if another replica has the missing committed offsets, move /data/orders-3 aside")
    assert totals["next"].endswith("; if none has: kdump recover --truncate topic-0")


def test_quiet(kdump: Any, library: Library, place: str) -> None:
    loud = kdump.inside("recover", "--format", "text", place)
    quiet = kdump.inside("recover", "--format", "text", "-q", place)
    assert [line.partition(":")[0] for line in loud.lines[:3]] == ["broker", "lost", "do"]
    assert loud.lines[3:-2] == quiet.lines
    assert loud.lines[-2].startswith("1 partition: 2 delete, 1 rebuild, 1 truncate, 1 write; ")


def test_several_partitions_in_one_summary(kdump: Any, library: Library, place: str) -> None:
    root = nothing("/data", files={"meta.properties": Stamp(1, 2, 3)})._replace(topic_partition=None)
    older = Lost(GivenUp(1, None, 5, ((0, 0),), 7, 9, (3,), ()), committed=False)
    library.plans = [plan(), nothing(), plan(path="/data/x-0", lost=older), root]
    totals = summary(kdump.inside("recover", "--format", "json", place))
    assert totals["partitions"] == 3
    assert (totals["log_start_offset"], totals["log_end_offset"]) == (None, None)
    lost = totals["lost"]
    given_up, damaged = lost["given_up"], lost["damaged"]
    assert (given_up["batches"], given_up["records"], given_up["bytes"], lost["committed"]) == (13, None, 18_881, True)
    assert (given_up["first_timestamp"], given_up["max_timestamp"]) == (7, GIVEN_UP.max_timestamp)
    assert given_up["producers"] == given_up["transactions"] == []
    assert (given_up["offsets"], damaged) == (None, {"offsets": None, "bytes": 158, "exact": False})
    library.plans = [plan()]
    totals = summary(kdump.inside("recover", "--format", "json", place))
    assert totals["lost"]["given_up"]["offsets"] == [[15, 28]]


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["--salvage", "--undecided", "drop", "--dry-run"],
        ["--from", "all", "--rebuild", "all", "--index-interval-bytes", "1024"],
        ["--reindex", "--segment-index-bytes", "1m", "--max-batch-bytes", "5", "--dry-run"],
    ],
    ids=" ".join,
)
def test_the_next_command_does_what_was_planned(kdump: Any, library: Library, logs: Path, given: list[str]) -> None:
    import shlex

    (logs / "-odd name").mkdir()
    totals = summary(kdump.inside("recover", "--format", "json", *given, "--", "topic-0", "-odd name"))
    words = shlex.split(totals["next"].partition("; if none has: ")[2])
    assert words[:2] == ["kdump", "recover"]
    kdump.inside(*words[1:])
    planned, applied = library.asked
    assert planned._replace(now_ms=None) == applied._replace(now_ms=None)
    assert library.found[0] == library.found[1]
    assert len(library.how) == 1


UNREPAIRED = (
    f"no strategy repairs {OLD.code} of {OLD.path}, which a broker serves as it is; kdump verify --explain {OLD.code}"
    " says what it means"
)


def test_damage_that_is_not_covered_leads_to_salvage(kdump: Any, library: Library, place: str) -> None:
    library.plans = [nothing(not_covered=(OLD,))]
    for given, wanted in (
        (["--from", "newest"], "kdump recover --salvage --dry-run topic-0"),
        (["--rebuild", "all"], "kdump recover --salvage --dry-run --rebuild all topic-0"),
        (["--salvage", "--dry-run"], UNREPAIRED),
    ):
        assert summary(kdump.inside("recover", "--format", "json", *given, place))["next"] == wanted
    library.plans = [nothing()]
    assert summary(kdump.inside("recover", "--format", "json", place))["next"] is None


def test_one_segment_of_several_becomes_a_copy(kdump: Any, library: Library, place: str) -> None:
    library.plans = [plan(alone=True)]
    totals = summary(kdump.inside("recover", "--format", "json", place))
    assert totals["next"].endswith("; if none has: kdump recover --truncate --output DIR topic-0")


# ---- a plan that was saved


def saved(kdump: Any, place: str, *given: str) -> Path:
    ran = kdump.inside("recover", "--format", "json", *given, place)
    path = Path(kdump.directory) / "plan.json"
    path.write_bytes(ran.out)
    return path


def test_a_saved_plan_is_applied_as_it_is(kdump: Any, library: Library, place: str) -> None:
    library.plans = [plan(), nothing()]
    saved(kdump, place, "--from", "all", "--max-batch-bytes", "1m")
    ran = kdump.inside("recover", "--plan", "plan.json", "--no-keep", "--format", "json")
    assert ran.status == 4
    assert library.asked[0] == library.asked[1]
    assert library.found[0] == library.found[1]
    assert [how.keep for how in library.how] == [False, False]
    assert summary(ran)["applied"] is True
    dry = kdump.inside("recover", "--plan", "plan.json", "--dry-run", "--format", "json")
    assert (dry.status, summary(dry)["applied"], len(library.how)) == (1, False, 2)
    copied = kdump.inside("recover", "--plan", "plan.json", "--output", "copy")
    assert (copied.status, library.how[-1].output) == (4, "copy")


def test_a_saved_plan_comes_from_standard_input_too(kdump: Any, library: Library, place: str) -> None:
    text = saved(kdump, place).read_bytes()
    assert kdump.inside("recover", "--plan", "-", stdin=text).status == 4


CHANGED: dict[str, tuple[Callable[[], Plan], str]] = {
    "a file has grown": (
        lambda: plan(files={**plan().files, "00000000000000000020.log": Stamp(11_012, 9, 8)}),
        "00000000000000000020.log has changed since plan.json was made",
    ),
    "a file is gone": (
        lambda: plan(files={"00000000000000000010.log": Stamp(15_730, 5, 7)}),
        "00000000000000000020.log is gone since plan.json was made",
    ),
    "a file is new": (
        lambda: plan(files={**plan().files, "x.index": Stamp(0, 9, 9)}),
        "x.index is new since plan.json was made",
    ),
    "another cut": (
        lambda: plan(actions=(plan().actions[0]._replace(start=7000), *plan().actions[1:])),
        "(from is 7000, not 7865)",
    ),
    "one action less": (lambda: plan(actions=plan().actions[:-1]), "what would be done now is not what plan.json says"),
    "one action more": (
        lambda: plan(actions=(*plan().actions, plan().actions[0])),
        "what would be done now is not what plan.json says",
    ),
    "more lost": (lambda: plan(lost=Lost(GIVEN_UP._replace(records=15))), "(lost is "),
    "another finding": (lambda: plan(not_covered=()), "what would be done now is not what plan.json says"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_saved_plan_that_does_not_hold_is_refused(kdump: Any, library: Library, place: str, name: str) -> None:
    make, why = CHANGED[name]
    library.plans = [nothing(), plan()]
    saved(kdump, place)
    library.plans = [nothing(), make()]
    ran = kdump.inside("recover", "--plan", "plan.json")
    assert (ran.status, library.how) == (3, [])
    assert ran.problems.startswith("kdump: /data/orders-3")
    assert why in ran.problems
    assert ran.problems.endswith(": make the plan again\n")


def test_another_partition_refuses_a_saved_plan(kdump: Any, library: Library, place: str) -> None:
    saved(kdump, place)
    for plans in ([plan(), nothing()], []):
        library.plans = [*plans]
        ran = kdump.inside("recover", "--plan", "plan.json")
        assert (ran.status, library.how) == (3, [])


GARBLED: dict[str, Callable[[list[str]], list[str]]] = {
    "empty": lambda text: [],
    "no beginning": lambda text: text[1:],
    "no end": lambda text: text[:-1],
    "a torn line": lambda text: [*text[:-1], text[-1][:20]],
    "no JSON": lambda text: ["hello"],
    "no object": lambda text: ["[1]", *text],
    "deep": lambda text: [*text[:1], "[" * 100_000, *text[1:]],
    "no type": lambda text: [*text[:1], "{}", *text[1:]],
    "no options": lambda text: ['{"type":"plan","paths":["topic-0"]}', *text[1:]],
    "a strategy that there is not": lambda text: [text[0].replace("truncate", "format"), *text[1:]],
    "a number that is text": lambda text: [text[0].replace(":4096", ':"4096"'), *text[1:]],
    "a walk that there is not": lambda text: [text[0].replace('"checkpoint"', '"middle"'), *text[1:]],
    "no paths": lambda text: [text[0].replace('["topic-0"]', "[]"), *text[1:]],
    "a path that is none": lambda text: [text[0].replace('"topic-0"', "5"), *text[1:]],
    "base64 that is none": lambda text: [text[0].replace('"topic-0"', '{"base64":"*"}'), *text[1:]],
    "interrupted": lambda text: [*text[:-1], text[-1].replace('"interrupted":false', '"interrupted":true')],
    "applied": lambda text: [*text[:-1], text[-1].replace('"applied":false', '"applied":true')],
    "files that are none": lambda text: [re.sub(r'"files":\[.*?\]', '"files":[5]', line) for line in text],
}


@pytest.mark.parametrize("name", GARBLED)
def test_what_is_no_plan_is_refused(kdump: Any, library: Library, place: str, name: str) -> None:
    path = saved(kdump, place)
    text = path.read_text().splitlines()
    garbled = GARBLED[name](text)
    assert garbled != text
    path.write_text("".join(f"{line}\n" for line in garbled))
    ran = kdump.inside("recover", "--plan", "plan.json")
    assert (ran.status, ran.out, library.how) == (3, b"", [])
    assert ran.problems.startswith("kdump: plan.json: ")
    assert ran.problems.count("\n") == 1


def test_no_file(kdump: Any, library: Library, logs: Path) -> None:
    assert kdump.inside("recover", "--plan", "nowhere").status == 2


def test_paths_that_are_no_utf8(kdump: Any, library: Library, tmp_path: Path) -> None:
    odd = b"odd\xff-0".decode("utf-8", "surrogateescape")
    (tmp_path / odd).mkdir()
    library.plans = [plan(path=odd)]
    saved(kdump, odd)
    assert json.loads((tmp_path / "plan.json").read_text().splitlines()[0])["paths"] == [{"base64": "b2Rk/y0w"}]
    assert kdump.inside("recover", "--plan", "plan.json").status == 4
    assert library.found[0] == library.found[1]


# ---- a run that is taken back


@pytest.fixture
def cut(kdump: Any, logs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A partition of which a run has cut off the end."""
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    log = logs / "topic-0" / "00000000000000000009.log"
    seen = {path.name: path.stat() for path in log.parent.iterdir()}
    size = seen[log.name].st_size
    built = Plan(
        str(log.parent),
        None,
        RecoverOptions(),
        actions=(Action("truncate", str(log), "batch/crc", 20, size),),
        after={log.name: FileContent((Piece(log.name, 0, 20),))},
        files={name: Stamp(status.st_size, status.st_mtime_ns, status.st_ino) for name, status in seen.items()},
    )
    apply(built, "run-1", make=lambda _: ())
    assert log.stat().st_size == 20
    return log


def test_undo(kdump: Any, cut: Path, built: dict[str, bytes]) -> None:
    before = (cut.parent / ".kdump-undo").exists()
    ran = kdump.inside("recover", "--undo", "--format", "json", "topic-0")
    assert (ran.status, ran.err, before) == (0, b"", True)
    reported, totals = lines(ran)
    assert list(reported) == ["type", "path", "run", "strategy", "began_ms", "state", "error"]
    assert (reported["type"], reported["path"], reported["run"], reported["state"]) == (
        "run",
        "topic-0",
        "run-1",
        "over",
    )
    assert list(totals) == ["type", "schema", "command", "starts", "next", "exit_status", "seconds"]
    assert cut.stat().st_size > 20
    assert not (cut.parent / ".kdump-undo").exists()
    again = kdump.inside("recover", "--undo", "topic-0")
    assert (again.status, again.out) == (3, b"")
    assert again.problems == "kdump: topic-0: no run of kdump recover has left anything here\n"


def test_undo_in_words(kdump: Any, cut: Path) -> None:
    """What a start would do with the files as they were comes first, and what to do now last."""
    ran = kdump.inside("recover", "--undo", "--run", "run-1", f"topic-0/{cut.name}")
    *verdict, line, step = ran.lines
    assert [said.partition(":")[0] for said in verdict] == ["broker", "lost", "do"]
    assert step == f"next: {verdict[2].removeprefix('do: ')}"
    assert re.fullmatch(r"topic-0: undone: run run-1 \(truncate, \d{4}-.*Z\)", line)


def test_undo_after_a_broker_wrote(kdump: Any, cut: Path) -> None:
    with cut.open("ab") as log:
        log.write(b"more")
    ran = kdump.inside("recover", "--undo", "topic-0")
    assert ran.status == 3
    assert ran.problems.count("\n") == 1
    assert "--force" in ran.problems
    assert cut.stat().st_size == 24
    forced = kdump.inside("recover", "--undo", "--force", "topic-0")
    assert (forced.status, forced.err) == (0, b"")
    assert cut.stat().st_size > 24


def test_undo_of_another_run(kdump: Any, cut: Path) -> None:
    ran = kdump.inside("recover", "--undo", "--run", "run-2", "topic-0")
    assert ran.status == 3
    assert "no run run-2 here; there are run-1" in ran.problems
    assert kdump.inside("recover", "--undo", "nowhere").status == 3


def test_one_path_that_fails_does_not_stop_the_others(kdump: Any, cut: Path) -> None:
    ran = kdump.inside("recover", "--undo", "nowhere", "topic-0")
    assert ran.status == 3
    assert ran.problems.count("\n") == 1
    assert "\ntopic-0: undone: run run-1" in ran.text


def test_resume(kdump: Any, cut: Path) -> None:
    """What is finished is verified: here are 20 bytes that are not a batch."""
    area = cut.parent / ".kdump-undo" / "run-1"
    (area / "applied.jsonl").rename(area / "applying.jsonl")
    refused = kdump.inside("recover", "topic-0")
    assert refused.status == 3
    assert "--resume" in refused.problems
    assert "--undo" in refused.problems
    ran = kdump.inside("recover", "--resume", "--format", "json", "topic-0")
    reported = lines(ran)
    assert (reported[0]["state"], reported[0]["error"]) == ("applied", None)
    assert "tail/torn" in {line["code"] for line in reported[1:-1]}
    assert (ran.status, reported[-1]["exit_status"]) == (1, 1)
    assert kdump.inside("recover", "--undo", "topic-0").status == 0


def test_resume_of_nothing(kdump: Any, cut: Path) -> None:
    ran = kdump.inside("recover", "--resume", "topic-0")
    assert (ran.status, ran.out) == (3, b"")
    assert "no run of kdump recover is unfinished here" in ran.problems


def test_undo_is_refused_while_a_broker_runs(kdump: Any, cut: Path) -> None:
    lock = cut.parent.parent / ".lock"
    lock.touch()
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        for given in ("--undo", "--resume"):
            for path in ("topic-0", f"topic-0/{cut.name}", "."):
                ran = kdump.inside("recover", given, path)
                assert (ran.status, ran.out) == (3, b"")
                assert "holds the lock" in ran.problems
        broker.communicate()
    assert cut.stat().st_size == 20


def test_every_command_line_option_has_a_place() -> None:
    """A new option has to be put among those of the plan, of applying, of showing, or of where it runs."""
    of_where = {"master", "spark_settings"}
    of_showing = {
        "format_name",
        "level",
        "everything",
        "jobs",
        "progress",
        "color",
        "quiet",
        "help_all",
        "reproducible",
    }
    modes = {"truncate", "salvage", "reindex", "fill_from", "undo", "resume", "plan_file"}
    names = {parameter.name for parameter in command.command.params if isinstance(parameter, click.Option)}
    assert names == of_where | of_showing | modes | {"run", "force"} | {*command._OF_THE_PLAN, *command._HOW}
