"""Features, client quotas, producer ids and voters (FeaturesImage, ClientQuotasImage, ProducerIdsImage, VoterSet)."""

from typing import Final, TypeAlias

from kdump.broker.metadata_image.record_fields import RecordFields
from kdump.format.control import KRaftVersion, KRaftVoter, KRaftVoters

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

ClientQuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs (user, client-id or ip; name, None for the default) in the order of the type."""


class FeaturesImage:
    """The finalized level of each feature (org.apache.kafka.image.FeaturesImage, FeaturesDelta).

    `metadata_version` is None before the first record of it. That of kraft.version is no metadata record: see
    VotersImage.
    """

    def __init__(self) -> None:
        self.metadata_version: int | None = None
        self.finalized: dict[str, int] = {}

    def change(self, record: RecordFields) -> None:
        """FeatureLevelRecord: level 0 removes a feature."""
        name, level = record.text("name"), record.integer("featureLevel")
        if name == METADATA_VERSION:
            self.metadata_version = level
        elif name == KRAFT_VERSION:
            pass  # the control record KRAFT_VERSION counts
        elif level:
            self.finalized[name] = level
        else:
            self.finalized.pop(name, None)


class ClientQuotasImage:
    """The quotas by entity and name. An entity without quotas is not there."""

    def __init__(self) -> None:
        self.by_entity: dict[ClientQuotaEntity, dict[str, float]] = {}

    def change(self, record: RecordFields) -> None:
        """ClientQuotaRecord (ClientQuotasDelta, ClientQuotaDelta)."""
        parts = {part.text("entityType"): part.optional_text("entityName") for part in record.structs("entity")}
        entity = tuple(sorted(parts.items(), key=lambda part: part[0]))
        quotas = self.by_entity.get(entity, {})
        if record.flag("remove"):
            quotas.pop(record.text("key"), None)
        else:
            quotas[record.text("key")] = record.number("value")
        if quotas:
            self.by_entity[entity] = quotas
        else:
            self.by_entity.pop(entity, None)


class ProducerIdsImage:
    """The next producer id that a controller gives to a broker, -1 before the first block (ProducerIdsImage)."""

    def __init__(self) -> None:
        self.next_producer_id = -1

    def change(self, record: RecordFields) -> None:
        """ProducerIdsRecord."""
        self.next_producer_id = record.integer("nextProducerId")


class VotersImage:
    """The voters and kraft.version, which control records say (KRaftControlRecordStateMachine).

    They hold as soon as they are in the log, before they are committed (KIP-853). `voters` is None where the log has
    no voters: those of a static quorum are in the configuration controller.quorum.voters.
    """

    def __init__(self) -> None:
        self.kraft_version = 0
        self.voters: tuple[KRaftVoter, ...] | None = None

    def change(self, value: object) -> None:
        """A control record: KRAFT_VERSION or KRAFT_VOTERS. Others change nothing."""
        if isinstance(value, KRaftVersion):
            self.kraft_version = value.kraft_version
        elif isinstance(value, KRaftVoters):
            self.voters = tuple(sorted(value.voters, key=lambda voter: voter.voter_id))
