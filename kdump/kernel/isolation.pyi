from typing_extensions import Buffer

COMMITTED: int
"""A transactional batch: the next marker of its producer commits."""
ABORTED: int
"""It aborts."""
UNDECIDED: int
"""There is none, it cannot be read, or damage before it may hold one."""

class Decisions:
    """What became of the transactions of a partition.

    Takes the events of all its batches in log order (kdump.kernel.producers), then answers for each of them. Both times
    `begin` says which file follows. Batches are known by their positions: no checksum covers their offsets.
    """

    def begin(self, number: int) -> None:
        """Begin with the file of this number, 0 for the first one. Raises ValueError for a million and more."""

    def add(self, events: Buffer) -> None:
        """Take the next events of the file. Raises ValueError where the last one is cut."""

    def gap(self, position: int) -> None:
        """A batch may be missing at a position of the file."""

    def seal(self) -> bool:
        """End: whether any batch is transactional."""

    def of(self, producer_id: int, position: int) -> int:
        """COMMITTED, ABORTED or UNDECIDED: what became of the transactional batch at a position of the file."""
