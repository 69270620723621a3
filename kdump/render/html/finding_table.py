"""The findings of a page as columns, bounded in bytes: the worst ones stay."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kdump.render.html.script_data import Column, Encoded, joined, script_string
from kdump.render.sentences import counted, finding_sentence
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding, Severity
from kdump.verify.next_step import repair_of

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

_BUDGETS: Final = {Severity.ERROR: 2 << 20, Severity.WARNING: 1 << 20, Severity.INFO: 1 << 20}
"""The bytes of the page for the findings of each severity."""
_ROW_BYTES: Final = 40
"""What the numbers of a row take, at most on average."""
_NUMBERS: Final = ("code", "severity", "file", "position", "length", "offset", "broker")


class FindingTable:
    """Collects findings. `name_of` shortens a path."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._columns: dict[str, list[int | None]] = {name: [] for name in _NUMBERS}
        self._texts: list[Encoded] = []
        self._codes, self._files, self._brokers, self._partitions = Column(), Column(), Column(), Column()
        self._of_file: list[tuple[int, int | None]] = []
        self._names: list[tuple[str, int]] = []
        self._left = dict(_BUDGETS)
        self._cut: Counter[str] = Counter()
        self._not_kept = 0

    def add(self, findings: Iterable[Finding], not_kept: Mapping[tuple[str, str], int]) -> None:
        """Add findings, and the numbers of those that were counted and not kept."""
        for finding in findings:
            self._add(finding)
        self._not_kept += sum(not_kept.values())

    def _add(self, finding: Finding) -> None:
        severity = finding.severity
        if self._left[severity] <= 0:
            self._cut[severity.word] += 1
            return
        text = script_string(self._name_of(finding_sentence(finding)))
        file, taken = self._file(finding)
        code, _ = self._codes.index(finding.code)
        broker, _ = self._brokers.index(finding.broker or "")
        self._left[severity] -= taken + len(text.encode()) + _ROW_BYTES
        row = code, int(severity), file, finding.position, finding.length, finding.offset, broker
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)
        self._texts.append(text)

    def _file(self, finding: Finding) -> tuple[int, int]:
        """The number of the file of a finding, and how many bytes it adds."""
        found, taken = self._files.index(self._name_of(os.fspath(finding.path)))
        if taken:
            of = finding.topic_partition
            name = -1
            if of is not None:
                name, more = self._partitions.index(f"{of.topic}-{of.partition}")
                taken += more
                if more:
                    self._names.append((of.topic, of.partition))
            self._of_file.append((name, finding.segment))
        return found, taken + 12 * bool(taken)

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
        if self._not_kept:
            said.append(f"{counted(self._not_kept, 'finding')} of the same code and file were counted and not kept")
        return said

    def data(self) -> Fields:
        """The columns, and what the catalogue says of each code."""
        return {
            **self._columns,
            "text": joined(self._texts),
            "codes": [_explanation(code) for code in self._codes.texts],
            "brokers": self._brokers.texts,
            "files": {
                "name": self._files.texts,
                "partition": [partition for partition, _ in self._of_file],
                "segment": [segment for _, segment in self._of_file],
            },
            "partitions": {
                "name": self._partitions.texts,
                "topic": [topic for topic, _ in self._names],
                "partition": [partition for _, partition in self._names],
            },
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
