"""The rows of the table: what is measured against what, and the target.

`at_most`: (subject less allowance) ÷ reference. `at_least`: reference ÷ subject. Without a target a row only informs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from .datasets import Data
from .measure import Command
from .tools import Tools

CODECS = ("zstd", "gzip", "snappy", "lz4")
READS = 100_000
APPENDED_BYTES = 1 << 30
FORBIDDEN_IMPORTS = ("pyarrow", "numpy", "pyspark", "rich")


class Kind(Enum):
    """How a row's number comes about, and its unit."""

    AT_MOST = "x"
    AT_LEAST = "x faster"
    PEAK = "MiB"
    IMPORTS = "imports"
    PER_SEGMENT = "ms a segment"
    PER_READ = "us a read"
    SECONDS = "s"


Make = Callable[[Tools, Data], Command]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `data` names the data set; the commands are made from it.

    `reference_data`: another data set for the reference.
    `allowance`: a command whose time is taken off the subject's.
    `floor`: a peer's time is also given as a multiple of it.
    """

    name: str
    data: str
    kind: Kind
    target: float | None
    subject: Make
    reference: Make | None = None
    allowance: Make | None = None
    floor: Make | None = None
    reference_data: str | None = None


def _help(tools: Tools, _: Data) -> Command:
    return tools.kdump("--help")


def _floor(tools: Tools, data: Data) -> Command:
    return tools.floor(data)


def _floor_of_one(tools: Tools, data: Data) -> Command:
    return tools.floor(data.first())


def _verify(*options: str) -> Make:
    return lambda tools, data: tools.verify(data, "--jobs", "1", *options)


def _verify_one(*options: str) -> Make:
    return lambda tools, data: tools.verify(data.first(), "--jobs", "1", *options)


def _verify_directory(jobs: int, *options: str) -> Make:
    return lambda tools, data: tools.verify(data, "--jobs", str(jobs), *options, path=str(data.directory))


def budgets() -> Iterator[Row]:
    """verify against the C loop and the bare decompress loops."""
    at_most, at_least = Kind.AT_MOST, Kind.AT_LEAST
    for name, target in (("plain", 1.25), ("idempotent", 1.4), ("transactional", 1.4), ("compacted", 1.3)):
        yield Row(f"verify-{name}-x4", name, at_most, target, _verify_directory(1), _floor)
        yield Row(f"verify-{name}", name, at_most, target, _verify_one(), _floor_of_one, _help)
    yield Row("verify-one-record", "one-record", at_most, 4, _verify(), _floor, _help)
    yield Row("verify-magic1", "magic1", at_most, None, _verify(), _floor, _help)
    yield Row("deep-plain", "plain", at_most, 3, _verify_one("--deep"), _floor_of_one, _help)
    yield Row("deep-one-record", "one-record", at_most, None, _verify("--deep"), _floor, _help)
    yield Row("deep-magic1", "magic1", at_most, None, _verify("--deep"), _floor, _help)
    targets = {"64k": (0.85, 0.88, 0.78, 0.70), "1k": (0.75, 0.78, 0.58, 0.58)}
    for size, of_size in targets.items():
        for codec, target in zip(CODECS, of_size, strict=True):
            yield Row(f"deep-{codec}-{size}", f"{codec}-{size}", at_least, target, _verify("--deep"), _bare(codec))


def jobs() -> Iterator[Row]:
    """Two processes against one, on a directory of segments."""
    two, one = _verify_directory(2), _verify_directory(1)
    yield Row("jobs-plain", "plain", Kind.AT_LEAST, None, two, one)
    two, one = _verify_directory(2, "--deep"), _verify_directory(1, "--deep")
    yield Row("jobs-deep-plain", "plain", Kind.AT_LEAST, 1.6, two, one)
    for size in ("64k", "1k"):
        for codec in CODECS:
            yield Row(f"jobs-deep-{codec}-{size}", f"{codec}-{size}", Kind.AT_LEAST, 1.6, two, one)


def scale() -> Iterator[Row]:
    """A log directory of 2,000 partitions with 10 small segments each: the work a segment, the first line, two
    processes."""
    one, two = _verify_directory(1), _verify_directory(2)
    yield Row("many-segment", "many", Kind.PER_SEGMENT, 1, one, allowance=_help)
    yield Row("many-segment-deep", "many", Kind.PER_SEGMENT, 1, _verify_directory(1, "--deep"), allowance=_help)
    yield Row("many-first-line", "many", Kind.SECONDS, 2, _first_line)
    yield Row("many-jobs", "many", Kind.AT_LEAST, 1.6, two, one)
    yield Row("memory-many", "many", Kind.PEAK, 40, one)


def _first_line(tools: Tools, data: Data) -> Command:
    verify = tools.kdump("verify", "--summary", "--format", "json", "--progress", str(data.directory))
    return tools.python("-m", "tests.bench.first_line", *verify.argv)


def start() -> Iterator[Row]:
    """`kdump --help` against the bare interpreter."""
    small = "plain-32m"
    yield Row("help", small, Kind.AT_MOST, 5, _help, lambda tools, _: tools.python("-c", "pass"))
    yield Row("help-imports", small, Kind.IMPORTS, 0, lambda tools, _: tools.kdump_imports("--help"))


def memory() -> Iterator[Row]:
    """Peak memory of the largest process."""
    for name in ("plain", "idempotent", "one-record"):
        yield Row(f"memory-verify-{name}", name, Kind.PEAK, 40, _verify_directory(1))
    for name in ("plain", "one-record", "magic1", *(f"{codec}-64k" for codec in CODECS)):
        yield Row(f"memory-deep-{name}", name, Kind.PEAK, 64, _verify_directory(1, "--deep"))


def peers() -> Iterator[Row]:
    """verify against other readers of the same file."""
    shallow = {"plain": 8, "one-record": 50, "zstd-64k": 12}
    deep = {"plain": 30, "one-record": 60, "zstd-64k": 10, "gzip-64k": 9, "snappy-64k": 14, "lz4-64k": 16}
    for name, target in shallow.items():
        yield _peer(f"dump-tool-{name}", name, target, _dump_tool())
    for name, target in deep.items():
        yield _peer(f"dump-tool-deep-{name}", name, target, _dump_tool("--deep-iteration"), "--deep")
    for name, faster in (("plain", 10), ("zstd-64k", 2.8)):
        yield _peer(f"aiokafka-{name}", name, faster, lambda tools, data: tools.aiokafka(data.first()), "--deep")
    for name, faster in (("plain", 5), ("one-record", 5), ("zstd-64k", 3)):
        yield _peer(f"franz-go-{name}", name, faster, lambda tools, data: tools.franz(data.first()), "--deep")


def indexes() -> Iterator[Row]:
    """Checks of one index against the dump tool's, and that the time index check is linear."""
    index, time_index = _verify_companion(".index"), _verify_companion(".timeindex")
    yield Row("index", "plain", Kind.AT_LEAST, 8, index, _companion_tool(".index"))
    yield Row("time-index-32m", "plain-32m", Kind.AT_LEAST, 20, time_index, _companion_tool(".timeindex"))
    yield Row("time-index-linear", "plain", Kind.AT_MOST, 40, time_index, time_index, reference_data="plain-32m")


