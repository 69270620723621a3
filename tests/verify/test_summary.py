"""The totals of a verify as values that a Python program can use."""

from collections import Counter
from pathlib import Path

from kdump.storage.discovery import discover
from kdump.verify.findings import Severity
from kdump.verify.summary import FindingFilter, VerifyTotals, summarize_file, summarize_partition
from kdump.verify.verify import verify_logs
from support import build


def damaged(root: Path) -> str:
    directory = root / "t-0"
    directory.mkdir()
    first = build.batch([b"a"])
    log = bytearray(first + build.batch([b"b"], base_offset=1) + bytes(20))
    log[len(first) - 1] ^= 1
    (directory / f"{0:020}.log").write_bytes(log)
    return str(directory)


def test_totals_are_those_of_the_reports(tmp_path: Path) -> None:
    totals = VerifyTotals()
    kept = [finding for report in verify_logs(discover([damaged(tmp_path)])) for finding in totals.add(report)]
    summary = totals.summary()
    assert (summary.files, summary.segments, summary.interrupted) == (1, 1, False)
    assert (summary.worst, summary.counts["batch/crc", Severity.ERROR]) == (Severity.ERROR, 1)
    assert sum(summary.counts.values()) == len(kept) + summary.findings_dropped
    assert summary.fields()["findings"]["by_severity"]["error"] == 1
    assert not {"exit_status", "command", "seconds"} & summary.fields().keys()


def test_a_filter_takes_codes_and_families(tmp_path: Path) -> None:
    wanted = FindingFilter(("batch", "tail/zeros"), ("batch/crc",))
    assert [code for code in ("batch/crc", "batch/length", "tail/zeros", "tail/torn") if wanted.selects(code)] == [
        "batch/length",
        "tail/zeros",
    ]
    totals = VerifyTotals(wanted)
    [report] = verify_logs(discover([damaged(tmp_path)]))
    assert {finding.code for finding in totals.add(report)} == {"tail/zeros"}
    assert totals.summary().worst == Severity.WARNING
    [file] = report.files
    assert summarize_file(file, report.counts_by_path(wanted.selects)[file.file.path]).findings == 1
    partition = summarize_partition(report, wanted)
    assert partition is not None
    assert partition.counts == Counter({("tail/zeros", Severity.WARNING): 1})
    assert (partition.fields()["topic"], partition.fields()["broker"]["log_end_offset"]) == ("t", 0)


def test_a_run_without_findings_has_no_worst_severity() -> None:
    assert VerifyTotals().summary().worst is None
