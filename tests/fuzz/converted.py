"""What is converted of any bytes at all: the records that the reference gives, and lines that are these."""

from __future__ import annotations

import io
import json
import random
from tempfile import NamedTemporaryFile

import pyarrow as pa

from fuzz.check import Case, Difference, bounds
from kdump.convert import tables
from kdump.convert.field_formats import FieldFormat, FieldFormats
from kdump.convert.records.reader import RecordStream
from kdump.convert.single_file.writers import CsvWriter, NdjsonWriter
from kdump.format.naming import Kind, TopicPartition
from kdump.log.log_slice import LogSlice, SlicedPartition
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from support import plain_rows
from support.record_rows import rows_of_log

SCHEMA = tables.record_schema([name for name in tables.RECORDS.names if name != "replica"])


def check_converted(case: Case) -> None:
    """Raises Difference where rows or lines are others."""
    if case.kind is not Kind.LOG:
        return
    rng = random.Random(len(case.data))
    room = tables.Room(rng.choice((1, 3, 100)), rng.choice((1, 9, 100)), rng.choice((1, 50, 5000)))
    stream = RecordStream(
        SCHEMA, (None, None), lambda _: None, max_batch_bytes=case.max_batch_bytes, isolation="all", room=room
    )
    with bounds(case), NamedTemporaryFile(prefix="kdump-fuzz-") as file:
        file.write(case.data)
        file.flush()
        slices = (LogSlice(LogFile(file.name, case.kind, case.base_offset, case.newest, len(case.data))),)
        batches = list(stream.batches([SlicedPartition("x", TopicPartition("t", 0), slices)]))
        wanted = list(rows_of_log(BytesSource(case.data), case.base_offset, case.max_batch_bytes))
    at = SCHEMA.get_field_index("timestamp")
    table = pa.Table.from_batches(batches, SCHEMA)
    table.validate(full=True)
    found = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    if found != wanted:
        raise Difference(f"rows\n  kdump:     {found}\n  reference: {wanted}")
    formats = FieldFormats(SCHEMA, rng.choice(list(FieldFormat)), rng.choice(list(FieldFormat)))
    for batch in batches:
        _check_lines(formats.apply(batch), formats.json_columns)


def _check_lines(batch: pa.RecordBatch, json_columns: tuple[str, ...]) -> None:
    batch.validate(full=True)
    out = io.BytesIO()
    NdjsonWriter(out, batch.schema, json_columns).write(batch)
    if out.getvalue().decode() != plain_rows.json_lines(batch, json_columns):
        raise Difference(f"NDJSON: {out.getvalue()!r}")
    for line in out.getvalue().splitlines():
        json.loads(line)
    out = io.BytesIO()
    CsvWriter(out, batch.schema, json_columns).write(batch)
    header = ",".join(batch.schema.names) + "\r\n"
    if out.getvalue().decode() != header + plain_rows.csv_lines(batch):
        raise Difference(f"CSV: {out.getvalue()!r}")
