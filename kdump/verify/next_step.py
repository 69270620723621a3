"""The command that comes after a verify: what repairs, or previews the repair of, what it found."""

import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kdump.format.naming import TopicPartition, number_of
from kdump.log.severity import Severity
from kdump.verify.report import Report

if TYPE_CHECKING:
    from kdump.verify.findings import Finding


class RepairStep(IntEnum):
    """What is to be done with a partition; the highest step of all partitions is the next one."""

    NOTHING = 0
    REINDEX = 1
    RECOVER = 2
    RESUME = 3


_OPTIONS: Final = {
    RepairStep.REINDEX: ("--reindex", "--dry-run"),
    RepairStep.RECOVER: (),
    RepairStep.RESUME: ("--resume",),
}
REBUILT: Final = ("index/", "timeindex/", "txnindex/", "snapshot/", "epoch/")
"""The families of the files that are rebuilt from the log."""
_ELSEWHERE: Final = frozenset(("batch/limit", "txn/hanging", "metadata/topic-id", "metadata/topic"))
"""What no recovery changes."""
_NOT_OF_BATCHES: Final = ("metadata/", "file/", "properties/", "undo/", "time/", "producer/", "txn/")
"""The families whose errors are not about batches that are damaged or missing."""
_NOT_OF_A_LOG: Final = ("time/", "producer/", "properties/", "checkpoint/")
"""The families of which a recovery changes nothing, or only what a broker corrects by itself."""


def _step_of(finding: "Finding") -> RepairStep:
    if finding.code == "undo/unfinished":
        return RepairStep.RESUME
    if finding.severity < Severity.WARNING or finding.code in _ELSEWHERE:
        return RepairStep.NOTHING
    if finding.code.startswith(REBUILT):
        return RepairStep.REINDEX
    changes = finding.broker in ("truncates", "deletes", "rebuilds", "refuses")
    return RepairStep.RECOVER if finding.severity is Severity.ERROR or changes else RepairStep.NOTHING


def repair_of(code: str) -> str:
    """The command that repairs findings of a code, as a clause."""
    from kdump.verify.reaction import TRUNCATION_CODES  # which loads the model of the broker

    if code == "undo/unfinished":
        return "kdump recover --resume PATH finishes the run, --undo reverts it"
    if code in _ELSEWHERE or code.startswith(_NOT_OF_A_LOG):
        return "none: kdump recover does not change it"
    if code.startswith(REBUILT):
        return "kdump recover --reindex PATH"
    if code == "file/name":
        return "kdump recover PATH shows what becomes of a file; none for a directory: move it out of the log directory"
    if code in TRUNCATION_CODES:
        return "kdump recover --truncate PATH does what a broker does, --salvage keeps every valid batch"
    return "kdump recover PATH shows what a broker would do; --salvage keeps every valid batch"


def _is_refused(report: Report) -> bool:
    """Whether kdump recover takes the path for nothing that it can repair (kdump.recover.selection)."""
    if report.path == "-":
        return True
    name = os.path.basename(report.path)
    is_segment = name.endswith((".log", ".kafka")) and number_of(name) is not None
    return not is_segment and any(each.file.path == report.path for each in report.files)


class NextStep:
    """Collects what is to be done with the partitions of a run."""

    def __init__(self) -> None:
        self._step = RepairStep.NOTHING
        self._path: str | None = None
        self._several = False
        self._copies: dict[TopicPartition, list[str]] = {}
        self._damaged: dict[TopicPartition, None] = {}

    def add(self, report: Report, findings: "Iterable[Finding]") -> None:
        """Add the findings of a partition. Those of the root of a log directory are not for a recovery, but a run that
        is not finished there holds up every other one.
        """
        step = max(map(_step_of, findings), default=RepairStep.NOTHING)
        if _is_refused(report) or not (report.files or step is RepairStep.RESUME):
            return
        if report.topic_partition is not None and report.whole and not report.state:
            self._copies.setdefault(report.topic_partition, []).append(report.path)
            if is_damaged(report):
                self._damaged.setdefault(report.topic_partition)
        if step is RepairStep.RESUME and self._step is not step:
            self._path, self._several = None, False
        if step and (step is RepairStep.RESUME or self._step is not RepairStep.RESUME):
            self._several = self._several or self._path is not None
            self._path = report.path
            self._step = max(self._step, step)

    def command(self, paths: Sequence[str]) -> str | None:
        """The command for the partition that needs it, or for all `paths` where several do; None for nothing to do.

        Where another copy of a damaged partition was looked at, it is the one that fills one copy from the others.
        """
        several = (self._copies[one] for one in self._damaged if len(self._copies[one]) > 1)
        if self._step is not RepairStep.RESUME and (copies := next(several, None)) is not None:
            return fill_command(copies)
        if self._path is None:
            return None
        named = [path for path in paths if path != "-"] if self._several else [self._path]
        before = ["--"] if any(path.startswith("-") for path in named) else []
        return shell_command(["kdump", "recover", *_OPTIONS[self._step], *before, *named])


def fill_command(copies: Sequence[str]) -> str:
    """The command that makes one log of several copies of a topic-partition."""
    return shell_command(["kdump", "convert", "--to", "log", "-o", "DIR", "--", *copies])


def is_damaged(report: Report) -> bool:
    """Whether batches of a partition are damaged or missing, as far as errors say so."""
    return bool(report.files) and any(
        count and severity is Severity.ERROR and not code.startswith((*REBUILT, *_NOT_OF_BATCHES))
        for (code, severity), count in report.counts.items()
    )


def shell_command(words: Iterable[str]) -> str:
    """The words as one line for bash, zsh or ksh, without control characters."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.isprintable():
        import shlex  # nothing to do, nothing to quote

        return shlex.quote(word)
    letters = (chr(byte) for byte in os.fsencode(word))
    plain = (c if c.isascii() and c.isprintable() and c not in "'\\" else f"\\x{ord(c):02x}" for c in letters)
    return f"$'{''.join(plain)}'"
