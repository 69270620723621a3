"""Random partitions with something broken in them, and indexes that are right, or wrong in a random way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import takewhile

from hypothesis import strategies as st

from support import build, damage, oracle_partition
from support.build import PartSegment

RANDOMS = st.randoms(use_true_random=False)


def broken(segments: Sequence[PartSegment], rng: random.Random, times: int) -> list[PartSegment]:
    """The partition with some of its segments damaged."""
    out = list(segments)
    for _ in range(times):
        at = rng.randrange(len(out))
        try:
            out[at] = out[at]._replace(data=damage.damage(out[at].data, rng))
        except damage.NotApplicable:
            continue
    return out


def true_indexes(segment: PartSegment, interval: int) -> tuple[bytes, bytes]:
    """What a broker would write, up to offsets that do not fit."""
    offsets = oracle_partition.rebuilt_offsets(segment.data, segment.base_offset, interval)
    times = oracle_partition.rebuilt_times(segment.data, segment.base_offset, interval)
    return (
        build.offset_index(*takewhile(fits, offsets)),
        build.time_index(*takewhile(lambda entry: fits((0, entry[1])), times)),
    )


def mixed(entries: list[tuple[int, int]], rng: random.Random, *, near: Sequence[int]) -> list[tuple[int, int]]:
    """The entries with some changed, dropped, added or in another order; `near` are numbers that mean something."""
    out = list(entries)
    for _ in range(rng.choice((0, 1, 1, 3))):
        what = rng.choice(("change", "change", "drop", "add", "swap"))
        at = rng.randrange(len(out) + 1)
        if what == "add":
            out.insert(
                at, (max(0, rng.choice(near) + rng.randint(-1, 1)), max(0, rng.choice(near) + rng.randint(-1, 1)))
            )
        elif at == len(out):
            continue
        elif what == "drop":
            del out[at]
        elif what == "swap":
            other = rng.randrange(len(out))
            out[at], out[other] = out[other], out[at]
        else:
            entry = list(out[at])
            which = rng.randrange(2)
            entry[which] = rng.choice((entry[which] + rng.choice((-1, 1, 7, 1000)), *near))
            out[at] = entry[0], entry[1]
    return out if rng.random() < 0.2 else sorted(out)


def changed_indexes(segment: PartSegment, offsets: bytes, times: bytes, rng: random.Random) -> tuple[bytes, bytes]:
    """Some entries changed, dropped, added or in another order."""
    batches = damage.batches(segment.data)
    near = [0, 1, len(segment.data), *(batch.position for batch in batches)]
    near += [batch.last_offset - segment.base_offset for batch in batches]
    stamps = [batch.max_timestamp for batch in batches]
    first = mixed(oracle_partition.offset_entries(offsets), rng, near=near)
    second = mixed(oracle_partition.time_entries(times), rng, near=[*near, *stamps])
    return (
        build.offset_index(*(entry for entry in first if fits(entry))),
        build.time_index(*(entry for entry in second if fits((0, entry[1])) and abs(entry[0]) < 2**62)),
    )


def fits(entry: tuple[int, int]) -> bool:
    return all(-(2**31) <= value < 2**31 for value in entry)


def step(
    offset: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, timestamp: int = 1000
) -> bytes:
    """A batch of producer 7."""
    return build.batch(
        [build.record(b"k", timestamp=timestamp)] * count,
        base_offset=offset,
        base_sequence=sequence,
        producer_id=7,
        producer_epoch=epoch,
        transactional=transactional,
    )
