"""The checks `file/*` and `undo/unfinished`: files and directories whose names do not belong where they are."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kdump.storage.misplaced import MisplacedFile
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.findings import Finding, Severity, make_finding

MISPLACED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
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
"""The code and the data of the finding for each kind of MisplacedFile."""


def check_partition(of: Partition, *, live: bool = False) -> Iterator[Finding]:
    """The misplaced files of a topic-partition directory.

    `live`: a broker is running. Files that it is about to delete or to rename are then info.
    """
    return _findings(of.misplaced_files, Severity.INFO if live else None)


def check_log_directory(of: LogDirectory, *, live: bool = False) -> Iterator[Finding]:
    """The misplaced files in a log directory itself. `live` as in `check_partition`."""
    for each in _findings(of.misplaced_files, Severity.INFO if live else None):
        yield replace(each, in_log_directory=True)


def _findings(files: Iterable[MisplacedFile], leftover: Severity | None = None) -> Iterator[Finding]:
    for file in files:
        code, data = MISPLACED[file.what]
        severity = leftover if code == "file/leftover" else None
        yield make_finding(code, file.path, 0, file.size, offset=None, severity=severity, **data)
