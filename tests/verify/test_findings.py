"""Which finding is the same one: its identity, which neither the time nor the path changes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import kdump
from kdump.format.naming import TopicPartition
from kdump.storage.discovery import discover
from kdump.verify.findings import Finding, finding_fields, make_finding
from kdump.verify.verify import VerifyOptions, verify_logs
from support import build

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
NOW_MS = 1_800_000_000_000


def found(path: Path, now_ms: int = NOW_MS) -> list[Finding]:
    options = VerifyOptions(now_ms=now_ms)
    return [finding for report in verify_logs(discover([str(path)]), options) for finding in report.findings]


def test_the_time_of_a_check_changes_no_finding(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    batch = build.batch([build.record(b"k", b"v", timestamp=NOW_MS + 90_000_000)])
    (directory / f"{0:020}.log").write_bytes(batch)
    first, again = found(directory), found(directory, NOW_MS + 1)
    assert "time/future" in {finding.code for finding in first}
    assert [finding_fields(finding) for finding in first] == [finding_fields(finding) for finding in again]


def test_a_copy_has_the_same_findings(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(build.batch([b"a"]) + b"\1" * 20)
    shutil.copytree(directory, tmp_path / "elsewhere" / "t-0")
    first, copied = found(directory), found(tmp_path / "elsewhere" / "t-0")
    assert [finding.identity for finding in first] == [finding.identity for finding in copied]
    assert {finding.path for finding in first}.isdisjoint(finding.path for finding in copied)


def test_what_makes_the_identity() -> None:
    finding = make_finding("batch/crc", f"/logs/t-3/{7:020}.log", 12, 80, stored=1, computed=2)
    data = '["batch/crc","t",3,7,12,{"computed":2,"stored":1}]'
    assert finding.identity == sha256(data.encode()).hexdigest()[:16]
    assert finding_fields(finding)["identity"] == finding.identity
    others = [
        replace(finding, code="batch/length"),
        replace(finding, path=f"/logs/t-4/{7:020}.log"),
        replace(finding, path=f"/logs/u-3/{7:020}.log"),
        replace(finding, path=f"/logs/t-3/{8:020}.log"),
        replace(finding, position=13),
        replace(finding, data={"stored": 1, "computed": 3}),
    ]
    assert len({finding.identity, *(each.identity for each in others)}) == 7
    same = replace(finding, path=f"/x/t-3/{7:020}.log", broker="truncates", data={"computed": 2, "stored": 1})
    assert same.identity == finding.identity


def test_a_name_that_is_no_text_has_an_identity() -> None:
    odd = make_finding("file/name", "/logs/\udcff", 0, 0, name="\udcff", problem="partition")
    assert json.loads(json.dumps(odd.identity)) == odd.identity
    assert len(odd.identity) == 16


def test_a_log_directory_is_no_topic_partition_whatever_its_name(tmp_path: Path) -> None:
    """A disk of broker 1 can be called broker-1."""
    disk = tmp_path / "broker-1"
    shutil.copytree(FIXTURES / "log-directory", disk, ignore=shutil.ignore_patterns("expected", "case.toml"))
    for name in ("recovery-point-offset-checkpoint", "meta.properties", "notes", "orders-0/notes"):
        (disk / name).write_text("0\nx\n")
    data = bytearray((disk / "bootstrap.checkpoint").read_bytes())
    data[-1] ^= 1
    (disk / "bootstrap.checkpoint").write_bytes(data)
    found = {
        Path(each.path).relative_to(disk).as_posix(): each.topic_partition
        for report in verify_logs(discover([str(disk)]), VerifyOptions())
        for each in report.findings
    }
    own = {name: of for name, of in found.items() if "/" not in name}
    assert own == dict.fromkeys(
        ("recovery-point-offset-checkpoint", "meta.properties", "notes", "bootstrap.checkpoint"), None
    )
    assert found["orders-0/notes"] == TopicPartition("orders", 0)
    rows = kdump.table_reader([disk], "findings").read_all().select(["topic", "partition"]).to_pylist()
    assert {"topic": None, "partition": None} in rows
    assert "broker" not in {row["topic"] for row in rows}
