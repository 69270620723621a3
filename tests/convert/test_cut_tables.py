"""Tables whose large topic-partitions an engine reads in parts have the rows of one reader, whatever the logs are."""

from __future__ import annotations

import pickle
import random
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.convert.log_tables import cut_tables
from kdump.convert.log_tables.table_reader import TableName
from support import build, damage_partition
from support.damage import NotApplicable
from support.laws import examples, sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TABLES: tuple[TableName, ...] = ("producers", "transactions", "findings", "segments", "groups")
SEVERAL = sorted({path.parent for path in FIXTURES.rglob("*.log") if len(list(path.parent.glob("*.log"))) > 1})


class Elsewhere:
    """An engine whose tasks and results go to another process and back, and which counts them."""

    slots = 2

    def __init__(self) -> None:
        self.tasks = 0

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            self.tasks += 1
            yield task, pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))


@pytest.fixture(autouse=True)
def _cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_tables, "_SMALL_BYTES", 0)
    monkeypatch.setattr("kdump.verify.verify.SMALL_BYTES", 0)


def rows(path: Path, table: TableName, engine: Any = None) -> tuple[list[Any], list[str], list[Any]]:
    """The rows, what could not be read, and the damage that is left out."""
    errors, damage = list[str](), list[Any]()
    found = kdump.table_reader(
        path, table, on_error=lambda error: errors.append(str(error)), on_damage=damage.append, engine=engine
    )
    return found.read_all().to_pylist(), errors, damage


def compare(path: Path, tables: Iterable[TableName] = TABLES) -> int:
    engine = Elsewhere()
    for table in tables:
        assert rows(path, table, engine) == rows(path, table), table
    return engine.tasks


@pytest.mark.parametrize("path", sampled(SEVERAL, 6), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_logs_of_brokers(path: Path) -> None:
    logs = len(list(path.glob("*.log")))
    assert compare(path) > 2 * logs  # the headers of each segment, and each segment


@pytest.mark.laws
def test_damaged_logs(tmp_path: Path) -> None:
    names = sorted(damage_partition.DAMAGES)
    for seed in range(examples(150)):
        chance = random.Random(seed)
        directory = tmp_path / str(seed) / "t-0"
        shutil.copytree(chance.choice(SEVERAL), directory)
        try:
            damage_partition.apply(chance.choice(names), directory, chance)
        except NotApplicable:
            continue
        compare(directory, ("producers", "transactions", "findings"))


def written(directory: Path, chance: random.Random) -> None:
    """A log of a few segments with transactions of several producers across them, holes and damage."""
    directory.mkdir(parents=True)
    offset, hole = chance.randrange(50), chance.choice((0.0, 0.1))
    cleaned = chance.random() < 0.3
    sequences: dict[int, int] = {}
    for _ in range(chance.randrange(2, 6)):
        base, data = offset, bytearray()
        for _ in range(chance.randrange(12)):
            producer = chance.randrange(4)
            kind = chance.choices(("data", "commit", "abort", "plain"), (6, 2, 2, 1))[0]
            count = 1 if kind in ("commit", "abort") else chance.randrange(1, 4)
            if kind in ("commit", "abort"):
                batch = build.marker(kind.upper(), base_offset=offset, producer_id=producer, producer_epoch=0)
            else:
                batch = build.batch(
                    [build.record()] * count,
                    base_offset=offset,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences.get(producer, 0),
                    transactional=kind == "data",
                )
                sequences[producer] = sequences.get(producer, 0) + count
            if chance.random() < 0.03:
                batch = batch[:-1] + bytes([batch[-1] ^ 1])
            data += batch
            offset += count
            if chance.random() < hole:
                offset += chance.randrange(1, 5)
        (directory / f"{base:020d}.log").write_bytes(data)
        offset = max(offset, base + 1)
        if chance.random() < hole:
            offset += 3
    if cleaned:
        (directory.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")


@pytest.mark.laws
def test_transactions_across_segments(tmp_path: Path) -> None:
    outcomes = set[str]()
    for seed in range(examples(300)):
        directory = tmp_path / str(seed) / "t-0"
        written(directory, random.Random(seed))
        compare(directory.parent, ("producers", "transactions"))
        outcomes.update(row["outcome"] for row in rows(directory, "transactions", Elsewhere())[0])
    assert outcomes == {"committed", "aborted", "open", "undecided"}


def test_what_cannot_be_read_ends_the_rows_of_its_partition(tmp_path: Path) -> None:
    for name in ("a-0", "b-0"):
        shutil.copytree(FIXTURES / "transactions" / "transactions-0", tmp_path / name)
    log = tmp_path / "a-0" / f"{10_000:020d}.log"
    log.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for table in ("producers", "transactions"):
            found, errors, _ = rows(tmp_path, table, Elsewhere())
            assert (found, errors) == rows(tmp_path, table)[:2]
            assert any("b-0" in row["path"] for row in found)
