"""A manifest says what was written into it, and refuses everything else with a sentence."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.convert.parquet.manifest import (
    KEPT_FINDINGS,
    BatchIdentity,
    ColumnRange,
    ConversionSettings,
    ConvertedFile,
    ConvertedPartition,
    LeftOut,
    Manifest,
    SourceFile,
    commit_bytes,
    manifest_bytes,
    merged_findings,
    partition_lines,
    removal_lines,
)
from kdump.convert.parquet.manifest_reader import read_commits, read_manifest
from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.kernel.crc import crc32c
from kdump.log.damage import DamagedRange
from support.laws import examples

PATH = "/data/\udcff/t-0"  # no UTF-8
SOURCE = SourceFile(f"{PATH}/00000000000000000000.log", 0, 1234, 99, 0xFFFFFFFF)
RANGES = (
    ColumnRange("key", b"a", b"\xff\xfe", 3),
    ColumnRange("value", None, None, None),
    ColumnRange("topic", "t", "t", 0),
    ColumnRange("offset", 0, (1 << 63) - 1, 0),
    ColumnRange("control", False, True, 0),
)
FILES = (
    ConvertedFile(
        "t-0-00000000000000000000-00000000000000000099.parquet", 100, 5000, 0, 99, False, True, RANGES, (SOURCE,)
    ),
    ConvertedFile("topic=t/partition=0/x.provisional.parquet", 1, 50, 100, 100, True, False),
)
ENTRY = ConvertedPartition(
    TopicPartition("t", 0),
    PATH,
    None,
    100,
    BatchIdentity(None, 99, 77),
    unfit_timestamps=1,
    findings_dropped=2,
    files=FILES,
    findings=(DamagedRange(SOURCE.path, 5, 7, "batch/crc"),),
    left_out=(LeftOut("aborted", 5, 0, 99), LeftOut("damaged", None, 7, None)),
)
UNNAMED = ConvertedPartition(None, "x.log", 3, 3)
MANIFEST = Manifest(
    "c0ffee",
    ConversionSettings(("key", "value"), time=(None, 1 << 70), level=3, others=(("replica", "merge"),)),
    {each.key: each for each in (ENTRY, UNNAMED)},
)


def sealed(lines: list[Any]) -> bytes:
    body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    return body + json.dumps({"type": "end", "crc32c": crc32c(body)}).encode() + b"\n"


def lines_of(manifest: Manifest = MANIFEST) -> list[Any]:
    return [json.loads(line) for line in manifest_bytes(manifest).splitlines()][:-1]


def test_what_was_written_is_read() -> None:
    data = manifest_bytes(MANIFEST)
    assert read_manifest(data, "m") == MANIFEST
    assert read_manifest(sealed(lines_of()), "m") == MANIFEST
    assert data.isascii()
    assert read_manifest(manifest_bytes(MANIFEST._replace(partitions={})), "m").partitions == {}


def test_the_lines_are_a_contract() -> None:
    lines = lines_of()
    assert [line["type"] for line in lines] == [
        *("settings", "partition", "file", "file", "finding", "left_out", "left_out", "partition")
    ]
    file = lines[2]
    assert file["columns"]["key"] == {"smallest": "a", "largest": {"base64": "//4="}, "nulls": 3}
    assert file["sources"][0]["path"] == {"base64": "L2RhdGEv/y90LTAvMDAwMDAwMDAwMDAwMDAwMDAwMDAubG9n"}
    assert lines[1]["last_batch"] == {"base_offset": None, "last_offset": 99, "crc": 77}


WRONG: list[tuple[int, dict[str, Any], str]] = [
    (0, {"version": 9}, "of version 9, this kdump reads 1"),
    (0, {"version": "1"}, "version is not a 64-bit number"),
    (0, {"run": "../x"}, "is not the id of a folder"),
    (0, {"type": "partition"}, "the first line has no settings"),
    (0, {"settings": []}, "settings is not an object"),
    (0, {"settings": {}}, "it has no field"),
    (1, {"next_offset": 1.5}, "line 2: next_offset is not a 64-bit number"),
    (1, {"next_offset": 1 << 63}, "next_offset is not a 64-bit number"),
    (1, {"next_offset": True}, "next_offset is not a 64-bit number"),
    (1, {"partition": -1}, "partition is less than 0"),
    (1, {"topic": 5}, "topic is not a string"),
    (1, {"topic": {"base64": "*"}}, "topic is neither a string nor base64"),
    (1, {"last_batch": []}, "last_batch is not an object"),
    (1, {"type": "what"}, "a line what comes before the first partition"),
    (7, {"type": "what"}, "line 8: a line of the unknown type"),
    (7, {"topic": "t", "partition": 0}, "a topic-partition comes twice"),
    (2, {"name": "../../etc/passwd.parquet"}, "is not the name of a file"),
    (2, {"name": "/etc/x.parquet"}, "is not the name of a file"),
    (2, {"name": "a/b.parquet"}, "is not the name of a file"),
    (2, {"name": "topic=../partition=0/.x.parquet"}, "is not the name of a file"),
    (2, {"name": "important.txt"}, "is not the name of a file"),
    (2, {"name": "_manifest.jsonl"}, "is not the name of a file"),
    (2, {"name": FILES[1].name}, "comes twice"),
    (2, {"rows": -1}, "rows is less than 0"),
    (2, {"provisional": 0}, "provisional is neither true nor false"),
    (2, {"columns": {"key": 3}}, "key is not an object"),
    (2, {"columns": {"key": {"smallest": 5, "largest": None, "nulls": 0}}}, "smallest is neither a string nor base64"),
    (2, {"columns": {"offset": {"smallest": 1.5, "largest": None, "nulls": 0}}}, "smallest is not a 64-bit number"),
    (2, {"sources": [5]}, "sources has an entry that is not an object"),
    (4, {"position": -5}, "position is less than 0"),
]


@pytest.mark.parametrize(("number", "fields", "why"), WRONG)
def test_a_line_that_is_wrong(number: int, fields: dict[str, Any], why: str) -> None:
    lines = lines_of()
    lines[number] |= fields
    with pytest.raises(KdumpError) as caught:
        read_manifest(sealed(lines), "m")
    assert str(caught.value).startswith("m: the manifest cannot be read: ")
    assert why in str(caught.value)


ANYTHING = [None, 0, -1, 1 << 80, 1.5, "x", "\udcff", [], [{}], {}, {"base64": "eA=="}, True]


@pytest.mark.parametrize("data", [b"", b"\n", b"{}", b"{}\n{}\n", b"\xff\n\xff\n", b"[" * 100_000, b"5\n5\n", b"null"])
def test_no_manifest_at_all(data: bytes) -> None:
    with pytest.raises(KdumpError, match="the manifest cannot be read"):
        read_manifest(data, "m")


@settings(max_examples=examples(200))
@given(st.integers(0, 1 << 32))
def test_damage(seed: int) -> None:
    """A changed byte, a lost or a doubled line, a cut: a sentence, never a traceback."""
    rng = random.Random(seed)
    data = bytearray(manifest_bytes(MANIFEST))
    match rng.randrange(3):
        case 0:
            data[rng.randrange(len(data) - 1)] ^= 1 << rng.randrange(8)
        case 1:
            del data[rng.randrange(len(data) - 1) :]
        case _:
            lines = bytes(data).splitlines(keepends=True)
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            data = bytearray(b"".join(lines))
    with pytest.raises(KdumpError, match="m: the manifest cannot be read"):
        read_manifest(bytes(data), "m")


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 32))
def test_any_value_in_any_field(seed: int) -> None:
    """With a right checksum, too."""
    rng = random.Random(seed)
    lines = lines_of()
    line = rng.choice(lines)
    line[rng.choice(sorted(line))] = rng.choice(ANYTHING)
    try:
        found = read_manifest(sealed(lines), "m")
    except KdumpError:
        return
    assert read_manifest(manifest_bytes(found), "m") == found


def commits(seed: int) -> list[tuple[bytes, Manifest]]:
    """A manifest that grows by commits of one partition each: the bytes so far, and what they say."""
    rng = random.Random(seed)
    partitions = dict(MANIFEST.partitions)
    data = manifest_bytes(MANIFEST)
    found = [(data, MANIFEST)]
    for number in range(rng.randrange(1, 6)):
        key = rng.choice([*partitions, ENTRY._replace(topic_partition=TopicPartition("n", number)).key])
        before = partitions.pop(key, None)
        if before is not None and rng.randrange(2):
            lines = removal_lines(key)
        else:
            name = f"n-{rng.randrange(2)}-{number}.parquet"
            kept = before.files[:1] if before is not None else ()
            entry = ConvertedPartition(
                key.topic_partition, "p", None, number, files=(*kept, FILES[0]._replace(name=name))
            )
            partitions[key] = entry
            lines = partition_lines(entry)
        data += commit_bytes(lines, crc32c(data))
        found.append((data, MANIFEST._replace(partitions=dict(partitions))))
    return found


@settings(max_examples=examples(100))
@given(st.integers(0, 1 << 32), st.data())
def test_commits(seed: int, drawn: st.DataObject) -> None:
    """A run that is killed while it writes a commit leaves what was before it; damage to a commit is no such thing."""
    grown = commits(seed)
    data, manifest = grown[-1]
    assert read_commits(data, "m") == (manifest, len(grown) == 1)
    first, last = len(grown[0][0]), len(grown[-2][0])
    cut = drawn.draw(st.integers(first, len(data) - 1), "cut")
    wanted = [said for written, said in grown if len(written) <= cut][-1]
    assert read_commits(data[:cut], "m") in ((wanted, False), (wanted, True), (manifest, False))
    # A part of the last commit that was not written, though the file has its size.
    start = drawn.draw(st.integers(last, len(data) - 2), "zeros")
    zeros = bytes(drawn.draw(st.integers(1, len(data) - start), "count"))
    assert read_manifest(data[:start] + zeros + data[start + len(zeros) :], "m") == grown[-2][1]
    at = drawn.draw(st.integers(0, len(data) - 2), "damage")
    damaged = bytearray(data)
    damaged[at] ^= 1 << drawn.draw(st.integers(0, 7), "bit")
    try:
        found = read_manifest(bytes(damaged), "m")
    except KdumpError as error:
        assert str(error).startswith("m: the manifest cannot be read: ")  # noqa: PT017
    else:
        assert at >= last
        assert found == grown[-2][1]


def test_commits_that_cannot_be() -> None:
    data = manifest_bytes(MANIFEST)
    for lines, why in (
        ([*partition_lines(UNNAMED), *partition_lines(UNNAMED)], "line 11: a topic-partition comes twice"),
        ([*removal_lines(UNNAMED.key), *partition_lines(UNNAMED)], "line 11: a topic-partition comes twice"),
        ([*lines_of()[:1]], "line 10: a line settings comes before the first partition"),
        ([{"type": "file"}], "line 10: a line file comes before the first partition"),
    ):
        with pytest.raises(KdumpError, match=f"m: the manifest cannot be read: {why}"):
            read_manifest(data + commit_bytes(lines, crc32c(data)), "m")
    assert read_manifest(data + commit_bytes([], crc32c(data)), "m") == MANIFEST


def test_findings_of_files_that_were_read_again_are_replaced() -> None:
    def damaged(path: str, position: int) -> DamagedRange:
        return DamagedRange(path, position, 1, "batch/crc")

    old = ENTRY._replace(findings=(damaged("a", 1), damaged("b", 2), damaged("b", 3)))
    found, dropped = merged_findings(old, [damaged("b", 3), damaged("b", 3), damaged("c", 4)], ["b", "c"])
    assert (found, dropped) == ((damaged("a", 1), damaged("b", 3), damaged("c", 4)), 0)
    many = [damaged("c", at) for at in range(KEPT_FINDINGS + 5)]
    found, dropped = merged_findings(None, many, ["c"], dropped=3)
    assert (len(found), dropped) == (KEPT_FINDINGS, 8)
