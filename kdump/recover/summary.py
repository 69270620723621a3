"""The sums of a recovery over all its partitions, and the command to run next."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.recover.next_step import (
    PUT_BACK,
    START_BROKER,
    UNREPAIRED,
    RecoveryStep,
    Urgency,
    from_replica,
    lacks_records,
    next_of,
    of_findings,
    of_unrepaired,
)
from kdump.recover.plan import (
    FILL,
    REINDEX,
    SALVAGE,
    TRUNCATE,
    Damaged,
    GivenUp,
    Lost,
    Plan,
    RecoverOptions,
    RecoveryResult,
)
from kdump.recover.plan_lines import CountsByCode, FindingTotals, counts_of, finding_totals, lost_fields
from kdump.recover.runs import is_log_directory
from kdump.storage.file_store import is_url
from kdump.verify.findings import Severity
from kdump.verify.next_step import REBUILT, fill_command, shell_command
from kdump.verify.reaction import TRUNCATION_CODES
from kdump.verify.start_verdict import StartVerdict

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

_OPTIONS: Final[Mapping[str, str]] = {
    "walk": "--from",
    "rebuild_all": "--rebuild",
    "undecided": "--undecided",
    "index_interval_bytes": "--index-interval-bytes",
    "segment_index_bytes": "--segment-index-bytes",
    "max_batch_bytes": "--max-batch-bytes",
}


_AT_ONCE: Final = 5
"""So many partitions does a command name that is not about all paths."""
_INDEXES: Final = ("index/", "timeindex/", "txnindex/")


class RecoverySummary(NamedTuple):
    """The sums over all partitions, by the names of the `summary` line.

    `actions` counts them by their names, `not_covered` and `left` count findings. The offsets are those of a partition
    that is the only one. `undo` is the run that --undo takes back, `output` the directory of the copies. `next` is what
    to do now about all that was looked at, None where nothing is known to be done. `is_running`: a broker, probably,
    held the lock of a log directory that was read. `verdict` is what a broker's next start does: with the files as they
    are, or with what was applied.
    """

    strategy: str
    applied: bool
    partitions: int
    failed: int
    actions: Mapping[str, int]
    not_covered: FindingTotals
    left: FindingTotals
    log_start_offset: int | None
    log_end_offset: int | None
    bytes_needed: int
    lost: Lost
    undo: str | None
    output: str | None
    next: str | None
    interrupted: bool
    is_running: bool = False
    verdict: StartVerdict = StartVerdict()

    def fields(self) -> "Fields":
        """The fields of the JSON line, without the command, its exit status and the seconds."""
        fields = {**self._asdict(), "lost": lost_fields(self.lost), "running": self.is_running}
        del fields["is_running"], fields["verdict"]
        return {**fields, "starts": self.verdict.starts}

    @property
    def has_verdict(self) -> bool:
        """Whether there is anything to be said but that all is healthy."""
        counts = (self.not_covered.by_severity, self.left.by_severity)
        found = any(each[word] for each in counts for word in ("error", "warning") if word in each)
        is_healthy = not (self.actions or found or self.failed or self.lost.committed or self.next is not None)
        return self.verdict.has_directory and not is_healthy

    @property
    def has_errors(self) -> bool:
        """Whether findings of severity error are not covered, or are left."""
        error = Severity.ERROR.word
        return bool(self.not_covered.by_severity[error] or self.left.by_severity[error])


class RecoveryTotals:
    """Adds up the results of a recovery. `applies` says whether it changes anything."""

    def __init__(
        self, options: RecoverOptions, paths: Sequence[str], output: str | None = None, *, applies: bool
    ) -> None:
        self._options, self._paths, self._output, self._applies = options, tuple(paths), output, applies
        self._partitions = self._failed = self._bytes_needed = 0
        self._actions: Counter[str] = Counter()
        self._lost: list[Lost] = []
        self._first_offset: int | None = None
        self._end_offset: int | None = None
        self._not_covered: CountsByCode = Counter()
        self._left: CountsByCode = Counter()
        self._run: str | None = None
        self._steps: dict[RecoveryStep, None] = {}
        self._alone = self._salvageable = self._gives_up = self._refused = self._is_running = False
        self._reindexable = self._leaves_damage = self._strays = self._asks = False
        self._copies: dict[TopicPartition, list[str]] = {}
        self._truncatable: list[str] = []
        self._verdict = StartVerdict()
        self._directories: dict[str, bool] = {}
        self._better_salvaged: list[str] = []

    @property
    def partitions(self) -> int:
        """How many partitions were added."""
        return self._partitions

    def add(self, result: RecoveryResult) -> None:
        """Count the result of a partition, or of the root of a log directory."""
        plan = result.plan
        self._is_running |= plan.is_running
        self._verdict = self._verdict_with(result)
        if not plan.is_root:
            self._partitions += 1
            self._failed += result.error is not None
            self._first_offset, self._end_offset = plan.log_start_offset, plan.log_end_offset
            errors = [finding.code for finding in plan.not_covered if finding.severity is Severity.ERROR]
            salvageable = any(not code.startswith(REBUILT) and code not in UNREPAIRED for code in errors)
            salvageable &= plan.salvage is None or not plan.salvage.empty
            reindexable = any(
                finding.code.startswith(_INDEXES) or (finding.code.startswith(REBUILT) and finding.code in errors)
                for finding in plan.not_covered
            )
            self._salvageable |= salvageable
            self._reindexable |= reindexable
            self._leaves_damage |= not result.applied and (salvageable or reindexable)
            self._compare(plan)
            if plan.topic_partition is not None:
                self._copies.setdefault(plan.topic_partition, []).append(plan.path)
        if result.error is None:
            self._actions.update(action.action for action in plan.actions)
            self._bytes_needed += plan.bytes_needed
            if not plan.is_root:
                self._lost.append(plan.lost)
            self._gives_up |= plan.lost.is_for_good and not plan.is_empty
        self._alone |= plan.alone and not plan.is_empty
        self._asks |= plan.newest is not None
        self._not_covered += counts_of(plan.not_covered)
        self._left += counts_of(result.left)
        self._run = self._run or result.run
        staying = result.left if result.applied else plan.not_covered
        step = of_findings(staying)
        self._refused |= step is not None
        self._strays |= step is not None and step.urgency is Urgency.STRAY
        self._steps |= dict.fromkeys(self._steps_of(result, step))

    def _verdict_with(self, result: RecoveryResult) -> StartVerdict:
        """The verdict with one result more: a plan that is not applied says what a start does with the files."""
        plan, verdict = result.plan, self._verdict._replace(has_directory=True)
        if result.error is not None:
            return verdict.but_unknown(f"{plan.path} failed")
        if self._output is not None:
            verdict = verdict.but_unknown("the copy is not in a log directory")
        elif not plan.is_root and (plan.alone or not self._is_placed(plan.path)):
            verdict = verdict.but_unknown(f"{plan.path} is not in a log directory")
        if plan.is_running:
            verdict = verdict.but_unknown("a broker is probably running")
        step = of_findings(result.left if result.applied else plan.not_covered)
        writes_id = not result.applied and any((one.because or "").startswith("metadata/") for one in plan.actions)
        if writes_id or (step is not None and step.urgency is Urgency.STRAY):
            verdict = verdict._replace(renamed=verdict.renamed.plus(plan.path))
        refused = None if step is None or step.urgency is Urgency.STRAY else step.words.rpartition(": see ")[2]
        if plan.refusals and not result.applied:
            refused = f"{plan.refusals[0][0]} ({os.path.join(plan.path, plan.refusals[0][1])})"
        verdict = verdict._replace(refused=verdict.refused or refused)
        leaves = any(one.severity is Severity.ERROR and one.code in TRUNCATION_CODES for one in result.left)
        if plan.is_root or (plan.lost.is_empty if not result.applied else not leaves):
            return verdict
        if plan.clean_shutdown:
            return verdict._replace(damaged=verdict.damaged.plus(plan.path))
        if result.applied or plan.options.strategy != TRUNCATE or _is_asked_for(plan):
            # The plan does not follow the next start, which begins at the recovery point.
            return verdict._replace(undecided=verdict.undecided.plus(plan.path))
        if plan.is_empty:
            return verdict._replace(damaged=verdict.damaged.plus(plan.path))
        return verdict._replace(truncated=verdict.truncated.plus(plan.path))

    def _is_placed(self, path: str) -> bool:
        """Whether a partition lies in a log directory, each of which is listed once."""
        above = os.path.dirname(os.path.abspath(path))
        if above not in self._directories:
            self._directories[above] = is_log_directory(above)
        return self._directories[above]

    def _compare(self, plan: Plan) -> None:
        """Note which strategy loses less of a partition. Of two that lose the same, one that leaves damage is worse."""
        if plan.salvage is None:
            if plan.lost.given_up.batches == 0 or plan.is_empty:
                return
            self._truncatable.append(plan.path)
            return
        truncated, salvaged = plan.lost.order, plan.salvage.lost.order
        leaves = any(finding.code in TRUNCATION_CODES for finding in plan.not_covered) and not plan.salvage.empty
        if salvaged < truncated or (salvaged == truncated and leaves):
            self._better_salvaged.append(plan.path)
        elif truncated < salvaged:
            self._truncatable.append(plan.path)

    def _steps_of(self, result: RecoveryResult, step: RecoveryStep | None) -> Iterator[RecoveryStep]:
        plan = result.plan
        if result.next is not None:
            yield result.next
        elif result.error is None:
            step = step or self._step_as_it_is(plan)
            if not plan.is_root and lacks_records(plan.not_covered, plan.lost.committed):
                yield from_replica(plan.path, step)
            elif step is not None:
                yield step

    def _step_as_it_is(self, plan: Plan) -> RecoveryStep | None:
        """The step of a partition with errors, or without committed records, in which nothing is changed."""
        has_errors = any(finding.severity is Severity.ERROR for finding in plan.not_covered)
        if plan.is_root or not plan.is_empty or not (has_errors or plan.lost.committed):
            return None
        unrepaired = of_unrepaired(plan.not_covered)
        if unrepaired is not None or plan.is_running or self._output is not None:
            return unrepaired
        return START_BROKER if self._is_placed(plan.path) else PUT_BACK

    def summary(self, *, failed: bool = False, interrupted: bool = False) -> RecoverySummary:
        """The sums so far; `failed` says whether anything could not be done."""
        alone = self._partitions == 1
        return RecoverySummary(
            strategy=self._options.strategy,
            applied=self._applies,
            partitions=self._partitions,
            failed=self._failed,
            actions=dict(sorted(self._actions.items())),
            not_covered=finding_totals(self._not_covered),
            left=finding_totals(self._left),
            log_start_offset=self._first_offset if alone else None,
            log_end_offset=self._end_offset if alone else None,
            bytes_needed=self._bytes_needed,
            lost=_total(self._lost),
            undo=self._run,
            output=self._output,
            next=None if interrupted else self._next(failed),
            interrupted=interrupted,
            is_running=self._is_running,
            verdict=self._verdict.but_unknown(
                "the run was interrupted" if interrupted else "a path could not be read" if failed else None
            ),
        )

    @property
    def gives_up_records(self) -> bool:
        """Whether valid records were given up, or damaged bytes with committed offsets were removed."""
        return self._applies and self._gives_up

    @property
    def has_refusals(self) -> bool:
        """Whether a finding stays with which a broker does not start, or renames a partition's directory."""
        return self._refused if self._applies else self._strays

    def _next(self, failed: bool) -> str | None:
        lacking = {step.path for step in self._steps if step.urgency is Urgency.REPLICA}
        for copies in self._copies.values():
            if len(copies) > 1 and not failed and not lacking.isdisjoint(copies):
                return fill_command(copies)
        steps = [step for step in self._steps if not (failed and step.urgency <= Urgency.PUT_BACK)]
        if not self._applies:
            # What a plan does comes first; then its result says what is still to be decided.
            command = self._command()
            limit: int = Urgency.START - 1
            if self._actions or self._better_salvaged:
                limit = Urgency.STRAY
            elif command:
                limit = Urgency.REPAIR
            return next_of(filter(None, (step.above(limit) for step in steps)), command)
        if failed and self._actions:
            return None
        if self._leaves_damage and (repair := self._repair()) is not None:
            steps.append(RecoveryStep(Urgency.REPAIR, repair))
        return next_of(steps)

    def _command(self) -> str | None:
        """The command that carries out what was planned, or the one that loses less; or that plans what is not covered.

        Where one strategy loses less of some partitions, and the other one of others, it is about the former alone.
        """
        if self._better_salvaged:
            salvage = self._options._replace(strategy=SALVAGE, walk=RecoverOptions().walk)
            return command(salvage, self._better_salvaged[:_AT_ONCE] if self._truncatable else self._paths)
        if not self._actions and self._truncatable:
            return (
                f"read the lines truncate and salvage of {self._truncatable[0]}: a start changes nothing there, and"
                " a salvage gives up valid records"
            )
        if not self._actions:
            return self._repair()
        if self._options.strategy not in (REINDEX, SALVAGE, FILL) and self._actions.keys() == {"rebuild"}:
            return self._reindex()
        options = self._options._replace(walk="all") if self._asks else self._options
        return command(options, self._paths, *(["--output", "DIR"] if self._alone else []))

    def _repair(self) -> str | None:
        """The command for the findings that the plans do not cover."""
        defaults = RecoverOptions()
        if self._options.strategy != SALVAGE and self._salvageable:
            if self._applies:  # without a strategy it compares them
                return shell_command(["kdump", "recover", *(["--"] if _has_dash(self._paths) else []), *self._paths])
            salvage = self._options._replace(strategy=SALVAGE, walk=defaults.walk)
            return command(salvage, self._paths, "--dry-run")
        return self._reindex() if self._options.strategy != REINDEX and self._reindexable else None

    def _reindex(self) -> str:
        defaults = RecoverOptions()
        reindex = self._options._replace(strategy=REINDEX, walk=defaults.walk, undecided=defaults.undecided)
        return command(reindex, self._paths)


