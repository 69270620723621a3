"""The copies of each topic-partition below some paths, and what each pair of them has in common and not."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations, islice
from operator import add
from typing import Final

from kdump.broker.log_manager import meta_of
from kdump.broker.metadata_image.metadata_log import METADATA_PARTITION, find_metadata_log
from kdump.broker.metadata_image.replica_history import (
    PartitionHistory,
    PartitionId,
    UncleanElection,
    read_histories,
)
from kdump.engine.protocol import Engine, Serial, task_sizes
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.comparison import (
    MOST_KEYS,
    ReplicaComparison,
    Verdict,
    compare_pair,
    not_compared,
    ranges_of_pair,
    same_batches,
)
from kdump.replicas.evidence import Evidence, RepairStep, evidence_of, fill_sources, fill_step, repair_steps, stale_copy
from kdump.replicas.fingerprint.copy_sketch import NO_KEY, AsOf, FingerprintOptions, HashKey, sketch_copy
from kdump.replicas.fingerprint.fingerprint_file import CopyFingerprint, load_copy, load_front
from kdump.replicas.fingerprint.fingerprint_format import CopySketch
from kdump.replicas.fingerprint.sketch_pair import SketchedCopy, compare_sketches
from kdump.replicas.log_survey import LogSurvey, survey_log
from kdump.storage.copies import by_directory, grouped_by_id, topic_id_of
from kdump.storage.discovery import discover
from kdump.storage.file_store import directory_above, exists, kept_whole, parent_of, store_of
from kdump.storage.live import LIVE_READS
from kdump.storage.partition import MANY, LogDirectory, Partition, carried, packed, unpacked
from kdump.storage.walk import MAX_BATCH_BYTES


class CompareOptions(NamedTuple):
    """How copies are compared. `most_keys` are those that are kept in memory at a time.

    `with_keys`: the first differing keys are in the result, not only their hashes. `metadata`: the directory of the
    metadata log that says who was in sync; without it, one that lies beside a copy says it. `merges`: the result says
    what a merge of the copies takes from which; they are read once more for that. `hash_key` is that of the hashes of
    fingerprints with which copies are compared. Copies of more than `range_bytes` are read by several processes.
    """

    max_batch_bytes: int = MAX_BATCH_BYTES
    most_keys: int = MOST_KEYS
    with_keys: bool = False
    metadata: str | None = None
    merges: bool = False
    hash_key: HashKey | None = None
    range_bytes: int = 256 << 20


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


class CopyExtent(NamedTuple):
    """Which offsets a copy has: [start, end), but for those whose bytes are damaged.

    `node_id` is that of the broker and `directory` that of the copy on it, where a fingerprint says them.
    """

    path: str
    start_offset: int
    end_offset: int
    high_watermark: int | None
    damage: tuple[OffsetRange, ...]
    node_id: int | None = None
    directory: str | None = None


class MergedRange(NamedTuple):
    """Offsets [start, end) that a merge of the copies takes from one of them."""

    path: str
    start_offset: int
    end_offset: int


class PartitionComparison(NamedTuple):
    """All pairs of the copies of a topic-partition, by the order of their paths; none where there is one copy.

    `topic_id` is None where no copy has one: then the name alone says that they belong together. `evidence` says which
    copy is not as it should be, the strongest first. `unclean_elections` are those that the metadata log has, of a
    topic-partition whose copies diverged. `extents` say which offsets each copy has, `merged` what a merge takes from
    which, in the order of the offsets, where CompareOptions asks for it. `fills` are the steps that give a copy which
    is damaged, or lacks records, the batches of others; none where kdump recover --fill-from would give it none.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    copies: tuple[str, ...]
    pairs: tuple[ReplicaComparison, ...]
    evidence: tuple[Evidence, ...] = ()
    unclean_elections: tuple[UncleanElection, ...] = ()
    extents: tuple[CopyExtent, ...] = ()
    merged: tuple[MergedRange, ...] = ()
    fills: tuple[RepairStep, ...] = ()

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
        """What to do about copies that diverged or are damaged, in the order in which to do it."""
        directories = {each.path: each.directory for each in self.extents if each.directory is not None}
        return list(repair_steps(self.topic_partition, self.pairs, self.stale, directories, self.fills))


