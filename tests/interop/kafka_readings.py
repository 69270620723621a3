"""What kdump says of a log file beside what Kafka's own reader makes of it (KafkaReader.java).

Kafka's reader walks by the stored lengths alone and ends at the first one that lies, so it is started again after
every place where kdump found no batch. Of what both see they have to say the same:

* a batch that Kafka reads completely has no error finding but READABLE ones, and the same records;
* a batch without an error finding (but READABLE ones) is read completely by Kafka;
* where Kafka stops inside a batch, both read the same records up to there;
* a batch with a wrong checksum is refused by Kafka, and one with a right checksum is not.

What differs, and should:

* READABLE: a reader does not look at offsets, counts more records than offsets without a word, and parses control
  records only where it acts on them (KafkaReader.java does, and that has to agree with control/structure).
* Kafka takes a frame of magic 3 to 127 for magic 2 and finds its checksum right: kdump says batch/magic, or passes over
  it.
* What kdump passes over in its search for the next batch Kafka may read, when its walk leads there: a frame that is not
  of this log (gap/foreign-batch) or with an offset below 0, or one of magic 1 too short to hold its fields, which Kafka
  throws on.
* Where a count of 0 hides bytes (batch/count), Kafka reads as much of them as the constructor of the codec's stream
  does.
* Kafka allocates what the size of a partial inner message claims (legacy/partial), and may have no memory for it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from fuzz.check import Case, report, tiles
from kdump.format.batch import Batch
from kdump.format.java import java_text
from kdump.format.record import Record
from kdump.kernel.results import NO_VALUE
from kdump.storage.records import open_batch, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import Walk
from kdump.verify.findings import Finding, Severity

READABLE = frozenset({"offset/range", "offset/backwards", "batch/count", "control/structure"})
LIMIT_BYTES = 64 << 20


# ------------------------------------------------------------------------------------------------------------- Kafka's
# side


class Seen(NamedTuple):
    """One batch as KafkaReader.java prints it."""

    position: int
    size: int
    magic: int
    valid: str
    read: str
    refused: int
    control: str
    header: str
    records: tuple[str, ...]

    @property
    def sound(self) -> bool:
        """Every record was read and none refused."""
        return self.valid == self.read == "ok" and self.refused == 0


class Ended(NamedTuple):
    """One walk: where it began, where it ended, and `end` or what was thrown."""

    start: int
    position: int
    how: str


class KafkaReading(NamedTuple):
    """What Kafka's reader made of one file."""

    batches: dict[int, Seen]
    walks: tuple[Ended, ...]


def parse(lines: Iterable[str]) -> Iterator[KafkaReading]:
    """The output of KafkaReader.java, file by file."""
    batches: dict[int, Seen] = {}
    walks: list[Ended] = []
    start = 0
    begun = False
    for line in lines:
        kind, *fields = line.split("\t")
        if kind == "F":
            if begun:
                yield KafkaReading(batches, tuple(walks))
            begun, batches, walks = True, {}, []
        elif kind == "W":
            start = int(fields[0])
        elif kind == "B":
            position, size, magic, valid, read, refused, control, header, *checksums = fields
            seen = Seen(
                int(position), int(size), int(magic), valid, read, int(refused), control, header, tuple(checksums)
            )
            batches[seen.position] = seen
        elif kind == "E":
            walks.append(Ended(start, int(fields[0]), fields[1]))
        else:
            raise ValueError(f"not a line of KafkaReader.java: {line!r}")
    if begun:
        yield KafkaReading(batches, tuple(walks))


# ------------------------------------------------------------------------------------------------------------- kdump's
# side


class Tile(NamedTuple):
    """A piece of the file as kdump sees it: a batch (`code` empty), a damaged one, a gap or a tail."""

    code: str
    position: int
    size: int
    batch: Batch | None
    records: tuple[str, ...]


class KdumpReading(NamedTuple):
    """What kdump says of one file."""

    tiles: tuple[Tile, ...]
    findings: tuple[Finding, ...]

    @property
    def starts(self) -> list[int]:
        """Where Kafka's reader is to begin: at the beginning, and after everything that is not a batch."""
        after = [tile.position for before, tile in pairwise(self.tiles) if before.code and not tile.code]
        return [0, *after]


def checksum(record: Record) -> str:
    """The CRC-32 that KafkaReader.java prints for a record."""
    out = struct.pack(">qqi", record.offset, record.timestamp, record.sequence)
    for field in (record.key, record.value):
        out += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    out += struct.pack(">i", len(record.headers))
    for name, value in record.headers:
        text = java_text(name).encode()
        out += struct.pack(">i", len(text)) + text
        out += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return f"{zlib.crc32(out):x}"


def read_by_kdump(data: bytes, base_offset: int | None) -> KdumpReading:
    """kdump over one file."""
    case = Case(data, base_offset, max_batch_bytes=LIMIT_BYTES)
    found = []
    walk = Walk(BytesSource(data), base_offset=base_offset, everything=True, max_batch_bytes=LIMIT_BYTES)
    for code, position, size, batch, body in tiles(walk):
        some: tuple[str, ...] = ()
        if batch is not None and not code:
            some = tuple(checksum(record) for record in records(batch, open_batch(batch, body, LIMIT_BYTES)))
        found.append(Tile(code, position, size, batch, some))
    return KdumpReading(tuple(found), tuple(report(case, True).findings))


