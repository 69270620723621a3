"""The request for a rebuild: the companions that are wanted of a log, and the log as it will be."""

from collections.abc import Mapping

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, PRODUCER_ID_EXPIRATION_MS, SEGMENT_INDEX_BYTES
from kdump.broker.valid_segment import IndexChecksums
from kdump.named_tuple import NamedTuple
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp


class PlannedSegment(NamedTuple):
    """A segment as it will be.

    `valid`: a scan found nothing in it that a broker's recovery truncates or refuses. So the kernel may walk it by its
    headers alone: the scan has just verified the checksums. `rebuilds_companions`: its companions are rebuilt from it.
    `index_checksums`: the same scan found that both indexes hold what a rebuild would write. `is_verified`: it verified
    the checksums of all batches, also where some are out of order.
    """

    base_offset: int
    pieces: tuple[Piece, ...]
    valid: bool
    rebuilds_companions: bool
    index_checksums: IndexChecksums | None = None
    is_verified: bool = False

    @property
    def size(self) -> int:
        """The size of the log file in bytes."""
        return sum(piece.stop - piece.start for piece in self.pieces)


class RebuildRequest(NamedTuple):
    """The companions that are wanted of the log in the directory `path`, as it will be.

    `files` are the regular files of the directory now. `after` are the names that change, and whether there is a file
    of the name afterwards. `names` are those of them that are rebuilt. `log_end_offset` is None where the end of the
    log is not known. Producers expire by the clock `now_ms`, None for that of the machine.
    """

    path: str
    files: Mapping[str, Stamp]
    segments: tuple[PlannedSegment, ...]
    names: frozenset[str]
    after: Mapping[str, bool]
    log_start_offset: int | None
    log_end_offset: int | None
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    segment_index_bytes: int = SEGMENT_INDEX_BYTES
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    now_ms: int | None = None
