"""Joining what the scans of neighbouring ranges of a segment found, in log order.

A cut between two ranges is only a hint. Where the right range began at another position than the left one ended, or its
scan would have found something else with the state of the left one, `join` scans it again from there.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

_Task = TypeVar("_Task")
_Part = TypeVar("_Part")


def fold_ranges(parts: Iterable[tuple[_Task, _Part]], join: Callable[[_Part, _Task, _Part], _Part]) -> _Part:
    """The whole of all ranges of a segment, which come in log order: join(left, task of the right one, right)."""
    several = iter(parts)
    _, whole = next(several)
    for task, part in several:
        whole = join(whole, task, part)
    return whole
