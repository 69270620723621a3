"""The options that several commands share, and the values that they become."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kdump.cli import completion
from kdump.cli.param_type import ParamType
from kdump.errors import KdumpError, SourceError
from kdump.format.naming import LOG_KINDS, Kind
from kdump.log.severity import Severity
from kdump.render import PAGE_FORMATS
from kdump.storage import discovery
from kdump.storage.file_store import check_password
from kdump.storage.partition import LogDirectory, LogFile, Partition, without_companions

if TYPE_CHECKING:
    from kdump.render.base import PageOptions
    from kdump.verify.display import FindingDisplay

Command = TypeVar("Command", bound=Callable[..., Any])

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class SizeParam(ParamType[int]):
    """A size in bytes; k, m or g may follow, for KiB, MiB, GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,18})([kmg]?)(i?b)?", str(value).lower())
        if match is None or not int(match[1]):
            self.fail(f"{value!r} is not a size; write bytes, or 64k, 16m, 1g", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


class OffsetRangeParam(ParamType[tuple[int | None, int | None]]):
    """A range of offsets A:B, half open. Either side may be left out. N alone is N:N+1."""

    name = "a:b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,19})?(:)?(\d{1,19})?", str(value))
        if match is None or not value or value == ":":
            self.fail(f"{value!r} is not a range of offsets; write A:B, A:, :B or A", param, ctx)
        first = int(match[1]) if match[1] else None
        if not match[2]:
            return first, (first or 0) + 1
        return first, int(match[3]) if match[3] else None


def milliseconds(text: str, zone: tzinfo = UTC) -> int:
    """The first whole millisecond at or after a time; `zone` is that of a time that names none."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=zone)) - datetime(1970, 1, 1, tzinfo=UTC)
    return -(-since // timedelta(milliseconds=1))


Bound = TypeVar("Bound")


def split_range(text: str, parse: Callable[[str], Bound]) -> tuple[Bound | None, Bound | None] | None:
    """A range of times A:B, either side of which may be left out, or a day; None where the text is not one range.

    `parse` raises ValueError or OverflowError for what is no time. Times have colons, too.
    """
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        with suppress(ValueError, OverflowError):
            return parse(text), parse((date.fromisoformat(text) + timedelta(days=1)).isoformat())
    found = list[tuple[Bound | None, Bound | None]]()
    for at in (at for at, letter in enumerate(text) if letter == ":"):
        with suppress(ValueError, OverflowError):
            first, stop = text[:at], text[at + 1 :]
            found.append((parse(first) if first else None, parse(stop) if stop else None))
    return found[0] if len(found) == 1 and found[0] != (None, None) else None


UNDECIDED: Final = "undecided"


def _severity(ctx: click.Context, param: click.Parameter, value: str) -> Severity | str | None:
    return None if value == "never" else value if value == UNDECIDED else Severity[value.upper()]


def file_type(*kinds: Kind) -> Callable[[Command], Command]:
    """The option --type with these kinds of files."""
    return click.option(
        "--type",
        "kind",
        type=click.Choice([kind.value for kind in kinds]),
        metavar="KIND",
        callback=lambda ctx, param, value: value and Kind(value),
        help=f"What the files hold, where their suffix does not say it: {', '.join(kind.value for kind in kinds)}.",
    )


def without_passwords(_: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The paths, unless one is a URL with a password. Raises BadParameter."""
    try:
        for path in value:
            check_password(path)
    except KdumpError as error:
        raise click.BadParameter(str(error), param=parameter) from None
    return value


paths = click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="PATH...",
    callback=without_passwords,
    shell_complete=completion.files,
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
color = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    is_eager=True,
    help="Colours in the terminal format. With always, a pipe gets the terminal format too, unless --format is given.",
)
kind = file_type(*LOG_KINDS)
any_kind = file_type(*Kind)


