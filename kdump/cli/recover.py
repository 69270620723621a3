"""kdump recover."""

import os
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kdump.cli import FAILED, FOUND, GAVE_UP, INTERRUPTED, complain, options, saved
from kdump.errors import KdumpError
from kdump.format import naming
from kdump.recover.plan import REINDEX, SALVAGE, STRATEGIES, TRUNCATE, Lost, Plan, RecoverOptions
from kdump.render import RenderOptions as Look
from kdump.render import renderer
from kdump.render.recovery import counts_of
from kdump.render.sentences import tally
from kdump.verify.findings import Severity

if TYPE_CHECKING:
    from kdump.recover.recover import RecoveryResult
    from kdump.recover.undo import RunResult
    from kdump.verify.findings import Finding
    from kdump.verify.report import Report

_OF_THE_PLAN = ("walk", "rebuild", "undecided", "index_interval_bytes", "segment_index_bytes", "max_batch_bytes")
_HOW = ("output", "dry_run", "no_keep", "drop_marker")
_BACK = ("undo", "resume")


def _run_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"\w[\w.-]*", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is no name of a run", ctx, param)
    return value


@click.command("recover")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--truncate", is_flag=True, help="Do what a broker's next start would do: cut at the first bad batch.")
@click.option("--salvage", is_flag=True, help="Keep every batch that proves itself, and drop damaged bytes only.")
@click.option("--reindex", is_flag=True, help="Make indexes, snapshots and epochs anew; no log changes.")
@click.option(
    "--from",
    "walk",
    type=click.Choice(saved.WALKS),
    default="checkpoint",
    show_default=True,
    help="Where --truncate begins: at the recovery point of the log directory's checkpoint (the newest segment where that does not name the partition), "
    "at the newest segment, or at the first.",
)
@click.option(
    "--rebuild",
    type=click.Choice(["wrong", "all"]),
    default="wrong",
    show_default=True,
    help="Make those companions anew that are wrong or whose log changes, or, as a broker does, all of what is walked.",
)
@click.option(
    "--undecided",
    type=click.Choice(saved.UNDECIDED),
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
    help="The broker's segment.index.bytes: no index becomes larger.",
)
@click.option("--dry-run", is_flag=True, help="Print the plan and change nothing, as without a strategy.")
@click.option(
    "--output",
    metavar="DIR",
    help="Build a repaired copy in DIR, which must not exist, and leave what PATH names alone. Without a strategy, as --truncate would.",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.File("rb"),
    metavar="FILE",
    help="Apply a plan that was saved with --format json, if it is still what would be done. - is standard input.",
)
@click.option("--undo", is_flag=True, help="Take a run back: every byte as it was before.")
@click.option("--resume", is_flag=True, help="Finish a run that was killed.")
@click.option(
    "--run", metavar="ID", callback=_run_id, help="The run that --undo or --resume is about. Default: the newest."
)
@click.option(
    "--force", is_flag=True, help="With --undo: also where a file was written since; its present state is kept first."
)
@click.option("--no-keep", is_flag=True, help="Keep nothing of what is removed: the run cannot be undone.")
@click.option(
    "--drop-marker",
    is_flag=True,
    help="Remove the log directory's .kafka_cleanshutdown, so that the broker recovers on its own too.",
)
@options.output_format("terminal", "text", "json")
@options.max_batch_bytes
@options.jobs
@options.progress
@options.color
@options.quiet
def command(**chosen: Any) -> int:
    """Print what recovery would do to partitions, and what would be lost; with a strategy, do it so that it can be taken back.

    PATH is a topic-partition directory, a log directory, any directory above, a segment, or a glob. Without --truncate, --salvage or --reindex nothing is
    changed: what is printed is the plan of --truncate, which is what a broker's next start would do. Stop the broker first. What is removed goes to
    .kdump-undo in the partition.

    \b
    Examples:
      kdump recover /data/kafka/orders-3
      kdump recover --truncate /data/kafka/orders-3
      kdump recover --undo /data/kafka/orders-3
      kdump recover --salvage --dry-run --format json /data/kafka > plan; kdump recover --plan plan

    \b
    Exit status: 0 nothing to do, or done; 1 there is something to do, or errors remain; 2 usage; 3 something could not
    be done; 4 done, and valid records were given up.
    """
    what, plan = _asked(chosen)
    if chosen["undo"] or chosen["resume"]:
        return _back(chosen)
    totals = RecoverTotals(what, chosen["paths"], chosen["output"], applies=_applies(chosen))
    with renderer(chosen["format_name"], sys.stdout, Look(color=options.use_color(chosen["color"]))) as out:
        out.plan({**what._asdict(), "paths": chosen["paths"]})
        try:
            for told in _told(chosen, what, plan):
                if (result := totals.take(told)) is not None:
                    out.recovery(result)
        except KeyboardInterrupt:
            totals.interrupt()
        totals.end()
        if not chosen["quiet"]:
            out.summary(totals.fields())
    return totals.status


