"""kdump: read, verify, repair, measure and convert the log segments that Apache Kafka left on disk.

    found = kdump.discover(["/data/kafka"])                  log directories, partitions, what cannot be read
    for report in kdump.verify_logs(found): ...              the findings and counts of each partition
    files = kdump.log_files(["/data/kafka/topic-0"])         the log files alone
    for event in kdump.dump_logs(files, options, print): ... batches with their records, gaps, tails, in order
    for event in kdump.merge_logs(files, options, print): ...    the same by the timestamps of the records
    for event in kdump.follow_logs(paths, options, print, FollowOptions()): ...   the same as a broker writes them
    for plan in kdump.plan_recovery(found, options): ...     what a recovery would do, and what would be lost
    for result in kdump.recover_logs(found, options, how): ...   what was done; undo_recovery undoes it
    for each in kdump.stat_logs(found): ...                  the numbers of each partition and log directory
    kdump.arrow("/data/kafka/topic-0").read_pandas()         the records as columns of Arrow, batch by batch
    kdump.table_reader("/data/kafka", "transactions")        batches, segments, transactions, groups, findings …
    for each in kdump.convert_logs(found, "tables"): ...     Parquet files of all records; ConvertOptions has the others
    kdump.predict_start("/data/kafka/topic-0")               what the next start of a broker would leave
    with kdump.Log("/data/kafka/topic-0") as log: ...        read(1000), at_time(ms), records()
    with kdump.Log("topic-0", write=True) as log: ...        append([NewRecord(b"key")]), flush(), delete(policy)

Everything that a command does is here as values. A name is imported on first use, so importing kdump costs nothing.
"""

__version__ = "0.1.0"

