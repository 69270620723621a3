"""The events of a dump as Kafka's dump tool sees them: the batches, entries and messages that it shows, in its order.

The tool walks a log by the lengths of its batches alone (`kdump.broker.file_records.FileLogInputStream`). It therefore
shows bytes as a batch that kdump reports as a gap, and misses batches after a wrong length. Differences:

* Where the tool ends with an exception, these events go on with the next batch. A `CompanionDamage` after the last file
  says where the tool would end.
* Messages about indexes and about offsets come after the last file: each kind in the order of a `java.util.HashMap`.
* Gaps, tails and a file that shrinks have no line in the tool's output.
"""

from collections.abc import Iterable, Iterator
from os.path import basename

from kdump.broker.file_records import FileLogInputStream, batch_checksum
from kdump.dump.events import (
    SHOWN_BATCH_BYTES,
    BatchEvent,
    CompanionDamage,
    CompanionEntry,
    EmptyIndex,
    Event,
    FileBegin,
    FileEnd,
    IndexReport,
    NonConsecutiveOffsets,
    ReportKind,
    TrailingBytes,
)
from kdump.dump.kafka_tool.java_paths import Path, absolute_path, file_path
from kdump.errors import KdumpError, NotShown, SourceError
from kdump.format.batch import CODECS, MINIMUM_SIZE, Batch, wrapped
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY
from kdump.format.java import MAX_INT, hash_map_order_of_strings, parse_integer
from kdump.format.naming import Kind
from kdump.kernel.records import RECORD_COLUMNS
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.records import OpenedBatch, open_in_pieces
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, ShrunkFile, Tail
from kdump.verify.findings import Severity

_KINDS = (Kind.LOG, Kind.CHECKPOINT, Kind.INDEX, Kind.TIMEINDEX, Kind.TXNINDEX, Kind.SNAPSHOT)

_WIDTH = len(RECORD_COLUMNS)
_OFFSET = RECORD_COLUMNS.index("offset")


