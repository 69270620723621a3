"""What a range of a segment adds to a fingerprint, read by itself, so that several processes read one log.

A cut is a hint: where ranges do not meet, and where more than batches in order was found, the segment is read again as
one. Each record is taken for committed, and what its producers wrote is kept for who reads the whole log.
"""

from array import array
from collections.abc import Sequence, Set
from functools import reduce
from itertools import pairwise
from typing import Final

from kdump.broker.history import EpochRun
from kdump.errors import SourceError
from kdump.log.log_slice import LogSlice
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import MOST_OFFSET, FingerprintOptions, RecordFeed, TransactionFold
from kdump.replicas.fingerprint.segment_shares import Share, joined, new_sketch, share_of
from kdump.replicas.log_survey import ChunkFacts, ProducerFacts, SegmentFacts, join_epochs, survey_range
from kdump.storage.ranges import SegmentRange
from kdump.storage.walk import BatchChunk

MOST_EPOCHS: Final = 1000
"""So many runs of leader epochs a segment that is remembered has."""


class RangeSketch(NamedTuple):
    """What the batches at [position, end_position) of a log file add to a fingerprint.

    The last one is at `last_position`. `magic` is the lowest. `has_tail`: bytes that are no whole batch follow up to
    the end of the file.
    """

    position: int
    last_position: int
    end_position: int
    magic: int
    facts: SegmentFacts
    producers: ProducerFacts
    share: Share
    has_tail: bool


class SegmentSketch(NamedTuple):
    """The same of all of a segment, whose share has not the segment in it yet."""

    facts: SegmentFacts
    share: Share
    last_position: int
    magic: int


class _RangeError(Exception):
    """It is not batches in order alone."""


class _RangeFold(TransactionFold):
    """Keeps what producers wrote to a range."""

    def __init__(self) -> None:
        super().__init__(compacted=False)
        self.events, self.has_gaps = list[bytes](), False

    def skip(self) -> None:
        self.has_gaps = True

    def add(self, events: bytes) -> None:
        self.events.append(events)
        self.batches.add(events)


class _Positions:
    """Where the batches of a range are. Raises _RangeError where they do not follow each other."""

    def __init__(self) -> None:
        self.first: int | None = None
        self.last = self.end = 0
        self.magic = 2

    def add(self, facts: ChunkFacts) -> None:
        if not facts.is_ordered or (self.first is not None and facts.position != self.end):
            raise _RangeError
        self.first = facts.position if self.first is None else self.first
        self.last, self.end = facts.last_position, facts.end_position
        self.magic = min(self.magic, facts.magic)


def sketch_range(
    part: SegmentRange, start_offset: int, options: FingerprintOptions, read_ms: int
) -> RangeSketch | None:
    """Read a range of a segment; `start_offset` is the log start offset. None where it is not batches in order alone.

    None, too, where the file cannot be read, or has batches of magic 0 or 1 whose first offset depends on those before.
    """
    log, positions, fold = part.segment.log, _Positions(), _RangeFold()
    start = max(start_offset, log.base_offset or 0)
    sketch = new_sketch(start, array("q"))
    feed = RecordFeed(OffsetRange(start, MOST_OFFSET), options, (), with_state=False, fold=fold, takes=True)
    feed.add_to(sketch)
    assert feed.taker is not None

    def watch(chunk: BatchChunk | None, facts: ChunkFacts) -> None:
        if chunk is not None and facts.magic < 2 and part.start:
            raise _RangeError
        positions.add(facts)
        feed.watch(chunk)
        if not feed.is_whole:
            raise _RangeError

    try:
        read = survey_range(
            LogSlice(log, start=part.start, stop=part.stop), start, options.max_batch_bytes, watch, fold, feed.taker
        )
    except (SourceError, _RangeError):
        return None
    if not read.is_plain or positions.first is None or read.first_offset is None or read.end_offset <= start:
        return None
    if read.transactional and not feed.can_correct:
        return None
    offsets = OffsetRange(start, read.end_offset)
    return RangeSketch(
        *(positions.first, positions.last, positions.end, positions.magic),
        SegmentFacts(read.first_offset, read.end_offset, positions.end, read.epochs),
        ProducerFacts(read.transactional, fold.has_gaps, tuple(fold.events), (fold.batches.packed(),)),
        share_of(sketch, offsets, offsets, read_ms),
        read.has_tail,
    )


def whole_segment(parts: Sequence[RangeSketch | None], borders: Set[int], *, is_last: bool) -> SegmentSketch | None:
    """The sketch of a segment of which these are the ranges; None where they do not make up all of it.

    `borders` are the base offsets of the log. `is_last`: it is the last segment, which may have a tail.
    """
    known = [each for each in parts if each is not None]
    if len(known) < len(parts) or not known or known[0].position:
        return None
    if any(one.end_position != other.position or one.has_tail for one, other in pairwise(known)):
        return None
    if any(one.facts.end_offset > other.facts.first_offset for one, other in pairwise(known)):
        return None
    if known[-1].has_tail and not is_last:
        return None
    epochs = list[EpochRun]()
    for each in known:
        join_epochs(epochs, each.facts.epochs)
    first, last = known[0].facts, known[-1]
    facts = SegmentFacts(
        *(first.first_offset, last.facts.end_offset, last.end_position, tuple(epochs)),
        ProducerFacts(
            any(each.producers.transactional for each in known),
            any(each.producers.has_gaps for each in known)
            or any(one.facts.end_offset != other.facts.first_offset for one, other in pairwise(known)),
            tuple(events for each in known for events in each.producers.events),
            tuple(packed for each in known for packed in each.producers.batches),
        ),
    )
    share = reduce(lambda left, right: joined(left, right, borders), (each.share for each in known))
    return SegmentSketch(facts, share, last.last_position, min(each.magic for each in known))