def _is_asked_for(plan: Plan) -> bool:
    """Whether an option or the path of a segment, not the log directory, says where the recovery begins."""
    return plan.start is not None and plan.start.because == "from"


def command(options: RecoverOptions, paths: Sequence[str], *more: str) -> str:
    """The command that carries out a plan with these options; `more` are further options.

    An object store is only read: there it is about a copy on a local disk.
    """
    remote = [path for path in paths if is_url(path)]
    if remote and "--dry-run" not in more:
        return f"copy {shell_command(remote)} to DIR on a local disk; then: {command(options, ['DIR'], *more)}"
    defaults = RecoverOptions()._asdict()
    strategy = [f"--{options.strategy}"] if options.strategy != FILL else []
    for path in options.fill_from if options.strategy == FILL else ():
        strategy += ["--fill-from", path]
    words = ["kdump", "recover", *strategy, *more]
    for name, option in _OPTIONS.items():
        value = getattr(options, name)
        if value != defaults[name]:
            words += [option, "all" if value is True else str(value)]
    return shell_command([*words, *(["--"] if _has_dash(paths) else []), *paths])


def _has_dash(paths: Iterable[str]) -> bool:
    """Whether a path looks like an option."""
    return any(path.startswith("-") for path in paths)


def _total(lost: Sequence[Lost]) -> Lost:
    """What several partitions lose. Offsets, producers and transactions belong to one partition, and are left out."""
    if len(lost) < 2:
        return lost[0] if lost else Lost()
    given_up = [each.given_up for each in lost]
    firsts = [each.first_timestamp for each in given_up if each.first_timestamp != -1]
    committed = {each.committed for each in lost if not each.is_empty} or {each.committed for each in lost}
    total = GivenUp(
        _sum_known(each.batches for each in given_up),
        _sum_known(each.records for each in given_up),
        _sum_known(each.bytes for each in given_up),
        None,
        min(firsts, default=-1),
        max((each.max_timestamp for each in given_up), default=-1),
    )
    exact = all(each.damaged.exact for each in lost)
    return Lost(
        total,
        Damaged(None, _sum_known(each.damaged.bytes for each in lost), exact),
        True if True in committed else None if None in committed else False,
    )


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """The sum, None where a part of it is not known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)
