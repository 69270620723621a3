"""Keys: the sample, the estimates inside their stated errors, the heaviest keys inside their bounds, merging."""

import os
import pickle
import random
import time
import zlib
from collections import Counter
from functools import reduce
from itertools import pairwise
from operator import add

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.kernel import key_table
from kdump.kernel.record_statistics import PIECE_BYTES, RecordCollector
from kdump.stat.keys import HeavyKeys, HeavySketch, KeySample, KeyStatistics
from kdump.stat.partitioner import PartitionerFit, partitioner_fit
from support.laws import examples
from support.record_counts import murmur2, murmur64, rows_of, small_record

SEEDS = 1000 if os.environ.get("KDUMP_LAWS") == "all" else 60
Pairs = list[tuple[bytes | None, bytes | None]]


def statistics(pairs: Pairs, *, sample: int = 65536, heavy: int = 1024, offset: int = 0, at: int = 0) -> KeyStatistics:
    """The keys of some records: a batch of up to a hundred each."""
    collector = RecordCollector(sample=sample, heavy=heavy)
    for begin in range(0, len(pairs), 100):
        row, payload = rows_of(pairs[begin : begin + 100], at + begin, offset + begin)
        collector.add_opened(row, 0, payload)
    return KeyStatistics.of(collector, sample=sample, heavy=heavy)


class Truth:
    """What the estimates stand for."""

    def __init__(self, pairs: Pairs) -> None:
        sizes = [len(small_record(*pair, index % 100)) for index, pair in enumerate(pairs)]
        last = {key: (size, value) for (key, value), size in zip(pairs, sizes, strict=True)}
        self.distinct = len(last)
        self.live_bytes = sum(size for size, _ in last.values())
        self.live_tombstones = sum(value is None for _, value in last.values())
        self.live_tombstone_bytes = sum(size for size, value in last.values() if value is None)
        self.records = Counter(key for key, _ in pairs)
        self.bytes = Counter[bytes | None]()
        for (key, _), size in zip(pairs, sizes, strict=True):
            self.bytes[key] += size


def skewed(seed: int, records: int, keys: int) -> Pairs:
    """Records whose keys are of very different weight; the values too, and some are tombstones."""
    rng = random.Random(seed)
    return [
        (
            b"%d-%d" % (seed, int(keys * rng.random() ** 3)),
            None if rng.random() < 0.1 else bytes(min(int(rng.paretovariate(1.2) * 4), 2000)),
        )
        for _ in range(records)
    ]


def test_the_hash_of_a_key() -> None:
    rng = random.Random(0)
    for length in [*range(40), 1000]:
        key = rng.randbytes(length)
        assert key_table.hash_of(key) == murmur64(key)
        assert key_table.murmur2(key) == murmur2(key)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafka(key: bytes, expected: int) -> None:
    """The vectors of org.apache.kafka.common.utils.UtilsTest.testMurmur2."""
    assert key_table.murmur2(key) == expected


def test_a_sample_is_exact_up_to_its_size() -> None:
    pairs: Pairs = [(b"%d" % (number % 500), b"v") for number in range(1500)]
    for size, exact in ((500, True), (499, False)):
        found = statistics(pairs, sample=size)
        assert found.sample.dropped is not exact
        assert found.distinct().estimate is not exact
        assert len(found.sample) == size
        assert {one.records for one in found.sample.sampled()} == {3}
    assert statistics(pairs).distinct() == (500, False, 0)


def test_a_key_of_the_sample_is_counted_from_its_first_record_on() -> None:
    pairs = skewed(1, 5000, 3000)
    truth = Truth(pairs)
    by_hash = {key_table.hash_of(key or b""): key for key in truth.records}
    found = statistics(pairs, sample=100).sample.sampled()
    assert [one.hash for one in found] == sorted(by_hash)[:100]
    for one in found:
        key = by_hash[one.hash]
        last = max(index for index, (other, _) in enumerate(pairs) if other == key)
        assert (one.records, one.bytes, one.last_offset) == (truth.records[key], truth.bytes[key], last)
        assert one.tombstone == (pairs[last][1] is None)
        assert one.partitioners == (murmur2(key or b"") & 0xFFFFFFFF) << 32 | zlib.crc32(key or b"")


