"""Logs and snapshots of `__cluster_metadata` from a few words, and random histories of a cluster."""

from __future__ import annotations

import random
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kdump.broker.metadata_image.cluster_image import SECURITY_PROTOCOLS, ListenerEndpoint, SupportedFeature
from kdump.broker.metadata_image.metadata_image import RESOURCE_TYPES, MetadataImage
from kdump.broker.metadata_image.record_fields import ReplayError
from kdump.broker.metadata_image.security_image import (
    ACL_OPERATIONS,
    ACL_RESOURCES,
    PATTERN_TYPES,
    PERMISSION_TYPES,
    SCRAM_MECHANISMS,
)
from kdump.broker.metadata_image.topics_image import LEADER_RECOVERY_STATES
from kdump.format.internal_topics.decoded import DecodedMessage
from kdump.format.internal_topics.decoders import decoder_of
from kdump.format.message_schema import FieldSchema, MessageSchema
from support import build
from support.messages import NUMBERS, schemas, uvarint


class Change(NamedTuple):
    """A record by its name, and its fields. What is not named has its default."""

    name: str
    fields: Mapping[str, Any]


def change(name: str, /, **fields: Any) -> Change:
    return Change(name, fields)


@cache
def _tables() -> dict[str, MessageSchema]:
    return schemas("cluster_metadata")


def value_of(item: Change, version: int | None = None) -> bytes:
    """The value of the record, in the newest version unless another one is named."""
    schema = _tables()[item.name]
    version = schema.versions.highest if version is None else version
    return uvarint(1) + uvarint(schema.api_key) + uvarint(version) + _struct(schema.fields, item.fields, version)


def _struct(fields: Sequence[FieldSchema], values: Mapping[str, Any], version: int) -> bytes:
    unknown = values.keys() - {field.name for field in fields}
    assert not unknown, unknown
    data, tagged = b"", []
    for field in fields:
        if not field.versions.includes(version):
            continue
        if field.tagged.includes(version):
            if field.name in values:
                tagged.append((field.tag, _field(field, values[field.name], version)))
        else:
            data += _field(field, values.get(field.name, _default(field)), version)
    found = uvarint(len(tagged))
    return data + found + b"".join(uvarint(tag) + uvarint(len(part)) + part for tag, part in sorted(tagged))


def _default(field: FieldSchema) -> Any:
    if field.default == "null":
        return None
    if field.is_array:
        return ()
    if field.type in NUMBERS:
        return float(field.default or 0) if field.type == "float64" else int(field.default or "0", 0)
    return {"bool": field.default == "true", "uuid": "A" * 22, "bytes": b""}.get(field.type, field.default)


def _field(field: FieldSchema, value: Any, version: int) -> bytes:
    if field.is_array:
        if value is None:
            return uvarint(0)
        return uvarint(len(value) + 1) + b"".join(_value(field, each, version) for each in value)
    return _value(field, value, version)


def _value(field: FieldSchema, value: Any, version: int) -> bytes:
    match field.type:
        case "string":
            return uvarint(0) if value is None else uvarint(len(value.encode()) + 1) + value.encode()
        case "bytes":
            return uvarint(len(value) + 1) + bytes(value)
        case "uuid":
            return urlsafe_b64decode(f"{value}==")
        case "bool":
            return bytes([value])
    if field.type in NUMBERS:
        return struct.pack(NUMBERS[field.type], value)
    return _struct(field.fields, value, version)


def batch_of(changes: Sequence[Change | bytes], base_offset: int, epoch: int = 1, **fields: Any) -> bytes:
    """A batch of records, or of values that are no records."""
    items = [build.record(None, each if isinstance(each, bytes) else value_of(each)) for each in changes]
    return build.batch(items, base_offset=base_offset, epoch=epoch, **fields)


def snapshot(items: Sequence[Change], controls: Sequence[build.Record] = (), *, footer: bool = True) -> bytes:
    """A KRaft snapshot with these records."""
    parts = [build.control_batch([build.snapshot_header(), *controls], base_offset=0)]
    at = 1 + len(controls)
    if items:
        parts.append(batch_of(items, at))
    if footer:
        parts.append(build.control_batch([build.snapshot_footer()], base_offset=at + len(items)))
    return b"".join(parts)


def snapshot_name(end_offset: int, epoch: int = 1) -> str:
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


def write_log(directory: Path, changes: Sequence[Change | bytes], *, per_batch: int = 3, first: int = 0) -> Path:
    """A metadata directory with one segment of these records, so many to a batch."""
    directory.mkdir(parents=True, exist_ok=True)
    parts = [batch_of(changes[at : at + per_batch], first + at) for at in range(0, len(changes), per_batch)]
    (directory / f"{first:020d}.log").write_bytes(b"".join(parts))
    return directory


