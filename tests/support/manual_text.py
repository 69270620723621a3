"""What tests read out of the manual pages: commands, programs, and the tables with the meaning of fields."""

from __future__ import annotations

import re
from collections.abc import Iterable

from support.manual import LITERAL, pages

SPARK = "kdump-spark.7"
REPLICAS = "kdump-replicas.7"
LIBRARY = "kdump.3"
OTHERS = (SPARK, REPLICAS, LIBRARY)
"""The pages that are not of a command."""


def page_of(command: str) -> str:
    """The page of a command, or of kdump itself."""
    return pages()["kdump.1" if command == "kdump" else f"kdump-{command}.1"]


def read(text: str) -> str:
    """Text as a reader sees it."""
    text = re.sub(r"\\f[IR]|\\&|\\\(.q", lambda match: "'" if match[0] == "\\(aq" else "", text)
    for char, escape in LITERAL.items():
        if char != "\\":
            text = text.replace(escape, char)
    return text.replace("\\e", "\\")


def plain(text: str) -> str:
    """The words of a page, or of a part of it, without its macros."""
    lines = [line for line in text.splitlines() if not line.startswith('.\\"')]
    return " ".join(re.sub(r"^\.\w+ ?", "", read(line)) for line in lines)


def parts(text: str, macro: str) -> dict[str, str]:
    """What stands below each heading."""
    _, *found = re.split(rf"(?m)^\.{macro} (.*)\n", text)
    return dict(zip(found[::2], found[1::2], strict=True))


def section(text: str, title: str) -> str:
    return parts(text, "Sh")[title]


def table(text: str) -> dict[str, str]:
    """The rows of the tables and lists in a text: the name of each, and what is said of it."""
    _, *found = re.split(r'(?m)^\.It Li "((?:[^"]|"")*)"(?: Ta)?\n', text)
    names = [read(name.replace('""', '"')) for name in found[::2]]
    assert len({*names}) == len(names), "a row twice"
    return dict(zip(names, [plain(row.partition("\n.El")[0]) for row in found[1::2]], strict=True))


def tables(text: str) -> dict[str, dict[str, str]]:
    """The rows of the table below each second heading of a section."""
    return {title: table(words) for title, words in parts(text, "Ss").items()}


def fields(command: str) -> dict[str, dict[str, str]]:
    """The fields of each type of line that a command writes as JSON, and their meaning."""
    return tables(section(page_of(command), "JSON"))


def literals(text: str) -> list[list[str]]:
    """The lines of each block that is shown as it is typed."""
    blocks = re.findall(r"(?ms)^\.Bd -literal[^\n]*\n(.*?)^\.Ed$", text)
    return [[read(line) for line in block.splitlines()] for block in blocks]


def commands(lines: Iterable[str]) -> list[str]:
    """Commands, each in one line: a long one goes on after a |, in a line that is indented."""
    return "\n".join(lines).replace("\n    ", " ").splitlines()


def examples(command: str) -> list[str]:
    """The commands of the section EXAMPLES."""
    return [one for block in literals(section(page_of(command), "EXAMPLES")) for one in commands(block)]


def runbook() -> list[str]:
    """The commands of the runbook."""
    return [one for block in literals(section(page_of("recover"), "RUNBOOK")) for one in commands(block)]
