"""The options of `kdump dump` for metadata images: --metadata-image, --diff, --secrets."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from kdump.cli import options
from kdump.dump.events import Event

_FORMATS: Final = ("text", "terminal", "json")
_KEPT: Final = frozenset(
    (
        *("paths", "format_name", "offsets", "metadata_image", "diff", "secrets", "max_batch_bytes", "fail_on"),
        *("color", "quiet", "no_summary", "bytes_mode", "help"),
    )
)
"""The options of the command that mean something for an image."""


def image_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    for option in (
        click.option(
            "--secrets", is_flag=True, help="With --metadata-image: show sensitive values instead of the word redacted."
        ),
        click.option(
            "--diff",
            type=options.OffsetRangeParam(),
            metavar="A:B",
            help="With --metadata-image: show what differs between the images after record A and after record B, or"
            " after the last.",
        ),
        click.option(
            "--metadata-image",
            is_flag=True,
            help="Show the cluster as the records of __cluster_metadata made it, up to that of --offset N (default: the"
            " last): brokers, topics, partitions, configurations, quotas, ACLs, features, voters. PATH is that"
            " directory, its log directory, or one of its snapshots.",
        ),
    ):
        command = option(command)
    return command


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense with --metadata-image, or without it."""
    if not chosen["metadata_image"]:
        for name in ("diff", "secrets"):
            if chosen[name]:
                raise click.UsageError(f"--{name} needs --metadata-image")
        return
    if chosen["format_name"] not in _FORMATS:
        raise click.UsageError(f"--metadata-image has the formats {', '.join(_FORMATS)}")
    if "-" in chosen["paths"]:
        raise click.UsageError("--metadata-image reads a directory or a snapshot, not standard input")
    if chosen["diff"] is not None and chosen["offsets"] is not None:
        raise click.UsageError("--diff names both offsets; --offset is for one image")
    if chosen["diff"] is not None and chosen["diff"][0] is None:
        raise click.UsageError("--diff needs the first offset: A:B, or A: for the difference up to the end")
    if chosen["offsets"] is not None and _single(chosen["offsets"]) is None:
        raise click.UsageError("with --metadata-image, --offset is one offset: the image after its record")
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        if parameter.name not in _KEPT and given is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[-1]} and --metadata-image cannot be combined: no record is shown")


def _single(offsets: tuple[int | None, int | None]) -> int | None:
    """The offset of --offset N, None for a range."""
    first, stop = offsets
    return first if first is not None and stop == first + 1 else None


def events(chosen: dict[str, Any]) -> Iterator[Event]:
    """The lines of the images of the paths."""
    from kdump.dump.metadata_image import ImageOptions, dump_metadata_image

    diff = chosen["diff"]
    wanted = ImageOptions(
        None if chosen["offsets"] is None else _single(chosen["offsets"]),
        diff,
        chosen["secrets"],
        chosen["max_batch_bytes"],
    )
    for path in chosen["paths"]:
        yield from dump_metadata_image(path, wanted)
