"""The reports of purpose about a partition that were asked for, and their numbers by name."""

import os
from typing import TYPE_CHECKING, Final

from kdump.broker.cleaner.log_cleaner_manager import PartitionCompaction, report_compaction
from kdump.broker.cleaner.log_config import CleanerSettings, TopicSettings, settings_for
from kdump.broker.cleaner.retention import PartitionRetention, RetainedSegment, report_retention
from kdump.broker.cleaner.stored_settings import StoredSettings
from kdump.named_tuple import NamedTuple
from kdump.stat.free import FreePlan, FreeStep
from kdump.stat.growth import IdlePartition, idle_partitions
from kdump.stat.report_scope import Unreported, unreported_because
from kdump.stat.upgrade import OldFormat, PartitionUpgrade, report_upgrade
from kdump.stat.values import PartitionStatistics
from kdump.storage.file_store import parent_of

if TYPE_CHECKING:
    from kdump.format.json_types import Fields


_COMPACT: Final = frozenset(("compact",))


class ReportOptions(NamedTuple):
    """Which reports to make, and the settings that they assume.

    `free_bytes`: say what frees so many. `idle_ms`: only the partitions that were not written to for longer.
    """

    retention: bool = False
    compaction: bool = False
    upgrade: bool = False
    free_bytes: int | None = None
    idle_ms: int | None = None
    settings: TopicSettings = TopicSettings()
    cleaner: CleanerSettings = CleanerSettings()

    @property
    def is_about_partitions(self) -> bool:
        """Whether one of them says something of each partition."""
        return self.retention or self.compaction or self.upgrade or self.idle_ms is not None


class PartitionReports(NamedTuple):
    """The reports about a partition; None for one that was not asked for, or does not fit (`-delete`, `-stray`).

    `unreported` is why there is none on retention and compaction.
    """

    retention: PartitionRetention | None = None
    compaction: PartitionCompaction | None = None
    upgrade: PartitionUpgrade | None = None
    idle: IdlePartition | None = None
    unreported: Unreported | None = None

    def fields(self) -> "Fields":
        """The numbers of each report."""
        return {
            "retention": self.retention and retention_fields(self.retention),
            "compaction": self.compaction and compaction_fields(self.compaction),
            "unreported": self.unreported and self.unreported.value,
            "upgrade": self.upgrade and upgrade_fields(self.upgrade),
            "last_written_ms": self.idle and self.idle.last_written_ms,
        }


def make_reports(
    of: PartitionStatistics, options: ReportOptions, now_ms: int, stored: StoredSettings | None = None
) -> PartitionReports:
    """The reports that were asked for. The one on compaction assumes `compact` where no policy is known and no metadata
    of the cluster say that there is none.

    `stored` completes the settings that the reports on retention and compaction go by.
    """
    unreported = unreported_because(of) if options.retention or options.compaction else None
    named, is_known = options.settings, False
    if stored is not None and (options.retention or options.compaction) and unreported is None:
        directory = directory_of(of)
        named, is_known = stored.complete(named, directory, of.topic), stored.has_metadata(directory)
    settings = settings_for(of, named)
    is_known = is_known or "cleanup_policy" in settings.known
    compacts = settings if is_known else settings._replace(cleanup_policy=_COMPACT)
    fits = unreported is None
    retention = options.retention and fits and report_retention(of, settings, now_ms)
    compaction = options.compaction and fits and report_compaction(of, compacts, now_ms, options.cleaner)
    upgrade = options.upgrade and of.state is None and report_upgrade(of)
    idle = next(iter(() if options.idle_ms is None else idle_partitions([of], options.idle_ms, now_ms)), None)
    return PartitionReports(retention or None, compaction or None, upgrade or None, idle, unreported)


def directory_of(of: PartitionStatistics) -> str:
    """The log directory that a partition is in."""
    return of.directory or parent_of(of.path)


def settings_fields(settings: TopicSettings) -> "Fields":
    """The settings of a topic, and where each comes from."""
    return {
        **settings._asdict(),
        "cleanup_policy": sorted(settings.cleanup_policy),
        "given": sorted(settings.given),
        "stored": dict(settings.stored),
        "assumed": sorted(settings.assumed),
    }


