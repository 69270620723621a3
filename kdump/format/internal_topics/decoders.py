"""The decoders of Kafka's internal topics, by the name of the topic."""

from functools import cache
from typing import Final

from kdump.format import naming
from kdump.format.internal_topics.decoded import RecordDecoder

TOPICS: Final = {
    "offsets": naming.CONSUMER_OFFSETS,
    "transactions": naming.TRANSACTION_LOG,
    "metadata": naming.METADATA_TOPIC,
    "shares": naming.SHARE_GROUP_STATE,
    "remote-log": naming.REMOTE_LOG_METADATA,
}
"""The internal topics that have a decoder, by a short word for it."""


@cache
def decoder_of(topic: str) -> RecordDecoder | None:
    """The decoder of an internal topic, None for any other topic."""
    match topic:
        case naming.CONSUMER_OFFSETS:
            from kdump.format.internal_topics.consumer_offsets import ConsumerOffsetsDecoder

            return ConsumerOffsetsDecoder()
        case naming.TRANSACTION_LOG:
            from kdump.format.internal_topics.coordinator_records import CoordinatorDecoder
            from kdump.format.internal_topics.schemas import transaction_state

            return CoordinatorDecoder(topic, transaction_state.MESSAGES)
        case naming.SHARE_GROUP_STATE:
            from kdump.format.internal_topics.coordinator_records import CoordinatorDecoder
            from kdump.format.internal_topics.schemas import share_group_state

            return CoordinatorDecoder(topic, share_group_state.MESSAGES)
        case naming.METADATA_TOPIC:
            from kdump.format.internal_topics.metadata_records import MetadataDecoder
            from kdump.format.internal_topics.schemas import cluster_metadata

            return MetadataDecoder(topic, cluster_metadata.MESSAGES)
        case naming.REMOTE_LOG_METADATA:
            from kdump.format.internal_topics.metadata_records import MetadataDecoder
            from kdump.format.internal_topics.schemas import remote_log_metadata

            return MetadataDecoder(topic, remote_log_metadata.MESSAGES)
    return None
