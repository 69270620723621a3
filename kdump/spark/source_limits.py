"""Where a read begins and ends, in the words and the grammar of Spark's source of Kafka (KafkaOffsetRangeLimit)."""

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from kdump.errors import KdumpError
from kdump.format.java import MAX_INT
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple

LATEST: Final = -1
EARLIEST: Final = -2

_MAX_LONG: Final = (1 << 63) - 1
_OFFSETS_LIKE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_PARTITIONS_LIKE: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_TIMESTAMPS_LIKE: Final = '{"topicA": {"0": 123456789, "1": 123456789},"topicB": {"0": 123456789, "1": 123456789}}'


class SourceOptionError(KdumpError):
    """An option of the data source that cannot be taken, or does not fit what is there."""


class NoMatchStrategy(StrEnum):
    """What becomes of a starting timestamp that no record reaches (StrategyOnNoMatchStartingOffset)."""

    ERROR = "error"
    LATEST = "latest"


class EdgeOffsetRangeLimit(NamedTuple):
    """The first offset of each partition (EARLIEST), or the one after the last (LATEST)."""

    edge: int


class SpecificOffsetRangeLimit(NamedTuple):
    """An offset for each partition; EARLIEST and LATEST stand for the edges."""

    offsets: Mapping[TopicPartition, int]


class SpecificTimestampRangeLimit(NamedTuple):
    """The first offset at or after a timestamp in milliseconds, one for each partition."""

    timestamps: Mapping[TopicPartition, int]
    strategy: NoMatchStrategy


class GlobalTimestampRangeLimit(NamedTuple):
    """The first offset of each partition at or after a timestamp in milliseconds."""

    timestamp_ms: int
    strategy: NoMatchStrategy


OffsetRangeLimit = (
    EdgeOffsetRangeLimit | SpecificOffsetRangeLimit | SpecificTimestampRangeLimit | GlobalTimestampRangeLimit
)
EARLIEST_LIMIT: Final = EdgeOffsetRangeLimit(EARLIEST)
LATEST_LIMIT: Final = EdgeOffsetRangeLimit(LATEST)


class LimitOptions(NamedTuple):
    """The names of the options that say where a read begins, or where it ends."""

    timestamp: str
    offsets_by_timestamp: str
    offsets: str


