"""Logs merged by the timestamps of their records, against a plain merge; damage in them; many of them."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import corpus
from kdump.dump import time_order
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import BatchEvent, DamageNote, DumpFailure, Event, FileBegin, FileEnd, RecordCount
from kdump.dump.filters import BytesPattern, PatternKind, RecordPredicates
from kdump.dump.log_end import FromEnd
from kdump.dump.time_order import merge_logs
from kdump.format import naming
from kdump.storage import discovery, open_files, records
from kdump.storage.partition import LogFile
from support import build
from support.laws import examples

KDUMP = Path(sys.executable).with_name("kdump")
TIMES = (-1, 1000, 1001, 1002, 1005, 1009)


class Item(NamedTuple):
    """A record, or a batch without its records, as it was written; `position` is that of its batch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    value: bytes | None


class Log(NamedTuple):
    """A topic-partition: its segments by base offset, its records, and its batches with their largest timestamps."""

    topic: str
    partition: int
    segments: dict[int, bytes]
    records: list[Item]
    batches: list[Item]


def drawn_log(rng: random.Random, topic: str, partition: int) -> Log:
    log = Log(topic, partition, {}, [], [])
    offset, base, data = rng.randrange(50), 0, b""
    base = offset
    for _ in range(rng.randrange(7)):
        times = [rng.choice(TIMES) for _ in range(rng.randrange(1, 5))]
        kind = rng.randrange(4)
        if kind == 0:
            times = times[:1]
            value = b"%d" % offset
            old = rng.random() < 0.5
            data += (
                build.message_v0(None, value, offset=offset)
                if old
                else build.message_v1(None, value, offset=offset, timestamp=times[0])
            )
            times = [-1] if old else times
        else:
            items = [build.record(None, b"%d" % (offset + i), timestamp=at) for i, at in enumerate(times)]
            codec = rng.choice(build.CODECS)
            data += build.batch(items, base_offset=offset, codec=codec)
        log.batches.append(Item(topic, partition, offset, max(times), None))
        log.records.extend(Item(topic, partition, offset + i, at, b"%d" % (offset + i)) for i, at in enumerate(times))
        offset += len(times)
        if rng.random() < 0.3:
            log.segments[base], base, data = data, offset, b""
    log.segments[base] = data
    return log


def write(root: Path, logs: Sequence[Log]) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    for log in logs:
        directory = root / f"{log.topic}-{log.partition}"
        directory.mkdir(parents=True)
        for base, data in log.segments.items():
            (directory / f"{base:020}.log").write_bytes(data)
    return root


def plainly_merged(logs: Sequence[Sequence[Item]]) -> Iterator[Item]:
    """The merge as the manual says it."""
    left = [list(log) for log in logs]
    while any(left):
        heads = [log for log in left if log]
        first = min(heads, key=lambda log: (log[0].timestamp, log[0].topic, log[0].partition))
        yield first.pop(0)


def shown(events: Sequence[Event]) -> list[Item]:
    found, name = [], naming.TopicPartition("", -1)
    for event in events:
        if isinstance(event, FileBegin):
            name = event.topic_partition or name
        elif isinstance(event, BatchEvent) and event.records is None:
            found.append(Item(*name, event.batch.base_offset, event.batch.max_timestamp, None))
        elif isinstance(event, BatchEvent) and event.records is not None:
            found += [
                Item(*name, record.offset, record.timestamp, record.value)
                for record in records.records(event.batch, event.records)
            ]
    return found


