"""Control records: records that the brokers write for themselves, in batches with attribute bit 5.

Key of every control record (4 bytes; ControlRecordType, `ControlRecordTypeSchema.json`)

| position | size | type | field   | notes                                                          |
|----------|------|------|---------|----------------------------------------------------------------|
| 0        | 2    | i16  | version | 0; a higher one is read as 0, further key bytes are ignored     |
| 2        | 2    | i16  | type    | 0 ABORT, 1 COMMIT, 2 LEADER_CHANGE, 3 SNAPSHOT_HEADER,          |
|          |      |      |         | 4 SNAPSHOT_FOOTER, 5 KRAFT_VERSION, 6 KRAFT_VOTERS              |

Value of an end-transaction marker, types 0 and 1 (6 bytes; EndTransactionMarker, KIP-98)

| position | size | type | field             | notes                                                |
|----------|------|------|-------------------|------------------------------------------------------|
| 0        | 2    | i16  | version           | 0; a higher one is read as 0                         |
| 2        | 4    | i32  | coordinator epoch | further value bytes are ignored                      |

Values of types 2 to 6 (KIP-595, KIP-630, KIP-853) are Kafka messages of the flexible kind, without the usual version
prefix: the first field is the version. `array` is an unsigned varint of count + 1 and then the elements, `string` an
unsigned varint of length + 1 and then UTF-8, `uuid` 16 bytes. Every struct ends in tagged fields: an unsigned varint
count, then per field an unsigned varint tag, an unsigned varint size and that many bytes (none is defined yet).

| type              | schema                    | fields in order                                                    |
|-------------------|---------------------------|--------------------------------------------------------------------|
| 2 LEADER_CHANGE   | LeaderChangeMessage.json  | version i16, leader id i32, voters array, granting voters array; a |
|                   |                           | voter is: voter id i32, directory id uuid (version 1 and above)    |
| 3 SNAPSHOT_HEADER | SnapshotHeaderRecord.json | version i16, last contained log timestamp i64                      |
| 4 SNAPSHOT_FOOTER | SnapshotFooterRecord.json | version i16                                                        |
| 5 KRAFT_VERSION   | KRaftVersionRecord.json   | version i16, kraft version i16                                     |
| 6 KRAFT_VOTERS    | VotersRecord.json         | version i16, voters array; a voter is: voter id i32, directory id  |
|                   |                           | uuid, endpoints array {name string, host string, port u16}, kraft  |
|                   |                           | version feature {minimum i16, maximum i16}                         |

The numbers are those of Kafka 3.0 and later. The KRaft previews of 2.7 and 2.8 numbered types 2 and 3 otherwise and
had no version in front of their messages.
"""

import struct
from collections.abc import Callable
from enum import IntEnum

from kdump.format.schema_fields import I16, I32, I64, FieldReader
from kdump.named_tuple import NamedTuple

KEY_SIZE = 4
MARKER_SIZE = 6

# The highest message version whose fields are known here.
HIGHEST_LEADER_CHANGE_VERSION = 1

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_U16 = struct.Struct(">H")


class ControlType(IntEnum):
    """The types of control records, by the names that Kafka gives them (ControlRecordType)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


TYPES = frozenset(ControlType)


class ControlKey(NamedTuple):
    """The key of a control record; `type` may be a number that no release of Kafka has written yet."""

    version: int
    type: int

    @property
    def name(self) -> str:
        """The name of the type; its number as text when it has none."""
        return type_name(self.type)


class EndTransactionMarker(NamedTuple):
    """The value of an ABORT or COMMIT record."""

    version: int
    coordinator_epoch: int


class Voter(NamedTuple):
    """One voter of a leader change; `voter_directory_id` is base64url text, None below version 1."""

    voter_id: int
    voter_directory_id: str | None


class LeaderChange(NamedTuple):
    """The value of a LEADER_CHANGE record."""

    version: int
    leader_id: int
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]


class SnapshotHeader(NamedTuple):
    """The value of a SNAPSHOT_HEADER record; the timestamp is in milliseconds."""

    version: int
    last_contained_log_timestamp: int


class SnapshotFooter(NamedTuple):
    """The value of a SNAPSHOT_FOOTER record."""

    version: int


class KRaftVersion(NamedTuple):
    """The value of a KRAFT_VERSION record."""

    version: int
    kraft_version: int


class Endpoint(NamedTuple):
    """One listener of a KRaft voter."""

    name: str
    host: str
    port: int


class KRaftVersionFeature(NamedTuple):
    """The range of kraft.version that a KRaft voter supports."""

    min_supported_version: int
    max_supported_version: int


class KRaftVoter(NamedTuple):
    """One member of the voter set; `voter_directory_id` is base64url text."""

    voter_id: int
    voter_directory_id: str
    endpoints: tuple[Endpoint, ...]
    kraft_version_feature: KRaftVersionFeature


class KRaftVoters(NamedTuple):
    """The value of a KRAFT_VOTERS record."""

    version: int
    voters: tuple[KRaftVoter, ...]


ControlValue = EndTransactionMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters


class ControlRecord(NamedTuple):
    """Key and value of one control record; `value` is None for an empty marker and for unknown types."""

    key: ControlKey
    value: ControlValue | None


def type_name(control_type: int) -> str:
    """The name of a control record's type (`COMMIT`, `LEADER_CHANGE` …); its number as text when it has none."""
    try:
        return ControlType(control_type).name
    except ValueError:
        return str(control_type)


