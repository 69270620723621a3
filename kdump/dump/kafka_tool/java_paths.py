"""What Java's library does with paths, where the output of Kafka's dump tool depends on it."""

import os
import re

from kdump.storage.file_store import store_of

Path = str | os.PathLike[str]

_SLASHES = re.compile("//+")


def file_path(path: Path) -> str:
    """`new File(path).toString()`: one slash in place of several, none at the end. A URL stays as it is."""
    text = os.fspath(path)
    if not store_of(text).is_local:
        return text
    text = _SLASHES.sub("/", text)
    return text if text == "/" else text.rstrip("/")


def absolute_path(path: Path) -> str:
    """`new File(path).getAbsolutePath()`, which keeps `.` and `..`."""
    text = os.fspath(path)
    return file_path(os.path.join(os.getcwd(), text) if store_of(text).is_local else text)
