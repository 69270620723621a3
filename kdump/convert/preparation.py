"""From what was found to logs that can be read in order: chosen, merged from copies, up to the last stable offset."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kdump.convert.choice import Choice, ChosenCopies, Included, choose
from kdump.convert.records.ordered_log import OrderedLog, ordered_log
from kdump.convert.records.unread_headers import read_so, without_headers
from kdump.engine.protocol import Engine, Serial
from kdump.errors import NotALog, SourceError, only
from kdump.format.naming import Kind
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import SliceHeaders
from kdump.log.isolation import read_transactions
from kdump.log.log_slice import SlicedPartition
from kdump.log.swap_segments import SWAP_SUFFIX
from kdump.log.transactions import last_stable_offset
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch, unordered_findings
from kdump.replicas.findings import replica_findings
from kdump.replicas.merge import MergedPartition, MergeOptions, ReplicaUse, merge_replicas
from kdump.storage.discovery import Found
from kdump.storage.partition import refuse_two_logs, with_read_policy
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.findings import Finding, make_finding

_LEAST_BYTES: Final = 64 << 20
"""For less, starting processes takes longer than reading the headers."""


class PreparedPartition(NamedTuple):
    """A log in order, and what was found on the way: about its copies, and about batches that are not in order.

    `damage` is what lies outside the slices; reading them finds the rest. `holes` are offsets that are missing because
    of the batches of `left_out`.
    """

    partition: SlicedPartition
    merged: MergedPartition
    findings: tuple[Finding, ...]
    damage: tuple[DamagedRange, ...]
    left_out: tuple[LeftOutBatch, ...]
    holes: tuple[DamagedRange, ...] = ()

    def read_so(
        self, found: Sequence[SliceHeaders], stable: int | None, max_batch_bytes: int, *, committed: bool
    ) -> "PreparedPartition | None":
        """The same with what reading the log showed; see kdump.convert.records.unread_headers.read_so.

        `stable` is the last stable offset, where the log is read up to that, and None for the log end.
        """
        known = read_so(self.partition, found, max_batch_bytes, committed=committed)
        return None if known is None else self._replace(partition=known.up_to(stable))


class PrepareOptions(NamedTuple):
    """`until_stable`: up to the last stable offset. `takes_07`: also logs of Kafka 0.7. `read_policy`: how each process
    reads the logs, now and when the prepared ones are read. `without_headers`: the headers of an object need not be
    read before its records (kdump.convert.records.unread_headers); `settle` prepares a log for which they have to be.
    """

    choice: Choice = Choice()
    replica: ReplicaUse = ReplicaUse.MERGE
    until_stable: bool = False
    takes_07: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES
    read_policy: ReadPolicy = ReadPolicy()
    without_headers: bool = False


class _PreparationTask(NamedTuple):
    """The copies of a topic-partition, and what is to be known of them."""

    chosen: ChosenCopies
    options: PrepareOptions

    @property
    def size_bytes(self) -> int:
        """The bytes of their logs."""
        return sum(segment.log.size for copy in self.chosen.copies for segment in copy.segments)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the copies."""
        return tuple(copy.path for copy in self.chosen.copies)


def prepare(
    found: Iterable[Found],
    options: PrepareOptions,
    named: Iterable[str] = (),
    engine: Engine | None = None,
    on_path: Callable[[str], object] | None = None,
) -> Iterator[PreparedPartition | SourceError]:
    """The chosen logs, in order; for what cannot be read or merged its error. Raises SeveralPartitions.

    Headers are read, and copies merged, by the engine, where there is enough of it. `on_path` gets the path of each
    topic-partition before that.
    """
    chosen = list(choose(found, options.choice, named))
    tasks = [_PreparationTask(each, options) for each in chosen if not isinstance(each, SourceError)]
    if engine is None or engine.slots == 1 or len(tasks) == 1 or sum(each.size_bytes for each in tasks) < _LEAST_BYTES:
        engine = Serial()
    results = engine.map(_prepare_copies, tasks)
    for each in chosen:
        if isinstance(each, SourceError):
            yield each
        else:
            if on_path is not None:
                on_path(each.copies[0].path)
            yield from next(results)[1]
    for _ in results:  # so that the engine ends its processes
        raise AssertionError


