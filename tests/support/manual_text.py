"""The words of the manual that kdump cannot know of itself: what a field means, what an exit status stands for, the
runbook."""

from __future__ import annotations

from collections.abc import Mapping

from support import (
    manual_convert,
    manual_dump,
    manual_filters,
    manual_image,
    manual_isolation,
    manual_schemas,
    manual_stat,
)
from support.manual_spark_cloud import IN_PATHS

DATE = "November 23, 2026"

SCHEMA_WORDS = (
    "3; a larger number means that a field was removed or changed its meaning. 2 brought lost in two parts (given_up, "
    "damaged), and start and newest; 3 has next in the summary alone, and ready in the line of a partition. "
    "Saved plans of schema 1 and 2 can still be applied"
)
EXIT_STATUS = {
    "kdump": {
        "0": "Done, and nothing at or above --fail-on (error, if not given).",
        "1": (
            "Damage at or above --fail-on. kdump recover: the plan is not empty (without a strategy, or with "
            "--dry-run), or errors remain that it does not cover. kdump convert: what is valid was converted, or with "
            "--strict nothing of a partition with damage."
        ),
        "2": "Usage.",
        "3": "Something could not be read: missing, no permission, not a regular file, a directory without log "
        "files, a codec library that is not installed, an offset that the log does not have. "
        "Something could not be done: a running broker holds the lock, a file changed since the plan or the run, "
        "the disk is full, the output of kdump convert is there already. The other paths are still done.",
        "4": (
            "kdump recover: applied, and valid records were given up, or offsets below the high watermark are missing "
            "now: damaged bytes that held them were removed. What was removed is kept for --undo, unless --no-keep "
            "was given."
        ),
        "70": "A bug in kdump. Traceback and versions are on standard error.",
        "130": "Interrupted. The summary so far is printed.",
        "141": "The reader of the output closed it.",
    }
}
COMPLETION = (
    "Print the script with which bash, zsh or fish completes commands, options, choices, codes and paths: "
    'eval "$(kdump completion bash)" in ~/.bashrc; eval "$(kdump completion zsh)" after compinit in ~/.zshrc; '
    "kdump completion fish | source in ~/.config/fish/config.fish."
)
STATUS_RULE = "Where several apply, the first of 70, 130 and 141, 3, 4, 1, 0."

