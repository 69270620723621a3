"""The table of producers: sums in any order, and a sample above its limit that holds whole producers."""

from __future__ import annotations

import pickle
import random
from itertools import groupby
from operator import attrgetter

from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.kernel.statistics import ProducerRows
from kdump.stat.producers import ProducerRow, ProducerTable, table_of
from support.laws import examples

ROWS = st.lists(
    st.builds(
        ProducerRow,
        st.integers(0, 12),
        st.integers(0, 32767),
        st.sets(st.integers(0, 4), min_size=1).map(lambda codecs: tuple(sorted(codecs))),
        st.integers(-1, 2000),
        st.integers(-1, 2000),
        st.integers(1, 1000),
        st.integers(0, 1000),
        st.integers(61, 1000),
    ),
    max_size=12,
)
MASK = (1 << 64) - 1


def hash_of(producer_id: int) -> int:
    """The finalizer of SplitMix64."""
    z = (producer_id + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


id_of = attrgetter("producer_id")


def plain_sum(rows: list[ProducerRow]) -> list[ProducerRow]:
    return [
        ProducerRow(
            producer_id,
            max(row.epoch for row in same),
            tuple(sorted({codec for row in same for codec in row.codecs})),
            min((row.first_timestamp for row in same if row.first_timestamp >= 0), default=-1),
            max(row.last_timestamp for row in same),
            sum(row.batches for row in same),
            sum(row.records for row in same),
            sum(row.bytes for row in same),
        )
        for producer_id, several in groupby(sorted(rows, key=id_of), id_of)
        for same in [list(several)]
    ]


@given(ROWS, ROWS, ROWS)
@settings(max_examples=examples(100))
def test_sums_do_not_depend_on_the_order(
    one: list[ProducerRow], two: list[ProducerRow], three: list[ProducerRow]
) -> None:
    a, b, c = map(table_of, (one, two, three))
    assert list(a) == plain_sum(one)
    assert (a + b) + c == a + (b + c) == c + b + a
    assert list(a + b + c) == plain_sum(one + two + three)
    assert pickle.loads(pickle.dumps(a)) == a


def test_above_the_limit_whole_producers_with_the_smallest_hashes_stay() -> None:
    rng = random.Random(1)
    rows = [ProducerRow(rng.randrange(1 << 40), 0, (0,), 1, 1, 1, 1, 61) for _ in range(3000)]
    rows += rng.sample(rows, 1500)
    rng.shuffle(rows)
    most = 500
    parts = []
    for start in range(0, len(rows), 700):
        part = ProducerRows(most)
        part.merge(table_of(rows[start : start + 700]).cells)
        parts.append(part.packed())
    rng.shuffle(parts)
    whole = ProducerRows(most)
    for cells, highest in parts:
        whole.merge(cells, highest)
    found = ProducerTable(*whole.packed())
    kept = set(sorted({row.producer_id for row in rows}, key=hash_of)[:most])
    assert list(found) == [row for row in plain_sum(rows) if row.producer_id in kept]
    assert found.sampled
    assert found.highest_hash == max(map(hash_of, kept))
    distinct = len({row.producer_id for row in rows})
    assert abs(found.share - most / distinct) < 0.15 * most / distinct
