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

import kdump
from kdump.format.naming import INTERNAL_TOPICS
from kdump.kernel.record_statistics import RecordCollector
from kdump.stat.keys import KeyStatistics, NameCensus
from kdump.stat.records import RecordStatistics
from support import build, oracle
from support.cases import each
from support.laws import examples, sampled
from support.record_counts import collected, recount, rows_of, same, same_keys, shape

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def logs() -> list[Path]:
    return sorted(path for path in FIXTURES.rglob("*.log") if path.stat().st_size < 200_000)


@each("path", sampled(logs(), 4), ids=lambda path: str(path.relative_to(FIXTURES)))
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


def test_a_batch_with_a_negative_number_of_records_is_unread() -> None:
    """A reader stops at it (batch/count), compressed or not, and at a control batch too."""
    for how in ({}, {"codec": "zstd"}, {"control": True}):
        data = build.batch([build.record(b"k", b"v")]) + build.batch(
            [build.record(b"k")], base_offset=1, count=-7, **how
        )
        counts = recount(data)
        assert (counts.batches, counts.unread) == (1, 1)
        same(RecordStatistics.of(collected(data)), counts)


def test_a_compressed_control_batch_without_its_record_is_unread() -> None:
    data = build.control_batch([build.control_record("COMMIT", bytes(6))], codec="zstd")
    same(RecordStatistics.of(collected(data)), recount(data))
    data = build.batch([build.record(b"k")], codec="zstd", count=2, last_offset_delta=1, control=True)
    assert recount(data).unread == 1
    same(RecordStatistics.of(collected(data)), recount(data))


def test_bits_that_do_not_fit_into_a_varint_are_dropped() -> None:
    """Kafka's ByteUtils drops them, and so do verify and dump; a lost record here would be a wrong number."""
    spilled = build.spilled_varint
    fields = build.spilled_varlong(5) + spilled(0) + spilled(3) + b"key" + spilled(-1) + spilled(1)
    fields += spilled(1) + b"h" + spilled(2) + b"ab"
    body = b"\0" + fields
    data = build.batch([spilled(len(body)) + body, build.record(b"next", b"v", offset=1)], base_timestamp=1000)
    counts = recount(data)
    assert [one.record.key for one in counts.seen] == [b"key", b"next"]
    collector = collected(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)


def test_values_of_internal_topics_are_in_no_wire_format_of_others(tmp_path: Path) -> None:
    """Values of __consumer_offsets begin with a version of two bytes, 0 to 4: they are not ids of schemas."""
    value = b"\0\3" + bytes(30)
    for topic, expected in (("orders", "schema"), *((topic, "binary") for topic in sorted(INTERNAL_TOPICS))):
        path = tmp_path / f"{topic}-0" / f"{0:020}.log"
        path.parent.mkdir()
        path.write_bytes(build.batch([build.record(b"k", value)]))
        (found,) = kdump.stat_logs(kdump.discover([path.parent]), kdump.StatOptions(deep=True))
        assert isinstance(found, kdump.PartitionStatistics)
        assert found.records is not None
        shapes = found.records.shapes._asdict()
        assert [name for name, volume in shapes.items() if volume.records] == [expected]
        assert bool(found.records.schemas.names()) == (expected == "schema")


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_that_is_larger_than_the_window(codec: str) -> None:
    rng = Random(1)
    large = [build.record(b"k%d" % number, rng.randbytes(300_000)) for number in range(3)]
    data = build.batch([build.record(b"a", b"b")]) + build.batch(large, base_offset=1, codec=codec)
    data += build.batch([build.record(b"k1", None)], base_offset=4, codec=codec)
    collector, counts = collected(data), recount(data)
    same(RecordStatistics.of(collector), counts)
    same_keys(KeyStatistics.of(collector), counts)
