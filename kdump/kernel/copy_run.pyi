from typing_extensions import Buffer

RUN_END: int
"""A run ended with the rows."""
RUN_OTHER: int
"""The next batch is not taken as it is."""
RUN_FULL: int
"""The next batch does not fit into the segment."""

def skip_below(rows: Buffer, start: int, count: int, lowest: int) -> int:
    """Return the index of the first row from `start` on that is not a valid batch with all offsets below `lowest`."""

def offset_is_ahead(rows: Buffer, index: int, count: int, lowest: int, after: int) -> bool:
    """Whether the batch after row `index` fits where this one does not: its offset is below, and not below `lowest`.

    `after` is the offset of the batch that follows the last of `count` rows, -1 where it is not known. No checksum
    covers the base offset of a batch.
    """

class CopyRun:
    """Finds runs of adjacent batches of magic 2 that a new log takes byte for byte.

    `codec`: the number of the codec that they have to have, -1 for any; control batches may have any. `plain`: no batch
    of a producer, no control batch.
    """

    size: int
    """Of the last run: its bytes."""
    batches: int
    records: int
    first_offset: int
    last_offset: int
    stopped: int
    """Why the last run ended: RUN_END, RUN_OTHER or RUN_FULL."""
    epochs: list[tuple[int, int, int]]
    """Each leader epoch, the base offset of its first batch, and the offset after the batch before that one (0 without
    one), in the order of the log. -1 is no epoch.
    """

    def __init__(self, *, codec: int = -1, plain: bool = False) -> None: ...
    def take(
        self,
        rows: Buffer,
        start: int,
        count: int,
        lowest: int,
        highest: int,
        room: int,
        top: int,
        empty: bool,
        after: int = -1,
    ) -> int:
        """Find the run that begins with row `start` of `count` rows of kdump.kernel.scan.BATCH_COLUMNS.

        Its batches have offsets from `lowest` to `highest` that rise. It has at most `room` bytes, but its first batch
        may have more where the segment is `empty`; no offset is above `top`. It ends before a batch whose offset is
        ahead of the next one (`offset_is_ahead`). Returns the index of the next row.
        """

    def note(self, epoch: int, base_offset: int, last_offset: int) -> None:
        """Note the leader epoch of a batch that is taken in another way."""
