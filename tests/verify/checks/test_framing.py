"""The findings about bytes that are not a valid batch have exactly those bytes: none is missing, none stands twice."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from kdump.storage.discovery import discover
from kdump.verify.verify import verify_logs
from support.damage import DAMAGES, NotApplicable

LOG = Path(__file__).resolve().parents[3] / "fixtures/transactions/transactions-0/00000000000000000000.log"
INVALID = (
    "batch/crc",
    "batch/length",
    "batch/limit",
    "batch/magic",
    "gap/bytes",
    "tail/torn",
    "tail/zeros",
    "tail/garbage",
)
ROUNDS = 2


@pytest.mark.parametrize("name", sorted(DAMAGES))
def test_bytes_in_no_valid_batch(tmp_path: Path, name: str) -> None:
    for seed in range(ROUNDS):
        path = tmp_path / f"{seed}" / LOG.name
        path.parent.mkdir()
        try:
            path.write_bytes(DAMAGES[name](LOG.read_bytes(), random.Random(seed)))
        except NotApplicable:
            continue
        (report,) = verify_logs(discover([str(path)]))
        found = sorted((one.position, one.position + one.length) for one in report.findings if one.code in INVALID)
        assert all(start < stop for start, stop in found)
        assert all(before[1] <= after[0] for before, after in pairwise(found))
        assert sum(stop - start for start, stop in found) == report.files[0].bytes - report.files[0].valid_bytes
