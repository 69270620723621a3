"""Logs of object stores whose headers are not read before their records, so that each byte is fetched once.

To read the headers of a log alone fetches all of it: a request for less than what lies between two of them costs more.
A log that is in order and lacks nothing needs nothing that they say beforehand: its transactions are decided shortly
ahead of its records (kdump.convert.records.outcomes_ahead). So a log is taken for such a one, and its headers are known
when its records were read. Where they say something else, nothing of that is kept: the log is prepared as every other
one, and read again.
"""

from collections.abc import Sequence
from typing import Final

from kdump.convert.records.ordered_log import findings_of_missing, with_gaps
from kdump.errors import KdumpError
from kdump.format.naming import Kind
from kdump.log.compaction import is_compacted
from kdump.log.header_pass import SliceHeaders, is_in_order, joined_headers
from kdump.log.isolation import replay_in_order
from kdump.log.log_slice import HeaderPass, LogSlice, SlicedPartition
from kdump.storage.file_store import is_url
from kdump.storage.walk import Item

_HEALTHY: Final = HeaderPass(transactional=False, is_ordered=True, is_continuous=True, is_assumed=True)


class HeadersNeeded(KdumpError):
    """The headers of a log have to be read before its records: it is not what it was taken for."""

    def __init__(self) -> None:
        super().__init__("the headers of the log have to be read before its records")

    def __reduce__(self) -> tuple[type["HeadersNeeded"], tuple[()]]:
        return HeadersNeeded, ()


def without_headers(partition: SlicedPartition) -> SlicedPartition | None:
    """A log that can be read without its headers; None where they have to be read."""
    copy, slices = partition.copy, partition.slices
    if partition.headers is not None or copy is None or not copy.segments or partition.part is not None:
        return None
    if not all(_can_be_assumed(each) for each in slices) or [each for _, each in partition.numbered()] != [*slices]:
        return None
    return partition._replace(headers=_HEALTHY)


def _can_be_assumed(each: LogSlice) -> bool:
    is_whole = each.start == 0 and each.stop is None
    return is_whole and each.log.kind is Kind.LOG and each.log.base_offset is not None and is_url(each.log.path)


def check_item(item: Item) -> None:
    """Raise HeadersNeeded for what is not valid batches in order."""
    if not is_in_order(item):
        raise HeadersNeeded


def headers_in_order(partition: SlicedPartition, max_batch_bytes: int) -> list[SliceHeaders]:
    """What the headers of a log say that is read once without its records, up to what is no valid batch in order.

    Raises SourceError.
    """
    found: list[SliceHeaders] = []
    for each in partition.slices:
        headers = replay_in_order(each, _ignore, max_batch_bytes)
        if headers is None:
            break
        found.append(headers)
    return found


def _ignore(_: object) -> None:
    """What became of transactions is found out when their records are read."""


def read_so(
    partition: SlicedPartition, found: Sequence[SliceHeaders], max_batch_bytes: int, *, committed: bool
) -> SlicedPartition | None:
    """A log that was read without its headers, with what they say; None where it has to be read again.

    `committed`: transactions were decided. Raises SourceError.
    """
    slices, copy = partition.slices, partition.copy
    if len(found) != len(slices):
        return None
    headers = with_gaps(joined_headers(zip(slices, found, strict=True)), copy)
    if not headers.is_ordered or headers.gaps:
        return None
    if committed and headers.transactional and not headers.is_continuous:  # a marker may be missing
        shown = any(each.state.compacted for each in found)
        if not is_compacted(copy, shown=shown):
            return None
    known = partition._replace(headers=headers)
    return None if any(findings_of_missing(known, headers, max_batch_bytes)) else known
