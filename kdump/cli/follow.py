"""The options --follow and --until of `kdump dump`: shows logs that a broker writes, as they grow."""

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import click

from kdump.dump.dump import DumpOptions
from kdump.dump.events import Event
from kdump.format.naming import Kind

_EXCLUDED: Final = {
    "at": "--at reads once",
    "max_bytes": "it shows each log to its end",
    "counts": "a number is known only at the end",
    "metadata_image": "an image is that of one offset",
}


def follow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    command = click.option(
        "--until",
        type=click.Choice(["high-watermark"]),
        help="With --follow: show only records below the high watermark in replication-offset-checkpoint.",
    )(command)
    return click.option(
        "--follow",
        is_flag=True,
        help="Show what is there, then each whole batch as it is written, until Ctrl-C or -n ends it. What a broker"
        " truncates is reported, and new segments and partitions are shown.",
    )(command)


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense with --follow, or without it."""
    if not chosen["follow"]:
        if chosen["until"] is not None:
            raise click.UsageError("--until says how far --follow goes; it needs --follow")
        return
    if "-" in chosen["paths"]:
        raise click.UsageError("--follow looks at files again and again; standard input is read once")
    for name, why in _EXCLUDED.items():
        if chosen[name] not in (None, False):
            option = "--count" if name == "counts" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"--follow and {option} cannot be combined: {why}")
    if chosen["offsets"] is not None and chosen["offsets"][1] is not None:
        raise click.UsageError("--follow has no last offset: write --offset A: to begin at A, and -n to end")
    if chosen["format_name"] in ("kafka", "fetch"):
        raise click.UsageError(
            f"--follow cannot be combined with --format {chosen['format_name']}: its tool reads whole files"
        )
    if chosen["kind"] not in (None, Kind.LOG):
        raise click.UsageError("--follow shows segments, which is --type log")


def events(chosen: dict[str, Any], wanted: DumpOptions) -> Iterator[Event]:
    """The events of the logs that are followed."""
    from kdump.dump.follow.follow import FollowOptions, follow_logs

    follow = FollowOptions(_wait, committed=chosen["until"] is not None, kind=chosen["kind"])
    return follow_logs(chosen["paths"], wanted, follow_options=follow)


def _wait(seconds: float, descriptor: int | None) -> None:
    """Let time pass until the descriptor can be read. Raises BrokenPipeError where nothing reads standard output."""
    waiting = select.poll()
    if descriptor is not None:
        waiting.register(descriptor, select.POLLIN)
    output: int | None = None
    with suppress(OSError, ValueError):  # a stream in memory
        output = sys.stdout.fileno()
        # Only errors are waited for; a terminal that is gone and a pipe without a reader have one.
        waiting.register(output, 0)
    if any(found == output for found, _ in waiting.poll(max(1, seconds * 1000))):
        raise BrokenPipeError
