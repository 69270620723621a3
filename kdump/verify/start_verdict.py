"""What a broker's next start does with all that a run looked at: whether it starts, and what becomes of partitions."""

import os
from typing import Final

from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
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


class StartLoss(NamedTuple):
    """What is lost in partitions with damage, as far as a verify knows it.

    A start gives up `records` valid ones, and more where not `exact`: batches after the damage in the same segment were
    not counted. `offsets` are the first one that it gives up and the next after them; None where they are not known, or
    belong to several partitions. `damaged_bytes` are in no valid batch, `missing` is a number of offsets.
    """

    records: int = 0
    exact: bool = True
    offsets: tuple[int, int] | None = None
    damaged_bytes: int = 0
    missing: int = 0

    def plus(self, report: Report, *, truncated: bool) -> "StartLoss":
        """The same with a partition more; `truncated`: a start truncates its log."""
        absent = (one.data.get("missing") for one in report.findings if one.code == "segment/missing" and one.severity)
        records, exact = _given_up(report) if truncated else (0, True)
        return StartLoss(
            self.records + records,
            self.exact and exact,
            _offsets(report) if truncated else None,
            self.damaged_bytes + sum(file.bytes - file.valid_bytes for file in report.files),
            self.missing + sum(count for count in absent if isinstance(count, int)),
        )


def _given_up(report: Report) -> tuple[int, bool]:
    """The valid records that a start removes from the logs, and whether these are all."""
    outcome, records, exact = report.outcome, 0, True
    if outcome is None:
        return 0, False
    for file in report.files:
        name = os.path.basename(file.file.path)
        cut = 0 if name in outcome.deleted_files else outcome.truncations.get(name)
        if cut is None or cut >= file.valid_bytes:  # all before it is valid, so that nothing valid comes after it
            exact &= name not in outcome.emptied_logs
        elif cut == 0 and file.records is not None:
            records += file.records
        else:
            exact = False
    return records, exact


def _offsets(report: Report) -> tuple[int, int] | None:
    """The offsets that a start takes from the end of a log, the first one and the next after them."""
    outcome, end = report.outcome, report.log_end_offset
    if outcome is None or end is None or outcome.log_end_offset >= end:
        return None
    return outcome.log_end_offset, end


class StartVerdict(NamedTuple):
    """What a broker's next start does with what a run looked at.

    `refused` is the first thing that keeps it from starting, a code or an exception with a path. `unknown` says why it
    is not known whether it starts. It truncates the logs of `truncated` at damage, renames the directories `renamed` to
    NAME-stray, and serves `damaged`, where batches are damaged or missing, as they are; what it does about the damage
    of `undecided` is not known. `has_directory`: a directory was looked at, not files alone, of which a broker's start
    says nothing. `loss` is what is lost in the partitions with damage.
    """

    refused: str | None = None
    unknown: str | None = None
    truncated: PathCount = PathCount()
    renamed: PathCount = PathCount()
    damaged: PathCount = PathCount()
    undecided: PathCount = PathCount()
    has_directory: bool = False
    loss: StartLoss = StartLoss()

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
        verdict = verdict._replace(loss=verdict.loss.plus(report, truncated="truncates" in brokers))
        if "truncates" in brokers:
            return verdict._replace(truncated=verdict.truncated.plus(path))
        if not report.whole or any(each.broker is None for each in report.findings if each.severity is Severity.ERROR):
            return verdict._replace(undecided=verdict.undecided.plus(path))
        return verdict._replace(damaged=verdict.damaged.plus(path))
