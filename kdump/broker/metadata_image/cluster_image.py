"""The brokers and controllers that are registered (org.apache.kafka.image.ClusterImage, ClusterDelta)."""

from collections.abc import Sequence
from typing import Final

from kdump.broker.metadata_image.record_fields import RecordFields, ReplayError
from kdump.named_tuple import NamedTuple

SECURITY_PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
"""SecurityProtocol."""
_FENCING: Final = {1: True, 0: None, -1: False}
"""BrokerRegistrationFencingChange."""
_SHUTDOWN: Final = {0: None, 1: True}
"""BrokerRegistrationInControlledShutdownChange: only a new registration leaves the state."""


class ListenerEndpoint(NamedTuple):
    """A listener of a broker or controller. `security_protocol` is its number as text where it has no name."""

    name: str
    host: str
    port: int
    security_protocol: str


class SupportedFeature(NamedTuple):
    """The levels of a feature that a broker or controller supports, both included."""

    name: str
    min_version: int
    max_version: int


class BrokerRegistration(NamedTuple):
    """A broker (BrokerRegistration). Its epoch is the offset of the record that registered it."""

    id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[ListenerEndpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[str, ...]
    cordoned_directories: tuple[str, ...]


class ControllerRegistration(NamedTuple):
    """A controller (ControllerRegistration)."""

    id: int
    incarnation_id: str
    zk_migration_ready: bool
    endpoints: tuple[ListenerEndpoint, ...]
    features: tuple[SupportedFeature, ...]


class ClusterImage:
    """The registrations by node id."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.controllers: dict[int, ControllerRegistration] = {}

    def register_broker(self, record: RecordFields) -> None:
        """RegisterBrokerRecord: takes the place of what was there (BrokerRegistration.fromRecord)."""
        broker = BrokerRegistration(
            record.integer("brokerId"),
            record.integer("brokerEpoch"),
            record.text("incarnationId"),
            _endpoints(record.structs("endPoints")),
            _features(record.structs("features")),
            record.optional_text("rack"),
            record.flag("fenced", default=True),
            record.flag("inControlledShutdown"),
            record.flag("isMigratingZkBroker"),
            record.texts("logDirs"),
            record.texts("cordonedLogDirs"),
        )
        self.brokers[broker.id] = broker

    def unregister_broker(self, record: RecordFields) -> None:
        """UnregisterBrokerRecord: a broker that is not there is no fault."""
        self.brokers.pop(record.integer("brokerId"), None)

    def register_controller(self, record: RecordFields) -> None:
        """RegisterControllerRecord: takes the place of what was there."""
        controller = ControllerRegistration(
            record.integer("controllerId"),
            record.text("incarnationId"),
            record.flag("zkMigrationReady"),
            _endpoints(record.structs("endPoints")),
            _features(record.structs("features")),
        )
        self.controllers[controller.id] = controller

    def fence_broker(self, record: RecordFields) -> None:
        """FenceBrokerRecord."""
        broker = self._broker(record.integer("id"), record.integer("epoch"))
        self.brokers[broker.id] = broker._replace(fenced=True)

    def unfence_broker(self, record: RecordFields) -> None:
        """UnfenceBrokerRecord."""
        broker = self._broker(record.integer("id"), record.integer("epoch"))
        self.brokers[broker.id] = broker._replace(fenced=False)

    def change_broker(self, record: RecordFields) -> None:
        """BrokerRegistrationChangeRecord: no directories, and null for those that are cordoned, change nothing."""
        broker = self._broker(record.integer("brokerId"), record.integer("brokerEpoch"))
        fencing, shutdown = record.integer("fenced", 0), record.integer("inControlledShutdown", 0)
        if fencing not in _FENCING or shutdown not in _SHUTDOWN:
            raise ReplayError(f"fenced is {fencing} and inControlledShutdown is {shutdown}, which Kafka does not know")
        fenced, shuts_down = _FENCING[fencing], _SHUTDOWN[shutdown]
        self.brokers[broker.id] = broker._replace(
            fenced=broker.fenced if fenced is None else fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown if shuts_down is None else shuts_down,
            directories=record.texts("logDirs") or broker.directories,
            cordoned_directories=(
                record.texts("cordonedLogDirs") if record.has("cordonedLogDirs") else broker.cordoned_directories
            ),
        )

    def _broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """ClusterDelta.getBrokerOrThrow."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise ReplayError(f"broker {broker_id} has epoch {broker.epoch}, and the record is about epoch {epoch}")
        return broker


def _endpoints(structs: Sequence[RecordFields]) -> tuple[ListenerEndpoint, ...]:
    """The listeners by name; of two with one name the last counts."""
    found = {}
    for each in structs:
        protocol = each.integer("securityProtocol")
        name = each.text("name")
        text = SECURITY_PROTOCOLS.get(protocol, str(protocol))
        found[name] = ListenerEndpoint(name, each.text("host"), each.integer("port"), text)
    return tuple(found[name] for name in sorted(found))


def _features(structs: Sequence[RecordFields]) -> tuple[SupportedFeature, ...]:
    found = {}
    for each in structs:
        name = each.text("name")
        found[name] = SupportedFeature(name, each.integer("minSupportedVersion"), each.integer("maxSupportedVersion"))
    return tuple(found[name] for name in sorted(found))
