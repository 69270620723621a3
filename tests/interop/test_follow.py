"""`kdump dump --follow` on the log directory of a broker that writes, rolls, cleans, deletes, crashes and starts again.

What was shown, with what was said to be truncated taken back, is what the broker left: nothing is missing, and nothing
came twice. The command is a process of its own, as a user runs it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from interop.clients import Client
from interop.test_convert_log import content_of
from interop.test_live import HERE, SETTINGS, TOPIC_ARGUMENTS, TOPICS, bases
from interop.test_replicas import NAME as PARTED
from interop.test_replicas import SETTINGS as UNCLEAN
from interop.test_replicas import converged

RUN_S = 10
SETTLE_S = 60
WHOLE = ("transfers-0", "transfers-1")
"""Nothing is ever deleted from these."""


class Replay:
    """The lines of a follow, as far as they have come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, dict[int, str]] = defaultdict(dict)
        self.deleted: dict[str, list[range]] = defaultdict(list)
        self.kinds: dict[str, int] = defaultdict(int)
        self.truncations: list[tuple[str, int]] = []
        self.summary: dict[str, Any] | None = None
        self._done = 0

    def read(self) -> Replay:
        with self.path.open("rb") as file:
            file.seek(self._done)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._done += whole
        for line in data[:whole].splitlines():
            self._take(json.loads(line))
        return self

    def _take(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        self.kinds[kind] += 1
        if kind == "summary":
            self.summary = line
            return
        if kind == "batch":
            assert line["crc_ok"], line
            return
        name = f"{line['topic']}-{line['partition']}"
        values = self.values[name]
        if kind == "record":
            offset = line["offset"]
            assert offset not in values, f"{name} {offset} came twice"
            assert not values or offset > next(reversed(values)), f"{name} {offset} came late"
            value = "-" if line["value"] is None else line["value"]
            values[offset] = "control" if line["control"] else value
        elif kind == "truncated":
            gone = [offset for offset in values if offset >= line["offset"]]
            assert gone, line
            self.truncations.append((name, line["offset"]))
            for offset in gone:
                del values[offset]
        elif kind == "deleted":
            self.deleted[name].append(range(line["offset"], line["log_start_offset"]))
        else:
            raise AssertionError(line)


@contextmanager
def follow(output: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "kdump", "dump", "--follow", "--format", "json", "--bytes", "hex"]
    with output.open("wb") as file, output.with_suffix(".err").open("wb") as problems:
        process = subprocess.Popen([*command, *map(str, arguments)], stdout=file, stderr=problems)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def values_of(directory: Path) -> dict[int, str]:
    return {int(str(row[0])): row[4] for row in content_of(directory).all}  # type: ignore[misc]


def committed_values(directory: Path) -> dict[int, str]:
    """The records below the last stable offset that a read-committed consumer gets."""
    content = content_of(directory)
    return {offset: row[4] for row in content.committed if (offset := int(str(row[0]))) < content.stable}  # type: ignore[misc]


def shown(replay: Replay, name: str) -> dict[int, str]:
    return {offset: value for offset, value in replay.values[name].items() if value != "control"}


def until_shown(replay: Replay, wanted: dict[str, dict[int, str]]) -> None:
    """Wait until the last record of each partition has come. A loaded machine needs a while."""
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end:
        replay.read()
        if all(max(values, default=-1) in replay.values[name] for name, values in wanted.items()):
            return
        time.sleep(0.2)


def contents(logs: Path, names: Sequence[str]) -> dict[str, dict[int, str]]:
    return {name: values_of(logs / name) for name in names}


def test_a_follow_of_a_broker_that_crashes_and_starts_again(kafka: ModuleType, tmp_path: Path) -> None:
    names = (*WHOLE, "retained-0", "trimmed-0", "compacted-0")
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        replays = [Replay(tmp_path / f"{name}.jsonl") for name in ("all", "committed", "stable")]
        committed = ("--until", "high-watermark", *(broker.logs / name for name in WHOLE))
        stable = ("--isolation", "read-committed", *(broker.logs / name for name in WHOLE))
        # it begins before there are topics, and finds them as they are made
        with follow(replays[0].path, broker.logs) as everything:
            kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, *TOPIC_ARGUMENTS)
            with follow(replays[1].path, *committed) as marked, follow(replays[2].path, *stable) as transactional:
                seen = now = {name: bases(broker.logs / name) for name in names}
                for turn in range(2):
                    with kafka.background(kafka.NEWEST, HERE / "Live.java", broker.bootstrap) as writer:
                        assert kafka.first_line(writer) == b"round 0\n"
                        began = time.monotonic()
                        while (past := time.monotonic() - began) < RUN_S / (turn + 1) or (
                            past < SETTLE_S
                            and (
                                any(len(known) < 2 for known in seen.values())
                                or not seen["retained-0"] - now["retained-0"]
                            )
                        ):
                            time.sleep(0.3)
                            now = {name: bases(broker.logs / name) for name in names}
                            seen = {name: seen[name] | now[name] for name in names}
                        assert writer.poll() is None
                        broker.crash()
                    broker.start()
                broker.stop()
                wanted = contents(broker.logs, names)
                until_shown(replays[0], wanted)
                until_shown(replays[1], {name: wanted[name] for name in WHOLE})
                decided = {name: committed_values(broker.logs / name) for name in WHOLE}
                until_shown(replays[2], decided)
                for process, replay in zip((everything, marked, transactional), replays, strict=True):
                    process.send_signal(signal.SIGINT)
                    assert process.wait(SETTLE_S) == 130
                    assert replay.read().summary is not None
    for name, known in seen.items():
        assert len(known) > 1, name  # it was rolled
    assert seen["retained-0"] - bases(tmp_path / "broker" / "logs" / "retained-0")
    for replay in replays:
        for name in WHOLE:
            assert shown(replay, name) == (decided if replay is replays[2] else wanted)[name], name
        assert "truncated" not in replay.kinds or replay is replays[0]
    assert all(0 < len(decided[name]) < len(wanted[name]) for name in WHOLE)
    everything_shown = replays[0]
    for name in ("retained-0", "trimmed-0"):
        values = shown(everything_shown, name)
        assert wanted[name].items() <= values.items(), name
        gone = everything_shown.deleted[name]
        # On a loaded machine the first segment can be gone before the new partition is found.
        missing = set(range(min(values), max(values))) - set(everything_shown.values[name])
        assert not {offset for offset in missing if not any(offset in each for each in gone)}, name
    # What the cleaner leaves has come: it removes records that a later one replaces.
    assert wanted["compacted-0"].items() <= shown(everything_shown, "compacted-0").items()
    assert replays[0].path.with_suffix(".err").read_bytes() == b""


