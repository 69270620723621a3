"""The options of a log: the topic settings of a broker that shape its files, and the limits for a reader."""

from collections.abc import Callable
from typing import Final

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, SEGMENT_INDEX_BYTES
from kdump.format.java import MAX_INT, MAX_LONG
from kdump.named_tuple import NamedTuple

KAFKA07: Final = "0.7"
"""Stands for `magic` in a log of Kafka 0.7: `.kafka` files, whose offsets are positions."""

_BOUNDS: Final = {
    "segment_bytes": (1, MAX_LONG),
    "index_interval_bytes": (0, MAX_LONG),
    "segment_index_bytes": (0, MAX_LONG),
    "flush_messages": (1, MAX_LONG),
    "flush_ms": (0, MAX_LONG),
    "max_message_bytes": (1, MAX_LONG),
    "delete_delay_ms": (0, MAX_LONG),
    "leader_epoch": (-1, MAX_INT),
    "base_offset": (0, MAX_LONG),
}
_MAY_BE_NONE: Final = ("flush_messages", "flush_ms")


class LogOptions(NamedTuple):
    """Options of a log, with a broker's defaults where a broker has the same setting.

    `segment_bytes` and `segment_index_bytes` limit the files of a segment; `index_interval_bytes` is the distance
    between index entries. `flush_messages` and `flush_ms` limit how many messages are unsynced, and for how long; with
    None for both, only flush() and close() sync. `max_message_bytes` limits a batch that is appended or read. Deleted
    files keep the suffix `.deleted` for `delete_delay_ms` before they are removed.

    `magic` (0, 1, 2 or KAFKA07), `codec` and `level` are for records that are appended. `leader_epoch` is stamped on
    batches that get their offsets from the log. `base_offset` is the first offset of a new log. `clock` returns the
    time in milliseconds, None for that of the system.
    """

    segment_bytes: int = 1 << 30
    index_interval_bytes: int = INDEX_INTERVAL_BYTES
    segment_index_bytes: int = SEGMENT_INDEX_BYTES
    flush_messages: int | None = None
    flush_ms: int | None = None
    max_message_bytes: int = 1 << 30
    delete_delay_ms: int = 60_000
    leader_epoch: int = 0
    magic: int | str = 2
    codec: int | str = "none"
    level: int | None = None
    base_offset: int = 0
    clock: Callable[[], int] | None = None


def check(options: LogOptions) -> None:
    """Raise ValueError or TypeError for options that are not valid for a log that is written to."""
    if options.magic not in (0, 1, 2, KAFKA07):
        raise ValueError(f"a log has magic 0, 1, 2 or {KAFKA07!r}, not {options.magic!r}")
    for name in _BOUNDS:
        number = getattr(options, name)
        if number is not None or name not in _MAY_BE_NONE:
            check_bound(name, number)


def check_bound(name: str, number: object) -> None:
    """Raise ValueError or TypeError for a value that is not valid for this option."""
    low, high = _BOUNDS[name]
    if not isinstance(number, int):
        raise TypeError(f"{name} is a whole number, not {number!r}")
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is not between {low} and {high}")
