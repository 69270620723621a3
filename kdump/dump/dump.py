"""What is in a log file or in one of its companions, in the order of its bytes, as a stream of values for a renderer."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from kdump.dump import companion_files as companions
from kdump.dump import fetch_results as fetched
from kdump.dump import kafka_tool as index_report
from kdump.dump.companion_files import CompanionDamage, CompanionEntry
from kdump.dump.fetch_results import MessageRange
from kdump.dump.kafka_tool import IndexReport, SanityCheckPassed
from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.batch import NULL, Batch
from kdump.kernel.scan import SUSPECTS
from kdump.storage.partition import LogFile
from kdump.storage.records import UNOPENED, DecodedBatch, open_batch
from kdump.storage.source import Source, reader
from kdump.storage.walk import (
    MAX_BATCH_BYTES,
    BatchChunk,
    ForeignBatch,
    Gap,
    SearchLimit,
    ShrunkFile,
    Tail,
    TailContent,
)
from kdump.storage.walk07 import walk_of
from kdump.verify import checks
from kdump.verify.checks import framing
from kdump.verify.findings import CATALOGUE, Severity

# The bits of a batch of which nothing is to be believed.
_DAMAGED = {1 << SUSPECTS.index(code): code for code in ("batch/crc", "batch/magic", "batch/limit")}


class DumpOptions(NamedTuple):
    """What to show. `offsets` is half open; `limit` bounds records where records are shown, else batches, and the entries of companions;
    `max_bytes` ends a log file early. `compare` compares an offset or time index with the log beside it as Kafka's dump tool does, `check` only checks
    the index in itself; of the index `entries` are shown or not.
    """

    records: bool = True
    offsets: tuple[int | None, int | None] = (None, None)
    limit: int | None = None
    force: bool = False
    max_bytes: int | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES
    compare: bool = False
    check: bool = False
    entries: bool = True


class FileBegin(NamedTuple):
    """A file begins. `read(position, size)` gives bytes of a log file until it ends."""

    file: LogFile
    topic_partition: naming.TopicPartition | None
    read: Callable[[int, int], bytes] | None


class BatchEvent(NamedTuple):
    """A batch with those of its records that were asked for, None where none were; kdump.storage.records.records makes values of them.

    `damage` is the code of what is wrong with all of it or stopped its records. The bytes of the records are there until the next event.
    """

    batch: Batch
    damage: str | None
    records: DecodedBatch | None


class FileEnd(NamedTuple):
    """A file ends; `size` is what it had when it was opened, `whole` whether everything in it was shown."""

    file: LogFile
    size: int
    whole: bool


class DumpFailure(NamedTuple):
    """Something could not be read, or not to its end."""

    error: KdumpError


class Note(NamedTuple):
    """Something to say about what was asked for; neither damage nor failure."""

    text: str


Event = (
    FileBegin
    | BatchEvent
    | CompanionEntry
    | Gap
    | ForeignBatch
    | SearchLimit
    | Tail
    | ShrunkFile
    | CompanionDamage
    | IndexReport
    | SanityCheckPassed
    | FileEnd
    | DumpFailure
    | Note
)


class RecordLimit:
    """How many more records or batches may be shown; None is no end."""

    def __init__(self, left: int | None) -> None:
        self.left = left

    def take(self, count: int) -> None:
        if self.left is not None:
            self.left -= count

    @property
    def spent(self) -> bool:
        return self.left is not None and self.left <= 0


def dump(
    files: Iterable[LogFile | SourceError], options: DumpOptions, on_damage: Callable[[Severity], None]
) -> Iterator[Event]:
    """The content of the files. `on_damage` is told how bad what was met on the way is; verify says more."""
    budget = RecordLimit(options.limit)
    for file in files:
        if budget.spent:
            return
        if isinstance(file, SourceError):
            yield DumpFailure(file)
            continue
        try:
            with file.open() as source:
                if file.kind in naming.LOG_KINDS:
                    show = _dump_source
                elif file.kind in naming.FETCH_KINDS:
                    show = _dump_result
                else:
                    show = _check_index if options.check and file.kind in index_report.ENTRIES else _dump_companion
                yield from show(source, file, options, on_damage, budget)
        except SourceError as error:
            yield DumpFailure(error)


def _dump_source(
    source: Source, file: LogFile, options: DumpOptions, on_damage: Callable[[Severity], None], budget: RecordLimit
) -> Iterator[Event]:
    yield FileBegin(file, naming.topic_partition_of_file(file.path), reader(source))
    messages = MessageRange(0, file.kind, file.base_offset, source)
    everything = yield from show_messages(messages, file, options, on_damage, budget)
    yield FileEnd(file, source.size, everything)


def _dump_result(
    source: Source, file: LogFile, options: DumpOptions, on_damage: Callable[[Severity], None], budget: RecordLimit
) -> Iterator[Event]:
    everything = _everything(options)
    # Nothing in a result says of which partition it is.
    yield FileBegin(file, None, None)
    for part in fetched.parts(file, source):
        match part:
            case MessageRange():
                everything &= yield from show_messages(part, file, options, on_damage, budget)
                if budget.spent:
                    break
            case Tail():
                if everything:
                    yield part
            case CompanionDamage():
                on_damage(part.severity)
                yield part
            case CompanionEntry():
                yield part
    yield FileEnd(file, source.size, everything)


def _everything(options: DumpOptions) -> bool:
    return options.offsets == (None, None)


def show_messages(
    messages: MessageRange,
    file: LogFile,
    options: DumpOptions,
    on_damage: Callable[[Severity], None],
    budget: RecordLimit,
) -> Generator[Event, None, bool]:
    """The batches there, and what lies between them; whether nothing was left out."""
    everything = _everything(options)
    at, kind, base_offset, source = messages
    walk = walk_of(
        kind,
        source,
        base_offset=base_offset,
        stop=None if options.max_bytes is None else max(0, options.max_bytes - at),
        everything=True,
        max_batch_bytes=options.max_batch_bytes,
        rows=64,
    )
    for item in walk:
        if not isinstance(item, BatchChunk):
            if file.kind in naming.FETCH_KINDS and isinstance(item, Tail) and fetched.is_cut_off(item, kind):
                item = item._replace(reason=TailContent.TORN)
            else:
                on_damage(framing.other(file.path, item, file.preallocated).severity)
            if everything:
                yield item._replace(position=at + item.position)
            continue
        for batch in item.rows():
            for finding in checks.explain(file.path, batch, base_offset) if batch.suspect else ():
                on_damage(finding.severity)
            if not everything and not _wanted(batch, options):
                continue
            shown = _show(item, batch, options, budget)
            if shown.damage is not None:
                on_damage(CATALOGUE[shown.damage].severity)
            # A wrapper says only once it is open where it begins.
            if not _wanted(shown.batch, options):
                continue
            yield shown if not at else shown._replace(batch=shown.batch._replace(position=at + batch.position))
            if budget.spent:
                return False
    return everything


def _dump_companion(
    source: Source, file: LogFile, options: DumpOptions, on_damage: Callable[[Severity], None], budget: RecordLimit
) -> Iterator[Event]:
    everything = _everything(options)
    compared = index_report.ENTRIES.get(file.kind)
    hidden = compared is not None and not options.entries
    yield FileBegin(file, naming.topic_partition_of_file(file.path), None)
    items: Iterator[CompanionEntry | Tail | CompanionDamage]
    if compared is not None and hidden:
        items = companions.behind_entries(source, compared.size)
    else:
        items = companions.contents(file.path, source, file.kind, file.base_offset)
    for item in items:
        if isinstance(item, CompanionEntry):
            if item.offsets is not None and not _within(*item.offsets, options):
                continue
            yield item
            budget.take(1)
            if budget.spent:
                yield FileEnd(file, source.size, False)
                return
            continue
        on_damage(companions.severity(item, file.newest))
        if everything or isinstance(item, CompanionDamage):
            yield item
    yield FileEnd(file, source.size, everything and not hidden)
    if compared is not None and options.compare and everything:
        for told in index_report.compare(file, source, options.max_batch_bytes):
            on_damage(told.severity)
            yield told


def _check_index(
    source: Source, file: LogFile, options: DumpOptions, on_damage: Callable[[Severity], None], budget: RecordLimit
) -> Iterator[Event]:
    yield FileBegin(file, naming.topic_partition_of_file(file.path), None)
    told = index_report.check(file, source)
    if isinstance(told, CompanionDamage):
        on_damage(told.severity)
    if told is not None:
        yield told
    yield FileEnd(file, source.size, False)


def _within(lowest: int, highest: int, options: DumpOptions) -> bool:
    first, stop = options.offsets
    return (first is None or highest >= first) and (stop is None or lowest < stop)


def _wanted(batch: Batch, options: DumpOptions) -> bool:
    first, stop = options.offsets
    if first is not None and (batch.last_offset < first or (stop is not None and stop <= first)):
        return False
    return stop is None or batch.base_offset < stop or batch.base_offset == NULL


def _show(chunk: BatchChunk, batch: Batch, options: DumpOptions, budget: RecordLimit) -> BatchEvent:
    damage = next((code for bit, code in _DAMAGED.items() if batch.suspect & bit), None) if batch.suspect else None
    if not options.records:
        budget.take(1)
        return BatchEvent(batch, damage, None)
    if damage is not None and not options.force:
        return BatchEvent(batch, damage, UNOPENED)
    opened = open_batch(batch, chunk.body(batch), options.max_batch_bytes)
    if batch.is_wrapper and opened.problem is None:
        # Only the messages inside know where a wrapper begins and how many it holds.
        base_offset = opened.first_offset if batch.base_offset == NULL else batch.base_offset
        batch = batch._replace(base_offset=base_offset, count=opened.records)
    wanted = opened.select(*options.offsets, budget.left)
    budget.take(wanted.records)
    return BatchEvent(batch, damage or opened.problem, wanted)
