"""Why the tool cannot go on. Damage in a file is never an error of this kind: it is a finding."""

from collections.abc import Iterator
from contextlib import contextmanager


class KdumpError(Exception):
    """What stopped the work: one complete sentence with the path and the position."""


class SourceError(KdumpError):
    """Something cannot be read: missing, no permission, not a regular file, an I/O error."""


class UnexpectedError(SourceError):
    """A bug in kdump that ends the work on one path; the others go on. `details` is the traceback."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details

    def __reduce__(self) -> tuple[type["UnexpectedError"], tuple[str, str]]:
        return UnexpectedError, (str(self), self.details)


class NotALog(SourceError):
    """A companion of a log, named where a log is expected."""


class NotShown(SourceError):
    """The file at `path` is of a kind that Kafka's dump tool does not show."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: not a file that Kafka's dump tool shows")
        self.path = path

    def __reduce__(self) -> tuple[type["NotShown"], tuple[str]]:
        return NotShown, (self.path,)


class CodecMissing(KdumpError):
    """The library of a codec cannot be imported.

    `codec` is Kafka's name of the codec, `package` is the package to install.
    """

    def __init__(self, codec: str, package: str, why: str) -> None:
        super().__init__(f"{codec} data needs the Python package {package}, which cannot be imported: {why}")
        self.codec = codec
        self.package = package
        self.why = why

    def __reduce__(self) -> tuple[type["CodecMissing"], tuple[str, str, str]]:
        return CodecMissing, (self.codec, self.package, self.why)


class OffsetOutOfRange(KdumpError):
    """The log does not have this offset: it has those from `start` to `end` - 1. A read at `end` finds nothing yet."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        offsets = "the log is empty" if start == end else f"the log has the offsets {start} to {end - 1}"
        super().__init__(f"offset {offset} is out of range: {offsets}, and the next one will be {end}")
        self.offset = offset
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type["OffsetOutOfRange"], tuple[int, int, int]]:
        return OffsetOutOfRange, (self.offset, self.start, self.end)


class MessageTooLarge(KdumpError):
    """A batch is larger than the largest that is read or appended: `size` and `limit` are in bytes.

    `path` and `position` say where the batch is; they are None for a batch that was to be appended.
    """

    def __init__(self, size: int, limit: int, path: str | None = None, position: int | None = None) -> None:
        where = "" if path is None else f"{path}: at byte {position}: "
        super().__init__(f"{where}a batch of {size} bytes, and the largest that is allowed has {limit}")
        self.size = size
        self.limit = limit
        self.path = path
        self.position = position

    def __reduce__(self) -> tuple[type["MessageTooLarge"], tuple[int, int, str | None, int | None]]:
        return MessageTooLarge, (self.size, self.limit, self.path, self.position)


_host = ""


def name_host(host: str) -> None:
    """From now on a reason says that it holds on this host. For processes that read in the place of another machine."""
    global _host  # noqa: PLW0603  # a process works for one machine
    _host = host


def host_clause() -> str:
    """The host on which something cannot be read, as the end of a clause; nothing on the machine of the command."""
    return f" on the host {_host}" if _host else ""


def reason(error: OSError) -> str:
    """Why the operating system refused, as a clause."""
    return (error.strerror or str(error)).lower() + host_clause()


NO_MEMORY = "not enough memory; a smaller --max-batch-bytes bounds what a batch may take"


@contextmanager
def only(path: str, *, writes: bool = False) -> Iterator[None]:
    """Turn what would end the work on every path into a SourceError about this one.

    `writes`: an OSError can be one of the output, which all paths have in common.
    """
    try:
        yield
    except CodecMissing as error:
        raise SourceError(f"{path}: {error}") from None
    except (KdumpError, BrokenPipeError):
        raise
    except OSError as error:
        if writes:
            raise
        raise SourceError(f"{path}: {reason(error)}") from None
    except MemoryError:
        raise SourceError(f"{path}: {NO_MEMORY}") from None
    except Exception as error:  # noqa: BLE001  # a bug about one path is no bug about the others
        raise unexpected(path, error) from None


def if_unexpected(path: str, error: Exception) -> UnexpectedError:
    """The error for an exception that nothing expects. Raises any other again."""
    if isinstance(error, KdumpError | OSError | MemoryError):
        raise error
    return unexpected(path, error)


def unexpected(path: str, error: BaseException, then: str = "") -> UnexpectedError:
    """The error for an exception that nothing expects, with a clause on what follows."""
    import traceback

    what = f"{type(error).__name__}: {error}".rstrip(": ")
    sentence = f"{path}: this is a bug in kdump, an unexpected {what}"
    return UnexpectedError(f"{sentence}; {then}" if then else sentence, "".join(traceback.format_exception(error)))
