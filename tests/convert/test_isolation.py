"""Which records a committed read gives: decided batch by batch over the reference decoder, in the order of the log."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.convert import tables
from kdump.convert.records import reader
from kdump.convert.records.ordered_log import ordered_log
from kdump.log.isolation import last_stable_offset
from support import build, oracle
from support.damage import NotApplicable, damage
from support.laws import examples
from support.log_slices import MAX_BATCH_BYTES, positions_left_out, sliced

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
pytestmark = [  # what is wrong with the logs is meant to be
    pytest.mark.filterwarnings("ignore:.*(is left out|the segment begins at offset):kdump.log.records.DamageWarning")
]
PARTITIONS = sorted({path.parent for path in FIXTURES.rglob("*.log") if "trans" in path.parent.name})


class Decided(NamedTuple):
    """Each batch that is left out, by base offset and position, and how many records these count."""

    left_out: set[tuple[int | None, int]]
    aborted: int
    undecided: int
    stable: int | None


class Open(NamedTuple):
    """What is open: the batches of each producer whose marker may still come."""

    waiting: dict[int, list[oracle.Batch]]
    undecided: list[oracle.Batch]

    def lose(self) -> None:
        """A marker may be lost here."""
        self.undecided.extend(batch for batches in self.waiting.values() for batch in batches)
        self.waiting.clear()


def decided(directory: Path) -> Decided:
    """What becomes of each transactional batch."""
    found = Open(defaultdict(list), [])
    aborted: list[oracle.Batch] = []
    left_out = positions_left_out(directory)
    logs = {log: log.read_bytes() for log in sorted(directory.glob("*.log"))}
    walks = {log: oracle.walk(data, base_offset=int(log.stem)) for log, data in logs.items()}
    compacted = any(is_compacted(int(log.stem), items) for log, items in walks.items())
    end: int | None = None
    for log, data in logs.items():
        for item in walks[log]:
            if not isinstance(item, oracle.Batch):
                if log != max(logs) or not (isinstance(item, oracle.Tail) and item.reason == "zeros"):
                    found.lose()
                continue
            if (str(log), item.position) in left_out:
                found.lose()
                continue
            if not compacted and None not in (end, item.base_offset) and item.offset > end:
                found.lose()
            end = item.furthest + 1
            if item.control:
                marker = marker_of(data, item)
                ended = [] if marker is None else found.waiting.pop(item.producer_id, [])
                aborted += ended if marker == 0 else []
                found.undecided.extend(ended if marker == -1 else [])
            elif item.magic == 2 and item.attributes & 0x10:
                found.waiting[item.producer_id].append(item)
    found.lose()
    undecided = found.undecided
    return Decided(
        {(batch.base_offset, batch.position) for batch in (*aborted, *undecided)},
        sum(max(batch.count or 0, 0) for batch in aborted),
        sum(max(batch.count or 0, 0) for batch in undecided),
        min((batch.offset for batch in undecided), default=None),
    )


def is_compacted(base_offset: int, items: list[oracle.Item]) -> bool:
    """Whether a segment shows that the log cleaner went over it."""
    batches = [item for item in items if isinstance(item, oracle.Batch)]
    first = items[0] if items else None
    begins_later = isinstance(first, oracle.Batch) and first.base_offset is not None and first.offset > base_offset
    return begins_later or any(
        batch.magic == 2 and (batch.count < batch.last_offset_delta + 1 or batch.delete_horizon) for batch in batches
    )


def marker_of(data: bytes, batch: oracle.Batch) -> int | None:
    """0 for an abort, 1 for a commit, -1 for one that cannot be read; None for what ends no transaction."""
    if batch.producer_id < 0 or not batch.count:
        return None
    try:
        of = oracle.records(data, batch.position)[0] if batch.codec else oracle.first_record(data, batch)
    except (oracle.Malformed, IndexError):
        return -1
    if of.key is None or oracle.control_fault(of.key, of.value, ends=True):
        return -1
    return int.from_bytes(of.key[2:4])


def check(directory: Path) -> Decided:
    """Compares the records of both reads."""
    wanted = decided(directory)
    columns = ["offset", "batch_offset", "position", "transactional"]
    how = {"columns": columns, "on_damage": lambda _: None}
    everything = kdump.arrow(directory, isolation="read-uncommitted", **how).read_all().to_pylist()
    left = [row for row in everything if (row["batch_offset"], row["position"]) not in wanted.left_out]
    assert kdump.arrow(directory, **how).read_all().to_pylist() == left
    log = sliced(directory)
    stream = reader.RecordStream(tables.record_schema(columns), on_damage=lambda _: None)
    assert sum(batch.num_rows for batch in stream.batches([log])) == len(left)
    assert (stream.aborted, stream.undecided) == (wanted.aborted, wanted.undecided)
    assert last_stable_offset(ordered_log(log, MAX_BATCH_BYTES).partition, MAX_BATCH_BYTES) == wanted.stable
    return wanted


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
    shutil.copytree(rng.choice(PARTITIONS), directory)
    log = rng.choice(sorted(directory.glob("*.log")))
    try:
        log.write_bytes(damage(log.read_bytes(), rng, rng.randrange(1, 4)))
    except NotApplicable as error:
        pytest.skip(str(error))
    check(directory)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(10)))
def test_missing_segments(number: int, tmp_path: Path) -> None:
    """Offsets that no batch has may have been those of a marker, unless the log is compacted."""
    rng = random.Random(number)
    several = [each for each in PARTITIONS if len(list(each.glob("*.log"))) > 1]
    directory = tmp_path / "t-0"
    shutil.copytree(rng.choice(several), directory)
    rng.choice(sorted(directory.glob("*.log"))).unlink()
    check(directory)


@settings(max_examples=examples(60))
@given(st.data())
def test_any_transactions(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Batches of a few producers and their markers, in one or two segments, with a byte of one of them changed."""
    batches: list[bytes] = []
    holes = data.draw(st.sets(st.integers(1, 11), max_size=2))
    for offset in range(data.draw(st.integers(1, 12))):
        if offset in holes:
            batches.append(b"")
            continue
        producer = {"producer_id": data.draw(st.integers(1, 3)), "producer_epoch": 0, "base_offset": offset}
        kind = data.draw(st.sampled_from(["data", "data", "plain", "commit", "abort"]))
        if kind in ("commit", "abort"):
            batches.append(build.marker(kind.upper(), **producer))
        elif kind == "plain":
            batches.append(build.batch([build.Record(b"k", b"v")], base_offset=offset))
        else:
            batches.append(build.batch([build.Record(b"k", b"v")], transactional=True, base_sequence=0, **producer))
    cut = data.draw(st.integers(0, len(batches)))
    if data.draw(st.booleans()):
        which = data.draw(st.integers(0, len(batches) - 1))
        changed = bytearray(batches[which])
        if changed:
            changed[data.draw(st.integers(17, len(changed) - 1))] ^= 1
        batches[which] = bytes(changed)
    directory = tmp_path_factory.mktemp("x") / "t-0"
    directory.mkdir()
    for first, part in ((0, batches[:cut]), (cut, batches[cut:])):
        (directory / f"{first:020d}.log").write_bytes(b"".join(part))
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
