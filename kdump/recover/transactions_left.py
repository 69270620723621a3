"""Whether the transactions that are open after a recovery still get their markers, by the transaction log beside them.

What is removed can hold a marker that the coordinator has written, and does not write again.
"""

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kdump.errors import SourceError
from kdump.format.naming import TRANSACTION_LOG
from kdump.storage.discovery import discover
from kdump.storage.partition import LogFile, Partition
from kdump.verify.findings import Finding
from kdump.verify.report import Report

if TYPE_CHECKING:
    from kdump.verify.checks.hanging import TransactionStates


def findings_left(report: Report, log_directory: str) -> Iterator[Finding]:
    """The findings of a report; txn/open and txn/hanging as the transaction log of the log directory has it (KIP-664).

    Without a transaction log there they stay as they are.
    """
    known = _transaction_states(log_directory) if report.open else None
    if known is None:
        yield from report.findings
        return
    from kdump.verify.checks import hanging  # imports the decoder of the transaction log

    yield from (finding for finding in report.findings if finding.code not in ("txn/open", "txn/hanging"))
    for finding in hanging.check_open_transactions(report.open, report.max_timestamp, known):
        yield replace(finding, broker="ignores")  # a start neither ends nor drops a transaction


def _transaction_states(directory: str) -> "TransactionStates | None":
    paths = glob.glob(os.path.join(glob.escape(directory), f"{TRANSACTION_LOG}-*"))
    found = [item for item in discover(paths) if isinstance(item, Partition) and not item.state] if paths else []
    logs = {
        item.topic_partition.partition: tuple(segment.log for segment in item.segments)
        for item in found
        if item.topic_partition is not None
    }
    try:
        return _read(tuple(sorted(logs.items())), tuple(_stamps(logs.values()))) if logs else None
    except OSError:  # a file is gone
        return None


def _stamps(logs: Iterable[tuple[LogFile, ...]]) -> Iterator[tuple[str, int, int]]:
    for file in (file for files in logs for file in files):
        status = os.stat(file.path)
        yield file.path, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1)
def _read(
    logs: tuple[tuple[int, tuple[LogFile, ...]], ...], stamps: tuple[tuple[str, int, int], ...]
) -> "TransactionStates | None":
    """The states; read once for all partitions of a run, as long as the stamps are the same."""
    from kdump.verify.checks import hanging

    try:
        return hanging.read_transaction_states(dict(logs))
    except SourceError:
        return None
