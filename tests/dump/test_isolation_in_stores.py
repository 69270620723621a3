"""A dump of an object store that needs the markers of transactions says what one of a disk says, from one read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kdump.storage import file_store
from kdump.storage.object_store import object_store
from support import build
from support.damage import NotApplicable, damage
from support.laws import examples
from support.object_stores import Unsteady, copy, run_here, unsteady_store

HOWS = ((), ("--isolation", "read-committed"), ("--isolation", "read-committed", "--last", "3"))


@pytest.fixture(autouse=True)
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


@pytest.mark.laws
def test_a_dump_of_a_store_is_that_of_a_disk(tmp_path: Path) -> None:
    aborted = ends = 0
    for seed in range(examples(150)):
        rng = random.Random(f"dump of a store {seed}")
        folder = tmp_path / str(seed)
        directory = folder / "t-0"
        directory.mkdir(parents=True)
        odd, removed = rng.choice((0, 0, 0.1)), rng.choice((0, 0, 0.3))
        for segment in build.partition(rng, batches=rng.choice((10, 40)), odd=odd, removed=removed):
            data = segment.data
            if rng.random() < 0.1:
                with suppress(NotApplicable):
                    data = damage(data, rng, 1)
            (directory / f"{segment.base_offset:020}.log").write_bytes(data)
        if rng.random() < 0.2:
            (folder / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        Unsteady.reset()
        object_store.cache_clear()
        copy(Unsteady(), folder, "/bucket")
        for how in HOWS:
            here = run_here("dump", "--format", "json", *how, str(directory))
            there = run_here("dump", "--format", "json", *how, "unsteady://bucket/t-0")
            assert there.comparable("unsteady://bucket") == here.comparable(str(folder)), (seed, how)
            aborted += '"aborted": true' in here.output or '"aborted":true' in here.output
            ends += "last stable offset" in here.problems or '"last_stable_offset"' in here.output
    assert min(aborted, ends) > 3


def put(batches: int, segments: int) -> int:
    """Segments of batches of two producers whose transactions overlap; their bytes."""
    rng, offset, size = random.Random(1), 0, 0
    for _ in range(segments):
        base, data = offset, b""
        for number in range(batches):
            how = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": number // 2, "transactional": True}
            data += build.batch([build.record(b"k", rng.randbytes(30_000))], base_offset=offset, **how)
            offset += 1
            if number % 6 > 3:
                data += build.marker(rng.choice(("COMMIT", "ABORT")), base_offset=offset, producer_id=number % 2)
                offset += 1
        Unsteady().pipe_file(f"/bucket/t-0/{base:020}.log", data)
        size += len(data)
    return size


@pytest.mark.parametrize("how", HOWS[:2])
def test_each_byte_is_fetched_once_or_twice(how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once where all of it can be kept; what follows a file is small where the file is large."""
    size = put(120, 5)
    monkeypatch.setattr(file_store, "MARKERS_AHEAD_BYTES", 1)
    assert not run_here("dump", *how, "unsteady://bucket/t-0").status
    assert Unsteady.calls["bytes"] <= (2.05 if how else 2.9) * size
    monkeypatch.undo()
    Unsteady.calls.clear()
    assert not run_here("dump", *how, "unsteady://bucket/t-0").status
    assert Unsteady.calls["bytes"] <= 1.02 * size
