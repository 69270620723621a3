"""Runs the benchmark and prints one table: `python -m tests.bench` or `python tests/bench/run.py`.

Every ratio comes from one run on one machine, whole processes in turn, files in the page cache: seconds from two runs
do not compare. With small segments the start of a process outweighs the work, so measure targets at `--scale full`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median
from tempfile import gettempdir

if not __package__:  # started as a script: this folder's parent instead of this folder
    __package__ = "bench"
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from . import table
from .datasets import SCALES, Cache, Data, clean
from .measure import Command, CommandError, Sample, UnavailableError, alternate, median_s, paired_ratio, run
from .rows import FORBIDDEN_IMPORTS, READS, Kind, Make, Row, all_rows
from .table import Result
from .tools import Tools

_QUIET_LOAD = 0.5  # a minute's load average above which the machine is not ours
_IMPORTED = re.compile(r"^import time:[^|]*\|[^|]*\| +([\w.]+)$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a target is missed, 2 when no row is selected, else 0."""
    options = _parser().parse_args(arguments)
    if options.clean:
        print(f"{options.cache}: {'removed' if clean(options.cache) else 'not a cache of this benchmark'}")
        return 0
    rows = [row for row in all_rows() if any(fnmatchcase(row.name, pattern) for pattern in options.only)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        print("no row has such a name; --list shows all", file=sys.stderr)
        return 2
    cache = Cache(options.cache, options.scale)
    tools = Tools(options.cache / "tools", options.kdump)
    results = []
    busy = os.getloadavg()[0]
    if busy > _QUIET_LOAD:
        print(f"load average {busy:.1f}: other programs run, so read the ratios with the column spread")
    print(table.header(), flush=True)
    for row in rows:
        results.append(measure(row, tools, cache, options.runs))
        print(table.line(results[-1]), flush=True)
    print(table.summary(results))
    report = options.json or options.cache / f"results-{options.scale}.json"
    table.write_json(report, results, {"scale": options.scale, "runs": options.runs, "load_average": busy})
    print(report)
    return int(any(result.met is False for result in results))


def measure(row: Row, tools: Tools, cache: Cache, runs: int) -> Result:
    """One row; what cannot be had or fails becomes its note."""
    try:
        data = cache.get(row.data, _say)
        if row.kind is Kind.IMPORTS:
            return _imports(row, row.subject(tools, data))
        if row.kind in (Kind.PER_SEGMENT, Kind.PER_READ, Kind.SECONDS):
            return _absolute(row, tools, data, runs)
        if row.kind is Kind.PEAK:
            return _peak(row, row.subject(tools, data), runs)
        reference_data = data if row.reference_data is None else cache.get(row.reference_data, _say)
        return _ratio(row, *_commands(row, tools, data, reference_data), runs)
    except (UnavailableError, CommandError, OSError, subprocess.TimeoutExpired) as error:
        return Result(row, note=str(error))


def _ratio(row: Row, commands: dict[str, Command], notes: list[str], runs: int) -> Result:
    commands = _that_work(commands, notes)
    if "reference" not in commands:
        return Result(row, note="; ".join(notes))
    samples = dict(zip(commands, alternate(tuple(commands.values()), runs), strict=True))
    seconds = {name: median_s(measured) for name, measured in samples.items()}
    value = None
    if "subject" in samples:
        ratio = paired_ratio(samples["reference"], samples["subject"], seconds.get("allowance", 0.0))
        value = 1 / ratio if row.kind is Kind.AT_LEAST else ratio
    if "floor" in seconds:
        notes.append(f"peer {seconds['reference'] / seconds['floor']:.0f} x the C loop")
    return Result(row, value, seconds, _spread(samples["reference"]), "; ".join(notes), samples)


def _that_work(commands: dict[str, Command], notes: list[str]) -> dict[str, Command]:
    """Run each once, which also fills the page cache; failures go to `notes`."""
    working = {}
    for name, command in commands.items():
        try:
            run(command)
            working[name] = command
        except CommandError as error:
            notes.append(str(error))
    return working


def _commands(row: Row, tools: Tools, data: Data, reference_data: Data) -> tuple[dict[str, Command], list[str]]:
    """What can be had of a row, the reference first, and why the rest cannot."""
    built: dict[str, Command] = {}
    missing = []
    makers: dict[str, Make | None] = {
        "reference": row.reference,
        "subject": row.subject,
        "allowance": row.allowance,
        "floor": row.floor,
    }
    for name, make in makers.items():
        try:
            if make is not None:
                built[name] = make(tools, reference_data if name == "reference" else data)
        except UnavailableError as error:
            if str(error) not in missing:
                missing.append(str(error))
    return built, missing


def _peak(row: Row, command: Command, runs: int) -> Result:
    samples = [run(command) for _ in range(runs)]
    peak = max(sample.peak_bytes for sample in samples) / (1 << 20)
    return Result(row, peak, {"subject": median_s(samples)}, samples={"subject": samples})


def _absolute(row: Row, tools: Tools, data: Data, runs: int) -> Result:
    """Seconds of the subject, or milliseconds a segment, or microseconds a read, beyond the allowance."""
    commands, notes = _commands(row, tools, data, data)
    samples = dict(zip(commands, alternate(tuple(commands.values()), runs), strict=True))
    seconds = {name: median_s(measured) for name, measured in samples.items()}
    value = seconds["subject"]
    if row.kind is Kind.PER_SEGMENT:
        value = (value - seconds["allowance"]) * 1000 / len(data.segments)
    elif row.kind is Kind.PER_READ:
        value = (value - seconds["allowance"]) * 1e6 / READS
    return Result(row, value, seconds, _spread(samples["subject"]), "; ".join(notes), samples)


def _imports(row: Row, command: Command) -> Result:
    done = subprocess.run(command.argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise CommandError(f"it failed: {done.stderr.strip().splitlines()[-1]}")
    packages = {name.partition(".")[0] for name in _IMPORTED.findall(done.stderr)}
    found = sorted(packages & set(FORBIDDEN_IMPORTS))
    return Result(
        row, len(found), note=", ".join(found) or f"none of {', '.join(FORBIDDEN_IMPORTS)} in {len(packages)}"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _spread(samples: Sequence[Sample]) -> float:
    """How far the reference strayed: (slowest less fastest) ÷ median."""
    times = [sample.wall_s for sample in samples]
    return (max(times) - min(times)) / median(times)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.bench", description="kdump's budgets as ratios, measured in one run.")
    parser.add_argument("--scale", choices=tuple(SCALES), default="small", help="64 MiB or 1 GiB segments")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="rows by name or pattern (verify-*)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--runs", type=int, default=5, help="rounds a row (5)")
    parser.add_argument(
        "--kdump", type=Path, default=Path(sys.executable).with_name("kdump"), help="the executable under test"
    )
    parser.add_argument("--cache", type=Path, default=Path(gettempdir(), "kdump-bench"), help="segments and tools")
    parser.add_argument("--json", type=Path, help="report (results-SCALE.json in the cache)")
    parser.add_argument("--clean", action="store_true", help="delete the cache and stop")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
