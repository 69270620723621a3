"""The file with the shares of the last fingerprint, which lies beside it; all numbers are little-endian.

    head        offset  size
    magic            0     8  b"KDUMPFPS"
    version          8     2  3
    key id          12    16  as in the fingerprint

    then for each copy
    size             0     8  of what follows the code
    code             8    16  BLAKE2b of that, with the key of the hashes
    topic id        24    16  zeros: not known
    partition       40     4
    topic size      44     2
    directory size  46     2
    topic, directory
    batch bytes            4  no larger batches were read
    shares                 4

A share: first and end offset, records with a key and without one, when it was read (8 bytes each), bits of a block,
whether the ends are all (1 each), segments, cuts, ends, the size of its cells (4 each); then these. A segment: size,
time and inode of its file, the position of its last batch, first and end offset (8 each), the sizes of name and header
(2 each) and the number of epochs (4); then these.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Final

from kdump.broker.history import EpochRun
from kdump.errors import SourceError, reason
from kdump.format.naming import SHARES_MAGIC, TopicPartition
from kdump.kernel.cell_differences import CELL_BYTES, HASH_TABLES
from kdump.kernel.sketches import CUT_BYTES, NEWEST_ENDS, are_cuts
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import BLOCKS, RECORD_BITS, HashKey
from kdump.replicas.fingerprint.fingerprint_format import Sketch
from kdump.replicas.fingerprint.segment_shares import KnownSegment, Share
from kdump.replicas.log_survey import SegmentFacts
from kdump.storage.stamps import Stamp

SUFFIX: Final = ".shares"
_VERSION: Final = 4
_HEAD: Final = struct.Struct("<8sHxx16s")
_SECTION: Final = struct.Struct("<Q16s")
_COPY: Final = struct.Struct("<16siHH")
_LIST: Final = struct.Struct("<II")
_SHARE: Final = struct.Struct("<5qBBIIII")
_SEGMENT: Final = struct.Struct("<qqQqqqHHI")
_EPOCH: Final = struct.Struct("<iqqq")
_CODE_BYTES: Final = 16
_NAME_BYTES: Final = 8 << 10
_MOST_BYTES: Final = 32 << 20
_MOST_COPIES: Final = 1 << 20
_INODES: Final = 1 << 64
_ALL: Final = "all segments are read"


class CopyName(NamedTuple):
    """A copy: its topic-partition, topic id (zeros: not known) and directory."""

    topic_partition: TopicPartition
    topic_id: bytes
    directory: str


class SharePlace(NamedTuple):
    """Where the shares of a copy are in a file, and their code."""

    path: str
    position: int
    size: int
    code: bytes


class ShareIndex(NamedTuple):
    """What a file has. `problem`: why it has less than it should."""

    places: Mapping[CopyName, SharePlace] = {}
    problem: str | None = None


def may_replace(path: str) -> bool:
    """Whether there is no file, or one with shares."""
    try:
        with open(path, "rb") as file:
            return file.read(len(SHARES_MAGIC)) == SHARES_MAGIC
    except FileNotFoundError:
        return True
    except OSError:
        return False


def read_share_index(path: str, key: HashKey) -> ShareIndex:
    """The copies of a file of which shares are at hand; none where there is no file."""
    places = dict[CopyName, SharePlace]()
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or head[:8] != SHARES_MAGIC:
                return ShareIndex({}, f"{path}: not the shares of a fingerprint: {_ALL}")
            _, version, key_id = _HEAD.unpack(head)
            if version != _VERSION:
                return ShareIndex({}, f"{path}: of another version of kdump: {_ALL}")
            if key_id != key.key_id:
                return ShareIndex({}, f"{path}: taken with another key: {_ALL}")
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size and len(places) < _MOST_COPIES:
                position = file.tell()
                length, code = _SECTION.unpack(file.read(_SECTION.size))
                if length > min(_MOST_BYTES, size - file.tell()):
                    return ShareIndex(places, f"{path}: damaged at byte {position}: more segments are read")
                name = _name_of(file.read(min(length, _NAME_BYTES)))[0]
                places[name] = SharePlace(path, position + _SECTION.size, length, code)
                file.seek(position + _SECTION.size + length)
    except FileNotFoundError:
        return ShareIndex()
    except OSError as error:
        return ShareIndex({}, f"{path}: {reason(error)}: {_ALL}")
    except (ValueError, struct.error):
        return ShareIndex(places, f"{path}: damaged: more segments are read")
    return ShareIndex(places)


def load_shares(place: SharePlace, key: HashKey, max_batch_bytes: int) -> list[Share]:
    """The shares of a copy; none where batches of other sizes were read. Raises SourceError."""
    try:
        with open(place.path, "rb") as file:
            file.seek(place.position)
            data = file.read(place.size)
    except OSError as error:
        raise SourceError(f"{place.path}: {reason(error)}") from None
    if len(data) != place.size or _code_of(data, key) != place.code:
        raise SourceError(f"{place.path}: damaged at byte {place.position}")
    try:
        at = _name_of(data)[1]
        limit, count = _LIST.unpack_from(data, at)
        return list(_shares_of(_Bytes(data, at + _LIST.size), count)) if limit == max_batch_bytes else []
    except (ValueError, struct.error):
        raise SourceError(f"{place.path}: damaged at byte {place.position}") from None


def section_of_shares(name: CopyName, shares: Sequence[Share], key: HashKey, max_batch_bytes: int) -> bytes:
    """What a file has of a copy; empty without shares, and where they are too many."""
    topic, directory = (
        text.encode("utf-8", "surrogateescape") for text in (name.topic_partition.topic, name.directory)
    )
    parts = [
        _COPY.pack(name.topic_id, name.topic_partition.partition, len(topic), len(directory)),
        *(topic, directory, _LIST.pack(max_batch_bytes, len(shares))),
        *(part for share in shares for part in _parts_of(share)),
    ]
    data = b"".join(parts)
    if not shares or len(data) > _MOST_BYTES:
        return b""
    return _SECTION.pack(len(data), _code_of(data, key)) + data


def _code_of(data: bytes, key: HashKey) -> bytes:
    return hashlib.blake2b(data, key=key.key, digest_size=_CODE_BYTES, person=b"kdump shares").digest()


def _parts_of(share: Share) -> Iterator[bytes]:
    sums = share.sums
    yield _SHARE.pack(
        *(share.start_offset, share.end_offset, share.keyed, share.unkeyed, share.read_ms),
        *(sums.block_bits, share.has_all_ends),
        *(len(share.segments), len(sums.cuts) // CUT_BYTES, len(share.ends), len(sums.cells)),
    )
    for name, stamp, position, header, facts in share.segments:
        text = os.fsencode(name)
        yield _SEGMENT.pack(
            *(stamp.size, stamp.mtime_ns, stamp.inode % _INODES, position, facts.first_offset, facts.end_offset),
            *(len(text), len(header), len(facts.epochs)),
        )
        yield from (text, header, *(_EPOCH.pack(*each) for each in facts.epochs))
    yield from (sums.cuts, struct.pack(f"<{len(share.ends)}q", *share.ends), sums.cells)


class _Bytes:
    """Takes what follows. Raises ValueError where it is not there."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def take(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise ValueError("too short")
        return self._data[self._at - size : self._at]

    def fields(self, struct: struct.Struct) -> tuple[int, ...]:
        return struct.unpack(self.take(struct.size))


