"""The checks `checkpoint/*`, `metadata/*` and `properties/*`: the small files of a log directory against its logs.

What a broker of Kafka 4.3.1 does with them when it starts, by experiment:

=================================  =====================================================================================
file                               what happens
=================================  =====================================================================================
any of the four checkpoints        malformed: the log directory goes offline. A broker without another one, or with its
                                   metadata log there, stops. Where only a number in a line is malformed: all recovery
                                   points are 0; all logs start at their first segment; no replica is served, because
                                   high watermarks are missing; the log cleaner stops
recovery-point-offset-checkpoint   above the log end offset: lowered to it; no line: 0, the whole log is recovered
replication-offset-checkpoint      outside the log: moved into it; no line: 0
log-start-offset-checkpoint        below the first segment: not used; above the log end offset: all segments are deleted
cleaner-offset-checkpoint          outside the log: cleaning begins again at the log start offset
partition.metadata                 malformed: the log is refused, and the broker does not start; missing or with a topic
                                   id that the cluster does not know: the directory is renamed to -stray
meta.properties                    malformed: as a checkpoint; without the node's id: the broker does not start
quorum-state                       malformed: the broker does not start
.kafka_cleanshutdown               only that it is there counts
=================================  =====================================================================================

A broker drops the lines of partitions that are not in the log directory when it writes the checkpoint again. Of two
lines for one partition the later one counts. After a broker was killed, any line can be missing or too low, by some
seconds, or by a minute for the log start offset. A line that is too high means that the log lost its end, with the
page cache or by truncation.
"""

import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from kdump.format import checkpoint
from kdump.format.checkpoint import CheckpointError
from kdump.format.naming import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Kind,
    TopicPartition,
    companion_kind_of,
)
from kdump.format.partition_metadata import parse_partition_metadata
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Finding, FindingValue, Severity, make_finding

# The log start offsets come first: others are compared with them.
_OFFSETS = {
    LOG_STARTS: "log start offset",
    CLEANER_OFFSETS: "cleaner offset",
    RECOVERY_POINTS: "recovery point",
    HIGH_WATERMARKS: "high watermark",
}
CHECKPOINTS = tuple(sorted(_OFFSETS))
"""The four checkpoints of a log directory that hold an offset for each partition."""


class PartitionOffsets(NamedTuple):
    """What the files of one partition say. `log_start_offset` is the base offset of its first segment.

    `log_end_offset` is one above the last offset, None where damage hides it. `state` comes from the directory name:
    "", "future", "delete" or "stray".
    """

    log_start_offset: int
    log_end_offset: int | None
    topic_id: str | None = None
    state: str = ""


def check_partition_metadata(path: str, data: bytes) -> Iterator[Finding]:
    """Yield metadata/format where a partition.metadata cannot be read."""
    try:
        parse_partition_metadata(data)
    except CheckpointError as error:
        yield make_finding("metadata/format", path, 0, len(data), problem=str(error))


def topic_id(data: bytes) -> str | None:
    """The topic id of a partition.metadata, None where it cannot be read."""
    try:
        return parse_partition_metadata(data).topic_id
    except CheckpointError:
        return None


def check_properties(path: str, data: bytes) -> Iterator[Finding]:
    """Yield properties/format where a meta.properties, quorum-state or .kafka_cleanshutdown cannot be read."""
    severity = None
    try:
        # Only the root of a log directory and the metadata log have one of these files.
        match companion_kind_of(path):
            case Kind.META_PROPERTIES:
                from kdump.format.meta_properties import parse_meta_properties

                meta = parse_meta_properties(data)
                # MetaProperties reads a file without it, but every broker refuses it.
                if meta.node_id is None:
                    raise CheckpointError("broker.id is missing")
            case Kind.QUORUM_STATE:
                from kdump.format.quorum_state import parse_quorum_state

                parse_quorum_state(data)
            case Kind.CLEAN_SHUTDOWN:
                from kdump.format.clean_shutdown import parse_clean_shutdown

                severity = Severity.WARNING
                parse_clean_shutdown(data)
    except CheckpointError as error:
        yield make_finding("properties/format", path, 0, len(data), severity=severity, problem=str(error))


