"""The compiled lines of records against the plain ones, on batches that brokers wrote and on whatever bytes there can
be."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable, Iterator
from ctypes import c_ubyte
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kdump.dump.dump import DumpOptions as What
from kdump.dump.dump import dump_logs
from kdump.dump.events import BatchEvent
from kdump.format.batch import CODECS, Batch
from kdump.format.java import java_text
from kdump.format.record import Record
from kdump.kernel.lines import LONG_BYTES, PIECE_BYTES, Lines
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.render import BYTES_MODES, RenderOptions, renderer
from kdump.render.escaping import printable, text_pieces
from kdump.render.json import ENCODERS
from kdump.render.sentences import iso_time
from kdump.storage import discovery
from kdump.storage.partition import LogFile
from kdump.storage.records import DecodedBatch, records
from support import build, plain_lines
from support.cases import each
from support.laws import examples, sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOGS = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.suffix in (".log", ".checkpoint", ".kafka") and path.stat().st_size < 2 << 20
)
PLAIN = Batch(**(dict.fromkeys(Batch._fields, -1) | {"magic": 2, "attributes": 0, "base_offset": 0}))

ANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def compiled(name: str, batch: Batch, opened: DecodedBatch, *, terminal: bool = False, **look: object) -> str:
    stream = Terminal() if terminal else io.BytesIO()
    with renderer(name, stream, RenderOptions(**look)) as to:  # type: ignore[arg-type]
        to.records("/l/t-0/0.log", "t", 0, batch, opened)
    return stream.getvalue().decode()


def compare(batch: Batch, opened: DecodedBatch) -> None:
    """All formats and modes."""
    found = list(records(batch, opened))
    for mode in BYTES_MODES:
        assert compiled("text", batch, opened, bytes_mode=mode) == plain_lines.text_lines(batch, found, mode)
        wanted = plain_lines.json_lines('"/l/t-0/0.log"', '"t"', "0", batch, found, ENCODERS[mode])
        assert compiled("json", batch, opened, bytes_mode=mode) == wanted
    for metadata, contents in ((True, True), (True, False), (False, True), (False, False)):
        look = {"deep_iteration": True, "print_data_log": contents, "skip_record_metadata": not metadata}
        how = {"metadata": metadata, "contents": contents}
        wanted = plain_lines.kafka_lines(batch, found, text=java_text, **how)
        assert compiled("kafka", batch, opened, **look) == wanted
        wanted = plain_lines.kafka_lines(batch, found, text=lambda data: printable(java_text(data)), **how)
        assert compiled("kafka", batch, opened, terminal=True, **look) == wanted


def shown(path: Path, **what: object) -> Iterator[BatchEvent]:
    files = [file for file in discovery.log_files([str(path)]) if isinstance(file, LogFile)]
    yield from (event for event in dump_logs(files, What(**what)) if isinstance(event, BatchEvent))  # type: ignore[arg-type]


@pytest.mark.laws
@each("path", sampled(LOGS, 9), ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_what_brokers_wrote(path: Path) -> None:
    for event in shown(path, force=True):
        assert event.records is not None
        for piece in event.records.pieces():
            compare(event.batch, piece)


# --- any bytes --------------------------------------------------------------------------------------------------------

ODD_TEXT = st.sampled_from(
    [
        '"',
        "\\",
        "\n",
        "\t",
        "\r",
        "\b",
        "\f",
        "\0",
        "\x1b[2J",
        "\x1f",
        "\x7f",
        "\x80",
        "\x9b",
        "\xa0",
        "\xad",
        "é",
        "\u061c",
        "\u200e",
        "\u2028",
        "\u202e",
        "\u2066",
        "\u206a",
        "\u2100",
        "漢",
        "\ufeff",
        "\ufffd",
        "\uffff",
        "😀",
        "\U000e0001",
        "\U0010ffff",
        "plain text of more than 16 bytes",
    ]
).map(str.encode)
ODD_BYTES = st.sampled_from(
    [
        "80",
        "c0af",
        "c1bf",
        "c2",
        "e0809f",
        "e09fbf",
        "e282",
        "eda080",
        "edbfbf",
        "edb080",
        "f0808080",
        "f08fbfbf",
        "f09f98",
        "f4908080",
        "f5808080",
        "ff",
    ]
).map(bytes.fromhex)
TEXTS = st.lists(ODD_TEXT | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")), max_size=12).map(
    b"".join
)
DATA = TEXTS | st.lists(ODD_TEXT | ODD_BYTES, max_size=8).map(b"".join) | st.binary(max_size=80)
TIMES = st.sampled_from(
    [-1, 0, -(2**63), 2**63 - 1, -62_135_596_800_000, -62_135_596_800_001, 253_402_300_799_999, 253_402_300_800_000]
)
TIMES |= st.integers(-62_135_596_800_000, 253_402_300_799_999) | st.integers(-(2**63), 2**63 - 1)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 100) | st.integers(-(2**63), 2**63 - 1),
    timestamp=TIMES,
    key=st.none() | DATA,
    value=st.none() | DATA,
    headers=st.lists(st.tuples(DATA, st.none() | DATA), max_size=3).map(tuple),
    sequence=st.just(-1),
    magic=st.just(2),
    position=st.just(0),
    size=st.just(0),
    crc=st.none(),
    crc_ok=st.none(),
)


@ANY
@given(
    items=st.lists(RECORDS, max_size=4),
    base_offset=st.integers(0, 100) | st.just(NO_VALUE),
    base_sequence=st.sampled_from([-1, -7, 0, 2**31 - 1]),
    attributes=st.sampled_from([0, 8, 0x10, 0x20]),
    producer=st.integers(-1, 2**63 - 1),
)
def test_any_records(items: list[Record], base_offset: int, base_sequence: int, attributes: int, producer: int) -> None:
    places = {"base_offset": base_offset, "base_sequence": base_sequence, "producer_id": producer}
    compare(PLAIN._replace(attributes=attributes, **places), plain_lines.opened(items))


@ANY
@given(
    items=st.lists(RECORDS, min_size=1, max_size=3),
    magic=st.sampled_from([0, 1]),
    inner=st.sampled_from([0, 1]),
    right=st.booleans(),
)
def test_any_messages(items: list[Record], magic: int, inner: int, right: bool) -> None:
    messages = [item._replace(headers=(), magic=inner, crc=7, crc_ok=right) for item in items]
    compare(PLAIN._replace(magic=magic), plain_lines.opened(messages))


@settings(ANY, max_examples=examples(40))
@given(data=build.segments(min_batches=1, max_batches=4))
def test_any_segment(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("lines") / "00000000000000000000.log"
    path.write_bytes(data)
    for event in shown(path):
        assert event.records is not None
        for piece in event.records.pieces():
            compare(event.batch, piece)


# --- several batches at once ------------------------------------------------------------------------------------------


def dumped(path: Path, style: str, mode: str, runs: bool, records_only: bool) -> bytes:
    files = [file for file in discovery.log_files([str(path)]) if isinstance(file, LogFile)]
    out = io.BytesIO()
    with renderer(style, out, RenderOptions(bytes_mode=mode, records_only=records_only)) as to:
        assert list(to.show(dump_logs(files, What(runs=runs)))) == []
    return out.getvalue()


def test_several_batches_at_once_are_the_same_lines() -> None:
    for number, path in enumerate(LOGS):
        style, mode, records_only = ("json", "text")[number % 2], BYTES_MODES[number // 2 % 4], bool(number // 8 % 2)
        assert dumped(path, style, mode, True, records_only) == dumped(path, style, mode, False, records_only)


def several(base_offset: int) -> list[bytes]:
    """A batch of each codec, with what the line of a batch can have."""
    flags: list[dict[str, Any]] = [
        {"timestamp_type": "LogAppendTime"},
        {"producer_id": 7, "producer_epoch": 3, "base_sequence": (1 << 31) - 1, "transactional": True},
        {"delete_horizon_ms": 1_700_000_000_001},
        {"producer_epoch": 0, "epoch": -1},
        {"base_timestamp": 1 << 60, "max_timestamp": -1},
    ]
    items = [build.record(b"k", b'"v"', headers=[(b"h", None), (b"i", b"\xff")]), build.record(None, None)]
    return [
        build.batch(items, codec=codec, base_offset=base_offset + 2 * number, **flags[number])
        for number, codec in enumerate(CODECS)
    ]


def test_a_run_goes_on_after_a_batch_that_comes_alone(tmp_path: Path) -> None:
    marker = build.marker(base_offset=10)
    long = build.batch([build.record(b"k", b"v" * (300 << 10))], base_offset=21)
    records = build.encode_record(build.record(), offset_delta=0, timestamp_delta=0) * 90_000
    tiny = build.batch(
        [],
        codec="zstd",
        payload=build.compress("zstd", records),
        count=90_000,
        last_offset_delta=89_999,
        base_offset=32,
    )
    path = tmp_path / "0.log"
    parts = [*several(0), marker, *several(11), long, *several(22), tiny, *several(90_032)]
    path.write_bytes(b"".join(parts))
    files = [file for file in discovery.log_files([str(path)]) if isinstance(file, LogFile)]
    for style in ("text", "json"):
        taken = []
        with renderer(style, out := io.BytesIO(), RenderOptions()) as to:
            run = to.batches

            def counted(*arguments: Any, run: Any = run, taken: list[int] = taken) -> int:
                taken.append(run(*arguments))
                return taken[-1]

            to.batches = counted  # type: ignore[method-assign]
            assert list(to.show(dump_logs(files, What(runs=True)))) == []
        assert sum(taken) == 20
        assert out.getvalue() == dumped(path, style, "auto", False, False)


@settings(ANY, max_examples=examples(40))
@given(
    data=build.segments(min_batches=1, max_batches=6, gaps=True),
    changes=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), max_size=2),
    records_only=st.booleans(),
)
def test_any_batches_at_once(
    data: bytes, changes: list[tuple[int, int]], records_only: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    changed = bytearray(data)
    for at, bits in changes:
        changed[at % len(changed)] ^= bits
    path = tmp_path_factory.mktemp("lines") / "00000000000000000000.log"
    path.write_bytes(changed)
    for style in ("json", "text"):
        for mode in BYTES_MODES:
            assert dumped(path, style, mode, True, records_only) == dumped(path, style, mode, False, records_only)


def test_batches_whose_rows_lie_are_left_or_refused() -> None:
    record = build.encode_record(build.record(b"k", b"v" * 30), offset_delta=0, timestamp_delta=0)
    batch = build.batch([record, record], count=2, last_offset_delta=1)

    opened: list[bytes | None] = [None]

    def payload_of(index: int) -> bytes | None:
        return opened[index]

    def lines_of(window: bytes, filled: int = len(batch), origin: int = 0, **cells: int) -> tuple[bytes, int]:
        named = {"size": len(batch), "magic": 2, "count": 2, "base_sequence": -1} | cells
        rows = array("q", [named.get(name, 0) for name in BATCH_COLUMNS])
        exact = memoryview((c_ubyte * len(window)).from_buffer_copy(window)).cast("B")
        lines, after = Lines("json").batches(rows, 0, 1, exact, origin, filled, b'{"offset":', None, payload_of)
        return bytes(lines), after

    assert lines_of(batch)[0].count(b"\n") == 2
    assert lines_of(batch)[1] == 1
    for cells in (
        {"count": 3},
        {"count": 1},
        {"count": 0},
        {"count": -1},
        {"size": len(batch) - 1},
        {"size": len(batch) + 1},
        {"size": 60},
        {"size": 1 << 62},
        {"position": -1},
        {"position": 1},
        {"position": 1 << 62},
        {"origin": 1},
        {"filled": len(batch) - 1},
        {"magic": 1},
        {"attributes": 1},
        {"attributes": 5},
        {"attributes": 0x20},
        {"base_offset": -1},
        {"base_sequence": -2},
        {"suspect": 1},
    ):
        assert lines_of(batch, **cells) == (b"", 0), cells
    with pytest.raises(ValueError, match="outside"):
        lines_of(batch, filled=len(batch) + 1)
    with pytest.raises(ValueError, match="outside"):
        Lines("json").batches(b"", 0, 1, batch, 0, 0, b"", None, payload_of)
    with pytest.raises(ValueError, match="outside"):
        Lines("json").batches(b"", -1, 0, batch, 0, 0, b"", None, payload_of)
    with pytest.raises(ValueError, match="style"):
        Lines("raw", repair=bytes).batches(b"", 0, 0, batch, 0, 0, b"", None, payload_of)
    plain = lines_of(batch)
    for payload, taken in ((batch[61:], 1), (batch[61:-1], 0), (batch[61:] + b"\0", 0), (b"", 0)):
        opened[0] = payload
        assert lines_of(batch, attributes=1) == (plain if taken else (b"", 0))


def test_lines_that_are_lent_stay_until_they_are_dropped() -> None:
    lines, opened = Lines("text"), values([b"X" * 40_000])
    other = values([b"W" * 40_000])
    first, _ = lines.text(*opened[:3], 0, 0, -1, None)
    second, _ = lines.text(*other[:3], 0, 0, -1, None)
    assert isinstance(first, memoryview)
    assert first.readonly
    assert bytes(first).count(b"X") == bytes(second).count(b"W") == 40_000
    wanted = bytes(first)
    assert isinstance(second, memoryview)
    owner = second.obj
    second.release()
    third, _ = lines.text(*opened[:3], 0, 0, -1, None)
    assert bytes(third) == bytes(first) == wanted
    with pytest.raises(BufferError):
        memoryview(owner)
    short, _ = lines.text(*values([b"z"])[:3], 0, 0, -1, None)
    assert isinstance(short, bytes)


def values(items: Iterable[bytes]) -> DecodedBatch:
    return plain_lines.opened(Record(index, 0, None, item, (), -1, 2, 0, 0) for index, item in enumerate(items))


def test_every_character() -> None:
    points = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    opened = values("".join(map(chr, points[at : at + 1009])).encode() for at in range(0, len(points), 1009))
    found = list(records(PLAIN, opened))
    assert compiled("text", PLAIN, opened) == plain_lines.text_lines(PLAIN, found)
    assert compiled("json", PLAIN, opened) == plain_lines.json_lines(
        '"/l/t-0/0.log"', '"t"', "0", PLAIN, found, ENCODERS["auto"]
    )


@pytest.mark.laws
@pytest.mark.parametrize("unit", sampled(["x", '"', "\x01", "é", "漢", "😀", "\u202e", "\U000e0001"], 6))
def test_fields_longer_than_a_stretch(unit: str) -> None:
    # room for a field is made piece by piece, and a character may lie on a border
    items = [
        b"x" * shift + unit.encode() * ((1 << 17) // len(unit.encode())) + tail
        for shift in range(4)
        for tail in (b"", b"\xff")
    ]
    compare(PLAIN, values(items))


@pytest.mark.laws
@pytest.mark.parametrize(
    "unit",
    sampled(
        [
            b"x",
            b'\x01"',
            "é".encode(),
            "漢".encode(),
            "\U000e0001".encode(),
            b"\x80",
            b"\xff",
            b"\xe2\x82",
            b"\xf0\x9f\x98",
            b"\xed\xa0\x80",
            b"\xf0\x80\x80\x80\x80",
        ],
        3,
    ),
)
def test_long_fields_come_in_pieces(unit: bytes) -> None:
    items = [
        b"x" * shift + unit * (LONG_BYTES // len(unit) + 2) + tail for shift in range(4) for tail in (b"", b"\xe2\x82")
    ]
    compare(PLAIN, values(items))
    for data in items:
        pieces = list(text_pieces(data))
        assert b"".join(pieces) == data
        assert "".join(map(java_text, pieces)) == java_text(data)
        assert "".join(str(piece, "utf-8", "replace") for piece in pieces) == str(data, "utf-8", "replace")


@pytest.mark.daily(4)
@pytest.mark.parametrize("size", range(70))
def test_what_is_odd_stands_anywhere(size: int) -> None:
    compare(
        PLAIN,
        values(
            b"." * at + odd + b"." * (size - at)
            for at in range(size + 1)
            for odd in (b'"', b"\xff", b"\xc3\xa9", b"\x7f")
        ),
    )


def test_a_field_at_the_end_of_the_payload_is_not_read_beyond() -> None:
    payload = b'k"' * 40
    for size in range(40):
        rows = memoryview(b"".join(value.to_bytes(8, "little", signed=True) for value in row_of(80 - size, size))).cast(
            "q"
        )
        compare(PLAIN, DecodedBatch(payload, rows, memoryview(b"").cast("q"), None))


def row_of(value_at: int, value_size: int, headers: int = 0) -> list[int]:
    named = {"key_size": -1, "value_at": value_at, "value_size": value_size, "header_count": headers, "magic": 2}
    return [named.get(name, 0) for name in RECORD_COLUMNS]


@pytest.mark.parametrize(
    ("value_at", "value_size", "headers"),
    [
        (0, 11, 0),
        (11, 0, 0),
        (-1, 1, 0),
        (10, 1, 0),
        (2**63 - 1, 2**63 - 1, 0),
        (1, 2**63 - 1, 0),
        (0, 0, 1),
        (0, 0, -1),
    ],
)
def test_rows_that_lie_are_refused(value_at: int, value_size: int, headers: int) -> None:
    rows = b"".join(value.to_bytes(8, "little", signed=True) for value in row_of(value_at, value_size, headers))
    where = (b"x" * 10, rows, b"", 0, 0, -1, None)
    with pytest.raises(ValueError, match=r"outside|headers"):
        Lines("text").text(*where)
    with pytest.raises(ValueError, match=r"outside|headers"):
        Lines("json").json(*where, (b"", b"", b"", b"", b""), False, False)
    with pytest.raises(ValueError, match=r"outside|headers"):
        Lines("raw", repair=bytes).kafka(*where, b"CreateTime", True, True, False)
    with pytest.raises(ValueError, match="whole"):
        Lines("text").text(b"", rows[:-1], b"", 0, 0, -1, None)


def test_a_style_has_its_own_lines() -> None:
    with pytest.raises(ValueError, match="style"):
        Lines("json").text(b"", b"", b"", 0, 0, -1, None)
    with pytest.raises(ValueError, match="repair"):
        Lines("raw")
    with pytest.raises(ValueError, match="repair"):
        Lines("text", "utf8")


def test_what_python_says_wrong_comes_out() -> None:
    opened = values([b"\xff"])

    def broken(_: bytes) -> bytes:
        raise KeyError("broken")

    rows = (opened.payload, opened.rows, opened.headers)
    with pytest.raises(KeyError, match="broken"):
        Lines("text", "utf8", broken).text(*rows, 0, 0, -1, None)
    with pytest.raises(ValueError, match="no UTF-8"):
        Lines("text", "utf8", bytes).text(*rows, 0, 0, -1, None)


def test_a_writer_is_not_entered_twice() -> None:
    opened = values([b"\xff"])
    rows = (opened.payload, opened.rows, opened.headers)
    lines: Lines

    def again(data: bytes) -> bytes:
        return lines.text(*rows, 0, 0, -1, None)[0]

    lines = Lines("text", "utf8", again)
    with pytest.raises(RuntimeError):
        lines.text(*rows, 0, 0, -1, None)
    lines = Lines("text", "utf8", lambda data: b"?")
    assert lines.text(*rows, 0, 0, -1, None)[0].endswith(b'value="?"\n')


def test_large_batches_come_in_pieces() -> None:
    opened = values([b"v" * 1000] * 5000)
    lines = Lines("text")
    pieces, done = [], 0
    while done < opened.records:
        piece, done = lines.text(opened.payload, opened.rows, opened.headers, done, 0, -1, None)
        pieces.append(piece)
    assert all(PIECE_BYTES <= len(piece) < PIECE_BYTES + 2000 for piece in pieces[:-1])
    assert b"".join(pieces).decode() == plain_lines.text_lines(PLAIN, records(PLAIN, opened))


@ANY
@given(st.lists(TIMES, min_size=1))
@example(
    [951_782_399_999, 951_782_400_000, 951_868_800_000, -2_203_891_200_000, 4_107_542_400_000]
)  # around 29 February, and years without one
def test_times(stamps: list[int]) -> None:
    opened = plain_lines.opened(Record(0, stamp, None, None, (), -1, 2, 0, 0) for stamp in stamps)
    lines = compiled("text", PLAIN, opened).splitlines()
    assert [line.partition("time=")[2].split(" ")[0] for line in lines] == [iso_time(stamp) for stamp in stamps]


@pytest.mark.laws
def test_every_day_of_four_hundred_years() -> None:
    days = sampled([*range(-719_162, -573_000), *range(2_786_000, 2_932_896)], 11)
    opened = plain_lines.opened(Record(0, day * 86_400_000, None, None, (), -1, 2, 0, 0) for day in days)
    lines = compiled("text", PLAIN, opened).splitlines()
    assert [line.partition("time=")[2].split(" ")[0] for line in lines] == [iso_time(day * 86_400_000) for day in days]


# --- which records ----------------------------------------------------------------------------------------------------


@ANY
@given(
    offsets=st.lists(st.integers(0, 20), max_size=10),
    first=st.none() | st.integers(0, 20),
    stop=st.none() | st.integers(0, 20),
    limit=st.none() | st.integers(0, 5),
)
def test_select(offsets: list[int], first: int | None, stop: int | None, limit: int | None) -> None:
    opened = plain_lines.opened(
        Record(offset, 0, b"%d" % index, None, ((b"h", None),), -1, 2, 0, 0) for index, offset in enumerate(offsets)
    )
    some = list(records(PLAIN, opened.select(first, stop, limit)))
    wanted = [
        record
        for record in records(PLAIN, opened)
        if (first or 0) <= record.offset and (stop is None or record.offset < stop)
    ]
    assert some == wanted[:limit]
