"""The options of `kdump dump`, and the contract of its lines: those of the reference decoder, record by record."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.format import naming
from kdump.verify.catalogue import CATALOGUE
from support import build, oracle

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

BATCH_FIELDS = [
    "type",
    "path",
    "position",
    "size",
    "magic",
    "base_offset",
    "last_offset",
    "count",
    "partition_leader_epoch",
    "crc",
    "crc_ok",
    "codec",
    "timestamp_type",
    "base_timestamp",
    "max_timestamp",
    "delete_horizon_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
    "transactional",
    "control",
]
RECORD_FIELDS = [
    "type",
    "path",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "position",
    "batch_offset",
    "sequence",
    "producer_id",
    "control",
]
CONTROL_FIELDS = ["control_type", "coordinator_epoch", "control_value"]
DECODED_FIELDS = ["key_decoded", "value_decoded", "decode_problem"]
DECODED_TOPICS = naming.INTERNAL_TOPICS
GAP_FIELDS = ["type", "path", "position", "length", "reason"]
SUMMARY_FIELDS = ["type", "schema", "command", "exit_status", "seconds"]


def lines(ran: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.lines]


def of_type(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(ran) if line["type"] == kind]


def binary(field: Any) -> bytes | None:
    """The bytes of a JSON field of `--bytes auto`."""
    if isinstance(field, dict):
        assert list(field) == ["base64"]
        data = base64.b64decode(field["base64"], validate=True)
        with pytest.raises(UnicodeDecodeError):
            data.decode()
        return data
    return None if field is None else field.encode()


# ---- what the reference decoder makes of the same bytes


def expected_batch(batch: oracle.Batch, records: list[oracle.Record] | None, *, crc_ok: bool = True) -> dict[str, Any]:
    legacy = batch.is_legacy
    base, count = batch.base_offset, batch.count
    if base is None and records:
        base, count = records[0].offset, len(records)
    sequence = batch.base_sequence
    timestamp_type = "NoTimestampType" if batch.magic == 0 else "LogAppendTime" if batch.append_time else "CreateTime"
    return {
        "type": "batch",
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "base_offset": base,
        "last_offset": batch.last_offset,
        "count": count,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "crc": batch.crc,
        "crc_ok": crc_ok,
        "codec": build.CODECS[batch.codec],
        "timestamp_type": timestamp_type,
        "base_timestamp": None if batch.magic == 0 else batch.base_timestamp,
        "max_timestamp": None if batch.magic == 0 else batch.max_timestamp,
        "delete_horizon_ms": batch.base_timestamp if batch.delete_horizon else None,
        "producer_id": None if legacy else batch.producer_id,
        "producer_epoch": None if legacy else batch.producer_epoch,
        "base_sequence": None if legacy else sequence,
        "last_sequence": None
        if legacy
        else sequence
        if sequence == -1
        else (sequence + batch.last_offset_delta) % 2**31,
        "transactional": not legacy and bool(batch.attributes & 0x10),
        "control": batch.control,
    }


def expected_record(
    batch: oracle.Batch, record: oracle.Record, base_offset: int | None, place: naming.TopicPartition | None
) -> dict[str, Any]:
    return {
        "type": "record",
        "topic": None if place is None else place.topic,
        "partition": None if place is None else place.partition,
        "offset": record.offset,
        "timestamp": None if record.magic == 0 else record.timestamp,
        "timestamp_type": record.timestamp_type,
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
        "position": batch.position,
        "batch_offset": base_offset,
        "sequence": None if batch.is_legacy else record.sequence,
        "producer_id": None if batch.is_legacy else batch.producer_id,
        "control": batch.control,
    }


def expected_lines(data: bytes, path: str, base_offset: int | None) -> Iterator[dict[str, Any]]:
    place = naming.topic_partition_of_file(path)
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, oracle.Batch):
            records = oracle.records(data, item.position)
            head = expected_batch(item, records)
            yield head
            for record in records:
                yield expected_record(item, record, head["base_offset"], place)
        elif isinstance(item, oracle.Tail):
            yield {
                "type": "tail",
                "position": item.position,
                "length": item.length,
                "reason": item.reason.removeprefix("tail/"),
            }
        else:
            raise AssertionError(f"not in sound bytes: {item}")


def as_expected(line: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON in the form of `expected_lines`; its fields are exactly those of the contract."""
    fields = dict(line)
    del fields["path"]
    if fields.pop("aborted", None) is not None:  # tests/dump/test_isolation.py
        assert line["aborted"] is True
        assert list(line)[list(line).index("control") + 1] == "aborted"
        line = {name: value for name, value in line.items() if name != "aborted"}
    if line["type"] == "batch":
        assert list(line) == BATCH_FIELDS
    elif line["type"] == "record":
        is_metadata = line["path"].endswith("bootstrap.checkpoint")
        decoded = not line["control"] and (is_metadata or (line["topic"] or "") in DECODED_TOPICS)
        extra = CONTROL_FIELDS if line["control"] else DECODED_FIELDS if decoded else []
        assert list(line) == RECORD_FIELDS + extra
        for name in extra:
            del fields[name]
        fields["key"], fields["value"] = binary(line["key"]), binary(line["value"])
        assert all(list(header) == ["key", "value"] for header in line["headers"])
        fields["headers"] = [(binary(header["key"]), binary(header["value"])) for header in line["headers"]]
    else:
        assert list(line) == GAP_FIELDS
    return fields


