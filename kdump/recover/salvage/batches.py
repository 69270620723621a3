"""What a salvage keeps of a topic-partition directory: every batch that proves itself, by its checksum and its place, byte for byte, and nothing else.

Offsets stay; the gaps between them are legal, as after compaction. What is kept loads: a batch with a right checksum that a broker refuses goes, too (a marker that cannot be read,
a batch that is not transactional inside a transaction), a segment whose name does not fit its batches takes the offset of the first, and one whose offsets no index could hold is split.
See kdump.recover.salvage.offset_order for what is in its place, and kdump.recover.salvage.markers for what becomes of transactions.

In a log of Kafka 0.7 the offset of a message is its position, over all files, and a broker loads no log with a hole in it. So nothing can be taken out of the middle: every
message behind it would get another offset, and a consumer that comes back with its own would be given anything. There only what lies behind the last message of the log goes; bytes that
are no message stay where they are, and a new file begins behind them, which 0.7 allows at any message: a consumer can be sent there, and a recovery, which reads the newest file only,
cuts nothing off that is sound.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords, ReadBuffer, UncaughtReadError
from kdump.broker.predict import predict_start
from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.result import DirectoryState, Refusal, RefusalReason, ValidSegment
from kdump.format.batch import CONTROL, NULL, TRANSACTIONAL
from kdump.format.index import (
    HIGHEST_RELATIVE_OFFSET,
    TRANSACTION_ENTRY,
    AbortedTransaction,
    aborted_transactions,
    build_transaction_index,
)
from kdump.format.naming import MAX_COMPANION_BYTES, Kind, TopicPartition, file_name
from kdump.kernel.producers import DATA, EVENT, GAP, Runs
from kdump.kernel.producers import TRANSACTIONAL as EVENT_TRANSACTIONAL
from kdump.kernel.results import ScanState
from kdump.kernel.scan import SUSPECTS
from kdump.recover.plan import Lost, RecoverOptions
from kdump.recover.salvage.markers import NO_END, UNENDED, Markers, MissingOffsets, UndecidedTransaction
from kdump.recover.salvage.offset_order import (
    BatchSpan,
    Conflict,
    LogName,
    OffsetOrder,
    OffsetRun,
    believed,
    in_place,
    rises,
)
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.pieces import Piece, opened
from kdump.storage.source import FileSource, Source, whole
from kdump.storage.walk import BatchChunk, Gap, Item, Tail
from kdump.storage.walk07 import walk_of
from kdump.verify.checks.hanging import OpenTransaction, abort_command
from kdump.verify.reaction import is_valid_log

__all__ = ["BatchConflict", "BatchRange", "RemovedBytes", "SalvageResult", "keep"]

_MOST_REFUSALS: Final = 10_000
_PLACES: Final = frozenset({"offset/backwards", "offset/range", "epoch/backwards"})
"""What is judged anew once it is known what stays."""
_MISPLACED: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in _PLACES)
_EVENT: Final = struct.Struct(EVENT)


class RemovedBytes(NamedTuple):
    """Bytes [start, stop) of a file that go: the code of the finding behind it, and the valid batches among them, of damaged ones nothing is known."""

    name: str
    start: int
    stop: int
    because: str
    batches: int = 0
    records: int | None = 0
    first_offset: int | None = None
    last_offset: int | None = None


class BatchRange(NamedTuple):
    """Batches one behind the other in a file: bytes, offsets and leader epochs."""

    name: str
    start: int
    stop: int
    batches: int
    first_offset: int
    last_offset: int
    first_epoch: int
    last_epoch: int


class BatchConflict(NamedTuple):
    """Two stretches that contradict each other, and by what (kdump.recover.salvage.offset_order) one of them was kept: "epoch", "batches" or "position"."""

    kept: BatchRange
    dropped: BatchRange
    by: str


class SalvageResult(NamedTuple):
    """What is kept and what is not.

    `segments` in order; one without pieces becomes an empty file, and a log file of the directory that is in none of them and lends its name to none goes away. `suffix` is that of their names.
    `renamed` are the names of files whose bytes begin under another name. `transaction_indexes` has the bytes of each .txnindex that the log alone would not give, by its name afterwards; the others are
    made from the log, but for the `right_indexes`, which would not come out of it either and stay as they are. `missing` are offsets that were in lost bytes, (first, last), the last one None behind the end. `lost` does not know of the high watermark.
    """

    segments: tuple[PlannedSegment, ...]
    suffix: str = ".log"
    dropped: tuple[RemovedBytes, ...] = ()
    renamed: Mapping[str, str] = {}
    clashes: tuple[BatchConflict, ...] = ()
    undecided: tuple[UndecidedTransaction, ...] = ()
    sentences: tuple[str, ...] = ()
    transaction_indexes: Mapping[str, bytes] = {}
    right_indexes: tuple[str, ...] = ()
    missing: tuple[tuple[int, int | None], ...] = ()
    lost: Lost = Lost()
    log_end_offset: int | None = None
    refusals: tuple[Refusal, ...] = ()
    """Why a broker would refuse the log even so: never, as far as is known."""


def keep(partition: Partition, options: RecoverOptions) -> SalvageResult:
    """What a salvage keeps of the segments of a partition, which all lie in `partition.path`. Raises SourceError."""
    segments = [segment for segment in partition.segments if segment.log.base_offset is not None]
    files = [_File(number, segment) for number, segment in enumerate(segments)]
    if any(one.log.kind is Kind.KAFKA07 for one in files):
        for one in files:
            one.read(options)
        return _keep07(partition.path, files, options)
    rising = _screen(files, options)
    if not rising:
        files = _sorted(files)
    banned: dict[tuple[int, int], str] = {}
    while True:
        salvage = _SalvageBuilder(partition, files, options, banned, rising=rising)
        found = salvage.run()
        more = salvage.refused(found.refusals)
        if more.keys() <= banned.keys() or len(banned) > _MOST_REFUSALS:
            return found
        if rising:
            # Now it matters which of the batches it is.
            rising = False
            for one in files:
                one.read(options)
            files = _sorted(files)
        else:
            banned |= more


def _screen(files: "Sequence[_File]", options: RecoverOptions) -> bool:
    """Read the files; whether all their batches are in their places, so that those that touch could be put together.

    A row for each batch is dear, and a log without damage needs none.
    """
    transactional: set[int] = set()
    for one in files:
        one.screen(options, transactional)
    last, epoch, rising = -1, -1, all(one.screened is not None for one in files)
    for one in files if rising else ():
        seen = one.screened
        if seen is not None and seen.batches:
            rising = rising and one.base > last and (seen.first_epoch < 0 or seen.first_epoch >= epoch)
            last, epoch = seen.last_offset, max(epoch, seen.known_epoch)
    for one in files:
        if not rising:
            one.read(options)
        elif not one.put_together(transactional):
            one.read(options, transactional)
    # Behind damaged bytes the rules of a verify take what comes for the beginning of a log.
    if rising and not rises([batch for one in files for batch in one.batches]):
        for one in files:
            one.read(options)
        return False
    return rising


def _sorted(files: "Sequence[_File]") -> "list[_File]":
    """The files by the base offsets that are to be believed, with numbers in that order."""
    bases = believed([LogName(one.base, one.log.size) for one in files], [one.batches for one in files])
    for one, base in zip(files, bases, strict=True):
        one.believed = base
    ordered = sorted(files, key=lambda one: (one.believed, one.base))
    for number, one in enumerate(ordered):
        if one.number != number:
            one.number = number
            one.batches = [batch._replace(file=number) for batch in one.batches]
    return ordered


# ---- a file before


@dataclass(slots=True)
class _File:
    """A log file, its batches with a right checksum, and the bytes that are none: (start, stop, code)."""

    number: int
    segment: Segment
    batches: list[BatchSpan] = field(default_factory=list)
    damages: list[tuple[int, int, str]] = field(default_factory=list)
    padding: int | None = None
    screened: ScanState | None = None
    suspect: int = 0
    epochs: list[tuple[int, int]] | None = None
    believed: int = -1

    @property
    def log(self) -> LogFile:
        return self.segment.log

    @property
    def base(self) -> int:
        return self.log.base_offset or 0

    @property
    def name(self) -> str:
        return os.path.basename(self.log.path)

    def read(self, options: RecoverOptions, together: Set[int] | None = None) -> None:
        """Every batch for itself; or, with the ids of the producers of transactions, together with its neighbours where that loses nothing."""
        self.batches, self.damages, self.padding, self.epochs = [], [], None, None
        with self.log.open() as source:
            self.walk(source, self.base, options, together)

    def walk(self, source: Source, base_offset: int, options: RecoverOptions, together: Set[int] | None = None) -> None:
        limit = options.max_batch_bytes
        for item in walk_of(self.log.kind, source, base_offset=base_offset, everything=True, max_batch_bytes=limit):
            self._take(item, together)

    def _take(self, item: Item, together: Set[int] | None) -> None:
        if isinstance(item, BatchChunk):
            for row in item.rows():
                if item.damaged:
                    self.damages.append((row.position, row.position + row.size, _codes(row.suspect)[0]))
                else:
                    self._add(_placed(row, self.number), together)
        elif isinstance(item, Gap | Tail):
            self.damages.append((item.position, item.position + item.length, _code_of(item)))
            if isinstance(item, Tail) and self.log.preallocated and item.reason == "zeros":
                self.padding = item.position

    def _add(self, batch: BatchSpan, together: Set[int] | None) -> None:
        if together is not None:
            if batch.producer_id not in together:
                batch = batch._replace(producer_id=-1, producer_epoch=-1)
            if self.batches and _alike(self.batches[-1], batch):
                self.batches[-1] = _together(self.batches[-1], batch)
                return
        self.batches.append(batch)

    def screen(self, options: RecoverOptions, transactional: set[int]) -> None:
        """Look at the file as a verify does, and leave what was seen in `screened`, unless a batch is out of its place; adds the producers of transactions."""
        limit = options.max_batch_bytes

        def drain(events: bytes) -> None:
            for producer, *_, kind, flags, _ in _EVENT.iter_unpack(events):
                if kind != GAP and (kind != DATA or flags & EVENT_TRANSACTIONAL):
                    transactional.add(producer)

        with self.log.open() as source:
            walk = walk_of(
                self.log.kind,
                source,
                base_offset=self.log.base_offset,
                max_batch_bytes=limit,
                runs=Runs(),
                drain=drain,
            )
            for item in walk:
                if isinstance(item, BatchChunk) and not item.damaged:
                    for row in item.rows():
                        self.suspect |= row.suspect
            seen = walk.scanner.state()
        self.screened = None if self.suspect & _MISPLACED else seen

    def put_together(self, transactional: Set[int]) -> bool:
        """Make one batch of all, where nothing in the file is damaged and no two of them have to be told apart."""
        seen = self.screened
        assert seen is not None
        legacy, modern = seen.magics[0] + seen.magics[1], seen.magics[2]
        if seen.valid_bytes != self.log.size or transactional or (legacy and modern) or seen.control:
            return False
        if seen.batches:
            self.batches = [
                BatchSpan(
                    self.number,
                    0,
                    self.log.size,
                    0 if legacy else 2,
                    seen.first_offset,
                    seen.last_offset,
                    seen.known_epoch,
                    int(legacy > 0 and sum(seen.codecs[1:]) > 0),
                    -1,
                    -1,
                    -1 if seen.unopened else seen.records,
                    self.suspect,
                    seen.max_timestamp,
                    seen.batches,
                )
            ]
            self.epochs = [(epoch, first) for epoch, first, _ in seen.epochs]
        return True


def _alike(left: BatchSpan, right: BatchSpan) -> bool:
    """Whether two batches can be one: they touch, in bytes and offsets, are no markers, and differ in nothing that matters."""
    if left.end != right.position or left.last + 1 != right.first or (left.attributes | right.attributes) & CONTROL:
        return False
    return _what(left) == _what(right)


def _what(batch: BatchSpan) -> tuple[int, ...]:
    transactional = batch.attributes & TRANSACTIONAL
    return batch.producer_id, batch.producer_epoch, batch.epoch, transactional, batch.magic < 2, batch.is_wrapper


def _together(left: BatchSpan, right: BatchSpan) -> BatchSpan:
    return left._replace(
        size=left.size + right.size,
        last=right.last,
        count=-1 if min(left.count, right.count) < 0 else left.count + right.count,
        suspect=left.suspect | right.suspect,
        timestamp=max(left.timestamp, right.timestamp),
        batches=left.batches + right.batches,
    )


def _placed(row: Sequence[int], number: int) -> BatchSpan:
    position, size, magic, first, last, count, epoch, _, _, attributes, _, timestamp, producer, producer_epoch = row[
        :14
    ]
    legacy = magic < 2
    return BatchSpan(
        number,
        position,
        size,
        magic,
        last if first == NULL else first,
        last,
        -1 if legacy else epoch,
        attributes,
        -1 if legacy else producer,
        -1 if legacy else producer_epoch,
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


# ---- what stays


_REFUSED: Final[Mapping[str, str]] = {
    "control": "control/structure",
    "transaction": "txn/state",
    "wrapper": "legacy/wrapper",
    "walk": "batch/length",
}
"""The finding behind a batch that a broker refuses, by the word of the refusal; of the others the offset is to blame."""


class _SalvageBuilder:
    """One attempt: with the batches that are `banned`, because a broker refused them, left out. `rising`: all are in their places."""

    def __init__(
        self,
        partition: Partition,
        files: Sequence[_File],
        options: RecoverOptions,
        banned: Mapping[tuple[int, int], str],
        *,
        rising: bool,
    ) -> None:
        self._partition, self._files, self._options, self._banned = partition, files, options, banned
        self._rising = rising
        self._gone: dict[BatchSpan, str] = {}
        self._aborts: set[int] = set()
        self._kept: list[list[BatchSpan]] = []
        self._segments: list[PlannedSegment] = []
        self._held: list[list[BatchSpan]] = []
        self._open_behind: dict[int, dict[int, int]] = {}
        self._right: list[str] = []

    def run(self) -> SalvageResult:
        ordered = self._in_place()
        old = [entry for one in self._files for entry in self._entries(one)]
        markers = self._replay(ordered.kept, old)
        stay = [batch for batch in ordered.kept if batch not in self._gone] if self._gone else ordered.kept
        self._kept = [[] for _ in self._files]
        for batch in stay:
            self._kept[batch.file].append(batch)
        renamed = dict(self._cut())
        end = max(
            [one[-1].last + 1 for one in self._kept if one] + [one.base_offset for one in self._segments[-1:]],
            default=None,
        )
        dropped = [piece for one in self._files for piece in self._dropped(one)]
        return SalvageResult(
            tuple(self._segments),
            dropped=tuple(dropped),
            renamed=renamed,
            clashes=tuple(self._clash(conflict) for conflict in ordered.conflicts),
            undecided=tuple(markers.undecided),
            sentences=tuple(sentence(one, self._partition.topic_partition) for one in markers.undecided),
            transaction_indexes=dict(self._indexes(markers, stay, old)),
            right_indexes=tuple(self._right),
            missing=tuple((hole.first, None if hole.last == NO_END else hole.last) for hole in markers.holes),
            lost=_lost(sorted(self._gone, key=lambda batch: batch.first), dropped),
            log_end_offset=end,
            refusals=(*self._refusals(), *self._unreadable(min(markers.open.values(), default=None))),
        )

    def _in_place(self) -> OffsetOrder:
        if self._rising:
            return OffsetOrder([batch for one in self._files for batch in one.batches], [], [])
        candidates = []
        for one in self._files:
            banned = {
                batch: code
                for batch in one.batches
                if (code := self._banned.get((one.number, batch.position))) is not None
            }
            self._gone |= banned
            candidates.append([batch for batch in one.batches if batch not in banned] if banned else one.batches)
        ordered = in_place([LogName(one.believed, one.log.size) for one in self._files], candidates)
        self._gone |= dict(ordered.dropped)
        return ordered

    def refused(self, refusals: Iterable[Refusal]) -> dict[tuple[int, int], str]:
        """The batches that are refused, by file and position, and why."""
        found = {}
        by_name = {file_name(log.base_offset, ".log"): number for number, log in enumerate(self._segments)}
        for refusal in refusals:
            number = by_name.get(refusal.name)
            if number is None or refusal.position is None:
                continue
            position = 0
            for batch in self._held[number]:
                position += batch.size
                if refusal.position < position:
                    found[batch.file, batch.position] = _REFUSED.get(refusal.word, "offset/range")
                    break
        return found

    # ---- transactions

    def _entries(self, one: _File) -> Iterator[AbortedTransaction]:
        """The entries of an old transaction index that can be believed by themselves."""
        if one.segment.txnindex is None:
            return
        with one.segment.txnindex.open() as source:
            data = whole(source, MAX_COMPANION_BYTES)
        later = (other.base for other in self._files if other.base > one.base)
        before, end = one.base - 1, min(later, default=NO_END)
        for entry in aborted_transactions(data[: len(data) - len(data) % TRANSACTION_ENTRY.size]):
            sane = entry.version == 0 and 0 <= entry.first_offset <= entry.last_offset and entry.producer_id >= 0
            if sane and before < entry.last_offset < end:
                before = entry.last_offset
                yield entry

    def _replay(self, kept: Sequence[BatchSpan], entries: Sequence[AbortedTransaction]) -> Markers:
        """Give the batches to a replay of producers. What a broker refuses goes."""
        markers = Markers(entries, drop=self._options.undecided == "drop")
        previous: BatchSpan | None = None
        with _Reader(self._partition.path, self._files) as reader:
            for batch in kept:
                if previous is not None and batch.first > previous.last + 1 and self._lies_between(previous, batch):
                    single = previous.file == batch.file and self._is_batch(batch.file, previous.end, batch.position)
                    markers.hole(MissingOffsets(previous.last + 1, batch.first - 1, single))
                if previous is not None and previous.file != batch.file:
                    self._open_behind[previous.file] = markers.open
                code = self._apply(batch, markers, reader)
                if code is not None:
                    self._gone[batch] = code
                else:
                    previous = batch
        if previous is not None:
            self._open_behind[previous.file] = markers.open
        if previous is None or self._lies_behind(previous):
            markers.hole(MissingOffsets(0 if previous is None else previous.last + 1, NO_END, False))
        markers.conclude()
        self._gone |= dict.fromkeys(markers.dropped, UNENDED)
        return markers

    def _apply(self, batch: BatchSpan, markers: Markers, reader: "_Reader") -> str | None:
        """The code of what a broker refuses about the batch."""
        if batch.producer_id < 0:
            return None
        if not batch.attributes & CONTROL:
            return None if markers.data(batch) else "txn/state"
        try:
            aborts = reader.aborts(batch)
        except UncaughtReadError:
            return "control/structure"
        if aborts is not None:
            markers.marker(batch, aborts)
            if aborts:
                self._aborts.add(batch.first)
        return None

    def _lies_between(self, left: BatchSpan, right: BatchSpan) -> bool:
        """Whether bytes stand between two batches."""
        if left.file == right.file:
            return left.end < right.position
        between = self._files[left.file + 1 : right.file]
        return left.end < self._files[left.file].log.size or right.position > 0 or any(one.log.size for one in between)

    def _lies_behind(self, last: BatchSpan) -> bool:
        """Whether more than the room that a broker takes in advance stands behind the last batch."""
        own = self._files[last.file]
        rest = last.end < own.log.size and (own.padding is None or last.end < own.padding)
        return rest or any(one.log.size for one in self._files[last.file + 1 :])

    def _is_batch(self, number: int, start: int, stop: int) -> bool:
        """Whether these bytes are one batch, damaged or out of its place."""
        own = self._files[number]
        at = bisect_left(own.batches, start, key=lambda batch: batch.position)
        if at < len(own.batches) and (own.batches[at].position, own.batches[at].end) == (start, stop):
            return True
        return any(damage[:2] == (start, stop) and damage[2].startswith("batch/c") for damage in own.damages)

    def _indexes(
        self, markers: Markers, stay: Sequence[BatchSpan], old: Iterable[AbortedTransaction]
    ) -> Iterator[tuple[str, bytes]]:
        """The transaction indexes that a replay of the log alone would not give."""
        data: dict[int, list[int]] = {}
        for batch in stay:
            if batch.producer_id >= 0 and not batch.attributes & CONTROL:
                data.setdefault(batch.producer_id, []).append(batch.first)
        firsts = [batch.first for batch in stay]
        entries = [markers.aborted[batch.first] for batch in stay if batch.first in markers.aborted]
        for entry in old:
            # Offsets behind the last batch will be those of other records; what is open there nobody reads.
            at = bisect_right(firsts, entry.last_offset) - 1
            gone = 0 <= at < len(stay) - 1 and entry.last_offset > stay[at].last
            if gone and _has(data.get(entry.producer_id, ()), entry):
                entries.append(entry)
        replayed = [markers.replayed[batch.first] for batch in stay if batch.first in markers.replayed]
        bases = [log.base_offset for log in self._segments]
        told, bare = _by_segment(bases, entries), _by_segment(bases, replayed)
        for number, log in enumerate(self._segments):
            wanted = build_transaction_index(told.get(number, ()))
            if wanted != build_transaction_index(bare.get(number, ())):
                name = file_name(log.base_offset, ".txnindex")
                if log.walked or wanted != self._old(log):
                    yield name, wanted
                else:
                    self._right.append(name)

    def _old(self, log: PlannedSegment) -> bytes | None:
        for one in self._files:
            if one.base == log.base_offset and one.segment.txnindex is not None:
                with one.segment.txnindex.open() as source:
                    return whole(source, MAX_COMPANION_BYTES)
        return None

    # ---- segments

    def _cut(self) -> Iterator[tuple[str, str]]:
        """Make the segments; gives the names that change."""
        above = 0  # the next segment cannot begin below
        used = set()
        firsts = [own[0].first if own else None for own in self._kept]
        with _Reader(self._partition.path, self._files) as reader:
            for one, own in zip(self._files, self._kept, strict=True):
                if not own:
                    following = min((first for first in firsts[one.number + 1 :] if first is not None), default=NO_END)
                    named = one.name == file_name(one.base, ".log")
                    if named and above <= one.base <= following and one.base not in used:
                        used.add(one.base)
                        self._add(one, one.base, [])
                    continue
                base = one.base
                if (
                    not (above <= base <= own[0].first and own[0].last - base <= HIGHEST_RELATIVE_OFFSET)
                    or base in used
                ):
                    base = max(above, reader.first_offset(own[0]))
                if file_name(base, ".log") != one.name:
                    yield one.name, file_name(base, ".log")
                part: list[BatchSpan] = []
                for batch in own:
                    if part and batch.last - base > HIGHEST_RELATIVE_OFFSET:
                        self._add(one, base, part)
                        base, part = reader.first_offset(batch), []
                    part.append(batch)
                self._add(one, base, part)
                used.add(base)
                above = own[-1].last + 1

    def _add(self, one: _File, base: int, own: list[BatchSpan]) -> None:
        pieces = tuple(Piece(one.name, start, stop) for start, stop in _joined(own))
        whole_file = (Piece(one.name, 0, one.log.size),) if one.log.size else ()
        walked = self._options.rebuild_all or pieces != whole_file or file_name(base, ".log") != one.name
        suspects = 0
        for batch in own:
            suspects |= batch.suspect
        proved = is_valid_log(code for code in _codes(suspects) if code not in _PLACES)
        self._segments.append(PlannedSegment(base, pieces, proved, walked))
        self._held.append(own)

    def _dropped(self, one: _File) -> Iterator[RemovedBytes]:
        """The bytes of a file that go, in order."""
        gone = [(batch.position, batch.end, self._gone[batch], batch) for batch in one.batches if batch in self._gone]
        found = sorted([*gone, *((*damage, None) for damage in one.damages)], key=lambda each: each[0])
        together: list[list[tuple[int, int, str, BatchSpan | None]]] = []
        for each in found:
            last = together[-1][-1] if together else None
            if last is not None and last[1:3] == (each[0], each[2]) and (last[3] is None) == (each[3] is None):
                together[-1].append(each)
            else:
                together.append([each])
        for run in together:
            batches = [batch for *_, batch in run if batch is not None]
            yield RemovedBytes(one.name, run[0][0], run[-1][1], run[0][2], *_held(batches))

    def _clash(self, conflict: Conflict) -> BatchConflict:
        return BatchConflict(self._stretch(conflict.kept), self._stretch(conflict.dropped), conflict.by)

    def _stretch(self, run: OffsetRun) -> BatchRange:
        return BatchRange(self._files[run.file].name, *run[1:])

    # ---- the proof

    def _refusals(self) -> tuple[Refusal, ...]:
        """What a broker refuses of the result."""
        if not self._segments:
            return ()
        pieces = {file_name(log.base_offset, ".log"): log.pieces for log in self._segments}
        start = DirectoryState(
            {file_name(log.base_offset, ".log"): log.size for log in self._segments},
            lambda name: opened(self._partition.path, pieces[name], name),
            {file_name(log.base_offset, ".log"): proved for log, proved in self._proofs()},
            index_interval_bytes=self._options.index_interval_bytes,
        )
        return predict_start(start).refusals

    def _unreadable(self, unstable: int | None) -> Iterator[Refusal]:
        """Messages that a broker cannot open on its way to the first open transaction, which it looks up once the log is loaded (UnifiedLog.maybeIncrementFirstUnstableOffset)."""
        number = -1 if unstable is None else bisect_right([log.base_offset for log in self._segments], unstable) - 1
        if number < 0 or not any(batch.is_wrapper for batch in self._held[number]):
            return
        position = 0
        with _Reader(self._partition.path, self._files) as reader:
            for batch in self._held[number]:
                if batch.is_wrapper and not reader.opens(batch):
                    yield Refusal(
                        "KafkaException",
                        file_name(self._segments[number].base_offset, ".log"),
                        position,
                        RefusalReason.WRAPPER_MESSAGE,
                    )
                position += batch.size

    def _proofs(self) -> Iterator[tuple[PlannedSegment, ValidSegment]]:
        """What a broker finds in the segments that nothing is wrong with, so that they are not read again."""
        certain = UNENDED not in self._gone.values()  # what was open may have gone later
        for log, own in zip(self._segments, self._held, strict=True):
            legacy = sum(1 for batch in own if batch.magic < 2)
            if not log.proved or 0 < legacy < len(own):
                continue
            known = own and certain and len(own) == len(self._kept[own[0].file])
            open_ = self._open_behind.get(own[0].file) if known else None
            yield (
                log,
                ValidSegment(
                    own[-1].last + 1 if own else log.base_offset,
                    tuple(self._files[own[0].file].epochs or _epochs(own)) if own else (),
                    open_,
                    wrappers=any(batch.is_wrapper for batch in own),
                    state_end=log.base_offset if legacy else None,
                ),
            )


class _Reader:
    """Reads what of a batch its row does not tell. Its files are closed at the end of a `with`."""

    def __init__(self, directory: str, files: Sequence[_File]) -> None:
        self._files = files
        self._window = ReadBuffer()
        self._number = -1
        self._source: FileSource | None = None
        self._frames: FileRecords | None = None

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    def _open(self, number: int) -> FileRecords:
        if self._frames is None or number != self._number:
            if self._source is not None:
                self._source.close()
            source = self._source = self._files[number].log.open()
            self._number, self._frames = number, FileRecords(self._window, lambda: source, 0, source.size)
        return self._frames

    def aborts(self, batch: BatchSpan) -> bool | None:
        """Whether a marker aborts; None for one without a record. Raises Refused."""
        frames, seen = (
            self._open(batch.file),
            FileChannelRecordBatch(batch.position, batch.size, batch.first, batch.magic),
        )
        marker = frames.marker(seen, frames.header(seen))
        return None if marker is None else marker.aborts

    def opens(self, batch: BatchSpan) -> bool:
        """Whether a compressed message of magic 0 or 1 can be opened."""
        try:
            self._open(batch.file).first_offset(
                FileChannelRecordBatch(batch.position, batch.size, batch.first, batch.magic)
            )
        except UncaughtReadError:
            return False
        return True

    def first_offset(self, batch: BatchSpan) -> int:
        """Of a compressed message of magic 0 or 1 that cannot be opened, or where no segment could hold what is inside, its last."""
        if not batch.is_wrapper:
            return batch.first
        try:
            first = self._open(batch.file).first_offset(
                FileChannelRecordBatch(batch.position, batch.size, batch.first, batch.magic)
            )
        except UncaughtReadError:
            return batch.last
        return first if 0 <= batch.last - first <= HIGHEST_RELATIVE_OFFSET else batch.last


def _joined(batches: Iterable[BatchSpan]) -> Iterator[tuple[int, int]]:
    """Where batches that touch one another begin and end."""
    start = stop = None
    for batch in batches:
        if batch.position != stop:
            if start is not None and stop is not None:
                yield start, stop
            start = batch.position
        stop = batch.end
    if start is not None and stop is not None:
        yield start, stop


def _epochs(batches: Iterable[BatchSpan]) -> Iterator[tuple[int, int]]:
    known = -1
    for batch in batches:
        if batch.epoch > known:
            known = batch.epoch
            yield known, batch.first


def _has(offsets: Sequence[int], entry: AbortedTransaction) -> bool:
    """Whether one of the offsets, which rise, lies inside the transaction."""
    at = bisect_left(offsets, entry.first_offset)
    return at < len(offsets) and offsets[at] <= entry.last_offset


def _by_segment(bases: Sequence[int], entries: Iterable[AbortedTransaction]) -> dict[int, list[AbortedTransaction]]:
    found: dict[int, list[AbortedTransaction]] = {}
    for entry in sorted(entries, key=lambda entry: entry.last_offset):
        found.setdefault(bisect_right(bases, entry.last_offset) - 1, []).append(entry)
    return found


def _records(batches: Iterable[BatchSpan]) -> int | None:
    total = 0
    for batch in batches:
        if batch.count < 0 and batch.is_wrapper:
            return None
        total += max(0, batch.count)
    return total


def _held(batches: Sequence[BatchSpan]) -> tuple[int, int | None, int | None, int | None]:
    """Batches, records, first and last offset."""
    first, last = (
        min((batch.first for batch in batches), default=None),
        max((batch.last for batch in batches), default=None),
    )
    return sum(batch.batches for batch in batches), _records(batches), first, last


def _lost(batches: Sequence[BatchSpan], dropped: Iterable[RemovedBytes]) -> Lost:
    """The valid batches that go, in the order of their offsets, and all bytes."""
    offsets: list[tuple[int, int]] = []
    transactions: dict[tuple[int, int], None] = {}
    open_: dict[int, int] = {}
    for batch in batches:
        if offsets and batch.first <= offsets[-1][1] + 1:
            offsets[-1] = offsets[-1][0], max(offsets[-1][1], batch.last)
        else:
            offsets.append((batch.first, batch.last))
        if batch.producer_id >= 0 and batch.attributes & CONTROL:
            transactions[batch.producer_id, open_.pop(batch.producer_id, batch.first)] = None
        elif batch.producer_id >= 0 and batch.attributes & TRANSACTIONAL:
            transactions[batch.producer_id, open_.setdefault(batch.producer_id, batch.first)] = None
    return Lost(
        sum(batch.batches for batch in batches),
        _records(batches),
        sum(piece.stop - piece.start for piece in dropped),
        tuple(offsets),
        batches[0].timestamp if batches else -1,
        max((batch.timestamp for batch in batches), default=-1),
        tuple(sorted({batch.producer_id for batch in batches if batch.producer_id >= 0})),
        tuple(transactions),
    )


# ---- Kafka 0.7


def _keep07(directory: str, files: Sequence[_File], options: RecoverOptions) -> SalvageResult:
    """All but what lies behind the last message, and a file more behind each damage."""
    newest = max((one.number for one in files if one.batches), default=-1)
    segments: list[PlannedSegment] = []
    dropped: list[RemovedBytes] = []
    gone: list[BatchSpan] = []
    refusals: list[Refusal] = []
    end: int | None = None
    for one in files:
        size, stop, code = one.log.size, one.log.size, "segment/overlap"
        following = next((later.base for later in files[one.number + 1 :] if later.log.size), None)
        if one.number >= newest:
            stop = one.batches[-1].end if one.batches else 0
            code = one.damages[-1][2] if one.damages else code
        elif following is not None and following < one.base + size:
            stop = max(0, following - one.base)
        if stop < size:
            over = [batch for batch in one.batches if batch.end > stop]
            gone += over
            dropped.append(RemovedBytes(one.name, stop, size, code, *_held(over)))
        if end not in (None, one.base) and not (one.number > newest and not stop):
            refusals.append(Refusal("IllegalStateException", one.name, None, RefusalReason.FILE_SIZE))
        if one.number > newest >= 0 and not stop and one.base != end:
            continue
        for piece in _split07(directory, one, Piece(one.name, 0, stop), options):
            pieces = (piece,) if piece.start < piece.stop else ()
            segments.append(PlannedSegment(one.base + piece.start, pieces, False, False))
        end = one.base + stop
    return SalvageResult(
        tuple(segments),
        ".kafka",
        tuple(dropped),
        lost=_lost(gone, dropped),
        log_end_offset=end,
        refusals=tuple(refusals),
    )


def _split07(directory: str, one: _File, piece: Piece, options: RecoverOptions) -> Iterator[Piece]:
    """The bytes of a file in pieces, of which each begins with a message that follows a damage.

    Where a file ends says something of the bytes before, so that the pieces are looked at again as the files that they will be.
    """
    starts, damages = {batch.position for batch in one.batches}, one.damages
    if (piece.start, piece.stop) != (0, one.log.size):
        part = _File(0, one.segment)
        with opened(directory, (piece,), piece.name) as source:
            part.walk(source, one.base + piece.start, options)
        starts = {batch.position + piece.start for batch in part.batches}
        damages = [(start + piece.start, stop + piece.start, code) for start, stop, code in part.damages]
    borders = [stop for _, stop, _ in damages if stop < piece.stop and stop in starts]
    if not borders:
        yield piece
    for start, stop in pairwise([piece.start, *borders, piece.stop] if borders else []):
        yield from _split07(directory, one, Piece(piece.name, start, stop), options)


# ---- in words


def sentence(found: UndecidedTransaction, topic_partition: TopicPartition | None) -> str:
    """What became of a transaction whose marker may be lost, and what to do about it."""
    whose = f"producer {found.producer_id}, epoch {found.epoch}: the transaction from offset {found.first_offset} to {found.end_offset - 1}"
    hole = found.hole
    where = f"from offset {hole.first} on" if hole.last == NO_END else f"at offset {hole.first}"
    if NO_END != hole.last != hole.first:
        where = f"between offsets {hole.first} and {hole.last}"
    if found.known == "aborted":
        said = f"{whose} was aborted, as its transaction index says, and its marker {where} is lost"
    elif found.known == "committed":
        said = f"{whose} was not aborted, as the transaction index says of the next one, and its marker {where} is lost"
    else:
        said = f"{whose} may have lost its marker, {where}"
    if found.dropped:
        why = (
            "; else the commit of the next one would take it in"
            if found.known == "aborted" and found.ends == "commit"
            else ""
        )
        what = "1 batch of it is" if found.dropped == 1 else f"{found.dropped} batches of it are"
        return f"{said}: {what} dropped{why}"
    if found.ends == "commit":
        return f"{said}: the commit of the producer's next transaction takes it in"
    if found.ends == "abort":
        kept = ", unless the broker goes by the transaction index" if found.known == "committed" else ""
        return f"{said}: the abort of the producer's next transaction takes it in{kept}"
    hangs = OpenTransaction(topic_partition, "", found.producer_id, found.epoch, found.first_offset, -1, True)
    return f"{said}: consumers that read committed records only stop before it until {abort_command(hangs)}"