def batch_limit(default: str) -> Callable[[Command], Command]:
    """The option --max-batch-bytes with this default."""
    return click.option(
        "--max-batch-bytes",
        type=SizeParam(),
        default=default,
        show_default=True,
        metavar="SIZE",
        help="Largest batch, and largest decompressed batch, that is read into memory.",
    )


max_batch_bytes = batch_limit("1g")


def _fail_on(*also: str, text: str = "") -> Callable[[Command], Command]:
    return click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "info", "never", *also]),
        default="error",
        show_default=True,
        callback=_severity,
        help=f"The lowest severity that makes the exit status 1.{text}",
    )


fail_on = _fail_on()
fail_on_undecided = _fail_on(UNDECIDED, text=" With --compare, undecided: an error, or copies that are undecided.")
level = click.option(
    "--level",
    type=click.Choice(["error", "warning", "info"]),
    callback=lambda ctx, param, value: value and Severity[value.upper()],
    help="The lowest severity of the findings that are shown. Default: warning in text and terminal; the other formats"
    " show all.",
)
everything = click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show every finding that was kept, not only 20 of each code and file.",
)
progress = click.option(
    "--progress/--no-progress", default=None, help="Progress on standard error; by default only on a terminal."
)
jobs = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 1024),
    default=lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    show_default="the cores",
    metavar="N",
    help="Worker processes.",
)


