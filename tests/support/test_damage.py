"""Every damage changes the bytes, and the oracle sees what the damage says it can cause, and nothing else."""

from __future__ import annotations

import random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from support import build, damage, oracle
from support.laws import examples

# A handful of mixed segments is enough for each damage: what it picks inside them is random as well.
EXAMPLES = examples(20)
# What no damage is about: limits that the caller sets, and rules of snapshot files.
NOT_DAMAGE = {"batch/limit", "gap/unsearched", "kraft/snapshot-header", "kraft/snapshot-footer"}


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", damage.DAMAGES)
@given(data=build.segments(max_batches=4), seed=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], database=None)
def test_damage(name: str, data: bytes, seed: int) -> None:
    how = damage.DAMAGES[name]
    damaged = how(data, random.Random(seed))
    assert damaged != data
    assert damaged == how(data, random.Random(seed))
    found = {finding.code for finding in oracle.verify(damaged, deep=how.deep, base_offset=0)}
    assert found <= how.codes
    if how.certain:
        assert found


@pytest.mark.parametrize("name", damage.DAMAGES)
def test_damage_to_nothing(name: str) -> None:
    """Where there is no batch to damage, there is one first."""
    how = damage.DAMAGES[name]
    damaged = how(b"", random.Random(1))
    assert damaged
    found = {finding.code for finding in oracle.verify(damaged, deep=how.deep, base_offset=0)}
    assert found <= how.codes
    if how.certain:
        assert found


@given(data=build.segments(max_batches=3), seed=st.integers(0, 2**32), times=st.integers(2, 6))
@settings(max_examples=examples(100), deadline=None)
def test_damage_upon_damage(data: bytes, seed: int, times: int) -> None:
    rng = random.Random(seed)
    try:
        damaged = damage.damage(data, rng, times)
    except damage.NotApplicable:
        return
    oracle.verify(damaged, deep=True)


def test_damages_cause_every_finding_of_the_walk_and_the_records() -> None:
    caused = {code for how in damage.DAMAGES.values() for code in how.codes}
    assert caused.isdisjoint(NOT_DAMAGE)
    assert caused == {
        *(
            "batch/attributes",
            "batch/codec",
            "batch/codec-odd",
            "batch/count",
            "batch/crc",
            "batch/length",
            "batch/magic",
        ),
        *("control/structure", "epoch/backwards", "gap/bytes", "gap/foreign-batch"),
        *("legacy/inner-crc", "legacy/inner-magic", "legacy/partial", "legacy/trailing", "legacy/wrapper"),
        *("offset/backwards", "offset/gap", "offset/range", "record/delta", "record/structure", "record/varint"),
        *("tail/garbage", "tail/torn", "tail/zeros", "time/max"),
    }


def test_nested_batch_is_never_taken() -> None:
    data = b"".join(build.batch([build.record(b"k", b"v")], base_offset=offset) for offset in range(3))
    for seed in range(50):
        damaged = damage.DAMAGES["nested-batch"](data, random.Random(seed))
        offsets = [batch.offset for batch in damage.batches(damaged)]
        assert offsets == sorted(set(offsets))
        assert 3 not in offsets


def test_chosen_damages() -> None:
    data = build.batch([build.record(b"k", b"v")])
    assert damage.damage(data, random.Random(1), 2, ["repeat-batch"]) == data * 3
