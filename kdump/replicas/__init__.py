"""Several copies of one topic-partition: whether they mean the same, and the one log that they make."""

from kdump.exports import exports

_MODULES = {
    "kdump.replicas.compare": "ComparisonSummary CopyExtent MergedRange PartitionComparison",
    "kdump.replicas.comparison": "DifferingKey KeyDifferences OffsetTally ReplicaComparison ReplicaDifferences Verdict",
    "kdump.replicas.evidence": "Evidence RepairStep",
    "kdump.replicas.fingerprint.copy_sketch": "FingerprintOptions HashKey",
    "kdump.replicas.fingerprint.fingerprint_file": (
        "CopyFingerprint FingerprintFile FingerprintedCopy fingerprint_logs read_fingerprint read_hash_key"
    ),
    "kdump.replicas.fingerprint.fingerprint_format": "FingerprintHead IndexEntry",
    "kdump.replicas.merge": "MissingRecords ReplicaUse ReplicasRefused",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
