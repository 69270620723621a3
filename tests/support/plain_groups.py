"""What a group coordinator knows of committed offsets: the rules once more, over a list of what was written.

Slow and obvious: for each topic-partition of each group it looks at everything that was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Commit(NamedTuple):
    """A commit; without an offset a tombstone. `producer` is None outside of a transaction."""

    group: str
    partition: int
    offset: int | None
    producer: int | None = None


class Marker(NamedTuple):
    """The end of the transaction of a producer."""

    producer: int
    commits: bool


Written = Sequence[Commit | Marker]


def marker_of(written: Written, number: int, producer: int) -> tuple[int, bool] | None:
    """The first marker of a producer after an entry."""
    for later in range(number + 1, len(written)):
        entry = written[later]
        if isinstance(entry, Marker) and entry.producer == producer:
            return later, entry.commits
    return None


def superseded(written: Written, number: int, until: int) -> bool:
    """Whether the transaction that has this commit has a later one of the same partition before it ends."""
    of = written[number]
    assert isinstance(of, Commit)
    return any(
        isinstance(entry, Commit)
        and entry[:2] == of[:2]
        and entry.offset is not None
        and entry.producer == of.producer
        and marker_of(written, later, entry.producer or 0) == marker_of(written, number, of.producer or 0)
        for later, entry in enumerate(written[:until])
        if later > number
    )


def dropped(written: Written, number: int, until: int) -> bool:
    """Whether a tombstone of the same partition comes before an entry takes effect."""
    of = written[number]
    assert isinstance(of, Commit)
    return any(
        isinstance(entry, Commit) and entry[:2] == of[:2] and entry.offset is None
        for entry in written[number + 1 : until]
    )


def committed(written: Written) -> dict[tuple[str, int], int]:
    """The committed offsets by group and partition."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    effects: list[tuple[int, int, Commit]] = []
    for number, entry in enumerate(written):
        if not isinstance(entry, Commit):
            continue
        if entry.offset is None or entry.producer is None:
            effects.append((number, number, entry))
            continue
        end = marker_of(written, number, entry.producer)
        if end is None or not end[1] or dropped(written, number, end[0]) or superseded(written, number, end[0]):
            continue
        effects.append((end[0], number, entry))
    for _, number, entry in sorted(effects, key=lambda effect: effect[:2]):
        name = entry.group, entry.partition
        if entry.offset is None:
            found.pop(name, None)
        elif entry.producer is None or name not in found or number > found[name][0]:
            found[name] = number, entry.offset
    return {name: offset for name, (_, offset) in found.items()}


def pending(written: Written) -> dict[tuple[str, int], set[tuple[int, int]]]:
    """Producer and offset of the commits in open transactions, by group and partition."""
    found: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for number, entry in enumerate(written):
        if not isinstance(entry, Commit) or entry.offset is None or entry.producer is None:
            continue
        stop = len(written)
        if marker_of(written, number, entry.producer) is not None or dropped(written, number, stop):
            continue
        if not superseded(written, number, stop):
            found.setdefault((entry.group, entry.partition), set()).add((entry.producer, entry.offset))
    return found
