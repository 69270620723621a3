"""What a plan is made from: the report of a verify over a topic-partition directory, and the files of the directory."""

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Final

from kdump.broker.log_manager import kraft_directory
from kdump.broker.rebuild_request import PlannedSegment
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.checkpoint import CheckpointError
from kdump.format.naming import INDEX_SUFFIXES, PARTITION_METADATA, Kind, number_of
from kdump.format.partition_metadata import (
    VERSION,
    PartitionMetadata,
    build_partition_metadata,
    parse_partition_metadata,
)
from kdump.format.text_files import MAX_PROPERTIES_BYTES
from kdump.log.segment_view import ORDER_CODES
from kdump.recover.plan import SAVED_WALK, FileContent, Plan, RecoverOptions, RecoveryStart
from kdump.recover.selection import files_by_segment
from kdump.storage.file_store import directory_above, entries_of, is_directory, open_source
from kdump.storage.pieces import Piece
from kdump.storage.source import read_whole
from kdump.storage.stamps import Stamp, read_stamps
from kdump.verify.findings import Finding, Severity
from kdump.verify.reaction import TRUNCATION_CODES, is_valid_log
from kdump.verify.report import Report

_WITHOUT_ACTION: Final = frozenset({"txn/epochs", "txn/marker-empty"})
"""The codes of findings about which a recovery does nothing."""
ACTIVE_SEGMENT: Final = (1 << 63) - 1
"""A recovery point after which only the active segment lies."""


