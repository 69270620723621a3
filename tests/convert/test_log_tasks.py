"""Partitions become logs in several processes as in one, and a dry run says what a run would write."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kdump
from convert.test_log_output import PARTITIONS, no_sync, written
from kdump.convert.convert import convert_logs
from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.conversion import LogConversion
from kdump.convert.log_output.tasks import LogTarget, convert_to_log
from kdump.engine.processes import Processes
from kdump.errors import SourceError
from kdump.log.isolation import Isolation
from kdump.storage.read_policy import ReadPolicy
from support import build
from support.new_logs import prepared, sliced

__all__ = ["no_sync"]
SMALL = LogOutputOptions(segment_bytes=4000, batch_bytes=500)


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def distinct() -> list[Path]:
    """Partitions with names of their own, one of which has damage."""
    return list({path.name: path for path in PARTITIONS[::9]}.values())


def test_several_processes_write_what_one_writes(tmp_path: Path) -> None:
    given = [prepared(sliced(path)) for path in distinct()]
    target = LogTarget(SMALL._replace(codec="gzip"))
    counted = list[int]()
    one = list(convert_to_log(given, tmp_path / "one", target))
    two = list(convert_to_log(given, tmp_path / "two", target, engine=Processes(2), on_bytes=counted.append))
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert len(one) == len(two) > 5
    for serial, parallel in zip(one, two, strict=True):
        assert isinstance(serial.conversion, LogConversion)
        assert isinstance(parallel.conversion, LogConversion)
        assert parallel.conversion._replace(path=serial.conversion.path) == serial.conversion
        assert parallel.findings == serial.findings
    assert sum(counted) == sum(part.log.size for each in given for part in each.partition.slices)


def test_nothing_has_its_name_before_all_is_there(tmp_path: Path) -> None:
    given = [prepared(sliced(path)) for path in distinct()]
    output = tmp_path / "out"
    run = convert_to_log(given, output, LogTarget(SMALL), engine=Processes(2))
    for _ in given:
        next(run)
        assert [path.name for path in output.iterdir() if not path.name.startswith(".")] == []
    assert list(run) == []
    assert sorted(path.name for path in output.iterdir()) == sorted(path.name for path in distinct())


def test_an_iteration_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    given = [prepared(sliced(path)) for path in distinct()]
    run = convert_to_log(given, tmp_path / "out", LogTarget(SMALL), engine=Processes(2))
    next(run)
    run.close()  # type: ignore[attr-defined]  # a generator
    assert not (tmp_path / "out").exists()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_partition_that_cannot_be_read(tmp_path: Path) -> None:
    logs = [written(tmp_path / "logs", build.batch([build.Record(b"k", b"v")]), name=f"t-{n}") for n in range(3)]
    given = [prepared(sliced(path)) for path in logs]
    shutil.rmtree(logs[1])
    results = list(convert_to_log(given, tmp_path / "out", engine=Processes(2)))
    assert [isinstance(each.conversion, SourceError) for each in results] == [False, True, False]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["t-0", "t-2"]


def test_an_output_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    given = [prepared(sliced(path)) for path in distinct()]
    (tmp_path / "file").write_text("")
    with pytest.raises(kdump.KdumpError):
        list(convert_to_log(given, tmp_path / "file" / "out", engine=Processes(2)))


def test_nothing_remains_where_no_partition_is_converted(tmp_path: Path) -> None:
    log = bytearray(build.batch([build.Record(b"k", b"v")]))
    log[-1] ^= 1
    given = [prepared(sliced(written(tmp_path / "logs", bytes(log))))]
    (result,) = convert_to_log(given, tmp_path / "out", LogTarget(strict=True))
    assert isinstance(result.conversion, kdump.convert.DamagedLog)
    assert not (tmp_path / "out").exists()


def test_processes_share_the_rate() -> None:
    assert ReadPolicy(1000, keep_cache=False).shared_by(4) == ReadPolicy(250, keep_cache=False)
    assert ReadPolicy(3).shared_by(4) == ReadPolicy(1)
    assert ReadPolicy().shared_by(4) == ReadPolicy()


# ---- dry runs


@pytest.mark.parametrize("isolation", ["all", "read-committed"])
def test_a_dry_run_says_what_a_run_writes(isolation: Isolation, tmp_path: Path) -> None:
    for number, path in enumerate(PARTITIONS[::9]):
        given = [prepared(sliced(path))]
        target = LogTarget(SMALL._replace(codec="zstd" if number % 2 else None), isolation)
        (real,) = convert_to_log(given, tmp_path / f"{number}", target)
        (dry,) = convert_to_log(given, tmp_path / "dry", target._replace(dry_run=True))
        assert isinstance(real.conversion, LogConversion)
        assert isinstance(dry.conversion, LogConversion)
        assert dry.conversion._replace(path=real.conversion.path) == real.conversion
        assert not (tmp_path / "dry").exists()


def test_a_dry_run_of_kafka_07(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.kafka").write_bytes(build.kafka07([b"a", b"b", b""]))
    found = list(kdump.discover(str(directory)))
    options = kdump.ConvertOptions(kdump.convert.Target.LOG, dry_run=True)
    (partition,) = convert_logs(found, tmp_path / "out", options)
    assert isinstance(partition, kdump.PartitionConversion)
    assert (partition.rows, partition.files, (partition.bytes or 0) > 61) == (3, (), True)
    assert "the source has no offsets: they start at 0" in partition.notes
    assert not (tmp_path / "out").exists()
    list(convert_logs(found, tmp_path / "out", options._replace(dry_run=False)))
    size = sum(path.stat().st_size for path in (tmp_path / "out").rglob("*.log"))
    assert size == partition.bytes
