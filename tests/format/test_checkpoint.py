"""Checkpoints, partition.metadata, meta.properties, quorum-state and .kafka_cleanshutdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import checkpoint, clean_shutdown, meta_properties, partition_metadata, quorum_state, text_files
from kdump.format.checkpoint import CheckpointError, EpochEntry, OffsetEntry
from kdump.format.clean_shutdown import CleanShutdown
from kdump.format.meta_properties import MetaProperties
from kdump.format.partition_metadata import PartitionMetadata
from kdump.format.quorum_state import QuorumState
from kdump.format.text_files import Property
from support import build
from support.cases import each
from support.root_files import build_clean_shutdown, build_meta_properties, build_properties, build_quorum_state

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TOPIC_ID = "mwJ-D-tiSwSrr_TIGJF7hA"

i32, i64 = (st.integers(-1 << bits - 1, (1 << bits - 1) - 1) for bits in (32, 64))
topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
uuids = st.text("ABCabc019-_", min_size=21, max_size=21).map(lambda text: text + "A")


def epochs(data: bytes) -> list[tuple[int, int]]:
    return list(checkpoint.epoch_entries(data))


def offsets(data: bytes) -> list[tuple[str, int, int]]:
    return list(checkpoint.offset_entries(data))


def until_refused(entries: Iterator[Any]) -> tuple[list[Any], str]:
    """What came before the refusal, and its reason."""
    found: list[Any] = []
    with pytest.raises(CheckpointError) as refused:
        found.extend(entries)
    return found, str(refused.value)


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"", []),
        (b"0", []),
        (b"0\n", []),
        (b"0\n0", []),
        (b"0\n0\n", []),
        (b"0\n1\n3 4\n", [(3, 4)]),
        (b"0\n1\n3 4", [(3, 4)]),
        (b"0\r1\r3 4\r", [(3, 4)]),
        (b"0\r\n2\r\n3 4\r\n5 6\r\n", [(3, 4), (5, 6)]),
        (b"+0\n+1\n+3 -4\n", [(3, -4)]),
        (b"-0\n01\n003 0004\n", [(3, 4)]),
        (b"0\n1\n3 \t\x0b\x0c4\n", [(3, 4)]),
        (b"0\n1\n3 4  \t\n", [(3, 4)]),
        # Integer.parseInt takes the digits of every script
        ("0\n1\n\u0663 \uff14\n".encode(), [(3, 4)]),
        (b"0\n1\n2147483647 9223372036854775807\n", [((1 << 31) - 1, (1 << 63) - 1)]),
        (b"0\n1\n-2147483648 -9223372036854775808\n", [(-1 << 31, -1 << 63)]),
        (b"0\n1\n%s1 0\n" % (b"0" * 10_000), [(1, 0)]),
        # the order is no one's business here
        (b"0\n2\n5 9\n5 3\n", [(5, 9), (5, 3)]),
    ],
)
def test_epochs(data: bytes, entries: list[tuple[int, int]]) -> None:
    assert epochs(data) == entries


@pytest.mark.parametrize(
    ("data", "entries", "reason"),
    [
        (b"\n", 0, "line 1 is malformed, '' is not a 32-bit number: ''"),
        (b"1\n0\n", 0, "version 1, expected 0"),
        (b"-1\n0\n", 0, "version -1, expected 0"),
        (b" 0\n0\n", 0, "line 1 is malformed, ' 0' is not a 32-bit number: ' 0'"),
        (b"\xef\xbb\xbf0\n0\n", 0, "line 1 is malformed, "),
        (b"0\n\n", 0, "line 2 is malformed, "),
        (b"0\n0x1\n", 0, "line 2 is malformed, '0x1' is not a 32-bit number: '0x1'"),
        (b"0\n1_0\n", 0, "line 2 is malformed, "),
        (b"0\n-1\n", 0, "a count of -1 entries"),
        (b"0\n2147483648\n", 0, "line 2 is malformed, '2147483648' is not a 32-bit number: '2147483648'"),
        (b"0\n2\n3 4\n", 1, "a count of 2 entries, but there are 1"),
        (b"0\n2147483647\n3 4\n", 1, "a count of 2147483647 entries, but there are 1"),
        (b"0\n1\n3 4\n5 6\n", 2, "a count of 1 entries, but there are 2"),
        (b"0\n1\n3 4\n\n", 1, "line 4 is malformed, expected an epoch and a start offset: ''"),
        (b"0\n2\n3 4\n5\n", 1, "line 4 is malformed, expected an epoch and a start offset: '5'"),
        (b"0\n2\n3 4\n5 6 7\n", 1, "line 4 is malformed, expected an epoch and a start offset: '5 6 7'"),
        (b"0\n1\n 3 4\n", 0, "line 3 is malformed, expected an epoch and a start offset: ' 3 4'"),
        ("0\n1\n3\u00a04\n".encode(), 0, "line 3 is malformed, expected an epoch and a start offset: '3\\xa04'"),
        (b"0\n1\n3 4x\n", 0, "line 3 is malformed, '4x' is not a 64-bit number: '3 4x'"),
        (b"0\n1\n2147483648 0\n", 0, "line 3 is malformed, '2147483648' is not a 32-bit number"),
        (b"0\n1\n0 9223372036854775808\n", 0, "line 3 is malformed, '9223372036854775808' is not a 64-bit number"),
        ("0\n1\n\U0001d7d8 0\n".encode(), 0, "line 3 is malformed, "),
        (b"0\n2\n3 4\n5 6\xff\n", 1, "byte 11 is not valid UTF-8"),
        (b"\xff", 0, "byte 0 is not valid UTF-8"),
        (
            b"0\n1\n%s\n" % (b"7" * 100_000),
            0,
            f"line 3 is malformed, expected an epoch and a start offset: '{'7' * 60}\\u2026'",
        ),
        (b"0\n1\n%s 0\n" % (b"7" * 100_000), 0, f"line 3 is malformed, '{'7' * 60}\\u2026' is not a 32-bit number"),
        (b"0\n1\n1 \x1b[31m\n", 0, "line 3 is malformed, '\\x1b[31m' is not a 64-bit number: '1 \\x1b[31m'"),
    ],
)
def test_refused_epochs(data: bytes, entries: int, reason: str) -> None:
    found, why = until_refused(checkpoint.epoch_entries(data))
    assert found == [(3, 4), (5, 6)][:entries]
    assert why.startswith(reason)
    assert why.isascii()
    assert why.isprintable()


def test_offsets() -> None:
    data = build.checkpoint("orders 0 7", "my.topic_1 12 9223372036854775807", "orders 0 8")
    assert offsets(data) == [("orders", 0, 7), ("my.topic_1", 12, (1 << 63) - 1), ("orders", 0, 8)]
    # a blank in front makes an empty topic
    assert offsets(build.checkpoint(" 0 7")) == [("", 0, 7)]
    assert offsets(b"") == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("orders 7", "line 4 is malformed, expected a topic, a partition and an offset: 'orders 7'"),
        ("my orders 0 7", "line 4 is malformed, expected a topic, a partition and an offset: 'my orders 0 7'"),
        ("orders x 7", "line 4 is malformed, 'x' is not a 32-bit number: 'orders x 7'"),
        ("orders 0 7.0", "line 4 is malformed, '7.0' is not a 64-bit number: 'orders 0 7.0'"),
    ],
)
def test_refused_offsets(line: str, reason: str) -> None:
    data = build.checkpoint("a 1 2", line, "b 3 4")
    assert until_refused(checkpoint.offset_entries(data)) == ([("a", 1, 2)], reason)


def test_checkpoints_have_a_largest_size() -> None:
    data = b"0\n1\n3 4\n" + b" " * checkpoint.MAX_CHECKPOINT_BYTES
    assert until_refused(checkpoint.epoch_entries(data)) == (
        [],
        f"{len(data)} bytes, more than the 67108864 that such a file can have",
    )


@given(st.lists(st.builds(EpochEntry, i32, i64)))
def test_epochs_round_trip(entries: list[EpochEntry]) -> None:
    data = checkpoint.build_epochs(entries)
    assert epochs(data) == entries
    assert data == build.checkpoint(*(f"{epoch} {start}" for epoch, start in entries))


@given(st.lists(st.builds(OffsetEntry, topics, i32, i64)))
def test_offsets_round_trip(entries: list[OffsetEntry]) -> None:
    data = checkpoint.build_offsets(entries)
    assert offsets(data) == entries
    assert data == build.checkpoint(*(f"{topic} {number} {offset}" for topic, number, offset in entries))


@pytest.mark.parametrize("topic", ["", "a b", "a\n"])
def test_no_topic(topic: str) -> None:
    with pytest.raises(ValueError, match="not a topic"):
        checkpoint.build_offsets([OffsetEntry(topic, 0, 0)])


# --- partition.metadata -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "version"),
    [
        (f"version: 0\ntopic_id: {TOPIC_ID}", 0),
        (f"version: 0\r\ntopic_id: {TOPIC_ID}\r\nand more", 0),
        (f"version: 7\ntopic_id: {TOPIC_ID}==\n", 7),
        # only what follows the colon counts
        (f"x:\t 0\n: {TOPIC_ID}", 0),
        (f"version: +0: \ntopic_id: {TOPIC_ID}: ", 0),
        # the last character holds two bits
        (f"version: 0\ntopic_id: {TOPIC_ID[:-1]}P\n", 0),
    ],
)
def test_partition_metadata(data: str, version: int) -> None:
    assert partition_metadata.parse_partition_metadata(data.encode()) == PartitionMetadata(version, TOPIC_ID)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "line 1 is missing"),
        (b"version: 0", "line 2 is missing"),
        (b"\n\n", "line 1 is malformed, expected a name, a colon, a space and a value: ''"),
        (b"version:0\n", "line 1 is malformed, expected a name, a colon, a space and a value: 'version:0'"),
        (b"version: 0 \n", "line 1 is malformed, '0 ' is not a 32-bit number: 'version: 0 '"),
        (b"version: -1\n", "version -1, expected 0 or more"),
        (b"version: 0\ntopic_id:\n", "line 2 is malformed, expected a name, a colon"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAP==", "the topic id is zero"),
        (
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAAA=",
            "the topic id is not 16 bytes in base64url: 'AAAAAAAAAAAAAAAAAAAAAAA='",
        ),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAA", "the topic id is not 16 bytes in base64url"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAA+Q", "the topic id is not 16 bytes in base64url"),
        (b"version: 0\ntopic_id: \xff", "byte 21 is not valid UTF-8"),
    ],
)
def test_refused_partition_metadata(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        partition_metadata.parse_partition_metadata(data)
    assert str(refused.value).startswith(reason)


@given(st.integers(0, (1 << 31) - 1), uuids.filter(lambda text: text != "A" * 22))
def test_partition_metadata_round_trips(version: int, topic_id: str) -> None:
    metadata = PartitionMetadata(version, topic_id)
    data = partition_metadata.build_partition_metadata(metadata)
    assert partition_metadata.parse_partition_metadata(data) == metadata
    assert list(partition_metadata.partition_metadata_properties(data)) == [
        Property("version", str(version)),
        Property("topic_id", topic_id),
    ]


# --- meta.properties --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("\n \n\t\f\r\n", []),
        ("# a=b\n! c=d\n  #e=f", []),
        ("a=b", [("a", "b")]),
        ("a:b\nc d\ne\t=\f f\n g h", [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]),
        ("a==b\na = =b\na : :b", [("a", "=b"), ("a", "=b"), ("a", ":b")]),
        ("a", [("a", "")]),
        ("=b\n:", [("", "b"), ("", "")]),
        ("a= b c \n", [("a", "b c ")]),
        ("a=b#c\na=b!c", [("a", "b#c"), ("a", "b!c")]),
        ("a=b\rc=d\r\ne=f", [("a", "b"), ("c", "d"), ("e", "f")]),
        # escapes
        (r"a\ b\=c\:d=e", [("a b=c:d", "e")]),
        (r"a=\t\n\r\f\q\\\=\"", [("a", '\t\n\r\fq\\="')]),
        (r"a=\u0041\u00e9\u20AC", [("a", "Aé€")]),
        (r"a=\uD83D\uDE00", [("a", "😀")]),
        (r"a=\uD83D", [("a", "\ufffd")]),
        (r"\u0061\u003d=b", [("a=", "b")]),
        # continuations
        ("a=b\\\n   c", [("a", "bc")]),
        ("a=b\\\r\n\tc\\\nd", [("a", "bcd")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\\n#c", [("a", "b#c")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a\\\n=b", [("a", "b")]),
        ("a=b\\", [("a", "b")]),
        ("#a\\\nb=c", [("b", "c")]),
        # a backslash alone begins nothing, but at the end of the file
        ("\\\n#a\nb=c", [("b", "c")]),
        ("\\\n\n#a", []),
        ("\\", [("", "")]),
        ("a=b\n\\\n", [("a", "b"), ("", "")]),
        ("a=b\r\n\\\r\n", [("a", "b")]),
        # ISO-8859-1, whatever was written; only CR and LF end a line
        ("a=\u00e9\u0085b", [("a", "é\x85b")]),
    ],
)
def test_properties(text: str, found: list[tuple[str, str]]) -> None:
    assert list(meta_properties.properties(text.encode("latin-1"))) == found


def test_properties_are_not_utf_8() -> None:
    assert list(meta_properties.properties("a=é".encode())) == [("a", "Ã©")]


@pytest.mark.parametrize("text", ["a=\\u12", "b=c\na=\\u12g4", "\\u00=41", "a=\\u", "a=\\\\\\u1"])
def test_refused_properties(text: str) -> None:
    found, why = until_refused(meta_properties.properties(text.encode()))
    assert found == [("b", "c")][: text.count("\n")]
    assert "without four hexadecimal digits" in why
    assert why.startswith(f"line {text.count(chr(10)) + 1}: ")


def test_properties_have_a_largest_size() -> None:
    found, why = until_refused(meta_properties.properties(b" " * (text_files.MAX_PROPERTIES_BYTES + 1)))
    assert (found, why) == ([], "1048577 bytes, more than the 1048576 that such a file can have")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.builds(Property, texts, texts)), st.lists(st.text("abc #=é€😀", max_size=9)))
def test_properties_round_trip(entries: list[Property], comments: list[str]) -> None:
    data = build_properties(entries, comments)
    assert list(meta_properties.properties(data)) == entries
    assert data.isascii()
    assert data.count(b"\n") == len(entries) + len(comments)


@pytest.mark.parametrize("comment", ["a\nb", "a\rb", "\u2028"])
def test_no_comment(comment: str) -> None:
    with pytest.raises(ValueError, match="not a comment"):
        build_properties([], [comment])


def test_meta_properties() -> None:
    text = f"#\nnode.id=1\ndirectory.id={TOPIC_ID}\nversion=1\ncluster.id=abc\nmore=x\n"
    assert meta_properties.parse_meta_properties(text.encode()) == MetaProperties(1, "abc", 1, TOPIC_ID)
    assert meta_properties.parse_meta_properties(b"") == MetaProperties(0, None, None, None)
    assert meta_properties.parse_meta_properties(b"broker.id=-5\nversion=\\ 0 \n") == MetaProperties(0, None, -5, None)
    # of two the later one, and node.id is not asked for in version 0
    assert meta_properties.parse_meta_properties(b"cluster.id=a\nnode.id=x\ncluster.id=b") == MetaProperties(
        0, "b", None, None
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=2", "version 2, expected 0 to 1"),
        ("version=", "version is not a number: ''"),
        ("version=1\ncluster.id=a", "node.id is missing"),
        ("version=1\nnode.id=1", "cluster.id is missing"),
        ("version=1\ncluster.id=a\nnode.id= 1 ", "node.id is not a number: '1 '"),
        ("broker.id=x", "broker.id is not a number: 'x'"),
        ("directory.id=x", "the directory.id is not 16 bytes in base64url: 'x'"),
        ("version=\\u1", "line 1: \\u without four hexadecimal digits: '\\\\u1'"),
    ],
)
def test_refused_meta_properties(text: str, reason: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        meta_properties.parse_meta_properties(text.encode())
    assert str(refused.value) == reason


@given(
    st.one_of(
        st.builds(MetaProperties, st.just(0), st.none() | texts, st.none() | i32, st.none() | uuids),
        st.builds(MetaProperties, st.just(1), texts, i32, st.none() | uuids),
    )
)
def test_meta_properties_round_trip(meta: MetaProperties) -> None:
    assert meta_properties.parse_meta_properties(build_meta_properties(meta)) == meta


# --- quorum-state -----------------------------------------------------------------------------------------------------

VERSION_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
)
VERSION_1 = b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'


def test_quorum_states() -> None:
    old = QuorumState(0, "", 1, 2, -1, None, 0, (1, 2))
    new = QuorumState(1, None, -1, 2, 1, "J8aAPcfLQt2bqs1JT_rMgQ", None, None)
    assert quorum_state.parse_quorum_state(VERSION_0) == old
    assert quorum_state.parse_quorum_state(VERSION_1) == new
    assert build_quorum_state(old) == VERSION_0
    assert build_quorum_state(new) == VERSION_1
    assert list(quorum_state.quorum_state_properties(VERSION_0)) == [
        ("clusterId", ""),
        ("leaderId", "1"),
        ("leaderEpoch", "2"),
        ("votedId", "-1"),
        ("appliedOffset", "0"),
        ("currentVoters", '[{"voterId":1},{"voterId":2}]'),
        ("data_version", "0"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        (b"", b"  "),
        (b"}", b"} and what follows"),
        (b"}", b"}\n{"),
        (b"{", b'{"more":{"a":[null,1.5,true]},'),
        # Jackson's shortValue
        (b'"data_version":1', b'"data_version":65537'),
        (b'"data_version":1', b'"data_version":1.9'),
        (b'"leaderId":-1', b'"leaderId":7,"leaderId":-1'),
        (b'"leaderId"', b'"leader\\u0049d"'),
        (b'"data_version"', b'"currentVoters":[],"appliedOffset":3,"clusterId":"x","data_version"'),
    ],
)
def test_quorum_states_that_are_taken(change: tuple[bytes, bytes]) -> None:
    before, after = change
    data = VERSION_1.replace(before, after, 1)
    assert quorum_state.parse_quorum_state(data) == quorum_state.parse_quorum_state(VERSION_1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"\n" + VERSION_1, "not JSON: ''"),
        (b"{", "not JSON: '{'"),
        (b"[]", "not a JSON object: '[]'"),
        (b"NaN", "not JSON: 'NaN'"),
        (b"[" * 100_000, "nested too deeply: '[["),
        (b"{}", "data_version is missing"),
        (b'{"data_version":2}', "data_version 2, expected 0 to 1"),
        (b'{"data_version":-1}', "data_version -1, expected 0 to 1"),
        # what is no number is 0
        (b'{"data_version":"1"}', "clusterId is missing, which data_version 0 has"),
        (b'{"data_version":true}', "clusterId is missing, which data_version 0 has"),
        (b'{"data_version":1e999}', "data_version -1, expected 0 to 1"),
        (VERSION_1.replace(b'"votedId":1,', b""), "votedId is missing, which data_version 1 has"),
        (VERSION_1.replace(b'"votedId":1', b'"votedId":"1"'), "votedId is not a 32-bit number: '\"1\"'"),
        (VERSION_1.replace(b'"votedId":1', b'"votedId":1.0'), "votedId is not a 32-bit number: '1.0'"),
        (VERSION_1.replace(b'"votedId":1', b'"votedId":true'), "votedId is not a 32-bit number: 'true'"),
        (VERSION_1.replace(b'"votedId":1', b'"votedId":2147483648'), "votedId is not a 32-bit number: '2147483648'"),
        (VERSION_1.replace(b"J8", b"J"), "the votedDirectoryId is not 16 bytes in base64url: "),
        (VERSION_1.replace(b'"J8aAPcfLQt2bqs1JT_rMgQ"', b"null"), "votedDirectoryId is not a string: 'null'"),
        (VERSION_0.replace(b'""', b"0"), "clusterId is not a string: '0'"),
        (VERSION_0.replace(b'{"voterId":1}', b"1"), "a voter without voterId: '1'"),
        (VERSION_0.replace(b'[{"voterId":1},{"voterId":2}]', b"null"), "currentVoters is not an array: 'null'"),
        (VERSION_0.replace(b'"voterId":1', b'"voterId":null'), "voterId is not a 32-bit number: 'null'"),
        (
            VERSION_1.replace(b"{", b'{"currentVoters":[{"voterId":1}],'),
            "currentVoters is not empty, which data_version 1 does not have",
        ),
        (VERSION_1 + b"\xff", "byte 104 is not valid UTF-8"),
    ],
)
def test_refused_quorum_states(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        quorum_state.parse_quorum_state(data)
    assert str(refused.value).startswith(reason)


@given(
    st.one_of(
        st.builds(QuorumState, st.just(0), texts, i32, i32, i32, st.none(), i64, st.lists(i32).map(tuple)),
        st.builds(QuorumState, st.just(1), st.none(), i32, i32, i32, uuids, st.none(), st.none()),
    )
)
def test_quorum_states_round_trip(state: QuorumState) -> None:
    data = build_quorum_state(state)
    assert quorum_state.parse_quorum_state(data) == state
    assert b"\n" not in data


# --- .kafka_cleanshutdown ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "marker", "properties"),
    [
        (b"", CleanShutdown(None, None), []),
        (b'{"version":0,"brokerEpoch":13}', CleanShutdown(0, 13), [("version", "0"), ("brokerEpoch", "13")]),
        (b'\n{"brokerEpoch":-1, "more":"x"}\n', CleanShutdown(0, -1), [("brokerEpoch", "-1"), ("more", "x")]),
        (b'{"version":null,"brokerEpoch":1}', CleanShutdown(0, 1), [("version", "null"), ("brokerEpoch", "1")]),
        (b'{"brokerEpoch":1,"a\\ud800":"\\udc00"}', CleanShutdown(0, 1), [("brokerEpoch", "1"), ("a\ufffd", "\ufffd")]),
    ],
)
def test_markers(data: bytes, marker: CleanShutdown, properties: list[tuple[str, str]]) -> None:
    assert clean_shutdown.parse_clean_shutdown(data) == marker
    assert list(clean_shutdown.clean_shutdown_properties(data)) == properties


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\n", "not JSON: '\\n'"),
        (b"{}", "brokerEpoch is missing"),
        (b'{"brokerEpoch":null}', "brokerEpoch is not a 64-bit number: 'null'"),
        (b'{"brokerEpoch":1,"version":[]}', "version is not a 32-bit number: '[]'"),
        (b"\0\0", "not JSON: '\\x00\\x00'"),
    ],
)
def test_markers_that_say_nothing(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointError) as refused:
        clean_shutdown.parse_clean_shutdown(data)
    assert str(refused.value) == reason


@given(st.one_of(st.just(CleanShutdown(None, None)), st.builds(CleanShutdown, i32, i64)))
def test_markers_round_trip(marker: CleanShutdown) -> None:
    assert clean_shutdown.parse_clean_shutdown(build_clean_shutdown(marker)) == marker


# --- whatever the bytes are -------------------------------------------------------------------------------------------

READERS: dict[str, Callable[[bytes], Any]] = {
    "leader-epoch-checkpoint": epochs,
    "recovery-point-offset-checkpoint": offsets,
    "partition.metadata": partition_metadata.parse_partition_metadata,
    "meta.properties": meta_properties.parse_meta_properties,
    "quorum-state": quorum_state.parse_quorum_state,
    ".kafka_cleanshutdown": clean_shutdown.parse_clean_shutdown,
}
SEEDS = {
    "leader-epoch-checkpoint": build.checkpoint("0 0", "2 133", "3 189"),
    "recovery-point-offset-checkpoint": build.checkpoint("orders 0 24", "settings 0 48"),
    "partition.metadata": f"version: 0\ntopic_id: {TOPIC_ID}".encode(),
    "meta.properties": f"#\nnode.id=1\ndirectory.id={TOPIC_ID}\nversion=1\ncluster.id=a\\u0041\\\n b\n".encode(),
    "quorum-state": VERSION_0,
    ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":13}',
}
PIECES = [
    b"\n",
    b"\r",
    b" ",
    b"\\",
    b"\\u",
    b"\\ud800",
    b'"',
    b"{",
    b"}",
    b"[",
    b":",
    b"=",
    b"-",
    b"9" * 30,
    b"\xff",
    b"\0",
    b"null",
    b"1e999",
]


@given(st.sampled_from(sorted(READERS)), st.binary(max_size=60))
def test_any_bytes(name: str, data: bytes) -> None:
    read(name, data)


@given(st.sampled_from(sorted(READERS)), st.data())
def test_mutations(name: str, data: st.DataObject) -> None:
    changed = SEEDS[name]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        size = data.draw(st.integers(0, 4))
        changed = changed[:at] + data.draw(st.sampled_from([b"", *PIECES])) + changed[at + size :]
    read(name, changed)


def read(name: str, data: bytes) -> None:
    """A result, or CheckpointError with one printable line."""
    try:
        READERS[name](data)
    except CheckpointError as error:
        why = str(error)
        assert why.isprintable(), why
        assert len(why) < 600


# --- what brokers wrote -----------------------------------------------------------------------------------------------


def of_brokers(pattern: str) -> list[Any]:
    return [pytest.param(path, id=path.relative_to(FIXTURES).as_posix()) for path in sorted(FIXTURES.rglob(pattern))]


@each("path", of_brokers("leader-epoch-checkpoint"))
def test_epochs_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    entries = list(checkpoint.epoch_entries(data))
    assert data in (b"", checkpoint.build_epochs(entries))
    assert entries == sorted(entries)


@each("path", of_brokers("*-offset-checkpoint"))
def test_offsets_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    assert data in (b"", checkpoint.build_offsets(checkpoint.offset_entries(data)))


@each("path", of_brokers("partition.metadata"))
def test_partition_metadata_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    assert partition_metadata.build_partition_metadata(partition_metadata.parse_partition_metadata(data)) == data


@each("path", of_brokers("meta.properties"))
def test_meta_properties_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    meta = meta_properties.parse_meta_properties(data)
    comments = [line.decode()[1:] for line in data.splitlines() if line.startswith(b"#")]
    built = build_properties(meta_properties.properties(data), comments)
    assert built == data
    assert meta_properties.parse_meta_properties(build_meta_properties(meta)) == meta


@pytest.mark.parametrize("path", of_brokers("quorum-state"))
def test_quorum_states_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    assert build_quorum_state(quorum_state.parse_quorum_state(data)) == data


@pytest.mark.parametrize("path", of_brokers(".kafka_cleanshutdown"))
def test_markers_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    assert build_clean_shutdown(clean_shutdown.parse_clean_shutdown(data)) == data
