"""The reports of purpose of stat at a terminal: retention, compaction, upgrade, what frees space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from kdump.named_tuple import NamedTuple
from kdump.render.escaping import path_text, printable
from kdump.render.measures import count_text, long_span_text, percent_text, short_size, size_text, span_text
from kdump.render.sentences import counted, iso_time
from kdump.render.terminal.columns import ColumnRule
from kdump.render.terminal.tables import BAD, DOUBTFUL, table, without_zeros
from kdump.stat.rows import inside_of

if TYPE_CHECKING:
    from kdump.broker.cleaner.log_cleaner_manager import PartitionCompaction
    from kdump.broker.cleaner.log_config import TopicSettings
    from kdump.broker.cleaner.retention import PartitionRetention
    from kdump.broker.cleaner.segment_age import LogBounds
    from kdump.stat.free import FreePlan, FreeStep
    from kdump.stat.report_totals import ReportTotals
    from kdump.stat.row_sections import StatResult
    from kdump.stat.rows import TotalRow
    from kdump.stat.upgrade import PartitionUpgrade

_MOST: Final = 20
_TOPICS: Final = 5
"""So many topics are named for which a setting is assumed."""
_RETENTION: Final = (
    ColumnRule("partition", left=True, shortens=True),
    ColumnRule("goes now"),
    ColumnRule("segments", 2),
    ColumnRule("stays"),
    ColumnRule("because", 0, left=True),
    ColumnRule("next", 1, left=True),
    ColumnRule("held back", 1),
    ColumnRule("odd times", 3),
)
_COMPACTION: Final = (
    ColumnRule("partition", left=True, shortens=True),
    ColumnRule("clean", 3),
    ColumnRule("dirty", 2),
    ColumnRule("ratio"),
    ColumnRule("starts", 0, left=True),
    ColumnRule("drops", 1),
    ColumnRule("key map", 1, left=True),
    ColumnRule("from", 4),
    ColumnRule("up to", 4),
    ColumnRule("bound", 5, left=True),
    ColumnRule("stoppers", 1),
)
_UPGRADE: Final = (
    ColumnRule("partition", left=True, shortens=True),
    ColumnRule("magic 0"),
    ColumnRule("magic 1"),
    ColumnRule("segments", 2),
    ColumnRule("newest", 1),
    ColumnRule("refused"),
)
_FREE: Final = (
    ColumnRule("topic", left=True, shortens=True),
    ColumnRule("frees"),
    ColumnRule("setting", left=True),
    ColumnRule("segments", 2),
    ColumnRule("loses", 1),
    ColumnRule("then begins", 3),
)
_BLOCKERS: Final = {
    "high-watermark": "the high watermark",
    "future-timestamp": "a timestamp in the future",
    "limits": "within the limits",
    "no-limit": "no limit is set",
    "policy": "compact, not delete",
    "empty": "it is empty",
    "nothing-cleanable": "nothing to clean",
    "dirty-ratio": "the dirty ratio",
    "stopper": "a batch stops it",
}
"""What keeps a segment, or the cleaner."""
_BOUNDS: Final = {
    "open-transaction": "an open transaction",
    "high-watermark": "the high watermark",
    "min-compaction-lag": "min.compaction.lag.ms",
}
"""What keeps the cleaner from segments before the active one."""
_UNREPORTED: Final = {
    "set-aside": "no broker serves it",
    "one-file": "a file named alone, or no base offset in a name",
    "kafka-0.7": "a log of Kafka 0.7",
    "cluster-metadata": "the metadata of the cluster has its own settings",
}
"""Why nothing is said of the retention and the compaction of a partition."""


class _OwnSettings(NamedTuple):
    """The settings that a report assumes for a partition of a topic."""

    topic: str
    settings: TopicSettings


class _Shape(NamedTuple):
    """How a report is shown: so many rows of a table, the width, names inside of the `directory` without its path."""

    rows: int
    width: int
    directory: str | None

    def name(self, of: PartitionRetention | PartitionCompaction | PartitionUpgrade) -> Text:
        """The name of a partition."""
        return Text(path_text(inside_of(self.directory, of.path)))


def report_pieces(result: StatResult, width: int) -> Iterator[Text | Table]:
    """The reports that were asked for, each with a sentence and a table."""
    asked, found, top = result.options.reports, result.reports, result.options.top
    shape = _Shape(_MOST if top is None else top, width, result.only_directory)
    if asked.retention:
        yield from _retention(found, asked.settings, shape)
    if asked.compaction:
        yield from _compaction(found, asked.settings, shape)
    yield from _unreported(found)
    if asked.upgrade:
        yield from _upgrade(found.upgrade, result.total, shape)
    if result.total.free is not None:
        yield from _free(result.total.free, shape)


def _unreported(found: ReportTotals) -> Iterator[Text]:
    """The partitions that retention and compaction say nothing of."""
    for reason, count in Counter(found.unreported).items():
        yield Text(f"no report on {counted(count, 'partition')}: {_UNREPORTED[reason]}", style=DOUBTFUL)


def _heading(text: str) -> Iterator[Text]:
    yield Text()
    yield Text(text, style="bold")


def _rows(
    rules: Sequence[ColumnRule], rows: Sequence[Sequence[Text]], shape: _Shape, hidden: str = "more partition"
) -> Iterator[Text | Table]:
    shown = rows[: shape.rows]
    if shown:
        yield table(rules, shown, shape.width)
    if len(rows) > len(shown):
        yield Text(f"{counted(len(rows) - len(shown), hidden)}; --top N shows more", style="dim")


def _value_text(settings: TopicSettings, name: str) -> str:
    value = getattr(settings, name)
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
    if name.endswith("_ms") and value > 0:
        text = span_text(value) if value >= 1000 else f"{value} ms"
    elif name.endswith("_bytes") and value > 0:
        text = size_text(value)
    return f"{name.replace('_', '.')} {text}"


def _assumed(settings: TopicSettings, names: Sequence[str], used: Sequence[_OwnSettings]) -> Iterator[Text]:
    """The settings that a report goes by: those that were given, those that nobody named, with the topics for which
    they are assumed, and those of which the metadata of the cluster have others for some partitions.
    """
    given = [_value_text(settings, name) for name in names if name in settings.given]
    if given:
        yield Text(f"given: {', '.join(given)}", style="dim")
    topics: dict[tuple[str, ...], list[str]] = {}
    words: dict[str, dict[str, None]] = {}
    for name in names:
        for topic, own in used:
            if name not in own.known:
                words.setdefault(_value_text(own, name), {})[printable(topic)] = None
    for text, found in words.items():
        topics.setdefault(tuple(found), []).append(text)
    everyone = len({topic for topic, _ in used})
    for some, texts in topics.items():
        whose = f"{', '.join(some[:_TOPICS])}{f' and {len(some) - _TOPICS} more' if len(some) > _TOPICS else ''}"
        of = "all topics" if len(some) == everyone > 1 else whose
        yield Text(f"assumed for {of}: {', '.join(texts)}", style="dim")
    stored = Counter(name for _, each in used for name, _ in each.stored)
    if kept := [f"{name.replace('_', '.')} of {counted(stored[name], 'partition')}" for name in names if stored[name]]:
        yield Text(
            f"stored in __cluster_metadata: {', '.join(kept)}; --by partition --format json shows them", style="dim"
        )


def _retention(found: ReportTotals, settings: TopicSettings, shape: _Shape) -> Iterator[Text | Table]:
    segments = counted(found.deletes_segments, "segment")
    yield from _heading(f"retention deletes {size_text(found.deletes_bytes)} in {segments} now")
    names = ("retention_ms", "retention_bytes", "cleanup_policy")
    yield from _assumed(
        settings, names, [_OwnSettings(each.topic or each.path, each.settings) for each in found.retention]
    )
    rows = [
        [
            shape.name(each),
            Text(short_size(each.deletes_bytes) if each.deletes else ""),
            Text(str(len(each.deletes) or "")),
            Text(short_size(sum(segment.size_bytes for segment in each.stays))),
            Text(_BLOCKERS.get(each.blocker or "", ""), BAD if each.blocker == "future-timestamp" else ""),
            Text(_next(each)),
            Text(short_size(each.held_back_bytes) if each.held_back else "", DOUBTFUL),
            Text(str(len(each.age_warnings) or ""), DOUBTFUL),
        ]
        for each in found.retention
    ]
    yield from _rows(_RETENTION, rows, shape)
    yield from _unknown_bounds([each.bounds for each in found.retention])


def _unknown_bounds(found: Sequence[LogBounds]) -> Iterator[Text]:
    """What stands for the offsets that no checkpoint names."""
    unknown = sum(not each.has_high_watermark for each in found)
    if unknown:
        words = f"{counted(unknown, 'partition')} without a known high watermark: the log end offset is used"
        yield Text(words, style=DOUBTFUL)
    unknown = sum(not each.has_log_start for each in found)
    if unknown:
        words = f"{counted(unknown, 'partition')} without a known log start offset: the first segment is used"
        yield Text(words, style=DOUBTFUL)


def _next(of: PartitionRetention) -> str:
    """When the next segment goes."""
    if of.next is None:
        return ""
    words = []
    if of.next.at_ms is not None:
        wait = of.next.at_ms - of.now_ms
        words.append(f"in {long_span_text(wait)}" if wait > 0 else "now")
    if of.next.after_bytes is not None:
        words.append(f"after {short_size(of.next.after_bytes)}")
    return " or ".join(words)


def _compaction_blocker(of: PartitionCompaction) -> str:
    """Why the cleaner does not start. Where only a bound leaves it nothing to clean: that bound."""
    if of.blocker == "policy":
        return "delete, not compact" if of.settings.deletes else "no policy"
    known = _BLOCKERS.get(of.blocker or "", "")
    return _BOUNDS.get(of.range.bound_source, known) if of.blocker == "nothing-cleanable" else known


def _compaction(found: ReportTotals, settings: TopicSettings, shape: _Shape) -> Iterator[Text | Table]:
    yield from _heading(f"the log cleaner compacts {counted(found.compacts, 'partition')} now")
    names = ("cleanup_policy", "min_cleanable_dirty_ratio", "min_compaction_lag_ms")
    yield from _assumed(
        settings, names, [_OwnSettings(each.topic or each.path, each.settings) for each in found.compaction]
    )
    rows = [
        [
            shape.name(each),
            Text(short_size(each.clean_bytes)),
            Text(short_size(each.cleanable_bytes)),
            Text("" if each.dirty_ratio is None else percent_text(each.dirty_ratio)),
            Text(f"no: {_compaction_blocker(each)}" if each.blocker else "yes"),
            *_pass_cells(each),
            Text(str(each.range.first_dirty_offset)),
            Text(str(each.range.first_uncleanable_offset)),
            Text(each.range.bound_source.replace("-", " ")),
            Text(str(len(each.stoppers) or ""), BAD),
        ]
        for each in found.compaction
    ]
    yield from _rows(_COMPACTION, rows, shape)
    yield from _unknown_bounds([each.bounds for each in found.compaction])
    for each in found.compaction[: shape.rows]:
        for stopper in each.stoppers[:3]:
            where = "" if stopper.position is None else f" at position {stopper.position}"
            sure = "stops" if stopper.stops else "may stop"
            what = stopper.kind.replace("-", " ")
            words = f"{without_zeros(path_text(stopper.path))}{where}: {what} {sure} the cleaner"
            yield Text(words, style=BAD if stopper.stops else DOUBTFUL)


def _pass_cells(of: PartitionCompaction) -> list[Text]:
    """How many records the next pass drops, and whether its map holds the keys."""
    found = of.next_pass
    if found is None:
        return [Text(), Text()]
    dropped = found.keys.dropped_records
    about = "≤ " if found.is_bound else "≈ " if dropped.estimate else ""
    fits = {True: "fits", False: "too small", None: "close"}[found.fits]
    return [Text(about + count_text(dropped.value)), Text(fits, BAD if found.fits is False else "")]


def _upgrade(late: Sequence[PartitionUpgrade], total: TotalRow, shape: _Shape) -> Iterator[Text | Table]:
    words = f"{counted(len(late), 'partition')} to check before an upgrade to Kafka 4.3"
    yield from _heading(words if late else "no messages in old formats, no files that Kafka 4.3 refuses")
    for old in total.old_formats or ():
        if old.volume.batches:
            newest = old.newest_timestamp_ms if old.newest_timestamp_ms is not None else old.newest_modified_ms
            written = "; the newest is in an active segment: it may still be written" if old.newest_is_active else ""
            yield Text(
                f"magic {old.magic}: {size_text(old.volume.bytes)} in {counted(old.segments, 'segment')} of"
                f" {counted(old.partitions, 'partition')}, the newest of {iso_time(newest)[:10]}{written}"
            )
    rows = [
        [
            shape.name(each),
            *(Text(short_size(one.volume.bytes) if one.volume.batches else "") for one in each.formats),
            Text(str(sum(one.segments for one in each.formats) or "")),
            Text(_ago(max((one.newest_timestamp_ms or -1 for one in each.formats), default=-1), total.now_ms)),
            Text(str(len(each.refused) or ""), BAD),
        ]
        for each in late
    ]
    yield from _rows(_UPGRADE, rows, shape)
    for each in late[: shape.rows]:
        for file in each.refused[:3]:
            why = file.exception or "a broker leaves it out"
            yield Text(f"{without_zeros(path_text(file.path))}: {printable(why)}", style=BAD)
        if each.error is not None:
            yield Text(printable(str(each.error)), style=BAD)


def _ago(timestamp_ms: int, now_ms: int) -> str:
    if timestamp_ms < 0:
        return ""
    return f"{span_text(now_ms - timestamp_ms)} ago" if timestamp_ms <= now_ms else "in the future"


def _free(plan: FreePlan, shape: _Shape) -> Iterator[Text | Table]:
    wanted = size_text(plan.wanted_bytes)
    got = plan.due_bytes + plan.bytes
    more = plan.most_bytes if plan.most_bytes > got and not plan.is_enough else 0
    missed = f": {'retention.ms' if more else 'no setting'} frees {'no ' if more else ''}more than {size_text(got)}"
    yield from _heading(f"{wanted} to free{'' if plan.is_enough else missed}")
    for size, words in (
        (more, "go at most if retention.bytes is set too"),
        (plan.due_bytes, "go anyway, by the settings that are given or stored"),
        (plan.leaving_bytes, "are of directories that a broker is deleting"),
        (plan.stray_bytes, "are of stray directories, which no setting frees"),
        (plan.linked_bytes, "are of files with other hard links, which no setting frees"),
    ):
        if size:
            yield Text(f"{size_text(size)} {words}")
    if plan.steps:
        yield Text("the oldest data of all topics first:")
        yield from _rows(_FREE, [_step(step) for step in plan.steps], shape, "more topic")
    if plan.alternatives:
        yield Text("or one of these alone:")
        yield from _rows(_FREE, [_step(step) for step in plan.alternatives], shape, "more topic")
    if plan.steps or plan.alternatives:
        yield from _how_to_free(plan, shape)
    if plan.compacted_topics:
        names = ", ".join(printable(name) for name in plan.compacted_topics[:5])
        yield Text(f"their policy does not delete: {names}", style="dim")


def _how_to_free(plan: FreePlan, shape: _Shape) -> Iterator[Text]:
    """The commands that set what the plan says, and what there is to do before a broker answers them."""
    steps = plan.steps or plan.alternatives
    for step in steps[: shape.rows]:
        yield Text(printable(step.command), no_wrap=True, overflow="ignore")
    yield Text(
        "Kafka deletes within log.retention.check.interval.ms (5 minutes) and file.delete.delay.ms (1 minute);"
        " --delete-config in place of --add-config and the value takes a setting back."
    )
    yield Text(
        "While the broker is down nothing is deleted, and another broker of the cluster has to take the command. If"
        " there is no room for its start: move the segments that a step deletes, oldest first, each .log with the files"
        " of the same number, to another disk (--format json names them). The log then begins after them."
    )


def _step(step: FreeStep) -> list[Text]:
    value = span_text(step.value) if step.setting.endswith(".ms") else short_size(step.value)
    lost = "" if step.lost_ms is None else span_text(step.lost_ms)
    begins = "" if step.oldest_left_ms is None else iso_time(step.oldest_left_ms)[:10]
    return [
        Text(printable(step.topic)),
        Text(short_size(step.bytes)),
        Text(f"{step.setting}={step.value} ({value})"),
        Text(count_text(len(step.segments))),
        Text("everything" if step.is_emptied else lost, BAD if step.is_emptied else ""),
        Text(begins),
    ]
