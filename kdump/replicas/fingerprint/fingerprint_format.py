"""The bytes of a fingerprint file; all numbers are little-endian, sizes in bytes.

File: head, a section for each copy, index, trailer. A CRC-32C covers each of them.

    head        offset  size
    magic            0     8  b"KDUMPFPR"
    version          8     2  8
    host size       10     2
    CRC             12     4  of the head from byte 16 on
    time            16     8  milliseconds since the epoch
    key id          24    16  zeros: no key
    host            40

    entry of the index, by topic, partition and directory
    position         0     8  of the section
    size             8     4
    CRC             12     4  of the section
    front size      16     4  of all of the section that is before its cuts
    front CRC       20     4
    topic id        24    16  zeros: not known
    partition       40     4
    topic size      44     2
    directory size  46     2
    topic, directory  48

    trailer
    position         0     8  of the index
    size             8     4  of the index
    entries         12     4
    CRC             16     4  of the index and the bytes of the trailer before
    magic           20     4  b"RPFK"

    section
    start            0     8  log start offset
    end              8     8  log end offset
    as of           16     8  the offset up to which records are in what follows
    high watermark  24     8  -1: not known
    reach           32     8  below it a log cleaner has been
    records         40     8  of which the cuts are
    keyed           48     8  records with a key
    unkeyed         56     8  records without one
    undecided       64     8  records of transactions that damage hides the end of
    oldest          72     8  milliseconds since the epoch: when a segment that was not read again was read, the oldest
                              of them; -1: all were read
    node            80     4  the broker, -1: not known
    flags           84     2  1 compacted, 2 transactional, 4 with last records, 8 with all keys of later records,
                              16 with the newest of its epochs and aborted transactions alone
    problem         86     1  why the copy cannot be compared, an index into PROBLEMS; 0: it can
    block bits      87     1  of the blocks of offsets that have tables of their own
    table bits      88     1
    state bits      89     1  of the tables of last records
    digest          92    16  BLAKE2b of the bits, both cuts and both cells: copies with the same one are compared
                              by their fronts. All of these are sums of keyed hashes
    counts         108    40  10 of 4 bytes: of what follows, in this order
    epochs                28 each: epoch 4, first offset 8, last offset 8, batches 8
    damage                16 each: the offset of the first record that is damaged, and the one after
    open                  16 each: producer id, first offset of a transaction that is open
    two epochs             8 each: the offset of a batch with which a transaction goes on with another producer epoch
    aborted               24 each: producer id, first offset, last offset of an aborted transaction
    cuts                  32 each: kdump.kernel.sketches
    state cuts            32 each: of the last records of keys
    later keys             8 each: the keys of records at or after `as of`, as sketches.LastRecords.with_tombstones has
                              them
    cells                 16 each: as many for each block
    state cells           24 each
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Final

from kdump.broker.history import EpochRun
from kdump.errors import SourceError
from kdump.format.index import AbortedTransaction
from kdump.format.naming import FINGERPRINT_MAGIC, TopicPartition
from kdump.kernel.cell_differences import CELL_BYTES, HASH_TABLES, KEY_CELL_BYTES, added, halved
from kdump.kernel.crc import crc32c
from kdump.kernel.sketches import CUT_BYTES, are_cuts, records_between
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.log_survey import KAFKA_07, OUT_OF_ORDER, UNREADABLE

VERSION: Final = 8
KEY_ID_BYTES: Final = 16
_END_MAGIC: Final = b"RPFK"
_HEAD: Final = struct.Struct("<8sHHIq16s")
_ENTRY: Final = struct.Struct("<QIIII16siHH")
_TRAILER: Final = struct.Struct("<QIII4s")
_SECTION: Final = struct.Struct("<10qiHBBBBxx16s10I")
_EPOCH: Final = struct.Struct("<iqqq")
_PAIR: Final = struct.Struct("<qq")
_TRIPLE: Final = struct.Struct("<qqq")
_SIZES: Final = (
    *(_EPOCH.size, _PAIR.size, _PAIR.size, 8, _TRIPLE.size),  # the front
    *(CUT_BYTES, CUT_BYTES, 8),
    *(CELL_BYTES, KEY_CELL_BYTES),
)
_FRONT_PARTS: Final = 5
DIGEST_BYTES: Final = 16
_COMPACTED, _TRANSACTIONAL, _STATE, _LATER, _CUT = 1, 2, 4, 8, 16
RECORDS: Final = "records"
CHANGED: Final = "changed"
LIMIT: Final = "limit"
"""It has more open transactions than a fingerprint holds."""
PROBLEMS: Final = ("", OUT_OF_ORDER, UNREADABLE, KAFKA_07, RECORDS, CHANGED, LIMIT)
MOST_ENTRIES: Final = 1 << 20
MOST_INDEX_BYTES: Final = 256 << 20
MOST_SECTION_BYTES: Final = 1 << 20
_FITTING_BYTES: Final = 149_000
_LEAST_BITS: Final = 4
MOST_BITS: Final = 12
MOST_BLOCKS: Final = 8


class FingerprintHead(NamedTuple):
    """Where and when a fingerprint was taken, and which key its hashes have: zeros for none."""

    host: str
    time_ms: int
    key_id: bytes


class IndexEntry(NamedTuple):
    """Where the section of a copy is, and of which topic-partition and directory it is."""

    topic_partition: TopicPartition
    topic_id: bytes
    directory: str
    position: int
    size: int
    crc: int
    front_size: int
    front_crc: int


class Sketch(NamedTuple):
    """Cuts and cells of kdump.kernel.sketches; the tables of each block of offsets have `1 << bits` cells."""

    cuts: bytes = b""
    cells: bytes = b""
    block_bits: int = 0
    bits: int = 0

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The number of each block of offsets, and its cells."""
        size = (HASH_TABLES << self.bits) * CELL_BYTES
        first = (struct.unpack_from("<q", self.cuts)[0] if self.cuts else 0) >> self.block_bits
        for number in range(len(self.cells) // size):
            yield first + number, self.cells[number * size : (number + 1) * size]

    def tables(self, block_bits: int, bits: int) -> dict[int, bytes]:
        """The cells of larger blocks by their numbers, in tables of `1 << bits` cells, which are not more."""
        found = dict[int, bytes]()
        for number, cells in self.blocks():
            block, narrow = number >> (block_bits - self.block_bits), narrowed(cells, self.bits, bits)
            found[block] = added(found[block], narrow) if block in found else narrow
        return found


def narrowed(cells: bytes, bits: int, wanted: int, cell_bytes: int = CELL_BYTES) -> bytes:
    """The cells of tables with `1 << wanted` cells each, of the tables of one or more blocks."""
    size = (HASH_TABLES << bits) * cell_bytes
    for _ in range(bits - wanted):
        cells = b"".join(halved(cells[at : at + size], cell_bytes) for at in range(0, len(cells), size))
        size //= 2
    return cells


class CopySketch(NamedTuple):
    """What a fingerprint has of one copy, as of `as_of`; see LogSurvey.

    `state` is of the last decided record of each key. `later_keys` are those of records from `as_of` on,
    `has_all_later_keys`: they are all. `epochs` and `aborted` are the newest, `is_cut`: there are others. `digest` is
    of the cuts and cells of both, and `record_count` of the records in the cuts: both are only read from a file.
    `oldest_read_ms`: when segments were read that were not read again, the oldest of them; None where all were read.
    """

    start_offset: int
    log_end_offset: int
    as_of: int
    high_watermark: int | None
    reach: int
    node_id: int | None
    compacted: bool
    transactional: bool
    epochs: tuple[EpochRun, ...]
    damage: tuple[OffsetRange, ...]
    aborted: tuple[AbortedTransaction, ...]
    problem: str | None = None
    open: tuple[tuple[int, int], ...] = ()
    two_epochs: tuple[int, ...] = ()
    keyed: int = 0
    unkeyed: int = 0
    undecided: int = 0
    records: Sketch = Sketch()
    state: Sketch | None = None
    later_keys: tuple[int, ...] = ()
    has_all_later_keys: bool = False
    digest: bytes = b""
    oldest_read_ms: int | None = None
    is_cut: bool = False
    record_count: int = 0

    def has_tables_of(self, other: "CopySketch") -> bool:
        """Whether both have the same cuts and cells, of the same offsets: their fronts say all that differs."""
        return (
            self.digest == other.digest != b""
            and (self.start_offset, self.as_of, self.log_end_offset)
            == (other.start_offset, other.as_of, other.log_end_offset)
            and self.epochs == other.epochs
        )


# ---- a copy


def _counts_of(copy: CopySketch) -> tuple[int, ...]:
    state = copy.state or Sketch()
    return (
        *(len(copy.epochs), len(copy.damage), len(copy.open), len(copy.two_epochs), len(copy.aborted)),
        *(len(copy.records.cuts) // CUT_BYTES, len(state.cuts) // CUT_BYTES, len(copy.later_keys)),
        *(len(copy.records.cells) // CELL_BYTES, len(state.cells) // KEY_CELL_BYTES),
    )


def fitted(copy: CopySketch) -> CopySketch:
    """The copy with tables so small that its section has at most 150 KB, whatever else it has much of."""
    while _SECTION.size + sum(map(mul, _counts_of(copy), _SIZES)) > _FITTING_BYTES:
        records, state = copy.records, copy.state or Sketch()
        if len(state.cells) > len(records.cells) and state.bits > _LEAST_BITS:
            copy = copy._replace(state=_with_bits(state, state.bits - 1, KEY_CELL_BYTES))
        elif records.bits > _LEAST_BITS:
            copy = copy._replace(records=_with_bits(records, records.bits - 1, CELL_BYTES))
        else:
            break
    return copy


def _with_bits(sketch: Sketch, bits: int, cell_bytes: int) -> Sketch:
    return sketch._replace(cells=narrowed(sketch.cells, sketch.bits, bits, cell_bytes), bits=bits)


def section_of(copy: CopySketch) -> bytes:
    """The section of a copy."""
    state = copy.state or Sketch()
    flags = _COMPACTED * copy.compacted | _TRANSACTIONAL * copy.transactional
    flags |= _STATE * (copy.state is not None) | _LATER * copy.has_all_later_keys | _CUT * copy.is_cut
    marks = [-1 if each is None else each for each in (copy.high_watermark, copy.oldest_read_ms, copy.node_id)]
    head = _SECTION.pack(
        *(copy.start_offset, copy.log_end_offset, copy.as_of, marks[0], copy.reach),
        *(records_between(copy.records.cuts, copy.start_offset, copy.as_of), copy.keyed, copy.unkeyed, copy.undecided),
        *(*marks[1:], flags, PROBLEMS.index(copy.problem or "")),
        *(copy.records.block_bits, copy.records.bits, state.bits),
        *(_digest(copy.records, copy.state), *_counts_of(copy)),
    )
    return b"".join(
        [
            head,
            *(_EPOCH.pack(*each) for each in copy.epochs),
            *(_PAIR.pack(*each) for each in copy.damage),
            *(_PAIR.pack(*each) for each in copy.open),
            struct.pack(f"<{len(copy.two_epochs)}q", *copy.two_epochs),
            *(_TRIPLE.pack(each.producer_id, each.first_offset, each.last_offset) for each in copy.aborted),
            *(copy.records.cuts, state.cuts, struct.pack(f"<{len(copy.later_keys)}Q", *copy.later_keys)),
            *(copy.records.cells, state.cells),
        ]
    )


def _digest(records: Sketch, state: Sketch | None) -> bytes:
    """A digest of all that two copies can differ in, but for what the front of a section has."""
    known = state or Sketch()
    parts = records.cuts, records.cells, known.cuts, known.cells
    sizes = struct.pack(
        "<4B4I", state is not None, records.block_bits, records.bits, known.bits, *(len(each) for each in parts)
    )
    return hashlib.blake2b(b"".join((sizes, *parts)), digest_size=DIGEST_BYTES, person=b"kdump tables").digest()


def front_size_of(section: bytes) -> int:
    """How many bytes of a section are before its cuts."""
    counts: tuple[int, ...] = _SECTION.unpack_from(section)[-len(_SIZES) :]
    return _SECTION.size + sum(count * size for count, size in zip(counts[:_FRONT_PARTS], _SIZES, strict=False))


def parse_section(data: bytes | memoryview, *, is_front: bool = False) -> CopySketch:
    """The copy of a section; of its front without cuts, later keys and cells. Raises ValueError with what is wrong."""
    if len(data) < _SECTION.size:
        raise ValueError("too short")
    start, end, as_of, mark, reach, record_count, keyed, unkeyed, undecided, oldest, *rest = _SECTION.unpack_from(data)
    node, flags, problem, block_bits, bits, state_bits, digest, *counts = rest
    ends = [*accumulate(map(mul, counts, _SIZES), initial=_SECTION.size)]
    if ends[_FRONT_PARTS if is_front else -1] != len(data):
        raise ValueError("its counts do not fit its size")
    if (
        not start <= as_of <= end
        or min(start, reach, record_count, keyed, unkeyed, undecided, mark + 1, oldest + 1) < 0
    ):
        raise ValueError("its offsets cannot be right")
    if problem >= len(PROBLEMS) or max(bits, state_bits) > MOST_BITS or block_bits > 62 or flags >> 5:
        raise ValueError("it has fields that cannot be right")
    whole = bytes(data)
    parts = [whole[at:stop] for at, stop in pairwise(ends)]  # what is not in a front is empty
    records = Sketch(parts[5], parts[8], block_bits, bits)
    state = Sketch(parts[6], parts[9], 62, state_bits) if flags & _STATE else None
    if not is_front:
        _check_tables(records, counts[8], start, as_of)
        _check_tables(state or Sketch(), counts[9], start, as_of)
        if _digest(records, state) != digest or records_between(records.cuts, start, as_of) != record_count:
            raise ValueError("its digest is not of its tables")
    epochs, damage = _ranges_of(parts[0], parts[1])
    return CopySketch(
        start_offset=start,
        log_end_offset=end,
        as_of=as_of,
        high_watermark=None if mark < 0 else mark,
        reach=reach,
        node_id=None if node < 0 else node,
        compacted=bool(flags & _COMPACTED),
        transactional=bool(flags & _TRANSACTIONAL),
        epochs=epochs,
        damage=damage,
        aborted=tuple(_aborted_of(parts[4])) if counts[4] else (),
        problem=PROBLEMS[problem] or None,
        open=tuple(_PAIR.iter_unpack(parts[2])),
        two_epochs=struct.unpack(f"<{counts[3]}q", parts[3]) if counts[3] else (),
        keyed=keyed,
        unkeyed=unkeyed,
        undecided=undecided,
        records=records,
        state=state,
        later_keys=struct.unpack(f"<{len(parts[7]) // 8}Q", parts[7]) if parts[7] else (),
        has_all_later_keys=bool(flags & _LATER),
        digest=digest,
        oldest_read_ms=None if oldest < 0 else oldest,
        is_cut=bool(flags & _CUT),
        record_count=record_count,
    )


def _ranges_of(epochs: bytes, damage: bytes) -> tuple[tuple[EpochRun, ...], tuple[OffsetRange, ...]]:
    """The epochs and the damage of a section. Raises ValueError."""
    runs = [EpochRun(*each) for each in _EPOCH.iter_unpack(epochs)]
    ranges = [OffsetRange(*each) for each in _PAIR.iter_unpack(damage)]
    for run in runs:
        if run.first > run.last:
            raise ValueError("its epochs cannot be right")
    for each in ranges:
        if each.start >= each.stop:
            raise ValueError("its damage cannot be right")
    return tuple(runs), tuple(ranges)


def _aborted_of(data: bytes) -> Iterator[AbortedTransaction]:
    for producer_id, first, last in _TRIPLE.iter_unpack(data):
        yield AbortedTransaction(0, producer_id, first, last, 0)


def _check_tables(sketch: Sketch, cells: int, start: int, as_of: int) -> None:
    """Raises ValueError unless the sketch can be one of these offsets, and have so many cells."""
    if not sketch.cuts and not cells:
        return
    if not are_cuts(sketch.cuts, start, as_of):
        raise ValueError("its sums are not of its offsets")
    blocks = ((as_of - 1) >> sketch.block_bits) - (start >> sketch.block_bits) + 1
    if blocks > MOST_BLOCKS or cells != blocks * (HASH_TABLES << sketch.bits):
        raise ValueError("its tables are not of its offsets")


# ---- the file around them


def head_of(head: FingerprintHead) -> bytes:
    """The head of a file."""
    host = head.host.encode("utf-8", "surrogateescape")[:1000]
    rest = struct.pack("<q16s", head.time_ms, head.key_id) + host
    return struct.pack("<8sHHI", FINGERPRINT_MAGIC, VERSION, len(host), crc32c(rest)) + rest


def index_of(entries: Sequence[IndexEntry], position: int) -> bytes:
    """Index and trailer of a file; the index begins at `position`."""
    parts = list[bytes]()
    for each in entries:
        topic, directory = (
            text.encode("utf-8", "surrogateescape") for text in (each.topic_partition.topic, each.directory)
        )
        partition = each.topic_partition.partition
        sizes = len(topic), len(directory)
        crcs = each.crc, each.front_size, each.front_crc
        parts += [_ENTRY.pack(each.position, each.size, *crcs, each.topic_id, partition, *sizes), topic, directory]
    index = b"".join(parts)
    trailer = struct.pack("<QII", position, len(index), len(entries))
    return index + trailer + struct.pack("<I4s", crc32c(index + trailer), _END_MAGIC)


HEAD_BYTES: Final = _HEAD.size
TRAILER_BYTES: Final = _TRAILER.size


def parse_head(path: str, data: bytes) -> FingerprintHead:
    """The head of a file, from its first bytes. Raises SourceError."""
    if data[:8] != FINGERPRINT_MAGIC:
        raise SourceError(f"{path}: not a fingerprint file")
    if len(data) < _HEAD.size:
        raise SourceError(f"{path}: a fingerprint file that ends in its head")
    _, version, host_size, crc, time_ms, key_id = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SourceError(
            f"{path}: a fingerprint file of version {version}; this kdump reads version {VERSION} alone:"
            " take all that are compared with one release"
        )
    if len(data) < _HEAD.size + host_size or crc32c(data[16 : _HEAD.size + host_size]) != crc:
        raise SourceError(f"{path}: the head of the fingerprint file is damaged")
    host = data[_HEAD.size : _HEAD.size + host_size].decode("utf-8", "surrogateescape")
    return FingerprintHead(host, time_ms, key_id)


def parse_trailer(path: str, data: bytes, size: int) -> tuple[int, int, int]:
    """Position and size of the index and its entries, from the last bytes of a file. Raises SourceError."""
    if len(data) != _TRAILER.size or data[-4:] != _END_MAGIC:
        raise SourceError(f"{path}: the fingerprint file is not complete")
    position, length, entries, _, _ = _TRAILER.unpack(data)
    if length > MOST_INDEX_BYTES or entries > MOST_ENTRIES or position + length + _TRAILER.size != size:
        raise SourceError(f"{path}: the index of the fingerprint file is damaged")
    return position, length, entries


def parse_index(path: str, index: bytes, trailer: bytes, entries: int) -> Iterator[IndexEntry]:
    """The entries of an index. Raises SourceError."""
    damaged = SourceError(f"{path}: the index of the fingerprint file is damaged")
    if crc32c(index + trailer[:16]) != struct.unpack_from("<I", trailer, 16)[0]:
        raise damaged
    at = 0
    for _ in range(entries):
        if len(index) - at < _ENTRY.size:
            raise damaged
        position, size, crc, front_size, front_crc, topic_id, partition, *sizes = _ENTRY.unpack_from(index, at)
        at += _ENTRY.size
        texts = list[str]()
        for length in sizes:
            if length > len(index) - at:
                raise damaged
            texts.append(index[at : at + length].decode("utf-8", "surrogateescape"))
            at += length
        if partition < 0 or not front_size <= size <= MOST_SECTION_BYTES or not texts[0]:
            raise damaged
        of, crcs = TopicPartition(texts[0], partition), (crc, front_size, front_crc)
        yield IndexEntry(of, topic_id, texts[1], position, size, *crcs)
    if at != len(index):
        raise damaged
