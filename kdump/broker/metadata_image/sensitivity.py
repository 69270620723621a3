"""Which configurations Kafka takes for sensitive: passwords, and every name that it does not know.

Source: KafkaConfig.loggableValue, KafkaConfig.maybeSensitive and DynamicBrokerConfig.brokerConfigSynonyms of Kafka 4.3.
"""

import re
from typing import Final

from kdump.broker.metadata_image.config_names import BROKER, GROUP, TOPIC

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


def is_sensitive(resource_type: str, name: str) -> bool:
    """Whether the value of a configuration is not to be shown. Types are those of ConfigurationsImage."""
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
