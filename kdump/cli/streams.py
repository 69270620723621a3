"""Standard output and standard error, of which every byte is written.

Python's own streams lose the rest of a short write where they are not buffered (PYTHONUNBUFFERED), and raise where a
pipe does not block. A write to Linux takes at most 2 GiB less a page. `install` puts a CompleteWriter below both, and
no buffer of Python's: one that a Ctrl-C leaves in the middle of a write writes the same bytes again.
"""

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kdump.errors import reason
from kdump.render.output import Uninterrupted

STANDARD_OUTPUT: Final = "standard output"
STANDARD_ERROR: Final = "standard error"


class StreamFailure(OSError):
    """A standard stream cannot be written to; `stream` is its name."""

    def __init__(self, stream: str, error: OSError) -> None:
        super().__init__(f"{stream}: {reason(error)}")
        self.stream = stream


class CompleteWriter(io.RawIOBase):
    """Writes everything that it is given to `raw`, and waits where that does not block. A Ctrl-C comes after that.

    Raises BrokenPipeError for a pipe that is closed, StreamFailure for everything else. `before_write` is called before
    each write.
    """

    def __init__(self, raw: Any, name: str) -> None:
        self.raw = raw
        self.before_write: Callable[[], None] | None = None
        self._name = name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self.raw.fileno())

    def isatty(self) -> bool:
        return bool(self.raw.isatty())

    def write(self, data: Any) -> int:
        if self.before_write is not None:
            self.before_write()
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            with Uninterrupted():
                while left:
                    written = self.raw.write(left)
                    if written is None:
                        self._wait()
                    else:
                        left = left[written:]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StreamFailure(self._name, error) from None
        return size

    def _wait(self) -> None:
        """Wait until a descriptor that does not block takes bytes again."""
        import select

        waiting = select.poll()
        waiting.register(self.fileno(), select.POLLOUT)
        waiting.poll()


def install() -> None:
    """Replace sys.stdout and sys.stderr; a stream that is closed stays None."""
    sys.stdout = _complete(sys.stdout, STANDARD_OUTPUT)
    sys.stderr = _complete(sys.stderr, STANDARD_ERROR)


def _complete(stream: Any, name: str) -> Any:
    if stream is None:
        return None
    stream.flush()
    return text_stream(getattr(stream.buffer, "raw", stream.buffer), name, stream)


def text_stream(raw: Any, name: str, like: Any) -> io.TextIOWrapper:
    """A text stream to `raw`, `name` in messages, with the encoding of another one."""
    writer: Any = CompleteWriter(raw, name)  # it writes everything, as a buffer does
    return io.TextIOWrapper(
        writer,
        encoding=like.encoding,
        errors=like.errors,
        # What could not be read is said before the summary that follows it.
        line_buffering=like.line_buffering or name == STANDARD_ERROR,
    )


def writer_of(stream: Any) -> CompleteWriter | None:
    """The CompleteWriter below a standard stream; None where `install` put none."""
    buffer = getattr(stream, "buffer", None)
    return buffer if isinstance(buffer, CompleteWriter) else None


def without_hook(stream: Any) -> Any:
    """Another stream to where `stream` writes, which calls no `before_write`."""
    writer = writer_of(stream)
    return stream if writer is None else text_stream(writer.raw, STANDARD_ERROR, stream)


def drop(stream: Any) -> None:
    """Send what a stream still holds nowhere: the interpreter flushes at its end, and would complain."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def folded(text: str) -> str:
    """Text as it fits a terminal: lines are folded between words, and go on indented. Elsewhere it stays as it is."""
    if not sys.stdout.isatty():
        return text
    import shutil  # on a terminal, and for what is read once
    import textwrap

    fold = textwrap.TextWrapper(
        shutil.get_terminal_size().columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join("\n".join(fold.wrap(line)) for line in text.split("\n"))
