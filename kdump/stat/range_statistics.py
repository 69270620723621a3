"""The numbers of a range of a segment, small enough to send to another process, and how two ranges join."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdump.broker.cleaner.delete_horizons import DeleteHorizons
from kdump.errors import SourceError
from kdump.kernel.statistics import Collector, ProducerRows
from kdump.named_tuple import NamedTuple
from kdump.stat.histogram import Histogram
from kdump.stat.keys import KeyStatistics
from kdump.stat.producers import ProducerTable
from kdump.stat.transactions import TransactionRows
from kdump.stat.values import CODECS, TIMESTAMP_TYPES, BatchStatistics, Measures, Volume

if TYPE_CHECKING:
    from kdump.kernel.statistics import VolumeFields

_IDEMPOTENT, _TRANSACTIONAL, _CONTROL = 1, 2, 4  # flags of a class of batches (kdump.kernel.statistics)


class StatCarry(NamedTuple):
    """The state that a scan passes to the scan that continues where it ended (kdump.kernel.results.Carry).

    Up to `checked_until`, every checksum is checked: the headers before this position were out of order.
    """

    known_last: int = 0
    has_last: bool = False
    known_epoch: int = -1
    linked: bool = False
    checked_until: int = 0


@dataclass(frozen=True, slots=True)
class RangeStatistics(Measures):
    """What the scan of a range found.

    `start` and `end` are positions of batch borders; `start` is None where no batch was found to begin with.
    `carry` is the state at the end. `first_position`, `first_offset` and `first_epoch` are those of the first batch.
    """

    start: int | None
    end: int
    carry: StatCarry
    producers: ProducerTable
    transactions: TransactionRows
    first_position: int = -1
    first_offset: int = -1
    first_epoch: int = -1
    keys: KeyStatistics | None = None
    error: SourceError | None = None


def batch_statistics(collector: Collector) -> BatchStatistics:
    """The numbers of the batches that the kernel counted."""
    if not collector.batches:
        return BatchStatistics()
    total = idempotent = transactional = Volume()
    control_batches = control_records = 0
    codecs, magics, types = [Volume()] * len(CODECS), [Volume()] * 3, [Volume()] * len(TIMESTAMP_TYPES)
    for magic, codec, timestamp_type, flags, batches, records, size, unopened in collector.classes():
        if flags & _CONTROL:
            control_batches, control_records, records = control_batches + batches, control_records + records, 0
        volume = Volume(batches, records, size, unopened)
        total += volume
        codecs[min(codec, len(CODECS) - 1)] += volume
        magics[magic] += volume
        types[timestamp_type] += volume
        idempotent += volume if flags & _IDEMPOTENT else Volume()
        transactional += volume if flags & _TRANSACTIONAL else Volume()
    buckets, older = collector.buckets()
    sizes, counts = collector.histograms()
    *newest, smallest = (None if timestamp < 0 else timestamp for timestamp in collector.timestamps())
    return BatchStatistics(
        total,
        control_batches,
        control_records,
        0,
        tuple(codecs),
        tuple(magics),
        tuple(types),
        idempotent,
        transactional,
        Histogram(*sizes),
        Histogram(*counts),
        *collector.offsets(),
        max((timestamp for timestamp in newest if timestamp is not None), default=None),
        smallest,
        collector.smallest_is_bound,
        (newest[0], newest[1], newest[2]),
        collector.epochs(),
        {number: _volume(fields) for number, fields in buckets.items()},
        _volume(older),
        collector.compacted,
        _delete_horizons(*collector.horizons()),
    )


def _delete_horizons(batches: int, size: int, earliest: int, latest: int) -> DeleteHorizons:
    return DeleteHorizons(batches, size, earliest, latest) if batches else DeleteHorizons()


def _volume(fields: "VolumeFields") -> Volume:
    return Volume(*fields)


def producer_table(rows: ProducerRows) -> ProducerTable:
    """The producers that the kernel counted."""
    return ProducerTable(*rows.packed())
