"""The command `kdump convert`: its options, and what it prints of the output."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli import complain, completion, exit_status, options, value_decoding
from kdump.cli.execution import Found, ProblemLog, execution
from kdump.cli.param_type import ParamType
from kdump.cli.progress import CONVERTING, PREPARING, Progress
from kdump.cli.sections import SectionedCommand
from kdump.errors import KdumpError, reason
from kdump.format.naming import TopicPartition, topic_partition_of
from kdump.log.severity import Severity
from kdump.render import FINDING_FORMATS, RenderOptions, renderer
from kdump.render.base import ConversionRenderer
from kdump.storage.read_policy import ReadPolicy

if TYPE_CHECKING:
    from kdump.convert.options import ConvertOptions, Target
    from kdump.convert.results import Converted, ConvertTotals
    from kdump.log.log_slice import Bounds

LARGEST_JSON: Final = 64 << 20
TARGETS: Final = ("parquet", "arrow", "ndjson", "csv", "log")
_TABLES: Final = ("parquet", "arrow", "ndjson", "csv")
TARGETS_OF: Final = {
    "--partition-folders": ("parquet",),
    "--rewrite": ("parquet",),
    "--segment-bytes": ("log",),
    "--overwrite": ("arrow", "ndjson", "csv"),
    **dict.fromkeys(("--columns", "--keys", "--values", "--schemas"), _TABLES),
    "--master": ("parquet",),
}
"""The options that change nothing with another target."""
SECTIONS = {
    "Output": ("output", "to", "columns", "keys", "values", "schemas", "codec", "overwrite", "rewrite", "dry_run"),
    "Parquet": ("partition_folders",),
    "Log": ("segment_bytes",),
    "What is converted": ("topics", "partitions", "topic_ids", "offset", "time_range", "offsets", "include", "replica"),
    "Transactions and damage": ("isolation", "until", "skip_damaged"),
    "Reading": ("kind", "max_batch_bytes", "jobs", "master", "spark_settings", "io_limit", "keep_cache"),
    "Report": ("format_name", "level", "everything", "color", "progress", "quiet", "help_all"),
}
FIRST = ("output", "to", "columns", "values", "topics", "offset", "time_range", "isolation", "codec", "dry_run")


class TimeRangeParam(ParamType[tuple[int | None, int | None]]):
    """A range of times A:B, half open, or a day. Each is milliseconds since the epoch, or ISO 8601 (UTC without a
    zone).
    """

    name = "a:b"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        if isinstance(value, tuple):
            return value
        text = str(value)
        found = options.split_range(text, options.milliseconds)
        if found is None:
            self.fail(
                f"{text!r} is not a range of times; write A:B, A: or :B, as in 2026-11-21:2026-11-22T18:30, or a day,"
                " as in 2026-11-21",
                param,
                ctx,
            )
        return found


class OffsetsParam(ParamType["Mapping[TopicPartition, Bounds]"]):
    """The offsets of partitions as JSON, or the path of a file with it."""

    name = "json"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> "Mapping[TopicPartition, Bounds]":
        from kdump.convert.choice import parse_offsets

        text = str(value)
        try:
            if not text.lstrip().startswith("{"):
                with open(text, encoding="utf-8") as file:
                    text = file.read(LARGEST_JSON + 1)
            return parse_offsets(text)
        except OSError as error:
            self.fail(f"{text}: {reason(error)}", param, ctx)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PartitionParam(ParamType[TopicPartition]):
    """A topic-partition, as its directory is named."""

    name = "partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        found = value if isinstance(value, TopicPartition) else topic_partition_of(str(value))
        if found is None:
            self.fail(f"{value!r} is not a topic-partition; write TOPIC-NUMBER", param, ctx)
        return found


@click.command("convert", cls=SectionedCommand, sections=SECTIONS, first=FIRST)
@options.paths
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT",
    shell_complete=completion.files,
    help="Where the output goes: a folder for parquet and log, a file for the others, - for standard output.",
)
@click.option(
    "--to",
    type=click.Choice(TARGETS),
    help="The format of OUT. Default: by its suffix (.arrow, .arrows, .ndjson, .jsonl, .csv), else parquet.",
)
@click.option(
    "--columns",
    metavar="NAME,…",
    shell_complete=completion.columns,
    help="The columns of a table, in this order. Default: key, value, headers, topic, partition, offset, timestamp,"
    " timestampType. The manual lists all of them.",
)
@click.option(
    "--keys",
    type=click.Choice(("binary", "utf8", "json")),
    default="binary",
    show_default=True,
    help="How keys are written. binary: their bytes; utf8: text, with U+FFFD for what is not UTF-8; json: JSON, null"
    " where a key is not JSON.",
)
@click.option(
    "--values",
    type=click.Choice(("binary", "utf8", "json")),
    default="binary",
    show_default=True,
    help="How values are written, as with --keys.",
)
@click.option(
    "--schemas",
    metavar="DIR|auto",
    shell_complete=completion.files,
    help="Add the column value_json: values in the wire format of a schema registry as JSON text, null where they"
    " cannot be decoded. DIR and auto are as in kdump-dump(1).",
)
@click.option(
    "--codec",
    metavar="CODEC[:LEVEL]",
    help="How OUT is compressed. Default: zstd for parquet, none for arrow; in a log each batch keeps its codec.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is a file that exists.")
@click.option(
    "--rewrite",
    type=PartitionParam(),
    multiple=True,
    metavar="TOPIC-N",
    help="Convert this partition from its beginning again, and replace what OUT has of it. May be given several times.",
)
@click.option(
    "--dry-run", is_flag=True, help="Read and check everything, report what would be converted, write nothing."
)
@click.option(
    "--partition-folders",
    is_flag=True,
    help="Put the files into folders topic=T/partition=N, without these two columns in the files.",
)
@click.option(
    "--segment-bytes",
    type=options.SizeParam(),
    default="1g",
    show_default=True,
    metavar="SIZE",
    help="The most bytes of a segment of the new log; k, m or g may follow.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Convert only this topic; a glob matches several. May be given several times.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Convert only partition N of each topic. May be given several times.",
)
@click.option(
    "--topic-id",
    "topic_ids",
    multiple=True,
    metavar="ID",
    help="Convert only copies with this topic id, as in partition.metadata. May be given several times.",
)
@click.option(
    "--offset",
    type=options.OffsetRangeParam(),
    default=None,
    metavar="A:B",
    help="Convert only offsets from A up to, but not including, B. Needs a single topic-partition.",
)
@click.option(
    "--time",
    "time_range",
    type=TimeRangeParam(),
    default=None,
    metavar="A:B",
    help="Convert only records with timestamps from A up to, but not including, B: milliseconds since the epoch, or"
    " ISO 8601.",
)
@click.option(
    "--from-json",
    "offsets",
    type=OffsetsParam(),
    metavar="JSON",
    shell_complete=completion.files,
    help="Convert only these partitions, and of each only offsets from the first up to the end, without the end:"
    ' {"topic": {"0": [first, end]}}, or a file with such JSON. null means no bound; so does -2 as the first, and'
    " -1 as the end.",
)
@click.option(
    "--include",
    type=click.Choice(("internal", "delete", "stray", "future", "deleted")),
    multiple=True,
    help="Also convert what is otherwise left out. internal: topics of Kafka itself; delete, stray, future: directories"
    " with this suffix; deleted: records below the log start offset. May be given several times.",
)
@click.option(
    "--replica",
    type=click.Choice(("merge", "all", "refuse")),
    default="merge",
    show_default=True,
    help="What to do with several copies of a topic-partition. merge: make one log, filled from all of them; all:"
    " convert each on its own, with its path in the column replica; refuse: end with an error.",
)
@click.option(
    "--isolation",
    type=click.Choice(("read-committed", "read-uncommitted", "all")),
    help="What to do with transactions. read-committed: leave out records whose transaction was aborted or is not"
    " decided; read-uncommitted: convert all records; all: control records as well. Default: read-committed for tables,"
    " all for a log.",
)
@click.option(
    "--until",
    type=click.Choice(("last-stable-offset",)),
    help="Stop where a consumer with read_committed stops: at the first undecided transaction.",
)
@click.option(
    "--skip-damaged/--strict",
    "skip_damaged",
    default=True,
    help="Convert what is valid and report the rest (the default), or convert no partition that has damage.",
)
@options.output_format(*FINDING_FORMATS, note=" the report")
@options.level
@options.everything
@options.kind
@options.max_batch_bytes
@options.jobs
@options.spark
@options.io_limit
@options.keep_cache
@options.progress
@options.color
@options.quiet
def command(**chosen: Any) -> int:
    """Convert records to Parquet, Arrow, NDJSON or CSV, or old logs to a new log, without a broker.

    PATH is a log directory, a topic-partition directory, any directory above these, a segment, a glob, or - for
    standard input. Nothing in a PATH is changed. What is damaged is left out and reported.

    \b
    Examples:
      kdump convert /data/kafka -o tables/
      kdump convert /data --topic orders --time 2026-11-01:2026-12-01 -o orders/
      kdump convert orders-3/ --offset 1000: --values json -o - --to ndjson
      kdump convert /data/kafka --dry-run -o tables/
      kdump convert old-0/ --to log --codec zstd:9 -o new/

    \b
    Exit status: 0 converted, 1 converted what is valid, and damage was met,
    2 usage, 3 something could not be read or written.
    """
    what = _options(chosen)
    from kdump.convert.results import ConvertTotals

    totals, problems, began = ConvertTotals(), ProblemLog("converted"), time.monotonic()
    progress, interrupted = Progress(chosen["progress"], CONVERTING), False
    with options.partitions(chosen) as found, _renderer(chosen) as out:
        try:
            for item in _converted(found, chosen, what, progress):
                totals.add(item)
                _complain(item, problems) if isinstance(item, KdumpError) else out.converted(item)
        except KeyboardInterrupt:
            interrupted = problems.interrupted()
        except KdumpError as error:
            _complain(error, problems)
        problems.end(some=bool(totals.partitions))
        status = _status(totals, what, failed=problems.failed, interrupted=interrupted)
        if not chosen["quiet"]:
            summary = totals.summary(what, chosen["output"], interrupted=interrupted)
            out.convert_summary(summary, status, round(time.monotonic() - began, 3))
    return status


def _complain(error: KdumpError, problems: ProblemLog) -> None:
    """Say why something was not converted. That --strict refused damage is no failure."""
    from kdump.convert.results import DamagedLog

    complain(error) if isinstance(error, DamagedLog) else problems.take([error])


def _status(totals: "ConvertTotals", what: "ConvertOptions", *, failed: int, interrupted: bool) -> int:
    """The status of a run. A partition that --strict refuses is damage, not a failure."""
    worst = totals.worst
    if what.strict and (totals.left_out.not_json or totals.left_out.undecoded):
        worst = Severity.ERROR
    return exit_status.of_findings(worst, Severity.ERROR, failed=failed, interrupted=interrupted)


def _renderer(chosen: dict[str, Any]) -> ConversionRenderer:
    """What writes the report; it goes to standard error where the output goes to standard output."""
    stream = sys.stderr if chosen["output"] == "-" else sys.stdout
    look = RenderOptions(
        color=options.use_color(chosen["color"]), ascii_lines=options.is_ascii(), display=options.display(chosen)
    )
    return renderer(chosen["format_name"], stream, look, ConversionRenderer)


def _converted(
    found: Callable[[], Iterator[Found]], chosen: dict[str, Any], what: "ConvertOptions", progress: Progress
) -> "Iterator[Converted]":
    from kdump.convert.choice import SeveralPartitions
    from kdump.convert.convert import convert_logs

    if what.target not in TARGETS_OF["--master"]:
        chosen["master"] = None  # of the environment
    with execution(found, chosen, progress) as job:
        try:
            yield from convert_logs(
                job.found,
                chosen["output"],
                what,
                named=chosen["paths"],
                engine=job.engine,
                on_bytes=job.progress.advance,
                on_path=partial(job.progress.enter, PREPARING),
            )
        except SeveralPartitions as error:
            raise click.UsageError(f"--offset: {error}") from None


def _options(chosen: dict[str, Any]) -> "ConvertOptions":
    """What the options ask for. Refuses what does not fit together."""
    from kdump.convert.choice import Choice, Included
    from kdump.convert.field_formats import FieldFormat
    from kdump.convert.options import ConvertOptions
    from kdump.convert.tables import DEFAULT_COLUMNS
    from kdump.replicas.merge import ReplicaUse

    columns = chosen["columns"]
    target = _target(chosen)
    codec, level = _codec(chosen, target)
    what = ConvertOptions(
        target,
        DEFAULT_COLUMNS if columns is None else tuple(name.strip() for name in columns.split(",")),
        Choice(
            chosen["topics"],
            frozenset(chosen["partitions"]),
            chosen["offset"] or (None, None),
            chosen["offsets"],
            chosen["time_range"] or (None, None),
            frozenset(map(Included, chosen["include"])),
            frozenset(chosen["topic_ids"]),
        ),
        chosen["isolation"],
        until_stable=chosen["until"] is not None,
        strict=not chosen["skip_damaged"],
        keys=FieldFormat(chosen["keys"]),
        values=FieldFormat(chosen["values"]),
        schemas=chosen["schemas"],
        codec=codec,
        level=level,
        segment_bytes=chosen["segment_bytes"],
        partition_folders=chosen["partition_folders"],
        overwrite=chosen["overwrite"],
        rewrite=frozenset(chosen["rewrite"]),
        dry_run=chosen["dry_run"],
        replica=ReplicaUse(chosen["replica"]),
        max_batch_bytes=chosen["max_batch_bytes"],
        read_policy=ReadPolicy(chosen["io_limit"], chosen["keep_cache"] is not False),
    )
    _check(chosen, what)
    if what.schemas is not None:
        value_decoding.note_missing_packages()
    return what


def _target(chosen: dict[str, Any]) -> "Target":
    from kdump.convert.options import Target, target_of

    target = Target(chosen["to"]) if chosen["to"] else target_of(chosen["output"])
    if target is None:
        raise click.UsageError("standard output needs --to: arrow, ndjson or csv")
    if chosen["output"] == "-" and target.is_folder and not chosen["dry_run"]:
        raise click.UsageError(f"--to {target} is a folder: it cannot be written to standard output")
    if target is Target.ARROW and chosen["output"] == "-" and sys.stdout.isatty():
        raise click.UsageError("--to arrow is binary data, which goes to a file or a pipe and not to a terminal")
    return target


def _codec(chosen: dict[str, Any], target: "Target") -> tuple[str | None, int | None]:
    from kdump.convert.options import parse_codec

    try:
        return (None, None) if chosen["codec"] is None else parse_codec(chosen["codec"], target)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--codec") from None


def _check(chosen: dict[str, Any], what: "ConvertOptions") -> None:
    """Refuse options that would change nothing, and columns that are none."""
    from kdump.convert.options import problems

    flags = {option.name: option.opts[0] for option in click.get_current_context().command.params}
    context = click.get_current_context()
    given = {name for name in chosen if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    for flag in (flags[name] for name in given if name in flags):
        if what.target not in (targets := TARGETS_OF.get(flag, TARGETS)):
            raise click.UsageError(f"{flag} needs --to {' or '.join(targets)}, not {what.target}")
    for problem in problems(what):
        raise click.UsageError(problem)