def _master(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is None or ctx.resilient_parsing:
        return None
    from kdump.spark.masters import MasterError, check_master

    try:
        return check_master(value)
    except MasterError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _spark_settings(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    found = []
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals or not re.fullmatch(r"spark\.[^\s=]+", name):
            raise click.BadParameter(f"{value!r} is not a setting of Spark; write spark.NAME=VALUE", ctx, param)
        found.append((name, setting))
    if found and not ctx.resilient_parsing:
        _open_stores_with(found, ctx)
    return tuple(found)


def _open_stores_with(settings: list[tuple[str, str]], ctx: click.Context) -> None:
    """Paths are looked at, and partitions are sought, before there is a session, which costs seconds."""
    from kdump.spark.store_settings import NO_STORES, StoreSettings

    stores = StoreSettings(settings)
    if stores != NO_STORES:
        stores.use()
        ctx.call_on_close(NO_STORES.use)


def spark(command: Command) -> Command:
    """The options --master and --spark-conf."""
    for option in (
        click.option(
            "--spark-conf",
            "spark_settings",
            multiple=True,
            metavar="NAME=VALUE",
            callback=_spark_settings,
            help="A setting of Spark, with --master: spark.executor.memory=1g. May be given several times.",
        ),
        click.option(
            "--master",
            metavar="URL",
            envvar="KDUMP_MASTER",
            show_envvar=True,
            callback=_master,
            help="Work on Spark: local[*], spark://host:7077, yarn, k8s://host, or sc://host for Spark Connect."
            " Every worker must be able to reach the same paths. On one machine --jobs is faster. See kdump-spark(7).",
        ),
    ):
        command = option(command)
    return command


io_limit = click.option(
    "--io-limit",
    type=SizeParam(),
    metavar="RATE",
    help="Read at most RATE bytes of logs and indexes a second, over all processes; k, m or g may follow.",
)
keep_cache = click.option(
    "--keep-cache/--drop-cache",
    default=None,
    help="Whether what was read stays in the page cache of the system. What was in it before always stays."
    " Default: it stays, except where a running broker holds the lock of the log directory.",
)


def output_format(*names: str, note: str = "") -> Callable[[Command], Command]:
    """The option --format with these formats. Its default is terminal on a terminal, text elsewhere."""

    def chosen(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        if value in PAGE_FORMATS and sys.stdout.isatty():
            from kdump.verify.next_step import shell_command

            command = shell_command(["kdump", *sys.argv[1:]])
            raise click.UsageError(
                f"--format {value} is a page, which goes to a file or a pipe and not to a terminal:"
                f" {command} > kdump.{value}"
            )
        coloured = ctx.params.get("color") == "always"
        return value or ("terminal" if coloured or sys.stdout.isatty() else "text")

    return click.option(
        "--format",
        "format_name",
        type=click.Choice(names),
        default=None,
        callback=chosen,
        help=f"The output format{note}. Default: terminal on a terminal, text in a pipe.",
    )


def page_options(command: Command) -> Command:
    """The option of the format html that verify, recover and stat have."""
    return click.option(
        "--reproducible",
        is_flag=True,
        help="With --format html: leave out times and absolute paths, so that the same input gives the same page.",
    )(command)


def page(chosen: dict[str, Any]) -> "PageOptions":
    """What --reproducible, --show-keys and the paths say of a page. Refuses what no page has."""
    from kdump.render.base import PageOptions

    is_page = chosen["format_name"] in PAGE_FORMATS
    for name in ("reproducible", "show_keys"):
        is_of_comparison = name == "show_keys" and chosen.get("compare")
        if chosen.get(name) and not is_page and not is_of_comparison:
            raise click.UsageError(f"--{name.replace('_', '-')} has no effect without --format html")
    if is_page and chosen["quiet"]:
        raise click.UsageError("--format html is one page, of which the summary is the head: leave out --quiet")
    paths, now_ms = tuple(chosen["paths"]), int(time.time() * 1000)
    return PageOptions(paths, now_ms, chosen["reproducible"], bool(chosen.get("show_keys")))


def display(chosen: dict[str, Any], select: tuple[str, ...] = (), *, verbose: bool = False) -> "FindingDisplay":
    """Which findings --level, --all and --select show in the chosen format; `verbose` shows info too.

    JSON is for programs, and a page filters: both hold all of them unless --level is given.
    """
    from kdump.verify.display import LINES, FindingDisplay

    level: Severity | None = chosen["level"]
    if chosen["format_name"] in ("json", *PAGE_FORMATS):
        return FindingDisplay(Severity.INFO if level is None else level, select)
    if level is None:
        fails = chosen.get("fail_on")
        level = Severity.INFO if verbose else min(Severity.WARNING, Severity.WARNING if fails is None else fails)
    return FindingDisplay(level, select, None if chosen["everything"] else LINES, folds=True)


def use_color(value: str) -> bool | None:
    """The value of --color for a renderer: None where the terminal decides."""
    return {"always": True, "never": False}.get(value)


def is_ascii() -> bool:
    """Whether the locale asks for lines and bars of ASCII: LC_ALL=C."""
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, names), "") in ("C", "POSIX")


@contextmanager
def partitions(
    chosen: dict[str, Any], *, companions: bool = True
) -> Iterator[Callable[[], Iterator[Partition | LogDirectory | SourceError]]]:
    """Give a function that discovers what the paths name; without `companions` the log files alone."""
    with _standard_input(chosen) as standard_input:

        def found() -> Iterator[Partition | LogDirectory | SourceError]:
            for item in discovery.discover(chosen["paths"], kind=chosen["kind"], standard_input=standard_input):
                if companions or isinstance(item, SourceError):
                    yield item
                elif isinstance(item, Partition):
                    yield without_companions(item)

        yield found


@contextmanager
def files(chosen: dict[str, Any], *, indexes: bool = False) -> Iterator[Iterator[LogFile | SourceError]]:
    """Give the log files that the paths name or that are below them, and the companions that the paths name.

    With `indexes`, give the indexes of the log files instead.
    """
    with _standard_input(chosen) as standard_input:
        yield discovery.log_files(chosen["paths"], kind=chosen["kind"], standard_input=standard_input, indexes=indexes)


@contextmanager
def _standard_input(chosen: dict[str, Any]) -> Iterator[LogFile | SourceError | None]:
    """Give what the path - stands for: standard input, copied to a temporary file."""
    if "-" not in chosen["paths"]:
        yield None
        return
    if sys.stdin is None:
        yield SourceError("-: standard input is closed")
        return
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="kdump-") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool, 1 << 20)
        spool.flush()
        yield LogFile("-", chosen["kind"] or Kind.LOG, None, True, spool.tell(), spool.name)
