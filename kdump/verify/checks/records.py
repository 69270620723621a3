"""The checks `record/*`, `control/*` and `legacy/*`: records of a batch, messages inside a wrapper message."""

from kdump.format.batch import Batch
from kdump.kernel.records import STATUSES
from kdump.verify.findings import Finding, make_finding

_OF_07 = ("wrapper-size", "wrapper-nested")  # mean something else in a log of Kafka 0.7


def _problem(code: str, path: str, batch: Batch, base: int | None) -> Finding:
    status = STATUSES[batch.status]
    return make_finding(
        code,
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=batch.status_record,
        at=batch.status_at,
        problem=f"{status}-07" if batch.is_kafka07 and status in _OF_07 else status,
    )


def _structure(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("record/structure", path, batch, base)


def _control(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("control/structure", path, batch, base)


def _wrapper(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("legacy/wrapper", path, batch, base)


def _varint(path: str, batch: Batch, base: int | None) -> Finding:
    return make_finding(
        "record/varint", path, batch.position, batch.size, offset=batch.last_offset, record=batch.varint_record
    )


def _delta(path: str, batch: Batch, base: int | None) -> Finding:
    return make_finding(
        "record/delta",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=batch.delta_record,
        delta=batch.delta_offset,
    )


def _inner_crc(path: str, batch: Batch, base: int | None) -> Finding:
    return make_finding(
        "legacy/inner-crc", path, batch.position, batch.size, offset=batch.last_offset, record=batch.inner_crc_record
    )


def _partial(path: str, batch: Batch, base: int | None) -> Finding:
    return make_finding(
        "legacy/partial", path, batch.position, batch.size, offset=batch.last_offset, bytes=batch.partial_bytes
    )


def _trailing(path: str, batch: Batch, base: int | None) -> Finding:
    return make_finding(
        "legacy/trailing", path, batch.position, batch.size, offset=batch.last_offset, record=batch.trailing_record
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
