"""The truncate strategy: plan what a broker's next start leaves, with as few changes as possible.

Where a broker refuses the directory, the plan first removes what it refuses.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from kdump.recover.broker_start import complete_start, loadable, plan_indexes, plan_segments
from kdump.recover.kafka07 import complete_kafka07, segments_after_start
from kdump.recover.loadable_log import LogView
from kdump.recover.plan import FileContent, NewestWalk, Plan
from kdump.recover.plan_builder import PlanBuilder
from kdump.recover.plan_input import ACTIVE_SEGMENT, PlanInput, recovery_point_of
from kdump.recover.rebuild_cache import RebuildBudget

_NAMED: Final = 5
"""So many transactions are named."""


def truncate(given: PlanInput, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory that has something to do. Raises SourceError."""
    if given.is_kafka07:
        builder = PlanBuilder(given, budget)
        return complete_kafka07(builder, segments_after_start(builder))
    plan = _truncation(given, recovery_point_of(given), budget)
    asks = given.options.walk == "checkpoint" and given.report.context.start_because == "own"
    if not asks or len(given.report.files) < 2:
        return plan
    newest = _truncation(given, ACTIVE_SEGMENT, None)
    if _logs_after(newest, given) == _logs_after(plan, given):
        return plan
    return plan._replace(newest=NewestWalk(newest.log_end_offset, newest.lost.given_up))


def _truncation(given: PlanInput, recovery_point: int, budget: RebuildBudget | None) -> Plan:
    builder = PlanBuilder(given, budget)
    log = loadable(given, LogView(given.directory, given.sizes), recovery_point)
    segments = plan_segments(builder, log)
    plan_indexes(builder, log, segments)
    plan = complete_start(builder, log, segments)
    cut = any(name in given.sizes and name.endswith(given.suffix) for name in plan.after)
    return plan._replace(undecided=tuple(undecided_after(log.result.open_transactions or {}))) if cut else plan


def undecided_after(open_transactions: Mapping[int, int]) -> Iterator[str]:
    """What is said of the transactions that are open at the end of a log that is cut: first offset by producer."""
    if not open_transactions:
        return
    first = sorted(open_transactions.items(), key=lambda item: item[1])
    named = ", ".join(f"producer {producer} from offset {offset}" for producer, offset in first[:_NAMED])
    more = f" and {len(first) - _NAMED} more" if len(first) > _NAMED else ""
    yield (
        f"transactions open at the end afterwards: {named}{more}; if a marker is among the bytes that are removed, "
        "consumers that read only committed records stop before its transaction for good: the findings afterwards "
        "say what the transaction log knows"
    )


def _logs_after(plan: Plan, given: PlanInput) -> dict[str, FileContent | None]:
    return {name: content for name, content in plan.after.items() if name.endswith(given.suffix)}
