"""Control records: keys, markers, and the KRaft messages."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import control
from kdump.format.control import (
    ControlKey,
    ControlRecord,
    ControlType,
    Endpoint,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVersionFeature,
    KRaftVoter,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    decode,
    decode_key,
    decode_marker,
    decode_value,
    encode_key,
    encode_marker,
)


def key(control_type: int, version: int = 0) -> bytes:
    return struct.pack(">hh", version, control_type)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (key(0), ControlKey(0, 0)),
        (key(6), ControlKey(0, 6)),
        (key(1, version=9) + b"more", ControlKey(9, 1)),
        (key(-1), ControlKey(0, -1)),
    ],
)
def test_keys(data: bytes, found: ControlKey) -> None:
    assert decode_key(data) == found


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "the key is null"),
        (b"", "the key has 0 bytes, expected at least 4"),
        (b"\0\0\0", "the key has 3 bytes, expected at least 4"),
        (key(1, version=-1), "the key has version -1"),
    ],
)
def test_malformed_keys(data: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_key(data)


def test_names_are_those_of_kafka() -> None:
    names = "ABORT COMMIT LEADER_CHANGE SNAPSHOT_HEADER SNAPSHOT_FOOTER KRAFT_VERSION KRAFT_VOTERS"
    assert [ControlKey(0, number).name for number in range(7)] == names.split()
    assert [kind.name for kind in ControlType] == names.split()
    assert (ControlKey(0, 7).name, ControlKey(0, -1).name) == ("7", "-1")


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_markers(kind: int) -> None:
    assert decode_value(kind, b"\0\0\0\0\0\5") == EndTransactionMarker(0, 5)
    assert decode_value(kind, b"\0\2\xff\xff\xff\xffmore") == EndTransactionMarker(2, -1)
    assert decode_value(kind, b"") is None
    assert decode_value(kind, None) is None
    for data, reason in ((b"\0\0\0\0\0", "has 5 bytes, expected at least 6"), (b"\xff\xff\0\0\0\0", "has version -1")):
        with pytest.raises(ValueError, match=reason):
            decode_value(kind, data)


@pytest.mark.parametrize("kind", list(ControlType))
def test_what_is_written_is_read(kind: ControlType) -> None:
    assert encode_key(kind) == key(kind)
    assert decode_key(encode_key(kind)) == ControlKey(0, kind)
    for epoch in (-(2**31), -1, 0, 7, 2**31 - 1):
        assert decode_marker(encode_marker(epoch)) == EndTransactionMarker(0, epoch)


def test_the_strict_reader_of_markers() -> None:
    assert decode_marker(b"\0\0\0\0\0\5") == EndTransactionMarker(0, 5)
    for data, reason in ((None, "value is null"), (b"", "has 0 bytes")):
        with pytest.raises(ValueError, match=reason):
            decode_marker(data)


def voter(voter_id: int, directory: bytes = b"") -> bytes:
    return struct.pack(">i", voter_id) + directory + b"\0"


DIRECTORY = bytes(range(16))
TAGGED = b"\2\5\3abc\6\0"  # two tagged fields, of 3 bytes and of none
ENDPOINT = b"\5CTRL\x03h\xc3" + struct.pack(">H", 65535) + TAGGED
KRAFT_VOTER = struct.pack(">i", 3) + DIRECTORY + b"\2" + ENDPOINT + b"\0\0\0\1" + TAGGED + TAGGED
DIRECTORY_TEXT = "AAECAwQFBgcICQoLDA0ODw"

MESSAGES = [
    (2, b"\0\0\0\0\0\1\3" + voter(1) + voter(2) + b"\2" + voter(1) + b"\0", LeaderChange(
        0, 1, (Voter(1, None), Voter(2, None)), (Voter(1, None),)
    )),
    (2, b"\0\1\0\0\0\1\2" + voter(1, DIRECTORY) + b"\1" + TAGGED, LeaderChange(1, 1, (Voter(1, DIRECTORY_TEXT),), ())),
    (3, b"\0\0" + struct.pack(">q", 1_700_000_000_123) + b"\0", SnapshotHeader(0, 1_700_000_000_123)),
    (4, b"\0\0\0", SnapshotFooter(0)),
    (5, b"\0\0\0\1" + TAGGED, KRaftVersion(0, 1)),
    (6, b"\0\0\2" + KRAFT_VOTER + b"\0", KRaftVoters(
        0, (KRaftVoter(3, DIRECTORY_TEXT, (Endpoint("CTRL", "h\ufffd", 65535),), KRaftVersionFeature(0, 1)),)
    )),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "data", "found"), MESSAGES)
def test_messages(kind: int, data: bytes, found: control.ControlValue) -> None:
    assert decode_value(kind, data) == found
    assert decode(key(kind), data + b"more") == ControlRecord(ControlKey(0, kind), found)


@pytest.mark.parametrize(("kind", "data", "found"), MESSAGES)
def test_messages_that_are_cut_short(kind: int, data: bytes, found: control.ControlValue) -> None:
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"needs \d+ bytes at byte \d+ of the value|bytes are left"):
            decode_value(kind, data[:length])
    with pytest.raises(ValueError, match=f"the value of {ControlType(kind).name} is null"):
        decode_value(kind, None)


def test_kafka_s_tool_reads_every_leader_change_as_version_0() -> None:
    data = b"\0\1\0\0\0\7\2" + voter(5) + b"\1\0"
    assert decode_value(2, data, layout=0) == LeaderChange(1, 7, (Voter(5, None),), ())
    with pytest.raises(ValueError, match="directory id needs 16 bytes"):
        decode_value(2, data)


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (2, b"\0\0\0\0\0\1\0", "the voters are null"),
        (2, b"\0\0\0\0\0\1\xff\xff\xff\xff\x0f", "the voters are null"),
        (2, b"\0\0\0\0\0\1\x80\x80\x80\x80\x80\0", "the voters is a varint of more than 5 bytes"),
        (5, b"\0\0\0\1\1\5\x80\x80\x80\x80\x01", "a tagged field needs 268435456 bytes"),
        (6, b"\0\0\2\0\0\0\3" + DIRECTORY + b"\2\0", "an endpoint's name is null"),
        (6, b"\0\0\2\0\0\0\3" + DIRECTORY + b"\2\x81\x80\x02", "an endpoint's name has length 32768"),
    ],
)
def test_malformed_messages(kind: int, data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_value(kind, data)


def test_unknown_types_have_no_value() -> None:
    assert decode(key(7), b"later") == ControlRecord(ControlKey(0, 7), None)
    assert decode(key(-1), None) == ControlRecord(ControlKey(0, -1), None)


@given(kind=st.integers(-1, 8), data=st.binary(max_size=100))
def test_any_bytes_give_a_value_or_a_reason(kind: int, data: bytes) -> None:
    try:
        found = decode_value(kind, data)
    except ValueError:
        assert kind in control.TYPES
    else:
        assert (found is None) == (kind not in control.TYPES or (kind < 2 and not data))
