"""The rows of the records of a log file, made record by record: what kdump.arrow has to give in all columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kdump
from kdump.format.batch import Batch
from kdump.format.java import java_text
from kdump.format.record import Record
from kdump.kernel.scan import SUSPECTS
from kdump.storage.records import open_batch, records
from kdump.storage.source import Source
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Walk

NOT_A_BATCH = sum(1 << SUSPECTS.index(code) for code in ("batch/crc", "batch/magic", "batch/limit"))
LARGEST_MS = ((1 << 63) - 1) // 1000
Row = dict[str, Any]


def expected(path: Path) -> Iterator[Row]:
    """The rows of a file as a segment of t-0."""
    with kdump.storage.FileSource(str(path)) as source:
        name = path.name.partition(".")[0]
        yield from rows_of_log(source, int(name) if name.isdigit() else None)


def rows_of_log(source: Source, base_offset: int | None, limit: int = MAX_BATCH_BYTES) -> Iterator[Row]:
    """The rows of a segment of t-0; a batch may have up to `limit` bytes."""
    for item in Walk(source, base_offset=base_offset, everything=True, max_batch_bytes=limit):
        if not isinstance(item, BatchChunk) or item.damaged:
            continue
        for batch, bits in zip(item.rows(), item.suspects(), strict=True):
            if not bits & NOT_A_BATCH:
                opened = open_batch(batch, item.body(batch), limit)
                first = opened.first_offset if batch.is_wrapper else batch.base_offset
                for record in records(batch, opened):
                    yield _row_of(batch, record, first)


def _row_of(batch: Batch, record: Record, first: int) -> Row:
    headers = [{"key": java_text(key), "value": value} for key, value in record.headers]
    legacy = batch.is_legacy
    return {
        "key": record.key,
        "value": record.value,
        "headers": headers or None,
        "topic": "t",
        "partition": 0,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000 if abs(record.timestamp) <= LARGEST_MS else None,
        "timestampType": -1 if record.magic == 0 else int(batch.timestamp_type == "LogAppendTime"),
        "timestamp_ms": record.timestamp,
        "position": batch.position,
        "batch_offset": first,
        "size": record.size,
        "magic": record.magic,
        "codec": batch.codec_name,
        "partition_leader_epoch": None if legacy else batch.partition_leader_epoch,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": record.sequence,
        "transactional": batch.transactional,
        "control": batch.control,
    }
