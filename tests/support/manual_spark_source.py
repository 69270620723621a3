"""The section of kdump-spark(7) about the data source: reads of what is there."""

from __future__ import annotations

from collections.abc import Iterator

SOURCE = (
    (
        'spark.read.format("kdump").load(PATH) reads Kafka\'s log files as a DataFrame, without a broker. PATH is a '
        "log directory, a topic-partition, a segment, a directory above them, or a glob; load takes several. "
        "The driver lists and plans, the tasks read: both have to see the paths, and have kdump installed for the same "
        "Python (PYSPARK_PYTHON)."
    ),
    (
        "The columns are those of Spark's source of Kafka, in its order and with its types: key, value, topic, "
        "partition, offset, timestamp, timestampType, and headers with includeHeaders. Options, refusals and sentences "
        'are its own as well, so that a query for format("kafka") moves by one word and a path; '
        "kafka.bootstrap.servers may stay."
    ),
    (
        ".schema(...) with a subset of the columns, in any order, is the projection, and the only one that Spark "
        "hands to a source in Python: offset alone takes half the time of all columns. No filter is pushed down: "
        "Spark 4.3.0 uses the result of a filtered read for the same read without the filter. What saves reading "
        "are the options about topics, partitions, offsets and times."
    ),
    (
        "A log is cut into ranges of about 128 MiB where its offset index says that a batch begins; a wrong index "
        "makes no wrong rows. Several directories of one topic-partition are copies, which become one log by the rule "
        "of kdump-convert(1): each task merges its range, and takes from one copy what another lost. The planner reads "
        "checkpoints, indexes, and first and last batches. It reads all batches of copies whose histories part, and "
        "the headers of copies that lie in no log directory."
    ),
    (
        "With kafka.isolation.level=read_committed a read ends at the last stable offset of each partition, as a "
        "consumer does, also where an end offset is given. The planner finds it from the newest producer snapshot on; "
        "without one it reads the whole partition. Each task reads on after its range until the markers of its "
        "transactions have come. A transaction that is open at the end of the log is not read. One whose marker damage "
        "may hold is not read either, and counts as lost."
    ),
    (
        "An installed kdump is found by the name of the format. Where another package whose name begins with pyspark_ "
        "cannot be imported, Spark finds no source at all; then, and from a source tree, call "
        "spark.dataSource.register(kdump.spark.KdumpSource). Spark looks once in a session: a package that is "
        "installed later is not found."
    ),
)
OPTIONS = {
    "path": "what load is given; several as a JSON array in paths",
    "assign": (
        'partitions as {"topic":[0,1]}. One that is not there is left out; a topic that is not there is an error. Of '
        "assign, subscribe and subscribePattern only one; without any, everything under the paths but internal topics"
    ),
    "subscribe": "topics, with commas between them; one that is not there is an error",
    "subscribePattern": "a regular expression of Python that is searched for in the names; never an internal topic",
    "startingOffsets": (
        'earliest (the default) or {"topic":{"0":23,"1":-2}} for exactly the partitions that are read; -2 is earliest'
    ),
    "endingOffsets": "latest (the default) or offsets that are not read any more; -1 is latest",
    "startingTimestamp": (
        "milliseconds: the first offset whose timestamp is this one or later, found by the time index where a batch "
        "confirms it, else by reading. Comes before startingOffsetsByTimestamp, and that before startingOffsets; so do "
        "the ending ones"
    ),
    "endingTimestamp": "likewise; the log end where no record is that late",
    "startingOffsetsByTimestamp": 'a timestamp for each partition, {"topic":{"0":1700000000000}}',
    "endingOffsetsByTimestamp": "likewise",
    "startingOffsetsByTimestampStrategy": "error (the default), or latest where no record is that late",
    "failOnDataLoss": (
        "true (the default): a damaged batch, offsets that are missing and were not compacted, a start below the log "
        "start offset, an end beyond the log end, a log that ends below its high watermark: the query fails with "
        "offset, file, position and the code of the finding. false: what is there is read, with one warning in a task"
    ),
    "includeHeaders": "true or false (the default): the column headers, null where a record has none",
    "minPartitions": "at least as many partitions of Spark, as far as there are offsets",
    "maxRecordsPerPartition": "the most offsets of a partition of Spark",
    "kafka.isolation.level": "read_uncommitted (the default), which reads aborted records too, or read_committed",
    "table": "records (the default), or batches, segments, producers, transactions, findings, groups: see below",
}
WITHOUT_EFFECT = (
    "Other kafka. options, groupIdPrefix, kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries and "
    "fetchOffset.retryIntervalMs are taken and change nothing; the options of a stream give a warning. "
    "kafka.auto.offset.reset, kafka.key.deserializer, kafka.value.deserializer, kafka.enable.auto.commit and "
    "kafka.interceptor.classes are refused, as Spark's source refuses them. Any other option is refused, with the name "
    "that is near."
)
DIFFERENCES = (
    "Unlike Spark's source of Kafka: assign, subscribe and subscribePattern may all be missing; .schema(...) is a "
    "projection and no error; an unknown option is an error; maxRecordsPerPartition always holds; a read beyond the "
    "end fails at once; a pattern is one of Python; gaps in the offsets of a log that was not compacted are data loss; "
    "the log ends at the last valid batch and not at the high watermark; a timestamp that does not fit microseconds is "
    "null; an internal topic that is named, as in subscribe=__consumer_offsets, gives its records, and from Spark's "
    "source none."
)
IN_SQL = (
    "In SQL take temporary views. Spark 4.3 keeps a table of its catalog (create table ... using kdump options (...), "
    "or location) and hands its options to no read: a query of it is refused, for want of a path, unless the query "
    'gives the options again, as spark.read.option("path", ...).table(NAME) does.'
)
TABLES = (
    'option("table", ...) gives what is known about the logs, with the columns of kdump.convert.tables: batches '
    "(every header, and whether its checksum is right), segments (the rows of kdump stat), producers, transactions "
    "(one row each, with its outcome), findings (what kdump verify finds) and groups (what groups have committed, and "
    "their lag, as kdump stat --by group says it; a row for each topic-partition of a group). Each copy of a topic- "
    "partition has rows of its own; path tells them apart. groups are read by one task from all paths together, "
    "copies of the log of a coordinator as the one log that kdump convert makes of them. "
    "Damage never fails such a query. With failOnDataLoss=false a path that cannot be read is a warning. findings has "
    "those about the files of a log directory itself where no topics are chosen, but not those for which kdump verify "
    "compares the partitions of a log directory with its checkpoints."
)
EXAMPLES = (
    'reader = spark.read.format("kdump").option("subscribe", "orders")',
    'orders = reader.load(["/disks/1", "/disks/2", "/disks/3"])',
    "",
    'findings = spark.read.format("kdump").option("table", "findings")',
    'findings.load("/disks/*").where("severity = \'error\'").show()',
    "",
    "create temporary view orders using kdump",
    "options (path '/disks/1', subscribe 'orders')",
)


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual import escaped, listed, paragraphs, prose

    yield from paragraphs("THE DATA SOURCE", SOURCE)
    yield ".Ss Options"
    yield from listed(OPTIONS.items())
    for text in (WITHOUT_EFFECT, DIFFERENCES):
        yield ".Pp"
        yield from prose(text)
    yield ".Ss Tables"
    yield from prose(TABLES)
    yield ".Ss Examples of the data source"
    yield from prose(IN_SQL)
    yield ".Bd -literal -offset 2n"
    yield from ("\\&" + escaped(line) for line in EXAMPLES)
    yield ".Ed"