def test_fixtures(kdump: Any) -> None:
    ran = kdump("dump", "--format", "json", "--fail-on", "never", str(FIXTURES))
    assert (ran.status, ran.err) == (0, b"")
    found: dict[str, list[dict[str, Any]]] = {}
    *content, summary = lines(ran)
    for line in content:
        found.setdefault(line["path"], []).append(line)
    assert list(summary) == SUMMARY_FIELDS
    logs = [
        path
        for path in FIXTURES.rglob("*")
        if path.suffix in (".log", ".checkpoint") and path.stat().st_size and "expected" not in path.parts
    ]
    assert {str(path) for path in logs} == found.keys()
    assert len(logs) > 100
    for path in logs:
        base = 0 if path.suffix == ".checkpoint" else naming.base_offset_of(str(path))
        assert [as_expected(line) for line in found[str(path)]] == list(
            expected_lines(path.read_bytes(), str(path), base)
        ), path


def test_built_segments(kdump: Any, logs: Path, built: dict[str, bytes]) -> None:
    for name in ("mixed", "clean"):
        ran = kdump.inside("dump", "--format", "json", f"{name}.log")
        assert ran.status == 0
        *content, _ = lines(ran)
        assert [as_expected(line) for line in content] == list(expected_lines(built[name], f"{name}.log", None))


def test_every_kind_of_field(kdump: Any, tmp_path: Path) -> None:
    contents = [
        None,
        b"",
        b"text",
        "höhe\u2028\x7f\x1b[31m".encode(),
        b"\x00\x01",
        b"\xff",
        b"\xc3",
        bytes(range(256)),
        b'"\\',
        b"\xed\xa0\x80",
    ]
    items = [
        build.record(key, value, headers=[(key or b"", value), (b"", key)]) for key in contents for value in contents
    ]
    data = b"".join(
        build.batch(items, base_offset=number * 100, codec=codec) for number, codec in enumerate(build.CODECS)
    )
    (tmp_path / "0.log").write_bytes(data)
    ran = kdump.inside("dump", "--format", "json", "0.log")
    *content, _ = lines(ran)
    assert [as_expected(line) for line in content] == list(expected_lines(data, "0.log", 0))


CONTROL = {
    "COMMIT": (build.control_record("COMMIT", b"\0\0\0\0\0\x07"), 7),
    "ABORT": (build.control_record("ABORT", b"\0\0\0\0\0\x08"), 8),
    "LEADER_CHANGE": (build.leader_change(3, [1, 2, 3], [2, 3]), None),
    "SNAPSHOT_HEADER": (build.snapshot_header(99), None),
    "SNAPSHOT_FOOTER": (build.snapshot_footer(), None),
    "KRAFT_VERSION": (build.kraft_version(1), None),
    "KRAFT_VOTERS": (build.kraft_voters([build.Voter(4, bytes(16), (("a", "b", 9),))]), None),
}


