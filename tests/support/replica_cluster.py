"""A plain cluster of brokers with one partition: leaders append, followers truncate and fetch, as Kafka's do.

A follower truncates to the end of what it has in common with its leader, which it knows here by looking at the records.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support import build
from support.directories import metadata


class Entry(NamedTuple):
    """A batch of the log: its leader epoch, offsets and bytes."""

    epoch: int
    first: int
    last: int
    body: bytes


class Cluster:
    """The log of each broker, and the leader epochs that it wrote to its checkpoint."""

    def __init__(self, rng: random.Random, brokers: int = 3) -> None:
        self._rng, self._number = rng, 0
        self.logs: list[list[Entry]] = [[] for _ in range(brokers)]
        self.epochs: list[list[tuple[int, int]]] = [[] for _ in range(brokers)]
        self.epoch, self.leader = 0, 0

    def end(self, broker: int) -> int:
        """The log end offset of a broker."""
        return self.logs[broker][-1].last + 1 if self.logs[broker] else 0

    def elect(self, broker: int) -> None:
        """Make a broker the leader, whether or not it has all records."""
        self.epoch += 1
        self.leader = broker
        self._assign(broker, self.epoch, self.end(broker))

    def append(self) -> None:
        """The leader appends a batch."""
        first, count = self.end(self.leader), self._rng.randrange(1, 4)
        self._number += 1
        items = [
            build.record(b"k%d" % number, b"v%d" % self._number, timestamp=self._number) for number in range(count)
        ]
        body = build.batch(items, base_offset=first, epoch=self.epoch)
        self.logs[self.leader].append(Entry(self.epoch, first, first + count - 1, body))

    def fetch(self, broker: int, most: int) -> None:
        """A broker truncates to what it has in common with the leader, and fetches at most so many batches."""
        own, theirs = self.logs[broker], self.logs[self.leader]
        same = 0
        while same < min(len(own), len(theirs)) and own[same] == theirs[same]:
            same += 1
        del own[same:]
        end = self.end(broker)
        self.epochs[broker] = [each for each in self.epochs[broker] if each[1] < end]
        for entry in theirs[same : same + most]:
            self._assign(broker, entry.epoch, entry.first)
            own.append(entry)

    def _assign(self, broker: int, epoch: int, start: int) -> None:
        entries = self.epochs[broker]
        if entries and entries[-1][0] == epoch:
            return
        while entries and entries[-1][1] >= start:
            entries.pop()
        entries.append((epoch, start))

    def run(self, steps: int) -> None:
        """Random elections, appends and fetches."""
        self.elect(0)
        for _ in range(steps):
            what = self._rng.random()
            if what < 0.12:
                self.elect(self._rng.randrange(len(self.logs)))
            elif what < 0.6:
                self.append()
            else:
                broker = self._rng.randrange(len(self.logs))
                if broker != self.leader:
                    self.fetch(broker, self._rng.randrange(1, 6))


def written(directory: Path, log: Sequence[Entry], epochs: Sequence[tuple[int, int]], roll: int = 6) -> Path:
    """The log as the directory of a partition, with leader-epoch-checkpoint and partition.metadata."""
    directory.mkdir(parents=True)
    for number in range(0, max(len(log), 1), roll):
        part = log[number : number + roll]
        base = part[0].first if part else 0
        (directory / f"{base:020d}.log").write_bytes(b"".join(each.body for each in part))
    lines = [f"{epoch} {start}" for epoch, start in epochs]
    (directory / "leader-epoch-checkpoint").write_bytes(build.checkpoint(*lines))
    (directory / "partition.metadata").write_bytes(metadata())
    return directory
