"""What a log holds by the reference decoder, so that a log and the one that it was converted to can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kdump
from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.conversion import LogConversion
from kdump.convert.log_output.tasks import LogTarget, convert_to_log
from kdump.convert.preparation import PreparedPartition
from kdump.errors import SourceError
from kdump.log.log_slice import EVERYTHING, Bounds, SlicedPartition, whole_log
from kdump.replicas.merge import MergedPartition
from kdump.verify.findings import Severity
from support import oracle


class Row(NamedTuple):
    """A record, and of its batch what a conversion keeps."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    transactional: bool
    control: bool
    delete_horizon: int | None


def batches(directory: Path) -> Iterator[tuple[bytes, oracle.Batch]]:
    """The valid batches of a log, each with the bytes of its file."""
    for log in sorted(directory.glob("*.log")):
        data = log.read_bytes()
        for item in oracle.walk(data, base_offset=int(log.stem)):
            if isinstance(item, oracle.Batch):
                yield data, item


def rows_of(directory: Path) -> list[Row]:
    """The records of a log, as they are after a conversion to magic 2."""
    return [row for data, batch in batches(directory) for row in batch_rows(data, batch)]


def batch_rows(data: bytes, batch: oracle.Batch, limit: int = oracle.DECOMPRESSED_BYTES) -> Iterator[Row]:
    """The records of a batch of at most `limit` bytes. Raises oracle.Malformed."""
    legacy = batch.is_legacy
    for record in oracle.records(data, batch.position, limit=limit):
        kind = record.timestamp_type
        yield Row(
            record.offset,
            record.timestamp,
            "CreateTime" if kind == "NoTimestampType" else kind,
            record.key,
            record.value,
            record.headers,
            record.sequence,
            -1 if legacy else batch.producer_id,
            -1 if legacy else batch.producer_epoch,
            -1 if legacy else batch.partition_leader_epoch or 0,
            not legacy and bool(batch.attributes & 0x10),
            batch.control,
            batch.base_timestamp if batch.delete_horizon else None,
        )


def without_producers(rows: Sequence[Row]) -> list[Row]:
    """As the records are written where the isolation is not `all`."""
    return [
        row._replace(sequence=-1, producer_id=-1, producer_epoch=-1, transactional=False)
        if row.producer_id >= 0 or row.transactional
        else row
        for row in rows
        if not row.control
    ]


def sliced(directory: Path, offset: Bounds = EVERYTHING) -> SlicedPartition:
    """The log of a directory."""
    (found,) = [each for each in kdump.discover(str(directory)) if isinstance(each, kdump.Partition)]
    return whole_log(found, offset)


def prepared(partition: SlicedPartition) -> PreparedPartition:
    """A log that is in order, of one copy."""
    return PreparedPartition(partition, MergedPartition(partition, (partition.path,)), (), (), ())


PREALLOCATED = "tail/zeros", Severity.WARNING


def converted(
    source: Path | SlicedPartition,
    output: Path,
    options: LogOutputOptions = LogOutputOptions(),  # noqa: B008
    *,
    damaged: Callable[[Any], object] | None = None,
    on_bytes: Callable[[int], object] | None = None,
    **how: Any,
) -> LogConversion:
    """Converts one partition; damage is an error unless `damaged` takes it, but for zeros that can be preallocation."""
    given = source if isinstance(source, SlicedPartition) else sliced(source)
    (result,) = convert_to_log([prepared(given)], output, LogTarget(options, **how), on_bytes=on_bytes)
    assert not isinstance(result.conversion, SourceError), result
    found = [finding for each in result.findings for finding in each.findings]
    for finding in found if damaged is not None else ():
        damaged(finding)
    assert damaged is not None or {(each.code, each.severity) for each in found} <= {PREALLOCATED}, found
    return result.conversion


def defects(directory: Path) -> set[tuple[str, str]]:
    """The errors and warnings of a deep verify."""
    (report,) = kdump.verify_logs(kdump.discover(str(directory)), kdump.VerifyOptions(deep=True))
    return {
        (finding.code, str(finding.severity))
        for finding in report.findings
        if str(finding.severity) in ("error", "warning")
    }