def dumps() -> Iterator[Row]:
    """Text and JSON lines of every record, and of the commits of groups as messages."""
    text, tool = _kdump("dump", "--records", "--format", "text"), _dump_tool("--print-data-log")
    for name, data, target in (("", "plain", 20), ("-one-record", "one-record", 20), ("-zstd", "zstd-64k", None)):
        yield Row(f"dump-text{name}", data, Kind.AT_LEAST, target, text, tool, floor=_floor_of_one)
    decoder = _dump_tool("--offsets-decoder")
    for form in ("text", "json"):
        row = _kdump("dump", "--records", "--format", form)
        yield Row(f"dump-offsets-{form}", "__consumer_offsets", Kind.AT_LEAST, 20, row, decoder, floor=_floor_of_one)
    lines = ("dump", "--records", "--format", "json")
    yield Row("dump-json", "plain", Kind.AT_LEAST, 8, _kdump(*lines), lambda tools, data: tools.orjson(data.first()))


def recover() -> Iterator[Row]:
    """A plan against a verify of the same directory; everything rebuilt, against the log loader of a broker in a
    fresh JVM."""
    yield Row("recover-plan", "plain", Kind.AT_MOST, 1.15, _recover_plan, _verify_directory(1))
    yield Row("recover-plan-many", "many", Kind.AT_MOST, 1.15, _recover_plan, _verify_directory(1))
    for name, data, target in (
        ("x4", "plain", 4),
        ("one-record", "one-record", 25),
        ("idempotent-x4", "idempotent", None),
    ):
        yield Row(f"recover-{name}", data, Kind.AT_LEAST, target, _recover, lambda tools, data: tools.loader(data))
    for name, target in (("flipped-bit", 2.0), ("flipped-bit-transactional", None), ("damaged", None)):
        yield Row(f"verify-{name}", name, Kind.AT_MOST, target, _verify_damaged, _floor, _help)
        yield Row(f"recover-plan-{name}", name, Kind.AT_MOST, target, _recover_damaged, _verify_damaged)
        yield Row(f"memory-recover-plan-{name}", name, Kind.PEAK, 64, _recover_damaged)
        for strategy in ("truncate", "salvage"):
            yield Row(f"recover-{strategy}-{name}", name, Kind.AT_MOST, None, _recovery(strategy), _verify_damaged)
    for name in ("plain", "one-record", "idempotent"):
        yield Row(f"memory-recover-{name}", name, Kind.PEAK, 64, _recover)


