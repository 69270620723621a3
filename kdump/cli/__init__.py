"""The command line: commands, and the one place where what happened becomes an exit status."""

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from kdump import __version__
from kdump.errors import KdumpError

ALLOCATIONS = 50_000
"""Objects between two searches for cycles: more than the imports of a command make."""

FOUND, USAGE, FAILED, GAVE_UP, BUG, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 4, 70, 130, 141

COMMANDS = {
    "dump": "show what is in log files: batches with their records",
    "verify": "prove partitions: every batch, companion and checkpoint, with --deep every record",
    "recover": "show what a broker's next start would cut off; do it, or save what can be saved; take it back",
}


class Group(click.Group):
    """Commands that are imported when they are called, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kdump.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from kdump.format import codec
    from kdump.kernel import crc

    libraries = ", ".join(f"{name} {version}" for name, version in codec.versions().items())
    click.echo(
        f"kdump {__version__}\nkernel: CRC-32C {crc.CRC_IMPL}\ncodecs: {libraries}\npython: {sys.version.split()[0]}"
    )
    ctx.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the versions of kdump, its kernel and the codec libraries.",
)
def group() -> None:
    """Inspect, verify and recover the log segments that Apache Kafka left on disk, without a broker.

    \b
    Exit status: 0 nothing found, 1 damage found, 2 usage, 3 something could not be done, 4 valid
    records were given up, 70 a bug in kdump, 130 interrupted, 141 the reader of the output went away.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])
    status = run(arguments)
    # What is left goes with the process. To search all of it for cycles before takes as long as half the imports.
    gc.freeze()
    sys.exit(status)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    if sys.stdout is None:
        complain("standard output is closed")
        return FAILED
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return FAILED
    except KdumpError as error:
        complain(error)
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        complain(error)
        return FAILED
    except ImportError as error:
        if error.name != "kdump.kernel":
            return _bug(arguments)
        complain(error)
        return FAILED
    except MemoryError:
        complain("not enough memory; a smaller --max-batch-bytes bounds what a batch may take")
        return FAILED
    except Exception:
        return _bug(arguments)
    return _int(status)


def _bug(arguments: list[str] | None) -> int:
    """Print the exception that is handled, and what became of the files."""
    import traceback

    traceback.print_exc()
    version = f"kdump {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
    sys.stderr.write(f"{version}: this is a bug in kdump; {_files(arguments)}.\n")
    return BUG


def _files(arguments: list[str] | None) -> str:
    """What became of the files, when kdump fell over."""
    if "recover" in (sys.argv[1:] if arguments is None else arguments)[:1]:
        return "kdump recover --undo takes back what it had begun to change, if anything"
    return "its files are as they were"


def _invoke(arguments: list[str] | None) -> Any:
    """What Click's own main does, which would make a closed pipe an exit status of 1."""
    if "_KDUMP_COMPLETE" in os.environ:
        group.main(prog_name="kdump")  # a shell asks what could be typed next; does not return
    try:
        with group.make_context("kdump", sys.argv[1:] if arguments is None else arguments) as context:
            return group.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code


def complain(problem: object) -> None:
    """One line on standard error, with nothing in it that makes a terminal act."""
    from kdump.render.base import printable

    sys.stderr.write(f"kdump: {printable(str(problem))}\n")


def _int(status: Any) -> int:
    return status if isinstance(status, int) else 0
