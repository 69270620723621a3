"""Run two installed versions of kdump over the same bytes and report everything that differs.

    python tests/compare_versions.py OLD_PYTHON NEW_PYTHON [--partitions N] [--jobs 2] [--seed S]

Both arguments are interpreters that have a version of kdump installed. The script itself needs the helpers of the tests, so run it
with an interpreter that has kdump with its test dependencies.

It compares all fixtures and N mutated partitions: exit statuses, the JSON of `dump`, `verify` and `recover`, `--format kafka`, the
result of a fetch, plans, and the directories that `recover` leaves. Every file of an applied directory is compared byte for byte, and
so is the directory after `--undo`. It prints the first differences and a count, and exits with 1 where anything differs.

A version runs in one long-lived process; with `--fork` each list of commands gets a fork of it, which takes three times as long and
keeps one list from what another one leaves in memory. Both versions see identical bytes at identical paths, the same clock and the same
process id, so that run ids agree. What is left aside:

- the field `message` of findings and `seconds` of summaries;
- lines on standard error, but for what `--format kafka` writes there in place of Kafka's tool;
- inode numbers, in journals and in the plans of applied runs: each becomes the number of its first appearance;
- modification times of files that were written during the comparison: all of them are "now";
- the checksum that ends a journal, because it covers the inodes: it has to be right, and is then left out.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import random
import select
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
from typing import Any, NamedTuple

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
PROCESS_ID = 4242
LATE_S = 1_900_000_000
"""Later than every timestamp in the fixtures."""
FILE_TIME_S = 1_500_000_000
TIMEOUT_S = 300
LARGEST_BYTES = 200 << 10
"""Fixture partitions above this size are not mutated."""

Command = list[str]


# ---- the process of one version


def serve() -> None:
    """Answer requests on standard input, a JSON line each, with a JSON line and the bytes that it announces."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer = _forked(request) if request["fork"] else _answer(request)
        answers.write(answer)
        answers.flush()


def _forked(request: dict[str, Any]) -> bytes:
    """The answer of a fork, so that no command leaves anything to a later list of commands."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            out.write(_answer(request))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        found = answer.read()
    _, status = os.waitpid(child, 0)
    return found if status == 0 else json.dumps({"died": status}).encode() + b"\n"


def _answer(request: dict[str, Any]) -> bytes:
    os.chdir(request["cwd"])
    now, get_process_id, gmtime = request["now"], os.getpid, time.gmtime
    kept = time.time, time.time_ns
    time.time, time.time_ns = (lambda: float(now)), (lambda: now * 10**9)  # type: ignore[assignment]
    time.gmtime = lambda seconds=now: gmtime(seconds)  # type: ignore[assignment]
    os.getpid = lambda: PROCESS_ID
    try:
        results = [_run(command) for command in request["commands"]]
    finally:
        (time.time, time.time_ns), os.getpid, time.gmtime = kept, get_process_id, gmtime
    sizes = [[status, len(out), len(err)] for status, out, err in results]
    head = json.dumps({"sizes": sizes}).encode() + b"\n"
    return head + b"".join(out + err for _, out, err in results)


def _run(command: Command) -> tuple[int, bytes, bytes]:
    from kdump.cli import run

    out, err, nothing = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="") for _ in range(3)
    )
    kept = sys.stdout, sys.stderr, sys.stdin
    sys.stdout, sys.stderr, sys.stdin = out, err, nothing
    try:
        status = run(command)
    finally:
        sys.stdout, sys.stderr, sys.stdin = kept
    for stream in (out, err):
        stream.flush()
    return status, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    out: bytes
    err: bytes


class Version:
    """One of the two versions, in a process of its own."""

    def __init__(self, python: str) -> None:
        # Only what is installed beside the interpreter is imported; sets have one order.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("KDUMP", "PYTHON"))}
        environment |= {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            [python, "-P", "-s", os.path.abspath(__file__), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        assert self._process.stdout is not None
        self._answers = self._process.stdout.fileno()
        self._buffer = bytearray()

    def run(self, commands: Sequence[Command], cwd: Path, now: int, *, fork: bool = False) -> list[Ran]:
        """Run the commands one after the other. Raises RuntimeError where the process dies or does not answer."""
        assert self._process.stdin is not None
        request = {"cwd": str(cwd), "now": now, "commands": commands, "fork": fork}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        head = json.loads(self._take(None))
        if "died" in head:
            return [Ran(-1, b"", b"died with wait status %d" % head["died"])] * len(commands)
        return [Ran(status, self._take(out), self._take(err)) for status, out, err in head["sizes"]]

    def _take(self, size: int | None) -> bytes:
        """So many bytes of the answer, or a line."""
        while (len(self._buffer) < size) if size is not None else (b"\n" not in self._buffer):
            if not select.select([self._answers], [], [], TIMEOUT_S)[0]:
                self._process.kill()
                raise RuntimeError(f"no answer within {TIMEOUT_S} seconds")
            if not (data := os.read(self._answers, 1 << 20)):
                raise RuntimeError("the process of a version has ended")
            self._buffer += data
        if size is None:
            size = self._buffer.index(b"\n") + 1
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


# ---- what is compared


class Item(NamedTuple):
    """A directory to compare on: `files` by relative path, None for an empty directory, under the name `target`."""

    name: str
    files: dict[str, bytes | None]
    target: str
    partitions: tuple[str, ...]
    now_s: int
    mutated: bool


def read_files(directory: Path, *, leave_out: Sequence[str] = ()) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name.split("/")[0] in leave_out:
            continue
        if path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[name] = None
    return found


def write_files(directory: Path, files: Mapping[str, bytes | None]) -> None:
    """In place of what is there; every file has a time of its own."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for number, (name, data) in enumerate(files.items()):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
            os.utime(path, (FILE_TIME_S + 60 * number,) * 2)