def records_of(image: MetadataImage) -> Iterator[Change]:
    """The records that Kafka would write an image as (the classes' `write`), in another order."""
    if image.features.metadata_version is not None:
        yield change("FeatureLevelRecord", name="metadata.version", featureLevel=image.features.metadata_version)
    for name, level in image.features.finalized.items():
        yield change("FeatureLevelRecord", name=name, featureLevel=level)
    yield from _nodes(image)
    for topic in image.topics.by_id.values():
        yield change("TopicRecord", name=topic.name, topicId=topic.id)
        states = {name: number for number, name in LEADER_RECOVERY_STATES.items()}
        for number, each in topic.partitions.items():
            yield change(
                "PartitionRecord", partitionId=number, topicId=topic.id, replicas=each.replicas, isr=each.isr,
                removingReplicas=each.removing_replicas, addingReplicas=each.adding_replicas, leader=each.leader,
                leaderRecoveryState=states[each.leader_recovery_state], leaderEpoch=each.leader_epoch,
                partitionEpoch=each.partition_epoch, directories=each.directories,
                eligibleLeaderReplicas=each.eligible_leader_replicas, lastKnownElr=each.last_known_elr,
            )  # fmt: skip
    types = {name: number for number, name in RESOURCE_TYPES.items()}
    for resource, values in image.configurations.by_resource.items():
        for name, value in values.items():
            yield change(
                "ConfigRecord", resourceType=types[resource.type], resourceName=resource.name, name=name, value=value
            )
    for entity, quotas in image.client_quotas.by_entity.items():
        parts = [{"entityType": kind, "entityName": name} for kind, name in entity]
        for name, limit in quotas.items():
            yield change("ClientQuotaRecord", entity=parts, key=name, value=limit)
    if image.producer_ids.next_producer_id >= 0:
        yield change("ProducerIdsRecord", nextProducerId=image.producer_ids.next_producer_id)
    yield from _security(image)


def _nodes(image: MetadataImage) -> Iterator[Change]:
    for broker in image.cluster.brokers.values():
        yield change(
            "RegisterBrokerRecord", brokerId=broker.id, brokerEpoch=broker.epoch, incarnationId=broker.incarnation_id,
            endPoints=_endpoints(broker.endpoints), features=_features(broker.features), rack=broker.rack,
            fenced=broker.fenced, inControlledShutdown=broker.in_controlled_shutdown,
            isMigratingZkBroker=broker.is_migrating_zk_broker, logDirs=broker.directories,
            cordonedLogDirs=broker.cordoned_directories,
        )  # fmt: skip
    for node in image.cluster.controllers.values():
        yield change(
            "RegisterControllerRecord", controllerId=node.id, incarnationId=node.incarnation_id,
            zkMigrationReady=node.zk_migration_ready, endPoints=_endpoints(node.endpoints),
            features=_features(node.features),
        )  # fmt: skip


def _endpoints(found: Sequence[ListenerEndpoint]) -> list[dict[str, Any]]:
    numbers = {name: number for number, name in SECURITY_PROTOCOLS.items()}
    return [
        {"name": each.name, "host": each.host, "port": each.port, "securityProtocol": numbers[each.security_protocol]}
        for each in found
    ]


def _features(found: Sequence[SupportedFeature]) -> list[dict[str, Any]]:
    return [
        {"name": each.name, "minSupportedVersion": each.min_version, "maxSupportedVersion": each.max_version}
        for each in found
    ]


def _security(image: MetadataImage) -> Iterator[Change]:
    for acl_id, acl in image.acls.acls.items():
        yield change(
            "AccessControlEntryRecord", id=acl_id, resourceType=ACL_RESOURCES.index(acl.resource_type),
            resourceName=acl.resource_name, patternType=PATTERN_TYPES.index(acl.pattern_type), host=acl.host,
            principal=acl.principal, operation=ACL_OPERATIONS.index(acl.operation),
            permissionType=PERMISSION_TYPES.index(acl.permission_type),
        )  # fmt: skip
    for (mechanism, user), each in image.scram.credentials.items():
        yield change(
            "UserScramCredentialRecord", name=user, mechanism=SCRAM_MECHANISMS.index(mechanism), salt=each.salt,
            storedKey=each.stored_key, serverKey=each.server_key, iterations=each.iterations,
        )  # fmt: skip
    for token_id, token in image.delegation_tokens.tokens.items():
        yield change(
            "DelegationTokenRecord", tokenId=token_id, owner=token.owner, requester=token.requester,
            renewers=token.renewers, issueTimestamp=token.issue_timestamp, maxTimestamp=token.max_timestamp,
            expirationTimestamp=token.expiration_timestamp,
        )  # fmt: skip


