"""The command `kdump dump`: its options, and how they become calls of the library."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kdump.cli import (
    at,
    complain,
    decoding,
    exit_status,
    filters,
    follow,
    formats,
    metadata_image,
    options,
    order,
    value_decoding,
)
from kdump.cli.exit_status import INTERRUPTED
from kdump.cli.sections import SectionedCommand
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import DamageNote, DumpFailure, Event, MatchCount
from kdump.dump.record_count import counted
from kdump.render import BYTE_FORMATS, BYTES_MODES, FINDING_FORMATS, RECORD_FORMATS, RenderOptions, renderer
from kdump.render.dump_renderer import DumpRenderer, StderrLine
from kdump.render.escaping import printable
from kdump.verify.findings import Finding, Severity

if TYPE_CHECKING:
    from kdump.render.dump_renderer import DumpMessage


SECTIONS = {
    "What is shown": (
        *("batches", "records", "at", "verbose", "offsets", "count", "isolation", "order", "force"),
        *("metadata_image", "diff", "secrets", "kind", "max_bytes", "max_batch_bytes"),
    ),
    "Filter": (
        *("keys", "values", "headers", "time_range", "time_zone", "topics", "partitions", "last", "counts"),
        *("tombstones", "control", "producers", "transactional_ids"),
    ),
    "How it is shown": (
        *("format_name", "template", "bytes_mode", "separator", "nul", "null_words", "every_line", "no_summary"),
        *("color", "quiet", "fail_on", "help_all"),
    ),
    "Decode": ("decode", "schemas"),
    "Follow": ("follow", "until"),
    "Kafka's tool": (
        *("deep_iteration", "print_data_log", "skip_record_metadata", "verify_index_only", "index_sanity_check"),
        *("offsets_decoder", "transaction_log_decoder", "cluster_metadata_decoder", "remote_log_metadata_decoder"),
        *("share_group_state_decoder", "key_decoder_class", "value_decoder_class"),
    ),
}
FIRST = ("batches", "records", "at", "offsets", "count", "last", "keys", "time_range", "format_name", "follow")


@click.command("dump", cls=SectionedCommand, sections=SECTIONS, first=FIRST)
@options.paths
@click.option("--batches", is_flag=True, help="Show only batches; decompress nothing.")
@click.option("--records", is_flag=True, help="Leave out the lines of valid batches.")
@options.output_format(
    *formats.DUMP_FORMATS, "fetch", note="; fetch writes what --at reads in the format of a fetch result"
)
@formats.record_options
@click.option(
    "--at",
    type=at.OffsetParam(),
    default=None,
    metavar="OFFSET",
    help="Read from OFFSET on, as a consumer does: a number, earliest, latest, or @ and a time."
    " PATH is one topic-partition or one segment.",
)
@click.option("-v", "--verbose", is_flag=True, help="With --at: also show how the offset was found.")
@click.option(
    "--offset",
    "offsets",
    type=filters.OffsetsFromEndParam(),
    default=None,
    metavar="A:B",
    help="Show only offsets from A up to, but not including, B; -N counts back from the end of the log, as in -100:.",
)
@click.option(
    "-n",
    "count",
    type=click.IntRange(0),
    metavar="N",
    help="Stop after N records (with --batches: N batches) or entries.",
)
@click.option(
    "--bytes",
    "bytes_mode",
    type=click.Choice(BYTES_MODES),
    default="auto",
    show_default=True,
    help="How to write keys, values and headers.",
)
@click.option(
    "--force", is_flag=True, help="Also show the records of batches whose CRC is wrong, as far as they can be parsed."
)
@click.option(
    "--all",
    "every_line",
    is_flag=True,
    help="With --format hex: show every line of a batch, not only the first 10,000.",
)
@click.option(
    "--max-bytes",
    type=options.SizeParam(),
    metavar="SIZE",
    help="Read only the first SIZE bytes of each log file. With --at: read at most SIZE bytes from there (default 1m),"
    " or one batch that is larger.",
)
@click.option(
    "--decode",
    type=value_decoding.DecodeParam(),
    metavar=f"[{'|'.join((*value_decoding.DECODE_WORDS, 'NAME'))}]",
    default="auto",
    show_default=True,
    help="Decode the records of internal topics: auto goes by the name of the directory, none decodes nothing, and a"
    " topic decodes as that topic whatever the name. NAME is an entry point in the group kdump.decoders that decodes"
    " values.",
)
@filters.record_filters
@click.option(
    "--isolation",
    type=click.Choice(("all", "read-uncommitted", "read-committed")),
    default="all",
    show_default=True,
    help="Show everything as it is stored, or what a consumer gets: read-uncommitted without control records;"
    " read-committed also without aborted records, up to the last stable offset. The whole log is read for that."
    " With --follow a record is shown when its transaction is committed.",
)
@value_decoding.schemas_option
@order.order_option
@follow.follow_options
@click.option("--deep-iteration", is_flag=True, help="With --format kafka: also show records.")
@click.option("--print-data-log", is_flag=True, help="With --format kafka: also show records, with key and value.")
@click.option(
    "--skip-record-metadata",
    is_flag=True,
    help="With --format kafka and --print-data-log: show only key and value of a record.",
)
@decoding.tool_options
@metadata_image.image_options
@click.option(
    "--verify-index-only",
    is_flag=True,
    help="With --format kafka: compare indexes with the log beside them, and do not show their entries."
    " In a directory, its indexes are read.",
)
@click.option(
    "--index-sanity-check",
    is_flag=True,
    help="With --format kafka: check only the indexes themselves, as brokers before 2.3 did when they loaded them."
    " In a directory, its indexes are read.",
)
@options.any_kind
@options.batch_limit("256m")
@options.fail_on
@options.color
@options.quiet
def command(**chosen: Any) -> int:
    """Show what is in log files and their companions, in the order of the bytes.

    PATH is a segment, a snapshot, a directory of them, a glob, or - for standard input. A damaged batch is shown as
    damaged, and the dump goes on after it. Indexes, producer snapshots, checkpoints and the other small files are shown
    where PATH names them, not below a directory.

    \b
    Examples:
      kdump dump 00000000000000000000.log
      kdump dump --records --format json --offset 1000:1010 topic-0/
      kdump dump --at 1000 -n 1 topic-0/
      kdump dump --template '%o %k=%s\\n' topic-0/
      kdump dump --key order-17 --time 2026-11-21T14:00:2026-11-21T15:00 data/
      kdump dump --records --isolation read-committed topic-0/
      kdump dump --follow --records --offset 1000: topic-0/
      kdump dump --format kafka --print-data-log 00000000000000000000.log

    \b
    Exit status: 0 shown, 1 damage met, 2 usage, 3 something could not be read.
    """
    _check(chosen)
    if chosen["format_name"] == "fetch":
        return at.write_fetch_result(chosen)
    started = time.monotonic()
    met: set[Severity] = set()
    with _events(chosen, met.add) as events, _renderer(chosen) as out:
        failed, status = 0, INTERRUPTED
        try:
            for message in out.show(_shown(_without_notes(events, met.add), chosen)):
                if isinstance(message, Finding):
                    met.add(message.severity)
                failed = max(failed, _complain(message, chosen["format_name"]))
            status = exit_status.of_findings(max(met, default=None), chosen["fail_on"], failed=failed)
        except KeyboardInterrupt:
            pass  # the summary and the exit status say so
        if chosen["format_name"] == "json" and not (chosen["quiet"] or chosen["no_summary"]):
            out.exit_summary("dump", status, round(time.monotonic() - started, 3))
    return status


def _without_notes(events: Iterator[Event], on_damage: Callable[[Severity], object]) -> Iterator[Event]:
    """The events without the notes of damage, whose severities decide the exit status."""
    for event in events:
        if isinstance(event, DamageNote):
            on_damage(event.severity)
        else:
            yield event


def _shown(events: Iterator[Event], chosen: dict[str, Any]) -> Iterator[Event]:
    """Those of the events that are shown."""
    if chosen["counts"]:
        return counted(events)
    return (event for event in events if not isinstance(event, MatchCount)) if chosen["quiet"] else events


@contextmanager
def _events(chosen: dict[str, Any], on_damage: Callable[[Severity], None]) -> Iterator[Iterator[Event]]:
    """The events of the dump that the options ask for."""
    if chosen["metadata_image"]:
        yield metadata_image.events(chosen)
        return
    wanted = _dump_options(chosen, on_damage)
    kafka = chosen["format_name"] == "kafka"
    if chosen["at"] is not None:
        events = at.events(chosen, wanted)
        yield _tool_events(events, wanted) if kafka else events
        return
    if chosen["follow"]:
        yield follow.events(chosen, wanted)
        return
    with options.files(chosen, indexes=chosen["verify_index_only"] or chosen["index_sanity_check"]) as files:
        if kafka:
            from kdump.dump.kafka_tool.dump_log_segments import tool_files

            yield _tool_events(dump_logs(tool_files(files), wanted), wanted)
        elif chosen["order"] == order.TIME:
            yield order.events(files, wanted)
        else:
            yield dump_logs(files, wanted)


def _tool_events(events: Iterator[Event], wanted: DumpOptions) -> Iterator[Event]:
    from kdump.dump.kafka_tool.dump_log_segments import UnreadableByTool, tool_events

    try:
        yield from tool_events(
            events, records=wanted.records, max_bytes=wanted.max_bytes, max_batch_bytes=wanted.max_batch_bytes
        )
    except UnreadableByTool as error:
        raise click.UsageError(str(error)) from None


def _complain(message: "DumpMessage", format_name: str) -> int:
    """Write a message to standard error. Returns the exit status where something could not be shown, else 0."""
    match message:
        case Finding():
            if format_name not in (*FINDING_FORMATS, *BYTE_FORMATS):
                complain(
                    f"{message.path}:{message.position}: {message.severity.word} {message.code}: {message.message}"
                )
            return 0
        case DumpFailure(error):
            complain(error)
            return exit_status.of_error(error)
        case StderrLine(text, failed):
            sys.stderr.write(f"{printable(text) if sys.stderr.isatty() else text}\n")
            return exit_status.FAILED if failed else 0
        case _:
            complain(message.message)
            return 0


def _check(chosen: dict[str, Any]) -> None:
    """Refuse options that cannot be combined."""
    formats.check(chosen)
    at.check(chosen)
    metadata_image.check(chosen)
    follow.check(chosen)
    order.check(chosen)
    kafka = chosen["format_name"] == "kafka"
    if chosen["every_line"] and chosen["format_name"] != "hex":
        raise click.UsageError("--all needs --format hex; the other formats show everything")
    if chosen["batches"] and chosen["records"]:
        raise click.UsageError("--batches and --records cannot be combined; without either both are shown")
    for name in ("deep_iteration", "print_data_log", "skip_record_metadata"):
        if chosen[name] and not kafka:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs --format kafka;"
                " the other formats show records unless --batches is given"
            )
    for name in ("verify_index_only", "index_sanity_check"):
        option = f"--{name.replace('_', '-')}"
        if chosen[name] and not kafka:
            raise click.UsageError(f"{option} needs --format kafka; kdump verify compares indexes with their log")
        if chosen[name] and (chosen["offsets"] is not None or chosen["count"] is not None):
            raise click.UsageError(f"{option} is about whole indexes, --offset and -n are not")
    value_decoding.check(chosen)
    decoding.check(chosen)
    filters.check(chosen)
    _check_isolation(chosen)
    if kafka and (chosen["batches"] or chosen["records"]):
        raise click.UsageError(
            "--format kafka shows what Kafka's tool shows:"
            " batches, and with --deep-iteration or --print-data-log their records too"
        )


def _dump_options(chosen: dict[str, Any], on_damage: Callable[[Severity], None]) -> DumpOptions:
    kafka = chosen["format_name"] == "kafka"
    return DumpOptions(
        records=chosen["deep_iteration"] or decoding.prints_data(chosen) if kafka else not chosen["batches"],
        offsets=filters.offsets(chosen),
        from_end=filters.from_end(chosen),
        limit=chosen["count"],
        force=chosen["force"] or kafka,
        max_bytes=chosen["max_bytes"],
        max_batch_bytes=chosen["max_batch_bytes"],
        compare_indexes=kafka,
        check_indexes=chosen["index_sanity_check"],
        index_entries=not chosen["verify_index_only"],
        runs=chosen["format_name"] in ("json", "text"),
        decode=value_decoding.topic_word(chosen, decoding.topic(chosen) if formats.is_decoded(chosen) else "none"),
        value_decoders=value_decoding.value_decoders(chosen),
        fields=chosen["format_name"] in BYTE_FORMATS,
        control=chosen["format_name"] not in RECORD_FORMATS or chosen["control"],
        topic=filters.topic(chosen),
        predicates=filters.predicates(chosen, on_damage),
        topics=chosen["topics"],
        partitions=chosen["partitions"],
        counts=chosen["counts"],
        isolation=chosen["isolation"],
        marks_aborted=chosen["format_name"] in ("terminal", "text", "json") and not chosen["follow"],
    )


def _renderer(chosen: dict[str, Any]) -> DumpRenderer:
    look = RenderOptions(
        bytes_mode=chosen["bytes_mode"],
        color=options.use_color(chosen["color"]),
        ascii_lines=options.is_ascii(),
        records_only=chosen["records"],
        every_line=chosen["every_line"],
        deep_iteration=chosen["deep_iteration"],
        print_data_log=chosen["format_name"] == "kafka" and decoding.prints_data(chosen),
        skip_record_metadata=chosen["skip_record_metadata"],
    )
    return renderer(chosen["format_name"], sys.stdout, formats.look(chosen, look), DumpRenderer)


def _check_isolation(chosen: dict[str, Any]) -> None:
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
