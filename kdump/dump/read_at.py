"""What a reader of a log gets at an offset, as a stream of values for a renderer, and how it was found."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from kdump.dump.companion_files import CompanionEntry
from kdump.dump.dump import DumpOptions, Event, FileBegin, FileEnd, Note, RecordLimit, show_messages
from kdump.dump.fetch_results import MessageRange, SourceRange
from kdump.errors import KdumpError, MessageTooLarge
from kdump.format import naming
from kdump.format.naming import Kind
from kdump.log.batch_location import DamagedRange
from kdump.log.fetch_data_info import FetchDataInfo
from kdump.log.log import Log
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource, FileSource, Source
from kdump.storage.walk import Gap, SearchLimit, Tail, TailContent
from kdump.verify.findings import CATALOGUE, Severity


class LogEdge(StrEnum):
    """Where a log begins, and where it ends."""

    EARLIEST = "earliest"
    LATEST = "latest"


class TimeQuery(NamedTuple):
    """The first record with this timestamp, or a later one."""

    ms: int


At = int | LogEdge | TimeQuery


class NoSuchTime(KdumpError):
    """No record of a log has a timestamp so late."""


class ReadResult(NamedTuple):
    """What was read. `timestamp_ms` is that of the record at its offset, where that was looked for by time. `behind`: what ended the read before its bytes were used up."""

    fetched: FetchDataInfo
    timestamp_ms: int | None
    behind: tuple[DamagedRange, ...]


def find(log: Log, at: At, max_bytes: int) -> ReadResult:
    """Read at most `max_bytes` there, or one batch that is larger. Raises OffsetOutOfRange, NoSuchTime, MessageTooLarge, SourceError."""
    timestamp_ms = None
    match at:
        case TimeQuery(ms):
            place = log.at_time(ms)
            if place is None:
                raise NoSuchTime(f"no record is as late as {_text(ms)}")
            offset, timestamp_ms = place
        case LogEdge.EARLIEST:
            offset = log.earliest()
        case LogEdge.LATEST:
            offset = log.latest()
        case _:
            offset = int(at)
    fetched = log.read(offset, max_bytes)
    return ReadResult(fetched, timestamp_ms, tuple(_behind(log, fetched, max_bytes)))


def _text(ms: int) -> str:
    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"timestamp {ms}"
    return f"{time.isoformat(timespec='milliseconds').replace('+00:00', 'Z')} (timestamp {ms})"


def _behind(log: Log, fetched: FetchDataInfo, max_bytes: int) -> Iterator[DamagedRange]:
    """The damage with which the range of a read goes on; a read ends before it, and the next one passes over it."""
    end = fetched.position + fetched.size_bytes
    if not fetched.size_bytes or fetched.size_bytes >= max_bytes or fetched.next_offset >= log.end_offset:
        return
    try:
        following = log.read(fetched.next_offset, max_bytes)
    except MessageTooLarge:
        return
    there = [passed for passed in following.damage if passed.path == fetched.segment and passed.position >= end]
    if not there and following.segment == fetched.segment and following.position > end:
        # No offset is missing, and the bytes are none of a batch's.
        there = [DamagedRange(fetched.segment, end, following.position - end, "gap/bytes")]
    yield from (passed for passed in there if passed.position < fetched.position + max_bytes)


def how(log: Log, found: ReadResult) -> CompanionEntry:
    """How it was found, as an entry `read`.

    Its fields: offset, timestamp (null unless it was looked for by time), log_start_offset, log_end_offset, base_offset (of the segment), position, size, next_offset,
    index_entry (null without one) and walked_bytes.
    """
    fetched = found.fetched
    return CompanionEntry(
        "read",
        {
            "offset": fetched.offset,
            "timestamp": found.timestamp_ms,
            "log_start_offset": log.start_offset,
            "log_end_offset": log.end_offset,
            "base_offset": fetched.base_offset,
            "position": fetched.position,
            "size": fetched.size_bytes,
            "next_offset": fetched.next_offset,
            "index_entry": fetched.index_entry,
            "walked_bytes": fetched.walked_bytes,
        },
    )


def sentence(passed: DamagedRange) -> str:
    """That bytes were passed over, with their place."""
    return f"{passed.path}: bytes {passed.position} to {passed.position + passed.length} are passed over: {passed.what}"


def dump(
    log: Log, found: ReadResult, options: DumpOptions, on_damage: Callable[[Severity], None], *, verbose: bool = False
) -> Iterator[Event]:
    """What was read, as kdump.dump.dump shows it, and what was passed over, in the order of its bytes; with `verbose` also how it was found. Raises SourceError."""
    fetched = found.fetched
    budget = RecordLimit(options.limit)
    pieces: list[DamagedRange | FetchDataInfo] = [*fetched.damage]
    if fetched.size_bytes or verbose:
        pieces += [fetched, *found.behind]
    for path, some in groupby(pieces, lambda piece: piece.segment if isinstance(piece, FetchDataInfo) else piece.path):
        kind = naming.kind_of(path) or Kind.LOG
        with FileSource(path) as source:
            file = LogFile(path, kind, naming.base_offset_of(path), False, source.size)
            yield FileBegin(file, naming.topic_partition_of_file(path), None)
            if verbose and path == fetched.segment:
                yield how(log, found)
            for piece in some:
                if budget.spent:
                    break
                if isinstance(piece, DamagedRange):
                    yield from _passed(piece, file, source, options, on_damage, budget)
                    continue
                messages = _messages(file, piece.position, BytesSource(piece.data))
                only = options._replace(offsets=(piece.offset, None), max_bytes=None)
                yield from show_messages(messages, file, only, on_damage, budget)
            yield FileEnd(file, source.size, False)
    if not fetched.size_bytes:
        yield Note(f"{log.path}: {_nothing(log)}")


def _nothing(log: Log) -> str:
    if log.start_offset == log.end_offset:
        return f"the log is empty, its first offset will be {log.end_offset}"
    return (
        f"nothing has offset {log.end_offset} yet, the log has the offsets {log.start_offset} to {log.end_offset - 1}"
    )


def _messages(file: LogFile, position: int, source: Source) -> MessageRange:
    """Batches from a position of a file on; in the log of Kafka 0.7 it is their offset, too."""
    base_offset = file.base_offset
    if file.kind is Kind.KAFKA07:
        base_offset = (base_offset or 0) + position
    return MessageRange(position, file.kind, base_offset, source)


def _passed(
    passed: DamagedRange,
    file: LogFile,
    source: Source,
    options: DumpOptions,
    on_damage: Callable[[Severity], None],
    budget: RecordLimit,
) -> Iterator[Event]:
    """Bytes that were passed over, as a dump shows them."""
    on_damage(CATALOGUE[passed.what].severity)
    family, _, what = passed.what.partition("/")
    if passed.what == "gap/unsearched":
        yield SearchLimit(passed.position, passed.length)
    elif family == "gap" or passed.what == "batch/length":
        yield Gap(passed.position, passed.length, family == "batch", 0, what == "zeros")
    elif family == "tail":
        yield Tail(passed.position, passed.length, TailContent(what), 0)
    else:
        part = SourceRange(source, passed.position, passed.position + passed.length)
        every = options._replace(offsets=(None, None), max_bytes=None)
        yield from show_messages(_messages(file, passed.position, part), file, every, on_damage, budget)
