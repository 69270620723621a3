"""Records of __transaction_state: beside what Kafka's dump tool prints of a real one, built by hand, and cut
anywhere."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.internal_topics.transaction_state import (
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    UnknownRecord,
    decode_key,
    decode_value,
)
from kdump.format.record import Record
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource
from kdump.storage.walk import BatchChunk, Walk
from support import build

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
DECODED = sorted(FIXTURES.glob("*/expected/__transaction_state-*/*.decoded.txt"))
PLAIN = TransactionLogValue(0, 7, -1, -1, 3, -1, 60_000, 1, (TopicPartitions("orders", (2, 0)),), 5_000, 4_000, 0)


def key(transactional_id: bytes = b"id", record_type: int = 0) -> bytes:
    return struct.pack(">hh", record_type, len(transactional_id)) + transactional_id


def value(state: TransactionLogValue, tagged: bytes = b"\0", inner: bytes = b"\0") -> bytes:
    """A value of the state's version; `tagged` are its tagged fields, `inner` those after each topic."""
    flexible = state.version > 0

    def length(size: int, layout: str) -> bytes:
        return build.uvarint(size + 1) if flexible else struct.pack(layout, size)

    out = struct.pack(
        ">hqhib",
        state.version,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_status,
    )
    if state.transaction_partitions is None:
        out += length(-1, ">i")
    else:
        out += length(len(state.transaction_partitions), ">i")
        for topic, partition_ids in state.transaction_partitions:
            out += length(len(topic.encode()), ">h") + topic.encode() + length(len(partition_ids), ">i")
            out += struct.pack(f">{len(partition_ids)}i", *partition_ids) + (inner if flexible else b"")
    out += struct.pack(">qq", state.transaction_last_update_timestamp_ms, state.transaction_start_timestamp_ms)
    return out + (tagged if flexible else b"")


def tag(number: int, data: bytes) -> bytes:
    return build.uvarint(number) + build.uvarint(len(data)) + data


# --- beside Kafka's dump tool -----------------------------------------------------------------------------------------


def all_records(path: Path) -> Iterator[Record]:
    with FileSource(str(path)) as source:
        for item in Walk(source, everything=True):
            if isinstance(item, BatchChunk) and not item.damaged:
                for batch in item.rows():
                    yield from records(batch, open_batch(batch, item.body(batch), 1 << 20))


def printed(found: TransactionLogValue | None) -> Any:
    """As the dump tool's transaction log decoder prints it: tagged fields only where they are not at their default."""
    if found is None:
        return None
    data: dict[str, Any] = {
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "transactionTimeoutMs": found.transaction_timeout_ms,
        "transactionStatus": found.transaction_status,
        "transactionPartitions": None
        if found.transaction_partitions is None
        else [
            {"topic": topic, "partitionIds": list(partition_ids)}
            for topic, partition_ids in found.transaction_partitions
        ],
        "transactionLastUpdateTimestampMs": found.transaction_last_update_timestamp_ms,
        "transactionStartTimestampMs": found.transaction_start_timestamp_ms,
    }
    if found.previous_producer_id != -1:
        data["previousProducerId"] = found.previous_producer_id
    if found.next_producer_id != -1:
        data["nextProducerId"] = found.next_producer_id
    if found.next_producer_epoch != -1:
        data["nextProducerEpoch"] = found.next_producer_epoch
    if found.client_transaction_version:
        data["clientTransactionVersion"] = found.client_transaction_version
    return {"version": str(found.version), "data": data}


def test_some_are_compared() -> None:
    assert DECODED


