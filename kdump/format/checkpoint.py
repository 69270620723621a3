r"""The small text files of a partition directory and of a log directory. All are UTF-8, but for meta.properties.

Checkpoints (Kafka's CheckpointFile): lines, ended by LF, CR or CRLF

    ===================================  ==========================================================================
    line                                 note
    ===================================  ==========================================================================
    ``0``                                version
    ``2``                                count of the lines that follow
    ``topic partition offset``           recovery-point-, replication-, log-start-, cleaner-offset-checkpoint
    ``epoch startOffset``                leader-epoch-checkpoint; both increase
    ===================================  ==========================================================================

An empty file and a file with nothing but the version have no entries. Fields stand apart by blanks, tabs, vertical tabs
or form feeds; blanks at the end of a line do not matter, at its beginning they make an empty first field.

partition.metadata (PartitionMetadataFile, KIP-516, since 2.8): ``version: 0`` and ``topic_id: <base64url>``; of each line
only what follows the colon and a blank is read, further lines are not.

meta.properties (MetaProperties, `java.util.Properties`), ISO-8859-1: ``key=value``, or with ``:`` or a blank between them;
lines that begin with ``#`` or ``!`` are comments; a ``\`` at the end of a line joins the next one; ``\t``, ``\n``, ``\r``,
``\f`` and ``\uxxxx`` are escapes, before anything else a ``\`` is dropped. Version 0 has broker.id and cluster.id, version 1
(KIP-631) needs node.id and cluster.id, and either can have directory.id (KIP-858).

quorum-state (FileQuorumStateStore, `QuorumStateData.json`, KIP-595, KIP-853): one JSON object in the first line. Its
data_version 0 has clusterId, leaderId, leaderEpoch, votedId, appliedOffset, currentVoters; 1 has leaderId, leaderEpoch,
votedId, votedDirectoryId.

.kafka_cleanshutdown (CleanShutdownFileHandler): that it is there says that the log directory was closed in order. Empty up to
3.6; since 3.7 a JSON object with version and brokerEpoch (KIP-966). A broker ignores what it cannot read in it.

What Kafka's reader refuses raises CheckpointError, what it takes is taken. The generators yield what stands before the
defect and raise behind it.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kdump.format.java import MAX_INT, parse_integer

VERSION: Final = 0
MAX_BYTES: Final = 64 << 20
"""The largest checkpoint that is read; a million partitions take less."""
MAX_PROPERTIES_BYTES: Final = 1 << 20
"""The largest of the other files that is read."""

HIGHEST_QUORUM_STATE_VERSION: Final = 1
HIGHEST_META_PROPERTIES_VERSION: Final = 1


class CheckpointError(ValueError):
    """Kafka's reader refuses the file; the message says where and why."""


class EpochEntry(NamedTuple):
    """A line of leader-epoch-checkpoint: from `start_offset` on the log was written under this leader epoch."""

    epoch: int
    start_offset: int


class OffsetEntry(NamedTuple):
    """A line of one of the four offset checkpoints."""

    topic: str
    partition: int
    offset: int


class Property(NamedTuple):
    """A name and a value, both as text."""

    key: str
    value: str


class PartitionMetadata(NamedTuple):
    """The content of partition.metadata; the topic id is base64url text of 22 characters."""

    version: int
    topic_id: str


