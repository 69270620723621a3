"""Calls of all commands on one input, with options that go together."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from fuzz.command_inputs import CommandInput

Call = list[str]
_FORMATS = ("text", "terminal", "json", "json")
_TYPES = ("log", "kafka07", "checkpoint")
_DUMPED_TYPES = (
    *_TYPES,
    "index",
    "timeindex",
    "txnindex",
    "snapshot",
    "epoch-checkpoint",
    "offset-checkpoint",
    "partition-metadata",
    "meta-properties",
    "quorum-state",
    "clean-shutdown",
    "fetch",
    "multifetch",
)
_KAFKA = (
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--print-data-log", "--skip-record-metadata"),
    ("--offsets-decoder",),
    ("--transaction-log-decoder",),
    ("--cluster-metadata-decoder",),
    ("--remote-log-metadata-decoder",),
    ("--share-group-state-decoder",),
    ("--verify-index-only",),
    ("--index-sanity-check",),
)
_DECODE = ("auto", "offsets", "transactions", "metadata", "shares", "remote-log", "none")
_ROWS = ("segment", "partition", "topic", "log_directory", "producer", "codec", "magic", "hour", "group")
_MORE_ROWS = (*_ROWS, "group_partition", "group")
ISOLATIONS = ("read-committed", "read-uncommitted", "all")


def calls(rng: random.Random, given: CommandInput, out: Path) -> Iterator[Call]:
    """Calls that leave the input as it is, then a recovery of it that is undone, and what reads it in between."""
    for make in rng.sample(_READING, 6):
        yield make(rng, given, out)
    place = str(rng.choice((given.root, *given.partitions)))
    how = rng.choice(_STRATEGIES)
    options = _options(rng, ("--rebuild=all",), *(_RECOVERED if how == "--salvage" else ()))
    yield ["recover", how, "-j1", *options, place]
    yield rng.choice((_verify, _dump, _stat))(rng, given, out)
    yield ["recover", "--undo", *_options(rng, ("--force",)), "-j1", place]


def is_applied(call: Call) -> bool:
    """Whether a recovery changes the input, until it is undone."""
    return call[0] == "recover" and call[1] in _STRATEGIES


def _options(rng: random.Random, *groups: tuple[str, ...]) -> Call:
    """Of each group nothing, or one of it."""
    return [rng.choice(group) for group in groups if rng.random() < 0.25]


def _path(rng: random.Random, given: CommandInput, *, of: str = "") -> str:
    """The directory above, one of a partition, or a file."""
    files = [path for path in given.files() if path.name.endswith(of)]
    return str(rng.choice((given.root, rng.choice(given.partitions), rng.choice(files or given.partitions))))


def _limits(rng: random.Random) -> Call:
    return _options(rng, tuple(f"--max-batch-bytes={size}" for size in (1, 61, 300, 1 << 20, 1 << 26)))


def _ranges(rng: random.Random) -> str:
    numbers = ("", "0", "1", "7", "300", "-3", str(2**31), str(2**63 - 1))
    return f"{rng.choice(numbers)}:{rng.choice(numbers)}"


# --------------------------------------------------------------------------------------------------------------- dump


def _dump(rng: random.Random, given: CommandInput, out: Path) -> Call:
    style = rng.choice(("text", "terminal", "json", "json", "csv", "values", "hex", "template"))
    call = ["dump", f"--format={style}"] if style != "template" else ["dump", r"--template=%t %p %o %k=%s %T %h %R\n"]
    if style in ("text", "terminal", "json"):
        call += _options(rng, ("--batches", "--records", "--count"), ("--color=always", "-q"))
        call += _options(rng, ("--time-zone=Europe/Berlin",))
    call += _options(
        rng,
        ("--force", "--control", *(f"--isolation={name}" for name in ISOLATIONS)),
        tuple(f"--decode={name}" for name in _DECODE),
        tuple(f"--bytes={name}" for name in ("auto", "base64", "hex", "utf8")),
    )
    call += _options(rng, tuple(f"--type={name}" for name in _DUMPED_TYPES)) if rng.random() < 0.4 else []
    if rng.random() < 0.5:
        call += _options(
            rng,
            (f"--offset={_ranges(rng)}", "--last=1", "--last=4", "-n1", "-n0", "-n5"),
            ("--key=k*", "--key=null", "--key=/[a-z]+/", "--value=hex:00", "--header=h", "--tombstones"),
            ("--producer=0", "--producer=1:0", "--transactional-id=t"),
            ("--time=0:1700000000000", "--time=end-1h:", "--time=-1h:", "--time=4102444800000:", "--time=:9"),
            ("--order=time", "--order=offset"),
            ("--max-bytes=1", "--max-bytes=100", "--max-bytes=5000"),
            ("--schemas=auto",),
            ("--topic=t", "--partition=0"),
        )
    return [*call, *_limits(rng), _path(rng, given)]


def _dump_as_tool(rng: random.Random, given: CommandInput, out: Path) -> Call:
    return ["dump", "--format=kafka", *rng.choice(_KAFKA), *_limits(rng), _path(rng, given)]


def _dump_companion(rng: random.Random, given: CommandInput, out: Path) -> Call:
    """A file that is no log, which is shown only where it is named."""
    files = [path for path in given.files() if path.suffix != ".log"] or given.files() or [given.root]
    return [
        "dump",
        f"--format={rng.choice(_FORMATS)}",
        *_options(rng, ("-n1",), ("--offset=2:",)),
        *map(str, files[:9]),
    ]


def _dump_at(rng: random.Random, given: CommandInput, out: Path) -> Call:
    at = rng.choice(("0", "1", "7", "300", str(2**62), "earliest", "latest", "@0", "@1600000000000"))
    style = rng.choice(("json", "text", "fetch", "hex"))
    call = ["dump", f"--at={at}", f"--format={style}", *_options(rng, ("--max-bytes=1", "--max-bytes=500"))]
    return [*call, *_limits(rng), str(rng.choice(given.partitions))]


def _dump_image(rng: random.Random, given: CommandInput, out: Path) -> Call:
    call = ["dump", "--metadata-image", f"--format={rng.choice(('text', 'json'))}"]
    named = [path for path in given.partitions if path.name.startswith("__cluster_metadata")] or given.partitions
    return [*call, *_options(rng, ("--diff=0:", "--diff=3:9", "--offset=5"), ("--secrets",)), str(rng.choice(named))]


# ------------------------------------------------------------------------------------------ verify, recover, stat


def _verify(rng: random.Random, given: CommandInput, out: Path) -> Call:
    call = ["verify", "-j1", f"--format={rng.choice(_FORMATS)}", *_options(rng, ("--deep",), ("--deep",), ("--deep",))]
    call += _options(
        rng,
        ("--compacted=yes", "--compacted=no"),
        ("--all",),
        ("--summary",),
        ("-v",),
        ("--level=info", "--level=error"),
        ("--fail-on=never", "--fail-on=info"),
        ("--no-companions",),
        ("--live",),
        ("--ignore=batch",),
    )
    call += _options(rng, tuple(f"--type={name}" for name in _TYPES)) if rng.random() < 0.2 else []
    return [*dict.fromkeys(call), *_limits(rng), _path(rng, given)]


_STRATEGIES = ("--truncate", "--salvage", "--salvage", "--reindex")
_RECOVERED = (("--undecided=drop", "--undecided=keep"),)


def _preview(rng: random.Random, given: CommandInput, out: Path) -> Call:
    how = rng.choice(((), ("--truncate", "--dry-run"), ("--salvage", "--dry-run"), ("--reindex", "--dry-run")))
    call = ["recover", "-j1", *how, f"--format={rng.choice(_FORMATS)}"]
    if not how or "--truncate" in how:
        call += _options(rng, tuple(f"--from={name}" for name in ("checkpoint", "newest", "all")))
    call += _options(rng, ("--all",), ("--index-interval-bytes=1", "--index-interval-bytes=300"), ("--level=info",))
    return [*call, *_limits(rng), str(rng.choice((given.root, *given.partitions)))]


def _repaired_copy(rng: random.Random, given: CommandInput, out: Path) -> Call:
    call = ["recover", "-j1", rng.choice(("--truncate", "--salvage")), f"--output={out / 'copy'}"]
    return [*call, *_limits(rng), str(rng.choice((given.root, *given.partitions)))]


def _stat(rng: random.Random, given: CommandInput, out: Path) -> Call:
    rows = rng.choice(_MORE_ROWS)
    style = rng.choice(("text", "terminal", "json", "csv"))
    call = ["stat", "-j1", f"--format={style}", f"--by={rows}"]
    call += _options(rng, ("--deep",), ("--open-wrappers",), ("--top=1", "--top=0"), ("--bucket=10m", "--bucket=1d"))
    if style != "csv":
        call += _options(rng, *((f"--by={name}",) for name in _ROWS if name != rows), ("--idle=1d",))
        call += _options(rng, ("--retention",), ("--compaction",), ("--upgrade",), ("--free=1k", "--free=50g"))
    call += _options(rng, tuple(f"--type={name}" for name in _TYPES)) if rng.random() < 0.2 else []
    return [*dict.fromkeys(call), *_limits(rng), _path(rng, given)]


def _stat_groups(rng: random.Random, given: CommandInput, out: Path) -> Call:
    return ["stat", "-j1", "--by=group", "--by=group_partition", f"--format={rng.choice(_FORMATS)}", str(given.root)]


# -------------------------------------------------------------------------------------------------------------- convert


def _convert(rng: random.Random, given: CommandInput, out: Path) -> Call:
    target = rng.choice(("parquet", "parquet", "arrow", "ndjson", "csv"))
    call = ["convert", "-j1", f"--to={target}", "-o", str(out / f"table-{rng.randrange(1 << 30)}")]
    call += _options(
        rng,
        ("--isolation=all", "--isolation=read-uncommitted", "--until=last-stable-offset"),
        tuple(f"--keys={name}" for name in ("binary", "utf8", "json")),
        tuple(f"--values={name}" for name in ("binary", "utf8", "json")),
        ("--schemas=auto",),
        ("--time=0:1700000000000",),
        ("--replica=all", "--replica=refuse"),
        ("--dry-run",),
    )
    if target == "parquet":
        call += _options(rng, ("--partition-folders",), ("--codec=none", "--codec=gzip", "--codec=snappy"))
    return [*call, *_scope(rng), *_limits(rng), _path(rng, given, of=".log")]


def _convert_to_log(rng: random.Random, given: CommandInput, out: Path) -> Call:
    call = ["convert", "-j1", "--to=log", "-o", str(out / f"log-{rng.randrange(1 << 30)}")]
    call += _options(
        rng,
        ("--codec=none", "--codec=gzip", "--codec=lz4", "--codec=zstd:1", "--codec=snappy"),
        ("--segment-bytes=14", "--segment-bytes=300"),
        tuple(f"--isolation={name}" for name in ISOLATIONS),
        ("--dry-run",),
    )
    return [*call, *_scope(rng), *_limits(rng), _path(rng, given, of=".log")]


def _scope(rng: random.Random) -> Call:
    return [
        "--include=internal",
        *_options(rng, ("--include=deleted", "--include=delete"), ("--strict", "--skip-damaged")),
        *_options(rng, (f"--format={rng.choice(_FORMATS)}",)),
    ]


def _arrow(rng: random.Random, given: CommandInput, out: Path) -> Call:
    """The library's kdump.arrow, written as a call: isolation, largest batch, path."""
    return ["arrow", rng.choice(ISOLATIONS), str(rng.choice((1, 300, 1 << 26, 1 << 26))), _path(rng, given, of=".log")]


_READING: tuple[Callable[[random.Random, CommandInput, Path], Call], ...] = (
    _dump,
    _dump,
    _dump_as_tool,
    _dump_companion,
    _dump_at,
    _dump_image,
    _verify,
    _verify,
    _preview,
    _preview,
    _repaired_copy,
    _stat,
    _stat,
    _stat_groups,
    _convert,
    _convert,
    _convert_to_log,
    _arrow,
)
