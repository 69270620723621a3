"""Catalogue entries for the records of internal topics; kdump dump finds them when it decodes these."""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

ENTRIES = (
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