class MetaProperties(NamedTuple):
    """The content of meta.properties; `node_id` is broker.id in version 0. None is what the file does not say."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


class QuorumState(NamedTuple):
    """The content of quorum-state; None is what its data_version does not have."""

    data_version: int
    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None
    applied_offset: int | None
    current_voters: tuple[int, ...] | None


class CleanShutdown(NamedTuple):
    """The content of .kafka_cleanshutdown; both are None in an empty one."""

    version: int | None
    broker_epoch: int | None


# --- checkpoints ------------------------------------------------------------------------------------------------------


def epoch_entries(data: bytes) -> Iterator[EpochEntry]:
    """The entries of a leader-epoch-checkpoint. Raises CheckpointError behind the last good one for what CheckpointFile refuses.

    Negative numbers and a wrong order are not refused here; the epoch cache of a broker does not take them.
    """
    for number, line in _entry_lines(data):
        fields = _fields(line)
        if len(fields) != 2:
            raise _malformed(number, line, "expected an epoch and a start offset")
        yield EpochEntry(_number(fields[0], 32, number, line), _number(fields[1], 64, number, line))


def offset_entries(data: bytes) -> Iterator[OffsetEntry]:
    """The entries of an offset checkpoint; of two for one partition a broker takes the later one. Raises as `epoch_entries`."""
    for number, line in _entry_lines(data):
        fields = _fields(line)
        if len(fields) != 3:
            raise _malformed(number, line, "expected a topic, a partition and an offset")
        topic, partition, offset = fields
        yield OffsetEntry(topic, _number(partition, 32, number, line), _number(offset, 64, number, line))


def build_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """A leader-epoch-checkpoint."""
    return _build([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def build_offsets(entries: Iterable[OffsetEntry]) -> bytes:
    """An offset checkpoint. Raises ValueError for a topic with whitespace in it."""
    lines = []
    for topic, partition, offset in entries:
        if not topic or _BLANKS.search(topic):
            raise ValueError(f"no topic of a checkpoint: {topic!r}")
        lines.append(f"{topic} {partition} {offset}")
    return _build(lines)


def _build(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def _entry_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """The lines behind the count, with their numbers from 1; raises at the end when they are not as many as the count says."""
    lines = _lines(data, MAX_BYTES)
    version = next(lines, None)
    if version is None:
        return
    found = _number(version, 32, 1, version)
    if found != VERSION:
        raise CheckpointError(f"version {found}, expected {VERSION}")
    count = next(lines, None)
    if count is None:
        return
    expected = _number(count, 32, 2, count)
    if expected < 0:
        raise CheckpointError(f"a count of {expected} entries")
    held = 0
    for held, line in enumerate(lines, 1):
        yield held + 2, line
    if held != expected:
        raise CheckpointError(f"a count of {expected} entries, but there are {held}")


# --- partition.metadata -----------------------------------------------------------------------------------------------

_COLON = re.compile(r":[ \t\n\x0b\f\r]+")


def partition_metadata_properties(data: bytes) -> Iterator[Property]:
    """The two lines of a partition.metadata, `version` and `topic_id`. Raises CheckpointError behind the last good one."""
    lines = _lines(data, MAX_PROPERTIES_BYTES)
    line, text = _after_colon(lines, 1)
    version = _number(text, 32, 1, line)
    if version < VERSION:
        raise CheckpointError(f"version {version}, expected {VERSION} or more")
    yield Property("version", str(version))
    line, text = _after_colon(lines, 2)
    topic_id = _uuid("topic id", text)
    if topic_id == ZERO_UUID:
        raise CheckpointError("the topic id is zero")
    yield Property("topic_id", topic_id)


def parse_partition_metadata(data: bytes) -> PartitionMetadata:
    """Raises CheckpointError for what PartitionMetadataFile refuses."""
    version, topic_id = (value for _, value in partition_metadata_properties(data))
    return PartitionMetadata(int(version), topic_id)


def build_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """A partition.metadata; there is no line end behind the topic id."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def _after_colon(lines: Iterator[str], number: int) -> tuple[str, str]:
    line = next(lines, None)
    if line is None:
        raise CheckpointError(f"line {number} is missing")
    parts = _split(_COLON, line)
    if len(parts) != 2:
        raise _malformed(number, line, "expected a name, a colon, a blank and a value")
    return line, parts[1]


# --- meta.properties --------------------------------------------------------------------------------------------------

