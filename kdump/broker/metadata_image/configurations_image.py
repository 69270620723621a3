"""The configurations of topics, brokers, groups and client metrics (org.apache.kafka.image.ConfigurationsImage)."""

from typing import Final, NamedTuple

from kdump.broker.metadata_image.record_fields import RecordFields

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
