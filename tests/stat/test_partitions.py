"""Partitions, topics and log directories: offsets, disk use, states, copies, files that cannot be read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import kdump
from support.build import batch, record
from support.scan_laws import FIXTURES

LOG = "00000000000000000000.log"


def measured(*paths: Path, **options: bool) -> list[object]:
    return list(kdump.stat_logs(kdump.discover(paths), kdump.StatOptions(**options)))  # type: ignore[arg-type]


def partitions(*paths: Path) -> dict[str, kdump.PartitionStatistics]:
    found = measured(*paths)
    return {os.path.basename(each.path): each for each in found if isinstance(each, kdump.PartitionStatistics)}


def size_below(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_a_log_directory_is_the_sum_of_its_partitions(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    shutil.copytree(FIXTURES / "log-directory", directory, ignore=shutil.ignore_patterns("expected"))
    shutil.copytree(directory / "orders-0", directory / "orders-0.0123456789abcdef0123456789abcdef-stray")
    found = measured(directory)
    whole = found[-1]
    assert isinstance(whole, kdump.stat.LogDirectoryStatistics)
    copies = [each for each in found if isinstance(each, kdump.PartitionStatistics)]
    assert whole.sums == sum((kdump.stat.Sums.of(each) for each in copies), kdump.stat.Sums())
    assert whole.sums.size_bytes + whole.other_bytes == size_below(directory)
    aside = [each for each in copies if each.state is not None]
    assert sorted(each.state or "" for each in aside) == ["delete", "stray"]
    assert all(not each.segments and not each.totals.batches for each in aside)
    assert [each.other_bytes for each in aside] == [size_below(Path(each.path)) for each in aside]
    assert (whole.sums.copies, whole.sums.set_aside) == (len(copies) - 2, 2)


LOG_DIRECTORIES = sorted(
    {path.parent for name in ("meta.properties", "recovery-point-offset-checkpoint") for path in FIXTURES.rglob(name)}
)


@pytest.mark.daily(4)
@pytest.mark.parametrize("path", LOG_DIRECTORIES, ids=lambda path: str(path.relative_to(FIXTURES)))
@pytest.mark.parametrize("options", [{}, {"deep": True}], ids=["headers", "deep"])
def test_every_file_of_a_log_directory_counts_once(path: Path, options: dict[str, bool], tmp_path: Path) -> None:
    """Also those in directories that are no partition. A link to a directory is no file."""
    directory = tmp_path / "data"
    shutil.copytree(path, directory)
    if path == LOG_DIRECTORIES[0]:
        (directory / "lost+found").mkdir()
        (directory / "lost+found" / "#123").write_bytes(bytes(5000))
        (directory / "link").symlink_to(directory / "lost+found")
    sums, size, allocated = kdump.stat.Sums(), 0, 0
    for each in measured(directory, **options):
        if isinstance(each, kdump.stat.LogDirectoryStatistics):
            assert each.sums == sums
            size, allocated = each.other_bytes, each.other_allocated_bytes
        else:
            assert isinstance(each, kdump.PartitionStatistics)
            sums += kdump.stat.Sums.of(each)
    files = [Path(root) / name for root, _, names in os.walk(directory) for name in names]
    assert sums.size_bytes + size == sum(file.lstat().st_size for file in files)
    assert sums.allocated_bytes + allocated == sum(file.lstat().st_blocks for file in files) * 512


def test_a_kraft_snapshot_is_no_segment_of_a_report(tmp_path: Path) -> None:
    """Beside segments it is another file; beside topic-partitions one of the log directory."""
    shutil.copytree(FIXTURES / "metadata/__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    found = partitions(tmp_path / "__cluster_metadata-0")["__cluster_metadata-0"]
    snapshots = list((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    assert snapshots
    assert not {str(path) for path in snapshots} & {segment.path for segment in found.segments}
    assert found.other_bytes >= sum(path.stat().st_size for path in snapshots)
    shutil.copytree(FIXTURES / "log-directory", tmp_path / "data", ignore=shutil.ignore_patterns("expected"))
    found_below = measured(tmp_path / "data")
    assert str(tmp_path / "data") not in {
        each.path for each in found_below if isinstance(each, kdump.PartitionStatistics)
    }
    (whole,) = (each for each in found_below if isinstance(each, kdump.stat.LogDirectoryStatistics))
    assert whole.other_bytes >= (tmp_path / "data" / "bootstrap.checkpoint").stat().st_size


def test_copies_of_a_partition_stay_apart(tmp_path: Path) -> None:
    for name in ("one", "other"):
        shutil.copytree(FIXTURES / "transactions", tmp_path / name, ignore=shutil.ignore_patterns("expected"))
    found = [each for each in measured(tmp_path) if isinstance(each, kdump.PartitionStatistics)]
    assert len(found) == 4
    (topic,) = kdump.stat.topics_of(found)
    assert (topic.topic, topic.copies, topic.partitions) == ("transactions", 2, {0: 2, 1: 2})
    assert topic.sums.size_bytes == sum(size_below(path) for path in tmp_path.rglob("transactions-*"))


def test_log_start_and_end(tmp_path: Path) -> None:
    found = partitions(FIXTURES / "leader")
    assert {name: (each.log_start_offset, each.log_end_offset, each.high_watermark) for name, each in found.items()}[
        "trimmed-0"
    ] == (69, 96, 96)
    compacted = found["compacted-transactions-0"]
    assert compacted.offset_span == 165
    assert compacted.absent == 165 - 25 - 12
    empty = tmp_path / "empty-0"
    empty.mkdir()
    (empty / "00000000000000000042.log").write_bytes(b"")
    one = partitions(empty)["empty-0"]
    assert (one.log_start_offset, one.log_end_offset, one.absent, one.segments[0].is_empty) == (42, 42, 0, True)


@pytest.mark.parametrize("deep", [False, True])
def test_checkpoints_count_where_a_directory_above_was_named(tmp_path: Path, *, deep: bool) -> None:
    """What they say of a partition does not depend on which directory was named."""
    shutil.copytree(FIXTURES / "log-directory", tmp_path / "data", ignore=shutil.ignore_patterns("expected"))

    def offsets(path: Path) -> list[object]:
        return [
            (each.path, each.log_start_offset, each.log_end_offset, each.high_watermark, each.cleaner_checkpoint)
            for each in measured(path, deep=deep)
            if isinstance(each, kdump.PartitionStatistics)
        ]

    above = offsets(tmp_path)
    assert above == offsets(tmp_path / "data")
    assert (str(tmp_path / "data" / "orders-0"), 7, 24, 24, None) in above


def test_unopened_wrappers_make_counts_unknown() -> None:
    path = FIXTURES / "v0-snappy-0.8.2.2"
    (found,) = partitions(path).values()
    assert (found.totals.records, found.absent) == (None, None)
    assert found.totals.records_at_least == found.totals.batches == found.totals.unopened
    (opened,) = (each for each in measured(path, open_wrappers=True) if isinstance(each, kdump.PartitionStatistics))
    assert opened.totals.records == opened.totals.records_at_least == 78
    assert opened.absent == 0


def test_preallocated_and_sparse_space(tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    data = bytes(batch([record(b"k", b"v")]))
    with (directory / LOG).open("wb") as file:
        file.write(data)
        file.truncate(8 << 20)
    found = partitions(directory)["topic-0"]
    (segment,) = found.segments
    assert segment.tail_zero_bytes == (8 << 20) - len(data)
    assert segment.damage.count == 0
    assert segment.size_bytes == 8 << 20
    assert segment.allocated_bytes == (directory / LOG).stat().st_blocks * 512
    # Only the active segment is preallocated.
    (directory / "00000000000000000001.log").write_bytes(b"")
    first, _ = partitions(directory)["topic-0"].segments
    assert (first.tail_zero_bytes, first.damage.bytes) == (0, (8 << 20) - len(data))


def test_a_segment_that_cannot_be_read_is_an_error_of_its_own(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "transactions/transactions-0", tmp_path / "topic-0")
    (tmp_path / "topic-0/00000000000000000500.log").symlink_to("/dev/null")
    found = partitions(tmp_path / "topic-0")["topic-0"]
    assert len(found.errors) == 1
    assert "character device" in str(found.errors[0])
    assert found.totals.batches == 24


@pytest.mark.parametrize("name", ["missing-0"])
def test_a_path_that_cannot_be_read_comes_in_its_place(name: str, tmp_path: Path) -> None:
    found = measured(
        FIXTURES / "transactions/transactions-0", tmp_path / name, FIXTURES / "transactions/transactions-1"
    )
    assert [type(each).__name__ for each in found] == ["PartitionStatistics", "SourceError", "PartitionStatistics"]


def test_buckets_and_old_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    from kdump.stat import values
    from kdump.stat.values import Volume, merged_hours

    monkeypatch.setattr(values, "MOST_HOURS", 3)
    one = {number: Volume(1, 1, 10) for number in (1, 5, 9)}
    other = {number: Volume(1, 1, 10) for number in (2, 5, 8)}
    hours, older = merged_hours(one, other)
    assert hours == {5: Volume(2, 2, 20), 8: Volume(1, 1, 10), 9: Volume(1, 1, 10)}
    assert older == Volume(2, 2, 20)
