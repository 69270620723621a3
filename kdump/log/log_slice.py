"""The parts of log files that make up the log of a topic-partition: whole files, or what is taken from each copy."""

from collections.abc import Iterator
from typing import Any, Final

from kdump.format.naming import Kind, TopicPartition
from kdump.named_tuple import NamedTuple
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

    @property
    def size_bytes(self) -> int:
        """The bytes between the positions, by the size that the file had when it was listed."""
        return (self.log.size if self.stop is None else self.stop) - self.start

    @property
    def is_empty(self) -> bool:
        """Whether no batch can begin there."""
        return self.size_bytes <= 0

    def is_exact(self, first: int | None, reached: int) -> bool:
        """Whether what a walk over the slice alone finds is what one over the whole file finds there.

        `first` is the position of its first valid batch, None without one; it ended at `reached`.
        """
        return self.start in (0, first) and (self.stop is None or self.stop == reached)


class MissingOffsets(NamedTuple):
    """Offsets that are missing in a log file, or between it and the one before, where there are no `gaps`.

    At `position` the first gap ends: `previous` and `first` are the offsets on both sides of it. `missing` are all
    offsets that are missing, `largest` those of the largest gap.
    """

    path: str
    position: int
    previous: int
    first: int
    gaps: int
    missing: int
    largest: int


class HeaderPass(NamedTuple):
    """What the headers of a log say of it.

    `transactional`: there may be transactions. `is_ordered`: the offsets of each batch are above those of the batch
    before. `is_continuous`: no offset is missing between two batches. `compacted`: a segment shows that the log cleaner
    went over it. Where damage hides a header, there may be transactions, and order and offsets are not known.
    `first_offset` is None where the first batch does not say it, or is not known; `next_offset` follows the last batch.
    `missing` are missing segments and offsets, of a log that is not compacted. `gaps`: offsets that are
    missing between batches were records; kdump.convert.records.ordered_log finds it out. `is_assumed`: they were not
    read (kdump.convert.records.unread_headers).
    """

    transactional: bool
    is_ordered: bool
    is_continuous: bool
    compacted: bool = False
    first_offset: int | None = None
    next_offset: int | None = None
    missing: tuple[MissingOffsets, ...] = ()
    gaps: bool = False
    is_assumed: bool = False

    def has_all(self, start: int, stop: int) -> bool:
        """Whether no offset of [start, stop) is missing."""
        begins = self.first_offset is None or self.first_offset <= start
        return self.is_continuous and begins and self.next_offset is not None and self.next_offset >= stop


class PartOfLog(NamedTuple):
    """What the slices of a part of a log do not say about its transactions (kdump.convert.records.log_parts).

    `committed` and `aborted` are producers whose transaction is open at the end of the slices, by what a later marker
    says. `first_undecided` is the base offset of the first undecided batch of the whole log, None where there is none.
    `following` are slices after the part where that was not looked up: its transactions may end there; `ends_log`: no
    others come after these.
    """

    committed: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()
    first_undecided: int | None = None
    following: tuple["LogSlice", ...] = ()
    ends_log: bool = True


class SlicedPartition(NamedTuple):
    """The log of a topic-partition as slices in the order of their offsets, and the range of offsets to read.

    No offset is in two slices. `path` names it in messages: the directory, or that of the first copy. `replica` is the
    path of the copy where each copy is converted on its own, and the topic id where several topics have the name.
    `copy` is the directory from which whole files are taken, None for slices of several. `headers` is None where they
    were not read yet: then the slices may be out of order (kdump.convert.records.ordered_log). `first_asked` is the
    first offset that was asked for: that of `offset` can be the log start offset, which moves. `part` is None where the
    slices are the whole log. `until_stable`: the range ends at the last stable offset, which reading the log will show.
    """

    path: str
    topic_partition: TopicPartition | None
    slices: tuple[LogSlice, ...]
    offset: Bounds = EVERYTHING
    replica: str | None = None
    copy: Partition | None = None
    headers: HeaderPass | None = None
    first_asked: int | None = None
    part: PartOfLog | None = None
    until_stable: bool = False

    @property
    def is_assumed(self) -> bool:
        """Whether the headers were not read (HeaderPass)."""
        return self.headers is not None and self.headers.is_assumed

    @property
    def name(self) -> str:
        """The topic-partition as its directory is named; the path where there is none."""
        of = self.topic_partition
        return self.path if of is None else f"{of.topic}-{of.partition}"

    def up_to(self, stable: int | None) -> "SlicedPartition":
        """The same up to the last stable offset; None is the log end."""
        first, stop = self.offset
        end = stop if stable is None else stable if stop is None else min(stop, stable)
        return self._replace(offset=(first, end), until_stable=False)

    def numbered(self) -> Iterator[tuple[int, LogSlice]]:
        """The slices that can have one of the offsets to read, each with its number in `slices`."""
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
