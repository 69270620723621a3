"""From what was found to logs that can be read in order: chosen, merged from copies, up to the last stable offset."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kdump.convert.batch_order import LeftOutBatch
from kdump.convert.choice import Choice, Included, choose
from kdump.convert.isolation import last_stable_offset
from kdump.convert.log_slice import SlicedPartition
from kdump.convert.ordered_log import ordered_log
from kdump.convert.replica_findings import replica_findings
from kdump.convert.replicas import MergedPartition, MergeOptions, ReplicaUse, merge_replicas
from kdump.errors import NotALog, SourceError
from kdump.format.naming import Kind
from kdump.log.batch_location import DamagedRange
from kdump.storage.discovery import Found
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.findings import Finding


class PreparedPartition(NamedTuple):
    """A log in order, and what was found on the way: about its copies, and about batches that are not in order.

    `damage` is what lies outside the slices; reading them finds the rest.
    """

    partition: SlicedPartition
    merged: MergedPartition
    findings: tuple[Finding, ...]
    damage: tuple[DamagedRange, ...]
    left_out: tuple[LeftOutBatch, ...]


class PrepareOptions(NamedTuple):
    """`until_stable`: up to the last stable offset. `takes_07`: also logs of Kafka 0.7."""

    choice: Choice = Choice()
    replica: ReplicaUse = ReplicaUse.MERGE
    until_stable: bool = False
    takes_07: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES


def prepare(
    found: Iterable[Found], options: PrepareOptions, named: Iterable[str] = ()
) -> Iterator[PreparedPartition | SourceError]:
    """The chosen logs, in order; for what cannot be read or merged its error. Raises SeveralPartitions."""
    merging = MergeOptions(options.replica, Included.DELETED in options.choice.include, options.max_batch_bytes)
    for chosen in choose(found, options.choice, named):
        if isinstance(chosen, SourceError):
            yield chosen
            continue
        try:
            if not options.takes_07:
                for copy in chosen.copies:
                    _refuse_07(copy.path, [segment.log.kind for segment in copy.segments])
            merged = merge_replicas(chosen.copies, chosen.offset, merging)
        except SourceError as error:
            yield error
            continue
        for each in merged:
            try:
                asked = each.partition._replace(first_asked=chosen.offset[0])
                yield _prepared(each._replace(partition=asked), options)
            except SourceError as error:
                yield error


def _refuse_07(path: str, kinds: Iterable[Kind]) -> None:
    if Kind.KAFKA07 in kinds:
        raise NotALog(f"{path}: records of Kafka 0.7 have no offsets; kdump convert --to log gives them some")


def _prepared(merged: MergedPartition, options: PrepareOptions) -> PreparedPartition:
    log = ordered_log(merged.partition, options.max_batch_bytes)
    partition = log.partition
    if merged.other_topic_ids and partition.replica is None:
        partition = partition._replace(replica=merged.topic_id)  # another topic has the same name
    if options.until_stable:
        stable = last_stable_offset(partition, options.max_batch_bytes)
        first, stop = partition.offset
        if stable is not None:
            partition = partition._replace(offset=(first, stable if stop is None else min(stop, stable)))
    return PreparedPartition(
        partition,
        merged,
        tuple(replica_findings(merged)),
        (*merged.damage, *log.damage),
        (*merged.left_out, *log.left_out),
    )