def test_estimates_are_inside_their_errors() -> None:
    """Of a correct standard error, two of three estimates are within one."""
    within = Counter[str]()
    for seed in range(SEEDS):
        pairs = skewed(seed, 1500, 1500)
        truth, found = Truth(pairs), statistics(pairs, sample=200)
        savings = found.compaction()
        for name, estimate, value in (
            ("distinct", found.distinct(), truth.distinct),
            ("bytes", savings.live_bytes, truth.live_bytes),
            ("tombstones", savings.live_tombstones, truth.live_tombstones),
            ("tombstone bytes", savings.live_tombstone_bytes, truth.live_tombstone_bytes),
            ("dropped", savings.dropped_records, len(pairs) - truth.distinct),
            ("shadowed", savings.shadowed_tombstones, found.tombstones - truth.live_tombstones),
        ):
            assert estimate.estimate
            assert abs(estimate.value - value) <= 5 * estimate.error + 1, (seed, name)
            within[name] += abs(estimate.value - value) <= estimate.error
    assert all(count > 0.5 * SEEDS for count in within.values()), within
    assert 0.52 * SEEDS < within["distinct"] < 0.84 * SEEDS


def test_the_error_of_the_full_sample() -> None:
    sample = KeySample(b"".join((number << 48).to_bytes(8, "little") + bytes(48) for number in range(65536)), True)
    found = KeyStatistics(sample, HeavyKeys(), HeavyKeys(), 10**9).distinct()
    assert found.estimate
    largest = KeySample(sample.rows[:-56] + ((1 << 57) - 1).to_bytes(8, "little") + bytes(48), True)
    found = KeyStatistics(largest, HeavyKeys(), HeavyKeys(), 10**9).distinct()
    assert found.value == 65535 * 128
    assert 0.0038 < found.error / found.value < 0.004


