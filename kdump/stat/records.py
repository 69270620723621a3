"""What opening the records of a log shows."""


class RecordStatistics:
    """The records of some batches, opened. Add two to merge them in log order."""

    __slots__ = ()

    def __add__(self, other: "RecordStatistics") -> "RecordStatistics":
        return self
