"""Whether the log cleaner goes over a partition."""

from kdump.format.naming import COMPACTED_TOPICS, TopicPartition
from kdump.storage.file_store import is_directory, parent_of
from kdump.storage.offset_checkpoints import CheckpointContext, read_offset_checkpoints
from kdump.storage.partition import Partition


def is_compacted_log(name: TopicPartition | None, *, shown: bool, option: bool | None = None) -> bool:
    """Whether offsets that a log does not have are no loss, as the log cleaner goes over it.

    `shown`: the cleaner's checkpoint or a segment shows it. `option`: what the user said, None for nothing. Some topics
    of Kafka itself are always compacted.
    """
    if option is not None:
        return option
    return shown or (name is not None and name.topic in COMPACTED_TOPICS)


def is_compacted(copy: Partition | None, *, shown: bool) -> bool:
    """Whether the log cleaner goes over a partition; `shown` says that a segment shows it."""
    if copy is None:
        return shown
    return is_compacted_log(copy.topic_partition, shown=shown or checkpoint_context(copy).cleaned)


def checkpoint_context(copy: Partition) -> CheckpointContext:
    """What the checkpoints of its log directory say of a partition; nothing of a file."""
    if not is_directory(copy.path):
        return CheckpointContext()
    return read_offset_checkpoints(parent_of(copy.path)).context(copy)
