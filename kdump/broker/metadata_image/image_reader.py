"""Builds the image of a cluster at an offset: the newest whole snapshot at or below it, and the log after that."""

from typing import Final

from kdump.broker.metadata_image.image_entries import ImageEntry, entries_of
from kdump.broker.metadata_image.metadata_batch_loader import MetadataBatchLoader, MetadataTransaction, ReplayProblem
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.metadata_log import (
    MAX_BATCH_BYTES,
    MetadataBatch,
    MetadataDamage,
    MetadataLog,
    SnapshotFile,
    batches_of,
    control_value,
    metadata_message,
)
from kdump.errors import SourceError
from kdump.format.control import LeaderChange, SnapshotFooter, SnapshotHeader
from kdump.named_tuple import NamedTuple

FROM_SNAPSHOT: Final = "snapshot"
FROM_ONLY_VOTER: Final = "only-voter"


class UnusableSnapshot(NamedTuple):
    """A snapshot that is damaged or not whole. `damage` is None for one that only lacks its end."""

    snapshot: SnapshotFile
    damage: MetadataDamage | None


class ClusterMetadata(NamedTuple):
    """The image after the record at `offset`, and where it comes from.

    `offset` is -1 for an image before the first record. `epoch` is the leader epoch and `timestamp` the time (in
    milliseconds) of the last record, -1 where nothing says them; `leader_id` is the last leader that the records name.
    `records` is the number of records of the log after the snapshot. `log_end_offset` is None where the log was not
    read to its end.

    `high_watermark` is the highest that the files prove: None where they prove none. `source` says how: a snapshot has
    committed records only, and the log of the only voter is committed as soon as it is written (then `high_watermark`
    is None where the end of the log is not known). `committed` are the entries below the high watermark where there
    are records above it.

    `damage` ended the image before the offset that was wanted; `missing_from` is the first offset of a hole in the log.
    `is_complete`: it reaches the offset that was wanted, or else the end of the log, where the write of the last batch
    may have broken off.
    """

    log: MetadataLog
    image: MetadataImage
    offset: int
    epoch: int
    timestamp: int
    leader_id: int | None
    snapshot: SnapshotFile | None
    unusable: tuple[UnusableSnapshot, ...]
    records: int
    log_end_offset: int | None
    high_watermark: int | None
    source: str | None
    uncommitted_records: int | None
    committed: list[ImageEntry] | None
    open_transaction: MetadataTransaction | None
    committed_transactions: int
    aborted_transactions: int
    problems: tuple[ReplayProblem, ...]
    more_problems: int
    damage: MetadataDamage | None
    missing_from: int | None
    is_complete: bool


