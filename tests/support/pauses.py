"""What a test does in place of a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def pause_with(patch: pytest.MonkeyPatch, action: Callable[[float], object]) -> None:
    """Let `time.sleep` call `action` with the seconds in this thread; other threads, as of an engine, sleep."""
    sleep, own = time.sleep, threading.get_ident()

    def pause(seconds: float) -> None:
        if threading.get_ident() == own:
            action(seconds)
        else:
            sleep(seconds)

    patch.setattr(time, "sleep", pause)