BATCH = {
    "position": "of the batch in the file, in bytes",
    "size": "of the whole batch with its header, in bytes",
    "magic": "0 and 1: a message; 2: a record batch",
    "base_offset": "of the first record; of a compressed message of magic 0 or 1 null unless it was opened",
    "last_offset": "of the last record, also when compaction removed it",
    "count": "records; of a compressed message of magic 0 or 1 null unless it was opened",
    "partition_leader_epoch": "-1 where it is unknown; null in magic 0 and 1",
    "crc": "the stored checksum",
    "crc_ok": "whether it is right; null where it was not computed",
    "codec": "none, gzip, snappy, lz4, zstd, or a number that is no codec",
    "timestamp_type": "CreateTime, LogAppendTime, or NoTimestampType (magic 0)",
    "base_timestamp": "as stored",
    "max_timestamp": "as stored",
    "delete_horizon_ms": "null without one",
    "producer_id": "-1 without a producer; null in magic 0 and 1",
    "producer_epoch": "likewise",
    "base_sequence": "likewise",
    "last_sequence": "likewise; after 2147483647 comes 0",
    "transactional": "true or false",
    "control": "whether the records are control records",
}
RECORD = {
    "topic": "from the name of the directory; null where that is not a topic-partition",
    "partition": "likewise",
    "offset": "of the record",
    "timestamp": "in milliseconds since the epoch; null in magic 0",
    "timestamp_type": "as of its batch",
    "key": "bytes, or null",
    "value": "bytes, or null",
    "headers": "an array of objects with key and value, in order",
    "position": "of its batch",
    "batch_offset": "the base offset of its batch",
    "sequence": "-1 without a producer; null in magic 0 and 1",
    "producer_id": "of its batch",
    "control": "of its batch",
}
CONTROL = {
    "control_type": (
        "COMMIT, ABORT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS, or the number"
    ),
    "coordinator_epoch": "of COMMIT and ABORT, else null",
    "control_value": "the fields of the value; null when it is none",
}
ABORTED = {"aborted": "true; the marker that ends the transaction says so"}
DECODED = {
    "key_decoded": (
        "of an internal topic the message in the key, an object: name, type (the record type), version, data (the"
        " fields, named as in Kafka's own JSON); with --schemas an object: schema_id or schema_guid, schema_type (AVRO,"
        " PROTOBUF, JSON), name (of the record or message, or null), data; null for none and for a key without a schema"
    ),
    "value_decoded": (
        "the value, likewise; with --decode NAME an object: decoder (the name), data; null for none and for a tombstone"
    ),
    "decode_problem": (
        "why the record cannot be decoded, or is of a version or type that Kafka 4.3.1 does not know; else null"
    ),
}
GAP = {
    "position": "where the bytes begin",
    "length": "their number",
    "reason": "of a gap: bytes, zeros, length, foreign-batch, unsearched; of a tail: torn, zeros, garbage",
}
COMPANIONS = {
    "index_entry": (
        "An entry of an offset index.",
        {"offset": "of a record, not relative to the segment", "position": "of its batch in the log file, in bytes"},
    ),
    "time_index_entry": (
        "An entry of a time index.",
        {"timestamp": "the largest up to there", "offset": "of the record that has it, not relative to the segment"},
    ),
    "aborted_transaction": (
        "An entry of a transaction index.",
        {
            "version": "0",
            "producer_id": "of the transaction",
            "first_offset": "of the transaction",
            "last_offset": "of its marker",
            "last_stable_offset": "when it ended",
        },
    ),
    "producer": (
        "An entry of a producer snapshot.",
        {
            "producer_id": "of the producer",
            "producer_epoch": "of the producer",
            "last_sequence": "of its last batch, -1 without one",
            "last_offset": "of its last batch, -1 without one",
            "offset_delta": "between the first and the last record of that batch",
            "timestamp": "of that batch",
            "coordinator_epoch": "of its last marker, -1 without one",
            "current_txn_first_offset": "of the open transaction, -1 without one",
        },
    ),
    "epoch": (
        "A line of leader-epoch-checkpoint.",
        {"epoch": "of the leader", "start_offset": "of the first record under it"},
    ),
    "checkpoint_entry": (
        "A line of an offset checkpoint.",
        {"topic": "of the partition", "partition": "its number", "offset": "that the checkpoint keeps for it"},
    ),
    "property": (
        "A line of partition.metadata or meta.properties.",
        {"key": "before the sign", "value": "after it"},
    ),
}
READ = {
    "offset": "that was read from",
    "timestamp": "of the record there, where --at was a time; else null",
    "log_start_offset": "the first offset that can be read",
    "log_end_offset": "of the next record to be written",
    "base_offset": "of the segment",
    "position": "of the first batch in the segment, in bytes",
    "size": "of the batches that were read, in bytes",
    "next_offset": "where the next read begins",
    "index_entry": (
        "of the offset index where the search began, an object with offset and position; null where the "
        "search used none"
    ),
    "walked_bytes": "between the start of the search and the batch",
}
FETCH = {
    "position": "of the header in the file, in bytes",
    "total_length": "as stored: the bytes after this field",
    "error_code": "as stored",
    "error": (
        "none, offset-out-of-range (1), invalid-message (2), wrong-partition (3), invalid-fetch-size (4), "
        "unknown (-1), or the number"
    ),
}
CHANGE = {
    "topic": "from the name of the directory; null where that is not a topic-partition",
    "partition": "likewise",
}
DUMP_SUMMARY = {
    "schema": SCHEMA_WORDS,
    "command": "dump",
    "exit_status": "of this run",
    "seconds": "that it took",
}
FINDING = {
    "code": "see FINDINGS",
    "severity": "error, warning, info",
    "topic": "from the name of the directory; null where that is not a topic-partition",
    "partition": "likewise",
    "segment": "the base offset in the name of the file; null without one",
    "position": "where in the file, in bytes",
    "length": "of the bytes that the finding is about",
    "offset": "a record offset, null where none is known",
    "broker": "what the next unclean start of Kafka 4.3 does about it; null for a file without its directory",
    "later_broker": "refuses where Kafka 4.4.0 does not start with it and Kafka 4.3 does, else null",
    "message": "the sentence",
    "data": "the values of the sentence, by name",
    "identity": "the same for the same finding in every run, whatever the time and the path: the first 16 hexadecimal "
    "digits of the SHA-256 of a JSON array of code, topic, partition, segment, position and data, without spaces, the "
    "names in data in order, what is not ASCII escaped",
}
FILE = {
    "batches": "that are valid",
    "records": "in them; null where compressed messages of magic 0 or 1 were not opened",
    "bytes": "of the file",
    "valid_bytes": "in valid batches",
    "findings": "their number, exact",
}
PARTITION = {
    "topic": "of the directory; null where its name does not say it",
    "partition": "likewise",
    "segments": "that were read",
    "batches": "that are valid",
    "records": "in them; null where compressed messages of magic 0 or 1 were not opened",
    "bytes": "of its logs",
    "valid_bytes": "in valid batches",
    "log_start_offset": "the first offset, or the one that log-start-offset-checkpoint says",
    "log_end_offset": "after the last batch; null where damaged batches hide it",
    "findings": "an object: by_severity and by_code, both objects of numbers",
    "broker": "what the next unclean start of Kafka 4.3 would leave; null where there are no findings or the "
    "directory is not complete: an object with refuses (exceptions), later_refuses (of Kafka 4.4.0 alone), "
    "log_start_offset, log_end_offset, segments, cuts (positions by file) and deletes (files)",
}
VERIFY_SUMMARY = {
    "schema": SCHEMA_WORDS,
    "command": "verify",
    "files": "that were read",
    "segments": "that they hold",
    "batches": "that are valid",
    "records": "in them; null where compressed messages of magic 0 or 1 were not opened",
    "bytes": "of all files",
    "valid_bytes": "in valid batches",
    "findings": "an object: by_severity and by_code, both objects of numbers",
    "findings_dropped": "findings that were counted but not printed: after the first 1000 of one code and file",
    "interrupted": "whether the run was",
    "interrupted_at": "how far it came, where it was: an object with path, position and size of the log, in bytes",
    "starts": "whether a broker starts: true where nothing that was looked at keeps it from that, false where it "
    "refuses something, null where it is not known",
    "next": "the command to run now; null where there is nothing to do",
    "exit_status": "of this run",
    "seconds": "that it took",
}
ASKED = {
    "schema": SCHEMA_WORDS,
    "strategy": "truncate, salvage, or reindex",
    "walk": "checkpoint, newest, or all: --from",
    "rebuild_all": "true with --rebuild all",
    "undecided": "keep or drop",
    "index_interval_bytes": "as given",
    "segment_index_bytes": "as given",
    "producer_id_expiration_ms": "producer.id.expiration.ms of a broker that sets none",
    "max_batch_bytes": "as given",
    "now_ms": "the clock by which producers expire, in milliseconds since the epoch",
    "paths": "as given",
}
ACTION = {
    "action": "truncate, drop, delete, rebuild, rename, write, or split",
    "topic": "of the directory; null where its name does not say it",
    "partition": "likewise",
    "from": "start of the bytes that are removed, or that target gets; null for a whole file",
    "to": "end of these bytes",
    "target": "the file that a rename, write or split makes; else null",
    "because": "the code of the finding that caused it; null where an option asked for it",
    "bytes": "their number",
    "batches": "valid ones in these bytes; null where they are no log",
    "records": "in them; null where they were not counted",
    "first_offset": "of them; null without any",
    "last_offset": "likewise",
}
RECOVERED = {
    "topic": "of the directory; null where its name does not say it",
    "partition": "likewise",
    "strategy": "of the plan",
    "empty": "whether there is nothing to do",
    "log_start_offset": "of a broker that starts on it afterwards",
    "log_end_offset": "likewise",
    "high_watermark": "that the log directory stores; null without one",
    "recovery_point": "that the log directory's checkpoint gets; null where it stays as it is",
    "refusals": (
        "what makes a broker refuse the directory as it is: an array of objects with exception and name of the file"
    ),
    "later_refusals": "likewise, what makes Kafka 4.4.0 refuse it, where Kafka 4.3 does not",
    "segments": "afterwards: an array of objects with base_offset and size",
    "bytes_needed": "what is written before anything is removed",
    "start": "where an unclean start of Kafka 4.3 begins to read: an object with offset (the recovery point), "
    "segment (the base offset of the one that holds it) and because: checkpoint, no-line (the log directory's "
    "checkpoint does not name the partition), no-checkpoint, own (the partition stands in no log directory), or from "
    "(an option, or the path of a segment); null for a log of Kafka 0.7",
    "newest": "null, except for a partition in no log directory where a walk of the active segment alone leaves "
    "another log: then an object with log_end_offset and given_up of that walk, and --truncate asks for --from",
    "lost": "an object. given_up are the valid records that the plan removes, exactly: batches, records (null where "
    "they were not counted), bytes, offsets (an array of first and last), first_timestamp (of the first batch), "
    "max_timestamp, producers, transactions (an array of producer id and first offset). damaged are the offsets "
    "that the replica had and whose bytes are damaged or missing: offsets (an array of first and last; last is null "
    "where the end is not known), bytes, and exact, which is false where the log is compacted, or where only a header "
    "that is not proven, or the high watermark, says so. Both are null inside where bytes were not searched for "
    "batches. "
    "committed: whether either part meets the offsets from the log start offset up to the high watermark; null "
    "without one",
    "files": "as they were seen: an array of objects with name, size, mtime_ns and inode",
    "undecided": "sentences about transactions whose marker may be lost",
    "clashes": "sentences about batches that contradict each other, and which of them are kept",
    "alone": "whether the plan is for one segment of several; such a plan can only be written as a copy",
    "applied": "whether it was done",
    "undo": "the run that --undo takes back; null without one",
    "left": (
        "of the findings afterwards, an object: by_severity and by_code, both objects of numbers; null where "
        "nothing was done"
    ),
    "ready": "whether a broker can be started, as far as this partition goes: nothing in it is refused or missing "
    "below the high watermark, and no error is left; null where nothing was applied",
    "salvage": "without a strategy, where the truncation gives up valid batches or leaves damage: what --salvage would "
    "do, an object with empty (whether it has nothing to do), log_end_offset and lost; else null",
    "error": "why it was not applied; null where it was",
}
RUN = {
    "run": "its name",
    "strategy": "of the run; undo where the run keeps what a forced --undo replaced; null where it is not known",
    "began_ms": "start of the run, in milliseconds since the epoch; 0 where it is not known",
    "state": "over: undone; applied: finished; applying, undoing or lost: undoing or finishing failed",
    "error": "why it failed; null where it did not",
}
RECOVER_SUMMARY = {
    "schema": SCHEMA_WORDS,
    "command": "recover",
    "strategy": "of the plan",
    "applied": "whether the plans were applied",
    "partitions": "that were looked at",
    "failed": "those that failed",
    "actions": "an object of numbers by action",
    "not_covered": "an object: by_severity and by_code, both objects of numbers",
    "left": "likewise, after applying",
    "log_start_offset": "of a single partition, else null",
    "log_end_offset": "likewise",
    "bytes_needed": "of all partitions",
    "lost": "as of a partition; of more than one partition without offsets, producers and transactions",
    "undo": "the run that --undo takes back; null without one",
    "output": "the directory of the copy; null without one",
    "next": "what to do now about all that was looked at: a command or a sentence; null where nothing is to be done",
    "interrupted": "whether the run was",
    "running": "whether another process, probably a broker, held the lock of a log directory that was read",
    "starts": "whether a broker starts, with the files as they are or with what was applied: true where nothing that "
    "was looked at keeps it from that, false where it refuses something, null where it is not known",
    "exit_status": "of this run",
    "seconds": "that it took",
}
LINES: dict[str, dict[str, tuple[str, Mapping[str, str]]]] = {
    "dump": {
        "batch": ("One for every batch, and for every message of magic 0 and 1 that lies in the log itself.", BATCH),
        "record": ("After its batch. Records of control batches have three fields more.", RECORD),
        "control": ("These follow at the end of a record of a control batch.", CONTROL),
        "decoded": ("These follow at the end of a record that is decoded (--decode, --schemas).", DECODED),
        "aborted": (
            "This follows the field control of a batch of an aborted transaction, and of its records.",
            ABORTED,
        ),
        "finding": ("After the records of a file of an internal topic, where some cannot be decoded.", FINDING),
        "gap": ("Bytes between batches that are no batch.", GAP),
        "tail": ("Bytes after the last batch.", GAP),
        "truncated": (
            (
                "With --follow: the log was truncated. What was shown from this offset on is not in it any more; the "
                "records that come in its place follow. The path is that of the partition."
            ),
            {**CHANGE, "offset": "the first one that is not in the log any more"},
        ),
        "deleted": (
            "With --follow: records were deleted before they were shown, by retention or by a broker's client.",
            {**CHANGE, "offset": "the first one that was not shown", "log_start_offset": "the first one that is there"},
        ),
        "partition_end": (
            (
                "With --follow: the directory of the partition was deleted or renamed. Another one with its name is "
                "another partition, and begins at its first offset."
            ),
            {**CHANGE, "offset": "the one after the last that was shown"},
        ),
        "isolation": (
            "With --isolation read-committed: after the lines of each log. The path is that of its directory.",
            manual_isolation.LINE,
        ),
        **COMPANIONS,
        "read": ("With --at and --verbose: how the offset was found. The path is that of the segment.", READ),
        "message_set_send": (
            "With --type fetch and multifetch: the header of a fetch result, before its batches.",
            FETCH,
        ),
        "multi_message_set_send": ("With --type multifetch: the header before all of them.", FETCH),
        **manual_image.LINES,
        "count": (
            "With --count, in place of all others.",
            {"schema": SCHEMA_WORDS, "records": "the number of records that match"},
        ),
        "matches": (
            "With options that choose records, after all records; not where -n or --last ends the dump before.",
            {
                "schema": SCHEMA_WORDS,
                "what": "records, or batches with --batches",
                "matches": "the number of those that match",
                "searched": "the number of those that were compared: without those of damaged batches, and of control "
                "batches where these cannot match",
                "exact": "false where there are more: compressed messages of magic 0 and 1 were not opened",
            },
        ),
        "summary": ("The last line.", DUMP_SUMMARY),
    },
    "verify": {
        "finding": ("One for every finding.", FINDING),
        "file": ("With --verbose, one for every file, after its findings.", FILE),
        "partition": (
            "With --summary, one for every partition before its findings; then one for the log directory itself.",
            PARTITION,
        ),
        "summary": ("The last line.", VERIFY_SUMMARY),
    },
    "recover": {
        "plan": ("The first line, without a path: the options.", ASKED),
        "action": ("One for every change that is planned, or was applied.", ACTION),
        "not_covered": ("One for every finding that the plan does not cover.", FINDING),
        "finding": ("After applying, one for every finding that remains.", FINDING),
        "partition": (
            "One for every partition, after its actions; then one for every log directory whose checkpoint changes.",
            RECOVERED,
        ),
        "run": (
            (
                "With --undo and --resume: one for every directory, then the findings that remain in finished runs, "
                "and a "
                "summary of schema, command, exit_status and seconds."
            ),
            RUN,
        ),
        "summary": ("The last line.", RECOVER_SUMMARY),
    },
    "stat": {
        **manual_stat.LINES,
        "finding": ("With --by group, after the rows, one for every finding about groups.", FINDING),
        "summary": (
            "The last line.",
            {"schema": SCHEMA_WORDS, "command": "stat", "exit_status": "of this run", "seconds": "that it took"},
        ),
    },
    "convert": {
        **manual_convert.LINES,
        "summary": (
            "The last line.",
            {
                "schema": SCHEMA_WORDS,
                "command": "convert",
                **manual_convert.SUMMARY,
                "exit_status": "of this run",
                "seconds": "that it took",
            },
        ),
    },
}

