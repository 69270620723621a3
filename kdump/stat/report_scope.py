"""Which partitions the reports on retention and compaction are about, and the settings that they assume for them."""

from enum import StrEnum
from typing import Final

from kdump.format import naming
from kdump.stat.settings import SETTING_NAMES, TopicSettings
from kdump.stat.values import PartitionStatistics

KAFKA07_SUFFIX: Final = ".kafka"
_COMPACT: Final = frozenset(("compact",))
_INTERNAL_SEGMENT_BYTES: Final = 100 << 20
_INTERNAL: Final = {
    naming.CONSUMER_OFFSETS: TopicSettings(cleanup_policy=_COMPACT, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.TRANSACTION_LOG: TopicSettings(cleanup_policy=_COMPACT, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.SHARE_GROUP_STATE: TopicSettings(retention_ms=-1, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.REMOTE_LOG_METADATA: TopicSettings(retention_ms=-1),
}
"""What a broker gives the topics that it creates for itself (GroupCoordinatorService, TransactionStateManager,
ShareCoordinatorService, TopicBasedRemoteLogMetadataManagerConfig).
"""


class Unreported(StrEnum):
    """Why there is no report on the retention and the compaction of a partition."""

    SET_ASIDE = "set-aside"
    """A directory with -delete, -stray or -future: no broker serves it."""
    ONE_FILE = "one-file"
    """A file that was named alone, a KRaft snapshot, or logs whose names say no base offset: what lies before and
    after it is not known."""
    KAFKA07 = "kafka-0.7"
    """A log of Kafka 0.7, which a 4.x broker leaves out."""
    CLUSTER_METADATA = "cluster-metadata"
    """The metadata of the cluster: its controllers delete what is older than a KRaft snapshot, by
    metadata.max.retention.ms and metadata.max.retention.bytes."""


def unreported_because(of: PartitionStatistics) -> Unreported | None:
    """Why there is no report on the retention and the compaction of a partition; None where there is one."""
    if of.state is not None:
        return Unreported.SET_ASIDE
    if any(segment.path.endswith(KAFKA07_SUFFIX) for segment in of.segments):
        return Unreported.KAFKA07
    if of.topic == naming.METADATA_TOPIC:
        return Unreported.CLUSTER_METADATA
    for segment in of.segments:
        base = segment.base_offset
        if segment.path == of.path or base is None or not segment.path.endswith(naming.segment_file_name(base, ".log")):
            return Unreported.ONE_FILE
    return None


def settings_for(of: PartitionStatistics, settings: TopicSettings) -> TopicSettings:
    """The settings for one partition: those that are known, and for the others what fits it best.

    Topics that a broker creates have what it gives them. Where the log cleaner has compacted a partition, its policy is
    compact. The rest are the defaults of Kafka.
    """
    own = _INTERNAL.get(of.topic or "")
    if own is not None:
        values = {name: getattr(own, name) for name in SETTING_NAMES if name not in settings.known}
        return settings._replace(**values)
    compacted = of.totals.compacted or bool(of.cleaner_checkpoint)
    if compacted and "cleanup_policy" not in settings.known:
        return settings._replace(cleanup_policy=_COMPACT)
    return settings
