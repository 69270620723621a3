"""The numbers of a partition, counted again in plain Python over the reference decoder."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from kdump.broker.cleaner.delete_horizons import DeleteHorizons
from kdump.stat.histogram import Histogram
from kdump.stat.producers import ProducerRow
from kdump.stat.range_statistics import RangeStatistics
from kdump.stat.values import BatchStatistics, PartitionStatistics
from support import oracle
from support.oracle import Batch

HOUR = 3_600_000


class Segment(NamedTuple):
    """The bytes of a segment. `batches` are those that count."""

    data: bytes
    batches: list[Batch]

    @classmethod
    def of(cls, data: bytes, base_offset: int | None) -> Segment:
        items = oracle.walk(data, base_offset=base_offset)
        return cls(data, [item for item in items if isinstance(item, Batch)])


def marker_of(data: bytes, batch: Batch) -> int | None:
    """0 abort, 1 commit, None for another batch. Of several records a broker reads the first one alone."""
    if not batch.control or batch.producer_id < 0 or not batch.count or batch.codec:
        return None
    try:
        first = oracle.first_record(data, batch)
    except oracle.Malformed:
        return None
    if first.key is None or oracle.control_fault(first.key, first.value, ends=True) is not None:
        return None
    return int(struct.unpack_from(">hh", first.key)[1])


def volume(batches: Iterable[Batch]) -> tuple[int, int, int, int]:
    """Batches, known data records, bytes, unopened wrapper messages."""
    chosen = list(batches)
    return (
        len(chosen),
        sum(max(batch.count or 0, 0) for batch in chosen if not batch.control),
        sum(batch.size for batch in chosen),
        sum(batch.count is None for batch in chosen),
    )


def timestamp_type(batch: Batch) -> int:
    return 2 if batch.magic == 0 else int(batch.append_time)


def counted(segment: Segment, bucket_ms: int = HOUR) -> dict[str, Any]:
    """What `BatchStatistics` of the segment has to be, but the aborted records."""
    batches = segment.batches
    codecs, magics, types, hours = (defaultdict[int, list[Batch]](list) for _ in range(4))
    epochs: list[tuple[int, int]] = []
    firsts, bound = [], False
    for batch in batches:
        codecs[min(batch.codec, 5)].append(batch)
        magics[batch.magic].append(batch)
        types[timestamp_type(batch)].append(batch)
        if batch.max_timestamp >= 0:
            hours[batch.max_timestamp // bucket_ms].append(batch)
        epoch = batch.partition_leader_epoch
        if epoch is not None and epoch >= 0 and (not epochs or epochs[-1][0] != epoch):
            epochs.append((epoch, batch.offset))
        if batch.count is not None and batch.count <= 0:
            continue
        if batch.append_time:
            firsts.append(batch.max_timestamp)
        elif batch.delete_horizon:
            bound = True
        elif batch.base_timestamp >= 0:
            firsts.append(batch.base_timestamp)
            bound = bound or batch.count != 1
    newest = tuple(
        max((batch.max_timestamp for batch in magics[magic] if batch.max_timestamp >= 0), default=None)
        for magic in range(3)
    )
    modern = [batch for batch in batches if not batch.is_legacy]
    horizons = [batch for batch in modern if batch.delete_horizon]
    return {
        "total": volume(batches),
        "control_batches": sum(batch.control for batch in batches),
        "control_records": sum(max(batch.count or 0, 0) for batch in batches if batch.control),
        "by_codec": tuple(volume(codecs[codec]) for codec in range(6)),
        "by_magic": tuple(volume(magics[magic]) for magic in range(3)),
        "by_timestamp_type": tuple(volume(types[kind]) for kind in range(3)),
        "idempotent": volume(batch for batch in modern if batch.producer_id >= 0),
        "transactional": volume(batch for batch in modern if batch.attributes & 0x10),
        "batch_sizes": Histogram.of(batch.size for batch in batches),
        "records_per_batch": Histogram.of(
            max(batch.count, 0) for batch in batches if batch.count is not None and not batch.control
        ),
        "first_offset": batches[0].offset if batches else None,
        "last_offset": batches[-1].last_offset if batches else None,
        "largest_timestamp": max((time for time in newest if time is not None), default=None),
        "smallest_timestamp": min((time for time in firsts if time >= 0), default=None),
        "smallest_is_bound": bound,
        "newest_by_magic": newest,
        "epochs": tuple(epochs),
        "hours": {hour: volume(found) for hour, found in hours.items()},
        "older": (0, 0, 0, 0),
        "compacted": any(batch.delete_horizon or (batch.count or 0) <= batch.last_offset_delta for batch in modern),
        "delete_horizons": DeleteHorizons(
            len(horizons),
            sum(batch.size for batch in horizons),
            min((batch.base_timestamp for batch in horizons), default=None),
            max((batch.base_timestamp for batch in horizons), default=None),
        ),
    }


def fields_of(found: BatchStatistics) -> dict[str, Any]:
    """The numbers that were found, in the shape of `counted`."""

    def plain(value: Any) -> Any:
        if hasattr(value, "known_records"):
            return value.batches, value.known_records, value.bytes, value.unopened
        if isinstance(value, tuple) and value and hasattr(value[0], "known_records"):
            return tuple(plain(each) for each in value)
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return value

    names = [name for name in BatchStatistics.__slots__ if name != "aborted_records"]
    return {name: plain(getattr(found, name)) for name in names}


class Partition(NamedTuple):
    """What spans the segments of a partition. `aborted_records` are those of each segment."""

    producers: list[ProducerRow]
    committed: int
    aborted: int
    open: int
    first_open_offset: int | None
    durations: Histogram
    sizes: Histogram
    records: Histogram
    aborted_records: list[int]


def producer_rows(batches: Iterable[Batch]) -> list[ProducerRow]:
    by_producer = defaultdict[int, list[Batch]](list)
    for batch in batches:
        if not batch.is_legacy and batch.producer_id >= 0 and not batch.control:
            by_producer[batch.producer_id].append(batch)
    return [
        ProducerRow(
            producer_id,
            max(batch.producer_epoch for batch in found),
            tuple(sorted({batch.codec for batch in found})),
            min((batch.max_timestamp for batch in found if batch.max_timestamp >= 0), default=-1),
            max((batch.max_timestamp for batch in found if batch.max_timestamp >= 0), default=-1),
            *volume(found)[:3],
        )
        for producer_id, found in sorted(by_producer.items())
    ]


def partition(segments: list[Segment]) -> Partition:
    """The producers and transactions of a partition."""
    running = defaultdict[int, list[tuple[int, Batch]]](list)
    ends, aborted_records = Counter[int](), [0] * len(segments)
    durations, sizes, counts = list[int](), list[int](), list[int]()
    for number, segment in enumerate(segments):
        for batch in segment.batches:
            if batch.is_legacy or batch.producer_id < 0 or not batch.attributes & 0x10:
                continue
            marker = marker_of(segment.data, batch)
            if not batch.control:
                running[batch.producer_id].append((number, batch))
            elif marker is not None:
                ends[marker] += 1
                done = running.pop(batch.producer_id, [])
                for where, each in done if marker == 0 else ():
                    aborted_records[where] += max(each.count or 0, 0)
                if done:
                    first = done[0][1]
                    stored = first.append_time or first.delete_horizon
                    begin = first.max_timestamp if stored else first.base_timestamp
                    if begin >= 0 <= batch.max_timestamp:
                        durations.append(batch.max_timestamp - begin)
                    sizes.append(sum(each.size for _, each in done))
                    counts.append(sum(max(each.count or 0, 0) for _, each in done))
    return Partition(
        producer_rows(batch for segment in segments for batch in segment.batches),
        ends[1],
        ends[0],
        len(running),
        min((done[0][1].offset for done in running.values()), default=None),
        Histogram.of(durations),
        Histogram.of(sizes),
        Histogram.of(counts),
        aborted_records,
    )


def found_in(found: PartitionStatistics) -> Partition:
    """What stat found, in the shape of `partition`."""
    transactions = found.transactions
    return Partition(
        list(found.producers),
        transactions.committed,
        transactions.aborted,
        transactions.open,
        transactions.first_open_offset,
        transactions.durations,
        transactions.sizes,
        transactions.records,
        [segment.totals.aborted_records for segment in found.segments],
    )


def comparable(found: RangeStatistics) -> tuple[Any, ...]:
    """What must not depend on the cutting."""
    return fields_of(found.totals), list(found.producers), found.damage, found.tail_zero_bytes, found.transactions[1:]
