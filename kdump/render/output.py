"""Buffered output to a binary or text stream, in large writes that a Ctrl-C does not cut."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from types import FrameType
from typing import IO, Any, Self

from kdump.render.escaping import PIECE_BYTES

CHUNK_BYTES = 64 * 1024
LARGE_BYTES = 32 * 1024


class Uninterrupted:
    """A block that a Ctrl-C does not leave: it comes after it. A second one comes at once, as where nothing reads.

    A write that is left after its bytes are out would have to know whether they are, not to write them twice. A block
    inside of one changes nothing: to change the handler of a signal takes as long as to make 10 KiB of lines.
    """

    _is_entered = False

    def __init__(self) -> None:
        self._is_pending = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if not Uninterrupted._is_entered and callable(signal.getsignal(signal.SIGINT)):  # it can be ignored
            with suppress(ValueError):  # a thread that gets no signals
                self._before = signal.signal(signal.SIGINT, self._note)
                Uninterrupted._is_entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._before is None:
            return
        Uninterrupted._is_entered = False
        signal.signal(signal.SIGINT, self._before)
        if self._is_pending and kind is None:
            self._before(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_pending:
            raise KeyboardInterrupt
        self._is_pending = True


class Output:
    """Collects text and writes it in chunks of at least 64 KiB. On a terminal it writes after every value.

    A piece of 32 KiB or more is written at once: to wait for another one would copy both.

    Takes a binary stream or a text stream. Where the text stream has a binary stream below it (`sys.stdout`), the bytes
    go to that one, so that they are UTF-8 in every locale.
    """

    def __init__(self, stream: IO[Any]) -> None:
        self.terminal = _is_terminal(stream)
        if isinstance(stream, io.TextIOBase):
            binary = getattr(stream, "buffer", None)
            if binary is not None:
                stream.flush()
                stream = binary
        self._stream = stream
        self._text = isinstance(stream, io.TextIOBase)
        self._parts: list[bytes | memoryview] = []
        self._buffered_bytes = 0
        self._most_held: int | None = None

    def hold(self, most_bytes: int) -> None:
        """Keep what is written from now on, so that something can come before it; above `most_bytes` write it all."""
        self.flush()
        self._most_held = most_bytes

    @contextmanager
    def release(self) -> Iterator[bool]:
        """Write what is kept, after what is written in the block. Gives whether anything can still come before it."""
        is_held, self._most_held = self._most_held is not None, None
        kept, self._parts, self._buffered_bytes = self._parts, [], 0
        try:
            yield is_held
        finally:
            self._parts += kept
            self._buffered_bytes = sum(map(len, self._parts))
            self.flush()

    def write(self, text: str | bytes | memoryview) -> None:
        """Add text, or its UTF-8. What belongs together (a line, the lines of a batch) comes in one call.

        A view is not kept: its bytes may change after the call.
        """
        # a file name that is not UTF-8 arrives as surrogates and leaves as its own bytes
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        self._buffered_bytes += len(data)
        if self._most_held is not None:
            self._parts.append(bytes(data))
            if self._buffered_bytes > self._most_held:
                self._most_held = None
                self.flush()
            return
        if self._buffered_bytes >= CHUNK_BYTES or len(data) >= LARGE_BYTES or self.terminal:
            self._parts.append(data)
            self.flush()
        else:
            self._parts.append(bytes(data))

    @staticmethod
    def in_pieces(size: int) -> AbstractContextManager[object]:
        """A block that writes fields of `size` bytes at most, which a Ctrl-C does not leave between pieces of one."""
        return Uninterrupted() if size > PIECE_BYTES else nullcontext()

    def flush(self) -> None:
        """Write the buffer to the stream, unless it is kept, and flush the stream."""
        if self._most_held is not None:
            return
        with Uninterrupted():
            if self._parts:
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._buffered_bytes = 0
                self._stream.write(str(data, "utf-8", "surrogateescape") if self._text else data)
            self._stream.flush()


def _is_terminal(stream: IO[Any]) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
