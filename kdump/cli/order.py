"""The option --order of `kdump dump`: shows several logs as one, by the timestamps of their records."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import click

from kdump.dump.dump import DumpOptions
from kdump.dump.events import Event
from kdump.errors import SourceError
from kdump.format import naming
from kdump.storage.partition import LogFile

TIME: Final = "time"
_EXCLUDED: Final = {
    "at": "--at reads one log",
    "last": "the last records of each log are not the last ones of all",
    "follow": "what is appended later can be older than what was shown",
}


def order_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option."""
    return click.option(
        "--order",
        type=click.Choice(["offset", TIME]),
        default="offset",
        show_default=True,
        help="offset shows one log after the other. time merges all logs by the timestamps of their records, of equal"
        " ones by topic and partition; each log stays in the order of its offsets.",
    )(command)


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense with --order time."""
    if chosen["order"] != TIME:
        return
    for name, why in _EXCLUDED.items():
        if chosen[name] not in (None, False):
            raise click.UsageError(f"--order time and --{name.replace('_', '-')} cannot be combined: {why}")
    if "-" in chosen["paths"]:
        raise click.UsageError("--order time merges topic-partitions, and standard input is one file")
    if chosen["format_name"] in ("kafka", "fetch", "hex"):
        raise click.UsageError(
            f"--order time cannot be combined with --format {chosen['format_name']}, which shows whole files"
        )
    if chosen["kind"] not in (None, *naming.LOG_KINDS):
        raise click.UsageError(_no_log(naming.words_of(chosen["kind"])))


def events(files: Iterable[LogFile | SourceError], wanted: DumpOptions) -> Iterator[Event]:
    """The events of the logs, merged. Raises click.UsageError for a file that is no log, before the first event."""
    from kdump.dump.time_order import merge_logs  # most dumps do without

    return merge_logs(_logs(files), wanted)


def _logs(files: Iterable[LogFile | SourceError]) -> Iterator[LogFile | SourceError]:
    for file in files:
        if isinstance(file, LogFile) and file.kind not in naming.LOG_KINDS:
            raise click.UsageError(f"{file.path}: {_no_log(naming.words_of(file.kind))}")
        yield file


def _no_log(what: str) -> str:
    return f"{what}; --order time merges the records of logs, and a file of another kind has none"
