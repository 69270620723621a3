"""Waits for a condition. Nothing waits for a time: a machine may be half as fast."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 60


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """Look again and again until it is so; fail where it is not after `limit_s`."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not so within {limit_s} s"
        time.sleep(0.01)


def thread_waits(name: str) -> bool:
    """Whether the thread of this name waits for a condition variable."""
    for thread in threading.enumerate():
        frame = sys._current_frames().get(thread.ident or 0) if thread.name == name else None
        while frame is not None:
            if frame.f_code is threading.Condition.wait.__code__:
                return True
            frame = frame.f_back
    return False


def checkpointed(logs: Path, name: str = "replication-offset-checkpoint") -> None:
    """Wait until a broker has written a checkpoint of what is there now: twice, as the first may have begun before."""
    seen = set[int]()

    def is_written() -> bool:
        if (logs / name).exists():
            seen.add((logs / name).stat().st_mtime_ns)
        return len(seen) > 2

    until(is_written)