_DECODER = "The same, with --format kafka. The other formats decode internal topics by themselves (--decode)."
_CLASS = (
    "None: kdump runs no Java classes. --bytes chooses how bytes are written; --format json passes them to a "
    "decoder of your own."
)
KAFKA = {
    "--files FILE,...": "PATH ..., which may be directories and globs too. A comma is a part of a name.",
    "--print-data-log": (
        "The same, with --format kafka. The other formats show keys and values unless --batches is given."
    ),
    "--deep-iteration": "The same, with --format kafka. The other formats show records unless --batches is given.",
    "--verify-index-only": (
        "The same, with --format kafka. kdump verify checks indexes too, and says which entries are damaged."
    ),
    "--index-sanity-check": "The same, with --format kafka.",
    "--max-message-size SIZE": (
        "None, and none is needed: an entry of an index is compared with a batch of any "
        "size. --max-batch-bytes bounds the memory for one."
    ),
    "--max-bytes SIZE": "The same, in every format; k, m or g may follow the number.",
    "--key-decoder-class CLASS": _CLASS,
    "--value-decoder-class CLASS": _CLASS,
    "--offsets-decoder": _DECODER,
    "--transaction-log-decoder": _DECODER,
    "--cluster-metadata-decoder": _DECODER,
    "--remote-log-metadata-decoder": _DECODER,
    "--share-group-state-decoder": _DECODER,
    "--skip-record-metadata": (
        "The same, with --format kafka. Or --format json, and of its lines the fields key and value."
    ),
    "--help": "The same.",
    "--version": "kdump --version, for the version of kdump.",
}
KAFKA_SAME = (
    "The output of kdump dump --format kafka is that of kafka-dump-log.sh of Kafka 4.3.1 on the same files, on "
    "standard output and on standard error, the "
    "reports about indexes (Mismatches in ..., Found timestamp mismatch in ..., The following indexed offsets are "
    "not found in ...) and about offsets (Non-consecutive offsets "
    "in ...) included. Every option of that tool, and what does the same here:"
)
KAFKA_DIFFERENT = (
    (
        "Exit status: Kafka's tool exits with 0 whatever it reports, and with 1 after an exception. "
        "kdump exits with 1 when there is damage at or above --fail-on. "
        "An entry of an offset index is an error when its position is outside the log or at no batch. "
        "A mismatch is an error when the batch at the position is damaged or begins after the offset. "
        "Timestamps out of order are an error. "
        "What brokers write themselves is info: the first offset of a batch instead of the last one (before Kafka "
        "2.0), "
        "the last offset of several batches that were appended together, and a timestamp where the records have none "
        "(magic 0, or a batch that compaction emptied). "
        "Other reports about indexes are warnings. Reports about offsets do not change the exit status. "
        "Damage that Kafka's tool does not report (bytes after the last entry of an index) makes the exit status 1 "
        "too; "
        "kdump verify describes it."
    ),
    (
        "Kafka's tool ends with an exception when a log or an index is missing, an entry points outside the log, "
        "bytes are no batch, records or a transaction index cannot be read, or an index fails the sanity check. "
        "kdump prints a line that begins with kdump: and goes on with the next entry, batch or file."
    ),
    (
        "The sanity check needs no log. A time index is compared with its log also when the offset index is missing, "
        "and when the log is damaged elsewhere. Kafka's tool creates an empty offset index in that case. "
        "kdump creates nothing, and opens the files that it reads for reading only. "
        "The time that kdump takes for a time index grows with its entries, not with their square."
    ),
    (
        "Kafka's tool shows nothing of files with other names (no dot, .deleted, .swap). kdump shows those that it "
        "knows "
        "or that --type names. For checkpoints, partition.metadata and similar files it prints what Kafka's tool "
        "prints, "
        "and the exit status is 3. It refuses a log of Kafka 0.7 in this format."
    ),
    (
        "A file that is named twice is read once. The output is UTF-8, whatever the charset of the locale. "
        "With --offset nothing is compared. For a damaged message of magic 0 or 1 Kafka's tool can show lengths that "
        "point outside the message; kdump ends its records there. "
        "The records of a batch larger than --max-batch-bytes are left out."
    ),
)

