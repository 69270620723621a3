"""Logs that kdump writes, in a broker: it loads them without a recovery, serves every record to a consumer and to a
bare fetch, and appends to them; and kdump appends to what the broker wrote.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop import appends
from interop.clients import Client
from interop.test_live import SETTINGS, worse_than_info
from interop.wire import Wire, whole
from kdump.errors import KdumpError, OffsetOutOfRange
from kdump.format.checkpoint import offset_entries
from kdump.format.control import ControlType
from kdump.writer.builder import NewRecord, marker
from kdump.writer.log import Log
from kdump.writer.options import LogOptions
from support import build, oracle
from support.command_runs import verified

HERE = Path(__file__).resolve().parent
NOW_MS = int(time.time() * 1000)
FETCH = 4
OUT_OF_RANGE = 1
TRANSACTIONAL = 0x10
SMALL = "internal.segment.bytes=3000,index.interval.bytes=200"
OPTIONS = LogOptions(segment_bytes=3000, index_interval_bytes=200)
CODECS = {f"codecs-{number}": codec for number, codec in enumerate(build.CODECS)}
PRODUCED = ("producers-0", "producers-1")
PARTITIONS = (*CODECS, *PRODUCED)
# Written by the broker's own producers, between kdump's.
AFTERWARDS = "iI2 aC1 bA1 xC1"
SIZES = (60, 500, 1 << 20)
OFFSETS = 50  # of each log
TIMES = 40

KILLED_AFTER = 300
APPENDS = """
import sys
sys.path.insert(0, sys.argv[1])
from interop.test_log_broker import OPTIONS, some
from kdump.writer.log import Log
log = Log(sys.argv[2], write=True, options=OPTIONS)
for record in some("killed", 100_000):
    print(log.append([record]).last_offset, flush=True)
