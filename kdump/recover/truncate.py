"""The truncate strategy: plan what a broker's next start leaves, with as few changes as possible.

Where a broker refuses the directory, the plan first removes what it refuses.
"""

from typing import Final

from kdump.recover.broker_start import complete_start, loadable, plan_indexes, plan_segments
from kdump.recover.kafka07 import complete_kafka07, segments_after_start
from kdump.recover.loadable_log import LogView
from kdump.recover.plan import Plan
from kdump.recover.plan_builder import PlanBuilder
from kdump.recover.plan_input import PlanInput
from kdump.recover.rebuild_cache import RebuildBudget

ACTIVE_SEGMENT: Final = (1 << 63) - 1
"""A recovery point after which only the active segment lies."""


def truncate(given: PlanInput, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory that has something to do. Raises SourceError."""
    builder = PlanBuilder(given, budget)
    if given.is_kafka07:
        return complete_kafka07(builder, segments_after_start(builder))
    log = loadable(given, LogView(given.directory, given.sizes), _recovery_point(given))
    segments = plan_segments(builder, log)
    plan_indexes(builder, log, segments)
    return complete_start(builder, log, segments)


def _recovery_point(given: PlanInput) -> int:
    points = {"checkpoint": given.report.context.recovery_point, "newest": None, "all": 0}
    point = points[given.options.walk]
    return ACTIVE_SEGMENT if point is None else point