def _segment_fields(segment: RetainedSegment) -> "Fields":
    return {
        "name": os.path.basename(segment.path),
        "base_offset": segment.base_offset,
        "end_offset": segment.end_offset,
        "bytes": segment.size_bytes,
        "active": segment.is_active,
        "timestamp": segment.age.timestamp_ms,
        "timestamp_of": segment.age.source.value,
        "batches_timestamp": segment.age.batches_ms,
        "reason": segment.reason and segment.reason.value,
    }


def retention_fields(of: PartitionRetention) -> "Fields":
    """The numbers of a report on retention."""
    following = of.next
    return {
        "settings": settings_fields(of.settings),
        "high_watermark_known": of.bounds.has_high_watermark,
        "log_start_known": of.bounds.has_log_start,
        "deletes": [_segment_fields(segment) for segment in of.deletes],
        "deletes_bytes": of.deletes_bytes,
        "rolls": of.rolls,
        "stays": len(of.stays),
        "log_start_offset": of.log_start_offset,
        "blocker": of.blocker and of.blocker.value,
        "next": following
        and {
            "segment": _segment_fields(following.segment),
            "at_ms": following.at_ms,
            "after_bytes": following.after_bytes,
            "high_watermark": following.high_watermark,
        },
        "held_back": [_segment_fields(segment) for segment in of.held_back],
        "held_back_bytes": of.held_back_bytes,
        "age_warnings": [_segment_fields(segment) for segment in of.age_warnings],
    }


def compaction_fields(of: PartitionCompaction) -> "Fields":
    """The numbers of a report on compaction."""
    return {
        "settings": settings_fields(of.settings),
        "high_watermark_known": of.bounds.has_high_watermark,
        "log_start_known": of.bounds.has_log_start,
        **of.range._asdict(),
        "clean_bytes": of.clean_bytes,
        "cleanable_bytes": of.cleanable_bytes,
        "uncleanable_bytes": of.uncleanable_bytes,
        "dirty_ratio": of.dirty_ratio,
        "lag_ms": of.lag_ms,
        "starts_because": of.starts_because and of.starts_because.value,
        "blocker": of.blocker and of.blocker.value,
        "needs_bytes": of.needs_bytes,
        "legacy_delete_horizon_ms": of.legacy_delete_horizon_ms,
        "delete_horizons": {
            "batches": of.delete_horizons.batches,
            "bytes": of.delete_horizons.bytes,
            "earliest_ms": of.delete_horizons.earliest_ms,
            "latest_ms": of.delete_horizons.latest_ms,
        },
        "stoppers": of.stoppers,
        "next_pass": of.next_pass,
    }


def format_fields(of: OldFormat) -> "Fields":
    """The numbers of the messages of an old magic."""
    return {
        "magic": of.magic,
        "batches": of.volume.batches,
        "records": of.volume.records,
        "records_at_least": of.volume.records_at_least,
        "bytes": of.volume.bytes,
        "segments": of.segments,
        "partitions": of.partitions,
        "newest_timestamp": of.newest_timestamp_ms,
        "newest_modified_ms": of.newest_modified_ms,
        "newest_segment": of.newest_segment,
        "newest_is_active": of.newest_is_active,
    }


def upgrade_fields(of: PartitionUpgrade) -> "Fields":
    """The numbers of a report on an upgrade."""
    return {
        "ready": of.is_ready,
        "formats": [format_fields(each) for each in of.formats],
        "refused": [{"path": each.path, "position": each.position, "exception": each.exception} for each in of.refused],
        "error": None if of.error is None else str(of.error),
    }


def _step_fields(of: FreeStep) -> "Fields":
    return {
        "topic": of.topic,
        "setting": of.setting.value,
        "value": of.value,
        "bytes": of.bytes,
        "segments": of.segments,
        "oldest_ms": of.oldest_ms,
        "oldest_left_ms": of.oldest_left_ms,
        "lost_ms": of.lost_ms,
        "emptied": of.is_emptied,
        "command": of.command,
    }


def free_fields(of: FreePlan) -> "Fields":
    """The numbers of a plan that frees bytes."""
    return {
        "wanted_bytes": of.wanted_bytes,
        "enough": of.is_enough,
        "bytes": of.bytes,
        "most_bytes": of.most_bytes,
        "due_bytes": of.due_bytes,
        "leaving_bytes": of.leaving_bytes,
        "stray_bytes": of.stray_bytes,
        "steps": [_step_fields(step) for step in of.steps],
        "alternatives": [_step_fields(step) for step in of.alternatives],
        "compacted_topics": of.compacted_topics,
        "linked_bytes": of.linked_bytes,
    }
