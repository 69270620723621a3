"""What a salvage keeps of a topic-partition directory and what it removes, as values."""

from collections.abc import Mapping

from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.valid_segment import ValidSegment
from kdump.log.disputes import Conflict
from kdump.named_tuple import NamedTuple
from kdump.recover.salvage.lost_markers import UndecidedTransaction
from kdump.storage.pieces import Piece


class SalvageResult(NamedTuple):
    """What is kept and what is not.

    `segments` are in order; one without pieces becomes an empty file. A log file that is in none of them, and lends its
    name to none, goes. `dropped` are the bytes that go, with the codes of the findings. `names` are those of the log
    files by the numbers in `conflicts`. `transaction_indexes` has the bytes of each .txnindex that a rebuild from the
    log would not give, by its new name; the `right_indexes` would not come from the log either, and stay as they are.
    """

    segments: tuple[PlannedSegment, ...]
    dropped: Mapping[Piece, str] = {}
    names: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    undecided: tuple[UndecidedTransaction, ...] = ()
    transaction_indexes: Mapping[str, bytes] = {}
    right_indexes: tuple[str, ...] = ()
    valid_segments: Mapping[str, ValidSegment] = {}
    """What a broker finds in the segments, by their names, as far as they are known to be valid."""
