"""The calls with which Spark reads a stream, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SCHEMA = "topic partition offset value"


class StreamQuery:
    """A query that Spark runs: offsets and records of one batch after another, and its checkpoint."""

    def __init__(self, path: Path, *, checkpoint: Any = None, available_now: bool = False, **options: str) -> None:
        from pyspark.sql.types import StructType

        from kdump.spark.source_schema import record_columns
        from kdump.spark.stream import KdumpStreamReader
        from kdump.spark.stream_options import parse_stream_options

        whole = record_columns(include_headers=False)
        schema = StructType([whole[name] for name in SCHEMA.split()])
        self.reader = KdumpStreamReader(parse_stream_options({"path": str(path), **options}), schema)
        self.limit = self.reader.getDefaultReadLimit()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.checkpoint = as_json(self.reader.initialOffset()) if checkpoint is None else checkpoint

    def batch(self, before: Callable[[], object] | None = None) -> list[tuple[Any, ...]] | None:
        """The records of the next batch; None where there is none. `before` is called before its tasks run."""
        start = self.checkpoint
        end = as_json(self.reader.latestOffset(start, self.limit))
        if end == start:
            return None
        ranges = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        if before is not None:
            before()
        rows = [row for each in ranges for row in self.read(each)]
        self.reader.commit(end)
        self.checkpoint = end
        return rows

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """The records of a range, read by a copy of the reader."""
        for batch in pickle.loads(pickle.dumps(self.reader)).read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def rest(self) -> list[tuple[Any, ...]]:
        """The records of all batches that there are."""
        found: list[tuple[Any, ...]] = []
        while (rows := self.batch()) is not None:
            found += rows
        return found


def as_json(offsets: Any) -> Any:
    """What Spark gives back: it keeps offsets as JSON."""
    return json.loads(json.dumps(offsets))


def until_python_answers(run: Callable[[], Any]) -> Any:
    """What a query of Spark gives. Spark waits ten seconds for the Python process of a stream, which is short here."""
    for _ in range(4):
        try:
            return run()
        except Exception as error:  # Spark wraps it in several ways
            if "failed to connect back" not in str(error):
                raise
    return run()