OF_A_CASE = ("expected", "case.toml")
ROOT_FILES = ("meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")


def fixture_partitions() -> list[Path]:
    """Every topic-partition directory of the fixtures."""
    cases = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))
    logs = (path for case in cases for kind in ("log", "checkpoint") for path in case.rglob(f"*.{kind}"))
    found = {path.parent for path in logs if "expected" not in path.relative_to(FIXTURES).parts}
    return sorted(path for path in found if "-" in path.name and path.parent != FIXTURES)


def fixture_directories() -> list[Path]:
    """Every log directory of the fixtures."""
    cases = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))
    return [case for case in cases if any((case / name).exists() for name in ROOT_FILES)]


def of_fixtures() -> Iterator[Item]:
    for path in fixture_partitions():
        name = path.relative_to(FIXTURES).as_posix()
        files = {f"{path.name}/{inner}": data for inner, data in read_files(path).items()}
        for now_s in (LATE_S, newest_s(files)):
            yield Item(f"{name} at {now_s}", files, path.name, (path.name,), now_s, False)
    for path in fixture_directories():
        files = {f"d/{inner}": data for inner, data in read_files(path, leave_out=OF_A_CASE).items()}
        inside = sorted({f"d/{name.split('/')[1]}" for name in files if name.count("/") > 1})
        yield Item(path.name, files, "d", tuple(inside), newest_s(files), False)


