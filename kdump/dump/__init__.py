"""Dump: files as a stream of values: batches, records, index entries, snapshots, checkpoints, fetch results."""

from kdump.exports import exports

_MODULES = {
    "kdump.dump.events": (
        "BatchRun CompanionDamage CompanionEntry DamageNote DumpFailure EmptyIndex FileBegin FileEnd FollowNote "
        "ImageLine IndexReport IsolationNote LogChange MatchCount NonConsecutiveOffsets NothingAtOffset OutputFlush "
        "RecordCount ReportKind SanityCheckPassed SearchedRecords StoredBytes TrailingBytes"
    ),
    "kdump.dump.filters": "BytesPattern HeaderPattern PatternKind ProducerPattern RecordPredicates",
    "kdump.dump.log_end": "FromEnd",
    "kdump.dump.metadata_image": "ImageOptions dump_metadata_image",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
