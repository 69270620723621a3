"""Verify a log directory: read its checkpoints first, then check what its partitions show together."""

import os
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from kdump.errors import SourceError
from kdump.format.naming import OFFSET_CHECKPOINTS, TRANSACTION_LOG, TopicPartition
from kdump.storage.file_store import store_of
from kdump.storage.offset_checkpoints import CheckpointOffsets, read_offset_checkpoints
from kdump.storage.partition import LogDirectory, LogFile
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.verify.checks import checkpoints, files
from kdump.verify.checks.checkpoints import PartitionOffsets
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions

if TYPE_CHECKING:
    from kdump.verify.checks.hanging import OpenTransaction, TransactionStates


_LAGGING = frozenset(("checkpoint/unknown", "checkpoint/beyond", "checkpoint/below"))
"""Findings that a running broker causes: its checkpoints lag by a minute while topics and replicas come and go."""


def check_own_transactions(report: Report) -> None:
    """Add the open transactions of a partition outside a log directory; its own timestamps say which ones hang."""
    if report.open:
        from kdump.verify.checks import hanging

        found_open = hanging.check_open_transactions(report.open, report.max_timestamp, None)
        # A start neither ends nor drops a transaction.
        report.add(replace(finding, broker="ignores") if report.whole else finding for finding in found_open)
        report.sort()


class LogDirectoryVerifier:
    """Collects the reports of the partitions with `add`; `conclude` gives the report of the log directory itself.

    Reads the checkpoints before the partitions: a running broker writes both, and the logs only grow.
    """

    def __init__(self, log_directory: LogDirectory, options: ScanOptions) -> None:
        self.log_directory = log_directory
        self._live = options.live or log_directory.locked
        self._now_ms = options.now_ms
        self._report = Report(log_directory.path)
        self._problems: list[tuple[str, str]] = []
        self._contents = {name: self._read(file) for name, file in log_directory.offset_checkpoints.items()}
        if store_of(log_directory.path).is_local:  # others list what they do not give
            unlisted = [name for name in OFFSET_CHECKPOINTS if name not in self._contents]
            self._problems += read_offset_checkpoints(log_directory.path, unlisted).problems
        clean_shutdown = log_directory.clean_shutdown is not None
        self.context = CheckpointOffsets(self._contents, clean_shutdown=clean_shutdown, problems=self._problems).context
        self._facts: dict[TopicPartition, PartitionOffsets] = {}
        self._open: list[OpenTransaction] = []
        self._transaction_log: dict[int, list[LogFile]] = defaultdict(list)

    def _read(self, file: LogFile) -> bytes | None:
        try:
            with file.open() as source:
                # A checkpoint above MAX_CHECKPOINT_BYTES is read too: the check reports it as a finding.
                return read_whole(source, MAX_COMPANION_BYTES)
        except SourceError as error:
            self._report.errors.append(error)
            self._problems.append((os.path.basename(file.path), str(error)))
            return None

    def add(self, report: Report) -> None:
        """Add the report of the next partition."""
        name = report.topic_partition
        if name is None:
            return
        # A partition can have several directories. The one in use counts.
        order = ("", "future", "delete", "stray")
        known = self._facts.get(name)
        if known is None or order.index(report.state) < order.index(known.state):
            self._facts[name] = PartitionOffsets(
                report.first_offset or 0,
                report.log_end_offset if report.end_is_known else None,
                report.topic_id,
                report.state,
            )
        if report.state in ("", "future"):
            self._open += report.open
        if name.topic == TRANSACTION_LOG and not report.state:
            self._transaction_log[name.partition] = [file.file for file in report.files]
        self._report.max_timestamp = max(self._report.max_timestamp, report.max_timestamp)

    def _transaction_states(self) -> "TransactionStates":
        from kdump.verify.checks import hanging

        known = hanging.read_transaction_states(self._transaction_log)
        listed = {one.partition for one in self.log_directory.partitions if one.topic == TRANSACTION_LOG}
        # A partition that cannot be read can know any producer.
        return known._replace(complete=known.complete and listed <= self._transaction_log.keys())

    def conclude(self) -> Report:
        """Check across the partitions. Returns the report of the log directory."""
        report, log_directory = self._report, self.log_directory
        report.add(files.check_log_directory(log_directory, live=self._live))
        report.add(
            finding
            for finding in checkpoints.check_offset_checkpoints(
                log_directory.path, self._contents, self._facts, log_directory.partitions
            )
            if not (self._live and finding.code in _LAGGING)
        )
        for file in (log_directory.meta, log_directory.clean_shutdown):
            if file is not None and (data := self._read(file)) is not None:
                report.add(checkpoints.check_properties(file.path, data))
        if self._open:
            from kdump.verify.checks import hanging

            # While a broker runs, the partitions and the transaction log were read at different times.
            known = None if self._live or not self._transaction_log else self._transaction_states()
            report.add(
                hanging.check_open_transactions(
                    self._open, self._now_ms if self._live and self._now_ms is not None else report.max_timestamp, known
                )
            )
        if report.findings:
            from kdump.verify import reaction

            report.findings = list(reaction.with_directory_reactions(report.findings))
        return report.sort()
