"""A partition that a broker is writing: damage is what is still there when it is read again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kdump
from cli.test_partitions import LOCK
from kdump.stat import scan as scanning
from kdump.storage.live import LIVE_READS
from support import build
from support.cuttings import Ranges
from support.pauses import pause_with

LOG = "00000000000000000000.log"


def one(base_offset: int) -> bytes:
    return build.batch([build.record(b"key", b"value" * 20)], base_offset=base_offset)


WHOLE = build.segment(*map(one, range(4)))
SIZE = len(one(0))


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A log directory whose lock another process holds. The last batch is half there."""
    path = tmp_path / "data"
    (path / "topic-0").mkdir(parents=True)
    (path / "meta.properties").write_text("version=1\n")
    (path / "topic-0" / LOG).write_bytes(WHOLE[:-50])
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield path
        process.communicate()


Sleep = Callable[[float], None]


def measured(path: Path, sleep: Sleep, engine: Any = None, **options: Any) -> kdump.PartitionStatistics:
    with pytest.MonkeyPatch.context() as patch:
        pause_with(patch, sleep)
        found = list(kdump.stat_logs(kdump.discover([path]), kdump.StatOptions(**options), engine=engine))
    return next(each for each in found if isinstance(each, kdump.PartitionStatistics))


@pytest.mark.parametrize("engine", [None, Ranges()], ids=["serial", "cut"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("named", ["data", "data/topic-0"])
def test_a_batch_that_is_written_now_is_no_damage(
    named: str, deep: bool, engine: Any, directory: Path, tmp_path: Path
) -> None:
    log = directory / "topic-0" / LOG
    found = measured(tmp_path / named, lambda _: log.write_bytes(WHOLE) and None, engine, deep=deep)
    assert (found.damage, found.totals.batches, found.log_end_offset) == (kdump.stat.Damage(), 4, 4)


def test_a_tail_that_is_another_one_each_time_is_no_damage(directory: Path) -> None:
    log, pauses = directory / "topic-0" / LOG, list[float]()

    def grow(seconds: float) -> None:
        pauses.append(seconds)
        log.write_bytes(build.segment(*map(one, range(4 + len(pauses))))[:-50])

    found = measured(directory, grow)
    assert (found.damage, found.totals.batches, len(pauses)) == (kdump.stat.Damage(), 4, 1)


def test_damage_that_stays_is_damage(directory: Path) -> None:
    """The second batch is damaged; the tail grows."""
    log, pauses = directory / "topic-0" / LOG, list[float]()

    def damaged(data: bytes) -> bytes:
        return data[: 2 * SIZE - 1] + b"!" + data[2 * SIZE :]

    def grow(seconds: float) -> None:
        pauses.append(seconds)
        log.write_bytes(damaged(build.segment(*map(one, range(4 + len(pauses)))))[:-50])

    log.write_bytes(damaged(WHOLE)[:-50])
    found = measured(directory, grow, deep=True)
    stretch = kdump.stat.DamagedStretch(str(log), SIZE, SIZE, "crc")
    assert found.damage == kdump.stat.Damage((stretch,), 1, SIZE)
    assert len(pauses) == LIVE_READS - 1
    found = measured(directory, pauses.append, deep=True)
    assert [each.reason for each in found.damage.stretches] == ["crc", "torn"]


def test_a_segment_that_the_broker_deletes_does_not_count(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, last = directory / "topic-0" / LOG, directory / "topic-0/00000000000000000004.log"
    first.write_bytes(WHOLE)
    last.write_bytes(one(4))
    opened = scanning.open_file

    def delete(*arguments: Any) -> Any:
        first.unlink(missing_ok=True)
        return opened(*arguments)

    monkeypatch.setattr(scanning, "open_file", delete)
    found = measured(directory, lambda _: None)
    assert found.errors == ()
    assert [each.path for each in found.segments] == [str(last)]
    assert (found.log_start_offset, found.log_end_offset, found.absent) == (4, 5, 0)


def test_without_a_broker_nothing_is_read_again(directory: Path, tmp_path: Path) -> None:
    directory.rename(tmp_path / "moved")
    (tmp_path / "moved/.lock").unlink()

    def never(_: float) -> None:
        raise AssertionError

    found = measured(tmp_path / "moved", never)
    assert [each.reason for each in found.damage.stretches] == ["torn"]
