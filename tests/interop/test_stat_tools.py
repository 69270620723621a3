"""What stat says of the log directory of a broker, while it runs and after a clean stop, and what its own tools say.

The topics have every codec, idempotent and transactional producers, transactions that stay open, records that the log
cleaner and DeleteRecords took, and segments of 2 KB. Nobody writes while the numbers are compared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import kdump
from interop.broker_numbers import Answer, asked, fill
from interop.clients import Client
from kdump.format.checkpoint import offset_entries
from kdump.stat.values import CODECS, PartitionStatistics, StatOptions

LIMIT_S = 20.0
SETTINGS: dict[str, str | int] = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 2_000_000,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 300,
}
SMALL = "internal.segment.bytes=2000,file.delete.delay.ms=100"
CODEC_TOPICS = CODECS[1:5]
TOPICS = {
    "plain": f"3:{SMALL}",
    "empty": f"1:{SMALL}",
    **dict.fromkeys(CODEC_TOPICS, f"2:{SMALL}"),
    "transfers": f"3:{SMALL}",
    "compacted": f"2:{SMALL},cleanup.policy=compact,min.cleanable.dirty.ratio=0.01",
    "trimmed": f"1:{SMALL}",
    "emptied": f"1:{SMALL}",
}
FILLED = (
    "plain:none:false",
    *(f"{codec}:{codec}:true" for codec in CODEC_TOPICS),
    "compacted:lz4:true",
    "trimmed:none:true:117",
    "emptied:none:true:-1",
)
WRITTEN = (
    "transfers-0:aC2 bA1 aC1 cO2 bC2 aC3 dI3 eP2",
    "transfers-1:aC1 bC2 bA2 eP2 fA9 bC1",
    "transfers-2:bA9 bC1 dI1 hO2 bC1 cO1",
    "compacted-0:aC2 bA3 aC1 eI3",
)
"""Steps of Client.java. What `c` and `h` begin has no end, and nothing is aborted after it."""


def is_settled(logs: Path) -> bool:
    """Whether the cleaner has come to the active segments, what is below the log start offsets is deleted, and these
    are in their checkpoint."""

    def entries(name: str) -> dict[str, int]:
        path = logs / name
        known = offset_entries(path.read_bytes()) if path.exists() else ()
        return {f"{entry.topic}-{entry.partition}": entry.offset for entry in known}

    cleaned, starts = entries("cleaner-offset-checkpoint"), entries("log-start-offset-checkpoint")

    def bases(name: str) -> list[int]:
        return sorted(int(path.stem) for path in (logs / name).glob("*.log"))

    return all(cleaned.get(name) == bases(name)[-1] for name in ("compacted-0", "compacted-1")) and all(
        all(base > starts.get(name, -1) > 0 for base in [*bases(name), 1 << 40][1:2])
        for name in ("trimmed-0", "emptied-0")
    )


def measured(logs: Path, *, deep: bool = False) -> dict[str, PartitionStatistics]:
    found = {}
    for each in kdump.stat_logs(kdump.discover([str(logs)]), StatOptions(deep=deep)):
        if isinstance(each, PartitionStatistics) and each.topic not in (None, "__cluster_metadata"):
            assert each.damage.count == 0
            found[f"{each.topic}-{each.partition}"] = each
    return found


def check(name: str, ours: PartitionStatistics, theirs: Answer) -> None:
    assert theirs["read_uncommitted_missing"] == theirs["read_committed_missing"] == 0, name
    assert (ours.log_start_offset, ours.log_end_offset) == (theirs["earliest"], theirs["latest"]), name
    assert sum(segment.size_bytes for segment in ours.segments) == theirs["size"], name
    check_times(name, ours, theirs)
    # What lies below the log start offset in the first segment is stored, and no consumer gets it.
    below = theirs["earliest"] - (ours.segments[0].base_offset or 0)
    assert ours.totals.records is not None
    records = ours.totals.records - below
    assert records == theirs["read_uncommitted"], name
    aborted = ours.totals.aborted_records
    assert records - aborted - theirs["read_uncommitted_from_stable"] == theirs["read_committed"], name
    check_producers(name, ours, theirs)
    if ours.records is not None and not below:
        opened = ours.records
        assert opened.records == theirs["read_uncommitted"], name
        assert opened.key_sizes.sum == theirs["read_uncommitted_key_bytes"], name
        assert opened.value_sizes.sum == theirs["read_uncommitted_value_bytes"], name
        assert opened.shapes.null.records == theirs["read_uncommitted_null_values"], name


def check_times(name: str, ours: PartitionStatistics, theirs: Answer) -> None:
    """The broker has no offset for a timestamp of a batch that the cleaner left without records."""
    largest = ours.totals.largest_timestamp
    if theirs["max_timestamp"] >= 0:
        assert largest == theirs["max_timestamp"], name
    elif name == "compacted-0":
        assert largest == max(row.last_timestamp for row in ours.producers)
    else:
        assert (name, largest) == ("empty-0", None)


def check_producers(name: str, ours: PartitionStatistics, theirs: Answer) -> None:
    assert ours.transactions.open == len(theirs.starts), name
    assert ours.transactions.first_open_offset == min(theirs.starts, default=None), name
    assert (ours.transactions.first_open_offset or ours.log_end_offset) == theirs["stable"], name
    own = {row.producer_id: row for row in ours.producers}
    for number, one in theirs.producers.items():
        row = own.pop(number, None)
        if one.sequence >= 0:
            assert row is not None, name
            assert (row.epoch, row.last_timestamp) == (one.epoch, one.timestamp), name
        elif row is None:
            assert ours.topic == "compacted", name  # rows are about data, of which the cleaner left nothing
        else:
            assert row.epoch + 1 == one.epoch, name
            assert row.last_timestamp <= one.timestamp, name
    assert not own, name


def check_history(found: dict[str, PartitionStatistics]) -> None:
    """What was done to the topics is what was meant to be done."""
    for argument in WRITTEN:
        name, steps = argument.split(":")
        ended = found[name].transactions
        assert (ended.committed, ended.aborted) == (steps.count("C"), steps.count("A")), name
    assert {name: one.transactions.open for name, one in found.items() if one.transactions.open} == {
        "transfers-0": 1,
        "transfers-2": 2,
    }
    for name, one in found.items():
        assert len(one.segments) > 1 or one.topic in ("empty", "emptied", "__transaction_state"), name
        held = {codec for codec, volume in zip(CODECS, one.totals.by_codec, strict=True) if volume.bytes}
        assert one.topic not in CODEC_TOPICS or held == {one.topic}, name
        if one.topic == "compacted":
            assert (one.absent or 0) > 100, name
            assert one.totals.compacted, name


def check_command(logs: Path, answers: dict[str, Answer]) -> None:
    """The same numbers in the lines of the command."""
    command = (sys.executable, "-P", "-m", "kdump", "stat", "--format", "json", "--by", "partition", "--no-progress")
    done = subprocess.run([*command, logs], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    lines: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    rows = {f"{row['topic']}-{row['partition']}": row for row in lines if row["type"] == "partition"}
    for name, theirs in answers.items():
        row = rows[name]
        assert (row["log_start_offset"], row["log_end_offset"]) == (theirs["earliest"], theirs["latest"]), name
        assert row["log_bytes"] == theirs["size"], name
        assert (row["transactions"]["open"], row["first_open_offset"]) == (
            len(theirs.starts),
            min(theirs.starts, default=None),
        ), name
        assert row["records"] - row["aborted_records"] >= theirs["read_committed"], name


def test_the_numbers_are_those_of_the_tools_of_the_broker(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        client = Client(kafka, broker.bootstrap)
        client.make(*(f"{name}:{rest}" for name, rest in TOPICS.items()))
        client.write(*WRITTEN)
        fill(kafka, broker.bootstrap, *FILLED)
        end = time.monotonic() + LIMIT_S
        while not is_settled(broker.logs) and time.monotonic() < end:
            time.sleep(0.1)
        assert is_settled(broker.logs)
        answers, states = asked(kafka, broker.bootstrap, *TOPICS, "__transaction_state")
        assert states.count("Ongoing") == 2
        live = measured(broker.logs)
        check_command(broker.logs, answers)
        broker.stop()
        stopped = measured(broker.logs, deep=True)
        for found in (live, stopped):
            assert found.keys() == answers.keys()
            for name, theirs in answers.items():
                check(name, found[name], theirs)
            check_history(found)
        assert {name: one.high_watermark for name, one in stopped.items()} == {
            name: theirs["latest"] for name, theirs in answers.items()
        }
