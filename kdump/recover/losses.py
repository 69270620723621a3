"""What is lost with a recovery: the valid batches that it gives up, and the offsets that were damaged before."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kdump.format.naming import Kind, kind_of, number_of
from kdump.kernel.results import Carry
from kdump.kernel.transactions import Transactions
from kdump.log.damage import Damage
from kdump.log.ranges import ByteRange, OffsetRange
from kdump.recover.damaged_offsets import damaged_offsets
from kdump.recover.log_outline import (
    LogOutline,
    OutlineItem,
    batches_of,
    outline_of,
    read_outline,
)
from kdump.recover.plan import GivenUp, Lost
from kdump.recover.plan_input import PlanInput
from kdump.storage.partition import LogFile, Segment
from kdump.storage.pieces import Piece
from kdump.storage.ranges import SegmentRange
from kdump.verify.reaction import TRUNCATION_CODES
from kdump.verify.scan import ScanOptions, ScanTask, scan

_AFRESH: Final = Carry(-1, False, -1, False, -1, 0)
"""Nothing is known of the bytes before, but a batch may begin here. So a wrong offset does not hide the batch."""
_OUT_OF_ORDER: Final = frozenset({"offset/backwards", "offset/range"})
_OUTLINED: Final = TRUNCATION_CODES | {"offset/gap", "gap/foreign-batch", "epoch/backwards"}
"""The codes of findings that make a file be read batch by batch."""
_STALE: Final = frozenset({"index/stale", "timeindex/stale"})


class RangeReader:
    """Reads what ranges of the log files of a directory hold, each file at most once batch by batch.

    A file without damage is scanned by the kernel alone.
    """

    def __init__(self, given: PlanInput) -> None:
        self._given = given
        self._known: dict[Piece, GivenUp] = {}
        self._outlines: dict[str, LogOutline] = {}

    def outline(self, name: str, removed: Sequence[Piece] = ()) -> LogOutline:
        """The outline of a file, of which these ranges are removed. Raises SourceError.

        The first call for a file says what is removed.
        """
        if name not in self._outlines:
            given = self._given
            in_order = _OUT_OF_ORDER.isdisjoint(one.code for one in given.findings_of(name))
            joins = given.report.compacted and in_order
            view, log = given.report.views.get(name), self._log(name)
            outline = None if view is None else outline_of(log, view, removed, compacted=joins)
            if outline is None:
                outline = read_outline(log, removed, given.options.max_batch_bytes, compacted=joins, view=view)
            self._outlines[name] = outline
            self._known.update(outline.removed)
        return self._outlines[name]

    def is_outlined(self, name: str) -> bool:
        """Whether verify found something in a file that only its batches, one by one, explain."""
        given = self._given
        return any(one.code in _OUTLINED for one in given.findings_of(name))

    def within(self, piece: Piece) -> GivenUp:
        """What a range holds. Raises SourceError."""
        if piece not in self._known:
            self._known[piece] = self._of_view(piece) or self._scan(piece)
        return self._known[piece]

    def known(self, piece: Piece) -> GivenUp | None:
        """What a range holds, where it was read."""
        return self._known.get(piece)

    def _log(self, name: str) -> LogFile:
        given = self._given
        for file in given.report.files:
            if os.path.basename(file.file.path) == name:
                return file.file
        path = os.path.join(given.directory, name)
        return LogFile(path, kind_of(name) or Kind.LOG, number_of(name), False, given.sizes[name])

    def _of_view(self, piece: Piece) -> GivenUp | None:
        """What a stretch of a file without damage holds, as verify's scan showed it."""
        view = self._given.report.views.get(piece.name)
        if view is None or view.damages or not view.says_offsets or view.is_out_of_order:
            return None
        stretches = view.stretches
        if not stretches or (stretches[0].start, stretches[-1].stop) != piece[1:]:
            return None
        found = batches_of(piece, stretches)
        if found is None or not found.offsets:
            return found
        return found._replace(offsets=((found.offsets[0][0], found.offsets[-1][1]),))

    def _scan(self, piece: Piece) -> GivenUp:
        """What verify finds in a range of a file without damage. A batch begins at the start of the range."""
        log = self._log(piece.name)._replace(active=False)
        stop = None if piece.stop >= log.size else piece.stop
        options = ScanOptions(max_batch_bytes=self._given.options.max_batch_bytes)
        summary = scan(ScanTask(SegmentRange(Segment(log), piece.start, stop), options), _AFRESH)
        seen = summary.state
        if seen is None or not seen.batches:
            return GivenUp()
        if not seen.first_spans or any(code in _OUTLINED for code, _ in summary.counts):
            # A wrapper message has to be opened. Verify reports nothing of a file with another suffix.
            return read_outline(log, [piece], options.max_batch_bytes, compacted=False).removed[piece]
        transactions = Transactions(listed=True, gaps=False, idempotent=True)
        for events in summary.events:
            transactions.add(events)
        return GivenUp(
            seen.batches,
            None if seen.unopened else seen.records,
            seen.valid_bytes,
            ((seen.first_offset, seen.last_offset),),
            seen.first_timestamp,
            seen.max_timestamp,
            tuple(sorted(transactions.producer_ids())),
            tuple(transactions.begins()),
        )