def merged(root: Path, options: DumpOptions, met: list[DamageNote] | None = None) -> list[Event]:
    """The events of a merge, with copies of the records: their bytes are valid until the next event."""
    found = list[Event]()
    for event in merge_logs(discovery.log_files([str(root)]), options):
        if isinstance(event, DamageNote):
            ([] if met is None else met).append(event)
            continue
        if isinstance(event, BatchEvent) and isinstance(event.records, records.DecodedBatch):
            event = event._replace(records=event.records._replace(payload=bytes(event.records.payload)))
        found.append(event)
    return found


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two open files, and buffers that hold little more than a header."""
    with monkeypatch.context() as patch:
        patch.setattr(open_files, "MOST_OPEN", 2)
        patch.setattr(time_order, "LEAST_BUFFER_BYTES", 100)
        patch.setattr(time_order, "ALL_BUFFERS_BYTES", 200)
        yield


@settings(max_examples=examples(300))
@given(st.randoms(use_true_random=False))
def test_a_merge_is_a_plain_merge(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    logs = [drawn_log(rng, rng.choice("ab"), partition) for partition in range(rng.randrange(1, 6))]
    root = write(tmp_path_factory.getbasetemp() / "merge", logs)
    expected = list(plainly_merged([log.records for log in logs]))
    options = DumpOptions()
    assert shown(merged(root, options)) == expected
    batches = list(plainly_merged([log.batches for log in logs]))
    assert shown(merged(root, options._replace(records=False))) == batches
    most = rng.randrange(len(expected) + 2)
    assert shown(merged(root, options._replace(limit=most))) == expected[:most]
    assert shown(merged(root, options._replace(limit=most, records=False))) == batches[:most]

    times = rng.choice(TIMES), rng.choice(TIMES)
    first, key = rng.randrange(60), b"%d" % rng.randrange(60)
    wanted = RecordPredicates(time=times, values=(BytesPattern(PatternKind.PREFIX, key[:1]),))
    chosen = [
        [
            item
            for item in log.records
            if times[0] <= item.timestamp < times[1] and item.timestamp >= 0 and (item.value or b"")[:1] == key[:1]
            if item.offset >= first and item.partition != 1
        ]
        for log in logs
    ]
    some = options._replace(predicates=wanted, offsets=(first, None), partitions=(0, 2, 3, 4, 5))
    assert shown(merged(root, some)) == list(plainly_merged(chosen))
    assert merged(root, some._replace(counts=True))[-1] == RecordCount(sum(map(len, chosen)))
    last = options._replace(from_end=FromEnd(offsets=(3, None)))
    ends = [[each for each in log.records if each.offset >= log.records[-1].offset - 2] for log in logs]
    assert shown(merged(root, last)) == list(plainly_merged(ends))


def by_file(events: Sequence[Event]) -> dict[str, list[object]]:
    """What each file has, in order: the records of a batch as one list, and everything else that is said."""
    found = dict[str, list[object]]()
    path = ""
    for event in events:
        match event:
            case FileBegin(file):
                path = file.path
                found.setdefault(path, [])
            case BatchEvent(batch, damage, opened, crc_ok, again):
                values = None if opened is None else list(records.records(batch, opened))
                if again:
                    found[path][-1][-1].extend(values)  # type: ignore[index]
                else:
                    found[path].append([batch, damage, crc_ok, values])
            case FileEnd(file, size, whole):
                assert file.path == path
                found[path].append((size, whole))
            case _:
                found[path].append(event)
    return found


@pytest.mark.usefixtures("few_files")
@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False))
def test_each_log_is_as_in_a_plain_dump(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    root = tmp_path_factory.getbasetemp() / "merge"
    logs = []
    for partition in range(4):
        data, base = corpus.mutated(rng)
        logs.append(Log("t", partition, {base: data}, [], []))
    write(root, logs)
    options = DumpOptions(force=rng.random() < 0.5, max_batch_bytes=1 << 20)
    plain, met, all_met = list[Event](), list[DamageNote](), list[DamageNote]()
    for event in dump_logs(discovery.log_files([str(root)]), options):
        if isinstance(event, DamageNote):
            all_met.append(event)
            continue
        if isinstance(event, BatchEvent) and isinstance(event.records, records.DecodedBatch):
            event = event._replace(records=event.records._replace(payload=bytes(event.records.payload)))
        plain.append(event)
    assert by_file(merged(root, options, met)) == by_file(plain)
    assert Counter(met) == Counter(all_met)


def test_damage_comes_in_its_place_and_with_its_file(tmp_path: Path) -> None:
    def batch(offset: int, timestamp: int, **fields: int) -> bytes:
        return build.batch([build.record(b"k", b"v", timestamp=timestamp)], base_offset=offset, **fields)

    good = [batch(0, 1000), batch(1, 3000)]
    bad = [batch(0, 2000), batch(1, 9000, crc=1), b"\xff" * 30, batch(3, 4000)]
    write(tmp_path / "logs", [Log("t", 0, {0: b"".join(good)}, [], []), Log("t", 1, {0: b"".join(bad)}, [], [])])
    command = [KDUMP, "dump", "--order", "time", "--format", "text", str(tmp_path / "logs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    lines = [line.replace(str(tmp_path / "logs") + "/", "").split()[:3] for line in done.stdout.splitlines()]
    zero, one = "t-0/00000000000000000000.log", "t-1/00000000000000000000.log"
    size = len(good[0])
    assert lines == [
        ["file", zero], ["batch", "position=0", f"size={size}"],
        ["record", "offset=0", "time=1970-01-01T00:00:01.000Z"],
        ["file", one], ["batch", "position=0", f"size={size}"],
        ["record", "offset=0", "time=1970-01-01T00:00:02.000Z"],
        ["batch", "DAMAGED=batch/crc", f"position={size}"],
        ["gap", f"position={2 * size}", "length=30"],
        ["file", zero], ["batch", f"position={size}", f"size={size}"],
        ["record", "offset=1", "time=1970-01-01T00:00:03.000Z"],
        ["file", one], ["batch", f"position={2 * size + 30}", f"size={size}"],
        ["record", "offset=3", "time=1970-01-01T00:00:04.000Z"],
    ]  # fmt: skip
    command[4:4] = ["--template", "%p %o\n"]
    command.remove("--format")
    command.remove("text")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "0 0\n1 0\n0 1\n1 3\n")
    assert done.stderr.count(f"{one}: ") == 2


def test_damage_after_the_limit_is_not_met(tmp_path: Path) -> None:
    first = build.batch([build.record(b"k", b"v", timestamp=1)])
    bad = build.batch([build.record(b"k", b"v", timestamp=2)], base_offset=7) + build.batch(base_offset=4, crc=1)
    write(tmp_path, [Log("t", 0, {0: first}, [], []), Log("t", 1, {0: bad}, [], [])])
    met = list[DamageNote]()
    assert len(shown(merged(tmp_path, DumpOptions(limit=1), met))) == 1
    assert not met


def test_a_piece_of_a_large_batch_goes_on_after_others(tmp_path: Path) -> None:
    many = [build.record(None, b"x" * 20, timestamp=2 * number) for number in range(10_000)]
    few = [build.record(None, b"y", timestamp=at) for at in (4095, 8191, 8193, 10_000)]
    logs = [
        Log("t", 0, {0: build.batch(many, codec="zstd")}, [], []),
        Log("t", 1, {0: build.batch(few)}, [], []),
    ]
    found = shown(merged(write(tmp_path, logs), DumpOptions()))
    assert [item.timestamp for item in found] == sorted([*range(0, 20_000, 2), 4095, 8191, 8193, 10_000])
    assert [item.offset for item in found if item.partition == 0] == list(range(10_000))


def test_a_file_that_is_replaced_while_it_is_closed(tmp_path: Path, few_files: None) -> None:
    def data(partition: int) -> bytes:
        records = [build.record(None, b"v" * 200, timestamp=1000 * at + partition) for at in range(4)]
        return b"".join(build.batch([record], base_offset=offset) for offset, record in enumerate(records))

    logs = [Log("t", partition, {0: data(partition)}, [], []) for partition in range(4)]
    root = write(tmp_path, logs)
    events = merge_logs(discovery.log_files([str(root)]), DumpOptions())
    found = list[Event]()
    for event in events:
        if isinstance(event, BatchEvent) and not any(isinstance(each, BatchEvent) for each in found):
            path = root / "t-1" / "00000000000000000000.log"
            path.with_suffix(".new").write_bytes(path.read_bytes())
            path.with_suffix(".new").replace(path)
        found.append(event)
    failures = [str(event.error) for event in found if isinstance(event, DumpFailure)]
    assert failures == [f"{root}/t-1/00000000000000000000.log: another file took its place while it was read"]
    assert sum(isinstance(event, BatchEvent) for event in found) == 13


def test_what_is_no_log_is_said(tmp_path: Path) -> None:
    index = LogFile(str(tmp_path / "0.index"), naming.Kind.INDEX, 0, True, 0)
    (failure,) = merge_logs([index], DumpOptions())
    assert isinstance(failure, DumpFailure)
    assert str(failure.error).endswith("an offset index, and only logs can be merged by time")


# A process of its own starts the command: a child has the size of its parent until it becomes another program.
MEASURE = (
    "import resource, subprocess, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40));"
    "done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True);"
    "print(done.stdout.decode(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def test_two_thousand_partitions(tmp_path: Path) -> None:
    """Each file is a MiB long, nearly all of it a hole: a buffer for a plain dump of each would take a GiB."""
    for partition in range(2000):
        (tmp_path / f"t-{partition}").mkdir()
        batches = [
            build.batch([build.record(None, b"v", timestamp=(at + 1) * 10_000 - partition)], base_offset=at)
            for at in range(2)
        ]
        with (tmp_path / f"t-{partition}" / "00000000000000000000.log").open("wb") as file:
            file.write(b"".join(batches))
            file.truncate(1 << 20)
    command = [KDUMP, "dump", "--order", "time", "--template", "%p %o\n", str(tmp_path)]
    done = subprocess.run([sys.executable, "-I", "-c", MEASURE, *command], capture_output=True, text=True, check=True)
    *lines, used = done.stdout.split("\n")[:-1]
    assert lines == [f"{partition} {offset}" for offset in range(2) for partition in range(1999, -1, -1)]
    assert int(used) * (1 if sys.platform == "darwin" else 1024) < 160 << 20
