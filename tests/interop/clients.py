"""Producers and consumers of Kafka (Client.java), and what its broker makes of topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from support.waits import until

HERE = Path(__file__).resolve().parent
TOPICS = HERE.parents[1] / "fixtures" / "make" / "Topics.java"


def until_made(logs: Path, *partitions: str) -> None:
    """Wait until a broker has made them in its log directory."""
    until(lambda: all((logs / name / "partition.metadata").exists() for name in partitions))


Read = dict[str, dict[int, str]]
"""By partition, as its directory is named, and by offset: the values."""


class Client:
    """Runs the commands of Client.java against one broker."""

    def __init__(self, kafka: ModuleType, bootstrap: str) -> None:
        self._kafka, self._bootstrap = kafka, bootstrap

    def make(self, *topics: str) -> None:
        """Topics, each as `name:partitions:settings`."""
        self._kafka.run_source(self._kafka.NEWEST, TOPICS, self._bootstrap, *topics)

    def run(self, *commands: Sequence[str]) -> list[list[str]]:
        """The lines that each command prints."""
        arguments = [word for command in commands for word in ("then", *command)][1:]
        out = self._kafka.run_source(self._kafka.NEWEST, HERE / "Client.java", self._bootstrap, *arguments).stdout
        printed: list[list[str]] = [[]]
        for line in out.decode().splitlines():
            if line == "then":
                printed.append([])
            else:
                printed[-1].append(line)
        assert len(printed) == len(commands) + 1
        return printed[:-1]

    def read(self, isolation: str, *partitions: str) -> Read:
        (lines,) = self.run(("read", isolation, *partitions))
        return records(lines, partitions)

    def write(self, *what: str) -> None:
        self.run(("write", *what))


def records(lines: Sequence[str], partitions: Sequence[str]) -> Read:
    """What the command `read` printed. Every consumer has to have come to the end."""
    found: Read = {partition: {} for partition in partitions}
    for line in lines:
        partition, offset, text = line.split(" ", 2)
        if offset != "end":
            found[partition][int(offset)] = text
        else:
            position, end = text.split(" of ")
            assert position == end, line
    return found
