"""A partition while its segments come by in log order: what each showed is held against its neighbours, its companions and the replay of its producers."""

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from kdump.broker.result import IndexChecksums, ValidSegment
from kdump.errors import SourceError
from kdump.format.checkpoint import CheckpointError, epoch_entries
from kdump.format.index import TIME_ENTRY
from kdump.format.naming import MAX_COMPANION_BYTES, Kind
from kdump.kernel.crc import crc32c
from kdump.kernel.producers import Producers
from kdump.kernel.results import ScanState
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.source import whole
from kdump.verify.checks import (
    checkpoints,
    epochs,
    files,
    indexes,
    offsets,
    producers,
    records,
    segments,
    snapshots,
    timestamps,
    transaction_indexes,
)
from kdump.verify.findings import CATALOGUE, KEPT, Finding, Severity
from kdump.verify.report import FileReport, Report
from kdump.verify.scan import RangeSummary, VerifyOptions, gone

COORDINATORS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Topics whose producers do not count: every batch of a coordinator has sequence 0."""
_OFFSETS_LIE = {"offset/backwards", "offset/range"}
_NO_END = (1 << 63) - 1
_PADDING = ("index/padding", "timeindex/padding")
_TOLD_AS = {
    "index/position": ("index/position", Severity.ERROR),
    "index/offset": ("index/offset", Severity.ERROR),
    "timeindex/misses": ("timeindex/timestamp", Severity.ERROR),
    "timeindex/wrong": ("timeindex/timestamp", Severity.WARNING),
    "timeindex/offset": ("timeindex/offset", Severity.WARNING),
}
"""What becomes of the kernel's bad entries."""


@dataclass(slots=True)
class _Past:
    """What the segments so far leave to the next one. `end_offset` is None where damage hides it; `epoch` is -1 where none is known."""

    path: str
    base: int | None
    end_offset: int | None
    last_position: int = -1
    last_offset: int = -1
    epoch: int = -1


