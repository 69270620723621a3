"""The summary of a range of a segment: what its scan found, small enough to send to another process."""

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY
from kdump.format.naming import Kind
from kdump.kernel.results import BadEntry, RecoveredIndexes, ScanState
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.log.segment_view import ViewItem
    from kdump.verify.checks.indexes import IndexFile
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import RangeCells


class IndexEntries(NamedTuple):
    """The entries of both indexes that a broker's recovery writes for a range.

    `since` is the position of the entry before the range, 0 without one, and -1 where the range has no batch. `due` is
    the largest timestamp at the first batch that gets an entry, NO_VALUE without such a batch.
    """

    since: int
    due: int
    offsets: bytearray
    times: bytearray

    @property
    def last_position(self) -> int:
        """The position of the last entry, from which the next range counts its interval."""
        if self.offsets:
            return int(OFFSET_ENTRY.unpack_from(self.offsets, len(self.offsets) - OFFSET_ENTRY.size)[1])
        return max(self.since, 0)

    @property
    def last_timestamp(self) -> int:
        """The timestamp of the last entry of the time index; -1 without one, as in Kafka."""
        if self.times:
            return self._timestamp(len(self.times) // TIME_ENTRY.size - 1)
        return -1

    def later_than(self, timestamp: int) -> bytearray:
        """The entries of the time index from the first one with a larger timestamp on."""
        first = bisect_right(range(len(self.times) // TIME_ENTRY.size), timestamp, key=self._timestamp)
        return self.times[first * TIME_ENTRY.size :]

    def _timestamp(self, entry: int) -> int:
        return int(TIME_ENTRY.unpack_from(self.times, entry * TIME_ENTRY.size)[0])


MOST_DISORDER: Final = 16


class ValidPrefix(NamedTuple):
    """What a scan found up to the first bytes that are not a valid batch, which begin at `stop`.

    `codes` are those of its findings. The first `events` of the summary are those of its producers.
    """

    stop: int
    state: ScanState
    codes: frozenset[str]
    events: int


class PassedFrame(NamedTuple):
    """A frame of a magic above 2 whose CRC is right, and whose offsets are in order. A broker takes it for a batch.

    The first `events` of the summary come before it.
    """

    batch: Batch
    events: int


class OffsetBreak(NamedTuple):
    """A valid batch whose offsets are out of order, and the base offset of the batch before it.

    Where that is not known, its last offset; NO_VALUE without one.
    """

    batch: Batch
    previous_base_offset: int


class RangeSummary:
    """What the scan of a range found.

    `start` and `end` are positions of batch borders; `start` is None where no batch was found to begin with.
    `state` is None where the walk did not begin.
    `events` are the batches of producers, for the replay (kdump.kernel.producers).
    `entries` are the index entries that contradict the batches, `entry_counts` their exact number by problem.
    `indexes` are the indexes as the range at the start of the file read them, `errors` why one could not be read.
    `rebuilt` are the entries that a recovery would write, None where VerifyOptions.valid_segments is False or they
    differ.
    `damages` counts damaged places without padding, the last of them at `damaged_at`. A tail begins at `tail`. `prefix`
    is what lies before the first of them, a tail included; None without one. `view` is what the range shows of the
    file, None where VerifyOptions.valid_segments is False, or stretches and damage do not say all.
    `suspect` are the defects of valid batches of a view. `disorder` are the valid batches whose offsets are out of
    order, None for more than MOST_DISORDER. `recovery` is what a recovery does to the indexes of a file that was
    scanned at once and has no damage. `passed` are frames among the damages, None for more than MOST_DISORDER.
    `is_rising`: see Stretch. `breaks` are the prefixes up to the breaks before the first damage (Walk.stops_at_break).
    `is_cut`: the scan stopped after damage, or at a break. `cells` are those of the map, None where none is made.
    """

    def __init__(
        self,
        start: int | None,
        end: int,
        state: ScanState | None,
        *,
        rebuilt: IndexEntries | None = None,
        error: SourceError | None = None,
    ) -> None:
        self.start, self.end, self.state = start, end, state
        self.findings: list[Finding] = []
        self.counts: Counter[tuple[str, Severity]] = Counter()
        self.events: list[bytes] = []
        self.entries: list[BadEntry] = []
        self.entry_counts: Counter[str] = Counter()
        self.indexes: dict[Kind, IndexFile] = {}
        self.rebuilt = rebuilt
        self.damages = 0
        self.damaged_at = -1
        self.tail: int | None = None
        self.prefix: ValidPrefix | None = None
        self.view: list[ViewItem] | None = None
        self.suspect = 0
        self.is_rising = True
        self.breaks: list[ValidPrefix] = []
        self.disorder: list[OffsetBreak] | None = []
        self.recovery: RecoveredIndexes | None = None
        self.passed: list[PassedFrame] | None = []
        self.is_cut = False
        self.cells: RangeCells | None = None
        self.errors: list[SourceError] = []
        self.error = error

    @property
    def scanned(self) -> ScanState:
        """The state of a walk that began."""
        assert self.state is not None
        return self.state

    def add_disorder(self, batches: "list[OffsetBreak] | None") -> None:
        """Add batches that are out of order, None for too many."""
        if self.disorder is not None and batches is not None and len(self.disorder) + len(batches) <= MOST_DISORDER:
            self.disorder += batches
        else:
            self.disorder = None

    def add_passed(self, frames: "list[PassedFrame] | None") -> None:
        """Add frames that a broker takes for batches, None for too many."""
        if self.passed is not None and frames is not None and len(self.passed) + len(frames) <= MOST_DISORDER:
            self.passed += frames
        else:
            self.passed = None

    def add(self, finding: "Finding") -> None:
        """Count a finding, and keep it where fewer than KEPT of its code are kept."""
        from kdump.verify.findings import KEPT

        self.counts[finding.code, finding.severity] += 1
        if sum(count for (code, _), count in self.counts.items() if code == finding.code) <= KEPT:
            self.findings.append(finding)
