"""What Kafka 4.3 does with a topic-partition directory when it starts, in Kafka's class names."""

from kdump.exports import exports

_MODULES = {
    "kdump.broker.cleaner.cleaner": "CompactionPass",
    "kdump.broker.cleaner.cleaner_stoppers": "CleanerStopper StopperKind",
    "kdump.broker.cleaner.delete_horizons": "DeleteHorizons",
    "kdump.broker.cleaner.dirty_keys": "CompactionSavings DirtyKeys MeasuredKeys MeasuredSample",
    "kdump.broker.cleaner.log_cleaner_manager": (
        "CleanableRange CompactionBlocker CompactionTrigger FirstDirtySource PartitionCompaction UncleanableSource "
        "report_compaction"
    ),
    "kdump.broker.cleaner.log_config": "CleanerSettings TopicSettings topic_settings",
    "kdump.broker.cleaner.measured_log": (
        "MeasuredBatches MeasuredDamage MeasuredKeySummary MeasuredPartition MeasuredSegment "
        "MeasuredStretch MeasuredTransactions MeasuredVolume"
    ),
    "kdump.broker.cleaner.retention": (
        "DeletionReason NextDeletion PartitionRetention RetainedSegment RetentionBlocker report_retention"
    ),
    "kdump.broker.cleaner.segment_age": "AgeSource LogBounds SegmentAge",
    "kdump.broker.coordinator_loader": "CoordinatorLoadSummary GroupLogUse",
    "kdump.broker.group_coordinator_shard": "GroupCoordinatorShard",
    "kdump.broker.group_metadata_manager": (
        "ClassicGroup ConsumerGroup CoordinatorGroup CoordinatorGroupMember GroupMetadataManager ModernGroup "
        "ShareGroup StreamsGroup"
    ),
    "kdump.broker.history": "EpochRun",
    "kdump.broker.metadata_image.replica_history": "UncleanElection",
    "kdump.broker.offset_metadata_manager": "OffsetAndMetadata OffsetMetadataManager PendingOffset",
    "kdump.broker.predict": "directory_state",
    "kdump.broker.refusal_reason": "RefusalReason",
    "kdump.broker.result": "DirectoryState FileRange Refusal ResultSegment",
    "kdump.broker.share_coordinator_shard": (
        "PersisterStateBatch ShareCoordinatorShard ShareGroupOffset SharePartitionKey"
    ),
    "kdump.broker.valid_segment": "Disorder IndexChecksums ValidSegment",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
