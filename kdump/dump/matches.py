"""What a search shows beside the records that match: only files of which something is shown, and how many matched."""

from collections.abc import Iterable, Iterator

from kdump.dump.dump_options import DumpOptions
from kdump.dump.events import BatchEvent, DamageNote, Event, FileBegin, FileEnd, MatchCount, SearchedRecords


def matches(events: Iterable[Event], options: DumpOptions) -> Iterator[Event]:
    """The events of a dump with predicates, without files of which nothing is shown, and a MatchCount at the end.

    It is missing where the dump ends before the last record.
    """
    begin: FileBegin | None = None
    shown = set[str]()  # merged by time, files take turns
    found, searched = 0, SearchedRecords()
    for event in events:
        match event:
            case DamageNote():
                yield event  # also where nothing of the file is shown
                continue
            case FileBegin():
                begin = event
                continue
            case FileEnd():
                searched = searched.plus(event.searched)
                if event.file.path not in shown:
                    begin = None
                    continue
            case BatchEvent(damage=None):
                found += 1 if event.records is None else event.records.records
        if begin is not None:
            shown.add(begin.file.path)
            yield begin
            begin = None
        yield event
    is_stopped = options.limit is not None and found >= options.limit
    if not is_stopped and (options.from_end is None or options.from_end.last is None):
        yield MatchCount(found, searched, not options.records)
