"""The command `kdump recover`: its options, and which plan, run or undo they start."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kdump.cli import complain, completion, exit_status, options
from kdump.cli.sections import SectionedCommand
from kdump.errors import KdumpError
from kdump.format import naming
from kdump.recover.plan import (
    FILL,
    REINDEX,
    SALVAGE,
    STRATEGIES,
    TRUNCATE,
    UNDECIDED,
    WALKS,
    Plan,
    RecoverOptions,
    RecoveryResult,
)
from kdump.render import PAGE_FORMATS, REPORT_FORMATS, renderer
from kdump.render import RenderOptions as Look
from kdump.render.base import RecoveryRenderer
from kdump.storage.file_store import require_local
from kdump.verify.findings import Finding, Severity

if TYPE_CHECKING:
    from kdump.recover.saved_plans import SavedPlan
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.verify.log_map import LogMap
    from kdump.verify.report import Report

_OF_THE_PLAN = ("walk", "rebuild", "undecided", "index_interval_bytes", "segment_index_bytes", "max_batch_bytes")
_HOW = ("output", "dry_run", "no_keep", "yes", "drop_marker")
_BACK = ("undo", "resume")


def _run_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\w[\w.-]*", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is not the name of a run", ctx, param)
    return value


_SECTIONS = {
    "Strategy": (*STRATEGIES, "fill_from", "plan_file", "undo", "resume"),
    "Scope": ("run", "walk", "rebuild", "undecided", "index_interval_bytes", "segment_index_bytes", "max_batch_bytes"),
    "Safety": ("dry_run", "output", "no_keep", "yes", "force", "drop_marker"),
    "Output": (
        "format_name",
        "reproducible",
        "level",
        "everything",
        "progress",
        "color",
        "quiet",
        "jobs",
        "master",
        "spark_settings",
        "help_all",
    ),
}
"""The sections of the help, with the options in their order."""
_FIRST = (*STRATEGIES, "fill_from", "output", "plan_file", "undo", "resume", "walk", "format_name")


@click.command("recover", cls=SectionedCommand, sections=_SECTIONS, first=_FIRST)
@click.argument(
    "paths", nargs=-1, metavar="PATH...", callback=options.without_passwords, shell_complete=completion.files
)
@click.option(
    "--truncate",
    is_flag=True,
    help="Do what a broker's next start would do: truncate at the first damaged batch.",
)
@click.option("--salvage", is_flag=True, help="Keep every valid batch, and remove damaged bytes only.")
@click.option("--reindex", is_flag=True, help="Rebuild indexes, snapshots and leader epochs; change no log.")
@click.option(
    "--fill-from",
    multiple=True,
    metavar="PATH",
    shell_complete=completion.directories,
    help="Copy the batches that a partition lacks from its other copies, below PATH; keep its own valid batches, and"
    " remove damaged bytes. May be given several times.",
)
@click.option(
    "--from",
    "walk",
    type=click.Choice(WALKS),
    default="checkpoint",
    show_default=True,
    help="Where --truncate begins: at the recovery point in the log directory's checkpoint (at offset 0 where it does"
    " not name the partition), at the active segment (newest), or at the first segment (all).",
)
@click.option(
    "--rebuild",
    type=click.Choice(["wrong", "all"]),
    default="wrong",
    show_default=True,
    help="Rebuild the companions that are wrong or whose log changes, or, as a broker does, those of all segments that"
    " are read.",
)
@click.option(
    "--undecided",
    type=click.Choice(UNDECIDED),
    default="keep",
    show_default=True,
    help="What --salvage does with the batches of a transaction whose marker may be lost.",
)
@click.option(
    "--index-interval-bytes",
    type=options.SizeParam(),
    default=RecoverOptions().index_interval_bytes,
    show_default=True,
    metavar="SIZE",
    help="The broker's index.interval.bytes.",
)
@click.option(
    "--segment-index-bytes",
    type=options.SizeParam(),
    default=RecoverOptions().segment_index_bytes,
    show_default=True,
    metavar="SIZE",
    help="The broker's segment.index.bytes: no index grows larger.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing, as without a strategy.")
@click.option(
    "--output",
    metavar="DIR",
    shell_complete=completion.directories,
    help="Write a repaired copy to DIR, which must not exist, and change nothing in PATH. Without a strategy, as"
    " --truncate would.",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.File("rb"),
    metavar="FILE",
    help="Apply a plan that was saved with --format json, if it still holds. - is standard input.",
)
@click.option("--undo", is_flag=True, help="Undo a run: every byte is as it was before.")
@click.option("--resume", is_flag=True, help="Finish a run that was interrupted.")
@click.option("--run", metavar="ID", callback=_run_id, help="The run to undo or to finish. Default: the last one.")
@click.option(
    "--force",
    is_flag=True,
    help="With --undo: undo even where another process has written a file since; its present state is kept first.",
)
@click.option("--no-keep", is_flag=True, help="Keep nothing that is removed: the run cannot be undone.")
@click.option("--yes", is_flag=True, help="With --no-keep: do not ask.")
@click.option(
    "--drop-marker",
    is_flag=True,
    help="Remove the log directory's clean-shutdown file, so that the broker recovers the logs too.",
)
@options.level
@options.everything
@options.output_format(*REPORT_FORMATS)
@options.page_options
@options.max_batch_bytes
@options.jobs
@options.spark
@options.progress
@options.color
@options.quiet
def command(**chosen: Any) -> int:
    """Print what recovery would do to partitions, and what would be lost; with a strategy, do it, with an undo.

    PATH is a topic-partition directory, a log directory, any directory above these, a segment, or a glob. Without
    --truncate, --salvage or --reindex nothing is changed: the plan of --truncate is printed, which is what an unclean
    start of Kafka 4.3 would do. Stop the broker before anything is written. What is removed goes to .kdump-undo in the
    partition.

    \b
    Examples:
      kdump recover /data/kafka/orders-3
      kdump recover --truncate /data/kafka/orders-3
      kdump recover --undo /data/kafka/orders-3
      kdump recover --salvage --dry-run --format json /data/kafka > plan
      kdump recover --plan plan

    \b
    Exit status: 0 nothing to do, or done; 1 there is something to do, or
    errors remain, or a broker refuses what remains; 2 usage; 3 something could
    not be done; 4 done, and valid records were given up, or offsets below the
    high watermark are now missing.
    """
    wanted, saved = _request(chosen)
    _refuse_object_stores(chosen)
    if chosen["undo"] or chosen["resume"]:
        return _back(chosen)
    if _applies(chosen) and chosen["no_keep"]:
        _warn_of_no_way_back(chosen)
    progress = _RunProgress(wanted, chosen)
    with renderer(chosen["format_name"], sys.stdout, _look(chosen), RecoveryRenderer) as out:
        if not chosen["quiet"]:
            out.hold()
        out.plan({**wanted.fields(), "paths": chosen["paths"]})
        try:
            for result in progress.results(_results(chosen, wanted, saved, out.plan_map if out.shows_maps else None)):
                out.recovery(result)
        except KeyboardInterrupt:
            progress.interrupt()
        summary = progress.summary()
        if not chosen["quiet"]:
            out.recovery_summary(summary, progress.status, progress.seconds)
    return progress.status


def _refuse_object_stores(chosen: dict[str, Any]) -> None:
    """Raise KdumpError where something would be written to an object store, or read there to be written elsewhere."""
    if _applies(chosen) or chosen["undo"] or chosen["resume"]:
        for path in (*chosen["paths"], *filter(None, [chosen["output"]])):
            require_local(path)


def _warn_of_no_way_back(chosen: dict[str, Any]) -> None:
    """Say that the run cannot be undone, and ask on a terminal. Raises KdumpError after a no."""
    complain("--no-keep: nothing that is removed is kept, so there is no way back")
    asks = not chosen["yes"] and sys.stdin.isatty() and sys.stderr.isatty()
    if asks and not click.confirm("Go on?", err=True):
        raise KdumpError("nothing was changed")


def _look(chosen: dict[str, Any]) -> Look:
    return Look(
        color=options.use_color(chosen["color"]),
        ascii_lines=options.is_ascii(),
        display=options.display(chosen),
        page=options.page(chosen),
    )


def _results(
    chosen: dict[str, Any],
    wanted: RecoverOptions,
    saved: "SavedPlan | None",
    on_map: "Callable[[Plan, LogMap], object] | None",
) -> "Iterator[RecoveryResult | Report]":
    """What would be done with each partition, or what became of it."""
    from kdump.cli.execution import execution
    from kdump.recover import phases, planner
    from kdump.storage.discovery import discover

    with (
        execution(lambda: discover(chosen["paths"]), chosen) as job,
        phases.observed(job.progress.enter),
        ExitStack() as locks,
    ):
        kept = locks if _applies(chosen) else None
        # Discovered again once the lock is held: a broker may have written until then.
        copies = chosen["output"] is not None
        found: Iterable[Plan | Report] = planner.plan_recovery(
            job.progress.watch(discover(chosen["paths"])),
            wanted,
            engine=job.engine,
            on_bytes=job.progress.advance,
            locks=kept,
            only_reads=copies,
            compares=not (_applies(chosen) or any(chosen[name] for name in (*STRATEGIES, "fill_from", "plan_file"))),
            on_notice=complain,
            on_map=on_map,
        )
        if saved is not None:
            found = saved.check(found)
        if _applies(chosen):
            from kdump.recover import recover

            how = recover.ApplyOptions(
                recover.new_run(), chosen["output"], not chosen["no_keep"], chosen["drop_marker"]
            )
            yield from recover.apply_all(found, wanted, how, job.own_engine)
        else:
            for item in found:
                yield RecoveryResult(item) if isinstance(item, Plan) else item


def _applies(chosen: dict[str, Any]) -> bool:
    """Whether the command writes anything."""
    named = any(chosen[name] for name in (*STRATEGIES, "fill_from", "output", "plan_file"))
    return named and not chosen["dry_run"]


def _back(chosen: dict[str, Any]) -> int:
    """Undo runs, or finish them; the exit status."""
    from kdump.cli.execution import ProblemLog
    from kdump.cli.progress import Progress
    from kdump.recover import phases
    from kdump.recover.recover import summary_after_undo
    from kdump.recover.summary import RecoveryTotals

    started, problems, met = time.monotonic(), ProblemLog(), set[Severity]()
    totals = RecoveryTotals(RecoverOptions(), chosen["paths"], applies=True)
    with (
        Progress(chosen["progress"]) as progress,
        phases.observed(progress.enter),
        renderer(chosen["format_name"], sys.stdout, _look(chosen), RecoveryRenderer) as out,
    ):
        undone: list[str] = []
        if not chosen["quiet"]:
            out.hold()
        for one in _taken_back(chosen, problems.take):
            _show_run(out, one)
            if chosen["undo"] and one.error is None and not one.run.flat:
                undone.append(one.run.directory)
            if one.recovery is not None:
                totals.add(one.recovery)
            else:
                left = _left_findings(one)
                met.update(finding.severity for finding in left)
                out.findings(left)
        summary = totals.summary(failed=bool(problems.failed))
        errors = summary.has_errors or totals.has_refusals or max(met, default=None) == Severity.ERROR
        status = exit_status.of_recovery(
            interrupted=False, failed=problems.failed, gave_up=totals.gives_up_records, work_left=errors
        )
        seconds = round(time.monotonic() - started, 3)
        if totals.partitions and not chosen["quiet"]:
            out.recovery_summary(summary, status, seconds)
        elif undone and not chosen["quiet"]:
            out.undo_summary(summary_after_undo(undone, is_partial=bool(problems.failed)), status, seconds)
        elif chosen["format_name"] in ("json", *PAGE_FORMATS) and not chosen["quiet"]:
            out.exit_summary("recover", status, seconds)
    return status


def _taken_back(chosen: dict[str, Any], report: Callable[[list[KdumpError]], object]) -> "Iterator[RunResult]":
    """What became of runs in every directory. Reports what failed."""
    from kdump.recover import recover, undo

    how = partial(recover.undo_recovery, force=chosen["force"]) if chosen["undo"] else recover.resume_recovery
    for path in chosen["paths"]:
        then = ""
        try:
            done = how(_directory(path), run=chosen["run"])
        except undo.UndoFailure as error:
            done, then = list(error.done), error.then
        except KdumpError as error:
            report([error])
            continue
        for one in done:
            report([one.error] if one.error is not None else [])
            yield one
        report([KdumpError(then)] if then else [])


def _show_run(out: RecoveryRenderer, done: "RunResult") -> None:
    """What became of a run in a directory; of a recovery that was finished all that the run itself would have said."""
    if done.recovery is None or not done.recovery.plan.is_empty:
        out.run(done)
    if done.recovery is not None:
        out.recovery(done.recovery)


def _left_findings(done: "RunResult") -> Sequence[Finding]:
    from kdump.recover import recover

    return recover.remaining_findings(done.run.directory) if _is_whole(done) else ()


def _is_whole(done: "RunResult") -> bool:
    """Whether a partition is as a recovery leaves it, so that it has to be verified."""
    applied = done.error is None and done.run.state == "applied"
    return applied and os.path.basename(os.path.dirname(done.run.undo)) == naming.UNDO_FOLDER


def _directory(path: str) -> str:
    """The directory of a path. A run belongs to a directory, also where the path of a segment is given."""
    return path if os.path.isdir(path) or not os.path.lexists(path) else os.path.dirname(path) or "."


# ---- what was asked for


def _request(chosen: dict[str, Any]) -> "tuple[RecoverOptions, SavedPlan | None]":
    """The options of the plan; of a saved plan those that it was made with, and its paths go into `chosen`."""
    _check(chosen, _given())
    if chosen["plan_file"] is not None:
        from kdump.recover import saved_plans

        saved = saved_plans.read(chosen["plan_file"])
        chosen["paths"] = saved.paths
        return saved.options, saved
    strategy = FILL if chosen["fill_from"] else next((name for name in STRATEGIES if chosen[name]), TRUNCATE)
    wanted = RecoverOptions(
        strategy=strategy,
        walk=chosen["walk"],
        rebuild_all=chosen["rebuild"] == "all",
        undecided=chosen["undecided"],
        index_interval_bytes=chosen["index_interval_bytes"],
        segment_index_bytes=chosen["segment_index_bytes"],
        max_batch_bytes=chosen["max_batch_bytes"],
        now_ms=int(time.time() * 1000),
        fill_from=chosen["fill_from"],
    )
    return wanted, None


def _given() -> frozenset[str]:
    """The options that are on the command line."""
    context = click.get_current_context()
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def _check(chosen: dict[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError where options do not go together."""
    modes = [name for name in (*STRATEGIES, "fill_from", *_BACK, "plan_file") if name in given]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(map(_option, modes))} cannot be combined")
    mode = modes[0] if modes else None
    if mode == "plan_file" and chosen["paths"]:
        raise click.UsageError("a saved plan has its own paths")
    if mode != "plan_file" and not chosen["paths"]:
        raise click.UsageError("Missing argument 'PATH...'.")
    if "-" in chosen["paths"]:
        raise click.UsageError("standard input cannot be recovered: name files or directories")
    back = [*_OF_THE_PLAN, *_HOW, "master", "spark_settings"] if mode in _BACK else []
    rules = (
        (back, f"--{mode} undoes or finishes a run, and plans nothing"),
        (_OF_THE_PLAN if mode == "plan_file" else (), "the saved plan has its own"),
        (("run",) if mode not in _BACK else (), "it needs --undo or --resume"),
        (("force",) if mode != "undo" else (), "it needs --undo"),
        (("undecided",) if mode != SALVAGE else (), "it needs --salvage"),
        (("walk",) if mode in (SALVAGE, REINDEX, "fill_from") else (), f"{_option(mode or '')} reads every segment"),
        (("no_keep", "drop_marker") if mode is None else (), "nothing is changed without a strategy"),
        (("no_keep", "drop_marker") if chosen["output"] else (), "--output changes nothing in PATH"),
        (("yes",) if not chosen["no_keep"] else (), "it needs --no-keep"),
        (("output",) if chosen["dry_run"] else (), "--dry-run writes nothing"),
    )
    for names, why in rules:
        for name in names:
            if name in given:
                raise click.UsageError(f"{_option(name)}: {why}")


