"""What a merge of copies found, as findings."""

from collections.abc import Iterator
from dataclasses import replace

from kdump.replicas.merge import MergedPartition
from kdump.verify.findings import CATALOGUE, Finding, FindingData


def replica_findings(merged: MergedPartition) -> Iterator[Finding]:
    """The findings about copies that do not agree, by code and offset. The path is that of the copy.

    That of missing offsets is the path of the reference copy.
    """
    of = merged.partition.topic_partition
    yield from (replace(each, of=of) for each in _findings(merged))


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


def _finding(code: str, path: str, offset: int | None, data: FindingData) -> Finding:
    return Finding(code, CATALOGUE[code].severity, path, 0, 0, offset, data=data)
