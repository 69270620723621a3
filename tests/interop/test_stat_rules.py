"""The rules of the reports on retention and compaction, against UnifiedLog.deleteOldSegments and LogCleanerManager of a
broker over logs and settings made at random; and what the report on an upgrade says that a broker refuses, against its
loader.

KDUMP_STAT_LOGS chooses how many logs, KDUMP_STAT_SEED which. Of the damage catalogue one case in seven is loaded;
KDUMP_LAWS=all takes every one.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from interop.damaged_partitions import LOADER, damaged, room
from kdump.broker.cleaner.log_cleaner_manager import CompactionBlocker, report_compaction
from kdump.broker.cleaner.log_config import TopicSettings, parse_cleanup_policy, topic_settings
from kdump.broker.cleaner.retention import report_retention
from kdump.broker.cleaner.segment_age import is_beyond_end
from kdump.format.checkpoint import OffsetEntry, build_offsets
from kdump.format.control import ControlType
from kdump.format.index import TIME_ENTRY
from kdump.stat.stat import stat_logs
from kdump.stat.upgrade import report_upgrade
from kdump.stat.values import PartitionStatistics
from kdump.storage.discovery import discover
from kdump.writer.builder import NewRecord, marker
from kdump.writer.log import Log
from kdump.writer.options import LogOptions

__all__ = ["room"]

RULES = Path(__file__).with_name("CleanupRules.java")
LOGS = int(os.environ.get("KDUMP_STAT_LOGS", "120"))
SEED = os.environ.get("KDUMP_STAT_SEED", "1")
NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
SHARE = 1 if os.environ.get("KDUMP_LAWS") == "all" else 7
QUIET = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


class Case(NamedTuple):
    """A log, what the checkpoints of its log directory say, and the settings of its topic."""

    directory: Path
    log_start: int | None
    high_watermark: int | None
    cleaned: int | None
    settings: TopicSettings

    def line(self) -> str:
        """What CleanupRules.java reads."""
        given = {name: getattr(self.settings, name) for name in sorted(self.settings.given)}
        given["cleanup_policy"] = ",".join(sorted(self.settings.cleanup_policy))
        words = ";".join(f"{name.replace('_', '.')}={value}" for name, value in given.items())
        high = -1 if self.high_watermark is None else self.high_watermark
        return f"{self.directory}\t{self.log_start or 0}\t{high}\t{NOW_MS}\t{words}\n"


def times(rng: random.Random) -> Iterator[int]:
    """Timestamps of records: most of them rise, some are missing, zero or in the future."""
    at = NOW_MS - rng.randrange(10, 40) * HOUR_MS
    odd = rng.random() < 0.4
    while True:
        at += rng.randrange(2 * HOUR_MS)
        yield rng.choice((-1, 0, 7, at, NOW_MS + HOUR_MS)) if odd and rng.random() < 0.3 else at


def write(directory: Path, rng: random.Random) -> None:
    """A log of some segments, with transactions that are committed, aborted or open."""
    magic = rng.choice((2, 2, 2, 2, 1, 0))
    options = LogOptions(
        segment_bytes=rng.choice((700, 1500)),
        index_interval_bytes=rng.choice((100, 500)),
        magic=magic,
        base_offset=rng.choice((0, 0, 5, 1000)),
        clock=lambda: NOW_MS,
    )
    clock, begun, sequences = times(rng), set[int](), dict[int, int]()
    with Log(directory, write=True, options=options) as log:
        for _ in range(rng.randrange(24)):
            records = [
                NewRecord(b"%d" % rng.randrange(5), rng.randbytes(rng.choice((20, 300))), (), next(clock))
                for _ in range(rng.randrange(1, 4))
            ]
            producer = rng.choice((0, 0, 0, 7, 8)) if magic == 2 else 0
            if not producer:
                log.append(records)
            elif producer in begun and rng.random() < 0.6:
                kind = rng.choice((ControlType.COMMIT, ControlType.ABORT))
                end = marker(
                    kind,
                    producer_id=producer,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    offset=log.end_offset,
                    timestamp_ms=next(clock),
                    partition_leader_epoch=0,
                )
                log.append(end, assign=False)
                begun.discard(producer)
            else:
                sequence = sequences.get(producer, 0)
                log.append(records, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
                sequences[producer] = sequence + len(records)
                begun.add(producer)


def touch(directory: Path, rng: random.Random) -> None:
    """Change the modification times, and the time index or the first header of segments that are not active."""
    logs = sorted(directory.glob("*.log"))
    for path in logs:
        at = (NOW_MS - rng.randrange(-2, 60) * HOUR_MS) / 1000
        os.utime(path, (at, at))
    for path in logs[:-1]:
        index = path.with_suffix(".timeindex")
        data = index.read_bytes() if index.exists() else b""
        what = rng.randrange(12)
        if what == 0:
            index.write_bytes(b"")
        elif what == 1:
            index.write_bytes(data[: -TIME_ENTRY.size])
        elif what == 2:
            index.write_bytes(data + bytes(TIME_ENTRY.size * rng.randrange(1, 4)))
        elif what == 3:
            index.unlink(missing_ok=True)
        elif what == 4 and rng.random() < 0.5:
            damaged = bytearray(path.read_bytes())
            at_byte, value = rng.choice(((11, 3), (8, 0x70), (8, 0xFF), (16, 7), (16, 0x82)))
            if len(damaged) > at_byte:
                damaged[8:11] = bytes(3) if at_byte == 11 else damaged[8:11]
                damaged[at_byte] = value
                status = path.stat()
                path.write_bytes(damaged)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def settings(rng: random.Random, size: int) -> TopicSettings:
    hours = (0, 1, 8, 16, 24, 32, 60)
    return topic_settings(
        retention_ms=rng.choice((-1, *(hour * HOUR_MS for hour in hours))),
        retention_bytes=rng.choice((-1, -1, 0, rng.randrange(size + 2), size)),
        cleanup_policy=parse_cleanup_policy(rng.choice(("delete", "delete", "compact", "compact,delete"))),
        min_cleanable_dirty_ratio=rng.choice((0.0, 0.1, 0.5, 0.9, 1.0)),
        min_compaction_lag_ms=rng.choice((0, 0, *(hour * HOUR_MS for hour in hours))),
        max_compaction_lag_ms=rng.choice((1 << 62, 60 * HOUR_MS, 61 * HOUR_MS, 100 * HOUR_MS)),
    )


def make(room: Path, number: int) -> Case:
    rng = random.Random(f"{SEED}:{number}")
    parent = room / str(number)
    directory = parent / "t-0"
    directory.mkdir(parents=True)
    write(directory, rng)
    touch(directory, rng)
    logs = sorted(directory.glob("*.log"))
    offsets = [int(path.stem) + extra for path in logs for extra in (0, 0, 1, 2)] + [0, 2000]
    start, high, cleaned = (rng.choice((None, None, rng.choice(offsets))) for _ in range(3))
    size = sum(path.stat().st_size for path in logs)
    for name, offset in (
        ("log-start-offset-checkpoint", start),
        ("replication-offset-checkpoint", high),
        ("cleaner-offset-checkpoint", cleaned),
    ):
        entries = [OffsetEntry("t", 0, offset)] if offset is not None else []
        (parent / name).write_bytes(build_offsets(entries))
    return Case(directory, start, high, cleaned, settings(rng, size))


def told(case: Case, of: PartitionStatistics) -> dict[str, Any]:
    """What the reports say, by the names of CleanupRules.java."""
    retention = report_retention(of, case.settings, NOW_MS)
    compaction = report_compaction(of, case.settings, NOW_MS)
    gone_at_load = is_beyond_end(of)
    found = {
        "damaged": of.damage.count > 0,
        "log_start_offset": retention.bounds.start_offset,
        "log_end_offset": retention.bounds.end_offset,
        "high_watermark": retention.bounds.high_watermark,
        "last_stable_offset": compaction.range.last_stable_offset,
        "segments": [retention.log_start_offset] if gone_at_load else [each.base_offset for each in of.segments],
        "deleted": [] if gone_at_load else [each.base_offset for each in retention.deletes],
        "rolled": retention.rolls and not gone_at_load,
        "log_start_offset_after": retention.log_start_offset,
    }
    if case.settings.compacts and compaction.blocker is CompactionBlocker.STOPPER and not compaction.starts_because:
        return {**found, "failed": True}
    return {
        **found,
        "first_dirty_offset": compaction.range.first_dirty_offset,
        "bound": compaction.range.bound,
        "first_uncleanable_offset": compaction.range.first_uncleanable_offset,
        "clean_bytes": compaction.clean_bytes,
        "cleanable_bytes": compaction.cleanable_bytes,
        **({"lag_ms": compaction.lag_ms} if compaction.lag_ms is not None else {}),
        "starts": compaction.starts_because is not None,
    }


def disagreements(case: Case, said: dict[str, Any], fact: dict[str, Any]) -> Iterator[str]:
    done = {**fact, "failed": True} if "failed" in fact else dict(fact)
    # Where the log start offset lies inside a batch of an open transaction, a broker returns the first of the batch.
    done["last_stable_offset"] = max(done["last_stable_offset"], done["log_start_offset"])
    if not case.settings.compacts and "failed" in fact:
        # Asked all the same: a broker does not ask about this log.
        said = {name: value for name, value in said.items() if name in fact or name == "damaged"}
    if said["damaged"] and said["last_stable_offset"] != done["last_stable_offset"]:
        return  # the damage hides where a transaction begins or ends, which a producer snapshot still says
    said = {name: value for name, value in said.items() if name != "damaged"}
    for name in {*said, *(["failed"] if case.settings.compacts else [])}:
        if said.get(name) != done.get(name):
            yield f"{name}: told {said.get(name)}, done {done.get(name)}"


def test_the_rules_are_those_of_kafka(kafka: ModuleType, room: Path) -> None:
    cases = [make(room, number) for number in range(LOGS)]
    found = {
        Path(each.path): each
        for each in stat_logs(discover([str(case.directory.parent) for case in cases]))
        if isinstance(each, PartitionStatistics)
    }
    said = [told(case, found[case.directory]) for case in cases]
    lines = "".join(case.line() for case in cases).encode()
    done = kafka.run_source(kafka.NEWEST, RULES, stdin=lines, flags=QUIET)
    facts = [json.loads(line) for line in done.stdout.decode().splitlines()]
    # A loader that refuses a log has nothing to say about its rules (test_refusals).
    loaded = [number for number, fact in enumerate(facts) if "refused" not in fact]
    wrong = [
        f"{number}: {' | '.join(differs)} ({facts[number].get('failed', '')} {cases[number]})"
        for number in loaded
        if (differs := list(disagreements(cases[number], said[number], facts[number])))
    ]
    assert not wrong, "\n".join(wrong)
    assert len(loaded) > 0.9 * LOGS
    for name in ("deleted", "rolled", "starts", "failed"):
        assert any(facts[number].get(name) for number in loaded), name


def test_an_upgrade_is_told_what_a_clean_start_refuses(kafka: ModuleType, room: Path) -> None:
    cases = [case for case in damaged(room / "upgrade", 1, SHARE) if not case.directory.name.endswith("-delete")]
    measured = [each for case in cases for each in stat_logs(discover([str(case.directory)]))]
    reports = [report_upgrade(each) for each in measured if isinstance(each, PartitionStatistics)]
    assert len(reports) == len(cases)
    lines = "".join(f"{case.directory}\t0\t0\t{NOW_MS}\t4096\tclean\n" for case in cases)
    done = kafka.run_source(kafka.NEWEST, LOADER, stdin=lines.encode(), flags=QUIET)
    facts = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [report.error for report in reports if report.error is not None] == []
    wrong = [
        f"{case.name}: told {report.refused}, done {fact}"
        for case, report, fact in zip(cases, reports, facts, strict=True)
        if bool(report.refused) == fact["loaded"]
    ]
    assert not wrong, "\n".join(wrong)
    assert 0 < sum(not fact["loaded"] for fact in facts) < len(facts)
