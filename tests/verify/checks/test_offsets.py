"""offset/base on directories that brokers left: one bit of the base offset of the last batch of a log is set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdump.storage.discovery import discover
from kdump.verify.verify import VerifyOptions, verify_logs

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def last_batch(data: bytes) -> int:
    """The position of the last batch of magic 2; -1 without one."""
    at, last = 0, -1
    while at + 61 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12])):
        last, at = at, at + 12 + size
    return last


def active_logs(directory: Path) -> list[Path]:
    logs = [max(place.glob("*.log")) for place in sorted(directory.iterdir()) if list(place.glob("*.log"))]
    return [path for path in logs if last_batch(path.read_bytes()) > 0 and not path.parent.name.endswith("-delete")]


@pytest.mark.parametrize("case", ["leader", "leader-2.8.2", "log-directory"])
def test_a_set_bit(tmp_path: Path, case: str) -> None:
    copy = tmp_path / case
    shutil.copytree(FIXTURES / case, copy, ignore=shutil.ignore_patterns("expected", "__cluster_metadata*"))
    logs = active_logs(copy)
    assert len(logs) >= 3
    for path in logs:
        data = path.read_bytes()
        at = last_batch(data)
        offset = int.from_bytes(data[at : at + 8])
        for bit in (0, 1, 3, 20):
            if not offset >> bit & 1:
                flipped = offset | 1 << bit
                path.write_bytes(data[:at] + flipped.to_bytes(8) + data[at + 8 :])
                (report,) = verify_logs(discover([str(path.parent)]), VerifyOptions())
                (found,) = (one for one in report.findings if one.code == "offset/base")
                assert (found.offset, found.data["expected"], found.position) == (flipped, offset, at), path
        path.write_bytes(data)
        (report,) = verify_logs(discover([str(path.parent)]), VerifyOptions())
        assert "offset/base" not in {one.code for one in report.findings}
