"""What the manual page of `kdump dump` says of metadata images."""

from collections.abc import Mapping

_OFFSETS = "of the log; null where a snapshot was read alone"
_UNCOMMITTED = (
    "true where a record at or above the known high watermark made or changed it; null where no high watermark is known"
)
_SECRET = "redacted without --secrets"
_ENDPOINTS = "an array of objects: name, host, port, security_protocol"
_FEATURES = "an array of objects: name, min_version, max_version, the levels that it supports"

IMAGE = {
    "offset": "of the last record that counts; -1 for none",
    "epoch": "the leader epoch of that record",
    "timestamp": "of that record, in milliseconds",
    "leader_id": "the last controller that the log after the snapshot names as leader; null for none",
    "snapshot": "the name of the snapshot that was read; null for none",
    "snapshot_end_offset": "the image begins with what the records below it made",
    "records": "that were read of the log after that",
    "log_start_offset": _OFFSETS,
    "log_end_offset": "of the log; null where it was not read to its end",
    "high_watermark": "the highest that the files prove; null where they prove none, or its number is not known",
    "high_watermark_source": (
        "snapshot: a snapshot ends there, and has committed records only; only-voter: the log is that of the only "
        "voter, and all of it is committed; null where nothing proves one"
    ),
    "uncommitted_records": "records in the image at or above the high watermark; null where none is known",
    "open_transaction": "offset, name and records of a metadata transaction that has not ended; null for none",
    "committed_transactions": "metadata transactions that ended in what was read of the log",
    "aborted_transactions": "those that were aborted there",
    "records_without_effect": "records that do not fit the image or cannot be decoded; standard error names them",
    "complete": "false where damage or missing offsets ended the image before the offset that was asked for",
}
CHANGE = {
    "kind": "the type of the line that differs",
    "change": "added, removed or changed",
    "fields": "the names of the fields that differ; empty unless it was changed",
    "before": "an object with the fields before; null where it was added",
    "after": "an object with the fields after; null where it was removed",
}
_PARTITION = {
    "topic": "the name of its topic",
    "topic_id": "the id of its topic",
    "partition": "its number",
    "replicas": "broker ids, the preferred leader first",
    "isr": "the replicas in sync",
    "leader": "broker id; -1 without one",
    "leader_epoch": "of the leader",
    "partition_epoch": "grows with each change",
    "leader_recovery_state": "RECOVERED, or RECOVERING after an unclean election",
    "eligible_leader_replicas": "replicas that have every committed record (KIP-966)",
    "last_known_elr": "those that were, before they went down",
    "adding_replicas": "of a reassignment that goes on",
    "removing_replicas": "likewise",
    "directories": "the id of the log directory of each replica; AAAAAAAAAAAAAAAAAAAAAA where it is not known",
}
_NODES: dict[str, tuple[str, Mapping[str, str]]] = {
    "broker": (
        "A registered broker.",
        {
            "broker_id": "its node id",
            "epoch": "of the registration",
            "incarnation_id": "of the process that registered",
            "endpoints": _ENDPOINTS,
            "features": _FEATURES,
            "rack": "broker.rack; null for none",
            "fenced": "whether clients are not told of it",
            "in_controlled_shutdown": "whether it is about to stop",
            "is_migrating_zk_broker": "whether it was a broker of a ZooKeeper cluster",
            "directories": "the ids of its log directories",
            "cordoned_directories": "those that get no new replicas",
        },
    ),
    "controller": (
        "A registered controller.",
        {
            "controller_id": "its node id",
            "incarnation_id": "of the process that registered",
            "zk_migration_ready": "as it registered",
            "endpoints": _ENDPOINTS,
            "features": _FEATURES,
        },
    ),
}
_ENTRIES: dict[str, tuple[str, Mapping[str, str]]] = {
    "feature": (
        "The finalized level of a feature.",
        {"name": "of the feature", "level": "its number", "release": "of metadata.version: as 4.3-IV0; else null"},
    ),
    "voter": (
        "A voter of the controllers, as KRAFT_VOTERS says. A static quorum has none.",
        {
            "voter_id": "its node id",
            "directory_id": "the id of its metadata log directory",
            "endpoints": "an array of objects: name, host, port",
            "kraft_version": "an object: min_supported_version, max_supported_version",
        },
    ),
    **_NODES,
    "topic": ("A topic.", {"topic": "its name", "topic_id": "its id", "partitions": "how many it has"}),
    "partition": ("A partition, after its topic.", _PARTITION),
    "configuration": (
        "A value of a configuration.",
        {
            "resource_type": "topic, broker, broker-logger, client-metrics or group",
            "resource_name": "of the topic, group ...; of a broker its id, empty for all brokers",
            "name": "of the configuration",
            "value": "as it is stored; redacted where it is sensitive, without --secrets",
            "sensitive": "whether Kafka takes it for a secret: a password, or a name that it does not know",
        },
    ),
    "client_quota": (
        "A quota.",
        {
            "entity": "an object with user, client-id or ip; null is the default of all of them",
            "name": "of the quota",
            "value": "its limit",
        },
    ),
    "acl": (
        "An ACL.",
        {
            "acl_id": "its id",
            "resource_type": "TOPIC, GROUP, CLUSTER ...",
            "resource_name": "or *",
            "pattern_type": "LITERAL or PREFIXED",
            "principal": "as User:alice",
            "host": "or *",
            "operation": "READ, WRITE ...",
            "permission_type": "ALLOW or DENY",
        },
    ),
    "scram_credential": (
        "A SCRAM credential of a user.",
        {
            "user": "its name",
            "mechanism": "SCRAM-SHA-256 or SCRAM-SHA-512",
            "salt": _SECRET,
            "stored_key": _SECRET,
            "server_key": _SECRET,
            "iterations": "of the hash",
        },
    ),
    "delegation_token": (
        "A delegation token. Its HMAC is in no file.",
        {
            "token_id": _SECRET,
            "owner": "principal",
            "requester": "principal",
            "renewers": "principals",
            "issue_timestamp": "in milliseconds",
            "max_timestamp": "likewise",
            "expiration_timestamp": "likewise",
        },
    ),
    "producer_ids": (
        "The last line of an image.",
        {"next_producer_id": "the next block begins there; -1 for none yet"},
    ),
}
LINES: dict[str, tuple[str, Mapping[str, str]]] = {
    "image": ("With --metadata-image: where an image comes from, before its lines.", IMAGE),
    **{kind: (what, {**fields, "uncommitted": _UNCOMMITTED}) for kind, (what, fields) in _ENTRIES.items()},
    "change": ("With --diff, after the two images: one thing that differs.", CHANGE),
}
ABOUT = (
    (
        "With --metadata-image, PATH is the directory __cluster_metadata-0, the log directory above it, or one "
        "snapshot. The newest whole snapshot at or below the offset is read, and the log after it. "
        "Records of a metadata transaction count when it ends; those of one that was aborted or has not ended do not. "
        "Damage in the log ends the image before it, unless a later snapshot has what it hides. "
        "What no snapshot proves to be committed is marked, unless the log is that of the only voter. "
        "Values that Kafka takes for secrets are shown as redacted: passwords, configurations that it does not know, "
        "SCRAM credentials and the ids of delegation tokens. --secrets shows them. "
        "Without --metadata-image, records are shown as they are stored, secrets included."
    ),
    "--diff A:B shows what the records after A up to B changed in the image.",
)
EXAMPLES = [
    ("The metadata of a cluster that is down:", "kdump dump --metadata-image /data/kafka"),
    ("What the last records changed, from offset 5000 on:", "kdump dump --metadata-image --diff 4999: /data/kafka"),
    (
        "The partitions without a leader:",
        "kdump dump --metadata-image --format json /data/kafka | jq -c 'select(.leader == -1)'",
    ),
]
