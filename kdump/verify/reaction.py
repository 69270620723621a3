"""What the next unclean start of a broker does about each finding: `broker` and `later_broker` of Finding.

kdump.broker predicts the start as a LoadResult. Here each finding is looked up in that result.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import LoadResult, Refusal
from kdump.format.naming import LEADER_EPOCH_CHECKPOINT, number_of
from kdump.verify.findings import Finding, Severity

_STOPS_RECOVERY: Final = frozenset(
    {
        *("batch/crc", "batch/length", "batch/magic", "batch/limit", "batch/count", "gap/bytes", "gap/unsearched"),
        *("offset/range", "offset/backwards", "control/structure", "txn/state", "file/shrunk", "file/grown"),
        *("legacy/wrapper", "batch/codec", "record/structure"),
    }
)
_TAILS: Final = frozenset({"tail/torn", "tail/zeros", "tail/garbage"})
TRUNCATION_CODES: Final = _STOPS_RECOVERY | _TAILS
"""The codes of damage in a log at which a broker's recovery can truncate it."""


def is_valid_log(codes: Iterable[str], *, tail: bool = False) -> bool:
    """Whether a broker's recovery leaves a log with findings of these codes as it is (see ValidSegment).

    With `tail`, bytes after the last batch do not count: ValidSegment.valid_bytes says where they begin.
    """
    found = set(codes)
    return _STOPS_RECOVERY.isdisjoint(found) and (tail or _TAILS.isdisjoint(found))


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

_CHECKPOINT_REACTIONS: Final[Mapping[str, str]] = {
    # A broker rewrites the checkpoints of a log directory from the logs that it loaded.
    "checkpoint/unknown": "deletes",
    "checkpoint/beyond": "rebuilds",
    "checkpoint/below": "rebuilds",
    "checkpoint/duplicate": "rebuilds",
    "checkpoint/log-start": "deletes",
}
_NOT_IN_LOG: Final = frozenset({"txn/open", "txn/hanging", "time/retention"})
"""Codes of findings without a position in the log."""
_ROOT_REACTIONS: Final[Mapping[str, str]] = {
    # A file that cannot be read makes its log directory fail. A broker without another log directory stops.
    "checkpoint/format": "refuses",
    "properties/format": "refuses",
    "file/name": "refuses",
}
"""Reactions to findings about the files at the root of a log directory."""


def with_reactions(findings: Iterable[Finding], outcome: LoadResult) -> Iterator[Finding]:
    """The findings of one partition, in the same order, with their fields `broker` and `later_broker`."""
    for finding in findings:
        name = os.path.basename(finding.path)
        later = any(_is_about(refusal, finding, name) for refusal in outcome.later_refusals)
        yield replace(finding, broker=reaction_to(finding, outcome), later_broker="refuses" if later else None)


def with_directory_reactions(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings about the own files of a log directory, with their field `broker`."""
    for finding in findings:
        yield replace(finding, broker=reaction_to(finding, None))


def reaction_to(finding: Finding, outcome: LoadResult | None) -> str:
    """What the start does about a finding, in one word. `outcome` is None for a file of a log directory itself.

    `refuses`: the broker does not start because of it.
    `truncates`: these bytes, or the whole file, are truncated.
    `deletes`: the file or the entry is deleted.
    `rebuilds`: the file is rebuilt from the log, a segment is split, a .swap file replaces segments, or a checkpoint
    is corrected.
    `ignores`: nothing happens, also where the broker does not read because the recovery point is higher.
    """
    name, code = os.path.basename(finding.path), finding.code
    if outcome is None:
        return _ROOT_REACTIONS.get(code) or _CHECKPOINT_REACTIONS.get(code, "ignores")
    if any(_is_about(refusal, finding, name) for refusal in outcome.refusals):
        return "refuses"
    if code in _CHECKPOINT_REACTIONS:
        return _CHECKPOINT_REACTIONS[code]
    if name in outcome.swap_targets:
        return "truncates" if name in outcome.truncations else "rebuilds"
    if name.endswith(".snapshot") and number_of(name) in outcome.written_snapshots:
        return "rebuilds"
    if name in outcome.deleted_files:
        return "deletes"
    if name.endswith(".snapshot"):
        return "ignores"
    if code.startswith(("index/", "timeindex/", "txnindex/")):
        # The finding of a missing index has the path of the log.
        return "rebuilds" if name.rpartition(".")[0] + ".log" in outcome.recovered_logs else "ignores"
    if code == "snapshot/missing":
        return "rebuilds" if any(offset >= (finding.offset or 0) for offset in outcome.written_snapshots) else "ignores"
    if name == LEADER_EPOCH_CHECKPOINT:
        return _epoch_reaction(finding, outcome)
    if name.endswith(".checkpoint"):
        return "refuses" if finding.severity is Severity.ERROR else "ignores"
    if code.startswith(("segment/", "file/")) or code in _NOT_IN_LOG:
        return "ignores"
    if name in outcome.split_segments and code == "offset/range":
        return "rebuilds"
    cut = outcome.truncations.get(name)
    return "truncates" if cut is not None and finding.position + max(1, finding.length) > cut else "ignores"


def _is_about(refusal: Refusal, finding: Finding, name: str) -> bool:
    """Whether the finding, in the file `name`, is the cause of the refusal."""
    if finding.code not in _REFUSED.get(refusal.reason, ()):
        return False
    if refusal.name != name:
        # The cause of two transactions with the same first offset is before the marker of the second one.
        marker = refusal.reason is RefusalReason.TRANSACTION_MARKER
        return marker and name.endswith(".log") and name < refusal.name
    if refusal.position is None or refusal.reason in _ANYWHERE:
        return True
    return finding.position <= refusal.position < finding.position + max(1, finding.length)


def _epoch_reaction(finding: Finding, outcome: LoadResult) -> str:
    """What the start does about a finding in the leader epoch checkpoint."""
    epoch = finding.data.get("epoch")
    left = dict(outcome.leader_epochs)
    if finding.code == "epoch/missing":
        return "rebuilds" if epoch in left else "ignores"
    if epoch not in left:
        return "deletes"
    return "ignores" if left[epoch] == finding.data.get("start_offset", left[epoch]) else "rebuilds"
