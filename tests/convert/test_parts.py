"""Topic-partitions that are converted in parts, by workers that run tasks twice, are what one process makes of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump import errors
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions
from kdump.convert.parquet import tasks as parquet_tasks
from kdump.convert.parquet.manifest import MANIFEST, ConvertedPartition
from kdump.convert.parquet.output_directory import StagingFolder
from kdump.convert.parquet.writer import PartitionWriter
from kdump.convert.results import ConvertFindings, OutputFile, PartitionConversion
from kdump.engine.processes import Processes
from kdump.engine.protocol import Result, Serial, Task
from support import build
from support.attempts import Attempts
from support.damage import NotApplicable, damage
from support.laws import examples
from support.parquet_folders import contents, manifest_of, records, write_log

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TRANSACTIONS = sorted({path.parent for path in FIXTURES.glob("*transaction*/*-*/*.log")})
SAME = (
    *("topic_partition", "first_offset", "next_offset", "last_batch"),
    *("unfit_timestamps", "findings", "findings_dropped", "left_out"),
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1)


def converted(path: Path, out: Path, engine: Any = None, **how: Any) -> list[Any]:
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(**how), named=[str(path)], engine=engine))


def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if any(out.rglob("*.parquet")):
        found = pq.read_table(out).sort_by([("topic", "ascending"), ("offset", "ascending")]).to_pylist()
    return found


def rows_by_state(out: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows that stay, and those that the next run replaces."""
    entry = entry_of(out)
    tables = []
    for provisional in (False, True):
        names = [file.name for file in entry.files if file.provisional == provisional]
        tables.append([row for name in sorted(names) for row in pq.read_table(out / name).to_pylist()])
    return tables[0], tables[1]


def entry_of(out: Path) -> ConvertedPartition:
    (entry,) = manifest_of(out).partitions.values()
    return entry


def compare(directory: Path, place: Path, engine: Any, **how: Any) -> None:
    """Compares a conversion in parts with one as a whole."""
    one, parts = place / "one", place / "parts"
    results = [converted(directory, out, on, **how) for out, on in ((one, Serial()), (parts, engine))]
    wanted, found = entry_of(one), entry_of(parts)
    assert [getattr(found, name) for name in SAME] == [getattr(wanted, name) for name in SAME]
    assert rows_by_state(parts) == rows_by_state(one)
    offsets = [(file.first_offset, file.last_offset) for file in found.files]
    assert offsets == sorted(offsets)
    assert contents(parts).keys() == {MANIFEST, *(file.name for file in found.files)}
    assert not [path for path in parts.iterdir() if path.is_dir()]
    said = [[each for each in result if not isinstance(each, OutputFile)] for result in results]
    assert [each._replace(files=()) if isinstance(each, PartitionConversion) else each for each in said[1]] == [
        each._replace(files=()) if isinstance(each, PartitionConversion) else each for each in said[0]
    ]


# ---- any cutting


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(40)))
def test_parts_of_a_partition_are_the_whole(tmp_path: Path, number: int) -> None:
    """Also with transactions that several parts have, with damage, and where a range of offsets is asked for."""
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    directory.mkdir()
    for segment in build.partition(rng, batches=40, odd=rng.choice((0, 0.1)), removed=rng.choice((0, 0, 0.3))):
        data = segment.data
        if rng.random() < 0.3:
            data = damage(data, rng, 1)
        (directory / f"{segment.base_offset:020}.log").write_bytes(data)
    how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-committed", "read-uncommitted"))}
    if rng.random() < 0.3:
        low = rng.randrange(30)
        how["choice"] = kdump.convert.choice.Choice(offset=(low, low + rng.randrange(100)))
    compare(directory, tmp_path, Attempts(rng.choice((2, 3, 9))), **how)
    compare(directory, tmp_path, Attempts(3), **how)  # a second run, which has nothing to do but for provisional files


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(20)))
def test_transactions_of_brokers_in_parts(tmp_path: Path, number: int) -> None:
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    shutil.copytree(TRANSACTIONS[number % len(TRANSACTIONS)], directory)
    if number >= len(TRANSACTIONS):
        log = rng.choice(sorted(directory.glob("*.log")))
        try:
            log.write_bytes(damage(log.read_bytes(), rng, rng.randrange(1, 3)))
        except NotApplicable as error:
            pytest.skip(str(error))
    compare(directory, tmp_path, Attempts(rng.choice((2, 5, 20))))