_PADDING = " \t\f"
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: f"\\{char}" for char in "\\=:#!"}
# Up to the first separator that no backslash stands before; then one = or : with blanks around it.
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def properties(data: bytes) -> Iterator[Property]:
    r"""The properties of a Java properties file in its order; of two with one key Kafka takes the later one.

    Half a surrogate pair comes as U+FFFD. Raises CheckpointError for a `\u` without four hexadecimal digits.
    """
    if len(data) > MAX_PROPERTIES_BYTES:
        raise _too_large(data, MAX_PROPERTIES_BYTES)
    for number, line in _logical_lines(data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty string
        yield Property(_unescaped(key[1], number), _unescaped(line[key.end() :], number))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and with their continuations, with the number of their first line."""
    parts: list[str] = []
    first, alone = 0, False
    for number, natural in enumerate(io.StringIO(text, newline=None), 1):
        line = natural.removesuffix("\n").lstrip(_PADDING)
        alone = line == "\\" and not parts
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            # A backslash alone begins nothing: the next line can still be a comment.
            if not alone:
                parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts.clear()
    # At the end of the file it is an empty key with an empty value (a quirk of Java's reader, which CRLF hides).
    if parts or (alone and not text.endswith("\r\n")):
        yield first, "".join(parts)


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def plain(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise CheckpointError(f"line {number}: \\u without four hexadecimal digits: {_shown(text)}")
        return _ESCAPED.get(escape[2], escape[2])

    found = _ESCAPE.sub(plain, text)
    # Two escapes can be the halves of one character.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def build_properties(entries: Iterable[Property], comments: Iterable[str] = ()) -> bytes:
    """A Java properties file in ASCII, as `java.util.Properties` writes it. Raises ValueError for a comment with a line end."""
    lines = []
    for comment in comments:
        if not comment.isprintable():
            raise ValueError(f"no comment of one line: {comment!r}")
        lines.append(f"#{_ascii(comment)}\n")
    lines += [f"{_escaped(key, key=True)}={_escaped(value, key=False)}\n" for key, value in entries]
    return "".join(lines).encode("ascii")


def _escaped(text: str, *, key: bool) -> str:
    escaped = "".join([_ESCAPES.get(char, char) for char in text])
    blanks = len(escaped) if key else len(escaped) - len(escaped.lstrip(" "))
    return _ascii(escaped[:blanks].replace(" ", "\\ ") + escaped[blanks:])


def _ascii(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join([chr(code) if 0x20 <= code <= 0x7E else f"\\u{code:04X}" for code in codes])


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Raises CheckpointError for what MetaProperties refuses."""
    found = dict(properties(data))
    version_text = found.get("version", "0").strip(_JAVA_TRIMS)
    version = _property_number("version", version_text)
    if not 0 <= version <= HIGHEST_META_PROPERTIES_VERSION:
        raise CheckpointError(f"version {version}, expected 0 to {HIGHEST_META_PROPERTIES_VERSION}")
    node_key = "node.id" if version else "broker.id"
    node_id = _property_number(node_key, found[node_key]) if node_key in found else None
    if version and node_id is None:
        raise CheckpointError("node.id is missing")
    directory_id = _uuid("directory.id", found["directory.id"]) if "directory.id" in found else None
    if version and "cluster.id" not in found:
        raise CheckpointError("cluster.id is missing")
    return MetaProperties(version, found.get("cluster.id"), node_id, directory_id)


def build_meta_properties(meta: MetaProperties, comments: Iterable[str] = ()) -> bytes:
    """A meta.properties; a broker writes an empty comment and one with the time."""
    entries = (
        ("node.id" if meta.version else "broker.id", meta.node_id),
        ("directory.id", meta.directory_id),
        ("version", meta.version),
        ("cluster.id", meta.cluster_id),
    )
    return build_properties([Property(key, str(value)) for key, value in entries if value is not None], comments)


_JAVA_TRIMS = "".join(map(chr, range(0x21)))


def _property_number(key: str, text: str) -> int:
    number = parse_integer(text, 32)
    if number is None:
        raise CheckpointError(f"{key} is no number: {_shown(text)}")
    return number


# --- quorum-state and .kafka_cleanshutdown ----------------------------------------------------------------------------


def quorum_state_properties(data: bytes) -> Iterator[Property]:
    """The fields of a quorum-state in its order, those too that Kafka does not know; a value that is no text as JSON."""
    return _json_properties(_quorum_object(data))


def parse_quorum_state(data: bytes) -> QuorumState:
    """Raises CheckpointError for what FileQuorumStateStore refuses."""
    fields = _quorum_object(data)
    if "data_version" not in fields:
        raise CheckpointError("data_version is missing")
    version = _as_short(fields["data_version"])
    if not 0 <= version <= HIGHEST_QUORUM_STATE_VERSION:
        raise CheckpointError(f"data_version {version}, expected 0 to {HIGHEST_QUORUM_STATE_VERSION}")
    for name in _QUORUM_FIELDS[version]:
        if name not in fields:
            raise CheckpointError(f"{name} is missing, which data_version {version} has")
    numbers = {name: _json_number(name, fields[name], bits) for name, bits in _QUORUM_NUMBERS.items() if name in fields}
    for name in ("clusterId", "votedDirectoryId"):
        if not isinstance(fields.get(name, ""), str):
            raise CheckpointError(f"{name} is no string: {_shown_json(fields[name])}")
    directory_id = _uuid("votedDirectoryId", fields["votedDirectoryId"]) if "votedDirectoryId" in fields else None
    voters = _voters(fields["currentVoters"], version) if "currentVoters" in fields else None
    return QuorumState(
        version,
        fields["clusterId"] if version == 0 else None,
        numbers["leaderId"],
        numbers["leaderEpoch"],
        numbers["votedId"],
        directory_id if version > 0 else None,
        numbers["appliedOffset"] if version == 0 else None,
        voters if version == 0 else None,
    )


def build_quorum_state(state: QuorumState) -> bytes:
    """A quorum-state as a broker writes it, without a line end."""
    fields: dict[str, Any] = {"clusterId": state.cluster_id} if state.data_version == 0 else {}
    fields |= {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if state.data_version == 0:
        fields["appliedOffset"] = state.applied_offset
        fields["currentVoters"] = [{"voterId": voter} for voter in state.current_voters or ()]
    else:
        fields["votedDirectoryId"] = state.voted_directory_id
    fields["data_version"] = state.data_version
    return _compact(fields).encode()


_COMMON = ("leaderId", "leaderEpoch", "votedId")
_QUORUM_FIELDS = (("clusterId", *_COMMON, "appliedOffset", "currentVoters"), (*_COMMON, "votedDirectoryId"))
_QUORUM_NUMBERS = {"leaderId": 32, "leaderEpoch": 32, "votedId": 32, "appliedOffset": 64}


def _quorum_object(data: bytes) -> Mapping[str, Any]:
    line = next(_lines(data, MAX_PROPERTIES_BYTES), None)
    if line is None:
        raise CheckpointError("the file is empty")
    return _json_object(line)


def _voters(value: Any, version: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise CheckpointError(f"currentVoters is no array: {_shown_json(value)}")
    if value and version > 0:
        raise CheckpointError(f"currentVoters is not empty, which data_version {version} does not have")
    voters = []
    for voter in value:
        if not isinstance(voter, dict) or "voterId" not in voter:
            raise CheckpointError(f"a voter without voterId: {_shown_json(voter)}")
        voters.append(_json_number("voterId", voter["voterId"], 32))
    return tuple(voters)


def clean_shutdown_properties(data: bytes) -> Iterator[Property]:
    """The fields of a .kafka_cleanshutdown in its order, none of an empty one; a value that is no text as JSON."""
    return _json_properties(_clean_shutdown_object(data))


def parse_clean_shutdown(data: bytes) -> CleanShutdown:
    """Raises CheckpointError where a broker ignores what stands in the marker; the marker itself it takes all the same."""
    fields = _clean_shutdown_object(data)
    if not data:
        return CleanShutdown(None, None)
    if "brokerEpoch" not in fields:
        raise CheckpointError("brokerEpoch is missing")
    version = fields.get("version")
    return CleanShutdown(
        0 if version is None else _json_number("version", version, 32),
        _json_number("brokerEpoch", fields["brokerEpoch"], 64),
    )


def build_clean_shutdown(marker: CleanShutdown) -> bytes:
    """A .kafka_cleanshutdown as a broker writes it; an empty one without a broker epoch."""
    if marker.broker_epoch is None:
        return b""
    return _compact({"version": marker.version or 0, "brokerEpoch": marker.broker_epoch}).encode()


def _clean_shutdown_object(data: bytes) -> Mapping[str, Any]:
    if not data:
        return {}
    if len(data) > MAX_PROPERTIES_BYTES:
        raise _too_large(data, MAX_PROPERTIES_BYTES)
    return _json_object(data.decode(errors="replace"))


# --- what they share --------------------------------------------------------------------------------------------------

_BLANKS = re.compile(r"[ \t\n\x0b\f\r]+")
_UUID = re.compile(r"([A-Za-z0-9_-]{22})(?:==)?")
_SHOWN = 60

ZERO_UUID: Final = "A" * 22


def _lines(data: bytes, limit: int) -> Iterator[str]:
    """The lines as `java.io.BufferedReader` cuts them. Raises CheckpointError behind the last whole line before malformed UTF-8."""
    if len(data) > limit:
        raise _too_large(data, limit)
    try:
        text, problem = data.decode(), None
    except UnicodeDecodeError as error:
        whole = data[: error.start]
        whole = whole[: max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1]
        text, problem = whole.decode(), f"byte {error.start} is no UTF-8"
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")
    if problem is not None:
        raise CheckpointError(problem)


def _split(blanks: re.Pattern[str], line: str) -> list[str]:
    """`java.util.regex.Pattern.split`: no empty fields at the end."""
    if blanks.search(line) is None:
        return [line]
    fields = blanks.split(line)
    while fields and not fields[-1]:
        fields.pop()
    return fields


def _fields(line: str) -> list[str]:
    return _split(_BLANKS, line)


def _number(text: str, bits: int, number: int, line: str) -> int:
    found = parse_integer(text, bits)
    if found is None:
        raise _malformed(number, line, f"{_shown(text)} is no number of {bits} bits")
    return found


def _uuid(what: str, text: str) -> str:
    """The 22 characters that Kafka writes for the base64 of a UUID; padding and spare bits, which it ignores, are gone."""
    match = _UUID.fullmatch(text)
    if match is None:
        raise CheckpointError(f"the {what} is no base64url of 16 bytes: {_shown(text)}")
    from base64 import urlsafe_b64decode, urlsafe_b64encode

    return urlsafe_b64encode(urlsafe_b64decode(match[1] + "==")).decode("ascii")[:22]


def _malformed(number: int, line: str, why: str) -> CheckpointError:
    return CheckpointError(f"line {number} is malformed, {why}: {_shown(line)}")


def _too_large(data: bytes, limit: int) -> CheckpointError:
    return CheckpointError(f"{len(data)} bytes, more than the {limit} that such a file can have")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")


def _shown_json(value: Any) -> str:
    return _shown(_compact(value))


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _json_object(text: str) -> Mapping[str, Any]:
    """The JSON object that a text begins with; Jackson does not look at what follows it."""
    import json  # most files have none

    try:
        value, _ = json.JSONDecoder(parse_constant=_no_constant).raw_decode(text.lstrip(" \t\n\r"))
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "no JSON"
        raise CheckpointError(f"{why}: {_shown(text)}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"no JSON object: {_shown(text)}")
    return value


def _json_properties(fields: Mapping[str, Any]) -> Iterator[Property]:
    for key, value in fields.items():
        yield Property(_sound(key), _sound(value) if isinstance(value, str) else _compact(value))


def _sound(text: str) -> str:
    """The text with U+FFFD for half a surrogate pair, which JSON can escape and UTF-8 cannot hold."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _compact(value: Any) -> str:
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def _json_number(name: str, value: Any, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -1 << bits - 1 <= value < 1 << bits - 1:
        raise CheckpointError(f"{name} is no number of {bits} bits: {_shown_json(value)}")
    return value


def _as_short(value: Any) -> int:
    """Jackson's `JsonNode.shortValue`: the low 16 bits of a number, 0 of anything else."""
    if isinstance(value, float):
        value = int(max(-(1 << 31), min(MAX_INT, value)))
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return (value + 0x8000) % 0x10000 - 0x8000
