"""What a recovery would do with a topic-partition directory, as a value: it is printed, saved, compared, refused, and carried out by kdump.recover.apply.

A plan has two faces that say the same: `actions` are for people and for JSON, `after` is what every file that changes is to hold.
"""

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, PRODUCER_ID_EXPIRATION_MS, SEGMENT_INDEX_BYTES
from kdump.broker.rebuild_request import PlannedSegment, Rebuild
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.naming import TopicPartition, file_name
from kdump.recover.rebuilt_files import RebuiltFiles
from kdump.storage.pieces import Piece, opened
from kdump.storage.source import BytesSource, FileSource, Source
from kdump.storage.stamps import Stamp
from kdump.verify.findings import Finding

TRUNCATE: Final = "truncate"
SALVAGE: Final = "salvage"
REINDEX: Final = "reindex"
STRATEGIES: Final = (TRUNCATE, SALVAGE, REINDEX)
WALKS: Final = ("checkpoint", "newest", "all")
UNDECIDED: Final = ("keep", "drop")


class RecoverOptions(NamedTuple):
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


class FileContent(NamedTuple):
    """What a file is to hold: pieces of files from before, one behind the other; or `data`; or, with neither, what kdump.broker.rebuild makes from the log."""

    pieces: tuple[Piece, ...] = ()
    data: bytes | None = None

    @property
    def rebuilt(self) -> bool:
        return not self.pieces and self.data is None


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
    options: RecoverOptions
    actions: tuple[Action, ...] = ()
    after: Mapping[str, FileContent | None] = {}
    files: Mapping[str, Stamp] = {}
    segments: tuple[PlannedSegment, ...] = ()
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
    rebuilt: RebuiltFiles = RebuiltFiles()

    @property
    def empty(self) -> bool:
        return not self.actions

    @property
    def is_root(self) -> bool:
        """Whether it is about the root of a log directory."""
        return not self.segments and any(name in naming.ROOT_FILES for name in self.files)

    def rebuild_request(self) -> Rebuild:
        """What is asked of kdump.broker.rebuild to make the files that `after` leaves to it."""
        options = self.options
        return Rebuild(
            self.path,
            self.files,
            self.segments,
            frozenset(name for name, content in self.after.items() if content is not None and content.rebuilt),
            {name: content is not None for name, content in self.after.items()},
            self.log_start_offset,
            self.log_end_offset,
            options.index_interval_bytes,
            options.segment_index_bytes,
            options.producer_id_expiration_ms,
            options.now_ms,
        )


def view(plan: Plan, name: str) -> Source:
    """The bytes that a file will have, of a log above all; not those of one that is rebuilt. Raises SourceError."""
    for log in plan.segments:
        if name == file_name(log.base_offset, ".log"):
            return opened(plan.path, log.pieces, name)
    if name not in plan.after:
        return FileSource(os.path.join(plan.path, name))
    content = plan.after[name]
    if content is None or content.rebuilt:
        raise SourceError(f"{os.path.join(plan.path, name)}: no such file")
    return opened(plan.path, content.pieces, name) if content.data is None else BytesSource(content.data, name)