@pytest.mark.parametrize("seed", range(max(SEEDS // 20, 3)))
def test_heavy_keys_are_inside_their_bounds(seed: int) -> None:
    pairs = skewed(seed, 4000, 2500)
    truth = Truth(pairs)
    cuts = sorted(random.Random(seed).sample(range(0, 4000, 100), 3))
    parts = [
        statistics(pairs[one:two], heavy=32, offset=one, at=one)
        for one, two in zip([0, *cuts], [*cuts, 4000], strict=True)
    ]
    found = reduce(add, parts, KeyStatistics.begin(heavy=32))
    for heavy, weights in ((found.by_records, truth.records), (found.by_bytes, truth.bytes)):
        keys = {one.key: one for one in heavy.heaviest()}
        assert 0 < len(keys) <= 32
        assert heavy.error <= weights.total() / 33
        for key, weight in weights.items():
            if key in keys:
                assert keys[key].weight <= weight <= keys[key].weight + keys[key].error
                assert pairs[keys[key].offset][0] == key
            else:
                assert weight <= heavy.error


def test_few_keys_have_no_error() -> None:
    pairs = skewed(3, 3000, 200)
    found, truth = statistics(pairs), Truth(pairs)
    assert found.by_records.error == found.by_bytes.error == 0
    assert {one.key: one.weight for one in found.by_records.heaviest()} == truth.records
    assert {one.key: one.weight for one in found.by_bytes.heaviest()} == truth.bytes


def test_a_long_key_is_cut_and_stays_one_key() -> None:
    keys = [b"k" * 96 + b"%d" % number for number in range(3)]
    found = statistics([(key, b"") for key in keys for _ in range(2)])
    assert [(one.key, one.size, one.weight) for one in found.by_records.heaviest()] == [(b"k" * 96, 97, 2)] * 3


@given(st.lists(st.integers(0, 39), max_size=8), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=examples(12))
def test_merging_is_associative_and_any_cut_gives_the_same(cuts: list[int], seed: int, rng: random.Random) -> None:
    """Cut where pieces begin, and grouped in any way in log order."""
    pairs = skewed(seed, 4000, 2000)
    step = PIECE_BYTES // 10  # so a piece has ten batches
    rows = [rows_of(pairs[100 * number : 100 * number + 100], step * number, 100 * number) for number in range(40)]

    def part(one: int, two: int) -> KeyStatistics:
        collector = RecordCollector(sample=150, heavy=40)
        for row, payload in rows[one:two]:
            collector.add_opened(row, 0, payload)
        return pickle.loads(pickle.dumps(KeyStatistics.of(collector, sample=150, heavy=40)))

    pieces = [min(number for number in range(41) if number * step >= PIECE_BYTES * cut) for cut in range(4)]
    borders = sorted({0, 40, *(pieces[cut % 4] for cut in cuts)})
    parts = [KeyStatistics.begin(sample=150, heavy=40)]
    parts += [part(one, two) for one, two in pairwise(borders)]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    assert parts[0] == KeyStatistics.begin(sample=150, heavy=40) + part(0, 40)
    assert len(parts[0].by_records.pieces) == 1


def test_samples_merge_in_any_order() -> None:
    pairs = skewed(5, 4000, 2500)
    parts = [statistics(pairs[at : at + 1000], sample=150, offset=at).sample for at in range(0, 4000, 1000)]
    whole = statistics(pairs, sample=150).sample
    for seed in range(10):
        random.Random(seed).shuffle(parts)
        assert reduce(add, parts) == whole


def test_a_table_is_bounded() -> None:
    """The stated bounds: rows of a sample and of a sketch, whatever the keys are."""
    found = statistics([(b"%d" % number, b"v" * 40) for number in range(30000)], sample=1000, heavy=100)
    assert len(found.sample.rows) == 1000 * 56
    for heavy in (found.by_records, found.by_bytes):
        assert all(len(piece.rows) <= 100 * 128 for piece in heavy.pieces)
    joined = found + found
    assert len(joined.sample.rows) == 1000 * 56


def test_keys_that_begin_at_one_slot_cost_no_more_than_others() -> None:
    """The hash can be turned round, so that a file can hold keys whose hashes have the same 20 lower bits."""
    step = 0x9E3779B97F4A7C15
    spread, chosen = ([key_of(number * by) for number in range(1, 20_001)] for by in (step, 1 << 20))
    seconds = []
    for keys in (spread, chosen):
        collector = RecordCollector()
        spent = 0.0
        for at in range(0, len(keys), 1000):
            row, payload = rows_of([(key, b"") for key in keys[at : at + 1000]])
            begin = time.process_time()
            collector.add_opened(row, 0, payload)
            spent += time.process_time() - begin
        seconds.append(spent)
        assert KeyStatistics.of(collector).distinct() == (20_000, False, 0)
    assert seconds[1] < 10 * seconds[0] + 0.1


def key_of(hash_: int) -> bytes:
    """The key of eight bytes with this MurmurHash64A."""
    factor, all_ = 0xC6A4A7935BD1E995, (1 << 64) - 1
    back = pow(factor, -1, 1 << 64)
    h = hash_ & all_
    h = (h ^ h >> 47) * back & all_
    k = ((h ^ h >> 47) * back ^ 0x9747B28C ^ 8 * factor) & all_
    k = k * back & all_
    key = ((k ^ k >> 47) * back & all_).to_bytes(8, "little")
    assert murmur64(key) == hash_ & all_
    return key


def test_a_cut_key_ends_with_a_whole_character() -> None:
    keys = [("ü" * 5000).encode(), b"x" + ("漢" * 3000).encode(), b"y" + b"\xff" * 200, b"z" * 95 + b"\xc3"]
    found = statistics([(key, b"") for key in keys])
    assert {(one.key, one.size) for one in found.by_records.heaviest()} == {
        (("ü" * 48).encode(), 10000),
        (b"x" + ("漢" * 31).encode(), 9001),
        (b"y" + b"\xff" * 95, 201),
        (keys[3], 96),  # not cut, and so not UTF-8
    }


@given(st.binary(max_size=1000))
@settings(max_examples=examples(50))
def test_any_whole_rows_are_read_inside_their_bounds(data: bytes) -> None:
    rows = data[: len(data) // 128 * 128]
    for _, name in key_table.cells(rows, 16, 4):
        assert len(name) <= key_table.NAME_BYTES
    sample = data[: len(data) // 56 * 56]
    for kind, part in ((0, sample), (1, rows), (2, rows)):
        key_table.merge(kind, part, part, 3)
    assert key_table.fits(sample, 0, 3, 2)[0] <= len(sample) // 56
    key_table.sums(sample, 1 << 40)


def test_merging_refuses_what_is_not_rows() -> None:
    with pytest.raises(ValueError):
        key_table.merge(0, b"x", b"", 5)
    with pytest.raises(ValueError):
        key_table.merge(7, b"", b"", 5)
    with pytest.raises(ValueError):
        key_table.fits(b"", 0, 0, 5)
    assert HeavyKeys().heaviest() == []
    assert HeavyKeys((HeavySketch(b"", 3),)).error == 3


def placed(keys: list[bytes], partition: int, partitions: int, partitioner: str) -> Pairs:
    def home(key: bytes) -> int:
        return (murmur2(key) & 0x7FFFFFFF if partitioner == "murmur2" else zlib.crc32(key)) % partitions

    return [(key, b"v") for key in keys if home(key) == partition]


KEYS = [b"user-%d" % number for number in range(4000)]


def topic(partitioner: str, partitions: int = 3, **sizes: int) -> PartitionerFit:
    fits = [
        partitioner_fit(statistics(placed(KEYS, number, partitions, partitioner), **sizes), number, partitions)
        for number in range(partitions)
    ]
    return reduce(PartitionerFit.join, fits)


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_the_partitioner_of_a_topic(partitioner: str) -> None:
    fit = topic(partitioner)
    assert fit.partitioner == partitioner
    assert (fit.keys, getattr(fit, partitioner), fit.misplaced, fit.error) == (4000, 4000, (), 0.0)
    other = fit.crc32 if partitioner == "murmur2" else fit.murmur2
    assert 0.25 < other / 4000 < 0.42
    sampled = topic(partitioner, sample=300)
    assert sampled.partitioner == partitioner
    assert sampled.estimate
    assert 0 < sampled.error < 0.02


def test_the_error_of_a_share_is_that_of_the_partition_with_most_keys() -> None:
    """A partition whose keys are all known adds to the keys, and nothing to the error."""
    few, many = KEYS[:250], [b"many-%d" % number for number in range(20_000)]
    sampled = partitioner_fit(statistics([(key, b"") for key in many], sample=300), 0, 2)
    exact = partitioner_fit(statistics([(key, b"") for key in few], sample=300), 1, 2)
    assert exact.error == 0.0
    assert sampled.error == pytest.approx(0.5 / 300**0.5, rel=0.02)
    both = sampled.join(exact)
    assert both.estimate
    assert both.error == pytest.approx(sampled.error * sampled.keys / both.keys)


def test_keys_in_another_partition_are_listed() -> None:
    pairs = placed(KEYS, 0, 3, "murmur2")
    stray = placed(KEYS, 1, 3, "murmur2")[:2]
    found = partitioner_fit(statistics([*pairs, *stray, stray[0], (None, b"v"), (b"", b"v")]), 0, 3)
    assert found.keys == len(pairs) + 2
    assert found.murmur2 == len(pairs)
    assert [(one.partition, one.last_offset, one.records) for one in found.misplaced] == [
        (0, len(pairs) + 1, 1),
        (0, len(pairs) + 2, 2),
    ]


def test_no_partitioner_is_named_where_none_is_known() -> None:
    assert partitioner_fit(statistics([(key, b"") for key in KEYS]), 0, 3).partitioner is None
    assert partitioner_fit(statistics([(key, b"") for key in KEYS]), 0, 3).misplaced == ()
    assert partitioner_fit(statistics([(key, b"") for key in KEYS]), 0, 1).partitioner is None
    assert partitioner_fit(statistics([(None, b"")]), 0, 3).partitioner is None
