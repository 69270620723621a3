"""Writes the benchmark's topic-partitions: segments with the companions that a broker leaves beside them.

.index, 8 bytes an entry: relativeOffset i32, position i32 · .timeindex, 12 bytes: timestamp i64, relativeOffset i32
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from .streams import Append, Stream

INDEX_INTERVAL_BYTES = 4096  # Kafka's default index.interval.bytes
MANIFEST = "manifest.json"
_DIFFERENT = 8

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_INDEX_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Segment:
    """One written `.log` and what it holds; `decoded_bytes` counts headers and decompressed records."""

    path: Path
    base_offset: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    decoded_bytes: int = 0


class SegmentWriter:
    """A `.log` with its offset, time and transaction index, by the rules of Kafka's LogSegment.append."""

    def __init__(self, directory: Path, base_offset: int) -> None:
        self._path = directory / f"{base_offset:020d}.log"
        self._base_offset = base_offset
        self._file = self._path.open("wb", buffering=1 << 20)
        self._index = bytearray()
        self._time_index = bytearray()
        self._aborted = bytearray()
        self._since_entry = self._bytes = self._batches = self._records = 0
        self.decoded_bytes = 0
        self._newest = (-1, base_offset)  # largest timestamp so far and the last offset of its append
        self._last_time_entry = -1

    def append(self, append: Append) -> None:
        """Write one append and the index entries that are due."""
        if append.max_timestamp_ms > self._newest[0]:
            self._newest = (append.max_timestamp_ms, append.last_offset)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            first_batch_end = append.last_offset - append.batches + 1  # several batches are messages of one offset each
            self._index += _INDEX_ENTRY.pack(first_batch_end - self._base_offset, self._bytes)
            self._add_time_entry()
            self._since_entry = 0
        self._file.write(append.data)
        size = len(append.data)
        self._since_entry += size
        self._bytes += size
        self._batches += append.batches
        self._records += append.records
        self.decoded_bytes += append.decoded_bytes
        self._aborted += append.aborted

    def close(self) -> Segment:
        """Finish the companions, as a roll or a clean shutdown does."""
        self._file.close()
        self._add_time_entry()
        self._path.with_suffix(".index").write_bytes(self._index)
        self._path.with_suffix(".timeindex").write_bytes(self._time_index)
        if self._aborted:
            self._path.with_suffix(".txnindex").write_bytes(self._aborted)
        return Segment(self._path, self._base_offset, self._bytes, self._batches, self._records, self.decoded_bytes)

    def _add_time_entry(self) -> None:
        timestamp, offset = self._newest
        if timestamp > self._last_time_entry:
            self._time_index += _TIME_INDEX_ENTRY.pack(timestamp, offset - self._base_offset)
            self._last_time_entry = timestamp


def write_partition(
    directory: Path, stream: Stream, *, segments: int, segment_bytes: int, damaged_share: float = 0
) -> list[Segment]:
    """Fill `directory` (named topic-partition) with segments of about `segment_bytes`, measured decompressed, and say
    so beside it. That share of their batches, at least one, has a flipped bit."""
    written = _fill(directory, stream, segments, segment_bytes)
    for segment in written if damaged_share else ():
        _flip_bits(segment, max(1, int(segment.batches * damaged_share)))
    _write_manifest(directory.parent, written)
    return written


def write_log_directory(
    home: Path, stream: Callable[[int], Stream], *, partitions: int, segments: int, segment_bytes: int
) -> list[Segment]:
    """A broker's log directory below `home`, after a clean stop, with that many partitions of one topic, a few of them
    different."""
    directory = home / "log-directory-0"
    written: list[Segment] = []
    ends: list[int] = []
    for number in range(partitions):
        place = directory / f"topic-{number}"
        if number < _DIFFERENT:
            written += _fill(place, stream(number), segments, segment_bytes)
            ends.append(int(max(place.glob("*.snapshot")).stem))
        else:
            first = (number % _DIFFERENT) * segments
            shutil.copytree(directory / f"topic-{number % _DIFFERENT}", place)
            written += [replace(one, path=place / one.path.name) for one in written[first : first + segments]]
            ends.append(ends[number % _DIFFERENT])
    lines = [f"topic {number} {end}\n" for number, end in enumerate(ends)]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (directory / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}", encoding="ascii")
    (directory / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=YmVuY2htYXJrLXRvcGljIQ\n", encoding="ascii"
    )
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}', encoding="ascii")
    _write_manifest(home, written)
    return written


def _flip_bits(segment: Segment, count: int) -> None:
    """Flip a bit of the records of so many batches, the first of them after half of the distance between two."""
    distance, number, position = segment.batches / count, 0, 0
    with segment.path.open("r+b") as file:
        for batch in range(segment.batches):
            file.seek(position)
            length = 12 + int.from_bytes(file.read(12)[8:], "big")
            if batch == int((number + 0.5) * distance):
                number += 1
                file.seek(position + length - 1)
                last = file.read(1)[0]
                file.seek(position + length - 1)
                file.write(bytes([last ^ 1]))
            position += length


def _fill(directory: Path, stream: Stream, segments: int, segment_bytes: int) -> list[Segment]:
    directory.mkdir(parents=True)
    written = []
    next_offset = 0
    for number in range(segments):
        writer = SegmentWriter(directory, next_offset)
        finish: Iterator[Append] = stream.finish() if number == segments - 1 else iter(())
        for append in chain(_until(stream.appends, writer, segment_bytes), finish):
            writer.append(append)
            next_offset = append.last_offset + 1
        written.append(writer.close())
        if stream.producers is not None:
            (directory / f"{next_offset:020d}.snapshot").write_bytes(stream.producers.snapshot())
    if stream.producers is not None:
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n", encoding="ascii")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: YmVuY2htYXJrLXRvcGljIQ", encoding="ascii")
    return written


def _write_manifest(home: Path, written: list[Segment]) -> None:
    # Beside the directory and last: where there is one, the data set is complete.
    rows = [{**asdict(segment), "path": str(segment.path.relative_to(home))} for segment in written]
    (home / MANIFEST).write_text(json.dumps(rows, indent=1), encoding="ascii")


def read_manifest(home: Path) -> list[Segment] | None:
    """What was written below `home`, or None when it did not get to the end."""
    try:
        rows = json.loads((home / MANIFEST).read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    segments = [Segment(**row) for row in rows]
    return [replace(segment, path=home / segment.path) for segment in segments]


def _until(appends: Iterator[Append], writer: SegmentWriter, segment_bytes: int) -> Iterator[Append]:
    while writer.decoded_bytes < segment_bytes:
        yield next(appends)
