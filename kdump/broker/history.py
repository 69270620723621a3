"""What several copies of a topic-partition have in common: their leader epochs, and where a follower is truncated.

A copy knows the leader epochs of its log from its valid batches and from leader-epoch-checkpoint. Of two copies one can
have records that the other never had: each was leader without the other. Then a broker that follows truncates its log
to the end of the last epoch that both know (KIP-101, KIP-279; LeaderEpochFileCache.endOffsetFor,
AbstractFetcherThread.getOffsetTruncationState). No checksum covers the leader epoch of a batch, and none covers the
checkpoint: where they contradict each other, most batches decide.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from typing import Final

from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.format.checkpoint import EpochEntry
from kdump.log.log_batches import LogBatches
from kdump.named_tuple import NamedTuple

UNDEFINED: Final = -1
"""No leader epoch, or no offset (OffsetsForLeaderEpochResponse.UNDEFINED_EPOCH)."""
_AGREES: Final = 1 << 40


class EpochRun(NamedTuple):
    """Consecutive batches of a copy that have one leader epoch: their offsets, and how many they are."""

    epoch: int
    first: int
    last: int
    batches: int


class History(NamedTuple):
    """The leader epochs of a copy, each with its start offset, both rising, and the offset after its last valid batch.

    `is_written`: the copy has a leader-epoch-checkpoint that its batches do not contradict.
    """

    epochs: tuple[EpochEntry, ...]
    end_offset: int
    is_written: bool = False

    @property
    def last_epoch(self) -> int:
        """The last leader epoch, UNDEFINED without one."""
        return self.epochs[-1].epoch if self.epochs else UNDEFINED

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of an offset, UNDEFINED before the first one that is known."""
        at = bisect_right(self.epochs, offset, key=lambda entry: entry.start_offset)
        return self.epochs[at - 1].epoch if at else UNDEFINED

    def end_offset_for(self, epoch: int) -> EpochEntry:
        """The last epoch up to this one that is known, and the offset after it (LeaderEpochFileCache.endOffsetFor).

        Both UNDEFINED for an epoch above the last one.
        """
        if epoch == UNDEFINED:
            return EpochEntry(UNDEFINED, UNDEFINED)
        if epoch == self.last_epoch:
            return EpochEntry(epoch, self.end_offset)
        at = bisect_right(self.epochs, epoch, key=lambda entry: entry.epoch)
        if at == len(self.epochs):
            return EpochEntry(UNDEFINED, UNDEFINED)
        return EpochEntry(self.epochs[at - 1].epoch if at else epoch, self.epochs[at].start_offset)

    def before(self, offset: int) -> "History":
        """The history after a truncation to this offset."""
        epochs = tuple(entry for entry in self.epochs if entry.start_offset < offset)
        return History(epochs, min(self.end_offset, offset), self.is_written)


def epoch_runs(found: LogBatches, excluded: Set[int] = frozenset()) -> list[EpochRun]:
    """The leader epochs of the batches, without those of these numbers."""
    runs: list[EpochRun] = []
    start = 0
    for epoch, stop in _epoch_ends(found.epoch):
        if excluded:
            inside = [number for number in range(start, stop) if number not in excluded]
            if inside:
                runs.append(EpochRun(epoch, found.first[inside[0]], found.last[inside[-1]], len(inside)))
        else:
            runs.append(EpochRun(epoch, found.first[start], found.last[stop - 1], stop - start))
        start = stop
    return runs


