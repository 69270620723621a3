"""The salvage strategy: keep every valid batch of a damaged log, then plan what a broker's next start would leave.

That start finds nothing to truncate any more.
"""

import os

from kdump.format.naming import segment_file_name
from kdump.recover.broker_start import complete_start, loadable, plan_indexes, plan_segments
from kdump.recover.kafka07 import complete_kafka07
from kdump.recover.loadable_log import LogView
from kdump.recover.plan import FileContent, Plan
from kdump.recover.plan_builder import PlanBuilder
from kdump.recover.plan_input import PlanInput
from kdump.recover.rebuild_cache import RebuildBudget
from kdump.recover.salvage.conflicts import conflict_sentence
from kdump.recover.salvage.keep import keep, undecided_sentence
from kdump.recover.salvage.result import SalvageResult
from kdump.storage.partition import Partition


def salvage(given: PlanInput, partition: Partition, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory that has something to do. Raises SourceError."""
    kept = keep(partition, given.options, given.report.views)
    builder = PlanBuilder(given, budget)
    builder.gap_codes = dict(kept.dropped)
    plan = _plan_kafka07(builder, kept) if given.is_kafka07 else _plan_start(builder, kept)
    conflicts = tuple(conflict_sentence(conflict) for conflict in kept.conflicts)
    undecided = tuple(undecided_sentence(one, partition.topic_partition) for one in kept.undecided)
    return plan._replace(undecided=undecided, conflicts=conflicts)


def _plan_start(builder: PlanBuilder, kept: SalvageResult) -> Plan:
    view = _view_of(builder.given, kept)
    valid_pieces = {name: (view.pieces[name], valid) for name, valid in kept.valid_segments.items()}
    log = loadable(builder.given, view, 0, valid_pieces)
    segments = plan_segments(builder, log)
    plan_indexes(builder, log, segments)
    for name, data in kept.transaction_indexes.items():
        if name in builder.after:
            builder.after[name] = FileContent(data=data)
    for name in kept.right_indexes:
        builder.after.pop(name, None)
    return complete_start(builder, log, segments)


def _view_of(given: PlanInput, kept: SalvageResult) -> LogView:
    """The directory with the kept segments instead of those on disk."""
    view = LogView(given.directory, given.sizes)
    segments = {segment_file_name(segment.base_offset, ".log"): segment.pieces for segment in kept.segments}
    for name in {os.path.basename(file.file.path) for file in given.report.files} - segments.keys():
        view.pieces.pop(name, None)
    view.pieces.update(segments)
    return view


def _plan_kafka07(builder: PlanBuilder, kept: SalvageResult) -> Plan:
    segments = {segment_file_name(segment.base_offset, builder.given.suffix): segment for segment in kept.segments}
    return complete_kafka07(builder, segments)
