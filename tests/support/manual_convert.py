"""The words of the manual about kdump convert that the program cannot know of itself."""

from __future__ import annotations

from collections.abc import Mapping

LEFT_OUT = (
    "an object of numbers: aborted and undecided (records of transactions), damaged_ranges and damaged_bytes (no valid "
    "batch), repeated_batches (valid, but they contradict others about their offsets), deleted (records below the log "
    "start offset), control (control batches that a log without transactions does not need); and what "
    "changed: unfit_timestamps (null, as they do not fit the column), malformed (keys and values with U+FFFD for "
    "malformed UTF-8), not_json (those that are null, as they are no JSON text), undecoded (values that are null in "
    "value_json, as they cannot be decoded)"
)
FILE = {
    "name": "of the file, relative to OUT where that is a folder; of --to log the name of the directory",
    "topic": "of its rows; null where it has several partitions, or the log has no name",
    "partition": "likewise",
    "rows": "in it",
    "bytes": "of the file; null on standard output",
    "first_offset": "of its rows; null without rows, or where it has several partitions",
    "last_offset": "likewise",
    "provisional": "whether the next run replaces it",
    "sources": "the paths of the log files that it comes from",
}
FINDING = {
    "code": "see FINDINGS in kdump-verify(1)",
    "severity": "error, warning, info",
    "topic": "from the name of the directory; null where that is not a topic-partition",
    "partition": "likewise",
    "segment": "the base offset in the name of the file; null without one",
    "position": "where in the file, in bytes; 0 where the path is that of a copy",
    "length": "of the bytes that are left out; 0 where the path is that of a copy",
    "offset": "the first record offset that the finding is about; null where none is known",
    "broker": "null",
    "later_broker": "null",
    "message": "the sentence",
    "data": "the values of the sentence, by name",
    "identity": "the same for the same finding in every run: see kdump-verify(1)",
}
PARTITION = {
    "topic": "of the directory; null where its name does not say it",
    "partition": "likewise",
    "rows": "of this run",
    "total_rows": "of all runs into this OUT",
    "first_offset": "of the rows of this run; null without rows",
    "last_offset": "likewise",
    "next_offset": "where the next run goes on, or would; null for --to log",
    "left_out": LEFT_OUT,
    "files": "the number of files that were written",
    "bytes": "of the segments of a new log, also of one that --dry-run does not write; null for others",
    "missing": (
        "the offsets that the output should have and lacks, at most 1000 ranges: objects of first_offset, last_offset "
        "(null where the end is not known) and exact (false where the log is compacted, and where the end is not known)"
    ),
    "notes": "sentences that a reader of the output has to know: what was merged, deleted or converted",
}
SUMMARY = {
    "to": "what OUT is: parquet, arrow, ndjson, csv, log",
    "isolation": "read-committed, read-uncommitted, all",
    "output": "OUT, as given",
    "dry_run": "whether nothing was written",
    "partitions": "that were converted",
    "files": "that were written",
    "rows": "of all partitions",
    "bytes": "of all files; of a --dry-run of --to log, of all segments that would be written",
    "free_bytes": "with --dry-run, what is free where OUT would be; else null",
    "left_out": "as of a partition, of all of them",
    "findings": "an object: by_severity and by_code, both objects of numbers",
    "interrupted": "whether the run was",
}
LINES: dict[str, tuple[str, Mapping[str, str]]] = {
    "finding": (
        (
            "One for each range of bytes that is left out, and for each place where copies do not agree, before "
            "the line of its partition. The path is that of the log file, or of the copy."
        ),
        FINDING,
    ),
    "file": (
        (
            "One for each file that was written. Its path is its name. Files of a folder come before their "
            "partition, the one file of the other outputs after all partitions."
        ),
        FILE,
    ),
    "partition": ("One for each partition that was converted.", PARTITION),
}

