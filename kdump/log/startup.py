"""The state in which a log goes on: its segments, the newest one proved, what was left over cleared away, producers and leader epochs.

A log that was closed in order has a snapshot of its end, and indexes that its newest segment bears out. Otherwise the companions of that segment are made anew, as by a start of a
broker that recovers it (kdump.broker.rebuild). What a recovery would take away from a log is never taken here.
"""

import os
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kdump.broker.defaults import PRODUCER_ID_EXPIRATION_MS
from kdump.broker.load_state import LeaderEpochFileCache
from kdump.broker.log_loader import EPOCHS
from kdump.broker.producer_state import ProducerState
from kdump.broker.rebuild import make
from kdump.broker.rebuild_request import PlannedSegment, Rebuild
from kdump.errors import KdumpError
from kdump.format import index, snapshot
from kdump.format.checkpoint import CheckpointError, EpochEntry, build_epochs, epoch_entries
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY
from kdump.format.naming import ROOT_FILES, Kind, file_name, number_of, state_of, topic_partition_of
from kdump.format.snapshot import HEADER_SIZE, SnapshotError
from kdump.kernel.producers import unexpired
from kdump.kernel.scan import SUSPECTS, Scanner, ordered
from kdump.log.log_files import checkpointed_start_offset
from kdump.log.log_snapshot import SegmentDescription
from kdump.log.options import KAFKA07, LogOptions
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader07 import segment_reader
from kdump.storage.directory_handle import DirectoryHandle, renew, replace
from kdump.storage.listing import listing, partition_in
from kdump.storage.partition import LogFile, Partition
from kdump.storage.pieces import Piece
from kdump.storage.source import FileSource
from kdump.storage.stamps import stamps
from kdump.storage.walk import BatchChunk, Walk
from kdump.storage.walk07 import Walk07
from kdump.verify.partition import COORDINATORS
from kdump.verify.reaction import CUTS

_CUTS: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in CUTS)
_LEFT: Final = {
    "swap": "a segment that was being put in the place of others",
    "swap-dropped": "a part of a segment that was being split",
    "cleaned": "a part of what a cleaner was writing",
    "number": "a file whose name has no number",
    "negative": "a segment with a negative offset",
    "short": "a segment whose name has no 20 digits",
}


class StartupState(NamedTuple):
    """A log that can be appended to. `base_offset` is that of the newest segment, None where there is none; the newest snapshot of the producers reaches to `snapshot_end`."""

    closed: tuple[SegmentDescription, ...]
    base_offset: int | None
    start_offset: int
    end_offset: int
    epochs: LeaderEpochFileCache
    producers: ProducerState
    snapshot_end: int


class _Proved(NamedTuple):
    end_offset: int
    epochs: tuple[tuple[int, int, int], ...]
    bears_out: bool


def now_ms(options: LogOptions) -> int:
    return int(time.time() * 1000) if options.clock is None else options.clock()


def reopen(place: DirectoryHandle, options: LogOptions, begin: Callable[[], None]) -> StartupState:
    """Look at a topic-partition directory, then bring in order what no recovery is needed for; `begin` is called before the first change. Raises KdumpError, OSError."""
    path = os.path.abspath(place.path)
    kind = Kind.KAFKA07 if options.magic == KAFKA07 else Kind.LOG
    name = topic_partition_of(path, kafka07=kind is Kind.KAFKA07)
    partition, errors = partition_in(listing(place.path), name, whole=True)
    for error in errors:
        raise error
    spare = _spare(place, partition)
    log_start = checkpointed_start_offset(partition, path)
    logs = [segment.log for segment in partition.segments]
    if not logs and not ROOT_FILES.isdisjoint(place.names()):
        raise KdumpError(f"{place.path}: a log directory; what can be written to is a topic-partition in it")
    for log in logs:
        if log.kind is not kind:
            raise KdumpError(f"{log.path}: a segment of another format, and no log has both")
    bases = [log.base_offset for log in logs if log.base_offset is not None]
    closed = _closed(logs[:-1])
    if closed and closed[-1].next_offset > bases[-1]:
        raise _mend(
            place, f"{closed[-1].path}: it goes beyond offset {bases[-1]}, where the next segment begins", "salvage"
        )
    proved = _prove(place, bases[-1], options) if bases else None
    if proved is not None and proved.end_offset < log_start:
        raise _mend(
            place, f"{place.path}: the log ends at offset {proved.end_offset}, before its start offset {log_start}"
        )
    stored = _stored_epochs(place) if kind is Kind.LOG else None
    begin()
    for stray in spare:
        place.remove(stray)
    first = max(log_start, bases[0] if bases else options.base_offset)
    if kind is Kind.KAFKA07:
        end = first if proved is None else proved.end_offset
        return StartupState(
            closed, bases[-1] if bases else None, first, end, LeaderEpochFileCache(), ProducerState(), end
        )
    sequences = name is None or name.topic not in COORDINATORS
    if proved is None:
        epochs = _epochs(place, options, stored, (), log_start, first)
        return StartupState((), None, first, first, epochs, ProducerState(sequences=sequences), first)
    end = proved.end_offset
    body = _producers(place, bases, end, first) if proved.bears_out else None
    epochs = _epochs(place, options, stored, proved.epochs if body is None else (), log_start, end)
    if body is None:
        body = _rebuild(place, bases, end, first, options)
    snapshot_end = _clear_snapshots(place, bases, end, first)
    kept = unexpired(body, now_ms(options), PRODUCER_ID_EXPIRATION_MS)
    return StartupState(closed, bases[-1], first, end, epochs, ProducerState(kept, sequences=sequences), snapshot_end)


