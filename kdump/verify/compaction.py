"""Whether the log cleaner goes over a partition."""

from kdump.format.naming import COMPACTED_TOPICS, TopicPartition


def is_compacted_log(name: TopicPartition | None, *, shown: bool, option: bool | None = None) -> bool:
    """Whether offsets that a log does not have are no loss, as the log cleaner goes over it.

    `shown`: the cleaner's checkpoint or a segment shows it. `option`: what the user said, None for nothing. Some topics
    of Kafka itself are always compacted.
    """
    if option is not None:
        return option
    return shown or (name is not None and name.topic in COMPACTED_TOPICS)
