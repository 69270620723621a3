"""A conversion to a log is ended at every call that changes something, and every such call fails.

A process for each trial has the trouble (log_output_worker.py): in a run a kill or an error, as KDUMP_SEED chooses;
with KDUMP_CRASH=all in the environment there is every error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

import pytest

from support.laws import of_the_day

ALL = os.environ.get("KDUMP_CRASH") == "all"
ERRORS = [f"{error}, {how}" for error in ("ENOSPC", "EIO", "EACCES", "EROFS") for how in ("once", "for good")]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the library that comes between is made for Linux")


@pytest.mark.parametrize("mode", of_the_day(["kill", "torn", *ERRORS] if ALL else ["kill", "ENOSPC, once"], 2, ALL))
def test_trouble_at_every_call(run_worker: Callable[..., str], mode: str) -> None:
    said = run_worker("log_output_worker.py", mode)
    counts = {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", said)}
    assert counts["calls"] > 100
    assert counts.get("again", 0) + counts.get("nothing", 0) > 100
