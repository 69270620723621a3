"""The command `kdump stat`: its options, and what it prints of the numbers."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click

from kdump.broker.cleaner.log_config import SETTING_NAMES, CleanerSettings, parse_cleanup_policy, topic_settings
from kdump.cli import complain, exit_status, options
from kdump.cli.execution import Found, ProblemLog, execution
from kdump.cli.param_type import ParamType
from kdump.cli.progress import MEASURING, Progress
from kdump.cli.sections import SectionedCommand
from kdump.format.java import MAX_LONG
from kdump.log.severity import Severity
from kdump.render import PAGE_FORMATS, STAT_FORMATS, RenderOptions, renderer
from kdump.render.base import StatRenderer
from kdump.stat.partition_reports import ReportOptions
from kdump.stat.row_collector import RowCollector, Statistics, columns_of
from kdump.stat.row_sections import RowOptions
from kdump.stat.rows import RowKind
from kdump.stat.stat import stat_logs
from kdump.stat.values import StatOptions
from kdump.storage.file_store import parent_of, real
from kdump.verify.display import FindingDisplay

SECTIONS = {
    "What is measured": ("deep", "open_wrappers", "bucket_ms", "partitions", "kind", "max_batch_bytes"),
    "Which rows": ("by", "top", "sort", "idle_ms", "offsets_retention_ms"),
    "Reports": ("retention", "compaction", "upgrade", "free_bytes"),
    "Settings of the topics": (
        "retention_ms",
        "retention_bytes",
        "cleanup_policy",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "max_compaction_lag_ms",
        "delete_retention_ms",
        "segment_bytes",
        "dedupe_buffer_bytes",
    ),
    "Reading": ("jobs", "master", "spark_settings", "io_limit", "keep_cache"),
    "Output": ("format_name", "show_keys", "reproducible", "color", "progress", "quiet", "help_all"),
}
FIRST = ("deep", "by", "top", "sort", "bucket_ms", "retention", "compaction", "upgrade", "free_bytes", "format_name")
BY = tuple(kind.value for kind in RowKind if kind is not RowKind.TOTAL)
TOP = 20
"""So many rows of a kind that was asked for are shown at a terminal."""
NEEDS = (
    ("partitions", ("deep",)),
    ("retention_ms", ("retention", "free_bytes")),
    ("retention_bytes", ("retention", "free_bytes")),
    ("cleanup_policy", ("retention", "compaction", "free_bytes")),
    ("min_cleanable_dirty_ratio", ("compaction",)),
    ("min_compaction_lag_ms", ("compaction",)),
    ("max_compaction_lag_ms", ("compaction",)),
    ("delete_retention_ms", ("compaction",)),
    ("segment_bytes", ("compaction",)),
    ("dedupe_buffer_bytes", ("compaction",)),
    ("dedupe_buffer_bytes", ("deep",)),
)
"""The options that change nothing, each with others of which one has to be given."""
_TOPIC_SETTINGS = frozenset(SETTING_NAMES) - {"cleanup_policy"}
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


class DurationParam(ParamType[int]):
    """A length of time in milliseconds; s, m, h, d or w may follow."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,19}) ?(ms|s|m|min|h|d|w)?", str(value).lower())
        if match is None:
            self.fail(f"{value!r} is not a length of time; write milliseconds, or 90s, 15m, 12h, 7d", param, ctx)
        found = int(match[1]) * _UNITS_MS[match[2] or "ms"]
        if found > MAX_LONG:
            self.fail(f"{value!r} is too long: {MAX_LONG} ms at most", param, ctx)
        return found


class LimitParam(ParamType[int]):
    """A limit of another type from 0 to what a broker can count, or -1 for none."""

    def __init__(self, of: ParamType[int]) -> None:
        self._of, self.name = of, of.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value) == "-1":
            return -1
        found = int(value) if re.fullmatch(r"\d{1,19}", str(value)) else self._of.convert(value, param, ctx)
        if found > MAX_LONG:
            self.fail(f"{value!r} is too large: {MAX_LONG} at most", param, ctx)
        return found


