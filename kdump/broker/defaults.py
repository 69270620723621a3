"""Settings of a broker that sets none."""

from typing import Final

INDEX_INTERVAL_BYTES: Final = 4096
"""index.interval.bytes of a broker that sets none."""
SEGMENT_INDEX_BYTES: Final = 10 << 20
"""segment.index.bytes of a broker that sets none."""
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""producer.id.expiration.ms of a broker that sets none."""