def test_a_follow_of_a_replica_that_an_unclean_leader_election_truncates(kafka: ModuleType, tmp_path: Path) -> None:
    """The leader that is followed goes on alone, and stops; the other replica is elected without these records.

    When the first one is back, it truncates its log as a follower, and fetches others in their place.
    """
    with (
        kafka.kraft_broker(tmp_path / "first", settings=UNCLEAN) as controller,
        kafka.kraft_broker(tmp_path / "second", settings=UNCLEAN, beside=controller) as second,
        kafka.kraft_broker(tmp_path / "third", settings={**UNCLEAN, "node.id": 3}, beside=controller) as third,
    ):
        client = Client(kafka, controller.bootstrap)
        client.make("parted:1@2+3:")
        replays = [Replay(tmp_path / "all.jsonl"), Replay(tmp_path / "committed.jsonl")]
        marked = ("--until", "high-watermark", second.logs / PARTED)
        with (
            follow(replays[0].path, "--topic", "parted", second.logs) as everything,
            follow(replays[1].path, *marked) as committed,
        ):

            def shows_all() -> dict[int, str]:
                """Wait until both show what the broker has."""
                wanted, end = values_of(second.logs / PARTED), time.monotonic() + SETTLE_S
                while time.monotonic() < end:
                    if all(shown(replay.read(), PARTED) == wanted for replay in replays):
                        break
                    time.sleep(0.2)
                assert [shown(replay, PARTED) for replay in replays] == [wanted] * 2
                return wanted

            client.write(f"{PARTED}:pI3 pP2")
            assert converged(second.logs, third.logs)
            common = shows_all()
            third.stop()
            client.write(f"{PARTED}:qI2 rP3")
            alone = shows_all()
            assert [replay.truncations for replay in replays] == [[], []]
            second.stop()
            third.start()
            client.write(f"{PARTED}:sP1 tI2")
            second.start()
            assert converged(second.logs, third.logs)
            served = shows_all()
            client.write(f"{PARTED}:uP2")
            assert converged(second.logs, third.logs)
            last = shows_all()
            for process, replay in zip((everything, committed), replays, strict=True):
                process.send_signal(signal.SIGINT)
                assert process.wait(SETTLE_S) == 130
                assert replay.read().summary is not None
    assert len(common) < len(alone)
    assert common.items() < served.items() < last.items()
    assert not {offset for offset in served if offset not in common and served[offset] == alone.get(offset)}
    for replay in replays:
        assert replay.truncations == [(PARTED, max(common) + 1)]
        assert replay.kinds["record"] >= len(alone) + len(last) - len(common)
        said = replay.path.with_suffix(".err").read_text().splitlines()
        # before the broker writes its first high watermarks
        assert all(replay is replays[1] and "has no line for this partition" in line for line in said)
