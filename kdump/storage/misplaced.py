"""What a broker stumbles over, throws away or never looks at: the rules of LogLoader, ProducerStateManager, Snapshots and LogManager of 4.3 about names."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kdump.format import naming
from kdump.format.java import MAX_INT
from kdump.format.naming import Kind

Place = tuple[str, int]
"""Path and size of a file."""


class MisplacedFile(NamedTuple):
    """What does not belong where it lies; `what` is a key of kdump.verify.checks.files.MISPLACED."""

    path: str
    size: int
    what: str


# Left behind by tiered storage of 3.0 to 3.6.
_TIERED = "remote_log_snapshot"
_TIERED_AT_ROOT = "_rlmm_committed_offsets"
_SNAPSHOT = re.compile(r"([0-9]{20}).([0-9]{10})", re.DOTALL)


def orphans(indexes: Sequence[Mapping[int, Place]], logs: Collection[int]) -> Iterator[MisplacedFile]:
    """Indexes that are not beside one of the `logs`."""
    for table in indexes:
        for base, place in table.items():
            if base not in logs:
                yield MisplacedFile(*place, "index")


def misnamed(
    files: Sequence[tuple[str, Place]], logs: Collection[int], state: str, *, metadata_log: bool
) -> Iterator[MisplacedFile]:
    """Those of the files of a topic-partition, named by anything but 20 digits, that do not belong there.

    `logs` are the base offsets of its log files; `metadata_log` says that KRaft's own files belong here.
    """
    cleaned = [naming.number_of(name) for name, _ in files if name.endswith(".cleaned")]
    # An unfinished split: replacements from here on are not complete.
    split = min((number for number in cleaned if number is not None), default=None)
    for name, place in files:
        if (what := _what(name, logs, split, state, metadata_log)) is not None:
            yield MisplacedFile(*place, what)


def _what(name: str, logs: Collection[int], split: int | None, state: str, metadata_log: bool) -> str | None:
    stem, _, suffix = name.rpartition(".")
    match suffix:
        case "deleted":
            # In a directory that goes as a whole it says nothing; of KRaft snapshots the raft client takes care.
            return None if state == "delete" or stem.endswith(".checkpoint") else "deleted"
        case "checkpoint" | "part" if metadata_log and name.endswith((".checkpoint", ".checkpoint.part")):
            # The raft client cuts two numbers out of the name without a look at the rest.
            cut = _SNAPSHOT.match(name)
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
    # An index of 5.log: kept beside the segment of that number, and not read.
    return "unknown" if number in logs else "index"


def at_root(name: str) -> str | None:
    """What a file at the root of a log directory is that is none of `naming.ROOT_FILES`; None where it belongs."""
    if name in (naming.BOOTSTRAP, _TIERED_AT_ROOT):
        return None
    return "tmp" if name.removesuffix(".tmp") in naming.ROOT_FILES else "unknown"