FILES = {
    "<20 digits>.log": "A segment. The number is its base offset.",
    "<20 digits>.kafka": "A segment of Kafka 0.7. The number is the position of its first byte in the log.",
    "<20 digits>-<10 digits>.checkpoint, bootstrap.checkpoint": "A snapshot of KRaft.",
    "<20 digits>.index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, partition.metadata": "Companions of a segment. kdump dump shows those that "  # noqa: E501
    "PATH names. kdump verify checks them against the log.",
    (
        "recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint, "
        "cleaner-offset-checkpoint, meta.properties"
    ): "Of a log directory.",
    "*.deleted, *.cleaned, *.swap, *.part": (
        "A suffix after one of these. The file is read when PATH names it, and skipped in directories."
    ),
    "<topic>-<partition>": (
        "A topic-partition directory: it holds the segments, and its name gives topic and partition."
    ),
    ".kdump-undo/<run>": "In a partition: what a run of kdump recover removed, and its journal. At the root of a "
    "log directory these are files "
    ".kdump-undo-<run>-*. Every command skips them.",
    "_manifest.jsonl, _manifest.lock, _kdump-<run>-*/": "In a folder of Parquet files of kdump convert: what the "
    "folder holds, the lock of a run, the files that it is writing.",
    ".kdump-part-*, .kdump-convert, .kdump-convert-part": "What kdump convert is writing, until it has its name. The "
    "next run into the same output removes what a killed one left. No symbolic link in "
    "the place of one of these, or of a file of a folder of Parquet files, is followed.",
}