class PartitionVerifier:
    """Give it the segments of a partition in order, each with `begin`, its events to `replay`, and `segment`; then `conclude`."""

    def __init__(self, partition: Partition, context: CheckpointContext, options: VerifyOptions) -> None:
        # A broker does not read a log whose name has not 20 digits, so that it is no neighbour of the others.
        misnamed = {stray.path for stray in partition.strays}
        self._misnamed = {one.log.path for one in partition.segments if one.log.path in misnamed}
        partition = partition._replace(
            segments=tuple(one for one in partition.segments if one.log.path not in self._misnamed)
        )
        self._partition = partition
        self._context = context
        self._options = options
        self._report = Report(partition.path, partition.topic_partition, partition.state, partition.whole)
        self._report.context = context
        name = partition.topic_partition
        first = next((one.log.base_offset for one in partition.segments), None)
        self._producers = Producers(sequences=name is None or name.topic not in COORDINATORS, complete=first == 0)
        self._snapshots = {file.base_offset: file for file in partition.producer_snapshots}
        self._bases = sorted(one.log.base_offset for one in partition.segments if one.log.base_offset is not None)
        self._timed = any(one.timeindex is not None for one in partition.segments)
        self._epochs_file = None if partition.epochs is None else self._read(partition.epochs)
        self._log_start = max(first or 0, context.log_start_offset or 0, self._first_epoch())
        self._past: _Past | None = None
        self._broken = False
        self._gapped = False
        self._compacted = context.cleaned
        self._magics = [0, 0, 0]
        self._epochs: list[tuple[int, int, int]] = []
        self._empty: list[str] = []
        self._future: list[tuple[str, int, int]] = []
        self._proved: dict[str, ValidSegment] = {}

    def _first_epoch(self) -> int:
        """Where the first leader epoch begins, which is lifted with the log start; 0 where nothing says it."""
        bases = [one.log.base_offset for one in self._partition.segments]
        try:
            first = next((entry.start_offset for entry in epoch_entries(self._epochs_file or b"")), 0)
        except CheckpointError:
            return 0
        return min(first, max((base or 0 for base in bases), default=0))

    # ---- a segment

    def begin_segment(self, segment: Segment) -> Callable[[bytes], None]:
        """A segment comes; what its producers did goes to the function that this gives, in log order."""
        log = segment.log
        base = log.base_offset
        if log.kind is not Kind.LOG or log.path in self._misnamed:
            return _ignore
        if base is None:
            return self._producers.replay
        past = self._past
        file = self._snapshots.pop(base, None)
        if past is None:
            if file is not None and (found := self._snapshot(file)) is not None and base > 0:
                self._producers.load(snapshots.entry_bytes(found))
        elif past.end_offset != base:
            self._producers.forget()
            self._broken = True
            if file is not None:
                self._snapshot(file)
        elif file is not None:
            self._compare(file)
        return self._producers.replay

    def replay_segment(self, segment: Segment, summary: RangeSummary) -> None:
        """A segment whose scan kept its events."""
        replay = self.begin_segment(segment)
        for events in summary.events:
            replay(events)
        self.end_segment(segment, summary)

    def end_segment(self, segment: Segment, summary: RangeSummary) -> None:
        """What the scan of the segment showed, after its events were replayed."""
        log, seen = segment.log, summary.state
        report = FileReport(log, error=summary.error)
        self._report.files.append(report)
        self._report.errors += summary.errors
        if summary.error is not None:
            self._report.errors.append(summary.error)
        self._broken = self._broken or summary.error is not None
        if seen is None:
            self._past = _Past(log.path, log.base_offset, None)
            return
        found, counts = summary.findings, summary.counts
        if self._context.closed and any(code in _PADDING for code, _ in counts):
            # What was closed in order was cut to its entries, and nobody will cut it now.
            found = [_told_of_padding(finding) for finding in found]
            counts = Counter(dict(counts))
            for code in _PADDING:
                counts[code, Severity.WARNING] += counts.pop((code, Severity.INFO), 0)
        self._report.findings += found
        self._report.counts.update(counts)
        report.counts.update(counts)
        report.batches, report.bytes, report.valid_bytes = seen.batches, log.size, seen.valid_bytes
        report.records = None if seen.unopened else seen.records
        self._gaps(log, seen)
        if log.path in self._misnamed:
            return
        if log.kind is Kind.LOG:
            self._log(segment, summary)
        elif log.kind is Kind.KAFKA07:
            self._kafka07(segment, summary)

    def _gaps(self, log: LogFile, seen: ScanState) -> None:
        if seen.gaps:
            # Damage may have taken the only sign of a cleaner with it.
            compacted = self._cleaned(seen) or (self._options.compacted is None and bool(seen.broken))
            self._report.add([offsets.gaps(log.path, seen, compacted=compacted)])
        if seen.inner_magic:
            self._report.add([records.inner_magic(log.path, seen.inner_magic_position, seen.inner_magic)])
        if seen.backs:
            self._report.add([timestamps.back(log.path, seen)])
        newest, now = seen.max_timestamp, self._options.now_ms
        if now is not None and newest > now + timestamps.FUTURE_MS:
            place = seen.max_timestamp_position, seen.max_timestamp_offset
            self._report.add([timestamps.future(log.path, *place, newest, now)])
            self._future.append((log.path, place[0], newest))
        # A timestamp in the future says nothing of how late it is.
        self._report.max_timestamp = max(self._report.max_timestamp, newest if now is None else min(newest, now))

    def _cleaned(self, seen: ScanState) -> bool:
        if self._options.compacted is not None:
            return self._options.compacted
        return bool(seen.compacted) or self._context.cleaned

    def _log(self, segment: Segment, summary: RangeSummary) -> None:
        log, seen = segment.log, summary.seen
        path, base = log.path, log.base_offset
        compacted = self._cleaned(seen)
        self._compacted = self._compacted or compacted
        hidden = summary.damaged_at > seen.last_position
        valid_end = seen.last_offset + 1 if seen.batches else base
        end_offset = None if hidden else valid_end
        # Behind a tail nothing can be missing that a broker would keep.
        torn = hidden and summary.damaged_at == summary.tail
        self._report.log_end_offset = valid_end if torn or not hidden else None
        self._neighbours(segment, seen, compacted)
        self._gapped = self._gapped or bool(seen.gaps)
        self._broken = self._broken or summary.damages > 0
        rows, counts, tallies = self._producers.take()
        for code, count in counts.items():
            self._report.counts[code, CATALOGUE[code].severity] += max(0, count - KEPT)  # the kernel kept no more
        self._report.add(producers.explain(path, rows))
        self._report.add(producers.tallies(path, tallies, compacted=compacted or (self._broken and self._compacted)))
        aborted = self._producers.aborted()
        if self._partition.path != path or segment.index or segment.timeindex or segment.txnindex:
            self._companions(segment, summary, end_offset, aborted, compacted)
        self._magics = [a + b for a, b in zip(self._magics, seen.magics, strict=True)]
        for change in seen.epochs:
            if not self._epochs or self._epochs[-1][0] != change[0]:
                self._epochs.append(change)
        if not log.size and not log.newest and base is not None:
            self._empty.append(path)
        if self._partition.whole and valid_end is not None and (torn or not hidden):
            self._proves(segment, summary, valid_end, counts.keys())
        last_epoch = seen.known_epoch if seen.linked else -1
        self._past = _Past(path, base, end_offset, seen.last_position, seen.last_offset, last_epoch)

    def _proves(self, segment: Segment, summary: RangeSummary, valid_end: int, replayed: Set[str]) -> None:
        """Remember a segment that a broker's recovery passes over, so that nobody has to read it again to say so."""
        seen = summary.seen
        codes = {finding.code for finding in summary.findings} | replayed
        legacy, modern = seen.magics[0] + seen.magics[1], seen.magics[2]
        # A segment of both kinds is rare: the broker's replay reads it again.
        if (legacy and modern) or not _sound(codes):
            return
        self._proved[os.path.basename(segment.log.path)] = ValidSegment(
            valid_end,
            tuple((epoch, offset) for epoch, offset, _ in seen.epochs),
            None if self._broken else {producer: first for producer, _, first, *_ in self._producers.open()},
            wrappers=bool(legacy) and sum(seen.codecs[1:]) > 0,
            state_end=segment.log.base_offset if legacy else None,
            valid_bytes=summary.tail,
            indexed=_indexed(summary, segment.log.base_offset or 0, valid_end, bool(legacy)),
        )

    def _neighbours(self, segment: Segment, seen: ScanState, compacted: bool) -> None:
        """The segment against the one before."""
        past, base, path = self._past, segment.log.base_offset, segment.log.path
        if past is None or base is None:
            return
        if past.last_offset >= base:
            self._report.add([segments.overlap(past.path, past.last_position, past.last_offset, base)])
        elif past.end_offset is not None and base > past.end_offset:
            self._report.add([segments.missing(path, base, past.end_offset, compacted=compacted or self._compacted)])
            self._gapped = True
        if seen.batches and 0 <= seen.first_epoch < past.epoch:
            place = path, seen.first_position, 0, seen.first_offset
            self._report.add([epochs.backwards(*place, epoch=seen.first_epoch, previous=past.epoch)])

    def _kafka07(self, segment: Segment, summary: RangeSummary) -> None:
        log = segment.log
        if self._past is not None and self._past.end_offset is not None and log.base_offset is not None:
            # Offsets are positions, so that a segment begins where the one before ended.
            if log.base_offset > self._past.end_offset:
                self._report.add([segments.missing(log.path, log.base_offset, self._past.end_offset, compacted=False)])
            elif log.base_offset < self._past.end_offset:
                self._report.add([segments.overlap(self._past.path, 0, self._past.end_offset - 1, log.base_offset)])
        end = (
            None if log.base_offset is None else log.base_offset + (log.size if summary.tail is None else summary.tail)
        )
        self._past = _Past(log.path, log.base_offset, end)

    # ---- companions of a segment

    def _companions(
        self, segment: Segment, summary: RangeSummary, end_offset: int | None, aborted: list[Any], compacted: bool
    ) -> None:
        log, seen = segment.log, summary.seen
        if log.base_offset is None:
            return
        end = summary.end if summary.tail is None else summary.tail
        entries, last = summary.entries, end_offset
        counts: Mapping[str, int] = summary.entry_counts
        lies = not _OFFSETS_LIE.isdisjoint(finding.code for finding in summary.findings)
        if lies:
            # Entries with the true offsets would all seem wrong.
            entries, last = [entry for entry in entries if entry.problem == "index/position"], None
            counts = {"index/position": counts["index/position"]}
        scanned = indexes.IndexScan(
            end,
            last,
            seen.max_timestamp,
            seen.magics,
            summary.damages > 0 or lies,
            log.newest,
            entries,
            seen.index_differs,
            bool(seen.compacted),
        )
        index, times = summary.indexes.get(Kind.INDEX), summary.indexes.get(Kind.TIMEINDEX)
        # One that is there and could not be read is not missing.
        told: list[Finding] = []
        if index is not None or (self._partition.whole and segment.index is None):
            told += indexes.offset_index(log.path, index, scanned)
        if times is not None or (self._partition.whole and segment.timeindex is None):
            told += indexes.time_index(log.path, times, scanned, self._timed)
        self._report.add(told)
        kinds = Counter((finding.code, finding.severity) for finding in told)
        for problem, count in counts.items():
            # What the kernel only counted is what it kept, and that may be nobody's fault. Of one entry its order is told instead.
            if count > KEPT and kinds[_TOLD_AS[problem]] >= KEPT - 1:
                self._report.counts[_TOLD_AS[problem]] += count - KEPT
        if self._partition.whole or segment.txnindex is not None:
            data = b"" if segment.txnindex is None else self._read(segment.txnindex)
            if data is not None:
                at = bisect_right(self._bases, log.base_offset)
                reach = end_offset
                if end_offset is not None and at < len(self._bases):
                    reach = max(end_offset, self._bases[at])
                self._report.add(
                    transaction_indexes.check_index(
                        log.path,
                        segment.txnindex,
                        data,
                        aborted,
                        base_offset=log.base_offset,
                        end_offset=reach,
                        log_start=self._log_start,
                        # A marker may be among what is missing, and then only the index knows of its transaction, as after a salvage.
                        compacted=compacted or self._gapped or reach != end_offset,
                        broken=self._broken,
                    )
                )

    def _snapshot(self, file: LogFile) -> snapshots.Snapshot | None:
        """A snapshot whose entries can be used."""
        data = self._read(file)
        if data is None:
            return None
        found, findings = snapshots.check_structure(file.path, data)
        self._report.add(findings)
        return found

    def _compare(self, file: LogFile) -> None:
        """A snapshot against the replay, which has come to its offset."""
        found = self._snapshot(file)
        if found is None:
            return
        mismatches = self._producers.compare(snapshots.entry_bytes(found))
        if mismatches:
            # A broker goes by its clock when it forgets a silent producer, and writes what is left.
            newest = max(self._report.max_timestamp, _changed_ms(file))
            known = self._producers.entries()
            self._report.add(
                snapshots.check_state(
                    file.path, found, mismatches, known, newest, self._compacted or self._broken, self._log_start
                )
            )

    def _read(self, file: LogFile) -> bytes | None:
        try:
            with file.open() as source:
                return whole(source, MAX_COMPANION_BYTES)
        except SourceError as error:
            if not gone(file, self._options):
                self._report.errors.append(error)
            return None

    # ---- the whole

    def report_so_far(self) -> Report:
        """The report when nothing more will come."""
        return self._report.sort()

    def conclude(self) -> Report:
        """What shows only over the whole partition, and the report."""
        report, partition, past = self._report, self._partition, self._past
        start = next((one.log.base_offset for one in partition.segments), None)
        end = None if past is None else past.end_offset
        log_start = self._context.log_start_offset
        report.first_offset = start
        report.log_start_offset = start if log_start is None or start is None else max(start, log_start)
        report.end_is_known = end is not None
        if end is not None:
            report.log_end_offset = end
        if self._empty:
            report.add([segments.empty(self._empty[0], len(self._empty))])
        magics = [magic for magic, count in enumerate(self._magics) if count]
        if len(magics) > 1 and partition.path != partition.segments[0].log.path:
            report.add([segments.magics(partition.segments[0].log.path, magics)])
        if self._future and (behind := self._behind(self._future[0][0])):
            path, position, timestamp = self._future[0]
            report.add([timestamps.retention(path, position, timestamp, behind)])
        self._at_end(end)
        if end is not None and partition.segments[-1].log.newest:
            self._open()
        if partition.epochs is not None and self._epochs_file is not None:
            # Without the end of the log only the file's own form is told.
            seen, log_end = (self._epochs, end) if end is not None else ([], _NO_END)
            partial = self._compacted or self._broken or self._gapped
            legacy = bool(self._magics[0] or self._magics[1])
            judged = epochs.check_checkpoint(
                partition.epochs.path, self._epochs_file, seen, log_start, log_end, partial=partial, legacy=legacy
            )
            report.add(judged)
        report.has_metadata = partition.metadata is not None
        if partition.metadata is not None and (data := self._read(partition.metadata)) is not None:
            report.add(checkpoints.check_partition_metadata(partition.metadata.path, data))
            report.topic_id = checkpoints.topic_id(data)
        if partition.quorum_state is not None and (data := self._read(partition.quorum_state)) is not None:
            report.add(checkpoints.check_properties(partition.quorum_state.path, data))
        report.add(files.check_partition(partition, live=self._options.live))
        if partition.only is not None:
            report.filter(lambda finding: finding.path == partition.only)
            report.open = []
        report.sort()
        report.proved = self._proved if self._options.proofs else {}
        self._judge()
        return report

    def _behind(self, path: str) -> int:
        """How many segments follow the one at this path."""
        paths = [one.log.path for one in self._partition.segments]
        return len(paths) - 1 - paths.index(path) if path in paths else 0

    def _at_end(self, end: int | None) -> None:
        """The snapshots that no segment begins at: one at the end of the log is the state there."""
        rest = [file for file in self._snapshots.values() if file.base_offset is not None]
        for file in rest:
            if file.base_offset == end and self._past is not None:
                self._compare(file)
            else:
                self._snapshot(file)
        bases = [one.log.base_offset for one in self._partition.segments if one.log.base_offset is not None]
        if self._partition.segments:
            self._report.add(snapshots.check_names(rest, bases, end))
        if self._partition.whole and len(bases) > 1 and len(self._producers):
            last, path = bases[-1], self._partition.segments[len(bases) - 1].log.path
            self._report.add(snapshots.check_missing(path, self._partition.producer_snapshots, last))

    def _open(self) -> None:
        for producer_id, epoch, first, timestamp, certain in self._producers.open():
            from kdump.verify.checks.hanging import OpenTransaction  # brings the decoder of the transaction log

            holder = [one for one in self._partition.segments if (one.log.base_offset or 0) <= first]
            path = (holder or self._partition.segments)[-1 if holder else 0].log.path
            self._report.open.append(
                OpenTransaction(self._partition.topic_partition, path, producer_id, epoch, first, timestamp, certain)
            )

    def _judge(self) -> None:
        """Say of each finding what a broker's next start does about it."""
        report, partition = self._report, self._partition
        if not partition.whole or not report.findings:
            return
        from kdump.broker import predict
        from kdump.verify import reaction

        try:
            report.outcome = predict.predict_start(
                predict.start_at(
                    partition.path,
                    self._proved,
                    recovery_point=self._context.recovery_point or 0,
                    log_start_offset=self._context.log_start_offset or 0,
                )
            )
        except SourceError as error:
            # What cannot be read was said already, unless only a broker reads it.
            if not report.errors:
                report.errors.append(error)
            return
        report.findings = list(reaction.with_reactions(report.findings, report.outcome))