COLUMNS = {
    "key": "bytes, or null; text with --keys",
    "value": "bytes, or null; text with --values",
    "headers": "an array of structures of key (text, U+FFFD for malformed UTF-8) and value (bytes, or null), in order; "
    "null where a record has none",
    "topic": "text, from the name of the directory, bytes that are no UTF-8 as \\xff; null where that is not a "
    "topic-partition",
    "partition": "32 bits; likewise",
    "offset": "64 bits",
    "timestamp": "in microseconds, UTC; null where that does not fit into 64 bits. NDJSON and CSV have milliseconds "
    "since the epoch",
    "timestampType": "32 bits: 0 CreateTime, 1 LogAppendTime, -1 none (magic 0)",
    "timestamp_ms": "64 bits: the timestamp as it is stored; -1 in magic 0",
    "position": "64 bits: of the batch in its log file, in bytes",
    "batch_offset": "64 bits: the base offset of the batch",
    "size": "32 bits: of the record without compression, in bytes",
    "magic": "8 bits: of the batch",
    "codec": "text: of the batch",
    "partition_leader_epoch": "32 bits: of the batch; -1 where it is not known, null in magic 0 and 1",
    "producer_id": "64 bits: of the batch; -1 without one",
    "producer_epoch": "16 bits: likewise",
    "sequence": "32 bits: of the record; likewise",
    "transactional": "whether the batch is",
    "control": "whether the record is a control record: only with --isolation all",
    "replica": "text: the path of the copy with --replica all, whose tables have this column without being asked; "
    "else null",
}
"""The columns of a table, of kdump.convert.tables.RECORDS."""
OF_COLUMNS = (
    "The first eight come without --columns; --columns names others, in their order in the table. The types are those "
    "of Parquet and Arrow. With --schemas the last column is value_json, unless --columns has it elsewhere: text, the "
    "value as JSON (kdump-dump(1) says how, in SCHEMAS); null where the value is null or cannot be decoded. A line "
    "with the label note says how many values cannot be decoded, and why the first one cannot. With --strict the "
    "status is 1 then. With auto the schemas lie beside the topic-partition, of several copies beside the first one; a "
    "partition without schemas is not converted. With --master the workers need the packages and the schemas, too: a "
    "worker without them writes nothing, and says so."
)

OF_THE_MANIFEST = (
    "_manifest.jsonl has one JSON object a line, with a type. Integers are numbers, times are milliseconds since the "
    'epoch. A path, a topic or a binary value is a string where it is valid UTF-8, else {"base64": "..."}.'
)
MANIFEST: dict[str, tuple[str, Mapping[str, str]]] = {
    "settings": (
        "The first line.",
        {
            "version": "of the format of the manifest: 1",
            "run": "the id of the folder, which its Parquet files have in their metadata as kdump.run",
            "settings": "what each run into the folder has in common: columns, isolation, time, codec and level, "
            "row_group_rows and row_group_bytes (a row group ends at as many), file_bytes, partition_folders, and "
            "others (keys, values, until; where they are not the usual ones)",
        },
    ),
    "partition": (
        "One for each topic-partition; the lines about it follow.",
        {
            "topic": "null for a log without a name",
            "partition": "likewise",
            "replica": "path of the copy with --replica all; topic id where two topics have one name; else null",
            "path": "of the log, or of the reference copy",
            "first_offset": "that was asked for; null for the first one of the log",
            "next_offset": "where the next run goes on: records below it are in files that stay",
            "last_batch": "by which the next run finds the log again: base_offset, last_offset and crc; null without",
            "unfit_timestamps": "timestamps that are null, as they do not fit",
            "findings_dropped": "findings that have no line: after the first 1000 of one code and file",
        },
    ),
    "file": (
        "A Parquet file of the partition.",
        {
            "name": "relative to the folder",
            "rows": "in it",
            "bytes": "of the file",
            "first_offset": "of its rows",
            "last_offset": "likewise",
            "provisional": "whether the next run replaces it",
            "is_sorted": "whether the rows are in the order of their offsets, as its metadata says",
            "columns": "by name: smallest, largest and nulls. Each is null where the file does not say it, as for "
            "keys, values and headers where one of them has more than 4 MiB",
            "sources": "the log files of its rows: path, base_offset, size, and of their last batch then last_offset "
            "and crc",
        },
    ),
    "finding": (
        (
            "Bytes that no file has, because they are no valid batch, or contradict others about their offsets; or "
            "what is wrong with the end of the log."
        ),
        {
            "path": "of the log file",
            "position": "of the bytes",
            "length": "their number",
            "code": "see FINDINGS in kdump-verify(1)",
            "severity": "error, warning, info",
        },
    ),
    "left_out": (
        (
            "Records that are in no file. Aborted and undecided ones have a line for each range of offsets; from the "
            "1000th of a run on, one line has all others."
        ),
        {
            "why": "aborted, undecided, damaged, missing, repeated, deleted, diverged",
            "records": "their number; null where it is not known",
            "first_offset": "they lie from here on; null where it is not known",
            "last_offset": "up to here; likewise",
        },
    ),
    "removed": (
        "What an earlier line says of a partition counts no more.",
        {"topic": "as of a partition", "partition": "likewise", "replica": "likewise"},
    ),
    "end": (
        "The last line of a commit. What follows the last such line was not committed.",
        {"crc32c": "of all bytes before this line"},
    ),
}

