"""What a thread has decoded ahead is what was to be read, in order, with its errors; and it ends with who reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kdump.convert import tables
from kdump.convert.parquet.manifest import MANIFEST
from kdump.convert.parquet.writer import PartitionWriter
from kdump.convert.records.decode_ahead import decode_ahead
from kdump.errors import KdumpError
from support import build
from support.parquet_folders import contents, converted, offsets_of, refused, write_log
from support.waits import thread_waits, until


def batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number]})


def numbers(stop: int, error: Exception | None = None) -> Iterator[pa.RecordBatch]:
    yield from map(batch, range(stop))
    if error is not None:
        raise error


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "kdump-decode"]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_all_come_in_order(count: int) -> None:
    assert [each["n"][0].as_py() for each in decode_ahead(numbers(20), count)] == list(range(20))
    assert list(decode_ahead(numbers(0), count)) == []


def test_an_error_comes_after_what_was_read() -> None:
    found: list[int] = []
    with pytest.raises(KdumpError, match="broken"):  # noqa: PT012  # what came before counts
        for each in decode_ahead(numbers(3, KdumpError("broken")), 2):
            found += each["n"].to_pylist()
    assert found == [0, 1, 2]


def test_who_stops_early_ends_the_thread() -> None:
    reading = decode_ahead(numbers(1000), 2)
    assert next(reading)["n"][0].as_py() == 0
    reading.close()


def test_what_is_large_is_written_before_the_next_one_is_decoded() -> None:
    decoded: list[int] = []

    def numbered() -> Iterator[pa.RecordBatch]:
        for number in range(6):
            decoded.append(number)
            yield batch(number)

    for number, each in enumerate(decode_ahead(numbered(), 4, batch(0).nbytes - 1)):
        assert each["n"][0].as_py() == number
        until(lambda number=number: number == 5 or thread_waits("kdump-decode"))  # type: ignore[misc]
        assert decoded == list(range(number + 1))


def test_what_is_small_is_decoded_ahead() -> None:
    decoded: list[int] = []
    enough = threading.Event()

    def numbered() -> Iterator[pa.RecordBatch]:
        for number in range(6):
            decoded.append(number)
            if number == 5:
                enough.set()
            yield batch(number)

    reading = decode_ahead(numbered(), 4)
    next(reading)
    assert enough.wait(10)
    reading.close()
    assert decoded == list(range(6))


def compressed_log(place: Path) -> Path:
    """A log that does not fit one record batch."""
    value = bytes(tables.DATA_BYTES // 2)
    batches = [build.batch([build.Record(value=value)], base_offset=offset, codec="zstd") for offset in range(6)]
    return write_log(place / "t-0", *batches)


def test_a_log_in_several_record_batches(tmp_path: Path) -> None:
    converted(compressed_log(tmp_path), tmp_path / "out")
    assert offsets_of(tmp_path / "out") == list(range(6))


def test_an_error_of_the_writer_ends_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PartitionWriter.write
    calls = 0

    def fails(writer: PartitionWriter, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KdumpError("full")
        write(writer, *arguments)

    monkeypatch.setattr(PartitionWriter, "write", fails)
    assert refused(compressed_log(tmp_path), tmp_path / "out") == "full"
    assert [name for name in contents(tmp_path / "out") if name != MANIFEST] == []
