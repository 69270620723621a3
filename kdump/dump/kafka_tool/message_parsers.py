"""The key and the payload that Kafka's dump tool prints of a record when an option names a decoder (MessageParser).

    --offsets-decoder             OffsetsMessageParser: key `{"type":"1","data":…}`, payload `{"version":"4","data":…}`
    --transaction-log-decoder     TransactionLogMessageParser, the same
    --share-group-state-decoder   ShareGroupStateMessageParser, the same
    --cluster-metadata-decoder    ClusterMetadataLogMessageParser: only a payload,
                                  `{"type":"TOPIC_RECORD","version":0,"data":{…}}`
    --remote-log-metadata-decoder RemoteMetadataLogMessageParser: only a payload, `toString` of Kafka's own classes

A coordinator's tombstone is `<DELETE>`. What cannot be decoded is a sentence in place of key or payload. The tool ends
with an exception at a record of a coordinator without a key; here the record is shown as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kdump.dump.kafka_tool.jackson import json_node
from kdump.format.internal_topics.decoders import TOPICS
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import DecodedMessage, DecodedRecord, RecordDecoder
    from kdump.format.json_types import FieldValue

_NULL_POINTER: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)
"""What the runtime says when the decoder of tiered storage meets a null value."""
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


_WITHOUT_KEYS: Final = (TOPICS["metadata"], TOPICS["remote-log"])
"""Topics whose records have no keys."""


def ends_the_tool(topic: str, key: bytes | None) -> bool:
    """Whether the tool ends with an exception at a record of an internal topic with this key."""
    return key is None and topic not in _WITHOUT_KEYS


class ParseResult(NamedTuple):
    """What the tool prints of a record; None where it prints nothing."""

    key: str | None
    payload: str | None


class MessageParser:
    """The texts of the records of one internal topic."""

    def __init__(self, decoder: RecordDecoder) -> None:
        self._decoder = decoder

    def parse(self, offset: int, key: bytes | None, value: bytes | None) -> ParseResult | None:
        """The texts of a record, None where the tool ends with an exception."""
        found = self._decoder.decode(key, value)
        topic = self._decoder.topic
        if topic in _WITHOUT_KEYS:
            return ParseResult(None, _payload(topic, offset, value, found))
        if ends_the_tool(topic, key):
            return None
        if found.unknown_type is not None:
            return ParseResult(f"Unknown record type {found.unknown_type} at offset {offset}, skipping.", None)
        if found.problem is not None:
            return ParseResult(f"Error at offset {offset}, skipping. {_or_null(found.java_problem)}", None)
        assert found.key is not None
        head = _json(("type", str(found.key.type)), found.key)
        if found.value is None:
            return ParseResult(head, "<DELETE>")
        return ParseResult(head, _json(("version", str(found.value.version)), found.value))


def _json(first: tuple[str, str], message: DecodedMessage) -> str:
    return json_node({first[0]: first[1], "data": message.fields})


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def _payload(topic: str, offset: int, value: bytes | None, found: DecodedRecord) -> str:
    """The payload of a record whose key means nothing."""
    message, problem = found.value, found.java_problem
    if topic == TOPICS["metadata"]:
        if message is None:
            return f"Error at {offset}, skipping. {_or_null(problem)}"
        name = _WORD.sub("_", message.name).upper()
        return json_node({"type": name, "version": message.version, "data": message.fields})
    if value is None:
        problem = _NULL_POINTER
    if message is not None:
        text = _remote_log_text(message)
        if isinstance(text, str):
            return text
        problem = text.java_problem
    return f"Error at offset {offset}, skipping. {_or_null(problem)}"


# ---- what the classes of tiered storage say of themselves


class _Refused(NamedTuple):
    """Kafka's class refuses the values with this message."""

    java_problem: str | None


