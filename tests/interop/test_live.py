"""The log directory of a broker that writes, rolls, cleans and deletes is verified again and again: nothing is wrong in
it.

The broker is a released one, on the loopback, with segments of a few KiB. What `verify` says while it runs, after it
was killed, and after it has recovered and stopped cleanly, is explained by that history alone.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kdump.errors import SourceError
from kdump.format.internal_topics import transaction_state
from kdump.log.damage import DamagedRange
from kdump.writer.log import Log
from support.command_runs import verified

HERE = Path(__file__).resolve().parent
TOPICS = HERE.parents[1] / "fixtures" / "make" / "Topics.java"
RUN_S = 14
LIMIT_S = 120

SETTINGS: dict[str, str | int] = {
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 1000,
    "log.flush.offset.checkpoint.interval.ms": 700,
    "log.flush.start.offset.checkpoint.interval.ms": 700,
    "replica.high.watermark.checkpoint.interval.ms": 700,
    "metadata.log.max.record.bytes.between.snapshots": 4000,
    "internal.metadata.log.segment.bytes": 8192,
    "metadata.max.idle.interval.ms": 500,
}
SMALL = "internal.segment.bytes=8192,index.interval.bytes=512,file.delete.delay.ms=1000"
CLEANED = f"{SMALL},cleanup.policy=compact,min.cleanable.dirty.ratio=0.01,delete.retention.ms=500"
TOPIC_ARGUMENTS = (
    f"transfers:2:{SMALL}",
    f"retained:1:{SMALL},retention.bytes=20000",
    f"trimmed:1:{SMALL}",
    f"compacted:1:{CLEANED}",
)
MOVED = ("transfers", "retained", "compacted")


def is_of_the_end(finding: dict[str, Any]) -> bool:
    """Whether a broker leaves this that stops in the middle of its work.

    A topic that it moved may be in its new directory, and the controller may not know it yet (KIP-858).
    """
    return finding["code"] == "file/leftover" or (finding["code"] == "metadata/directory" and finding["topic"] in MOVED)


def worse_than_info(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [finding for finding in found if finding["severity"] != "info"]


def reported(found: Sequence[dict[str, Any]], directory: Path) -> str:
    return "\n".join(json.dumps(finding).replace(f"{directory}/", "") for finding in found)


def bases(directory: Path) -> set[int]:
    return {int(path.stem) for path in directory.glob("*.log")}


def read_everything(directory: Path, known: dict[int, bytes | None]) -> None:
    """Every record from the first to the last, once, and as it was read before."""
    with Log(directory) as log:
        start, end, values = log.start_offset, log.end_offset, {}
        damage: list[DamagedRange] = []
        gone = ""
        try:
            for record in log.records(control=True, on_damage=damage.append):
                assert record.offset == start + len(values), directory.name
                values[record.offset] = record.value
        except SourceError as error:
            gone = str(error)
    if gone:
        assert "no such file" in gone  # retention deleted the segment since
    else:
        assert start + len(values) == end, directory.name
        assert not damage, directory.name
    assert not known or max(known) < end, directory.name
    assert {offset: known[offset] for offset in values if offset in known}.items() <= values.items(), directory.name
    known |= values


def hangs(logs: Path) -> bool:
    """Whether the broker has not yet ended a transaction that its writer left open."""
    return any(finding["code"] == "txn/hanging" for finding in verified(logs)[1])


def was_prepared(logs: Path, producer_id: int, crashed_ms: int) -> bool:
    """Whether the markers of a producer's transaction were due when the broker was killed."""
    with Log(logs / "__transaction_state-0") as log:
        values = [
            transaction_state.decode_value(record.value) for record in log.records() if record.timestamp <= crashed_ms
        ]
    states = [each.transaction_status for each in values if each is not None and each.producer_id == producer_id]
    prepared = (transaction_state.TransactionState.PrepareCommit, transaction_state.TransactionState.PrepareAbort)
    return bool(states) and states[-1] in prepared


