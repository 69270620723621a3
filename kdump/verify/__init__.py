"""Verify: findings, the checks that make them, and the report of a partition or a log directory."""

from kdump.exports import exports

_MODULES = {
    "kdump.verify.checks.hanging": "OpenTransaction",
    "kdump.verify.catalogue": "CATALOGUE CatalogueEntry",
    "kdump.verify.findings": "Severity",
    "kdump.verify.log_map": "LogMap MapCell MapPlace",
    "kdump.verify.report": "FileReport VerifyInterrupted",
    "kdump.verify.start_verdict": "PathCount StartLoss StartVerdict",
    "kdump.verify.summary": "FindingFilter LogPosition PartitionSummary VerifySummary VerifyTotals WorstPartition",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
