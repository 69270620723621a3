"""An image as a list of named values: what a tree or JSON shows of it, and what two images differ in.

Which configurations are sensitive is KafkaConfig.loggableValue, KafkaConfig.maybeSensitive and
DynamicBrokerConfig.brokerConfigSynonyms of Kafka 4.3.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.broker.metadata_image.cluster_image import BrokerRegistration, ControllerRegistration
from kdump.broker.metadata_image.cluster_settings_image import KRAFT_VERSION, METADATA_VERSION
from kdump.broker.metadata_image.config_names import BROKER, GROUP, METADATA_VERSIONS, TOPIC
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue

_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
_MECHANISM_NAMES: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""What a listener has for each SASL mechanism (DynamicBrokerConfig.ListenerMechanismConfigs)."""


_NOT_OF_LISTENERS: Final = frozenset(
    (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""What only DynamicConfig.Broker has: not looked up without the prefix of a listener."""
REDACTED: Final = "redacted"
_SCRAM_SECRETS: Final = frozenset(("salt", "stored_key", "server_key"))

EntryKey: TypeAlias = tuple[int | str, ...]


class ImageEntry(NamedTuple):
    """One thing of an image. `kind` and `key` say which; `secrets` are the fields that are shown only on demand."""

    kind: str
    key: EntryKey
    fields: "Mapping[str, FieldValue]"
    secrets: frozenset[str] = frozenset()

    def shown(self, *, secrets: bool) -> "Fields":
        """The fields, without secrets unless they are asked for. Null stays null."""
        if secrets or not self.secrets:
            return self.fields
        return {
            name: REDACTED if name in self.secrets and value is not None else value
            for name, value in self.fields.items()
        }


class EntryChange(NamedTuple):
    """How an entry differs between two images: `before` is None for a new one, `after` for one that is gone."""

    before: ImageEntry | None
    after: ImageEntry | None

    @property
    def entry(self) -> ImageEntry:
        """The entry after the change, or before it where it is gone."""
        found = self.before if self.after is None else self.after
        assert found is not None
        return found

    @property
    def changed(self) -> tuple[str, ...]:
        """The names of the fields that differ; none for an entry that is new or gone."""
        if self.before is None or self.after is None:
            return ()
        before = self.before.fields
        return tuple(name for name, value in self.after.fields.items() if before.get(name) != value)


def entries_of(image: MetadataImage) -> Iterator[ImageEntry]:
    """The entries of an image, in the order in which they are shown."""
    yield from _features(image)
    yield from _voters(image)
    yield from _nodes(image)
    yield from _topics(image)
    for resource in sorted(image.configurations.by_resource):
        for name, value in sorted(image.configurations.by_resource[resource].items()):
            sensitive = is_sensitive(resource.type, name)
            fields: dict[str, FieldValue] = {"resource_type": resource.type, "resource_name": resource.name}
            fields |= {"name": name, "value": value, "sensitive": sensitive}
            secrets = frozenset(("value",) if sensitive else ())
            yield ImageEntry("configuration", (resource.type, resource.name, name), fields, secrets)
    quotas = image.client_quotas.by_entity
    for entity in sorted(quotas, key=lambda entity: [(kind, name or "", name is not None) for kind, name in entity]):
        for name, limit in sorted(quotas[entity].items()):
            key = (*(word for kind, it in entity for word in (kind, "d" if it is None else f"n{it}")), name)
            yield ImageEntry("client_quota", key, {"entity": dict(entity), "name": name, "value": limit})
    yield from _security(image)
    yield ImageEntry("producer_ids", (), {"next_producer_id": image.producer_ids.next_producer_id})


def differences(before: list[ImageEntry], after: list[ImageEntry]) -> Iterator[EntryChange]:
    """What differs between two images: what is new or changed in the order of the second, then what is gone."""
    old = {(entry.kind, entry.key): entry for entry in before}
    for entry in after:
        found = old.pop((entry.kind, entry.key), None)
        if found is None or found.fields != entry.fields:
            yield EntryChange(found, entry)
    for entry in old.values():
        yield EntryChange(entry, None)


def _features(image: MetadataImage) -> Iterator[ImageEntry]:
    features = image.features
    levels: dict[str, int] = {**features.finalized, KRAFT_VERSION: image.voters.kraft_version}
    if features.metadata_version is not None:
        levels[METADATA_VERSION] = features.metadata_version
    for name, level in sorted(levels.items()):
        release = METADATA_VERSIONS.get(level) if name == METADATA_VERSION else None
        yield ImageEntry("feature", (name,), {"name": name, "level": level, "release": release})


def _voters(image: MetadataImage) -> Iterator[ImageEntry]:
    for voter in image.voters.voters or ():
        yield ImageEntry(
            "voter",
            (voter.voter_id, voter.voter_directory_id),
            {
                "voter_id": voter.voter_id,
                "directory_id": voter.voter_directory_id,
                "endpoints": [endpoint._asdict() for endpoint in voter.endpoints],
                "kraft_version": voter.kraft_version_feature._asdict(),
            },
        )


def _nodes(image: MetadataImage) -> Iterator[ImageEntry]:
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        yield ImageEntry("broker", (broker_id,), _node_fields("broker_id", broker))
    for controller_id, controller in sorted(image.cluster.controllers.items()):
        yield ImageEntry("controller", (controller_id,), _node_fields("controller_id", controller))


def _node_fields(name: str, node: BrokerRegistration | ControllerRegistration) -> "Mapping[str, FieldValue]":
    fields: dict[str, FieldValue] = {name: node.id, **node._asdict()}
    del fields["id"]
    fields["endpoints"] = [endpoint._asdict() for endpoint in node.endpoints]
    fields["features"] = [feature._asdict() for feature in node.features]
    return fields


def _topics(image: MetadataImage) -> Iterator[ImageEntry]:
    for topic in sorted(image.topics.by_id.values(), key=lambda topic: (topic.name, topic.id)):
        named: dict[str, FieldValue] = {"topic": topic.name, "topic_id": topic.id}
        yield ImageEntry("topic", (topic.id,), {**named, "partitions": len(topic.partitions)})
        for number, partition in sorted(topic.partitions.items()):
            yield ImageEntry("partition", (topic.id, number), {**named, "partition": number, **partition._asdict()})


def _security(image: MetadataImage) -> Iterator[ImageEntry]:
    for acl_id, acl in sorted(image.acls.acls.items(), key=lambda item: (item[1], item[0])):
        yield ImageEntry("acl", (acl_id,), {"acl_id": acl_id, **acl._asdict()})
    for (mechanism, user), credential in sorted(image.scram.credentials.items(), key=lambda item: item[0][::-1]):
        fields: dict[str, FieldValue] = {"user": user, "mechanism": mechanism, **credential._asdict()}
        yield ImageEntry("scram_credential", (user, mechanism), fields, _SCRAM_SECRETS)
    tokens = image.delegation_tokens.tokens.items()
    for token_id, token in sorted(tokens, key=lambda item: (item[1].owner, item[1].issue_timestamp, item[0])):
        yield ImageEntry(
            "delegation_token", (token_id,), {"token_id": token_id, **token._asdict()}, frozenset(("token_id",))
        )


def is_sensitive(resource_type: str, name: str) -> bool:
    """Whether the value of a configuration is not to be shown: a password, or of a name that Kafka does not know.

    Types are those of ConfigurationsImage.
    """
    match resource_type:
        case "broker":
            return not _is_known_of_broker(name)
        case "topic":
            return name not in TOPIC
        case "group":
            return name not in GROUP
    return resource_type not in ("broker-logger", "client-metrics")


def _is_known_of_broker(name: str) -> bool:
    if name in BROKER:
        return True
    match = _LISTENER.fullmatch(name)
    if match is None:
        return False
    base = next((known for known in _MECHANISM_NAMES if match[1].endswith(known)), match[1])
    return base in BROKER and base not in _NOT_OF_LISTENERS
