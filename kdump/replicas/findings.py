"""What a merge or a comparison of copies found, as findings."""

from collections.abc import Iterator
from dataclasses import replace

from kdump.replicas.compare import PartitionComparison
from kdump.replicas.comparison import OffsetTally, ReplicaComparison
from kdump.replicas.merge import MergedPartition
from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding, FindingData, Severity


def replica_findings(merged: MergedPartition) -> Iterator[Finding]:
    """The findings about copies that do not agree, by code and offset. The path is that of the copy.

    That of missing offsets is the path of the reference copy.
    """
    of = merged.partition.topic_partition
    yield from (replace(each, of=of) for each in _findings(merged))


def comparison_findings(compared: PartitionComparison) -> Iterator[Finding]:
    """The findings about pairs of copies that diverged. The path is that of the copy that is not as most, or the first.

    That of a hole, of an open transaction, or of an aborted one that begins earlier is the copy that has it.
    """
    for pair in compared.pairs:
        for each in _findings_of(pair, swapped=compared.stale == pair.right):
            yield replace(each, of=compared.topic_partition)


def _findings_of(pair: ReplicaComparison, *, swapped: bool) -> Iterator[Finding]:
    differs, keys = pair.differs, pair.differs.keys
    path, other = (pair.right, pair.left) if swapped else (pair.left, pair.right)
    if differs.fork is not None:
        severity = Severity.ERROR if differs.is_committed else Severity.INFO
        fork: FindingData = {"other": other, "committed": differs.is_committed}
        yield _finding("replica/epoch", path, differs.fork, fork, severity)
    elif differs.epochs.count:
        yield _finding("replica/epoch", path, differs.epochs.first, {"other": other, "committed": None})
    for code, tally in (("replica/record", differs.records), ("replica/transaction", differs.outcomes)):
        yield from _of_tally(code, path, other, tally)
    if differs.ranges:
        ranges: FindingData = {"count": len(differs.ranges), "last": differs.ranges[-1].stop - 1, "other": other}
        yield _finding("replica/range", path, differs.ranges[0].start, ranges)
    yield from _of_tally("replica/aborted", pair.left, pair.right, differs.earlier_left)
    yield from _of_tally("replica/aborted", pair.right, pair.left, differs.earlier_right)
    yield from _of_tally("replica/hole", pair.left, pair.right, differs.missing_left)
    yield from _of_tally("replica/hole", pair.right, pair.left, differs.missing_right)
    if keys.keys:
        here, there = (keys.only_right, keys.only_left) if swapped else (keys.only_left, keys.only_right)
        older, newer = (keys.older_right, keys.older_left) if swapped else (keys.older_left, keys.older_right)
        data: FindingData = {
            "end": pair.end_offset,
            "count": keys.keys,
            "other": other,
            "only": here,
            "missing": there,
            "older": older,
            "newer": newer,
            "first_key": keys.offsets[0].key_hash,
        }
        first = keys.offsets[0]
        yield _finding("replica/state", path, max(first.left, first.right), data)
    for own, its, opened in ((pair.left, pair.right, differs.open_left), (pair.right, pair.left, differs.open_right)):
        if opened:
            yield _finding("replica/stuck", own, opened[0], {"count": len(opened), "other": its})


def _of_tally(code: str, path: str, other: str, tally: OffsetTally) -> Iterator[Finding]:
    if tally.count:
        yield _finding(code, path, tally.first, {"count": tally.count, "last": tally.last, "other": other})


def _findings(merged: MergedPartition) -> Iterator[Finding]:
    reference = merged.replicas[0]
    if merged.other_topic_ids:
        data = {"topic_id": merged.topic_id or "unknown", "others": ", ".join(merged.other_topic_ids)}
        for path in merged.replicas:
            yield _finding("replica/topic-id", path, None, data)
    for lost in merged.diverged:
        counts: FindingData = {"last": lost.last_offset, "batches": lost.batches, "records": lost.records}
        yield _finding("replica/diverged", lost.replica, lost.first_offset, {**counts, "reference": reference})
    for each in merged.differing:
        for path in each.left_out:
            how: FindingData = {"last": each.last_offset, "kept": each.kept[0], "by_copies": each.by_copies}
            yield _finding("replica/differs", path, each.first_offset, how)
    for hole in merged.missing:
        next_offset = None if hole.last_offset is None else hole.last_offset + 1
        known: FindingData = {"next": next_offset, "exact": hole.exact, "committed": hole.below_high_watermark}
        yield _finding("replica/missing", reference, hole.first_offset, known)


def _finding(code: str, path: str, offset: int | None, data: FindingData, severity: Severity | None = None) -> Finding:
    return Finding(code, CATALOGUE[code].severity if severity is None else severity, path, 0, 0, offset, data=data)
