"""A log with many batches out of order: those that continue one another are one span, and the answers are those of the
batches one by one. What a plan costs is counted in spans, so that a log of small messages costs what its damages
do."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.kernel.valid_batches import batch_runs
from kdump.log import rising_chain, segment_batches
from kdump.log.offset_order import OffsetOrder, in_order, sorted_segments
from kdump.log.segment_batches import BatchSpan, SegmentBatches, contested_offsets, ranges_of
from kdump.log.severity import Severity
from kdump.recover.plan import SALVAGE, RecoverOptions
from kdump.recover.salvage.plan import keep
from kdump.storage.discovery import discover
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.verify import scan
from support import build
from support.expected_files import planned, put, report_of
from support.laws import examples

WIDTH = len(segment_batches.BATCH_COLUMNS)
CELL = {name: number for number, name in enumerate(segment_batches.BATCH_COLUMNS)}


# ---- the spans of an order


def wrong(rng: random.Random, first: int) -> int:
    """Another offset: with one bit flipped, or near it."""
    return first ^ 1 << rng.randrange(rng.choice((3, 8, 40))) if rng.random() < 0.6 else first + rng.randrange(-60, 60)


def rows_of(rng: random.Random) -> list[list[BatchSpan]]:
    """The batches of one to three files, one by one: some out of order, some moved, some of another leader epoch."""
    offset, epoch, logs = rng.choice((0, 0, 70)), 0, list[list[BatchSpan]]()
    for file in range(rng.choice((1, 1, 2, 3))):
        rows: list[BatchSpan] = []
        for _ in range(rng.choice((5, 20, 60))):
            epoch += rng.random() < 0.04
            offset += rng.choice((0,) * 30 + (1, 4))
            last = offset + rng.choice((0, 0, 0, 3))
            rows.append(BatchSpan(file, 0, 100, 2, offset, last, epoch, 0, -1, -1, 0, -1))
            offset = last + 1
        for _ in range(rng.choice((0, 1, 1, 3))):
            start, stop = sorted(rng.sample(range(len(rows) + 1), 2))
            part = rows[start:stop]
            if rng.random() < 0.5:
                del rows[start:stop]
            at = rng.randrange(len(rows) + 1)
            rows[at:at] = part
        for _ in range(rng.choice((0, 1, 3, 8)) if rows else 0):
            at = rng.randrange(len(rows))
            first = max(0, wrong(rng, rows[at].first))
            rows[at] = rows[at]._replace(first=first, last=first + rows[at].last - rows[at].first)
        logs.append([row._replace(position=100 * at) for at, row in enumerate(rows)])
    return logs


def segments_of(logs: Sequence[Sequence[BatchSpan]], bases: Sequence[int]) -> list[SegmentBatches]:
    files = [LogFile(str(base), Kind.LOG, base, False, 100 * len(rows)) for rows, base in zip(logs, bases, strict=True)]
    return [
        SegmentBatches(number, Segment(file), list(rows))
        for number, (file, rows) in enumerate(zip(files, logs, strict=True))
    ]


def runs_of(rows: Sequence[BatchSpan], contested: Sequence[int]) -> list[BatchSpan]:
    """The spans of batches that continue one another, without an offset of these ranges."""
    ranges = list(zip(contested[::2], contested[1::2], strict=True))
    alone = [any(start <= row.last and row.first < stop for start, stop in ranges) for row in rows]
    spans: list[BatchSpan] = []
    for at, row in enumerate(rows):
        before = spans[-1] if spans else None
        goes_on = before is not None and before.last + 1 == row.first and before.epoch == row.epoch
        if before is not None and goes_on and not alone[at] and not alone[at - 1]:
            spans[-1] = before._replace(size=before.size + 100, last=row.last, batches=before.batches + 1)
        else:
            spans.append(row)
    return spans


def ordered(logs: Sequence[Sequence[BatchSpan]], bases: Sequence[int], wants: dict[int, int]) -> tuple[object, ...]:
    """What the order says of the batches one by one."""
    return said(in_order(sorted_segments(segments_of(logs, bases)), lambda span: wants.get(span.position, 0)))


def ordered_as_runs(
    logs: Sequence[Sequence[BatchSpan]], bases: Sequence[int], wants: dict[int, int]
) -> tuple[object, ...]:
    """The same of spans, of which those are divided that turn out to be unclear."""
    contested = contested_offsets(segments_of([runs_of(rows, ()) for rows in logs], bases))
    unclear = list[BatchSpan]()
    while True:
        flat = [*contested, *ranges_of(unclear)]
        runs = [
            list(rows) if rows and rows[0].first < base else runs_of(rows, flat)
            for rows, base in zip(logs, bases, strict=True)
        ]
        found = in_order(sorted_segments(segments_of(runs, bases)), lambda span: wants.get(span.position, 0))
        if not found.unclear:
            return said(found)
        assert all(span.batches > 1 for span in found.unclear)
        unclear += found.unclear


def said(found: OffsetOrder) -> tuple[object, ...]:
    """The order as batches one by one."""
    kept = [(span.file, at) for span in found.kept for at in range(span.position, span.end, 100)]
    dropped = [(span.file, at, code) for span, code in found.dropped for at in range(span.position, span.end, 100)]
    return kept, sorted(dropped), found.conflicts


def test_spans_are_in_order_as_their_batches_are() -> None:
    joined = 0
    for number in range(examples(4000)):
        rng = random.Random(number)
        logs = rows_of(rng)
        bases = [
            min((row.first for row in rows), default=0) if rng.random() < 0.2 else rows[0].first if rows else 0
            for rows in logs
        ]
        bases = [base + at for at, base in enumerate(sorted(bases))]
        wants = {100 * at: rng.choice((-1, 0, 0, 1)) for at in range(200)}
        assert ordered_as_runs(logs, bases, wants) == ordered(logs, bases, wants), number
        joined += any(len(runs_of(rows, ())) < len(rows) for rows in logs)
    assert joined > examples(4000) // 2


def test_the_spans_of_a_tie_are_unclear() -> None:
    """Three batches against three others: what the longest chain is, their offsets do not say."""
    first = BatchSpan(0, 0, 300, 2, 100, 102, 0, 0, -1, -1, 0, -1, 3)
    second = first._replace(position=300, first=10, last=12)
    chain = rising_chain.RisingChain([first, second], 0, lambda _: 0)
    chain.find()
    assert sorted(chain.unclear) == [0, 1]
    chain = rising_chain.RisingChain([first, second._replace(last=13, batches=4)], 0, lambda _: 0)
    assert chain.find() == [1]
    assert chain.unclear == []


# ---- the rows of a scan


def oracle_of_runs(rows: list[list[int]], cuts: Sequence[int], contested: Sequence[int]) -> Iterator[tuple[int, ...]]:
    def alone(row: list[int]) -> bool:
        first, last, mask = row[CELL["base_offset"]], row[CELL["last_offset"]], row[CELL["attributes"]]
        if first < 0 or first > last or mask & (7 if row[CELL["magic"]] < 2 else 0x30):
            return True
        return any(start <= last and first < stop for start, stop in zip(contested[::2], contested[1::2], strict=True))

    same = [CELL[name] for name in ("magic", "partition_leader_epoch", "producer_id", "producer_epoch")]
    starts = [0]
    for number, (left, right) in enumerate(pairwise(rows), 1):
        place, after = left[CELL["position"]], right[CELL["position"]]
        goes_on = place + left[CELL["size"]] == after and left[CELL["last_offset"]] + 1 == right[CELL["base_offset"]]
        goes_on = goes_on and all(left[cell] == right[cell] for cell in same)
        if not goes_on or alone(left) or alone(right) or any(place < cut <= after for cut in cuts):
            starts.append(number)
    for start, stop in pairwise([*starts, len(rows)]):
        part = rows[start:stop]
        counts = [row[CELL["count"]] for row in part]
        suspect = 0
        for row in part:
            suspect |= row[CELL["suspect"]]
        records = NO_VALUE if NO_VALUE in counts else sum(max(0, count) for count in counts)
        yield start, stop, records, max(-1, *(row[CELL["max_timestamp"]] for row in part), -1), suspect


def test_rows_become_runs() -> None:
    for number in range(examples(2000)):
        rng = random.Random(number)
        rows, position, offset = list[list[int]](), 0, rng.choice((0, 5))
        for _ in range(rng.choice((1, 4, 30))):
            position += rng.choice((0,) * 20 + (7,))
            offset += rng.choice((0,) * 20 + (-3, 2))
            row = [rng.choice((0, 0, 1, 256)) if name == "suspect" else 0 for name in segment_batches.BATCH_COLUMNS]
            fields = {
                "position": position, "size": 50, "magic": rng.choice((2,) * 20 + (0, 1)), "base_offset": offset,
                "last_offset": offset + rng.choice((0,) * 9 + (2, -1)), "count": rng.choice((1, 1, 1, -1, NO_VALUE)),
                "partition_leader_epoch": rng.choice((1,) * 20 + (2,)), "max_timestamp": rng.choice((-1, 7, 9)),
                "producer_id": rng.choice((-1,) * 20 + (3,)), "attributes": rng.choice((0,) * 20 + (1, 16, 32)),
            }  # fmt: skip
            if rng.random() < 0.03:
                fields["base_offset"] = NO_VALUE
            for name, value in fields.items():
                row[CELL[name]] = value
            rows.append(row)
            position, offset = position + 50, row[CELL["last_offset"]] + 1
        cuts = sorted(rng.sample(range(position + 1), min(position, rng.choice((0, 1, 3)))))
        borders = sorted(rng.sample(range(40), rng.choice((0, 2, 4))))
        cells = segment_batches.array("q", (cell for row in rows for cell in row))
        found = batch_runs(cells, len(rows), segment_batches.array("q", cuts), segment_batches.array("q", borders))
        assert found == list(oracle_of_runs(rows, cuts, borders)), number
    with pytest.raises(ValueError, match="fewer rows"):
        batch_runs(bytes(8 * WIDTH), 2, b"", b"")


# ---- a log of small messages


MESSAGES = 6000
WRONG = 60


def messages(rng: random.Random) -> bytes:
    """A log of magic 1 of which every tenth wrong thing is a wrong offset, and the others are damaged bytes."""
    parts = [bytearray(build.message(1, b"k", b"v" * rng.randrange(9), offset=at)) for at in range(MESSAGES)]
    for number, at in enumerate(rng.sample(range(1, MESSAGES), WRONG)):
        bit = rng.randrange(40) if number % 2 else rng.randrange(8 * 14, 8 * len(parts[at]))
        bit ^= 7 if number % 2 == 0 else 0
        if number % 2:
            parts[at][7 - bit // 8] ^= 1 << bit % 8
        else:
            parts[at][bit // 8] ^= 1 << bit % 8
    return b"".join(parts)


def test_a_log_of_small_messages_costs_what_its_damages_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a row for each message, for each of the strategies."""
    directory = put(tmp_path / "topic-0", {"00000000000000000000.log": messages(random.Random(1))})
    made = [0, 0]
    single, span = segment_batches.BatchRun._make, segment_batches._span_of

    def count_run(*values: object) -> segment_batches.BatchRun:
        made[0] += 1
        return single(values)

    def count_span(*given: object) -> BatchSpan:
        made[1] += 1
        return span(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_batches, "BatchRun", count_run)
    monkeypatch.setattr(segment_batches, "_span_of", count_span)
    for strategy in ("truncate", "salvage"):
        plan = planned(directory, RecoverOptions(strategy=strategy, walk="all"))
        assert plan.lost.given_up.batches
    # A run of a hundred messages is divided where a wrong offset is one of its own; each plan reads the log twice.
    assert 0 < made[0] < MESSAGES // 2
    assert 0 < made[1] < MESSAGES // 2