ABOUT = [
    (
        "kdump convert makes tables of the records of logs, or a new log, without a broker. It reads every format of "
        "a log, writes one output, OUT, and changes nothing in a PATH. What is no valid batch is left out and "
        "reported; the rest is converted."
    ),
    (
        "OUT is a folder of Parquet files, unless its suffix or --to says otherwise. Without --topic, topics of Kafka "
        "itself are left out; so are directories with -delete, -stray or -future that no PATH names, and records below "
        "the log start offset, which were deleted. --include brings them back. --from-json and --partition choose "
        "partitions, --offset and --time records: a range begins with its first value and ends before its second one."
    ),
    (
        "--dry-run reads and checks the same, and writes nothing. It says what of each partition would be converted, "
        "and how much space is free where OUT would be; with --to log also how large the segments would be."
    ),
    (
        "An output that is one file has one writer, with a thread beside it that decodes: several would not write "
        "NDJSON or CSV faster. With --schemas they do, as decoding the values is most of the work then: ndjson and "
        "csv have a writer for each of the --jobs from 8 MiB of logs on, and the bytes of OUT are the same. arrow, and "
        "what goes to standard output, always has one. Of every output --jobs gives processes for reading headers, "
        "merging copies and counting a dry run; for writing on all cores take parquet or log. All headers are read, "
        "and copies merged, before the first record is written."
    ),
    (
        "A writer of Parquet needs up to 320 MiB of memory, and the bytes of the largest batch, as it is stored and "
        "decompressed. A record of more than 16 MiB needs up to six times its size in place of the latter."
    ),
    (
        "In text a partition is one line, path: rows, offsets, where the next run goes on, and what was left out. "
        "Lines with the label note say what a reader of the output has to know. Where OUT is standard output, "
        "the report goes to standard error."
    ),
]
OUTPUTS = {
    "parquet": (
        "A folder with files <topic>-<partition>-<first offset>-<last offset>.parquet, both offsets with 20 digits. "
        "A name that would begin with a dot or an underscore begins with ~, since readers of folders pass over such "
        "files. With --replica all ~ and a checksum of the path of the copy stand after the partition. "
        "Columns have the names, types and order of Spark's source of Kafka (see COLUMNS). Rows are in the "
        "order of their offsets. The files are compressed with zstd unless --codec says otherwise: none, "
        "snappy, gzip, lz4, zstd. Files do not lie in folders topic=.../partition=...: where these columns are in the "
        "files too, readers refuse the folder, or make a number of a topic named 2024. --partition-folders makes such "
        "folders, and leaves both columns out of the files."
    ),
    "arrow": (
        "An Arrow IPC file; on standard output, and in a file with the suffix .arrows, an IPC stream. --codec: none, "
        "lz4, zstd."
    ),
    "ndjson": (
        "One JSON object a row, with the names of the columns and nothing else. Bytes are a string where they are "
        'valid UTF-8, else {"base64": "..."}. Headers are an array of objects with key and value. '
        "With --values json a value is the JSON itself, not a string."
    ),
    "csv": (
        'RFC 4180 in UTF-8, with a header line and CRLF. Null is an empty field without quotes, empty is "". Bytes '
        "are base64. Headers are the array that NDJSON has."
    ),
    "log": (
        "A new directory with a directory for each topic-partition, in record batches of magic 2, which every broker "
        "from 0.11 on loads, Kafka 4 too. Messages of magic 0 and 1 and the log of Kafka 0.7 are converted; the "
        "offsets of the latter count from 0. Each valid batch keeps its offsets, timestamps, attributes, producer id "
        "and epoch, sequences, leader epoch and codec. Markers of transactions and their aborted records are kept, so "
        "that consumers see the same in both isolation levels. With --codec, as in zstd:9, batches are compressed "
        "again. Records of different producers, epochs, leader epochs, timestamp types or transactions never come into "
        "one batch. Topic id and leader epochs are kept; indexes and producer snapshots are built. With another "
        "isolation than all, records are written without transactions and producer ids, and without markers; a note "
        "says so. With --time, a batch that has records outside the range is written with the others, which keep their "
        "offsets and sequences; with LogAppendTime all records of a batch have its time, and magic 0 and Kafka 0.7 "
        "have the time -1. A marker stays where a record of its transaction does, whatever its own time is. Where the "
        "range has a first time, the new log begins with the first batch that is left; its end is that of the source. "
        "OUT is new or empty; names are given when all is complete. --jobs converts several partitions at once; "
        "each partition has one writer."
    ),
}
GIVE_BACK = (
    "To give a broker the new log of a partition, stop the broker, move the directory of the partition out of the log "
    "directory to another place, copy OUT/<topic>-<partition> to where it was, with the owner of the directories "
    "beside it, and start the broker. It has to become the leader before other replicas come back, by an unclean "
    "election where it is not in sync; these begin without a directory and fetch the log from it. partition.metadata "
    "must have the topic id that the cluster has for the topic: a broker in KRaft mode sets a directory with another "
    "one aside as a stray one."
)
RUNS = [
    (
        "A folder of Parquet files has a manifest, _manifest.jsonl: which files belong to it, what each is made from, "
        "what was left out, and where the next run goes on. Read it to know which files to read: a run that is killed "
        "can leave others, which the next run removes. Files of others in the folder are never touched, and "
        "_manifest.lock keeps two runs apart. Each partition is appended to the manifest when it is done, in one step, "
        "and takes the place of what earlier lines say of it. A run that ends writes the manifest anew, with each "
        "partition once and one line end; so does the next run where one was killed."
    ),
    (
        "A second run into the folder goes on where the first one ended, with the same options: other columns, "
        "another isolation, range of time or codec are refused with status 3, and so is another first offset of a"
        " partition. Which partitions are chosen can change. Of a partition it goes on from next_offset, after it"
        " has found the last batch again, or only its offset where the log cleaner went past it. Where the log "
        "was cut since, or has another batch there, nothing of the partition changes, and the status is 3; "
        "--rewrite TOPIC-N converts it anew. It does not go back to offsets that an earlier run left out because of "
        "damage: while the folder lacks them, each run reports output/incomplete, an error, also where the log was "
        "repaired meanwhile. With --rewrite the partition gets new files; the old ones go when these are written."
    ),
    (
        "next_offset is the offset of the first record whose transaction is not decided yet, else that after the last "
        "batch. Committed records at or above it are in files named .provisional.parquet. The next run replaces "
        "these, and fills in the records that were decided since. So a table that must never "
        "take a row back reads the files without .provisional."
    ),
    (
        "With several processes, and with --master on Spark, a large partition is converted in parts of up to 512 MiB "
        "of its log, and each part has files of its own. The records are the same, and so is all that the manifest "
        "says but for the borders of files. The workers write into a folder _kdump-... in OUT, so all of them have to "
        "reach OUT at the same path; the command gives one file of each part its name, whatever Spark ran twice, and "
        "removes the folder. --master goes with --to parquet alone: an output that is one file has one writer, and a "
        "new log is written by this machine."
    ),
    (
        "The other outputs are made anew each time. A file has its name when it is complete, or not at all; where the "
        "name exists, --overwrite replaces it, else the status is 3. OUT may not lie inside a PATH, and a folder may "
        "not lie in a log directory."
    ),
]
ISOLATION = [
    (
        "A transactional record is committed or aborted by the next marker of its producer id in its partition. kdump "
        "looks for it in the whole log, also after the end that --offset or --from-json asks for. The transaction "
        "index is not needed. A record is undecided where no marker follows: its transaction is open, or was when the "
        "disk stopped. It is undecided, too, where damaged bytes or missing offsets between the record and the next "
        "marker can have held another one."
    ),
    (
        "read-committed, the default of tables, leaves out aborted and undecided records, and counts both. All others "
        "stay, also those after an open transaction, where a consumer has to wait; --until last-stable-offset ends "
        "where a consumer ends. read-uncommitted has every record. all, the default of --to log, has control "
        "records, too. The manifest and the summary name the isolation."
    ),
]
COPIES = [
    (
        "Where several PATHs hold a topic-partition, as the disks of several brokers do, the output has one log, "
        "filled from all copies: what is damaged in one comes from another. --replica all converts each copy on "
        "its own, with its path in the column replica; --replica refuse gives status 3. This is how copies are "
        "merged:"
    ),
]
RULES = (
    (
        "Copies belong together by the topic id in partition.metadata. Two ids under one name are two topics, "
        "which are never merged (replica/topic-id). --topic-id chooses one of them. Parquet files of both can be in "
        "one folder, and the manifest says with replica which topic each file is of; a new log has to be of one, and "
        "so has an output that is one file unless it has the column replica, which has the topic id then. Without ids "
        "the name decides, and a note says so."
    ),
    (
        "The reference is the copy whose log ends with the highest leader epoch; of several, the one with the "
        "greatest log end offset, then the first PATH. Every other copy counts up to where a broker would "
        "truncate it as a follower of the reference (KIP-101, KIP-279). What it has above has diverged: it is in "
        "no merged log, and is reported (replica/diverged)."
    ),
    (
        "Offsets that the reference cannot prove come from the valid batches of another copy, record by record "
        "where the borders of batches differ."
    ),
    (
        "Of a compacted partition each intact stretch comes from the copy that was cleaned furthest. An offset that "
        "is absent there was removed. Other copies fill only what it cannot prove; a note has the number of records "
        "that later ones with the same key may have replaced."
    ),
    (
        "The highest log start offset in a log-start-offset-checkpoint of any copy counts. Records below it were "
        "deleted; --include deleted keeps them."
    ),
    (
        "Records above the highest high watermark that is known stay, and a note has their number: they may never "
        "have been committed. A note says where no high watermark is known."
    ),
    (
        "Where copies of one history have different records at an offset, one was changed (replica/differs). The "
        "records of most copies are taken, else those of the copy that comes first by the second rule."
    ),
    "Transactions are decided in the merged log, not in each copy.",
    (
        "Inside one copy, too, no offset comes twice: segments that overlap and batches that lie twice are put in"
        " order as kdump recover --salvage does."
    ),
    (
        "Logs in directories whose names are no topic-partition are not copies of each other, and their rows are "
        "never in one table, unless --replica all gives each row its path; numbered files of one directory are one "
        "log. KRaft snapshots, bootstrap.checkpoint too, are not converted: kdump dump shows them."
    ),
)
MISSING = (
    "Of a single copy, a segment that is missing between two others is reported as segment/missing, an error, and "
    "offsets that are missing in a segment as offset/gap, a warning, unless the log is compacted. A valid batch that "
    "contradicts others about its offsets is left out, and reported: an error unless the same records with these "
    "offsets are kept, or another copy has what belongs in its place. The offsets that are missing for it are an "
    "error, too. A "
    "segment with the suffix .swap, which a broker was putting in the place of others, is read instead of these, as "
    "its next start would do, also an empty one; it is reported as file/leftover. "
    "Offsets that no copy has are reported as replica/missing, an error, with whether they lie below the high "
    "watermark. --to log makes one partition of a merge, which a broker can be given; it lacks these offsets. A log "
    "file of a copy that cannot be read is left out of the merge, and the other copies fill its offsets. The exit "
    "status is 3, and a note says it, since the copy may have had other records or a later history: with all copies "
    "readable, convert the partition anew. With --strict such a partition is not converted."
)
DAMAGE = [
    (
        "Bytes that are no valid batch are skipped, with a line in the report and in the manifest, with the code and "
        "the severity of kdump verify; after an error the exit status is 1. The offsets that are missing for it are "
        "said for each partition. A log that ends below its high watermark is checkpoint/beyond, an error. Of a batch "
        "in which a record cannot be parsed, the records before it are converted. Records whose offsets do not rise "
        "in their batch, or lie outside of it, are converted with these offsets, with the code record/delta: an error "
        "where no record has an offset of the batch, since nobody knows which record had it. Errors about copies "
        "count as damage; so does, with --strict, a key or value that is no JSON text under --keys json or --values "
        "json."
    ),
    (
        "With --strict nothing of a partition with damage is converted, and the status is 1 as well. An output that is "
        "one file is not written at all then. Damage that another copy makes good is a warning."
    ),
    (
        "What cannot be read (a file without permission, a log of Kafka 0.7 into a table) and what cannot be written "
        "(OUT exists or has other settings, another kdump works there, the disk is full) gives status 3. The other "
        "partitions are still converted; a partition or file that failed is not there in part."
    ),
    (
        "--io-limit bounds all reading of logs, also of what decides their order, their transactions and their copies: "
        "such a log is read more than once. Processes share the rate equally, also where some have nothing to read."
    ),
]
EXAMPLES = [
    ("Everything that a dead broker had, as Parquet; run it again to go on:", "kdump convert -o tables/ /data/kafka"),
    ("Would it fit, and what would be left out?", "kdump convert --dry-run -o tables/ /data/kafka"),
    ("One month:", "kdump convert --time 2026-11-01:2026-12-01 -o november/ /data/kafka"),
    (
        "Values that are JSON, in a pipe:",
        "kdump convert --values json --to ndjson -o - orders-3/ | jq -c .value",
    ),
    (
        "Values that were written with schemas, as a column of JSON; the schemas are on the same disk:",
        "kdump convert --schemas auto -o tables/ /data/kafka/orders-*",
    ),
    (
        "Text for a spreadsheet:",
        "kdump convert --columns offset,value --values utf8 -o out.csv orders-3/",
    ),
    (
        "Every record that three damaged copies still have, as the log to give a broker:",
        "kdump convert --to log -o merged/ /disk1/t-0 /disk2/t-0 /disk3/t-0",
    ),
    ("An old log for Kafka 4, compressed again:", "kdump convert --to log --codec zstd:9 -o new/ /old/orders-3"),
    (
        "Some offsets of a partition:",
        'kdump convert --from-json \'{"orders": {"3": [100, 200]}}\' -o x.csv /data',
    ),
]