def logs_of(partition: Partition) -> tuple[Segment, ...]:
    """The logs of a partition, each with its companions: segments, then KRaft snapshots."""
    return (*partition.segments, *(Segment(file, None, None, None) for file in partition.kraft_snapshots))


def _sound(codes: Set[str]) -> bool:
    if not codes:
        return True
    from kdump.verify import reaction

    return reaction.is_valid_log(codes, tail=True)


def _indexed(summary: RangeSummary, base_offset: int, next_offset: int, legacy: bool) -> IndexChecksums | None:
    """What is known where both indexes are those of a recovery, byte for byte, and no producer wrote."""
    seen, made = summary.seen, summary.made
    index, times = summary.indexes.get(Kind.INDEX), summary.indexes.get(Kind.TIMEINDEX)
    if made is None or index is None or times is None or summary.error is not None:
        return None
    if seen.broken or seen.produced or summary.tail is not None or made.since > 0:
        return None
    end = b""
    if seen.max_timestamp > made.last_timestamp:
        end = TIME_ENTRY.pack(seen.max_timestamp, seen.max_timestamp_offset - base_offset)
    if made.offsets != index.slots or made.times + end != times.slots:
        return None
    return IndexChecksums(
        seen.valid_bytes,
        next_offset,
        base_offset if legacy else next_offset,
        (len(index.slots), crc32c(index.slots)),
        (len(times.slots), crc32c(times.slots)),
    )


def _told_of_padding(finding: Finding) -> Finding:
    return replace(finding, severity=Severity.WARNING) if finding.code in _PADDING else finding


def _changed_ms(file: LogFile) -> int:
    try:
        return os.stat(file.path).st_mtime_ns // 1_000_000
    except OSError:
        return -1


def _ignore(events: bytes) -> None:
    """What is no log of a partition has no producers to be replayed."""
