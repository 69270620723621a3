"""Log-linear histograms: the distribution of sizes, counts and durations with a bounded relative error.

Values below 128 have a bucket each. Each power of two above has 128 buckets of equal width, so a bucket is at most
1/128 of its lower bound wide, and its midpoint at most 0.4 % from any value in it. The kernel fills histograms
(kdump/kernel/histogram.pxd).
"""

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Final

SUB_BUCKETS: Final = 128
_SUB_BITS: Final = 7
ERROR: Final = 1 / 256
"""The largest relative error of a quantile: half the width of a bucket."""


def bucket_of(value: int) -> int:
    """The number of the bucket of a value, which is not negative."""
    if value < SUB_BUCKETS:
        return value
    shift = value.bit_length() - 1 - _SUB_BITS
    return SUB_BUCKETS * shift + (value >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The smallest and the largest value of a bucket."""
    if bucket < 2 * SUB_BUCKETS:
        return bucket, bucket
    shift, rest = divmod(bucket, SUB_BUCKETS)
    low = (SUB_BUCKETS + rest) << (shift - 1)
    return low, low + (1 << (shift - 1)) - 1


class Histogram:
    """A distribution of values from 0 to 2^63 - 1. Add two to merge them, in any order.

    `count`, `sum`, `minimum` and `maximum` are exact; the last two are None without a value. `buckets` has the number
    of values of each bucket that has some.
    """

    __slots__ = ("buckets", "count", "maximum", "minimum", "sum")

    def __init__(
        self,
        count: int = 0,
        sum: int = 0,  # noqa: A002
        minimum: int | None = None,
        maximum: int | None = None,
        buckets: Mapping[int, int] | None = None,
    ) -> None:
        self.count, self.sum = count, sum
        self.minimum, self.maximum = (minimum, maximum) if count else (None, None)
        self.buckets = dict(buckets or ())

    @classmethod
    def of(cls, values: Iterable[int]) -> "Histogram":
        """The histogram of some values. A negative one counts as 0."""
        known = [max(value, 0) for value in values]
        buckets: dict[int, int] = {}
        for value in known:
            buckets[bucket_of(value)] = buckets.get(bucket_of(value), 0) + 1
        return cls(len(known), sum(known), min(known, default=None), max(known, default=None), buckets)

    def __add__(self, other: "Histogram") -> "Histogram":
        if not other.count:
            return self
        if self.minimum is None or self.maximum is None or other.minimum is None or other.maximum is None:
            return other
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Histogram(
            self.count + other.count,
            self.sum + other.sum,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            buckets,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return self._fields() == other._fields()

    __hash__ = None  # type: ignore[assignment]

    def _fields(self) -> tuple[int, int, int | None, int | None, dict[int, int]]:
        return self.count, self.sum, self.minimum, self.maximum, self.buckets

    def __reduce__(self) -> tuple[type["Histogram"], tuple[int, int, int | None, int | None, dict[int, int]]]:
        return Histogram, self._fields()

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, sum={self.sum}, minimum={self.minimum}, maximum={self.maximum})"

    @property
    def mean(self) -> float | None:
        """The exact mean, None without a value."""
        return self.sum / self.count if self.count else None

    def quantile(self, share: float) -> int | None:
        """The value that `share` (0 to 1) of the values do not exceed, within ERROR; None without a value.

        Exact for 0, 1, and values below 256.
        """
        if self.minimum is None or self.maximum is None:
            return None
        low, high = self._bounds(share, self.minimum, self.maximum)
        return min(max((low + high) // 2, self.minimum), self.maximum)

    def is_exact(self, share: float) -> bool:
        """Whether `quantile` of this share has no error."""
        if self.minimum is None or self.maximum is None:
            return True
        low, high = self._bounds(share, self.minimum, self.maximum)
        return max(low, self.minimum) == min(high, self.maximum)

    def _bounds(self, share: float, minimum: int, maximum: int) -> tuple[int, int]:
        """The smallest and the largest value that the quantile can have."""
        rank = min(max(ceil(share * self.count), 1), self.count)
        if rank == 1:
            return minimum, minimum
        if rank == self.count:
            return maximum, maximum
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return bounds_of(bucket)
        return maximum, maximum

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """(smallest value, largest value, count) of each bucket that has values, in order."""
        for bucket in sorted(self.buckets):
            low, high = bounds_of(bucket)
            yield low, high, self.buckets[bucket]

    def bars(self, most: int) -> list[tuple[int, int, int]]:
        """(smallest value, largest value, count) of neighbouring ranges from the least value on, also empty ones.

        A power of two has 1, 2, 4, 8 or 16 of them: as many as give at most `most`, if any do. The counts are exact:
        the range has whole buckets.
        """
        if self.minimum is None or self.maximum is None:
            return []
        several: list[tuple[int, int]] = []
        for parts in (16, 8, 4, 2, 1):
            several = list(_ranges(self.minimum, self.maximum, parts))
            if len(several) <= most:
                break
        counts, at = [0] * len(several), 0
        for low, _, count in self.ranges():
            while low > several[at][1]:
                at += 1
            counts[at] += count
        return [(low, high, count) for (low, high), count in zip(several, counts, strict=True)]


def _ranges(minimum: int, maximum: int, parts: int) -> Iterator[tuple[int, int]]:
    """The ranges from that of one value to that of another, `parts` to a power of two."""
    low = _start(minimum, parts)
    while low <= maximum:
        high = low + max(1, (1 << max(low.bit_length() - 1, 0)) // parts) - 1
        yield low, high
        low = high + 1


def _start(value: int, parts: int) -> int:
    width = max(1, (1 << max(value.bit_length() - 1, 0)) // parts)
    return value // width * width
