"""The copies of a fingerprint as tasks of an engine: one for each copy, and one for each range of a large one."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from kdump.broker.log_manager import meta_of
from kdump.engine.protocol import Engine, task_sizes
from kdump.errors import SourceError
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import AsOf, FingerprintOptions, sketch_copy
from kdump.replicas.fingerprint.fingerprint_format import CopySketch, fitted
from kdump.replicas.fingerprint.range_sketch import RangeSketch, SegmentSketch, sketch_range, whole_segment
from kdump.replicas.fingerprint.segment_shares import Share
from kdump.replicas.fingerprint.share_file import CopyName, SharePlace, load_shares, section_of_shares
from kdump.replicas.fingerprint.share_sketch import (
    Fresh,
    SegmentToRead,
    all_segments,
    segments_to_read,
    sketch_with_shares,
    sketch_with_states,
)
from kdump.storage.file_store import directory_above
from kdump.storage.partition import Partition
from kdump.storage.ranges import RangeSizes, SegmentRange, cut_into_ranges

_SMALL_BYTES: Final = 32 << 20
"""The largest copy that is not cut into ranges."""
_RANGE_SIZES: Final = RangeSizes(32 << 20, 256 << 20)
"""To begin a range and to join what it has takes as long as to read 10 MiB."""
_STATE_RANGE_SIZES: Final = RangeSizes(16 << 20, 64 << 20)
"""The last records of the keys of each come with it."""
_PROBE_BYTES: Final = 1 << 20
_COPIES: Final = 4
"""A copy is large where so many for each slot have fewer bytes than it and all after it: else all slots have enough."""


class CopyTask(NamedTuple):
    """A copy of which a fingerprint is taken. `place` is that of its shares in the last one.

    `remembers`: with shares for the next one.
    """

    copy: Partition
    name: CopyName
    as_of: AsOf | None
    size_bytes: int
    remembers: bool
    place: SharePlace | None


class TakenCopy(NamedTuple):
    """What a fingerprint says of a copy, and its shares as a file has them.

    `unread_bytes`: of segments that were not read. `is_read_whole`: it is read whole every time. `notices`: why
    segments were read again.
    """

    sketch: CopySketch
    shares: bytes = b""
    unread_bytes: int = 0
    is_read_whole: bool = False
    notices: tuple[str, ...] = ()


class _RangeTask(NamedTuple):
    """A range of the segment with this number, of the copy with this number."""

    copy: int
    segment: int
    part: SegmentRange
    start_offset: int
    read_ms: int
    with_state: bool

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        return self.part.size_bytes


def sketch_copies(
    tasks: Sequence[CopyTask], options: FingerprintOptions, engine: Engine
) -> Iterator[tuple[CopyTask, TakenCopy]]:
    """Each copy with what a fingerprint says of it, in their order."""
    large = dict[int, _LargeCopy]()
    results = engine.map(partial(_work, options), _works(tasks, options, engine, large))
    for work, result in results:
        if isinstance(result, TakenCopy):
            assert isinstance(work, CopyTask)
            yield work, result
        else:
            assert isinstance(work, _RangeTask)
            copy = large.pop(work.copy)
            yield copy.task, copy.take(result, results)


def _works(
    tasks: Sequence[CopyTask], options: FingerprintOptions, engine: Engine, large: "dict[int, _LargeCopy]"
) -> Iterator[CopyTask | _RangeTask]:
    """What the engine does, copy by copy; puts those that are cut into `large`."""
    # A cluster reads what this process need not be able to read: a copy there is one task.
    slots = engine.slots if task_sizes(engine) is None else 1
    later_bytes = sum(task.size_bytes for task in tasks)
    for number, task in enumerate(tasks):
        later_bytes -= task.size_bytes
        enough_bytes = (task.size_bytes + later_bytes) // (_COPIES * slots)
        copy = None
        if slots > 1 and task.as_of is None and task.size_bytes > max(_SMALL_BYTES, enough_bytes):
            copy = _LargeCopy(task, options, slots, later_bytes)
        if copy is None or not copy.segments:
            yield task
        else:
            large[number] = copy
            yield from copy.ranges(number)


def _work(options: FingerprintOptions, work: CopyTask | _RangeTask) -> TakenCopy | RangeSketch | None:
    if isinstance(work, CopyTask):
        return _take(options, work)
    return sketch_range(work.part, work.start_offset, options, work.read_ms, with_state=work.with_state)


class _Known(NamedTuple):
    """The shares of a copy in the last fingerprint, and why there are none."""

    shares: Sequence[Share] = ()
    notices: tuple[str, ...] = ()


def _known(options: FingerprintOptions, task: CopyTask) -> _Known:
    if task.place is None:
        return _Known()
    try:
        return _Known(load_shares(task.place, options.hash_key, options.max_batch_bytes))
    except SourceError as error:
        return _Known((), (f"{error}: all segments of {task.copy.path} are read",))


def _take(options: FingerprintOptions, task: CopyTask) -> TakenCopy:
    """Read a copy in this process."""
    if task.remembers and task.as_of is None:
        return _take_with_shares(options, task, _known(options, task))
    return _finished(task, TakenCopy(sketch_copy(task.copy, options, task.as_of)))


def _take_with_shares(options: FingerprintOptions, task: CopyTask, known: _Known, **how: Any) -> TakenCopy:
    """The same by shares; `how` are more arguments of sketch_with_shares."""
    found = sketch_with_shares(task.copy, options, known.shares, **how)
    section = b""
    if task.remembers:
        section = section_of_shares(task.name, found.shares, options.hash_key, options.max_batch_bytes)
    is_read_whole = task.remembers and (found.sketch.compacted or found.sketch.transactional)
    return _finished(task, TakenCopy(found.sketch, section, found.unread_bytes, is_read_whole, known.notices))


def _finished(task: CopyTask, found: TakenCopy) -> TakenCopy:
    meta = meta_of(directory_above(task.copy.path))
    sketch = found.sketch._replace(node_id=None if meta is None else meta.node_id)
    return found._replace(sketch=fitted(sketch))


class _LargeCopy:
    """A copy of which several processes read ranges of `segments`; these are none where it is to be read as a whole."""

    def __init__(self, task: CopyTask, options: FingerprintOptions, slots: int, later_bytes: int) -> None:
        self.task, self._options = task, options
        self._known = _known(options, task)
        self._begun_ns = time.time_ns()
        self._bases = frozenset(each.log.base_offset or 0 for each in task.copy.segments)
        self.segments, self._with_state = self._to_read()
        self._parts = dict[int, list[SegmentRange]]()  # by the number of the segment
        bytes_after = later_bytes + sum(each.segment.log.size for each in self.segments)
        sizes = _STATE_RANGE_SIZES if self._with_state else _RANGE_SIZES
        for number, segment, _ in self.segments:
            bytes_after -= segment.log.size
            self._parts[number] = list(cut_into_ranges(segment, slots, bytes_after, sizes))
        self._sent, self._is_taken = 0, False  # the ranges whose results were not taken

    def _to_read(self) -> tuple[Sequence[SegmentToRead], bool]:
        """The segments of which ranges are read, and whether with the last records of keys.

        A log cleaner leaves gaps from the begin of a log on, so that its first bytes show it.
        """
        several = segments_to_read(self.task.copy, self._options, self._known.shares, self._begun_ns)
        if several and self._probe(several[0], with_state=False):
            return several, False
        several = all_segments(self.task.copy)
        return (several, True) if several and self._probe(several[0], with_state=True) else ((), False)

    def _probe(self, first: SegmentToRead, *, with_state: bool) -> bool:
        part = SegmentRange(first.segment, 0, _PROBE_BYTES)
        return sketch_range(part, first.start_offset, self._options, 0, with_state=with_state) is not None

    def ranges(self, copy: int) -> Iterator[_RangeTask]:
        """The tasks of the copy with this number, until it turns out that others are of no use."""
        how = self._begun_ns // 1_000_000, self._with_state
        for each in self.segments:
            for part in self._parts[each.number]:
                if self._is_taken:
                    return
                self._sent += 1
                yield _RangeTask(copy, each.number, part, each.start_offset, *how)

    def take(self, first: RangeSketch | None, results: Iterator[tuple[Any, Any]]) -> TakenCopy:
        """What a fingerprint says of it, from the results of its ranges. Reads here what is more than batches."""
        sketches = chain([first], (result for _, result in results))
        planned = iter(self._parts.items())

        def fresh(number: int) -> SegmentSketch | None:
            for planned_number, parts in planned:
                read = list(islice(sketches, len(parts)))
                self._sent -= len(parts)
                if planned_number == number:
                    is_last = number == len(self.task.copy.segments) - 1
                    return whole_segment(read, self._bases, is_last=is_last)
            return None

        found = self._take(fresh)
        self._is_taken = True
        while self._sent > 0:
            next(sketches)
            self._sent -= 1
        return _take(self._options, self.task) if found is None else found

    def _take(self, fresh: Fresh) -> TakenCopy | None:
        if not self._with_state:
            how: dict[str, Any] = {"now_ns": lambda: self._begun_ns, "fresh": fresh}
            return _take_with_shares(self._options, self.task, self._known, **how)
        sketch = sketch_with_states(self.task.copy, self._options, fresh)
        found = None if sketch is None else TakenCopy(sketch, is_read_whole=self.task.remembers)
        return None if found is None else _finished(self.task, found)
