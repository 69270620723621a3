"""Run two installed versions of kdump over the same bytes and report everything that differs.

    python tests/compare_versions.py OLD_PYTHON NEW_PYTHON [--partitions N] [--jobs 2] [--seed S] [--only stat]

Both arguments are interpreters that have a version of kdump installed. The script itself needs the helpers of the
tests, so run it with an interpreter that has kdump with its test dependencies.

It compares all fixtures and N mutated partitions: exit statuses, the JSON of `dump`, `verify` and `recover`, every
format of `stat`, `--format kafka`, the result of a fetch, plans, and the directories that `recover` leaves. It compares
every file of an applied directory byte for byte, and the directory after `--undo` with the original. It prints the
first difference of each kind and a count, and exits with 1 where anything differs. With `--only stat` it compares what
that command reads.

A version runs in one long-lived process. With `--fork` each list of commands gets a fork of it: this takes three times
as long, and nothing that one list leaves in memory reaches another. Both versions see identical bytes at identical
paths, the same clock and the same process id, so that run ids agree. What is left aside:

- the field `message` of findings and `seconds` of summaries;
- standard error, except what `--format kafka` writes there in place of Kafka's tool;
- inode numbers, in journals and in the plans of applied runs: each becomes the number of its first appearance;
- modification times of files that were written during the comparison: all of them are "now"; and the size of a journal;
- the checksum that ends a journal, because it covers the inodes: it has to be right, and is then left out.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support.version_differences import Difference, Tree, Trees, compare_runs, compare_trees, exact, last_line
from support.version_items import FIXTURES, STRATEGIES, Item, applying, mutated, of_fixtures, reading, write_files
from support.version_worker import Command, Ran, Version


class Lane:
    """A pair of versions and a folder for them to work in."""

    def __init__(self, old: str, new: str, place: Path, *, fork: bool, only: str | None = None) -> None:
        place.mkdir(parents=True)
        self._place = self._root = place
        self._pythons = old, new
        self._versions = Version(old), Version(new)
        self._trees = Trees()
        self._fork, self._only = fork, only
        self._count = 0

    def item(self, make: Callable[[Path], Item]) -> tuple[Item, list[Difference], int]:
        """Compare on what is made in a folder: the item, the differences, and how many commands ended in a bug."""
        item = make(self._place / "make")
        self._bugs, self._count = 0, self._count + 1
        # No path comes twice, so that nothing that is kept in memory is about another item.
        self._root = self._place / str(self._count)
        self._restore(item)
        found = []
        try:
            if self._count == 1 and self._fork:  # imports once, not in every fork
                for version in self._versions:
                    version.run(list(reading(item, random.Random(item.name))), self._root, item.now_s)
            for difference in itertools.chain(self._read(item), self._apply(item) if self._only is None else ()):
                found.append(difference)  # noqa: PERF402  # what came before an error counts
        except RuntimeError as error:
            found.append(Difference("no answer", str(error)))
            self._versions = Version(self._pythons[0]), Version(self._pythons[1])
        shutil.rmtree(self._root)
        return item, found, self._bugs

    def _restore(self, item: Item) -> None:
        write_files(self._root, item.files)

    def _run(self, version: Version, item: Item, *commands: Command) -> list[Ran]:
        found = version.run(commands, self._root, item.now_s, fork=self._fork)
        self._bugs += sum(ran.status in (-1, 70) for ran in found)
        return found

    def _read(self, item: Item) -> Iterator[Difference]:
        commands = [each for each in reading(item, random.Random(item.name)) if self._only in (None, each[0])]
        before = exact(self._root)
        old, new = (self._run(version, item, *commands) for version in self._versions)
        if exact(self._root) != before:
            yield Difference("reading", "a command that reads has changed something")
        for command, one, other in zip(commands, old, new, strict=True):
            yield from compare_runs(command, one, other)
        if self._only is None:
            yield from self._plans(item, dict(zip(map(tuple, commands), old, strict=True)))

    def _plans(self, item: Item, ran: Mapping[tuple[str, ...], Ran]) -> Iterator[Difference]:
        """Plans that the old version saved are read by both."""
        commands = []
        for strategy in STRATEGIES:
            plan = ran["recover", f"--{strategy}", "--dry-run", "--format", "json", item.target].out
            (self._root / f"plan-{strategy}").write_bytes(plan)
            commands.append(["recover", "--plan", f"plan-{strategy}", "--dry-run", "--format", "json"])
        old, new = (self._run(version, item, *commands) for version in self._versions)
        for command, one, other in zip(commands, old, new, strict=True):
            yield from compare_runs([*command[:1], *command[2:], "--plan"], one, other)
        for strategy in STRATEGIES:
            (self._root / f"plan-{strategy}").unlink()

    def _apply(self, item: Item) -> Iterator[Difference]:
        rng = random.Random(f"apply {item.name}")
        original = self._trees.of(self._root)
        # Either version takes back what it did itself, or what the old one did is taken back by the new one.
        crossed = rng.random() < 0.5
        for strategy, command in applying(item, rng):
            yield from self._recovered(item, original, f"applied --{strategy}", command, crossed=crossed)
        strategy = rng.choice(STRATEGIES)
        saved = ["recover", "--plan", "plan", "--format", "json"]
        yield from self._recovered(item, original, f"applied --plan of --{strategy}", saved, strategy=strategy)
        strategy = rng.choice(STRATEGIES)
        copied = ["recover", f"--{strategy}", "--output", "out", "--format", "json", item.target]
        yield from self._recovered(item, original, f"copied by --{strategy}", copied)

    def _recovered(
        self,
        item: Item,
        original: Tree,
        what: str,
        command: Command,
        *,
        strategy: str | None = None,
        crossed: bool = False,
    ) -> Iterator[Difference]:
        """Recover with both versions, then undo; with `strategy` by a plan that the old version saves before."""
        undo = ["recover", "--undo", "--format", "json", item.target]
        ran: list[list[Ran]] = []
        trees: list[Tree] = []
        for version in self._versions:
            if strategy is not None:
                dry = ["recover", f"--{strategy}", "--dry-run", "--format", "json", item.target]
                (self._root / "plan").write_bytes(self._run(self._versions[0], item, dry)[0].out)
            (done,) = self._run(version, item, command)
            (self._root / "plan").unlink(missing_ok=True)
            trees.append(self._trees.of(self._root))
            shutil.rmtree(self._root / "out", ignore_errors=True)
            (undone,) = self._run(self._versions[1] if crossed else version, item, undo)
            back = self._trees.of(self._root)
            # Without it a run leaves its journal alone, which names the run.
            kept = "--no-keep" not in command and any(".kdump-undo" in name for name in trees[-1])
            if back != original:
                if kept:
                    which = "old" if version is self._versions[0] else "new"
                    how = f"{what}, undone after {which}"
                    for difference in compare_trees(how, original, back):
                        yield difference._replace(text=f"{difference.text} ({last_line(undone.err)})")
                self._restore(item)
            ran.append([done, undone])
        yield from compare_trees(what, *trees)
        for number, run in enumerate((command, undo)):
            yield from compare_runs(run, ran[0][number], ran[1][number], inodes=True)


# ---- all items

_lane: Lane


def _begin(old: str, new: str, place: str, fork: bool, only: str | None) -> None:
    global _lane  # noqa: PLW0603  # one for each process of the pool
    _lane = Lane(old, new, Path(place) / str(os.getpid()), fork=fork, only=only)


class Task(NamedTuple):
    """An item by its number: of the fixtures, or of the mutated partitions."""

    seed: int | None
    number: int


class Outcome(NamedTuple):
    """What came of a task."""

    task: Task
    name: str
    differences: list[Difference]
    bugs: int


@cache
def _fixture_items() -> list[Item]:
    return list(of_fixtures())


def _compare(task: Task) -> Outcome:
    def make(place: Path) -> Item:
        return _fixture_items()[task.number] if task.seed is None else mutated(task.seed, task.number, place)

    item, differences, bugs = _lane.item(make)
    return Outcome(task, item.name, differences, bugs)


def whole(old: str, new: str) -> list[Difference]:
    """All fixtures in one command each, by several processes."""
    found: list[Difference] = []
    for options in (
        ["verify", "--format", "json"],
        ["verify", "--deep", "--format", "json"],
        ["recover", "--format", "json"],
    ):
        command = [*options, "--jobs", "2", str(FIXTURES)]
        ran = []
        for python in (old, new):
            done = subprocess.run([python, "-I", "-m", "kdump", *command], capture_output=True, check=False)
            # The clock runs here, so that what was planned at different times is the same.
            clock = b'"now_ms":'
            lines = [line for line in done.stdout.splitlines(keepends=True) if clock not in line]
            ran.append(Ran(done.returncode, b"".join(lines), done.stderr))
        found += compare_runs(command, *ran)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two installed versions of kdump.")
    parser.add_argument("old", metavar="OLD_PYTHON")
    parser.add_argument("new", metavar="NEW_PYTHON")
    parser.add_argument("--partitions", type=int, default=2000, metavar="N", help="mutated partitions [2000]")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first one [0]")
    parser.add_argument("--no-fixtures", action="store_true", help="compare mutated partitions only")
    parser.add_argument("--fork", action="store_true", help="a fork for each list of commands")
    parser.add_argument("--only", metavar="COMMAND", help="what reads with one command, and no recovery")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shown", type=int, default=20, help="how many differences are shown at most [20]")
    chosen = parser.parse_args()
    began = time.monotonic()
    tasks = [] if chosen.no_fixtures else [Task(None, number) for number in range(len(_fixture_items()))]
    tasks += [Task(chosen.seed, number) for number in range(chosen.first, chosen.first + chosen.partitions)]
    # In memory a sync costs nothing.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    report = Report(chosen.shown)
    if not chosen.no_fixtures and chosen.only is None:
        report.add("all fixtures", whole(chosen.old, chosen.new))
    with (
        tempfile.TemporaryDirectory(prefix="kdump-compare-", dir=memory) as place,
        ProcessPoolExecutor(
            chosen.jobs, initializer=_begin, initargs=(chosen.old, chosen.new, place, chosen.fork, chosen.only)
        ) as pool,
    ):
        for outcome in pool.map(_compare, tasks, chunksize=4):
            report.add(outcome.name, outcome.differences, outcome.bugs)
            report.progress(len(tasks))
    return report.end(time.monotonic() - began)


class Report:
    """Counts and prints what came of the tasks."""

    def __init__(self, shown: int) -> None:
        self._left = shown
        self._kinds: Counter[str] = Counter()
        self._done = self._differ = self._bugs = 0

    def add(self, name: str, differences: Sequence[Difference], bugs: int = 0) -> None:
        self._done += 1
        self._differ += bool(differences)
        self._bugs += bugs
        new = [one for one in differences if one.what not in self._kinds]
        self._kinds.update(one.what for one in differences)
        # Of each kind the first is shown.
        for one in {one.what: one for one in reversed(new)}.values():
            if self._left > 0:
                self._left -= 1
                print(f"{name}\n  {one.what}\n    {one.text}", flush=True)

    def progress(self, total: int) -> None:
        if sys.stderr.isatty() or self._done % 200 == 0:
            print(f"{self._done} of {total}, {self._differ} differ", file=sys.stderr, flush=True)

    def end(self, seconds: float) -> int:
        for what, count in self._kinds.most_common():
            print(f"{count:7} x {what}")
        if self._bugs:
            print(f"{self._bugs} commands ended in a bug (status 70) or died")
        print(f"{self._done} compared, {self._differ} differ ({seconds:.0f} seconds)")
        return 1 if self._differ else 0


if __name__ == "__main__":
    sys.exit(main())
