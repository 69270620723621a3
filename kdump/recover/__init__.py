"""Recovery: a plan is a value; applying it can be interrupted at any system call, and undone."""

from kdump.exports import exports

_MODULES = {
    "kdump.recover.next_step": "RecoveryStep Urgency",
    "kdump.recover.plan": "Action Damaged FileContent GivenUp Lost NewestWalk RecoveryStart SalvagePreview",
    "kdump.recover.plan_lines": "FindingTotals",
    "kdump.recover.runs": "Run",
    "kdump.recover.saved_plans": "SavedPlan",
    "kdump.recover.summary": "RecoverySummary RecoveryTotals",
    "kdump.recover.undo": "RunResult UndoFailure",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
