"""Which records a dump shows: by their key, value, headers and timestamp, and by what the header of their batch says.

A pattern that is bytes, a prefix or null is compared in the kernel, before a record becomes a row. Regular expressions
search the records that are left, in at most MATCHED_BYTES of each key and value.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Final

from kdump.dump.events import SearchedRecords
from kdump.format.batch import CONTROL, Batch
from kdump.kernel.record_filter import (
    ANY,
    EXACT,
    HEADERS,
    KEYS,
    NULL_BYTES,
    PREFIX,
    SEARCH,
    VALUES,
    RecordFilter,
)
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.named_tuple import NamedTuple
from kdump.storage.records import DecodedBatch, chosen_rows
from kdump.storage.walk import BatchChunk

MATCHED_BYTES: Final = 64 << 10
"""A regular expression searches so many bytes of a key or a value from its beginning."""
LONGEST_PATTERN: Final = 4096
"""The most bytes of a regular expression."""

Range = tuple[int | None, int | None]
"""Half open; None for no bound."""

_WIDTH: Final = len(RECORD_COLUMNS)
_BATCH_WIDTH: Final = len(BATCH_COLUMNS)
_COUNT: Final = BATCH_COLUMNS.index("count")
_MAGIC: Final = BATCH_COLUMNS.index("magic")
_ATTRIBUTES: Final = BATCH_COLUMNS.index("attributes")
_SPAN_WIDTH: Final = 4


class PatternKind(Enum):
    """How a pattern is compared with bytes."""

    EXACT = auto()
    PREFIX = auto()
    NULL = auto()
    REGEX = auto()


_KERNEL_KIND: Final = {
    PatternKind.EXACT: EXACT,
    PatternKind.PREFIX: PREFIX,
    PatternKind.NULL: NULL_BYTES,
    PatternKind.REGEX: SEARCH,
}


class BytesPattern(NamedTuple):
    """What a key, a value or the value of a header has to be. `data` is empty for null."""

    kind: PatternKind
    data: bytes = b""


class HeaderPattern(NamedTuple):
    """A header that a record has to have; `value` is None where any value will do, also null."""

    name: bytes
    value: BytesPattern | None = None


class ProducerPattern(NamedTuple):
    """The producer of a batch; `epoch` is None for any."""

    producer_id: int
    epoch: int | None = None


class RecordPredicates(NamedTuple):
    """What a record has to be like. All fields have to hold; of several patterns in one field, one.

    `time` is a range of timestamps in milliseconds; a record without a timestamp is in none. `tombstones`: only records
    without a value in batches that are not control batches. `control`: only those of control batches, or none of them.
    """

    keys: tuple[BytesPattern, ...] = ()
    values: tuple[BytesPattern, ...] = ()
    headers: tuple[HeaderPattern, ...] = ()
    producers: tuple[ProducerPattern, ...] = ()
    time: Range = (None, None)
    tombstones: bool = False
    control: bool | None = None


class BadPattern(ValueError):
    """A regular expression that Python's `re` does not take."""


