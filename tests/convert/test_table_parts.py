"""The rows of the tables about logs do not depend on how segments are cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from kdump.convert.log_tables.batch_table import batch_parts, batch_table
from kdump.convert.log_tables.origin import Origin
from kdump.convert.log_tables.table_reader import TableName, table_reader
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.storage.partition import LogFile
from kdump.storage.walk import MAX_BATCH_BYTES
from support.damage import NotApplicable, damage
from support.laws import QUICK, examples, sampled
from support.misplaced_blocks import made_log
from support.transactions_in import transactions_in


class Pieces:
    """An engine in this process that wants ranges of so many bytes."""

    slots = 2

    def __init__(self, range_bytes: int) -> None:
        self.range_bytes, self.tasks = range_bytes, 0

    @property
    def sizes(self) -> Pieces:
        return self

    def ranges_of(self, size_bytes: int, slots: int) -> int:
        return self.range_bytes

    def map(self, function: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            self.tasks += 1
            yield task, function(task)


def test_the_rows_from_pieces_of_segments_are_those_of_one_reader(tmp_path: Path) -> None:
    """One large segment, or several, with and without damage."""
    cut = 0
    for seed in range(examples(60)):
        rng = random.Random(seed)
        place = tmp_path / str(seed) / "t-0"
        transactions_in(place, rng)
        first, *others = sorted(place.glob("*.log"))
        if rng.random() < 0.5:
            first.write_bytes(b"".join(each.read_bytes() for each in (first, *others)))
            for each in others:
                each.unlink()
        if rng.random() < 0.5 and (data := first.read_bytes()):
            with suppress(NotApplicable):
                first.write_bytes(damage(data, rng))
        size = sum(each.stat().st_size for each in place.glob("*.log"))
        for table in ("producers", "transactions"):
            name: TableName = table  # type: ignore[assignment]
            engine = Pieces(rng.choice((200, size // 7 + 1, size // 2 + 1)))
            errors, more = list[SourceError](), list[SourceError]()
            expected = table_reader(place, name, on_error=errors.append).read_all()
            found = table_reader(place, name, on_error=more.append, engine=engine).read_all()
            assert found.to_pylist() == expected.to_pylist(), (seed, table)
            assert list(map(str, more)) == list(map(str, errors))
            cut += engine.tasks > 3
    assert QUICK or cut > 10


def test_the_parts_of_a_segment_have_the_batches_of_the_whole(tmp_path: Path) -> None:
    """Whatever the damage: the rows of a part go on where those of the part before it end."""
    cut, seeds = 0, sampled(range(examples(150)), 3)
    for seed in seeds:
        rng = random.Random(seed)
        name, data = rng.choice(sorted(made_log(seed % 8).items()))
        with suppress(NotApplicable):
            data = damage(data, rng, rng.randrange(3))
        (tmp_path / name).write_bytes(data)
        log = LogFile(str(tmp_path / name), Kind.LOG, int(Path(name).stem), True, len(data))
        parts = batch_parts(log, rng.choice((500, len(data) // 7 + 1, len(data) // 2 + 1)))
        whole = [row for batch in batch_table(log, Origin(None), MAX_BATCH_BYTES) for row in batch.to_pylist()]
        several = (batch for part in parts for batch in batch_table(log, Origin(None), MAX_BATCH_BYTES, part))
        assert [row for batch in several for row in batch.to_pylist()] == whole, seed
        cut += len(parts) > 1
    assert cut > len(seeds) // 3
