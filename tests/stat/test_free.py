"""Which settings free bytes at what loss of time, against what retention then deletes; growth; idle partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.cleaner.log_config import DAY_MS, TopicSettings, parse_cleanup_policy, topic_settings
from kdump.broker.cleaner.retention import report_retention
from kdump.stat.free import FreePlan, FreeSetting, FreeStep, plan_free
from kdump.stat.growth import idle_partitions, report_growth
from kdump.stat.values import BatchStatistics, PartitionStatistics, Volume
from support.stat_logs import partition

NOW = 1000
KEEP = topic_settings(retention_ms=-1)
COMPACT = topic_settings(cleanup_policy=parse_cleanup_policy("compact"))
OLD = partition("0..9 100b @100 from=50", "10..19 100b @200 from=150", "20..29 100b @300 from=250", name="old-0")
NEW = partition("0..9 400b @250 from=240", "10..19 100b @900 from=800", name="new-0")


def plan(wanted: int, *of: PartitionStatistics, settings: Mapping[str, TopicSettings] | None = None) -> FreePlan:
    return plan_free(of, wanted, NOW, lambda topic: (settings or {}).get(topic, KEEP))


def told(step: FreeStep) -> tuple[str, str, int, int, int | None]:
    return step.topic, str(step.setting), step.value, step.bytes, step.lost_ms


def test_the_oldest_data_of_all_topics_go_first() -> None:
    found = plan(150, OLD, NEW)
    assert [told(step) for step in found.steps] == [("old", "retention.ms", 799, 200, 200)]
    assert (found.bytes, found.is_enough) == (200, True)
    found = plan(500, OLD, NEW)
    assert [told(step) for step in found.steps] == [
        ("new", "retention.ms", 749, 400, 560),
        ("old", "retention.ms", 799, 200, 200),
    ]
    assert found.steps[1].segments == ("old-0/00000000000000000000.log", "old-0/00000000000000000010.log")


def test_topics_that_can_do_it_alone() -> None:
    assert [told(step) for step in plan(350, OLD, NEW).alternatives] == [
        ("new", "retention.ms", 749, 400, 560),
        ("new", "retention.bytes", 100, 400, 560),
    ]
    by_setting = {(step.topic, step.setting): step for step in plan(120, OLD, NEW).alternatives}
    assert by_setting["old", FreeSetting.RETENTION_BYTES].value == 100
    assert by_setting["old", FreeSetting.RETENTION_BYTES].bytes == 200


def test_a_step_that_empties_a_topic_comes_last() -> None:
    found = plan(300, OLD, NEW)
    assert [(step.topic, step.is_emptied) for step in found.alternatives] == [
        ("new", False),
        ("new", False),
        ("old", True),
        ("old", True),
    ]
    assert found.alternatives[-1].lost_ms is None


def test_what_goes_anyway_is_not_freed_twice() -> None:
    found = plan(250, OLD, NEW, settings={"old": topic_settings(retention_ms=750)})
    assert found.due_bytes == 200
    assert [told(step)[:4] for step in found.steps] == [("new", "retention.ms", 749, 400)]
    assert plan(200, OLD, settings={"old": topic_settings(retention_ms=750)}).steps == ()


def test_settings_that_nobody_named_free_nothing() -> None:
    """Old segments that are still there say that the topic has other settings than Kafka's defaults."""
    found = plan(50, OLD, settings={"old": TopicSettings(retention_ms=10, retention_bytes=0)})
    assert found.due_bytes == 0
    assert [told(step)[:3] for step in found.steps] == [("old", "retention.ms", 899)]


def test_topics_that_the_log_cleaner_compacted_are_left_alone() -> None:
    found = plan(50, replace(OLD, cleaner_checkpoint=20), settings={"old": topic_settings(retention_ms=1)})
    assert (found.due_bytes, found.steps, found.compacted_topics) == (0, (), ("old",))


def test_logs_without_a_report_on_retention_are_left_out() -> None:
    metadata = partition("0..9 100b @1", "10..19 100b @2", name="__cluster_metadata-0")
    alone = replace(OLD, path=OLD.segments[0].path, segments=OLD.segments[:1])
    due = topic_settings(retention_ms=1)
    found = plan(50, metadata, alone, settings={"old": due, "__cluster_metadata": due})
    assert (found.due_bytes, found.steps) == (0, ())


def test_hard_links_free_nothing() -> None:
    of = partition("0..9 100b @100 beside=50 linked=150", "10..19 70b @200 beside=30 linked=30", "20..29 9b @300")
    found = plan(60, of)
    assert (found.bytes, found.linked_bytes) == (70, 180)
    assert found.steps[0].segments == tuple(each.path for each in of.segments[:2])


def test_an_empty_segment_before_others_goes_with_them() -> None:
    found = plan(50, partition("0.. 0b mtime=10", "5..9 100b @100", "10..19 100b @200"))
    assert [step.bytes for step in found.steps] == [100]


