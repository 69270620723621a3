"""What all formats say of a recovery: its sentences."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kdump.broker.defaults import LATER_RELEASE, RELEASE
from kdump.format.naming import INDEX_SUFFIXES
from kdump.recover.plan import ACTIONS, SALVAGE, TRUNCATE
from kdump.recover.plan_lines import counts_of, finding_totals
from kdump.render.sentences import WITH_COMPANIONS, counted, finding_sentence, iso_time, start_sentence
from kdump.verify.next_step import shell_command

if TYPE_CHECKING:
    from kdump.recover.plan import Action, GivenUp, Lost, Plan, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.verify.findings import Finding

NOTHING_GIVEN_UP = "no valid batch is given up"
NOTHING_DAMAGED = "no damaged offsets known"
NOTHING_COMMITTED = "nothing lost below the high watermark"
CLEAN_SHUTDOWN = (
    "the log directory has its clean-shutdown file: the next start reads nothing, and would serve the damage; the "
    "rest is about an unclean start (--drop-marker removes the file)"
)
RUNNING = (
    "another process, probably a broker, holds the lock of the log directory: its files may have changed while they"
    " were read. Stop it before anything is written"
)
MOST_DROPS = 20
"""So many drops of a partition are listed; the others are counted."""
_LOGS: Final = (".log", ".kafka")
_VERDICT: Final = frozenset(
    ("clean", "failed", "running", "refused", "given up", "damaged", "committed", TRUNCATE, SALVAGE, "verified", "undo")
)
"""The labels of what is said before the actions."""
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
    amount = f" ({amount_of(action)})" if amount_of(action) else ""
    return f"{' '.join(filter(None, words))}: {ACTIONS[action.action]}{target}{amount}"


def span(action: Action) -> str:
    """The positions of an action, `from-to`; nothing where it is about a whole file."""
    if action.start is None and action.stop is None:
        return ""
    return f"{action.start or 0}-{'' if action.stop is None else action.stop}"


def amount_of(action: Action) -> str:
    """The bytes of an action, and the batches, records and offsets in them."""
    return ", ".join(_amounts(action.bytes, action.batches, action.records, action.first_offset, action.last_offset))


def _amounts(size: int, batches: int | None, records: int | None, first: int | None, last: int | None) -> Iterator[str]:
    if size:
        yield counted(size, "byte")
    if batches is not None:
        yield counted(batches, "batch", "batches")
    if batches and records is not None:
        yield counted(records, "record")
    if first is not None and last is not None:
        yield f"offsets {first}..{last}, next {last + 1}"


def sentences(result: RecoveryResult) -> Iterator[tuple[str, str]]:
    """What is said of a partition after its actions, as (label, sentence); nothing where nothing is to be done."""
    plan = result.plan
    if plan.clean_shutdown and not (plan.is_empty and plan.lost.is_empty):
        yield "clean", CLEAN_SHUTDOWN
    if result.error is not None:
        yield "failed", str(result.error)
    if plan.is_running and not plan.is_empty:
        yield "running", RUNNING
    start = "would not have started on the directory" if result.applied else "does not start on it as it is"
    for exception, name in dict.fromkeys(plan.refusals):
        yield "refused", f"{RELEASE} {start}: {exception} ({name})"
    for exception, name in dict.fromkeys(plan.later_refusals):
        rebuilt = "" if result.applied else "; --reindex also rebuilds the file"
        yield "refused", f"{LATER_RELEASE} {start}: {exception} ({name}){rebuilt}"
    if not plan.is_empty:
        if more := max(0, sum(action.action == "drop" for action in plan.actions) - MOST_DROPS):
            yield "more", f"and {more} more drop{'s' if more > 1 else ''} of bytes that are not listed"
        yield from _begin(plan)
        yield from _found(plan.covered)
    if not plan.is_root and not (plan.is_empty and plan.lost.is_empty):
        yield from _lost(result)
    yield from (("filled", sentence) for sentence in plan.filled)
    if not plan.is_empty:
        yield from (("contradicting batches", sentence) for sentence in plan.conflicts)
        yield from (("undecided", sentence) for sentence in plan.undecided)
        acts = {(action.action, action.because) for action in plan.actions}
        yield from (("before the start", sentence) for act, sentence in _CONSEQUENCES.items() if act in acts)
        if plan.alone and not result.applied:
            yield "copy only", "the directory has later segments, so this one can only become a copy: --output DIR"
        if not plan.is_root:
            yield "afterwards", _afterwards(plan)
        if not result.applied and plan.bytes_needed:
            yield "space", f"{counted(plan.bytes_needed, 'byte')} are written before anything is removed"
    if result.applied and not plan.is_root:
        yield "verified", _verified(result.left)
    if result.run is not None:
        yield "undo", shell_command(["kdump", "recover", "--undo", "--run", result.run, "--", plan.path])


_BECAUSE = {
    "checkpoint": "the recovery point of the log directory's checkpoint",
    "no-line": "the log directory's checkpoint of recovery points has no line for the partition",
    "no-checkpoint": "the log directory has no checkpoint of recovery points that can be read",
    "own": "the partition is not in a log directory",
    "from": "as asked for",
}


def _begin(plan: Plan) -> Iterator[tuple[str, str]]:
    """Where the start begins that the plan is about."""
    start, newest = plan.start, plan.newest
    if plan.options.strategy != TRUNCATE or start is None:
        return
    segment = "" if start.segment is None else f", in the segment with base offset {start.segment}"
    yield "start", f"an unclean start of {RELEASE} reads from offset {start.offset}{segment}: {_BECAUSE[start.because]}"
    if newest is not None:
        gone = NOTHING_GIVEN_UP if newest.given_up.batches == 0 else f"{sums(newest.given_up)} are given up"
        yield (
            "newest",
            (
                "a walk of only the active segment gives another plan: the log ends at offset "
                f"{newest.log_end_offset}, and {gone}; choose with --from all or --from newest"
            ),
        )


def _found(covered: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The damage that the plan removes."""
    for finding in covered[:NAMED]:
        name = finding.path.rpartition("/")[2]
        yield "found", f"{name}:{finding.position}: {finding.severity.word} {finding.code}: {finding.message}"
    if len(covered) > NAMED:
        yield "found", f"and {len(covered) - NAMED} more findings that the plan removes"


