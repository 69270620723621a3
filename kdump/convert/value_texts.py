"""The column `value_json`: values of records that were written with schemas, as JSON text."""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from kdump.convert.tables import VALUE_JSON
from kdump.errors import SourceError, host_clause
from kdump.format.value_schemas.json_values import json_text
from kdump.format.value_schemas.value_decoder import INSTALL, Headers, ValueDecoder, missing_packages, not_installed
from kdump.log.log_slice import SlicedPartition
from kdump.storage.value_schemas.chosen_schemas import SchemaDecoders

_LARGEST_TEXTS: Final = 1 << 30
"""The bytes of a column of a record batch. Arrow's strings have room for twice as much."""
_NEEDED: Final = ("value", "headers")


def log_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns of records that these columns are made of."""
    if VALUE_JSON.name not in columns:
        return columns
    stored = tuple(name for name in columns if name != VALUE_JSON.name)
    return (*stored, *(name for name in _NEEDED if name not in stored))


class ValueTexts:
    """Makes the column of record batches; `where` is that of SchemaDecoders."""

    def __init__(self, where: str, missing: Sequence[str] | None = None) -> None:
        """Raises SourceError for a path without schemas.

        `missing` are the packages that the process lacks which began the run. One that lacks more, on another machine,
        is refused with SourceError: which values are null would depend on the machine.
        """
        lacking = [] if missing is None else [each for each in missing_packages() if each not in missing]
        if lacking:
            raise SourceError(f"--schemas: {not_installed(lacking, host_clause())}: {INSTALL}")
        self._decoders = SchemaDecoders(where, raises_once=False)
        self._decoder: ValueDecoder | None = None
        self.undecoded = 0
        """Values that are null in the column because they cannot be decoded."""
        self.problem: str | None = None
        """Why the first of them cannot be decoded."""

    def begin(self, of: SlicedPartition) -> None:
        """A partition follows. Raises SourceError where none of its log files lies beside schemas."""
        failure: SourceError | None = None
        paths = [each.log.path for each in of.slices]
        for path in paths:
            try:
                self._decoder = self._decoders.of(path, of.topic_partition)
                return
            except SourceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """The column for a record batch with values and headers."""
        if self._decoder is None:
            return pa.nulls(batch.num_rows, VALUE_JSON.type)
        return pa.array(self._texts(batch, self._decoder), VALUE_JSON.type)

    def _texts(self, batch: pa.RecordBatch, decoder: ValueDecoder) -> Iterator[str | None]:
        left = _LARGEST_TEXTS
        for value, headers in zip(batch.column("value"), batch.column("headers"), strict=True):
            data = value.as_py()
            if data is None:
                yield None
                continue
            found = decoder.decode(None, data, _headers(headers.as_py()))
            text = None if found.value is None else json_text(found.value.data)
            problem = found.problem
            if text is not None and (left := left - 4 * len(text)) < 0:
                text, problem = None, f"the values of a record batch have more than {_LARGEST_TEXTS} bytes as JSON"
            if text is None:
                self.undecoded += 1
                self.problem = self.problem or problem
            yield text


def _headers(stored: list[dict[str, bytes | str | None]] | None) -> Headers:
    return [(str(each["key"]).encode(), _bytes(each["value"])) for each in stored or ()]


def _bytes(value: bytes | str | None) -> bytes | None:
    return value if isinstance(value, bytes) else None
