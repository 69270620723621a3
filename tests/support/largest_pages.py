"""Writes the page of a command at all of its bounds at once, from values that no log stands behind.

    python -m support.largest_pages verify|recover|compare|stat FILE

Prints how many bytes the page has, and the peak of the memory of the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

from kdump.format.naming import TopicPartition
from kdump.log.ranges import OffsetRange
from kdump.recover.plan import RecoveryResult
from kdump.recover.summary import RecoveryTotals
from kdump.render import RenderOptions, renderer
from kdump.render.base import PageOptions
from kdump.replicas.compare import ComparisonSummary, CopyExtent, MergedRange, PartitionComparison
from kdump.replicas.comparison import (
    DifferingKey,
    KeyDifferences,
    OffsetTally,
    ReplicaComparison,
    ReplicaDifferences,
    Verdict,
)
from kdump.stat.row_collector import RowCollector
from kdump.stat.row_sections import RowOptions, RowSection, StatResult
from kdump.stat.rows import RowKind
from kdump.verify.findings import Finding, Severity, make_finding
from kdump.verify.log_map import MOST_CELLS, MOST_OPEN, LogMap, MapCell, MapPlace
from kdump.verify.summary import PartitionSummary, VerifySummary
from support import stat_values
from support.recovery_results import plan

_OTHERS = ("earlier_left", "earlier_right", "lost_markers_left", "lost_markers_right")
LARGE = (1 << 63) - 1
PARTITIONS = int(sys.argv[3]) if len(sys.argv) > 3 else 150


def name_of(number: int) -> str:
    """A name of 249 characters, as long as a topic's may be: markup, control characters, what is not in Latin-1."""
    return (f"{number:06d}<script>&\"'\x1b[31m\n\u202e漢\U0001f600" + "<\x07&'é" * 60)[:249]


PATHS = tuple(f"/disks/{name_of(number)}/data" for number in range(40))


def path_of(number: int) -> str:
    return f"{PATHS[number % 7]}/{name_of(number)}-{number % 900}"


def findings() -> Iterator[Finding]:
    """100,000 findings, 4,500 of them different ones."""
    for number in range(1_500):
        path = f"{path_of(number)}/{LARGE - number:020d}.log"
        for severity in Severity:
            one = make_finding("batch/crc", path, LARGE, LARGE, offset=LARGE, severity=severity, computed=1, stored=2)
            yield from repeat(one, 20 if number else 1)


def map_of(number: int) -> LogMap:
    cells = tuple(
        MapCell(LARGE - each, LARGE, LARGE - each, each, LARGE - each, LARGE, LARGE - each, each, each, LARGE - each)
        for each in range(MOST_CELLS)
    )
    places = tuple(MapPlace(each, LARGE, LARGE, "batch/crc") for each in range(10_500))
    opened = tuple((LARGE - each, LARGE - each) for each in range(MOST_OPEN))
    segments = tuple((LARGE - each, LARGE - each) for each in range(10_500))
    return LogMap(segments, cells, LARGE, LARGE, LARGE, LARGE, places[:500], places, opened)


def verify(out: Any) -> None:
    large = map_of(0)
    counts = {("batch/crc", severity): 1 << 40 for severity in Severity}
    for number in range(8 * PARTITIONS):
        name = TopicPartition(name_of(number), LARGE)
        own = {key: count + number for key, count in counts.items()}
        of = PartitionSummary(
            name, LARGE, LARGE, LARGE, LARGE, 0, LARGE, LARGE, own, None, large if number % 50 == 0 else None
        )
        out.partition(path_of(number), of)
    for number in range(PARTITIONS):
        path = f"{path_of(number)}/{0:020d}.log"
        values = {"producer_id": 1, "epoch": 2, "first": 3, "timestamp": 4, "problem": "idle", "command": "x"}
        out.finding(make_finding("txn/hanging", path, 0, 0, offset=LARGE - number % MOST_OPEN, **values))
    out.findings(findings(), {("p", "batch/crc"): LARGE})
    command = f"kdump recover {' '.join(PATHS)} {'x' * 40_000}"
    out.verify_summary(
        VerifySummary(LARGE, LARGE, LARGE, LARGE, LARGE, 0, counts, LARGE, False, None, command, 1e300), 1
    )


