"""What the segments of a partition leave to the segments after them: the previous segment, gaps, damage, epochs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdump.kernel.results import ScanState
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile

if TYPE_CHECKING:
    from kdump.verify.findings import Finding


class PreviousSegment(NamedTuple):
    """The segment before. `end_offset` is None where damage hides it, `epoch` is -1 where it is not known."""

    path: str
    base_offset: int | None
    end_offset: int | None
    last_position: int = -1
    last_offset: int = -1
    epoch: int = -1


class LogState:
    """The log up to the segment that is verified.

    `broken`: bytes or segments are damaged or missing. `gapped`: offsets are missing. `compacted`: the log cleaner
    went over it. `magics` counts batches by magic. `epochs` are the changes of the leader epoch: epoch, first offset,
    position. `empty` are the paths of the segments before the active one that have no bytes. `holes` are the offsets
    [start, stop) between two segments, each after the path of the second. `begin` is the first offset of the first
    batch, where that begins the first file, after the path of that.
    """

    def __init__(self, compacted: bool) -> None:
        self.compacted = compacted
        self.broken = False
        self.gapped = False
        self.previous: PreviousSegment | None = None
        self.magics = [0, 0, 0]
        self.epochs: list[tuple[int, int, int]] = []
        self.empty_segments: list[str] = []
        self.holes: list[tuple[str, int, int]] = []
        self.begin: tuple[str, int] | None = None

    @property
    def end_offset(self) -> int | None:
        """The offset after the last segment so far, None where damage hides it."""
        return None if self.previous is None else self.previous.end_offset

    def check_neighbours(self, log: LogFile, scanned: ScanState) -> "Iterator[Finding]":
        """Check a segment against the segment before it; `holes` has the offsets between them."""
        previous, base, path = self.previous, log.base_offset, log.path
        if previous is None or base is None:
            return
        if previous.last_offset >= base:
            from kdump.verify.checks import segments

            yield segments.overlap(previous.path, previous.last_position, previous.last_offset, base)
        elif previous.end_offset is not None and base > previous.end_offset:
            self.holes.append((path, previous.end_offset, base))
            self.gapped = True
        if scanned.batches and 0 <= scanned.first_epoch < previous.epoch:
            from kdump.verify.checks import epochs

            where = path, scanned.first_position, 0, scanned.first_offset
            yield epochs.backwards(*where, epoch=scanned.first_epoch, previous=previous.epoch)

    def check_neighbours_07(self, log: LogFile) -> "Iterator[Finding]":
        """Check a segment of Kafka 0.7 against the segment before it. Its offsets are positions."""
        previous, base = self.previous, log.base_offset
        if previous is None or previous.end_offset is None or base is None or base == previous.end_offset:
            return
        from kdump.verify.checks import segments

        if base > previous.end_offset:
            yield segments.missing(log.path, base, previous.end_offset, compacted=False)
        else:
            yield segments.overlap(previous.path, 0, previous.end_offset - 1, base)

    def add_segment(self, log: LogFile, scanned: ScanState, end_offset: int | None) -> None:
        """Make this segment the previous one."""
        self.magics = [a + b for a, b in zip(self.magics, scanned.magics, strict=True)]
        for change in scanned.epochs:
            if not self.epochs or self.epochs[-1][0] != change[0]:
                self.epochs.append(change)
        if not log.size and not log.active and log.base_offset is not None:
            self.empty_segments.append(log.path)
        if self.previous is None and scanned.first_spans and scanned.first_position == 0:
            self.begin = log.path, scanned.first_offset
        epoch = scanned.known_epoch if scanned.linked else -1
        last = scanned.last_position, scanned.last_offset
        self.previous = PreviousSegment(log.path, log.base_offset, end_offset, *last, epoch)
