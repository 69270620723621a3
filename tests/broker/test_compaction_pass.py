"""What a pass of the log cleaner drops, and whether its map holds the keys, against a plain cleaner."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.cleaner.cleaner import CompactionPass, predict_pass
from kdump.broker.cleaner.dirty_keys import dirty_keys
from kdump.broker.cleaner.log_config import CleanerSettings
from kdump.kernel.record_statistics import RecordCollector
from kdump.stat.key_summary import summarize_keys
from kdump.stat.keys import KeyStatistics
from support.record_counts import rows_of, small_record
from support.stat_logs import partition

Pairs = list[tuple[bytes | None, bytes | None]]
KEYS = st.sampled_from((None, b"", b"a", b"b", b"c", b"d", b"e"))
PAIRS = st.lists(st.tuples(KEYS, st.sampled_from((None, b"", b"value"))), min_size=1, max_size=12)
SEEDS = 40


def keys_of(*parts: Pairs, sample: int = 65536) -> KeyStatistics:
    """The keys of a log with a segment of each part."""
    found, base = KeyStatistics.begin(sample=sample, heavy=8), 0
    for part in parts:
        collector = RecordCollector(sample=sample, heavy=8)
        for begin in range(0, len(part), 100):
            row, payload = rows_of(part[begin : begin + 100], base + begin, base + begin)
            collector.add_opened(row, 0, payload)
        found += KeyStatistics.of(collector, sample=sample, heavy=8)
        base += len(part)
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


@given(st.lists(PAIRS, min_size=1, max_size=4), st.none() | st.integers(0, 40))
def test_a_pass_drops_what_a_plain_cleaner_drops(parts: list[Pairs], first_dirty: int | None) -> None:
    told = dirty_keys(keys_of(*parts), first_dirty)
    plain = PlainCleaner([pair for part in parts for pair in part], first_dirty or 0)
    assert (told.distinct, told.dropped_records) == ((plain.keys, False, 0), (plain.dropped, False, 0))
    assert told.unkeyed_records == plain.unkeyed
    if len(parts) == 1:
        assert told.dropped_bytes.value == plain.dropped_bytes


def test_tombstones_that_are_last() -> None:
    pairs: Pairs = [(b"a", None), (b"a", b""), (b"b", b""), (b"b", None), (b"c", None)]
    assert dirty_keys(keys_of(pairs), 0).live_tombstones == (2, False, 0)


@pytest.mark.daily(3)
@pytest.mark.parametrize("part", ["all", "half", "none"])
def test_estimates_are_inside_their_errors(part: str) -> None:
    outside = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        pairs: Pairs = [(b"%d %d" % (seed, rng.randrange(4000)), b"v" * rng.randrange(9)) for _ in range(6000)]
        first_dirty = {"all": 0, "half": 3000, "none": None}[part]
        told = dirty_keys(keys_of(pairs[:3000], pairs[3000:], sample=256), first_dirty)
        plain = PlainCleaner(pairs, first_dirty or 0)
        assert told.distinct.estimate
        for estimate, truth in ((told.distinct, plain.keys), (told.dropped_records, plain.dropped)):
            assert abs(estimate.value - truth) <= 5 * estimate.error
            outside += abs(estimate.value - truth) > 2 * estimate.error
    assert outside <= SEEDS // 4


# ---- the pass


def passed(keys: KeyStatistics | None, map_keys: int = 1000, end: int = 20, aborted: int = 0) -> CompactionPass | None:
    of = partition("0..9 100b @1", "10..19 100b @1", "20..29 100b @1")
    of = replace(of, keys=None if keys is None else summarize_keys(keys, keys, 0, 1))
    first = replace(of.segments[0], totals=replace(of.segments[0].totals, aborted_records=aborted))
    of = replace(of, segments=(first, *of.segments[1:]))
    return predict_pass(of, 0, end, CleanerSettings(dedupe_buffer_bytes=24 * map_keys, load_factor=1.0))


@pytest.mark.parametrize(("map_keys", "fits"), [(6, True), (5, None), (4, False)])
def test_the_map_holds_the_keys_of_the_dirty_part(map_keys: int, fits: bool | None) -> None:
    told = passed(keys_of([(b"%d" % number, b"") for number in range(5)]), map_keys)
    assert told is not None
    assert (told.keys.distinct.value, told.map_keys, told.fits) == (5, map_keys, fits)
    assert told.is_bound == (fits is not True)


def test_a_pass_that_ends_before_the_active_segment() -> None:
    told = passed(keys_of([(b"a", b"")]), end=10)
    assert told is not None
    assert told.is_bound


def test_samples_of_segments_tell_of_a_pass_that_ends_before_the_active_segment() -> None:
    parts: list[Pairs] = [[(b"a", b""), (b"b", b""), (b"b", b"")], [(b"a", b""), (b"c", b"")], [(b"d", b"")]]
    of = partition("0..2 100b @1", "3..4 100b @1", "5..5 100b @1")
    each = [keys_of(part).reduced(1024) for part in parts]
    segments = tuple(replace(segment, keys=keys) for segment, keys in zip(of.segments, each, strict=True))
    whole = summarize_keys(keys_of(*parts), keys_of(*parts[:2]), 0, 1)
    told = predict_pass(replace(of, segments=segments, keys=whole), 0, 3, CleanerSettings())
    assert told is not None
    assert (told.keys.distinct.value, told.keys.dropped_records.value, told.is_bound) == (2, 1, False)
    told = predict_pass(replace(of, segments=segments, keys=whole), 0, 5, CleanerSettings())
    assert told is not None
    assert (told.keys.distinct.value, told.keys.dropped_records.value, told.is_bound) == (3, 2, False)


def test_records_that_were_not_opened() -> None:
    assert passed(None) is None


def test_aborted_records_are_named() -> None:
    told = passed(keys_of([(b"a", b"")]), aborted=3)
    assert told is not None
    assert told.aborted_records == 3
