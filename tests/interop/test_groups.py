"""Groups from the log directory of a broker, against what Kafka's own tools say of the running broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from support.command_runs import run_inside
from support.waits import checkpointed

HERE = Path(__file__).resolve().parent
MAKE = HERE.parents[1] / "fixtures" / "make"
CONSUMERS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARES = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
RECORDS = "30"
SETTINGS: dict[str, str | int] = {"replica.high.watermark.checkpoint.interval.ms": 300}


class Offset(NamedTuple):
    """A line of `kafka-consumer-groups.sh --describe`; numbers as it prints them, `-` for none."""

    committed: str
    end: str
    lag: str
    member_id: str


class State(NamedTuple):
    state: str
    members: str


class Tools:
    """Kafka's tools on a broker."""

    def __init__(self, kafka: ModuleType, bootstrap: str) -> None:
        self._kafka, self._bootstrap = kafka, bootstrap

    def _lines(self, main: str, *options: str) -> list[list[str]]:
        arguments = ("--bootstrap-server", self._bootstrap, "--describe", "--all-groups", *options)
        quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
        out = self._kafka.java(self._kafka.NEWEST, main, *arguments, flags=quiet).stdout.decode()
        lines = [line.split() for line in out.splitlines()]
        return [words for words in lines if words and words[0] != "GROUP" and words[-1] != "members."]

    def offsets(self) -> dict[tuple[str, str, int], Offset]:
        found = {}
        for words in self._lines(CONSUMERS, "--offsets"):
            group, (topic, partition, committed, end, lag, member, _, _) = " ".join(words[:-8]), words[-8:]
            found[group, topic, int(partition)] = Offset(committed, end, lag, member)
        return found

    def states(self) -> dict[str, State]:
        found = {}
        for words in self._lines(CONSUMERS, "--state"):
            at = next(index for index, word in enumerate(words) if word.startswith("127.0.0.1:"))
            found[" ".join(words[:at])] = State(words[-2], words[-1])
        return found

    def share_offsets(self) -> dict[tuple[str, str, int], tuple[str, str]]:
        """Start offset and lag."""
        found = {}
        for group, topic, partition, start, lag, *_ in self._lines(SHARES, "--offsets"):
            found[group, topic, int(partition)] = start, lag
        return found

    def streams_lags(self) -> dict[tuple[str, str, int], str]:
        return {
            (group, topic, int(partition)): lag for group, topic, partition, lag in self._lines(STREAMS, "--offsets")
        }

    def streams_states(self) -> dict[str, State]:
        return {words[0]: State(*words[-2:]) for words in self._lines(STREAMS, "--state")}


def groups(directory: Path) -> list[dict[str, Any]]:
    ran = run_inside(directory, "stat", "--by", "group", "--format", "json", ".")
    assert ran.status == 0, ran.problems
    found = [json.loads(line) for line in ran.lines]
    assert not [line for line in found if line["type"] == "finding"]
    return [line for line in found if line["type"] == "group"]


def word(number: int | str | None) -> str:
    return "-" if number is None else str(number)


def offsets(found: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], Offset]:
    return {
        (group["group"], each["topic"], each["partition"]): Offset(
            *(word(each[name]) for name in ("committed_offset", "end_offset", "lag", "member_id"))
        )
        for group in found
        for each in group["partitions"]
        if group["group_type"] != "share" and (each["committed_offset"] is not None or each["member_id"] is not None)
    }


def states(found: Sequence[dict[str, Any]]) -> dict[str, State]:
    return {
        group["group"]: State(group["state"], str(len(group["members"])))
        for group in found
        if group["group_type"] not in ("share", None)
    }


def test_groups_of_a_broker(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        kafka.run_source(kafka.NEWEST, MAKE / "Topics.java", broker.bootstrap, "input:2:", "more:3:")
        kafka.run_source(kafka.NEWEST, MAKE / "Groups.java", broker.bootstrap, "input")
        tools = Tools(kafka, broker.bootstrap)
        with kafka.background(kafka.NEWEST, HERE / "GroupsAtWork.java", broker.bootstrap, "input") as members:
            assert kafka.first_line(members) == b"ready\n"
            checkpointed(broker.logs)
            theirs, said, shared = tools.offsets(), tools.states(), tools.share_offsets()
            found = groups(broker.logs)
            broker.crash()
        assert offsets(found) == theirs
        assert states(found) == said
        assert {name for name, _, _ in theirs} >= {"classic", "modern", "live-classic", "live-modern", "open"}
        assert all(each.member_id != "-" for (name, _, _), each in theirs.items() if name.startswith("live"))
        ours = {group["group"]: group for group in found}
        (waits,) = ours["open"]["partitions"]
        assert (waits["committed_offset"], [each["committed_offset"] for each in waits["pending"]]) == (1, [2])
        assert shared
        for (group, topic, partition), (start, lag) in shared.items():
            (own,) = (
                each for each in ours[group]["partitions"] if (each["topic"], each["partition"]) == (topic, partition)
            )
            assert (word(own["start_offset"]), word(own["lag"])) == (start, lag)
        # the log directory of the broker that was killed says the same
        assert offsets(groups(broker.logs)) == theirs
        broker.start()


def test_streams_and_share_groups_of_a_broker(kafka: ModuleType, tmp_path: Path) -> None:
    settings = {**SETTINGS, "share.coordinator.snapshot.update.records.per.snapshot": 3}
    streams = f"org.apache.kafka:kafka-streams:{kafka.NEWEST}"
    with kafka.kraft_broker(tmp_path / "broker", settings=settings) as broker:

        def run(program: str, *arguments: str, extra: tuple[str, ...] = ()) -> None:
            kafka.run_source(kafka.NEWEST, MAKE / f"{program}.java", broker.bootstrap, *arguments, extra=extra)

        run("Topics", "input:2:", "counted:1:")
        run("Numbered", "input", RECORDS, "10")
        run("Streams", "input", str(tmp_path / "state"), RECORDS, extra=(streams,))
        run("Shares", "input", RECORDS)
        tools = Tools(kafka, broker.bootstrap)
        lags, said, shared = tools.streams_lags(), tools.streams_states(), tools.share_offsets()
        checkpointed(broker.logs)
        found = groups(broker.logs)
    assert states(found) == said
    assert {key: each.lag for key, each in offsets(found).items()} == lags
    assert len(lags) == 4
    ours = {
        (group["group"], each["topic"], each["partition"]): (word(each["start_offset"]), word(each["lag"]))
        for group in found
        for each in group["partitions"]
        if group["group_type"] == "share"
    }
    assert ours == shared
    assert len(shared) == 2
