"""Every damage of a partition changes the directory, always in the same way, and says where; what it cannot do it
leaves alone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from support import damage_partition
from support.damage import NotApplicable
from support.laws import sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = ("segments/segments-0", "v1-segments-0.10.2.2/segments-0")
SEEDS = sampled(range(2), 2)


def contents(directory: Path) -> dict[str, bytes | None]:
    return {path.name: path.read_bytes() if path.is_file() else None for path in directory.iterdir()}


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("name", damage_partition.DAMAGES)
def test_damage(name: str, tmp_path: Path) -> None:
    done = 0
    for partition in PARTITIONS:
        for seed in SEEDS:
            results = []
            for copy in ("one", "two"):
                directory = tmp_path / copy
                shutil.copytree(FIXTURES / partition, directory)
                before = contents(directory)
                try:
                    where = damage_partition.apply(name, directory, random.Random(seed))
                except NotApplicable:
                    assert contents(directory) == before
                    results.append(None)
                else:
                    after = contents(directory)
                    assert after != before
                    old, new = before.get(where.file), after.get(where.file)
                    assert old != new or (old is None and where.file in after)
                    if old is not None and new is not None:
                        assert old[: where.position] == new[: where.position]
                        assert old[where.position : where.position + 1] != new[where.position : where.position + 1]
                    results.append((where, after))
                    done += 1
                shutil.rmtree(directory)
            assert results[0] == results[1]
    assert done, "no directory here has what it is about"
