"""A broker's own log, written and read by its own class (Log.java): many logs in one process, asked what to do in
advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from interop.appends import NEVER, NOW_MS, Step

HERE = Path(__file__).resolve().parent
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)


class Read(NamedTuple):
    """What a read of at most so many bytes comes to: `segment`, `position` and `size` of whole batches, or why there is
    nothing."""

    offset: int
    max_bytes: int
    found: tuple[int, int, int] | str


class Script:
    """What Log.java is to do; `run` does it and hands back what each command printed."""

    def __init__(self, home: Path) -> None:
        self._batches = home / "batches"
        self._data = bytearray()
        self._lines: list[str] = []

    def open(self, directory: Path, *, start: int = 0, settings: str = "", now_ms: int = NOW_MS) -> None:
        given = f"{settings},{NEVER}" if settings else NEVER
        self._lines.append(f"open\t{directory}\t{start}\t{now_ms}\t{given}")

    def append(self, step: Step) -> None:
        if step.how == "delete":
            self._lines.append(f"delete\t{step.epoch}")
            return
        self._lines.append(f"{step.how}\t{step.epoch}\t{self._batches}\t{len(self._data)}\t{len(step.data)}")
        self._data += step.data

    def read(self, sizes: Sequence[int]) -> None:
        self._lines.append("read\t" + ",".join(map(str, sizes)))

    def times(self, timestamps: Sequence[int]) -> None:
        self._lines.append("times\t" + ",".join(map(str, timestamps)))

    def close(self) -> None:
        self._lines.append("close")

    def run(self, kafka: ModuleType) -> Iterator[list[str]]:
        self._batches.write_bytes(self._data)
        given = "".join(f"{line}\n" for line in self._lines).encode()
        out = kafka.run_source(kafka.NEWEST, HERE / "Log.java", stdin=given, flags=QUIET).stdout.decode()
        printed = iter(out.splitlines())
        for line in self._lines:
            name = line.partition("\t")[0]
            found = []
            for answer in printed:
                if answer == name:
                    break
                found.append(answer)
            yield found
        assert next(printed, None) is None


def reads(lines: Sequence[str]) -> Iterator[Read]:
    """What the command `read` printed."""
    for line in lines:
        offset, size, *found = line.split(" ")
        where = found[0] if len(found) == 1 else (int(found[0]), int(found[1]), int(found[2]))
        yield Read(int(offset), int(size), where)


def times(lines: Sequence[str]) -> Iterator[tuple[int, tuple[int, int] | None]]:
    """What the command `times` printed: offset and timestamp by what was asked for."""
    for line in lines:
        asked, *found = line.split(" ")
        yield int(asked), None if found == ["none"] else (int(found[0]), int(found[1]))
