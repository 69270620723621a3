"""Which copy of a topic-partition is not as the others should be, and why: the evidence, and what to do.

Two logs alone do not say which of them is wrong: a lost tombstone in one looks like a lost value in the other. What can
say it comes in an order: the metadata of the cluster, the rules of a single log, what most of the copies have.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kdump.broker.metadata_image.replica_history import Absence, PartitionHistory
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.replicas.comparison import ReplicaComparison, Verdict

METADATA: Final = "metadata"
"""The replica was away for longer than tombstones and markers are kept, and what differs is older than its return."""
RULES: Final = "rules"
"""A transaction of the copy has two producer epochs, or is aborted and begins earlier than in another copy: the copy
lost a marker.
"""
MAJORITY: Final = "majority"
"""The copy agrees with none of the others, and all others agree."""

DESCRIBE: Final = "describe"
"""See which broker leads, and which are in sync."""
LEADERSHIP: Final = "leadership"
"""If the stale copy leads, make another one the leader first."""
DELETE: Final = "delete"
"""Stop the broker of the stale copy, delete this directory alone, start it, and wait until it is in sync."""
ABORT: Final = "abort"
"""End a transaction that is open in the copy alone, while that copy leads."""
WRONG: Final = "wrong"
"""What would spread the wrong data."""
FILL: Final = "fill"
"""Stop the broker of a copy that is damaged or lacks records, and give it the batches of copies that have them."""
UNKNOWN: Final = "unknown"
"""Nothing says which copy is right: delete none."""
_MOST_ABORTS: Final = 3
_SERVER: Final = "--bootstrap-server HOST:PORT"


class Evidence(NamedTuple):
    """Why a copy is stale: a word of this module. `other` is the copy that shows it, None for several.

    With METADATA the replica on `broker` was not in the ISR from `left_ms` to `back_ms`; `delete_retention_ms` and
    `producer_id_expiration_ms` are the settings that say what it can have missed.
    """

    reason: str
    stale: str
    other: str | None = None
    broker: int | None = None
    left_ms: int | None = None
    back_ms: int | None = None
    delete_retention_ms: int | None = None
    producer_id_expiration_ms: int | None = None


class RepairStep(NamedTuple):
    """One step to make the copies agree: a word of this module, the copy that it is about, and what to run."""

    step: str
    path: str | None = None
    command: str | None = None


def evidence_of(
    copies: Sequence[str],
    pairs: Sequence[ReplicaComparison],
    history: PartitionHistory | None = None,
    brokers: Mapping[str, int | None] | None = None,
) -> Iterator[Evidence]:
    """What says that a copy is stale, the strongest first. `brokers`: the broker of each copy, where it is known."""
    if history is not None:
        yield from _by_metadata(pairs, history, brokers or {})
    for pair in pairs:
        found = pair.differs
        left = found.earlier_left.count + found.lost_markers_left.count
        right = found.earlier_right.count + found.lost_markers_right.count
        if pair.verdict is not Verdict.DIVERGED:
            continue
        if left and not right:
            yield Evidence(RULES, pair.left, pair.right)
        elif right and not left:
            yield Evidence(RULES, pair.right, pair.left)
    for path in copies if len(copies) > 2 else ():
        own = [pair.verdict for pair in pairs if path in (pair.left, pair.right)]
        others = [pair.verdict for pair in pairs if path not in (pair.left, pair.right)]
        if set(own) == {Verdict.DIVERGED} and set(others) == {Verdict.AGREE}:
            yield Evidence(MAJORITY, path)


def _by_metadata(
    pairs: Sequence[ReplicaComparison], history: PartitionHistory, brokers: Mapping[str, int | None]
) -> Iterator[Evidence]:
    """In each pair that diverged one replica alone was away for long enough, before which all was written."""
    named = dict[str, Evidence]()
    for pair in pairs:
        if pair.verdict is not Verdict.DIVERGED:
            continue
        away = {path: _longest(pair, history, brokers.get(path)) for path in (pair.left, pair.right)}
        long = [(path, found) for path, found in away.items() if found is not None]
        if len(long) != 1 or not _can_miss_markers(pair):
            return
        (path, absence), *_ = long
        settings = history.delete_retention_ms, history.producer_id_expiration_ms
        named[path] = Evidence(METADATA, path, None, brokers.get(path), absence.left_ms, absence.back_ms, *settings)
    yield from named.values()


def _can_miss_markers(pair: ReplicaComparison) -> bool:
    """Whether all that differs can come from tombstones and markers that one copy missed."""
    found = pair.differs
    others = (found.records, found.epochs, found.missing_left, found.missing_right)
    return not found.is_committed and not any(each.count for each in others)


def _longest(pair: ReplicaComparison, history: PartitionHistory, broker: int | None) -> Absence | None:
    """The longest absence of a broker that explains what differs."""
    latest = pair.differs.latest_ms
    found = [
        each
        for each in (history.absences.get(broker, ()) if broker is not None else ())
        if each.known_ms is not None
        and each.known_ms >= history.delete_retention_ms
        and each.back_ms is not None
        and (latest is None or latest <= each.back_ms)
    ]
    return max(found, key=lambda each: each.known_ms or 0, default=None)


def stale_copy(evidence: Sequence[Evidence]) -> str | None:
    """The copy that the strongest evidence names; None where it names none, or several."""
    strongest = {each.stale for each in evidence if each.reason == evidence[0].reason}
    return strongest.pop() if len(strongest) == 1 else None


def repair_steps(
    name: TopicPartition,
    pairs: Sequence[ReplicaComparison],
    stale: str | None,
    directories: Mapping[str, str] = MappingProxyType({}),
    fills: Sequence[RepairStep] = (),
) -> Iterator[RepairStep]:
    """What to do about copies that diverged or are damaged, in the order in which to do it.

    `directories`: those of copies on their brokers, where that is not their path. `fills`: the steps that give a copy
    the batches of others.
    """
    fills = [each for each in fills if each.path != stale]  # it is deleted, and fetched again
    if not any(pair.verdict is Verdict.DIVERGED for pair in pairs):
        yield from fills
        return
    topic = shlex.quote(name.topic)
    yield RepairStep(DESCRIBE, None, f"kafka-topics.sh {_SERVER} --describe --topic {topic}")
    yield from fills
    if stale is None:
        yield RepairStep(UNKNOWN)
    else:
        election = f"--election-type preferred --topic {topic} --partition {name.partition}"
        yield RepairStep(LEADERSHIP, stale, f"kafka-leader-election.sh {_SERVER} {election}")
        yield RepairStep(DELETE, stale, f"rm -r {shlex.quote(directories.get(stale, stale))}")
        yield RepairStep(WRONG, stale)
    opened = {
        (path, offset)
        for pair in pairs
        for path, offsets in ((pair.left, pair.differs.open_left), (pair.right, pair.differs.open_right))
        for offset in offsets
        if stale is None
    }
    for path, offset in sorted(opened)[:_MOST_ABORTS]:
        place = f"--topic {topic} --partition {name.partition} --start-offset {offset}"
        yield RepairStep(ABORT, path, f"kafka-transactions.sh {_SERVER} abort {place}")


def fill_sources(
    path: str, damaged: Collection[str], pairs: Sequence[ReplicaComparison], stale: str | None
) -> list[str]:
    """The copies that may give a copy batches: none where it is neither damaged nor lacks records.

    They have the records of that copy, and no other ones, at the offsets of both.
    """
    of = [(pair, pair.right if pair.left == path else pair.left) for pair in pairs if path in (pair.left, pair.right)]
    missing = [pair.differs.missing_left if pair.left == path else pair.differs.missing_right for pair, _ in of]
    if path not in damaged and not any(each.count for each in missing):
        return []
    return [other for pair, other in of if other != stale and _is_one_history(pair)]


def _is_one_history(pair: ReplicaComparison) -> bool:
    found = pair.differs
    return found.fork is None and not any(each.count for each in (found.records, found.epochs, found.outcomes))


def fill_step(path: str, sources: Sequence[str]) -> RepairStep:
    """The step that gives a copy the batches of others."""
    given = (word for source in sources for word in ("--fill-from", source))
    return RepairStep(FILL, path, " ".join(map(shlex.quote, ("kdump", "recover", *given, "--", path))))