def recover(out: Any) -> None:
    first, large, some = plan(), map_of(0), list(findings())[:4_500]
    totals = RecoveryTotals(first.options, PATHS, applies=True)
    for number in range(4 * PARTITIONS):
        actions = first.actions * 40
        told = (name_of(number),) * 12
        one = first._replace(
            path=path_of(number), actions=actions, covered=tuple(some[number * 7 : number * 7 + 14]), conflicts=told
        )
        result = RecoveryResult(one, run="20261122T001122Z-7")
        if number % 50 == 0:
            out.plan_map(one, large)
        out.recovery(result)
        totals.add(result)
    out.recovery_summary(totals.summary(), 1, 1.5)


def compare(out: Any) -> None:
    ranges = [OffsetRange(LARGE - 4 * each, LARGE - 4 * each + 1) for each in range(100)]
    tally = OffsetTally(LARGE, 0, LARGE, ranges)
    keys = tuple(DifferingKey("f" * 32, LARGE, LARGE, LARGE, b"\x1b<" * 99) for _ in range(100))
    many = tuple(each for each in range(LARGE, LARGE - 500, -1))
    of = KeyDifferences(LARGE, LARGE, LARGE, LARGE, keys)
    tallies: Mapping[str, Any] = dict.fromkeys(
        ["records", "epochs", "outcomes", "missing_left", "missing_right", *_OTHERS],
        tally,
    )
    differs = ReplicaDifferences(0, True, open_left=many, open_right=many, keys=of, **tallies)
    summary = ComparisonSummary()
    for number in range(PARTITIONS):
        copies = tuple(f"{path}/{name_of(number)}-0" for path in PATHS[:5])
        verdict = (Verdict.AGREE, Verdict.UNDECIDED, Verdict.DIVERGED)[number % 3]
        pairs = tuple(
            ReplicaComparison(one, two, verdict, LARGE, (0, 0), 1, 1, 1, 0, (), differs)
            for at, one in enumerate(copies)
            for two in copies[at + 1 :]
        )
        damage = tuple(ranges * 20)
        extents = tuple(CopyExtent(path, 0, LARGE, LARGE, damage) for path in copies)
        merged = tuple(MergedRange(copies[each % 5], LARGE - each, LARGE) for each in range(3000))
        name = TopicPartition(name_of(number), 0)
        compared = PartitionComparison(name, None, copies, pairs, (), (), extents, merged)
        summary = summary.with_pairs(compared)
        out.comparison(compared)
    out.findings(findings())
    out.comparison_summary(summary, 1, 1.5)


def stat_result() -> StatResult:
    """Many rows of every kind."""
    kinds = tuple(kind for kind in RowKind if kind is not RowKind.TOTAL)
    collector = RowCollector(RowOptions(kinds, now_ms=stat_values.NOW_MS))
    for number in range(2 * PARTITIONS):
        collector.add(stat_values.simple(name_of(number), number, 1000, 1000, 1 << 40, directory=PATHS[number % 40]))
    for item in stat_values.disk():
        collector.add(item)
    result = collector.result()
    several = tuple(
        RowSection(each.kind, each.rows * (20_000 // max(1, len(each.rows))), 7, 7) for each in result.sections
    )
    return result._replace(sections=several)


def stat(out: Any) -> None:
    out.statistics(stat_result())
    out.findings(findings())
    out.exit_summary("stat", 0, 1.5)


COMMANDS = {"verify": verify, "recover": recover, "compare": compare, "stat": stat}


def main() -> None:
    command, file = sys.argv[1:3]
    options = RenderOptions(page=PageOptions(PATHS, LARGE, show_keys=True))
    with open(file, "wb") as stream:
        with renderer("html", stream, options) as out:
            COMMANDS[command](out)
        size = stream.tell()
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10
    print(size, peak)


if __name__ == "__main__":
    main()
