"""Catalogue entries for defects across segments, in the files of a partition, and in a log directory."""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_KEPT = "A broker's recovery does not notice it."
_REFUSED = "A broker refuses to start."
_PRODUCER = "ProducerAppendInfo, KIP-98"
_STRAY = "LogManager.isStrayReplica, KIP-516"
_CHECKPOINT = "CheckpointFile, OffsetCheckpointFile"

ENTRIES = (
    CatalogueEntry(
        "producer/sequence",
        _W,
        "Producer sequence goes backwards",
        "producer {producer_id} (epoch {epoch}) has sequence {sequence} after {previous}",
        "A broker refuses such a batch or treats it as a duplicate. These records may be in the log twice.",
        _KEPT,
        _PRODUCER,
    ),
    CatalogueEntry(
        "producer/gap",
        _W,
        "Gap in a producer's sequence",
        (
            "batches whose sequence is too high: {count}; the first is of producer {producer_id} (epoch "
            "{epoch}): sequence {sequence} after {previous}"
        ),
        (
            "Legal if the log cleaner compacted the log: then this is info. Otherwise batches of this producer are "
            "missing."
        ),
        _KEPT,
        _PRODUCER,
    ),
    CatalogueEntry(
        "producer/epoch",
        _W,
        "Producer epoch goes backwards",
        "{marker:?a marker|a batch} of producer {producer_id} has epoch {epoch} after {previous}",
        "A broker refuses the batches of a fenced producer.",
        "A broker's recovery writes a line to the broker's own log and accepts the batch.",
        "ProducerAppendInfo.checkProducerEpoch, KIP-98",
    ),
    CatalogueEntry(
        "txn/state",
        _E,
        "Batch is not part of its producer's open transaction",
        (
            "producer {producer_id} (epoch {epoch}) has a transaction open since offset {first}, but this "
            "batch is not part of it"
        ),
        "A broker that replays it throws InvalidTxnStateException and refuses to start.",
        _REFUSED,
        "ProducerAppendInfo.appendDataBatch",
    ),
    CatalogueEntry(
        "txn/marker-epoch",
        _W,
        "Epoch of a marker does not match its transaction",
        "the marker has epoch {epoch}, but the records of the transaction have epoch {previous}",
        (
            "A marker has the epoch of the records. With transaction version 2, or from a coordinator that "
            "fences the producer, it has the next one."
        ),
        _KEPT,
        "ProducerAppendInfo.appendEndTxnMarker, KIP-890",
    ),
    CatalogueEntry(
        "txn/epochs",
        _W,
        "Transaction with two producer epochs",
        (
            "producer {producer_id} has a transaction open since offset {first} with epoch {previous}, and goes on "
            "with epoch {epoch}: the marker between them is missing"
        ),
        (
            "A producer gets another epoch after the end of its transaction. This copy lost the marker, as one does "
            "that was away while the others compacted it away, or the batch before came after its transaction had "
            "ended (before KIP-890). The next marker decides both parts: aborted records can be served, or committed "
            "ones hidden. kdump verify --compare says what other copies have."
        ),
        _KEPT,
        "KIP-890, Cleaner.shouldDiscardBatch",
    ),
    CatalogueEntry(
        "txn/marker-empty",
        _W,
        "Control batch without its marker in an open transaction",
        (
            "producer {producer_id} has a transaction open since offset {first}, and the control batch that ended it "
            "has no marker any more"
        ),
        (
            "A log cleaner removes a marker after all records of its transaction, but this copy has some of them. It "
            "was away while the others compacted these records away, and then fetched what is left of the marker. A "
            "broker does nothing with it: consumers with isolation.level=read_committed stop before the "
            "transaction, or the next marker of the producer decides these records, too. "
            "kdump verify --compare says what other copies have."
        ),
        _KEPT,
        "Cleaner.checkBatchRetention, ProducerAppendInfo.append",
    ),
    CatalogueEntry(
        "txn/coordinator-epoch",
        _I,
        "Coordinator epoch goes backwards",
        (
            "markers with a lower coordinator epoch than the one before: {count}; the first is of producer "
            "{producer_id}: {epoch} after {previous}"
        ),
        "A transaction coordinator wrote these markers after it had lost its partition.",
        _KEPT,
        "ProducerAppendInfo.checkCoordinatorEpoch",
    ),
    CatalogueEntry(
        "txn/empty",
        _I,
        "Markers that end no transaction",
        "markers of transactions without records here: {count}, the first at offset {offset}",
        "A producer added the partition to its transaction and wrote nothing, or a marker was written twice.",
        "Nothing.",
        "ProducerAppendInfo.appendEndTxnMarker",
    ),
    CatalogueEntry(
        "txn/open",
        _I,
        "Transaction is open at the end of the log",
        "producer {producer_id} (epoch {epoch}) has a transaction open since offset {first}",
        (
            "Consumers with isolation.level=read_committed stop before it until its marker is written. A recovery "
            "that truncated the log warns about it if no transaction log says whether the marker will still be "
            "written."
        ),
        "Nothing.",
        "ProducerStateManager.firstUnstableOffset",
    ),
    CatalogueEntry(
        "txn/hanging",
        _W,
        "Hanging transaction",
        (
            "producer {producer_id} (epoch {epoch}) has a transaction open since offset {first}: "
            "{problem:@hanging}; to end it: {command}"
        ),
        (
            "Consumers with isolation.level=read_committed never get past it. The log cleaner and the retention of "
            "transactions stop there too."
        ),
        "Nothing: a running broker has to write the marker.",
        "KIP-664, ProducerStateManager.hasLateTransaction",
    ),
    CatalogueEntry(
        "segment/missing",
        _E,
        "Offsets are missing between segments",
        (
            "the segment begins at offset {base}, the segment before it ends with offset {previous}; offsets "
            "missing: {missing}{unproven:?; not known whether a log cleaner removed them: nothing here says the "
            "cleanup.policy}"
        ),
        (
            "Legal if the log cleaner compacted the log, here or on the broker that this copy was fetched from: then "
            "this is info. Otherwise a segment, or the end of one, is missing, and its records with it. A consumer "
            "gets no error: it reads on after the hole. The log, its name, cleaner-offset-checkpoint or the "
            "metadata of the cluster say that a cleaner goes over it; the metadata, records without keys, or an index "
            "file, leader epoch or producer that this copy knows of in the hole say that none removed these. Where "
            "none of them is there it is not known, and an error, as records may be lost: --metadata and --compacted "
            "say it."
        ),
        (
            "Nothing on this disk can bring them back: recover reports the offsets as damaged and leaves the hole. "
            "Other replicas may still have the records."
        ),
        "LocalLog.roll",
    ),
    CatalogueEntry(
        "segment/overlap",
        _E,
        "Segments overlap",
        "the segment ends with offset {last}, but the next segment begins at offset {next_base}",
        ("A read finds the offsets in only one of the two segments. It reads the end of the other one never or twice."),
        _KEPT,
        "LogSegments.floorSegment",
    ),
    CatalogueEntry(
        "segment/empty",
        _I,
        "Empty segments before the active segment",
        "segments without a batch before the active segment: {count}; the first one is this file",
        "The log cleaner leaves them. So does a loss of whole files.",
        "Nothing.",
        "LogCleaner, LogSegments",
    ),
    CatalogueEntry(
        "segment/magic",
        _I,
        "Partition has several message formats",
        "this partition has batches of magic {magics}",
        (
            "Several releases, or several settings of log.message.format.version, wrote it. Releases from 4.0 "
            "on read all of them but write magic 2 only."
        ),
        "Nothing.",
        "RecordVersion, KIP-724",
    ),
    CatalogueEntry(
        "time/future",
        _W,
        "Timestamps are in the future",
        "the largest timestamp is {timestamp}, more than an hour after the time of this check",
        "Retention by time does not delete the segment before that time has passed.",
        "Nothing.",
        "UnifiedLog.deleteRetentionMsBreachedSegments, KIP-937",
    ),
    CatalogueEntry(
        "time/back",
        _I,
        "Timestamps go far back",
        (
            "batches more than 7 days older than the batch before: {count}, the largest step back: {largest} "
            "milliseconds"
        ),
        (
            "Old records were written late. A lookup by time finds the first record that is late enough, but "
            "not all of them."
        ),
        "Nothing.",
        "TimeIndex, KIP-33",
    ),
    CatalogueEntry(
        "time/retention",
        _W,
        "Timestamp in the future blocks retention",
        (
            "the largest timestamp of this segment, {timestamp}, is in the future; later segments that "
            "retention by time keeps because of it: {segments}"
        ),
        "Retention begins with the oldest segment and stops at the first one that is not old enough.",
        "Nothing.",
        "UnifiedLog.deletableSegments",
    ),
    CatalogueEntry(
        "offset/base",
        _E,
        "Base offset of the last batch has changed by one bit",
        (
            "the base offset of the last batch is {offset} and should be {expected}: the batch would then end at "
            "{value}, as the {what} says, and no offset before it would be missing"
        ),
        (
            "No checksum covers the base offset. A recovery point, a high watermark and the name of a producer "
            "snapshot are offsets at which the log has ended. Consumers get the records with other offsets, and "
            "what is appended goes on after them."
        ),
        "Nothing: the records are whole. Other replicas have them with their right offsets.",
        "DefaultRecordBatch, UnifiedLog.append",
    ),
    CatalogueEntry(
        "checkpoint/format",
        _E,
        "Checkpoint file cannot be read",
        "{problem}",
        (
            "A broker takes the log directory offline, and stops when it has no other one. If only a number is "
            "malformed, the effect depends on the file: recovery points become 0, logs start at their first "
            "segment, no replica is served because the high watermarks are missing, or the log cleaner stops."
        ),
        (
            "--truncate and --salvage of the log directory move a recovery-point-offset-checkpoint to the undo "
            "files: the next start then reads every partition from offset 0. They change no other checkpoint. If "
            "you delete one: without high watermarks a replica serves nothing new until it has learned them again, "
            "without log start offsets a log starts at its first segment, without cleaner offsets cleaning starts "
            "over."
        ),
        _CHECKPOINT,
    ),
    CatalogueEntry(
        "checkpoint/unknown",
        _W,
        "Checkpoint names a partition that is not in the log directory",
        "{topic}-{partition} is not in this log directory",
        "The directory of the partition is gone, or on another disk.",
        "Nothing: a running broker drops the line.",
        _CHECKPOINT,
    ),
    CatalogueEntry(
        "checkpoint/beyond",
        _W,
        "Checkpoint is after the end of the log",
        "{topic}-{partition}: the {what} is {value}, but the log ends at {end_offset}",
        (
            "The end of the log was lost after the checkpoint was written. If it ends below the high watermark, "
            "committed records are gone, and this is an error: a consumer at one of these offsets gets "
            "OFFSET_OUT_OF_RANGE, and continues where its auto.offset.reset says. Otherwise this is a warning."
        ),
        (
            "A broker uses the end of the log instead. Nothing on this disk can bring the records back: recover "
            "reports the offsets as damaged. Other replicas may still have them."
        ),
        "LogManager, UnifiedLog",
    ),
    CatalogueEntry(
        "checkpoint/log-start",
        _E,
        "Log start offset is after the end of the log",
        "{topic}-{partition}: the log start offset is {value}, but the log ends at {end_offset}",
        "A broker deletes every segment of such a log when it starts.",
        "A broker deletes the log.",
        "LogLoader.recoverLog",
    ),
    CatalogueEntry(
        "checkpoint/below",
        _I,
        "Checkpoint is before the start of the log",
        "{topic}-{partition}: the {what} is {value}, but the log starts at {start_offset}",
        "Segments were deleted after the checkpoint was written.",
        "A broker uses the start of the log instead.",
        "LogManager, UnifiedLog",
    ),
    CatalogueEntry(
        "checkpoint/duplicate",
        _W,
        "Checkpoint names a partition twice",
        "{topic}-{partition} is in the file {count} times",
        "A broker uses the last line.",
        "Nothing.",
        _CHECKPOINT,
    ),
    CatalogueEntry(
        "checkpoint/topic-id",
        _W,
        "Topic ids differ",
        "the topic id here is {stored}, but in another partition of the topic it is {found}",
        (
            "A broker refuses to become leader or follower of a partition with another topic id. One of the "
            "two is left over from a deleted topic."
        ),
        "Nothing.",
        "PartitionMetadataFile, KIP-516",
    ),
    CatalogueEntry(
        "metadata/format",
        _E,
        "partition.metadata cannot be read",
        "{problem}",
        (
            "A broker refuses to start. Without the file it renames the directory to NAME-stray and begins an "
            "empty partition."
        ),
        _REFUSED,
        "PartitionMetadataFile, KIP-516",
    ),
    CatalogueEntry(
        "metadata/missing",
        _E,
        "Partition has no partition.metadata",
        "this directory has no partition.metadata, so its topic id is not known{topic_id:?; the metadata log has #}",
        (
            "A broker in KRaft mode treats the partition as a stray: it renames the directory to NAME-stray and "
            "begins an empty partition. If the log is empty, this is a warning."
        ),
        (
            "recover writes the file if the metadata log on the disk has the topic, or another partition of the "
            "topic has the id. Otherwise write it by hand: kafka-topics.sh --describe shows the topic id."
        ),
        _STRAY,
    ),
    CatalogueEntry(
        "metadata/topic-id",
        _E,
        "Topic id is not that of the metadata log",
        "the topic id here is {stored}, but the metadata log has {found} for {topic}",
        (
            "A broker renames the directory to NAME-stray and begins an empty partition. The directory is left from a "
            "topic of that name which was deleted, or has the file of another topic."
        ),
        (
            "Nothing: only you know whether these are records of the topic. If they are, delete partition.metadata; "
            "recover then writes it with the id of the metadata log."
        ),
        _STRAY,
    ),
    CatalogueEntry(
        "metadata/topic",
        _W,
        "Topic is not in the metadata log",
        "the metadata log has no {topic}-{partition}: it was deleted, or belongs to another cluster",
        "A broker renames the directory to NAME-stray.",
        "Nothing.",
        _STRAY,
    ),
    CatalogueEntry(
        "metadata/replica",
        _W,
        "Partition belongs to other brokers",
        "the metadata log has {topic}-{partition} on the brokers {brokers}, and this is broker {broker}",
        (
            "A broker renames the directory to NAME-stray. The partition was moved to other brokers while this one was "
            "down, or the disk is that of another broker."
        ),
        "Nothing.",
        _STRAY,
    ),
    CatalogueEntry(
        "metadata/directory",
        _W,
        "Partition belongs to another log directory",
        "the metadata log has {topic}-{partition} in the directory with id {stored}, and this is {found}",
        (
            "A broker that has both directories serves the partition from here and tells the controller. It does "
            "not start if both have the partition, and creates no log elsewhere while a directory is offline."
        ),
        "Nothing.",
        "ReplicaManager.maybeUpdateTopicAssignment, KIP-858",
    ),
    CatalogueEntry(
        "metadata/stray",
        _W,
        "Directory was renamed by a broker that found no such replica",
        (
            "a broker did not find {topic}-{partition} with this topic id among its replicas, and renamed it; "
            "offsets here: {first}..{last}; to bring it back: stop the broker, move {name} away where it is there, "
            "rename this directory to {name}, and run kdump recover"
        ),
        (
            "Its topic id was unknown or a different one, or the partition does not belong to this broker. A broker "
            "neither serves nor deletes it. It may have begun an empty partition under the old name."
        ),
        "Nothing.",
        _STRAY,
    ),
    CatalogueEntry(
        "properties/format",
        _E,
        "Metadata file of the log directory cannot be read",
        "{problem}",
        "A broker refuses to start, or to use this log directory.",
        _REFUSED,
        "MetaProperties, FileQuorumStateStore",
    ),
    CatalogueEntry(
        "file/leftover",
        _W,
        "File of an unfinished operation",
        "{what:@leftover}",
        "An operation was not finished. A broker's next start deletes the file or renames it to a segment.",
        "A broker deletes .deleted and .cleaned files. It replaces the original segments with .swap files.",
        "LogLoader.removeTempFilesAndCollectSwapFiles",
    ),
    CatalogueEntry(
        "file/orphan",
        _W,
        "File without its log",
        "{what:@orphan}",
        "Its segment is gone. A broker deletes the file when it starts.",
        "Deleted.",
        "LogLoader.loadSegmentFiles",
    ),
    CatalogueEntry(
        "file/unknown",
        _I,
        "File that Kafka does not write",
        "no broker writes a file with this name here",
        "Brokers ignore it.",
        "Nothing.",
        "LogLoader",
    ),
    CatalogueEntry(
        "file/name",
        _E,
        "Name that a broker misreads or refuses",
        "{problem:@name}",
        "A broker reads the name as the base offset of a segment, or as a topic and partition.",
        "A broker refuses to start, or creates an empty segment with that base offset.",
        "LogFileUtils.offsetFromFileName, LocalLog.parseTopicPartitionName",
    ),
    CatalogueEntry(
        "file/directory",
        _I,
        "Directory where files are expected",
        "this is a directory",
        "Brokers ignore it, whatever its name.",
        "Nothing.",
        "LogLoader",
    ),
    CatalogueEntry(
        "file/loop",
        _I,
        "Symbolic link to a directory that was read before",
        "this link leads to a directory that was read before",
        "Each directory is read once.",
        "Nothing.",
        "kdump",
    ),
    CatalogueEntry(
        "undo/unfinished",
        _E,
        "Unfinished recovery",
        (
            "a run of kdump recover stopped here before its end; kdump recover --resume finishes it, kdump recover "
            "--undo reverts it"
        ),
        "Some files are old, some are new, and some are missing. Nothing is lost.",
        "kdump recover refuses to begin until the run is finished or undone.",
        "kdump",
    ),
)
