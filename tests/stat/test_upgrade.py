"""What an upgrade to Kafka 4 meets: messages of old formats, and files that a broker refuses."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.refusal_reason import RefusalReason
from kdump.errors import SourceError
from kdump.format.naming import segment_file_name
from kdump.stat.upgrade import OldFormat, report_upgrade, sum_old_formats
from kdump.stat.values import Volume
from support import build
from support.stat_logs import partition


def test_a_partition_with_magic_2_alone() -> None:
    told = report_upgrade(partition("0..9 100b @100", "10..19 100b @200"))
    assert told.formats == (OldFormat(0), OldFormat(1))
    assert told.is_ready


def test_the_newest_message_of_each_magic() -> None:
    told = report_upgrade(
        partition(
            "0..4 50b magic=0 mtime=70",
            "5..9 60b @300 magic=1 mtime=600",
            "10..19 100b @200 magic=1 mtime=800",
            "20..29 70b @400",
        )
    )
    zero, one = told.formats
    assert zero == OldFormat(0, Volume(1, 5, 50), 1, 1, None, 70, "t-0/00000000000000000000.log", False)
    assert one == OldFormat(1, Volume(2, 15, 160), 2, 1, 300, 600, "t-0/00000000000000000005.log", False)
    assert not told.is_ready


def test_old_messages_in_the_active_segment() -> None:
    told = report_upgrade(partition("0..4 50b @10 magic=1", "5..9 60b @300 magic=1"))
    assert told.formats[1].newest_is_active


def test_messages_without_a_time_go_by_the_modification_time() -> None:
    told = report_upgrade(partition("0..4 50b magic=0 mtime=900", "5..9 60b magic=0 mtime=70"))
    assert told.formats[0].newest_segment == "t-0/00000000000000000000.log"


def test_a_message_with_a_time_hides_those_without() -> None:
    told = report_upgrade(partition("0..4 50b @10 magic=1 mtime=20", "5..9 60b magic=1 mtime=900"))
    assert (told.formats[1].newest_timestamp_ms, told.formats[1].newest_is_active) == (10, False)


def test_sums_over_partitions() -> None:
    first = partition("0..4 50b @10 magic=1", "5..9 60b @300", name="a-0")
    second = partition("0..4 70b @90 magic=1", name="b-0")
    zero, one = sum_old_formats(map(report_upgrade, (first, second)))
    assert (zero.volume.batches, zero.partitions) == (0, 0)
    assert (one.volume.bytes, one.segments, one.partitions, one.newest_timestamp_ms) == (120, 2, 2, 90)
    assert one.newest_is_active


formats = st.builds(
    OldFormat,
    st.just(1),
    st.builds(Volume, st.integers(0, 5), st.integers(0, 5), st.integers(0, 50)),
    st.integers(0, 3),
    st.integers(0, 3),
    st.none() | st.integers(0, 50),
    st.integers(-1, 50),
    st.sampled_from((None, "a", "b")),
    st.booleans(),
)


@given(formats, formats, formats)
def test_old_formats_add_up_in_any_grouping(one: OldFormat, two: OldFormat, three: OldFormat) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one


def test_a_log_that_is_too_large() -> None:
    told = report_upgrade(partition(f"0..9 {2**31}b @100"))
    (refused,) = told.refused
    assert (refused.reason, refused.exception) == (RefusalReason.FILE_SIZE, "KafkaException")


def test_a_log_of_kafka_07_is_left_out() -> None:
    told = report_upgrade(partition("0..9 100b suffix=.kafka"))
    (refused,) = told.refused
    assert (refused.reason, refused.exception, told.is_ready) == (None, None, False)


def test_files_that_a_broker_refuses(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = build.segment(build.batch([build.record(b"k", b"v")]))
    (directory / segment_file_name(0, ".log")).write_bytes(log)
    of = partition(f"0..0 {len(log)}b @1000", name=str(directory))
    assert report_upgrade(of).refused == ()
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\nx y\n")
    (refused,) = report_upgrade(of).refused
    assert (refused.path, refused.reason) == (str(directory / "leader-epoch-checkpoint"), RefusalReason.LEADER_EPOCHS)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").symlink_to("/dev/null")
    (directory / segment_file_name(0, ".log")).write_bytes(b"")
    told = report_upgrade(partition("0.. 0b", name=str(directory)))
    assert told.error is None or isinstance(told.error, SourceError)
