"""Decoded records as the words of a line, whatever decodes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdump.render.escaping import bytes_text
from kdump.render.json import ENCODERS, json_value
from kdump.render.messages import record_words
from kdump.render.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kdump.format.internal_topics.decoded import RecordDecoder
    from kdump.format.record import Record
    from kdump.format.value_schemas.value_decoder import ValueDecoder


def decoded_words(decoder: RecordDecoder | None, value_decoder: ValueDecoder | None, record: Record, mode: str) -> str:
    """What a record says by the decoder of its log, without its offset and time."""
    if decoder is not None:
        return record_words(decoder.decode(record.key, record.value), record.key, record.value, mode)
    assert value_decoder is not None
    return " ".join(_value_words(value_decoder, record, mode))


def _value_words(decoder: ValueDecoder, record: Record, mode: str) -> Iterator[str]:
    found = decoder.decode(record.key, record.value, record.headers)
    for name, stored, decoded in (("key", record.key, found.key), ("value", record.value, found.value)):
        if decoded is None:
            yield f"{name}={bytes_text(stored, mode)}"
            continue
        yield f"{name}={json_value(decoded.data, ENCODERS[mode])}"
        schema = decoded.origin.get("schema_id", decoded.origin.get("schema_guid"))
        if schema is not None:
            yield f"{name}_schema={schema}"
    if record.headers:
        pairs = (f"{bytes_text(header, mode)}={bytes_text(value, mode)}" for header, value in record.headers)
        yield f"headers=[{','.join(pairs)}]"
    if found.problem is not None:
        yield f"undecoded={next(words({'': found.problem}))[1:]}"
