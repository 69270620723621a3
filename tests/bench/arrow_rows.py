"""Records as columns of Arrow and what is made of these: `python -m tests.bench.arrow_rows HOW FILE…` prints one JSON
line, {"records"}.

HOW: `import` reads nothing; `batches` makes record batches with the usual columns; `calls` fills such columns
batch by batch; `ndjson` writes NDJSON to nowhere; `orjson` makes the same lines of the same record batches
with orjson, from the objects that pyarrow makes of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa

import kdump
from kdump.convert.single_file.writers import NdjsonWriter
from kdump.convert.tables import DEFAULT_COLUMNS, RecordBuffers, record_schema
from kdump.kernel.columns import NO_ROOM, Columns
from kdump.storage.records import payload_of
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Walk


def batches(path: str) -> int:
    """Record batches, thrown away."""
    return sum(batch.num_rows for batch in kdump.arrow(path))


def calls(path: str) -> int:
    """The same columns, each batch with calls of its own, as those that are compressed."""
    schema, records = record_schema(DEFAULT_COLUMNS), 0
    columns = Columns(RecordBuffers.kernel_columns(schema))
    buffers = RecordBuffers(schema, columns)
    buffers.begin(None)
    with kdump.storage.FileSource(path) as source:
        for chunk in Walk(source, everything=True, rows=1024):
            assert isinstance(chunk, BatchChunk)
            for index, batch in enumerate(chunk.rows()):
                rows = chunk.walk.scanner.rows
                payload, _ = payload_of(batch, chunk.body(batch), MAX_BATCH_BYTES)
                if columns.add_payload(rows, index, payload) == NO_ROOM:
                    records += buffers.finish().num_rows
                    buffers.begin(None)
                    columns.add_payload(rows, index, payload)
    return records + buffers.finish().num_rows


def ndjson(path: str) -> int:
    """NDJSON as kdump writes it."""
    reader, records = kdump.arrow(path), 0
    with open(os.devnull, "wb") as out, NdjsonWriter(out, reader.schema) as to:
        for batch in reader:
            to.write(batch)
            records += batch.num_rows
    return records


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    at = batch.schema.get_field_index("timestamp")
    numbers = batch.set_column(at, "timestamp", batch.column("timestamp").cast(pa.int64()))
    for row in numbers.to_pylist():
        row["key"], row["value"] = row["key"].decode(), row["value"].decode()
        for header in row["headers"] or ():
            header["value"] = header["value"].decode()
        row["timestamp"] //= 1000
        yield row


def orjson_lines(path: str) -> int:
    """NDJSON from Python's objects."""
    from orjson import dumps

    records = 0
    with open(os.devnull, "wb") as out:
        for batch in kdump.arrow(path):
            out.write(b"".join(dumps(row) + b"\n" for row in _objects(batch)))
            records += batch.num_rows
    return records


HOW: dict[str, Callable[[str], int]] = {
    "import": lambda _: 0,
    "batches": batches,
    "calls": calls,
    "ndjson": ndjson,
    "orjson": orjson_lines,
}


def main(how: str, *paths: str) -> int:
    """All files."""
    print(json.dumps({"records": sum(HOW[how](path) for path in paths)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
