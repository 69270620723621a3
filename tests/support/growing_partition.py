"""A topic-partition that grows as under a broker: appended to, rolled, truncated, cleaned, deleted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdump.format.checkpoint import EpochEntry, OffsetEntry, build_epochs, build_offsets, offset_entries
from kdump.format.control import ControlType
from kdump.writer.builder import Builder, marker


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
        for _ in self.append_in_pieces(*values, **how):
            pass

    def append_in_pieces(self, *values: bytes, piece_bytes: int | None = None, **how: Any) -> Iterator[None]:
        """The same, so many bytes at a time. Where this is not carried on to its end, a part of a batch is left."""
        builder = Builder(base_offset=self.end, partition_leader_epoch=self.epochs[-1].epoch, **how)
        offsets = [builder.append(None, value) for value in values]
        data = builder.close()
        step = piece_bytes or len(data)
        for at in range(0, len(data), step):
            self.append_bytes(data[at : at + step])
            if at + step < len(data):
                yield
        self.values.update(zip(offsets, values, strict=True))
        self._segments[-1][1].append((self.end, self.end + len(values), data))
        self.end += len(values)

    def append_marker(self, kind: ControlType, producer_id: int, *, producer_epoch: int = 0) -> None:
        """The marker that ends the transaction of a producer."""
        data = marker(
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=0,
            offset=self.end,
            timestamp_ms=1,
            partition_leader_epoch=self.epochs[-1].epoch,
        )
        self.append_bytes(data)
        self._segments[-1][1].append((self.end, self.end + 1, data))
        self.end += 1

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

    def restart_at(self, offset: int) -> None:
        """Delete every record, and begin again at an offset, as a follower that fell behind its leader's log start."""
        for base, _ in self._segments:
            self._log(base).unlink()
        self.values.clear()
        self._segments = [(offset, [])]
        self.start = self.end = offset
        self._write(offset, b"")

    def delete(self) -> None:
        """Delete the partition, as far as the rename of its directory."""
        self.path.rename(self.path.with_name(f"{self.path.name}.{'0' * 32}-delete"))

    def clean(self, *, every: int = 2) -> Iterator[None]:
        """Merge the closed segments into one that keeps every so many-th batch, with the renames of the log cleaner."""
        if len(self._segments) < 2:
            return
        *closed, active = self._segments
        batches = [each for _, of_segment in closed for each in of_segment]
        kept = batches[::every]
        for first, stop, _ in batches:
            for offset in range(first, stop):
                if not any(begin <= offset < end for begin, end, _ in kept):
                    self.values.pop(offset, None)
        target = self._log(closed[0][0])
        cleaned, swap = (target.with_name(f"{target.name}{suffix}") for suffix in (".cleaned", ".swap"))
        cleaned.write_bytes(b"".join(data for *_, data in kept))
        yield
        cleaned.rename(swap)
        self._segments = [(closed[0][0], kept), active]
        for base, _ in closed:
            self._log(base).rename(self._log(base).with_suffix(".log.deleted"))
            yield
        swap.rename(target)

    def truncate(self, offset: int, *, epoch: bool = True) -> None:
        """Cut off the batches from an offset on, as for a new leader; batches after it have the next epoch."""
        while self._segments[-1][0] > offset and len(self._segments) > 1:
            self._log(self._segments.pop()[0]).unlink()
        base, batches = self._segments[-1]
        kept = [each for each in batches if each[1] <= offset]
        self._segments[-1] = base, kept
        os.truncate(self._log(base), sum(len(data) for *_, data in kept))  # in place, as a broker does
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
