"""The files of `__cluster_metadata`: its segments and its KRaft snapshots (KIP-630), and their records in order.

A snapshot is `<20 digits>-<10 digits>.checkpoint`: it has what the records below that offset made of the cluster, and
the leader epoch of the last of them. It is whole when it ends with the control record SNAPSHOT_FOOTER.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

from kdump.errors import SourceError
from kdump.format import control, naming
from kdump.format.batch import Batch
from kdump.format.internal_topics.decoded import DecodedMessage
from kdump.format.internal_topics.decoders import decoder_of
from kdump.format.meta_properties import MetaProperties, parse_meta_properties
from kdump.format.naming import Kind
from kdump.format.quorum_state import parse_quorum_state
from kdump.format.record import Record
from kdump.format.text_files import MAX_PROPERTIES_BYTES, CheckpointError
from kdump.kernel.results import BatchDiagnosis
from kdump.kernel.scan import SUSPECTS
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import discover
from kdump.storage.file_store import exists, is_directory, open_source, parent_of
from kdump.storage.partition import LogDirectory, LogFile, Partition
from kdump.storage.records import open_batch, records
from kdump.storage.source import read_whole
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, SearchLimit, ShrunkFile, Tail, TailContent, Walk

METADATA_PARTITION: Final = f"{naming.METADATA_TOPIC}-0"
MAX_BATCH_BYTES: Final = 256 << 20
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint", re.ASCII)
_DAMAGED: Final = sum(1 << SUSPECTS.index(code) for code in ("batch/crc", "batch/magic", "batch/limit"))


class SnapshotFile(NamedTuple):
    """A snapshot: what the offsets below `end_offset` made. Both numbers are 0 where the name does not say them."""

    file: LogFile
    end_offset: int
    epoch: int


class MetadataDamage(NamedTuple):
    """Bytes in which Kafka finds no batch, or a batch that it refuses.

    `item` is what lies there; for a batch, `batch` and `diagnosis` say what the scan found, or `code` what stopped the
    decoding of its records.
    """

    file: LogFile
    item: Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile | None
    batch: Batch | None = None
    diagnosis: BatchDiagnosis | None = None
    code: str | None = None

    @property
    def is_broken_write(self) -> bool:
        """Whether the write of the last batch broke off there, so that the log ends."""
        return isinstance(self.item, Tail) and self.item.reason is not TailContent.GARBAGE


class MetadataBatch(NamedTuple):
    """A valid batch with its records."""

    file: LogFile
    batch: Batch
    records: list[Record]


class MetadataLog(NamedTuple):
    """The files: segments in the order of their base offsets, snapshots with the newest first.

    `meta` is the content of meta.properties above the directory, `static_voters` are those of a quorum-state of version
    0. Both are None where there is none.
    """

    path: str
    segments: tuple[LogFile, ...]
    snapshots: tuple[SnapshotFile, ...]
    meta: MetaProperties | None
    static_voters: tuple[int, ...] | None

    @property
    def log_start_offset(self) -> int | None:
        """The first offset that the log can have, None without segments."""
        return self.segments[0].base_offset if self.segments else None


def find_metadata_log(path: str) -> MetadataLog:
    """The log of a `__cluster_metadata-0` directory, of the log directory above it, or one snapshot.

    Raises SourceError where there is none.
    """
    inner = os.path.join(path, METADATA_PARTITION)
    named = inner if exists(inner) and is_directory(inner) else path
    problem: SourceError | None = None
    for item in discover([named]):
        if isinstance(item, SourceError):
            problem = problem or item
        elif isinstance(item, Partition) and (item.segments or item.kraft_snapshots):
            return _of_partition(item)
        if not isinstance(item, LogDirectory) and named == path and is_directory(path):
            break  # a directory of other partitions: the next thousands are no better
    if problem is not None and not is_directory(path):
        raise problem
    raise SourceError(f"{path}: no {METADATA_PARTITION} here, and no KRaft snapshot")


def _of_partition(partition: Partition) -> MetadataLog:
    topic = partition.topic_partition
    if topic is not None and topic.topic != naming.METADATA_TOPIC and partition.segments:
        raise SourceError(f"{partition.path}: the log of {topic.topic}, not of {naming.METADATA_TOPIC}")
    found = []
    for file in partition.kraft_snapshots:
        match = _SNAPSHOT_NAME.fullmatch(os.path.basename(file.path))
        found.append(SnapshotFile(file, *((int(match[1]), int(match[2])) if match else (0, 0))))
    segments = tuple(each.log for each in partition.segments if each.log.base_offset is not None)
    return MetadataLog(
        partition.path,
        segments,
        tuple(sorted(found, key=lambda each: each[1:], reverse=True)),
        _meta(parent_of(partition.path)) if segments else None,
        _static_voters(partition.quorum_state),
    )


def _meta(directory: str) -> MetaProperties | None:
    path = os.path.join(directory, "meta.properties")
    try:
        with open_source(path) as source:
            return parse_meta_properties(read_whole(source, MAX_PROPERTIES_BYTES + 1))
    except (SourceError, CheckpointError):
        return None


def _static_voters(file: LogFile | None) -> tuple[int, ...] | None:
    if file is None:
        return None
    try:
        with file.open() as source:
            return parse_quorum_state(read_whole(source, MAX_PROPERTIES_BYTES + 1)).current_voters
    except (SourceError, CheckpointError):
        return None


def batches_of(file: LogFile, max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[MetadataBatch | MetadataDamage]:
    """The batches of a segment or a snapshot, and what is none. Raises SourceError."""
    base_offset = 0 if file.kind is Kind.CHECKPOINT else file.base_offset
    with file.open() as source:
        walk = Walk(source, base_offset=base_offset, everything=True, max_batch_bytes=max_batch_bytes, rows=64)
        for item in walk:
            if not isinstance(item, BatchChunk):
                yield MetadataDamage(file, item)
                continue
            for index, (batch, suspect) in enumerate(zip(item.rows(), item.suspects(), strict=True)):
                if suspect & _DAMAGED:
                    yield MetadataDamage(file, None, batch, item.diagnosis(index))
                    continue
                opened = open_batch(batch, item.body(batch), max_batch_bytes)
                if opened.problem is not None:
                    yield MetadataDamage(file, None, batch, item.diagnosis(index), opened.problem)
                else:
                    yield MetadataBatch(file, batch, list(records(batch, opened)))


def control_value(record: Record) -> control.ControlValue | None:
    """What a control record says; None where it cannot be read, or says nothing."""
    try:
        return control.decode(record.key, record.value).value
    except ValueError:
        return None


def metadata_message(record: Record) -> DecodedMessage | str:
    """The message of a record, or why it has none that can be replayed."""
    decoder = decoder_of(naming.METADATA_TOPIC)
    assert decoder is not None
    found = decoder.decode(record.key, record.value)
    if found.problem is not None or found.value is None:
        return found.problem or "the record has no value"
    return found.value
