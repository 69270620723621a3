"""The bound of a page of `--format html`, for any input: its bytes, and the memory of writing it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kdump.render.html.budget import MOST_BYTES, BoundedList, Budget
from kdump.render.html.page import page
from kdump.render.html.script_data import Encoded
from kdump.verify.catalogue import CATALOGUE
from support.laws import QUICK, of_the_day

TESTS = Path(__file__).parents[1]
MOST_MEMORY = 192 << 20


def written(command: str, file: Path) -> tuple[int, int]:
    """Write the page at all of its bounds. Returns its bytes and the peak of the memory of the process."""
    arguments = [sys.executable, "-P", "-m", "support.largest_pages", command, str(file)]
    ran = subprocess.run(arguments, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=True, capture_output=True)
    size, peak = map(int, ran.stdout.split())
    return size, peak


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def numbers_of(text: str, words: str) -> list[int]:
    """The numbers in what a page says that it leaves out."""
    return [int(found) for found in re.findall(rf"(?<!\d)(\d++) {words}", text)]


@pytest.mark.laws
@pytest.mark.parametrize("command", of_the_day(["verify", "recover", "compare", "stat"], 4, whole=not QUICK))
def test_no_page_is_larger_than_the_bound_and_it_says_what_it_leaves_out(command: str, tmp_path: Path) -> None:
    size, peak = written(command, tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size
    assert MOST_BYTES // 3 < size <= MOST_BYTES
    assert peak <= MOST_MEMORY
    text = (tmp_path / "page.html").read_text()
    data = data_of(text)
    kept = len(data["findings"]["code"])
    assert kept + sum(numbers_of(text, "more findings of severity")) == {"recover": 600 * 15, "verify": 90_093}.get(
        command, 89_943
    )
    match command:
        case "verify":
            assert len(data["partitions"]["path"]) + numbers_of(text, "more partitions with")[0] == 1200
            assert len(data["maps"]) + numbers_of(text, "damaged partitions without a map")[0] >= 24
        case "recover":
            assert len(data["recoveries"]) + numbers_of(text, "more partitions not on this page")[0] == 600
        case "compare":
            assert len(data["copies"]) + numbers_of(text, "more topic-partitions")[0] == 150
            assert {one["verdict"] for one in data["copies"]} == {"diverged"}
        case _:
            rows = len(data["rows-partition"]["values"][0])
            text_of = text[text.index('id="rows-partition"') :]
            total = 20_000 // 307 * 307
            assert rows + numbers_of(text_of, "more rows")[0] == total + 7
            tiles = data["space"]["tiles"]
            assert len(tiles["tiles"]) + tiles["more"] == total


def test_what_a_page_has_beside_its_tables_fits() -> None:
    """The templates, the charting library, and what the catalogue says of every code."""
    texts = "".join(f"{each.title}{each.why}{each.recover}{each.source}" for each in CATALOGUE.values())
    tile = {"label": "x", "value": 1, "unit": "count", "tone": "good", "of": None}
    verdict = {"headline": "x" * 5000, "tone": "good", "sentence": "x" * 5000, "lost": "x" * 5000}
    command = "'" * (32 << 10)
    values: dict[str, Any] = {
        **dict.fromkeys(("title", "command", "sums", "version", "keys"), "x"),
        "verdict": verdict,
        **dict.fromkeys(("next", "undo"), command),
        "tiles": [tile] * 9,
        "head": {"paths": ["'" * (16 << 10)], "root": "'" * 4096, "now_ms": 1, "seconds": 1},
        "exit_status": 0,
        "cut": ["x" * 300] * 20,
        **dict.fromkeys(("findings", "partitions", "maps"), 1),
        "sections": [],
    }
    text = "".join(page(values, {"x": texts}, charts=True))
    assert len(text.encode()) <= 1 << 20


def test_a_list_keeps_the_first_ones_in_order_and_gives_back_what_it_drops() -> None:
    whole = Budget(100)
    part = whole.part(60)
    several = BoundedList(part)
    for number in (5, 3, 9, 1, 7, 2, 8):
        several.add((number,), lambda number=number: Encoded(f'"{number:017d}"'))
    assert json.loads(several.data()) == [f"{number:017d}" for number in (1, 2, 3)]
    assert (several.seen, several.hidden) == (7, 4)
    assert (part.left, whole.left) == (0, 40)
    assert not part.take(1)
    assert whole.take(40)
    several.add((0,), lambda: Encoded('"x"'))
    assert json.loads(several.data())[0] == "x"
    assert len(several) == 3