def stat() -> Iterator[Row]:
    """Headers alone against verify, all records against verify of all records; its peak memory."""
    at_most = Kind.AT_MOST
    for name, target in (("plain", 0.5), ("one-record", 0.8)):
        yield Row(f"stat-{name}", name, at_most, target, _stat(), _verify_directory(1), _help)
        yield Row(f"memory-stat-{name}", name, Kind.PEAK, 192, _stat())
    for name, target in (("plain", 10), ("zstd-64k", 3)):
        yield Row(f"stat-deep-{name}", name, at_most, target, _stat("--deep"), _verify_directory(1, "--deep"), _help)
        yield Row(f"memory-stat-deep-{name}", name, Kind.PEAK, 192, _stat("--deep"))


def convert() -> Iterator[Row]:
    """Records as columns of Arrow against verify and against a call a batch; NDJSON of them against orjson."""
    at_least, nothing = Kind.AT_LEAST, _arrow("import")
    for name in ("plain", "one-record"):
        yield Row(f"arrow-{name}", name, at_least, 0.45, _arrow("batches"), _verify_directory(1), nothing)
    yield Row("arrow-calls", "one-record", at_least, 8, _arrow("batches"), _arrow("calls"), nothing)
    yield Row("convert-ndjson", "plain", at_least, 8, _arrow("ndjson"), _arrow("orjson"), nothing)


def spark() -> Iterator[Row]:
    """A verify on two slots of Spark against two processes, 8 GiB, the second job of a session."""
    yield Row("spark-verify", "plain", Kind.AT_LEAST, 0.3, _on_two("spark"), _on_two("processes"))


def logs() -> Iterator[Row]:
    """The log class: appends against a bare write of the same bytes, and reads at random."""
    append, write = _append("log", APPENDED_BYTES), _append("write", APPENDED_BYTES)
    yield Row("log-append", "log", Kind.AT_LEAST, 0.5, append, write)
    yield Row("log-read", "log", Kind.PER_READ, 20, _read(READS), allowance=_read(0))


