"""What a running broker says of its partitions, asked by BrokerNumbers.java."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

PROGRAM = Path(__file__).with_name("BrokerNumbers.java")


class Producer(NamedTuple):
    """A producer, as DescribeProducers has it; `start` is -1 without an open transaction.

    `sequence` is -1 where the newest batch is a marker that begins the next epoch (KIP-890).
    """

    epoch: int
    sequence: int
    timestamp: int
    start: int


@dataclass
class Answer:
    """What the broker says of a partition."""

    numbers: dict[str, int] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)

    @property
    def starts(self) -> list[int]:
        """The first offsets of the open transactions."""
        return [one.start for one in self.producers.values() if one.start >= 0]

    def __getitem__(self, name: str) -> int:
        return self.numbers.get(name, 0)


def fill(kafka: ModuleType, bootstrap: str, *topics: str) -> None:
    """Write to topics, each as BrokerNumbers.java takes it."""
    kafka.run_source(kafka.NEWEST, PROGRAM, bootstrap, "fill", *topics)


def asked(kafka: ModuleType, bootstrap: str, *topics: str) -> tuple[dict[str, Answer], list[str]]:
    """What the broker says of each partition, and the states of its transactions."""
    out = kafka.run_source(kafka.NEWEST, PROGRAM, bootstrap, "ask", *topics).stdout.decode()
    found: dict[str, Answer] = {}
    states = []
    for line in out.splitlines():
        name, what, *numbers = line.split()
        if name == "transaction":
            states.append(what)
        elif what == "producer":
            number, *rest = map(int, numbers)
            found.setdefault(name, Answer()).producers[number] = Producer(*rest)
        else:
            found.setdefault(name, Answer()).numbers[what] = int(numbers[0])
    return found, states
