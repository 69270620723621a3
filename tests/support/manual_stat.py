"""The words of the manual about kdump stat that the program cannot know of itself: what a field means."""

from __future__ import annotations

from collections.abc import Mapping

SHARE = "of all bytes that were measured on the disks, from 0 to 1"
COMMON = {
    "topic": "of the partition; null where no directory says it",
    "partition": "its number; likewise",
    "segments": "that were read",
    "batches": "that are valid",
    "records": "data records as stored, with those of aborted transactions, without control records; null where "
    "compressed messages of magic 0 or 1 were not opened (--open-wrappers)",
    "records_at_least": "the same, with one record for each message that was not opened",
    "bytes": "of all files",
    "allocated_bytes": "the blocks that they take on the disk",
    "share": SHARE,
    "first_offset": "of the first batch; null for more than one partition",
    "last_offset": "of the last batch; likewise",
    "log_bytes": "of the log files",
    "batch_bytes": "of the valid batches",
    "companions_bytes": "of the indexes",
    "other_bytes": "of files that belong to no segment: producer snapshots, checkpoints, undo folders, and all files "
    "of a directory with -delete, -stray or -future",
    "tail_zero_bytes": "zeros at the end of log files: preallocated space",
    "empty_segments": "log files without a byte",
}
COMMON_END = {
    "control_batches": "of transactions, of leader changes",
    "control_records": "in them",
    "aborted_records": "of aborted transactions; they are among records, too",
    "smallest_timestamp": "of the first records of the batches, in milliseconds since the epoch; null without one",
    "smallest_is_bound": "true where a batch can hold an older record than its first one",
    "largest_timestamp": "of all batches",
    "compacted": "whether a batch shows that the log cleaner wrote it",
    "batch_sizes": "of the batches in bytes, a distribution: an object with count, sum, minimum, maximum, mean, p50, "
    "p90 and p99, and estimate and error: with estimate true the last three are exact up to the relative error",
    "records_per_batch": "a distribution",
    "codecs": "an object of volumes (batches, records, records_at_least, bytes) by codec",
    "magic": "an object of volumes by magic",
    "timestamp_types": "an object of volumes by timestamp type",
    "idempotent": "the volume of the batches with a producer id",
    "transactional": "the volume of the batches of transactions",
    "transactions": "an object: count, committed, aborted, open, and the distributions durations_ms, bytes, records",
    "damage": "an object: the number of damaged stretches, their bytes, and the first ones (path, position, length, "
    "reason). Without --deep no checksum is computed, so that there can be more",
    "write_rate": "an object: bytes are those of the batches by their max timestamps in the last 48 buckets, each "
    "bucket_ms wide, up to end_ms",
    "growth": "an object: bytes and records of the last seven days or less, how many days these are, and "
    "bytes_per_day; what was deleted or compacted since is missing",
    "opened": "with --deep, an object about the records: batches, unread, records, bytes (before compression), "
    "null_keys, empty_keys, tombstones, key_sizes and value_sizes (distributions), codecs (with the ratio), shapes of "
    "the values, timestamps, header_keys, schemas (ids in the wire format of Confluent), largest (with offsets; "
    "null for several partitions); else null",
}
VOLUME = {
    "segments": "null",
    "batches": "that are valid",
    "records": COMMON["records"],
    "records_at_least": COMMON["records_at_least"],
    "bytes": "of these batches",
    "allocated_bytes": "null",
    "share": "of the bytes of all batches, from 0 to 1",
    "first_offset": "null",
    "last_offset": "null",
}
ABSENT = (
    "offsets of the span that no record has: what compaction or deletion took; null where a count is not known. Of "
    "several copies each counts"
)
EPOCHS = "an array of epoch and start_offset"
SEGMENT = {
    **COMMON,
    "base_offset": "in the name of the file; null without one",
    "active": "whether it is the active segment",
    "modified_ms": "the modification time of the log file",
    "last_time_index_entry": "of the time index: an object with timestamp and offset; null without one",
    "epochs": f"of the leaders: {EPOCHS}",
    **COMMON_END,
}
PARTITION = {
    **COMMON,
    "directory": "its log directory; null without one",
    "state": "delete, stray or future, of which only the space counts; else null",
    "log_start_offset": "of the checkpoint, else of the first batch or segment",
    "log_end_offset": "after the last batch",
    "high_watermark": "that the log directory stores; null without one",
    "offset_span": "log end offset less log start offset",
    "absent": ABSENT,
    "producers": "the number of producer ids",
    "producers_estimate": "true above a million: then the number is an estimate",
    "first_open_offset": "of the oldest open transaction; null without one",
    "keys": "with --deep, an object: distinct, live_records, live_bytes, dropped_records and dropped_bytes (by a "
    "compaction; records of aborted transactions count like others), live_tombstones and shadowed_tombstones, each "
    "with value, estimate and error (one standard error); cleanable, the same without the active segment; by_records "
    "and by_bytes, the heaviest keys (of each at most the first 96 bytes), whose weight is too small by at most error; "
    "no other key weighs more than the last of them and by_records_error or by_bytes_error together; partitioner; else "
    "null",
    "epochs": f"of the leaders: {EPOCHS}",
    "retention": "with --retention, an object: settings (given and assumed name those that were given, and those that "
    "have the default of Kafka), deletes (segments with the reason log-start, size or time), stays, blocker, next, "
    "held_back, age_warnings (the batches have another time than the one that counts); else null",
    "compaction": "with --compaction, an object: settings, first_dirty_offset, first_uncleanable_offset, clean_bytes, "
    "cleanable_bytes, dirty_ratio, starts_because, blocker, needs_bytes, stoppers (batches that stop the log cleaner); "
    "else null",
    "upgrade": "with --upgrade, an object: ready, formats (one for each old magic), refused (files that a 4.x broker "
    "does not start with), error; else null",
    "last_written_ms": "with --idle, when it was written to; else null",
    **COMMON_END,
}
TOPIC = {
    **COMMON,
    "partitions": "the number of partitions",
    "copies": "of the partition with the most copies",
    "set_aside": "directories with -delete, -stray or -future",
    "offset_span": "of all copies",
    "absent": ABSENT,
    "partitioner": "with --deep, how many of the keys are in the partition where murmur2 (Java) and crc32 (librdkafka) "
    "put them; partitioner is the one that at least 99 % fit, misplaced are keys elsewhere; null where the partitions "
    "are not at hand, and --partitions is not given",
    **COMMON_END,
}
LOG_DIRECTORY = {
    **COMMON,
    "partitions": "that a broker loads",
    "set_aside": "directories with -delete, -stray or -future",
    "root_bytes": "of the files at its root; not among bytes",
    "volume_bytes": "the size of the file system; null where it is not known",
    "volume_free_bytes": "what is left of it; likewise",
    **COMMON_END,
}
TOTAL = {
    **COMMON,
    "log_directories": "that were read",
    "topics": "in them",
    "partitions": "of different names",
    "copies": "of partitions",
    "set_aside": "directories with -delete, -stray or -future",
    "offset_span": "of all copies",
    "absent": ABSENT,
    "deep": "whether every checksum and record was checked",
    "interrupted": "whether the run was: then these are the numbers so far",
    "free": "with --free, an object: wanted_bytes, enough, bytes, due_bytes (go anyway), leaving_bytes (of -delete), "
    "stray_bytes, steps and alternatives (topic, setting, value, bytes, segments, lost_ms); else null",
    "old_formats": "with --upgrade, an object for each old magic; else null",
    **COMMON_END,
}
PRODUCER = {
    "producer_id": "of the producer",
    "producer_epoch": "its largest one",
    "first_timestamp": "the smallest max timestamp of its batches; -1 without one",
    "last_timestamp": "the largest one",
    "mean_batch_bytes": "of its batches",
    "codecs": "an array of the codecs of its batches",
    "sampled": "true above a million producers: the rows are those with the smallest hashes of their ids",
    "sample_share": "the share of all producers that have a row",
    **VOLUME,
}
LINES: dict[str, tuple[str, Mapping[str, str]]] = {
    "log_directory": ("One for every log directory.", LOG_DIRECTORY),
    "topic": ("One for every topic; its copies in several log directories are added.", TOPIC),
    "partition": ("One for every copy of a partition.", PARTITION),
    "segment": ("With --by segment, one for every segment.", SEGMENT),
    "producer": ("With --by producer, one for every producer id, in all partitions together.", PRODUCER),
    "codec": ("One for every codec. The path is null.", {"codec": "its name", **VOLUME}),
    "magic": ("One for every magic. The path is null.", {"magic": "its number", **VOLUME}),
    "hour": (
        "With --by hour, one for every bucket of time with batches.",
        {"start_ms": "of the bucket", "bucket_ms": "its width: --bucket", **VOLUME},
    ),
    "total": ("After the rows, one of everything. The path is null.", TOTAL),
}
ABOUT = [
    (
        "kdump stat measures logs. It reads the headers of the batches, and the bodies of control batches, in one "
        "pass. At a terminal it prints a summary, then the log directories, topics and partitions that take the "
        "most space."
    ),
    (
        "Without --deep it computes no checksum, and calls nothing clean. Damage that it meets is counted and "
        "makes the exit status 1; what comes after it is measured too."
    ),
    (
        "The reports --retention, --compaction, --upgrade and --free go by the rules of Kafka 4.3. A setting that "
        "no option names has the default of Kafka, and the report says so: the configuration of a topic is not in "
        "its directory. The rules of --retention are those of UnifiedLog.deletableSegments: whole segments, the "
        "oldest first, by log start offset, then by size, then by time; none at or above the high watermark; the "
        "active segment is rolled and deleted where it is not empty. The delete policies of kdump.Log follow the "
        "original documentation, by which the active segment stays."
    ),
    (
        "An estimate is marked in JSON as estimate, with its error. Whether a number is exact depends on the data "
        "alone, not on the number of processes."
    ),
]
EXAMPLES = [
    ("What takes the space?", "kdump stat /data/kafka"),
    (
        "The ten partitions with the most absent offsets:",
        "kdump stat --by partition --top 9 --sort absent /data/kafka",
    ),
    ("What frees 50 GiB, and what does it cost?", "kdump stat --free 50g /data/kafka"),
    (
        "What would retention of three days delete now?",
        "kdump stat --retention --retention-ms 3d /data/kafka/orders-3",
    ),
    ("Who still writes old formats?", "kdump stat --upgrade /data/kafka"),
    ("The producers with the smallest batches:", "kdump stat --by producer --format csv /data/kafka/orders-3"),
    (
        "Records of each topic, with jq:",
        "kdump stat --format json /data/kafka | jq 'select(.type == \"topic\") | .topic, .records'",
    ),
]