class _ImageReader:
    """One reading: a snapshot, then the batches of the log in the order of their offsets."""

    def __init__(self, log: MetadataLog, offset: int | None, max_batch_bytes: int) -> None:
        self.log = log
        self.last = offset  # the last wanted offset, None for the end
        self.max_batch_bytes = max_batch_bytes
        self.loader = MetadataBatchLoader(MetadataImage())
        self.next_offset = 0
        self.epoch = self.timestamp = -1
        self.leader_id: int | None = None
        self.voters = log.static_voters
        self.records = self.above = 0
        self.known_below = max((each.end_offset for each in log.snapshots), default=0)
        self.committed: list[ImageEntry] | None = None
        self.damage: MetadataDamage | None = None
        self.missing_from: int | None = None

    # ---- snapshots

    def load_snapshot(self, snapshot: SnapshotFile) -> UnusableSnapshot | None:
        """Load a snapshot in place of what was loaded before; says why it cannot be used."""
        self.loader = MetadataBatchLoader(MetadataImage())
        self.next_offset, self.epoch, self.timestamp = snapshot.end_offset, snapshot.epoch, -1
        whole = False
        for item in batches_of(snapshot.file, self.max_batch_bytes):
            if isinstance(item, MetadataDamage):
                return UnusableSnapshot(snapshot, item)
            for record in item.records:
                value = control_value(record) if item.batch.control else None
                if isinstance(value, SnapshotHeader):
                    self.timestamp = value.last_contained_log_timestamp
                whole = isinstance(value, SnapshotFooter)
                if item.batch.control:
                    self.loader.image.voters.change(value)
                else:
                    self._replay(snapshot.file.path, record.offset, metadata_message(record))
        return None if whole else UnusableSnapshot(snapshot, None)

    def _replay(self, path: str, offset: int, message: object) -> None:
        from kdump.format.internal_topics.decoded import DecodedMessage

        if isinstance(message, DecodedMessage):
            self.loader.replay(path, offset, message)
        else:
            self.loader.add_problem(ReplayProblem(path, offset, None, str(message)))

    # ---- the log

    def read_log(self) -> bool:
        """Replay the log from the next offset on. Returns whether it was read to its end."""
        segments = self.log.segments
        first = max((i for i, each in enumerate(segments) if (each.base_offset or 0) <= self.next_offset), default=0)
        pending: MetadataDamage | None = None
        for file in segments[first:]:
            for item in batches_of(file, self.max_batch_bytes):
                if self.is_done:
                    return False
                if isinstance(item, MetadataDamage):
                    pending = pending or item
                elif item.batch.last_offset >= self.next_offset:
                    if item.batch.base_offset > self.next_offset:
                        # what lies before a snapshot does not matter; here records are missing
                        self.damage, self.missing_from = pending, self.next_offset
                        return False
                    pending = None
                    self._batch(item)
        if not self.is_done and pending is not None:
            self.damage = pending
        return pending is None

    @property
    def is_done(self) -> bool:
        """Whether the last wanted record was replayed."""
        return self.last is not None and self.next_offset > self.last

    def _batch(self, item: MetadataBatch) -> None:
        batch = item.batch
        for record in item.records:
            if record.offset < self.next_offset or self.is_done:
                continue
            if record.offset >= self.known_below:
                if self.committed is None:
                    self.committed = list(entries_of(self.loader.image))
                self.above += 1
            self.next_offset = record.offset + 1
            self.records += 1
            self.epoch, self.timestamp = batch.partition_leader_epoch, record.timestamp
            if batch.control:
                value = control_value(record)
                self.loader.image.voters.change(value)
                if isinstance(value, LeaderChange):
                    self.leader_id = value.leader_id
                    self.voters = tuple(voter.voter_id for voter in value.voters)
            else:
                self._replay(item.file.path, record.offset, metadata_message(record))
        if not self.is_done:
            self.next_offset = max(self.next_offset, batch.last_offset + 1)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing of what was wanted."""
        torn = self.last is None and (self.damage is None or self.damage.is_broken_write)
        return self.missing_from is None and (self.is_done or torn or (self.damage is None and not self.log.segments))

    # ---- what is committed

    def is_only_voter(self) -> bool:
        """Whether the log is that of the only voter. Without meta.properties nothing speaks against it."""
        meta, dynamic = self.log.meta, self.loader.image.voters.voters
        if dynamic is not None:
            if len(dynamic) != 1:
                return False
            directory = None if meta is None else meta.directory_id
            same = directory is None or directory == dynamic[0].voter_directory_id
            return same and (meta is None or meta.node_id in (None, dynamic[0].voter_id))
        if self.voters is None or len(self.voters) != 1:
            return False
        return meta is None or meta.node_id in (None, self.voters[0])


def read_image(log: MetadataLog, offset: int | None = None, max_batch_bytes: int = MAX_BATCH_BYTES) -> ClusterMetadata:
    """The image after the record at `offset`, or after the last one.

    Damage ends the image before it; `damage` and `missing_from` say so. Raises SourceError where the files have no
    image at that offset: it lies beyond the end, or before the oldest snapshot.
    """
    reader = _ImageReader(log, offset, max_batch_bytes)
    used, unusable = _start(reader)
    to_end = reader.read_log() if log.segments else True
    if offset is not None and not reader.is_done and reader.damage is None and reader.missing_from is None:
        what = "log" if log.segments else "snapshot"
        raise SourceError(
            f"{log.path}: the {what} ends with offset {reader.next_offset - 1}; there is no offset {offset}"
        )
    only = bool(log.segments) and reader.is_only_voter()
    end = reader.next_offset if to_end and log.segments and not reader.is_done else None
    watermark = end if only else reader.known_below or None
    proven = only or bool(reader.known_below)
    return ClusterMetadata(
        log,
        reader.loader.image,
        reader.next_offset - 1,
        reader.epoch,
        reader.timestamp,
        reader.leader_id,
        used,
        tuple(unusable),
        reader.records,
        end,
        watermark,
        (FROM_ONLY_VOTER if only else FROM_SNAPSHOT) if proven else None,
        (0 if only else reader.above) if proven else None,
        None if only or not proven else reader.committed,
        reader.loader.open_transaction,
        reader.loader.committed_transactions,
        reader.loader.aborted_transactions,
        tuple(reader.loader.problems),
        reader.loader.more_problems,
        reader.damage,
        reader.missing_from,
        reader.is_complete,
    )


def _start(reader: _ImageReader) -> tuple[SnapshotFile | None, list[UnusableSnapshot]]:
    """Load the newest whole snapshot at or below the wanted offset; without one the log has to begin with offset 0."""
    log, offset = reader.log, reader.last
    unusable: list[UnusableSnapshot] = []
    for snapshot in log.snapshots:
        if offset is not None and snapshot.end_offset > offset + 1:
            continue
        problem = reader.load_snapshot(snapshot)
        if problem is None:
            _check_reach(log, offset, snapshot.end_offset, snapshot)
            return snapshot, unusable
        unusable.append(problem)
    reader.loader = MetadataBatchLoader(MetadataImage())
    reader.next_offset, reader.epoch, reader.timestamp = 0, -1, -1
    _check_reach(log, offset, 0, None)
    return None, unusable


def _check_reach(log: MetadataLog, offset: int | None, reached: int, snapshot: SnapshotFile | None) -> None:
    """Refuse a log that begins after what the snapshot has. At the end of the log a snapshot alone is enough."""
    start = log.log_start_offset
    if start is None:
        if snapshot is None:
            raise SourceError(f"{log.path}: no whole snapshot at or below the offset, and no log")
    elif start > reached and not (snapshot is not None and offset is not None and offset < reached):
        where = "there is no whole snapshot" if snapshot is None else f"the newest whole snapshot ends before {reached}"
        raise SourceError(f"{log.path}: no image: the log begins with offset {start}, and {where}")
