"""Batches are found in an object by its offset index, of which little more than the entries is fetched."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from kdump.convert.ranges.store_segment_reader import StoreSegmentReader
from kdump.log.batch_location import BatchLocation
from kdump.log.segment_file import SegmentCache
from support.object_stores import Unsteady, unsteady_store
from support.store_logs import MIB, log, put


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def finds(store: str, size: int, targets: list[int]) -> list[BatchLocation]:
    reader = StoreSegmentReader(SegmentCache(), 0, f"{store}/t-0/{0:020}.log", size)
    found = [reader.find(target, size) for target in targets]
    reader.close()
    return [each for each in found if isinstance(each, BatchLocation)]


def test_the_padding_of_an_index_is_not_fetched(store: str) -> None:
    """A broker preallocates 10 MiB for the index of the segment that it writes."""
    batches = log(8)
    size = put("t-0", batches, 100 * MIB, padding=10 * MIB)
    targets = [0, 1, len(batches) // 2, batches[-1][0]]
    Unsteady.calls.clear()
    assert [each.first_offset for each in finds(store, size, targets)] == targets
    assert Unsteady.calls["bytes"] <= MIB + 4 * 256 * 1024


@pytest.mark.parametrize("name", ["empty", "short", "padding", "large", "a hole", "more than once"])
def test_whatever_an_index_has_the_batch_is_found(store: str, name: str) -> None:
    batches = log(1)
    size = put("t-0", batches, 100 * MIB)
    path = f"/bucket/t-0/{0:020}.index"
    entries = Unsteady.store[path].getvalue()
    far = struct.pack(">ii", 1 << 30, 1 << 30)
    index = {
        "empty": b"",
        "short": entries[:5],
        "padding": bytes(1 << 20),
        "large": entries + far * (300 * 1024 // 8) + bytes(MIB),
        "a hole": entries[:80] + bytes(8) + entries[88:],
        "more than once": far * 32768 + bytes(MIB),
    }[name]
    Unsteady().pipe_file(path, index)
    targets = [0, 1, len(batches) // 2, batches[-1][0]]
    assert [each.first_offset for each in finds(store, size, targets)] == targets
