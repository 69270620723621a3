"""Histograms: buckets cover every value once, quantiles stay inside the error, sums do not depend on the order."""

import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.stat.distribution import distribution
from kdump.stat.histogram import ERROR, Histogram, bounds_of, bucket_of

VALUES = st.lists(st.integers(0, (1 << 63) - 1) | st.integers(0, 1000), max_size=50)


def test_each_value_has_one_bucket() -> None:
    assert [bounds_of(bucket)[0] for bucket in range(1, 7296)] == [bounds_of(bucket)[1] + 1 for bucket in range(7295)]
    assert bounds_of(0)[0] == 0
    assert bounds_of(7295)[1] == (1 << 63) - 1


@given(st.integers(0, (1 << 63) - 1))
def test_a_bucket_is_narrow(value: int) -> None:
    low, high = bounds_of(bucket_of(value))
    assert low <= value <= high
    assert high - low <= low / 128


@given(VALUES, VALUES, VALUES)
def test_sums_do_not_depend_on_the_order(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = map(Histogram.of, (one, two, three))
    assert (a + b) + c == a + (b + c) == c + b + a == Histogram.of(one + two + three)
    assert pickle.loads(pickle.dumps(a)) == a


@given(VALUES, st.sampled_from([1, 5, 20, 48, 200]))
def test_bars_are_side_by_side_and_have_every_value_once(values: list[int], most: int) -> None:
    bars = Histogram.of(values).bars(most)
    if not values:
        assert bars == []
        return
    assert [low for low, _, _ in bars[1:]] == [high + 1 for _, high, _ in bars[:-1]]
    assert bars[0][0] <= min(values) <= bars[0][1]
    assert bars[-1][0] <= max(values) <= bars[-1][1]
    assert [count for _, _, count in bars] == [sum(low <= value <= high for value in values) for low, high, _ in bars]
    assert len(bars) <= max(most, 1 + max(values).bit_length() - min(values).bit_length())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_inside_the_error(share: float) -> None:
    values = sorted(int(random.Random(seed).paretovariate(0.7) * 100) for seed in range(2_000))
    exact = values[min(max(-int(-share * len(values) // 1), 1), len(values)) - 1]
    found = Histogram.of(values).quantile(share)
    assert found is not None
    assert abs(found - exact) <= exact * ERROR + 1
    assert (Histogram.of(values).quantile(0), Histogram.of(values).quantile(1)) == (values[0], values[-1])


def test_without_a_value() -> None:
    empty = Histogram()
    assert (empty.count, empty.sum, empty.minimum, empty.maximum, empty.mean, empty.quantile(0.5)) == (
        0,
        0,
        *[None] * 4,
    )
    assert Histogram.of([5]) + empty == empty + Histogram.of([5]) == Histogram.of([5])


@pytest.mark.parametrize(
    ("values", "estimate"),
    [
        ([], False),
        ([5000], False),
        ([5000] * 100, False),
        ([*range(200), 5000], False),  # the quantiles are below 256; the maximum is exact
        ([300, 301], False),  # half of two is the smaller one, the rest the larger one
        ([1000, 1001, 1002, 1003], True),
    ],
)
def test_a_distribution_is_an_estimate_where_a_quantile_can_be_wrong(values: list[int], estimate: bool) -> None:
    found = distribution(Histogram.of(values))
    assert (found.estimate, found.error) == (estimate, ERROR if estimate else 0.0)
    if not estimate and values:
        assert [found.p50, found.p90, found.p99] == [
            sorted(values)[-(-len(values) * n // 100) - 1] for n in (50, 90, 99)
        ]
