"""What the segments of a log add to its fingerprint: shares, so that segments that have not changed need not be read.

A share is of consecutive segments, and has the sums and tables of their records alone. They are as fine as the log
needed them when it was read, and a step finer: a log that grows needs coarser ones. Where it has shrunk so far that a
share is too coarse, all is read again.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING, Final

from kdump.kernel.cell_differences import CELL_BYTES, HASH_TABLES, added
from kdump.kernel.sketches import INTERVALS, NEWEST_ENDS, RecordSketch
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import BLOCKS, RECORD_BITS
from kdump.replicas.fingerprint.fingerprint_format import Sketch
from kdump.replicas.log_survey import SegmentFacts
from kdump.storage.stamps import Stamp

if TYPE_CHECKING:
    from typing_extensions import Buffer

_FINER_INTERVALS: Final = 2
_FINER_BLOCKS: Final = 1
_CUT: Final = struct.Struct("<qqQQ")
_HASHES: Final = 1 << 128
_ALL_OFFSETS: Final = 62
_NO_CELLS: Final = bytes((HASH_TABLES << RECORD_BITS) * CELL_BYTES)


class KnownSegment(NamedTuple):
    """A segment, and what shows that it has not changed: the stamp of its file, and the header of its last batch."""

    name: str
    stamp: Stamp
    position: int
    header: bytes
    facts: SegmentFacts


class Share(NamedTuple):
    """What consecutive segments add to a fingerprint: the records with offsets in [start_offset, end_offset).

    `ends` are the newest ends of batches, `has_all_ends`: there are no others. `read_ms`: when they were read.
    `segments` is empty where they are to be read again: in one is damage, or it is written to.
    """

    start_offset: int
    end_offset: int
    keyed: int
    unkeyed: int
    sums: Sketch
    ends: tuple[int, ...]
    has_all_ends: bool
    read_ms: int
    segments: tuple[KnownSegment, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The bytes of the segments."""
        return sum(each.stamp.size for each in self.segments)


class ForgottenError(Exception):
    """A share does not say what is needed."""


def new_sketch(start: int, borders: "Buffer") -> RecordSketch:
    """The sketch of all records from an offset on, or of those of a share."""
    return RecordSketch(start, borders, blocks=BLOCKS, bits=RECORD_BITS)


def share_of(sketch: RecordSketch, offsets: OffsetRange, whole: OffsetRange, read_ms: int) -> Share:
    """The share of the records with these offsets, of a log that has at least those in `whole`."""
    ends = tuple(sketch.newest_ends())
    block_bits, cells = sketch.cells(offsets.stop)
    sums = Sketch(sketch.cuts(offsets.stop), cells, block_bits, RECORD_BITS)
    share = Share(*offsets, sketch.keyed, sketch.unkeyed, sums, ends, len(ends) < NEWEST_ENDS, read_ms)
    return with_blocks(share, whole)


def with_blocks(share: Share, whole: OffsetRange) -> Share:
    """The share with blocks that are no smaller than a log needs that has at least the records in `whole`."""
    wanted = max(share.sums.block_bits, lowest_shift(whole, BLOCKS) - _FINER_BLOCKS)
    cells = b"".join(share.sums.tables(wanted, RECORD_BITS).values())
    return share._replace(sums=share.sums._replace(cells=cells, block_bits=wanted))


def lowest_shift(offsets: OffsetRange, most: int) -> int:
    """The lowest shift that leaves at most `most` numbers of some offsets, as RecordSketch has it."""
    shift = 0
    while ((offsets.stop - 1) >> shift) - (offsets.start >> shift) >= most:
        shift += 1
    return shift


def to_remember(shares: Sequence[Share], whole: OffsetRange, borders: Iterable[int], least_bytes: int) -> list[Share]:
    """The shares that spare reading so many bytes or more, of a log with the offsets in `whole`.

    The ends of batches are kept of the newest ones alone.
    """
    step, known = 1 << max(0, lowest_shift(whole, INTERVALS) - _FINER_INTERVALS), {*borders}
    found, ends = list[Share](), 0
    for share in reversed(shares):
        is_near, ends = ends < 2 * NEWEST_ENDS, ends + len(share.ends)
        if share.segments and share.size_bytes >= least_bytes:
            kept = share if is_near else share._replace(ends=(), has_all_ends=share.has_all_ends and not share.ends)
            found.append(_with_cuts(kept, step, known))
    return found[::-1]


def _with_cuts(share: Share, step: int, borders: Set[int]) -> Share:
    """The share without the cuts that are neither at one of its ends or of the borders nor at a multiple of `step`."""
    wanted = {share.start_offset, share.end_offset, *share.ends}
    kept = [
        _CUT.pack(offset, *sums)
        for offset, *sums in _CUT.iter_unpack(share.sums.cuts)
        if offset % step == 0 or offset in wanted or offset in borders
    ]
    return share._replace(sums=share.sums._replace(cuts=b"".join(kept)))


