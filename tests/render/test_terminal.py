"""Tables and trees at a fixed width, and what a hostile file cannot do to them."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.batch import Batch
from kdump.format.record import Record
from kdump.render import Renderer, RenderOptions, renderer
from kdump.verify.findings import Severity, make_finding
from kdump.verify.summary import FileSummary
from support.plain_lines import opened


def rendered(fill: Callable[[Renderer], None], *, width: int = 100) -> str:
    stream = io.BytesIO()
    with renderer("terminal", stream, RenderOptions(width=width, color=False)) as to:
        fill(to)
    return stream.getvalue().decode()


def test_findings_stand_below_their_file() -> None:
    def fill(to: Renderer) -> None:
        to.entry("a", "epoch", {"epoch": 1, "start_offset": 2})
        to.finding(make_finding("time/max", "a", 1, 2, stored=1, found=2))
        to.finding(make_finding("gap/bytes", "a", 5, 2, zeros=""))
        to.finding(make_finding("tail/zeros", "b", 7, 20, severity=Severity.ERROR))

    for width in (80, 160):
        lines = rendered(fill, width=width).splitlines()
        heads = [" ".join(line.split()[:3]) for line in lines if re.match(r" *\d+ (error|warning|info) ", line)]
        assert heads == ["1 warning time/max", "5 error gap/bytes", "7 error tail/zeros"]
        assert [line for line in lines if line in ("a", "b")] == ["a", "b"]
        assert lines.index("b") < next(at for at, line in enumerate(lines) if "tail/zeros" in line)


def test_a_finding_says_what_happens_to_it() -> None:
    """The sentence comes from the prediction, not from the catalogue."""

    def fill(to: Renderer) -> None:
        for number, broker in enumerate(("truncates", "ignores", "refuses", None)):
            finding = make_finding("gap/bytes", f"{number}", 5, 2, zeros="")
            to.finding(dataclasses.replace(finding, broker=broker))

    said = [" ".join(part.split()) for part in re.split(r"gap/bytes", rendered(fill))[1:]]
    assert "; the next start of Kafka 4.3 truncates these bytes" in said[0]
    assert "; the next start of Kafka 4.3 does nothing about it" in said[1]
    assert "; Kafka 4.3 does not start with it" in said[2]
    assert "broker" not in said[3]


@pytest.mark.parametrize("width", [60, 80, 100, 110, 160])
def test_no_table_folds_a_word(width: int, batch_of: Callable[..., Batch]) -> None:
    """Every number that is shown is whole, and lines fit."""
    large = {"position": 9_876_543_210, "size": 1_048_576, "base_offset": 10**15, "last_offset": 10**15 + 999}
    batch = batch_of(**large, count=1000, producer_id=123456789, producer_epoch=12, base_sequence=2**31 - 2)
    producer = {
        "producer_id": 123456789,
        "producer_epoch": 3,
        "last_sequence": 2**31 - 1,
        "last_offset": 10**15,
        "offset_delta": 12,
        "timestamp": 1_700_000_000_123,
        "coordinator_epoch": 4,
        "current_txn_first_offset": -1,
    }

    def fill(to: Renderer) -> None:
        to.begin("/a/" + "long/" * 40 + "00000000000000000000.log")
        to.batch("p", batch)
        to.batch("p", batch, "batch/crc")
        to.end("p")
        to.begin("s.snapshot")
        to.entry("s.snapshot", "producer", producer)
        to.entry("s.snapshot", "producer", producer)
        to.end("s.snapshot")
        to.file("/a/" + "long/" * 40 + "00000000000000000000.log", FileSummary(10**9, 10**9, 10**12, 10**12, 0))

    lines = rendered(fill, width=width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert text.count("9876543210") == 2
    assert text.count(f"{10**15}..{10**15 + 999}") == 2
    assert text.count("123456789") >= 2
    assert "1700000000123" not in text
    assert "2023-11-14T22:13:20" in text


def test_an_empty_column_is_left_out(batch_of: Callable[..., Batch]) -> None:
    def fill(to: Renderer) -> None:
        to.batch("p", batch_of())

    assert "producer" not in rendered(fill, width=200)
    assert "sequences" not in rendered(fill, width=200)


def test_a_long_table_comes_in_pieces(batch_of: Callable[..., Batch]) -> None:
    def fill(to: Renderer) -> None:
        for position in range(1200):
            to.batch("p", batch_of(position=position))

    lines = rendered(fill, width=200).splitlines()
    assert sum(line.startswith("position") for line in lines) == 3
    assert sum(line.strip().startswith("1199 ") for line in lines) == 1


def test_a_long_tree_comes_in_pieces(batch_of: Callable[..., Batch], record_of: Callable[..., Record]) -> None:
    def fill(to: Renderer) -> None:
        to.batch("p", batch_of())
        to.records("p", None, None, batch_of(), opened(record_of(i, None, b"value-%d;" % i) for i in range(1001)))

    text = rendered(fill)
    assert text.count("position 0 ") == 1
    assert all(f'"value-{i};"' in text for i in range(1001))


def test_a_batch_without_records_is_a_tree_without_branches(batch_of: Callable[..., Batch]) -> None:
    def fill(to: Renderer) -> None:
        to.batch("p", batch_of())
        to.records("p", None, None, batch_of(), opened(()))

    assert rendered(fill).splitlines()[0].startswith("position 0 size 100 offsets 0..1")


@pytest.mark.parametrize("value", [b"x" * 100_000, "漢".encode() * 50_000, b"\xff" * 100_000, b"\n" * 100_000])
def test_a_value_is_cut_to_a_line(
    value: bytes, batch_of: Callable[..., Batch], record_of: Callable[..., Record]
) -> None:
    def fill(to: Renderer) -> None:
        to.batch("p", batch_of())
        to.records("p", None, None, batch_of(), opened([record_of(0, b"k", value)]))

    lines = rendered(fill, width=80).splitlines()
    branch = [line for line in lines if line.startswith("└")]
    assert len(branch) == 1
    assert branch[0].endswith("…")
    assert f" {len(value):,} bytes " in branch[0]
    assert "".join(lines[lines.index(branch[0]) + 1 :]).startswith(
        "lines that end in … are cut off; --format text in a pipe"
    )


@given(data=st.binary() | st.text().map(str.encode), path=st.text(max_size=20))
def test_nothing_hostile_gets_through(data: bytes, path: str) -> None:
    record = Record(0, 0, data, data, ((data, data),), -1, 2, 0, 0)
    batch = Batch(**(dict.fromkeys(Batch._fields, 0) | {"magic": 2}))

    def fill(to: Renderer) -> None:
        to.begin(path)
        to.batch(path, batch)
        to.records(path, path, 0, batch, opened([record]))
        to.entry(path, f"a {path}", {path: data, "b": path})
        to.finding(make_finding("batch/crc", path, 0, 1, computed=1, stored=2))

    assert all(line.isprintable() for line in rendered(fill).split("\n"))


def test_markup_and_emoji_codes_stay_as_they_are(
    batch_of: Callable[..., Batch], record_of: Callable[..., Record]
) -> None:
    def fill(to: Renderer) -> None:
        to.begin("[bold]x[/bold]")
        to.batch("p", batch_of())
        to.records("p", None, None, batch_of(), opened([record_of(0, b"[red]k[/]", b":smile:")]))

    text = rendered(fill)
    assert "[bold]x[/bold]" in text
    assert '"[red]k[/]" ":smile:"' in text
