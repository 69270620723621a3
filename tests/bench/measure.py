"""Whole processes: run, checked, timed; two of them in turn, so that both see the same machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory

_LAUNCH = Path(__file__).with_name("launch.py")
_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 1800
_SHORT = 80  # characters of a command in a message


class UnavailableError(Exception):
    """A command cannot be had on this machine; the message is the reason."""


class CommandError(Exception):
    """A command ended with another status, or counted other things than the data set has."""


@dataclass(frozen=True, slots=True)
class Command:
    """One process, started in the repository's root.

    `expect`: numbers that its last line of output, a JSON object, must have. `timed`: that line also has the `seconds`
    that count, those of a part of the process. `status`: the exit status that it must have.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, int] | None = None
    timed: bool = False
    status: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one command."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def run(command: Command) -> Sample:
    """Run it once; output is kept only when it is checked.

    Raises CommandError.
    """
    with TemporaryDirectory(prefix="kdump-bench-") as scratch:
        out = Path(scratch, "out") if command.expect is not None else Path(os.devnull)
        err = Path(scratch, "err")
        launched = subprocess.run(
            [sys.executable, "-I", "-S", str(_LAUNCH), str(out), str(err), *command.argv],
            cwd=_ROOT,
            env={**os.environ, **command.environment},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if launched.returncode:
            raise CommandError(f"{command.argv[0]}: {launched.stderr.strip().splitlines()[-1]}")
        measured = json.loads(launched.stdout)
        if measured.pop("status") != command.status:
            raise CommandError(f"{_short(command)} failed: {_why(err.read_text(errors='replace'))}")
        if command.expect is not None:
            said = _checked(command, command.expect, out.read_text().strip().splitlines())
            if command.timed:
                measured["wall_s"] = float(said["seconds"])
        return Sample(**measured)


def alternate(commands: Sequence[Command], runs: int) -> list[list[Sample]]:
    """`runs` rounds of all commands in order, then the first one once more; the samples of each command."""
    samples: list[list[Sample]] = [[] for _ in commands]
    for _ in range(runs):
        for command, into in zip(commands, samples, strict=True):
            into.append(run(command))
    samples[0].append(run(commands[0]))
    return samples


def paired_ratio(reference: Sequence[Sample], subject: Sequence[Sample], allowance_s: float) -> float:
    """Median over the rounds of (subject less allowance) ÷ the mean of the references before and after it."""
    return median(
        (measured.wall_s - allowance_s) / mean((reference[index].wall_s, reference[index + 1].wall_s))
        for index, measured in enumerate(subject)
    )


def median_s(samples: Sequence[Sample]) -> float:
    """Median wall time in seconds."""
    return median(sample.wall_s for sample in samples)


def _checked(command: Command, expect: Mapping[str, int], lines: Sequence[str]) -> dict[str, float]:
    said: dict[str, float] = json.loads(lines[-1]) if lines else {}
    for name, value in expect.items():
        if said.get(name) != value:
            raise CommandError(f"{_short(command)}: {name} should be {value} and is {said.get(name)}")
    return said


def _why(said: str) -> str:
    lines = said.strip().splitlines() or ["nothing on standard error"]
    return next((line for line in reversed(lines) if "Error: " in line), lines[-1])


def _short(command: Command) -> str:
    text = " ".join(Path(part).name if os.sep in part else part for part in command.argv)
    return text if len(text) <= _SHORT else text[: _SHORT - 3] + "..."
