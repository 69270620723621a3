"""What an upgrade to Kafka 4 meets: messages of magic 0 and 1, and files that a 4.x broker refuses or leaves out.

A 4.x broker still reads magic 0 and 1, but writes neither, and refuses producers and consumers that speak no other
(KIP-724, KIP-896). Whether a client still writes them shows in how new the newest ones are.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Final

from kdump.broker.predict import directory_state, predict_start
from kdump.broker.refusal_reason import RefusalReason
from kdump.errors import SourceError
from kdump.format.java import MAX_INT
from kdump.named_tuple import NamedTuple
from kdump.stat.report_scope import KAFKA07_SUFFIX
from kdump.stat.values import PartitionStatistics, SegmentStatistics, Volume
from kdump.storage.file_store import is_directory

OLD_MAGIC: Final = (0, 1)


class OldFormat(NamedTuple):
    """The messages of one magic.

    `newest_timestamp_ms` is None where no message has one: magic 0 never has. `newest_modified_ms` is the modification
    time of `newest_segment`, which holds the newest message, and `newest_is_active` says whether it is the active one:
    then they may still be written. `newest_segment` is None without a message.
    """

    magic: int
    volume: Volume = Volume()
    segments: int = 0
    partitions: int = 0
    newest_timestamp_ms: int | None = None
    newest_modified_ms: int = -1
    newest_segment: str | None = None
    newest_is_active: bool = False

    def __add__(self, other: object) -> "OldFormat":
        if not isinstance(other, OldFormat):
            return NotImplemented
        newest = max(self, other, key=_newness)
        return newest._replace(
            volume=self.volume + other.volume,
            segments=self.segments + other.segments,
            partitions=self.partitions + other.partitions,
        )


class RefusedFile(NamedTuple):
    """A file that a 4.x broker does not start with. `position` in bytes, None where it is the whole file.

    `exception` is what the broker throws. It is None for a log of Kafka 0.7, which a broker leaves out without a word.
    """

    path: str
    position: int | None
    reason: RefusalReason | None
    exception: str | None


class PartitionUpgrade(NamedTuple):
    """The report of a partition: its messages of each old magic, and the files that a 4.x broker refuses.

    `error` is why the files could not be tried.
    """

    path: str
    topic: str | None
    partition: int | None
    formats: tuple[OldFormat, ...]
    refused: tuple[RefusedFile, ...]
    error: SourceError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether nothing old and nothing that is refused was found, with all files read."""
        return self.error is None and not self.refused and not any(each.volume.batches for each in self.formats)


def report_upgrade(of: PartitionStatistics) -> PartitionUpgrade:
    """What an upgrade to Kafka 4 meets in a partition.

    Reads the companions, and what a start after a clean shutdown reads of the active segment, to see what it refuses
    (kdump.broker.predict).
    """
    formats = tuple(_old_format(of.segments, magic) for magic in OLD_MAGIC)
    try:
        refused = _refused(of)
    except SourceError as error:
        return PartitionUpgrade(of.path, of.topic, of.partition, formats, (), error)
    return PartitionUpgrade(of.path, of.topic, of.partition, formats, refused)


def sum_old_formats(reports: Iterable[PartitionUpgrade]) -> tuple[OldFormat, ...]:
    """The messages of each old magic in all partitions."""
    sums = [OldFormat(magic) for magic in OLD_MAGIC]
    for report in reports:
        sums = [one + other for one, other in zip(sums, report.formats, strict=True)]
    return tuple(sums)


class _Newness(NamedTuple):
    """How new a message is. Modification times count only among messages without a timestamp: a copy changes them.

    The other fields make a sum independent of the order.
    """

    timestamp_ms: int
    modified_ms: int
    is_active: bool
    segment: str


def _newness(of: OldFormat) -> _Newness:
    timestamp = -1 if of.newest_timestamp_ms is None else of.newest_timestamp_ms
    return _Newness(timestamp, of.newest_modified_ms, of.newest_is_active, of.newest_segment or "")


def _old_format(segments: Sequence[SegmentStatistics], magic: int) -> OldFormat:
    found = OldFormat(magic)
    for segment in segments:
        volume = segment.totals.by_magic[magic]
        if volume.batches:
            newest = segment.totals.newest_by_magic[magic]
            found += OldFormat(
                magic,
                volume,
                1,
                0,
                newest if newest is not None and newest >= 0 else None,
                segment.mtime_ms,
                segment.path,
                segment.is_active,
            )
    return found._replace(partitions=int(found.segments > 0))


def _refused(of: PartitionStatistics) -> tuple[RefusedFile, ...]:
    """Raises SourceError."""
    logs = [segment.path for segment in of.segments]
    old = tuple(RefusedFile(path, None, None, None) for path in logs if path.endswith(KAFKA07_SUFFIX))
    if old or of.state is not None or not is_directory(of.path):
        return (*old, *_too_large(of.segments))
    if of.log_start_offset is None and of.errors:
        raise of.errors[-1]  # its checkpoint could not be read: where a broker begins is not known
    state = directory_state(of.path, log_start_offset=of.log_start_offset or 0, clean_shutdown=True)
    return tuple(
        RefusedFile(os.path.join(of.path, each.name), each.position, each.reason, each.exception)
        for each in predict_start(state).refusals
    )


def _too_large(segments: Sequence[SegmentStatistics]) -> tuple[RefusedFile, ...]:
    """Segments that no broker opens (FileRecords)."""
    return tuple(
        RefusedFile(segment.path, None, RefusalReason.FILE_SIZE, "KafkaException")
        for segment in segments
        if segment.size_bytes > MAX_INT
    )
