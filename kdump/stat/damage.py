"""What of a log file is no valid batch, or a batch whose records cannot be read."""

from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_STRETCHES: Final = 100
"""The largest number of damaged stretches that are listed."""
_IN_NO_BATCH: Final = ("gap", "zeros", "torn", "garbage", "crc", "magic", "shrunk")


class DamagedStretch(NamedTuple):
    """Bytes of a log file that are no valid batch, or a valid batch whose records cannot be read.

    `reason` is "gap" or "zeros" (between batches), "torn", "garbage" or "zeros" (after the last one), "crc", "magic" or
    "limit" (a whole batch), "unsearched" or "shrunk". Of a batch that counts: "codec", "limit" (its records are larger
    than StatOptions.max_batch_bytes) or "records" (kdump.stat.records.UnreadBatch).
    """

    path: str
    position: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged stretches: the first MOST_STRETCHES of them, and their exact number.

    `bytes`: those that are in no valid batch. With those of the batches and the preallocated zeros they are the file.
    """

    stretches: tuple[DamagedStretch, ...] = ()
    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Damage") -> "Damage":
        if not other.count:
            return self
        stretches = (self.stretches + other.stretches)[:MOST_STRETCHES]
        return Damage(stretches, self.count + other.count, self.bytes + other.bytes)

    def also_in(self, before: "Damage") -> "Damage":
        """The part of this damage that an earlier read found, too; all where `before` does not list everything."""
        if before.count > len(before.stretches):
            return self
        known = {(each.position, each.reason) for each in before.stretches}
        new = [each for each in self.stretches if (each.position, each.reason) not in known]
        return Damage(
            tuple(each for each in self.stretches if each not in new),
            self.count - len(new),
            self.bytes - sum(each.length for each in new if each.reason in _IN_NO_BATCH),
        )
