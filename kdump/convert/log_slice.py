"""The parts of log files that make up the log of a topic-partition: whole files, or what is taken from each copy."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kdump.format.naming import Kind, TopicPartition
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import Source
from kdump.storage.walk import Walk

Bounds = tuple[int | None, int | None]
"""A half-open range; None is no bound."""
EVERYTHING: Final[Bounds] = (None, None)
LOWEST: Final = -(1 << 63)
HIGHEST: Final = (1 << 63) - 1


class LogSlice(NamedTuple):
    """The batches of a log file that begin at positions in [start, stop), and of these the offsets lowest to highest.

    `start` is the position of a batch. `stop` is None for the end of the file. `after_gap`: offsets before it are in no
    slice although the log had records there; a marker may have been among them.
    """

    log: LogFile
    lowest: int = LOWEST
    highest: int = HIGHEST
    start: int = 0
    stop: int | None = None
    after_gap: bool = False


class HeaderPass(NamedTuple):
    """What the headers of a log say of it.

    `transactional`: there may be transactions. `is_ordered`: the offsets of each batch are above those of the batch
    before. `is_continuous`: no offset is missing between two batches. `compacted`: a segment shows that the log cleaner
    went over it. Where damage hides a header, there may be transactions, and order and offsets are not known.
    """

    transactional: bool
    is_ordered: bool
    is_continuous: bool
    compacted: bool = False


class SlicedPartition(NamedTuple):
    """The log of a topic-partition as slices in the order of their offsets, and the range of offsets to convert.

    No offset is in two slices. `path` names it in messages: the directory, or that of the first copy. `replica` is the
    path of the copy where each copy is converted on its own, and the topic id where several topics have the name.
    `copy` is the directory from which whole files are taken, None for slices of several. `headers` is None where they
    were not read yet: then the slices may be out of order (kdump.convert.ordered_log). `first_asked` is the first
    offset that was asked for: that of `offset` can be the log start offset, which moves.
    """

    path: str
    topic_partition: TopicPartition | None
    slices: tuple[LogSlice, ...]
    offset: Bounds = EVERYTHING
    replica: str | None = None
    copy: Partition | None = None
    headers: HeaderPass | None = None
    first_asked: int | None = None

    def numbered(self) -> Iterator[tuple[int, LogSlice]]:
        """The slices that can have one of the offsets to convert, each with its number in `slices`."""
        first, stop = self.offset
        following = [*(each.log for each in self.slices[1:]), None]
        for number, (each, after) in enumerate(zip(self.slices, following, strict=False)):
            base = each.log.base_offset
            if each.highest < HIGHEST:
                if (stop is None or each.lowest < stop) and (first is None or each.highest >= first):
                    yield number, each
                continue
            if base is None or each.log.kind is not Kind.LOG:
                yield number, each
                continue
            highest = each.highest
            if after is not None and after.base_offset is not None and after.base_offset > base:
                highest = min(highest, after.base_offset - 1)
            if (stop is None or max(base, each.lowest) < stop) and (first is None or highest >= first):
                yield number, each


def whole_log(partition: Partition, offset: Bounds = EVERYTHING) -> SlicedPartition:
    """All of a partition.

    The snapshots of a KRaft partition only where one is named alone: they repeat what the log has.
    """
    logs = tuple(segment.log for segment in partition.segments) or partition.kraft_snapshots
    slices = tuple(map(LogSlice, logs))
    return SlicedPartition(
        partition.path, partition.topic_partition, slices, offset, copy=partition, first_asked=offset[0]
    )


def walk_of_slice(each: LogSlice, source: Source, **how: Any) -> Walk:
    """The walk over the batches of a slice, which `source` holds open; `how` are other arguments of Walk."""
    base = each.log.base_offset if each.start == 0 else max(each.lowest, 0)
    return walk_of(each.log.kind, source, base_offset=base, start=each.start, stop=each.stop, **how)