@pytest.mark.parametrize("control_type", CONTROL)
def test_control_records(kdump: Any, tmp_path: Path, control_type: str) -> None:
    record, epoch = CONTROL[control_type]
    (tmp_path / "0.log").write_bytes(build.control_batch([record]))
    (line,) = of_type(kdump.inside("dump", "--format", "json", "0.log"), "record")
    assert list(line) == RECORD_FIELDS + CONTROL_FIELDS
    assert (line["control_type"], line["coordinator_epoch"]) == (control_type, epoch)
    assert line["control_value"]["version"] == 0
    if control_type == "LEADER_CHANGE":
        assert line["control_value"]["leader_id"] == 3


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\0\0\0\x63", b"\xff\xff\0\0"])
def test_control_records_that_are_none(kdump: Any, tmp_path: Path, key: bytes | None) -> None:
    (tmp_path / "0.log").write_bytes(build.control_batch([build.record(key, b"")]))
    ran = kdump.inside("dump", "--format", "json", "0.log")
    (line,) = of_type(ran, "record")
    assert list(line) == RECORD_FIELDS + CONTROL_FIELDS
    assert binary(line["key"]) == key
    assert (line["coordinator_epoch"], line["control_value"]) == (None, None)


# ---- damage in the lines


def test_damage_is_shown_in_its_place(kdump: Any, tmp_path: Path) -> None:
    first, last = build.batch([build.record(b"a", b"1")]), build.batch([build.record(b"c", b"3")], base_offset=2)
    bad = build.batch([build.record(b"b", b"2")], base_offset=1, crc=7)
    torn = build.batch([build.record(b"d", b"4")], base_offset=3)
    (tmp_path / "0.log").write_bytes(first + bad + b"\xff" * 30 + last + torn[:40])
    ran = kdump.inside("dump", "--format", "json", "0.log")
    assert ran.status == 1
    *content, summary = lines(ran)
    assert [line["type"] for line in content] == ["batch", "record", "batch", "gap", "batch", "record", "tail"]
    assert [line.get("crc_ok") for line in content if line["type"] == "batch"] == [True, False, True]
    gap, tail = content[3], content[6]
    assert list(gap) == list(tail) == GAP_FIELDS
    assert (gap["position"], gap["length"], gap["reason"]) == (len(first + bad), 30, "bytes")
    assert (tail["position"], tail["length"], tail["reason"]) == (len(first + bad + last) + 30, 40, "torn")
    assert list(summary) == SUMMARY_FIELDS
    assert (summary["schema"], summary["command"], summary["exit_status"]) == (3, "dump", 1)


def test_batches_records_gaps_and_tails_tile_the_file(kdump: Any, tmp_path: Path, built: dict[str, bytes]) -> None:
    data = built["mixed"] + b"\x01" * 50 + build.batch([build.record(b"k", b"v")], base_offset=50) + bytes(40)
    (tmp_path / "a.log").write_bytes(data)
    position = 0
    for line in lines(kdump.inside("dump", "--batches", "--format", "json", "a.log"))[:-1]:
        assert line["position"] == position
        position += line.get("size", line.get("length", 0))
    assert position == len(data)


def test_force(kdump: Any, tmp_path: Path) -> None:
    items = [build.record(b"k%d" % number, b"v") for number in range(3)]
    (tmp_path / "0.log").write_bytes(build.batch(items, crc=1))
    assert of_type(kdump.inside("dump", "--format", "json", "0.log"), "record") == []
    ran = kdump.inside("dump", "--force", "--format", "json", "0.log")
    assert [line["key"] for line in of_type(ran, "record")] == ["k0", "k1", "k2"]
    assert of_type(ran, "batch")[0]["crc_ok"] is False
    assert ran.status == 1


def test_records_before_the_one_that_does_not_parse(kdump: Any, tmp_path: Path) -> None:
    items = [build.record(b"k0", b"v"), build.record(b"k1", b"v", key_length=99), build.record(b"k2", b"v")]
    (tmp_path / "0.log").write_bytes(build.batch(items) + build.batch([build.record(b"k3", b"v")], base_offset=3))
    ran = kdump.inside("dump", "--format", "json", "0.log")
    assert [line["key"] for line in of_type(ran, "record")] == ["k0", "k3"]
    assert ran.status == 1
    assert "DAMAGED=record/structure" in kdump.inside("dump", "--format", "text", "0.log").text


