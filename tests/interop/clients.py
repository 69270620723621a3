"""Producers and consumers of Kafka (Client.java), and what its broker makes of topics."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
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


class Session(Client):
    """The same in one process: a transaction that is left open goes on with the next command of its producer."""

    def __init__(self, kafka: ModuleType, bootstrap: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(kafka, bootstrap)
        self._process = process

    def run(self, *commands: Sequence[str]) -> list[list[str]]:
        """The lines that each command prints."""
        return [self._one(" ".join(command)) for command in commands]

    def _one(self, line: str) -> list[str]:
        given, printed = self._process.stdin, self._process.stdout
        assert given is not None
        assert printed is not None
        limit = Timer(150, self._process.kill)
        limit.start()
        try:
            given.write(f"{line}\n".encode())
            given.flush()
            found = []
            while (text := printed.readline().decode()) != "then\n":
                assert text, f"no answer to {line}"
                found.append(text.rstrip("\n"))
        finally:
            limit.cancel()
        return found


@contextmanager
def session(kafka: ModuleType, bootstrap: str) -> Iterator[Session]:
    """A client that runs until the end of the block."""
    with kafka.background(kafka.NEWEST, HERE / "Client.java", bootstrap, "-", stdin=subprocess.PIPE) as process:
        yield Session(kafka, bootstrap, process)


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