_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def _remote_log_text(message: DecodedMessage) -> str | _Refused:
    fields = message.fields
    match message.name:
        case "RemoteLogSegmentMetadataRecord":
            return _segment_metadata(fields)
        case "RemoteLogSegmentMetadataSnapshotRecord":
            return _segment_snapshot(fields)
        case "RemoteLogSegmentMetadataUpdateRecord":
            state = _state(_SEGMENT_STATES, fields["remoteLogSegmentState"])
            if state is None:
                return _Refused("state can not be null")
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(fields['remoteLogSegmentId'])},"
                f" customMetadata={_custom(fields['customMetadata'])}, state={state},"
                f" eventTimestampMs={_number(fields, 'eventTimestampMs')}, brokerId={_number(fields, 'brokerId')}}}"
            )
        case "RemotePartitionDeleteMetadataRecord":
            state = _state(_DELETE_STATES, fields["remotePartitionDeleteState"])
            if state is None:
                return _Refused(None)
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={_partition(fields['topicIdPartition'])},"
                f" state={state}, eventTimestampMs={_number(fields, 'eventTimestampMs')},"
                f" brokerId={_number(fields, 'brokerId')}}}"
            )
    return _Refused(f"RemoteLogMetadataTransform for apikey: {message.type} does not exist.")


def _segment_metadata(fields: Mapping[str, FieldValue]) -> str | _Refused:
    state = _state(_SEGMENT_STATES, fields["remoteLogSegmentState"])
    start, end = fields["startOffset"], fields["endOffset"]
    epochs = fields["segmentLeaderEpochs"]
    assert isinstance(start, int)
    assert isinstance(end, int)
    assert isinstance(epochs, Sequence)
    if start < 0:
        return _Refused(f"Unexpected start offset = {start}. StartOffset for a remote segment cannot be negative")
    if end < start:
        return _Refused(
            f"Unexpected end offset = {end}. EndOffset for a remote segment cannot be less than startOffset = {start}"
        )
    if not epochs:
        return _Refused("segmentLeaderEpochs can not be null or empty")
    if state is None:
        return _Refused("state can not be null")
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(fields['remoteLogSegmentId'])},"
        f" startOffset={start}, endOffset={end}, brokerId={_number(fields, 'brokerId')},"
        f" maxTimestampMs={_number(fields, 'maxTimestampMs')}, eventTimestampMs={_number(fields, 'eventTimestampMs')},"
        f" segmentLeaderEpochs={_epochs(epochs)}, segmentSizeInBytes={_number(fields, 'segmentSizeInBytes')},"
        f" customMetadata={_custom(fields['customMetadata'])}, state={state},"
        f" txnIdxEmpty={'true' if fields.get('txnIndexEmpty') else 'false'}}}"
    )


def _segment_snapshot(fields: Mapping[str, FieldValue]) -> str | _Refused:
    state, epochs = _state(_SEGMENT_STATES, fields["remoteLogSegmentState"]), fields["segmentLeaderEpochs"]
    assert isinstance(epochs, Sequence)
    if state is None:
        return _Refused("state can not be null")
    if not epochs:
        return _Refused("segmentLeaderEpochs can not be null or empty")
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={fields['segmentId']!s},"
        f" startOffset={_number(fields, 'startOffset')}, endOffset={_number(fields, 'endOffset')},"
        f" maxTimestampMs={_number(fields, 'maxTimestampMs')}, segmentLeaderEpochs={_epochs(epochs)},"
        f" segmentSizeInBytes={_number(fields, 'segmentSizeInBytes')},"
        f" customMetadata={_custom(fields['customMetadata'])}, state={state},"
        f" txnIdxEmpty={'true' if fields.get('txnIndexEmpty') else 'false'}}}"
    )


def _epochs(epochs: Sequence[FieldValue]) -> str:
    """A TreeMap of leader epochs to offsets."""
    offsets: dict[int, int] = {}
    for each in epochs:
        assert isinstance(each, Mapping)
        offsets[_number(each, "leaderEpoch")] = _number(each, "offset")
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in sorted(offsets.items())) + "}"


def _number(fields: Mapping[str, FieldValue], name: str) -> int:
    found = fields[name]
    assert isinstance(found, int)
    return found


def _state(names: Sequence[str], number: FieldValue) -> str | None:
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else None


def _partition(value: FieldValue) -> str:
    assert isinstance(value, Mapping)
    return f"{value['id']!s}:{value['name']!s}-{_number(value, 'partition')}"


def _segment_id(value: FieldValue) -> str:
    assert isinstance(value, Mapping)
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(value['topicIdPartition'])}, id={value['id']!s}}}"


def _custom(value: FieldValue) -> str:
    return f"Optional[CustomMetadata{{{len(value)} bytes}}]" if isinstance(value, bytes) else "Optional.empty"
