"""Paths as a page shows them: without the directory that all of them are in, which its header block alone names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from kdump.format.naming import kind_of, topic_partition_of
from kdump.render.escaping import printable

_QUOTED: Final = re.compile(r"'([\w@%+=:,./-]+)'", re.ASCII)
"""A word that needs no quotes in a command: it may have needed them because of the directory that it was in."""


class PathNames:
    """Shortens the paths of a run over `paths`. `root` is the directory that all of them are in; empty without one.

    `reproducible`: the name of that directory is nowhere either; it is `.`, and so a command is one to run in it.
    """

    def __init__(self, paths: Sequence[str], *, reproducible: bool = False) -> None:
        self.reproducible = reproducible
        named = sorted({_directory(path.rstrip("/")) for path in paths if path != "-"})
        try:
            self.root = os.path.commonpath(named) if named else ""
        except ValueError:  # relative and absolute ones
            self.root = ""
        self._cuts = {spelled: name for of, name in self._named(named) for spelled in _spellings(of)}
        several = "|".join(re.escape(each) for each in sorted(self._cuts, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<![\w./-])({several})(?:(/)(?=[^\s/])|(?![\w/-]|\.\w)/?)") if several else None

    def _named(self, directories: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Directories, and what stands for each."""
        if self.root and self.root != "/":
            is_hidden = self.reproducible and self.root.startswith("/")  # a relative one can be a word of a sentence
            yield self.root, "." if is_hidden else os.path.basename(self.root)
            return
        yield from ((each, each.lstrip("/")) for each in directories if each.startswith("/") and each != "/")

    def text(self, sentence: str) -> str:
        """A sentence, or a command, with paths inside of the root."""
        short = sentence if self._pattern is None else self._pattern.sub(self._cut, sentence)
        return _QUOTED.sub(r"\1", short) if self.reproducible else short

    def _cut(self, found: re.Match[str]) -> str:
        name = self._cuts[found[1]]
        if not found[2]:
            return name
        return "" if self.root and self.root != "/" else f"{name}/"


def _spellings(path: str) -> set[str]:
    """A path as it is, as sentences have it, and as commands have it inside of quotes."""
    return {path, printable(path), shlex.quote(path).strip("'")}


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
