"""A log that is converted to a log for a range of time has the records of it, and the markers of their transactions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert.test_log_output import SOME, TRANSACTIONS, name_of, no_sync, written
from kdump.convert.log_options import LogOutputOptions
from kdump.log.log_slice import Bounds
from support import build
from support.laws import QUICK, examples, of_the_day
from support.new_logs import Row, batches, converted, defects, rows_of

__all__ = ["no_sync"]
LEFT_OUT = {("offset/gap", "warning")}
"""What the log shows where records in the middle are left out."""


def chosen(rows: Sequence[Row], time: Bounds) -> list[Row]:
    """Records in the range. A marker stays with records of its transaction, other control records by their time."""
    kept, begun = list[Row](), set[int]()
    first, stop = time
    for row in rows:
        inside = (first is None or row.timestamp >= first) and (stop is None or row.timestamp < stop)
        if row.control and row.transactional:
            inside = row.producer_id in begun
            begun.discard(row.producer_id)
        elif inside and row.transactional:
            begun.add(row.producer_id)
        if inside:
            kept.append(row)
    return kept


def bounds_of(rows: Sequence[Row]) -> list[int]:
    times = sorted({row.timestamp for row in rows})
    return [times[len(times) // 4], times[len(times) // 2], times[-1], times[-1] + 1] if times else [0]


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize("directory", of_the_day(sorted({*SOME, *TRANSACTIONS[::3]}), 3, whole=not QUICK), ids=name_of)
def test_fixtures(directory: Path, tmp_path: Path) -> None:
    everything = rows_of(directory)
    for number, bound in enumerate(bounds_of(everything)):
        for time in ((bound, None), (None, bound)):
            options = LogOutputOptions(time=time, codec="zstd" if number % 2 else None)
            result = converted(directory, tmp_path / f"{number}-{time[0] is None}", options)
            wanted = chosen(everything, time)
            assert rows_of(Path(result.path)) == wanted
            assert result.records == len(wanted)
            if everything:
                assert result.log_end_offset >= everything[-1].offset + 1


@settings(max_examples=examples(30))
@given(st.data())
def test_any_range(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Of any log, with any codec, and together with any range of offsets: sequences stay those of the records."""
    log = data.draw(build.segments(min_batches=1, gaps=True, compacted=data.draw(st.booleans())))
    directory = written(tmp_path_factory.mktemp("x"), log)
    everything = rows_of(directory)
    among = [None, *bounds_of(everything), *(row.timestamp for row in everything[:5])]
    time = data.draw(st.sampled_from(among)), data.draw(st.sampled_from(among))
    codec = data.draw(st.sampled_from([None, *build.CODECS]))
    options = LogOutputOptions(codec=codec, time=time, batch_bytes=data.draw(st.sampled_from([1, 300, 20_000])))
    result = converted(directory, directory.parent / "out", options)
    assert rows_of(Path(result.path)) == chosen(everything, time)
    assert defects(Path(result.path)) - LEFT_OUT <= defects(directory)


def batch(first: int, times: Sequence[int], **how: Any) -> bytes:
    records = [build.Record(b"k", b"v", timestamp=time) for time in times]
    return build.batch(records, base_offset=first, **how)


def test_a_batch_is_cut_and_keeps_its_bounds_and_sequences(tmp_path: Path) -> None:
    producer: Any = {"producer_id": 7, "producer_epoch": 0}
    log = build.segment(
        batch(0, [5, 6], base_sequence=0, **producer),
        batch(2, [9, 20, 11, 30], base_sequence=2, codec="gzip", **producer),
        batch(6, [12, 13], base_sequence=6, **producer),
        batch(8, [50], base_sequence=8, **producer),
    )
    directory = written(tmp_path, log)
    result = converted(directory, tmp_path / "out", LogOutputOptions(time=(10, 30)))
    assert [(row.offset, row.timestamp, row.sequence) for row in rows_of(Path(result.path))] == [
        (3, 20, 3), (4, 11, 4), (6, 12, 6), (7, 13, 7),
    ]  # fmt: skip
    found = [each for _, each in batches(Path(result.path))]
    assert [(each.base_offset, each.last_offset, each.max_timestamp) for each in found] == [
        (2, 5, 20), (6, 7, 13), (8, 8, -1),
    ]  # fmt: skip
    assert (result.cut, result.log_start_offset, result.log_end_offset) == (1, 2, 9)


def test_a_marker_stays_with_its_transaction(tmp_path: Path) -> None:
    """Whatever its own time is; where no record of the transaction stays, it goes, too."""
    producers: list[Any] = [
        {"producer_id": each, "producer_epoch": 0, "base_sequence": 0, "transactional": True} for each in (1, 2)
    ]
    log = build.segment(
        batch(0, [10], **producers[0]),
        batch(1, [100], **producers[1]),
        build.marker("COMMIT", base_offset=2, producer_id=1, timestamp=105),
        build.marker("ABORT", base_offset=3, producer_id=2, timestamp=900),
        batch(4, [101]),
    )
    directory = written(tmp_path, log)
    result = converted(directory, tmp_path / "out", LogOutputOptions(time=(100, 200)))
    assert [row.offset for row in rows_of(Path(result.path))] == [1, 3, 4]
    assert not {code for code, _ in defects(Path(result.path))} & {"txn/open", "txn/hanging"}


def test_log_append_time_is_that_of_the_batch(tmp_path: Path) -> None:
    log = build.segment(
        *(batch(first, [1, 2], timestamp_type="LogAppendTime", max_timestamp=first * 10) for first in (0, 2, 4)),
        build.message_v0(b"k", b"none", offset=6),
    )
    directory = written(tmp_path, log)
    for time, offsets in (((20, 40), [2, 3]), ((None, 20), [0, 1, 6]), ((-1, 0), [6])):
        result = converted(directory, tmp_path / str(time), LogOutputOptions(time=time))
        assert [row.offset for row in rows_of(Path(result.path))] == offsets


def test_nothing_is_in_the_range(tmp_path: Path) -> None:
    directory = written(tmp_path, batch(0, [1, 2]) + batch(2, [3]))
    result = converted(directory, tmp_path / "out", LogOutputOptions(time=(50, None)))
    assert (result.records, result.log_start_offset, result.log_end_offset) == (0, 3, 3)
    assert [path.name for path in Path(result.path).glob("*.log")] == [f"{3:020d}.log"]
