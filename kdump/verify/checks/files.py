"""Names: files and directories that do not belong where they lie."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kdump.storage.misplaced import MisplacedFile
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.findings import Finding, Severity, found

STRAYS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "deleted": ("file/leftover", {"what": "deleted"}),
    "cleaned": ("file/leftover", {"what": "cleaned"}),
    "swap": ("file/leftover", {"what": "swap"}),
    "swap-dropped": ("file/leftover", {"what": "swap-dropped"}),
    "tmp": ("file/leftover", {"what": "tmp"}),
    "part": ("file/leftover", {"what": "part"}),
    "index": ("file/orphan", {"what": "index"}),
    "unknown": ("file/unknown", {}),
    "number": ("file/name", {"problem": "number"}),
    "short": ("file/name", {"problem": "short"}),
    "negative": ("file/name", {"problem": "negative"}),
    "partition": ("file/name", {"problem": "partition"}),
    "duplicate": ("file/name", {"problem": "duplicate"}),
    "directory": ("file/directory", {}),
    "loop": ("file/loop", {}),
    "unfinished": ("undo/unfinished", {}),
}
"""What a stray is, as the code and the data of its finding."""


def partition(of: Partition, *, live: bool = False) -> Iterator[Finding]:
    """The strays of a topic-partition directory. While a broker is `live`, what it is about to delete or put in place is info."""
    return _explain(of.strays, Severity.INFO if live else None)


def log_directory(of: LogDirectory, *, live: bool = False) -> Iterator[Finding]:
    """The strays at the root of a log directory; `live` as in `partition`."""
    return _explain(of.strays, Severity.INFO if live else None)


def _explain(strays: Iterable[MisplacedFile], leftover: Severity | None = None) -> Iterator[Finding]:
    for stray in strays:
        code, data = STRAYS[stray.what]
        severity = leftover if code == "file/leftover" else None
        yield found(code, stray.path, 0, stray.size, severity=severity, **data)
