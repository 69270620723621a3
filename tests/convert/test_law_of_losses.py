"""Rows out and offsets that are said to be missing are the records of the undamaged log, whatever reads it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from support import build
from support.conversion_losses import Case, NotApplicable, broken_promises, case, has_source
from support.laws import examples
from support.losses import FIXTURES


@pytest.mark.laws
def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """Over damages of logs that brokers wrote, all outputs, one copy and several, with and without high watermark."""
    tried = 0
    for seed in range(examples(250)):
        each = case(seed)
        if each.output == "spark" and not has_source():
            continue
        try:
            assert list(broken_promises(each, tmp_path / str(seed))) == [], each
        except (NotApplicable, KdumpError):  # nothing to damage; nothing is there
            continue
        tried += 1
    assert tried >= examples(250) * 0.6


@pytest.mark.daily(4)
@pytest.mark.parametrize(
    "each",
    [
        Case("transactions/transactions-0", "resealed-count", True, 1, False, "parquet", 192),
        Case("compacted/later-0", "offset-back", True, 1, False, "log", 1100),
        Case("segments/segments-0", "empty-log", False, 1, False, "arrow", 304),
        Case("crash/crash-0", "rotated-batches", True, 1, False, "parquet", 59),
        Case("v1-segments-0.10.2.2/segments-0", "rotated-batches", False, 1, False, "arrow", 136),
        Case("v0-segments-0.8.2.2/segments-0", "offset-overflow", False, 1, False, "log", 538),
        Case("segments/segments-0", "renamed-segment", True, 1, False, "ndjson", 180),
        Case("v0-segments-0.8.2.2/segments-0", "odd-short-log", False, 1, False, "spark", 1529),
        Case("v1-segments-0.10.2.2/segments-0", "odd-short-log", False, 1, False, "spark", 0),
        Case("transactions/transactions-0", "bad-marker", True, 2, False, "arrow-reader", 1876),
        Case("transactions/transactions-0", "bad-marker", True, 1, False, "parquet", 1876),
        Case("transactions/transactions-0", "bad-marker", True, 1, False, "csv", 1876),
        Case("compacted/later-0", "resealed-payload", True, 2, False, "spark", 1933),
        Case("compacted/later-0", "offset-overflow", True, 2, False, "spark", 276),
        Case("compacted/later-0", "offset-overflow", True, 2, True, "spark", 276),
        Case("transactions/transactions-0", "odd-short-log", False, 1, False, "spark", 740),
        Case("v1-segments-0.10.2.2/segments-0", "rotated-batches", True, 1, False, "spark", 961),
        Case("mixed-through-3.9.1/mixed-0", "rotated-batches", True, 1, False, "spark", 3976),
        Case("compacted/later-0", "renamed-segment", False, 1, False, "spark", 14, is_cleaned=True),
        Case("compacted/later-0", "truncate-in-header", True, 2, True, "spark", 80, is_cleaned=True),
        Case("compacted/later-0", "renamed-segment", True, 2, True, "spark", 163, is_cleaned=True),
        Case("compacted/later-0", "zeroed-page", True, 2, True, "spark", 244, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", False, 2, False, "spark", 268, is_cleaned=True),
        Case("compacted/later-0", "odd-short-log", True, 1, False, "spark", 350, is_cleaned=True),
        Case("compacted/later-0", "rotated-batches", False, 1, False, "spark", 742, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", True, 1, False, "spark", 2156, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", False, 2, False, "spark", 2156, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", True, 2, False, "spark", 45, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", True, 1, False, "spark", 256, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", True, 2, False, "spark", 401, is_cleaned=True),
        *(
            Case("compacted/later-0", "offset-below-base", True, 1, False, output, 30, is_cleaned=True)
            for output in ("spark", "arrow", "log", "arrow-reader")
        ),
        Case("compacted/later-0", "offset-below-base", False, 2, False, "spark", 68, is_cleaned=True),
        Case("compacted/later-0", "offset-below-base", False, 1, False, "spark", 102),
        Case("compacted/later-0", "renamed-segment", False, 1, False, "spark", 201805),
        Case("compacted/later-0", "renamed-segment", True, 2, True, "spark", 201805, is_cleaned=True),
        Case("compacted/later-0", "flip-leader-epoch", False, 2, True, "spark", 202300),
        Case("compacted/later-0", "offset-back", False, 2, True, "spark", 201155),
        Case("v0-segments-0.8.2.2/segments-0", "offset-overflow", False, 1, False, "spark", 101294),
        Case("crash/crash-0", "rotated-batches", False, 2, False, "spark", 900162),
        *(
            Case("mixed-through-3.9.1/mixed-0", "rotated-batches", False, 2, False, output, 911383)
            for output in ("arrow", "parquet", "log", "arrow-reader", "spark")
        ),
        Case("compacted/later-0", "swapped-batches", False, 1, False, "log", 7144),
        Case("compacted/later-0", "swapped-batches", True, 2, False, "log", 7144, is_cleaned=True),
    ],
    ids=lambda each: f"{each.damage}-{each.output}-{each.seed}",
)
def test_what_was_not_said_once(each: Case, tmp_path: Path) -> None:
    if each.output == "spark" and not has_source():
        pytest.skip("no Spark")
    assert list(broken_promises(each, tmp_path)) == []


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("garbage", [b"\x07" * 500, b"\0" * 30 + b"\x07", bytes(500)], ids=["garbage", "torn", "zeros"])
@pytest.mark.parametrize("partition", ["segments/segments-0", "transactions/transactions-0"])
def test_a_last_segment_without_a_valid_batch_is_said(
    tmp_path: Path, partition: str, garbage: bytes, copies: int
) -> None:
    """The log ends where its last segment begins, and where that is the only one it has no offsets at all."""
    if not has_source():
        pytest.skip("no Spark")
    from support.spark_losses import read_ranges

    for number in range(copies):
        copy = tmp_path / str(number) / Path(partition).name
        shutil.copytree(FIXTURES / partition, copy)
        last = max(copy.glob("*.log"))
        last.write_bytes(garbage)
    _, missing, is_error, codes = read_ranges([tmp_path], copy.name, 0)
    if not any(garbage):  # a broker may have preallocated them
        assert (missing, is_error, codes) == ([], False, {"tail/zeros"})
    else:
        assert missing == [(int(last.stem), None, False)]
        assert is_error


@pytest.mark.parametrize("damaged", [0, 2, 5])
def test_the_lowest_base_offset_is_no_wrapper_message(tmp_path: Path, damaged: int) -> None:
    """A batch with the offset of a field that is not there; as the last one it does not say where the log ends."""
    if not has_source():
        pytest.skip("no Spark")
    from support.spark_losses import read_ranges

    batches = [
        bytearray(build.batch([build.record(b"k", b"v")] * 5, base_offset=offset, last_offset_delta=4))
        for offset in range(0, 30, 5)
    ]
    struct.pack_into(">q", batches[damaged], 0, -(1 << 63))
    log = tmp_path / "logs/t-0/00000000000000000000.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"".join(batches))
    rows, missing, is_error, codes = read_ranges([log.parent.parent], "t-0", 0)
    assert set(range(30)) - rows == set(range(5 * damaged, 5 * damaged + 5))
    assert (-(1 << 63), 4 - (1 << 63), False) in missing
    assert is_error
    assert "offset/range" in codes