def _java(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def header(batch: Batch) -> str:
    """The header fields as KafkaReader.java prints them."""
    codec = batch.codec_name if isinstance(batch.codec_name, str) else "IllegalArgumentException"
    if batch.is_legacy:
        fields: Sequence[object] = (batch.last_offset, batch.max_timestamp, batch.timestamp_type, codec, batch.crc)
    else:
        horizon = batch.delete_horizon_ms
        fields = (
            *(
                batch.base_offset,
                batch.last_offset,
                batch.count,
                batch.max_timestamp,
                batch.timestamp_type,
                codec,
                batch.crc,
            ),
            *(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, batch.transactional),
            *(batch.control, batch.partition_leader_epoch, "none" if horizon is None else horizon),
        )
    return ",".join(map(_java, fields))


# --------------------------------------------------------------------------------------------------------------- the
# verdict


def disagreements(ours: KdumpReading, theirs: KafkaReading, size: int) -> Iterator[str]:
    """Everything in which the two differ and should not."""
    at: dict[int, set[str]] = {}
    for finding in ours.findings:
        if finding.data.get("problem") == "control-type":
            continue  # a reader takes it; only what replays producers does not (ProducerAppendInfo)
        if finding.severity is Severity.ERROR or finding.code in ("batch/limit", "legacy/partial", "gap/foreign-batch"):
            at.setdefault(finding.position, set()).add(finding.code)
    placed = {tile.position: tile for tile in ours.tiles}
    for tile in ours.tiles:
        if not tile.code and tile.position not in theirs.batches:
            yield f"{tile.position}: Kafka sees no batch here"
    for seen in theirs.batches.values():
        known = placed.get(seen.position)
        if known is None:
            around = next(
                (tile for tile in ours.tiles if tile.position < seen.position < tile.position + tile.size), None
            )
            if seen.sound and (around is None or not around.code):
                yield f"{seen.position}: Kafka reads a batch inside one of kdump's"
        elif known.batch is None:
            short = seen.magic == 1 and seen.size < 34 and not seen.sound
            strange = (
                seen.magic not in (0, 1, 2)
                or seen.header.startswith("-")
                or "gap/foreign-batch" in at.get(seen.position, ())
            )
            if seen.valid == "ok" and not short and not strange:
                yield f"{seen.position}: {known.code}, and Kafka finds it valid"
        elif known.code:
            if seen.valid == "ok" and not at.get(seen.position, set()) & {"batch/limit", "batch/magic"}:
                yield f"{seen.position}: {known.code}, and Kafka finds it valid"
        else:
            yield from (
                f"{seen.position}: {problem}"
                for problem in _batch(known, known.batch, seen, at.get(seen.position, set()))
            )
    yield from _ends(ours, theirs, size)


def _batch(tile: Tile, batch: Batch, seen: Seen, codes: set[str]) -> Iterator[str]:
    if seen.valid != "ok":
        yield f"kdump finds it valid, Kafka throws {seen.valid}"
        return
    if (seen.size, seen.magic) != (tile.size, batch.magic):
        yield f"size and magic {(tile.size, batch.magic)}, to Kafka {(seen.size, seen.magic)}"
    if seen.header != header(batch):
        yield f"header {header(batch)}, to Kafka {seen.header}"
    serious = codes - READABLE - {"legacy/partial"}
    hidden = "batch/count" in codes and batch.count == 0
    if "batch/count" in codes and batch.count != NO_VALUE and batch.count < 0:
        serious = {*serious, "batch/count"}
    if seen.sound:
        if serious - {"batch/limit"}:
            yield f"Kafka reads it, kdump says {sorted(serious)}"
        elif seen.records != tile.records and not serious:
            yield f"records {tile.records}, to Kafka {seen.records}"
    elif not serious and not hidden and not (seen.read == "OutOfMemoryError" and "legacy/partial" in codes):
        yield (
            f"kdump finds nothing, Kafka throws {seen.read} after {len(seen.records)} records, {seen.refused} of "
            "them refused"
        )
    both = min(len(seen.records), len(tile.records))
    if seen.records[:both] != tile.records[:both]:
        yield f"records {tile.records[:both]}, to Kafka {seen.records[:both]}"
    if seen.sound and (seen.control not in ("ok", "-")) != ("control/structure" in codes):
        yield f"control records {seen.control} to Kafka, kdump says {sorted(codes)}"


def _ends(ours: KdumpReading, theirs: KafkaReading, size: int) -> Iterator[str]:
    first = theirs.walks[0]
    whole = all(not tile.code for tile in ours.tiles)
    reached = first.how == "end" and first.position == size
    if whole and not reached:
        yield f"kdump finds batches to the end, Kafka's walk ends at {first.position} of {size}: {first.how}"
    if not whole and reached:
        foreign = {finding.position for finding in ours.findings if finding.code == "gap/foreign-batch"}
        own = [
            seen
            for seen in theirs.batches.values()
            if seen.sound and seen.magic in (0, 1, 2) and seen.position not in foreign
        ]
        if sum(seen.size for seen in own) == size:
            yield "Kafka reads batches to the end, kdump does not"
