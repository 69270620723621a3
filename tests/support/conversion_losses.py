"""What a conversion says it lacks, checked by the records before and after: the plain walk of `oracle` reads the log
before the damage."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

import kdump
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.errors import KdumpError
from kdump.log.damage import MISPLACED
from kdump.verify.findings import Finding, Severity
from support import build, damage_partition, oracle
from support.damage import NotApplicable
from support.losses import BESIDE, FIXTURES, IN_LOGS, LIKE_CLEANED, PARTITIONS

OUTPUTS = (*(each.value for each in Target), "arrow-reader", "spark")
UNKNOWN = LIKE_CLEANED | {"offset-moved-back", "empty-log"}
OLD = tuple(name for name in PARTITIONS if name.startswith(("compacted", "v", "mixed")))
WARNINGS = frozenset({"tail/zeros", "offset/gap", "gap/unsearched"})
"""A warning of verify stays one, though records may be missing for it."""


class Case(NamedTuple):
    """A damage of a partition in a log directory, whose high watermark is its end or not known, and what reads it.

    `copies` have the same damage, unless `differ`. `is_cleaned`: a checkpoint says that the log cleaner went over it.
    """

    partition: str
    damage: str
    is_marked: bool
    copies: int
    differ: bool
    output: str
    seed: int
    is_cleaned: bool = False


def case(seed: int) -> Case:
    """One of endless cases."""
    rng = random.Random(f"conversion losses {seed}")
    copies = rng.choice((1, 1, 1, 2))
    found = Case(
        rng.choice(PARTITIONS),
        rng.choice((*IN_LOGS, *BESIDE)),
        rng.random() < 0.6,
        copies,
        copies > 1 and rng.random() < 0.5,
        rng.choice(OUTPUTS),
        seed,
    )
    return found._replace(is_cleaned=found.partition.startswith("compacted") and rng.random() < 0.5)


class Said(NamedTuple):
    """The offsets of the rows, and what is said to be missing: ranges, first and last, with whether they are exact.

    `worst` is the severity of the worst finding, `codes` those of all.
    """

    rows: set[int]
    missing: list[tuple[int, int | None, bool]]
    worst: Severity | None
    codes: set[str]

    def is_missing(self, offset: int) -> bool:
        return any(first <= offset and (last is None or offset <= last) for first, last, _ in self.missing)

    @property
    def is_open(self) -> bool:
        return any(last is None for _, last, _ in self.missing)


@cache
def original(partition: str) -> Mapping[int, bool]:
    """The offsets of the records of a fixture, with whether each is a control record."""
    return {offset: each.control for each, several in _batches(FIXTURES / partition) for offset in several}


def _batches(directory: Path) -> Iterator[tuple[oracle.Batch, list[int]]]:
    """The batches of a partition whose records can be read, with the offsets of these."""
    for path in damage_partition.logs(directory):
        data = path.read_bytes()
        for item in oracle.walk(data, base_offset=int(path.stem)):
            if isinstance(item, oracle.Batch):
                whole = data[item.position : item.position + item.size]
                with suppress(oracle.Malformed):
                    yield item, [record.offset for record in oracle.records(whole)]


def _renumbered(directory: Path, before: Collection[int], rows: Collection[int]) -> Iterator[int]:
    """The offsets whose records are rows at other ones that the log cleaner had left free in their batch.

    The checksum is right, and the offsets rise in the batch: nothing shows that they were others.
    """
    for batch, now in _batches(directory):
        first, last = batch.base_offset, batch.last_offset
        if first is None:
            continue  # of a wrapper message
        own = {offset for offset in before if first <= offset <= last}
        is_possible = all(one < two for one, two in pairwise([first - 1, *now, last + 1]))
        if is_possible and len(now) == len(own) <= last - first and set(now) <= set(rows):
            yield from own - set(now)


def write(each: Case, place: Path) -> list[Path]:
    """The damaged copies, each in its log directory. Raises NotApplicable."""
    found: list[Path] = []
    for number in range(each.copies):
        directory = place / f"logs{number}" / Path(each.partition).name
        shutil.copytree(FIXTURES / each.partition, directory)
        seed = f"{each.partition} {each.damage} {each.seed} {number if each.differ else 0}"
        damage_partition.apply(each.damage, directory, random.Random(seed))
        if each.is_marked:
            line = f"{' '.join(directory.name.rsplit('-', 1))} {max(original(each.partition)) + 1}"
            (directory.parent / "replication-offset-checkpoint").write_bytes(build.checkpoint(line))
        if each.is_cleaned:
            line = f"{' '.join(directory.name.rsplit('-', 1))} {max(original(each.partition))}"
            (directory.parent / "cleaner-offset-checkpoint").write_bytes(build.checkpoint(line))
        found.append(directory)
    return found


def _converted(paths: list[Path], out: Path, target: Target) -> Said:
    found = list(convert_logs(kdump.discover(paths), out, ConvertOptions(target=target, isolation="all")))
    for error in (each for each in found if isinstance(each, KdumpError)):
        raise error
    (partition,) = (each for each in found if isinstance(each, PartitionConversion))
    findings = [each for value in found if isinstance(value, ConvertFindings) for each in value.findings]
    rows = _rows(out, target)
    assert target is Target.LOG or len(rows) == partition.rows
    missing = [(each.first_offset, each.last_offset, each.exact) for each in partition.missing]
    return Said(set(rows), missing, max((each.severity for each in findings), default=None), _codes(findings))


def _codes(findings: list[Finding]) -> set[str]:
    return {each.code for each in findings if each.severity > Severity.INFO}


def _rows(out: Path, target: Target) -> list[int]:
    """The offsets in an output."""
    match target:
        case Target.PARQUET:
            return [row for path in out.rglob("*.parquet") for row in pq.read_table(path)["offset"].to_pylist()]
        case Target.ARROW:
            return list(pa_ipc.open_file(out).read_all()["offset"].to_pylist())
        case Target.NDJSON:
            return [json.loads(line)["offset"] for line in out.read_bytes().splitlines()]
        case Target.CSV:
            options = pa_csv.ParseOptions(newlines_in_values=True)
            return list(pa_csv.read_csv(out, parse_options=options)["offset"].to_pylist()) if out.stat().st_size else []
        case Target.LOG:
            found: list[kdump.log.DamagedRange] = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what was copied byte for byte
                table = kdump.arrow(out, columns=["offset"], isolation="all", on_damage=found.append).read_all()
            copied = (
                each for each in found if each.last_offset is not None and (each.length or each.code == MISPLACED)
            )
            more = (offset for each in copied for offset in range(each.first_offset or 0, (each.last_offset or 0) + 1))
            return [*table["offset"].to_pylist(), *more]


def _read(paths: list[Path]) -> Said:
    found: list[kdump.log.DamagedRange] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = kdump.arrow(paths, columns=["offset"], isolation="all", on_damage=found.append).read_all()
    worst = max((each.severity for each in found), default=None)
    if caught:
        worst = Severity.ERROR
    missing = [(each.first_offset, each.last_offset, False) for each in found if each.first_offset is not None]
    codes = {each.code for each in found}
    return Said(set(table["offset"].to_pylist()), missing, worst, codes)


def _of_source(paths: list[Path], seed: int) -> Said:
    """What the data source reads without failOnDataLoss, its ranges cut anywhere."""
    from support.spark_losses import read_ranges

    rows, missing, is_error, codes = read_ranges([path.parent for path in paths], paths[0].name, seed)
    return Said(rows, missing, Severity.ERROR if is_error else Severity.WARNING if codes else None, codes)


def said_of(each: Case, paths: list[Path], place: Path) -> Said:
    if each.output == "arrow-reader":
        return _read(paths)
    if each.output == "spark":
        return _of_source(paths, each.seed)
    return _converted(paths, place / "out", Target(each.output))


def broken_promises(each: Case, place: Path) -> Iterator[str]:
    """What is said of a case that is not so. Raises NotApplicable, KdumpError."""
    paths = write(each, place)
    said = said_of(each, paths, place)
    before = original(each.partition)
    if each.output == "spark":
        before = {offset: control for offset, control in before.items() if not control}
    if each.damage in UNKNOWN and each.partition in OLD:
        return  # as the log cleaner leaves a log, or inside of wrapper messages, whose offsets nothing else shows
    if each.output == "spark" and each.damage in ("resealed-control", "resealed-attributes"):
        return  # what says that it is a control batch is no record
    gone = set(before) - said.rows
    start = min(_first(paths), default=0)  # older segments may have been deleted
    gone = {offset for offset in gone if offset >= start}
    gone -= {offset for directory in paths for offset in _renumbered(directory, before, said.rows)}
    end = max([-1, *(_last(paths))])
    unsaid = {offset for offset in gone if not said.is_missing(offset)}
    if not each.is_marked:  # a log keeps no trace of whole batches that were cut from its end
        unsaid = {offset for offset in unsaid if offset <= end}
    if unsaid:
        yield f"nothing is said of the missing offsets {_few(unsaid)}"
    for first, last, exact in said.missing:
        if exact and last is not None and each.damage != "overflow-tail":  # two batches say where it ends
            if last - first > 1 << 20:
                yield f"{first}..{last} are missing, exactly"
                continue
            here = set(range(first, last + 1))
            if wrong := here & said.rows:
                yield f"{_few(wrong)} are missing, exactly, and are rows"
            if wrong := here - set(original(each.partition)):
                yield f"{_few(wrong)} are missing, exactly, and were no records"
    lost = gone & {offset for offset in gone if offset <= end or each.is_marked}
    if lost and said.worst is None:
        yield f"{_few(lost)} are not there, without a finding"
    if lost and (said.worst or Severity.INFO) < Severity.ERROR and not said.codes & WARNINGS:
        yield f"{_few(lost)} are not there, and the status is 0: {said.codes}"


def _first(paths: list[Path]) -> Iterator[int]:
    for directory in paths:
        yield from (damage_partition.base_offset(path) for path in damage_partition.logs(directory)[:1])


def _last(paths: list[Path]) -> Iterator[int]:
    for directory in paths:
        for path in damage_partition.logs(directory):
            for item in oracle.walk(path.read_bytes(), base_offset=int(path.stem)):
                if isinstance(item, oracle.Batch) and item.last_offset < 1 << 40:
                    yield item.last_offset


def has_source() -> bool:
    """Whether Spark's data source is there."""
    return find_spec("pyspark") is not None and find_spec("pandas") is not None


def _few(offsets: set[int]) -> str:
    return f"{sorted(offsets)[:9]} ({len(offsets)})"


__all__ = ["Case", "NotApplicable", "broken_promises", "case", "has_source"]