def compare_logs(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: CompareOptions | None = None,
    *,
    engine: Engine | None = None,
    fingerprints: Iterable[CopyFingerprint] = (),
) -> Iterator[PartitionComparison | SourceError]:
    """Whether the copies of each topic-partition mean the same, in the order of the first of each; then what failed.

    Copies of one name with other topic ids are not compared. A directory that a broker moved away is no copy.
    `fingerprints`: more copies, of which only these are at hand.
    """
    known, errors = _KnownCopies(fingerprints), list[SourceError]()
    for item in found:
        if isinstance(item, SourceError):
            errors.append(item)
        elif isinstance(item, Partition) and item.topic_partition is not None and not item.state and item.segments:
            known.add(item.topic_partition, carried(item))
    chosen, engine = options or CompareOptions(), engine or Serial()
    witness = _Witness(known, chosen)
    for wave in _waves(known.tasks(), chosen, engine):
        for _, result in engine.map(partial(_compare, chosen), wave):
            if isinstance(result, PartitionComparison) and result.verdict is Verdict.DIVERGED:
                result = witness.with_metadata(result)
            yield result
    yield from (*errors, *witness.errors)


_AT_ONCE: Final = 4096
"""The topic-partitions whose large copies several processes survey before they are compared."""


class _KnownCopies:
    """The copies of each topic-partition, by name. One can lie on any broker, so that all are found first."""

    def __init__(self, fingerprints: Iterable[CopyFingerprint]) -> None:
        self._partitions = dict[TopicPartition, list[Partition | bytes]]()
        self._count = 0
        self._fingerprints = dict[TopicPartition, list[CopyFingerprint]]()
        for each in fingerprints:
            self._fingerprints.setdefault(each.topic_partition, []).append(each)

    def add(self, of: TopicPartition, copy: Partition) -> None:
        """Add a copy on a disk."""
        self._count += 1
        kept = copy if self._count <= MANY else packed(copy)
        self._partitions.setdefault(of, []).append(kept)

    def tasks(self) -> "Iterator[_Copies]":
        """The topic-partitions with their copies, one by one, in the order of the first of each."""
        for name in dict.fromkeys([*self._partitions, *self._fingerprints]):
            disks = map(unpacked, self._partitions.get(name, ()))
            copies = [*by_directory(disks), *self._fingerprints.get(name, ())]
            for topic_id, several in grouped_by_id(copies, _topic_id).items():
                yield _Copies(name, topic_id, tuple(sorted(several, key=lambda copy: copy.path)))


def _waves(tasks: "Iterator[_Copies]", options: CompareOptions, engine: Engine) -> "Iterator[Iterable[_Copies]]":
    """The tasks: on a cluster, and in one process, all of them, which it takes as it needs them."""
    if engine.slots == 1 or task_sizes(engine) is not None:
        yield tasks
        return
    while wave := list(islice(tasks, _AT_ONCE)):
        yield list(_with_ranges(wave, options, engine))


class _Witness:
    """What the metadata log says of topic-partitions whose copies diverged. It is read for the first of them."""

    def __init__(self, known: _KnownCopies, options: CompareOptions) -> None:
        self._known, self._options = known, options
        self.errors = list[SourceError]()
        self._histories: Mapping[PartitionId, PartitionHistory] | None = None

    def with_metadata(self, compared: PartitionComparison) -> PartitionComparison:
        """The comparison with what the metadata log says of its copies."""
        if self._histories is None:
            self._histories = self._read()
        if compared.topic_id is None:
            return compared
        history = self._histories.get((compared.topic_id, compared.topic_partition.partition))
        if history is None:
            return compared
        known = {each.path: each.node_id for each in compared.extents if each.node_id is not None}
        brokers = {path: known[path] if path in known else _broker_of(path) for path in compared.copies}
        evidence = tuple(evidence_of(compared.copies, compared.pairs, history, brokers))
        return compared._replace(evidence=evidence, unclean_elections=tuple(history.unclean))

    def _read(self) -> Mapping[PartitionId, PartitionHistory]:
        path = self._options.metadata or self._beside()
        if path is None:
            return {}
        wanted = {
            (task.topic_id, task.topic_partition.partition)
            for task in self._known.tasks()
            if task.topic_id is not None and len(task.copies) > 1
        }
        try:
            return read_histories(find_metadata_log(path), wanted)
        except SourceError as error:
            self.errors += [error] if self._options.metadata is not None else []
            return {}

    def _beside(self) -> str | None:
        """A metadata log in the log directory of a copy; of several, that with the newest segment."""
        places = {
            os.path.join(directory_above(copy.path), METADATA_PARTITION)
            for task in self._known.tasks()
            for copy in task.copies
            if len(task.copies) > 1 and isinstance(copy, Partition)
        }
        found = [(_newest_base(place), place) for place in sorted(places) if exists(place)]
        return max(found)[1] if found else None


def _newest_base(path: str) -> int:
    try:
        segments = find_metadata_log(path).segments
    except SourceError:
        return -1
    return segments[-1].base_offset or 0 if segments else -1


def _broker_of(path: str) -> int | None:
    """The broker whose log directory has a copy."""
    meta = meta_of(directory_above(path))
    return None if meta is None else meta.node_id


