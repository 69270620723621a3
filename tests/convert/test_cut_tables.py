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
from support import damage_partition
from support.damage import NotApplicable
from support.laws import examples, sampled
from support.transactions_in import transactions_in

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
    monkeypatch.setattr(cut_tables, "_AT_ONCE", 2)
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


@pytest.mark.daily(3)
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


@pytest.mark.laws
def test_transactions_across_segments(tmp_path: Path) -> None:
    outcomes = set[str]()
    for seed in range(examples(300)):
        directory = tmp_path / str(seed) / "t-0"
        transactions_in(directory, random.Random(seed))
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


def test_more_partitions_than_are_held_at_once() -> None:
    assert compare(FIXTURES / "transactions", ("producers", "transactions")) > 2
    assert compare(FIXTURES / "restarted", ("producers", "transactions")) > 2
