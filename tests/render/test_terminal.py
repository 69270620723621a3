"""Tables and trees at a fixed width, and what a hostile file cannot do to them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.batch import Batch
from kdump.format.record import Record
from kdump.render import Renderer, RenderOptions, renderer
from kdump.verify.findings import Severity, make_finding
from support.plain_lines import opened


def rendered(fill: Callable[[Renderer], None], *, width: int = 100) -> str:
    stream = io.BytesIO()
    with renderer("terminal", stream, RenderOptions(width=width, color=False)) as to:
        fill(to)
    return stream.getvalue().decode()


def test_findings_come_last_and_the_worst_first() -> None:
    def fill(to: Renderer) -> None:
        to.finding(make_finding("gap/foreign-batch", "a", 1, 2, offset=3))
        to.finding(make_finding("time/max", "a", 1, 2, stored=1, found=2))
        to.finding(make_finding("gap/bytes", "a", 5, 2, zeros=""))
        to.finding(make_finding("time/max", "b", 7, 2, stored=1, found=2))
        to.entry("a", "epoch", {"epoch": 1, "start_offset": 2})

    lines = rendered(fill).splitlines()
    heads = [line.split("  ")[0] for line in lines if line.split(" ")[0] in {"error", "warning", "info"}]
    assert heads == ["error gap/bytes", "warning time/max", "info gap/foreign-batch"]
    assert lines.index(next(line for line in lines if "start offset" in line)) < lines.index(
        next(line for line in lines if line.startswith("error"))
    )
    assert sum("(2)" in line for line in lines) == 1


def test_severity_of_a_finding_outranks_that_of_its_code() -> None:
    def fill(to: Renderer) -> None:
        to.finding(make_finding("gap/bytes", "a", 5, 2, zeros=""))
        to.finding(make_finding("tail/zeros", "a", 1, 2, severity=Severity.ERROR))
        to.finding(make_finding("tail/zeros", "b", 1, 20))

    heads = [line.split("  ")[0] for line in rendered(fill).splitlines() if "tail/zeros" in line]
    assert heads == ["error tail/zeros", "warning tail/zeros"]


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


@given(data=st.binary() | st.text().map(str.encode), path=st.text(max_size=20))
def test_nothing_hostile_gets_through(data: bytes, path: str) -> None:
    record = Record(0, 0, data, data, ((data, data),), -1, 2, 0, 0)
    batch = Batch(**(dict.fromkeys(Batch._fields, 0) | {"magic": 2}))

    def fill(to: Renderer) -> None:
        to.begin(path)
        to.batch(path, batch)
        to.records(path, path, 0, batch, opened([record]))
        to.entry(path, path, {path: data, "b": path})
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