def _told(
    chosen: dict[str, Any], what: RecoverOptions, plan: saved.SavedPlan | None
) -> "Iterator[RecoveryResult | Report]":
    """What would be done with each partition, or what became of it."""
    from kdump.cli.work import work
    from kdump.recover import recover
    from kdump.storage.discovery import discover

    with work(lambda: discover(chosen["paths"]), chosen) as (engine, on_bytes, _), ExitStack() as locks:
        kept = locks if _applies(chosen) else None
        # Listed anew, once the lock is held.
        told: Iterable[Plan | Report] = recover.plans(discover(chosen["paths"]), what, engine, on_bytes, kept)
        if plan is not None:
            told = saved.check(plan, told)
        if _applies(chosen):
            how = recover.ApplyOptions(_new_run(), chosen["output"], not chosen["no_keep"], chosen["drop_marker"])
            yield from recover.apply_all(told, what, how, engine)
        else:
            for item in told:
                yield recover.RecoveryResult(item) if isinstance(item, Plan) else item


def _new_run() -> str:
    """A name for a run: when it began, so that names sort, and in which process."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}"


def _applies(chosen: dict[str, Any]) -> bool:
    """Whether something is to be written."""
    named = any(chosen[name] for name in (*STRATEGIES, "output", "plan_file"))
    return named and not chosen["dry_run"]


def _back(chosen: dict[str, Any]) -> int:
    """Take runs back, or finish them; the exit status."""
    from kdump.cli.work import ProblemLog
    from kdump.recover import recover, undo

    started, problems, met = time.monotonic(), ProblemLog(), set[Severity]()
    with renderer(chosen["format_name"], sys.stdout, Look(color=options.use_color(chosen["color"]))) as out:
        for path in chosen["paths"]:
            place = _directory(path)
            how = partial(recover.take_back, force=chosen["force"]) if chosen["undo"] else recover.resume
            try:
                done = how(place, chosen["run"])
            except undo.UndoFailure as error:
                done = list(error.done)
            except KdumpError as error:
                problems.take([error])
                continue
            for one in done:
                problems.take([one.error] if one.error is not None else [])
                out.run(one)
                for finding in recover.left(one.run.directory) if _is_whole(one) else ():
                    met.add(finding.severity)
                    out.finding(finding)
        status = options.status(problems.failed, met, Severity.ERROR)
        if chosen["format_name"] == "json" and not chosen["quiet"]:
            out.summary({"command": "recover", "exit_status": status, "seconds": round(time.monotonic() - started, 3)})
    return status


def _is_whole(done: "RunResult") -> bool:
    """Whether a partition is now as a recovery leaves it, so that it is to be verified."""
    applied = done.error is None and done.run.state == "applied"
    return applied and os.path.basename(os.path.dirname(done.run.undo)) == naming.UNDO


def _directory(path: str) -> str:
    """The directory that a path is about: a run is one of a directory, also where a segment was named."""
    return path if os.path.isdir(path) or not os.path.lexists(path) else os.path.dirname(path) or "."


# ---- what was asked for


def _asked(chosen: dict[str, Any]) -> tuple[RecoverOptions, saved.SavedPlan | None]:
    """The options of the plan; where one was saved, those that it was made with, and its paths."""
    _check(chosen, _given())
    if chosen["plan_file"] is not None:
        plan = saved.read(chosen["plan_file"])
        chosen["paths"] = plan.paths
        return plan.options, plan
    strategy = next((name for name in STRATEGIES if chosen[name]), TRUNCATE)
    what = RecoverOptions(
        strategy=strategy,
        walk=chosen["walk"],
        rebuild_all=chosen["rebuild"] == "all",
        undecided=chosen["undecided"],
        index_interval_bytes=chosen["index_interval_bytes"],
        segment_index_bytes=chosen["segment_index_bytes"],
        max_batch_bytes=chosen["max_batch_bytes"],
        now_ms=int(time.time() * 1000),
    )
    return what, None


def _given() -> frozenset[str]:
    """The options that stand on the command line."""
    context = click.get_current_context()
    return frozenset(
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def _check(chosen: dict[str, Any], given: frozenset[str]) -> None:
    """Raise UsageError where options do not go together."""
    modes = [name for name in (*STRATEGIES, *_BACK, "plan_file") if name in given]
    if len(modes) > 1:
        raise click.UsageError(f"{' and '.join(map(_option, modes))} exclude each other")
    mode = modes[0] if modes else None
    if mode == "plan_file" and chosen["paths"]:
        raise click.UsageError("the paths of --plan are those that stand in it")
    if mode != "plan_file" and not chosen["paths"]:
        raise click.UsageError("Missing argument 'PATH...'.")
    if "-" in chosen["paths"]:
        raise click.UsageError("standard input cannot be recovered: name files or directories")
    back = [*_OF_THE_PLAN, *_HOW] if mode in _BACK else []
    rules = (
        (back, f"--{mode} takes a run back or finishes it, and plans nothing"),
        (_OF_THE_PLAN if mode == "plan_file" else (), "a saved plan says that itself"),
        (("run",) if mode not in _BACK else (), "that goes with --undo and --resume"),
        (("force",) if mode != "undo" else (), "that goes with --undo"),
        (("undecided",) if mode != SALVAGE else (), "that goes with --salvage"),
        (("walk",) if mode in (SALVAGE, REINDEX) else (), f"--{mode} goes over every segment"),
        (("no_keep", "drop_marker") if mode is None else (), "nothing is changed without a strategy"),
        (("no_keep", "drop_marker") if chosen["output"] else (), "--output leaves what PATH names alone"),
        (("output",) if chosen["dry_run"] else (), "--dry-run writes nothing"),
    )
    for names, why in rules:
        for name in names:
            if name in given:
                raise click.UsageError(f"{_option(name)}: {why}")


def _option(name: str) -> str:
    return {"walk": "--from", "plan_file": "--plan"}.get(name, f"--{name.replace('_', '-')}")


def _command(what: RecoverOptions, paths: Sequence[str], *more: str) -> str:
    """The command that does what a plan with these options says, with `more` options."""
    plain, words = RecoverOptions(), ["kdump", "recover", f"--{what.strategy}", *more]
    sizes = ("index_interval_bytes", "segment_index_bytes", "max_batch_bytes")
    told = {
        "--from": what.walk if what.walk != plain.walk else None,
        "--rebuild": "all" if what.rebuild_all else None,
        "--undecided": what.undecided if what.undecided != plain.undecided else None,
        **{
            _option(name): str(getattr(what, name)) if getattr(what, name) != getattr(plain, name) else None
            for name in sizes
        },
    }
    for option, value in told.items():
        words += [option, value] if value is not None else []
    return shlex.join([*words, *(["--"] if any(path.startswith("-") for path in paths) else []), *paths])


# ---- what came of it


class RecoverTotals:
    """The sums over all partitions that the summary and the exit status come from."""

    def __init__(self, what: RecoverOptions, paths: Iterable[str], output: str | None, *, applies: bool) -> None:
        from kdump.cli.work import ProblemLog

        self._what = what
        self._paths = tuple(paths)
        self._output = output
        self._applies = applies
        self._started = time.monotonic()
        self._problems = ProblemLog()
        self._partitions = self._failed = self._bytes_needed = 0
        self._actions: Counter[str] = Counter()
        self._lost: list[Lost] = []
        self._ends: tuple[int | None, int | None] = (None, None)
        self._not_covered: Counter[tuple[str, Severity]] = Counter()
        self._left: Counter[tuple[str, Severity]] = Counter()
        self._run: str | None = None
        self._next: dict[str, None] = {}
        self._interrupted = self._alone = self._salvageable = False

    def take(self, told: "RecoveryResult | Report") -> "RecoveryResult | None":
        """Count a partition; the result that is to be shown, None where it could not be read."""
        from kdump.verify.report import Report

        if isinstance(told, Report):
            self._problems.take(told.errors)
            return None
        plan = told.plan
        if not plan.is_root:
            self._partitions += 1
            self._failed += told.error is not None
            self._ends = (plan.log_start_offset, plan.log_end_offset)
        if told.error is not None:
            self._problems.take([told.error])
        else:
            self._actions.update(action.action for action in plan.actions)
            self._bytes_needed += plan.bytes_needed
            if plan.lost.bytes or plan.lost.batches:
                self._lost.append(plan.lost)
        self._alone |= plan.alone and not plan.empty
        self._not_covered += counts_of(plan.not_covered)
        self._salvageable = self._salvageable or (not plan.is_root and _is_error(plan.not_covered))
        self._left += counts_of(told.left)
        self._run = self._run or told.run
        if told.applied and told.next:
            self._next[told.next] = None
        return told

    def interrupt(self) -> None:
        self._interrupted = True
        if self._applies:
            complain(
                "interrupted while files were changed; the next kdump recover says whether a run is left to be finished or taken back"
            )

    def end(self) -> None:
        self._problems.end(some=bool(self._partitions))

    @property
    def status(self) -> int:
        if self._interrupted:
            return INTERRUPTED
        if self._problems.failed:
            return FAILED
        if self._applies and any(lost.batches or lost.records for lost in self._lost):
            return GAVE_UP
        if self._actions and not self._applies:
            return FOUND
        return options.status(False, {severity for _, severity in (*self._not_covered, *self._left)}, Severity.ERROR)

    def fields(self) -> dict[str, Any]:
        """The summary, by the names of the contract."""
        alone = self._partitions == 1
        return {
            "command": "recover",
            "strategy": self._what.strategy,
            "applied": self._applies,
            "partitions": self._partitions,
            "failed": self._failed,
            "actions": dict(sorted(self._actions.items())),
            "not_covered": tally(self._not_covered),
            "left": tally(self._left),
            "log_start_offset": self._ends[0] if alone else None,
            "log_end_offset": self._ends[1] if alone else None,
            "bytes_needed": self._bytes_needed,
            "lost": _together(self._lost),
            "undo": self._run,
            "output": self._output,
            "next": self._what_next(),
            "interrupted": self._interrupted,
            "exit_status": self.status,
            "seconds": round(time.monotonic() - self._started, 3),
        }

    def _what_next(self) -> str | None:
        """The command to run, where it is one for all partitions."""
        if self._applies:
            return next(iter(self._next)) if len(self._next) == 1 and not self._problems.failed else None
        if self._actions:
            return _command(self._what, self._paths, *(["--output", "DIR"] if self._alone else []))
        if self._what.strategy != SALVAGE and self._salvageable:
            return _command(self._what._replace(strategy=SALVAGE, walk=RecoverOptions().walk), self._paths, "--dry-run")
        return None


def _is_error(findings: "Iterable[Finding]") -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _together(lost: Sequence[Lost]) -> Lost:
    """What several partitions lose; offsets, producers and transactions are those of one partition, so none are told of several."""
    if len(lost) < 2:
        return lost[0] if lost else Lost()
    records = [each.records for each in lost]
    firsts = [each.first_timestamp for each in lost if each.first_timestamp != -1]
    committed = {each.committed for each in lost if each.batches}
    return Lost(
        batches=sum(each.batches for each in lost),
        records=None if None in records else sum(count or 0 for count in records),
        bytes=sum(each.bytes for each in lost),
        first_timestamp=min(firsts, default=-1),
        max_timestamp=max(each.max_timestamp for each in lost),
        committed=True if True in committed else None if None in committed else False,
    )
