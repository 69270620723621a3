"""A block of the log that was written to another place hides no batch of which every byte is there."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdump.recover.plan import SALVAGE, TRUNCATE, RecoverOptions
from support import build, misplaced_blocks, oracle
from support.expected_files import NOW_MS, left_by, planned, report_of
from support.laws import examples
from support.misplaced_blocks import misplaced_block
from support.salvage_faults import FIXTURES, MEMORY
from support.salvage_oracle import Own, files, salvaged, valid, written

ALL = os.environ.get("KDUMP_LAWS") == "all"
NAME = f"{0:020d}.log"
CASES = 2000


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
    assert [gone[1:] for gone in found.dropped] == [(10 * size, 12 * size)]
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
    assert [(gone.start // size, gone.stop // size) for gone in found.dropped] == [(10, 12), (12, 13)]


def test_a_batch_that_may_be_a_value_of_a_torn_one_is_given_up_by_name(tmp_path: Path) -> None:
    """The block ends with the header of a batch that seems to be torn: nothing shows whose the batches after it are."""
    log = [one(offset) for offset in range(30)]
    torn = build.batch([build.record(b"k", b"V" * 9000)], base_offset=2)[:70]
    begin, size = len(log[0]) * 2, len(log[0])
    data = b"".join(log[:2]) + torn + b"".join(log)[begin + len(torn) :]
    directory = written(tmp_path / "p-0", {NAME: data})
    for strategy in (SALVAGE, TRUNCATE):
        plan = planned(directory, RecoverOptions(strategy=strategy, now_ms=NOW_MS))
        assert left_by(plan)[NAME] == data[:begin]
        given_up = plan.lost.given_up
        assert (given_up.batches, given_up.records, given_up.bytes) == (27, 27, 27 * size)
        assert given_up.offsets == ((3, 29),)
        assert sum(action.batches or 0 for action in plan.actions) == 27
    said = [one.message for one in report_of(directory).findings if one.code == "gap/foreign-batch"]
    assert len(said) == 27
    assert all("nothing shows that they belong to this log" in each for each in said)


def test_a_batch_whose_first_bytes_the_block_ends_with_is_given_up_by_name(tmp_path: Path) -> None:
    """The last byte of the block is the first one of the batch after it, so that no byte of this one changed."""
    log = [one(offset) for offset in range(30)]
    data = b"".join(log)
    block = build.batch([build.record(b"k", b"a value of some length!")], base_offset=3)
    assert len(block) == len(log[0]) + 1
    at = 10 * len(log[0])
    data = data[:at] + block + data[at + len(block) :]
    plan = planned(written(tmp_path / "p-0", {NAME: data}), RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS))
    assert left_by(plan)[NAME] == b"".join([*log[:10], *log[12:]])
    assert plan.lost.given_up.offsets == ((3, 3), (11, 11))


def test_what_looks_like_headers_before_them_does_not_hide_the_batches_in_place(tmp_path: Path) -> None:
    """The search has a budget for frames of any offset, which the headers of another log use up."""
    base = 500_000
    log = [build.batch([build.record(b"k", bytes(1000))], base_offset=base + number) for number in range(1500)]
    other = b"".join(one(300_000 + number) for number in range(40))
    at, size = 10 * len(log[0]), len(log[0])
    block = one(900_000) + bytes([255]) * 9 + other
    block += bytes([255]) * (-len(block) % size)
    data = b"".join(log)
    data = data[:at] + block + data[at + len(block) :]
    items = oracle.walk(data[: at + 20 * size], base_offset=base)
    place = [own.position for own in items if isinstance(own, oracle.Batch) and own.position >= at + len(block)]
    assert place[0] == at + len(block)
    walked = salvaged(written(tmp_path / "p-0", {f"{base:020d}.log": data}))
    assert [gone[1:] for gone in walked.dropped] == [
        (at, at + len(one(0))),
        (at + len(one(0)), at + len(block)),
    ]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A place for copies, in memory where the system has one."""
    place = MEMORY / f"kdump-blocks-{os.getpid()}" if os.access(MEMORY, os.W_OK) else tmp_path / "blocks"
    place.mkdir(exist_ok=True)
    yield place
    shutil.rmtree(place)


@pytest.mark.laws
@pytest.mark.parametrize("strategy", [SALVAGE, TRUNCATE])
def test_every_batch_in_place_is_kept_or_given_up_by_name(strategy: str, room: Path) -> None:
    """KDUMP_LAWS=all tries every case."""
    wrong, gone, whole = [], 0, 0
    for number in range(CASES) if ALL else random.Random(strategy).sample(range(CASES), min(CASES, examples(200))):
        case = misplaced_block(number)
        plan = misplaced_blocks.plan_of(case, strategy, room)
        wrong += misplaced_blocks.unnamed(case, plan)
        kept = misplaced_blocks.Kept(case, plan)
        gone += sum(own not in kept for own in case.whole)
        whole += len(case.whole)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])
    assert strategy != SALVAGE or gone < whole / 20
