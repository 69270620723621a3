from typing_extensions import Buffer

MOST_PRODUCERS: int
"""The largest number of rows of a table; above it, those whose ids have the smallest hash stay."""

class ProducerRows:
    """What each producer wrote: rows by producer id, at most `most` of them. kdump.stat.producers has the layout."""

    def __init__(self, most: int = ...) -> None: ...
    def merge(self, cells: Buffer, highest_hash: int | None = None) -> None:
        """Add packed rows, of a sample with this largest hash."""

    def packed(self) -> tuple[bytes, int | None]:
        """The rows in the order of their ids, and the largest hash of the sample, None for all producers."""
