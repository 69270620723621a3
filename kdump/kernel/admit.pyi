from typing_extensions import Buffer

class Admission:
    """Prepares ordinary record batches for an append: without a producer, and no control batches."""

    def __init__(self, max_bytes: int) -> None: ...
    def admit(self, data: Buffer, offset: int, epoch: int) -> tuple[bytearray | memoryview, int, int, int] | None:
        """Copy one valid record batch and give the copy this base offset and leader epoch.

        Returns (batch, last offset, max timestamp, size in bytes). The next call overwrites the batch.
        Returns None for a batch of more than `max_bytes`, a batch of a producer, a control batch, and bytes that are no
        valid batch.
        """
