"""The file partition.metadata: the id of the topic that a partition belongs to (PartitionMetadataFile, KIP-516, since
2.8).

    ===========================  ===========================================================================
    line                         note
    ===========================  ===========================================================================
    ``version: 0``
    ``topic_id: <base64url>``    16 bytes; no line end after it
    ===========================  ===========================================================================

Lines are UTF-8. Of each line a broker reads only what follows the colon and a blank. It does not read further lines.
"""

import re
from collections.abc import Iterator
from typing import Final

from kdump.format.text_files import (
    MAX_PROPERTIES_BYTES,
    ZERO_UUID,
    CheckpointError,
    Property,
    malformed,
    parse_number,
    parse_uuid,
    read_lines,
    split_line,
)
from kdump.named_tuple import NamedTuple

VERSION: Final = 0

_COLON = re.compile(r":[ \t\n\x0b\f\r]+")


class PartitionMetadata(NamedTuple):
    """The content of partition.metadata; the topic id is base64url text of 22 characters."""

    version: int
    topic_id: str


def partition_metadata_properties(data: bytes) -> Iterator[Property]:
    """The two lines of a partition.metadata, `version` and `topic_id`.

    Raises CheckpointError after the last right one.
    """
    lines = read_lines(data, MAX_PROPERTIES_BYTES)
    line, text = _after_colon(lines, 1)
    version = parse_number(text, 32, 1, line)
    if version < VERSION:
        raise CheckpointError(f"version {version}, expected {VERSION} or more")
    yield Property("version", str(version))
    line, text = _after_colon(lines, 2)
    topic_id = parse_uuid("topic id", text)
    if topic_id == ZERO_UUID:
        raise CheckpointError("the topic id is zero")
    yield Property("topic_id", topic_id)


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """The content. Raises CheckpointError for what PartitionMetadataFile refuses."""
    version, topic_id = (value for _, value in partition_metadata_properties(data))
    return PartitionMetadata(int(version), topic_id)


def build_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """A partition.metadata, without a line end after the topic id."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def _after_colon(lines: Iterator[str], number: int) -> tuple[str, str]:
    line = next(lines, None)
    if line is None:
        raise CheckpointError(f"line {number} is missing")
    parts = split_line(_COLON, line)
    if len(parts) != 2:
        raise malformed(number, line, "expected a name, a colon, a space and a value")
    return line, parts[1]
