"""The values that settings of a broker have where it sets none (Kafka 4.3)."""

from typing import Final

INDEX_INTERVAL_BYTES: Final = 4096
"""index.interval.bytes"""
SEGMENT_INDEX_BYTES: Final = 10 << 20
"""segment.index.bytes"""
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""producer.id.expiration.ms"""
RELEASE: Final = "Kafka 4.3"
"""The release whose start is predicted."""
LATER_RELEASE: Final = "Kafka 4.4.0"
"""A later release; where its start differs from that of RELEASE in what it refuses, the prediction says so, too."""
