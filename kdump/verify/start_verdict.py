"""What a broker's next start does with all that a run looked at: whether it starts, and what becomes of partitions."""

from typing import Final, NamedTuple

from kdump.verify.findings import Severity
from kdump.verify.next_step import is_damaged
from kdump.verify.report import Report

_NAMED: Final = 3
"""So many paths are named; the others are counted."""


class PathCount(NamedTuple):
    """A number of paths, and the first ones of these."""

    number: int = 0
    first: tuple[str, ...] = ()

    def plus(self, path: str) -> "PathCount":
        """One path more."""
        return PathCount(self.number + 1, self.first if self.number >= _NAMED else (*self.first, path))


class StartVerdict(NamedTuple):
    """What a broker's next start does with what a run looked at.

    `refused` is the first thing that keeps it from starting, a code or an exception with a path. `unknown` says why it
    is not known whether it starts. It truncates the logs of `truncated` at damage, renames the directories `renamed` to
    NAME-stray, and serves `damaged`, where batches are damaged or missing, as they are; what it does about the damage
    of `undecided` is not known. `has_directory`: a directory was looked at, not files alone, of which a broker's start
    says nothing.
    """

    refused: str | None = None
    unknown: str | None = None
    truncated: PathCount = PathCount()
    renamed: PathCount = PathCount()
    damaged: PathCount = PathCount()
    undecided: PathCount = PathCount()
    has_directory: bool = False

    @property
    def starts(self) -> bool | None:
        """Whether a broker starts: True where nothing that was looked at keeps it from that, None where not known."""
        if self.refused is not None:
            return False
        return True if self.has_directory and self.unknown is None else None

    def but_unknown(self, why: str | None) -> "StartVerdict":
        """The same where for a reason it is not known whether a broker starts; None changes nothing."""
        return self if why is None else self._replace(unknown=self.unknown or why)

    def with_report(self, report: Report) -> "StartVerdict":
        """The verdict with the report of one partition more, or of the root of a log directory."""
        verdict, path = self, report.path
        if path and all(each.file.path != path for each in report.files):
            verdict = verdict._replace(has_directory=True)
        elif path:
            verdict = verdict.but_unknown(f"{path} was read alone")
        if report.errors:
            verdict = verdict.but_unknown(str(report.errors[0]))
        is_partition = report.topic_partition is not None
        if is_partition and not report.whole:
            verdict = verdict.but_unknown(f"{path} was not read as a directory of a broker")
        elif is_partition and report.context.start_because == "own":
            verdict = verdict.but_unknown(f"{path} is not in a log directory")
        brokers = {finding.broker for finding in report.findings}
        if "refuses" in brokers and verdict.refused is None:
            first = next(finding for finding in report.findings if finding.broker == "refuses")
            verdict = verdict._replace(refused=f"{first.code} of {first.path}")
        if "renames" in brokers:
            verdict = verdict._replace(renamed=verdict.renamed.plus(path))
        if not is_damaged(report):
            return verdict
        if "truncates" in brokers:
            return verdict._replace(truncated=verdict.truncated.plus(path))
        if not report.whole or any(each.broker is None for each in report.findings if each.severity is Severity.ERROR):
            return verdict._replace(undecided=verdict.undecided.plus(path))
        return verdict._replace(damaged=verdict.damaged.plus(path))
