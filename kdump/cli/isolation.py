"""The option --isolation of `kdump dump`: shows a log as a consumer with an isolation level gets it."""

from collections.abc import Callable
from typing import Any

import click


def isolation_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option."""
    return click.option(
        "--isolation",
        type=click.Choice(("all", "read-uncommitted", "read-committed")),
        default="all",
        show_default=True,
        help="Show everything as it is stored, or what a consumer gets: read-uncommitted without control records;"
        " read-committed also without aborted records, up to the last stable offset. The whole log is read for that."
        " With --follow a record is shown when its transaction is committed.",
    )(command)


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense for a consumer."""
    level = chosen["isolation"]
    if level == "all":
        return
    if chosen["format_name"] in ("kafka", "fetch"):
        raise click.UsageError(
            f"--isolation {level} cannot be combined with --format {chosen['format_name']}, which shows whole batches"
        )
    if chosen["control"]:
        raise click.UsageError(
            f"--control and --isolation {level} cannot be combined: a consumer gets no control records"
        )
    if chosen["force"]:
        raise click.UsageError(
            f"--force and --isolation {level} cannot be combined: a consumer never gets a batch whose CRC is wrong"
        )
