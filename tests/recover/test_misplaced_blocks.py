"""A block of the log that was written to another place hides no batch of which every byte is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdump.recover.plan import SALVAGE, TRUNCATE, RecoverOptions
from support import build, oracle
from support.expected_files import NOW_MS, left_by, planned
from support.salvage_faults import FIXTURES
from support.salvage_oracle import Own, files, salvaged, valid, written

NAME = f"{0:020d}.log"


@pytest.fixture
def misdirected(tmp_path: Path) -> Path:
    """The fifth sector of a log is written over the second one: 14 batches that are whole come after it."""
    directory = tmp_path / "transactions-0"
    shutil.copytree(FIXTURES / "transactions" / "transactions-0", directory)
    data = bytearray((directory / NAME).read_bytes())
    data[512:1024] = data[2048:2560]
    (directory / NAME).write_bytes(data)
    return directory


def whole(directory: Path) -> list[Own]:
    """The batches of the log before, of which no byte changed."""
    data = (directory / NAME).read_bytes()
    before = valid(files(FIXTURES / "transactions" / "transactions-0"))
    return [own for own in before if data[own.batch.position : own.batch.position + own.batch.size] == own.data]


def test_a_salvage_keeps_the_batches_in_place(misdirected: Path) -> None:
    expected = whole(misdirected)
    plan = planned(misdirected, RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS))
    left = left_by(plan)[NAME]
    assert left == b"".join(own.data for own in expected)
    assert [own.first for own in expected if own.first > 9][:1] == [35]
    given_up = plan.lost.given_up
    assert (given_up.batches, given_up.offsets) == (4, ((52, 58),))
    assert plan.lost.damaged.offsets == ((10, 34),)


def test_a_truncation_gives_up_all_after_the_damage(misdirected: Path) -> None:
    plan = planned(misdirected, RecoverOptions(strategy=TRUNCATE, now_ms=NOW_MS))
    gone = [own for own in whole(misdirected) if own.first > 9]
    assert left_by(plan)[NAME] == b"".join(own.data for own in whole(misdirected)[: -len(gone)])
    given_up = plan.lost.given_up
    assert (given_up.batches, given_up.offsets) == (len(gone) + 4, ((35, 90),))


def one(offset: int, epoch: int = 0) -> bytes:
    return build.batch([build.record(b"k", b"a value of some length")], base_offset=offset, epoch=epoch)


@pytest.mark.parametrize("epoch", [0, 3])
def test_a_higher_leader_epoch_does_not_replace_what_fills_the_offsets_before_it(tmp_path: Path, epoch: int) -> None:
    """Two batches of another log, of a later leader epoch: the offsets of those after them continue what is before."""
    log = [one(offset) for offset in range(40)]
    block = one(25, epoch) + one(26, epoch)
    directory = written(tmp_path / "p-0", {NAME: b"".join(log[:10]) + block + b"".join(log[12:])})
    found = salvaged(directory)
    size = len(log[0])
    assert [(gone.start, gone.stop, gone.batches) for gone in found.dropped] == [(10 * size, 12 * size, 2)]
    kept = [item.offset for item in oracle.walk(b"".join([*log[:10], *log[12:]])) if isinstance(item, oracle.Batch)]
    assert kept == [*range(10), *range(12, 40)]


def test_a_block_of_another_log_with_a_later_leader_epoch_hides_nothing(tmp_path: Path) -> None:
    """Its offsets are lower than those in place, its leader epoch is higher."""
    log = [one(offset) for offset in range(40)]
    data = b"".join(log)
    size, torn = len(log[0]), build.batch([build.record(b"k", b"VALUE" * 9)], base_offset=5, epoch=7)
    block = one(3, 7) + one(4, 7) + torn[: size // 3]
    data = data[: 10 * size] + block + data[10 * size + len(block) :]
    found = salvaged(written(tmp_path / "p-0", {NAME: data}))
    gone = [(gone.start // size, gone.stop // size, gone.batches) for gone in found.dropped]
    assert gone == [(10, 12, 2), (12, 13, 0)]
