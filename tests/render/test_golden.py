"""One golden file a format, over the same made-up values. `KDUMP_GOLDEN=write` makes them again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kdump.render import FORMATS, RenderOptions

GOLDEN = Path(__file__).parent / "golden"
OPTIONS = RenderOptions(print_data_log=True, width=140, color=False)


@pytest.mark.parametrize("name", FORMATS)
def test_golden(name: str, show: Callable[..., bytes]) -> None:
    found = show(name, OPTIONS)
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("KDUMP_GOLDEN") == "write":
        file.write_bytes(found)
    assert found == file.read_bytes()


@pytest.mark.parametrize("name", ["text", "json", "terminal"])
def test_output_is_utf8_without_a_control_character(name: str, show: Callable[..., bytes]) -> None:
    text = show(name, OPTIONS).decode()
    assert all(line.isprintable() for line in text.split("\n"))


def test_color_is_all_that_the_terminal_adds(show: Callable[..., bytes]) -> None:
    plain = show("terminal", OPTIONS).decode()
    colored = show("terminal", RenderOptions(width=140, color=True)).decode()
    assert "\x1b[" in colored
    assert _without_color(colored) == plain


def _without_color(text: str) -> str:
    parts = text.split("\x1b[")
    return parts[0] + "".join(part.partition("m")[2] for part in parts[1:])


def test_kafka_repeats_the_bytes_of_a_value(show: Callable[..., bytes]) -> None:
    assert 'payload: va"l\\ue\n\x1b[0m\u202e\x7f\u0085\n'.encode() in show("kafka", OPTIONS)


def test_kafka_without_deep_iteration_has_batches_only(show: Callable[..., bytes]) -> None:
    assert b"\n| " not in show("kafka")
