"""What the next start of a broker does about each finding."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kdump.broker.log_loader import EPOCHS
from kdump.broker.result import LoadResult, Refusal, RefusalReason
from kdump.format.naming import number_of
from kdump.verify.findings import Finding, Severity

_NOTICED: Final = frozenset(
    {
        *("batch/crc", "batch/length", "batch/magic", "batch/limit", "batch/count", "gap/bytes", "gap/unsearched"),
        *("offset/range", "offset/backwards", "control/structure", "txn/state", "file/shrunk", "file/grown"),
        *("legacy/wrapper", "batch/codec", "record/structure"),
    }
)
_TAILS: Final = frozenset({"tail/torn", "tail/zeros", "tail/garbage"})
CUTS: Final = _NOTICED | _TAILS
"""The codes of what a recovery can stumble over in a log."""


def is_valid_log(codes: Iterable[str], *, tail: bool = False) -> bool:
    """Whether a recovery passes over a log with findings of these codes, so that it can be given as `Proved`.

    With `tail`, bytes behind the last batch do not count: `Proved.valid_bytes` then says where they begin.
    """
    found = set(codes)
    return _NOTICED.isdisjoint(found) and (tail or _TAILS.isdisjoint(found))


_REFUSED: Final[Mapping[RefusalReason, frozenset[str]]] = {
    RefusalReason.FILE_NAME: frozenset({"file/name", "file/leftover", "file/orphan", "snapshot/name"}),
    RefusalReason.FILE_SIZE: frozenset({"file/leftover", "tail/garbage", "tail/torn", "tail/zeros"}),
    RefusalReason.LEADER_EPOCHS: frozenset({"epoch/format", "epoch/order"}),
    RefusalReason.PARTITION_METADATA: frozenset({"metadata/format"}),
    RefusalReason.TRANSACTION_INDEX: frozenset({"txnindex/version"}),
    RefusalReason.SEGMENT_SPLIT: frozenset({"offset/range", "file/leftover"}),
    RefusalReason.TRANSACTION_STATE: frozenset({"txn/state"}),
    RefusalReason.TRANSACTION_MARKER: frozenset({"offset/backwards", "offset/range", "segment/overlap"}),
    RefusalReason.CONTROL_RECORD: frozenset({"control/structure", "record/structure", "batch/codec", "batch/count"}),
    RefusalReason.OFFSET_ORDER: frozenset({"offset/backwards", "segment/overlap"}),
    RefusalReason.BATCH_SIZE: frozenset(
        {"batch/length", "gap/bytes", "gap/unsearched", "tail/torn", "tail/zeros", "tail/garbage", "file/leftover"}
    ),
    RefusalReason.WRAPPER_MESSAGE: frozenset({"legacy/wrapper", "batch/codec", "batch/limit", "file/leftover"}),
}
"""The codes of the findings that a refusal with this reason is about."""

_ANYWHERE: Final = frozenset(
    {RefusalReason.SEGMENT_SPLIT, RefusalReason.TRANSACTION_MARKER, RefusalReason.OFFSET_ORDER}
)
"""The reasons of refusals at another position than their cause, which is somewhere in the file."""

_DIRECTORY: Final[Mapping[str, str]] = {
    # The checkpoints of a log directory are written anew from the logs that were loaded.
    "checkpoint/unknown": "deletes",
    "checkpoint/beyond": "rebuilds",
    "checkpoint/below": "rebuilds",
    "checkpoint/duplicate": "rebuilds",
    "checkpoint/log-start": "deletes",
}
_ELSEWHERE: Final = frozenset({"txn/open", "txn/hanging", "time/retention"})
"""Codes of what is no place in the log."""
_ROOT: Final[Mapping[str, str]] = {
    # What cannot be read marks its log directory as failed, and a broker without another one stops.
    "checkpoint/format": "refuses",
    "properties/format": "refuses",
    "file/name": "refuses",
}
"""Codes of the files at the root of a log directory."""


def with_reactions(findings: Iterable[Finding], outcome: LoadResult) -> Iterator[Finding]:
    """The findings of one partition with their `broker`, in the same order."""
    for finding in findings:
        yield replace(finding, broker=reaction_to(finding, outcome))


def with_directory_reactions(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those of the files of a log directory itself."""
    for finding in findings:
        yield replace(finding, broker=reaction_to(finding, None))


def reaction_to(finding: Finding, outcome: LoadResult | None) -> str:
    """What the start does about it, in one word.

    `refuses`: because of this the broker does not start. `truncates`: these bytes are cut off, or all of a file is. `deletes`: the file goes, or the entry does.
    `rebuilds`: the file is made anew from the log, a segment is split, a .swap file put into its place, a checkpoint written as it should be. `ignores`: nothing,
    also where it does not look, because the recovery point lies above.
    """
    name, code = os.path.basename(finding.path), finding.code
    if outcome is None:
        return _ROOT.get(code) or _DIRECTORY.get(code, "ignores")
    if any(_is_about(refusal, finding, name) for refusal in outcome.refusals):
        return "refuses"
    if code in _DIRECTORY:
        return _DIRECTORY[code]
    if name in outcome.promoted:
        return "truncates" if name in outcome.cuts else "rebuilds"
    if name.endswith(".snapshot"):
        written = number_of(name) in outcome.snapshots
        return "rebuilds" if written else "deletes" if name in outcome.deleted else "ignores"
    if name in outcome.deleted:
        return "deletes"
    if code.startswith(("index/", "timeindex/", "txnindex/")):
        # One that is missing is spoken of at the log.
        return "rebuilds" if name.rpartition(".")[0] + ".log" in outcome.recovered else "ignores"
    if code == "snapshot/missing":
        return "rebuilds" if any(offset >= (finding.offset or 0) for offset in outcome.snapshots) else "ignores"
    if name == EPOCHS:
        return _epoch_word(finding, outcome)
    if name.endswith(".checkpoint"):
        return "refuses" if finding.severity is Severity.ERROR else "ignores"
    if code.startswith(("segment/", "file/")) or code in _ELSEWHERE:
        return "ignores"
    if name in outcome.split and code == "offset/range":
        return "rebuilds"
    cut = outcome.cuts.get(name)
    return "truncates" if cut is not None and finding.position + max(1, finding.length) > cut else "ignores"


def _is_about(refusal: Refusal, finding: Finding, name: str) -> bool:
    if finding.code not in _REFUSED.get(refusal.word, ()):
        return False
    if refusal.name != name:
        # What makes two transactions begin at one offset lies before the marker of the second.
        marker = refusal.word is RefusalReason.TRANSACTION_MARKER
        return marker and name.endswith(".log") and name < refusal.name
    if refusal.position is None or refusal.word in _ANYWHERE:
        return True
    return finding.position <= refusal.position < finding.position + max(1, finding.length)


def _epoch_word(finding: Finding, outcome: LoadResult) -> str:
    epoch = finding.data.get("epoch")
    left = dict(outcome.epochs)
    if finding.code == "epoch/missing":
        return "rebuilds" if epoch in left else "ignores"
    if epoch not in left:
        return "deletes"
    return "ignores" if left[epoch] == finding.data.get("start_offset", left[epoch]) else "rebuilds"
