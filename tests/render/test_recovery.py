"""What is said of a recovery, in every format."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.recover.next_step import START_BROKER, refused
from kdump.recover.plan import (
    ACTIONS,
    SALVAGE,
    Action,
    Damaged,
    GivenUp,
    Lost,
    NewestWalk,
    RecoverOptions,
    RecoveryResult,
    RecoveryStart,
)
from kdump.recover.plan_lines import FindingTotals, finding_totals
from kdump.recover.summary import RecoverySummary
from kdump.render import RenderOptions as Look
from kdump.render import recovery, renderer
from kdump.storage.stamps import Stamp
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Severity, make_finding
from support.recovery_results import DIRECTORY, FIRST, GIVEN_UP, LOST, OLD, SECOND, nothing, plan

ACTION_FIELDS = [
    *("type", "path", "action", "topic", "partition", "from", "to", "target", "because"),
    *("bytes", "batches", "records", "first_offset", "last_offset"),
]
PARTITION_FIELDS = [
    *("type", "path", "topic", "partition", "strategy", "empty", "log_start_offset", "log_end_offset"),
    *("high_watermark", "recovery_point", "refusals", "later_refusals", "segments", "bytes_needed", "start"),
    *("newest", "lost", "files"),
    *("undecided", "clashes", "alone"),
    *("applied", "undo", "left", "ready", "salvage", "error"),
]
HOSTILE = "/data/a\x1b[31m\u202e\n\udcff-0"


def shown(name: str, *results: RecoveryResult, width: int = 160) -> list[str]:
    stream = io.BytesIO()
    with renderer(name, stream, Look(width=width, color=False)) as out:
        for result in results:
            out.recovery(result)
    return stream.getvalue().decode().splitlines()


def objects(*results: RecoveryResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown("json", *results)]


# ---- text


def test_a_line_for_every_action() -> None:
    lines = [
        line.removeprefix(f"{DIRECTORY}/")
        for line in shown("text", RecoveryResult(plan()))
        if line.startswith(f"{DIRECTORY}/")
    ]
    assert lines[:5] == [
        (
            "00000000000000000010.log: truncate 7865-15730 batch/crc: remove the bytes up to the end of the file (7865 "
            "bytes, 4 batches, 4 records, offsets 15..19, next 20)"
        ),
        "00000000000000000010.index: rebuild batch/crc: rebuild the file from the log",
        (
            "00000000000000000020.log: delete 0-11011 batch/crc: delete the file (11011 bytes, 8 batches, 10 records, "
            "offsets 20..29, next 30)"
        ),
        "00000000000000000020.index: delete batch/crc: delete the file (16 bytes)",
        "leader-epoch-checkpoint: write epoch/checkpoint: write the file with the right content (12 bytes)",
    ]
    assert lines[5:] == [
        (
            f"00000000000000000000.log:130: not covered: error batch/crc: {OLD.message}; the next start of "
            "Kafka 4.3 does nothing about it"
        )
    ]


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_has_words(action: str) -> None:
    built = Action(action, f"{FIRST}.log", "segment/overlap", 10, 20, f"{SECOND}.log", 10, 1, 2, 3, 4)
    words = recovery.action_words(built)
    assert words == (
        f"{action} 10-20 segment/overlap: {ACTIONS[action]}: {SECOND}.log (10 bytes, 1 batch, 2 records, "
        "offsets 3..4, next 5)"
    )
    assert recovery.action_words(Action(action, f"{FIRST}.log")) == f"{action}: {ACTIONS[action]}"
    assert recovery.action_words(Action(action, "x", target="x")) == f"{action}: {ACTIONS[action]}"


def test_records_that_no_one_counted() -> None:
    built = Action("truncate", f"{FIRST}.log", "batch/crc", 0, 9, None, 9, 2, None, 0, 5)
    assert recovery.amount_of(built) == "9 bytes, 2 batches, offsets 0..5, next 6"
    assert recovery.span(Action("truncate", "x", start=7)) == "7-"


def labels(result: RecoveryResult) -> dict[str, str]:
    return dict(recovery.sentences(result))


def test_a_plan_says_what_is_lost_and_what_it_needs() -> None:
    said = labels(RecoveryResult(plan()))
    assert list(said) == ["given up", "damaged", "committed", "afterwards", "space"]
    assert said["given up"] == (
        "12 batches, 14 records, 18876 bytes; offsets 15..28, next 29;"
        " from 2023-11-14T22:13:20.123Z to 2023-11-14T22:14:20.123Z; of producers 1, 2; 1 transaction affected "
        "(producer 2 from offset 17); --salvage --dry-run shows how much of it can be kept"
    )
    assert said["damaged"] == (
        "offsets 29..33, next 34 in 158 damaged bytes; these are not proven, and more may be damaged or missing"
    )
    assert said["committed"].startswith(
        "COMMITTED offsets 15..27, next 28, would be missing here (the high watermark is 28)."
    )
    assert "Other replicas" in said["committed"]
    assert "as a follower with the hole" in said["committed"]
    assert said["afterwards"] == "offsets 0..14, next 15, in 2 segments; the recovery point becomes 15"
    assert said["space"] == "18904 bytes are written before anything is removed"


UNKNOWN = "whether it was committed is not known, as no high watermark is stored"


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (Lost(committed=False), ["no valid batch is given up", "no damaged offsets known", "nothing lost below"]),
        (Lost(), ["no valid batch is given up", "no damaged offsets known"]),
        (Lost(committed=False, is_complete=False), ["no valid batch is given up", "no damaged offsets known"]),
        (
            Lost(GivenUp(1, None, 70, ((5, 5),)), Damaged(((7, None),), 9, exact=False)),
            [
                f"1 batch, an unknown number of records, 70 bytes; offsets 5..5, next 6; {UNKNOWN}",
                "offsets 7.., end not known in 9 damaged bytes; these are not proven, and more may be damaged",
            ],
        ),
        (
            Lost(GivenUp(9, 9, 90, tuple((at, at) for at in range(0, 18, 2))), Damaged(((1, 2), (5, 6)), 4)),
            [
                "9 batches, 9 records, 90 bytes; offsets 0..0, 2..2, 4..4, 6..6, 8..8 and 4 more, next 17; " + UNKNOWN,
                "offsets 1..2, 5..6, next 7 in 4 damaged bytes",
            ],
        ),
        (
            Lost(GivenUp(None, None, None, None), Damaged(None, None, exact=False)),
            ["an unknown number of batches: the search", "not known: the search for batches stopped early"],
        ),
        (Lost(damaged=Damaged(((1, 2),), 4, exact=False), compacted=True), ["no valid batch", "at most offsets 1..2"]),
    ],
)
def test_what_is_lost_in_words(lost: Lost, words: list[str]) -> None:
    built = plan(lost=lost, options=RecoverOptions(SALVAGE))
    said = [
        sentence
        for label, sentence in recovery.sentences(RecoveryResult(built))
        if label in ("given up", "damaged", "committed")
    ]
    assert len(said) == len(words)
    assert all(sentence.startswith(start) for sentence, start in zip(said, words, strict=True))
    assert all("nothing lost" not in sentence or "below the high watermark 28" in sentence for sentence in said)


def test_where_the_start_begins() -> None:
    newest = NewestWalk(25, GivenUp(2, 2, 20, ((25, 26),)))
    said = labels(RecoveryResult(plan(start=RecoveryStart(0, 0, "own"), newest=newest, clean_shutdown=True)))
    assert list(said)[:3] == ["clean", "start", "newest"]
    assert "the next start reads nothing, and would serve the damage" in said["clean"]
    assert said["start"] == (
        "an unclean start of Kafka 4.3 reads from offset 0, in the segment with base offset 0: the partition is not "
        "in a log directory"
    )
    assert said["newest"].endswith(
        "the log ends at offset 25, and 2 batches, 2 records, 20 bytes are given up; choose with --from all or --from "
        "newest"
    )


def test_the_damage_that_goes_is_in_the_report() -> None:
    built = plan(covered=(OLD,) * 7)
    said = [sentence for label, sentence in recovery.sentences(RecoveryResult(built)) if label == "found"]
    assert said[0] == f"{FIRST.rpartition('/')[2]}.log:130: error batch/crc: {OLD.message}"
    assert (len(said), said[-1]) == (6, "and 2 more findings that the plan removes")


def test_at_most_twenty_drops_are_listed() -> None:
    drops = tuple(Action("drop", f"{FIRST}.log", "batch/crc", at, at + 1, None, 1) for at in range(30))
    built = plan(actions=(*drops, Action("rebuild", f"{FIRST}.index", "batch/crc")))
    for name in ("text", "terminal"):
        reported = shown(name, RecoveryResult(built))
        assert sum("drop" in line and "more" not in line for line in reported) == 20
        assert sum("and 10 more drops of bytes that are not listed" in line for line in reported) == 1
        assert any("rebuild" in line for line in reported)
    assert sum(line.get("action") == "drop" for line in objects(RecoveryResult(built))) == 30


def test_what_holds_after_applying() -> None:
    refusals = (("CorruptRecordException", "leader-epoch-checkpoint"),)
    result = RecoveryResult(plan(refusals=refusals), True, "20261122T001122Z-7", None, (OLD,), START_BROKER)
    said = labels(result)
    assert list(said) == [*("refused", "given up", "damaged", "committed", "afterwards", "verified", "undo")]
    assert said["refused"].startswith("Kafka 4.3 would not have started on the directory: CorruptRecordException")
    assert said["given up"].endswith("; --undo, then --salvage, may keep some of it")
    assert said["verified"] == "1 error (batch/crc 1)"
    assert said["undo"] == f"kdump recover --undo --run 20261122T001122Z-7 -- {DIRECTORY}"
    assert labels(result._replace(left=()))["verified"] == "clean"
    # a finding that is left stands there once
    for name in ("text", "terminal"):
        assert " ".join(shown(name, result)).count("has checksum 0x00000001") == 1


def test_a_partition_without_its_metadata() -> None:
    built = plan(
        actions=(Action("delete", f"{DIRECTORY}/partition.metadata", "metadata/format", bytes=11),), lost=Lost()
    )
    assert "NAME-stray" in labels(RecoveryResult(built))["before the start"]
    assert "before the start" not in labels(RecoveryResult(plan()))


def test_what_contradicts_and_what_is_undecided() -> None:
    built = plan(conflicts=("two of them",), undecided=("one", "two"))
    said = [
        item for item in recovery.sentences(RecoveryResult(built)) if item[0] in ("contradicting batches", "undecided")
    ]
    assert said == [("contradicting batches", "two of them"), ("undecided", "one"), ("undecided", "two")]


def test_one_segment_of_several() -> None:
    built = plan(alone=True)
    assert labels(RecoveryResult(built))["copy only"].endswith("this one can only become a copy: --output DIR")
    assert "copy only" not in labels(RecoveryResult(built, True))


def test_failed_and_refused() -> None:
    result = RecoveryResult(
        plan(refusals=(("KafkaException", "x-0"),) * 2), error=KdumpError(f"{DIRECTORY}: no space left")
    )
    said = list(recovery.sentences(result))
    assert said[:2] == [
        ("failed", f"{DIRECTORY}: no space left"),
        ("refused", "Kafka 4.3 does not start on it as it is: KafkaException (x-0)"),
    ]
    assert "verified" not in labels(result)
    assert "undo" not in labels(result)


def test_nothing_to_do_is_silent() -> None:
    for name in ("text", "terminal"):
        assert shown(name, RecoveryResult(nothing()), RecoveryResult(nothing(), next=START_BROKER)) == []
    (line,) = objects(RecoveryResult(nothing()))
    assert (line["type"], line["empty"], line["log_end_offset"], line["applied"]) == ("partition", True, 30, False)


def test_a_log_directory_is_no_partition() -> None:
    root = plan(
        path="/data",
        topic_partition=None,
        actions=(Action("write", "/data/recovery-point-offset-checkpoint", "checkpoint/beyond", bytes=50),),
        segments=(),
        files={"meta.properties": Stamp(1, 2, 3)},
        log_start_offset=None,
        log_end_offset=None,
        lost=Lost(),
        not_covered=(),
        recovery_point=None,
    )
    assert list(labels(RecoveryResult(root))) == ["space"]
    assert list(labels(RecoveryResult(root, True, "r", None, (), START_BROKER))) == ["undo"]


# ---- JSON


def test_fields() -> None:
    lines = objects(RecoveryResult(plan()))
    assert [line["type"] for line in lines] == [*["action"] * 5, "not_covered", "partition"]
    assert all(list(line) == ACTION_FIELDS for line in lines[:5])
    assert list(lines[-1]) == PARTITION_FIELDS
    first = lines[0]
    assert (first["path"], first["topic"], first["partition"]) == (f"{SECOND}.log", "orders", 3)
    assert [first[name] for name in ("action", "from", "to", "because", "first_offset", "last_offset")] == [
        *("truncate", 7865, 15_730, "batch/crc", 15, 19)
    ]
    assert list(lines[5])[2:] == list(json.loads(shown_finding()))[2:]
    whole = lines[-1]
    assert whole["lost"] == {
        "given_up": {**GIVEN_UP._asdict(), "offsets": [[15, 28]], "producers": [1, 2], "transactions": [[2, 17]]},
        "damaged": {"offsets": [[29, 33]], "bytes": 158, "exact": False},
        "committed": True,
    }
    assert (whole["start"], whole["newest"]) == (None, None)
    assert whole["files"][0] == {"name": "00000000000000000010.log", "size": 15_730, "mtime_ns": 5, "inode": 7}
    assert whole["segments"] == [{"base_offset": 0, "size": 15_730}, {"base_offset": 10, "size": 7865}]
    assert (whole["undo"], whole["left"], whole["ready"], whole["error"]) == (None, None, None, None)


def shown_finding() -> str:
    stream = io.BytesIO()
    with renderer("json", stream) as out:
        out.finding(OLD)
    return stream.getvalue().decode()


def test_fields_of_what_was_done() -> None:
    info = make_finding("time/back", f"{FIRST}.log", 0, 1, count=1, largest=5, severity=Severity.WARNING)
    result = RecoveryResult(plan(undecided=("one",)), True, "r", None, (OLD, info), START_BROKER)
    lines = objects(result)
    assert [line["code"] for line in lines if line["type"] == "finding"] == ["batch/crc", "time/back"]
    whole = lines[-1]
    assert (whole["applied"], whole["undo"], whole["ready"], whole["undecided"]) == (
        True,
        "r",
        True,
        ["one"],
    )
    assert whole["left"] == {
        "by_severity": {"error": 1, "warning": 1, "info": 0},
        "by_code": {"batch/crc": 1, "time/back": 1},
    }
    failed = objects(RecoveryResult(plan(), error=KdumpError("x: locked")))[-1]
    assert (failed["applied"], failed["error"]) == (False, "x: locked")


def test_only_json_shows_what_was_asked_for() -> None:
    asked = {**RecoverOptions(now_ms=5)._asdict(), "paths": ("a", "b\udcff")}
    for name in ("text", "terminal", "json"):
        stream = io.BytesIO()
        with renderer(name, stream) as out:
            out.plan(asked)
        if name == "json":
            line = json.loads(stream.getvalue())
            assert list(line) == ["type", "schema", *RecoverOptions._fields, "paths"]
            assert line["paths"] == ["a", {"base64": "Yv8="}]
        else:
            assert stream.getvalue() == b""


# ---- terminal


def test_a_table_and_what_is_to_be_said() -> None:
    lines = shown("terminal", RecoveryResult(plan()), width=120)
    assert lines[0] == DIRECTORY
    assert lines[1].split()[:2] == ["given", "up"]  # what is lost comes first
    head = next(number for number, line in enumerate(lines) if line.startswith("action"))
    assert lines[head].split() == ["action", "file", "positions", "because", "bytes", "batches", "records", "offsets"]
    assert lines[head + 2].split() == [
        "truncate",
        "…10.log",
        "7865-15730",
        "batch/crc",
        "7865",
        "4",
        "4",
        "15..19",
    ]
    assert lines[head + 3].split() == ["rebuild", "…10.index", "batch/crc"]
    text = " ".join(" ".join(lines).split())
    for _, sentence in recovery.sentences(RecoveryResult(plan())):
        assert sentence in text
    assert re.search(r"not covered, and left as it is: \S+ \d+ error batch/crc", text)
    assert all(len(line) <= 120 for line in lines)


def test_files_of_one_cause_are_one_line() -> None:
    def gone(base: int) -> list[Action]:
        log = Action("delete", f"/d/{base:020}.log", "batch/crc", 0, 9, None, 9, 1, 2, base, base + 1)
        others = [Action("delete", f"/d/{base:020}.{kind}", "batch/crc", bytes=8) for kind in ("index", "snapshot")]
        return [log, *others]

    cut = Action("truncate", "/d/00000000000000000000.log", "batch/crc", 5, 9, None, 4, 1, 1, 0, 0)
    rebuilt = [Action("rebuild", f"/d/{0:020}.{kind}", "batch/crc", bytes=8) for kind in ("index", "timeindex")]
    marker = Action("delete", "/d/.kafka_cleanshutdown")
    listed = recovery.listed_actions([cut, *rebuilt, *gone(10), *gone(20), *gone(30), marker])
    assert listed == (
        cut,
        Action("rebuild", "/d/2 indexes of 1 segment", "batch/crc", bytes=16),
        Action("delete", "/d/3 segments with their companions", "batch/crc", None, None, None, 75, 3, 6, 10, 31),
        marker,
    )
    one = [cut, rebuilt[0], *gone(10)]
    assert recovery.listed_actions(one) == tuple(one)


@pytest.mark.parametrize("name", ["text", "json", "terminal"])
def test_nothing_reaches_a_terminal_raw(name: str) -> None:
    hostile = plan(
        path=HOSTILE,
        topic_partition=TopicPartition("a\x1b[31m\udcff", 0),
        actions=(Action("rename", f"{HOSTILE}/x\x1b.log", "file/name", target=f"{HOSTILE}/\x9by.log"),),
        files={"x\x1b\udcff.log": Stamp(1, 2, 3)},
        refusals=(("KafkaException", "x\x1b.log"),),
        undecided=("producer\x1b",),
        conflicts=("\x1b",),
        not_covered=(make_finding("file/unknown", f"{HOSTILE}/\x1b", 0, 0),),
    )
    result = RecoveryResult(hostile, True, "r", KdumpError(f"{HOSTILE}: \x1b"), (OLD,), refused("x of \x1b"))
    lines = shown(name, result)
    assert lines
    assert all(line.isprintable() for line in lines)
    if name == "json":
        assert json.loads(lines[-1])["files"][0]["name"] == {"base64": "eBv/LmxvZw=="}


# ---- the summary


def summary(**fields: Any) -> RecoverySummary:
    none = finding_totals({})
    built = RecoverySummary(
        strategy="truncate",
        applied=False,
        partitions=2,
        failed=0,
        actions={"delete": 2, "truncate": 1},
        not_covered=none,
        left=none,
        log_start_offset=None,
        log_end_offset=None,
        bytes_needed=0,
        lost=LOST,
        undo=None,
        output=None,
        next=None,
        interrupted=False,
    )
    return built._replace(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"actions": {}, "partitions": 1, "lost": Lost()}, "1 partition: nothing to do"),
        (
            {"next": "kdump recover --truncate x"},
            (
                "2 partitions: 2 delete, 1 truncate; 12 batches, 14 records, 18876 bytes would be given up; damaged "
                "offsets 29..33, next 34; COMMITTED offsets would be missing; nothing was "
                "changed\nnext: kdump recover --truncate x"
            ),
        ),
        ({"actions": {}, "partitions": 0, "lost": Lost()}, "0 partitions"),
        (
            {"applied": True, "lost": Lost()},
            "2 partitions: 2 delete, 1 truncate; no valid batch is given up; no damaged offsets known",
        ),
        (
            {
                "applied": True,
                "failed": 1,
                "left": FindingTotals({"error": 1, "warning": 2, "info": 0}, {}),
                "output": "copy",
            },
            (
                "2 partitions, 1 failed: 2 delete, 1 truncate; 12 batches, 14 records, 18876 bytes given up; damaged "
                "offsets 29..33, next 34; COMMITTED offsets are missing; left after "
                "applying: 1 error, 2 warnings; the copy is in copy"
            ),
        ),
        (
            {
                "actions": {},
                "lost": Lost(),
                "not_covered": FindingTotals({"error": 3, "warning": 0, "info": 0}, {}),
                "interrupted": True,
            },
            "interrupted: 2 partitions: nothing to do; not covered: 3 errors",
        ),
    ],
)
def test_verdict(fields: dict[str, Any], words: str) -> None:
    assert recovery.verdict(summary(**fields)) == words.partition("\n")[0]
    for name in ("text", "terminal"):
        stream = io.BytesIO()
        with renderer(name, stream, Look(width=400, color=False)) as out:
            out.recovery_summary(summary(**fields), 1, 0.5)
        assert stream.getvalue().decode() == f"{words}\n"


def test_codes_that_stand_in_plans_are_known() -> None:
    assert {action.because for action in plan().actions} <= set(CATALOGUE)