def _prepare_copies(task: _PreparationTask) -> list[PreparedPartition | SourceError]:
    """The logs of a topic-partition, one for each topic id; the function that an engine maps."""
    (copies, offset), options = task.chosen, task.options
    if options.read_policy != ReadPolicy():
        copies = tuple(with_read_policy(copy, options.read_policy) for copy in copies)
    merging = MergeOptions(options.replica, Included.DELETED in options.choice.include, options.max_batch_bytes)
    try:
        with only(copies[0].path):
            if not options.takes_07:
                for copy in copies:
                    _refuse_07(copy.path, [segment.log.kind for segment in copy.segments])
            refuse_two_logs(segment.log for copy in copies for segment in copy.segments)
            merged = merge_replicas(copies, offset, merging)
    except SourceError as error:
        return [error]
    prepared: list[PreparedPartition | SourceError] = []
    for each in merged:
        try:
            asked = each.partition._replace(first_asked=offset[0])
            with only(asked.path):
                prepared.append(_prepared(each._replace(partition=asked), options))
        except SourceError as error:
            prepared.append(error)
    return prepared


class _SettleTask(NamedTuple):
    """A log that was prepared without its headers, to prepare with them."""

    of: PreparedPartition
    options: PrepareOptions

    @property
    def size_bytes(self) -> int:
        """The bytes of its logs."""
        return sum(each.log.size for each in self.of.partition.slices)

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of the topic-partition."""
        return (self.of.partition.path,)


def settle(
    several: Sequence[PreparedPartition], options: PrepareOptions, engine: Engine
) -> Iterator[PreparedPartition | SourceError]:
    """The same logs with their headers, which the engine reads where there is enough of them."""
    tasks = [_SettleTask(each, options._replace(without_headers=False)) for each in several]
    if sum(each.size_bytes for each in tasks) < _LEAST_BYTES:
        engine = Serial()
    for _, found in engine.map(_settled, tasks):
        yield found


def _settled(task: _SettleTask) -> PreparedPartition | SourceError:
    """A log with its headers; the function that an engine maps."""
    merged = task.of.merged
    try:
        with only(merged.partition.path):
            return _prepared(merged, task.options)
    except SourceError as error:
        return error


def refuse_nameless(partitions: Iterable[SlicedPartition], columns: Sequence[str]) -> None:
    """Raise SourceError where rows of several logs without a name would not be told apart."""
    nameless = [each for each in partitions if each.topic_partition is None]
    if len({each.path for each in nameless}) > 1 and not (
        "replica" in columns and all(each.replica is not None for each in nameless)
    ):
        raise SourceError(
            f"{nameless[1].path}: a log without a topic and a partition, and so is {nameless[0].path}: their rows "
            "would be mixed; convert each on its own, or put the paths into the column replica (--replica all)"
        )


def _refuse_07(path: str, kinds: Iterable[Kind]) -> None:
    if Kind.KAFKA07 in kinds:
        raise NotALog(f"{path}: records of Kafka 0.7 have no offsets; kdump convert --to log assigns them")


def _prepared(merged: MergedPartition, options: PrepareOptions) -> PreparedPartition:
    unread = without_headers(merged.partition) if options.without_headers else None
    log = OrderedLog(unread) if unread is not None else ordered_log(merged.partition, options.max_batch_bytes)
    partition = log.partition
    if merged.other_topic_ids and partition.replica is None:
        partition = partition._replace(replica=merged.topic_id)  # another topic has the same name
    if options.until_stable and unread is not None:
        partition = partition._replace(until_stable=True)
    elif options.until_stable:
        partition = partition.up_to(last_stable_offset(read_transactions(partition, options.max_batch_bytes), "stop"))
    return PreparedPartition(
        partition,
        merged,
        (
            *replica_findings(merged),
            *unordered_findings(merged.left_out),
            *log.findings,
            *_swap_findings(log.partition),
        ),
        (*merged.damage, *log.damage),
        (*merged.left_out, *log.left_out),
        log.holes,
    )


def _swap_findings(partition: SlicedPartition) -> Iterator[Finding]:
    """file/leftover for each .swap segment that is read."""
    for each in partition.slices:
        if each.log.path.endswith(SWAP_SUFFIX) and each.start == 0:
            yield make_finding("file/leftover", each.log.path, 0, 0, what="swap")