def compile_regex(data: bytes) -> re.Pattern[bytes]:
    """A regular expression on bytes. Raises BadPattern."""
    if len(data) > LONGEST_PATTERN:
        raise BadPattern(f"the regular expression has more than {LONGEST_PATTERN} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a later Python will understand otherwise
            return re.compile(data)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(str(error)) from None


class RecordSelection:
    """The records that match, of a dump with these offsets."""

    def __init__(self, predicates: RecordPredicates, offsets: Range) -> None:
        self._predicates = predicates
        self._control = False if predicates.tombstones and predicates.control is None else predicates.control
        self._filter = RecordFilter(
            _kernel_patterns(predicates.keys),
            _kernel_patterns(predicates.values),
            [_kernel_header(each) for each in predicates.headers],
            producers=predicates.producers,
            offsets=offsets,
            time=predicates.time,
            tombstones=predicates.tombstones,
            control=self._control,
        )
        self._searches = [each for each in _searches_of(predicates) if each.searches]

    def batches(
        self, chunk: BatchChunk, first: int, stop: int, on_records: Callable[[int], None] | None
    ) -> Iterator[int]:
        """The numbers of the batches from `first` up to `stop` that have to be opened.

        All others have no record that matches. With `on_records`, they are those whose records could not be counted; it
        gets the number of matching records of others.
        """
        if self._searches:
            yield from self._searched_batches(chunk, first, stop, self._searches[0])
            return
        index, rows = first, chunk.walk.scanner.rows
        while True:
            index, found = self._filter.skip(rows, index, stop, *chunk.walk.window, on_records is not None)
            if found and on_records is not None:
                on_records(found)
            if index >= stop:
                return
            yield index
            index += 1

    def _searched_batches(self, chunk: BatchChunk, first: int, stop: int, search: "_FieldSearch") -> Iterator[int]:
        index, rows = first, chunk.walk.scanner.rows
        while index < stop:
            window = chunk.walk.window
            index, opens, spans = self._filter.spans(search.field, rows, index, stop, *window)
            yield from search.groups(window[0], spans)
            if opens:
                yield index
                index += 1

    def searched(self, chunk: BatchChunk, first: int, stop: int, *, batches: bool) -> SearchedRecords:
        """The records, or batches, from the batch `first` up to `stop` that can match by what kind of batch they are
        in.
        """
        cells = chunk.walk.scanner.rows[first * _BATCH_WIDTH : stop * _BATCH_WIDTH]
        counts, attributes = cells[_COUNT::_BATCH_WIDTH].tolist(), cells[_ATTRIBUTES::_BATCH_WIDTH].tolist()
        if self._control is not None:
            magics = cells[_MAGIC::_BATCH_WIDTH].tolist()
            fits = [
                (magic > 1 and bool(bits & CONTROL)) is self._control
                for magic, bits in zip(magics, attributes, strict=True)
            ]
            counts = [count for count, each in zip(counts, fits, strict=True) if each]
        if batches:
            return SearchedRecords(len(counts))
        known = [count for count in counts if count != NO_VALUE]
        return SearchedRecords(sum(known) + len(counts) - len(known), len(known) == len(counts))

    def includes_batch(self, batch: Batch) -> bool:
        """Whether the header of a batch allows that one of its records matches."""
        wanted = self._predicates
        if self._control is not None and batch.control is not self._control:
            return False
        if wanted.producers and not any(
            batch.producer_id == each.producer_id and each.epoch in (None, batch.producer_epoch)
            for each in wanted.producers
        ):
            return False
        first, _ = wanted.time
        return first is None or batch.is_legacy or batch.max_timestamp >= first

    def rows(self, opened: DecodedBatch) -> memoryview:
        """The rows of the records that match, of a batch that `includes_batch` allows."""
        payload, headers = opened.payload, opened.headers
        rows = memoryview(self._filter.rows(payload, opened.rows, headers)).cast("q")
        for search in self._searches:
            at, count, kept = 0, len(rows) // _WIDTH, list[int]()
            while at < count:
                at, spans = self._filter.row_spans(search.field, payload, rows, headers, at)
                kept += search.groups(payload, spans)
            rows = chosen_rows(rows, kept)
        return rows


def _kernel_patterns(patterns: Sequence[BytesPattern]) -> list[tuple[int, bytes]]:
    return [(_KERNEL_KIND[each.kind], each.data) for each in patterns]


def _kernel_header(pattern: HeaderPattern) -> tuple[bytes, int, bytes]:
    value = pattern.value
    return (pattern.name, ANY, b"") if value is None else (pattern.name, _KERNEL_KIND[value.kind], value.data)


def _searches_of(predicates: RecordPredicates) -> Iterator["_FieldSearch"]:
    yield _FieldSearch(KEYS, predicates.keys)
    yield _FieldSearch(VALUES, predicates.values)
    yield _FieldSearch(HEADERS, [each.value for each in predicates.headers])


_Data = bytes | bytearray | memoryview


class _FieldSearch:
    """Searches a field for regular expressions, in what RecordFilter.spans collects of it.

    `searches` are those of the patterns with these numbers.
    """

    def __init__(self, field: int, patterns: Sequence[BytesPattern | None]) -> None:
        self.field = field
        self.searches = {
            number: _Search(each.data)
            for number, each in enumerate(patterns)
            if each is not None and each.kind is PatternKind.REGEX
        }

    def groups(self, data: _Data, spans: bytes) -> list[int]:
        """The groups in which a pattern is found, each once, in order."""
        cells = memoryview(spans).cast("q")
        groups, ats, sizes, numbers = (cells[column::_SPAN_WIDTH].tolist() for column in range(_SPAN_WIDTH))
        if len(self.searches) == 1 and -1 not in numbers:
            ((_, search),) = self.searches.items()
            return sorted({groups[index] for index in search.found(data, ats, sizes)})
        found = {group for group, number in zip(groups, numbers, strict=True) if number < 0}
        for number, search in self.searches.items():
            mine = [index for index, each in enumerate(numbers) if each == number]
            hits = search.found(data, [ats[index] for index in mine], [sizes[index] for index in mine])
            found.update(groups[mine[index]] for index in hits)
        return sorted(found)


class _Search:
    """A regular expression, which searches parts of bytes."""

    def __init__(self, pattern: bytes) -> None:
        self._search = compile_regex(pattern).search
        self._search_at = _search_at(pattern)

    def found(self, data: _Data, ats: list[int], sizes: list[int]) -> list[int]:
        """The numbers of the parts in which it is found."""
        search, most = self._search_at, MATCHED_BYTES
        parts = enumerate(zip(ats, sizes, strict=True))
        if search is not None:
            if max(sizes, default=0) <= most:
                return [i for i, (at, size) in parts if search(data, at, at + size)]
            return [i for i, (at, size) in parts if search(data, at, at + min(size, most))]
        search = self._search
        return [i for i, (at, size) in parts if search(data[at : at + size], 0, most)]


def _search_at(pattern: bytes) -> "Callable[..., object] | None":
    """The function that searches a part of the payload; None for a pattern that may see what lies before the part.

    The signs for the beginning stand for that of the payload, so that such a pattern needs a copy of each part.
    """
    if not _looks_around(pattern):
        return compile_regex(pattern).search
    rest = pattern[1:]
    if pattern.startswith(b"^") and b"|" not in rest and not _looks_around(rest):
        return compile_regex(rest).match
    return None


def _looks_around(pattern: bytes) -> bool:
    return any(sign in pattern for sign in (b"^", rb"\A", rb"\b", rb"\B", b"(?<"))