STARTING: Final = LimitOptions("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = LimitOptions("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY: Final = "startingOffsetsByTimestampStrategy"


def limit_of(options: Mapping[str, str], names: LimitOptions, default: EdgeOffsetRangeLimit) -> OffsetRangeLimit:
    """The limit that options say, whose names are in lower case: by time before by offset, as in Spark's source.

    Raises SourceOptionError.
    """
    strategy = _strategy(options.get(STRATEGY.lower(), NoMatchStrategy.ERROR))
    if (text := options.get(names.timestamp.lower())) is not None:
        return GlobalTimestampRangeLimit(_long(text.strip()), strategy)
    if (text := options.get(names.offsets_by_timestamp.lower())) is not None:
        return SpecificTimestampRangeLimit(partition_timestamps(text), strategy)
    if (text := options.get(names.offsets.lower())) is None:
        return default
    match text.strip().lower():
        case "latest":
            return LATEST_LIMIT
        case "earliest":
            return EARLIEST_LIMIT
    return SpecificOffsetRangeLimit(partition_offsets(text))


def _strategy(text: str) -> NoMatchStrategy:
    try:
        return NoMatchStrategy(text.lower())
    except ValueError:
        raise SourceOptionError(f"{STRATEGY} is error or latest, not {text!r}") from None


def _long(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None or not -_MAX_LONG - 1 <= int(text) <= _MAX_LONG:
        raise SourceOptionError(f"Expected a single long value, got {text}")
    return int(text)


def check_batch_limits(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
    """Refuse limits with which a read of what is there cannot begin or end. Raises SourceOptionError."""
    if start == LATEST_LIMIT:
        raise SourceOptionError("starting offset can't be latest for batch queries on Kafka")
    if end == EARLIEST_LIMIT:
        raise SourceOptionError("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(start, SpecificOffsetRangeLimit):
        for of, offset in start.offsets.items():
            if offset == LATEST:
                raise SourceOptionError(f"startingOffsets for {_name(of)} can't be latest for batch queries on Kafka")
    if isinstance(end, SpecificOffsetRangeLimit):
        for of, offset in end.offsets.items():
            if offset == EARLIEST:
                raise SourceOptionError(f"ending offset for {_name(of)} can't be earliest for batch queries on Kafka")
    _check_order(start, end)


def _check_order(start: OffsetRangeLimit, end: OffsetRangeLimit) -> None:
    match start, end:
        case SpecificOffsetRangeLimit(first), SpecificOffsetRangeLimit(last):
            _check_each(first, last, "offset")
        case SpecificTimestampRangeLimit(first), SpecificTimestampRangeLimit(last):
            _check_each(first, last, "timestamp")
        case GlobalTimestampRangeLimit(first_ms), GlobalTimestampRangeLimit(last_ms) if first_ms > last_ms:
            raise SourceOptionError(
                f"The specified start timestamp {first_ms} is greater than the end timestamp {last_ms}."
            )


def _check_each(first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], what: str) -> None:
    if first.keys() != last.keys():
        raise SourceOptionError(
            "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for"
            f" start offset: {names(first)}, topic-partitions for end offset: {names(last)}."
        )
    for of, begin in first.items():
        stop = last[of]
        if stop != LATEST and begin > stop:
            raise SourceOptionError(
                f"The specified start {what} {begin} is greater than the end {what} {stop} for topic {of.topic}"
                f" partition {of.partition}."
            )


def check_resolved(of: TopicPartition | None, start: int, end: int) -> None:
    """Refuse a start after the end. Raises SourceOptionError."""
    if start > end:
        where = "the log" if of is None else f"topic {of.topic} partition {of.partition}"
        raise SourceOptionError(
            f"The resolved start offset {start} is greater than the resolved end offset {end} for {where}. Check"
            " whether the start offset is beyond the end offset, or beyond the latest offset that is there."
        )


def check_assigned(limit: OffsetRangeLimit, assigned: Iterable[TopicPartition], position: str) -> None:
    """Refuse a limit for each partition that does not name exactly these. `position` is "start" or "end".

    Raises SourceOptionError.
    """
    there = set(assigned)
    if isinstance(limit, SpecificOffsetRangeLimit) and set(limit.offsets) != there:
        raise SourceOptionError(
            "Partitions specified for Kafka start offsets don't match what are assigned. Use -1 for latest, -2 for"
            f" earliest. Specified: {names(limit.offsets)} Assigned: {names(there)}"
        )
    if isinstance(limit, SpecificTimestampRangeLimit) and set(limit.timestamps) != there:
        raise SourceOptionError(
            f"Partitions specified for Kafka timestamp based {position} offsets don't match what are assigned."
            f" Specified: {names(limit.timestamps)} Assigned: {names(there)}"
        )


def names(partitions: Iterable[TopicPartition]) -> str:
    """Topic-partitions in a sentence."""
    return "[" + ", ".join(map(_name, sorted(partitions))) + "]"


def limit_name(of: TopicPartition | None) -> str:
    """A topic-partition in a sentence."""
    return "the log" if of is None else _name(of)


def _name(of: TopicPartition) -> str:
    return f"{of.topic}-{of.partition}"


# ---- JSON, as JsonUtils of Spark's source has it


def partition_offsets(text: str) -> dict[TopicPartition, int]:
    """The offsets of `{"topic": {"0": 23, "1": -1}}`. Raises SourceOptionError."""
    return _numbers(text, _OFFSETS_LIKE, least=EARLIEST)


def partition_timestamps(text: str) -> dict[TopicPartition, int]:
    """The timestamps of `{"topic": {"0": 1700000000000}}`. Raises SourceOptionError."""
    return _numbers(text, _TIMESTAMPS_LIKE, least=-_MAX_LONG - 1)


def assigned_partitions(text: str) -> frozenset[TopicPartition]:
    """The partitions of `{"topic": [0, 1]}`. Raises SourceOptionError."""
    found = _objects(text, _PARTITIONS_LIKE, list)
    some = [TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers]
    if not all(_is_number(each.partition) and 0 <= each.partition <= MAX_INT for each in some):
        raise _unexpected(_PARTITIONS_LIKE, text)
    return frozenset(some)


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """The offsets as JSON, in the shape of Kafka's own checkpoints: `{"topic":{"0":23}}`."""
    topics: dict[str, dict[str, int]] = {}
    for of in sorted(offsets):
        topics.setdefault(of.topic, {})[str(of.partition)] = offsets[of]
    return json.dumps(topics, separators=(",", ":"))


def _numbers(text: str, like: str, least: int) -> dict[TopicPartition, int]:
    found = _objects(text, like, dict)
    result: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        for number, value in partitions.items():
            if re.fullmatch(r"[0-9]{1,10}", number) is None or int(number) > MAX_INT:
                raise _unexpected(like, text)
            if not _is_number(value) or not least <= value <= _MAX_LONG:
                raise _unexpected(like, text)
            result[TopicPartition(topic, int(number))] = value
    return result


_Inner = TypeVar("_Inner")


def _objects(text: str, like: str, inner: type[_Inner]) -> dict[str, _Inner]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _unexpected(like, text) from None
    if not isinstance(found, dict) or not all(isinstance(each, inner) for each in found.values()):
        raise _unexpected(like, text)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _unexpected(like: str, text: str) -> SourceOptionError:
    return SourceOptionError(f"Expected e.g. {like}, got {text}")
