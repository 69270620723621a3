"""A preview of what a broker's next start does with partitions, as its summary alone."""

from collections.abc import Sequence

from kdump.recover.plan import Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import plan_recovery
from kdump.recover.summary import RecoverySummary, RecoveryTotals
from kdump.storage.discovery import discover


def summary_after_undo(paths: Sequence[str], *, is_partial: bool) -> RecoverySummary:
    """The summary of a preview of partitions whose run was undone; `is_partial`: other ones failed.

    Raises SourceError.
    """
    totals, failed = RecoveryTotals(RecoverOptions(), paths, applies=False), is_partial
    for item in plan_recovery(discover(paths), compares=True):
        if isinstance(item, Plan):
            totals.add(RecoveryResult(item))
        failed |= not isinstance(item, Plan)
    summary = totals.summary(failed=failed)
    if is_partial:
        summary = summary._replace(verdict=summary.verdict._replace(unknown="not all of the run was undone"))
    return summary
