"""The keys of a partition."""


class KeyStatistics:
    """The keys of some records. Add two to merge them in log order."""

    __slots__ = ()

    def __add__(self, other: "KeyStatistics") -> "KeyStatistics":
        return self
