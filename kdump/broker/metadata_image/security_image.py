"""ACLs, SCRAM credentials and delegation tokens (AclsImage, ScramImage, DelegationTokenImage)."""

from typing import Final

from kdump.broker.metadata_image.record_fields import RecordFields, ReplayError
from kdump.named_tuple import NamedTuple

_UNKNOWN: Final = "UNKNOWN"
ACL_RESOURCES: Final = (
    *(_UNKNOWN, "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"),
)
"""org.apache.kafka.common.resource.ResourceType."""
PATTERN_TYPES: Final = (_UNKNOWN, "ANY", "MATCH", "LITERAL", "PREFIXED")
ACL_OPERATIONS: Final = (
    *(_UNKNOWN, "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"),
    "TWO_PHASE_COMMIT",
)
PERMISSION_TYPES: Final = (_UNKNOWN, "ANY", "DENY", "ALLOW")
SCRAM_MECHANISMS: Final = (_UNKNOWN, "SCRAM-SHA-256", "SCRAM-SHA-512")


class StandardAcl(NamedTuple):
    """An ACL (org.apache.kafka.metadata.authorizer.StandardAcl), with Kafka's names for the numbers."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission_type: str


class AclsImage:
    """The ACLs by their id."""

    def __init__(self) -> None:
        self.acls: dict[str, StandardAcl] = {}

    def add(self, record: RecordFields) -> None:
        """AccessControlEntryRecord: takes the place of what was there (AclsDelta)."""
        self.acls[record.text("id")] = StandardAcl(
            _named(ACL_RESOURCES, record.integer("resourceType")),
            record.text("resourceName"),
            _named(PATTERN_TYPES, record.integer("patternType")),
            record.text("principal"),
            record.text("host"),
            _named(ACL_OPERATIONS, record.integer("operation")),
            _named(PERMISSION_TYPES, record.integer("permissionType")),
        )

    def remove(self, record: RecordFields) -> None:
        """RemoveAccessControlEntryRecord: one that is not there is a fault (AclsDelta)."""
        acl_id = record.text("id")
        if self.acls.pop(acl_id, None) is None:
            raise ReplayError(f"there is no ACL with the id {acl_id}")


class ScramCredential(NamedTuple):
    """A user's credential (org.apache.kafka.metadata.ScramCredentialData). All but the iterations is secret."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramImage:
    """The credentials by mechanism and user."""

    def __init__(self) -> None:
        self.credentials: dict[tuple[str, str], ScramCredential] = {}

    def add(self, record: RecordFields) -> None:
        """UserScramCredentialRecord (ScramDelta)."""
        self.credentials[_mechanism(record), record.text("name")] = ScramCredential(
            record.binary("salt"), record.binary("storedKey"), record.binary("serverKey"), record.integer("iterations")
        )

    def remove(self, record: RecordFields) -> None:
        """RemoveUserScramCredentialRecord: one that is not there is no fault."""
        self.credentials.pop((_mechanism(record), record.text("name")), None)


class DelegationToken(NamedTuple):
    """A delegation token (org.apache.kafka.metadata.DelegationTokenData). Its HMAC is not stored: the brokers make it
    from the id and delegation.token.secret.key. Times are in milliseconds since the epoch.
    """

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int


class DelegationTokenImage:
    """The tokens by id."""

    def __init__(self) -> None:
        self.tokens: dict[str, DelegationToken] = {}

    def add(self, record: RecordFields) -> None:
        """DelegationTokenRecord: a new token, or what became of one (DelegationTokenDelta)."""
        self.tokens[record.text("tokenId")] = DelegationToken(
            record.text("owner"),
            record.text("requester"),
            record.texts("renewers"),
            record.integer("issueTimestamp"),
            record.integer("maxTimestamp"),
            record.integer("expirationTimestamp"),
        )

    def remove(self, record: RecordFields) -> None:
        """RemoveDelegationTokenRecord: one that is not there is no fault."""
        self.tokens.pop(record.text("tokenId"), None)


def _named(names: tuple[str, ...], number: int) -> str:
    """Kafka's name of a number; UNKNOWN without one, as in Kafka."""
    return names[number] if 0 <= number < len(names) else _UNKNOWN


def _mechanism(record: RecordFields) -> str:
    return _named(SCRAM_MECHANISMS, record.integer("mechanism"))
