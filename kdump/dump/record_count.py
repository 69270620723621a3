"""How many records a dump would show: the number, and what cannot be counted."""

from collections.abc import Iterable, Iterator

from kdump.dump.events import BatchEvent, CompanionDamage, DumpFailure, FileBegin, IsolationNote, RecordCount
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
from kdump.verify.findings import Severity

CountEvent = RecordCount | CompanionDamage | DumpFailure | IsolationNote


def counted(events: Iterable[object]) -> Iterator[CountEvent]:
    """The count among the events of a dump with DumpOptions.counts, and what keeps it from being exact."""
    path, preallocated = "", False
    for event in events:
        match event:
            case RecordCount() | CompanionDamage() | DumpFailure() | IsolationNote():
                yield event
            case FileBegin(file):
                path, preallocated = file.path, file.preallocated
            case BatchEvent(batch, damage) if damage is not None:
                reason = f"the batch at byte {batch.position} is damaged ({damage}): not all of its records are counted"
                from kdump.verify.catalogue import CATALOGUE

                yield CompanionDamage(path, CATALOGUE[damage].severity, reason)
            case Gap() | Tail() | SearchLimit() | ForeignBatch():
                from kdump.verify.checks import framing

                finding = framing.not_a_batch(path, event, preallocated)
                if finding.severity > Severity.WARNING:
                    end = event.position + event.length
                    reason = f"bytes {event.position} to {end} belong to no batch ({finding.code}): nothing is counted"
                    yield CompanionDamage(path, finding.severity, reason)
