"""The part of a page about copies of topic-partitions: one strip a copy, aligned by offset, and a verdict a pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kdump.render.html.budget import BoundedList, Budget
from kdump.render.html.names import PathNames
from kdump.render.html.script_data import script_json
from kdump.render.sentences import comparison_sentences, counted

if TYPE_CHECKING:
    from kdump.format.json_types import Fields
    from kdump.log.ranges import OffsetRange
    from kdump.replicas.compare import CopyExtent, PartitionComparison
    from kdump.replicas.comparison import OffsetTally, ReplicaComparison, ReplicaDifferences

_BYTES: Final = 3584 << 10
_MOST_RANGES: Final = 1000
_LEAST_RANGES: Final = 4
_MOST_PAIRS: Final = 500
_SENTENCES: Final = 150
_STEP: Final = "to do: "
_ORDER: Final = {"diverged": 0, "undecided": 1, "agree": 2}


class CopyTable:
    """Collects comparisons of copies, those that do not agree before the others. `budget` is that of the page."""

    def __init__(self, names: PathNames, command: Callable[[str | None], str | None], budget: Budget) -> None:
        self._names, self._command = names, command
        self._blocks = BoundedList(budget.part(_BYTES))
        self.following: str | None = None

    def add(self, compared: PartitionComparison) -> None:
        """Add the pairs of the copies of a topic-partition. `following` is the first command of what is to be done."""
        if not compared.pairs:
            return
        order = _ORDER[str(compared.verdict)]
        self._blocks.add((order,), lambda: script_json(_partition(compared, self._names, self._command)))
        if self.following is None:
            commands = (step.command for step in compared.repair_steps())
            self.following = next((command for command in commands if command is not None), None)

    @property
    def cut(self) -> list[str]:
        """What is said of the topic-partitions that are not on the page."""
        hidden = self._blocks.hidden
        return [f"{counted(hidden, 'more topic-partition')} not on this page: --format json"] if hidden else []

    def section(self) -> Fields:
        """The section of the page."""
        text = "Each strip is a copy, from its first offset to its end; strips of one topic-partition have one scale."
        return {"id": "copies", "title": "Copies of topic-partitions", "text": text, "data": self._blocks.data()}


def _partition(compared: PartitionComparison, names: PathNames, command: Callable[[str | None], str | None]) -> Fields:
    name = compared.topic_partition
    several = list(comparison_sentences(compared))
    steps = [said for said in several if said.startswith(_STEP)]
    told = [said for said in several if not said.startswith(_STEP)]
    sentences = [names.text(said) for said in told[:_SENTENCES]]
    if len(told) > _SENTENCES:
        sentences.append(f"more: {counted(len(told) - _SENTENCES, 'more sentence')}: --format text")
    most = max(_LEAST_RANGES, _MOST_RANGES // len(compared.pairs))
    not_drawn = sum(max(0, len(each.damage) - _MOST_RANGES) for each in compared.extents)
    not_drawn += max(0, len(compared.merged) - _MOST_RANGES)
    not_drawn += sum(max(0, len(each.ranges) - most) for pair in compared.pairs for each in _tallies(pair.differs))
    if len(compared.pairs) > _MOST_PAIRS:
        sentences.append(f"not drawn: what differs in {counted(len(compared.pairs) - _MOST_PAIRS, 'more pair')}")
    if not_drawn:
        sentences.append(f"not drawn: {counted(not_drawn, 'more range')} of offsets")
    sentences += [command(said) or "" for said in steps]  # a command to copy
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
        "diverged": sum(pair.verdict == "diverged" for pair in compared.pairs),
        "undecided": sum(pair.verdict == "undecided" for pair in compared.pairs),
        "pairs": [_pair(pair, names, most) for pair in compared.pairs[:_MOST_PAIRS]],
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


def _tallies(differs: ReplicaDifferences) -> tuple[OffsetTally, ...]:
    return differs.missing_left, differs.missing_right, differs.records


def _pair(pair: ReplicaComparison, names: PathNames, most: int) -> Fields:
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
        "missing_left": _ranges(differs.missing_left.ranges[:most]),
        "missing_right": _ranges(differs.missing_right.ranges[:most]),
        "differs": _ranges(differs.records.ranges[:most]),
        "other_keys": differs.keys.keys,
    }


def _ranges(ranges: Sequence[OffsetRange]) -> list[list[int]]:
    return [[start, stop] for start, stop in ranges[:_MOST_RANGES]]
