"""Text: one line a value, whatever the bytes are."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.batch import Batch
from kdump.format.record import Record
from kdump.render import BYTES_MODES, RenderOptions, renderer
from kdump.render.escaping import bytes_text, path_text, printable
from kdump.render.sentences import iso_time
from kdump.render.text import batch_line
from kdump.render.words import words
from support.plain_lines import opened


@given(data=st.binary() | st.text().map(str.encode), mode=st.sampled_from(BYTES_MODES))
def test_bytes_are_one_printable_word(data: bytes, mode: str) -> None:
    text = bytes_text(data, mode)
    assert text.isprintable()
    assert text.startswith(('"', "0x"))


@given(st.binary() | st.text().map(str.encode), st.binary() | st.text().map(str.encode))
def test_different_bytes_look_different(one: bytes, other: bytes) -> None:
    assert (bytes_text(one) == bytes_text(other)) == (one == other)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"),
        (b"", '""'),
        (b"null", '"null"'),
        (b"0x41", '"0x41"'),
        ("é 漢 😀".encode(), '"é 漢 😀"'),
        (b'a"b\\n\n\t\r', r'"a\"b\\n\n\t\r"'),
        (b"\x00\x1b[2J\x7f", r'"\x00\x1b[2J\x7f"'),
        ("\u202e\u2028\u0085\u200b\ufeff\U000e0001".encode(), r'"\u202e\u2028\x85\u200b\ufeff\U000e0001"'),
        (b"\xff\x00", "0xff00"),
        (b"\xed\xa0\x80", "0xeda080"),
    ],
)
def test_bytes(data: bytes | None, text: str) -> None:
    assert bytes_text(data) == text


@pytest.mark.parametrize(("mode", "text"), [("base64", '"/0E="'), ("hex", '"ff41"'), ("utf8", '"\ufffdA"')])
def test_modes(mode: str, text: str) -> None:
    assert bytes_text(b"\xffA", mode) == text
    assert bytes_text(None, mode) == "null"
    assert bytes_text(b"", mode) == '""'


@given(st.text())
def test_printable_is_printable_and_keeps_what_is(text: str) -> None:
    found = printable(text)
    assert found.isprintable()
    assert (found == text) == text.isprintable()


def test_file_names_lose_what_a_terminal_obeys() -> None:
    assert path_text("/l/a\x1b]0;x\x07\udcff\u202e b") == r"/l/a\x1b]0;x\x07\xff\u202e b"


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-2, "1969-12-31T23:59:59.998Z"),
        (-1, "-"),
        (None, "-"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_135_596_800_001, "-"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "-"),
        (2**63 - 1, "-"),
        (-(2**63), "-"),
    ],
)
def test_times(timestamp_ms: int | None, text: str) -> None:
    assert iso_time(timestamp_ms) == text


def test_words_of_nested_values() -> None:
    fields = {"a": 1, "b": {"c": None, "d": [1, "x y"]}, "e": "", "f": False, "g": b"\xff", "h\n": "z\x1b"}
    assert list(words(fields)) == [
        "a=1",
        "b.c=null",
        'b.d=[1,"x y"]',
        'e=""',
        "f=no",
        "g=0xff",
        r"h\n=z\x1b",
    ]


def test_damage_is_marked(show: Callable[..., bytes]) -> None:
    lines = show("text").decode().splitlines()
    marked = [line.split(" ")[1] for line in lines if line.startswith("batch DAMAGED")]
    assert marked == ["DAMAGED=batch/crc", "DAMAGED=batch/magic", "DAMAGED=batch/limit"]


@pytest.mark.parametrize(("magic", "words"), [(2, f"offsets={-(1 << 63)}..7"), (1, "offset=7")])
def test_the_lowest_base_offset_is_that_of_no_wrapper_message(
    batch_of: Callable[..., Batch], magic: int, words: str
) -> None:
    batch = batch_of()._replace(magic=magic, base_offset=-(1 << 63), last_offset=7)
    assert words in batch_line(batch).split(" ")


def test_findings_are_greppable(show: Callable[..., bytes]) -> None:
    text = show("text", RenderOptions()).decode()
    assert "\n/logs/orders-3/00000000000000000000.log:478: error batch/crc: 100 bytes have checksum" in text


def test_times_of_records_around_a_second(batch_of: Callable[..., Batch], record_of: Callable[..., Record]) -> None:
    stamps = [-1000, -1, -2, 999, 1000, 0, -1]
    stream = io.BytesIO()
    with renderer("text", stream) as to:
        to.records("p", None, None, batch_of(), opened(record_of(0, None, None, timestamp=stamp) for stamp in stamps))
    lines = stream.getvalue().decode().splitlines()
    assert [line.partition("time=")[2].split(" ")[0] for line in lines] == [iso_time(stamp) for stamp in stamps]


@pytest.mark.parametrize("name", ["text", "json", "terminal"])
def test_records_alone_come_with_what_is_missing(name: str, show: Callable[..., bytes]) -> None:
    whole = show(name, RenderOptions(width=200, color=False)).decode().splitlines()
    some = show(name, RenderOptions(width=200, color=False, records_only=True)).decode().splitlines()
    hidden = {
        "text": "batch position=",
        "json": '"crc_ok":true,"codec":"none","timestamp_type":"CreateTime","base',
        "terminal": "position 0 size",
    }
    assert any(hidden[name] in line for line in whole)
    assert not any(hidden[name] in line and '"magic":9' not in line for line in some)
    for kept in ("gap", "tail", "five"):
        assert any(kept in line for line in some)
    damaged = {"text": "DAMAGED", "json": '"crc_ok":false', "terminal": "batch/crc"}
    assert any(damaged[name] in line for line in some)


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_beginning_of_a_long_line(
    batch_of: Callable[..., Batch], record_of: Callable[..., Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "10")
    records = [record_of(0, b"k", "é".encode() * 5000), record_of(1, b"k", b"short")]
    shown = {}
    for stream in (io.BytesIO(), _Terminal()):
        with renderer("text", stream) as to:
            to.records("p", "t", 0, batch_of(), opened(records))
        shown[type(stream)] = stream.getvalue().decode().splitlines()
    whole, cut = shown[io.BytesIO], shown[_Terminal]
    size = len(whole[0].encode())
    assert size > 10_000
    assert cut[0].endswith(f"é… [the first 1,000 of {size:,} bytes; a pipe or a file gets all of them]")
    assert cut[0].startswith(whole[0][:500])
    assert cut[1] == whole[1]
