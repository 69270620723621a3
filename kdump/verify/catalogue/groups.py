"""Catalogue entries for the groups in the internal topics; kdump stat --by group finds them."""

from kdump.verify.catalogue.entry import CatalogueEntry, Severity

ENTRIES = (
    CatalogueEntry(
        "group/ahead",
        Severity.WARNING,
        "A committed offset lies beyond the end of the partition",
        (
            "group {group} has committed offset {offset} of {topic}-{partition}, whose {end_source} is {end}"
            "{log_end:?; its log ends at #, so that the stored high watermark is an old one|}"
        ),
        (
            "The partition lost records that were consumed, or its directory is older than that of the coordinator. A "
            "consumer whose offset is out of range starts where auto.offset.reset says. A broker stores the high "
            "watermark every few seconds: where the log goes as far as the offset, this is info."
        ),
        "A broker does not compare the two.",
        "OffsetMetadataManager, ReplicaManager.checkpointHighWatermarks",
    ),
    CatalogueEntry(
        "group/unread",
        Severity.ERROR,
        "Records of a coordinator that cannot be read",
        (
            "what is said of groups may be out of date: {damaged} damaged stretches of the log, {undecoded} records "
            "that cannot be decoded, {unknown} records of a later release"
            "{superseded:?, # records of a copy that was cleaned less far|}"
        ),
        "A later commit or a tombstone can be among them. Of several copies, a stretch is damaged where none of them "
        "has a valid batch. Where one that was cleaned less far fills a stretch, later records may have replaced those "
        "that it has there.",
        "kdump recover shows what a broker gives up of the log. A coordinator does not load a partition with such a "
        "record.",
        "CoordinatorLoaderImpl",
    ),
)
