"""Message sets that kdump writes, in the brokers of their time: loaded without a recovery, served to that time's
consumer and to a bare fetch, appended to."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.test_log_broker import OPTIONS, SIZES, Row, chunks, compare, compare_times, consume, some, text
from interop.wire import Wire
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from support import build
from support.command_runs import verified

HERE = Path(__file__).resolve().parent
PRODUCE = HERE.parents[1] / "fixtures" / "make" / "old" / "Produce.java"
CODECS = {f"{codec}-0": codec for codec in build.CODECS if codec != "zstd"}
# What they hold is years old, and nothing may be deleted by age.
SETTINGS = {
    "log.retention.hours": 876_000,
    "log.segment.bytes": 3000,
    "log.index.interval.bytes": 200,
    "log.roll.hours": 876_000,
}


class Release(NamedTuple):
    """A release, the magic that it writes, and the fetch that it understands and answers without a conversion."""

    name: str
    magic: int
    fetch: int


RELEASES = (Release("0.9.0.1", 0, 1), Release("0.10.2.2", 1, 2))


def row(record: NewRecord, offset: int, magic: int) -> Row:
    timestamp = ("-", "-") if magic == 0 else (record.timestamp_ms, "CreateTime")
    return (offset, *timestamp, text(record.key), text(record.value), "")


def append(directory: Path, magic: int, codec: str, seed: str) -> list[Row]:
    records = [one._replace(headers=()) for one in some(f"{directory.name} {seed}", 120)]
    found = []
    with Log(directory, write=True, options=OPTIONS._replace(codec=codec, magic=magic)) as log:
        for chunk in chunks(records, directory.name):
            done = log.append(chunk)
            found += [row(one, done.first_offset + at, magic) for at, one in enumerate(chunk)]
    return found


@pytest.mark.parametrize("then", RELEASES, ids=lambda then: then.name)
def test_an_old_broker_serves_what_kdump_appends(kafka: ModuleType, tmp_path: Path, then: Release) -> None:
    home = tmp_path / "broker"
    logs = home / "logs"
    expected: dict[str, list[Row]] = {}
    clean = logs / ".kafka_cleanshutdown"
    for name, codec in CODECS.items():
        (logs / name).mkdir(parents=True)
        clean.touch()
        expected[name] = append(logs / name, then.magic, codec, "before")
    assert clean.exists()
    with kafka.zookeeper_broker(home, then.name, settings=SETTINGS) as broker:
        check_no_recovery(broker)
        topics = "".join(f"topic {name.removesuffix('-0')}\n" for name in CODECS)
        own = "".join(
            f"batch {name.removesuffix('-0')} compression.type={codec}\nr - {b'key'.hex()} {b'of the broker'.hex()}\n"
            for name, codec in CODECS.items()
        )
        kafka.run_source(then.name, PRODUCE, broker.zookeeper_connect, broker.bootstrap, stdin=topics.encode())
        check(kafka, broker, then, expected)
        kafka.run_source(then.name, PRODUCE, broker.zookeeper_connect, broker.bootstrap, stdin=own.encode())
        broker.stop()
        for name, codec in CODECS.items():
            with Log(logs / name) as log:
                (last,) = log.read(len(expected[name]))
            assert last.value == b"of the broker"
            expected[name].append(row(NewRecord(last.key, last.value, (), last.timestamp), last.offset, then.magic))
            expected[name] += append(logs / name, then.magic, codec, "after")
        status, found = verified(logs)
        assert (status, [one for one in found if one["severity"] != "info"]) == (0, [])
        assert clean.exists()
        broker.server.log_path.write_bytes(b"")
        broker.start()
        check_no_recovery(broker)
        check(kafka, broker, then, expected)


def check_no_recovery(broker: Any) -> None:
    said = broker.server.log_path.read_text()
    assert not re.findall("Recovering unflushed|corrupt|Found invalid|Found a corrupted", said)


def check(kafka: ModuleType, broker: Any, then: Release, expected: dict[str, list[Row]]) -> None:
    ends = {name: len(rows) for name, rows in expected.items()}
    (got,) = consume(kafka, broker, ("read_uncommitted", ends))
    assert got.ends == ends
    assert got.records == expected
    with Wire(broker.port, then.fetch) as wire:
        for name in CODECS:
            with Log(broker.partition(name)) as log:
                assert log.end_offset == ends[name]
                compare(wire, log, name, SIZES)
                if then.magic == 1:
                    compare_times(wire, log, name)
