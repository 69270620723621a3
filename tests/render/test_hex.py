"""The bytes of logs field by field: nothing is left out, nothing is there twice, and what is wrong is marked."""

from __future__ import annotations

import io
import random
import re
import struct
import time
from functools import cache
from pathlib import Path

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.check import Case, log_file
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.format.batch import CODECS
from kdump.format.codec import compress
from kdump.format.naming import LOG_KINDS, Kind, base_offset_of, kind_of
from kdump.render import RenderOptions, renderer
from kdump.render.hex import MOST_LINES
from kdump.storage.partition import LogFile
from support import build, damage
from support.cases import each
from support.laws import examples, sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FILES = [path for path in sorted(FIXTURES.rglob("*")) if path.is_file() and kind_of(str(path)) in LOG_KINDS]
LINE = re.compile(r"[ !] ((?:\| )*) *(\d+)  (?:00 × (\d+)|((?:[0-9a-f]{2} )*[0-9a-f]{2})?)(?:  .*)?")
ODD = "damaged", "killed", "crash", "mixed"


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def shown(file: LogFile, stream: io.BytesIO | None = None, **options: object) -> str:
    stream = io.BytesIO() if stream is None else stream
    wanted = DumpOptions(fields=True, **options)  # type: ignore[arg-type]
    with renderer("hex", stream, RenderOptions()) as to:
        said = list(to.show(dump_logs([file], wanted)))
    assert not said
    return stream.getvalue().decode()


def of_bytes(data: bytes, kind: Kind = Kind.LOG) -> LogFile:
    return log_file(Case(data, None, kind=kind))


def joined(text: str) -> bytes:
    """The bytes of the file, by the lines about it; each is at its position."""
    found = bytearray()
    for line in text.splitlines():
        match = LINE.fullmatch(line)
        if match is None or match[1]:
            continue
        assert int(match[2]) == len(found), line
        found += bytes(int(match[3])) if match[3] else bytes.fromhex(match[4] or "")
    return bytes(found)


def marked(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("!")]


def names(text: str) -> list[str]:
    return [match[1] for match in re.finditer(r"^[! ] (?:\| )* *\d+  [0-9a-f ]{23}  (\w+)", text, re.MULTILINE)]


