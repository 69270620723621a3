"""The offsets of a partition whose bytes are damaged or missing.

Offsets of a log that is not compacted follow one another. So those between two valid batches, with damaged bytes
between them, were in these bytes: both neighbours show it. After the last valid batch only headers that are not proven
and the high watermark say what was there. In a compacted log the offsets between two batches may have been removed.
"""

from collections.abc import Iterable, Iterator

from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.log.damage import Damage
from kdump.log.ranges import OffsetRange, common, first_without, range_to, united, without
from kdump.named_tuple import NamedTuple
from kdump.recover.log_outline import LogOutline
from kdump.recover.plan import Damaged, GivenUp, Lost
from kdump.recover.plan_input import PlanInput


class _MissingRange(NamedTuple):
    """A range of offsets with its proof: whether its ends are `exact`, and whether a plan removes what may have had it.

    `removed`: the plan removes damaged bytes there.
    """

    offsets: OffsetRange
    exact: bool = False
    removed: bool = False


class _Missing(NamedTuple):
    """The missing offsets in order, each once, whether all of their ends are exact, and the first of those `removed`.

    That is None where a plan removes no damaged bytes that may have had one.
    """

    offsets: list[OffsetRange]
    exact: bool
    first_removed: int | None


def damaged_offsets(given: PlanInput, given_up: GivenUp, segments: Iterable[LogOutline]) -> Lost:
    """What is lost, with the batches that are given up.

    `segments` are empty where verify found no damage, and nothing is given up.
    """
    context, report = given.report.context, given.report
    bases = [file.file.base_offset for file in report.files if file.file.base_offset is not None]
    start = max(min(bases, default=0), context.log_start_offset or 0)
    reader = _DamageReader(compacted=report.compacted)
    reader.read(segments)
    if reader.expected is None:
        reader.expected = start if report.log_end_offset is None else report.log_end_offset
    # The line of a replica that is moved here is that of the one that it will replace.
    mark = context.high_watermark if report.state != "future" else None
    found = reader.missing(start, None if given.alone else mark)
    damaged = Damaged(
        tuple((each.start, each.last) for each in found.offsets),
        reader.bytes,
        reader.is_proven and not report.compacted and report.missing_is_known and found.exact,
    )
    if reader.unsearched:
        damaged = Damaged(None, None, exact=False)
    lost = Lost(given_up, damaged, compacted=report.compacted)
    if mark is None:
        return lost
    committed = [OffsetRange(start, mark)]
    below = [each for each in found.offsets if each.start < mark]
    missing = united([*below, *reader.only_removed()])
    gone = [(first, last) for first, last in given_up.offsets or () if first < mark and last >= start]
    return lost._replace(
        committed=bool(below or gone),
        missing=tuple((first, stop - 1) for first, stop in common(missing, committed)),
        is_complete=reader.is_ordered and not report.compacted and not reader.unsearched,
        removes_committed=found.first_removed is not None and found.first_removed < mark,
    )


