"""Predicts what Kafka's LogLoader leaves of a topic-partition directory when it starts after an unclean stop.

The steps and their order are Kafka's, so that several damages together give what Kafka makes of them: files left over
by an interrupted run, segments and their companions, recovery of each segment, deletion of the segments after a
truncated one, leader epochs, producer snapshots. Nothing is written. Valid segments (`ValidSegment`) are not read.

Source: LogLoader of Kafka 4.3. Its parts are in log_segment, local_log, unified_log, producer_state_manager and
leader_epoch_file_cache.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping

from kdump.broker.file_records import CorruptRecord, UncaughtReadError
from kdump.broker.leader_epoch_file_cache import LeaderEpochFileCache
from kdump.broker.local_log import split_overflowed_segment
from kdump.broker.log_segment import InvalidOffset, LogSegment, LogSegmentOffsetOverflow, LogSegments, TimeIndex
from kdump.broker.open_transaction_map import OpenTransactionMap, PredictionStateManager, open_transactions_in
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.producer_state_manager import ProducerSnapshots
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import NEW, DirectoryState, LoadResult, ResultSegment
from kdump.broker.unified_log import load_producers_from_segment, rebuild_producer_state
from kdump.broker.valid_segment import ValidSegment
from kdump.format import checkpoint, index, partition_metadata, text_files
from kdump.format.checkpoint import CheckpointError
from kdump.format.naming import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    number_of,
    segment_file_name,
)


class SegmentSplit(Exception):
    """The offsets of a segment overflow: it is split before the load goes on."""

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment


class LogLoader:
    """One start. `load` runs it; `close` closes the files that it read."""

    def __init__(self, state: DirectoryState) -> None:
        self._state = state
        self.files = PartitionFiles(state)
        self.segments = LogSegments(self.files)
        self.epochs = LeaderEpochFileCache()
        self._snapshots = ProducerSnapshots(self.files, open_transactions_in)
        self._unsplittable: set[int] = set()
        self._emptied_logs: set[str] = set()
        self._open_transactions: Mapping[int, int] | None = None
        self._recovered_logs: set[str] = set()

    def close(self) -> None:
        """Close the files that the load read."""
        self.files.close()

    def load(self) -> LoadResult:
        """LogLoader.load, with what UnifiedLog does before and after it. Raises SourceError."""
        state, segments = self._state, self.segments
        self._load_epochs()
        for name in sorted(self.files.ranges):
            if name.endswith(".snapshot") and number_of(name) is None:
                self.files.refuse("NumberFormatException", name, None, RefusalReason.FILE_NAME)
        self._complete_swap_operations(self._remove_temp_files_and_collect_swap_files())
        self._snapshots.load_names()
        self._retry_on_offset_overflow(self.load_segment_files)
        if state.deleting:
            log_end = 0
            if not segments:
                segments.add(0)
        else:
            log_end = self._retry_on_offset_overflow(self._recover_log)
            segments.create_indexes(segments.order[-1])
        log_start = max(state.log_start_offset, segments.order[0])
        self.epochs.truncate(state.log_start_offset, log_end)
        if self.epochs.written:
            self.files.delete(f"{LEADER_EPOCH_CHECKPOINT}.tmp")
        self._snapshots.remove_stray(segments.order)
        # After a clean shutdown without a snapshot nothing is read again (UnifiedLog.rebuildProducerState).
        if self._snapshots.names or not state.clean_shutdown:
            manager = self._producer_state_manager()
            rebuild_producer_state(manager, segments, log_start, log_end, _load_producers)
            self._open_transactions = manager.producers.first_offsets
        self._check_metadata()
        return self._result(log_start, log_end)

    def _result(self, log_start: int, log_end: int) -> LoadResult:
        files = self.files
        return LoadResult(
            tuple(files.refusals),
            log_start,
            log_end,
            tuple(ResultSegment(base, self.segments[base].size) for base in self.segments.order),
            files.truncations,
            frozenset(self._emptied_logs),
            frozenset(files.deleted_files),
            files.ranges,
            files.swap_targets,
            files.split_segments,
            frozenset(self._recovered_logs),
            frozenset(self._snapshots.written_offsets),
            tuple(self.epochs.entries),
            self.epochs.written,
            tuple(files.later_refusals),
            self._open_transactions,
        )

    # ---- leader epochs and partition.metadata

    def _load_epochs(self) -> None:
        """LeaderEpochCheckpointFile.read."""
        if LEADER_EPOCH_CHECKPOINT not in self.files.ranges:
            self.files.create(LEADER_EPOCH_CHECKPOINT)
            return
        try:
            entries = list(
                checkpoint.epoch_entries(self.files.read(LEADER_EPOCH_CHECKPOINT, checkpoint.MAX_CHECKPOINT_BYTES))
            )
        except CheckpointError:
            self.files.refuse("KafkaStorageException", LEADER_EPOCH_CHECKPOINT, None, RefusalReason.LEADER_EPOCHS)
            return
        for entry in entries:
            try:
                self.epochs.assign(entry.epoch, entry.start_offset)
            except UncaughtReadError as error:
                self.files.refuse(error.exception, LEADER_EPOCH_CHECKPOINT, None, error.reason)

    def _check_metadata(self) -> None:
        """PartitionMetadataFile.read."""
        if PARTITION_METADATA in self.files.ranges:
            data = self.files.read(PARTITION_METADATA, text_files.MAX_PROPERTIES_BYTES)
            try:
                partition_metadata.parse_partition_metadata(data)
            except CheckpointError:
                exception = "KafkaStorageException" if data else "NullPointerException"
                self.files.refuse(exception, PARTITION_METADATA, None, RefusalReason.PARTITION_METADATA)

    # ---- files of an interrupted run

    def _remove_temp_files_and_collect_swap_files(self) -> list[str]:
        """LogLoader.removeTempFilesAndCollectSwapFiles; returns the .swap files that are complete."""
        files = self.files
        numbers = {}
        for name in sorted(files.ranges):
            if name.endswith(".deleted") and not name.endswith(".checkpoint.deleted"):
                files.delete(name)
            elif name.endswith((".cleaned", ".swap")):
                number = number_of(name)
                if number is None:
                    files.refuse("NumberFormatException", name, None, RefusalReason.FILE_NAME)
                else:
                    numbers[name] = number
        lowest = min((number for name, number in numbers.items() if name.endswith(".cleaned")), default=1 << 63)
        for name, number in numbers.items():
            if name.endswith(".cleaned") or number >= lowest:
                files.delete(name)
        return [name for name in numbers if name in files.ranges]

    def _complete_swap_operations(self, swaps: list[str]) -> None:
        """Delete the segments that the .swap files replace, and rename the .swap files."""
        files = self.files
        lowest, highest = 1 << 63, -(1 << 63)
        for name in swaps:
            number = number_of(name)
            if name.endswith(".log.swap") and number is not None:
                segment = LogSegment(files, segment_file_name(number, ".log.swap"), number)
                segment.load_offset_index(segment_file_name(number, ".index.swap"))
                files.create(segment_file_name(number, ".index.swap"))
                lowest, highest = min(lowest, number), max(highest, segment.next_offset())
        for name in sorted(files.ranges):
            number = number_of(name)
            if number is not None and lowest <= number < highest and not name.endswith(".swap"):
                files.delete(name)
        for name in sorted(files.ranges):
            if name.endswith(".swap") and number_of(name) is not None:
                files.replace_with_swap(name)

    # ---- segments

    def _retry_on_offset_overflow(self, step: Callable[[], int]) -> int:
        """Repeat the step as long as a segment has to be split (LogLoader.retryOnOffsetOverflow)."""
        while True:
            try:
                return step()
            except SegmentSplit as split:
                segment = split.segment
                try:
                    split_overflowed_segment(segment, self.segments, self.files, self._snapshots)
                except (CorruptRecord, UncaughtReadError) as problem:
                    # Here the load goes on with the segment as it is.
                    segment.refuse(problem)
                    self._unsplittable.add(segment.base_offset)

    def load_segment_files(self) -> int:
        """LogLoader.loadSegmentFiles. Raises SegmentSplit."""
        files = self.files
        self.segments.clear()
        for name in sorted(files.ranges):
            is_index = name.endswith(INDEX_SUFFIXES)
            if name not in files.ranges or not (is_index or name.endswith(".log")):
                continue
            number = number_of(name)
            if number is None:
                files.refuse("NumberFormatException", name, None, RefusalReason.FILE_NAME)
            elif is_index:
                if segment_file_name(number, ".log") not in files.ranges:
                    files.delete(name)
            else:
                segment = self.segments.open(number)
                if not self._sanity_check(segment):
                    # The number of truncated bytes is ignored here: later segments stay.
                    try:
                        self.recover_segment(segment)
                    except InvalidOffset:
                        error = UncaughtReadError("InvalidOffsetException", None, RefusalReason.OFFSET_ORDER)
                        segment.refuse(error)
                self.segments[number] = segment
        return 0

    def _sanity_check(self, segment: LogSegment) -> bool:
        """False where the offset index is missing, or the transaction index is bad (LogSegment.sanityCheck)."""
        files, base = self.files, segment.base_offset
        if segment_file_name(base, ".index") not in files.ranges:
            return False
        files.create(segment_file_name(base, ".timeindex"))
        name = segment_file_name(base, ".txnindex")
        size, number, later = index.TRANSACTION_ENTRY.size, 0, False
        for block in files.index_entries(name, size):
            for entry in index.aborted_transactions(block):
                origin = files.ranges[name].origin
                if entry.refused:
                    files.refuse("KafkaException", origin, number * size, RefusalReason.TRANSACTION_INDEX)
                    return True
                if entry.refused_later and not later:
                    later = True
                    files.refuse_later("KafkaException", origin, number * size, RefusalReason.TRANSACTION_INDEX)
                if entry.last_offset < base:
                    return False
                number += 1
        return True

    def _recover_log(self) -> int:
        """LogLoader.recoverLog; returns the log end offset. Raises SegmentSplit."""
        state, bases = self._state, self.segments.order
        unflushed = [] if state.clean_shutdown else bases[max(0, bisect_right(bases, state.recovery_point) - 1) :]
        for number, base in enumerate(unflushed):
            segment = self.segments[base]
            try:
                truncated_bytes = self.recover_segment(segment)
            except InvalidOffset:
                if segment.content.origin:
                    self._emptied_logs.add(segment.content.origin)
                truncated_bytes = segment.truncate_to_base_offset()
            if truncated_bytes > 0:
                for later in unflushed[number + 1 :]:
                    self._delete_segment(later)
                break
        if self.segments:
            log_end = self.segments[bases[-1]].next_offset()
            if log_end >= state.log_start_offset:
                return log_end
            for base in list(bases):
                self._delete_segment(base)
            self.epochs.clear()
            for name in list(self._snapshots.names.values()):
                self._snapshots.delete(name)
        self.segments.add(state.log_start_offset)
        return state.log_start_offset

    def _delete_segment(self, base: int) -> None:
        """LocalLog.deleteSegmentFiles, with the producer snapshot at the base offset."""
        del self.segments[base]
        for suffix in (".log", *INDEX_SUFFIXES):
            self.files.delete(segment_file_name(base, suffix))
        self._snapshots.delete(segment_file_name(base, ".snapshot"))

    def recover_segment(self, segment: LogSegment) -> int:
        """LogLoader.recoverSegment; returns the number of truncated bytes. Raises InvalidOffset, SegmentSplit."""
        files, base, valid = self.files, segment.base_offset, segment.recovered
        if segment.content.origin:
            self._recovered_logs.add(segment.content.origin)
        self.segments.create_indexes(base)
        if segment_file_name(base, ".txnindex") in files.ranges:
            files.ranges[segment_file_name(base, ".txnindex")] = NEW
        size_before = segment.size
        manager = self._producer_state_manager()
        rebuild_producer_state(manager, self.segments, self._state.log_start_offset, base, _load_producers)
        check_overflow = base not in self._unsplittable
        if valid is not None and not manager.producers.is_ambiguous:
            try:
                segment.break_off(valid, self.epochs, check_overflow=check_overflow)
            except LogSegmentOffsetOverflow:
                raise SegmentSplit(segment) from None
            if valid.valid_bytes is not None:
                segment.truncate(valid.valid_bytes)
            segment.valid = valid
            for epoch, first in valid.epochs:
                self.epochs.assign_if_later(epoch, first)
            manager.skip(segment, valid)
        else:
            manager.producers.read_skipped()
            try:
                segment.recover(manager, self.epochs, TimeIndex(), check_overflow=check_overflow)
            except LogSegmentOffsetOverflow:
                raise SegmentSplit(segment) from None
        manager.take_snapshot()
        return size_before - segment.size

    def _producer_state_manager(self) -> PredictionStateManager:
        return PredictionStateManager(self._snapshots, OpenTransactionMap())


def _says_all(valid: ValidSegment) -> bool:
    """Whether what is open at the end of the segment is what is open after any part of it."""
    return valid.open_transactions is not None and valid.disorder is None


def _load_producers(manager: PredictionStateManager, segment: LogSegment, start: int, log_end: int | None) -> None:
    """Add the batches of a segment from an offset on, or skip them. Raises CorruptRecord, UncaughtReadError."""
    producers = manager.producers
    valid = segment.valid
    if producers.is_ambiguous or (valid is not None and valid.valid_bytes not in (None, segment.size)):
        valid = None
    if valid is not None and log_end is not None and log_end < valid.next_offset:
        valid = None  # the log ends inside it, because a segment after it has lower offsets
    if valid is not None and (start in (segment.base_offset, valid.next_offset) or _says_all(valid)):
        if valid.has_wrapper_messages:
            # Only the inner messages say where wrapper messages begin.
            segment.build_offset_index()
            if log_end is not None:
                segment.translate_offset(log_end)
            segment.translate_offset(start)
        if start < valid.next_offset:
            manager.skip(segment, valid)
        return
    producers.read_skipped()
    load_producers_from_segment(producers, segment, start, log_end)
