"""Plans recoveries: a plan for each topic-partition, then one for the checkpoints of each log directory.

Planning is a verify, whose report a strategy turns into a plan (truncate, salvage.plan, reindex). Nothing is written.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from kdump.engine.protocol import Engine
from kdump.errors import SourceError, only
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, build_offsets, offset_entries
from kdump.format.naming import RECOVERY_POINTS, TopicPartition, number_of
from kdump.recover.losses import loss_without_plan
from kdump.recover.next_step import UNREPAIRED
from kdump.recover.plan import (
    FILL,
    REINDEX,
    SALVAGE,
    TRUNCATE,
    Action,
    FileContent,
    Plan,
    RecoverOptions,
    SalvagePreview,
)
from kdump.recover.plan_input import PlanInput, metadata_of_siblings, unchanged
from kdump.recover.rebuild_cache import RebuildBudget
from kdump.recover.selection import Found, PlanItem, RecoverySelection
from kdump.storage.file_store import directory_above, open_source, store_of
from kdump.storage.partition import LogDirectory, Partition, refuse_two_logs
from kdump.storage.source import read_whole
from kdump.storage.stamps import read_stamps
from kdump.storage.undo_folders import resume_hint
from kdump.verify.findings import Finding, Severity
from kdump.verify.next_step import REBUILT
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions
from kdump.verify.verify import verify_logs

if TYPE_CHECKING:
    from kdump.verify.log_map import LogMap

_MOST_CUTS: Final = 500
"""So many cuts are on a map."""
Points = Mapping[TopicPartition, int]


def plan_recovery(
    found: Iterable[Found],
    options: RecoverOptions | None = None,
    *,
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
    locks: ExitStack | None = None,
    only_reads: bool = False,
    compares: bool = False,
    on_notice: Callable[[str], object] | None = None,
    on_map: "Callable[[Plan, LogMap], object] | None" = None,
) -> Iterator[Plan | Report]:
    """A plan for each topic-partition directory, then for each log directory of which a checkpoint has to change.

    A Report with errors stands for what cannot be read. With `locks` each log directory is locked against brokers until
    it is closed; without it a broker may run, which the plans then say. With `only_reads`, which is for copies, a .lock
    that cannot be written is looked at and not taken. `on_notice` is called with a sentence where no lock could be
    taken. With `compares` the plan of a truncation that loses something, or leaves damage, has what a salvage would do.
    Nothing is written. The log of KRaft is planned only where its path was given. With `on_map` there are maps of the
    partitions with errors or warnings: it gets each, whose cuts are those of the plan, before the plan.
    """
    options = _with_time(options or RecoverOptions())
    verify_options = ScanOptions(max_batch_bytes=options.max_batch_bytes, now_ms=options.now_ms, valid_segments=True)
    verify_options = verify_options._replace(maps=on_map is not None)
    partitions: dict[str, PlanItem] = {}
    plans: list[Plan] = []
    budget = RebuildBudget()
    _forget(options)
    directories: dict[str, Report] = {}
    selection = RecoverySelection(locks, only_reads=only_reads, on_notice=on_notice)
    for report in verify_logs(
        _kept(selection.items(found), partitions), verify_options, engine=engine, on_bytes=on_bytes
    ):
        item = partitions.pop(report.path, None)
        if report.errors:
            yield report
        elif item is None and report.findings:
            directories[report.path.rstrip("/") or "/"] = report
        elif item is not None:
            planned = _plan_or_error(report, item, options, budget, compares=compares)
            if isinstance(planned, Plan):
                plans.append(planned)
                if on_map is not None and report.map is not None:
                    on_map(planned, _with_cuts(report.map, planned))
            yield planned
    points = points_of_plans(plans)
    for directory in dict.fromkeys((*points, *directories)):
        try:
            with only(directory):
                plan = plan_log_directory(
                    directory, points.get(directory, {}), options, repairs=directory in directories
                )
        except SourceError as error:
            yield Report(directory, errors=[error])
            continue
        if directory in directories:
            plan = plan._replace(not_covered=tuple(_uncovered_findings(directories[directory], plan)))
        if not plan.is_empty or plan.not_covered:
            yield plan


def _with_cuts(of: "LogMap", plan: Plan) -> "LogMap":
    """The map of a partition with what the plan removes of its segments."""
    from kdump.verify.log_map import MapPlace

    numbers = {base: number for number, (base, _) in enumerate(of.segments)}
    cuts = [
        MapPlace(numbers[base], action.start or 0, action.stop - (action.start or 0), action.because or "")
        for action in plan.actions
        if action.action in ("truncate", "drop", "delete") and action.stop is not None and action.path.endswith(".log")
        for base in (number_of(os.path.basename(action.path)),)
        if base is not None and base in numbers
    ]
    return of._replace(cuts=tuple(sorted(cuts)[:_MOST_CUTS]))


def _with_time(options: RecoverOptions) -> RecoverOptions:
    """The options with the time of now, where they have none."""
    return options if options.now_ms is not None else options._replace(now_ms=int(time.time() * 1000))


def _forget(options: RecoverOptions) -> None:
    """Forget what earlier plans found beside the partitions."""
    metadata_of_siblings.cache_clear()
    if options.strategy == FILL:
        from kdump.recover.fill import forget_copies

        forget_copies()


def _plan_or_error(
    report: Report, item: PlanItem, options: RecoverOptions, budget: RebuildBudget, *, compares: bool
) -> Plan | Report:
    """The plan of a partition, or a report that says why there is none."""
    if report.context.problems:
        # What is committed, where the log starts and where a broker begins to read: all of a plan depends on it.
        return Report(report.path, errors=report.context.errors())
    try:
        with only(report.path):
            plan = _plan(report, item, options, budget)
            return _with_salvage(plan, report, item) if compares else plan
    except SourceError as error:
        return Report(report.path, errors=[error])


def _plan(report: Report, item: PlanItem, options: RecoverOptions, budget: RebuildBudget) -> Plan:
    if any(finding.code == "undo/unfinished" for finding in report.findings):
        if not store_of(report.path).is_local:
            raise SourceError(f"{report.path}: a run of kdump recover is not finished: finish it where it was begun")
        from kdump.recover import undo  # which a plan does without

        run = next((one.run for one in undo.runs(report.path) if not one.finished), "")
        raise SourceError(f"{report.path}: {resume_hint(report.path, run)}")
    options = options if item.walk is None else options._replace(walk=item.walk)
    return plan_partition(report, item.partition, options, budget)._replace(is_running=item.is_running)


def _with_salvage(plan: Plan, report: Report, item: PlanItem) -> Plan:
    """The plan of a truncation, with what a salvage would do. A log in which nothing is damaged is not read again."""
    errors = [finding.code for finding in plan.not_covered if finding.severity is Severity.ERROR]
    stays = any(not code.startswith(REBUILT) and code not in UNREPAIRED for code in errors)
    loses = plan.lost.given_up.batches != 0
    if plan.options.strategy != TRUNCATE or plan.alone or not (loses or stays):
        return plan
    options = plan.options._replace(strategy=SALVAGE, walk=RecoverOptions().walk)
    try:
        other = plan_partition(report, item.partition, options, compares=True)
    except SourceError:
        return plan  # a salvage says why
    return plan._replace(salvage=SalvagePreview(other.is_empty, other.log_end_offset, other.lost))


def plan_partition(
    report: Report,
    partition: Partition,
    options: RecoverOptions,
    budget: RebuildBudget | None = None,
    *,
    compares: bool = False,
) -> Plan:
    """The plan for the directory of a report that has its valid segments. Raises SourceError."""
    given = PlanInput(report, options, compares=compares)
    if given.has_nothing_to_do and (options.strategy != FILL or report.state in ("delete", "stray")):
        return unchanged(given)._replace(lost=loss_without_plan(given))
    given.refuse_links()
    refuse_two_logs(file.file for file in report.files)
    # A strategy imports the steps of a broker's start, which most directories do without.
    if options.strategy == SALVAGE:
        from kdump.recover.salvage.plan import salvage

        return salvage(given, partition, budget)
    if options.strategy == FILL:
        from kdump.recover.fill import fill

        return fill(given, partition, budget)
    if options.strategy == REINDEX:
        from kdump.recover.reindex import reindex

        return reindex(given, budget)
    from kdump.recover.truncate import truncate

    return truncate(given, budget)


def _kept(found: Iterable[PlanItem | LogDirectory | SourceError], partitions: dict[str, PlanItem]) -> Iterator[Found]:
    """What was found; the partitions are kept by their paths until their reports come."""
    for item in found:
        if isinstance(item, PlanItem):
            partitions[item.partition.path] = item
            yield item.partition
        else:
            yield item


# ---- the root of a log directory


def points_by_directory(
    cut: Iterable[tuple[str, TopicPartition | None, int | None]],
) -> dict[str, dict[TopicPartition, int]]:
    """The recovery points that have to be lowered, by log directory.

    `cut` has the path and the name of each partition, and its point, None where it may stay.
    """
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for path, partition, point in cut:
        if point is not None and partition is not None:
            found[directory_above(path)][partition] = point
    return found


def points_of_plans(plans: Iterable[Plan]) -> dict[str, dict[TopicPartition, int]]:
    """The recovery points that plans lower, by log directory."""
    return points_by_directory((plan.path, plan.topic_partition, plan.recovery_point) for plan in plans)


def repairs_checkpoint(plan: Plan) -> bool:
    """Whether the plan for a log directory moves a checkpoint that cannot be read out of the way."""
    return RECOVERY_POINTS in plan.after and plan.after[RECOVERY_POINTS] is None


def is_damaged(checkpoint: str) -> bool:
    """Whether a checkpoint of offsets is there and cannot be read, so that no broker starts."""
    try:
        with open_source(checkpoint) as source:
            list(offset_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))
    except CheckpointError:
        return True
    except SourceError:
        return False
    return False


def plan_log_directory(directory: str, points: Points, options: RecoverOptions, *, repairs: bool = False) -> Plan:
    """The plan for a log directory whose recovery points are above the ends of truncated logs. Raises SourceError.

    With `repairs`, a truncation and a salvage remove a checkpoint of recovery points that cannot be read, with which no
    broker starts: then a start reads every partition from offset 0.
    """
    # A listing of its own: the root may not have been discovered, and its checkpoint is read only here.
    plan = Plan(directory, None, options, files=read_stamps(directory))
    if not (points or repairs) or RECOVERY_POINTS not in plan.files:
        return plan
    path = os.path.join(directory, RECOVERY_POINTS)
    try:
        with open_source(path) as source:
            entries = list(offset_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))
    except CheckpointError:
        if not repairs or options.strategy == REINDEX:
            return plan  # no line of it counts
        action = Action("delete", path, "checkpoint/format", bytes=plan.files[RECOVERY_POINTS].size)
        return plan._replace(actions=(action,), after={RECOVERY_POINTS: None})
    lowered = [
        entry._replace(offset=min(entry.offset, points.get(TopicPartition(entry.topic, entry.partition), entry.offset)))
        for entry in entries
    ]
    if lowered == entries:
        return plan
    data = build_offsets(lowered)
    action = Action("write", path, "checkpoint/beyond", target=path, bytes=plan.files[RECOVERY_POINTS].size)
    return plan._replace(actions=(action,), after={RECOVERY_POINTS: FileContent(data=data)}, bytes_needed=len(data))


def _uncovered_findings(report: Report, plan: Plan) -> Iterator[Finding]:
    """The findings at the root of a log directory that stay. A recovery point that is lowered is covered."""
    for finding in report.findings:
        repaired = finding.code in ("checkpoint/beyond", "checkpoint/format")
        covered = os.path.basename(finding.path) in plan.after and repaired
        if finding.severity >= Severity.WARNING and not covered:
            yield finding