@pytest.mark.parametrize("path", DECODED, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_fixtures(path: Path) -> None:
    expected = []
    for line in path.read_text().splitlines():
        if match := re.match(r"\| offset: .* key: (\{.*\}) payload: (.*)$", line):
            payload = None if match[2] == "<DELETE>" else json.loads(match[2])
            expected.append((json.loads(match[1]), payload))
    log = path.parents[2] / path.parent.name / path.name.removesuffix(".decoded.txt")
    found = []
    for record in all_records(log):
        read = decode_key(record.key)
        shown = {"type": str(read.record_type), "data": {"transactionalId": read.transactional_id}}
        found.append((shown, printed(decode_value(record.value))))
    assert found == expected
    assert found


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_key() -> None:
    assert decode_key(key(b"a-b")) == TransactionLogKey(0, "a-b")
    assert decode_key(key(b"") + b"more") == TransactionLogKey(0, "")
    assert decode_key(key(b"\xff")) == TransactionLogKey(0, "\ufffd")


@pytest.mark.parametrize("data", [None, b"", b"\0", key()[:3], key()[:-1], b"\0\0\xff\xff"])
def test_no_key(data: bytes | None) -> None:
    with pytest.raises(ValueError) as caught:
        decode_key(data)
    assert not issubclass(caught.type, UnknownRecord)


@pytest.mark.parametrize("record_type", [1, -1, 32767])
def test_other_record_types_are_distinguished(record_type: int) -> None:
    with pytest.raises(UnknownRecord, match=f"record type {record_type}"):
        decode_key(key(record_type=record_type))


@pytest.mark.parametrize("version", [2, -1, 32767])
def test_other_versions_are_distinguished(version: int) -> None:
    with pytest.raises(UnknownRecord, match=f"version {version}"):
        decode_value(struct.pack(">h", version))


def test_tombstone() -> None:
    assert decode_value(None) is None


STATES = st.builds(
    TransactionLogValue,
    st.just(0),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.just(-1),
    st.just(-1),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.just(-1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(-128, 127),
    st.none()
    | st.lists(
        st.builds(
            TopicPartitions,
            st.text(st.characters(exclude_categories=["Cs"])),
            st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=200).map(tuple),
        ),
        max_size=4,
    ).map(tuple),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.just(0),
)


@given(STATES, st.binary(max_size=3))
def test_version_0(state: TransactionLogValue, after: bytes) -> None:
    assert decode_value(value(state) + after) == state


@given(
    STATES,
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, 3),
    st.integers(0, 9),
    st.binary(max_size=5),
)
def test_version_1(
    state: TransactionLogValue, previous: int, following: int, client: int, epoch: int, unknown: bytes
) -> None:
    wanted = state._replace(
        version=1,
        previous_producer_id=previous,
        next_producer_id=following,
        next_producer_epoch=epoch,
        client_transaction_version=client,
    )
    tagged = b"\5" + tag(0, struct.pack(">q", previous)) + tag(1, struct.pack(">q", following))
    tagged += tag(2, struct.pack(">h", client)) + tag(3, struct.pack(">h", epoch)) + tag(400, unknown)
    assert decode_value(value(wanted, tagged, b"\1" + tag(9, unknown))) == wanted


def test_a_known_tagged_field_is_as_long_as_its_type() -> None:
    # Kafka's reader does not look at the size either
    tagged = b"\1\0\3" + struct.pack(">q", 12)
    found = decode_value(value(PLAIN._replace(version=1), tagged))
    assert found is not None
    assert found.previous_producer_id == 12


@pytest.mark.parametrize("version", [0, 1])
def test_no_byte_may_be_missing(version: int) -> None:
    whole = value(PLAIN._replace(version=version), b"\1" + tag(0, struct.pack(">q", 9)))
    assert decode_value(whole) is not None
    for size in range(len(whole)):
        with pytest.raises(ValueError):
            decode_value(whole[:size])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">hqhibi", 0, 1, 0, 0, 0, 0x7FFFFFFF),  # partitions that nothing could hold
        struct.pack(">hqhib", 1, 1, 0, 0, 0) + build.uvarint(1 << 30),
        struct.pack(">hqhibi", 0, 1, 0, 0, 0, 1) + b"\xff\xff" + bytes(30),  # a topic that is null
        struct.pack(">hqhib", 1, 1, 0, 0, 0) + b"\2\0" + bytes(30),
        struct.pack(">hqhibi", 0, 1, 0, 0, 0, 1) + b"\0\1t\xff\xff\xff\xff" + bytes(30),  # partition ids that are null
        struct.pack(">hqhib", 1, 1, 0, 0, 0) + build.TOO_LONG_VARINT + bytes(30),
        value(PLAIN._replace(version=1), b"\1\5" + build.uvarint(1 << 20)),  # a tagged field past the end
    ],
)
def test_lengths_that_lie(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_value(data)


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    for version in (b"\0\0", b"\0\1"):
        try:
            found = decode_value(version + data)
        except ValueError:
            continue
        assert found is not None


def test_words_of_kafka() -> None:
    names = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead")
    assert [status.name for status in TransactionState] == [*names, "PrepareEpochFence"]
