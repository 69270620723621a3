"""Progress on standard error: bytes done, speed, time left."""

import sys
import time
from types import TracebackType
from typing import Any, Self

LINE_SECONDS = 5  # between two lines where there is no bar


class Progress:
    """Draws a bar over `size` bytes on a terminal; elsewhere prints lines, if `wanted` is true."""

    def __init__(self, size: int, wanted: bool | None) -> None:
        self._bar: Any = None
        self._size = size
        self._done = 0
        self._began = self._line_at = time.monotonic()
        terminal = sys.stderr.isatty()
        self._shown = terminal and wanted is not False
        self._lines = bool(wanted) and not terminal

    @property
    def wanted(self) -> bool:
        """Whether progress is shown, so that the size is needed."""
        return self._shown or self._lines

    def over(self, size: int) -> Self:
        """Set the size in bytes."""
        self._size = size
        return self

    def __enter__(self) -> Self:
        return self

    def advance(self, count: int) -> None:
        """Add `count` bytes. The first call starts the bar and its thread, because workers are forked before."""
        self._done += count
        if self._lines:
            self._line()
        if self._shown and self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

            self._bar = Progress(
                BarColumn(),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._size)
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def _line(self) -> None:
        now = time.monotonic()
        if now - self._line_at < LINE_SECONDS and self._done < self._size:
            return
        self._line_at = now
        percent = 100 * self._done // self._size if self._size else 100
        speed = self._done / max(now - self._began, 1e-3) / (1 << 20)
        sys.stderr.write(f"kdump: {self._done} of {self._size} bytes, {percent} %, {speed:.0f} MiB/s\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
