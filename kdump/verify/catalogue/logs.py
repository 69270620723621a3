"""Catalogue entries for defects inside one log file."""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_CUT = "A broker's recovery truncates the segment here and deletes every later segment."
_KEPT = "A broker's recovery does not notice it."
_TAIL = "A broker's recovery truncates these bytes."

ENTRIES = (
    CatalogueEntry(
        "batch/crc",
        _E,
        "Batch checksum is wrong",
        "the batch of {length} bytes has checksum {computed:#010x}, its header says {stored:#010x}",
        (
            "At least one byte that the checksum covers changed after it was written. Consumers refuse the "
            "batch. No field of it can be trusted."
        ),
        _CUT,
        "DefaultRecordBatch.ensureValid, LegacyRecord.ensureValid",
    ),
    CatalogueEntry(
        "batch/length",
        _E,
        "Batch length is wrong",
        (
            "a batch begins here and its header says {claimed} bytes, but there are {length} up to the next batch of "
            "this log, or to the end of what was written"
        ),
        (
            "Readers step from batch to batch by this length. Kafka's reader stops silently at a length that "
            "is too large, so it never reaches the batches that follow."
        ),
        _CUT,
        "FileLogInputStream.nextBatch",
    ),
    CatalogueEntry(
        "batch/magic",
        _E,
        "Batch has an unknown magic",
        "the batch has magic {magic}, but its checksum is right for magic {like}",
        (
            "The checksum does not cover the magic byte. A broker's recovery reads any magic above 1 as 2 and "
            "does not notice. Consumers refuse the batch."
        ),
        _KEPT,
        "FileLogInputStream.nextBatch, ByteBufferLogInputStream.nextBatch",
    ),
    CatalogueEntry(
        "batch/codec",
        _E,
        "Records cannot be decompressed",
        "the records of this batch (codec {codec}) cannot be decompressed: {problem:@codec}",
        (
            "The checksum is right, so these bytes are what was written. The writer, or an undetected fault "
            "before the checksum was computed, broke them. No consumer can read the records."
        ),
        _KEPT,
        "CompressionType.forId, org.apache.kafka.common.compress",
    ),
    CatalogueEntry(
        "batch/codec-odd",
        _W,
        "Compressed data breaks the format of its codec",
        "the data of this batch (codec {codec}) does not follow the format of the codec: {problem:@odd}",
        "Kafka's reader accepts it. Other readers may not.",
        _KEPT,
        "org.apache.kafka.common.compress",
    ),
    CatalogueEntry(
        "batch/count",
        _E,
        "Record count is impossible",
        "the header says {count} records in {offsets} offsets and {length} bytes",
        (
            "A negative count stops every reader. A count of zero hides the bytes after the header. More "
            "records than offsets cannot all have an offset of their own."
        ),
        _KEPT,
        "DefaultRecordBatch.iterator",
    ),
    CatalogueEntry(
        "batch/attributes",
        _W,
        "Unused attribute bits are set",
        "attributes {attributes:#06x} have bits set that magic {magic} does not use",
        "No Kafka release sets them. The checksum covers them, so the writer of the batch set them.",
        _KEPT,
        "DefaultRecordBatch attributes, KIP-98, KIP-32",
    ),
    CatalogueEntry(
        "batch/limit",
        _W,
        "Batch is too large to verify",
        (
            "the batch of {length} bytes was not verified: {decompressed:?its records decompress to|its "
            "header says} more than {limit} bytes (--max-batch-bytes)"
        ),
        "A wrong length could otherwise use up the memory of the machine.",
        "Not known until the batch is verified with a larger --max-batch-bytes.",
        "DefaultRecordBatch",
    ),
    CatalogueEntry(
        "offset/backwards",
        _E,
        "Offsets go backwards",
        "offset {offset} follows offset {previous}",
        (
            "Lookups by offset fail from here on. Where the offsets of two indexed batches go backwards, a broker's "
            "recovery empties the whole segment. A block of the log that was written to the wrong place contains "
            "batches whose offsets jump ahead; kdump recover --salvage keeps those in place."
        ),
        _KEPT,
        "LogSegment.recover, OffsetIndex.append",
    ),
    CatalogueEntry(
        "offset/gap",
        _W,
        "Offsets are missing between batches",
        (
            "gaps between batches: {count}, offsets missing: {missing}, in the largest gap: {largest}; "
            "{begins:?the first batch of the log has offset {offset}, {missing} above where the log begins|at the "
            "first gap offset {offset} follows offset {previous}}"
        ),
        (
            "Legal where the log cleaner compacted the log: then this is info. Elsewhere a leader assigns "
            "offsets without gaps, so records are missing. A gap before the first batch of a log is what a log cleaner "
            "leaves, too: it is reported only where the cleanup.policy, or a record without a key, says that none goes "
            "over the log."
        ),
        _KEPT,
        "LogCleaner, UnifiedLog.append",
    ),
    CatalogueEntry(
        "offset/range",
        _E,
        "Offsets are outside the range of the segment",
        "the batch has offsets {offset} to {last}; the base offset of the segment is {base}",
        (
            "A segment holds offsets from its base offset to 2147483647 above it. A broker splits such a "
            "segment, or refuses to start when it cannot. No offset comes after 9223372036854775807: a broker deletes "
            "a log that ends with it."
        ),
        _KEPT,
        "LogSegment.canConvertToRelativeOffset, LocalLog.splitOverflowedSegment (KAFKA-6264)",
    ),
    CatalogueEntry(
        "epoch/backwards",
        _W,
        "Leader epoch goes backwards",
        "leader epoch {epoch} follows {previous}",
        (
            "Leader epochs only grow along a log. The checksum does not cover this field. Followers truncate "
            "their logs by it."
        ),
        _KEPT,
        "LeaderEpochFileCache.assign, KIP-101",
    ),
    CatalogueEntry(
        "control/structure",
        _E,
        "Control record is malformed",
        "record {record} of this control batch is malformed: {problem:@records}",
        "A broker that replays it refuses to load the log. A consumer cannot tell a commit from an abort.",
        "A broker that has to replay it refuses to start.",
        "ControlRecordType.parse, EndTransactionMarker.deserialize",
    ),
    CatalogueEntry(
        "record/structure",
        _E,
        "Record is malformed",
        "record {record} of this batch is malformed: {problem:@records}, at byte {at} of the records",
        "The checksum is right, so these bytes are what was written. Consumers stop here.",
        _KEPT,
        "DefaultRecord.readFrom, AbstractLegacyRecordBatch",
    ),
    CatalogueEntry(
        "record/varint",
        _W,
        "Varint is longer than needed",
        "record {record} of this batch has a varint with unneeded bytes or bits",
        "Kafka's reader ignores them. Other readers may refuse the record.",
        _KEPT,
        "ByteUtils.readVarint",
    ),
    CatalogueEntry(
        "record/delta",
        _W,
        "Record offsets are out of order or out of range",
        (
            "record {record} of this batch has offset {delta} (relative to the batch in magic 1 and 2), which "
            "is out of order or outside the offsets of the batch"
        ),
        "Readers return the offset as it is. Committed offsets and lookups are then wrong.",
        _KEPT,
        "DefaultRecord.offset, AbstractLegacyRecordBatch.DeepRecordsIterator",
    ),
    CatalogueEntry(
        "time/max",
        _W,
        "Largest timestamp of a batch is wrong",
        ("the header says that the largest timestamp is {stored}, but the largest timestamp of the records is {found}"),
        "Lookups by time, the time index and retention use the timestamp of the header.",
        _KEPT,
        "LogValidator, KIP-32",
    ),
    CatalogueEntry(
        "legacy/wrapper",
        _E,
        "Messages inside a wrapper message cannot be read",
        "the messages inside this wrapper message cannot be read: {problem:@records}, at inner message {record}",
        "Consumers stop here.",
        _KEPT,
        "AbstractLegacyRecordBatch.DeepRecordsIterator",
    ),
    CatalogueEntry(
        "legacy/inner-crc",
        _E,
        "Checksum of an inner message is wrong",
        "inner message {record} of this wrapper message has a wrong checksum",
        "Consumers check it and refuse the message.",
        _KEPT,
        "LegacyRecord.ensureValid",
    ),
    CatalogueEntry(
        "legacy/inner-magic",
        _I,
        "Inner messages have another magic than their wrapper message",
        "{count} inner messages have another magic than their wrapper message; the first one is here",
        "Compaction of a log with several message formats leaves them (KAFKA-4298). Readers accept them.",
        _KEPT,
        "AbstractLegacyRecordBatch",
    ),
    CatalogueEntry(
        "legacy/partial",
        _W,
        "Bytes after the last inner message",
        "the last {bytes} bytes of this wrapper message are not a whole message",
        "Kafka's reader drops them silently.",
        _KEPT,
        "AbstractLegacyRecordBatch.DataLogInputStream",
    ),
    CatalogueEntry(
        "legacy/trailing",
        _W,
        "Bytes after the value of a message",
        "message {record} has bytes after its value",
        "Kafka's reader ignores them.",
        _KEPT,
        "LegacyRecord",
    ),
    CatalogueEntry(
        "gap/bytes",
        _E,
        "Bytes between batches are not a batch",
        "{length} bytes are not a batch{zeros:?, all zero}; the log goes on after them",
        "Kafka's reader stops here. It never reaches the batches that follow, although they are intact.",
        _CUT,
        "FileLogInputStream.nextBatch",
    ),
    CatalogueEntry(
        "gap/foreign-batch",
        _I,
        "Whole batch inside damaged bytes that does not belong to this log",
        (
            "{length} bytes inside damaged bytes are a batch with a right checksum and offset {offset}, but "
            "{undecided:?nothing shows that they belong to this log|do not fit this log}"
        ),
        "The value of a record can contain Kafka batches, and so can a block of another log that was written to the "
        "wrong place. kdump shows such a batch and never uses it. If nothing shows whether it belongs to this log, "
        "a recovery that removes it counts it in given up.",
        "Nothing.",
        "kdump",
    ),
    CatalogueEntry(
        "gap/unsearched",
        _W,
        "The search for the next batch stopped early",
        "no next batch was found within the limit of the search; the last {length} bytes were not searched",
        "These bytes look like the beginning of a batch again and again. Valid batches may follow.",
        _CUT,
        "kdump",
    ),
    CatalogueEntry(
        "tail/torn",
        _E,
        "The last batch is incomplete",
        "the last {length} bytes are the beginning of a batch{claimed:? of # bytes}",
        "The machine or the broker stopped while it was writing the batch, or the file was truncated.",
        _TAIL,
        "FileLogInputStream.nextBatch, LogSegment.recover",
    ),
    CatalogueEntry(
        "tail/zeros",
        _W,
        "Zeros after the last batch",
        "{length} bytes at the end of the file are zero",
        (
            "Preallocation leaves them in the active segment after an unclean shutdown. So does a power loss. "
            "In another segment, or when they are fewer than 18, this is an error."
        ),
        _TAIL,
        "FileRecords, LogSegment.recover, preallocate",
    ),
    CatalogueEntry(
        "tail/garbage",
        _E,
        "Bytes after the last batch",
        "{length} bytes at the end of the file are not a batch",
        "A broker's recovery truncates them and deletes every later segment.",
        _TAIL,
        "LogSegment.recover",
    ),
    CatalogueEntry(
        "kraft/snapshot-header",
        _E,
        "KRaft snapshot has no header",
        "the first record of this snapshot is not a SnapshotHeader control record",
        "A controller or broker refuses to load it.",
        "Nothing: use an older snapshot.",
        "RecordsSnapshotReader, KIP-630",
    ),
    CatalogueEntry(
        "kraft/snapshot-footer",
        _E,
        "KRaft snapshot has no footer",
        "the last record of this snapshot is not a SnapshotFooter control record",
        "The snapshot was not written to its end, so records are missing.",
        "Nothing: use an older snapshot.",
        "RecordsSnapshotReader, KIP-630",
    ),
    CatalogueEntry(
        "file/shrunk",
        _E,
        "The file became shorter while it was read",
        "the file ends here; it was {length} bytes longer when it was opened",
        "Another process truncated it, probably a running broker.",
        "Stop the broker first.",
        "kdump",
    ),
    CatalogueEntry(
        "file/grown",
        _I,
        "The file became longer while it was read",
        "the file grew by {length} bytes while it was read; these bytes were not verified",
        "Another process writes to it, probably a running broker.",
        "Stop the broker first.",
        "kdump",
    ),
)
