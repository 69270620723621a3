"""The options of kdump dump about formats of records, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import build

INTERNAL = Path(__file__).resolve().parents[2] / "fixtures" / "internal"


def test_a_template(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("dump", "--template", r"%t-%p@%o:%k=%s\x21\n", "-n", "2", str(logs / "topic-0"))
    assert ran.out == b"topic-0@0:key-0=value-0!\ntopic-0@1:key-1=value-1!\n"
    assert ran.status == 0


def test_control_records_are_left_out_and_do_not_count(kdump: Any, tmp_path: Path) -> None:
    batches = [
        build.batch([build.record(None, b"a")], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        build.marker("COMMIT", base_offset=1, producer_id=1, producer_epoch=0),
        build.batch([build.record(b"", None)], base_offset=2),
    ]
    (path := tmp_path / "x.log").write_bytes(build.segment(*batches))
    assert kdump.inside("dump", "--format", "values", "-Z", "-n", "2", str(path)).out == b"a\nNULL\n"
    assert kdump.inside("dump", "--format", "values", "-0", str(path)).out == b"a\0\0"
    assert kdump.inside("dump", "--format", "values", "--separator", r"\x00;%", str(path)).out == b"a\0;%\0;%"
    assert kdump.inside("dump", "--template", "%K%S ", "-Z", str(path)).out == b"-11 0-1 "
    assert kdump.inside("dump", "--format", "csv", str(path)).out.count(b"\r\n") == 3


def test_an_internal_topic_only_with_decode(kdump: Any) -> None:
    path = str(INTERNAL / "__consumer_offsets-0")
    template = "%{value_decoded.name} %{key_decoded.data.group}\n"
    assert kdump.inside("dump", "--template", template, path).status == 2
    ran = kdump.inside("dump", "--decode", "auto", "--template", template, path)
    assert b"OffsetCommitValue classic\n" in ran.out
    header = b"key,value,headers,topic,partition,offset,timestamp,timestampType"
    assert kdump.inside("dump", "--format", "csv", path).out.split(b"\r\n")[0] == header
    first = kdump.inside("dump", "--format", "csv", "--decode", "offsets", path).out.split(b"\r\n")[0]
    assert first == header + b",key_decoded,value_decoded,decode_problem"
    raw = kdump.inside("dump", "--format", "values", path).out
    decoded = kdump.inside("dump", "--format", "values", "--decode", "auto", path).out
    assert raw != decoded
    assert json.loads(decoded.split(b"\n")[0])["name"]


def test_no_summary(kdump: Any, logs: Path) -> None:
    path = str(logs / "clean.log")
    whole = kdump.inside("dump", "--format", "json", path).lines
    assert kdump.inside("dump", "--format", "json", "--no-summary", path).lines == whole[:-1]


def test_damage_is_an_exit_status_and_a_message(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("dump", "--format", "values", str(logs / "damaged.log"))
    assert ran.status == 1
    assert b"is damaged (batch/crc); its records are not shown" in ran.err
    assert ran.out.count(b"\n") == 6
    ran = kdump.inside("dump", "--format", "values", "--force", str(logs / "damaged.log"))
    assert b"its records are shown as far as they can be parsed" in ran.err
    assert ran.out.count(b"\n") == 7


def test_how_a_read_found_its_offset_goes_to_standard_error(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("dump", "--at", "2", "-v", "-n", "1", "--template", "%o\n", str(logs / "topic-0"))
    assert ran.out == b"2\n"
    assert b"read offset=2 " in ran.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--template", "%z"), "--template: %z is not a token"),
        (("--template", "%s", "--format", "csv"), "cannot be combined"),
        (("--template", "%s", "--batches"), "formats of records"),
        (("--format", "values", "-0", "--separator", ","), "cannot be combined"),
        (("--format", "values", "--separator", r"\q"), "--separator: \\q is not an escape"),
        (("--separator", ","), "need --format values"),
        (("--format", "csv", "-Z"), "-Z needs"),
        (("--format", "csv", "--control"), "which csv, values and templates leave out"),
        (("--format", "hex", "--records"), "--records leaves out batches"),
        (("--no-summary",), "--no-summary needs --format json"),
        (("--format", "template"), "template"),
    ],
)
def test_what_does_not_go_together(kdump: Any, logs: Path, arguments: tuple[str, ...], problem: str) -> None:
    ran = kdump.inside("dump", *arguments, str(logs / "clean.log"))
    assert ran.status == 2
    assert problem in ran.err.decode()


def test_hex(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("dump", "--format", "hex", str(logs / "damaged.log"))
    assert ran.status == 1
    marked = [line for line in ran.lines if line.startswith("!")]
    assert len(marked) == 1
    assert "  crc " in marked[0]
    assert "DAMAGED: the bytes from attributes on give 0x" in marked[0]
    batches = kdump.inside("dump", "--format", "hex", "--batches", str(logs / "mixed.log")).lines
    assert not [line for line in batches if "keyLength  " in line and "|" in line]
    assert [line for line in batches if "  records " in line]


def test_hex_of_some_batches(kdump: Any, logs: Path) -> None:
    lines = kdump.inside("dump", "--format", "hex", "--offset", "4:5", str(logs / "topic-0")).lines
    assert next(line for line in lines if "baseOffset" in line).endswith("  3")
    assert sum("baseOffset" in line for line in lines) == 1


def test_hex_says_what_the_records_of_internal_topics_say(kdump: Any) -> None:
    path = str(INTERNAL / "__consumer_offsets-0")
    said = [line for line in kdump.inside("dump", "--format", "hex", path).lines if "  = " in line]
    assert any("OffsetCommit group=" in line for line in said)
    raw = kdump.inside("dump", "--format", "hex", "--decode", "none", path).lines
    assert not [line for line in raw if " = OffsetCommit" in line]
