"""The reindex strategy: companions that are wrong, or all of them, are rebuilt from the log, and no log changes.

A partition.metadata that is missing, or cannot be read, is written as the other strategies do.
"""

from kdump.broker.predict import directory_state, predict_start
from kdump.format.checkpoint import EpochEntry, build_epochs
from kdump.format.naming import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    number_of,
    segment_file_name,
)
from kdump.recover.broker_start import plan_partition_metadata
from kdump.recover.plan import FileContent, Plan
from kdump.recover.plan_builder import PlanBuilder, Segments
from kdump.recover.plan_completion import complete_plan
from kdump.recover.plan_input import PlanInput
from kdump.recover.rebuild_cache import RebuildBudget


def reindex(given: PlanInput, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory that has something to do. Raises SourceError.

    The indexes of a damaged log reach as far as a broker would read it. Snapshots and leader epochs come from batches,
    so they are rebuilt only where the log before them is not damaged.
    """
    builder = PlanBuilder(given, budget)
    segments = {}
    for name in sorted(given.sizes):
        base = number_of(name)
        if name.endswith(".log") and base is not None and name == segment_file_name(base, ".log"):
            segments[name] = given.segment(name, base, given.whole_file(name), walked=True)
    _plan_indexes(builder, segments)
    _plan_snapshots(builder, segments)
    if all(segment.valid for segment in segments.values()):
        _plan_epochs(builder)
    if any(finding.code == "metadata/format" for finding in given.findings_of(PARTITION_METADATA)):
        builder.reasons[PARTITION_METADATA] = "metadata/format"
    plan_partition_metadata(builder)
    return complete_plan(builder, segments, given.report.log_start_offset, given.report.log_end_offset)


def _plan_indexes(builder: PlanBuilder, segments: Segments) -> None:
    given = builder.given
    for name, segment in segments.items():
        for suffix in INDEX_SUFFIXES:
            companion = segment_file_name(segment.base_offset, suffix)
            missing = any(finding.code == f"{suffix[1:]}/missing" for finding in given.findings_of(name))
            if (given.options.rebuild_all and segment.valid) or missing or given.findings_of(companion):
                builder.after[companion] = FileContent()


def _plan_snapshots(builder: PlanBuilder, segments: Segments) -> None:
    given, end = builder.given, builder.given.report.log_end_offset
    borders = {segment.base_offset for segment in segments.values()} | ({end} if end is not None else set())
    for name in given.sizes:
        offset = number_of(name)
        if not name.endswith(".snapshot") or offset is None:
            continue
        wrong = bool(given.findings_of(name))
        if wrong or given.options.rebuild_all:
            before = [segment for segment in segments.values() if segment.base_offset < offset]
            if offset in borders and all(segment.valid for segment in before):
                builder.after[name] = FileContent()
            elif wrong:
                builder.after[name] = None  # as a broker does, which then goes back to an older one


def _plan_epochs(builder: PlanBuilder) -> None:
    given = builder.given
    if given.findings_of(LEADER_EPOCH_CHECKPOINT) or (
        given.options.rebuild_all and LEADER_EPOCH_CHECKPOINT in given.sizes
    ):
        listed = given.report.directory_files
        start = directory_state(
            given.directory, given.report.valid_segments, files=None if listed is None else listed.sizes()
        )
        files = {name: size for name, size in start.files.items() if name != LEADER_EPOCH_CHECKPOINT}
        entries = predict_start(start._replace(files=files)).leader_epochs
        builder.after[LEADER_EPOCH_CHECKPOINT] = FileContent(
            data=build_epochs([EpochEntry(*entry) for entry in entries])
        )
