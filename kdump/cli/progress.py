"""Progress on standard error: bytes done, speed, time left."""

import sys
from types import TracebackType
from typing import Any, Self


class Progress:
    """A bar over `size` bytes; nothing at all unless standard error is a terminal or `wanted` is true."""

    def __init__(self, size: int, wanted: bool | None) -> None:
        self._bar: Any = None
        self._size = size
        self._shown = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> Self:
        return self

    def advance(self, count: int) -> None:
        """So many bytes more are done. The bar begins with the first, when worker processes exist: its thread must not be there before them."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
