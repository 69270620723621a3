"""Bring a log into the state in which it can be appended to: check the active segment, remove leftover files, load
producers and leader epochs.

A log that was closed in order has a producer snapshot of its end, and indexes that match its active segment. Otherwise
the companions of that segment are rebuilt, as a broker's start does that recovers it (kdump.broker.rebuild). Batches
are never removed here: a log that a recovery would truncate is refused.

Sources: LogLoader.load, LogSegment.recover, ProducerStateManager.removeStraySnapshots and truncateAndReload of Kafka
4.3.
"""

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from kdump.broker.append_producer_state import AppendProducerState
from kdump.broker.defaults import PRODUCER_ID_EXPIRATION_MS
from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.broker.rebuild import rebuild_companions
from kdump.broker.rebuild_request import PlannedSegment, RebuildRequest
from kdump.errors import KdumpError
from kdump.format import index, producer_snapshot
from kdump.format.checkpoint import CheckpointError, EpochEntry, build_epochs, epoch_entries
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY
from kdump.format.naming import (
    COORDINATOR_TOPICS,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    ROOT_FILES,
    Kind,
    number_of,
    segment_file_name,
    state_of,
    topic_partition_of,
)
from kdump.format.producer_snapshot import HEADER_SIZE, SnapshotError
from kdump.kernel.indexes import IndexTracker, ordered
from kdump.kernel.producers import unexpired
from kdump.kernel.scan import SUSPECTS
from kdump.log.log_files import checkpointed_start_offset
from kdump.log.log_snapshot import SegmentDescription
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader07 import segment_reader
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle, replace_file, rewrite_file
from kdump.storage.listing import list_directory, partition_of_listing
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.pieces import Piece
from kdump.storage.source import FileSource
from kdump.storage.stamps import read_stamps
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk
from kdump.verify.reaction import TRUNCATION_CODES
from kdump.writer.options import KAFKA07, LogOptions

_TRUNCATION_BITS: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in TRUNCATION_CODES)
_REFUSED_FILES: Final = {
    "swap": "a segment that was replacing others",
    "swap-dropped": "a part of a segment that was being split",
    "cleaned": "a part of a segment that a log cleaner was writing",
    "number": "a file whose name has no number",
    "negative": "a segment with a negative offset",
    "short": "a segment whose name does not have 20 digits",
}
_IGNORED_FILES: Final = ("deleted", "index", "tmp")


class StartupState(NamedTuple):
    """A log that can be appended to.

    `closed` are the segments before the active one. `base_offset` is that of the active segment, None without one.
    `snapshot_end` is the offset of the latest producer snapshot.
    """

    closed: tuple[SegmentDescription, ...]
    base_offset: int | None
    start_offset: int
    end_offset: int
    epochs: LeaderEpochFileCache
    producers: AppendProducerState
    snapshot_end: int


class _ActiveSegmentState(NamedTuple):
    """What a walk over the active segment found.

    `indexes_valid`: its index files hold what a broker's append or recovery writes.
    """

    end_offset: int
    epochs: tuple[tuple[int, int, int], ...]
    indexes_valid: bool


def now_ms(options: LogOptions) -> int:
    """The time by the clock of the options, in milliseconds."""
    return int(time.time() * 1000) if options.clock is None else options.clock()


