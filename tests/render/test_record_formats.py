"""Formats of records, templates, values and csv, against records of the reference decoder, and on terminals."""

from __future__ import annotations

import io
import random
import time
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.check import Case, log_file
from kdump.convert.tables import DEFAULT_COLUMNS
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import CompanionDamage
from kdump.format.csv_text import csv_text
from kdump.format.java import java_text
from kdump.format.naming import Kind, base_offset_of
from kdump.render import RenderOptions, renderer
from kdump.render.csv import RECORD_COLUMNS
from kdump.render.escaping import PIECE_BYTES
from kdump.render.template import TemplateError, template_pieces, unescaped
from kdump.storage.partition import LogFile
from support import build, damage, oracle, plain_formats
from support.cases import each
from support.laws import examples, sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOGS = sampled(sorted(FIXTURES.rglob("*.log")), 5)
TEMPLATED = RenderOptions(template=plain_formats.TEMPLATE)


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def shown(
    file: LogFile,
    name: str,
    options: RenderOptions | None = None,
    stream: io.BytesIO | None = None,
) -> tuple[bytes, list[object]]:
    stream = io.BytesIO() if stream is None else stream
    with renderer(name, stream, options or RenderOptions()) as to:
        said = list(to.show(dump_logs([file], DumpOptions(control=False))))
    return stream.getvalue(), said


def of_bytes(data: bytes) -> LogFile:
    return log_file(Case(data, None))


@each("path", LOGS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_every_fixture(path: Path) -> None:
    data, base_offset = path.read_bytes(), base_offset_of(str(path))
    records = list(plain_formats.records_of(data, base_offset))
    file = LogFile(str(path), Kind.LOG, base_offset, True, len(data))
    assert shown(file, "template", TEMPLATED)[0] == b"".join(plain_formats.templated(str(path), one) for one in records)
    expected = plain_formats.HEADER + "".join(plain_formats.csv_line(str(path), one) for one in records)
    assert shown(file, "csv")[0].decode() == expected
    values = b"".join((b"NULL" if one.value is None else one.value) + b"\0" for one in records)
    assert shown(file, "values", RenderOptions(null=b"NULL", separator=b"\0"))[0] == values


DATA = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
HEADERS = st.lists(st.tuples(st.binary(max_size=5), DATA), max_size=3)


@given(st.lists(st.builds(build.record, DATA, DATA, headers=HEADERS), min_size=1, max_size=5))
@settings(max_examples=examples(200))
def test_any_records(items: list[bytes]) -> None:
    data = build.batch(items)
    found, said = shown(of_bytes(data), "template", TEMPLATED)
    assert found == b"".join(plain_formats.templated("x.log", one) for one in plain_formats.records_of(data))
    assert not said


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(150))
def test_damage_is_on_standard_error_and_nothing_valid_is_missing(seed: int) -> None:
    good = build.segment(*(build.batch([build.record(b"k", b"v%d" % at)], base_offset=at) for at in range(6)))
    data = damage.damage(good, random.Random(seed))
    try:
        expected = b"".join(plain_formats.templated("x.log", one) for one in plain_formats.records_of(data))
    except oracle.Malformed:
        return
    found, said = shown(of_bytes(data), "template", TEMPLATED)
    assert found == expected
    bad = [
        item
        for item in oracle.walk(data)
        if not isinstance(item, oracle.Batch) and not (isinstance(item, oracle.Tail) and item.reason == "zeros")
    ]
    assert bool(said) >= bool(bad)


def test_the_columns_are_those_of_convert() -> None:
    assert RECORD_COLUMNS == DEFAULT_COLUMNS


@pytest.mark.parametrize("mode", ["hex", "utf8"])
def test_csv_in_other_modes(mode: str) -> None:
    file = of_bytes(build.batch([build.record(b'a",\xff', b"")]))
    key = "61222cff" if mode == "hex" else '"a"",\ufffd"'
    assert shown(file, "csv", RenderOptions(bytes_mode=mode))[0].decode().split("\r\n")[1].startswith(f'{key},"",,')


