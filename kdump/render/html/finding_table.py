"""The findings of a page as columns, bounded in bytes: the worst ones stay."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kdump.render.html.budget import Budget
from kdump.render.html.script_data import Column, Encoded, joined, numbers_json, numbers_size, script_string
from kdump.render.sentences import counted, finding_sentence
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding, Severity
from kdump.verify.next_step import repair_of

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

_BYTES: Final = {Severity.ERROR: 1792 << 10, Severity.WARNING: 1024 << 10, Severity.INFO: 512 << 10}
"""The bytes of the page for the findings of each severity."""
_SMALL_NUMBERS: Final = 32
"""The bytes of the numbers of a row that index something, and of its quotes and commas."""
_NUMBERS: Final = ("code", "severity", "file", "position", "length", "offset", "broker")


class FindingTable:
    """Collects findings. `name_of` shortens a path, `budget` is that of the page. `not_kept`: counted and not kept."""

    def __init__(self, name_of: Callable[[str], str], budget: Budget) -> None:
        self._name_of = name_of
        self._columns: dict[str, list[int | None]] = {name: [] for name in _NUMBERS}
        self._texts: list[Encoded] = []
        self._codes, self._files, self._brokers, self._partitions = Column(), Column(), Column(), Column()
        self._of_file: list[tuple[int, int | None]] = []
        self._budgets = {severity: budget.part(size) for severity, size in _BYTES.items()}
        self._cut: Counter[str] = Counter()
        self.not_kept = 0

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        severity, word = finding.severity, finding.severity.word
        if word in self._cut:  # the first ones stay
            self._cut[word] += 1
            return
        text = script_string(self._name_of(finding_sentence(finding)))
        of = finding.topic_partition
        path, name = self._name_of(os.fspath(finding.path)), None if of is None else f"{of.topic}-{of.partition}"
        numbers = finding.position, finding.length, finding.offset
        size = len(text.encode()) + numbers_size(numbers) + _SMALL_NUMBERS
        if (of_file := self._files.size(path)) != 0:
            size += of_file + numbers_size((finding.segment,)) + _SMALL_NUMBERS
            size += 0 if name is None else self._partitions.size(name) + _SMALL_NUMBERS
        if not self._budgets[severity].take(size):
            self._cut[word] += 1
            return
        if of_file:
            self._of_file.append((-1 if name is None else self._partitions.index(name), finding.segment))
        row = self._codes.index(finding.code), int(severity), self._files.index(path), *numbers
        for column, value in zip(
            self._columns.values(), (*row, self._brokers.index(finding.broker or "")), strict=True
        ):
            column.append(value)
        self._texts.append(text)

    @property
    def count(self) -> int:
        return len(self._texts)

    @property
    def cut(self) -> list[str]:
        """What is said of the findings that are not on the page."""
        said = [
            f"{counted(count, 'more finding')} of severity {word} {'is' if count == 1 else 'are'} not on this page: it "
            "has room for so many; --level, --select and --ignore choose, --format json has all"
            for word, count in self._cut.items()
        ]
        if self.not_kept:
            said.append(f"{counted(self.not_kept, 'finding')} of the same code and file were counted and not kept")
        return said

    def data(self) -> Fields:
        """The columns, and what the catalogue says of each code."""
        return {
            **{name: numbers_json(column) for name, column in self._columns.items()},
            "text": joined(self._texts),
            "codes": [_explanation(code) for code in self._codes.texts],
            "brokers": self._brokers.texts,
            "files": {
                "name": self._files.texts,
                "partition": [partition for partition, _ in self._of_file],
                "segment": [segment for _, segment in self._of_file],
            },
            "partitions": self._partitions.texts,
        }


def _explanation(code: str) -> Fields:
    entry = CATALOGUE[code]
    return {
        "code": code,
        "title": entry.title,
        "why": entry.why,
        "recover": entry.recover,
        "command": repair_of(code),
        "source": entry.source,
    }
