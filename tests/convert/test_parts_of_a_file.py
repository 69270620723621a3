"""A file that several processes write at once has the bytes, and the report, of one process."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.convert.choice import Choice
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.convert.single_file import placed_parts, tasks
from kdump.convert.single_file.placed_parts import PlacedPart, PlacedParts
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Result, Serial, Task
from kdump.errors import KdumpError, SourceError
from support import build
from support.damage import damage
from support.laws import examples
from support.parquet_folders import records
from support.parquet_folders import write_log as write_batches
from support.schema_values import ORDER_BYTES, REGISTRY, wire, write_log

TEN = range(0, 400, 10)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_LEAST_BYTES", 1)


@pytest.fixture
def schemas(tmp_path: Path) -> str:
    write_log(tmp_path / "registry" / "_schemas-0", REGISTRY)
    return str(tmp_path / "registry")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_batches(tmp_path / "logs" / "t-0", *(records(first, first + 10) for first in TEN))


class Pool(Processes):
    """Counts the parts that are written."""

    def __init__(self, slots: int = 2) -> None:
        super().__init__(slots)
        self.parts = 0

    def map(self, function: Callable[[Task], Result], given: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        wanted = list(given)
        self.begin([part for task in wanted for part in getattr(task, "parts", ())])
        yield from super().map(function, wanted)

    def begin(self, parts: Sequence[Any]) -> None:
        self.parts += len(parts)


def converted(path: Path, out: Path, engine: Engine, **how: Any) -> list[Any]:
    """What a conversion yields, the last one being the error that ended it."""
    found: list[Any] = []
    on_bytes = how.pop("on_bytes", None)
    run = convert_logs(
        kdump.discover(path), out, ConvertOptions(**how), named=[str(path)], engine=engine, on_bytes=on_bytes
    )
    try:
        found.extend(run)
    except KdumpError as error:
        found.append(str(error))
    return [str(each) if isinstance(each, KdumpError) else each for each in found]


def compare(path: Path, place: Path, engine: Processes, schemas: str, **how: Any) -> list[Any]:
    """Compares several writers with one; what both yield."""
    results = []
    how = {"target": Target.NDJSON, "schemas": schemas, **how}
    for folder, on in (("one", Serial()), ("parts", engine)):
        (place / folder).mkdir(exist_ok=True)
        results.append(converted(path, place / folder / "out", on, overwrite=True, **how))
    one, parts = ([str(each).replace(str(place / name), "") for each in found]
                  for name, found in zip(("one", "parts"), results, strict=True))  # fmt: skip
    assert parts == one
    assert os.listdir(place / "parts") == os.listdir(place / "one")
    if os.listdir(place / "one"):
        assert (place / "parts" / "out").read_bytes() == (place / "one" / "out").read_bytes()
    return results[1]


@pytest.mark.laws
@pytest.mark.parametrize("number", sorted({6, *range(examples(20))}))  # 6: a gap before the last batch of a part
def test_parts_of_a_partition_are_the_whole(tmp_path: Path, schemas: str, number: int) -> None:
    """Also with transactions that several parts have, with damage, and where a range of offsets is asked for."""
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    directory.mkdir()
    for segment in build.partition(rng, batches=40, odd=rng.choice((0, 0.1)), removed=rng.choice((0, 0, 0.3))):
        data = damage(segment.data, rng, 1) if rng.random() < 0.3 else segment.data
        (directory / f"{segment.base_offset:020}.log").write_bytes(data)
    how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-committed", "all"))}
    how["target"] = rng.choice((Target.NDJSON, Target.CSV))
    how["strict"] = rng.random() < 0.2
    if rng.random() < 0.3:
        low = rng.randrange(30)
        how["choice"] = Choice(offset=(low, low + rng.randrange(100)))
    compare(directory, tmp_path, Pool(rng.choice((2, 3))), schemas, **how)


@pytest.mark.daily(2)
@pytest.mark.parametrize("target", [Target.NDJSON, Target.CSV])
def test_several_partitions_and_tiny_ones(tmp_path: Path, schemas: str, target: Target) -> None:
    logs = tmp_path / "logs"
    for number in range(20):
        write_log(logs / f"t-{number}", [(b"k", wire(1, ORDER_BYTES))] * (1 + number % 4))
    write_batches(logs / "big-0", *(records(first, first + 10) for first in TEN))
    engine = Pool()
    progress: dict[int, int] = {}
    for slots in (1, 2):
        told: list[int] = []
        converted(
            logs, tmp_path / f"of-{slots}", Processes(slots), target=target, schemas=schemas, on_bytes=told.append
        )
        progress[slots] = sum(told)
    assert progress[1] == progress[2] > 0
    found = compare(logs, tmp_path, engine, schemas, target=target)
    assert engine.parts > 25
    assert len([each for each in found if isinstance(each, PartitionConversion)]) == 21


def test_what_has_one_writer(tmp_path: Path, schemas: str) -> None:
    directory = write_batches(tmp_path / "t-0", *(records(first, first + 10) for first in TEN))
    for target, how in ((Target.ARROW, {"schemas": schemas}), (Target.NDJSON, {}), (Target.CSV, {})):
        engine = Pool()
        converted(directory, tmp_path / f"out-{target}", engine, target=target, **how)
        assert engine.parts == 0


def test_strict_names_the_first_damage(tmp_path: Path, schemas: str) -> None:
    batches = [bytearray(records(first, first + 10)) for first in TEN]
    for number in (3, 20, 35):
        batches[number][-1] ^= 1
    directory = write_batches(tmp_path / "t-0", *map(bytes, batches))
    found = compare(directory, tmp_path, Pool(), schemas, strict=True)
    assert found[-1].endswith("; no output was written")
    assert os.listdir(tmp_path / "parts") == []


def test_partitions_without_schemas_are_left_out(tmp_path: Path) -> None:
    """Each of them, and all of it."""
    for name in ("a/a-0", "a/a-1", "b/b-0"):
        write_batches(tmp_path / "logs" / name, *(records(first, first + 10) for first in TEN))
    write_log(tmp_path / "logs" / "b" / "_schemas-0", REGISTRY)
    found = compare(tmp_path / "logs", tmp_path, Pool(), "auto", choice=Choice(topics=("a", "b")))
    assert ["no _schemas-0 here" in each for each in found if isinstance(each, str)] == [True, True]
    assert [each.rows for each in found if isinstance(each, PartitionConversion)] == [400]


class _Fails:
    """A function that says of the first part that it cannot be read."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, task: Any) -> Any:
        found = self._function(task)
        if getattr(task, "number", None) != 0:
            return found
        return tuple(each._replace(rows=0, error=SourceError("gone")) for each in found)


