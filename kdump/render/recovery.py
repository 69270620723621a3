"""What all formats say of a recovery: the fields of its lines, and its sentences."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from kdump.recover.plan import ACTIONS, SALVAGE, TRUNCATE
from kdump.render.sentences import counted, iso_time, tally

if TYPE_CHECKING:
    from kdump.format.naming import TopicPartition
    from kdump.recover.plan import Action, Lost, Plan
    from kdump.recover.recover import RecoveryResult
    from kdump.recover.undo import RunResult
    from kdump.verify.findings import Finding, Severity

NAMED = 5
"""So many ranges, producers and transactions stand in a sentence; the others are counted."""

_MIND = {
    (
        "delete",
        "metadata/format",
    ): "without partition.metadata a broker in KRaft mode renames the directory to NAME-stray and begins an empty partition: write the file anew, "
    "as in another partition of the topic, before it starts",
}
"""What an action brings about that does not show in the log."""

# ---- fields


def action_fields(action: Action, place: TopicPartition | None) -> dict[str, Any]:
    """An action by the names of the contract."""
    return {
        "action": action.action,
        **_place(place),
        "from": action.start,
        "to": action.stop,
        "target": action.target,
        "because": action.because,
        "bytes": action.bytes,
        "batches": action.batches,
        "records": action.records,
        "first_offset": action.first_offset,
        "last_offset": action.last_offset,
    }


def partition_fields(result: RecoveryResult) -> dict[str, Any]:
    """A partition by the names of the contract: its plan, and from `applied` on what became of it."""
    plan = result.plan
    return {
        **_place(plan.topic_partition),
        "strategy": plan.options.strategy,
        "empty": plan.empty,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "recovery_point": plan.recovery_point,
        "refusals": [{"exception": exception, "name": name} for exception, name in plan.refusals],
        "segments": [{"base_offset": log.base_offset, "size": log.size} for log in plan.segments],
        "bytes_needed": plan.bytes_needed,
        "lost": plan.lost,
        # an object for each, since a name that is no UTF-8 can be no key
        "files": [{"name": name, **stamp._asdict()} for name, stamp in sorted(plan.files.items())],
        "undecided": plan.undecided,
        "clashes": plan.clashes,
        "alone": plan.alone,
        **{name: value(result) for name, value in _BECAME.items()},
    }


_BECAME: dict[str, Callable[[RecoveryResult], object]] = {
    "applied": lambda result: result.applied,
    "undo": lambda result: result.run,
    "left": lambda result: tally(counts_of(result.left)) if result.applied else None,
    "next": lambda result: result.next or None,
    "error": lambda result: None if result.error is None else str(result.error),
}
BECAME = frozenset(_BECAME)
"""The fields of a partition that are not of its plan."""


def _place(place: TopicPartition | None) -> dict[str, Any]:
    return {"topic": None if place is None else place.topic, "partition": None if place is None else place.partition}


def counts_of(findings: Iterable[Finding]) -> Counter[tuple[str, Severity]]:
    """How many findings there are of each code and severity."""
    return Counter((finding.code, finding.severity) for finding in findings)


def run_fields(done: RunResult) -> dict[str, Any]:
    """A run that was to be taken back or finished, by the names of the contract."""
    return {
        "run": done.run.run,
        "strategy": done.run.strategy or None,
        "began_ms": done.run.time_ms,
        "state": done.run.state,
        "error": None if done.error is None else str(done.error),
    }


# ---- sentences


def action_words(action: Action) -> str:
    """`truncate 1573-3146 batch/crc: cut off what lies behind (1573 bytes, 1 batch, 1 record, offsets 29..29)`."""
    words = [action.action, span(action), action.because or ""]
    target = "" if action.target in (None, action.path) else f": {action.target}"
    amount = f" ({held(action)})" if held(action) else ""
    return f"{' '.join(filter(None, words))}: {ACTIONS[action.action]}{target}{amount}"


def span(action: Action) -> str:
    """The positions of an action, `from-to`; nothing where it is about a file as a whole."""
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
    """What is to be said of a partition behind its actions, as (label, sentence); nothing where nothing is to be done."""
    plan = result.plan
    if result.error is not None:
        yield "failed", str(result.error)
    for exception, name in dict.fromkeys(plan.refusals):
        before = "would not have started on what was there" if result.applied else "does not start on this as it is"
        yield "refused", f"a broker {before}: {exception} ({name})"
    if not plan.empty:
        if not plan.is_root:
            yield "lost", lost_sentence(plan, applied=result.applied)
        yield from (("clash", sentence) for sentence in plan.clashes)
        yield from (("undecided", sentence) for sentence in plan.undecided)
        acts = {(action.action, action.because) for action in plan.actions}
        yield from (("mind", sentence) for act, sentence in _MIND.items() if act in acts)
        if plan.alone and not result.applied:
            yield "mind", "later segments lie beside this one, so that it can only become a copy: --output DIR"
        if not plan.is_root:
            yield "afterwards", _afterwards(plan)
        if not result.applied and plan.bytes_needed:
            yield "space", f"{counted(plan.bytes_needed, 'byte')} are written before anything goes away"
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
        gone = f" (the {counted(lost.bytes, 'byte')} that go hold none)" if lost.bytes else ""
        return f"no valid batch{gone}"
    told = [sums(lost), _committed(lost.committed, plan.high_watermark), *_where(lost)]
    if plan.options.strategy == TRUNCATE:
        told.append(
            "--undo, then --salvage, may keep some of it"
            if applied
            else f"--{SALVAGE} --dry-run shows what of it can be kept"
        )
    return "; ".join(told)


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
        yield f"{counted(len(lost.transactions), 'transaction')} hit ({_some(each)})"


def _some(words: Iterable[str]) -> str:
    all_of_them = iter(words)
    told = ", ".join(islice(all_of_them, NAMED))
    more = sum(1 for _ in all_of_them)
    return f"{told} and {more} more" if more else told


def _afterwards(plan: Plan) -> str:
    told = f"offsets {plan.log_start_offset} to {plan.log_end_offset} in {counted(len(plan.segments), 'segment')}"
    if plan.recovery_point is not None:
        told += f"; the recovery point becomes {plan.recovery_point}"
    return told


def _verified(left: Iterable[Finding]) -> str:
    counts = tally(counts_of(left))
    if not counts["by_code"]:
        return "clean"
    return f"{_severities(counts['by_severity'])} ({', '.join(f'{code} {count}' for code, count in counts['by_code'].items())})"


def _severities(counts: Mapping[str, int]) -> str:
    return ", ".join(counted(count, word) for word, count in counts.items() if count)


def not_covered_words(finding: Finding) -> str:
    """A finding that a plan leaves as it is, with what a broker does about it."""
    broker = {
        "truncates": "; a broker's next start cuts here",
        "deletes": "; a broker's next start deletes it",
        "rebuilds": "; a broker's next start rebuilds it",
        "refuses": "; a broker does not start with it",
        "ignores": "; a broker's next start does nothing about it",
    }
    return f"{finding.message}{broker.get(finding.broker or '', '')}"


def run_words(done: RunResult) -> str:
    """`undone: run 20261122T001122Z-7 (truncate, 2026-11-22T00:11:22.000Z)`."""
    state = "failed" if done.error is not None else {"applied": "finished"}.get(done.run.state, "undone")
    about = ", ".join(filter(None, (done.run.strategy, iso_time(done.run.time_ms or None).strip("-"))))
    return f"{state}: run {done.run.run}" + (f" ({about})" if about else "")


def verdict(fields: Mapping[str, Any]) -> str:
    """The summary of a recovery as one sentence, and the command that comes next."""
    told = counted(fields["partitions"], "partition")
    if fields["failed"]:
        told += f", {fields['failed']} failed"
    actions = ", ".join(f"{count} {action}" for action, count in fields["actions"].items())
    lost = fields["lost"]
    gone = sums(lost) if lost.batches else "no valid batch"
    if not actions:
        others = " in the others" if fields["failed"] else ""
        told += f": nothing to do{others}" if fields["partitions"] > fields["failed"] else ""
    elif fields["applied"]:
        told += f": {actions}; lost {gone}"
    else:
        told += f": {actions}; {gone} would be lost; nothing was changed"
    for what, name in (("not_covered", "not covered"), ("left", "left after applying")):
        if counts := _severities(fields[what]["by_severity"]):
            told += f"; {name}: {counts}"
    if fields["output"] is not None and fields["partitions"] > fields["failed"]:
        told += f"; the copy is in {fields['output']}"
    if fields["next"]:
        told += f"; next: {fields['next']}"
    return f"interrupted: {told}" if fields["interrupted"] else told
