"""What a conversion lacks of a log: the offsets that no valid batch has, from its start to its end."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kdump.broker.cleaner.cleanup import cleanup_of
from kdump.convert.preparation import PreparedPartition
from kdump.convert.records.holes import KEPT_HOLES, Hole, PartHoles, joined_holes
from kdump.convert.results import DamagedLog
from kdump.format.naming import Kind
from kdump.log.compaction import is_compacted
from kdump.log.log_slice import LOWEST
from kdump.log.ranges import UNKNOWN_END, OffsetRange, united, without
from kdump.named_tuple import NamedTuple
from kdump.replicas.merge import MissingRecords
from kdump.storage.copies import epochs_of
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.checks import offsets, segments
from kdump.verify.findings import Finding, Severity, make_finding


class Missing(NamedTuple):
    """The offsets that are missing, in order, at most 1000 ranges, and the findings about both ends of the log."""

    records: tuple[MissingRecords, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def errors(self) -> list[Finding]:
        """The findings that are errors."""
        return [each for each in self.findings if each.severity is Severity.ERROR]


def missing_of(of: PreparedPartition, parts: Iterable[PartHoles], start: int | None = None) -> Missing:
    """What is missing among the offsets that were asked for, from `start` on.

    `parts` are what reading the log showed; nothing was read without one.
    """
    several = list(parts)
    if not several:
        return Missing()
    first, stop = of.partition.offset
    low = max((each for each in (first, start) if each is not None), default=None)
    merged, mark = of.merged, of.merged.high_watermark
    compacted = merged.compacted or is_compacted(of.partition.copy, shown=_shown(of))
    found = [*_before(of), *joined_holes(several)]
    findings: list[Finding] = []
    if len(merged.replicas) == 1:
        end = _end(of, several)
        if mark is None and (any(part.padded for part in several) or any(each.is_padding for each in of.damage)):
            found.append(Hole(OffsetRange(end, UNKNOWN_END)))  # nobody knows whether records were there
        begins = next((each.offsets.start for each in found if each.offsets.last is None), None)
        base = _base_of_last(of)
        if begins is None and base is not None and base > end and not compacted:
            found.append(Hole(OffsetRange(end, base), exact=False))
        if not compacted and several[0].first_offset is not None and (empty := _empty_first(of)) is not None:
            found.append(Hole(OffsetRange(empty, several[0].first_offset), exact=False))
            findings += _gone(of, empty, several[0].first_offset)
        if (begin := _begin(of, several[0])) is not None and (low is None or begin.stop > low):
            found.append(Hole(begin, exact=False))
            findings.append(_late(of, begin))
        end = max(end, base or 0) if begins is None else end
        if mark is not None and mark > end and (stop is None or stop > end):
            findings.append(_beyond(of, mark, end))
            found = [each for each in found if each.offsets.last is not None]
            found.append(Hole(OffsetRange(end if begins is None else min(begins, end), mark)))
    ranges = list(_asked(found, low, stop))
    exact = not compacted and _is_known(of, ranges)
    return Missing(tuple(_records(_united(ranges), mark, exact=exact)), tuple(findings))


def _is_known(of: PreparedPartition, found: Iterable[Hole]) -> bool:
    """Whether it is known of all holes between two segments that no log cleaner removed what is missing."""
    copy, headers = of.partition.copy, of.partition.headers
    between = set() if headers is None else {each.previous + 1 for each in headers.missing if not each.gaps}
    holes = [each.offsets for each in found if each.offsets.start in between and not each.damaged and each.exact]
    if copy is None or not holes:
        return True
    known = cleanup_of(copy, holes, MAX_BATCH_BYTES)
    return all(known.is_compaction(each) is False for each in holes)


def _shown(of: PreparedPartition) -> bool:
    return of.partition.headers is not None and of.partition.headers.compacted


def _before(of: PreparedPartition) -> Iterator[Hole]:
    """What was missing before the log was read."""
    for each in of.merged.missing:
        yield Hole(each.offsets)
    for hole in of.holes:
        yield Hole(hole.offsets)


def _end(of: PreparedPartition, parts: Sequence[PartHoles]) -> int:
    """The offset after the last batch; without one where the log begins."""
    ends = [each.end for each in parts if each.end is not None]
    if ends:
        return max(ends)
    first = next((each.log.base_offset for each in of.partition.slices), None) or 0
    return max(first, of.merged.log_start_offset or 0)


def _base_of_last(of: PreparedPartition) -> int | None:
    """The offset at which the last segment begins, by its name, where it is empty: the log goes on there."""
    copy = of.partition.copy
    last = copy.segments[-1].log if copy is not None and copy.segments else None
    return last.base_offset if last is not None and not last.size else None


def _empty_first(of: PreparedPartition) -> int | None:
    """The base offset of a first segment that is empty and that others follow."""
    own = () if of.partition.copy is None else of.partition.copy.segments
    return own[0].log.base_offset if len(own) > 1 and not own[0].log.size else None


def _gone(of: PreparedPartition, empty: int, first: int) -> Iterator[Finding]:
    """A finding about the records of an empty first segment."""
    if of.partition.copy is not None and first > empty:
        path = of.partition.copy.segments[1].log.path
        yield replace(segments.missing(path, first, empty, compacted=False), of=of.partition.topic_partition)


def _begin(of: PreparedPartition, part: PartHoles) -> OffsetRange | None:
    """The offsets before the first batch of a log, where it is known that no log cleaner removed them."""
    copy, first = of.partition.copy, part.first_offset
    if copy is None or not copy.whole or first is None or part.first_hole is not None:
        return None
    if is_compacted(copy, shown=False):
        return None
    bases = [segment.log.base_offset for segment in copy.segments if segment.log.kind is Kind.LOG]
    if not bases or bases[0] is None or not copy.segments[0].log.size or (len(bases) > 1 and first >= (bases[1] or 0)):
        return None
    epochs = epochs_of(copy.epochs)  # the first one begins with the log
    start = max(bases[0], of.merged.log_start_offset or 0, epochs[0].start_offset if epochs else 0)
    if start >= first:
        return None
    known = cleanup_of(copy, [OffsetRange(bases[0], first)], MAX_BATCH_BYTES)
    return OffsetRange(start, first) if known.compacts is False else None


def _late(of: PreparedPartition, begin: OffsetRange) -> Finding:
    """A finding about the offsets before the first batch."""
    assert of.partition.copy is not None
    found = offsets.begins_late(of.partition.copy.segments[0].log.path, 0, *begin)
    return replace(found, of=of.partition.topic_partition)


def _beyond(of: PreparedPartition, mark: int, end: int) -> Finding:
    named = of.partition.topic_partition
    found = make_finding(
        "checkpoint/beyond",
        of.partition.path,
        0,
        0,
        offset=end,
        severity=Severity.ERROR,
        topic="" if named is None else named.topic,
        partition=None if named is None else named.partition,
        what="high watermark",
        value=mark,
        end_offset=end,
    )
    return replace(found, of=named)


def _asked(found: Iterable[Hole], low: int | None, stop: int | None) -> Iterator[Hole]:
    lowest, end = LOWEST if low is None else low, UNKNOWN_END if stop is None else stop
    for each in found:
        # An end that is not known stays so.
        part = OffsetRange(max(each.offsets.start, lowest), min(each.offsets.stop, end))
        if part.start < part.stop:
            yield each._replace(offsets=part if each.offsets.last is not None else part._replace(stop=UNKNOWN_END))


def _united(found: Iterable[Hole]) -> Iterator[Hole]:
    """The ranges in order; those that touch or overlap are one."""
    begun: Hole | None = None
    for each in sorted(found, key=lambda hole: hole.offsets):
        if begun is not None and each.offsets.start <= begun.offsets.stop:
            stop = max(begun.offsets.stop, each.offsets.stop)
            begun = begun._replace(offsets=OffsetRange(begun.offsets.start, stop), exact=begun.exact and each.exact)
            continue
        if begun is not None:
            yield begun
        begun = each
    if begun is not None:
        yield begun


def _records(found: Iterable[Hole], mark: int | None, *, exact: bool) -> Iterator[MissingRecords]:
    for number, each in enumerate(found):
        first, last = each.offsets.start, each.offsets.last
        below = None if mark is None else first < mark
        if number == KEPT_HOLES - 1:
            yield MissingRecords(first, None, False, below)
            return
        yield MissingRecords(first, last, exact and each.exact and last is not None, below)


def lost_of(found: Finding) -> tuple[int, int]:
    """The first and the last offset that a finding of `missing_of` is about."""
    ends = ("end_offset", "value") if found.code == "checkpoint/beyond" else ("previous", "base")
    known = {**found.data, "base": found.offset} if found.code == "offset/gap" else found.data
    first, stop = (known[name] for name in ends)
    assert isinstance(first, int)
    assert isinstance(stop, int)
    return first + (found.code != "checkpoint/beyond"), stop - 1


def refuse_missing(missing: Missing, outcome: str) -> None:
    """Raise DamagedLog where the log ends below its high watermark, or its first segment is gone: for an error.

    `outcome`: what becomes of the output.
    """
    for each in missing.errors:
        raise DamagedLog(f"{each.path}: {each.message}; {outcome}")


def not_damaged(missing: Iterable[MissingRecords], parts: Iterable[PartHoles]) -> Iterator[MissingRecords]:
    """What is missing, without the offsets of damaged bytes."""
    damaged = united(each.offsets for each in joined_holes(parts) if each.damaged)
    for each in missing:
        for part in without([each.offsets], damaged):
            yield each._replace(first_offset=part.start, last_offset=part.last)
