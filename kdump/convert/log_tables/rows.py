"""Rows that Python makes one by one, as record batches."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

import pyarrow as pa

TableRow: TypeAlias = Mapping[str, int | bool | str | None]
"""The values of a row by the names of its columns."""
ROWS: Final = 1 << 12
"""The most rows of a record batch."""


def record_batches(rows: Iterable[TableRow], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows as record batches; a value that a row does not have is null."""
    several = iter(rows)
    while some := list(islice(several, ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)
