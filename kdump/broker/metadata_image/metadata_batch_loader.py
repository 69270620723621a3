"""Replays the records of the log, those of a metadata transaction when it ends (KIP-868; MetadataBatchLoader)."""

from typing import TYPE_CHECKING, Final

from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.record_fields import RecordFields, ReplayError
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import DecodedMessage

_BEGIN: Final = "BeginTransactionRecord"
_ABORT: Final = "AbortTransactionRecord"


class MetadataTransaction(NamedTuple):
    """A transaction without an end. `offset` is that of its first record, `records` how many it has after that."""

    offset: int
    name: str | None
    records: int


class ReplayProblem(NamedTuple):
    """A record that is not in the image: it does not fit, or cannot be decoded. `record` is its name, where known."""

    path: str
    offset: int
    record: str | None
    reason: str


class MetadataBatchLoader:
    """Replays records, one after the other, into its image.

    `problems` are the records that had no effect: Kafka's fault handler gets them, and a controller ends there. Of
    more than MAX_PROBLEMS only the number is kept.
    """

    MAX_PROBLEMS = 100

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.problems: list[ReplayProblem] = []
        self.more_problems = 0
        self.committed_transactions = 0
        self.aborted_transactions = 0
        self._transaction: MetadataTransaction | None = None
        self._kept: list[tuple[str, int, DecodedMessage]] = []

    @property
    def open_transaction(self) -> MetadataTransaction | None:
        """The transaction that has not ended yet."""
        return None if self._transaction is None else self._transaction._replace(records=len(self._kept))

    def replay(self, path: str, offset: int, message: "DecodedMessage") -> None:
        """Replay the record at an offset of a file."""
        match message.name:
            case "BeginTransactionRecord" | "EndTransactionRecord" | "AbortTransactionRecord":
                try:
                    self._bound(offset, message)
                except ReplayError as error:
                    self.add_problem(ReplayProblem(path, offset, message.name, str(error)))
            case _ if self._transaction is not None:
                self._kept.append((path, offset, message))
            case _:
                self._apply(path, offset, message)

    def add_problem(self, problem: ReplayProblem) -> None:
        """Keep why a record is not in the image."""
        if len(self.problems) < self.MAX_PROBLEMS:
            self.problems.append(problem)
        else:
            self.more_problems += 1

    def _bound(self, offset: int, message: "DecodedMessage") -> None:
        """The begin or the end of a transaction (MetadataBatchLoader.replay)."""
        if message.name == _BEGIN:
            if self._transaction is not None:
                raise ReplayError(f"the transaction that began at offset {self._transaction.offset} has not ended")
            self._transaction = MetadataTransaction(offset, RecordFields(message.fields).optional_text("name"), 0)
            return
        if self._transaction is None:
            raise ReplayError("no transaction has begun")
        kept, self._kept, self._transaction = self._kept, [], None
        if message.name == _ABORT:
            self.aborted_transactions += 1
            return
        self.committed_transactions += 1
        for each in kept:
            self._apply(*each)

    def _apply(self, path: str, offset: int, message: "DecodedMessage") -> None:
        try:
            self.image.replay(message)
        except ReplayError as error:
            self.add_problem(ReplayProblem(path, offset, message.name, str(error)))
