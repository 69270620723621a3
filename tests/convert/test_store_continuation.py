"""Of an object store a continued conversion fetches what is new once, and says what one from a disk says."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.convert.choice import Choice
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions
from kdump.convert.parquet import tasks as parquet_tasks
from kdump.convert.parquet.manifest import MANIFEST, ConvertedPartition
from kdump.convert.records import outcomes_ahead
from kdump.convert.results import ConvertFindings, OutputFile, PartitionConversion
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError
from kdump.storage import file_store
from kdump.storage.object_store import object_store
from support import build
from support.attempts import Attempts
from support.laws import examples, sampled
from support.object_stores import Unsteady, copy, unsteady_store
from support.parquet_folders import manifest_of
from support.store_logs import MIB, any_log, fetch, log, put


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def run(path: str, out: Path, engine: Any = None, **how: Any) -> list[Any]:
    object_store.cache_clear()
    Unsteady.calls.clear()
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(**how), engine=engine))


def rows_of(results: list[Any]) -> int:
    return sum(each.total_rows for each in results if isinstance(each, PartitionConversion))


# ---- bytes


@pytest.mark.daily(2)
@pytest.mark.parametrize("segment_mib", [3, 100])
@pytest.mark.parametrize(("transaction", "until_stable"), [(0, False), (5, False), (0, True), (5, True)])
def test_what_is_new_is_fetched_once(
    store: str, tmp_path: Path, transaction: int, segment_mib: int, until_stable: bool
) -> None:
    """Beside what is new: for each log the entries of its index near the last batch, and the batches there."""
    batches = log(20, transaction=transaction, outcomes="COMMIT ABORT COMMIT")
    cuts = [len(batches) * 3 // 5, len(batches) * 4 // 5, len(batches)]
    before = rows = 0
    for cut in cuts:
        size = put("t-0", batches[:cut], segment_mib * MIB, padding=10 * MIB)
        results = run(store, tmp_path / "out", until_stable=until_stable)
        assert Unsteady.calls["bytes"] <= 1.02 * (size - before) + MIB / 2
        before, rows = size, rows_of(results)
    run(store, tmp_path / "out", until_stable=until_stable)
    assert Unsteady.calls["bytes"] <= MIB / 2
    assert rows == rows_of(run(store, tmp_path / "once", until_stable=until_stable)) > 500
    assert Unsteady.calls["bytes"] <= 1.02 * before


def test_a_long_transaction_is_fetched_twice(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is longer than what is kept."""
    monkeypatch.setattr(file_store, "MARKERS_AHEAD_BYTES", 16 * MIB)
    size = put("t-0", log(60, transaction=1000, batch=30_000), 25 * MIB)
    rows = rows_of(run(store, tmp_path / "out"))
    assert rows == 60 * MIB // 30_000
    assert Unsteady.calls["bytes"] <= 2.1 * size


def test_other_isolations_need_no_outcomes(store: str, tmp_path: Path) -> None:
    size = put("t-0", log(10, transaction=5), 3 * MIB)
    for isolation in ("read-uncommitted", "all"):
        run(store, tmp_path / isolation, isolation=isolation)
        assert Unsteady.calls["bytes"] <= 1.02 * size


@pytest.mark.daily(2)
@pytest.mark.parametrize("index", [b"", bytes(800), struct.pack(">ii", 1, 77) * 3, b"\xff" * 80])
def test_a_bad_index_costs_bytes_alone(store: str, tmp_path: Path, index: bytes) -> None:
    batches = log(8)
    put("t-0", batches[:300], 100 * MIB)
    run(store, tmp_path / "out")
    put("t-0", batches, 100 * MIB)
    Unsteady().pipe_file(f"/bucket/t-0/{0:020}.index", index)
    assert rows_of(run(store, tmp_path / "out")) == len(batches)


# ---- a store and a disk


def entries(out: Path) -> list[ConvertedPartition]:
    """What the manifest says; nothing where nothing could be read."""
    return [*manifest_of(out).partitions.values()] if (out / MANIFEST).exists() else []


def said(path: str, out: Path, engine: Any = None, **how: Any) -> list[str]:
    """What a conversion says but for its files, and what the manifest says, without the path of what was read."""
    found: list[Any] = []
    try:
        for each in run(path, out, engine, **how):
            match each:
                case ConvertFindings():
                    found += each.findings
                case PartitionConversion():
                    found.append(each._replace(files=()))
                case OutputFile():
                    pass
                case _:
                    found.append(each)
    except KdumpError as error:
        found.append(error)
    found += [entry._replace(files=()) for entry in entries(out)]
    return [repr(each).replace(str(out), "OUT").replace(path, "ROOT") for each in found]


def rows_in(out: Path) -> list[Any]:
    """The rows that stay, and those that the next run replaces."""
    files = [file for entry in entries(out) for file in entry.files]
    return [
        [row for file in files if file.provisional == provisional for row in pq.read_table(out / file.name).to_pylist()]
        for provisional in (False, True)
    ]


def upload(logs: Path) -> None:
    Unsteady.reset()
    copy(Unsteady(), logs, "/bucket")


def compare(logs: Path, place: Path, **how: Any) -> list[str]:
    """Convert a directory from the disk and from the store, and compare what both say and write."""
    upload(logs)
    there = said("unsteady://bucket", place / "there", **how)
    assert there == said(str(logs), place / "here", **how)
    assert rows_in(place / "there") == rows_in(place / "here")
    return there


