"""A plain log cleaner: what Kafka's leaves of a log whose records it went over up to an offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from support import build


class Written(NamedTuple):
    """A batch as its producer wrote it: the offset of its first record, and the records."""

    first: int
    records: tuple[build.Record, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.records) - 1


def cleaned(log: Sequence[Written], stop: int, *, without_tombstones: bool) -> list[bytes]:
    """The batches after the cleaner went over the offsets below `stop`; each keeps its first and last offset."""
    latest = {
        record.key: batch.first + number
        for batch in log
        for number, record in enumerate(batch.records)
        if batch.first + number < stop
    }
    found = []
    for batch in log:
        kept = []
        for number, record in enumerate(batch.records):
            offset = batch.first + number
            goes = record.value is None and without_tombstones
            if offset >= stop or (latest[record.key] == offset and not goes):
                kept.append(record._replace(offset=offset))
        if kept:
            span = batch.last - batch.first
            found.append(build.batch(kept, base_offset=batch.first, last_offset_delta=span, count=len(kept)))
    return found
