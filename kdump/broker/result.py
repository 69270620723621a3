"""The input and the result of a broker's start with one topic-partition directory, as values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kdump.broker.defaults import INDEX_INTERVAL_BYTES
from kdump.broker.valid_segment import ValidSegment
from kdump.named_tuple import NamedTuple
from kdump.storage.source import Source

if TYPE_CHECKING:
    from kdump.broker.refusal_reason import RefusalReason

# ---- input


class DirectoryState(NamedTuple):
    """A topic-partition directory before the start: name and size of every regular file in it, and how to open one.

    `valid_segments` are the valid segments by the name of their .log. `recovery_point` and `log_start_offset` come from
    the checkpoints of the log directory, 0 without a line. `deleting`: the directory is named …-delete. Kafka loads
    such a directory without recovery. `clean_shutdown`: the broker shut down cleanly, so that it recovers no segment
    unless an index of it is missing or bad.
    """

    files: Mapping[str, int]
    open: Callable[[str], Source]
    valid_segments: Mapping[str, ValidSegment] = {}
    recovery_point: int = 0
    log_start_offset: int = 0
    deleting: bool = False
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    clean_shutdown: bool = False


# ---- result


class Refusal(NamedTuple):
    """Why the start fails: Kafka's exception, the file, the position in it (None: the whole file), and the reason."""

    exception: str
    name: str
    position: int | None
    reason: "RefusalReason"


class ResultSegment(NamedTuple):
    """A segment after the start."""

    base_offset: int
    size: int


class FileRange(NamedTuple):
    """The content of a file name: a range of a file from before the start. A new file has an empty `origin`."""

    origin: str
    start: int
    size: int


NEW: Final = FileRange("", 0, 0)


class LoadResult(NamedTuple):
    """What the start leaves. The names are those of the files before the start.

    `refusals`: empty when the log loads. The broker stops with the first one; all else is the result without them.
    `truncations`: the position from which on the bytes of a file are truncated. `emptied_logs`: logs that are emptied
    because indexed offsets go back. `deleted_files`: files that are deleted, even if new ones of that name are written.
    `files`: every name afterwards, with its content. `swap_targets`: each .swap file with the name that it takes.
    `split_segments`: the base offsets of the segments that a segment is split into. `recovered_logs`: logs that are
    recovered, with their indexes rebuilt. `written_snapshots`: the offsets of the producer snapshots that are written.
    `leader_epochs`: the leader epochs afterwards, each with its start offset. `leader_epochs_written`: their checkpoint
    is written, even where its content stays the same. `later_refusals`: what LATER_RELEASE refuses, and RELEASE does
    not. `open_transactions` are those at the end: first offset by producer, None where they are not known.
    """

    refusals: tuple[Refusal, ...]
    log_start_offset: int
    log_end_offset: int
    segments: tuple[ResultSegment, ...]
    truncations: Mapping[str, int]
    emptied_logs: frozenset[str]
    deleted_files: frozenset[str]
    files: Mapping[str, FileRange]
    swap_targets: Mapping[str, str]
    split_segments: Mapping[str, tuple[int, ...]]
    recovered_logs: frozenset[str]
    written_snapshots: frozenset[int]
    leader_epochs: tuple[tuple[int, int], ...]
    leader_epochs_written: bool = False
    later_refusals: tuple[Refusal, ...] = ()
    open_transactions: Mapping[int, int] | None = None

    @property
    def refuses(self) -> bool:
        """Whether the broker does not start on the directory."""
        return bool(self.refusals)
