"""The file quorum-state of a KRaft partition: the last election of the node (FileQuorumStateStore).

The schema is `QuorumStateData.json` (KIP-595, KIP-853). One JSON object in the first line:

    ================  ============  ============  ==========================================================
    field             data_version  type          note
    ================  ============  ============  ==========================================================
    data_version      0 and 1       i16
    clusterId         0             string
    leaderId          0 and 1       i32           -1: none
    leaderEpoch       0 and 1       i32
    votedId           0 and 1       i32           -1: none
    votedDirectoryId  1             base64url     a UUID
    appliedOffset     0             i64
    currentVoters     0             array         objects with voterId, i32
    ================  ============  ============  ==========================================================
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kdump.format.java import MAX_INT
from kdump.format.text_files import (
    MAX_PROPERTIES_BYTES,
    CheckpointError,
    Property,
    json_number,
    json_object,
    json_properties,
    parse_uuid,
    quoted_json,
    read_lines,
)
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

HIGHEST_QUORUM_STATE_VERSION: Final = 1


class QuorumState(NamedTuple):
    """The content of quorum-state. A field that its data_version does not have is None."""

    data_version: int
    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None
    applied_offset: int | None
    current_voters: tuple[int, ...] | None


def quorum_state_properties(data: bytes) -> Iterator[Property]:
    """The fields of a quorum-state in its order, also unknown ones. A value that is no text comes as JSON."""
    return json_properties(_quorum_object(data))


def parse_quorum_state(data: bytes) -> QuorumState:
    """The content. Raises CheckpointError for what FileQuorumStateStore refuses."""
    fields = _quorum_object(data)
    if "data_version" not in fields:
        raise CheckpointError("data_version is missing")
    version = _as_short(fields["data_version"])
    if not 0 <= version <= HIGHEST_QUORUM_STATE_VERSION:
        raise CheckpointError(f"data_version {version}, expected 0 to {HIGHEST_QUORUM_STATE_VERSION}")
    for name in _QUORUM_FIELDS[version]:
        if name not in fields:
            raise CheckpointError(f"{name} is missing, which data_version {version} has")
    numbers = {name: json_number(name, fields[name], bits) for name, bits in _QUORUM_NUMBERS.items() if name in fields}
    strings = {name: _string(name, fields[name]) for name in ("clusterId", "votedDirectoryId") if name in fields}
    directory_id = parse_uuid("votedDirectoryId", strings["votedDirectoryId"]) if "votedDirectoryId" in fields else None
    voters = _voters(fields["currentVoters"], version) if "currentVoters" in fields else None
    return QuorumState(
        version,
        strings["clusterId"] if version == 0 else None,
        numbers["leaderId"],
        numbers["leaderEpoch"],
        numbers["votedId"],
        directory_id if version > 0 else None,
        numbers["appliedOffset"] if version == 0 else None,
        voters if version == 0 else None,
    )


_COMMON = ("leaderId", "leaderEpoch", "votedId")
_QUORUM_FIELDS = (("clusterId", *_COMMON, "appliedOffset", "currentVoters"), (*_COMMON, "votedDirectoryId"))
_QUORUM_NUMBERS = {"leaderId": 32, "leaderEpoch": 32, "votedId": 32, "appliedOffset": 64}


def _quorum_object(data: bytes) -> "JsonObject":
    line = next(read_lines(data, MAX_PROPERTIES_BYTES), None)
    if line is None:
        raise CheckpointError("the file is empty")
    return json_object(line)


def _string(name: str, value: "JsonValue") -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"{name} is not a string: {quoted_json(value)}")
    return value


def _voters(value: "JsonValue", version: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise CheckpointError(f"currentVoters is not an array: {quoted_json(value)}")
    if value and version > 0:
        raise CheckpointError(f"currentVoters is not empty, which data_version {version} does not have")
    voters = []
    for voter in value:
        if not isinstance(voter, dict) or "voterId" not in voter:
            raise CheckpointError(f"a voter without voterId: {quoted_json(voter)}")
        voters.append(json_number("voterId", voter["voterId"], 32))
    return tuple(voters)


def _as_short(value: "JsonValue") -> int:
    """Jackson's `JsonNode.shortValue`: the low 16 bits of a number, 0 of anything else."""
    if isinstance(value, float):
        value = int(max(-(1 << 31), min(MAX_INT, value)))
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return (value + 0x8000) % 0x10000 - 0x8000
