"""Catalogue entries for internal topics: kdump stat --by group finds those of groups, kdump dump the others."""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

ENTRIES = (
    CatalogueEntry(
        "group/ahead",
        Severity.WARNING,
        "A committed offset lies beyond the end of the partition",
        (
            "group {group} has committed offset {offset} of {topic}-{partition}, whose {end_source} is "
            "{end}{log_end:?; its log ends at #, so the stored high watermark is out of date|}"
        ),
        (
            "The partition lost records that were consumed, or its directory is older than that of the coordinator. "
            "A consumer whose offset is out of range starts where auto.offset.reset says. A broker stores the high "
            "watermark every few seconds: if the log reaches the offset, this is info."
        ),
        "A broker does not compare the two.",
        "OffsetMetadataManager, ReplicaManager.checkpointHighWatermarks",
    ),
    CatalogueEntry(
        "group/unread",
        Severity.ERROR,
        "Records of a coordinator that cannot be read",
        (
            "the state of groups may be out of date: {damaged} damaged stretches of the log, {undecoded} records "
            "that cannot be decoded, {unknown} records of a later release{superseded:?, # records of a copy that "
            "was cleaned less far|}"
        ),
        "A later commit or a tombstone can be among them. With several copies, a stretch is damaged only if none of "
        "them has a valid batch. If a copy that was cleaned less far fills a stretch, later records may have "
        "replaced those that it has there.",
        "kdump recover shows what a broker gives up of the log. A coordinator does not load a partition with such a "
        "record.",
        "CoordinatorLoaderImpl",
    ),
    CatalogueEntry(
        "internal/record",
        Severity.INFO,
        "Records of an internal topic that cannot be decoded",
        (
            "{records} records cannot be decoded as messages of {topic} and are shown as they are, the first of them "
            "in the batch at offset {offset}"
        ),
        (
            "They are from a later release, were not written by Kafka, or were damaged before they were written. "
            "Kafka's dump tool reports an error for such a record, and stops at one without a key. A coordinator "
            "skips record types and versions that it does not know, and fails to load the others."
        ),
        "A broker's recovery does not decode records. --decode none shows all records as they are.",
        "CoordinatorRecordSerde, MetadataRecordSerde, RemoteLogMetadataSerde, DumpLogSegments",
    ),
)
