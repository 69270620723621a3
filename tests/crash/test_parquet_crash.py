"""A conversion to Parquet is ended at every call that changes something, and every such call fails: the next run gives
the result of one that was not ended, and at no time does the manifest name what is not there.

By default each operation has one of the troubles, of which a run has a half, as KDUMP_SEED chooses; with
KDUMP_CRASH=all in the environment each has all of them.
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


OPERATIONS = ["first", "next", "rewrite", "folders"]
EACH = [(operation, mode) for operation in OPERATIONS for mode in ("kill", "torn", *ERRORS)]
SOME = [("first", "torn"), ("next", "kill"), ("rewrite", "ENOSPC, once"), ("folders", "EIO, for good")]


@pytest.mark.parametrize(("operation", "mode"), of_the_day(EACH if ALL else SOME, 2, ALL))
def test_trouble_at_every_call(run_worker: Callable[..., str], operation: str, mode: str) -> None:
    said = run_worker("parquet_worker.py", operation, mode)
    assert all(int(count) > 30 for count in re.findall(r"at (\d+) calls", said))
