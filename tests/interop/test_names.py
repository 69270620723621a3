"""What the log loader of a broker does with the names that kdump knows, and with those that it complains of."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

from kdump.format.naming import number_of, topic_partition_of
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.verify.checks import producer_snapshots
from support import build
from verify.checks.test_files import BELONGS, FIVE, ODD, SOUND, ZERO

LOADER = Path(__file__).with_name("Loader.java")
NAMES = Path(__file__).with_name("Names.java")
PIECES = (
    *(
        "t",
        "a.b",
        "-",
        "-",
        "-",
        ".",
        ".",
        "_",
        "+",
        " ",
        "0",
        "5",
        "007",
        "2147483647",
        "2147483648",
        "9223372036854775807",
    ),
    *(
        "9223372036854775808",
        "\u0663",
        "\u00b2",
        "\u00f6",
        "3ee7cc0af0c147a1b23e6c9a6c99a490",
        "-delete",
        "-future",
        "-stray",
    ),
    *("log", "index", "\u2007", "\x0b"),
)
TOPIC_ID = "mwJ-D-tiSwSrr_TIGJF7hA"
LOGS = {
    ZERO: b"".join(build.batch([build.record(b"k", b"v")], base_offset=offset) for offset in range(5)),
    FIVE: b"".join(build.batch([build.record(b"k", b"v")], base_offset=offset) for offset in range(5, 9)),
}


def content(name: str) -> bytes:
    """What makes a file of that name sound; a number of bytes where no one reads it."""
    if name.endswith((".index", ".timeindex", ".txnindex")):
        return b""
    if name.endswith(".snapshot"):
        return build.producer_snapshot()
    if name == "leader-epoch-checkpoint":
        return build.checkpoint("0 0")
    if name == "partition.metadata":
        return f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    return LOGS.get(name.partition(".")[0], b"some bytes")


def built(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True)
    for name in (*SOUND, *names):
        (directory / name).write_bytes(content(name))
    return directory


def load(kafka: ModuleType, directories: list[Path]) -> list[dict[str, Any]]:
    # From the last segment on, so that snapshots below it are not rebuilt.
    lines = "".join(f"{directory}\t9\t0\n" for directory in directories)
    quiet = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    done = kafka.run_source(kafka.NEWEST, LOADER, stdin=lines.encode(), flags=quiet)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def stray(directory: Path, name: str) -> str | None:
    (partition,) = discover([str(directory)])
    assert isinstance(partition, Partition)
    return next((stray.what for stray in partition.misplaced_files if stray.path == str(directory / name)), None)


def fits(name: str, what: str | None, loaded: dict[str, Any]) -> bool:
    """Whether the loader did what kdump says of the name."""
    if what == "number":
        return not loaded["loaded"] and loaded["exception"] == "NumberFormatException"
    stays = loaded["files"].get(name) == len(content(name))
    match what:
        case "deleted" | "cleaned" | "swap" | "swap-dropped" | "index":
            done = name not in loaded["files"]
        case "short" | "negative":
            done = stays and loaded["log_end_offset"] == 9
        case "tmp":
            done = True  # a writer of the checkpoint begins with a new one
        case "unknown":
            done = stays
        case _:
            done = name in loaded["files"] or name.endswith((".checkpoint.deleted", "remote_log_snapshot"))
    return bool(loaded["loaded"] and done)


def test_names(kafka: ModuleType, tmp_path: Path) -> None:
    names = [*BELONGS, *(name for name, *_ in ODD)]
    directories = [built(tmp_path / str(number) / "t-0", name) for number, name in enumerate(names)]
    said = [stray(directory, name) for directory, name in zip(directories, names, strict=True)]
    loaded = load(kafka, directories)
    assert len(loaded) == len(names)
    wrong = [
        (name, what, result)
        for name, what, result in zip(names, said, loaded, strict=True)
        if not fits(name, what, result)
    ]
    assert not wrong


def test_segments_by_odd_names(kafka: ModuleType, tmp_path: Path) -> None:
    """A broker makes an empty segment of the number and never reads the file."""
    short, negative = load(kafka, [built(tmp_path / "a" / "t-0", "12.log"), built(tmp_path / "b" / "t-0", "-1.log")])
    assert short["segments"] == [[0, len(LOGS[ZERO])], [5, len(LOGS[FIVE])], [12, 0]]
    assert short["files"]["12.log"] == len(content("12.log"))
    assert [-1, 0] in negative["segments"]


def test_replacements(kafka: ModuleType, tmp_path: Path) -> None:
    """A replacement removes what is in its range, and is itself removed after an unfinished split."""
    alone = built(tmp_path / "a" / "t-0", f"{ZERO}.log.swap")
    after = built(tmp_path / "b" / "t-0", f"{FIVE}.log.swap", f"{FIVE}.log.cleaned", f"{ZERO}.index.cleaned")
    assert stray(alone, f"{ZERO}.log.swap") == "swap"
    assert stray(after, f"{FIVE}.log.swap") == "swap-dropped"
    (alone / f"{3:020}.snapshot").write_bytes(build.producer_snapshot())
    replaced, dropped = load(kafka, [alone, after])
    assert f"{3:020}.snapshot" not in replaced["files"]
    assert replaced["log_end_offset"] == dropped["log_end_offset"] == 9
    assert not [name for name in (*replaced["files"], *dropped["files"]) if name.endswith((".swap", ".cleaned"))]


def test_snapshots(kafka: ModuleType, tmp_path: Path) -> None:
    """Those that `snapshot/name` is about are deleted, the others stay."""
    for number, offsets in enumerate([(2, 3, 9), (2,), (9,), (7, 9), (5,)]):
        directory = built(tmp_path / str(number) / "t-0", *(f"{offset:020}.snapshot" for offset in offsets))
        (partition,) = discover([str(directory)])
        assert isinstance(partition, Partition)
        odd = {finding.offset for finding in producer_snapshots.check_names(partition.producer_snapshots, (0, 5), 9)}
        (loaded,) = load(kafka, [directory])
        assert {offset for offset in offsets if f"{offset:020}.snapshot" not in loaded["files"]} == odd


def test_what_a_name_says(kafka: ModuleType) -> None:
    chosen = random.Random(7)
    names = {"".join(chosen.choices(PIECES, k=chosen.randrange(1, 8))) for _ in range(20_000)}
    wanted = sorted(name for name in names if name not in (".", ".."))
    done = kafka.run_source(kafka.NEWEST, NAMES, stdin="".join(f"{name}\n" for name in wanted).encode())
    reported = [line.split("\t") for line in done.stdout.decode().split("\n")[:-1]]
    assert len(reported) == len(wanted)
    wrong = []
    for name, (partition, topic, number) in zip(wanted, reported, strict=True):
        place = topic_partition_of(name)
        said = ("-", "-") if place is None else (str(place.partition), place.topic)
        offset = number_of(name)
        if said != (partition, topic) or number != ("-" if offset is None else str(offset)):
            wrong.append((name, said, offset, (partition, topic, number)))
    assert not wrong
    assert sum(partition != "-" for partition, _, _ in reported) > 100
    assert sum(number != "-" for _, _, number in reported) > 100
