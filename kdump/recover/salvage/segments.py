"""The segments that the kept batches become: their names, their pieces, and where one has to be split."""

from collections.abc import Iterable, Iterator, Sequence

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import segment_file_name
from kdump.log.damage import codes_of
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.log.segment_view import ORDER_CODES
from kdump.recover.salvage.batch_reader import BatchReader
from kdump.recover.salvage.lost_markers import NO_END
from kdump.storage.pieces import Piece
from kdump.verify.reaction import is_valid_log


class SegmentLayout:
    """The segments afterwards, in order, and the batches of each."""

    def __init__(self, files: Sequence[SegmentBatches], *, rebuild_all: bool) -> None:
        self._files, self._rebuild_all = files, rebuild_all
        self.kept: list[list[BatchSpan]] = [[] for _ in files]
        self.segments: list[PlannedSegment] = []
        self.batches: list[list[BatchSpan]] = []

    def lay_out(self, directory: str, batches: Iterable[BatchSpan]) -> None:
        """Make the segments of these batches. Raises SourceError."""
        for batch in batches:
            self.kept[batch.file].append(batch)
        lowest = 0  # base offset of the next segment
        used: set[int] = set()
        firsts = [own[0].first if own else None for own in self.kept]
        with BatchReader(directory, self._files) as reader:
            for one, own in zip(self._files, self.kept, strict=True):
                if own:
                    base = self._base_of(one, own, lowest, used, reader)
                    self._add_segments(one, base, own, reader)
                    used.add(base)
                    lowest = own[-1].last + 1
                    continue
                following = min((first for first in firsts[one.number + 1 :] if first is not None), default=NO_END)
                named = one.name == segment_file_name(one.base, ".log")
                if named and lowest <= one.base <= following and one.base not in used:
                    used.add(one.base)
                    self._add(one, one.base, [])

    def _base_of(
        self, one: SegmentBatches, own: Sequence[BatchSpan], lowest: int, used: set[int], reader: BatchReader
    ) -> int:
        """The base offset of a file: of its name, its actual one or that of its first batch, whichever fits."""
        for base in (one.base, one.actual_base_offset):
            if lowest <= base <= own[0].first and own[0].last - base <= HIGHEST_RELATIVE_OFFSET and base not in used:
                return base
        return max(lowest, reader.first_offset(own[0]))

    def _add_segments(self, one: SegmentBatches, base: int, own: Iterable[BatchSpan], reader: BatchReader) -> None:
        """The batches of a file as one segment, or as more where an index could not hold their offsets."""
        part: list[BatchSpan] = []
        for batch in own:
            if part and batch.last - base > HIGHEST_RELATIVE_OFFSET:
                self._add(one, base, part)
                base, part = reader.first_offset(batch), []
            part.append(batch)
        self._add(one, base, part)

    def _add(self, one: SegmentBatches, base: int, own: list[BatchSpan]) -> None:
        pieces = tuple(Piece(one.name, start, stop) for start, stop in _ranges(own))
        whole_file = (Piece(one.name, 0, one.log.size),) if one.log.size else ()
        walked = self._rebuild_all or pieces != whole_file or segment_file_name(base, ".log") != one.name
        suspects = 0
        for batch in own:
            suspects |= batch.suspect
        valid = is_valid_log(code for code in codes_of(suspects) if code not in ORDER_CODES)
        self.segments.append(PlannedSegment(base, pieces, valid, walked))
        self.batches.append(own)


def _ranges(batches: Iterable[BatchSpan]) -> Iterator[tuple[int, int]]:
    """Start and stop of batches that touch one another."""
    start = stop = None
    for batch in batches:
        if batch.position != stop:
            if start is not None and stop is not None:
                yield start, stop
            start = batch.position
        stop = batch.end
    if start is not None and stop is not None:
        yield start, stop
