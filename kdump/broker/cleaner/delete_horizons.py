"""The delete horizons of batches, which the log cleaner sets."""

from dataclasses import dataclass


def largest(one: int | None, other: int | None) -> int | None:
    """The larger of two numbers that may be missing."""
    return other if one is None else one if other is None else max(one, other)


def smallest(one: int | None, other: int | None) -> int | None:
    """The smaller of two numbers that may be missing."""
    return other if one is None else one if other is None else min(one, other)


@dataclass(frozen=True, slots=True)
class DeleteHorizons:
    """The batches with a delete horizon: from that time on, the log cleaner drops their tombstones or markers.

    A batch has other records beside. `earliest_ms` and `latest_ms` are None without such a batch (KIP-534).
    """

    batches: int = 0
    bytes: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None

    def __add__(self, other: "DeleteHorizons") -> "DeleteHorizons":
        return DeleteHorizons(
            self.batches + other.batches,
            self.bytes + other.bytes,
            smallest(self.earliest_ms, other.earliest_ms),
            largest(self.latest_ms, other.latest_ms),
        )
