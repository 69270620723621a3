"""A stream over the log directory of a broker that writes, rolls, deletes, crashes and starts again.

Each record that is committed comes once, in the order of its partition, also where a query ends and goes on from its
checkpoint.

The reader is called as Spark calls it; tests/spark has it in Spark.
"""

from __future__ import annotations

import random
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interop.test_convert_log import content_of
from interop.test_live import HERE, SETTINGS, TOPIC_ARGUMENTS, TOPICS
from kdump.errors import KdumpError
from support.spark_stream import StreamQuery, as_json

RUN_S = 10
SETTLE_S = 30
QUERIES = {
    "uncommitted": {"subscribe": "transfers"},
    "committed": {"subscribe": "transfers", "kafka.isolation.level": "read_committed"},
    "limited": {"subscribe": "transfers", "maxOffsetsPerTrigger": "50"},
    "retained": {"subscribe": "retained,trimmed", "failOnDataLoss": "false"},
    "compacted": {"subscribe": "compacted"},
}

Row = tuple[Any, ...]


def begun(directory: Path, options: dict[str, str]) -> StreamQuery:
    """A query from the first record on, as soon as the broker has made the logs and written its checkpoint."""
    end = time.monotonic() + SETTLE_S
    while True:
        try:
            return StreamQuery(directory, startingOffsets="earliest", **options)
        except KdumpError as error:
            if not re.search("has no line|no topic", str(error)) or time.monotonic() > end:
                raise
            time.sleep(0.2)


# Its failOnDataLoss is false: what retention takes before it was read is a warning, and a slow machine sees some.
@pytest.mark.filterwarnings("ignore:Partition (trimmed|retained)-0 offset was changed:kdump.log.records.DamageWarning")
def test_a_stream_over_a_broker_at_work(kafka: ModuleType, tmp_path: Path) -> None:
    rng = random.Random(7)
    found: dict[str, list[Row]] = {name: [] for name in QUERIES}
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, *TOPIC_ARGUMENTS)
        queries = {name: begun(broker.logs, options) for name, options in QUERIES.items()}

        def go_on() -> None:
            for name, options in QUERIES.items():
                if rng.random() < 0.2:
                    checkpoint = as_json(queries[name].checkpoint)
                    queries[name] = StreamQuery(broker.logs, checkpoint=checkpoint, **options)
                found[name] += queries[name].batch() or ()

        with kafka.background(kafka.NEWEST, HERE / "Live.java", broker.bootstrap) as writer:
            assert kafka.first_line(writer) == b"round 0\n"
            began = time.monotonic()
            while (past := time.monotonic() - began) < RUN_S or (segments(broker.logs) < 3 and past < SETTLE_S):
                go_on()
            assert writer.poll() is None
            broker.crash()
        go_on()
        broker.start()
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            go_on()
        broker.stop()  # writes the checkpoints
        for name, query in queries.items():
            found[name] += query.rest()
        check(found, broker.logs)


def segments(logs: Path) -> int:
    return len(list((logs / "transfers-0").glob("*.log")))


def check(found: dict[str, list[Row]], logs: Path) -> None:
    assert segments(logs) > 1
    for number in range(2):
        directory = logs / f"transfers-{number}"
        content = content_of(directory)
        values = {int(str(row[0])): str(row[4]) for row in content.all}
        committed = [int(str(row[0])) for row in content.committed]
        assert len(committed) < len(values)
        for name in ("uncommitted", "limited"):
            rows = [row for row in found[name] if row[1] == number]
            assert [row[2] for row in rows] == list(values), name
            assert [row[3].hex() for row in rows] == list(values.values()), name
        rows = [row for row in found["committed"] if row[1] == number]
        assert [row[2] for row in rows] == [offset for offset in committed if offset < content.stable]
    for name in ("retained", "compacted"):
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset, _ in found[name]:
            offsets.setdefault((topic, partition), []).append(offset)
        assert all(each == sorted(set(each)) for each in offsets.values()), name
        assert offsets
    # What the cleaner leaves has come: it removes records that a later one replaces.
    left = {int(str(row[0])) for row in content_of(logs / "compacted-0").all}
    assert left <= {row[2] for row in found["compacted"]}
