"""Which records a committed read gives: decided batch by batch over the reference decoder, in the order of the log."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.convert import tables
from kdump.convert.records import reader
from kdump.convert.records.ordered_log import ordered_log
from kdump.log.isolation import read_transactions
from kdump.log.transactions import last_stable_offset
from support import build
from support.laws import examples
from support.log_slices import MAX_BATCH_BYTES, positions_left_out, sliced
from support.plain_isolation import (
    FIXTURES,
    PARTITIONS,
    Decided,
    damaged_partition,
    decided,
    partition_without_a_segment,
    some_transactions,
)

pytestmark = [  # what is wrong with the logs is meant to be
    pytest.mark.filterwarnings("ignore:.*(is left out|the segment begins at offset):kdump.log.records.DamageWarning")
]


def check(directory: Path) -> Decided:
    """Compares the records of both reads."""
    wanted = decided(directory, positions_left_out(directory))
    columns = ["offset", "batch_offset", "position", "transactional"]
    how = {"columns": columns, "on_damage": lambda _: None}
    everything = kdump.arrow(directory, isolation="read-uncommitted", **how).read_all().to_pylist()
    left = [row for row in everything if (row["batch_offset"], row["position"]) not in wanted.left_out]
    assert kdump.arrow(directory, **how).read_all().to_pylist() == left
    log = sliced(directory)
    stream = reader.RecordStream(tables.record_schema(columns), on_damage=lambda _: None)
    assert sum(batch.num_rows for batch in stream.batches([log])) == len(left)
    assert (stream.aborted, stream.undecided) == (wanted.aborted, wanted.undecided)
    transactions = read_transactions(ordered_log(log, MAX_BATCH_BYTES).partition, MAX_BATCH_BYTES)
    assert last_stable_offset(transactions, "stop") == wanted.stable
    return wanted


@pytest.mark.daily(4)
@pytest.mark.parametrize("directory", PARTITIONS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_partitions_of_brokers(directory: Path) -> None:
    wanted = check(directory)
    (found,) = kdump.stat_logs(kdump.discover(directory))
    assert isinstance(found, kdump.PartitionStatistics)
    if not found.damage.count:
        assert wanted.aborted == sum(segment.totals.aborted_records for segment in found.segments)


def test_there_are_such_partitions() -> None:
    found = [decided(directory) for directory in PARTITIONS]
    assert sum(each.aborted for each in found) > 100
    assert any(each.undecided for each in found)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(60)))
def test_damaged_partitions(number: int, tmp_path: Path) -> None:
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    damaged_partition(directory, rng)
    check(directory)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(10)))
def test_missing_segments(number: int, tmp_path: Path) -> None:
    """Offsets that no batch has may have been those of a marker, unless the log is compacted."""
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    partition_without_a_segment(directory, rng)
    check(directory)


@settings(max_examples=examples(60))
@given(st.data())
def test_any_transactions(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("x") / "t-0"
    some_transactions(directory, data)
    check(directory)


def test_a_damaged_header_does_not_show_compaction(tmp_path: Path) -> None:
    """A batch that fails its checksum says that records were removed; missing offsets may have held a marker."""
    producer = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    one = [build.record(b"k", b"v")]
    batches = [build.batch(one, base_offset=offset, base_sequence=0, **producer) for offset in (0, 1, 3)]
    harmed = bytearray(batches[0])
    harmed[60] = 0  # the count of its records
    commit = build.marker("COMMIT", base_offset=4, producer_id=1, producer_epoch=0)
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join([bytes(harmed), *batches[1:], commit]))
    assert check(directory).undecided == 1
