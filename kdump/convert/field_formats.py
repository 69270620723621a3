"""Keys and values of records as text or JSON text instead of bytes, for every output that has columns."""

from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from kdump.convert.tables import VALUE_JSON
from kdump.convert.value_texts import ValueTexts
from kdump.format.java import java_text
from kdump.kernel.text import mark_rows
from kdump.named_tuple import NamedTuple


class FieldFormat(StrEnum):
    """What the keys or the values are in the output."""

    BINARY = "binary"
    """Bytes."""
    UTF8 = "utf8"
    """Text. Each malformed part is U+FFFD, as in Java's `new String(bytes, UTF_8)`."""
    JSON = "json"
    """JSON text (RFC 8259); null where a field is none. More than 65,536 levels are taken for none."""


class _Texts(NamedTuple):
    """A column as text, and how many of its values are not the bytes that were stored."""

    array: pa.Array
    changed: int


class FieldFormats:
    """Gives keys and values of record batches another format.

    `schema` is that of the results; `json_columns` are its columns of JSON text. `texts` make its column value_json,
    where it has one: then `apply` takes record batches with all columns that it is made of.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: FieldFormat = FieldFormat.BINARY,
        values: FieldFormat = FieldFormat.BINARY,
        texts: ValueTexts | None = None,
    ) -> None:
        wanted = {"key": keys, "value": values}
        self._formats = {
            name: wanted[name] for name in schema.names if wanted.get(name, FieldFormat.BINARY) != FieldFormat.BINARY
        }
        self.schema = schema
        for name in self._formats:
            self.schema = self.schema.set(schema.get_field_index(name), schema.field(name).with_type(pa.string()))
        self.texts = texts
        own = (VALUE_JSON.name,) if VALUE_JSON.name in schema.names else ()
        self.json_columns = (*(name for name, how in self._formats.items() if how is FieldFormat.JSON), *own)
        self.malformed = 0
        """Keys and values in which malformed UTF-8 is U+FFFD now."""
        self.not_json = 0
        """Keys and values that are null now because they are not JSON text."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The record batch with the formats; without a copy of what needs no change."""
        if not self._formats and self.texts is None:
            return batch
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        if self.texts is not None:
            columns[VALUE_JSON.name] = self.texts.column(batch)
        for name, how in self._formats.items():
            is_json = how is FieldFormat.JSON
            columns[name], changed = _json_texts(columns[name]) if is_json else _utf8_texts(columns[name])
            if is_json:
                self.not_json += changed
            else:
                self.malformed += changed
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _utf8_texts(array: pa.Array) -> _Texts:
    malformed, changed = _marked("utf8", array)
    if malformed is None:
        return _Texts(_as_strings(array), 0)
    replaced = pa.array([java_text(value) for value in array.filter(malformed).to_pylist()], pa.string())
    return _Texts(pc.replace_with_mask(_as_strings(array), malformed, replaced), changed)


def _json_texts(array: pa.Array) -> _Texts:
    others, changed = _marked("json", array)
    texts = _as_strings(array)
    if others is not None:
        # A copy without the bytes of these: readers check all bytes of a column of strings, also those of a null.
        texts = pc.replace_with_mask(texts, others, pa.scalar(None, pa.string()))
    return _Texts(texts, changed)


def _as_strings(array: pa.Array) -> pa.Array:
    """The same buffers; nobody has checked them."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count, array.offset)


def _marked(what: str, array: pa.Array) -> tuple[pa.Array | None, int]:
    """Whether each value is no such text, false for a null, and how many are not; None where there are none."""
    valid, offsets, data = array.buffers()
    stop = array.offset + len(array)
    bits = bytearray(b"\xff" * ((stop + 7) // 8)) if valid is None else bytearray(valid)
    changed = mark_rows(what, offsets, data or b"", array.offset, len(array), bits) if len(array) else 0
    if not changed:
        return None, 0
    parts = [None, pa.py_buffer(bits)]
    is_text = pa.Array.from_buffers(pa.bool_(), len(array), parts, 0, array.offset)
    return pc.and_not(array.is_valid(), is_text), changed
