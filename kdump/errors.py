"""Why the tool cannot go on. Damage in a file is never an error of this kind: it is a finding."""


class KdumpError(Exception):
    """What stopped the work: one complete sentence with the path and the position."""


class SourceError(KdumpError):
    """Something cannot be read: missing, no permission, not a regular file, an I/O error."""


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
