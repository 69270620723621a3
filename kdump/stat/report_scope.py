"""Which partitions the reports on retention and compaction are about."""

from enum import StrEnum
from typing import Final

from kdump.format import naming
from kdump.stat.values import PartitionStatistics

KAFKA07_SUFFIX: Final = ".kafka"


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