def _epoch_ends(epochs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The leader epoch of consecutive batches, and the number after the last of them."""
    if len(epochs) and epochs.count(epochs[0]) == len(epochs):
        yield epochs[0], len(epochs)
        return
    stop = 0
    for epoch, group in itertools.groupby(epochs):
        stop += sum(1 for _ in group)
        yield epoch, stop


def history_of(runs: Sequence[EpochRun], checkpoint: Sequence[EpochEntry] | None, end_offset: int) -> History:
    """The history that the valid batches of a copy show, in the order of their offsets, with its checkpoint.

    `checkpoint` is None where there is none. A single batch whose epoch the checkpoint does not have shows no epoch.
    """
    known = [run for run in runs if run.epoch >= 0]
    written = _trusted(checkpoint, known)
    if written is not None:
        said = History(tuple(written), end_offset)
        known = [run for run in known if run.batches > 1 or said.epoch_at(run.first) in (run.epoch, UNDEFINED)]
    starts = {entry.epoch: entry.start_offset for entry in written or ()}
    for run in _rising(known, History(tuple(written or ()), end_offset)):
        starts[run.epoch] = min(run.first, starts.get(run.epoch, run.first))
    return History(_entries(starts), end_offset, written is not None)


def _trusted(checkpoint: Sequence[EpochEntry] | None, runs: Sequence[EpochRun]) -> list[EpochEntry] | None:
    """The lines of a checkpoint, None where most batches contradict it or a broker would refuse it."""
    if checkpoint is None:
        return None
    lines = list(checkpoint)
    if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in itertools.pairwise(lines)):
        return None
    if lines and (lines[0].epoch < 0 or lines[0].start_offset < 0):
        return None
    said, agree, contradict = History(tuple(lines), 0), 0, 0
    for run in runs:
        epochs = {said.epoch_at(run.first), said.epoch_at(run.last)} - {UNDEFINED}
        if epochs == {run.epoch}:
            agree += run.batches
        elif epochs:
            contradict += run.batches
    return lines if agree >= contradict else None


def _rising(runs: Sequence[EpochRun], said: History) -> list[EpochRun]:
    """The runs with the most batches whose epochs never go back; those that the checkpoint confirms come first."""
    if all(a.epoch <= b.epoch for a, b in itertools.pairwise(runs)):
        return list(runs)
    ranks = {epoch: rank for rank, epoch in enumerate(sorted({run.epoch for run in runs}), 1)}
    tree: list[tuple[int, int]] = [(0, -1)] * (len(ranks) + 1)
    before: list[int] = []
    for number, run in enumerate(runs):
        rank, best = ranks[run.epoch], (0, -1)
        at = rank
        while at:
            best = max(best, tree[at])
            at -= at & -at
        before.append(best[1])
        weight = best[0] + run.batches + (_AGREES if said.epoch_at(run.first) == run.epoch else 0)
        at = rank
        while at < len(tree):
            tree[at] = max(tree[at], (weight, number))
            at += at & -at
    number, chain = max(tree)[1], list[EpochRun]()
    while number >= 0:
        chain.append(runs[number])
        number = before[number]
    return chain[::-1]


def _entries(starts: dict[int, int]) -> tuple[EpochEntry, ...]:
    cache = LeaderEpochFileCache()
    for epoch, start in sorted(starts.items()):
        cache.assign(epoch, start)
    return tuple(EpochEntry(*entry) for entry in cache.entries)


def truncation_offset(follower: History, leader: History) -> int:
    """The offset to which a follower of this leader truncates its log; its end offset where it keeps all.

    Follows AbstractFetcherThread.getOffsetTruncationState, request by request. A follower without epochs, or a leader
    that does not know the last one, goes by the high watermark, which says nothing about the records: it keeps all.
    """
    while True:
        asked = leader.end_offset_for(follower.last_epoch)
        if asked.epoch == UNDEFINED:
            return follower.end_offset
        own = follower.end_offset_for(asked.epoch)
        if own.epoch == UNDEFINED:
            return min(asked.start_offset, follower.end_offset)
        end = min(own.start_offset, follower.end_offset)
        if own.epoch == asked.epoch:
            return min(end, asked.start_offset)
        follower = follower.before(end)


class CommonHistory(NamedTuple):
    """One history of several copies: the number of the reference copy, the common epochs, and where each copy is cut.

    `order` are the numbers of the copies from the reference on: by last leader epoch, end offset, and number. `cuts`
    has the offset for each copy, by number.
    """

    order: tuple[int, ...]
    history: History
    cuts: tuple[int, ...]

    @property
    def reference(self) -> int:
        """The number of the copy that the others follow."""
        return self.order[0]


def common_history(histories: Sequence[History]) -> CommonHistory:
    """The history of the copy with the highest leader epoch, then end offset, with what the others know of it.

    Bytes that are damaged can be the first ones of an epoch. So the start of an epoch is the lowest one that a copy
    knows which is cut nowhere before it.
    """
    order = sorted(
        range(len(histories)), key=lambda number: (-histories[number].last_epoch, -histories[number].end_offset, number)
    )
    common = histories[order[0]]
    cuts: list[int] = []
    for _ in range(len(histories) + 2):
        cuts = [truncation_offset(each, common) for each in histories]
        cuts[order[0]] = histories[order[0]].end_offset
        starts = {entry.epoch: entry.start_offset for entry in common.epochs}
        for number in order[1:]:
            for entry in histories[number].before(cuts[number]).epochs:
                starts[entry.epoch] = min(entry.start_offset, starts.get(entry.epoch, entry.start_offset))
        wider = common._replace(epochs=_entries(starts))
        if wider == common:
            break
        common = wider
    return CommonHistory(tuple(order), common, tuple(cuts))


def replaced_from(before: Sequence[EpochEntry], after: Sequence[EpochEntry], offset: int) -> int | None:
    """The first offset below `offset` from which on two states of one leader-epoch-checkpoint differ; None without one.

    From there on the log was truncated, and other records have these offsets. Retention takes entries off at the
    beginning, so what comes before the first entry of either is not compared.
    """
    if not before or not after or before == after:
        return None
    lowest = max(before[0].start_offset, after[0].start_offset)
    borders = sorted({each.start_offset for each in (*before, *after) if each.start_offset > lowest} | {lowest})
    for border in borders:
        if border < offset and _last_epoch(before, border) != _last_epoch(after, border):
            return border
    return None


def _last_epoch(entries: Sequence[EpochEntry], offset: int) -> int:
    return max((each.epoch for each in entries if each.start_offset <= offset), default=UNDEFINED)
