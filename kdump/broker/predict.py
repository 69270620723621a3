"""What the next unclean start of Kafka 4.3 does with a topic-partition directory as it is.

`predict_start` follows Kafka's LogLoader step by step (kdump.broker.log_loader). Segments that verify proved are not read again; the others are walked batch by batch as
LogSegment.recover does, which stops at the first bad batch and notices less than verify: whether offsets that go back empty a segment depends on the interval
of the index. `judge` says of each finding what becomes of it.

A broker that refuses a log does not start. Here the first refusal is noted and the rest goes on as if what caused it were not there, so that everything that
would stop the broker is known at once, and also what the start does to the rest.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.load_state import InvalidOffset, LogSegmentOffsetOverflow, ProducerStateManager
from kdump.broker.log_loader import LogLoader
from kdump.broker.result import DirectoryState, LoadResult, Refusal, ResultSegment, ValidSegment
from kdump.errors import SourceError, reason
from kdump.format.naming import file_name
from kdump.storage.source import FileSource, Source

__all__ = [
    "DirectoryState",
    "LoadResult",
    "Refusal",
    "ResultSegment",
    "SegmentRecovery",
    "ValidSegment",
    "predict_start",
    "recover_segment",
    "start_at",
]


def start_at(
    directory: str,
    proved: Mapping[str, ValidSegment] | None = None,
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> DirectoryState:
    """The directory as it stands on disk. Raises SourceError."""
    files = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                # A link that leads nowhere is no file to a broker either.
                with suppress(OSError):
                    if entry.is_file():
                        files[entry.name] = entry.stat().st_size
    except OSError as error:
        raise SourceError(f"{directory}: {reason(error)}") from None
    return DirectoryState(
        files,
        lambda name: FileSource(os.path.join(directory, name)),
        proved or {},
        recovery_point,
        log_start_offset,
        directory.rstrip("/").endswith("-delete"),
    )


class SegmentRecovery(NamedTuple):
    """What a recovery makes of one segment: how many bytes stay, the offset behind them, whether indexed offsets go back (then nothing stays), refusals.

    `overflow` is the position of a batch whose last offset the segment cannot hold, where the recovery breaks off to split it.
    """

    valid_bytes: int
    next_offset: int
    wiped: bool
    overflow: int | None
    refusals: tuple[Refusal, ...]


def predict_start(start: DirectoryState) -> LoadResult:
    """What the start would leave. Reads companions, and the logs that are not proved. Raises SourceError."""
    loader = LogLoader(start)
    try:
        return loader.run()
    finally:
        loader.close()


def recover_segment(source: Source, base_offset: int, interval: int = INDEX_INTERVAL_BYTES) -> SegmentRecovery:
    """One segment alone, with nothing before it. The source stays open."""
    name = file_name(base_offset, ".log")
    loader = LogLoader(DirectoryState({name: source.size}, lambda _: source, index_interval_bytes=interval))
    segment = loader.segment(name, base_offset)
    try:
        loader.replay(segment, ProducerStateManager(loader))
    except LogSegmentOffsetOverflow as overflow:
        return SegmentRecovery(segment.size, base_offset, False, overflow.position, tuple(loader.refusals))
    except InvalidOffset:
        return SegmentRecovery(0, base_offset, True, None, tuple(loader.refusals))
    return SegmentRecovery(segment.size, loader.end_of(segment), False, None, tuple(loader.refusals))
