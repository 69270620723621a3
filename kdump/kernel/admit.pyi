from typing_extensions import Buffer

class Admission:
    """Takes batches that are to be appended, and have nothing special about them."""

    def __init__(self, max_bytes: int) -> None: ...
    def admit(self, data: Buffer, offset: int, epoch: int) -> tuple[bytearray | memoryview, int, int, int] | None:
        """One sound record batch of at most `max_bytes`, without a producer and no control batch, with an offset and a leader epoch: (batch, last offset, largest timestamp, size).

        The batch is a copy that holds until the next call. None for anything else.
        """
