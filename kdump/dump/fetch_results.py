"""Reads files that hold the result of a fetch or a multifetch: headers, message sets, and lengths that are wrong.

A result does not say which release wrote its messages. The checksum of the first message decides, else its header.
Where the message is too short for both, the messages are taken to be like those of the message set before.
"""

import struct
from collections.abc import Generator, Iterator

from kdump.dump.events import CompanionDamage, CompanionEntry
from kdump.dump.message_range import MessageRange
from kdump.format import fetch, kafka07
from kdump.format.batch import LOG_OVERHEAD, MINIMUM_SIZE, UP_TO_MAGIC, head_at
from kdump.format.naming import Kind
from kdump.kernel import crc
from kdump.kernel.scan import HEADER_BYTES, stored
from kdump.storage.partition import LogFile
from kdump.storage.source import Source, SourceRange, reader_of
from kdump.storage.walk import Tail, TailContent
from kdump.verify.findings import Severity

_PIECE_BYTES = 256 << 10


def parts(file: LogFile, source: Source) -> Iterator[CompanionEntry | MessageRange | Tail | CompanionDamage]:
    """What a file of one of FETCH_KINDS holds, in the order of its bytes.

    Entries are `message_set_send` and `multi_message_set_send` with the fields position, total_length, error_code and
    error (the name of the error code, or the number where it has none). A tail is a message that is cut off before its
    kind can be recognised, or bytes after damage. Where a length is impossible or larger than the space, the result is
    taken to fill the space. The offset of a message of 0.7 is its position in the log: the first one of a set gets the
    number at the beginning of the file's name, else 0. Raises SourceError for a file that cannot be read.
    """
    result = _FetchResult(file, source)
    if file.kind is Kind.FETCH:
        end = yield from result.message_set(0, source.size)
    else:
        end = yield from result.message_sets(0, source.size)
    if end < source.size:
        yield result.damage(end, fetch.bytes_after_end(source.size - end))
        yield Tail(end, source.size - end, TailContent.GARBAGE, 0)


_Parts = Generator[CompanionEntry | MessageRange | Tail | CompanionDamage, None, int]


class _FetchResult:
    """The headers and message sets of one file, as generators; each returns the position where its part ends."""

    def __init__(self, file: LogFile, source: Source) -> None:
        self._path = file.path
        self._base_offset = file.base_offset or 0
        self._source = source
        self._read = reader_of(source)
        self._kind = Kind.LOG

    def damage(self, position: int, why: str, severity: Severity = Severity.ERROR) -> CompanionDamage:
        return CompanionDamage(self._path, severity, f"byte {position}: {why}")

    def message_sets(self, position: int, stop: int) -> _Parts:
        """A MultiMessageSetSend; returns where it ends."""
        end = yield from self._header("multi_message_set_send", position, stop)
        position = min(position + fetch.HEADER_SIZE, end)
        while position < end:
            position = yield from self.message_set(position, end)
        return end

    def message_set(self, position: int, stop: int) -> _Parts:
        """A MessageSetSend; returns where it ends."""
        end = yield from self._header("message_set_send", position, stop)
        begin = position + fetch.HEADER_SIZE
        if begin < end:
            inside = SourceRange(self._source, begin, end)
            self._kind = _kind_of(inside) or self._kind
            if inside.size < (kafka07.UP_TO_MAGIC if self._kind is Kind.KAFKA07 else UP_TO_MAGIC):
                yield Tail(begin, inside.size, TailContent.TORN, 0)
                return end
            yield MessageRange(begin, self._kind, self._base_offset if self._kind is Kind.KAFKA07 else None, inside)
        return end

    def _header(self, name: str, position: int, stop: int) -> _Parts:
        """The header at `position`; returns where the result ends, at most at `stop`."""
        try:
            header = fetch.parse_header(self._read(position, min(fetch.HEADER_SIZE, stop - position)))
        except fetch.FetchError as error:
            yield self.damage(position, error.why)
            if position < stop:
                yield Tail(position, stop - position, TailContent.TORN, fetch.HEADER_SIZE)
            return stop
        code = header.error_code
        word = fetch.ERROR_CODE_WORDS.get(code, code)
        yield CompanionEntry(
            name, {"position": position, "total_length": header.length, "error_code": code, "error": word}
        )
        if code not in fetch.ERROR_CODE_WORDS:
            yield self.damage(position, f"{code} is not an error code", Severity.WARNING)
        problem = header.length_problem(stop - position)
        if problem is not None:
            yield self.damage(position, problem)
            return stop
        return position + header.size


def _kind_of(messages: SourceRange) -> Kind | None:
    """The kind of log that the first message is from; None where the message does not show it."""
    head = reader_of(messages)(0, UP_TO_MAGIC)
    possible: dict[Kind, int] = {}
    if len(head) == UP_TO_MAGIC:
        offset, size, magic = head_at(head)
        if offset >= 0 and size >= LOG_OVERHEAD + MINIMUM_SIZE.get(magic, 1 << 31):
            possible[Kind.LOG] = size
    if len(head) >= kafka07.UP_TO_MAGIC:
        size, magic = struct.unpack_from(">iB", head)
        if magic in kafka07.HEADER_SIZE and size >= kafka07.HEADER_SIZE[magic] - kafka07.LENGTH_SIZE:
            possible[Kind.KAFKA07] = kafka07.LENGTH_SIZE + size
    for kind, total in possible.items():
        if total <= messages.size and _is_valid(messages, kind, head, total):
            return kind
    return next(iter(possible), None)


def _is_valid(messages: SourceRange, kind: Kind, head: bytes, total: int) -> bool:
    """Whether the checksum of the first message, which has `total` bytes, is right."""
    if kind is Kind.KAFKA07:
        begin = kafka07.HEADER_SIZE[head[kafka07.UP_TO_MAGIC - 1]]
        expected, update = int.from_bytes(reader_of(messages)(begin - 4, 4)), crc.crc32
    else:
        expected, begin = stored(reader_of(messages)(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"), 0)
        update = crc.crc32c if head[-1] == 2 else crc.crc32
    value, read = 0, reader_of(messages)
    for position in range(begin, total, _PIECE_BYTES):
        value = update(read(position, min(_PIECE_BYTES, total - position)), value)
    return value == expected
