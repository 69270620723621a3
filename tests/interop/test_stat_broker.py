"""What the reports on retention and compaction say, and what a broker with these settings then does; and what a plan
that frees bytes says, and what a broker with the settings of its steps then frees.

kdump writes the logs while the broker is down, with the times, transactions and checkpoints that a case needs. The
reports are made of these. Then the broker starts, deletes and compacts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from interop.clients import Client
from kdump.broker.cleaner.log_cleaner_manager import (
    CompactionBlocker,
    FirstDirtySource,
    PartitionCompaction,
    report_compaction,
)
from kdump.broker.cleaner.log_config import CleanerSettings, TopicSettings, parse_cleanup_policy, topic_settings
from kdump.broker.cleaner.retention import PartitionRetention, RetentionBlocker, report_retention
from kdump.format.checkpoint import OffsetEntry, build_offsets, offset_entries
from kdump.stat.free import FreePlan, plan_free
from kdump.stat.stat import stat_logs
from kdump.stat.values import PartitionStatistics, StatOptions
from kdump.storage.discovery import discover
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from kdump.writer.options import LogOptions
from support import oracle
from support.waits import checkpointed, until

NOW_MS = int(time.time() * 1000)
HOUR_MS = 3_600_000
RECORDS = 20
OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=500)
DEDUPE_BYTES = 1_100_000
WIDE = 46_000
"""More keys than fit into the map of the cleaner (41,250), also without those of the active segment."""
SETTINGS: dict[str, str | int] = {
    "log.cleanup.policy": "compact,delete",
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.dedupe.buffer.size": DEDUPE_BYTES,
    "log.retention.check.interval.ms": 300,
    "replica.high.watermark.checkpoint.interval.ms": 700,
    "log.segment.delete.delay.ms": 100,
}
BOTH, DELETE, COMPACT = "", "delete", "compact"
"""Values of cleanup.policy; BOTH is that of the broker."""


class Case(NamedTuple):
    """A topic: its settings, the times of its records, and what is done to its log before the broker starts."""

    policy: str
    settings: dict[str, int | float]
    hours: tuple[int, ...] = tuple(range(RECORDS, 0, -1))
    """How many hours ago each record was written."""
    log_start: int | None = None
    cleaned: int | None = None
    opened: int | None = None
    """The record that begins a transaction without an end."""
    touch: Callable[[list[Path]], None] | None = None
    wide: bool = False
    """WIDE records, each with a key of its own."""

    def topic(self, name: str) -> str:
        settings = {"internal.segment.bytes": 1500, "file.delete.delay.ms": 100, **self.settings}
        policy = {"cleanup.policy": self.policy} if self.policy else {}
        return f"{name}:1:" + ",".join(f"{key}={value}" for key, value in {**policy, **settings}.items())

    def values(self) -> TopicSettings:
        named = {key.replace(".", "_"): value for key, value in self.settings.items()}
        return topic_settings(cleanup_policy=parse_cleanup_policy(self.policy or "compact,delete"), **named)


def modified_long_ago(logs: list[Path]) -> None:
    for path in logs[:3]:
        os.utime(path, (time.time() - 72_000,) * 2)


def without_time_index(logs: list[Path]) -> None:
    logs[0].with_suffix(".timeindex").write_bytes(b"")


def framing_damage(logs: list[Path]) -> None:
    data = bytearray(logs[1].read_bytes())
    data[8:12] = bytes(4)
    logs[1].write_bytes(data)


def value_damage(logs: list[Path]) -> None:
    data = bytearray(logs[1].read_bytes())
    data[200] ^= 1
    logs[1].write_bytes(data)


AGED = {"retention.ms": 10 * HOUR_MS + HOUR_MS // 2}
NEVER: dict[str, int | float] = {"retention.ms": -1}
CASES = {
    "timed": Case(DELETE, AGED),
    "future": Case(DELETE, AGED, (20, 19, 18, 17, -24, *range(15, 0, -1))),
    "modified": Case(DELETE, AGED, (), touch=modified_long_ago),
    "stale": Case(DELETE, AGED, touch=without_time_index),
    "sized": Case(DELETE, {**NEVER, "retention.bytes": 4000}),
    "both": Case(DELETE, {"retention.ms": 16 * HOUR_MS, "retention.bytes": 8000}),
    "all": Case(DELETE, {"retention.ms": 1000}),
    "none": Case(DELETE, {"retention.bytes": 0, **NEVER}),
    "trimmed": Case(DELETE, NEVER, log_start=8),
    "kept": Case(COMPACT, {"retention.ms": 1000, "min.cleanable.dirty.ratio": 1.0}, log_start=8),
    "cut": Case(BOTH, {**AGED, "min.cleanable.dirty.ratio": 1.0}),
    "dirty": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.99}),
    "limit": Case(COMPACT, {"min.cleanable.dirty.ratio": 1.0}),
    "mostly": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.6}, cleaned=6),
    "little": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.6}, cleaned=12),
    "young": Case(COMPACT, {"min.compaction.lag.ms": 10 * HOUR_MS + HOUR_MS // 2}),
    "lagging": Case(COMPACT, {"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 2 * HOUR_MS}),
    "recent": Case(COMPACT, {"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 40 * HOUR_MS}),
    "beyond": Case(COMPACT, {"min.cleanable.dirty.ratio": 1.0}, cleaned=99),
    "below": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.5}, cleaned=2, log_start=8),
    "open": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.5}, opened=10),
    "stopped": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.5}, touch=framing_damage),
    "wide": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.9}, wide=True),
    "silent": Case(COMPACT, {"min.cleanable.dirty.ratio": 0.5}, touch=value_damage),
}


Cases = dict[str, Case]
TO_FREE = {
    "old": Case(DELETE, NEVER, tuple(range(60, 40, -1))),
    "older": Case(DELETE, NEVER, tuple(range(80, 60, -1))),
    "newer": Case(DELETE, NEVER, tuple(range(50, 30, -1))),
    "newest": Case(DELETE, NEVER, tuple(range(RECORDS, 0, -1))),
}
"""What a plan frees, oldest first: `older` as a whole, with its active segment, and nothing of `newest`."""
DROPPED = ("dirty", "mostly", "young", "lagging", "open")
"""The topics whose records a pass drops are counted."""


def plan_of(home: Path) -> FreePlan:
    """A plan that frees half of the segments of TO_FREE."""
    home.mkdir()
    for name, case in TO_FREE.items():
        write(home / f"{name}-0", case)
    found = [each for each in stat_logs(discover([str(home)])) if isinstance(each, PartitionStatistics)]
    assert {each.topic for each in found} == set(TO_FREE)
    segments = (segment for each in found for segment in each.segments)
    wanted = sum(each.allocated_bytes + each.companions_allocated_bytes for each in segments) // 2
    return plan_free(found, wanted, NOW_MS, lambda _: topic_settings(retention_ms=-1))


def allocated(directory: Path) -> int:
    """The blocks of the segments in a directory."""
    files = (path for path in directory.iterdir() if path.suffix in (".log", ".index", ".timeindex", ".txnindex"))
    return sum(path.stat().st_blocks for path in files) * 512


def check_freed(broker: Any, plan: FreePlan, before: dict[str, int]) -> None:
    """A broker frees what the steps of a plan say. It adds an empty segment where it deletes all of them."""
    assert plan.is_enough
    assert {step.topic: step.is_emptied for step in plan.steps} == {"older": True, "old": False, "newer": False}
    for step in plan.steps:
        directory = broker.partition(f"{step.topic}-0")
        assert not {Path(path).name for path in step.segments} & {path.name for path in directory.iterdir()}
        assert before[step.topic] - allocated(directory) >= step.bytes > 0, step


def write(directory: Path, case: Case) -> None:
    """A log of RECORDS records in a batch each, about three a segment; every fifth key is the same."""
    if case.wide:
        with Log(directory, write=True, options=OPTIONS._replace(segment_bytes=40_000)) as log:
            for begin in range(0, WIDE, 1000):
                log.append([NewRecord(b"%d" % key, b"", (), NOW_MS) for key in range(begin, begin + 1000)])
        return
    rng = random.Random(directory.name)
    with Log(directory, write=True, options=OPTIONS) as log:
        for number in range(RECORDS):
            at = NOW_MS - case.hours[number] * HOUR_MS if case.hours else -1
            record = NewRecord(b"key %d" % (number % 5), rng.randbytes(400), (), at)
            if number == case.opened:
                log.append([record], producer_id=77, producer_epoch=0, base_sequence=0, transactional=True)
            else:
                log.append([record])
    if case.touch is not None:
        case.touch(sorted(directory.glob("*.log")))


def checkpoint(logs: Path, name: str, offsets: Iterable[tuple[str, int | None]]) -> None:
    entries = [OffsetEntry(topic, 0, offset) for topic, offset in offsets if offset is not None]
    (logs / name).write_bytes(build_offsets(entries))


def cleaner_checkpoint(logs: Path) -> dict[str, int]:
    path = logs / "cleaner-offset-checkpoint"
    entries = offset_entries(path.read_bytes()) if path.exists() else ()
    return {entry.topic: entry.offset for entry in entries}


class Expected(NamedTuple):
    retention: PartitionRetention
    compaction: PartitionCompaction

    @property
    def bases(self) -> set[int]:
        """The base offsets of the segments that stay, or of the one that is rolled."""
        stays = {segment.base_offset for segment in self.retention.stays}
        return stays or {self.retention.bounds.end_offset}

    def cleaned(self, before: int | None) -> int | None:
        """The line of the partition in the checkpoint of the cleaner."""
        told = self.compaction
        if told.blocker is None:
            return told.range.first_uncleanable_offset
        reset = told.range.first_dirty_source in (FirstDirtySource.BELOW_START, FirstDirtySource.BEYOND_END)
        return told.range.first_dirty_offset if reset and told.settings.compacts else before


def expected(broker: Any, cases: Cases) -> dict[str, Expected]:
    found = {}
    for each in stat_logs(discover([str(broker.logs)]), StatOptions(deep=True, keep_samples=True)):
        if isinstance(each, PartitionStatistics) and each.topic in cases:
            case = cases[each.topic]
            found[each.topic] = Expected(
                report_retention(each, case.values(), NOW_MS),
                report_compaction(each, case.values(), NOW_MS, CleanerSettings(DEDUPE_BYTES)),
            )
    assert found.keys() == cases.keys()
    return found


def bases(broker: Any, topic: str) -> set[int]:
    return {int(path.stem) for path in broker.partition(f"{topic}-0").glob("*.log")}


def differences(broker: Any, cases: Cases, told: dict[str, Expected]) -> list[str]:
    found, cleaned = [], cleaner_checkpoint(broker.logs)
    for topic, case in cases.items():
        one = told[topic]
        if case.policy != COMPACT or one.compaction.blocker is not None:
            if bases(broker, topic) != one.bases:
                found.append(f"{topic}: segments {sorted(bases(broker, topic))}, told {sorted(one.bases)}")
        else:
            # Segments of the part that was compacted can be merged.
            first = one.compaction.range.first_uncleanable_offset
            if {base for base in bases(broker, topic) if base >= first} != {
                base for base in one.bases if base >= first
            }:
                found.append(f"{topic}: segments {sorted(bases(broker, topic))} from {first} on")
        if case.wide:
            if not 0 < cleaned.get(topic, 0) < one.compaction.range.first_uncleanable_offset:
                found.append(f"{topic}: cleaned to {cleaned.get(topic)}")
        elif cleaned.get(topic) != one.cleaned(case.cleaned):
            found.append(f"{topic}: cleaned to {cleaned.get(topic)}, told {one.cleaned(case.cleaned)}")
    return found


def records_below(broker: Any, topic: str, end: int) -> int:
    data = (path.read_bytes() for path in sorted(broker.partition(f"{topic}-0").glob("*.log")))
    return sum(each.offset < end for log in data for each in all_records(log))


def all_records(data: bytes) -> Iterator[oracle.Record]:
    for item in oracle.walk(data):
        if isinstance(item, oracle.Batch):
            yield from oracle.records(data, item.position)


def check_dropped(broker: Any, told: dict[str, Expected], before: dict[str, int]) -> None:
    """The records that a pass dropped."""
    exact = set()
    for topic in DROPPED:
        one = told[topic].compaction
        assert one.next_pass is not None
        dropped = before[topic] - records_below(broker, topic, one.range.first_uncleanable_offset)
        number = one.next_pass.keys.dropped_records.value
        assert 0 < dropped <= number, topic
        if not one.next_pass.is_bound:
            assert dropped == number, topic
            exact.add(topic)
    assert exact == set(DROPPED)


def test_a_broker_does_what_the_reports_say(kafka: ModuleType, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "plan")
    cases = {**CASES, **TO_FREE}
    for step in plan.steps:
        cases[step.topic] = cases[step.topic]._replace(settings={**NEVER, step.setting.value: step.value})
    with kafka.kraft_broker(tmp_path / "broker", settings=SETTINGS) as broker:
        Client(kafka, broker.bootstrap).make(*(case.topic(name) for name, case in cases.items()))
        broker.stop()
        for name, case in cases.items():
            write(broker.partition(f"{name}-0"), case)
        checkpoint(
            broker.logs,
            "replication-offset-checkpoint",
            [(name, WIDE if case.wide else RECORDS) for name, case in cases.items()],
        )
        checkpoint(broker.logs, "log-start-offset-checkpoint", [(name, case.log_start) for name, case in cases.items()])
        checkpoint(broker.logs, "cleaner-offset-checkpoint", [(name, case.cleaned) for name, case in cases.items()])
        told = expected(broker, cases)
        check_told(told)
        before = {
            name: records_below(broker, name, told[name].compaction.range.first_uncleanable_offset) for name in DROPPED
        }
        space = {step.topic: allocated(broker.partition(f"{step.topic}-0")) for step in plan.steps}
        broker.start()
        until(lambda: not differences(broker, cases, told))
        for _ in range(2):  # as long as several checks of retention take
            checkpointed(broker.logs)
        assert differences(broker, cases, told) == []
        check_dropped(broker, told, before)
        check_freed(broker, plan, space)
        said = broker.server.log_path.read_text(errors="replace")
        stopped = {name for name, one in told.items() if one.compaction.blocker is CompactionBlocker.STOPPER}
        marked = {name for name in cases if f"Marking its partition ({name}-0) as uncleanable" in said}
        assert marked == stopped == {"stopped"}


def check_told(told: dict[str, Expected]) -> None:
    """The cases are those that they are meant to be."""
    assert told["timed"].retention.deletes
    assert told["future"].retention.blocker is RetentionBlocker.FUTURE_TIMESTAMP
    assert told["future"].retention.held_back
    assert len(told["modified"].retention.deletes) == 3
    assert told["stale"].retention.deletes == ()
    assert told["stale"].retention.age_warnings
    assert told["all"].retention.rolls
    assert told["none"].retention.rolls
    assert {one.retention.bounds.has_high_watermark for one in told.values()} == {True}
    starts = {name for name, one in told.items() if one.compaction.blocker is None}
    assert starts == {"dirty", "mostly", "young", "lagging", "below", "open", "silent", "wide"}
    fits = {name: one.compaction.next_pass.fits for name, one in told.items() if one.compaction.next_pass is not None}
    assert {name for name, fit in fits.items() if not fit} == {"wide"}
    assert [stopper.stops for stopper in told["silent"].compaction.stoppers] == [False]