def decode_key(key: bytes | None) -> ControlKey:
    """The key of a control record.

    Raises ValueError when it is null, shorter than 4 bytes or has a negative version (ControlRecordType.parseTypeId).
    """
    if key is None:
        raise ValueError("the key is null, expected 4 bytes")
    if len(key) < KEY_SIZE:
        raise ValueError(f"the key has {len(key)} bytes, expected at least {KEY_SIZE}")
    parsed = ControlKey._make(_KEY.unpack_from(key))
    if parsed.version < 0:
        raise ValueError(f"the key has version {parsed.version}, expected 0 or more")
    return parsed


def encode_key(control_type: ControlType) -> bytes:
    """The key of a control record, as every release of Kafka writes it."""
    return _KEY.pack(0, control_type)


def encode_marker(coordinator_epoch: int) -> bytes:
    """The value of an end-transaction marker."""
    return _MARKER.pack(0, coordinator_epoch)


def decode_value(control_type: int, value: bytes | None, *, layout: int | None = None) -> ControlValue | None:
    """The value of a control record of the given type; None for an empty or null marker and for unknown types.

    `layout` forces the message version by which a leader change is read; by default the version in the message itself
    decides. Bytes after the message are ignored, as in Kafka's reader. Raises ValueError for every other value that
    is not of its type's form.
    """
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        return decode_marker(value) if value else None
    read = _MESSAGES.get(control_type)
    if read is None:
        return None
    if value is None:
        raise ValueError(f"the value of {type_name(control_type)} is null")
    return read(FieldReader(value), layout)


def decode_marker(value: bytes | None) -> EndTransactionMarker:
    """The value of an end-transaction marker, strictly as Kafka's reader takes it.

    Raises ValueError when it is null, shorter than 6 bytes or has a negative version (EndTransactionMarker).
    """
    if value is None:
        raise ValueError(f"the marker's value is null, expected {MARKER_SIZE} bytes")
    if len(value) < MARKER_SIZE:
        raise ValueError(f"the marker's value has {len(value)} bytes, expected at least {MARKER_SIZE}")
    marker = EndTransactionMarker._make(_MARKER.unpack_from(value))
    if marker.version < 0:
        raise ValueError(f"the marker has version {marker.version}, expected 0 or more")
    return marker


def decode(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Key and value of one control record; raises ValueError as `decode_key` and `decode_value` do."""
    parsed = decode_key(key)
    return ControlRecord(parsed, decode_value(parsed.type, value))


def _leader_change(reader: FieldReader, layout: int | None) -> LeaderChange:
    version = reader.number(I16, "the version")
    with_directory = (version if layout is None else layout) >= HIGHEST_LEADER_CHANGE_VERSION

    def voter() -> Voter:
        voter_id = reader.number(I32, "a voter id")
        directory = reader.uuid("a voter's directory id") if with_directory else None
        reader.tagged_fields()
        return Voter(voter_id, directory)

    leader_id = reader.number(I32, "the leader id")
    voters = reader.array(voter, "the voters")
    granting = reader.array(voter, "the granting voters")
    reader.tagged_fields()
    return LeaderChange(version, leader_id, voters, granting)


def _snapshot_header(reader: FieldReader, _layout: int | None) -> SnapshotHeader:
    version = reader.number(I16, "the version")
    timestamp = reader.number(I64, "the last contained log timestamp")
    reader.tagged_fields()
    return SnapshotHeader(version, timestamp)


def _snapshot_footer(reader: FieldReader, _layout: int | None) -> SnapshotFooter:
    version = reader.number(I16, "the version")
    reader.tagged_fields()
    return SnapshotFooter(version)


def _kraft_version(reader: FieldReader, _layout: int | None) -> KRaftVersion:
    version = reader.number(I16, "the version")
    kraft_version = reader.number(I16, "the kraft version")
    reader.tagged_fields()
    return KRaftVersion(version, kraft_version)


def _kraft_voters(reader: FieldReader, _layout: int | None) -> KRaftVoters:
    def endpoint() -> Endpoint:
        name = reader.string("an endpoint's name")
        host = reader.string("an endpoint's host")
        port = reader.number(_U16, "an endpoint's port")
        reader.tagged_fields()
        return Endpoint(name, host, port)

    def feature() -> KRaftVersionFeature:
        lowest = reader.number(I16, "the lowest supported kraft version")
        highest = reader.number(I16, "the highest supported kraft version")
        reader.tagged_fields()
        return KRaftVersionFeature(lowest, highest)

    def voter() -> KRaftVoter:
        voter_id = reader.number(I32, "a voter id")
        directory = reader.uuid("a voter's directory id")
        endpoints = reader.array(endpoint, "the endpoints of a voter")
        supported = feature()
        reader.tagged_fields()
        return KRaftVoter(voter_id, directory, endpoints, supported)

    version = reader.number(I16, "the version")
    voters = reader.array(voter, "the voters")
    reader.tagged_fields()
    return KRaftVoters(version, voters)


_MESSAGES: dict[int, Callable[[FieldReader, int | None], ControlValue]] = {
    ControlType.LEADER_CHANGE: _leader_change,
    ControlType.SNAPSHOT_HEADER: _snapshot_header,
    ControlType.SNAPSHOT_FOOTER: _snapshot_footer,
    ControlType.KRAFT_VERSION: _kraft_version,
    ControlType.KRAFT_VOTERS: _kraft_voters,
}
