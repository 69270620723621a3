from typing_extensions import Buffer

from kdump.kernel.results import ProducerProblem, ProducerTally

EVENT: str
"""The layout of one event, for struct."""
EVENT_BYTES: int
DATA: int
ABORT: int
COMMIT: int
ODD: int
GAP: int
EMPTIED: int
TRANSACTIONAL: int
"""A bit of `flags`."""
RUNS_FULL: int
"""So many events and a scan comes back (SCAN_FULL) to have them taken."""
PROBLEMS: tuple[str, ...]
"""The finding codes that `Producers.take` has rows of."""
KEPT: int
"""How many rows of one problem are kept until they are taken; the counts stay exact."""

class Runs:
    """What producers wrote, as a scan saw it: batches that follow one another without a doubt are one event."""

    count: int
    """Events since the last `take`."""

    odd: bool
    """Of exact runs: whether there was a batch of which the events do not tell all that a broker remembers of its producer."""

    def __init__(self, exact: bool = False) -> None:
        """`exact`: for a rebuild of snapshots, which lists producers of empty control batches and takes a marker's timestamp from its record."""

    def take(self) -> bytes:
        """The events since the last `take`, oldest first, EVENT_BYTES each. What comes next begins new ones."""

class Producers:
    """The state that a broker keeps of the producers of a partition, and what is wrong with the events that change it (ProducerStateManager, ProducerAppendInfo).

    `sequences` is False for the topics that the brokers write themselves, whose batches all begin with sequence 0.
    `complete` says that nothing before the first event is missing.
    """

    complete: bool

    def __init__(self, sequences: bool = True, complete: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def load(self, entries: Buffer) -> None:
        """Begin anew from the entries of a producer snapshot (kdump.format.snapshot, 46 bytes each), which lack nothing."""

    def forget(self) -> None:
        """Something is missing here: nothing is known for sure of any producer until it is seen again."""

    def replay(self, events: Buffer) -> None:
        """Apply events in log order."""

    def take(self) -> tuple[list[ProducerProblem], dict[str, int], dict[str, ProducerTally]]:
        """The problems since the last `take`: (each of them, exact number by problem, tallies by "gap", "empty" and "coordinator").

        What did not occur has no key.
        """

    def aborted(self) -> list[tuple[int, int, int, int, bool, bool]]:
        """(producer_id, first_offset, last_offset, last_stable_offset, certain_first, certain_lso) of each transaction aborted since the last call."""

    def entries(self) -> bytes:
        """The entries of a producer snapshot taken here, 46 bytes each, in the order in which the producers were first seen."""

    def open(self) -> list[tuple[int, int, int, int, bool]]:
        """(producer_id, epoch, first_offset, timestamp, certain) of each open transaction, in the order of their beginning."""

    def compare(self, entries: Buffer) -> list[tuple[str, int, str, int | None, int | None]]:
        """(problem, producer_id, field, stored, found) where the entries of a snapshot differ from the state, 1000 at most.

        "differs" and "surplus" in the order of the snapshot, then "missing" in the order in which the producers were first seen. Of the last two
        the field is the timestamp, which says whether the producer expired.
        """

def unexpired(entries: Buffer, now_ms: int, longest_ms: int) -> bytes:
    """The entries of a snapshot without producers that were idle for so long and have no open transaction (ProducerStateManager.isProducerExpired)."""

def backwards(entries: Buffer, start: int) -> bytes:
    """The entries, those from the byte `start` on from the last to the first."""

def hash_ordered(entries: Buffer) -> bytes:
    """The entries, given in the order in which the producers became known, as a snapshot has them (kdump.format.snapshot.hash_order)."""
