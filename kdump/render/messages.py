"""Decoded records as words of a line and as values of a JSON line: messages of internal topics, and decoded values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdump.named_tuple import NamedTuple
from kdump.render.escaping import bytes_text, printable
from kdump.render.sentences import iso_time
from kdump.render.words import words

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import DecodedMessage, DecodedRecord, RecordDecoder
    from kdump.format.json_types import Fields
    from kdump.format.record import Record
    from kdump.format.value_schemas.value_decoder import DecodedValue, ValueDecoder

COMMITS: Final = ("OffsetCommitValue", "LegacyOffsetCommitValue")
"""The values that are commits."""
COMMIT_NAMES: Final = {"offset": "committed", "commitTimestamp": "at", "expireTimestamp": "expires"}
"""The line has the offset and the time of the record already."""
TIMES: Final = ("at", "expires", "currentStateTimestamp")
"""The fields of a value that are shown as times."""


def message_object(message: DecodedMessage | None) -> Fields | None:
    """A message as JSON Lines have it; None for none."""
    if message is None:
        return None
    return {"name": message.name, "type": message.type, "version": message.version, "data": message.fields}


def value_object(value: DecodedValue | None) -> Fields | None:
    """A decoded value as JSON Lines have it; None for none."""
    return None if value is None else {**value.origin, "data": value.data}


class DecodedFields(NamedTuple):
    """What a line has of a decoded record."""

    key_decoded: Fields | None
    value_decoded: Fields | None
    decode_problem: str | None


def decoded_fields(decoder: RecordDecoder | None, value_decoder: ValueDecoder | None, record: Record) -> DecodedFields:
    """The decoded fields of a record by the decoder of its log; all None where it has none."""
    if decoder is not None:
        found = decoder.decode(record.key, record.value)
        return DecodedFields(message_object(found.key), message_object(found.value), found.problem)
    if value_decoder is None:
        return DecodedFields(None, None, None)
    key, value, problem = value_decoder.decode(record.key, record.value, record.headers)
    return DecodedFields(value_object(key), value_object(value), problem)


def record_words(found: DecodedRecord, key: bytes | None, value: bytes | None, mode: str) -> str:
    """What a record of an internal topic says, without its offset and time."""
    if found.problem is not None:
        stored = f"key={bytes_text(key, mode)} value={bytes_text(value, mode)}"
        return f"{stored} undecoded={next(words({'': found.problem}))[1:]}"
    parts = [*_key_words(found.key, mode)] if found.key is not None else []
    if found.value is None:
        parts.append("deleted")
        return " ".join(parts)
    fields = found.value.fields
    if found.key is None:
        parts.append(printable(found.value.name))
    elif found.value.name in COMMITS:
        fields = {COMMIT_NAMES.get(name, name): value for name, value in fields.items()}
    parts += words(_with_times(fields), mode=mode)
    return " ".join(parts)


def _key_words(key: DecodedMessage, mode: str) -> list[str]:
    name, fields = key.name.removesuffix("Key"), dict(key.fields)
    topic, partition = fields.pop("topic", None), fields.pop("partition", None)
    parts = [printable(name), *words(fields, mode=mode)]
    if isinstance(topic, str):
        parts.append(f"partition={printable(topic)}-{partition}")
    elif partition is not None:
        parts.append(f"partition={partition}")
    return parts


def _with_times(fields: Fields) -> Fields:
    """The fields, with the times among them as text."""
    return {
        name: iso_time(value) if name in TIMES and isinstance(value, int) and value >= 0 else value
        for name, value in fields.items()
    }
