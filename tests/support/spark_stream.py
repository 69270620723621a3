"""A topic-partition that grows as under a broker, and the calls with which Spark reads a stream, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kdump.format.checkpoint import EpochEntry, OffsetEntry, build_epochs, build_offsets, offset_entries
from kdump.log.builder import Builder

SCHEMA = "topic partition offset value"


class GrowingPartition:
    """A topic-partition of a log directory. `values` are its records now, by offset; below `mark` they stay."""

    def __init__(self, directory: Path, topic: str, number: int, *, start: int = 0, marked: bool = True) -> None:
        self.path = directory / f"{topic}-{number}"
        self.topic, self.number = topic, number
        self.values: dict[int, bytes] = {}
        self.start = self.end = self.mark = start
        self.epochs = [EpochEntry(0, start)]
        self._segments: list[tuple[int, list[tuple[int, int, bytes]]]] = [(start, [])]
        self.path.mkdir(parents=True)
        self._write(start, b"")
        if marked:
            self.commit()

    def append(self, *values: bytes, **how: Any) -> None:
        """One batch of records; `how` are arguments of Builder."""
        builder = Builder(base_offset=self.end, partition_leader_epoch=self.epochs[-1].epoch, **how)
        for value in values:
            self.values[builder.append(None, value)] = value
        data = builder.close()
        self._segments[-1][1].append((self.end, self.end + len(values), data))
        with open(self._log(self._segments[-1][0]), "ab") as file:
            file.write(data)
        self.end += len(values)

    def append_bytes(self, data: bytes) -> None:
        """Bytes after the last batch, as of an append that is not complete."""
        with open(self._log(self._segments[-1][0]), "ab") as file:
            file.write(data)

    def roll(self) -> None:
        """Begin a segment, if the active one has batches."""
        if not self._segments[-1][1]:
            return
        self._segments.append((self.end, []))
        self._write(self.end, b"")

    def delete_oldest(self) -> None:
        """Delete the oldest segment, if it is not the active one, as retention does."""
        if len(self._segments) < 2:
            return
        base, _ = self._segments.pop(0)
        self._log(base).rename(self._log(base).with_suffix(".log.deleted"))
        self.start = self._segments[0][0]

    def truncate(self, offset: int, *, epoch: bool = True) -> None:
        """Cut off the batches from an offset on, as for a new leader; batches after it have the next epoch."""
        while self._segments[-1][0] > offset and len(self._segments) > 1:
            self._log(self._segments.pop()[0]).unlink()
        base, batches = self._segments[-1]
        kept = [each for each in batches if each[1] <= offset]
        self._segments[-1] = base, kept
        self._write(base, b"".join(data for *_, data in kept))
        self.end = kept[-1][1] if kept else base
        for lost in [each for each in self.values if each >= self.end]:
            del self.values[lost]
        if epoch:
            latest = self.epochs[-1].epoch
            self.epochs = [each for each in self.epochs if each.start_offset < self.end]
            self.epochs.append(EpochEntry(latest + 1, self.end))
            (self.path / "leader-epoch-checkpoint").write_bytes(build_epochs(self.epochs))

    def commit(self, offset: int | None = None) -> None:
        """Set the high watermark, to the log end offset unless it is given."""
        self.mark = self.end if offset is None else offset
        path = self.path.parent / "replication-offset-checkpoint"
        marks = {each[:2]: each for each in offset_entries(path.read_bytes())} if path.exists() else {}
        marks[self.topic, self.number] = OffsetEntry(self.topic, self.number, self.mark)
        path.write_bytes(build_offsets(list(marks.values())))
        (self.path / "leader-epoch-checkpoint").write_bytes(build_epochs(self.epochs))

    @property
    def borders(self) -> list[int]:
        """The offsets from the high watermark on at which a batch ends: a broker cuts and commits there."""
        ends = [end for _, batches in self._segments for _, end, _ in batches]
        return sorted({self.mark, self.end, *(end for end in ends if end > self.mark)})

    def _log(self, base: int) -> Path:
        return self.path / f"{base:020}.log"

    def _write(self, base: int, data: bytes) -> None:
        self._log(base).write_bytes(data)


class StreamQuery:
    """A query that Spark runs: offsets and records of one batch after another, and its checkpoint."""

    def __init__(self, path: Path, *, checkpoint: Any = None, available_now: bool = False, **options: str) -> None:
        from pyspark.sql.types import StructType

        from kdump.spark.source_schema import record_columns
        from kdump.spark.stream import KdumpStreamReader
        from kdump.spark.stream_options import parse_stream_options

        whole = record_columns(include_headers=False)
        schema = StructType([whole[name] for name in SCHEMA.split()])
        self.reader = KdumpStreamReader(parse_stream_options({"path": str(path), **options}), schema)
        self.limit = self.reader.getDefaultReadLimit()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.checkpoint = as_json(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def batch(self, before: Callable[[], object] | None = None) -> list[tuple[Any, ...]] | None:
        """The records of the next batch; None where there is none. `before` is called before its tasks run."""
        start = self.checkpoint
        end = as_json(self.reader.latestOffset(start, self.limit))
        if end == start:
            return None
        ranges = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        if before is not None:
            before()
        rows = [row for each in ranges for row in self.read(each)]
        self.reader.commit(end)
        self.checkpoint = end
        return rows

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """The records of a range, read by a copy of the reader."""
        for batch in pickle.loads(pickle.dumps(self.reader)).read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def rest(self) -> list[tuple[Any, ...]]:
        """The records of all batches that there are."""
        found: list[tuple[Any, ...]] = []
        while (rows := self.batch()) is not None:
            found += rows
        return found


def as_json(offsets: Any) -> Any:
    """What Spark gives back: it keeps offsets as JSON."""
    return json.loads(json.dumps(offsets))


def until_python_answers(run: Callable[[], Any]) -> Any:
    """What a query of Spark gives. Spark waits ten seconds for the Python process of a stream, which is short here."""
    for _ in range(4):
        try:
            return run()
        except Exception as error:  # Spark wraps it in several ways
            if "failed to connect back" not in str(error):
                raise
    return run()