def _shares_of(data: _Bytes, count: int) -> Iterator[Share]:
    for _ in range(count):
        start, stop, keyed, unkeyed, read_ms, block_bits, has_all, *sizes = data.fields(_SHARE)
        segments, cuts, ends, cells = sizes
        if not 0 <= start < stop or block_bits > 62 or ends > NEWEST_ENDS or min(keyed, unkeyed, read_ms) < 0:
            raise ValueError("a share that cannot be right")
        known = tuple(_segment_of(data) for _ in range(segments))
        sums = Sketch(data.take(cuts * CUT_BYTES), b"", block_bits, RECORD_BITS)
        found = struct.unpack(f"<{ends}q", data.take(8 * ends))
        blocks = ((stop - 1) >> block_bits) - (start >> block_bits) + 1
        if not are_cuts(sums.cuts, start, stop) or blocks > BLOCKS:
            raise ValueError("sums that cannot be right")
        if cells != (blocks * HASH_TABLES << RECORD_BITS) * CELL_BYTES:
            raise ValueError("tables that cannot be right")
        sums = sums._replace(cells=data.take(cells))
        yield Share(start, stop, keyed, unkeyed, sums, found, bool(has_all), read_ms, known)


def _segment_of(data: _Bytes) -> KnownSegment:
    size, mtime_ns, inode, position, first, stop, name, header, epochs = data.fields(_SEGMENT)
    if not 0 <= first < stop or not 0 <= position < size:
        raise ValueError("a segment that cannot be right")
    text, batch = os.fsdecode(data.take(name)), data.take(header)
    several = [EpochRun(*each) for each in _EPOCH.iter_unpack(data.take(_EPOCH.size * epochs))]
    if any(each.first > each.last for each in several):
        raise ValueError("epochs that cannot be right")
    facts = SegmentFacts(first, stop, size, tuple(several))
    return KnownSegment(text, Stamp(size, mtime_ns, inode), position, batch, facts)


def _name_of(data: bytes) -> tuple[CopyName, int]:
    """The copy of a section, and where its shares begin. Raises ValueError, struct.error."""
    topic_id, partition, *sizes = _COPY.unpack_from(data)
    texts, at = list[str](), _COPY.size
    for size in sizes:
        texts.append(data[at : at + size].decode("utf-8", "surrogateescape"))
        at += size
    if at > len(data):
        raise ValueError("too short")
    return CopyName(TopicPartition(texts[0], partition), topic_id, texts[1]), at


class ShareMemory:
    """The shares of the last fingerprint, and the file for those of the next one: `create` opens it."""

    def __init__(self, index: ShareIndex, key: HashKey, create: Callable[[], IO[bytes]]) -> None:
        self.index, self._key, self._create = index, key, create
        self._file: IO[bytes] | None = None

    def keep(self, section: bytes) -> None:
        """Write what section_of_shares has of a copy. Where that is nothing of any, the last file stays as it is."""
        if not section:
            return
        if self._file is None:
            self._file = self._create()
            self._file.write(_HEAD.pack(SHARES_MAGIC, _VERSION, self._key.key_id))
        self._file.write(section)
