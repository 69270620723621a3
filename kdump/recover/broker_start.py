"""Puts what a broker's next start leaves of a directory into a plan: the steps that a truncation and a salvage share.

A broker rebuilds every companion of what it walks. Here a companion stays where verify finds nothing wrong with it and
its log does not change, unless all are asked for (`RecoverOptions.rebuild_all`): then the directory becomes what a
broker leaves.
"""

import os
from collections.abc import Mapping
from typing import Final

from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.result import DirectoryState
from kdump.broker.valid_segment import ValidSegment
from kdump.errors import SourceError
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, EpochEntry, build_epochs, epoch_entries
from kdump.format.naming import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    number_of,
    segment_file_name,
)
from kdump.recover.loadable_log import LoadableLog, LogView
from kdump.recover.plan import FileContent, Plan
from kdump.recover.plan_builder import PlanBuilder, Segments
from kdump.recover.plan_completion import complete_plan
from kdump.recover.plan_input import PlanInput
from kdump.storage.file_store import open_source
from kdump.storage.pieces import Piece
from kdump.storage.source import read_whole

_EPOCH_CODES: Final = frozenset({"epoch/format", "epoch/order", "epoch/checkpoint", "epoch/missing", "epoch/stale"})


def loadable(
    given: PlanInput,
    view: LogView,
    recovery_point: int,
    valid_pieces: Mapping[str, tuple[tuple[Piece, ...], ValidSegment]] | None = None,
) -> LoadableLog:
    """What has to go from the view until a broker loads it, and what its start leaves. Raises SourceError."""
    state = DirectoryState(
        given.sizes,
        lambda name: open_source(os.path.join(given.directory, name)),
        {},
        recovery_point,
        given.report.context.log_start_offset or 0,
        index_interval_bytes=given.options.index_interval_bytes,
    )
    report = given.report
    return LoadableLog(view, report.valid_segments, report.findings, state, valid_pieces or {}, report.valid_prefixes)


def plan_segments(builder: PlanBuilder, log: LoadableLog) -> Segments:
    """The segments that the start leaves; those that change are planned."""
    builder.reasons = log.view.reasons
    segments: dict[str, PlannedSegment] = {}
    for left in log.result.segments:
        name = segment_file_name(left.base_offset, ".log")
        file = log.result.files[name]
        pieces = log.view.part(file.origin, file.start, file.size) if file.origin else ()
        changed = pieces != builder.given.whole_file(name) or name not in builder.given.sizes
        if changed:
            builder.after[name] = FileContent(pieces) if pieces else FileContent(data=b"")
        walked = changed or file.origin in log.result.recovered_logs
        segment = builder.given.segment(name, left.base_offset, pieces, walked)
        segments[name] = segment._replace(valid=segment.valid or log.is_valid(name, pieces))
    return segments


def plan_indexes(builder: PlanBuilder, log: LoadableLog, segments: Segments) -> None:
    """Plan to rebuild the indexes that are wrong, are missing, or belong to a segment that changes."""
    given, everything = builder.given, builder.given.options.rebuild_all
    # Where no segment has a time index, verify misses those of logs that no release without them wrote.
    lacking = any(finding.code == "timeindex/missing" for name in segments for finding in given.findings_of(name))
    timed = everything or lacking or any(name.endswith(".timeindex") for name in given.sizes)
    for name, segment in segments.items():
        changed = name in builder.after
        for suffix in INDEX_SUFFIXES:
            companion = segment_file_name(segment.base_offset, suffix)
            if companion not in log.result.files and not segment.pieces:
                continue  # a new segment, which begins without it
            if suffix == ".timeindex" and not timed:
                continue  # of a release without time indexes; a later broker creates them when it loads the log
            wrong = bool(given.findings_of(companion)) or companion in builder.reasons
            missing = any(finding.code == f"{suffix[1:]}/missing" for finding in given.findings_of(name))
            again = changed or (segment.rebuilds_companions and everything)
            if again or ((wrong or missing) and (segment.rebuilds_companions or segment.valid)):
                builder.after[companion] = FileContent()


def plan_partition_metadata(builder: PlanBuilder) -> None:
    """Write a partition.metadata that is missing, or cannot be read, where the topic id is known."""
    given = builder.given
    lacking = given.report.whole and not given.report.has_metadata
    if (PARTITION_METADATA in builder.reasons or lacking) and given.metadata is not None:
        builder.reasons.setdefault(PARTITION_METADATA, "metadata/missing")
        builder.after[PARTITION_METADATA] = FileContent(data=given.metadata)


