"""What a recovery would do with a topic-partition directory, as a value that is printed, saved, compared and applied.

It says the same twice: `actions` are for people and for JSON, `after` is what each file that changes is to hold.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, PRODUCER_ID_EXPIRATION_MS, SEGMENT_INDEX_BYTES
from kdump.broker.rebuild_request import PlannedSegment, RebuildRequest
from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.naming import TopicPartition, segment_file_name
from kdump.named_tuple import NamedTuple
from kdump.recover.next_step import RecoveryStep, Urgency
from kdump.recover.rebuild_cache import RebuildCache
from kdump.storage.file_store import open_source
from kdump.storage.pieces import Piece, open_pieces
from kdump.storage.source import BytesSource, Source
from kdump.storage.stamps import Stamp
from kdump.verify.findings import Finding

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

TRUNCATE: Final = "truncate"
SALVAGE: Final = "salvage"
REINDEX: Final = "reindex"
FILL: Final = "fill"
STRATEGIES: Final = (TRUNCATE, SALVAGE, REINDEX)
"""The strategies that need nothing but the directory; FILL needs other copies."""
WALKS: Final = ("checkpoint", "newest", "all")
SAVED_WALK: Final = "checkpoint-newest"
UNDECIDED: Final = ("keep", "drop")


class RecoverOptions(NamedTuple):
    """How to recover.

    `walk` is where a truncation begins to read as a broker does after an unclean stop: "checkpoint" is the recovery
    point of the log directory's checkpoint, 0 without one; "newest" the active segment; "all" the first one.
    "checkpoint-newest" is what plans that kdump 0.1 saved mean by "checkpoint": without a line, the active segment.
    `rebuild_all` rebuilds every companion of the segments that are read, as a broker does, and not only wrong ones.
    `undecided` is what a salvage does with the batches of a transaction whose marker may be lost: "keep" or "drop".
    Producers expire by the clock `now_ms`. `fill_from` are the paths with other copies, of a fill.
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
    fill_from: tuple[str, ...] = ()

    def fields(self) -> "Fields":
        """The fields of a `plan` line: `fill_from` only of a fill."""
        return {name: value for name, value in self._asdict().items() if name != "fill_from" or self.strategy == FILL}


class FileContent(NamedTuple):
    """What a file is to hold: consecutive pieces of files from before, or `data`.

    A piece of another copy has the absolute path of its file, which is one of `Plan.sources`. With neither,
    kdump.broker.rebuild builds it from the log.
    """

    pieces: tuple[Piece, ...] = ()
    data: bytes | None = None

    @property
    def is_rebuilt(self) -> bool:
        return not self.pieces and self.data is None


class GivenUp(NamedTuple):
    """The valid batches that a plan removes: their records, their bytes, and ranges of their offsets (first, last).

    It counts those of a whole plan, and those of a range of a file. A batch counts as well of which nothing shows
    whether it is of the log (kdump.storage.walk.ForeignBatch). `records` is None where wrapper messages were not
    opened. The timestamps are in milliseconds, that of the first batch and the largest of all; -1 without one.
    `producers` are the ids of those that wrote the batches, `transactions`, as (producer id, first offset), those whose
    records or marker are among them. `batches`, `records`, `bytes` and `offsets` are None where the plan removes bytes
    that were not searched for batches.
    """

    batches: int | None = 0
    records: int | None = 0
    bytes: int | None = 0
    offsets: tuple[tuple[int, int], ...] | None = ()
    first_timestamp: int = -1
    max_timestamp: int = -1
    producers: tuple[int, ...] = ()
    transactions: tuple[tuple[int, int], ...] = ()

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of them, None without one."""
        return min((first for first, _ in self.offsets or ()), default=None)

    @property
    def last_offset(self) -> int | None:
        """The highest offset of them, None without one."""
        return max((last for _, last in self.offsets or ()), default=None)


class Damaged(NamedTuple):
    """The sum over a partition of the offsets that it had, and whose bytes are damaged or missing.

    Offsets below the log start offset do not count. `offsets` are ranges (first, last), with last None where the end is
    not known; None where bytes were not searched. `bytes` are those of the log files that hold no valid batch, without
    preallocated zeros. `exact` is False where the log is compacted, so that the ranges are an upper bound, or where
    only a header that is not proven, or the high watermark, says that the offsets were there. It says nothing of whole
    batches that were cut from the end of the log, above the high watermark: the log keeps no trace of them.
    """

    offsets: tuple[tuple[int, int | None], ...] | None = ()
    bytes: int | None = 0
    exact: bool = True


class Lost(NamedTuple):
    """What a partition loses: what the plan gives up, and what was damaged before.

    `committed` says whether either is in [log start offset, high watermark), None where no high watermark is known.
    `missing` are the ranges of it that no valid batch has after the plan. `is_complete`: no other offset below the high
    watermark can be missing. `removes_committed`: the plan removes damaged bytes, and offsets below the high watermark
    are missing then. `compacted`: the log cleaner may have removed offsets before.
    """

    given_up: GivenUp = GivenUp()
    damaged: Damaged = Damaged()
    committed: bool | None = None
    missing: tuple[tuple[int, int], ...] = ()
    is_complete: bool = True
    removes_committed: bool = False
    compacted: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known to be lost."""
        return self.given_up.batches == 0 and self.damaged.offsets == () and not self.damaged.bytes

    @property
    def order(self) -> tuple[float, float, float]:
        """By this of two plans the one comes first that loses less: committed offsets, then valid batches, records."""
        gone, unknown = self.given_up, float("inf")
        committed = sum(last - first + 1 for first, last in self.missing)
        batches = unknown if gone.batches is None else gone.batches
        return committed, batches, 0 if not batches else unknown if gone.records is None else gone.records

    @property
    def is_for_good(self) -> bool:
        """Whether carrying out the plan gives up valid records, or what may be left of committed ones."""
        return self.given_up.batches != 0 or self.removes_committed


