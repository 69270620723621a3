"""Reads the log of a coordinator from its start to its end, and gives each record to what keeps the state.

A broker that becomes the leader of a partition of `__consumer_offsets` or `__share_group_state` does the same. Unlike a
broker, which gives up, this goes on after damage and after a record that it cannot decode, and counts both.

Source: CoordinatorLoaderImpl of Kafka 4.3.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.control import ControlType, decode_key
from kdump.format.internal_topics.decoded import DecodedRecord, RecordDecoder
from kdump.format.java import MAX_LONG
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.records import open_in_pieces, records
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, ForeignBatch, Tail, TailContent, Walk

_MARKERS: Final = {ControlType.COMMIT: True, ControlType.ABORT: False}


class CoordinatorShard(Protocol):
    """Keeps the state of one partition of an internal topic."""

    def replay(self, record_offset: int, producer_id: int, decoded: DecodedRecord) -> str | None:
        """Apply a record. Returns its group, None for a record without one."""

    def replay_end_transaction_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply a marker."""


@dataclass(slots=True)
class GroupLogUse:
    """What the records of a group take in the log of its coordinator; `bytes` are those of the decompressed records.

    `first_offset` and `last_offset` are those of its records.
    """

    first_offset: int
    last_offset: int = -1
    records: int = 0
    bytes: int = 0
    tombstones: int = 0

    def add(self, offset: int, size_bytes: int, *, tombstone: bool) -> None:
        """Count a record."""
        self.last_offset = offset
        self.records += 1
        self.bytes += size_bytes
        self.tombstones += tombstone


@dataclass(slots=True)
class CoordinatorLoadSummary:
    """What a load read. `damaged` are stretches that are not a valid batch, `undecoded` records without valid fields.

    `unknown` are records of a type or version that only a later release knows. `superseded` are records that later ones
    may have replaced, which the log cleaner removed. `bytes` are those of all records.
    """

    log_use: dict[str, GroupLogUse] = field(default_factory=dict)
    records: int = 0
    bytes: int = 0
    damaged: int = 0
    undecoded: int = 0
    unknown: int = 0
    superseded: int = 0
    errors: list[SourceError] = field(default_factory=list)


class CoordinatorLoader:
    """Loads the log of a partition of an internal topic.

    `log_start_offset`: records below it are left out. `live`: a broker is writing the log, so that its last bytes may
    be half a batch.
    """

    def __init__(
        self,
        shard: CoordinatorShard,
        decoder: RecordDecoder,
        max_batch_bytes: int,
        *,
        log_start_offset: int = 0,
        live: bool = False,
    ) -> None:
        self.summary = CoordinatorLoadSummary()
        self._shard, self._decoder, self._max_batch_bytes = shard, decoder, max_batch_bytes
        self._log_start_offset, self._live = log_start_offset, live

    def load(self, partition: Partition) -> CoordinatorLoadSummary:
        """Read all segments of one copy in log order. What cannot be read is an error of the summary."""
        for segment in partition.segments:
            try:
                with segment.log.open() as source:
                    walk = self._walk(segment.log, source, segment.log.base_offset)
                    self._read(walk, segment.log, self._log_start_offset, MAX_LONG)
            except SourceError as error:
                self.summary.errors.append(error)
        return self.summary

    def load_part(self, log: LogFile, positions: tuple[int, int], offsets: tuple[int, int]) -> None:
        """Read the valid batches that begin at `positions` [start, stop), of these the records at `offsets`.

        `offsets` are inclusive: the first and the last of these batches have them. Where they do not, because the file
        is another one by now, that is damage. What cannot be read is an error of the summary.
        """
        (start, stop), (lowest, highest) = positions, offsets
        try:
            with log.open() as source:
                walk = self._walk(log, source, log.base_offset if start == 0 else max(lowest, 0), start, stop)
                first, last = self._read(walk, log, max(lowest, self._log_start_offset), highest)
        except SourceError as error:
            self.summary.errors.append(error)
            return
        if walk.position != stop or first > lowest or last < highest:
            self.summary.damaged += 1

    def _walk(
        self, log: LogFile, source: Source, base_offset: int | None, start: int = 0, stop: int | None = None
    ) -> Walk:
        limit = self._max_batch_bytes
        return walk_of(
            log.kind, source, base_offset=base_offset, start=start, stop=stop, everything=True, max_batch_bytes=limit
        )

    def _read(self, walk: Walk, log: LogFile, lowest: int, highest: int) -> tuple[int, int]:
        """Replay the records with offsets from `lowest` to `highest`; the first and last offset of the batches."""
        first, last = MAX_LONG, -1
        for item in walk:
            match item:
                case BatchChunk(_, _, False):
                    for batch in item.rows():
                        first, last = min(first, batch.base_offset), batch.last_offset
                        if last >= lowest:
                            self._replay(batch, item.body(batch), lowest, highest)
                case Tail(_, _, TailContent.ZEROS) if log.preallocated:
                    pass
                case Tail() if self._live and log.active:
                    pass
                case ForeignBatch():
                    pass
                case _:
                    self.summary.damaged += 1
        return first, last

    def _replay(self, batch: Batch, body: memoryview, lowest: int, highest: int) -> None:
        summary = self.summary
        opened = open_in_pieces(batch, body, self._max_batch_bytes)
        if opened.problem is not None:
            summary.damaged += 1
        producer_id, is_cut = batch.producer_id, batch.base_offset < lowest or batch.last_offset > highest
        for record in records(batch, opened):
            if is_cut and not lowest <= record.offset <= highest:
                continue
            if batch.control:
                try:
                    commits = _MARKERS.get(decode_key(record.key).type)  # type: ignore[call-overload]
                except ValueError:
                    summary.undecoded += 1
                    continue
                if commits is not None:
                    self._shard.replay_end_transaction_marker(producer_id, commits=commits)
                continue
            decoded = self._decoder.decode(record.key, record.value)
            group = self._shard.replay(record.offset, producer_id, decoded)
            summary.records += 1
            summary.bytes += record.size
            if decoded.problem is not None:
                self._count_problem(decoded)
            if group is not None:
                use = summary.log_use.get(group)
                if use is None:
                    use = summary.log_use[group] = GroupLogUse(record.offset)
                use.add(record.offset, record.size, tombstone=record.value is None)

    def _count_problem(self, decoded: DecodedRecord) -> None:
        if decoded.is_unknown:
            self.summary.unknown += 1
        else:
            self.summary.undecoded += 1