def loss_of_plan(given: PlanInput, ranges: RangeReader, removed: Mapping[str, Sequence[Piece]]) -> Lost:
    """What is lost where a plan removes these ranges, by the names of the files. Raises SourceError."""
    removed_batches: list[GivenUp] = []
    unknown = False
    for name, pieces in removed.items():
        if ranges.is_outlined(name):
            outline = ranges.outline(name, pieces)
            removed_batches += outline.removed.values()
            unknown |= any(outline.unsearched is not None and piece.stop > outline.unsearched for piece in pieces)
        else:
            removed_batches += map(ranges.within, pieces)
    given_up = _sum(removed_batches)
    if unknown:
        given_up = given_up._replace(batches=None, records=None, bytes=None, offsets=None)
    return damaged_offsets(given, given_up, _segments(given, ranges, removed))


def loss_without_plan(given: PlanInput) -> Lost:
    """What is lost of a partition with which nothing is to be done. Raises SourceError."""
    if given.report.state in ("delete", "stray"):
        return Lost()
    return loss_of_plan(given, RangeReader(given), {})


def _sum(removed_batches: Sequence[GivenUp]) -> GivenUp:
    some = sorted((one for one in removed_batches if one.batches), key=lambda one: one.first_offset or 0)
    records = [one.records for one in some]
    return GivenUp(
        sum(one.batches or 0 for one in some),
        None if None in records else sum(count or 0 for count in records),
        sum(one.bytes or 0 for one in some),
        _joined(offsets for one in some for offsets in one.offsets or ()),
        some[0].first_timestamp if some else -1,
        max((one.max_timestamp for one in some), default=-1),
        tuple(sorted({producer for one in some for producer in one.producers})),
        tuple(dict.fromkeys(transaction for one in some for transaction in one.transactions)),
    )


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The ranges in order; those that touch become one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


def _segments(given: PlanInput, ranges: RangeReader, removed: Mapping[str, Sequence[Piece]]) -> Iterable[LogOutline]:
    """The segments of the partition as it is, in the order of their base offsets; nothing where verify is content."""
    report = given.report
    outlined = [name for file in report.files if ranges.is_outlined(name := os.path.basename(file.file.path))]
    missing = any(finding.code == "segment/missing" for finding in given.all_findings)
    emptied = [name for file in report.files if _is_emptied(given, name := os.path.basename(file.file.path), file.file)]
    if not (outlined or missing or removed or emptied):
        return
    bases = [file.file.base_offset for file in report.files if file.file.base_offset is not None]
    for file in report.files:
        log, name = file.file, os.path.basename(file.file.path)
        if log.base_offset is None or log.kind not in (Kind.LOG, Kind.KAFKA07):
            continue
        valid = report.valid_segments.get(name)
        if name in outlined or (valid is not None and valid.has_wrapper_messages):
            # Only the messages inside a wrapper message say where it begins.
            yield ranges.outline(name, removed.get(name, ()))
            continue
        if valid is not None:
            end = valid.next_offset
        elif log.size:
            end = (ranges.within(Piece(name, 0, log.size)).last_offset or log.base_offset - 1) + 1
        else:
            end = log.base_offset
        items: tuple[OutlineItem, ...] = ()
        if end > log.base_offset:
            first = log.base_offset
            if any(first < base < end for base in bases):  # it has the name, or the offsets, of another segment
                first = ranges.within(Piece(name, 0, log.size)).first_offset or first
            items = (OutlineItem(OffsetRange(first, end), bool(removed.get(name))),)
        elif name in emptied:
            items = (OutlineItem(Damage(ByteRange(0, 0), "index/stale")),)
        yield LogOutline(log, items)


def _is_emptied(given: PlanInput, name: str, log: LogFile) -> bool:
    """Whether the indexes of an empty log file, which is not the active one, say that it had batches.

    The log cleaner leaves empty indexes with a log that it empties (Cleaner.cleanSegments).
    """
    if log.size or log.active:
        return False
    stem = name.rpartition(".")[0]
    found = [*given.findings_of(f"{stem}.index"), *given.findings_of(f"{stem}.timeindex")]
    return any(finding.code in _STALE for finding in found)
