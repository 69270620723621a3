"""Cuts a log into parts that are converted alone, each by another process, between two batches that are valid.

All parts together have each batch once, and what became of its transactions. What lies between two parts is for the
caller: offsets that are missing there, and the file where one ends.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kdump.convert.records.part_outcomes import LogCut, decide_parts, settle_headers
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.kernel.scan import SCAN_FULL, Scanner
from kdump.log.log_slice import LogSlice, PartOfLog, SlicedPartition, walk_of_slice
from kdump.named_tuple import NamedTuple
from kdump.storage.read_policy import PolicySource
from kdump.storage.source import InputFile, reason_of
from kdump.storage.walk import BatchChunk

_BUFFER_BYTES: Final = 128 << 10
_TRIES: Final = 16
"""So many batches are tried for a cut. Where each is damaged, the slice is not cut there."""
_FOLLOWING: Final = 4
"""In so many slices after a part the ends of its transactions are looked for."""


class _SlicePiece(NamedTuple):
    """A slice, or a part of it that begins at `start`; `number` is that of the slice."""

    number: int
    part: LogSlice

    @property
    def size(self) -> int:
        return size_of(self.part)


def size_of(each: LogSlice) -> int:
    """The bytes of a slice."""
    return (each.log.size if each.stop is None else each.stop) - each.start


def is_in_order(partition: SlicedPartition) -> bool:
    """Whether the valid batches of the slices are known to be in order."""
    headers, copy = partition.headers, partition.copy
    return headers is not None and (headers.is_ordered or (copy is not None and bool(copy.segments)))


def can_be_cut(partition: SlicedPartition) -> bool:
    """Whether the batches are known to be in order, and each log file has the place that its name says."""
    return is_in_order(partition) and all(each.log.base_offset is not None for each in partition.slices)


def cut_into_parts(
    partition: SlicedPartition, part_bytes: int, max_batch_bytes: int, *, committed: bool
) -> list[SlicedPartition]:
    """The chosen offsets of a log in parts of about `part_bytes`, at least half as many; the log itself for one part.

    `committed`: with what became of the transactions. Raises SourceError.
    """
    chosen = list(partition.numbered())
    if sum(size_of(each) for _, each in chosen) < part_bytes * 3 // 2 or not can_be_cut(partition):
        return [partition]
    pieces = [piece for number, each in chosen for piece in _pieces(partition, number, each, part_bytes)]
    groups = _groups(pieces, part_bytes)
    if len(groups) == 1:
        return [partition]
    headers = partition.headers
    decided: Sequence[PartOfLog] | None = None
    if partition.is_assumed:
        decided = [_with_following(partition, group[-1].number + 1) for group in groups]
    elif committed and headers is not None and headers.transactional:
        headers = settle_headers(partition, max_batch_bytes)
        cuts = [LogCut(group[0].number, group[0].part.start) for group in groups[1:]]
        decided = decide_parts(partition._replace(headers=headers), cuts, max_batch_bytes)
        headers = headers._replace(transactional=decided is not None)
    return [
        partition._replace(slices=tuple(piece.part for piece in group), copy=None, headers=headers, part=part)
        for group, part in zip(groups, decided or [PartOfLog()] * len(groups), strict=True)
    ]


def _with_following(partition: SlicedPartition, number: int) -> PartOfLog:
    """What a part needs that ends before the slice of this number, of a log whose headers were not read."""
    following = partition.slices[number:]
    return PartOfLog(following=following[:_FOLLOWING], ends_log=len(following) <= _FOLLOWING)


def _groups(pieces: Sequence[_SlicePiece], part_bytes: int) -> list[list[_SlicePiece]]:
    groups: list[list[_SlicePiece]] = [[]]
    size = 0
    for piece in pieces:
        if groups[-1] and size + piece.size // 2 >= part_bytes:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.size
    if len(groups) > 1 and size < part_bytes // 2:
        groups[-2:] = [groups[-2] + groups[-1]]
    return groups


def _pieces(partition: SlicedPartition, number: int, each: LogSlice, part_bytes: int) -> Iterator[_SlicePiece]:
    headers = partition.headers
    # Else damage may hide where a batch begins.
    proved = headers is not None and headers.is_ordered and not headers.is_assumed
    if each.log.kind is Kind.LOG and proved and size_of(each) >= part_bytes * 3 // 2:
        with each.log.open() as source:
            for position in _borders(each, source, part_bytes):
                yield _SlicePiece(number, each._replace(stop=position))
                each = each._replace(start=position, after_gap=False)
    yield _SlicePiece(number, each)


def _borders(each: LogSlice, source: InputFile, part_bytes: int) -> Iterator[int]:
    """Positions of batches, about `part_bytes` apart, that are valid and follow a valid one."""
    end = source.size if each.stop is None else min(each.stop, source.size)
    walk = _HeaderWalk(each, source)
    start = each.start
    while end - start >= part_bytes * 3 // 2:
        border = None
        for again in range(_TRIES):
            position = walk.batch_at(min(start + part_bytes + again * (part_bytes // 32), end))
            border = _border_after(each, source, position)
            if border is not None:
                break
        if border is None or border >= end:
            return
        yield border
        start = border


class _HeaderWalk:
    """Hops over the batches of a slice by the sizes in their headers."""

    def __init__(self, each: LogSlice, source: InputFile) -> None:
        self._source, self._position = source, each.start
        self._scanner = Scanner(-1 if each.log.base_offset is None else each.log.base_offset)
        self._buffer = bytearray(_BUFFER_BYTES)

    def batch_at(self, target: int) -> int:
        """The position of the batch that has a byte, or of bytes before it that are not a batch."""
        stopped = SCAN_FULL
        while stopped == SCAN_FULL and self._position < target:
            try:
                stopped = self._scanner.headers(self._source.reader, 0, self._buffer, self._position, target)
            except OSError as error:
                where = f"reading at byte {self._position}"
                raise SourceError(f"{self._source.name}: {where}: {reason_of(error)}") from None
            if isinstance(self._source, PolicySource):
                self._source.passed(self._position, self._scanner.reached - self._position)
            self._position = self._scanner.reached
        return self._position


def _border_after(each: LogSlice, source: InputFile, position: int) -> int | None:
    """The end of the batch at a position; None where it is damaged, or what follows it is not a valid batch."""
    walk = walk_of_slice(each._replace(start=position, stop=position + 1), source, everything=True)
    if not all(_is_valid(item) for item in walk):
        return None
    border = walk.position
    after = walk_of_slice(each._replace(start=border, stop=border + 1), source, everything=True)
    found = [_is_valid(item) for item in after]
    return border if found and all(found) else None


def _is_valid(item: object) -> bool:
    return isinstance(item, BatchChunk) and not item.damaged
