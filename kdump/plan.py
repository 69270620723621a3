"""What a recovery would do with a topic-partition directory, as a value: it is printed, saved, compared, refused, and carried out by kdump.apply.

A plan has two faces that say the same: `actions` are for people and for JSON, `after` is what every file that changes is to hold.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kdump.findings import Finding
from kdump.format import naming
from kdump.format.naming import TopicPartition
from kdump.outcome import INDEX_INTERVAL_BYTES, Indexed
from kdump.source import PiecesSource

TRUNCATE: Final = "truncate"
SALVAGE: Final = "salvage"
REINDEX: Final = "reindex"
STRATEGIES: Final = (TRUNCATE, SALVAGE, REINDEX)

SEGMENT_INDEX_BYTES: Final = 10 << 20
"""segment.index.bytes of a broker that sets none."""
PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""producer.id.expiration.ms of a broker that sets none."""


class Options(NamedTuple):
    """How to recover.

    `walk` says from where on a truncation walks as a broker does after an unclean stop: "checkpoint" (the recovery point of the log directory's checkpoint,
    else the newest segment), "newest", "all". `rebuild_all`: make every companion of what was walked anew, as a broker does, and not only those that are wrong.
    `undecided`: what a salvage does with the batches of a transaction whose marker may be lost, "keep" or "drop". `now_ms` is the clock by which producers expire.
    """

    strategy: str = TRUNCATE
    walk: str = "checkpoint"
    rebuild_all: bool = False
    undecided: str = "keep"
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    segment_index_bytes: int = SEGMENT_INDEX_BYTES
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    max_batch_bytes: int = 1 << 30
    now_ms: int | None = None


class Piece(NamedTuple):
    """The bytes [start, stop) of a file of the directory as it is before."""

    name: str
    start: int
    stop: int


def opened(directory: str, pieces: Iterable[Piece], name: str) -> PiecesSource:
    """The bytes of the pieces, one behind the other, as a file of that name. Raises SourceError."""
    places = [(os.path.join(directory, piece.name), piece.start, piece.stop) for piece in pieces]
    return PiecesSource(places, os.path.join(directory, name))


class Content(NamedTuple):
    """What a file is to hold: pieces of files from before, one behind the other; or `data`; or, with neither, what kdump.rebuild makes from the log."""

    pieces: tuple[Piece, ...] = ()
    data: bytes | None = None

    @property
    def rebuilt(self) -> bool:
        return not self.pieces and self.data is None


class Log(NamedTuple):
    """A segment as it will be. `proved`: a scan found nothing in it that makes a broker stumble, so that the kernel may walk it by its headers alone:
    the checksums were right a moment ago.

    `walked`: its companions are made anew from it. `indexed`: the same scan found that both indexes hold what would be made.
    """

    base_offset: int
    pieces: tuple[Piece, ...]
    proved: bool
    walked: bool
    indexed: Indexed | None = None

    @property
    def size(self) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces)


class Lost(NamedTuple):
    """What would be gone: valid batches and their records (None where wrappers were not opened), all bytes, ranges of offsets (first, last).

    `first_timestamp` is that of the first lost batch, `max_timestamp` the largest of all, -1 without one. `producers` are the ids of those that wrote them,
    `transactions` those whose records or marker are among them, as (producer id, first offset). `committed`: whether some lie below the stored high watermark;
    None where none is stored.
    """

    batches: int = 0
    records: int | None = 0
    bytes: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    first_timestamp: int = -1
    max_timestamp: int = -1
    producers: tuple[int, ...] = ()
    transactions: tuple[tuple[int, int], ...] = ()
    committed: bool | None = None


class Action(NamedTuple):
    """One thing to be done: `action` is a key of ACTIONS, `because` the code of the finding behind it, None where it was asked for.

    Positions `start` and `stop` are those of the bytes that go, or that `target` gets. `batches` and what follows tell of what those bytes held; None where they are no log.
    """

    action: str
    path: str
    because: str | None = None
    start: int | None = None
    stop: int | None = None
    target: str | None = None
    bytes: int = 0
    batches: int | None = None
    records: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None


ACTIONS: Final[Mapping[str, str]] = {
    "truncate": "cut off what lies behind",
    "drop": "take bytes out of the middle",
    "delete": "take the file away",
    "rebuild": "make the file anew from the log",
    "rename": "give the file the name that it should have",
    "write": "write the file as it should be",
    "split": "give a part of the file a segment of its own",
}


class Stamp(NamedTuple):
    """What tells a file from one that was changed since."""

    size: int
    mtime_ns: int
    inode: int


class Plan(NamedTuple):
    """All that is to be done with one topic-partition directory; with no `actions`, nothing.

    `after` has what every file that changes is to hold by its name, None for one that goes away; what it does not have stays. `files` are the regular files as they
    were seen, none where nothing was looked for. `segments` are those afterwards, `log_start_offset` and `log_end_offset` those of a broker that starts on it. `refusals` are what makes a broker refuse
    the directory as it is: (Kafka's exception, file name). `recovery_point` is the line that the log directory's checkpoint needs afterwards, None where it may stay.
    `bytes_needed`: what applying writes before anything goes away. `not_covered` are findings that are left as they are.
    Of a salvage `undecided` says which transactions may have lost their markers, `clashes` which batches contradict each other and which of them stay.
    `alone`: it is about one segment of several, so that it can only become a copy.
    """

    path: str
    topic_partition: TopicPartition | None
    options: Options
    actions: tuple[Action, ...] = ()
    after: Mapping[str, Content | None] = {}
    files: Mapping[str, Stamp] = {}
    segments: tuple[Log, ...] = ()
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    refusals: tuple[tuple[str, str], ...] = ()
    lost: Lost = Lost()
    bytes_needed: int = 0
    not_covered: tuple[Finding, ...] = ()
    undecided: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    alone: bool = False

    @property
    def empty(self) -> bool:
        return not self.actions

    @property
    def is_root(self) -> bool:
        """Whether it is about the root of a log directory."""
        return not self.segments and any(name in naming.ROOT_FILES for name in self.files)