class _OnceGone(Pool):
    def map(self, function: Callable[[Task], Result], given: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        yield from super().map(_Fails(function), given)


def test_what_can_be_read_only_later(tmp_path: Path, log: Path, schemas: str) -> None:
    """A first part without rows leaves its partition out, but others have rows: one process writes all of it then."""
    engine = _OnceGone()
    found = compare(log.parent, tmp_path, engine, schemas)
    assert engine.parts > 2
    assert [each.rows for each in found if isinstance(each, PartitionConversion)] == [400]


class _Changes(Pool):
    """Before parts are written, the last batch of the first one and the next batch become one batch."""

    def __init__(self, log: Path, batches: Sequence[bytes]) -> None:
        super().__init__()
        self._log, self._batches = log, batches

    def begin(self, parts: Sequence[Any]) -> None:
        super().begin(parts)
        if parts:
            end, number = 0, 0
            while end < parts[0].slices[-1].stop:
                end, number = end + len(self._batches[number]), number + 1
            joined = records(10 * (number - 1), 10 * number + 10)
            self._log.write_bytes(b"".join((*self._batches[: number - 1], joined, *self._batches[number + 1 :])))


def test_a_batch_that_goes_beyond_its_part(tmp_path: Path, schemas: str) -> None:
    """Another process wrote the log anew after it was cut: one process writes all of it then."""
    batches = [records(first, first + 10) for first in TEN]
    directory = write_batches(tmp_path / "t-0", *batches)
    engine = _Changes(directory / f"{0:020}.log", batches)
    how: dict[str, Any] = {"target": Target.CSV, "schemas": schemas, "columns": ("offset",)}
    found = converted(directory, tmp_path / "parts.csv", engine, **how)
    assert engine.parts > 1
    assert not any(isinstance(each, ConvertFindings | str) for each in found)
    converted(directory, tmp_path / "one.csv", Serial(), **how)
    lines = (tmp_path / "parts.csv").read_text().split()
    assert lines == (tmp_path / "one.csv").read_text().split()
    assert [line.split(",")[0] for line in lines] == ["offset", *map(str, range(400))]


# ---- trouble


def test_a_full_disk(tmp_path: Path, log: Path, schemas: str) -> None:
    """The limit of a file's size stands for the disk: the system refuses the same calls."""
    (tmp_path / "out").mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        found = converted(log, tmp_path / "out" / "o", Pool(), target=Target.NDJSON, schemas=schemas)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found == [f"{tmp_path}/out/o: {os.strerror(errno.EFBIG).lower()}; it was not written; not finished: t-0"]
    assert os.listdir(tmp_path / "out") == []


def _killer(monkeypatch: pytest.MonkeyPatch, whom: Callable[[], int]) -> None:
    """When one of the parts ends, a process is killed."""
    finish = PlacedPart.finish

    def kill(part: PlacedPart) -> None:
        if part._number == 2:
            os.kill(whom(), signal.SIGKILL)
        finish(part)

    monkeypatch.setattr(PlacedPart, "finish", kill)


def test_a_worker_that_is_killed(tmp_path: Path, log: Path, schemas: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _killer(monkeypatch, os.getpid)
    (tmp_path / "out").mkdir()
    (error,) = converted(log, tmp_path / "out" / "o", Pool(), target=Target.NDJSON, schemas=schemas)
    assert "a worker process was killed" in error
    assert os.listdir(tmp_path / "out") == []


def test_after_a_run_that_is_killed(tmp_path: Path, log: Path, schemas: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves the one file of an output that has no name yet, which the next run takes."""
    out = tmp_path / "parts"
    out.mkdir()
    with monkeypatch.context() as patched:
        _killer(patched, os.getppid)
        run = os.fork()
        if run == 0:
            try:
                converted(log, out / "out", Pool(), target=Target.NDJSON, schemas=schemas)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]) == -signal.SIGKILL
    (left,) = os.listdir(out)
    assert left.startswith(".kdump-part-")
    wait_for_lock(out / left)
    compare(log, tmp_path, Pool(), schemas)
    assert os.listdir(out) == ["out"]


def wait_for_lock(path: Path) -> None:
    """Until the workers of the killed run have ended, too."""
    import fcntl

    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


# ---- places


class _Write:
    """Writes a part in several pieces."""

    def __init__(self, parts: PlacedParts) -> None:
        self._parts = parts

    def __call__(self, task: tuple[int, list[bytes]]) -> None:
        number, pieces = task
        with self._parts.write(number) as part:
            for piece in pieces:
                assert part.write(piece) == len(piece)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(10)))
def test_any_parts_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Parts of any size, also such that do not fit into memory, between what stands before and after them."""
    monkeypatch.setattr(placed_parts, "BUFFER_BYTES", 1000)
    rng = random.Random(number)
    slots = rng.choice((2, 3, 5))
    given = [
        (part, [rng.randbytes(rng.choice((0, 1, 300, 2000))) for _ in range(rng.randrange(6))])
        for part in range(rng.randrange(30))
    ]
    with (tmp_path / "out").open("wb") as file:
        file.write(b"before")
        with closing(PlacedParts(file, "out", slots)) as parts:
            for _ in Processes(slots).map(_Write(parts), given):
                pass
            parts.end(len(given))
        file.write(b"after")
    wanted = b"".join(piece for _, pieces in given for piece in pieces)
    assert (tmp_path / "out").read_bytes() == b"before" + wanted + b"after"
