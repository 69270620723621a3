"""The compiled kernel and the reader against the plain decoder of oracle.py: on built, broker-made and damaged bytes
they say the same."""

import random
import struct
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.format.naming import Kind, base_offset_of
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Walk
from kdump.verify.scan import ScanOptions
from support import build, damage, file_reports, oracle
from support.cases import each
from support.laws import examples, sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CODEC_ONLY = {"batch/codec-odd"}  # the oracle has small codec readers of its own, which know no leniency

Said = Counter[tuple[str, str, int]]


def kdump_says(data: bytes, *, deep: bool, base_offset: int | None, checkpoint: bool = False) -> Said:
    file = LogFile("x", Kind.CHECKPOINT if checkpoint else Kind.LOG, base_offset, True, len(data))
    report = file_reports.verify_file(file, ScanOptions(deep=deep), source=BytesSource(data))
    return Counter(
        (found.code, found.severity.word, found.position) for found in report.findings if found.code not in CODEC_ONLY
    )


def oracle_says(data: bytes, *, deep: bool, base_offset: int | None, checkpoint: bool = False) -> Said:
    found = oracle.verify(data, deep=deep, base_offset=base_offset, checkpoint=checkpoint)
    return Counter((one.code, one.severity, one.position) for one in found if one.code not in CODEC_ONLY)


def agree(data: bytes, base_offset: int | None, *, checkpoint: bool = False) -> None:
    for deep in (False, True):
        ours = kdump_says(data, deep=deep, base_offset=base_offset, checkpoint=checkpoint)
        theirs = oracle_says(data, deep=deep, base_offset=base_offset, checkpoint=checkpoint)
        assert ours == theirs, f"only kdump: {ours - theirs}; only the oracle: {theirs - ours}"


def same_records(data: bytes) -> None:
    """Every record of every valid batch, field by field, up to where one does not parse."""
    for chunk in Walk(BytesSource(data), everything=True, rows=5):
        if not isinstance(chunk, BatchChunk) or chunk.damaged:
            continue
        for batch, suspect in zip(chunk.rows(), chunk.suspects(), strict=True):
            opened = open_batch(batch, chunk.body(batch), MAX_BATCH_BYTES)
            try:
                expected = oracle.records(data, batch.position)
            except oracle.Malformed:
                assert opened.problem is not None or suspect
                continue
            if opened.problem is not None:
                continue
            first = batch.last_offset if batch.is_wrapper else batch.base_offset
            assert [
                (one.offset, one.timestamp, one.key, one.value, one.headers, first, one.sequence, one.magic)
                for one in records(batch, opened)
            ] == [
                (one.offset, one.timestamp, one.key, one.value, one.headers, one.batch_offset, one.sequence, one.magic)
                for one in expected
            ]


@cache
def logs() -> list[Path]:
    found = (path for path in FIXTURES.rglob("*") if path.suffix in (".log", ".checkpoint"))
    return sorted(path for path in found if path.stat().st_size < 200_000)


def base_of(path: Path) -> int | None:
    return 0 if path.suffix == ".checkpoint" else base_offset_of(str(path))


@each("path", sampled(logs(), 4), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_broker_made(path: Path) -> None:
    data = path.read_bytes()
    agree(data, base_of(path), checkpoint=path.suffix == ".checkpoint")
    same_records(data)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("name", damage.DAMAGES)
def test_damaged(name: str) -> None:
    rng = random.Random(name)
    for path in rng.sample(logs(), examples(20)):
        data = path.read_bytes()
        if 200 < len(data) < 30_000:
            try:
                broken = damage.DAMAGES[name](data, rng)
            except damage.NotApplicable:
                continue
            agree(broken, base_of(path), checkpoint=path.suffix == ".checkpoint")
            same_records(broken)


@settings(max_examples=examples(60), deadline=None)
@given(build.segments(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_built_and_damaged(data: bytes, rng: random.Random, times: int) -> None:
    for _ in range(times):
        try:
            data = damage.damage(data, rng)
        except damage.NotApplicable:
            break
    agree(data, rng.choice((None, 0)))
    same_records(data)


@pytest.mark.parametrize("first", [-(2**63), -(2**63) + 7, -1, 2**63 - 1])
def test_damage_after_an_offset_far_from_the_segment(first: int) -> None:
    """No difference to the base offset overflows, which only the sanitizers would see."""
    batch = bytearray(build.batch([build.record(b"k")], base_offset=220))
    struct.pack_into(">q", batch, 0, first)
    torn = build.batch([build.record(b"k")], base_offset=221)[:-1] + b"x"
    agree(bytes(batch) + torn + build.batch([build.record(b"k")], base_offset=222), 213)


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=200))
def test_any_bytes(before: bytes, after: bytes) -> None:
    agree(before + build.batch([build.record(b"k", b"v")], base_offset=3) + after, 0)
