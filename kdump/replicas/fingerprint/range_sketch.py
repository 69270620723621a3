"""What a range of a segment adds to a fingerprint, read by itself, so that several processes read one log.

A cut is a hint: where ranges do not meet, and where more than batches in order was found, the segment is read again as
one. Each record is taken for committed, and what its producers wrote is kept for who reads the whole log.
"""

from collections.abc import Sequence, Set
from functools import reduce
from itertools import pairwise
from typing import Final

from kdump.broker.history import EpochRun
from kdump.errors import SourceError
from kdump.kernel.record_hashes import RecordHasher
from kdump.kernel.sketches import LastRecords
from kdump.log.log_slice import LogSlice
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import MOST_OFFSET, FingerprintOptions, RecordFeed, TransactionFold
from kdump.replicas.fingerprint.key_table import KeyTable
from kdump.replicas.fingerprint.segment_shares import Share, joined, new_sketch, share_of
from kdump.replicas.log_survey import ChunkFacts, ProducerFacts, SegmentFacts, join_epochs, survey_range
from kdump.storage.ranges import SegmentRange
from kdump.storage.walk import BatchChunk

_MOST_KEYS: Final = 1 << 17
"""So many keys a range may have: 4 MiB, which several ranges wait with for who joins them."""
MOST_EPOCHS: Final = 1000
"""So many runs of leader epochs a segment that is remembered has."""


class RangeSketch(NamedTuple):
    """What the batches at [position, end_position) of a log file add to a fingerprint.

    The last one is at `last_position`. `magic` is the lowest. `has_tail`: bytes that are no whole batch follow up to
    the end of the file. `states`: the last records of its keys, as LastRecords packs them, where they are asked for.
    """

    position: int
    last_position: int
    end_position: int
    magic: int
    facts: SegmentFacts
    share: Share
    has_tail: bool
    states: tuple[bytes, ...] = ()


class SegmentSketch(NamedTuple):
    """The same of all of a segment, whose share has not the segment in it yet."""

    facts: SegmentFacts
    share: Share
    last_position: int
    magic: int
    states: tuple[bytes, ...] = ()


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


class _RangeKeys(KeyTable):
    """The last record of each key of a range. Raises _RangeError where there are too many."""

    def __init__(self) -> None:
        self.last = LastRecords(_MOST_KEYS)

    def close(self) -> None:
        """There is no file."""

    def fill(self, hasher: RecordHasher) -> None:
        if self.last.fill(hasher.rows, 0, hasher.count) < hasher.count:
            raise _RangeError


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
    part: SegmentRange, start_offset: int, options: FingerprintOptions, read_ms: int, *, with_state: bool = False
) -> RangeSketch | None:
    """Read a range of a segment; `start_offset` is the log start offset. None where it is not batches in order alone.

    None, too, where the file cannot be read, or has batches of magic 0 or 1 whose first offset depends on those before.
    `with_state`: of a log that a log cleaner goes over, without transactions.
    """
    log, positions = part.segment.log, _Positions()
    start = max(start_offset, log.base_offset or 0)
    fold = None if with_state else _RangeFold()
    feed = RecordFeed(
        OffsetRange(start, MOST_OFFSET), options, (), with_state=with_state, fold=fold, takes=not with_state
    )
    keys = _RangeKeys() if with_state else None
    feed.keys = keys
    if not with_state:
        feed.add_to(new_sketch(start, b""))

    def watch(chunk: BatchChunk | None, facts: ChunkFacts) -> None:
        if chunk is not None and facts.magic < 2 and part.start:
            raise _RangeError
        positions.add(facts)
        feed.watch(chunk)
        if not feed.is_whole:
            raise _RangeError

    piece = LogSlice(log, start=part.start, stop=part.stop)
    try:
        read = survey_range(piece, start, options.max_batch_bytes, watch, fold, feed.taker)
    except (SourceError, _RangeError):
        return None
    if not read.is_plain or positions.first is None or read.first_offset is None or read.end_offset <= start:
        return None
    if (read.transactional and not feed.can_correct) or (read.reach and not with_state):
        return None
    offsets = OffsetRange(start, read.end_offset)
    producers = None
    if fold is not None:
        batches = (fold.batches.packed(),)
        producers = ProducerFacts(read.transactional, fold.has_gaps, tuple(fold.events), batches)
    return RangeSketch(
        *(positions.first, positions.last, positions.end, positions.magic),
        SegmentFacts(read.first_offset, read.end_offset, positions.end, read.epochs, producers, read.reach),
        share_of(feed.records, offsets, offsets, read_ms),
        read.has_tail,
        () if keys is None else (keys.last.packed(),),
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
    several = [each.facts.producers for each in known if each.facts.producers is not None]
    producers = ProducerFacts(
        any(each.transactional for each in several),
        any(each.has_gaps for each in several)
        or any(one.facts.end_offset != other.facts.first_offset for one, other in pairwise(known)),
        tuple(events for each in several for events in each.events),
        tuple(packed for each in several for packed in each.batches),
    )
    facts = SegmentFacts(
        *(first.first_offset, last.facts.end_offset, last.end_position, tuple(epochs)),
        producers,
        max(each.facts.reach for each in known),
    )
    share = reduce(lambda left, right: joined(left, right, borders), (each.share for each in known))
    states = tuple(packed for each in known for packed in each.states)
    return SegmentSketch(facts, share, last.last_position, min(each.magic for each in known), states)
