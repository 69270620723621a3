"""When and how text leaves a renderer, and what is imported for it."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kdump.format.batch import Batch
from kdump.format.record import Record
from kdump.render import FORMATS, RenderOptions, renderer
from kdump.render.output import CHUNK_BYTES, Output, Uninterrupted
from support.plain_lines import opened


class Written(io.BytesIO):
    """Remembers the size of each write, and whether it is a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.sizes.append(len(data))
        return super().write(data)


def test_large_chunks_into_a_pipe() -> None:
    stream = Written()
    out = Output(stream)
    for _ in range(3000):
        out.write("x" * 100)
    out.flush()
    assert sum(stream.sizes) == 300_000
    assert all(size >= CHUNK_BYTES for size in stream.sizes[:-1])
    assert len(stream.sizes) == 5


def test_a_terminal_sees_every_value_at_once() -> None:
    stream = Written(terminal=True)
    out = Output(stream)
    out.write("a")
    out.write("b")
    assert stream.getvalue() == b"ab"


def test_a_text_stream_with_bytes_below_gets_utf8_whatever_its_encoding() -> None:
    below = io.BytesIO()
    stream = io.TextIOWrapper(below, encoding="ascii")
    stream.write("before ")
    out = Output(stream)
    out.write("é\udcff")
    out.flush()
    assert below.getvalue() == b"before \xc3\xa9\xff"


def test_a_text_stream_alone() -> None:
    stream = io.StringIO()
    out = Output(stream)
    out.write("é")
    out.flush()
    assert stream.getvalue() == "é"


@pytest.mark.daily(2)
@pytest.mark.parametrize("name", FORMATS)
def test_nothing_is_lost_or_torn(name: str, batch_of: Callable[..., Batch], record_of: Callable[..., Record]) -> None:
    stream = Written()
    with renderer(name, stream, RenderOptions(print_data_log=True, width=200, color=False)) as to:
        for position in range(0, 4000, 100):
            batch = batch_of(position=position)
            to.batch("p", batch)
            to.records(
                "p", "t", 0, batch, opened(record_of(i, b"k%d-%d." % (position, i), b"v" * 50) for i in range(60))
            )
    text = stream.getvalue().decode()
    for position in range(0, 4000, 100):
        assert all(f"k{position}-{i}." in text for i in range(60))
    assert text.endswith("\n")
    assert max(stream.sizes) >= CHUNK_BYTES


def test_a_reader_that_went_away_is_not_written_to_again() -> None:
    stream = Written()
    to = renderer("text", stream)
    to.begin("p")
    to.__exit__(BrokenPipeError, BrokenPipeError(), None)
    assert stream.getvalue() == b""


def test_what_is_held_is_written_when_something_else_fails() -> None:
    stream = Written()
    to = renderer("text", stream)
    to.begin("p")
    to.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert stream.getvalue() == b"file p\n"


def test_an_unknown_format() -> None:
    with pytest.raises(KeyError):
        renderer("xml", io.BytesIO())


def test_only_the_terminal_imports_rich() -> None:
    code = """if True:
        import io, sys
        from kdump.render import FORMATS, renderer
        for name in FORMATS:
            if name != "terminal":
                renderer(name, io.BytesIO()).close()
                assert f"kdump.render.{name}" in sys.modules
        assert "rich" not in sys.modules and "click" not in sys.modules
        renderer("terminal", io.BytesIO()).close()
        assert "rich" in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=Path.home())


def test_a_block_inside_of_one_is_left_with_it() -> None:
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("interrupt"))
    try:
        with Uninterrupted():
            handler = signal.getsignal(signal.SIGINT)
            with Uninterrupted():
                assert signal.getsignal(signal.SIGINT) == handler
                signal.raise_signal(signal.SIGINT)
            seen.append("inner")
        assert seen == ["inner", "interrupt"]
        with Uninterrupted():
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        with Uninterrupted():
            assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