def test_a_broker_at_work(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, *TOPIC_ARGUMENTS)
        with kafka.background(kafka.NEWEST, HERE / "Live.java", broker.bootstrap) as writer:
            assert kafka.first_line(writer) == b"round 0\n"
            seen = {name: bases(broker.partition(name)) for name in ("retained-0", "trimmed-0", "compacted-0")}
            read: dict[str, dict[int, bytes | None]] = {name: {} for name in ("transfers-0", "retained-0", "trimmed-0")}
            began = time.monotonic()
            runs = 0
            while (past := time.monotonic() - began) < RUN_S or (
                # A loaded machine needs longer for as many runs, and for what they have to meet.
                past < LIMIT_S
                and (runs < 5 or any(known <= bases(broker.partition(name)) for name, known in seen.items()))
            ):
                for options in ((), ("--live",)):
                    status, found = verified(broker.logs, options=options)
                    wrong = worse_than_info(found)
                    assert (status, wrong) == (0, []), reported(wrong, broker.logs)
                    runs += 1
                for name, known in seen.items():
                    known |= bases(broker.partition(name))
                for name, values in read.items():
                    read_everything(broker.partition(name), values)
            assert writer.poll() is None
            broker.crash()
            crashed_ms = time.time_ns() // 1_000_000
        # segments were rolled and went away, by retention, by deletion of records and by the cleaner, between the runs
        assert runs > 4
        for name, known in seen.items():
            assert len(known) > len(bases(broker.partition(name))) > 0, name

        status, found = verified(broker.logs)
        # indexes keep the size they were made with, and what was to be deleted is still there
        wrong = [finding for finding in worse_than_info(found) if finding["code"] != "file/leftover"]
        assert (status, wrong) == (0, []), reported(wrong, broker.logs)
        assert {"index/padding", "timeindex/padding"} <= {finding["code"] for finding in found}

        broker.start()
        end = time.monotonic() + LIMIT_S
        while (any(broker.logs.rglob("*.deleted")) or hangs(broker.logs)) and time.monotonic() < end:
            time.sleep(0.5)
        broker.stop()
        status, found = verified(broker.logs)
        # A broker of 4.3.1 that was killed after PrepareCommit and before its markers can write CompleteCommit after
        # its start and never the markers: the transaction hangs, as kdump says.
        wrong = [
            finding
            for finding in worse_than_info(found)
            if finding["code"] != "txn/hanging"
            or not was_prepared(broker.logs, finding["data"]["producer_id"], crashed_ms)
        ]
        assert (status, wrong) == (0, []), reported(wrong, broker.logs)
        assert "index/padding" not in {finding["code"] for finding in found}


def test_topics_come_and_go(kafka: ModuleType, tmp_path: Path) -> None:
    directories = [tmp_path / "broker" / name for name in ("logs", "more")]
    settings = {**SETTINGS, "log.dirs": ",".join(map(str, directories)), "log.retention.ms": 5000}
    with kafka.kraft_broker(tmp_path / "broker", settings=settings) as broker:
        kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, *TOPIC_ARGUMENTS)
        with contextlib.ExitStack() as running:
            writer = running.enter_context(kafka.background(kafka.NEWEST, HERE / "Live.java", broker.bootstrap))
            assert kafka.first_line(writer) == b"round 0\n"
            churn = kafka.background(kafka.NEWEST, HERE / "Churn.java", broker.bootstrap, *directories, *MOVED)
            mover = running.enter_context(churn)
            assert kafka.first_line(mover) == b"turn 0\n"
            began = time.monotonic()
            while time.monotonic() - began < RUN_S:
                status, found = verified(*directories)
                wrong = worse_than_info(found)
                assert (status, wrong) == (0, []), reported(wrong, tmp_path)
            assert mover.poll() is None
    status, found = verified(*directories)
    wrong = [finding for finding in worse_than_info(found) if not is_of_the_end(finding)]
    assert (status, wrong) == (0, []), reported(wrong, tmp_path)
