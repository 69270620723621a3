"""What opening records shows: every number equals a plain recount, whatever the cutting and the order of merging."""

import pickle
from functools import reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.kernel.record_statistics import RecordCollector
from kdump.stat.keys import KeyStatistics, NameCensus
from kdump.stat.records import RecordStatistics, TimestampOrder
from support import build, oracle
from support.laws import examples
from support.record_counts import PlainCounts, collected, recount, rows_of, shape

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def logs() -> list[Path]:
    return sorted(path for path in FIXTURES.rglob("*.log") if path.stat().st_size < 200_000)


def same(found: RecordStatistics, counts: PlainCounts) -> None:
    """Every number of `found` is the one that was counted."""
    seen, keyed = counts.seen, counts.keyed
    tombstones = [one for one in keyed if one.record.value is None]
    assert (found.batches, found.unread) == (counts.batches, counts.unread)
    assert (found.records, found.bytes) == (len(seen), sum(one.size for one in seen))
    assert found.null_keys == len(seen) - len(keyed)
    assert found.empty_keys == sum(one.record.key == b"" for one in keyed)
    assert found.tombstones == len(tombstones)
    assert found.tombstone_bytes == sum(one.size for one in tombstones)
    assert found.headers == sum(len(one.record.headers) for one in seen)
    assert found.records_with_headers == sum(bool(one.record.headers) for one in seen)
    assert found.key_sizes == counts.key_sizes()
    assert found.value_sizes == counts.value_sizes()
    assert [list(each) for each in found.by_codec] == counts.codecs
    assert {name: list(volume) for name, volume in found.shapes._asdict().items()} == counts.shapes()
    assert found.timestamps == TimestampOrder(*counts.times())
    assert [tuple(each) for each in found.largest] == counts.largest()
    headers = counts.headers()
    assert {one.name: one.occurrences for one in found.header_keys.names()} == {
        name[:96]: count for name, count in headers.items()
    }
    assert sum(one.value_bytes for one in found.header_keys.names()) == counts.header_bytes().total()
    assert found.header_keys.distinct() == (len(headers), False, 0)
    assert {one.name: one.occurrences for one in found.schemas.names()} == counts.schemas()


def same_keys(found: KeyStatistics, counts: PlainCounts) -> None:
    assert {one.hash: tuple(one[1:]) for one in found.sample.sampled()} == counts.sample()
    records, sizes = counts.weights()
    for weights, heavy in ((records, found.by_records), (sizes, found.by_bytes)):
        assert heavy.error == 0
        assert {(one.key, one.size, one.weight) for one in heavy.heaviest()} == {
            (key[:96], len(key), weight) for key, weight in weights.items()
        }
    assert {one.offset for one in found.by_records.heaviest()} <= {one.record.offset for one in counts.keyed}
    assert (found.records, found.bytes) == (len(counts.keyed), sum(one.size for one in counts.keyed))
    live = list(counts.sample().values())
    savings = found.compaction()
    assert found.distinct() == savings.live_records == (len(live), False, 0)
    assert savings.live_bytes == (sum(one[3] for one in live), False, 0)
    assert savings.live_tombstones == (sum(one[4] for one in live), False, 0)
    assert savings.live_tombstone_bytes == (sum(one[3] for one in live if one[4]), False, 0)
    assert savings.shadowed_tombstones.value == found.tombstones - savings.live_tombstones.value
    assert savings.dropped_records.value == len(counts.seen) - len(live)
    assert savings.dropped_bytes.value == sum(one.size for one in counts.seen) - savings.live_bytes.value


