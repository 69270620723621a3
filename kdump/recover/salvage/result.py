"""What a salvage keeps of a topic-partition directory and what it removes, as values."""

from collections.abc import Mapping
from typing import NamedTuple

from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.result import Refusal, ValidSegment
from kdump.recover.salvage.conflicts import BatchConflict
from kdump.recover.salvage.lost_markers import UndecidedTransaction
from kdump.storage.pieces import Piece


class SalvageResult(NamedTuple):
    """What is kept and what is not.

    `segments` are in order; one without pieces becomes an empty file. Their names end in `suffix`. A log file that is
    in none of them, and lends its name to none, goes. `dropped` are the bytes that go, with the codes of the findings.
    `renamed` has the new names of files that begin under another name. `transaction_indexes` has the bytes of each
    .txnindex that a rebuild from the log would not give, by its new name; the `right_indexes` would not come from the
    log either, and stay as they are. `missing` has the offsets that were in lost bytes, (first, last); last is None
    after the end.
    """

    segments: tuple[PlannedSegment, ...]
    suffix: str = ".log"
    dropped: Mapping[Piece, str] = {}
    renamed: Mapping[str, str] = {}
    conflicts: tuple[BatchConflict, ...] = ()
    undecided: tuple[UndecidedTransaction, ...] = ()
    sentences: tuple[str, ...] = ()
    transaction_indexes: Mapping[str, bytes] = {}
    right_indexes: tuple[str, ...] = ()
    missing: tuple[tuple[int, int | None], ...] = ()
    log_end_offset: int | None = None
    refusals: tuple[Refusal, ...] = ()
    """Why a broker would still refuse the log: no case is known."""
    valid_segments: Mapping[str, ValidSegment] = {}
    """What a broker finds in the segments, by their names, as far as they are known to be valid."""
