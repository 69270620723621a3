"""The numbers that rows have in common, by name: volumes, damage, transactions, the write rate, growth."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.named_tuple import NamedTuple
from kdump.stat.distribution import Distribution, distribution
from kdump.stat.growth import Growth
from kdump.stat.values import BatchStatistics, Damage, DamagedStretch, TransactionStatistics, Volume

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue

_LISTED_STRETCHES: Final = 10


class VolumeNumbers(NamedTuple):
    """A volume with its records: null where wrapper messages were not opened."""

    batches: int
    records: int | None
    records_at_least: int
    bytes: int


class DamageNumbers(NamedTuple):
    """Damaged stretches: their number, their bytes, and the first ones."""

    stretches: int
    bytes: int
    first: tuple[DamagedStretch, ...]


class TransactionNumbers(NamedTuple):
    """Transactions with their durations in milliseconds, and their sizes in bytes and records."""

    count: int  # type: ignore[assignment]  # hides a method of tuples
    committed: int
    aborted: int
    open: int
    durations_ms: Distribution
    bytes: Distribution
    records: Distribution


class WriteRate(NamedTuple):
    """The bytes of the batches by their max timestamps, in buckets of `bucket_ms` up to `end_ms`."""

    bucket_ms: int
    end_ms: int
    bytes: tuple[int, ...]


NO_RATE: Final = WriteRate(0, 0, ())


class GrowthNumbers(NamedTuple):
    """What was written in so many days up to now, and on a day of them; a lower bound."""

    days: float | None
    bytes: int | None
    records: int | None
    bytes_per_day: float | None


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first batch."""

    epoch: int
    start_offset: int


def volume_numbers(volume: Volume) -> VolumeNumbers:
    """The numbers of a volume."""
    return VolumeNumbers(volume.batches, volume.records, volume.records_at_least, volume.bytes)


def damage_numbers(damage: Damage) -> DamageNumbers:
    """The numbers of damaged stretches, and the first ones."""
    return DamageNumbers(damage.count, damage.bytes, damage.stretches[:_LISTED_STRETCHES])


def transaction_numbers(of: TransactionStatistics) -> TransactionNumbers:
    """The numbers of transactions."""
    return TransactionNumbers(
        of.count,
        of.committed,
        of.aborted,
        of.open,
        distribution(of.durations),
        distribution(of.sizes),
        distribution(of.records),
    )


def growth_numbers(of: Growth | None) -> GrowthNumbers:
    """The numbers of a growth, null where it is not known."""
    if of is None:
        return GrowthNumbers(None, None, None, None)
    return GrowthNumbers(of.days, of.bytes, of.records, round(of.bytes_per_day, 1))


def epoch_starts(totals: BatchStatistics) -> tuple[EpochStart, ...]:
    """The leader epochs of a log."""
    return tuple(EpochStart(*each) for each in totals.epochs)


def flat(fields: "Fields", prefix: str = "") -> "Iterator[tuple[str, FieldValue]]":
    """The fields, and those of nested ones as `outer.inner`. A list stays one."""
    for name, value in fields.items():
        inner = nested(value)
        if inner is None:
            yield f"{prefix}{name}", value
        else:
            yield from flat(inner, f"{prefix}{name}.")


def nested(value: "FieldValue") -> "Fields | None":
    """The fields of a value that has some."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        fields: Fields = value._asdict()
        return fields
    return None
