"""What all formats say of a recovery: its sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from kdump.recover.plan import ACTIONS, SALVAGE, TRUNCATE
from kdump.recover.plan_lines import counts_of, finding_totals
from kdump.render.sentences import counted, finding_sentence, iso_time

if TYPE_CHECKING:
    from kdump.recover.plan import Action, Lost, Plan, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.verify.findings import Finding

NAMED = 5
"""A sentence lists so many ranges, producers and transactions; the others are counted."""

_CONSEQUENCES = {
    ("delete", "metadata/format"): (
        "without partition.metadata a broker in KRaft mode renames the directory to NAME-stray and begins an empty"
        " partition: copy the file from another partition of the topic before the broker starts"
    ),
}
"""What follows from an action, by the action and the code, and does not show in the log."""


def action_words(action: Action) -> str:
    """`truncate 1573-3146 batch/crc: remove the bytes up to the end of the file (1573 bytes, …)`."""
    words = [action.action, span(action), action.because or ""]
    target = "" if action.target in (None, action.path) else f": {action.target}"
    amount = f" ({held(action)})" if held(action) else ""
    return f"{' '.join(filter(None, words))}: {ACTIONS[action.action]}{target}{amount}"


def span(action: Action) -> str:
    """The positions of an action, `from-to`; nothing where it is about a whole file."""
    if action.start is None and action.stop is None:
        return ""
    return f"{action.start or 0}-{'' if action.stop is None else action.stop}"


def held(action: Action) -> str:
    """What the bytes of an action held."""
    return ", ".join(_amounts(action.bytes, action.batches, action.records, action.first_offset, action.last_offset))


def _amounts(size: int, batches: int | None, records: int | None, first: int | None, last: int | None) -> Iterator[str]:
    if size:
        yield counted(size, "byte")
    if batches is not None:
        yield counted(batches, "batch", "batches")
    if batches and records is not None:
        yield counted(records, "record")
    if first is not None and last is not None:
        yield f"offsets {first}..{last}"


def sentences(result: RecoveryResult) -> Iterator[tuple[str, str]]:
    """What is said of a partition after its actions, as (label, sentence); nothing where nothing is to be done."""
    plan = result.plan
    if result.error is not None:
        yield "failed", str(result.error)
    for exception, name in dict.fromkeys(plan.refusals):
        start = "would not have started on the directory" if result.applied else "does not start on it as it is"
        yield "refused", f"a broker {start}: {exception} ({name})"
    if not plan.is_empty:
        if not plan.is_root:
            yield "lost", lost_sentence(plan, applied=result.applied)
        yield from (("clash", sentence) for sentence in plan.conflicts)
        yield from (("undecided", sentence) for sentence in plan.undecided)
        acts = {(action.action, action.because) for action in plan.actions}
        yield from (("mind", sentence) for act, sentence in _CONSEQUENCES.items() if act in acts)
        if plan.alone and not result.applied:
            yield "mind", "the directory has later segments, so that this one can only become a copy: --output DIR"
        if not plan.is_root:
            yield "afterwards", _afterwards(plan)
        if not result.applied and plan.bytes_needed:
            yield "space", f"{counted(plan.bytes_needed, 'byte')} are written before anything is removed"
    if result.applied and not plan.is_root:
        yield "verified", _verified(result.left)
    if result.run is not None:
        yield "undo", shlex.join(["kdump", "recover", "--undo", "--run", result.run, "--", plan.path])
    if result.applied and result.next and not plan.is_root:
        yield "next", result.next


def lost_sentence(plan: Plan, *, applied: bool = False) -> str:
    """What a plan gives up."""
    lost = plan.lost
    if not lost.batches and not lost.records:
        gone = f" (the {counted(lost.bytes, 'byte')} that are removed hold none)" if lost.bytes else ""
        return f"no valid batch{gone}"
    words = [sums(lost), _committed(lost.committed, plan.high_watermark), *_where(lost)]
    if plan.options.strategy == TRUNCATE:
        words.append(
            "--undo, then --salvage, may keep some of it"
            if applied
            else f"--{SALVAGE} --dry-run shows what of it can be kept"
        )
    return "; ".join(words)


def _committed(committed: bool | None, high_watermark: int | None) -> str:
    if committed is None:
        return "whether it was committed is not known, since no high watermark is stored"
    if committed:
        return f"COMMITTED records are among them (below the high watermark {high_watermark})"
    return f"nothing of it was committed (the high watermark is {high_watermark})"


def sums(lost: Lost) -> str:
    """`3 batches, 3 records, 4719 bytes`."""
    records = "an unknown number of records" if lost.records is None else counted(lost.records, "record")
    return f"{counted(lost.batches, 'batch', 'batches')}, {records}, {counted(lost.bytes, 'byte')}"


def _where(lost: Lost) -> Iterator[str]:
    if lost.offsets:
        yield f"offsets {_some(f'{first}..{last}' for first, last in lost.offsets)}"
    if lost.max_timestamp != -1 or lost.first_timestamp != -1:
        yield f"from {iso_time(lost.first_timestamp)} to {iso_time(lost.max_timestamp)}"
    if lost.producers:
        yield f"of {'producer' if len(lost.producers) == 1 else 'producers'} {_some(map(str, lost.producers))}"
    if lost.transactions:
        each = (f"producer {producer_id} from offset {first}" for producer_id, first in lost.transactions)
        yield f"{counted(len(lost.transactions), 'transaction')} affected ({_some(each)})"


def _some(words: Iterable[str]) -> str:
    all_of_them = iter(words)
    words = ", ".join(islice(all_of_them, NAMED))
    more = sum(1 for _ in all_of_them)
    return f"{words} and {more} more" if more else words


def _afterwards(plan: Plan) -> str:
    words = f"offsets {plan.log_start_offset} to {plan.log_end_offset} in {counted(len(plan.segments), 'segment')}"
    if plan.recovery_point is not None:
        words += f"; the recovery point becomes {plan.recovery_point}"
    return words


def _verified(left: Iterable[Finding]) -> str:
    totals = finding_totals(counts_of(left))
    if not totals.by_code:
        return "clean"
    codes = ", ".join(f"{code} {count}" for code, count in totals.by_code.items())
    return f"{_severities(totals.by_severity)} ({codes})"


def _severities(counts: Mapping[str, int]) -> str:
    return ", ".join(counted(count, word) for word, count in counts.items() if count)


def not_covered_words(finding: Finding) -> str:
    """A finding that a plan leaves as it is, with what a broker does about it."""
    return finding_sentence(finding)


def run_words(done: RunResult) -> str:
    """`undone: run 20261122T001122Z-7 (truncate, 2026-11-22T00:11:22.000Z)`."""
    state = "failed" if done.error is not None else {"applied": "finished"}.get(done.run.state, "undone")
    about = ", ".join(filter(None, (done.run.strategy, iso_time(done.run.time_ms or None).strip("-"))))
    return f"{state}: run {done.run.run}" + (f" ({about})" if about else "")


def verdict(summary: RecoverySummary) -> str:
    """The summary of a recovery as one sentence, and the command that comes next."""
    words = counted(summary.partitions, "partition")
    if summary.failed:
        words += f", {summary.failed} failed"
    actions = ", ".join(f"{count} {action}" for action, count in summary.actions.items())
    lost = summary.lost
    gone = sums(lost) if lost.batches else "no valid batch"
    if not actions:
        others = " in the others" if summary.failed else ""
        words += f": nothing to do{others}" if summary.partitions > summary.failed else ""
    elif summary.applied:
        words += f": {actions}; lost {gone}"
    else:
        words += f": {actions}; {gone} would be lost; nothing was changed"
    for totals, name in ((summary.not_covered, "not covered"), (summary.left, "left after applying")):
        if counts := _severities(totals.by_severity):
            words += f"; {name}: {counts}"
    if summary.output is not None and summary.partitions > summary.failed:
        words += f"; the copy is in {summary.output}"
    if summary.next:
        words += f"; next: {summary.next}"
    return f"interrupted: {words}" if summary.interrupted else words
