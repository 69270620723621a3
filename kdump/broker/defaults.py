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
