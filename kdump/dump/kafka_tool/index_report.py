"""How an offset or time index differs from its log, as Kafka's dump tool compares them.

Offset index: the tool reads the batch at the position of an entry. The last offset of the batch has to be that of the
entry.

Time index: the tool looks up the offset of an entry in the offset index. From there it walks the log to the first batch
whose last offset reaches it. The offset has to be the last one of that batch, and the timestamp the largest one of its
records.

The tool ends an index where padding begins: at an entry of the base offset that is not the first one. It takes batches
by their lengths (`kdump.broker.file_records`) and computes no checksum.

Brokers themselves write entries that the tool reports, so a report has a severity of its own:

* Before Kafka 2.0 a broker wrote the offset of the first record of a batch. Since then it writes the last offset of all
  batches that were appended together.
* The tool knows no timestamp of messages of magic 0, nor of a batch that compaction has emptied.
"""

import os
from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

from kdump.dump.events import CompanionDamage, IndexReport, ReportKind
from kdump.dump.kafka_tool.index_check import INDEX_ENTRIES
from kdump.dump.kafka_tool.log_reader import NO_TIMESTAMP, UNREADABLE, BatchSearch, FramedBatch, LogReader, OffsetLookup
from kdump.errors import SourceError
from kdump.format.index import TIME_ENTRY, blocks
from kdump.format.naming import Kind
from kdump.storage.file_store import exists, open_source
from kdump.storage.partition import LogFile
from kdump.storage.source import Source, reader_of
from kdump.verify.findings import Severity

_Item = TypeVar("_Item")

_ENTRIES_AT_ONCE = 1 << 17
"""Entries of a time index that share one walk through the log."""


def compare_index(file: LogFile, source: Source, max_batch_bytes: int) -> Iterator[IndexReport | CompanionDamage]:
    """What the tool reports of an index, and where the tool would end with an exception.

    Raises SourceError when the log beside the index cannot be read.
    """
    entries = _entries(file, source)
    if next(entries, None) is None:
        return
    if file.base_offset is None:
        raise SourceError(f"{file.path}: not compared with a log: no base offset in its name")
    directory, name = os.path.split(file.path)
    stem = os.path.join(directory, name.partition(".")[0])
    try:
        with open_source(f"{stem}.log") as log:
            if file.kind is Kind.INDEX:
                yield from _compare_offsets(file, source, LogReader(log, max_batch_bytes))
                return
            if exists(f"{stem}.index"):
                with open_source(f"{stem}.index") as offset_index:
                    lookup = OffsetLookup(offset_index)
            else:
                lookup = OffsetLookup(None)
                missing = f"{name.partition('.')[0]}.index"
                yield CompanionDamage(
                    file.path,
                    Severity.WARNING,
                    f"{missing} is missing; offsets are searched from the beginning of the log",
                )
            yield from _compare_times(file, source, LogReader(log, max_batch_bytes), lookup)
    except SourceError as error:
        raise SourceError(f"{file.path}: not compared with its log: {error}") from None


def _entries(file: LogFile, source: Source) -> Iterator[tuple[int, int]]:
    """The entries that the tool reads: relative offset and position, or timestamp and relative offset."""
    entry = INDEX_ENTRIES[file.kind]
    relative = 0 if file.kind is Kind.INDEX else 1
    first = True
    for slots in blocks(reader_of(source), source.size - source.size % entry.size, entry.size):
        for pair in entry.iter_unpack(slots):
            if pair[relative] == 0 and not first:
                return
            yield pair
            first = False


def _compare_offsets(file: LogFile, source: Source, log: LogReader) -> Iterator[IndexReport | CompanionDamage]:
    base = file.base_offset or 0
    mismatches = _ReportBuilder(file.path, ReportKind.OFFSET)
    beyond = _ExceptionCounter(file, f"point beyond the end of the log, which has {log.size} bytes")
    no_batch = _ExceptionCounter(file, "point to bytes that are not a batch")
    ahead: list[tuple[int, int]] = []
    for relative, position in _entries(file, source):
        offset = base + relative
        try:
            batch = log.batch_at(position) if position >= 0 else None
        except ValueError:
            batch = None
        if batch is None:
            (beyond if position >= log.size else no_batch).add(offset, position)
        elif batch.last_offset != offset:
            mismatches.add(offset, batch.last_offset, log.severity_of(batch, offset, Severity.ERROR))
            if offset > batch.last_offset:
                ahead.append((position, offset))
    if not all(log.are_last_offsets(chunk) for chunk in _chunks(iter(ahead))):
        mismatches.raise_severity(Severity.WARNING)
    yield from mismatches.report()
    yield from beyond.damage()
    yield from no_batch.damage()


