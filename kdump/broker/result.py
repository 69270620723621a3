"""What a start of a broker finds in a topic-partition directory, and what it leaves there, as values."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.storage.source import Source

# ---- what goes in


class IndexChecksums(NamedTuple):
    """A segment of `size` bytes without producers, beside which lies what a recovery with the usual interval writes: (bytes, CRC-32C) of the entries of both indexes.

    `next_offset` follows its last batch, `state_end` its last one of magic 2, or they are its base offset.
    """

    size: int
    next_offset: int
    state_end: int
    offset_index: tuple[int, int]
    time_index: tuple[int, int]


class ValidSegment(NamedTuple):
    """A segment in which a recovery finds nothing to do (see `sound`). `next_offset` follows its last batch, or is its base offset.

    `epochs` are the changes of the leader epoch with their first offsets, `transactions` the producers with a transaction that is open behind the segment
    and its first offset, None where that is not known. `wrappers`: it holds compressed messages of magic 0 or 1. `state_end` follows its last batch of magic 2,
    or is its base offset; None stands for `next_offset`. `valid_bytes`: all is sound up to here, behind it is a tail that a recovery cuts off. `indexed`: what
    a recovery would write is there already.
    """

    next_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    transactions: Mapping[int, int] | None = None
    wrappers: bool = False
    state_end: int | None = None
    valid_bytes: int | None = None
    indexed: IndexChecksums | None = None


class DirectoryState(NamedTuple):
    """A topic-partition directory before the start: name and size of every regular file in it, and how to read one.

    `proved` are segments by the name of their .log; recovery point and log start offset are those of the log directory's checkpoints, 0 without one.
    `deleting`: the directory is named …-delete, and is loaded without recovery.
    """

    files: Mapping[str, int]
    open: Callable[[str], Source]
    proved: Mapping[str, ValidSegment] = {}
    recovery_point: int = 0
    log_start_offset: int = 0
    deleting: bool = False
    index_interval_bytes: int = INDEX_INTERVAL_BYTES


# ---- what comes out


class Refusal(NamedTuple):
    """Why the start fails: Kafka's exception, the file and where in it, and a short word.

    Words: name, epochs, metadata, txnindex, split, transaction, marker, control, backwards, walk, wrapper, size.
    """

    exception: str
    name: str
    position: int | None
    word: str


class ResultSegment(NamedTuple):
    """A segment as it is left."""

    base_offset: int
    size: int


class FileRange(NamedTuple):
    """What a file name stands for: bytes of a file from before the start, or, with an empty `origin`, something new."""

    origin: str
    start: int
    size: int


NEW: Final = FileRange("", 0, 0)


class LoadResult(NamedTuple):
    """What the start leaves. Names are those of files before the start.

    `refusals`: empty when the log loads, else the first is what the broker dies of, and everything else is what would come if it did not. `cuts`: from which
    position on the bytes of a file go. `wiped`: emptied because indexed offsets go back. `deleted`: files that go, though others of the name may be written.
    `files`: every name afterwards, and what it stands for. `promoted`: a .swap file and the name that it takes. `split`: the base offsets of the segments that one is split into. `recovered`: logs that
    are read through and whose indexes are made anew. `snapshots`: offsets of the snapshots that are written. `epochs`: the leader epochs afterwards, and whether their
    checkpoint is written, be it with what it had.
    """

    refusals: tuple[Refusal, ...]
    log_start_offset: int
    log_end_offset: int
    segments: tuple[ResultSegment, ...]
    cuts: Mapping[str, int]
    wiped: frozenset[str]
    deleted: frozenset[str]
    files: Mapping[str, FileRange]
    promoted: Mapping[str, str]
    split: Mapping[str, tuple[int, ...]]
    recovered: frozenset[str]
    snapshots: frozenset[int]
    epochs: tuple[tuple[int, int], ...]
    epochs_written: bool = False

    @property
    def refuses(self) -> bool:
        return bool(self.refusals)
