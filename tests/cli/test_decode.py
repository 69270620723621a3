"""Internal topics as kdump dump shows them: what is decoded, when, and what is shown of what cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support import build

INTERNAL = Path(__file__).resolve().parents[2] / "fixtures" / "internal"
_OFFSETS = ("--offsets-decoder",)
COMMIT_KEY = b"\0\1\0\1g\0\1t\0\0\0\7"
COMMIT = b"\0\1" + (42).to_bytes(8, "big") + b"\0\1m" + (0).to_bytes(8, "big") + (60_000).to_bytes(8, "big")


def offsets_log(directory: Path, *records: bytes) -> str:
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(build.batch(list(records)))
    return str(directory)


def test_a_commit_is_a_line(kdump: Any, tmp_path: Path) -> None:
    path = offsets_log(
        tmp_path / "__consumer_offsets-3", build.record(COMMIT_KEY, COMMIT), build.record(COMMIT_KEY, None)
    )
    first, second = kdump.inside("dump", "--records", path).lines[1:]
    assert first.endswith(
        " OffsetCommit group=g partition=t-7 committed=42 metadata=m at=1970-01-01T00:00:00.000Z"
        " expires=1970-01-01T00:01:00.000Z"
    )
    assert second.endswith(" OffsetCommit group=g partition=t-7 deleted")


def test_json_has_both(kdump: Any, tmp_path: Path) -> None:
    path = offsets_log(tmp_path / "__consumer_offsets-3", build.record(COMMIT_KEY, COMMIT))
    line = json.loads(kdump.inside("dump", "--records", "--format", "json", path).lines[0])
    assert line["key"] == COMMIT_KEY.decode()
    assert line["key_decoded"] == {
        "name": "OffsetCommitKey", "type": 1, "version": 0, "data": {"group": "g", "topic": "t", "partition": 7},
    }  # fmt: skip
    assert line["value_decoded"]["data"]["offset"] == 42
    assert line["decode_problem"] is None


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        (b"\0\x63\0\1g", b"", "record type 99 of __consumer_offsets is not known"),
        (COMMIT_KEY, b"\0\x09" + COMMIT[2:], "version 9 of OffsetCommitValue is not known"),
        (COMMIT_KEY, COMMIT[:9], "offset needs 8 bytes at byte 2, 7 bytes are left"),
        (COMMIT_KEY[:4], COMMIT, "group needs 1 bytes at byte 4, 0 bytes are left"),
        (None, COMMIT, "the record has no key"),
    ],
)
def test_what_cannot_be_decoded_is_shown_as_it_is(
    kdump: Any, tmp_path: Path, key: bytes | None, value: bytes, problem: str
) -> None:
    path = offsets_log(tmp_path / "__consumer_offsets-3", build.record(key, value))
    ran = kdump.inside("dump", "--records", path)
    assert ran.status == 0
    assert ran.lines[1].endswith(f'undecoded="{problem}"')
    assert " key=" in ran.lines[1]
    line = json.loads(kdump.inside("dump", "--records", "--format", "json", path).lines[0])
    assert line["decode_problem"] == problem
    raw = kdump.inside("dump", "--records", "--format", "json", "--decode", "none", path).lines[0]
    assert line["value"] == json.loads(raw)["value"]


def test_what_cannot_be_decoded_is_a_finding(kdump: Any, tmp_path: Path) -> None:
    good, bad, none = build.record(COMMIT_KEY, COMMIT), build.record(b"\0\x63\0\1g", b""), build.record(None, None)
    directory = tmp_path / "__consumer_offsets-3"
    path = offsets_log(directory, good)
    log = directory / "00000000000000000000.log"
    first, second = log.read_bytes(), build.batch([good, bad, none, none], base_offset=1)
    for form in ("text", "json", "kafka", "values", "hex"):
        decode = () if form in ("text", "json", "hex") else ("--decode", "auto") if form == "values" else _OFFSETS
        log.write_bytes(first)
        fine = kdump.inside("dump", "--format", form, *decode, path)
        assert b"internal/record" not in fine.out + fine.err
        log.write_bytes(first + second)
        ran = kdump.inside("dump", "--format", form, *decode, path)
        assert ran.status == 0
        found = ran.err if form in ("kafka", "values") else ran.out
        # The tool has words for a record type that it does not know, and ends at a record without a key.
        count = 2 if form == "kafka" else 3
        assert found.count(b"internal/record") == 1
        assert f"{count} records cannot be decoded as messages of __consumer_offsets".encode() in found
        assert b"batch at offset 1" in found
        assert kdump.inside("dump", "--format", form, *decode, "--fail-on", "info", path).status == 1
    finding = next(line for line in kdump.inside("dump", "--format", "json", path).lines if '"type":"finding"' in line)
    assert json.loads(finding)["severity"] == "info"
    assert json.loads(finding)["position"] == len(first)
    assert json.loads(finding)["data"] == {"records": 3, "topic": "__consumer_offsets"}


def test_a_template_counts_a_record_once(kdump: Any, tmp_path: Path) -> None:
    path = offsets_log(tmp_path / "__consumer_offsets-3", *[build.record(None, None)] * 3)
    template = "%{decode_problem} %{key_decoded} %{value_decoded}\n"
    ran = kdump.inside("dump", "--decode", "auto", "--template", template, path)
    assert ran.out == b"the record has no key  \n" * 3
    assert b"info internal/record: 3 records cannot be decoded" in ran.err


def test_no_fixture_has_what_cannot_be_decoded(kdump: Any) -> None:
    for path in sorted(INTERNAL.glob("__*")):
        assert not [line for line in kdump.inside("dump", str(path)).lines if "internal/record" in line]


def test_none_decodes_nothing(kdump: Any) -> None:
    path = str(INTERNAL / "__consumer_offsets-0")
    for line in kdump.inside("dump", "--format", "json", "--decode", "none", path).lines:
        assert "key_decoded" not in json.loads(line)


def test_a_loose_file_by_topic_and_by_option(kdump: Any, tmp_path: Path) -> None:
    source = INTERNAL / "__consumer_offsets-0" / "00000000000000000000.log"
    loose = tmp_path / "00000000000000000000.log"
    shutil.copy(source, loose)

    def decoded(*options: str) -> list[Any]:
        ran = kdump.inside("dump", "--records", "--format", "json", *options, str(loose))
        return [json.loads(line).get("value_decoded") for line in ran.lines if '"type":"record"' in line]

    assert not any(decoded())
    by_topic = decoded("--topic", "__consumer_offsets")
    assert any(by_topic)
    assert decoded("--decode", "offsets") == by_topic
    whole = kdump.inside("dump", "--records", "--format", "json", str(source)).lines
    assert [json.loads(line).get("value_decoded") for line in whole if '"type":"record"' in line] == by_topic


def test_topic_leaves_out_the_files_of_others(kdump: Any) -> None:
    ran = kdump.inside("dump", "--batches", "--format", "json", "--topic", "__transaction_state", str(INTERNAL))
    paths = {json.loads(line)["path"] for line in ran.lines if '"type":"batch"' in line}
    assert paths
    assert all("__transaction_state-0" in path for path in paths)


def test_control_records_and_damaged_batches_are_not_decoded(kdump: Any, tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    damaged = bytearray(build.batch([build.record(COMMIT_KEY, COMMIT)], base_offset=1))
    damaged[17] ^= 1  # its CRC
    log = build.control_batch([build.record(b"\0\0\0\1", b"\0\0\0\0\0\1")]) + bytes(damaged)
    (directory / "00000000000000000000.log").write_bytes(log)
    ran = kdump.inside("dump", "--records", "--force", "--format", "json", str(directory))
    records = [json.loads(line) for line in ran.lines if '"type":"record"' in line]
    assert len(records) == 2
    assert all("key_decoded" not in record for record in records)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--key-decoder-class", "X"], "names a Java class"),
        (["--offsets-decoder"], "--offsets-decoder needs --format kafka; use --decode offsets"),
        (["--format", "kafka", "--decode", "metadata"], "with --format kafka, use --cluster-metadata-decoder"),
    ],
)
def test_refused_options(kdump: Any, options: list[str], sentence: str) -> None:
    ran = kdump.inside("dump", *options, str(INTERNAL))
    assert ran.status == 2
    assert sentence in ran.err.decode()
