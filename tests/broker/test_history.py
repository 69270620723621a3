"""Where a follower is truncated, against what brokers of a plain cluster have in common."""

from __future__ import annotations

import random

import pytest

from kdump.broker.history import EpochRun, History, common_history, history_of, truncation_offset
from kdump.format.checkpoint import EpochEntry
from support.laws import examples
from support.replica_cluster import Cluster, Entry


def history(*epochs: tuple[int, int], end: int) -> History:
    return History(tuple(EpochEntry(*each) for each in epochs), end)


def runs(log: list[Entry]) -> list[EpochRun]:
    found: list[EpochRun] = []
    for entry in log:
        if found and found[-1].epoch == entry.epoch:
            found[-1] = found[-1]._replace(last=entry.last, batches=found[-1].batches + 1)
        else:
            found.append(EpochRun(entry.epoch, entry.first, entry.last, 1))
    return found


LEADER = history((1, 0), (3, 10), (6, 30), end=50)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 30)), (5, (3, 30)), (6, (6, 50)), (7, (-1, -1))],
)
def test_end_offset_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    """As LeaderEpochFileCache.endOffsetFor."""
    assert LEADER.end_offset_for(epoch) == expected


@pytest.mark.parametrize(
    ("follower", "expected"),
    [
        (history((1, 0), (3, 10), (6, 30), end=40), 40),  # it lags
        (history((1, 0), (3, 10), end=20), 20),
        (history((1, 0), (3, 10), end=35), 30),  # more records of epoch 3 than the leader (KIP-101)
        (history((1, 0), (2, 5), end=20), 5),  # the leader does not know epoch 2
        (history((1, 0), (3, 10), (4, 20), (5, 25), end=40), 20),  # two fast leader changes (KIP-279)
        (history((1, 0), (2, 4), (4, 8), (5, 12), end=20), 4),  # asked for twice
        (history((4, 8), end=20), 8),  # its first epoch is above that of the answer
        (history(end=33), 33),  # no epochs: nothing shows where it differs
    ],
)
def test_truncation(follower: History, expected: int) -> None:
    assert truncation_offset(follower, LEADER) == expected


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(40)))
def test_followers_of_a_cluster(number: int) -> None:
    """A follower keeps what it has in common with the leader, and no more."""
    cluster = Cluster(random.Random(number))
    cluster.run(60)
    histories = [
        history_of(runs(log), [EpochEntry(*each) for each in epochs], cluster.end(broker))
        for broker, (log, epochs) in enumerate(zip(cluster.logs, cluster.epochs, strict=True))
    ]
    leader = cluster.logs[cluster.leader]
    found = common_history(histories)
    assert histories[found.reference].last_epoch == cluster.epoch
    for broker, log in enumerate(cluster.logs):
        same = 0
        while same < min(len(log), len(leader)) and log[same] == leader[same]:
            same += 1
        expected = log[same - 1].last + 1 if same else 0
        assert truncation_offset(histories[broker], histories[cluster.leader]) == expected
        if found.reference == cluster.leader:
            assert found.cuts[broker] == expected


def test_histories_without_a_checkpoint() -> None:
    """The batches alone show the epochs; the earliest batch of an epoch that a copy has says where it begins."""
    damaged = history_of([EpochRun(0, 0, 9, 3), EpochRun(1, 20, 29, 3)], None, 30)
    whole = history_of([EpochRun(0, 0, 9, 3), EpochRun(1, 10, 25, 3)], None, 26)
    old = history_of([EpochRun(0, 0, 14, 3)], None, 15)
    assert common_history([damaged, whole, old]) == ((0, 1, 2), history((0, 0), (1, 10), end=30), (30, 26, 10))
    assert common_history([old, damaged]).cuts == (15, 30)


def test_a_single_batch_with_a_wrong_epoch() -> None:
    """No checksum covers the leader epoch: the checkpoint shows that it is wrong, or more batches do."""
    lines = [EpochEntry(0, 0), EpochEntry(2, 20)]
    right = ((0, 0), (2, 20))
    for wrong in (EpochRun(1 << 20, 30, 31, 1), EpochRun(1, 30, 31, 1)):
        assert history_of([EpochRun(0, 0, 19, 5), EpochRun(2, 20, 29, 5), wrong], lines, 32).epochs == right
    inside = [EpochRun(0, 0, 9, 5), EpochRun(7, 10, 10, 1), EpochRun(0, 11, 19, 5), EpochRun(2, 20, 29, 5)]
    assert history_of(inside, None, 30).epochs == right


@pytest.mark.parametrize(
    "lines",
    [[(3, 0), (2, 20)], [(0, 20), (2, 20)], [(-1, 0)], [(5, 0)]],
    ids=["back", "same start", "negative", "other"],
)
def test_a_checkpoint_that_is_wrong(lines: list[tuple[int, int]]) -> None:
    found = history_of([EpochRun(0, 0, 19, 5), EpochRun(2, 20, 29, 5)], [EpochEntry(*each) for each in lines], 30)
    assert found == history((0, 0), (2, 20), end=30)


def test_an_epoch_without_a_record() -> None:
    """A leader without a record of its epoch: its checkpoint has the line, and others lose what they have above it."""
    leader = history_of([EpochRun(0, 0, 79, 5)], [EpochEntry(0, 0), EpochEntry(1, 80)], 80)
    other = history_of([EpochRun(0, 0, 99, 5)], [EpochEntry(0, 0)], 100)
    assert common_history([other, leader]).order == (1, 0)
    assert common_history([other, leader]).cuts == (80, 80)