# ---- options


@pytest.fixture
def ten(tmp_path: Path) -> str:
    """Offsets 0 to 9 in batches of 4, 1 and 5, the last one a wrapper of magic 1."""
    items = [build.record(b"k%d" % number, b"v") for number in range(10)]
    data = (
        build.batch(items[:4])
        + build.batch(items[4:5], base_offset=4, codec="gzip")
        + build.wrapper(items[5:], base_offset=5)
    )
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "topic-0" / "0.log").write_bytes(data)
    return "topic-0/0.log"


@pytest.mark.parametrize(
    ("given", "offsets", "batches"),
    [
        ("0:10", range(10), 3),
        (":", None, 0),
        ("3:5", range(3, 5), 2),
        ("3:3", range(0), 0),
        (":4", range(4), 1),
        ("5:", range(5, 10), 1),
        ("4", range(4, 5), 1),
        ("9:", range(9, 10), 1),
        ("10:", range(0), 0),
        ("7:8", range(7, 8), 1),
        ("0:9223372036854775807", range(10), 3),
        ("8:2", range(0), 0),
    ],
)
def test_offset(kdump: Any, ten: str, given: str, offsets: range | None, batches: int) -> None:
    ran = kdump.inside("dump", "--format", "json", "--offset", given, ten)
    if offsets is None:
        assert ran.status == 2
        return
    assert ran.status == 0
    assert [line["offset"] for line in of_type(ran, "record")] == list(offsets)
    assert len(of_type(ran, "batch")) == batches


def test_offset_of_damage(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(
        build.batch([build.record(b"k", b"v")], crc=1) + build.batch([build.record(b"k", b"v")], base_offset=1)
    )
    ran = kdump.inside("dump", "--format", "json", "--offset", "1:2", "0.log")
    assert [line["offset"] for line in of_type(ran, "record")] == [1]
    assert ran.status == 1  # what was passed on the way counts


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9, 10, 99])
def test_count(kdump: Any, ten: str, count: int) -> None:
    ran = kdump.inside("dump", "--format", "json", "-n", str(count), ten)
    assert len(of_type(ran, "record")) == min(count, 10)
    ran = kdump.inside("dump", "--records", "--format", "text", "-n", str(count), ten)
    assert ran.text.count("record offset=") == min(count, 10)
    ran = kdump.inside("dump", "--batches", "--format", "json", "-n", str(count), ten)
    assert len(of_type(ran, "batch")) == min(count, 3)
    assert of_type(ran, "record") == []


