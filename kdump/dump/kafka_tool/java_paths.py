"""What Java's library does with paths, where the output of Kafka's dump tool depends on it."""

import os
import re

Path = str | os.PathLike[str]

_SLASHES = re.compile("//+")


def file_path(path: Path) -> str:
    """`new File(path).toString()`: one slash in place of several, none at the end."""
    text = _SLASHES.sub("/", os.fspath(path))
    return text if text == "/" else text.rstrip("/")


def absolute_path(path: Path) -> str:
    """`new File(path).getAbsolutePath()`, which keeps `.` and `..`."""
    return file_path(os.path.join(os.getcwd(), os.fspath(path)))
