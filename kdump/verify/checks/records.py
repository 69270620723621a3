"""The checks `record/*`, `control/*` and `legacy/*`: records of a batch, messages inside a wrapper message."""

from kdump.format.batch import Batch
from kdump.kernel.records import STATUSES
from kdump.kernel.results import BatchDiagnosis
from kdump.verify.findings import Finding, make_finding

_OF_07 = ("wrapper-size", "wrapper-nested")  # mean something else in a log of Kafka 0.7


def _problem(code: str, path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    status = STATUSES[diagnosis.status]
    return make_finding(
        code,
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=diagnosis.status_record,
        at=diagnosis.status_at,
        problem=f"{status}-07" if batch.is_kafka07 and status in _OF_07 else status,
    )


def _structure(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return _problem("record/structure", path, batch, diagnosis, base)


def _control(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return _problem("control/structure", path, batch, diagnosis, base)


def _wrapper(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return _problem("legacy/wrapper", path, batch, diagnosis, base)


def _varint(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "record/varint", path, batch.position, batch.size, offset=batch.last_offset, record=diagnosis.varint_record
    )


def _delta(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "record/delta",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=diagnosis.delta_record,
        delta=diagnosis.delta_offset,
    )


def _inner_crc(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "legacy/inner-crc",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=diagnosis.inner_crc_record,
    )


def _partial(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "legacy/partial", path, batch.position, batch.size, offset=batch.last_offset, bytes=diagnosis.partial_bytes
    )


def _trailing(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "legacy/trailing", path, batch.position, batch.size, offset=batch.last_offset, record=diagnosis.trailing_record
    )


EXPLAIN = {
    "record/structure": _structure,
    "record/varint": _varint,
    "record/delta": _delta,
    "control/structure": _control,
    "legacy/wrapper": _wrapper,
    "legacy/inner-crc": _inner_crc,
    "legacy/partial": _partial,
    "legacy/trailing": _trailing,
}


def inner_magic(path: str, position: int, count: int) -> Finding:
    """legacy/inner-magic: all inner messages of a segment with another magic, in one finding."""
    return make_finding("legacy/inner-magic", path, position, 0, count=count)
