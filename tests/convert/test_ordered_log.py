"""One copy whose batches are not in order: no offset comes twice, and one wrong offset hides nothing after it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

import kdump
from kdump.convert.records import ordered_log
from kdump.log import log_batches
from kdump.log.log_slice import LogSlice
from kdump.replicas import batch_order
from support import build, oracle
from support.damage import NotApplicable, damage
from support.laws import examples
from support.log_slices import MAX_BATCH_BYTES, positions_left_out, sliced
from support.misplaced_blocks import misplaced_block
from support.salvage_oracle import partition_of, written

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
pytestmark = [  # what is wrong with the logs is meant to be
    pytest.mark.filterwarnings("ignore:.*(is left out|the segment begins at offset):kdump.log.records.DamageWarning")
]
LOGS = ["segments/segments-0", "leader/transfers-0", "idempotent/turns-0", "v1-segments-0.10.2.2/segments-0"]
OUT_OF_ORDER = ["repeat-batch", "swap-batches", "flip-offset", "insert-foreign-batch", "flip-under-crc"]


def batch(first: int, count: int = 2, epoch: int = 0) -> bytes:
    items = [build.record(b"k", b"%d of %d" % (number, epoch), timestamp=first) for number in range(count)]
    return build.batch(items, base_offset=first, epoch=epoch)


def log(directory: Path, *segments: tuple[int, Sequence[bytes]]) -> Path:
    directory.mkdir()
    for base, parts in segments:
        (directory / f"{base:020d}.log").write_bytes(b"".join(parts))
    return directory


def prepared(directory: Path) -> ordered_log.OrderedLog:
    return ordered_log.ordered_log(sliced(directory), MAX_BATCH_BYTES)


def offsets(directory: Path, isolation: str = "all") -> list[int]:
    read = kdump.arrow(directory, columns=["offset"], isolation=isolation, on_damage=lambda _: None)
    return read.read_all().column("offset").to_pylist()


WHOLE = [batch(first) for first in range(0, 20, 2)]


@pytest.mark.parametrize("isolation", ["all", "read-uncommitted", "read-committed"])
@pytest.mark.parametrize(
    ("segments", "expected", "left_out"),
    [
        ([(0, [*WHOLE[:5], WHOLE[2], *WHOLE[5:]])], range(20), [(4, 5)]),
        ([(0, [*WHOLE[:5], batch(10_000), *WHOLE[6:]])], [*range(10), *range(12, 20)], [(10_000, 10_001)]),
        ([(0, WHOLE[:6]), (8, WHOLE[4:])], range(20), [(8, 9), (10, 11)]),
        # An older copy of what was truncated and written again.
        (
            [(0, [*WHOLE[:6], *(batch(first, epoch=1) for first in (6, 8, 10, 12))])],
            range(14),
            [(6, 7), (8, 9), (10, 11)],
        ),
        ([(0, WHOLE[:5]), (10, [WHOLE[9], *WHOLE[5:9]])], range(18), [(18, 19)]),
    ],
    ids=["repeated", "raised", "overlap", "rewritten", "swapped"],
)
def test_batches_out_of_order(
    segments: list[tuple[int, list[bytes]]],
    expected: Sequence[int],
    left_out: list[tuple[int, int]],
    isolation: str,
    tmp_path: Path,
) -> None:
    directory = log(tmp_path / "t-0", *segments)
    assert offsets(directory, isolation) == list(expected)
    found = prepared(directory)
    assert [(each.first_offset, each.last_offset) for each in found.left_out] == left_out
    assert found.partition.headers is not None
    assert found.partition.headers.is_ordered


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(30)))
def test_damaged_logs(number: int, tmp_path: Path) -> None:
    """Every valid batch is in the result or left out, and the offsets only rise."""
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    shutil.copytree(FIXTURES / rng.choice(LOGS), directory)
    for _ in range(rng.randrange(1, 4)):
        segment = rng.choice(sorted(directory.glob("*.log")))
        try:
            segment.write_bytes(damage(segment.read_bytes(), rng, 1, OUT_OF_ORDER))
        except NotApplicable:
            continue
    found = offsets(directory)
    assert found == sorted(set(found))
    left_out = positions_left_out(directory)
    expected: list[int] = []
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        for item in oracle.walk(data, base_offset=int(segment.stem)):
            if isinstance(item, oracle.Batch) and (str(segment), item.position) not in left_out:
                expected += [each.offset for each in oracle.records(data, item.position)]
    assert found == sorted(expected)
    # One damage leaves out no more than the batches that it is about.
    assert len(left_out) <= 12


def test_a_log_in_order_costs_a_pass_over_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = log(tmp_path / "t-0", (0, WHOLE[:5]), (10, WHOLE[5:]))
    passes: list[str] = []
    read = ordered_log.read_headers
    monkeypatch.setattr(ordered_log, "read_headers", lambda slices: passes.append("headers") or read(slices))
    monkeypatch.setattr(log_batches.LogBatches, "read", lambda *_: passes.append("checksums"))
    assert offsets(directory, "read-committed") == list(range(20))
    assert passes == ["headers"]


def test_damage_is_reported(tmp_path: Path) -> None:
    """Also where it lies between slices."""
    torn = bytearray(WHOLE[7])
    torn[-1] ^= 1
    directory = log(tmp_path / "t-0", (0, [*WHOLE[:5], WHOLE[2], *WHOLE[5:7], bytes(torn), *WHOLE[8:]]))
    found: list[kdump.log.DamagedRange] = []
    read = kdump.arrow(directory, columns=["offset"], on_damage=found.append).read_all()
    assert read.column("offset").to_pylist() == [*range(14), *range(16, 20)]
    repeated, damaged = sum(map(len, WHOLE[:5])), sum(map(len, [*WHOLE[:7], WHOLE[2]]))
    assert [(each.code, each.position, each.first_offset, each.last_offset) for each in found] == [
        ("batch/crc", damaged, None, None),
        ("offset/backwards", repeated, None, None),
        ("offset/gap", damaged + len(torn), 14, 15),
    ]


def test_a_block_of_a_later_place_hides_no_batch_in_place(tmp_path: Path) -> None:
    """Those that jump ahead are left out, and the ones that continue what is before the block are not."""
    parts = [batch(first) for first in range(0, 200, 2)]
    size = len(parts[0])
    data = b"".join(parts)
    at, begin = 10 * size + 20, 50 * size + 20
    data = data[:at] + data[begin : begin + 5 * size] + data[at + 5 * size :]
    directory = log(tmp_path / "t-0", (0, [data]))
    assert offsets(directory) == [*range(20), *range(32, 200)]
    assert [each.first_offset for each in prepared(directory).left_out] == [102, 104, 106, 108]


@pytest.mark.laws
def test_every_batch_in_place_is_in_order_or_left_out_by_name(tmp_path: Path) -> None:
    """Wherever a block is misplaced; what is damaged with it is reported as bytes."""
    wrong, ordered, whole = [], 0, 0
    for number in random.Random("order").sample(range(2000), examples(200)):
        case = misplaced_block(number)
        partition = partition_of(written(tmp_path / "p-0", case.logs))
        found = log_batches.LogBatches([LogSlice(segment.log) for segment in partition.segments])
        assert not found.read(MAX_BATCH_BYTES)
        order = batch_order.ordered(partition, found)
        logs, batches = order.batches.logs, order.batches
        kept = {(logs[file].path, at) for file, at in zip(batches.file, batches.position, strict=True)}
        named = {(each.path, each.position) for each in order.left_out}
        for own in case.whole:
            path, start, stop = (
                str(tmp_path / "p-0" / own.file),
                own.batch.position,
                own.batch.position + own.batch.size,
            )
            whole += 1
            ordered += (path, start) in kept
            if (path, start) in kept | named:
                continue
            damage = ((each.position, each.position + each.length) for each in found.damage if each.path == path)
            if not any(first < stop and start < last for first, last in damage):
                wrong.append(f"{case.name}: at {start}")
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])
    assert ordered > 0.95 * whole


def test_messages_of_07_beside_a_log(tmp_path: Path) -> None:
    """Their headers are others, and some are shorter than that of any batch."""
    directory = log(tmp_path / "t-0", (0, [*WHOLE, WHOLE[2]]))
    (directory / f"{0:020d}.kafka").write_bytes(build.kafka07([b"a", b"b", b"c" * 40]))
    found = [each for each in prepared(directory).left_out if each.path.endswith(".kafka")]
    assert [(each.position, each.length, each.unkept) for each in found] == [(11, 11, 1), (22, 50, 1)]