def uuid_of(number: int) -> str:
    return urlsafe_b64encode(bytes(8) + (number + 100).to_bytes(8, "big")).decode().rstrip("=")


class History:
    """Random records of a small cluster, some of which do not fit what came before."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._made = 0

    def changes(self, count: int) -> list[Change]:
        """Records, without transactions."""
        found = [change("FeatureLevelRecord", name="metadata.version", featureLevel=30)]
        return found + [self._next() for _ in range(count - 1)]

    def sound(self, count: int) -> list[Change]:
        """Records that all fit, some of them in transactions that end, are aborted, or stay open.

        What Kafka's deltas make something else of is no part of it (`_clashes`).
        """
        rng = self._rng
        found = [change("FeatureLevelRecord", name="metadata.version", featureLevel=30)]
        begun: int | None = None
        settled = list(found)
        while len(found) < count:
            if rng.random() < 0.12:
                if begun is None:
                    found.append(change("BeginTransactionRecord", name=rng.choice(("some", "other"))))
                    begun = len(found)
                else:
                    commits = rng.random() < 0.6
                    settled += found[begun:] if commits else []
                    found.append(change("EndTransactionRecord" if commits else "AbortTransactionRecord"))
                    begun = None
                continue
            own = [] if begun is None else found[begun:]
            item = self._next()
            if not _clashes(item, own) and _fits([*settled, *own, item]):
                found.append(item)
                settled += [item] if begun is None else []
        return found

    def _next(self) -> Change:
        rng = self._rng
        kinds = (self._broker, self._topic, self._partition, self._partition, self._setting, self._user, self._quota)
        return rng.choice(kinds)()

    def _broker(self) -> Change:
        rng = self._rng
        broker, epoch = rng.randrange(3), rng.randrange(2)
        match rng.randrange(6):
            case 0 | 1:
                return change(
                    "RegisterBrokerRecord", brokerId=broker, brokerEpoch=epoch, incarnationId=uuid_of(broker),
                    endPoints=[{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}],
                    features=[{"name": "f", "minSupportedVersion": 0, "maxSupportedVersion": 1}],
                    rack=rng.choice((None, "r")), fenced=rng.random() < 0.5,
                    logDirs=[uuid_of(each) for each in range(rng.randrange(2))],
                )  # fmt: skip
            case 2:
                return change("UnregisterBrokerRecord", brokerId=broker, brokerEpoch=epoch)
            case 3:
                return change(rng.choice(("FenceBrokerRecord", "UnfenceBrokerRecord")), id=broker, epoch=epoch)
            case 4:
                return change(
                    "RegisterControllerRecord", controllerId=broker, incarnationId=uuid_of(9),
                    endPoints=[{"name": "CONTROLLER", "host": "h", "port": 1, "securityProtocol": 0}],
                )  # fmt: skip
        fields = {"logDirs": [uuid_of(3)]} if rng.random() < 0.5 else {}
        return change(
            "BrokerRegistrationChangeRecord", brokerId=broker, brokerEpoch=epoch, fenced=rng.choice((-1, 0, 1)),
            inControlledShutdown=rng.randrange(2), **fields,
        )  # fmt: skip

    def _topic(self) -> Change:
        rng = self._rng
        if rng.random() < 0.3:
            return change("RemoveTopicRecord", topicId=uuid_of(rng.randrange(3)))
        if rng.random() < 0.2:
            return change("ClearElrRecord", topicName=rng.choice(("", "t0", "t1", "t2")))
        number = rng.randrange(3)
        return change("TopicRecord", name=f"t{number}", topicId=uuid_of(number))

    def _partition(self) -> Change:
        rng = self._rng
        topic, number = uuid_of(rng.randrange(3)), rng.randrange(2)
        replicas = rng.sample(range(4), rng.randrange(1, 4))
        directories = [uuid_of(20 + each) for each in replicas] if rng.random() < 0.7 else []
        if rng.random() < 0.4:
            return change(
                "PartitionRecord", partitionId=number, topicId=topic, replicas=replicas, isr=replicas[:1],
                leader=replicas[0], leaderEpoch=rng.randrange(3), partitionEpoch=rng.randrange(3),
                directories=directories, eligibleLeaderReplicas=replicas[1:],
            )  # fmt: skip
        fields: dict[str, Any] = {"isr": replicas} if rng.random() < 0.5 else {}
        if rng.random() < 0.4:
            fields |= {"replicas": replicas, "directories": directories, "addingReplicas": replicas[:1]}
        if rng.random() < 0.5:
            fields |= {"leader": rng.choice((-1, replicas[0]))}
        if rng.random() < 0.3:
            fields |= {"eligibleLeaderReplicas": [], "lastKnownElr": replicas[:1], "leaderRecoveryState": 1}
        return change("PartitionChangeRecord", partitionId=number, topicId=topic, **fields)

    def _setting(self) -> Change:
        rng = self._rng
        kind, name = rng.choice(((2, "t0"), (2, "t1"), (4, ""), (4, "1"), (32, "g"), (16, "m")))
        key = rng.choice(("retention.ms", "ssl.key.password", "interval.ms"))
        value = rng.choice((None, "1", "secret-value"))
        return change("ConfigRecord", resourceType=kind, resourceName=name, name=key, value=value)

    def _user(self) -> Change:
        rng = self._rng
        name, self._made = f"u{rng.randrange(3)}", self._made + 1
        match rng.randrange(7):
            case 0 | 1:
                return change(
                    "AccessControlEntryRecord", id=uuid_of(rng.randrange(4)), resourceType=2, resourceName="t0",
                    patternType=3, principal=f"User:{name}", host="*", operation=rng.randrange(2, 6), permissionType=3,
                )  # fmt: skip
            case 2:
                return change("RemoveAccessControlEntryRecord", id=uuid_of(rng.randrange(4)))
            case 3:
                return change(
                    "UserScramCredentialRecord", name=name, mechanism=rng.randrange(1, 3), salt=b"scram-secret",
                    storedKey=b"scram-secret", serverKey=b"scram-secret", iterations=4096,
                )  # fmt: skip
            case 4:
                return change("RemoveUserScramCredentialRecord", name=name, mechanism=rng.randrange(1, 3))
            case 5:
                return change(
                    "DelegationTokenRecord", owner=f"User:{name}", requester="User:a", renewers=["User:b"],
                    issueTimestamp=5, maxTimestamp=7, expirationTimestamp=self._made, tokenId=f"token-{name}",
                )  # fmt: skip
        return change("RemoveDelegationTokenRecord", tokenId=f"token-{name}")

    def _quota(self) -> Change:
        rng = self._rng
        if rng.random() < 0.2:
            return change("ProducerIdsRecord", brokerId=1, brokerEpoch=1, nextProducerId=rng.randrange(5) * 1000)
        if rng.random() < 0.3:
            return change("FeatureLevelRecord", name=rng.choice(("f", "g")), featureLevel=rng.randrange(3))
        entity = [{"entityType": "user", "entityName": rng.choice((None, "a", "d"))}]
        if rng.random() < 0.3:
            entity.append({"entityType": "client-id", "entityName": rng.choice((None, "c"))})
        key, removes = rng.choice(("producer_byte_rate", "consumer_byte_rate")), rng.random() < 0.4
        return change("ClientQuotaRecord", entity=entity, key=key, value=rng.choice((1.0, 2.5)), remove=removes)


def _clashes(item: Change, own: Sequence[Change]) -> bool:
    """Whether Kafka's delta may make something else of a record than of one by itself: see MetadataImage."""
    if item.name == "RemoveUserScramCredentialRecord":
        return any("ScramCredential" in each.name for each in own)
    if item.name == "UserScramCredentialRecord":
        return any(each.name == "RemoveUserScramCredentialRecord" for each in own)
    if item.name not in ("TopicRecord", "RemoveTopicRecord"):
        return False
    return any(each.name in ("TopicRecord", "RemoveTopicRecord", "ConfigRecord") for each in own)


def _fits(changes: Sequence[Change]) -> bool:
    """Whether the last record fits what the others made, and adds no topic that is there."""
    image = image_of(changes[:-1])
    item = changes[-1]
    if item.name == "TopicRecord" and item.fields["topicId"] in image.topics.by_id:
        return False
    try:
        image.replay(message_of(item))
    except ReplayError:
        return False
    return True


def message_of(item: Change) -> DecodedMessage:
    """The record as a decoder gives it."""
    decoder = decoder_of("__cluster_metadata")
    assert decoder is not None
    found = decoder.decode(None, value_of(item)).value
    assert found is not None
    return found


def image_of(changes: Sequence[Change]) -> MetadataImage:
    """The image after these records."""
    image = MetadataImage()
    for item in changes:
        image.replay(message_of(item))
    return image
