"""Catalogue entries for copies of a topic-partition that do not agree, and for a folder that lacks records of it.

kdump convert finds them.
"""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

_E, _W = Severity.ERROR, Severity.WARNING
_ALONE = "A broker looks only at its own copy. So does kdump recover."

ENTRIES = (
    CatalogueEntry(
        "replica/topic-id",
        _E,
        "Copies of different topics under one name",
        "this copy belongs to the topic with id {topic_id}; other copies of the partition belong to {others}",
        "The topic was deleted and created again while a broker was away. The copies are never merged.",
        "A broker makes the directory a stray if its topic id is not the one that the controller has.",
        "KIP-516, PartitionMetadataFile",
    ),
    CatalogueEntry(
        "replica/diverged",
        _W,
        "Records of a copy outside the common history",
        (
            "from offset {offset} to {last} this copy has other records than the history of the reference copy, "
            "{reference}: {records} in {batches} batches"
        ),
        (
            "A leader was elected that did not have them, as an unclean election allows. They are in no merged result; "
            "kdump convert --replica all shows them."
        ),
        "A broker that follows the reference copy truncates its log to this offset.",
        "KIP-101, KIP-279, AbstractFetcherThread.getOffsetTruncationState, LeaderEpochFileCache.endOffsetFor",
    ),
    CatalogueEntry(
        "replica/differs",
        _E,
        "Copies of one history have different records",
        (
            "from offset {offset} to {last} this copy has other records than {kept}, "
            "{by_copies:?as most copies have them|which comes first}"
        ),
        "Copies of one leader epoch have the same records. One of them was changed, and its checksums with it.",
        _ALONE,
        "KIP-101",
    ),
    CatalogueEntry(
        "replica/missing",
        _E,
        "Offsets that no copy has",
        (
            "no copy has a valid batch from offset {offset} on{next:?, up to the one before #|}"
            "{exact:?|; the log may not have had all of them}"
            "{committed:?; they are below the high watermark|}"
        ),
        "The records of these offsets are lost, unless there is another copy.",
        _ALONE,
        "kdump",
    ),
    CatalogueEntry(
        "output/incomplete",
        _E,
        "A folder lacks records of a partition",
        (
            "the folder has no records of offsets {offset} to {last}, where an earlier run met damage{readable:?; "
            "the log has records there now|}; --rewrite {partition} converts the partition again"
        ),
        "A run goes on after the last batch of the one before, and does not go back to what that one left out.",
        "kdump recover does not change the output of a conversion.",
        "kdump",
    ),
)
