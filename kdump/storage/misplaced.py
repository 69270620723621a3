"""Finding misplaced files by their names: files that a broker refuses, deletes or ignores.

The rules are those of LogLoader, ProducerStateManager, Snapshots and LogManager of Kafka 4.3.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kdump.format import naming
from kdump.format.java import MAX_INT
from kdump.format.naming import Kind
from kdump.named_tuple import NamedTuple

PathAndSize = tuple[str, int]
"""Path and size of a file."""


class MisplacedFile(NamedTuple):
    """A file or directory that does not belong where it is; `what` is a key of kdump.verify.checks.files.MISPLACED."""

    path: str
    size: int
    what: str


# Files of tiered storage of 3.0 to 3.6, which stay.
_TIERED = "remote_log_snapshot"
_TIERED_AT_ROOT = "_rlmm_committed_offsets"
_SNAPSHOT = r"(?s)([0-9]{20}).([0-9]{10})"


def orphans(indexes: Sequence[Mapping[int, PathAndSize]], logs: Collection[int]) -> Iterator[MisplacedFile]:
    """The indexes without a log file; `logs` are the base offsets of the log files."""
    for table in indexes:
        for base, file in table.items():
            if base not in logs:
                yield MisplacedFile(*file, "index")


def misnamed(
    files: Sequence[tuple[str, PathAndSize]], logs: Collection[int], state: str, *, metadata_log: bool
) -> Iterator[MisplacedFile]:
    """The misplaced files of a topic-partition whose names are not 20 digits and a suffix.

    `logs` are the base offsets of its log files; `metadata_log` says that the files of KRaft belong here.
    """
    cleaned = [naming.number_of(name) for name, _ in files if name.endswith(".cleaned")]
    # An unfinished split: replacements from here on are not complete.
    split = min((number for number in cleaned if number is not None), default=None)
    for name, file in files:
        if (what := _what(name, logs, split, state, metadata_log)) is not None:
            yield MisplacedFile(*file, what)


def _what(name: str, logs: Collection[int], split: int | None, state: str, metadata_log: bool) -> str | None:
    stem, _, suffix = name.rpartition(".")
    match suffix:
        case "deleted":
            # It means nothing in a directory that is deleted as a whole. The raft client deletes KRaft snapshots.
            return None if state == "delete" or stem.endswith(".checkpoint") else "deleted"
        case "checkpoint" | "part" if metadata_log and name.endswith((".checkpoint", ".checkpoint.part")):
            # The raft client takes two numbers out of the name and ignores the rest.
            cut = re.match(_SNAPSHOT, name)
            if cut is None or int(cut[1]) >= 1 << 63 or int(cut[2]) > MAX_INT:
                return "number"
            return "part" if suffix == "part" else None
        case "tmp" if naming.companion_kind_of(stem) is not None:
            return "tmp"
        case "kafka" if naming.number_of(name) is not None:
            return None
        case "log" | "index" | "timeindex" | "txnindex" | "snapshot" | "swap" | "cleaned":
            number = naming.number_of(name)
            return "number" if number is None else _numbered(suffix, number, logs, split)
    kind = naming.companion_kind_of(name)
    if kind in (Kind.EPOCHS, Kind.PARTITION_METADATA) or (kind is Kind.QUORUM_STATE and metadata_log):
        return None
    return None if name == _TIERED else "unknown"


def _numbered(suffix: str, number: int, logs: Collection[int], split: int | None) -> str | None:
    match suffix:
        case "log":
            return "negative" if number < 0 else "short"
        case "cleaned":
            return "cleaned"
        case "swap":
            return "swap" if split is None or number < split else "swap-dropped"
        case "snapshot":
            return None
    # An index of 5.log: a broker keeps it beside the segment of that number and does not read it.
    return "unknown" if number in logs else "index"


def at_root(name: str) -> str | None:
    """The problem of a file at the root of a log directory that is not in `naming.ROOT_FILES`; None where it belongs
    there.
    """
    if name in (naming.BOOTSTRAP_CHECKPOINT, _TIERED_AT_ROOT):
        return None
    return "tmp" if name.removesuffix(".tmp") in naming.ROOT_FILES else "unknown"
