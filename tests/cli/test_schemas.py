"""kdump dump --schemas and decoders of the user: values with schemas as a user sees them."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kdump.cli import value_decoding
from support import build
from support.schema_values import (
    LINE_BYTES,
    LINE_DATA,
    LINE_PATH,
    ORDER_BYTES,
    ORDER_DATA,
    REGISTRY,
    wire,
    write_log,
)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A log directory with a registry's topic and a topic with values of three types and a damaged one."""
    write_log(tmp_path / "_schemas-0", REGISTRY)
    pairs = [
        (b"k", wire(1, ORDER_BYTES)),
        (wire(1, ORDER_BYTES), wire(3, LINE_PATH + LINE_BYTES)),
        (None, wire(4, b'{"a":[1,"\xc2\x9b"]}')),
        (b"k", wire(1, ORDER_BYTES[:-1])),
        (b"k", None),
    ]
    write_log(tmp_path / "orders-0", pairs)
    return tmp_path


def records(ran: Any) -> list[Any]:
    return [json.loads(line) for line in ran.lines if '"type":"record"' in line]


def test_json_has_the_values(kdump: Any, disk: Path) -> None:
    ran = kdump.inside("dump", "--format", "json", "--schemas", "auto", str(disk / "orders-0"))
    assert ran.status == 0
    avro, protobuf, plain, damaged, deleted = records(ran)
    assert avro["value_decoded"] == {"schema_id": 1, "schema_type": "AVRO", "name": "shop.Order", "data": ORDER_DATA}
    assert avro["key"] == "k"
    assert avro["key_decoded"] is avro["decode_problem"] is None
    assert protobuf["key_decoded"] == avro["value_decoded"]
    assert protobuf["value_decoded"]["data"] == LINE_DATA
    assert plain["value_decoded"]["data"] == {"a": [1, "\x9b"]}
    assert damaged["value_decoded"] is None
    assert damaged["decode_problem"].startswith("schema 1 (AVRO): ")
    assert deleted["value"] is deleted["value_decoded"] is deleted["decode_problem"] is None


def test_a_value_is_a_line_of_text(kdump: Any, disk: Path) -> None:
    ran = kdump.inside("dump", "--records", "--schemas", str(disk / "_schemas-0"), str(disk / "orders-0"))
    avro, _, plain, damaged, deleted = ran.lines[1:]
    assert avro.endswith(f' key="k" value={json.dumps(ORDER_DATA, separators=(",", ":"))} value_schema=1')
    assert plain.endswith(' key=null value={"a":[1,"\\u009b"]} value_schema=4')
    assert ' key="k" value=0x00' in damaged
    assert ' undecoded="schema 1 (AVRO): ' in damaged
    assert deleted.endswith(' key="k" value=null')
    assert kdump.inside("dump", "--format", "terminal", "--schemas", "auto", str(disk / "orders-0")).status == 0


REGISTRY_CASE = Path(__file__).resolve().parents[2] / "fixtures" / "registry"


def test_values_of_serializers_with_the_topic_of_karapace(kdump: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """dump and convert show what the deserializers gave; the last schema was deleted for good."""
    told = (REGISTRY_CASE / "expected" / "deserialized.json").read_text().splitlines()
    expected = [json.loads(line) for line in told]
    path = str(REGISTRY_CASE / "values-0")
    found = records(kdump.inside("dump", "--format", "json", "--schemas", "auto", path))
    assert [
        {name: each[f"{name}_decoded"] and each[f"{name}_decoded"]["data"] for name in ("key", "value")}
        for each in found
    ] == [{"key": each["key"], "value": each["value"]} for each in expected]
    problems = [each["decode_problem"] for each in found]
    assert problems[:-1] == [None] * (len(expected) - 1)
    assert "was deleted for good from " in problems[-1]
    names = [each["value_decoded"]["name"] for each in found[:-1]]
    assert names[:4] == ["shop.Order"] * 3 + ["Logical"]
    assert names[8:14] == ["shop.Basket", "shop.Line", "shop.Line.Part.Screw", "shop.Counts", *["shop.Counts.Last"] * 2]
    target = tmp_path_factory.mktemp("out") / "out.ndjson"
    ran = kdump.inside("convert", "--schemas", "auto", path, "-o", str(target))
    assert ran.status == 0
    assert "1 value null in value_json" in ran.text + ran.problems
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["value_json"] for row in rows] == [each["value"] for each in expected]


