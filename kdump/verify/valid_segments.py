"""What a verify knows about the segments that a broker's recovery leaves as they are, so that it need not be read again."""

from collections.abc import Mapping, Set

from kdump.broker.result import IndexChecksums, ValidSegment
from kdump.format.index import TIME_ENTRY
from kdump.format.naming import Kind
from kdump.kernel.crc import crc32c
from kdump.storage.partition import LogFile
from kdump.verify.scan import RangeSummary


def valid_segment(
    log: LogFile,
    summary: RangeSummary,
    end_offset: int,
    replayed: Set[str],
    open_by_producer: Mapping[int, int] | None,
) -> ValidSegment | None:
    """The segment as the prediction of a start takes it, None where a recovery would change it.

    `end_offset` is the offset after the last valid batch, `replayed` are the codes that the replay of the producers
    reported, `open_by_producer` the first offsets of the transactions that are open at the end, None where not known.
    """
    seen = summary.seen
    codes = {finding.code for finding in summary.findings} | replayed
    legacy, modern = seen.magics[0] + seen.magics[1], seen.magics[2]
    # A segment with both is rare: the prediction reads it again.
    if (legacy and modern) or not _is_valid(codes):
        return None
    return ValidSegment(
        end_offset,
        tuple((epoch, offset) for epoch, offset, _ in seen.epochs),
        open_by_producer,
        wrappers=bool(legacy) and sum(seen.codecs[1:]) > 0,
        state_end=log.base_offset if legacy else None,
        valid_bytes=summary.tail,
        indexed=_index_checksums(summary, log.base_offset or 0, end_offset, legacy=bool(legacy)),
    )


def _is_valid(codes: Set[str]) -> bool:
    if not codes:
        return True
    from kdump.verify import reaction

    return reaction.is_valid_log(codes, tail=True)


def _index_checksums(
    summary: RangeSummary, base_offset: int, next_offset: int, *, legacy: bool
) -> IndexChecksums | None:
    """The checksums of both indexes where a recovery writes the same bytes and no producer wrote, else None."""
    seen, made = summary.seen, summary.made
    index, times = summary.indexes.get(Kind.INDEX), summary.indexes.get(Kind.TIMEINDEX)
    if made is None or index is None or times is None or summary.error is not None:
        return None
    if seen.broken or seen.produced or summary.tail is not None or made.since > 0:
        return None
    end = b""
    if seen.max_timestamp > made.last_timestamp:
        end = TIME_ENTRY.pack(seen.max_timestamp, seen.max_timestamp_offset - base_offset)
    if made.offsets != index.slots or made.times + end != times.slots:
        return None
    return IndexChecksums(
        seen.valid_bytes,
        next_offset,
        base_offset if legacy else next_offset,
        (len(index.slots), crc32c(index.slots)),
        (len(times.slots), crc32c(times.slots)),
    )
