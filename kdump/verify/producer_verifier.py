"""Replay the producers of a partition over its segments, and check its producer snapshots against the replay."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kdump.format.naming import COORDINATOR_TOPICS
from kdump.kernel.producers import Producers
from kdump.storage.file_store import status_of
from kdump.storage.partition import LogFile, Partition
from kdump.verify.index_verifier import CompanionReader
from kdump.verify.log_state import LogState
from kdump.verify.report import Report

if TYPE_CHECKING:
    from kdump.kernel.producer_results import AbortedTxn
    from kdump.verify.checks.hanging import OpenTransaction
    from kdump.verify.checks.producer_snapshots import Snapshot


class ProducerVerifier:
    """The producers of a partition in log order. Findings go into the report.

    A segment is `begin_segment`, its events to the function that this returns, then `end_segment`.
    """

    def __init__(self, partition: Partition, report: Report, reader: CompanionReader, log_start: int) -> None:
        name = partition.topic_partition
        first = next((one.log.base_offset for one in partition.segments), None)
        self._producers = Producers(sequences=name is None or name.topic not in COORDINATOR_TOPICS, complete=first == 0)
        self._snapshots = {file.base_offset: file for file in partition.producer_snapshots}
        self._partition = partition
        self._report = report
        self._reader = reader
        self._log_start = log_start

    def begin_segment(self, base_offset: int | None, state: LogState) -> Callable[[bytes], None]:
        """Begin a segment. Returns the function that takes its events in log order."""
        if base_offset is None:
            return self._producers.replay
        file = self._snapshots.pop(base_offset, None)
        if state.previous is None:
            if file is not None and (found := self._read(file)) is not None and base_offset > 0:
                from kdump.verify.checks.producer_snapshots import entry_bytes

                self._producers.load(entry_bytes(found))
        elif state.end_offset != base_offset:
            self._producers.forget(missing=True)
            state.broken = True
            if file is not None:
                self._read(file)
        elif file is not None:
            self._compare(file, state)
        return self._producers.replay

    def end_segment(self, path: str, *, compacted: bool) -> frozenset[str]:
        """Report what the replay found in a segment. Returns the codes of it."""
        problems, counts, tallies = self._producers.take()
        if counts or tallies:
            from kdump.verify.catalogue import CATALOGUE
            from kdump.verify.checks import producers
            from kdump.verify.findings import KEPT

            for code, count in counts.items():
                # The kernel keeps KEPT.
                self._report.count_not_kept(path, code, CATALOGUE[code].severity, max(0, count - KEPT))
            self._report.add(producers.explain(path, problems))
            self._report.add(producers.tallies(path, tallies, compacted=compacted))
        return frozenset(counts)

    def aborted(self) -> "list[AbortedTxn]":
        """The aborted transactions whose markers are in the segment that ended."""
        return self._producers.aborted()

    def open_by_producer(self) -> Mapping[int, int]:
        """The first offset of each open transaction, by producer id."""
        return {transaction.producer_id: transaction.first_offset for transaction in self._producers.open()}

    def reach(self, offset: int) -> bool:
        """Whether an open transaction has a first offset that is not below this one."""
        return any(transaction.first_offset >= offset for transaction in self._producers.open())

    def open_transactions(self) -> "list[OpenTransaction]":
        """The transactions that are open at the end of the log."""
        found = []
        for producer_id, epoch, first, timestamp_ms, certain in self._producers.open():
            from kdump.verify.checks.hanging import OpenTransaction  # imports the decoder of the transaction log

            before = [one for one in self._partition.segments if (one.log.base_offset or 0) <= first]
            path = before[-1].log.path if before else self._partition.segments[0].log.path
            name = self._partition.topic_partition
            found.append(OpenTransaction(name, path, producer_id, epoch, first, timestamp_ms, certain))
        return found

    def check_end(self, state: LogState) -> None:
        """Check the snapshots that are at no base offset. One at the end of the log is the state there."""
        partition, end = self._partition, state.end_offset
        rest = [file for file in self._snapshots.values() if file.base_offset is not None]
        for file in rest:
            if file.base_offset == end and state.previous is not None:
                self._compare(file, state)
            else:
                self._read(file)
        bases = [one.log.base_offset for one in partition.segments if one.log.base_offset is not None]
        if partition.segments and rest:
            from kdump.verify.checks import producer_snapshots

            self._report.add(producer_snapshots.check_names(rest, bases, end))
        if partition.whole and len(bases) > 1 and len(self._producers):
            from kdump.verify.checks import producer_snapshots

            path = partition.segments[len(bases) - 1].log.path
            self._report.add(producer_snapshots.check_missing(path, partition.producer_snapshots, bases[-1]))

    def _read(self, file: LogFile) -> "Snapshot | None":
        """A snapshot whose entries can be used."""
        data = self._reader.read(file)
        if data is None:
            return None
        from kdump.verify.checks import producer_snapshots

        found, findings = producer_snapshots.check_structure(file.path, data)
        self._report.add(findings)
        return found

    def _compare(self, file: LogFile, state: LogState) -> None:
        """Check a snapshot against the replay, which has come to its offset."""
        found = self._read(file)
        if found is None:
            return
        from kdump.verify.checks import producer_snapshots

        differences = self._producers.compare(producer_snapshots.entry_bytes(found))
        if differences:
            # A broker uses its clock to forget a silent producer, and writes the others.
            latest = max(self._report.max_timestamp, _changed_ms(file))
            known = self._producers.entries()
            incomplete = state.compacted or state.broken
            self._report.add(
                producer_snapshots.check_state(
                    file.path, found, differences, known, latest, incomplete, self._log_start
                )
            )


def _changed_ms(file: LogFile) -> int:
    """When the file was last modified, -1 where it is gone."""
    try:
        return status_of(file.path).st_mtime_ns // 1_000_000
    except OSError:
        return -1