def test_small_messages_are_salvaged_as_if_each_was_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_rows(segments: Sequence[SegmentBatches], max_batch_bytes: int) -> None:
        for one in segments:
            one.read(max_batch_bytes)

    for number in range(examples(4)):
        directory = put(tmp_path / str(number) / "t-0", {f"{0:020d}.log": messages(random.Random(number))})
        partition = next(item for item in discover([str(directory)]) if isinstance(item, Partition))
        found = keep(partition, RecoverOptions(strategy=SALVAGE))
        with monkeypatch.context() as patch:
            patch.setattr(segment_batches, "_read_disorder", read_rows)
            assert keep(partition, RecoverOptions(strategy=SALVAGE)) == found


def test_each_missing_offset_is_said_once(tmp_path: Path) -> None:
    """Each batch that jumps ahead leaves the offsets up to its own: those of all are not added up."""
    plan = planned(
        put(tmp_path / "topic-0", {f"{0:020d}.log": messages(random.Random(2))}),
        RecoverOptions(strategy="truncate", walk="all"),
    )
    ranges = plan.lost.damaged.offsets
    assert ranges
    assert all(left[1] is not None and left[1] < right[0] for left, right in pairwise(ranges))
    assert len(ranges) <= 4 * WRONG


def test_the_first_findings_of_a_code_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is scanned in a part for each damage as of one that is scanned at once."""
    from kdump.verify import findings

    data = messages(random.Random(3))
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": data})
    whole = [one for one in report_of(directory).findings if one.severity is Severity.ERROR]
    monkeypatch.setattr(findings, "KEPT", 7)
    some = report_of(directory)
    for code in {one.code for one in whole}:
        own = [one for one in whole if one.code == code]
        assert [one for one in some.findings if one.code == code] == own[:7]
        assert sum(count for (each, _), count in some.counts.items() if each == code) == len(own)


def test_the_walks_over_damages_are_freed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk and its search refer to each other: thousands of them would wait for the collector, each with its rows."""
    walks: list[weakref.ref[object]] = []

    def noted(*given: object, **how: object) -> object:
        walk = walk_of(*given, **how)  # type: ignore[arg-type]
        walks.append(weakref.ref(walk))
        return walk

    monkeypatch.setattr(scan, "walk_of", noted)
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": messages(random.Random(4))})
    gc.collect()
    gc.disable()
    try:
        report_of(directory)
        left = sum(walk() is not None for walk in walks)
    finally:
        gc.enable()
    assert len(walks) > WRONG // 4
    assert left <= 2