def newest_s(files: Mapping[str, bytes | None]) -> int:
    """A minute after the newest timestamp of the logs, as far as that is a time before LATE_S."""
    from support import damage

    times = [0]
    for name, data in files.items():
        if name.endswith(".log") and data:
            times += (getattr(batch, "max_timestamp", None) or 0 for batch in damage.batches(data))
    return max(time_ms // 1000 for time_ms in times if time_ms // 1000 < LATE_S) + 60 or LATE_S


# ---- mutated partitions


@cache
def sources() -> list[Path]:
    return [path for path in fixture_partitions() if sum(one.stat().st_size for one in path.iterdir()) <= LARGEST_BYTES]


def mutated(seed: int, number: int, place: Path) -> Item:
    """The partition of that number: a fixture or a made one, alone or in a log directory, with one to three damages."""
    from support import damage, damage_partition

    names = sorted(damage_partition.DAMAGES)
    for attempt in itertools.count():
        rng = random.Random(f"{seed} {number} {attempt}")
        origin, files, is_directory = _source(rng)
        target = next(name for name in files if "/" in name).split("/")[0]
        write_files(place, files)
        partition = place / target
        done = []
        # Each damage has its turn, where the source has what it is about.
        wanted = names[(number + attempt) % len(names)] if rng.random() < 0.7 else None
        for _ in range(rng.choice((1, 1, 2, 3))):
            try:
                if wanted is not None:
                    damage_partition.apply(wanted, partition, rng)
                    done.append(wanted)
                elif rng.random() < 0.7 and (logs := damage_partition.logs(partition)):
                    path, how = rng.choice(logs), rng.choice(sorted(damage.DAMAGES))
                    path.write_bytes(damage.damage(path.read_bytes(), rng, names=[how]))
                    done.append(how)
                else:
                    name = rng.choice(names)
                    damage_partition.apply(name, partition, rng)
                    done.append(name)
            except (damage.NotApplicable, IndexError):
                pass
            wanted = None
        if is_directory and rng.random() < 0.3:
            done += _damaged_root(place, rng)
        if done:
            break
    found = read_files(place)
    now_s = newest_s(found) if rng.random() < 0.7 else LATE_S
    if is_directory:
        found = {f"d/{name}": data for name, data in found.items()}
        target, partitions = "d", (f"d/{target}",)
    else:
        partitions = (target,)
    return Item(f"{number}: {origin}, {', '.join(done)}", found, target, partitions, now_s, True)


def _source(rng: random.Random) -> tuple[str, dict[str, bytes | None], bool]:
    """Where it comes from, a partition, with or without the files of a log directory's root beside it, and whether those are there."""
    from support import build, directories

    files: dict[str, bytes | None]
    if (kind := rng.random()) < 0.65:
        path = rng.choice(sources())
        origin, name, inside = path.relative_to(FIXTURES).as_posix(), path.name, read_files(path)
    elif kind < 0.95:
        origin, name = "made", "made-0"
        made = directories.made(rng, removed=rng.choice((0.0, 0.0, 0.3)))
        inside = {inner: data for inner, data in made.items() if isinstance(data, bytes)}
    else:
        origin, name = "0.7", "old-0"
        inside = {f"{base:020d}.kafka": _log07(rng) for base in range(0, rng.choice((5000, 10_000, 15_000)), 5000)}
    files = {f"{name}/{inner}": data for inner, data in inside.items()}
    if rng.random() < 0.6:
        return origin, files, False
    topic, _, partition = name.rpartition("-")
    ends = sorted(int(inner[:20]) for inner in inside if inner[:20].isdigit())
    points = {
        file: rng.choice((0, ends[0], ends[-1], rng.randrange(ends[-1] + 30), ends[-1] + 10_000)) for file in _OFFSETS
    }
    root: dict[str, bytes | None] = {
        "meta.properties": directories.META if rng.random() < 0.8 else b"version=0\nbroker.id=1\ncluster.id=abc\n",
        **{
            file: build.checkpoint(f"{topic} {partition} {point}", "elsewhere 3 7")
            if rng.random() < 0.8
            else build.checkpoint()
            for file, point in points.items()
        },
    }
    if rng.random() < 0.4:
        root[".kafka_cleanshutdown"] = rng.choice((b"", b'{"version":0,"brokerEpoch":5}'))
    for file in rng.sample(sorted(root), rng.choice((0, 0, 0, 1, 2))):
        if file != "recovery-point-offset-checkpoint":
            del root[file]
    return f"{origin} in a log directory", {**files, **root}, True


_OFFSETS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)


def _log07(rng: random.Random) -> bytes:
    from support import build

    def message() -> build.Nested:
        return rng.randbytes(rng.randrange(200)) if rng.random() < 0.7 else [rng.randbytes(40) for _ in range(3)]

    return build.kafka07([message() for _ in range(rng.randrange(1, 30))], codec=rng.choice(("gzip", "snappy")))


def _damaged_root(place: Path, rng: random.Random) -> list[str]:
    """A byte of a file at the root of a log directory changed, or its end cut off."""
    paths = sorted(path for path in place.iterdir() if path.is_file() and path.stat().st_size)
    if not paths:
        return []
    path = rng.choice(paths)
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    else:
        del data[rng.randrange(len(data)) :]
    path.write_bytes(data)
    return [f"damaged {path.name}"]


