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
    "first_offset": "of the first batch; where that is a compressed message of magic 0 or 1, the last in it unless it "
    "was opened (--deep, --open-wrappers); null where the line is not about one copy of a partition or a part of it",
    "last_offset": "of the last batch; likewise",
    "log_bytes": "of the log files",
    "batch_bytes": "of the valid batches",
    "companions_bytes": "of the indexes",
    "other_bytes": "of files that belong to no segment: producer snapshots, checkpoints, undo folders, all files of a "
    "directory with -delete, -stray or -future; of a log directory also its root_bytes. The next four are parts of it",
    "deleted_bytes": "of files with .deleted, and of directories with -delete: a broker deletes them soon",
    "stray_bytes": "of directories with -stray",
    "future_bytes": "of directories with -future",
    "undo_bytes": "of the undo folders of kdump recover",
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
    "damage": "an object: stretches (their number), bytes (in no valid batch), and the first ones (path, position, "
    "length, reason). The reason is gap or zeros (between batches), torn, garbage or zeros (after the last one), crc, "
    "magic or limit (of a batch; limit: larger than --max-batch-bytes), unsearched or shrunk. With codec, records, or "
    "limit for what is too large before compression, it is a valid batch whose records cannot be read: its bytes are "
    "among batch_bytes. Without --deep no checksum is computed, so that there can be more",
    "write_rate": "an object: bytes are those of the batches by their max timestamps in the last 48 buckets, each "
    "bucket_ms wide, up to end_ms",
    "growth": "an object: bytes and records of the last seven days or less, how many days these are, and "
    "bytes_per_day; what was deleted or compacted since is missing",
    "opened": "with --deep, an object about the records: batches, unread (batches whose records cannot be read; "
    "damage says which), records, bytes (before compression), "
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
    "producers": "the number of producer ids: an object with value, estimate (true above a million) and error",
    "first_open_offset": "of the oldest open transaction; null without one",
    "keys": "with --deep, an object: distinct, live_records, live_bytes, dropped_records and dropped_bytes (by a "
    "compaction; records of aborted transactions count like others), live_tombstones and shadowed_tombstones (those "
    "without a key among them), each "
    "with value, estimate and error (one standard error); cleanable, the same without the active segment; by_records "
    "and by_bytes, the heaviest keys (of each at most the first 96 bytes), whose weight is too small by at most error; "
    "no other key weighs more than the last of them and by_records_error or by_bytes_error together; partitioner; else "
    "null",
    "epochs": f"of the leaders: {EPOCHS}",
    "retention": "with --retention, an object: settings (given and assumed name those that were given, and those that "
    "have the default of Kafka; stored is an object of those of __cluster_metadata: topic, broker or all-brokers by "
    "name), deletes (segments with the reason log-start, size or time), stays, blocker, next, "
    "held_back, age_warnings (the batches have another time than the one that counts); else null",
    "compaction": "with --compaction, an object: settings, first_dirty_offset, first_uncleanable_offset, clean_bytes, "
    "cleanable_bytes, dirty_ratio, starts_because, blocker, needs_bytes, stoppers (batches that stop the log cleaner); "
    "else null",
    "unreported": "with --retention or --compaction, why there is no report: set-aside, one-file, kafka-0.7 or "
    "cluster-metadata; else null",
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
    "root_bytes": "of what lies in it and belongs to no partition: files at its root, the cache of the indexes of "
    "remote segments, whatever somebody put there; null where PATH does not name the directory or one above",
    "volume_bytes": "the size of the file system; null where it is not known",
    "volume_used_bytes": "what is used of it; likewise",
    "volume_free_bytes": "what is left of it for an ordinary user; likewise",
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
    "free": "with --free, an object: wanted_bytes, enough, bytes, most_bytes (with retention.bytes too), due_bytes (go "
    "anyway, by settings that are given or stored), leaving_bytes (of -delete), stray_bytes, linked_bytes, steps "
    "and alternatives (topic, setting, value, bytes, segments, lost_ms, command); else null",
    "old_formats": "with --upgrade, an object for each old magic; else null",
    **COMMON_END,
}
PRODUCER = {
    "producer_id": "of the producer",
    "producer_epoch": "the largest one of its data batches; brokers show the next one after a marker (KIP-890)",
    "first_timestamp": "the smallest max timestamp of its batches; -1 without one",
    "last_timestamp": "the largest one",
    "mean_batch_bytes": "of its batches",
    "codecs": "an array of the codecs of its batches",
    "sampled": "true above a million producers: the rows are those with the smallest hashes of their ids",
    "sample_share": "the share of all producers that have a row",
    **VOLUME,
}
_OFFSET = {
    "topic": "its name; of a share group its id where no partition.metadata says the name",
    "partition": "its number",
    "committed_offset": "the last one that is valid: not that of an aborted or open transaction; null without one",
    "leader_epoch": "of the committed offset; null without one",
    "metadata": "the text of the commit",
    "commit_timestamp_ms": "when it was committed",
    "start_offset": "of a share group: the start offset of the share-partition",
    "end_offset": "up to where the partition can be read; null where it is in none of the PATHs",
    "end_source": "high-watermark, of the checkpoint of its log directory, or else log-end",
    "lag": "end_offset - committed_offset, of a share-partition end_offset - start_offset without the records whose "
    "delivery is complete; never below 0; null where one of them is",
    "expires_ms": "when a coordinator removes the offset, by --offsets-retention or by the time in the commit; null "
    "while it does not: a member reads the topic",
    "expired": "whether that time has come, so that the next cleanup removes it",
    "pending": "an array of commits in open transactions: producer_id, committed_offset, commit_timestamp_ms",
    "member_id": "of the member that has the partition; null without one, and in a streams group",
    "delivery": "of a share group, an object: the number of offsets from start_offset on by delivery state",
}
_OF_GROUP = {
    "group": "its id",
    "group_type": "classic, consumer, share or streams; null where only records of a deleted group are left",
    "state": "Empty, Stable, Assigning, Reconciling; Dead for a group that there is not (any more); null where "
    "the partition of __consumer_offsets that would say it was not read",
}
GROUP = {
    **_OF_GROUP,
    "protocol_type": "of a classic group; null where it commits offsets without members",
    "protocol": "of a classic group: the assignor",
    "epoch": "of the group, its generation",
    "lag": "the sum of those that are known; null without one",
    "lag_unknown": "how many of its topic-partitions have no known lag",
    "last_commit_ms": "the time of the last commit",
    "expires_ms": "when the first of its offsets expires",
    "expired": "how many of its offsets have expired and are not yet removed",
    "pending": "how many of its topic-partitions have a commit in an open transaction",
    "ahead": "how many of its offsets lie beyond the end",
    "segments": "null",
    "batches": "null",
    "records": "of the group in the internal topics",
    "records_at_least": "the same",
    "bytes": "of these records, before compression",
    "allocated_bytes": "null",
    "share": "of the bytes of the records of all groups, from 0 to 1",
    "first_offset": "of its records in the log at path",
    "last_offset": "likewise",
    "tombstones": "among these records",
    "replicas": "an array of the copies of the log of its coordinator, that at path first; records come from all",
    "members": "an array of objects: member_id, instance_id, client_id, client_host, epoch, assigned_partitions",
    "partitions": "an array of objects with the fields of a line group_partition from topic to delivery",
}
GROUP_PARTITION = {
    **_OF_GROUP,
    **_OFFSET,
    "segments": "null, as the next ones are: they are those of the group",
    "batches": "null",
    "records": "null",
    "records_at_least": "null",
    "bytes": "null",
    "allocated_bytes": "null",
    "first_offset": "null",
    "last_offset": "null",
}
LINES: dict[str, tuple[str, Mapping[str, str]]] = {
    "log_directory": (
        "One for every log directory; where PATH names some of its partitions, the numbers are of these.",
        LOG_DIRECTORY,
    ),
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
    "group": (
        "With --by group, one for every group. The path is the directory of the log of its coordinator.",
        GROUP,
    ),
    "group_partition": ("With --by group_partition, one for every topic-partition of a group.", GROUP_PARTITION),
    "total": ("After the rows, one of everything. The path is null.", TOTAL),
}
ABOUT = [
    (
        "kdump stat measures logs. It reads the headers of the batches, and the bodies of control batches, in one "
        "pass. At a terminal it prints a summary, then the log directories, topics and partitions that take the "
        "most space."
    ),
    (
        "Sizes at a terminal are in KiB, MiB and GiB of 1024, and say what the blocks on the disk take, not what the "
        "files seem to have. A percentage is a share of everything that was measured; the longest bar of a table is "
        "that of its largest row. Others are files that belong to no segment: those that a broker is about to delete, "
        "undo folders, and the whole of a directory that is being deleted, stray or future. Daily is what was "
        "written, on average, in the last seven days. What lies in a log directory beside its partitions counts, too."
    ),
    (
        "The reports --retention, --compaction, --upgrade and --idle are about partitions, and in the formats json "
        "and text they are fields of the lines of partitions, which then come whatever --by says. An option that "
        "changes nothing without another one is refused."
    ),
    (
        "Without --deep it computes no checksum, and calls nothing clean. Damage that it meets is counted and "
        "makes the exit status 1; what comes after it is measured too."
    ),
    (
        "Without --deep it believes a header that fits the batches beside it. A wrong length shows as a rule, and is "
        "damage. A wrong timestamp, attribute or producer goes into the numbers as it stands, a number of records that "
        "is too small looks like compaction, and damaged records do not show. --deep checks all of these. No checksum "
        "covers the base offset and the leader epoch of a batch of magic 2: kdump verify checks what it can of them."
    ),
    (
        "Where a broker holds the lock of the log directory, a segment with damage is read again, up to four times: "
        "a batch that the broker is writing is no damage. A segment that it deleted meanwhile does not count."
    ),
    (
        "The bytes are those of the files, whatever their name; blocks are those that the file system gave them. A "
        "file with several names (hard links) counts once for each, and a symbolic link as its target."
    ),
    (
        "The reports --retention, --compaction, --upgrade and --free go by the rules of Kafka 4.3. The configuration "
        "of a topic is not in its directory. Where the log directory has __cluster_metadata-0, --retention and "
        "--compaction take what no option names from there: the value of the topic, else that of the broker, else that "
        "of all brokers. A setting that is not there either is assumed, and the report lists it: "
        "Kafka's default, with three exceptions. __consumer_offsets, __transaction_state, __share_group_state and "
        "__remote_log_metadata have the settings with which a broker creates them. A partition that the log cleaner "
        "has compacted has the policy compact; so has every partition in --compaction. --free assumes no limit: old "
        "segments that are still there show that the default is not in force."
    ),
    (
        "There is no report on retention and compaction of a file that was named alone, of a log of Kafka 0.7, of a "
        "directory with -delete, -stray or -future, and of __cluster_metadata, which its controllers bound by KRaft "
        "snapshots. Segments in remote storage are not known. Without checkpoints beside the partition the log end "
        "offset stands for the high watermark, and the base offset of the first segment for the log start offset; "
        "high_watermark_known and log_start_known are false then."
    ),
    (
        "--retention follows UnifiedLog.deleteOldSegments. A broker goes over a log three times: by log start offset, "
        "by size, by time. Each time it deletes whole segments, the oldest first, and stops at the first that stays. "
        "It deletes no segment that ends above the high watermark. It rolls and deletes the active segment too, "
        "unless that is empty. The age of a segment is that of the last entry of its time index, without one that of "
        "the file; age_warnings are segments whose batches say otherwise. The delete policies of kdump.Log differ: "
        "by the original documentation the active segment always stays, and no high watermark counts."
    ),
    (
        "A blocker of --retention says what keeps the oldest segment that stays. high-watermark: a replica is "
        "behind; bring the followers back in sync. future-timestamp: its largest timestamp is in the future, and "
        "everything after it waits; set retention.bytes, or delete records up to it (kafka-delete-records.sh). "
        "limits: it is not due; next says when. no-limit: neither retention.ms nor retention.bytes is set. policy: "
        "cleanup.policy does not delete. empty: only the empty active segment is left."
    ),
    (
        "A blocker of --compaction says why the log cleaner does not compact a partition. policy: cleanup.policy does "
        "not compact. nothing-cleanable: no bytes lie between first_dirty_offset and first_uncleanable_offset; "
        "bound_source says what holds it back: the active-segment (a smaller segment.ms rolls it earlier), the "
        "high-watermark (replicas are behind), an open-transaction (abort it: kafka-transactions.sh), or "
        "min-compaction-lag. dirty-ratio: needs_bytes more have to be written, or min.cleanable.dirty.ratio lowered. "
        "stopper: a batch stops the cleaner, which leaves the partition alone until the broker starts again; the log "
        "grows without bound. kdump recover repairs the damage."
    ),
    (
        "A stopper with the kind damage is bytes that are no valid batch; offset-range: a segment holds offsets that "
        "lie too far apart, and the cleaner splits it; segment-size: segments that are compacted into one can exceed "
        "2^31 - 1 bytes. Where stops is false, it may stop the cleaner. The cleaner checks no checksum: a damaged "
        "batch that does not stop it is written anew with a right one. So repair damage before a pass."
    ),
    (
        "--upgrade says which files a broker of Kafka 4.3 refuses when it starts after a clean shutdown. --free takes "
        "all PATHs for one disk. It counts the blocks of the segments and of their indexes. A file with another hard "
        "link frees nothing (linked_bytes). Its steps are settings of topics; retention.ms holds from now on, so that "
        "more goes with time. A terminal ends with the command of Kafka for each step, and with what to do while the "
        "broker is down; command has it in JSON. The policy of a topic is the stored one, as for --retention."
    ),
    (
        "--by group reads __consumer_offsets and __share_group_state, and says what every group has committed, its "
        "lag, when its offsets expire, its members, and what its records take in these topics: the lag of a cluster "
        "that is down. PATH has to hold the partitions of these topics and of those that the groups read, as all log "
        "directories of a cluster do. --by group_partition has a row for every topic-partition of a group."
    ),
    (
        "A committed offset is the last one that is valid after all transactions and tombstones, as a group "
        "coordinator has it; the rules of expiry are those of Kafka 4.3. Several copies of a partition of an internal "
        "topic are read as the one log that kdump convert makes of them: what damage hides in one copy comes from "
        "another one of the same topic id and the same history, and what a broker that follows the reference copy "
        "would truncate does not count. The reference copy is the one with the highest leader epoch, then with the "
        "highest log end offset. The end of any other partition is the highest high watermark of its copies. The "
        "topic of a share group is known by its id: partition.metadata says the name. Whether a streams group reads "
        "topics by a pattern is not known."
    ),
    (
        "These findings are about groups. group/ahead: an offset lies beyond the end of its partition, because records "
        "were lost; where the log goes as far as the offset, only the stored high watermark is old, which is info and "
        "shown in JSON alone. group/unread, an error: the log of a coordinator is damaged, so that no copy has what "
        "was there, or holds records that cannot be decoded; what is said of groups may be out of date. It is a "
        "warning where a copy that the log cleaner went over less far has filled damage of another one, with records "
        "that later ones may have replaced. replica/diverged and replica/differs: copies of the log of a coordinator "
        "have different records."
    ),
    (
        "An estimate is marked in JSON as estimate, with its error. Whether a number is exact depends on the data "
        "alone, not on the number of processes."
    ),
]
EXAMPLES = [
    ("What takes the space?", "kdump stat /data/kafka"),
    (
        "The partitions with the most absent offsets:",
        "kdump stat --by partition --top 9 --sort absent /data/kafka",
    ),
    ("Which groups lag, and by how much, in a cluster that is down?", "kdump stat --by group /data*/kafka"),
    (
        "The topic-partitions with the largest lag, as a table:",
        "kdump stat --by group_partition --top 20 --format csv /data/kafka",
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
