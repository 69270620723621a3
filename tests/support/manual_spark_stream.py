"""The section of kdump-spark(7) about streams."""

from __future__ import annotations

from collections.abc import Iterator

STREAM = (
    (
        'spark.readStream.format("kdump").load(PATH) follows a log directory that grows: the disk of a broker, or a '
        "copy that rsync brings up to date, replication-offset-checkpoint before the logs. Columns and options are "
        "those of a batch. startingOffsets is latest unless it is given; an ending offset is refused. "
        "trigger(availableNow=True) reads what is there and ends: run again with the same checkpointLocation, it "
        "goes on where it ended. The offsets in the checkpoint have the shape of those of Spark's source of Kafka, "
        "so that a query can move from one to the other."
    ),
    (
        "A stream ends at the last valid batch, and at or below the high watermark that "
        "replication-offset-checkpoint says: above it a broker can cut records off, and write others with the same "
        "offsets. A broker writes that file every 5 seconds, and when it stops. A partition without a line in it is "
        "refused; one that is new is read when it has its line. With kafka.isolation.level=read_committed a stream "
        "also ends at the last stable offset."
    ),
    (
        "A stream reads one replica of each partition: name one broker's log directory. To read a dead cluster, "
        "where no replica has everything, use a batch."
    ),
    (
        "Spark does not check that offsets never go back. kdump does: a partition that is gone, a log that was cut "
        "back, records that retention deleted before they were read, a new partition that does not start at 0, and a"
        " leader-epoch-checkpoint that says that other records have offsets that were read. With "
        "failOnDataLoss=true, the default, the query ends with the sentence of Spark's source of Kafka. With false "
        "there is a warning, and the stream goes on at what is there; where a log was cut back, at the end of it, "
        "and the records that come in their place are read. What leader-epoch-checkpoint said is kept as long as the"
        " query runs, and not in Spark's checkpoint. The log cleaner can remove records before a stream comes to "
        "them: a later record has their key."
    ),
)
STREAM_OPTIONS = {
    "endAt": (
        "high-watermark (the default), or log-end: up to the last valid batch. On a replica that is not the leader "
        "of a partition, records above the high watermark can be replaced later by others with the same offsets, and"
        " the stream has read the wrong ones"
    ),
    "maxOffsetsPerTrigger": (
        "the most offsets of a batch, shared among the partitions by what each has, at least one for each"
    ),
    "minOffsetsPerTrigger": ("a batch with fewer offsets waits; not with availableNow"),
    "maxTriggerDelay": ("for so long, 15m unless it is given"),
}


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual_spark_pipelines import section_with_options

    yield from section_with_options(
        ("STREAMS", STREAM),
        ("Options of streams alone, besides those of a batch:", STREAM_OPTIONS),
        ("What has come since the last time, as Parquet:", "follow"),
    )