# The module of each public name. kdump/__init__.pyi says the same to type checkers.
_MODULES = {
    "kdump.errors": "CodecMissing KdumpError MessageTooLarge NotALog NotShown OffsetOutOfRange SourceError",
    "kdump.engine.processes": "Processes",
    "kdump.engine.protocol": "Engine",
    "kdump.engine.serial": "Serial",
    "kdump.format.batch": "Batch",
    "kdump.format.index": "OffsetIndexEntry TimeIndexEntry",
    "kdump.format.internal_topics.decoded": "DecodedMessage DecodedRecord RecordDecoder",
    "kdump.format.internal_topics.decoders": "decoder_of",
    "kdump.format.naming": "Kind TopicPartition",
    "kdump.format.record": "Record",
    "kdump.format.value_schemas.schemas": "NamedSchema SchemaProblem SchemaSet ValueSchema",
    "kdump.format.value_schemas.value_decoder": (
        "DecodedValue DecodedValues FunctionDecoder FunctionDecoders SchemaDecoder ValueDecoder ValueDecoders"
    ),
    "kdump.storage.discovery": "discover log_files",
    "kdump.storage.misplaced": "MisplacedFile",
    "kdump.storage.partition": "LogDirectory LogFile Partition Segment",
    "kdump.storage.pieces": "Piece",
    "kdump.storage.read_policy": "ReadPolicy",
    "kdump.storage.records": "BatchPieces DecodedBatch",
    "kdump.kernel.scanner": "ByteReader",
    "kdump.storage.source": "FileSource InputFile Source",
    "kdump.storage.value_schemas.chosen_schemas": "SchemaDecoders",
    "kdump.storage.walk": "ForeignBatch Gap SearchLimit ShrunkFile Tail TailContent",
    "kdump.broker.coordinator_loader": "CoordinatorLoadSummary GroupLogUse",
    "kdump.broker.group_coordinator_shard": "GroupCoordinatorShard",
    "kdump.broker.group_metadata_manager": (
        "ClassicGroup ConsumerGroup CoordinatorGroup CoordinatorGroupMember GroupMetadataManager ModernGroup "
        "ShareGroup StreamsGroup"
    ),
    "kdump.broker.history": "EpochRun",
    "kdump.broker.offset_metadata_manager": "OffsetAndMetadata OffsetMetadataManager PendingOffset",
    "kdump.broker.predict": "directory_state predict_start",
    "kdump.broker.refusal_reason": "RefusalReason",
    "kdump.broker.result": "DirectoryState FileRange IndexChecksums LoadResult Refusal ResultSegment ValidSegment",
    "kdump.broker.share_coordinator_shard": (
        "PersisterStateBatch ShareCoordinatorShard ShareGroupOffset SharePartitionKey"
    ),
    "kdump.verify.checks.hanging": "OpenTransaction",
    "kdump.verify.findings": "CATALOGUE CatalogueEntry Finding Severity",
    "kdump.verify.report": "FileReport Report VerifyInterrupted",
    "kdump.verify.scan": "VerifyOptions",
    "kdump.verify.start_verdict": "PathCount StartVerdict",
    "kdump.verify.summary": "FindingFilter LogPosition PartitionSummary VerifySummary VerifyTotals WorstPartition",
    "kdump.verify.verify": "verify_logs",
    "kdump.recover.next_step": "RecoveryStep Urgency",
    "kdump.recover.plan": (
        "Action Damaged FileContent GivenUp Lost NewestWalk Plan RecoverOptions RecoveryResult RecoveryStart "
        "SalvagePreview"
    ),
    "kdump.recover.plan_lines": "FindingTotals",
    "kdump.recover.planner": "plan_recovery",
    "kdump.recover.recover": "ApplyOptions recover_logs resume_recovery undo_recovery",
    "kdump.recover.runs": "Run",
    "kdump.recover.saved_plans": "SavedPlan",
    "kdump.recover.summary": "RecoverySummary RecoveryTotals",
    "kdump.recover.undo": "RunResult UndoFailure",
    "kdump.log.appender": "LogAppendInfo",
    "kdump.log.batch_location": "DamagedRange OffsetAndTimestamp",
    "kdump.log.builder": "Builder Builder07 NewRecord",
    "kdump.log.fetch_data_info": "FetchDataInfo",
    "kdump.log.log": "Log",
    "kdump.log.log_snapshot": "SegmentDescription",
    "kdump.log.options": "LogOptions",
    "kdump.log.records": "DamageWarning Records",
    "kdump.log.retention": "Policy before by_age by_size",
    "kdump.stat.cleaner_stoppers": "CleanerStopper StopperKind",
    "kdump.stat.compaction": (
        "CleanableRange CompactionBlocker CompactionTrigger FirstDirtySource PartitionCompaction UncleanableSource "
        "report_compaction"
    ),
    "kdump.stat.compaction_pass": "CompactionPass",
    "kdump.stat.coordinators": "CoordinatorStatistics",
    "kdump.stat.delete_horizons": "DeleteHorizons",
    "kdump.stat.dirty_keys": "DirtyKeys",
    "kdump.stat.disk": "FileSystem",
    "kdump.stat.estimate": "Estimate",
    "kdump.stat.free": "FreePlan FreeSetting FreeStep plan_free",
    "kdump.stat.group_rows": "GroupFindings GroupPartitionRow GroupRow",
    "kdump.stat.groups": "EndSource GroupFold GroupPartition GroupStatistics PartitionEnd",
    "kdump.stat.growth": "Growth IdlePartition growth idle_partitions",
    "kdump.stat.histogram": "Histogram",
    "kdump.stat.key_summary": "KeySummary topic_fit",
    "kdump.stat.keys": "CompactionSavings CountedName HeavyKey NameCensus",
    "kdump.stat.partition_reports": "PartitionReports ReportOptions",
    "kdump.stat.partitioner": "MisplacedKey PartitionerFit",
    "kdump.stat.producers": "ProducerRow ProducerTable",
    "kdump.stat.records": "CodecVolume LargeRecord RecordStatistics ShapeVolume TimestampOrder ValueShapes",
    "kdump.stat.report_scope": "Unreported",
    "kdump.stat.report_totals": "ReportTotals",
    "kdump.stat.retention": (
        "DeletionReason NextDeletion PartitionRetention RetainedSegment RetentionBlocker report_retention"
    ),
    "kdump.stat.row_collector": "RowCollector",
    "kdump.stat.row_numbers": "WriteRate",
    "kdump.stat.row_sections": "RowOptions RowSection StatResult",
    "kdump.stat.rows": "LogDirectoryRow Row RowKind TotalRow",
    "kdump.stat.segment_age": "AgeSource LogBounds SegmentAge",
    "kdump.stat.stat": "stat_logs",
    "kdump.stat.sums": "LogDirectoryStatistics Sums TopicStatistics topics_of",
    "kdump.stat.topic_settings": "CleanerSettings TopicSettings topic_settings",
    "kdump.stat.upgrade": "OldFormat PartitionUpgrade RefusedFile report_upgrade",
    "kdump.stat.values": (
        "BatchStatistics Damage DamagedStretch PartitionStatistics SegmentStatistics StatOptions "
        "TransactionStatistics Volume"
    ),
    "kdump.convert.arrow": "arrow",
    "kdump.convert.choice": "Choice Included SeveralPartitions",
    "kdump.convert.convert": "convert_logs",
    "kdump.convert.field_formats": "FieldFormat",
    "kdump.convert.log_tables.table_reader": "table_reader",
    "kdump.convert.options": "ConvertOptions Target",
    "kdump.replicas.merge": "MissingRecords ReplicaUse ReplicasRefused",
    "kdump.convert.results": (
        "ConvertFindings ConvertSummary ConvertTotals DamagedLog LeftOutCounts MisplacedRecords OutputFile "
        "PartitionConversion SkippedRange"
    ),
    "kdump.dump.dump": "dump_logs",
    "kdump.dump.dump_options": "DumpOptions",
    "kdump.dump.events": (
        "BatchEvent BatchRun CompanionDamage CompanionEntry DumpFailure EmptyIndex FileBegin FileEnd FollowNote "
        "ImageLine IndexReport IsolationNote LogChange MatchCount NonConsecutiveOffsets NothingAtOffset OutputFlush "
        "RecordCount ReportKind SanityCheckPassed SearchedRecords StoredBytes TrailingBytes"
    ),
    "kdump.dump.filters": "BytesPattern HeaderPattern PatternKind ProducerPattern RecordPredicates",
    "kdump.dump.follow.follow": "FollowOptions follow_logs",
    "kdump.dump.log_end": "FromEnd",
    "kdump.dump.metadata_image": "ImageOptions dump_metadata_image",
    "kdump.dump.time_order": "merge_logs",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604  # all are strings


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'kdump' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
