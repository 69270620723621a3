"""Collects the damage of a topic-partition while it is converted."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kdump.convert.preparation import PreparedPartition
from kdump.convert.results import ConvertFindings, CopyDamage, DamagedLog, SkippedRange
from kdump.log.batch_location import DamagedRange
from kdump.storage.partition import natural
from kdump.verify.findings import CATALOGUE, KEPT, Finding, Severity

_NOTHING: Final = "nothing of this partition was converted"


class DamageLog:
    """Takes each range of bytes that is skipped; keeps the first ones of a code and file, and counts all.

    With `strict` the first one raises DamagedLog.
    """

    def __init__(self, prepared: PreparedPartition, *, strict: bool = False, outcome: str = "") -> None:
        """`outcome` says what becomes of the output where DamagedLog is raised."""
        self._outcome = outcome or _NOTHING
        self._strict = strict
        self._counts: Counter[tuple[str, str]] = Counter()
        self._kept: list[Finding] = []
        self.ranges = self.bytes = 0
        self._prepared = prepared

    def begin(self) -> None:
        """Take what was found before the log is read. Raises DamagedLog."""
        self._kept += self._prepared.findings
        of_copies = len(self._prepared.merged.replicas) > 1
        for damaged in self._prepared.damage:
            if of_copies:
                self._keep(CopyDamage(damaged.code, Severity.WARNING, damaged.path, damaged.position, damaged.length))
            else:
                self(damaged)
        worst = max((each.severity for each in self._prepared.findings), default=Severity.INFO)
        if self._strict and worst is Severity.ERROR:
            found = next(each for each in self._prepared.findings if each.severity is worst)
            raise DamagedLog(f"{found.path}: {found.message}; {self._outcome}")

    def __call__(self, damaged: DamagedRange) -> None:
        self.ranges += 1
        self.bytes += damaged.length
        severity = CATALOGUE[damaged.code].severity
        found = SkippedRange(damaged.code, severity, damaged.path, damaged.position, damaged.length)
        self._keep(found)
        if self._strict:
            raise DamagedLog(f"{damaged.path}: byte {damaged.position}: {found.message}; {self._outcome}")

    def _keep(self, finding: Finding) -> None:
        of = finding.path, finding.code
        self._counts[of] += 1
        if self._counts[of] <= KEPT:
            self._kept.append(finding)

    def values(self) -> Iterator[ConvertFindings]:
        """What was kept, in the order of path and position; nothing where there is none."""
        if self._kept:
            found = sorted(self._kept, key=lambda each: (natural(each.path), each.position))
            not_kept = {of: count - KEPT for of, count in self._counts.items() if count > KEPT}
            yield ConvertFindings(tuple(found), not_kept)