def load_log(directory: DirectoryHandle, options: LogOptions, before_first_change: Callable[[], None]) -> StartupState:
    """Check the log in a topic-partition directory, and restore what needs no recovery.

    `before_first_change` is called before anything is changed.

    Raises KdumpError for a log that has to be recovered first, OSError.
    """
    path = os.path.abspath(directory.path)
    kind = Kind.KAFKA07 if options.magic == KAFKA07 else Kind.LOG
    name = topic_partition_of(path, kafka07=kind is Kind.KAFKA07)
    partition, errors = partition_of_listing(list_directory(directory.path), name, whole=True)
    for error in errors:
        raise error
    removable = _removable_files(directory, partition)
    log_start = checkpointed_start_offset(partition, path)
    logs = [segment.log for segment in partition.segments]
    _check_format(directory, logs, kind)
    base_offsets = [log.base_offset for log in logs if log.base_offset is not None]
    closed = _closed_segments(logs[:-1])
    if closed and closed[-1].next_offset > base_offsets[-1]:
        beyond = f"{closed[-1].path}: its offsets go beyond {base_offsets[-1]}, where the next segment begins"
        raise _needs_recovery(directory, beyond, "salvage")
    active = _check_active_segment(directory, base_offsets[-1], options) if base_offsets else None
    if active is not None and active.end_offset < log_start:
        below = f"{directory.path}: the log ends at offset {active.end_offset}, below its start offset {log_start}"
        raise _needs_recovery(directory, below)
    stored = _stored_epochs(directory) if kind is Kind.LOG else None
    before_first_change()
    for file in removable:
        directory.remove(file)
    first = max(log_start, base_offsets[0] if base_offsets else options.base_offset)
    if kind is Kind.KAFKA07:
        end, base_offset = (first, None) if active is None else (active.end_offset, base_offsets[-1])
        return StartupState(closed, base_offset, first, end, LeaderEpochFileCache(), AppendProducerState(), end)
    sequences = name is None or name.topic not in COORDINATOR_TOPICS
    if active is None:
        epochs = _epochs(directory, options, stored, (), log_start, first)
        return StartupState((), None, first, first, epochs, AppendProducerState(sequences=sequences), first)
    end = active.end_offset
    entries = _producers(directory, base_offsets, end, first) if active.indexes_valid else None
    epochs = _epochs(directory, options, stored, active.epochs if entries is None else (), log_start, end)
    if entries is None:
        entries = _rebuild(directory, base_offsets, end, first, options)
    snapshot_end = _remove_snapshots(directory, base_offsets, end, first)
    kept = unexpired(entries, now_ms(options), PRODUCER_ID_EXPIRATION_MS)
    producers = AppendProducerState(kept, sequences=sequences)
    return StartupState(closed, base_offsets[-1], first, end, epochs, producers, snapshot_end)


def _check_format(directory: DirectoryHandle, logs: Iterable[LogFile], kind: Kind) -> None:
    """Raise KdumpError for the root of a log directory, and for segments of the other kind."""
    if not logs and not ROOT_FILES.isdisjoint(directory.names()):
        raise KdumpError(f"{directory.path}: a log directory; only a topic-partition directory in it can be written to")
    for log in logs:
        if log.kind is not kind:
            raise KdumpError(f"{log.path}: a segment of another format; a log has only one")


def _needs_recovery(directory: DirectoryHandle, why: str, strategy: str = "truncate") -> KdumpError:
    return KdumpError(f"{why}; kdump recover --{strategy} {directory.path} recovers the log")


def _removable_files(directory: DirectoryHandle, partition: Partition) -> list[str]:
    """The names of files that a broker's start removes whatever is in the logs.

    Raises KdumpError for files that it would swap in, and for those that stop it.
    """
    if state_of(directory.path):
        raise KdumpError(f"{directory.path}: a log that a broker moves or deletes; it cannot be appended to")
    for misplaced in partition.misplaced_files:
        if misplaced.what in _REFUSED_FILES:
            raise _needs_recovery(directory, f"{misplaced.path}: {_REFUSED_FILES[misplaced.what]}")
    return [os.path.basename(each.path) for each in partition.misplaced_files if each.what in _IGNORED_FILES]


def _closed_segments(logs: Iterable[LogFile]) -> tuple[SegmentDescription, ...]:
    cache, found = SegmentCache(), []
    for log in logs:
        assert log.base_offset is not None
        reader = segment_reader(cache, log.base_offset, log.path, log.kind, log.size)
        end, largest, modified_ms = reader.next_offset(log.size), reader.last_time_entry(), reader.modified_ms()
        found.append(SegmentDescription(log.base_offset, log.path, log.size, end, largest, modified_ms, False))
    cache.clear()
    return tuple(found)


# ---- the active segment