def _columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The columns of the kinds that --by names so far."""
    kinds = map(RowKind, ctx.params.get("by") or ("topic",))
    return [name for kind in kinds for name in columns_of(kind) if name.startswith(incomplete)]


@click.command("stat", cls=SectionedCommand, sections=SECTIONS, first=FIRST)
@options.paths
@click.option(
    "--deep",
    is_flag=True,
    help="Check every checksum, open every record: sizes of keys and values, tombstones, distinct and heaviest keys,"
    " largest records, headers, compression, shapes of values, partitioners.",
)
@click.option(
    "--open-wrappers",
    is_flag=True,
    help="Open the compressed messages of magic 0 and 1, so that the number of records is exact.",
)
@click.option(
    "--by",
    type=click.Choice(BY),
    multiple=True,
    metavar="KIND",
    help=f"One row for each KIND: {', '.join(BY[:-1])} or {BY[-1]}. May be given several times. Default: log"
    " directories, topics and partitions.",
)
@click.option(
    "--top",
    type=click.IntRange(0),
    metavar="N",
    help="Show at most N rows of each kind. Default: on a terminal what fits the screen, else all.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    shell_complete=_columns,
    help="Sort by a column, the largest first: a name as in JSON, a nested one as batch_sizes.p99."
    " Default: the space on the disk; hours by time.",
)
@click.option(
    "--bucket",
    "bucket_ms",
    type=DurationParam(),
    default="1h",
    show_default=True,
    metavar="TIME",
    help="The width of the buckets of --by hour and of the write rate: 10m, 1h, 1d.",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="With --deep: how many partitions each topic has, if not all of them are among the PATHs.",
)
@click.option(
    "--idle",
    "idle_ms",
    type=DurationParam(),
    metavar="TIME",
    help="Only the partitions that have not been written to for longer than TIME: 30d.",
)
@click.option(
    "--offsets-retention",
    "offsets_retention_ms",
    type=DurationParam(),
    metavar="TIME",
    help="With --by group: offsets.retention.minutes of the brokers, after which the offsets of a group without members"
    " expire. Default: 7d.",
)
@click.option(
    "--retention", is_flag=True, help="Say what a broker deletes now, what it deletes next, and what keeps the rest."
)
@click.option(
    "--compaction",
    is_flag=True,
    help="Say what the log cleaner would compact, whether it starts, and which batch stops it.",
)
@click.option(
    "--upgrade",
    is_flag=True,
    help="Say what stands in the way of an upgrade to Kafka 4: magic 0 and 1, files that it refuses.",
)
@click.option(
    "--free",
    "free_bytes",
    type=options.SizeParam(),
    metavar="SIZE",
    help="Say which settings of which topics free SIZE bytes, and how much time's worth of data each costs.",
)
@click.option("--retention-ms", type=LimitParam(DurationParam()), metavar="TIME", help="retention.ms; -1 for no limit.")
@click.option(
    "--retention-bytes", type=LimitParam(options.SizeParam()), metavar="SIZE", help="retention.bytes; -1 for no limit."
)
@click.option("--cleanup-policy", metavar="POLICY", help="cleanup.policy: delete, compact, or compact,delete.")
@click.option(
    "--min-cleanable-dirty-ratio", type=click.FloatRange(0, 1), metavar="RATIO", help="min.cleanable.dirty.ratio."
)
@click.option(
    "--min-compaction-lag-ms", type=DurationParam(), metavar="TIME", help="min.compaction.lag.ms: milliseconds, or 1h."
)
@click.option(
    "--max-compaction-lag-ms", type=DurationParam(), metavar="TIME", help="max.compaction.lag.ms: milliseconds, or 7d."
)
@click.option(
    "--delete-retention-ms", type=DurationParam(), metavar="TIME", help="delete.retention.ms: milliseconds, or 1d."
)
@click.option("--segment-bytes", type=options.SizeParam(), metavar="SIZE", help="segment.bytes.")
@click.option(
    "--dedupe-buffer",
    "dedupe_buffer_bytes",
    type=options.SizeParam(),
    metavar="SIZE",
    help="log.cleaner.dedupe.buffer.size of the broker. Default: 128m.",
)
@options.output_format(*STAT_FORMATS)
@options.page_options
@click.option(
    "--show-keys",
    is_flag=True,
    help="With --format html: show keys of records as they are, and not as length and hash.",
)
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
    """Measure partitions: what takes the space, records, producers, codecs, formats, write rate; with --deep the keys.

    PATH is a topic-partition directory, a log directory, any directory above these, a segment, a glob, or - for
    standard input. It reads the headers of batches only, unless --deep is given, and writes to no file.

    \b
    Examples:
      kdump stat /data/kafka
      kdump stat --by partition --top 10 --sort absent /data/kafka
      kdump stat --by producer --format csv /data/kafka/orders-3
      kdump stat --by group /data/kafka
      kdump stat --free 50g /data/kafka
      kdump stat --retention --retention-ms 7d /data/kafka/orders-*
      kdump stat --deep --io-limit 50m /data/kafka/accounts-*

    \b
    Exit status: 0 measured, 1 damage met, 2 usage, 3 a path could not be read.
    """
    rows, problems = RowCollector(_row_options(chosen)), ProblemLog()
    progress = Progress(chosen["progress"], MEASURING)
    began, interrupted = time.monotonic(), False
    chosen["paths"] = _outer_first(chosen["paths"])
    with (
        options.partitions(chosen) as found,
        renderer(chosen["format_name"], sys.stdout, _look(chosen), StatRenderer) as out,
    ):
        try:
            for item in _measured(found, chosen, rows.options, progress):
                problems.take(rows.add(item))
        except KeyboardInterrupt:
            interrupted = problems.interrupted()
        problems.end(some=rows.has_partition)
        _check_coordinators(rows, interrupted=interrupted)
        result = rows.result(interrupted=interrupted)
        worst = Severity.ERROR if result.total.is_damaged else result.group_findings.worst
        status = exit_status.of_findings(worst, Severity.ERROR, failed=problems.failed, interrupted=interrupted)
        if rows.has_partition:
            out.statistics(result)
        if not chosen["quiet"]:
            out.exit_summary("stat", status, round(time.monotonic() - began, 3))
    return status


def _check_coordinators(rows: RowCollector, *, interrupted: bool) -> None:
    """Say why no group is shown."""
    if rows.has_partition and rows.lacks_coordinators and not interrupted:
        complain("no partition of __consumer_offsets or __share_group_state is among the PATHs")


def _outer_first(paths: Sequence[str]) -> Sequence[str]:
    """The PATHs, each after those that hold it: what is below a PATH counts once, and as a part of its directory."""
    resolved = {path: real(path) for path in paths}
    holders = set(resolved.values())

    def depth(path: str) -> int:
        found, here = 0, resolved[path]
        while here != parent_of(here):
            here = parent_of(here)
            found += here in holders
        return found

    return sorted(paths, key=depth)


def _row_options(chosen: dict[str, Any]) -> RowOptions:
    """Which rows to make. Refuses what does not fit together."""
    by, top, csv = tuple(dict.fromkeys(map(RowKind, chosen["by"]))), chosen["top"], chosen["format_name"] == "csv"
    reports = _reports(chosen)
    if csv and not by and not reports.is_about_partitions:
        by = (RowKind.TOPIC,)
    if by and top is None and chosen["format_name"] == "terminal":
        top = TOP
    found = RowOptions(by, top, chosen["sort"], chosen["bucket_ms"], int(time.time() * 1000), chosen["deep"], reports)
    if chosen["offsets_retention_ms"] is not None:
        if not found.wants_groups:
            raise click.UsageError("--offsets-retention has no effect without --by group")
        found = found._replace(offsets_retention_ms=chosen["offsets_retention_ms"])
    if csv and len(found.kinds) > 1:
        raise click.UsageError(f"--format csv is one table, and these are {', '.join(found.kinds)}: give --by once")
    if not chosen["bucket_ms"]:
        raise click.BadParameter("a bucket is at least 1 ms wide", param_hint="--bucket")
    _check_column(chosen["sort"], found.kinds)
    return found


def _check_column(column: str | None, kinds: tuple[RowKind, ...]) -> None:
    names = [name for kind in kinds for name in columns_of(kind)] if column is not None else []
    if column is not None and column not in names:
        from difflib import get_close_matches

        near = " or ".join(get_close_matches(column, names, n=3))
        hint = f"; did you mean {near}?" if near else ""
        raise click.BadParameter(f"no row has the column {column!r}{hint}", param_hint="--sort")


def _check_needs(chosen: dict[str, Any]) -> None:
    """Refuse options that would change nothing."""
    flags = {option.name: option.opts[0] for option in click.get_current_context().command.params}
    for name, others in NEEDS:
        if chosen[name] is not None and not any(chosen[other] not in (None, False) for other in others):
            raise click.UsageError(f"{flags[name]} has no effect without {' or '.join(flags[it] for it in others)}")


def _reports(chosen: dict[str, Any]) -> ReportOptions:
    _check_needs(chosen)
    try:
        policy = chosen["cleanup_policy"]
        settings = topic_settings(
            cleanup_policy=None if policy is None else parse_cleanup_policy(policy),
            **{name: chosen[name] for name in SECTIONS["Settings of the topics"] if name in _TOPIC_SETTINGS},
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    buffer = chosen["dedupe_buffer_bytes"]
    return ReportOptions(
        chosen["retention"],
        chosen["compaction"],
        chosen["upgrade"],
        chosen["free_bytes"],
        chosen["idle_ms"],
        settings,
        CleanerSettings() if buffer is None else CleanerSettings(buffer),
    )


def _look(chosen: dict[str, Any]) -> RenderOptions:
    level = Severity.INFO if chosen["format_name"] in ("json", *PAGE_FORMATS) else Severity.WARNING
    display = FindingDisplay(level, folds=chosen["format_name"] != "json")
    return RenderOptions(
        color=options.use_color(chosen["color"]),
        ascii_lines=options.is_ascii(),
        totals=not chosen["quiet"],
        display=display,
        page=options.page(chosen),
    )


def _measured(
    found: Callable[[], Iterator[Found]], chosen: dict[str, Any], rows: RowOptions, progress: Progress
) -> Iterator[Statistics]:
    what = StatOptions(
        deep=chosen["deep"],
        open_wrappers=chosen["open_wrappers"],
        bucket_ms=chosen["bucket_ms"],
        max_batch_bytes=chosen["max_batch_bytes"],
        partitions=chosen["partitions"],
        now_ms=rows.now_ms,
        by_producer=not {RowKind.PRODUCER, RowKind.PARTITION}.isdisjoint(rows.kinds),
        io_limit=chosen["io_limit"],
        keep_cache=chosen["keep_cache"],
        keep_samples=chosen["deep"] and chosen["compaction"],
        groups=rows.wants_groups,
    )
    with execution(found, chosen, progress) as job:
        yield from stat_logs(job.found, what, engine=job.engine, on_bytes=job.progress.advance)
