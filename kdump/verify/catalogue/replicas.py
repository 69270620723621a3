"""Catalogue entries for copies of a topic-partition that do not agree, and for a folder that lacks records of it.

kdump convert finds those of a merge, kdump verify --compare those of a comparison.
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
        "replica/epoch",
        _E,
        "Copies with two histories",
        (
            "from offset {offset} on the leader epochs of this copy and of {other} contradict each other"
            "{committed:?, below the high watermark of one of them|}"
        ),
        (
            "Each was leader without the other, as an unclean election allows: two histories were committed. Above "
            "both high watermarks it is no divergence, as the next leader makes the other copy truncate."
        ),
        "A broker that follows the other copy truncates its log to this offset.",
        "KIP-101, KIP-279",
    ),
    CatalogueEntry(
        "replica/record",
        _E,
        "Copies have other records at an offset",
        "offsets with another record here than in {other}: {count}, from {offset} to {last}",
        (
            "A follower stores the bytes that it fetched, and the log cleaner copies records and never changes one. "
            "Somebody or something changed a copy, and its checksum with it."
        ),
        _ALONE,
        "ReplicaFetcherThread, UnifiedLog.appendAsFollower, MemoryRecords.filterTo",
    ),
    CatalogueEntry(
        "replica/range",
        _E,
        "Copies differ in a range, by their fingerprints",
        "ranges of offsets in which this copy differs from {other}: {count}, from {offset} to {last}",
        (
            "More differs than the tables of two fingerprints can name, and the sums of these ranges are not the same. "
            "Compare the disks, or dump these offsets of both copies."
        ),
        _ALONE,
        "UnifiedLog.appendAsFollower",
    ),
    CatalogueEntry(
        "replica/state",
        _E,
        "Last value of a key is another one in another copy",
        (
            "keys that end otherwise here than in {other} as of offset {end}: {count}; only here: {only}, only there: "
            "{missing}, older here: {older}, newer here: {newer}; the first differs at offset {offset}"
        ),
        (
            "As leader, the copies serve different values. Either a tombstone or a marker was removed before the copy "
            "that was away had it, and deleted or aborted data comes back, or the other copy lost a value. Two copies "
            "alone do not say which. Do not delete a copy on the leader: that spreads what it has."
        ),
        _ALONE,
        "Cleaner.shouldRetainRecord, KIP-534",
    ),
    CatalogueEntry(
        "replica/transaction",
        _E,
        "Transaction is committed in one copy and aborted in another",
        (
            "records that are committed in one of this copy and {other}, and aborted in the other: {count}, from "
            "offset {offset} to {last}"
        ),
        (
            "A copy lost the marker, and a later one of the producer decides. As leader, one of them serves aborted "
            "records, or hides committed ones."
        ),
        _ALONE,
        "Cleaner.shouldDiscardBatch, KIP-98",
    ),
    CatalogueEntry(
        "replica/aborted",
        _E,
        "Aborted transaction begins earlier in one copy",
        (
            "aborted transactions that begin earlier here than in {other}, by the transaction indexes: {count}; their "
            "markers are at offsets {offset} to {last}"
        ),
        (
            "The copy lost the marker of a committed transaction of the producer, and the marker that aborts the next "
            "one decides both. As leader, it hides the committed records, unless the log cleaner removed them."
        ),
        _ALONE,
        "CleanedTransactionMetadata.onControlBatchRead, KIP-98",
    ),
    CatalogueEntry(
        "replica/stuck",
        _E,
        "Transaction is open in one copy alone",
        "transactions that are open here and ended in {other}: {count}; the first begins at offset {offset}",
        (
            "The copy lost the marker. As leader, consumers with isolation.level=read_committed stop at this offset, "
            "and so does the log cleaner."
        ),
        _ALONE,
        "LogCleanerManager.cleanableOffsets, KIP-664",
    ),
    CatalogueEntry(
        "replica/hole",
        _E,
        "Copy lacks records that another copy has",
        "records of {other} that this copy lacks, and no log cleaner removed: {count}, from offset {offset} to {last}",
        "As leader, the copy does not serve them.",
        _ALONE,
        "UnifiedLog.appendAsFollower",
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
