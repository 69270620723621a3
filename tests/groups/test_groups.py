"""Groups from log directories: the end and the lag of their partitions, copies, expiry, findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kdump.format.naming import TopicPartition
from kdump.groups.groups import EndSource, GroupFold, PartitionEnd
from support import build
from support.coordinator_records import MessageWriter, commit_key, commit_value
from support.group_logs import NOW_MS, checkpoint, commits, groups, log, measured, partitions, plain

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TOPIC_ID = "b4Cp498gSZKCAYrAuDdmcQ"
OTHER_ID = "ZPP8_uHfR-G-PRxc76lonQ"


def test_the_lag_is_up_to_the_high_watermark_or_the_log_end(tmp_path: Path) -> None:
    log(tmp_path, "orders-0", plain(10))
    log(tmp_path, "orders-1", plain(10))
    every = [("g", "orders", number, 4) for number in range(3)]
    log(tmp_path, "__consumer_offsets-0", commits(*every))
    checkpoint(tmp_path, {"orders-0": 8})
    found = groups(tmp_path)["g"]
    shown = [
        (each["partition"], each["committed_offset"], each["end_offset"], each["end_source"], each["lag"])
        for each in found["partitions"]
    ]
    assert shown == [(0, 4, 8, "high-watermark", 4), (1, 4, 10, "log-end", 6), (2, 4, None, None, None)]
    assert (found["lag"], found["lag_unknown"], found["ahead"]) == (10, 1, 0)


def test_a_lag_is_never_below_0(tmp_path: Path) -> None:
    log(tmp_path, "orders-0", plain(3))
    log(tmp_path, "__consumer_offsets-0", commits(("g", "orders", 0, 9)))
    result = measured(tmp_path)
    (row,) = result.sections[0].rows
    assert (dict(row.fields())["lag"], dict(row.fields())["ahead"]) == (0, 1)
    (finding,) = result.group_findings.findings
    assert (finding.code, finding.severity.word, finding.offset) == ("group/ahead", "warning", 9)
    assert finding.message == "group g has committed offset 9 of orders-0, whose log-end is 3"
    log(tmp_path, "orders-0", plain(9))
    assert measured(tmp_path).group_findings.findings == ()
    checkpoint(tmp_path, {"orders-0": 2})
    (finding,) = measured(tmp_path).group_findings.findings
    assert (finding.severity.word, finding.data["end"], finding.data["log_end"]) == ("info", 2, 9)
    assert finding.message.endswith("2; its log ends at 9, so the stored high watermark is out of date")


def test_damage_in_the_log_of_a_coordinator(tmp_path: Path) -> None:
    good = commits(("g", "orders", 0, 9))
    log(tmp_path, "__consumer_offsets-0", good[:-1] + b"\xff")
    (finding,) = measured(tmp_path).group_findings.findings
    assert (finding.code, finding.severity.word) == ("group/unread", "error")
    assert dict(finding.data) == {"damaged": 1, "undecoded": 0, "unknown": 0, "superseded": 0}
    log(tmp_path, "__consumer_offsets-0", build.batch([build.record(b"\x7f\xff", b"")]))
    (finding,) = measured(tmp_path).group_findings.findings
    assert (finding.severity.word, finding.data["unknown"]) == ("info", 1)
    log(tmp_path, "__consumer_offsets-0", good)
    assert measured(tmp_path).group_findings.findings == ()


def test_expired_and_not_yet_removed(tmp_path: Path) -> None:
    log(
        tmp_path,
        "__consumer_offsets-0",
        commits(("old", "orders", 0, 1), ("gone", "orders", 0, 1), ("gone", "orders", 0, None), time_ms=1000),
    )
    log(tmp_path, "__consumer_offsets-1", commits(("new", "orders", 0, 1), time_ms=NOW_MS - 5))
    log(tmp_path, "__consumer_offsets-2", commits(("own", "orders", 0, 1), time_ms=NOW_MS, expires_ms=NOW_MS - 1))
    found = groups(tmp_path, offsets_retention_ms=100)
    assert {name: (each["expired"], each["expires_ms"]) for name, each in found.items()} == {
        "old": (1, 1100),
        "gone": (0, None),
        "new": (0, NOW_MS + 95),
        "own": (1, NOW_MS - 1),
    }
    assert found["gone"]["tombstones"] == 1
    later = groups(tmp_path)
    assert [later["old"]["expires_ms"], later["old"]["expired"]] == [1000 + 604_800_000, 0]


def test_a_pending_commit_keeps_an_expired_offset(tmp_path: Path) -> None:
    log(
        tmp_path,
        "__consumer_offsets-0",
        commits(("g", "orders", 0, 1), time_ms=0),
        build.batch(
            [build.record(commit_key("g", "orders", 0), commit_value(7, time_ms=3))],
            base_offset=1,
            transactional=True,
            producer_id=5,
            producer_epoch=0,
        ),
    )
    (found,) = partitions(tmp_path, offsets_retention_ms=100)
    assert (found["committed_offset"], found["expires_ms"], found["expired"]) == (1, 100, False)
    assert found["pending"] == [{"producer_id": 5, "committed_offset": 7, "commit_timestamp_ms": 3}]


def test_the_most_advanced_copy_of_a_coordinator_counts(tmp_path: Path) -> None:
    behind, ahead = tmp_path / "a", tmp_path / "b"
    log(behind, "__consumer_offsets-0", commits(("g", "orders", 0, 1), ("g", "orders", 0, 2)))
    log(ahead, "__consumer_offsets-0", commits(("g", "orders", 0, 1), epoch=1))
    found = groups(behind, ahead)["g"]
    assert found["partitions"][0]["committed_offset"] == 1
    assert found["replicas"] == [str(each / "__consumer_offsets-0") for each in (ahead, behind)]
    # copies of different topics are of different clusters
    for directory, topic_id in ((behind, TOPIC_ID), (ahead, OTHER_ID)):
        (directory / "__consumer_offsets-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    rows = measured(behind, ahead).sections[0].rows
    assert sorted(row.path or "" for row in rows) == [str(each / "__consumer_offsets-0") for each in (behind, ahead)]


def test_ends_of_several_copies() -> None:
    fold, of = GroupFold(0, 0), TopicPartition("t", 0)
    copies = [(None, 9, 0), (None, 7, 1), (None, 8, 1), (5, 9, 1), (6, 9, 0), (None, 20, 3)]
    expected = [(9, "log-end"), (7, "log-end"), (8, "log-end"), (5, "high-watermark")] + [(6, "high-watermark")] * 2
    for copy, (offset, source) in zip(copies, expected, strict=True):
        fold.add_end(of, *copy)
        assert fold._ends[of][:2] == (offset, EndSource(source))
    assert fold._ends[of] == PartitionEnd(6, EndSource.HIGH_WATERMARK, 20)


def test_share_groups(tmp_path: Path) -> None:
    writer = MessageWriter("share_group_state")
    key = writer.key("ShareSnapshot", {"groupId": "s", "topicId": TOPIC_ID, "partition": 0})
    batches = [{"firstOffset": 5, "lastOffset": 6, "deliveryState": 2, "deliveryCount": 1}]
    fields = {"startOffset": 4, "deliveryCompleteCount": 2, "stateBatches": batches}
    value = writer.value("ShareSnapshot", 0, fields)
    log(tmp_path, "__share_group_state-0", build.batch([build.record(key, value)]))
    orders = log(tmp_path, "orders-0", plain(10))
    (found,) = partitions(tmp_path)
    assert (found["topic"], found["start_offset"], found["lag"]) == (TOPIC_ID, 4, None)
    (orders / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    (found,) = partitions(tmp_path)
    names = ("group", "group_type", "topic", "start_offset", "end_offset", "lag", "delivery")
    assert [found[name] for name in names] == ["s", "share", "orders", 4, 10, 4, {"acknowledged": 2}]


def test_the_groups_of_a_broker() -> None:
    """Written by `Groups.java`, which says what each group did."""
    found = groups(FIXTURES / "internal")
    shown = {
        name: (each["group_type"], each["state"], [part["committed_offset"] for part in each["partitions"]])
        for name, each in found.items()
    }
    assert shown == {
        "assigned ünïcödé": ("classic", "Empty", [4, 0]),
        "classic": ("classic", "Empty", [4, 0]),
        "deleted": (None, "Dead", []),
        "kept": ("classic", "Empty", [3]),
        "modern": ("consumer", "Empty", [4, 0]),
        "pattern": ("consumer", "Empty", [4, 0]),
        "share": ("share", "Empty", [None, None]),
        "static": ("classic", "Stable", [4, 0]),
        "transactional": ("classic", "Empty", [3]),
    }
    assert found["static"]["members"][0]["instance_id"] == "instance-1"
    assert {part["member_id"] for part in found["static"]["partitions"]} == {found["static"]["members"][0]["member_id"]}
    assert [part["topic"] for part in found["share"]["partitions"]] == ["input", "input"]
    assert [part["delivery"] for part in found["share"]["partitions"]] == [
        {"acknowledged": 7, "archived": 3},
        {"acknowledged": 4},
    ]
    assert found["kept"]["partitions"][0]["metadata"] == "by hand"
    assert (found["deleted"]["records"], found["deleted"]["tombstones"]) == (5, 3)


def test_streams_and_share_groups_of_a_broker() -> None:
    """Written by `Streams.java` and `Shares.java`, whose members stay."""
    found = groups(FIXTURES / "groups")
    streams, workers = found["streams"], found["workers"]
    assert (streams["group_type"], streams["state"], len(streams["members"])) == ("streams", "Stable", 1)
    topics = ["input", "input", "streams-counts-repartition", "streams-counts-repartition"]
    assert [each["topic"] for each in streams["partitions"]] == topics
    assert [each["lag"] for each in streams["partitions"]] == [0, 0, 0, 0]
    # a member reads them
    assert {each["expires_ms"] for each in streams["partitions"]} == {None}
    assert {each["end_source"] for group in found.values() for each in group["partitions"]} == {"high-watermark"}
    assert (workers["group_type"], workers["state"], len(workers["members"])) == ("share", "Stable", 1)
    for each in workers["partitions"]:
        complete = sum(each["delivery"].get(state, 0) for state in ("acknowledged", "archived"))
        assert each["lag"] == each["end_offset"] - each["start_offset"] - complete
    assert {each["member_id"] for each in workers["partitions"]} == {workers["members"][0]["member_id"]}


@pytest.mark.parametrize("directory", ["killed", "restarted", "leader", "follower", "v0-offsets-0.9.0.1", "crash"])
def test_log_directories_of_brokers(directory: str) -> None:
    result = measured(FIXTURES / directory)
    assert not [each for each in result.group_findings.findings if each.code == "group/unread"]
    assert result.sections[0].rows or directory == "crash"


# ---- the command


def test_the_command(kdump: Any, tmp_path: Path) -> None:
    log(tmp_path, "orders-0", plain(10))
    log(tmp_path, "__consumer_offsets-0", commits(("g\x1b[31m", "orders", 0, 4), ("h", "orders", 0, 11)))
    ran = kdump.inside("stat", "--by", "group", "--format", "json", ".")
    lines = [json.loads(line) for line in ran.lines]
    assert [line["type"] for line in lines] == ["group", "group", "finding", "total", "summary"]
    assert [line.get("group") for line in lines[:2]] == ["g\x1b[31m", "h"]
    assert ran.status == 0
    for form in ("text", "terminal", "csv"):
        ran = kdump.inside("stat", "--by", "group", "--format", form, ".")
        assert b"\x1b[31m" not in ran.out
        assert ran.status == 0
        assert (b"group/ahead" in ran.out) == (form != "csv")
    ran = kdump.inside("stat", "--by", "group_partition", "--sort", "committed_offset", "--format", "csv", ".")
    assert [line.split(",")[2] for line in ran.lines[1:]] == ["h", r"g\x1b[31m"]


def test_a_person_does_not_see_that_a_stored_high_watermark_is_old(kdump: Any, tmp_path: Path) -> None:
    log(tmp_path, "orders-0", plain(10))
    log(tmp_path, "__consumer_offsets-0", commits(("g", "orders", 0, 4)))
    checkpoint(tmp_path, {"orders-0": 3})
    assert b"group/ahead" not in kdump.inside("stat", "--by", "group", ".").out
    assert b"group/ahead" in kdump.inside("stat", "--by", "group", "--format", "json", ".").out


def test_damage_is_status_1(kdump: Any, tmp_path: Path) -> None:
    log(tmp_path, "__consumer_offsets-0", commits(("g", "orders", 0, 4))[:-1] + b"\xff")
    ran = kdump.inside("stat", "--by", "group", ".")
    assert (ran.status, b"group/unread" in ran.out) == (1, True)


def test_without_a_coordinator(kdump: Any, tmp_path: Path) -> None:
    log(tmp_path, "orders-0", plain(1))
    ran = kdump.inside("stat", "--by", "group", ".")
    assert ran.status == 0
    assert b"no partition of __consumer_offsets or __share_group_state is among the PATHs" in ran.err
    ran = kdump.inside("stat", "--offsets-retention", "1d", ".")
    assert (ran.status, b"--by group" in ran.err) == (2, True)


def test_the_state_of_a_share_group_is_not_known_without_its_coordinator() -> None:
    (found,) = groups(FIXTURES / "internal" / "__share_group_state-0").values()
    assert (found["group"], found["group_type"], found["state"]) == ("share", "share", None)
