"""What `kdump stat --deep` counts of any bytes at all: what a plain recount over the reference decoder counts."""

from __future__ import annotations

from array import array
from ctypes import c_ubyte
from itertools import pairwise
from typing import TYPE_CHECKING

from fuzz.check import Case, Difference, bounds, log_file
from kdump.format.naming import Kind
from kdump.kernel.record_statistics import RecordCollector
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.stat.fold import fold
from kdump.stat.keys import KeyStatistics
from kdump.stat.records import RecordStatistics
from kdump.stat.scan import StatTask, scan
from kdump.stat.values import StatOptions
from kdump.storage.partition import Segment
from kdump.storage.ranges import SegmentRange
from support.record_counts import recount, same, same_keys

if TYPE_CHECKING:
    from kdump.stat.range_statistics import RangeStatistics


def check_measured(case: Case) -> None:
    """Raises AssertionError where the numbers are not those of the recount."""
    if case.kind is not Kind.LOG:
        return
    check_unchecked(case.data)
    with bounds(case):
        counts = recount(case.data, base_offset=case.base_offset, limit=case.max_batch_bytes)
        whole = _scan(case, ())
        for found in (whole, _scan(case, case.cuts)) if case.cuts else (whole,):
            if found.records is None or found.keys is None:
                raise Difference("no records")
            same(found.records, counts)
            same_keys(KeyStatistics.begin() + found.keys, counts)


def _scan(case: Case, cuts: tuple[int, ...]) -> RangeStatistics:
    segment = Segment(log_file(case))
    options = StatOptions(deep=True, max_batch_bytes=case.max_batch_bytes)
    borders = [0, *sorted({cut for cut in cuts if 0 < cut < len(case.data)}), None]
    tasks = [StatTask(SegmentRange(segment, start or 0, stop), options) for start, stop in pairwise(borders)]
    return fold([(task, scan(task)) for task in tasks])


def check_unchecked(data: bytes) -> None:
    """Records that nobody checked: the collector stays inside them, whatever the row of their batch says."""
    # Unlike bytes, without a byte after the last one.
    exact = memoryview((c_ubyte * len(data)).from_buffer_copy(data)).cast("B")
    collector = RecordCollector(sample=4, census=2, heavy=1)
    for magic, attributes in ((2, 0), (2, 4), (2, 8), (1, 1), (1, 9), (0, 0)):
        for skip in (0, 61):
            row = dict.fromkeys(BATCH_COLUMNS, 0) | {"magic": magic, "attributes": attributes, "count": 2**31 - 1}
            row |= {"size": len(data), "base_offset": 2**63 - 1, "last_offset": -(2**63), "base_timestamp": 2**63 - 1}
            collector.add_opened(array("q", row.values()), 0, exact[skip:])
    RecordStatistics.of(collector)
    KeyStatistics.of(collector, sample=4, heavy=1)
