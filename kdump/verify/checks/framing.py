"""The checks `batch/*`, `gap/*`, `tail/*`, `file/shrunk` and `file/grown`: the bytes of batches and between them."""

from kdump.format.batch import Batch
from kdump.kernel.results import BatchDiagnosis
from kdump.log.damage import zeros_severity
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, ShrunkFile, Tail, TailContent
from kdump.verify.findings import Finding, make_finding


def _crc(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "batch/crc", path, batch.position, batch.size, stored=batch.crc, computed=diagnosis.computed_crc
    )


def _magic(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "batch/magic",
        path,
        batch.position,
        batch.size,
        offset=batch.base_offset,
        magic=batch.magic,
        like=_like(batch, diagnosis),
    )


def _like(batch: Batch, diagnosis: BatchDiagnosis) -> int:
    """The magic under which the checksum is right."""
    if batch.is_kafka07:
        from kdump.format.kafka07 import HEADER_SIZE

        return next(magic for magic, size in HEADER_SIZE.items() if size == diagnosis.payload_at)
    return 2


def _limit(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return limit(path, batch, diagnosis.status_at)


def _codec(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return codec("batch/codec", path, batch, "codec-unknown" if batch.codec_name == batch.codec else "codec-magic")


def _count(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "batch/count",
        path,
        batch.position,
        batch.size,
        offset=batch.base_offset,
        count=batch.count,
        offsets=batch.last_offset_delta + 1,
    )


def _attributes(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "batch/attributes",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        attributes=batch.attributes,
        magic=batch.magic,
    )


EXPLAIN = {
    "batch/crc": _crc,
    "batch/magic": _magic,
    "batch/limit": _limit,
    "batch/codec": _codec,
    "batch/count": _count,
    "batch/attributes": _attributes,
}


def codec(code: str, path: str, batch: Batch, problem: str) -> Finding:
    """batch/codec or batch/codec-odd: what happened when the batch was opened.

    `problem` is a key of REASONS or NOTES in kdump.format.codec.
    """
    return make_finding(
        code, path, batch.position, batch.size, offset=batch.last_offset, codec=batch.codec_name, problem=problem
    )


def limit(path: str, batch: Batch, limit_bytes: int, *, decompressed: bool = False) -> Finding:
    """batch/limit: the batch, or its `decompressed` records, are larger than `limit_bytes`."""
    return make_finding("batch/limit", path, batch.position, batch.size, decompressed=decompressed, limit=limit_bytes)


def not_a_batch(path: str, item: Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile, active: bool) -> Finding:
    """The finding for bytes that are not a batch. `active`: the file is the active segment of its partition."""
    match item:
        case Gap(position, length, True):
            return make_finding("batch/length", path, position, length, claimed=item.claimed)
        case Gap(position, length):
            return make_finding("gap/bytes", path, position, length, zeros=item.zeros)
        case ForeignBatch(position, length, offset):
            return make_finding("gap/foreign-batch", path, position, length, offset=offset, undecided=item.undecided)
        case SearchLimit(position, length):
            return make_finding("gap/unsearched", path, position, length)
        case ShrunkFile(position, length):
            return make_finding("file/shrunk", path, position, length)
        case Tail(position, length, TailContent.ZEROS):
            return make_finding("tail/zeros", path, position, length, severity=zeros_severity(item, active=active))
        case Tail(position, length, TailContent.TORN):
            return make_finding("tail/torn", path, position, length, claimed=item.claimed or None)
        case Tail(position, length):
            return make_finding("tail/garbage", path, position, length)


def grown(path: str, size: int, by: int) -> Finding:
    """file/grown: the file became longer by `by` bytes while it was read."""
    return make_finding("file/grown", path, size, by)
