"""What the formats have in common that write nothing but records, for other programs: csv, values and templates.

They leave out control records, which no consumer gets. What a dump meets beside records, damaged batches and bytes that
are not a batch, has no line in them and goes to standard error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any

from kdump.errors import SourceError
from kdump.format import naming
from kdump.named_tuple import NamedTuple
from kdump.render.base import RenderOptions
from kdump.render.dump_renderer import DumpRenderer
from kdump.render.escaping import Path, shown_bytes, terminal_worth
from kdump.render.sentences import gap_reason

if TYPE_CHECKING:
    from kdump.dump.events import Event
    from kdump.format.batch import Batch
    from kdump.format.internal_topics.decoded import RecordDecoder
    from kdump.format.json_types import Fields
    from kdump.format.record import Record
    from kdump.format.value_schemas.value_decoder import ValueDecoder
    from kdump.render.dump_renderer import DumpMessage
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail


class RecordPlace(NamedTuple):
    """Where records are from. `topic` and `partition` are None where the directory does not name them."""

    path: Path
    topic: str | None
    partition: int | None
    batch: Batch
    decoder: RecordDecoder | None
    value_decoder: ValueDecoder | None = None


class RecordRenderer(DumpRenderer):
    """Writes records one after another. On a terminal bytes are escaped, and long ones cut."""

    decodes_again = True

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._most = terminal_worth() if self.out.terminal else 0

    @abstractmethod
    def record_bytes(self, place: RecordPlace, record: Record) -> bytes:
        """What is written for one record."""

    def record_pieces(self, place: RecordPlace, record: Record) -> Iterator[bytes]:
        """What is written for one record, where it may be long in pieces."""
        yield self.record_bytes(place, record)

    def shown(self, data: bytes) -> bytes:
        """Bytes of a record as they are; on a terminal escaped, and at most a terminal's worth of them."""
        return shown_bytes(data, self._most) if self.out.terminal else data

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        from kdump.storage.records import records as values

        if not batch.control:
            place = RecordPlace(path, topic, partition, batch, self.decoder, self.value_decoder)
            counting = self.counting_decoder
            for record in values(batch, records):
                with self.out.in_pieces(record.size):
                    for piece in self.record_pieces(place, record):
                        self.out.write(piece)
                if counting is not None:
                    counting.forget()

    def show(self, events: Iterable[Event]) -> Iterator[DumpMessage]:
        """Render the records. Yields what belongs on standard error, with a message for all that is no record."""
        return super().show(_with_messages(events))

    # ---- what has no form in these formats

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        """A batch has no line of its own."""

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """It is on standard error."""

    def tail(self, path: Path, tail: Tail) -> None:
        """It is on standard error."""

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        """An entry is no record."""

    def finding(self, finding: Any) -> None:
        """A finding is no record."""


def _with_messages(events: Iterable[Event]) -> Iterator[Event]:
    """The events, with a message after each that the formats of records do not show."""
    from kdump.dump.events import BatchEvent, CompanionDamage, DumpFailure, FileBegin, FollowNote, LogChange
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail, TailContent
    from kdump.verify.findings import Severity

    path = ""
    for event in events:
        yield event
        match event:
            case FileBegin(file, _):
                path = file.path
                if file.kind not in (*naming.LOG_KINDS, *naming.FETCH_KINDS):
                    yield DumpFailure(SourceError(f"{path}: not a log; only --format text and json show such a file"))
            case BatchEvent(batch, str() as damage, opened) if damage != "batch/limit":
                left = "its other records are" if opened is not None and opened.records else "its records are"
                if damage in ("batch/crc", "batch/magic") and left.startswith("its other"):
                    sentence = "its records are shown as far as they can be parsed"
                else:
                    sentence = f"{left} not shown"
                reason = f"the batch at byte {batch.position} is damaged ({damage}); {sentence}"
                yield CompanionDamage(path, Severity.ERROR, reason)
            case LogChange():
                yield FollowNote(event.path, event.text)
            case Gap() | ForeignBatch() | SearchLimit():
                reason = f"{event.length} bytes at byte {event.position} are not a batch ({gap_reason(event)})"
                yield CompanionDamage(path, Severity.ERROR, reason)
            case Tail(position, length, reason) if reason is not TailContent.ZEROS:
                what = f"{length} bytes at the end, from byte {position} on, are not a batch ({reason})"
                yield CompanionDamage(path, Severity.ERROR, what)


def record_timestamp(place: RecordPlace, record: Record) -> int | None:
    """The timestamp of a record in milliseconds; None where its format has none."""
    # A message of magic 0 has no timestamp, whatever the wrapper around it says.
    return None if record.magic == 0 or place.batch.is_kafka07 else record.timestamp
