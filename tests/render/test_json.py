"""The contract of the JSON lines: names, order, and what becomes of bytes."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.render import BYTES_MODES, RenderOptions
from kdump.render.json import ENCODERS, json_path, json_string, json_text, json_value

BATCH = (
    "type path position size magic base_offset last_offset count partition_leader_epoch crc crc_ok codec "
    "timestamp_type base_timestamp max_timestamp delete_horizon_ms producer_id producer_epoch base_sequence "
    "last_sequence "
    "transactional control"
)
RECORD = (
    "type path topic partition offset timestamp timestamp_type key value headers position batch_offset sequence "
    "producer_id control"
)
CONTROL = ["control_type", "coordinator_epoch", "control_value"]
FINDING = (
    "type path code severity topic partition segment position length offset broker later_broker message data identity"
)


@pytest.fixture
def lines(show: Callable[..., bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in show("json").decode().splitlines()]


def test_names_and_order(lines: list[dict[str, Any]]) -> None:
    control = False
    for line in lines:
        names = list(line)
        match line["type"]:
            case "batch":
                assert names == BATCH.split()
                control = line["control"]
            case "record":
                assert names == RECORD.split() + (CONTROL if control else [])
                assert line["control"] is control
            case "finding":
                assert names == FINDING.split()
            case "gap" | "tail":
                assert names == ["type", "path", "position", "length", "reason"]
            case "summary":
                assert names[:3] == ["type", "schema", "command"]
                assert line["schema"] == 3
            case _:
                assert names[:2] == ["type", "path"]
    assert {line["type"] for line in lines} > {"batch", "record", "gap", "tail", "finding", "summary", "index_entry"}
    assert lines[-1]["type"] == "summary"


def test_null_is_what_the_format_does_not_have(lines: list[dict[str, Any]]) -> None:
    batches = [line for line in lines if line["type"] == "batch"]
    oldest = next(line for line in batches if line["magic"] == 0)
    assert oldest["base_timestamp"] is oldest["max_timestamp"] is oldest["producer_id"] is None
    assert oldest["partition_leader_epoch"] is oldest["base_sequence"] is oldest["last_sequence"] is None
    assert (oldest["transactional"], oldest["control"]) == (False, False)
    wrapper = next(line for line in batches if line["magic"] == 1)
    assert wrapper["base_offset"] is wrapper["count"] is None
    assert (wrapper["last_offset"], wrapper["codec"]) == (12, "gzip")
    newest = batches[0]
    assert (newest["producer_id"], newest["base_sequence"], newest["last_sequence"]) == (-1, -1, -1)
    assert newest["delete_horizon_ms"] is None


def test_a_checksum_that_no_one_computed_is_null(lines: list[dict[str, Any]]) -> None:
    found = {line["position"]: line["crc_ok"] for line in lines if line["type"] == "batch" and line["magic"] >= 2}
    assert found == {0: True, 100: True, 200: True, 278: True, 478: False, 650: True, 750: None}


def test_an_unknown_codec_is_its_number(lines: list[dict[str, Any]]) -> None:
    assert [line["codec"] for line in lines if line.get("position") == 478 and line["type"] == "batch"] == [7]


def test_control_records(lines: list[dict[str, Any]]) -> None:
    found = {line["offset"]: [line[name] for name in CONTROL] for line in lines if "control_type" in line}
    voter = {"voter_directory_id": None}
    voters = [{"voter_id": 3, **voter}, {"voter_id": 4, **voter}]
    change = {"version": 0, "leader_id": 3, "voters": voters, "granting_voters": voters[:1]}
    assert found == {
        10: ["COMMIT", 5, {"version": 0, "coordinator_epoch": 5}],
        11: ["LEADER_CHANGE", None, change],
        12: ["COMMIT", None, None],
        13: ["SNAPSHOT_HEADER", None, None],
        14: [42, None, None],
        15: [None, None, None],
    }


BINARY = st.none() | st.binary() | st.text().map(str.encode)


def _back(mode: str, found: Any) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, dict):
        assert list(found) == ["base64"]
        return b64decode(found["base64"])
    assert isinstance(found, str)
    return found.encode() if mode == "auto" else b64decode(found) if mode == "base64" else bytes.fromhex(found)


@given(data=BINARY, mode=st.sampled_from([mode for mode in BYTES_MODES if mode != "utf8"]))
def test_bytes_come_back(data: bytes | None, mode: str) -> None:
    assert _back(mode, json.loads(ENCODERS[mode](data))) == data


@given(data=st.binary())
def test_only_auto_makes_objects(data: bytes) -> None:
    for mode in BYTES_MODES:
        found = json.loads(ENCODERS[mode](data))
        if mode == "utf8":
            assert found == data.decode(errors="replace")
        assert isinstance(found, str) or (mode == "auto" and "\ufffd" in data.decode(errors="replace"))


def test_null_and_empty_differ_in_every_mode() -> None:
    assert {ENCODERS[mode](None) for mode in BYTES_MODES} == {"null"}
    assert {ENCODERS[mode](b"") for mode in BYTES_MODES} == {'""'}


@given(text=st.text())
def test_strings_are_json_that_no_terminal_obeys(text: str) -> None:
    found = json_string(text)
    assert json.loads(found) == text
    dangerous = {
        *range(0x20),
        *range(0x7F, 0xA0),
        0x61C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    }
    assert not dangerous & set(map(ord, found))


def test_text_stays_text() -> None:
    assert json_string("é 漢字 😀 \x7f") == '"é 漢字 😀 \\u007f"'


def test_a_path_that_is_no_utf8_is_base64() -> None:
    assert json_path("/logs/é-0") == '"/logs/é-0"'
    assert json.loads(json_path("/logs/\udcff-0")) == {"base64": "L2xvZ3Mv/y0w"}
    assert json.loads(json_text("\udcff")) == {"base64": "/w=="}


def test_values_of_any_kind() -> None:
    built = {"a": [1, -(2**63), True, None, 0.5], "b": {"c": b"\xff", "d": "x"}, "e": (2**64 - 1,), "f": float("nan")}
    assert json.loads(json_value(built)) == {
        "a": [1, -(2**63), True, None, 0.5],
        "b": {"c": {"base64": "/w=="}, "d": "x"},
        "e": [2**64 - 1],
        "f": None,
    }
    with pytest.raises(TypeError, match="object"):
        json_value(object())


def test_the_modes_apply_to_keys_values_and_headers(show: Callable[..., bytes]) -> None:
    for mode, key, trace in (("base64", "a2V5", "/wA="), ("hex", "6b6579", "ff00"), ("utf8", "key", "\ufffd\0")):
        line = json.loads(show("json", RenderOptions(bytes_mode=mode)).splitlines()[1])
        assert (line["key"], line["headers"][0]["value"]) == (key, trace)
        assert line["headers"][1]["value"] is None
        assert line["path"] == "/logs/orders-3/00000000000000000000.log"
