"""The command line: the commands, and what a run that cannot go on prints."""

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from kdump import __version__
from kdump.cli.exit_status import BUG, FAILED, INTERRUPTED, PIPE_CLOSED, USAGE
from kdump.errors import KdumpError

ALLOCATIONS = 50_000
"""Objects between two runs of the cyclic garbage collector: more than the imports of a command allocate."""

COMMANDS = {
    "dump": "show what files hold: batches with their records, index entries, snapshots, checkpoints",
    "verify": "check every batch, companion and checkpoint; with --deep every record",
    "recover": "print what a broker's next start would do; do it, or keep every valid batch; undo it",
}


class Group(click.Group):
    """Imports a command when it is called, so that --help stays fast."""

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
    Exit status: 0 no damage, 1 damage, 2 usage, 3 something could not be done, 4 valid records
    were given up, 70 a bug in kdump, 130 interrupted, 141 the reader of the output closed it.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    gc.set_threshold(ALLOCATIONS, *gc.get_threshold()[1:])
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
        complain("the working directory was deleted; change to another one" if _is_nowhere() else error)
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


def _is_nowhere() -> bool:
    """Whether the working directory was deleted: a relative path stands for nothing then."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _bug(arguments: list[str] | None) -> int:
    """Print the exception that is handled, and what became of the files."""
    import traceback

    traceback.print_exc()
    version = f"kdump {__version__}, Python {sys.version.split()[0]}, {sys.platform}"
    sys.stderr.write(f"{version}: this is a bug in kdump; {_files(arguments)}.\n")
    return BUG


def _files(arguments: list[str] | None) -> str:
    """What state the files are in after a bug, as a clause."""
    if "recover" in (sys.argv[1:] if arguments is None else arguments)[:1]:
        return "kdump recover --undo takes back what it had begun to change, if anything"
    return "it changed no file"


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
    """Print one line on standard error, without control characters."""
    from kdump.render.escaping import printable

    sys.stderr.write(f"kdump: {printable(str(problem))}\n")


def _int(status: Any) -> int:
    return status if isinstance(status, int) else 0
