"""The checks `kraft/*`: the first and the last record of a KRaft snapshot (KIP-630, RecordsSnapshotReader)."""

from collections.abc import Iterator
from typing import Final

from kdump.format import control
from kdump.kernel.results import Carry, ScanState
from kdump.storage.records import open_batch, records
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, Walk
from kdump.verify.findings import Finding, make_finding

_ANYTHING: Final = Carry(0, False, -1, False)
"""Nothing is known about the bytes before the batch."""


def check_snapshot(path: str, source: Source, scanned: ScanState, max_bytes: int) -> Iterator[Finding]:
    """Check the header and the footer of a `.checkpoint` file after its walk.

    A damaged beginning or end is not checked again. A batch that decompresses to more than `max_bytes` is neither
    header nor footer.
    """
    if source.size == 0:
        yield make_finding("kraft/snapshot-header", path, 0, 0)
        yield make_finding("kraft/snapshot-footer", path, 0, 0)
        return
    if scanned.first_position == 0:
        yield from _check_record(
            "kraft/snapshot-header", path, source, 0, 0, control.ControlType.SNAPSHOT_HEADER, max_bytes
        )
    if scanned.last_position >= 0 and scanned.linked:
        yield from _check_record(
            "kraft/snapshot-footer",
            path,
            source,
            scanned.last_position,
            -1,
            control.ControlType.SNAPSHOT_FOOTER,
            max_bytes,
        )


def _check_record(
    code: str, path: str, source: Source, position: int, which: int, wanted: int, max_bytes: int
) -> Iterator[Finding]:
    """Check the type of the control record `which` (0 or -1) of the batch at `position`."""
    walk = Walk(source, start=position, carry=_ANYTHING, everything=True, rows=1)
    for chunk in walk:
        if not isinstance(chunk, BatchChunk):
            return
        batch = chunk.row(0)
        if which == -1 and position + batch.size != source.size:
            return
        opened = open_batch(batch, chunk.body(batch), max_bytes)
        # Kafka's reader reads the whole batch or nothing of it.
        inside = list(records(batch, opened)) if batch.control and opened.problem is None else []
        if not inside or _type(inside[which].key) != wanted:
            yield make_finding(code, path, position, batch.size, offset=batch.base_offset)
        return


def _type(key: bytes | None) -> int | None:
    try:
        return control.decode_key(key).type
    except ValueError:
        return None
