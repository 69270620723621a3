"""What the records of a segment hold, counted record by record over the reference decoder, and the same through the
collector of the package."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

from kdump.kernel.record_statistics import RecordCollector
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.stat.histogram import Histogram
from kdump.stat.keys import KeyStatistics
from kdump.stat.records import RecordStatistics, TimestampOrder, collect_chunk
from kdump.storage.records import open_batch
from kdump.storage.source import BytesSource
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Walk
from support import build, oracle

_M64 = 0xC6A4A7935BD1E995
_ALL = (1 << 64) - 1


def murmur64(key: bytes) -> int:
    """MurmurHash64A, as its author wrote it, in plain Python."""
    h = 0x9747B28C ^ (len(key) * _M64 & _ALL)
    for at in range(0, len(key) - 7, 8):
        k = int.from_bytes(key[at : at + 8], "little") * _M64 & _ALL
        k = (k ^ k >> 47) * _M64 & _ALL
        h = (h ^ k) * _M64 & _ALL
    if rest := key[len(key) & ~7 :]:
        h = (h ^ int.from_bytes(rest, "little")) * _M64 & _ALL
    h = (h ^ h >> 47) * _M64 & _ALL
    return h ^ h >> 47


def murmur2(key: bytes) -> int:
    """Utils.murmur2 of Kafka, in plain Python; signed."""
    m, h = 0x5BD1E995, 0x9747B28C ^ len(key)
    for at in range(0, len(key) - 3, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ ((k ^ k >> 24) * m & 0xFFFFFFFF)
    if rest := key[len(key) & ~3 :]:
        h = (h ^ int.from_bytes(rest, "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


class Seen(NamedTuple):
    """One data record with its size before compression and the batch that it is in."""

    record: oracle.Record
    size: int
    position: int


class PlainCounts:
    """Every number of RecordStatistics and KeyStatistics, the slow way."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.batches = self.unread = 0
        self.codecs = [[0, 0, 0, 0] for _ in range(5)]

    @property
    def keyed(self) -> list[Seen]:
        return [one for one in self.seen if one.record.key is not None]

    def sample(self) -> dict[int, tuple[int, int, int, int, bool, int]]:
        """By hash: records, bytes, last offset, size of the last, whether it is a tombstone, partitioner hashes."""
        groups: dict[bytes, list[Seen]] = defaultdict(list)
        for one in self.keyed:
            groups[one.record.key or b""].append(one)
        found = {}
        for key, group in groups.items():
            highest = max(one.record.offset for one in group)
            last = [one for one in group if one.record.offset == highest][-1]
            found[murmur64(key)] = (
                len(group),
                sum(one.size for one in group),
                last.record.offset,
                last.size,
                last.record.value is None,
                (murmur2(key) & 0xFFFFFFFF) << 32 | zlib.crc32(key),
            )
        return found

    def weights(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """By key: records, bytes."""
        records, sizes = Counter[bytes](), Counter[bytes]()
        for one in self.keyed:
            records[one.record.key or b""] += 1
            sizes[one.record.key or b""] += one.size
        return records, sizes

    def headers(self) -> Counter[bytes]:
        return Counter(key for one in self.seen for key, _ in one.record.headers)

    def header_bytes(self) -> Counter[bytes]:
        found = Counter[bytes]()
        for one in self.seen:
            for key, value in one.record.headers:
                found[key] += len(value or b"")
        return found

    def key_sizes(self) -> Histogram:
        return Histogram.of(len(one.record.key or b"") for one in self.keyed)

    def value_sizes(self) -> Histogram:
        return Histogram.of(len(one.record.value) for one in self.seen if one.record.value is not None)

    def shapes(self) -> dict[str, list[int]]:
        found = {name: [0, 0] for name in ("null", "empty", "json", "schema", "text", "binary")}
        for one in self.seen:
            of = found[shape(one.record.value)]
            of[0] += 1
            of[1] += len(one.record.value or b"")
        return found

    def schemas(self) -> Counter[bytes]:
        values = [one.record.value or b"" for one in self.seen if shape(one.record.value) == "schema"]
        return Counter(value[1:5] for value in values)

    def times(self) -> tuple[int, int | None, int | None, int | None, int | None, int, int]:
        stamps = [one.record.timestamp for one in self.seen if one.record.timestamp >= 0]
        if not stamps:
            return 0, None, None, None, None, 0, 0
        largest, most = stamps[0], 0
        for stamp in stamps:
            largest = max(largest, stamp)
            most = max(most, largest - stamp)
        back = sum(one > two for one, two in pairwise(stamps))
        return len(stamps), stamps[0], stamps[-1], min(stamps), max(stamps), back, most

    def largest(self) -> list[tuple[int, int, int, int, int, int]]:
        rows = [
            (
                one.size,
                one.record.offset,
                one.position,
                one.record.timestamp,
                -1 if one.record.key is None else len(one.record.key),
                -1 if one.record.value is None else len(one.record.value),
            )
            for one in self.seen
        ]
        return sorted(rows, key=lambda row: (-row[0], row[1]))[:20]


def shape(value: bytes | None) -> str:
    """The shape of a value, by the rules of ValueShapes."""
    if value is None:
        return "null"
    if not value:
        return "empty"
    if value[0] == 0:
        return "schema" if len(value) >= 5 else "binary"
    if not is_text(value):
        return "binary"
    bare = value.strip(b" \t\r\n")
    return "json" if len(bare) > 1 and bare[:1] + bare[-1:] in (b"{}", b"[]") else "text"


def is_text(value: bytes) -> bool:
    head = value[:1024]
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # A character that the cut goes through.
        if len(value) <= 1024 or error.reason != "unexpected end of data":
            return False
        text = head[: error.start].decode()
    return not any(character < " " and character not in "\t\r\n" for character in text)


def recount(
    data: bytes,
    start: int = 0,
    stop: int | None = None,
    *,
    base_offset: int | None = None,
    limit: int = MAX_BATCH_BYTES,
) -> PlainCounts:
    """Count the records of the batches that begin in [start, stop)."""
    counts = PlainCounts()
    for item in oracle.walk(data, base_offset=base_offset, max_batch_bytes=limit):
        if not start <= item.position < (len(data) if stop is None else stop):
            continue
        if not isinstance(item, oracle.Batch):
            continue
        try:
            records = oracle.records(data, item.position, limit=limit)
        except oracle.Malformed:
            counts.unread += 1
            continue
        if item.codec >= len(counts.codecs):  # without records, too
            counts.unread += 1
            continue
        if item.control:
            continue
        sizes, stored, whole = payload_sizes(data, item.position)
        counts.batches += 1
        codec = counts.codecs[item.codec]
        for at, more in enumerate((1, len(records), stored, whole)):
            codec[at] += more
        counts.seen += [Seen(one, size, item.position) for one, size in zip(records, sizes, strict=True)]
    return counts


def same(found: RecordStatistics, counts: PlainCounts) -> None:
    """Asserts that every number of `found` is the one that was counted."""
    seen, keyed = counts.seen, counts.keyed
    tombstones = [one for one in seen if one.record.value is None]
    assert (found.batches, found.unread) == (counts.batches, counts.unread)
    assert (found.records, found.bytes) == (len(seen), sum(one.size for one in seen))
    assert found.null_keys == len(seen) - len(keyed)
    assert found.empty_keys == sum(one.record.key == b"" for one in keyed)
    assert found.tombstones == len(tombstones)
    assert found.tombstone_bytes == sum(one.size for one in tombstones)
    assert found.headers == sum(len(one.record.headers) for one in seen)
    assert found.records_with_headers == sum(bool(one.record.headers) for one in seen)
    assert found.key_sizes == counts.key_sizes()
    assert found.value_sizes == counts.value_sizes()
    assert [list(each) for each in found.by_codec] == counts.codecs
    assert {name: list(volume) for name, volume in found.shapes._asdict().items()} == counts.shapes()
    assert found.timestamps == TimestampOrder(*counts.times())
    assert [tuple(each) for each in found.largest] == counts.largest()
    headers = counts.headers()
    assert {one.name: one.occurrences for one in found.header_keys.names()} == {
        name[:96]: count for name, count in headers.items()
    }
    assert sum(one.value_bytes for one in found.header_keys.names()) == counts.header_bytes().total()
    assert found.header_keys.distinct() == (len(headers), False, 0)
    assert {one.name: one.occurrences for one in found.schemas.names()} == counts.schemas()


def same_keys(found: KeyStatistics, counts: PlainCounts) -> None:
    """Asserts the same of the keys, which are few enough for exact numbers."""
    assert {one.hash: tuple(one[1:]) for one in found.sample.sampled()} == counts.sample()
    records, sizes = counts.weights()
    for weights, heavy in ((records, found.by_records), (sizes, found.by_bytes)):
        assert heavy.error == 0
        assert {(one.key, one.size, one.weight) for one in heavy.heaviest()} == {
            (key[:96], len(key), weight) for key, weight in weights.items()
        }
    assert {one.offset for one in found.by_records.heaviest()} <= {one.record.offset for one in counts.keyed}
    assert (found.records, found.bytes) == (len(counts.keyed), sum(one.size for one in counts.keyed))
    live = list(counts.sample().values())
    savings = found.compaction()
    assert found.distinct() == savings.live_records == (len(live), False, 0)
    assert savings.live_bytes == (sum(one[3] for one in live), False, 0)
    assert savings.live_tombstones == (sum(one[4] for one in live), False, 0)
    assert savings.live_tombstone_bytes == (sum(one[3] for one in live if one[4]), False, 0)
    assert savings.shadowed_tombstones.value == found.tombstones - savings.live_tombstones.value
    assert savings.dropped_records.value == len(counts.seen) - len(live)
    assert savings.dropped_bytes.value == sum(one.size for one in counts.seen) - savings.live_bytes.value


def payload_sizes(data: bytes, position: int) -> tuple[list[int], int, int]:
    """The size of each record, that of all as stored, and that of all uncompressed."""
    for chunk in Walk(BytesSource(data[position : position + build.total_size(data, position)]), everything=True):
        assert isinstance(chunk, BatchChunk)
        batch = chunk.row(0)
        opened = open_batch(batch, chunk.body(batch), MAX_BATCH_BYTES)
        sizes = opened.rows[1::14].tolist()
        skip = 61 if batch.magic == 2 else 0
        if batch.attributes & 7 == 0:
            return sizes, batch.size - skip, batch.size - skip
        return sizes, batch.size - 61 if batch.magic == 2 else chunk.diagnosis(0).payload_size, len(opened.payload)
    raise AssertionError("no batch")


def collected(
    data: bytes, *, start: int = 0, stop: int | None = None, rows: int = 256, **sizes: Any
) -> RecordCollector:
    """The collector of the package over the batches that begin in [start, stop), `start` at a batch."""
    collector = RecordCollector(**sizes)
    walk = Walk(BytesSource(data), start=start, stop=stop, deep=True, everything=True, rows=rows)
    for item in walk:
        if isinstance(item, BatchChunk) and not item.damaged:
            collect_chunk(item, collector, MAX_BATCH_BYTES)
    return collector


def rows_of(pairs: list[tuple[bytes | None, bytes | None]], at: int = 0, base_offset: int = 0) -> tuple[bytes, bytes]:
    """A batch of many records as a row of the scan and its payload, made without a log: for tests with many keys."""
    payload = b"".join([small_record(key, value, index) for index, (key, value) in enumerate(pairs)])
    row = dict.fromkeys(BATCH_COLUMNS, 0)
    row |= {"position": at, "magic": 2, "base_offset": base_offset, "count": len(pairs)}
    row |= {"size": len(payload) + 61, "payload_size": len(payload), "last_offset": base_offset + len(pairs) - 1}
    return array("q", row.values()).tobytes(), payload


def small_record(key: bytes | None, value: bytes | None, offset_delta: int) -> bytes:
    """An encoded record of magic 2 without headers."""
    body = b"\0\0" + build.varint(offset_delta) + _sized(key) + _sized(value) + b"\0"
    return build.varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    if data is None:
        return b"\x01"
    return (bytes((2 * len(data),)) if len(data) < 64 else build.varint(len(data))) + data