@each("path", sampled(FILES, 12), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_every_byte_of_a_fixture(path: Path) -> None:
    data, kind = path.read_bytes(), kind_of(str(path))
    assert kind is not None
    file = LogFile(str(path), kind, base_offset_of(str(path)), True, len(data))
    text = shown(file)
    assert joined(text) == data
    assert joined(shown(file, records=False)) == data
    if not any(word in str(path) for word in ODD):
        assert marked(text) == []
    assert all(line.isprintable() for line in text.splitlines())


@cache
def mixed() -> bytes:
    inner = [build.record(b"k", b"v%d" % number) for number in range(3)]
    return build.segment(
        build.message_v0(b"k0", b"v0", offset=0),
        build.wrapper(inner, base_offset=1, magic=0, codec="snappy"),
        build.message_v1(None, b"", offset=4),
        build.wrapper(inner, base_offset=5, codec="lz4"),
        build.batch([build.record(b"k", b"v" * 200, headers=[(b"h", None), (b"h", b"x")])] * 2, base_offset=8),
        build.batch(inner, base_offset=10, codec="zstd"),
        build.marker("COMMIT", base_offset=13, coordinator_epoch=3),
        build.empty_batch(14, 18),
    )


@given(st.integers(0, 1 << 32), st.integers(1, 3))
@settings(max_examples=examples(300))
def test_every_byte_of_damaged_files(seed: int, times: int) -> None:
    data = damage.damage(mixed(), random.Random(seed), times)
    text = shown(of_bytes(data))
    assert joined(text) == data
    assert all(line.isprintable() for line in text.splitlines())


@given(st.binary(max_size=300) | st.binary(max_size=100).map(lambda data: mixed()[:600] + data))
@settings(max_examples=examples(200))
def test_every_byte_of_any_bytes(data: bytes) -> None:
    for kind in (Kind.LOG, Kind.KAFKA07):
        assert joined(shown(of_bytes(data, kind))) == data


@given(st.data())
@settings(max_examples=examples(300))
def test_records_of_any_bytes_under_a_right_checksum(data: st.DataObject) -> None:
    """What the checksum covers is wrong, and the batch is opened all the same."""
    batch = bytearray(build.batch([build.record(b"key", b"value", headers=[(b"h", b"x")])] * 2))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(57, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    assert joined(shown(of_bytes(bytes(batch)))) == bytes(batch)


def test_the_fields_of_a_batch() -> None:
    text = shown(of_bytes(build.batch([build.record(b"k", b"value", headers=[(b"h", None)])], producer_id=7)))
    assert names(text) == [
        *("baseOffset", "batchLength", "partitionLeaderEpoch", "magic", "crc", "attributes", "lastOffsetDelta"),
        *("baseTimestamp", "maxTimestamp", "producerId", "producerEpoch", "baseSequence", "recordsCount", "length"),
        *("attributes", "timestampDelta", "offsetDelta", "keyLength", "key", "valueLength", "value", "headersCount"),
        *("headerKeyLength", "headerKey", "headerValueLength"),
    ]
    assert re.search(r"^ +43  00 00 00 00 00 00 00 07  producerId +7$", text, re.MULTILINE)
    assert re.search(r"^ +\d+  76 61 6c 75 65 +value +5 bytes \"value\"$", text, re.MULTILINE)


def test_records_behind_a_codec_are_marked() -> None:
    text = shown(of_bytes(build.batch([build.record(b"k", b"v")], codec="zstd")))
    assert "  |  records without compression, 9 bytes" in text
    assert re.search(r"^  \| +0  \w\w +length ", text, re.MULTILINE)


def test_messages() -> None:
    text = shown(of_bytes(mixed()))
    assert text.count("  messageSize ") == 2 + 2 + 2 * 3
    assert " = COMMIT(version=0,coordinator_epoch=3)" in text
    assert marked(text) == []


def test_nested_messages_of_kafka_07() -> None:
    data = build.kafka07([[b"a", [b"b"]], b"plain"])
    text = shown(of_bytes(data, Kind.KAFKA07))
    assert joined(text) == data
    assert names(text).count("N") == 5
    assert marked(text) == []


def sealed(batch: bytes) -> bytes:
    """The batch with the checksum that its bytes give."""
    return batch[:17] + struct.pack(">I", crc32c.crc32c(batch[21:])) + batch[21:]


GOOD = build.batch([build.record(b"k", b"v"), build.record(b"k", b"v")])


def changed(at: int, new: bytes, *, seal: bool = True) -> bytes:
    data = GOOD[:at] + new + GOOD[at + len(new) :]
    return sealed(data) if seal else data


@pytest.mark.parametrize(
    ("data", "field", "why"),
    [
        (changed(17, b"\0", seal=False), "crc", "the bytes from attributes on give 0x"),
        (changed(22, b"\7"), "attributes", "there is no codec 7"),
        (changed(57, b"\xff"), "recordsCount", "below 0"),
        (changed(60, b"\3"), "records", "the batch ends before record 2 of 3"),
        (changed(60, b"\1"), "bytes", "after the last of 1 records"),
        (changed(61, b"\x7e"), "length", "left of the batch"),
        (changed(61, b"\x01"), "length", "left of the batch"),
        (changed(64, b"\x06"), "offsetDelta", "lastOffsetDelta of the batch is 1"),
        (changed(65, b"\x7e"), "keyLength", "bytes are left"),
        (changed(69, b"\x7e"), "headersCount", "bytes are left"),
        (changed(69, b"\x01"), "headersCount", "below 0"),
        (changed(65, b"\x01"), "headerKeyLength", "1 byte is left"),
        (changed(67, b"\x01\x00"), "bytes", "after the last field of the record"),
        (GOOD[:100][:40], "maxTimestamp", "8 bytes are needed, 5 bytes are left"),
        (GOOD[:70], "batchLength", "there are 70"),
        (changed(22, b"\4"), "records", "zstd cannot be decompressed"),
    ],
)
def test_damaged_fields_are_marked(data: bytes, field: str, why: str) -> None:
    text = shown(of_bytes(data))
    assert any(re.search(rf"  {field} .*DAMAGED: .*{re.escape(why)}", line) for line in marked(text)), text
    assert joined(text) == data


def test_a_terminal_gets_the_beginning_of_a_long_field() -> None:
    file = of_bytes(build.batch([build.record(None, b"\x1b[2J" * 10_000)]))
    text = shown(file, Terminal())
    assert "more bytes of 40,000; a pipe or a file gets them all" in text
    assert "\x1b" not in text
    assert len(text) < 10_000


def test_zeros_are_one_line() -> None:
    data = GOOD + bytes(10 << 20)
    started = time.process_time()
    text = shown(of_bytes(data))
    assert time.process_time() - started < 3
    assert len(text) < 10_000
    assert joined(text) == data


# ---- a few bytes that hold millions of fields


def bomb(payload: bytes, count: int) -> bytes:
    packed = compress(CODECS.index("zstd"), payload)
    return build.batch([], codec="zstd", payload=packed, count=count, last_offset_delta=count - 1)


def test_the_lines_of_a_batch_are_bounded() -> None:
    headers = 300_000
    body = b"\0\0\0\1\1" + build.varint(headers) + b"\0\1" * headers
    data = bomb(build.varint(len(body)) + body, 1)
    size = len(build.varint(len(body)) + body)
    began = time.monotonic()
    text = shown(of_bytes(data + build.batch([build.record(b"k")], base_offset=1)))
    assert time.monotonic() - began < 5
    lines = text.splitlines()
    (at,) = (number for number, line in enumerate(lines) if line.endswith("--all shows them"))
    assert at == pytest.approx(MOST_LINES, abs=5)
    last = re.search(r"\| +(\d+)  ([0-9a-f ]{2,23}) ", lines[at - 1])
    assert last is not None
    left = size - int(last[1]) - len(bytes.fromhex(last[2]))
    assert lines[at].split() == ["…", f"{left:,}", *["more", "bytes", "of", "the", "batch;", "--all", "shows", "them"]]
    assert lines[at + 1].startswith(f"batch position={len(data)} ")
    assert joined(text) == data + build.batch([build.record(b"k")], base_offset=1)


def test_all_shows_every_line() -> None:
    headers = 6_000
    body = b"\0\0\0\1\1" + build.varint(headers) + b"\0\1" * headers
    stream = io.BytesIO()
    with renderer("hex", stream, RenderOptions(every_line=True)) as to:
        file = of_bytes(bomb(build.varint(len(body)) + body, 1))
        assert not list(to.show(dump_logs([file], DumpOptions(fields=True))))
    assert stream.getvalue().count(b"headerKeyLength") == headers


def test_one_long_field_is_bounded_too() -> None:
    value = random.Random(1).randbytes(400_000)
    text = shown(of_bytes(build.batch([build.record(b"k", value)])))
    assert text.count("\n") < MOST_LINES + 20
    line, rest = (line for line in text.splitlines() if line.endswith("--all shows them"))
    assert re.search(r"… [0-9,]+ more bytes of 400,000;", line)
    assert " ".join(rest.split()) == "… 1 more byte of the batch; --all shows them"  # the number of headers


def test_bytes_that_are_no_batch_are_bounded(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3 << 20)
    text = shown(of_bytes(build.batch([build.record(b"k")]) + b"\1" * 16 + data))
    assert text.count("\n") < MOST_LINES + 60
    assert "--all shows them" in text


def test_a_terminal_folds_at_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    file = of_bytes(build.batch([build.record(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0))
    at_a_terminal = shown(file, Terminal())
    assert max(map(len, at_a_terminal.splitlines())) <= 80
    assert at_a_terminal.split() == shown(file).split()
