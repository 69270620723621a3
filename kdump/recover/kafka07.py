"""The plan of a log of Kafka 0.7, which has no companions."""

import os

from kdump.broker.rebuild_request import PlannedSegment
from kdump.recover.plan import FileContent, Plan
from kdump.recover.plan_builder import PlanBuilder, Segments
from kdump.recover.plan_completion import complete_plan
from kdump.storage.pieces import Piece
from kdump.verify.reaction import TRUNCATION_CODES


def segments_after_start(builder: PlanBuilder) -> Segments:
    """What a broker of 0.7 leaves: it reads the active segment alone and truncates it after its last valid message.

    Source: Log.scala of Kafka 0.7.
    """
    given = builder.given
    segments = {}
    for file in given.report.files:
        name, base = os.path.basename(file.file.path), file.file.base_offset
        if base is None:
            continue
        stop = given.sizes.get(name, 0)
        if file.file.active:
            stop = min([stop, *(one.position for one in given.findings_of(name) if one.code in TRUNCATION_CODES)])
        segments[name] = PlannedSegment(
            base, (Piece(name, 0, stop),) if stop else (), valid=False, rebuilds_companions=False
        )
    return segments


def complete_kafka07(builder: PlanBuilder, segments: Segments) -> Plan:
    """The plan that leaves these segments. Raises SourceError."""
    given = builder.given
    for name, segment in segments.items():
        if segment.pieces != given.whole_file(name) or name not in given.sizes:
            builder.after[name] = FileContent(segment.pieces) if segment.pieces else FileContent(data=b"")
    for name in builder.gone_segments(segments):
        builder.after[name] = None
    start = min((segment.base_offset for segment in segments.values()), default=None)
    end = max((segment.base_offset + segment.size for segment in segments.values()), default=None)
    return complete_plan(builder, segments, start, end)