def split(said: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is said of a partition before its actions, whether a broker starts and what is lost, and what after them."""
    first: list[tuple[str, str]] = []
    then: list[tuple[str, str]] = []
    for item in said:
        (first if item[0] in _VERDICT else then).append(item)
    return first, then


def listed_actions(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions to list: files with one cause are one, and of those that drop bytes there are MOST_DROPS.

    `sentences` counts the other drops.
    """
    listed, drops = [], 0
    for action in _joined(actions):
        drops += action.action == "drop"
        if action.action != "drop" or drops <= MOST_DROPS:
            listed.append(action)
    return tuple(listed)


def _joined(actions: Sequence[Action]) -> Iterator[Action]:
    """The actions, with one for several segments that go, and one for several companions that are rebuilt."""
    gone = {_stem(one.path) for one in actions if one.action == "delete" and one.path.endswith(_LOGS)}
    groups: dict[tuple[str, str | None], list[Action]] = {}
    for action in actions:
        if (kind := _kind_of_group(action, gone)) is not None:
            groups.setdefault((kind, action.because), []).append(action)
    for action in actions:
        group = groups.get((_kind_of_group(action, gone) or "", action.because), [action])
        if len(group) < 2:
            yield action
        elif group[0] is action:
            yield _one_of(group)


def _kind_of_group(action: Action, gone: Collection[str]) -> str | None:
    """What an action can be joined with; None where it has a line of its own."""
    if action.action == "rebuild" and action.path.endswith(INDEX_SUFFIXES):
        return "rebuild"
    is_snapshot = action.path.endswith(".snapshot")
    if action.action == "delete" and len(gone) > 1 and (is_snapshot or _stem(action.path) in gone):
        return "delete"
    return None


def _one_of(group: Sequence[Action]) -> Action:
    """One action for all files of a group, whose path says how many they are."""
    stems = {_stem(one.path) for one in group if not one.path.endswith(".snapshot")}
    directory = os.path.dirname(group[0].path)
    logs = [one for one in group if one.path.endswith(_LOGS)]
    indexes = f"{len(group)} indexes of {counted(len(stems), 'segment')}"
    name = f"{counted(len(logs), 'segment')}{WITH_COMPANIONS}" if logs else indexes
    last = logs[-1].last_offset if logs else None
    return group[0]._replace(
        path=os.path.join(directory, name),
        start=None,
        stop=None,
        bytes=sum(one.bytes for one in group),
        batches=_sum(one.batches for one in logs),
        records=_sum(one.records for one in logs),
        last_offset=last,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known or not known else sum(count or 0 for count in known)


def _stem(path: str) -> str:
    return os.path.basename(path).partition(".")[0]


def _lost(result: RecoveryResult) -> Iterator[tuple[str, str]]:
    """The block about what is lost."""
    plan = result.plan
    yield "given up", given_up_sentence(plan, applied=result.applied, kept=result.run is not None)
    yield "damaged", damaged_sentence(plan.lost)
    committed = committed_sentence(plan, applied=result.applied)
    if committed is not None:
        yield "committed", committed
    if plan.salvage is not None and not (plan.is_empty and plan.salvage.empty):
        yield TRUNCATE, _comparison(plan.lost, plan.log_end_offset)
        yield SALVAGE, _comparison(plan.salvage.lost, plan.salvage.log_end_offset)


def _comparison(lost: Lost, end_offset: int | None) -> str:
    """What a strategy loses: records, committed offsets, the time span of what it gives up; and where the log ends."""
    gone = lost.given_up
    words = ["gives up nothing valid" if gone.batches == 0 else f"gives up {sums(gone)}"]
    if gone.max_timestamp != -1 or gone.first_timestamp != -1:
        words.append(f"from {iso_time(gone.first_timestamp)} to {iso_time(gone.max_timestamp)}")
    if lost.missing:
        words.append(f"committed {offset_words(lost.missing)}, are missing")
    elif lost.committed is False:
        words.append("no committed offset is missing")
    return "; ".join([*words, f"the log ends before offset {end_offset}"])


def given_up_sentence(plan: Plan, *, applied: bool = False, kept: bool = True) -> str:
    """The valid batches that a plan removes."""
    gone = plan.lost.given_up
    if gone.batches == 0:
        return NOTHING_GIVEN_UP
    words = [sums(gone), *_where(gone)]
    if plan.lost.committed is None:
        words.append("whether it was committed is not known, as no high watermark is stored")
    if plan.options.strategy == TRUNCATE and (kept or not applied) and plan.salvage is None:
        words.append(
            "--undo, then --salvage, may keep some of it"
            if applied
            else f"--{SALVAGE} --dry-run shows how much of it can be kept"
        )
    return "; ".join(words)


def damaged_sentence(lost: Lost) -> str:
    """The offsets whose bytes are damaged or missing."""
    damaged = lost.damaged
    size = f" in {counted(damaged.bytes, 'damaged byte')}" if damaged.bytes else ""
    if damaged.offsets is None:
        return "not known: the search for batches stopped early"
    if not damaged.offsets:
        return f"{NOTHING_DAMAGED}{size}"
    words = f"{offset_words(damaged.offsets)}{size}"
    if damaged.exact:
        return words
    if lost.compacted:
        return f"at most {words}; the log is compacted, so the log cleaner may already have removed some of them"
    return f"{words}; these are not proven, and more may be damaged or missing"


def committed_sentence(plan: Plan, *, applied: bool = False) -> str | None:
    """What is said of offsets below the high watermark, None where nothing is known of them."""
    lost, mark = plan.lost, plan.high_watermark
    if mark is None:
        return None
    if lost.committed is False and lost.is_complete:
        return f"{NOTHING_COMMITTED} {mark}"
    if not lost.missing:
        return None
    are = "are" if applied or not lost.given_up.batches else "would be"
    words = (
        f"COMMITTED {offset_words(lost.missing)}, {are} missing here (the high watermark is {mark}). Nothing on this "
        "disk can bring damaged bytes back. Other replicas of the partition may still have these offsets: move this "
        "directory aside, and the broker fetches all of the partition from the leader; or, with the disk of another "
        "replica at hand, --fill-from PATH copies what is missing. Do not start it as a "
        "follower with the hole: a follower fetches only from its log end offset on, so the hole stays; if it "
        "becomes the leader, "
    )
    if lost.missing[-1][1] + 1 >= mark and (plan.log_end_offset or 0) <= lost.missing[-1][0]:
        return (
            f"{words}the other replicas truncate these offsets too. A consumer at one of them gets "
            "OFFSET_OUT_OF_RANGE and continues where its auto.offset.reset says"
        )
    return f"{words}consumers get no error: they read on after the hole"


def is_reassuring(sentence: str) -> bool:
    """Whether a sentence of the block about what is lost says that nothing of its kind is known to be lost."""
    return sentence.startswith((NOTHING_GIVEN_UP, NOTHING_DAMAGED, NOTHING_COMMITTED))


def offset_words(ranges: Sequence[tuple[int, int | None]]) -> str:
    """`offsets 15..19, 25..29, next 30`; the last range may have no known end."""
    said = _some(f"{first}.." if last is None else f"{first}..{last}" for first, last in ranges)
    end = ranges[-1][1]
    return f"offsets {said}, end not known" if end is None else f"offsets {said}, next {end + 1}"


def sums(gone: GivenUp) -> str:
    """`3 batches, 3 records, 4719 bytes`."""
    if gone.batches is None:
        return "an unknown number of batches: the search for batches stopped early"
    records = "an unknown number of records" if gone.records is None else counted(gone.records, "record")
    return f"{counted(gone.batches, 'batch', 'batches')}, {records}, {counted(gone.bytes or 0, 'byte')}"


def _where(gone: GivenUp) -> Iterator[str]:
    if gone.offsets:
        yield offset_words(gone.offsets)
    if gone.max_timestamp != -1 or gone.first_timestamp != -1:
        yield f"from {iso_time(gone.first_timestamp)} to {iso_time(gone.max_timestamp)}"
    if gone.producers:
        yield f"of {'producer' if len(gone.producers) == 1 else 'producers'} {_some(map(str, gone.producers))}"
    if gone.transactions:
        each = (f"producer {producer_id} from offset {first}" for producer_id, first in gone.transactions)
        yield f"{counted(len(gone.transactions), 'transaction')} affected ({_some(each)})"


def _some(words: Iterable[str]) -> str:
    all_of_them = iter(words)
    words = ", ".join(islice(all_of_them, NAMED))
    more = sum(1 for _ in all_of_them)
    return f"{words} and {more} more" if more else words


def _afterwards(plan: Plan) -> str:
    start, end = plan.log_start_offset, plan.log_end_offset
    offsets = f"no offset, next {end}" if start is None or end is None or start >= end else _range_words(start, end)
    words = f"{offsets}, in {counted(len(plan.segments), 'segment')}"
    if plan.recovery_point is not None:
        words += f"; the recovery point becomes {plan.recovery_point}"
    return words


def _range_words(start: int, end: int) -> str:
    return offset_words([(start, end - 1)])


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
    back = f"; the repair of run {done.run.undoes} is back" if done.run.undoes and state == "undone" else ""
    return f"{state}: run {done.run.run}" + (f" ({about})" if about else "") + back


def _total_words(lost: Lost, *, applied: bool) -> str:
    """What all partitions lose, in a few words."""
    gone, damaged = lost.given_up, lost.damaged
    given_up = f"{sums(gone)} {'given up' if applied else 'would be given up'}"
    words = [NOTHING_GIVEN_UP if gone.batches == 0 else given_up]
    if damaged.offsets:
        words.append(f"damaged {offset_words(damaged.offsets)}")
    elif damaged.bytes or damaged.offsets is None:
        words.append("damaged bytes not searched" if damaged.bytes is None else _damaged_bytes(damaged.bytes))
    else:
        words.append(NOTHING_DAMAGED)
    if lost.committed:
        words.append(f"COMMITTED offsets {'are' if applied or not gone.batches else 'would be'} missing")
    return "; ".join(words)


def _damaged_bytes(count: int) -> str:
    return counted(count, "damaged byte") if count else "no damaged bytes"


def verdict_lines(summary: RecoverySummary) -> list[tuple[str, str]]:
    """What is said before the details: whether a broker starts, what is lost, what to do; nothing of healthy logs."""
    if not summary.has_verdict:
        return []
    lost = _total_words(summary.lost, applied=summary.applied)
    lines = [("broker", start_sentence(summary.verdict)), ("lost", lost)]
    return [*lines, *((("do", summary.next),) if summary.next else ())]


def verdict(summary: RecoverySummary) -> str:
    """The summary of a recovery as one sentence."""
    words = counted(summary.partitions, "partition")
    if summary.failed:
        words += f", {summary.failed} failed"
    actions = ", ".join(f"{count} {action}" for action, count in summary.actions.items())
    gone = _total_words(summary.lost, applied=summary.applied)
    if not actions:
        others = " in the others" if summary.failed else ""
        words += f": nothing to do{others}" if summary.partitions > summary.failed else ""
        words += f"; {_total_words(summary.lost, applied=True)}" if summary.lost.committed else ""
    elif summary.applied:
        words += f": {actions}; {gone}"
    else:
        words += f": {actions}; {gone}; nothing was changed"
    for totals, name in ((summary.not_covered, "not covered"), (summary.left, "left after applying")):
        if counts := _severities(totals.by_severity):
            words += f"; {name}: {counts}"
    if summary.is_running:
        words += "; a broker is probably running: files may have changed while they were read"
    if summary.output is not None and summary.partitions > summary.failed:
        words += f"; the copy is in {summary.output}"
    return f"interrupted: {words}" if summary.interrupted else words