def complete_start(builder: PlanBuilder, log: LoadableLog, segments: Segments) -> Plan:
    """Plan what belongs to no segment, and complete the plan. Raises SourceError."""
    given = builder.given
    if given.options.rebuild_all:
        _rebuild_snapshots(builder, log)
    else:
        _plan_snapshots(builder, log, segments)
    if not given.alone:
        _plan_epochs(builder, log)
    plan_partition_metadata(builder)
    for name in given.sizes:
        if name not in log.result.files and not name.endswith(".snapshot"):
            builder.after.setdefault(name, None)
    plan = complete_plan(builder, segments, log.result.log_start_offset, log.result.log_end_offset)
    refusals, later = (
        tuple(dict.fromkeys((refusal.exception, refusal.name) for refusal in some))
        for some in (log.refusals, log.later_refusals)
    )
    return plan._replace(refusals=refusals, later_refusals=later)


# ---- producer snapshots


def _rebuild_snapshots(builder: PlanBuilder, log: LoadableLog) -> None:
    """As a broker leaves them."""
    written = {segment_file_name(offset, ".snapshot") for offset in log.result.written_snapshots}
    kept = {name for name in log.result.files if name.endswith(".snapshot")}
    builder.after.update({name: FileContent() for name in kept & written})
    for name in builder.given.sizes:
        if name.endswith(".snapshot") and name not in kept:
            builder.after[name] = None


def _plan_snapshots(builder: PlanBuilder, log: LoadableLog, segments: Segments) -> None:
    """Snapshots that are wrong, and those after the first change, are rebuilt at the segments' offsets, else go."""
    result, given = log.result, builder.given
    changed = [segment.base_offset for name, segment in segments.items() if name in builder.after]
    changed += [number for name in builder.gone_segments(segments) if (number := number_of(name)) is not None]
    borders = {*(segment.base_offset for segment in segments.values()), result.log_end_offset}
    first_change = min(changed, default=None)
    for name in given.sizes:
        if not name.endswith(".snapshot"):
            continue
        offset = number_of(name)
        stale = offset is None or (first_change is not None and offset > first_change)
        if name in builder.reasons or stale or given.findings_of(name):
            again = offset is not None and offset in borders and offset <= result.log_end_offset
            builder.after[name] = FileContent() if again else None
    if changed and result.log_end_offset and result.log_end_offset in result.written_snapshots:
        builder.after.setdefault(segment_file_name(result.log_end_offset, ".snapshot"), FileContent())


# ---- leader epochs


def _plan_epochs(builder: PlanBuilder, log: LoadableLog) -> None:
    result, given = log.result, builder.given
    exists = LEADER_EPOCH_CHECKPOINT in given.sizes
    codes = {finding.code for finding in given.findings_of(LEADER_EPOCH_CHECKPOINT)}
    changed = any(name.endswith(given.suffix) for name in builder.after)
    entries = result.leader_epochs
    if given.options.rebuild_all:
        if not exists and not result.leader_epochs_written:
            builder.after[LEADER_EPOCH_CHECKPOINT] = FileContent(data=b"")
        same = not result.leader_epochs_written and not log.epochs_are_lost
    else:
        if log.epochs_are_lost or not codes.isdisjoint(_EPOCH_CODES):
            # The batches say what the file should hold. A broker looks only at those that it walks.
            log.view.remove(LEADER_EPOCH_CHECKPOINT, min(codes, default="epoch/format"))
            entries = log.predict(0).leader_epochs
        elif not changed:
            return
        same = not (exists or entries) or (exists and _current_epochs(given) == entries)
    if not same:
        builder.after[LEADER_EPOCH_CHECKPOINT] = FileContent(
            data=build_epochs([EpochEntry(*entry) for entry in entries])
        )


def _current_epochs(given: PlanInput) -> tuple[tuple[int, int], ...] | None:
    try:
        with open_source(os.path.join(given.directory, LEADER_EPOCH_CHECKPOINT)) as source:
            data = read_whole(source, MAX_CHECKPOINT_BYTES)
        return tuple((entry.epoch, entry.start_offset) for entry in epoch_entries(data))
    except (SourceError, CheckpointError):
        return None
