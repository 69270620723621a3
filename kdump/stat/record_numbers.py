"""The numbers of opened records and of keys by name, as the rows have them."""

from typing import TYPE_CHECKING, Final

from kdump.kernel.estimate import Estimate
from kdump.named_tuple import NamedTuple
from kdump.stat.distribution import Distribution, distribution
from kdump.stat.key_summary import KeySummary
from kdump.stat.keys import HeavyKey, NameCensus
from kdump.stat.partitioner import PartitionerFit
from kdump.stat.records import RECORD_CODECS, RecordStatistics

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

LISTED: Final = 10


class RecordNumbers(NamedTuple):
    """What opening the records showed. Sizes are in bytes before compression."""

    batches: int
    unread: int
    records: int
    bytes: int
    null_keys: int
    empty_keys: int
    tombstones: int
    tombstone_bytes: int
    headers: int
    records_with_headers: int
    key_sizes: Distribution
    value_sizes: Distribution
    codecs: "Fields"
    shapes: "Fields"
    timestamps: "Fields"
    header_keys: "Fields"
    schemas: "Fields"
    largest: "list[Fields] | None"


def record_numbers(of: RecordStatistics, *, in_log_order: bool) -> RecordNumbers:
    """The numbers of opened records. Without `in_log_order` they are of several partitions: an offset says nothing."""
    codecs: Fields = {
        name: {**volume._asdict(), "ratio": None if volume.ratio is None else round(volume.ratio, 3)}
        for name, volume in zip(RECORD_CODECS, of.by_codec, strict=True)
    }
    times = of.timestamps
    return RecordNumbers(
        of.batches,
        of.unread,
        of.records,
        of.bytes,
        of.null_keys,
        of.empty_keys,
        of.tombstones,
        of.tombstone_bytes,
        of.headers,
        of.records_with_headers,
        distribution(of.key_sizes),
        distribution(of.value_sizes),
        codecs,
        {name: shape._asdict() for name, shape in of.shapes._asdict().items()},
        {
            "records": times.records,
            "smallest": times.smallest,
            "largest": times.largest,
            "steps_back": times.steps_back if in_log_order else None,
            "largest_step_back_ms": times.largest_step_back if in_log_order else None,
        },
        _census(of.header_keys, schemas=False),
        _census(of.schemas, schemas=True),
        [record._asdict() for record in of.largest[:LISTED]] if in_log_order else None,
    )


def _census(of: NameCensus, *, schemas: bool) -> "Fields":
    """The most frequent names, and how many there are."""
    return {
        "distinct": estimate_fields(of.distinct()),
        "first": [
            {
                "schema_id" if schemas else "key": int.from_bytes(one.name, "big") if schemas else one.name,
                "count": one.occurrences,
                "value_bytes": one.value_bytes,
            }
            for one in of.names()[:LISTED]
        ],
    }


def estimate_fields(of: Estimate) -> "Fields":
    """A number with whether it is an estimate, and its standard error."""
    return of._asdict()


def key_fields(of: KeySummary) -> "Fields":
    """The numbers of the keys of a partition."""
    cleanable = of.cleanable
    return {
        "records": of.records,
        "bytes": of.bytes,
        "tombstones": of.tombstones,
        "unkeyed_records": of.unkeyed_records,
        "distinct": estimate_fields(of.distinct),
        **{name: estimate_fields(value) for name, value in of.savings._asdict().items()},
        "cleanable": cleanable and {name: estimate_fields(value) for name, value in cleanable._asdict().items()},
        "by_records": [_heavy(key, "records") for key in of.by_records[:LISTED]],
        "by_records_error": of.by_records_error,
        "by_bytes": [_heavy(key, "bytes") for key in of.by_bytes[:LISTED]],
        "by_bytes_error": of.by_bytes_error,
        "partitioner": of.fit and fit_fields(of.fit),
    }


def _heavy(of: HeavyKey, weight: str) -> "Fields":
    return {
        "key": of.key,
        "key_size": of.size,
        weight: of.weight,
        "offset": of.offset,
        "estimate": of.error > 0,
        "error": of.error,
    }


def fit_fields(of: PartitionerFit) -> "Fields":
    """How keys fit the partitioners."""
    return {
        "partitions": of.partitions,
        "keys": of.keys,
        "murmur2": of.murmur2,
        "crc32": of.crc32,
        "estimate": of.estimate,
        "error": round(of.error, 6),
        "partitioner": of.partitioner,
        "misplaced": of.misplaced,
    }
