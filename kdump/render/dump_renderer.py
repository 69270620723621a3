"""The interface of the formats of a dump: one method for each kind of event."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypeAlias

from kdump.errors import if_unexpected
from kdump.named_tuple import NamedTuple
from kdump.render.base import Renderer, RenderOptions
from kdump.render.escaping import Path

if TYPE_CHECKING:
    from kdump.dump.events import (
        BatchRun,
        Event,
        IndexReport,
        IsolationNote,
        LogChange,
        MatchCount,
        NonConsecutiveOffsets,
        StderrEvent,
        StoredBytes,
    )
    from kdump.dump.undecoded import CountingDecoder
    from kdump.format.batch import Batch
    from kdump.format.internal_topics.decoded import DecodedRecord, RecordDecoder
    from kdump.format.json_types import Fields
    from kdump.format.value_schemas.value_decoder import ValueDecoder
    from kdump.kernel.internal_topic_text import MessageFormatter
    from kdump.kernel.lines import Lines
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.findings import Finding

    DumpMessage: TypeAlias = "StderrEvent | StderrLine | Finding"
    """What the rendering of a dump gives back: what belongs on standard error, and findings, which it has rendered."""


class StderrLine(NamedTuple):
    """A line for standard error as it is; `failed` when it says that something could not be shown."""

    text: str
    failed: bool = False


class DumpRenderer(Renderer):
    """The events of a dump."""

    decodes_again: ClassVar[bool] = False
    """Whether it may decode a record more than once, one record after the other."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self.decoder: RecordDecoder | None = None
        """That of the records of the last batch, where they are to be shown as messages."""
        self.counting_decoder: CountingDecoder | None = None
        """That of the records of the file."""
        self._formatters: dict[str, MessageFormatter] = {}
        self.aborted = False
        """Whether the transaction of the last batch is known to be aborted."""
        self.value_decoder: ValueDecoder | None = None
        """That of the records of the last batch, where they are to be shown as decoded values."""

    # ---- files

    def begin(self, path: Path) -> None:  # not every format shows it
        """A file begins: what follows up to `end` is in it."""

    def end(self, path: Path) -> None:
        """The file ends."""

    @abstractmethod
    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        """A record batch, or a message of magic 0 or 1.

        `damage` is the code of what is wrong with all of it. `crc_ok` says whether its CRC is right; it is None where
        the CRC was not computed.
        """

    @abstractmethod
    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        """Records of the last batch. May be called several times for one batch."""

    def batches(self, path: Path, topic: str | None, partition: int | None, run: BatchRun) -> int:
        """Adjacent batches with their records, as many as can be written at once; returns how many these are."""
        return 0

    def write_run(
        self, lines: Lines, run: BatchRun, head: bytes, batch_head: bytes | None, messages: MessageFormatter | None
    ) -> int:
        """Write the lines of a run (Lines.batches); returns how many batches these are."""
        walk, first = run.chunk.walk, run.first
        rows, window, after = walk.scanner.rows, walk.window, first
        while after < run.stop:
            begin = after
            text, after = lines.batches(rows, begin, run.stop, *window, head, batch_head, run.payload, messages)
            if after == begin:
                break
            self.out.write(text)
            del text  # so that its buffer is used again
        return after - first

    def messages(self, style: str) -> MessageFormatter | None:
        """What writes the records of the file as messages in the style `text` or `json`; None where they are none."""
        decoder = self.counting_decoder
        if decoder is None:
            return None
        found = self._formatters.get(decoder.topic)
        if found is None:
            from kdump.render.message_programs import message_formatter  # only internal topics need it

            found = message_formatter(decoder.tables, style, self.options.bytes_mode)
            self._formatters[decoder.topic] = found
        return found

    @abstractmethod
    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """Bytes between batches that are not a batch of this log."""

    @abstractmethod
    def tail(self, path: Path, tail: Tail) -> None:
        """Bytes after the last batch."""

    def stored(self, path: Path, stored: StoredBytes) -> None:  # only hex shows it
        """The bytes of the last batch, gap or tail."""

    def image_line(self, path: Path, kind: str, fields: Fields) -> None:
        """Something of a metadata image, in the order of a tree."""
        self.entry(path, kind, fields)

    def isolation_note(self, note: IsolationNote) -> Iterable[IsolationNote]:
        """Where a committed read ended; returned where it belongs on standard error."""
        return (note,)

    def change(self, change: LogChange) -> None:
        """What became of a log that is followed."""
        self.entry(change.path, change.kind, change.fields)

    # ---- what only Kafka's dump tool shows

    def trailing_bytes(self, path: Path, size_bytes: int) -> None:
        """Bytes at the end of a log file in which Kafka's readers find no batch."""

    def empty_index(self, path: Path) -> None:
        """An offset index has no entries."""

    def sanity_check_passed(self, path: Path) -> None:
        """An index passed its sanity check."""

    def report(self, report: IndexReport | NonConsecutiveOffsets) -> Iterable[StderrLine]:
        """The lines for standard error about differences between an index and its log, and about missing offsets."""
        return ()

    # ---- all of them

    def shows_raw(self, found: DecodedRecord, key: bytes | None) -> bool:
        """Whether a record is shown as it is because its decoder cannot decode it."""
        return found.problem is not None

    def show(self, events: Iterable[Event]) -> Iterator[DumpMessage]:
        """Render the events of a dump as they come. Yields what belongs on standard error, and findings."""
        # verify renders too, and does not load what only a dump needs
        from kdump.dump import events as dump_events
        from kdump.dump.events import (
            BatchEvent,
            BatchRun,
            CompanionDamage,
            CompanionEntry,
            DumpFailure,
            FileBegin,
            FileEnd,
            FollowNote,
        )
        from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail

        path, topic, partition, value_decoder = "", None, None, None
        counting: dict[str, CountingDecoder | None] = {}  # of the files that have not ended
        for event in events:
            try:
                match event:
                    case BatchEvent(batch, damage):
                        self.aborted = event.aborted
                        if not event.again:
                            self.batch(path, batch, damage, event.crc_ok)
                        self._choose_decoder(batch, batch.control or damage is not None, value_decoder)
                        for piece in event.records.pieces() if event.records is not None else ():
                            self.records(path, topic, partition, batch, piece)
                    case BatchRun():
                        event.taken = self.batches(path, topic, partition, event)
                    case FileBegin(file, topic_partition):
                        path, value_decoder = file.path, event.value_decoder
                        if event.decoder is not None and path not in counting:
                            counting[path] = self._counting(event.decoder)
                        self.counting_decoder = counting.get(path)
                        topic, partition = (None, None) if topic_partition is None else topic_partition
                        if not event.again:
                            self.begin(path)
                    case Gap() | ForeignBatch() | SearchLimit():
                        self.gap(path, event)
                    case Tail():
                        self.tail(path, event)
                    case dump_events.StoredBytes():
                        self.stored(path, event)
                    case FileEnd():
                        counting.pop(path, None)
                        yield from self._undecoded(path)
                        self.end(path)
                    case CompanionEntry(kind, fields):
                        self.entry(path, kind, fields)
                    case DumpFailure() | dump_events.NothingAtOffset() | CompanionDamage() | FollowNote():
                        yield event
                    case dump_events.IsolationNote():
                        yield from self.isolation_note(event)
                    case dump_events.IndexReport() | dump_events.NonConsecutiveOffsets():
                        yield from self.report(event)
                    case _:
                        self._show_line(event)
            except Exception as error:  # noqa: BLE001  # the next event may be of another file
                yield DumpFailure(if_unexpected(path, error))

    def _show_line(self, event: Event) -> None:
        """Render an event of which a dump has few, or none."""
        from kdump.dump import events as dump_events
        from kdump.verify.findings import Finding

        match event:
            case dump_events.ImageLine(path, kind, fields):
                self.image_line(path, kind, fields)
            case Finding():
                self.finding(event)
            case dump_events.RecordCount(count):
                self.record_count(count)
            case dump_events.MatchCount():
                self.match_count(event)
            case dump_events.LogChange():
                self.change(event)
            case dump_events.OutputFlush():
                self.flush()
            case dump_events.TrailingBytes():
                self.trailing_bytes(event.path, event.size_bytes)
            case dump_events.EmptyIndex():
                self.empty_index(event.path)
            case dump_events.SanityCheckPassed():
                self.sanity_check_passed(event.path)

    def record_count(self, records: int) -> None:
        """The number of records that a dump has found, in place of the records."""
        self.out.write(f"{records}\n")

    def match_count(self, count: MatchCount) -> None:  # records for other programs end with the last one
        """How many of the records that a dump compared are shown."""

    def _choose_decoder(self, batch: Batch, is_raw: bool, value_decoder: ValueDecoder | None) -> None:
        """What decodes the records of a batch; nothing where they are `is_raw`."""
        if self.counting_decoder is not None:
            self.counting_decoder.batch = batch
        self.decoder, self.value_decoder = (None, None) if is_raw else (self.counting_decoder, value_decoder)

    def _undecoded(self, path: str) -> Iterator[Finding]:
        """Render and yield what is to be said of the records of a file that could not be decoded."""
        if self.counting_decoder is not None and (found := self.counting_decoder.finding(path)) is not None:
            self.finding(found)
            yield found

    def _counting(self, decoder: RecordDecoder | None) -> CountingDecoder | None:
        if decoder is None:
            return None
        from kdump.dump.undecoded import CountingDecoder  # only internal topics need it

        return CountingDecoder(decoder, self.shows_raw, remembers=self.decodes_again)