def test_a_disk_without_schemas_is_said_once(kdump: Any, disk: Path) -> None:
    (disk / "_schemas-0").rename(disk / "elsewhere")
    write_log(disk / "orders-1", [(None, wire(1, ORDER_BYTES))])
    paths = [str(disk / "orders-0"), str(disk / "orders-1")]
    ran = kdump.inside("dump", "--records", "--schemas", "auto", *paths)
    assert ran.status == 3
    assert ran.problems.count("no _schemas-0 here, so there are no schemas: --schemas takes the path of a copy") == 1
    assert len([line for line in ran.lines if " undecoded=" in line]) == 5
    assert kdump.inside("dump", "--records", "--schemas", str(disk / "elsewhere"), *paths).status == 0
    missing = kdump.inside("dump", "--schemas", str(disk / "none"), *paths)
    assert missing.status == 3
    assert "not a folder with schemas: no such file or directory" in missing.problems


def test_topics_of_kafka_and_of_a_registry_are_as_without_schemas(kdump: Any, disk: Path) -> None:
    key = b"\0\1\0\1g\0\1t\0\0\0\7"
    write_log(disk / "__consumer_offsets-0", [(key, None)])
    for name in ("__consumer_offsets-0", "_schemas-0"):
        both = [
            kdump.inside("dump", "--format", "json", *schemas, str(disk / name)).lines[:-1]
            for schemas in ([], ["--schemas", "auto"])
        ]
        assert both[0] == both[1]


def test_damaged_batches_and_control_records_stay_raw(kdump: Any, disk: Path) -> None:
    damaged = bytearray(build.batch([build.record(b"k", wire(1, ORDER_BYTES))], base_offset=1))
    damaged[17] ^= 1  # its CRC
    log = build.control_batch([build.record(b"\0\0\0\1", b"\0\0\0\0\0\1")]) + bytes(damaged)
    (disk / "orders-0" / "00000000000000000000.log").write_bytes(log)
    ran = kdump.inside("dump", "--force", "--format", "json", "--schemas", "auto", str(disk / "orders-0"))
    assert len(records(ran)) == 2
    assert not any("value_decoded" in record for record in records(ran))


def test_a_read_at_an_offset_is_decoded(kdump: Any, disk: Path) -> None:
    ran = kdump.inside("dump", "--at", "1", "-n", "1", "--format", "json", "--schemas", "auto", str(disk / "orders-0"))
    (record,) = records(ran)
    assert record["value_decoded"]["data"] == LINE_DATA


def test_without_the_packages_there_is_a_note(kdump: Any, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdump.format.value_schemas import value_decoder

    monkeypatch.setattr(value_decoder, "find_spec", lambda _: None)
    ran = kdump.inside("dump", "--records", "--schemas", "auto", str(disk / "orders-0"))
    assert ran.status == 0
    assert ran.problems == (
        "kdump: note: not all values can be decoded without fastavro, protobuf, grpcio-tools:"
        " pip install 'kdump[schemas]'\n"
    )
    assert " undecoded=\"schema 1 (AVRO): fastavro is not installed: pip install 'kdump[schemas]'\"" in ran.lines[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--schemas", "auto", "--format", "kafka"], "--schemas cannot be combined with --format kafka"),
        (["--schemas", "auto", "--format", "hex"], "--schemas cannot be combined with --format hex"),
        (["--schemas", "auto", "--batches"], "--schemas is about records, which --batches leaves out"),
        (["--decode", "nothing"], "'nothing' is not one of auto, offsets, "),
    ],
)
def test_what_does_not_go_together(kdump: Any, disk: Path, options: list[str], sentence: str) -> None:
    ran = kdump.inside("dump", *options, str(disk / "orders-0"))
    assert ran.status == 2
    assert sentence in ran.problems