EXAMPLES = {
    "stat": manual_stat.EXAMPLES,
    "convert": manual_convert.EXAMPLES,
    "kdump": [
        ("Is anything wrong with a broker's log directory?", "kdump verify --deep /data/kafka"),
        ("What is in this segment?", "kdump dump 00000000000000000000.log"),
        ("What does this finding mean?", "kdump verify --explain tail/torn"),
        ("What would the broker's next start remove?", "kdump recover /data/kafka"),
        ("What takes the space?", "kdump stat /data/kafka"),
        ("The records as Parquet files, for DuckDB or Spark:", "kdump convert /data/kafka -o tables/"),
    ],
    "dump": [
        (
            "Ten records from offset 1000 on, one JSON object a line:",
            "kdump dump --records --format json --offset 1000: -n 10 topic-0/",
        ),
        ("Keys and sizes of the batches of a segment from a pipe:", "zcat segment.gz | kdump dump --batches -"),
        (
            "The values that are text, with jq:",
            "kdump dump --records --format json topic-0/ | jq -r 'select(.type == \"record\") | .value | strings'",
        ),
        ("The record at offset 1000:", "kdump dump --at 1000 -n 1 topic-0/"),
        (
            "What a running broker writes from offset 1000 on, as far as it is committed, until Ctrl-C:",
            "kdump dump --follow --until high-watermark --offset 1000: topic-0/",
        ),
        (
            "What was written from a time on, and how it was found:",
            "kdump dump --at @2026-11-21T18:03:09Z -v topic-0/",
        ),
        (
            "A read as a fetch result, and what that holds:",
            "kdump dump --at 1000 --max-bytes 64k --format fetch topic-0/ | kdump dump --type fetch -",
        ),
        *manual_filters.EXAMPLES,
        *manual_isolation.EXAMPLES,
        *manual_dump.EXAMPLES_OF_FORMATS,
        *manual_schemas.EXAMPLES,
        ("As kafka-dump-log.sh prints it:", "kdump dump --format kafka --print-data-log 00000000000000000000.log"),
        (
            "The indexes of a partition compared with its log:",
            "kdump dump --format kafka --verify-index-only topic-0/",
        ),
        *manual_image.EXAMPLES,
    ],
    "verify": [
        ("Every record of a log directory, on four processes:", "kdump verify --deep --jobs 4 /data/kafka"),
        ("A line for every partition of a broker:", "kdump verify --summary /data/kafka"),
        (
            "Only framing and checksums, and nothing printed unless something is wrong:",
            "kdump verify -q --select batch --select gap --select tail /data/kafka/t-*",
        ),
        (
            "Counts by code for a script:",
            "kdump verify --format json --fail-on never . | tail -n 1 | jq .findings.by_code",
        ),
        (
            "A log that is known to be compacted; warnings fail:",
            "kdump verify --compacted yes --fail-on warning topic-0/",
        ),
    ],
    "recover": [
        ("What would the broker's next start remove?", "kdump recover /data/kafka"),
        ("Do it; it can be undone:", "kdump recover --truncate /data/kafka/orders-3"),
        (
            "What could be kept of the batches after the damage?",
            "kdump recover --salvage --dry-run /data/kafka/orders-3",
        ),
        (
            "A repaired copy; the original does not change:",
            "kdump recover --salvage --output /spare/copy /data/kafka/orders-3",
        ),
        (
            "Rebuild every index, snapshot and leader epoch, byte for byte as a broker does:",
            "kdump recover --truncate --from all --rebuild all /data/kafka/orders-3",
        ),
        ("Undo the last run:", "kdump recover --undo /data/kafka/orders-3"),
        (
            "Review a plan before it is applied:",
            "kdump recover --format json /data/kafka | tee plan | jq 'select(.type == \"action\")'",
        ),
        ("Then apply exactly this plan:", "kdump recover --plan plan"),
        (
            "Would committed data be lost?",
            "kdump recover --format json /data/kafka | jq -r 'select(.lost.committed) | .path // empty'",
        ),
    ],
}
ABOUT = {
    "stat": manual_stat.ABOUT,
    "convert": manual_convert.ABOUT,
    "kdump": [
        (
            "kdump reads, verifies, recovers, measures and converts the log segments that Apache Kafka keeps on "
            "disk: message sets of magic 0 and 1, record batches of magic 2, the log of Kafka 0.7, and the log "
            "and the snapshots of KRaft."
        ),
        (
            "It needs no broker and no JVM. kdump recover with a strategy changes files, and keeps what it removes. "
            "Every other command opens files for reading only and creates nothing beside them; kdump convert writes "
            "to an output of its own. "
            "Damage does not stop it: it finds the next batch of the log and goes on. "
            "So one run reports everything that is wrong and everything that can be read."
        ),
        "Offset is always the offset of a record. Position is always bytes in a file.",
    ],
    "dump": [
        (
            "kdump dump shows batches with their records, and bytes that are no batch, in the order of the bytes in "
            "the "
            "files."
        ),
        "Records of a batch whose checksum is wrong are shown only with --force, as far as they can be parsed.",
        (
            "A companion of a segment (an index, a producer snapshot, a checkpoint) is shown entry by entry "
            "where PATH names it."
        ),
        (
            "With --follow what is there is shown, then each whole batch with a right checksum once it is on disk, a "
            "moment later. Bytes at the end of the log that are no valid batch are waited for; with a valid batch "
            "after them they are shown as a gap or as damage. New segments and new partitions below a directory are "
            "followed, and what the log cleaner and retention do. A broker that is not the leader, or that was not "
            "when it crashed, can truncate its log and get other records with the same offsets: that is said, and the "
            "other records come. --until high-watermark shows only records that cannot be replaced any more; a broker "
            "writes that offset every five seconds. KRaft snapshots and logs of Kafka 0.7 are not followed."
        ),
        (
            "A look at one partition costs two calls of the system. kdump looks every 50 ms, and at many partitions as "
            "often as one percent of a core allows; those that had something new a moment ago come first. "
            "-n ends it with status 0, Ctrl-C with 130, and so does the end of the last partition that was named."
        ),
        (
            "With --at the log is read as a consumer reads it: from the batch that holds the offset, or the next batch "
            "where compaction removed it, to the end of the segment or of --max-bytes. "
            "A time is @ and milliseconds since the epoch, or ISO 8601 as in @2026-11-21T18:03:09Z, in UTC without "
            "a zone. "
            "It stands for the first record with that timestamp or a later one. "
            "latest is the log end offset; there is no record yet. A wrong index costs time, and nothing else. "
            "A segment that PATH names is read as a log of its own. "
            "Batches whose checksum is wrong are skipped, and shown as damaged. "
            "For an offset that the log does not have, the exit status is 3, and the message has the valid range."
        ),
        (
            "--format fetch writes what --at reads as the brokers of the first releases sent it: a MessageSetSend "
            "(total length, error code, messages). An offset out of range has error code 1 in it, a batch that is too "
            "large 4; exit status and message are those of the other formats. "
            "--type fetch shows such a file, --type multifetch a file that holds several. "
            "The last message of a result can be incomplete; this is a tail, and no damage. "
            "Messages of Kafka 0.7 have no offset in a result: they count from the number at the beginning of the file "
            "name, else from 0."
        ),
        *manual_image.ABOUT,
    ],
    "verify": [
        (
            "kdump verify checks every batch: its length, its checksum, its header, and its offsets and leader epoch "
            "against the batch before. With --deep it also decompresses and parses every record, and compares the "
            "records "
            "with the header. Only then it sees the first offset inside a compressed message of magic 0 or 1, and so "
            "whether a message before it claims the same offset. Kafka's own reader decides: what it accepts is "
            "at most a warning, what it refuses is "
            "an error."
        ),
        (
            "A topic-partition directory is verified as a whole: segments against one another; offset, time and "
            "transaction indexes, producer snapshots and leader epochs against the batches; sequences and "
            "transactions of "
            "every producer. A log directory adds its checkpoints, transactions that are hanging according to "
            "__transaction_state, and names that keep a broker from starting. "
            "A segment named alone is verified with the indexes beside it, a companion named alone against its log. "
            "Misplaced files, and what a broker's next unclean start does about a finding (truncates, deletes, "
            "rebuilds, "
            "refuses, renames or ignores), are reported where PATH is the topic-partition or the log directory itself, "
            "not where PATH is a directory above them."
        ),
        (
            "A finding in text is one line, path:position: severity code: sentence. Where the directory is known, the "
            "sentence says what a broker's next start does about it in this case, as the field broker in JSON. "
            "On a terminal findings stand below their file, and a table of the partitions with errors or warnings "
            "comes last, the worst first, at most 20. The last line is the next command, if there is something to do."
        ),
        (
            "Text and terminal begin with the verdict where a directory is not healthy: broker says whether a broker "
            "starts, as far as what was looked at tells, and what becomes of partitions; lost says where batches are "
            "damaged or missing; do has the words of next. The lines of findings are kept until then, up to 1 MiB. "
            "Above that they come as they are found, and the verdict comes before the summary. Files that are named "
            "alone have no verdict. Where another copy of a damaged topic-partition is among the PATHs, the next "
            "command is the one that makes one log of all copies."
        ),
        (
            "Findings of severity info are legal: they are counted in the summary, and shown with --level info. Of a "
            "code and file 20 findings are shown, then a line has the number of the others, which --all shows too. "
            "JSON holds all that were kept. The exit status depends on --select, --ignore and --fail-on alone."
        ),
        (
            "A directory can be verified while a broker writes to it. Where another process holds the lock of "
            ".lock, or "
            "with --live, whatever is wrong is read again, and reported only if it is still wrong."
        ),
    ],
    "recover": [
        (
            "kdump recover does what a broker does to its logs after an unclean stop, with a preview, a report of "
            "what is "
            "lost, and a way back. Without a strategy it only prints the plan. For each file the plan says what "
            "would be "
            "done, from position to position, and which finding causes it. Then it says what would be lost, why a "
            "broker "
            "does not start on the files as they are, and what is wrong but not covered."
        ),
        (
            "--truncate is the broker's own recovery. It truncates a log at its first bad batch, deletes later "
            "segments, "
            "rebuilds indexes, snapshots and leader epochs, and completes or removes what the broker was about to "
            "swap in "
            "or to delete (.cleaned, .swap, .deleted). It begins where a broker begins, so it does not cover damage in "
            "older segments unless --from all is given. Where a broker would refuse to start, it does what lets it "
            "start."
        ),
        (
            "--salvage keeps every valid batch, in every segment, and removes damaged bytes only. Offsets stay, and "
            "gaps "
            "remain where damage was. --reindex never changes a log."
        ),
        (
            "A block that a disk wrote to the wrong place brings batches of another place of the log, or of another "
            "log, with right checksums. A broker loads them as they are, or truncates the log where the block begins "
            "or ends; so does --truncate. --salvage chooses between the readings of the log: the one stays that keeps "
            "more valid batches with rising offsets, so that a few batches that jump ahead go and those in place stay. "
            "Nor does a higher leader epoch replace batches in place where it jumps ahead of offsets that they have. "
            "Each choice is in the report, under contradicting batches. "
            "Every valid batch that a recovery removes is in given up, in a "
            "truncation too: also one that has the offsets of another batch that stays, and one inside damaged bytes "
            "of which nothing shows whether it is of the log, or a value of a record (gap/foreign-batch)."
        ),
        (
            "Everything that is removed is kept in the partition, and the result is verified. The next run finds a "
            "killed "
            "run, and does nothing until --resume or --undo has ended it. --output writes a repaired copy to "
            "DIR/<topic-partition> instead. kdump holds the lock of the log directory meanwhile: while its broker "
            "runs, nothing is done. A log directory without .lock, as after a clean stop of its broker, gets one for "
            "that time."
        ),
        (
            "A preview takes no lock. While a broker runs it reads all the same, and says on standard error that a "
            "broker runs. --output reads from a disk that is mounted read-only, and as a user who may only read: "
            "where .lock cannot be written, it is asked whether a process holds it. If one does, the exit status is 3. "
            "If none does, kdump reads, and says on standard error that no lock could be taken: a broker on another "
            "machine is not seen."
        ),
        (
            "What a broker's next start does is said of Kafka 4.3. The loader of Kafka 4.4.0 was compared over the "
            "same damaged directories. One difference decides whether a broker starts: 4.4.0 refuses a transaction "
            "index in which an entry has another version than 0 (KafkaException), at each start, also after a clean "
            "stop; 4.3 reads only the first byte of the version, refuses what is above 0, and passes over the rest. "
            "The report says so where it is the case, and kdump recover --reindex rebuilds the index for both."
        ),
        (
            "In text an action is one line, path: action from-to code: what is done (what the bytes held). Lines "
            "about a "
            "partition are path: label: sentence, with the labels clean, failed, running, "
            "refused, more, start, newest, found, given up, damaged, committed, truncate, salvage, contradicting "
            "batches, undecided, before the start, copy only, "
            "afterwards, space, verified, undo. The last line is next: what to do now, for all that was looked at."
        ),
        (
            "Text and terminal begin with the verdict where not all is healthy: broker says whether a broker starts, "
            "with the files as they are or with what was applied, as far as what was looked at tells; lost says what "
            "is given up and damaged; do has the words of next. The lines about partitions are kept until then, up to "
            "1 MiB. Above that they come as they are made, and the verdict comes before the summary."
        ),
    ],
}
UNDO = [
    (
        "Everything that a run removes is kept in .kdump-undo/<run> in the partition's directory, at the root of a log "
        "directory in files .kdump-undo-<run>-*: whole files are renamed, ranges of bytes are copied. A journal has "
        "path, "
        "position, length, reason, checksum, and the state before and after. Brokers ignore these files. "
        "One run has one name in all partitions."
    ),
    (
        "Before its first change a run writes its whole plan: at the root of each log directory that it touches, or in "
        "a partition on its own. --resume finishes all of it, the partitions that were never begun too, and "
        "prints what the run would have "
        "printed. It refuses a partition whose files changed since. Until then recover refuses the whole log directory."
    ),
    (
        "--undo restores every byte, name and modification time. Before its first change it checks every directory "
        "below PATH that the run changed. Where one cannot be taken back, nothing changes, the exit status is 3, and "
        "the command for the others is printed. What a broker's start rewrites does not matter: the leader-epoch "
        "checkpoint, producer snapshots, indexes, new empty segments, and the checkpoints of the log directory, in "
        "which only the lines of the undone partitions go back. A clean-shutdown file that was written since is "
        "removed, so that the next start recovers what the undo brought back. Log bytes that the run did not leave "
        "stop the undo; --force undoes the run all the same."
    ),
    (
        "Where anything was written since, the undo "
        "keeps these files as they are now, as a run of its own whose name ends with -undo1 or -forced1; --undo of "
        "that run brings them back. "
        "Where such an undo was killed, or failed in a directory, the next --undo goes on with it. "
        "Bytes that a broker truncated below the end that the run had left cannot be restored; then --force refuses "
        "too."
    ),
    (
        "Deleting a topic deletes the directories of its partitions, and with them everything that is kept for --undo. "
        "So does moving a partition to another broker. Retention and compaction do not touch it. "
        "With --no-keep nothing is kept once the run has ended. "
        "A run of --output that was killed leaves a directory .kdump-part-* in DIR, which can be deleted."
    ),
    (
        "kdump neither creates nor deletes the clean-shutdown file of a log directory. Where it is there, the "
        "broker trusts "
        "the files as they are, which is right after a run. With --drop-marker the file is removed, and the broker "
        "runs "
        "its own recovery too."
    ),
]
REPLICATED = [
    (
        "The high watermark is the offset below which every in-sync replica has the records; consumers have seen them. "
        "Truncating below it on one replica loses nothing as long as another in-sync replica still has the records: "
        "the "
        "broker fetches them when it starts as a follower. They are lost for good where this replica becomes the "
        "leader."
    ),
    (
        "So where a plan gives up committed records and other replicas are alive, do not repair: let the broker "
        "fetch the "
        "partition again. Move its directory out of the log directory, to another place on the same disk, and start "
        "the "
        "broker; it begins with an empty replica and fetches it from the leader. Keep the directory that you moved "
        "until "
        "the partition is in sync."
    ),
    (
        "Where no in-sync replica is left, recover the replica that ends last: the lines with the label afterwards say "
        "where each would end. Start its broker first, make it the leader by an unclean election, and let the "
        "others follow."
    ),
]
PATHS = (
    "PATH is a file, a directory or a glob; - is standard input. A file is read whatever its name; its base offset "
    "is the "
    "number at the beginning of the name. Directories are walked, links are followed, each file is read once. "
    "Several paths are one run with one exit status. " + IN_PATHS
)
PATHS_OF_RECOVER = (
    "PATH is a topic-partition directory, a log directory, any directory above, the active segment of a partition, "
    "or a "
    "glob. kdump always recovers a whole partition. The log of KRaft is recovered only when PATH is its directory. "
    "Several paths are one run with one exit status. " + IN_PATHS
)
JSON = (
    "With --format json every line is an object with a type; all but the summary have a path. Fields come in this "
    "order. "
    "Integers are numbers, times are milliseconds since the epoch, and a stored -1 stays -1. null stands where the "
    "format "
    "has no such field, or the value is not known. Bytes are a string when they are valid UTF-8, else "
    '{"base64": "..."}; a path or topic that is not UTF-8 likewise.'
)