def _compare_times(
    file: LogFile, source: Source, log: LogReader, lookup: OffsetLookup
) -> Iterator[IndexReport | CompanionDamage]:
    base = file.base_offset or 0
    mismatches, out_of_order, not_found = (
        _ReportBuilder(file.path, kind) for kind in (ReportKind.TIMESTAMP, ReportKind.ORDER, ReportKind.NOT_FOUND)
    )
    outside = _ExceptionCounter(file, "are looked up outside of the log, by the offset index")
    cut_off = _ExceptionCounter(file, "are not found before bytes of the log that are not a batch")
    unopened = _ExceptionCounter(file, "belong to a batch that cannot be opened")
    previous = NO_TIMESTAMP
    padded = source.size > TIME_ENTRY.size
    for entries in _chunks(_entries(file, source)):
        positions = [lookup.position(relative) for _, relative in entries]
        found, cut = _find(log, [(positions[number], base + entries[number][1]) for number in range(len(entries))])
        for number, (timestamp, relative) in enumerate(entries):
            offset = base + relative
            batch = found.get(number)
            if number in cut:
                cut_off.add(timestamp, offset)
            elif not 0 <= positions[number] <= log.size:
                outside.add(timestamp, offset)
            elif batch is None:
                not_found.add(offset, -1, Severity.WARNING)
            elif batch.last_offset != offset:
                not_found.add(offset, batch.last_offset, log.severity_of(batch, offset, Severity.WARNING))
            elif (largest := log.largest_timestamp(batch)) is None:
                unopened.add(timestamp, offset)
            else:
                if largest != timestamp:
                    # the tool takes the first slot of an index that is all padding for an entry
                    padding = timestamp == relative == 0 and padded
                    unknown = batch.magic == 0 or batch.header_fields.max_timestamp == timestamp
                    mismatches.add(timestamp, largest, Severity.INFO if padding or unknown else Severity.WARNING)
                if previous >= timestamp:
                    out_of_order.add(timestamp, previous, Severity.ERROR)
            previous = timestamp
    for builder in (mismatches, out_of_order, not_found):
        yield from builder.report()
    for counter in (outside, cut_off, unopened):
        yield from counter.damage()


def _find(log: LogReader, targets: list[tuple[int, int]]) -> tuple[dict[int, FramedBatch], set[int]]:
    """For each pair of position and offset, by its number: the first batch from there that reaches the offset.

    Returns also the numbers whose walk ends with an exception.
    """
    wanted = [
        BatchSearch(position, offset, number)
        for number, (position, offset) in enumerate(targets)
        if 0 <= position <= log.size
    ]
    found: dict[int, FramedBatch] = {}
    cut: set[int] = set()
    for batch, numbers in log.search(wanted):
        if batch is UNREADABLE:
            cut.update(numbers)
        else:
            found.update(dict.fromkeys(numbers, batch))
    return found, cut


class _ReportBuilder:
    """Collects the pairs of one report, and the worst severity among them."""

    def __init__(self, path: str, kind: ReportKind) -> None:
        self._report = IndexReport(path, kind, [], Severity.INFO)

    def add(self, indexed: int, found: int, severity: Severity) -> None:
        self._report.pairs.append((indexed, found))
        self.raise_severity(severity)

    def raise_severity(self, severity: Severity) -> None:
        if severity > self._report.severity:
            self._report = self._report._replace(severity=severity)

    def report(self) -> Iterator[IndexReport]:
        if self._report.pairs:
            yield self._report


class _ExceptionCounter:
    """Counts entries at which the tool would end with an exception, and names the first one."""

    def __init__(self, file: LogFile, what: str) -> None:
        self._path = file.path
        self._what = what
        self._entry = "offset {} at position {}" if file.kind is Kind.INDEX else "timestamp {} offset {}"
        self._count = 0
        self._first: tuple[int, int] = (0, 0)

    def add(self, first: int, second: int) -> None:
        if not self._count:
            self._first = first, second
        self._count += 1

    def damage(self) -> Iterator[CompanionDamage]:
        if self._count:
            first = self._entry.format(*self._first)
            reason = f"entries that {self._what}: {self._count}, the first one has {first}"
            yield CompanionDamage(self._path, Severity.ERROR, reason)


def _chunks(items: Iterator[_Item]) -> Iterator[list[_Item]]:
    while chunk := list(islice(items, _ENTRIES_AT_ONCE)):
        yield chunk
