"""Convert: records as columns. The room of Arrow: no other room but Spark's imports it."""

from kdump.exports import exports

_MODULES = {
    "kdump.convert.choice": "Choice Included SeveralPartitions",
    "kdump.convert.field_formats": "FieldFormat",
    "kdump.convert.options": "Target",
    "kdump.convert.results": (
        "ConvertFindings ConvertSummary ConvertTotals DamagedLog LeftOutCounts MisplacedRecords OutputFile SkippedRange"
    ),
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
