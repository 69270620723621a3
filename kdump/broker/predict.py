"""Predicts what the next unclean start of Kafka 4.3 does with a topic-partition directory.

`predict_start` follows Kafka's LogLoader step by step (kdump.broker.log_loader). Segments that verify found valid are
not read again. The others are walked batch by batch as in LogSegment.recover, which stops at the first bad batch and
checks less than verify: whether offsets that go back empty a segment depends on index.interval.bytes.

A broker does not start when it refuses a log. Here the first refusal is noted, and the load goes on without its cause.
So all refusals are known at once, and also what the start does to the rest.
"""

import os
from collections.abc import Mapping
from contextlib import suppress

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.broker.log_loader import LogLoader
from kdump.broker.log_segment import InvalidOffset, LogSegment, LogSegmentOffsetOverflow, TimeIndex
from kdump.broker.open_transaction_map import OpenTransactionMap, PredictionStateManager, open_transactions_in
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.producer_state_manager import ProducerSnapshots
from kdump.broker.result import DirectoryState, LoadResult, Refusal, ResultSegment
from kdump.broker.valid_segment import ValidSegment
from kdump.errors import SourceError, reason
from kdump.format.naming import segment_file_name
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import entries_of, open_source
from kdump.storage.source import Source

__all__ = [
    "DirectoryState",
    "LoadResult",
    "Refusal",
    "ResultSegment",
    "SegmentRecovery",
    "ValidSegment",
    "directory_state",
    "predict_start",
    "recover_segment",
]


def directory_state(
    directory: str,
    valid_segments: Mapping[str, ValidSegment] | None = None,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    files: Mapping[str, int] | None = None,
    clean_shutdown: bool = False,
) -> DirectoryState:
    """The directory as it is on disk; `valid_segments` are its valid segments, `clean_shutdown` how the broker ended.

    `files` is the size of each file in bytes. Without it the directory is listed. Raises SourceError.
    """
    return DirectoryState(
        _file_sizes(directory) if files is None else files,
        lambda name: open_source(os.path.join(directory, name)),
        valid_segments or {},
        recovery_point,
        log_start_offset,
        directory.rstrip("/").endswith("-delete"),
        clean_shutdown=clean_shutdown,
    )


def _file_sizes(directory: str) -> dict[str, int]:
    """The size of each file of a directory in bytes, of a symbolic link that of its target. Raises SourceError."""
    files = {}
    try:
        with entries_of(directory) as entries:
            for entry in entries:
                # A broken symbolic link is not a file for a broker either.
                with suppress(OSError):
                    if entry.is_file():
                        files[entry.name] = entry.stat().st_size
    except OSError as error:
        raise SourceError(f"{directory}: {reason(error)}") from None
    return files


class SegmentRecovery(NamedTuple):
    """What a recovery leaves of one segment: the bytes that stay, the offset after them, and the refusals.

    `is_emptied`: indexed offsets go back, so that nothing stays. `overflow` is the position of a batch whose last
    offset the segment cannot hold; there the recovery breaks off to split the segment.
    """

    valid_bytes: int
    next_offset: int
    is_emptied: bool
    overflow: int | None
    refusals: tuple[Refusal, ...]


def predict_start(start: DirectoryState | str | os.PathLike[str]) -> LoadResult:
    """What the next start of Kafka 4.3 would leave of a topic-partition directory: an unclean one, unless `start` says
    otherwise.

    `start` is its path, or its state where a recovery point or valid segments are known. Reads the companions, and the
    logs without a ValidSegment. Raises SourceError. Source: LogLoader.load.
    """
    loader = LogLoader(start if isinstance(start, DirectoryState) else directory_state(os.fspath(start)))
    try:
        return loader.load()
    finally:
        loader.close()


def recover_segment(source: Source, base_offset: int, interval: int = INDEX_INTERVAL_BYTES) -> SegmentRecovery:
    """LogSegment.recover of one segment, with nothing before it. The source stays open. Raises SourceError."""
    name = segment_file_name(base_offset, ".log")
    files = PartitionFiles(DirectoryState({name: source.size}, lambda _: source, index_interval_bytes=interval))
    segment = LogSegment(files, name, base_offset)
    manager = PredictionStateManager(ProducerSnapshots(files, open_transactions_in), OpenTransactionMap())
    try:
        segment.recover(manager, LeaderEpochFileCache(), TimeIndex())
    except LogSegmentOffsetOverflow as overflow:
        return SegmentRecovery(segment.size, base_offset, False, overflow.position, tuple(files.refusals))
    except InvalidOffset:
        return SegmentRecovery(0, base_offset, True, None, tuple(files.refusals))
    return SegmentRecovery(segment.size, segment.next_offset(), False, None, tuple(files.refusals))