# ---- commands

STRATEGIES = ("truncate", "salvage", "reindex")
TOOL_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")


def reading(item: Item, rng: random.Random) -> Iterator[Command]:
    """Commands that change nothing."""
    json_format = ["--format", "json"]
    yield ["verify", *json_format, item.target]
    yield ["verify", "--deep", *json_format, item.target]
    yield ["verify", "--summary", *json_format, item.target]
    for partition in item.partitions:
        yield from _reading_a_partition(item, partition, rng)
    yield ["recover", *json_format, item.target]
    for options in (
        ["--truncate"],
        ["--truncate", "--from", "newest"],
        ["--truncate", "--from", "all"],
        ["--truncate", "--from", "all", "--rebuild", "all"],
        ["--truncate", "--index-interval-bytes", "300", "--segment-index-bytes", "500", "--rebuild", "all"],
        ["--salvage"],
        ["--salvage", "--undecided", "drop", "--rebuild", "all"],
        ["--reindex"],
        ["--reindex", "--rebuild", "all"],
    ):
        yield ["recover", *options, "--dry-run", *json_format, item.target]


def _reading_a_partition(item: Item, partition: str, rng: random.Random) -> Iterator[Command]:
    paths = [name for name in item.files if name.startswith(f"{partition}/") and item.files[name] is not None]
    logs = [path for path in paths if path.endswith((".log", ".kafka"))]
    beside = [path for path in paths if path not in logs]
    yield ["dump", "--format", "json", partition]
    yield ["dump", "--force", "--records", "--bytes", "hex", "--format", "json", partition]
    yield [
        "dump",
        "--batches",
        "--offset",
        f"{rng.randrange(40)}:{rng.randrange(40, 200)}",
        "--format",
        "json",
        partition,
    ]
    if beside:
        yield ["dump", "--format", "json", *beside]
    for options in ([], ["--deep-iteration"], ["--print-data-log"], ["--print-data-log", "--skip-record-metadata"]):
        if logs:
            yield ["dump", "--format", "kafka", *options, *logs]
    if known := [path for path in beside if path.endswith(TOOL_SUFFIXES)]:
        yield ["dump", "--format", "kafka", *known]
    yield ["dump", "--format", "kafka", "--verify-index-only", partition]
    yield ["dump", "--format", "kafka", "--index-sanity-check", partition]
    if logs:
        yield ["verify", "--no-companions", "--deep", "--format", "json", rng.choice(logs)]
        yield ["recover", "--format", "json", rng.choice(logs)]
    for at in ("earliest", "latest", str(rng.randrange(120)), f"@{item.now_s - rng.randrange(10**6)}000"):
        yield ["dump", "--at", at, "-v", "--format", "json", partition]
    yield ["dump", "--at", str(rng.randrange(60)), "--format", "fetch", partition]


def applying(item: Item, rng: random.Random) -> Iterator[tuple[str, Command]]:
    """Commands that recover in place, each with its strategy."""
    for strategy in STRATEGIES:
        more: Command = []
        if strategy == "truncate":
            more += rng.choice(([], ["--from", "all"], ["--from", "newest"]))
        if rng.random() < 0.3:
            more += ["--rebuild", "all"]
        if rng.random() < 0.1:
            more.append("--no-keep")
        if item.target not in item.partitions and rng.random() < 0.3:
            more.append("--drop-marker")
        yield strategy, ["recover", f"--{strategy}", *more, "--format", "json", item.target]


# ---- comparing


class Difference(NamedTuple):
    """What differs, in a line or some."""

    what: str
    text: str


