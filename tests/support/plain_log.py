"""A log read by a plain scan: no index, no search, every batch from the beginning on, by the oracle's walk."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from support import oracle


class PlainBatch(NamedTuple):
    """A valid batch; `first` is None for a wrapper."""

    position: int
    size: int
    first: int | None
    last: int
    max_timestamp: int


class PlainDamage(NamedTuple):
    """Bytes that are none."""

    position: int
    length: int


class PlainSegment(NamedTuple):
    base_offset: int
    path: Path
    data: bytes
    items: tuple[PlainBatch | PlainDamage, ...]

    @property
    def batches(self) -> list[PlainBatch]:
        return [item for item in self.items if isinstance(item, PlainBatch)]


class PlainRead(NamedTuple):
    """What a read gives; `damage` has (name of the log file, position, length) of what was passed over."""

    path: Path
    position: int
    data: bytes
    next_offset: int
    damage: tuple[tuple[str, int, int], ...]


@lru_cache(maxsize=256)
def items_of(data: bytes, base_offset: int, kafka07: bool) -> tuple[PlainBatch | PlainDamage, ...]:
    if kafka07:
        return _entries_07(data, base_offset)
    found: list[PlainBatch | PlainDamage] = []
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, oracle.Batch):
            found.append(PlainBatch(item.position, item.size, item.base_offset, item.last_offset, item.max_timestamp))
        else:
            found.append(PlainDamage(item.position, item.length))
    return tuple(found)


def _entries_07(data: bytes, base_offset: int) -> tuple[PlainBatch | PlainDamage, ...]:
    """The messages of a log of 0.7 that is sound up to its tail."""
    _, end = oracle.entries07(data, base_offset)
    found: list[PlainBatch | PlainDamage] = []
    position = 0
    while position < end:
        (size,) = struct.unpack_from(">i", data, position)
        found.append(PlainBatch(position, size + 4, base_offset + position, base_offset + position, -1))
        position += size + 4
    if end < len(data):
        found.append(PlainDamage(end, len(data) - end))
    return tuple(found)


class PlainLog:
    """The log in a directory."""

    def __init__(self, directory: Path, suffix: str = ".log") -> None:
        self.kafka07 = suffix == ".kafka"
        self._opened: dict[tuple[int, int], list[oracle.Record]] = {}
        self.segments: list[PlainSegment] = []
        for path in sorted(directory.glob(f"*{suffix}")):
            base, data = int(path.stem), path.read_bytes()
            self.segments.append(PlainSegment(base, path, data, items_of(data, base, self.kafka07)))
        self.start = max(self.segments[0].base_offset, self._checkpoint(directory))
        newest = self.segments[-1]
        self.end = newest.base_offset
        for batch in newest.batches:
            self.end = max(self._after(newest, batch), newest.base_offset)
        self.end = max(self.end, self.start)

    def _checkpoint(self, directory: Path) -> int:
        path = directory.parent / "log-start-offset-checkpoint"
        topic, _, partition = directory.name.rpartition("-")
        for line in path.read_text().splitlines()[2:] if path.exists() else ():
            if line.split()[:2] == [topic, partition]:
                return int(line.split()[2])
        return 0

    def _after(self, segment: PlainSegment, batch: PlainBatch) -> int:
        if self.kafka07:
            return segment.base_offset + batch.position + batch.size
        return max(batch.last, batch.last if batch.first is None else batch.first) + 1

    def read(self, offset: int, max_bytes: int, max_message_bytes: int = 1 << 30) -> PlainRead | int | None:
        """None at the end of the log; the size of a batch that is too large."""
        if offset == self.end:
            return None
        bases = [segment.base_offset for segment in self.segments]
        number = bisect_left(bases, offset + 1) - 1
        damage: list[tuple[str, int, int]] = []
        for segment in self.segments[max(number, 0) :]:
            for place, item in enumerate(segment.items):
                if isinstance(item, PlainDamage):
                    damage.append((segment.path.name, item.position, item.length))
                elif item.last < offset:
                    damage.clear()
                else:
                    if item.first is not None and item.first <= offset:
                        damage.clear()
                    return self._from(segment, place, max_bytes, max_message_bytes, damage)
        return None

    def _from(
        self, segment: PlainSegment, place: int, max_bytes: int, most: int, damage: list[tuple[str, int, int]]
    ) -> PlainRead | int:
        first = segment.items[place]
        assert isinstance(first, PlainBatch)
        limit = max_bytes
        while limit < first.size:
            if limit >= most:
                return first.size
            limit = min(2 * limit, most)
        end, last = first.position + first.size, first
        for item in segment.items[place + 1 :]:
            if not isinstance(item, PlainBatch) or item.position + item.size > first.position + limit:
                break
            if min(item.last, item.last if item.first is None else item.first) <= last.last:
                break
            end, last = item.position + item.size, item
        return PlainRead(
            segment.path,
            first.position,
            segment.data[first.position : end],
            self._after(segment, last),
            tuple(damage),
        )

    def at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first record by position that is late enough, of the batches whose header says that they have one."""
        for segment in self.segments:
            for batch in segment.batches:
                if batch.max_timestamp < timestamp_ms or batch.last < self.start:
                    continue
                for record in self._records(segment, batch):
                    if record.timestamp >= timestamp_ms and record.offset >= self.start:
                        return record.offset, record.timestamp
        return None

    def _records(self, segment: PlainSegment, batch: PlainBatch) -> list[oracle.Record]:
        key = segment.base_offset, batch.position
        if key not in self._opened:
            self._opened[key] = oracle.records(segment.data, batch.position)
        return self._opened[key]

    def records(self) -> Iterator[oracle.Record]:
        """All from the log's start on."""
        for segment in self.segments:
            for batch in segment.batches:
                yield from (record for record in self._records(segment, batch) if record.offset >= self.start)