class _Changed(Attempts):
    """Before parts are written, the last batch of the first one and the next batch become one batch."""

    def __init__(self, log: Path, batches: Sequence[bytes]) -> None:
        super().__init__(3)
        self._log, self._batches = log, batches
        self.written: list[int] = []

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        given: list[Any] = list(tasks)
        parts = [task.part for group in given if hasattr(group, "parts") for task in group.parts]
        if parts:
            self.written.append(len(parts))
        if len(parts) > 1:
            number = list(accumulate(map(len, self._batches))).index(parts[0].slices[-1].stop)
            joined = records(10 * number, 10 * number + 20)
            self._log.write_bytes(b"".join((*self._batches[:number], joined, *self._batches[number + 2 :])))
        yield from super().map(function, given)


def test_a_batch_that_goes_beyond_its_part(tmp_path: Path) -> None:
    """Another process wrote the log anew after it was cut: the next part would begin inside of a batch."""
    batches = [records(first, first + 10) for first in range(0, 300, 10)]
    directory = write_log(tmp_path / "t-0", *batches)
    engine = _Changed(directory / f"{0:020}.log", batches)
    found = converted(directory, tmp_path / "parts", engine)
    assert engine.written[0] > 1
    assert engine.written[1:] == [1]
    assert not any(isinstance(each, ConvertFindings | Exception) for each in found)
    converted(directory, tmp_path / "one")
    assert rows(tmp_path / "parts") == rows(tmp_path / "one")
    assert [row["offset"] for row in rows(tmp_path / "one")] == list(range(300))
    assert contents(tmp_path / "parts").keys() == contents(tmp_path / "one").keys()
    left, right = (entry_of(tmp_path / out) for out in ("parts", "one"))
    assert [getattr(left, name) for name in SAME] == [getattr(right, name) for name in SAME]


def test_a_run_goes_on_in_parts(tmp_path: Path) -> None:
    """What earlier runs found, and provisional files, are replaced as by one process."""
    rng = random.Random(5)
    directories = [tmp_path / name / "t-0" for name in ("a", "b")]
    segments = build.partition(rng, batches=60, odd=0.1)
    for number, part in enumerate((segments[:2], segments[2:4], segments[4:])):
        for directory, engine in zip(directories, (Serial(), Attempts(5)), strict=True):
            directory.mkdir(parents=True, exist_ok=True)
            for each in part:
                (directory / f"{each.base_offset:020}.log").write_bytes(each.data)
            converted(directory, tmp_path / f"out-{directory.parent.name}", engine)
        one, parts = tmp_path / "out-a", tmp_path / "out-b"
        assert rows_by_state(one) == rows_by_state(parts), number
        same = [name for name in SAME if name != "findings"]
        assert [getattr(entry_of(one), name) for name in same] == [getattr(entry_of(parts), name) for name in same]