def test_compacted_topics_and_those_of_kafka_are_left_alone() -> None:
    offsets = partition("0..9 100b @1", "10..19 100b @2", name="__consumer_offsets-0")
    found = plan(50, OLD, offsets, settings={"old": COMPACT})
    assert (found.steps, found.alternatives, found.compacted_topics) == ((), (), ("old",))
    assert not found.is_enough


def test_nothing_above_the_high_watermark_is_freed() -> None:
    held = partition("0..9 100b @100", "10..19 100b @200", hw=15)
    found = plan(500, held)
    assert [step.bytes for step in found.steps] == [100]
    assert not found.is_enough


def test_a_timestamp_in_the_future_frees_nothing_by_time() -> None:
    future = partition("0..9 100b @5000", "10..19 100b @200")
    found = plan(100, future)
    assert found.steps == ()
    assert [(step.setting, step.bytes) for step in found.alternatives] == [(FreeSetting.RETENTION_BYTES, 100)]
    # By their size all segments go, the active one too.
    assert (found.is_enough, found.most_bytes) == (False, 200)
    assert plan(150, future, OLD, settings={"old": topic_settings(retention_ms=850)}).most_bytes == 500


def test_indexes_and_blocks_count() -> None:
    found = plan(10, partition("0..9 100b @1 allocated=4096 beside=512", "10..19 100b @2"))
    assert found.bytes == 4608


def test_directories_on_their_way_out() -> None:
    leaving = partition(name="t-1", state="delete", other_bytes=70, other_allocated_bytes=80)
    stray = partition(name="t-2", state="stray", other_bytes=7, other_allocated_bytes=8)
    found = plan(10, leaving, stray)
    assert (found.leaving_bytes, found.stray_bytes, found.bytes) == (80, 8, 0)


@st.composite
def topics(draw: st.DrawFn) -> list[PartitionStatistics]:
    found = []
    for name in draw(st.lists(st.sampled_from(("a-0", "a-1", "b-0")), unique=True, min_size=1)):
        words = [
            f"{10 * number}..{10 * number + 9} {draw(st.integers(1, 30))}b @{draw(st.integers(0, 60))}"
            for number in range(draw(st.integers(1, 5)))
        ]
        found.append(partition(*words, name=name, hw=draw(st.none() | st.integers(0, 50))))
    return found


@given(topics(), st.integers(1, 150))
def test_a_broker_with_the_setting_frees_what_was_told(of: list[PartitionStatistics], wanted: int) -> None:
    found = plan_free(of, wanted, 50, lambda _: KEEP)
    for step in (*found.steps, *found.alternatives):
        name = "retention_ms" if step.setting is FreeSetting.RETENTION_MS else "retention_bytes"
        settings = topic_settings(**{"retention_ms": -1, name: step.value})
        of_topic = [each for each in of if each.topic == step.topic]
        gone = [report_retention(each, settings, 50) for each in of_topic]
        assert sum(each.deletes_bytes for each in gone) == step.bytes
        assert {one.path for each in gone for one in each.deletes} == set(step.segments)
        assert step.is_emptied == (not any(each.stays for each in gone))
    for step in found.alternatives:
        assert step.bytes >= wanted
    everything = sum(report_retention(each, topic_settings(retention_ms=0), 50).deletes_bytes for each in of)
    assert found.is_enough == (everything >= wanted)
    by_size = sum(report_retention(each, topic_settings(retention_bytes=0), 50).deletes_bytes for each in of)
    if wanted > 0:
        assert found.most_bytes == max(by_size, everything)


# ---- growth and idleness


def hours(**by_bucket: int) -> BatchStatistics:
    return BatchStatistics(hours={int(name[1:]): Volume(1, 1, size) for name, size in by_bucket.items()})


def test_growth_a_day() -> None:
    hour = DAY_MS // 24
    found = report_growth(hours(h0=5, h24=100, h47=200, h48=1000), hour, 48 * hour + 5, days=1)
    assert (found.days, found.bytes, found.bytes_per_day, found.records_per_day) == (1.0, 300, 300.0, 2.0)


def test_growth_of_young_data_counts_from_the_first() -> None:
    hour = DAY_MS // 24
    found = report_growth(hours(h12=100, h43=200), hour, 48 * hour, days=7)
    assert (found.days, found.bytes_per_day) == (1.5, 200.0)


def test_growth_of_a_few_hours_is_no_more_than_was_written() -> None:
    hour = DAY_MS // 24
    found = report_growth(hours(h42=100, h43=200), hour, 48 * hour, days=7)
    assert (found.days, found.bytes_per_day) == (1.0, 300.0)


def test_growth_of_nothing() -> None:
    assert report_growth(BatchStatistics(), 3_600_000, NOW).bytes_per_day == 0


def test_idle_partitions() -> None:
    without_time = partition("0..9 500b mtime=10", name="none-0")
    found = idle_partitions([OLD, NEW, without_time, partition("0.. 0b mtime=1", name="empty-0")], 600, NOW)
    assert [(each.topic, each.last_written_ms, each.by_timestamp) for each in found] == [
        ("none", 10, False),
        ("old", 300, True),
    ]
