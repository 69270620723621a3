"""The section of kdump-spark(7) about logs that a DataFrame becomes."""

from __future__ import annotations

from collections.abc import Iterator

WRITE = (
    (
        'df.write.format("kdump").mode("append").save(DIRECTORY) writes the rows as new topic-partitions in record '
        "batch v2, as a broker leaves them after a clean stop. The columns are those of Spark's sink of Kafka (key, "
        "value, headers, topic, partition), and offset and timestamp. timestampType is allowed and not used: all "
        "timestamps are CreateTime, without microseconds. A null timestamp is -1, none; without the column all "
        "records have the time at which the job began. Any other column is refused."
    ),
    (
        "Offsets are kept where there is a column: then they have to rise in the rows of a task, and no two tasks "
        'may have offsets of a partition that overlap. repartition("topic", "partition") and '
        'sortWithinPartitions("topic", "partition", "offset") see to both. Without the column the offsets of a '
        "partition count from 0, the tasks one after another. A null partition, or no such column, is partition 0; "
        "with the option partitions it is the one that Kafka's producer chooses for the key (murmur2)."
    ),
    (
        "mode append adds topic-partitions. One that is there already is never added to: the job fails, and nothing "
        "of it is left. overwrite is refused. A log directory that a running broker holds is refused, too. Tasks "
        "write below DIRECTORY/.kdump-write-ID, which all workers and the driver have to see; the driver joins what "
        "they wrote, builds the indexes, and renames the topic-partitions last of all. A driver that was killed "
        "leaves that directory: remove it before a broker starts, which does not start with it."
    ),
    (
        "A broker takes a topic-partition for a stray one unless its partition.metadata has the id that the topic "
        "has in the cluster. So make the topic first, stop the broker, remove the empty topic-partition directories "
        "that it made, write with the option topicIds (kafka-topics.sh --describe shows the id), and start it. The "
        "batches have the leader epoch 0. Where the topic has more replicas, do the same on one broker, and let the "
        "others replicate."
    ),
)
WRITE_OPTIONS = {
    "topic": ("of all rows; without it the column topic says it, and null is refused"),
    "partitions": ("the number of partitions of each topic, for rows without a partition"),
    "topicIds": (
        'a JSON object of topic ids, as {"orders":"MBdAyDAwQ2uFxbiazqdk9g"}: these topics get a partition.metadata'
    ),
    "codec": (
        "none, gzip, snappy, lz4, zstd, with a level as in zstd:9. kafka.compression.type is taken, too; other "
        "options with kafka. have no effect"
    ),
    "batchBytes": (
        "the bytes of a batch before compression, 16384 unless it is given; a larger record has a batch of its own"
    ),
    "segmentBytes": ("a segment rolls before it has more, 1 GiB unless it is given"),
    "includeHeaders": ("without effect, as in Spark's sink"),
}


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual_spark_pipelines import section_with_options

    yield from section_with_options(
        ("WRITING LOGS", WRITE),
        ("The options:", WRITE_OPTIONS),
        ("One history over the replicas, as new logs with the same offsets:", "to_logs"),
    )
