"""The plan of a truncation: what a broker's next start would leave of a topic-partition directory, where it refuses after what lets it start, and as little else as possible.

A broker makes every companion of what it walked anew. Here one stays that a verify finds nothing wrong with beside a log that does not change, unless all of
them are asked for (`RecoverOptions.rebuild_all`); then the directory comes out as a broker leaves it.
"""

import os
from collections.abc import Mapping
from typing import Final

from kdump.broker.log_loader import EPOCHS, METADATA
from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.result import DirectoryState, LoadResult
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.checkpoint import MAX_BYTES, CheckpointError, EpochEntry, build_epochs, epoch_entries
from kdump.format.naming import INDEX_SUFFIXES, Kind, file_name, number_of
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.plan_builder import NEWEST, PlanBuilder
from kdump.recover.refusals import AcceptedLog, LogView
from kdump.storage.pieces import Piece
from kdump.storage.source import FileSource, whole
from kdump.verify.reaction import CUTS
from kdump.verify.report import Report

_EPOCH_CODES: Final = frozenset({"epoch/format", "epoch/order", "epoch/checkpoint", "epoch/missing", "epoch/stale"})


def truncate(report: Report, options: RecoverOptions) -> Plan:
    """What is to be done with the topic-partition directory that the report, with its proofs, is of. Raises SourceError."""
    return Truncation(report, options).truncated()


