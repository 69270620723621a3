"""Logs of all formats that kdump converted to logs, in a broker: it loads them as after a clean stop, and again after a
crash, and serves the same records to consumers of both isolation levels; then it appends to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.clients import Client, until_made
from interop.test_live import worse_than_info
from interop.test_log_broker import Row, consume, text
from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.conversion import LogConversion
from support.command_runs import verified
from support.laws import of_the_day
from support.new_logs import batch_rows, batches, converted

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SMALL = LogOutputOptions(segment_bytes=4000, batch_bytes=500)
VARIANTS = (
    (LogOutputOptions(), "all"),
    (SMALL, "all"),
    (LogOutputOptions(codec="zstd", level=9), "all"),
    (SMALL._replace(codec="none"), "all"),
    (LogOutputOptions(codec="lz4", segment_bytes=2000), "all"),
    (SMALL, "read-committed"),
    (LogOutputOptions(codec="gzip"), "read-uncommitted"),
)
TRANSACTIONS = ("transactions", "transfers")


def directories() -> list[Path]:
    """Partitions of the fixtures, but for internal topics, which a broker has itself; every third one, or all."""
    found = {
        path.parent
        for path in FIXTURES.rglob("*.log")
        if path.parent.name.rpartition("-")[2].isdigit() and not path.parent.name.startswith("__")
    }
    usual = sorted(each for each in found if "runs-0.1.0" not in each.parts and "nested" not in each.parts)
    return of_the_day(usual, 3)


class Content(NamedTuple):
    """The records of a log: all, those that were not aborted, and where the first transaction is open."""

    all: list[Row]
    committed: list[Row]
    stable: int


def content_of(directory: Path) -> Content:
    every, committed = list[tuple[int, Row]](), list[tuple[int, Row]]()
    waiting: dict[int, list[tuple[int, Row]]] = {}
    end = 0
    for data, batch in batches(directory):
        end = batch.last_offset + 1
        found = list(batch_rows(data, batch))
        if batch.control:
            key = found[0].key if found else None
            ended = waiting.pop(batch.producer_id, [])
            committed += ended if key is not None and key[2:4] == b"\0\1" else []
            continue
        rows = []
        for one in found:
            headers = ",".join(f"{text(name)}={text(value)}" for name, value in one.headers)
            shown: Row = (one.offset, one.timestamp, one.timestamp_type, text(one.key), text(one.value), headers)
            rows.append((one.offset, shown))
        every += rows
        if not batch.is_legacy and batch.attributes & 0x10:
            waiting.setdefault(batch.producer_id, []).extend(rows)
        else:
            committed += rows
    stable = min((rows[0][0] for rows in waiting.values() if rows), default=end)
    return Content([row for _, row in every], [row for _, row in sorted(committed)], stable)


class Given(NamedTuple):
    """A partition of the broker: what it was converted from and how."""

    name: str
    source: Path
    result: LogConversion


class Loaded:
    """A broker whose partitions are converted logs."""

    def __init__(self, kafka: ModuleType, broker: Any, work: Path) -> None:
        self.kafka, self.broker = kafka, broker
        self.client = Client(kafka, broker.bootstrap)
        sources = directories()
        names = [f"c{number}-0" for number in range(len(sources))]
        self.client.make(*(f"{name[:-2]}:1:retention.ms=-1,retention.bytes=-1" for name in names))
        until_made(broker.logs, *names)
        broker.stop()
        self.given = list[Given]()
        for number, (name, source) in enumerate(zip(names, sources, strict=True)):
            options, isolation = VARIANTS[number % len(VARIANTS)]
            if any(word in source.name for word in TRANSACTIONS):
                options, isolation = VARIANTS[number % 6]
            result = converted(source, work / name, options, isolation=isolation)
            self.given.append(Given(name, source, result))
            self.put(name, Path(result.path))
        broker.start()

    def put(self, name: str, new: Path) -> None:
        """In place of the partition that the broker has, with the id that the topic has here."""
        old = self.broker.partition(name)
        metadata = (old / "partition.metadata").read_bytes()
        for path in old.iterdir():
            path.unlink()
        for path in new.iterdir():
            (old / path.name).write_bytes(path.read_bytes())
        (old / "partition.metadata").write_bytes(metadata)

    def check(self) -> None:
        """Both isolation levels give what the sources hold."""
        wanted = {each.name: self.wanted(each) for each in self.given}
        starts = {each.name: each.result.log_start_offset for each in self.given}
        ends = {each.name: each.result.log_end_offset for each in self.given}
        stable = {name: content.stable for name, content in wanted.items()}
        uncommitted, committed = consume(
            self.kafka, self.broker, ("read_uncommitted", ends), ("read_committed", stable), starts=starts
        )
        for name, content in wanted.items():
            assert uncommitted.records[name] == content.all, name
            assert committed.records[name] == [row for row in content.committed if int(str(row[0])) < content.stable], (
                name
            )
        assert uncommitted.ends == ends
        assert committed.ends == stable

    def wanted(self, given: Given) -> Content:
        content = content_of(given.source)
        if given.result.isolation == "all":
            return content
        rows = content.all if given.result.isolation == "read-uncommitted" else content.committed
        return Content(rows, rows, given.result.log_end_offset)


@pytest.fixture(scope="module")
def loaded(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    work = tmp_path_factory.mktemp("converted")
    with kafka.kraft_broker(work / "broker", settings={}) as broker:
        yield Loaded(kafka, broker, work)


def test_a_broker_serves_what_was_converted(loaded: Loaded) -> None:
    assert len(loaded.given) > 30
    assert {batch.magic for each in loaded.given for _, batch in batches(each.source)} == {0, 1, 2}
    loaded.check()
    said = loaded.broker.server.log_path.read_text()
    assert not re.search(r"Recovering unflushed segment \d+.*for c\d+-0", said)
    assert not re.search(r"partition=c\d+-0.* (corrupt|ERROR)", said)


def test_a_broker_recovers_them_after_a_crash(loaded: Loaded) -> None:
    loaded.broker.crash()
    for each in loaded.given:
        loaded.put(each.name, Path(each.result.path))
    loaded.broker.start()
    loaded.check()


def lacks_offsets(source: Path) -> bool:
    return any(finding["code"] in ("offset/gap", "segment/missing") for finding in verified(source)[1])


def test_a_broker_appends_to_them(loaded: Loaded) -> None:
    chosen = loaded.given[::5]
    names = [each.name for each in chosen]
    starts = {each.name: each.result.log_end_offset for each in chosen}
    loaded.client.write(*(f"{name}:pP2" for name in names))
    ends = {name: start + 6 for name, start in starts.items()}
    (read,) = consume(loaded.kafka, loaded.broker, ("read_uncommitted", ends), starts=starts)
    assert {name: [row[0] for row in rows] for name, rows in read.records.items()} == {
        name: list(range(start, start + 6)) for name, start in starts.items()
    }
    loaded.broker.stop()
    _, found = verified(*(loaded.broker.partition(name) for name in names))
    # The topics are new: their leader epochs are below those of the batches, and the broker drops entries of its cache.
    expected = {"txn/hanging", "epoch/checkpoint", "epoch/missing"}
    worse = worse_than_info(found)
    # Where control batches and aborted records are left out, offsets are missing; or they are missing in the source.
    thinned = {each.name for each in chosen if each.result.isolation != "all" or lacks_offsets(each.source)}
    gaps = {Path(finding["path"]).parent.name for finding in worse if finding["code"] == "offset/gap"}
    assert gaps <= thinned
    led = {
        each.name
        for each in chosen
        if any((batch.partition_leader_epoch or 0) > 0 for _, batch in batches(each.source))
    }
    back = {Path(finding["path"]).parent.name for finding in worse if finding["code"] == "epoch/backwards"}
    assert back <= led
    assert {finding["code"] for finding in worse} <= {*expected, "offset/gap", "epoch/backwards"}
