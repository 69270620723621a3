"""The transactions of a log one by one, and its last stable offset, from the fold of kdump.kernel.transactions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from kdump.kernel import transactions as outcomes
from kdump.kernel.transactions import Transactions
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.kernel.transactions import TransactionFields

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
"""No marker comes up to the end of the log."""
UNDECIDED: Final = "undecided"
"""The marker cannot be read, or damage after the batches may hold it."""
_OUTCOMES: Final = {
    outcomes.COMMITTED: COMMITTED,
    outcomes.ABORTED: ABORTED,
    outcomes.OPEN: OPEN,
    outcomes.UNDECIDED: UNDECIDED,
}

AtDamage = Literal["stop", "skip"]
"""What an undecided transaction is to a committed read: `stop`: it ends there, as before an open one. `skip`: it leaves
out the batches of the transaction, and goes on.
"""


class Transaction(NamedTuple):
    """The batches of a producer up to its next marker, or up to damage that may hold it, and what became of them.

    A committed or aborted one has a marker; its batches may be gone. `batches` is then 0, and the four fields after it
    are None.
    """

    producer_id: int
    producer_epoch: int
    outcome: str
    batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    marker_offset: int | None = None
    marker_timestamp: int | None = None


def take_ended(transactions: Transactions) -> Iterator[Transaction]:
    """The transactions that ended since the last call, in the order of their ends."""
    return map(_transaction, transactions.take())


def open_transactions(transactions: Transactions) -> Iterator[Transaction]:
    """The open transactions in the order of their begins."""
    return map(_transaction, transactions.open())


def first_unstable(transactions: Transactions, at_damage: AtDamage) -> Transaction | None:
    """The transaction that begins at the last stable offset; None where that is the log end offset."""
    undecided = transactions.first_undecided() if at_damage == "stop" else None
    several = [each for each in (undecided, transactions.first_open()) if each is not None]
    if not several:
        return None
    return min(map(_transaction, several), key=lambda each: each.first_offset or 0)


def last_stable_offset(transactions: Transactions, at_damage: AtDamage) -> int | None:
    """The last stable offset, where a committed read of a log ends; None for the log end offset.

    It is the first offset of the first transaction that is open at the end of the log, or, with `stop`, undecided.
    `stop`: `dump --isolation read-committed`, its follow, `convert --until last-stable-offset`, Spark's `latest`.
    `skip`: `stat`, as a broker that replays the log. So read `convert` and Spark with `failOnDataLoss=false`, too: they
    leave out each undecided batch by itself (`Transactions.of`), and no damage ends them.
    """
    unstable = first_unstable(transactions, at_damage)
    return None if unstable is None else unstable.first_offset


def _transaction(fields: "TransactionFields") -> Transaction:
    return Transaction(fields[0], fields[1], _OUTCOMES[fields[2]], *fields[3:])
