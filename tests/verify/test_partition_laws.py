"""Laws of verifying whole directories: no cutting of the work changes the report, one damage gives one error,
companions check no log, nothing is written."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import snapshot
from kdump.engine.processes import Processes
from kdump.engine.protocol import Serial
from kdump.storage.discovery import discover
from kdump.storage.ranges import RangeSizes
from kdump.verify.catalogue import logs
from kdump.verify.findings import Finding, Severity
from kdump.verify.verify import Report, VerifyOptions, verify_logs
from support import damage, damage_partition, directories, finding_rules
from support.cuttings import Ranges, borders
from support.laws import examples

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NOW_MS = 1_900_000_000_000
"""Later than all that the fixtures hold."""
PARTITIONS = (
    "segments/segments-0",
    "transactions/transactions-0",
    "transactions-v1/transactions-0",
    "v2-transactions-0.11.0.3/transactions-0",
    "compacted/at-once-transactions-0",
    "compacted/later-0",
    "idempotent/wrap-0",
    "mixed-through-2.8.2/mixed-0",
    "crash/crash-0",
    "follower/transfers-0",
    "restarted/transfers-0",
    "killed/compacted-transactions-0",
    "v1-segments-0.10.2.2/segments-0",
    "v0-segments-0.8.2.2/segments-0",
)
COMPLETE = ("segments/segments-0", "transactions-v1/transactions-0", "idempotent/turns-0", "restarted/transfers-0")
"""Partitions whose logs have all companions."""
OF_A_LOG = {entry.code for entry in logs.ENTRIES}
FEW = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def verified(place: Path, *, deep: bool = False, engine: Any = None) -> list[Report]:
    return list(verify_logs(discover([str(place)]), VerifyOptions(deep, now_ms=NOW_MS), engine=engine or Serial()))


def shown(place: Path, *, deep: bool = False) -> list[Finding]:
    return [finding for report in verified(place, deep=deep) for finding in report.findings]


def reported(findings: list[Finding]) -> Counter[tuple[Any, ...]]:
    """What is worth comparing: all but the prose of numbers that follow from elsewhere."""
    return Counter((one.code, one.severity, one.path, one.position, one.length) for one in findings)


def copied(directory: Path, name: str) -> Path:
    """A fresh copy of a fixture."""
    copy = directory / Path(name).name
    if copy.exists():
        shutil.rmtree(copy)
    return Path(shutil.copytree(FIXTURES / name, copy, ignore=shutil.ignore_patterns("expected", "case.toml")))


def equal(one: list[Report], other: list[Report]) -> None:
    """The same reports, field by field; an error is what it says."""
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        for name in Report.__slots__:
            a, b = getattr(left, name), getattr(right, name)
            if name == "errors":
                a, b = [str(error) for error in a], [str(error) for error in b]
            assert a == b, name


def hurt(copy: Path, rng: random.Random, times: int) -> None:
    """Damage a directory: the bytes of one of its logs, or its files."""
    for _ in range(times):
        try:
            if rng.random() < 0.5:
                path = rng.choice(damage_partition.logs(copy))
                path.write_bytes(damage.damage(path.read_bytes(), rng))
            else:
                damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), copy, rng)
        except (damage.NotApplicable, IndexError):
            continue


# ---- a cutting of the work changes nothing


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", PARTITIONS)
def test_no_cutting_changes_the_report(tmp_path: Path, name: str) -> None:
    for seed in range(12):
        rng = random.Random(f"{name} {seed}")
        copy = copied(tmp_path, name)
        hurt(copy, rng, seed % 4)
        deep = rng.random() < 0.3
        expected = verified(copy, deep=deep)
        with pytest.MonkeyPatch.context() as patch:
            borders(patch, rng)
            equal(verified(copy, deep=deep, engine=Ranges()), expected)


@FEW
@given(st.randoms(use_true_random=False), st.integers(0, 2))
def test_no_cutting_changes_the_report_of_made_partitions(tmp_path: Path, rng: random.Random, times: int) -> None:
    copy = tmp_path / "t-0"
    if copy.exists():
        shutil.rmtree(copy)
    built = directories.built(rng)
    directories.write(copy, built)
    hurt(copy, rng, times)
    expected = verified(copy)
    with pytest.MonkeyPatch.context() as patch:
        borders(patch, rng)
        equal(verified(copy, engine=Ranges()), expected)


@pytest.mark.parametrize("name", ["killed", "restarted", "log-directory", "follower-2.8.2"])
def test_processes_change_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = copied(tmp_path, name)
    for number, partition in enumerate(sorted(path for path in copy.iterdir() if path.is_dir())):
        hurt(partition, random.Random(number), number % 3)
    expected = verified(copy)
    monkeypatch.setattr("kdump.storage.ranges.RANGE_SIZES", RangeSizes(500, 1500))
    equal(verified(copy, engine=Processes(2)), expected)
    monkeypatch.setattr("kdump.verify.verify.SMALL_BYTES", 3000)
    equal(verified(copy, engine=Processes(2)), expected)


# ---- one damage, one error


def flips(copy: Path, rng: random.Random) -> Iterator[tuple[Path, int]]:
    """Bits under a checksum: of each segment one batch, the first and the last among them."""
    for path in damage_partition.logs(copy):
        data = path.read_bytes()
        found = damage.batches(data)
        for batch in {*found[:1], *found[-1:], *rng.sample(found, min(2, len(found)))}:
            covered = 16 if batch.magic < 2 else 21
            at = batch.position + rng.randrange(covered, batch.size)
            changed = bytearray(data)
            changed[at] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            yield path, batch.position
        path.write_bytes(data)


@pytest.mark.daily(3)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("name", COMPLETE)
def test_a_flipped_bit_under_a_checksum_adds_one_error(tmp_path: Path, name: str, deep: bool) -> None:
    copy = copied(tmp_path, name)
    before = reported(shown(copy, deep=deep))
    for path, position in flips(copy, random.Random(name)):
        added = reported(shown(copy, deep=deep)) - before
        worse = [key[:4] for key in added.elements() if key[1] is not Severity.INFO]
        assert worse == [("batch/crc", Severity.ERROR, str(path), position)]


# ---- companions


def companions(copy: Path) -> list[Path]:
    return [path for path in sorted(copy.iterdir()) if path.suffix != ".log" and path.stat().st_size]


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "name", [*COMPLETE, "crash/crash-0", "mixed-through-2.8.2/mixed-0", "compacted/at-once-transactions-0"]
)
def test_a_companion_checks_no_log(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    copy = copied(tmp_path, name)
    before = shown(copy)
    for path in companions(copy):
        data = path.read_bytes()
        for _ in range(4):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            path.write_bytes(changed)
            after = shown(copy)
            assert of_the_logs(after) == of_the_logs(before)
            elsewhere = {
                one.path for one in after if one.path != str(path) and reported([one]).keys() - reported(before).keys()
            }
            assert elsewhere <= informed(path), (path.name, elsewhere)
            for one in after:
                finding_rules.check(one)
        path.write_bytes(data)


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", ["restarted", "leader-1.1.1"])
def test_a_checkpoint_of_a_log_directory_checks_no_log(tmp_path: Path, name: str) -> None:
    """What it says of a partition is used: where its log starts, and whether a cleaner went over it."""
    rng = random.Random(name)
    copy = copied(tmp_path, name)
    before = shown(copy)
    for path in sorted(path for path in copy.iterdir() if path.is_file() and path.name != "bootstrap.checkpoint"):
        data = path.read_bytes()
        for _ in range(4 if data else 0):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            path.write_bytes(changed)
            after = shown(copy)
            assert of_the_logs(after) == of_the_logs(before)
            for one in after:
                finding_rules.check(one)
                assert one.broker in finding_rules.OUTCOMES
        path.write_bytes(data)


def of_the_logs(findings: list[Finding]) -> Counter[tuple[Any, ...]]:
    return reported([one for one in findings if one.code in OF_A_LOG])


def informed(path: Path) -> set[str]:
    """Other files that are checked by what this one says: the snapshot at the first segment is where the replay of a
    log begins that lost its start."""
    base = path.name.partition(".")[0]
    first = min((one.name.partition(".")[0] for one in path.parent.glob("*.log")), default="")
    if path.suffix == ".snapshot" and base == first and int(base):
        return {str(other) for other in path.parent.iterdir()}
    return set()


# ---- nothing is written


@pytest.mark.parametrize("name", ["restarted", "mixed-through-2.8.2", "follower-1.1.1"])
def test_nothing_is_written(tmp_path: Path, name: str) -> None:
    copy = copied(tmp_path, name)
    for number, partition in enumerate(sorted(path for path in copy.iterdir() if path.is_dir())):
        hurt(partition, random.Random(number), 2)
    before = snapshot([tmp_path])
    for deep in (False, True):
        verified(copy, deep=deep)
    verified(copy, engine=Processes(2))
    assert snapshot([tmp_path]) == before