def test_count_goes_over_all_files(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("dump", "--format", "json", "-n", "10", "clean.log", "topic-0")
    assert [(line["path"], line["offset"]) for line in of_type(ran, "record")] == [
        ("clean.log", offset) for offset in range(9)
    ] + [("topic-0/00000000000000000000.log", 0)]


def test_count_and_offset(kdump: Any, ten: str) -> None:
    ran = kdump.inside("dump", "--format", "json", "--offset", "3:", "-n", "3", ten)
    assert [line["offset"] for line in of_type(ran, "record")] == [3, 4, 5]


def test_batches_and_records(kdump: Any, ten: str) -> None:
    both = kdump.inside("dump", "--format", "json", ten)
    batches = kdump.inside("dump", "--batches", "--format", "json", ten)
    records = kdump.inside("dump", "--records", "--format", "json", ten)
    assert {line["type"] for line in lines(batches)} == {"batch", "summary"}
    assert {line["type"] for line in lines(records)} == {"record", "summary"}
    assert of_type(records, "record") == of_type(both, "record")
    # a wrapper that is not opened does not say where it begins
    assert [line["base_offset"] for line in of_type(batches, "batch")] == [0, 4, None]
    assert [line["count"] for line in of_type(batches, "batch")] == [4, 1, None]
    assert [line["base_offset"] for line in of_type(both, "batch")] == [0, 4, 5]
    text = kdump.inside("dump", "--records", "--format", "text", ten).text
    assert "batch position=" not in text
    assert text.count("record offset=") == 10


@pytest.mark.parametrize(
    ("mode", "key", "value", "header"),
    [
        ("auto", "k", {"base64": "/wA="}, ""),
        ("base64", "aw==", "/wA=", ""),
        ("hex", "6b", "ff00", ""),
        ("utf8", "k", "\ufffd\0", ""),
    ],
)
def test_bytes(kdump: Any, tmp_path: Path, mode: str, key: str, value: Any, header: str) -> None:
    (tmp_path / "0.log").write_bytes(build.batch([build.record(b"k", b"\xff\x00", headers=[(b"", b""), (b"k", None)])]))
    (line,) = of_type(kdump.inside("dump", "--bytes", mode, "--format", "json", "0.log"), "record")
    assert (line["key"], line["value"]) == (key, value)
    assert line["headers"] == [{"key": header, "value": header}, {"key": key, "value": None}]


def test_bytes_in_text(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(
        build.batch([build.record(b"k", b"\xff\x00"), build.record(None, b""), build.record(b'"\n', "é".encode())])
    )
    shown = {}
    for mode in ("auto", "base64", "hex", "utf8"):
        text = kdump.inside("dump", "--records", "--bytes", mode, "--format", "text", "0.log").lines[1:]
        shown[mode] = [line[line.index("key=") :] for line in text]
    assert shown == {
        "auto": ['key="k" value=0xff00', 'key=null value=""', 'key="\\"\\n" value="é"'],
        "base64": ['key="aw==" value="/wA="', 'key=null value=""', 'key="Igo=" value="w6k="'],
        "hex": ['key="6b" value="ff00"', 'key=null value=""', 'key="220a" value="c3a9"'],
        "utf8": ['key="k" value="\ufffd\\x00"', 'key=null value=""', 'key="\\"\\n" value="é"'],
    }


def test_max_bytes(kdump: Any, ten: str) -> None:
    data = (kdump.directory / ten).read_bytes()
    first = build.total_size(data, 0)
    for size, batches in ((1, 1), (first, 1), (first + 1, 2), (len(data), 3), (10 * len(data), 3)):
        ran = kdump.inside("dump", "--batches", "--format", "json", "--max-bytes", str(size), ten)
        assert (len(of_type(ran, "batch")), ran.status) == (batches, 0)


def test_quiet(kdump: Any, ten: str) -> None:
    loud = kdump.inside("dump", "--format", "json", ten)
    quiet = kdump.inside("dump", "-q", "--format", "json", ten)
    assert quiet.lines == loud.lines[:-1]


def test_limit_of_a_batch(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(
        build.batch([build.record(b"k", bytes(9000))], codec="zstd")
        + build.batch([build.record(b"k", b"v")], base_offset=1)
    )
    ran = kdump.inside("dump", "--format", "json", "--max-batch-bytes", "8k", "0.log")
    assert [line["offset"] for line in of_type(ran, "record")] == [1]
    assert ran.status == 0  # batch/limit is a warning
    assert kdump.inside("dump", "--fail-on", "warning", "--max-batch-bytes", "8k", "0.log").status == 1
    assert "DAMAGED=batch/limit" in kdump.inside("dump", "--max-batch-bytes", "8k", "0.log").text
    assert CATALOGUE["batch/limit"].severity.word == "warning"


def test_dump_of_kafka_format(kdump: Any, ten: str) -> None:
    shallow = kdump.inside("dump", "--format", "kafka", ten).lines
    assert shallow[:2] == ["Dumping topic-0/0.log", "Log starting offset: 0"]
    assert len(shallow) == 5
    deep = kdump.inside("dump", "--format", "kafka", "--deep-iteration", ten).lines
    assert sum(line.startswith("| offset: ") for line in deep) == 10
    data = kdump.inside("dump", "--format", "kafka", "--print-data-log", ten).lines
    assert sum(" key: k" in line and line.endswith(" payload: v") for line in data) == 10
    bare = kdump.inside("dump", "--format", "kafka", "--print-data-log", "--skip-record-metadata", ten).lines
    assert sum(line.startswith("| key: k") for line in bare) == 10
