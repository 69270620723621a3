"""The tool cannot go on. That a file is damaged is never one of these: damage is a finding."""


class KdumpError(Exception):
    """What stopped the work, as one complete sentence with path and place in it."""


class SourceError(KdumpError):
    """Something cannot be read: missing, no permission, not a regular file, an I/O error."""


class NotALog(SourceError):
    """A file that lies beside logs, named where a log is wanted."""


class NotShown(SourceError):
    """A file at `path` for which the format of Kafka's dump tool has no lines."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: not a file that Kafka's dump tool shows")
        self.path = path

    def __reduce__(self) -> tuple[type["NotShown"], tuple[str]]:
        return NotShown, (self.path,)


class CodecMissing(KdumpError):
    """The library of a codec cannot be imported.

    `codec` is Kafka's name of the codec, `package` what to install.
    """

    def __init__(self, codec: str, package: str, why: str) -> None:
        super().__init__(f"{codec} data needs the Python package {package}, which cannot be imported: {why}")
        self.codec = codec
        self.package = package
        self.why = why

    def __reduce__(self) -> tuple[type["CodecMissing"], tuple[str, str, str]]:
        return CodecMissing, (self.codec, self.package, self.why)


class OffsetOutOfRange(KdumpError):
    """An offset that a log does not have: it has those from `start` on up to before `end`, and a read at `end` finds nothing yet."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        there = "the log is empty" if start == end else f"the log has the offsets {start} to {end - 1}"
        super().__init__(f"offset {offset} is out of range: {there}, and the next one will be {end}")
        self.offset = offset
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[type["OffsetOutOfRange"], tuple[int, int, int]]:
        return OffsetOutOfRange, (self.offset, self.start, self.end)


class MessageTooLarge(KdumpError):
    """A batch of `size` bytes at `position` of the file at `path`, where at most `limit` bytes are read, or taken.

    `path` and `position` are None for one that was to be appended.
    """

    def __init__(self, size: int, limit: int, path: str | None = None, position: int | None = None) -> None:
        place = "" if path is None else f"{path}: at byte {position}: "
        super().__init__(f"{place}a batch of {size} bytes, and the largest that is allowed has {limit}")
        self.size = size
        self.limit = limit
        self.path = path
        self.position = position

    def __reduce__(self) -> tuple[type["MessageTooLarge"], tuple[int, int, str | None, int | None]]:
        return MessageTooLarge, (self.size, self.limit, self.path, self.position)


def reason(error: OSError) -> str:
    """Why the system refused, as a clause."""
    return (error.strerror or str(error)).lower()