class _Copies(NamedTuple):
    """The copies of a topic-partition. Of large ones their surveys are known by path, and of pairs that are the same in
    all ranges, how many batches these have.
    """

    topic_partition: TopicPartition
    topic_id: str | None
    copies: tuple[Partition | CopyFingerprint, ...]
    surveys: Mapping[str, LogSurvey] = {}
    same: Mapping[tuple[str, str], int] = {}

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        several = [copy for copy in self.copies if isinstance(copy, Partition)]
        return sum(one.log.size for copy in several for one in copy.segments) if len(self.copies) > 1 else 0

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the task reads."""
        return tuple(copy.path for copy in self.copies)


class _PairRange(NamedTuple):
    left: LogSurvey
    right: LogSurvey
    offsets: OffsetRange


def _with_ranges(tasks: Sequence[_Copies], options: CompareOptions, engine: Engine) -> Iterator[_Copies]:
    """The tasks, with what several processes find out about large copies. A difference is left to one of them."""
    limit = options.max_batch_bytes
    large = [task for task in tasks if _is_large(task, options.range_bytes)]
    disks = [copy for task in large for copy in task.copies if isinstance(copy, Partition)]
    surveys = {
        copy.path: survey
        for copy, survey in (engine.map(partial(_survey, limit), disks) if disks else ())
        if survey is not None
    }
    ranges = [
        _PairRange(left, right, offsets)
        for task in large
        for left, right in combinations([surveys[each.path] for each in task.copies if each.path in surveys], 2)
        for offsets in ranges_of_pair(left, right, options.range_bytes)
    ]
    counts = dict[tuple[str, str], list[int | None]]()
    for each, count in engine.map(partial(_same_batches, limit), ranges) if ranges else ():
        counts.setdefault((each.left.path, each.right.path), []).append(count)
    for task in tasks:
        paths = {copy.path for copy in task.copies} & surveys.keys()
        same = {
            pair: sum(filter(None, found)) for pair, found in counts.items() if pair[0] in paths and None not in found
        }
        yield task._replace(surveys={path: surveys[path] for path in paths}, same=same) if paths else task


def _is_large(task: _Copies, range_bytes: int) -> bool:
    """Whether two copies or more are larger than a range."""
    disks = [copy for copy in task.copies if isinstance(copy, Partition)]
    return sum(sum(each.log.size for each in copy.segments) > range_bytes for copy in disks) > 1


def _survey(max_batch_bytes: int, copy: Partition) -> LogSurvey | None:
    with suppress(SourceError):
        return survey_log(copy, max_batch_bytes)
    return None


def _same_batches(max_batch_bytes: int, task: _PairRange) -> int | None:
    with suppress(SourceError):  # a file vanished
        return same_batches(*task, max_batch_bytes)
    return None


def _topic_id(copy: Partition | CopyFingerprint) -> str | None:
    return topic_id_of(copy) if isinstance(copy, Partition) else copy.topic_id


def _compare(options: CompareOptions, task: _Copies) -> PartitionComparison | SourceError:
    """Compare all pairs. Returns the error where a fingerprint cannot be read."""
    path = next((copy.path for copy in task.copies if isinstance(copy, Partition)), "")
    with kept_whole(path, task.size_bytes):
        return _compare_all(options, task)


def _compare_all(options: CompareOptions, task: _Copies) -> PartitionComparison | SourceError:
    copies = list(task.copies)
    try:
        known = [_CopySource(copy, options, task.surveys.get(copy.path)) for copy in copies] if len(copies) > 1 else []
        pairs = tuple(
            _compare_two(left, right, options, task.same.get((left.copy.path, right.copy.path)))
            for left, right in combinations(known, 2)
        )
    except SourceError as error:
        return error
    paths = tuple(copy.path for copy in copies)
    evidence = tuple(evidence_of(paths, pairs))
    extents = tuple(each.extent() for each in known)
    disks = [each.copy for each in known if isinstance(each.copy, Partition)]
    merged = tuple(_merged(disks, options.max_batch_bytes)) if options.merges and len(disks) == len(copies) > 1 else ()
    fills = tuple(_fills(known, pairs, stale_copy(evidence), options.max_batch_bytes))
    return PartitionComparison(task.topic_partition, task.topic_id, paths, pairs, evidence, (), extents, merged, fills)


class _CopySource:
    """A copy and what is known of it: what a fingerprint says, or a survey of its log. Raises SourceError."""

    def __init__(
        self, copy: Partition | CopyFingerprint, options: CompareOptions, survey: LogSurvey | None = None
    ) -> None:
        self.copy, self._options = copy, options
        self._sketch = load_front(copy) if isinstance(copy, CopyFingerprint) else None
        self._whole: CopySketch | None = None
        if survey is None and isinstance(copy, Partition):
            survey = survey_log(copy, options.max_batch_bytes)
        self._survey = survey
        self._as_of = dict[AsOf, CopySketch]()

    @property
    def survey(self) -> LogSurvey | None:
        """The survey of the log; None of a fingerprint."""
        return self._survey

    def again(self) -> None:
        """Discover a copy of which a file vanished."""
        if isinstance(self.copy, Partition):
            self.copy = _again(self.copy)
            self._survey = survey_log(self.copy, self._options.max_batch_bytes)
            self._as_of.clear()

    def sketch(self, other: "_CopySource") -> SketchedCopy:
        """What a fingerprint of the copy says; that of a log is made as of the end of the other copy.

        Of two with the same tables without these. Raises SourceError.
        """
        path, found, also = self.copy.path, self._sketch, other._sketch
        is_same = found is not None and also is not None and found.has_tables_of(also)
        if isinstance(self.copy, CopyFingerprint) and not is_same:
            found = self._whole = self._whole or load_copy(self.copy)
        if found is None:
            assert isinstance(self.copy, Partition)
            assert also is not None
            as_of = AsOf(also.start_offset, also.as_of, also.state is not None, also.compacted)
            if as_of not in self._as_of:
                options = self._options
                how = FingerprintOptions(options.max_batch_bytes, options.most_keys, options.hash_key or NO_KEY)
                self._as_of[as_of] = sketch_copy(self.copy, how, as_of, known=self._survey)
            found = self._as_of[as_of]
        return SketchedCopy(path, found)

    def extent(self) -> CopyExtent:
        """Which offsets it has."""
        one, sketch = self._survey, self._sketch
        if one is not None:
            return CopyExtent(one.path, one.start_offset, one.end_offset, one.high_watermark, one.damage)
        assert sketch is not None
        end, node = sketch.log_end_offset, sketch.node_id
        directory = self.copy.entry.directory if isinstance(self.copy, CopyFingerprint) else None
        return CopyExtent(
            self.copy.path, sketch.start_offset, end, sketch.high_watermark, sketch.damage, node, directory
        )


def _compare_two(
    left: _CopySource, right: _CopySource, options: CompareOptions, same: int | None = None
) -> ReplicaComparison:
    """Compare a pair. Where a file vanishes meanwhile, discover the copies again."""
    if left.survey is None or right.survey is None:
        return compare_sketches(left.sketch(right), right.sketch(left))
    for _ in range(LIVE_READS):
        one, other = left.survey, right.survey
        try:
            limits = options.max_batch_bytes, options.most_keys
            return compare_pair(one, other, *limits, with_keys=options.with_keys, same=same)
        except SourceError:
            same = None
            left.again()
            right.again()
    return not_compared(left.survey, right.survey, "changed")


def _fills(
    known: Sequence[_CopySource], pairs: Sequence[ReplicaComparison], stale: str | None, max_batch_bytes: int
) -> Iterator[RepairStep]:
    """The copies that others would give batches, as kdump recover --fill-from does it, and which of these give some."""
    disks = {each.copy.path: each.copy for each in known if isinstance(each.copy, Partition)}
    damaged = {each.copy.path for each in known if each.survey is not None and each.survey.damage}
    for path, copy in disks.items():
        sources = [disks[other] for other in fill_sources(path, damaged, pairs, stale) if other in disks]
        if not sources or not all(store_of(each).is_local for each in (path, *(one.path for one in sources))):
            continue
        from kdump.replicas.fill import fill_of

        try:
            found = fill_of(copy, sources, max_batch_bytes)
        except SourceError:
            continue
        given = dict.fromkeys(parent_of(each.slice.log.path) for each in found.slices if not each.own)
        if found.filled:
            yield fill_step(path, list(given))


def _merged(copies: Sequence[Partition], max_batch_bytes: int) -> Iterator[MergedRange]:
    """What a merge of the copies takes from which; nothing where one cannot be read, or is of another topic."""
    from kdump.replicas.merge import MergeOptions, merge_replicas

    try:
        several = merge_replicas(copies, options=MergeOptions(max_batch_bytes=max_batch_bytes))
    except SourceError:
        return
    before: MergedRange | None = None
    for each in several[0].partition.slices if len(several) == 1 else ():
        path, start, end = parent_of(each.log.path), each.lowest, each.highest + 1
        if before is not None and (before.path, before.end_offset) == (path, start):
            before = before._replace(end_offset=end)
            continue
        if before is not None:
            yield before
        before = MergedRange(path, start, end)
    if before is not None:
        yield before


def _again(copy: Partition) -> Partition:
    found = (each for each in discover([copy.path]) if isinstance(each, Partition) and each.path == copy.path)
    return next(found, copy)
