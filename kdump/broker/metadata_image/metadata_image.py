"""All metadata of a cluster at one offset, and what each record changes (org.apache.kafka.image.MetadataImage)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kdump.broker.metadata_image.cluster_image import ClusterImage
from kdump.broker.metadata_image.cluster_settings_image import (
    ClientQuotasImage,
    FeaturesImage,
    ProducerIdsImage,
    VotersImage,
)
from kdump.broker.metadata_image.record_fields import RecordFields, ReplayError
from kdump.broker.metadata_image.security_image import AclsImage, DelegationTokenImage, ScramImage
from kdump.broker.metadata_image.topics_image import TopicsImage
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import DecodedMessage

RESOURCE_TYPES: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
"""ConfigResource.Type, with the names of kafka-configs."""
UNKNOWN_TYPE: Final = "unknown"


class ConfigResource(NamedTuple):
    """What is configured. The name of a broker is its id, "" for what holds for all brokers."""

    type: str
    name: str


class ConfigurationsImage:
    """The values by resource and name. A resource without values is not there."""

    def __init__(self) -> None:
        self.by_resource: dict[ConfigResource, dict[str, str]] = {}

    def change(self, record: RecordFields) -> None:
        """ConfigRecord: null removes a value (ConfigurationsDelta, ConfigurationDelta)."""
        type_name = RESOURCE_TYPES.get(record.integer("resourceType"), UNKNOWN_TYPE)
        resource = ConfigResource(type_name, record.text("resourceName"))
        name, value = record.text("name"), record.optional_text("value")
        if value is not None:
            self.by_resource.setdefault(resource, {})[name] = value
        elif resource in self.by_resource:
            self.by_resource[resource].pop(name, None)
            if not self.by_resource[resource]:
                del self.by_resource[resource]

    def remove_topic(self, name: str) -> None:
        """RemoveTopicRecord: the configuration goes with the topic (ConfigurationDelta.deleteAll)."""
        self.by_resource.pop(ConfigResource("topic", name), None)

    def of(self, type_name: str, name: str) -> dict[str, str]:
        """The values of a resource; empty without any."""
        return self.by_resource.get(ConfigResource(type_name, name), {})


_WITHOUT_EFFECT: Final = ("NoOpRecord", "ZkMigrationStateRecord")
"""MetadataDelta.replay of Kafka 4.3 skips both."""


class MetadataImage:
    """The images of the parts. A record takes effect at once: Kafka's deltas of one record each.

    Kafka collects the records of several batches in one delta. The image is the same but for two cases. Of a topic
    that is made, configured and deleted in one delta, ConfigurationsDelta keeps the configuration. Where the only
    credential of a mechanism is removed and another one is added in one delta, ScramDelta can lose the added one.
    """

    def __init__(self) -> None:
        self.cluster = ClusterImage()
        self.topics = TopicsImage()
        self.configurations = ConfigurationsImage()
        self.client_quotas = ClientQuotasImage()
        self.producer_ids = ProducerIdsImage()
        self.features = FeaturesImage()
        self.acls = AclsImage()
        self.scram = ScramImage()
        self.delegation_tokens = DelegationTokenImage()
        self.voters = VotersImage()
        self._replays: dict[str, Callable[[RecordFields], object]] = {
            "RegisterBrokerRecord": self.cluster.register_broker,
            "UnregisterBrokerRecord": self.cluster.unregister_broker,
            "RegisterControllerRecord": self.cluster.register_controller,
            "FenceBrokerRecord": self.cluster.fence_broker,
            "UnfenceBrokerRecord": self.cluster.unfence_broker,
            "BrokerRegistrationChangeRecord": self.cluster.change_broker,
            "TopicRecord": self.topics.add_topic,
            "PartitionRecord": self.topics.add_partition,
            "PartitionChangeRecord": self.topics.change_partition,
            "ClearElrRecord": self.topics.clear_elr,
            "RemoveTopicRecord": self._remove_topic,
            "ConfigRecord": self.configurations.change,
            "ClientQuotaRecord": self.client_quotas.change,
            "ProducerIdsRecord": self.producer_ids.change,
            "FeatureLevelRecord": self.features.change,
            "AccessControlEntryRecord": self.acls.add,
            "RemoveAccessControlEntryRecord": self.acls.remove,
            "UserScramCredentialRecord": self.scram.add,
            "RemoveUserScramCredentialRecord": self.scram.remove,
            "DelegationTokenRecord": self.delegation_tokens.add,
            "RemoveDelegationTokenRecord": self.delegation_tokens.remove,
        }

    def replay(self, message: "DecodedMessage") -> None:
        """Apply a record (MetadataDelta.replay). Raises ReplayError, and changes nothing then."""
        replay = self._replays.get(message.name)
        if replay is not None:
            replay(RecordFields(message.fields))
        elif message.name not in _WITHOUT_EFFECT:
            raise ReplayError("it has no place in an image")

    def _remove_topic(self, record: RecordFields) -> None:
        self.configurations.remove_topic(self.topics.remove_topic(record))