def joined(left: Share, right: Share, borders: Set[int]) -> Share:
    """The share of the segments of both, and of all their records; `borders` are the base offsets of the log.

    The right one has no records below the end of the left one, also where it starts before it.
    """
    offsets = OffsetRange(left.start_offset, right.end_offset)
    count, *sums = _last_cut(left)
    total, known = sums[1] << 64 | sums[0], bytearray(left.sums.cuts)
    step = 1 << max(0, lowest_shift(offsets, INTERVALS) - _FINER_INTERVALS)
    between = range((left.end_offset // step + 1) * step, right.start_offset, step)
    for offset in (*between, right.start_offset) if right.start_offset > left.end_offset else ():
        known += _CUT.pack(offset, count, *sums)
    for offset, more, low, high in _CUT.iter_unpack(right.sums.cuts):
        if offset > max(left.end_offset, right.start_offset):
            whole = (total + (high << 64 | low)) % _HASHES
            known += _CUT.pack(offset, count + more, whole & (1 << 64) - 1, whole >> 64)
    bits = max(left.sums.block_bits, right.sums.block_bits, lowest_shift(offsets, BLOCKS))
    ours, theirs = (each.sums.tables(bits, RECORD_BITS) for each in (left, right))
    cells = b"".join(
        added(ours.get(number, _NO_CELLS), theirs.get(number, _NO_CELLS))
        for number in range(offsets.start >> bits, ((offsets.stop - 1) >> bits) + 1)
    )
    ends = left.ends + right.ends
    found = Share(
        *offsets, left.keyed + right.keyed, left.unkeyed + right.unkeyed,
        Sketch(bytes(known), cells, bits, RECORD_BITS), (ends if right.has_all_ends else right.ends)[-NEWEST_ENDS:],
        left.has_all_ends and right.has_all_ends and len(ends) < NEWEST_ENDS,
        min(left.read_ms, right.read_ms), left.segments + right.segments,
    )  # fmt: skip
    return _with_cuts(found, step, borders)


def _last_cut(share: Share) -> tuple[int, int, int]:
    """How many records a share has, and both halves of the sum of their hashes."""
    _, count, low, high = _CUT.unpack_from(share.sums.cuts, len(share.sums.cuts) - _CUT.size)
    return count, low, high


class JoinedShares:
    """The sums of a log of which these are the shares, in the order of their offsets; as RecordSketch has them.

    `marks` is added to the tables: what became of records that are not committed. `has_blocks`: the tables are those of
    blocks of offsets, and not of all.
    """

    undecided = 0

    def __init__(
        self, start: int, borders: Iterable[int], shares: Sequence[Share], marks: RecordSketch | None = None,
        *, has_blocks: bool = True,
    ) -> None:  # fmt: skip
        self._start, self._borders, self._shares, self._marks = start, tuple(borders), shares, marks
        self._has_blocks = has_blocks
        self.keyed = sum(each.keyed for each in shares)
        self.unkeyed = sum(each.unkeyed for each in shares)

    def cuts(self, stop: int) -> bytes:
        """The cuts up to `stop`. Raises ForgottenError."""
        shift = lowest_shift(OffsetRange(self._start, stop), INTERVALS)
        step = 1 << shift
        grid = range((self._start // step + 1) * step, stop, step)
        others = (each for each in (*self._borders, *self._newest_ends()) if self._start < each < stop)
        count = total = at = 0
        found, known = list[bytes](), list(map(_cuts_of, self._shares))
        for offset in sorted({self._start, *grid, *others, stop}):
            while at < len(known) and self._shares[at].end_offset <= offset:
                more, sums = known[at][self._shares[at].end_offset]
                count, total, at = count + more, total + sums, at + 1
            inside = 0, 0
            if at < len(known) and self._shares[at].start_offset < offset:
                if offset not in known[at]:
                    raise ForgottenError
                inside = known[at][offset]
            sums = (total + inside[1]) % _HASHES
            found.append(_CUT.pack(offset, count + inside[0], sums & (1 << 64) - 1, sums >> 64))
        return b"".join(found)

    def _newest_ends(self) -> Iterator[int]:
        left = NEWEST_ENDS
        for share in reversed(self._shares):
            if len(share.ends) < left and not share.has_all_ends:
                raise ForgottenError
            yield from share.ends[max(0, len(share.ends) - left) :]
            left -= min(left, len(share.ends))
            if not left:
                return

    def cells(self, stop: int) -> tuple[int, bytes]:
        """Of how many bits the offsets of a block are, and the cells of all blocks. Raises ForgottenError."""
        block_bits = lowest_shift(OffsetRange(self._start, stop), BLOCKS) if self._has_blocks else _ALL_OFFSETS
        numbers = range(self._start >> block_bits, ((stop - 1) >> block_bits) + 1)
        tables = dict.fromkeys(numbers, _NO_CELLS)
        for share in self._shares:
            if share.sums.block_bits > block_bits:
                raise ForgottenError
            for number, cells in share.sums.tables(block_bits, RECORD_BITS).items():
                if number not in tables:
                    raise ForgottenError
                tables[number] = added(tables[number], cells)
        cells = b"".join(tables.values())
        return block_bits, cells if self._marks is None else added(cells, self._marks.cells(stop)[1])


def _cuts_of(share: Share) -> dict[int, tuple[int, int]]:
    """By offset how many records of a share are below it, and the sum of their hashes."""
    return {offset: (count, high << 64 | low) for offset, count, low, high in _CUT.iter_unpack(share.sums.cuts)}
