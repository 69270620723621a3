"""The copies of each topic-partition below some paths, and what each pair of them has in common and not."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import combinations
from operator import add
from typing import NamedTuple

from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition
from kdump.replicas.comparison import MOST_KEYS, ReplicaComparison, Verdict, compare_pair, not_compared
from kdump.replicas.evidence import Evidence, RepairStep, evidence_of, repair_steps, stale_copy
from kdump.replicas.log_survey import survey_log
from kdump.storage.copies import by_directory, by_topic_id
from kdump.storage.discovery import discover
from kdump.storage.live import LIVE_READS
from kdump.storage.partition import LogDirectory, Partition
from kdump.storage.walk import MAX_BATCH_BYTES


class CompareOptions(NamedTuple):
    """How copies are compared. `most_keys` are those that are kept in memory at a time.

    `with_keys`: the first differing keys are in the result, not only their hashes.
    """

    max_batch_bytes: int = MAX_BATCH_BYTES
    most_keys: int = MOST_KEYS
    with_keys: bool = False


class ComparisonSummary(NamedTuple):
    """How many topic-partitions were compared, and the verdicts of their pairs of copies."""

    partitions: int = 0
    agree: int = 0
    diverged: int = 0
    undecided: int = 0

    def with_pairs(self, compared: "PartitionComparison") -> "ComparisonSummary":
        """With the pairs of one more topic-partition."""
        counts = [sum(pair.verdict is verdict for pair in compared.pairs) for verdict in Verdict]
        return ComparisonSummary(self.partitions + bool(compared.pairs), *map(add, self[1:], counts))

    @property
    def pairs(self) -> int:
        """How many pairs were compared."""
        return self.agree + self.diverged + self.undecided


class PartitionComparison(NamedTuple):
    """All pairs of the copies of a topic-partition, by the order of their paths; none where there is one copy.

    `topic_id` is None where no copy has one: then the name alone says that they belong together. `evidence` says which
    copy is not as it should be, the strongest first.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    copies: tuple[str, ...]
    pairs: tuple[ReplicaComparison, ...]
    evidence: tuple[Evidence, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """`diverged` where a pair is, else `undecided` where a pair is."""
        verdicts = {pair.verdict for pair in self.pairs}
        return next((each for each in (Verdict.DIVERGED, Verdict.UNDECIDED) if each in verdicts), Verdict.AGREE)

    @property
    def stale(self) -> str | None:
        """The copy that the strongest evidence names; None where it names none, or several. It can be wrong."""
        return stale_copy(self.evidence)

    def repair_steps(self) -> list[RepairStep]:
        """What to do about copies that diverged, in the order in which to do it."""
        return list(repair_steps(self.topic_partition, self.pairs, self.stale))


def compare_logs(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: CompareOptions | None = None,
    *,
    engine: Engine | None = None,
) -> Iterator[PartitionComparison | SourceError]:
    """Whether the copies of each topic-partition mean the same, in the order of the first of each; then what failed.

    Copies of one name with other topic ids are not compared. A directory that a broker moved away is no copy.
    """
    partitions, errors = dict[TopicPartition, list[Partition]](), list[SourceError]()
    for item in found:
        if isinstance(item, SourceError):
            errors.append(item)
        elif isinstance(item, Partition) and item.topic_partition is not None and not item.state and item.segments:
            partitions.setdefault(item.topic_partition, []).append(item)
    tasks = [
        _Copies(name, topic_id, tuple(sorted(copies, key=lambda copy: copy.path)))
        for name, several in partitions.items()
        for topic_id, copies in by_topic_id(by_directory(several)).items()
    ]
    for _, result in (engine or Serial()).map(partial(_compare, options or CompareOptions()), tasks):
        yield result
    yield from errors


class _Copies(NamedTuple):
    topic_partition: TopicPartition
    topic_id: str | None
    copies: tuple[Partition, ...]


def _compare(options: CompareOptions, task: _Copies) -> PartitionComparison:
    """Compare all pairs. Where a file vanishes meanwhile, discover the copies again."""
    copies = list(task.copies)
    surveys = [survey_log(copy, options.max_batch_bytes) for copy in copies] if len(copies) > 1 else []
    pairs = list[ReplicaComparison]()
    for left, right in combinations(range(len(surveys)), 2):
        for _ in range(LIVE_READS):
            try:
                pair = compare_pair(
                    surveys[left],
                    surveys[right],
                    options.max_batch_bytes,
                    options.most_keys,
                    with_keys=options.with_keys,
                )
                break
            except SourceError:
                for number in (left, right):
                    copies[number] = _again(copies[number])
                    surveys[number] = survey_log(copies[number], options.max_batch_bytes)
        else:
            pair = not_compared(surveys[left], surveys[right], "changed")
        pairs.append(pair)
    paths = tuple(copy.path for copy in copies)
    evidence = tuple(evidence_of(paths, pairs))
    return PartitionComparison(task.topic_partition, task.topic_id, paths, tuple(pairs), evidence)


def _again(copy: Partition) -> Partition:
    found = (each for each in discover([copy.path]) if isinstance(each, Partition) and each.path == copy.path)
    return next(found, copy)
