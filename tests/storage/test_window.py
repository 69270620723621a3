"""What a search read ahead of a walk is not read again, and nothing else differs."""

from __future__ import annotations

import random

import pytest

from kdump.storage import window
from kdump.storage.source import BytesSource
from kdump.storage.walk import Gap, Walk
from kdump.storage.window import ReadAhead
from support import build, damage
from support.laws import examples


class CountedSource(BytesSource):
    """Bytes in memory that count how many of them are read."""

    count = 0

    def readinto(self, position: int, buffer: memoryview) -> int:
        read = super().readinto(position, buffer)
        self.count += read
        return read


def test_what_is_kept_is_what_the_source_has(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(examples(100)):
        rng = random.Random(number)
        monkeypatch.setattr(window, "KEPT_BYTES", rng.choice((0, 100, 1000, 10_000)))
        data = rng.randbytes(2000)
        ahead = ReadAhead(BytesSource(data))
        for _ in range(60):
            ahead.keeps = rng.random() < 0.6
            position, size = rng.randrange(2100), rng.randrange(400)
            buffer = bytearray(size)
            read = ahead.readinto(position, memoryview(buffer))
            assert buffer[:read] == data[position : position + size]


def test_what_is_kept_is_read_once() -> None:
    source = CountedSource(bytes(1000))
    ahead = ReadAhead(source)
    ahead.keeps = True
    for position, size in ((100, 100), (300, 100), (150, 200), (100, 300), (50, 400)):
        ahead.readinto(position, memoryview(bytearray(size)))
    assert source.count == 400


def test_no_more_is_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "KEPT_BYTES", 250)
    source = CountedSource(bytes(1000))
    ahead = ReadAhead(source)
    ahead.keeps = True
    for position in (0, 100, 200, 300):
        ahead.readinto(position, memoryview(bytearray(100)))
    assert source.count == 400
    ahead.readinto(200, memoryview(bytearray(200)))
    assert source.count == 400
    ahead.readinto(0, memoryview(bytearray(100)))
    assert source.count == 500


@pytest.mark.parametrize("buffer_bytes", [1 << 10, 8 << 10, 512 << 10])
def test_a_walk_over_many_damages_reads_little_twice(buffer_bytes: int) -> None:
    """At most the rest of its window, where it goes on in the middle of a batch."""
    batch = bytearray(build.batch([build.record(value=b"v" * 200)]))
    parts = []
    for offset in range(3000):
        batch[:8] = offset.to_bytes(8)
        parts.append(bytes(batch))
        if offset % 50 == 25:
            parts[-1] = parts[-1][:100] + b"\xff" + parts[-1][101:]
    source = CountedSource(b"".join(parts))
    items = list(Walk(source, base_offset=0, buffer_bytes=buffer_bytes))
    assert sum(item.damaged for item in items if not isinstance(item, Gap)) == 60
    assert source.count <= 1.3 * source.size


def test_a_walk_finds_the_same_without_what_was_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def items_of(data: bytes) -> list[object]:
        walk = Walk(BytesSource(data), base_offset=0, buffer_bytes=4096)
        return [
            (list(item.rows()), item.suspects()) if hasattr(item, "rows") else item  # a chunk is gone after its turn
            for item in walk
        ]

    for number in range(examples(40)):
        rng = random.Random(number)
        (segment, *_) = build.partition(rng, batches=40, odd=0.05)
        data = damage.damage(segment.data, rng, times=rng.choice((1, 3)))
        monkeypatch.setattr(window, "KEPT_BYTES", 5 << 20)
        found = items_of(data)
        monkeypatch.setattr(window, "KEPT_BYTES", 0)
        assert items_of(data) == found, number
