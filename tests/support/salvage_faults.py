"""Copies of the logs that brokers wrote, in memory, with bits flipped or sectors gone, and what a salvage must keep of
them: every batch of which no byte changed. Which batches there are is what the plain walk of `oracle` says of the log
before the damage."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kdump.recover.plan import RecoverOptions
from kdump.recover.salvage.plan import keep
from kdump.recover.salvage.result import SalvageResult
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece
from support.salvage_oracle import SPAN, Own, files, partition_of, results, valid

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MEMORY = Path("/dev/shm")
OPTIONS = RecoverOptions(strategy="salvage")
FIELDS = {"offset": range(64), "length": range(64, 96), "magic": range(128, 136), "leader epoch": range(96, 128)}
"""The bits of a batch, from its beginning, that no checksum of magic 2 covers, by field; for the others, that is the
checksum."""


class Flip(NamedTuple):
    """One bit of the batch of that number."""

    batch: int
    bit: int

    @property
    def field(self) -> str:
        return next(name for name, bits in FIELDS.items() if self.bit in bits)


class Claim(NamedTuple):
    """The offsets that a batch claims, and its leader epoch."""

    first: int
    last: int
    epoch: int


class LogCopy:
    """A copy of the log files of a directory, to be damaged. `batches` are those that a salvage keeps without one."""

    def __init__(self, place: Path, room: Path) -> None:
        self.place = place
        self.directory = room / place.name
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(place, self.directory)
        self.logs = files(self.directory)
        self.partition: Partition = partition_of(self.directory)
        before = self.salvaged()
        self.batches: list[Own] = [own for own in valid(self.logs) if not lost(own, before)]
        self._handles = {name: os.open(self.directory / name, os.O_RDWR) for name in self.logs}

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        shutil.rmtree(self.directory)

    def salvaged(self) -> SalvageResult:
        return keep(self.partition, OPTIONS)

    def with_bits(self, flips: Sequence[Flip]) -> SalvageResult:
        """The salvage with these bits flipped."""
        for flip in flips:
            self._flip(flip)
        try:
            return self.salvaged()
        finally:
            for flip in flips:
                self._flip(flip)

    def is_lost(self, found: SalvageResult, number: int) -> bool:
        return lost(self.batches[number], found)

    def with_data(self, name: str, data: bytes) -> tuple[SalvageResult, Counter[bytes]]:
        """The salvage with another content of one file, and the batches that it keeps."""
        (self.directory / name).write_bytes(data)
        try:
            found = keep(partition_of(self.directory), OPTIONS)
            return found, Counter(own.data for own in valid(results(self.directory, found)))
        finally:
            (self.directory / name).write_bytes(self.logs[name])

    def _flip(self, flip: Flip) -> None:
        own = self.batches[flip.batch]
        at = own.batch.position + flip.bit // 8
        handle = self._handles[own.file]
        (value,) = os.pread(handle, 1, at)
        os.pwrite(handle, bytes([value ^ 0x80 >> flip.bit % 8]), at)

    def lost(self, found: SalvageResult, flips: Iterable[Flip] = ()) -> list[int]:
        """The batches that are not kept, without the ones with flipped bits."""
        touched = {flip.batch for flip in flips}
        gone = [(one.name, one.start, one.stop) for one in found.dropped]
        if not gone:
            return []
        return [number for number, own in enumerate(self.batches) if number not in touched and lost(own, found)]

    def protected(self, found: SalvageResult, numbers: Sequence[int]) -> bool:
        """Whether batches go because the marker that aborted them is lost, and the report says so."""
        gone = sum(one.dropped for one in found.undecided)
        codes = {code for one, code in found.dropped.items() for number in numbers if _meets(self.batches[number], one)}
        return codes == {"txn/open"} and len(numbers) <= gone

    def claims(self, flips: Iterable[Flip]) -> list[Claim]:
        """What the batches claim with these bits of their offsets flipped."""
        claims = [Claim(own.first, own.last, own.epoch) for own in self.batches]
        for flip in flips:
            if flip.field == "offset":
                claims[flip.batch] = moved(claims[flip.batch], flip.bit)
        return claims

    def other_explanations(self, flip: Flip) -> list[int]:
        """The batches of which one flipped bit in the offset would give the same bytes as this one does."""
        claims = self.claims([flip])
        return [
            number
            for number in out_of_order(claims)
            if number != flip.batch and any(self._fits(claims, number, bit) for bit in FIELDS["offset"])
        ]

    def _fits(self, claims: list[Claim], number: int, bit: int) -> bool:
        claim = moved(claims[number], bit)
        own = self.batches[number]
        base = int(own.file[:20])
        end = min((int(name[:20]) for name, data in self.logs.items() if data and int(name[:20]) > base), default=2**63)
        before, after = claims[number - 1] if number else None, claims[number + 1] if number + 1 < len(claims) else None
        return (
            base <= claim.first <= claim.last < end
            and claim.last - base <= SPAN
            and (before is None or before.last < claim.first)
            and (after is None or claim.last < after.first)
        )


def lost(own: Own, found: SalvageResult) -> bool:
    return any(_meets(own, one) for one in found.dropped)


def _meets(own: Own, gone: Piece) -> bool:
    start = own.batch.position
    return gone.name == own.file and gone.start < start + own.batch.size and start < gone.stop


def moved(claim: Claim, bit: int) -> Claim:
    """The claim with one bit of the offset flipped, 0 the highest."""
    first = (claim.first % 2**64) ^ (1 << 63 - bit)
    first -= 2**64 if first >= 2**63 else 0
    return claim._replace(first=first, last=claim.last - claim.first + first)


def out_of_order(claims: list[Claim]) -> Iterator[int]:
    """The batches without which the offsets of the others rise."""
    wrong = [number for number, (left, right) in enumerate(pairwise(claims)) if right.first <= left.last]
    for number in sorted({one for at in wrong for one in (at, at + 1)}):
        rest = claims[:number] + claims[number + 1 :]
        if all(left.last < right.first for left, right in pairwise(rest)):
            yield number


def zeroed(copy: LogCopy, name: str, start: int, size: int) -> tuple[bytes, list[Own]]:
    """A file with zeros at a position, and the batches that have all their bytes."""
    data = copy.logs[name]
    damaged = data[:start] + bytes(len(data[start : start + size])) + data[start + size :]
    return damaged, [
        own
        for own in copy.batches
        if own.file != name or damaged[own.batch.position : own.batch.position + own.batch.size] == own.data
    ]


def without_sector(copy: LogCopy, name: str, start: int, size: int) -> tuple[bytes, list[Own]]:
    """A file without the bytes at a position, and the batches that have all theirs."""
    data = copy.logs[name]
    return data[:start] + data[start + size :], [
        own
        for own in copy.batches
        if own.file != name or own.batch.position + own.batch.size <= start or own.batch.position >= start + size
    ]


def partitions() -> list[Path]:
    """The topic-partition directories of the fixtures that hold batches."""
    return sorted(place for place in {path.parent for path in FIXTURES.rglob("*.log")} if any(valid(files(place))))


__all__ = ["FIELDS", "Flip", "LogCopy", "partitions", "without_sector", "zeroed"]