def _check_active_segment(directory: DirectoryHandle, base: int, options: LogOptions) -> _ActiveSegmentState:
    """Walk over the whole segment. Raises KdumpError where a recovery would truncate it."""
    is_07 = options.magic == KAFKA07
    path = directory.path_of(segment_file_name(base, ".kafka" if is_07 else ".log"))
    indexes = None if is_07 else _indexes(directory, base)
    tracker = None
    if indexes is not None:
        tracker = IndexTracker(base)
        tracker.check(*indexes)
    kind, largest = Kind.KAFKA07 if is_07 else Kind.LOG, max(options.max_message_bytes, MAX_BATCH_BYTES)
    with FileSource(path) as source:
        walk = walk_of(kind, source, base_offset=base, indexes=tracker, max_batch_bytes=largest)
        for item in walk:
            if not isinstance(item, BatchChunk):
                raise _needs_recovery(directory, f"{path}: there is no batch at byte {item.position}")
            for batch, suspect in zip(item.rows(), item.suspects(), strict=True):
                if item.damaged or suspect & _TRUNCATION_BITS:
                    raise _needs_recovery(directory, f"{path}: the batch at byte {batch.position} is damaged")
        seen = walk.scanner.state()
        size = source.size
    if is_07:
        return _ActiveSegmentState(base + size, (), True)
    end = seen.next_offset(base)
    indexes_valid = False
    if indexes is not None and tracker is not None:
        counts = len(indexes[0]) // OFFSET_ENTRY.size, len(indexes[1]) // TIME_ENTRY.size
        last = TIME_ENTRY.unpack(indexes[1][-TIME_ENTRY.size :])[0] if indexes[1] else -1
        used = seen.index_cursor, seen.time_cursor
        indexes_valid = not tracker.bad_entry_counts() and (used == counts if seen.has_last else counts == (0, 0))
        indexes_valid = indexes_valid and seen.max_timestamp <= last
    return _ActiveSegmentState(end, seen.epochs, indexes_valid)


def _slice(data: bytes, at: int, size: int) -> bytes:
    return data[at : at + size]


def _indexes(directory: DirectoryHandle, base: int) -> tuple[bytes, bytes] | None:
    """The bytes of both indexes, if they hold only entries in order and the transaction index is valid; else None."""
    found = []
    for suffix, entry in ((".index", OFFSET_ENTRY), (".timeindex", TIME_ENTRY)):
        name = segment_file_name(base, suffix)
        if directory.stamp(name) is None:
            return None
        data = directory.read(name)
        extent = index.index_extent(partial(_slice, data), len(data), entry.size)
        if extent.padding or extent.remainder or ordered(data, entry.size) * entry.size != len(data):
            return None
        found.append(data)
    name = segment_file_name(base, ".txnindex")
    transactions = b"" if directory.stamp(name) is None else directory.read(name)
    if len(transactions) % TRANSACTION_ENTRY.size:
        return None
    # The checks of TransactionIndex.sanityCheck.
    if any(version or last < base for version, _, _, _, last, _ in TRANSACTION_ENTRY.iter_unpack(transactions)):
        return None
    return found[0], found[1]


# ---- producers


def _snapshots(directory: DirectoryHandle) -> dict[int, str]:
    """The names of the producer snapshots by their offsets."""
    found = {}
    for name in directory.names():
        offset = number_of(name) if name.endswith(".snapshot") else None
        if offset is not None:
            found[offset] = name
    return found


def _producers(directory: DirectoryHandle, base_offsets: list[int], end: int, log_start: int) -> bytes | None:
    """The entries of the producer snapshot of the log end offset; None where the log was not closed in order."""
    found = _snapshots(directory)
    if end not in found:
        # A log where nothing was ever appended has no snapshot.
        return b"" if end == base_offsets[0] == log_start and not found else None
    data = directory.read(found[end])
    try:
        seen = producer_snapshot.read_snapshot(data)
    except SnapshotError:
        return None
    return None if seen.problem is not None else data[HEADER_SIZE : seen.end]


