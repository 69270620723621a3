"""The command line: the commands, and what a run that cannot go on prints."""

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from kdump import __version__
from kdump.cli import streams
from kdump.cli.exit_status import BUG, FAILED, INTERRUPTED, PIPE_CLOSED, USAGE
from kdump.errors import NO_MEMORY, KdumpError, UnexpectedError

COMMANDS = {
    "dump": "show what files hold: batches with their records, index entries, snapshots, checkpoints",
    "verify": "check every batch, companion and checkpoint; with --deep every record",
    "recover": "print what a broker's next start would do; do it, or keep every valid batch; undo it",
    "stat": "measure: what takes the space, records, producers, codecs; retention, compaction, upgrade",
    "convert": "make Parquet, Arrow, NDJSON or CSV of the records, or a new log of old ones",
}


_AROUND = {
    "help": ("help_command", "show the help of kdump or of a command"),
    "version": ("version", "show the versions of kdump, its kernel and the codec libraries"),
    "completion": ("completion", "print the script with which bash, zsh or fish completes kdump"),
}
"""The commands about kdump itself: module and help."""


class Group(click.Group):
    """Imports a command when it is called, so that --help stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_AROUND]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS and name not in _AROUND:
            return None
        module = name if name in COMMANDS else _AROUND[name][0]
        command: click.Command = import_module(f"kdump.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=2, cutoff=0.5)
            near = near or [one for one in self.list_commands(ctx) if one.startswith(name[:2])]
            hint = f" Did you mean {' or '.join(near)}?" if near else " kdump help lists the commands."
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items(), *((name, text) for name, (_, text) in _AROUND.items())])


def _version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from kdump.cli.version import version_text

    click.echo(version_text())
    ctx.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the versions of kdump, its kernel and the codec libraries.",
)
def group() -> None:
    """Inspect, verify, recover, measure and convert the log segments that Apache Kafka left on disk, without a broker.

    \b
    Exit status: 0 no damage, 1 damage, 2 usage, 3 something could not be done,
    4 valid records were given up, or offsets below the high watermark are
    now missing, 70 a bug in kdump, 130 interrupted, 141 the reader of the
    output closed it.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    streams.install()
    status = run(arguments)
    # The process ends now. A last garbage collection would take as long as half of the imports.
    gc.freeze()
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line, and return its exit status."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        complain("standard output is closed")
        return FAILED
    try:
        status = _run(arguments)
        sys.stderr.flush()
    except OSError:  # nothing can say so
        streams.drop(sys.stderr)
        return FAILED
    return status


def _run(arguments: list[str] | None) -> int:
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
    except click.ClickException as error:
        _refuse(error)
        return USAGE if isinstance(error, click.UsageError) else FAILED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        streams.drop(sys.stdout)
        return PIPE_CLOSED
    except (KdumpError, OSError) as error:
        if isinstance(error, streams.StreamFailure) and error.stream == streams.STANDARD_OUTPUT:
            streams.drop(sys.stdout)
        complain("the working directory was deleted; change to another one" if _is_nowhere(error) else error)
        return FAILED
    except ImportError as error:
        if error.name != "kdump.kernel":
            return _bug(arguments)
        complain(error)
        return FAILED
    except MemoryError:
        complain(NO_MEMORY)
        return FAILED
    except Exception:
        return _bug(arguments)
    if status == BUG:
        _say_bug(arguments)
    return _int(status)


def _is_nowhere(error: Exception) -> bool:
    """Whether the working directory was deleted: a relative path stands for nothing then."""
    if isinstance(error, KdumpError):
        return False
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _refuse(error: click.ClickException) -> None:
    """Print what Click prints of an error, without control characters: it repeats the arguments."""
    from kdump.render.escaping import printable

    lines = [f"Error: {line}" if not number else line for number, line in enumerate(error.format_message().split("\n"))]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        context = error.ctx
        lines = [*context.get_usage().split("\n"), f"Try '{context.command_path} --help' for help.", "", *lines]
    sys.stderr.write("".join(f"{printable(line)}\n" for line in lines))


def _bug(arguments: list[str] | None) -> int:
    """Print the exception that is handled, and what became of the files."""
    import traceback

    traceback.print_exc()
    _say_bug(arguments)
    return BUG


def _say_bug(arguments: list[str] | None) -> None:
    """Say what a report of a bug needs, and what became of the files."""
    version = f"kdump {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
    sys.stderr.write(f"{version}: this is a bug in kdump; {_files(arguments)}.\n")


def _files(arguments: list[str] | None) -> str:
    """What state the files are in after a bug, as a clause."""
    command = (sys.argv[1:] if arguments is None else arguments)[:1]
    if command == ["recover"]:
        return "kdump recover --undo reverts what it had begun to change, if anything"
    if command == ["convert"]:
        return "the output may not have everything; it changed no other file"
    return "it changed no files"


def _invoke(arguments: list[str] | None) -> Any:
    """Do what Click's own main does; that one would turn a closed pipe into exit status 1."""
    if "_KDUMP_COMPLETE" in os.environ:
        group.main(prog_name="kdump")  # shell completion; does not return
    try:
        with group.make_context("kdump", sys.argv[1:] if arguments is None else arguments) as context:
            return group.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code


def complain(problem: object) -> None:
    """Print one line on standard error, without control characters; of a bug where it happened before that."""
    from kdump.render.escaping import printable

    if isinstance(problem, UnexpectedError):
        sys.stderr.write("".join(f"{printable(line)}\n" for line in problem.details.splitlines()))
    sys.stderr.write(f"kdump: {printable(str(problem))}\n")
    sys.stderr.flush()  # a notice is about work that goes on


def _int(status: Any) -> int:
    return status if isinstance(status, int) else 0
