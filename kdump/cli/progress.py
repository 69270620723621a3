"""Progress on standard error: the phase, bytes done, speed, time left, the file.

The bar is erased before anything else is written to the terminal. It has no thread: it is drawn when work advances, so
that nothing draws while another stream writes, and processes can be forked at any time.
"""

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from kdump.cli import options, streams
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.partition import logs_of
from kdump.verify.summary import LogPosition

LINE_SECONDS: Final = 5
"""Between two lines where there is no bar."""
DRAW_SECONDS: Final = 0.1
"""Between two drawings of the bar."""
READING_SECONDS: Final = 0.3
"""Where directories are listed faster, that is not shown."""
BAR_COLUMNS: Final = 10
READING: Final = "reading"
"""The phase in which directories are listed."""
VERIFYING: Final = "verifying"
MEASURING: Final = "measuring"
CONVERTING: Final = "converting"
PREPARING: Final = "preparing"
"""The phase in which headers are read before logs are converted, and copies are merged."""
CONCLUDING: Final = "comparing files"
"""The phase after the last byte of the logs is read."""


class _ExpectedLog(NamedTuple):
    """A log that is read; it ends at the byte `end` of all of them."""

    path: str
    size: int
    end: int


class Progress:
    """Draws a bar over `size` bytes on a terminal; elsewhere prints lines, if `wanted` is true. `work`: its phase."""

    def __init__(self, wanted: bool | None, work: str = VERIFYING) -> None:
        self._work = work
        # A terminal that is dumb cannot erase a bar.
        terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self._shown = terminal and wanted is not False
        self._lines = bool(wanted) and not terminal
        self._process = os.getpid()
        self._bar: Any = None
        self._visible = self._drawing = False
        self._next = time.monotonic() + READING_SECONDS
        self._phase, self._path = "", ""
        self._size = self._done = 0
        self._logs: deque[_ExpectedLog] = deque()
        self._expected = 0
        self._began = self._line_at = time.monotonic()

    @property
    def wanted(self) -> bool:
        """Whether progress is shown, so that the size is needed."""
        return self._shown or self._lines

    def __enter__(self) -> Self:
        if self._shown:
            for stream in (sys.stdout, sys.stderr):
                writer = streams.writer_of(stream)
                if writer is not None and writer.isatty():
                    writer.before_write = self.erase
        return self

    def read(self, found: Iterable[Any]) -> Iterator[Any]:
        """The same items, while they are listed."""
        for item in found:
            if isinstance(item, Partition | LogDirectory):
                self.enter(READING, item.path)
            yield item

    def over(self, size: int) -> None:
        """Begin to read logs of `size` bytes."""
        self._phase, self._size, self._done, self._next = self._work, size, 0, 0.0
        self._began = self._line_at = time.monotonic()

    def watch(self, found: Iterable[Any]) -> Iterator[Any]:
        """The same items; the logs of the partitions are those that the next bytes are read from, in this order."""
        for item in found:
            if isinstance(item, Partition):
                for segment in logs_of(item):
                    self._expected += segment.log.size
                    self._logs.append(_ExpectedLog(segment.log.path, segment.log.size, self._expected))
            elif self._shown and isinstance(item, LogDirectory):
                self._path = item.path
            yield item

    def advance(self, count: int) -> None:
        """Add `count` bytes that were read."""
        if self._phase == PREPARING:
            self._phase, self._began = self._work, time.monotonic()
        self._done += count
        while len(self._logs) > 1 and self._logs[0].end <= self._done:
            self._logs.popleft()
        if self._logs:
            self._path = self._logs[0].path
        if self._phase == self._work and self._size and self._done >= self._size:
            self._phase = CONCLUDING
        if self._lines:
            self._line()
        self._draw()

    @property
    def position(self) -> LogPosition | None:
        """How far the logs were read; None before the first one."""
        if not self._logs:
            return None
        log = self._logs[0]
        return LogPosition(log.path, min(max(0, self._done - log.end + log.size), log.size), log.size)

    def enter(self, phase: str, path: str) -> None:
        """A phase without bytes, or the next file in it."""
        if os.getpid() != self._process:
            return  # of a worker, which has no terminal of its own
        if phase not in (self._phase, READING) and self._lines:
            sys.stderr.write(f"kdump: {phase} {_path_in(1 << 20, path)}\n")
        if phase not in (self._phase, READING):
            self._next = 0.0
        self._phase, self._path = phase, path
        self._draw()

    def erase(self) -> None:
        """Remove the bar from the terminal, until work advances again."""
        if self._visible and not self._drawing:
            self._drawing = True
            self._bar.stop()
            self._drawing = self._visible = False

    def _draw(self) -> None:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + DRAW_SECONDS
        self._drawing = True
        if self._bar is None:
            self._bar = _bar()
            self._task = self._bar.add_task("", amount="", path="")
        measured = self._phase == self._work
        amount = self._amount(now) if measured else ""
        room = self._bar.console.width - len(self._phase) - BAR_COLUMNS - len(amount) - 4
        self._bar.update(
            self._task,
            description=self._phase,
            completed=self._done if measured else 0,
            total=self._size if measured else None,
            amount=amount,
            path=_path_in(room, self._path),
        )
        if self._visible:
            self._bar.refresh()
        else:
            self._bar.start()
        self._visible, self._drawing = True, False

    def _amount(self, now: float) -> str:
        from kdump.render.measures import size_text

        speed = self._done / max(now - self._began, 1e-3)
        left = int((self._size - self._done) / speed) if speed else 0
        done, size, rate = map(size_text, (self._done, self._size, int(speed)))
        return f"{done} of {size}, {rate}/s, {left // 60}:{left % 60:02}"

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
        self.erase()
        self._shown = False
        for stream in (sys.stdout, sys.stderr):
            writer = streams.writer_of(stream)
            if writer is not None:
                writer.before_write = None


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn
    from rich.table import Column

    shown = streams.without_hook(sys.stderr)
    if options.is_ascii():
        shown.reconfigure(encoding="ascii", errors="replace")  # of which rich makes the bar
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(BAR_COLUMNS),
        TextColumn("{task.fields[amount]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn(
            "{task.fields[path]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        ),
        # Erasing the bar happens inside a write to sys.stderr, which cannot be written to then.
        console=Console(file=shown, highlight=False),
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        transient=True,
        expand=True,
    )


def _path_in(columns: int, path: str) -> str:
    """The path, or as much of its end as fits, without control characters. First the zeros of a name are left out."""
    from kdump.render.escaping import path_text, shortened

    text = path_text(path)
    return text if len(text) <= columns else shortened(re.sub(r"/0{6,}(?=\d)", "/…", text), columns)
