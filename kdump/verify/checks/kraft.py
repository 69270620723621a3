"""What a KRaft snapshot must begin and end with (KIP-630; RecordsSnapshotReader)."""

from collections.abc import Iterator
from typing import Final

from kdump.format import control
from kdump.kernel.results import Carry, ScanState
from kdump.storage.records import open_batch, records
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, Walk
from kdump.verify.findings import Finding, found

_ANYTHING: Final = Carry(0, False, -1, False)
"""Nothing is known of what lies before the batch."""


def snapshot(path: str, source: Source, seen: ScanState, max_bytes: int) -> Iterator[Finding]:
    """The rules of a `.checkpoint` file whose walk has `seen` these positions; an end that is damaged already is left alone.

    At most `max_bytes` are decompressed; a batch that holds more is none of the two.
    """
    if source.size == 0:
        yield found("kraft/snapshot-header", path, 0, 0)
        yield found("kraft/snapshot-footer", path, 0, 0)
        return
    if seen.first_position == 0:
        yield from _rule("kraft/snapshot-header", path, source, 0, 0, control.ControlType.SNAPSHOT_HEADER, max_bytes)
    if seen.last_position >= 0 and seen.linked:
        yield from _rule(
            "kraft/snapshot-footer",
            path,
            source,
            seen.last_position,
            -1,
            control.ControlType.SNAPSHOT_FOOTER,
            max_bytes,
        )


def _rule(
    code: str, path: str, source: Source, position: int, which: int, wanted: int, max_bytes: int
) -> Iterator[Finding]:
    walk = Walk(source, start=position, carry=_ANYTHING, everything=True, rows=1)
    for chunk in walk:
        if not isinstance(chunk, BatchChunk):
            return
        batch = chunk.row(0)
        if which == -1 and position + batch.size != source.size:
            return
        opened = open_batch(batch, chunk.body(batch), max_bytes)
        # The reader takes the whole batch or nothing of it.
        inside = list(records(batch, opened)) if batch.control and opened.problem is None else []
        if not inside or _type(inside[which].key) != wanted:
            yield found(code, path, position, batch.size, offset=batch.base_offset)
        return


def _type(key: bytes | None) -> int | None:
    try:
        return control.decode_key(key).type
    except ValueError:
        return None