def compare_runs(command: Command, old: Ran, new: Ran, *, inodes: bool = False) -> Iterator[Difference]:
    """How two runs of a command differ; with `inodes` those of files count by the order in which they appear."""
    kind = " ".join([command[0], *(word for word in command[1:] if word.startswith("--") and word != "--format")])
    if old.status != new.status:
        said = "".join(f"\n      {name}: {_last_line(ran.err)}" for name, ran in (("old", old), ("new", new)))
        yield Difference(f"{kind}: exit status", f"{old.status} -> {new.status}{said}")
    form = command[command.index("--format") + 1] if "--format" in command else ""
    if old.out != new.out:
        if form == "json":
            yield from compare_lines(kind, old.out, new.out, inodes=inodes)
        else:
            yield Difference(f"{kind}: {form} output", _first_difference(old.out, new.out))
    if form == "kafka" and _of_the_tool(old.err) != _of_the_tool(new.err):
        text = _first_difference(_of_the_tool(old.err), _of_the_tool(new.err))
        yield Difference(f"{kind}: standard error of {form}", text)


def _last_line(data: bytes) -> str:
    return (data.decode("utf-8", "replace").strip().splitlines() or ["(nothing said)"])[-1][:300]


def _of_the_tool(data: bytes) -> bytes:
    """Standard error without the sentences of kdump itself, whose wording may change."""
    return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"kdump: "))


def compare_lines(kind: str, old: bytes, new: bytes, *, inodes: bool = False) -> Iterator[Difference]:
    """How JSON Lines differ; the order of keys counts."""
    plain_old, plain_new = Plain(inodes), Plain(inodes)
    pairs = itertools.zip_longest(old.splitlines(), new.splitlines())
    for number, (one, other) in enumerate(pairs, 1):
        if one == other and not inodes:
            continue
        if one is None or other is None:
            left = (one or other or b"").decode("utf-8", "replace")[:300]
            yield Difference(f"{kind}: lines", f"line {number} only in {'old' if other is None else 'new'}: {left}")
            return
        before, after = plain_old(one), plain_new(other)
        if json.dumps(before) != json.dumps(after):
            label = f"{kind}: {before.get('type')}"
            if before.get("code") != after.get("code") or before.get("type") != after.get("type"):
                text = f"line {number}\n      old: {json.dumps(before)[:400]}\n      new: {json.dumps(after)[:400]}"
                yield Difference(label, text)
                return  # what follows is moved, which would tell the same again and again
            yield Difference(f"{label} {_differing(before, after)}", _fields(number, before, after))


def _differing(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]
    return ", ".join(names) or "order of keys"


def _fields(number: int, before: dict[str, Any], after: dict[str, Any]) -> str:
    text = f"line {number}: {before.get('code', '')} {before.get('path', '')}"
    for name in {**before, **after}:
        if before.get(name, ...) != after.get(name, ...):
            one, other = (
                json.dumps(side[name])[:300] if name in side else "(no such field)" for side in (before, after)
            )
            text += f"\n      {name}: {one} -> {other}"
    return text


