"""What two versions of kdump are compared on: the fixtures, mutated partitions, and the commands that run there."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from support import build, damage, damage_partition, directories
from support.version_worker import Command

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LATE_S = 1_900_000_000
"""Later than every timestamp in the fixtures."""
FILE_TIME_S = 1_500_000_000
LARGEST_BYTES = 200 << 10
"""Fixture partitions above this size are not mutated."""


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
    """Where a partition comes from, its files, and whether those of a log directory's root are among them."""
    files: dict[str, bytes | None]
    if (kind := rng.random()) < 0.65:
        path = rng.choice(sources())
        origin, name, inside = path.relative_to(FIXTURES).as_posix(), path.name, read_files(path)
    elif kind < 0.95:
        origin, name = "made", "made-0"
        built = directories.built(rng, removed=rng.choice((0.0, 0.0, 0.3)))
        inside = {inner: data for inner, data in built.items() if isinstance(data, bytes)}
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
    yield from _measuring(item)


MEASURED = ("segment", "partition", "topic", "log_directory", "producer", "codec", "magic", "hour")
REPORTS = ("--retention", "--compaction", "--upgrade", "--free", "1k", "--idle", "1h")


def _measuring(item: Item) -> Iterator[Command]:
    """The numbers in each format, of every kind of rows."""
    by = [word for kind in MEASURED for word in ("--by", kind)]
    yield ["stat", "--format", "json", item.target]
    yield ["stat", "--deep", *by, "--format", "json", item.target]
    yield ["stat", "--deep", "--compaction", "--retention", "--format", "json", item.target]
    yield ["stat", *REPORTS, "--format", "text", item.target]
    yield ["stat", "--open-wrappers", *by, "--format", "text", item.target]
    for kind in ("segment", "partition", "topic"):
        yield ["stat", "--deep", "--by", kind, "--format", "csv", item.target]
    yield ["stat", "--format", "terminal", item.target]
    yield ["stat", "--deep", *by, "--sort", "records", "--format", "terminal", item.target]
    yield ["stat", "--deep", *REPORTS, "--format", "terminal", item.target]
    yield ["stat", "--by", "group", "--by", "group_partition", "--format", "json", item.target]
    yield ["stat", "--by", "group", "--format", "terminal", item.target]


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
