"""The exit status of every command: the numbers, and the rules that turn what happened into one of them.

kdump.cli.run maps an exception that ends a command: usage, KdumpError, Ctrl-C, a closed pipe, a bug.
Where several apply, the first of 70, 130 and 141, 3, 4, 1, 0 counts.
"""

from typing import TYPE_CHECKING, Final

from kdump.errors import UnexpectedError

if TYPE_CHECKING:
    from kdump.errors import KdumpError
    from kdump.verify.findings import Severity

FOUND: Final = 1
"""Damage at or above --fail-on; recover: the plan is not empty, or errors remain."""
USAGE: Final = 2
FAILED: Final = 3
"""Something could not be read or done; the other paths were done."""
GAVE_UP: Final = 4
"""recover: applied, and valid records were given up, or offsets below the high watermark are missing now."""
BUG: Final = 70
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141


def of_findings(
    worst: "Severity | None", fail_on: "Severity | None", *, failed: int = 0, interrupted: bool = False
) -> int:
    """The status of a run with findings up to the severity `worst`. `failed` is that of what could not be done."""
    if interrupted or failed:
        return of_failures(failed, interrupted=interrupted)
    return FOUND if worst is not None and fail_on is not None and worst >= fail_on else 0


def of_error(error: "KdumpError") -> int:
    """The status of a run in which this could not be done."""
    return BUG if isinstance(error, UnexpectedError) else FAILED


def of_failures(failed: int, *, interrupted: bool) -> int:
    """The status of a run that did not do all; 0 where it did."""
    return INTERRUPTED if interrupted and failed != BUG else failed


def of_recovery(*, interrupted: bool, failed: int, gave_up: bool, work_left: bool) -> int:
    """The status of a recovery. `work_left`: the plan is not empty and was not applied, or errors remain."""
    if interrupted or failed:
        return of_failures(failed, interrupted=interrupted)
    if gave_up:
        return GAVE_UP
    return FOUND if work_left else 0