def shorten(logs: Path, directory: Path, rng: random.Random) -> None:
    """Make of a log directory what it was earlier: without its last segments, and the end of what is last then."""
    segments = sorted(path for path in directory.glob("*.log") if path.is_file())
    if not segments:
        return
    keep = rng.randrange(len(segments))
    for segment in segments[keep + 1 :]:
        segment.unlink()
        for suffix in (".index", ".timeindex", ".txnindex"):
            segment.with_suffix(suffix).unlink(missing_ok=True)
    data = segments[keep].read_bytes()
    ends, position = [0], 0
    while position + 12 <= len(data) and (size := build.total_size(data, position)) > 12:
        position += size
        ends.append(min(position, len(data)))
    end = rng.choice(ends) if rng.random() < 0.8 else rng.randrange(len(data) + 1)
    segments[keep].write_bytes(data[:end])
    for each in logs.glob("*-checkpoint"):
        if rng.random() < 0.5:
            each.unlink()


@pytest.mark.laws
def test_a_continued_store_and_disk_give_the_same(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over damages of logs that brokers wrote, and of generated ones, that have grown between two runs."""
    monkeypatch.setattr(outcomes_ahead, "_STEP_BYTES", 300)
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1)
    for seed in sampled(range(examples(200)), 3):
        rng = random.Random(f"continued store {seed}")
        place = tmp_path / str(seed)
        logs, now = place / "logs", place / "now"
        count = rng.choice((1, 1, 2))
        for number in range(count):
            directory = now / f"t{number}-0"
            any_log(directory, rng, damaged=0.3)
        shutil.copytree(now, logs)
        for directory in sorted(logs.iterdir()):
            shorten(logs, directory, rng)
        how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-committed", "read-uncommitted", "all"))}
        how["until_stable"] = how["isolation"] == "read-committed" and rng.random() < 0.5
        how["strict"] = rng.random() < 0.1
        low = rng.choice((None, rng.randrange(20))) if count == 1 else None
        stops = sorted(rng.randrange(10, 120) for _ in range(2))
        offsets = [(low, stop if count == 1 and rng.random() < 0.2 else None) for stop in stops]
        how["engine"] = rng.choice((Serial(), Serial(), Attempts()))
        try:
            compare(logs, place, choice=Choice(offset=offsets[0]), **how)
            shutil.rmtree(logs)
            now.rename(logs)
            compare(logs, place, choice=Choice(offset=offsets[1]), **how)
            compare(logs, place, choice=Choice(offset=offsets[1]), **how)
        except AssertionError as error:
            raise AssertionError(seed, how) from error
        shutil.rmtree(place)


def rewritten(data: bytes, rng: random.Random) -> bytes:
    return build.batch([build.record(b"other", b"value")], base_offset=0) + data


CHANGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda log: log.write_bytes(log.read_bytes()[:-20_000]),
    "another last batch": lambda log: log.write_bytes(resealed(log.read_bytes())),
    "gone": lambda log: log.unlink(),
    "empty": lambda log: log.write_bytes(b""),
    "offsets from 0 again": lambda log: log.write_bytes(b"".join(data for _, data in log_of_others())),
}


def log_of_others() -> list[tuple[int, bytes]]:
    return log(1, batch=9_000)


def resealed(data: bytes) -> bytes:
    """The same with another record in the last batch."""
    at = position = 0
    while position < len(data):
        at = position
        position += build.total_size(data, position)
    changed = bytearray(data)
    changed[-5] ^= 1
    return build.reseal(bytes(changed), at)


@pytest.mark.daily(4)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("transaction", [0, 5])
def test_a_log_that_has_changed_is_refused(
    store: str, tmp_path: Path, transaction: int, grows: bool, change: str
) -> None:
    """As from a disk: where its last segment is another one, whether it has a segment after that or not."""
    batches = log(2, transaction=transaction)
    put("t-0", batches, MIB)
    logs = tmp_path / "logs"
    fetch(logs)
    assert not [each for each in compare(logs, tmp_path) if "refused" in each]
    CHANGES[change](max((logs / "t-0").glob("*.log")))
    if grows:
        end = batches[-1][0] + 1
        after = build.batch([build.record(b"k", b"after")], base_offset=end)
        (logs / "t-0" / f"{end:020}.log").write_bytes(after)
    told = compare(logs, tmp_path)
    assert any("--rewrite" in each for each in told), told


@pytest.mark.daily(2)
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("transaction", [0, 5])
def test_a_file_that_lost_a_batch_is_read_again(store: str, tmp_path: Path, transaction: int, which: int) -> None:
    """What is missing of it is said, as of a disk, though it was converted before."""
    batches = log(3, transaction=transaction)
    put("t-0", batches, 2 * MIB)
    logs = tmp_path / "logs"
    fetch(logs)
    compare(logs, tmp_path)
    path = sorted((logs / "t-0").glob("*.log"))[which]
    data, start = path.read_bytes(), 0
    for _ in range(9):
        start += build.total_size(data, start)
    path.write_bytes(data[:start] + data[start + build.total_size(data, start) :])
    path.with_suffix(".index").unlink()
    assert any("offset/gap" in each for each in compare(logs, tmp_path))


def test_a_log_that_begins_later_is_refused(store: str, tmp_path: Path) -> None:
    batches = log(2)
    put("t-0", batches[:60], MIB)
    logs = tmp_path / "logs"
    fetch(logs)
    compare(logs, tmp_path)
    Unsteady.reset()
    put("t-0", batches[80:], MIB)
    shutil.rmtree(logs)
    fetch(logs)
    assert any("the log begins at" in each for each in compare(logs, tmp_path))
