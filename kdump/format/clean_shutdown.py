"""The clean-shutdown file, .kafka_cleanshutdown: the broker of a log directory shut down cleanly
(CleanShutdownFileHandler).

    ===========  =====  ==========================================================================
    content      since  note
    ===========  =====  ==========================================================================
    (empty)             up to 3.6
    JSON object  3.7    ``version`` i32, ``brokerEpoch`` i64 (KIP-966)
    ===========  =====  ==========================================================================

Its presence is what counts. A broker ignores content that it cannot read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdump.format.text_files import (
    MAX_PROPERTIES_BYTES,
    CheckpointError,
    Property,
    json_number,
    json_object,
    json_properties,
    too_large,
)
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject


class CleanShutdown(NamedTuple):
    """The content of .kafka_cleanshutdown; both fields are None in an empty file."""

    version: int | None
    broker_epoch: int | None


def clean_shutdown_properties(data: bytes) -> Iterator[Property]:
    """The fields of a .kafka_cleanshutdown in its order, none of an empty file.

    A value that is no text comes as JSON.
    """
    return json_properties(_clean_shutdown_object(data))


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """The content. Raises CheckpointError for content that a broker ignores; the file itself counts all the same."""
    fields = _clean_shutdown_object(data)
    if not data:
        return CleanShutdown(None, None)
    if "brokerEpoch" not in fields:
        raise CheckpointError("brokerEpoch is missing")
    version = fields.get("version")
    return CleanShutdown(
        0 if version is None else json_number("version", version, 32),
        json_number("brokerEpoch", fields["brokerEpoch"], 64),
    )


def _clean_shutdown_object(data: bytes) -> "JsonObject":
    if not data:
        return {}
    if len(data) > MAX_PROPERTIES_BYTES:
        raise too_large(data, MAX_PROPERTIES_BYTES)
    return json_object(data.decode(errors="replace"))
