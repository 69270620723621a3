"""A histogram in a few numbers."""

from kdump.named_tuple import NamedTuple
from kdump.stat import histogram
from kdump.stat.histogram import Histogram

_SHARES = (0.5, 0.9, 0.99)


class Distribution(NamedTuple):
    """A histogram in a few numbers. With `estimate`, the quantiles have a relative error of at most `error`."""

    count: int  # type: ignore[assignment]  # hides a method of tuples
    sum: int
    minimum: int | None
    maximum: int | None
    mean: float | None
    p50: int | None
    p90: int | None
    p99: int | None
    estimate: bool
    error: float


def distribution(of: Histogram) -> Distribution:
    """The numbers of a histogram."""
    middle, high, highest = map(of.quantile, _SHARES)
    estimate = not all(map(of.is_exact, _SHARES))
    error = histogram.ERROR if estimate else 0.0
    mean = None if of.mean is None else round(of.mean, 1)
    return Distribution(of.count, of.sum, of.minimum, of.maximum, mean, middle, high, highest, estimate, error)
