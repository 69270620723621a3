"""Whether the transactions that are open after a recovery still get their markers, by the transaction log beside them.

What is removed can hold a marker that the coordinator has written, and does not write again.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kdump.errors import SourceError
from kdump.format.naming import TRANSACTION_LOG
from kdump.storage.discovery import discover
from kdump.storage.file_store import entries_of, is_directory, parent_of, status_of
from kdump.storage.lock import possible_log_directories
from kdump.storage.partition import LogFile, Partition
from kdump.verify.findings import Finding, Severity
from kdump.verify.report import Report

if TYPE_CHECKING:
    from kdump.verify.checks.hanging import TransactionStates


def findings_left(report: Report, beside: str, *, cut: bool) -> Iterator[Finding]:
    """The findings of a report; txn/open and txn/hanging as the transaction log in the log directory has it (KIP-664).

    `beside` is the path of the partition, or of a segment of it, in that log directory. Where the log was `cut`, a
    transaction is a warning of which the transaction log does not say whether its marker still comes.
    """
    if not report.open:
        yield from report.findings
        return
    from kdump.verify.checks import hanging  # imports the decoder of the transaction log

    known = _transaction_states(beside)
    yield from (finding for finding in report.findings if finding.code not in ("txn/open", "txn/hanging"))
    for transaction in report.open:
        for finding in hanging.check_open_transactions([transaction], report.max_timestamp, known):
            doubtful = cut and finding.code == "txn/open" and not hanging.is_decided(transaction, known)
            severity = Severity.WARNING if doubtful else finding.severity
            yield replace(finding, severity=severity, broker="ignores")  # a start neither ends nor drops a transaction


def _transaction_states(beside: str) -> "TransactionStates | None":
    partition = beside if is_directory(beside) else parent_of(beside)
    for directory in possible_log_directories(partition):
        paths: list[str] = []
        with suppress(OSError), entries_of(directory) as entries:
            paths = [entry.path for entry in entries if entry.name.startswith(f"{TRANSACTION_LOG}-")]
        found = [item for item in discover(paths) if not isinstance(item, Partition) or _is_in_use(item)]
        if found:
            return _states_of(found)
    return None


def _is_in_use(partition: Partition) -> bool:
    """Whether it is a partition of the transaction log, and not one of a topic with a similar name."""
    name = partition.topic_partition
    return name is not None and name.topic == TRANSACTION_LOG and not partition.state


def _states_of(found: Iterable[object]) -> "TransactionStates | None":
    logs: dict[int, tuple[LogFile, ...]] = {}
    whole = True
    for item in found:
        if isinstance(item, Partition) and item.topic_partition is not None:
            logs[item.topic_partition.partition] = tuple(segment.log for segment in item.segments)
        else:
            whole = False  # a partition that cannot be read can know any producer
    try:
        known = _read(tuple(sorted(logs.items())), tuple(_stamps(logs.values()))) if logs else None
    except OSError:  # a file is gone
        return None
    return known if known is None or whole else known._replace(complete=False)


def _stamps(logs: Iterable[tuple[LogFile, ...]]) -> Iterator[tuple[str, int, int]]:
    for file in (file for files in logs for file in files):
        status = status_of(file.path)
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