def _mend(place: DirectoryHandle, what: str, strategy: str = "truncate") -> KdumpError:
    return KdumpError(f"{what}; kdump recover --{strategy} {place.path} brings the log in order")


def _spare(place: DirectoryHandle, partition: Partition) -> list[str]:
    """What a start of a broker removes without a look at the logs. Raises KdumpError for what it would put in the place of something, or stumbles over."""
    if state_of(place.path):
        raise KdumpError(f"{place.path}: a log that a broker moves or deletes, nothing is appended to it")
    for stray in partition.strays:
        if stray.what in _LEFT:
            raise _mend(place, f"{stray.path}: {_LEFT[stray.what]}")
    return [os.path.basename(stray.path) for stray in partition.strays if stray.what in ("deleted", "index", "tmp")]


def _closed(logs: Iterable[LogFile]) -> tuple[SegmentDescription, ...]:
    cache, found = SegmentCache(), []
    for log in logs:
        assert log.base_offset is not None
        reader = segment_reader(cache, log.base_offset, log.path, log.kind, log.size)
        modified_ms = os.fstat(reader.file.fileno()).st_mtime_ns // 1_000_000
        end, largest = reader.next_offset(log.size), reader.last_time_entry()
        found.append(SegmentDescription(log.base_offset, log.path, log.size, end, largest, modified_ms, False))
    cache.clear()
    return tuple(found)


# ---- the newest segment


def _prove(place: DirectoryHandle, base: int, options: LogOptions) -> _Proved:
    """Walk over all of it. Raises KdumpError where a recovery would cut something off."""
    is_07 = options.magic == KAFKA07
    path = place.at(file_name(base, ".kafka" if is_07 else ".log"))
    indexes = None if is_07 else _indexes(place, base)
    walk_type = Walk07 if is_07 else Walk
    with FileSource(path) as source:
        walk = walk_type(
            source, base_offset=base, expect=indexes, max_batch_bytes=max(options.max_message_bytes, 1 << 30)
        )
        for item in walk:
            if not isinstance(item, BatchChunk):
                raise _mend(place, f"{path}: at byte {item.position} is no batch")
            for row in item.rows():
                if item.damaged or row.suspect & _CUTS:
                    raise _mend(place, f"{path}: the batch at byte {row.position} is damaged")
        scanner = walk.scanner
        seen = scanner.state()
        size = source.size
    if is_07:
        return _Proved(base + size, (), True)
    end = seen.next_offset(base)
    bears_out = indexes is not None
    if indexes is not None:
        counts = len(indexes[0]) // OFFSET_ENTRY.size, len(indexes[1]) // TIME_ENTRY.size
        last = TIME_ENTRY.unpack(indexes[1][-TIME_ENTRY.size :])[0] if indexes[1] else -1
        used = seen.index_cursor, seen.time_cursor
        assert isinstance(scanner, Scanner)
        bears_out = not scanner.entry_counts() and (used == counts if seen.has_last else counts == (0, 0))
        bears_out = bears_out and seen.max_timestamp <= last
    return _Proved(end, seen.epochs, bears_out)