"""

Row = tuple[object, ...]


class Consumed(NamedTuple):
    """What a consumer got, by partition, and where it ended."""

    records: dict[str, list[Row]]
    ends: dict[str, int]


def text(field: bytes | None) -> str:
    return "-" if field is None else field.hex() or '""'


def row(record: oracle.Record | NewRecord, offset: int, timestamp: int) -> Row:
    headers = ",".join(f"{text(name)}={text(value)}" for name, value in record.headers)
    return (offset, timestamp, "CreateTime", text(record.key), text(record.value), headers)


def consume(
    kafka: ModuleType, broker: Any, *consumers: tuple[str, dict[str, int]], starts: Mapping[str, int] | None = None
) -> list[Consumed]:
    """What consumers get, each with its isolation level and the offsets that it reads to, from 0 or `starts` on."""
    given: list[str] = []
    for isolation, ends in consumers:
        given += ["then", isolation, *(f"{name}:{(starts or {}).get(name, 0)}:{end}" for name, end in ends.items())]
    out = kafka.run_source(broker.release, HERE / "Consumed.java", broker.bootstrap, *given[1:]).stdout.decode()
    parts = out.split("then\n")
    assert parts.pop() == ""
    return [consumed(part.splitlines(), ends) for part, (_, ends) in zip(parts, consumers, strict=True)]


def consumed(lines: Sequence[str], ends: dict[str, int]) -> Consumed:
    found = Consumed({name: [] for name in ends}, {})
    for line in lines:
        name, offset, *fields = line.split(" ")
        if offset == "end":
            found.ends[name] = int(fields[0])
        else:
            timestamp, *rest = fields
            found.records[name].append((int(offset), timestamp if timestamp == "-" else int(timestamp), *rest))
    return found


def some(seed: str, count: int) -> list[NewRecord]:
    """Records with and without keys, values, headers and times, some of them of bytes that do not compress."""
    rng = random.Random(seed)
    return [
        NewRecord(
            rng.choice((None, b"", b"key %d" % number)),
            rng.choice((None, b"", b"value " * rng.randrange(60), rng.randbytes(rng.randrange(200)))),
            [(b"name", b"\xff\0"), (b"name", None), (b"", b"")][: rng.randrange(4)],
            NOW_MS - 10_000_000 + number * 1000 + rng.randrange(5000),
        )
        for number in range(count)
    ]


def chunks(records: Sequence[NewRecord], seed: str) -> Iterator[Sequence[NewRecord]]:
    rng = random.Random(seed)
    at = 0
    while at < len(records):
        count = rng.randint(1, 12)
        yield records[at : at + count]
        at += count


class Place:
    """A broker, and what was appended to its partitions."""

    def __init__(self, kafka: ModuleType, broker: Any) -> None:
        self.kafka, self.broker = kafka, broker
        self.client = Client(kafka, broker.bootstrap)
        self.expected: dict[str, list[Row]] = {name: [] for name in PARTITIONS}

    def records(self, name: str, codec: str, seed: str) -> None:
        """Appends records one batch after another."""
        records = some(f"{name} {seed}", 120)
        with Log(self.broker.partition(name), write=True, options=OPTIONS._replace(codec=codec)) as log:
            for chunk in chunks(records, name):
                done = log.append(chunk)
                rows = [row(one, done.first_offset + at, one.timestamp_ms) for at, one in enumerate(chunk)]
                assert done.last_offset == done.first_offset + len(chunk) - 1
                self.expected[name] += rows

    def batches(self, name: str, seed: str) -> None:
        """Appends batches of producers, and the ends of their transactions."""
        steps = appends.produced(random.Random(f"{name} {seed}"), 120, producers=4, first_id=1 << 20, now_ms=NOW_MS)
        with Log(self.broker.partition(name), write=True, options=OPTIONS) as log:
            for step in steps:
                log.append(step.data)
            for number, kind in enumerate((ControlType.COMMIT, ControlType.ABORT)):
                producer = {"producer_id": (1 << 50) + number + 2 * len(seed), "producer_epoch": 3}
                for sequence in (0, 20):
                    some_more = some(f"{name} {seed} {sequence}", 20)
                    log.append(some_more, **producer, base_sequence=sequence, transactional=True, codec="gzip")
                end = marker(kind, **producer, coordinator_epoch=0, offset=0, timestamp_ms=NOW_MS)
                log.append(end)

    def ends(self) -> dict[str, int]:
        found = {}
        for name in PARTITIONS:
            with Log(self.broker.partition(name)) as log:
                found[name] = log.end_offset
        return found


class LogContent(NamedTuple):
    """The records of a log, by the plain decoder: all, and those that were not aborted, up to the first transaction
    that is open, and where such begin."""

    all: list[Row]
    committed: list[Row]
    stable: int
    open: list[int]


def content_of(directory: Path) -> LogContent:
    every: list[Row] = []
    waiting: dict[int, list[tuple[int, Row]]] = {}
    committed: list[tuple[int, Row]] = []
    end = 0
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        at = 0
        for size in whole(data):
            batch = oracle.header(data, at)
            end = batch.last_offset + 1
            found = oracle.records(data, at)
            at += size
            producer = batch.producer_id or 0
            if batch.control:
                assert found[0].key is not None
                ended = waiting.pop(producer, [])
                committed += ended if found[0].key[2:4] == b"\0\1" else []
                continue
            rows = [(one.offset, row(one, one.offset, one.timestamp)) for one in found]
            every += [shown for _, shown in rows]
            if batch.attributes & TRANSACTIONAL:
                waiting.setdefault(producer, []).extend(rows)
            else:
                committed += rows
    still_open = sorted(rows[0][0] for rows in waiting.values())
    stable = min(still_open, default=end)
    return LogContent(every, [shown for offset, shown in sorted(committed) if offset < stable], stable, still_open)


def test_a_broker_serves_what_kdump_appends(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        place = Place(kafka, broker)
        place.client.make(f"codecs:{len(CODECS)}:{SMALL}", f"producers:{len(PRODUCED)}:{SMALL}")
        with pytest.raises(KdumpError):
            Log(broker.partition("codecs-0"), write=True)
        for life in ("before", "after"):
            broker.stop()
            clean = (broker.logs / ".kafka_cleanshutdown").read_bytes()
            for name, codec in CODECS.items():
                place.expected[name] = content_of(broker.partition(name)).all
                place.records(name, codec, life)
            for name in PRODUCED:
                place.batches(name, life)
            assert (broker.logs / ".kafka_cleanshutdown").read_bytes() == clean
            points = offset_entries((broker.logs / "recovery-point-offset-checkpoint").read_bytes())
            assert {f"{one.topic}-{one.partition}": one.offset for one in points}.items() >= place.ends().items()
            check_sound(broker.logs)
            said = broker.server.log_path.stat().st_size
            broker.start()
            check_no_recovery(broker.server.log_path.read_bytes()[said:].decode())
            check(place)
            if life == "before":
                go_on(place)
        broker.stop()
        ends = place.ends()
        ends["codecs-0"] = killed(broker)
        broker.start()
        with Wire(broker.port, FETCH) as wire:
            for name in PARTITIONS:
                with Log(broker.partition(name)) as log:
                    assert log.end_offset >= ends[name]
                    compare(wire, log, name, SIZES[-1:])
    check_sound(broker.logs)


def killed(broker: Any) -> int:
    """A process that appends is killed: the next start of the broker recovers. Returns what follows the last offset
    that it reported."""
    how = f"{HERE.parent}", str(broker.partition("codecs-0"))
    with subprocess.Popen([sys.executable, "-P", "-c", APPENDS, *how], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(KILLED_AFTER)]
        process.kill()
    assert not (broker.logs / ".kafka_cleanshutdown").exists()
    return acknowledged[-1] + 1


def check_sound(logs: Path) -> None:
    """Transactions may be open, for longer than a transaction should."""
    status, found = verified(logs)
    assert status == 0
    assert [one for one in worse_than_info(found) if one["code"] != "txn/hanging"] == []


def go_on(place: Place) -> None:
    """The broker knows the transactions that are open, aborts them when it is asked to, and takes what its own
    producers write."""
    logs = {name: content_of(place.broker.partition(name)) for name in PARTITIONS}
    hanging = [f"{name} {start}" for name, one in logs.items() for start in one.open]
    assert hanging
    known, *aborted, _ = place.client.run(
        ("open", *PARTITIONS),
        *(("abort", *line.split()) for line in hanging),
        ("write", *(f"{name}:{AFTERWARDS}" for name in PARTITIONS)),
    )
    assert sorted(known) == sorted(hanging)
    assert aborted == [["aborted"]] * len(hanging)


def check_no_recovery(said: str) -> None:
    """The broker trusts all but its metadata, which it never does."""
    lines = [line for line in said.splitlines() if "__cluster_metadata" not in line]
    assert not [line for line in lines if re.search("Recovering|Found invalid|[Cc]orrupt|Rebuilding index", line)]
    assert [line for line in lines if re.search("Skipping recovery of [0-9]+ logs", line)]


def check(place: Place) -> None:
    """Consumers get every record, a fetch every byte that a read finds."""
    logs = {name: content_of(place.broker.partition(name)) for name in PARTITIONS}
    for name in CODECS:
        assert logs[name].all == place.expected[name]
    ends, stable = place.ends(), {name: one.stable for name, one in logs.items()}
    every, committed = consume(place.kafka, place.broker, ("read_uncommitted", ends), ("read_committed", stable))
    assert (every.ends, committed.ends) == (ends, stable)
    assert every.records == {name: one.all for name, one in logs.items()}
    assert committed.records == {name: one.committed for name, one in logs.items()}
    with Wire(place.broker.port, FETCH) as wire:
        for name in PARTITIONS:
            with Log(place.broker.partition(name)) as log:
                compare(wire, log, name, SIZES)
                compare_times(wire, log, name)


def compare(wire: Wire, log: Log, name: str, sizes: Sequence[int]) -> None:
    """Some offsets of the log, and one on each side: what the broker sends, but for what is cut, is what the log
    reads."""
    start, end = log.start_offset, log.end_offset
    step = max(1, (end - start) // OFFSETS)
    for offset in sorted({start - 1, start, end - 1, end, end + 1, *range(start, end, step)}):
        for size in sizes:
            served = wire.fetch(name, offset, size)
            if served.error == OUT_OF_RANGE:
                with pytest.raises(OffsetOutOfRange):
                    log.read(offset, size)
                continue
            assert served.error == 0
            asked = size
            while not fits(served.data, asked):
                asked *= 2
                served = wire.fetch(name, offset, asked)
            found = log.read(offset, size)
            assert bytes(found.data) == served.data[: sum(whole(served.data))], (name, offset, size)


def fits(data: bytes, size: int) -> bool:
    """Whether a batch came that is not larger than what was asked for: a broker of today sends the first one anyhow."""
    sizes = whole(data)
    return not data or (bool(sizes) and sizes[0] <= size)


def compare_times(wire: Wire, log: Log, name: str) -> None:
    times = sorted({record.timestamp + step for record in log.records(control=True) for step in (-1, 0, 1)})
    for asked in times[:: max(1, len(times) // TIMES)]:
        assert log.at_time(asked) == wire.at_time(name, asked), (name, asked)
    assert log.latest() == wire.at_time(name, -1)[0]  # type: ignore[index]
    assert log.earliest() == wire.at_time(name, -2)[0]  # type: ignore[index]
