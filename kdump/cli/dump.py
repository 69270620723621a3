"""kdump dump."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kdump.cli import INTERRUPTED, at, complain, options
from kdump.dump.companion_files import CompanionDamage
from kdump.dump.dump import DumpFailure, Event, Note, dump
from kdump.dump.dump import DumpOptions as What
from kdump.errors import NotShown, SourceError
from kdump.format.naming import Kind
from kdump.render import BYTES_MODES, renderer
from kdump.render import RenderOptions as Look
from kdump.render.base import StderrLine, printable
from kdump.storage.partition import LogFile
from kdump.verify.findings import Severity


@click.command("dump")
@options.paths
@click.option("--batches", is_flag=True, help="Only batches: nothing is decompressed.")
@click.option("--records", is_flag=True, help="Only records.")
@options.output_format(
    "terminal", "text", "json", "kafka", "fetch", note="; fetch writes what --at reads as the result of a fetch"
)
@click.option(
    "--at",
    type=at.OffsetParam(),
    default=None,
    metavar="OFFSET",
    help="Read from OFFSET on, as a consumer does: a number, earliest, latest, or @ and a time. PATH is one topic-partition or one segment.",
)
@click.option("-v", "--verbose", is_flag=True, help="With --at: also how it was found.")
@click.option(
    "--offset",
    "offsets",
    type=options.OffsetRangeParam(),
    default=None,
    metavar="A:B",
    help="Only these offsets, B not among them.",
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(0),
    metavar="N",
    help="Stop after N records (with --batches: batches) or entries.",
)
@click.option(
    "--bytes",
    "bytes_mode",
    type=click.Choice(BYTES_MODES),
    default="auto",
    show_default=True,
    help="How keys, values and headers are written.",
)
@click.option(
    "--force", is_flag=True, help="Show the records of batches whose checksum is wrong, as far as they parse."
)
@click.option(
    "--max-bytes",
    type=options.SizeParam(),
    metavar="SIZE",
    help="Read only the first SIZE bytes of each log file. With --at: at most SIZE bytes from there (1m, if not given), or one batch that is larger.",
)
@click.option("--deep-iteration", is_flag=True, help="With --format kafka: records too.")
@click.option("--print-data-log", is_flag=True, help="With --format kafka: records with key and value.")
@click.option(
    "--skip-record-metadata", is_flag=True, help="With --format kafka and --print-data-log: key and value only."
)
@click.option(
    "--verify-index-only",
    is_flag=True,
    help="With --format kafka: compare indexes with the log beside them, without their entries. A directory is its indexes.",
)
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="With --format kafka: only check indexes in themselves, as brokers before 2.3 did when they loaded them. A directory is its indexes.",
)
@options.any_kind
@options.max_batch_bytes
@options.fail_on
@options.color
@options.quiet
def command(**chosen: Any) -> int:
    """Show what is in log files and their companions, in the order of its bytes.

    PATH is a segment, a snapshot, a directory of them, a glob, or - for standard input. A damaged batch is shown as damaged, and the dump goes on
    behind it. Indexes, producer snapshots, checkpoints and the other small files are shown where PATH names them, not below a directory.

    \b
    Examples:
      kdump dump 00000000000000000000.log
      kdump dump --records --format json --offset 1000:1010 topic-0/
      kdump dump --at 1000 -n 1 topic-0/
      kdump dump --format kafka --print-data-log 00000000000000000000.log

    \b
    Exit status: 0 shown, 1 damage met, 2 usage, 3 something could not be read.
    """
    _check(chosen)
    if chosen["format_name"] == "fetch":
        return at.send(chosen)
    started = time.monotonic()
    met: set[Severity] = set()
    with _events(chosen, met.add) as events, renderer(chosen["format_name"], sys.stdout, _look(chosen)) as out:
        failed, status = False, INTERRUPTED
        try:
            for told in out.show(events, everything=chosen["offsets"] is None and chosen["at"] is None):
                failed |= _tell(told)
            status = options.status(failed, met, chosen["fail_on"])
        except KeyboardInterrupt:
            pass  # the summary and the exit status say so
        if chosen["format_name"] == "json" and not chosen["quiet"]:
            out.summary({"command": "dump", "exit_status": status, "seconds": round(time.monotonic() - started, 3)})
    return status


@contextmanager
def _events(chosen: dict[str, Any], on_damage: Callable[[Severity], None]) -> Iterator[Iterator[Event]]:
    """What is to be shown."""
    if chosen["at"] is not None:
        yield at.events(chosen, _what(chosen), on_damage)
        return
    with options.files(chosen, indexes=chosen["verify_index_only"] or chosen["index_sanity_check"]) as files:
        yield dump(_shown(files, chosen), _what(chosen), on_damage)


def _tell(told: DumpFailure | CompanionDamage | StderrLine | Note) -> bool:
    """Say it on standard error; whether something could not be shown."""
    match told:
        case Note(text):
            complain(text)
            return False
        case DumpFailure(error):
            complain(error)
            return True
        case CompanionDamage():
            complain(told.message)
            return False
        case StderrLine(text, failed):
            sys.stderr.write(f"{printable(text) if sys.stderr.isatty() else text}\n")
            return failed


def _shown(files: Iterable[LogFile | SourceError], chosen: dict[str, Any]) -> Iterator[LogFile | SourceError]:
    for file in files:
        if chosen["format_name"] == "kafka" and isinstance(file, LogFile) and file.kind is Kind.KAFKA07:
            raise click.UsageError(f"{at.NO_07_FOR_KAFKA}: {file.path}")
        if chosen["format_name"] == "kafka" and isinstance(file, LogFile) and file.kind not in _TOOL_KINDS:
            yield NotShown(file.path)
        else:
            yield file


_TOOL_KINDS = (Kind.LOG, Kind.CHECKPOINT, Kind.INDEX, Kind.TIMEINDEX, Kind.TXNINDEX, Kind.SNAPSHOT)


def _check(chosen: dict[str, Any]) -> None:
    at.check(chosen)
    if chosen["batches"] and chosen["records"]:
        raise click.UsageError("--batches and --records exclude each other; without either both are shown")
    for name in ("deep_iteration", "print_data_log", "skip_record_metadata"):
        if chosen[name] and chosen["format_name"] != "kafka":
            raise click.UsageError(
                f"--{name.replace('_', '-')} goes with --format kafka; the other formats show records unless --batches is given"
            )
    for name in ("verify_index_only", "index_sanity_check"):
        option = f"--{name.replace('_', '-')}"
        if chosen[name] and chosen["format_name"] != "kafka":
            raise click.UsageError(f"{option} goes with --format kafka; kdump verify proves indexes with their log")
        if chosen[name] and (chosen["offsets"] is not None or chosen["count"] is not None):
            raise click.UsageError(f"{option} is about whole indexes, --offset and -n are not")
    if chosen["format_name"] == "kafka" and (chosen["batches"] or chosen["records"]):
        raise click.UsageError(
            "--format kafka shows what Kafka's tool shows: batches, with --deep-iteration or --print-data-log their records too"
        )


def _what(chosen: dict[str, Any]) -> What:
    kafka = chosen["format_name"] == "kafka"
    return What(
        records=chosen["deep_iteration"] or chosen["print_data_log"] if kafka else not chosen["batches"],
        offsets=chosen["offsets"] or (None, None),
        limit=chosen["count"],
        force=chosen["force"] or kafka,
        max_bytes=chosen["max_bytes"],
        max_batch_bytes=chosen["max_batch_bytes"],
        compare=kafka,
        check=chosen["index_sanity_check"],
        entries=not chosen["verify_index_only"],
    )


def _look(chosen: dict[str, Any]) -> Look:
    return Look(
        bytes_mode=chosen["bytes_mode"],
        color=options.use_color(chosen["color"]),
        records_only=chosen["records"],
        deep_iteration=chosen["deep_iteration"],
        print_data_log=chosen["print_data_log"],
        skip_record_metadata=chosen["skip_record_metadata"],
        max_bytes=chosen["max_bytes"],
    )
