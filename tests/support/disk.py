"""Waits for the disk only where a test asks for it: no test here cuts the power, and the waits are a tenth of a run.

Processes that tests start wait; tests/crash looks at them.
"""

from __future__ import annotations

import os
from typing import Final

fsync: Final = os.fsync


def _unsynced(descriptor: int) -> None:
    """Fails as `fsync` does for what is not open."""
    os.fstat(descriptor)


def wait_for_no_disk() -> None:
    """Let `os.fsync` of this process return at once."""
    os.fsync = _unsynced  # type: ignore[assignment]
