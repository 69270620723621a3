"""The plan of a reindex: companions that are wrong, or all of them, are made anew from the logs as they stand, and no log is touched."""

from kdump.broker.log_loader import EPOCHS
from kdump.broker.predict import predict_start, start_at
from kdump.format.checkpoint import EpochEntry, build_epochs
from kdump.format.naming import INDEX_SUFFIXES, file_name, number_of
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.plan_builder import PlanBuilder
from kdump.verify.report import Report


def reindex(report: Report, options: RecoverOptions) -> Plan:
    """What is to be done with the companions of the topic-partition directory that the report, with its proofs, is of. Raises SourceError.

    The indexes of a damaged log reach as far as a broker would read it. Snapshots and leader epochs come from batches, so that only those of a log without
    damage before them are made anew.
    """
    return _Reindexing(report, options).reindexed()


class _Reindexing(PlanBuilder):
    def reindexed(self) -> Plan:
        if self.nothing_to_do:
            return self.unchanged()
        logs = {}
        for name in sorted(self.sizes):
            base = number_of(name)
            if name.endswith(".log") and base is not None and name == file_name(base, ".log"):
                logs[name] = self.log(name, base, self.whole(name), walked=True)
        for name, log in logs.items():
            for suffix in INDEX_SUFFIXES:
                companion = file_name(log.base_offset, suffix)
                missing = any(finding.code == f"{suffix[1:]}/missing" for finding in self.of(name))
                if (self.options.rebuild_all and log.proved) or missing or self.of(companion):
                    self.after[companion] = FileContent()
        end = self.report.log_end_offset
        sound = all(log.proved for log in logs.values())
        borders = {log.base_offset for log in logs.values()} | ({end} if end is not None else set())
        for name in self.sizes:
            offset = number_of(name)
            if not name.endswith(".snapshot") or offset is None:
                continue
            if self.of(name) or self.options.rebuild_all:
                before = [log for log in logs.values() if log.base_offset < offset]
                if offset in borders and all(log.proved for log in before):
                    self.after[name] = FileContent()
                elif self.of(name):
                    self.after[name] = None  # a broker does so too, and goes back to an older one
        if sound and (self.of(EPOCHS) or (self.options.rebuild_all and EPOCHS in self.sizes)):
            self._epochs()
        return self.plan(logs, self.report.log_start_offset, end)

    def _epochs(self) -> None:
        start = start_at(self.directory, self.report.proved)
        files = {name: size for name, size in start.files.items() if name != EPOCHS}
        entries = predict_start(start._replace(files=files)).epochs
        self.after[EPOCHS] = FileContent(data=build_epochs([EpochEntry(*entry) for entry in entries]))
