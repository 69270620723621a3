"""The clean-shutdown file .kafka_cleanshutdown of a log directory: a broker closed the logs in order (CleanShutdownFileHandler).

    ===========  =====  ==========================================================================
    content      since  note
    ===========  =====  ==========================================================================
    (empty)             up to 3.6
    JSON object  3.7    ``version`` i32, ``brokerEpoch`` i64 (KIP-966)
    ===========  =====  ==========================================================================

Its presence counts. A broker ignores content that it cannot read.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kdump.format.text_files import (
    MAX_PROPERTIES_BYTES,
    CheckpointError,
    Property,
    compact_json,
    json_number,
    json_object,
    json_properties,
    too_large,
)


class CleanShutdown(NamedTuple):
    """The content of .kafka_cleanshutdown; both are None in an empty one."""

    version: int | None
    broker_epoch: int | None


def clean_shutdown_properties(data: bytes) -> Iterator[Property]:
    """The fields of a .kafka_cleanshutdown in its order, none of an empty one; a value that is no text as JSON."""
    return json_properties(_clean_shutdown_object(data))


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Raises CheckpointError where a broker ignores what stands in the marker; the marker itself it takes all the same."""
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


def build_clean_shutdown(marker: CleanShutdown) -> bytes:
    """A .kafka_cleanshutdown as a broker writes it; an empty one without a broker epoch."""
    if marker.broker_epoch is None:
        return b""
    return compact_json({"version": marker.version or 0, "brokerEpoch": marker.broker_epoch}).encode()


def _clean_shutdown_object(data: bytes) -> Mapping[str, Any]:
    if not data:
        return {}
    if len(data) > MAX_PROPERTIES_BYTES:
        raise too_large(data, MAX_PROPERTIES_BYTES)
    return json_object(data.decode(errors="replace"))
