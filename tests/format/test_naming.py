"""What the names of files and directories say, as Kafka's own classes read them."""

from __future__ import annotations

import pytest

from kdump.format.naming import (
    Kind,
    TopicPartition,
    base_offset_of,
    companion_kind_of,
    kind_of,
    number_of,
    state_of,
    topic_partition_of,
)

HEX = "3ee7cc0af0c147a1b23e6c9a6c99a490"
LARGEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("00000000000000000012.log", 12),
        ("12.timeindex.swap", 12),
        ("+12.log", 12),
        ("-12.log", -12),
        (f"{LARGEST}.log", LARGEST),
        (f"{-LARGEST - 1}.log", -LARGEST - 1),
        (f"{LARGEST + 1}.log", None),
        ("0" * 200 + "7.log", 7),
        ("٣.log", 3),
        ("12", None),
        (".log", None),
        ("x.log", None),
        ("1 .log", None),
        ("1_0.log", None),
        ("--1.log", None),
        ("²." + "log", None),
        ("9" * 5000 + ".log", None),
    ],
)
def test_numbers(name: str, number: int | None) -> None:
    assert number_of(name) == number
    # what kdump takes for a base offset is what any broker reads so
    if base_offset_of(name) is not None and "." in name:
        assert base_offset_of(name) == number


@pytest.mark.parametrize(
    ("name", "expected", "state"),
    [
        ("t-0", ("t", 0), ""),
        ("a-b.c-12", ("a-b.c", 12), ""),
        ("t-2147483647", ("t", 2147483647), ""),
        ("t-2147483648", None, ""),
        ("t-" + "0" * 100 + "5", ("t", 5), ""),
        ("t-" + "9" * 5000, None, ""),
        (f"t-0.{HEX}-delete", ("t", 0), "delete"),
        (f"t-0.{HEX}-future/", ("t", 0), "future"),
        (f"a.b-c-3.{HEX}-stray", ("a.b-c", 3), "stray"),
        ("t-0.anything-delete", ("t", 0), "delete"),
        ("t-0.-delete", None, ""),
        ("t.x-delete", None, ""),
        ("t-0-delete", None, ""),
        (f"a b-0.{HEX}-delete", None, ""),
        ("t--1", ("t-", 1), ""),
        ("t-+1", ("t", 1), ""),
        ("t-٣", ("t", 3), ""),
        ("t-²", None, ""),
        ("-1", None, ""),
        ("t-", None, ""),
        ("t", None, ""),
        ("", None, ""),
    ],
)
def test_directories(name: str, expected: tuple[str, int] | None, state: str) -> None:
    assert topic_partition_of(f"/data/{name}") == (expected and TopicPartition(*expected))
    assert state_of(f"/data/{name}") == state


@pytest.mark.parametrize(
    ("name", "expected"),
    [("t_0", ("t", 0)), ("t-0", ("t", 0)), ("a_b-1", ("a_b", 1)), ("a-b_1", ("a-b", 1)), ("t_x", None), ("_1", None)],
)
def test_directories_of_kafka_07(name: str, expected: tuple[str, int] | None) -> None:
    assert topic_partition_of(name, kafka07=True) == (expected and TopicPartition(*expected))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("0.log", Kind.LOG),
        ("0.log.deleted", Kind.LOG),
        ("0.log.swap.deleted", Kind.LOG),
        ("0.kafka", Kind.KAFKA07),
        ("bootstrap.checkpoint", Kind.CHECKPOINT),
        ("00000000000000000014-0000000001.checkpoint.part", Kind.CHECKPOINT),
        ("00000000000000000014-0000000001.checkpoint1234567.part", Kind.CHECKPOINT),
        (".log", None),
        ("log", None),
        ("recovery-point-offset-checkpoint", None),
        ("0.index", None),
    ],
)
def test_kinds_of_logs(name: str, kind: Kind | None) -> None:
    assert kind_of(f"/t-0.log/{name}") == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("0.index", Kind.INDEX),
        ("0.txnindex.cleaned", Kind.TXNINDEX),
        ("0.snapshot.deleted", Kind.SNAPSHOT),
        ("quorum-state", Kind.QUORUM_STATE),
        ("cleaner-offset-checkpoint.tmp", Kind.OFFSETS),
        (".kafka_cleanshutdown", Kind.CLEAN_SHUTDOWN),
        ("0.log", None),
        ("offset-checkpoint", None),
    ],
)
def test_kinds_of_companions(name: str, kind: Kind | None) -> None:
    assert companion_kind_of(name) == kind
