"""Batches whose offset or leader epoch is wrong in one copy, as others show: no checksum covers either.

Only header fields are wrong, so the batch is valid, and nothing in its own copy contradicts it where it is the last one
or stands before damage.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kdump.log.log_batches import IndexRange
from kdump.replicas.replica_copy import ReplicaCopy, is_same, unmatched

_MOST_UNMATCHED: Final = 1 << 20


def settle_doubts(copies: Sequence[ReplicaCopy]) -> None:
    """Leave out the batches that another copy has at their right offset, and note those that nothing confirms.

    Then reads the histories of the copies.
    """
    alone = _unmatched(copies)
    _note_doubts(copies, alone)
    moved = {copy.number: sorted(set(_moved(copy, copies, alone))) for copy in copies}
    if any(moved.values()):
        for copy in copies:
            copy.leave_out(moved[copy.number], "offset/range")
        _note_doubts(copies, _unmatched(copies))
    for copy in copies:
        copy.read_history(frozenset(_wrong_epochs(copy, copies)))


Unmatched = dict[tuple[int, int], list[IndexRange]]


def _unmatched(copies: Sequence[ReplicaCopy]) -> Unmatched:
    """The batches of each copy that each other copy has not."""
    return {
        (one.number, two.number): unmatched(one.batches, two.batches)
        for one in copies
        for two in copies
        if one is not two
    }


def _note_doubts(copies: Sequence[ReplicaCopy], alone: Unmatched) -> None:
    for copy in copies:
        doubts = copy.contradicted() if copy.is_compacted else _unconfirmed(copy, alone)
        copy.offset_doubts = frozenset(doubts)


def _unconfirmed(copy: ReplicaCopy, alone: Unmatched) -> Iterator[int]:
    """The batches with a suspicious offset that no other copy has at this offset."""
    of_others = [ranges for (number, _), ranges in alone.items() if number == copy.number]
    for number in sorted({*copy.suspicious(), *copy.contradicted()}):
        if all(any(part.start <= number < part.stop for part in ranges) for ranges in of_others):
            yield number


def _moved(copy: ReplicaCopy, copies: Sequence[ReplicaCopy], alone: Unmatched) -> Iterator[int]:
    """The batches whose offset is wrong, as another copy has the same bytes at another offset."""
    for other in copies:
        if other is copy:
            continue
        own, theirs = alone[copy.number, other.number], alone[other.number, copy.number]
        if sum(part.stop - part.start for part in (*own, *theirs)) > _MOST_UNMATCHED:
            continue
        by_bytes: dict[tuple[int, int], list[int]] = {}
        for part in theirs:
            for at in range(*part):
                by_bytes.setdefault((other.batches.crc[at], other.batches.size[at]), []).append(at)
        for part in own:
            for number in range(*part):
                key = copy.batches.crc[number], copy.batches.size[number]
                if any(_is_moved(copy, number, other, at, copies) for at in by_bytes.get(key, ())):
                    yield number


def _is_moved(copy: ReplicaCopy, number: int, other: ReplicaCopy, at: int, copies: Sequence[ReplicaCopy]) -> bool:
    """Whether two equal batches at different offsets are one, and that of `other` is where it belongs."""
    if not is_same(copy.batches, number, other.batches, at) or not _has_same_neighbour(copy, number, other, at):
        return False
    return _standing(other, at, copies) > _standing(copy, number, copies)


def _has_same_neighbour(copy: ReplicaCopy, number: int, other: ReplicaCopy, at: int) -> bool:
    """Whether the batches that touch them are the same in both copies: before them, or after."""
    own, theirs = copy.batches, other.batches
    for step in (-1, 1):
        a, b = number + step, at + step
        if not (0 <= a < len(own) and 0 <= b < len(theirs)):
            continue
        if own.is_break(max(a, number)) or theirs.is_break(max(b, at)):
            continue
        if own.first[a] == theirs.first[b] and is_same(own, a, theirs, b):
            return True
    return False


def _standing(copy: ReplicaCopy, number: int, copies: Sequence[ReplicaCopy]) -> tuple[int, int, int]:
    """What speaks for the offset of a batch: the copies that have it there, its neighbours, and a low offset."""
    found = copy.batches
    neighbours = found.continues(number) + (number + 1 < len(found) and found.continues(number + 1))
    return sum(each.has(copy, number) is not None for each in copies), neighbours, -found.first[number]


def _wrong_epochs(copy: ReplicaCopy, copies: Sequence[ReplicaCopy]) -> Iterator[int]:
    """The batches that are alone in their leader epoch, and have another one in most copies."""
    for number in copy.single_epochs():
        epochs = [
            each.batches.epoch[at] for each in copies if each is not copy and (at := each.has(copy, number)) is not None
        ]
        own = copy.batches.epoch[number]
        against = [epoch for epoch in epochs if epoch != own]
        same = 1 + len(epochs) - len(against)
        if len(against) > same or (len(against) == same and min(against) < own):
            yield number
