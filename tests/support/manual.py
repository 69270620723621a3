"""The manual pages in man/, made from Click's options and the catalogue of findings.

    python tests/support/manual.py            writes man/*.1
    python tests/support/manual.py --check    says which pages differ, and ends with 1 when one does

What a program cannot know of itself (what a field means, what an exit status is for, how the options of Kafka's tool translate) stands here; the
test of the manual fails when a field, an option or a code has no words.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from kdump.cli import COMMANDS, group
from kdump.verify.findings import CATALOGUE

PAGES = Path(__file__).resolve().parents[2] / "man"
DATE = "November 21, 2026"

EXIT_STATUS = {
    "kdump": {
        "0": "Done, and nothing at or above --fail-on (error, if not given).",
        "1": "Damage at or above --fail-on. kdump recover: there is something to do (without a strategy, or with --dry-run), or errors remain that it does not cover.",
        "2": "Usage.",
        "3": "Something could not be read: missing, no permission, not a regular file, a directory without log files, a codec library that is not there, an offset that the log does not have. "
        "Something could not be done: locked by a running broker, changed since the plan or the run, disk full. The other paths are done all the same.",
        "4": "kdump recover: done, and valid records were given up. Unless --no-keep was given, they are kept for --undo.",
        "70": "A bug in kdump. Traceback and versions are on standard error.",
        "130": "Interrupted. The summary of what was done until then is printed.",
        "141": "The reader of the output went away.",
    }
}
STATUS_RULE = "Of several the first that applies of 70, 130 and 141, 3, 4, 1, 0."

BATCH = {
    "position": "where in the file the batch begins, in bytes",
    "size": "of the whole batch with its header, in bytes",
    "magic": "0 and 1: a message; 2: a record batch",
    "base_offset": "of the first record; of a compressed message of magic 0 or 1 null unless it was opened",
    "last_offset": "of the last record, also when compaction removed it",
    "count": "records; of a compressed message of magic 0 or 1 null unless it was opened",
    "partition_leader_epoch": "-1 where it is unknown; null in magic 0 and 1",
    "crc": "the stored checksum",
    "crc_ok": "whether it is right; null where nobody computed it",
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
    "topic": "by the name of the directory; null where that is no topic-partition",
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
    "control_type": "COMMIT, ABORT, LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VERSION, KRAFT_VOTERS, or the number",
    "coordinator_epoch": "of COMMIT and ABORT, else null",
    "control_value": "the fields of the value; null when it is none",
}
GAP = {
    "position": "where the bytes begin",
    "length": "how many they are",
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
        "A line of a checkpoint of offsets.",
        {"topic": "of the partition", "partition": "its number", "offset": "that the checkpoint keeps for it"},
    ),
    "property": (
        "A line of partition.metadata or meta.properties.",
        {"key": "before the sign", "value": "behind it"},
    ),
}
READ = {
    "offset": "that was read from",
    "timestamp": "of the record there, where --at was a time; else null",
    "log_start_offset": "the first offset that can be read",
    "log_end_offset": "that the next record will have",
    "base_offset": "of the segment",
    "position": "where in the segment the first batch begins, in bytes",
    "size": "of the batches that were read, in bytes",
    "next_offset": "where a reader goes on",
    "index_entry": "of the offset index from which the batch was looked for, an object with offset and position; null where the search began without one",
    "walked_bytes": "between the place where the search began and the batch",
}
FETCH = {
    "position": "where in the file it begins, in bytes",
    "total_length": "as stored: the bytes behind this field",
    "error_code": "as stored",
    "error": "none, offset-out-of-range (1), invalid-message (2), wrong-partition (3), invalid-fetch-size (4), unknown (-1), or the number",
}
DUMP_SUMMARY = {
    "schema": "1; another number would mean that a field was taken away or changed its meaning",
    "command": "dump",
    "exit_status": "of this run",
    "seconds": "that it took",
}
FINDING = {
    "code": "see FINDINGS",
    "severity": "error, warning, info",
    "topic": "by the name of the directory; null where that is no topic-partition",
    "partition": "likewise",
    "segment": "the base offset in the name of the file; null without one",
    "position": "where in the file, in bytes",
    "length": "of the bytes that the finding is about",
    "offset": "a record offset, null where none is known",
    "broker": "what the next unclean start of Kafka does about it; null for a file that is looked at alone",
    "message": "the sentence",
    "data": "what stands in the sentence, by name",
}
FILE = {
    "batches": "that are valid",
    "records": "in them; null where compressed messages of magic 0 or 1 were not opened",
    "bytes": "of the file",
    "valid_bytes": "in valid batches",
    "findings": "their number",
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
    "log_end_offset": "behind the last batch; null where damaged batches hide it",
    "findings": "an object: by_severity and by_code, both objects of numbers",
    "broker": "what the next unclean start of Kafka 4.3 would leave, null where nothing was found or the directory is not known whole: an object with refuses (exceptions), "
    "log_start_offset, log_end_offset, segments, cuts (positions by file) and deletes (files)",
}
VERIFY_SUMMARY = {
    "schema": "1; another number would mean that a field was taken away or changed its meaning",
    "command": "verify",
    "files": "that were read",
    "segments": "that they hold",
    "batches": "that are valid",
    "records": "in them; null where compressed messages of magic 0 or 1 were not opened",
    "bytes": "of all files",
    "valid_bytes": "in valid batches",
    "findings": "an object: by_severity and by_code, both objects of numbers",
    "findings_dropped": "findings that were counted but not printed: those of one code and file beyond the first 1000",
    "interrupted": "whether the run was",
    "exit_status": "of this run",
    "seconds": "that it took",
}
ASKED = {
    "schema": "1; another number would mean that a field was taken away or changed its meaning",
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
    "from": "where the bytes begin that go, or that target gets; null where it is about a whole file",
    "to": "where they end",
    "target": "the file that a rename, write or split makes; else null",
    "because": "the code of the finding behind it; null where it was asked for",
    "bytes": "how many they are",
    "batches": "valid ones in these bytes; null where they are no log",
    "records": "in them; null where nobody counted them",
    "first_offset": "of them; null without any",
    "last_offset": "likewise",
}
RECOVERED = {
    "topic": "of the directory; null where its name does not say it",
    "partition": "likewise",
    "strategy": "of the plan",
    "empty": "whether nothing is to be done",
    "log_start_offset": "of a broker that starts on it afterwards",
    "log_end_offset": "likewise",
    "high_watermark": "that the log directory stores; null without one",
    "recovery_point": "that the log directory's checkpoint gets; null where it may stay",
    "refusals": "what makes a broker refuse the directory as it is: an array of objects with exception and name of the file",
    "segments": "afterwards: an array of objects with base_offset and size",
    "bytes_needed": "what is written before anything goes away",
    "lost": "what is given up: an object with batches, records (null where nobody counted them), bytes, offsets (an array of first and last), first_timestamp (of the first batch), "
    "max_timestamp, producers, transactions (an array of producer id and first offset) and committed (whether some of it lies below the high watermark, null without one)",
    "files": "as they were seen: an array of objects with name, size, mtime_ns and inode",
    "undecided": "sentences about transactions whose marker may be lost",
    "clashes": "sentences about batches that contradict each other, and which of them stay",
    "alone": "whether it is about one segment of several, which can only become a copy",
    "applied": "whether it was done",
    "undo": "the run that --undo takes back; null without one",
    "left": "of the findings afterwards, an object: by_severity and by_code, both objects of numbers; null where nothing was done",
    "next": "what to do now",
    "error": "why it was not done; null where it was",
}
RUN = {
    "run": "its name",
    "strategy": "that it had; undo where it keeps what a forced --undo replaced; null where nobody knows",
    "began_ms": "when it began, in milliseconds since the epoch; 0 where nobody knows",
    "state": "over: taken back; applied: finished; applying, undoing or lost where that failed",
    "error": "why it failed; null where it did not",
}
RECOVER_SUMMARY = {
    "schema": "1; another number would mean that a field was taken away or changed its meaning",
    "command": "recover",
    "strategy": "of the plan",
    "applied": "whether something was to be done, or only planned",
    "partitions": "that were looked at",
    "failed": "those with which it could not be done",
    "actions": "an object of numbers by action",
    "not_covered": "an object: by_severity and by_code, both objects of numbers",
    "left": "likewise, after applying",
    "log_start_offset": "of a single partition, else null",
    "log_end_offset": "likewise",
    "bytes_needed": "of all partitions",
    "lost": "as of a partition; where several lose something without offsets, producers and transactions",
    "undo": "the run that --undo takes back; null without one",
    "output": "the directory of the copy; null without one",
    "next": "what to do now, where it is one thing for all partitions; of a plan, the command that does it",
    "interrupted": "whether the run was",
    "exit_status": "of this run",
    "seconds": "that it took",
}
LINES: dict[str, dict[str, tuple[str, Mapping[str, str]]]] = {
    "dump": {
        "batch": ("One for every batch, and for every message of magic 0 and 1 that lies in the log itself.", BATCH),
        "record": ("After its batch. Records of control batches have three fields more.", RECORD),
        "control": ("These, at the end of a record of a control batch.", CONTROL),
        "gap": ("Bytes between batches that are no batch.", GAP),
        "tail": ("Bytes behind the last batch.", GAP),
        **COMPANIONS,
        "read": ("With --at and --verbose: how the offset was found. The path is that of the segment.", READ),
        "message_set_send": (
            "With --type fetch and multifetch: the header of a fetch result, before its batches.",
            FETCH,
        ),
        "multi_message_set_send": ("With --type multifetch: the header before all of them.", FETCH),
        "summary": ("The last line.", DUMP_SUMMARY),
    },
    "verify": {
        "finding": ("One for every finding.", FINDING),
        "file": ("With --verbose, one for every file, behind its findings.", FILE),
        "partition": (
            "With --summary, one for every partition instead of its findings; then one for the log directory itself.",
            PARTITION,
        ),
        "summary": ("The last line.", VERIFY_SUMMARY),
    },
    "recover": {
        "plan": ("The first line, without a path: what was asked for.", ASKED),
        "action": ("One for every thing that is to be done, or was.", ACTION),
        "not_covered": ("One for every finding that is left as it is.", FINDING),
        "finding": ("After applying, one for every finding that remains.", FINDING),
        "partition": (
            "One for every partition, behind its actions; then one for a log directory of which a checkpoint changes.",
            RECOVERED,
        ),
        "run": (
            (
                "With --undo and --resume nothing but these, one for every directory, the findings that remain in what was finished, and a summary of schema, command, exit_status and "
                "seconds."
            ),
            RUN,
        ),
        "summary": ("The last line.", RECOVER_SUMMARY),
    },
}

_BYTES = "None: keys and values are shown as they are, control records decoded. With Kafka's tool the option implies --print-data-log."
_CLASS = "None: kdump runs no Java classes. --bytes says how bytes are written, and --format json hands them to whatever decodes them."
KAFKA = {
    "--files FILE,...": "PATH ..., which may be directories and globs too. A comma is a part of a name.",
    "--print-data-log": "The same, with --format kafka. The other formats show keys and values unless --batches is given.",
    "--deep-iteration": "The same, with --format kafka. The other formats show records unless --batches is given.",
    "--verify-index-only": "The same, with --format kafka. kdump verify proves indexes too, and says what in them is damage.",
    "--index-sanity-check": "The same, with --format kafka.",
    "--max-message-size SIZE": "None, and none is needed: an entry of an index is compared with a batch of any size. --max-batch-bytes bounds the memory for one.",
    "--max-bytes SIZE": "The same, in every format, also with k, m or g behind the number.",
    "--key-decoder-class CLASS": _CLASS,
    "--value-decoder-class CLASS": _CLASS,
    "--offsets-decoder": _BYTES,
    "--transaction-log-decoder": _BYTES,
    "--cluster-metadata-decoder": _BYTES,
    "--remote-log-metadata-decoder": _BYTES,
    "--share-group-state-decoder": _BYTES,
    "--skip-record-metadata": "The same, with --format kafka. Or --format json, and of its lines the fields key and value.",
    "--help": "The same.",
    "--version": "kdump --version, for the version of kdump.",
}
KAFKA_SAME = (
    "The output of kdump dump --format kafka is that of kafka-dump-log.sh of Kafka 4.3.1 on the same files, on standard output and on standard error, the "
    "reports about indexes (Mismatches in ..., Found timestamp mismatch in ..., The following indexed offsets are not found in ...) and about offsets (Non-consecutive offsets "
    "in ...) included. Every option of that tool, and what does the same here:"
)
KAFKA_DIFFERENT = (
    (
        "Exit status: Kafka's tool ends with 0 whatever it reports, and with 1 when it ends with an exception. kdump ends with 1 when there is damage at or above --fail-on. "
        "An entry of an offset index is an error when it leads out of the log or to no batch, a mismatch when the batch at the position is damaged or begins behind the offset, and timestamps out of order are one. "
        "What brokers write themselves is info: the first offset of a batch in place of the last one (before Kafka 2.0), the last offset of several batches that were appended together, a timestamp where the records have none: magic 0, a batch that compaction has "
        "emptied. Other reports about indexes are warnings, those about offsets are nothing of the kind. Damage of which Kafka's tool says nothing (bytes behind the last entry of an index) "
        "makes the exit status 1 all the same; kdump verify says what it is."
    ),
    (
        "Where Kafka's tool ends with an exception (a log or an index that is not there, an entry that leads out of the log, bytes that are no batch, records or a transaction index that cannot "
        "be read, an index that fails the sanity check), kdump says so in a line that begins with kdump: and goes on with the next entry, batch or file."
    ),
    (
        "The sanity check needs no log. A time index is compared with its log also when the offset index beside it is missing, and when the log is damaged elsewhere. Kafka's "
        "tool creates an empty offset index there; kdump creates nothing, and opens what it reads for reading only. The time that it takes for a time index grows with its entries, not with their square."
    ),
    (
        "Of files with other names (no dot, .deleted, .swap) Kafka's tool shows nothing. kdump shows those that it knows or that --type names. Of checkpoints, partition.metadata and "
        "the like it says what Kafka's tool says, and the exit status is 3. It refuses a log of Kafka 0.7 in this format."
    ),
    (
        "A file that is named twice is read once. The output is UTF-8, not in the charset of the locale. "
        "With --offset nothing is compared. Of a damaged message of magic 0 or 1 Kafka's tool can show lengths that lead out of it; kdump ends its records there. "
        "The records of a batch larger than --max-batch-bytes are left out."
    ),
)

FILES = {
    "<20 digits>.log": "A segment. The number is the offset of its first record.",
    "<20 digits>.kafka": "A segment of Kafka 0.7. The number is the position of its first byte in the log.",
    "<20 digits>-<10 digits>.checkpoint, bootstrap.checkpoint": "A snapshot of KRaft.",
    "<20 digits>.index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint, partition.metadata": "Companions of a segment. kdump dump shows those that "
    "PATH names, kdump verify holds them against the log.",
    "recovery-point-offset-checkpoint, replication-offset-checkpoint, log-start-offset-checkpoint, cleaner-offset-checkpoint, meta.properties": "Of a log directory.",
    "*.deleted, *.cleaned, *.swap, *.part": "Appended to one of these. Read when it is named, passed over in directories.",
    "<topic>-<partition>": "A directory of segments, from which topic and partition are taken.",
    ".kdump-undo/<run>": "In a partition: what a kdump recover removed, and its journal. At the root of a log directory they are files .kdump-undo-<run>-*. Every command "
    "passes them over.",
}

EXAMPLES = {
    "kdump": [
        ("Is anything wrong with what a broker left?", "kdump verify --deep /data/kafka"),
        ("What is in this segment?", "kdump dump 00000000000000000000.log"),
        ("What does this finding mean?", "kdump verify --explain tail/torn"),
        ("What would the broker's next start throw away?", "kdump recover /data/kafka"),
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
            "What was written from a moment on, and how it was found:",
            "kdump dump --at @2026-11-21T18:03:09Z -v topic-0/",
        ),
        (
            "A read as the result of a fetch, and what is in that:",
            "kdump dump --at 1000 --max-bytes 64k --format fetch topic-0/ | kdump dump --type fetch -",
        ),
        ("As kafka-dump-log.sh prints it:", "kdump dump --format kafka --print-data-log 00000000000000000000.log"),
        (
            "The indexes of a partition against its log:",
            "kdump dump --format kafka --verify-index-only topic-0/",
        ),
    ],
    "verify": [
        ("Every record of a log directory, on four processes:", "kdump verify --deep --jobs 4 /data/kafka"),
        ("A line for every partition of a broker:", "kdump verify --summary /data/kafka"),
        (
            "Only framing and checksums, and nothing printed unless something is wrong:",
            "kdump verify -q --select batch --select gap --select tail /data/kafka/topic-*",
        ),
        (
            "Counts by code for a script:",
            "kdump verify --format json --fail-on never . | tail -n 1 | jq .findings.by_code",
        ),
        (
            "A log that is known to be compacted, with warnings as failures:",
            "kdump verify --compacted yes --fail-on warning topic-0/",
        ),
    ],
    "recover": [
        ("What would the broker's next start throw away?", "kdump recover /data/kafka"),
        ("The same, done so that it can be taken back:", "kdump recover --truncate /data/kafka/orders-3"),
        (
            "What could be kept of what lies behind the damage?",
            "kdump recover --salvage --dry-run /data/kafka/orders-3",
        ),
        (
            "A repaired copy, with the original left alone:",
            "kdump recover --salvage --output /spare/copy /data/kafka/orders-3",
        ),
        (
            "Every index, snapshot and epoch anew, byte for byte as a broker makes them:",
            "kdump recover --truncate --from all --rebuild all /data/kafka/orders-3",
        ),
        ("Take the last run back:", "kdump recover --undo /data/kafka/orders-3"),
        (
            "A plan that is looked at before exactly it is done:",
            "kdump recover --format json /data/kafka | tee plan | jq 'select(.type == \"action\")'",
        ),
        ("And then:", "kdump recover --plan plan"),
        (
            "Is committed data among what would be lost?",
            "kdump recover --format json /data/kafka | jq -r 'select(.lost.committed) | .path // empty'",
        ),
    ],
}
ABOUT = {
    "kdump": [
        (
            "kdump reads, proves and recovers the log segments that Apache Kafka keeps on disk: message sets of magic 0 and 1, record batches of magic 2, the log of Kafka 0.7, the log "
            "and the snapshots of KRaft."
        ),
        (
            "It needs no broker and no JVM. kdump recover with a strategy changes files, and keeps what it removes; everything else opens files for reading only and creates nothing beside them. Damage does not stop it: it finds the next batch of the "
            "log and goes on, so one run says everything that is wrong and everything that is whole."
        ),
        "Offset is always the offset of a record, position is always bytes in a file.",
    ],
    "dump": [
        "kdump dump shows batches with their records, and bytes that are no batch, in the order of the bytes in the files.",
        "Records of a batch whose checksum is wrong are shown only with --force, as far as they parse.",
        "A companion of a segment (an index, a producer snapshot, a checkpoint) is shown entry by entry where PATH names it.",
        (
            "With --at the log is read as a consumer reads it: from the batch on that holds the offset, or the next one where compaction removed it, to the end of the segment or of --max-bytes. A time is @ and "
            "milliseconds since the epoch, or ISO 8601 as in @2026-11-21T18:03:09Z, in UTC where it names no zone; it stands for the first record with that timestamp or a later one. latest is the offset that the next "
            "record will have, where there is nothing yet. An index that lies costs time and nothing else. A segment that is named is a log of its own. Batches whose checksum is wrong are passed over, and shown as "
            "damaged. An offset that the log does not have is exit status 3, with the valid range."
        ),
        (
            "--format fetch writes what --at reads as the brokers of the first releases sent it, a MessageSetSend (total length, error code, messages). An offset out of range is error code 1 in it, a batch that is too "
            "large 4; exit status and message are those of the other formats. --type fetch shows such a file, --type multifetch one that holds several. The last message of a result can be cut off, which is a tail, "
            "and no damage. Messages of Kafka 0.7 have no offset in a result: they count from the number that the name of its file begins with, else from 0."
        ),
    ],
    "verify": [
        (
            "kdump verify proves every batch: its length, its checksum, its header, its offsets and its leader epoch against the batch before. With --deep it also "
            "opens every record: it decompresses, parses, and compares with the header. The judge is Kafka's own reader: what it accepts is at most a warning, what "
            "it refuses is an error."
        ),
        (
            "A topic-partition directory is proved as a whole: segments against one another, offset, time and transaction indexes, producer snapshots and leader "
            "epochs against the batches, sequences and transactions of every producer. A log directory adds its checkpoints, transactions that hang by the word of "
            "__transaction_state, and names that keep a broker from starting. A segment named alone is proved with the indexes beside it, a companion named alone "
            "against its log. Files that do not belong, and what a broker's next unclean start does about a finding (truncates, deletes, rebuilds, refuses or "
            "ignores), are told where PATH is the topic-partition or the log directory itself, not for what lies below a directory above them."
        ),
        "A finding in text is one line, path:position: severity code: sentence. On a terminal findings come grouped, the worst first.",
        (
            "A directory can be verified while a broker writes to it: where another process holds the lock of .lock, or with --live, what is wrong is looked at again, and "
            "told only if it still is."
        ),
    ],
}
ABOUT["recover"] = [
    (
        "kdump recover does what a broker does to its logs after an unclean stop, with a preview, a report of what is lost, and a way back. Without a strategy it only prints the plan: per "
        "file what would be done, from byte to byte, and because of which finding; then what would be lost, why a broker does not start on what is there, and what is wrong but not covered."
    ),
    (
        "--truncate is the broker's own recovery: a log is cut at its first bad batch, later segments go, indexes, snapshots and leader epochs are brought in line, and what was on its way "
        "in or out (.cleaned, .swap, .deleted) is completed or removed. It begins where a broker begins, so damage in older segments is not covered unless --from all is given. Where a broker would refuse to start, "
        "it does what lets it start. --salvage keeps every batch that proves itself, in every segment, and drops damaged bytes only; offsets stay, and gaps remain where damage "
        "was. --reindex never touches a log."
    ),
    (
        "Everything that is removed is kept in the partition, and the result is verified. A killed run is found by the next one, which does nothing until --resume or --undo has ended "
        "it. --output builds a repaired copy as DIR/<topic-partition> instead. The lock of the log directory is held meanwhile: while its broker runs, nothing is done."
    ),
    (
        "In text an action is one line, path: action from-to code: what is done (what the bytes held); lines about a partition are path: label: sentence, with the labels failed, refused, lost, "
        "clash, undecided, mind, afterwards, space, verified, undo, next."
    ),
]
RUNBOOK_INTRO = "A broker does not start, or is about to start after a crash. After every step one can stop, and start the broker as it is."
RUNBOOK = [
    (
        "Stop the broker, and see to it that nothing starts it again meanwhile. Look, which changes nothing:",
        ["kdump recover /data/kafka"],
    ),
    (
        (
            "Read the lines with the label refused: they say what the broker dies of. Read those with the label mind. Read the lines with the label lost. If they say no valid batch, go on. "
            "If they say that nothing of it was committed, no consumer has seen it, but a producer that does not wait for all replicas (acks=1) may count on it. If they say COMMITTED, or that it is not known, "
            "and other replicas of the partition live, read REPLICATED PARTITIONS first. Where this is the only replica, see what can be kept from behind the damage:"
        ),
        ["kdump recover --salvage --dry-run /data/kafka/orders-3"],
    ),
    (
        "If there is any doubt, or no copy of the disk, work on a copy and look at that:",
        ["kdump recover --salvage --output /spare/copy /data/kafka/orders-3", "kdump dump /spare/copy/orders-3"],
    ),
    (
        "Apply. Either exactly the plan that was read (it is refused when a file has changed since):",
        ["kdump recover --format json /data/kafka > plan", "kdump recover --plan plan"],
    ),
    (
        "Or one partition after the other, each by the strategy that suits it:",
        ["kdump recover --truncate /data/kafka/orders-3"],
    ),
    (
        (
            "Exit status 0: nothing of value was lost. 4: valid records were given up, as the plan said. 1: errors remain that the strategy does not cover; see the lines, and "
            "--from all or --salvage. 3: nothing was changed where it failed, and the message says why. Then:"
        ),
        ["kdump verify /data/kafka/orders-3"],
    ),
    (
        "Start the broker, and watch its log for the partition. If the result is not what was wanted, stop the broker and take the run back:",
        ["kdump recover --undo /data/kafka/orders-3"],
    ),
    (
        (
            "A run that was killed (power, kill, disk) leaves a directory that a broker can start on, but not a finished one. Finish it or take it back; both can be killed and "
            "repeated too:"
        ),
        ["kdump recover --resume /data/kafka/orders-3", "kdump recover --undo /data/kafka/orders-3"],
    ),
    ("When all is well, some days later, free the space:", ["rm -r /data/kafka/orders-3/.kdump-undo"]),
]
UNDO = [
    (
        "All that a run removes goes to .kdump-undo/<run> in the partition's directory, at the root of a log directory to files .kdump-undo-<run>-*: whole files by a rename, ranges of "
        "bytes as copies, with a journal of path, position, length, reason, checksum, and the state before and after. Brokers ignore them. One run has one name in all partitions."
    ),
    (
        "--undo restores every byte, name and modification time. It refuses with exit status 3 where a file is not what the run left, because a broker or somebody else wrote since; --force takes "
        "the run back all the same, and keeps the present state of these files first, as a run of its own whose name ends with -forced1. "
        "Bytes that a broker cut off below the end that the run had left cannot come back; then --force refuses as well."
    ),
    (
        "Deleting a topic deletes its partitions' directories, and with them everything that is kept for --undo. So does moving a partition to another broker. Retention and compaction "
        "leave it alone. With --no-keep nothing is kept once the run has ended. "
        "A run of --output that was killed leaves a directory .kdump-part-* in DIR, which may be deleted."
    ),
    "The clean-shutdown marker of a log directory is neither made nor deleted. With it, the broker trusts what it finds, which is sound after a run; --drop-marker makes it recover on its own too.",
]
REPLICATED = [
    (
        "A high watermark is an offset below which records are on every replica in sync, and were shown to consumers. Cutting below it on one replica loses nothing as long as another one that is in sync still has "
        "the records, and it comes from there when the broker starts as a follower. It is lost for good where this replica becomes the leader."
    ),
    (
        "So where a plan gives up committed records and other replicas live, do not repair: let the broker fetch the partition anew. Move its directory out of the log directory, to another place on the "
        "same disk, and start the broker; it begins an empty replica and fills it from the leader. Keep what was moved until the partition is in sync."
    ),
    "Where no replica in sync is left, recover the one that ends last: the lines with the label afterwards say where each would end. Start its broker first, make it the leader by an unclean election, and let the others follow.",
]
PATHS = (
    "PATH is a file, a directory or a glob; - is standard input. A file is read whatever its name; its base offset is the number that the name begins with. "
    "Directories are walked, links are followed, each file is read once. Several paths are one run with one exit status."
)
PATHS_OF_RECOVER = (
    "PATH is a topic-partition directory, a log directory, any directory above, the newest segment of a partition, or a glob. What is recovered is always a partition. The log of "
    "KRaft is recovered only when its directory is named itself. Several paths are one run with one exit status."
)
JSON = (
    "With --format json every line is an object with a type, all but the summary with a path. Fields come in this order. Integers are numbers, times are "
    "milliseconds since the epoch, a stored -1 stays -1, and null stands where the format has no such field or nobody knows. Bytes are a string when they are "
    'valid UTF-8, else {"base64": "..."}; a path or topic that is no UTF-8 likewise.'
)


# ---- mdoc


def escaped(text: str) -> str:
    """Text that roff takes literally."""
    text = text.replace("\\", "\\e").replace("…", "...").replace("–", "-").replace("×", "x")
    text = re.sub(
        r"(?<!\w)(--?)(?=\w)", lambda match: "\\-" * len(match[1]), text
    )  # an option is typed with minus signs
    return "\\&" + text if text.startswith((".", "'")) else text


def prose(text: str) -> Iterator[str]:
    """A paragraph; every sentence begins a line."""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`(])", text.strip()):
        yield from wrapped(escaped(sentence))


def wrapped(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False):
        yield "\\&" + line if line.startswith((".", "'")) else line


def quoted(text: str) -> str:
    """An argument of a macro."""
    return '"' + escaped(text).replace('"', '""') + '"'


def listed(items: Iterable[tuple[str, str]], macro: str = "Li", width: str = "Ds") -> Iterator[str]:
    yield f".Bl -tag -width {width}"
    for name, text in items:
        yield f".It {macro} {quoted(name)}"
        yield from prose(text)
    yield ".El"


def words_of(option: click.Option) -> str:
    """What an option takes."""
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return " | ".join(str(choice) for choice in option.type.choices)
    return option.type.name.upper()


def option_of(option: click.Option) -> Iterator[str]:
    names = [*option.opts, *option.secondary_opts]
    taken = words_of(option)
    flags = " , ".join(f"Fl {name[1:]}" for name in names)
    yield f".It {flags}" + (f" Ar {quoted(taken)}" if taken else "")
    text = option.help or ""
    if isinstance(option.show_default, str):
        text += f" Default: {option.show_default}."
    elif option.show_default and option.default is not None:
        text += f" Default: {option.default}."
    yield from prose(text)


def options_of(command: click.Command) -> list[click.Option]:
    """Every option of a command, --help too."""
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    return [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]


def examples(name: str) -> Iterator[str]:
    yield ".Sh EXAMPLES"
    for number, (what, command) in enumerate(EXAMPLES[name]):
        if number:
            yield ".Pp"
        yield from prose(what)
        yield ".Pp"
        yield f".Dl {escaped(command)}"


def exit_status() -> Iterator[str]:
    yield ".Sh EXIT STATUS"
    yield from prose(STATUS_RULE)
    yield from listed(EXIT_STATUS["kdump"].items(), width="130")


def head(name: str, what: str) -> Iterator[str]:
    page = "kdump" if name == "kdump" else f"kdump-{name}"
    yield '.\\" Made by tests/support/manual.py from the options and the catalogue; change those.'
    yield f".Dd {DATE}"
    yield f".Dt {page.upper()} 1"
    yield ".Os"
    yield ".Sh NAME"
    yield f".Nm {page}"
    yield f".Nd {escaped(what)}"


def page_of_the_group() -> Iterator[str]:
    yield from head("kdump", "read, prove and recover the log segments that Apache Kafka left on disk")
    yield ".Sh SYNOPSIS"
    for name in COMMANDS:
        yield ".Nm"
        yield f".Cm {name}"
        yield ".Op Ar options"
        yield ".Ar PATH ..."
    yield ".Nm"
    yield ".Fl -help | Fl -version"
    yield ".Sh DESCRIPTION"
    for number, paragraph in enumerate(ABOUT["kdump"]):
        if number:
            yield ".Pp"
        yield from prose(paragraph)
    yield ".Pp"
    yield "The commands are:"
    yield ".Bl -tag -width verify"
    for name, what in COMMANDS.items():
        yield f".It Cm {name}"
        yield from prose(what[0].upper() + what[1:] + ".")
        yield "See"
        yield f".Xr kdump-{name} 1 ."
    yield ".El"
    yield ".Pp"
    yield from prose(PATHS)
    yield ".Sh OPTIONS"
    yield ".Bl -tag -width Ds"
    for option in options_of(group):
        yield from option_of(option)
    yield ".El"
    yield ".Sh FILES"
    yield from listed(FILES.items(), "Pa")
    yield from exit_status()
    yield from examples("kdump")
    yield ".Sh COMPATIBILITY"
    yield ".Xr kdump-dump 1"
    yield "has a table of the options of Kafka's own tool,"
    yield ".Nm kafka-dump-log.sh ,"
    yield "and of what does the same."
    yield ".Sh SEE ALSO"
    names = sorted(COMMANDS)
    yield from (f".Xr kdump-{name} 1{' ,' if name != names[-1] else ''}" for name in names)


def page_of(name: str) -> Iterator[str]:
    command: click.Command = import_module(f"kdump.cli.{name}").command
    yield from head(name, COMMANDS[name])
    yield ".Sh SYNOPSIS"
    yield ".Nm kdump"
    yield f".Cm {name}"
    yield ".Op Ar options"
    yield ".Ar PATH ..."
    yield ".Sh DESCRIPTION"
    for paragraph in ABOUT[name]:
        yield from prose(paragraph)
        yield ".Pp"
    yield from prose(PATHS if name != "recover" else PATHS_OF_RECOVER)
    yield ".Sh OPTIONS"
    yield ".Bl -tag -width Ds"
    for option in options_of(command):
        yield from option_of(option)
    yield ".El"
    if name == "recover":
        yield from guidance()
    yield from exit_status()
    if name == "verify":
        yield from findings()
    yield ".Sh JSON"
    yield from prose(JSON)
    for kind, (what, fields) in LINES[name].items():
        yield f".Ss {kind}"
        yield from prose(what)
        yield from listed(fields.items(), width="partition_leader_epoch" if kind == "batch" else "control_value")
    yield from examples(name)
    if name == "dump":
        yield ".Sh COMPATIBILITY"
        yield from prose(KAFKA_SAME)
        yield from listed(KAFKA.items())
        yield ".Pp"
        yield "What is different:"
        yield ".Bl -bullet"
        for difference in KAFKA_DIFFERENT:
            yield ".It"
            yield from prose(difference)
        yield ".El"
    yield ".Sh SEE ALSO"
    others = sorted({*COMMANDS} - {name})
    yield ".Xr kdump 1 ,"
    yield from (f".Xr kdump-{other} 1{' ,' if other != others[-1] else ''}" for other in others)


def guidance() -> Iterator[str]:
    """What to do at night, and what to know before."""
    yield ".Sh RUNBOOK"
    yield from prose(RUNBOOK_INTRO)
    yield ".Bl -enum"
    for what, commands in RUNBOOK:
        yield ".It"
        yield from prose(what)
        for command in commands:
            yield f".Dl {escaped(command)}"
    yield ".El"
    for title, paragraphs in (("UNDO", UNDO), ("REPLICATED PARTITIONS", REPLICATED)):
        yield f".Sh {title}"
        for number, paragraph in enumerate(paragraphs):
            if number:
                yield ".Pp"
            yield from prose(paragraph)


def findings() -> Iterator[str]:
    yield ".Sh FINDINGS"
    yield from prose(
        "An error is what cannot be read, or what a broker would cut off or refuse to start with. A warning is a broken invariant of data that can be read. "
        "Info is legal and worth knowing. Words in italics stand for numbers."
    )
    yield ".Bl -tag -width Ds"
    for entry in CATALOGUE.values():
        yield f".It Cm {entry.code} Pq {entry.severity.word}"
        yield from prose(entry.title + ".")
        yield ".Pp"
        # Values can stand inside of words that depend on another one.
        sentence = re.sub(r"\{(\w+)\}", r"\\fI\1\\fR", escaped(entry.sentence))
        sentence = re.sub(r"\{(\w+)(?::\?([^}|]*)(?:\|([^}]*))?)?[^}]*\}", placeholder, sentence)
        yield from wrapped(f"\\(lq{sentence}\\(rq")
        yield ".Pp"
        yield from prose(entry.why)
        yield ".Pp"
        yield from prose(f"Recovery: {entry.recover}")
        yield ".br"
        yield from prose(f"Source: {entry.source}.")
    yield ".El"


def placeholder(match: re.Match[str]) -> str:
    """A field of a sentence as the manual shows it: a name in italics, or the words that it stands for."""
    name, text, other = match.groups()
    if text is None:
        return f"\\fI{name}\\fR"
    text = text.replace("#", f"\\fI{name}\\fR")
    return f"({text} or {other})" if other else f"[{text}]"


def pages() -> dict[str, str]:
    """File name and text of every page."""
    made = {"kdump.1": page_of_the_group(), **{f"kdump-{name}.1": page_of(name) for name in COMMANDS}}
    return {name: "\n".join(lines) + "\n" for name, lines in made.items()}


def main() -> int:
    differing = []
    for name, text in pages().items():
        path = PAGES / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differing.append(name)
            if "--check" not in sys.argv:
                PAGES.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(" ".join(differing) or "nothing", "differs" if "--check" in sys.argv else "written")
    return 1 if differing and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