def fingerprints() -> Iterator[Row]:
    """A fingerprint against verify of all records, and 5,000 topic-partitions of two fingerprint files compared."""
    deep = _verify_directory(1, "--deep")
    for name, data, target in (
        ("delete", "plain", 1.3),
        ("delete-one-record", "one-record", 1.3),
        ("delete-lz4", "lz4-64k", 1.3),
        ("delete-zstd", "zstd-64k", 1.3),
        ("transactional", "transactional", None),
        ("compacted", "compacted", 2),
    ):
        yield Row(f"fingerprint-{name}", data, Kind.AT_MOST, target, _fingerprint, deep)
    yield Row("memory-fingerprint-compacted", "compacted", Kind.PEAK, 256, _fingerprint)
    yield Row("compare-5000-files", "plain", Kind.SECONDS, 1, _compared_files(5000))


def _fingerprint(tools: Tools, data: Data) -> Command:
    written = str(data.directory.parent / "fingerprint")
    return tools.kdump("verify", "--fingerprint", written, "--full", "--jobs", "1", str(data.directory))


def _compared_files(count: int) -> Make:
    def make(tools: Tools, data: Data) -> Command:
        script = tools.module("tests.bench.fingerprint_files", str(data.directory), str(count))
        return replace(script, expect={"agree": count}, timed=True)

    return make


def all_rows() -> list[Row]:
    """Every row, in the order of the table."""
    groups = (
        budgets,
        jobs,
        scale,
        start,
        memory,
        dumps,
        indexes,
        recover,
        stat,
        convert,
        spark,
        logs,
        fingerprints,
        peers,
    )
    return [row for group in groups for row in group()]


def _recover_plan(tools: Tools, data: Data) -> Command:
    return tools.kdump("recover", "--jobs", "1", str(data.directory))


def _verify_damaged(tools: Tools, data: Data) -> Command:
    return tools.kdump("verify", "--jobs", "1", "--fail-on", "never", str(data.directory))


def _recover_damaged(tools: Tools, data: Data) -> Command:
    return tools.kdump("recover", "--jobs", "1", str(data.directory), status=1)


def _recovery(strategy: str) -> Make:
    return lambda tools, data: tools.recover_damaged(data, strategy)


def _recover(tools: Tools, data: Data) -> Command:
    how = ("--truncate", "--from", "all", "--rebuild", "all", "--no-keep")
    return tools.kdump("recover", *how, str(tools.scratch(data)))


def _stat(*options: str) -> Make:
    return lambda tools, data: tools.kdump("stat", "--jobs", "1", *options, str(data.directory))


def _arrow(how: str) -> Make:
    return lambda tools, data: tools.arrow(data, how)


def _on_two(how: str) -> Make:
    return lambda tools, data: tools.on_two(data, how)


def _append(how: str, size: int) -> Make:
    return lambda tools, data: tools.append(data, how, size)


def _read(count: int) -> Make:
    return lambda tools, data: tools.read(data, count)


def _bare(codec: str) -> Make:
    return lambda tools, data: tools.bare(data, codec)


def _dump_tool(*options: str) -> Make:
    return lambda tools, data: tools.dump_tool(data.first().files, *options)


def _kdump(*arguments: str) -> Make:
    return lambda tools, data: tools.kdump(*arguments, *data.first().files)


def _verify_companion(suffix: str) -> Make:
    return lambda tools, data: tools.kdump("verify", "--jobs", "1", str(data.segments[0].path.with_suffix(suffix)))


def _companion_tool(suffix: str) -> Make:
    return lambda tools, data: tools.dump_tool((str(data.segments[0].path.with_suffix(suffix)),), "--verify-index-only")


def _peer(name: str, data: str, target: float, peer: Make, *options: str) -> Row:
    return Row(name, data, Kind.AT_LEAST, target, _verify_one(*options), peer, floor=_floor_of_one)
