"""How many bytes the parts of a page may take, so that no page is larger than MOST_BYTES, whatever the input."""

from __future__ import annotations

from bisect import bisect
from typing import TYPE_CHECKING, Final

from kdump.named_tuple import NamedTuple
from kdump.render.html.script_data import Encoded, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_BYTES: Final = 8 << 20
TABLE_BYTES: Final = 7 << 20
"""What tables, maps and strips may take. The rest is for the head, what the catalogue says of codes, the scripts."""


class Budget:
    """Bytes that are left. What a part of a budget takes, it takes from the whole, too."""

    def __init__(self, size: int, whole: Budget | None = None) -> None:
        self._left, self._whole = size, whole

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self._left if self._whole is None else min(self._left, self._whole.left)

    def part(self, size: int) -> Budget:
        """A part of it."""
        return Budget(size, self)

    def take(self, size: int) -> bool:
        """Take so many bytes; False, and nothing is taken, where they are more than are left."""
        if size > self.left:
            return False
        self.give(-size)
        return True

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._left += size
        if self._whole is not None:
            self._whole.give(size)


class _Item(NamedTuple):
    order: tuple[int, ...]
    text: Encoded
    size: int


class BoundedList:
    """Encoded values in an order of their own, at most `most`; where there is no room for all, the last ones go."""

    def __init__(self, budget: Budget, most: int = 1 << 30) -> None:
        self._budget, self._most = budget, most
        self._items: list[_Item] = []
        self._is_full = False
        self.seen = 0

    def add(self, order: Iterable[int], encode: Callable[[], Encoded]) -> None:
        """Add a value. Those of equal order stay in the order in which they came.

        Once there was no room for one, none is encoded that would come after all others.
        """
        self.seen += 1
        key = *order, self.seen
        is_last = not self._items or key > self._items[-1].order
        if is_last and self._is_full:
            return
        text = encode()
        item = _Item(key, text, len(text.encode()) + 1)
        at = bisect(self._items, item)
        if item.size > self._budget.left + sum(each.size for each in self._items[at:]):
            self._is_full = True
            return
        while item.size > self._budget.left or len(self._items) == self._most:
            self._budget.give(self._items.pop().size)
            self._is_full = True
        self._budget.take(item.size)
        self._items.insert(at, item)
        self._is_full |= len(self._items) == self._most

    def __len__(self) -> int:
        return len(self._items)

    @property
    def hidden(self) -> int:
        """How many values are left out."""
        return self.seen - len(self._items)

    def data(self) -> Encoded:
        """The values as an array."""
        return joined(item.text for item in self._items)