class Truncation(PlanBuilder):
    """The plan of a truncation while it is made; a salvage changes what there is before it."""

    def __init__(self, report: Report, options: RecoverOptions) -> None:
        super().__init__(report, options)
        points = {"checkpoint": report.context.recovery_point, "newest": None, "all": 0}
        self.recovery_point = points[options.walk]

    def truncated(self) -> Plan:
        """The plan."""
        if self.nothing_to_do:
            return self.unchanged()
        if any(file.file.kind is Kind.KAFKA07 for file in self.report.files):
            self.suffix = naming.suffix_of(Kind.KAFKA07)
            return self.kafka07()
        view = LogView(self.directory, self.sizes)
        self.prepare(view)
        mended = self._mended(view)
        self.reasons = mended.view.reasons
        outcome = mended.outcome
        logs = self._logs(outcome, mended.view)
        self.companions(mended, logs)
        self._snapshots(mended, logs)
        if not self.alone:
            self._epochs(mended)
        lacking = self.report.whole and not self.report.has_metadata
        if (METADATA in self.reasons or lacking) and self.metadata is not None:
            self.reasons.setdefault(METADATA, "metadata/missing")
            self.after[METADATA] = FileContent(data=self.metadata)
        for name in self.sizes:
            if name not in outcome.files and not name.endswith(".snapshot"):
                self.after.setdefault(name, None)
        plan = self.plan(logs, outcome.log_start_offset, outcome.log_end_offset)
        refusals = dict.fromkeys((refusal.exception, refusal.name) for refusal in mended.refusals)
        return plan._replace(refusals=tuple(refusals))

    def prepare(self, view: LogView) -> None:
        """What is done to the directory before a broker's start is foreseen: nothing."""

    def _mended(self, view: LogView) -> AcceptedLog:
        options, context, point = self.options, self.report.context, self.recovery_point
        start = DirectoryState(
            self.sizes,
            lambda name: FileSource(os.path.join(self.directory, name)),
            {},
            NEWEST if point is None else point,
            context.log_start_offset or 0,
            index_interval_bytes=options.index_interval_bytes,
        )
        return AcceptedLog(view, self.report.proved, self.report.findings, start)

    def _logs(self, outcome: LoadResult, view: LogView) -> dict[str, PlannedSegment]:
        """The segments afterwards by name; those that change go into `after`."""
        logs = {}
        for left in outcome.segments:
            name = file_name(left.base_offset, ".log")
            held = outcome.files[name]
            pieces = view.part(held.origin, held.start, held.size) if held.origin else ()
            changed = pieces != self.whole(name) or name not in self.sizes
            if changed:
                self.after[name] = FileContent(pieces) if pieces else FileContent(data=b"")
            walked = changed or held.origin in outcome.recovered
            logs[name] = self.log(name, left.base_offset, pieces, walked)
        return logs

    def companions(self, mended: AcceptedLog, logs: Mapping[str, PlannedSegment]) -> None:
        """Decide which indexes are made anew."""
        timed = any(name.endswith(".timeindex") for name in self.sizes) or self.options.rebuild_all
        for name, log in logs.items():
            changed = name in self.after
            for suffix in INDEX_SUFFIXES:
                companion = file_name(log.base_offset, suffix)
                if companion not in mended.outcome.files and not log.pieces:
                    continue  # a new segment, which begins without one
                if suffix == ".timeindex" and not timed:
                    continue  # of a release that knew none; a broker that does makes it when it loads the log
                wrong = bool(self.of(companion)) or companion in self.reasons
                missing = any(finding.code == f"{suffix[1:]}/missing" for finding in self.of(name))
                anew = changed or (log.walked and self.options.rebuild_all)
                if anew or ((wrong or missing) and (log.walked or log.proved)):
                    self.after[companion] = FileContent()

    def _snapshots(self, mended: AcceptedLog, logs: Mapping[str, PlannedSegment]) -> None:
        outcome = mended.outcome
        written = {file_name(offset, ".snapshot") for offset in outcome.snapshots}
        kept = {name for name in outcome.files if name.endswith(".snapshot")}
        if self.options.rebuild_all:
            self.after.update({name: FileContent() for name in kept & written})
            for name in self.sizes:
                if name.endswith(".snapshot") and name not in kept:
                    self.after[name] = None
            return
        changed = [log.base_offset for name, log in logs.items() if name in self.after]
        changed += [number for name in self.gone_logs(logs) if (number := number_of(name)) is not None]
        borders = {*(log.base_offset for log in logs.values()), outcome.log_end_offset}
        border = min(changed, default=None)
        for name in self.sizes:
            if not name.endswith(".snapshot"):
                continue
            offset = number_of(name)
            stale = offset is None or (border is not None and offset > border)
            if name in self.reasons or stale or self.of(name):
                again = offset is not None and offset in borders and offset <= outcome.log_end_offset
                self.after[name] = FileContent() if again else None
        if changed and (end := file_name(outcome.log_end_offset, ".snapshot")) in written and outcome.log_end_offset:
            self.after.setdefault(end, FileContent())

    def _epochs(self, mended: AcceptedLog) -> None:
        outcome, there = mended.outcome, EPOCHS in self.sizes
        codes = {finding.code for finding in self.of(EPOCHS)}
        changed = any(name.endswith(self.suffix) for name in self.after)
        entries = outcome.epochs
        if not self.options.rebuild_all:
            if mended.epochs_are_lost or not codes.isdisjoint(_EPOCH_CODES):
                # What the file should say stands in the batches; a broker looks only at those that it walks.
                mended.view.remove(EPOCHS, min(codes, default="epoch/format"))
                entries = mended.foresee(0).epochs
            elif not changed:
                return
        if self.options.rebuild_all:
            if not there and not outcome.epochs_written:
                self.after[EPOCHS] = FileContent(data=b"")
            same = not outcome.epochs_written and not mended.epochs_are_lost
        else:
            same = not (there or entries) or (there and self._current_epochs() == entries)
        if not same:
            self.after[EPOCHS] = FileContent(data=build_epochs([EpochEntry(*entry) for entry in entries]))

    def _current_epochs(self) -> tuple[tuple[int, int], ...] | None:
        try:
            with FileSource(os.path.join(self.directory, EPOCHS)) as source:
                data = whole(source, MAX_BYTES)
            return tuple((entry.epoch, entry.start_offset) for entry in epoch_entries(data))
        except (SourceError, CheckpointError):
            return None

    # ---- Kafka 0.7

    def kafka07(self) -> Plan:
        """A broker of 0.7 looks at the newest file alone, and cuts it behind its last whole message with a right checksum (Log.scala of 0.7)."""
        logs = {}
        for file in self.report.files:
            name, base = os.path.basename(file.file.path), file.file.base_offset
            if base is None:
                continue
            stop = self.sizes.get(name, 0)
            if file.file.newest:
                stop = min([stop, *(one.position for one in self.of(name) if one.code in CUTS)])
            logs[name] = PlannedSegment(base, (Piece(name, 0, stop),) if stop else (), proved=False, walked=False)
        return self.of_kafka07(logs)

    def of_kafka07(self, logs: Mapping[str, PlannedSegment]) -> Plan:
        """The plan that leaves these files; there are no companions."""
        for name, log in logs.items():
            if log.pieces != self.whole(name) or name not in self.sizes:
                self.after[name] = FileContent(log.pieces) if log.pieces else FileContent(data=b"")
        for name in self.gone_logs(logs):
            self.after[name] = None
        start = min((log.base_offset for log in logs.values()), default=None)
        end = max((log.base_offset + log.size for log in logs.values()), default=None)
        return self.plan(logs, start, end)
