"""Collects what a strategy decides about the files of one topic-partition directory."""

from collections.abc import Iterable, Iterator, Mapping

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.naming import number_of, segment_file_name
from kdump.recover.losses import RangeReader
from kdump.recover.plan import FileContent, GivenUp
from kdump.recover.plan_input import PlanInput
from kdump.recover.rebuild_cache import RebuildBudget, RebuildRecorder
from kdump.storage.pieces import Piece

Segments = Mapping[str, PlannedSegment]
"""The segments afterwards, by the names of their log files."""


class PlanBuilder:
    """What the files of a directory are to hold; kdump.recover.plan_completion makes a plan of it.

    `after` gets what a file is to hold, by name, None for a file that goes. `reasons` gets the code of the finding
    about it, by file; `gap_codes` the same for a range of bytes that goes. `fills` are the
    ranges of files of other copies that segments get, with what they hold.
    """

    def __init__(self, given: PlanInput, budget: RebuildBudget | None = None) -> None:
        self.given = given
        self.after: dict[str, FileContent | None] = {}
        self.reasons: dict[str, str] = {}
        self.gap_codes: dict[Piece, str] = {}
        self.fills: Mapping[Piece, GivenUp] = {}
        self.ranges = RangeReader(given)
        self.recorder = RebuildRecorder(budget)

    def gone_segments(self, segments: Segments) -> Iterator[str]:
        """The names of segments that exist now and not afterwards."""
        for name in self.given.sizes:
            number = number_of(name)
            if name not in segments and number is not None and name == segment_file_name(number, self.given.suffix):
                yield name

    def between(self, name: str, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """What of a file is in none of the pieces."""
        position, size = 0, self.given.sizes[name]
        for _, start, stop in sorted(pieces):
            if start > position:
                yield Piece(name, position, start)
            position = max(position, stop)
        if size > position:
            yield Piece(name, position, size)