class UnreadableByTool(KdumpError):
    """A log of Kafka 0.7, which Kafka's dump tool cannot read."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: --format kafka shows what Kafka's dump tool shows, and the tool cannot read the log of Kafka 0.7"
        )
        self.path = path

    def __reduce__(self) -> tuple[type["UnreadableByTool"], tuple[str]]:
        return UnreadableByTool, (self.path,)


class Heading(NamedTuple):
    """What the tool reads from the name of a file before it opens the file; `snapshot_id` is offset and epoch."""

    path: str
    log_start_offset: int | None
    snapshot_id: tuple[int, int] | None
    bootstrap: bool


def heading(path: Path) -> Heading:
    """What the tool reads from the name of a file. None stands for a number that it cannot read."""
    text = file_path(path)
    name = basename(text)
    if name.endswith(".log"):
        return Heading(text, base_offset_in_name(path), None, False)
    if name == "bootstrap.checkpoint":
        return Heading(text, None, None, True)
    if name.endswith(".checkpoint"):
        offset, epoch = parse_integer(name[:20], 64), parse_integer(name[21:31], 32)
        if offset is not None and epoch is not None:
            return Heading(text, None, (offset, epoch), False)
    return Heading(text, None, None, False)


def base_offset_in_name(path: Path) -> int | None:
    """The number before the first dot of a file name, as `Long.parseLong` reads it."""
    return parse_integer(basename(file_path(path)).split(".")[0], 64)


def tool_files(files: Iterable[LogFile | SourceError]) -> Iterator[LogFile | SourceError]:
    """The files, with the error `NotShown` in place of a file that the tool does not show.

    Raises UnreadableByTool for a log of Kafka 0.7.
    """
    for file in files:
        if not isinstance(file, LogFile) or file.kind in _KINDS:
            yield file
        elif file.kind is Kind.KAFKA07:
            raise UnreadableByTool(file.path)
        else:
            yield NotShown(file.path)


def tool_events(
    events: Iterable[Event], *, records: bool, max_bytes: int | None, max_batch_bytes: int = SHOWN_BATCH_BYTES
) -> Iterator[Event]:
    """The events of a dump (`DumpOptions.force`, without limits of offsets) as the tool shows them.

    `records` says that the dump has records, `max_bytes` is its limit for each log file, `max_batch_bytes`
    that for each batch.
    """
    return _DumpLogSegments(records, max_bytes, max_batch_bytes).events(events)


class _DumpLogSegments:
    """The state of the tool while it goes through the files; `_begin` sets what belongs to one file."""

    def __init__(self, records: bool, max_bytes: int | None, max_batch_bytes: int) -> None:
        self._records = records
        self._max_batch_bytes = max_batch_bytes
        self._max_bytes = max_bytes
        self._stream: FileLogInputStream | None = None
        self._stops: dict[str, str] = {}
        self._reports: dict[ReportKind, dict[str, IndexReport]] = {kind: {} for kind in ReportKind}
        self._jumps: dict[str, dict[int, int]] = {}

    def events(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            match event:
                case BatchEvent(batch=batch, records=records):
                    if self._stream is not None and self._stream.position < batch.position:
                        yield from self._catch_up(batch.position)
                    if self._stream is None or self._stream.accepts(batch):
                        self._take(batch, records)
                        yield event
                case FileBegin():
                    self._begin(event)
                    yield event
                case CompanionEntry():
                    if self._shows_entry(event):
                        yield event
                case Gap() | ForeignBatch() | SearchLimit() | Tail() | ShrunkFile():
                    pass
                case FileEnd():
                    yield from self._end(event)
                case IndexReport():
                    self._report(event)
                case CompanionDamage():
                    # the tool shows nothing of a producer snapshot that a broker would not load
                    self._refused = True
                    yield event
                case _:
                    yield event
        yield from self._messages()

    # ---- a file

    def _begin(self, event: FileBegin) -> None:
        self._path = event.file.path
        self._base_offset = base_offset_in_name(self._path)
        self._valid_end = self._entries = 0
        self._padding = self._refused = False
        self._last_offset = -1
        self._read = event.read
        self._stream = None
        if event.read is not None:
            self._stream = FileLogInputStream(event.read, event.file.size, self._max_bytes)

    def _end(self, event: FileEnd) -> Iterator[Event]:
        name = basename(file_path(self._path))
        if name.endswith((".log", ".checkpoint")):
            if event.whole:
                yield from self._catch_up(event.size)
            trailing_bytes = event.size - self._valid_end
            if event.whole and trailing_bytes > 0 and self._max_bytes in (None, MAX_INT):
                yield TrailingBytes(self._path, trailing_bytes)
        elif name.endswith(".index") and event.size < OFFSET_ENTRY.size:
            yield EmptyIndex(self._path)
        elif event.whole and not self._entries and self._base_offset is not None:
            # the padding of an index is no entry, but the tool shows its first slot
            if name.endswith(".index"):
                yield CompanionEntry("index_entry", {"offset": self._base_offset, "position": 0})
            elif name.endswith(".timeindex") and event.size >= TIME_ENTRY.size:
                yield CompanionEntry("time_index_entry", {"timestamp": 0, "offset": self._base_offset})
        yield event

    def _shows_entry(self, event: CompanionEntry) -> bool:
        if event.kind in ("index_entry", "time_index_entry"):
            # an entry at the base after the first one is the zero padding of a crashed broker; the tool stops there
            if self._entries and event.fields["offset"] == self._base_offset:
                self._padding = True
            self._entries += 1
            return not self._padding
        return event.kind != "producer" or not self._refused

    # ---- batches

    def _catch_up(self, position: int) -> Iterator[BatchEvent]:
        """The batches before `position` that only Kafka's reader sees."""
        if self._stream is None or self._read is None:
            return
        for batch in self._stream.batches_before(position):
            records = None
            if self._records and batch.size <= self._max_batch_bytes:
                records = open_in_pieces(batch, self._read(batch.position, batch.size), self._max_batch_bytes)
            self._take(batch, records)
            yield BatchEvent(batch, None, records, batch_checksum(self._read, batch) == batch.crc)
        if self._stream.raised_at is not None:
            self._stop(f"at byte {self._stream.raised_at}, where a batch would have less than {MINIMUM_SIZE[0]} bytes")

    def _take(self, batch: Batch, records: OpenedBatch | None) -> None:
        self._valid_end = batch.position + batch.size
        if batch.codec >= len(CODECS):
            self._stop(f"at byte {batch.position}, at a batch of the unknown codec {batch.codec}")
        if records is None or self._stream is None:
            return
        for piece in records.pieces():
            self._follow(piece.rows[_OFFSET::_WIDTH].tolist())
        # Of a compressed message the tool decompresses everything before it shows a record.
        undecoded = records.problem == "batch/codec" and not records.records
        if records.problem not in (None, "batch/limit") and (undecoded or not batch.is_legacy):
            self._stop(
                f"in the records of the batch at byte {batch.position}, which cannot be read ({records.problem})"
            )

    def _follow(self, offsets: list[int]) -> None:
        """Keep the offsets that do not follow the offset before them (DumpLogSegments.dumpBatchRecords)."""
        first, count = self._last_offset + 1, len(offsets)
        # most batches have no jump; one comparison finds that out
        if offsets != list(range(first, first + count)):
            for previous, offset in zip([self._last_offset, *offsets], offsets, strict=False):
                if offset != wrapped(previous + 1, 64):
                    self._jumps.setdefault(absolute_path(self._path), {})[previous] = offset
        if offsets:
            self._last_offset = offsets[-1]

    def _stop(self, why: str) -> None:
        """The tool would end here with an exception, and show nothing of what follows."""
        if self._stream is not None:
            self._stops.setdefault(self._path, why)

    # ---- after the last file

    def _report(self, report: IndexReport) -> None:
        path = absolute_path(report.path)
        of_kind = self._reports[report.kind]
        if path in of_kind:
            of_kind[path].pairs.extend(report.pairs)
        else:
            of_kind[path] = report._replace(path=path, pairs=list(report.pairs))

    def _messages(self) -> Iterator[Event]:
        for path, why in self._stops.items():
            yield CompanionDamage(path, Severity.ERROR, f"Kafka's tool ends with an exception {why}")
        for kind, reports in self._reports.items():
            for path in hash_map_order_of_strings(reports):
                report = reports[path]
                if kind is ReportKind.OFFSET:
                    # the tool keeps these in a TreeMap, in which a later entry replaces one with the same offset
                    report = report._replace(pairs=sorted(dict(report.pairs).items(), reverse=True))
                yield report
        for path in hash_map_order_of_strings(self._jumps):
            yield NonConsecutiveOffsets(path, sorted(self._jumps[path].items()))
