"""Which partitions the reports are about, and the settings that they assume for them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kdump.broker.cleaner.log_config import TopicSettings, parse_cleanup_policy, settings_for, topic_settings
from kdump.stat.partition_reports import ReportOptions, make_reports
from kdump.stat.report_scope import Unreported, unreported_because
from kdump.stat.stat import stat_logs
from kdump.stat.values import PartitionStatistics
from kdump.storage.discovery import discover
from support.stat_logs import partition

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COMPACT, DELETE = parse_cleanup_policy("compact"), parse_cleanup_policy("delete")
LOG = ("0..9 100b @100", "10..19 100b @200")


def measured(*paths: Path) -> list[PartitionStatistics]:
    return [
        each for each in stat_logs(discover([str(path) for path in paths])) if isinstance(each, PartitionStatistics)
    ]


def test_partitions_of_fixtures() -> None:
    root = FIXTURES / "log-directory"
    found = {Path(each.path).name: unreported_because(each) for each in measured(root)}
    assert found["settings-0"] is None
    assert found["__cluster_metadata-0"] is Unreported.CLUSTER_METADATA
    assert {value for name, value in found.items() if name.endswith(("-delete", "-stray", "-future"))} == {
        Unreported.SET_ASIDE
    }


def test_a_file_that_was_named_alone() -> None:
    log = next((FIXTURES / "segments" / "segments-0").glob("*.log"))
    (of,) = measured(log)
    assert unreported_because(of) is Unreported.ONE_FILE
    reports = make_reports(of, ReportOptions(retention=True, compaction=True, upgrade=True), 10**13)
    assert (reports.retention, reports.compaction, reports.unreported) == (None, None, Unreported.ONE_FILE)
    assert reports.upgrade is not None
    assert reports.fields()["unreported"] == "one-file"


def test_a_log_of_kafka_07() -> None:
    assert unreported_because(partition("0..9 100b suffix=.kafka")) is Unreported.KAFKA07


def test_nothing_is_unreported_that_nobody_asked_for() -> None:
    of = partition(name="t-0", state="delete")
    assert make_reports(of, ReportOptions(upgrade=True), 1).unreported is None
    assert make_reports(of, ReportOptions(retention=True), 1).unreported is Unreported.SET_ASIDE


def test_a_partition_without_a_segment_has_reports() -> None:
    reports = make_reports(partition(), ReportOptions(retention=True, compaction=True), 1)
    assert reports.retention is not None
    assert reports.compaction is not None


def test_a_copy_in_no_log_directory_knows_no_checkpoint(tmp_path: Path) -> None:
    directory = tmp_path / "segments-0"
    directory.mkdir()
    for path in (FIXTURES / "segments" / "segments-0").iterdir():
        shutil.copyfile(path, directory / path.name)  # a link would change the inode, which other tests watch
    reports = make_reports(measured(directory)[0], ReportOptions(retention=True), 10**13)
    assert reports.retention is not None
    assert not reports.retention.bounds.has_high_watermark
    assert not reports.retention.bounds.has_log_start
    (tmp_path / "meta.properties").write_bytes(b"")
    reports = make_reports(measured(directory)[0], ReportOptions(retention=True), 10**13)
    assert reports.retention is not None
    assert reports.retention.bounds.has_log_start


def test_a_hard_link_counts() -> None:
    (of,) = measured(FIXTURES / "segments" / "segments-0")
    log = Path(of.segments[0].path)
    expected = of.segments[0].allocated_bytes if log.stat().st_nlink > 1 else 0
    assert of.segments[0].linked_bytes >= expected


# ---- settings


@pytest.mark.parametrize(
    ("topic", "policy", "retention_ms"),
    [
        ("t", DELETE, TopicSettings().retention_ms),
        ("__consumer_offsets", COMPACT, TopicSettings().retention_ms),
        ("__transaction_state", COMPACT, TopicSettings().retention_ms),
        ("__share_group_state", DELETE, -1),
        ("__remote_log_metadata", DELETE, -1),
    ],
)
def test_what_a_broker_gives_its_own_topics(topic: str, policy: frozenset[str], retention_ms: int) -> None:
    found = settings_for(partition(*LOG, name=f"{topic}-0"), TopicSettings())
    assert (found.cleanup_policy, found.retention_ms) == (policy, retention_ms)
    assert set(found.assumed) == set(TopicSettings().assumed)


def test_what_was_given_counts() -> None:
    of = partition(*LOG, name="__consumer_offsets-0")
    found = settings_for(of, topic_settings(cleanup_policy=DELETE, retention_ms=5))
    assert (found.cleanup_policy, found.retention_ms, found.segment_bytes) == (DELETE, 5, 100 << 20)


def test_a_partition_that_was_compacted_is_taken_for_a_compacted_one() -> None:
    of = partition(*LOG)
    for compacted in (replace(of, cleaner_checkpoint=3), replace(of, totals=replace(of.totals, compacted=True))):
        assert settings_for(compacted, TopicSettings()).cleanup_policy == COMPACT
        assert settings_for(compacted, topic_settings(cleanup_policy=DELETE)).cleanup_policy == DELETE
    assert settings_for(replace(of, cleaner_checkpoint=0), TopicSettings()).cleanup_policy == DELETE