@pytest.mark.parametrize("path", logs(), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_every_number_of_a_fixture_is_that_of_a_recount(path: Path) -> None:
    data = path.read_bytes()
    collector, counts = collected(data), recount(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)


@given(build.segments(gaps=True), st.integers(1, 5))
@settings(max_examples=examples(25))
def test_every_number_of_a_built_log_is_that_of_a_recount(data: bytes, rows: int) -> None:
    collector, counts = collected(data, rows=rows), recount(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)


@given(build.segments(min_batches=1), st.randoms(use_true_random=False))
@settings(max_examples=examples(15))
def test_damage_takes_only_the_batches_that_it_hits(data: bytes, random: Random) -> None:
    at = random.randrange(len(data))
    data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    collector, counts = collected(data), recount(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)


@given(build.segments(min_batches=2, compacted=True), st.lists(st.integers(0, 8), max_size=4), st.booleans())
@settings(max_examples=examples(20))
def test_any_cutting_gives_the_same_numbers(data: bytes, cuts: list[int], from_right: bool) -> None:
    starts = [item.position for item in oracle.walk(data)]
    borders = sorted({0, len(data), *(starts[cut % len(starts)] for cut in cuts)})
    parts = [collected(data, start=one, stop=two) for one, two in pairwise(borders)]
    records = [pickle.loads(pickle.dumps(RecordStatistics.of(part))) for part in parts]
    keys = [pickle.loads(pickle.dumps(KeyStatistics.of(part))) for part in parts]
    counts = recount(data)
    if from_right:
        same(reduce(lambda right, left: left + right, reversed(records)), counts)
        same_keys(KeyStatistics.begin() + reduce(lambda right, left: left + right, reversed(keys)), counts)
    else:
        same(reduce(add, records), counts)
        same_keys(reduce(add, keys, KeyStatistics.begin()), counts)


SHAPES = [
    (None, "null"),
    (b"", "empty"),
    (b'{"a": 1}', "json"),
    (b" \t[1, 2]\r\n", "json"),
    (b"{", "text"),
    (b"{]", "text"),
    (b"123", "text"),
    (b"\0\0\0\0\x07abc", "schema"),
    (b"\0\0\0\0", "binary"),
    (b"plain text, longer than a word", "text"),
    (b"a\x01bcdefghijk", "binary"),
    (b"abcdefgh\x1fabcdefgh", "binary"),
    ("größer als ein Wort, 漢字 und 🙂".encode(), "text"),
    (b"\xc0\x80abcdefgh", "binary"),
    (b"\xed\xa0\x80abcdefgh", "binary"),
    (b"\xf4\x90\x80\x80abcdefgh", "binary"),
    (b"abc\xe2\x82", "binary"),
    (b"x" * 1023 + "ü".encode() * 40, "text"),
    (b"x" * 1022 + "漢".encode() * 40, "text"),
    (b"x" * 1024 + b"\x01" * 40, "text"),
    (b"x" * 1023 + b"\x01" * 40, "binary"),
    (b"{" + b"x" * 2000 + b"}", "json"),
]


@pytest.mark.parametrize(("value", "expected"), SHAPES, ids=lambda one: repr(one)[:30])
def test_the_shape_of_a_value(value: bytes | None, expected: str) -> None:
    data = build.batch([build.record(b"k", value)])
    counts = recount(data)
    found = RecordStatistics.of(collected(data))
    assert {name: volume.records for name, volume in found.shapes._asdict().items() if volume.records} == {expected: 1}
    same(found, counts)


@given(st.binary(max_size=1100) | st.text(max_size=1100).map(str.encode))
@settings(max_examples=examples(100))
def test_the_shape_of_any_value_is_that_of_the_plain_rules(value: bytes) -> None:
    collector = RecordCollector()
    row, payload = rows_of([(b"k", value)])
    collector.add_opened(row, 0, payload)
    found = RecordStatistics.of(collector).shapes._asdict()
    assert [name for name, volume in found.items() if volume.records] == [shape(value)]


def test_more_header_keys_than_the_census_holds() -> None:
    names = [b"header-%d" % number for number in range(500)]
    batches = [
        build.batch([build.record(headers=[(name, b"v")] * (1 + number % 3))], base_offset=number)
        for number, name in enumerate(names)
    ]

    def census(parts: list[bytes]) -> NameCensus:
        return NameCensus(*collected(b"".join(parts), census=64).header_keys(), 64)

    whole, halves = census(batches), census(batches[:200]) + census(batches[200:])
    assert whole == halves == census(batches[200:]) + census(batches[:200])
    assert len(whole.names()) == 64
    assert whole.dropped
    assert all(one.occurrences == 1 + int(one.name[7:]) % 3 for one in whole.names())
    distinct = whole.distinct()
    assert distinct.estimate
    assert abs(distinct.value - 500) < 4 * distinct.error


def test_the_walk_never_reads_past_the_records() -> None:
    """Whatever the bytes are: the collector is told more records than there are."""
    row, payload = rows_of([(b"key", b"value"), (b"other", None)])
    for end in range(len(payload)):
        collector = RecordCollector()
        collector.add_opened(row, 0, payload[:end])
        assert collector.tally()["records"] <= 1
    for at in range(len(payload)):
        for byte in (0, 0x7F, 0x80, 0xFF):
            collector = RecordCollector()
            collector.add_opened(row, 0, payload[:at] + bytes([byte]) + payload[at + 1 :])
            assert collector.tally()["records"] <= 2


def test_rows_outside_the_buffer_are_refused() -> None:
    row, payload = rows_of([(b"key", b"value")])
    collector = RecordCollector()
    with pytest.raises(IndexError):
        collector.add_opened(row, 1, payload)
    with pytest.raises(ValueError):
        collector.add_rows(row, 0, 2, payload, 0, len(payload))
    with pytest.raises(ValueError):
        collector.add_rows(row, 0, 1, payload, 0, len(payload) + 1)
    assert collector.add_rows(row, 0, 1, payload, 0, len(payload)) == 0  # the batch is larger than the window
    with pytest.raises(ValueError):
        RecordCollector(sample=1)


def test_a_lying_batch_of_the_tail_is_unread() -> None:
    good = build.batch([build.record(b"k", b"v")])
    bad = build.batch([build.record(b"k", b"v")], base_offset=1, count=3)
    counts = recount(good + bad)
    assert counts.unread == 1
    same(RecordStatistics.of(collected(good + bad)), counts)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_is_larger_than_the_window(codec: str) -> None:
    rng = Random(1)
    large = [build.record(b"k%d" % number, rng.randbytes(300_000)) for number in range(3)]
    data = build.batch([build.record(b"a", b"b")]) + build.batch(large, base_offset=1, codec=codec)
    data += build.batch([build.record(b"k1", None)], base_offset=4, codec=codec)
    collector, counts = collected(data), recount(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)