# ---- a decoder of the user

MODULE = """
def upper(topic, value, headers):
    return {"topic": topic, "upper": value.decode().upper(), "headers": len(headers)}
number = 7
"""


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution with decoders."""
    site = tmp_path / "site"
    (site / "shouting-1.0.dist-info").mkdir(parents=True)
    (site / "shouting_decoder.py").write_text(MODULE)
    (site / "shouting-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (site / "shouting-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{value_decoding.GROUP}]\nupper = shouting_decoder:upper\nnumber = shouting_decoder:number\n"
        "gone = shouting_decoder:gone\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the module is below the folder that must not change
    monkeypatch.delitem(sys.modules, "shouting_decoder", raising=False)


@pytest.mark.usefixtures("distribution")
def test_a_decoder_of_the_user(kdump: Any, tmp_path: Path) -> None:
    path = str(write_log(tmp_path / "words-0", [(b"k", b"abc"), (b"k", b"\xff"), (b"k", None)]))
    first, second, third = records(kdump.inside("dump", "--decode", "upper", "--format", "json", path))
    assert first["value_decoded"] == {"decoder": "upper", "data": {"topic": "words", "upper": "ABC", "headers": 0}}
    assert first["key_decoded"] is None
    assert second["decode_problem"].startswith("decoder upper: UnicodeDecodeError: ")
    assert third["value_decoded"] is third["decode_problem"] is None
    text = kdump.inside("dump", "--decode", "upper", "--records", path)
    assert text.lines[1].endswith(' key="k" value={"topic":"words","upper":"ABC","headers":0}')


@pytest.mark.usefixtures("distribution")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--decode", "number"], "--decode number: shouting_decoder:number is not a function"),
        (["--decode", "gone"], "--decode gone: shouting_decoder:gone cannot be loaded: "),
        (["--decode", "lower"], "the group kdump.decoders has only 'gone', 'number', 'upper'"),
        (["--decode", "upper", "--schemas", "auto"], "--schemas and --decode upper cannot be combined"),
        (["--decode", "upper", "--format", "kafka"], "--decode upper cannot be combined with --format kafka"),
    ],
)
def test_a_decoder_that_cannot_be_used(kdump: Any, disk: Path, options: list[str], sentence: str) -> None:
    ran = kdump.inside("dump", *options, str(disk / "orders-0"))
    assert ran.status == 2
    assert sentence in ran.problems


# ---- formats of records


def test_formats_of_records_have_the_values(kdump: Any, disk: Path) -> None:
    schemas, path = ("--schemas", "auto"), str(disk / "orders-0")
    values = kdump.inside("dump", "--format", "values", *schemas, path).out.split(b"\n")
    assert json.loads(values[0]) == ORDER_DATA
    assert values[3] == wire(1, ORDER_BYTES[:-1])
    template = kdump.inside("dump", "--template", "%{value_decoded.data.who} %{decode_problem}|", *schemas, path).text
    assert template.split("|")[0] == "ann "
    assert template.split("|")[3].startswith(" schema 1 (AVRO): ")
    lines = list(csv.DictReader(kdump.inside("dump", "--format", "csv", *schemas, path).text.splitlines()))
    assert json.loads(lines[0]["value_decoded"])["data"] == ORDER_DATA
    assert json.loads(lines[1]["key_decoded"])["data"] == ORDER_DATA
    assert lines[3]["decode_problem"].startswith("schema 1 (AVRO): ")
