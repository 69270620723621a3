"""The plan of a salvage: what kdump.recover.salvage.batches keeps of the logs, and around it what a truncation would do, which then finds nothing to cut."""

import os
from collections.abc import Mapping

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.naming import file_name
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.refusals import AcceptedLog, LogView
from kdump.recover.salvage.batches import BatchConflict, BatchRange, SalvageResult, keep
from kdump.recover.truncate import Truncation
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece
from kdump.verify.report import Report

_BY: Mapping[str, str] = {
    "epoch": "the leader epoch is higher",
    "batches": "there are more batches",
    "position": "the position is lower",
}


def salvage(report: Report, partition: Partition, options: RecoverOptions) -> Plan:
    """What is to be done with the topic-partition directory that the report, with its proofs, is of. Raises SourceError."""
    sound = Truncation(report, options)
    if sound.nothing_to_do:
        return sound.unchanged()
    salvaged = keep(partition, options)
    plan = _Salvage(report, options, salvaged).truncated()
    clashes = tuple(_sentence(clash) for clash in salvaged.clashes)
    return plan._replace(undecided=salvaged.sentences, clashes=clashes)


class _Salvage(Truncation):
    def __init__(self, report: Report, options: RecoverOptions, salvaged: SalvageResult) -> None:
        super().__init__(report, options)
        self._salvaged = salvaged
        self.gaps = {Piece(one.name, one.start, one.stop): one.because for one in salvaged.dropped}
        self.recovery_point = 0

    def prepare(self, view: LogView) -> None:
        """Put what is kept in the place of what is there."""
        kept = {file_name(log.base_offset, self.suffix): log.pieces for log in self._salvaged.segments}
        for name in {os.path.basename(file.file.path) for file in self.report.files} - kept.keys():
            view.pieces.pop(name, None)
        view.pieces.update(kept)

    def companions(self, mended: AcceptedLog, logs: Mapping[str, PlannedSegment]) -> None:
        super().companions(mended, logs)
        for name, data in self._salvaged.transaction_indexes.items():
            if name in self.after:
                self.after[name] = FileContent(data=data)
        for name in self._salvaged.right_indexes:
            self.after.pop(name, None)

    def kafka07(self) -> Plan:
        logs = {file_name(log.base_offset, self.suffix): log for log in self._salvaged.segments}
        return self.of_kafka07(logs)


def _sentence(clash: BatchConflict) -> str:
    return f"kept: {_words(clash.kept)}; dropped: {_words(clash.dropped)}; because of the kept one {_BY[clash.by]}"


def _words(one: BatchRange) -> str:
    return (
        f"{one.batches} {'batch' if one.batches == 1 else 'batches'} of {one.name} at {one.start}-{one.stop} (offsets {one.first_offset}-{one.last_offset},"
        f" leader epochs {one.first_epoch}-{one.last_epoch})"
    )