class Plain:
    """Makes the lines of one output comparable."""

    def __init__(self, inodes: bool) -> None:
        self._inodes: dict[int, int] | None = {} if inodes else None

    def __call__(self, line: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(line)
        if "code" in fields:
            fields.pop("message", None)
        if fields.get("type") == "summary":
            fields.pop("seconds", None)
        if self._inodes is not None and fields.get("type") == "partition":
            for file in fields.get("files", ()):
                file["inode"] = self._inodes.setdefault(file["inode"], len(self._inodes))
        return fields


def _first_difference(old: bytes, new: bytes) -> str:
    at = next((number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    line = old.count(b"\n", 0, at) + 1
    start = old.rfind(b"\n", 0, at) + 1
    one, other = (repr(data[start : max(at + 80, start + 160)])[:300] for data in (old, new))
    return f"byte {at}, line {line} ({len(old)} and {len(new)} bytes)\n      old: {one}\n      new: {other}"


# ---- directories

Tree = dict[str, tuple[str, int, object, bytes]]


class Trees:
    """Takes what lies in a directory down in a form that two runs have in common."""

    def __init__(self) -> None:
        # The clock of a file system lags a little behind that of the process.
        self._began_ns = time.time_ns() - 10**9

    def of(self, directory: Path) -> Tree:
        """Kind, mode, time and content of everything below, by relative path."""
        found: Tree = {}
        for folder, folders, names in os.walk(directory):
            for name in folders:
                path = Path(folder, name)
                found[path.relative_to(directory).as_posix()] = "directory", path.lstat().st_mode, None, b""
            for name in names:
                path = Path(folder, name)
                status, data = path.lstat(), path.read_bytes()
                if name.endswith(".jsonl") and ".kdump-undo" in str(path):
                    data = self._journal(data)
                relative = path.relative_to(directory).as_posix()
                found[relative] = "file", status.st_mode, self._time(status.st_mtime_ns), data
        return found

    def _time(self, time_ns: int) -> object:
        return "now" if time_ns >= self._began_ns else time_ns

    def _journal(self, data: bytes) -> bytes:
        """A journal whose stamps have no inodes and no times of now; its checksum has to be right."""
        from crc32c import crc32c

        lines = data.splitlines(keepends=True)
        checked = b"".join(lines[:-1])
        if json.loads(lines[-1]) != {"type": "end", "crc32c": crc32c(checked)}:
            return b"a wrong checksum at the end of " + data
        inodes: dict[int, int] = {}

        def stamp(found: list[int]) -> list[object]:
            size, time_ns, inode = found
            return [size, self._time(time_ns), inodes.setdefault(inode, len(inodes))]

        fields = [json.loads(line) for line in lines[:-1]]
        fields[0]["files"] = {name: stamp(found) for name, found in fields[0]["files"].items()}
        for step in fields[1:]:
            step.update({name: stamp(step[name]) for name in ("before", "after") if step.get(name) is not None})
        return "\n".join(map(json.dumps, fields)).encode()


def compare_trees(what: str, old: Tree, new: Tree) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield Difference(f"{what}: files", f"{name} is only in {'new' if name not in old else 'old'}")
        elif old[name] != new[name]:
            one, other = old[name], new[name]
            if one[3] != other[3]:
                yield Difference(f"{what}: content", f"{name}: {_first_difference(one[3], other[3])}")
            else:
                yield Difference(f"{what}: mode or time", f"{name}: {one[:3]} -> {other[:3]}")


# ---- one item


class Lane:
    """A pair of versions and a folder for them to work in."""

    def __init__(self, old: str, new: str, place: Path, *, fork: bool) -> None:
        place.mkdir(parents=True)
        self._place = self._root = place
        self._pythons = old, new
        self._versions = Version(old), Version(new)
        self._trees = Trees()
        self._fork = fork
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
            for difference in itertools.chain(self._read(item), self._apply(item)):
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
        commands = list(reading(item, random.Random(item.name)))
        before = exact(self._root)
        old, new = (self._run(version, item, *commands) for version in self._versions)
        if exact(self._root) != before:
            yield Difference("reading", "a command that reads has changed something")
        for command, one, other in zip(commands, old, new, strict=True):
            yield from compare_runs(command, one, other)
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
            kept = any(".kdump-undo" in name for name in trees[-1])
            if back != original:
                if kept:
                    which = "old" if version is self._versions[0] else "new"
                    how = f"{what}, undone after {which}"
                    for difference in compare_trees(how, original, back):
                        yield difference._replace(text=f"{difference.text} ({_last_line(undone.err)})")
                self._restore(item)
            ran.append([done, undone])
        yield from compare_trees(what, *trees)
        for which, how in zip(range(2), (command, undo), strict=True):
            yield from compare_runs(how, ran[0][which], ran[1][which], inodes=True)


def exact(directory: Path) -> object:
    """Everything that a command that reads must leave as it is."""
    return sorted(
        (str(path), (status := path.lstat()).st_ino, status.st_mtime_ns, status.st_size)
        for path in directory.rglob("*")
    )


# ---- all items

_lane: Lane


def _begin(old: str, new: str, place: str, fork: bool) -> None:
    global _lane  # noqa: PLW0603  # one for each process of the pool
    _lane = Lane(old, new, Path(place) / str(os.getpid()), fork=fork)


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
    if not chosen.no_fixtures:
        report.add("all fixtures", whole(chosen.old, chosen.new))
    with (
        tempfile.TemporaryDirectory(prefix="kdump-compare-", dir=memory) as place,
        ProcessPoolExecutor(
            chosen.jobs, initializer=_begin, initargs=(chosen.old, chosen.new, place, chosen.fork)
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
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(main())
