"""Logs that a DataFrame became, in a broker: it loads them as after a clean stop, serves them, and appends to them."""

from __future__ import annotations

import datetime
import re
import shutil
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from interop.clients import Client, until_made
from interop.test_live import worse_than_info
from interop.test_log_broker import Row, consume, some
from interop.test_log_broker import row as shown
from kdump.errors import KdumpError
from support.command_runs import verified
from support.spark_write import schema, write, writer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd:5")
ALL = "key value headers topic partition offset timestamp"
COMPACTED = 3  # of so many offsets one is missing where offsets are given


def test_a_broker_loads_serves_and_continues_what_was_written(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings={}) as broker:
        client = Client(kafka, broker.bootstrap)
        client.make(*(f"w{number}:2:retention.ms=-1" for number in range(len(CODECS))))
        until_made(broker.logs, *(f"w{number}-{part}" for number in range(len(CODECS)) for part in range(2)))
        with pytest.raises(KdumpError, match="another process holds the lock, probably a running broker"):
            writer(schema("value topic"), broker.partition("w0-0").parent)
        broker.stop()
        directory, expected = broker.partition("w0-0").parent, dict[str, list[Row]]()
        for number, codec in enumerate(CODECS):
            expected |= put(directory, f"w{number}", codec, keeps_offsets=number % 2 == 0)
        _, found = verified(*(directory / name for name in expected))
        assert {finding["code"] for finding in worse_than_info(found)} <= {"offset/gap"}  # the offsets that are given
        broker.start()
        ends = {name: int(str(rows[-1][0])) + 1 for name, rows in expected.items()}
        starts = {name: int(str(rows[0][0])) for name, rows in expected.items()}
        (read,) = consume(kafka, broker, ("read_committed", ends), starts=starts)
        assert read.records == expected
        assert read.ends == ends
        said = broker.server.log_path.read_text()
        assert not re.search(r"Recovering unflushed segment \d+.*for w\d+-\d", said)
        assert not re.search(r"(partition=w\d+-\d.* (corrupt|ERROR)|Found stray log dir.*w\d+-\d)", said)
        client.write(*(f"{name}:pP2" for name in ends))
        (more,) = consume(
            kafka, broker, ("read_uncommitted", {name: end + 6 for name, end in ends.items()}), starts=ends
        )
        assert all(len(rows) == 6 for rows in more.records.values())
        broker.stop()
        _, found = verified(*(directory / name for name in expected))
        assert {finding["code"] for finding in worse_than_info(found)} <= {"offset/gap", "epoch/checkpoint"}


def put(directory: Path, topic: str, codec: str, *, keeps_offsets: bool) -> dict[str, list[Row]]:
    """Write a topic of two partitions in place of the empty one that the broker made; what a consumer gets of it."""
    metadata = (directory / f"{topic}-0" / "partition.metadata").read_text()
    topic_id = metadata.rpartition("topic_id: ")[2]
    expected: dict[str, list[Row]] = {}
    tasks = []
    for partition in range(2):
        shutil.rmtree(directory / f"{topic}-{partition}")
        name, records = f"{topic}-{partition}", some(f"{topic} {partition}", 300)
        step = COMPACTED if keeps_offsets else 1
        first = 1000 if keeps_offsets else 0
        offsets = [first + at * step for at in range(len(records))]
        expected[name] = [shown(one, offset, one.timestamp_ms) for one, offset in zip(records, offsets, strict=True)]
        rows = [
            (
                one.key,
                one.value,
                [{"key": key, "value": value} for key, value in one.headers],
                topic,
                partition,
                offset,
                datetime.datetime.fromtimestamp(one.timestamp_ms / 1000, datetime.UTC),
            )
            for one, offset in zip(records, offsets, strict=True)
        ]
        tasks += [rows[:150], rows[150:]]
    columns = ALL if keeps_offsets else ALL.replace(" offset", "")
    if not keeps_offsets:
        tasks = [[(*row[:5], row[6]) for row in rows] for rows in tasks]
    options = {"codec": codec, "batchBytes": "2000", "segmentBytes": "9000"}
    types = schema(columns, value=pa.binary())
    write(columns, tasks, directory, types=types, size=64, topicIds=f'{{"{topic}":"{topic_id}"}}', **options)
    return expected