class PlanInput:
    """The report, which has to come from a verify that reports valid segments, the options, and the files.

    `alone` says that the report is about one segment, which was given by its path; `directory` is that of the segment.
    `compares`: the plan is only compared with another one, by what becomes of the batches.
    """

    def __init__(self, report: Report, options: RecoverOptions, *, compares: bool = False) -> None:
        self.report, self.options, self.directory, self.compares = report, options, report.path, compares
        self.alone = not is_directory(report.path)
        if self.alone:
            self.directory = os.path.dirname(report.path) or "."
        self._findings: dict[str, list[Finding]] = {}
        for finding in report.findings:
            if finding.severity >= Severity.WARNING:
                self._findings.setdefault(os.path.basename(finding.path), []).append(finding)

    @cached_property
    def files(self) -> Mapping[str, Stamp]:
        """The regular files of the directory; of a segment alone, those that belong to it. Raises SourceError.

        They are those that verify began with. The directory is listed only where its files could not be listed then.
        """
        if self.report.directory_files is not None:
            return self.report.directory_files.stamps
        found = read_stamps(self.directory)
        number = number_of(os.path.basename(self.report.path))
        return files_by_segment(found).get(number, {}) if self.alone else found

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The size of each file in bytes. Raises SourceError."""
        return {name: stamp.size for name, stamp in self.files.items()}

    def refuse_links(self) -> None:
        """Raises SourceError for a log that is a link: what a plan changes lies in the directory itself."""
        for path in (one.file.path for one in self.report.files):
            if os.path.basename(path) not in self.sizes and os.path.islink(path):
                raise SourceError(f"{path}: a symbolic link; recover changes regular files only")

    @property
    def suffix(self) -> str:
        """The suffix of the segments."""
        return naming.suffix_of(Kind.KAFKA07) if self.is_kafka07 else ".log"

    @property
    def is_kafka07(self) -> bool:
        return any(file.file.kind is Kind.KAFKA07 for file in self.report.files)

    def findings_of(self, name: str) -> list[Finding]:
        """The errors and warnings about a file."""
        return self._findings.get(name, [])

    @property
    def all_findings(self) -> Iterator[Finding]:
        """All errors and warnings."""
        for found in self._findings.values():
            yield from found

    @property
    def codes(self) -> frozenset[str]:
        """The codes of all errors and warnings."""
        return frozenset(finding.code for found in self._findings.values() for finding in found)

    def whole_file(self, name: str) -> tuple[Piece, ...]:
        """All bytes of a file; nothing for an empty file, or for one that does not exist."""
        size = self.sizes.get(name, 0)
        return (Piece(name, 0, size),) if size else ()

    def segments(self) -> Iterator[PlannedSegment]:
        """The segments as they are."""
        for log in (one.file for one in self.report.files):
            if log.base_offset is not None:
                pieces = (Piece(os.path.basename(log.path), 0, log.size),) if log.size else ()
                yield PlannedSegment(log.base_offset, pieces, False, False)

    def segment(self, name: str, base_offset: int, pieces: tuple[Piece, ...], walked: bool) -> PlannedSegment:
        """The segment that these bytes will be; `walked` says that its companions are rebuilt from it."""
        valid = self.report.valid_segments.get(name) if pieces == self.whole_file(name) else None
        indexed = None if valid is None else valid.index_checksums
        is_valid, is_verified = self.is_valid(pieces), self.is_valid(pieces, ignored=ORDER_CODES)
        return PlannedSegment(base_offset, pieces, is_valid, walked, indexed, is_verified)

    def is_valid(self, pieces: tuple[Piece, ...], *, ignored: Set[str] = frozenset()) -> bool:
        """Whether verify found nothing in these bytes that changes how a broker reads them, but for the `ignored`."""
        if not pieces:
            return True
        piece = pieces[0]
        if len(pieces) > 1 or piece.start or not piece.name.endswith(".log") or piece.name not in self.sizes:
            return False
        if any(file.error for file in self.report.files if os.path.basename(file.file.path) == piece.name):
            return False
        codes = {finding.code for finding in self.findings_of(piece.name) if finding.position < piece.stop}
        return is_valid_log(codes - ignored)

    @property
    def has_nothing_to_do(self) -> bool:
        """Whether verify found nothing that an action could be about.

        Verify does not open compressed messages of magic 0 and 1; a broker opens the last ones of a log.
        """
        report = self.report
        wrappers = any(valid.has_wrapper_messages for valid in report.valid_segments.values())
        # Of a segment with batches of magic 2, too, no valid segment says so.
        wrappers |= any(file.records is None for file in report.files)
        start, end = report.context.log_start_offset, report.log_end_offset
        emptied = start is not None and end is not None and end < start
        gone = report.state in ("delete", "stray")
        lacking = report.whole and not report.has_metadata and self.metadata is not None
        doubtful = not self.codes <= _WITHOUT_ACTION
        return gone or not (lacking or doubtful or self.options.rebuild_all or wrappers or emptied)

    @cached_property
    def metadata(self) -> bytes | None:
        """The partition.metadata with the topic id of the metadata log, else the one that the topic's partitions have.

        A broker in KRaft mode takes a partition without it for a stray.
        """
        name = self.report.topic_partition
        if name is None or name.topic == naming.METADATA_TOPIC or self.report.state:
            return None
        above = directory_above(self.directory)
        kraft = kraft_directory(above)
        if kraft is None:
            return None
        placement = kraft.placement(name)
        if placement is None:
            return metadata_of_siblings(above, name.topic)
        return None if placement.topic_id is None else _metadata_with(placement.topic_id)


@lru_cache(maxsize=1)
def metadata_of_siblings(directory: str, topic: str) -> bytes | None:
    """The partition.metadata of a topic's partitions in a log directory, where all have the same.

    It is remembered for one run: `plan_recovery` clears it.
    """
    found = set()
    try:
        with entries_of(directory) as entries:
            siblings = [entry.path for entry in entries if entry.name.startswith(f"{topic}-")]
    except (OSError, SourceError, CheckpointError):
        return None
    for path in siblings:
        other = naming.topic_partition_of(path)
        if other is not None and other.topic == topic:
            with suppress(SourceError, CheckpointError), open_source(os.path.join(path, PARTITION_METADATA)) as source:
                found.add(parse_partition_metadata(read_whole(source, MAX_PROPERTIES_BYTES)))
    return build_partition_metadata(found.pop()) if len(found) == 1 else None


def _metadata_with(topic_id: str) -> bytes:
    return build_partition_metadata(PartitionMetadata(VERSION, topic_id))


def unchanged(given: PlanInput, after: Mapping[str, FileContent | None] | None = None) -> Plan:
    """The plan that changes nothing. Findings that files in `after` cover are left out. Raises SourceError."""
    report, change = given.report, _ChangedFiles(after or {}, given.suffix)
    return Plan(
        given.directory,
        report.topic_partition,
        given.options,
        files={} if given.has_nothing_to_do and not after else given.files,
        log_start_offset=report.log_start_offset,
        log_end_offset=report.log_end_offset,
        high_watermark=report.context.high_watermark,
        segments=tuple(given.segments()),
        not_covered=tuple(_not_covered(given, change)),
        alone=given.alone,
        start=_start_of(given),
        clean_shutdown=report.context.clean_shutdown,
        covered=tuple(_covered(given, change)),
    )


def recovery_point_of(given: PlanInput) -> int:
    """The offset from which on a truncation reads; ACTIVE_SEGMENT for the active segment alone."""
    point = given.report.context.recovery_point
    match given.options.walk:
        case "newest":
            return ACTIVE_SEGMENT
        case "all":
            return 0
        case walk:
            return point if point is not None else ACTIVE_SEGMENT if walk == SAVED_WALK else 0


def _start_of(given: PlanInput) -> RecoveryStart | None:
    """Where a broker's next start begins to read: at the segment that holds the recovery point, else the first."""
    if given.is_kafka07:
        return None
    walk = given.options.walk
    point = recovery_point_of(given)
    because = given.report.context.start_because if walk in ("checkpoint", SAVED_WALK) else "from"
    bases = [file.file.base_offset for file in given.report.files if file.file.base_offset is not None]
    segment = max((base for base in bases if base <= point), default=min(bases, default=None))
    if point == ACTIVE_SEGMENT:
        return RecoveryStart(segment or 0, segment, "from")
    return RecoveryStart(point, segment, because)


