"""What a recovery says is lost, checked by the records before and after: the plain walk of `oracle` reads both."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import NamedTuple

from kdump.recover.plan import Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import plan_recovery
from kdump.render import recovery
from kdump.storage.discovery import discover
from support import build, damage_partition, oracle
from support.expected_files import NOW_MS

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = (
    "transactions/transactions-0",
    "segments/segments-0",
    "compacted/later-0",
    "crash/crash-0",
    "v1-segments-0.10.2.2/segments-0",
    "v0-segments-0.8.2.2/segments-0",
    "mixed-through-3.9.1/mixed-0",
)
IN_LOGS = tuple(damage_partition.DAMAGES)[: list(damage_partition.DAMAGES).index("index-deleted")]
BESIDE = tuple(name for name in damage_partition.DAMAGES if name.startswith(("leftover-", "odd-")))
STRATEGIES = ("truncate", "salvage", "reindex")
LIKE_CLEANED = frozenset(
    {
        *("resealed-last-offset-delta", "resealed-count", "missing-segment", "missing-log", "removed-batch"),
        *("flip-offset", "offset-ahead", "overflow-tail"),
    }
)
"""After these a log looks as the log cleaner leaves one, where it went over the log, or seems to have done so: the last
ones where they are about the last batch."""
POSITIONS = tuple(product(("above", "below"), ("above", "below")))
"""Of the high watermark and of the recovery point, at the end of the log or at its start."""


class LossCase(NamedTuple):
    """A damage of a partition in a log directory, where both checkpoints point, and the strategy."""

    partition: str
    damage: str
    high_watermark: str
    recovery_point: str
    strategy: str


CASES = tuple(
    LossCase(partition, damage, *position, strategy)
    for partition in PARTITIONS
    for damage in ("none", *IN_LOGS, *BESIDE)
    for position in POSITIONS
    for strategy in STRATEGIES
)


class Valid(NamedTuple):
    """A valid batch: its offsets, its records, its bytes."""

    first: int
    last: int
    records: int
    data: bytes


def valid_batches(data: bytes, base_offset: int | None) -> Iterator[Valid]:
    """The valid batches of a log file."""
    expected = base_offset or 0
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, oracle.Batch):
            whole = data[item.position : item.position + item.size]
            first, count = item.offset, item.count
            if item.magic < 2 and item.attributes & 7:
                try:
                    first = min((record.offset for record in oracle.records(whole)), default=item.last_offset)
                except oracle.Malformed:
                    first = expected  # its checksum is right: it is valid, though nobody can open it
                first, count = min(first, item.last_offset), None
            elif item.magic < 2:
                count = 1
            expected = item.last_offset + 1
            yield Valid(first, item.last_offset, -1 if count is None else max(0, count), whole)


def undecided_in(logs: Mapping[str, bytes]) -> Iterator[Valid]:
    """The batches of which nothing shows whether they are of the log."""
    for name, data in logs.items():
        stem = name.partition(".")[0]
        walked = oracle.survey(data, base_offset=int(stem) if stem.isdigit() and int(stem) < 2**63 else None)
        for batch in walked.foreign:
            if batch.position in walked.undecided:
                first = batch.last_offset if batch.offset is None else batch.offset
                whole = data[batch.position : batch.position + batch.size]
                yield Valid(first, batch.last_offset, max(0, batch.count or 0), whole)


def logs_in(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".log")}


def batches_of(logs: Mapping[str, bytes], *, named: bool = False) -> list[Valid]:
    """The valid batches of all logs; with `named` of those that a broker reads."""
    found: list[Valid] = []
    for name, data in sorted(logs.items()):
        stem = name.partition(".")[0]
        base = int(stem) if stem.isdigit() and int(stem) < 2**63 else None
        if not named or (len(stem) == 20 and base is not None):
            found += valid_batches(data, base)
    return found


def offsets_of(batches: list[Valid]) -> set[int]:
    found: set[int] = set()
    for batch in batches:
        if 0 <= batch.last - batch.first < 1 << 20:
            found.update(range(batch.first, batch.last + 1))
    return found


class Points(NamedTuple):
    """What the checkpoints of a log directory are to say of a partition."""

    high_watermark: int
    recovery_point: int


def write_damaged(case: LossCase, directory: Path, seed: str = "") -> Points:
    """Write the damaged partition. Raises NotApplicable."""
    shutil.copytree(FIXTURES / case.partition, directory)
    before = batches_of(logs_in(read(directory)), named=True)
    offsets = {"above": max(batch.last for batch in before) + 1, "below": before[0].first + 1}
    if case.damage != "none":
        damage_partition.apply(case.damage, directory, random.Random(f"losses {case.partition} {case.damage}{seed}"))
    return Points(offsets[case.high_watermark], offsets[case.recovery_point])


def write_points(logs: Path, points: Mapping[str, Points]) -> None:
    """Write both checkpoints of a log directory, by the names of the partitions' directories."""
    for file, field in (("replication-offset-checkpoint", 0), ("recovery-point-offset-checkpoint", 1)):
        lines = (f"{' '.join(name.rsplit('-', 1))} {points[name][field]}" for name in points)
        (logs / file).write_bytes(build.checkpoint(*lines))


