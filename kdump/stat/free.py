"""What frees bytes: which settings of which topics, which segments go then, and how much time of the data is lost.

Retention deletes whole segments, the oldest of a partition first, and a setting holds for all partitions of a topic. So
the choice is, for each topic, how far back its data reach. The least time is lost where the oldest data of all topics
go first. The plan also says what each topic could free alone.

Source: UnifiedLog.deleteOldSegments of Kafka 4.3.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Final

from kdump.broker.cleaner.log_config import TopicSettings, settings_for
from kdump.broker.cleaner.retention import RetainedSegment, report_retention
from kdump.named_tuple import NamedTuple
from kdump.stat.report_scope import unreported_because
from kdump.stat.values import PartitionStatistics
from kdump.verify.next_step import shell_command

_INTERNAL_PREFIX: Final = "__"
SettingsOf = Callable[[str], TopicSettings]
"""The settings of a topic by its name. A limit that is neither given nor stored counts as none, and the policy is that
of settings_for: what nobody named decides nothing.
"""


class FreeSetting(StrEnum):
    """The setting that frees the bytes."""

    RETENTION_MS = "retention.ms"
    RETENTION_BYTES = "retention.bytes"


class FreeStep(NamedTuple):
    """A setting of a topic that frees bytes, and what goes then.

    `oldest_ms` is the smallest timestamp in the topic now, `oldest_left_ms` that afterwards, each None where no batch
    has a timestamp or none is left. `segments` are the paths of what goes, oldest first.
    """

    topic: str
    setting: FreeSetting
    value: int
    bytes: int
    segments: tuple[str, ...]
    oldest_ms: int | None
    oldest_left_ms: int | None
    is_emptied: bool

    @property
    def command(self) -> str:
        """The command line of Kafka that sets it, for a cluster at HOST:PORT."""
        return (
            "kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name"
            f" {shell_command([self.topic])} --add-config {self.setting}={self.value}"
        )

    @property
    def lost_ms(self) -> int | None:
        """How much later the data of the topic begin afterwards."""
        if self.oldest_ms is None or self.oldest_left_ms is None:
            return None
        return max(self.oldest_left_ms - self.oldest_ms, 0)


class FreePlan(NamedTuple):
    """What frees `wanted_bytes`.

    `due_bytes` go anyway: the settings that are given or stored delete them. `leaving_bytes` are those of directories
    that a broker is deleting (`-delete`), `stray_bytes` those of strays, which no setting frees; neither is part of
    `steps`.
    `linked_bytes` are those of segments whose files have other names too (hard links), so that deleting them frees
    nothing; they count nowhere else.
    `steps`: the oldest data of all topics first. They free `bytes`, which with `due_bytes` may be less than wanted:
    then retention.ms frees no more. `most_bytes` go where retention.bytes deletes what it can, too: a segment with a
    timestamp in the future goes by its size alone.
    `alternatives`: the topics that can free it alone, by each setting, least time first.
    `compacted_topics` are those whose policy does not delete.
    """

    wanted_bytes: int
    now_ms: int
    due_bytes: int
    leaving_bytes: int
    stray_bytes: int
    steps: tuple[FreeStep, ...]
    alternatives: tuple[FreeStep, ...]
    compacted_topics: tuple[str, ...]
    linked_bytes: int = 0
    most_bytes: int = 0

    @property
    def bytes(self) -> int:
        return sum(step.bytes for step in self.steps)

    @property
    def is_enough(self) -> bool:
        return self.due_bytes + self.bytes >= self.wanted_bytes


class _Candidate(NamedTuple):
    """A segment that a setting can delete. `frees_bytes` are the blocks of its files.

    `age_ms` is the largest time of its partition up to it: it goes with retention.ms below now - age_ms.
    `left_bytes` are the bytes of the log after it: it goes with retention.bytes at most that.
    """

    path: str
    order: int
    frees_bytes: int
    age_ms: int
    left_bytes: int


@dataclass(slots=True)
class _Topic:
    """A topic with the segments that a setting can delete. `starts` are the smallest timestamps of all that stay."""

    name: str
    candidates: list[_Candidate] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    segments: int = 0


def plan_free(
    partitions: Iterable[PartitionStatistics], wanted_bytes: int, now_ms: int, settings_of: SettingsOf
) -> FreePlan:
    """Which settings free `wanted_bytes` on the disk that holds these partitions, at what loss of time.

    Several copies of a partition count each. Partitions without a topic are left out, as are those without a report on
    retention, and those of topics whose name begins with two underscores: these belong to Kafka itself.
    """
    due = leaving = stray = linked = 0
    topics: dict[str, _Topic] = {}
    compacted = set()
    for each in partitions:
        if each.state is not None:
            leaving += each.allocated_bytes if each.state == "delete" else 0
            stray += each.allocated_bytes if each.state == "stray" else 0
        elif each.topic is not None and unreported_because(each) is None:
            settings = settings_for(each, _limits_given(settings_of(each.topic)))
            linked += sum(segment.linked_bytes for segment in each.segments)
            if not settings.deletes and not each.topic.startswith(_INTERNAL_PREFIX):
                compacted.add(each.topic)
            due += _add(topics.setdefault(each.topic, _Topic(each.topic)), each, settings, now_ms)
    free = [
        each for each in topics.values() if each.name not in compacted and not each.name.startswith(_INTERNAL_PREFIX)
    ]
    missing = wanted_bytes - due
    alternatives = (step for each in free for step in _alone(each, missing, now_ms)) if missing > 0 else ()
    return FreePlan(
        wanted_bytes,
        now_ms,
        due,
        leaving,
        stray,
        _oldest_first(free, missing, now_ms) if missing > 0 else (),
        tuple(sorted(alternatives, key=_loss)),
        tuple(sorted(compacted)),
        linked,
        due + sum(candidate.frees_bytes for topic in free for candidate in topic.candidates),
    )


def _limits_given(settings: TopicSettings) -> TopicSettings:
    """The settings without the limits that nobody named: a topic whose old segments are still there has others."""
    given = settings.known
    return settings._replace(
        retention_ms=settings.retention_ms if "retention_ms" in given else -1,
        retention_bytes=settings.retention_bytes if "retention_bytes" in given else -1,
    )


def _loss(step: FreeStep) -> tuple[bool, bool, int, int]:
    return step.is_emptied, step.lost_ms is None, step.lost_ms or 0, step.bytes


def _add(topic: _Topic, partition: PartitionStatistics, settings: TopicSettings, now_ms: int) -> int:
    """Add the segments of a partition to its topic. Returns the bytes that go anyway."""
    report = report_retention(partition, settings, now_ms)
    by_path = {segment.path: segment for segment in partition.segments}

    def frees(segment: RetainedSegment) -> int:
        found = by_path[segment.path]
        return found.allocated_bytes + found.companions_allocated_bytes - found.linked_bytes

    for segment in report.stays:
        smallest = by_path[segment.path].totals.smallest_timestamp
        if smallest is not None and smallest >= 0:
            topic.starts[segment.path] = smallest
    ages = accumulate((segment.age.timestamp_ms for segment in report.stays), max)
    left = sum(segment.size_bytes for segment in report.stays)
    for order, (segment, age) in enumerate(zip(report.stays, ages, strict=True)):
        if segment.end_offset > report.bounds.high_watermark or (segment.is_active and not segment.size_bytes):
            break
        left -= segment.size_bytes
        topic.candidates.append(_Candidate(segment.path, order, frees(segment), age, left))
    topic.segments += len(report.stays)
    return sum(map(frees, report.deletes))


def _oldest_first(topics: Sequence[_Topic], missing: int, now_ms: int) -> tuple[FreeStep, ...]:
    """For each topic that loses data the retention.ms up to the time where all together free enough."""
    candidates = sorted(
        (each.age_ms, each.frees_bytes) for topic in topics for each in topic.candidates if each.age_ms < now_ms
    )
    freed, until = 0, -1
    for age_ms, frees_bytes in candidates:
        if freed >= missing and age_ms > until:
            break
        freed, until = freed + frees_bytes, age_ms
    chosen = ((topic, [each for each in topic.candidates if each.age_ms <= until]) for topic in topics)
    steps = [_step(topic, FreeSetting.RETENTION_MS, _age_limit(gone, now_ms), gone) for topic, gone in chosen if gone]
    return tuple(sorted(steps, key=lambda step: -step.bytes))


def _alone(topic: _Topic, missing: int, now_ms: int) -> Iterable[FreeStep]:
    """The loosest retention.ms and retention.bytes with which one topic frees enough."""
    old = sorted((each for each in topic.candidates if each.age_ms < now_ms), key=lambda each: each.age_ms)
    gone = _enough(old, missing, lambda each: each.age_ms)
    if gone:
        yield _step(topic, FreeSetting.RETENTION_MS, _age_limit(gone, now_ms), gone)
    gone = _enough(sorted(topic.candidates, key=lambda each: -each.left_bytes), missing, lambda each: each.left_bytes)
    if gone:
        yield _step(topic, FreeSetting.RETENTION_BYTES, gone[-1].left_bytes, gone)


def _enough(candidates: Sequence[_Candidate], missing: int, key: Callable[[_Candidate], int]) -> list[_Candidate]:
    """The first candidates that free enough, with all that go under the same limit; none where all are not enough."""
    freed, gone = 0, list[_Candidate]()
    for each in candidates:
        if freed >= missing and key(each) != key(gone[-1]):
            break
        gone.append(each)
        freed += each.frees_bytes
    return gone if freed >= missing else []


def _age_limit(gone: Sequence[_Candidate], now_ms: int) -> int:
    """The largest retention.ms that deletes all of them at `now_ms`, and later too."""
    return now_ms - max(each.age_ms for each in gone) - 1


def _step(topic: _Topic, setting: FreeSetting, value: int, gone: Sequence[_Candidate]) -> FreeStep:
    paths = {each.path for each in gone}
    left = [start for path, start in topic.starts.items() if path not in paths]
    return FreeStep(
        topic.name,
        setting,
        value,
        sum(each.frees_bytes for each in gone),
        tuple(each.path for each in sorted(gone, key=lambda each: (each.age_ms, each.order))),
        min(topic.starts.values(), default=None),
        min(left, default=None),
        len(gone) == topic.segments,
    )