class _DamageReader:
    """Reads the segments of a partition in log order. `expected` is the offset after the last valid batch so far.

    `is_ordered`: offsets only rise. `is_proven`: also no zeros at the end may have been batches.
    """

    def __init__(self, *, compacted: bool) -> None:
        self.expected: int | None = None
        self.bytes = 0
        self.unsearched = False
        self.is_ordered = True
        self._compacted = compacted
        self._between: list[_MissingRange] = []
        self._stay: list[OffsetRange] = []
        self._removed: list[OffsetRange] = []
        self._pending: list[Damage] = []
        self._removes_pending = False
        self._before = self._highest = -1
        self._resumed: int | None = None

    @property
    def is_proven(self) -> bool:
        return self.is_ordered and not any(damage.padding for damage in self._pending)

    def read(self, segments: Iterable[LogOutline]) -> None:
        for segment in segments:
            has_batch = any(isinstance(item.what, OffsetRange) for item in segment.items)
            self._begin(segment.log.base_offset or 0, is_proven=has_batch)
            self.unsearched = self.unsearched or segment.unsearched is not None
            for what, removed in segment.items:
                if isinstance(what, OffsetRange):
                    self._add_run(what)
                    (self._removed if removed else self._stay).append(what)
                else:
                    self._pending.append(what)
                    self._removes_pending |= removed
                    self.bytes += 0 if what.padding else what.stop - what.start

    def _begin(self, base: int, *, is_proven: bool) -> None:
        """The name of a segment says where the one before ends; without a batch in it, it is not proven."""
        if self.expected is None or base < self.expected:
            self.is_ordered = self.is_ordered and self.expected is None
            self.expected = base
        elif base > self.expected:
            self._resume(base)
            self._skip(base, exact=is_proven)
        self._pending, self._removes_pending = [], False
        self.expected = base

    def _add_run(self, run: OffsetRange) -> None:
        assert self.expected is not None
        if run.start > self.expected:
            self._resume(run.start)
            self._skip(run.start, exact=bool(self._pending))
        elif run.start < self.expected:
            self.is_ordered = False
            self._step_back(run)
        self._pending, self._removes_pending = [], False
        self._before, self.expected = self.expected, run.stop
        self._highest = max(self._highest, run.stop - 1)

    def _step_back(self, run: OffsetRange) -> None:
        """Offsets go back: a batch has wrong ones, this or the one before. Its own lie between its neighbours."""
        if self._compacted and run.start > self._before:
            self._between.append(_MissingRange(OffsetRange(self._before, run.start)))
        self._resumed = self._highest + 1

    def _resume(self, stop: int) -> None:
        """The offsets rise again: where they went back before, one of the batches there may have had these."""
        if self._compacted and self._resumed is not None and stop > self._resumed:
            self._between.append(_MissingRange(OffsetRange(self._resumed, stop)))
            self._resumed = None

    def _skip(self, stop: int, *, exact: bool) -> None:
        """The offsets up to the next valid batch are missing; in a compacted log only where bytes are damaged."""
        if self.expected is not None and (self._pending or not self._compacted):
            self._between.append(_MissingRange(OffsetRange(self.expected, stop), exact, self._removes_pending))

    def missing(self, start: int, high_watermark: int | None) -> _Missing:
        """What is missing, none of it below `start`. Offsets of batches out of order count as present."""
        end = self.expected
        found = [] if end is None else [*self._between, *self._after(end, high_watermark)]
        present = [] if self.is_ordered else united([*self._stay, *self._removed])
        exact, first_removed = True, None
        ranges: list[OffsetRange] = []
        for (first, stop), is_exact, removed in found:
            each = OffsetRange(max(first, start), min(stop, end) if end is not None and first < end else stop)
            at = first_without(each, present)
            if at is None:
                continue
            exact = exact and is_exact
            if removed and (first_removed is None or at < first_removed):
                first_removed = at
            ranges.append(each)
        # Each batch whose offsets jump ahead leaves those up to its own: together far more than the log has.
        return _Missing(without(_disjoint(ranges), present), exact, first_removed)

    def only_removed(self) -> list[OffsetRange]:
        """The ranges whose valid batches are all removed."""
        return without(united(self._removed), united(self._stay))

    def _after(self, end: int, high_watermark: int | None) -> Iterator[_MissingRange]:
        """What was there after the last valid batch."""
        damages = [damage for damage in self._pending if not damage.padding]
        named = [damage.offsets for damage in damages if damage.offsets is not None]
        known = [offsets.stop - 1 for offsets in named if _fits(offsets, end)]
        last: int | None = max(known, default=end - 1)
        if len(known) < len(damages):
            last = None
        if high_watermark is not None and last is not None:
            last = max(last, high_watermark - 1)
        if last is None or last >= end:
            yield _MissingRange(range_to(end, last), removed=self._removes_pending)


def _disjoint(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The ranges in order; those that have an offset in common become one."""
    found: list[OffsetRange] = []
    for each in sorted(ranges):
        if found and each.start < found[-1].stop:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].stop, each.stop))
        else:
            found.append(each)
    return found


def _fits(named: OffsetRange, end: int) -> bool:
    """Whether a header that names these offsets can be that of a batch after this offset."""
    return end <= named.start and named.stop - 1 - end <= HIGHEST_RELATIVE_OFFSET
