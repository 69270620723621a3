"""What is asked of a rebuild: the companions that are wanted of a log, and the log as it will be."""

from collections.abc import Mapping
from typing import NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, PRODUCER_ID_EXPIRATION_MS, SEGMENT_INDEX_BYTES
from kdump.broker.result import IndexChecksums
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp


class PlannedSegment(NamedTuple):
    """A segment as it will be. `proved`: a scan found nothing in it that makes a broker stumble, so that the kernel may walk it by its headers alone:
    the checksums were right a moment ago.

    `walked`: its companions are made anew from it. `indexed`: the same scan found that both indexes hold what would be made.
    """

    base_offset: int
    pieces: tuple[Piece, ...]
    proved: bool
    walked: bool
    indexed: IndexChecksums | None = None

    @property
    def size(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


class Rebuild(NamedTuple):
    """The companions that are wanted of the log in the directory `path` as it will be.

    `files` are the regular files that lie there now. `after` are the names of those that change, and whether there is one of the name afterwards; `names` those
    of them that are rebuilt. `log_end_offset` is None where the log of the last segment is not known to its end. `now_ms` is the clock by which producers expire,
    None for that of the machine.
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
