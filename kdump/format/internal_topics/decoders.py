"""The decoders of Kafka's internal topics, by the name of the topic."""

from functools import cache
from typing import Final

from kdump.format.internal_topics.decoded import RecordDecoder

TOPICS: Final = {
    "offsets": "__consumer_offsets",
    "transactions": "__transaction_state",
    "metadata": "__cluster_metadata",
    "shares": "__share_group_state",
    "remote-log": "__remote_log_metadata",
}
"""The internal topics that have a decoder, by a short word for it."""


@cache
def decoder_of(topic: str) -> RecordDecoder | None:
    """The decoder of an internal topic, None for any other topic."""
    match topic:
        case "__consumer_offsets":
            from kdump.format.internal_topics.consumer_offsets import ConsumerOffsetsDecoder

            return ConsumerOffsetsDecoder()
        case "__transaction_state":
            from kdump.format.internal_topics.coordinator_records import CoordinatorDecoder
            from kdump.format.internal_topics.schemas import transaction_state

            return CoordinatorDecoder(topic, transaction_state.MESSAGES)
        case "__share_group_state":
            from kdump.format.internal_topics.coordinator_records import CoordinatorDecoder
            from kdump.format.internal_topics.schemas import share_group_state

            return CoordinatorDecoder(topic, share_group_state.MESSAGES)
        case "__cluster_metadata":
            from kdump.format.internal_topics.metadata_records import MetadataDecoder
            from kdump.format.internal_topics.schemas import cluster_metadata

            return MetadataDecoder(topic, cluster_metadata.MESSAGES)
        case "__remote_log_metadata":
            from kdump.format.internal_topics.metadata_records import MetadataDecoder
            from kdump.format.internal_topics.schemas import remote_log_metadata

            return MetadataDecoder(topic, remote_log_metadata.MESSAGES)
    return None