def test_several_partitions_and_tiny_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny ones share a task; each has its own files."""
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 10_000)
    logs = tmp_path / "logs"
    for number in range(30):
        write_log(logs / f"t-{number}", records(0, 3 + number % 4))
    write_log(logs / "big-0", *(records(first, first + 10) for first in range(0, 2000, 10)))
    engine = Attempts(2)
    found = converted(logs, tmp_path / "out", engine)
    wanted = converted(logs, tmp_path / "one", Serial())
    assert rows(tmp_path / "out") == rows(tmp_path / "one")
    assert [each for each in found if isinstance(each, kdump.KdumpError)] == []
    conversions = [
        [one.topic_partition for one in each if isinstance(one, PartitionConversion)] for each in (found, wanted)
    ]
    assert conversions[0] == conversions[1]
    assert engine.tasks < 12


def test_strict_names_the_first_damage(tmp_path: Path) -> None:
    batches = [bytearray(records(first, first + 10)) for first in range(0, 400, 10)]
    for number in (3, 20, 35):
        batches[number][-1] ^= 1
    directory = write_log(tmp_path / "t-0", *map(bytes, batches))
    results = [
        converted(directory, tmp_path / name, engine, strict=True)
        for name, engine in (("one", Serial()), ("parts", Attempts(4)))
    ]
    assert [str(each) for each in results[1]] == [str(each) for each in results[0]]
    assert contents(tmp_path / "parts").keys() == {MANIFEST}


# ---- attempts


def test_attempts_at_the_same_time(tmp_path: Path) -> None:
    """In processes of their own: nothing comes twice, and nothing stays of the attempt whose result is lost."""
    directory = write_log(tmp_path / "t-0", *(records(first, first + 10) for first in range(0, 400, 10)))
    compare(directory, tmp_path, Attempts(2, processes=True))
    assert len(entry_of(tmp_path / "parts").files) > 2


def _dies(writer: PartitionWriter) -> Any:
    writer._end_file()
    os.kill(os.getpid(), signal.SIGKILL)


class Retries(Attempts):
    """The first attempt of each task is killed after it has written its files."""

    def _attempts(self, data: bytes) -> bytes:
        from support.attempts import attempt

        close = PartitionWriter.close
        PartitionWriter.close = _dies  # type: ignore[method-assign]
        try:
            with suppress(kdump.KdumpError):
                list(Processes(1).map(attempt, [data]))
        finally:
            PartitionWriter.close = close  # type: ignore[method-assign]
        return attempt(data)


def test_an_attempt_that_is_killed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_log(tmp_path / "t-0", *(records(first, first + 10) for first in range(0, 400, 10)))
    left: list[int] = []
    monkeypatch.setattr(parquet_tasks.OutputDirectory, "commit", _counted(left, parquet_tasks.OutputDirectory.commit))
    compare(directory, tmp_path, Retries(2))
    assert max(left) > 1


def _counted(left: list[int], commit: Any) -> Any:
    def counts(folder: Any, written: Any) -> Any:
        left.append(len(os.listdir(os.path.join(folder.path, folder.staging.name))) - len(written.files))
        return commit(folder, written)

    return counts


def test_an_attempt_after_the_end_leaves_nothing(tmp_path: Path) -> None:
    """A worker that still works when the run has ended finds no folder for its files."""
    late: list[Any] = []

    class Late(Attempts):
        def map(self, function: Any, tasks: Any) -> Any:
            for task, result in super().map(function, tasks):
                late.append((function, task))
                yield task, result

    directory = write_log(tmp_path / "t-0", *(records(first, first + 10) for first in range(0, 100, 10)))
    converted(directory, tmp_path / "out", Late(2))
    before = contents(tmp_path / "out")
    writes = [(function, task) for function, task in late if isinstance(function, parquet_tasks._Writer)]
    assert writes
    for function, task in writes:
        for result in function(task):
            assert "no such file or directory" in str(result.written)
    assert contents(tmp_path / "out") == before


def test_a_worker_that_does_not_see_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error names the host; the folder has what it had."""

    class Elsewhere(Attempts):
        def _attempts(self, data: bytes) -> bytes:
            real = StagingFolder.open
            with monkeypatch.context() as patched:
                patched.setattr(errors, "_host", "worker-7")
                patched.setattr(StagingFolder, "open", lambda self: real(self._replace(directory="/nowhere")))
                return super()._attempts(data)

    directory = write_log(tmp_path / "t-0", *(records(first, first + 10) for first in range(0, 100, 10)))
    found = converted(directory, tmp_path / "out", Elsewhere(2))
    (error,) = (each for each in found if not isinstance(each, ConvertFindings))
    assert str(error).endswith(
        "no such file or directory on the host worker-7; all hosts need the file system of the output"
    )
    assert contents(tmp_path / "out").keys() == {MANIFEST}