def make(case: LossCase, place: Path, seed: str = "") -> Path:
    """The damaged partition in its log directory. Raises NotApplicable."""
    directory = place / "logs" / Path(case.partition).name
    write_points(directory.parent, {directory.name: write_damaged(case, directory, seed)})
    return directory


def read(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def planned(case: LossCase, directory: Path) -> Plan:
    options = RecoverOptions(strategy=case.strategy, now_ms=NOW_MS)
    (plan,) = (
        item
        for item in plan_recovery(discover([str(directory)]), options)
        if isinstance(item, Plan) and not item.is_root
    )
    return plan


def logs_after(plan: Plan, before: Mapping[str, bytes]) -> dict[str, bytes]:
    """The log files that a plan leaves."""
    after = logs_in(before)
    for name, content in plan.after.items():
        if content is None:
            after.pop(name, None)
        elif name.endswith(".log"):
            after[name] = content.data or b"".join(
                before[piece.name][piece.start : piece.stop] for piece in content.pieces
            )
    return after


class Span(NamedTuple):
    """What a plan says is lost, as offsets."""

    given_up: set[int]
    damaged: list[tuple[int, int | None]]

    def has(self, offset: int) -> bool:
        return offset in self.given_up or self.is_damaged(offset)

    def is_damaged(self, offset: int) -> bool:
        return any(first <= offset and (last is None or offset <= last) for first, last in self.damaged)


def broken_promises(case: LossCase, place: Path, seed: str = "") -> Iterator[str]:
    """What the report of a case says that is not so; another seed damages other bytes. Raises NotApplicable."""
    directory = make(case, place, seed)
    original = offsets_of(batches_of(logs_in(read(FIXTURES / case.partition)), named=True))
    before = read(directory)
    plan = planned(case, directory)
    lost = plan.lost
    had, kept = batches_of(logs_in(before)), batches_of(logs_after(plan, before))
    after = logs_after(plan, before)
    yield from _wrong_given_up(plan, [*had, *undecided_in(logs_in(before))], [*kept, *undecided_in(after)])
    if lost.damaged.offsets is None or lost.given_up.offsets is None:
        return
    said = Span(set(), [*lost.damaged.offsets])
    for first, last in lost.given_up.offsets:
        said.given_up.update(range(first, min(last, first + (1 << 20)) + 1))
    start = min(batch.first for batch in had) if had else 0
    mark = plan.high_watermark or 0
    present = offsets_of(batches_of(logs_after(plan, before), named=True))
    missing = {offset for offset in original - present if start <= offset < mark}
    # Verify does not open compressed messages of magic 0 and 1, whose offsets nothing else shows.
    if (lost.compacted or case.partition.startswith("v")) and case.damage in LIKE_CLEANED:
        return
    if unsaid := {offset for offset in missing if not said.has(offset)}:
        yield f"nothing is said of the missing offsets {sorted(unsaid)[:9]}"
    if missing and lost.committed is not True:
        yield f"committed is {lost.committed}, but {sorted(missing)[:9]} are missing"
    if lost.damaged.exact:
        # A log keeps no trace of whole batches that were cut from its end, above the high watermark.
        end = max([mark, *(batch.last + 1 for batch in had)])
        wrong = {offset for offset in original if start <= offset < end and said.is_damaged(offset)}
        truth = {offset for offset in original - offsets_of(had) if start <= offset < end}
        beyond = [one for one in said.damaged if one[1] is None or one[1] > max(original)]
        if wrong != truth or beyond:
            yield f"damaged is {said.damaged}, exact, but {sorted(truth)[:9]}"
    words = [sentence for _, sentence in recovery.sentences(RecoveryResult(plan))]
    if missing and any("nothing lost" in sentence for sentence in words):
        yield f"it says that nothing is lost, but {sorted(missing)[:9]} are"
    if missing - offsets_of(had) and plan.actions and _removes_damage(plan) and not lost.is_for_good:
        yield f"damaged bytes of {sorted(missing)[:9]} are removed, and the status does not say so"


def _removes_damage(plan: Plan) -> bool:
    return any(action.action in ("truncate", "drop") and not action.batches and action.bytes for action in plan.actions)


def _wrong_given_up(plan: Plan, had: list[Valid], kept: list[Valid]) -> Iterator[str]:
    """Given up is what is there before, and not afterwards."""
    gone = Counter(batch.data for batch in had) - Counter(batch.data for batch in kept)
    given_up = plan.lost.given_up
    batches, size = sum(gone.values()), sum(len(data) * count for data, count in gone.items())
    if (given_up.batches, given_up.bytes) != (batches, size):
        yield f"given up are {batches} batches of {size} bytes, not {given_up.batches} of {given_up.bytes}"
    known = {batch.data: batch for batch in had}
    records = sum(known[data].records * count for data, count in gone.items())
    if given_up.records not in (None, records):
        yield f"given up are {records} records, not {given_up.records}"
