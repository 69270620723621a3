"""What a Python process of Spark does before each task."""

import gc
import os
from typing import Final

_REUSE: Final = "SPARK_REUSE_WORKER"
"""Set by Spark in the processes that run one task after another."""
_tasks = 0


def begin_task() -> None:
    """Keep Spark's collection of garbage after each task from walking all modules again.

    With those of kdump, PySpark and Arrow it takes 30 ms, as long as it takes to verify 100 MiB. What is there when a
    process begins its second task has just been collected, and stays: it is left out from then on. Modules come later,
    too, so that this is done again, ever more seldom.
    """
    global _tasks  # noqa: PLW0603  # of this process
    _tasks += 1
    if _REUSE in os.environ and _tasks > 1 and not _tasks & (_tasks - 1):
        gc.freeze()
