"""Batches of a log that contradict each other, and why one side was kept."""

from collections.abc import Mapping
from typing import Final, NamedTuple

_REASONS: Final[Mapping[str, str]] = {
    "epoch": "the leader epoch is higher",
    "batches": "there are more batches",
    "hole": "the hole has exactly the offsets that the dropped ones count",
    "support": "the indexes, the names of the segments or the producer snapshots agree with it",
    "bits": "one flipped bit would explain the offset of the dropped one",
    "position": "the position is lower, and nothing else shows which one is right",
}


class BatchRange(NamedTuple):
    """Consecutive batches of a file: their bytes, offsets and leader epochs."""

    name: str
    start: int
    stop: int
    batches: int
    first_offset: int
    last_offset: int
    first_epoch: int
    last_epoch: int


class BatchConflict(NamedTuple):
    """Two ranges that contradict each other; `by` is what decided, a key of the reasons above.

    kdump.log.offset_order has the rules.
    """

    kept: BatchRange
    dropped: BatchRange
    by: str


def conflict_sentence(conflict: BatchConflict) -> str:
    """What was kept, what was not, and why."""
    kept, dropped = _words(conflict.kept), _words(conflict.dropped)
    return f"kept: {kept}; dropped: {dropped}; because of the kept one {_REASONS[conflict.by]}"


def _words(found: BatchRange) -> str:
    batches = f"{found.batches} {'batch' if found.batches == 1 else 'batches'}"
    offsets, epochs = f"{found.first_offset}-{found.last_offset}", f"{found.first_epoch}-{found.last_epoch}"
    place = f"{found.name} at {found.start}-{found.stop}"
    return f"{batches} of {place} (offsets {offsets}, leader epochs {epochs})"
