"""Rows out and offsets that are said to be missing are the records of the undamaged log, whatever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdump.errors import KdumpError
from support.conversion_losses import Case, NotApplicable, broken_promises, case, has_source
from support.laws import examples


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
    ],
    ids=lambda each: f"{each.damage}-{each.output}-{each.seed}",
)
def test_what_was_not_said_once(each: Case, tmp_path: Path) -> None:
    if each.output == "spark" and not has_source():
        pytest.skip("no Spark")
    assert list(broken_promises(each, tmp_path)) == []