@pytest.mark.parametrize("mode", ["auto", "hex", "utf8"])
@pytest.mark.parametrize("unit", [b"x", b'"\xff', "漢".encode(), b"\x80", b",\xf0\x9f\x98"])
def test_csv_of_long_fields(unit: bytes, mode: str) -> None:
    long = b"x" + unit * (2 * PIECE_BYTES // len(unit) + 1)
    file = of_bytes(build.batch([build.record(long, long[1:]), build.record(None, long), build.record(long, b"")]))

    def field(data: bytes | None) -> str:
        if not data:
            return "" if data is None else '""'
        if mode == "utf8":
            return csv_text(java_text(data))
        return data.hex() if mode == "hex" else b64encode(data).decode()

    lines = shown(file, "csv", RenderOptions(bytes_mode=mode))[0].decode().split("\r\n")[1:-1]
    wanted = [(long, long[1:]), (None, long), (long, b"")]
    assert [line.rsplit(",", 6)[0] for line in lines] == [f"{field(key)},{field(value)}" for key, value in wanted]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("%", "a % at the end"),
        ("%z", "%z is not a token"),
        ("%{colour}", "is not a field of a record"),
        ("%{key_decoded.data.group}", "needs --decode or --schemas"),
        ("%{key.size}", "key has no fields"),
        ("%{offset", "%{ is not a token"),
        ("\\q", "is not an escape"),
        ("\\x4", "is not an escape"),
        ("\\", "is not an escape"),
    ],
)
def test_templates_that_cannot_be_read(template: str, problem: str) -> None:
    with pytest.raises(TemplateError, match=problem):
        template_pieces(template)


def test_escapes() -> None:
    assert unescaped(r"\n\r\t\x00\xFF\\%é") == b"\n\r\t\x00\xff\\%" + "é".encode()


def test_fields() -> None:
    record = build.record(b"k", None, headers=[(b"h", b"\xff")])
    file = of_bytes(build.batch([record], base_offset=7, producer_id=5, producer_epoch=0, base_sequence=3))
    template = "%{headers} %{producer_id} %{sequence} %{control} %{value} %{topic} %{position} %{type}"
    found, _ = shown(file, "template", RenderOptions(template=template, null=b"NULL"))
    assert found == b'[{"key":"h","value":{"base64":"/w=="}}] 5 3 false NULL NULL 0 record'


@pytest.mark.parametrize("name", ["template", "values", "csv"])
def test_bytes_reach_a_terminal_escaped_and_cut(name: str) -> None:
    data = build.batch([build.record(b"\x1b[2J\xff\n", b"x\x1b" * 50_000)])
    options = RenderOptions(template=r"%k %s %h\n", bytes_mode="utf8")
    found, _ = shown(of_bytes(data), name, options, Terminal())
    assert b"\x1b" not in found
    assert "of 100,000 bytes; a pipe or a file gets all of them]" in found.decode() or name == "csv"
    assert len(found) < 50_000


def test_companions_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(bytes(8))
    found, said = shown(LogFile(str(path), Kind.INDEX, 0, False, 8), "values")
    assert found == b""
    assert "not a log" in str(said[0])


def test_what_is_said_of_damage() -> None:
    good = build.batch([build.record(b"k", b"v")])
    data = build.segment(good, build.batch([build.record(b"k", b"w")], base_offset=1, crc=1), b"\1" * 30)
    found, said = shown(of_bytes(data), "values")
    assert found == b"v\n"
    assert [str(one.reason) for one in said if isinstance(one, CompanionDamage)] == [
        f"the batch at byte {len(good)} is damaged (batch/crc); its records are not shown",
        f"30 bytes at the end, from byte {2 * len(good)} on, are not a batch (garbage)",
    ]


def test_a_long_template_is_no_long_wait() -> None:
    started = time.process_time()
    template_pieces("%k" * 50_000 + "a" * 100_000)
    assert time.process_time() - started < 2
