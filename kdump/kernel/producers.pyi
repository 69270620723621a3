from typing_extensions import Buffer

from kdump.kernel.producer_results import AbortedTxn, ProducerProblem, ProducerTally, SnapshotDifference, TxnMetadata

EVENT: str
"""The layout of one event, as a format of `struct`."""
EVENT_BYTES: int
"""The size of one event."""
DATA: int
"""The kind of an event of data batches, as the next ones a value of its field `kind`."""
ABORT: int
COMMIT: int
ODD: int
"""A control batch that ends no transaction, or whose marker cannot be read."""
GAP: int
"""Damage may have removed batches here."""
EMPTIED: int
"""A control batch from which the log cleaner removed the marker."""
TRANSACTIONAL: int
"""A bit of an event's `flags`."""
RUNS_FULL: int
"""At this number of events a scan returns SCAN_FULL, so that the caller can take them."""
PROBLEMS: tuple[str, ...]
"""The finding codes for which `Producers.take` returns rows."""
KEPT: int
"""The largest number of rows of one problem between two calls of `Producers.take`. The counts stay exact."""

class Runs:
    """Records the batches of producers during a scan. Consecutive batches in sequence are one event."""

    count: int
    """The number of events since the last `take`."""

    odd: bool
    """Of exact runs: whether the events lack something that a broker remembers of a batch."""

    def __init__(self, exact: bool = False) -> None:
        """Start without events.

        `exact`: for a rebuild of snapshots. The timestamp of a marker is that of its record.
        """

    def take(self) -> bytes:
        """Return the events since the last `take`, oldest first, EVENT_BYTES each.

        The next batch starts a new event.
        """

class Producers:
    """The producer state of a partition, and the problems of the events that change it.

    Follows Kafka's ProducerStateManager and ProducerAppendInfo.

    `sequences`: check sequences. False for the topics that the brokers write: each of their batches has sequence 0.
    `complete`: nothing before the first event is missing.
    `exact`: producers of empty control batches alone are added, as a broker remembers them.
    """

    complete: bool

    def __init__(self, sequences: bool = True, complete: bool = False, exact: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def load(self, entries: Buffer) -> None:
        """Replace the state by the entries of a complete snapshot (kdump.format.producer_snapshot), 46 bytes each."""

    def forget(self, missing: bool = False) -> None:
        """Note that batches are missing here. The state of a producer is uncertain until its next event.

        `missing`: no bytes are damaged, so that they are gone where a log cleaner goes over the log.
        """

    def replay(self, events: Buffer) -> None:
        """Apply events in log order."""

    def take(self) -> tuple[list[ProducerProblem], dict[str, int], dict[str, ProducerTally]]:
        """Return the problems since the last `take`.

        These are (rows, exact number by problem, tallies by "gap", "empty" and "coordinator"). A problem that did not
        occur has no key.
        """

    def aborted(self) -> list[AbortedTxn]:
        """Return the transactions aborted since the last call, in the order of their markers."""

    def entries(self) -> bytes:
        """Return the state as entries of a producer snapshot, 46 bytes each, in the order of first appearance."""

    def open(self) -> list[TxnMetadata]:
        """Return each open transaction, in order of start."""

    def compare(self, entries: Buffer) -> list[SnapshotDifference]:
        """Return where the entries of a snapshot differ from the state, at most 1000 differences.

        "differs" and "surplus" come first, in the order of the snapshot, then "missing", in the order of first
        appearance.
        """

def unexpired(entries: Buffer, now_ms: int, longest_ms: int) -> bytes:
    """Return the entries of a snapshot without expired producers (ProducerStateManager.isProducerExpired).

    A producer without an open transaction expires `longest_ms` after its timestamp.
    """

def backwards(entries: Buffer, start: int) -> bytes:
    """Return the entries with those from the byte `start` on in reverse order."""

def hash_ordered(entries: Buffer) -> bytes:
    """Return the entries, given in order of first appearance, in the order of a snapshot.

    See kdump.format.producer_snapshot.hash_order.
    """
