"""The values of records, raw, with a separator after each: for programs that read lines, or NUL with -0.

A null value is nothing, or NULL with -Z. With a decoder, the message in the value of an internal topic, and any
other decoded value, is JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdump.render.json import json_value
from kdump.render.record_renderer import RecordPlace, RecordRenderer

if TYPE_CHECKING:
    from kdump.format.record import Record


class ValuesRenderer(RecordRenderer):
    """Writes values."""

    def record_bytes(self, place: RecordPlace, record: Record) -> bytes:
        value = record.value
        if place.decoder is not None:
            from kdump.render.messages import message_object  # only internal topics need it

            message = place.decoder.decode(record.key, record.value).value
            if message is not None:
                value = json_value(message_object(message)).encode()
        elif place.value_decoder is not None:
            decoded = place.value_decoder.decode(record.key, record.value, record.headers).value
            if decoded is not None:
                value = json_value(decoded.data).encode()
        return self.shown(self.options.null if value is None else value) + self.options.separator
