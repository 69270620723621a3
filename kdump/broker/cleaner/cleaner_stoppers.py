"""The batches that stop a broker's log cleaner.

A cleaner that meets an exception marks the partition as uncleanable, and leaves it alone until the broker starts again:
the log grows without bound. It checks no CRC, so a damaged batch whose header still makes sense can pass, and is then
written anew with a right CRC.

Source: Cleaner.cleanInto, Cleaner.growBuffersOrFail, Cleaner.groupSegmentsBySize, ByteBufferLogInputStream and
LogCleaner.tryCleanFilthiestLog of Kafka 4.3.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from kdump.broker.cleaner.log_config import TopicSettings
from kdump.broker.cleaner.measured_log import MeasuredSegment
from kdump.broker.cleaner.segment_age import base_offset, log_size
from kdump.broker.predict import recover_segment
from kdump.errors import SourceError
from kdump.format.batch import LOG_OVERHEAD, MINIMUM_SIZE, UP_TO_MAGIC, head_at
from kdump.format.java import MAX_INT
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.source import reader_of

_GROWTH_OF_OLD_RECORD: Final = 64
"""At most so many bytes longer is an uncompressed message of magic 0 or 1 as a batch of magic 2 of its own."""


class StopperKind(StrEnum):
    """What is wrong with a batch, or with a segment."""

    DAMAGE = "damage"
    """Bytes that are not a valid batch."""
    OFFSET_RANGE = "offset-range"
    """An offset that lies more than 2^31 - 1 above the base offset. A cleaner splits the segment and tries again."""
    SEGMENT_SIZE = "segment-size"
    """Segments that are compacted into one file, which can exceed 2^31 - 1 bytes when other batches are written for
    those of magic 0 and 1, or when records are compressed anew (KAFKA-20036)."""


class CleanerStopper(NamedTuple):
    """A place in a log that stops the cleaner, or may stop it.

    `position` and `length` in bytes; of a segment that is too large, those of the whole file. `position` is None where
    the batch was not found. `reason` is that of the damage. `stops` is False where it is not certain.
    """

    path: str
    position: int | None
    length: int
    kind: StopperKind
    reason: str | None
    stops: bool


def cleaner_stoppers(segments: Sequence[MeasuredSegment], settings: TopicSettings) -> tuple[CleanerStopper, ...]:
    """What stops a cleaner that compacts these segments, in log order. Reads the first bytes of damaged stretches, and
    a segment whose offsets reach too far.
    """
    found = [stopper for segment in segments for stopper in _in_segment(segment)]
    return (*found, *_too_large(segments, settings.segment_bytes))


def _in_segment(segment: MeasuredSegment) -> Iterator[CleanerStopper]:
    for stretch in segment.damage.stretches:
        stops = stretch.reason in ("magic", "codec", "records") or (
            stretch.reason not in ("crc", "limit", "shrunk") and _breaks_framing(segment, stretch.position)
        )
        yield CleanerStopper(segment.path, stretch.position, stretch.length, StopperKind.DAMAGE, stretch.reason, stops)
    if segment.tail_zero_bytes and not segment.is_active:
        position = segment.size_bytes - segment.tail_zero_bytes
        yield CleanerStopper(segment.path, position, segment.tail_zero_bytes, StopperKind.DAMAGE, "zeros", True)
    last = segment.totals.last_offset
    if last is not None and last - base_offset(segment) > MAX_INT:
        yield CleanerStopper(segment.path, _overflow(segment), 0, StopperKind.OFFSET_RANGE, None, False)


def _breaks_framing(segment: MeasuredSegment, position: int) -> bool:
    """Whether a cleaner that reads a batch at this position stops (ByteBufferLogInputStream.nextBatchSize)."""
    left = segment.size_bytes - position
    try:
        with open_source(segment.path) as source:
            header = reader_of(source)(position, max(min(UP_TO_MAGIC, left), 0))
    except SourceError:
        return False
    if len(header) < UP_TO_MAGIC:
        return True
    _, size, magic = head_at(header)
    return size - LOG_OVERHEAD < MINIMUM_SIZE[0] or magic > max(MINIMUM_SIZE) or size > left


def _overflow(segment: MeasuredSegment) -> int | None:
    """The position of the first batch whose offsets the segment cannot hold."""
    try:
        with open_source(segment.path) as source:
            return recover_segment(source, base_offset(segment)).overflow
    except SourceError:
        return None


def _too_large(segments: Sequence[MeasuredSegment], segment_bytes: int) -> Iterator[CleanerStopper]:
    """The first segment of each group whose compacted file can exceed the size of a log file."""
    for group in _groups(segments, segment_bytes):
        size = sum(map(log_size, group))
        old = sum(volume.records_at_least for segment in group for volume in segment.totals.by_magic[:2])
        compressed = sum(volume.bytes for segment in group for volume in segment.totals.by_codec[1:])
        if size + old * _GROWTH_OF_OLD_RECORD + compressed // 2 > MAX_INT:
            yield CleanerStopper(group[0].path, 0, size, StopperKind.SEGMENT_SIZE, None, False)


def _groups(segments: Sequence[MeasuredSegment], segment_bytes: int) -> Iterator[list[MeasuredSegment]]:
    """Cleaner.groupSegmentsBySize, by the sizes of the logs alone."""
    group: list[MeasuredSegment] = []
    size = 0
    for segment in segments:
        size += log_size(segment)
        if group and size > segment_bytes:
            yield group
            group, size = [], log_size(segment)
        group.append(segment)
    if group:
        yield group