def _rebuild(
    directory: DirectoryHandle, base_offsets: list[int], end: int, log_start: int, options: LogOptions
) -> bytes:
    """Rebuild the companions of the active segment.

    Returns the entries of a producer snapshot of the log end offset.
    """
    snapshot_name = segment_file_name(end, ".snapshot")
    names = [segment_file_name(base_offsets[-1], suffix) for suffix in INDEX_SUFFIXES]
    files = read_stamps(directory.path)
    logs = [(base, segment_file_name(base, ".log")) for base in base_offsets]
    request = RebuildRequest(
        directory.path,
        files,
        tuple(
            PlannedSegment(
                base, (Piece(name, 0, files[name].size),) if files[name].size else (), True, base == base_offsets[-1]
            )
            for base, name in logs
        ),
        frozenset((*names, snapshot_name)),
        dict.fromkeys((*names, snapshot_name), True),
        log_start,
        end,
        options.index_interval_bytes,
        options.segment_index_bytes,
        now_ms=now_ms(options),
    )
    entries = b""
    for name, data in rebuild_companions(request):
        if name == snapshot_name:
            assert data is not None
            entries = data[HEADER_SIZE:]
        if data is None:
            directory.remove(name)
        else:
            rewrite_file(directory, name, data)
    return entries


def _remove_snapshots(directory: DirectoryHandle, base_offsets: list[int], end: int, log_start: int) -> int:
    """Remove the producer snapshots that a start removes.

    Returns the offset of the latest one that remains, the log start offset without one.

    Source: ProducerStateManager.removeStraySnapshots and truncateAndReload of Kafka 4.3.
    """
    found = _snapshots(directory)
    stray_snapshots = sorted(found.keys() - set(base_offsets))
    kept = stray_snapshots[-1:] if stray_snapshots and stray_snapshots[-1] > base_offsets[-1] else []
    removed = {
        *(offset for offset in stray_snapshots if offset not in kept),
        *(offset for offset in found if offset > end or offset <= log_start),
    }
    for offset in sorted(removed):
        directory.remove(found.pop(offset))
    return max(found, default=log_start)


# ---- leader epochs


def _stored_epochs(directory: DirectoryHandle) -> list[EpochEntry] | None:
    """The entries of the leader epoch checkpoint, None without one.

    Raises KdumpError where a broker could not read it.
    """
    if directory.stamp(LEADER_EPOCH_CHECKPOINT) is None:
        return None
    try:
        stored = list(epoch_entries(directory.read(LEADER_EPOCH_CHECKPOINT)))
    except CheckpointError as error:
        raise _needs_recovery(directory, f"{directory.path_of(LEADER_EPOCH_CHECKPOINT)}: {error}") from None
    if any(number < 0 for entry in stored for number in entry):
        path = directory.path_of(LEADER_EPOCH_CHECKPOINT)
        raise _needs_recovery(directory, f"{path}: an epoch or an offset is negative")
    return stored


def _epochs(
    directory: DirectoryHandle,
    options: LogOptions,
    stored: list[EpochEntry] | None,
    found: Iterable[tuple[int, int, int]],
    log_start: int,
    end: int,
) -> LeaderEpochFileCache:
    """The stored epochs, and those that were `found` in a segment that was not closed in order, within the offsets of
    the log.

    The checkpoint is written if they differ from it.
    """
    epochs = LeaderEpochFileCache()
    for entry in stored or ():
        epochs.assign(*entry)
    for epoch, first, _ in found:
        epochs.assign_if_later(epoch, first)
    epochs.truncate(log_start, end)
    if [EpochEntry(*entry) for entry in epochs.entries] != (stored or []):
        write_epochs(directory, epochs)
    elif stored is None and options.magic == 2:
        with directory.create(LEADER_EPOCH_CHECKPOINT):
            pass
    return epochs


def write_epochs(directory: DirectoryHandle, epochs: LeaderEpochFileCache) -> None:
    """Write the leader epoch checkpoint. Raises OSError."""
    replace_file(directory, LEADER_EPOCH_CHECKPOINT, build_epochs([EpochEntry(*entry) for entry in epochs.entries]))