def _covered(given: PlanInput, change: "_ChangedFiles") -> Iterator[Finding]:
    """The findings about damage in the logs that the plan removes."""
    for finding in given.report.findings:
        is_damage = finding.severity >= Severity.WARNING and finding.code in TRUNCATION_CODES
        if is_damage and finding.path.endswith(given.suffix) and change.covers(finding):
            yield finding


def _not_covered(given: PlanInput, change: "_ChangedFiles") -> Iterator[Finding]:
    for finding in given.report.findings:
        if finding.severity >= Severity.WARNING and not change.covers(finding):
            yield finding


class _ChangedFiles:
    """What a plan changes of the files of a partition: `after` has what they hold then."""

    def __init__(self, after: Mapping[str, FileContent | None], suffix: str) -> None:
        self._after, self._suffix = after, suffix
        self._kept: dict[str, tuple[list[int], list[int]]] = {}

    def covers(self, finding: Finding) -> bool:
        """Whether the plan changes what the finding is about."""
        name = os.path.basename(finding.path)
        if finding.code == "metadata/missing":
            return self._after.get(PARTITION_METADATA) is not None
        family, _, what = finding.code.partition("/")
        if what == "missing" and f".{family}" in INDEX_SUFFIXES:
            return name.rpartition(".")[0] + f".{family}" in self._after
        if name not in self._after:
            return False
        content = self._after[name]
        if content is None or not name.endswith(self._suffix):
            return True
        starts, stops = self._kept_of(name, content)
        start, stop = finding.position, finding.position + max(1, finding.length)
        return bisect_right(stops, start) >= bisect_left(starts, stop)

    def _kept_of(self, name: str, content: FileContent) -> tuple[list[int], list[int]]:
        """Where the ranges of a file that stay in it begin and end, in order; no two of them overlap."""
        if name not in self._kept:
            pieces = sorted((piece.start, piece.stop) for piece in content.pieces if piece.name == name)
            self._kept[name] = [start for start, _ in pieces], [stop for _, stop in pieces]
        return self._kept[name]
