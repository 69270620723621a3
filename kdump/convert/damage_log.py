"""Collects the damage of a topic-partition while it is converted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdump.convert.preparation import PreparedPartition
from kdump.convert.results import ConvertFindings, CopyDamage, DamagedLog, MisplacedRecords, SkippedRange
from kdump.log.damage import MISPLACED, DamagedRange
from kdump.storage.partition import natural
from kdump.verify.findings import KEPT, Finding, Severity

NOTHING: Final = "nothing in this partition was converted"


class DamagedRanges:
    """Takes ranges of bytes that are not a valid batch; keeps the first ones of a code and file, and counts all."""

    def __init__(self) -> None:
        self.kept: list[DamagedRange] = []
        self.ranges = self.bytes = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, damaged: DamagedRange) -> None:
        self.ranges += damaged.length > 0  # else its records are rows
        self.bytes += damaged.length
        of = damaged.path, damaged.code
        self._counts[of] += 1
        if self._counts[of] <= KEPT:
            self.kept.append(damaged)

    @property
    def not_kept(self) -> Mapping[tuple[str, str], int]:
        """The numbers of ranges that are not kept, by path and code."""
        return {of: count - KEPT for of, count in self._counts.items() if count > KEPT}

    @property
    def dropped(self) -> int:
        """How many ranges are not kept."""
        return sum(self.not_kept.values())


class DamageLog(DamagedRanges):
    """The damage of a topic-partition, which its output does not have, and what is wrong with its copies.

    With `strict` the first range raises DamagedLog.
    """

    def __init__(self, prepared: PreparedPartition | None = None, *, strict: bool = False, outcome: str = "") -> None:
        """`prepared` is None for a part of a log. `outcome`: what becomes of the output where DamagedLog is raised."""
        super().__init__()
        self._outcome = outcome or NOTHING
        self._strict = strict
        self._prepared = prepared
        self._findings: tuple[Finding, ...] = ()
        self._of_copies = DamagedRanges()

    def begin(self) -> None:
        """Take what was found before the log is read. Raises DamagedLog."""
        if self._prepared is None:
            return
        self._findings = self._prepared.findings
        take = self._of_copies if len(self._prepared.merged.replicas) > 1 else self
        for damaged in self._prepared.damage:
            take(damaged)
        if self._strict:
            for error in self._prepared.merged.errors:
                raise DamagedLog(f"{error}; {self._outcome}")
        worst = max((each.severity for each in self._findings), default=Severity.INFO)
        if self._strict and worst is Severity.ERROR:
            found = next(each for each in self._findings if each.severity is worst)
            raise DamagedLog(f"{found.path}: {found.message}; {self._outcome}")

    def __call__(self, damaged: DamagedRange) -> None:
        super().__call__(damaged)
        if self._strict and damaged.severity is Severity.ERROR:
            message = _skipped(damaged).message
            raise DamagedLog(f"{damaged.path}: byte {damaged.position}: {message}; {self._outcome}")

    def values(self) -> Iterator[ConvertFindings]:
        """What was kept, in the order of path and position; nothing where there is none."""
        copies = self._of_copies
        found = [*self._findings, *map(_of_copy, copies.kept), *map(_skipped, self.kept)]
        if found:
            yield _in_order(found, dict(Counter(copies.not_kept) + Counter(self.not_kept)))


def _skipped(damaged: DamagedRange) -> SkippedRange | MisplacedRecords:
    if damaged.code == MISPLACED:
        where = damaged.path, damaged.position, damaged.length, damaged.first_offset
        return MisplacedRecords(damaged.code, damaged.severity, *where, data={"last": damaged.last_offset})
    return SkippedRange(damaged.code, damaged.severity, damaged.path, damaged.position, damaged.length)


def _of_copy(damaged: DamagedRange) -> CopyDamage:
    return CopyDamage(damaged.code, Severity.WARNING, damaged.path, damaged.position, damaged.length)


def joined_findings(parts: Iterable[ConvertFindings]) -> Iterator[ConvertFindings]:
    """What was found in the parts of a log, in their order, as in the whole; nothing where there is none."""
    counts, kept, not_kept = Counter[tuple[str, str]](), list[Finding](), Counter[tuple[str, str]]()
    for part in parts:
        for finding in part.findings:
            of = finding.path, finding.code
            counts[of] += 1
            if counts[of] <= KEPT:
                kept.append(finding)
            else:
                not_kept[of] += 1
        not_kept.update(part.not_kept)
    if kept:
        yield _in_order(kept, dict(not_kept))


def _in_order(findings: Iterable[Finding], not_kept: Mapping[tuple[str, str], int]) -> ConvertFindings:
    found = sorted(findings, key=lambda each: (natural(each.path), each.position))
    return ConvertFindings(tuple(found), not_kept)