def _indexes(place: DirectoryHandle, base: int) -> tuple[bytes, bytes] | None:
    """Both indexes, if they are there without anything but entries in order, and the transaction index is one."""
    found = []
    for suffix, entry in ((".index", OFFSET_ENTRY), (".timeindex", TIME_ENTRY)):
        name = file_name(base, suffix)
        if place.stamp(name) is None:
            return None
        data = place.read(name)
        extent = index.measure(lambda at, size, data=data: data[at : at + size], len(data), entry.size)  # type: ignore[misc]
        if extent.padding or extent.remainder or ordered(data, entry.size) * entry.size != len(data):
            return None
        found.append(data)
    name = file_name(base, ".txnindex")
    transactions = b"" if place.stamp(name) is None else place.read(name)
    if len(transactions) % TRANSACTION_ENTRY.size:
        return None
    # What of them a broker looks at (TransactionIndex.sanityCheck).
    if any(version or last < base for version, _, _, _, last, _ in TRANSACTION_ENTRY.iter_unpack(transactions)):
        return None
    return found[0], found[1]


# ---- producers


def _snapshots(place: DirectoryHandle) -> dict[int, str]:
    found = {}
    for name in place.names():
        offset = number_of(name) if name.endswith(".snapshot") else None
        if offset is not None:
            found[offset] = name
    return found


def _producers(place: DirectoryHandle, bases: list[int], end: int, log_start: int) -> bytes | None:
    """The entries of the snapshot of the log's end; None where it was not closed in order."""
    found = _snapshots(place)
    if end not in found:
        # Of a log where nothing was ever appended there is none.
        return b"" if end == bases[0] == log_start and not found else None
    data = place.read(found[end])
    try:
        seen = snapshot.look(data)
    except SnapshotError:
        return None
    return None if seen.problem is not None else data[HEADER_SIZE : seen.end]


def _rebuild(place: DirectoryHandle, bases: list[int], end: int, log_start: int, options: LogOptions) -> bytes:
    """Make the companions of the newest segment anew; the entries of a snapshot of the log's end."""
    snapshot_name = file_name(end, ".snapshot")
    names = [file_name(bases[-1], suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    files = stamps(place.path)
    logs = [(base, file_name(base, ".log")) for base in bases]
    request = Rebuild(
        place.path,
        files,
        tuple(
            PlannedSegment(
                base, (Piece(name, 0, files[name].size),) if files[name].size else (), True, base == bases[-1]
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
    body = b""
    for name, data in make(request):
        if name == snapshot_name:
            assert data is not None
            body = data[HEADER_SIZE:]
        if data is None:
            place.remove(name)
        else:
            renew(place, name, data)
    return body


def _clear_snapshots(place: DirectoryHandle, bases: list[int], end: int, log_start: int) -> int:
    """Remove the snapshots that a start removes; up to where the newest one reaches (ProducerStateManager.removeStraySnapshots, truncateAndReload)."""
    found = _snapshots(place)
    strays = sorted(found.keys() - set(bases))
    kept = strays[-1:] if strays and strays[-1] > bases[-1] else []
    gone = {
        *(offset for offset in strays if offset not in kept),
        *(one for one in found if one > end or one <= log_start),
    }
    for offset in sorted(gone):
        place.remove(found.pop(offset))
    return max(found, default=log_start)


# ---- leader epochs


def _stored_epochs(place: DirectoryHandle) -> list[EpochEntry] | None:
    """Those of the checkpoint, None without one. Raises KdumpError where a broker could not read it."""
    if place.stamp(EPOCHS) is None:
        return None
    try:
        stored = list(epoch_entries(place.read(EPOCHS)))
    except CheckpointError as error:
        raise _mend(place, f"{place.at(EPOCHS)}: {error}") from None
    if any(number < 0 for entry in stored for number in entry):
        raise _mend(place, f"{place.at(EPOCHS)}: an epoch or an offset is negative")
    return stored


def _epochs(
    place: DirectoryHandle,
    options: LogOptions,
    stored: list[EpochEntry] | None,
    seen: Iterable[tuple[int, int, int]],
    log_start: int,
    end: int,
) -> LeaderEpochFileCache:
    """The stored ones, and those that were `seen` in a segment that was not closed in order, as far as they are of this log."""
    epochs = LeaderEpochFileCache()
    for entry in stored or ():
        epochs.assign(*entry)
    for epoch, first, _ in seen:
        epochs.seen(epoch, first)
    epochs.truncate(log_start, end)
    if [EpochEntry(*entry) for entry in epochs.entries] != (stored or []):
        write_epochs(place, epochs)
    elif stored is None and options.magic == 2:
        with place.create(EPOCHS):
            pass
    return epochs


def write_epochs(place: DirectoryHandle, epochs: LeaderEpochFileCache) -> None:
    """Write the checkpoint. Raises OSError."""
    replace(place, EPOCHS, build_epochs([EpochEntry(*entry) for entry in epochs.entries]))
