"""Offsets at the ends of what a long holds: nothing comes after 9223372036854775807, and no segment has one below 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdump.broker.partition_files import PartitionFiles
from kdump.broker.predict import directory_state, predict_start
from kdump.broker.producer_state_manager import ProducerSnapshots, ProducerStateManager
from kdump.format.naming import segment_file_name
from support import build
from support.command_runs import lines, run_inside, shown

HIGHEST = 2**63 - 1
PRODUCER = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}


def written(directory: Path, base: int, data: bytes) -> Path:
    directory.mkdir(parents=True)
    (directory / segment_file_name(base, ".log")).write_bytes(data)
    (directory / segment_file_name(base, ".index")).write_bytes(b"")
    return directory


def one(offset: int, **fields: int) -> bytes:
    return build.batch([build.record(None, b"x", timestamp=1000)], base_offset=offset, **fields)


def log_up_to_the_highest_offset() -> bytes:
    first = build.batch([], base_offset=0, count=2**31 - 1)
    return build.segment(first, *(build.message_v1(None, None, offset=offset) for offset in (1, HIGHEST)))


@pytest.mark.parametrize(
    "options",
    [(), ("--truncate", "--from", "all"), ("--truncate", "--from", "all", "--rebuild", "all"), ("--salvage",)],
    ids=" ".join,
)
def test_a_log_with_the_highest_offset_is_repaired(tmp_path: Path, options: tuple[str, ...]) -> None:
    directory = written(tmp_path / "log-0", 0, log_up_to_the_highest_offset())
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    ran = run_inside(tmp_path, "recover", "--format", "json", *options, "log-0")
    assert ran.status in (1, 4), ran.problems
    assert not [path for path in directory.iterdir() if "9223372036854775808" in path.name]
    if options:
        assert "offset/range" not in shown(run_inside(tmp_path, "verify", "--format", "json", "log-0"))
        assert run_inside(tmp_path, "recover", "--undo", "log-0").status == 0
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_batch_with_the_highest_offset_is_a_finding(tmp_path: Path) -> None:
    written(tmp_path / "log-0", HIGHEST, one(HIGHEST, **PRODUCER))
    assert shown(run_inside(tmp_path, "verify", "--level", "warning", "--format", "json", "log-0")) == ["offset/range"]
    written(tmp_path / "below-0", HIGHEST - 1, one(HIGHEST - 1, **PRODUCER))
    assert run_inside(tmp_path, "verify", "--level", "warning", "--format", "json", "below-0").status == 0


def test_a_log_that_ends_after_the_highest_offset_is_deleted_as_by_a_broker(tmp_path: Path) -> None:
    """Its end is below zero then, and so below the log start offset (LogLoader.recoverLog)."""
    directory = written(tmp_path / "log-0", HIGHEST, one(HIGHEST, **PRODUCER))
    outcome = predict_start(directory_state(str(directory)))
    assert outcome.log_end_offset == 0
    assert [segment.base_offset for segment in outcome.segments] == [0]
    ran = run_inside(tmp_path, "recover", "--format", "json", "log-0")
    assert [line["code"] for line in lines(ran) if line["type"] == "not_covered"] == []
    assert ran.status == 1


def test_a_salvage_keeps_what_is_below_the_highest_offset(tmp_path: Path) -> None:
    data = one(HIGHEST - 1, **PRODUCER) + one(HIGHEST)
    directory = written(tmp_path / "log-0", HIGHEST - 1, data)
    assert run_inside(tmp_path, "recover", "--salvage", "log-0").status == 4
    assert (directory / segment_file_name(HIGHEST - 1, ".log")).read_bytes() == one(HIGHEST - 1, **PRODUCER)
    assert shown(run_inside(tmp_path, "verify", "--level", "warning", "--format", "json", "log-0")) == []


def test_a_batch_from_below_zero_is_cut_off(tmp_path: Path) -> None:
    """Its last offset fits the segment, but no leader epoch begins below zero."""
    data = build.batch([build.record(None, b"x")] * 4, base_offset=-2, **PRODUCER)
    directory = written(tmp_path / "log-0", 0, data)
    assert run_inside(tmp_path, "recover", "--truncate", "--from", "all", "log-0").status == 4
    assert (directory / segment_file_name(0, ".log")).read_bytes() == b""


def test_snapshots_that_are_refused_are_read_once_each(tmp_path: Path) -> None:
    """Whatever their names: no loop waits until the last one is gone."""
    directory = written(tmp_path / "log-0", 0, one(0))
    names = (segment_file_name(7, ".snapshot"), segment_file_name(9, ".snapshot"))
    for name in names:
        (directory / name).write_bytes(b"damaged")
    files = PartitionFiles(directory_state(str(directory)))
    read: list[bytes] = []
    snapshots = ProducerSnapshots[bytes](files, read.append)
    snapshots.load_names()
    snapshots.names[2**63] = "9223372036854775808.snapshot"
    files.create("9223372036854775808.snapshot")

    class Forgetful:
        def clear(self) -> None: ...

    manager = ProducerStateManager(snapshots, Forgetful())  # type: ignore[arg-type]
    manager.truncate_and_reload(0, 2**63)
    assert len(read) == 3
    files.close()