def check_offset_checkpoints(
    log_directory: str,
    contents: Mapping[str, bytes | None],
    facts: Mapping[TopicPartition, PartitionOffsets],
    listed: Collection[TopicPartition] = (),
) -> Iterator[Finding]:
    """Check the offset checkpoints of a log directory, by file name, against its partitions, and their topic ids.

    A file that is missing in `contents`, or None there, does not exist: a broker creates it. Where a partition has
    several directories, `facts` holds the one that a broker serves. Of those that are only `listed`, nothing is known:
    they could not be read.
    """
    starts = {partition: facts_of.log_start_offset for partition, facts_of in facts.items()}
    for name in _OFFSETS:
        data = contents.get(name)
        if data is None:
            continue
        path = os.path.join(log_directory, name)
        try:
            for _ in checkpoint.offset_entries(data):
                pass
        except CheckpointError as error:
            yield make_finding("checkpoint/format", path, 0, len(data), problem=str(error))
            continue
        lines: dict[TopicPartition, _OffsetLine] = {}
        counts = Counter[TopicPartition]()
        for partition, line in _lines(data):
            offsets = facts.get(partition)
            if offsets is None and partition in listed:
                continue
            if offsets is None or offsets.state in ("delete", "stray"):
                # The next start finishes a deletion that has begun, and drops the line with it.
                severity = None if offsets is None else Severity.INFO
                yield _found(
                    "checkpoint/unknown",
                    path,
                    partition,
                    line,
                    severity=severity,
                    state=offsets.state if offsets else "",
                )
            else:
                counts[partition] += 1
                lines[partition] = line
        for partition, line in lines.items():
            if counts[partition] > 1:
                yield _found("checkpoint/duplicate", path, partition, line, count=counts[partition])
            # A replica that is being moved here has no line yet. A line for it is an old one.
            if facts[partition].state != "future":
                yield from _check_offset(
                    path, name, partition, line, starts[partition], facts[partition].log_end_offset
                )
            if name == LOG_STARTS:
                starts[partition] = max(starts[partition], line.offset)
    yield from _check_topic_ids(log_directory, facts)


class _OffsetLine(NamedTuple):
    """The offset of a line, and the bytes of the line in the file."""

    offset: int
    position: int
    length: int


_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|\Z)")


def _lines(data: bytes) -> Iterator[tuple[TopicPartition, _OffsetLine]]:
    """The entries of a valid checkpoint, each with its line."""
    lines = islice(_LINE.finditer(data), 2, None)
    for (topic, partition, offset), line in zip(checkpoint.offset_entries(data), lines, strict=False):
        yield TopicPartition(topic, partition), _OffsetLine(offset, line.start(), len(line[0]))


def _found(
    code: str,
    path: str,
    partition: TopicPartition,
    line: _OffsetLine,
    *,
    severity: Severity | None = None,
    **data: FindingValue,
) -> Finding:
    return make_finding(
        code,
        path,
        line.position,
        line.length,
        offset=line.offset,
        severity=severity,
        topic=partition.topic,
        partition=partition.partition,
        **data,
    )


def _check_offset(
    path: str, name: str, partition: TopicPartition, line: _OffsetLine, start_offset: int, end_offset: int | None
) -> Iterator[Finding]:
    """Check the offset of a line against the start and the end of the log."""
    what, value = _OFFSETS[name], line.offset
    # A log start offset that is wrong itself is not compared with others.
    start_is_wrong = end_offset is not None and start_offset > end_offset
    if value < 0 or (value < start_offset and name != RECOVERY_POINTS and not start_is_wrong):
        # No broker writes a negative offset.
        severity = Severity.WARNING if value < 0 else None
        yield _found(
            "checkpoint/below",
            path,
            partition,
            line,
            severity=severity,
            value=value,
            start_offset=start_offset,
            what=what,
        )
    elif end_offset is not None and value > end_offset:
        if name == LOG_STARTS:
            yield _found("checkpoint/log-start", path, partition, line, value=value, end_offset=end_offset)
        else:
            # Committed records are gone where the log ends below the high watermark.
            severity = Severity.ERROR if name == HIGH_WATERMARKS else None
            yield _found(
                "checkpoint/beyond",
                path,
                partition,
                line,
                severity=severity,
                value=value,
                end_offset=end_offset,
                what=what,
            )


def _check_topic_ids(log_directory: str, facts: Mapping[TopicPartition, PartitionOffsets]) -> Iterator[Finding]:
    """Yield checkpoint/topic-id for the partitions of a topic whose topic id differs from most of them.

    A topic that was deleted and created again has a new topic id.
    """
    served = {
        partition: offsets.topic_id for partition, offsets in facts.items() if offsets.topic_id and not offsets.state
    }
    counts: dict[str, Counter[str]] = {}
    for (topic, _), stored in served.items():
        counts.setdefault(topic, Counter())[stored] += 1
    for (topic, number), stored in served.items():
        usual = counts[topic].most_common(1)[0][0]
        if stored != usual:
            path = os.path.join(log_directory, f"{topic}-{number}", "partition.metadata")
            yield make_finding("checkpoint/topic-id", path, 0, 0, stored=stored, found=usual)