class Action(NamedTuple):
    """One thing to be done: `action` is a key of ACTIONS.

    `because` is the code of the finding about it, None where it was asked for. The bytes from `start` to `stop` go, or
    `target` gets them; of a fill they are of a file of another copy. `batches` and the fields after it count what they
    hold, None where they belong to no log.
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
    "truncate": "remove the bytes up to the end of the file",
    "drop": "remove these bytes from the file",
    "delete": "delete the file",
    "rebuild": "rebuild the file from the log",
    "rename": "rename the file",
    "write": "write the file with the right content",
    "split": "move these bytes to a segment of their own",
    "fill": "copy these bytes into the segment",
}


class RecoveryStart(NamedTuple):
    """Where a broker's next start begins to read: the recovery point, and the base offset of its segment.

    `because` says where the offset comes from: "checkpoint", "no-line", "no-checkpoint" or "own" (CheckpointContext),
    "from" where an option or the path of a segment chose it.
    """

    offset: int
    segment: int | None
    because: str


class NewestWalk(NamedTuple):
    """What a walk of the active segment alone would leave, where that is another log."""

    log_end_offset: int | None
    given_up: GivenUp


class SalvagePreview(NamedTuple):
    """What a salvage would leave and lose of a partition, beside a plan that truncates it."""

    empty: bool
    log_end_offset: int | None
    lost: Lost


class Plan(NamedTuple):
    """All that is to be done with one topic-partition directory; nothing without `actions`.

    `after` has what each file that changes is to hold, by name, None for a file that is deleted; other files stay.
    `files` are the regular files that the plan saw, none where nothing had to be looked for. `segments`,
    `log_start_offset` and `log_end_offset` are those after a broker's start. `refusals` are why a broker refuses the
    directory as it is: (Kafka's exception, file name); `later_refusals` are those of Kafka 4.4.0
    alone. `recovery_point` is the offset that the log directory's
    checkpoint needs afterwards, None where it may stay. `bytes_needed` is how much is written before anything goes.
    `not_covered` are the findings that stay. `undecided` says which transactions may have lost their markers, of a
    salvage `conflicts` which batches contradict each other and which of them stay. A plan that is `alone` is about one
    segment of several, so that it can only become a copy. `rebuild_cache` has companions that planning rebuilt.
    `start` is where a broker's next start begins to read, None for a log of Kafka 0.7. `newest` is what a walk of the
    active segment alone leaves, where the partition stands on its own and that is another log: then a truncation asks
    which is meant. `clean_shutdown`: the next start reads nothing, because the log directory has a clean-shutdown file.
    `covered` are the findings about damage in logs that the plan removes. `is_running`: a broker held the lock of the
    log directory while it was read. `salvage` is what the other strategy would do, where both were asked for and
    something is lost or stays damaged. Of a fill, `sources` are the files of other copies that give bytes, by their
    absolute paths, and `filled` says which offsets come from which copy, and which stay missing.
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
    conflicts: tuple[str, ...] = ()
    alone: bool = False
    rebuild_cache: RebuildCache = RebuildCache()
    start: RecoveryStart | None = None
    newest: NewestWalk | None = None
    clean_shutdown: bool = False
    covered: tuple[Finding, ...] = ()
    is_running: bool = False
    later_refusals: tuple[tuple[str, str], ...] = ()
    salvage: SalvagePreview | None = None
    sources: Mapping[str, Stamp] = {}
    filled: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.actions

    @property
    def is_root(self) -> bool:
        """Whether it is about the files at the root of a log directory."""
        return not self.segments and any(name in naming.ROOT_FILES for name in self.files)

    def rebuild_request(self) -> RebuildRequest:
        """The request for kdump.broker.rebuild to build the files that `after` leaves to it."""
        options = self.options
        return RebuildRequest(
            self.path,
            self.files,
            self.segments,
            frozenset(name for name, content in self.after.items() if content is not None and content.is_rebuilt),
            {name: content is not None for name, content in self.after.items()},
            self.log_start_offset,
            self.log_end_offset,
            options.index_interval_bytes,
            options.segment_index_bytes,
            options.producer_id_expiration_ms,
            options.now_ms,
        )


def view(plan: Plan, name: str) -> Source:
    """The bytes that a file will have. Raises SourceError, also for a file that is rebuilt."""
    for log in plan.segments:
        if name == segment_file_name(log.base_offset, ".log"):
            return open_pieces(plan.path, log.pieces, name)
    if name not in plan.after:
        return open_source(os.path.join(plan.path, name))
    content = plan.after[name]
    if content is None or content.is_rebuilt:
        raise SourceError(f"{os.path.join(plan.path, name)}: no such file")
    return open_pieces(plan.path, content.pieces, name) if content.data is None else BytesSource(content.data, name)


class RecoveryResult(NamedTuple):
    """The result of a plan. `left` are the findings of a verify afterwards, `next` is what to do now, as far as this
    partition goes; None where nothing was applied.

    `error` says why it was not applied, or, where it was applied, why the verify afterwards failed. `lost_attributes`
    are the attributes that the files of a copy do not have.
    """

    plan: Plan
    applied: bool = False
    run: str | None = None
    error: KdumpError | None = None
    left: tuple[Finding, ...] = ()
    next: RecoveryStep | None = None
    lost_attributes: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool | None:
        """Whether a broker can be started, as far as this partition goes; None where nothing was applied."""
        return None if self.next is None else self.next.urgency is Urgency.START
