"""What a pass of the log cleaner drops, and whether its map holds the keys, against a plain cleaner."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.kernel.record_statistics import RecordCollector
from kdump.stat.compaction_pass import CompactionPass, predict_pass
from kdump.stat.keys import KeyStatistics
from kdump.stat.topic_settings import CleanerSettings
from kdump.stat.values import SegmentStatistics
from support.record_counts import rows_of, small_record
from support.stat_logs import segment

Pairs = list[tuple[bytes | None, bytes | None]]
KEYS = st.sampled_from((None, b"", b"a", b"b", b"c", b"d", b"e"))
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from((None, b"", b"value"))), min_size=1, max_size=12)
SEEDS = 40


def segments(*parts: Pairs, sample: int = 65536) -> list[SegmentStatistics]:
    """A segment of each part, with the keys of its records."""
    found, base = [], 0
    for part in parts:
        collector = RecordCollector(sample=sample, heavy=8)
        for begin in range(0, len(part), 100):
            row, payload = rows_of(part[begin : begin + 100], base + begin, base + begin)
            collector.add_opened(row, 0, payload)
        keys = KeyStatistics.of(collector, sample=sample, heavy=8)
        found.append(replace(segment(f"{base}..{base + len(part) - 1} 100b @1"), keys=keys))
        base += len(part)
    return found


def passed(parts: list[Pairs], first_dirty: int, sample: int = 65536, keys: int = 1000) -> CompactionPass:
    cleaner = CleanerSettings(dedupe_buffer_bytes=24 * keys, load_factor=1.0)
    found = predict_pass(segments(*parts, sample=sample), first_dirty, cleaner)
    assert found is not None
    return found


class PlainCleaner:
    """Cleaner.buildOffsetMap and Cleaner.shouldRetainRecord."""

    def __init__(self, pairs: Pairs, first_dirty: int) -> None:
        sizes = [len(small_record(*pair, index % 100)) for index, pair in enumerate(pairs)]
        last = {key: offset for offset, (key, _) in enumerate(pairs) if key is not None and offset >= first_dirty}
        gone = [offset for offset, (key, _) in enumerate(pairs) if key is None or last.get(key, -1) > offset]
        self.keys, self.dropped = len(last), len(gone)
        self.dropped_bytes = sum(sizes[offset] for offset in gone)
        self.unkeyed = sum(key is None for key, _ in pairs)


@given(st.lists(PAIRS, min_size=1, max_size=4), st.integers(0, 40))
def test_a_pass_drops_what_a_plain_cleaner_drops(parts: list[Pairs], first_dirty: int) -> None:
    told = passed(parts, first_dirty)
    plain = PlainCleaner([pair for part in parts for pair in part], first_dirty)
    assert (told.dirty_keys, told.dropped_records.value) == ((plain.keys, False, 0), plain.dropped)
    assert told.unkeyed_records == plain.unkeyed
    if all(len(part) <= 100 for part in parts) and len(parts) == 1:
        assert told.dropped_bytes.value == plain.dropped_bytes


@pytest.mark.parametrize(("keys", "fits"), [(6, True), (5, None), (4, False)])
def test_the_map_holds_the_keys_of_the_dirty_part(keys: int, fits: bool | None) -> None:
    pairs: Pairs = [(b"old", b""), *((b"%d" % number, b"") for number in range(5))]
    told = passed([pairs], 1, keys=keys)
    assert (told.dirty_keys.value, told.map_keys, told.fits) == (5, keys, fits)


def test_tombstones_that_are_last() -> None:
    pairs: Pairs = [(b"a", None), (b"a", b""), (b"b", b""), (b"b", None), (b"c", None)]
    assert passed([pairs], 0).live_tombstones == (2, False, 0)


def test_records_that_were_not_opened() -> None:
    of = [segment("0..9 100b @1"), segment("10.. 0b")]
    assert predict_pass(of, 0, CleanerSettings()) is None
    assert predict_pass([], 0, CleanerSettings()) is None


def test_an_empty_segment_needs_no_keys() -> None:
    of = [*segments([(b"a", b""), (b"a", b"")]), segment("2.. 0b")]
    told = predict_pass(of, 0, CleanerSettings())
    assert told is not None
    assert told.dropped_records.value == 1


def test_aborted_records_are_named() -> None:
    of = [replace(each, totals=replace(each.totals, aborted_records=3)) for each in segments([(b"a", b"")])]
    told = predict_pass(of, 0, CleanerSettings())
    assert told is not None
    assert told.aborted_records == 3


@pytest.mark.parametrize("part", ["all", "half"])
def test_estimates_are_inside_their_errors(part: str) -> None:
    outside = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        pairs: Pairs = [(b"%d %d" % (seed, rng.randrange(4000)), b"v" * rng.randrange(9)) for _ in range(6000)]
        first_dirty = 0 if part == "all" else 3000
        told = passed([pairs[:3000], pairs[3000:]], first_dirty, sample=256)
        plain = PlainCleaner(pairs, first_dirty)
        assert told.dirty_keys.estimate
        for estimate, truth in (
            (told.dirty_keys, plain.keys),
            (told.dropped_records, plain.dropped),
        ):
            assert abs(estimate.value - truth) <= 5 * estimate.error
            outside += abs(estimate.value - truth) > 2 * estimate.error
    assert outside <= SEEDS // 4