def _option(name: str) -> str:
    others = {"walk": "--from", "plan_file": "--plan", "spark_settings": "--spark-conf"}
    return others.get(name, f"--{name.replace('_', '-')}")


# ---- what came of it


class _RunProgress:
    """Adds up the results of a command, and says its summary and its exit status."""

    def __init__(self, wanted: RecoverOptions, chosen: dict[str, Any]) -> None:
        from kdump.cli.execution import ProblemLog
        from kdump.recover.summary import RecoveryTotals

        self._applies = _applies(chosen)
        self._totals = RecoveryTotals(wanted, chosen["paths"], chosen["output"], applies=self._applies)
        self._problems = ProblemLog()
        self._started = time.monotonic()
        self._interrupted = False

    def results(self, found: "Iterable[RecoveryResult | Report]") -> Iterator[RecoveryResult]:
        """The results, which are counted; what could not be read is reported on standard error."""
        from kdump.verify.report import Report

        for item in found:
            if isinstance(item, Report):
                self._problems.take(item.errors)
                continue
            if item.error is not None:
                self._problems.take([item.error])
            if item.lost_attributes:
                complain(f"{item.plan.path}: the copy does not have the {', '.join(item.lost_attributes)} of its files")
            self._totals.add(item)
            yield item

    def interrupt(self) -> None:
        self._interrupted = True
        if self._applies:
            complain(
                "interrupted while files were being changed; the next kdump recover says whether there is a run to"
                " finish or undo"
            )

    def summary(self) -> "RecoverySummary":
        """The totals of the command. Call it once, after the results."""
        self._problems.end(some=bool(self._totals.partitions))
        return self._totals.summary(failed=bool(self._problems.failed), interrupted=self._interrupted)

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)

    @property
    def _refuses(self) -> bool:
        """Whether something stays with which a broker does not start, or renames a partition's directory."""
        return self._totals.has_refusals

    @property
    def status(self) -> int:
        summary = self._totals.summary()
        return exit_status.of_recovery(
            interrupted=self._interrupted,
            failed=self._problems.failed,
            gave_up=self._totals.gives_up_records,
            work_left=bool(summary.actions and not self._applies) or summary.has_errors or self._refuses,
        )
