"""Paths as a page shows them: without the directory that all of them are in, which its header block alone names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kdump.format.naming import kind_of, topic_partition_of


class PathNames:
    """Shortens the paths of a run over `paths`. `root` is the directory that all of them are in; empty without one."""

    def __init__(self, paths: Sequence[str]) -> None:
        named = [_directory(path.rstrip("/")) for path in paths if path != "-"]
        try:
            self.root = os.path.commonpath(named) if named else ""
        except ValueError:  # relative and absolute ones
            self.root = ""

    def short(self, path: str) -> str:
        """The path inside of the root."""
        if not self.root or path == self.root:
            return os.path.basename(path) or path
        return path.removeprefix(f"{self.root}/")

    def text(self, sentence: str) -> str:
        """A sentence, or a command, with paths inside of the root."""
        if not self.root or self.root == "/":
            return sentence
        return sentence.replace(f"{self.root}/", "").replace(self.root, os.path.basename(self.root))


def _directory(path: str) -> str:
    """The directory whose entries a path is about: that of a partition and that of a file are in another one."""
    plain = path[: path.index(letter)] if (letter := next((one for one in path if one in "*?["), "")) else path
    if plain != path:
        return os.path.dirname(plain)
    name = os.path.basename(path)
    if kind_of(path) is not None:
        return os.path.dirname(_directory_of_file(path))
    return os.path.dirname(path) if topic_partition_of(name) is not None else path


def _directory_of_file(path: str) -> str:
    parent = os.path.dirname(path)
    return parent if topic_partition_of(os.path.basename(parent)) is not None else path
