"""Which partitions and which of their records are converted."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from kdump.errors import SourceError
from kdump.format.java import MAX_INT
from kdump.format.naming import TopicPartition
from kdump.log.log_slice import EVERYTHING, Bounds
from kdump.log.swap_segments import with_swap_segments
from kdump.named_tuple import NamedTuple
from kdump.storage.copies import by_directory, is_one_file, is_snapshot, no_topic_partition, topic_id_of
from kdump.storage.discovery import Found
from kdump.storage.file_store import absolute, parent_of
from kdump.storage.partition import MANY, Partition, carried, packed, unpacked

_EARLIEST: Final = -2
_LATEST: Final = -1


class Included(StrEnum):
    """What is converted only where it is named, or asked for."""

    INTERNAL = "internal"
    """Topics whose name begins with two underscores, as those of Kafka itself do."""
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"
    DELETED = "deleted"
    """Records below the log start offset, which were deleted."""


class Choice(NamedTuple):
    """Which records to convert.

    `topics`: names or globs, none for all. `partitions`: their numbers, none for all. `offset`: a range of offsets,
    which needs a single topic-partition. `offsets`: the range of each partition; others are left out. `time`: a range
    of record timestamps in milliseconds. `include`: what is left out otherwise. `topic_ids`: those of
    partition.metadata, none for all; a copy without one is left out then.
    """

    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()
    offset: Bounds = EVERYTHING
    offsets: Mapping[TopicPartition, Bounds] | None = None
    time: Bounds = EVERYTHING
    include: frozenset[Included] = frozenset()
    topic_ids: frozenset[str] = frozenset()


def parse_offsets(text: str) -> Mapping[TopicPartition, Bounds]:
    """The offsets of `{"topic": {"0": [first, end]}}`, half open. Raises ValueError.

    Null is no bound; nor is -2 (earliest) as the first, or -1 (latest) as the end, as in the options of Spark's source
    of Kafka.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the offsets of partitions are not JSON") from None
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError('the offsets of partitions are an object: {"topic": {"0": [first, end]}}')
    return {
        TopicPartition(topic, _number(number)): _offset_bounds(f"{topic}-{number}", bounds)
        for topic, partitions in found.items()
        for number, bounds in partitions.items()
    }


def _number(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,10}", text) is None or int(text) > MAX_INT:
        raise ValueError(f"{text!r} is not a partition number")
    return int(text)


def _offset_bounds(name: str, bounds: object) -> Bounds:
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(_is_bound(each) for each in bounds):
        raise ValueError(f"{name}: its offsets are [first, end], numbers or null")
    first, end = bounds
    first, end = None if first in (None, _EARLIEST) else first, None if end in (None, _LATEST) else end
    if (first or 0) < 0 or (end or 0) < 0:
        raise ValueError(f"{name}: an offset is below zero")
    return first, end


def _is_bound(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


class SeveralPartitions(ValueError):
    """A range of offsets was given, and several topic-partitions are among the paths."""


class ChosenCopies(NamedTuple):
    """The copies of a topic-partition in the order of the paths, and the range of offsets to convert."""

    copies: tuple[Partition, ...]
    offset: Bounds


def choose(
    found: Iterable[Found], choice: Choice, named: Iterable[str] = (), topics: set[str] | None = None
) -> Iterator[ChosenCopies | SourceError]:
    """The chosen topic-partitions among what discovery found; first what cannot be read.

    `named` are the paths that the user gave: what was named itself needs no `include`. Log files of one directory that
    were named one by one are one copy. `topics` has the names of those with log files when the first copies come.

    Raises SeveralPartitions where a range of offsets meets several topic-partitions.
    """
    copies: dict[TopicPartition | str, list[Partition | bytes]] = {}
    count = 0
    bounds: dict[TopicPartition | str, Bounds] = {}
    paths = {absolute(path) for path in named}
    for each in found:
        if isinstance(each, SourceError):
            yield each
        elif isinstance(each, Partition) and is_snapshot(each) and is_one_file(each):
            yield no_topic_partition(each)
        elif isinstance(each, Partition) and (chosen := _bounds(each, choice, absolute(each.path) in paths)):
            of = each.topic_partition or _path_of_log(each)
            # What a directory has beside its logs does not go to other processes.
            try:
                each = with_swap_segments(each)
            except SourceError as error:
                yield error
                continue
            each = carried(each)
            if topics is not None and each.topic_partition is not None and each.segments:
                topics.add(each.topic_partition.topic)
            bounds[of] = chosen
            count += 1
            copies.setdefault(of, []).append(each if count <= MANY else packed(each))
    if choice.offset != EVERYTHING and len(copies) > 1:
        raise SeveralPartitions(f"a range of offsets needs a single topic-partition, and here are {len(copies)}")
    for of, several in copies.items():
        yield ChosenCopies(tuple(by_directory(map(unpacked, several))), bounds[of])


def _path_of_log(partition: Partition) -> str:
    """What tells a log without a name from others: files of one directory are one log where their names say how."""
    is_numbered = all(segment.log.base_offset is not None for segment in partition.segments)
    return parent_of(partition.path) if is_one_file(partition) and is_numbered else partition.path


def _bounds(partition: Partition, choice: Choice, is_named: bool) -> Bounds | None:
    """The range of offsets to convert; None for a partition that was not chosen."""
    of = partition.topic_partition
    if not partition.segments:  # KRaft snapshots repeat what the log has
        return None
    if partition.state and not is_named and partition.state not in choice.include:
        return None
    if choice.topics and (of is None or not any(fnmatchcase(of.topic, topic) for topic in choice.topics)):
        return None
    internal = of is not None and of.topic.startswith("__")
    asked_for = choice.topics or Included.INTERNAL in choice.include or is_one_file(partition)
    if internal and not (asked_for or is_named):
        return None
    if choice.partitions and (of is None or of.partition not in choice.partitions):
        return None
    if choice.topic_ids and topic_id_of(partition) not in choice.topic_ids:
        return None
    if choice.offsets is not None:
        return None if of is None else choice.offsets.get(of)
    return choice.offset
