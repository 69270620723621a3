"""Why a broker refuses to start on a topic-partition directory, in the terms of its own steps."""

from enum import StrEnum


class RefusalReason(StrEnum):
    """What in a file makes the start fail."""

    FILE_NAME = "name"
    """A name without a number, or with one that Java's Long.parseLong refuses."""
    FILE_SIZE = "size"
    """A log of 2 GiB or more."""
    LEADER_EPOCHS = "epochs"
    """The content of the leader epoch checkpoint, or an entry of it below zero."""
    PARTITION_METADATA = "metadata"
    """The content of partition.metadata."""
    TRANSACTION_INDEX = "txnindex"
    """The version of an entry of a transaction index."""
    SEGMENT_SPLIT = "split"
    """A segment whose offsets overflow, and which cannot be split."""
    TRANSACTION_STATE = "transaction"
    """A batch without the transactional bit within an open transaction."""
    TRANSACTION_MARKER = "marker"
    """A marker that ends no ongoing transaction, or that goes back in the transaction index."""
    CONTROL_RECORD = "control"
    """A control record that cannot be read."""
    OFFSET_ORDER = "backwards"
    """Offsets that go back."""
    BATCH_SIZE = "walk"
    """A batch with a size field that is too small, or that ends within its header."""
    WRAPPER_MESSAGE = "wrapper"
    """A wrapper message that cannot be opened."""
