"""A map from offsets to values that also keeps its offsets in order (Kafka uses a ConcurrentSkipListMap)."""

from bisect import bisect_left, insort
from typing import TypeVar

_Value = TypeVar("_Value")


class OffsetMap(dict[int, _Value]):
    """A map whose keys are offsets. `order` lists them from the lowest to the highest."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[int] = []

    def __setitem__(self, offset: int, value: _Value) -> None:
        if offset not in self:
            insort(self.order, offset)
        super().__setitem__(offset, value)

    def __delitem__(self, offset: int) -> None:
        super().__delitem__(offset)
        del self.order[bisect_left(self.order, offset)]

    def clear(self) -> None:
        super().clear()
        self.order.clear()
