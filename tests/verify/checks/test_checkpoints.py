"""The small files of a log directory: each rule fires, each nearly the same file does not, and real directories show
nothing."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import quorum_state
from kdump.format.naming import TopicPartition, base_offset_of, topic_partition_of
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.checks.checkpoints import (
    CHECKPOINTS,
    PartitionOffsets,
    check_offset_checkpoints,
    check_partition_metadata,
    check_properties,
    topic_id,
)
from kdump.verify.findings import Finding, Severity
from support import build
from support.cases import each
from support.root_files import build_quorum_state

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
RECOVERY, WATERMARK = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
START, CLEANER = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"
ORDERS = TopicPartition("orders", 0)
KNOWN = {ORDERS: PartitionOffsets(10, 30)}
IDS = ("aaaaaaaaaaaaaaaaaaaaaA", "bbbbbbbbbbbbbbbbbbbbbA")


def rules(
    contents: Mapping[str, bytes | None], facts: Mapping[TopicPartition, PartitionOffsets] | None = None
) -> list[Finding]:
    return list(check_offset_checkpoints("logs", contents, KNOWN if facts is None else facts))


def shown(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.path) for finding in found]


def one(found: list[Finding], code: str) -> Finding:
    assert [finding.code for finding in found] == [code]
    assert found[0].message
    return found[0]


# --- the offset checkpoints -------------------------------------------------------------------------------------------


def test_names() -> None:
    assert set(CHECKPOINTS) == {RECOVERY, WATERMARK, START, CLEANER}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_sound(name: str) -> None:
    for offset in (10, 20, 30):
        assert rules({name: build.checkpoint(f"orders 0 {offset}")}) == []
    assert rules({name: b""}) == []
    assert rules({name: build.checkpoint()}) == []
    assert rules({name: None}) == []
    assert rules({}) == []


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize(
    "data",
    [
        build.checkpoint("orders 0"),
        build.checkpoint("orders x 20"),
        build.checkpoint("orders 0 20", version=1),
        build.checkpoint("orders 0 20", count=2),
        build.checkpoint("gone 0 20", "orders 0 99 1"),
        b"garbage",
        b"\xff\xff",
    ],
)
def test_format(name: str, data: bytes) -> None:
    found = one(rules({name: data}), "checkpoint/format")
    assert (found.path, found.position, found.length) == (f"logs/{name}", 0, len(data))
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_unknown(name: str) -> None:
    data = build.checkpoint("orders 0 20", "gone 0 20", "orders 1 20")
    found = rules({name: data})
    assert shown(found) == [("checkpoint/unknown", f"logs/{name}")] * 2
    assert [(finding.data["topic"], finding.data["partition"]) for finding in found] == [("gone", 0), ("orders", 1)]
    assert data[found[0].position :][: found[0].length] == b"gone 0 20\n"
    assert found[0].offset == 20


@pytest.mark.parametrize(("state", "known"), [("", True), ("future", True), ("delete", False), ("stray", False)])
def test_partitions_on_their_way(state: str, known: bool) -> None:
    found = rules({WATERMARK: build.checkpoint("orders 0 20")}, {ORDERS: PartitionOffsets(10, 30, None, state)})
    if known:
        assert found == []
    else:
        assert one(found, "checkpoint/unknown").data["state"] == state


@pytest.mark.parametrize(
    ("name", "what"), [(RECOVERY, "recovery point"), (WATERMARK, "high watermark"), (CLEANER, "cleaner offset")]
)
def test_beyond(name: str, what: str) -> None:
    data = build.checkpoint("orders 0 31")
    found = one(rules({name: data}), "checkpoint/beyond")
    # Below the high watermark committed records are gone.
    assert found.severity is (Severity.ERROR if name == WATERMARK else Severity.WARNING)
    assert found.data == {"topic": "orders", "partition": 0, "value": 31, "end_offset": 30, "what": what}
    assert rules({name: data}, {ORDERS: PartitionOffsets(10, None)}) == []


def test_log_start_beyond_the_end() -> None:
    data = build.checkpoint("orders 0 31")
    found = one(rules({START: data, WATERMARK: build.checkpoint("orders 0 30")}), "checkpoint/log-start")
    assert found.severity is Severity.ERROR
    assert found.data == {"topic": "orders", "partition": 0, "value": 31, "end_offset": 30}
    assert rules({START: data}, {ORDERS: PartitionOffsets(10, None)}) == []
    assert rules({WATERMARK: build.checkpoint("orders 0 30")}, {ORDERS: PartitionOffsets(31, 30)}) == []


@pytest.mark.parametrize(
    ("name", "what"), [(START, "log start offset"), (WATERMARK, "high watermark"), (CLEANER, "cleaner offset")]
)
def test_below(name: str, what: str) -> None:
    found = one(rules({name: build.checkpoint("orders 0 9")}), "checkpoint/below")
    assert found.severity is Severity.INFO
    assert found.data == {"topic": "orders", "partition": 0, "value": 9, "start_offset": 10, "what": what}


def test_a_recovery_point_may_be_below_all() -> None:
    assert rules({RECOVERY: build.checkpoint("orders 0 0")}) == []


def test_below_the_log_start_offset_that_another_file_says() -> None:
    contents = {START: build.checkpoint("orders 0 15"), WATERMARK: build.checkpoint("orders 0 14")}
    found = one(rules(contents), "checkpoint/below")
    assert (found.path, found.data["start_offset"]) == (f"logs/{WATERMARK}", 15)
    assert rules({**contents, WATERMARK: build.checkpoint("orders 0 15")}) == []


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_negative(name: str) -> None:
    found = one(rules({name: build.checkpoint("orders 0 -1")}, {ORDERS: PartitionOffsets(0, 30)}), "checkpoint/below")
    assert found.severity is Severity.WARNING
    assert found.data["value"] == -1


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_duplicate(name: str) -> None:
    data = build.checkpoint("orders 0 99", "orders 0 -5", "orders 0 20", end="\r\n")
    found = one(rules({name: data}), "checkpoint/duplicate")
    assert found.data == {"topic": "orders", "partition": 0, "count": 3}
    assert data[found.position :][: found.length] == b"orders 0 20\r\n"


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_place_of_a_line(end: str) -> None:
    data = build.checkpoint("orders 0 20", "töpic 0 1", "orders 1 7", end=end)
    first, second = rules({WATERMARK: data})
    assert data[first.position :][: first.length] == f"töpic 0 1{end}".encode()
    assert data[second.position :][: second.length] == f"orders 1 7{end}".encode()
    assert rules({WATERMARK: data[: -len(end)]})[1].length == len("orders 1 7")


LINES = st.lists(
    st.tuples(
        st.sampled_from(["orders", "gone", "", " "]), st.sampled_from(["0", "1", "-1", "x"]), st.integers(-5, 1 << 63)
    ).map(lambda fields: " ".join(map(str, fields))),
    max_size=6,
)


@given(
    st.dictionaries(
        st.sampled_from(CHECKPOINTS),
        st.binary(max_size=40)
        | st.builds(lambda lines, end: build.checkpoint(*lines, end=end), LINES, st.sampled_from(["\n", "\r\n"])),
    ),
    st.integers(-1, 40),
    st.none() | st.integers(-1, 40),
)
def test_any_bytes(contents: dict[str, bytes], start_offset: int, end_offset: int | None) -> None:
    for finding in rules(contents, {ORDERS: PartitionOffsets(start_offset, end_offset)}):
        data = contents[finding.path.removeprefix("logs/")]
        assert finding.message
        assert 0 <= finding.position <= finding.position + finding.length <= len(data)
        if finding.code != "checkpoint/format":
            line = data[finding.position : finding.position + finding.length].decode().split()
            assert line == [*finding.data["topic"].split(), str(finding.data["partition"]), str(finding.offset)]


def test_topic_ids() -> None:
    def known(*ids: str | None, state: str = "") -> dict[TopicPartition, PartitionOffsets]:
        facts = {TopicPartition("orders", number): PartitionOffsets(0, 0, text) for number, text in enumerate(ids[:-1])}
        return {
            **facts,
            TopicPartition("orders", 9): PartitionOffsets(0, 0, ids[-1], state),
            ORDERS: PartitionOffsets(0, 0, ids[0]),
        }

    first, second = IDS
    found = one(rules({}, known(first, second, first)), "checkpoint/topic-id")
    assert found.path == "logs/orders-1/partition.metadata"
    assert found.data == {"stored": second, "found": first}
    assert found.severity is Severity.WARNING
    assert one(rules({}, known(first, first, second)), "checkpoint/topic-id").path == "logs/orders-9/partition.metadata"
    assert rules({}, known(first, first, None)) == []
    assert rules({}, known(first, first, first)) == []
    assert rules({}, known(first, first, second, state="delete")) == []
    assert (
        rules({}, {ORDERS: PartitionOffsets(0, 0, first), TopicPartition("other", 0): PartitionOffsets(0, 0, second)})
        == []
    )


# --- partition.metadata, meta.properties and the like -----------------------------------------------------------------

METADATA = f"version: 0\ntopic_id: {IDS[0]}".encode()
META = b"node.id=1\nversion=1\ncluster.id=abc\n"
QUORUM = build_quorum_state(quorum_state.QuorumState(1, None, 1, 2, -1, "A" * 22, None, None))


def test_partition_metadata() -> None:
    assert list(check_partition_metadata("t-0/partition.metadata", METADATA)) == []
    assert topic_id(METADATA) == IDS[0]


@pytest.mark.parametrize("data", [b"", METADATA[:10], METADATA[:-1], METADATA.replace(b"0", b"x", 1), b"\0" * 43])
def test_partition_metadata_that_is_none(data: bytes) -> None:
    found = one(list(check_partition_metadata("t-0/partition.metadata", data)), "metadata/format")
    assert found.severity is Severity.ERROR
    assert found.length == len(data)
    assert topic_id(data) is None


@pytest.mark.parametrize(
    ("name", "data", "broken"),
    [
        ("meta.properties", META, [b"", b"version=2\n", META.replace(b"node.id=1\n", b""), META.replace(b"=1", b"=x")]),
        ("meta.properties", b"broker.id=0\n", [b"#broker.id=0\n", b"broker.id=0\nversion=x"]),
        ("quorum-state", QUORUM, [b"", b"{", QUORUM.replace(b"leaderId", b"leader"), bytes(30)]),
        (".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":5}', [b"{", b'{"version":0}', bytes(3)]),
        (".kafka_cleanshutdown", b"", []),
    ],
)
def test_properties(name: str, data: bytes, broken: list[bytes]) -> None:
    assert list(check_properties(f"logs/{name}", data)) == []
    for other in broken:
        found = one(list(check_properties(f"logs/{name}", other)), "properties/format")
        assert found.severity is (Severity.WARNING if name == ".kafka_cleanshutdown" else Severity.ERROR)
        assert found.data["problem"]


# --- real ones --------------------------------------------------------------------------------------------------------

REAL = sorted({path.parent for path in FIXTURES.glob("*/recovery-point-offset-checkpoint")})


def end_of(log: Path) -> int:
    """The offset after the last batch or message; no log of these is torn, but for zeros."""
    data, position, end = log.read_bytes(), 0, base_offset_of(log.name) or 0
    while position + 17 < len(data) and any(data[position : position + 17]):
        offset, size = struct.unpack_from(">qi", data, position)
        delta = struct.unpack_from(">i", data, position + 23)[0] if data[position + 16] == 2 else 0
        end = offset + delta + 1
        position += 12 + size
    return end


def facts_of(place: Path) -> dict[TopicPartition, PartitionOffsets]:
    facts = {}
    for child in sorted(place.iterdir()):
        name = topic_partition_of(child.name)
        logs = sorted(child.glob("*.log")) if child.is_dir() else []
        if name is None or not logs:
            continue
        metadata = child / "partition.metadata"
        facts[name] = PartitionOffsets(
            base_offset_of(logs[0].name) or 0,
            end_of(logs[-1]),
            topic_id(metadata.read_bytes()) if metadata.exists() else None,
            child.name.rpartition("-")[2] if "." in child.name else "",
        )
    return facts


def test_there_are_real_ones() -> None:
    assert {path.name for path in REAL} >= {"log-directory", "crash", "mixed-through-3.9.1"}


@pytest.mark.parametrize("place", REAL, ids=lambda path: path.name)
def test_real_directories_show_nothing(place: Path) -> None:
    facts = facts_of(place)
    assert facts
    contents = {name: (place / name).read_bytes() for name in CHECKPOINTS if (place / name).exists()}
    assert [
        finding for finding in check_offset_checkpoints(str(place), contents, facts) if finding.severity > Severity.INFO
    ] == []
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        if (place / name).exists():
            assert list(check_properties(str(place / name), (place / name).read_bytes())) == []


@each("path", sorted(FIXTURES.glob("*/*/partition.metadata")), ids=lambda path: path.parent.name)
def test_real_partition_metadata(path: Path) -> None:
    assert list(check_partition_metadata(str(path), path.read_bytes())) == []


def test_every_code_is_in_the_catalogue() -> None:
    words = ("format", "unknown", "beyond", "log-start", "below", "duplicate", "topic-id")
    assert CATALOGUE.keys() >= {f"checkpoint/{word}" for word in words} | {"metadata/format", "properties/format"}
