"""How a log is written and read: the settings of a broker's topic that shape its files, and the bounds of a reader."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kdump.outcome import INDEX_INTERVAL_BYTES
from kdump.plan import SEGMENT_INDEX_BYTES

KAFKA07: Final = "0.7"
"""The magic of a log from before 0.8: `.kafka` files, whose offsets are bytes."""


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
