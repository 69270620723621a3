"""From paths to files: a file as named, a directory and what is below it, a glob."""

import glob
import os
import re
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.naming import Kind
from kdump.source import FileSource


class LogFile(NamedTuple):
    """A file to be read. `base_offset` is None where the name does not say it; `newest` when no later segment lies beside it."""

    path: str
    kind: Kind
    base_offset: int | None
    newest: bool
    size: int
    read_from: str | None = None
    """Where the bytes lie, when not at `path`."""

    @property
    def preallocated(self) -> bool:
        """Whether zeros at its end can be room that a broker took in advance: in the newest segment, but never in 0.7."""
        return self.newest and self.kind is not Kind.KAFKA07

    def open(self) -> FileSource:
        """The bytes. Raises SourceError."""
        return FileSource(self.read_from or self.path)


def discover(
    paths: Iterable[str], kind: Kind | None = None, seen: set[tuple[int, int]] | None = None
) -> Iterator[LogFile | SourceError]:
    """The log files that the paths name, in natural order, each once; what cannot be read comes as an error in its place.

    A file named directly is read whatever its name; `kind` says what it is when the name does not. Below directories only known suffixes count.
    Symbolic links are followed, each directory is entered once. `seen` holds device and inode of what earlier calls gave.
    """
    seen = set() if seen is None else seen
    for path in paths:
        for found in _expand(path):
            try:
                status = os.stat(found)
            except (OSError, ValueError) as error:
                yield SourceError(
                    f"{found}: {error.strerror.lower() if isinstance(error, OSError) and error.strerror else error}"
                )
                continue
            if os.path.isdir(found):
                if not (yield from _below(found, seen)):
                    yield SourceError(f"{found}: no log files here")
            elif kind is None and (companion := naming.companion_of(found)) is not None:
                yield SourceError(f"{found}: {companion}, not a log file (--type log reads it as one)")
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield _file(found, kind or naming.kind_of(found) or Kind.LOG, status.st_size)


def _expand(path: str) -> list[str]:
    if glob.has_magic(path) and not os.path.lexists(path):
        return sorted(glob.glob(path, recursive=True), key=natural) or [path]
    return [path]


def _below(directory: str, seen: set[tuple[int, int]]) -> Generator[LogFile | SourceError, None, bool]:
    """What lies below, without what was `seen` before; whether there was anything to be read or to complain of."""
    status = os.stat(directory)
    if (status.st_dev, status.st_ino) in seen:
        return True
    seen.add((status.st_dev, status.st_ino))
    try:
        names = sorted(os.listdir(directory), key=natural)
    except OSError as error:
        yield SourceError(f"{directory}: {(error.strerror or str(error)).lower()}")
        return True
    some = False
    for name in names:
        path = os.path.join(directory, name)
        try:
            status = os.stat(path)
        except OSError as error:
            if naming.kind_of(name) is not None:
                some = True
                yield SourceError(f"{path}: {(error.strerror or str(error)).lower()}")
            continue
        if os.path.isdir(path):
            some |= yield from _below(path, seen)
        elif (kind := naming.kind_of(name)) is not None and naming.plain_name(name) == name:
            some = True
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield _file(path, kind, status.st_size)
    return some


def _file(path: str, kind: Kind, size: int) -> LogFile:
    # The offsets of a snapshot count from 0, whatever its name says.
    base = 0 if kind is Kind.CHECKPOINT else naming.base_offset_of(path)
    return LogFile(path, kind, base, _is_newest(path, kind, base), size)


def _is_newest(path: str, kind: Kind, base: int | None) -> bool:
    if base is None or kind is Kind.CHECKPOINT:
        return True
    try:
        names = os.listdir(os.path.dirname(path) or ".")
    except OSError:
        return True
    suffix = naming.suffix_of(kind)
    return all(
        (other := naming.base_offset_of(name)) is None or other <= base for name in names if name.endswith(suffix)
    )


_NUMBERS = re.compile(r"(\d+)")


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts topic-2 before topic-10."""
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(name)]
