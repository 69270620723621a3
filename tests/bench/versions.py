"""Two installed versions of kdump in turn on the same data: `python -m tests.bench.versions OLD NEW --pairs 15`.

OLD and NEW are the executables. A line a row: medians, the ratio of the medians (new ÷ old), and its 95 % interval from
resampled pairs. A row fails when the whole interval lies above --most.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from statistics import median
from tempfile import gettempdir

from .datasets import SCALES, Cache, Data
from .measure import Command, CommandError, UnavailableError, run
from .rows import Kind, Make, Row, all_rows
from .tools import ROOT, Tools

_PATTERNS = ("verify-*", "deep-*", "recover-plan", "recover-x4", "recover-one-record", "log-*", "help")
_SMALL = 20
_RESAMPLES = 4000


def _small(tools: Tools, data: Data) -> Command:
    """A directory of 20 small partitions, made of what brokers wrote."""
    directory = data.directory.parent / "small-partitions"
    if not directory.exists():
        found = sorted({log.parent for log in (ROOT / "fixtures").glob("*/*/*.log") if log.stat().st_size < 100_000})
        for number, partition in enumerate(found[:_SMALL]):
            shutil.copytree(partition, directory / f"small-{number}")
    return tools.kdump("verify", "--fail-on", "never", str(directory))


def rows(patterns: Sequence[str]) -> list[Row]:
    """The rows whose subject is timed, and the one of a directory of small partitions."""
    timed = (Kind.AT_MOST, Kind.AT_LEAST, Kind.PER_SEGMENT, Kind.PER_READ, Kind.SECONDS)
    some = [*all_rows(), Row("verify-20-partitions", "plain-32m", Kind.SECONDS, None, _small)]
    return [row for row in some if row.kind in timed and any(fnmatchcase(row.name, pattern) for pattern in patterns)]


def interval(old: Sequence[float], new: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the medians, and the bounds of its 95 % interval, by resampling the pairs."""
    random = Random(0)
    pairs = list(zip(old, new, strict=True))
    ratios = []
    for _ in range(_RESAMPLES):
        drawn = random.choices(pairs, k=len(pairs))
        ratios.append(median(after for _, after in drawn) / median(before for before, _ in drawn))
    ratios.sort()
    return median(new) / median(old), ratios[int(0.025 * _RESAMPLES)], ratios[int(0.975 * _RESAMPLES)]


def pairs_of(old: Command, new: Command, count: int) -> tuple[list[float], list[float]]:
    """Seconds of both, in turn; every second pair begins with the new one."""
    before: list[float] = []
    after: list[float] = []
    for command in (old, new):
        run(command)
    for number in range(count):
        order = ((old, before), (new, after))
        for command, into in order if number % 2 == 0 else order[::-1]:
            into.append(run(command).wall_s)
    return before, after


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a row fails or cannot be measured."""
    parser = argparse.ArgumentParser(prog="tests.bench.versions", description="Two versions of kdump in turn.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--scale", choices=tuple(SCALES), default="full")
    parser.add_argument("--only", nargs="+", default=list(_PATTERNS), metavar="NAME")
    parser.add_argument("--most", type=float, default=1.03)
    parser.add_argument("--cache", type=Path, default=Path(gettempdir(), "kdump-bench"))
    options = parser.parse_args(arguments)
    cache = Cache(options.cache, options.scale)
    both = [Tools(options.cache / "tools", executable.absolute()) for executable in (options.old, options.new)]
    failed = 0
    print(f"{'row':<26}{'old s':>9}{'new s':>9}{'ratio':>8}{'95 % interval':>18}")
    for row in rows(options.only):
        try:
            data = cache.get(row.data, lambda text: print(text, file=sys.stderr, flush=True))
            make: Make = row.subject
            before, after = pairs_of(make(both[0], data), make(both[1], data), options.pairs)
        except (CommandError, UnavailableError) as error:
            failed += 1
            print(f"{row.name:<26}{error}", flush=True)
            continue
        ratio, low, high = interval(before, after)
        slower = low > options.most
        failed += slower
        words = "  slower" if slower else ""
        line = (
            f"{row.name:<26}{median(before):>9.3f}{median(after):>9.3f}{ratio:>8.3f}{low:>10.3f} –{high:>6.3f}{words}"
        )
        print(line, flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
