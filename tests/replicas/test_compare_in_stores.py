"""Copies in an object store are compared as copies on a disk are, and small ones with one read of each."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kdump.storage import file_store
from kdump.storage.object_store import object_store
from support import damage_partition
from support.laws import examples, sampled
from support.losses import FIXTURES
from support.object_stores import Run, Unsteady, copy, run_here, unsteady_store
from support.store_logs import MIB, PARTITIONS, generate, log, put


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def run(*arguments: str) -> Run:
    object_store.cache_clear()
    Unsteady.calls.clear()
    return run_here(*arguments, "--jobs", "1")


@pytest.mark.parametrize("transaction", [0, 5])
def test_what_comparing_copies_costs(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transaction: int
) -> None:
    """Copies of 64 MiB together are fetched once; of others a survey is one read, and so is what decides."""
    batches = log(15, transaction=transaction, outcomes="COMMIT ABORT COMMIT")
    size = put("b1/t-0", batches, 4 * MIB) + put("b2/t-0", batches, 4 * MIB)
    fingerprint = str(tmp_path / "fp")
    assert not run("verify", "--fingerprint", fingerprint, f"{store}/b1").status
    for kept, reads in ((64 * MIB, 1), (16 * MIB, 3 if transaction else 2)):
        monkeypatch.setattr(file_store, "MARKERS_AHEAD_BYTES", kept)
        for pair, part in (((f"{store}/b1", f"{store}/b2"), 1.0), ((fingerprint, f"{store}/b2"), 0.5)):
            is_small = size * part <= kept
            assert not run("verify", "--compare", *pair).status
            assert Unsteady.calls["bytes"] <= 1.02 * size * part * (1 if is_small else reads), (kept, pair)


@pytest.mark.laws
def test_a_store_and_a_disk_give_the_same(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two copies one of which is damaged, and of one and a fingerprint."""
    for seed in sampled(range(examples(100)), 3):
        rng = random.Random(f"compare in a store {seed}")
        place = tmp_path / str(seed)
        one, two = place / "b1" / "t-0", place / "b2" / "t-0"
        if rng.random() < 0.3:
            shutil.copytree(FIXTURES / rng.choice(PARTITIONS), one)
        else:
            generate(one, rng)
        shutil.copytree(one, two)
        if rng.random() < 0.7:
            with suppress(damage_partition.NotApplicable):
                damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), two, rng)
        if not any(two.glob("*.log")):
            continue
        Unsteady.reset()
        copy(Unsteady(), place, "/bucket")
        fingerprint = str(tmp_path / f"fp-{seed}")
        shutil.copytree(one, tmp_path / f"other-{seed}" / "t-0")
        run("verify", "--fingerprint", fingerprint, str(tmp_path / f"other-{seed}"))
        monkeypatch.setattr(file_store, "MARKERS_AHEAD_BYTES", rng.choice((0, 64 * MIB)))
        for first in ("ROOT/b1", fingerprint):
            told = []
            for root in (store, str(place)):
                paths = first.replace("ROOT", root), f"{root}/b2"
                status, lines, problems = run("verify", "--compare", "--format", "json", *paths).comparable(root)
                for line in lines:
                    for name in ("identity", "steps"):  # they have the path of the log, and nothing fills a store
                        line.pop(name, None)
                told.append((status, lines, problems))
            assert told[0] == told[1], (seed, first)
        shutil.rmtree(place)
