"""How a log is written and read: the settings of a broker's topic that shape its files, and the bounds of a reader."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kdump.broker.defaults import INDEX_INTERVAL_BYTES, SEGMENT_INDEX_BYTES
from kdump.format.java import MAX_INT

KAFKA07: Final = "0.7"
"""The magic of a log from before 0.8: `.kafka` files, whose offsets are bytes."""

_LARGEST: Final = (1 << 63) - 1
_BOUNDS: Final = {
    "segment_bytes": (1, _LARGEST),
    "index_interval_bytes": (0, _LARGEST),
    "segment_index_bytes": (0, _LARGEST),
    "flush_messages": (1, _LARGEST),
    "flush_ms": (0, _LARGEST),
    "max_message_bytes": (1, _LARGEST),
    "delete_delay_ms": (0, _LARGEST),
    "leader_epoch": (-1, MAX_INT),
    "base_offset": (0, _LARGEST),
}
_MAY_BE_NONE: Final = ("flush_messages", "flush_ms")


class LogOptions(NamedTuple):
    """Settings of a log, with a broker's defaults where a broker has the same setting.

    `segment_bytes` and `segment_index_bytes` say when a segment is full, `index_interval_bytes` how far apart index entries stand. `flush_messages`, `flush_ms`: never
    more messages unsynced, nor for longer; None: only by flush() and close(). `max_message_bytes` bounds a batch, both when it is appended and when it is read.
    Removed files stay as `.deleted` for `delete_delay_ms`. `magic` (0, 1, 2 or KAFKA07), `codec` and `level` are for records that are given one by one. `leader_epoch`
    is stamped on what gets its offsets here, `base_offset` is the first offset of a log that is made anew. `clock` gives the time in milliseconds, None: the system's.
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
    """Raise ValueError, or TypeError, for settings with which no log can be written."""
    if options.magic not in (0, 1, 2, KAFKA07):
        raise ValueError(f"no log has magic {options.magic!r}, only 0, 1, 2 and {KAFKA07!r}")
    for name in _BOUNDS:
        number = getattr(options, name)
        if number is not None or name not in _MAY_BE_NONE:
            check_bound(name, number)


def check_bound(name: str, number: object) -> None:
    """Raise ValueError, or TypeError, for a number that a setting cannot be."""
    low, high = _BOUNDS[name]
    if not isinstance(number, int):
        raise TypeError(f"{name} is a whole number, not {number!r}")
    if not low <= number <= high:
        raise ValueError(f"{name} {number} is not between {low} and {high}")
