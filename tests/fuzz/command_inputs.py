"""What the commands get: directories of the fixtures and made ones, and files of other bytes, after something happened
to them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fuzz import corpus
from support import damage_partition, directories, misplaced_blocks, oracle
from support.damage import NotApplicable
from support.salvage_faults import partitions

LARGEST = 150_000  # bytes of a directory of the fixtures, so that most calls take milliseconds


class CommandInput(NamedTuple):
    """Files on disk: all below `root`, and the directories in it that stand for a partition."""

    root: Path
    partitions: list[Path]

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())


def prepare() -> None:
    """Read what all cases share, before processes are forked."""
    corpus.small_pieces()
    _partitions()
    _log_directories()
    misplaced_blocks.written_logs()


def command_input(rng: random.Random, room: Path) -> CommandInput:
    """The input of a case, written to an empty directory."""
    root = room / "data"
    root.mkdir()
    rng.choice(_MAKERS)(rng, root)
    found = sorted(path for path in root.iterdir() if path.is_dir())
    return CommandInput(root, found or [root])


# ----------------------------------------------------------------------------------------------------------- the files


def _read(directory: Path) -> dict[str, bytes]:
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in paths
        if path.name != "case.toml" and "expected" not in path.relative_to(directory).parts
    }


@cache
def _partitions() -> tuple[tuple[str, dict[str, bytes], dict[str, bytes]], ...]:
    """Name, files, and the files of the directory above, of the partitions of the fixtures."""
    found = []
    for place in partitions():
        inside = _read(place)
        if sum(map(len, inside.values())) <= LARGEST:
            above = {path.name: path.read_bytes() for path in sorted(place.parent.iterdir()) if path.is_file()}
            above.pop("case.toml", None)
            above.pop("README.md", None)
            found.append((place.name, inside, above))
    return tuple(found)


@cache
def _log_directories() -> tuple[dict[str, bytes], ...]:
    """The files of the small log directories of the fixtures."""
    places = sorted(path.parent for path in corpus.FIXTURES.glob("*/meta.properties"))
    found = [_read(place) for place in (*places, corpus.FIXTURES / "image", corpus.FIXTURES / "metadata")]
    return tuple(files for files in found if files and sum(map(len, files.values())) <= 2 * LARGEST)


def _put(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


# ------------------------------------------------------------------------------------------------------- what happened


def _damage(rng: random.Random, directory: Path) -> None:
    """A named damage of a partition, or one of the bytes of a log or of another file in it."""
    names = sorted(damage_partition.DAMAGES)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if rng.random() < 0.5:
            try:
                damage_partition.apply(rng.choice(names), directory, rng)
            except (NotApplicable, oracle.Malformed, struct.error, ValueError, IndexError):
                continue  # made for sound partitions
        else:
            _edit(rng, directory)


def _edit(rng: random.Random, directory: Path) -> None:
    """Bytes of one file changed; those of a log in all the ways of the corpus, also under a right checksum."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    if not paths:
        return
    path = rng.choice(paths)
    data = path.read_bytes()
    if path.name.endswith((".log", ".checkpoint")) and len(data) < LARGEST // 4:
        data = corpus.changed(data, rng)
    else:
        data = corpus.edited(data, rng)
    path.write_bytes(data)


def _fixture(rng: random.Random, root: Path) -> None:
    name, inside, above = rng.choice(_partitions())
    _put(root / name, inside)
    if rng.random() < 0.5:
        _put(root, above)
        if rng.random() < 0.5:
            _edit(rng, root)
    _damage(rng, root / name)


def _several(rng: random.Random, root: Path) -> None:
    _put(root, rng.choice(_log_directories()))
    for _ in range(rng.randrange(1, 6)):
        _edit(rng, root)


def _made(rng: random.Random, root: Path) -> None:
    directories.write(root / "t-0", directories.built(rng))
    _damage(rng, root / "t-0")


def _misplaced(rng: random.Random, root: Path) -> None:
    case = misplaced_blocks.misplaced_block(rng.randrange(1 << 30))
    _put(root / "t-0", case.logs)
    if rng.random() < 0.3:
        _damage(rng, root / "t-0")


def _segment(rng: random.Random, root: Path) -> None:
    """One or two mutated segments, of which nothing else is known."""
    place = root / rng.choice(("t-0", "__consumer_offsets-3", "__transaction_state-1", "__cluster_metadata-0"))
    for _ in range(rng.choice((1, 1, 2))):
        data, base = corpus.mutated(rng)
        _put(place, {f"{directories.stem(max(0, base))}.log": data})
    if rng.random() < 0.2:
        _put(place, {"00000000000000000000.kafka": corpus.mutated_07(rng)})
    if rng.random() < 0.2:
        _put(place, {f"{directories.stem(3)}-0000000001.checkpoint": corpus.mutated(rng)[0]})


def _random_headers(rng: random.Random, root: Path) -> None:
    """Files of headers with random fields, of every kind that a name can say."""
    names = [f"{directories.stem(base)}{end}" for base in (0, 9) for end in _ENDS] + list(_NAMED)
    for name in rng.sample(names, rng.randrange(1, 6)):
        _put(root / "t-0", {name: corpus.random_headers(rng)})
    for name in rng.sample(_ABOVE, rng.randrange(3)):
        _put(root, {name: corpus.random_headers(rng)})


_ENDS = (
    ".log",
    ".log",
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".log.swap",
    ".log.deleted",
    "-0000000002.checkpoint",
)
_NAMED = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")
_ABOVE = (*directories.OFFSETS, "meta.properties", ".kafka_cleanshutdown")
_MAKERS: tuple[Callable[[random.Random, Path], None], ...] = (
    _fixture,
    _fixture,
    _fixture,
    _several,
    _made,
    _made,
    _misplaced,
    _segment,
    _segment,
    _random_headers,
)
