"""What fails in the middle of work of a cluster: one sentence each, nothing half-written, nothing twice.

The engine is the one of Spark with a back end that runs here; tests/interop/test_spark_engine.py and
test_spark_convert.py kill workers of a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kdump.convert import preparation
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions
from kdump.convert.parquet import tasks as parquet_tasks
from kdump.convert.parquet.manifest import MANIFEST
from kdump.convert.results import OutputFile, PartitionConversion
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError, SourceError
from kdump.log.ranges import OffsetRange
from kdump.log.records import DamageWarning
from kdump.spark import engine as engine_module
from kdump.spark.engine import SparkEngine
from kdump.spark.source_losses import DataLoss
from kdump.spark.source_options import Table, parse_batch_options
from kdump.spark.source_planning import plan_ranges
from kdump.spark.source_reader import read_losses, read_range
from kdump.spark.stream_logs import LogFollower
from kdump.spark.stream_options import parse_stream_options
from kdump.spark.tasks import run_group
from kdump.storage.discovery import discover
from kdump.storage.object_store import Retries, object_store
from kdump.verify.verify import VerifyOptions, verify_logs
from support.object_stores import Unsteady, copy
from support.parquet_folders import contents, manifest_of, records, table_of, write_log
from support.spark_jobs import InlineBackend

EXPIRED = "the provided token has expired"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut kilobytes as if they were hundreds of mebibytes."""
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1 << 12)
    monkeypatch.setattr(preparation, "_LEAST_BYTES", 1)
    monkeypatch.setattr(engine_module, "_TASK_BYTES", 1000)
    monkeypatch.setattr(engine_module, "LEAST_BYTES", 5000)
    monkeypatch.setattr(engine_module, "MOST_BYTES", 15_000)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Topic-partitions, of which one has an aborted transaction: its outcomes are a phase of their own."""
    place = tmp_path / "logs"
    for number in range(9):
        write_log(place / f"t-{number}", *(records(first, first + 50) for first in range(0, 600, 50)))
    open_one = records(600, 650, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    write_log(place / "t-3", open_one, more=True)
    return place


@pytest.fixture
def store(logs: Path) -> Iterator[str]:
    """The same logs in an object store."""
    Unsteady.reset()
    object_store.cache_clear()
    copy(Unsteady(), logs, "/bucket")
    yield "unsteady://bucket"
    Unsteady.reset()
    object_store.cache_clear()


def converted(logs: Path | str, out: Path, engine: Any, **how: Any) -> list[Any]:
    return list(convert_logs(discover([str(logs)]), out, ConvertOptions(**how), named=[str(logs)], engine=engine))


def said(results: list[Any]) -> list[str]:
    return [str(each._replace(files=()) if hasattr(each, "files") else each) for each in results if not is_file(each)]


def is_file(each: Any) -> bool:
    return isinstance(each, OutputFile)


def names_in(out: Path) -> list[str]:
    """The files that the manifest names; none without one."""
    return list(manifest_of(out).file_names()) if (out / MANIFEST).exists() else []


def rows(out: Path) -> dict[Any, list[Any]]:
    """The rows of each topic-partition; there is no file but those that the manifest names."""
    if not (out / MANIFEST).exists():
        assert not out.exists() or not contents(out)
        return {}
    manifest = manifest_of(out)
    assert contents(out).keys() == {MANIFEST, *manifest.file_names()}
    return {
        of: [row for file in each.files for row in table_of(out, [file.name]).to_pylist()]
        for of, each in manifest.partitions.items()
    }


def test_a_worker_that_is_lost_with_its_answer_in_any_phase_changes_nothing(logs: Path, tmp_path: Path) -> None:
    """Each task runs twice: the first worker was lost after it had done its work, in listing, counting and writing."""

    def twice(group: bytes) -> bytes:
        run_group(group)
        return run_group(group)

    backend = InlineBackend(2, run=twice)
    found = converted(logs, tmp_path / "twice", SparkEngine(backend))
    assert len(backend.jobs) > 2
    assert said(found) == said(converted(logs, tmp_path / "one", Serial()))
    assert rows(tmp_path / "twice") == rows(tmp_path / "one")

    def reports(engine: Any) -> list[Any]:
        return [
            (each.path, each.findings) for each in verify_logs(discover([str(logs)]), VerifyOptions(), engine=engine)
        ]

    assert reports(SparkEngine(InlineBackend(2, run=twice))) == reports(Serial())


@pytest.mark.parametrize("done", [0, 5])
def test_a_driver_that_dies_goes_on(logs: Path, tmp_path: Path, done: int) -> None:
    """It ends as by SIGKILL when so many partitions are done: their files stay as they are, and no other ones.

    The second run ends as one that was never stopped.
    """
    out = tmp_path / "out"
    child = os.fork()
    if not child:
        left = done
        for each in convert_logs(discover([str(logs)]), out, ConvertOptions(), engine=SparkEngine(InlineBackend(2))):
            left -= isinstance(each, PartitionConversion)
            if left <= 0:
                os._exit(9)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    before = {name: (out / name).stat() for name in names_in(out)}
    assert len(before) >= done
    again = converted(logs, out, SparkEngine(InlineBackend(2)))
    assert [each for each in again if isinstance(each, KdumpError)] == []
    converted(logs, tmp_path / "one", Serial())
    assert rows(out) == rows(tmp_path / "one")
    for name, status in before.items():
        if (out / name).exists():  # else its rows were provisional
            now = (out / name).stat()
            assert (now.st_ino, now.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert sum((out / name).exists() for name in before) >= done - 1


# ---- an object store


def fail_from(number: int, failure: Exception, times: int = 1 << 30) -> None:
    """The read with this number fails, and those after it, so many in all."""
    reads = [0]

    def before_read() -> None:
        reads[0] += 1
        if number <= reads[0] < number + times:
            raise failure

    Unsteady.before_read = before_read


def offsets(store: str) -> list[int]:
    """Those that the data source reads."""
    options = parse_batch_options({"path": store})
    several = (read_range(each, options, ["offset"]) for each in plan_ranges(options))
    return [offset for batches in several for batch in batches for offset in batch["offset"].to_pylist()]


@pytest.mark.parametrize("number", [1, 4])
def test_credentials_that_expire_in_the_middle_are_one_sentence(store: str, tmp_path: Path, number: int) -> None:
    """Of each topic-partition that was not done; what was written is whole."""
    fail_from(number, PermissionError(EXPIRED))
    out = tmp_path / "out"
    errors = [
        str(each) for each in converted(store, out, SparkEngine(InlineBackend(2))) if isinstance(each, KdumpError)
    ]
    assert errors
    assert all(f"access denied: {EXPIRED}" in each and each.count(EXPIRED) == 1 for each in errors)
    before = rows(out)
    files = {name: (out / name).stat().st_ino for name in names_in(out)}
    reports = list(verify_logs(discover([store]), VerifyOptions(), engine=SparkEngine(InlineBackend(2))))
    assert all(EXPIRED in str(error) for report in reports for error in report.errors)
    assert any(report.errors for report in reports)
    with pytest.raises(SourceError, match=f"access denied: {EXPIRED}"):
        offsets(store)
    Unsteady.before_read = None
    assert not [each for each in converted(store, out, Serial()) if isinstance(each, KdumpError)]
    after = rows(out)
    assert {of: after[of] for of in before} == before
    assert {name: (out / name).stat().st_ino for name in files} == files


def test_a_store_that_throttles_is_asked_again_and_the_rows_are_the_same(store: str) -> None:
    pauses: list[float] = []
    object_store().retries = Retries(sleep=pauses.append)
    wanted = offsets(store)
    assert len(wanted) == 9 * 600 + 50
    for number in (1, 3, 9):
        fail_from(number, OSError("SlowDown: Please reduce your request rate"), times=3)
        assert offsets(store) == wanted
    assert len(pauses) == 9
    fail_from(1, OSError("SlowDown: Please reduce your request rate"))
    with pytest.raises(SourceError, match="slowdown: please reduce your request rate") as said_once:
        offsets(store)
    assert str(said_once.value).count("slowdown") == 1


def test_a_listing_that_changes_between_planning_and_reading(store: str) -> None:
    """What comes later is not read, what is gone is a sentence; a look of a stream has what is there now."""
    options = parse_batch_options({"path": store})
    ranges = plan_ranges(options)
    follower = LogFollower(parse_stream_options({"path": store, "endAt": "log-end"}))
    assert len(follower.look(now=True)) == 9
    log = f"/bucket/t-0/{0:020d}.log"
    Unsteady().pipe_file(log, Unsteady().cat_file(log) + records(600, 700))
    Unsteady().pipe_file(f"/bucket/t-9/{0:020d}.log", records(0, 50))
    Unsteady().rm_file(f"/bucket/t-1/{0:020d}.log")
    found: dict[str, int] = {}
    for each in ranges:
        of = each.log.topic_partition
        assert of is not None
        if of.partition == 1:
            with pytest.raises(SourceError, match=r"t-1/0{20}\.log: no such file"):
                list(read_range(each, options, ["offset"]))
            with pytest.raises(SourceError, match="no such file"):
                read_losses(each, options)
            continue
        found[f"t-{of.partition}"] = sum(batch.num_rows for batch in read_range(each, options, ["offset"]))
    assert found == {f"t-{number}": 600 + 50 * (number == 3) for number in (0, *range(2, 9))}
    ends = {of.partition: each.end for of, each in follower.look(now=True).items()}
    assert ends == dict.fromkeys(range(2, 9), 600) | {0: 700, 3: 650, 9: 50}


def test_segments_that_retention_deletes_between_planning_and_reading(tmp_path: Path) -> None:
    """They are a loss, as those before planning; another file that is gone is an error."""
    for first in (0, 100, 200):
        write_log(tmp_path / "t-0", records(first, first + 100), base=first)
    reads = {fail: parse_batch_options({"path": str(tmp_path), "failOnDataLoss": fail}) for fail in ("true", "false")}
    (whole,) = plan_ranges(reads["true"])
    begin, end = (whole._replace(offsets=OffsetRange(*each)) for each in ((0, 100), (150, 300)))
    (tmp_path / "t-0" / f"{0:020d}.log").rename(tmp_path / "t-0" / f"{0:020d}.log.deleted")

    def rows(each: Any) -> list[int]:
        return [at for batch in read_range(each, reads["false"], ["offset"]) for at in batch["offset"].to_pylist()]

    sentence = r"t-0: offsets 0 to 99 of t-0 were deleted after the read was planned"
    for each, wanted in ((whole, [*range(100, 300)]), (begin, [])):
        with pytest.raises(DataLoss, match=f"{sentence}. The option failOnDataLoss is true"):
            list(read_range(each, reads["true"], ["offset"]))
        with pytest.warns(DamageWarning, match=f"{sentence}, and are left out"):
            assert rows(each) == wanted
        (loss,) = read_losses(each, reads["false"]._replace(table=Table.LOSSES))
        assert loss[:6] == ("t", 0, 0, 99, None, "deleted")
    assert rows(end) == [*range(150, 300)]
    (tmp_path / "t-0" / f"{200:020d}.log").unlink()
    with pytest.raises(SourceError, match=rf"{200:020d}\.log: no such file"):
        rows(end)


@pytest.mark.parametrize("whole_segments", [0, 1])
def test_what_a_follower_truncates_between_planning_and_reading(tmp_path: Path, whole_segments: int) -> None:
    for first in (0, 100, 200):
        batches = records(first, first + 40), records(first + 40, first + 100)
        write_log(tmp_path / "t-0", b"".join(batches), base=first)
    reads = {fail: parse_batch_options({"path": str(tmp_path), "failOnDataLoss": fail}) for fail in ("true", "false")}
    (whole,) = plan_ranges(reads["true"])
    segments = sorted((tmp_path / "t-0").glob("*.log"))
    for path in segments[3 - whole_segments :]:
        path.unlink()
    kept = segments[2 - whole_segments]
    end = 240 - 100 * whole_segments
    os.truncate(kept, len(records(end - 40, end)))
    ranges = {(0, 300): (end, 299), (end - 10, 250): (end, 249), (end + 1, 299): (end + 1, 298), (50, end): ()}
    for (start, stop), lost in ranges.items():
        each = whole._replace(offsets=OffsetRange(start, stop))
        wanted = [*range(start, min(end, stop))]
        if not lost:
            assert offsets_of(each, reads["true"]) == wanted
            continue
        sentence = f"offsets {lost[0]} to {lost[1]} of t-0 were truncated after the read was planned"
        with pytest.raises(DataLoss, match=f"{sentence}. The option failOnDataLoss is true"):
            offsets_of(each, reads["true"])
        with pytest.warns(DamageWarning, match=f"{sentence}, and are left out"):
            assert offsets_of(each, reads["false"]) == wanted
        losses = read_losses(each, reads["false"]._replace(table=Table.LOSSES))
        assert [loss[:6] for loss in losses] == [("t", 0, *lost, None, "truncated")]


def offsets_of(each: Any, options: Any) -> list[int]:
    return [at for batch in read_range(each, options, ["offset"]) for at in batch["offset"].to_pylist()]
