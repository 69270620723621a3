"""Reads a log at an offset or a time as a consumer does, and shows what the read returned and how it was found."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from kdump.dump.dump import DumpOptions, RecordLimit, decoder_for, dump_messages, value_decoder_for
from kdump.dump.events import CompanionEntry, DamageNote, Event, FileBegin, FileEnd, NothingAtOffset, ReadEntry
from kdump.dump.message_range import MessageRange
from kdump.errors import KdumpError, MessageTooLarge, NotALog, OffsetOutOfRange, SourceError
from kdump.format import fetch, naming
from kdump.format.fetch import ErrorCode
from kdump.format.naming import Kind
from kdump.log.damage import DamagedRange
from kdump.log.fetch_data_info import FetchDataInfo
from kdump.log.records import READ_BYTES as READ_BYTES
from kdump.named_tuple import NamedTuple
from kdump.storage import discovery
from kdump.storage.file_store import store_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import BytesSource, FileSource, Source, SourceRange
from kdump.storage.walk import Gap, SearchLimit, Tail, TailContent
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Severity
from kdump.writer.log import Log
from kdump.writer.options import LogOptions

if TYPE_CHECKING:
    from kdump.dump.isolation import CommittedRead


class LogEdge(StrEnum):
    """The first offset of a log, or the offset after its last one."""

    EARLIEST = "earliest"
    LATEST = "latest"


class TimeQuery(NamedTuple):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


StartOffset = int | LogEdge | TimeQuery
"""Where a read begins."""


class NoSuchTime(KdumpError):
    """No record of a log has a timestamp so late."""


class SeveralLogs(KdumpError):
    """A path names several logs, where one is read; `paths` are the first two."""

    def __init__(self, path: str, paths: tuple[str, str]) -> None:
        super().__init__(f"--at reads one log, and {path} has several: {paths[0]}, {paths[1]} ...")
        self.path = path
        self.paths = paths

    def __reduce__(self) -> tuple[type["SeveralLogs"], tuple[str, tuple[str, str]]]:
        return SeveralLogs, (self.path, self.paths)


class ReadResult(NamedTuple):
    """What a read returned.

    `timestamp_ms` is the timestamp of the record at the offset, where the read was by time. `stopped_by` is the damage
    that ended the read before it had as many bytes as it was asked for.
    """

    fetched: FetchDataInfo
    timestamp_ms: int | None
    stopped_by: tuple[DamagedRange, ...]

    def severities(self) -> set[Severity]:
        """The severities of the damage that the read skipped or stopped at."""
        return {CATALOGUE[damaged.code].severity for damaged in (*self.fetched.damage, *self.stopped_by)}


def open_log(path: str, max_batch_bytes: int) -> Log:
    """Open the one log that a path names: a topic-partition, a segment, or a directory above one topic-partition.

    Raises SeveralLogs, NotALog and SourceError.
    """
    if not store_of(path).is_local:
        raise SourceError(f"{path}: --at reads local files only; --offset reads an object store")
    largest = min(max_batch_bytes, fetch.MAX_PAYLOAD_BYTES)
    return Log(_log_path(path), options=LogOptions(max_message_bytes=largest))


def _log_path(path: str) -> str:
    found: list[Partition] = []
    problem = None
    for item in discovery.discover([path]):
        if isinstance(item, Partition) and item.segments and item.only is None:
            found.append(item)
        elif isinstance(item, SourceError):
            problem = problem or item
        if len(found) > 1:
            raise SeveralLogs(path, (found[0].path, found[1].path))
    if found:
        return found[0].path
    if problem is None or isinstance(problem, NotALog):
        what = naming.companion_of(path)
        problem = NotALog(f"{path}: {'no log here' if what is None else f'{what}, not a log'}")
    raise problem


def read(log: Log, start: StartOffset, max_bytes: int = READ_BYTES) -> ReadResult:
    """Read at most `max_bytes` from `start`, or one batch that is larger.

    Raises OffsetOutOfRange, NoSuchTime, MessageTooLarge and SourceError.
    """
    max_bytes = min(max_bytes, fetch.MAX_PAYLOAD_BYTES)
    timestamp_ms = None
    match start:
        case TimeQuery(ms):
            found = log.at_time(ms)
            if found is None:
                raise NoSuchTime(f"no record is as late as {_time_text(ms)}")
            offset, timestamp_ms = found
        case LogEdge.EARLIEST:
            offset = log.earliest()
        case LogEdge.LATEST:
            offset = log.latest()
        case _:
            offset = int(start)
    fetched = log.read(offset, max_bytes)
    return ReadResult(fetched, timestamp_ms, tuple(_next_damage(log, fetched, max_bytes)))


def _time_text(ms: int) -> str:
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"timestamp {ms}"
    return f"{time.isoformat(timespec='milliseconds').replace('+00:00', 'Z')} (timestamp {ms})"


def _next_damage(log: Log, fetched: FetchDataInfo, max_bytes: int) -> Iterator[DamagedRange]:
    """The damage at which a read stopped within its range. The next read skips it."""
    end = fetched.position + fetched.size_bytes
    if not fetched.size_bytes or fetched.size_bytes >= max_bytes or fetched.next_offset >= log.end_offset:
        return
    try:
        following = log.read(fetched.next_offset, max_bytes)
    except MessageTooLarge:
        return
    damage = [item for item in following.damage if item.path == fetched.segment and item.position >= end]
    if not damage and following.segment == fetched.segment and following.position > end:
        # no offset is missing, but the bytes belong to no batch
        damage = [DamagedRange(fetched.segment, end, following.position - end, "gap/bytes")]
    yield from (item for item in damage if item.position < fetched.position + max_bytes)


def located(error: KdumpError, path: str) -> KdumpError:
    """The error of a read with the path in its sentence."""
    return KdumpError(f"{path}: {error}") if isinstance(error, OffsetOutOfRange | NoSuchTime) else error


def error_result(error: KdumpError) -> bytes:
    """The result of a fetch that says what a broker would say: an error code, and no messages.

    Returns nothing where the error says nothing about the offset.
    """
    if isinstance(error, MessageTooLarge):
        return fetch.build_message_set_send(b"", ErrorCode.INVALID_FETCH_SIZE)
    if isinstance(error, OffsetOutOfRange | NoSuchTime):
        return fetch.build_message_set_send(b"", ErrorCode.OFFSET_OUT_OF_RANGE)
    return b""


def read_entry(log: Log, result: ReadResult) -> CompanionEntry:
    """How a read was found, as an entry `read`."""
    fetched = result.fetched
    entry = ReadEntry(
        offset=fetched.offset,
        timestamp=result.timestamp_ms,
        log_start_offset=log.start_offset,
        log_end_offset=log.end_offset,
        base_offset=fetched.base_offset,
        position=fetched.position,
        size=fetched.size_bytes,
        next_offset=fetched.next_offset,
        index_entry=fetched.index_entry,
        walked_bytes=fetched.walked_bytes,
    )
    return CompanionEntry("read", entry._asdict())


def skip_message(damaged: DamagedRange) -> str:
    """The sentence that bytes were skipped, with their positions."""
    end = damaged.position + damaged.length
    return f"{damaged.path}: bytes {damaged.position} to {end} are skipped: {damaged.code}"


def dump_read(log: Log, result: ReadResult, options: DumpOptions, *, verbose: bool = False) -> Iterator[Event]:
    """What a read returned and what it skipped, in the order of the bytes; with `verbose` also how it was found.

    The events are those of `kdump.dump.dump`. Raises SourceError.
    """
    fetched = result.fetched
    limit = RecordLimit(options.limit)
    if options.isolation == "read-committed":
        options = options._replace(committed_read=_committed_read(fetched, options.max_batch_bytes))
    parts: list[DamagedRange | FetchDataInfo] = [*fetched.damage]
    if fetched.size_bytes or verbose:
        parts += [fetched, *result.stopped_by]
    for path, of_file in groupby(parts, lambda part: part.segment if isinstance(part, FetchDataInfo) else part.path):
        kind = naming.kind_of(path) or Kind.LOG
        with FileSource(path) as source:
            file = LogFile(path, kind, naming.base_offset_of(path), False, source.size)
            topic_partition = naming.topic_partition_of_file(path)
            value_decoder = yield from value_decoder_for(path, topic_partition, options)
            yield FileBegin(file, topic_partition, None, decoder_for(topic_partition, options), value_decoder)
            if verbose and path == fetched.segment:
                yield read_entry(log, result)
            for part in of_file:
                if limit.reached:
                    break
                if isinstance(part, DamagedRange):
                    yield from _dump_damage(part, file, source, options, limit)
                    continue
                messages = _messages(file, part.position, BytesSource(part.data))
                from_offset = options._replace(offsets=(part.offset, None), max_bytes=None)
                yield from dump_messages(messages, file, from_offset, limit)
            yield FileEnd(file, source.size, False)
    if options.committed_read is not None:
        yield from options.committed_read.notes(complete=False, filtered=options.predicates is not None)
    if not fetched.size_bytes:
        yield NothingAtOffset(log.path, log.start_offset, log.end_offset)


def _committed_read(fetched: FetchDataInfo, max_batch_bytes: int) -> "CommittedRead":
    """The committed read of the log that was read."""
    from kdump.dump.isolation import CommittedRead, known_logs  # most reads do without

    path = fetched.segment
    (known,) = known_logs([LogFile(path, naming.kind_of(path) or Kind.LOG, fetched.base_offset, False, 0)])
    return CommittedRead(known, max_batch_bytes)


def _messages(file: LogFile, position: int, source: Source) -> MessageRange:
    """Batches from a position of a file. In a log of Kafka 0.7 the position is also their offset."""
    base_offset = file.base_offset
    if file.kind is Kind.KAFKA07:
        base_offset = (base_offset or 0) + position
    return MessageRange(position, file.kind, base_offset, source)


def _dump_damage(
    damaged: DamagedRange,
    file: LogFile,
    source: Source,
    options: DumpOptions,
    limit: RecordLimit,
) -> Iterator[Event]:
    """Bytes that a read skipped, as a dump shows them."""
    yield DamageNote(file.path, CATALOGUE[damaged.code].severity, damaged.code)
    family, _, what = damaged.code.partition("/")
    if damaged.code == "gap/unsearched":
        yield SearchLimit(damaged.position, damaged.length)
    elif family == "gap" or damaged.code == "batch/length":
        yield Gap(damaged.position, damaged.length, family == "batch", 0, what == "zeros")
    elif family == "tail":
        yield Tail(damaged.position, damaged.length, TailContent(what), 0)
    else:
        part = SourceRange(source, damaged.position, damaged.position + damaged.length)
        everything = options._replace(offsets=(None, None), max_bytes=None)
        yield from dump_messages(_messages(file, damaged.position, part), file, everything, limit)
