"""Verify one partition: take the scans of its segments in log order, check what only shows across them, and report."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format.batch import TRANSACTIONAL, Batch
from kdump.format.checkpoint import CheckpointError, epoch_entries
from kdump.format.naming import Kind, topic_partition_of
from kdump.kernel.results import ScanState
from kdump.log.compaction import is_compacted_log
from kdump.log.segment_view import MOST_ITEMS, MOST_ROWS, SegmentView, Stretch, StretchProducers
from kdump.log.severity import Severity
from kdump.storage.file_store import absolute
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.verify.index_verifier import CompanionReader, IndexVerifier
from kdump.verify.log_state import LogState, PreviousSegment
from kdump.verify.producer_verifier import ProducerVerifier
from kdump.verify.range_summary import PassedFrame, RangeSummary
from kdump.verify.report import Counts, FileReport, Report
from kdump.verify.scan import ScanOptions

if TYPE_CHECKING:
    from kdump.broker.valid_segment import ValidSegment
    from kdump.kernel.transactions import Transactions
    from kdump.log.segment_view import ViewItem
    from kdump.verify.checks.offsets import LogEnd
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import RangeCells

__all__ = ["PartitionVerifier", "logs_of"]

_NO_END: Final = (1 << 63) - 1
FUTURE_MS: Final = 3_600_000
"""The default of message.timestamp.after.max.ms: a timestamp may be that far ahead of the clock (KIP-937)."""
_MOST_OPEN: Final = 10_000
"""So many open transactions are kept for a break."""
_PADDING: Final = ("index/padding", "timeindex/padding")


class PartitionVerifier:
    """Collects the scans of a partition, segment by segment in log order; `conclude` gives its report.

    A segment is `begin_segment`, its events to the function that this returns, then `end_segment`; or all of it at
    once as `replay_segment`.
    """

    def __init__(self, partition: Partition, context: CheckpointContext, options: ScanOptions) -> None:
        # A broker ignores a log whose name does not have 20 digits, so it is no neighbour of the others.
        misplaced = {file.path for file in partition.misplaced_files}
        self._misnamed = {one.log.path for one in partition.segments if one.log.path in misplaced}
        partition = partition._replace(
            segments=tuple(one for one in partition.segments if one.log.path not in self._misnamed)
        )
        self._partition = partition
        self._context = context
        self._options = options
        self._report = Report(partition.path, partition.topic_partition, partition.state, partition.whole)
        self._report.context = context
        self._report.directory_files = partition.directory_files if options.valid_segments else None
        self._reader = CompanionReader(self._report, options)
        self._epochs_file = None if partition.epochs is None else self._reader.read(partition.epochs)
        bases = [one.log.base_offset or 0 for one in partition.segments] or [0]
        self._first_epoch = self._read_first_epoch()
        self._log_start = max(bases[0], context.log_start_offset or 0, min(self._first_epoch, max(bases)))
        self._state = LogState(context.cleaned)
        self._producers = ProducerVerifier(partition, self._report, self._reader, self._log_start)
        self._indexes = IndexVerifier(partition, self._report, self._reader)
        self._future: list[tuple[str, int, int]] = []
        self._valid: dict[str, ValidSegment] = {}
        self._open_before_damage: Mapping[int, int] | None = None
        self._open_at_breaks: list[Mapping[int, int] | None] = []
        self._reaches_in = False
        self._valid_prefixes: dict[str, tuple[ValidSegment, ...]] = {}
        self._stretch_producers: list[StretchProducers | None] = []
        self._after_frame: Transactions | None = None
        self._rows_left = MOST_ROWS
        self._transactions: Transactions | None = None
        self._views: dict[str, SegmentView] = {}
        self._items_left = MOST_ITEMS
        self._cells: dict[str, RangeCells] = {}
        self._is_compacted_topic: bool | None = None

    def _is_compacted_log(self, *, shown: bool, lacks: bool) -> bool:
        """Whether the log cleaner goes over the log. `shown`: a segment shows it. `lacks`: offsets are missing.

        The name of the topic, and the metadata of the cluster, are asked only then: they do not say that it did.
        """
        if self._options.compacted is not None:
            return self._options.compacted
        if shown or self._context.cleaned or not lacks:
            return shown or self._context.cleaned
        if self._is_compacted_topic is None:
            from kdump.broker.cleaner.cleanup import is_compacted_topic  # few logs have holes

            of_metadata = is_compacted_topic(self._partition, self._options.metadata) is True
            self._is_compacted_topic = is_compacted_log(self._partition.topic_partition, shown=of_metadata)
        return self._is_compacted_topic

    def _read_first_epoch(self) -> int:
        """The first offset of the first leader epoch, which moves with the log start offset; 0 where not known."""
        try:
            return next((entry.start_offset for entry in epoch_entries(self._epochs_file or b"")), 0)
        except CheckpointError:
            return 0

    @property
    def path(self) -> str:
        return self._partition.path

    # ---- a segment

    def begin_segment(self, segment: Segment) -> Callable[[bytes], None]:
        """Begin a segment. Returns the function that takes the events of its producers, in log order."""
        log = segment.log
        self._open_before_damage = None
        self._open_at_breaks = []
        self._stretch_producers = []
        self._transactions = self._after_frame = None
        if log.kind is not Kind.LOG or log.path in self._misnamed:
            return _ignore
        replay = self._producers.begin_segment(log.base_offset, self._state)
        self._reaches_in = self._producers.reach(log.base_offset or 0)

        def replay_and_note(events: bytes) -> None:
            # Only a plan that removes batches asks for their producers, and it removes none before the first damage.
            if self._options.valid_segments and (self._state.broken or self._stretch_producers):
                self._add_to_stretch(events)
            if self._after_frame is not None:
                self._after_frame.add(events)
            replay(events)

        return replay_and_note

    def replay_segment(self, segment: Segment, summary: RangeSummary) -> None:
        """Add a segment whose scan kept its events."""
        replay = self.begin_segment(segment)
        frames = {frame.batch.position: frame for frame in summary.passed or ()}
        ends: list[tuple[int, Batch | None, bool]] = [(frame.events, frame.batch, False) for frame in frames.values()]
        if summary.view is not None:
            ends = []
            for item, following in zip(summary.view, (*summary.view[1:], None), strict=True):
                if isinstance(item, Stretch):
                    frame = frames.get(item.stop)
                    batch = None if frame is None else frame.batch
                    ends.append((item.events, batch, isinstance(following, Stretch)))
        elif summary.prefix is not None and summary.prefix.stop not in frames:
            ends.append((summary.prefix.events, None, False))
        done = 0
        for end, batch, at_break in sorted(ends, key=lambda each: each[0]):
            for events in summary.events[done:end]:
                replay(events)
            done = end
            self.end_stretch(batch, at_break=at_break)
        for events in summary.events[done:]:
            replay(events)
        self.end_segment(segment, summary)

    def end_stretch(self, frame: Batch | None = None, *, at_break: bool = False) -> None:
        """Note what is open at the first damage of the segment, or a break before it. The events before were replayed.

        `frame`: a broker may take the damage for this batch.
        """
        if self._open_before_damage is None:
            found = self._producers.open_by_producer()
            if not at_break:
                self._open_before_damage = found
            elif self._options.valid_segments:
                self._open_at_breaks.append(found if len(found) <= _MOST_OPEN else None)
        if frame is not None and frame.producer_id >= 0:
            if self._after_frame is None:
                from kdump.kernel.transactions import Transactions

                self._after_frame = Transactions(gaps=False)
                self._after_frame.resume(self._producers.open_by_producer())
            if frame.attributes & TRANSACTIONAL and not self._after_frame.is_open(frame.producer_id):
                self._after_frame.resume({frame.producer_id: frame.base_offset})
        self._note_producers()

    def _add_to_stretch(self, events: bytes) -> None:
        """Take the next events of a stretch, until there is no room for more."""
        if self._transactions is None:
            from kdump.kernel.transactions import Transactions

            self._transactions = Transactions(listed=True, gaps=False, idempotent=True)
        if len(self._transactions) <= self._rows_left:
            self._transactions.add(events)

    def _open_after_frames(self, frames: Sequence[PassedFrame]) -> Mapping[int, int] | None:
        """What is open at the end of the segment where a broker takes these frames for batches; None if not known."""
        if all(frame.producer_id < 0 for frame, _ in frames):
            return self._producers.open_by_producer()
        if self._after_frame is None:
            return None
        return {producer: first for producer, _, _, _, first, *_ in self._after_frame.open() if first is not None}

    def _note_producers(self) -> None:
        found, self._transactions = self._transactions, None
        rows, left = 0 if found is None else len(found), self._rows_left
        self._rows_left = max(0, left - rows)
        if found is None:
            self._stretch_producers.append(StretchProducers(b"", b"", 0))
        elif rows > left:
            self._stretch_producers.append(None)
        else:
            noted = StretchProducers(found.packed(), found.packed_ended(), found.control_batches)
            self._stretch_producers.append(noted)

    def end_segment(self, segment: Segment, summary: RangeSummary) -> None:
        """Add the scan of the segment, after its events were replayed."""
        log, scanned = segment.log, summary.state
        report = FileReport(log, error=summary.error)
        self._report.files.append(report)
        self._report.errors += summary.errors
        if summary.error is not None:
            self._report.errors.append(summary.error)
            self._state.broken = True
        if scanned is None:
            self._state.previous = PreviousSegment(log.path, log.base_offset, None)
            return
        if summary.cells is not None:
            self._cells[log.path] = summary.cells
        self._add_findings(summary, report)
        report.batches, report.bytes, report.valid_bytes = scanned.batches, log.size, scanned.valid_bytes
        report.records = None if scanned.unopened else scanned.records
        self._add_counted(log, scanned)
        if log.path in self._misnamed:
            return
        if log.kind is Kind.LOG:
            self._end_log(segment, summary)
        elif log.kind is Kind.KAFKA07:
            self._report.add(self._state.check_neighbours_07(log))
            end = log.size if summary.tail is None else summary.tail
            end_offset = None if log.base_offset is None else log.base_offset + end
            self._state.previous = PreviousSegment(log.path, log.base_offset, end_offset)

    def _add_findings(self, summary: RangeSummary, report: FileReport) -> None:
        """Add the findings of a scan. After a clean shutdown, padding is a warning in every segment."""
        found, counts = summary.findings, summary.counts
        if self._context.clean_shutdown and any(code in _PADDING for code, _ in counts):
            # The shutdown truncated the indexes to their entries, and the next start does not truncate them again.
            found = [_padding_as_warning(finding) for finding in found]
            counts = Counter(dict(counts))
            for code in _PADDING:
                counts[code, Severity.WARNING] += counts.pop((code, Severity.INFO), 0)
        self._report.findings += found
        self._report.counts.update(counts)
        report.counts.update(counts)
        if sum(counts.values()) > len(found):
            self._add_not_kept(report.file.path, found, counts)

    def _add_not_kept(self, path: str, found: "list[Finding]", counts: Counts) -> None:
        """Note how many findings of the file the scan counted and did not keep."""
        kept = Counter(finding.code for finding in found)
        for code in {code for code, _ in counts}:
            count = sum(number for (other, _), number in counts.items() if other == code)
            if count > kept[code]:
                self._report.not_kept[path, code] += count - kept[code]

    def _add_counted(self, log: LogFile, scanned: ScanState) -> None:
        """Add the findings that the kernel only counts, one for a segment and code."""
        if scanned.gaps:
            from kdump.log.header_pass import gaps_of
            from kdump.verify.checks import offsets

            # Damage may have removed the only sign of the log cleaner.
            compacted = self._is_compacted_log(shown=bool(scanned.compacted), lacks=True)
            compacted = compacted or (self._options.compacted is None and bool(scanned.broken))
            self._report.add([offsets.gaps(gaps_of(log.path, scanned), compacted=compacted)])
        if scanned.inner_magic:
            from kdump.verify.checks import records

            self._report.add([records.inner_magic(log.path, scanned.inner_magic_position, scanned.inner_magic)])
        if scanned.backs:
            from kdump.verify.checks import timestamps

            self._report.add([timestamps.back(log.path, scanned)])
        largest, now = scanned.max_timestamp, self._options.now_ms
        if now is not None and largest > now + FUTURE_MS:
            from kdump.verify.checks import timestamps

            position, offset = scanned.max_timestamp_position, scanned.max_timestamp_offset
            self._report.add([timestamps.future(log.path, position, offset, largest)])
            self._future.append((log.path, position, largest))
        # A timestamp in the future does not show how late it is.
        self._report.max_timestamp = max(self._report.max_timestamp, largest if now is None else min(largest, now))

    def _end_log(self, segment: Segment, summary: RangeSummary) -> None:
        """Check a segment of record batches or messages against what comes before, and its companions."""
        log, scanned, state = segment.log, summary.scanned, self._state
        compacted = self._is_compacted_log(shown=bool(scanned.compacted), lacks=bool(scanned.gaps))
        state.compacted = state.compacted or compacted
        hidden = summary.damaged_at > scanned.last_position
        valid_end = scanned.last_offset + 1 if scanned.batches else log.base_offset
        end_offset = None if hidden else valid_end
        # A tail hides nothing that a broker would keep.
        tail_only = hidden and summary.damaged_at == summary.tail
        self._report.log_end_offset = valid_end if tail_only or not hidden else None
        self._report.add(state.check_neighbours(log, scanned))
        if log.active and scanned.gaps:
            from kdump.verify.checks import offsets

            self._report.add(offsets.changed_base(log.path, scanned, self._known_ends()))
        state.gapped = state.gapped or bool(scanned.gaps)
        broken_before, state.broken = state.broken, state.broken or summary.damages > 0
        replayed = self._producers.end_segment(log.path, compacted=compacted or (state.broken and state.compacted))
        aborted = self._producers.aborted()
        alone = self._partition.path == log.path
        if log.base_offset is not None and (not alone or segment.index or segment.timeindex or segment.txnindex):
            self._indexes.check_indexes(segment, summary, end_offset)
            self._indexes.check_transaction_index(
                segment, end_offset, aborted, state, self._log_start, compacted=compacted
            )
        if self._partition.whole and valid_end is not None and (tail_only or not hidden):
            from kdump.verify.valid_segments import valid_segment

            is_known = not (broken_before if tail_only else state.broken)
            open_by_producer = self._producers.open_by_producer() if is_known else None
            if summary.passed and not broken_before:
                open_by_producer = self._open_after_frames(summary.passed)
            valid = valid_segment(
                log,
                summary,
                valid_end,
                replayed,
                open_by_producer,
                aborted=aborted,
                creates_transaction_index=segment.txnindex is None and bool(aborted),
                reaches_in=self._reaches_in,
            )
            if valid is not None:
                self._valid[os.path.basename(log.path)] = valid
        name = os.path.basename(log.path)
        if summary.view is not None and summary.error is None and len(summary.view) <= self._items_left:
            self._items_left -= len(summary.view)
            self._views[name] = self._view_of(summary.view, scanned, is_noted=broken_before)
        if self._partition.whole and name not in self._valid and not broken_before:
            from kdump.verify.valid_segments import valid_prefix

            prefix = valid_prefix(log, summary, replayed, self._open_before_damage)
            if prefix is not None:
                self._valid[name] = prefix
        if self._open_at_breaks and self._partition.whole and not broken_before:
            from kdump.verify.valid_segments import valid_breaks

            self._valid_prefixes[name] = tuple(valid_breaks(log, summary, replayed, self._open_at_breaks))
        state.add_segment(log, scanned, end_offset)

    def _view_of(self, items: "Sequence[ViewItem]", state: ScanState, *, is_noted: bool) -> SegmentView:
        """The view of a segment. The producers of its first stretch were noted where the log is damaged before it."""
        self._note_producers()
        found: list[ViewItem] = []
        noted = iter(self._stretch_producers)
        for item in items:
            if isinstance(item, Stretch):
                own = next(noted, None)
                item = item._replace(producers=own if is_noted else None)
                is_noted = True
            found.append(item)
        return SegmentView(tuple(found), state)

    def _known_ends(self) -> "Iterator[LogEnd]":
        """Offsets at which the log has ended, by its companions and the checkpoints of its log directory."""
        from kdump.verify.checks.offsets import LogEnd

        for what, offset in (
            ("recovery point", self._context.recovery_point),
            ("high watermark", self._context.high_watermark),
            *(("producer snapshot", file.base_offset) for file in self._partition.producer_snapshots),
        ):
            if offset is not None:
                yield LogEnd(what, offset)

    # ---- the partition

    def report_so_far(self) -> Report:
        """The report of a verify that was interrupted."""
        return self._report.sort()

    def conclude(self) -> Report:
        """Check what only shows over the whole partition. Returns the report."""
        report, partition, end = self._report, self._partition, self._state.end_offset
        start = next((one.log.base_offset for one in partition.segments), None)
        log_start = self._context.log_start_offset
        report.first_offset = start
        report.log_start_offset = start if log_start is None or start is None else max(start, log_start)
        report.end_is_known = end is not None
        if end is not None:
            report.log_end_offset = end
        shown = self._is_compacted_log(shown=self._state.compacted, lacks=bool(self._state.holes))
        report.compacted = is_compacted_log(partition.topic_partition, shown=shown, option=self._options.compacted)
        self._check_segments()
        self._producers.check_end(self._state)
        if end is not None and partition.segments[-1].log.active:
            report.open += self._producers.open_transactions()
        self._check_small_files(end)
        if partition.misplaced_files:
            from kdump.verify.checks import files

            report.add(files.check_partition(partition, live=self._options.live))
        if partition.only is not None:
            report.filter(lambda finding: finding.path == partition.only)
            report.open = []
        report.sort()
        if partition.topic_partition is None and topic_partition_of(absolute(partition.path)) is not None:
            # A log file in a log directory itself, as bootstrap.checkpoint, whatever the directory is called.
            report.findings = [replace(each, in_log_directory=True) for each in report.findings]
        report.valid_segments = self._valid if self._options.valid_segments else {}
        if any(severity >= Severity.WARNING for _, severity in report.counts):
            report.views, report.valid_prefixes = self._views, self._valid_prefixes
        self._add_reactions()
        is_doubtful = any(severity >= Severity.WARNING for _, severity in report.counts)
        if self._cells and (is_doubtful or report.open):  # the transaction log may say that one of these hangs
            from kdump.verify.partition_map import partition_map  # only a damaged log that is shown needs it

            report.map = partition_map(report, self._cells)
        return report

    def _check_segments(self) -> None:
        """Check the segments together: empty ones, several magics, a timestamp that blocks retention."""
        report, partition, state = self._report, self._partition, self._state
        self._add_missing_segments()
        self._add_missing_begin()
        if state.empty_segments:
            from kdump.verify.checks import segments

            report.add([segments.empty(state.empty_segments[0], len(state.empty_segments))])
        magics = [magic for magic, count in enumerate(state.magics) if count]
        if len(magics) > 1 and partition.path != partition.segments[0].log.path:
            from kdump.verify.checks import segments

            report.add([segments.magics(partition.segments[0].log.path, magics)])
        if self._future and (later := self._segments_after(self._future[0][0])):
            from kdump.verify.checks import timestamps

            path, position, timestamp = self._future[0]
            report.add([timestamps.retention(path, position, timestamp, later)])

    def _add_missing_segments(self) -> None:
        """Add what is missing between segments. A later segment can show that the log is compacted."""
        holes, compacted = self._state.holes, self._report.compacted
        if not holes:
            return
        from kdump.broker.cleaner.cleanup import Cleanup, cleanup_of
        from kdump.log.ranges import OffsetRange
        from kdump.verify.checks import segments

        is_known = compacted or self._options.compacted is not None
        limit, metadata = self._options.max_batch_bytes, self._options.metadata
        ranges = [OffsetRange(*hole) for _, *hole in holes]
        known = Cleanup(compacted) if is_known else cleanup_of(self._partition, ranges, limit, metadata)
        for (path, *_), hole in zip(holes, ranges, strict=True):
            is_removed = known.is_compaction(hole)
            self._report.missing_is_known &= is_removed is not None
            self._report.add([segments.missing(path, hole.stop, hole.start, compacted=is_removed)])

    def _add_missing_begin(self) -> None:
        """Add what is missing before the first batch, where it is known that no log cleaner removed it."""
        begin, options, start = self._state.begin, self._options, max(self._log_start, self._first_epoch)
        if begin is None or begin[1] <= start or not self._partition.whole:
            return
        if options.compacted or self._context.cleaned:
            return
        path, first = begin
        if options.compacted is None:
            from kdump.broker.cleaner.cleanup import cleanup_of
            from kdump.log.ranges import OffsetRange

            hole = OffsetRange(self._partition.segments[0].log.base_offset or 0, first)
            if cleanup_of(self._partition, [hole], options.max_batch_bytes, options.metadata).compacts is not False:
                return
        from kdump.verify.checks import offsets

        self._report.add([offsets.begins_late(path, 0, start, first)])

    def _segments_after(self, path: str) -> int:
        """The number of segments after the one at this path."""
        paths = [one.log.path for one in self._partition.segments]
        return len(paths) - 1 - paths.index(path) if path in paths else 0

    def _check_small_files(self, end_offset: int | None) -> None:
        """Check the leader epoch checkpoint, partition.metadata and quorum-state."""
        report, partition, state = self._report, self._partition, self._state
        if partition.epochs is not None and self._epochs_file is not None:
            from kdump.verify.checks import epochs

            # Without the end of the log only the form of the file is checked.
            known, log_end = (state.epochs, end_offset) if end_offset is not None else ([], _NO_END)
            report.add(
                epochs.check_checkpoint(
                    partition.epochs.path,
                    self._epochs_file,
                    known,
                    self._log_start,
                    log_end,
                    partial=state.compacted or state.broken or state.gapped,
                    legacy=bool(state.magics[0] or state.magics[1]),
                )
            )
        report.has_metadata = partition.metadata is not None
        if partition.metadata is not None and (data := self._reader.read(partition.metadata)) is not None:
            from kdump.verify.checks import checkpoints

            report.add(checkpoints.check_partition_metadata(partition.metadata.path, data))
            report.topic_id = checkpoints.topic_id(data)
        if partition.quorum_state is not None and (data := self._reader.read(partition.quorum_state)) is not None:
            from kdump.verify.checks import checkpoints

            report.add(checkpoints.check_properties(partition.quorum_state.path, data))

    def _add_reactions(self) -> None:
        """Add to each finding what a broker's next start does about it."""
        report, partition = self._report, self._partition
        if not partition.whole or not report.findings:
            return
        from kdump.broker import predict
        from kdump.verify import reaction

        # A running broker may have deleted files since the directory was listed: then it is listed again.
        files = None if self._options.live else partition.directory_files
        try:
            report.outcome = predict.predict_start(
                predict.directory_state(
                    partition.path,
                    self._valid,
                    recovery_point=self._context.recovery_point or 0,
                    log_start_offset=self._context.log_start_offset or 0,
                    files=None if files is None else files.sizes(),
                )
            )
        except SourceError as error:
            # A file that cannot be read is in the report already, unless only a broker reads it.
            if not report.errors:
                report.errors.append(error)
            return
        report.findings = list(reaction.with_reactions(report.findings, report.outcome))


def logs_of(partition: Partition) -> tuple[Segment, ...]:
    """The logs of a partition, each with its companions: segments, then KRaft snapshots."""
    return (*partition.segments, *(Segment(file, None, None, None) for file in partition.kraft_snapshots))


def _padding_as_warning(finding: "Finding") -> "Finding":
    return replace(finding, severity=Severity.WARNING) if finding.code in _PADDING else finding


def _ignore(events: bytes) -> None:
    """A log that is not part of the partition has no producers to replay."""
