"""The options --follow and --until of `kdump dump`: shows logs that a broker writes, as they grow."""

import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

import click

from kdump.cli.streams import CompleteWriter
from kdump.dump.dump import DumpOptions
from kdump.dump.events import Event
from kdump.format.naming import Kind
from kdump.verify.findings import Severity

_EXCLUDED: Final = {
    "at": "--at reads once",
    "max_bytes": "it shows each log to its end",
    "counts": "a number is known only at an end",
    "metadata_image": "an image is that of one offset",
}


def follow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    command = click.option(
        "--until",
        type=click.Choice(["high-watermark"]),
        help="With --follow: show only records below the high watermark, as replication-offset-checkpoint says it.",
    )(command)
    return click.option(
        "--follow",
        is_flag=True,
        help="Show what is there, then each whole batch as it is written, until Ctrl-C or -n ends it. What a broker"
        " truncates is said, and new segments and partitions are shown.",
    )(command)


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense with --follow, or without it."""
    if not chosen["follow"]:
        if chosen["until"] is not None:
            raise click.UsageError("--until says how far --follow goes; it goes with --follow")
        return
    if "-" in chosen["paths"]:
        raise click.UsageError("--follow looks at files again and again; standard input is read once")
    for name, why in _EXCLUDED.items():
        if chosen[name] not in (None, False):
            option = "--count" if name == "counts" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"--follow and {option} exclude each other: {why}")
    if chosen["offsets"] is not None and chosen["offsets"][1] is not None:
        raise click.UsageError("--follow has no last offset: write --offset A: to begin at A, and -n to end")
    if chosen["format_name"] in ("kafka", "fetch"):
        raise click.UsageError(
            f"--follow does not go with --format {chosen['format_name']}: its tool reads whole files"
        )
    if chosen["kind"] not in (None, Kind.LOG):
        raise click.UsageError("--follow shows segments, which is --type log")


def events(chosen: dict[str, Any], wanted: DumpOptions, on_damage: Callable[[Severity], None]) -> Iterator[Event]:
    """The events of the logs that are followed."""
    from kdump.dump.follow.follow import FollowOptions, follow_logs

    interruption = _Interruption()

    def wait(seconds: float) -> None:
        interruption.check()
        _wait(seconds)

    follow = FollowOptions(wait, committed=chosen["until"] is not None, kind=chosen["kind"])
    with interruption:
        for event in follow_logs(chosen["paths"], wanted, on_damage, follow):
            interruption.check()
            yield event


class _Interruption:
    """Keeps a Ctrl-C from ending a write in the middle, after which the same bytes would be written again.

    It comes after the write. A second one comes at once, as where nothing reads the output.
    """

    def __init__(self) -> None:
        self._is_pending = False
        self._before: Any = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raises KeyboardInterrupt where one came during a write."""
        if self._is_pending:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not CompleteWriter.write.__code__:
            frame = frame.f_back
        if frame is None or self._is_pending:
            raise KeyboardInterrupt
        self._is_pending = True


def _wait(seconds: float) -> None:
    """Let time pass. Raises BrokenPipeError as soon as nothing reads standard output."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream in memory
        time.sleep(seconds)
        return
    waiting = select.poll()
    waiting.register(descriptor, 0)
    # Only errors are waited for; a terminal that is gone and a pipe without a reader have one.
    if waiting.poll(max(1, seconds * 1000)):
        raise BrokenPipeError
