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


def reason(error: OSError) -> str:
    """Why the system refused, as a clause."""
    return (error.strerror or str(error)).lower()
