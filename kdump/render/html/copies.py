"""The part of a page about copies of topic-partitions: one strip a copy, aligned by offset, and a verdict a pair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kdump.render.html.names import PathNames
from kdump.render.sentences import comparison_sentences

if TYPE_CHECKING:
    from kdump.format.json_types import Fields
    from kdump.log.ranges import OffsetRange
    from kdump.replicas.compare import CopyExtent, PartitionComparison
    from kdump.replicas.comparison import ReplicaComparison

MOST_SHOWN: Final = 200
"""So many topic-partitions are shown, those that do not agree before the others."""
_MOST_RANGES: Final = 200


def copies_section(
    compared: Iterable[PartitionComparison], names: PathNames, command: Callable[[str | None], str | None]
) -> Fields:
    """The section of the copies."""
    several = sorted((each for each in compared if each.pairs), key=lambda each: _ORDER[str(each.verdict)])
    more = len(several) - MOST_SHOWN
    text = "Each strip is a copy, from its first offset to its end; strips of one topic-partition have one scale."
    return {
        "id": "copies",
        "title": "Copies of topic-partitions",
        "text": text if more <= 0 else f"{text} {more} more topic-partitions are not shown.",
        "data": [_partition(each, names, command) for each in several[:MOST_SHOWN]],
    }


_ORDER: Final = {"diverged": 0, "undecided": 1, "agree": 2}


def _partition(compared: PartitionComparison, names: PathNames, command: Callable[[str | None], str | None]) -> Fields:
    name = compared.topic_partition
    # What is to be done is a command to copy.
    sentences = [
        command(said) if said.startswith("to do: ") else names.text(said) for said in comparison_sentences(compared)
    ]
    return {
        "name": f"{name.topic}-{name.partition}",
        "topic_id": compared.topic_id,
        "verdict": str(compared.verdict),
        "copies": [names.text(path) for path in compared.copies],
        "stale": None if compared.stale is None else names.text(compared.stale),
        "extents": [_extent(each, names) for each in compared.extents],
        "merged": [
            [compared.copies.index(path), start, end]
            for path, start, end in compared.merged[:_MOST_RANGES]
            if path in compared.copies
        ],
        "pairs": [_pair(pair, names) for pair in compared.pairs],
        "sentences": sentences,
    }


def _extent(copy: CopyExtent, names: PathNames) -> Fields:
    return {
        "path": names.text(copy.path),
        "start": copy.start_offset,
        "end": copy.end_offset,
        "high_watermark": copy.high_watermark,
        "damage": _ranges(copy.damage),
    }


def _pair(pair: ReplicaComparison, names: PathNames) -> Fields:
    differs = pair.differs
    return {
        "left": names.text(pair.left),
        "right": names.text(pair.right),
        "verdict": str(pair.verdict),
        "end": pair.end_offset,
        "records": pair.records,
        "keys": pair.keys,
        "fork": differs.fork,
        "committed": differs.is_committed,
        "missing_left": _ranges(differs.missing_left.ranges),
        "missing_right": _ranges(differs.missing_right.ranges),
        "differs": _ranges(differs.records.ranges),
        "other_keys": differs.keys.keys,
    }


def _ranges(ranges: Sequence[OffsetRange]) -> list[list[int]]:
    return [[start, stop] for start, stop in ranges[:_MOST_RANGES]]
