"""Shows what is in log files, their companions and fetch results, as a stream of values in the order of the bytes."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

from kdump.dump.dump_options import DumpOptions, RecordLimit
from kdump.dump.events import (
    BatchEvent,
    BatchRun,
    CompanionDamage,
    CompanionEntry,
    DamageNote,
    DumpFailure,
    Event,
    FileBegin,
    FileEnd,
    IsolationNote,
    RecordCount,
    StoredBytes,
)
from kdump.dump.matches import matches
from kdump.dump.message_range import MessageRange
from kdump.errors import SourceError, only
from kdump.format import naming
from kdump.format.batch import Batch
from kdump.kernel.results import NO_VALUE, BatchDiagnosis
from kdump.kernel.scan import SUSPECTS
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import is_url, kept
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.records import UNOPENED, open_in_pieces
from kdump.storage.source import Source, reader_of
from kdump.storage.walk import BatchChunk, Gap, Tail, TailContent, Walk

if TYPE_CHECKING:
    from kdump.dump.filters import RecordSelection
    from kdump.dump.isolation import UncommittedRead
    from kdump.format.internal_topics.decoded import RecordDecoder
    from kdump.format.value_schemas.value_decoder import ValueDecoder
    from kdump.verify.findings import Finding

# the suspect bits of a batch none of whose fields can be trusted
_DAMAGED = {1 << SUSPECTS.index(code): code for code in ("batch/crc", "batch/magic", "batch/limit")}

__all__ = ["DumpOptions", "RecordLimit", "dump_logs"]


def dump_logs(files: Iterable[LogFile | SourceError], options: DumpOptions | None = None) -> Iterator[Event]:
    """The content of the files. What cannot be read becomes a `DumpFailure`; the dump goes on with the next file.

    A `DamageNote` comes before what is wrong.
    """
    options = options or DumpOptions()
    limit = RecordLimit(options.limit)
    is_by_log = options.from_end is not None or options.isolation == "read-committed"
    dump = _dump_by_log if is_by_log else _dump_files
    with ExitStack() as stack:
        events = dump(_kept_files(chosen_files(files, options), stack), options, limit)
        yield from events if options.counts or options.predicates is None else matches(events, options)
    if options.counts:
        yield RecordCount(limit.taken)


def _kept_files(files: Iterable[LogFile | SourceError], stack: ExitStack) -> Iterator[LogFile | SourceError]:
    """The files; what is read of objects from the first one on is kept for a while: markers are read before records."""
    is_kept = False
    for file in files:
        if not is_kept and isinstance(file, LogFile) and is_url(file.path):
            stack.enter_context(kept(file.path))
            is_kept = True
        yield file


def damage_note(finding: "Finding") -> DamageNote:
    """The note of a finding that is not shown itself."""
    return DamageNote(finding.path, finding.severity, finding.code)


def chosen_files(files: Iterable[LogFile | SourceError], options: DumpOptions) -> Iterator[LogFile | SourceError]:
    """The files of the topic-partitions that are to be shown; an error where there is none."""
    found, topics = False, set[str]()
    for file in files:
        of = None if isinstance(file, SourceError) else naming.log_of_records(file.path)
        if isinstance(file, SourceError) or options.includes_log(of):
            found = True
            yield file
        elif of is not None:
            topics.add(of.topic)
    if not found and (options.topics or options.partitions):
        names = f"; {naming.topics_text(topics)}" if topics else ""
        yield SourceError(f"none of the paths has a log that --topic and --partition select{names}")


def _dump_files(files: Iterable[LogFile | SourceError], options: DumpOptions, limit: RecordLimit) -> Iterator[Event]:
    for file in files:
        if limit.reached:
            return
        if isinstance(file, SourceError):
            yield DumpFailure(file)
            continue
        if not options.whole and options.everything and file.kind not in (*naming.LOG_KINDS, *naming.FETCH_KINDS):
            continue  # a companion has no records
        try:
            with only(file.path), file.open() as source:
                if file.kind in naming.LOG_KINDS:
                    dump_file = dump_log
                elif file.kind in naming.FETCH_KINDS:
                    dump_file = _dump_fetch_result
                else:
                    from kdump.dump.companion_files import dump_companion  # a dump of logs does without

                    dump_file = dump_companion
                yield from dump_file(source, file, options, limit)
        except SourceError as error:
            yield DumpFailure(error)


def _dump_by_log(files: Iterable[LogFile | SourceError], options: DumpOptions, limit: RecordLimit) -> Iterator[Event]:
    """As _dump_files, log by log, each with its own bounds."""
    from kdump.dump import log_end  # most dumps do without

    for log in log_end.logs_of(files):
        if limit.reached:
            return
        if isinstance(log, SourceError):
            yield DumpFailure(log)
            continue
        kind, path = log[0].kind, log[0].path
        if kind in naming.FETCH_KINDS:
            what = "where its log ends" if options.from_end is not None else "what became of its transactions"
            yield DumpFailure(SourceError(f"{path}: a fetch result does not say {what}"))
        if kind not in naming.LOG_KINDS:
            continue
        try:
            with only(path):
                for own in bounded(log, options, limit):
                    yield from _dump_files(own.files, own.options, limit)
                    yield from own.notes(complete=not limit.reached)
                    limit.skip = 0
                    if limit.reached:
                        return
        except SourceError as error:
            yield DumpFailure(error)


class BoundedLog(NamedTuple):
    """The files of a log that are read, and the options for it. `whole`: none of its files is passed over."""

    files: Sequence[LogFile]
    options: DumpOptions
    whole: bool

    def notes(self, *, complete: bool) -> Iterator[IsolationNote]:
        """What is said after the files; `complete`: they were read to the end."""
        read, options = self.options.committed_read, self.options
        if read is not None:
            complete = complete and self.whole and options.max_bytes is None
            yield from read.notes(complete=complete, filtered=options.predicates is not None)


def bounded(files: Sequence[LogFile], options: DumpOptions, limit: RecordLimit) -> Iterator[BoundedLog]:
    """The log of files of one directory, with read-committed there may be several; sets what `limit` skips.

    Raises SourceError.
    """
    if options.isolation != "read-committed":
        yield _bounded(files, options, limit)
        return
    from kdump.dump.isolation import CommittedRead, known_logs

    for log in known_logs(files):
        read = CommittedRead(log, options.max_batch_bytes)
        own = _bounded(log.files, options._replace(committed_read=read), limit)
        read.begin(own.options.offsets)
        yield own


def _bounded(log: Sequence[LogFile], options: DumpOptions, limit: RecordLimit) -> BoundedLog:
    if options.from_end is None:
        return BoundedLog(log, options, True)
    from kdump.dump import log_end
    from kdump.dump.filters import RecordPredicates

    wanted = options.from_end
    predicates = options.predicates or RecordPredicates()
    if wanted.offsets != (None, None):
        end = log_end.log_end_offset(log, options.max_batch_bytes)
        options = options._replace(offsets=log_end.before(end, wanted.offsets, options.offsets))
    if wanted.time != (None, None):
        newest = log_end.newest_timestamp(log, options.max_batch_bytes)
        predicates = predicates._replace(time=log_end.before(newest, wanted.time, predicates.time))
        options = options._replace(predicates=predicates)
    if wanted.last is None:
        return BoundedLog(log, options, True)
    if predicates.control is None:
        predicates = predicates._replace(control=False)  # not all formats show control records
    options = options._replace(predicates=predicates)
    start = log_end.start_of_last(log, wanted.last, lambda file: _count(file, options))
    limit.skip = start.skip
    return BoundedLog(log[start.number :], options, not start.number)


def _count(file: LogFile, options: DumpOptions) -> int:
    """How many records of a log file match."""
    limit = RecordLimit(None)
    with file.open() as source:
        counting = options._replace(counts=True, runs=False, marks_aborted=False)
        for _ in dump_log(source, file, counting, limit):
            pass
    return limit.taken


def dump_log(source: Source, file: LogFile, options: DumpOptions, limit: RecordLimit) -> Iterator[Event]:
    """The content of a log file that is open as `source`. Raises SourceError."""
    read = reader_of(source) if options.whole else None
    topic_partition = naming.topic_partition_of_file(file.path)
    holds = naming.log_of_records(file.path)
    decoder = decoder_for(holds, options)
    value_decoder = yield from value_decoder_for(file.path, holds, options)
    if value_decoder is not None:
        options = options._replace(runs=False)
    yield FileBegin(file, topic_partition, read, decoder, value_decoder)
    messages = MessageRange(0, file.kind, file.base_offset, source)
    limit.searched = None
    whole = yield from dump_messages(messages, file, options, limit)
    yield FileEnd(file, source.size, whole, limit.searched)


def decoder_for(topic_partition: naming.TopicPartition | None, options: DumpOptions) -> "RecordDecoder | None":
    """The decoder of the records of a log file."""
    if options.decode == "none" or not options.records:
        return None
    topic = options.topic if topic_partition is None else topic_partition.topic
    if options.decode == "auto" and (topic is None or not topic.startswith("__")):
        return None
    from kdump.format.internal_topics.decoders import TOPICS, decoder_of  # other topics do without

    return decoder_of(TOPICS.get(options.decode, topic or ""))


def value_decoder_for(
    path: str, topic_partition: naming.TopicPartition | None, options: DumpOptions
) -> "Generator[DumpFailure, None, ValueDecoder | None]":
    """The decoder of the records of a log file that is of no internal topic."""
    if options.value_decoders is None or not options.records or decoder_for(topic_partition, options) is not None:
        return None
    if topic_partition is None and options.topic is not None:
        topic_partition = naming.TopicPartition(options.topic, -1)
    try:
        return options.value_decoders.of(path, topic_partition)
    except SourceError as error:
        yield DumpFailure(error)
        return options.value_decoders.of(path, topic_partition)


def _dump_fetch_result(source: Source, file: LogFile, options: DumpOptions, limit: RecordLimit) -> Iterator[Event]:
    from kdump.dump import fetch_results  # a dump of logs does without

    whole = options.whole
    # a fetch result does not name its partition
    value_decoder = yield from value_decoder_for(file.path, None, options)
    limit.searched = None
    yield FileBegin(file, None, None, decoder_for(None, options), value_decoder)
    for part in fetch_results.parts(file, source):
        match part:
            case MessageRange():
                whole &= yield from dump_messages(part, file, options, limit)
                if limit.reached:
                    break
            case Tail():
                if options.everything:
                    yield part
            case CompanionDamage():
                yield DamageNote(part.path, part.severity)
                yield part
            case CompanionEntry():
                yield part
    yield FileEnd(file, source.size, whole, limit.searched)


def dump_messages(
    messages: MessageRange, file: LogFile, options: DumpOptions, limit: RecordLimit
) -> Generator[Event, None, bool]:
    """The batches of a range, and what lies between them. Returns whether nothing was left out."""
    everything = options.everything
    start = messages.position
    consumer, selection = _consumer(messages, file, options), _selection(options)
    runs = options.runs and options.records and everything and selection is None and not start
    for item in _walk(messages, options):
        if not isinstance(item, BatchChunk):
            if file.kind in naming.FETCH_KINDS and isinstance(item, Tail) and messages.is_cut_off(item):
                item = item._replace(reason=TailContent.TORN)
            else:
                from kdump.verify.checks import framing

                yield damage_note(framing.not_a_batch(file.path, item, file.preallocated))
            if everything:
                yield item._replace(position=start + item.position)
                if options.fields and isinstance(item, Gap | Tail):
                    yield _stored(messages, item.position, item.length, _claimed(item), options)
            continue
        whole = [(0, item.batches, False)]
        for first, stop, aborted in whole if consumer is None or item.damaged else consumer.ranges(item):
            part = _ChunkPart(item, first, stop, aborted, messages, file)
            if selection is not None and not item.damaged:
                found = selection.searched(item, first, stop, batches=not options.records)
                limit.searched = found.plus(limit.searched)
            for each in _with_runs(part, runs and limit.remaining is None, options.max_batch_bytes):
                if isinstance(each, BatchRun):
                    yield each
                    continue
                yield from _dump_batches(each, options, limit, selection)
                if limit.reached:
                    return False
    return options.whole


class _ChunkPart(NamedTuple):
    """The batches [start, stop) of a chunk, whether their transactions were aborted, and what they are of."""

    chunk: BatchChunk
    start: int
    stop: int
    aborted: bool
    messages: MessageRange
    file: LogFile


def _dump_batches(
    part: _ChunkPart, options: DumpOptions, limit: RecordLimit, selection: "RecordSelection | None"
) -> Iterator[Event]:
    """Batches one by one, until the limit is reached."""
    chunk, messages, path = part.chunk, part.messages, part.file.path
    for index, batch, suspect in _batches(part, options, selection, limit):
        diagnosis = chunk.diagnosis(index) if suspect else None
        codes = set[str]()
        if diagnosis is not None:
            from kdump.verify.checks.suspect_batches import explain

            for finding in explain(path, batch, diagnosis, messages.base_offset):
                codes.add(finding.code)
                yield damage_note(finding)
        if not options.everything and not options.includes_batch(batch):
            continue
        event = _open(chunk, batch, diagnosis, options, limit, selection)
        if event is None:
            continue
        if event.damage is not None and event.damage not in codes:
            from kdump.verify.catalogue import CATALOGUE

            yield DamageNote(path, CATALOGUE[event.damage].severity, event.damage)
        # the base offset of a wrapper message is known only after it was opened
        if not options.includes_batch(event.batch):
            continue
        if part.aborted:
            event = event._replace(aborted=True)
        if messages.position:
            event = event._replace(batch=event.batch._replace(position=messages.position + batch.position))
        yield event
        if options.fields:
            yield _stored(messages, batch.position, batch.size, batch.size, options)
        if event.damage == "batch/limit" and options.records:
            yield _above_limit(path, event, options.max_batch_bytes)
        if limit.reached:
            return


def _consumer(messages: MessageRange, file: LogFile, options: DumpOptions) -> "UncommittedRead | None":
    """What says which batches a consumer gets, or which are of aborted transactions; None where that is not asked."""
    if options.isolation == "all" and (not options.marks_aborted or file.kind is not naming.Kind.LOG or file.read_from):
        return None
    from kdump.dump.isolation import StoredRead, UncommittedRead  # most dumps do without

    if options.isolation == "read-committed" and options.committed_read is None:
        raise ValueError("read-committed is for a dump of whole logs: a marker can come later")
    is_stored = options.isolation == "all"
    consumer = StoredRead(options.max_batch_bytes) if is_stored else options.committed_read or UncommittedRead()
    consumer.begin_file(file, messages.position)
    return consumer


def _walk(messages: MessageRange, options: DumpOptions) -> Walk:
    """The walk over a range."""
    start, kind, base_offset, source, carry = messages
    return walk_of(
        kind,
        source,
        base_offset=base_offset,
        stop=None if options.max_bytes is None else max(0, options.max_bytes - start),
        carry=carry,
        everything=True,
        max_batch_bytes=options.max_batch_bytes,
        rows=min(256 if options.runs else 64, max(4, options.buffer_bytes >> 10)),
        buffer_bytes=options.buffer_bytes,
    )


def _selection(options: DumpOptions) -> "RecordSelection | None":
    if options.predicates is None and not options.counts:
        return None
    from kdump.dump.filters import RecordPredicates, RecordSelection  # a dump of everything does without

    return RecordSelection(options.predicates or RecordPredicates(), options.offsets)


def _with_runs(part: _ChunkPart, runs: bool, max_bytes: int) -> "Iterator[BatchRun | _ChunkPart]":
    """A part; with `runs` as runs, and each batch that they leave."""
    if part.aborted:
        yield from (part._replace(start=index, stop=index + 1) for index in range(part.start, part.stop))
        return
    if not runs or part.chunk.damaged:
        yield part
        return
    first = part.start
    while first < part.stop:
        run = BatchRun(part.chunk, first, part.stop, max_bytes)
        yield run
        first += run.taken
        if first < part.stop:
            yield part._replace(start=first, stop=first + 1)
        first += 1


def _batches(
    part: _ChunkPart, options: DumpOptions, selection: "RecordSelection | None", limit: RecordLimit
) -> Iterator[tuple[int, Batch, int]]:
    """The batches of a part that may have to be shown: number, batch, suspect bits."""
    chunk, first, stop = part.chunk, part.start, part.stop
    if selection is None or not options.records:
        if stop == first + 1:
            yield first, chunk.row(first), chunk.diagnosis(first).suspect
            return
        for index, (batch, suspect) in islice(enumerate(zip(chunk.rows(), chunk.suspects(), strict=True)), first, stop):
            yield index, batch, suspect
        return
    suspects = chunk.suspects()
    for index in selection.batches(chunk, first, stop, limit.take if options.counts else None):
        yield index, chunk.row(index), suspects[index]


def _claimed(item: Gap | Tail) -> int:
    """The size that the header at the beginning of these bytes claims. A torn header claims what is there."""
    if isinstance(item, Gap):
        return item.claimed if item.headed else 0
    return item.claimed or item.length if item.reason is TailContent.TORN else 0


def _stored(messages: MessageRange, position: int, length: int, claimed: int, options: DumpOptions) -> StoredBytes:
    """Bytes of the range; `position` counts from its beginning."""
    start, kind, source = messages.position, messages.kind, messages.source
    read = reader_of(source)

    def read_at(at: int, size: int) -> bytes:
        return read(at - start, size)

    is_07 = kind is naming.Kind.KAFKA07
    return StoredBytes(start + position, length, claimed, is_07, options.records, options.max_batch_bytes, read_at)


def _open(
    chunk: BatchChunk,
    batch: Batch,
    diagnosis: BatchDiagnosis | None,
    options: DumpOptions,
    limit: RecordLimit,
    selection: "RecordSelection | None",
) -> BatchEvent | None:
    """The batch, with its records where they are asked for and can be trusted; None where none of them matches."""
    damage, crc_ok = (None, True) if diagnosis is None else _damage(batch, diagnosis)
    matches = selection is None or selection.includes_batch(batch)
    if not matches and damage is None:
        return None
    if not options.records:
        limit.take(1)
        return BatchEvent(batch, damage, None, crc_ok)
    if (damage is not None and not options.force) or (batch.control and not options.control):
        return BatchEvent(batch, damage, UNOPENED, crc_ok)
    opened = open_in_pieces(batch, chunk.body(batch), options.max_batch_bytes)
    if batch.is_wrapper and opened.problem is None:
        # only the inner messages say where a wrapper begins and how many it holds
        base_offset = opened.first_offset if batch.base_offset == NO_VALUE else batch.base_offset
        batch = batch._replace(base_offset=base_offset, count=opened.records)
    if selection is None:
        selected = opened.select(*options.offsets, limit.remaining)
    else:
        most, skipped = limit.remaining if matches else 0, 0
        if limit.skip and matches:
            skipped = min(limit.skip, opened.choose(selection.rows, limit.skip).records)
            limit.skip -= skipped
        selected = opened.choose(selection.rows, most, skipped)
        if not selected.records and (damage or opened.problem) is None:
            return None
    limit.take(selected.records)
    return BatchEvent(batch, damage or opened.problem, selected, crc_ok)


def _above_limit(path: str, event: BatchEvent, limit_bytes: int) -> CompanionDamage:
    """Why a batch is shown without its records."""
    from kdump.verify.catalogue import CATALOGUE

    batch, severity = event.batch, CATALOGUE["batch/limit"].severity
    what = "is" if event.crc_ok is None else "decompresses to"
    return CompanionDamage(
        path,
        severity,
        f"the batch at byte {batch.position} {what} more than {limit_bytes} bytes, and its records are not shown; a"
        " larger --max-batch-bytes shows them",
    )


def _damage(batch: Batch, diagnosis: BatchDiagnosis) -> tuple[str | None, bool | None]:
    """The code of what is wrong with the whole batch, and whether its CRC is right, None where it was not computed."""
    damage = next((code for bit, code in _DAMAGED.items() if diagnosis.suspect & bit), None)
    return damage, None if damage == "batch/limit" else batch.crc == diagnosis.computed_crc
