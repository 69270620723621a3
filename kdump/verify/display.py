"""Which findings a person is shown: those from a severity on, and of many of one code and file the first ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
from kdump.verify.report import NotKept
from kdump.verify.summary import names_code

if TYPE_CHECKING:
    from kdump.verify.findings import Finding

ONE_LINE: Final = frozenset(("checkpoint/unknown",))
"""The codes of which all findings of a file are one line: they have one cause."""
LINES: Final = 20
"""How many findings of one code and file are shown where they are folded."""
_NOTHING: Final[NotKept] = Counter()


class FoldedFindings(NamedTuple):
    """The findings of one code and file that are not shown, after those that are.

    `others` is their exact number. Verify kept `kept` of them; no option shows the rest. `first` is the only one that
    is shown, where all are one line.
    """

    path: str
    code: str
    others: int
    kept: int
    first: "Finding | None" = None


class FindingDisplay(NamedTuple):
    """The findings that are shown: of the severity `level` and higher, and those that `select` names.

    `lines` is how many of one code and file are shown, None for all that verify kept. `folds`: the others are counted.
    """

    level: Severity = Severity.INFO
    select: tuple[str, ...] = ()
    lines: int | None = None
    folds: bool = False

    def takes(self, code: str, severity: Severity) -> bool:
        """Whether findings of this code and severity are shown."""
        return severity >= self.level or any(names_code(pattern, code) for pattern in self.select)

    def shown(
        self, findings: "Iterable[Finding]", not_kept: Mapping[tuple[str, str], int] = _NOTHING
    ) -> "Iterator[Finding | FoldedFindings]":
        """The findings that are shown, in their order, and after those of a file the numbers of the others.

        `not_kept` has the number of findings that verify did not keep, by path and code.
        """
        path, seen = "", Counter[str]()
        first: dict[str, Finding] = {}
        for finding in findings:
            if finding.path != path:
                yield from self._folded(path, seen, first, not_kept)
                path, seen, first = finding.path, Counter(), {}
            if self.takes(finding.code, finding.severity):
                seen[finding.code] += 1
                if finding.code in ONE_LINE and self.lines is not None:
                    first.setdefault(finding.code, finding)
                elif self.lines is None or seen[finding.code] <= self.lines:
                    yield finding
        yield from self._folded(path, seen, first, not_kept)

    def _folded(
        self,
        path: str,
        seen: Mapping[str, int],
        first: "Mapping[str, Finding]",
        not_kept: Mapping[tuple[str, str], int],
    ) -> "Iterator[Finding | FoldedFindings]":
        for code, count in seen.items() if self.folds else ():
            one = first.get(code)
            kept = 0 if self.lines is None else max(0, count - (self.lines if one is None else 1))
            if others := kept + not_kept.get((path, code), 0):
                yield FoldedFindings(path, code, others, kept, one)
            elif one is not None:
                yield one
