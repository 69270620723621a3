"""What a salvage keeps of a topic-partition directory: every batch that proves itself, by its checksum and its place, byte for byte, and nothing else.

Offsets stay; the gaps between them are legal, as after compaction. What is kept loads: a batch with a right checksum that a broker refuses goes, too (a marker that cannot be read,
a batch that is not transactional inside a transaction), a segment whose name does not fit its batches takes the offset of the first, and one whose offsets no index could hold is split.
See kdump.place for what is in its place, and kdump.markers for what becomes of transactions.

In a log of Kafka 0.7 the offset of a message is its position, over all files, and a broker loads no log with a hole in it. So nothing can be taken out of the middle: every
message behind it would get another offset, and a consumer that comes back with its own would be given anything. There only what lies behind the last message of the log goes; bytes that
are no message stay where they are, and a new file begins behind them, which 0.7 allows at any message: a consumer can be sent there, and a recovery, which reads the newest file only,
cuts nothing off that is sound.
"""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from kdump.broker import foresee, sound
from kdump.checks.hanging import OpenTransaction, abort_command
from kdump.errors import SourceError
from kdump.format.batch import CONTROL, NULL
from kdump.format.index import TRANSACTION_ENTRY, AbortedTransaction, aborted_transactions, build_transaction_index
from kdump.format.naming import Kind, TopicPartition
from kdump.frames import Frames, Refused, Seen, Window
from kdump.kernel.scan import SUSPECTS
from kdump.load_state import name_of
from kdump.markers import NO_END, UNENDED, Hole, Markers, Undecided
from kdump.outcome import Proved, Refusal, Start
from kdump.partition import LogFile, Partition, Segment
from kdump.place import Conflict, Name, Placed, Run, in_place
from kdump.plan import Log, Lost, Options, Piece, opened
from kdump.segment import OFFSET_SPAN, BatchChunk, Foreign, Gap, Item, Tail, Unsearched, Walk
from kdump.segment07 import walk_of
from kdump.source import FileSource, whole

__all__ = ["Clash", "Dropped", "Salvaged", "Stretch", "keep"]

_MAX_INDEX_BYTES: Final = 256 << 20
_MOST_REFUSALS: Final = 10_000
_PLACES: Final = frozenset({"offset/backwards", "offset/range", "epoch/backwards"})
"""What is judged anew once it is known what stays."""


class Dropped(NamedTuple):
    """Bytes [start, stop) of a file that go: the code of the finding behind it, and the valid batches among them, of damaged ones nothing is known."""

    name: str
    start: int
    stop: int
    because: str
    batches: int = 0
    records: int | None = 0
    first_offset: int | None = None
    last_offset: int | None = None


class Stretch(NamedTuple):
    """Batches one behind the other in a file: bytes, offsets and leader epochs."""

    name: str
    start: int
    stop: int
    batches: int
    first_offset: int
    last_offset: int
    first_epoch: int
    last_epoch: int


class Clash(NamedTuple):
    """Two stretches that contradict each other, and by what (kdump.place) one of them was kept: "epoch", "batches" or "position"."""

    kept: Stretch
    dropped: Stretch
    by: str


class Salvaged(NamedTuple):
    """What is kept and what is not.

    `segments` in order; one without pieces becomes an empty file, and a log file of the directory that is in none of them and lends its name to none goes away. `suffix` is that of their names.
    `renamed` are the names of files whose bytes begin under another name. `transaction_indexes` has the bytes of each .txnindex that the log alone would not give, by its name afterwards; the others are
    made from the log. `missing` are offsets that were in lost bytes, (first, last), the last one None behind the end. `lost` does not know of the high watermark.
    """

    segments: tuple[Log, ...]
    suffix: str = ".log"
    dropped: tuple[Dropped, ...] = ()
    renamed: Mapping[str, str] = {}
    clashes: tuple[Clash, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    sentences: tuple[str, ...] = ()
    transaction_indexes: Mapping[str, bytes] = {}
    missing: tuple[tuple[int, int | None], ...] = ()
    lost: Lost = Lost()
    log_end_offset: int | None = None
    refusals: tuple[Refusal, ...] = ()
    """Why a broker would refuse the log even so: never, as far as is known."""


def keep(partition: Partition, options: Options) -> Salvaged:
    """What a salvage keeps of the segments of a partition, which all lie in `partition.path`. Raises SourceError."""
    files = [_File(segment) for segment in partition.segments if segment.log.base_offset is not None]
    if any(one.log.kind is Kind.KAFKA07 for one in files):
        return _keep07(partition.path, [one for one in files if one.log.kind is Kind.KAFKA07], options)
    banned: set[tuple[int, int]] = set()
    for one in files:
        one.read(options)
    while True:
        salvage = _Salvage(partition, files, options, banned)
        found = salvage.run()
        more = salvage.refused(found.refusals) - banned
        if not more or len(banned) > _MOST_REFUSALS:
            return found
        banned |= more


# ---- a file before


@dataclass(slots=True)
class _File:
    """A log file, its batches with a right checksum, and the bytes that are none: (start, stop, code)."""

    segment: Segment
    batches: list[Placed] = field(default_factory=list)
    damages: list[tuple[int, int, str]] = field(default_factory=list)
    padding: int | None = None

    @property
    def log(self) -> LogFile:
        return self.segment.log

    @property
    def base(self) -> int:
        return self.log.base_offset or 0

    @property
    def name(self) -> str:
        return os.path.basename(self.log.path)

    def read(self, options: Options, number: int = 0) -> None:
        with self.log.open() as source:
            walk = walk_of(
                self.log.kind,
                source,
                base_offset=self.log.base_offset,
                everything=True,
                max_batch_bytes=options.max_batch_bytes,
            )
            for item in walk:
                self._take(item, walk)

    def _take(self, item: Item, walk: Walk) -> None:
        if isinstance(item, BatchChunk):
            for row in item.rows():
                if item.damaged:
                    self.damages.append((row.position, row.position + row.size, _codes(row.suspect)[0]))
                else:
                    self.batches.append(_placed(row))
        elif isinstance(item, Gap | Tail):
            self.damages.append((item.position, item.position + item.length, _code_of(item)))
            if isinstance(item, Tail) and self.log.preallocated and item.reason == "zeros":
                self.padding = item.position


def _placed(row: Sequence[int]) -> Placed:
    (position, size, magic, first, last, count, epoch, _, _, attributes, _, timestamp, producer) = row[:13]
    legacy = magic < 2
    return Placed(
        0,
        position,
        size,
        magic,
        last if first == NULL else first,
        last,
        -1 if legacy else epoch,
        attributes,
        -1 if legacy else producer,
        -1 if count == NULL else count,
        row[15],
        -1 if timestamp == NULL else timestamp,
    )


def _codes(suspect: int) -> list[str]:
    return [code for bit, code in enumerate(SUSPECTS) if suspect >> bit & 1]


def _code_of(item: Gap | Tail) -> str:
    if isinstance(item, Tail):
        return f"tail/{item.reason}"
    return "batch/length" if item.headed else "gap/bytes"
