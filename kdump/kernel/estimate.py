"""Numbers that are exact or estimated from a sample of the keys."""

from math import ceil, sqrt
from typing import Final

from kdump.named_tuple import NamedTuple

HASHES: Final = 1 << 64


class Estimate(NamedTuple):
    """A number. `estimate`: it comes from a sample, and `error` is its standard error, in the unit of the number.

    Two of three estimates are within one standard error of the truth, and almost all within three.
    """

    value: int
    estimate: bool = False
    error: int = 0


def distinct(keys: int, largest_hash: int) -> Estimate:
    """The number of distinct keys, of which the `keys` with the smallest hashes are known (k minimum values).

    Bar-Yossef et al., Counting distinct elements in a data stream, 2002. `largest_hash` is the largest of theirs.
    """
    if keys < 3:
        return Estimate(keys, True, keys)
    value = (keys - 1) * HASHES // (largest_hash + 1)
    value = max(value, keys)
    return Estimate(value, True, round(value * sqrt(max(1 - keys / value, 0) / (keys - 2))))


def total(size: int, squares: float, largest_hash: int) -> Estimate:
    """The sum of a number over all keys, from its sum over the keys below `largest_hash`.

    `squares`: the sum of its squares over all keys, or what that is believed to be. Each key is known with the same
    probability (Horvitz and Thompson, 1952).
    """
    share = largest_hash / HASHES
    if not share:
        return Estimate(size, True, size)
    return Estimate(round(size / share), True, ceil(sqrt(squares * (1 - share) / share)))
